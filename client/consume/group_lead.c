/* group_lead.c - the leader's part: what the members subscribe to, the metadata of all their topics, the share-out. Loop context.
 *
 * The assignor runs here, in a turn of the loop. A member whose subscription cannot be read gets nothing, and the others what is theirs.
 * While it leads, it watches the partitions of all those topics: when there are others, the group shares out anew. Called by group_join.c, group_classic.c.
 */
#include "group.h"

static kw_err read_member(struct kc_group *g, const struct kw_join_group_response_member *in, struct kc_member_in *out) {
    *out = (struct kc_member_in){.id = in->member_id, .instance_id = in->group_instance_id};
    kw_err err = kc_subscription_read(g->how, in->metadata, &g->arena, &out->said);
    if (err == KW_ENOMEM) return err;
    if (err == KW_OK) return KW_OK;
    out->said = (struct kc_subscription){.generation = -1, .rack = kw_str_null()};
    kc_core_log(g->consume->core, 4, "group %s: the subscription of member %.*s cannot be read (%s): it gets no partitions",
                g->consume->settings->group_id, (int)KW_MIN(KW_MAX(in->member_id.len, 0), 200), in->member_id.p ? in->member_id.p : "",
                kw_kerror_name(err));
    return KW_OK;
}

kw_err kc_group_read_members(struct kc_group *g, const struct kw_join_group_response *m) {
    size_t n = (size_t)KW_MAX(m->members.n, 0), topics = 0, at = 0;
    struct kc_numbers led = {NULL, 0};
    kc_group_lead_over(g);
    g->members = kw_arena_calloc(&g->arena, n + 1, sizeof(*g->members));
    if (!g->members) return KW_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        kw_err err = read_member(g, &m->members.v[i], &g->members[i]);
        if (err != KW_OK) return err;
        topics += (size_t)g->members[i].said.topic_count;
    }
    g->member_count = n;
    int32_t *v = kw_arena_alloc(&g->arena, (topics + 1) * sizeof(*v));
    if (!v) return KW_ENOMEM;
    for (size_t i = 0; i < n; i++)
        for (int32_t k = 0; k < g->members[i].said.topic_count; k++) {
            int32_t topic = kc_group_intern(g, g->members[i].said.topics[k]);
            if (topic > 0) v[at++] = topic;
        }
    kw_err err = kc_numbers_set(&led, v, at);
    int32_t *counts = err == KW_OK ? kw_calloc(led.count + 1, sizeof(*counts)) : NULL;
    if (!counts) {
        kc_numbers_free(&led);
        return KW_ENOMEM;
    }
    kw_free(g->led_counts);
    g->led_counts = counts;
    kc_group_want(g, &g->led, &led);
    return KW_OK;
}

void kc_group_lead_over(struct kc_group *g) {
    kw_blk_unref(g->join_blk);
    g->join_blk = NULL;
    g->members = NULL;
    g->shares = NULL;
    g->member_count = 0;
}

static int32_t count_of(const struct kc_topic_meta *t) {
    return t && t->err == KE_NONE ? t->partition_count : 0;
}

static int32_t partitions(void *ctx, struct kw_str name) {
    struct kc_group *g = ctx;
    int32_t topic = kc_group_intern(g, name);
    return topic > 0 ? count_of(kc_metadata_topic(g->consume->core, topic)) : 0;
}

/* Something is known of each topic, if only that it does not exist. */
static bool all_known(const struct kc_group *g) {
    for (size_t i = 0; i < g->led.count; i++)
        if (!kc_metadata_topic(g->consume->core, g->led.v[i])->known) return false;
    return true;
}

void kc_group_lead(struct kc_group *g) {
    if (!all_known(g)) return; /* metadata.c asks, and has us run again */
    for (size_t i = 0; i < g->led.count; i++) g->led_counts[i] = count_of(kc_metadata_topic(g->consume->core, g->led.v[i]));
    kw_err err = KW_OK;
    if (!g->skip_assignment) {
        g->shares = kw_arena_calloc(&g->arena, g->member_count + 1, sizeof(*g->shares));
        err = g->shares ? kc_assign(g->how, g->members, g->member_count, partitions, g, &g->arena, g->shares) : KW_ENOMEM;
    }
    if (err != KW_OK) {
        kc_group_retry(g, kc_err_from(err));
        return;
    }
    kc_group_enter(g, KC_GROUP_SYNC);
    kc_group_sync(g);
}

bool kc_group_led_changed(struct kc_group *g) {
    if (!g->leading) return false;
    for (size_t i = 0; i < g->led.count; i++) {
        const struct kc_topic_meta *t = kc_metadata_topic(g->consume->core, g->led.v[i]);
        bool passing = t->err != KE_NONE && t->err != KE_UNKNOWN_TOPIC_OR_PARTITION; /* nothing is known now: not that they are gone */
        if (!passing && count_of(t) != g->led_counts[i]) return true;
    }
    return false;
}
