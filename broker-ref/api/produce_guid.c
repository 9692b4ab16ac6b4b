/* produce_guid.c - contract: produce_guid.h. The way of one batch, and of those that wait before it: the gate. The answer: produce_guid_answer.c.
 *
 * A batch is decided on in one step: what its ids were found to be, the batch that is appended, and what the index is told of it. Only then is the next
 * one looked at, by all checks, from the first on: its sequence counts from what this one left.
 */
#include "produce_guid.h"

#include "log/log.h"
#include "node_priv.h"
#include "produce_guid_priv.h"
#include "quorum/effective.h"

enum { SPARE_MAX = 4 };

/* ---- Of a node ---- */

struct kb_produce_guids {
    struct kw_list spare; /* struct kb_dedup */
    size_t spare_count;
    struct kb_produce_guid_counts counts;
};

struct kb_produce_guid_counts kb_produce_guid_counts(const struct kb_node *n) {
    return n->produce_guids ? n->produce_guids->counts : (struct kb_produce_guid_counts){0};
}

void kb_produce_guids_free(struct kb_node *n) {
    struct kb_produce_guids *v = n->produce_guids;
    if (!v) return;
    for (struct kw_list *l; (l = kw_list_shift(&v->spare));) kb_dedup_free(KW_CONTAINER_OF(l, struct kb_dedup, link));
    kw_free(v);
    n->produce_guids = NULL;
}

static struct kb_dedup *take_dedup(struct kb_node *n) {
    struct kb_produce_guids *v = n->produce_guids;
    if (!v) {
        n->produce_guids = v = kw_calloc(1, sizeof(*v));
        if (!v) return NULL;
        kw_list_init(&v->spare);
    }
    struct kw_list *l = kw_list_shift(&v->spare);
    if (!l) return kb_dedup_new(&n->parts.rng);
    v->spare_count--;
    return KW_CONTAINER_OF(l, struct kb_dedup, link);
}

static void give_dedup(struct kb_node *n, struct kb_dedup *d) {
    struct kb_produce_guids *v = n->produce_guids;
    if (!d) return;
    if (v->spare_count == SPARE_MAX) {
        kb_dedup_free(d);
        return;
    }
    kb_dedup_trim(d);
    kw_list_push(&v->spare, &d->link);
    v->spare_count++;
}

/* ---- One batch ---- */

static void found_nothing_yet(struct kb_gated *g) {
    if (g->finding) kw_list_remove(&g->user.link);
    g->finding = false;
}

static void let_go(struct kb_gated *g) {
    if (g->finding) kb_guid_find_cancel(&g->find);
    found_nothing_yet(g);
    kw_blk_unref(g->c.blk);
    g->c.blk = NULL;
    give_dedup(g->s->rq->node, g->d);
    g->d = NULL;
}

static void refuse(struct kb_gated *g, int16_t code, const char *text) {
    kb_produce_refuse(g->s, g->a, code, text);
    g->waits_for = 0;
}

static const char memory_text[] = "the broker is out of memory; try again";

/* All anew, once there is an index again. */
static void index_gone(struct kb_guid_user *u) {
    struct kb_gated *g = KW_CONTAINER_OF(u, struct kb_gated, user);
    let_go(g);
    g->busy = false;
}

/* Before anything of it is looked at, and again when its ids were found. */
static int16_t may_go_on(const struct kb_gated *g) {
    int16_t code = kb_partition_error(g->p, -1);
    if (code == KE_NONE && (g->p->leader_epoch != g->leader_epoch || g->s->rq->node->state != KB_NODE_READY)) code = KE_NOT_LEADER_OR_FOLLOWER;
    return code == KE_NONE ? kb_produce_may_write(g->s, g->p) : code;
}

/* How far it is behind the producer's last sequence that is known: of one that was stored so long ago that it is none of the last five. */
static bool is_behind(const struct kb_pid_state *pids, const struct kw_batch_header *h) {
    const struct kb_pid_entry *e = kb_pid_get(pids, h->producer_id);
    if (!e || e->epoch != h->producer_epoch || e->batch_count == 0) return false;
    const struct kb_pid_batch *oldest = &e->batches[0];
    uint32_t end = ((uint32_t)h->base_sequence + (uint32_t)h->last_offset_delta + 1) & INT32_MAX; /* sequences wrap at 2^31 */
    uint32_t gap = ((uint32_t)oldest->first_seq - end) & INT32_MAX;
    return gap < 1u << 30;
}

/* true: refused. */
static bool refuse_producer(struct kb_gated *g) {
    const struct kw_batch_header *h = &g->c.header;
    g->kind = KB_GATED_NEW;
    if (h->producer_id < 0) return false;
    enum kb_pid_verdict verdict = kb_pid_check(g->p->log->pids, h, &g->repeat);
    if (verdict == KB_PID_APPEND) return false;
    if (verdict == KB_PID_DUPLICATE) {
        g->kind = KB_GATED_REPEAT;
        return false;
    }
    g->kind = KB_GATED_BEHIND;
    if (verdict == KB_PID_OUT_OF_ORDER && is_behind(g->p->log->pids, h)) return false;
    kb_produce_refuse_sequence(g->s, g->a, verdict);
    return true;
}

static void refuse_ids(struct kb_gated *g) {
    enum { ERRORS_MAX = 100 };
    kb_produced *a = g->a;
    const struct kb_guid_batch *b = &g->d->batch;
    refuse(g, KE_INVALID_RECORD, "one or more records have been rejected: a header guid has 16 bytes, and a record at most one");
    a->record_errors.v = kw_arena_calloc(&g->s->rq->arena, KW_MIN(b->bad_count, (size_t)ERRORS_MAX), sizeof(*a->record_errors.v));
    for (size_t i = 0; a->record_errors.v && i < b->count && a->record_errors.n < ERRORS_MAX; i++) {
        if (b->v[i].verdict <= KB_GUID_ID) continue;
        a->record_errors.v[a->record_errors.n].batch_index = (int32_t)i;
        a->record_errors.v[a->record_errors.n++].batch_index_error_message =
            kw_str_of(b->v[i].verdict == KB_GUID_TWICE ? "it has more than one header guid" : "its header guid does not have 16 bytes");
    }
}

static kw_err take_ids(struct kb_gated *g) {
    g->d = take_dedup(g->s->rq->node);
    if (!g->d) return KW_ENOMEM;
    return kb_dedup_take(g->d, g->c.batch, g->c.size, &g->c.header, g->s->rq->node->compressor, (size_t)g->p->config.max_decompressed_bytes);
}

static int level_of(const struct kb_gated *g, int codec) {
    static const char *const names[KW_CODEC_COUNT] = {NULL, "compression.gzip.level", NULL, "compression.lz4.level", "compression.zstd.level"};
    struct kb_node *n = g->s->rq->node;
    if (g->p->config.compression != codec || !names[codec]) return KW_LEVEL_DEFAULT;
    return (int)kb_effective_topic_int(&n->image, n->parts.config, kw_str_of(g->p->topic), names[codec]);
}

/* Without the records that are there already. */
static kw_err rewrite(struct kb_gated *g) {
    struct kb_checked *c = &g->c;
    struct kw_blk *blk;
    size_t size;
    kw_err err = kb_dedup_rewrite(g->d, c->batch, c->size, &c->header, g->s->rq->node->compressor, level_of(g, c->header.attributes & KW_ATTR_CODEC),
                                  (size_t)g->p->config.max_decompressed_bytes, &blk, &size);
    if (err != KW_OK) return err;
    kw_blk_unref(c->blk);
    c->blk = blk;
    c->batch = blk->data;
    c->size = size;
    err = kw_batch_parse(c->batch, size, &c->header);
    c->max_timestamp = c->header.max_timestamp;
    return err;
}

/* Its ids are found: what is not there is stored. */
static void store(struct kb_gated *g) {
    struct kb_node *n = g->s->rq->node;
    struct kb_dedup *d = g->d;
    int64_t base = -1, end = 0;
    d->none_found = g->find.hits == 0;
    kw_err err = kb_dedup_judge(d);
    bool stored = d->kept > 0 || g->c.header.producer_id >= 0; /* a sequence is used up by an empty batch too */
    if (err == KW_OK && stored && d->kept < d->batch.count) err = rewrite(g);
    if (err != KW_OK) {
        refuse(g, KE_KAFKA_STORAGE_ERROR, memory_text);
        return;
    }
    if (stored && !kb_produce_append(g->s, g->p, &g->c, g->a, &base, &end)) return;
    n->produce_guids->counts.duplicates += (int64_t)(d->batch.count - d->kept);
    n->produce_guids->counts.mismatches += (int64_t)d->mismatches;
    g->waits_for = end;
    kb_gated_answer_new(g, base);
    if (stored) kb_guids_appended(g->p, base, end, d->batch.entries, kb_dedup_stored(d, base), n->now);
}

static void found(struct kb_gated *g) {
    if (g->kind == KB_GATED_NEW)
        store(g);
    else if (g->kind == KB_GATED_REPEAT)
        kb_gated_answer_repeat(g);
    else if (!kb_gated_answer_behind(g))
        kb_produce_refuse_sequence(g->s, g->a, KB_PID_OUT_OF_ORDER);
}

/* The topic was set otherwise while it waited. */
static void store_plain(struct kb_gated *g) {
    int64_t base;
    if (g->kind == KB_GATED_NEW) {
        (void)kb_produce_append(g->s, g->p, &g->c, g->a, &base, &g->waits_for);
    } else if (g->kind == KB_GATED_REPEAT) {
        kb_produce_answer_repeat(g->p, &g->repeat, g->a);
        g->waits_for = g->repeat.last_offset + 1;
    } else {
        kb_produce_refuse_sequence(g->s, g->a, KB_PID_OUT_OF_ORDER);
    }
}

static void find_done(struct kb_guid_find *f, struct kb_now now);

static kw_err ask(struct kb_gated *g) {
    struct kb_dedup *d = g->d;
    if (d->batch.entry_count == 0) return KW_OK;
    g->find = (struct kb_guid_find){.index = kb_guids_index(g->p),
                                    .ids = d->batch.entries[0].id,
                                    .stride = sizeof(*d->batch.entries),
                                    .count = d->batch.entry_count,
                                    .found = d->found,
                                    .done = find_done,
                                    .ctx = g};
    int32_t r = kb_guid_find(&g->find, g->s->rq->node->now);
    if (r == 0) {
        g->finding = true;
        g->user.gone = index_gone;
        kw_list_push(&g->p->guid_users, &g->user.link);
    }
    return r < 0 ? r : KW_OK;
}

/* true: the batch is done with, or decided on. false: it waits, for what it asked of the index, or for the index. */
static bool decide(struct kb_gated *g) {
    int16_t code = may_go_on(g);
    if (code != KE_NONE) {
        refuse(g, code, NULL);
        return true;
    }
    if (!kb_produce_take(g->s, g->p, g->data, g->a, &g->c)) return true;
    if (refuse_producer(g)) return true;
    if (!g->p->config.guid_dedup) {
        store_plain(g);
        return true;
    }
    kw_err err = take_ids(g);
    if (err == KW_ELIMIT) {
        refuse(g, KE_MESSAGE_TOO_LARGE, "a batch for a topic with message.guid.dedup holds at most 1048576 records");
        return true;
    }
    if (err == KW_OK && g->d->batch.bad_count > 0) {
        refuse_ids(g);
        return true;
    }
    if (err == KW_OK) err = ask(g);
    if (g->finding) return false;
    if (err == KW_EIO) {
        kb_guids_lost(g->p, g->s->rq->node->now);
        return false;
    }
    if (err == KW_OK) found(g);
    else refuse(g, KE_KAFKA_STORAGE_ERROR, memory_text);
    return true;
}

/* ---- The gate ---- */

static bool is_open(const struct kb_partition *p) { return !p->config.guid_dedup || kb_guids_ready(p); }

/* It is decided on: its answer goes out, or waits for what it promises. May be the end of the request. */
static void settle(struct kb_gated *g) {
    struct kb_produce *s = g->s;
    let_go(g);
    kw_list_remove(&g->link);
    if (g->w) g->w->gated = NULL;
    if (g->waits_for > 0)
        kb_produce_await(s, g->p, g->a, g->waits_for, g->w);
    else if (g->w)
        kb_produce_place_done(s, g->w);
    kb_produce_maybe_answer(s);
}

/* The first of those that wait, as long as there is one that can be decided on. */
static void run_gate(struct kb_partition *p) {
    while (!kw_list_empty(&p->guid_gate)) {
        struct kb_gated *g = KW_CONTAINER_OF(p->guid_gate.next, struct kb_gated, link);
        if (g->busy || (!is_open(p) && may_go_on(g) == KE_NONE)) return;
        g->busy = true;
        bool done = decide(g);
        g->busy = g->finding;
        if (g->finding) return;
        if (done) settle(g);
        else let_go(g); /* the index has gone back */
    }
}

static void find_done(struct kb_guid_find *f, struct kb_now now) {
    struct kb_gated *g = f->ctx;
    struct kb_partition *p = g->p;
    found_nothing_yet(g);
    int16_t code = may_go_on(g);
    if (f->err == KW_EIO || !p->config.guid_dedup) { /* all anew: once the index has read that part of the log again, or without it */
        let_go(g);
        g->busy = false;
        if (f->err == KW_EIO) kb_guids_lost(p, now);
    } else {
        if (code != KE_NONE) refuse(g, code, NULL);
        else if (f->err != KW_OK) refuse(g, KE_KAFKA_STORAGE_ERROR, memory_text);
        else if (!refuse_producer(g)) found(g); /* a full disk may have taken back what its sequence follows */
        settle(g);
    }
    run_gate(p);
}

/* The partition is kept for as long as something of it may be looked at. */
static void run_pinned(struct kb_partition *p) {
    kb_partition_pin(p);
    run_gate(p);
    kb_partition_unpin(p);
}

void kb_produce_guid_moved(struct kb_gated *g, struct kb_now now) {
    (void)now;
    struct kb_partition *p = g->p;
    int16_t code = kb_partition_error(p, -1);
    if (code == KE_NONE && p->leader_epoch != g->leader_epoch) code = KE_NOT_LEADER_OR_FOLLOWER;
    bool was_busy = g->busy && !g->finding; /* it is being decided on this moment: what moved is its own doing */
    if (was_busy) return;
    if (code != KE_NONE) {
        refuse(g, code, NULL);
        settle(g);
    }
    if (p->state != KB_PART_DELETED) run_pinned(p);
}

void kb_produce_guid(struct kb_produce *s, struct kb_partition *p, const struct kw_produce_request_partition_produce_data *d, kb_produced *a) {
    struct kb_gated *g = kw_arena_calloc(&s->rq->arena, 1, sizeof(*g));
    if (!g) {
        kb_produce_refuse(s, a, KE_KAFKA_STORAGE_ERROR, memory_text);
        return;
    }
    *g = (struct kb_gated){.s = s, .p = p, .data = d, .a = a, .leader_epoch = p->leader_epoch};
    kw_list_init(&g->link);
    if (!is_open(p)) kb_guids_look(p, s->rq->node->now); /* it may have failed for want of memory */
    if (kw_list_empty(&p->guid_gate) && is_open(p)) {
        if (decide(g)) {
            settle(g);
            return;
        }
        if (!g->finding) let_go(g);
    }
    g->busy = g->finding;
    g->w = kb_produce_place(s, p, a);
    g->w->gated = g;
    s->gated = true;
    kw_list_push(&p->guid_gate, &g->link);
    run_gate(p);
}

/* ---- The end of a request ---- */

void kb_produce_guid_drop(struct kb_produce *s) {
    for (size_t i = 0; i < s->wait_count; i++) {
        struct kb_produce_wait *w = &s->waits[i];
        if (!w->p || !w->gated) continue;
        let_go(w->gated);
        kw_list_remove(&w->gated->link);
        w->gated = NULL;
    }
}

void kb_produce_guid_leave(struct kb_produce *s, int16_t code, struct kb_now now) {
    (void)now;
    if (!s->gated) return;
    size_t n = 0;
    for (size_t i = 0; i < s->wait_count; i++) { /* all of its own first: they are not to be decided on any more */
        struct kb_produce_wait *w = &s->waits[i];
        if (!w->p || !w->gated) continue;
        struct kb_gated *g = w->gated;
        if (code != KE_NONE) refuse(g, code, "the records were not appended: the index of the partition's GUIDs was not there within the request's timeout");
        let_go(g);
        kw_list_remove(&g->link);
        w->gated = NULL;
        kb_partition_pin(w->p);
        w->end = -1;
        n++;
    }
    for (size_t i = 0; n > 0 && i < s->wait_count; i++) {
        struct kb_produce_wait *w = &s->waits[i];
        struct kb_partition *p = w->p;
        if (!p || w->end != -1) continue;
        kb_produce_place_done(s, w);
        w->end = 0;
        n--;
        run_gate(p);
        kb_partition_unpin(p);
    }
}
