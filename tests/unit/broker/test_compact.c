/* test_compact.c - compaction's two jobs on real segments: what stays of random logs (invariant 13), tombstones and their time (KIP-534),
 * producers' last batches, a map that is too small, logs that are not understood, and a crash at every call to the disk.
 */
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

static int setup(void **state) {
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
static int teardown(void **state) {
    (void)state;
    kb_compact_job_deinit(&job);
    rig_deinit(&r);
    return 0;
}

static int32_t below(int32_t n) {
    return (int32_t)kw_rng_below(&rng, (uint64_t)n);
}

static size_t value_of(int32_t v, char text[60]) {
    return (size_t)snprintf(text, 60, "value %d %.*s", (int)v, (int)(v % 37), "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
}

/* A batch of up to 8 records; producer -1: none. */
static void append(int producer) {
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

static void fill(int64_t to, bool producers) {
    while (count < to) append(producers ? below(4) : -1);
    rig_flush(&r);
}

/* All sealed segments as they lie in the folder. */
static void look(void) {
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

static void prepare(int64_t dirty) {
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

static void run(void) {
    kb_compact_job_run(&job, sim_disk_fs(r.disk));
    if (job.err) fail_msg("%d: %s", (int)job.err, job.why);
    kb_compact_swap_run(&job, sim_disk_fs(r.disk));
    if (job.err) fail_msg("%d: %s", (int)job.err, job.why);
}

/* What the log has, record by record: must[offset] is there as it was, whatever else there is may be there (may) or not at all. */
static void compare(const bool *must, const bool *may) {
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
static void expect(const bool *there, bool horizon_over, bool *out) {
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

static void test_map(void **state) {
    (void)state;
    struct kb_compact_map m;
    const uint64_t seed[2] = {3, 4};
    assert_int_equal(kb_compact_map_init(&m, 24 * 1024, seed), KW_OK);
    size_t put = 0;
    for (; put < 5000; put++) {
        uint8_t key[40] = {0};
        size_t n = (size_t)snprintf((char *)key, sizeof(key), "%zu", put) + put % 20;
        if (kb_compact_map_put(&m, (struct kw_bytes){key, (int32_t)n}, (int64_t)put)) break;
        assert_int_equal(kb_compact_map_put(&m, (struct kw_bytes){key, (int32_t)n}, (int64_t)put + 10000), KW_OK);
    }
    assert_true(put > 800 && put < 1024);
    for (size_t i = 0; i < put + 100; i++) {
        uint8_t key[40] = {0};
        size_t n = (size_t)snprintf((char *)key, sizeof(key), "%zu", i) + i % 20;
        assert_int_equal(kb_compact_map_get(&m, (struct kw_bytes){key, (int32_t)n}), i < put ? (int64_t)i + 10000 : -1);
    }
    kb_compact_map_deinit(&m);
    /* The reference vector of SipHash-2-4-128 for the empty string under the key 00 01 02 … 0f. */
    const uint64_t k[2] = {0x0706050403020100, 0x0f0e0d0c0b0a0908};
    assert_int_equal(kb_compact_map_init(&m, 0, k), KW_OK);
    assert_int_equal(kb_compact_map_put(&m, (struct kw_bytes){(const uint8_t *)"", 0}, 7), KW_OK);
    bool found = false;
    for (size_t i = 0; i < m.cap; i++)
        if (m.slots[i].offset == 7) found = m.slots[i].hash[0] == 0xe6a825ba047f81a3 && m.slots[i].hash[1] == 0x930255c71472f66d;
    assert_true(found);
    kb_compact_map_deinit(&m);
}

static void test_what_stays(void **state) {
    (void)state;
    for (int round = 0; round < 6; round++) {
        if (round) teardown(NULL), setup(NULL), kw_rng_init(&rng, (uint64_t)round);
        bool one[RECORDS], two[RECORDS], three[RECORDS];
        fill(900, round % 2);
        rig_stop(&r);
        prepare(0);
        run();
        assert_int_equal(job.cleaned_to, job.end);
        assert_true(job.bytes_out < job.bytes_in / 2);
        int64_t to = job.cleaned_to;
        expect(NULL, false, one);
        rig_open(&r);
        assert_int_equal(r.log->leo, count);
        compare(one, one);
        fill(1600, round % 2);
        rig_stop(&r);
        prepare(to); /* again, over what has come */
        run();
        expect(one, false, two);
        to = job.cleaned_to;
        rig_open(&r);
        compare(two, two);
        fill(1700, round % 2);
        rig_stop(&r);
        prepare(to);
        job.wall_ms += 5000; /* the tombstones' time is over */
        run();
        expect(two, true, three);
        rig_open(&r);
        compare(three, three);
        rig_restart(&r); /* and with everything checked anew */
        rig_stop(&r);
        rig_recover(&r, 0);
        compare(three, three);
    }
}

/* Producers' sequences are known after a start from nothing but the log. */
static void test_producers_last_batches(void **state) {
    (void)state;
    bool must[RECORDS];
    fill(1200, true);
    int64_t last[4];
    memcpy(last, last_of, sizeof(last));
    fill(2400, false); /* and nothing more of them: every key they wrote is overwritten */
    rig_stop(&r);
    prepare(0);
    run();
    expect(NULL, false, must);
    char **names;
    size_t n = sim_disk_names(r.disk, RIG_DIR, &names);
    for (size_t i = 0; i < n; i++) { /* no snapshot may help */
        char path[200];
        snprintf(path, sizeof(path), RIG_DIR "/%s", names[i]);
        if (strstr(names[i], ".snapshot")) sim_disk_remove(r.disk, path);
        free(names[i]);
    }
    free(names);
    rig_recover(&r, 0);
    compare(must, must);
    for (int i = 0; i < 4; i++) {
        const struct kb_pid_entry *e = kb_pid_get(r.log->pids, 100 + i);
        assert_non_null(e);
        assert_int_equal(e->batches[e->batch_count - 1].last_offset, last[i]);
    }
}

static void test_a_small_map(void **state) {
    (void)state;
    bool must[RECORDS];
    fill(1500, false);
    rig_stop(&r);
    prepare(0);
    job.memory_max = 0; /* 29 keys of 40 */
    run();
    assert_true(job.cleaned_to > 0 && job.cleaned_to < job.end);
    expect(NULL, false, must);
    rig_open(&r);
    compare(must, must);
}

static void test_small_segments_become_one(void **state) {
    (void)state;
    fill(2000, false);
    rig_stop(&r);
    prepare(0);
    size_t before = job.source_count;
    run();
    prepare(job.cleaned_to);
    assert_true(job.source_count > before / 3); /* what was left of each */
    run();
    assert_true(job.result_count < before / 3);
    rig_open(&r);
    assert_int_equal(r.log->start, 0);
}

static void test_rot_and_what_is_not_understood(void **state) {
    (void)state;
    fill(600, false);
    rig_stop(&r);
    prepare(0);
    char path[100];
    snprintf(path, sizeof(path), RIG_DIR "/%020lld.log", (long long)sources[1].base);
    sim_disk_rot(r.disk, path, 100, 4);
    uint64_t hash = sim_disk_hash(r.disk);
    kb_compact_job_run(&job, sim_disk_fs(r.disk));
    assert_int_equal(job.err, KW_ECRC);
    assert_non_null(strstr(job.why, "checksum"));
    assert_true(sim_disk_hash(r.disk) == hash); /* nothing is left behind */
    sim_disk_rot(r.disk, path, 100, 4);
    size_t n;
    uint8_t *p = rig_copy(&r, path, &n);
    p[KW_BATCH_ATTRIBUTES + 1] |= KW_ATTR_TRANSACTIONAL;
    kw_batch_crc_set(p, (size_t)kw_batch_size_peek(p, n));
    sim_disk_poke(r.disk, path, p, n);
    free(p);
    prepare(0);
    kb_compact_job_run(&job, sim_disk_fs(r.disk));
    assert_int_equal(job.err, KW_EUNSUPPORTED);
    assert_non_null(strstr(job.why, "transaction"));
    rig_open(&r);
}

static void test_a_full_disk(void **state) {
    (void)state;
    fill(600, false);
    rig_stop(&r);
    uint64_t hash = sim_disk_hash(r.disk);
    for (int64_t at = 0; at < 40; at += 3) {
        prepare(0);
        sim_disk_faults(r.disk)->enospc_at = at;
        kb_compact_job_run(&job, sim_disk_fs(r.disk));
        bool done = job.err == KW_OK;
        sim_disk_faults(r.disk)->enospc_at = -1;
        if (done) break;
        assert_int_equal(job.err, KW_EIO);
        assert_true(sim_disk_hash(r.disk) == hash);
    }
    rig_open(&r);
}

/* Cut off at each call to the disk, with and without the power: afterwards the log is the old one, the new one, or in part each. */
static void test_a_crash_at_every_call(void **state) {
    (void)state;
    bool all[RECORDS], must[RECORDS];
    fill(500, true);
    rig_stop(&r);
    sim_disk_sync_all(r.disk);
    memset(all, 1, sizeof(all));
    struct sim_disk_image *image = sim_disk_image_take(r.disk);
    bool over = false;
    for (int64_t call = 0; !over; call++) {
        for (int power = 0; power < 2; power++) {
            sim_disk_image_restore(r.disk, image);
            image = sim_disk_image_take(r.disk);
            prepare(0);
            sim_disk_cut_job(r.disk, call);
            kb_compact_job_run(&job, sim_disk_fs(r.disk));
            if (!job.err) kb_compact_swap_run(&job, sim_disk_fs(r.disk));
            over = job.err == KW_OK;
            sim_disk_cut_job(r.disk, -1);
            job.cleaned_to = job.end;
            rig_kill(&r, power);
            rig_recover(&r, power ? 0 : r.recovery_point);
            assert_int_equal(r.log->leo, count);
            int64_t newest[KEYS] = {0};
            for (int64_t i = 0; i < count; i++)
                if (truth[i].key >= 0 && i < job.end) newest[truth[i].key] = i;
            for (int64_t i = 0; i < count; i++) must[i] = i >= job.end || (truth[i].key >= 0 && newest[truth[i].key] == i);
            compare(must, all);
            char **names;
            size_t n = sim_disk_names(r.disk, RIG_DIR, &names);
            for (size_t i = 0; i < n; i++) {
                if (strstr(names[i], ".cleaned") || strstr(names[i], ".swap")) fail_msg("call %lld: %s is left", (long long)call, names[i]);
                free(names[i]);
            }
            free(names);
            rig_drop(&r);
        }
        assert_true(call < 2000);
    }
    sim_disk_image_free(image);
    rig_open(&r);
}

int main(void) {
#define T(t) cmocka_unit_test_setup_teardown(t, setup, teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_map),
        T(test_what_stays),
        T(test_producers_last_batches),
        T(test_a_small_map),
        T(test_small_segments_become_one),
        T(test_rot_and_what_is_not_understood),
        T(test_a_full_disk),
        T(test_a_crash_at_every_call),
    };
    return cmocka_run_group_tests_name("compact", tests, NULL, NULL);
}
