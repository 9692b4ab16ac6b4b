/* coordinator_store.c - what groups and commits store: records collected over a turn, appended as one batch, answered when the replicas
 * have them.
 *
 * Called by coordinator.c, by groups (env->store) and api/ (commits). Calls group_record, log, replica/partition, replica/isr.
 *
 * An answer may come before the end is known (too few replicas in sync, or the time is up): the record is in the log then and may come to
 * count.
 */
#include "coordinator_priv.h"

#include "replica/isr.h"

/* ---- Into the batch ---- */

int16_t kb_shard_room(struct kb_shard *s) {
    if (s->state != KB_SHARD_SERVING) return KE_NOT_COORDINATOR;
    if (kb_partition_error(s->p, -1) != KE_NONE || s->p->leader_epoch != s->epoch) return KE_NOT_COORDINATOR;
    return kb_isr_enough(s->p) ? KE_NONE : KE_COORDINATOR_NOT_AVAILABLE;
}

int16_t kb_shard_put(struct kb_shard *s, kw_err (*add)(struct kb_group_batch *b, void *ctx), void *ctx, int32_t *first, struct kb_now now) {
    int16_t code = kb_shard_room(s);
    if (code) return code;
    for (;;) {
        size_t size = kb_group_batch_size(&s->batch);
        int32_t count = s->batch.count;
        kw_err err = add(&s->batch, ctx);
        if (!err && kb_group_batch_size(&s->batch) <= (size_t)s->p->config.max_message_bytes) {
            *first = count;
            return KE_NONE;
        }
        kb_group_batch_cut(&s->batch, size, count);
        if (err) return KE_COORDINATOR_NOT_AVAILABLE;
        if (count == 0) return KE_RECORD_LIST_TOO_LARGE;
        kb_shard_flush(s, now); /* the batch is full: this goes into the next */
    }
}

void kb_shard_write(struct kb_shard *s, struct kb_group_write *w, int32_t first, struct kb_now now) {
    w->shard = s;
    w->first = first;
    w->count = s->batch.count - first;
    w->deadline_us = now.mono_us + s->c->commit_timeout_us;
    kw_list_init(&w->link);
    kw_list_push(&s->unsent, &w->link);
    kb_shard_touch(s);
}

/* ---- Into the log ---- */

static void answer(struct kb_group_write *w, int16_t code, struct kb_now now) {
    if (w->answered) return;
    w->answered = true;
    w->answer(w, code, now);
}

static void fail_all(struct kw_list *list, int16_t code, struct kb_now now) {
    struct kw_list failed, *l;
    kw_list_init(&failed);
    while ((l = kw_list_shift(list))) kw_list_push(&failed, l);
    while ((l = kw_list_shift(&failed))) {
        struct kb_group_write *w = KW_CONTAINER_OF(l, struct kb_group_write, link);
        answer(w, code, now);
        w->settle(w, false, now);
    }
}

void kb_shard_fail_writes(struct kb_shard *s, int16_t code, struct kb_now now) {
    kb_group_batch_cut(&s->batch, KW_BATCH_HEADER_SIZE, 0);
    fail_all(&s->sent, code, now);
    fail_all(&s->unsent, code, now);
}

static void arm(struct kb_shard *s) {
    for (struct kw_list *l = s->sent.next; l != &s->sent; l = l->next) {
        struct kb_group_write *w = KW_CONTAINER_OF(l, struct kb_group_write, link);
        if (w->answered) continue;
        (void)!kb_waiter_arm(&s->waiter, s->c->node, w->deadline_us); /* without memory nobody is told that it takes long */
        return;
    }
    kw_timers_cancel(&s->c->node->parts.timers, &s->waiter.timer);
}

void kb_shard_flush(struct kb_shard *s, struct kb_now now) {
    struct kb_partition *p = s->p;
    struct kb_log_append a = {.leader_epoch = s->epoch, .max_timestamp = now.wall_ms};
    if (s->batch.count == 0) return;
    kw_err err = kb_group_batch_finish(&s->batch, now.wall_ms, &a.blk, &a.size);
    if (!err) {
        a.batch = a.blk->data;
        err = kb_log_append(p->log, &a, now);
        kw_blk_unref(a.blk);
    }
    if (err) {
        kb_group_batch_cut(&s->batch, KW_BATCH_HEADER_SIZE, 0);
        fail_all(&s->unsent, err == KW_EIO ? KE_NOT_COORDINATOR : KE_COORDINATOR_NOT_AVAILABLE, now);
        return;
    }
    kb_partition_dirty(p);
    for (struct kw_list *l; (l = kw_list_shift(&s->unsent));) {
        struct kb_group_write *w = KW_CONTAINER_OF(l, struct kb_group_write, link);
        w->offset = a.base_offset + w->first;
        kw_list_push(&s->sent, &w->link);
    }
    arm(s);
}

void kb_shard_progress(struct kb_shard *s, struct kb_now now) {
    struct kb_partition *p = s->p;
    while (s->state == KB_SHARD_SERVING && !kw_list_empty(&s->sent)) {
        struct kb_group_write *w = KW_CONTAINER_OF(s->sent.next, struct kb_group_write, link);
        int64_t end = w->offset + w->count;
        bool taken_back = end > p->log->leo; /* the disk was full */
        if (!taken_back && p->hw < end) break;
        kw_list_remove(&w->link);
        answer(w, taken_back ? KE_COORDINATOR_NOT_AVAILABLE : KE_NONE, now);
        w->settle(w, !taken_back, now);
    }
    bool enough = kb_isr_enough(p);
    for (struct kw_list *l = s->sent.next, *next; s->state == KB_SHARD_SERVING && l != &s->sent; l = next) {
        struct kb_group_write *w = KW_CONTAINER_OF(l, struct kb_group_write, link);
        next = l->next;
        if (!enough || w->deadline_us <= now.mono_us) answer(w, KE_COORDINATOR_NOT_AVAILABLE, now);
    }
    arm(s);
}

/* ---- A group's state ---- */

struct group_write {
    struct kb_group_write w;
    struct kb_group_entry *e;
    uint64_t number;
};

static void group_answer(struct kb_group_write *w, int16_t code, struct kb_now now) {
    struct group_write *g = KW_CONTAINER_OF(w, struct group_write, w);
    kb_group_stored(g->e->group, g->number, code, now);
}

static void group_settle(struct kb_group_write *w, bool stored, struct kb_now now) {
    (void)stored, (void)now;
    kw_free(KW_CONTAINER_OF(w, struct group_write, w));
}

static kw_err add_group(struct kb_group_batch *b, void *ctx) {
    const struct kb_group *g = ctx;
    struct kw_group_metadata_value v;
    struct kw_arena a;
    kw_arena_init(&a, 0);
    kw_err err = kb_group_record(g, &a, &v);
    if (!err) err = kb_group_batch_group(b, kb_group_id(g), &v);
    kw_arena_deinit(&a);
    return err;
}

/* It would fail the next time, too: members are not to look for another coordinator. */
static int16_t too_large(const struct kb_group_entry *e) {
    struct kw_str id = kb_group_id(e->group);
    KB_SAY(e->shard->c->node, KB_WARN, "group %.*s: what its %d members say and are assigned is more than a record of %s may hold; raise its max.message.bytes",
           KW_MIN(id.len, 200), id.p, (int)kb_group_size(e->group), KB_OFFSETS_TOPIC);
    return KE_UNKNOWN_SERVER_ERROR;
}

void kb_coordinator_store_group(struct kb_group *g, uint64_t number, struct kb_now now) {
    struct kb_group_entry *e = kb_group_owner(g);
    struct group_write *w = kw_calloc(1, sizeof(*w));
    int32_t first;
    int16_t code = w ? kb_shard_put(e->shard, add_group, g, &first, now) : KE_COORDINATOR_NOT_AVAILABLE;
    if (code) {
        kw_free(w);
        e->failed_store = number; /* told at the end of the turn */
        e->failed_code = code == KE_RECORD_LIST_TOO_LARGE ? too_large(e) : code;
        kb_group_entry_tidy(e);
        return;
    }
    w->w.answer = group_answer;
    w->w.settle = group_settle;
    w->e = e;
    w->number = number;
    kb_shard_write(e->shard, &w->w, first, now);
}

/* ---- Commits ---- */

struct kb_commit {
    struct kb_group_write w;
    struct kb_group_entry *e;
    bool removes, deletes;                                    /* deletes: the group's own record, too */
    void (*done)(void *ctx, int16_t code, struct kb_now now); /* NULL: nobody waits */
    void *ctx;
    size_t count;
    struct commit_item {
        struct kb_offset_entry *entry;
        struct kb_offset v;
    } items[];
};

static kw_err add_commit(struct kb_group_batch *b, void *ctx) {
    const struct kb_commit *c = ctx;
    struct kw_str id = kb_group_id(c->e->group);
    kw_err err = KW_OK;
    for (size_t i = 0; i < c->count && !err; i++) {
        const struct kb_offset_entry *e = c->items[i].entry;
        err =
            kb_group_batch_offset(b, id, (struct kw_str){e->topic->name, e->topic->len}, e->partition, c->removes ? NULL : &c->items[i].v);
    }
    return !err && c->deletes ? kb_group_batch_group(b, id, NULL) : err;
}

static void commit_free(struct kb_commit *c) {
    for (size_t i = 0; i < c->count; i++) {
        if (c->removes) c->items[i].entry->removing = false;
        kb_committed_end(&c->e->offsets, c->items[i].entry, -1, NULL);
        kw_free(c->items[i].v.metadata);
    }
    c->e->changes--;
    kw_free(c);
}

static void commit_answer(struct kb_group_write *w, int16_t code, struct kb_now now) {
    struct kb_commit *c = KW_CONTAINER_OF(w, struct kb_commit, w);
    if (c->done) c->done(c->ctx, code, now);
    c->done = NULL;
}

static void commit_settle(struct kb_group_write *w, bool stored, struct kb_now now) {
    struct kb_commit *c = KW_CONTAINER_OF(w, struct kb_commit, w);
    struct kb_group_entry *e = c->e;
    (void)now;
    for (size_t i = 0; i < c->count; i++) {
        struct kb_offset_entry *o = c->items[i].entry;
        if (c->removes) o->removing = false;
        if (stored && c->removes)
            kb_committed_forget(&e->offsets, (struct kw_str){o->topic->name, o->topic->len}, o->partition, w->offset + (int64_t)i);
        kb_committed_end(&e->offsets, o, w->offset + (int64_t)i, stored && !c->removes ? &c->items[i].v : NULL);
        kw_free(c->items[i].v.metadata);
    }
    e->changes--;
    if (stored && c->deletes && kb_group_is_unused(e->group) && e->offsets.entries == 0 && e->changes == 0)
        kb_shard_drop_group(e, KE_NONE);
    else
        kb_group_entry_tidy(e);
    kw_free(c);
}

static int16_t commit_begin(struct kb_commit *c, struct kb_now now) {
    int32_t first;
    int16_t code = kb_shard_put(c->e->shard, add_commit, c, &first, now);
    if (code) {
        commit_free(c);
        return code == KE_RECORD_LIST_TOO_LARGE ? KE_INVALID_COMMIT_OFFSET_SIZE : code;
    }
    c->w.answer = commit_answer;
    c->w.settle = commit_settle;
    kb_shard_write(c->e->shard, &c->w, first, now);
    return KE_NONE;
}

static struct kb_commit *commit_new(struct kb_group_entry *e, size_t count, kb_commit_done *done, void *ctx) {
    struct kb_commit *c = kw_calloc(1, sizeof(*c) + count * sizeof(c->items[0]));
    if (!c) return NULL;
    c->e = e;
    e->changes++;
    c->done = done;
    c->ctx = ctx;
    return c;
}

int16_t kb_coordinator_commit(struct kb_group_entry *e, struct kb_commit_item *items, size_t count, kb_commit_done *done, void *ctx,
                              struct kb_now now, struct kb_commit **out) {
    struct kb_commit *c = commit_new(e, count, done, ctx);
    if (!c) return KE_COORDINATOR_NOT_AVAILABLE;
    for (size_t i = 0; i < count; i++) {
        if (items[i].skip) continue;
        struct commit_item *it = &c->items[c->count];
        it->v = items[i].v;
        it->v.metadata = it->v.metadata_size > 0 ? kw_memdup(items[i].v.metadata, (size_t)it->v.metadata_size) : NULL;
        if ((it->v.metadata_size > 0 && !it->v.metadata) ||
            kb_committed_begin(&e->offsets, items[i].topic, items[i].partition, &it->entry)) {
            kw_free(it->v.metadata);
            commit_free(c);
            return KE_COORDINATOR_NOT_AVAILABLE;
        }
        c->count++;
    }
    int16_t code = commit_begin(c, now);
    if (!code) *out = c;
    return code;
}

int16_t kb_coordinator_remove(struct kb_group_entry *e, bool (*which)(void *arg, const struct kb_offset_entry *o), void *arg, size_t max,
                              bool group, kb_commit_done *done, void *ctx, struct kb_now now, struct kb_commit **out) {
    size_t room = KW_MIN(max, e->offsets.stored);
    struct kb_commit *c = commit_new(e, room, done, ctx);
    struct kb_offset_entry *o;
    bool stays = false; /* anything that is stored and not about to go */
    if (!c) return KE_COORDINATOR_NOT_AVAILABLE;
    c->removes = true;
    for (struct kb_committed_walk w = {0}; (o = kb_committed_next(&e->offsets, &w));) {
        if (o->log_offset < 0 || o->removing) continue;
        if (c->count == room || (which && !which(arg, o))) {
            stays = true;
            continue;
        }
        o->pending++;
        o->removing = true;
        c->items[c->count++].entry = o;
    }
    c->deletes = group && !stays;
    *out = NULL;
    if (c->count == 0 && !c->deletes) {
        commit_free(c);
        return KE_NONE;
    }
    int16_t code = commit_begin(c, now);
    if (!code) *out = c;
    return code;
}

void kb_commit_forget(struct kb_commit *c) {
    c->done = NULL;
}
