/* fetch.c - Fetch v0-18: reads from the partitions that a consumer or a replica names, or waits until there is something to read.
 *
 * Called by dispatch. Calls fetch_session, log (read), purgatory (waits), fetch_old (formats v0 and v1), fetch_cover (batches without records),
 * replica/isr (what replicas have), leader_hint. KIP-74 (the first batch whole), 98, 101, 107, 110, 227, 320, 392, 516, 595, 903. Partitions are
 * read one after the other, since what one takes the next may not; in a session those that gave something go to the end, so that none starves the
 * others. What moves while a fetch waits is looked at alone, whatever else is in the session.
 *
 * Consumers read below the high watermark, of the leader or, when they name their rack, of a follower. Other replicas read up to what is written,
 * of the leader alone, and each fetch of theirs tells what they have. A replica's fetch waits for records; news of the high watermark and the log's
 * start alone reach it within NEWS_US.
 */
#include "api.h"
#include "fetch_cover.h"
#include "fetch_old.h"
#include "fetch_session.h"
#include "leader_hint.h"
#include "lifecycle.h"
#include "log/epochs.h"
#include "log/log.h"
#include "node_priv.h"
#include "quorum/raft.h"
#include "replica/isr.h"
#include "replica/purgatory.h"

enum { PARTITIONS_MAX = 200000, NEWS_US = 20000, IN_ARENA_MAX = 32 << 10 };

typedef struct kw_fetch_response_fetchable_topic_response topic_answer;
typedef struct kw_fetch_response_partition_data part_answer;

struct part {
    struct fetch *f;
    struct kb_session_partition *sp; /* NULL: look for it */
    struct kw_list stale;            /* in the fetch's: is to be read (again) in this pass */
    struct kw_str topic;
    struct kw_uuid topic_id;
    int32_t index, leader_epoch, last_fetched_epoch, max_bytes;
    int64_t offset, log_start; /* log_start: a replica's; -1: not told */
    int64_t at;                /* where it is read: offset, or more for a replica that reads ahead */
    bool sent;                 /* what comes from there it was sent already: it will ask for more when that has arrived */
    int64_t hw_told, start_told; /* by the session's last answer; -1: nothing yet */
    struct {
        int64_t limit, hw, start;
        int32_t leader_epoch, role;
    } seen; /* when it was looked at last */
    struct kb_partition *p; /* NULL: code says why; hooked, so that its end is heard of, and pinned while it is being read */
    struct kb_wait_hook *hook;
    int16_t code;
    bool reading;
    bool holds;              /* read has slices */
    bool news;               /* for a replica that waits: see note_news */
    bool told;               /* goes into the answer */
    bool counted;            /* its replica was heard */
    int32_t nearest;         /* the replica to read from instead; -1: none */
    int32_t diverging_epoch; /* -1: none */
    int64_t diverging_end;
    struct kb_read *read; /* once there was something to read */
    size_t kept_back;     /* bytes that it might have given, had its first batch fitted into the answer */
    bool full;            /* it gave what its own largest size lets it, and has more */
    int64_t old_offset;   /* old formats: where the next try reads */
};
struct fetch {
    struct kb_request *rq;
    struct kw_fetch_request req;
    struct kw_fetch_response resp;
    enum kb_session_kind kind;
    struct kb_session *session;
    int32_t replica; /* -1: a consumer */
    int64_t broker_epoch;
    struct part *parts;
    size_t count, news_count;
    uint32_t session_drops;
    struct kw_list stale; /* parts, in the order in which they are to be looked at */
    const struct kb_image_topic *topic; /* found last, when the image was at topic_at; NULL: none */
    int64_t topic_at;
    struct kw_blk *memory; /* of parts and hooks, where it is the session's */
    size_t bytes, bytes_max, kept_back, full;
    bool passing, expired, failed;
    int64_t deadline_us;
    struct kb_waiter waiter;
    struct kb_wait_hook *hooks;
    struct kb_leader_hints hints;
};

static void step(struct fetch *f, struct kb_now now);

/* ---- One partition ---- */

static void let_go(struct part *pt) {
    if (!pt->holds) return;
    pt->f->bytes -= pt->read->bytes;
    pt->f->kept_back -= pt->kept_back;
    pt->f->full -= pt->full;
    pt->kept_back = 0;
    pt->full = false;
    kb_read_release(pt->read);
    pt->holds = false;
}

static bool old_format(const struct fetch *f) {
    return f->rq->head.version <= 3;
}

static void take_result(struct part *pt) {
    struct fetch *f = pt->f;
    if (pt->read->err != KW_OK) {
        pt->code = pt->read->err == KW_ECRC           ? KE_CORRUPT_MESSAGE
                   : pt->read->err == KW_EUNSUPPORTED ? KE_UNSUPPORTED_COMPRESSION_TYPE
                                                      : KE_KAFKA_STORAGE_ERROR;
        if (f->rq->conn)
            kb_conn_say(f->rq->conn, KB_ERROR, "fetch of %s-%d at offset %lld failed: %s", pt->p->topic, pt->index, (long long)pt->at,
                        pt->read->err == KW_ECRC
                            ? "a batch there does not pass its CRC (bit rot); what lies before and after it can still be read"
                        : pt->read->err == KW_EUNSUPPORTED ? "the client's protocol version knows no zstd"
                                                           : "the log could not be read");
        kb_read_release(pt->read);
        return;
    }
    /* Consumers take an answer without records for too small, or for the end, and would stand still. */
    if (pt->read->bytes == 0 && pt->read->skipped_to > pt->offset && !old_format(f) &&
        kb_fetch_cover(pt->read, pt->offset, kb_epochs_at(pt->p->log->epochs, pt->read->skipped_to - 1)) != KW_OK)
        pt->read->next_offset_hint = -1; /* without it the client asks again */
    pt->holds = true;
    f->bytes += pt->read->bytes;
    pt->full = pt->read->bytes > 0 && pt->read->next_offset_hint < pt->read->limit;
    f->full += pt->full;
    if (pt->read->bytes > 0 || f->bytes == 0 || old_format(f)) return;
    pt->kept_back = (size_t)KW_MAX(pt->max_bytes, 0);
    f->kept_back += pt->kept_back;
}

/* Old formats: true when the read gave messages, or there is nothing more to try. */
static bool convert(struct part *pt) {
    if (!old_format(pt->f) || pt->read->err != KW_OK) return true;
    if (pt->read->bytes == 0 && pt->read->skipped_to > pt->old_offset) {
        pt->old_offset = pt->read->skipped_to; /* as many batches without records as one read passes over */
        return false;
    }
    if (pt->read->bytes == 0) return true;
    int64_t next;
    kw_err err = kb_fetch_old_convert(pt->read, pt->f->rq->head.version <= 1 ? 0 : 1, pt->offset, pt->f->rq->node->compressor, &next);
    if (err != KW_OK) pt->read->err = err;
    if (err != KW_OK || pt->read->bytes > 0 || next <= pt->old_offset) return true;
    pt->old_offset = next; /* only batches without records for this client: go on behind them */
    return false;
}

static int read_part(struct part *pt, struct kb_now now);

static void note_failure(struct part *pt) {
    pt->f->failed = pt->f->failed || pt->code != KE_NONE || pt->diverging_epoch >= 0 || pt->nearest >= 0;
}

/* A replica has to hear of the high watermark and the log's start, though not as urgently as of records. */
static void note_news(struct part *pt) {
    bool news = pt->f->replica >= 0 && pt->p && (pt->p->hw != pt->hw_told || pt->p->log->start != pt->start_told);
    if (news != pt->news) pt->f->news_count += news ? 1 : SIZE_MAX;
    pt->news = news;
}

static void forget_partition(struct part *pt) {
    let_go(pt);
    if (pt->hook) kb_waiter_unhook(pt->hook);
    pt->hook = NULL;
    pt->code = kb_partition_error(pt->p, -1);
    pt->p = NULL;
    note_failure(pt);
    note_news(pt);
}

static void read_done(struct kb_read *r, struct kb_now now) {
    struct part *pt = r->ctx;
    struct fetch *f = pt->f;
    struct kb_partition *p = pt->p;
    pt->reading = false;
    if (p->state == KB_PART_DELETED) {
        kb_read_release(pt->read);
        forget_partition(pt);
    } else if (convert(pt)) {
        take_result(pt);
        note_failure(pt);
    } else {
        kb_read_release(pt->read);
        if (read_part(pt, now) == 0) {
            kb_partition_unpin(p); /* the new read has its own pin */
            return;
        }
        note_failure(pt);
    }
    step(f, now); /* may end the request */
    kb_partition_unpin(p);
}

/* Nothing at or above it is given. */
static int64_t limit_of(const struct part *pt) {
    return pt->f->replica >= 0 ? pt->p->log->written : pt->p->hw;
}

/* Reads from old_offset on. 1: done with this part, 0: read_done will come. */
static int read_part(struct part *pt, struct kb_now now) {
    struct fetch *f = pt->f;
    while (pt->old_offset < limit_of(pt)) {
        *pt->read = (struct kb_read){.log = pt->p->log,
                                     .offset = pt->old_offset,
                                     .limit = limit_of(pt),
                                     .bytes_max = KW_MIN((size_t)KW_MAX(pt->max_bytes, 0), f->bytes_max - f->bytes),
                                     .min_one = f->bytes == 0,
                                     .into_memory = old_format(f),
                                     .skip_empty = f->replica < 0,
                                     .done = read_done,
                                     .ctx = pt};
        int32_t r = kb_log_read(pt->read, now);
        if (r == 0) {
            pt->reading = true;
            kb_partition_pin(pt->p);
            return 0;
        }
        if (r < 0) pt->read->err = r;
        if (convert(pt)) {
            take_result(pt);
            return 1;
        }
        kb_read_release(pt->read);
    }
    return 1;
}

/* Logs that agree in the last batch below `at` agree in all that is below. */
static bool check_divergence(struct part *pt) {
    if (pt->last_fetched_epoch < 0) return true;
    int32_t epoch;
    int64_t end;
    kb_partition_epoch_end(pt->p, pt->last_fetched_epoch, pt->p->log->leo, &epoch, &end);
    if (epoch == pt->last_fetched_epoch && end >= pt->at) return true;
    if (epoch < 0 || end < 0) {
        pt->code = KE_OFFSET_OUT_OF_RANGE;
        return false;
    }
    pt->diverging_epoch = epoch;
    pt->diverging_end = end;
    return false;
}

static struct kb_replica_fetch told_by_replica(const struct part *pt) {
    return (struct kb_replica_fetch){.replica = pt->f->replica,
                                     .broker_epoch = pt->f->broker_epoch,
                                     .epoch_told = pt->leader_epoch >= 0,
                                     .offset = pt->offset,
                                     .log_start = pt->log_start};
}

/* KIP-392: a consumer that names its rack may be served by a follower too. */
static bool names_rack(const struct fetch *f) {
    return f->replica < 0 && f->rq->head.version >= 11 && f->req.rack_id.len > 0;
}

/* A follower's fetch may be of thousands of partitions of one topic. */
static int16_t find_copy(struct part *pt, struct kb_partition **p) {
    struct fetch *f = pt->f;
    struct kb_node *n = f->rq->node;
    bool known = f->topic && f->topic_at == n->image.offset && kw_uuid_eq(f->topic->id, pt->topic_id);
    if (!known) {
        f->topic = kw_uuid_is_zero(pt->topic_id) ? NULL : kb_image_topic_by_id(&n->image, pt->topic_id);
        f->topic_at = n->image.offset;
    }
    return f->topic ? kb_partition_of_topic(f->topic, pt->index, pt->leader_epoch, p)
                    : kb_partition_find_copy(n, pt->topic, pt->topic_id, pt->index, pt->leader_epoch, p);
}

static void find(struct part *pt) {
    struct fetch *f = pt->f;
    if (f->rq->head.version >= 13 && kw_uuid_is_zero(pt->topic_id)) {
        pt->code = KE_UNKNOWN_TOPIC_ID;
        return;
    }
    struct kb_partition *p = NULL;
    pt->code = find_copy(pt, &p);
    if (pt->code == KE_NONE && !names_rack(f) && p->role != KB_PART_LEADS) pt->code = KE_NOT_LEADER_OR_FOLLOWER;
    if (pt->code != KE_NONE) return;
    pt->p = p;
    if (f->replica >= 0) {
        struct kb_replica_fetch told = told_by_replica(pt);
        pt->code = kb_isr_may_fetch(pt->p, &told);
    } else if (f->rq->head.version < 10 && pt->p->config.compression == KW_CODEC_ZSTD) {
        pt->code = KE_UNSUPPORTED_COMPRESSION_TYPE;
    }
}

/* A leader that is cut off from the controller may have been followed by another, whose log goes on: a client that comes from there must not be
 * sent to the beginning. */
static int16_t out_of_range(const struct part *pt, struct kb_now now) {
    const struct kb_partition *p = pt->p;
    bool superseded = p->replica_count > 1 && pt->at > p->log->leo && kb_lifecycle_may_be_fenced(p->node, now);
    return superseded ? KE_NOT_LEADER_OR_FOLLOWER : KE_OFFSET_OUT_OF_RANGE;
}

static void note_seen(struct part *pt) {
    pt->seen.limit = limit_of(pt);
    pt->seen.hw = pt->p->hw;
    pt->seen.start = pt->p->log->start;
    pt->seen.leader_epoch = pt->p->leader_epoch;
    pt->seen.role = (int32_t)pt->p->role;
}

static void hook(struct part *pt) {
    pt->hook = kb_waiter_hook(&pt->f->waiter, pt->p);
    pt->hook->of = pt;
    note_news(pt);
}

/* Everything that can be said without reading. True when there is something to read. What a replica tells by its fetch counts only when its log
 * agrees with this one, and before the fetch waits for the partition: it may move it. */
static bool judge(struct part *pt, struct kb_now now) {
    struct fetch *f = pt->f;
    pt->diverging_epoch = pt->nearest = -1;
    pt->old_offset = pt->at;
    find(pt);
    bool agrees = pt->code == KE_NONE && check_divergence(pt);
    if (agrees && (pt->at < pt->p->log->start || pt->at > pt->p->log->leo)) pt->code = out_of_range(pt, now);
    if (pt->code == KE_NONE && agrees && f->replica >= 0 && !pt->counted) {
        struct kb_replica_fetch told = told_by_replica(pt);
        pt->counted = true;
        kb_isr_fetched(pt->p, &told, now);
    }
    if (pt->code == KE_NONE && !pt->hook) hook(pt);
    if (pt->code != KE_NONE || !agrees) return false;
    note_seen(pt);
    if (names_rack(f) && pt->p->role == KB_PART_LEADS) pt->nearest = kb_isr_nearest(pt->p, f->req.rack_id, pt->offset);
    if (pt->nearest >= 0 || pt->sent || pt->at >= limit_of(pt) || f->bytes >= f->bytes_max) return false;
    if (!pt->read) pt->read = kw_arena_alloc(&f->rq->arena, sizeof(*pt->read));
    if (!pt->read) pt->code = KE_KAFKA_STORAGE_ERROR; /* no memory: the client tries again */
    return pt->read != NULL;
}

/* ---- The answer ---- */

static void tell_leader(const struct part *pt, part_answer *a) {
    struct fetch *f = pt->f;
    bool fenced = pt->code == KE_FENCED_LEADER_EPOCH;
    if (f->rq->head.version < 12 || (pt->code != KE_NOT_LEADER_OR_FOLLOWER && !fenced)) return;
    (void)kb_leader_hint(f->rq, &f->hints, pt->topic, pt->topic_id, pt->index, fenced, &a->current_leader.leader_id,
                         &a->current_leader.leader_epoch);
}

static void fill(const struct part *pt, part_answer *a) {
    *a = (part_answer){.partition_index = pt->index,
                       .error_code = pt->code,
                       .high_watermark = -1,
                       .last_stable_offset = -1,
                       .log_start_offset = -1,
                       .preferred_read_replica = pt->nearest};
    a->diverging_epoch.epoch = pt->diverging_epoch;
    a->diverging_epoch.end_offset = pt->diverging_epoch >= 0 ? pt->diverging_end : -1;
    a->current_leader.leader_id = a->current_leader.leader_epoch = -1;
    a->snapshot_id.end_offset = -1;
    a->snapshot_id.epoch = -1;
    tell_leader(pt, a);
    if (pt->code == KE_OFFSET_OUT_OF_RANGE && pt->f->replica >= 0 && pt->p) a->log_start_offset = pt->p->log->start; /* where it is to begin */
    if (pt->code != KE_NONE) return;
    a->high_watermark = a->last_stable_offset = pt->p->hw; /* without transactions nothing is unstable */
    a->log_start_offset = pt->p->log->start;
    if (pt->holds && pt->read->bytes > 0) a->records = (struct kw_records){.len = (int32_t)pt->read->bytes, .ref = pt->read};
}

static bool is_told(struct fetch *f, const struct part *pt) {
    if (!f->session) return true;
    bool known = pt->sp && f->session->drops == f->session_drops;
    struct kb_session_partition *sp = known ? pt->sp : kb_session_partition_find(f->session, pt->topic, pt->topic_id, pt->index);
    int64_t hw = pt->code == KE_NONE ? pt->p->hw : -1, start = pt->code == KE_NONE ? pt->p->log->start : -1;
    bool news = sp && kb_session_tell(f->session, sp, pt->code, hw, start, pt->holds ? pt->read->bytes : 0, /* no sp: forgotten meanwhile */
                                      pt->diverging_epoch >= 0 || pt->nearest >= 0);
    if (sp && f->session->reads_ahead && pt->holds && pt->read->bytes > 0) sp->sent_from = pt->at;
    return news || f->kind == KB_SESSION_FULL;
}

static bool same_topic(const struct part *a, const struct part *b) {
    return kw_uuid_eq(a->topic_id, b->topic_id) && kw_str_eq(a->topic, b->topic);
}

/* Where the leaders are that the partitions name. */
static void tell_endpoints(struct fetch *f) {
    struct kw_fetch_response_node_endpoint *v = NULL;
    struct kb_leader_place p;
    if (f->rq->head.version < 16 || f->hints.count == 0) return;
    f->resp.node_endpoints.v = v = kw_arena_calloc(&f->rq->arena, (size_t)f->hints.count, sizeof(*v));
    for (int32_t i = 0; v && i < f->hints.count; i++)
        if (kb_leader_place(f->rq, &f->hints, i, &p))
            v[f->resp.node_endpoints.n++] =
                (struct kw_fetch_response_node_endpoint){.node_id = p.id, .host = p.host, .port = p.port, .rack = p.rack};
}

static void answer(struct fetch *f) {
    struct kb_request *rq = f->rq;
    rq->hurry = NULL;
    kb_waiter_done(&f->waiter, rq->node);
    kw_msg_init(&kw_fetch_response_desc, &f->resp);
    f->resp.session_id = f->session ? f->session->id : 0;
    f->resp.reads_ahead = f->session && f->session->reads_ahead;
    size_t told = 0;
    for (size_t i = 0; i < f->count; i++) told += f->parts[i].told = is_told(f, &f->parts[i]);
    topic_answer *topics = kw_arena_calloc(&rq->arena, told, sizeof(*topics));
    part_answer *parts = kw_arena_alloc(&rq->arena, told * sizeof(*parts));
    if (told > 0 && (!topics || !parts)) {
        kb_request_close(rq, "out of memory");
        return;
    }
    size_t topic_count = 0, part_count = 0;
    const struct part *last = NULL;
    for (size_t i = 0; i < f->count && part_count < told; i++) {
        struct part *pt = &f->parts[i];
        if (!pt->told) continue;
        if (!last || !same_topic(last, pt))
            topics[topic_count++] = (topic_answer){.topic = pt->topic, .topic_id = pt->topic_id, .partitions.v = &parts[part_count]};
        fill(pt, &parts[part_count++]);
        topics[topic_count - 1].partitions.n++;
        last = pt;
    }
    f->resp.responses.v = topics;
    f->resp.responses.n = (int32_t)topic_count;
    tell_endpoints(f);
    kb_request_reply(rq, &f->resp);
}

/* ---- Passes and waiting ---- */

static void wait_more(struct fetch *f) {
    int64_t until = f->news_count > 0 ? KW_MIN(f->deadline_us, f->rq->node->now.mono_us + NEWS_US) : f->deadline_us;
    const struct kw_timer *t = &f->waiter.timer;
    if ((kw_timer_armed(t) && t->at_us <= until) || kb_waiter_arm(&f->waiter, f->rq->node, until) == KW_OK) return;
    f->expired = true; /* no memory to wait: what there is now */
    answer(f);
}

/* No answer holds more than its largest size, whatever least size was asked for; and what is there and does not fit, into it or into its
 * partition's share of it, would not fit later either. */
static void decide(struct fetch *f) {
    bool enough = f->full > 0 || f->bytes + f->kept_back >= KW_MIN((size_t)KW_MAX(f->req.min_bytes, 0), f->bytes_max);
    if (enough || f->failed || f->expired || f->count == 0)
        answer(f);
    else
        wait_more(f);
}

/* Reads what is stale, in order; ends in decide, or goes on from read_done. */
static void step(struct fetch *f, struct kb_now now) {
    f->passing = true;
    f->topic = NULL;
    for (struct kw_list *l; (l = kw_list_shift(&f->stale));) {
        struct part *pt = KW_CONTAINER_OF(l, struct part, stale);
        if (judge(pt, now) && read_part(pt, now) == 0) return;
        note_failure(pt);
    }
    f->passing = false;
    decide(f);
}

/* Of a partition with several replicas: every written mark would have every consumer look again, though its limit is the high watermark. */
static bool moved_for(const struct part *pt) {
    const struct kb_partition *p = pt->p;
    if (p->replica_count <= 1 || p->state != KB_PART_ONLINE) return true;
    return limit_of(pt) != pt->seen.limit || p->leader_epoch != pt->seen.leader_epoch || (int32_t)p->role != pt->seen.role ||
           p->log->start != pt->seen.start || (pt->f->replica >= 0 && p->hw != pt->seen.hw);
}

/* The partition moved: its part is read again. One that is gone must not be held on to. */
static void check(struct kb_waiter *w, struct kb_partition *moved, struct kb_now now) {
    struct fetch *f = w->ctx;
    struct part *pt = w->asked->of;
    bool deleted = moved->state == KB_PART_DELETED;
    if (!deleted) note_news(pt);
    if (pt->reading) {
        if (!deleted) return;
        kb_waiter_unhook(pt->hook); /* the pin holds it until read_done */
        pt->hook = NULL;
        return;
    }
    if (!deleted && (!kw_list_empty(&pt->stale) || !moved_for(pt))) return;
    if (deleted) {
        kw_list_remove(&pt->stale);
        forget_partition(pt);
    } else {
        let_go(pt);
        kw_list_push(&f->stale, &pt->stale);
    }
    if (!f->passing) step(f, now);
}

static void expire(struct kb_waiter *w, struct kb_now now) {
    (void)now;
    struct fetch *f = w->ctx;
    f->expired = true;
    if (!f->passing) answer(f);
}

static void hurry(struct kb_request *rq) {
    struct fetch *f = rq->state;
    expire(&f->waiter, rq->node->now);
}

static void cleanup(struct kb_request *rq) {
    struct fetch *f = rq->state;
    for (size_t i = 0; i < f->count; i++) {
        struct part *pt = &f->parts[i];
        if (pt->reading) {
            kb_read_cancel(pt->read);
            pt->reading = false;
            kb_partition_unpin(pt->p);
        }
        let_go(pt);
    }
    if (f->memory) kb_session_memory_back(f->session, f->memory);
    f->memory = NULL;
    kb_session_unref(f->session);
    f->session = NULL;
}

static void abandon(struct kb_request *rq) {
    struct fetch *f = rq->state;
    kb_waiter_done(&f->waiter, rq->node);
    kb_request_drop(rq);
}

/* ---- The request ---- */

static void take_from_session(struct fetch *f) {
    for (struct kw_list *l = f->session->partitions.next; l != &f->session->partitions; l = l->next) {
        struct kb_session_partition *sp = KW_CONTAINER_OF(l, struct kb_session_partition, link);
        size_t n = sp->topic ? strlen(sp->topic) : 0;
        const char *name = sp->topic ? kw_arena_dup(&f->rq->arena, sp->topic, n) : NULL; /* the session may forget it while this waits */
        if (sp->topic && !name) continue;
        int64_t at = f->session->reads_ahead ? KW_MAX(sp->read_from, sp->fetch_offset) : sp->fetch_offset;
        f->parts[f->count++] = (struct part){.f = f,
                                             .sp = sp,
                                             .topic = {name ? name : "", (int32_t)n},
                                             .topic_id = sp->topic_id,
                                             .index = sp->index,
                                             .leader_epoch = sp->leader_epoch,
                                             .last_fetched_epoch = sp->last_fetched_epoch,
                                             .max_bytes = sp->max_bytes,
                                             .offset = sp->fetch_offset,
                                             .at = at,
                                             .sent = f->session->reads_ahead && sp->sent_from == at,
                                             .log_start = sp->log_start,
                                             .hw_told = sp->hw_told,
                                             .start_told = sp->start_told,
                                             .nearest = -1,
                                             .diverging_epoch = -1};
    }
}

static void take_from_request(struct fetch *f) {
    for (int32_t i = 0; i < f->req.topics.n; i++) {
        const struct kw_fetch_request_fetch_topic *t = &f->req.topics.v[i];
        for (int32_t j = 0; j < t->partitions.n; j++) {
            const struct kw_fetch_request_fetch_partition *q = &t->partitions.v[j];
            f->parts[f->count++] = (struct part){.f = f,
                                                 .topic = t->topic,
                                                 .topic_id = t->topic_id,
                                                 .index = q->partition,
                                                 .leader_epoch = q->current_leader_epoch,
                                                 .last_fetched_epoch = q->last_fetched_epoch,
                                                 .max_bytes = q->partition_max_bytes,
                                                 .offset = q->fetch_offset,
                                                 .at = q->fetch_offset,
                                                 .log_start = q->log_start_offset,
                                                 .hw_told = -1,
                                                 .start_told = -1,
                                                 .nearest = -1,
                                                 .diverging_epoch = -1};
        }
    }
}

/* A replica's session of many partitions keeps it from one fetch to the next: the arena would have it from the system, and give it back. */
static bool take_memory(struct fetch *f, size_t count) {
    size_t parts = count * sizeof(*f->parts), hooks = count * sizeof(*f->hooks);
    if (f->session && f->session->privileged && parts + hooks > IN_ARENA_MAX) {
        f->memory = kb_session_memory(f->session, parts + hooks);
        f->parts = f->memory ? (void *)f->memory->data : NULL;
        f->hooks = f->memory ? (void *)(f->memory->data + parts) : NULL;
    } else {
        f->parts = kw_arena_alloc(&f->rq->arena, parts);
        f->hooks = kw_arena_alloc(&f->rq->arena, hooks);
    }
    return count == 0 || (f->parts && f->hooks);
}

static kw_err prepare(struct fetch *f) {
    struct kb_request *rq = f->rq;
    size_t count = 0;
    for (int32_t i = 0; i < f->req.topics.n; i++) count += (size_t)f->req.topics.v[i].partitions.n;
    if (f->kind == KB_SESSION_INCREMENTAL) count = f->session->count;
    if (count > PARTITIONS_MAX) return KW_ELIMIT;
    if (!take_memory(f, count)) return KW_ENOMEM;
    if (f->kind == KB_SESSION_INCREMENTAL)
        take_from_session(f);
    else
        take_from_request(f);
    kw_list_init(&f->stale);
    for (size_t i = 0; i < f->count; i++) {
        kw_list_init(&f->parts[i].stale);
        kw_list_push(&f->stale, &f->parts[i].stale);
    }
    if (f->session) f->session_drops = f->session->drops;
    kb_waiter_init(&f->waiter, f->hooks, count);
    f->waiter.check = check;
    f->waiter.expire = expire;
    f->waiter.ctx = f;
    size_t most = kb_session_bytes_max(rq->node);
    f->bytes_max = KW_MIN((size_t)KW_MAX(f->req.max_bytes, 0), most);
    if (f->bytes_max == 0) f->bytes_max = 1; /* one batch is always given, whole */
    f->deadline_us = rq->node->now.mono_us + (int64_t)KW_MAX(f->req.max_wait_ms, 0) * 1000;
    f->expired = f->req.max_wait_ms <= 0;
    return KW_OK;
}

static void refuse_all(struct fetch *f, int16_t code) {
    kw_msg_init(&kw_fetch_response_desc, &f->resp);
    f->resp.error_code = code;
    kb_request_reply(f->rq, &f->resp);
}

void kb_api_fetch(struct kb_request *rq) {
    struct fetch *f = kw_arena_calloc(&rq->arena, 1, sizeof(*f));
    if (!f) {
        kb_request_close(rq, "out of memory");
        return;
    }
    f->rq = rq;
    if (kb_request_decode(rq, &f->req) != KW_OK) return;
    if (!kb_store_is_single(rq->node->parts.store) && kb_raft_is_metadata_fetch(&f->req, rq->head.version)) {
        kb_raft_fetch(rq, &f->req);
        return;
    }
    if (rq->node->state != KB_NODE_READY) {
        kb_request_close(rq, "this broker is not ready yet");
        return;
    }
    f->replica = KW_MAX(rq->head.version >= 15 ? f->req.replica_state.replica_id : f->req.replica_id, -1);
    f->broker_epoch = rq->head.version >= 15 ? f->req.replica_state.replica_epoch : -1;
    rq->state = f;
    rq->cleanup = cleanup;
    int16_t code = kb_session_take(rq->node, &f->req, rq->head.version, &f->kind, &f->session);
    if (code != KE_NONE) {
        refuse_all(f, code);
        return;
    }
    kw_err err = prepare(f);
    if (err != KW_OK) {
        kb_request_close(rq, err == KW_ELIMIT ? "a fetch of more than 200000 partitions" : "out of memory");
        return;
    }
    rq->abandon = abandon;
    if (f->session && f->session->reads_ahead) rq->hurry = hurry;
    step(f, rq->node->now);
}
