/* image.h - what the metadata log says, replayed: topics, partitions, configs, brokers, features, producer ids. KIP-631 records.
 *
 * Only kb_image_apply changes it, one committed record at a time, so that equal offsets mean equal images. Read by api/, replica/, controller.
 */
#ifndef KB_IMAGE_H
#define KB_IMAGE_H

#include "base/map.h"
#include "wire/codec.h"

struct kb_image_partition {
    int32_t index;
    int32_t leader, leader_epoch, partition_epoch; /* leader -1: none */
    int32_t *replicas, *isr, *adding, *removing;
    int32_t replica_count, isr_count, adding_count, removing_count;
    struct kw_uuid *directories; /* replica_count of them */
    void *local;                 /* struct kb_partition * when this node has it; the node's */
};
struct kb_image_topic {
    char *name;
    struct kw_uuid id;
    struct kb_image_partition *partitions; /* dense from 0 */
    int32_t partition_count;
    bool internal;
};
struct kb_image_broker {
    int32_t id;
    int64_t epoch;               /* offset of its registration record */
    bool fenced, in_controlled_shutdown;
    char *host, *rack;           /* of the first listener; rack may be NULL */
    int32_t port;
    struct kw_uuid incarnation;
};
struct kb_image {
    int64_t offset;              /* of the last record applied, -1 none */
    int32_t epoch;               /* its leader epoch */
    struct kw_uuid cluster_id;
    struct kw_map topics_by_name, topics_by_id, brokers;
    struct kw_map configs;       /* (type, name) -> struct kb_image_config (kb_image_config_*) */
    struct kw_map features;
    int64_t next_producer_id;    /* first id not handed out in blocks */
};

void kb_image_init(struct kb_image *im);
void kb_image_deinit(struct kb_image *im);
/* Applies one record body (type, version, decoded message). KW_ENOMEM, KW_EDECODE (unknown type or impossible change: the node stops, loudly). */
kw_err kb_image_apply(struct kb_image *im, int64_t offset, int32_t epoch, int16_t type, const void *record) KW_CHECK;

struct kb_image_topic *kb_image_topic(const struct kb_image *im, struct kw_str name);
struct kb_image_topic *kb_image_topic_by_id(const struct kb_image *im, struct kw_uuid id);
struct kb_image_partition *kb_image_partition(const struct kb_image *im, struct kw_str topic, int32_t index);
/* A dynamic config's value, NULL when not set. type: 2 topic, 4 broker (name "" is the cluster-wide default). */
const char *kb_image_config_get(const struct kb_image *im, int8_t type, struct kw_str resource, const char *key);
/* for (size_t it = 0; kb_image_config_next(im, type, resource, &it, &key, &value);) */
bool kb_image_config_next(const struct kb_image *im, int8_t type, struct kw_str resource, size_t *it, const char **key, const char **value);

/* Writes the whole image as records, for a snapshot: emit(ctx, type, version, message) for each, in an order that apply accepts. */
kw_err kb_image_emit(const struct kb_image *im, kw_err (*emit)(void *ctx, int16_t type, int16_t version, const void *record), void *ctx) KW_CHECK;

#endif
