/* admin_cluster.c - the public administration calls that change a cluster of several nodes: elections, moves of partitions, brokers removed.
 *
 * Called by the application. Calls admin_items.c (items and their results), admin_call.c (sending, retrying). KIP-455, KIP-460.
 */
#include "admin_items.h"

#define ELECT_TYPE 1 /* of items.flag: enum kc_election */
#define ELECT_ALL 2  /* no items: all partitions; the first answer's become the items */

static bool is_valid(const void *v) {
    const kc_partition_item *item = v;
    return item->partition >= 0 && (item->replica_count == 0 || item->replicas) && item->replica_count <= INT16_MAX;
}

/* These say how things are; they do not pass by asking again. */
static bool is_final(int16_t code) {
    return code == KE_ELECTION_NOT_NEEDED || code == KE_PREFERRED_LEADER_NOT_AVAILABLE || code == KE_ELIGIBLE_LEADERS_NOT_AVAILABLE;
}

#define PARTITION_SHAPE(text, done, quiet, copier)                                                                                         \
    {                                                                                                                                      \
        .verb = (text), .size = sizeof(kc_partition_item), .name_at = offsetof(kc_partition_item, topic),                                 \
        .err_at = offsetof(kc_partition_item, err), .message_at = offsetof(kc_partition_item, message),                                   \
        .resource_at = offsetof(kc_partition_item, partition), .unknown_is_final = true, .done_code = (done), .partitioned = true,         \
        .quiet_code = (quiet), .final = is_final, .valid = is_valid, .copy = (copier)                                                      \
    }

/* ---- Elections ---- */

static kw_err elect_encode(struct kc_admin *a, int16_t version, struct kw_arena *arena, struct kw_out *out) {
    const struct items *it = a->call;
    struct kw_elect_leaders_request m;
    kw_msg_init(&kw_elect_leaders_request_desc, &m);
    m.election_type = (int8_t)(it->flag & ELECT_TYPE);
    m.timeout_ms = kc_admin_time_left_ms(a);
    m.topic_partitions.n = it->flag & ELECT_ALL ? -1 : 0;
    m.topic_partitions.v = kw_arena_calloc(arena, it->n + 1, sizeof *m.topic_partitions.v);
    int32_t *numbers = kw_arena_calloc(arena, it->n + 1, sizeof *numbers);
    if (!m.topic_partitions.v || !numbers) return KW_ENOMEM;
    struct kw_elect_leaders_request_topic_partitions *e = NULL; /* neighbours of one topic go together */
    for (size_t i = 0; i < it->n; i++) {
        const kc_partition_item *item = kc_items_open(it, i);
        if (!item) continue;
        if (!e || !kw_str_eq(e->topic, kw_str_of(item->topic))) {
            e = &m.topic_partitions.v[m.topic_partitions.n++];
            e->topic = kw_str_of(item->topic);
            e->partitions.v = numbers;
        }
        e->partitions.n++;
        *numbers++ = item->partition;
    }
    return kw_encode(&kw_elect_leaders_request_desc, version, &m, out);
}

/* No items were given: what the answer names is what there is. */
static kc_err items_of_answer(struct items *it, const struct result *r, size_t count) {
    kc_partition_item *v = kw_arena_calloc(&it->arena, count + 1, sizeof *v);
    struct item_mark *marks = kw_arena_calloc(&it->arena, count + 1, sizeof *marks);
    if (!v || !marks) return KC_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        const char *name = kc_admin_keep_str(&it->arena, r[i].name);
        if (!name) return KC_NO_MEMORY;
        v[i] = (kc_partition_item){.topic = name, .partition = r[i].resource};
    }
    it->v = v;
    it->marks = marks;
    it->n = count;
    it->flag &= ~ELECT_ALL; /* another try asks for those by name */
    return KC_OK;
}

static kc_err elect_read(struct kc_admin *a, struct kw_in *body, struct kw_arena *arena, kc_error **error) {
    struct items *it = a->call;
    struct kw_elect_leaders_response m;
    kc_err err = kc_admin_decode(a, &kw_elect_leaders_response_desc, body, arena, &m, &m.throttle_time_ms);
    if (err == KC_OK) err = kc_admin_whole(a, m.error_code, kw_str_null(), error);
    if (err != KC_OK) return err;
    size_t count = 0;
    for (int32_t t = 0; t < m.replica_election_results.n; t++) count += (size_t)KW_MAX(m.replica_election_results.v[t].partition_result.n, 0);
    struct result *r = kw_arena_calloc(arena, count + 1, sizeof *r), *to = r;
    if (!r) return KC_NO_MEMORY;
    for (int32_t t = 0; t < m.replica_election_results.n; t++) {
        const struct kw_elect_leaders_response_replica_election_result *e = &m.replica_election_results.v[t];
        for (int32_t i = 0; i < e->partition_result.n; i++)
            *to++ = (struct result){.resource = e->partition_result.v[i].partition_id,
                                    .name = e->topic,
                                    .text = e->partition_result.v[i].error_message,
                                    .code = e->partition_result.v[i].error_code};
    }
    if (it->flag & ELECT_ALL && (err = items_of_answer(it, r, count)) != KC_OK) return err;
    return kc_items_take(a, r, count, error);
}

static const struct kc_admin_kind elect_kind = {"elect leaders", KW_API_ELECT_LEADERS, 1, KC_BROKER_CONTROLLER, elect_encode, elect_read,
                                                kc_items_unsure, NULL, kc_items_free};
static const struct shape elect_shape = PARTITION_SHAPE("elect a leader of", KE_ELECTION_NOT_NEEDED, KE_ELECTION_NOT_NEEDED, NULL);

static bool is_election(int32_t election) {
    return election == KC_ELECT_PREFERRED || election == KC_ELECT_UNCLEAN;
}

kc_err kc_admin_elect_leaders(kc_client *c, int32_t election, kc_partition_item *items, size_t stride, size_t n, int64_t timeout_us,
                              kc_error **error) {
    if (!is_election(election)) return kc_admin_invalid(&elect_kind, error);
    return kc_items_call(c, &elect_kind, &elect_shape, election | (n == 0 ? ELECT_ALL : 0), items, stride, n, timeout_us, error);
}

kc_err kc_admin_elect_leaders_start(kc_client *c, int32_t election, const kc_partition_item *items, size_t stride, size_t n,
                                    int64_t timeout_us, uint64_t opaque, kc_op **op, kc_error **error) {
    if (!is_election(election)) return kc_admin_invalid(&elect_kind, error);
    return kc_items_start(c, &elect_kind, &elect_shape, election | (n == 0 ? ELECT_ALL : 0), items, stride, n, timeout_us, opaque, op, error);
}

/* ---- Moves ---- */

static kw_err move_encode(struct kc_admin *a, int16_t version, struct kw_arena *arena, struct kw_out *out) {
    const struct items *it = a->call;
    struct kw_alter_partition_reassignments_request m;
    kw_msg_init(&kw_alter_partition_reassignments_request_desc, &m);
    m.timeout_ms = kc_admin_time_left_ms(a);
    m.topics.v = kw_arena_calloc(arena, it->n + 1, sizeof *m.topics.v);
    struct kw_alter_partition_reassignments_request_reassignable_partition *parts = kw_arena_calloc(arena, it->n + 1, sizeof *parts);
    if (!m.topics.v || !parts) return KW_ENOMEM;
    struct kw_alter_partition_reassignments_request_reassignable_topic *e = NULL;
    for (size_t i = 0; i < it->n; i++) {
        const kc_partition_item *item = kc_items_open(it, i);
        if (!item) continue;
        if (!e || !kw_str_eq(e->name, kw_str_of(item->topic))) {
            e = &m.topics.v[m.topics.n++];
            e->name = kw_str_of(item->topic);
            e->partitions.v = parts;
        }
        e->partitions.n++;
        parts->partition_index = item->partition;
        parts->replicas.n = -1;
        if (item->replicas) { /* the codec only reads them */
            parts->replicas.n = (int32_t)item->replica_count;
            parts->replicas.v = (int32_t *)(uintptr_t)item->replicas;
        }
        parts++;
    }
    return kw_encode(&kw_alter_partition_reassignments_request_desc, version, &m, out);
}

static kc_err move_read(struct kc_admin *a, struct kw_in *body, struct kw_arena *arena, kc_error **error) {
    struct kw_alter_partition_reassignments_response m;
    kc_err err = kc_admin_decode(a, &kw_alter_partition_reassignments_response_desc, body, arena, &m, &m.throttle_time_ms);
    if (err == KC_OK) err = kc_admin_whole(a, m.error_code, m.error_message, error);
    if (err != KC_OK) return err;
    size_t count = 0;
    for (int32_t t = 0; t < m.responses.n; t++) count += (size_t)KW_MAX(m.responses.v[t].partitions.n, 0);
    struct result *r = kw_arena_calloc(arena, count + 1, sizeof *r), *to = r;
    if (!r) return KC_NO_MEMORY;
    for (int32_t t = 0; t < m.responses.n; t++)
        for (int32_t i = 0; i < m.responses.v[t].partitions.n; i++)
            *to++ = (struct result){.resource = m.responses.v[t].partitions.v[i].partition_index,
                                    .name = m.responses.v[t].name,
                                    .text = m.responses.v[t].partitions.v[i].error_message,
                                    .code = m.responses.v[t].partitions.v[i].error_code};
    return kc_items_take(a, r, count, error);
}

static bool move_copy(struct items *it, void *v) {
    kc_partition_item *item = v;
    if (!item->replicas) return true;
    const int32_t none = 0; /* an empty list is not the same as none: the broker is to refuse it, not to stop the move */
    item->replicas = item->replica_count > 0 ? kw_arena_dup(&it->arena, item->replicas, item->replica_count * sizeof *item->replicas)
                                             : kw_arena_dup(&it->arena, &none, sizeof none);
    return item->replicas != NULL;
}

static const struct kc_admin_kind move_kind = {"alter reassignments", KW_API_ALTER_PARTITION_REASSIGNMENTS, 0, KC_BROKER_CONTROLLER, move_encode,
                                               move_read, kc_items_unsure, NULL, kc_items_free};
/* A repeated move is the same move; a repeated stop finds none. */
static const struct shape move_shape = PARTITION_SHAPE("reassign", KE_NO_REASSIGNMENT_IN_PROGRESS, KE_NONE, move_copy);

kc_err kc_admin_alter_reassignments(kc_client *c, kc_partition_item *items, size_t stride, size_t n, int64_t timeout_us, kc_error **error) {
    return kc_items_call(c, &move_kind, &move_shape, 0, items, stride, n, timeout_us, error);
}

kc_err kc_admin_alter_reassignments_start(kc_client *c, const kc_partition_item *items, size_t stride, size_t n, int64_t timeout_us,
                                          uint64_t opaque, kc_op **op, kc_error **error) {
    return kc_items_start(c, &move_kind, &move_shape, 0, items, stride, n, timeout_us, opaque, op, error);
}

/* ---- Brokers ---- */

struct unregister {
    int32_t broker;
    bool unsure; /* an earlier try may have had its effect */
};

static kw_err unregister_encode(struct kc_admin *a, int16_t version, struct kw_arena *arena, struct kw_out *out) {
    struct kw_unregister_broker_request m;
    (void)arena;
    kw_msg_init(&kw_unregister_broker_request_desc, &m);
    m.broker_id = ((const struct unregister *)a->call)->broker;
    return kw_encode(&kw_unregister_broker_request_desc, version, &m, out);
}

static kc_err unregister_read(struct kc_admin *a, struct kw_in *body, struct kw_arena *arena, kc_error **error) {
    struct unregister *u = a->call;
    struct kw_unregister_broker_response m;
    kc_err err = kc_admin_decode(a, &kw_unregister_broker_response_desc, body, arena, &m, &m.throttle_time_ms);
    if (err != KC_OK) return err;
    if (m.error_code == KE_BROKER_ID_NOT_REGISTERED && u->unsure) return KC_OK;
    return kc_admin_whole(a, m.error_code, m.error_message, error);
}

static void unregister_unsure(struct kc_admin *a) {
    ((struct unregister *)a->call)->unsure = true;
}

static const struct kc_admin_kind unregister_kind = {
    "unregister the broker", KW_API_UNREGISTER_BROKER, 0, KC_BROKER_CONTROLLER, unregister_encode, unregister_read, unregister_unsure, NULL, kw_free};

static struct unregister *unregister_new(int32_t broker) {
    struct unregister *u = kw_calloc(1, sizeof *u);
    if (u) u->broker = broker;
    return u;
}

kc_err kc_admin_unregister_broker(kc_client *c, int32_t broker, int64_t timeout_us, kc_error **error) {
    kc_op *op = NULL;
    if (broker < 0) return kc_admin_invalid(&unregister_kind, error);
    kc_err err = kc_admin_run(c, &unregister_kind, unregister_new(broker), timeout_us, &op, error);
    kc_op_free(op);
    return err;
}

kc_err kc_admin_unregister_broker_start(kc_client *c, int32_t broker, int64_t timeout_us, uint64_t opaque, kc_op **op, kc_error **error) {
    kc_op *made = NULL;
    if (broker < 0 || !op) return kc_admin_invalid(&unregister_kind, error);
    kc_err err = kc_admin_make(c, &unregister_kind, unregister_new(broker), timeout_us, opaque, &made, error);
    return kc_admin_begin(err, made, op);
}
