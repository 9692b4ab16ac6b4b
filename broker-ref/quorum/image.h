/* image.h - what the metadata log says, replayed: topics, partitions, configs, brokers, features, producer ids. KIP-631 records.
 *
 * Only kb_image_apply changes it, one committed record at a time, so that equal offsets mean equal images. Read by api/, replica/,
 * controller.
 */
#ifndef KB_IMAGE_H
#define KB_IMAGE_H

#include "base/map.h"
#include "wire/codec.h"

/* Pointers to partitions hold until the next apply of a record of their topic (the array grows); pointers to topics until its removal. */
struct kb_image_partition {
    int32_t index;
    int32_t leader, leader_epoch, partition_epoch; /* leader -1: none */
    int32_t *replicas, *isr, *adding, *removing;
    int32_t replica_count, isr_count, adding_count, removing_count;
    int32_t *elr, *last_known_elr; /* KIP-966: kept as a folder of Apache Kafka has them; see elect.h */
    int32_t elr_count, last_known_elr_count;
    int8_t recovery_state;
    struct kw_uuid *directories; /* directory_count of them: replica_count, or 0 before record version 1 */
    int32_t directory_count;
    void *local; /* struct kb_partition * when this node has it; the node's, moves with the partition */
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
    int64_t epoch; /* offset of its registration record */
    bool fenced, in_controlled_shutdown;
    struct kb_image_endpoint {
        char *name, *host;
        int32_t port;
        int16_t protocol;
    } * endpoints;
    int32_t endpoint_count;
    struct kb_image_feature {
        char *name;
        int16_t min, max;
    } * features; /* that it supports */
    int32_t feature_count;
    char *rack; /* may be NULL */
    struct kw_uuid *log_dirs;
    int32_t log_dir_count;
    struct kw_uuid incarnation;
};

/* How the node hears of what a record changed, from within kb_image_apply, after the image changed (removed: just before it is freed).
 * It takes notes and acts in the store's `applied`. Any of them may be NULL. A failure stops the apply with that error. */
struct kb_image_observer {
    kw_err (*partition)(void *ctx, struct kb_image_topic *t, struct kb_image_partition *p); /* new or changed */
    kw_err (*topic_removed)(void *ctx, struct kb_image_topic *t);
    kw_err (*config)(void *ctx, int8_t type, struct kw_str resource);
    void *ctx;
};
struct kb_image {
    int64_t offset; /* of the last record applied, -1 none */
    int32_t epoch;  /* its leader epoch */
    struct kw_map topics_by_name, topics_by_id, brokers;
    struct kw_map topics_by_normal; /* name with '.' as '_': what Kafka lets no two topics share */
    struct kw_map configs;          /* (type, name) -> struct kb_image_config (kb_image_config_*) */
    struct kw_map features;         /* name -> struct kb_image_level */
    int64_t next_producer_id;       /* first id not handed out in blocks */
    int32_t partition_count;        /* of all topics */
    uint64_t broker_news;           /* grows whenever a broker comes, goes, is fenced or not */
    struct kb_image_observer observer;
};
struct kb_image_level {
    char *name;
    int16_t level;
};

void kb_image_init(struct kb_image *im);
void kb_image_deinit(struct kb_image *im);
/* True when apply has a meaning for the type (others are refused: a log of a newer release must not be half understood). */
bool kb_image_knows(int16_t type);
/* Applies one record body (type, version, decoded message). KW_ENOMEM, KW_EDECODE (unknown type or impossible change: the node stops,
 * loudly). */
kw_err kb_image_apply(struct kb_image *im, int64_t offset, int32_t epoch, int16_t type, const void *record) KW_CHECK;

/* `im` is what `with` was from now on, and hears of all that is different as if records had said it; with is left empty. KW_EDECODE: with
 * cannot come after im. KW_ENOMEM: not all that changed was told: the node is to stop. */
kw_err kb_image_replace(struct kb_image *im, struct kb_image *with) KW_CHECK;

bool kb_image_is_text(struct kw_str s); /* has no zero byte */
/* Why a topic cannot have this name; NULL: it can. (Whether it collides with another is the controller's to say.) */
const char *kb_topic_name_problem(struct kw_str name);
struct kb_image_topic *kb_image_topic(const struct kb_image *im, struct kw_str name);
struct kb_image_topic *kb_image_topic_by_id(const struct kb_image *im, struct kw_uuid id);
struct kb_image_partition *kb_image_partition(const struct kb_image *im, struct kw_str topic, int32_t index);
struct kb_image_topic *kb_image_topic_alike(const struct kb_image *im, struct kw_str name); /* the same up to '.' and '_' */
struct kb_image_broker *kb_image_broker(const struct kb_image *im, int32_t id);
/* A dynamic config's value, NULL when not set. type: 2 topic, 4 broker (name "" is the cluster-wide default). */
const char *kb_image_config_get(const struct kb_image *im, int8_t type, struct kw_str resource, const char *key);
/* for (size_t it = 0; kb_image_config_next(im, type, resource, &it, &key, &value);) */
bool kb_image_config_next(const struct kb_image *im, int8_t type, struct kw_str resource, size_t *it, const char **key, const char **value);

/* Writes the whole image as records, for a snapshot: emit(ctx, type, version, message) for each, in an order that apply accepts. */
kw_err kb_image_emit(const struct kb_image *im, kw_err (*emit)(void *ctx, int16_t type, int16_t version, const void *record),
                     void *ctx) KW_CHECK;

#endif
