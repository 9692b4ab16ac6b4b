/* create_topics.c - CreateTopics v0-7. v1 adds validate_only and texts, v4 the defaults of -1, v5 the new topic's configuration, v7 its id.
 *
 * KIP-4, 464, 525, 516. The rules are the controller's.
 */
#include "admin.h"

struct create {
    struct kw_create_topics_request req;
    struct kb_topic_create *topics;
};

static kw_err copy_assignments(struct kb_request *rq, const struct kw_create_topics_request_creatable_topic *t,
                               struct kb_topic_create *out) {
    if (t->assignments.n <= 0) return KW_OK;
    struct kb_assignment *v = kw_arena_alloc(&rq->arena, (size_t)t->assignments.n * sizeof(*v));
    if (!v) return KW_ENOMEM;
    for (int32_t i = 0; i < t->assignments.n; i++) {
        v[i].index = t->assignments.v[i].partition_index;
        v[i].brokers = t->assignments.v[i].broker_ids.v;
        v[i].count = t->assignments.v[i].broker_ids.n;
    }
    out->assignments = v;
    out->assignment_count = t->assignments.n;
    return KW_OK;
}

static kw_err copy_configs(struct kb_request *rq, const struct kw_create_topics_request_creatable_topic *t, struct kb_topic_create *out) {
    if (t->configs.n <= 0) return KW_OK;
    struct kb_config_kv *v = kw_arena_calloc(&rq->arena, (size_t)t->configs.n, sizeof(*v));
    if (!v) return KW_ENOMEM;
    for (int32_t i = 0; i < t->configs.n; i++) {
        v[i].key = t->configs.v[i].name;
        v[i].value = t->configs.v[i].value;
    }
    out->configs = v;
    out->config_count = t->configs.n;
    return KW_OK;
}

/* ---- The answer ---- */

/* What the request itself sets, while the topic is not there (validate_only). */
static const struct kb_config_kv *asked_for(const struct kb_topic_create *t, const char *name) {
    const struct kb_config_kv *found = NULL;
    for (int32_t i = 0; i < t->config_count; i++)
        if (kw_str_eq(t->configs[i].key, kw_str_of(name))) found = &t->configs[i];
    return found;
}

static kw_err add_configs(struct kb_request *rq, const struct kb_topic_create *t,
                          struct kw_create_topics_response_creatable_topic_result *out) {
    struct kb_parts *p = kb_node_parts(rq->node);
    size_t room = 0;
    for (size_t i = 0; i < kb_config_def_count; i++) room += (kb_config_defs[i].scope & KB_C_TOPIC) != 0;
    out->configs.v = kw_arena_alloc(&rq->arena, room * sizeof(*out->configs.v));
    if (!out->configs.v) return KW_ENOMEM;
    for (size_t i = 0; i < kb_config_def_count; i++) {
        const struct kb_config_def *d = &kb_config_defs[i];
        if (!(d->scope & KB_C_TOPIC)) continue;
        struct kb_effective *e = kw_arena_alloc(&rq->arena, sizeof(*e));
        if (!e) return KW_ENOMEM;
        kb_effective_topic(p->image, p->config, t->name, d, e);
        const struct kb_config_kv *kv = asked_for(t, d->name);
        out->configs.v[out->configs.n++] = (struct kw_create_topics_response_creatable_topic_configs){
            .name = kw_str_of(d->name),
            .value = kv ? kv->value : kw_str_of(e->value),
            .config_source = (int8_t)(kv ? KB_SOURCE_TOPIC : e->source),
        };
    }
    return KW_OK;
}

static void answer(struct kb_admin_wait *w) {
    struct create *c = w->items;
    struct kb_request *rq = w->rq;
    struct kw_create_topics_response res;
    kw_msg_init(&kw_create_topics_response_desc, &res);
    res.topics.v = kw_arena_alloc(&rq->arena, ((size_t)c->req.topics.n + 1) * sizeof(*res.topics.v));
    kw_err err = res.topics.v ? KW_OK : KW_ENOMEM;
    for (int32_t i = 0; !err && i < c->req.topics.n; i++) {
        const struct kb_topic_create *t = &c->topics[i];
        struct kw_create_topics_response_creatable_topic_result *out = &res.topics.v[res.topics.n++];
        *out = (struct kw_create_topics_response_creatable_topic_result){.name = t->name,
                                                                         .error_code = kb_admin_code(w, &t->result),
                                                                         .error_message = kb_admin_text(w, &t->result),
                                                                         .num_partitions = -1,
                                                                         .replication_factor = -1};
        if (out->error_code) continue;
        if (!c->req.validate_only) out->topic_id = t->id;
        out->num_partitions = t->partitions_made;
        out->replication_factor = t->rf_made;
        if (rq->head.version >= 5) err = add_configs(rq, t, out);
    }
    if (err)
        kb_admin_no_memory(rq);
    else
        kb_request_reply(rq, &res);
}

void kb_api_create_topics(struct kb_request *rq) {
    struct create *c = kw_arena_alloc(&rq->arena, sizeof(*c));
    if (!c) {
        kb_admin_no_memory(rq);
        return;
    }
    if (kb_request_decode(rq, &c->req)) return;
    int32_t n = KW_MAX(c->req.topics.n, 0);
    c->req.topics.n = n;
    c->topics = kw_arena_calloc(&rq->arena, (size_t)n + 1, sizeof(*c->topics));
    struct kb_admin_wait *w = kb_admin_wait_new(rq, c, answer);
    kw_err err = c->topics && w ? KW_OK : KW_ENOMEM;
    for (int32_t i = 0; !err && i < n; i++) {
        const struct kw_create_topics_request_creatable_topic *t = &c->req.topics.v[i];
        c->topics[i].name = t->name;
        c->topics[i].partitions = t->num_partitions;
        c->topics[i].replication_factor = t->replication_factor;
        err = copy_assignments(rq, t, &c->topics[i]);
        if (!err) err = copy_configs(rq, t, &c->topics[i]);
    }
    if (err) {
        kb_admin_no_memory(rq);
        return;
    }
    err = kb_controller_create_topics(kb_node_parts(rq->node)->controller, c->topics, n, c->req.validate_only, &w->change, rq->arrived);
    kb_admin_wait_begin(w, err, c->req.timeout_ms);
}
