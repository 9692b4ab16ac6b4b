/* test_guid_edges.c - topics with message.guid.dedup whose memory, disk or settings fail them at a bad moment: nobody waits for ever, and nothing is stored
 * twice. */
#include "guid_rig.h"

#include "guid/index_priv.h"
#include "replica/guids.h"

static void stop_slow(struct rig *r) {
    kb_node_stop(r->node, r->now);
    for (int i = 0; i < 100 && kb_node_state(r->node) != KB_NODE_STOPPED; i++) rig_pass(r, 1000000);
    if (kb_node_state(r->node) != KB_NODE_STOPPED) fail_msg("it does not stop");
    rig_free_node(r);
}

/* A full disk while the node stops, and not all is written. */
static void test_stop_on_a_full_disk(void **state) {
    (void)state;
    for (int how = 0; how < 3; how++) {
        struct rig r;
        struct rig_conn *c = guid_begin(&r, 50);
        guid_put(c, true, GUIDS(IDS(50)));
        sim_disk_faults(r.disk)->spare = "__cluster_metadata";
        sim_disk_faults(r.disk)->enospc_ppm = 1000000;
        if (how == 1) sim_disk_faults(r.disk)->enospc_ppm = 0, sim_disk_faults(r.disk)->enospc_at = 0;
        guid_send(c, 1, 1, GUIDS(IDS(1, 2)));
        if (how == 2) rig_turn(&r);
        stop_slow(&r);
        sim_disk_faults(r.disk)->enospc_ppm = 0;
        sim_disk_faults(r.disk)->enospc_at = -1;
        rig_start(&r);
        c = rig_connect(&r);
        guid_ranges(guid_put(c, true, GUIDS(IDS(50, 1))), guid_log_of(&r)->leo > 3 ? "0+2@0" : "0+1@0");
        rig_deinit(&r);
    }
}

/* No memory when dedup is switched on: whoever sends next has it tried again. */
static void test_start_without_memory(void **state) {
    (void)state;
    for (int64_t at = 0; at < 12; at++) {
        struct rig r;
        rig_produced a;
        rig_init(&r, 51);
        rig_start(&r);
        struct rig_conn *c = rig_connect(&r);
        assert_int_equal(rig_create(c, "t", 1, NULL, NULL), KE_NONE);
        guid_put(c, true, GUIDS(IDS(1)));
        struct kb_partition *p = rig_partition(&r, "t", 0);
        p->config.guid_dedup = true;
        kw_alloc_fail_after(at);
        kb_guids_look(p, r.now);
        kw_alloc_fail_after(-1);
        guid_send(c, -1, 1, GUIDS(IDS(1)));
        rig_pass(&r, 20000000);
        if (!guid_answer(c, 1, &a)) fail_msg("at %d: no answer", (int)at);
        guid_expect(a, KE_NONE, 0);
        rig_deinit(&r);
    }
}

/* Memory fails somewhere in a batch that has to read the index's files: those behind it go on. */
static void test_head_without_memory(void **state) {
    (void)state;
    for (int64_t at = 0; at < 40; at++) {
        struct rig r;
        rig_produced a;
        struct rig_conn *c = guid_begin(&r, 52), *d = rig_connect(&r);
        guid_put(c, true, GUIDS(IDS(1)));
        struct kb_partition *p = rig_partition(&r, "t", 0);
        kb_guid_freeze(kb_guids_index(p));
        kb_guid_work(kb_guids_index(p), r.now);
        rig_pass(&r, 1000000);
        struct guids g = GUIDS(IDS(1));
        size_t n;
        uint8_t *b = guid_batch(&r, &g, &n);
        struct rig_produce *m = rig_produce_msg(&r, "t", 0, -1, b, n);
        struct kw_out out;
        kw_out_init(&out);
        assert_int_equal(kw_frame_request(&out, kw_api_by_key(KW_API_PRODUCE), 9, 1, kw_str_of("rig"), &m->req), KW_OK);
        kw_alloc_fail_after(at);
        rig_send(c, out.p, out.len);
        kw_alloc_fail_after(-1);
        kw_out_deinit(&out);
        guid_send(d, -1, 2, GUIDS(IDS(1)));
        rig_pass(&r, 1000000);
        if (!guid_answer(d, 2, &a)) fail_msg("at %d: no answer", (int)at);
        guid_expect(a, KE_NONE, 0);
        rig_deinit(&r);
    }
}

/* acks=0, its client is gone, and then it is refused. */
static void test_refused_behind_its_client(void **state) {
    (void)state;
    for (int how = 0; how < 3; how++) {
        struct rig r;
        rig_init(&r, 53);
        rig_start(&r);
        struct rig_conn *c = rig_connect(&r), *d = rig_connect(&r);
        assert_int_equal(rig_create(c, "t", 1, NULL, NULL), KE_NONE);
        struct kb_partition *p = rig_partition(&r, "t", 0);
        p->config.guid_dedup = true;
        guid_send(c, 0, 1, GUIDS(IDS(1), .id_size = 5));
        guid_send(d, 0, 2, GUIDS(IDS(2)));
        rig_close_conns(&r);
        rig_turn(&r);
        if (how == 0) {
            kb_guids_look(p, r.now);
            rig_settle(&r);
            guid_holds(&r, p->log, "0:2", 1);
        } else if (how == 1) {
            rig_pass(&r, 40000000);
        } else {
            c = rig_connect(&r);
            rig_delete(c, "t");
        }
        rig_deinit(&r);
    }
}

/* Switched off again while its index is being opened, and nothing more happens. */
static void test_off_while_opening(void **state) {
    (void)state;
    struct rig r;
    rig_init(&r, 54);
    rig_start(&r);
    struct rig_conn *c = rig_connect(&r);
    assert_int_equal(rig_create(c, "t", 1, NULL, NULL), KE_NONE);
    guid_put(c, true, GUIDS(IDS(1)));
    struct kb_partition *p = rig_partition(&r, "t", 0);
    p->config.guid_dedup = true;
    kb_guids_look(p, r.now);
    p->config.guid_dedup = false;
    kb_guids_look(p, r.now);
    rig_pass(&r, 1000000);
    assert_null(p->guids);
    rig_deinit(&r);
}

/* Another topic of the name, while the index of the one before is still being written: nothing of that is the new one's. */
static void test_made_anew_meanwhile(void **state) {
    (void)state;
    for (int how = 0; how < 4; how++) {
        struct rig r;
        struct rig_conn *c = guid_begin(&r, 55 + (uint64_t)how);
        guid_put(c, true, GUIDS(IDS(1, 2, 3)));
        struct kb_partition *p = rig_partition(&r, "t", 0);
        sim_disk_faults(r.disk)->slow_ppm = how < 2 ? 1000000 : 300000;
        sim_disk_faults(r.disk)->slow_us = 700000;
        kb_guid_freeze(kb_guids_index(p));
        kb_guid_work(kb_guids_index(p), r.now);
        guid_send(c, -1, 1, GUIDS(IDS(2, 4)));
        if (how % 2) rig_turn(&r);
        struct rig_conn *d = rig_connect(&r);
        rig_delete(d, "t");
        assert_int_equal(rig_create(d, "t", 1, "message.guid.dedup", "true"), KE_NONE);
        guid_expect(guid_put(d, true, GUIDS(IDS(2, 1))), KE_NONE, 0);
        guid_ranges(guid_put(d, true, GUIDS(IDS(1, 3))), "0+1@1");
        sim_disk_faults(r.disk)->slow_ppm = 0;
        rig_pass(&r, 100000000);
        if (how == 3) rig_crash(&r);
        else rig_restart(&r);
        d = rig_connect(&r);
        guid_ranges(guid_put(d, true, GUIDS(IDS(1, 2, 3))), "0+1@1 1+1@0 2+1@3");
        guid_holds(&r, guid_log_of(&r), "0:2 1:1 3:3", 4);
        rig_deinit(&r);
    }
}

/* A window so short that every batch has a table of its own, and one without end. */
static void test_strange_windows(void **state) {
    (void)state;
    for (int how = 0; how < 2; how++) {
        struct rig r;
        rig_init(&r, 60);
        rig_set(&r, "log.retention.ms", "-1");
        rig_set(&r, "log.message.guid.dedup", "true");
        rig_start(&r);
        struct rig_conn *c = rig_connect(&r);
        assert_int_equal(rig_create(c, "t", 1, "message.guid.window.ms", how ? "9223372036854775807" : "1"), KE_NONE);
        for (uint64_t i = 0; i < 60; i++) {
            guid_expect(guid_put(c, true, GUIDS(IDS(2 * i + 1, 2 * i + 2))), KE_NONE, 2 * (int64_t)i);
            if (i % 20 == 19) rig_restart(&r);
            if (i % 20 == 19) c = rig_connect(&r);
        }
        rig_pass(&r, 10000000);
        rig_produced a = guid_put(c, true, GUIDS(IDS(1, 2)));
        guid_ranges(a, how ? "0+2@0" : "");
        rig_deinit(&r);
    }
}

/* One request with a partition twice, and another in between. */
static void test_a_partition_twice(void **state) {
    (void)state;
    for (int cold = 0; cold < 2; cold++) {
        struct rig r;
        size_t n[3];
        rig_init(&r, 61);
        rig_set(&r, "log.message.guid.dedup", "true");
        rig_start(&r);
        struct rig_conn *c = rig_connect(&r);
        assert_int_equal(rig_create(c, "t", 2, NULL, NULL), KE_NONE);
        guid_put(c, true, GUIDS(IDS(1)));
        if (cold) rig_restart(&r); /* the index has to be read */
        c = rig_connect(&r);
        uint8_t *b[3] = {guid_batch(&r, &GUIDS(IDS(1, 2)), &n[0]), guid_batch(&r, &GUIDS(IDS(1, 2)), &n[1]), guid_batch(&r, &GUIDS(IDS(2, 3)), &n[2])};
        struct kw_produce_request_partition_produce_data parts[3];
        struct kw_produce_response resp;
        struct rig_produce *m = rig_produce_msg(&r, "t", 0, -1, b[0], n[0]);
        m->req.include_guid_ranges = true;
        for (int i = 0; i < 3; i++) {
            parts[i] = m->part;
            parts[i].index = i == 1;
            parts[i].records = (struct kw_records){b[i], (int32_t)n[i], NULL};
        }
        m->topic.partition_data.v = parts;
        m->topic.partition_data.n = 3;
        rig_call(c, KW_API_PRODUCE, 9, &m->req, &resp);
        const rig_produced *a = resp.responses.v[0].partition_responses.v;
        guid_expect(a[0], KE_NONE, 1);
        guid_ranges(a[0], "0+1@0");
        guid_expect(a[1], KE_NONE, 0);
        guid_ranges(a[1], "");
        guid_expect(a[2], KE_NONE, 3);
        guid_ranges(a[2], "0+1@2");
        guid_holds(&r, guid_log_of(&r), "0:1 2:2 4:3", 5);
        rig_deinit(&r);
    }
}

/* Of a compacted topic nothing goes within the window, over restarts too: whoever is told of a first copy finds it. */
static void test_compaction_waits(void **state) {
    (void)state;
    struct rig r;
    rig_init(&r, 62);
    rig_set(&r, "log.message.guid.dedup", "true");
    rig_set(&r, "log.message.guid.window.ms", "60000");
    rig_set(&r, "log.segment.bytes", "3000");
    rig_set(&r, "log.cleaner.backoff.ms", "1000");
    rig_set(&r, "log.retention.check.interval.ms", "1000");
    rig_start(&r);
    struct rig_conn *c = rig_connect(&r);
    assert_int_equal(rig_create(c, "t", 1, "cleanup.policy", "compact"), KE_NONE);
    int32_t seq = 0;
    for (uint64_t i = 0; i < 60; i++) { /* a batch, and one that is all duplicates and leaves a hole */
        guid_expect(guid_put(c, true, GUIDS(IDS(2 * i + 1, 2 * i + 2), .key = "k", .pid = 5, .seq = seq)), KE_NONE, 4 * (int64_t)i);
        guid_expect(guid_put(c, true, GUIDS(IDS(2 * i + 1, 2 * i + 2), .key = "k", .pid = 5, .seq = seq + 2)), KE_NONE, 4 * (int64_t)i);
        seq += 4;
    }
    for (int how = 0; how < 3; how++) {
        rig_pass(&r, 15000000);
        assert_int_equal(r.node->partitions->cleaner.passes, 0);
        guid_ranges(guid_put(c, true, GUIDS(IDS(1, 2, 9, 10), .key = "k")), "0+2@0 2+2@16");
        struct guid_log l;
        guid_read(&r, guid_log_of(&r), &l);
        assert_int_equal(l.count, 120);
        free(l.v);
        if (how == 0) rig_restart(&r);
        if (how == 1) rig_crash(&r);
        c = rig_connect(&r);
    }
    rig_pass(&r, 70000000);
    assert_true(r.node->partitions->cleaner.passes > 0);
    guid_ranges(guid_put(c, true, GUIDS(IDS(1, 2, 2), .key = "k", .pid = 5, .seq = seq)), "2+1@241"); /* older than the window */
    struct guid_log l;
    guid_read(&r, guid_log_of(&r), &l);
    assert_true(l.count < 60);
    free(l.v);
    rig_deinit(&r);
}

#define TEST(f) cmocka_unit_test(f)
int main(void) {
    const struct CMUnitTest tests[] = {TEST(test_stop_on_a_full_disk), TEST(test_start_without_memory), TEST(test_head_without_memory),
                                       TEST(test_refused_behind_its_client), TEST(test_off_while_opening), TEST(test_made_anew_meanwhile),
                                       TEST(test_strange_windows), TEST(test_a_partition_twice), TEST(test_compaction_waits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
