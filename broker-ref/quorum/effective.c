/* effective.c - resolves a configuration through its levels, and fills what logs and partitions need of it. Contract: effective.h. KIP-226.
 */
#include "effective.h"

#include <stdio.h>
#include <stdlib.h>

enum { RESOURCE_TOPIC = 2, RESOURCE_BROKER = 4 };

static const char *entry(const struct kb_effective_view *v, int8_t type, struct kw_str resource, const char *name) {
    const char *value;
    if (v->changed && v->changed(v->ctx, type, resource, name, &value)) return value;
    return kb_image_config_get(v->image, type, resource, name);
}

/* A broker entry at its three explicit levels; false when none has it. */
static bool explicit_broker(const struct kb_effective_view *v, const struct kb_config_def *d, struct kb_effective *e) {
    e->name = d->name;
    if ((d->scope & KB_C_DYNAMIC) && (v->changed || v->image->configs.count > 0)) {
        e->source = KB_SOURCE_DYNAMIC_BROKER;
        if (v->broker.len > 0 && (e->value = entry(v, RESOURCE_BROKER, v->broker, d->name))) return true;
        e->source = KB_SOURCE_DYNAMIC_DEFAULT;
        if ((e->value = entry(v, RESOURCE_BROKER, kw_str_of(""), d->name))) return true;
    }
    e->source = KB_SOURCE_STATIC;
    e->value = kb_config_static(v->config, d);
    return e->value != NULL;
}

static struct kb_effective_view own_view(const struct kb_image *im, const struct kb_config *c) {
    return (struct kb_effective_view){.image = im, .config = c, .broker = kw_str_of(kb_config_get(c, "node.id"))};
}

void kb_effective_broker(const struct kb_image *im, const struct kb_config *c, const struct kb_config_def *d, struct kb_effective *e) {
    struct kb_effective_view v = own_view(im, c);
    if (explicit_broker(&v, d, e)) return;
    e->value = d->def;
    e->source = KB_SOURCE_DEFAULT;
}

void kb_effective_topic_in(const struct kb_effective_view *v, struct kw_str topic, const struct kb_config_def *d, struct kb_effective *e) {
    const struct kb_config_synonym *s = kb_config_synonyms(v->config, d);
    e->name = d->name;
    e->source = KB_SOURCE_TOPIC;
    if (topic.len > 0 && (e->value = entry(v, RESOURCE_TOPIC, topic, d->name))) return;
    for (; s && s->def; s++) {
        if (!explicit_broker(v, s->def, e)) continue;
        if (s->factor != 1) {
            int64_t n = kb_config_number(s->def, e->value);
            /* -1 hours and minutes mean the same as -1 ms: never */
            snprintf(e->buf, sizeof(e->buf), "%lld", (long long)(n < 0 ? -1 : n * s->factor));
            e->value = e->buf;
        }
        return;
    }
    e->name = d->name;
    e->value = d->def;
    e->source = KB_SOURCE_DEFAULT;
}

void kb_effective_topic(const struct kb_image *im, const struct kb_config *c, struct kw_str topic, const struct kb_config_def *d,
                        struct kb_effective *e) {
    struct kb_effective_view v = own_view(im, c);
    kb_effective_topic_in(&v, topic, d, e);
}

int64_t kb_effective_topic_int(const struct kb_image *im, const struct kb_config *c, struct kw_str topic, const char *name) {
    const struct kb_config_def *d = kb_config_find(c, name, KB_C_TOPIC);
    KW_ASSERT(d);
    struct kb_effective e;
    kb_effective_topic(im, c, topic, d, &e);
    return kb_config_number(d, e.value);
}

int64_t kb_effective_broker_int(const struct kb_image *im, const struct kb_config *c, const char *name) {
    const struct kb_config_def *d = kb_config_find(c, name, KB_C_BROKER);
    KW_ASSERT(d);
    struct kb_effective e;
    kb_effective_broker(im, c, d, &e);
    return kb_config_number(d, e.value);
}

static double topic_ratio(const struct kb_image *im, const struct kb_config *c, struct kw_str topic, const char *name) {
    struct kb_effective e;
    kb_effective_topic(im, c, topic, kb_config_find(c, name, KB_C_TOPIC), &e);
    return e.value ? strtod(e.value, NULL) : 0;
}

static bool topic_list_has(const struct kb_image *im, const struct kb_config *c, struct kw_str topic, const char *name, const char *item) {
    struct kb_effective e;
    kb_effective_topic(im, c, topic, kb_config_find(c, name, KB_C_TOPIC), &e);
    return e.value && kb_config_list_has(e.value, item);
}

void kb_effective_log(const struct kb_image *im, const struct kb_config *c, struct kw_str topic, struct kb_log_config *out) {
    *out = (struct kb_log_config){
        .segment_bytes = kb_effective_topic_int(im, c, topic, "segment.bytes"),
        .segment_ms = kb_effective_topic_int(im, c, topic, "segment.ms"),
        .index_interval_bytes = (int32_t)kb_effective_topic_int(im, c, topic, "index.interval.bytes"),
        .segment_index_bytes = (int32_t)kb_effective_topic_int(im, c, topic, "segment.index.bytes"),
        .retention_ms = kb_effective_topic_int(im, c, topic, "retention.ms"),
        .retention_bytes = kb_effective_topic_int(im, c, topic, "retention.bytes"),
        .file_delete_delay_ms = kb_effective_topic_int(im, c, topic, "file.delete.delay.ms"),
        .delete_policy = topic_list_has(im, c, topic, "cleanup.policy", "delete"),
        .flush_on_ack = kb_effective_topic_int(im, c, topic, "flush.on.ack") > 0,
        .flush_messages = kb_effective_topic_int(im, c, topic, "flush.messages"),
        .flush_ms = kb_effective_topic_int(im, c, topic, "flush.ms"),
        .producer_expiration_ms = kb_effective_broker_int(im, c, "producer.id.expiration.ms"),
        .compact_policy = topic_list_has(im, c, topic, "cleanup.policy", "compact"),
        .min_dirty_ratio = topic_ratio(im, c, topic, "min.cleanable.dirty.ratio"),
        .min_compaction_lag_ms = kb_effective_topic_int(im, c, topic, "min.compaction.lag.ms"),
        .max_compaction_lag_ms = kb_effective_topic_int(im, c, topic, "max.compaction.lag.ms"),
        .delete_retention_ms = kb_effective_topic_int(im, c, topic, "delete.retention.ms"),
    };
    /* What is in the active segment is not compacted: it has to be closed in time. */
    if (out->compact_policy) out->segment_ms = KW_MIN(out->segment_ms, out->max_compaction_lag_ms);
}

static int8_t compression_of(const char *name) {
    int codec = name && strcmp(name, "uncompressed") == 0 ? KW_CODEC_NONE : name ? kw_codec_by_name(name) : -1;
    return (int8_t)codec; /* "producer" is no codec: -1 */
}

void kb_effective_partition(const struct kb_image *im, const struct kb_config *c, struct kw_str topic, struct kb_topic_config *out) {
    struct kb_effective compression;
    kb_effective_topic(im, c, topic, kb_config_find(c, "compression.type", KB_C_TOPIC), &compression);
    *out = (struct kb_topic_config){
        .max_message_bytes = (int32_t)kb_effective_topic_int(im, c, topic, "max.message.bytes"),
        .max_decompressed_bytes = (int32_t)kb_effective_topic_int(im, c, topic, "max.decompressed.message.bytes"),
        .min_insync_replicas = (int32_t)kb_effective_topic_int(im, c, topic, "min.insync.replicas"),
        .log_append_time = topic_list_has(im, c, topic, "message.timestamp.type", "LogAppendTime"),
        .timestamp_before_max_ms = kb_effective_topic_int(im, c, topic, "message.timestamp.before.max.ms"),
        .timestamp_after_max_ms = kb_effective_topic_int(im, c, topic, "message.timestamp.after.max.ms"),
        .compact = topic_list_has(im, c, topic, "cleanup.policy", "compact"),
        .compression = compression_of(compression.value),
        .guid_dedup = kb_effective_topic_int(im, c, topic, "message.guid.dedup") > 0,
        .guid_window_ms = kb_effective_topic_int(im, c, topic, "message.guid.window.ms"),
    };
}
