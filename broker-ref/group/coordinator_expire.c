/* coordinator_expire.c - offsets and groups that nobody needs any more: by age, of topics that are gone, on demand.
 *
 * KIP-211: the clock of a group's offsets runs from when it lost its last member; that of a topic that no member of a living group
 * consumes, from the commit. A group without members and offsets goes. Called by coordinator.c (a timer, a topic removed) and
 * api/delete_groups, offset_delete.
 */
#include "coordinator_priv.h"

#define REMOVE_MAX 1000 /* offsets in one batch */
enum { KEY_SIZE_MAX = 249 + 64 /* of a removal, but for the group's id: a topic's name, and the record around it */ };

/* As many as are sure to fit into one batch, with the removal of the group itself. */
static size_t remove_max(const struct kb_group_entry *e) {
    size_t each = (size_t)kb_group_id(e->group).len + KEY_SIZE_MAX, fit = (size_t)KW_MAX(e->shard->p->config.max_message_bytes, 0) / each;
    return KW_MIN(KW_MAX(fit, (size_t)2) - 1, (size_t)REMOVE_MAX);
}

struct rule {
    const struct kb_group_entry *e;
    int64_t wall_ms, retention_ms;
};

static bool is_expired(void *arg, const struct kb_offset_entry *o) {
    const struct rule *r = arg;
    const struct kb_group *g = r->e->group;
    const struct kb_offset *v = &o->stored;
    if (o->pending > 0) return false;
    if (v->expire_ms >= 0) return v->expire_ms <= r->wall_ms; /* a commit that brought its own (before v5) */
    bool consumers = kw_str_eq(kb_group_protocol_type(g), kw_str_of("consumer")), used = kb_group_protocol_type(g).len > 0;
    int64_t from = v->commit_ms;
    switch (kb_group_state(g)) {
    case KB_GROUP_EMPTY:
        if (used) from = KW_MAX(from, kb_group_since_ms(g)); /* what was set later, without a member, is as old as it is */
        break;
    case KB_GROUP_STABLE:
        if (!consumers || kb_group_subscribes(g, (struct kw_str){o->topic->name, o->topic->len})) return false;
        break;
    default:
        return false;
    }
    return r->wall_ms - from >= r->retention_ms;
}

static void expire_group(struct kb_coordinator *c, struct kb_group_entry *e, struct kb_now now) {
    struct rule r = {.e = e, .wall_ms = now.wall_ms, .retention_ms = c->retention_ms};
    struct kb_commit *commit;
    bool empty = kb_group_is_unused(e->group) && e->offsets.entries == e->offsets.stored && e->changes == 0;
    if (e->offsets.stored == 0 && !empty) return;
    (void)!kb_coordinator_remove(e, is_expired, &r, remove_max(e), empty, NULL, NULL, now,
                                 &commit); /* what cannot be stored now is tried again */
}

void kb_coordinator_expire(struct kb_coordinator *c, struct kb_now now) {
    struct kb_shard *s;
    struct kb_group_entry *e;
    for (size_t i = 0; (s = kw_map_next(&c->shards, &i));)
        for (size_t k = 0; s->state == KB_SHARD_SERVING && (e = kw_map_next(&s->groups, &k));) expire_group(c, e, now);
}

static bool is_of_topic(void *arg, const struct kb_offset_entry *o) {
    const struct kw_str *topic = arg;
    return kw_str_eq((struct kw_str){o->topic->name, o->topic->len}, *topic);
}

void kb_coordinator_topic_removed(struct kb_node *n, struct kw_str topic) {
    struct kb_coordinator *c = n->coordinator;
    struct kb_shard *s;
    struct kb_group_entry *e;
    struct kb_commit *commit;
    for (size_t i = 0; c && (s = kw_map_next(&c->shards, &i));)
        for (size_t k = 0; s->state == KB_SHARD_SERVING && (e = kw_map_next(&s->groups, &k));) do
                if (kb_coordinator_remove(e, is_of_topic, &topic, remove_max(e), false, NULL, NULL, n->now, &commit)) break;
            while (commit);
}

int16_t kb_coordinator_delete(struct kb_node *n, struct kw_str id, kb_commit_done *done, void *ctx, struct kb_now now,
                              struct kb_commit **out) {
    struct kb_group_entry *e;
    int16_t code = kb_coordinator_group(n, id, false, &e);
    if (code) return code;
    if (!e) return KE_GROUP_ID_NOT_FOUND;
    if (kb_group_state(e->group) != KB_GROUP_EMPTY) return KE_NON_EMPTY_GROUP;
    size_t max = remove_max(e);
    for (size_t left = e->offsets.stored; left > max && !code; left -= max) /* they are stored in this order */
        code = kb_coordinator_remove(e, NULL, NULL, max, false, NULL, NULL, now, out);
    return code ? code : kb_coordinator_remove(e, NULL, NULL, max, true, done, ctx, now, out);
}
