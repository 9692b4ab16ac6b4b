/* test_guids.c - the GUID index beside a partition's log, in whole nodes: after whatever happened (dedup switched on with data there, and off, stops, kills,
 * power losses, truncated followers, new leaders, retention, deletion) it has what a replay of the log has (invariant 14, rules 10, 12, 16, 19, 20).
 */
#include "replica_steps.h"

#include "guid/index_priv.h"
#include "replica/guids.h"
#include "replica/partitions_priv.h"

enum { SEEN_MAX = 20000 };
static struct rig r;
static struct rig_conn *c;
static uint64_t next_id;

static void id_of(uint64_t n, uint8_t id[16]) {
    kw_store64(id, n * 0x9e3779b97f4a7c15);
    kw_store64(id + 8, n);
}

/* count records with ids from next_id on; in the arena. */
static uint8_t *batch(struct rig *of, int32_t count, int codec, int64_t timestamp, size_t *size) {
    size_t cap = KW_BATCH_HEADER_SIZE + (size_t)count * 120;
    uint8_t *p = kw_arena_alloc(&of->arena, cap), *at = p + KW_BATCH_HEADER_SIZE;
    for (int32_t i = 0; i < count; i++) {
        uint8_t id[16];
        id_of(next_id++, id);
        struct kw_header_view h = {.key = kw_str_of("guid"), .value = {id, 16}};
        struct kw_record_in rec = {.offset_delta = i, .key = {NULL, -1}, .value = {(const uint8_t *)"some value", 10}, .headers = &h, .header_count = 1};
        at = kw_record_write(at, &rec, kw_record_size(&rec));
    }
    *size = (size_t)(at - p);
    struct kw_batch_header h = {.length = (int32_t)(*size - KW_BATCH_OVERHEAD), .leader_epoch = -1, .magic = 2, .last_offset_delta = count - 1,
                                .base_timestamp = timestamp, .max_timestamp = timestamp, .producer_id = -1, .producer_epoch = -1, .base_sequence = -1,
                                .record_count = count};
    kw_batch_write_header(p, &h);
    kw_batch_crc_set(p, *size);
    if (!codec) return p;
    struct kw_compressor *z = kw_compressor_new();
    uint8_t *packed = kw_arena_alloc(&of->arena, cap + 1000);
    assert_int_equal(kw_batch_compress(z, codec, KW_LEVEL_DEFAULT, p, *size, packed, cap + 1000, size), KW_OK);
    kw_compressor_free(z);
    return packed;
}

static int64_t produce(int32_t count, int codec) {
    size_t n;
    uint8_t *p = batch(&r, count, codec, r.now.wall_ms, &n);
    rig_produced a = rig_produce_bytes(c, "t", 0, 9, -1, p, n);
    assert_int_equal(a.error_code, KE_NONE);
    return a.base_offset;
}

static void alter(const char *name, const char *value) {
    struct kw_incremental_alter_configs_request q;
    struct kw_incremental_alter_configs_response a;
    struct kw_incremental_alter_configs_request_alterable_config kv = {.name = kw_str_of(name), .value = kw_str_of(value)};
    struct kw_incremental_alter_configs_request_alter_configs_resource res = {
        .resource_type = 2, .resource_name = kw_str_of("t"), .configs = {.v = &kv, .n = 1}};
    kw_msg_init(&kw_incremental_alter_configs_request_desc, &q);
    q.resources.v = &res;
    q.resources.n = 1;
    rig_call(c, KW_API_INCREMENTAL_ALTER_CONFIGS, 1, &q, &a);
    rig_settle(&r);
    assert_int_equal(a.responses.v[0].error_code, KE_NONE);
}

/* ---- The replay ---- */

struct replay {
    struct kb_guid_entry v[SEEN_MAX];
    size_t count;
};

static void replay_file(struct replay *x, const uint8_t *p, size_t n) {
    const uint8_t *end = p + n;
    struct kw_compressor *z = kw_compressor_new();
    struct kb_guid_batch b;
    struct kw_entry e;
    kb_guid_batch_init(&b);
    while (kw_entry_next(&p, end, &e) == 1) {
        struct kw_batch_header h;
        assert_int_equal(kw_batch_parse(e.p, e.size, &h), KW_OK);
        assert_int_equal(kb_guid_extract(e.p, e.size, &h, z, 1 << 20, &b), KW_OK);
        for (size_t i = 0; i < b.entry_count; i++) {
            assert_true(x->count < SEEN_MAX);
            x->v[x->count++] = b.entries[i];
        }
    }
    kb_guid_batch_deinit(&b);
    kw_compressor_free(z);
}

static void replay(struct rig *of, const char *dir, struct replay *x) {
    char **names, path[128];
    size_t n = sim_disk_names(of->disk, dir, &names);
    x->count = 0;
    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(names[i]), size;
        snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
        if (len > 4 && strcmp(names[i] + len - 4, ".log") == 0) {
            const uint8_t *p = sim_disk_peek(of->disk, path, &size);
            replay_file(x, p, size);
        }
        free(names[i]);
    }
    free(names);
}

static void find_done(struct kb_guid_find *f, struct kb_now now) {
    (void)now;
    *(bool *)f->ctx = true;
}

/* turn: lets the disk answer. Every id ever made, from the first on: where the log has it, and nowhere else. */
static void expect_index(struct rig *of, const struct kb_partition *p, const char *dir, void (*turn)(void *ctx), void *ctx) {
    static struct replay x;
    struct kb_guid_index *ix = kb_guids_index(p);
    assert_non_null(ix);
    assert_true(kb_guids_ready(p));
    replay(of, dir, &x);
    for (uint64_t from = 0; from < next_id; from += 100) {
        uint8_t ids[100][16];
        struct kb_guid_entry found[100];
        size_t n = KW_MIN(next_id - from, (uint64_t)100);
        bool done = false;
        for (size_t i = 0; i < n; i++) id_of(from + i, ids[i]);
        struct kb_guid_find f = {.index = ix, .ids = ids[0], .stride = 16, .count = n, .found = found, .done = find_done, .ctx = &done};
        int32_t got = kb_guid_find(&f, of->now);
        for (int i = 0; got == 0 && !done && i < 1000; i++) turn(ctx);
        assert_true(got == 1 || done);
        assert_int_equal(f.err, KW_OK);
        for (size_t i = 0; i < n; i++) {
            int64_t want = -1;
            for (size_t k = 0; k < x.count; k++)
                if (x.v[k].offset >= p->log->start && memcmp(x.v[k].id, ids[i], 16) == 0 && (want < 0 || x.v[k].offset < want)) want = x.v[k].offset;
            if (found[i].offset != want) fail_msg("id %d: at %lld, and found at %lld", (int)(from + i), (long long)want, (long long)found[i].offset);
        }
    }
}

static void turn_rig(void *ctx) {
    rig_pass(ctx, 1000);
}
static void expect_here(void) {
    expect_index(&r, rig_partition(&r, "t", 0), "/data/t-0", turn_rig, &r);
}

static struct kb_guid_stats stats(void) {
    struct kb_guid_stats s;
    kb_guid_stats(kb_guids_index(rig_partition(&r, "t", 0)), &s);
    return s;
}

static void begin(uint64_t seed, const char *dedup) {
    rig_init(&r, seed);
    rig_set(&r, "log.retention.check.interval.ms", "1000");
    rig_set(&r, "log.segment.bytes", "20000");
    rig_start(&r);
    c = rig_connect(&r);
    next_id = 0;
    assert_int_equal(rig_create(c, "t", 1, "message.guid.dedup", dedup), KE_NONE);
}
static void restart(bool clean) {
    if (clean) rig_restart(&r);
    else rig_crash(&r);
    c = rig_connect(&r);
}
static void some(int batches) {
    for (int i = 0; i < batches; i++) produce(1 + i % 40, i % 3 ? 0 : KW_CODEC_LZ4);
}

static void test_restarts(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed < 4; seed++) {
        begin(seed, "true");
        some(40);
        rig_pass(&r, 100000);
        expect_here();
        int64_t leo = rig_partition(&r, "t", 0)->log->leo;
        restart(true);
        rig_pass(&r, 100000);
        expect_here();
        struct kb_guids_stats n;
        kb_guids_stats(r.node, &n);
        assert_int_equal(n.caught_up_records, 0); /* nothing was read */
        assert_int_equal(stats().runs, 1);
        some(30);
        restart(false);
        rig_pass(&r, 100000);
        expect_here();
        kb_guids_stats(r.node, &n);
        assert_int_equal(n.caught_up_records, rig_partition(&r, "t", 0)->log->leo - leo); /* only what was not in a file */
        some(3);
        restart(true);
        rig_pass(&r, 100000);
        expect_here();
        assert_int_equal(stats().runs, 2);
        rig_deinit(&r);
    }
}

/* What was written and not synced is lost in part: what the log has not got any more is not in the index either, and what comes in its place is. */
static void test_power_losses(void **state) {
    (void)state;
    int64_t lost = 0;
    for (uint64_t seed = 1; seed < 9; seed++) {
        static const char *const boots[] = {"one", "two", "three", "four"};
        begin(seed, "true");
        rig_stop(&r);
        r.boot_id = boots[0];
        rig_start(&r);
        c = rig_connect(&r);
        for (size_t i = 1; i < 4; i++) {
            some(30);
            if (seed % 2) { /* all of it in a file */
                struct kb_partition *p = rig_partition(&r, "t", 0);
                kb_guid_freeze(kb_guids_index(p));
                kb_guid_work(kb_guids_index(p), r.now);
                rig_pass(&r, 100000);
                assert_true(stats().runs > 0);
            }
            int64_t leo = rig_partition(&r, "t", 0)->log->leo;
            rig_close_conns(&r);
            sim_disk_power_loss(r.disk, r.now);
            rig_free_node(&r);
            sim_disk_restart(r.disk);
            r.boot_id = boots[i];
            rig_start(&r);
            c = rig_connect(&r);
            rig_pass(&r, 1000000);
            lost += leo - rig_partition(&r, "t", 0)->log->leo;
            expect_here();
            some(10);
            rig_pass(&r, 100000);
            expect_here();
        }
        rig_deinit(&r);
    }
    assert_true(lost > 0);
}

static void test_on_and_off(void **state) {
    (void)state;
    begin(5, "false");
    some(60);
    rig_pass(&r, 100000);
    struct kb_partition *p = rig_partition(&r, "t", 0);
    assert_null(p->guids);
    alter("message.guid.dedup", "true");
    rig_pass(&r, 1000000);
    expect_here();
    restart(true); /* it is in a file by then */
    rig_pass(&r, 100000);
    p = rig_partition(&r, "t", 0);
    assert_int_equal(stats().runs, 1);
    assert_true(p->log->hold_from == 0);
    alter("message.guid.dedup", "false");
    rig_pass(&r, 1000000);
    assert_null(p->guids);
    assert_true(p->log->hold_from == INT64_MAX);
    size_t n;
    assert_null(sim_disk_peek(r.disk, "/data/t-0/guid/manifest", &n));
    some(20);
    alter("message.guid.dedup", "true");
    alter("message.guid.dedup", "false");
    alter("message.guid.dedup", "true");
    rig_pass(&r, 1000000);
    expect_here();
    rig_delete(c, "t");
    rig_pass(&r, 100000000);
    assert_int_equal(rig_create(c, "t", 1, "message.guid.dedup", "true"), KE_NONE);
    rig_pass(&r, 100000);
    next_id = 0;
    some(10);
    rig_pass(&r, 100000);
    expect_here();
    rig_deinit(&r);
}

/* Records of long ago, by their producer's clock: time retention would have them at once. */
static void test_retention_waits(void **state) {
    (void)state;
    begin(6, "true");
    alter("message.guid.window.ms", "600000");
    alter("retention.ms", "600000");
    for (int i = 0; i < 60; i++) {
        size_t n;
        uint8_t *p = batch(&r, 30, 0, r.now.wall_ms - 86400000, &n);
        assert_int_equal(rig_produce_bytes(c, "t", 0, 9, -1, p, n).error_code, KE_NONE);
    }
    rig_pass(&r, 5000000);
    struct kb_partition *p = rig_partition(&r, "t", 0);
    assert_int_equal(p->log->start, 0);
    assert_true(kb_log_segment_count(p->log) > 2);
    expect_here();
    restart(true);
    p = rig_partition(&r, "t", 0);
    rig_pass(&r, 300000000);
    assert_int_equal(p->log->start, 0);
    rig_pass(&r, 400000000);
    assert_true(p->log->start > 0);
    struct kb_guids_stats n;
    kb_guids_stats(r.node, &n);
    assert_int_equal(n.forgotten, 0); /* they were known for long enough */
    c = rig_connect(&r); /* idle ones were closed */
    alter("message.guid.window.ms", "500000");
    some(20);
    assert_int_equal(kb_log_raise_start(p->log, p->log->leo - 10, p->hw, r.now), KW_OK); /* DeleteRecords does not wait */
    rig_pass(&r, 2000000);
    kb_guids_stats(r.node, &n);
    assert_true(n.forgotten > 100);
    expect_here();
    rig_deinit(&r);
}

/* Appended before the window began: it need not be read. */
static void test_old_segments_are_not_read(void **state) {
    (void)state;
    begin(7, "false");
    alter("message.guid.window.ms", "60000");
    some(60);
    rig_pass(&r, 120000000);
    int64_t before = rig_partition(&r, "t", 0)->log->leo;
    some(60);
    rig_pass(&r, 100000);
    alter("message.guid.dedup", "true");
    rig_pass(&r, 1000000);
    struct kb_partition *p = rig_partition(&r, "t", 0);
    assert_true(kb_guids_ready(p));
    struct kb_guids_stats n;
    kb_guids_stats(r.node, &n);
    assert_true(n.caught_up_records >= p->log->leo - before && n.caught_up_records < p->log->leo - 100);
    rig_deinit(&r);
}

/* What is new is read though the clock was set far forward meanwhile. */
static void test_a_clock_that_is_set(void **state) {
    (void)state;
    begin(8, "false");
    alter("message.guid.window.ms", "60000");
    some(60);
    rig_pass(&r, 100000);
    r.now.wall_ms += 100000000;
    alter("message.guid.dedup", "true");
    rig_pass(&r, 1000000);
    struct kb_partition *p = rig_partition(&r, "t", 0);
    assert_true(kb_guids_ready(p));
    struct kb_guids_stats n;
    kb_guids_stats(r.node, &n);
    assert_int_equal(n.caught_up_records, p->log->leo);
    expect_here();
    rig_deinit(&r);
}

/* The clock was set back, and forward again, while records came: they are as new as they are. */
static void test_a_clock_that_is_set_back_and_forth(void **state) {
    (void)state;
    begin(8, "false");
    alter("message.guid.window.ms", "60000");
    rig_pass(&r, 1000000);
    r.now.wall_ms -= 100000000;
    some(60);
    rig_pass(&r, 100000);
    r.now.wall_ms += 100000000;
    alter("message.guid.dedup", "true");
    rig_pass(&r, 1000000);
    struct kb_partition *p = rig_partition(&r, "t", 0);
    assert_true(kb_guids_ready(p));
    struct kb_guids_stats n;
    kb_guids_stats(r.node, &n);
    assert_int_equal(n.caught_up_records, p->log->leo);
    expect_here();
    rig_deinit(&r);
}

/* The window is made longer while the index is being opened: what was known until then is known on. */
static void test_a_longer_window_while_opening(void **state) {
    (void)state;
    begin(9, "true");
    alter("message.guid.window.ms", "60000");
    some(60);
    restart(true); /* all is in a file */
    rig_pass(&r, 100000);
    struct kb_partition *p = rig_partition(&r, "t", 0);
    assert_true(stats().runs > 0);
    kb_guids_left(p); /* and opened again */
    kb_guids_look(p, r.now);
    assert_null(kb_guids_index(p));
    p->config.guid_window_ms = 600000;
    kb_guids_look(p, r.now);
    r.now.mono_us += 100000000;
    r.now.wall_ms += 100000;
    rig_pass(&r, 1000000);
    assert_non_null(kb_guids_index(p));
    assert_true(stats().runs > 0);
    expect_here();
    rig_deinit(&r);
}

static void test_rot(void **state) { /* in a run: read again; in the log: passed over, and said */
    (void)state;
    begin(8, "true");
    some(60);
    restart(true);
    rig_pass(&r, 100000);
    char **names;
    size_t n = sim_disk_names(r.disk, "/data/t-0/guid", &names);
    for (size_t i = 0; i < n; i++) {
        char path[100];
        snprintf(path, sizeof(path), "/data/t-0/guid/%s", names[i]);
        if (strstr(names[i], ".run")) sim_disk_rot(r.disk, path, 100, 1);
        free(names[i]);
    }
    free(names);
    uint8_t id[16];
    struct kb_guid_entry e;
    bool done = false;
    id_of(0, id);
    struct kb_guid_find f = {
        .index = kb_guids_index(rig_partition(&r, "t", 0)), .ids = id, .stride = 16, .count = 1, .found = &e, .done = find_done, .ctx = &done};
    for (uint64_t k = 0; k < next_id && !done; k++) { /* until one lies in that page */
        id_of(k, id);
        assert_int_equal(kb_guid_find(&f, r.now), 0);
        rig_pass(&r, 100000);
        assert_true(done);
        done = f.err != KW_OK;
    }
    assert_int_equal(f.err, KW_EIO);
    rig_pass(&r, 1000000);
    expect_here();
    struct kb_guids_stats s;
    kb_guids_stats(r.node, &s);
    assert_int_equal(s.rotten, 1);
    alter("message.guid.dedup", "false");
    rig_stop(&r);
    sim_disk_rot(r.disk, "/data/t-0/00000000000000000000.log", 200, 1);
    rig_start(&r);
    c = rig_connect(&r);
    alter("message.guid.dedup", "true");
    rig_pass(&r, 1000000);
    assert_true(kb_guids_ready(rig_partition(&r, "t", 0)));
    assert_non_null(strstr(r.lines, "are not known"));
    rig_deinit(&r);
}

static void test_no_memory(void **state) {
    (void)state;
    for (int64_t at = 0; at < 120; at += 3) {
        begin(9, "false");
        some(30);
        rig_pass(&r, 100000);
        struct kb_partition *p = rig_partition(&r, "t", 0);
        p->config.guid_dedup = true; /* as a change of the topic's settings does */
        kw_alloc_fail_after(at);
        kb_guids_look(p, r.now);
        for (int i = 0; i < 30; i++) rig_turn(&r);
        kw_alloc_fail_after(-1);
        for (int i = 0; i < 40; i++) {
            rig_pass(&r, 100000);
            kb_guids_look(p, r.now);
        }
        expect_here();
        rig_deinit(&r);
    }
}

/* Nothing happens in the partition that would have it looked at again: housekeeping does. Till then nothing goes by its time. */
static void test_no_memory_to_begin(void **state) {
    (void)state;
    begin(10, "false");
    some(30);
    rig_pass(&r, 100000);
    struct kb_partition *p = rig_partition(&r, "t", 0);
    p->config.guid_dedup = true;
    kw_alloc_fail_after(0);
    kb_guids_look(p, r.now);
    kw_alloc_fail_after(-1);
    assert_null(p->guids);
    assert_true(p->log->hold_from <= p->log->start);
    rig_pass(&r, 302000000);
    assert_true(kb_guids_ready(p));
    expect_here();
    rig_deinit(&r);
}

/* ---- Three nodes ---- */

static void turn_cluster(void *ctx) {
    cl_pass(ctx, 1000);
}
static void send_ids(struct cluster *k, int host, int16_t acks, int32_t count, bool wait) {
    struct rig *of = &k->h[host].r;
    struct sent s;
    size_t n;
    uint8_t *p = batch(of, count, 0, of->now.wall_ms, &n);
    s.conn = rig_connect(of);
    rig_request(s.conn, KW_API_PRODUCE, 9, 1, &rig_produce_msg(of, "t1", 0, acks, p, n)->req);
    for (int i = 0; i < 3000; i++) {
        if (answered(&s)) {
            assert_int_equal(s.answer.error_code, KE_NONE);
            return;
        }
        if (!wait && i > 20) return;
        cl_pass(k, 1000);
        cl_read_all(k);
    }
    fail_msg("no answer");
}
static void expect_host(struct cluster *k, int host) {
    const struct kb_partition *p = part(k, host);
    for (int i = 0; i < 100 && !kb_guids_ready(p); i++) cl_pass(k, 10000);
    expect_index(&k->h[host].r, p, "/data/t1-0", turn_cluster, k);
}

static void test_followers_and_a_new_leader(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed < 5; seed++) {
        next_id = 0;
        struct cluster *k = up(seed);
        cl_tell(k, (struct news){.kind = NEWS_CONFIG, .topic = 1, .key = "message.guid.dedup", .value = "true"});
        cl_read_all(k);
        cl_pass(k, 100000);
        for (int i = 0; i < 10; i++) send_ids(k, 0, -1, 5 + i, true);
        cl_pass(k, 1000000);
        for (int i = 0; i < 3; i++) {
            expect_host(k, i);
            struct kb_guids_stats s;
            kb_guids_stats(k->h[i].r.node, &s);
            if (i > 0) assert_int_equal(s.caught_up_records, part(k, i)->log->leo); /* counted as they came; none was read twice */
        }
        if (seed % 2) { /* the followers' ids are in files */
            for (int i = 1; i < 3; i++) {
                cl_stop(&k->h[i]);
                returns(k, i);
                cl_pass(k, 2000000);
                cl_read_all(k);
            }
            for (int i = 1; i < 3; i++) expect_host(k, i);
        }
        hold(k, true, true); /* what only the leader has */
        send_ids(k, 0, 1, 7, true);
        send_ids(k, 0, 1, 9, true);
        expect_host(k, 0);
        int64_t longer = part(k, 0)->log->leo;
        if (seed == 3) { /* and it is in a file */
            kb_guid_shutdown(kb_guids_index(part(k, 0)), NULL, NULL, k->h[0].r.now) == KW_OK ? cl_pass(k, 100000) : (void)0;
        }
        leader_dies(k);
        hold(k, false, false);
        cl_pass(k, 1000000);
        cl_read_all(k);
        for (int i = 0; i < 3; i++) send_ids(k, 1, -1, 4, true);
        expect_host(k, 1);
        assert_true(part(k, 1)->log->leo < longer);
        returns(k, 0); /* it is cut */
        for (int i = 0; i < 5; i++) {
            cl_pass(k, 1000000);
            cl_read_all(k);
        }
        assert_int_equal(part(k, 0)->log->leo, part(k, 1)->log->leo);
        for (int i = 0; i < 3; i++) expect_host(k, i);
        for (int i = 0; i < 3; i++) send_ids(k, 1, -1, 4, true);
        cl_pass(k, 1000000);
        for (int i = 0; i < 3; i++) expect_host(k, i);
        cl_deinit(k);
        free(k);
    }
}

/* Committed, and taken back by an unclean election: ids and records go together, and are counted. */
static void test_an_unclean_election(void **state) {
    (void)state;
    next_id = 0;
    struct cluster *k = up(3);
    cl_tell(k, (struct news){.kind = NEWS_CONFIG, .topic = 1, .key = "message.guid.dedup", .value = "true"});
    cl_tell(k, (struct news){.kind = NEWS_CONFIG, .topic = 1, .key = "min.insync.replicas", .value = "1"});
    cl_read_all(k);
    cl_pass(k, 100000);
    send_ids(k, 0, -1, 20, true);
    cl_pass(k, 1000000);
    hold(k, true, true);
    send_ids(k, 0, 1, 30, true);
    for (int i = 0; i < 60 && part(k, 0)->hw < 50; i++) {
        cl_pass(k, 1000000);
        cl_read_all(k);
    }
    assert_int_equal(part(k, 0)->hw, 50);
    cl_elect(k, 1, 0, 1, 2, true);
    cl_read_all(k);
    hold(k, false, false);
    for (int i = 0; i < 10; i++) {
        cl_pass(k, 1000000);
        cl_read_all(k);
    }
    struct kb_guids_stats n;
    kb_guids_stats(k->h[0].r.node, &n);
    assert_int_equal(part(k, 0)->log->leo, 20);
    assert_int_equal(n.forgotten, 30);
    for (int i = 0; i < 3; i++) expect_host(k, i);
    cl_deinit(k);
    free(k);
}

/* Dedup has just been switched on, and the leader dies: the next one decides on nothing before it has read its log. */
static void test_a_new_leader_that_reads(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed < 4; seed++) {
        next_id = 0;
        struct cluster *k = up(seed);
        for (int i = 0; i < 10; i++) send_ids(k, 0, -1, 20, true);
        cl_pass(k, 1000000);
        cl_tell(k, (struct news){.kind = NEWS_CONFIG, .topic = 1, .key = "message.guid.dedup", .value = "true"});
        cl_read_all(k);
        if (seed > 1) cl_pass(k, 100 * (int64_t)seed);
        leader_dies(k);
        int64_t leo = part(k, 1)->log->leo;
        next_id = 0;
        for (int i = 0; i < 10; i++) send_ids(k, 1, -1, 20, true);
        assert_int_equal(part(k, 1)->log->leo, leo);
        send_ids(k, 1, -1, 3, true);
        assert_int_equal(part(k, 1)->log->leo, leo + 3);
        expect_host(k, 1);
        cl_deinit(k);
        free(k);
    }
}

/* A log that had more than its new leader's is cut, and its node dies at some point of that, or the power goes: it ends as the leader's, and so does what
 * the index knows. */
static void test_deaths_during_a_cut(void **state) {
    (void)state;
    int seen = 0;
    for (int at = 0; at < 24; at++) {
        next_id = 0;
        struct cluster *k = up(40 + (uint64_t)at);
        cl_tell(k, (struct news){.kind = NEWS_CONFIG, .topic = 1, .key = "message.guid.dedup", .value = "true"});
        cl_read_all(k);
        cl_pass(k, 100000);
        send_ids(k, 0, -1, 15, true);
        cl_pass(k, 1000000);
        hold(k, true, true);
        send_ids(k, 0, 1, 9, true);
        struct kb_partition *p = part(k, 0);
        for (int i = 0; i < 2; i++) { /* what goes is in a run that begins below it, or in two */
            kb_guid_freeze(kb_guids_index(p));
            kb_guid_work(kb_guids_index(p), k->h[0].r.now);
            cl_pass(k, 100000);
            if (at % 2) send_ids(k, 0, 1, 6, true);
        }
        leader_dies(k);
        hold(k, false, false);
        cl_pass(k, 1000000);
        cl_read_all(k);
        for (int i = 0; i < 3; i++) send_ids(k, 1, -1, 7, true);
        returns(k, 0);
        for (int i = 0; i < 2000 && !kb_guids_index(part(k, 0)); i++) cl_pass(k, 100);
        for (int i = 0; i < 20000 && kb_guids_index(part(k, 0)); i++) cl_pass(k, 20);
        seen += !kb_guids_index(part(k, 0)); /* it is being cut */
        for (int i = 0; i < at; i++) cl_pass(k, 300);
        cl_kill(&k->h[0], at % 4 == 3);
        cl_pass(k, 100000);
        returns(k, 0);
        for (int i = 0; i < 6; i++) {
            cl_pass(k, 1000000);
            cl_read_all(k);
        }
        assert_int_equal(part(k, 0)->log->leo, part(k, 1)->log->leo);
        for (int i = 0; i < 3; i++) expect_host(k, i);
        cl_deinit(k);
        free(k);
    }
    assert_true(seen > 12);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_restarts),
                                       cmocka_unit_test(test_power_losses),
                                       cmocka_unit_test(test_on_and_off),
                                       cmocka_unit_test(test_retention_waits),
                                       cmocka_unit_test(test_old_segments_are_not_read),
                                       cmocka_unit_test(test_a_clock_that_is_set_back_and_forth),
                                       cmocka_unit_test(test_a_longer_window_while_opening),
                                       cmocka_unit_test(test_a_clock_that_is_set),
                                       cmocka_unit_test(test_rot),
                                       cmocka_unit_test(test_no_memory),
                                       cmocka_unit_test(test_no_memory_to_begin),
                                       cmocka_unit_test(test_followers_and_a_new_leader),
                                       cmocka_unit_test(test_a_new_leader_that_reads),
                                       cmocka_unit_test(test_deaths_during_a_cut),
                                       cmocka_unit_test(test_an_unclean_election)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
