/* delete_topics.c - DeleteTopics v0-6. v3 knows TOPIC_DELETION_DISABLED, v5 texts, v6 ids (KIP-516). The rules are the controller's. */
#include "admin.h"

struct delete {
    struct kw_delete_topics_request req;
    struct kb_topic_ref *topics;
    int32_t *indexes;          /* of the ones given to the controller, in the request */
    struct kb_result *refused; /* per topic of the request: found wrong here */
    int32_t asked, count;
};

/* The i-th topic of the request, in any version's form. */
static struct kw_delete_topics_request_delete_topic_state topic_at(const struct kb_request *rq, const struct delete *d, int32_t i) {
    if (rq->head.version >= 6) return d->req.topics.v[i];
    return (struct kw_delete_topics_request_delete_topic_state){.name = d->req.topic_names.v[i]};
}

static int16_t code_for(const struct kb_request *rq, int16_t code) {
    return code == KE_TOPIC_DELETION_DISABLED && rq->head.version < 3 ? KE_INVALID_REQUEST : code;
}

static void answer(struct kb_admin_wait *w) {
    struct delete *d = w->items;
    struct kb_request *rq = w->rq;
    struct kw_delete_topics_response res;
    kw_msg_init(&kw_delete_topics_response_desc, &res);
    res.responses.v = kw_arena_calloc(&rq->arena, (size_t)d->asked + 1, sizeof(*res.responses.v));
    if (!res.responses.v) {
        kb_admin_no_memory(rq);
        return;
    }
    res.responses.n = d->asked;
    for (int32_t i = 0; i < d->asked; i++) {
        struct kw_delete_topics_request_delete_topic_state t = topic_at(rq, d, i);
        res.responses.v[i] = (struct kw_delete_topics_response_deletable_topic_result){
            .name = t.name,
            .topic_id = t.topic_id,
            .error_code = d->refused[i].code,
            .error_message = d->refused[i].code ? kw_str_of(d->refused[i].text) : kw_str_null()};
    }
    for (int32_t i = 0; i < d->count; i++) {
        struct kw_delete_topics_response_deletable_topic_result *out = &res.responses.v[d->indexes[i]];
        out->error_code = code_for(rq, kb_admin_code(w, &d->topics[i].result));
        out->error_message = kb_admin_text(w, &d->topics[i].result);
    }
    kb_request_reply(rq, &res);
}

static void take(struct kb_request *rq, struct delete *d, int32_t i) {
    struct kw_delete_topics_request_delete_topic_state t = topic_at(rq, d, i);
    bool has_id = !kw_uuid_is_zero(t.topic_id);
    if ((t.name.len >= 0) == has_id) {
        d->refused[i] = (struct kb_result){.code = KE_INVALID_REQUEST, .text = "give either the name or the id of a topic"};
        return;
    }
    d->topics[d->count] = (struct kb_topic_ref){.name = t.name, .id = t.topic_id};
    d->indexes[d->count++] = i;
}

void kb_api_delete_topics(struct kb_request *rq) {
    struct delete *d = kw_arena_calloc(&rq->arena, 1, sizeof(*d));
    if (!d) {
        kb_admin_no_memory(rq);
        return;
    }
    if (kb_request_decode(rq, &d->req)) return;
    d->asked = KW_MAX(rq->head.version >= 6 ? d->req.topics.n : d->req.topic_names.n, 0);
    d->topics = kw_arena_calloc(&rq->arena, (size_t)d->asked + 1, sizeof(*d->topics));
    d->indexes = kw_arena_calloc(&rq->arena, (size_t)d->asked + 1, sizeof(*d->indexes));
    d->refused = kw_arena_calloc(&rq->arena, (size_t)d->asked + 1, sizeof(*d->refused));
    struct kb_admin_wait *w = kb_admin_wait_new(rq, d, answer);
    if (!d->topics || !d->indexes || !d->refused || !w) {
        kb_admin_no_memory(rq);
        return;
    }
    for (int32_t i = 0; i < d->asked; i++) take(rq, d, i);
    kw_err err = kb_controller_delete_topics(kb_node_parts(rq->node)->controller, d->topics, d->count, &w->change, rq->arrived);
    kb_admin_wait_begin(w, err, d->req.timeout_ms);
}
