/* run_write.c - run files, written: entries in, pages, filters and the footer out. Contract and format: run.h. Runs on a job's lane. */
#include "base/crc32c.h"
#include "run.h"

#define WRITE_SIZE ((size_t)1 << 18)
#define FILTER_TRIES 64

void kb_run_footer_write(uint8_t *p, const struct kb_run_facts *f, size_t tail_size, uint32_t tail_crc);
uint32_t kb_run_page_crc(const uint8_t *page, uint64_t seq);

static kw_err of_disk(enum kb_disk_err err) {
    return err == KB_DISK_OK ? KW_OK : err == KB_DISK_ENOMEM ? KW_ENOMEM : KW_EIO;
}

kw_err kb_run_writer_begin(struct kb_run_writer *w, struct kb_fs *fs, const char *path, bool sync, uint64_t seed) {
    int64_t size = 0;
    w->fs = fs;
    w->sync = sync;
    w->seed = seed;
    w->file = NULL;
    w->written = 0;
    w->count = w->group = w->key_count = 0;
    w->copies = 0;
    w->keys = kw_malloc(KB_FUSE_KEYS_MAX * sizeof(*w->keys));
    kw_out_init(&w->out);
    kw_out_init(&w->firsts);
    kw_out_init(&w->heads);
    kw_out_init(&w->bits);
    kw_err err = kb_fuse_maker_init(&w->maker);
    if (err != KW_OK || !w->keys) return KW_ENOMEM;
    err = of_disk(fs->ops->open(fs, path, KB_DISK_CREATE, &w->file, &size));
    if (err == KW_OK && size > 0) err = of_disk(fs->ops->truncate(fs, w->file, 0));
    return err;
}

void kb_run_writer_deinit(struct kb_run_writer *w) {
    if (w->file) w->fs->ops->close(w->fs, w->file);
    w->file = NULL;
    kw_out_deinit(&w->out);
    kw_out_deinit(&w->firsts);
    kw_out_deinit(&w->heads);
    kw_out_deinit(&w->bits);
    kw_free(w->keys);
    w->keys = NULL;
    kb_fuse_maker_deinit(&w->maker);
}

static kw_err flush(struct kb_run_writer *w) {
    if (w->out.err != KW_OK) return w->out.err;
    kw_err err = KW_OK;
    for (size_t at = 0; at < w->out.len && err == KW_OK; at += WRITE_SIZE) {
        size_t n = KW_MIN(w->out.len - at, WRITE_SIZE);
        err = of_disk(w->fs->ops->write(w->fs, w->file, w->written, w->out.p + at, n));
        w->written += (int64_t)n;
    }
    kw_out_reset(&w->out);
    if (err == KW_OK && w->sync && w->fs->ops->start_sync) w->fs->ops->start_sync(w->fs, w->file);
    return err;
}

static kw_err end_block(struct kb_run_writer *w) {
    struct kb_fuse f;
    if (w->key_count == 0) return KW_OK;
    kb_fuse_shape(&f, w->key_count);
    size_t size = kb_fuse_size(&f);
    uint8_t *bits = kw_out_reserve(&w->bits, size);
    if (!bits) return w->bits.err;
    kb_fuse_make(&w->maker, &f, w->keys, w->key_count, w->seed + w->facts.blocks, FILTER_TRIES, bits);
    if (f.segments == 0) w->bits.len -= size;
    kw_out_i64(&w->heads, (int64_t)f.seed);
    kw_out_i32(&w->heads, (int32_t)f.segment_log2);
    kw_out_i32(&w->heads, (int32_t)f.segments);
    w->facts.blocks++;
    w->key_count = 0;
    return w->heads.err;
}

/* The page's first n entries; what is behind them begins the next. */
static kw_err end_page(struct kb_run_writer *w, size_t n) {
    uint8_t rest[KB_RUN_PAGE];
    size_t left = (w->count - n) * KB_RUN_ENTRY;
    memcpy(rest, w->page + n * KB_RUN_ENTRY, left);
    memset(w->page + n * KB_RUN_ENTRY, 0, KB_RUN_PAGE - n * KB_RUN_ENTRY);
    kw_store32(w->page + 4080, w->facts.pages);
    kw_store16(w->page + 4084, (uint16_t)n);
    kw_store32(w->page + KB_RUN_PAGE - 4, kb_run_page_crc(w->page, w->facts.seq));
    kw_out_bytes(&w->out, w->page, KB_RUN_PAGE);
    if (++w->facts.pages > KB_RUN_PAGES_MAX) return KW_ELIMIT;
    memcpy(w->page, rest, left);
    w->count -= n;
    return w->out.len >= WRITE_SIZE ? flush(w) : w->out.err;
}

/* The hash of the first entry of the page that begins, and the block's first page. */
static kw_err begin_page(struct kb_run_writer *w, uint64_t hash) {
    kw_out_i64(&w->firsts, (int64_t)hash);
    return w->firsts.err;
}

static void put(struct kb_run_writer *w, size_t i, const struct kb_guid_entry *e) {
    uint8_t *p = w->page + i * KB_RUN_ENTRY;
    memcpy(p, e->id, KB_GUID_SIZE);
    kw_store32(p + 16, (uint32_t)(e->offset - w->facts.base));
    kw_store32(p + 20, e->payload);
}

static void note_id(struct kb_run_facts *f, const uint8_t *id) {
    if (f->entries == 0 || kb_id_number(id) < kb_id_number(f->min)) memcpy(f->min, id, KB_GUID_SIZE);
    if (f->entries == 0 || kb_id_number(id) > kb_id_number(f->max)) memcpy(f->max, id, KB_GUID_SIZE);
}

/* A page that is full ends where the last hash began, when more of that one come. */
static kw_err turn_page(struct kb_run_writer *w, bool same_hash) {
    size_t n = same_hash ? w->group : w->count;
    kw_err err = end_page(w, n);
    /* A block ends with a page. The hash whose entries were moved on is one of the next block. */
    if (err == KW_OK && w->facts.pages % KB_RUN_BLOCK_PAGES == 0) {
        w->key_count -= same_hash;
        err = end_block(w);
        if (same_hash) w->keys[w->key_count++] = w->hash;
    }
    w->group = 0;
    return err == KW_OK && same_hash ? begin_page(w, w->hash) : err;
}

kw_err kb_run_writer_add(struct kb_run_writer *w, uint64_t hash, const struct kb_guid_entry *e) {
    bool any = w->facts.entries > 0, same_hash = any && hash == w->hash;
    bool same_id = same_hash && w->count > 0 && kb_guid_eq(w->page + (w->count - 1) * KB_RUN_ENTRY, e->id);
    if (same_id && w->copies >= 2) {
        put(w, w->count - 1, e);
        return KW_OK;
    }
    kw_err err = KW_OK;
    if (w->count == KB_RUN_PAGE_ENTRIES) {
        if (same_hash && w->group == 0) return KW_OK; /* a page full of one hash: nobody can make that happen */
        err = turn_page(w, same_hash);
    }
    if (err == KW_OK && w->count == 0) err = begin_page(w, hash);
    if (err != KW_OK) return err;
    if (!same_hash) {
        w->group = w->count;
        KW_ASSERT(w->key_count < KB_FUSE_KEYS_MAX);
        w->keys[w->key_count++] = hash;
    }
    w->hash = hash;
    w->copies = same_id ? w->copies + 1 : 1;
    note_id(&w->facts, e->id);
    put(w, w->count++, e);
    w->facts.entries++;
    return KW_OK;
}

/* As much as there is, and no more: the tail stays in memory. */
static uint8_t *fit(struct kw_out *o) {
    uint8_t *p = kw_realloc(o->p, KW_MAX(o->len, (size_t)1));
    if (!p) return NULL;
    o->p = p;
    o->cap = o->len;
    return p;
}

static kw_err put_bytes(struct kb_run_writer *w, const uint8_t *p, size_t n) {
    kw_err err = KW_OK;
    for (size_t at = 0; at < n && err == KW_OK; at += WRITE_SIZE) {
        kw_out_bytes(&w->out, p + at, KW_MIN(n - at, WRITE_SIZE));
        if (w->out.len >= WRITE_SIZE) err = flush(w);
    }
    return err;
}

/* A large run's tail is a tenth of what a node may take in all: it is not copied. */
kw_err kb_run_writer_end(struct kb_run_writer *w, struct kb_run_tail *t) {
    uint8_t footer[KB_RUN_FOOTER];
    if (w->facts.entries == 0) return KW_EINVAL;
    kw_err err = end_page(w, w->count);
    if (err == KW_OK) err = end_block(w);
    if (err == KW_OK) err = flush(w);
    if (err != KW_OK) return err;
    struct kw_out *head = &w->firsts, *bits = &w->bits;
    kw_out_bytes(head, w->heads.p, w->heads.len);
    if (head->err != KW_OK || !fit(head) || !fit(bits)) return KW_ENOMEM;
    uint32_t crc = kw_crc32c(kw_crc32c(0, head->p, head->len), bits->p, bits->len);
    err = put_bytes(w, head->p, head->len);
    if (err == KW_OK) err = put_bytes(w, bits->p, bits->len);
    kb_run_footer_write(footer, &w->facts, head->len + bits->len, crc);
    kw_out_bytes(&w->out, footer, sizeof(footer));
    if (err == KW_OK) err = flush(w);
    if (err == KW_OK && w->sync) err = of_disk(w->fs->ops->sync(w->fs, w->file));
    w->facts.size = w->written;
    if (err == KW_OK) err = kb_run_tail_take(&w->facts, head->p, bits->p, bits->len, t);
    if (err != KW_OK) return err;
    kw_out_init(head); /* they are the tail's */
    kw_out_init(bits);
    return KW_OK;
}
