/* raft_lead.c - the metadata log as its leader has it: the epoch's first record, the voters' ends and the high watermark, when the node may act
 * as the controller; and what DescribeQuorum tells. KIP-595, KIP-836.
 *
 * Called by raft.c (the office taken and lost, the log's marks), raft_serve.c (fetches).
 */
#include "raft_priv.h"

#define OBSERVER_FORGET_US 300000000 /* silent for so long */

static void fire(struct kw_timer *t, void *ctx, int64_t now_us) {
    struct kb_raft *r = ctx;
    struct kb_now now = kb_raft_now(r, now_us);
    (void)t;
    kb_raft_lead_step(r, now);
    kb_raft_drain(r, now);
}

void kb_raft_lead_init(struct kb_raft *r) {
    kw_timer_init(&r->lead_timer, fire, r);
}

/* ---- The office ---- */

void kb_raft_lead(struct kb_raft *r, struct kb_now now) {
    r->leading = true;
    r->epoch_start = r->lead_end = -1;
    for (size_t i = 0; i < r->voter_count; i++)
        r->replicas[i] = (struct kb_raft_replica){.id = r->voters[i], .end = -1, .fetched_us = -1, .caught_up_us = -1};
    struct kb_raft_replica *o;
    for (size_t it = 0; (o = kw_map_next(&r->observers, &it));) kw_free(o);
    kw_map_deinit(&r->observers);
    kw_map_init(&r->observers);
    kb_raft_lead_step(r, now);
}

void kb_raft_stop_leading(struct kb_raft *r, struct kb_now now) {
    bool told = r->leads;
    r->leading = r->leads = false;
    r->epoch_start = r->lead_end = -1;
    kw_timers_cancel(r->s->o.env->timers, &r->lead_timer);
    kb_say(r->s->o.env->logger, KB_INFO, "metadata quorum: this node leads no more");
    if (told && r->s->o.role) r->s->o.role(r->s->o.ctx, false, now);
}

static kw_err leader_change(struct kb_raft *r, struct kb_meta_batch *b, struct kb_now now) {
    bool granted[KB_VOTERS_MAX];
    for (size_t i = 0; i < r->voter_count; i++) granted[i] = r->voters[i] == r->id || r->election.peers[i].granted;
    return kb_store_boot_leader_change(r->s, b, r->voters, granted, r->voter_count, now);
}

/* The first records of the epoch; those of a new log with them. What cannot be appended now is tried again. */
static void open_epoch(struct kb_raft *r, struct kb_now now) {
    struct kb_store *s = r->s;
    struct kb_meta_batch b;
    int64_t start = s->log->leo;
    if (s->log->busy || s->log->poisoned || r->follow.cutting) return; /* its end comes back here */
    if (s->log->synced < s->log->leo) return;                          /* so does marks_moved: recovery builds on that (log/append.c, wait_for_sync) */
    kb_meta_batch_init(&b);
    kw_err err = leader_change(r, &b, now);
    if (!err) r->epoch_start = start;
    if (!err && start == 0) err = kb_store_boot_features(s, &b, now);
    if (!err) r->lead_end = s->log->leo;
    kb_meta_batch_deinit(&b);
    if (err) kb_raft_arm(r, &r->lead_timer, now.mono_us + KB_RAFT_TEMPORARY_US);
}

/* The image holds all of the earlier epochs: what they left undone is ended before anyone acts on it. false: not yet. */
static bool settle(struct kb_raft *r, struct kb_now now) {
    struct kb_store *s = r->s;
    static const char version[] = "metadata.version";
    struct kb_meta_batch b;
    bool open = s->replay.in_transaction, bare = !kw_map_get(&s->o.image->features, version, sizeof(version) - 1);
    if (!open && !bare) return true;
    kb_meta_batch_init(&b);
    kw_err err = open ? kb_store_boot_abort(s, &b, now) : kb_store_boot_features(s, &b, now);
    kb_meta_batch_deinit(&b);
    if (!err)
        r->lead_end = s->log->leo;
    else
        kb_raft_arm(r, &r->lead_timer, now.mono_us + KB_RAFT_TEMPORARY_US);
    return false;
}

void kb_raft_lead_step(struct kb_raft *r, struct kb_now now) {
    struct kb_store *s = r->s;
    if (!r->leading || r->leads || r->stopped || s->state != KB_STORE_READY) return;
    if (r->epoch_start < 0) open_epoch(r, now);
    if (r->epoch_start < 0 || r->lead_end < 0 || s->o.image->offset + 1 < r->lead_end || r->hw <= r->epoch_start) {
        if (r->epoch_start >= 0 && r->lead_end < 0 && !kw_timer_armed(&r->lead_timer)) { /* a new log's features could not be appended */
            r->lead_end = s->log->leo;
            kb_raft_lead_step(r, now);
        }
        return;
    }
    if (!settle(r, now)) return;
    r->leads = true;
    kb_say(s->o.env->logger, KB_INFO, "metadata quorum: this node is the active controller of epoch %d", (int)r->epoch);
    if (s->o.role) s->o.role(s->o.ctx, true, now);
}

/* ---- Ends and the high watermark ---- */

int64_t kb_raft_told_hw(const struct kb_raft *r) {
    return r->leading && r->epoch_start >= 0 && r->hw > r->epoch_start ? r->hw : -1;
}

/* The offset that a majority of the voters has synced, once that is of this epoch: counting copies of an earlier epoch's records proves nothing. */
void kb_raft_advance(struct kb_raft *r, struct kb_now now) {
    int64_t ends[KB_VOTERS_MAX];
    if (!r->leading || r->epoch_start < 0) return;
    for (size_t i = 0; i < r->voter_count; i++) {
        int64_t end = r->voters[i] == r->id ? r->s->log->synced : KW_MIN(r->replicas[i].end, r->s->log->leo);
        size_t k = i;
        for (; k > 0 && ends[k - 1] < end; k--) ends[k] = ends[k - 1];
        ends[k] = end;
    }
    int64_t hw = ends[r->voter_count / 2];
    if (hw <= r->epoch_start || hw <= r->hw) return;
    r->hw = hw;
    if (r->ready_at < 0) r->ready_at = r->epoch_start + 1;
    kb_store_committed(r->s, now);
}

static bool is_forgotten(const struct kb_raft_replica *o, struct kb_now now) {
    return now.mono_us - o->fetched_us >= OBSERVER_FORGET_US;
}

static struct kb_raft_replica *observer_of(struct kb_raft *r, int32_t id, struct kb_now now) {
    struct kb_raft_replica *o = kw_map_get_u64(&r->observers, (uint32_t)id);
    if (o) return o;
    for (size_t it = 0; (o = kw_map_next(&r->observers, &it));)
        if (is_forgotten(o, now)) {
            kw_map_remove_u64(&r->observers, (uint32_t)o->id);
            kw_free(o);
        }
    o = r->observers.count < KB_RAFT_OBSERVERS_MAX ? kw_calloc(1, sizeof(*o)) : NULL;
    if (!o) return NULL; /* only for DescribeQuorum */
    *o = (struct kb_raft_replica){.id = id, .end = -1, .fetched_us = -1, .caught_up_us = -1};
    if (kw_map_put_u64(&r->observers, (uint32_t)id, o) == KW_OK) return o;
    kw_free(o);
    return NULL;
}

/* Of a voter that forgot: what it acknowledged once it may have no more. */
static void note_forgetful(const struct kb_raft *r, struct kb_raft_replica *o, struct kb_now now) {
    o->directory = (struct kw_uuid){{0}};
    o->end = o->caught_up_us = -1;
    o->fetched_us = now.mono_us;
    o->end_then = r->s->log->leo;
}

void kb_raft_note_fetch(struct kb_raft *r, int32_t id, struct kw_uuid directory, int64_t offset, struct kb_now now) {
    struct kb_raft_replica *o = NULL;
    if (id < 0 || id == r->id) return;
    for (size_t i = 0; i < r->voter_count; i++)
        if (r->voters[i] == id) o = &r->replicas[i];
    if (o && kw_uuid_is_zero(directory)) {
        note_forgetful(r, o, now);
        return;
    }
    if (o && kb_raft_contested(r, o, directory, now)) return;
    if (o)
        kb_election_fetched(&r->election, id, offset, now.mono_us);
    else
        o = observer_of(r, id, now);
    if (!o) return;
    int64_t leo = r->s->log->leo;
    o->directory = directory;
    if (offset >= leo)
        o->caught_up_us = now.mono_us;
    else if (offset >= 0 && o->fetched_us >= 0 && offset >= o->end_then)
        o->caught_up_us = KW_MAX(o->caught_up_us, o->fetched_us);
    o->fetched_us = now.mono_us;
    o->end_then = leo;
    if (offset >= 0) o->end = offset; /* back, too: a replica says what it has now */
    kb_raft_advance(r, now);
}

/* ---- DescribeQuorum ---- */

/* By the wall clock as it is now: one that was set back or ahead since makes nobody seem older or younger. */
static int64_t wall_ms_of(int64_t us, struct kb_now now) {
    return us < 0 ? -1 : now.wall_ms - (now.mono_us - us) / 1000;
}

static void describe_replica(const struct kb_raft_replica *o, struct kw_describe_quorum_response_replica_state *out, struct kb_now now) {
    out->replica_id = o->id;
    out->replica_directory_id = o->directory;
    out->log_end_offset = o->end;
    out->last_fetch_timestamp = wall_ms_of(o->fetched_us, now);
    out->last_caught_up_timestamp = wall_ms_of(o->caught_up_us, now);
}

kw_err kb_raft_describe(struct kb_request *rq, struct kw_describe_quorum_response_partition_data *out) {
    struct kb_raft *r = rq->node->parts.store->raft;
    struct kb_now now = rq->node->now;
    out->leader_id = r->id;
    out->leader_epoch = r->epoch;
    out->high_watermark = kb_raft_told_hw(r);
    out->current_voters.v = kw_arena_calloc(&rq->arena, r->voter_count, sizeof(*out->current_voters.v));
    out->observers.v = kw_arena_calloc(&rq->arena, r->observers.count + 1, sizeof(*out->observers.v));
    if (!out->current_voters.v || !out->observers.v) return KW_ENOMEM;
    for (size_t i = 0; i < r->voter_count; i++) {
        struct kw_describe_quorum_response_replica_state *v = &out->current_voters.v[i];
        describe_replica(&r->replicas[i], v, now);
        if (r->voters[i] != r->id) continue;
        v->replica_directory_id = r->s->load.directory_id;
        v->log_end_offset = r->s->log->leo;
        v->last_fetch_timestamp = v->last_caught_up_timestamp = now.wall_ms;
    }
    out->current_voters.n = (int32_t)r->voter_count;
    struct kb_raft_replica *o;
    for (size_t it = 0; (o = kw_map_next(&r->observers, &it));)
        if (!is_forgotten(o, now)) describe_replica(o, &out->observers.v[out->observers.n++], now);
    return KW_OK;
}
