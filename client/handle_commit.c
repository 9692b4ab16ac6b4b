/* handle_commit.c - the public side of commits: kc_consumer_commit, _committed, _processed, _lag; what is committed before a consumer closes.
 *
 * Calls handle_consumer.h, loop.h, consume/commit.h.
 */
#include "handle_consumer.h"

#include "consume/group.h"

static kc_err enter_group(kc_consumer *c, const void *parts, size_t stride, size_t size, size_t n, const char *what, kc_error **error) {
    kc_err err = kc_consumer_enter_each(c, parts, stride, size, n);
    if (err == KC_OK && !c->consume.commits) {
        kc_error_make(error, KC_CONFIG, KC_NOT_PERSISTED, NULL, "%s: group.id is not set", what);
        return KC_CONFIG;
    }
    if (err != KC_OK) kc_error_make(error, err, KC_NOT_PERSISTED, NULL, "%s: %s", what, kc_err_text(err));
    return err;
}

static const char *name_of(const struct kc_op *op, int32_t topic) {
    const char *name = kc_client_topic_name(op->client, topic);
    return name ? name : "?";
}

/* It could not be filled: nobody hears of it. */
static kc_err discard(struct kc_op *op, kc_err err, const char *what, kc_error **error) {
    kc_error_make(error, err, KC_NOT_PERSISTED, NULL, "%s: %s", what, kc_err_text(err));
    op->quiet = true;
    kc_op_complete(op, err, NULL);
    kc_op_free(op);
    return err;
}

static kc_topic_partition part_of(const kc_offset *at) {
    return (kc_topic_partition){at->topic, at->partition, at->offset, at->leader_epoch, at->err};
}

/* ---- Commit ---- */

struct commit_op {
    struct kc_op op;
    kc_consumer *consumer; /* its core part: the call is in its list, which keeps it alive */
    struct kc_commit_call call;
    uint8_t *metadata; /* of all items, copied */
};

static void commit_done(struct kc_commit_call *call) {
    struct commit_op *o = call->ctx;
    const struct kc_commit_item *bad = NULL;
    kc_error *error = NULL;
    bool maybe = false;
    for (size_t i = 0; i < call->count; i++) {
        const struct kc_commit_item *it = &call->items[i];
        if (it->at.err == KC_OK) continue;
        if (!bad) bad = it;
        maybe |= it->sent && kc_err_retriable(it->at.err);
    }
    kc_err err = bad ? bad->at.err : KC_OK;
    if (bad)
        kc_error_make(&error, err, maybe ? KC_MAYBE_PERSISTED : KC_NOT_PERSISTED, call->attempts, "commit of offset %lld of %s [%d] for group %s: %s",
                      (long long)bad->at.offset, name_of(&o->op, bad->at.topic), (int)bad->at.partition, o->consumer->settings->group_id,
                      kc_err_text(err));
    kc_op_complete(&o->op, err, error);
}

/* Also when the consumer was closed since: what was begun before the close is not refused by it. */
static void commit_begin(struct kc_op *op) {
    struct commit_op *o = KW_CONTAINER_OF(op, struct commit_op, op);
    o->call.done = commit_done;
    o->call.ctx = o;
    kc_commits_call(o->consumer->consume.commits, &o->call);
}

static void commit_cancel(struct kc_op *op) {
    struct commit_op *o = KW_CONTAINER_OF(op, struct commit_op, op);
    kc_commits_call_cancel(o->consumer->consume.commits, &o->call, KC_CANCELLED);
}

static void commit_deinit(struct kc_op *op) {
    struct commit_op *o = KW_CONTAINER_OF(op, struct commit_op, op);
    kc_attempts_unref(o->call.attempts);
    kw_free(o->call.items);
    kw_free(o->metadata);
}

static size_t commit_result(const struct kc_op *op, kc_topic_partition *out, size_t stride, size_t max) {
    const struct commit_op *o = KW_CONTAINER_OF(op, struct commit_op, op);
    for (size_t i = 0; i < o->call.count && i < max; i++) *KW_AT(kc_topic_partition, out, stride, i) = part_of(&o->call.items[i].at);
    return o->call.count;
}

/* The application's items, with their metadata. */
static kc_err copy_items(struct commit_op *o, const kc_offset *offsets, size_t stride, size_t n) {
    size_t size = 0, used = 0;
    for (size_t i = 0; i < n; i++) {
        const kc_bytes *m = &KW_AT(const kc_offset, offsets, stride, i)->metadata;
        if (m->size > 0 && !m->p) return KC_INVALID;
        if (m->size <= INT16_MAX) size += m->size; /* a longer one is refused, and not read */
    }
    o->call.items = kw_calloc(n ? n : 1, sizeof *o->call.items);
    o->metadata = kw_malloc(size ? size : 1);
    if (!o->call.items || !o->metadata) return KC_NO_MEMORY;
    for (size_t i = 0; i < n; i++) {
        kc_offset *at = &o->call.items[i].at;
        *at = *KW_AT(const kc_offset, offsets, stride, i);
        at->err = KC_OK;
        if (at->metadata.size == 0 || at->metadata.size > INT16_MAX) continue;
        memcpy(o->metadata + used, at->metadata.p, at->metadata.size);
        at->metadata.p = o->metadata + used;
        used += at->metadata.size;
    }
    o->call.count = n;
    return KC_OK;
}

static kc_err commit_make(kc_consumer *c, const kc_offset *offsets, size_t stride, size_t n, int64_t timeout_us, uint64_t opaque, kc_op **op,
                          kc_error **error) {
    struct kc_op *made = NULL;
    kc_err err = enter_group(c, offsets, stride, sizeof *offsets, n, "commit", error);
    if (err == KC_OK) err = kc_op_new(c->client, sizeof(struct commit_op), opaque, commit_begin, commit_cancel, commit_deinit, &made, error);
    if (err != KC_OK) return err;
    struct commit_op *o = KW_CONTAINER_OF(made, struct commit_op, op);
    struct kc_commits *m = c->consume.commits;
    made->offsets = commit_result;
    o->consumer = c;
    o->call.deadline_us = kc_deadline_after(timeout_us != 0 ? timeout_us : c->settings->api_timeout_us);
    if (offsets) {
        err = copy_items(o, offsets, stride, n);
        if (err == KC_OK) kc_commits_stamp(m, o->call.items, n);
    } else {
        err = kc_commits_gather(m, &o->call.items, &o->call.count);
    }
    if (err != KC_OK) return discard(made, err, "commit", error);
    *op = made;
    return KC_OK;
}

kc_err kc_consumer_commit_start(kc_consumer *c, const kc_offset *offsets, size_t stride, size_t n, uint64_t opaque, kc_op **op,
                                kc_error **error) {
    kc_op *made = NULL;
    if (!op) return KC_INVALID;
    kc_err err = commit_make(c, offsets, stride, n, 0, opaque, &made, error);
    if (err != KC_OK) return err;
    kc_op_start(made);
    *op = made;
    return KC_OK;
}

kc_err kc_consumer_commit(kc_consumer *c, kc_offset *offsets, size_t stride, size_t n, int64_t timeout_us, kc_error **error) {
    kc_op *op = NULL;
    kc_err err = commit_make(c, offsets, stride, n, timeout_us, 0, &op, error);
    if (err != KC_OK) return err;
    err = kc_op_run(op, KC_FOREVER, error); /* the commit keeps the limit itself, and says what it was waiting for */
    const struct commit_op *o = KW_CONTAINER_OF(op, struct commit_op, op);
    for (size_t i = 0; offsets && kc_op_done(op) && i < n; i++) KW_AT(kc_offset, offsets, stride, i)->err = o->call.items[i].at.err;
    kc_op_free(op);
    return err;
}

/* ---- Committed ---- */

struct committed_op {
    struct kc_op op;
    kc_consumer *consumer;
    struct kc_committed_query query;
};

static void committed_done(struct kc_committed_query *q) {
    struct committed_op *o = q->ctx;
    kc_err err = KC_OK;
    kc_error *error = NULL;
    for (size_t i = 0; i < q->count && err == KC_OK; i++) {
        const kc_offset *at = &q->items[i].at;
        err = at->err;
        if (err != KC_OK)
            kc_error_make(&error, err, KC_NOT_PERSISTED, q->attempts, "committed offset of %s [%d] of group %s: %s", name_of(&o->op, at->topic),
                          (int)at->partition, o->consumer->settings->group_id, kc_err_text(err));
    }
    kc_op_complete(&o->op, err, error);
}

static void committed_begin(struct kc_op *op) {
    struct committed_op *o = KW_CONTAINER_OF(op, struct committed_op, op);
    o->query.done = committed_done;
    o->query.ctx = o;
    kc_commits_query(o->consumer->consume.commits, &o->query);
}

static void committed_cancel(struct kc_op *op) {
    struct committed_op *o = KW_CONTAINER_OF(op, struct committed_op, op);
    kc_commits_query_cancel(o->consumer->consume.commits, &o->query, KC_CANCELLED);
}

static void committed_deinit(struct kc_op *op) {
    struct committed_op *o = KW_CONTAINER_OF(op, struct committed_op, op);
    for (size_t i = 0; i < o->query.count; i++) kw_free(o->query.items[i].metadata);
    kw_free(o->query.items);
    kc_attempts_unref(o->query.attempts);
}

static size_t committed_result(const struct kc_op *op, kc_topic_partition *out, size_t stride, size_t max) {
    const struct committed_op *o = KW_CONTAINER_OF(op, struct committed_op, op);
    for (size_t i = 0; i < o->query.count && i < max; i++) *KW_AT(kc_topic_partition, out, stride, i) = part_of(&o->query.items[i].at);
    return o->query.count;
}

size_t kc_op_result_committed(const kc_op *op, kc_offset *out, size_t stride, size_t max) {
    if (!op || op->start != committed_begin || !kc_op_done(op) || (max > 0 && (!out || stride < sizeof *out))) return 0;
    const struct committed_op *o = KW_CONTAINER_OF(op, struct committed_op, op);
    for (size_t i = 0; i < o->query.count && i < max; i++) *KW_AT(kc_offset, out, stride, i) = o->query.items[i].at;
    return o->query.count;
}

static kc_err committed_make(kc_consumer *c, const kc_topic_partition *parts, size_t stride, size_t n, int64_t timeout_us, uint64_t opaque,
                             kc_op **op, kc_error **error) {
    struct kc_op *made = NULL;
    kc_err err = enter_group(c, parts, stride, sizeof *parts, n, "committed offsets", error);
    if (err == KC_OK)
        err = kc_op_new(c->client, sizeof(struct committed_op), opaque, committed_begin, committed_cancel, committed_deinit, &made, error);
    if (err != KC_OK) return err;
    struct committed_op *o = KW_CONTAINER_OF(made, struct committed_op, op);
    made->offsets = committed_result;
    o->consumer = c;
    o->query.deadline_us = kc_deadline_after(timeout_us != 0 ? timeout_us : c->settings->api_timeout_us);
    o->query.items = kw_calloc(n ? n : 1, sizeof *o->query.items);
    if (!o->query.items) return discard(made, KC_NO_MEMORY, "committed offsets", error);
    o->query.count = n;
    for (size_t i = 0; i < n; i++) {
        const kc_topic_partition *tp = KW_AT(const kc_topic_partition, parts, stride, i);
        o->query.items[i].at = (kc_offset){.topic = tp->topic, .partition = tp->partition, .offset = -1, .leader_epoch = -1};
    }
    *op = made;
    return KC_OK;
}

kc_err kc_consumer_committed_start(kc_consumer *c, const kc_topic_partition *parts, size_t stride, size_t n, uint64_t opaque, kc_op **op,
                                   kc_error **error) {
    kc_op *made = NULL;
    if (!op) return KC_INVALID;
    kc_err err = committed_make(c, parts, stride, n, 0, opaque, &made, error);
    if (err != KC_OK) return err;
    kc_op_start(made);
    *op = made;
    return KC_OK;
}

kc_err kc_consumer_committed(kc_consumer *c, kc_topic_partition *parts, size_t stride, size_t n, int64_t timeout_us, kc_error **error) {
    kc_op *op = NULL;
    kc_err err = committed_make(c, parts, stride, n, timeout_us, 0, &op, error);
    if (err != KC_OK) return err;
    err = kc_op_run(op, KC_FOREVER, error);
    if (kc_op_done(op)) (void)kc_op_result_offsets(op, parts, stride, n);
    kc_op_free(op);
    return err;
}

/* ---- Processed, lag ---- */

kc_err kc_consumer_processed(kc_consumer *c, kc_topic_partition *parts, size_t stride, size_t n) {
    kc_err err = kc_consumer_enter_each(c, parts, stride, sizeof *parts, n);
    if (err != KC_OK) return err;
    kc_consume_processed(&c->consume, parts, stride, n, c->mode == KC_PROCESSED_EXPLICIT);
    return kc_consumer_first_error(parts, stride, n);
}

kc_err kc_consumer_lag(kc_consumer *c, kc_topic_partition *parts, size_t stride, size_t n) {
    kc_err err = kc_consumer_enter_each(c, parts, stride, sizeof *parts, n);
    if (err != KC_OK) return err;
    kc_consume_lag(&c->consume, parts, stride, n);
    return kc_consumer_first_error(parts, stride, n);
}

/* ---- Life ---- */

kc_err kc_consumer_group_new(kc_consumer *c, kc_error **error) {
    const struct kc_settings *s = c->settings;
    if (!*s->group_id) return KC_OK;
    kc_err err = kc_group_check(s, error);
    if (err != KC_OK) return err;
    if (strlen(s->group_id) > INT16_MAX) {
        kc_error_make(error, KC_CONFIG, KC_NOT_PERSISTED, NULL, "group.id is longer than %d bytes", INT16_MAX);
        return KC_CONFIG;
    }
    if (!s->auto_offset_store && c->mode != KC_PROCESSED_EXPLICIT) {
        kc_error_make(error, KC_CONFIG, KC_NOT_PERSISTED, NULL,
                      "enable.auto.offset.store=false: the application says what is processed, so the consumer must be created with KC_PROCESSED_EXPLICIT");
        return KC_CONFIG;
    }
    struct kc_commits *m;
    struct kc_commits_options o = {
        .consume = &c->consume, .group_id = kw_str_of(s->group_id), .mode = c->mode, .refused = kc_group_refused, .ctx = &c->consume};
    if (kc_commits_new(&o, &m) == KW_OK) return KC_OK;
    kc_error_make(error, KC_NO_MEMORY, KC_NOT_PERSISTED, NULL, "consumer: no memory");
    return KC_NO_MEMORY;
}

static void drained(struct kc_commit_drain *d, kc_err err) {
    kc_consumer *c = d->ctx;
    c->drained = true;
    if (err == KC_TIMED_OUT) kc_client_logf(c->client, 4, "group %s: the consumer was closed before its last commit was acknowledged", c->settings->group_id);
    if (!c->consume.stopped) kc_client_post(c->client, &c->post);
}

bool kc_consumer_drained(kc_consumer *c) {
    struct kc_commits *m = c->consume.commits;
    if (!m || !c->consume.started || c->consume.stopped) return true;
    if (c->draining) return c->drained;
    c->draining = true;
    c->drain = (struct kc_commit_drain){.deadline_us = atomic_load(&c->close_by_us), .done = drained, .ctx = c};
    kc_commits_drain(m, &c->drain);
    return c->drained;
}
