/* controller_sweep.c - carries out what became known of brokers: who is fenced or not, and then, partition by partition, who leads and who is in
 * sync. One change for all that is due, in batches of bounded work, alone in the change queue. Rules: elect.h.
 *
 * Called by the controller's other files (kb_sweep_request). Also looks for leaderless partitions when the controller is new or unclean elections
 * were allowed, and brings leaderships back to the preferred replicas (auto.leader.rebalance.enable).
 */
#include <stdio.h>

#include "controller_priv.h"

enum { BATCH_RECORDS = 2000, BATCH_VISITS = 20000, BALANCE_MAX = 1000, RETRY_US = 100000, LINES_MAX = 100 };

/* ---- States and rules ---- */

static uint8_t replica_state(struct kb_controller *k, bool flushed, const struct kb_image_partition *p, int32_t id) {
    const struct kb_image_broker *b = kb_image_broker(k->o.image, id);
    const struct kb_session *s = kb_session_find(k, id);
    uint8_t doing = s ? s->doing : 0, state = 0;
    if (doing & KB_BROKER_LOST && !flushed) state |= KB_REPLICA_LOST;
    if (!b || kb_elect_is_lost(p, id)) return state;
    bool fenced = doing & KB_BROKER_FENCE || (b->fenced && !(doing & KB_BROKER_UNFENCE));
    bool leaves = b->in_controlled_shutdown || doing & KB_BROKER_SHUT_DOWN;
    if (!fenced) state |= KB_REPLICA_ALIVE;
    if (!fenced && !leaves) state |= KB_REPLICA_STAYS;
    if (s && s->weak && !flushed) state |= KB_REPLICA_WEAK;
    if (kb_elect_other_disk(p, id, b->log_dirs, b->log_dir_count)) state |= KB_REPLICA_WIPED;
    return state;
}

bool kb_topic_is_flushed(struct kb_controller *k, const struct kb_image_topic *t) {
    return kb_effective_topic_int(k->o.image, k->o.config, kw_str_of(t->name), "flush.on.ack") > 0;
}

uint8_t *kb_replica_states(struct kb_controller *k, const struct kb_image_topic *t, const struct kb_image_partition *p) {
    uint8_t *v = kw_arena_alloc(&k->arena, (size_t)p->replica_count + 1);
    bool flushed = v && kb_topic_is_flushed(k, t);
    for (int32_t i = 0; v && i < p->replica_count; i++) v[i] = replica_state(k, flushed, p, p->replicas[i]);
    return v;
}

struct kb_elect_rules kb_elect_rules_of(struct kb_controller *k, const struct kb_image_topic *t) {
    return (struct kb_elect_rules){
        .unclean = kb_effective_topic_int(k->o.image, k->o.config, kw_str_of(t->name), "unclean.leader.election.enable") > 0,
        .last_known = kb_config_bool(k->o.config, "last.known.leader.enable"),
    };
}

/* ---- Records ---- */

/* Where a replica has the partition: whoever is in sync, on the disk that it has now; others where they were put. */
static struct kw_uuid directory_of(struct kb_controller *k, const struct kb_image_partition *p, int32_t id, bool in_sync) {
    const struct kb_image_broker *b = kb_image_broker(k->o.image, id);
    bool one = b && b->log_dir_count == 1;
    int32_t at = 0;
    while (at < p->replica_count && p->replicas[at] != id) at++;
    bool placed = at < p->replica_count && at < p->directory_count;
    if (one && (in_sync || !placed) && !kb_elect_is_lost(p, id)) return b->log_dirs[0]; /* "lost" stays until the broker says otherwise */
    return placed ? p->directories[at] : (struct kw_uuid){{0}}; /* of several the broker chooses itself */
}

kw_err kb_change_directories(struct kb_controller *k, const struct kb_image_partition *p, struct kw_partition_change_record *r,
                             const struct kb_replicas *now) {
    bool differ = now->count != p->replica_count || p->directory_count != p->replica_count;
    struct kw_uuid *v = NULL;
    if (p->directory_count == 0) return KW_OK;
    for (int32_t i = 0; i < now->count; i++) {
        struct kw_uuid d = directory_of(k, p, now->ids[i], kb_elect_has(now->isr, now->isr_count, now->ids[i]));
        differ = differ || !kw_uuid_eq(d, p->directories[i]);
        if (differ && !v) {
            v = kw_arena_alloc(&k->arena, ((size_t)now->count + 1) * sizeof(*v));
            if (!v) return KW_ENOMEM;
            if (i) memcpy(v, p->directories, (size_t)i * sizeof(*v));
        }
        if (v) v[i] = d;
    }
    if (v) r->directories.v = v, r->directories.n = now->count;
    return KW_OK;
}

void kb_change_version(struct kb_controller *k, const struct kw_partition_change_record *r) {
    bool elr = r->eligible_leader_replicas.n >= 0 || r->last_known_elr.n >= 0;
    k->records[k->record_count - 1].version = elr ? 2 : r->directories.n >= 0 ? 1 : 0;
}

struct kw_partition_change_record *kb_election_record(struct kb_controller *k, const struct kb_image_topic *t, const struct kb_image_partition *p,
                                                      const struct kb_elected *e) {
    struct kw_partition_change_record *r = kb_controller_record(k, KW_RECORD_PARTITION_CHANGE, 0);
    if (!r) return NULL;
    r->topic_id = t->id;
    r->partition_id = p->index;
    if (e->led_anew) r->leader = e->leader;
    if (!kb_elect_same(e->isr, e->isr_count, p->isr, p->isr_count)) r->isr.v = e->isr, r->isr.n = e->isr_count;
    if (e->lossy) r->leader_recovery_state = 1;
    if (e->gave_up) {
        int32_t *last = kw_arena_dup(&k->arena, e->isr, sizeof(*last)); /* the one that may not lead */
        if (!last) return NULL;
        r->last_known_elr.v = last, r->last_known_elr.n = 1;
        r->eligible_leader_replicas.n = 0;
    }
    if (e->cleared) r->last_known_elr.n = r->eligible_leader_replicas.n = 0;
    struct kb_replicas now = {p->replicas, e->isr, p->replica_count, e->leader >= 0 ? e->isr_count : 0};
    if (kb_change_directories(k, p, r, &now)) return NULL;
    kb_change_version(k, r);
    return r;
}

static void list_text(char *out, size_t size, const int32_t *v, int32_t n) {
    size_t at = 0;
    out[0] = 0;
    for (int32_t i = 0; i < n && at + 14 < size; i++) at += (size_t)snprintf(out + at, size - at, i ? ",%d" : "%d", (int)v[i]);
}

void kb_election_tell(struct kb_controller *k, const struct kb_image_topic *t, const struct kb_image_partition *p, const struct kb_elected *e) {
    char isr[100];
    list_text(isr, sizeof(isr), p->isr, p->isr_count);
    bool says = k->told < LINES_MAX;
    if (e->lossy) k->counting.unclean_elections++;
    if (e->doubtful) k->counting.last_known_leaders++;
    if ((e->lossy || e->doubtful) && k->told++ == LINES_MAX)
        kb_say(k->o.logger, KB_WARN, "more partitions are led by replicas that lack records, or may: only the first %d are named", LINES_MAX);
    if (e->lossy && says)
        kb_say(k->o.logger, KB_WARN,
               "unclean election: %s-%d is led by broker %d, which was not in sync (in sync: %s): records that it does not have are lost", t->name,
               (int)p->index, (int)e->leader, isr);
    if (e->doubtful && says)
        kb_say(k->o.logger, KB_WARN,
               "%s-%d is led by its last known leader, broker %d, though its machine or disk failed: what was acknowledged and not synced may be lost "
               "(flush.on.ack=true keeps it)",
               t->name, (int)p->index, (int)e->leader);
}

/* ---- One partition ---- */

/* Something became known of one of its replicas. Most sweeps are about one broker among many: this is what they cost for all other partitions. */
static bool is_concerned(const struct kb_sweep *w, const struct kb_image_partition *p) {
    if (w->all || w->balance) return true;
    for (int32_t i = 0; i < w->changing_count; i++)
        if (kb_elect_has(p->replicas, p->replica_count, w->changing[i])) return true;
    return false;
}

static kw_err visit(struct kb_controller *k, const struct kb_image_topic *t, const struct kb_image_partition *p) {
    struct kb_sweep *w = &k->sweep;
    struct kb_elect_rules rules = {.last_known = w->last_known};
    struct kb_elected e = {.isr = kw_arena_alloc(&k->arena, ((size_t)p->replica_count + 1) * sizeof(int32_t))};
    uint8_t *states = kw_arena_alloc(&k->arena, (size_t)p->replica_count + 1);
    if (!e.isr || !states) return KW_ENOMEM;
    if (p->replica_count == 0) return KW_OK;
    w->looked_at++;
    if (w->flushed < 0) w->flushed = kb_topic_is_flushed(k, t);
    for (int32_t i = 0; i < p->replica_count; i++) states[i] = replica_state(k, w->flushed, p, p->replicas[i]);
    rules.preferred = w->balance && w->balanced < BALANCE_MAX;
    kb_elect(p, states, &rules, &e);
    if (e.leader < 0) {
        if (w->unclean < 0) w->unclean = kb_elect_rules_of(k, t).unclean;
        rules.unclean = w->unclean;
        if (w->unclean) kb_elect(p, states, &rules, &e);
    }
    if (!e.changed) return KW_OK;
    if (rules.preferred && e.leader == p->replicas[0] && p->leader >= 0) w->balanced++;
    if (e.led_anew && e.leader >= 0) w->led_anew++;
    if (e.leader < 0 && p->leader >= 0) w->leaderless++;
    kb_election_tell(k, t, p, &e);
    return kb_election_record(k, t, p, &e) ? KW_OK : KW_ENOMEM;
}

/* Whoever goes for good does so when nothing counts on it any more. */
static kw_err end(struct kb_controller *k) {
    struct kb_session *s;
    for (size_t it = 0; (s = kw_map_next(&k->sessions, &it));) {
        if (!(s->doing & KB_BROKER_GONE)) continue;
        struct kw_unregister_broker_record *r = kb_controller_record(k, KW_RECORD_UNREGISTER_BROKER, 0);
        if (!r) return KW_ENOMEM;
        r->broker_id = s->id;
        r->broker_epoch = s->epoch;
    }
    return KW_OK;
}

static kw_err walk(struct kb_controller *k) {
    struct kb_sweep *w = &k->sweep;
    kw_err err = KW_OK;
    for (int32_t visits = 0; !err; visits++) {
        while (!w->topic || w->partition == w->topic->partition_count) {
            w->topic = kw_map_next(&k->o.image->topics_by_name, &w->topic_at);
            if (!w->topic) return end(k);
            w->partition = 0;
            w->unclean = w->flushed = -1;
        }
        if (visits == BATCH_VISITS || k->record_count >= BATCH_RECORDS) {
            k->more = true;
            return KW_OK;
        }
        const struct kb_image_partition *p = &w->topic->partitions[w->partition++];
        if (is_concerned(w, p)) err = visit(k, w->topic, p);
    }
    return err;
}

/* ---- Brokers ---- */

static kw_err broker_record(struct kb_controller *k, const struct kb_session *s, const struct kb_image_broker *b) {
    bool fence = s->doing & KB_BROKER_FENCE && !b->fenced, unfence = s->doing & KB_BROKER_UNFENCE && b->fenced;
    bool leaves = s->doing & KB_BROKER_SHUT_DOWN && !b->in_controlled_shutdown;
    if (!fence && !unfence && !leaves) return KW_OK;
    struct kw_broker_registration_change_record *r = kb_controller_record(k, KW_RECORD_BROKER_REGISTRATION_CHANGE, leaves ? 1 : 0);
    if (!r) return KW_ENOMEM;
    r->broker_id = b->id;
    r->broker_epoch = b->epoch;
    r->fenced = fence ? 1 : unfence ? -1 : 0;
    r->in_controlled_shutdown = leaves;
    if (fence) k->counting.brokers_fenced++;
    return KW_OK;
}

/* What is wanted by now is what this sweep does. */
static kw_err begin(struct kb_controller *k) {
    struct kb_sweep *w = &k->sweep;
    struct kb_session *s;
    w->begun = true;
    w->last_known = kb_config_bool(k->o.config, "last.known.leader.enable");
    w->balance = w->wants_balance;
    w->all = w->wants_all;
    w->changing_count = 0;
    w->wants_all = w->wants_balance = false;
    w->topic = NULL;
    w->topic_at = 0;
    w->led_anew = w->leaderless = w->balanced = 0;
    for (size_t it = 0; (s = kw_map_next(&k->sessions, &it));) {
        const struct kb_image_broker *b = kb_image_broker(k->o.image, s->id);
        s->doing = s->want;
        s->want = 0;
        if (s->doing & KB_BROKER_FENCE) s->doing &= (uint8_t)~KB_BROKER_UNFENCE;
        if (!b || s->epoch != b->epoch) s->doing &= (uint8_t)~KB_BROKER_GONE;
        if (b && s->epoch != b->epoch) s->doing &= (uint8_t) ~(KB_BROKER_UNFENCE | KB_BROKER_SHUT_DOWN); /* another incarnation wanted that */
        if (s->doing & KB_BROKER_UNFENCE && s->lost) s->doing |= KB_BROKER_LOST;
        if (s->doing && w->changing_count == (int32_t)KW_COUNTOF(w->changing)) w->all = true;
        if (s->doing && !w->all) w->changing[w->changing_count++] = s->id;
        kw_err err = b && s->doing ? broker_record(k, s, b) : KW_OK;
        if (err) return err;
    }
    return KW_OK;
}

static kw_err run_sweep(struct kb_controller *k, struct kb_change *c) {
    (void)c;
    kw_err err = k->sweep.begun ? KW_OK : begin(k);
    return err ? err : walk(k);
}

/* ---- Its life ---- */

static struct kb_result *sweep_result(struct kb_change *c, int32_t i) {
    (void)i;
    return &((struct kb_sweep *)c->items)->result;
}
static const struct kb_change_kind sweep_kind = {.run = run_sweep, .result = sweep_result, .alone = true, .soon = true};

static bool any_wanted(const struct kb_controller *k) {
    const struct kb_session *s;
    for (size_t it = 0; (s = kw_map_next(&k->sessions, &it));)
        if (s->want) return true;
    return k->sweep.wants_all || k->sweep.wants_balance;
}

static void try_later(struct kb_controller *k) {
    (void)!kw_timers_set(k->o.timers, &k->sweep.retry, k->now.mono_us + RETRY_US); /* without memory: the next request tries again */
}

static void swept(struct kb_change *c, struct kb_now now) {
    struct kb_controller *k = c->ctx;
    struct kb_sweep *w = &k->sweep;
    bool done = w->result.code == 0;
    (void)now;
    w->submitted = w->begun = false;
    if (!k->active) return;
    if (!done) {
        w->wants_all = true; /* some of it may be in the log */
        w->wants_balance |= w->balance;
        kb_say(k->o.logger, KB_ERROR, "brokers' states could not be changed, trying again: %s", w->result.text);
    } else if (w->led_anew || w->leaderless) {
        kb_say(k->o.logger, KB_INFO, "%d partitions have a new leader, %d have lost theirs", (int)w->led_anew, (int)w->leaderless);
    }
    kb_sessions_swept(k, done);
    bool wanted = any_wanted(k);
    if (done && w->balanced == BALANCE_MAX) w->wants_balance = true; /* more may be left: soon, when others had their turn */
    if (!done || w->balanced == BALANCE_MAX) try_later(k);
    if (done && wanted) kb_sweep_request(k);
}

void kb_sweep_request(struct kb_controller *k) {
    struct kb_sweep *w = &k->sweep;
    if (!k->active || (!w->begun && !any_wanted(k))) return;
    if (w->submitted) return; /* it has not begun, or is followed by another */
    w->submitted = true;
    w->change = (struct kb_change){.done = swept, .ctx = k};
    if (kb_controller_submit(k, &w->change, &sweep_kind, w, 1, false, k->now) == KW_OK) return;
    w->submitted = false;
    try_later(k);
}

static void retry(struct kw_timer *t, void *ctx, int64_t now_us) {
    struct kb_controller *k = ctx;
    (void)t;
    k->now.mono_us = now_us;
    if (k->active && k->unbegun)
        kb_cluster_begin(k);
    else
        kb_sweep_request(k);
}

void kb_sweep_init(struct kb_controller *k) {
    kw_timer_init(&k->sweep.retry, retry, k);
}

/* The change itself is answered with all the others. */
void kb_sweep_stop(struct kb_controller *k) {
    k->sweep.wants_all = k->sweep.wants_balance = false;
    k->unbegun = false;
    kw_timers_cancel(k->o.timers, &k->sweep.retry);
}
