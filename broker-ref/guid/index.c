/* index.c - what an index has in memory: tables and runs come, go, expire, are cut. Contract: index.h. */
#include "index_priv.h"

#include <stdio.h>

#include "../log/epochs.h"

void kb_guid_env_init(struct kb_guid_env *env, struct kb_disk *disk, const struct kb_logger *logger, struct kw_rng *rng) {
    *env = (struct kb_guid_env){.disk = disk, .logger = logger, .rng = rng, .memory_max = 64 << 20, .open_files_max = 256};
    kw_list_init(&env->indexes);
    kw_list_init(&env->file_lru);
    for (size_t i = 0; i < KB_GUID_SIZES; i++) kw_list_init(&env->open_by_size[i]);
}

/* ---- Runs ---- */

struct kb_guid_run *kb_guid_run_new(struct kb_guid_index *ix, const struct kb_run_facts *facts, struct kb_run_tail *tail) {
    char name[32];
    struct kb_guid_run *r = kw_calloc(1, sizeof(*r));
    snprintf(name, sizeof(name), "%016llx.run", (unsigned long long)facts->seq);
    char *path = kb_guid_path(ix, name);
    if (!r || !path) {
        kw_free(r);
        kw_free(path);
        return NULL;
    }
    *r = (struct kb_guid_run){
        .refs = 1, .env = ix->env, .facts = *facts, .tail = *tail, .valid_to = facts->end, .forgotten_to = facts->base, .epoch = facts->epoch, .path = path};
    *tail = (struct kb_run_tail){0};
    kw_list_init(&r->lru);
    kw_list_init(&r->doomed);
    return r;
}

void kb_guid_run_close(struct kb_guid_run *r) {
    if (!r->file) return;
    kw_list_remove(&r->lru);
    kb_file_unref(r->file);
    r->file = NULL;
    r->env->open_files--;
}

void kb_guid_run_unref(struct kb_guid_run *r) {
    if (--r->refs > 0) return;
    kb_guid_run_close(r);
    kb_run_tail_deinit(&r->tail);
    kw_free(r->path);
    kw_free(r);
}

static void ranges(struct kb_guid_index *ix) {
    ix->lowest = ~(kb_id128)0;
    ix->highest = 0;
    for (size_t i = 0; i < ix->run_count; i++) {
        ix->min[i] = kb_id_number(ix->runs[i]->facts.min);
        ix->max[i] = kb_id_number(ix->runs[i]->facts.max);
        ix->lowest = KW_MIN(ix->lowest, ix->min[i]);
        ix->highest = KW_MAX(ix->highest, ix->max[i]);
    }
}

void kb_guid_run_insert(struct kb_guid_index *ix, size_t at, struct kb_guid_run *r) {
    KW_ASSERT(ix->run_count < KB_MANIFEST_RUNS_MAX);
    memmove(ix->runs + at + 1, ix->runs + at, (ix->run_count - at) * sizeof(struct kb_guid_run *));
    ix->runs[at] = r;
    ix->run_count++;
    r->live = true;
    ix->version++;
    ranges(ix);
}

void kb_guid_run_drop(struct kb_guid_index *ix, size_t at) {
    struct kb_guid_run *r = ix->runs[at];
    memmove(ix->runs + at, ix->runs + at + 1, (ix->run_count - at - 1) * sizeof(struct kb_guid_run *));
    ix->run_count--;
    r->live = false;
    r->doomed_at = ++ix->version;
    kw_list_push(&ix->doomed, &r->doomed); /* with the index's reference */
    ranges(ix);
}

/* ---- Tables ---- */

static struct kb_guid_table *open_table(const struct kb_guid_index *ix) {
    struct kb_guid_table *t = ix->table_count ? ix->tables[ix->table_count - 1] : NULL;
    return t && !t->frozen ? t : NULL;
}

/* Where relieve looks for it. Of those of one size the one that has been of it for the longest time comes first. */
static void rank(struct kb_guid_index *ix) {
    const struct kb_guid_table *t = open_table(ix);
    bool counts = t && t->count > 0, ranked = !kw_list_empty(&ix->by_size);
    unsigned size = counts ? 63 - (unsigned)__builtin_clzll((uint64_t)kb_guid_table_memory(t) | 1) : 0;
    if (counts == ranked && (!counts || size == ix->size)) return;
    kw_list_remove(&ix->by_size);
    ix->size = size;
    if (counts) kw_list_push(&ix->env->open_by_size[KW_MIN(size, (unsigned)KB_GUID_SIZES - 1)], &ix->by_size);
}

void kb_guid_account(struct kb_guid_index *ix) {
    int64_t all = 0, frozen = 0;
    for (size_t i = 0; i < ix->table_count; i++) {
        int64_t n = kb_guid_table_memory(ix->tables[i]);
        all += n;
        if (ix->tables[i]->frozen) frozen += n;
    }
    ix->env->memory_used += all - ix->memory;
    ix->env->memory_frozen += frozen - ix->memory_frozen;
    ix->memory = all;
    ix->memory_frozen = frozen;
    rank(ix);
}

void kb_guid_table_drop(struct kb_guid_index *ix, size_t at) {
    kb_guid_table_deinit(ix->tables[at]);
    kw_free(ix->tables[at]);
    memmove(ix->tables + at, ix->tables + at + 1, (ix->table_count - at - 1) * sizeof(struct kb_guid_table *));
    ix->table_count--;
    kb_guid_account(ix);
}

void kb_guid_freeze(struct kb_guid_index *ix) {
    struct kb_guid_table *t = open_table(ix);
    if (!t) return;
    if (t->count == 0) {
        kb_guid_table_drop(ix, ix->table_count - 1);
        return;
    }
    t->frozen = true;
    ix->last_count = t->count;
    kb_guid_account(ix);
}

static struct kb_guid_table *new_table(struct kb_guid_index *ix) {
    if (ix->table_count == KB_GUID_TABLES_MAX) return NULL;
    struct kb_guid_table *t = kw_malloc(sizeof(*t));
    size_t expected = ix->env->memory_used < ix->env->memory_max / 2 ? ix->last_count : 0;
    if (!t || kb_guid_table_init(t, ix->key, ix->end, expected) != KW_OK) {
        kw_free(t);
        return NULL;
    }
    ix->tables[ix->table_count++] = t;
    kb_guid_account(ix);
    return t;
}

/* Nothing at or above `to` stays in the tables. */
static void pop_tables(struct kb_guid_index *ix, int64_t to) {
    for (size_t i = ix->table_count; i-- > 0;) {
        struct kb_guid_table *t = ix->tables[i];
        if (t->end <= to) break;
        if (t->writing) { /* its job goes on: what it makes is cut like this */
            t->cut_to = KW_MIN(t->cut_to, to);
            t->end = KW_MAX(KW_MIN(t->end, to), t->base);
        } else if (t->base >= to) {
            kb_guid_table_drop(ix, i);
        } else {
            kb_guid_table_pop(t, to);
        }
    }
    ix->end = KW_MIN(ix->end, KW_MAX(to, INT64_C(0)));
}

/* ---- Adding ---- */

static bool rotates(const struct kb_guid_index *ix, const struct kb_guid_table *t, int64_t offset, struct kb_now now) {
    int64_t part = KW_MAX(ix->window_us / KB_GUID_SPAN_PARTS, INT64_C(1));
    if (t->count == 0) return offset - t->base > UINT32_MAX;
    return t->count == KB_GUID_TABLE_MAX || offset - t->base > UINT32_MAX || now.mono_us / part != t->oldest_us / part;
}

/* As many of the n as go into one table. */
static kw_err add_some(struct kb_guid_index *ix, const struct kb_guid_entry *v, size_t n, struct kb_now now, size_t *added) {
    struct kb_guid_table *t = open_table(ix);
    int64_t wall_ms = kb_guid_wall_late(ix->env, now);
    if (t && KW_UNLIKELY(rotates(ix, t, v[0].offset, now))) {
        t->end = ix->end = v[0].offset;
        kb_guid_freeze(ix);
        t = NULL;
    }
    if (!t) t = new_table(ix);
    if (!t) return KW_ENOMEM;
    if (v[0].offset - t->base > UINT32_MAX) t->base = t->end = v[0].offset; /* it is empty */
    n = KW_MIN(n, KB_GUID_TABLE_MAX - t->count);
    while (v[n - 1].offset - t->base > UINT32_MAX) n--;
    int64_t memory = kb_guid_table_memory(t);
    bool first = t->count == 0;
    kw_err err = kb_guid_table_add(t, v, n);
    if (first || kb_guid_table_memory(t) != memory) kb_guid_account(ix);
    ix->end = t->end;
    if (err != KW_OK) return err;
    if (first) {
        t->oldest_us = now.mono_us;
        t->oldest_wall_ms = t->newest_wall_ms = wall_ms;
    }
    t->newest_us = now.mono_us;
    t->oldest_wall_ms = KW_MIN(t->oldest_wall_ms, wall_ms); /* the clock may be set meanwhile */
    t->newest_wall_ms = KW_MAX(t->newest_wall_ms, wall_ms);
    *added = n;
    return KW_OK;
}

/* Over the budget the largest open tables are to be written. However many indexes there are, the next one is found at once. */
static void relieve(struct kb_guid_env *env, struct kb_now now) {
    unsigned size = KB_GUID_SIZES;
    while (env->memory_used - env->memory_frozen > env->memory_max) {
        while (size > 0 && kw_list_empty(&env->open_by_size[size - 1])) size--;
        if (size == 0) return;
        struct kb_guid_index *largest = KW_CONTAINER_OF(env->open_by_size[size - 1].next, struct kb_guid_index, by_size);
        kb_guid_freeze(largest); /* it leaves the list by that */
        largest->last_count = 0; /* the next one begins small */
        kb_guid_work(largest, now);
    }
}

kw_err kb_guid_add(struct kb_guid_index *ix, int64_t base, int64_t end, const struct kb_guid_entry *v, size_t n, struct kb_now now) {
    if (base > ix->end || end < base || (ix->run_count > 0 && base < ix->runs[ix->run_count - 1]->valid_to)) return KW_EINVAL;
    if (base < ix->end) {
        pop_tables(ix, base);
        kb_guid_searches_cut(ix, base);
    }
    if (ix->env->memory_used > 2 * ix->env->memory_max && n > 0) {
        kb_guid_work(ix, now);
        relieve(ix->env, now);
        if (ix->env->memory_used > 2 * ix->env->memory_max) return KW_ENOMEM;
    }
    kw_err err = KW_OK;
    for (size_t i = 0, k = 0; i < n && err == KW_OK; i += k) err = add_some(ix, v + i, n - i, now, &k);
    if (err != KW_OK) {
        pop_tables(ix, base);
        return err;
    }
    struct kb_guid_table *t = open_table(ix);
    ix->end = end;
    if (t) t->end = end;
    if (ix->env->memory_used - ix->env->memory_frozen > ix->env->memory_max) relieve(ix->env, now);
    if (ix->table_count > 0 && ix->tables[0]->frozen && !ix->flush) kb_guid_work(ix, now);
    return KW_OK;
}

void kb_guid_skip(struct kb_guid_index *ix, int64_t to) {
    struct kb_guid_table *t = open_table(ix);
    if (to <= ix->end) return;
    ix->end = to;
    if (!t) return;
    t->end = to;
    if (t->count == 0) t->base = to;
}

/* ---- What goes ---- */

int32_t kb_guid_cut(struct kb_guid_index *ix, int64_t to, void (*done)(void *ctx, struct kb_now now), void *ctx, struct kb_now now) {
    bool changed = false;
    KW_ASSERT(!ix->cut_done);
    for (size_t i = ix->run_count; i-- > 0 && ix->runs[i]->valid_to > to;) {
        changed = true;
        if (ix->runs[i]->facts.base >= to) {
            kb_guid_run_drop(ix, i);
            continue;
        }
        ix->runs[i]->valid_to = to;
        ix->runs[i]->epoch = kb_epochs_at(ix->log->epochs, to - 1);
        ix->version++;
    }
    pop_tables(ix, to);
    kb_guid_searches_cut(ix, to);
    if (!changed) return 1;
    ix->cut_version = ix->version;
    ix->cut_done = done;
    ix->cut_ctx = ctx;
    ix->manifest_retry_us = 0;
    kb_guid_manifest_step(ix, now);
    return 0;
}

void kb_guid_rotten(struct kb_guid_index *ix, struct kb_guid_run *r, const char *why, struct kb_now now) {
    int64_t base = r->facts.base;
    kb_say(ix->env->logger, KB_WARN, "%s: %s; its ids, and all later ones, are read from the log again, from offset %lld on", r->path, why, (long long)base);
    ix->counts.rotten++;
    while (ix->run_count > 0 && ix->runs[ix->run_count - 1]->facts.base >= base) kb_guid_run_drop(ix, ix->run_count - 1);
    pop_tables(ix, base);
    kb_guid_searches_fail(ix);
    kb_guid_manifest_step(ix, now);
    if (ix->went_back) ix->went_back(ix->owner_ctx, ix, now);
}

/* Of the run's entries those in [from, to), in proportion. */
static int64_t share(const struct kb_guid_run *r, int64_t from, int64_t to) {
    from = KW_MAX(from, r->facts.base);
    to = KW_MIN(to, r->valid_to);
    if (from >= to) return 0;
    return (int64_t)((kb_id128)(uint64_t)r->facts.entries * (uint64_t)(to - from) / (uint64_t)(r->facts.end - r->facts.base));
}

int64_t kb_guid_count(const struct kb_guid_index *ix, int64_t from, int64_t to) {
    int64_t n = 0;
    for (size_t i = 0; i < ix->run_count; i++) n += share(ix->runs[i], from, to);
    for (size_t i = 0; i < ix->table_count; i++) {
        const struct kb_guid_table *t = ix->tables[i];
        int64_t end = KW_MIN(to, t->cut_to);
        if (end > from) n += (int64_t)(kb_guid_table_below(t, end) - kb_guid_table_below(t, from));
    }
    return n;
}

/* Records went that were known still: DeleteRecords, or retention by size. */
static void count_forgotten(struct kb_guid_index *ix) {
    int64_t start = ix->log->start;
    if (start == ix->start_seen) return;
    ix->start_seen = start;
    for (size_t i = 0; i < ix->run_count && ix->runs[i]->facts.base < start; i++) {
        struct kb_guid_run *r = ix->runs[i];
        ix->counts.forgotten += share(r, r->forgotten_to, start);
        r->forgotten_to = KW_MAX(r->forgotten_to, KW_MIN(start, r->valid_to));
    }
    for (size_t i = 0; i < ix->table_count && ix->tables[i]->base < start; i++) {
        struct kb_guid_table *t = ix->tables[i];
        size_t below = KW_MIN(kb_guid_table_below(t, start), kb_guid_table_below(t, t->cut_to));
        if (below <= t->forgotten) continue;
        ix->counts.forgotten += (int64_t)(below - t->forgotten);
        t->forgotten = below;
    }
}

/* In order: a run that an earlier one outlives (clocks were set) waits for it, so that what is there is one piece. */
void kb_guid_expire(struct kb_guid_index *ix, struct kb_now now) {
    int64_t dead_us = now.mono_us - ix->window_us;
    while (ix->run_count > 0 && ix->runs[0]->newest_us <= dead_us) kb_guid_run_drop(ix, 0);
    while (ix->run_count == 0 && ix->table_count > 0 && ix->tables[0]->count > 0 && ix->tables[0]->newest_us <= dead_us) {
        if (ix->tables[0]->writing) {
            ix->tables[0]->cut_to = INT64_MIN; /* what is being written is dropped when it is done */
            break;
        }
        kb_guid_table_drop(ix, 0);
    }
    count_forgotten(ix);
    while (ix->run_count > 0 && ix->runs[0]->valid_to <= ix->log->start) kb_guid_run_drop(ix, 0);
}

/* ---- What it says ---- */

int64_t kb_guid_end(const struct kb_guid_index *ix) {
    return ix->end;
}

int64_t kb_guid_covered(const struct kb_guid_index *ix) {
    for (size_t i = 0; i < ix->table_count; i++)
        if (ix->tables[i]->count > 0) return ix->tables[i]->base;
    return ix->end;
}

int64_t kb_guid_hold_from(const struct kb_guid_index *ix) {
    if (ix->run_count > 0) return ix->runs[0]->facts.base;
    for (size_t i = 0; i < ix->table_count; i++) {
        const struct kb_guid_table *t = ix->tables[i];
        if (t->count > 0 && t->cut_to > t->base + t->v[0].delta) return t->base + t->v[0].delta;
    }
    return INT64_MAX;
}

static void run_advance(struct kb_guid_run *r, int64_t us) {
    r->oldest_us -= us;
    r->newest_us -= us;
}

void kb_guid_env_advance(struct kb_guid_env *env, int64_t ms) {
    env->started.wall_ms += ms; /* nobody has set the clock: time has passed */
    for (struct kw_list *l = env->indexes.next; l != &env->indexes; l = l->next) {
        struct kb_guid_index *ix = KW_CONTAINER_OF(l, struct kb_guid_index, link);
        for (size_t i = 0; i < ix->run_count; i++) run_advance(ix->runs[i], ms * 1000);
        for (size_t i = 0; ix->merge && i < ix->merge->input_count; i++) /* those that went meanwhile still say how old the result is */
            if (!ix->merging[i]->live) run_advance(ix->merging[i], ms * 1000);
        for (size_t i = 0; i < ix->table_count; i++) {
            ix->tables[i]->oldest_us -= ms * 1000;
            ix->tables[i]->newest_us -= ms * 1000;
        }
    }
}

void kb_guid_window_set(struct kb_guid_index *ix, int64_t window_ms) {
    int64_t window_us = window_ms > INT64_MAX / 4000 ? INT64_MAX / 4 : KW_MAX(window_ms, INT64_C(1)) * 1000;
    if (window_us != ix->window_us) ix->picked_at = UINT64_MAX; /* others may be joined */
    ix->window_us = window_us;
}

bool kb_guid_probe(const struct kb_guid_index *ix, const uint8_t id[KB_GUID_SIZE], struct kb_guid_entry *out) {
    uint64_t hash = kb_guid_hash(ix->key, id);
    for (size_t i = 0; i < ix->table_count; i++)
        if (kb_guid_table_find(ix->tables[i], id, hash, ix->log->start, ix->log->leo, out)) return true;
    return false;
}

void kb_guid_stats(const struct kb_guid_index *ix, struct kb_guid_stats *out) {
    *out = ix->counts;
    out->end = ix->end;
    out->from = ix->run_count > 0 ? ix->runs[0]->facts.base : ix->table_count > 0 ? ix->tables[0]->base : ix->end;
    out->runs = (int64_t)ix->run_count;
    out->entries = out->disk_bytes = 0;
    out->memory_bytes = ix->memory;
    out->window_ms = ix->window_us / 1000;
    for (size_t i = 0; i < ix->run_count; i++) {
        out->entries += ix->runs[i]->facts.entries;
        out->disk_bytes += ix->runs[i]->facts.size;
        out->memory_bytes += kb_run_tail_memory(&ix->runs[i]->facts, &ix->runs[i]->tail);
    }
    for (size_t i = 0; i < ix->table_count; i++) out->entries += (int64_t)ix->tables[i]->count;
}
