/* admin_describe.c - the public administration calls that look: configurations; the cluster, its topics, a topic's offsets.
 *
 * An answer's strings and arrays live in one arena that goes with what is handed out. Calls admin_call.c.
 */
#include <stdlib.h>

#include "admin_call.h"

static const char *keep(struct kw_arena *a, struct kw_str s) { /* a NUL-terminated copy; NULL for null or no memory */
    return s.len < 0 ? NULL : kc_admin_keep_str(a, s);
}

/* ---- Configs ---- */

struct kc_config_list {
    struct kw_arena arena;
    kc_config_item *v;
    size_t count;
};
struct describe_configs {
    int8_t resource;
    char *name;
    kc_config_list *list; /* NULL: taken */
};

static void configs_free(void *call) {
    struct describe_configs *d = call;
    if (!d) return;
    kc_config_list_free(d->list);
    kw_free(d->name);
    kw_free(d);
}

static kw_err configs_encode(struct kc_admin *a, int16_t version, struct kw_arena *arena, struct kw_out *out) {
    const struct describe_configs *d = a->call;
    struct kw_describe_configs_request m;
    kw_msg_init(&kw_describe_configs_request_desc, &m);
    m.include_documentation = version >= 3;
    m.resources.v = kw_arena_calloc(arena, 1, sizeof *m.resources.v);
    if (!m.resources.v) return KW_ENOMEM;
    m.resources.n = 1;
    m.resources.v[0].resource_type = d->resource;
    m.resources.v[0].resource_name = kw_str_of(d->name);
    m.resources.v[0].configuration_keys.n = -1;
    return kw_encode(&kw_describe_configs_request_desc, version, &m, out);
}

static const char *source_name(const struct kw_describe_configs_response_describe_configs_resource_result *c, int16_t version) {
    if (version == 0) return c->is_default ? "default" : "topic";
    switch (c->config_source) {
    case 1:
        return "topic";
    case 2:
        return "broker";
    case 3:
        return "broker default";
    case 4:
        return "static";
    default:
        return "default";
    }
}

static kc_err configs_read(struct kc_admin *a, struct kw_in *body, struct kw_arena *arena, kc_error **error) {
    struct describe_configs *d = a->call;
    struct kw_describe_configs_response m;
    kc_err err = kc_admin_decode(a, &kw_describe_configs_response_desc, body, arena, &m, &m.throttle_time_ms);
    if (err != KC_OK) return err;
    if (m.results.n != 1) return KC_BAD_MESSAGE;
    const struct kw_describe_configs_response_describe_configs_result *r = &m.results.v[0];
    if (r->error_code != KE_NONE) {
        char text[256];
        if (r->error_code != KE_UNKNOWN_TOPIC_OR_PARTITION && kc_admin_again(a, r->error_code)) return ADMIN_AGAIN;
        kc_admin_message(text, sizeof text, r->error_message, r->error_code);
        kc_error_make(error, r->error_code, KC_NOT_PERSISTED, a->attempts, "describe configs of %s: %s", d->name, text);
        return r->error_code;
    }
    kc_config_list *l = d->list;
    l->v = kw_arena_calloc(&l->arena, (size_t)r->configs.n + 1, sizeof *l->v);
    if (!l->v) return KC_NO_MEMORY;
    for (int32_t i = 0; i < r->configs.n; i++) {
        const char *name = keep(&l->arena, r->configs.v[i].name), *doc = keep(&l->arena, r->configs.v[i].documentation);
        if (!name) return KC_NO_MEMORY;
        l->v[l->count++] = (kc_config_item){.name = name,
                                            .value = keep(&l->arena, r->configs.v[i].value),
                                            .source = source_name(&r->configs.v[i], a->rq.version),
                                            .read_only = r->configs.v[i].read_only,
                                            .sensitive = r->configs.v[i].is_sensitive,
                                            .doc = doc ? doc : ""};
    }
    return KC_OK;
}

static const struct kc_admin_kind configs_kind = {"describe configs", KW_API_DESCRIBE_CONFIGS, 0, KC_BROKER_ANY, configs_encode,
                                                  configs_read, NULL, NULL, configs_free};

static struct describe_configs *configs_new(int32_t resource, const char *name) {
    struct describe_configs *d = kw_calloc(1, sizeof *d);
    if (!d) return NULL;
    d->resource = (int8_t)resource;
    d->name = kw_memdup(name, strlen(name) + 1);
    d->list = kw_calloc(1, sizeof *d->list);
    if (d->list) kw_arena_init(&d->list->arena, 0);
    if (d->name && d->list) return d;
    configs_free(d);
    return NULL;
}

/* Only the broker itself knows its static configs. */
static bool broker_number(const char *name, int32_t *id) {
    *id = 0;
    for (; *name >= '0' && *name <= '9' && *id < 100000000; name++) *id = *id * 10 + (*name - '0');
    return *name == 0;
}

static kc_err configs_make(kc_client *c, int32_t resource, const char *name, int64_t timeout_us, uint64_t opaque, kc_op **op,
                           kc_error **error) {
    int32_t broker = KC_BROKER_ANY;
    bool of_broker = resource == KC_RESOURCE_BROKER && name && *name;
    if (!name || resource < 0 || resource > INT8_MAX || (of_broker && !broker_number(name, &broker)))
        return kc_admin_invalid(&configs_kind, error);
    kc_err err = kc_admin_make(c, &configs_kind, configs_new(resource, name), timeout_us, opaque, op, error);
    if (err == KC_OK) kc_admin_of(*op)->broker = broker;
    return err;
}

kc_config_list *kc_op_result_configs(kc_op *op) {
    struct describe_configs *d = kc_admin_done_call(op, &configs_kind);
    kc_config_list *l = d && op->err == KC_OK ? d->list : NULL;
    if (l) d->list = NULL;
    return l;
}

kc_err kc_admin_describe_configs(kc_client *c, int32_t resource, const char *name, int64_t timeout_us, kc_config_list **out,
                                 kc_error **error) {
    kc_op *op = NULL;
    if (!out) return kc_admin_invalid(&configs_kind, error);
    kc_err err = configs_make(c, resource, name, timeout_us, 0, &op, error);
    if (err != KC_OK) return err;
    err = kc_op_run(op, KC_FOREVER, error);
    if (err == KC_OK) *out = kc_op_result_configs(op);
    kc_op_free(op);
    return err;
}

kc_err kc_admin_describe_configs_start(kc_client *c, int32_t resource, const char *name, int64_t timeout_us, uint64_t opaque, kc_op **op,
                                       kc_error **error) {
    kc_op *made = NULL;
    if (!op) return kc_admin_invalid(&configs_kind, error);
    kc_err err = configs_make(c, resource, name, timeout_us, opaque, &made, error);
    return kc_admin_begin(err, made, op);
}

size_t kc_config_list_count(const kc_config_list *l) {
    return l ? l->count : 0;
}

kc_err kc_config_list_get(const kc_config_list *l, size_t index, kc_config_item *out) {
    if (!l || !out || index >= l->count) return KC_INVALID;
    *out = l->v[index];
    return KC_OK;
}

void kc_config_list_free(kc_config_list *l) {
    if (!l) return;
    kw_arena_deinit(&l->arena);
    kw_free(l);
}

/* ---- Cluster and topics ---- */

struct topic {
    kc_topic_info info;
    kc_partition_info *partitions; /* info.partition_count of them */
};
struct kc_cluster_info {
    struct kw_arena arena;
    const char *id;
    int32_t controller;
    kc_broker_info *brokers;
    size_t broker_count;
    struct topic *topics;
    size_t topic_count;
};
/* One topic: metadata, then three ListOffsets a leader (log start, high watermark, log end), `asking` says which. A leader that is none, or is silent,
 * leads back to metadata: what is open is asked of the one that leads then. */
enum asking { ASK_START, ASK_HIGH_WATERMARK, ASK_END, ASK_DONE };
#define END_OF_LOG_REPLICA (-2) /* ListOffsets as a debugging replica: "latest" is then the log end, not the high watermark */
struct describe {
    char *topic;           /* NULL: all, without offsets */
    kc_cluster_info *info; /* NULL: taken */
    enum asking asking;
    bool *asked;     /* per partition, of the present question */
    bool *away;      /* per partition: its leader cannot be reached */
    int32_t *silent; /* per partition: the leader that took too long; -1: none did */
    int32_t looks;   /* at metadata again, because of leaders */
    bool brokers_known; /* DescribeCluster was asked */
};
#define DESCRIBE_STEP_US 3000000
#define LOOKS_MAX 4 /* then partitions are shown without offsets */

static void describe_free(void *call) {
    struct describe *d = call;
    if (!d) return;
    kc_cluster_info_free(d->info);
    kw_free(d->topic);
    kw_free(d->asked);
    kw_free(d->away);
    kw_free(d->silent);
    kw_free(d);
}

static kw_err metadata_encode(struct kc_admin *a, int16_t version, struct kw_arena *arena, struct kw_out *out) {
    const struct describe *d = a->call;
    struct kw_metadata_request m;
    kw_msg_init(&kw_metadata_request_desc, &m);
    m.allow_auto_topic_creation = version < 4; /* old brokers do as they are configured */
    m.topics.n = d->topic || version == 0 ? 0 : -1;
    m.topics.v = kw_arena_calloc(arena, 1, sizeof *m.topics.v);
    if (!m.topics.v) return KW_ENOMEM;
    if (d->topic) m.topics.v[m.topics.n++].name = kw_str_of(d->topic);
    return kw_encode(&kw_metadata_request_desc, version, &m, out);
}

static kw_err offsets_encode(struct kc_admin *a, int16_t version, struct kw_arena *arena, struct kw_out *out) {
    struct describe *d = a->call;
    const struct topic *t = &d->info->topics[0];
    struct kw_list_offsets_request m;
    kw_msg_init(&kw_list_offsets_request_desc, &m);
    m.replica_id = d->asking == ASK_END ? END_OF_LOG_REPLICA : -1;
    m.timeout_ms = kc_admin_time_left_ms(a);
    m.topics.v = kw_arena_calloc(arena, 1, sizeof *m.topics.v);
    if (!m.topics.v) return KW_ENOMEM;
    m.topics.n = 1;
    m.topics.v[0].name = kw_str_of(d->topic);
    m.topics.v[0].partitions.v = kw_arena_calloc(arena, t->info.partition_count + 1, sizeof *m.topics.v[0].partitions.v);
    if (!m.topics.v[0].partitions.v) return KW_ENOMEM;
    for (size_t i = 0; i < t->info.partition_count; i++) {
        if (t->partitions[i].leader != a->broker) continue;
        m.topics.v[0].partitions.v[m.topics.v[0].partitions.n++] =
            (struct kw_list_offsets_request_list_offsets_partition){.partition_index = t->partitions[i].partition,
                                                                    .current_leader_epoch = -1,
                                                                    .timestamp = d->asking == ASK_START ? -2 : -1,
                                                                    .max_num_offsets = 1};
        d->asked[i] = true;
    }
    return kw_encode(&kw_list_offsets_request_desc, version, &m, out);
}

static kw_err brokers_encode(int16_t version, struct kw_out *out) {
    struct kw_describe_cluster_request m;
    kw_msg_init(&kw_describe_cluster_request_desc, &m);
    m.include_fenced_brokers = version >= 2;
    return kw_encode(&kw_describe_cluster_request_desc, version, &m, out);
}

static kw_err describe_encode(struct kc_admin *a, int16_t version, struct kw_arena *arena, struct kw_out *out) {
    return a->api == KW_API_METADATA           ? metadata_encode(a, version, arena, out)
           : a->api == KW_API_DESCRIBE_CLUSTER ? brokers_encode(version, out)
                                               : offsets_encode(a, version, arena, out);
}

static int by_number(const void *a, const void *b) {
    int32_t x = ((const kc_partition_info *)a)->partition, y = ((const kc_partition_info *)b)->partition;
    return x < y ? -1 : x > y;
}

static kc_err keep_topic(struct kw_arena *a, const struct kw_metadata_response_topic *m, struct topic *t) {
    bool ok = true;
    size_t n = m->partitions.n > 0 ? (size_t)m->partitions.n : 0;
    const char *name = keep(a, m->name);
    t->info = (kc_topic_info){.name = name, .internal = m->is_internal, .partition_count = n, .err = m->error_code};
    memcpy(t->info.id, m->topic_id.b, 16);
    t->partitions = kw_arena_calloc(a, n + 1, sizeof *t->partitions);
    if (!name || !t->partitions) return KC_NO_MEMORY;
    for (size_t i = 0; i < n; i++) {
        const struct kw_metadata_response_partition *p = &m->partitions.v[i];
        kc_partition_info *o = &t->partitions[i];
        *o = (kc_partition_info){.partition = p->partition_index,
                                 .leader = p->leader_id,
                                 .leader_epoch = p->leader_epoch,
                                 .log_start = -1,
                                 .high_watermark = -1,
                                 .log_end = -1};
        o->err = p->error_code == KE_REPLICA_NOT_AVAILABLE ? KC_OK : p->error_code;
        o->replicas = kc_admin_keep_ids(a, p->replica_nodes.v, p->replica_nodes.n, &o->replica_count, &ok);
        o->isr = kc_admin_keep_ids(a, p->isr_nodes.v, p->isr_nodes.n, &o->isr_count, &ok);
        o->offline = kc_admin_keep_ids(a, p->offline_replicas.v, p->offline_replicas.n, &o->offline_count, &ok);
    }
    qsort(t->partitions, n, sizeof *t->partitions, by_number); /* answers list them in any order */
    return ok ? KC_OK : KC_NO_MEMORY;
}

/* Who leads, and who is in sync, by metadata that is asked for again; what is known already stays. */
static kc_err leaders_read(struct describe *d, const struct kw_metadata_response *m) {
    struct topic *t = &d->info->topics[0];
    bool ok = true;
    if (m->topics.n != 1 || m->topics.v[0].error_code != KE_NONE) return KC_OK; /* that broker does not know it: what was known stays */
    for (int32_t i = 0; i < m->topics.v[0].partitions.n; i++) {
        const struct kw_metadata_response_partition *q = &m->topics.v[0].partitions.v[i];
        const kc_partition_info key = {.partition = q->partition_index};
        kc_partition_info *p = bsearch(&key, t->partitions, t->info.partition_count, sizeof key, by_number);
        if (!p || q->leader_epoch < p->leader_epoch) continue;
        size_t at = (size_t)(p - t->partitions);
        p->leader = q->leader_id;
        p->leader_epoch = q->leader_epoch;
        p->err = q->error_code == KE_REPLICA_NOT_AVAILABLE ? KC_OK : q->error_code;
        p->replicas = kc_admin_keep_ids(&d->info->arena, q->replica_nodes.v, q->replica_nodes.n, &p->replica_count, &ok);
        p->isr = kc_admin_keep_ids(&d->info->arena, q->isr_nodes.v, q->isr_nodes.n, &p->isr_count, &ok);
        p->offline = kc_admin_keep_ids(&d->info->arena, q->offline_replicas.v, q->offline_replicas.n, &p->offline_count, &ok);
        if (d->silent[at] >= 0 && d->silent[at] != p->leader) d->silent[at] = -1;
    }
    return ok ? KC_OK : KC_NO_MEMORY;
}

static kc_err metadata_read(struct kc_admin *a, struct kw_in *body, struct kw_arena *arena) {
    struct describe *d = a->call;
    kc_cluster_info *info = d->info;
    struct kw_metadata_response m;
    kc_err err = kc_admin_decode(a, &kw_metadata_response_desc, body, arena, &m, &m.throttle_time_ms);
    if (err != KC_OK) return err;
    if (d->looks > 0) return leaders_read(d, &m);
    if (d->topic && m.topics.n == 1 && m.topics.v[0].error_code == KE_LEADER_NOT_AVAILABLE && kc_admin_again(a, KE_LEADER_NOT_AVAILABLE))
        return ADMIN_AGAIN;
    kw_arena_reset(&info->arena);
    info->broker_count = info->topic_count = 0;
    const char *id = keep(&info->arena, m.cluster_id);
    info->id = id ? id : "";
    info->controller = m.controller_id;
    info->brokers = kw_arena_calloc(&info->arena, (size_t)KW_MAX(m.brokers.n, 0) + 1, sizeof *info->brokers);
    info->topics = kw_arena_calloc(&info->arena, (size_t)KW_MAX(m.topics.n, 0) + 1, sizeof *info->topics);
    if (!info->brokers || !info->topics) return KC_NO_MEMORY;
    for (int32_t i = 0; i < m.brokers.n; i++) {
        const char *host = keep(&info->arena, m.brokers.v[i].host);
        if (!host) return KC_NO_MEMORY;
        info->brokers[info->broker_count++] = (kc_broker_info){
            .id = m.brokers.v[i].node_id, .port = m.brokers.v[i].port, .host = host, .rack = keep(&info->arena, m.brokers.v[i].rack)};
    }
    for (int32_t i = 0; i < m.topics.n; i++) {
        err = keep_topic(&info->arena, &m.topics.v[i], &info->topics[info->topic_count++]);
        if (err != KC_OK) return err;
    }
    return KC_OK;
}

/* Metadata names the brokers that are there; this adds those that are registered but fenced (KIP-1073). */
static kc_err brokers_read(struct kc_admin *a, struct kw_in *body, struct kw_arena *arena) {
    struct describe *d = a->call;
    kc_cluster_info *info = d->info;
    struct kw_describe_cluster_response m;
    kc_err err = kc_admin_decode(a, &kw_describe_cluster_response_desc, body, arena, &m, &m.throttle_time_ms);
    if (err != KC_OK) return err;
    d->brokers_known = true;
    if (m.error_code != KE_NONE || m.brokers.n <= 0) return KC_OK;
    kc_broker_info *v = kw_arena_calloc(&info->arena, info->broker_count + (size_t)m.brokers.n, sizeof *v);
    if (!v) return KC_NO_MEMORY;
    memcpy(v, info->brokers, info->broker_count * sizeof *v);
    for (int32_t i = 0; i < m.brokers.n; i++) {
        const struct kw_describe_cluster_response_describe_cluster_broker *b = &m.brokers.v[i];
        bool known = false;
        for (size_t k = 0; k < info->broker_count; k++) known = known || v[k].id == b->broker_id;
        if (known || !b->is_fenced) continue;
        const char *host = keep(&info->arena, b->host);
        if (!host) return KC_NO_MEMORY;
        v[info->broker_count++] =
            (kc_broker_info){.id = b->broker_id, .port = b->port, .host = host, .rack = keep(&info->arena, b->rack), .fenced = 1};
    }
    info->brokers = v;
    return KC_OK;
}

/* Back to metadata for what is open. */
static kc_err look_again(struct kc_admin *a) {
    struct describe *d = a->call;
    d->looks++;
    a->tries = d->looks - 1; /* each a little later */
    kc_admin_step(a, KW_API_METADATA, 0, KC_BROKER_ANY);
    return ADMIN_AGAIN;
}

static kc_err offsets_read(struct kc_admin *a, struct kw_in *body, struct kw_arena *arena) {
    struct describe *d = a->call;
    struct topic *t = &d->info->topics[0];
    struct kw_list_offsets_response m;
    kc_err err = kc_admin_decode(a, &kw_list_offsets_response_desc, body, arena, &m, &m.throttle_time_ms);
    if (err != KC_OK) return err;
    bool again = false; /* a leader that has just been elected may not know it yet, one that has been none */
    for (int32_t i = 0; m.topics.n == 1 && i < m.topics.v[0].partitions.n; i++) {
        const struct kw_list_offsets_response_list_offsets_partition_response *r = &m.topics.v[0].partitions.v[i];
        const kc_partition_info key = {.partition = r->partition_index};
        kc_partition_info *p = bsearch(&key, t->partitions, t->info.partition_count, sizeof key, by_number);
        if (!p) continue;
        if (r->error_code != KE_NONE && d->looks < LOOKS_MAX && kc_admin_again(a, r->error_code)) {
            d->asked[p - t->partitions] = false;
            again = true;
        } else if (r->error_code != KE_NONE)
            p->err = p->err == KC_OK && d->asking != ASK_END ? r->error_code : p->err;
        else if (d->asking == ASK_START)
            p->log_start = r->offset;
        else if (d->asking == ASK_HIGH_WATERMARK)
            p->high_watermark = r->offset;
        else
            p->log_end = r->offset;
    }
    return again ? look_again(a) : KC_OK;
}

static int by_id(const void *a, const void *b) {
    int32_t x = ((const kc_broker_info *)a)->id, y = ((const kc_broker_info *)b)->id;
    return x < y ? -1 : x > y;
}

static int32_t *silent_new(size_t n) {
    int32_t *v = kw_calloc(n + 1, sizeof *v);
    for (size_t i = 0; v && i < n; i++) v[i] = -1;
    return v;
}

static void give_up(struct describe *d, size_t i, kc_err err) {
    d->away[i] = true;
    d->silent[i] = -1;
    if (d->info->topics[0].partitions[i].err == KC_OK) d->info->topics[0].partitions[i].err = err;
}

/* The next leader to ask, or the next question; KC_OK when all is known. */
static kc_err next_question(struct kc_admin *a) {
    struct describe *d = a->call;
    if (!d->brokers_known) {
        kc_admin_step(a, KW_API_DESCRIBE_CLUSTER, 0, KC_BROKER_ANY);
        return ADMIN_NEXT;
    }
    qsort(d->info->brokers, d->info->broker_count, sizeof *d->info->brokers, by_id); /* answers list them in any order */
    if (!d->topic || d->info->topic_count != 1 || d->info->topics[0].info.err != KC_OK) return KC_OK;
    const struct topic *t = &d->info->topics[0];
    if (!d->asked) d->asked = kw_calloc(t->info.partition_count + 1, sizeof *d->asked);
    if (!d->away) d->away = kw_calloc(t->info.partition_count + 1, sizeof *d->away);
    if (!d->silent) d->silent = silent_new(t->info.partition_count);
    if (!d->asked || !d->away || !d->silent) return KC_NO_MEMORY;
    for (; d->asking < ASK_DONE; d->asking++) {
        for (size_t i = 0; i < t->info.partition_count; i++) {
            if (d->silent[i] >= 0) give_up(d, i, KC_TIMED_OUT); /* it leads still */
            if (d->asked[i] || d->away[i] || t->partitions[i].leader < 0) continue;
            kc_admin_step(a, KW_API_LIST_OFFSETS, 1, t->partitions[i].leader);
            return ADMIN_NEXT;
        }
        memset(d->asked, 0, t->info.partition_count * sizeof *d->asked);
    }
    return KC_OK;
}

static kc_err describe_read(struct kc_admin *a, struct kw_in *body, struct kw_arena *arena, kc_error **error) {
    (void)error;
    kc_err err = a->api == KW_API_METADATA           ? metadata_read(a, body, arena)
                 : a->api == KW_API_DESCRIBE_CLUSTER ? brokers_read(a, body, arena)
                                                     : offsets_read(a, body, arena);
    return err == KC_OK ? next_question(a) : err;
}

/* One leader that is down must not hide what is known of the others. */
static kc_err describe_unreachable(struct kc_admin *a, kc_err err) {
    struct describe *d = a->call;
    if (a->api == KW_API_DESCRIBE_CLUSTER && err == KC_UNSUPPORTED) {
        d->brokers_known = true; /* a cluster of before 2.8 shows no more */
        return next_question(a);
    }
    if (a->api != KW_API_LIST_OFFSETS) return ADMIN_AGAIN; /* of any broker: the next time of another */
    const struct topic *t = &d->info->topics[0];
    bool again = err != KC_UNSUPPORTED && d->looks < LOOKS_MAX;
    for (size_t i = 0; i < t->info.partition_count; i++) {
        if (t->partitions[i].leader != a->broker || d->away[i]) continue;
        if (!again) {
            give_up(d, i, err);
            continue;
        }
        d->asked[i] = false;
        if (err == KC_TIMED_OUT) d->silent[i] = a->broker; /* another may lead by now: only that one is asked, this one would cost as much again */
    }
    return again ? look_again(a) : next_question(a);
}

static const struct kc_admin_kind describe_kind = {"describe the cluster", KW_API_METADATA, 0, KC_BROKER_ANY, describe_encode, describe_read,
                                                   NULL, describe_unreachable, describe_free};

static struct describe *describe_new(const char *topic) {
    struct describe *d = kw_calloc(1, sizeof *d);
    if (!d) return NULL;
    if (topic) d->topic = kw_memdup(topic, strlen(topic) + 1);
    d->info = kw_calloc(1, sizeof *d->info);
    if (d->info) kw_arena_init(&d->info->arena, 0);
    if (d->info && (d->topic || !topic)) return d;
    describe_free(d);
    return NULL;
}

static kc_err describe_make(kc_client *c, const char *topic, int64_t timeout_us, uint64_t opaque, kc_op **op, kc_error **error) {
    kc_err err = kc_admin_make(c, &describe_kind, describe_new(topic), timeout_us, opaque, op, error);
    if (err == KC_OK) kc_admin_of(*op)->step_us = DESCRIBE_STEP_US;
    return err;
}

kc_cluster_info *kc_op_result_cluster(kc_op *op) {
    struct describe *d = kc_admin_done_call(op, &describe_kind);
    kc_cluster_info *i = d && op->err == KC_OK ? d->info : NULL;
    if (i) d->info = NULL;
    return i;
}

kc_err kc_admin_describe(kc_client *c, const char *topic, int64_t timeout_us, kc_cluster_info **out, kc_error **error) {
    kc_op *op = NULL;
    if (!out) return kc_admin_invalid(&describe_kind, error);
    kc_err err = describe_make(c, topic, timeout_us, 0, &op, error);
    if (err != KC_OK) return err;
    err = kc_op_run(op, KC_FOREVER, error);
    if (err == KC_OK) *out = kc_op_result_cluster(op);
    kc_op_free(op);
    return err;
}

kc_err kc_admin_describe_start(kc_client *c, const char *topic, int64_t timeout_us, uint64_t opaque, kc_op **op, kc_error **error) {
    kc_op *made = NULL;
    if (!op) return kc_admin_invalid(&describe_kind, error);
    kc_err err = describe_make(c, topic, timeout_us, opaque, &made, error);
    return kc_admin_begin(err, made, op);
}

const char *kc_cluster_info_id(const kc_cluster_info *i) {
    return i ? i->id : "";
}
int32_t kc_cluster_info_controller(const kc_cluster_info *i) {
    return i ? i->controller : -1;
}
size_t kc_cluster_info_broker_count(const kc_cluster_info *i) {
    return i ? i->broker_count : 0;
}
size_t kc_cluster_info_topic_count(const kc_cluster_info *i) {
    return i ? i->topic_count : 0;
}

kc_err kc_cluster_info_broker(const kc_cluster_info *i, size_t index, kc_broker_info *out) {
    if (!i || !out || index >= i->broker_count) return KC_INVALID;
    *out = i->brokers[index];
    return KC_OK;
}

kc_err kc_cluster_info_topic(const kc_cluster_info *i, size_t index, kc_topic_info *out) {
    if (!i || !out || index >= i->topic_count) return KC_INVALID;
    *out = i->topics[index].info;
    return KC_OK;
}

kc_err kc_cluster_info_partition(const kc_cluster_info *i, size_t topic, size_t index, kc_partition_info *out) {
    if (!i || !out || topic >= i->topic_count || index >= i->topics[topic].info.partition_count) return KC_INVALID;
    *out = i->topics[topic].partitions[index];
    return KC_OK;
}

void kc_cluster_info_free(kc_cluster_info *i) {
    if (!i) return;
    kw_arena_deinit(&i->arena);
    kw_free(i);
}
