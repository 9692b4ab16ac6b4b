/* config.h - the broker's one config table: server.properties names, Kafka's synonyms and units, topic-level names, defaults, ranges,
 * texts.
 *
 * Parsing, validation (an unknown name is an error that names the nearest; a name that Kafka knows and that has no effect here gets one
 * warning), DescribeConfigs and AlterConfigs all come from it.
 */
#ifndef KB_CONFIG_H
#define KB_CONFIG_H

#include "base/base.h"

enum kb_config_type {
    KB_C_BOOL,
    KB_C_INT,
    KB_C_LONG,
    KB_C_DOUBLE,
    KB_C_STRING,
    KB_C_LIST,
    KB_C_ENUM,
    KB_C_SHORT,
    KB_C_CLASS,
    KB_C_PASSWORD
};
enum kb_config_scope {
    KB_C_BROKER = 1,
    KB_C_TOPIC = 2,
    KB_C_DYNAMIC = 4 /* may change at run time */,
    KB_C_IGNORED = 8,
    KB_C_SENSITIVE = 16
};

struct kb_config_def {
    const char *name; /* as in server.properties, or the topic's name for topic-level entries */
    uint8_t type;
    uint8_t scope;
    const char *def; /* default as text; NULL: null */
    int64_t min, max;
    const char *values;         /* of an enum or list: "delete,compact" */
    const char *broker_synonym; /* topic entries: the server.properties names that give the default, best first, with a factor where the
                                 * unit differs: "log.retention.ms,log.retention.minutes:60000"; NULL: none */
    const char *doc;
};
extern const struct kb_config_def kb_config_defs[];
extern const size_t kb_config_def_count;
const struct kb_config_def *kb_config_def(const char *name, int scope); /* scope: KB_C_BROKER or KB_C_TOPIC; NULL: unknown */
const char *kb_config_nearest(const char *name, int scope);             /* NULL: none is near */
/* The i-th synonym of a topic entry: false past the last. */
struct kb_config_synonym {
    const struct kb_config_def *def;
    int64_t factor;
};
bool kb_config_synonym_at(const struct kb_config_def *d, size_t i, struct kb_config_synonym *s);

struct kb_config; /* static values of one node, parsed */
/* The same look-ups through a node's index, for paths that are walked often. */
const struct kb_config_def *kb_config_find(const struct kb_config *c, const char *name, int scope);
const struct kb_config_synonym *kb_config_synonyms(const struct kb_config *c,
                                                   const struct kb_config_def *d);      /* ends with a NULL def; NULL: none */
const char *kb_config_static(const struct kb_config *c, const struct kb_config_def *d); /* as set; NULL: not set */
kw_err kb_config_new(struct kb_config **c) KW_CHECK;
void kb_config_free(struct kb_config *c);
/* One property. text (size bytes) gets what is wrong and what to do. KW_EINVAL. Warnings (ignored names) go to warn, may be NULL. */
kw_err kb_config_set(struct kb_config *c, const char *name, const char *value, char *text, size_t size,
                     void (*warn)(void *ctx, const char *), void *ctx) KW_CHECK;
/* A server.properties file's bytes: comments, continued lines, escapes as Java reads them. The text names the line. */
kw_err kb_config_load(struct kb_config *c, const char *file, const void *p, size_t n, char *text, size_t size,
                      void (*warn)(void *ctx, const char *), void *ctx) KW_CHECK;
/* A named set of values: "reliable" (requirements: replication 3, min.insync.replicas 2, no unclean election). What is set explicitly
 * stays when it keeps the promise, else kb_config_finish refuses it. */
kw_err kb_config_profile(struct kb_config *c, const char *name, char *text, size_t size) KW_CHECK;
/* Cross-checks after all are set (min.insync.replicas, listeners …). */
kw_err kb_config_finish(struct kb_config *c, char *text, size_t size) KW_CHECK;
const char *kb_config_get(const struct kb_config *c, const char *name); /* effective static text; NULL: null */
bool kb_config_is_set(const struct kb_config *c, const char *name);
int64_t kb_config_int(const struct kb_config *c, const char *name); /* the name must exist; null: -1 */
bool kb_config_bool(const struct kb_config *c, const char *name);
const char *kb_config_log_dir(const struct kb_config *c); /* log.dirs, else log.dir */

/* listeners / advertised.listeners taken apart; controller listeners are left out. After kb_config_finish. */
struct kb_listener {
    struct kw_str name, host; /* views of the value; host empty: every address */
    uint16_t port;
};
size_t kb_config_listeners(const struct kb_config *c, bool advertised, struct kb_listener *out,
                           size_t max); /* returns how many there are */
size_t kb_config_controller_listeners(const struct kb_config *c, struct kb_listener *out, size_t max);
/* What the process is, and who votes in the metadata quorum; without voters this node alone does. After kb_config_finish. */
enum { KB_ROLE_BROKER = 1, KB_ROLE_CONTROLLER = 2, KB_VOTERS_MAX = 9 };
int kb_config_roles(const struct kb_config *c);
struct kb_voter {
    int32_t id;
    struct kw_str host; /* a view of the value */
    uint16_t port;
};
size_t kb_config_voters(const struct kb_config *c, struct kb_voter *out, size_t max); /* returns how many there are */
/* No voters are named: this node is the quorum, and nobody can join. One that is named as the only voter is a quorum that brokers can join. */
bool kb_config_is_single(const struct kb_config *c);
/* Checks a value against an entry: KW_EINVAL with a text that says what to do. */
kw_err kb_config_check(const struct kb_config_def *d, const char *value, char *text, size_t size) KW_CHECK;
/* A checked value as a number: bool 0/1, compression and other texts -1. */
int64_t kb_config_number(const struct kb_config_def *d, const char *value);
/* True when the comma-separated list has the item. */
bool kb_config_list_has(const char *list, const char *item);

#endif
