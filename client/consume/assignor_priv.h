/* assignor_priv.h - the table that assignors fill: topics, members, and who gets each partition. */
#ifndef KC_ASSIGNOR_PRIV_H
#define KC_ASSIGNOR_PRIV_H

#include "assignor.h"

struct kc_table_topic {
    struct kw_str name;
    int32_t partitions, first; /* its partition p is the table's first + p */
};
struct kc_table_member {
    const struct kc_member_in *in;
    size_t at;       /* among the members as they were given */
    uint64_t *wants; /* bit a topic */
    int32_t count;   /* partitions it has; the sticky assignors' */
};
struct kc_table {
    struct kw_arena *arena;
    struct kc_table_topic *topics; /* that anybody subscribes to, by name */
    int32_t topic_count, partition_count;
    struct kc_table_member *members; /* static ones first, by id */
    int32_t member_count;
    int32_t *owner; /* of each partition: a member; -1 none */
};

static inline bool kc_table_wants(const struct kc_table *t, int32_t member, int32_t topic) {
    return t->members[member].wants[topic / 64] >> (topic % 64) & 1;
}
int32_t kc_table_topic_of(const struct kc_table *t, struct kw_str name); /* -1: not in the table */

/* assignor_sticky.c */
kw_err kc_assign_sticky(struct kc_table *t, bool cooperative) KW_CHECK;

#endif
