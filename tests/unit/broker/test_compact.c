/* test_compact.c - compaction's two jobs on real segments: what stays of random logs (invariant 13), tombstones and their time (KIP-534),
 * producers' last batches, a map that is too small, logs that are not understood, and a crash at every call to the disk.
 */
#include "compact_rig.h"

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
    for (int full = 0; full < 2; full++) { /* it grows as keys come */
        assert_int_equal(kb_compact_map_init(&m, full ? 24 << 15 : 24 << 20, seed), KW_OK);
        uint32_t n = 0;
        for (; n < 100000; n++) {
            kw_err err = kb_compact_map_put(&m, (struct kw_bytes){(const uint8_t *)&n, 4}, n);
            if (err == KW_ELIMIT && full) break;
            assert_int_equal(err, KW_OK);
            if (n % 1000 < 3 || n + 1 == m.cap - m.cap / 4) /* at each growth, too */
                for (uint32_t i = 0; i <= n; i += 1 + n / 3000) assert_int_equal(kb_compact_map_get(&m, (struct kw_bytes){(const uint8_t *)&i, 4}), i);
        }
        for (uint32_t i = 0; i < n + 1000; i++)
            assert_int_equal(kb_compact_map_get(&m, (struct kw_bytes){(const uint8_t *)&i, 4}), i < n ? (int64_t)i : -1);
        assert_true(full ? m.count == m.count_max && m.cap == 1 << 15 : m.cap == 1 << 18);
        kb_compact_map_deinit(&m);
    }
    /* The reference vector of SipHash-2-4-128 for the empty string under the key 00 01 02 … 0f. */
    const uint64_t k[2] = {0x0706050403020100, 0x0f0e0d0c0b0a0908};
    assert_int_equal(kb_compact_map_init(&m, 0, k), KW_OK);
    assert_int_equal(kb_compact_map_put(&m, (struct kw_bytes){(const uint8_t *)"", 0}, 7), KW_OK);
    bool found = false;
    for (size_t i = 0; i < m.cap; i++)
        if (m.slots[i].next == 8) found = m.slots[i].hash[0] == 0xe6a825ba047f81a3 && m.slots[i].hash[1] == 0x930255c71472f66d;
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
    assert_true(job.result_count < before / 3); /* by what is left of them, not by what they were */
    for (size_t i = 0; i < job.result_count; i++) assert_true(job.results[i].facts.size <= 3000);
    rig_open(&r);
    assert_int_equal(r.log->start, 0);
    assert_int_equal(r.log->leo, count);
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
            if (!job.err) put_in_place();
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
