/* controller.c - a change's way: queue, claims, run, append, commit, answer. Contract: controller.h.
 *
 * Called by api/ (submit, cancel) and by the node (applied, refused, failed, activate, resign). What a change does is in controller_topics.c,
 * controller_grow.c, controller_configs.c, controller_brokers.c, controller_isr.c, controller_elect.c and controller_reassign.c. Changes validate
 * against the image, which lags behind what was appended; so whatever a change touches is claimed until it is applied, and a change that
 * wants something claimed waits, and all behind it. What touches partitions of many topics (controller_sweep.c) runs alone.
 */
#include "controller.h"

#include <stdarg.h>
#include <stdio.h>

#include "controller_priv.h"

#define CHANGE_MEMORY_MAX (64u << 20)

void kb_result_set(struct kb_result *r, int16_t code, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    r->code = code;
    vsnprintf(r->text, sizeof(r->text), fmt, ap);
    va_end(ap);
}

static struct kb_change *change_of(struct kw_list *l) {
    return KW_CONTAINER_OF(l, struct kb_change, link);
}
static struct kb_pending_change *pending_of(struct kw_list *l) {
    return KW_CONTAINER_OF(l, struct kb_pending_change, link);
}

static void fire(struct kw_timer *t, void *ctx, int64_t now_us);

kw_err kb_controller_new(const struct kb_controller_options *o, struct kb_controller **out) {
    struct kb_controller *k = kw_calloc(1, sizeof(*k));
    if (!k) return KW_ENOMEM;
    k->o = *o;
    k->single = kb_store_is_single(o->store);
    k->self = (int32_t)kb_config_int(o->config, "node.id");
    kb_sessions_init(k);
    kb_balance_init(k);
    kb_sweep_init(k);
    kw_list_init(&k->queue);
    kw_list_init(&k->waiting);
    kw_list_init(&k->finished);
    kw_map_init(&k->claims);
    kw_map_init(&k->seen);
    kw_timer_init(&k->timer, fire, k);
    kw_arena_init(&k->arena, CHANGE_MEMORY_MAX);
    *out = k;
    return KW_OK;
}

/* ---- Claims ---- */

bool kb_claim_topic(struct kw_str name, char key[KB_CLAIM_SIZE], size_t *n) {
    if (name.len <= 0 || name.len > KB_CLAIM_SIZE - 2) return false;
    key[0] = 't';
    for (int32_t i = 0; i < name.len; i++) key[i + 1] = name.p[i] == '.' ? '_' : name.p[i]; /* names that collide exclude each other */
    *n = (size_t)name.len + 1;
    return true;
}

bool kb_names_topic(struct kw_str name, char key[KB_CLAIM_SIZE], size_t *n) {
    if (name.len <= 0 || name.len > KB_CLAIM_SIZE) return false;
    memcpy(key, name.p, (size_t)name.len);
    *n = (size_t)name.len;
    return true;
}

bool kb_names_partition(struct kw_str topic, int32_t index, char key[KB_CLAIM_SIZE], size_t *n) {
    if (topic.len <= 0 || topic.len > KB_CLAIM_SIZE - 12) return false;
    *n = (size_t)snprintf(key, KB_CLAIM_SIZE, "%.*s/%d", (int)topic.len, topic.p, (int)index);
    return true;
}

/* Appended, and not yet in the image. */
static bool any_unapplied(const struct kb_controller *k) {
    return !kw_list_empty(&k->waiting) && pending_of(k->waiting.prev)->commit_offset > k->o.image->offset;
}

static bool blocked(struct kb_controller *k, struct kb_change *c) {
    char key[KB_CLAIM_SIZE];
    size_t n;
    if (k->alone || (c->kind->alone && any_unapplied(k))) return true;
    for (int32_t i = 0; i < c->count; i++)
        if (c->kind->claim && c->kind->claim(k, c, i, key, &n) && kw_map_get(&k->claims, key, n)) return true;
    return false;
}

static void drop_claims(struct kb_controller *k, struct kb_pending_change *p) {
    for (int32_t i = 0; i < p->claim_count; i++)
        if (kw_map_get(&k->claims, p->claims[i].key, p->claims[i].n) == p) kw_map_remove(&k->claims, p->claims[i].key, p->claims[i].n);
    p->claim_count = 0;
    if (k->alone == p) k->alone = NULL;
}

static void release(struct kb_controller *k, struct kb_pending_change *p) {
    drop_claims(k, p);
    kw_list_remove(&p->link);
    kw_free(p);
}

static bool same_claim(const struct kb_pending_change *p, int32_t a, int32_t b) {
    return p->claims[a].n == p->claims[b].n && memcmp(p->claims[a].key, p->claims[b].key, p->claims[a].n) == 0;
}

/* Before anything is appended, so that failing leaves nothing behind. */
static kw_err claim(struct kb_controller *k, struct kb_change *c, struct kb_pending_change **out) {
    struct kb_pending_change *p = kw_calloc(1, sizeof(*p) + (size_t)c->count * sizeof(p->claims[0]));
    if (!p) return KW_ENOMEM;
    kw_list_init(&p->link);
    p->change = c;
    p->kind = c->kind;
    for (int32_t i = 0; i < c->count; i++) {
        struct kb_claim *m = &p->claims[p->claim_count]; /* of what is answered with an error, too: it may have been changed all the same */
        if (!c->kind->claim || !c->kind->claim(k, c, i, m->key, &m->n)) continue;
        if (p->claim_count > 0 && same_claim(p, p->claim_count, p->claim_count - 1)) continue; /* partitions of one topic */
        p->claim_count++;
        if (kw_map_put(&k->claims, m->key, m->n, p)) {
            release(k, p);
            return KW_ENOMEM;
        }
    }
    *out = p;
    return KW_OK;
}

/* ---- Records of the change being run ---- */

void *kb_controller_record(struct kb_controller *k, int16_t type, int16_t version) {
    const struct kw_desc *d = kw_metadata_record_by_type(type);
    void *message = kw_arena_alloc(&k->arena, d->size);
    if (!message) return NULL;
    if (k->record_count == k->record_cap) {
        size_t cap = k->record_cap ? 2 * k->record_cap : 64;
        struct kb_store_record *v = kw_realloc(k->records, cap * sizeof(*v));
        if (!v) return NULL;
        k->records = v;
        k->record_cap = cap;
    }
    kw_msg_init(d, message);
    k->records[k->record_count++] = (struct kb_store_record){type, version, message};
    return message;
}

/* ---- Running ---- */

static void count(struct kb_controller_counts *sum, const struct kb_controller_counts *more) {
    sum->unclean_elections += more->unclean_elections;
    sum->last_known_leaders += more->last_known_leaders;
    sum->brokers_fenced += more->brokers_fenced;
}

static void fail_items(struct kb_change *c, int16_t code, const char *text) {
    for (int32_t i = 0; i < c->count; i++) {
        struct kb_result *r = c->kind->result(c, i);
        if (r->code == 0) kb_result_set(r, code, "%s", text);
    }
}

static void fail_append(struct kb_change *c, kw_err err) {
    if (err == KW_ENOMEM)
        fail_items(c, KE_UNKNOWN_SERVER_ERROR, "the node is out of memory: nothing was changed, try again later");
    else if (err == KW_ELIMIT)
        fail_items(c, KE_POLICY_VIOLATION, "the request changes too much at once: split it");
    else if (err == KW_EBUSY)
        fail_items(c, KE_KAFKA_STORAGE_ERROR, "the metadata log's disk is full: nothing was changed, make room and try again");
    else
        fail_items(c, KE_KAFKA_STORAGE_ERROR, "the metadata log cannot be written: see the node's log");
}

static kw_err refuse_doubles(struct kb_controller *k, struct kb_change *c) {
    char key[KB_CLAIM_SIZE];
    size_t n;
    kw_map_deinit(&k->seen);
    kw_map_init(&k->seen);
    for (int32_t i = 0; i < c->count && c->kind->names; i++) {
        if (!c->kind->names(k, c, i, key, &n)) continue;
        struct kb_result *r = c->kind->result(c, i), *first = kw_map_get(&k->seen, key, n);
        kw_err err = first ? KW_OK : kw_map_put(&k->seen, key, n, r);
        if (err) return err;
        if (!first) continue;
        kb_result_set(r, KE_INVALID_REQUEST, "the request names this more than once");
        *first = *r;
    }
    kw_map_deinit(&k->seen);
    kw_map_init(&k->seen);
    return KW_OK;
}

static kw_err collect(struct kb_controller *k, struct kb_change *c) {
    kw_arena_reset(&k->arena);
    k->record_count = 0;
    k->more = k->elects = false;
    k->counting = (struct kb_controller_counts){0};
    kw_err err = k->failed ? KW_EIO : c->count > KB_RECORDS_PER_CHANGE_MAX ? KW_ELIMIT : refuse_doubles(k, c);
    if (!err) err = c->kind->run(k, c);
    return !err && k->record_count > KB_RECORDS_PER_CHANGE_MAX ? KW_ELIMIT : err;
}

/* One change, whose claims are free: to the waiting list, or finished. */
static void run(struct kb_controller *k, struct kb_change *c) {
    struct kb_pending_change *p = NULL;
    int64_t last = k->o.image->offset;
    k->told = 0;
    kw_err err = collect(k, c);
    bool appends = !err && !c->validate_only && k->record_count > 0;
    if (appends || (!err && k->more)) err = claim(k, c, &p);
    if (!err && appends) err = kb_store_append(k->o.store, k->records, k->record_count, &last, k->now);
    if (err) fail_append(c, err);
    if (err && p) release(k, p);
    if (err || !p) { /* what runs alone is the controller's own: those behind it count on what its end settles */
        if (c->kind->alone)
            c->done(c, k->now);
        else
            kw_list_push(&k->finished, &c->link);
        return;
    }
    p->commit_offset = last;
    if (appends) p->counts = k->counting;
    p->more = k->more;
    p->elects = k->elects;
    c->pending = p;
    if (c->kind->alone) k->alone = p;
    kw_list_push(&k->waiting, &p->link);
}

/* The next batch of one that takes several. */
static void go_on(struct kb_controller *k) {
    struct kb_pending_change *p = k->alone;
    int64_t last;
    KW_ASSERT(p->change); /* these are the controller's own, and never cancelled */
    kw_err err = collect(k, p->change);
    if (!err && k->record_count > 0) {
        err = kb_store_append(k->o.store, k->records, k->record_count, &last, k->now);
        if (!err) p->commit_offset = last;
        if (!err) count(&p->counts, &k->counting);
    }
    p->more = !err && k->more;
    if (err) fail_append(p->change, err);
}

static void arm(struct kb_controller *k) {
    (void)!kw_timers_set(k->o.timers, &k->timer, k->now.mono_us); /* armed in vain: the next event does what it would have */
}

void kb_controller_pump(struct kb_controller *k) {
    if (k->pumping) return;
    k->pumping = true;
    while (!kw_list_empty(&k->queue)) {
        struct kb_change *c = change_of(k->queue.next);
        if (blocked(k, c)) break;
        kw_list_remove(&c->link);
        run(k, c);
        if (k->alone && k->alone->more) arm(k);
    }
    k->pumping = false;
}

static void drain_finished(struct kb_controller *k) {
    struct kw_list *l;
    while ((l = kw_list_shift(&k->finished))) {
        struct kb_change *c = change_of(l);
        c->done(c, k->now);
    }
}

static void fire(struct kw_timer *t, void *ctx, int64_t now_us) {
    struct kb_controller *k = ctx;
    (void)t;
    k->now.mono_us = now_us; /* the wall clock stays that of the turn's event */
    if (k->alone && k->alone->more) {
        go_on(k);
        if (k->alone->more)
            arm(k);
        else if (kb_controller_is_cluster(k))
            kb_controller_replayed(k, k->now); /* the last of it may have had nothing to append */
        else
            kb_controller_applied(k, k->now);
    }
    drain_finished(k);
}

kw_err kb_controller_submit(struct kb_controller *k, struct kb_change *c, const struct kb_change_kind *kind, void *items, int32_t count,
                            bool validate_only, struct kb_now now) {
    k->now = now;
    kw_err err = kw_timers_set(k->o.timers, &k->timer, now.mono_us); /* for all that finishes without a record */
    if (err) return err;
    kw_list_init(&c->link);
    c->kind = kind;
    c->items = items;
    c->count = count;
    c->validate_only = validate_only;
    c->pending = NULL;
    for (int32_t i = 0; i < count; i++) *kind->result(c, i) = (struct kb_result){0};
    if (!k->active && !k->failed) {
        fail_items(c, KE_NOT_CONTROLLER, "this node is not the active controller");
        kw_list_push(&k->finished, &c->link);
        return KW_OK;
    }
    if (kind->alone)
        kw_list_insert_before(k->queue.next, &c->link);
    else
        kw_list_push(&k->queue, &c->link);
    kb_controller_pump(k);
    return KW_OK;
}

void kb_controller_cancel(struct kb_controller *k, struct kb_change *c) {
    (void)k;
    if (c->pending) c->pending->change = NULL;
    c->pending = NULL;
    kw_list_remove(&c->link);
}

/* ---- Commit ---- */

/* Unclean elections were allowed, perhaps: who waits for a leader finds one. */
static void note_applied(struct kb_controller *k, struct kb_pending_change *p) {
    count(&k->counts, &p->counts);
    p->counts = (struct kb_controller_counts){0};
    k->sweep.wants_all |= p->elects;
    p->elects = false;
}

static void finish(struct kb_controller *k, struct kb_pending_change *p) {
    struct kb_change *c = p->change;
    release(k, p);
    if (!c) return;
    c->pending = NULL;
    c->done(c, k->now);
}

void kb_controller_applied(struct kb_controller *k, struct kb_now now) {
    k->now = now;
    while (!kw_list_empty(&k->waiting)) {
        struct kb_pending_change *p = pending_of(k->waiting.next);
        if (p->commit_offset > k->o.image->offset || p->more) break;
        note_applied(k, p);
        finish(k, p);
    }
    if (k->sweep.wants_all) kb_sweep_request(k);
    kb_controller_pump(k);
    drain_finished(k);
}

bool kb_controller_is_cluster(const struct kb_controller *k) {
    size_t self = kb_image_broker(k->o.image, k->self) != NULL;
    return !k->single || k->o.image->brokers.count > self;
}

void kb_controller_replayed(struct kb_controller *k, struct kb_now now) {
    if (!kb_controller_is_cluster(k)) return;
    k->now = now;
    bool again = true;
    while (again) { /* an answer may bring changes to the list, and take some off it */
        again = false;
        for (struct kw_list *l = k->waiting.next; l != &k->waiting && !again; l = l->next) {
            struct kb_pending_change *p = pending_of(l);
            if (p->commit_offset > k->o.image->offset || p->more) break;
            drop_claims(k, p);
            note_applied(k, p);
            if (!p->kind->soon) continue;
            finish(k, p);
            again = true;
        }
    }
    if (k->sweep.wants_all) kb_sweep_request(k);
    kb_controller_pump(k);
    drain_finished(k);
}

static void refuse(struct kb_controller *k, struct kb_pending_change *p, const char *text) {
    if (p->change) fail_items(p->change, KE_KAFKA_STORAGE_ERROR, text);
    finish(k, p);
}

void kb_controller_refused(struct kb_controller *k, int64_t from, struct kb_now now) {
    k->now = now;
    while (!kw_list_empty(&k->waiting)) {
        struct kb_pending_change *p = pending_of(k->waiting.prev);
        if (p->commit_offset < from) break;
        refuse(k, p, "the metadata log's disk is full: nothing was changed, make room and try again");
    }
    kb_controller_pump(k);
    drain_finished(k);
}

void kb_controller_failed(struct kb_controller *k, struct kb_now now) {
    k->now = now;
    k->failed = true;
    while (!kw_list_empty(&k->waiting))
        refuse(k, pending_of(k->waiting.next), "the metadata log failed: whether the change happened shows after a restart");
    kb_controller_pump(k);
    drain_finished(k);
}

/* ---- Office ---- */

bool kb_controller_is_active(const struct kb_controller *k) {
    return k->active;
}

void kb_controller_activate(struct kb_controller *k, struct kb_now now) {
    k->now = now;
    k->active = true;
    if (kb_controller_is_cluster(k)) kb_cluster_begin(k);
}

void kb_controller_resign(struct kb_controller *k, struct kb_now now) {
    static const char text[] = "another node became the controller: whether the change happened shows there";
    k->now = now;
    k->active = false;
    kb_sweep_stop(k);
    while (!kw_list_empty(&k->waiting)) {
        struct kb_pending_change *p = pending_of(k->waiting.next);
        if (p->change) fail_items(p->change, KE_NOT_CONTROLLER, text);
        finish(k, p);
    }
    for (struct kw_list *l; (l = kw_list_shift(&k->queue));) {
        fail_items(change_of(l), KE_NOT_CONTROLLER, text);
        kw_list_push(&k->finished, l);
    }
    drain_finished(k);
    kb_sessions_end(k);
}

void kb_controller_free(struct kb_controller *k) {
    if (!k) return;
    while (!kw_list_empty(&k->waiting)) {
        struct kb_pending_change *p = pending_of(k->waiting.next);
        if (p->change) p->change->pending = NULL;
        release(k, p);
    }
    while (kw_list_shift(&k->queue)) {
    }
    while (kw_list_shift(&k->finished)) {
    }
    kw_timers_cancel(k->o.timers, &k->timer);
    kw_timers_cancel(k->o.timers, &k->sweep.retry);
    kb_sessions_deinit(k);
    kw_map_deinit(&k->claims);
    kw_map_deinit(&k->seen);
    kw_arena_deinit(&k->arena);
    kw_free(k->records);
    kw_free(k);
}

/* ---- Producer ids ---- */

#define PID_BLOCK 1000

static kw_err pid_record(struct kb_controller *k, struct kb_pid_block *b, int32_t broker, int64_t broker_epoch) {
    int64_t first = KW_MAX(k->next_pid, k->o.image->next_producer_id);
    if (first > INT64_MAX - PID_BLOCK) {
        kb_result_set(&b->result, KE_UNKNOWN_SERVER_ERROR, "the cluster has handed out every producer id there is");
        return KW_OK;
    }
    struct kw_producer_ids_record *r = kb_controller_record(k, KW_RECORD_PRODUCER_IDS, 0);
    if (!r) return KW_ENOMEM;
    r->broker_id = broker;
    r->broker_epoch = broker_epoch;
    r->next_producer_id = first + PID_BLOCK;
    b->first = first;
    b->count = PID_BLOCK;
    k->next_pid = first + PID_BLOCK; /* should the append fail, a block is left out: harmless */
    return KW_OK;
}

static kw_err run_pids(struct kb_controller *k, struct kb_change *c) {
    return pid_record(k, c->items, k->self, kb_store_broker_epoch(k->o.store));
}

static struct kb_result *pid_result(struct kb_change *c, int32_t i) {
    (void)i;
    return &((struct kb_pid_block *)c->items)->result;
}

static const struct kb_change_kind pid_kind = {.run = run_pids, .result = pid_result};

void kb_controller_pids_from(struct kb_controller *k, int64_t next) {
    k->next_pid = KW_MAX(k->next_pid, next);
}

kw_err kb_controller_allocate_pids(struct kb_controller *k, struct kb_pid_block *b, struct kb_change *c, struct kb_now now) {
    return kb_controller_submit(k, c, &pid_kind, b, 1, false, now);
}

static kw_err run_grant(struct kb_controller *k, struct kb_change *c) {
    struct kb_pid_grant *g = c->items;
    const struct kb_image_broker *b = kb_image_broker(k->o.image, g->broker);
    if (!b || b->epoch != g->broker_epoch) {
        kb_result_set(&g->block.result, b ? KE_STALE_BROKER_EPOCH : KE_BROKER_ID_NOT_REGISTERED, "broker %d is not registered in epoch %lld",
                      (int)g->broker, (long long)g->broker_epoch);
        return KW_OK;
    }
    return pid_record(k, &g->block, g->broker, g->broker_epoch);
}

static struct kb_result *grant_result(struct kb_change *c, int32_t i) {
    (void)i;
    return &((struct kb_pid_grant *)c->items)->block.result;
}

static const struct kb_change_kind grant_kind = {.run = run_grant, .result = grant_result, .soon = true};

kw_err kb_controller_grant_pids(struct kb_controller *k, struct kb_pid_grant *g, struct kb_change *c, struct kb_now now) {
    return kb_controller_submit(k, c, &grant_kind, g, 1, false, now);
}
