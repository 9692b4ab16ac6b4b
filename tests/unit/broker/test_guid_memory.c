/* test_guid_memory.c - produce to a topic with message.guid.dedup, LookupGuid, and a fetch of batches without records, where memory runs out:
 * each allocation of a request fails in turn, alone or with all that follow it. What is answered is right, or an error that is tried again; and tried again
 * it is right, with one copy of each id.
 *
 * The node alone is short of memory: neither the simulated disk nor the test.
 */
#define GUIDS_MAX 1024 /* so many ranges that they take memory of their own */
#include "guid_rig.h"

/* ---- An allocator that fails ---- */

static struct {
    bool armed, all; /* all: from the one that fails on */
    int64_t at, calls;
    int64_t struck;
} failing;

static bool fails(void) {
    if (!failing.armed) return false;
    int64_t n = failing.calls++;
    bool now = failing.all ? n >= failing.at : n == failing.at;
    failing.struck += now;
    return now;
}
static void *failing_malloc(size_t n, void *ctx) {
    (void)ctx;
    return fails() ? NULL : malloc(n);
}
static void *failing_realloc(void *p, size_t n, void *ctx) {
    (void)ctx;
    return fails() ? NULL : realloc(p, n);
}
static void failing_free(void *p, void *ctx) {
    (void)ctx;
    free(p);
}
static int set_up(void **state) {
    (void)state;
    kw_allocator_set(&(struct kw_allocator){failing_malloc, failing_realloc, failing_free, NULL});
    return 0;
}

/* ---- A node that is short of memory ---- */

static bool short_turn(struct rig *r) {
    bool any = false;
    failing.armed = true;
    kb_node_tick(r->node, r->now);
    failing.armed = false;
    sim_disk_take(r->disk, kb_node_disk(r->node), r->now);
    for (struct kb_disk_req *q; (q = sim_disk_pop(r->disk, r->now)); any = true) {
        failing.armed = true;
        kb_node_disk_done(r->node, q, r->now);
        failing.armed = false;
    }
    for (struct kb_conn *c; (c = kb_node_next_conn(r->node)); any = true) {
        failing.armed = true; /* rig_put has memory of its own */
        rig_serve(r, kb_conn_shell(c));
        failing.armed = false;
    }
    return any;
}

static void short_run(struct rig *r, int64_t us) {
    int64_t until = r->now.mono_us + us;
    while (r->now.mono_us < until) {
        if (short_turn(r)) continue;
        int64_t next = KW_MIN(sim_disk_next(r->disk), kb_node_deadline(r->node));
        r->now.mono_us = KW_MAX(r->now.mono_us + 1, KW_MIN(next, until));
    }
}

/* What the node reads, it reads short of memory. */
static void short_send(struct rig_conn *c, const uint8_t *p, size_t n) {
    for (size_t sent = 0; c->conn && sent < n;) {
        uint8_t *to;
        size_t room;
        failing.armed = true;
        kb_conn_recv_buf(c->conn, &to, &room);
        failing.armed = false;
        if (room == 0) {
            if (!short_turn(c->rig)) break;
            continue;
        }
        room = KW_MIN(room, n - sent);
        memcpy(to, p + sent, room);
        sent += room;
        failing.armed = true;
        kb_conn_received(c->conn, room, c->rig->now);
        failing.armed = false;
    }
}

static void short_request(struct rig_conn *c, int16_t key, int16_t version, const void *msg) {
    struct kw_out out;
    kw_out_init(&out);
    assert_int_equal(kw_frame_request(&out, kw_api_by_key(key), version, 7, kw_str_of("rig"), msg), KW_OK);
    short_send(c, out.p, out.len);
    short_run(c->rig, 1000);
    kw_out_deinit(&out);
}

/* ---- What is stored, and what was said of it ---- */

static int64_t place_of(const struct guid_log *l, uint64_t id) {
    int64_t at = -1;
    for (size_t i = 0; i < l->count; i++) {
        if (l->v[i].id != id) continue;
        if (at >= 0) fail_msg("id %d is stored at %d and at %d", (int)id, (int)at, (int)l->v[i].offset);
        at = l->v[i].offset;
    }
    return at;
}

/* A success says of every record where it is, by a range or by the batch's offset. */
static void check_success(const struct guid_log *l, const struct guids *g, const rig_produced *a, bool ranges) {
    for (int32_t i = 0; i < g->count; i++) {
        int64_t at = place_of(l, g->ids[i]), told = a->base_offset + i;
        if (at < 0) fail_msg("record %d, id %d: told stored, and is not", (int)i, (int)g->ids[i]);
        for (int32_t k = 0; k < a->guid.ranges.n; k++) {
            const struct kw_produce_response_guid_range *v = &a->guid.ranges.v[k];
            if (i >= v->index && i < v->index + v->count) told = v->flags & 2 ? at : v->first_offset + i - v->index;
        }
        if (ranges && told != at) fail_msg("record %d, id %d: told %d, and is at %d", (int)i, (int)g->ids[i], (int)told, (int)at);
    }
    if (ranges) assert_true(a->guid.deduped);
}

static bool is_retriable(int16_t code) {
    return code == KE_KAFKA_STORAGE_ERROR || code == KE_NOT_LEADER_OR_FOLLOWER || code == KE_REQUEST_TIMED_OUT || code == KE_LEADER_NOT_AVAILABLE;
}

static void check_answer(struct rig *r, const struct guids *g, const rig_produced *a, bool ranges) {
    struct guid_log l;
    guid_read(r, guid_log_of(r), &l);
    if (a->error_code == KE_NONE) {
        check_success(&l, g, a, ranges);
    } else if (a->error_code == KE_DUPLICATE_SEQUENCE_NUMBER && !ranges) {
        for (int32_t i = 0; i < g->count; i++) assert_true(place_of(&l, g->ids[i]) >= 0);
    } else if (!is_retriable(a->error_code)) {
        fail_msg("%s is not tried again", kw_kerror_name(a->error_code));
    } else {
        for (int32_t i = 0; i < g->count; i++) (void)place_of(&l, g->ids[i]); /* none twice */
    }
    free(l.v);
}

/* ---- Cases ---- */

struct memory_case {
    const char *name;
    struct guids g;
    bool many;     /* in place of g.ids: some hundreds, known ones and new ones in turn */
    bool cold;     /* the node has just started */
    bool in_files; /* the first copies are in files, which have to be read */
    bool rebuild;  /* there is no index when it comes */
    bool sent;     /* it was stored before: its sequence is one of the last five */
    bool behind;   /* and is not one of those any more */
};

enum { KNOWN = 300 };

static void fill_many(struct guids *g) {
    g->count = 2 * KNOWN;
    for (int32_t i = 0; i < KNOWN; i++) {
        g->ids[2 * i] = 100 + (uint64_t)(KNOWN - i);
        g->ids[2 * i + 1] = 5000 + (uint64_t)i;
    }
}

static struct rig_conn *prepare(struct rig *r, struct memory_case *m) {
    rig_init(r, 1);
    if (m->in_files) rig_set(r, "guid.index.memory.bytes", "1");
    rig_start(r);
    struct rig_conn *c = rig_connect(r);
    assert_int_equal(rig_create(c, "t", 1, "message.guid.dedup", "true"), KE_NONE);
    guid_put(c, true, GUIDS(IDS(1, 2, 3)));
    guid_put(c, true, GUIDS(IDS(4, 5, 6)));
    struct guids known = {.count = KNOWN};
    for (int32_t i = 0; i < KNOWN; i++) known.ids[i] = 101 + (uint64_t)i;
    if (m->many) {
        guid_put(c, true, known);
        fill_many(&m->g);
    }
    if (m->sent || m->behind) guid_put(c, true, m->g);
    for (int32_t i = 0; m->behind && i < 6; i++) guid_put(c, true, GUIDS(IDS(1000 + (uint64_t)i), .pid = m->g.pid, .seq = m->g.count + i));
    if (m->in_files) rig_pass(r, 1000000);
    if (!m->cold && !m->rebuild) return c;
    rig_stop(r);
    if (m->rebuild) sim_disk_remove(r->disk, "/data/t-0/guid");
    rig_start(r);
    if (m->cold) rig_pass(r, 1000000); /* the index is there */
    return rig_connect(r);
}

/* false: no allocation was left to fail. */
static bool one_failure(struct memory_case *m, bool ranges, int64_t at, bool all) {
    struct rig r;
    rig_produced a;
    struct kw_produce_response resp;
    struct rig_conn *c = prepare(&r, m);
    struct guids g = m->g;
    failing.at = at;
    failing.all = all;
    failing.calls = failing.struck = 0;
    short_request(c, KW_API_PRODUCE, 9, &guid_msg(&r, "t", -1, ranges, &g)->req);
    bool struck = failing.struck > 0;
    for (int i = 0; i < 400 && c->conn && c->in_len == 0; i++) rig_pass(&r, 100000); /* there is memory again */
    if (rig_response(c, KW_API_PRODUCE, 9, 7, &resp)) {
        a = resp.responses.v[0].partition_responses.v[0];
        check_answer(&r, &g, &a, ranges);
    } else {
        assert_null(c->conn); /* else the client would wait */
    }
    a = guid_put(rig_connect(&r), ranges, g);
    if (a.error_code != KE_NONE && (ranges || a.error_code != KE_DUPLICATE_SEQUENCE_NUMBER)) guid_expect(a, KE_NONE, a.base_offset);
    check_answer(&r, &g, &a, ranges);
    a = guid_put(rig_connect(&r), true, GUIDS(IDS(1, 4, 777, 6, 3))); /* and the index has kept step */
    guid_expect(a, KE_NONE, a.base_offset);
    guid_ranges(a, "0+1@0 1+1@3 3+1@5 4+1@2");
    rig_deinit(&r);
    return struck;
}

static void test_produce(void **state) {
    (void)state;
    struct memory_case cases[] = {
        {.name = "mixed", .g = {IDS(1, 20, 2, 21, 20, 6, 22), .pid = 5}},
        {.name = "mixed, not idempotent", .g = {IDS(1, 20, 2, 21, 20, 6, 22)}},
        {.name = "mixed, zstd", .g = {IDS(1, 20, 2, 21, 20, 6, 22), .pid = 5, .codec = KW_CODEC_ZSTD}},
        {.name = "all new", .g = {IDS(20, 21, 22), .pid = 5}},
        {.name = "all known", .g = {IDS(5, 1, 6), .pid = 5}},
        {.name = "all known, not idempotent", .g = {IDS(5, 1, 6)}},
        {.name = "a repeat", .g = {IDS(1, 20, 2, 21, 20), .pid = 5}, .sent = true},
        {.name = "behind the five", .g = {IDS(1, 20, 2, 21, 20), .pid = 5}, .behind = true},
        {.name = "first copies in files", .g = {IDS(1, 20, 2, 21, 20, 6, 22), .pid = 5}, .in_files = true},
        {.name = "a repeat, in files", .g = {IDS(1, 20, 2, 21, 20), .pid = 5}, .in_files = true, .sent = true},
        {.name = "many", .g = {.pid = 5}, .many = true},
        {.name = "many, not idempotent, lz4", .g = {.codec = KW_CODEC_LZ4}, .many = true},
        {.name = "many, a repeat", .g = {.pid = 5}, .many = true, .sent = true},
        {.name = "many, behind the five", .g = {.pid = 5}, .many = true, .behind = true},
        {.name = "many, just started", .g = {.pid = 5}, .many = true, .cold = true},
        {.name = "many, at the gate", .g = {.pid = 5}, .many = true, .rebuild = true},
        {.name = "at the gate", .g = {IDS(1, 20, 2, 21, 20, 6, 22), .pid = 5}, .rebuild = true},
    };
    for (size_t i = 0; i < KW_COUNTOF(cases); i++)
        for (int how = 0; how < 4; how++) {
            int64_t at = 0;
            while (one_failure(&cases[i], how & 1, at, how & 2)) at++;
            if (getenv("RIG_LOG")) print_message("%s: %d allocations\n", cases[i].name, (int)at);
            assert_true(at > 0);
        }
}

/* ---- LookupGuid ---- */

struct ask {
    struct kw_lookup_guid_request req;
    struct kw_lookup_guid_request_topic topic;
    struct kw_lookup_guid_request_partition part;
    struct kw_bytes ids[3 * KNOWN];
    uint8_t bytes[3 * KNOWN][16];
};

/* Every third is not known. */
static uint64_t asked_id(int32_t i) { return i % 3 ? 101 + (uint64_t)(i % KNOWN) : 90000 + (uint64_t)i; }

static void fill_ask(struct ask *a) {
    memset(a, 0, sizeof(*a));
    kw_msg_init(&kw_lookup_guid_request_desc, &a->req);
    a->req.include_stats = true;
    a->req.topics.v = &a->topic;
    a->req.topics.n = 1;
    a->topic.name = kw_str_of("t");
    a->topic.partitions.v = &a->part;
    a->topic.partitions.n = 1;
    a->part.current_leader_epoch = -1;
    a->part.ids.v = a->ids;
    a->part.ids.n = 3 * KNOWN;
    for (int32_t i = 0; i < 3 * KNOWN; i++) {
        guid_of(a->bytes[i], asked_id(i));
        a->ids[i] = (struct kw_bytes){a->bytes[i], 16};
    }
}

static void check_lookup(struct rig *r, const struct kw_lookup_guid_response *resp) {
    struct guid_log l;
    const struct kw_lookup_guid_response_partition_result *a = &resp->topics.v[0].partitions.v[0];
    if (a->error_code != KE_NONE) {
        if (!is_retriable(a->error_code)) fail_msg("%s is not tried again", kw_kerror_name(a->error_code));
        return;
    }
    guid_read(r, guid_log_of(r), &l);
    assert_int_equal(a->ids.n, 3 * KNOWN);
    assert_non_null(a->stats);
    for (int32_t i = 0; i < 3 * KNOWN; i++) {
        assert_int_equal(a->ids.v[i].state, i % 3 ? 1 : 0);
        assert_int_equal(a->ids.v[i].offset, place_of(&l, asked_id(i)));
    }
    free(l.v);
}

static bool one_lookup(struct memory_case *m, int64_t at, bool all) {
    struct rig r;
    struct kw_lookup_guid_response resp;
    static struct ask ask;
    struct rig_conn *c = prepare(&r, m);
    fill_ask(&ask);
    failing.at = at;
    failing.all = all;
    failing.calls = failing.struck = 0;
    short_request(c, KW_API_LOOKUP_GUID, 0, &ask.req);
    bool struck = failing.struck > 0;
    for (int i = 0; i < 400 && c->conn && c->in_len == 0; i++) rig_pass(&r, 100000);
    if (rig_response(c, KW_API_LOOKUP_GUID, 0, 7, &resp)) check_lookup(&r, &resp);
    else assert_null(c->conn);
    rig_pass(&r, 1000000);
    rig_call(rig_connect(&r), KW_API_LOOKUP_GUID, 0, &ask.req, &resp);
    assert_int_equal(resp.topics.v[0].partitions.v[0].error_code, KE_NONE);
    check_lookup(&r, &resp);
    rig_deinit(&r);
    return struck;
}

static void test_lookup(void **state) {
    (void)state;
    struct memory_case cases[] = {
        {.name = "in memory", .many = true},
        {.name = "in files", .many = true, .in_files = true},
        {.name = "just started", .many = true, .cold = true},
        {.name = "no index yet", .many = true, .rebuild = true},
    };
    for (size_t i = 0; i < KW_COUNTOF(cases); i++)
        for (int all = 0; all < 2; all++) {
            int64_t at = 0;
            while (one_lookup(&cases[i], at, all)) at++;
            if (getenv("RIG_LOG")) print_message("%s: %d allocations\n", cases[i].name, (int)at);
            assert_true(at > 0);
        }
}

/* ---- Fetch, where only batches without records are left ---- */

/* Offsets 0 to 5 hold records, 6 to 11 batches that all of their records were taken out of, as compaction leaves them. */
static struct rig_conn *prepare_empties(struct rig *r) {
    struct memory_case m = {.name = "empties"};
    struct rig_conn *c = prepare(r, &m);
    for (int i = 0; i < 6; i++) {
        uint8_t b[KW_BATCH_HEADER_SIZE];
        struct kb_partition *p = rig_partition(r, "t", 0);
        struct kw_batch_header h = {.leader_epoch = -1, .magic = 2, .length = KW_BATCH_HEADER_SIZE - KW_BATCH_OVERHEAD, .base_timestamp = r->now.wall_ms,
                                    .max_timestamp = r->now.wall_ms, .producer_id = -1, .producer_epoch = -1, .base_sequence = -1};
        kw_batch_write_header(b, &h);
        kw_batch_crc_set(b, sizeof(b));
        struct kb_log_append a = {.batch = b, .size = sizeof(b), .leader_epoch = p->leader_epoch, .max_timestamp = r->now.wall_ms};
        assert_int_equal(kb_log_append(p->log, &a, r->now), KW_OK);
        kb_partition_dirty(p);
    }
    rig_settle(r);
    return c;
}

/* The cover: a batch that stands for offsets 6 to 11, so that the client goes on from 12. */
static void check_cover(const rig_fetched *f) {
    struct kw_batch_header h;
    assert_int_equal(f->error_code, KE_NONE);
    assert_true(f->records.len > 0);
    assert_int_equal(kw_batch_parse(f->records.p, (size_t)f->records.len, &h), KW_OK);
    assert_true(kw_batch_crc_ok(f->records.p, (size_t)f->records.len));
    assert_int_equal(h.attributes & KW_ATTR_CONTROL, KW_ATTR_CONTROL);
    assert_int_equal(h.base_offset, 6);
    assert_int_equal(h.base_offset + h.last_offset_delta, 11);
}

static bool one_fetch(int64_t at, bool all, int *coverless) {
    struct rig r;
    struct kw_fetch_response resp;
    struct rig_conn *c = prepare_empties(&r);
    struct rig_fetch q = RIG_FETCH(.topic = "t", .offset = 6);
    failing.at = at;
    failing.all = all;
    failing.calls = failing.struck = 0;
    short_request(c, KW_API_FETCH, 11, &rig_fetch_msg(&r, &q)->req);
    short_run(&r, 100000); /* it reads its file, to see that they are empty */
    bool struck = failing.struck > 0;
    for (int i = 0; i < 400 && c->conn && c->in_len == 0; i++) rig_pass(&r, 100000); /* there is memory again */
    if (rig_response(c, KW_API_FETCH, 11, 7, &resp)) {
        const rig_fetched *f = resp.error_code == KE_NONE && resp.responses.n == 1 ? &resp.responses.v[0].partitions.v[0] : NULL;
        if (!f || f->error_code != KE_NONE) assert_true(is_retriable(f ? f->error_code : resp.error_code));
        else if (f->records.len > 0) check_cover(f);
        else ++*coverless; /* as good as no answer: the client asks for the same offset again */
    } else {
        assert_null(c->conn); /* else the client would wait */
    }
    check_cover(rig_fetch_one(rig_connect(&r), q));
    rig_deinit(&r);
    return struck;
}

static void test_fetch_of_empties(void **state) {
    (void)state;
    for (int all = 0; all < 2; all++) {
        int coverless = 0;
        int64_t at = 0;
        while (one_fetch(at, all, &coverless)) at++;
        assert_true(at > 0);
        assert_true(all || coverless > 0); /* the cover's own allocation was among those that failed */
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_produce), cmocka_unit_test(test_lookup), cmocka_unit_test(test_fetch_of_empties)};
    return cmocka_run_group_tests(tests, set_up, NULL);
}
