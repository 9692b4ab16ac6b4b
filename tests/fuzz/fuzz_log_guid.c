/* fuzz_log_guid.c - the files of a GUID index made of the input: manifests, and runs as they are or with their checksums mended, so that what lies behind
 * those is reached.
 *
 * Whatever lies there: it is refused, or all that is asked of it stays inside of it; a manifest that is taken encodes to the same bytes; a run that was
 * written and not touched gives back each of its ids.
 */
#include "kit/gen.h"

#include "base/crc32c.h"
#include "guid/manifest.h"
#include "guid/merge.h"
#include "unit/broker/log_rig.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
extern const size_t fuzz_head_size;
const size_t fuzz_head_size = 2;

enum { AS_MANIFEST = 1, MENDED = 2, ENTRIES_MAX = 1200 };
static const uint64_t key[2] = {5, 6};

static void take_manifest(const uint8_t *data, size_t size, bool mend) {
    static struct kb_manifest m;
    uint8_t *p = kw_malloc(size + 1);
    struct kw_out out;
    FUZZ_CHECK(p, "no memory");
    if (size > 0) memcpy(p, data, size);
    if (mend && size >= 12) {
        memcpy(p, "KBGUIDM1", 8);
        kw_store32(p + size - 4, kw_crc32c(0, p, size - 4));
    }
    kw_out_init(&out);
    if (kb_manifest_decode(&m, p, size) == KW_OK) {
        FUZZ_CHECK(m.count <= KB_MANIFEST_RUNS_MAX, "%zu runs", m.count);
        FUZZ_CHECK(kb_manifest_encode(&m, &out) == KW_OK && out.len == size && memcmp(out.p, p, size) == 0, "it encodes to something else");
    }
    kw_out_deinit(&out);
    kw_free(p);
}

/* Everything that an index asks of a run whose tail it took. */
static void ask(const uint8_t *file, const struct kb_run_facts *f, const struct kb_run_tail *t, uint64_t salt) {
    struct kb_guid_entry e;
    FUZZ_CHECK((int64_t)f->pages * KB_RUN_PAGE <= f->size, "%u pages in %lld bytes", f->pages, (long long)f->size);
    for (uint64_t i = 0; i < 64; i++) {
        uint64_t hash = i < 4 ? (i & 1 ? UINT64_MAX : 0) + (i >> 1) : kb_fuse_mix(salt + i);
        size_t block = kb_run_block(f, t, hash);
        FUZZ_CHECK(block < f->blocks, "block %zu of %u", block, f->blocks);
        (void)kb_fuse_has(&t->filters[block], hash);
        uint32_t page = kb_run_page_of(f, t, block, hash);
        FUZZ_CHECK(page < f->pages, "page %u of %u", page, f->pages);
        const uint8_t *p = file + (size_t)page * KB_RUN_PAGE;
        if (kb_run_page_check(p, f->seq, page) != KW_OK) continue;
        (void)kb_run_page_find(p, (const uint8_t *)"0123456789abcdef", f->base, 0, INT64_MAX, &e);
        for (size_t k = 0; k < kb_run_page_count(p); k++) kb_run_page_entry(p, k, f->base, &e);
    }
}

/* Sets the two checksums that its reader looks at before anything else. */
static void mend_run(uint8_t *p, size_t n) {
    if (n < KB_RUN_FOOTER) return;
    uint8_t *foot = p + n - KB_RUN_FOOTER;
    uint64_t tail = kw_load64(foot + 104);
    memcpy(foot, "KBGUIDR1", 8);
    if (tail <= n - KB_RUN_FOOTER) kw_store32(foot + 100, kw_crc32c(0, foot - tail, (size_t)tail));
    kw_store32(foot + KB_RUN_FOOTER - 4, kw_crc32c(0, foot, KB_RUN_FOOTER - 4));
}

static void take_run(const uint8_t *p, size_t n, uint64_t salt) {
    struct kb_run_facts f;
    struct kb_run_tail t;
    size_t tail;
    uint32_t crc;
    if (n < KB_RUN_FOOTER || kb_run_footer_parse(p + n - KB_RUN_FOOTER, (int64_t)n, &f, &tail, &crc) != KW_OK) return;
    uint8_t *bytes = kw_malloc(tail + 1);
    FUZZ_CHECK(bytes, "no memory");
    memcpy(bytes, p + (size_t)f.pages * KB_RUN_PAGE, tail);
    if (kb_run_tail_parse(&f, crc, bytes, tail, &t) != KW_OK) {
        kw_free(bytes);
        return;
    }
    ask(p, &f, &t, salt);
    kb_run_tail_deinit(&t);
}

/* A run of as many ids as the input says, written as an index does. */
static void make_run(struct rig *r, struct fuzz_src *s, bool touched, bool mend) {
    struct kb_guid_table t;
    struct kb_guid_job j = {.make_dir = true, .key = {key[0], key[1]}, .rotten = -1};
    size_t count = 1 + fuzz_bytes(s, 2) % ENTRIES_MAX, n;
    uint8_t spread = fuzz_u8(s);
    FUZZ_CHECK(kb_guid_table_init(&t, key, 7, count) == KW_OK, "no memory");
    for (size_t i = 0; i < count; i++) {
        struct kb_guid_entry e = {.offset = 7 + (int64_t)i * (1 + spread % 3), .payload = (uint32_t)i};
        kw_store64(e.id, spread & 8 ? i % (spread + 1u) : kb_fuse_mix(i + spread));
        FUZZ_CHECK(kb_guid_table_add(&t, &e, 1) == KW_OK, "no memory");
    }
    j.log_dir = kw_memdup(RIG_DIR, sizeof(RIG_DIR));
    j.dir = kw_memdup(RIG_DIR "/guid", sizeof(RIG_DIR "/guid"));
    j.path = kw_memdup(RIG_DIR "/guid/1.run", sizeof(RIG_DIR "/guid/1.run"));
    j.table = &t;
    j.count = count;
    j.facts = (struct kb_run_facts){.seq = 1, .base = 7, .end = t.end};
    kb_guid_flush_run(&j, sim_disk_fs(r->disk));
    FUZZ_CHECK(j.err == KW_OK, "a run cannot be written (%d)", j.err);
    uint8_t *copy = rig_copy(r, j.path, &n), *p = malloc(n + 16); /* an edit may make it longer */
    memcpy(p, copy, n);
    free(copy);
    if (!touched) {
        for (size_t i = 0; i < count; i++) {
            struct kb_guid_entry e, want;
            uint64_t hash = kb_guid_hash(key, t.v[i].id);
            size_t block = kb_run_block(&j.facts, &j.tail, hash);
            uint32_t page = kb_run_page_of(&j.facts, &j.tail, block, hash);
            FUZZ_CHECK(kb_guid_table_find(&t, t.v[i].id, hash, 0, INT64_MAX, &want), "an id is not in its table");
            FUZZ_CHECK(kb_fuse_has(&j.tail.filters[block], hash) && kb_run_page_check(p + (size_t)page * KB_RUN_PAGE, 1, page) == KW_OK &&
                           kb_run_page_find(p + (size_t)page * KB_RUN_PAGE, t.v[i].id, 7, 0, INT64_MAX, &e) && e.offset == want.offset,
                       "an id is not in its run");
        }
    } else {
        uint8_t *head = p + (n - KW_MIN(n, (size_t)4000)), *end = p + n; /* what is read first */
        size_t left = (size_t)(end - head), now = fuzz_edit(s, head, left);
        n -= left - KW_MIN(now, left);
        if (mend) mend_run(p, n);
    }
    take_run(p, n, spread);
    free(p);
    kb_guid_job_deinit(&j);
    kb_guid_table_deinit(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct rig r;
    const struct sim_disk_options fast = {.inline_ppm = 1000000};
    struct fuzz_src input = {data, data + size};
    uint8_t options = fuzz_u8(&input), what = fuzz_u8(&input);
    setenv("CMOCKA_TEST_ABORT", "1", 1);
    if (options & AS_MANIFEST) {
        take_manifest(input.p, fuzz_left(&input), options & MENDED);
        return 0;
    }
    if (what & 1) { /* the input is the file */
        size_t n = fuzz_left(&input);
        uint8_t *p = kw_malloc(n + 1);
        FUZZ_CHECK(p, "no memory");
        if (n > 0) memcpy(p, input.p, n);
        if (options & MENDED) mend_run(p, n);
        take_run(p, n, what);
        kw_free(p);
        return 0;
    }
    rig_init(&r, 5, &fast);
    sim_disk_poke(r.disk, RIG_DIR "/.keep", "", 0);
    make_run(&r, &input, what & 2, options & MENDED);
    rig_deinit(&r);
    return 0;
}
