/* guids.c - a partition's GUID index beside its log. Contract: guids.h.
 *
 * OPENING (what the folder holds is taken over) -> OPEN: it ends at the log's end, or reads the log from its own end on, a piece a turn, until it does; a
 * follower's and a leader's appends go to it as they come. -> STOPPING (a clean stop), or REMOVING (no dedup any more: its files go).
 *
 * A batch that cannot be read is one whose ids are not known: what lies in its segment behind it is passed over, and that is said.
 */
#include "guids.h"

#include "log/log.h"
#include "partitions_priv.h"

enum { READ_BYTES = 1 << 20, RETRY_US = 100000 };
#define BODY_SIZE_MAX ((size_t)1 << 30)

enum state { OPENING, OPEN, STOPPING, REMOVING };

struct kb_guids_node {
    struct kb_guid_env env;
    struct kb_guid_batch batch; /* of the batch that is being looked at */
    struct kb_guids_stats gone; /* counts of indexes that are no more */
    struct kw_list leaving;     /* those that have no partition any more */
};

struct kb_guids {
    struct kw_list link; /* in the node's leaving */
    struct kb_node *node;
    struct kb_partition *p; /* NULL: it has left, and only a cut, or the removal, is waited for */
    struct kb_log *log;
    struct kb_guid_index *index;
    enum state state;
    bool ready;   /* was, when it was last looked at */
    bool reading;
    bool cutting; /* the masks are being stored */
    bool cut_waits; /* for the index to be open */
    int64_t cut_to;
    void (*cut_done)(void *ctx, struct kb_now now);
    void *cut_ctx;
    struct kb_read read;
    struct kw_timer timer; /* the next piece, or another try */
    int64_t caught_up;
};

static void step(struct kb_guids *g, struct kb_now now);

/* ---- Node ---- */

kw_err kb_guids_node_new(struct kb_node *n) {
    n->guids = kw_calloc(1, sizeof(*n->guids));
    if (!n->guids) return KW_ENOMEM;
    kb_guid_env_init(&n->guids->env, &n->parts.disk, &n->logger, &n->parts.rng);
    n->guids->env.ephemeral = n->parts.log_env.ephemeral;
    n->guids->env.memory_max = kb_config_int(n->parts.config, "guid.index.memory.bytes");
    kb_guid_batch_init(&n->guids->batch);
    kw_list_init(&n->guids->leaving);
    return KW_OK;
}

void kb_guids_node_started(struct kb_node *n, struct kb_now now) { n->guids->env.started = now; }

void kb_guids_node_advance(struct kb_node *n, int64_t ms) { kb_guid_env_advance(&n->guids->env, ms); }

void kb_guids_node_free(struct kb_node *n) {
    if (!n->guids) return;
    kb_guid_batch_deinit(&n->guids->batch);
    kw_free(n->guids);
    n->guids = NULL;
}

static void add_stats(struct kb_guids_stats *s, const struct kb_guids *g) {
    struct kb_guid_stats x;
    if (!g->index) return;
    kb_guid_stats(g->index, &x);
    s->forgotten += x.forgotten;
    s->rotten += x.rotten;
    s->caught_up_records += g->caught_up;
}

void kb_guids_stats(const struct kb_node *n, struct kb_guids_stats *out) {
    *out = n->guids ? n->guids->gone : (struct kb_guids_stats){0};
    for (struct kb_partition *p = NULL; n->partitions && (p = kb_partitions_next(n, p));)
        if (p->guids) add_stats(out, p->guids);
}

/* ---- What is said of it ---- */

struct kb_guid_index *kb_guids_index(const struct kb_partition *p) {
    const struct kb_guids *g = p->guids;
    return g && g->state == OPEN && !g->cutting ? g->index : NULL;
}

bool kb_guids_ready(const struct kb_partition *p) {
    const struct kb_guid_index *ix = kb_guids_index(p);
    return ix && !p->log->busy && kb_guid_end(ix) == p->log->leo;
}

static void again(struct kb_guids *g, int64_t at_us) {
    if (kw_timers_set(&g->node->parts.timers, &g->timer, at_us) != KW_OK) KB_SAY(g->node, KB_ERROR, "no memory for a timer of the GUID index");
}

/* Where the index is not complete, all that it has still to read is to stay. */
static void hold(struct kb_guids *g) {
    if (g->state == OPENING || !g->index) {
        g->log->hold_from = g->log->start;
        return;
    }
    int64_t from = kb_guid_hold_from(g->index), end = kb_guid_end(g->index);
    g->log->hold_from = end < g->log->leo ? KW_MIN(from, end) : from;
}

/* ---- Catching up ---- */

/* A batch, or an old message, behind what was looked at. */
static kw_err take_entry(struct kb_guids *g, const struct kw_entry *e, struct kb_now now) {
    struct kb_guid_batch *b = &g->node->guids->batch;
    struct kw_batch_header h;
    int64_t end = kb_guid_end(g->index), last = (int64_t)kw_load64(e->p);
    size_t first = 0;
    b->entry_count = 0;
    if (e->magic == 2) {
        kw_err err = kw_batch_parse(e->p, e->size, &h);
        if (err == KW_OK) err = kb_guid_extract(e->p, e->size, &h, g->node->compressor, BODY_SIZE_MAX, b);
        if (err == KW_ENOMEM) return err;
        if (err != KW_OK) b->entry_count = 0;
        last += (int32_t)kw_load32(e->p + KW_BATCH_LAST_OFFSET_DELTA);
    }
    if (last < end) return KW_OK;
    while (first < b->entry_count && b->entries[first].offset < end) first++;
    g->caught_up += (int64_t)(b->entry_count - first);
    return kb_guid_add(g->index, end, last + 1, b->entries + first, b->entry_count - first, now);
}

static kw_err take_bytes(struct kb_guids *g, const uint8_t *p, size_t n, struct kb_now now) {
    const uint8_t *end = p + n;
    struct kw_entry e;
    kw_err err = KW_OK;
    while (err == KW_OK && kw_entry_next(&p, end, &e) == 1) err = take_entry(g, &e, now);
    return err;
}

static void pass_over(struct kb_guids *g) {
    int64_t from = kb_guid_end(g->index), to = kb_log_next_segment(g->log, from);
    KB_SAY(g->node, KB_ERROR, "%s: what stands at offset %lld cannot be read: the GUIDs of its records below offset %lld are not known", g->log->dir,
           (long long)from, (long long)to);
    kb_guid_skip(g->index, to);
}

/* What a read gave. true: on with it. */
static bool take_read(struct kb_guids *g, kw_err err, struct kb_now now) {
    int64_t end = kb_guid_end(g->index);
    if (err == KW_OK && g->read.slice_count > 0) err = take_bytes(g, g->read.slices[0].p, g->read.slices[0].len, now);
    else if (err == KW_OK && g->read.limit <= g->log->written) kb_guid_skip(g->index, g->read.limit); /* nothing is there up to it */
    kb_read_release(&g->read);
    if (err == KW_ENOMEM || err == KW_EBUSY || err == KW_EINVAL) {
        again(g, now.mono_us + RETRY_US);
        return false;
    }
    if (err != KW_OK && g->log->poisoned) return false;
    if (err != KW_OK || kb_guid_end(g->index) <= end) pass_over(g);
    return true;
}

static void read_done(struct kb_read *r, struct kb_now now) {
    struct kb_guids *g = r->ctx;
    g->reading = false;
    if (take_read(g, r->err, now)) step(g, now);
}

static void read_on(struct kb_guids *g, struct kb_now now) {
    g->read = (struct kb_read){.log = g->log,
                               .offset = kb_guid_end(g->index),
                               .limit = g->log->written,
                               .bytes_max = READ_BYTES,
                               .min_one = true,
                               .into_memory = true,
                               .done = read_done,
                               .ctx = g};
    int32_t x = kb_log_read(&g->read, now);
    if (x == 0)
        g->reading = true;
    else if (take_read(g, x < 0 ? x : KW_OK, now))
        again(g, now.mono_us); /* in the next turn */
}

static void timer_fired(struct kw_timer *t, void *ctx, int64_t now_us) {
    struct kb_guids *g = ctx;
    (void)t, (void)now_us;
    if (g->p && g->state == OPENING && !g->index)
        kb_guids_look(g->p, g->node->now);
    else
        step(g, g->node->now);
}

static void step(struct kb_guids *g, struct kb_now now) {
    struct kb_log *log = g->log;
    if (!g->p || g->state != OPEN || g->cutting || g->reading || log->busy || log->poisoned) return;
    if (kb_guid_end(g->index) < log->start) kb_guid_skip(g->index, log->start);
    if (kb_guid_end(g->index) > log->leo && kb_guid_add(g->index, log->leo, log->leo, NULL, 0, now) != KW_OK) return;
    bool ready = kb_guid_end(g->index) == log->leo, became = ready && !g->ready;
    g->ready = ready;
    if (!ready && kb_guid_end(g->index) < log->written && !kw_timer_armed(&g->timer)) read_on(g, now);
    hold(g);
    if (became) kb_purgatory_moved(g->p, now);
}

void kb_guids_lost(struct kb_partition *p, struct kb_now now) {
    if (p->guids) step(p->guids, now);
}

static void went_back(void *ctx, struct kb_guid_index *index, struct kb_now now) {
    (void)index;
    struct kb_guids *g = ctx;
    g->ready = false;
    if (g->reading) {
        kb_read_cancel(&g->read);
        g->reading = false;
    }
    step(g, now);
}

void kb_guids_lose_committed(struct kb_partition *p, int64_t from, int64_t to, struct kb_now now) {
    struct kb_guids *g = p->guids;
    if (!g || g->state != OPEN) return;
    kb_guid_work(g->index, now); /* what is too old goes first */
    g->node->guids->gone.forgotten += kb_guid_count(g->index, from, to);
}

/* ---- Appends ---- */

void kb_guids_appended(struct kb_partition *p, int64_t base, int64_t end, const struct kb_guid_entry *v, size_t n, struct kb_now now) {
    struct kb_guids *g = p->guids;
    if (!g || g->state != OPEN || g->cutting || kb_guid_end(g->index) < base) return;
    kw_err err = kb_guid_add(g->index, base, end, v, n, now);
    if (n > 0 && p->log->hold_from > base) p->log->hold_from = base; /* where it could not be added, it is to be read */
    if (err == KW_OK) return;
    g->ready = false;
    again(g, now.mono_us + RETRY_US);
}

void kb_guids_followed(struct kb_partition *p, int64_t from, const uint8_t *records, size_t size, struct kb_now now) {
    struct kb_guids *g = p->guids;
    const uint8_t *q = records, *end = records + size;
    struct kw_entry e;
    if (!g || g->state != OPEN || g->cutting || g->reading || kb_guid_end(g->index) != from) return; /* it comes to it by reading */
    kw_err err = KW_OK;
    while (err == KW_OK && kb_guid_end(g->index) < p->log->leo && kw_entry_next(&q, end, &e) == 1) err = take_entry(g, &e, now);
    if (err != KW_OK) again(g, now.mono_us + RETRY_US);
    g->ready = kb_guid_end(g->index) == p->log->leo;
    hold(g);
}

void kb_guids_cut_back(struct kb_partition *p, struct kb_now now) {
    struct kb_guids *g = p->guids;
    if (!g) return;
    if (g->state == STOPPING && kb_guid_end(g->index) > p->log->leo) /* it waits for the log to be written so far */
        (void)!kb_guid_add(g->index, p->log->leo, p->log->leo, NULL, 0, now);
    if (g->state != OPEN) return;
    if (g->reading) {
        kb_read_cancel(&g->read);
        g->reading = false;
    }
    step(g, now);
}

/* ---- Life ---- */

static void guids_free(struct kb_guids *g) {
    kw_list_remove(&g->link);
    kw_timers_cancel(&g->node->parts.timers, &g->timer);
    kw_free(g);
}

static void close_index(struct kb_guids *g) {
    if (g->reading) kb_read_cancel(&g->read);
    g->reading = false;
    add_stats(&g->node->guids->gone, g);
    kb_guid_free(g->index);
    g->index = NULL;
}

static void cut_stored(void *ctx, struct kb_now now) {
    struct kb_guids *g = ctx;
    void (*done)(void *, struct kb_now) = g->cut_done;
    g->cutting = false;
    g->cut_done = NULL;
    struct kb_partition *p = g->p;
    if (p) {
        done(g->cut_ctx, now); /* cuts the log, most likely; else the index catches up */
        kb_guids_look(p, now);
        return;
    }
    void *of = g->cut_ctx;
    close_index(g);
    guids_free(g);
    done(of, now);
}

static void opened(void *ctx, struct kb_guid_index *index, kw_err err, struct kb_now now) {
    struct kb_guids *g = ctx;
    g->index = index;
    if (err != KW_OK) {
        KB_SAY(g->node, KB_ERROR, "%s: the GUID index cannot be opened (%s); it is tried again", g->log->dir,
               err == KW_ENOMEM ? "out of memory" : "the disk failed");
        again(g, now.mono_us + 10 * RETRY_US);
        if (g->cut_waits) { /* its masks are not stored: the leader epochs will tell */
            g->cut_waits = false;
            g->cutting = true;
            cut_stored(g, now);
        }
        return;
    }
    g->state = OPEN;
    if (g->cut_waits) {
        g->cut_waits = false;
        g->cutting = true;
        if (kb_guid_cut(index, g->cut_to, cut_stored, g, now) == 1) cut_stored(g, now);
        return;
    }
    /* What was appended before the window began is of no use. */
    int64_t window_ms = g->p->config.guid_window_ms, wall_ms = kb_guid_wall_early(&g->node->guids->env, now);
    if (window_ms < wall_ms) kb_guid_skip(index, kb_log_since(g->log, wall_ms - window_ms, now.mono_us - window_ms * 1000));
    kb_guids_look(g->p, now); /* the topic's settings may be others by now */
}

static kw_err open_index(struct kb_guids *g, struct kb_now now) {
    struct kb_partition *p = g->p;
    struct kb_guid_open o = {.env = &g->node->guids->env,
                             .log = g->log,
                             .window_ms = p->config.guid_window_ms,
                             .trust_to = g->node->start_unclean ? KW_MAX(p->points[KB_POINT_RECOVERY], INT64_C(0)) : INT64_MAX,
                             .done = opened,
                             .went_back = went_back,
                             .ctx = g};
    return kb_guid_open(&o, &g->index, now);
}

static void start(struct kb_partition *p, struct kb_now now) {
    struct kb_guids *g = kw_calloc(1, sizeof(*g));
    if (!g) {
        KB_SAY(p->node, KB_ERROR, "no memory for the GUID index of %s-%d; it is tried again", p->topic, p->index);
        p->log->hold_from = p->log->start; /* what it has to read stays until it is there */
        return;
    }
    *g = (struct kb_guids){.node = p->node, .p = p, .log = p->log, .state = OPENING};
    kw_timer_init(&g->timer, timer_fired, g);
    kw_list_init(&g->link);
    p->guids = g;
    hold(g);
    if (open_index(g, now) != KW_OK) again(g, now.mono_us + RETRY_US);
}

static void removal_done(void *ctx, struct kb_now now) {
    struct kb_guids *g = ctx;
    struct kb_partition *p = g->p;
    guids_free(g);
    if (!p) return;
    p->guids = NULL;
    kb_guids_look(p, now); /* switched on again meanwhile */
}

static void stop_dedup(struct kb_guids *g, struct kb_now now) {
    struct kb_partition *p = g->p;
    if (g->state != OPEN || g->cutting || !g->index) return; /* as soon as it is */
    struct kb_guid_index *ix = g->index;
    struct kb_guids_stats before = g->node->guids->gone;
    add_stats(&g->node->guids->gone, g);
    kb_guids_tell_users(p);
    if (kb_guid_remove(ix, removal_done, g) != KW_OK) {
        g->node->guids->gone = before;
        again(g, now.mono_us + RETRY_US);
        return;
    }
    if (g->reading) kb_read_cancel(&g->read);
    g->reading = false;
    kw_timers_cancel(&g->node->parts.timers, &g->timer);
    g->index = NULL;
    g->state = REMOVING;
    g->ready = false;
    p->log->hold_from = INT64_MAX;
    kb_purgatory_moved(p, now);
}

void kb_guids_look(struct kb_partition *p, struct kb_now now) {
    struct kb_guids *g = p->guids;
    bool wanted = kb_guids_wanted(p);
    if (KW_LIKELY(!g && !wanted)) return;
    if (g && g->state == STOPPING) kb_guid_work(g->index, now);
    if (p->state != KB_PART_ONLINE || p->node->partitions->stopping || (g && g->state >= STOPPING)) return;
    if (!g) {
        start(p, now);
    } else if (!wanted) {
        stop_dedup(g, now);
    } else if (g->state == OPEN) {
        kb_guid_window_set(g->index, p->config.guid_window_ms);
        kb_guid_work(g->index, now);
        step(g, now);
    } else if (g->index) { /* being opened: what it holds is judged by the window of then */
        kb_guid_window_set(g->index, p->config.guid_window_ms);
    } else if (!kw_timer_armed(&g->timer) && open_index(g, now) != KW_OK) {
        again(g, now.mono_us + RETRY_US);
    }
}

void kb_guids_left(struct kb_partition *p) {
    struct kb_guids *g = p->guids;
    if (!g) return;
    kb_guids_tell_users(p);
    p->guids = NULL;
    g->p = NULL;
    if (p->log) p->log->hold_from = INT64_MAX;
    kw_timers_cancel(&g->node->parts.timers, &g->timer);
    if (g->state == REMOVING || g->cutting || g->cut_waits) { /* it ends by itself */
        if (g->reading) kb_read_cancel(&g->read);
        g->reading = false;
        kw_list_push(&g->node->guids->leaving, &g->link);
        return;
    }
    bool stopping = g->state == STOPPING;
    close_index(g);
    guids_free(g);
    if (stopping) kb_partitions_part_stopped(p->node, p->node->now);
}

static void dropped(struct kb_guids *g) {
    g->p = NULL;
    if (g->state == REMOVING) return; /* its end comes back to it yet */
    if (g->index) close_index(g);
    guids_free(g);
}

void kb_guids_dropped(struct kb_node *n) {
    for (struct kb_partition *p = NULL; (p = kb_partitions_next(n, p));) {
        if (p->guids) dropped(p->guids);
        p->guids = NULL;
    }
    for (struct kw_list *l; n->guids && (l = kw_list_shift(&n->guids->leaving));) dropped(KW_CONTAINER_OF(l, struct kb_guids, link));
}

bool kb_guids_cut(struct kb_partition *p, int64_t to, void (*done)(void *ctx, struct kb_now now), void *ctx, struct kb_now now) {
    struct kb_guids *g = p->guids;
    if (!g || g->state >= STOPPING || (g->state == OPENING && !g->index)) return true;
    KW_ASSERT(!g->cutting && !g->cut_waits);
    if (g->reading) kb_read_cancel(&g->read);
    g->reading = g->ready = false;
    g->cut_to = to;
    g->cut_done = done;
    g->cut_ctx = ctx;
    if (g->state == OPENING) {
        g->cut_waits = true;
        return false;
    }
    if (kb_guid_cut(g->index, to, cut_stored, g, now) == 1) {
        g->cut_done = NULL;
        return true;
    }
    g->cutting = true;
    return false;
}

void kb_guids_housekeep(struct kb_partition *p, struct kb_now now) {
    struct kb_guids *g = p->guids;
    if (!g) kb_guids_look(p, now); /* it may not have been begun for want of memory */
    if (!g || !g->index || g->state != OPEN) return;
    kb_guid_work(g->index, now);
    if (g->state != OPEN || !g->index) return;
    step(g, now);
    hold(g);
}

static void stopped(void *ctx, struct kb_now now) {
    struct kb_guids *g = ctx;
    struct kb_partition *p = g->p;
    kb_guids_tell_users(p);
    p->guids = NULL;
    close_index(g);
    guids_free(g);
    kb_partitions_part_stopped(p->node, now);
}

bool kb_guids_stop(struct kb_partition *p, struct kb_now now) {
    struct kb_guids *g = p->guids;
    if (!g || g->state != OPEN || g->cutting) return true;
    if (g->reading) kb_read_cancel(&g->read);
    g->reading = false;
    kw_timers_cancel(&g->node->parts.timers, &g->timer);
    g->state = STOPPING;
    if (kb_guid_shutdown(g->index, stopped, g, now) == KW_OK) return false;
    g->state = OPEN; /* no memory: the next start reads the log */
    return true;
}
