/* image.c - replays metadata records into the image: topics and their partitions, brokers, features, producer ids.
 *
 * Called by the store, one committed record at a time. Configurations are in image_config.c, the way back to records in image_emit.c.
 * KIP-631.
 */
#include "image.h"

#include "image_priv.h"

void kb_image_init(struct kb_image *im) {
    *im = (struct kb_image){.offset = -1};
    kw_map_init(&im->topics_by_name);
    kw_map_init(&im->topics_by_id);
    kw_map_init(&im->topics_by_normal);
    kw_map_init(&im->brokers);
    kw_map_init(&im->configs);
    kw_map_init(&im->features);
}

static void partition_deinit(struct kb_image_partition *p) {
    kw_free(p->replicas);
    kw_free(p->isr);
    kw_free(p->adding);
    kw_free(p->removing);
    kw_free(p->elr);
    kw_free(p->last_known_elr);
    kw_free(p->directories);
}

static void topic_free(struct kb_image_topic *t) {
    for (int32_t i = 0; i < t->partition_count; i++) partition_deinit(&t->partitions[i]);
    kw_free(t->partitions);
    kw_free(t->name);
    kw_free(t);
}

static void broker_free(struct kb_image_broker *b) {
    for (int32_t i = 0; i < b->endpoint_count; i++) {
        kw_free(b->endpoints[i].name);
        kw_free(b->endpoints[i].host);
    }
    for (int32_t i = 0; i < b->feature_count; i++) kw_free(b->features[i].name);
    kw_free(b->endpoints);
    kw_free(b->features);
    kw_free(b->log_dirs);
    kw_free(b->rack);
    kw_free(b);
}

void kb_image_deinit(struct kb_image *im) {
    void *v;
    for (size_t it = 0; (v = kw_map_next(&im->topics_by_name, &it));) topic_free(v);
    for (size_t it = 0; (v = kw_map_next(&im->brokers, &it));) broker_free(v);
    for (size_t it = 0; (v = kw_map_next(&im->features, &it));) {
        kw_free(((struct kb_image_level *)v)->name);
        kw_free(v);
    }
    kw_map_deinit(&im->topics_by_name);
    kw_map_deinit(&im->topics_by_id);
    kw_map_deinit(&im->topics_by_normal);
    kw_map_deinit(&im->brokers);
    kw_map_deinit(&im->features);
    kb_image_config_deinit(im);
}

char *kb_image_strdup(struct kw_str s) {
    if (s.len < 0) return NULL;
    char *z = kw_malloc((size_t)s.len + 1);
    if (!z) return NULL;
    if (s.len) memcpy(z, s.p, (size_t)s.len);
    z[s.len] = 0;
    return z;
}

/* Replaces *v by a copy; an empty list is NULL. */
static kw_err copy_array(void **v, int32_t *n, const void *from, int32_t count, size_t size) {
    void *copy = NULL;
    if (count < 0) count = 0;
    if (count > 0 && !(copy = kw_memdup(from, (size_t)count * size))) return KW_ENOMEM;
    kw_free(*v);
    *v = copy;
    *n = count;
    return KW_OK;
}
static kw_err copy_ids(int32_t **v, int32_t *n, const int32_t *from, int32_t count) {
    return copy_array((void **)v, n, from, count, sizeof(int32_t));
}
static kw_err copy_uuids(struct kw_uuid **v, int32_t *n, const struct kw_uuid *from, int32_t count) {
    return copy_array((void **)v, n, from, count, sizeof(struct kw_uuid));
}

/* Names and values are kept as text that ends with a zero byte: one inside would part them from the keys that they are found by. */
bool kb_image_is_text(struct kw_str s) {
    return s.len <= 0 || !memchr(s.p, 0, (size_t)s.len);
}

const char *kb_topic_name_problem(struct kw_str name) {
    if (name.len <= 0) return "a topic's name must not be empty";
    if (name.len > 249) return "a topic's name must not be longer than 249 characters";
    if ((name.len == 1 && name.p[0] == '.') || (name.len == 2 && name.p[0] == '.' && name.p[1] == '.'))
        return "a topic must not be called . or ..";
    for (int32_t i = 0; i < name.len; i++) {
        char c = name.p[i];
        bool ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
        if (!ok) return "a topic's name may only have ASCII letters, digits, '.', '_' and '-'";
    }
    if (kw_str_eq(name, kw_str_of("__cluster_metadata"))) return "__cluster_metadata is the cluster's own";
    return NULL;
}

/* ---- Look-ups ---- */

#define TOPIC_NAME_MAX 249

static size_t normal_name(char out[TOPIC_NAME_MAX], struct kw_str name) {
    if (name.len <= 0 || name.len > TOPIC_NAME_MAX) return 0;
    for (int32_t i = 0; i < name.len; i++) out[i] = name.p[i] == '.' ? '_' : name.p[i];
    return (size_t)name.len;
}

struct kb_image_topic *kb_image_topic(const struct kb_image *im, struct kw_str name) {
    return name.len > 0 ? kw_map_get_str(&im->topics_by_name, name) : NULL;
}

struct kb_image_topic *kb_image_topic_by_id(const struct kb_image *im, struct kw_uuid id) {
    return kw_map_get(&im->topics_by_id, id.b, sizeof(id.b));
}

struct kb_image_topic *kb_image_topic_alike(const struct kb_image *im, struct kw_str name) {
    char normal[TOPIC_NAME_MAX];
    size_t n = normal_name(normal, name);
    return n ? kw_map_get(&im->topics_by_normal, normal, n) : NULL;
}

struct kb_image_partition *kb_image_partition(const struct kb_image *im, struct kw_str topic, int32_t index) {
    struct kb_image_topic *t = kb_image_topic(im, topic);
    return t && index >= 0 && index < t->partition_count ? &t->partitions[index] : NULL;
}

struct kb_image_broker *kb_image_broker(const struct kb_image *im, int32_t id) {
    return kw_map_get_u64(&im->brokers, (uint32_t)id);
}

/* ---- Topics ---- */

static bool is_internal(struct kw_str name) {
    return kw_str_eq(name, kw_str_of("__consumer_offsets")) || kw_str_eq(name, kw_str_of("__transaction_state")) ||
           kw_str_eq(name, kw_str_of("__share_group_state"));
}

static kw_err apply_topic(struct kb_image *im, const struct kw_topic_record *r) {
    char normal[TOPIC_NAME_MAX];
    size_t n = normal_name(normal, r->name);
    if (!n || kb_topic_name_problem(r->name) || kb_image_topic(im, r->name) || kb_image_topic_by_id(im, r->topic_id)) return KW_EDECODE;
    struct kb_image_topic *t = kw_calloc(1, sizeof(*t));
    if (!t) return KW_ENOMEM;
    t->id = r->topic_id;
    t->internal = is_internal(r->name);
    t->name = kb_image_strdup(r->name);
    if (!t->name) goto fail;
    if (kw_map_put(&im->topics_by_name, r->name.p, (size_t)r->name.len, t)) goto fail;
    if (kw_map_put(&im->topics_by_id, t->id.b, sizeof(t->id.b), t)) goto fail_name;
    if (!kw_map_get(&im->topics_by_normal, normal, n) && kw_map_put(&im->topics_by_normal, normal, n, t)) goto fail_id;
    return KW_OK;
fail_id:
    kw_map_remove(&im->topics_by_id, t->id.b, sizeof(t->id.b));
fail_name:
    kw_map_remove(&im->topics_by_name, r->name.p, (size_t)r->name.len);
fail:
    topic_free(t);
    return KW_ENOMEM;
}

static kw_err apply_remove_topic(struct kb_image *im, const struct kw_remove_topic_record *r) {
    struct kb_image_topic *t = kb_image_topic_by_id(im, r->topic_id);
    if (!t) return KW_EDECODE;
    if (im->observer.topic_removed) {
        kw_err err = im->observer.topic_removed(im->observer.ctx, t);
        if (err) return err;
    }
    char normal[TOPIC_NAME_MAX];
    struct kw_str name = kw_str_of(t->name);
    size_t n = normal_name(normal, name);
    if (kw_map_get(&im->topics_by_normal, normal, n) == t) kw_map_remove(&im->topics_by_normal, normal, n);
    kw_map_remove(&im->topics_by_id, t->id.b, sizeof(t->id.b));
    kw_map_remove(&im->topics_by_name, name.p, (size_t)name.len);
    kb_image_config_drop(im, 2, name);
    im->partition_count -= t->partition_count;
    topic_free(t);
    return KW_OK;
}

/* ---- Partitions ---- */

/* Room for one more; capacities are powers of two, so the count tells them. */
static kw_err grow(struct kb_image_topic *t) {
    size_t n = (size_t)t->partition_count;
    if (n & (n - 1)) return KW_OK;
    struct kb_image_partition *v = kw_realloc(t->partitions, (n ? 2 * n : 1) * sizeof(*v));
    if (!v) return KW_ENOMEM;
    t->partitions = v;
    return KW_OK;
}

static kw_err fill_partition(struct kb_image_partition *p, const struct kw_partition_record *r) {
    kw_err err = copy_ids(&p->replicas, &p->replica_count, r->replicas.v, r->replicas.n);
    if (!err) err = copy_ids(&p->isr, &p->isr_count, r->isr.v, r->isr.n);
    if (!err) err = copy_ids(&p->adding, &p->adding_count, r->adding_replicas.v, r->adding_replicas.n);
    if (!err) err = copy_ids(&p->removing, &p->removing_count, r->removing_replicas.v, r->removing_replicas.n);
    if (!err) err = copy_ids(&p->elr, &p->elr_count, r->eligible_leader_replicas.v, r->eligible_leader_replicas.n);
    if (!err) err = copy_ids(&p->last_known_elr, &p->last_known_elr_count, r->last_known_elr.v, r->last_known_elr.n);
    if (!err) err = copy_uuids(&p->directories, &p->directory_count, r->directories.v, r->directories.n);
    p->index = r->partition_id;
    p->leader = r->leader;
    p->leader_epoch = r->leader_epoch;
    p->partition_epoch = r->partition_epoch;
    p->recovery_state = r->leader_recovery_state;
    return err;
}

static kw_err tell_partition(struct kb_image *im, struct kb_image_topic *t, struct kb_image_partition *p) {
    return im->observer.partition ? im->observer.partition(im->observer.ctx, t, p) : KW_OK;
}

static kw_err apply_partition(struct kb_image *im, const struct kw_partition_record *r) {
    struct kb_image_topic *t = kb_image_topic_by_id(im, r->topic_id);
    if (!t || r->partition_id < 0 || r->partition_id > t->partition_count || r->replicas.n <= 0) return KW_EDECODE;
    if (r->partition_id == t->partition_count) {
        kw_err err = grow(t);
        if (err) return err;
        t->partitions[t->partition_count++] = (struct kb_image_partition){0};
        im->partition_count++;
    }
    struct kb_image_partition *p = &t->partitions[r->partition_id];
    kw_err err = fill_partition(p, r);
    return err ? err : tell_partition(im, t, p);
}

#define NO_LEADER_CHANGE (-2)

static kw_err apply_partition_change(struct kb_image *im, const struct kw_partition_change_record *r) {
    struct kb_image_topic *t = kb_image_topic_by_id(im, r->topic_id);
    if (!t || r->partition_id < 0 || r->partition_id >= t->partition_count) return KW_EDECODE;
    struct kb_image_partition *p = &t->partitions[r->partition_id];
    bool led_anew = r->leader != NO_LEADER_CHANGE;
    if (p->partition_epoch == INT32_MAX || (led_anew && p->leader_epoch == INT32_MAX) || r->replicas.n == 0) return KW_EDECODE;
    kw_err err = KW_OK;
    if (r->isr.n >= 0) err = copy_ids(&p->isr, &p->isr_count, r->isr.v, r->isr.n);
    if (!err && r->replicas.n >= 0) err = copy_ids(&p->replicas, &p->replica_count, r->replicas.v, r->replicas.n);
    if (!err && r->removing_replicas.n >= 0)
        err = copy_ids(&p->removing, &p->removing_count, r->removing_replicas.v, r->removing_replicas.n);
    if (!err && r->adding_replicas.n >= 0) err = copy_ids(&p->adding, &p->adding_count, r->adding_replicas.v, r->adding_replicas.n);
    if (!err && r->eligible_leader_replicas.n >= 0)
        err = copy_ids(&p->elr, &p->elr_count, r->eligible_leader_replicas.v, r->eligible_leader_replicas.n);
    if (!err && r->last_known_elr.n >= 0)
        err = copy_ids(&p->last_known_elr, &p->last_known_elr_count, r->last_known_elr.v, r->last_known_elr.n);
    if (!err && r->directories.n >= 0) err = copy_uuids(&p->directories, &p->directory_count, r->directories.v, r->directories.n);
    if (err) return err;
    if (led_anew) {
        p->leader = r->leader;
        p->leader_epoch++;
    }
    if (r->leader_recovery_state >= 0) p->recovery_state = r->leader_recovery_state;
    p->partition_epoch++;
    return tell_partition(im, t, p);
}

/* Counts as a change of each partition that has such replicas (KIP-966). */
static kw_err clear_elr(struct kb_image *im, struct kb_image_topic *t) {
    for (int32_t i = 0; i < t->partition_count; i++) {
        if (t->partitions[i].elr_count == 0 && t->partitions[i].last_known_elr_count == 0) continue;
        struct kw_partition_change_record r;
        kw_msg_init(&kw_partition_change_record_desc, &r);
        r.topic_id = t->id;
        r.partition_id = i;
        r.eligible_leader_replicas.n = r.last_known_elr.n = 0;
        kw_err err = apply_partition_change(im, &r);
        if (err) return err;
    }
    return KW_OK;
}

static kw_err apply_clear_elr(struct kb_image *im, const struct kw_clear_elr_record *r) {
    if (r->topic_name.len > 0) {
        struct kb_image_topic *t = kb_image_topic(im, r->topic_name);
        return t ? clear_elr(im, t) : KW_EDECODE;
    }
    kw_err err = KW_OK;
    struct kb_image_topic *t;
    for (size_t it = 0; !err && (t = kw_map_next(&im->topics_by_id, &it));) err = clear_elr(im, t);
    return err;
}

/* ---- Brokers ---- */

static kw_err fill_broker(struct kb_image_broker *b, const struct kw_register_broker_record *r) {
    size_t endpoints = r->end_points.n > 0 ? (size_t)r->end_points.n : 0, features = r->features.n > 0 ? (size_t)r->features.n : 0;
    b->id = r->broker_id;
    b->epoch = r->broker_epoch;
    b->fenced = r->fenced;
    b->in_controlled_shutdown = r->in_controlled_shutdown;
    b->incarnation = r->incarnation_id;
    if (r->rack.len >= 0 && !(b->rack = kb_image_strdup(r->rack))) return KW_ENOMEM;
    b->endpoints = kw_calloc(endpoints + 1, sizeof(*b->endpoints));
    b->features = kw_calloc(features + 1, sizeof(*b->features));
    if (!b->endpoints || !b->features) return KW_ENOMEM;
    for (size_t i = 0; i < endpoints; i++) {
        struct kb_image_endpoint *e = &b->endpoints[b->endpoint_count++];
        e->name = kb_image_strdup(r->end_points.v[i].name);
        e->host = kb_image_strdup(r->end_points.v[i].host);
        e->port = r->end_points.v[i].port;
        e->protocol = r->end_points.v[i].security_protocol;
        if (!e->name || !e->host) return KW_ENOMEM;
    }
    for (size_t i = 0; i < features; i++) {
        struct kb_image_feature *f = &b->features[b->feature_count++];
        f->name = kb_image_strdup(r->features.v[i].name);
        f->min = r->features.v[i].min_supported_version;
        f->max = r->features.v[i].max_supported_version;
        if (!f->name) return KW_ENOMEM;
    }
    return copy_uuids(&b->log_dirs, &b->log_dir_count, r->log_dirs.v, r->log_dirs.n);
}

static bool is_broker_text(const struct kw_register_broker_record *r) {
    bool ok = kb_image_is_text(r->rack);
    for (int32_t i = 0; i < r->end_points.n; i++) ok = ok && kb_image_is_text(r->end_points.v[i].name) && kb_image_is_text(r->end_points.v[i].host);
    for (int32_t i = 0; i < r->features.n; i++) ok = ok && kb_image_is_text(r->features.v[i].name);
    return ok;
}

static kw_err apply_register_broker(struct kb_image *im, const struct kw_register_broker_record *r) {
    if (!is_broker_text(r)) return KW_EDECODE;
    struct kb_image_broker *b = kw_calloc(1, sizeof(*b));
    if (!b) return KW_ENOMEM;
    struct kb_image_broker *old = kb_image_broker(im, r->broker_id);
    kw_err err = fill_broker(b, r);
    if (!err) err = kw_map_put_u64(&im->brokers, (uint32_t)r->broker_id, b);
    if (err) {
        broker_free(b);
        return err;
    }
    if (old) broker_free(old);
    im->broker_news++;
    return KW_OK;
}

static kw_err apply_unregister_broker(struct kb_image *im, const struct kw_unregister_broker_record *r) {
    struct kb_image_broker *b = kw_map_remove_u64(&im->brokers, (uint32_t)r->broker_id);
    if (!b) return KW_EDECODE;
    broker_free(b);
    im->broker_news++;
    return KW_OK;
}

static kw_err apply_registration_change(struct kb_image *im, const struct kw_broker_registration_change_record *r) {
    struct kb_image_broker *b = kb_image_broker(im, r->broker_id);
    if (!b || b->epoch != r->broker_epoch) return KW_EDECODE;
    im->broker_news++;
    if (r->fenced) b->fenced = r->fenced > 0;
    if (r->in_controlled_shutdown) b->in_controlled_shutdown = r->in_controlled_shutdown > 0;
    return r->log_dirs.n > 0 ? copy_uuids(&b->log_dirs, &b->log_dir_count, r->log_dirs.v, r->log_dirs.n) : KW_OK;
}

/* As Kafka wrote it before it had registration changes: one record to fence, one to unfence. */
static kw_err set_fenced(struct kb_image *im, int32_t id, int64_t epoch, bool fenced) {
    struct kb_image_broker *b = kb_image_broker(im, id);
    if (!b || b->epoch != epoch) return KW_EDECODE;
    b->fenced = fenced;
    im->broker_news++;
    return KW_OK;
}
static kw_err apply_fence(struct kb_image *im, const struct kw_fence_broker_record *r) {
    return set_fenced(im, r->id, r->epoch, true);
}
static kw_err apply_unfence(struct kb_image *im, const struct kw_unfence_broker_record *r) {
    return set_fenced(im, r->id, r->epoch, false);
}

/* ---- Features ---- */

static kw_err apply_feature(struct kb_image *im, const struct kw_feature_level_record *r) {
    if (r->name.len <= 0 || !kb_image_is_text(r->name)) return KW_EDECODE;
    struct kb_image_level *f = kw_map_get_str(&im->features, r->name);
    if (r->feature_level == 0) {
        if (!f) return KW_OK;
        kw_map_remove(&im->features, r->name.p, (size_t)r->name.len);
        kw_free(f->name);
        kw_free(f);
        return KW_OK;
    }
    if (!f) {
        f = kw_calloc(1, sizeof(*f));
        if (!f) return KW_ENOMEM;
        f->name = kb_image_strdup(r->name);
        kw_err err = f->name ? kw_map_put(&im->features, r->name.p, (size_t)r->name.len, f) : KW_ENOMEM;
        if (err) {
            kw_free(f->name);
            kw_free(f);
            return err;
        }
    }
    f->level = r->feature_level;
    return KW_OK;
}

/* ---- One record ---- */

bool kb_image_knows(int16_t type) {
    switch (type) {
    case KW_RECORD_REGISTER_BROKER:
    case KW_RECORD_UNREGISTER_BROKER:
    case KW_RECORD_TOPIC:
    case KW_RECORD_PARTITION:
    case KW_RECORD_CONFIG:
    case KW_RECORD_PARTITION_CHANGE:
    case KW_RECORD_REMOVE_TOPIC:
    case KW_RECORD_FEATURE_LEVEL:
    case KW_RECORD_PRODUCER_IDS:
    case KW_RECORD_BROKER_REGISTRATION_CHANGE:
    case KW_RECORD_NO_OP:
    case KW_RECORD_ZK_MIGRATION_STATE:
    case KW_RECORD_REGISTER_CONTROLLER:
    case KW_RECORD_FENCE_BROKER:
    case KW_RECORD_UNFENCE_BROKER:
    case KW_RECORD_CLEAR_ELR:
    case KW_RECORD_UNREGISTER_CONTROLLER:
        return true;
    default:
        return false;
    }
}

kw_err kb_image_apply(struct kb_image *im, int64_t offset, int32_t epoch, int16_t type, const void *record) {
    kw_err err = KW_OK;
    switch (type) {
    case KW_RECORD_REGISTER_BROKER:
        err = apply_register_broker(im, record);
        break;
    case KW_RECORD_UNREGISTER_BROKER:
        err = apply_unregister_broker(im, record);
        break;
    case KW_RECORD_TOPIC:
        err = apply_topic(im, record);
        break;
    case KW_RECORD_PARTITION:
        err = apply_partition(im, record);
        break;
    case KW_RECORD_CONFIG:
        err = kb_image_config_apply(im, record);
        break;
    case KW_RECORD_PARTITION_CHANGE:
        err = apply_partition_change(im, record);
        break;
    case KW_RECORD_REMOVE_TOPIC:
        err = apply_remove_topic(im, record);
        break;
    case KW_RECORD_FEATURE_LEVEL:
        err = apply_feature(im, record);
        break;
    case KW_RECORD_PRODUCER_IDS:
        im->next_producer_id = ((const struct kw_producer_ids_record *)record)->next_producer_id;
        break;
    case KW_RECORD_BROKER_REGISTRATION_CHANGE:
        err = apply_registration_change(im, record);
        break;
    case KW_RECORD_FENCE_BROKER:
        err = apply_fence(im, record);
        break;
    case KW_RECORD_UNFENCE_BROKER:
        err = apply_unfence(im, record);
        break;
    case KW_RECORD_CLEAR_ELR:
        err = apply_clear_elr(im, record);
        break;
    case KW_RECORD_NO_OP: /* the rest say nothing that a node of ours acts on */
    case KW_RECORD_ZK_MIGRATION_STATE:
    case KW_RECORD_REGISTER_CONTROLLER:
    case KW_RECORD_UNREGISTER_CONTROLLER:
        break;
    default:
        err = KW_EDECODE;
    }
    if (err) return err;
    im->offset = offset;
    im->epoch = epoch;
    return KW_OK;
}
