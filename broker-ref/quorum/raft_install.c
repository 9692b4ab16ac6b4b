/* raft_install.c - a leader's snapshot in place of a log that lies too far behind: fetched in pieces, proved whole, stored under its name,
 * then the log begins anew behind it and the image is replaced whole. KIP-630.
 *
 * Called by raft_fetch.c. A crash before the snapshot has its name changes nothing; behind it the start finds a snapshot that the log does not
 * reach, or does not agree with, and empties the log (store_load.c).
 */
#include "raft_priv.h"

static void drop_image(struct kb_raft_install *in) {
    if (in->has_image) kb_image_deinit(&in->image);
    in->has_image = false;
}

static void drop_bytes(struct kb_raft_install *in) {
    kw_out_deinit(&in->bytes);
    kw_out_init(&in->bytes);
}

void kb_raft_install_forget(struct kb_raft *r) {
    struct kb_raft_install *in = &r->install;
    if (in->step > KB_INSTALL_WAIT) return;
    in->step = KB_INSTALL_NONE;
    drop_image(in);
    drop_bytes(in);
}

void kb_raft_install_deinit(struct kb_raft *r) {
    struct kb_raft_install *in = &r->install;
    drop_image(in);
    kw_out_deinit(&in->bytes);
    kw_free(in->path);
    for (size_t i = 0; i < KW_COUNTOF(in->old_paths); i++) kw_free(in->old_paths[i]);
}

/* All that is in the snapshot is committed here. Ends it where that ends, this log goes on with what the leader has no epoch of: that goes. Any other
 * cannot be meant. */
static void no_news(struct kb_raft *r, int64_t end, struct kb_now now) {
    if (end == r->hw && r->s->log->leo > end && r->s->log->start <= end) {
        kb_raft_cut(r, end, now);
        return;
    }
    kb_raft_follow_pause(r, 10 * KB_RAFT_TEMPORARY_US, now);
    if (r->follow.said_us > 0 && now.mono_us - r->follow.said_us < KB_RAFT_SAID_US) return;
    r->follow.said_us = now.mono_us;
    kb_say(r->s->o.env->logger, KB_WARN, "%s: leader %d names its snapshot at %lld, and all up to %lld is committed here: it is asked again",
           r->s->load.meta_dir, (int)r->follow.leader, (long long)end, (long long)r->hw);
}

void kb_raft_install(struct kb_raft *r, int64_t end, int32_t epoch, struct kb_now now) {
    struct kb_raft_install *in = &r->install;
    if (end <= r->hw) {
        no_news(r, end, now);
        return;
    }
    kb_say(r->s->o.env->logger, KB_INFO, "%s: this log ends at offset %lld, leader %d begins behind it: its snapshot at %lld is fetched",
           r->s->load.meta_dir, (long long)r->s->log->leo, (int)r->follow.leader, (long long)end);
    drop_bytes(in);
    in->end = end;
    in->epoch = epoch;
    in->step = KB_INSTALL_FETCH;
}

/* ---- In place ---- */

static void old_gone(struct kb_disk_req *q, struct kb_now now) {
    struct kb_raft *r = q->ctx;
    size_t i = (size_t)(q - r->install.unlinks);
    (void)now;
    if (q->err) kb_say(r->s->o.env->logger, KB_WARN, "%s: the old metadata snapshot could not be removed (%s)", q->path, kb_os_text(q->os_errno));
    r->install.unlinking[i] = false;
}

static void drop_old(struct kb_raft *r, int64_t end, int32_t epoch, size_t i) {
    struct kb_raft_install *in = &r->install;
    if (end < 0 || in->unlinking[i]) return;
    kw_free(in->old_paths[i]);
    in->old_paths[i] = kb_store_snapshot_path(r->s, end, epoch);
    if (!in->old_paths[i]) return; /* it stays, and harms nobody */
    in->unlinks[i] =
        (struct kb_disk_req){.op = KB_DISK_UNLINK, .lane = KB_LANE_ATOMIC, .path = in->old_paths[i], .done = old_gone, .ctx = r};
    in->unlinking[i] = true;
    kb_disk_submit(r->s->o.env->disk, &in->unlinks[i]);
}

static void reset_done(void *ctx, struct kb_log *log, kw_err err, struct kb_now now) {
    struct kb_raft *r = ctx;
    struct kb_store *s = r->s;
    struct kb_raft_install *in = &r->install;
    (void)log;
    in->step = KB_INSTALL_NONE;
    if (err || s->state == KB_STORE_FAILED) return; /* the log tells of it */
    drop_old(r, s->snapshot_end, s->snapshot_epoch, 0);
    drop_old(r, s->snapshot_previous, s->snapshot_previous_epoch, 1);
    s->snapshot_end = in->end;
    s->snapshot_epoch = in->epoch;
    s->snapshot_previous = -1;
    err = kb_store_replace_image(s, &in->image, in->end);
    drop_image(in);
    if (err) {
        kb_store_fail(s, now, "%s: the metadata of the leader's snapshot at %lld cannot be taken over: %s", s->load.meta_dir, (long long)in->end,
                      err == KW_ENOMEM ? "out of memory" : "it contradicts what was committed here");
        return;
    }
    r->hw = KW_MAX(r->hw, in->end);
    kb_store_told(s, now);
    if (r->stopped || s->state == KB_STORE_FAILED) return;
    kb_raft_follow_step(r, now);
    kb_raft_drain(r, now);
}

static void written(struct kb_disk_req *q, struct kb_now now) {
    struct kb_raft *r = q->ctx;
    struct kb_store *s = r->s;
    struct kb_raft_install *in = &r->install;
    drop_bytes(in);
    if (q->err) {
        kb_say(s->o.env->logger, KB_ERROR, "%s: the leader's snapshot could not be written (%s); it is fetched again", q->path, kb_os_text(q->os_errno));
        in->step = KB_INSTALL_NONE;
        drop_image(in);
        if (!r->stopped && r->follow.leader >= 0) kb_raft_follow_pause(r, 10 * KB_RAFT_TEMPORARY_US, now);
        return;
    }
    if (r->stopped || s->state != KB_STORE_READY) return; /* the next start does the rest */
    in->step = KB_INSTALL_RESET;
    if (s->reading) kb_read_cancel(&s->read);
    s->reading = false;
    kb_store_drop_pending(s, 0);
    if (kb_log_reset(s->log, in->end, reset_done, r, now))
        kb_store_fail(s, now, "%s: the log could not be brought behind the leader's snapshot", s->load.meta_dir);
}

static void write_snapshot(struct kb_raft *r, struct kb_now now) {
    struct kb_store *s = r->s;
    struct kb_raft_install *in = &r->install;
    char why[200] = "";
    if (s->snap.writing || s->log->busy) { /* one after the other */
        kb_raft_follow_pause(r, KB_RAFT_TEMPORARY_US, now);
        return;
    }
    kb_image_init(&in->image);
    in->has_image = true;
    kw_err err = kb_snapshot_whole(in->bytes.p, in->bytes.len) ? KW_OK : KW_EDECODE;
    if (!err)
        err = kb_snapshot_load(in->bytes.p, in->bytes.len, in->end, in->epoch, -1, s->o.env->compressor, &in->image, why, sizeof(why));
    kw_free(in->path);
    in->path = err ? NULL : kb_store_snapshot_path(s, in->end, in->epoch);
    if (!err && !in->path) err = KW_ENOMEM;
    if (err) {
        kb_say(s->o.env->logger, KB_ERROR, "%s: the leader's snapshot at %lld cannot be used: %s; it is fetched again", s->load.meta_dir,
               (long long)in->end, err == KW_ENOMEM ? "out of memory" : why[0] ? why : "it is not whole");
        kb_raft_install_forget(r);
        kb_raft_follow_pause(r, 10 * KB_RAFT_TEMPORARY_US, now);
        return;
    }
    in->step = KB_INSTALL_WRITE;
    s->has_written = true;
    kb_store_write_file(s, &in->file, in->path, &in->bytes, written, r);
}

/* ---- Pieces ---- */

static void take_piece(struct kb_raft *r, struct kw_fetch_snapshot_response_partition_snapshot *d, struct kb_now now) {
    struct kb_raft_install *in = &r->install;
    if (d->error_code) {
        kb_raft_install_forget(r); /* gone there, or another leads: the next fetch tells what to do */
        kb_raft_follow_error(r, d->error_code, d->current_leader.leader_id, d->current_leader.leader_epoch, now);
        return;
    }
    kb_election_leader_answered(&r->election, r->follow.leader, r->epoch, now.mono_us);
    int64_t at = (int64_t)in->bytes.len, n = KW_MAX(d->unaligned_records.len, 0);
    bool sane = d->position == at && d->size > 0 && d->size <= KB_SNAPSHOT_SIZE_MAX && at + n <= d->size && n > 0;
    if (sane) kw_out_bytes(&in->bytes, d->unaligned_records.p, (size_t)n);
    if (!sane || in->bytes.err) {
        kb_raft_install_forget(r);
        kb_raft_follow_pause(r, 10 * KB_RAFT_TEMPORARY_US, now);
        return;
    }
    if ((int64_t)in->bytes.len == d->size) in->step = KB_INSTALL_WAIT;
}

static void piece_done(struct kb_call *c, kw_err err, struct kw_in *body, struct kw_blk *blk, struct kb_now now) {
    struct kb_raft *r = c->ctx;
    struct kw_fetch_snapshot_response m;
    (void)blk;
    if (err) return; /* the link's end sees to it; what is there is gone on with */
    if (kb_raft_read(r, &kw_fetch_snapshot_response_desc, body, &m) ||
        (!m.error_code && (m.topics.n != 1 || m.topics.v[0].partitions.n != 1)))
        kb_raft_follow_pause(r, KB_RAFT_TEMPORARY_US, now);
    else if (m.error_code)
        kb_raft_follow_error(r, m.error_code, -1, -1, now);
    else
        take_piece(r, &m.topics.v[0].partitions.v[0], now);
    if (r->install.step == KB_INSTALL_WAIT) write_snapshot(r, now);
    if (r->stopped || r->s->state == KB_STORE_FAILED) return;
    kb_raft_drain(r, now);
    kb_raft_follow_step(r, now);
}

void kb_raft_install_step(struct kb_raft *r, struct kb_now now) {
    struct kb_raft_install *in = &r->install;
    if (in->step == KB_INSTALL_WAIT) {
        write_snapshot(r, now);
        return;
    }
    const struct kb_store *s = r->s;
    int64_t most = r->set.snapshot_bytes_max;
    struct kw_fetch_snapshot_request_partition_snapshot part = {.current_leader_epoch = r->epoch,
                                                                .snapshot_id = {in->end, in->epoch},
                                                                .position = (int64_t)in->bytes.len,
                                                                .replica_directory_id = kb_raft_directory(r)};
    struct kw_fetch_snapshot_request_topic_snapshot t = {.name = kw_str_of(KB_METADATA_TOPIC), .partitions = {&part, 1}};
    struct kw_fetch_snapshot_request m = {
        .cluster_id = kw_str_of(s->load.cluster_id), .replica_id = r->id, .max_bytes = (int32_t)KW_MAX(most, 1), .topics = {&t, 1}};
    r->follow.call.done = piece_done;
    r->follow.call.ctx = r;
    if (kb_link_call(r->follow.link, &r->follow.call, &kw_fetch_snapshot_request_desc, kw_fetch_snapshot_request_desc.max, &m,
                     r->set.request_timeout_us, now))
        kb_raft_follow_pause(r, KB_RAFT_TEMPORARY_US, now);
}
