/* raft_fetch.c - the metadata log as a follower or an observer has it: one fetch at a time from the leader, on a link of its own; appended,
 * synced before the next fetch names it, and before another epoch begins; cut where it parts from the leader's. KIP-595, KIP-630, KIP-1166.
 *
 * Called by raft.c (whom to follow) and by itself. Calls replicate (append, where to cut), raft_install (a snapshot in place of a log that
 * lies too far behind).
 */
#include "raft_priv.h"

#include "replica/replicate.h"

enum { MAX_WAIT_MS = 500, REFUSED_AGAIN_US = 20000, BROKEN_AGAIN_US = 1000000 };

static void fire(struct kw_timer *t, void *ctx, int64_t now_us);
static void ended(void *ctx, struct kb_link *l, enum kb_link_end how, struct kb_now now);

static void opened(void *ctx, struct kb_link *l, struct kb_now now) {
    struct kb_raft *r = ctx;
    (void)l, (void)now;
    r->follow.lost = false;
    r->follow.gone = -1;
}

void kb_raft_follow(struct kb_raft *r, int32_t leader, struct kb_now now) {
    struct kb_raft_follow *f = &r->follow;
    kb_call_cancel(&f->call);
    if (f->leader != leader) {
        kb_link_free(f->link);
        f->link = NULL;
        f->lost = false;
        kw_timers_cancel(r->s->o.env->timers, &f->timer);
        kb_raft_install_forget(r);
    }
    f->leader = leader;
    if (leader >= 0 && leader != f->gone) f->gone = -1;
    kb_raft_follow_step(r, now);
}

void kb_raft_follow_pause(struct kb_raft *r, int64_t us, struct kb_now now) {
    kb_raft_arm(r, &r->follow.timer, now.mono_us + us);
}

static void fire(struct kw_timer *t, void *ctx, int64_t now_us) {
    struct kb_raft *r = ctx;
    (void)t;
    kb_raft_follow_step(r, kb_raft_now(r, now_us));
}

void kb_raft_follow_init(struct kb_raft *r) {
    kw_timer_init(&r->follow.timer, fire, r);
}

/* ---- The link ---- */

static bool open_link(struct kb_raft *r, struct kb_now now) {
    struct kb_raft_follow *f = &r->follow;
    struct kb_raft_peer *p = kb_raft_peer(r, f->leader);
    KW_ASSERT(p);
    struct kb_link_options o = {.node = r->node, .host = p->host, .port = p->port, .opened = opened, .ended = ended, .ctx = r};
    if (!f->link && kb_link_new(&o, &f->link)) return false;
    return !kb_link_is_idle(f->link) || kb_link_dial(f->link, now) == KW_OK;
}

/* The peer's process is known to be gone when it closed the connection and nothing listens at its address: specs.md 2.9. An observer may be told of it
 * once more, by a voter that has not noticed yet: then that nothing listens is enough. */
static void ended(void *ctx, struct kb_link *l, enum kb_link_end how, struct kb_now now) {
    struct kb_raft *r = ctx;
    struct kb_raft_follow *f = &r->follow;
    int32_t leader = f->leader;
    (void)l;
    if (r->stopped || leader < 0) return;
    bool known = f->gone == leader, dead = how == KB_LINK_REFUSED && (f->lost || known);
    f->lost = how == KB_LINK_CLOSED_BY_PEER || how == KB_LINK_RESET;
    if (f->lost)
        (void)!open_link(r, now); /* the fetch follows once it is open: see step */
    kb_raft_follow_pause(r, REFUSED_AGAIN_US, now);
    if (!dead) return;
    f->gone = leader;
    if (!known) kb_say(r->s->o.env->logger, KB_INFO, "metadata quorum: leader %d is gone", (int)leader);
    kb_election_peer_dead(&r->election, leader, now.mono_us);
    kb_raft_drain(r, now);
}

/* ---- Cutting ---- */

static void cut_done(void *ctx, struct kb_log *log, kw_err err, struct kb_now now) {
    struct kb_raft *r = ctx;
    r->follow.cutting = false;
    if (err) return; /* the log has failed, and tells so itself */
    if (log->leo < r->hw) {
        kb_store_fail(r->s, now,
                      "%s: leader %d of epoch %d had the log cut at offset %lld, up to where it is committed, in the middle of a batch that begins at %lld: "
                      "no leader's log can be like that",
                      r->s->load.meta_dir, (int)r->follow.leader, (int)r->epoch, (long long)r->follow.cut_to, (long long)log->leo);
        return;
    }
    if (r->stopped) return;
    if (r->leading)
        kb_raft_lead_step(r, now);
    else
        kb_raft_follow_step(r, now);
    kb_raft_drain(r, now);
}

void kb_raft_cut(struct kb_raft *r, int64_t to, struct kb_now now) {
    struct kb_store *s = r->s;
    kb_say(s->o.env->logger, KB_INFO, "%s: cut from offset %lld to %lld, where it parts from leader %d", s->load.meta_dir, (long long)s->log->leo,
           (long long)to, (int)r->follow.leader);
    kw_err err = kb_log_truncate(s->log, to, cut_done, r, now);
    if (err) {
        kb_raft_follow_pause(r, KB_RAFT_TEMPORARY_US, now);
        return;
    }
    r->follow.cutting = true;
    r->follow.cut_to = to;
    kb_store_drop_pending(s, to);
}

static void cut(struct kb_raft *r, const struct kw_fetch_response_partition_data *d, struct kb_now now) {
    struct kb_store *s = r->s;
    int64_t to = kb_replicate_cut_at(s->log, d->diverging_epoch.epoch, d->diverging_epoch.end_offset);
    if (to >= 0 && to < r->hw) {
        kb_store_fail(s, now,
                      "%s: leader %d of epoch %d would have the log cut to offset %lld, but it is committed up to %lld: one of the two has lost what "
                      "it acknowledged (a disk of another time, most likely); this node stops so that nothing more is lost",
                      s->load.meta_dir, (int)r->follow.leader, (int)r->epoch, (long long)to, (long long)r->hw);
        return;
    }
    if (to < s->log->start) {
        kb_raft_follow_error(r, KE_OFFSET_OUT_OF_RANGE, r->leader, r->epoch, now);
        return;
    }
    kb_raft_cut(r, to, now);
}

/* ---- Answers ---- */

void kb_raft_follow_error(struct kb_raft *r, int16_t code, int32_t leader, int32_t epoch, struct kb_now now) {
    struct kb_raft_follow *f = &r->follow;
    kb_raft_follow_pause(r, r->set.retry_backoff_us, now);
    if (code == KE_INCONSISTENT_CLUSTER_ID) {
        kb_raft_refused(r, f->leader, now);
        if (r->s->state != KB_STORE_FAILED) kb_raft_follow_pause(r, BROKEN_AGAIN_US, now);
        return;
    }
    bool known = code == KE_NOT_LEADER_OR_FOLLOWER || code == KE_FENCED_LEADER_EPOCH || code == KE_UNKNOWN_LEADER_EPOCH ||
                 code == KE_BROKER_NOT_AVAILABLE;
    if (!known && now.mono_us - f->said_us > KB_RAFT_SAID_US) {
        f->said_us = now.mono_us;
        kb_say(r->s->o.env->logger, KB_WARN, "leader %d answers a fetch of metadata with %s; it is tried again", (int)f->leader, kw_kerror_name(code));
    }
    kb_election_heard(&r->election, f->leader, leader, epoch, now.mono_us);
}

void kb_raft_hear_hw(struct kb_raft *r, int64_t hw, struct kb_now now) {
    if (hw < 0) return;
    r->follow.heard_hw = hw;
    if (r->ready_at < 0) r->ready_at = hw;
    int64_t to = KW_MIN(hw, r->s->log->leo);
    if (to <= r->hw) { /* a snapshot may have brought all there is, and nothing more may come for long */
        if (!r->s->ready_told) kb_raft_applied(r, now);
        return;
    }
    r->hw = to;
    kb_store_committed(r->s, now);
}

/* Nothing of the metadata is ever missing: batch follows on batch. */
static bool follows_on(const struct kb_log *log, const struct kw_records *records) {
    const uint8_t *p = records->p, *end = p + KW_MAX(records->len, 0);
    struct kw_entry e;
    struct kw_batch_header h;
    int64_t next = log->leo;
    while (kw_entry_next(&p, end, &e) == 1) {
        if (e.magic != 2 || kw_batch_parse(e.p, e.size, &h) || h.base_offset != next || h.last_offset_delta < 0) return false;
        next = h.base_offset + h.last_offset_delta + 1;
    }
    return true;
}

/* false: a pause was begun. */
static bool append(struct kb_raft *r, const struct kw_records *records, struct kw_blk *blk, struct kb_now now) {
    struct kb_store *s = r->s;
    struct kb_replicated done = {.why = "its offsets do not follow on the log's end", .at = s->log->leo};
    if (records->len <= 0) return true;
    int64_t from = s->log->leo;
    s->has_written = true;
    kw_err err = KW_ECRC;
    if (follows_on(s->log, records))
        err = kb_replicate_append(s->log, records->p, (size_t)records->len, blk, r->epoch, s->o.env->compressor, &done, now);
    if (done.batches > 0) {
        s->dirty = true;
        kb_store_note_pending(s, blk, records->p, (size_t)done.bytes, from);
    }
    if (!err) return true;
    if (err == KW_ECRC)
        kb_say(s->o.env->logger, KB_ERROR, "%s: what leader %d sent for offset %lld is not sound: %s; it is fetched again", s->load.meta_dir,
               (int)r->follow.leader, (long long)done.at, done.why);
    kb_raft_follow_pause(r, err == KW_ECRC ? BROKEN_AGAIN_US : KB_RAFT_TEMPORARY_US, now);
    return false;
}

static void take_answer(struct kb_raft *r, struct kw_fetch_response_partition_data *d, struct kw_blk *blk, struct kb_now now) {
    if (d->error_code) {
        kb_raft_follow_error(r, d->error_code, d->current_leader.leader_id, d->current_leader.leader_epoch, now);
        return;
    }
    kb_election_leader_answered(&r->election, r->follow.leader, r->epoch, now.mono_us);
    if (d->snapshot_id.end_offset >= 0 && d->snapshot_id.epoch >= 0) {
        kb_raft_install(r, d->snapshot_id.end_offset, d->snapshot_id.epoch, now);
    } else if (d->diverging_epoch.epoch >= 0) {
        cut(r, d, now);
    } else if (append(r, &d->records, blk, now)) {
        kb_raft_hear_hw(r, d->high_watermark, now);
    }
}

static void fetched(struct kb_call *c, kw_err err, struct kw_in *body, struct kw_blk *blk, struct kb_now now) {
    struct kb_raft *r = c->ctx;
    int16_t top = KE_NONE;
    struct kw_fetch_response_partition_data *d = NULL;
    if (err) return; /* `ended` follows, and sees to it */
    if (kb_raft_read_fetch(r, body, &top, &d))
        kb_raft_follow_pause(r, KB_RAFT_TEMPORARY_US, now);
    else if (top)
        kb_raft_follow_error(r, top, -1, -1, now);
    else
        take_answer(r, d, blk, now);
    if (r->stopped || r->s->state == KB_STORE_FAILED) return;
    kb_raft_drain(r, now);
    kb_raft_follow_step(r, now);
}

/* ---- The next thing to do ---- */

static void fetch(struct kb_raft *r, struct kb_now now) {
    struct kb_raft_follow *f = &r->follow;
    struct kb_raft_fetch_request q;
    kb_raft_fetch_init(r, &q);
    /* An idle leader is to be heard of well before it is missed. */
    int64_t patience_us = r->set.fetch_timeout_us;
    q.req.max_wait_ms = (int32_t)KW_MAX(KW_MIN((int64_t)MAX_WAIT_MS, patience_us / 2000), 1);
    f->call.done = fetched;
    f->call.ctx = r;
    int64_t timeout = r->set.request_timeout_us;
    if (kb_link_call(f->link, &f->call, &kw_fetch_request_desc, kw_fetch_request_desc.max, &q.req, KW_MAX(timeout, 2 * MAX_WAIT_MS * 1000), now))
        kb_raft_follow_pause(r, KB_RAFT_TEMPORARY_US, now);
}

void kb_raft_follow_step(struct kb_raft *r, struct kb_now now) {
    struct kb_raft_follow *f = &r->follow;
    const struct kb_log *log = r->s->log;
    if (r->stopped || f->leader < 0 || r->s->state == KB_STORE_FAILED || kb_call_is_under_way(&f->call)) return;
    if (kw_timer_armed(&f->timer) || f->cutting || log->busy || log->poisoned || r->install.step > KB_INSTALL_WAIT) return;
    if (log->synced < log->leo) return; /* marks_moved comes back here */
    kb_raft_joined(r, now);
    if (r->install.step != KB_INSTALL_WAIT && !open_link(r, now))
        kb_raft_follow_pause(r, KB_RAFT_TEMPORARY_US, now);
    else if (r->install.step != KB_INSTALL_NONE)
        kb_raft_install_step(r, now);
    else
        fetch(r, now);
}
