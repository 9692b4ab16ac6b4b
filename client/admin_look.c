/* admin_look.c - the public administration calls that look at a cluster of several nodes: moves under way, the metadata quorum, log directories,
 * what nodes have counted.
 *
 * An answer's strings and arrays live in one arena that goes with what is handed out. Called by the application. Calls admin_call.c. KIP-113,
 * KIP-455, KIP-595, KIP-836.
 */
#include "admin_call.h"

/* Every answer of this file: an arena, and behind it what the kind keeps in it. */
struct tree {
    struct kw_arena arena;
};
struct look {
    void *tree; /* NULL: taken */
};

static void tree_free(void *tree) {
    struct tree *t = tree;
    if (!t) return;
    kw_arena_deinit(&t->arena);
    kw_free(t);
}

static void look_free(void *call) {
    struct look *l = call;
    if (!l) return;
    tree_free(l->tree);
    kw_free(l);
}

static struct look *look_new(size_t size) {
    struct look *l = kw_calloc(1, sizeof *l);
    struct tree *t = l ? kw_calloc(1, size) : NULL;
    if (t) kw_arena_init(&t->arena, 0);
    if (l) l->tree = t;
    if (t) return l;
    look_free(l);
    return NULL;
}

static void *take(kc_op *op, const struct kc_admin_kind *kind) {
    struct look *l = kc_admin_done_call(op, kind);
    void *tree = l && op->err == KC_OK ? l->tree : NULL;
    if (tree) l->tree = NULL;
    return tree;
}

static kc_err look_make(kc_client *c, const struct kc_admin_kind *kind, size_t size, int32_t broker, int64_t timeout_us, uint64_t opaque,
                        kc_op **op, kc_error **error) {
    kc_err err = kc_admin_make(c, kind, look_new(size), timeout_us, opaque, op, error);
    if (err == KC_OK) kc_admin_of(*op)->broker = broker;
    return err;
}

/* NULL: *err says why. */
static void *look(kc_client *c, const struct kc_admin_kind *kind, size_t size, int32_t broker, int64_t timeout_us, kc_err *err,
                  kc_error **error) {
    kc_op *op = NULL;
    *err = look_make(c, kind, size, broker, timeout_us, 0, &op, error);
    if (*err != KC_OK) return NULL;
    *err = kc_op_run(op, KC_FOREVER, error); /* the call keeps its own limit */
    void *tree = take(op, kind);
    kc_op_free(op);
    return tree;
}

static kc_err look_start(kc_client *c, const struct kc_admin_kind *kind, size_t size, int32_t broker, int64_t timeout_us, uint64_t opaque,
                         kc_op **op, kc_error **error) {
    kc_op *made = NULL;
    if (!op) return kc_admin_invalid(kind, error);
    kc_err err = look_make(c, kind, size, broker, timeout_us, opaque, &made, error);
    return kc_admin_begin(err, made, op);
}

/* ---- Moves under way ---- */

struct kc_reassignment_list {
    struct kw_arena arena;
    kc_reassignment *v;
    size_t count;
};

static kw_err moves_encode(struct kc_admin *a, int16_t version, struct kw_arena *arena, struct kw_out *out) {
    struct kw_list_partition_reassignments_request m;
    (void)arena;
    kw_msg_init(&kw_list_partition_reassignments_request_desc, &m);
    m.timeout_ms = kc_admin_time_left_ms(a);
    m.topics.n = -1;
    return kw_encode(&kw_list_partition_reassignments_request_desc, version, &m, out);
}

static kc_err moves_read(struct kc_admin *a, struct kw_in *body, struct kw_arena *arena, kc_error **error) {
    kc_reassignment_list *l = ((struct look *)a->call)->tree;
    struct kw_list_partition_reassignments_response m;
    kc_err err = kc_admin_decode(a, &kw_list_partition_reassignments_response_desc, body, arena, &m, &m.throttle_time_ms);
    if (err == KC_OK) err = kc_admin_whole(a, m.error_code, m.error_message, error);
    if (err != KC_OK) return err;
    size_t count = 0;
    for (int32_t t = 0; t < m.topics.n; t++) count += (size_t)KW_MAX(m.topics.v[t].partitions.n, 0);
    l->v = kw_arena_calloc(&l->arena, count + 1, sizeof *l->v);
    if (!l->v) return KC_NO_MEMORY;
    bool ok = true;
    for (int32_t t = 0; t < m.topics.n && ok; t++) {
        const char *topic = kc_admin_keep_str(&l->arena, m.topics.v[t].name);
        if (!topic) return KC_NO_MEMORY;
        for (int32_t i = 0; i < m.topics.v[t].partitions.n; i++) {
            const struct kw_list_partition_reassignments_response_ongoing_partition_reassignment *p = &m.topics.v[t].partitions.v[i];
            kc_reassignment *r = &l->v[l->count++];
            *r = (kc_reassignment){.topic = topic, .partition = p->partition_index};
            r->replicas = kc_admin_keep_ids(&l->arena, p->replicas.v, p->replicas.n, &r->replica_count, &ok);
            r->adding = kc_admin_keep_ids(&l->arena, p->adding_replicas.v, p->adding_replicas.n, &r->adding_count, &ok);
            r->removing = kc_admin_keep_ids(&l->arena, p->removing_replicas.v, p->removing_replicas.n, &r->removing_count, &ok);
        }
    }
    return ok ? KC_OK : KC_NO_MEMORY;
}

static const struct kc_admin_kind moves_kind = {"list reassignments", KW_API_LIST_PARTITION_REASSIGNMENTS, 0, KC_BROKER_CONTROLLER, moves_encode,
                                                moves_read, NULL, NULL, look_free};

kc_err kc_admin_list_reassignments(kc_client *c, int64_t timeout_us, kc_reassignment_list **out, kc_error **error) {
    if (!out) return kc_admin_invalid(&moves_kind, error);
    kc_err err;
    void *tree = look(c, &moves_kind, sizeof(kc_reassignment_list), KC_BROKER_CONTROLLER, timeout_us, &err, error);
    if (tree) *out = tree;
    return err;
}

kc_err kc_admin_list_reassignments_start(kc_client *c, int64_t timeout_us, uint64_t opaque, kc_op **op, kc_error **error) {
    return look_start(c, &moves_kind, sizeof(kc_reassignment_list), KC_BROKER_CONTROLLER, timeout_us, opaque, op, error);
}

kc_reassignment_list *kc_op_result_reassignments(kc_op *op) {
    return take(op, &moves_kind);
}

size_t kc_reassignment_list_count(const kc_reassignment_list *l) {
    return l ? l->count : 0;
}

kc_err kc_reassignment_list_get(const kc_reassignment_list *l, size_t index, kc_reassignment *out) {
    if (!l || !out || index >= l->count) return KC_INVALID;
    *out = l->v[index];
    return KC_OK;
}

void kc_reassignment_list_free(kc_reassignment_list *l) {
    tree_free(l);
}

/* ---- The metadata quorum ---- */

struct kc_quorum_info {
    struct kw_arena arena;
    int32_t leader, epoch;
    int64_t high_watermark;
    kc_quorum_replica *v;
    size_t count;
};

static kw_err quorum_encode(struct kc_admin *a, int16_t version, struct kw_arena *arena, struct kw_out *out) {
    (void)a;
    (void)arena;
    struct kw_describe_quorum_request_partition_data p = {.partition_index = 0};
    struct kw_describe_quorum_request_topic_data t = {.topic_name = kw_str_of("__cluster_metadata"), .partitions = {&p, 1}};
    struct kw_describe_quorum_request m;
    kw_msg_init(&kw_describe_quorum_request_desc, &m);
    m.topics.v = &t;
    m.topics.n = 1;
    return kw_encode(&kw_describe_quorum_request_desc, version, &m, out);
}

/* Times are the leader's wall clock, and its own entry is of the moment of the answer: so no clock of ours is asked. */
static int64_t ago(int64_t now_ms, int64_t at_ms) {
    return now_ms < 0 || at_ms < 0 ? -1 : KW_MAX(now_ms - at_ms, 0);
}

static void quorum_replicas(kc_quorum_info *q, const struct kw_describe_quorum_response_replica_state *v, int32_t n, bool voters, int64_t now_ms) {
    for (int32_t i = 0; i < n; i++) {
        kc_quorum_replica *r = &q->v[q->count++];
        *r = (kc_quorum_replica){.id = v[i].replica_id,
                                 .voter = voters,
                                 .log_end = v[i].log_end_offset,
                                 .fetched_ms_ago = ago(now_ms, v[i].last_fetch_timestamp),
                                 .caught_up_ms_ago = ago(now_ms, v[i].last_caught_up_timestamp)};
        memcpy(r->directory, v[i].replica_directory_id.b, sizeof r->directory);
    }
}

static kc_err quorum_read(struct kc_admin *a, struct kw_in *body, struct kw_arena *arena, kc_error **error) {
    kc_quorum_info *q = ((struct look *)a->call)->tree;
    struct kw_describe_quorum_response m;
    int32_t no_throttle = 0;
    kc_err err = kc_admin_decode(a, &kw_describe_quorum_response_desc, body, arena, &m, &no_throttle);
    if (err == KC_OK) err = kc_admin_whole(a, m.error_code, m.error_message, error);
    if (err != KC_OK) return err;
    if (m.topics.n != 1 || m.topics.v[0].partitions.n != 1) return KC_BAD_MESSAGE;
    const struct kw_describe_quorum_response_partition_data *p = &m.topics.v[0].partitions.v[0];
    err = kc_admin_whole(a, p->error_code, p->error_message, error);
    if (err != KC_OK) return err;
    int64_t now_ms = -1;
    for (int32_t i = 0; i < p->current_voters.n; i++)
        if (p->current_voters.v[i].replica_id == p->leader_id)
            now_ms = KW_MAX(p->current_voters.v[i].last_fetch_timestamp, p->current_voters.v[i].last_caught_up_timestamp);
    q->leader = p->leader_id;
    q->epoch = p->leader_epoch;
    q->high_watermark = p->high_watermark;
    q->v = kw_arena_calloc(&q->arena, (size_t)KW_MAX(p->current_voters.n, 0) + (size_t)KW_MAX(p->observers.n, 0) + 1, sizeof *q->v);
    if (!q->v) return KC_NO_MEMORY;
    quorum_replicas(q, p->current_voters.v, p->current_voters.n, true, now_ms);
    quorum_replicas(q, p->observers.v, p->observers.n, false, now_ms);
    return KC_OK;
}

static const struct kc_admin_kind quorum_kind = {"describe the quorum", KW_API_DESCRIBE_QUORUM, 0, KC_BROKER_CONTROLLER, quorum_encode, quorum_read,
                                                 NULL, NULL, look_free};

kc_err kc_admin_describe_quorum(kc_client *c, int64_t timeout_us, kc_quorum_info **out, kc_error **error) {
    if (!out) return kc_admin_invalid(&quorum_kind, error);
    kc_err err;
    void *tree = look(c, &quorum_kind, sizeof(kc_quorum_info), KC_BROKER_CONTROLLER, timeout_us, &err, error);
    if (tree) *out = tree;
    return err;
}

kc_err kc_admin_describe_quorum_start(kc_client *c, int64_t timeout_us, uint64_t opaque, kc_op **op, kc_error **error) {
    return look_start(c, &quorum_kind, sizeof(kc_quorum_info), KC_BROKER_CONTROLLER, timeout_us, opaque, op, error);
}

kc_quorum_info *kc_op_result_quorum(kc_op *op) {
    return take(op, &quorum_kind);
}

int32_t kc_quorum_info_leader(const kc_quorum_info *q) {
    return q ? q->leader : -1;
}
int32_t kc_quorum_info_epoch(const kc_quorum_info *q) {
    return q ? q->epoch : -1;
}
int64_t kc_quorum_info_high_watermark(const kc_quorum_info *q) {
    return q ? q->high_watermark : -1;
}
size_t kc_quorum_info_count(const kc_quorum_info *q) {
    return q ? q->count : 0;
}

kc_err kc_quorum_info_get(const kc_quorum_info *q, size_t index, kc_quorum_replica *out) {
    if (!q || !out || index >= q->count) return KC_INVALID;
    *out = q->v[index];
    return KC_OK;
}

void kc_quorum_info_free(kc_quorum_info *q) {
    tree_free(q);
}

/* ---- Log directories ---- */

struct kc_log_dir_list {
    struct kw_arena arena;
    kc_log_dir *dirs;
    size_t dir_count;
    kc_log_dir_replica *replicas;
    size_t replica_count;
};

static kw_err dirs_encode(struct kc_admin *a, int16_t version, struct kw_arena *arena, struct kw_out *out) {
    struct kw_describe_log_dirs_request m;
    (void)a;
    (void)arena;
    kw_msg_init(&kw_describe_log_dirs_request_desc, &m);
    m.topics.n = -1;
    return kw_encode(&kw_describe_log_dirs_request_desc, version, &m, out);
}

static kc_err keep_dir(kc_log_dir_list *l, const struct kw_describe_log_dirs_response_describe_log_dirs_result *d) {
    size_t at = l->dir_count++;
    l->dirs[at] = (kc_log_dir){
        .path = kc_admin_keep_str(&l->arena, d->log_dir), .err = d->error_code, .total_bytes = d->total_bytes, .usable_bytes = d->usable_bytes};
    if (!l->dirs[at].path) return KC_NO_MEMORY;
    for (int32_t t = 0; t < d->topics.n; t++) {
        const char *topic = kc_admin_keep_str(&l->arena, d->topics.v[t].name);
        if (!topic) return KC_NO_MEMORY;
        for (int32_t i = 0; i < d->topics.v[t].partitions.n; i++) {
            const struct kw_describe_log_dirs_response_describe_log_dirs_partition *p = &d->topics.v[t].partitions.v[i];
            l->replicas[l->replica_count++] = (kc_log_dir_replica){.dir = at,
                                                                   .topic = topic,
                                                                   .partition = p->partition_index,
                                                                   .size = p->partition_size,
                                                                   .lag = p->offset_lag,
                                                                   .future = p->is_future_key};
        }
    }
    return KC_OK;
}

static kc_err dirs_read(struct kc_admin *a, struct kw_in *body, struct kw_arena *arena, kc_error **error) {
    kc_log_dir_list *l = ((struct look *)a->call)->tree;
    struct kw_describe_log_dirs_response m;
    kc_err err = kc_admin_decode(a, &kw_describe_log_dirs_response_desc, body, arena, &m, &m.throttle_time_ms);
    if (err == KC_OK) err = kc_admin_whole(a, m.error_code, kw_str_null(), error);
    if (err != KC_OK) return err;
    size_t count = 0;
    for (int32_t d = 0; d < m.results.n; d++)
        for (int32_t t = 0; t < m.results.v[d].topics.n; t++) count += (size_t)KW_MAX(m.results.v[d].topics.v[t].partitions.n, 0);
    l->dirs = kw_arena_calloc(&l->arena, (size_t)KW_MAX(m.results.n, 0) + 1, sizeof *l->dirs);
    l->replicas = kw_arena_calloc(&l->arena, count + 1, sizeof *l->replicas);
    if (!l->dirs || !l->replicas) return KC_NO_MEMORY;
    for (int32_t d = 0; d < m.results.n && err == KC_OK; d++) err = keep_dir(l, &m.results.v[d]);
    return err;
}

static const struct kc_admin_kind dirs_kind = {"describe log directories", KW_API_DESCRIBE_LOG_DIRS, 0, KC_BROKER_ANY, dirs_encode, dirs_read,
                                               NULL, NULL, look_free};

kc_err kc_admin_describe_log_dirs(kc_client *c, int32_t broker, int64_t timeout_us, kc_log_dir_list **out, kc_error **error) {
    if (!out || broker < 0) return kc_admin_invalid(&dirs_kind, error);
    kc_err err;
    void *tree = look(c, &dirs_kind, sizeof(kc_log_dir_list), broker, timeout_us, &err, error);
    if (tree) *out = tree;
    return err;
}

kc_err kc_admin_describe_log_dirs_start(kc_client *c, int32_t broker, int64_t timeout_us, uint64_t opaque, kc_op **op, kc_error **error) {
    if (broker < 0) return kc_admin_invalid(&dirs_kind, error);
    return look_start(c, &dirs_kind, sizeof(kc_log_dir_list), broker, timeout_us, opaque, op, error);
}

kc_log_dir_list *kc_op_result_log_dirs(kc_op *op) {
    return take(op, &dirs_kind);
}

size_t kc_log_dir_list_count(const kc_log_dir_list *l) {
    return l ? l->dir_count : 0;
}

kc_err kc_log_dir_list_get(const kc_log_dir_list *l, size_t index, kc_log_dir *out) {
    if (!l || !out || index >= l->dir_count) return KC_INVALID;
    *out = l->dirs[index];
    return KC_OK;
}

size_t kc_log_dir_list_replica_count(const kc_log_dir_list *l) {
    return l ? l->replica_count : 0;
}

kc_err kc_log_dir_list_replica(const kc_log_dir_list *l, size_t index, kc_log_dir_replica *out) {
    if (!l || !out || index >= l->replica_count) return KC_INVALID;
    *out = l->replicas[index];
    return KC_OK;
}

void kc_log_dir_list_free(kc_log_dir_list *l) {
    tree_free(l);
}

/* ---- What nodes have counted ---- */

struct kc_count_list {
    struct kw_arena arena;
    kc_count *v;
    size_t count;
};

/* A broker tells of itself; the controller, which may be no broker, is reached by the request that every broker passes on to it. */
static kw_err counts_encode(struct kc_admin *a, int16_t version, struct kw_arena *arena, struct kw_out *out) {
    (void)arena;
    if (a->api == KW_API_DESCRIBE_CLUSTER) {
        struct kw_describe_cluster_request m;
        kw_msg_init(&kw_describe_cluster_request_desc, &m);
        m.include_counts = true;
        return kw_encode(&kw_describe_cluster_request_desc, version, &m, out);
    }
    struct kw_describe_quorum_request_partition_data p = {.partition_index = 0}; /* so that a node that is not the controller says so */
    struct kw_describe_quorum_request_topic_data t = {.topic_name = kw_str_of("__cluster_metadata"), .partitions = {&p, 1}};
    struct kw_describe_quorum_request m;
    kw_msg_init(&kw_describe_quorum_request_desc, &m);
    m.topics.v = &t;
    m.topics.n = 1;
    m.include_counts = true;
    return kw_encode(&kw_describe_quorum_request_desc, version, &m, out);
}

static kc_err keep_count(kc_count_list *l, struct kw_str name, int64_t value) {
    const char *kept = kc_admin_keep_str(&l->arena, name);
    if (!kept) return KC_NO_MEMORY;
    l->v[l->count++] = (kc_count){kept, value};
    return KC_OK;
}

static kc_err counts_read(struct kc_admin *a, struct kw_in *body, struct kw_arena *arena, kc_error **error) {
    kc_count_list *l = ((struct look *)a->call)->tree;
    struct kw_describe_cluster_response c;
    struct kw_describe_quorum_response q;
    bool of_broker = a->api == KW_API_DESCRIBE_CLUSTER;
    int32_t no_throttle = 0;
    kc_err err = of_broker ? kc_admin_decode(a, &kw_describe_cluster_response_desc, body, arena, &c, &c.throttle_time_ms)
                           : kc_admin_decode(a, &kw_describe_quorum_response_desc, body, arena, &q, &no_throttle);
    if (err == KC_OK)
        err = of_broker ? kc_admin_whole(a, c.error_code, c.error_message, error) : kc_admin_whole(a, q.error_code, q.error_message, error);
    if (err != KC_OK) return err;
    int32_t n = of_broker ? c.counts.n : q.counts.n;
    if (n <= 0) return KC_UNSUPPORTED;
    l->v = kw_arena_calloc(&l->arena, (size_t)n, sizeof *l->v);
    if (!l->v) return KC_NO_MEMORY;
    for (int32_t i = 0; i < n && err == KC_OK; i++)
        err = of_broker ? keep_count(l, c.counts.v[i].name, c.counts.v[i].value) : keep_count(l, q.counts.v[i].name, q.counts.v[i].value);
    return err;
}

static const struct kc_admin_kind counts_kind = {"tell counts", KW_API_DESCRIBE_CLUSTER, 0, KC_BROKER_ANY, counts_encode, counts_read, NULL, NULL, look_free};

static kc_err counts_make(kc_client *c, int32_t broker, int64_t timeout_us, uint64_t opaque, kc_op **op, kc_error **error) {
    if (broker < -1) return kc_admin_invalid(&counts_kind, error);
    kc_err err = look_make(c, &counts_kind, sizeof(kc_count_list), broker, timeout_us, opaque, op, error);
    if (err == KC_OK && broker < 0) kc_admin_step(kc_admin_of(*op), KW_API_DESCRIBE_QUORUM, 0, KC_BROKER_CONTROLLER);
    return err;
}

kc_err kc_admin_node_counts_start(kc_client *c, int32_t broker, int64_t timeout_us, uint64_t opaque, kc_op **op, kc_error **error) {
    kc_op *made = NULL;
    if (!op) return kc_admin_invalid(&counts_kind, error);
    kc_err err = counts_make(c, broker, timeout_us, opaque, &made, error);
    return kc_admin_begin(err, made, op);
}

kc_err kc_admin_node_counts(kc_client *c, int32_t broker, int64_t timeout_us, kc_count_list **out, kc_error **error) {
    kc_op *op = NULL;
    if (!out) return kc_admin_invalid(&counts_kind, error);
    kc_err err = counts_make(c, broker, timeout_us, 0, &op, error);
    if (err != KC_OK) return err;
    err = kc_op_run(op, KC_FOREVER, error); /* the call keeps its own limit */
    if (err == KC_OK) *out = kc_op_result_counts(op);
    kc_op_free(op);
    return err;
}

kc_count_list *kc_op_result_counts(kc_op *op) {
    return take(op, &counts_kind);
}

size_t kc_count_list_count(const kc_count_list *l) {
    return l ? l->count : 0;
}

kc_err kc_count_list_get(const kc_count_list *l, size_t index, kc_count *out) {
    if (!l || !out || index >= l->count) return KC_INVALID;
    *out = l->v[index];
    return KC_OK;
}

void kc_count_list_free(kc_count_list *l) {
    tree_free(l);
}
