/* admin.c - the public administration calls that change things: topics, partitions, records, configurations.
 *
 * Each states how its request is made of the items and how the answer goes back into them; a call is an operation (_start), or that and a
 * wait. Calls admin_items.c (items and their results), admin_call.c (sending, retrying).
 */
#include "admin_items.h"

/* ---- Create topics ---- */

static kw_err make_configs(struct kw_arena *arena, const kc_topic_new *t, struct kw_create_topics_request_creatable_topic *e) {
    e->configs.v = kw_arena_calloc(arena, t->config_count + 1, sizeof *e->configs.v);
    if (!e->configs.v) return KW_ENOMEM;
    for (size_t i = 0; i < t->config_count; i++)
        e->configs.v[e->configs.n++] = (struct kw_create_topics_request_creatable_topic_config){.name = kw_str_of(t->configs[i].name),
                                                                                                .value = kw_str_of(t->configs[i].value)};
    return KW_OK;
}

/* Then both numbers are said by the assignments alone. */
static kw_err make_assignments(struct kw_arena *arena, const kc_topic_new *t, struct kw_create_topics_request_creatable_topic *e) {
    if (!t->replicas) return KW_OK;
    e->assignments.v = kw_arena_calloc(arena, (size_t)t->partitions, sizeof *e->assignments.v);
    if (!e->assignments.v) return KW_ENOMEM;
    for (; e->assignments.n < t->partitions; e->assignments.n++) {
        struct kw_create_topics_request_creatable_replica_assignment *p = &e->assignments.v[e->assignments.n];
        p->partition_index = e->assignments.n;
        p->broker_ids.v = (int32_t *)(uintptr_t)&t->replicas[e->assignments.n * t->replication_factor];
        p->broker_ids.n = t->replication_factor;
    }
    e->num_partitions = -1;
    e->replication_factor = -1;
    return KW_OK;
}

static kw_err create_encode(struct kc_admin *a, int16_t version, struct kw_arena *arena, struct kw_out *out) {
    const struct items *it = a->call;
    if (a->api == KW_API_METADATA) return kc_items_verify_encode(a, version, arena, out);
    struct kw_create_topics_request m;
    kw_msg_init(&kw_create_topics_request_desc, &m);
    m.timeout_ms = kc_admin_time_left_ms(a);
    m.validate_only = it->flag != 0;
    m.topics.v = kw_arena_calloc(arena, it->n + 1, sizeof *m.topics.v);
    if (!m.topics.v) return KW_ENOMEM;
    for (size_t i = 0; i < it->n; i++) {
        const kc_topic_new *t = kc_items_open(it, i);
        if (!t) continue;
        struct kw_create_topics_request_creatable_topic *e = &m.topics.v[m.topics.n++];
        bool defaults = version >= 4; /* KIP-464: before, a broker has no defaults of its own to fall back on */
        e->name = kw_str_of(t->name);
        e->num_partitions = t->partitions > 0 ? t->partitions : defaults ? -1 : 1;
        e->replication_factor = (int16_t)(t->replication_factor > 0 ? t->replication_factor : defaults ? -1 : 1);
        kw_err err = make_configs(arena, t, e);
        if (err == KW_OK) err = make_assignments(arena, t, e);
        if (err != KW_OK) return err;
    }
    return kw_encode(&kw_create_topics_request_desc, version, &m, out);
}

/* Whether the topic that is there may be the one that an earlier try made. */
static int32_t is_created(const void *item, const struct kw_metadata_response_topic *t) {
    const kc_topic_new *want = item;
    int32_t replicas = t->partitions.v[0].replica_nodes.n;
    return (want->partitions == 0 || want->partitions == t->partitions.n) &&
           (want->replication_factor == 0 || want->replication_factor == replicas);
}

static kc_err create_read(struct kc_admin *a, struct kw_in *body, struct kw_arena *arena, kc_error **error) {
    if (a->api == KW_API_METADATA) return kc_items_verify_read(a, body, arena, error, is_created);
    struct kw_create_topics_response m;
    kc_err err = kc_admin_decode(a, &kw_create_topics_response_desc, body, arena, &m, &m.throttle_time_ms);
    if (err != KC_OK) return err;
    struct result *r = kw_arena_calloc(arena, (size_t)KW_MAX(m.topics.n, 0) + 1, sizeof *r);
    if (!r) return KC_NO_MEMORY;
    for (int32_t i = 0; i < m.topics.n; i++)
        r[i] = (struct result){.name = m.topics.v[i].name, .text = m.topics.v[i].error_message, .code = m.topics.v[i].error_code};
    return kc_items_take(a, r, (size_t)KW_MAX(m.topics.n, 0), error);
}

static bool create_valid(const void *item) {
    const kc_topic_new *t = item;
    if (t->partitions < 0 || t->replication_factor < 0 || t->replication_factor > INT16_MAX || (t->config_count > 0 && !t->configs)) return false;
    return !t->replicas || (t->partitions > 0 && t->replication_factor > 0);
}

static bool create_copy(struct items *it, void *item) {
    kc_topic_new *t = item;
    if (t->replicas && !(t->replicas = kw_arena_dup(&it->arena, t->replicas, (size_t)t->partitions * (size_t)t->replication_factor * sizeof *t->replicas)))
        return false;
    return kc_items_dup_pairs(it, &t->configs, t->config_count);
}

static const struct kc_admin_kind create_kind = {"create topics", KW_API_CREATE_TOPICS, 1, KC_BROKER_CONTROLLER, create_encode, create_read,
                                                 kc_items_unsure, NULL, kc_items_free};
static const struct shape create_shape = SHAPE(kc_topic_new, "create topic", -1, false, KE_TOPIC_ALREADY_EXISTS, true, create_valid, create_copy);
/* Nothing is changed, so nothing can have been done by an earlier try. */
static const struct shape validate_shape = SHAPE(kc_topic_new, "create topic", -1, false, KE_NONE, false, create_valid, create_copy);

kc_err kc_admin_create_topics(kc_client *c, kc_topic_new *items, size_t stride, size_t n, int32_t validate_only, int64_t timeout_us,
                              kc_error **error) {
    return kc_items_call(c, &create_kind, validate_only ? &validate_shape : &create_shape, validate_only, items, stride, n, timeout_us, error);
}

kc_err kc_admin_create_topics_start(kc_client *c, const kc_topic_new *items, size_t stride, size_t n, int32_t validate_only,
                                    int64_t timeout_us, uint64_t opaque, kc_op **op, kc_error **error) {
    return kc_items_start(c, &create_kind, validate_only ? &validate_shape : &create_shape, validate_only, items, stride, n, timeout_us, opaque, op,
                          error);
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
        const kc_admin_item *item = kc_items_open(it, i);
        if (!item) continue;
        struct kw_str name = kw_str_of(item->name);
        if (version >= 6)
            m.topics.v[m.topics.n++].name = name;
        else
            m.topic_names.v[m.topic_names.n++] = name;
    }
    return kw_encode(&kw_delete_topics_request_desc, version, &m, out);
}

static kc_err delete_read(struct kc_admin *a, struct kw_in *body, struct kw_arena *arena, kc_error **error) {
    struct kw_delete_topics_response m;
    kc_err err = kc_admin_decode(a, &kw_delete_topics_response_desc, body, arena, &m, &m.throttle_time_ms);
    if (err != KC_OK) return err;
    struct result *r = kw_arena_calloc(arena, (size_t)KW_MAX(m.responses.n, 0) + 1, sizeof *r);
    if (!r) return KC_NO_MEMORY;
    for (int32_t i = 0; i < m.responses.n; i++)
        r[i] = (struct result){.name = m.responses.v[i].name, .text = m.responses.v[i].error_message, .code = m.responses.v[i].error_code};
    return kc_items_take(a, r, (size_t)KW_MAX(m.responses.n, 0), error);
}

static const struct kc_admin_kind delete_kind = {"delete topics", KW_API_DELETE_TOPICS, 1, KC_BROKER_CONTROLLER, delete_encode, delete_read,
                                                 kc_items_unsure, NULL, kc_items_free};
static const struct shape delete_shape = SHAPE(kc_admin_item, "delete topic", -1, true, KE_UNKNOWN_TOPIC_OR_PARTITION, false, NULL, NULL);

kc_err kc_admin_delete_topics(kc_client *c, kc_admin_item *items, size_t stride, size_t n, int64_t timeout_us, kc_error **error) {
    return kc_items_call(c, &delete_kind, &delete_shape, 0, items, stride, n, timeout_us, error);
}

kc_err kc_admin_delete_topics_start(kc_client *c, const kc_admin_item *items, size_t stride, size_t n, int64_t timeout_us, uint64_t opaque,
                                    kc_op **op, kc_error **error) {
    return kc_items_start(c, &delete_kind, &delete_shape, 0, items, stride, n, timeout_us, opaque, op, error);
}

/* ---- Create partitions ---- */

static kw_err grow_encode(struct kc_admin *a, int16_t version, struct kw_arena *arena, struct kw_out *out) {
    const struct items *it = a->call;
    if (a->api == KW_API_METADATA) return kc_items_verify_encode(a, version, arena, out);
    struct kw_create_partitions_request m;
    kw_msg_init(&kw_create_partitions_request_desc, &m);
    m.timeout_ms = kc_admin_time_left_ms(a);
    m.topics.v = kw_arena_calloc(arena, it->n + 1, sizeof *m.topics.v);
    if (!m.topics.v) return KW_ENOMEM;
    for (size_t i = 0; i < it->n; i++) {
        const kc_admin_item *item = kc_items_open(it, i);
        if (!item) continue;
        struct kw_create_partitions_request_create_partitions_topic *e = &m.topics.v[m.topics.n++];
        e->name = kw_str_of(item->name);
        e->count = item->count;
        e->assignments.n = -1;
    }
    return kw_encode(&kw_create_partitions_request_desc, version, &m, out);
}

/* A broker that has not heard of it yet shows fewer. */
static int32_t has_grown(const void *item, const struct kw_metadata_response_topic *t) {
    int32_t want = ((const kc_admin_item *)item)->count;
    return t->partitions.n == want ? 1 : t->partitions.n > want ? 0 : -1;
}

static kc_err grow_read(struct kc_admin *a, struct kw_in *body, struct kw_arena *arena, kc_error **error) {
    if (a->api == KW_API_METADATA) return kc_items_verify_read(a, body, arena, error, has_grown);
    struct kw_create_partitions_response m;
    kc_err err = kc_admin_decode(a, &kw_create_partitions_response_desc, body, arena, &m, &m.throttle_time_ms);
    if (err != KC_OK) return err;
    struct result *r = kw_arena_calloc(arena, (size_t)KW_MAX(m.results.n, 0) + 1, sizeof *r);
    if (!r) return KC_NO_MEMORY;
    for (int32_t i = 0; i < m.results.n; i++)
        r[i] = (struct result){.name = m.results.v[i].name, .text = m.results.v[i].error_message, .code = m.results.v[i].error_code};
    return kc_items_take(a, r, (size_t)KW_MAX(m.results.n, 0), error);
}

static const struct kc_admin_kind grow_kind = {"create partitions", KW_API_CREATE_PARTITIONS, 0, KC_BROKER_CONTROLLER, grow_encode, grow_read,
                                               kc_items_unsure, NULL, kc_items_free};
static const struct shape grow_shape = SHAPE(kc_admin_item, "add partitions to topic", -1, true, KE_INVALID_PARTITIONS, true, NULL, NULL);

kc_err kc_admin_create_partitions(kc_client *c, kc_admin_item *items, size_t stride, size_t n, int64_t timeout_us, kc_error **error) {
    return kc_items_call(c, &grow_kind, &grow_shape, 0, items, stride, n, timeout_us, error);
}

kc_err kc_admin_create_partitions_start(kc_client *c, const kc_admin_item *items, size_t stride, size_t n, int64_t timeout_us,
                                        uint64_t opaque, kc_op **op, kc_error **error) {
    return kc_items_start(c, &grow_kind, &grow_shape, 0, items, stride, n, timeout_us, opaque, op, error);
}

/* ---- Alter configs ---- */

static kw_err alter_encode(struct kc_admin *a, int16_t version, struct kw_arena *arena, struct kw_out *out) {
    const struct items *it = a->call;
    struct kw_incremental_alter_configs_request m;
    kw_msg_init(&kw_incremental_alter_configs_request_desc, &m);
    m.resources.v = kw_arena_calloc(arena, it->n + 1, sizeof *m.resources.v);
    if (!m.resources.v) return KW_ENOMEM;
    for (size_t i = 0; i < it->n; i++) {
        const kc_config_alter *alter = kc_items_open(it, i);
        if (!alter) continue;
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

static kc_err alter_read(struct kc_admin *a, struct kw_in *body, struct kw_arena *arena, kc_error **error) {
    struct kw_incremental_alter_configs_response m;
    kc_err err = kc_admin_decode(a, &kw_incremental_alter_configs_response_desc, body, arena, &m, &m.throttle_time_ms);
    if (err != KC_OK) return err;
    struct result *r = kw_arena_calloc(arena, (size_t)KW_MAX(m.responses.n, 0) + 1, sizeof *r);
    if (!r) return KC_NO_MEMORY;
    for (int32_t i = 0; i < m.responses.n; i++)
        r[i] = (struct result){.resource = m.responses.v[i].resource_type,
                               .name = m.responses.v[i].resource_name,
                               .text = m.responses.v[i].error_message,
                               .code = m.responses.v[i].error_code};
    return kc_items_take(a, r, (size_t)KW_MAX(m.responses.n, 0), error);
}

static bool alter_valid(const void *item) {
    const kc_config_alter *alter = item;
    if (alter->pair_count > 0 && !alter->pairs) return false;
    for (size_t k = 0; k < alter->pair_count; k++)
        if (!alter->pairs[k].name) return false;
    return true;
}

static bool alter_copy(struct items *it, void *item) {
    kc_config_alter *alter = item;
    return kc_items_dup_pairs(it, &alter->pairs, alter->pair_count);
}

static const struct kc_admin_kind alter_kind = {"alter configs", KW_API_INCREMENTAL_ALTER_CONFIGS, 0, KC_BROKER_CONTROLLER, alter_encode,
                                                alter_read, kc_items_unsure, NULL, kc_items_free};
static const struct shape alter_shape =
    SHAPE(kc_config_alter, "alter configs of", offsetof(kc_config_alter, resource), true, KE_NONE, false, alter_valid, alter_copy);

kc_err kc_admin_alter_configs(kc_client *c, kc_config_alter *items, size_t stride, size_t n, int64_t timeout_us, kc_error **error) {
    return kc_items_call(c, &alter_kind, &alter_shape, 0, items, stride, n, timeout_us, error);
}

kc_err kc_admin_alter_configs_start(kc_client *c, const kc_config_alter *items, size_t stride, size_t n, int64_t timeout_us,
                                    uint64_t opaque, kc_op **op, kc_error **error) {
    return kc_items_start(c, &alter_kind, &alter_shape, 0, items, stride, n, timeout_us, opaque, op, error);
}
