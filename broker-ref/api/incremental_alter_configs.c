/* incremental_alter_configs.c - IncrementalAlterConfigs v0-1: single entries set, deleted, added to lists or taken from them. KIP-339.
 * Called by dispatch. Calls admin.
 */
#include "admin.h"

static kw_err answer(struct kb_request *rq, const struct kb_admin_wait *w, const struct kb_alter *a) {
    struct kw_incremental_alter_configs_response res;
    kw_msg_init(&kw_incremental_alter_configs_response_desc, &res);
    res.responses.v = kw_arena_calloc(&rq->arena, (size_t)a->count + 1, sizeof(*res.responses.v));
    if (!res.responses.v) return KW_ENOMEM;
    for (; res.responses.n < a->count; res.responses.n++) {
        const struct kb_config_alter *c = &a->alters[res.responses.n];
        struct kw_incremental_alter_configs_response_alter_configs_resource_response *out = &res.responses.v[res.responses.n];
        out->error_code = kb_admin_code(w, &c->result);
        out->error_message = kb_admin_text(w, &c->result);
        out->resource_type = c->type;
        out->resource_name = c->name;
    }
    kb_request_reply(rq, &res);
    return KW_OK;
}

void kb_api_incremental_alter_configs(struct kb_request *rq) {
    struct kw_incremental_alter_configs_request req;
    if (kb_request_decode(rq, &req)) return;
    struct kb_alter *a = kb_alter_new(rq, req.resources.n, answer);
    for (int32_t i = 0; a && i < a->count; i++) {
        const struct kw_incremental_alter_configs_request_alter_configs_resource *r = &req.resources.v[i];
        struct kb_config_kv *v = kb_alter_resource(rq, &a->alters[i], r->resource_type, r->resource_name, r->configs.n);
        for (int32_t k = 0; v && k < r->configs.n; k++)
            v[k] = (struct kb_config_kv){.key = r->configs.v[k].name, .value = r->configs.v[k].value, .op = r->configs.v[k].config_operation};
        if (!v) a = NULL;
    }
    if (a)
        kb_alter_run(rq, a, req.validate_only);
    else
        kb_admin_no_memory(rq);
}
