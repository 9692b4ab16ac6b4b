/* admin_app.c - the administrator: creates, grows, deletes, configures, one request after the other, each again until it has had its
 * effect. Calls client/core (requests), the wire's schemas. */
#include <stdio.h>
#include <stdlib.h>

#include "kw_messages.h"
#include "roles.h"

enum op_kind { CREATE, GROW, DELETE, CONFIG, DELETE_RECORDS, REASSIGN, ELECT, UNREGISTER };
struct op {
    struct op *next;
    enum op_kind kind;
    int topic;
    int32_t n;
    int64_t before;
    int32_t ids[SIM_NODES_MAX], id_count; /* replicas; -1: the reassignment is cancelled */
    bool unclean;
    char name[48], value[48];
    const char *const *configs;
};
struct admin {
    struct sim_role role; /* first */
    struct sim_model *m;
    struct sim_world *w;
    struct op *first, *last;
    struct kc_request rq;
    bool busy, stopping;
    const char *const *created_with[SIM_TOPICS_MAX];
};

static kw_err encode(struct kc_request *rq, struct kw_out *out) {
    struct admin *a = rq->ctx;
    struct op *o = a->first;
    struct kw_str topic = kw_str_of(a->m->topics[o->topic].name);
    int32_t timeout = (int32_t)sim_range(a->w, 1000, 20000);
    switch (o->kind) {
    case CREATE: {
        struct kw_create_topics_request_creatable_topic_config configs[18];
        struct kw_create_topics_request_creatable_topic t = {.name = topic, .num_partitions = o->n, .replication_factor = KW_MAX(a->m->topics[o->topic].rf, 1)};
        struct kw_create_topics_request m = {.topics = {&t, 1}, .timeout_ms = timeout};
        int32_t n = 0;
        for (const char *const *c = o->configs; c && *c && n < 18; c += 2) {
            configs[n].name = kw_str_of(c[0]);
            configs[n++].value = kw_str_of(c[1]);
        }
        t.configs.v = configs;
        t.configs.n = n;
        return kw_encode(&kw_create_topics_request_desc, rq->version, &m, out);
    }
    case GROW: {
        struct kw_create_partitions_request_create_partitions_topic t = {.name = topic, .count = o->n, .assignments = {NULL, -1}};
        struct kw_create_partitions_request m = {.topics = {&t, 1}, .timeout_ms = timeout};
        return kw_encode(&kw_create_partitions_request_desc, rq->version, &m, out);
    }
    case DELETE: {
        struct kw_delete_topics_request_delete_topic_state t = {.name = topic};
        struct kw_delete_topics_request m = {.timeout_ms = timeout};
        if (rq->version >= 6) {
            m.topics.v = &t;
            m.topics.n = 1;
        } else {
            m.topic_names.v = &topic;
            m.topic_names.n = 1;
        }
        return kw_encode(&kw_delete_topics_request_desc, rq->version, &m, out);
    }
    case CONFIG: {
        struct kw_incremental_alter_configs_request_alterable_config c = {
            .name = kw_str_of(o->name), .config_operation = 0, .value = kw_str_of(o->value)};
        struct kw_incremental_alter_configs_request_alter_configs_resource r = {
            .resource_type = 2, .resource_name = topic, .configs = {&c, 1}};
        struct kw_incremental_alter_configs_request m = {.resources = {&r, 1}};
        return kw_encode(&kw_incremental_alter_configs_request_desc, rq->version, &m, out);
    }
    case REASSIGN: {
        struct kw_alter_partition_reassignments_request_reassignable_partition p = {.partition_index = o->n, .replicas = {o->ids, o->id_count}};
        struct kw_alter_partition_reassignments_request_reassignable_topic t = {.name = topic, .partitions = {&p, 1}};
        struct kw_alter_partition_reassignments_request m = {.timeout_ms = timeout, .allow_replication_factor_change = true, .topics = {&t, 1}};
        return kw_encode(&kw_alter_partition_reassignments_request_desc, rq->version, &m, out);
    }
    case ELECT: {
        struct kw_elect_leaders_request_topic_partitions t = {.topic = topic, .partitions = {&o->n, 1}};
        struct kw_elect_leaders_request m = {.election_type = o->unclean, .topic_partitions = {&t, 1}, .timeout_ms = timeout};
        return kw_encode(&kw_elect_leaders_request_desc, rq->version, &m, out);
    }
    case UNREGISTER: {
        struct kw_unregister_broker_request m = {.broker_id = o->n};
        return kw_encode(&kw_unregister_broker_request_desc, rq->version, &m, out);
    }
    default: {
        struct kw_delete_records_request_delete_records_partition p = {.partition_index = o->n, .offset = o->before};
        struct kw_delete_records_request_delete_records_topic t = {.name = topic, .partitions = {&p, 1}};
        struct kw_delete_records_request m = {.topics = {&t, 1}, .timeout_ms = timeout};
        return kw_encode(&kw_delete_records_request_desc, rq->version, &m, out);
    }
    }
}

/* The one error code of the answer; KE_UNKNOWN_SERVER_ERROR when it has none. */
static int16_t code_of(struct kc_request *rq, struct kw_in *body, struct kw_arena *arena, enum op_kind kind) {
    int16_t code = KE_UNKNOWN_SERVER_ERROR;
    union {
        struct kw_create_topics_response create;
        struct kw_create_partitions_response grow;
        struct kw_delete_topics_response del;
        struct kw_incremental_alter_configs_response config;
        struct kw_delete_records_response records;
        struct kw_alter_partition_reassignments_response reassign;
        struct kw_elect_leaders_response elect;
        struct kw_unregister_broker_response unregister;
    } m;
    if (kw_decode(rq->api->response, rq->version, body, arena, &m) != KW_OK) return code;
    if (kind == CREATE && m.create.topics.n == 1) code = m.create.topics.v[0].error_code;
    if (kind == GROW && m.grow.results.n == 1) code = m.grow.results.v[0].error_code;
    if (kind == DELETE && m.del.responses.n == 1) code = m.del.responses.v[0].error_code;
    if (kind == CONFIG && m.config.responses.n == 1) code = m.config.responses.v[0].error_code;
    if (kind == DELETE_RECORDS && m.records.topics.n == 1 && m.records.topics.v[0].partitions.n == 1)
        code = m.records.topics.v[0].partitions.v[0].error_code;
    if (kind == REASSIGN) code = m.reassign.error_code;
    if (kind == REASSIGN && !code && m.reassign.responses.n == 1 && m.reassign.responses.v[0].partitions.n == 1)
        code = m.reassign.responses.v[0].partitions.v[0].error_code;
    if (kind == ELECT) code = m.elect.error_code;
    if (kind == ELECT && !code && m.elect.replica_election_results.n == 1 && m.elect.replica_election_results.v[0].partition_result.n == 1)
        code = m.elect.replica_election_results.v[0].partition_result.v[0].error_code;
    if (kind == UNREGISTER) code = m.unregister.error_code;
    return code;
}

static bool effective(enum op_kind kind, int16_t code) {
    if (code == KE_NONE) return true;
    switch (kind) { /* an earlier try has done it */
    case CREATE:
        return code == KE_TOPIC_ALREADY_EXISTS;
    case GROW:
        return code == KE_INVALID_PARTITIONS;
    case DELETE:
        return code == KE_UNKNOWN_TOPIC_OR_PARTITION;
    case DELETE_RECORDS:
        return code == KE_OFFSET_OUT_OF_RANGE || code == KE_UNKNOWN_TOPIC_OR_PARTITION;
    case REASSIGN: /* it was over, or a broker is not there (any more): he thinks better of it */
        return code == KE_NO_REASSIGNMENT_IN_PROGRESS || code == KE_INVALID_REPLICA_ASSIGNMENT || code == KE_UNKNOWN_TOPIC_OR_PARTITION;
    case ELECT:
        return code == KE_ELECTION_NOT_NEEDED || code == KE_PREFERRED_LEADER_NOT_AVAILABLE || code == KE_ELIGIBLE_LEADERS_NOT_AVAILABLE ||
               code == KE_UNKNOWN_TOPIC_OR_PARTITION;
    case UNREGISTER:
        return code == KE_BROKER_ID_NOT_REGISTERED;
    default:
        return false;
    }
}

static void pop(struct admin *a) {
    struct op *o = a->first;
    a->first = o->next;
    if (!a->first) a->last = NULL;
    free(o);
}

static void done(struct kc_request *rq, kc_err err, struct kw_in *body, struct kw_blk *blk) {
    static const char *const names[] = {"create", "grow", "delete", "configure", "delete records of", "reassign",
                                        "elect",  "unregister"};
    (void)blk;
    struct admin *a = rq->ctx;
    struct op *o = a->first;
    a->busy = false;
    if (a->stopping) return;
    struct kw_arena arena;
    kw_arena_init(&arena, 0);
    if (err == KC_OK) err = code_of(rq, body, &arena, o->kind);
    kw_arena_deinit(&arena);
    sim_trace(a->w, "admin: %s %s: %s", names[o->kind], o->kind == UNREGISTER ? "a broker" : a->m->topics[o->topic].name, kc_err_name(err));
    if (err > -1000 && effective(o->kind, (int16_t)err)) pop(a);
    a->role.next_us = a->w->now_us + sim_range(a->w, 10 * SIM_MS, 300 * SIM_MS);
    sim_host_wake(&a->role.client->host, a->role.next_us);
}

/* Of several nodes any takes any request; but records are deleted where the partition is led. */
static int32_t whom_to_ask(struct admin *a, const struct op *o) {
    if (!a->m->replicated) return KC_BROKER_CONTROLLER;
    if (o->kind != DELETE_RECORDS) return sim_below(a->w, 2) ? KC_BROKER_ANY : KC_BROKER_CONTROLLER;
    const struct kc_topic_meta *t = kc_metadata_topic(a->role.client->core, o->topic + 1);
    return t && o->n < t->partition_count && t->partitions[o->n].leader >= 0 ? t->partitions[o->n].leader : KC_BROKER_ANY;
}

static bool work(struct sim_role *r) {
    static const int16_t apis[] = {KW_API_CREATE_TOPICS, KW_API_CREATE_PARTITIONS, KW_API_DELETE_TOPICS, KW_API_INCREMENTAL_ALTER_CONFIGS,
                                   KW_API_DELETE_RECORDS,
                                   KW_API_ALTER_PARTITION_REASSIGNMENTS, KW_API_ELECT_LEADERS, KW_API_UNREGISTER_BROKER};
    struct admin *a = (struct admin *)r;
    if (!a->first) r->next_us = SIM_NEVER;
    if (a->busy || !a->first || a->stopping || r->next_us > a->w->now_us) return false;
    kc_request_init(&a->rq, apis[a->first->kind]);
    a->rq.encode = encode;
    a->rq.done = done;
    a->rq.ctx = a;
    a->rq.broker = whom_to_ask(a, a->first);
    a->rq.deadline_us = sim_client_now(r->client).mono_us + 30 * SIM_S;
    a->busy = true;
    r->next_us = SIM_NEVER;
    kc_core_send(r->client->core, &a->rq);
    return true;
}

static struct op *push(struct admin *a, enum op_kind kind, int topic) {
    struct op *o = sim_need(calloc(1, sizeof *o));
    o->kind = kind;
    o->topic = topic;
    if (a->last)
        a->last->next = o;
    else
        a->first = o;
    a->last = o;
    if (!a->busy) a->role.next_us = a->w->now_us;
    sim_client_wake(a->role.client);
    return o;
}

void sim_admin_create(struct sim_role *r, int topic, const char *const *configs) {
    struct admin *a = (struct admin *)r;
    struct op *o = push(a, CREATE, topic);
    o->n = a->m->topics[topic].partitions;
    o->configs = a->created_with[topic] = configs;
}

bool sim_admin_idle(const struct sim_role *r) {
    return !((const struct admin *)r)->first;
}

void sim_admin_grow(struct sim_role *r, int topic, int partitions) {
    struct admin *a = (struct admin *)r;
    push(a, GROW, topic)->n = partitions;
}

void sim_admin_recreate(struct sim_role *r, int topic) {
    struct admin *a = (struct admin *)r;
    (void)push(a, DELETE, topic);
    sim_admin_create(r, topic, a->created_with[topic]);
}

void sim_admin_config(struct sim_role *r, int topic, const char *name, const char *value) {
    struct op *o = push((struct admin *)r, CONFIG, topic);
    snprintf(o->name, sizeof o->name, "%s", name);
    snprintf(o->value, sizeof o->value, "%s", value);
}

void sim_admin_delete_records(struct sim_role *r, int topic, int partition, int64_t before) {
    struct op *o = push((struct admin *)r, DELETE_RECORDS, topic);
    o->n = partition;
    o->before = before;
}

void sim_admin_reassign(struct sim_role *r, int topic, int partition, const int32_t *ids, int32_t n) {
    struct op *o = push((struct admin *)r, REASSIGN, topic);
    o->n = partition;
    o->id_count = n;
    for (int32_t i = 0; i < n; i++) o->ids[i] = ids[i];
}

void sim_admin_elect(struct sim_role *r, int topic, int partition, bool unclean) {
    struct op *o = push((struct admin *)r, ELECT, topic);
    o->n = partition;
    o->unclean = unclean;
}

void sim_admin_unregister(struct sim_role *r, int32_t broker) {
    push((struct admin *)r, UNREGISTER, 0)->n = broker;
}

static void stop(struct sim_role *r) {
    struct admin *a = (struct admin *)r;
    a->stopping = true;
    if (a->busy) kc_core_cancel(r->client->core, &a->rq);
}
static bool stopped(const struct sim_role *r) {
    return !((const struct admin *)r)->busy;
}
static void free_role(struct sim_role *r) {
    struct admin *a = (struct admin *)r;
    while (a->first) pop(a);
    free(a);
}

struct sim_role *sim_admin_new(struct sim_client *c, struct sim_model *m) {
    struct admin *a = sim_need(calloc(1, sizeof *a));
    a->role = (struct sim_role){.next_us = SIM_NEVER, .work = work, .stop = stop, .stopped = stopped, .free = free_role};
    a->m = m;
    a->w = c->w;
    sim_client_add(c, &a->role);
    return &a->role;
}
