/* controller_reassign.c - partitions move onto other replicas: AlterPartitionReassignments, and the end of it when all that stay are in sync;
 * records of changes to replicas. KIP-455, KIP-860; P6 of the model: partitions move onto a new broker under load.
 *
 * Called by api/alter_partition_reassignments through controller.h, and by controller_isr.c (kb_target_*).
 */
#include "controller_priv.h"

/* ---- What a partition becomes ---- */

struct kb_target kb_target_of(const struct kb_image_partition *p) {
    return (struct kb_target){.replicas = p->replicas,
                              .replica_count = p->replica_count,
                              .isr = p->isr,
                              .isr_count = p->isr_count,
                              .adding = p->adding,
                              .adding_count = p->adding_count,
                              .removing = p->removing,
                              .removing_count = p->removing_count,
                              .leader = p->leader,
                              .recovery_state = -1};
}

/* a without b's members, in the arena. */
static int32_t *without(struct kb_controller *k, const int32_t *a, int32_t n, const int32_t *b, int32_t m, int32_t *count) {
    int32_t *v = kw_arena_alloc(&k->arena, ((size_t)n + 1) * sizeof(*v));
    *count = 0;
    for (int32_t i = 0; v && i < n; i++)
        if (!kb_elect_has(b, m, a[i])) v[(*count)++] = a[i];
    return v;
}

/* As Apache Kafka does: not before all that stay are in sync, those that it adds and those that were there. Else it could leave fewer in sync than
 * min.insync.replicas asks for, and take away the copies that made up for it. */
kw_err kb_target_complete(struct kb_controller *k, struct kb_target *x) {
    if (x->adding_count == 0 && x->removing_count == 0) return KW_OK;
    int32_t replica_count, isr_count;
    int32_t *replicas = without(k, x->replicas, x->replica_count, x->removing, x->removing_count, &replica_count);
    int32_t *isr = without(k, x->isr, x->isr_count, x->removing, x->removing_count, &isr_count);
    if (!replicas || !isr) return KW_ENOMEM;
    for (int32_t i = 0; i < replica_count; i++)
        if (!kb_elect_has(isr, isr_count, replicas[i])) return KW_OK;
    if (replica_count == 0) return KW_OK;
    x->replicas = replicas, x->replica_count = replica_count;
    x->isr = isr, x->isr_count = isr_count;
    x->adding_count = x->removing_count = 0;
    return KW_OK;
}

static kw_err directories(struct kb_controller *k, const struct kb_image_partition *p, const struct kb_target *x,
                          struct kw_partition_change_record *r) {
    struct kb_replicas now = {x->replicas, x->isr, x->replica_count, x->isr_count};
    return kb_change_directories(k, p, r, &now);
}

kw_err kb_target_elect(struct kb_controller *k, const struct kb_image_topic *t, const struct kb_image_partition *p, struct kb_target *x) {
    struct kb_image_partition q = *p;
    struct kw_partition_change_record dirs;
    struct kb_elect_rules rules = kb_elect_rules_of(k, t);
    struct kb_elected e = {.isr = kw_arena_alloc(&k->arena, ((size_t)x->replica_count + 1) * sizeof(int32_t))};
    kw_msg_init(&kw_partition_change_record_desc, &dirs);
    q.replicas = (int32_t *)(uintptr_t)x->replicas;
    q.replica_count = x->replica_count;
    q.isr = (int32_t *)(uintptr_t)x->isr;
    q.isr_count = x->isr_count;
    q.leader = x->leader;
    q.elr_count = q.last_known_elr_count = 0;
    if (!e.isr || directories(k, p, x, &dirs)) return KW_ENOMEM;
    if (dirs.directories.n >= 0) q.directories = dirs.directories.v, q.directory_count = dirs.directories.n;
    uint8_t *states = kb_replica_states(k, t, &q);
    if (!states) return KW_ENOMEM;
    kb_elect(&q, states, &rules, &e);
    if (e.lossy) kb_election_tell(k, t, p, &e);
    x->lossy = e.lossy;
    x->led_anew = e.led_anew;
    x->leader = e.leader;
    x->isr = e.isr, x->isr_count = e.isr_count;
    if (e.lossy) x->recovery_state = 1;
    return KW_OK;
}

kw_err kb_target_record(struct kb_controller *k, const struct kb_image_topic *t, const struct kb_image_partition *p, const struct kb_target *x,
                        bool *made) {
    size_t mark = k->record_count;
    struct kw_partition_change_record *r = kb_controller_record(k, KW_RECORD_PARTITION_CHANGE, 0);
    if (!r) return KW_ENOMEM;
    r->topic_id = t->id;
    r->partition_id = p->index;
    bool isr = !kb_elect_same(x->isr, x->isr_count, p->isr, p->isr_count);
    bool replicas = !kb_elect_same(x->replicas, x->replica_count, p->replicas, p->replica_count);
    bool adding = !kb_elect_same(x->adding, x->adding_count, p->adding, p->adding_count);
    bool removing = !kb_elect_same(x->removing, x->removing_count, p->removing, p->removing_count);
    bool recovery = x->recovery_state >= 0 && x->recovery_state != p->recovery_state;
    *made = isr || replicas || adding || removing || recovery || x->led_anew;
    if (!*made) {
        k->record_count = mark;
        return KW_OK;
    }
    if (isr) r->isr.v = (int32_t *)(uintptr_t)x->isr, r->isr.n = x->isr_count;
    if (replicas) r->replicas.v = (int32_t *)(uintptr_t)x->replicas, r->replicas.n = x->replica_count;
    if (adding) r->adding_replicas.v = (int32_t *)(uintptr_t)x->adding, r->adding_replicas.n = x->adding_count;
    if (removing) r->removing_replicas.v = (int32_t *)(uintptr_t)x->removing, r->removing_replicas.n = x->removing_count;
    if (recovery) r->leader_recovery_state = x->recovery_state;
    if (x->led_anew) r->leader = x->leader;
    if (x->isr_count > 0 && (p->elr_count > 0 || p->last_known_elr_count > 0)) r->eligible_leader_replicas.n = r->last_known_elr.n = 0;
    if (directories(k, p, x, r)) return KW_ENOMEM;
    kb_change_version(k, r);
    return KW_OK;
}

/* ---- AlterPartitionReassignments ---- */

static bool target_ok(struct kb_controller *k, struct kb_reassign *a, const struct kb_image_partition *p) {
    struct kb_result *r = &a->result;
    if (a->replica_count == 0) {
        kb_result_set(r, KE_INVALID_REPLICA_ASSIGNMENT, "no replica is named: a partition has at least one");
        return false;
    }
    for (int32_t i = 0; i < a->replica_count; i++) {
        if (!kb_image_broker(k->o.image, a->replicas[i])) {
            kb_result_set(r, KE_INVALID_REPLICA_ASSIGNMENT, "broker %d is not registered", (int)a->replicas[i]);
            return false;
        }
        if (kb_elect_has(a->replicas, i, a->replicas[i])) {
            kb_result_set(r, KE_INVALID_REPLICA_ASSIGNMENT, "broker %d is named twice", (int)a->replicas[i]);
            return false;
        }
    }
    int32_t factor = p->replica_count - p->adding_count;
    if (!a->keep_factor || a->replica_count == factor) return true;
    kb_result_set(r, KE_INVALID_REPLICATION_FACTOR, "the partition has %d replicas, %d are named, and the request forbids a change of their number",
                  (int)factor, (int)a->replica_count);
    return false;
}

/* Replicas that an earlier reassignment added and this one does not want go at once; what the partition had before stays until it is over. */
static kw_err plan(struct kb_controller *k, const struct kb_reassign *a, const struct kb_image_partition *p, struct kb_target *x) {
    int32_t base_count, kept, isr_count;
    int32_t *base = without(k, p->replicas, p->replica_count, p->adding, p->adding_count, &base_count);
    int32_t *all = kw_arena_alloc(&k->arena, ((size_t)a->replica_count + (size_t)p->replica_count) * sizeof(*all));
    if (!base || !all) return KW_ENOMEM;
    int32_t *isr = kw_arena_alloc(&k->arena, ((size_t)p->isr_count + 1) * sizeof(*isr));
    if (!isr) return KW_ENOMEM;
    isr_count = 0;
    for (int32_t i = 0; i < p->isr_count; i++)
        if (kb_elect_has(base, base_count, p->isr[i]) || kb_elect_has(a->replicas, a->replica_count, p->isr[i])) isr[isr_count++] = p->isr[i];
    if (isr_count == 0) { /* those are all that is in sync: they leave in order */
        base = p->replicas, base_count = p->replica_count;
        isr = p->isr, isr_count = p->isr_count;
    }
    int32_t *removing = without(k, base, base_count, a->replicas, a->replica_count, &kept);
    int32_t adding_count;
    int32_t *adding = without(k, a->replicas, a->replica_count, base, base_count, &adding_count);
    if (!removing || !adding) return KW_ENOMEM;
    memcpy(all, a->replicas, (size_t)a->replica_count * sizeof(*all));
    if (kept) memcpy(all + a->replica_count, removing, (size_t)kept * sizeof(*all));
    x->replicas = all, x->replica_count = a->replica_count + kept;
    x->removing = removing, x->removing_count = kept;
    x->adding = adding, x->adding_count = adding_count;
    x->isr = isr, x->isr_count = isr_count;
    return kb_target_complete(k, x);
}

static kw_err revert(struct kb_controller *k, struct kb_reassign *a, const struct kb_image_topic *t, const struct kb_image_partition *p,
                     struct kb_target *x) {
    if (p->adding_count == 0 && p->removing_count == 0) {
        kb_result_set(&a->result, KE_NO_REASSIGNMENT_IN_PROGRESS, "the partition is not being reassigned");
        return KW_OK;
    }
    x->replicas = without(k, p->replicas, p->replica_count, p->adding, p->adding_count, &x->replica_count);
    x->isr = without(k, p->isr, p->isr_count, p->adding, p->adding_count, &x->isr_count);
    if (!x->replicas || !x->isr) return KW_ENOMEM;
    x->adding_count = x->removing_count = 0;
    if (x->replica_count == 0 || (x->isr_count == 0 && !kb_elect_rules_of(k, t).unclean))
        kb_result_set(&a->result, KE_INVALID_REPLICA_ASSIGNMENT,
                      "none of the replicas that the partition had before is in sync: going back would lose records");
    return KW_OK;
}

static kw_err reassign_one(struct kb_controller *k, struct kb_reassign *a) {
    const struct kb_image_topic *t = kb_image_topic(k->o.image, a->topic);
    const struct kb_image_partition *p = kb_image_partition(k->o.image, a->topic, a->partition);
    if (a->result.code) return KW_OK;
    if (!p) {
        kb_result_set(&a->result, KE_UNKNOWN_TOPIC_OR_PARTITION, "there is no partition %d of topic %.*s", (int)a->partition,
                      (int)KW_MIN(a->topic.len, 100), a->topic.p);
        return KW_OK;
    }
    struct kb_target x = kb_target_of(p);
    bool made;
    kw_err err = KW_OK;
    if (!a->replicas)
        err = revert(k, a, t, p, &x);
    else if (target_ok(k, a, p))
        err = plan(k, a, p, &x);
    if (err || a->result.code) return err;
    bool led = x.leader < 0 || kb_elect_has(x.isr, x.isr_count, x.leader);
    if (!led || x.isr_count == 0) err = kb_target_elect(k, t, p, &x);
    if (!err && x.isr_count == 0) { /* where unclean elections are allowed: nobody lives who could win one */
        kb_result_set(&a->result, KE_INVALID_REPLICA_ASSIGNMENT,
                      "none of the replicas that the partition had before is in sync or alive: start one of their brokers first");
        return KW_OK;
    }
    return err ? err : kb_target_record(k, t, p, &x, &made);
}

static kw_err run_reassign(struct kb_controller *k, struct kb_change *c) {
    kw_err err = KW_OK;
    for (int32_t i = 0; !err && i < c->count; i++) err = reassign_one(k, &((struct kb_reassign *)c->items)[i]);
    return err;
}

static bool claim_reassign(struct kb_controller *k, struct kb_change *c, int32_t i, char key[KB_CLAIM_SIZE], size_t *n) {
    (void)k;
    return kb_claim_topic(((struct kb_reassign *)c->items)[i].topic, key, n);
}
static bool names_reassign(struct kb_controller *k, struct kb_change *c, int32_t i, char key[KB_CLAIM_SIZE], size_t *n) {
    const struct kb_reassign *a = &((struct kb_reassign *)c->items)[i];
    (void)k;
    return kb_names_partition(a->topic, a->partition, key, n);
}
static struct kb_result *reassign_result(struct kb_change *c, int32_t i) {
    return &((struct kb_reassign *)c->items)[i].result;
}
static const struct kb_change_kind reassign_kind = {.run = run_reassign,
                                                    .claim = claim_reassign,
                                                    .names = names_reassign,
                                                    .result = reassign_result,
                                                    .soon = true};

kw_err kb_controller_reassign(struct kb_controller *k, struct kb_reassign *v, int32_t count, struct kb_change *c, struct kb_now now) {
    return kb_controller_submit(k, c, &reassign_kind, v, count, false, now);
}
