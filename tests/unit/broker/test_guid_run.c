/* test_guid_run.c - run files: what a job writes is found by its pages and filters, merged runs have what their inputs had, damage anywhere is found out,
 * a crash at any call leaves no half of a file under its name; manifests; sizes and times (printed, not judged).
 */
#include "log_rig.h"

#include <time.h>

#include "base/rng.h"
#include "guid/manifest.h"
#include "guid/merge.h"

#define DIR RIG_DIR "/guid"
static const uint64_t key[2] = {0x1234567890abcdef, 42};

static struct rig r;
static struct kw_rng rng;

static int setup(void **state) {
    (void)state;
    rig_init(&r, 5, NULL);
    sim_disk_poke(r.disk, RIG_DIR "/.keep", "", 0);
    kw_rng_init(&rng, 77);
    return 0;
}
static int teardown(void **state) {
    (void)state;
    rig_deinit(&r);
    return 0;
}

static char *text(const char *fmt, unsigned long long n) {
    char *p = kw_malloc(100);
    snprintf(p, 100, fmt, n);
    return p;
}

static struct kb_guid_job *job_new(uint64_t seq, int64_t base, int64_t end) {
    struct kb_guid_job *j = kw_calloc(1, sizeof(*j));
    j->path = text(DIR "/%016llx.run", seq);
    j->dir = text(DIR, 0);
    j->log_dir = text(RIG_DIR, 0);
    j->make_dir = j->sync = true;
    j->key[0] = key[0];
    j->key[1] = key[1];
    j->seed = seq;
    j->facts = (struct kb_run_facts){.seq = seq, .base = base, .end = end, .oldest_wall_ms = 10, .newest_wall_ms = 20, .epoch = 3};
    return j;
}
static void job_free(struct kb_guid_job *j) {
    kb_guid_job_deinit(j);
    kw_free(j);
}

/* A table of n ids drawn from so many (0: all different). */
static void fill(struct kb_guid_table *t, int64_t base, size_t n, uint64_t ids) {
    assert_int_equal(kb_guid_table_init(t, key, base, n), KW_OK);
    for (size_t i = 0; i < n; i++) {
        struct kb_guid_entry e = {.offset = base + (int64_t)i * 2, .payload = (uint32_t)i};
        kw_store64(e.id, ids ? kw_rng_below(&rng, ids) * 0x9e3779b97f4a7c15 : kw_rng_next(&rng));
        kw_store64(e.id + 8, ids ? 0 : kw_rng_next(&rng));
        assert_int_equal(kb_guid_table_add(t, &e, 1), KW_OK);
        t->end = e.offset + 2;
    }
}
static struct kb_guid_job *flush(struct kb_guid_table *t, uint64_t seq) {
    struct kb_guid_job *j = job_new(seq, t->base, t->end);
    j->table = t;
    j->count = t->count;
    kb_guid_flush_run(j, sim_disk_fs(r.disk));
    return j;
}

static bool find(const char *path, const struct kb_run_facts *f, const struct kb_run_tail *t, const uint8_t *id, int64_t from, int64_t to,
                 struct kb_guid_entry *out, bool *read) {
    size_t n;
    const uint8_t *file = sim_disk_peek(r.disk, path, &n);
    uint64_t hash = kb_guid_hash(key, id);
    size_t block = kb_run_block(f, t, hash);
    *read = kb_fuse_has(&t->filters[block], hash);
    if (!*read) return false;
    uint32_t page = kb_run_page_of(f, t, block, hash);
    assert_int_equal(kb_run_page_check(file + (size_t)page * KB_RUN_PAGE, f->seq, page), KW_OK);
    return kb_run_page_find(file + (size_t)page * KB_RUN_PAGE, id, f->base, from, to, out);
}

/* As it was read, and as it was left in memory by who wrote it. */
static void assert_same_tail(const struct kb_run_facts *f, const struct kb_run_tail *a, const struct kb_run_tail *b) {
    assert_int_equal(a->size, b->size);
    assert_memory_equal(a->bytes, b->bytes, (size_t)f->pages * 8 + (size_t)f->blocks * KB_RUN_BLOCK_HEAD);
    for (size_t i = 0; i < f->blocks; i++) {
        assert_int_equal(a->filters[i].seed, b->filters[i].seed);
        assert_int_equal(a->filters[i].segments, b->filters[i].segments);
        assert_int_equal(a->filters[i].segment_log2, b->filters[i].segment_log2);
        assert_memory_equal(a->filters[i].bits, b->filters[i].bits, kb_fuse_size(&a->filters[i]));
    }
}

static void test_what_was_written_is_found(void **state) {
    (void)state;
    static const size_t sizes[] = {1, 2, 169, 170, 171, 341, 5000, 16319, 16320, 16321, 65450, 140000};
    for (size_t k = 0; k < KW_COUNTOF(sizes); k++)
        for (int repeats = 0; repeats < 2; repeats++) {
            struct kb_guid_table t;
            struct kb_run_facts f;
            struct kb_run_tail tail;
            struct kb_guid_entry e;
            bool read;
            fill(&t, 1000, sizes[k], repeats ? sizes[k] / 3 + 1 : 0);
            struct kb_guid_job *j = flush(&t, k + 1);
            assert_int_equal(j->err, KW_OK);
            assert_int_equal(kb_run_load(sim_disk_fs(r.disk), j->path, k + 1, &f, &tail), KW_OK);
            assert_memory_equal(&f, &j->facts, sizeof(f));
            assert_same_tail(&f, &tail, &j->tail);
            assert_int_equal(kb_run_load(sim_disk_fs(r.disk), j->path, k + 2, &f, &tail), KW_EDECODE);
            int64_t start = 1000 + (int64_t)sizes[k] / 2;
            for (size_t i = 0; i < sizes[k]; i += 1 + sizes[k] / 3000) {
                assert_true(find(j->path, &f, &tail, t.v[i].id, 0, INT64_MAX, &e, &read)); /* the lowest copy */
                struct kb_guid_entry want;
                assert_true(kb_guid_table_find(&t, t.v[i].id, kb_guid_hash(key, t.v[i].id), 0, INT64_MAX, &want));
                assert_int_equal(e.offset, want.offset);
                assert_int_equal(e.payload, want.payload);
            }
            for (size_t i = 0; i < sizes[k]; i += 1 + sizes[k] / 3000) { /* and one from the log's start on, where there is one */
                struct kb_guid_entry want;
                bool there = kb_guid_table_find(&t, t.v[i].id, kb_guid_hash(key, t.v[i].id), start, INT64_MAX, &want);
                assert_int_equal(find(j->path, &f, &tail, t.v[i].id, start, INT64_MAX, &e, &read), there);
            }
            size_t reads = 0;
            for (int i = 0; i < 20000; i++) {
                uint8_t id[16];
                kw_store64(id, kw_rng_next(&rng));
                kw_store64(id + 8, kw_rng_next(&rng) | 1);
                assert_false(find(j->path, &f, &tail, id, 0, INT64_MAX, &e, &read));
                reads += read;
            }
            assert_true(reads < 30);
            if (sizes[k] > 100000 && !repeats)
                print_message("run: %.2f bytes an id on disk, %.2f in memory\n", (double)f.size / (double)f.entries,
                              (double)kb_run_tail_memory(&f, &tail) / (double)f.entries);
            kb_run_tail_deinit(&tail);
            kb_guid_table_deinit(&t);
            job_free(j);
        }
}

static void merge_input(struct kb_guid_job *m, const struct kb_guid_job *from, int64_t valid_to) {
    struct kb_merge_input *in = &m->inputs[m->input_count++];
    in->path = kw_memdup(from->path, strlen(from->path) + 1);
    in->facts = from->facts;
    in->valid_to = valid_to;
}

static void test_merged(void **state) {
    (void)state;
    for (int round = 0; round < 12; round++) {
        struct kb_guid_table t[4];
        struct kb_guid_job *in[4];
        int64_t base = 100;
        size_t n = round % 3 == 0 ? 30000 : 1 + (size_t)kw_rng_below(&rng, 2000);
        for (int i = 0; i < 4; i++, base = t[i - 1].end) {
            fill(&t[i], base, n, round % 2 ? n / 2 + 1 : 0);
            in[i] = flush(&t[i], (uint64_t)i + 1);
            assert_int_equal(in[i]->err, KW_OK);
        }
        int64_t masked = t[1].base + (int64_t)kw_rng_below(&rng, n * 2 + 1), start = round % 4 == 3 ? t[0].base + (int64_t)n : 0;
        struct kb_guid_job *m = job_new(9, 100, base);
        for (int i = 0; i < 4; i++) merge_input(m, in[i], i == 1 ? masked : in[i]->facts.end);
        m->from = start;
        kb_guid_merge_run(m, sim_disk_fs(r.disk));
        assert_int_equal(m->err, KW_OK);
        size_t lost = 0;
        for (int i = 0; i < 4; i++)
            for (size_t k = 0; k < n; k += 1 + n / 2000) {
                struct kb_guid_entry want = {.offset = INT64_MAX}, e;
                bool read, there = false;
                for (int x = 0; x < 4; x++) {
                    int64_t to = x == 1 ? masked : INT64_MAX;
                    if (!kb_guid_table_find(&t[x], t[i].v[k].id, kb_guid_hash(key, t[i].v[k].id), start, to, &e)) continue;
                    if (e.offset < want.offset) want = e;
                    there = true;
                }
                bool found = find(m->path, &m->facts, &m->tail, t[i].v[k].id, start, INT64_MAX, &e, &read);
                if (round % 4 != 3) { /* else of those that came more than twice a later copy may be what is left, or none below the mask */
                    assert_int_equal(found, there);
                    if (there) assert_int_equal(e.offset, want.offset);
                } else {
                    assert_true(!found || (there && e.offset >= want.offset));
                    lost += there && !found;
                }
            }
        assert_true(lost <= n / 50);
        for (int i = 0; i < 4; i++) job_free(in[i]);
        for (int i = 0; i < 4; i++) kb_guid_table_deinit(&t[i]);
        job_free(m);
    }
}

static void test_nothing_left(void **state) {
    (void)state;
    struct kb_guid_table t;
    fill(&t, 0, 10, 0);
    struct kb_guid_job *a = flush(&t, 1), *m = job_new(2, 0, 20);
    merge_input(m, a, 0);
    kb_guid_merge_run(m, sim_disk_fs(r.disk));
    assert_int_equal(m->err, KW_EINVAL);
    assert_false(rig_exists(&r, m->path));
    atomic_store(&m->stop, true);
    kb_guid_merge_run(m, sim_disk_fs(r.disk));
    assert_int_equal(m->err, KW_EBUSY);
    assert_int_equal(m->rotten, -1);
    job_free(a);
    job_free(m);
    kb_guid_table_deinit(&t);
}

static void test_rot(void **state) { /* any byte of it */
    (void)state;
    struct kb_guid_table t;
    fill(&t, 0, 700, 0);
    struct kb_guid_job *j = flush(&t, 1), *m;
    size_t size = rig_size(&r, j->path);
    for (size_t at = 0; at < size; at += 1 + kw_rng_below(&rng, 9)) {
        struct kb_run_facts f;
        struct kb_run_tail tail = {0};
        sim_disk_rot(r.disk, j->path, at, (uint8_t)(1 + kw_rng_below(&rng, 255)));
        kw_err err = kb_run_load(sim_disk_fs(r.disk), j->path, 1, &f, &tail);
        if (at >= (size_t)j->facts.pages * KB_RUN_PAGE) {
            assert_true(err == KW_ECRC || err == KW_EDECODE);
        } else {
            size_t n;
            assert_int_equal(err, KW_OK);
            assert_int_equal(kb_run_page_check(sim_disk_peek(r.disk, j->path, &n) + at / KB_RUN_PAGE * KB_RUN_PAGE, 1, (uint32_t)(at / KB_RUN_PAGE)), KW_ECRC);
            kb_run_tail_deinit(&tail);
            m = job_new(2, 0, 1400);
            merge_input(m, j, 1400);
            kb_guid_merge_run(m, sim_disk_fs(r.disk));
            assert_int_equal(m->err, KW_ECRC);
            assert_int_equal(m->rotten, 0);
            assert_false(rig_exists(&r, m->path));
            job_free(m);
        }
        job_free(j);
        j = flush(&t, 1);
        assert_int_equal(j->err, KW_OK);
    }
    size_t n;
    const uint8_t *p = sim_disk_peek(r.disk, j->path, &n);
    assert_int_equal(kb_run_page_check(p, 1, 1), KW_ECRC); /* another page, another run */
    assert_int_equal(kb_run_page_check(p, 2, 0), KW_ECRC);
    for (size_t cut = size; cut > 0;) {
        struct kb_run_facts f;
        struct kb_run_tail tail = {0};
        cut -= KW_MIN(cut, 1 + kw_rng_below(&rng, 400));
        sim_disk_cut(r.disk, j->path, cut);
        assert_int_not_equal(kb_run_load(sim_disk_fs(r.disk), j->path, 1, &f, &tail), KW_OK);
    }
    job_free(j);
    kb_guid_table_deinit(&t);
}

static void test_a_crash_at_every_call(void **state) {
    (void)state;
    struct kb_guid_table t;
    fill(&t, 0, 3000, 0);
    bool done = false;
    for (int64_t call = 0; !done; call++)
        for (int power = 0; power < 2; power++) {
            struct kb_run_facts f;
            struct kb_run_tail tail = {0};
            sim_disk_poke(r.disk, DIR "/x", "", 0);
            sim_disk_remove(r.disk, DIR);
            sim_disk_sync_all(r.disk);
            sim_disk_cut_job(r.disk, call);
            struct kb_guid_job *j = flush(&t, 1);
            sim_disk_cut_job(r.disk, -1);
            done = j->err == KW_OK;
            rig_kill(&r, power);
            if (rig_exists(&r, j->path)) {
                assert_int_equal(kb_run_load(sim_disk_fs(r.disk), j->path, 1, &f, &tail), KW_OK);
                kb_run_tail_deinit(&tail);
            } else {
                assert_false(done);
            }
            job_free(j);
        }
    kb_guid_table_deinit(&t);
}

static void test_a_full_disk_and_no_memory(void **state) {
    (void)state;
    struct kb_guid_table t;
    fill(&t, 0, 3000, 0);
    for (int memory = 0; memory < 2; memory++)
        for (int64_t at = 0;; at++) {
            assert_true(at < 300);
            if (!memory) sim_disk_faults(r.disk)->enospc_at = at;
            struct kb_guid_job *j = job_new(1, 0, 6000);
            j->table = &t;
            j->count = t.count;
            if (memory) kw_alloc_fail_after(at);
            kb_guid_flush_run(j, sim_disk_fs(r.disk));
            kw_alloc_fail_after(-1);
            sim_disk_faults(r.disk)->enospc_at = -1;
            bool done = j->err == KW_OK;
            if (!done) {
                assert_true(j->err == (memory ? KW_ENOMEM : KW_EIO));
                assert_false(rig_exists(&r, j->path));
            }
            job_free(j);
            sim_disk_poke(r.disk, DIR "/x", "", 0);
            sim_disk_remove(r.disk, DIR);
            if (done) break;
        }
    kb_guid_table_deinit(&t);
}

static void test_manifest(void **state) {
    (void)state;
    struct kb_manifest m, n;
    memset(&m, 0, sizeof(m));
    memset(&n, 0, sizeof(n));
    m = (struct kb_manifest){.key = {1, 2}, .next_seq = 1000, .end = 1 << 20, .end_epoch = 7};
    struct kw_out out;
    kw_out_init(&out);
    for (size_t i = 0; i < KB_MANIFEST_RUNS_MAX; i++)
        m.runs[m.count++] = (struct kb_manifest_run){999 - i, (int64_t)i * 10, (int64_t)i * 10 + 7, (int32_t)i};
    assert_int_equal(kb_manifest_encode(&m, &out), KW_OK);
    assert_int_equal(out.len, KB_MANIFEST_SIZE_MAX);
    assert_int_equal(kb_manifest_decode(&n, out.p, out.len), KW_OK);
    assert_int_equal(n.count, m.count);
    assert_true(n.end == m.end && n.end_epoch == 7 && n.next_seq == 1000 && n.key[0] == 1 && n.key[1] == 2);
    for (size_t i = 0; i < m.count; i++)
        assert_true(n.runs[i].seq == m.runs[i].seq && n.runs[i].base == m.runs[i].base && n.runs[i].valid_to == m.runs[i].valid_to &&
                    n.runs[i].epoch == m.runs[i].epoch);
    for (size_t i = 0; i < out.len; i++) assert_int_not_equal(kb_manifest_decode(&n, out.p, i), KW_OK);
    for (size_t i = 0; i < out.len; i++) {
        out.p[i] ^= 0x10;
        assert_int_not_equal(kb_manifest_decode(&n, out.p, out.len), KW_OK);
        out.p[i] ^= 0x10;
    }
    for (int what = 0; what < 5; what++) { /* what no index writes */
        struct kb_manifest bad = m;
        if (what == 0) bad.runs[3].seq = bad.runs[4].seq;
        if (what == 1) bad.runs[3].base = bad.runs[2].valid_to - 1;
        if (what == 2) bad.runs[3].valid_to = bad.runs[3].base;
        if (what == 3) bad.next_seq = 999;
        if (what == 4) bad.end = 5;
        kw_out_reset(&out);
        assert_int_equal(kb_manifest_encode(&bad, &out), KW_OK);
        assert_int_equal(kb_manifest_decode(&n, out.p, out.len), KW_EDECODE);
    }
    kw_out_deinit(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_what_was_written_is_found, setup, teardown), cmocka_unit_test_setup_teardown(test_merged, setup, teardown),
        cmocka_unit_test_setup_teardown(test_nothing_left, setup, teardown), cmocka_unit_test_setup_teardown(test_rot, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_crash_at_every_call, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_full_disk_and_no_memory, setup, teardown), cmocka_unit_test(test_manifest)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
