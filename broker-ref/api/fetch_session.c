/* fetch_session.c - the cache of fetch sessions. Called by api/fetch, node. KIP-227, KIP-516 (topic ids).
 *
 * A place in a full cache is made as KIP-227 says: a session unused for the eviction time goes; else one older than that time, if the new
 * one is privileged (a replica's) and the old one is not, or has more partitions.
 */
#include "fetch_session.h"

#include "node_priv.h"

enum { EVICTION_US = 120000000, KEY_SIZE_MAX = 260, PARTITIONS_MAX = 200000 /* of all sessions of a cache slot */ };

struct kb_fetch_cache {
    struct kw_list lru;
    struct kw_map by_id;
    size_t count, count_max;
    size_t bytes_max; /* fetch.max.bytes, looked up once */
};

kw_err kb_fetch_cache_new(struct kb_node *n) {
    struct kb_fetch_cache *c = kw_calloc(1, sizeof(*c));
    if (!c) return KW_ENOMEM;
    kw_list_init(&c->lru);
    kw_map_init(&c->by_id);
    c->count_max = (size_t)kb_config_int(n->parts.config, "max.incremental.fetch.session.cache.slots");
    c->bytes_max = (size_t)kb_config_int(n->parts.config, "fetch.max.bytes");
    n->fetch_cache = c;
    return KW_OK;
}

size_t kb_session_bytes_max(const struct kb_node *n) {
    return n->fetch_cache->bytes_max;
}

size_t kb_fetch_cache_count(const struct kb_node *n) {
    return n->fetch_cache->count;
}

/* ---- Partitions of a session ---- */

static size_t make_key(uint8_t key[KEY_SIZE_MAX], bool by_id, struct kw_str topic, struct kw_uuid id, int32_t index) {
    size_t n = by_id ? sizeof(id.b) : (size_t)KW_MAX(topic.len, 0);
    if (n > KEY_SIZE_MAX - 4) return 0; /* no topic has such a name */
    memcpy(key + 4, by_id ? (const void *)id.b : (const void *)topic.p, n);
    kw_store32(key, (uint32_t)index);
    return n + 4;
}

struct kb_session_partition *kb_session_partition_find(const struct kb_session *s, struct kw_str topic, struct kw_uuid id, int32_t index) {
    uint8_t key[KEY_SIZE_MAX];
    size_t n = make_key(key, s->by_id, topic, id, index);
    return n ? kw_map_get(&s->by_key, key, n) : NULL;
}

static void drop_partition(struct kb_session *s, struct kb_session_partition *p) {
    uint8_t key[KEY_SIZE_MAX];
    size_t n = make_key(key, s->by_id, kw_str_of(p->topic), p->topic_id, p->index);
    kw_map_remove(&s->by_key, key, n);
    kw_list_remove(&p->link);
    s->count--;
    s->drops++;
    kw_free(p->topic);
    kw_free(p);
}

static kw_err add_partition(struct kb_session *s, const struct kw_fetch_request_fetch_topic *t,
                            const struct kw_fetch_request_fetch_partition *q) {
    uint8_t key[KEY_SIZE_MAX];
    struct kb_session_partition *p = kb_session_partition_find(s, t->topic, t->topic_id, q->partition);
    if (!p) {
        size_t n = make_key(key, s->by_id, t->topic, t->topic_id, q->partition);
        if (n == 0) return KW_EINVAL;
        p = kw_calloc(1, sizeof(*p));
        if (!p) return KW_ENOMEM;
        if (!s->by_id) {
            p->topic = kw_malloc((size_t)t->topic.len + 1);
            if (!p->topic) goto fail;
            memcpy(p->topic, t->topic.p, (size_t)t->topic.len);
            p->topic[t->topic.len] = 0;
        }
        p->topic_id = t->topic_id;
        p->index = q->partition;
        p->hw_told = p->start_told = p->sent_from = -1;
        kw_list_init(&p->link);
        if (kw_map_put(&s->by_key, key, n, p) != KW_OK) goto fail;
        kw_list_push(&s->partitions, &p->link);
        s->count++;
    }
    p->leader_epoch = q->current_leader_epoch;
    p->last_fetched_epoch = q->last_fetched_epoch;
    p->fetch_offset = q->fetch_offset;
    p->log_start = q->log_start_offset;
    p->read_from = q->read_from;
    p->max_bytes = q->partition_max_bytes;
    return KW_OK;
fail:
    kw_free(p->topic);
    kw_free(p);
    return KW_ENOMEM;
}

static kw_err update(struct kb_session *s, const struct kw_fetch_request *req) {
    for (int32_t i = 0; i < req->topics.n; i++)
        for (int32_t j = 0; j < req->topics.v[i].partitions.n; j++) {
            kw_err err = add_partition(s, &req->topics.v[i], &req->topics.v[i].partitions.v[j]);
            if (err != KW_OK) return err;
            if (s->count > PARTITIONS_MAX) return KW_ENOMEM;
        }
    for (int32_t i = 0; i < req->forgotten_topics_data.n; i++) {
        const struct kw_fetch_request_forgotten_topic *t = &req->forgotten_topics_data.v[i];
        for (int32_t j = 0; j < t->partitions.n; j++) {
            struct kb_session_partition *p = kb_session_partition_find(s, t->topic, t->topic_id, t->partitions.v[j]);
            if (p) drop_partition(s, p);
        }
    }
    return KW_OK;
}

/* ---- Sessions ---- */

void kb_session_unref(struct kb_session *s) {
    if (!s || --s->refs > 0) return;
    struct kw_list *l;
    while ((l = kw_list_shift(&s->partitions))) {
        struct kb_session_partition *p = KW_CONTAINER_OF(l, struct kb_session_partition, link);
        kw_free(p->topic);
        kw_free(p);
    }
    kw_map_deinit(&s->by_key);
    kw_blk_unref(s->memory);
    kw_free(s);
}

struct kw_blk *kb_session_memory(struct kb_session *s, size_t size) {
    struct kw_blk *b = s->memory;
    s->memory = NULL;
    if (b && b->cap >= size && b->cap / 4 <= size) return b;
    kw_blk_unref(b);
    return kw_blk_new(size);
}

void kb_session_memory_back(struct kb_session *s, struct kw_blk *b) {
    kw_blk_unref(s->memory);
    s->memory = b;
}

static void evict(struct kb_fetch_cache *c, struct kb_session *s) {
    kw_map_remove_u64(&c->by_id, (uint32_t)s->id);
    kw_list_remove(&s->link);
    c->count--;
    kb_session_unref(s);
}

void kb_fetch_cache_free(struct kb_node *n) {
    struct kb_fetch_cache *c = n->fetch_cache;
    if (!c) return;
    while (!kw_list_empty(&c->lru)) evict(c, KW_CONTAINER_OF(c->lru.next, struct kb_session, link));
    kw_map_deinit(&c->by_id);
    kw_free(c);
    n->fetch_cache = NULL;
}

/* The session that counts least: unprivileged before privileged, then the smaller. */
static bool less(bool privileged_a, size_t count_a, bool privileged_b, size_t count_b) {
    return privileged_a != privileged_b ? !privileged_a : count_a < count_b;
}

static bool make_place(struct kb_fetch_cache *c, bool privileged, size_t count, int64_t now_us) {
    if (c->count < c->count_max) return true;
    if (c->count_max == 0) return false;
    struct kb_session *oldest = KW_CONTAINER_OF(c->lru.next, struct kb_session, link), *least = NULL;
    if (now_us - oldest->used_us > EVICTION_US) {
        evict(c, oldest);
        return true;
    }
    for (struct kw_list *l = c->lru.next; l != &c->lru; l = l->next) {
        struct kb_session *s = KW_CONTAINER_OF(l, struct kb_session, link);
        bool evictable = now_us - s->created_us > EVICTION_US || (privileged && !s->privileged);
        if (evictable && (!least || less(s->privileged, s->count, least->privileged, least->count))) least = s;
    }
    if (!least || !less(least->privileged, least->count, privileged, count)) return false;
    evict(c, least);
    return true;
}

static struct kb_session *create(struct kb_node *n, const struct kw_fetch_request *req, int16_t version, bool privileged) {
    struct kb_fetch_cache *c = n->fetch_cache;
    size_t count = 0;
    for (int32_t i = 0; i < req->topics.n; i++) count += (size_t)req->topics.v[i].partitions.n;
    if (count == 0 || !make_place(c, privileged, count, n->now.mono_us)) return NULL;
    struct kb_session *s = kw_calloc(1, sizeof(*s));
    if (!s) return NULL;
    s->refs = 1;
    s->by_id = version >= 13;
    s->privileged = privileged;
    s->reads_ahead = privileged && req->reads_ahead;
    s->created_us = s->used_us = n->now.mono_us;
    s->epoch = 1;
    kw_list_init(&s->link);
    kw_list_init(&s->partitions);
    kw_map_init(&s->by_key);
    do s->id = (int32_t)kw_rng_below(&n->parts.rng, INT32_MAX - 1) + 1;
    while (kw_map_get_u64(&c->by_id, (uint32_t)s->id));
    if (update(s, req) != KW_OK || kw_map_put_u64(&c->by_id, (uint32_t)s->id, s) != KW_OK) {
        kb_session_unref(s);
        return NULL; /* the fetch goes on without a session */
    }
    kw_list_push(&c->lru, &s->link);
    c->count++;
    return s;
}

static int16_t continue_session(struct kb_node *n, const struct kw_fetch_request *req, int16_t version, enum kb_session_kind *kind,
                                struct kb_session **out) {
    struct kb_fetch_cache *c = n->fetch_cache;
    struct kb_session *s = kw_map_get_u64(&c->by_id, (uint32_t)req->session_id);
    if (!s) return KE_FETCH_SESSION_ID_NOT_FOUND;
    if (s->epoch != req->session_epoch) return KE_INVALID_FETCH_SESSION_EPOCH;
    if (s->by_id != (version >= 13)) return KE_FETCH_SESSION_TOPIC_ID_ERROR;
    if (update(s, req) != KW_OK) { /* half an update must not live on */
        evict(c, s);
        return KE_FETCH_SESSION_ID_NOT_FOUND;
    }
    *kind = KB_SESSION_INCREMENTAL;
    if (s->count == 0) { /* nothing is left to fetch: the session ends */
        evict(c, s);
        *kind = KB_SESSION_NONE;
        return KE_NONE;
    }
    s->epoch = s->epoch == INT32_MAX ? 1 : s->epoch + 1;
    s->used_us = n->now.mono_us;
    kw_list_remove(&s->link);
    kw_list_push(&c->lru, &s->link);
    s->refs++;
    *out = s;
    return KE_NONE;
}

int16_t kb_session_take(struct kb_node *n, const struct kw_fetch_request *req, int16_t version, enum kb_session_kind *kind,
                        struct kb_session **s) {
    struct kb_fetch_cache *c = n->fetch_cache;
    *kind = KB_SESSION_NONE;
    *s = NULL;
    if (version < 7) return KE_NONE;
    if (req->session_epoch > 0) return continue_session(n, req, version, kind, s);
    struct kb_session *old = req->session_id != 0 ? kw_map_get_u64(&c->by_id, (uint32_t)req->session_id) : NULL;
    if (old) evict(c, old);
    if (req->session_epoch != 0) return KE_NONE; /* -1: the client wants no session */
    *kind = KB_SESSION_FULL;
    *s = create(n, req, version, (version >= 15 ? req->replica_state.replica_id : req->replica_id) >= 0);
    if (*s) (*s)->refs++;
    return KE_NONE;
}

bool kb_session_tell(struct kb_session *s, struct kb_session_partition *p, int16_t code, int64_t hw, int64_t start, size_t bytes,
                     bool diverging) {
    bool news = bytes > 0 || code != KE_NONE || diverging || hw != p->hw_told || start != p->start_told;
    bool taken = code == KE_NONE && !diverging; /* else nothing but that is taken from the answer, and afterwards everything is news */
    p->hw_told = taken ? hw : -1;
    p->start_told = taken ? start : -1;
    if (bytes > 0) {
        kw_list_remove(&p->link);
        kw_list_push(&s->partitions, &p->link);
    }
    return news;
}
