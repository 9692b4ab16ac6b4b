/* test_fetch_empty.c - batches without records, and with holes, as compaction and dedup leave them: consumers of every version get on (specs.md,
 * GUID dedup, rule 21), followers get the bytes as they are, and times are found as if the empty ones were not there (rule 8). */
#include "isr_rig.h"

#include "log/log.h"
#include "wire/message_set.h"

enum { FUTURE_MS = 3600000 };

static int64_t store(struct rig *r, struct kb_partition *p, uint8_t *batch, size_t size, int64_t max_timestamp) {
    struct kb_log_append a = {.batch = batch, .size = size, .leader_epoch = p->leader_epoch, .max_timestamp = max_timestamp};
    assert_int_equal(kb_log_append(p->log, &a, r->now), KW_OK);
    kb_partition_dirty(p);
    return a.base_offset;
}

/* `span` offsets, of whose records those are there whose bit is set in `kept`. */
static int64_t put(struct rig *r, struct kb_partition *p, int32_t span, uint32_t kept, int64_t timestamp) {
    uint8_t b[4096], *at = b + KW_BATCH_HEADER_SIZE;
    struct kw_batch_header h = {.leader_epoch = -1, .magic = 2, .last_offset_delta = span - 1, .base_timestamp = timestamp,
                                .max_timestamp = timestamp, .producer_id = -1, .producer_epoch = -1, .base_sequence = -1};
    for (int32_t i = 0; i < span; i++) {
        if (!(kept >> i & 1)) continue;
        struct kw_record_in rec = {.offset_delta = i, .key = {(const uint8_t *)"k", 1}, .value = {(const uint8_t *)"value", 5}};
        at = kw_record_write(at, &rec, kw_record_size(&rec));
        h.record_count++;
    }
    h.length = (int32_t)(at - b - KW_BATCH_OVERHEAD);
    kw_batch_write_header(b, &h);
    kw_batch_crc_set(b, (size_t)(at - b));
    return store(r, p, b, (size_t)(at - b), timestamp);
}
static void put_empties(struct rig *r, struct kb_partition *p, int n, int32_t span) {
    for (int i = 0; i < n; i++) put(r, p, span, 0, r->now.wall_ms + FUTURE_MS);
    rig_settle(r);
}

/* What a consumer has seen, by offset. */
struct seen {
    uint8_t v[200000];
    int64_t count;
};
static void note(struct seen *s, int64_t offset) {
    assert_in_range(offset, 0, sizeof(s->v) - 1);
    assert_int_equal(s->v[offset], 0); /* once */
    s->v[offset] = 1;
    s->count++;
}

/* The offset to go on from, as clients reckon it. */
static int64_t take_v2(const rig_fetched *f, int64_t at, int32_t epoch, struct seen *s) {
    const uint8_t *p = f->records.p, *end = p + KW_MAX(f->records.len, 0);
    struct kw_entry e;
    bool first = true;
    while (kw_entry_next(&p, end, &e) > 0) {
        struct kw_batch_header h;
        struct kw_record_iter it;
        struct kw_record_view v;
        assert_int_equal(kw_batch_parse(e.p, e.size, &h), KW_OK);
        assert_true(kw_batch_crc_ok(e.p, e.size));
        assert_int_equal(h.leader_epoch, epoch);
        int64_t last = h.base_offset + h.last_offset_delta;
        assert_true(last >= at && last < f->high_watermark);
        if (first) assert_true(h.record_count > 0);
        if (h.attributes & KW_ATTR_CONTROL) { /* stands for all that were passed over, and does not go below what was asked for */
            assert_true(first && p == end);
            assert_int_equal(h.base_offset, at);
            kw_record_iter_init(&it, &h, e.p + KW_BATCH_HEADER_SIZE, e.size - KW_BATCH_HEADER_SIZE);
            assert_int_equal(kw_record_next(&it, &v), 1);
            assert_int_equal(v.offset, last);
            assert_int_equal(kw_record_next(&it, &v), 0);
            return last + 1;
        }
        first = false;
        kw_record_iter_init(&it, &h, e.p + KW_BATCH_HEADER_SIZE, e.size - KW_BATCH_HEADER_SIZE);
        while (kw_record_next(&it, &v) > 0)
            if (v.offset >= at) note(s, v.offset);
        at = last + 1;
    }
    return at;
}
static int64_t take_old(const rig_fetched *f, int64_t at, struct seen *s) {
    struct kw_message_iter it;
    struct kw_message_view m;
    struct kw_compressor *c = kw_compressor_new();
    kw_message_iter_init(&it, f->records.p, (size_t)KW_MAX(f->records.len, 0), 1 << 20, c);
    while (kw_message_iter_next(&it, &m) > 0) {
        assert_true(m.offset >= at);
        note(s, m.offset);
        at = m.offset + 1;
    }
    kw_message_iter_deinit(&it);
    kw_compressor_free(c);
    return at;
}

/* Fetches until nothing more comes; how many answers that took. */
static int consume(struct rig_conn *c, int16_t version, int64_t from, int32_t part_max_bytes, int32_t epoch, struct seen *s, int64_t *end) {
    int n = 0;
    memset(s, 0, sizeof(*s));
    for (int64_t at = from;; n++) {
        rig_fetched *f = rig_fetch_one(c, RIG_FETCH(.version = version, .topic = "t", .offset = at, .part_max_bytes = part_max_bytes));
        assert_int_equal(f->error_code, KE_NONE);
        int64_t next = version >= 4 ? take_v2(f, at, epoch, s) : take_old(f, at, s);
        *end = at;
        if (next == at) return n;
        at = next;
    }
}

/* Records, thousands of empty batches, holed ones, and thousands of empty ones at the end. */
static int64_t fill(struct rig *r, struct kb_partition *p, int64_t *kept) {
    put(r, p, 3, 7, 0);
    put_empties(r, p, 5000, 1);
    put(r, p, 10, 1 << 4 | 1 << 6, 0); /* a hole in front, in between, behind */
    put(r, p, 2, 2, 0);
    put_empties(r, p, 1, 7);
    put(r, p, 4, 8, 0);
    put_empties(r, p, 20000, 3); /* over a megabyte */
    rig_settle(r);
    *kept = 7;
    return 3 + 5000 + 10 + 2 + 7 + 4 + 60000;
}

static void check_all(struct rig *r, int64_t end, int64_t kept, int32_t epoch) {
    static struct seen s;
    struct rig_conn *c = rig_connect(r);
    int64_t at;
    for (int16_t v = 0; v <= 18; v++) {
        assert_in_range(consume(c, v, 0, 1 << 20, epoch, &s, &at), 1, 6);
        assert_int_equal(s.count, kept);
        assert_int_equal(at, v >= 4 ? end : 5026); /* old formats have no way to tell of what comes behind the last record */
        assert_in_range(consume(c, v, 5000, 1 << 20, epoch, &s, &at), 1, 6); /* from among the empty ones */
        assert_int_equal(s.count, kept - 3);
    }
    for (int64_t from = 5000; from < 5030; from++) { /* with room for hardly anything */
        consume(c, 11, from, 1, epoch, &s, &at);
        assert_int_equal(at, end);
        for (int64_t o = from; o < 5030; o++) assert_int_equal(s.v[o], o == 5007 || o == 5009 || o == 5014 || o == 5025);
    }
}

static void test_rule_21_every_version(void **state) {
    (void)state;
    struct rig r;
    int64_t kept;
    struct rig_conn *c = rig_begin(&r, 1, 1);
    int64_t end = fill(&r, rig_partition(&r, "t", 0), &kept);
    int32_t epoch = rig_partition(&r, "t", 0)->leader_epoch;
    (void)c;
    check_all(&r, end, kept, epoch);
    rig_restart(&r); /* believed: the segment's batches are met when they are read */
    check_all(&r, end, kept, epoch);
    rig_crash(&r); /* scanned */
    check_all(&r, end, kept, epoch);
    rig_deinit(&r);
}

/* Empty batches fill whole segments; what comes behind is found, and time lookups pass over them (rule 8). */
static void test_rule_21_segments(void **state) {
    (void)state;
    struct rig r;
    static struct seen s;
    int64_t at;
    rig_init(&r, 2);
    rig_start(&r);
    struct rig_conn *c = rig_connect(&r);
    assert_int_equal(rig_create(c, "t", 1, "segment.bytes", "5000"), KE_NONE);
    struct kb_partition *p = rig_partition(&r, "t", 0);
    int32_t epoch = p->leader_epoch;
    put(&r, p, 1, 1, 0);
    put_empties(&r, p, 1000, 2);
    put(&r, p, 1, 1, 0);
    put_empties(&r, p, 1000, 2);
    assert_true(kb_log_segment_count(p->log) > 20);
    for (int round = 0; round < 3; round++) {
        for (int16_t v = 2; v <= 13; v++) {
            consume(rig_connect(&r), v, 0, 1 << 20, epoch, &s, &at);
            assert_true(s.v[0] && s.v[2001] && s.count == 2);
            assert_int_equal(at, v >= 4 ? 4002 : 2002);
        }
        if (round == 0) rig_restart(&r);
        if (round == 1) rig_crash(&r);
    }
    rig_deinit(&r);
}

/* An incremental session: the answer names the partition as long as there is something to pass over, and no longer. */
static void test_rule_21_sessions(void **state) {
    (void)state;
    struct rig r;
    struct kw_fetch_response resp;
    static struct seen s;
    int64_t kept, at = 0;
    struct rig_conn *c = rig_begin(&r, 3, 1);
    struct kb_partition *p = rig_partition(&r, "t", 0);
    int64_t end = fill(&r, p, &kept);
    int32_t id = 0;
    memset(&s, 0, sizeof(s));
    for (int32_t epoch = 0; at < end; epoch++) {
        assert_in_range(epoch, 0, 6);
        resp = rig_fetch(c, RIG_FETCH(.version = 13, .topic = "t", .offset = at, .session_id = id, .session_epoch = epoch));
        assert_int_equal(resp.error_code, KE_NONE);
        assert_int_equal(resp.responses.n, 1);
        id = resp.session_id;
        at = take_v2(&resp.responses.v[0].partitions.v[0], at, p->leader_epoch, &s);
    }
    assert_int_equal(s.count, kept);
    assert_int_equal(at, end);
    rig_deinit(&r);
}

/* A fetch that waits at the end is answered when nothing but an empty batch comes: the consumer is to know that it has seen all. */
static void test_rule_21_waiting(void **state) {
    (void)state;
    struct rig r;
    struct kw_fetch_response resp;
    static struct seen s;
    struct rig_conn *c = rig_begin(&r, 4, 1);
    struct kb_partition *p = rig_partition(&r, "t", 0);
    memset(&s, 0, sizeof(s));
    rig_request(c, KW_API_FETCH, 11, 1, &rig_fetch_msg(&r, &RIG_FETCH(.topic = "t", .max_wait_ms = 60000))->req);
    rig_settle(&r);
    assert_false(rig_response(c, KW_API_FETCH, 11, 1, &resp));
    put_empties(&r, p, 1, 5);
    assert_true(rig_response(c, KW_API_FETCH, 11, 1, &resp));
    assert_int_equal(take_v2(&resp.responses.v[0].partitions.v[0], 0, p->leader_epoch, &s), 5);
    assert_int_equal(s.count, 0);
    rig_deinit(&r);
}

static void test_rule_21_followers_get_the_bytes(void **state) {
    (void)state;
    struct lead l;
    lead_up(&l, 5, 2, 2);
    struct kb_partition *p = lead_part(&l, 0);
    put(&l.r, p, 1, 1, 0);
    put_empties(&l.r, p, 3, 2);
    rig_fetched *f = lead_fetch(&l, BY(.id = 1, .offset = 1, .last_epoch = 5));
    assert_int_equal(f->error_code, KE_NONE);
    assert_int_equal(f->records.len, 3 * KW_BATCH_HEADER_SIZE);
    struct kw_batch_header h;
    assert_int_equal(kw_batch_parse(f->records.p, (size_t)f->records.len, &h), KW_OK);
    assert_int_equal(h.base_offset, 1);
    assert_int_equal(h.last_offset_delta, 1);
    assert_int_equal(h.attributes, 0);
    assert_int_equal(h.leader_epoch, 5);
    lead_down(&l);
}

/* Only what is committed is passed over. */
static void test_rule_21_below_the_high_watermark(void **state) {
    (void)state;
    struct lead l;
    static struct seen s;
    memset(&s, 0, sizeof(s));
    lead_up(&l, 6, 2, 2);
    put_empties(&l.r, lead_part(&l, 0), 4, 2);
    assert_int_equal(rig_fetch_one(l.c, RIG_FETCH(.topic = "t"))->records.len, 0);
    lead_fetch(&l, BY(.id = 1, .offset = 4, .last_epoch = 5));
    rig_fetched *f = rig_fetch_one(l.c, RIG_FETCH(.topic = "t"));
    assert_int_equal(f->high_watermark, 4);
    assert_int_equal(take_v2(f, 0, 5, &s), 4);
    lead_down(&l);
}

/* The epoch by which a consumer later asks whether what it has read still stands is that of the last offset passed over. */
static void test_rule_21_epochs(void **state) {
    (void)state;
    struct lead l;
    lead_up(&l, 7, 1, 1);
    put_empties(&l.r, lead_part(&l, 0), 4, 2);
    static const int32_t only0[] = {0};
    lead_change(&l, 0, 0, only0, 1); /* led anew */
    struct kb_partition *p = lead_part(&l, 0);
    assert_int_equal(p->leader_epoch, 6);
    put_empties(&l.r, p, 4, 2);
    rig_fetched *f = rig_fetch_one(l.c, RIG_FETCH(.topic = "t"));
    struct kw_batch_header h;
    assert_int_equal(kw_batch_parse(f->records.p, (size_t)f->records.len, &h), KW_OK);
    assert_int_equal(h.last_offset_delta, 15);
    assert_int_equal(h.leader_epoch, 6);
    lead_down(&l);
}

/* What lies in front of damage is passed over first. */
static void test_rule_21_in_front_of_damage(void **state) {
    (void)state;
    struct rig r;
    static struct seen s;
    memset(&s, 0, sizeof(s));
    struct rig_conn *c = rig_begin(&r, 8, 1);
    struct kb_partition *p = rig_partition(&r, "t", 0);
    int32_t epoch = p->leader_epoch;
    put_empties(&r, p, 10, 1);
    put(&r, p, 1, 1, 0);
    put(&r, p, 1, 1, 0);
    rig_settle(&r);
    rig_stop(&r);
    sim_disk_rot(r.disk, "/data/t-0/00000000000000000000.log", 10 * KW_BATCH_HEADER_SIZE + 64, 0x04);
    rig_start(&r);
    c = rig_connect(&r);
    rig_fetched *f = rig_fetch_one(c, RIG_FETCH(.topic = "t"));
    assert_int_equal(f->error_code, KE_NONE);
    assert_int_equal(take_v2(f, 0, epoch, &s), 10);
    assert_int_equal(rig_fetch_one(c, RIG_FETCH(.topic = "t", .offset = 10))->error_code, KE_CORRUPT_MESSAGE);
    assert_int_equal(rig_fetch_one(c, RIG_FETCH(.version = 2, .topic = "t"))->error_code, KE_CORRUPT_MESSAGE);
    rig_deinit(&r);
}

/* ---- Rule 8 ---- */

static int64_t by_time(struct rig_conn *c, int64_t timestamp, int64_t *found) {
    struct kw_list_offsets_request req;
    struct kw_list_offsets_response resp;
    struct kw_list_offsets_request_list_offsets_topic t = {.name = kw_str_of("t")};
    struct kw_list_offsets_request_list_offsets_partition q = {.current_leader_epoch = -1, .timestamp = timestamp, .max_num_offsets = 1};
    kw_msg_init(&kw_list_offsets_request_desc, &req);
    req.replica_id = -1;
    req.topics.v = &t;
    req.topics.n = 1;
    t.partitions.v = &q;
    t.partitions.n = 1;
    rig_call(c, KW_API_LIST_OFFSETS, 7, &req, &resp);
    assert_int_equal(resp.topics.v[0].partitions.v[0].error_code, KE_NONE);
    *found = resp.topics.v[0].partitions.v[0].timestamp;
    return resp.topics.v[0].partitions.v[0].offset;
}

/* Every time index names times of records alone. Then it goes. */
static void drop_time_indexes(struct rig *r, const int64_t *times, size_t count) {
    for (int64_t base = 0; base < 4000; base++) {
        char path[60];
        size_t n;
        snprintf(path, sizeof(path), "/data/t-0/%020lld.timeindex", (long long)base);
        const uint8_t *p = sim_disk_peek(r->disk, path, &n);
        for (size_t i = 0; p && i + 12 <= n; i += 12) {
            int64_t t = (int64_t)kw_load64(p + i);
            bool known = t == 0 && kw_load32(p + i + 8) == 0;
            for (size_t k = 0; k < count; k++) known = known || times[k] == t;
            if (!known) fail_msg("%s: entry %zu has time %lld", path, i / 12, (long long)t);
        }
        if (p) sim_disk_remove(r->disk, path);
    }
}

static void test_rule_8_times(void **state) {
    (void)state;
    struct rig r;
    int64_t found;
    rig_init(&r, 9);
    rig_start(&r);
    struct rig_conn *c = rig_connect(&r);
    assert_int_equal(rig_create(c, "t", 1, "segment.bytes", "20000"), KE_NONE);
    struct kb_partition *p = rig_partition(&r, "t", 0);
    int64_t t0 = r.now.wall_ms, times[] = {t0, t0 + 10, t0 + 20};
    put(&r, p, 1, 1, times[0]);
    put_empties(&r, p, 1000, 1); /* their times are an hour ahead: nobody must find them */
    int64_t second = put(&r, p, 2, 2, times[1]) + 1;
    put_empties(&r, p, 1000, 1);
    int64_t third = put(&r, p, 1, 1, times[2]);
    put_empties(&r, p, 1000, 1);
    for (int round = 0; round < 4; round++) {
        c = rig_connect(&r);
        assert_int_equal(by_time(c, t0, &found), 0);
        assert_int_equal(by_time(c, t0 + 1, &found), second);
        assert_int_equal(found, times[1]);
        assert_int_equal(by_time(c, t0 + 11, &found), third);
        assert_int_equal(by_time(c, t0 + 21, &found), -1);
        assert_int_equal(by_time(c, t0 + FUTURE_MS, &found), -1);
        assert_int_equal(by_time(c, KB_TS_MAX, &found), third);
        assert_int_equal(found, times[2]);
        if (round == 0) rig_restart(&r);
        if (round == 1) rig_crash(&r);
        if (round == 2) { /* built anew */
            rig_stop(&r);
            drop_time_indexes(&r, times, KW_COUNTOF(times));
            rig_start(&r);
        }
    }
    rig_deinit(&r);
}

/* Segments of nothing but empty batches go by the time of their last append, not by what the batches say. */
static void test_rule_8_retention(void **state) {
    (void)state;
    struct rig r;
    rig_init(&r, 10);
    rig_set(&r, "log.retention.check.interval.ms", "1000");
    rig_set(&r, "log.segment.bytes", "5000");
    rig_start(&r);
    struct rig_conn *c = rig_connect(&r);
    assert_int_equal(rig_create(c, "t", 1, "retention.ms", "60000"), KE_NONE);
    struct kb_partition *p = rig_partition(&r, "t", 0);
    put_empties(&r, p, 1000, 1);
    put(&r, p, 1, 1, r.now.wall_ms);
    rig_pass(&r, 30000000);
    assert_int_equal(p->log->start, 0);
    rig_pass(&r, 40000000);
    assert_true(p->log->start > 900); /* they say that they are of in an hour */
    rig_deinit(&r);
}

#define TEST(f) cmocka_unit_test(f)
int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_rule_21_every_version), TEST(test_rule_21_segments), TEST(test_rule_21_sessions), TEST(test_rule_21_waiting),
        TEST(test_rule_21_followers_get_the_bytes), TEST(test_rule_21_below_the_high_watermark), TEST(test_rule_21_epochs),
        TEST(test_rule_21_in_front_of_damage), TEST(test_rule_8_times), TEST(test_rule_8_retention),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
