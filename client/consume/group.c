/* group.c - what a membership is to the rest of the consumer: subscribed, unsubscribed, closed, asked. The member's states are group_classic.c's.
 *
 * Any thread, but for what says otherwise. Called by handle_group.c, handle_consumer.c, consumer.c, part.c, tests.
 */
#include "group.h"

#include <stdio.h>
#include <strings.h>

/* ---- Properties ---- */

static const char *const java_names[KC_ASSIGNOR_COUNT] = {"RangeAssignor", "RoundRobinAssignor", "StickyAssignor", "CooperativeStickyAssignor"};
#define JAVA_PACKAGE "org.apache.kafka.clients.consumer."

static bool assignor_of(const char *p, size_t n, enum kc_assignor *how) {
    if (kc_assignor_by_name((struct kw_str){p, (int32_t)n}, how)) return true;
    size_t prefix = sizeof JAVA_PACKAGE - 1;
    if (n <= prefix || memcmp(p, JAVA_PACKAGE, prefix) != 0) return false;
    for (int i = 0; i < KC_ASSIGNOR_COUNT; i++) {
        if (strlen(java_names[i]) != n - prefix || memcmp(p + prefix, java_names[i], n - prefix) != 0) continue;
        *how = (enum kc_assignor)i;
        return true;
    }
    return false;
}

/* Each once, in their order. false: *bad, *size is none. */
static bool parse_assignors(const char *list, enum kc_assignor *out, size_t *count, const char **bad, size_t *size) {
    *count = 0;
    for (const char *p = list; *p;) {
        p += strspn(p, ", \t");
        size_t n = strcspn(p, ", \t");
        enum kc_assignor how;
        if (n == 0) break;
        if (n > 200 || !assignor_of(p, n, &how)) {
            *bad = p;
            *size = n;
            return false;
        }
        bool there = false;
        for (size_t i = 0; i < *count; i++) there |= out[i] == how;
        if (!there) out[(*count)++] = how;
        p += n;
    }
    *bad = "";
    *size = 0;
    return *count > 0;
}

kc_err kc_group_check(const struct kc_settings *s, kc_error **error) {
    enum kc_assignor how[KC_ASSIGNOR_COUNT];
    const char *bad;
    size_t count, size;
    if (parse_assignors(s->assignors, how, &count, &bad, &size)) return KC_OK;
    kc_error_make(error, KC_CONFIG, KC_NOT_PERSISTED, NULL,
                  "partition.assignment.strategy: \"%.*s\" is none of range, roundrobin, sticky, cooperative-sticky", (int)KW_MIN(size, (size_t)80),
                  bad);
    return KC_CONFIG;
}

struct kw_str kc_group_id(const struct kc_group *g) {
    return kw_str_of(g->consume->settings->group_id);
}

struct kw_str kc_group_instance(const struct kc_group *g) {
    const char *id = g->consume->settings->group_instance_id;
    return id && *id ? kw_str_of(id) : kw_str_null();
}

bool kc_group_is_static(const struct kc_group *g) {
    return kc_group_instance(g).len > 0;
}

/* ---- Life ---- */

static void group_free(struct kc_group *g) {
    kc_numbers_free(&g->wanted);
    kc_numbers_free(&g->topics);
    kc_numbers_free(&g->joined_topics);
    kc_numbers_free(&g->led);
    if (g->matcher) g->matcher->free(g->matcher);
    kc_handover_unref(g->spare);
    kc_handover_unref(g->revoking);
    kw_free(g->sought.v);
    kw_free(g->paused);
    kw_free(g->member_id);
    kw_free(g->who_id);
    kw_free(g->led_counts);
    kw_free(g->first_counts);
    kw_blk_unref(g->join_blk);
    kw_arena_deinit(&g->arena);
    kw_arena_deinit(&g->share_arena);
    kw_free(g);
}

static struct kc_group *group_new(struct kc_consume *c) {
    struct kc_group *g = kw_calloc(1, sizeof(*g));
    if (!g) return NULL;
    const char *bad;
    size_t size;
    kw_arena_init(&g->arena, 0);
    kw_arena_init(&g->share_arena, 0);
    kw_list_init(&g->open);
    g->consume = c;
    g->generation = g->last_generation = -1;
    g->search_at_us = KW_NEVER;
    g->member_id = kw_calloc(1, 1);
    if (!c->tie) c->tie = kc_tie_new(c);
    g->tie = c->tie;
    if (!g->member_id || !g->tie) {
        group_free(g);
        return NULL;
    }
    (void)parse_assignors(c->settings->assignors, g->assignors, &g->assignor_count, &bad, &size); /* checked when the consumer was made */
    g->cooperative = g->assignor_count > 0;
    for (size_t i = 0; i < g->assignor_count; i++) g->cooperative &= kc_assignor_is_cooperative(g->assignors[i]);
    kc_group_init_loop(g);
    return g;
}

void kc_group_deinit(struct kc_consume *c) {
    struct kc_group *g = atomic_load(&c->group);
    struct kw_list *n;
    if (c->tie) kc_tie_cut(c->tie);
    c->tie = NULL;
    kc_handover_unref(c->handed);
    c->handed = NULL;
    while ((n = kw_list_shift(&c->news)) != NULL) kc_handover_unref(KW_CONTAINER_OF(n, struct kc_handover, news_link));
    if (!g) return;
    while ((n = kw_list_shift(&g->open)) != NULL) kc_handover_unref(KW_CONTAINER_OF(n, struct kc_handover, open_link));
    group_free(g);
    atomic_store(&c->group, NULL);
}

/* ---- Subscribing ---- */

static bool assigned_by_hand(const struct kc_consume *c, const struct kc_group *g) {
    if (g && g->subscribed) return false;
    for (const struct kw_list *it = c->parts.next; it != &c->parts; it = it->next)
        if (KW_CONTAINER_OF(it, struct kc_part, link)->assigned) return true;
    return false;
}

/* Under the lock. */
static kc_err subscribe(struct kc_consume *c, const int32_t *topics, size_t count, struct kc_matcher *matcher) {
    struct kc_group *g = atomic_load(&c->group);
    if (assigned_by_hand(c, g) || count > KC_GROUP_TOPICS_MAX) return KC_INVALID;
    if (g && g->closing) return KC_CLOSED;
    if (!g && !(g = group_new(c))) return KC_NO_MEMORY;
    bool fresh = !atomic_load(&c->group);
    if (kc_numbers_set(&g->wanted, topics, count) != KW_OK) {
        if (fresh) group_free(g);
        return KC_NO_MEMORY;
    }
    if (g->matcher) g->matcher->free(g->matcher);
    g->matcher = matcher;
    if (!g->subscribed) g->sought.open = true;
    g->subscribed = true;
    g->joined = false;
    g->failed = KC_OK;
    g->wishes++;
    atomic_store(&c->group, g);
    c->kick(c->ctx);
    return KC_OK;
}

kc_err kc_group_subscribe(struct kc_consume *c, const int32_t *topics, size_t count, struct kc_matcher *matcher) {
    kc_err err = KC_CONFIG;
    if (c->commits) {
        kc_lock_take(&c->lock);
        err = subscribe(c, topics, count, matcher);
        kc_lock_give(&c->lock);
    }
    if (err != KC_OK && matcher) matcher->free(matcher);
    return err;
}

void kc_group_unsubscribe(struct kc_consume *c) {
    kc_lock_take(&c->lock);
    struct kc_group *g = atomic_load(&c->group);
    if (g && g->subscribed) {
        g->subscribed = false;
        g->failed = KC_OK;
        g->wishes++;
        kc_group_give_up(g);
        c->kick(c->ctx);
    }
    kc_lock_give(&c->lock);
}

void kc_group_close(struct kc_consume *c, int64_t close_by_us) {
    kc_lock_take(&c->lock);
    struct kc_group *g = atomic_load(&c->group);
    if (g && !g->closing) {
        g->closing = true;
        g->close_by_us = close_by_us;
        if (g->subscribed) kc_group_give_up(g);
        g->subscribed = false;
        g->wishes++;
        c->kick(c->ctx);
    } else if (g && close_by_us > g->close_by_us) {
        g->close_by_us = close_by_us;
    }
    kc_lock_give(&c->lock);
}

bool kc_group_gone(const struct kc_consume *c) {
    const struct kc_group *g = atomic_load(&c->group);
    return !g || g->gone || c->closed;
}

bool kc_group_gave(const struct kc_consume *c) {
    const struct kc_group *g = atomic_load(&c->group);
    return g && g->subscribed;
}

kc_err kc_group_assigned(struct kc_consume *c) {
    kc_lock_take(&c->lock);
    const struct kc_group *g = atomic_load(&c->group);
    kc_err err = !g || !g->subscribed ? KC_INVALID : g->joined ? KC_OK : g->failed != KC_OK ? g->failed : KC_BUSY;
    kc_lock_give(&c->lock);
    return err;
}

bool kc_group_lapsed(struct kc_consume *c, int64_t now_us) {
    if (now_us < atomic_load(&c->session_by_us)) return false;
    c->kick(c->ctx);
    return true;
}

size_t kc_group_member(struct kc_consume *c, int32_t *generation, char *id, size_t size) {
    size_t n = 0;
    kc_lock_take(&c->lock);
    const struct kc_group *g = atomic_load(&c->group);
    if (generation) *generation = g ? g->generation : -1;
    if (g) n = strlen(g->member_id);
    if (id && size > 0) snprintf(id, size, "%s", g ? g->member_id : "");
    kc_lock_give(&c->lock);
    return n;
}

kc_err kc_group_seek(struct kc_consume *c, const kc_topic_partition *tp) {
    struct kc_group *g = atomic_load(&c->group);
    if (!g || !g->subscribed || !g->sought.open) return KC_NOT_ASSIGNED;
    for (size_t i = 0; i < g->sought.count; i++) {
        if (g->sought.v[i].topic != tp->topic || g->sought.v[i].partition != tp->partition) continue;
        g->sought.v[i] = *tp;
        return KC_OK;
    }
    if (g->sought.count == g->sought.cap) {
        size_t cap = g->sought.cap ? g->sought.cap * 2 : 8;
        kc_topic_partition *grown = kw_realloc(g->sought.v, cap * sizeof(*grown));
        if (!grown) return KC_NO_MEMORY;
        g->sought.v = grown;
        g->sought.cap = cap;
    }
    g->sought.v[g->sought.count++] = *tp;
    return KC_OK;
}

/* ---- What it waits for ---- */

static const struct {
    int32_t state;
    const char *text;
} shown[] = {
    [KC_GROUP_IDLE] = {29, "no subscription"},
    [KC_GROUP_START] = {25, "is about to join"},
    [KC_GROUP_SEARCH] = {28, "looks for topics that match the subscription"},
    [KC_GROUP_REVOKE] = {24, "partitions are being taken away: waits for the application to acknowledge REVOKED"},
    [KC_GROUP_DRAIN] = {24, "waits for the last commit before it goes on"},
    [KC_GROUP_JOIN] = {22, "joining: waits for the other members to join too"},
    [KC_GROUP_LEAD] = {28, "leads the group, and waits for metadata of its topics"},
    [KC_GROUP_SYNC] = {23, "waits for the leader to share the partitions out"},
    [KC_GROUP_STABLE] = {20, "is a member"},
    [KC_GROUP_BACKOFF] = {25, "waits before it tries again"},
    [KC_GROUP_LEAVE] = {29, "leaving"},
    [KC_GROUP_OUT] = {26, "has left, since poll was not called for max.poll.interval.ms: the next poll joins again"},
    [KC_GROUP_FAILED] = {27, "is out of the group for good; subscribe again to go on"},
};

bool kc_group_why(struct kc_consume *c, kc_why *w) {
    struct kc_group *g = atomic_load(&c->group);
    kc_lock_take(&c->lock);
    bool subscribed = kc_group_gave(c);
    kc_lock_give(&c->lock);
    if (!g || (g->state == KC_GROUP_IDLE && !subscribed)) return false;
    struct kc_coordinator *co = kc_commits_coordinator(c->commits);
    char where[160] = "";
    int64_t now_us = kc_core_now(c->core).mono_us;
    *w = (kc_why){.topic = 0, .partition = -1, .state = shown[g->state].state, .broker = co ? kc_coordinator_broker(co) : -1};
    if (g->state == KC_GROUP_JOIN && w->broker < 0) w->state = 21;
    if (co) kc_coordinator_status(co, where, sizeof where);
    w->since_us = now_us > g->since_us ? now_us - g->since_us : 0;
    w->last_error = g->last_err;
    bool error = g->last_err != KC_OK && g->state != KC_GROUP_STABLE;
    snprintf(w->text, sizeof w->text, "group %.40s: %s%s%s%s%s", c->settings->group_id, w->state == 21 ? "finding the coordinator" : shown[g->state].text,
             error ? " after " : "", error ? kc_err_name(g->last_err) : "", *where ? "; " : "", where);
    return true;
}
