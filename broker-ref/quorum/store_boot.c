/* store_boot.c - the first records of an epoch: leader change, the cluster's features when the log is new, this node's registration, and a
 * new leader epoch for every partition that it leads, so that no offset is ever given out twice in one epoch. KIP-595, KIP-631, KIP-868.
 *
 * Called by store_load.c once everything is replayed: the batches are appended at once and cost one sync. By raft_lead.c each for itself.
 */
#include "advertise.h"
#include "effective.h"
#include "elect.h"
#include "kw_messages.h"
#include "store_priv.h"

#define BATCH_SIZE (512u << 10)

kw_err kb_store_boot_leader_change(struct kb_store *s, struct kb_meta_batch *b, const int32_t *voters, const bool *granted, size_t count,
                                   struct kb_now now) {
    struct kw_leader_change_message m;
    struct kw_leader_change_message_voter all[KB_VOTERS_MAX], granting[KB_VOTERS_MAX];
    kw_msg_init(&kw_leader_change_message_desc, &m);
    m.leader_id = s->load.node_id;
    m.voters.v = all;
    m.granting_voters.v = granting;
    for (size_t i = 0; i < count; i++) {
        all[m.voters.n++] = (struct kw_leader_change_message_voter){.voter_id = voters[i]};
        if (granted[i]) granting[m.granting_voters.n++] = (struct kw_leader_change_message_voter){.voter_id = voters[i]};
    }
    kw_err err = kb_meta_batch_add_control(b, KB_CONTROL_LEADER_CHANGE, &kw_leader_change_message_desc, 0, &m);
    return err ? err : kb_store_append_batch(s, b, true, now);
}

/* A transaction that the last epoch left open (a log of several batches, written elsewhere) is no one's to finish. */
kw_err kb_store_boot_abort(struct kb_store *s, struct kb_meta_batch *b, struct kb_now now) {
    struct kw_abort_transaction_record m;
    kw_msg_init(&kw_abort_transaction_record_desc, &m);
    m.reason = kw_str_of("a new leader");
    kw_err err = kb_meta_batch_add(b, KW_RECORD_ABORT_TRANSACTION, 0, &m);
    return err ? err : kb_store_append_batch(s, b, false, now);
}

kw_err kb_store_boot_features(struct kb_store *s, struct kb_meta_batch *b, struct kb_now now) {
    struct kw_begin_transaction_record begin;
    struct kw_end_transaction_record end;
    struct kw_feature_level_record level;
    kw_msg_init(&kw_begin_transaction_record_desc, &begin);
    kw_msg_init(&kw_end_transaction_record_desc, &end);
    kw_msg_init(&kw_feature_level_record_desc, &level);
    begin.name = kw_str_of("Bootstrap records");
    level.name = kw_str_of("metadata.version");
    level.feature_level = KB_METADATA_VERSION;
    kw_err err = kb_meta_batch_add(b, KW_RECORD_BEGIN_TRANSACTION, 0, &begin);
    if (!err) err = kb_meta_batch_add(b, KW_RECORD_FEATURE_LEVEL, 0, &level);
    struct kb_image_level *f;
    for (size_t it = 0; !err && (f = kw_map_next(&s->bootstrap.features, &it));) {
        level.name = kw_str_of(f->name);
        level.feature_level = f->level;
        if (strcmp(f->name, "metadata.version") != 0) err = kb_meta_batch_add(b, KW_RECORD_FEATURE_LEVEL, 0, &level);
    }
    if (!err) err = kb_meta_batch_add(b, KW_RECORD_END_TRANSACTION, 0, &end);
    return err ? err : kb_store_append_batch(s, b, false, now);
}

static int32_t endpoints(const struct kb_store *s, struct kw_register_broker_record_broker_endpoint *out) {
    struct kb_listener l[KB_ENDPOINTS_MAX];
    size_t n = kb_advertise_endpoints(s->o.config, s->o.port, l);
    for (size_t i = 0; i < n; i++)
        out[i] = (struct kw_register_broker_record_broker_endpoint){
            .name = l[i].name, .host = l[i].host, .port = l[i].port, .security_protocol = KB_PROTOCOL_PLAINTEXT};
    return (int32_t)n;
}

static kw_err registration(struct kb_store *s, struct kb_meta_batch *b) {
    struct kw_register_broker_record r;
    struct kw_register_broker_record_broker_endpoint e[KB_ENDPOINTS_MAX];
    struct kw_register_broker_record_broker_feature f[4];
    KW_ASSERT(kb_advertised_feature_count <= KW_COUNTOF(f));
    for (size_t i = 0; i < kb_advertised_feature_count; i++)
        f[i] = (struct kw_register_broker_record_broker_feature){.name = kw_str_of(kb_advertised_features[i].name),
                                                                 .min_supported_version = kb_advertised_features[i].min,
                                                                 .max_supported_version = kb_advertised_features[i].max};
    struct kw_broker_registration_change_record unfence;
    kw_msg_init(&kw_register_broker_record_desc, &r);
    kw_msg_init(&kw_broker_registration_change_record_desc, &unfence);
    s->broker_epoch = s->log->leo + b->count; /* the offset that this record will have */
    r.broker_id = unfence.broker_id = s->load.node_id;
    r.broker_epoch = unfence.broker_epoch = s->broker_epoch;
    r.incarnation_id = s->incarnation;
    r.end_points.v = e;
    r.end_points.n = endpoints(s, e);
    r.features.v = f;
    r.features.n = (int32_t)kb_advertised_feature_count;
    r.rack = kw_str_of(kb_config_get(s->o.config, "broker.rack"));
    r.fenced = true;
    r.log_dirs.v = &s->load.directory_id;
    r.log_dirs.n = 1;
    unfence.fenced = -1;
    kw_err err = kb_meta_batch_add(b, KW_RECORD_REGISTER_BROKER, 4, &r);
    return err ? err : kb_meta_batch_add(b, KW_RECORD_BROKER_REGISTRATION_CHANGE, 0, &unfence);
}

/* What is known of a replica. Of this node: the machine went down, or the disk is another one; of other brokers what the image says. */
static uint8_t replica_state(const struct kb_store *s, const struct kb_image_topic *t, const struct kb_image_partition *p, int32_t id) {
    const struct kb_image_broker *b = kb_image_broker(s->o.image, id);
    if (kb_elect_is_lost(p, id)) return 0; /* this node says so once its log is open again */
    if (id != s->load.node_id) {
        if (!b || b->fenced) return 0;
        uint8_t wiped = kb_elect_other_disk(p, id, b->log_dirs, b->log_dir_count) ? KB_REPLICA_WIPED : 0;
        return (uint8_t)(wiped | KB_REPLICA_ALIVE | (b->in_controlled_shutdown ? 0 : KB_REPLICA_STAYS));
    }
    uint8_t state = KB_REPLICA_ALIVE | KB_REPLICA_STAYS;
    if (kb_elect_other_disk(p, id, &s->load.directory_id, 1)) state |= KB_REPLICA_WIPED;
    if (s->o.unclean && kb_effective_topic_int(s->o.image, s->o.config, kw_str_of(t->name), "flush.on.ack") <= 0) state |= KB_REPLICA_LOST;
    return state;
}

static kw_err change(struct kb_meta_batch *b, const struct kb_image_topic *t, const struct kb_image_partition *p, const struct kb_elected *e) {
    struct kw_partition_change_record r;
    kw_msg_init(&kw_partition_change_record_desc, &r);
    r.partition_id = p->index;
    r.topic_id = t->id;
    if (e->led_anew) r.leader = e->leader;
    bool isr = !kb_elect_same(e->isr, e->isr_count, p->isr, p->isr_count);
    bool whole = e->doubtful || e->gave_up || e->cleared || isr;
    if (whole) {
        r.isr.v = r.eligible_leader_replicas.v = r.last_known_elr.v = e->isr;
        r.isr.n = e->isr_count;
        r.eligible_leader_replicas.n = 0;
        r.last_known_elr.n = e->gave_up;
    }
    return kb_meta_batch_add(b, KW_RECORD_PARTITION_CHANGE, whole ? 2 : 0, &r);
}

/* What this node has a say in: it is in sync, or (as Apache Kafka leaves it after a clean stop) eligible; or it is the last that was. What it leads
 * gets a new epoch. */
static kw_err lead(struct kb_store *s, struct kb_meta_batch *b, const struct kb_image_topic *t, const struct kb_image_partition *p) {
    int32_t self = s->load.node_id;
    bool in_sync = kb_elect_has(p->isr, p->isr_count, self), eligible = p->isr_count == 0 && kb_elect_has(p->elr, p->elr_count, self);
    bool last_known = p->isr_count == 0 && p->elr_count == 0 && kb_elect_has(p->last_known_elr, p->last_known_elr_count, self);
    if (!in_sync && !eligible && !last_known) return KW_OK;
    struct kb_elect_rules rules = {.last_known = kb_config_bool(s->o.config, "last.known.leader.enable"), .anew = p->leader == self};
    struct kw_arena *arena = &s->replay.arena; /* nothing is replayed now */
    kw_arena_reset(arena);
    struct kb_elected e = {.isr = kw_arena_alloc(arena, ((size_t)p->replica_count + 1) * sizeof(int32_t))};
    uint8_t *states = kw_arena_alloc(arena, (size_t)p->replica_count + 1);
    if (!e.isr || !states) return KW_ENOMEM;
    for (int32_t i = 0; i < p->replica_count; i++) states[i] = replica_state(s, t, p, p->replicas[i]);
    kb_elect(p, states, &rules, &e);
    s->unclean_leads += e.doubtful;
    s->leaderless += e.gave_up || (last_known && e.leader < 0);
    return e.changed ? change(b, t, p, &e) : KW_OK;
}

static void say_doubts(const struct kb_store *s) {
    if (s->unclean_leads > 0)
        kb_say(s->o.env->logger, KB_WARN,
               "%d partitions are led by their last known leader, this node, though the machine went down: what was acknowledged and not "
               "synced may be lost (flush.on.ack=true keeps it)",
               (int)s->unclean_leads);
    if (s->leaderless > 0)
        kb_say(s->o.env->logger, KB_ERROR,
               "%d partitions have no leader: the machine went down, and what was acknowledged and not synced may be lost; to serve what is "
               "left, set last.known.leader.enable=true and start again",
               (int)s->leaderless);
}

static kw_err lead_all(struct kb_store *s, struct kb_meta_batch *b, struct kb_now now) {
    struct kb_image_topic *t;
    kw_err err = KW_OK;
    for (size_t it = 0; !err && (t = kw_map_next(&s->o.image->topics_by_name, &it));)
        for (int32_t i = 0; !err && i < t->partition_count; i++) {
            err = lead(s, b, t, &t->partitions[i]);
            if (!err && b->body.len >= BATCH_SIZE) err = kb_store_append_batch(s, b, false, now);
        }
    return err || b->count == 0 ? err : kb_store_append_batch(s, b, false, now);
}

void kb_store_boot(struct kb_store *s, struct kb_now now) {
    struct kb_meta_batch b;
    static const char version[] = "metadata.version";
    bool empty = !kw_map_get(&s->o.image->features, version, sizeof(version) - 1);
    s->state = KB_STORE_STARTING;
    kb_meta_batch_init(&b);
    kw_err err = kb_store_boot_leader_change(s, &b, &s->load.node_id, (const bool[]){true}, 1, now);
    if (!err && s->replay.in_transaction) err = kb_store_boot_abort(s, &b, now);
    if (!err && empty) err = kb_store_boot_features(s, &b, now);
    if (!err) err = registration(s, &b);
    if (!err) err = lead_all(s, &b, now);
    kb_meta_batch_deinit(&b);
    if (err) {
        kb_store_fail(s, now, "%s: the epoch's first records could not be appended%s%s", s->load.meta_dir, s->log->failure[0] ? ": " : "",
                      s->log->failure);
        return;
    }
    say_doubts(s);
    kb_store_flush(s, now);
}
