/* guid_rig.h - batches of records with ids, and what a log holds of them: for the tests of topics with message.guid.dedup. */
#ifndef GUID_RIG_H
#define GUID_RIG_H

#include "isr_rig.h"

#include "log/log.h"
#include "wire/compress.h"

#ifndef GUIDS_MAX
#define GUIDS_MAX 64
#endif
struct guids { /* a batch; id 0: none */
    uint64_t ids[GUIDS_MAX];
    int32_t count;
    const char *key;   /* of all; NULL: none */
    const char *value; /* NULL: one that follows from the id */
    int64_t pid;       /* 0: not idempotent */
    int16_t epoch;
    int32_t seq;
    int codec;
    int64_t timestamp; /* 0: now */
    int id_size;       /* 0: 16 */
};
#define GUIDS(...) ((struct guids){__VA_ARGS__})
#define IDS(...) .ids = {__VA_ARGS__}, .count = sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t)

static inline void guid_of(uint8_t out[16], uint64_t id) {
    memset(out, 0x70, 16);
    kw_store64(out, id * 0x9e3779b97f4a7c15);
    kw_store64(out + 8, id);
}

/* In the arena. */
static inline uint8_t *guid_batch(struct rig *r, const struct guids *g, size_t *size) {
    size_t cap = 256 + (size_t)g->count * 128;
    uint8_t *p = kw_arena_alloc(&r->arena, cap), *at = p + KW_BATCH_HEADER_SIZE;
    assert_non_null(p);
    for (int32_t i = 0; i < g->count; i++) {
        char value[64];
        uint8_t id[32] = {0};
        guid_of(id, g->ids[i]);
        snprintf(value, sizeof(value), "%s%llu", g->value ? g->value : "v", g->value ? 0 : (unsigned long long)g->ids[i]);
        struct kw_header_view h = {kw_str_of("guid"), {id, g->id_size ? g->id_size : 16}};
        struct kw_record_in rec = {.offset_delta = i, .key = {(const uint8_t *)g->key, g->key ? (int32_t)strlen(g->key) : -1},
                                   .value = {(const uint8_t *)value, (int32_t)strlen(value)},
                                   .headers = &h, .header_count = g->ids[i] != 0};
        at = kw_record_write(at, &rec, kw_record_size(&rec));
    }
    *size = (size_t)(at - p);
    int64_t ts = g->timestamp ? g->timestamp : r->now.wall_ms;
    bool idempotent = g->pid > 0;
    struct kw_batch_header h = {.length = (int32_t)(*size - KW_BATCH_OVERHEAD), .leader_epoch = -1, .magic = 2, .last_offset_delta = g->count - 1,
                                .base_timestamp = ts, .max_timestamp = ts, .producer_id = idempotent ? g->pid : -1,
                                .producer_epoch = idempotent ? g->epoch : (int16_t)-1, .base_sequence = idempotent ? g->seq : -1, .record_count = g->count};
    kw_batch_write_header(p, &h);
    kw_batch_crc_set(p, *size);
    if (g->codec == KW_CODEC_NONE) return p;
    struct kw_compressor *c = kw_compressor_new();
    size_t room = cap + 4096;
    uint8_t *packed = kw_arena_alloc(&r->arena, room);
    assert_int_equal(kw_batch_compress(c, g->codec, KW_LEVEL_DEFAULT, p, *size, packed, room, size), KW_OK);
    kw_compressor_free(c);
    return packed;
}

static inline struct rig_produce *guid_msg(struct rig *r, const char *topic, int16_t acks, bool ranges, const struct guids *g) {
    size_t n;
    uint8_t *p = guid_batch(r, g, &n);
    struct rig_produce *m = rig_produce_msg(r, topic, 0, acks, p, n);
    m->req.include_guid_ranges = ranges;
    return m;
}
/* By a client that asks for ranges (v9), or one that knows nothing of them. */
static inline rig_produced guid_put(struct rig_conn *c, bool ranges, struct guids g) {
    struct kw_produce_response resp;
    rig_call(c, KW_API_PRODUCE, 9, &guid_msg(c->rig, "t", -1, ranges, &g)->req, &resp);
    return resp.responses.v[0].partition_responses.v[0];
}
static inline void guid_send(struct rig_conn *c, int16_t acks, int32_t correlation, struct guids g) {
    rig_request(c, KW_API_PRODUCE, 9, correlation, &guid_msg(c->rig, "t", acks, true, &g)->req);
}
/* true: answered. */
static inline bool guid_answer(struct rig_conn *c, int32_t correlation, rig_produced *a) {
    struct kw_produce_response resp;
    memset(a, 0, sizeof(*a));
    if (!rig_response(c, KW_API_PRODUCE, 9, correlation, &resp)) return false;
    *a = resp.responses.v[0].partition_responses.v[0];
    return true;
}

static inline void guid_expect(rig_produced a, int16_t code, int64_t offset) {
    if (a.error_code != code)
        fail_msg("%s, expected %s: %.*s", kw_kerror_name(a.error_code), kw_kerror_name(code), KW_MAX(a.error_message.len, 0), a.error_message.p);
    assert_int_equal(a.base_offset, offset);
}
/* "0+2@10 3+1@4!": ranges with their first offsets, ! another payload, ? offset unknown; "-": the topic is not deduped, or it was not told. */
static inline void guid_ranges(rig_produced a, const char *expected) {
    char text[1000] = "";
    size_t at = 0;
    for (int32_t i = 0; i < a.guid.ranges.n; i++) {
        const struct kw_produce_response_guid_range *v = &a.guid.ranges.v[i];
        at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%d+%d@%lld%s%s", i ? " " : "", (int)v->index, (int)v->count, (long long)v->first_offset,
                               v->flags & 1 ? "!" : "", v->flags & 2 ? "?" : "");
    }
    assert_string_equal(a.guid.deduped ? text : "-", expected);
}

/* ---- What the log holds ---- */

struct guid_seen {
    int64_t offset, timestamp;
    uint64_t id; /* 0: none */
};
struct guid_log {
    struct guid_seen *v;
    size_t count, cap;
    int64_t end;
    size_t empties; /* batches without records */
};
static inline void guid_note(struct guid_log *l, struct guid_seen s) {
    if (l->count == l->cap) l->v = realloc(l->v, (l->cap = l->cap * 2 + 64) * sizeof(*l->v));
    l->v[l->count++] = s;
}
static inline void guid_read_done(struct kb_read *rd, struct kb_now now) {
    (void)now;
    *(bool *)rd->ctx = true;
}
/* All of it, as it is stored. The log is written and no request is under way. */
static inline void guid_read(struct rig *r, struct kb_log *log, struct guid_log *l) {
    struct kw_compressor *c = kw_compressor_new();
    *l = (struct guid_log){.end = log->start};
    while (l->end < log->written) {
        struct kb_read rd = {.log = log, .offset = l->end, .limit = log->written, .bytes_max = 1 << 20, .min_one = true, .into_memory = true,
                             .done = guid_read_done, .ctx = &(bool){false}};
        int32_t done = kb_log_read(&rd, r->now);
        for (int i = 0; done == 0 && !*(bool *)rd.ctx && i < 10000; i++) rig_pass(r, 1000);
        assert_int_equal(rd.err, KW_OK);
        assert_true(rd.bytes > 0);
        const uint8_t *p = rd.slices[0].p, *end = p + rd.slices[0].len;
        struct kw_entry e;
        while (kw_entry_next(&p, end, &e) > 0) {
            struct kw_batch_header h;
            const uint8_t *body;
            size_t n;
            struct kw_record_iter it;
            struct kw_record_view v;
            assert_int_equal(kw_batch_parse(e.p, e.size, &h), KW_OK);
            assert_true(kw_batch_crc_ok(e.p, e.size));
            bool gap = log->config->compact_policy;
            assert_true(gap || (l->end == log->start ? h.base_offset <= l->end : h.base_offset == l->end));
            assert_int_equal(kw_batch_body(e.p, e.size, &h, 1 << 20, c, &body, &n), KW_OK);
            kw_record_iter_init(&it, &h, body, n);
            if (h.record_count == 0) l->empties++;
            int32_t more;
            while ((more = kw_record_next(&it, &v)) > 0) {
                struct kw_in in;
                struct kw_header_view hv;
                struct guid_seen s = {v.offset, v.timestamp, 0};
                kw_in_init(&in, v.headers, v.headers_size);
                while (kw_record_header_next(&in, &hv) > 0)
                    if (kw_str_eq(hv.key, kw_str_of("guid"))) s.id = kw_load64(hv.value.p + 8);
                if (v.offset >= log->start) guid_note(l, s);
            }
            assert_int_equal(more, 0);
            l->end = h.base_offset + h.last_offset_delta + 1;
        }
        kb_read_release(&rd);
    }
    kw_compressor_free(c);
}
/* "0:5 1:6 4:7": offset and id of each record. */
static inline void guid_holds(struct rig *r, struct kb_log *log, const char *expected, int64_t end) {
    char text[4000] = "";
    size_t at = 0;
    struct guid_log l;
    guid_read(r, log, &l);
    for (size_t i = 0; i < l.count; i++)
        at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%lld:%llu", i ? " " : "", (long long)l.v[i].offset, (unsigned long long)l.v[i].id);
    assert_string_equal(text, expected);
    assert_int_equal(l.end, end);
    free(l.v);
}

/* A node just started, with topic t deduped. */
static inline struct rig_conn *guid_begin(struct rig *r, uint64_t seed) {
    rig_init(r, seed);
    rig_start(r);
    struct rig_conn *c = rig_connect(r);
    assert_int_equal(rig_create(c, "t", 1, "message.guid.dedup", "true"), KE_NONE);
    return c;
}
static inline struct kb_log *guid_log_of(struct rig *r) { return rig_partition(r, "t", 0)->log; }

#endif
