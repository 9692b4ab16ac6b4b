/* make_topics.c - topics made for a request. Contract: make_topics.h. */
#include "make_topics.h"

static void made(struct kb_admin_wait *w) {
    struct kb_make_topics *m = w->items;
    m->done(m);
}

/* ---- By the controller, where that is another node ---- */

static void relayed(struct kb_forward *f, int16_t code, struct kw_in *body, struct kw_blk *blk) {
    struct kb_make_topics *m = KW_CONTAINER_OF(f, struct kb_make_topics, forward);
    struct kw_create_topics_response r;
    (void)blk;
    if (!code && kw_decode(&kw_create_topics_response_desc, f->version, body, &m->rq->arena, &r) != KW_OK) code = KE_UNKNOWN_SERVER_ERROR;
    for (int32_t i = 0; i < m->count; i++) {
        struct kb_topic_create *t = &m->creates[i];
        t->result.code = code == KE_NONE ? KE_UNKNOWN_TOPIC_OR_PARTITION : KE_LEADER_NOT_AVAILABLE; /* the client asks again */
        for (int32_t k = 0; !code && k < r.topics.n; k++) {
            const struct kw_create_topics_response_creatable_topic_result *a =
                &r.topics.v[(i + k) % r.topics.n]; /* in the order of the request, mostly */
            if (!kw_str_eq(a->name, t->name)) continue;
            t->result.code = a->error_code;
            break;
        }
    }
    m->done(m);
}

static kw_err item(struct kb_make_topics *m, const struct kb_topic_create *t, struct kw_create_topics_request_creatable_topic *out) {
    *out = (struct kw_create_topics_request_creatable_topic){
        .name = t->name, .num_partitions = t->partitions, .replication_factor = t->replication_factor};
    out->configs.v = kw_arena_calloc(&m->rq->arena, (size_t)t->config_count, sizeof(*out->configs.v));
    if (!out->configs.v) return KW_ENOMEM;
    for (int32_t i = 0; i < t->config_count; i++) {
        out->configs.v[i].name = t->configs[i].key;
        out->configs.v[i].value = t->configs[i].value;
        out->configs.n++;
    }
    return KW_OK;
}

static kw_err relay(struct kb_make_topics *m, int32_t timeout_ms) {
    struct kw_create_topics_request q;
    struct kw_out out;
    kw_msg_init(&kw_create_topics_request_desc, &q);
    q.timeout_ms = timeout_ms;
    q.topics.v = kw_arena_calloc(&m->rq->arena, (size_t)m->count, sizeof(*q.topics.v));
    if (!q.topics.v) return KW_ENOMEM;
    for (int32_t i = 0; i < m->count; i++)
        if (item(m, &m->creates[i], &q.topics.v[q.topics.n++])) return KW_ENOMEM;
    kw_out_init(&out);
    m->forward = (struct kb_forward){.rq = m->rq,
                                     .api_key = KW_API_CREATE_TOPICS,
                                     .version = 7,
                                     .deadline_us = m->rq->arrived.mono_us + (int64_t)timeout_ms * 1000,
                                     .done = relayed};
    kw_err err = kw_encode(&kw_create_topics_request_desc, 7, &q, &out);
    m->forward.body = err ? NULL : kw_arena_dup(&m->rq->arena, out.p, out.len);
    m->forward.size = out.len;
    kw_out_deinit(&out);
    if (!m->forward.body) return KW_ENOMEM;
    kb_forward_begin(&m->forward, m->rq->arrived);
    return KW_OK;
}

kw_err kb_make_topics(struct kb_make_topics *m, int32_t timeout_ms) {
    struct kb_parts *p = kb_node_parts(m->rq->node);
    if (!kb_store_leads(p->store)) return relay(m, timeout_ms);
    struct kb_admin_wait *w = kb_admin_wait_new(m->rq, m, made);
    if (!w) return KW_ENOMEM;
    kw_err err = kb_controller_create_topics(p->controller, m->creates, m->count, false, &w->change, m->rq->arrived);
    kb_admin_wait_begin(w, err, timeout_ms);
    return KW_OK;
}
