/* test_node.c - a node's life: first start, clean stop, kill -9, folders, checkpoints, disk trouble. */
#include "node_rig.h"

#include "log/log.h"
#include "replica/partitions_priv.h"

static bool has(struct rig *r, const char *path) {
    size_t n;
    return sim_disk_peek(r->disk, path, &n) != NULL;
}

static void test_first_start(void **state) {
    (void)state;
    struct rig r;
    struct rig_conn *c = rig_begin(&r, 1, 2);
    assert_int_equal(rig_produce_three(c, "t"), 0); /* usable as soon as its creation was answered */
    assert_int_equal(rig_produce_three(c, "t"), 3);
    rig_settle(&r);
    size_t n;
    const uint8_t *text = sim_disk_peek(r.disk, "/data/t-1/partition.metadata", &n);
    assert_non_null(text);
    assert_memory_equal(text, "version: 0\ntopic_id: ", 21);
    assert_string_equal(r.lines, "");
    rig_deinit(&r);
}

static void test_clean_restart(void **state) {
    (void)state;
    struct rig r;
    struct rig_conn *c = rig_begin(&r, 2, 1);
    rig_produce_three(c, "t");
    rig_stop(&r);
    assert_true(has(&r, "/data/.kafka_cleanshutdown"));
    size_t n;
    const uint8_t *text = sim_disk_peek(r.disk, "/data/replication-offset-checkpoint", &n);
    assert_int_equal(n, strlen("0\n1\nt 0 3\n"));
    assert_memory_equal(text, "0\n1\nt 0 3\n", n);
    rig_start(&r);
    assert_false(has(&r, "/data/.kafka_cleanshutdown"));
    c = rig_connect(&r);
    assert_int_equal(rig_fetch_one(c, RIG_FETCH(.topic = "t"))->high_watermark, 3);
    assert_int_equal(rig_produce_three(c, "t"), 3);
    rig_deinit(&r);
}

/* BL-02: the marker is gone, for good, before anything is loaded: killed while loading, the next start recovers. */
static void test_BL_02(void **state) {
    (void)state;
    struct rig r;
    struct rig_conn *c = rig_begin(&r, 3, 1);
    rig_produce_three(c, "t");
    rig_stop(&r);
    sim_disk_sync_all(r.disk);
    rig_load(&r);
    while (kb_node_state(r.node) == KB_NODE_LOADING && !r.node->parts.store) rig_load_step(&r);
    assert_non_null(r.node->parts.store); /* loading begins */
    sim_disk_power_loss(r.disk, r.now);
    rig_free_node(&r);
    sim_disk_restart(r.disk);
    assert_false(has(&r, "/data/.kafka_cleanshutdown"));
    rig_start(&r);
    c = rig_connect(&r);
    assert_int_equal(rig_fetch_one(c, RIG_FETCH(.topic = "t"))->high_watermark, 3);
    rig_deinit(&r);
}

/* A start that refuses a damaged metadata log forgets nothing: the next one refuses it, too, instead of taking the damage for a torn end. */
static void test_refused_twice(void **state) {
    (void)state;
    struct rig r;
    rig_init(&r, 3);
    rig_start(&r);
    rig_create(rig_connect(&r), "t", 1, NULL, NULL);
    rig_stop(&r);
    sim_disk_sync_all(r.disk);
    static const char path[] = "/data/__cluster_metadata-0/00000000000000000000.log";
    size_t size, now;
    (void)sim_disk_peek(r.disk, path, &size);
    sim_disk_rot(r.disk, path, size - 20, 0x10); /* in its last batch */
    for (int start = 0; start < 3; start++) {
        char text[200];
        assert_int_equal(kb_config_finish(r.config, text, sizeof(text)), KW_OK);
        struct kb_node_options o = {.config = r.config, .seed = 9, .logger = {rig_line, &r, KB_INFO}, .port = 9092};
        assert_int_equal(kb_node_new(&o, &r.node), KW_OK);
        assert_int_equal(kb_node_start(r.node, r.now), KW_OK);
        while (kb_node_state(r.node) == KB_NODE_LOADING) {
            rig_turn(&r);
            int64_t next = sim_disk_next(r.disk);
            if (next != KW_NEVER && next > r.now.mono_us) r.now.mono_us = next;
        }
        assert_int_equal(kb_node_state(r.node), KB_NODE_FAILED);
        rig_free_node(&r);
        assert_true(has(&r, "/data/.kafka_cleanshutdown"));
        (void)sim_disk_peek(r.disk, path, &now);
        assert_int_equal(now, size);
    }
    sim_disk_rot(r.disk, path, size - 20, 0x10); /* mended */
    rig_start(&r);
    assert_non_null(kb_image_topic(&r.node->image, kw_str_of("t")));
    rig_deinit(&r);
}

static void test_kill_keeps_acknowledged(void **state) {
    (void)state;
    for (uint64_t seed = 10; seed < 30; seed++) {
        struct rig r;
        struct rig_conn *c = rig_begin(&r, seed, 1);
        int64_t last = 0;
        for (uint64_t i = 0; i < seed % 7 + 1; i++) last = rig_produce_three(c, "t");
        rig_crash(&r);
        c = rig_connect(&r);
        rig_fetched *f = rig_fetch_one(c, RIG_FETCH(.topic = "t", .offset = last));
        assert_int_equal(f->error_code, KE_NONE);
        assert_true(f->high_watermark >= last + 3);
        assert_true(f->records.len > 0);
        assert_int_equal(rig_produce(c, "t", (struct rig_batch){.count = 1}).base_offset, last + 3);
        rig_deinit(&r);
    }
}

/* The epoch of a partition rises with every process of its leader. */
static void test_epoch_rises(void **state) {
    (void)state;
    struct rig r;
    rig_begin(&r, 4, 1);
    int32_t before = rig_partition(&r, "t", 0)->leader_epoch;
    rig_crash(&r);
    assert_true(rig_partition(&r, "t", 0)->leader_epoch > before);
    rig_deinit(&r);
}

static void test_folders(void **state) {
    (void)state;
    struct rig r;
    rig_init(&r, 5);
    sim_disk_poke(r.disk, "/data/stranger-0/00000000000000000000.log", "", 0);
    sim_disk_poke(r.disk, "/data/old-0.0123456789abcdef0123456789abcdef-delete/00000000000000000000.log", "", 0);
    rig_start(&r);
    assert_non_null(strstr(r.lines, "/data/stranger-0 belongs to no topic"));
    rig_settle(&r);
    assert_true(has(&r, "/data/stranger-0/00000000000000000000.log"));
    assert_false(has(&r, "/data/old-0.0123456789abcdef0123456789abcdef-delete/00000000000000000000.log"));
    struct rig_conn *c = rig_connect(&r);
    rig_create(c, "t", 1, NULL, NULL);
    rig_produce_three(c, "t");
    rig_stop(&r);
    /* the folder of another topic of that name is set aside, and the topic starts empty */
    static const char other[] = "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAg";
    sim_disk_poke(r.disk, "/data/t-0/partition.metadata", other, sizeof(other) - 1);
    rig_start(&r);
    assert_non_null(strstr(r.lines, "set aside as /data/t-0.00000000000000000000000000000002-stray"));
    assert_true(has(&r, "/data/t-0.00000000000000000000000000000002-stray/00000000000000000000.log"));
    assert_int_equal(rig_produce_three(rig_connect(&r), "t"), 0);
    rig_stop(&r);
    /* without partition.metadata a folder is taken over */
    sim_disk_remove(r.disk, "/data/t-0/partition.metadata");
    rig_start(&r);
    assert_int_equal(rig_produce_three(rig_connect(&r), "t"), 3);
    rig_settle(&r);
    assert_true(has(&r, "/data/t-0/partition.metadata"));
    rig_stop(&r);
    /* one that nobody understands is not guessed at */
    sim_disk_poke(r.disk, "/data/t-0/partition.metadata", "garbage", 7);
    rig_start(&r);
    assert_int_equal(rig_produce(rig_connect(&r), "t", (struct rig_batch){.count = 1}).error_code, KE_KAFKA_STORAGE_ERROR);
    rig_deinit(&r);
}

static void test_delete_topic(void **state) {
    (void)state;
    struct rig r;
    rig_init(&r, 6);
    rig_start(&r);
    struct rig_conn *c = rig_connect(&r), *waiting = rig_connect(&r);
    rig_create(c, "t", 1, NULL, NULL);
    rig_produce_three(c, "t");
    rig_request(waiting, KW_API_FETCH, 11, 7, &rig_fetch_msg(&r, &RIG_FETCH(.topic = "t", .offset = 3, .max_wait_ms = 60000))->req);
    rig_settle(&r);
    rig_delete(c, "t");
    struct kw_fetch_response f;
    assert_true(rig_response(waiting, KW_API_FETCH, 11, 7, &f)); /* who waited on it is told at once */
    assert_int_equal(f.responses.v[0].partitions.v[0].error_code, KE_UNKNOWN_TOPIC_OR_PARTITION);
    assert_int_equal(rig_create(c, "t", 1, NULL, NULL), KE_NONE);
    assert_int_equal(rig_produce_three(c, "t"), 0);
    rig_pass(&r, 120 * 1000000LL);
    assert_int_equal(kb_node_state(r.node), KB_NODE_READY);
    rig_deinit(&r);
}

/* BL-03, for the stop: a checkpoint that cannot be written leaves no marker of a clean stop. */
static void test_BL_03_no_marker(void **state) {
    (void)state;
    struct rig r;
    struct rig_conn *c = rig_begin(&r, 7, 1);
    rig_produce_three(c, "t");
    sim_disk_faults(r.disk)->free_bytes = 0;
    rig_stop(&r);
    assert_false(has(&r, "/data/.kafka_cleanshutdown"));
    sim_disk_faults(r.disk)->free_bytes = -1;
    rig_start(&r);
    assert_int_equal(rig_hw(&r, "t"), 3);
    rig_deinit(&r);
}

static void test_disk_full(void **state) {
    (void)state;
    struct rig r;
    struct rig_conn *c = rig_begin(&r, 8, 1);
    rig_produce_three(c, "t");
    sim_disk_faults(r.disk)->free_bytes = 0;
    assert_int_equal(rig_produce(c, "t", (struct rig_batch){.count = 2, .value_size = 5000}).error_code, KE_KAFKA_STORAGE_ERROR);
    rig_fetched *f = rig_fetch_one(c, RIG_FETCH(.topic = "t")); /* readable, and whole */
    assert_int_equal(f->error_code, KE_NONE);
    assert_int_equal(f->high_watermark, 3);
    assert_true(f->records.len > 0);
    sim_disk_faults(r.disk)->free_bytes = -1;
    assert_int_equal(rig_produce_three(c, "t"), 3);
    rig_deinit(&r);
}

static void test_write_error(void **state) {
    (void)state;
    struct rig r;
    struct rig_conn *c = rig_begin(&r, 9, 1);
    rig_create(c, "u", 1, NULL, NULL);
    rig_produce_three(c, "t");
    sim_disk_faults(r.disk)->eio_write_at = 0;
    assert_int_equal(rig_produce(c, "t", (struct rig_batch){.count = 1}).error_code, KE_KAFKA_STORAGE_ERROR);
    sim_disk_faults(r.disk)->eio_write_at = -1;
    assert_int_equal(rig_produce(c, "t", (struct rig_batch){.count = 1}).error_code, KE_KAFKA_STORAGE_ERROR);
    assert_non_null(strstr(r.lines, "t-0 is offline"));
    assert_int_equal(rig_produce_three(c, "u"), 0); /* the others go on */
    rig_deinit(&r);
}

static void test_boot_id(void **state) {
    (void)state;
    static const struct {
        const char *id;
        bool clean, told;
    } cases[] = {{"a", false, false}, {"a", false, false}, {"b", false, true}, {"b", true, false}, {"c", true, false}};
    struct rig r;
    rig_init(&r, 33);
    for (size_t i = 0; i < KW_COUNTOF(cases); i++) {
        r.lines[0] = 0;
        r.boot_id = cases[i].id;
        rig_start(&r);
        rig_settle(&r);
        assert_int_equal(strstr(r.lines, "started anew") != NULL, cases[i].told);
        bool next_clean = i + 1 < KW_COUNTOF(cases) && cases[i + 1].clean;
        if (next_clean)
            rig_stop(&r);
        else
            rig_kill(&r);
    }
    rig_deinit(&r);
}

/* After the machine went down the last replica leads, and says so, or only with flush.on.ack where the switch is off; kill -9 costs nothing.
 * Killed again before it could decide, the next process comes to the same conclusion. */
static void test_machine_went_down(void **state) {
    (void)state;
    for (int on = 0; on < 2; on++) {
        struct rig r;
        rig_init(&r, 40);
        r.boot_id = "one";
        if (!on) rig_set(&r, "last.known.leader.enable", "false");
        rig_start(&r);
        struct rig_conn *c = rig_connect(&r);
        rig_create(c, "t", 1, NULL, NULL);
        rig_create(c, "safe", 1, "flush.on.ack", "true");
        rig_produce_three(c, "t");
        rig_produce_three(c, "safe");
        rig_kill(&r); /* the same machine: all is there */
        r.lines[0] = 0;
        rig_start(&r);
        assert_string_equal(r.lines, "");
        assert_int_equal(rig_hw(&r, "t"), 3);
        for (int kills = 0; kills < 2; kills++) {
            rig_kill(&r);
            r.boot_id = "two";
            r.lines[0] = 0;
            rig_start(&r);
            assert_int_equal(rig_hw(&r, "safe"), 3);
            if (on) {
                assert_int_equal(strstr(r.lines, "1 partitions are led by their last known leader") != NULL, kills == 0);
                assert_int_equal(rig_hw(&r, "t"), 3);
            } else {
                assert_non_null(strstr(r.lines, "1 partitions have no leader"));
                assert_int_equal(rig_fetch_one(rig_connect(&r), RIG_FETCH(.topic = "t"))->error_code, KE_NOT_LEADER_OR_FOLLOWER);
            }
        }
        rig_stop(&r);
        if (!on) rig_set(&r, "last.known.leader.enable", "true");
        r.lines[0] = 0;
        rig_start(&r);
        assert_int_equal(strstr(r.lines, "led by their last known leader") != NULL, !on);
        assert_int_equal(rig_hw(&r, "t"), 3);
        rig_produce_three(rig_connect(&r), "t");
        rig_stop(&r);
        r.boot_id = "three"; /* a machine that was shut down in order */
        r.lines[0] = 0;
        rig_start(&r);
        assert_string_equal(r.lines, "");
        rig_deinit(&r);
    }
}

/* Killed at any step of the start after the machine went down. */
static void test_killed_while_deciding(void **state) {
    (void)state;
    struct rig r;
    rig_init(&r, 41);
    r.boot_id = "one";
    rig_set(&r, "last.known.leader.enable", "false");
    rig_start(&r);
    rig_create(rig_connect(&r), "t", 1, NULL, NULL);
    rig_produce_three(rig_connect(&r), "t");
    rig_kill(&r);
    r.boot_id = "two";
    for (int steps = 0; steps < 60; steps++) {
        rig_load(&r);
        for (int i = 0; i < steps; i++) rig_load_step(&r);
        rig_kill(&r);
    }
    rig_start(&r);
    assert_int_equal(rig_fetch_one(rig_connect(&r), RIG_FETCH(.topic = "t"))->error_code, KE_NOT_LEADER_OR_FOLLOWER);
    rig_deinit(&r);
}

/* What is known to be lost is told and counted. */
static void test_loss_is_told(void **state) {
    (void)state;
    struct rig r;
    rig_begin(&r, 42, 1);
    rig_produce_three(rig_connect(&r), "t");
    rig_pass(&r, 10 * 1000000LL); /* the high watermark is stored */
    rig_kill(&r);
    sim_disk_cut(r.disk, "/data/t-0/00000000000000000000.log", 0);
    rig_start(&r);
    assert_non_null(strstr(r.lines, "t-0 ends at offset 0, but was committed up to 3: at least 3 records are lost"));
    assert_int_equal(r.node->partitions->lost, 3);
    rig_deinit(&r);
}

static void set_config(struct rig_conn *c, int8_t type, const char *resource, const char *name, const char *value) {
    struct kw_incremental_alter_configs_request req;
    struct kw_incremental_alter_configs_response resp;
    struct kw_incremental_alter_configs_request_alterable_config kv = {.name = kw_str_of(name), .value = kw_str_of(value)};
    struct kw_incremental_alter_configs_request_alter_configs_resource a = {
        .resource_type = type, .resource_name = kw_str_of(resource), .configs = {.v = &kv, .n = 1}};
    kw_msg_init(&kw_incremental_alter_configs_request_desc, &req);
    req.resources.v = &a;
    req.resources.n = 1;
    rig_call(c, KW_API_INCREMENTAL_ALTER_CONFIGS, 1, &req, &resp);
    assert_int_equal(resp.responses.v[0].error_code, KE_NONE);
}

static void set_default(struct rig_conn *c, const char *name, const char *value) {
    set_config(c, 4, "", name, value);
}

/* A topic's settings are brought to its own partitions alone; the default of all topics to all. */
static void test_settings_reach_those_they_concern(void **state) {
    (void)state;
    struct rig r;
    struct kb_partition *p[2];
    rig_init(&r, 44);
    rig_start(&r);
    struct rig_conn *c = rig_connect(&r);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(rig_create(c, i ? "b" : "a", 2, NULL, NULL), KE_NONE);
        p[i] = kb_image_partition(&r.node->image, kw_str_of(i ? "b" : "a"), 1)->local;
        p[i]->log_config.retention_ms = 5; /* until it is told anew */
    }
    set_config(c, 2, "a", "retention.ms", "1000");
    assert_int_equal(p[0]->log_config.retention_ms, 1000);
    assert_int_equal(p[1]->log_config.retention_ms, 5);
    set_default(c, "log.retention.ms", "2000");
    assert_int_equal(p[0]->log_config.retention_ms, 1000);
    assert_int_equal(p[1]->log_config.retention_ms, 2000);
    rig_deinit(&r);
}

/* BL-16, on a node that runs: the topic that overrides cleanup keeps every record, the one without an override loses its old ones. */
static void test_BL_16(void **state) {
    (void)state;
    static const char *const changes[][2] = {{"log.cleanup.policy", "delete"},
                                             {"log.retention.ms", "1000"},
                                             {"log.cleanup.policy", "compact,delete"},
                                             {"log.retention.ms", "1"},
                                             {"log.cleanup.policy", "delete"}};
    struct rig r;
    rig_init(&r, 43);
    rig_set(&r, "log.retention.check.interval.ms", "1000");
    rig_start(&r);
    struct rig_conn *c = rig_connect(&r);
    assert_int_equal(rig_create(c, "kept", 1, "cleanup.policy", "compact"), KE_NONE);
    assert_int_equal(rig_create(c, "goes", 1, NULL, NULL), KE_NONE);
    rig_produce_three(c, "kept");
    rig_produce_three(c, "goes");
    for (size_t i = 0; i < KW_COUNTOF(changes); i++) {
        set_default(c, changes[i][0], changes[i][1]);
        rig_pass(&r, 10 * 1000000LL);
        assert_int_equal(rig_fetch_one(c, RIG_FETCH(.topic = "kept"))->log_start_offset, 0);
        assert_true(rig_fetch_one(c, RIG_FETCH(.topic = "kept"))->records.len > 0);
    }
    assert_int_equal(rig_fetch_one(c, RIG_FETCH(.topic = "goes"))->error_code, KE_OFFSET_OUT_OF_RANGE);
    rig_deinit(&r);
}

/* A stop at any step of the start ends, and the next start finds everything. */
static void test_stop_while_loading(void **state) {
    (void)state;
    struct rig r;
    struct rig_conn *c = rig_begin(&r, 34, 3);
    rig_produce_three(c, "t");
    rig_stop(&r);
    int64_t count = 3;
    for (int steps = 0; steps < 120; steps++) {
        rig_load(&r);
        for (int i = 0; i < steps; i++) rig_load_step(&r);
        rig_stop(&r);
        if (steps % 20 != 19) continue;
        rig_start(&r);
        c = rig_connect(&r);
        assert_int_equal(rig_fetch_one(c, RIG_FETCH(.topic = "t"))->high_watermark, count);
        rig_produce_three(c, "t");
        count += 3;
        if (steps % 40 == 19)
            rig_kill(&r);
        else
            rig_stop(&r);
    }
    rig_deinit(&r);
}

static void test_idle_node_sleeps(void **state) {
    (void)state;
    struct rig r;
    struct rig_conn *c = rig_begin(&r, 31, 1);
    rig_produce_three(c, "t");
    rig_close_conns(&r);
    rig_pass(&r, 200 * 1000000LL); /* checkpoints and trims are done */
    assert_true(kb_node_deadline(r.node) - r.now.mono_us > 50 * 1000000LL);
    rig_deinit(&r);
}

static void test_no_memory_is_no_crash(void **state) {
    (void)state;
    struct rig r;
    rig_begin(&r, 32, 1);
    for (int64_t n = 0; n < 60; n++) {
        struct rig_conn *c = rig_connect(&r);
        size_t size;
        uint8_t *p = rig_batch(&r, &(struct rig_batch){.count = 1, .pid = -1, .epoch = -1, .seq = -1}, &size);
        struct rig_produce *m = rig_produce_msg(&r, "t", 0, 1, p, size);
        struct kw_out out;
        kw_out_init(&out);
        assert_int_equal(kw_frame_request(&out, kw_api_by_key(KW_API_PRODUCE), 9, 1, kw_str_of("x"), &m->req), KW_OK);
        rig_pass(&r, 1000);
        uint8_t *to;
        size_t room;
        kb_conn_recv_buf(c->conn, &to, &room);
        assert_true(room >= out.len);
        memcpy(to, out.p, out.len);
        kw_alloc_fail_after(n);
        kb_conn_received(c->conn, out.len, r.now);
        kb_node_tick(r.node, r.now);
        kw_alloc_fail_after(-1);
        rig_pass(&r, 40000000);
        kw_out_deinit(&out);
    }
    assert_int_equal(kb_node_state(r.node), KB_NODE_READY);
    assert_int_equal(rig_produce(rig_connect(&r), "t", (struct rig_batch){.count = 1}).error_code, KE_NONE);
    rig_deinit(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_start),
        cmocka_unit_test(test_clean_restart),
        cmocka_unit_test(test_BL_02),
        cmocka_unit_test(test_refused_twice),
        cmocka_unit_test(test_kill_keeps_acknowledged),
        cmocka_unit_test(test_epoch_rises),
        cmocka_unit_test(test_folders),
        cmocka_unit_test(test_delete_topic),
        cmocka_unit_test(test_BL_03_no_marker),
        cmocka_unit_test(test_disk_full),
        cmocka_unit_test(test_write_error),
        cmocka_unit_test(test_boot_id),
        cmocka_unit_test(test_machine_went_down),
        cmocka_unit_test(test_killed_while_deciding),
        cmocka_unit_test(test_loss_is_told),
        cmocka_unit_test(test_BL_16),
        cmocka_unit_test(test_settings_reach_those_they_concern),
        cmocka_unit_test(test_stop_while_loading),
        cmocka_unit_test(test_idle_node_sleeps),
        cmocka_unit_test(test_no_memory_is_no_crash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
