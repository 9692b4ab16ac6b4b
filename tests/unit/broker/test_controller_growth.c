/* test_controller_growth.c - what the controller does and keeps for 3 brokers and 99 partitions, and for 50 brokers and 20,000: work goes with what
 * changes, memory with what there is, and replicas stay spread. Counts, not clocks.
 */
#include <malloc.h>

#define RIG_BROKERS 50
#include "cluster_rig.h"
#include "quorum/controller_priv.h"

static struct rig r;

/* ---- Bytes held ---- */

static int64_t held, calls;

static void *held_malloc(size_t n, void *ctx) {
    (void)ctx;
    void *p = malloc(n);
    calls++;
    held += (int64_t)malloc_usable_size(p);
    return p;
}
static void *held_realloc(void *old, size_t n, void *ctx) {
    (void)ctx;
    held -= (int64_t)malloc_usable_size(old);
    void *p = realloc(old, n);
    calls++;
    held += (int64_t)malloc_usable_size(p);
    return p;
}
static void held_free(void *p, void *ctx) {
    (void)ctx;
    held -= (int64_t)malloc_usable_size(p);
    free(p);
}

/* ---- Clusters ---- */

static int brokers;

static void create(const char *name, int32_t partitions) {
    struct meta_change c;
    struct kb_topic_create t = {.name = kw_str_of(name), .partitions = partitions, .replication_factor = 3};
    assert_int_equal(kb_controller_create_topics(r.m.controller, &t, 1, false, meta_change(&c), r.m.now), KW_OK);
    rig_run(&r, 100000);
    assert_int_equal(c.done, 1);
    assert_int_equal(t.result.code, 0);
}

/* Racks a to e in turn. Broker 1, the node itself, is one more. */
static void make(int n, int32_t topics, int32_t partitions) {
    static const char *const racks[] = {"a", "b", "c", "d", "e"};
    brokers = n;
    rig_init(&r, 0);
    for (int i = 0; i < n; i++) {
        r.b[i].rack = racks[i % 5];
        rig_up(&r, i, -1);
    }
    for (int32_t i = 0; i < topics; i++) {
        char name[20];
        snprintf(name, sizeof(name), "t%d", (int)i);
        create(name, partitions / topics);
    }
    assert_int_equal(r.m.image.partition_count, partitions);
}

/* Partitions that have the broker: among the replicas, in sync, leading. */
struct shares {
    int32_t has, in_sync, leads;
};
static struct shares shares_of(int32_t id) {
    struct shares s = {0};
    struct kb_image_topic *t;
    for (size_t it = 0; (t = kw_map_next(&r.m.image.topics_by_name, &it));)
        for (int32_t i = 0; i < t->partition_count; i++) {
            const struct kb_image_partition *p = &t->partitions[i];
            s.has += kb_elect_has(p->replicas, p->replica_count, id);
            s.in_sync += kb_elect_has(p->isr, p->isr_count, id);
            s.leads += p->leader == id;
        }
    return s;
}
static int64_t end_of_log(void) {
    return kb_store_end(r.m.store);
}
static int64_t looked_at(void) {
    return r.m.controller->sweep.looked_at;
}

/* ---- Work ---- */

static void rejoin(int i) {
    struct kb_image_topic *t;
    int32_t id = rig_id(i);
    for (size_t it = 0; (t = kw_map_next(&r.m.image.topics_by_name, &it));)
        for (int32_t k = 0; k < t->partition_count; k++) {
            const struct kb_image_partition *p = &t->partitions[k];
            if (!kb_elect_has(p->replicas, p->replica_count, id) || kb_elect_has(p->isr, p->isr_count, id)) continue;
            const struct kb_image_broker *b = kb_image_broker(&r.m.image, p->leader);
            struct meta_change c;
            int32_t isr[4], room[4];
            memcpy(isr, p->isr, (size_t)p->isr_count * sizeof(*isr));
            isr[p->isr_count] = id;
            struct kb_isr_alter a = {.topic = kw_str_null(), .topic_id = t->id, .partition = k, .leader_epoch = p->leader_epoch,
                                     .partition_epoch = p->partition_epoch, .isr = isr, .isr_count = p->isr_count + 1, .isr_room = room};
            struct kb_isr_request q = {.broker = p->leader, .broker_epoch = b->epoch, .items = &a};
            assert_int_equal(kb_controller_alter_isr(r.m.controller, &q, 1, meta_change(&c), r.m.now), KW_OK);
            rig_run(&r, 3000);
            assert_int_equal(c.done, 1);
            assert_int_equal(a.result.code, 0);
        }
}

static void check_work(int n, int32_t topics, int32_t partitions) {
    make(n, topics, partitions);
    int64_t idle = end_of_log(), looked = looked_at(), called = calls;
    rig_run(&r, 60000000);
    assert_int_equal(end_of_log(), idle); /* nothing happens: nothing is written, looked at, or asked of the heap */
    assert_int_equal(looked_at(), looked);
    assert_int_equal(calls, called);
    struct shares s = shares_of(rig_id(0));
    assert_in_range(s.leads, 1, s.has);
    assert_int_equal(s.in_sync, s.has);
    rig_kill(&r, 0);
    rig_run(&r, 3000000);
    assert_true(rig_fenced(&r, 0));
    assert_int_equal(end_of_log() - idle, 1 + s.in_sync); /* a record for itself, and one for each partition that counted on it */
    assert_int_equal(looked_at() - looked, s.has);        /* others are not touched, and no election is held for them */
    struct shares gone = shares_of(rig_id(0));
    assert_int_equal(gone.in_sync + gone.leads, 0);
    idle = end_of_log(), looked = looked_at();
    rig_up(&r, 0, -2);
    rig_run(&r, 1000000);
    assert_int_equal(end_of_log() - idle, 2); /* registered, unfenced */
    assert_in_range(looked_at() - looked, s.has, 2 * s.has);
    rejoin(0);
    idle = end_of_log();
    rig_run(&r, 310000000); /* the preferred replicas lead again */
    assert_int_equal(shares_of(rig_id(0)).leads, s.leads);
    assert_in_range(end_of_log() - idle, s.leads, s.leads + 2); /* and a snapshot's traces, if any */
    rig_deinit(&r);
}

static void test_work_of_a_small_cluster(void **state) {
    (void)state;
    check_work(3, 3, 99);
}
static void test_work_of_a_large_cluster(void **state) {
    (void)state;
    check_work(50, 4, 20000);
}
/* More leaderships to bring back than one sweep does: the next follows soon, not at the next check. */
static void test_work_of_few_brokers_with_much(void **state) {
    (void)state;
    check_work(3, 2, 9000);
}
static void test_work_of_many_topics(void **state) {
    (void)state;
    check_work(50, 2000, 20000);
}

/* ---- Memory ---- */

static int64_t bytes_a_partition(int n, int32_t topics, int32_t partitions) {
    struct kb_image image;
    make(n, topics, partitions);
    struct kw_out bytes = meta_bytes(&r.m.image);
    char why[200];
    kb_image_init(&image);
    int64_t before = held;
    assert_int_equal(kb_snapshot_load(bytes.p, bytes.len, 1, 1, -1, r.m.compressor, &image, why, sizeof(why)), KW_OK);
    int64_t a_partition = (held - before) / partitions;
    kb_image_deinit(&image);
    kw_out_deinit(&bytes);
    rig_deinit(&r);
    return a_partition;
}

static void test_memory_a_partition(void **state) {
    (void)state;
    int64_t small = bytes_a_partition(3, 1, 128), large = bytes_a_partition(50, 2, 16384); /* arrays grow by doubling */
    printf("the image holds %lld bytes a partition of 128, %lld of 16384\n", (long long)small, (long long)large);
    assert_in_range(large, 100, 600);
    assert_true(large <= small);
}

/* ---- Placement ---- */

static void test_placement_of_a_large_cluster(void **state) {
    (void)state;
    static const int32_t counts[] = {1, 7, 50, 100, 1000, 9999};
    int32_t leads[RIG_BROKERS] = {0}, has[RIG_BROKERS] = {0};
    make(50, 1, 10);
    for (size_t k = 0; k < KW_COUNTOF(counts); k++) {
        char name[20];
        snprintf(name, sizeof(name), "p%zu", k);
        create(name, counts[k]);
        const struct kb_image_topic *t = kb_image_topic(&r.m.image, kw_str_of(name));
        for (int32_t i = 0; i < t->partition_count; i++) {
            const struct kb_image_partition *p = &t->partitions[i];
            for (int a = 0; a < 3; a++) {
                const struct kb_image_broker *x = kb_image_broker(&r.m.image, p->replicas[a]);
                if (x->id >= ID0) has[x->id - ID0]++;
                for (int b = 0; b < a; b++) {
                    const struct kb_image_broker *y = kb_image_broker(&r.m.image, p->replicas[b]);
                    assert_true(!x->rack || !y->rack || strcmp(x->rack, y->rack) != 0);
                }
            }
            if (p->leader >= ID0) leads[p->leader - ID0]++;
        }
    }
    int32_t all = 1 + 7 + 50 + 100 + 1000 + 9999, lo = all, hi = 0, least = all, most = 0;
    for (int i = 0; i < 50; i++) {
        lo = KW_MIN(lo, leads[i]), hi = KW_MAX(hi, leads[i]);
        least = KW_MIN(least, has[i]), most = KW_MAX(most, has[i]);
    }
    printf("of %d partitions brokers lead %d to %d, and have %d to %d\n", (int)all, (int)lo, (int)hi, (int)least, (int)most);
    assert_true(hi - lo <= 6); /* one a topic */
    assert_true(most * 100 <= 3 * all / 51 * 110 && least * 100 >= 3 * all / 51 * 90);
    rig_deinit(&r);
}

#define TEST(f) cmocka_unit_test(f)
int main(void) {
    kw_allocator_set(&(struct kw_allocator){held_malloc, held_realloc, held_free, NULL});
    const struct CMUnitTest tests[] = {
        TEST(test_work_of_a_small_cluster), TEST(test_work_of_a_large_cluster), TEST(test_work_of_many_topics),
        TEST(test_work_of_few_brokers_with_much),
        TEST(test_memory_a_partition),      TEST(test_placement_of_a_large_cluster),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
