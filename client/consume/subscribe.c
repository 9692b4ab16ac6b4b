/* subscribe.c - which topics a subscription means: sets of topic numbers, their metadata, and for patterns the list of all topics, which is asked
 * for once in metadata.max.age.ms. Loop context, but for the sets. Called by group*.c.
 */
#include "group.h"

#include <stdlib.h>

#define TOPIC_NAME_SIZE_MAX 249
#define SEARCH_VERSION_MIN 1 /* in 0 no topics means all of them, and one cannot say null */
#define CREATION_VERSION_MIN 4

/* ---- Sets ---- */

static int by_number(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return x < y ? -1 : x > y;
}

void kc_numbers_free(struct kc_numbers *n) {
    kw_free(n->v);
    *n = (struct kc_numbers){NULL, 0};
}

kw_err kc_numbers_set(struct kc_numbers *n, const int32_t *v, size_t count) {
    int32_t *copy = kw_malloc((count + 1) * sizeof(*copy));
    if (!copy) return KW_ENOMEM;
    if (count > 0) memcpy(copy, v, count * sizeof(*copy));
    qsort(copy, count, sizeof(*copy), by_number);
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        if (kept == 0 || copy[kept - 1] != copy[i]) copy[kept++] = copy[i];
    kw_free(n->v);
    *n = (struct kc_numbers){copy, kept};
    return KW_OK;
}

bool kc_numbers_same(const struct kc_numbers *a, const struct kc_numbers *b) {
    return a->count == b->count && (a->count == 0 || memcmp(a->v, b->v, a->count * sizeof(*a->v)) == 0);
}

const int32_t *kc_numbers_find(const struct kc_numbers *n, int32_t topic) {
    return n->count > 0 ? bsearch(&topic, n->v, n->count, sizeof(*n->v), by_number) : NULL;
}

bool kc_numbers_have(const struct kc_numbers *n, int32_t topic) {
    return kc_numbers_find(n, topic) != NULL;
}

void kc_group_want(struct kc_group *g, struct kc_numbers *was, struct kc_numbers *now) {
    struct kc_core *core = g->consume->core;
    for (size_t i = 0; i < now->count; i++) kc_metadata_want(core, now->v[i]);
    for (size_t i = 0; i < was->count; i++) kc_metadata_unwant(core, was->v[i]);
    kw_free(was->v);
    *was = *now;
    *now = (struct kc_numbers){NULL, 0};
}

int32_t kc_group_intern(struct kc_group *g, struct kw_str name) {
    struct kc_consume *c = g->consume;
    if (name.len <= 0) return 0;
    return c->intern ? c->intern(c->ctx, name.p, (size_t)name.len) : kc_metadata_intern(c->core, name.p, (size_t)name.len);
}

/* ---- Patterns ---- */

static kw_err encode(struct kc_request *rq, struct kw_out *out) {
    struct kw_metadata_request m;
    kw_msg_init(&kw_metadata_request_desc, &m);
    m.topics.v = NULL;
    m.topics.n = -1;
    m.allow_auto_topic_creation = rq->version < CREATION_VERSION_MIN; /* older versions cannot say no; nothing is named */
    return kw_encode(&kw_metadata_request_desc, rq->version, &m, out);
}

static bool matches(struct kc_group *g, const struct kw_metadata_response_topic *t) {
    char name[TOPIC_NAME_SIZE_MAX + 1];
    if (t->name.len <= 0 || t->name.len > TOPIC_NAME_SIZE_MAX) return false;
    if (t->error_code != KE_NONE && t->error_code != KE_LEADER_NOT_AVAILABLE) return false;
    if (t->is_internal && g->consume->settings->exclude_internal) return false;
    memcpy(name, t->name.p, (size_t)t->name.len);
    name[t->name.len] = 0;
    return g->matcher->matches(g->matcher, name);
}

/* Those of the answer that match, as numbers. */
static kw_err collect(struct kc_group *g, const struct kw_metadata_response *m, struct kc_numbers *found) {
    struct kc_consume *c = g->consume;
    int32_t *v = kw_malloc(((size_t)KW_MAX(m->topics.n, 0) + 1) * sizeof(*v));
    size_t n = 0;
    if (!v) return KW_ENOMEM;
    for (int32_t i = 0; i < m->topics.n && n < KC_GROUP_TOPICS_MAX; i++) {
        kc_lock_take(&c->lock); /* the application may put another pattern in its place */
        bool yes = g->matcher && matches(g, &m->topics.v[i]);
        kc_lock_give(&c->lock);
        if (!yes) continue;
        int32_t topic = kc_group_intern(g, m->topics.v[i].name);
        if (topic > 0) v[n++] = topic;
    }
    kw_err err = kc_numbers_set(found, v, n);
    kw_free(v);
    return err;
}

static kc_err take_answer(struct kc_group *g, struct kc_request *rq, struct kw_in *body) {
    struct kw_metadata_response m;
    struct kc_numbers found = {NULL, 0};
    struct kw_arena arena;
    kw_arena_init(&arena, 0);
    kw_err err = kw_decode(&kw_metadata_response_desc, rq->version, body, &arena, &m);
    if (err == KW_OK) kc_core_broker_throttle(g->consume->core, rq->sent_to, m.throttle_time_ms);
    if (err == KW_OK && m.error_code != KE_NONE) err = m.error_code;
    if (err == KW_OK) err = collect(g, &m, &found);
    kw_arena_deinit(&arena);
    if (err != KW_OK) return kc_err_from(err);
    if (!kc_numbers_same(&found, &g->topics)) {
        kc_group_rebalance(g, kc_core_now(g->consume->core).mono_us);
        g->why = "other topics match the subscription's pattern";
    }
    kc_group_want(g, &g->topics, &found);
    return KC_OK;
}

static void done(struct kc_request *rq, kc_err err, struct kw_in *body, struct kw_blk *blk) {
    struct kc_group *g = rq->ctx;
    struct kc_consume *c = g->consume;
    (void)blk;
    g->search_busy = false;
    c->requests--;
    int64_t now_us = kc_core_now(c->core).mono_us;
    uint64_t wish = g->wishes_searched;
    if (!g->stopped && wish == g->wish) {
        if (err == KC_OK) err = take_answer(g, rq, body);
        g->search_errors = err == KC_OK ? 0 : g->search_errors + 1;
        g->search_due = g->search_due && err != KC_OK;
        g->search_at_us = kc_after(now_us, err != KC_OK ? kc_backoff_us(c, g->search_errors) : c->settings->metadata_age_max_us);
    }
    kc_consume_run(c);
}

void kc_group_search(struct kc_group *g) {
    struct kc_consume *c = g->consume;
    if (g->search_busy) return;
    kc_request_init(&g->search, KW_API_METADATA);
    g->search.version_min = SEARCH_VERSION_MIN;
    g->search.broker = KC_BROKER_ANY;
    g->search.encode = encode;
    g->search.done = done;
    g->search.ctx = g;
    g->search.deadline_us = kc_core_now(c->core).mono_us + c->settings->request_timeout_us;
    g->search_busy = true;
    g->wishes_searched = g->wish;
    c->requests++;
    kc_core_send(c->core, &g->search);
}
