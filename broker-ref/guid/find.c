/* find.c - where ids are: memory first, then what the runs' filters do not rule out, a page each. Contract: index.h.
 *
 * A search that has to read knows up to which offset it has looked (`seen_to`): what was added while it read lies above, in a table or in a run made of
 * one meanwhile, and is looked at before it ends. What is cut off meanwhile is taken out of its answers; a run that was merged into another is read on, by
 * the handle that is there.
 */
#include <stdlib.h>

#include "index_priv.h"

#define CHUNK 16          /* ids at a time: their slots and filters are on their way from memory */
#define READS_MAX 8       /* under way, of one search */
#define READ_PAGES_MAX 16 /* of one read */
#define GAP_PAGES 2       /* that are read along */
#define RESTARTS_MAX 4

struct candidate {
    uint32_t id, page;
    struct kb_guid_run *run; /* counted, in a search */
};
struct candidates {
    struct candidate *v;
    size_t count, cap;
};
struct search {
    struct kw_list link;
    struct kb_guid_index *ix;
    struct kb_guid_find *f; /* NULL: cancelled */
    int64_t seen_to;
    struct candidates c;
    size_t next;  /* the first that was not asked for */
    int32_t reading, restarts;
    bool again;   /* a file that it needs has gone */
    kw_err err;
};
struct page_read {
    struct search *s;
    struct kb_guid_run *run; /* counted */
    uint32_t first, pages;
    size_t from, to; /* candidates */
    uint8_t bytes[];
};

/* ---- Looking ---- */

static const uint8_t *id_of(const struct kb_guid_find *f, size_t i) {
    return f->ids + i * f->stride;
}

static kw_err add_candidate(struct candidates *c, size_t id, struct kb_guid_run *run, uint32_t page) {
    if (c->count == c->cap) {
        size_t cap = KW_MAX(2 * c->cap, (size_t)16);
        struct candidate *v = kw_realloc(c->v, cap * sizeof(*v));
        if (!v) return KW_ENOMEM;
        c->v = v;
        c->cap = cap;
    }
    c->v[c->count++] = (struct candidate){(uint32_t)id, page, run};
    return KW_OK;
}

static void take_lowest(struct kb_guid_entry *best, const struct kb_guid_entry *e) {
    if (best->offset < 0 || e->offset < best->offset) *best = *e;
}

static void look_in_tables(struct kb_guid_index *ix, const uint8_t *id, uint64_t hash, struct kb_guid_entry *best) {
    struct kb_guid_entry e;
    for (size_t i = 0; i < ix->table_count; i++)
        if (kb_guid_table_find(ix->tables[i], id, hash, ix->log->start, ix->log->leo, &e)) take_lowest(best, &e);
}

struct pair { /* an id and a run that may have it, by its range; and where its filter says so */
    uint8_t id, run;
    uint16_t print;
    uint32_t block, at[3];
};

/* true: the run has it, or looks as if. */
static bool has(const struct kb_fuse *f, const struct pair *p) {
    if (f->segments == 0) return true;
    return (kb_fuse_get(f->bits, p->at[0]) ^ kb_fuse_get(f->bits, p->at[1]) ^ kb_fuse_get(f->bits, p->at[2])) == p->print;
}

/* Where to look, and that it is on its way from memory. */
static void prepare(struct pair *p, const struct kb_guid_run *r, size_t id, size_t run, uint64_t hash) {
    size_t block = kb_run_block(&r->facts, &r->tail, hash);
    const struct kb_fuse *f = &r->tail.filters[block];
    *p = (struct pair){.id = (uint8_t)id, .run = (uint8_t)run, .block = (uint32_t)block};
    if (f->segments == 0) return;
    uint64_t mixed = kb_fuse_mix(hash ^ f->seed);
    p->print = (uint16_t)kb_fuse_print(mixed);
    kb_fuse_at(f, mixed, p->at);
    for (int i = 0; i < 3; i++) __builtin_prefetch(f->bits + (size_t)p->at[i] * 3 / 2);
}

/* Of a chunk those that memory cannot rule out. */
struct chunk {
    uint32_t id[CHUNK];
    kb_id128 number[CHUNK];
    uint64_t hash[CHUNK];
    size_t count;
};

static kw_err look_in_runs(struct kb_guid_index *ix, const struct chunk *c, int64_t above, struct candidates *out) {
    struct pair pairs[CHUNK * KB_MANIFEST_RUNS_MAX];
    size_t count = 0;
    for (size_t k = 0; k < c->count; k++) {
        kb_id128 x = c->number[k];
        if (x < ix->lowest || x > ix->highest) continue;
        for (size_t i = 0; i < ix->run_count; i++) {
            const struct kb_guid_run *r = ix->runs[i];
            if (x < ix->min[i] || x > ix->max[i] || r->valid_to <= above) continue;
            prepare(&pairs[count++], r, k, i, c->hash[k]);
        }
    }
    for (size_t p = 0; p < count; p++) {
        struct kb_guid_run *r = ix->runs[pairs[p].run];
        uint64_t h = c->hash[pairs[p].id];
        if (!has(&r->tail.filters[pairs[p].block], &pairs[p])) continue;
        kw_err err = add_candidate(out, c->id[pairs[p].id], r, kb_run_page_of(&r->facts, &r->tail, pairs[p].block, h));
        if (err != KW_OK) return err;
    }
    return KW_OK;
}

/* What is greater than all that is known is not known. */
static kb_id128 highest_of(const struct kb_guid_index *ix) {
    kb_id128 x = ix->highest;
    for (size_t i = 0; i < ix->table_count; i++)
        if (ix->tables[i]->count > 0) x = KW_MAX(x, ix->tables[i]->highest);
    return x;
}

/* Tables whole, and runs that reach above `above`. */
static kw_err look(struct kb_guid_index *ix, struct kb_guid_find *f, int64_t above, struct candidates *out) {
    struct chunk c;
    kb_id128 highest = highest_of(ix);
    f->hits = 0;
    for (size_t at = 0; at < f->count;) {
        c.count = 0;
        for (; at < f->count && c.count < CHUNK; at++) {
            kb_id128 x = kb_id_number(id_of(f, at));
            if (x > highest) continue;
            c.id[c.count] = (uint32_t)at;
            c.number[c.count++] = x;
        }
        for (size_t k = 0; k < c.count; k++) {
            c.hash[k] = kb_guid_hash(ix->key, id_of(f, c.id[k]));
            for (size_t i = 0; i < ix->table_count; i++) kb_guid_table_prefetch(ix->tables[i], c.hash[k]);
        }
        for (size_t k = 0; k < c.count; k++) {
            look_in_tables(ix, id_of(f, c.id[k]), c.hash[k], &f->found[c.id[k]]);
            f->hits += f->found[c.id[k]].offset >= 0;
        }
        if (ix->run_count == 0) continue;
        kw_err err = look_in_runs(ix, &c, above, out);
        if (err != KW_OK) return err;
    }
    return KW_OK;
}

static void clear(const struct kb_guid_find *f) {
    for (size_t i = 0; i < f->count; i++) f->found[i].offset = -1;
}

static void count_hits(struct kb_guid_find *f) {
    f->hits = 0;
    for (size_t i = 0; i < f->count; i++) f->hits += f->found[i].offset >= 0;
}

/* ---- A search that reads ---- */

static void drop_candidates(struct search *s) {
    for (size_t i = 0; i < s->c.count; i++) kb_guid_run_unref(s->c.v[i].run);
    s->c.count = s->next = 0;
}

static void search_free(struct search *s) {
    drop_candidates(s);
    kw_list_remove(&s->link);
    kw_free(s->c.v);
    kw_free(s);
}

static int by_place(const void *a, const void *b) {
    const struct candidate *x = a, *y = b;
    if (x->run != y->run) return x->run->facts.seq < y->run->facts.seq ? -1 : 1;
    return x->page != y->page ? (x->page < y->page ? -1 : 1) : (x->id > y->id) - (x->id < y->id);
}

/* New ones behind those that are there. */
static void hold_candidates(struct search *s) {
    size_t n = s->c.count - s->next;
    if (n > 0) qsort(s->c.v + s->next, n, sizeof(*s->c.v), by_place);
    for (size_t i = s->next; i < s->c.count; i++) s->c.v[i].run->refs++;
}

static void page_came(struct kb_guid_op *op, struct kb_now now);

static void file_opened(struct kb_guid_op *op, struct kb_now now) {
    struct kb_guid_index *ix = op->ix;
    struct kb_guid_run *r = op->ctx;
    struct kb_guid_env *env = r->env;
    r->opening = false;
    if (op->req.err != KB_DISK_OK || ix->closed) {
        kb_file_unref(op->req.file);
        if (!ix->closed && op->req.err == KB_DISK_ENOMEM) { /* no descriptor: whoever waits is told so */
            for (struct kw_list *l = ix->searches.next; l != &ix->searches; l = l->next) KW_CONTAINER_OF(l, struct search, link)->err = KW_ENOMEM;
        } else if (!ix->closed && r->live) {
            kb_guid_rotten(ix, r, kb_disk_text(op->req.err), now);
        }
    } else {
        r->file = op->req.file;
        env->open_files++;
        kw_list_push(&env->file_lru, &r->lru);
        while (env->open_files > env->open_files_max && env->file_lru.next != &r->lru)
            kb_guid_run_close(KW_CONTAINER_OF(env->file_lru.next, struct kb_guid_run, lru));
    }
    kb_guid_run_unref(r);
    kb_guid_searches_step(ix, now);
}

static kw_err open_file(struct kb_guid_index *ix, struct kb_guid_run *r) {
    struct kb_guid_op *op = kb_guid_op_new(ix, KB_DISK_OPEN, KB_LANE_READ, file_opened);
    if (!op) return KW_ENOMEM;
    op->path = kw_memdup(r->path, strlen(r->path) + 1);
    op->req.file = op->path ? kb_file_new(ix->env->disk) : NULL;
    if (!op->req.file) {
        kb_guid_op_free(op);
        return KW_ENOMEM;
    }
    op->ctx = r;
    r->refs++;
    r->opening = true;
    kb_guid_op_submit(op);
    return KW_OK;
}

static kw_err read_pages(struct search *s, size_t to) {
    struct kb_guid_run *r = s->c.v[s->next].run;
    uint32_t first = s->c.v[s->next].page, pages = s->c.v[to - 1].page - first + 1;
    struct page_read *p = kw_malloc(sizeof(*p) + (size_t)pages * KB_RUN_PAGE);
    struct kb_guid_op *op = p ? kb_guid_op_new(s->ix, KB_DISK_READ, KB_LANE_READ, page_came) : NULL;
    if (!op) {
        kw_free(p);
        return KW_ENOMEM;
    }
    *p = (struct page_read){s, r, first, pages, s->next, to};
    r->refs++;
    kw_list_remove(&r->lru);
    kw_list_push(&r->env->file_lru, &r->lru);
    op->ctx = p;
    op->req.file = r->file;
    op->req.offset = (int64_t)first * KB_RUN_PAGE;
    op->req.length = (int64_t)pages * KB_RUN_PAGE;
    op->req.buf = p->bytes;
    s->next = to;
    s->reading++;
    s->ix->counts.run_reads++;
    kb_guid_op_submit(op);
    return KW_OK;
}

/* Asks for what can be asked for. */
static void pump(struct search *s) {
    while (s->f && s->err == KW_OK && !s->again && s->reading < READS_MAX && s->next < s->c.count) {
        struct kb_guid_run *r = s->c.v[s->next].run;
        if (r->opening) return;
        if (!r->file) {
            if (r->live)
                s->err = open_file(s->ix, r);
            else
                s->again = true;
            if (s->err == KW_OK) return;
            continue;
        }
        size_t to = s->next + 1;
        uint32_t first = s->c.v[s->next].page;
        while (to < s->c.count && s->c.v[to].run == r && s->c.v[to].page <= s->c.v[to - 1].page + 1 + GAP_PAGES &&
               s->c.v[to].page - first < READ_PAGES_MAX)
            to++;
        s->err = read_pages(s, to);
    }
}

static void take_page(struct search *s, const struct page_read *p) {
    const struct kb_guid_run *r = p->run;
    struct kb_guid_entry e;
    for (size_t i = p->from; i < p->to; i++) {
        const struct candidate *c = &s->c.v[i];
        const uint8_t *page = p->bytes + (size_t)(c->page - p->first) * KB_RUN_PAGE;
        if (kb_run_page_find(page, id_of(s->f, c->id), r->facts.base, s->ix->log->start, r->valid_to, &e)) take_lowest(&s->f->found[c->id], &e);
    }
}

static void page_came(struct kb_guid_op *op, struct kb_now now) {
    struct page_read *p = op->ctx;
    struct search *s = p->s;
    struct kb_guid_index *ix = s->ix;
    struct kb_guid_run *r = p->run;
    bool ok = op->req.err == KB_DISK_OK && op->req.result == op->req.length;
    for (uint32_t i = 0; ok && i < p->pages; i++) ok = kb_run_page_check(p->bytes + (size_t)i * KB_RUN_PAGE, r->facts.seq, p->first + i) == KW_OK;
    s->reading--;
    if (ok && s->f)
        take_page(s, p);
    else if (!ok && !ix->closed && r->live)
        kb_guid_rotten(ix, r, op->req.err ? kb_disk_text(op->req.err) : "a page fails its checksum", now);
    else if (!ok)
        s->again = true;
    kb_guid_run_unref(r);
    kw_free(p);
    kb_guid_searches_step(ix, now);
}

/* What was cut while it read is gone from a run's valid_to, but a dropped one keeps its own. */
void kb_guid_searches_cut(struct kb_guid_index *ix, int64_t to) {
    for (struct kw_list *l = ix->searches.next; l != &ix->searches; l = l->next) {
        struct search *s = KW_CONTAINER_OF(l, struct search, link);
        s->seen_to = KW_MIN(s->seen_to, to);
        for (size_t i = 0; i < s->c.count; i++) s->c.v[i].run->valid_to = KW_MIN(s->c.v[i].run->valid_to, to);
        for (size_t i = 0; s->f && i < s->f->count; i++)
            if (s->f->found[i].offset >= to) s->f->found[i].offset = -1;
    }
}

void kb_guid_searches_fail(struct kb_guid_index *ix) {
    for (struct kw_list *l = ix->searches.next; l != &ix->searches; l = l->next) {
        struct search *s = KW_CONTAINER_OF(l, struct search, link);
        if (s->err == KW_OK) s->err = KW_EIO;
    }
}

/* A copy that went with the log's start, or with what a full disk took back: another may count. */
static bool is_stale(const struct search *s) {
    const struct kb_log *log = s->ix->log;
    for (size_t i = 0; i < s->f->count; i++)
        if (s->f->found[i].offset >= 0 && (s->f->found[i].offset < log->start || s->f->found[i].offset >= log->leo)) return true;
    return false;
}

static void begin_again(struct search *s) {
    s->again = false;
    s->restarts++;
    drop_candidates(s);
    clear(s->f);
    s->seen_to = INT64_MIN;
}

/* All that was asked for is here. true: there is more to be asked for. */
static bool goes_on(struct search *s, struct kb_now now) {
    struct kb_guid_index *ix = s->ix;
    if (s->err != KW_OK) return false;
    kb_guid_expire(ix, now);
    if (s->again || is_stale(s)) begin_again(s);
    if (s->restarts > RESTARTS_MAX) {
        s->err = KW_EIO;
        return false;
    }
    int64_t above = s->seen_to;
    drop_candidates(s);
    s->err = look(ix, s->f, above, &s->c);
    if (s->err != KW_OK) {
        s->c.count = 0; /* not held yet */
        return false;
    }
    if (above >= ix->end) s->c.count = 0; /* what reaches above it was seen */
    s->seen_to = ix->end;
    hold_candidates(s);
    return s->c.count > 0;
}

void kb_guid_searches_step(struct kb_guid_index *ix, struct kb_now now) {
    struct kw_list over, left;
    kw_list_init(&over);
    kw_list_init(&left);
    for (struct kw_list *l; (l = kw_list_shift(&ix->searches));) {
        struct search *s = KW_CONTAINER_OF(l, struct search, link);
        pump(s);
        bool idle = s->reading == 0 && (!s->f || s->err != KW_OK || s->again || s->next == s->c.count);
        while (idle && s->f && s->err == KW_OK && s->reading == 0 && (s->again || s->next == s->c.count)) {
            if (!goes_on(s, now)) break;
            pump(s);
            idle = s->reading == 0 && (s->err != KW_OK || s->again || s->next == s->c.count);
        }
        kw_list_push(idle ? &over : &left, l);
    }
    for (struct kw_list *l; (l = kw_list_shift(&left));) kw_list_push(&ix->searches, l);
    for (struct kw_list *l; (l = kw_list_shift(&over));) { /* their owners may do anything */
        struct search *s = KW_CONTAINER_OF(l, struct search, link);
        struct kb_guid_find *f = s->f;
        kw_err err = s->err;
        search_free(s);
        if (!f) continue;
        f->priv = NULL;
        f->err = err;
        if (err == KW_OK) {
            count_hits(f);
            ix->counts.hits += (int64_t)f->hits;
        }
        f->done(f, now);
    }
}

/* ---- Ask ---- */

int32_t kb_guid_find(struct kb_guid_find *f, struct kb_now now) {
    struct kb_guid_index *ix = f->index;
    struct candidates c = {0};
    f->err = KW_OK;
    f->priv = NULL;
    clear(f);
    kb_guid_expire(ix, now);
    ix->counts.finds += (int64_t)f->count;
    kw_err err = look(ix, f, INT64_MIN, &c);
    if (err == KW_OK && c.count == 0) {
        ix->counts.hits += (int64_t)f->hits;
        kw_free(c.v);
        return 1;
    }
    struct search *s = err == KW_OK ? kw_calloc(1, sizeof(*s)) : NULL;
    if (!s) {
        kw_free(c.v);
        return KW_ENOMEM;
    }
    *s = (struct search){.ix = ix, .f = f, .c = c, .seen_to = ix->end};
    kw_list_init(&s->link);
    kw_list_push(&ix->searches, &s->link);
    hold_candidates(s);
    pump(s);
    if (s->err != KW_OK && s->reading == 0) {
        err = s->err;
        search_free(s);
        return err;
    }
    f->priv = s;
    return 0;
}

void kb_guid_find_cancel(struct kb_guid_find *f) {
    struct search *s = f->priv;
    f->priv = NULL;
    if (!s) return;
    s->f = NULL;
    if (s->reading == 0) search_free(s);
}
