/* effective.h - what a configuration is in the end: topic override > dynamic broker value (this node's, then the cluster's default) >
 * server.properties > default, with Kafka's synonyms and units (retention.ms <- log.retention.ms, .minutes, .hours).
 *
 * Called by the node (to configure logs and partitions), api/describe_configs, controller. Calls config and image.
 */
#ifndef KB_EFFECTIVE_H
#define KB_EFFECTIVE_H

#include "../config.h"
#include "../replica/partition.h"
#include "image.h"

enum kb_config_source { /* as DescribeConfigs tells it */
                        KB_SOURCE_TOPIC = 1,
                        KB_SOURCE_DYNAMIC_BROKER = 2,
                        KB_SOURCE_DYNAMIC_DEFAULT = 3,
                        KB_SOURCE_STATIC = 4,
                        KB_SOURCE_DEFAULT = 5,
};
struct kb_effective {
    const char *value; /* NULL: null */
    const char *name;  /* under which it was found ("log.retention.hours") */
    enum kb_config_source source;
    char buf[24]; /* value points here when a unit was converted */
};
/* A topic's value; topic null or unknown: what a topic without overrides has. d is a KB_C_TOPIC entry. */
void kb_effective_topic(const struct kb_image *im, const struct kb_config *c, struct kw_str topic, const struct kb_config_def *d,
                        struct kb_effective *e);
/* The same as another broker has it, or as it will be once changes are made that are not in the image yet. */
struct kb_effective_view {
    const struct kb_image *image;
    const struct kb_config *config; /* of this node: what another has in its server.properties is not known here */
    struct kw_str broker;           /* whose dynamic values count before the cluster's default; "": nobody's */
    /* true: the entry changes, to *value (NULL: it goes). NULL: nothing does. */
    bool (*changed)(void *ctx, int8_t type, struct kw_str resource, const char *name, const char **value);
    void *ctx;
};
void kb_effective_topic_in(const struct kb_effective_view *v, struct kw_str topic, const struct kb_config_def *d, struct kb_effective *e);
void kb_effective_broker(const struct kb_image *im, const struct kb_config *c, const struct kb_config_def *d, struct kb_effective *e);
/* By name, as a number (lists, texts: -1; names must exist). */
int64_t kb_effective_topic_int(const struct kb_image *im, const struct kb_config *c, struct kw_str topic, const char *name);
int64_t kb_effective_broker_int(const struct kb_image *im, const struct kb_config *c, const char *name);

/* Fills what the log and the partition need of a topic's configuration. */
void kb_effective_log(const struct kb_image *im, const struct kb_config *c, struct kw_str topic, struct kb_log_config *out);
void kb_effective_partition(const struct kb_image *im, const struct kb_config *c, struct kw_str topic, struct kb_topic_config *out);

#endif
