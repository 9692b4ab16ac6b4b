/* group.h - what the sub-commands of kc group share: groups and their offsets asked for, partitions in order, offsets of logs.
 *
 * Called by group.c, group_describe.c, group_reset.c. Implemented in group_parts.c.
 */
#ifndef KC_CLI_GROUP_H
#define KC_CLI_GROUP_H

#include "cli.h"

#define KE_UNKNOWN_TOPIC_OR_PARTITION 3
#define KE_LEADER_NOT_AVAILABLE 5
#define KE_NON_EMPTY_GROUP 68
#define KE_GROUP_ID_NOT_FOUND 69
#define KE_GROUP_SUBSCRIBED_TO_TOPIC 86

/* A partition as the offsets of a group, its members and its log tell of it. */
struct group_part {
    const char *topic; /* borrowed */
    int32_t partition;
    int64_t committed; /* -1: none */
    int32_t epoch;     /* of the commit; -1 unknown */
    const char *metadata;
    int64_t start, end; /* of the log; -1 unknown */
    int64_t at;         /* what a lookup by time gave, or where a reset is to go; -1: none */
    kc_err log_err;     /* why they are not known */
    size_t owner, other; /* the member's number from 1, and that of another one that has it too; 0: none */
    bool subscribed;    /* by a member */
};
struct group_parts {
    struct group_part *v;
    size_t count, cap;
};
/* A new one, all unknown; NULL: no memory. */
struct group_part *group_parts_add(struct group_parts *p, const char *topic, int32_t partition);
void group_parts_order(struct group_parts *p); /* by topic and partition; what is known of one twice becomes one */
const struct group_part *group_parts_find(const struct group_parts *p, const char *topic, int32_t partition); /* p: in order; NULL: not there */
void group_parts_free(struct group_parts *p);
bool group_parts_committed(struct group_parts *p, const kc_group_offsets *o, size_t group); /* adds those that have one; false: no memory */

/* The offsets of logs: through a consumer of its own, made when first needed. */
struct group_log {
    kc_consumer *consumer;
};
/* Fills start and end (and, when ms >= 0, at: the first offset of that time, -1: none so late) of each, where the cluster shows a leader. limit_us: what
 * is not known by then stays so; 0: the session's. KC_OK also where some are not known: log_err says why. */
kc_err group_log_ask(struct cli_session *s, struct group_log *log, const struct cli_topics *topics, struct group_parts *p, int64_t ms, int64_t limit_us,
                     kc_error **error);
void group_log_close(struct group_log *log);

/* As the calls of admin.h, with log lines and Ctrl-C meanwhile. */
kc_err group_describe_all(struct cli_session *s, const char *const *groups, size_t n, kc_group_details **out, kc_error **error);
kc_err group_offsets_all(struct cli_session *s, const char *const *groups, size_t n, kc_group_offsets **out, kc_error **error);

/* Words TOPIC, TOPIC:PARTITION and TOPIC:PARTITION,PARTITION,... as words of the first two kinds, as parts.c knows them. */
struct group_words {
    char **v;
    int count;
};
int group_words_make(const struct cli_command *c, const char *const *words, int count, struct group_words *out); /* -1, or the exit code */
void group_words_free(struct group_words *w);

int group_describe(int argc, char **argv);
int group_reset(int argc, char **argv);
int group_delete_offsets(int argc, char **argv);

void group_json(char before, const char *name, const char *value); /* ,"name":"value", or null; before: '{' or ',' */
void group_json_error(kc_err err, const char *message);             /* ,"error":"CODE","message":"what", where there is one */

#endif
