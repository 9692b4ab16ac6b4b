/* controller_brokers.c - brokers come, say that they live, and go: BrokerRegistration, BrokerHeartbeat, UnregisterBroker; what a new controller
 * does first. KIP-631, KIP-841, KIP-858, KIP-966.
 *
 * Called by api/broker_registration, broker_heartbeat, unregister_broker through controller.h, and by controller.c (office). Calls
 * controller_sessions.c and controller_sweep.c.
 */
#include <stdio.h>

#include "controller_priv.h"

static bool claim_broker(int32_t id, char key[KB_CLAIM_SIZE], size_t *n) {
    *n = (size_t)snprintf(key, KB_CLAIM_SIZE, "b%d", (int)id);
    return true;
}

/* ---- Registration ---- */

/* Is it not the one that served last? What it says it had last must be what the image has, or what that was registered over without ever having served. */
static bool is_another(const struct kb_broker_register *r, const struct kb_image_broker *b, const struct kb_session *s) {
    if (!b) return r->previous_epoch < 0;
    if (r->previous_epoch == b->epoch) return false;
    return r->previous_epoch < 0 || s->served || s->epoch != b->epoch || r->previous_epoch < s->base_epoch;
}

static bool has_replicas(const struct kb_controller *k, int32_t id) {
    const struct kb_image_topic *t;
    for (size_t it = 0; (t = kw_map_next(&k->o.image->topics_by_id, &it));)
        for (int32_t i = 0; i < t->partition_count; i++)
            if (kb_elect_has(t->partitions[i].replicas, t->partitions[i].replica_count, id)) return true;
    return false;
}

/* May the broker have lost what it acknowledged? Without a replica there is nothing: a broker that is new is as good as any. */
static bool is_lost(const struct kb_controller *k, const struct kb_broker_register *r, const struct kb_image_broker *b, const struct kb_session *s) {
    return is_another(r, b, s) && has_replicas(k, r->id);
}

static bool is_duplicate(const struct kb_controller *k, const struct kb_broker_register *r, const struct kb_image_broker *b) {
    const struct kb_session *s = kb_session_find(k, r->id);
    if (r->id == k->self && !r->conn) return false; /* this process asks itself: its last run is over */
    return b && s && !kw_uuid_eq(b->incarnation, r->incarnation) && s->epoch == b->epoch && kb_session_lives(k, s);
}

static bool other_has_directory(struct kb_controller *k, struct kb_broker_register *r) {
    struct kb_image_broker *b;
    for (size_t it = 0; (b = kw_map_next(&k->o.image->brokers, &it));)
        for (int32_t i = 0; b->id != r->id && i < b->log_dir_count; i++)
            for (int32_t j = 0; j < r->log_dir_count; j++) {
                if (!kw_uuid_eq(b->log_dirs[i], r->log_dirs[j])) continue;
                kb_result_set(&r->result, KE_INVALID_REGISTRATION, "broker %d has a copy of broker %d's data folder: start it on a folder of its own",
                              (int)r->id, (int)b->id);
                return true;
            }
    return false;
}

/* What it says of itself can be true. Nothing is done for one of which it cannot. */
static bool is_sound(struct kb_controller *k, struct kb_broker_register *r) {
    if (r->id < 0 || r->endpoint_count <= 0 || r->log_dir_count <= 0 || kw_uuid_is_zero(r->incarnation)) {
        kb_result_set(&r->result, KE_INVALID_REGISTRATION, "broker %d registers without an address, a data folder or an incarnation", (int)r->id);
        return false;
    }
    const char *cluster = kb_store_cluster_id(k->o.store);
    if (!kw_str_eq(r->cluster_id, kw_str_of(cluster))) {
        kb_result_set(&r->result, KE_INCONSISTENT_CLUSTER_ID, "broker %d has the data of cluster %.*s: this is %.60s", (int)r->id,
                      r->cluster_id.len > 0 ? (int)KW_MIN(r->cluster_id.len, 60) : 4, r->cluster_id.len > 0 ? r->cluster_id.p : "none", cluster);
        return false;
    }
    return !other_has_directory(k, r);
}

/* What must be committed before the new incarnation is: the old one is fenced, and what it lost is not counted upon. */
static kw_err prepare(struct kb_controller *k, struct kb_broker_register *r) {
    if (!is_sound(k, r)) return KW_OK; /* refused when its turn comes */
    const struct kb_image_broker *b = kb_image_broker(k->o.image, r->id);
    struct kb_session *s = kb_session_make(k, r->id);
    if (!s) return KW_ENOMEM;
    if (is_duplicate(k, r, b) || (b && kw_uuid_eq(b->incarnation, r->incarnation))) return KW_OK;
    if (b && !b->fenced) s->want |= KB_BROKER_FENCE;
    s->want &= (uint8_t)~KB_BROKER_UNFENCE;
    if (is_lost(k, r, b, s)) s->want |= KB_BROKER_LOST;
    if (s->want) kb_sweep_request(k);
    return KW_OK;
}

static bool registration_ok(struct kb_controller *k, struct kb_broker_register *r, const struct kb_image_broker *b) {
    const struct kb_session *s = kb_session_find(k, r->id);
    if (!is_sound(k, r)) return false;
    if (is_duplicate(k, r, b) || (k->single && r->id == k->self)) {
        kb_result_set(&r->result, KE_DUPLICATE_BROKER_REGISTRATION, "another process is broker %d, and it lives", (int)r->id);
        return false;
    }
    /* A sweep that began is over by now; of one that failed everything is wanted again. */
    if (!s || s->want & (KB_BROKER_LOST | KB_BROKER_FENCE) || (b && !b->fenced)) {
        kb_result_set(&r->result, KE_NOT_CONTROLLER, "what the last incarnation of broker %d leaves behind is not settled yet: try again", (int)r->id);
        return false;
    }
    return true;
}

static kw_err register_record(struct kb_controller *k, struct kb_broker_register *r) {
    int64_t epoch = kb_store_end(k->o.store) + (int64_t)k->record_count;
    struct kw_register_broker_record *m = kb_controller_record(k, KW_RECORD_REGISTER_BROKER, 3);
    if (!m) return KW_ENOMEM;
    m->broker_id = r->id;
    m->broker_epoch = r->epoch = epoch;
    m->incarnation_id = r->incarnation;
    m->rack = r->rack;
    m->fenced = true;
    m->end_points.v = (struct kw_register_broker_record_broker_endpoint *)(uintptr_t)r->endpoints;
    m->end_points.n = r->endpoint_count;
    m->features.v = (struct kw_register_broker_record_broker_feature *)(uintptr_t)r->features;
    m->features.n = r->feature_count;
    m->log_dirs.v = (struct kw_uuid *)(uintptr_t)r->log_dirs;
    m->log_dirs.n = r->log_dir_count;
    return KW_OK;
}

static kw_err run_register(struct kb_controller *k, struct kb_change *c) {
    struct kb_broker_register *r = c->items;
    const struct kb_image_broker *b = kb_image_broker(k->o.image, r->id);
    struct kb_session *s = kb_session_find(k, r->id);
    if (b && kw_uuid_eq(b->incarnation, r->incarnation) && !(k->single && r->id == k->self)) {
        r->epoch = b->epoch; /* it did not hear the answer */
        if (s) s->conn = r->conn;
        return KW_OK;
    }
    if (!registration_ok(k, r, b)) return KW_OK;
    bool lost = is_lost(k, r, b, s);
    kw_err err = register_record(k, r);
    if (err) return err;
    s->base_epoch = !b || s->served || s->epoch != b->epoch ? (b ? b->epoch : r->epoch) : KW_MIN(s->base_epoch, b->epoch);
    kb_session_renew(s, r->epoch, r->conn, k->now);
    s->heard = true;
    s->served = false;
    s->lost = lost;
    kb_say(k->o.logger, KB_INFO, "broker %d registers in epoch %lld%s", (int)r->id, (long long)r->epoch,
           b && lost ? ": its machine went down, it is not counted upon" : "");
    return KW_OK;
}

static bool claim_register(struct kb_controller *k, struct kb_change *c, int32_t i, char key[KB_CLAIM_SIZE], size_t *n) {
    (void)k;
    (void)i;
    return claim_broker(((struct kb_broker_register *)c->items)->id, key, n);
}
static struct kb_result *register_result(struct kb_change *c, int32_t i) {
    (void)i;
    return &((struct kb_broker_register *)c->items)->result;
}
static const struct kb_change_kind register_kind = {
    .run = run_register, .claim = claim_register, .result = register_result, .soon = true};

kw_err kb_controller_register_broker(struct kb_controller *k, struct kb_broker_register *r, struct kb_change *c, struct kb_now now) {
    k->now = now;
    r->epoch = -1;
    if (k->active && r->id >= 0 && !(k->single && r->id == k->self)) {
        kw_err err = prepare(k, r);
        if (err) return err;
        kb_balance_arm(k);
    }
    return kb_controller_submit(k, c, &register_kind, r, 1, false, now);
}

/* ---- Unregistration ---- */

/* As at Apache Kafka a broker is unregistered whether it lives or not: a sweep fences it, gives its partitions other leaders, and takes it out, whatever
 * its heartbeats ask for meanwhile. One that still runs hears of it, and registers anew. Here only remains to be told what came of it. */
static kw_err run_unregister(struct kb_controller *k, struct kb_change *c) {
    struct kb_broker_unregister *u = c->items;
    const struct kb_image_broker *b = kb_image_broker(k->o.image, u->id);
    if (k->single && u->id == k->self)
        kb_result_set(&u->result, KE_INVALID_REQUEST, "broker %d is this very node, the cluster's only controller", (int)u->id);
    else if (u->epoch < 0)
        kb_result_set(&u->result, KE_BROKER_ID_NOT_REGISTERED, "there is no broker %d", (int)u->id);
    else if (b && b->epoch <= u->epoch)
        kb_result_set(&u->result, KE_KAFKA_STORAGE_ERROR, "the metadata log took nothing: broker %d goes as soon as it does", (int)u->id);
    return KW_OK;
}

static bool claim_unregister(struct kb_controller *k, struct kb_change *c, int32_t i, char key[KB_CLAIM_SIZE], size_t *n) {
    (void)k;
    (void)i;
    return claim_broker(((struct kb_broker_unregister *)c->items)->id, key, n);
}
static struct kb_result *unregister_result(struct kb_change *c, int32_t i) {
    (void)i;
    return &((struct kb_broker_unregister *)c->items)->result;
}
static const struct kb_change_kind unregister_kind = {
    .run = run_unregister, .claim = claim_unregister, .result = unregister_result, .soon = true};

kw_err kb_controller_unregister_broker(struct kb_controller *k, struct kb_broker_unregister *u, struct kb_change *c, struct kb_now now) {
    const struct kb_image_broker *b = kb_image_broker(k->o.image, u->id);
    k->now = now;
    u->epoch = -1;
    if (k->active && b && !(k->single && u->id == k->self)) {
        struct kb_session *s = kb_session_make(k, u->id);
        if (!s) return KW_ENOMEM;
        if (s->epoch < b->epoch) kb_session_renew(s, b->epoch, NULL, now);
        u->epoch = s->epoch; /* above the image's where the next incarnation's registration is in the log: then that goes */
        s->want = (uint8_t)((s->want & ~KB_BROKER_UNFENCE) | KB_BROKER_FENCE | KB_BROKER_GONE);
        kb_sweep_request(k);
    }
    return kb_controller_submit(k, c, &unregister_kind, u, 1, false, now);
}

/* ---- Heartbeats ---- */

static void answer(struct kb_heartbeat *h, const struct kb_image_broker *b) {
    h->code = KE_NONE;
    h->caught_up = h->metadata_offset >= b->epoch;
    h->fenced = b->fenced;
}

/* Every directory that it registered is offline (kbroker's nodes have one): it can serve nothing any more. */
static bool is_without_disk(const struct kb_heartbeat *h, const struct kb_image_broker *b) {
    for (int32_t i = 0; i < b->log_dir_count; i++) {
        bool offline = false;
        for (int32_t j = 0; j < h->offline_dir_count; j++) offline = offline || kw_uuid_eq(b->log_dirs[i], h->offline_dirs[j]);
        if (!offline) return false;
    }
    return b->log_dir_count > 0;
}

/* What the broker's state should come to, as a want of the next sweep; 0: it is as it should be. */
static uint8_t wanted(struct kb_controller *k, struct kb_heartbeat *h, const struct kb_image_broker *b) {
    if (h->want_shut_down) {
        if (b->fenced) {
            h->shut_down = true;
            return 0;
        }
        return b->in_controlled_shutdown ? KB_BROKER_FENCE : KB_BROKER_SHUT_DOWN; /* whatever could be led elsewhere is by now */
    }
    if (is_without_disk(h, b)) {
        if (!b->fenced) kb_say(k->o.logger, KB_WARN, "broker %d has lost its data folder: others lead in its place", (int)h->id);
        h->want_fence = true;
    }
    if (h->want_fence) return b->fenced ? 0 : KB_BROKER_FENCE;
    return b->fenced && !b->in_controlled_shutdown && h->metadata_offset >= b->epoch ? KB_BROKER_UNFENCE : 0;
}

static void touch(struct kb_controller *k, struct kb_session *s, const struct kb_heartbeat *h) {
    s->heard_us = k->now.mono_us;
    s->heard = true;
    s->closed = false;
    s->conn = h->conn;
    s->refusals = 0;
    s->grace_us = s->redial_us = KW_NEVER;
}

bool kb_controller_heartbeat(struct kb_controller *k, struct kb_heartbeat *h, struct kb_now now) {
    const struct kb_image_broker *b = kb_image_broker(k->o.image, h->id);
    k->now = now;
    h->caught_up = h->shut_down = false;
    h->fenced = true;
    kw_list_init(&h->link);
    h->code = !k->active ? KE_NOT_CONTROLLER : !b ? KE_BROKER_ID_NOT_REGISTERED : b->epoch != h->epoch ? KE_STALE_BROKER_EPOCH : KE_NONE;
    if (h->code) return true;
    if (k->single && h->id == k->self) {
        answer(h, b);
        return true;
    }
    struct kb_session *s = kb_session_make(k, h->id);
    if (!s) {
        h->code = KE_UNKNOWN_SERVER_ERROR;
        return true;
    }
    if (s->epoch > b->epoch) { /* the next incarnation is about to be registered */
        h->code = KE_STALE_BROKER_EPOCH;
        return true;
    }
    if (s->epoch != b->epoch) kb_session_renew(s, b->epoch, h->conn, now);
    touch(k, s, h);
    if (!kw_timer_armed(&k->session_timer)) kb_sessions_arm(k); /* there was no memory for it */
    if (s->suspected) s->want &= (uint8_t)~KB_BROKER_FENCE; /* it lives */
    s->suspected = false;
    uint8_t want = wanted(k, h, b);
    if (!want) {
        answer(h, b);
        return true;
    }
    s->want |= want;
    kw_list_push(&s->waiting, &h->link);
    kb_sweep_request(k);
    return false;
}

void kb_controller_heartbeat_cancel(struct kb_heartbeat *h) {
    kw_list_remove(&h->link);
}

const struct kb_controller_counts *kb_controller_counts(const struct kb_controller *k) {
    return &k->counts;
}

/* ---- Office ---- */

static void balance(struct kw_timer *t, void *ctx, int64_t now_us) {
    struct kb_controller *k = ctx;
    (void)t;
    k->now.mono_us = now_us;
    if (!k->active) return;
    k->sweep.wants_balance = true;
    kb_sweep_request(k);
    kb_balance_arm(k);
}

void kb_balance_init(struct kb_controller *k) {
    kw_timer_init(&k->balance_timer, balance, k);
}

void kb_balance_arm(struct kb_controller *k) {
    if (!kb_config_bool(k->o.config, "auto.leader.rebalance.enable") || kw_timer_armed(&k->balance_timer)) return;
    int64_t s = kb_config_int(k->o.config, "leader.imbalance.check.interval.seconds");
    if (s < INT64_MAX / 2000000) (void)!kw_timers_set(k->o.timers, &k->balance_timer, k->now.mono_us + s * 1000000);
}

void kb_cluster_begin(struct kb_controller *k) {
    k->unbegun = kb_sessions_begin(k) != KW_OK;
    k->sweep.wants_all = true;
    kb_balance_arm(k);
    if (!k->unbegun)
        kb_sweep_request(k);
    else
        (void)!kw_timers_set(k->o.timers, &k->sweep.retry, k->now.mono_us + 100000);
}
