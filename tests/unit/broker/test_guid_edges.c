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

#define TEST(f) cmocka_unit_test(f)
int main(void) {
    const struct CMUnitTest tests[] = {TEST(test_stop_on_a_full_disk), TEST(test_start_without_memory), TEST(test_head_without_memory),
                                       TEST(test_refused_behind_its_client), TEST(test_off_while_opening)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
