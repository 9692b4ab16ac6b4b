/* test_quorum_cases.c - bug cases of the metadata quorum: BR-11, BR-12, BR-16. BR-14 is in test_store, test_image and test_image_replace. */
#include "quorum_rig.h"

/* BR-11: no voter hears the leader any more, and the brokers do. It resigns; who followed it finds the next one, and never sees what was not committed. */
static void test_br11_leader_heard_by_brokers_alone(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct quorum *q = malloc(sizeof(*q));
        q_init(q, 3, 5, seed);
        q_boot_all(q);
        struct host *old = q_wait_leader(q, 5 * SECOND);
        assert_non_null(old);
        append_some(q, old, 5);
        q_agree(q, 5 * SECOND);
        int64_t end = q_store(old)->log->leo, offset;
        for (int i = 0; i < 3; i++)
            if (i != old->id) q->cut[old->id][i] = q->cut[i][old->id] = true;
        for (int i = 0; i < 7; i++) assert_true(q_append(old, &offset));
        struct host *next = NULL;
        for (int i = 0; i < 4000 && !next; i++) {
            q_pass(q, 1000);
            for (int k = 3; k < 5; k++) assert_int_equal(q->h[k].r.node->image.offset, end - 1);
            if (q_leader(q) && q_leader(q) != old) next = q_leader(q);
        }
        assert_non_null(next);
        append_some(q, next, 3);
        q_pass(q, 2 * SECOND);
        assert_false(kb_store_leads(q_store(old)));
        for (int k = 3; k < 5; k++) {
            assert_int_equal(q_store(&q->h[k])->raft->leader, next->id);
            assert_int_equal(q->h[k].r.node->image.offset, next->r.node->image.offset);
        }
        memset(q->cut, 0, sizeof(q->cut));
        q_agree(q, 10 * SECOND);
        q_deinit(q);
        free(q);
    }
}

/* BR-12: the log that was committed is not cut, whoever asks for it: a disk of another time is taken for what it is. */
static void test_br12_committed_is_not_cut(void **state) {
    (void)state;
    struct quorum *q = malloc(sizeof(*q));
    q_init(q, 3, 3, 10);
    q_boot_all(q);
    struct host *l = q_wait_leader(q, 5 * SECOND);
    append_some(q, l, 3);
    q_agree(q, SECOND);
    struct host *a = &q->h[(l->id + 1) % 3], *b = &q->h[(l->id + 2) % 3];
    q_kill(a, false);
    q_kill(b, false);
    struct sim_disk_image *ia = sim_disk_image_take(a->r.disk), *ib = sim_disk_image_take(b->r.disk);
    q_boot(a);
    q_boot(b);
    q_agree(q, 5 * SECOND);
    l = q_leader(q);
    append_some(q, l, 20);
    q_agree(q, SECOND);
    struct host *witness = a->id != l->id && b->id != l->id ? NULL : l; /* one of the two may lead by now */
    if (!witness) witness = l;
    for (int i = 0; i < 3; i++)
        if (&q->h[i] != a && &q->h[i] != b) witness = &q->h[i];
    q_kill(a, false);
    q_kill(b, false);
    sim_disk_image_restore(a->r.disk, ia);
    sim_disk_image_restore(b->r.disk, ib);
    /* Two old disks are a majority: they elect one of theirs while the witness is cut off. */
    for (int i = 0; i < 3; i++)
        if (i != witness->id) q->cut[i][witness->id] = q->cut[witness->id][i] = true;
    for (int i = 0; i < OFFSETS_MAX; i++) q->epoch_at[i] = -1; /* what was committed is lost by our own doing */
    for (int i = 0; i < EPOCHS_MAX; i++) q->leader_of[i] = -2;
    q->committed = -1;
    q_boot(a);
    q_boot(b);
    q_pass(q, 10 * SECOND);
    assert_non_null(q_leader(q));
    memset(q->cut, 0, sizeof(q->cut));
    q_pass(q, 10 * SECOND);
    assert_true(witness->failed);
    assert_non_null(strstr(kb_node_failure(witness->r.node), "committed up to"));
    assert_non_null(q_leader(q));
    q_deinit(q);
    free(q);
}

static int rot_snapshots(struct host *h) {
    char **names, path[160];
    int rotten = 0;
    size_t count = sim_disk_names(h->r.disk, "/data/__cluster_metadata-0", &names);
    for (size_t i = 0; i < count; i++) {
        size_t len = strlen(names[i]);
        if (len > 11 && strcmp(names[i] + len - 11, ".checkpoint") == 0) {
            snprintf(path, sizeof(path), "/data/__cluster_metadata-0/%s", names[i]);
            sim_disk_rot(h->r.disk, path, 120, 0x10);
            rotten++;
        }
        free(names[i]);
    }
    free(names);
    return rotten;
}

/* BR-16: the snapshots of one voter are corrupt. Where its log still tells all it goes by that; else it says so and serves nobody, least of all as the
 * leader. The others go on, and mended it is one of them again. */
static void test_br16_corrupt_snapshots_of_one(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        bool leads = i % 2, whole = i / 2;
        struct quorum *q = malloc(sizeof(*q));
        q_init(q, 3, 3, 17 + (uint64_t)i);
        set_all(q, "metadata.log.max.record.bytes.between.snapshots", "2000");
        if (!whole) set_all(q, "metadata.log.segment.bytes", "1024");
        q_boot_all(q);
        struct host *l = q_wait_leader(q, 5 * SECOND);
        assert_non_null(l);
        for (int k = 0; k < 12; k++) {
            append_some(q, l, 20);
            q_pass(q, SECOND / 10);
        }
        q_agree(q, 5 * SECOND);
        struct host *sick = leads ? l : &q->h[(l->id + 1) % 3];
        q_kill(sick, false);
        assert_true(rot_snapshots(sick) > 0);
        q_boot(sick);
        for (int k = 0; k < 3000; k++) {
            q_pass(q, 1000);
            assert_true(whole || !q_leads(sick));
        }
        assert_true(said(sick, whole ? "is corrupt: it is not used" : "no valid snapshot reaches it"));
        assert_int_equal(sick->failed, !whole);
        struct host *next = q_wait_leader(q, 5 * SECOND);
        assert_non_null(next);
        append_some(q, next, 5);
        if (!whole) {
            q_kill(sick, false);
            assert_true(rot_snapshots(sick) > 0); /* mended */
            q_boot(sick);
        }
        q_agree(q, 10 * SECOND);
        q_deinit(q);
        free(q);
    }
}

int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_br11_leader_heard_by_brokers_alone),
        cmocka_unit_test(test_br12_committed_is_not_cut),
        cmocka_unit_test(test_br16_corrupt_snapshots_of_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
