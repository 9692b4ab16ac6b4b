/* incremental_alter_configs.c - IncrementalAlterConfigs v0-1: single entries set, deleted, added to lists or taken from them. KIP-339. */
#include "admin.h"

/* Neither request has a timeout: this is what clients wait by default. */
#define WAIT_MS 30000

struct incremental {
    struct kw_incremental_alter_configs_request req;
    struct kb_config_alter *alters;
};

static void answer(struct kb_admin_wait *w) {
    struct incremental *a = w->items;
    struct kb_request *rq = w->rq;
    struct kw_incremental_alter_configs_response res;
    kw_msg_init(&kw_incremental_alter_configs_response_desc, &res);
    res.responses.v = kw_arena_calloc(&rq->arena, (size_t)a->req.resources.n + 1, sizeof(*res.responses.v));
    if (!res.responses.v) {
        kb_admin_no_memory(rq);
        return;
    }
    for (int32_t i = 0; i < a->req.resources.n; i++) {
        const struct kb_config_alter *c = &a->alters[i];
        res.responses.v[res.responses.n++] =
            (struct kw_incremental_alter_configs_response_alter_configs_resource_response){.error_code = kb_admin_code(w, &c->result),
                                                                                           .error_message = kb_admin_text(w, &c->result),
                                                                                           .resource_type = c->type,
                                                                                           .resource_name = c->name};
    }
    kb_request_reply(rq, &res);
}

static kw_err copy(struct kb_request *rq, const struct kw_incremental_alter_configs_request_alter_configs_resource *r,
                   struct kb_config_alter *out) {
    struct kb_config_kv *v = kw_arena_calloc(&rq->arena, (size_t)KW_MAX(r->configs.n, 0) + 1, sizeof(*v));
    if (!v) return KW_ENOMEM;
    for (int32_t i = 0; i < r->configs.n; i++)
        v[i] = (struct kb_config_kv){.key = r->configs.v[i].name, .value = r->configs.v[i].value, .op = r->configs.v[i].config_operation};
    *out = (struct kb_config_alter){.type = r->resource_type, .name = r->resource_name, .kvs = v, .kv_count = KW_MAX(r->configs.n, 0)};
    return KW_OK;
}

void kb_api_incremental_alter_configs(struct kb_request *rq) {
    struct incremental *a = kw_arena_alloc(&rq->arena, sizeof(*a));
    if (!a) {
        kb_admin_no_memory(rq);
        return;
    }
    if (kb_request_decode(rq, &a->req)) return;
    int32_t n = a->req.resources.n = KW_MAX(a->req.resources.n, 0);
    a->alters = kw_arena_calloc(&rq->arena, (size_t)n + 1, sizeof(*a->alters));
    struct kb_admin_wait *w = kb_admin_wait_new(rq, a, answer);
    kw_err err = a->alters && w ? KW_OK : KW_ENOMEM;
    for (int32_t i = 0; !err && i < n; i++) err = copy(rq, &a->req.resources.v[i], &a->alters[i]);
    if (err) {
        kb_admin_no_memory(rq);
        return;
    }
    err = kb_controller_alter_configs(kb_node_parts(rq->node)->controller, a->alters, n, a->req.validate_only, &w->change, rq->arrived);
    kb_admin_wait_begin(w, err, WAIT_MS);
}
