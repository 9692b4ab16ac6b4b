/* describe_configs.c - DescribeConfigs v0-4: what is in effect for topics and brokers, from where, and what it means.
 *
 * v1 has sources and synonyms (KIP-226), v3 types and documentation (KIP-569). Values come from quorum/effective.h, texts from the table.
 * Of a broker, names without effect here are shown only where someone has set them.
 */
#include <stdio.h>

#include "admin.h"

enum { TOPIC = 2, BROKER = 4, BROKER_LOGGER = 8, CLIENT_METRICS = 16, GROUP = 32 };
enum { SOURCE_LOGGER = 6 };

typedef struct kw_describe_configs_response_describe_configs_resource_result entry;
typedef struct kw_describe_configs_response_describe_configs_synonym synonym;
typedef struct kw_describe_configs_response_describe_configs_result result;
typedef struct kw_describe_configs_request_describe_configs_resource resource;

struct describe {
    struct kb_request *rq;
    struct kb_parts *p;
    struct kw_describe_configs_request req;
    char self[12];
};

static int8_t type_code(const struct kb_config_def *d) {
    switch (d->type) {
    case KB_C_BOOL:
        return 1;
    case KB_C_INT:
        return 3;
    case KB_C_SHORT:
        return 4;
    case KB_C_LONG:
        return 5;
    case KB_C_DOUBLE:
        return 6;
    case KB_C_LIST:
        return 7;
    case KB_C_CLASS:
        return 8;
    case KB_C_PASSWORD:
        return 9;
    default:
        return 2; /* strings, also those with a choice of values */
    }
}

static bool wanted(const resource *r, const char *name) {
    if (r->configuration_keys.n < 0) return true;
    for (int32_t i = 0; i < r->configuration_keys.n; i++)
        if (kw_str_eq(r->configuration_keys.v[i], kw_str_of(name))) return true;
    return false;
}

/* ---- Synonyms: every level at which the value could be set, best first ---- */

#define SYNONYMS_MAX 24

struct synonyms {
    synonym v[SYNONYMS_MAX];
    int32_t n;
    bool hidden; /* a secret's values are not told */
};

static void note(struct synonyms *s, const char *name, const char *value, int8_t source) {
    if (!value || s->n == SYNONYMS_MAX) return;
    s->v[s->n++] = (synonym){.name = kw_str_of(name), .value = s->hidden ? kw_str_null() : kw_str_of(value), .source = source};
}

static void note_broker(struct describe *x, struct synonyms *s, const struct kb_config_def *d) {
    if (d->scope & KB_C_DYNAMIC) {
        note(s, d->name, kb_image_config_get(x->p->image, BROKER, kw_str_of(x->self), d->name), KB_SOURCE_DYNAMIC_BROKER);
        note(s, d->name, kb_image_config_get(x->p->image, BROKER, kw_str_of(""), d->name), KB_SOURCE_DYNAMIC_DEFAULT);
    }
    if (kb_config_is_set(x->p->config, d->name)) note(s, d->name, kb_config_get(x->p->config, d->name), KB_SOURCE_STATIC);
    note(s, d->name, d->def, KB_SOURCE_DEFAULT);
}

static void note_topic(struct describe *x, struct synonyms *s, struct kw_str topic, const struct kb_config_def *d) {
    struct kb_config_synonym syn;
    note(s, d->name, kb_image_config_get(x->p->image, TOPIC, topic, d->name), KB_SOURCE_TOPIC);
    for (size_t i = 0; kb_config_synonym_at(d, i, &syn); i++) note_broker(x, s, syn.def);
    if (s->n == 0 || s->v[s->n - 1].source != KB_SOURCE_DEFAULT) note(s, d->name, d->def, KB_SOURCE_DEFAULT);
}

static kw_err add_synonyms(struct describe *x, const resource *r, const struct kb_config_def *d, entry *out) {
    struct synonyms s;
    if (!x->req.include_synonyms) return KW_OK;
    s.n = 0;
    s.hidden = out->is_sensitive;
    if (r->resource_type == TOPIC)
        note_topic(x, &s, r->resource_name, d);
    else
        note_broker(x, &s, d);
    out->synonyms.n = s.n;
    out->synonyms.v = kw_arena_dup(&x->rq->arena, s.v, (size_t)s.n * sizeof(s.v[0]));
    return out->synonyms.v || s.n == 0 ? KW_OK : KW_ENOMEM;
}

/* ---- Entries ---- */

static kw_err add_entry(struct describe *x, const resource *r, result *res, const struct kb_config_def *d, const char *value,
                        int8_t source) {
    entry *out = &res->configs.v[res->configs.n++];
    bool sensitive = d->scope & KB_C_SENSITIVE;
    *out = (entry){
        .name = kw_str_of(d->name),
        .value = sensitive ? kw_str_null() : kw_str_of(value),
        .read_only = r->resource_type == BROKER && !(d->scope & KB_C_DYNAMIC),
        .is_default = x->rq->head.version == 0 && source == KB_SOURCE_DEFAULT, /* later versions have the source */
        .config_source = source,
        .is_sensitive = sensitive,
        .config_type = type_code(d),
        .documentation = x->req.include_documentation ? kw_str_of(d->doc) : kw_str_null(),
    };
    return add_synonyms(x, r, d, out);
}

static kw_err describe_topic(struct describe *x, const resource *r, result *res) {
    for (size_t i = 0; i < kb_config_def_count; i++) {
        const struct kb_config_def *d = &kb_config_defs[i];
        if (!(d->scope & KB_C_TOPIC) || !wanted(r, d->name)) continue;
        struct kb_effective *e = kw_arena_alloc(&x->rq->arena, sizeof(*e)); /* a converted value lives in it */
        if (!e) return KW_ENOMEM;
        kb_effective_topic(x->p->image, x->p->config, r->resource_name, d, e);
        kw_err err = add_entry(x, r, res, d, e->value, (int8_t)e->source);
        if (err) return err;
    }
    return KW_OK;
}

static kw_err describe_broker(struct describe *x, const resource *r, result *res) {
    bool defaults = r->resource_name.len <= 0; /* only what is set for all brokers at run time */
    for (size_t i = 0; i < kb_config_def_count; i++) {
        const struct kb_config_def *d = &kb_config_defs[i];
        struct kb_effective e;
        if (!(d->scope & KB_C_BROKER) || !wanted(r, d->name)) continue;
        if (defaults) {
            e.value = kb_image_config_get(x->p->image, BROKER, kw_str_of(""), d->name);
            e.source = KB_SOURCE_DYNAMIC_DEFAULT;
            if (!e.value) continue;
        } else {
            kb_effective_broker(x->p->image, x->p->config, d, &e);
            if ((d->scope & KB_C_IGNORED) && e.source == KB_SOURCE_DEFAULT) continue;
        }
        kw_err err = add_entry(x, r, res, d, e.value, (int8_t)e.source);
        if (err) return err;
    }
    return KW_OK;
}

/* The node's one logger. */
static void describe_logger(struct describe *x, const resource *r, result *res) {
    static const char *const levels[] = {"DEBUG", "INFO", "WARN", "ERROR"};
    if (!wanted(r, "root")) return;
    res->configs.v[res->configs.n++] = (entry){
        .name = kw_str_of("root"),
        .value = kw_str_of(levels[x->p->logger->level]),
        .read_only = true,
        .config_source = SOURCE_LOGGER,
        .config_type = 2,
        .documentation = x->req.include_documentation ? kw_str_of("The least severe lines that the node's log shows.") : kw_str_null(),
    };
}

static bool is_self(const struct describe *x, struct kw_str name) {
    return kw_str_eq(name, kw_str_of(x->self));
}

/* false: refused, the result says why. */
static bool resource_ok(const struct describe *x, const resource *r, result *res) {
    const char *text = NULL;
    int16_t code = KE_INVALID_REQUEST;
    switch (r->resource_type) {
    case TOPIC:
        if (kb_image_topic(x->p->image, r->resource_name)) return true;
        code = kb_topic_name_problem(r->resource_name) ? KE_INVALID_TOPIC_EXCEPTION : KE_UNKNOWN_TOPIC_OR_PARTITION;
        text = kb_topic_name_problem(r->resource_name);
        if (!text) text = "there is no such topic";
        break;
    case BROKER:
        if (r->resource_name.len <= 0 || is_self(x, r->resource_name)) return true;
        text = "this broker can be asked for itself, or with an empty name for the default of all";
        break;
    case BROKER_LOGGER:
        if (is_self(x, r->resource_name)) return true;
        text = "this broker can be asked for its own log levels only";
        break;
    case CLIENT_METRICS:
        text = "there are no client metrics subscriptions here";
        break;
    case GROUP:
        text = "there are no group configurations here";
        break;
    default:
        text = "the resource type is unknown: topics are 2, brokers 4, broker loggers 8";
    }
    res->error_code = code;
    res->error_message = kw_str_of(text);
    return false;
}

/* At most so many entries come out. */
static size_t room_for(const resource *r) {
    size_t n = 1;
    int scope = r->resource_type == TOPIC ? KB_C_TOPIC : KB_C_BROKER;
    for (size_t i = 0; i < kb_config_def_count; i++) n += (kb_config_defs[i].scope & scope) && wanted(r, kb_config_defs[i].name);
    return n;
}

static kw_err describe_one(struct describe *x, const resource *r, result *res) {
    *res = (result){.resource_type = r->resource_type, .resource_name = r->resource_name, .error_message = kw_str_null()};
    if (!resource_ok(x, r, res)) return KW_OK;
    res->configs.v = kw_arena_alloc(&x->rq->arena, room_for(r) * sizeof(*res->configs.v));
    if (!res->configs.v) return KW_ENOMEM;
    if (r->resource_type == TOPIC) return describe_topic(x, r, res);
    if (r->resource_type == BROKER) return describe_broker(x, r, res);
    describe_logger(x, r, res);
    return KW_OK;
}

#define RESOURCES_MAX 10000

void kb_api_describe_configs(struct kb_request *rq) {
    struct describe x = {.rq = rq, .p = kb_node_parts(rq->node)};
    struct kw_describe_configs_response res;
    if (kb_request_decode(rq, &x.req)) return;
    if (x.req.resources.n > RESOURCES_MAX) {
        kb_request_close(rq, "DescribeConfigs asks for too many resources at once");
        return;
    }
    kw_msg_init(&kw_describe_configs_response_desc, &res);
    snprintf(x.self, sizeof(x.self), "%d", (int)kb_admin_self(x.p));
    res.results.v = kw_arena_alloc(&rq->arena, ((size_t)KW_MAX(x.req.resources.n, 0) + 1) * sizeof(*res.results.v));
    kw_err err = res.results.v ? KW_OK : KW_ENOMEM;
    for (int32_t i = 0; !err && i < x.req.resources.n; i++) err = describe_one(&x, &x.req.resources.v[i], &res.results.v[res.results.n++]);
    if (err)
        kb_admin_no_memory(rq);
    else
        kb_request_reply(rq, &res);
}
