/* controller_isr.c - a partition's leader asks for other in-sync replicas: AlterPartition, guarded by broker, leader and partition epochs.
 * KIP-497, 704, 841, 903; P4 of the model.
 *
 * Called by api/alter_partition through controller.h. Several partitions are one batch; each has its own result.
 */
#include <stdio.h>

#include "controller_priv.h"

static const struct kb_image_topic *topic_of(const struct kb_controller *k, const struct kb_isr_alter *a) {
    return a->topic.len >= 0 ? kb_image_topic(k->o.image, a->topic) : kb_image_topic_by_id(k->o.image, a->topic_id);
}

static void refuse(struct kb_isr_alter *a, int16_t code, const char *text) {
    kb_result_set(&a->result, code, "%s", text);
}

/* The members, apart from who they are. */
static bool members_ok(const struct kb_isr_alter *a, const struct kb_image_partition *p) {
    if (!kb_elect_has(a->isr, a->isr_count, p->leader)) return false;
    for (int32_t i = 0; i < a->isr_count; i++)
        if (!kb_elect_has(p->replicas, p->replica_count, a->isr[i]) || kb_elect_has(a->isr, i, a->isr[i])) return false;
    return !(a->recovery_state == 1 && (a->isr_count > 1 || p->recovery_state == 0));
}

static bool epochs_ok(const struct kb_isr_request *q, struct kb_isr_alter *a, const struct kb_image_partition *p) {
    if (a->leader_epoch > p->leader_epoch || a->partition_epoch > p->partition_epoch)
        refuse(a, KE_NOT_CONTROLLER, "the leader knows a later state: another node is the controller");
    else if (a->leader_epoch < p->leader_epoch)
        refuse(a, KE_FENCED_LEADER_EPOCH, "the leader epoch is over");
    else if (q->broker != p->leader)
        refuse(a, KE_INVALID_REQUEST, "another broker leads the partition");
    else if (a->partition_epoch < p->partition_epoch)
        refuse(a, KE_INVALID_UPDATE_VERSION, "the partition was changed since");
    else
        return true;
    return false;
}

/* Members must be alive, here to stay, and in the life that the leader heard of; the leader itself may be about to stop. */
static bool eligible(struct kb_controller *k, struct kb_isr_alter *a, const struct kb_image_partition *p) {
    for (int32_t i = 0; i < a->isr_count; i++) {
        const struct kb_image_broker *b = kb_image_broker(k->o.image, a->isr[i]);
        int64_t epoch = a->broker_epochs ? a->broker_epochs[i] : -1;
        bool lost = kb_elect_is_lost(p, a->isr[i]);
        bool fit = b && !b->fenced && !b->in_controlled_shutdown && !lost && (epoch < 0 || epoch == b->epoch);
        if (fit || (a->isr[i] == p->leader && b && !b->fenced && (epoch < 0 || epoch == b->epoch))) continue;
        kb_result_set(&a->result, KE_INELIGIBLE_REPLICA, "broker %d %s", (int)a->isr[i],
                      !b                           ? "is not registered"
                      : lost                       ? "cannot use its log: its disk failed"
                      : b->fenced                  ? "is fenced"
                      : b->in_controlled_shutdown  ? "is shutting down"
                                                   : "was started anew since the leader heard of it");
        return false;
    }
    return true;
}

static void tell(struct kb_isr_alter *a, const struct kb_image_partition *p, const struct kb_target *x, bool made) {
    if (made && x->led_anew) {
        refuse(a, KE_NEW_LEADER_ELECTED, "the reassignment is over, and another broker leads");
        return;
    }
    memcpy(a->isr_room, x->isr, (size_t)x->isr_count * sizeof(*a->isr_room));
    a->now_isr_count = x->isr_count;
    a->leader = x->leader;
    a->now_leader_epoch = p->leader_epoch;
    a->now_partition_epoch = p->partition_epoch + made;
    a->now_recovery_state = x->recovery_state >= 0 ? x->recovery_state : p->recovery_state;
}

static kw_err alter_one(struct kb_controller *k, const struct kb_isr_request *q, struct kb_isr_alter *a) {
    const struct kb_image_topic *t = topic_of(k, a);
    if (a->result.code) return KW_OK;
    if (!t || a->partition < 0 || a->partition >= t->partition_count) {
        refuse(a, t || a->topic.len >= 0 ? KE_UNKNOWN_TOPIC_OR_PARTITION : KE_UNKNOWN_TOPIC_ID, "there is no such partition");
        return KW_OK;
    }
    const struct kb_image_partition *p = &t->partitions[a->partition];
    if (!epochs_ok(q, a, p)) return KW_OK;
    if (!members_ok(a, p)) {
        refuse(a, KE_INVALID_REQUEST, "these cannot be the in-sync replicas of the partition");
        return KW_OK;
    }
    if (!eligible(k, a, p)) return KW_OK;
    struct kb_target x = kb_target_of(p);
    bool made;
    x.isr = a->isr, x.isr_count = a->isr_count;
    x.recovery_state = a->recovery_state;
    kw_err err = kb_target_complete(k, &x);
    if (!err && !kb_elect_has(x.isr, x.isr_count, x.leader)) err = kb_target_elect(k, t, p, &x);
    if (!err) err = kb_target_record(k, t, p, &x, &made);
    if (!err) tell(a, p, &x, made);
    return err;
}

static kw_err run_isr(struct kb_controller *k, struct kb_change *c) {
    struct kb_isr_request *q = c->items;
    const struct kb_image_broker *b = kb_image_broker(k->o.image, q->broker);
    kw_err err = KW_OK;
    q->stale = !b || b->epoch != q->broker_epoch;
    for (int32_t i = 0; !err && i < c->count; i++) {
        if (q->stale)
            refuse(&q->items[i], KE_STALE_BROKER_EPOCH, "the broker was registered anew since");
        else
            err = alter_one(k, q, &q->items[i]);
    }
    return err;
}

static bool claim_isr(struct kb_controller *k, struct kb_change *c, int32_t i, char key[KB_CLAIM_SIZE], size_t *n) {
    const struct kb_image_topic *t = topic_of(k, &((struct kb_isr_request *)c->items)->items[i]);
    return t && kb_claim_topic(kw_str_of(t->name), key, n);
}
static bool names_isr(struct kb_controller *k, struct kb_change *c, int32_t i, char key[KB_CLAIM_SIZE], size_t *n) {
    const struct kb_isr_alter *a = &((struct kb_isr_request *)c->items)->items[i];
    const struct kb_image_topic *t = topic_of(k, a);
    return t && kb_names_partition(kw_str_of(t->name), a->partition, key, n);
}
static struct kb_result *isr_result(struct kb_change *c, int32_t i) {
    return &((struct kb_isr_request *)c->items)->items[i].result;
}
static const struct kb_change_kind isr_kind = {
    .run = run_isr, .claim = claim_isr, .names = names_isr, .result = isr_result, .soon = true};

kw_err kb_controller_alter_isr(struct kb_controller *k, struct kb_isr_request *q, int32_t count, struct kb_change *c, struct kb_now now) {
    q->stale = false;
    return kb_controller_submit(k, c, &isr_kind, q, count, false, now);
}
