/* assignor_sticky.c - shares that are as even as subscriptions allow, and as little changed as that allows. KIP-54, 341, 429.
 *
 * Even: no partition could go from a member to another that wants its topic and has at least two fewer. First everybody keeps what it had
 * (of two that claim a partition the one of the later generation; of one generation neither). Then free partitions go to whom has least.
 * Then partitions move from those who have more to those who have less, until the share is even: each move makes the sum of squares
 * smaller, so it ends.
 */
#include "assignor_priv.h"

struct claim {
    int32_t generation;
    bool disputed;
};

static kw_err keep(struct kc_table *t) {
    struct claim *claims = kw_arena_calloc(t->arena, (size_t)t->partition_count + 1, sizeof(*claims));
    if (!claims) return KW_ENOMEM;
    for (int32_t m = 0; m < t->member_count; m++) {
        const struct kc_subscription *s = &t->members[m].in->said;
        for (int32_t i = 0; i < s->owned.topic_count; i++) {
            int32_t topic = kc_table_topic_of(t, s->owned.topics[i].topic);
            if (topic < 0 || !kc_table_wants(t, m, topic)) continue;
            for (int32_t k = 0; k < s->owned.topics[i].partitions.n; k++) {
                int32_t p = s->owned.topics[i].partitions.v[k];
                if (p < 0 || p >= t->topics[topic].partitions) continue;
                struct claim *c = &claims[t->topics[topic].first + p];
                int32_t *owner = &t->owner[t->topics[topic].first + p];
                if (*owner == m || (*owner >= 0 && s->generation < c->generation)) continue;
                c->disputed = *owner >= 0 && s->generation == c->generation;
                c->generation = s->generation;
                *owner = m;
            }
        }
    }
    for (int32_t i = 0; i < t->partition_count; i++) {
        if (claims[i].disputed) t->owner[i] = -1;
        if (t->owner[i] >= 0) t->members[t->owner[i]].count++;
    }
    return KW_OK;
}

/* Of those who want the topic, who has least: the first of them. */
static int32_t poorest(const struct kc_table *t, int32_t topic) {
    int32_t best = -1;
    for (int32_t m = 0; m < t->member_count; m++)
        if (kc_table_wants(t, m, topic) && (best < 0 || t->members[m].count < t->members[best].count)) best = m;
    return best;
}

static void give(struct kc_table *t, int32_t partition, int32_t m) {
    if (t->owner[partition] >= 0) t->members[t->owner[partition]].count--;
    t->owner[partition] = m;
    t->members[m].count++;
}

static void give_free(struct kc_table *t) {
    for (int32_t topic = 0; topic < t->topic_count; topic++)
        for (int32_t p = 0; p < t->topics[topic].partitions; p++) {
            int32_t at = t->topics[topic].first + p;
            if (t->owner[at] < 0) give(t, at, poorest(t, topic));
        }
}

/* One pass; true when anything moved. */
static bool level(struct kc_table *t) {
    bool moved = false;
    for (int32_t topic = 0; topic < t->topic_count; topic++)
        for (int32_t p = t->topics[topic].partitions - 1; p >= 0; p--) {
            int32_t at = t->topics[topic].first + p, to = poorest(t, topic);
            if (t->members[t->owner[at]].count < t->members[to].count + 2) continue;
            give(t, at, to);
            moved = true;
        }
    return moved;
}

/* Calls f for each partition that a member says it has. */
static void each_claim(struct kc_table *t, int32_t m, void (*f)(struct kc_table *t, int32_t m, int32_t partition, uint8_t *marks),
                       uint8_t *marks) {
    const struct kc_share *o = &t->members[m].in->said.owned;
    for (int32_t i = 0; i < o->topic_count; i++) {
        int32_t topic = kc_table_topic_of(t, o->topics[i].topic);
        for (int32_t k = 0; topic >= 0 && k < o->topics[i].partitions.n; k++) {
            int32_t p = o->topics[i].partitions.v[k];
            if (p >= 0 && p < t->topics[topic].partitions) f(t, m, t->topics[topic].first + p, marks);
        }
    }
}

enum { CLAIMED = 1, BY_ITS_OWNER = 2 };

static void mark(struct kc_table *t, int32_t m, int32_t partition, uint8_t *marks) {
    marks[partition] |= t->owner[partition] == m ? CLAIMED | BY_ITS_OWNER : CLAIMED;
}

/* Who says that it has a partition may still work on it, whatever its generation: nobody else gets it yet. */
static kw_err hold_back(struct kc_table *t) {
    uint8_t *marks = kw_arena_calloc(t->arena, (size_t)t->partition_count + 1, 1);
    if (!marks) return KW_ENOMEM;
    for (int32_t m = 0; m < t->member_count; m++) each_claim(t, m, mark, marks);
    for (int32_t i = 0; i < t->partition_count; i++)
        if (marks[i] == CLAIMED) t->owner[i] = -1;
    return KW_OK;
}

kw_err kc_assign_sticky(struct kc_table *t, bool cooperative) {
    if (keep(t)) return KW_ENOMEM;
    give_free(t);
    while (level(t)) continue;
    return cooperative ? hold_back(t) : KW_OK;
}
