/* partition.c - one partition: who may use it, its role, its high watermark, what its log tells it, its end.
 *
 * Called by api/ (find, dirty, pin), by the log (marks, failures), by partitions.c and isr. Calls log/, purgatory, isr, follower.
 */
#include "api/pid_source.h"
#include "follower.h"
#include "guids.h"
#include "group/coordinator.h"
#include "log/epochs.h"
#include "log/pid_state.h"
#include "partitions_priv.h"
#include "uuid.h"

int16_t kb_partition_copy_error(const struct kb_partition *p, int32_t leader_epoch) {
    switch (p->state) {
    case KB_PART_DELETED: /* or another node's now */
        return kb_image_topic_by_id(&p->node->image, p->topic_id) ? KE_NOT_LEADER_OR_FOLLOWER : KE_UNKNOWN_TOPIC_OR_PARTITION;
    case KB_PART_OFFLINE:
        return KE_KAFKA_STORAGE_ERROR;
    case KB_PART_LOADING:
        return KE_NOT_LEADER_OR_FOLLOWER;
    case KB_PART_ONLINE:
        break;
    }
    if (p->role == KB_PART_IDLE) return KE_NOT_LEADER_OR_FOLLOWER;
    if (leader_epoch >= 0 && leader_epoch < p->leader_epoch) return KE_FENCED_LEADER_EPOCH;
    if (leader_epoch >= 0 && leader_epoch > p->leader_epoch) return KE_UNKNOWN_LEADER_EPOCH;
    return KE_NONE;
}

int16_t kb_partition_error(const struct kb_partition *p, int32_t leader_epoch) {
    int16_t code = kb_partition_copy_error(p, leader_epoch);
    return code == KE_NONE && p->role != KB_PART_LEADS ? KE_NOT_LEADER_OR_FOLLOWER : code;
}

void kb_partition_epoch_end(const struct kb_partition *p, int32_t asked, int64_t log_end, int32_t *epoch, int64_t *end) {
    int32_t latest = kb_epochs_latest(p->log->epochs);
    kb_epochs_end_offset(p->log->epochs, asked, log_end, epoch, end);
    if (p->role != KB_PART_LEADS || latest < 0 || asked <= latest || asked > p->leader_epoch) return;
    *epoch = latest;
    *end = log_end;
}

struct kb_partition *kb_partition_by_id(const struct kb_node *n, struct kw_uuid id, int32_t index) {
    const struct kb_image_topic *t = kb_image_topic_by_id(&n->image, id);
    return t && index >= 0 && index < t->partition_count ? t->partitions[index].local : NULL;
}

int16_t kb_partition_find_copy(struct kb_node *n, struct kw_str topic, struct kw_uuid id, int32_t index, int32_t leader_epoch,
                               struct kb_partition **p) {
    bool by_id = !kw_uuid_is_zero(id);
    const struct kb_image_topic *t = by_id ? kb_image_topic_by_id(&n->image, id) : kb_image_topic(&n->image, topic);
    if (!t) return by_id ? KE_UNKNOWN_TOPIC_ID : KE_UNKNOWN_TOPIC_OR_PARTITION;
    return kb_partition_of_topic(t, index, leader_epoch, p);
}

int16_t kb_partition_of_topic(const struct kb_image_topic *t, int32_t index, int32_t leader_epoch, struct kb_partition **p) {
    if (index < 0 || index >= t->partition_count) return KE_UNKNOWN_TOPIC_OR_PARTITION;
    struct kb_partition *found = t->partitions[index].local;
    if (!found) return KE_NOT_LEADER_OR_FOLLOWER;
    int16_t code = kb_partition_copy_error(found, leader_epoch);
    if (code == KE_NONE) *p = found;
    return code;
}

int16_t kb_partition_find(struct kb_node *n, struct kw_str topic, struct kw_uuid id, int32_t index, int32_t leader_epoch,
                          struct kb_partition **p) {
    struct kb_partition *found = NULL;
    int16_t code = kb_partition_find_copy(n, topic, id, index, leader_epoch, &found);
    if (code == KE_NONE && found->role != KB_PART_LEADS) code = KE_NOT_LEADER_OR_FOLLOWER;
    if (code == KE_NONE) *p = found;
    return code;
}

struct kb_partition *kb_partition_new(struct kb_node *n, struct kb_image_topic *t, struct kb_image_partition *ip) {
    struct kb_partition *p = kw_calloc(1, sizeof(*p));
    if (!p) return NULL;
    p->topic = kw_memdup(t->name, strlen(t->name) + 1);
    if (!p->topic) {
        kw_free(p);
        return NULL;
    }
    p->node = n;
    p->topic_id = t->id;
    p->index = ip->index;
    p->state = KB_PART_LOADING;
    p->untouched = true;
    p->leader_id = p->leader_epoch = p->partition_epoch = -1;
    p->flush_due_us = KW_NEVER;
    for (size_t i = 0; i < KB_POINT_COUNT; i++) p->points[i] = -1;
    kw_list_init(&p->waiters);
    kw_list_init(&p->guid_gate);
    kw_list_init(&p->guid_users);
    kw_list_init(&p->dirty_link);
    kw_list_init(&p->config_link);
    kw_list_init(&p->link);
    p->internal = t->internal;
    kb_partition_configure(p);
    kb_partition_take_image(p, t, ip, n->now);
    kw_list_push(&n->partitions->all, &p->link);
    ip->local = p;
    return p;
}

void kb_partition_freed(struct kb_partition *p) {
    kb_follower_free(p);
    kw_free(p->leaving);
    kw_free(p->replicas);
    kw_free(p->isr);
    kw_free(p->topic);
    kw_free(p);
}

/* ---- Its role ---- */

void kb_partition_leave_role(struct kb_partition *p) {
    kb_follower_leave(p);
    kb_isr_leave(p);
    p->role = KB_PART_IDLE;
    kb_coordinator_moved(p);
}

/* In this life: what the metadata says of an earlier one of this node's does not make it lead. Its registration raises those epochs. */
bool kb_partitions_registered(const struct kb_node *n) {
    const struct kb_image_broker *b = kb_image_broker(&n->image, n->id);
    return kb_store_is_single(n->parts.store) || (b && b->epoch == kb_store_broker_epoch(n->parts.store));
}

/* A log that is being cut has no end that could be vouched for: the role is taken when that is over (marks_moved). */
static void take_role(struct kb_partition *p, struct kb_now now) {
    if (p->state != KB_PART_ONLINE || p->leader_id < 0 || p->log->busy) {
        kb_partition_leave_role(p);
        return;
    }
    if (p->leader_id != p->node->id) {
        kb_isr_leave(p);
        p->role = KB_PART_FOLLOWS;
        kb_coordinator_moved(p);
        kb_follower_follow(p, now);
        return;
    }
    if (!kb_partitions_registered(p->node)) {
        kb_partition_leave_role(p);
        return;
    }
    kb_follower_leave(p);
    p->role = KB_PART_LEADS;
    p->epoch_start = p->log->leo;
    /* Who asks where an older epoch ended must be told before anything is appended in this one. */
    if (p->replica_count > 1 && kb_epochs_assign(p->log->epochs, p->leader_epoch, p->log->leo) != KW_OK)
        kb_node_fail(p->node, "no memory for the leader epochs of %s-%d", p->topic, p->index);
    kb_isr_lead(p, now);
    kb_coordinator_moved(p);
}

void kb_partition_retake_role(struct kb_partition *p, struct kb_now now) {
    if (p->role != KB_PART_IDLE || p->leader_id < 0) return;
    take_role(p, now);
    if (p->replica_count > 1) kb_partition_reckon(p, now);
}

static bool same_ids(const int32_t *a, int32_t a_count, const int32_t *b, int32_t b_count) {
    return a_count == b_count && (a_count == 0 || memcmp(a, b, (size_t)a_count * sizeof(*a)) == 0);
}

static bool take_ids(struct kb_partition *p, int32_t **v, int32_t *n, const int32_t *from, int32_t count) {
    if (same_ids(*v, *n, from, count)) return true;
    int32_t *copy = count > 0 ? kw_memdup(from, (size_t)count * sizeof(*from)) : NULL;
    if (count > 0 && !copy) {
        kb_node_fail(p->node, "no memory for the replicas of %s-%d", p->topic, p->index);
        return false;
    }
    kw_free(*v);
    *v = copy;
    *n = count;
    return true;
}

void kb_partition_take_image(struct kb_partition *p, const struct kb_image_topic *t, const struct kb_image_partition *ip, struct kb_now now) {
    p->internal = t->internal;
    if (ip->partition_epoch < p->partition_epoch) return; /* the controller's answer to a change of the ISR was here first */
    bool later = ip->partition_epoch != p->partition_epoch;
    bool moved = later || !same_ids(p->replicas, p->replica_count, ip->replicas, ip->replica_count);
    if (!take_ids(p, &p->replicas, &p->replica_count, ip->replicas, ip->replica_count) ||
        !take_ids(p, &p->isr, &p->isr_count, ip->isr, ip->isr_count))
        return;
    bool led_anew = ip->leader_epoch != p->leader_epoch || ip->leader != p->leader_id;
    p->leader_id = ip->leader;
    p->leader_epoch = ip->leader_epoch;
    p->partition_epoch = ip->partition_epoch;
    if (led_anew)
        take_role(p, now);
    else if (p->role == KB_PART_LEADS && moved)
        kb_isr_changed(p, later, now);
    if (p->role == KB_PART_LEADS && p->replica_count > 1) kb_partition_reckon(p, now);
}

void kb_partition_take_isr(struct kb_partition *p, int32_t partition_epoch, const int32_t *isr, int32_t count, struct kb_now now) {
    if (!take_ids(p, &p->isr, &p->isr_count, isr, count)) return;
    p->partition_epoch = partition_epoch;
    kb_isr_changed(p, true, now);
    kb_partition_reckon(p, now);
    kb_purgatory_moved(p, now); /* too few may be in sync now */
}

/* ---- The log's marks ---- */

/* One copy: what is durable enough here is what everyone has. */
static int64_t hw_of(const struct kb_partition *p) {
    return p->log_config.flush_on_ack ? p->log->synced : p->log->written;
}

/* Of a single replica it is its own; of one that follows, the leader's to say. True when it moved. */
static bool raise_hw(struct kb_partition *p, struct kb_now now) {
    if (p->role == KB_PART_FOLLOWS || (p->role == KB_PART_IDLE && p->replica_count > 1)) return false;
    int64_t hw = KW_MAX(p->replica_count > 1 ? kb_isr_hw(p, hw_of(p), now) : hw_of(p), p->log->start);
    if (hw <= p->hw) return false;
    p->hw = hw;
    kb_partitions_point_moved(p->node, KB_POINT_HW);
    return true;
}

void kb_partition_reckon(struct kb_partition *p, struct kb_now now) {
    if (p->role == KB_PART_LEADS && raise_hw(p, now)) kb_purgatory_moved(p, now);
}

static void marks_moved(void *ctx, struct kb_log *log, struct kb_now now) {
    struct kb_partition *p = ctx;
    if (p->opening) {
        kb_opening_moved(p, now); /* may be the end of p */
        return;
    }
    if (p->state != KB_PART_ONLINE) return;
    kb_partition_retake_role(p, now);
    raise_hw(p, now);
    if (p->role == KB_PART_FOLLOWS) kb_follower_marks_moved(p, now);
    kb_partitions_point_moved(p->node, KB_POINT_RECOVERY);
    if (log->synced < log->written)
        kb_partitions_flush_due(p);
    else
        p->flush_due_us = KW_NEVER;
    kb_guids_look(p, now);
    kb_purgatory_moved(p, now);
}

static void log_failed(void *ctx, struct kb_log *log, struct kb_now now) {
    struct kb_partition *p = ctx;
    if (p->opening) {
        kb_opening_moved(p, now);
        return;
    }
    if (p->state == KB_PART_ONLINE) kb_partition_offline(p, log->failure);
    kb_purgatory_moved(p, now);
}

/* A full disk took back what was appended, and with it where this leader's epoch began: told anew, or whoever asks where an older one ended is told that
 * it is newer than all that is known here, and begins anew. */
static void log_cut_back(void *ctx, struct kb_log *log, struct kb_now now) {
    struct kb_partition *p = ctx;
    if (p->role == KB_PART_LEADS && p->replica_count > 1 && kb_epochs_assign(log->epochs, p->leader_epoch, log->leo) != KW_OK)
        kb_node_fail(p->node, "no memory for the leader epochs of %s-%d", p->topic, p->index);
    kb_guids_cut_back(p, now);
    kb_purgatory_moved(p, now);
}

struct kb_log_owner kb_partition_owner(struct kb_partition *p) {
    return (struct kb_log_owner){.marks_moved = marks_moved, .failed = log_failed, .cut_back = log_cut_back, .ctx = p};
}

void kb_partition_set_hw(struct kb_partition *p, int64_t hw, struct kb_now now) {
    hw = KW_MIN(KW_MAX(KW_MAX(hw, p->hw), p->log->start), p->log->leo);
    if (hw == p->hw) return;
    p->hw = hw;
    kb_partitions_point_moved(p->node, KB_POINT_HW);
    kb_purgatory_moved(p, now);
}

void kb_partition_offline(struct kb_partition *p, const char *why) {
    kb_partition_leave_role(p);
    p->state = KB_PART_OFFLINE;
    kb_guids_left(p);
    kb_cleaner_left(p);
    KB_SAY(p->node, KB_ERROR, "%s-%d is offline: %s; %s until the disk is mended and the broker restarted", p->topic, p->index, why,
           p->replica_count > 1 ? "its other replicas go on without this one" : "its clients get KAFKA_STORAGE_ERROR");
    kb_dirs_failed(p, p->node->now);
}

void kb_partition_online(struct kb_partition *p, struct kb_log *log, struct kb_now now) {
    p->log = log;
    p->state = KB_PART_ONLINE;
    p->was_online = true;
    if (p->points[KB_POINT_HW] > log->leo && p->replica_count > 1) {
        KB_SAY(p->node, KB_WARN, "%s-%d ends at offset %lld, but was committed up to %lld: the other replicas have the rest", p->topic, p->index,
               (long long)log->leo, (long long)p->points[KB_POINT_HW]);
    } else if (p->points[KB_POINT_HW] > log->leo) {
        p->node->partitions->lost += p->points[KB_POINT_HW] - log->leo;
        KB_SAY(p->node, KB_ERROR, "%s-%d ends at offset %lld, but was committed up to %lld: at least %lld records are lost", p->topic, p->index,
               (long long)log->leo, (long long)p->points[KB_POINT_HW], (long long)(p->points[KB_POINT_HW] - log->leo));
    }
    kb_pid_source_from(p->node, kb_pid_highest(log->pids) + 1);
    p->hw = KW_MIN(KW_MAX(p->points[KB_POINT_HW], log->start), log->leo);
    marks_moved(p, log, now);
    kb_dirs_look(p, NULL, now);
    kb_cleaner_look(p);
}

void kb_partition_dirty(struct kb_partition *p) {
    if (kw_list_empty(&p->dirty_link)) kw_list_push(&p->node->partitions->dirty, &p->dirty_link);
}

/* ---- The end ---- */

void kb_partition_pin(struct kb_partition *p) {
    p->pins++;
}

void kb_partition_unpin(struct kb_partition *p) {
    KW_ASSERT(p->pins > 0);
    p->pins--;
    if (p->state == KB_PART_DELETED) kb_partition_try_free(p, p->node->now);
}

static void leave(struct kb_partition *p, struct kb_now now) {
    kw_list_remove(&p->link);
    kb_openings_unpark(p->node, p, now);
    kb_partition_freed(p);
}

static void leave_step(void *ctx, struct kb_now now) {
    struct kb_leaving *v = ctx;
    if (--v->left == 0) leave(v->p, now);
}

static kw_err delete_folder(struct kb_partition *p, void *ctx, struct kb_now now) {
    struct kb_node *n = p->node;
    struct kw_uuid id = kb_uuid_random(&n->parts.rng);
    if (p->log) return kb_log_delete(p->log, id.b, leave_step, ctx, now);
    char *dir = kb_partition_folder(p);
    kw_err err = dir ? kb_log_delete_folder(&n->parts.log_env, dir, p->log_config.file_delete_delay_ms, id.b, leave_step, ctx) : KW_ENOMEM;
    kw_free(dir);
    return err;
}

/* The log's own memory goes now; the partition's, when a new one of its name may come. */
void kb_partition_try_free(struct kb_partition *p, struct kb_now now) {
    if (p->pins > 0 || p->opening || p->leaving) return;
    struct kb_node *n = p->node;
    KW_ASSERT(kw_list_empty(&p->waiters));
    kw_list_remove(&p->dirty_link);
    struct kb_leaving *v = p->leaving = kw_calloc(1, sizeof(*v));
    kw_err err = v ? KW_OK : KW_ENOMEM;
    if (v) *v = (struct kb_leaving){.p = p, .left = 1};
    if (v && !p->untouched && (err = delete_folder(p, v, now)) == KW_OK) v->left++;
    if (err != KW_OK) {
        KB_SAY(n, KB_ERROR, "%s-%d: no memory to remove the deleted topic's folder; it is left for the next start", p->topic, p->index);
        if (p->log) kb_log_free(p->log);
    }
    p->log = NULL;
    if (v)
        kb_partitions_forget_points(n, &v->points, leave_step, v);
    else
        leave(p, now);
}
