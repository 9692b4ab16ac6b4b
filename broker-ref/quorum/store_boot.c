/* store_boot.c - the first records of an epoch: leader change, the cluster's features when the log is new, this node's registration, and a
 * new leader epoch for every partition that it leads, so that no offset is ever given out twice in one epoch. KIP-595, KIP-631, KIP-868.
 *
 * Called by store_load.c once everything is replayed; the batches are appended at once and cost one sync.
 */
#include "advertise.h"
#include "effective.h"
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

static bool has(const int32_t *v, int32_t n, int32_t id) {
    for (int32_t i = 0; i < n; i++)
        if (v[i] == id) return true;
    return false;
}

enum { DIRECTORY_RESERVED = 100 }; /* ids below have meanings of their own: unassigned, lost, migrating */

/* The partition was last on a disk of another id than this folder's: that one was wiped, or exchanged. */
static bool other_disk(const struct kb_store *s, const struct kb_image_partition *p) {
    for (int32_t i = 0; i < p->replica_count && i < p->directory_count; i++) {
        if (p->replicas[i] != s->load.node_id || kw_uuid_eq(p->directories[i], s->load.directory_id)) continue;
        for (size_t k = 0; k < 15; k++)
            if (p->directories[i].b[k]) return true;
        return p->directories[i].b[15] >= DIRECTORY_RESERVED;
    }
    return false;
}

/* May this replica have lost what it acknowledged? */
static bool doubtful(const struct kb_store *s, const struct kb_image_topic *t, const struct kb_image_partition *p) {
    if (other_disk(s, p)) return true;
    return s->o.unclean && kb_effective_topic_int(s->o.image, s->o.config, kw_str_of(t->name), "flush.on.ack") <= 0;
}

static kw_err change(struct kb_store *s, struct kb_meta_batch *b, const struct kb_image_topic *t, const struct kb_image_partition *p, bool whole,
                     bool leads) {
    int32_t self = s->load.node_id;
    struct kw_partition_change_record r;
    kw_msg_init(&kw_partition_change_record_desc, &r);
    r.partition_id = p->index;
    r.topic_id = t->id;
    r.leader = leads ? self : -1;
    if (whole) {
        r.isr.v = r.eligible_leader_replicas.v = r.last_known_elr.v = &self;
        r.isr.n = leads;
        r.eligible_leader_replicas.n = 0;
        r.last_known_elr.n = !leads;
    }
    return kb_meta_batch_add(b, KW_RECORD_PARTITION_CHANGE, whole ? 2 : 0, &r);
}

/* What this node may lead: it is in sync, or (as Apache Kafka leaves it after a clean stop) eligible; or it is the last that was, and the
 * switch is on. A quorum of one has no other replica that might know more. */
static kw_err lead(struct kb_store *s, struct kb_meta_batch *b, const struct kb_image_topic *t, const struct kb_image_partition *p) {
    int32_t self = s->load.node_id;
    bool in_sync = has(p->isr, p->isr_count, self), eligible = p->isr_count == 0 && has(p->elr, p->elr_count, self);
    bool last_known = p->isr_count == 0 && p->elr_count == 0 && has(p->last_known_elr, p->last_known_elr_count, self);
    if ((!in_sync && !eligible && !last_known) || (p->leader != self && p->leader != -1)) return KW_OK;
    if (!last_known && !doubtful(s, t, p)) return change(s, b, t, p, eligible, true);
    bool leads = kb_config_bool(s->o.config, "last.known.leader.enable");
    if (leads)
        s->unclean_leads++;
    else
        s->leaderless++;
    return last_known && !leads ? KW_OK : change(s, b, t, p, true, leads);
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
