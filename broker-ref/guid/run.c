/* run.c - run files, read. Contract and format: run.h. */
#include "run.h"

#include "base/crc32c.h"

#define TAIL_READ ((size_t)1 << 20)

static const uint8_t magic[8] = {'K', 'B', 'G', 'U', 'I', 'D', 'R', '1'};

void kb_run_tail_deinit(struct kb_run_tail *t) {
    kw_free(t->bytes);
    kw_free(t->bits);
    kw_free(t->filters);
    *t = (struct kb_run_tail){0};
}

/* ---- Footer ---- */

enum { AT_SEQ = 8, AT_BASE = 16, AT_END = 24, AT_ENTRIES = 32, AT_PAGES = 40, AT_BLOCKS = 44, AT_MIN = 48, AT_MAX = 64, AT_OLDEST = 80, AT_NEWEST = 88,
       AT_EPOCH = 96, AT_TAIL_CRC = 100, AT_TAIL_SIZE = 104, AT_CRC = KB_RUN_FOOTER - 4 };

void kb_run_footer_write(uint8_t *p, const struct kb_run_facts *f, size_t tail_size, uint32_t tail_crc);
void kb_run_footer_write(uint8_t *p, const struct kb_run_facts *f, size_t tail_size, uint32_t tail_crc) {
    memset(p, 0, KB_RUN_FOOTER);
    memcpy(p, magic, sizeof(magic));
    kw_store64(p + AT_SEQ, f->seq);
    kw_store64(p + AT_BASE, (uint64_t)f->base);
    kw_store64(p + AT_END, (uint64_t)f->end);
    kw_store64(p + AT_ENTRIES, (uint64_t)f->entries);
    kw_store32(p + AT_PAGES, f->pages);
    kw_store32(p + AT_BLOCKS, f->blocks);
    memcpy(p + AT_MIN, f->min, KB_GUID_SIZE);
    memcpy(p + AT_MAX, f->max, KB_GUID_SIZE);
    kw_store64(p + AT_OLDEST, (uint64_t)f->oldest_wall_ms);
    kw_store64(p + AT_NEWEST, (uint64_t)f->newest_wall_ms);
    kw_store32(p + AT_EPOCH, (uint32_t)f->epoch);
    kw_store32(p + AT_TAIL_CRC, tail_crc);
    kw_store64(p + AT_TAIL_SIZE, tail_size);
    kw_store32(p + AT_CRC, kw_crc32c(0, p, AT_CRC));
}

kw_err kb_run_footer_parse(const uint8_t *p, int64_t file_size, struct kb_run_facts *f, size_t *tail_size, uint32_t *tail_crc) {
    if (memcmp(p, magic, sizeof(magic)) != 0) return KW_EDECODE;
    if (kw_crc32c(0, p, AT_CRC) != kw_load32(p + AT_CRC)) return KW_ECRC;
    struct kb_run_facts g = {.seq = kw_load64(p + AT_SEQ),
                             .base = (int64_t)kw_load64(p + AT_BASE),
                             .end = (int64_t)kw_load64(p + AT_END),
                             .entries = (int64_t)kw_load64(p + AT_ENTRIES),
                             .pages = kw_load32(p + AT_PAGES),
                             .blocks = kw_load32(p + AT_BLOCKS),
                             .oldest_wall_ms = (int64_t)kw_load64(p + AT_OLDEST),
                             .newest_wall_ms = (int64_t)kw_load64(p + AT_NEWEST),
                             .epoch = (int32_t)kw_load32(p + AT_EPOCH),
                             .size = file_size};
    memcpy(g.min, p + AT_MIN, KB_GUID_SIZE);
    memcpy(g.max, p + AT_MAX, KB_GUID_SIZE);
    uint64_t tail = kw_load64(p + AT_TAIL_SIZE);
    bool sane = g.base >= 0 && g.end > g.base && g.pages > 0 && g.pages <= KB_RUN_PAGES_MAX && g.blocks == kb_run_blocks(g.pages) && g.entries >= g.pages &&
                g.entries <= (int64_t)g.pages * KB_RUN_PAGE_ENTRIES && file_size >= KB_RUN_FOOTER;
    if (!sane || tail > (uint64_t)file_size || (int64_t)tail != file_size - KB_RUN_FOOTER - (int64_t)g.pages * KB_RUN_PAGE) return KW_EDECODE;
    *f = g;
    *tail_size = (size_t)tail;
    *tail_crc = kw_load32(p + AT_TAIL_CRC);
    return KW_OK;
}

/* ---- Tail ---- */

kw_err kb_run_tail_take(const struct kb_run_facts *f, uint8_t *bytes, uint8_t *bits, size_t bit_size, struct kb_run_tail *t) {
    size_t at = (size_t)f->pages * 8, head = at + (size_t)f->blocks * KB_RUN_BLOCK_HEAD, used = 0;
    const uint8_t *from = bits ? bits : bytes + head;
    for (size_t i = 1; i < f->pages; i++)
        if (kw_load64(bytes + 8 * i) <= kw_load64(bytes + 8 * (i - 1))) return KW_EDECODE;
    struct kb_fuse *v = kw_malloc(f->blocks * sizeof(*v));
    if (!v) return KW_ENOMEM;
    bool ok = true;
    for (size_t i = 0; i < f->blocks && ok; i++, at += KB_RUN_BLOCK_HEAD) {
        v[i] = (struct kb_fuse){kw_load64(bytes + at), kw_load32(bytes + at + 8), kw_load32(bytes + at + 12), from + used};
        ok = kb_fuse_valid(&v[i]) && kb_fuse_size(&v[i]) <= bit_size - used;
        if (ok) used += kb_fuse_size(&v[i]);
    }
    if (!ok || used != bit_size) {
        kw_free(v);
        return KW_EDECODE;
    }
    *t = (struct kb_run_tail){bytes, bits, head + bit_size, v};
    return KW_OK;
}

kw_err kb_run_tail_parse(const struct kb_run_facts *f, uint32_t crc, uint8_t *bytes, size_t size, struct kb_run_tail *t) {
    size_t head = (size_t)f->pages * 8 + (size_t)f->blocks * KB_RUN_BLOCK_HEAD;
    if (size < head) return KW_EDECODE;
    if (kw_crc32c(0, bytes, size) != crc) return KW_ECRC;
    return kb_run_tail_take(f, bytes, NULL, size - head, t);
}

static kw_err of_disk(enum kb_disk_err err) {
    return err == KB_DISK_OK ? KW_OK : err == KB_DISK_ENOMEM ? KW_ENOMEM : KW_EIO;
}

static kw_err read_whole(struct kb_fs *fs, void *file, int64_t at, uint8_t *p, size_t n) {
    while (n > 0) {
        size_t got = 0;
        kw_err err = of_disk(fs->ops->read(fs, file, at, p, KW_MIN(n, TAIL_READ), &got));
        if (err != KW_OK) return err;
        if (got == 0) return KW_EDECODE; /* shorter than it was */
        p += got;
        at += (int64_t)got;
        n -= got;
    }
    return KW_OK;
}

static kw_err load(struct kb_fs *fs, void *file, int64_t size, uint64_t seq, struct kb_run_facts *f, struct kb_run_tail *t) {
    uint8_t footer[KB_RUN_FOOTER];
    size_t tail_size;
    uint32_t crc;
    if (size < KB_RUN_FOOTER) return KW_EDECODE;
    kw_err err = read_whole(fs, file, size - KB_RUN_FOOTER, footer, sizeof(footer));
    if (err == KW_OK) err = kb_run_footer_parse(footer, size, f, &tail_size, &crc);
    if (err == KW_OK && f->seq != seq) err = KW_EDECODE;
    if (err != KW_OK) return err;
    uint8_t *bytes = kw_malloc(tail_size);
    if (!bytes) return KW_ENOMEM;
    err = read_whole(fs, file, (int64_t)f->pages * KB_RUN_PAGE, bytes, tail_size);
    if (err == KW_OK) err = kb_run_tail_parse(f, crc, bytes, tail_size, t);
    if (err != KW_OK) kw_free(bytes);
    return err;
}

kw_err kb_run_load(struct kb_fs *fs, const char *path, uint64_t seq, struct kb_run_facts *f, struct kb_run_tail *t) {
    void *file;
    int64_t size;
    kw_err err = of_disk(fs->ops->open(fs, path, 0, &file, &size));
    if (err != KW_OK) return err;
    err = load(fs, file, size, seq, f, t);
    fs->ops->close(fs, file);
    return err;
}

/* ---- Pages ---- */

uint32_t kb_run_page_of(const struct kb_run_facts *f, const struct kb_run_tail *t, size_t block, uint64_t hash) {
    size_t lo = block * KB_RUN_BLOCK_PAGES, hi = KW_MIN(lo + KB_RUN_BLOCK_PAGES, (size_t)f->pages), first = lo;
    while (lo < hi) { /* pages below lo begin at or below the hash */
        size_t mid = lo + (hi - lo) / 2;
        if (kb_run_first(t, mid) <= hash)
            lo = mid + 1;
        else
            hi = mid;
    }
    return (uint32_t)(lo > first ? lo - 1 : first);
}

uint32_t kb_run_page_crc(const uint8_t *page, uint64_t seq);
uint32_t kb_run_page_crc(const uint8_t *page, uint64_t seq) {
    uint8_t of[8];
    kw_store64(of, seq);
    return kw_crc32c(kw_crc32c(0, of, sizeof(of)), page, KB_RUN_PAGE - 4);
}

kw_err kb_run_page_check(const uint8_t page[KB_RUN_PAGE], uint64_t seq, uint32_t number) {
    bool ok = kw_load32(page + 4080) == number && kw_load32(page + KB_RUN_PAGE - 4) == kb_run_page_crc(page, seq);
    return ok && kw_load16(page + 4084) <= KB_RUN_PAGE_ENTRIES ? KW_OK : KW_ECRC;
}

bool kb_run_page_find(const uint8_t *page, const uint8_t id[KB_GUID_SIZE], int64_t base, int64_t from, int64_t to, struct kb_guid_entry *out) {
    size_t n = kb_run_page_count(page);
    for (size_t i = 0; i < n; i++) {
        struct kb_guid_entry e;
        if (!kb_guid_eq(page + i * KB_RUN_ENTRY, id)) continue;
        kb_run_page_entry(page, i, base, &e);
        if (e.offset < from || e.offset >= to) continue;
        *out = e;
        return true;
    }
    return false;
}
