/* group_lead.c - the leader's part: what the members subscribe to, the metadata of all their topics, the share-out. Loop context.
 *
 * The assignor runs here, in a turn of the loop. A member whose subscription cannot be read gets nothing, and the others what is theirs.
 * While it leads, it watches the partitions of all those topics: when there are others, the group shares out anew. Called by group_join.c, group_classic.c.
 *
 * A static leader that comes back may be told to skip the share-out: all keep what they have (KIP-814). How many partitions there were when that
 * was shared out, nobody tells it; so it looks whether all that there are now have an owner, and has the group share out anew if not.
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

/* Nothing is known of its partitions now: not that they are gone. */
static bool is_passing(const struct kc_topic_meta *t) {
    return t->err != KE_NONE && t->err != KE_UNKNOWN_TOPIC_OR_PARTITION;
}

bool kc_group_led_changed(struct kc_group *g) {
    if (!g->leading) return false;
    for (size_t i = 0; i < g->led.count; i++) {
        const struct kc_topic_meta *t = kc_metadata_topic(g->consume->core, g->led.v[i]);
        if (!is_passing(t) && count_of(t) != g->led_counts[i]) return true;
    }
    return false;
}

/* ---- Whether a share-out that was kept is of all there is ---- */

static kw_err encode_survey(struct kc_request *rq, struct kw_out *out) {
    struct kc_group *g = rq->ctx;
    struct kw_describe_groups_request m;
    struct kw_str id = kc_group_id(g);
    kw_msg_init(&kw_describe_groups_request_desc, &m);
    m.groups.v = &id;
    m.groups.n = 1;
    return kw_encode(&kw_describe_groups_request_desc, rq->version, &m, out);
}

/* Adds a member's partitions to those of their topics, by place in g->led. One that cannot be read has none. */
static kw_err count_share(struct kc_group *g, struct kw_bytes b, struct kw_arena *a, int64_t *counts) {
    struct kc_share s;
    kw_err err = kc_share_read(b, a, &s);
    for (int32_t t = 0; err == KW_OK && t < s.topic_count; t++) {
        int32_t topic = kc_group_intern(g, s.topics[t].topic);
        const int32_t *at = kc_numbers_find(&g->led, topic);
        if (at) counts[at - g->led.v] += KW_MAX(s.topics[t].partitions.n, 0);
    }
    return err == KW_ENOMEM ? err : KW_OK;
}

/* *whole: each partition has an owner, and none has one that is not there; or the group is on its way to another share-out anyway. */
static kc_err read_survey(struct kc_group *g, struct kc_request *rq, struct kw_in *body, struct kw_arena *a, bool *whole) {
    struct kw_describe_groups_response m;
    kw_err err = kw_decode(&kw_describe_groups_response_desc, rq->version, body, a, &m);
    if (err != KW_OK) return kc_err_from(err);
    kc_core_broker_throttle(g->consume->core, rq->sent_to, m.throttle_time_ms);
    if (m.groups.n != 1) return KC_BAD_MESSAGE;
    const struct kw_describe_groups_response_described_group *d = &m.groups.v[0];
    if (d->error_code != KE_NONE) return d->error_code;
    *whole = true;
    if (!kw_str_eq(d->group_state, kw_str_of("Stable"))) return KC_OK;
    int64_t *counts = kw_arena_calloc(a, g->led.count + 1, sizeof(*counts));
    if (!counts) return KC_NO_MEMORY;
    for (int32_t i = 0; i < d->members.n; i++)
        if (count_share(g, d->members.v[i].member_assignment, a, counts) != KW_OK) return KC_NO_MEMORY;
    for (size_t i = 0; i < g->led.count; i++)
        if (!is_passing(kc_metadata_topic(g->consume->core, g->led.v[i])) && counts[i] != g->led_counts[i]) *whole = false;
    return KC_OK;
}

static void survey_done(struct kc_request *rq, kc_err err, struct kw_in *body, struct kw_blk *blk) {
    struct kc_group *g = rq->ctx;
    struct kc_consume *c = g->consume;
    struct kw_arena a;
    bool whole = false;
    (void)blk;
    g->survey_busy = false;
    c->requests--;
    if (!g->stopped && g->survey_due && g->state == KC_GROUP_STABLE && g->survey_generation == g->generation) {
        int64_t now_us = kc_core_now(c->core).mono_us;
        kw_arena_init(&a, 0);
        if (err == KC_OK) err = read_survey(g, rq, body, &a, &whole);
        kw_arena_deinit(&a);
        bool again = err == KC_NO_MEMORY || kc_coordinator_failed(kc_commits_coordinator(c->commits), rq, err);
        g->survey_due = again;
        if (again) g->survey_at_us = kc_after(now_us, kc_backoff_us(c, ++g->survey_errors));
        if (!again && !whole) { /* or it cannot be told: sharing out anew is right in any case */
            kc_group_rebalance(g, now_us);
            g->why = "partitions were added while the leader was away";
        }
    }
    kc_consume_run(c);
}

void kc_group_survey(struct kc_group *g, int64_t now_us) {
    struct kc_consume *c = g->consume;
    if (g->survey_busy) return;
    kc_request_init(&g->survey, KW_API_DESCRIBE_GROUPS);
    kc_coordinator_aim(kc_commits_coordinator(c->commits), &g->survey);
    g->survey.encode = encode_survey;
    g->survey.done = survey_done;
    g->survey.ctx = g;
    g->survey.deadline_us = kc_after(now_us, c->settings->request_timeout_us);
    g->survey_generation = g->generation;
    g->survey_busy = true;
    c->requests++;
    kc_core_send(c->core, &g->survey);
}
