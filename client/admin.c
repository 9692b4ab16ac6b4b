/* admin.c - the public administration calls that change things: topics, partitions, records, configurations.
 *
 * Each states how its request is made of the caller's items and how the answer goes back into them. Calls admin_call.c (sending, retrying).
 */
#include "admin_call.h"

/* Where the caller's structs keep what all of them have. */
struct shape {
    const char *verb; /* "create topic" */
    size_t size, name_at, err_at, message_at;
    ptrdiff_t resource_at; /* -1: the item is a topic */
    bool unknown_is_final; /* UNKNOWN_TOPIC_OR_PARTITION is the answer, not a topic on its way */
};
#define SHAPE(type, verb, resource, unknown)                                                                                               \
    { verb, sizeof(type), offsetof(type, name), offsetof(type, err), offsetof(type, message), resource, unknown }

struct items { /* what every call has */
    void *v;
    size_t stride, n;
    const struct shape *shape;
    int32_t flag;
    bool *settled; /* has its result: not sent again when others are */
};
struct result { /* one of an answer */
    int32_t resource;
    struct kw_str name, text;
    int16_t code;
};

static uint8_t *item_at(const struct items *it, size_t i) {
    return (uint8_t *)it->v + it->stride * i;
}
static const char *item_name(const struct items *it, size_t i) {
    const char *name;
    memcpy(&name, item_at(it, i) + it->shape->name_at, sizeof name);
    return name;
}
static kc_err *item_err(const struct items *it, size_t i) {
    return (kc_err *)(void *)(item_at(it, i) + it->shape->err_at);
}
static char *item_message(const struct items *it, size_t i) {
    return (char *)item_at(it, i) + it->shape->message_at;
}
enum { MESSAGE_SIZE = sizeof(((kc_admin_item *)0)->message) };

static kc_err invalid(const char *what, kc_error **error) {
    kc_error_make(error, KC_INVALID, KC_NOT_PERSISTED, NULL, "%s: the items or their stride are not valid", what);
    return KC_INVALID;
}

static void item_settle(const struct items *it, size_t i, int16_t code, struct kw_str text) {
    it->settled[i] = true;
    *item_err(it, i) = code;
    kc_admin_message(item_message(it, i), MESSAGE_SIZE, text, code);
}

static const struct result *result_of(const struct items *it, size_t i, const struct result *r, size_t count) {
    int32_t resource = 0;
    if (it->shape->resource_at >= 0) memcpy(&resource, item_at(it, i) + it->shape->resource_at, sizeof resource);
    for (size_t k = 0; k < count; k++)
        if (r[k].resource == resource && kw_str_eq(r[k].name, kw_str_of(item_name(it, i)))) return &r[k];
    return NULL;
}

/* Puts an answer's results into the items. Those whose error passes are asked for again, they alone. */
static kc_err take_results(struct kc_admin *a, const struct result *r, size_t count, kc_error **error) {
    const struct items *it = a->call;
    bool again = false;
    for (size_t i = 0; i < it->n; i++) {
        if (it->settled[i]) continue;
        const struct result *own = result_of(it, i, r, count);
        if (!own) {
            it->settled[i] = true;
            *item_err(it, i) = KC_BAD_MESSAGE;
            kc_admin_message(item_message(it, i), MESSAGE_SIZE, kw_str_of("the answer does not name it"), KE_NONE);
        } else if (!(it->shape->unknown_is_final && own->code == KE_UNKNOWN_TOPIC_OR_PARTITION) && kc_admin_again(a, own->code)) {
            again = true;
        } else {
            item_settle(it, i, own->code, own->text);
        }
    }
    if (again) return ADMIN_AGAIN;
    for (size_t i = 0; i < it->n; i++) {
        kc_err err = *item_err(it, i);
        if (err == KC_OK) continue;
        kc_error_make(error, err, KC_NOT_PERSISTED, a->attempts, "%s %s: %s", it->shape->verb, item_name(it, i), item_message(it, i));
        return err;
    }
    return KC_OK;
}

/* Runs the call; what has no result of its own when it ends gets the call's. */
static kc_err run(kc_client *c, const struct kc_admin_kind *kind, struct items *it, int64_t timeout_us, kc_error **error) {
    for (size_t i = 0; i < it->n; i++) {
        *item_err(it, i) = KC_OK;
        item_message(it, i)[0] = 0;
    }
    it->settled = kw_calloc(it->n + 1, sizeof *it->settled);
    if (!it->settled) {
        kc_error_make(error, KC_NO_MEMORY, KC_NOT_PERSISTED, NULL, "%s: out of memory", kind->what);
        return KC_NO_MEMORY;
    }
    kc_err err = kc_admin_run(c, kind, it, timeout_us, error);
    for (size_t i = 0; i < it->n && err != KC_OK; i++) {
        if (it->settled[i]) continue;
        *item_err(it, i) = err;
        kc_admin_message(item_message(it, i), MESSAGE_SIZE, kw_str_of(kc_err_text(err)), KE_NONE);
    }
    kw_free(it->settled);
    return err;
}

static bool items_valid(const struct items *it) {
    if (it->n > 0 && (!it->v || it->stride < it->shape->size)) return false;
    for (size_t i = 0; i < it->n; i++)
        if (!item_name(it, i)) return false;
    return true;
}

/* ---- Create topics ---- */

static kw_err make_configs(struct kw_arena *arena, const kc_topic_new *t, struct kw_create_topics_request_creatable_topic *e) {
    e->configs.v = kw_arena_calloc(arena, t->config_count + 1, sizeof *e->configs.v);
    if (!e->configs.v) return KW_ENOMEM;
    for (size_t i = 0; i < t->config_count; i++)
        e->configs.v[e->configs.n++] = (struct kw_create_topics_request_creatable_topic_config){.name = kw_str_of(t->configs[i].name),
                                                                                                .value = kw_str_of(t->configs[i].value)};
    return KW_OK;
}

static kw_err create_encode(struct kc_admin *a, int16_t version, struct kw_arena *arena, struct kw_out *out) {
    const struct items *it = a->call;
    struct kw_create_topics_request m;
    kw_msg_init(&kw_create_topics_request_desc, &m);
    m.timeout_ms = kc_admin_time_left_ms(a);
    m.validate_only = it->flag != 0;
    m.topics.v = kw_arena_calloc(arena, it->n + 1, sizeof *m.topics.v);
    if (!m.topics.v) return KW_ENOMEM;
    for (size_t i = 0; i < it->n; i++) {
        const kc_topic_new *t = KC_AT(kc_topic_new, it->v, it->stride, i);
        if (it->settled[i]) continue;
        struct kw_create_topics_request_creatable_topic *e = &m.topics.v[m.topics.n++];
        bool defaults = version >= 4; /* KIP-464: before, a broker has no defaults of its own to fall back on */
        e->name = kw_str_of(t->name);
        e->num_partitions = t->partitions > 0 ? t->partitions : defaults ? -1 : 1;
        e->replication_factor = (int16_t)(t->replication_factor > 0 ? t->replication_factor : defaults ? -1 : 1);
        kw_err err = make_configs(arena, t, e);
        if (err != KW_OK) return err;
    }
    return kw_encode(&kw_create_topics_request_desc, version, &m, out);
}

static kc_err create_read(struct kc_admin *a, struct kw_in *body, struct kw_blk *blk, struct kw_arena *arena, kc_error **error) {
    (void)blk;
    struct kw_create_topics_response m;
    if (kw_decode(&kw_create_topics_response_desc, a->rq.version, body, arena, &m) != KW_OK) return KC_BAD_MESSAGE;
    kc_core_broker_throttle(a->op.client->core, a->rq.sent_to, m.throttle_time_ms);
    struct result *r = kw_arena_calloc(arena, (size_t)KW_MAX(m.topics.n, 0) + 1, sizeof *r);
    if (!r) return KC_NO_MEMORY;
    for (int32_t i = 0; i < m.topics.n; i++)
        r[i] = (struct result){.name = m.topics.v[i].name, .text = m.topics.v[i].error_message, .code = m.topics.v[i].error_code};
    return take_results(a, r, (size_t)KW_MAX(m.topics.n, 0), error);
}

kc_err kc_admin_create_topics(kc_client *c, kc_topic_new *items, size_t stride, size_t n, int32_t validate_only, int64_t timeout_us,
                              kc_error **error) {
    static const struct kc_admin_kind kind = {"create topics", KW_API_CREATE_TOPICS, 1, KC_BROKER_CONTROLLER, create_encode, create_read};
    static const struct shape shape = SHAPE(kc_topic_new, "create topic", -1, false);
    struct items call = {items, stride, n, &shape, validate_only, NULL};
    if (!items_valid(&call)) return invalid(kind.what, error);
    for (size_t i = 0; i < n; i++) {
        const kc_topic_new *t = KC_AT(kc_topic_new, items, stride, i);
        if (t->partitions < 0 || t->replication_factor < 0 || t->replication_factor > INT16_MAX || (t->config_count > 0 && !t->configs))
            return invalid(kind.what, error);
    }
    return run(c, &kind, &call, timeout_us, error);
}

/* ---- Delete topics ---- */

static kw_err delete_encode(struct kc_admin *a, int16_t version, struct kw_arena *arena, struct kw_out *out) {
    const struct items *it = a->call;
    struct kw_delete_topics_request m;
    kw_msg_init(&kw_delete_topics_request_desc, &m);
    m.timeout_ms = kc_admin_time_left_ms(a);
    m.topics.v = kw_arena_calloc(arena, it->n + 1, sizeof *m.topics.v);
    m.topic_names.v = kw_arena_calloc(arena, it->n + 1, sizeof *m.topic_names.v);
    if (!m.topics.v || !m.topic_names.v) return KW_ENOMEM;
    for (size_t i = 0; i < it->n; i++) {
        if (it->settled[i]) continue;
        struct kw_str name = kw_str_of(item_name(it, i));
        if (version >= 6)
            m.topics.v[m.topics.n++].name = name;
        else
            m.topic_names.v[m.topic_names.n++] = name;
    }
    return kw_encode(&kw_delete_topics_request_desc, version, &m, out);
}

static kc_err delete_read(struct kc_admin *a, struct kw_in *body, struct kw_blk *blk, struct kw_arena *arena, kc_error **error) {
    (void)blk;
    struct kw_delete_topics_response m;
    if (kw_decode(&kw_delete_topics_response_desc, a->rq.version, body, arena, &m) != KW_OK) return KC_BAD_MESSAGE;
    kc_core_broker_throttle(a->op.client->core, a->rq.sent_to, m.throttle_time_ms);
    struct result *r = kw_arena_calloc(arena, (size_t)KW_MAX(m.responses.n, 0) + 1, sizeof *r);
    if (!r) return KC_NO_MEMORY;
    for (int32_t i = 0; i < m.responses.n; i++)
        r[i] = (struct result){.name = m.responses.v[i].name, .text = m.responses.v[i].error_message, .code = m.responses.v[i].error_code};
    return take_results(a, r, (size_t)KW_MAX(m.responses.n, 0), error);
}

kc_err kc_admin_delete_topics(kc_client *c, kc_admin_item *items, size_t stride, size_t n, int64_t timeout_us, kc_error **error) {
    static const struct kc_admin_kind kind = {"delete topics", KW_API_DELETE_TOPICS, 1, KC_BROKER_CONTROLLER, delete_encode, delete_read};
    static const struct shape shape = SHAPE(kc_admin_item, "delete topic", -1, true);
    struct items call = {items, stride, n, &shape, 0, NULL};
    if (!items_valid(&call)) return invalid(kind.what, error);
    return run(c, &kind, &call, timeout_us, error);
}

/* ---- Create partitions ---- */

static kw_err grow_encode(struct kc_admin *a, int16_t version, struct kw_arena *arena, struct kw_out *out) {
    const struct items *it = a->call;
    struct kw_create_partitions_request m;
    kw_msg_init(&kw_create_partitions_request_desc, &m);
    m.timeout_ms = kc_admin_time_left_ms(a);
    m.topics.v = kw_arena_calloc(arena, it->n + 1, sizeof *m.topics.v);
    if (!m.topics.v) return KW_ENOMEM;
    for (size_t i = 0; i < it->n; i++) {
        const kc_admin_item *item = KC_AT(kc_admin_item, it->v, it->stride, i);
        if (it->settled[i]) continue;
        struct kw_create_partitions_request_create_partitions_topic *e = &m.topics.v[m.topics.n++];
        e->name = kw_str_of(item->name);
        e->count = item->count;
        e->assignments.n = -1;
    }
    return kw_encode(&kw_create_partitions_request_desc, version, &m, out);
}

static kc_err grow_read(struct kc_admin *a, struct kw_in *body, struct kw_blk *blk, struct kw_arena *arena, kc_error **error) {
    (void)blk;
    struct kw_create_partitions_response m;
    if (kw_decode(&kw_create_partitions_response_desc, a->rq.version, body, arena, &m) != KW_OK) return KC_BAD_MESSAGE;
    kc_core_broker_throttle(a->op.client->core, a->rq.sent_to, m.throttle_time_ms);
    struct result *r = kw_arena_calloc(arena, (size_t)KW_MAX(m.results.n, 0) + 1, sizeof *r);
    if (!r) return KC_NO_MEMORY;
    for (int32_t i = 0; i < m.results.n; i++)
        r[i] = (struct result){.name = m.results.v[i].name, .text = m.results.v[i].error_message, .code = m.results.v[i].error_code};
    return take_results(a, r, (size_t)KW_MAX(m.results.n, 0), error);
}

kc_err kc_admin_create_partitions(kc_client *c, kc_admin_item *items, size_t stride, size_t n, int64_t timeout_us, kc_error **error) {
    static const struct kc_admin_kind kind = {
        "create partitions", KW_API_CREATE_PARTITIONS, 0, KC_BROKER_CONTROLLER, grow_encode, grow_read};
    static const struct shape shape = SHAPE(kc_admin_item, "add partitions to topic", -1, true);
    struct items call = {items, stride, n, &shape, 0, NULL};
    if (!items_valid(&call)) return invalid(kind.what, error);
    return run(c, &kind, &call, timeout_us, error);
}

/* ---- Alter configs ---- */

static kw_err alter_encode(struct kc_admin *a, int16_t version, struct kw_arena *arena, struct kw_out *out) {
    const struct items *it = a->call;
    struct kw_incremental_alter_configs_request m;
    kw_msg_init(&kw_incremental_alter_configs_request_desc, &m);
    m.resources.v = kw_arena_calloc(arena, it->n + 1, sizeof *m.resources.v);
    if (!m.resources.v) return KW_ENOMEM;
    for (size_t i = 0; i < it->n; i++) {
        const kc_config_alter *alter = KC_AT(kc_config_alter, it->v, it->stride, i);
        if (it->settled[i]) continue;
        struct kw_incremental_alter_configs_request_alter_configs_resource *e = &m.resources.v[m.resources.n++];
        e->resource_type = (int8_t)alter->resource;
        e->resource_name = kw_str_of(alter->name);
        e->configs.v = kw_arena_calloc(arena, alter->pair_count + 1, sizeof *e->configs.v);
        if (!e->configs.v) return KW_ENOMEM;
        for (size_t k = 0; k < alter->pair_count; k++) {
            const kc_config_pair *p = &alter->pairs[k];
            e->configs.v[e->configs.n++] = (struct kw_incremental_alter_configs_request_alterable_config){
                .name = kw_str_of(p->name), .config_operation = (int8_t)(p->value ? p->op : 1), .value = kw_str_of(p->value)};
        }
    }
    return kw_encode(&kw_incremental_alter_configs_request_desc, version, &m, out);
}

static kc_err alter_read(struct kc_admin *a, struct kw_in *body, struct kw_blk *blk, struct kw_arena *arena, kc_error **error) {
    (void)blk;
    struct kw_incremental_alter_configs_response m;
    if (kw_decode(&kw_incremental_alter_configs_response_desc, a->rq.version, body, arena, &m) != KW_OK) return KC_BAD_MESSAGE;
    kc_core_broker_throttle(a->op.client->core, a->rq.sent_to, m.throttle_time_ms);
    struct result *r = kw_arena_calloc(arena, (size_t)KW_MAX(m.responses.n, 0) + 1, sizeof *r);
    if (!r) return KC_NO_MEMORY;
    for (int32_t i = 0; i < m.responses.n; i++)
        r[i] = (struct result){.resource = m.responses.v[i].resource_type,
                               .name = m.responses.v[i].resource_name,
                               .text = m.responses.v[i].error_message,
                               .code = m.responses.v[i].error_code};
    return take_results(a, r, (size_t)KW_MAX(m.responses.n, 0), error);
}

kc_err kc_admin_alter_configs(kc_client *c, kc_config_alter *items, size_t stride, size_t n, int64_t timeout_us, kc_error **error) {
    static const struct kc_admin_kind kind = {"alter configs", KW_API_INCREMENTAL_ALTER_CONFIGS, 0, KC_BROKER_CONTROLLER, alter_encode,
                                              alter_read};
    static const struct shape shape = SHAPE(kc_config_alter, "alter configs of", offsetof(kc_config_alter, resource), true);
    struct items call = {items, stride, n, &shape, 0, NULL};
    if (!items_valid(&call)) return invalid(kind.what, error);
    for (size_t i = 0; i < n; i++) {
        const kc_config_alter *alter = KC_AT(kc_config_alter, items, stride, i);
        if (alter->pair_count > 0 && !alter->pairs) return invalid(kind.what, error);
    }
    return run(c, &kind, &call, timeout_us, error);
}

/* ---- Delete records: metadata first, then a request a leader ---- */

struct delete_records {
    struct items items;
    bool *settled;
    int32_t *leaders;
};

static const kc_topic_partition *record_item(const struct delete_records *d, size_t i) {
    return KC_AT(kc_topic_partition, d->items.v, d->items.stride, i);
}

static struct kw_str record_topic(struct kc_admin *a, const kc_topic_partition *tp) {
    return kw_str_of(kc_client_topic_name(a->op.client, tp->topic));
}

static kw_err leaders_encode(struct kc_admin *a, int16_t version, struct kw_arena *arena, struct kw_out *out) {
    const struct delete_records *d = a->call;
    struct kw_metadata_request m;
    kw_msg_init(&kw_metadata_request_desc, &m);
    m.allow_auto_topic_creation = false;
    m.topics.v = kw_arena_calloc(arena, d->items.n + 1, sizeof *m.topics.v);
    if (!m.topics.v) return KW_ENOMEM;
    for (size_t i = 0; i < d->items.n; i++)
        if (i == 0 || record_item(d, i)->topic != record_item(d, i - 1)->topic)
            m.topics.v[m.topics.n++].name = record_topic(a, record_item(d, i));
    return kw_encode(&kw_metadata_request_desc, version, &m, out);
}

static void leaders_note(struct kc_admin *a, const struct kw_metadata_response_topic *t) {
    struct delete_records *d = a->call;
    for (size_t i = 0; i < d->items.n; i++) {
        kc_topic_partition *tp = KC_AT(kc_topic_partition, d->items.v, d->items.stride, i);
        if (d->settled[i] || !kw_str_eq(t->name, record_topic(a, tp))) continue;
        d->leaders[i] = -1;
        int16_t code = t->error_code != KE_NONE ? t->error_code : KE_UNKNOWN_TOPIC_OR_PARTITION;
        for (int32_t p = 0; t->error_code == KE_NONE && p < t->partitions.n; p++) {
            if (t->partitions.v[p].partition_index != tp->partition) continue;
            d->leaders[i] = t->partitions.v[p].leader_id;
            code = d->leaders[i] < 0 ? KE_LEADER_NOT_AVAILABLE : KE_NONE;
        }
        if (code == KE_NONE || (code != KE_UNKNOWN_TOPIC_OR_PARTITION && kc_admin_again(a, code))) continue;
        tp->err = code;
        d->settled[i] = true;
    }
}

static kw_err records_encode(struct kc_admin *a, int16_t version, struct kw_arena *arena, struct kw_out *out) {
    const struct delete_records *d = a->call;
    if (a->api == KW_API_METADATA) return leaders_encode(a, version, arena, out);
    struct kw_delete_records_request m;
    kw_msg_init(&kw_delete_records_request_desc, &m);
    m.timeout_ms = kc_admin_time_left_ms(a);
    m.topics.v = kw_arena_calloc(arena, d->items.n + 1, sizeof *m.topics.v);
    struct kw_delete_records_request_delete_records_partition *parts = kw_arena_calloc(arena, d->items.n + 1, sizeof *parts);
    if (!m.topics.v || !parts) return KW_ENOMEM;
    for (size_t i = 0; i < d->items.n; i++) {
        if (d->settled[i] || d->leaders[i] != a->broker) continue;
        parts[i].partition_index = record_item(d, i)->partition;
        parts[i].offset = record_item(d, i)->offset;
        struct kw_delete_records_request_delete_records_topic *e = &m.topics.v[m.topics.n++];
        e->name = record_topic(a, record_item(d, i));
        e->partitions.v = &parts[i];
        e->partitions.n = 1;
    }
    return kw_encode(&kw_delete_records_request_desc, version, &m, out);
}

static void records_result(struct kc_admin *a, struct kw_str topic,
                           const struct kw_delete_records_response_delete_records_partition_result *r) {
    struct delete_records *d = a->call;
    for (size_t i = 0; i < d->items.n; i++) {
        kc_topic_partition *tp = KC_AT(kc_topic_partition, d->items.v, d->items.stride, i);
        if (d->settled[i] || tp->partition != r->partition_index || !kw_str_eq(topic, record_topic(a, tp))) continue;
        d->leaders[i] = -1; /* asked for again, should it be tried again */
        if (kc_admin_again(a, r->error_code)) continue;
        d->settled[i] = true;
        tp->err = r->error_code;
        if (tp->err == KC_OK) tp->offset = r->low_watermark;
    }
}

static kc_err records_read(struct kc_admin *a, struct kw_in *body, struct kw_blk *blk, struct kw_arena *arena, kc_error **error) {
    (void)blk;
    struct delete_records *d = a->call;
    if (a->api == KW_API_METADATA) {
        struct kw_metadata_response m;
        if (kw_decode(&kw_metadata_response_desc, a->rq.version, body, arena, &m) != KW_OK) return KC_BAD_MESSAGE;
        for (int32_t t = 0; t < m.topics.n; t++) leaders_note(a, &m.topics.v[t]);
    } else {
        struct kw_delete_records_response m;
        if (kw_decode(&kw_delete_records_response_desc, a->rq.version, body, arena, &m) != KW_OK) return KC_BAD_MESSAGE;
        for (int32_t t = 0; t < m.topics.n; t++)
            for (int32_t i = 0; i < m.topics.v[t].partitions.n; i++) records_result(a, m.topics.v[t].name, &m.topics.v[t].partitions.v[i]);
    }
    bool left = false;
    for (size_t i = 0; i < d->items.n; i++) {
        if (d->settled[i]) continue;
        left = true;
        if (d->leaders[i] < 0) continue;
        a->api = KW_API_DELETE_RECORDS;
        a->version_min = 0;
        a->broker = d->leaders[i];
        return ADMIN_NEXT;
    }
    if (left) { /* no leader known for the rest: ask again who leads */
        a->api = KW_API_METADATA;
        a->version_min = 1;
        a->broker = KC_BROKER_ANY;
        return ADMIN_AGAIN;
    }
    for (size_t i = 0; i < d->items.n; i++) {
        const kc_topic_partition *tp = record_item(d, i);
        if (tp->err == KC_OK) continue;
        kc_error_make(error, tp->err, KC_NOT_PERSISTED, a->attempts, "delete records of %s [%d]: %s",
                      kc_client_topic_name(a->op.client, tp->topic), (int)tp->partition, kc_err_text(tp->err));
        return tp->err;
    }
    return KC_OK;
}

kc_err kc_admin_delete_records(kc_client *c, kc_topic_partition *parts, size_t stride, size_t n, int64_t timeout_us, kc_error **error) {
    static const struct kc_admin_kind kind = {"delete records", KW_API_METADATA, 1, KC_BROKER_ANY, records_encode, records_read};
    if (n > 0 && (!parts || stride < sizeof *parts)) return invalid(kind.what, error);
    for (size_t i = 0; i < n; i++) {
        kc_topic_partition *tp = KC_AT(kc_topic_partition, parts, stride, i);
        if (!kc_client_topic_name(c, tp->topic) || tp->partition < 0 || tp->offset < -1) return invalid(kind.what, error);
        tp->err = KC_OK;
    }
    struct delete_records call = {.items = {.v = parts, .stride = stride, .n = n}};
    call.settled = kw_calloc(n + 1, sizeof *call.settled);
    call.leaders = kw_calloc(n + 1, sizeof *call.leaders);
    for (size_t i = 0; call.leaders && i < n; i++) call.leaders[i] = -1;
    kc_err err = KC_NO_MEMORY;
    if (call.settled && call.leaders)
        err = kc_admin_run(c, &kind, &call, timeout_us, error);
    else
        kc_error_make(error, err, KC_NOT_PERSISTED, NULL, "%s: out of memory", kind.what);
    kw_free(call.settled);
    kw_free(call.leaders);
    return err;
}
