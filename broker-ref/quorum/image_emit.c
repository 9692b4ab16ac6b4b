/* image_emit.c - the image as records again, for a snapshot. Walks the maps in their order, so that an image rebuilt from the records emits
 * the same ones: two images are equal when what they emit is.
 *
 * Called by the store's snapshots and by tests that compare images.
 */
#include "image_priv.h"

typedef kw_err emit_fn(void *ctx, int16_t type, int16_t version, const void *record);

static kw_err emit_feature(const struct kb_image_level *f, emit_fn *emit, void *ctx) {
    struct kw_feature_level_record r;
    kw_msg_init(&kw_feature_level_record_desc, &r);
    r.name = kw_str_of(f->name);
    r.feature_level = f->level;
    return emit(ctx, KW_RECORD_FEATURE_LEVEL, 0, &r);
}

/* metadata.version comes first: it tells a reader how to take the rest. */
static kw_err emit_features(const struct kb_image *im, emit_fn *emit, void *ctx) {
    static const char first[] = "metadata.version";
    struct kb_image_level *f = kw_map_get(&im->features, first, sizeof(first) - 1);
    kw_err err = f ? emit_feature(f, emit, ctx) : KW_OK;
    for (size_t it = 0; !err && (f = kw_map_next(&im->features, &it));)
        if (strcmp(f->name, first) != 0) err = emit_feature(f, emit, ctx);
    return err;
}

static kw_err emit_broker(const struct kb_image_broker *b, emit_fn *emit, void *ctx) {
    struct kw_register_broker_record r;
    kw_msg_init(&kw_register_broker_record_desc, &r);
    r.broker_id = b->id;
    r.broker_epoch = b->epoch;
    r.incarnation_id = b->incarnation;
    r.fenced = b->fenced;
    r.in_controlled_shutdown = b->in_controlled_shutdown;
    r.rack = kw_str_of(b->rack);
    r.log_dirs.v = b->log_dirs;
    r.log_dirs.n = b->log_dir_count;
    r.end_points.v = kw_calloc((size_t)b->endpoint_count + 1, sizeof(*r.end_points.v));
    r.features.v = kw_calloc((size_t)b->feature_count + 1, sizeof(*r.features.v));
    kw_err err = KW_ENOMEM;
    if (!r.end_points.v || !r.features.v) goto fail;
    for (int32_t i = 0; i < b->endpoint_count; i++) {
        struct kw_register_broker_record_broker_endpoint *e = &r.end_points.v[r.end_points.n++];
        e->name = kw_str_of(b->endpoints[i].name);
        e->host = kw_str_of(b->endpoints[i].host);
        e->port = (uint16_t)b->endpoints[i].port;
        e->security_protocol = b->endpoints[i].protocol;
    }
    for (int32_t i = 0; i < b->feature_count; i++) {
        struct kw_register_broker_record_broker_feature *f = &r.features.v[r.features.n++];
        f->name = kw_str_of(b->features[i].name);
        f->min_supported_version = b->features[i].min;
        f->max_supported_version = b->features[i].max;
    }
    err = emit(ctx, KW_RECORD_REGISTER_BROKER, 4, &r);
fail:
    kw_free(r.end_points.v);
    kw_free(r.features.v);
    return err;
}

static kw_err emit_partition(const struct kb_image_topic *t, const struct kb_image_partition *p, emit_fn *emit, void *ctx) {
    struct kw_partition_record r;
    kw_msg_init(&kw_partition_record_desc, &r);
    r.partition_id = p->index;
    r.topic_id = t->id;
    r.leader = p->leader;
    r.leader_epoch = p->leader_epoch;
    r.partition_epoch = p->partition_epoch;
    r.leader_recovery_state = p->recovery_state;
    r.replicas.v = p->replicas, r.replicas.n = p->replica_count;
    r.isr.v = p->isr, r.isr.n = p->isr_count;
    r.adding_replicas.v = p->adding, r.adding_replicas.n = p->adding_count;
    r.removing_replicas.v = p->removing, r.removing_replicas.n = p->removing_count;
    r.directories.v = p->directories, r.directories.n = p->directory_count;
    if (p->elr_count) r.eligible_leader_replicas.v = p->elr, r.eligible_leader_replicas.n = p->elr_count;
    if (p->last_known_elr_count) r.last_known_elr.v = p->last_known_elr, r.last_known_elr.n = p->last_known_elr_count;
    return emit(ctx, KW_RECORD_PARTITION, 2, &r);
}

static kw_err emit_topic(const struct kb_image_topic *t, emit_fn *emit, void *ctx) {
    struct kw_topic_record r;
    kw_msg_init(&kw_topic_record_desc, &r);
    r.name = kw_str_of(t->name);
    r.topic_id = t->id;
    kw_err err = emit(ctx, KW_RECORD_TOPIC, 0, &r);
    for (int32_t i = 0; !err && i < t->partition_count; i++) err = emit_partition(t, &t->partitions[i], emit, ctx);
    return err;
}

static kw_err emit_config(const struct kb_image_config *c, emit_fn *emit, void *ctx) {
    kw_err err = KW_OK;
    struct kb_image_value *v;
    for (size_t it = 0; !err && (v = kw_map_next(&c->values, &it));) {
        struct kw_config_record r;
        kw_msg_init(&kw_config_record_desc, &r);
        r.resource_type = c->type;
        r.resource_name = kw_str_of(c->name);
        r.name = kw_str_of(v->key);
        r.value = kw_str_of(v->value);
        err = emit(ctx, KW_RECORD_CONFIG, 0, &r);
    }
    return err;
}

kw_err kb_image_emit(const struct kb_image *im, emit_fn *emit, void *ctx) {
    void *v;
    kw_err err = emit_features(im, emit, ctx);
    for (size_t it = 0; !err && (v = kw_map_next(&im->brokers, &it));) err = emit_broker(v, emit, ctx);
    for (size_t it = 0; !err && (v = kw_map_next(&im->topics_by_name, &it));) err = emit_topic(v, emit, ctx);
    for (size_t it = 0; !err && (v = kw_map_next(&im->configs, &it));) err = emit_config(v, emit, ctx);
    if (err || im->next_producer_id == 0) return err;
    struct kw_producer_ids_record r;
    kw_msg_init(&kw_producer_ids_record_desc, &r);
    r.next_producer_id = im->next_producer_id;
    r.broker_id = -1; /* who got the last block is not kept: nobody asks */
    return emit(ctx, KW_RECORD_PRODUCER_IDS, 0, &r);
}
