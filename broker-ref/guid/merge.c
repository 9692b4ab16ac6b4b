/* merge.c - runs are made. Contract: merge.h. */
#include "merge.h"

#include <stdio.h>

#define READ_PAGES 16

void kb_guid_job_deinit(struct kb_guid_job *j) {
    for (size_t i = 0; i < j->input_count; i++) kw_free(j->inputs[i].path);
    j->input_count = 0;
    kb_run_tail_deinit(&j->tail);
    kw_free(j->log_dir);
    kw_free(j->dir);
    kw_free(j->path);
    j->log_dir = j->dir = j->path = NULL;
}

static kw_err of_disk(struct kb_guid_job *j, enum kb_disk_err err) {
    if (err != KB_DISK_OK && j->disk_err == KB_DISK_OK) j->disk_err = err;
    return err == KB_DISK_OK ? KW_OK : err == KB_DISK_ENOMEM ? KW_ENOMEM : KW_EIO;
}

/* ---- Begin and end of the file ---- */

static kw_err begin(struct kb_guid_job *j, struct kb_fs *fs, const char *tmp, struct kb_run_writer *w) {
    kw_err err = KW_OK;
    if (j->make_dir) {
        err = of_disk(j, fs->ops->mkdir(fs, j->dir));
        if (err == KW_OK && j->sync) err = of_disk(j, fs->ops->sync_dir(fs, j->log_dir));
    }
    return err == KW_OK ? kb_run_writer_begin(w, fs, tmp, j->sync, j->seed) : err;
}

static void end(struct kb_guid_job *j, struct kb_fs *fs, const char *tmp, struct kb_run_writer *w, kw_err err) {
    if (err == KW_OK) err = kb_run_writer_end(w, &j->tail);
    bool made = w->file != NULL;
    kb_run_writer_deinit(w);
    if (err == KW_OK) err = of_disk(j, fs->ops->rename(fs, tmp, j->path));
    if (err == KW_OK && j->sync) err = of_disk(j, fs->ops->sync_dir(fs, j->dir));
    if (err == KW_OK)
        j->facts = w->facts;
    else if (made)
        (void)fs->ops->unlink(fs, tmp); /* else the next opening does */
    j->err = err;
}

static char *tmp_of(const struct kb_guid_job *j) {
    size_t n = strlen(j->path) + 5;
    char *p = kw_malloc(n);
    if (p) snprintf(p, n, "%s.tmp", j->path);
    return p;
}

/* ---- A table ---- */

#define AHEAD 12 /* entries that are on their way from memory */

static kw_err put_table(struct kb_guid_job *j, const struct kb_guid_place *v, struct kb_run_writer *w) {
    kw_err err = KW_OK;
    for (size_t i = 0; i < j->count && err == KW_OK; i++) {
        if (i + AHEAD < j->count) __builtin_prefetch(&j->table->v[v[i + AHEAD].index]);
        const struct kb_guid_slot_entry *s = &j->table->v[v[i].index];
        struct kb_guid_entry e = {.offset = j->facts.base + s->delta, .payload = s->payload};
        memcpy(e.id, s->id, KB_GUID_SIZE);
        err = kb_run_writer_add(w, v[i].hash, &e);
    }
    return err;
}

void kb_guid_flush_run(void *arg, struct kb_fs *fs) {
    struct kb_guid_job *j = arg;
    struct kb_run_writer *w = kw_calloc(1, sizeof(*w));
    struct kb_guid_place *v = kw_malloc(2 * j->count * sizeof(*v));
    char *tmp = tmp_of(j);
    j->err = KW_ENOMEM;
    j->rotten = -1;
    if (w && v && tmp) {
        w->facts = j->facts;
        kw_err err = begin(j, fs, tmp, w);
        if (err == KW_OK) {
            kb_guid_table_sort(j->table, j->count, v, v + j->count);
            err = put_table(j, v, w);
        }
        end(j, fs, tmp, w, err);
    }
    kw_free(tmp);
    kw_free(v);
    kw_free(w);
}

/* ---- Runs ---- */

struct reader { /* of one input: the entries that stay, in their order */
    const struct kb_merge_input *in;
    void *file;
    uint8_t *pages;
    uint32_t next, have, at; /* pages: the next to be read, those in memory, the one being read of these */
    size_t i, count;         /* of that one: its next entry, and how many there are */
    struct kb_guid_entry e;
    bool over;
    uint64_t hashes[KB_RUN_PAGE_ENTRIES]; /* of the page, made together: one waits for the other's steps otherwise */
};

static kw_err fill(struct kb_guid_job *j, struct kb_fs *fs, struct reader *r) {
    uint32_t n = KW_MIN((uint32_t)READ_PAGES, r->in->facts.pages - r->next);
    size_t want = (size_t)n * KB_RUN_PAGE, have = 0;
    while (have < want) {
        size_t got = 0;
        kw_err err = of_disk(j, fs->ops->read(fs, r->file, (int64_t)r->next * KB_RUN_PAGE + (int64_t)have, r->pages + have, want - have, &got));
        if (err != KW_OK) return err;
        if (got == 0) return KW_ECRC;
        have += got;
    }
    for (uint32_t k = 0; k < n; k++)
        if (kb_run_page_check(r->pages + (size_t)k * KB_RUN_PAGE, r->in->facts.seq, r->next + k) != KW_OK) return KW_ECRC;
    r->next += n;
    r->have = n;
    r->at = 0;
    return KW_OK;
}

static kw_err next_page(struct kb_guid_job *j, struct kb_fs *fs, struct reader *r) {
    if (++r->at >= r->have) {
        r->over = r->next == r->in->facts.pages;
        kw_err err = r->over ? KW_OK : atomic_load_explicit(&j->stop, memory_order_relaxed) ? KW_EBUSY : fill(j, fs, r);
        if (r->over || err != KW_OK) return err;
    }
    const uint8_t *page = r->pages + (size_t)r->at * KB_RUN_PAGE;
    r->i = 0;
    r->count = kb_run_page_count(page);
    for (size_t i = 0; i < r->count; i++) r->hashes[i] = kb_guid_hash(j->key, page + i * KB_RUN_ENTRY);
    return KW_OK;
}

/* *hash: of the entry that comes next, r->e. */
static kw_err advance(struct kb_guid_job *j, struct kb_fs *fs, struct reader *r, uint64_t *hash) {
    for (;;) {
        if (r->i == r->count) {
            kw_err err = next_page(j, fs, r);
            if (err != KW_OK || r->over) return err;
            continue;
        }
        *hash = r->hashes[r->i];
        kb_run_page_entry(r->pages + (size_t)r->at * KB_RUN_PAGE, r->i++, r->in->facts.base, &r->e);
        if (r->e.offset >= j->from && r->e.offset < r->in->valid_to) return KW_OK;
    }
}

static kw_err open_reader(struct kb_guid_job *j, struct kb_fs *fs, size_t i, struct reader *r) {
    int64_t size;
    r->in = &j->inputs[i];
    r->pages = kw_malloc((size_t)READ_PAGES * KB_RUN_PAGE);
    if (!r->pages) return KW_ENOMEM;
    kw_err err = of_disk(j, fs->ops->open(fs, r->in->path, 0, &r->file, &size));
    if (err != KW_OK) r->file = NULL;
    return err != KW_OK ? err : next_page(j, fs, r);
}

struct heads { /* of the inputs that are not over, the next hash of each; apart from them, as all of these are looked at for each entry */
    uint64_t hash[KB_MERGE_INPUTS_MAX];
    struct reader *of[KB_MERGE_INPUTS_MAX];
    size_t count;
};

static size_t least_of(const struct heads *h) {
    uint64_t least = h->hash[0];
    size_t at = 0;
    for (size_t i = 1; i < h->count; i++) {
        const struct kb_guid_entry *a = &h->of[i]->e, *b = &h->of[at]->e;
        bool less = h->hash[i] < least;
        if (KW_UNLIKELY(h->hash[i] == least)) less = kb_run_order(least, a->id, a->offset, least, b->id, b->offset) < 0;
        least = less ? h->hash[i] : least;
        at = less ? i : at;
    }
    return at;
}

static kw_err step(struct kb_guid_job *j, struct kb_fs *fs, struct heads *h, size_t i) {
    kw_err err = advance(j, fs, h->of[i], &h->hash[i]);
    if (err != KW_OK && err != KW_EBUSY && err != KW_ENOMEM) j->rotten = (int)(h->of[i]->in - j->inputs);
    if (err != KW_OK || !h->of[i]->over) return err;
    h->count--;
    h->of[i] = h->of[h->count];
    h->hash[i] = h->hash[h->count];
    return KW_OK;
}

static kw_err merge(struct kb_guid_job *j, struct kb_fs *fs, struct reader *v, struct kb_run_writer *w) {
    struct heads h = {.count = j->input_count};
    kw_err err = KW_OK;
    for (size_t i = 0; i < j->input_count; i++) h.of[i] = &v[i];
    for (size_t i = h.count; i-- > 0 && err == KW_OK;) err = step(j, fs, &h, i);
    while (err == KW_OK && h.count > 0) {
        size_t i = least_of(&h);
        err = kb_run_writer_add(w, h.hash[i], &h.of[i]->e);
        if (err == KW_OK) err = step(j, fs, &h, i);
    }
    return err;
}

void kb_guid_merge_run(void *arg, struct kb_fs *fs) {
    struct kb_guid_job *j = arg;
    struct kb_run_writer *w = kw_calloc(1, sizeof(*w));
    struct reader *v = kw_calloc(KB_MERGE_INPUTS_MAX, sizeof(*v));
    char *tmp = tmp_of(j);
    j->err = KW_ENOMEM;
    j->rotten = -1;
    if (w && v && tmp) {
        kw_err err = KW_OK;
        for (size_t i = 0; i < j->input_count && err == KW_OK; i++) {
            err = open_reader(j, fs, i, &v[i]);
            if (err != KW_OK && err != KW_EBUSY && err != KW_ENOMEM) j->rotten = (int)i;
        }
        w->facts = j->facts;
        if (err == KW_OK && (err = begin(j, fs, tmp, w)) == KW_OK) err = merge(j, fs, v, w);
        end(j, fs, tmp, w, err);
    }
    for (size_t i = 0; v && i < j->input_count; i++) {
        if (v[i].file) fs->ops->close(fs, v[i].file);
        kw_free(v[i].pages);
    }
    kw_free(tmp);
    kw_free(v);
    kw_free(w);
}
