/* raft_serve.c - the leader's answers to fetches of the metadata log: data as far as it is written, where two logs part, a snapshot's id, or a
 * wait until something moves. And the pieces of snapshots. KIP-595, KIP-630, KIP-1166.
 *
 * Called by api/fetch.c and api/fetch_snapshot.c, and by raft.c when the log, the high watermark or the office moved.
 */
#include "raft_priv.h"

#include "log/epochs.h"

typedef struct kw_fetch_response_partition_data answer_part;

struct fetch {
    struct kw_list link; /* in r->waiting */
    struct kb_raft *r;
    struct kb_request *rq;
    const struct kw_fetch_request *req;
    const struct kw_fetch_request_fetch_topic *topic;
    const struct kw_fetch_request_fetch_partition *q;
    int32_t replica_id;
    bool expired, reading, holds;
    int64_t deadline_us;
    struct kw_timer timer;
    struct kb_read read;
};

bool kb_raft_is_metadata_fetch(const struct kw_fetch_request *req, int16_t version) {
    if (req->topics.n != 1) return false;
    const struct kw_fetch_request_fetch_topic *t = &req->topics.v[0];
    return version >= 13 ? kw_uuid_eq(t->topic_id, kb_metadata_topic_id) : kw_str_eq(t->topic, kw_str_of(KB_METADATA_TOPIC));
}

/* ---- Answers ---- */

/* It waits no more. */
static void let_go(struct fetch *f) {
    kw_list_remove(&f->link);
    kw_timers_cancel(f->r->s->o.env->timers, &f->timer);
}

static void reply(struct fetch *f, answer_part *p) {
    struct kw_fetch_response res;
    struct kw_fetch_response_fetchable_topic_response t = {
        .topic = f->topic->topic, .topic_id = f->topic->topic_id, .partitions = {p, 1}};
    kw_msg_init(&kw_fetch_response_desc, &res);
    let_go(f);
    res.responses.v = &t;
    res.responses.n = 1;
    kb_request_reply(f->rq, &res);
}

static answer_part part_of(const struct fetch *f, int16_t code) {
    const struct kb_raft *r = f->r;
    return (answer_part){.partition_index = f->q->partition,
                         .error_code = code,
                         .high_watermark = code ? -1 : kb_raft_told_hw(r),
                         .last_stable_offset = code ? -1 : kb_raft_told_hw(r),
                         .log_start_offset = code ? -1 : r->s->log->start,
                         .diverging_epoch = {-1, -1},
                         .current_leader = {r->leader, r->epoch},
                         .snapshot_id = {-1, -1},
                         .preferred_read_replica = -1};
}

static void reply_code(struct fetch *f, int16_t code) {
    answer_part p = part_of(f, code);
    reply(f, &p);
}

static void reply_all(struct kb_request *rq, int16_t code) {
    struct kw_fetch_response res;
    kw_msg_init(&kw_fetch_response_desc, &res);
    res.error_code = code;
    kb_request_reply(rq, &res);
}

static void reply_read(struct fetch *f) {
    answer_part p = part_of(f, f->read.err == KW_ECRC ? KE_CORRUPT_MESSAGE : f->read.err ? KE_KAFKA_STORAGE_ERROR : KE_NONE);
    if (!f->read.err && f->read.bytes > 0) p.records = (struct kw_records){.len = (int32_t)f->read.bytes, .ref = &f->read};
    f->holds = true;
    reply(f, &p);
}

static void read_done(struct kb_read *read, struct kb_now now) {
    struct fetch *f = read->ctx;
    (void)now;
    f->reading = false;
    reply_read(f);
}

/* ---- Where the replica's log stands ---- */

static bool snapshot_is(const struct kb_store *s, int64_t end, int32_t epoch) {
    return (end == s->snapshot_end && epoch == s->snapshot_epoch) || (end == s->snapshot_previous && epoch == s->snapshot_previous_epoch);
}

/* true: it can be read on from there. Else p tells why not. */
static bool agrees(const struct fetch *f, answer_part *p) {
    const struct kb_store *s = f->r->s;
    const struct kb_log *log = s->log;
    int64_t offset = f->q->fetch_offset, end;
    int32_t asked = f->q->last_fetched_epoch, epoch;
    if (offset == 0 && log->start == 0) return true;
    if (asked < 0 && f->replica_id < 0 && offset >= log->start && offset <= log->leo) return true; /* a reader, that is told of nothing */
    if (asked > kb_epochs_latest(log->epochs)) {
        epoch = kb_raft_log_end(f->r).epoch;
        end = log->leo;
    } else {
        kb_epochs_end_offset(log->epochs, asked, log->leo, &epoch, &end);
    }
    bool begins = offset == log->start && snapshot_is(s, offset, asked);
    if (begins || (offset >= log->start && epoch == asked && end >= offset && end > log->start)) return true;
    if (log->start == 0 && (epoch < 0 || end <= 0)) { /* every epoch here is a later one: nothing is shared */
        epoch = KW_MAX(asked, 0);
        end = 0;
    } else if (offset < log->start || epoch < 0 || end <= log->start) {
        if (s->snapshot_end < 0) {
            p->error_code = KE_OFFSET_OUT_OF_RANGE;
        } else {
            p->snapshot_id.end_offset = s->snapshot_end;
            p->snapshot_id.epoch = s->snapshot_epoch;
        }
        return false;
    }
    p->diverging_epoch.epoch = epoch;
    p->diverging_epoch.end_offset = end;
    return false;
}

/* ---- The way of a fetch ---- */

static int16_t check(const struct fetch *f) {
    const struct kb_raft *r = f->r;
    if (f->q->partition != 0) return KE_UNKNOWN_TOPIC_OR_PARTITION;
    if (r->stopped || r->phase == KB_RAFT_DOWN || r->phase == KB_RAFT_NAMELESS) return KE_BROKER_NOT_AVAILABLE;
    int16_t code = kb_election_check(&r->election, f->q->current_leader_epoch);
    if (!code && (!r->leading || r->epoch_start < 0)) code = KE_NOT_LEADER_OR_FOLLOWER; /* about to be */
    if (!code && (f->q->fetch_offset < 0 || r->s->log->poisoned)) code = r->s->log->poisoned ? KE_KAFKA_STORAGE_ERROR : KE_OFFSET_OUT_OF_RANGE;
    return code;
}

static void start_read(struct fetch *f, int64_t limit, struct kb_now now) {
    int64_t most = f->r->set.fetch_bytes_max;
    most = KW_MIN(most, KW_MIN(KW_MAX(f->q->partition_max_bytes, 0), KW_MAX(f->req->max_bytes, 0)));
    f->read = (struct kb_read){
        .log = f->r->s->log, .offset = f->q->fetch_offset, .limit = limit, .bytes_max = (size_t)most, .min_one = true, .done = read_done, .ctx = f};
    int32_t answered = kb_log_read(&f->read, now);
    let_go(f);
    if (answered == 0) {
        f->reading = true;
        return;
    }
    if (answered < 0) f->read.err = answered;
    reply_read(f);
}

static void step(struct fetch *f, struct kb_now now) {
    struct kb_raft *r = f->r;
    int16_t code = check(f);
    answer_part p = part_of(f, code);
    if (code || !agrees(f, &p)) {
        reply(f, &p);
        return;
    }
    int64_t limit = f->replica_id >= 0 ? r->s->log->written : KW_MIN(r->hw, r->s->log->written);
    bool news = f->q->high_watermark < kb_raft_told_hw(r);
    if (f->q->fetch_offset < limit)
        start_read(f, limit, now);
    else if (f->expired || f->req->max_wait_ms <= 0 || news)
        reply(f, &p);
    else if (kw_timer_armed(&f->timer) || kw_timers_set(r->s->o.env->timers, &f->timer, f->deadline_us) == KW_OK)
        kw_list_push(&r->waiting, &f->link);
    else
        reply(f, &p); /* no memory to wait */
}

void kb_raft_serve_moved(struct kb_raft *r, struct kb_now now) {
    struct kw_list asked, *l;
    if (kw_list_empty(&r->waiting)) return;
    kw_list_init(&asked);
    while ((l = kw_list_shift(&r->waiting))) kw_list_push(&asked, l);
    while ((l = kw_list_shift(&asked))) step(KW_CONTAINER_OF(l, struct fetch, link), now);
}

static void fire(struct kw_timer *t, void *ctx, int64_t now_us) {
    struct fetch *f = ctx;
    (void)t;
    f->expired = true;
    kw_list_remove(&f->link);
    step(f, kb_raft_now(f->r, now_us));
}

static void abandon(struct kb_request *rq) {
    let_go(rq->state);
    kb_request_drop(rq);
}

static void cleanup(struct kb_request *rq) {
    struct fetch *f = rq->state;
    if (f->reading) kb_read_cancel(&f->read);
    if (f->holds) kb_read_release(&f->read);
    f->reading = f->holds = false;
}

void kb_raft_fetch(struct kb_request *rq, const struct kw_fetch_request *req) {
    struct kb_store *s = rq->node->parts.store;
    struct kb_raft *r = s->raft;
    struct kb_now now = rq->node->now;
    if (kb_raft_cluster_code(s, req->cluster_id)) {
        if (rq->conn)
            kb_conn_say(rq->conn, KB_WARN, "it fetches metadata and belongs to another cluster (%.*s; this one is %s): refused",
                        (int)KW_MIN(req->cluster_id.len, 60), req->cluster_id.p, s->load.cluster_id);
        reply_all(rq, KE_INCONSISTENT_CLUSTER_ID);
        return;
    }
    struct fetch *f = kw_arena_calloc(&rq->arena, 1, sizeof(*f));
    if (!f || req->topics.v[0].partitions.n != 1) {
        reply_all(rq, f ? KE_INVALID_REQUEST : KE_UNKNOWN_SERVER_ERROR);
        return;
    }
    f->r = r;
    f->rq = rq;
    f->req = req;
    f->topic = &req->topics.v[0];
    f->q = &f->topic->partitions.v[0];
    f->replica_id = rq->head.version >= 15 ? req->replica_state.replica_id : req->replica_id;
    f->deadline_us = now.mono_us + (int64_t)KW_MAX(req->max_wait_ms, 0) * 1000;
    kw_list_init(&f->link);
    kw_timer_init(&f->timer, fire, f);
    rq->state = f;
    rq->cleanup = cleanup;
    rq->abandon = abandon;
    answer_part p = part_of(f, KE_NONE);
    int16_t code = check(f);
    int64_t hw = r->hw;
    if (!code && agrees(f, &p)) kb_raft_note_fetch(r, f->replica_id, f->q->replica_directory_id, f->q->fetch_offset, now);
    else if (!code) kb_raft_note_fetch(r, f->replica_id, f->q->replica_directory_id, -1, now);
    step(f, now);
    if (r->hw != hw) kb_raft_serve_moved(r, now); /* all who wait are looked at: not for each other's fetches */
    kb_raft_drain(r, now);
}

/* ---- Pieces of a snapshot ---- */

typedef struct kw_fetch_snapshot_response_partition_snapshot piece_answer;

struct piece {
    struct kb_raft *r;
    struct kb_request *rq; /* NULL: nobody waits for it any more */
    struct kw_list link;   /* in r->pieces */
    const struct kw_fetch_snapshot_request *req;
    struct kw_str topic;
    piece_answer a;
    int64_t most;
    struct kb_file *file;
    struct kb_disk_req disk;
    bool under_way;
    char *path;
    uint8_t *bytes;
};

static void piece_free(struct piece *p) {
    kw_list_remove(&p->link);
    if (p->file) kb_file_unref(p->file);
    kw_free(p->path);
    kw_free(p->bytes);
    kw_free(p);
}

static void piece_reply(struct kb_request *rq, struct kw_str topic, piece_answer *a, int16_t top) {
    struct kw_fetch_snapshot_response res;
    struct kw_fetch_snapshot_response_topic_snapshot t = {.name = topic, .partitions = {a, 1}};
    kw_msg_init(&kw_fetch_snapshot_response_desc, &res);
    res.error_code = top;
    if (!top) {
        res.topics.v = &t;
        res.topics.n = 1;
    }
    kb_request_reply(rq, &res);
}

static void piece_end(struct piece *p, int16_t code) {
    struct kb_request *rq = p->rq;
    p->a.error_code = code;
    if (rq) {
        rq->state = NULL;
        rq->abandon = NULL;
        piece_reply(rq, p->topic, &p->a, KE_NONE);
    }
    piece_free(p);
}

static void piece_read(struct kb_disk_req *q, struct kb_now now) {
    struct piece *p = q->ctx;
    (void)now;
    p->under_way = false;
    if (q->err) {
        piece_end(p, KE_KAFKA_STORAGE_ERROR);
        return;
    }
    p->a.unaligned_records = (struct kw_records){.p = p->bytes, .len = (int32_t)q->result};
    piece_end(p, KE_NONE);
}

static void piece_opened(struct kb_disk_req *q, struct kb_now now) {
    struct piece *p = q->ctx;
    (void)now;
    p->under_way = false;
    if (q->err || !p->rq) {
        piece_end(p, q->err == KB_DISK_ENOENT ? KE_SNAPSHOT_NOT_FOUND : KE_KAFKA_STORAGE_ERROR);
        return;
    }
    p->a.size = q->result;
    if (p->a.position < 0 || p->a.position >= p->a.size) {
        piece_end(p, KE_POSITION_OUT_OF_RANGE);
        return;
    }
    int64_t n = KW_MIN(p->most, p->a.size - p->a.position);
    p->bytes = kw_malloc((size_t)n);
    if (!p->bytes) {
        piece_end(p, KE_UNKNOWN_SERVER_ERROR);
        return;
    }
    p->disk = (struct kb_disk_req){.op = KB_DISK_READ,
                                   .lane = KB_LANE_READ,
                                   .file = p->file,
                                   .offset = p->a.position,
                                   .length = n,
                                   .buf = p->bytes,
                                   .done = piece_read,
                                   .ctx = p};
    p->under_way = true;
    kb_disk_submit(p->r->s->o.env->disk, &p->disk);
}

static void piece_abandon(struct kb_request *rq) {
    struct piece *p = rq->state;
    p->rq = NULL; /* goes when the disk answers */
    kb_request_drop(rq);
}

static int16_t piece_check(const struct kb_raft *r, const struct kw_fetch_snapshot_request_partition_snapshot *q) {
    if (q->partition != 0) return KE_UNKNOWN_TOPIC_OR_PARTITION;
    if (r->stopped || r->phase == KB_RAFT_DOWN || r->phase == KB_RAFT_NAMELESS) return KE_BROKER_NOT_AVAILABLE;
    int16_t code = kb_election_check(&r->election, q->current_leader_epoch);
    if (!code && !r->leading) code = KE_NOT_LEADER_OR_FOLLOWER;
    if (!code && !snapshot_is(r->s, q->snapshot_id.end_offset, q->snapshot_id.epoch)) code = KE_SNAPSHOT_NOT_FOUND;
    return code;
}

static kw_err piece_start(struct kb_request *rq, struct piece *p) {
    struct kb_raft *r = p->r;
    p->path = kb_store_snapshot_path(r->s, p->a.snapshot_id.end_offset, p->a.snapshot_id.epoch);
    p->file = kb_file_new(r->s->o.env->disk);
    if (!p->path || !p->file) return KW_ENOMEM;
    p->disk = (struct kb_disk_req){
        .op = KB_DISK_OPEN, .lane = KB_LANE_READ, .path = p->path, .file = p->file, .done = piece_opened, .ctx = p};
    rq->state = p;
    rq->abandon = piece_abandon;
    p->under_way = true;
    kw_list_push(&r->pieces, &p->link);
    kb_disk_submit(r->s->o.env->disk, &p->disk);
    return KW_OK;
}

void kb_raft_fetch_snapshot(struct kb_request *rq, const struct kw_fetch_snapshot_request *req) {
    struct kb_store *s = rq->node->parts.store;
    struct kb_raft *r = s->raft;
    int16_t top = kb_raft_cluster_code(s, req->cluster_id);
    if (!top && (req->topics.n != 1 || req->topics.v[0].partitions.n != 1)) top = KE_INVALID_REQUEST;
    if (top) {
        piece_reply(rq, kw_str_null(), NULL, top);
        return;
    }
    const struct kw_fetch_snapshot_request_partition_snapshot *q = &req->topics.v[0].partitions.v[0];
    piece_answer a = {.index = q->partition, .snapshot_id = {q->snapshot_id.end_offset, q->snapshot_id.epoch}, .position = q->position};
    a.current_leader.leader_id = r->leader;
    a.current_leader.leader_epoch = r->epoch;
    a.error_code = kw_str_eq(req->topics.v[0].name, kw_str_of(KB_METADATA_TOPIC)) ? piece_check(r, q) : KE_UNKNOWN_TOPIC_OR_PARTITION;
    struct piece *p = a.error_code ? NULL : kw_calloc(1, sizeof(*p));
    if (!p) {
        if (!a.error_code) a.error_code = KE_UNKNOWN_SERVER_ERROR;
        piece_reply(rq, req->topics.v[0].name, &a, KE_NONE);
        return;
    }
    kb_raft_note_fetch(r, req->replica_id, q->replica_directory_id, -1, rq->node->now);
    kw_list_init(&p->link);
    p->r = r;
    p->rq = rq;
    p->topic = req->topics.v[0].name;
    p->a = a;
    p->most = KW_MAX(KW_MIN(KW_MIN(req->max_bytes, 1 << 20), r->set.snapshot_bytes_max), 1);
    if (piece_start(rq, p)) {
        p->rq = NULL;
        piece_free(p);
        a.error_code = KE_UNKNOWN_SERVER_ERROR;
        piece_reply(rq, req->topics.v[0].name, &a, KE_NONE);
    }
    kb_raft_drain(r, rq->node->now);
}

/* ---- The end ---- */

void kb_raft_serve_end(struct kb_raft *r) {
    while (!kw_list_empty(&r->waiting)) { /* check says that this node serves no more */
        struct fetch *f = KW_CONTAINER_OF(r->waiting.next, struct fetch, link);
        reply_code(f, KE_BROKER_NOT_AVAILABLE);
    }
    struct kw_list *l;
    while ((l = kw_list_shift(&r->pieces))) {
        struct piece *p = KW_CONTAINER_OF(l, struct piece, link);
        if (p->rq) {
            struct kb_request *rq = p->rq;
            p->rq = NULL;
            rq->state = NULL;
            rq->abandon = NULL;
            p->a.error_code = KE_BROKER_NOT_AVAILABLE;
            piece_reply(rq, p->topic, &p->a, KE_NONE);
        }
        if (!p->under_way) piece_free(p);
    }
}
