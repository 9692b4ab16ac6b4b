/* follower_answer.c - what a leader answered: batches go into the logs, its high watermark and log start are taken over, errors are waited out.
 *
 * Called by the link. Calls replicate (appends), follower_cut (the logs parted), partition (high watermark). An answer counts for a partition only
 * while that is what was asked for: not after it left, moved to another epoch, or its log was cut back.
 */
#include "follower_priv.h"
#include "guids.h"
#include "node_priv.h"
#include "replicate.h"
#include "wire/kerror.h"

#define PATIENCE_US 2000 /* for what is being written or synced; then the next fetch goes without it */

typedef struct kw_fetch_response_partition_data part_answer;

static void say_once(struct kb_follower *f, int16_t code, const char *what) {
    if (f->said == code) return;
    f->said = code;
    KB_SAY(f->p->node, KB_WARN, "%s-%d cannot be fetched from broker %d at offset %lld: %s; it is tried again", f->p->topic, f->p->index,
           f->peer->id, (long long)f->p->log->leo, what);
}

static void refused(struct kb_follower *f, const part_answer *a, struct kb_now now) {
    switch (a->error_code) {
    case KE_OFFSET_OUT_OF_RANGE:
        kb_follower_out_of_range(f, a->log_start_offset, now);
        return;
    case KE_NOT_LEADER_OR_FOLLOWER:
    case KE_FENCED_LEADER_EPOCH:
    case KE_UNKNOWN_LEADER_EPOCH:
    case KE_UNKNOWN_TOPIC_ID:
    case KE_UNKNOWN_TOPIC_OR_PARTITION:
    case KE_INCONSISTENT_TOPIC_ID: /* one of us is about to hear of it */
        kb_follower_delay(f, KB_DELAY_METADATA);
        return;
    default:
        say_once(f, a->error_code, kw_kerror_name(a->error_code));
        kb_follower_delay(f, KB_DELAY_TROUBLE);
    }
}

/* ---- Batches ---- */

/* Records were deleted up to the middle of a batch, where this log was made to begin (KIP-107): the first that comes holds its end. */
static bool is_begun_inside(const struct kb_log *log, const struct kw_records *records, int64_t *base) {
    struct kw_batch_header h;
    if (log->leo != log->start || kw_batch_parse(records->p, (size_t)records->len, &h) != KW_OK) return false;
    *base = h.base_offset;
    return h.base_offset >= 0 && h.base_offset < log->leo && h.base_offset + h.last_offset_delta >= log->leo;
}

void kb_follower_append(struct kb_follower *f, const struct kw_records *records, struct kw_blk *blk, struct kb_now now) {
    struct kb_partition *p = f->p;
    struct kb_follower_stats *stats = &p->node->followers->stats;
    struct kb_replicated r;
    int64_t base;
    if (is_begun_inside(p->log, records, &base)) {
        kb_follower_begin_lower(f, base, records, blk, now);
        return;
    }
    int64_t from = p->log->leo;
    kw_err err = kb_replicate_append(p->log, records->p, (size_t)records->len, blk, f->leader_epoch, p->node->compressor, &r, now);
    if (r.batches > 0) {
        stats->batches += r.batches;
        stats->bytes += r.bytes;
        kb_guids_followed(p, from, records->p, (size_t)records->len, now);
        kb_partition_dirty(p);
        kb_follower_set_writing(f, true);
        kb_follower_changed(f);
        f->peer->patience_until_us = now.mono_us + PATIENCE_US;
        f->peer->appended_turn = p->node->followers->turn;
        kw_list_remove(&f->link); /* behind those that had nothing, should a full request be made */
        kw_list_push(&f->peer->followers, &f->link);
    }
    if (err == KW_OK) return;
    if (err == KW_ECRC) {
        stats->corrupt++;
        KB_SAY(p->node, KB_ERROR, "%s-%d: what broker %d sent for offset %lld is not appended: %s; it is fetched again in a while", p->topic,
               p->index, f->peer->id, (long long)r.at, r.why);
    }
    if (!p->log->poisoned) kb_follower_delay(f, KB_DELAY_TROUBLE);
}

/* ---- Marks ---- */

static void raise_start(struct kb_follower *f, struct kb_now now) {
    struct kb_partition *p = f->p;
    int64_t to = KW_MIN(f->leader_start, p->hw);
    if (to <= p->log->start || p->log->busy) return;
    if (kb_log_raise_start(p->log, to, p->hw, now) == KW_OK) kb_partitions_point_moved(p->node, KB_POINT_START);
    if (p->log->start != f->sent_start) kb_follower_changed(f);
}

void kb_follower_raise_hw(struct kb_follower *f, struct kb_now now) {
    struct kb_partition *p = f->p;
    int64_t hw = KW_MIN(f->leader_hw, kb_follower_mark(f));
    if (p->log->busy || f->cutting) return;
    if (hw > p->hw) kb_partition_set_hw(p, hw, now);
    raise_start(f, now);
}

int64_t kb_follower_lag(const struct kb_partition *p) {
    if (p->role != KB_PART_FOLLOWS || !p->log) return 0;
    return !p->follower || p->follower->leader_hw < 0 ? -1 : KW_MAX(p->follower->leader_hw - p->log->leo, INT64_C(0));
}

/* ---- One partition ---- */

/* It was asked for in this epoch, and the log is as it was then, or has but been written since. To be cut, all must be written. */
static bool counts(const struct kb_peer_call *c, const struct kb_follower *f, const part_answer *a) {
    bool records = a->error_code == KE_NONE && a->diverging_epoch.epoch < 0;
    bool may_be_behind = records && kb_peer_goes_ahead(c->peer) && !f->p->log_config.flush_on_ack;
    return f->asked && c->number >= f->since && f->p->log->leo == f->sent_offset &&
           (may_be_behind ? kb_follower_is_usable(f) : kb_follower_is_ready(f));
}

static void take(const struct kb_peer_call *c, struct kb_follower *f, const part_answer *a, struct kw_blk *blk, struct kb_now now) {
    if (f->peer != c->peer || !f->in_session) return;
    if (!counts(c, f, a)) {
        f->asked = false;
        f->missed = true;
        kb_follower_changed(f);
        return;
    }
    if (a->error_code != KE_NONE) {
        refused(f, a, now);
        return;
    }
    if (a->diverging_epoch.epoch >= 0) {
        kb_follower_diverged(f, a->diverging_epoch.epoch, a->diverging_epoch.end_offset, now);
        return;
    }
    f->refusals = f->said = 0;
    if (a->high_watermark >= 0) f->leader_hw = a->high_watermark;
    if (a->log_start_offset >= 0) f->leader_start = a->log_start_offset;
    if (a->records.len > 0) kb_follower_append(f, &a->records, blk, now);
    kb_follower_raise_hw(f, now);
}

static void take_all(const struct kb_peer_call *c, const struct kw_fetch_response *resp, struct kw_blk *blk, struct kb_now now) {
    struct kb_node *n = c->peer->fs->node;
    for (int32_t i = 0; i < resp->responses.n; i++) {
        const struct kw_fetch_response_fetchable_topic_response *t = &resp->responses.v[i];
        for (int32_t j = 0; j < t->partitions.n; j++) { /* the topic is looked up anew: what one does may change much */
            const struct kb_partition *p = kb_partition_by_id(n, t->topic_id, t->partitions.v[j].partition_index);
            if (p && p->follower) take(c, p->follower, &t->partitions.v[j], blk, now);
        }
    }
}

/* ---- The answer ---- */

/* True: the answer's partitions count. */
static bool take_session(struct kb_peer *peer, const struct kw_fetch_response *resp, struct kb_now now) {
    switch (resp->error_code) {
    case KE_NONE:
        peer->failures = 0;
        if (peer->session_id == 0) peer->session_epoch = 1;
        peer->session_id = resp->session_id;
        peer->reads_ahead = resp->reads_ahead;
        if (resp->session_id == 0) peer->session_epoch = 0; /* the leader has no place for one: each request tells all */
        return true;
    case KE_FETCH_SESSION_ID_NOT_FOUND:
    case KE_INVALID_FETCH_SESSION_EPOCH:
    case KE_FETCH_SESSION_TOPIC_ID_ERROR: /* begun anew at once, unless it goes on like that */
        if (peer->failures++ == 0) break;
        /* fall through */
    default:
        peer->not_before_us = now.mono_us + peer->fs->set.backoff_us;
        break;
    }
    kb_peer_session_reset(peer);
    return false;
}

void kb_peer_answered(struct kb_call *call, kw_err err, struct kw_in *body, struct kw_blk *blk, struct kb_now now) {
    const struct kb_peer_call *c = call->ctx;
    struct kb_peer *peer = c->peer;
    const struct kw_api *api = kw_api_by_key(KW_API_FETCH);
    kb_peer_touch(peer);
    if (err != KW_OK || c->serial != peer->session_serial) {
        kb_peer_session_reset(peer);
        return;
    }
    struct kw_arena *arena = &peer->fs->arena;
    struct kw_fetch_response resp;
    err = kw_decode(api->response, api->max, body, arena, &resp);
    if (err == KW_OK) {
        if (take_session(peer, &resp, now)) take_all(c, &resp, blk, now);
    } else { /* what it told is not told again in this session */
        kb_peer_session_reset(peer);
        peer->not_before_us = now.mono_us + peer->fs->set.backoff_us;
        if (err != KW_ENOMEM) {
            KB_SAY(peer->fs->node, KB_ERROR, "broker %d (%s:%u) answered a fetch with what is none", peer->id, peer->host, peer->port);
            kb_link_close(peer->link, now);
        }
    }
    kw_arena_reset(arena);
}
