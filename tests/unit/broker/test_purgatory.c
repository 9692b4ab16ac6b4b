/* test_purgatory.c - waiting on partitions: who is asked, how often, and unhooking while being asked. */
#include "node_rig.h"

#include "replica/purgatory.h"

struct test_waiter {
    struct kb_waiter w;
    struct kb_wait_hook hooks[3];
    struct kb_node *node;
    int asked, expired;
    bool done_when_asked;
    struct test_waiter *kills; /* ends this one when asked */
};

static void check(struct kb_waiter *w, struct kb_partition *moved, struct kb_now now) {
    (void)moved, (void)now;
    struct test_waiter *t = w->ctx;
    t->asked++;
    if (t->done_when_asked) kb_waiter_done(&t->w, t->node);
    if (t->kills) kb_waiter_done(&t->kills->w, t->node);
}
static void expire(struct kb_waiter *w, struct kb_now now) {
    (void)now;
    struct test_waiter *t = w->ctx;
    t->expired++;
    kb_waiter_done(&t->w, t->node);
}

struct fixture {
    struct rig r;
    struct kb_partition *p[2];
};
static void up(struct fixture *x) {
    rig_init(&x->r, 1);
    rig_start(&x->r);
    assert_int_equal(rig_create(rig_connect(&x->r), "t", 2, NULL, NULL), KE_NONE);
    for (int32_t i = 0; i < 2; i++) x->p[i] = rig_partition(&x->r, "t", i);
}
static void wait(struct fixture *x, struct test_waiter *t, int64_t us, int partitions) {
    memset(t, 0, sizeof(*t));
    t->node = x->r.node;
    kb_waiter_init(&t->w, t->hooks, 3);
    t->w.check = check;
    t->w.expire = expire;
    t->w.ctx = t;
    for (int i = 0; i < partitions; i++) kb_waiter_hook(&t->w, x->p[i]);
    assert_int_equal(kb_waiter_arm(&t->w, x->r.node, x->r.now.mono_us + us), KW_OK);
}

static void test_asked_once(void **state) {
    (void)state;
    struct fixture x;
    struct test_waiter a, b, c;
    up(&x);
    wait(&x, &a, 1000000, 2);
    wait(&x, &b, 1000000, 1);
    wait(&x, &c, 1000000, 2);
    b.done_when_asked = true;
    kb_purgatory_moved(x.p[0], x.r.now);
    assert_int_equal(a.asked, 1);
    assert_int_equal(b.asked, 1);
    assert_int_equal(c.asked, 1);
    kb_purgatory_moved(x.p[0], x.r.now);
    assert_int_equal(a.asked, 2);
    assert_int_equal(b.asked, 1); /* it was satisfied */
    kb_purgatory_moved(x.p[1], x.r.now);
    assert_int_equal(c.asked, 3);
    assert_false(kw_timer_armed(&b.w.timer));
    rig_pass(&x.r, 2000000);
    assert_int_equal(a.expired, 1);
    assert_int_equal(b.expired, 0);
    assert_int_equal(c.expired, 1);
    assert_true(kw_list_empty(&x.p[0]->waiters) && kw_list_empty(&x.p[1]->waiters));
    rig_deinit(&x.r);
}

static void test_ended_by_another(void **state) {
    (void)state;
    struct fixture x;
    struct test_waiter a, b, c;
    up(&x);
    wait(&x, &a, 1000000, 2);
    wait(&x, &b, 1000000, 2);
    wait(&x, &c, 1000000, 2);
    a.kills = &b; /* which would be asked next */
    c.kills = &a; /* which was asked already */
    kb_purgatory_moved(x.p[0], x.r.now);
    assert_int_equal(a.asked, 1);
    assert_int_equal(b.asked, 0);
    assert_int_equal(c.asked, 1);
    kb_purgatory_moved(x.p[1], x.r.now);
    assert_int_equal(a.asked, 1);
    assert_int_equal(b.asked, 0);
    assert_int_equal(c.asked, 2);
    kb_waiter_done(&c.w, x.r.node);
    kb_purgatory_moved(x.p[0], x.r.now); /* nobody */
    rig_deinit(&x.r);
}

static void test_same_partition_twice(void **state) {
    (void)state;
    struct fixture x;
    struct test_waiter a;
    up(&x);
    wait(&x, &a, 1000000, 1);
    struct kb_wait_hook *second = kb_waiter_hook(&a.w, x.p[0]);
    kb_waiter_unhook(second);
    kb_purgatory_moved(x.p[0], x.r.now);
    assert_int_equal(a.asked, 1);
    kb_waiter_hook(&a.w, x.p[0]);
    a.done_when_asked = true;
    kb_purgatory_moved(x.p[0], x.r.now);
    assert_int_equal(a.asked, 2); /* done at the first of its two hooks */
    assert_true(kw_list_empty(&x.p[0]->waiters));
    rig_deinit(&x.r);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_asked_once), cmocka_unit_test(test_ended_by_another),
                                       cmocka_unit_test(test_same_partition_twice)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
