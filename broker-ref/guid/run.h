/* run.h - a run: the ids of a range of offsets in one file, sorted by their hash, with what is needed to read one page for one id.
 *
 *   page      4096 bytes: up to 170 entries of 24 (id, offset above the run's base, payload checksum), then the page's number, how many, and the
 *             CRC-32C of all that, the run's number and the page's; entries of one hash lie in one page
 *   tail      the first hash of each page; then of each block of 96 pages its filter (seed, segments), then the filters' bits. In memory, too
 *   footer    160 bytes: range, counts, lowest and highest id, times, leader epoch of the last offset, CRC of the tail, CRC of the footer
 *
 * All numbers are big-endian. 26 bytes an id, of which under 2 are in memory. Called by merge (writes), manifest's reader and index (load), find (pages).
 * A writer is given ids in the order of kb_guid_run_order; of those that come more than twice it keeps the first and the last.
 */
#ifndef KB_GUID_RUN_H
#define KB_GUID_RUN_H

#include "base/buf.h"
#include "event.h"
#include "fuse.h"
#include "hash.h"
#include "index.h"

enum {
    KB_RUN_PAGE = 4096,
    KB_RUN_ENTRY = 24,
    KB_RUN_PAGE_ENTRIES = 170,
    KB_RUN_BLOCK_PAGES = 96, /* 16320 entries: what their filter is made in stays in the second cache */
    KB_RUN_FOOTER = 160,
    KB_RUN_BLOCK_HEAD = 16, /* of a filter in the tail */
};
#define KB_RUN_PAGES_MAX ((uint32_t)1 << 25) /* 137 GB; more than 2^32 offsets can fill */

struct kb_run_facts {
    uint64_t seq; /* its name */
    int64_t base, end;
    int64_t entries, size; /* size: of the file */
    uint32_t pages, blocks;
    uint8_t min[KB_GUID_SIZE], max[KB_GUID_SIZE];
    int64_t oldest_wall_ms, newest_wall_ms;
    int32_t epoch; /* of the record at end - 1; -1: unknown */
};
struct kb_run_tail {
    uint8_t *bytes, *bits;   /* kw_malloc; bits: of the filters, where these are not behind the rest in bytes */
    size_t size;             /* of both */
    struct kb_fuse *filters; /* one a block; kw_malloc */
};
static inline size_t kb_run_blocks(uint32_t pages) { return ((size_t)pages + KB_RUN_BLOCK_PAGES - 1) / KB_RUN_BLOCK_PAGES; }
static inline uint64_t kb_run_first(const struct kb_run_tail *t, size_t page) { return kw_load64(t->bytes + 8 * page); }
void kb_run_tail_deinit(struct kb_run_tail *t);
static inline int64_t kb_run_tail_memory(const struct kb_run_facts *f, const struct kb_run_tail *t) {
    return (int64_t)(t->size + f->blocks * sizeof(*t->filters));
}

/* What a file's last bytes say. KW_EDECODE, KW_ECRC; *f is untouched then. */
kw_err kb_run_footer_parse(const uint8_t *p, int64_t file_size, struct kb_run_facts *f, size_t *tail_size, uint32_t *tail_crc) KW_CHECK;
/* Takes the bytes (kw_malloc) over when it succeeds. KW_ECRC, KW_EDECODE, KW_ENOMEM. */
kw_err kb_run_tail_parse(const struct kb_run_facts *f, uint32_t crc, uint8_t *bytes, size_t size, struct kb_run_tail *t) KW_CHECK;
/* The same, of what was checked, or made just now; bits, if not NULL, apart from the rest. */
kw_err kb_run_tail_take(const struct kb_run_facts *f, uint8_t *bytes, uint8_t *bits, size_t bit_size, struct kb_run_tail *t) KW_CHECK;
/* Opens, reads and closes. KW_EIO, or as above. */
kw_err kb_run_load(struct kb_fs *fs, const char *path, uint64_t seq, struct kb_run_facts *f, struct kb_run_tail *t) KW_CHECK;

/* The page that may have an id of this hash; false: none has. The one of the filter is asked for ahead with touch. */
static inline size_t kb_run_block(const struct kb_run_facts *f, const struct kb_run_tail *t, uint64_t hash) {
    size_t b = (size_t)((unsigned __int128)hash * f->blocks >> 64); /* hashes are spread evenly, so it is near */
    while (b > 0 && kb_run_first(t, b * KB_RUN_BLOCK_PAGES) > hash) b--;
    while (b + 1 < f->blocks && kb_run_first(t, (b + 1) * KB_RUN_BLOCK_PAGES) <= hash) b++;
    return b;
}
uint32_t kb_run_page_of(const struct kb_run_facts *f, const struct kb_run_tail *t, size_t block, uint64_t hash);

/* Of a page as it was read: KW_OK, KW_ECRC. */
kw_err kb_run_page_check(const uint8_t page[KB_RUN_PAGE], uint64_t seq, uint32_t number) KW_CHECK;
static inline size_t kb_run_page_count(const uint8_t *page) { return KW_MIN((size_t)kw_load16(page + 4084), (size_t)KB_RUN_PAGE_ENTRIES); }
static inline void kb_run_page_entry(const uint8_t *page, size_t i, int64_t base, struct kb_guid_entry *e) {
    const uint8_t *p = page + i * KB_RUN_ENTRY;
    memcpy(e->id, p, KB_GUID_SIZE);
    e->offset = base + kw_load32(p + 16);
    e->payload = kw_load32(p + 20);
}
/* The lowest copy in [from, to). */
bool kb_run_page_find(const uint8_t *page, const uint8_t id[KB_GUID_SIZE], int64_t base, int64_t from, int64_t to, struct kb_guid_entry *out);

/* ---- Writing ---- */

struct kb_run_sort { /* by hash, then id, then offset */
    uint64_t hash;
    struct kb_guid_entry e;
};
static inline int kb_run_order(uint64_t ah, const uint8_t *a, int64_t ao, uint64_t bh, const uint8_t *b, int64_t bo) {
    if (ah != bh) return ah < bh ? -1 : 1;
    int x = memcmp(a, b, KB_GUID_SIZE);
    return x ? x : (ao > bo) - (ao < bo);
}
struct kb_run_writer {
    struct kb_fs *fs;
    void *file;
    struct kb_run_facts facts; /* seq, base, end, times, epoch are the caller's */
    struct kw_out out;         /* pages not yet written */
    int64_t written;           /* bytes of the file */
    uint8_t page[KB_RUN_PAGE];
    size_t count, group;       /* entries in the page; where the last hash began */
    uint64_t hash;             /* of the last entry */
    int copies;                /* of its id, so far */
    struct kw_out firsts, heads, bits;
    struct kb_fuse_maker maker;
    uint64_t *keys; /* of the block */
    size_t key_count;
    uint64_t seed;
    bool sync;
};
kw_err kb_run_writer_begin(struct kb_run_writer *w, struct kb_fs *fs, const char *path, bool sync, uint64_t seed) KW_CHECK;
kw_err kb_run_writer_add(struct kb_run_writer *w, uint64_t hash, const struct kb_guid_entry *e) KW_CHECK;
/* Tail and footer, synced; w->facts is complete, and *t what kb_run_load would give. Without an entry: KW_EINVAL. */
kw_err kb_run_writer_end(struct kb_run_writer *w, struct kb_run_tail *t) KW_CHECK;
void kb_run_writer_deinit(struct kb_run_writer *w); /* closes; the file stays as it is */

#endif
