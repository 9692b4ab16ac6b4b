/* follower_fetch.c - the requests of a follower: one fetch session a leader broker, of which each request tells what changed (KIP-227).
 *
 * Called by follower.c at the end of a turn. Calls link. A partition that cannot be fetched for now (it is being written, cut, or left alone for a
 * while) is taken out of the session, or the leader would answer for it at once and in vain. KIP-320 (epochs of leader and last batch), 516 (topic
 * ids), 903 (our broker epoch).
 */
#include "follower_priv.h"
#include "node_priv.h"
#include "replicate.h"

#define AHEAD_BYTES (8u << 20) /* not yet written: then nothing is read ahead */
#define SHORT_WAIT_MS 5      /* of the leader, while partitions are about to join the session */
#define GATHERING_US 100000  /* so long after one began to follow, others are expected to */

typedef struct kw_fetch_request_fetch_partition part_request;
typedef struct kw_fetch_request_fetch_topic topic_request;
typedef struct kw_fetch_request_forgotten_topic forgotten_request;

struct builder {
    struct kw_fetch_request *m;
    part_request *parts;
    struct kb_forgotten *forget; /* of this request alone, besides the peer's */
    size_t part_count, forget_count;
    struct kw_list later; /* those that the next request has to name */
    int32_t bytes_max;
    bool full;
};

bool kb_follower_is_behind(const struct kb_follower *f) {
    return f->writing || kb_follower_mark(f) != f->p->log->leo;
}

bool kb_follower_is_usable(const struct kb_follower *f) {
    const struct kb_log *log = f->p->log;
    return !f->cutting && kw_list_empty(&f->delayed) && !log->busy && !log->poisoned;
}

bool kb_follower_is_ready(const struct kb_follower *f) {
    return kb_follower_is_usable(f) && !kb_follower_is_behind(f);
}

/* One that is in the session may be read ahead of what is written, unless the disk falls too far behind; to join, all must be written. */
static bool can_be_named(const struct kb_follower *f) {
    const struct kb_disk *disk = &f->p->node->parts.disk;
    bool ahead = f->in_session && f->asked && kb_peer_goes_ahead(f->peer) && !f->p->log_config.flush_on_ack;
    return ahead && disk->queued_append_bytes < AHEAD_BYTES ? kb_follower_is_usable(f) : kb_follower_is_ready(f);
}

/* Consecutive partitions of a topic go under one entry: their order is that in which the leader serves them. */
static void name(struct builder *b, struct kb_follower *f) {
    struct kw_fetch_request *m = b->m;
    const struct kb_partition *p = f->p;
    topic_request *t = m->topics.n > 0 ? &m->topics.v[m->topics.n - 1] : NULL;
    if (!t || !kw_uuid_eq(t->topic_id, p->topic_id)) {
        t = &m->topics.v[m->topics.n++];
        *t = (topic_request){.topic_id = p->topic_id, .partitions.v = &b->parts[b->part_count]};
    }
    int64_t mark = kb_follower_mark(f);
    b->parts[b->part_count++] = (part_request){.partition = p->index,
                                               .current_leader_epoch = f->leader_epoch,
                                               .fetch_offset = mark,
                                               .read_from = mark < p->log->leo ? p->log->leo : 0,
                                               .last_fetched_epoch = kb_replicate_last_epoch(p->log),
                                               .log_start_offset = p->log->start,
                                               .partition_max_bytes = b->bytes_max,
                                               .high_watermark = INT64_MAX};
    t->partitions.n++;
    if (!f->asked) f->since = f->peer->fetches + 1; /* this one */
    kb_follower_set_session(f, true);
    f->sent_mark = mark;
    f->sent_offset = p->log->leo;
    f->sent_start = p->log->start;
}

static void add(struct builder *b, struct kb_follower *f) {
    kw_list_remove(&f->changed);
    const struct kb_log *log = f->p->log;
    bool ready = can_be_named(f);
    if (!ready && !f->writing && !f->cutting && !f->p->log->busy && kb_follower_mark(f) < f->p->log->leo) { /* flush.on.ack was turned on */
        kb_follower_set_writing(f, true);
        (void)!kb_log_sync(f->p->log);
    }
    if (ready && f->asked && f->sent_offset == log->leo && f->sent_start == log->start && f->sent_mark == kb_follower_mark(f)) return; /* it is known */
    /* A session that reads ahead gives what comes from an offset once: one that does not count on what it was given leaves before it asks again. */
    bool again = f->in_session && !f->asked && kb_peer_goes_ahead(f->peer);
    if (ready && !f->missed && !again) {
        name(b, f);
    } else if (f->in_session) {
        b->forget[b->forget_count++] = (struct kb_forgotten){f->p->topic_id, f->p->index};
        kb_follower_set_session(f, false);
        if (ready) kw_list_push(&b->later, &f->changed);
    }
}

static void add_all(struct kb_peer *peer, struct builder *b) {
    struct kw_list *all = b->full ? &peer->followers : &peer->changed;
    for (struct kw_list *l = all->next, *next; l != all; l = next) {
        next = l->next;
        add(b, b->full ? KW_CONTAINER_OF(l, struct kb_follower, link) : KW_CONTAINER_OF(l, struct kb_follower, changed));
    }
}

static void forget(struct builder *b, const struct kb_forgotten *v, size_t count) {
    struct kw_fetch_request *m = b->m;
    for (size_t i = 0; i < count; i++)
        m->forgotten_topics_data.v[m->forgotten_topics_data.n++] =
            (forgotten_request){.topic_id = v[i].topic_id, .partitions = {.v = (int32_t *)(uintptr_t)&v[i].index, .n = 1}};
}

/* One that left and came back since the last request is not to be forgotten. */
static void drop_returned(struct kb_peer *peer) {
    size_t left = 0;
    for (size_t i = 0; i < peer->forgotten_count; i++) {
        struct kb_forgotten g = peer->forgotten[i];
        const struct kb_partition *p = kb_partition_by_id(peer->fs->node, g.topic_id, g.index);
        if (p && p->follower && p->follower->peer == peer && p->follower->in_session) continue;
        peer->forgotten[left++] = g;
    }
    peer->forgotten_count = left;
}

static size_t list_count(const struct kw_list *l) {
    size_t n = 0;
    for (const struct kw_list *it = l->next; it != l; it = it->next) n++;
    return n;
}

static int32_t wait_ms(const struct kb_peer *peer, struct kb_now now) {
    const struct kb_followers *fs = peer->fs;
    int64_t ms = fs->set.wait_ms;
    bool soon = peer->writing > 0 || !kw_list_empty(&peer->changed) || kb_partitions_opening(fs->node) > 0 || now.mono_us - fs->moved_us < GATHERING_US;
    if (soon) ms = KW_MIN(ms, SHORT_WAIT_MS);
    const struct kw_list *delays = &peer->delays[KB_DELAY_METADATA];
    if (!kw_list_empty(delays)) {
        int64_t left_us = KW_CONTAINER_OF(delays->next, struct kb_follower, delayed)->until_us - now.mono_us;
        ms = KW_MIN(ms, KW_MAX(left_us, 0) / 1000 + 1);
    }
    return (int32_t)ms;
}

static kw_err build(struct kb_peer *peer, struct kw_arena *a, struct kw_fetch_request *m, struct kb_now now) {
    struct kb_node *n = peer->fs->node;
    struct builder b = {.m = m, .full = peer->session_id == 0};
    kw_msg_init(&kw_fetch_request_desc, m);
    if (b.full) kb_peer_session_reset(peer);
    size_t count = b.full ? peer->count : list_count(&peer->changed), forgotten = count + peer->forgotten_count;
    b.bytes_max = peer->fs->set.bytes_max;
    b.parts = kw_arena_alloc(a, count * sizeof(*b.parts));
    b.forget = kw_arena_alloc(a, count * sizeof(*b.forget));
    m->topics.v = kw_arena_alloc(a, count * sizeof(topic_request));
    m->forgotten_topics_data.v = kw_arena_calloc(a, forgotten, sizeof(forgotten_request));
    if ((count > 0 && (!b.parts || !b.forget || !m->topics.v)) || (forgotten > 0 && !m->forgotten_topics_data.v)) return KW_ENOMEM;
    kw_list_init(&b.later);
    add_all(peer, &b);
    for (struct kw_list *l; (l = kw_list_shift(&b.later));) kw_list_push(&peer->changed, l);
    drop_returned(peer);
    forget(&b, peer->forgotten, peer->forgotten_count);
    forget(&b, b.forget, b.forget_count);
    m->replica_state.replica_id = n->id;
    m->replica_state.replica_epoch = kb_node_broker_epoch(n);
    m->max_wait_ms = wait_ms(peer, now);
    m->min_bytes = peer->fs->set.bytes_min;
    m->max_bytes = peer->fs->set.response_bytes_max;
    m->session_id = peer->session_id;
    m->session_epoch = peer->session_epoch;
    m->reads_ahead = b.full;
    return KW_OK;
}

size_t kb_peer_calls(const struct kb_peer *peer) {
    size_t n = 0;
    for (size_t i = 0; i < KB_PEER_CALLS; i++) n += kb_call_is_under_way(&peer->calls[i].call);
    return n;
}

static struct kb_peer_call *free_call(struct kb_peer *peer) {
    struct kb_peer_call *c = peer->calls;
    while (kb_call_is_under_way(&c->call)) c++;
    return c;
}

kw_err kb_peer_fetch(struct kb_peer *peer, struct kb_now now) {
    const struct kw_api *api = kw_api_by_key(KW_API_FETCH);
    struct kw_arena *arena = &peer->fs->arena;
    struct kw_fetch_request m;
    struct kb_peer_call *c = free_call(peer);
    bool second = kb_peer_calls(peer) > 0;
    kw_err err = build(peer, arena, &m, now);
    bool none = peer->session_count == 0 && kw_list_empty(&peer->changed); /* can be fetched now; what can again, comes back here */
    bool idle = second && m.topics.n == 0 && m.forgotten_topics_data.n == 0; /* the first says all that there is to be said */
    if (err == KW_OK && !none && !idle) {
        int64_t timeout_us = peer->fs->set.timeout_us + (int64_t)m.max_wait_ms * 1000;
        err = kb_link_call(peer->link, &c->call, api->request, api->max, &m, timeout_us, now);
    }
    kw_arena_reset(arena);
    peer->progress = false;
    if (err != KW_OK || none) {
        kb_peer_session_reset(peer); /* what was taken for told was not */
        return err;
    }
    if (idle) return KW_OK;
    peer->forgotten_count = 0;
    c->serial = peer->session_serial;
    c->number = ++peer->fetches;
    if (peer->session_id != 0) peer->session_epoch = peer->session_epoch == INT32_MAX ? 1 : peer->session_epoch + 1;
    peer->fs->stats.fetches++;
    return KW_OK;
}
