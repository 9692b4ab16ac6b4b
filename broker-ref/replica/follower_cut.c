/* follower_cut.c - a follower's log has what its leader has not: it is cut back to where they part, or emptied when it ends before the leader's
 * begins. KIP-101, 279, 320.
 *
 * Called by follower_answer. Calls replicate (where), log/ (the cut), partitions (the checkpoint). In order: the recovery point in the checkpoint
 * file goes down to where the log will end, and may not say more until the cut is done (a torn write behind it would pass for rot); then the GUID
 * index forgets what is above, durably; then the cut.
 * A partition that leaves before the cut has begun is not cut; after that the log is busy until it is done, whoever leads.
 *
 * Below the high watermark nothing is cut, unless an unclean election stands behind it: then the lost records are counted and told.
 */
#include "follower_priv.h"
#include "guids.h"
#include "node_priv.h"
#include "replicate.h"

static void cut_now(struct kb_follower *f, struct kb_now now);

/* An election outside of the in-sync replicas goes on in their list, and in the recovery state, until the new leader has taken others in. */
static bool was_unclean(const struct kb_follower *f) {
    const struct kb_partition *p = f->p;
    const struct kb_image_partition *ip = kb_image_partition(&p->node->image, kw_str_of(p->topic), p->index);
    if (ip && ip->recovery_state != 0) return true;
    return !kb_ids_have(p->isr, p->isr_count, p->node->id);
}

static bool may_cut(struct kb_follower *f, int64_t to, struct kb_now now) {
    struct kb_partition *p = f->p;
    struct kb_follower_stats *stats = &p->node->followers->stats;
    if (to >= p->hw) return true;
    if (p->log->leo == p->log->start) { /* nothing is there to be cut */
        p->hw = to;
        return true;
    }
    if (!was_unclean(f)) {
        if (f->said != KE_UNKNOWN_SERVER_ERROR)
            KB_SAY(p->node, KB_ERROR,
                   "%s-%d: the leader, broker %d, has records up to offset %lld only, but all below %lld were committed and no unclean election is "
                   "known of: nothing is cut and nothing fetched until it is",
                   p->topic, p->index, f->peer->id, (long long)to, (long long)p->hw);
        f->said = KE_UNKNOWN_SERVER_ERROR;
        return false;
    }
    stats->unclean_truncations++;
    stats->unclean_records += p->hw - to;
    kb_guids_lose_committed(p, to, p->hw, now);
    KB_SAY(p->node, KB_ERROR,
           "%s-%d is cut back to offset %lld, as its leader, broker %d, has it after an unclean election: %lld records that were committed are lost",
           p->topic, p->index, (long long)to, f->peer->id, (long long)(p->hw - to));
    p->hw = to;
    kb_partitions_point_moved(p->node, KB_POINT_HW);
    return true;
}

/* ---- The checkpoint, before ---- */

static void let_go(struct kb_follower *f) {
    kw_blk_unref(f->held);
    f->held = NULL;
}

static void end(struct kb_follower *f) {
    f->cutting = f->cut_again = false;
    f->recovery_max = INT64_MAX;
    kb_follower_changed(f);
}

static void point_stored(struct kb_point_waiter *w, bool stored, struct kb_now now) {
    struct kb_follower *f = w->ctx;
    struct kb_partition *p = f->p;
    (void)stored; /* it was: the waiter is patient */
    p->points[KB_POINT_RECOVERY] = KW_MIN(p->points[KB_POINT_RECOVERY], f->cut_to);
    if (f->cut_again || f->cut_generation != f->generation || !f->peer || p->state != KB_PART_ONLINE) {
        let_go(f);
        end(f);
    } else {
        cut_now(f, now);
    }
    kb_partition_unpin(p); /* may be the end of both */
}

static void store_point(struct kb_follower *f) {
    f->point = (struct kb_point_waiter){.patient = true, .done = point_stored, .ctx = f};
    kb_partition_pin(f->p);
    kb_partitions_store_point(f->p->node, KB_POINT_RECOVERY, &f->point);
}

void kb_follower_cut_left(struct kb_follower *f) {
    if (f->cutting && !f->p->log->busy && !f->cut_again) f->recovery_max = INT64_MAX; /* it has not begun: point_stored ends it */
}

static void begin(struct kb_follower *f, int64_t to, bool reset, struct kb_now now) {
    struct kb_partition *p = f->p;
    f->asked = false;
    kb_follower_changed(f);
    if (!may_cut(f, to, now)) {
        kb_follower_delay(f, KB_DELAY_TROUBLE);
        return;
    }
    f->cutting = true;
    f->cut_again = false;
    f->cut_to = to;
    f->cut_reset = reset;
    f->cut_generation = f->generation;
    f->recovery_max = to;
    /* What a start found in the file stands there until it is written anew, though the log may vouch for less after it. */
    if (KW_MAX(p->log->recovery_point, p->points[KB_POINT_RECOVERY]) > to)
        store_point(f);
    else
        cut_now(f, now);
}

/* ---- The cut ---- */

static void masked_again(void *ctx, struct kb_now now) {
    struct kb_follower *f = ctx;
    struct kb_partition *p = f->p;
    (void)now;
    store_point(f);
    kb_partition_unpin(p);
}

static void cut_done(void *ctx, struct kb_log *log, kw_err err, struct kb_now now) {
    struct kb_follower *f = ctx;
    struct kb_partition *p = f->p;
    if (err == KW_OK && log->leo < f->cut_to && p->state == KB_PART_ONLINE) { /* it was in a gap, or inside of a batch */
        p->hw = KW_MIN(p->hw, log->leo);
        f->recovery_max = log->recovery_point;
        f->cut_again = true;
        kb_partition_pin(p);
        if (kb_guids_cut(p, log->leo, masked_again, f, now)) masked_again(f, now);
        return;
    }
    end(f);
    if (err != KW_OK) { /* the log has failed, and says so */
        let_go(f);
        return;
    }
    kb_partitions_point_moved(p->node, KB_POINT_RECOVERY);
    kb_guids_look(p, now);
    if (f->cut_reset) kb_partitions_point_moved(p->node, KB_POINT_START);
    if (p->role == KB_PART_FOLLOWS) kb_partition_set_hw(p, p->hw, now); /* not below the log's start */
    if (f->held && f->peer && f->cut_generation == f->generation && log->leo == f->cut_to && !log->busy)
        kb_follower_append(f, &f->held_records, f->held, now);
    let_go(f);
}

static void cut_log(struct kb_follower *f, struct kb_now now) {
    struct kb_partition *p = f->p;
    struct kb_log *log = p->log;
    struct kb_follower_stats *stats = &p->node->followers->stats;
    int64_t from = log->leo;
    kw_err err = f->cut_reset ? kb_log_reset(log, f->cut_to, cut_done, f, now) : kb_log_truncate(log, f->cut_to, cut_done, f, now);
    if (err == KW_OK) {
        stats->truncations += !f->cut_reset;
        stats->resets += f->cut_reset;
        if (f->cut_reset)
            KB_SAY(p->node, KB_WARN, "%s-%d, which ended at offset %lld, begins anew at %lld, where the log of its leader (broker %d) begins",
                   p->topic, p->index, (long long)from, (long long)f->cut_to, f->peer->id);
        else
            KB_SAY(p->node, KB_INFO, "%s-%d is cut back from offset %lld to %lld, as far as its leader (broker %d, epoch %d) has it", p->topic,
                   p->index, (long long)from, (long long)f->cut_to, f->peer->id, f->leader_epoch);
        return;
    }
    let_go(f);
    end(f);
    kb_guids_look(p, now); /* the index is cut already */
    if (err != KW_EIO) kb_follower_delay(f, KB_DELAY_TROUBLE); /* no memory, or the disk is full and that cut is under way */
}

static void masked(void *ctx, struct kb_now now) {
    struct kb_follower *f = ctx;
    struct kb_partition *p = f->p;
    if (f->cut_generation != f->generation || !f->peer || p->state != KB_PART_ONLINE) {
        let_go(f);
        end(f);
    } else {
        cut_log(f, now);
    }
    kb_partition_unpin(p); /* may be the end of both */
}

static void cut_now(struct kb_follower *f, struct kb_now now) {
    kb_partition_pin(f->p);
    if (kb_guids_cut(f->p, f->cut_reset ? INT64_MIN : f->cut_to, masked, f, now)) masked(f, now);
}

/* ---- Why ---- */

static void say_nonsense(struct kb_follower *f, int32_t epoch, int64_t end_offset) {
    KB_SAY(f->p->node, KB_ERROR, "%s-%d: broker %d says that its epoch %d ends at offset %lld, which does not tell where the logs part (ours ends at %lld)",
           f->p->topic, f->p->index, f->peer->id, epoch, (long long)end_offset, (long long)f->p->log->leo);
}

void kb_follower_diverged(struct kb_follower *f, int32_t epoch, int64_t end_offset, struct kb_now now) {
    int64_t to = kb_replicate_cut_at(f->p->log, epoch, end_offset);
    if (to < 0) {
        say_nonsense(f, epoch, end_offset);
        kb_follower_delay(f, KB_DELAY_TROUBLE);
        return;
    }
    begin(f, to, to < f->p->log->start, now); /* below the start nothing is shared */
}

void kb_follower_begin_lower(struct kb_follower *f, int64_t base, const struct kw_records *records, struct kw_blk *blk, struct kb_now now) {
    let_go(f);
    f->held = kw_blk_ref(blk);
    f->held_records = *records;
    begin(f, base, true, now);
    if (!f->cutting) let_go(f);
}

void kb_follower_out_of_range(struct kb_follower *f, int64_t leader_start, struct kb_now now) {
    struct kb_log *log = f->p->log;
    /* Behind the leader's start, or it knows no epoch up to that of our last batch: either way no record is shared. */
    if (leader_start < 0 || (log->leo == log->start && leader_start == log->leo)) {
        kb_follower_delay(f, KB_DELAY_TROUBLE);
        return;
    }
    begin(f, leader_start, true, now);
}
