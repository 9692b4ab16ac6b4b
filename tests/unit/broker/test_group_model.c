/* test_group_model.c - one classic group under random requests in any order: its own rules hold after each, and when all that there is
 * comes back, joins, syncs and is stored, it is stable.
 */
#include "group_rig.h"

static int64_t below(int64_t n) {
    return (int64_t)kw_rng_below(&r.rng, (uint64_t)n);
}

static const char *instance_of(int i) {
    static const char *const name[] = {"i0", "i1", NULL};
    return i < 2 ? name[i] : NULL;
}

static void check_rules(int32_t *generation) {
    int32_t n = 0;
    assert_true(kb_group_generation(r.g) >= *generation); /* never back */
    *generation = kb_group_generation(r.g);
    for (const struct kb_member *m = NULL; (m = kb_group_next(r.g, m));) n++;
    assert_int_equal(n, kb_group_size(r.g));
    assert_int_equal(n == 0 && state_() != KB_GROUP_PREPARING, state_() == KB_GROUP_EMPTY);
    assert_true(state_() != KB_GROUP_STABLE || kb_group_protocol(r.g).len > 0);
    for (int i = 0; i < SEATS; i++) assert_true(!r.s[i].waits_sync || state_() == KB_GROUP_COMPLETING);
}

static void model_step(void) {
    int i = (int)below(SEATS);
    struct seat *s = &r.s[i];
    bool idle = !s->waits_join && !s->waits_sync;
    switch (below(10)) {
    case 0:
    case 1:
    case 2:
        if (!idle) return;
        if (s->code == KE_UNKNOWN_MEMBER_ID || s->code == KE_FENCED_INSTANCE_ID || below(10) == 0) s->id[0] = 0;
        join_how(i, (struct how){.instance = instance_of(i),
                                 .id_required = below(2),
                                 .skips = below(2),
                                 .data = below(3) ? "t" : "u",
                                 .session_ms = 6000 + 1000 * i});
        return;
    case 3:
    case 4:
        if (idle) sync_as(i, instance_of(i), s->generation, below(4) ? "0=a,1=b,2=c,3=d,4=e,5=f" : NULL);
        return;
    case 5:
        kb_group_heartbeat(r.g, kw_str_of(s->id), kw_str_of(instance_of(i)), s->generation, r.now);
        return;
    case 6:
        if (below(4) == 0) kb_group_leave(r.g, kw_str_of(s->id), kw_str_of(instance_of(i)), kw_str_null(), r.now);
        return;
    case 7:
        if (r.answered < r.store) {
            r.answered++;
            kb_group_stored(r.g, r.answered, below(8) ? KE_NONE : KE_COORDINATOR_NOT_AVAILABLE, r.now);
        }
        return;
    case 8:
        wait_ms(below(below(20) ? 500 : 20000));
        return;
    default:
        if (idle || below(3)) return;
        kb_group_forget(&s->w, r.now);
        s->waits_join = s->waits_sync = false;
    }
}

/* When all that there is comes back, joins, syncs and is stored, the group is stable: nothing hangs. */
static void settle(void) {
    for (int round = 0; round < 400; round++) {
        bool all = state_() == KB_GROUP_STABLE && kb_group_size(r.g) == SEATS;
        for (int i = 0; i < SEATS; i++) all = all && !r.s[i].waits_join && !r.s[i].waits_sync;
        if (all) return;
        for (int i = 0; i < SEATS; i++) {
            struct seat *s = &r.s[i];
            if (s->waits_join || s->waits_sync) continue;
            if (s->code == KE_UNKNOWN_MEMBER_ID || s->code == KE_FENCED_INSTANCE_ID) s->id[0] = 0;
            int16_t code = kb_group_heartbeat(r.g, kw_str_of(s->id), kw_str_of(instance_of(i)), s->generation, r.now);
            if (code || s->code)
                join_how(i, (struct how){.instance = instance_of(i), .session_ms = 6000 + 1000 * i});
            else if (state_() == KB_GROUP_COMPLETING)
                sync_as(i, instance_of(i), s->generation, "0=a,1=b");
            s->code = s->waits_join || s->waits_sync ? KE_NONE : s->code;
        }
        if (r.answered < r.store) stored(KE_NONE);
        wait_ms(1000);
    }
    fail_msg("the group does not settle: %s, %d members", kb_group_state_text(state_()), (int)kb_group_size(r.g));
}

static void test_model(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        teardown(NULL);
        setup(NULL);
        kw_rng_init(&r.rng, seed);
        r.env.initial_delay_us = seed % 4 == 0 ? 3000000 : 0;
        int32_t generation = 0;
        for (int step = 0; step < 600; step++) {
            model_step();
            check_rules(&generation);
        }
        settle();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(test_model, setup, teardown)};
    return cmocka_run_group_tests_name("group_model", tests, NULL, NULL);
}
