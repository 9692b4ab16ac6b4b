/* admin.c - the public administration calls that change things: topics, partitions, records, configurations.
 *
 * Each states how its request is made of the caller's items and how the answer goes back into them. Calls admin_call.c (sending, retrying).
 */
#include "admin_call.h"

struct items { /* what every call has */
    void *v;
    size_t stride, n;
    int32_t flag;
};

static bool items_valid(const void *v, size_t stride, size_t n, size_t size) {
    return n == 0 || (v && stride >= size);
}

static kc_err invalid(const char *what, kc_error **error) {
    kc_error_make(error, KC_INVALID, KC_NOT_PERSISTED, NULL, "%s: the items or their stride are not valid", what);
    return KC_INVALID;
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
    const struct items *it = a->call;
    struct kw_create_topics_response m;
    if (kw_decode(&kw_create_topics_response_desc, a->rq.version, body, arena, &m) != KW_OK) return KC_BAD_MESSAGE;
    for (int32_t r = 0; r < m.topics.n; r++)
        if (kc_admin_again(a, m.topics.v[r].error_code)) return ADMIN_AGAIN;
    kc_err first = KC_OK;
    for (size_t i = 0; i < it->n; i++) {
        kc_topic_new *t = KC_AT(kc_topic_new, it->v, it->stride, i);
        t->err = KC_BAD_MESSAGE; /* until the answer names it */
        for (int32_t r = 0; r < m.topics.n; r++) {
            if (!kw_str_eq(m.topics.v[r].name, kw_str_of(t->name))) continue;
            t->err = m.topics.v[r].error_code;
            kc_admin_message(t->message, sizeof t->message, m.topics.v[r].error_message, m.topics.v[r].error_code);
        }
        if (first == KC_OK && t->err != KC_OK) {
            first = t->err;
            kc_error_make(error, first, KC_NOT_PERSISTED, a->attempts, "create topic %s: %s", t->name, t->message);
        }
    }
    return first;
}

kc_err kc_admin_create_topics(kc_client *c, kc_topic_new *items, size_t stride, size_t n, int32_t validate_only, int64_t timeout_us,
                              kc_error **error) {
    static const struct kc_admin_kind kind = {"create topics", KW_API_CREATE_TOPICS, 1, KC_BROKER_CONTROLLER, create_encode, create_read};
    if (!items_valid(items, stride, n, sizeof *items)) return invalid(kind.what, error);
    for (size_t i = 0; i < n; i++) {
        kc_topic_new *t = KC_AT(kc_topic_new, items, stride, i);
        if (!t->name || t->partitions < 0 || t->replication_factor < 0 || t->replication_factor > INT16_MAX ||
            (t->config_count > 0 && !t->configs))
            return invalid(kind.what, error);
        t->err = KC_OK;
        t->message[0] = 0;
    }
    struct items call = {items, stride, n, validate_only};
    return kc_admin_run(c, &kind, &call, timeout_us, error);
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
        struct kw_str name = kw_str_of(KC_AT(kc_admin_item, it->v, it->stride, i)->name);
        if (version >= 6)
            m.topics.v[m.topics.n++].name = name;
        else
            m.topic_names.v[m.topic_names.n++] = name;
    }
    return kw_encode(&kw_delete_topics_request_desc, version, &m, out);
}

/* Puts one result into the item of that name. */
static void item_result(const struct items *it, struct kw_str name, int16_t code, struct kw_str text) {
    for (size_t i = 0; i < it->n; i++) {
        kc_admin_item *item = KC_AT(kc_admin_item, it->v, it->stride, i);
        if (!kw_str_eq(name, kw_str_of(item->name))) continue;
        item->err = code;
        kc_admin_message(item->message, sizeof item->message, text, code);
    }
}

static kc_err first_item(struct kc_admin *a, const char *verb, kc_error **error) {
    const struct items *it = a->call;
    for (size_t i = 0; i < it->n; i++) {
        kc_admin_item *item = KC_AT(kc_admin_item, it->v, it->stride, i);
        if (item->err == KC_OK) continue;
        kc_error_make(error, item->err, KC_NOT_PERSISTED, a->attempts, "%s %s: %s", verb, item->name, item->message);
        return item->err;
    }
    return KC_OK;
}

static kc_err delete_read(struct kc_admin *a, struct kw_in *body, struct kw_blk *blk, struct kw_arena *arena, kc_error **error) {
    (void)blk;
    struct kw_delete_topics_response m;
    if (kw_decode(&kw_delete_topics_response_desc, a->rq.version, body, arena, &m) != KW_OK) return KC_BAD_MESSAGE;
    for (int32_t r = 0; r < m.responses.n; r++)
        if (m.responses.v[r].error_code != KE_UNKNOWN_TOPIC_OR_PARTITION && kc_admin_again(a, m.responses.v[r].error_code))
            return ADMIN_AGAIN;
    for (int32_t r = 0; r < m.responses.n; r++)
        item_result(a->call, m.responses.v[r].name, m.responses.v[r].error_code, m.responses.v[r].error_message);
    return first_item(a, "delete topic", error);
}

static bool named(kc_admin_item *items, size_t stride, size_t n) {
    for (size_t i = 0; i < n; i++) {
        kc_admin_item *item = KC_AT(kc_admin_item, items, stride, i);
        if (!item->name) return false;
        item->err = KC_OK;
        item->message[0] = 0;
    }
    return true;
}

kc_err kc_admin_delete_topics(kc_client *c, kc_admin_item *items, size_t stride, size_t n, int64_t timeout_us, kc_error **error) {
    static const struct kc_admin_kind kind = {"delete topics", KW_API_DELETE_TOPICS, 1, KC_BROKER_CONTROLLER, delete_encode, delete_read};
    if (!items_valid(items, stride, n, sizeof *items) || !named(items, stride, n)) return invalid(kind.what, error);
    struct items call = {items, stride, n, 0};
    return kc_admin_run(c, &kind, &call, timeout_us, error);
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
    for (int32_t r = 0; r < m.results.n; r++)
        if (m.results.v[r].error_code != KE_UNKNOWN_TOPIC_OR_PARTITION && kc_admin_again(a, m.results.v[r].error_code)) return ADMIN_AGAIN;
    for (int32_t r = 0; r < m.results.n; r++)
        item_result(a->call, m.results.v[r].name, m.results.v[r].error_code, m.results.v[r].error_message);
    return first_item(a, "add partitions to topic", error);
}

kc_err kc_admin_create_partitions(kc_client *c, kc_admin_item *items, size_t stride, size_t n, int64_t timeout_us, kc_error **error) {
    static const struct kc_admin_kind kind = {
        "create partitions", KW_API_CREATE_PARTITIONS, 0, KC_BROKER_CONTROLLER, grow_encode, grow_read};
    if (!items_valid(items, stride, n, sizeof *items) || !named(items, stride, n)) return invalid(kind.what, error);
    struct items call = {items, stride, n, 0};
    return kc_admin_run(c, &kind, &call, timeout_us, error);
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
    const struct items *it = a->call;
    struct kw_incremental_alter_configs_response m;
    if (kw_decode(&kw_incremental_alter_configs_response_desc, a->rq.version, body, arena, &m) != KW_OK) return KC_BAD_MESSAGE;
    for (int32_t r = 0; r < m.responses.n; r++)
        if (m.responses.v[r].error_code != KE_UNKNOWN_TOPIC_OR_PARTITION && kc_admin_again(a, m.responses.v[r].error_code))
            return ADMIN_AGAIN;
    kc_err first = KC_OK;
    for (size_t i = 0; i < it->n; i++) {
        kc_config_alter *alter = KC_AT(kc_config_alter, it->v, it->stride, i);
        alter->err = KC_BAD_MESSAGE;
        for (int32_t r = 0; r < m.responses.n; r++) {
            if (m.responses.v[r].resource_type != alter->resource || !kw_str_eq(m.responses.v[r].resource_name, kw_str_of(alter->name)))
                continue;
            alter->err = m.responses.v[r].error_code;
            kc_admin_message(alter->message, sizeof alter->message, m.responses.v[r].error_message, m.responses.v[r].error_code);
        }
        if (first == KC_OK && alter->err != KC_OK) {
            first = alter->err;
            kc_error_make(error, first, KC_NOT_PERSISTED, a->attempts, "alter configs of %s: %s", alter->name, alter->message);
        }
    }
    return first;
}

kc_err kc_admin_alter_configs(kc_client *c, kc_config_alter *items, size_t stride, size_t n, int64_t timeout_us, kc_error **error) {
    static const struct kc_admin_kind kind = {"alter configs", KW_API_INCREMENTAL_ALTER_CONFIGS, 0, KC_BROKER_CONTROLLER, alter_encode,
                                              alter_read};
    if (!items_valid(items, stride, n, sizeof *items)) return invalid(kind.what, error);
    for (size_t i = 0; i < n; i++) {
        kc_config_alter *alter = KC_AT(kc_config_alter, items, stride, i);
        if (!alter->name || (alter->pair_count > 0 && !alter->pairs)) return invalid(kind.what, error);
        alter->err = KC_OK;
        alter->message[0] = 0;
    }
    struct items call = {items, stride, n, 0};
    return kc_admin_run(c, &kind, &call, timeout_us, error);
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
    if (!items_valid(parts, stride, n, sizeof *parts)) return invalid(kind.what, error);
    for (size_t i = 0; i < n; i++) {
        kc_topic_partition *tp = KC_AT(kc_topic_partition, parts, stride, i);
        if (!kc_client_topic_name(c, tp->topic) || tp->partition < 0 || tp->offset < -1) return invalid(kind.what, error);
        tp->err = KC_OK;
    }
    struct delete_records call = {.items = {parts, stride, n, 0}};
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
