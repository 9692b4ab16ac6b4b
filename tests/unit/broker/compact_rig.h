/* compact_rig.h - a log of random records whose truth is known, its compaction by hand or by the log itself, and what must be there afterwards
 * (invariant 13). For test_compact.c (the jobs) and test_compact_log.c (a log that lives on meanwhile).
 */
#ifndef COMPACT_RIG_H
#define COMPACT_RIG_H

#include "log_rig.h"

#include "base/rng.h"
#include "log/compact_job.h"
#include "log/compact_map.h"

#define KEYS 40
#define RECORDS 4000

struct truth {   /* a record as it was appended */
    int32_t key; /* -1: none */
    bool tombstone;
    int64_t timestamp;
    int32_t value;
};
static struct rig r;
static struct kw_rng rng;
static struct truth truth[RECORDS];
static int64_t count;
static struct kb_compact_source sources[512];
static struct kb_compact_job job;
static int64_t last_of[4]; /* of producers 100 to 103; -1 */

static inline int setup(void **state) {
    (void)state;
    rig_init(&r, 5, NULL);
    r.config.segment_bytes = 3000;
    r.config.index_interval_bytes = 200;
    kw_rng_init(&rng, 9);
    count = 0;
    for (int i = 0; i < 4; i++) last_of[i] = -1;
    rig_open(&r);
    return 0;
}
static inline int teardown(void **state) {
    (void)state;
    kb_compact_job_deinit(&job);
    rig_deinit(&r);
    return 0;
}

static inline int32_t below(int32_t n) {
    return (int32_t)kw_rng_below(&rng, (uint64_t)n);
}

static inline size_t value_of(int32_t v, char text[60]) {
    return (size_t)snprintf(text, 60, "value %d %.*s", (int)v, (int)(v % 37), "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
}

/* A batch of up to 8 records; producer -1: none. */
static inline void append(int producer) {
    uint8_t plain[4000], packed[6000], *at = plain + KW_BATCH_HEADER_SIZE;
    int32_t n = 1 + below(8), codec = below(3) ? 0 : KW_CODEC_LZ4;
    static int32_t seq[4];
    int64_t base = 1700000000000 + count * 10, max = base;
    for (int32_t i = 0; i < n; i++) {
        struct truth *t = &truth[count + i];
        char key[16], value[60];
        *t = (struct truth){
            .key = below(30) ? below(KEYS) : -1, .tombstone = below(6) == 0, .timestamp = base + below(50), .value = (int32_t)(count + i)};
        max = KW_MAX(max, t->timestamp);
        int k = snprintf(key, sizeof(key), "key-%d", (int)t->key);
        size_t v = value_of(t->value, value);
        struct kw_header_view h = {.key = kw_str_of("h"), .value = {(const uint8_t *)"w", 1}};
        struct kw_record_in rec = {.timestamp_delta = t->timestamp - base,
                                   .offset_delta = i,
                                   .key = {(const uint8_t *)key, t->key < 0 ? -1 : k},
                                   .value = {(const uint8_t *)value, t->tombstone ? -1 : (int32_t)v},
                                   .headers = &h,
                                   .header_count = (size_t)(count % 2)};
        at = kw_record_write(at, &rec, kw_record_size(&rec));
    }
    size_t size = (size_t)(at - plain);
    struct kw_batch_header h = {.length = (int32_t)(size - KW_BATCH_OVERHEAD),
                                .magic = 2,
                                .last_offset_delta = n - 1,
                                .base_timestamp = base,
                                .max_timestamp = max,
                                .producer_id = producer < 0 ? -1 : 100 + producer,
                                .producer_epoch = producer < 0 ? -1 : 0,
                                .base_sequence = producer < 0 ? -1 : seq[producer],
                                .record_count = n};
    if (count == 0) memset(seq, 0, sizeof(seq)), h.base_sequence = producer < 0 ? -1 : 0;
    kw_batch_write_header(plain, &h);
    kw_batch_crc_set(plain, size);
    uint8_t *p = plain;
    if (codec) {
        assert_int_equal(kw_batch_compress(r.compressor, codec, KW_LEVEL_DEFAULT, plain, size, packed, sizeof(packed), &size), KW_OK);
        p = packed;
    }
    struct kb_log_append a = {.batch = p, .size = size, .max_timestamp = max};
    assert_int_equal(kb_log_append(r.log, &a, r.now), KW_OK);
    assert_int_equal(a.base_offset, count);
    count += n;
    if (producer >= 0) {
        seq[producer] += n;
        last_of[producer] = count - 1;
    }
    kb_log_flush(r.log, r.now);
}

static inline void fill(int64_t to, bool producers) {
    while (count < to) append(producers ? below(4) : -1);
    rig_flush(&r);
}

/* All sealed segments as they lie in the folder. */
static inline void look(void) {
    char **names;
    size_t n = sim_disk_names(r.disk, RIG_DIR, &names), k = 0;
    int64_t bases[512];
    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(names[i]);
        if (len == 24 && strcmp(names[i] + 20, ".log") == 0) bases[k++] = strtoll(names[i], NULL, 10);
        free(names[i]);
    }
    free(names);
    assert_true(k >= 2);
    job.source_count = k - 1;
    job.end = bases[k - 1];
    for (size_t i = 0; i + 1 < k; i++) {
        char path[100];
        snprintf(path, sizeof(path), RIG_DIR "/%020lld.log", (long long)bases[i]);
        sources[i] = (struct kb_compact_source){.base = bases[i], .size = (int64_t)rig_size(&r, path)};
    }
}

static inline void prepare(int64_t dirty) {
    static struct kb_compact_producer p[4];
    kb_compact_job_deinit(&job);
    job = (struct kb_compact_job){.dir = RIG_DIR,
                                  .sources = sources,
                                  .dirty = dirty,
                                  .producers = p,
                                  .memory_max = 1 << 20,
                                  .segment_bytes = 3000,
                                  .wall_ms = 1800000000000,
                                  .delete_retention_ms = 1000,
                                  .interval = 200,
                                  .seed = {1, 2}};
    for (int i = 0; i < 4; i++)
        if (last_of[i] >= 0) p[job.producer_count++] = (struct kb_compact_producer){.pid = 100 + i, .last_offset = last_of[i]};
    look();
}

static inline void put_in_place(void) {
    struct kb_compact_swap swap = {.job = &job, .count = job.result_count};
    kb_compact_swap_run(&swap, sim_disk_fs(r.disk));
}

static inline void run(void) {
    kb_compact_job_run(&job, sim_disk_fs(r.disk));
    if (job.err) fail_msg("%d: %s", (int)job.err, job.why);
    put_in_place();
    if (job.err) fail_msg("%d: %s", (int)job.err, job.why);
}

/* What the log has, record by record: must[offset] is there as it was, whatever else there is may be there (may) or not at all. */
static inline void compare(const bool *must, const bool *may) {
    bool seen[RECORDS] = {0};
    int64_t next = r.log->start;
    while (next < r.log->leo) {
        struct rig_bytes b = rig_read_full(&r, next, r.log->leo, 100000, true, true, NULL);
        assert_int_equal(b.err, KW_OK);
        if (b.n == 0) break;
        for (size_t at = 0; at < b.n;) {
            struct kw_batch_header h;
            struct kw_record_iter it;
            struct kw_record_view v;
            const uint8_t *body;
            size_t size, whole = (size_t)kw_batch_size_peek(b.p + at, b.n - at);
            if (whole > b.n - at) break;
            assert_int_equal(kw_batch_parse(b.p + at, whole, &h), KW_OK);
            assert_true(kw_batch_crc_ok(b.p + at, whole));
            assert_int_equal(kw_batch_body(b.p + at, whole, &h, 1 << 20, r.compressor, &body, &size), KW_OK);
            kw_record_iter_init(&it, &h, body, size);
            int32_t more, n = 0;
            while ((more = kw_record_next(&it, &v)) > 0) {
                const struct truth *t = &truth[v.offset];
                char key[16], value[60];
                assert_false(seen[v.offset]);
                seen[v.offset] = true;
                n++;
                snprintf(key, sizeof(key), "key-%d", (int)t->key);
                assert_int_equal(v.key.len, t->key < 0 ? -1 : (int)strlen(key));
                if (t->key >= 0) assert_memory_equal(v.key.p, key, (size_t)v.key.len);
                assert_int_equal(v.value.len, t->tombstone ? -1 : (int)value_of(t->value, value));
                if (v.value.len > 0) assert_memory_equal(v.value.p, value, (size_t)v.value.len);
                assert_int_equal(v.timestamp, t->timestamp);
            }
            assert_int_equal(more, 0);
            assert_int_equal(n, h.record_count);
            next = h.base_offset + h.last_offset_delta + 1;
            at += whole;
        }
        free(b.p);
    }
    for (int64_t i = 0; i < count; i++) {
        if (must[i] && !seen[i]) fail_msg("offset %lld (key %d) is gone", (long long)i, (int)truth[i].key);
        if (seen[i] && !may[i]) fail_msg("offset %lld (key %d) is still there", (long long)i, (int)truth[i].key);
    }
}

/* there: what the log has before (NULL: all); what it has after the job, into out. horizon_over: tombstones that were met before go. */
static inline void expect(const bool *there, bool horizon_over, bool *out) {
    int64_t newest[KEYS];
    for (int k = 0; k < KEYS; k++) newest[k] = -1;
    for (int64_t i = job.dirty; i < job.cleaned_to; i++)
        if (truth[i].key >= 0 && (!there || there[i])) newest[truth[i].key] = i;
    int64_t end = job.result_count ? job.results[job.result_count - 1].end : 0;
    memset(out, 1, RECORDS); /* what comes later */
    for (int64_t i = 0; i < count; i++) {
        const struct truth *t = &truth[i];
        out[i] = !there || there[i];
        if (i >= end) continue;
        if (t->key < 0 || newest[t->key] > i) out[i] = false;
        if (t->tombstone && horizon_over && i < job.dirty) out[i] = false;
    }
}

#endif
