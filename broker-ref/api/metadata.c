/* metadata.c - Metadata v0-13: who the brokers are, and which topics with which leaders. Topics are made on first use where that is on.
 *
 * v0 takes an empty list for all topics, v1 and later null; v10 gives ids, v12 takes them. KIP-4, 320, 430, 516, 700, 1102.
 * Deviation: a topic made on first use is answered once it exists (Apache Kafka answers UNKNOWN_TOPIC_OR_PARTITION and lets the client ask
 * again).
 */
#include "group/coordinator.h"
#include "make_topics.h"

#define CREATE_WAIT_MS 5000

struct metadata { /* of one request, in its arena */
    struct kb_request *rq;
    struct kw_metadata_request *req;
    struct kw_metadata_response res;
    struct kb_topic_create *creates;
    int32_t create_count, create_at; /* create_at: of the first that is not answered yet; they are in the order of the request */
    struct kb_make_topics make;
};

static struct kb_parts *parts_of(struct metadata *m) {
    return kb_node_parts(m->rq->node);
}

static kw_err add_brokers(struct metadata *m) {
    struct kb_image *im = parts_of(m)->image;
    m->res.brokers.v = kw_arena_alloc(&m->rq->arena, (im->brokers.count + 1) * sizeof(*m->res.brokers.v));
    if (!m->res.brokers.v) return KW_ENOMEM;
    struct kb_image_broker *b;
    for (size_t it = 0; (b = kw_map_next(&im->brokers, &it));) {
        struct kw_metadata_response_broker *out = &m->res.brokers.v[m->res.brokers.n];
        if (b->fenced || !kb_admin_address(m->rq, b, &out->host, &out->port)) continue;
        out->node_id = b->id;
        out->rack = kw_str_of(b->rack);
        m->res.brokers.n++;
    }
    return KW_OK;
}

static kw_err add_partition(struct metadata *m, const struct kb_image_partition *p, struct kw_metadata_response_partition *out) {
    struct kb_partition_view v;
    kw_err err = kb_admin_view(m->rq, p, &v);
    if (err) return err;
    *out = (struct kw_metadata_response_partition){
        .error_code = v.code, .partition_index = p->index, .leader_id = v.leader, .leader_epoch = v.leader_epoch};
    out->replica_nodes.v = p->replicas, out->replica_nodes.n = p->replica_count;
    out->isr_nodes.v = p->isr, out->isr_nodes.n = p->isr_count;
    out->offline_replicas.v = v.offline, out->offline_replicas.n = v.offline_count;
    return KW_OK;
}

static kw_err add_topic(struct metadata *m, const struct kb_image_topic *t) {
    struct kw_metadata_response_topic *out = &m->res.topics.v[m->res.topics.n++];
    *out = (struct kw_metadata_response_topic){.name = kw_str_of(t->name), .topic_id = t->id, .is_internal = t->internal};
    out->topic_authorized_operations = m->req->include_topic_authorized_operations ? KB_TOPIC_OPERATIONS : KB_OPERATIONS_NOT_ASKED;
    out->partitions.v = kw_arena_alloc(&m->rq->arena, ((size_t)t->partition_count + 1) * sizeof(*out->partitions.v));
    if (!out->partitions.v) return KW_ENOMEM;
    kw_err err = KW_OK;
    for (int32_t i = 0; !err && i < t->partition_count; i++)
        err = add_partition(m, &t->partitions[i], &out->partitions.v[out->partitions.n++]);
    return err;
}

static void add_error(struct metadata *m, struct kw_str name, struct kw_uuid id, int16_t code) {
    struct kw_metadata_response_topic *out = &m->res.topics.v[m->res.topics.n++];
    *out = (struct kw_metadata_response_topic){
        .error_code = code, .name = name, .topic_id = id, .topic_authorized_operations = KB_OPERATIONS_NOT_ASKED};
    if (name.len < 0 && m->rq->head.version < 12) out->name = kw_str_of(""); /* it may not be null there */
}

/* The code for a topic that is not there; 0: it should be made. */
static int16_t missing(struct metadata *m, struct kw_str name) {
    if (kb_topic_name_problem(name)) return KE_INVALID_TOPIC_EXCEPTION;
    if (kw_str_eq(name, kw_str_of(KB_OFFSETS_TOPIC))) return KE_UNKNOWN_TOPIC_OR_PARTITION; /* find_coordinator makes it, as it has to be */
    if (!m->req->allow_auto_topic_creation || !kb_config_bool(parts_of(m)->config, "auto.create.topics.enable"))
        return KE_UNKNOWN_TOPIC_OR_PARTITION;
    return 0;
}

static bool by_id(const struct kw_metadata_request_topic *t) {
    return !kw_uuid_is_zero(t->topic_id);
}

static kw_err add_asked(struct metadata *m, const struct kw_metadata_request_topic *t) {
    int16_t version = m->rq->head.version;
    struct kb_image *im = parts_of(m)->image;
    struct kw_uuid none = {{0}};
    if ((by_id(t) || t->name.len < 0) && version < 12) {
        add_error(m, t->name, t->topic_id, KE_INVALID_REQUEST);
        return KW_OK;
    }
    const struct kb_topic_create *made = m->create_at < m->create_count ? &m->creates[m->create_at] : NULL;
    if (made && (by_id(t) || !kw_str_eq(made->name, t->name))) made = NULL;
    if (made) m->create_at++;
    const struct kb_image_topic *found = by_id(t) ? kb_image_topic_by_id(im, t->topic_id) : kb_image_topic(im, t->name);
    if (found) return add_topic(m, found);
    if (by_id(t)) {
        add_error(m, kw_str_null(), t->topic_id, KE_UNKNOWN_TOPIC_ID);
        return KW_OK;
    }
    int16_t code = made ? made->result.code : missing(m, t->name);
    if (made) { /* for this request, and not there: why */
        add_error(m, t->name, none, code == 0 || code == KE_TOPIC_ALREADY_EXISTS ? KE_LEADER_NOT_AVAILABLE : code);
        return KW_OK;
    }
    add_error(m, t->name, none, code ? code : KE_UNKNOWN_TOPIC_OR_PARTITION);
    return KW_OK;
}

static kw_err add_topics(struct metadata *m) {
    struct kb_image *im = parts_of(m)->image;
    bool all = m->req->topics.n < 0 || (m->req->topics.n == 0 && m->rq->head.version == 0);
    size_t count = all ? im->topics_by_name.count : (size_t)m->req->topics.n;
    m->res.topics.v = kw_arena_alloc(&m->rq->arena, (count + 1) * sizeof(*m->res.topics.v));
    if (!m->res.topics.v) return KW_ENOMEM;
    kw_err err = KW_OK;
    struct kb_image_topic *t;
    for (size_t it = 0; all && !err && (t = kw_map_next(&im->topics_by_name, &it));) err = add_topic(m, t);
    for (int32_t i = 0; !all && !err && i < m->req->topics.n; i++) err = add_asked(m, &m->req->topics.v[i]);
    return err;
}

static void answer(struct metadata *m) {
    struct kb_parts *p = parts_of(m);
    kw_msg_init(&kw_metadata_response_desc, &m->res);
    m->res.cluster_id = kw_str_of(kb_store_cluster_id(p->store));
    m->res.controller_id = kb_admin_controller(p);
    if (m->req->include_cluster_authorized_operations) m->res.cluster_authorized_operations = KB_CLUSTER_OPERATIONS;
    if (add_brokers(m) || add_topics(m)) {
        kb_admin_no_memory(m->rq);
        return;
    }
    kb_request_reply(m->rq, &m->res);
}

static void created(struct kb_make_topics *make) {
    answer(make->ctx);
}

/* A topic named twice is answered once: else a small request could ask for any number of copies of a large answer. */
static kw_err drop_doubles(struct metadata *m) {
    struct kw_map seen;
    int32_t kept = 0;
    kw_err err = KW_OK;
    kw_map_init(&seen);
    for (int32_t i = 0; !err && i < m->req->topics.n; i++) {
        struct kw_metadata_request_topic *t = &m->req->topics.v[i];
        const void *key = by_id(t) ? (const void *)t->topic_id.b : t->name.p;
        size_t n = by_id(t) ? sizeof(t->topic_id.b) : t->name.len < 0 ? 0 : (size_t)t->name.len;
        if (kw_map_get(&seen, key, n)) continue;
        err = kw_map_put(&seen, key, n, m);
        m->req->topics.v[kept++] = *t;
    }
    kw_map_deinit(&seen);
    if (m->req->topics.n > 0) m->req->topics.n = kept;
    return err;
}

/* Topics to be made first, if any. */
static kw_err collect_creates(struct metadata *m) {
    for (int32_t i = 0; i < m->req->topics.n; i++) {
        const struct kw_metadata_request_topic *t = &m->req->topics.v[i];
        if (by_id(t) || kb_image_topic(parts_of(m)->image, t->name) || missing(m, t->name)) continue;
        if (!m->creates) m->creates = kw_arena_calloc(&m->rq->arena, (size_t)m->req->topics.n, sizeof(*m->creates));
        if (!m->creates) return KW_ENOMEM;
        m->creates[m->create_count++] = (struct kb_topic_create){.name = t->name, .partitions = -1, .replication_factor = -1};
    }
    return KW_OK;
}

void kb_api_metadata(struct kb_request *rq) {
    struct metadata *m = kw_arena_calloc(&rq->arena, 1, sizeof(*m));
    struct kw_metadata_request *req = kw_arena_alloc(&rq->arena, sizeof(*req));
    if (!m || !req) {
        kb_admin_no_memory(rq);
        return;
    }
    if (kb_request_decode(rq, req)) return;
    m->rq = rq;
    m->req = req;
    if (drop_doubles(m) || collect_creates(m)) {
        kb_admin_no_memory(rq);
        return;
    }
    if (m->create_count == 0) {
        answer(m);
        return;
    }
    m->make = (struct kb_make_topics){.rq = rq, .creates = m->creates, .count = m->create_count, .done = created, .ctx = m};
    if (kb_make_topics(&m->make, CREATE_WAIT_MS)) kb_admin_no_memory(rq);
}
