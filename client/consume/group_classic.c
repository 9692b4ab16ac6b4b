/* group_classic.c - a member of a group by the protocol in which its members share out among themselves: its states, its limits in time.
 *
 * Loop context; kc_group_run looks at everything after a call, an answer, new metadata, a timer. What a state does next is in `step`; answers
 * are group_join.c's and group_heartbeat.c's. Contract: group.h.
 */
#include "group.h"

#define STEPS_MAX 16
#define MEMORY_RETRY_US 100000
#define AT_ONCE_MAX 2 /* so often in a row it joins again without a wait */

static void timer_fired(struct kw_timer *t, void *ctx, int64_t now_us) {
    struct kc_group *g = ctx;
    (void)t;
    (void)now_us;
    kc_consume_run(g->consume);
}

void kc_group_init_loop(struct kc_group *g) {
    kw_timer_init(&g->timer, timer_fired, g);
    kw_list_init(&g->drain.link);
    g->why = "it subscribes";
}

static int64_t now_of(const struct kc_group *g) {
    return kc_core_now(g->consume->core).mono_us;
}

void kc_group_enter(struct kc_group *g, enum kc_group_state state) {
    g->state = state;
    g->since_us = now_of(g);
}

/* ---- Who it is ---- */

kw_err kc_group_member_set(struct kc_group *g, struct kw_str id) {
    struct kc_consume *c = g->consume;
    size_t n = (size_t)KW_MAX(id.len, 0);
    if (memchr(id.p ? id.p : "", 0, n)) return KW_EDECODE;
    char *copy = kw_malloc(n + 1);
    if (!copy) return KW_ENOMEM;
    if (n > 0) memcpy(copy, id.p, n);
    copy[n] = 0;
    kc_lock_take(&c->lock);
    char *old = g->member_id;
    g->member_id = copy;
    kc_lock_give(&c->lock);
    kw_free(old);
    return KW_OK;
}

/* A generation is complete, and no other has been joined: commits may go out under it. */
static bool is_member(const struct kc_group *g) {
    if (g->generation < 0) return false;
    return g->state != KC_GROUP_JOIN && g->state != KC_GROUP_LEAD && g->state != KC_GROUP_SYNC;
}

void kc_group_publish(struct kc_group *g, bool member) {
    struct kc_commits *commits = g->consume->commits;
    char *id = member ? kw_memdup(g->member_id, strlen(g->member_id) + 1) : NULL;
    g->publish_due = member && !id; /* without memory: soon */
    g->published = id != NULL;
    g->who = (struct kc_commit_member){g->generation, kw_str_of(id), kc_group_instance(g)};
    kc_commits_member(commits, id ? &g->who : NULL);
    kw_free(g->who_id);
    g->who_id = id;
}

void kc_group_forget(struct kc_group *g, bool id_too) {
    struct kc_consume *c = g->consume;
    kc_lock_take(&c->lock);
    g->generation = -1;
    if (id_too) g->member_id[0] = 0;
    kc_lock_give(&c->lock);
    g->leading = false;
    g->rejoin = false;
    kc_group_publish(g, false);
}

/* ---- Ends of what is under way ---- */

static void cancel_join(struct kc_group *g) {
    if (!g->rq_busy || g->rq_void) return;
    g->rq_void = true; /* its done comes in the next turn */
    kc_core_cancel(g->consume->core, &g->rq);
    kc_core_lane_rest(g->consume->core, g->lane); /* or the next one would wait behind it */
}

static void cancel_drain(struct kc_group *g) {
    if (g->draining) kc_commits_drain_cancel(g->consume->commits, &g->drain);
    g->draining = false;
}

static void drop_revoking(struct kc_group *g) {
    kc_handover_unref(g->revoking);
    g->revoking = NULL;
}

void kc_group_rest(struct kc_group *g) {
    cancel_join(g);
    cancel_drain(g);
    drop_revoking(g);
    kc_group_lead_over(g);
}

void kc_group_lose(struct kc_group *g, bool id_too, const char *why) {
    struct kc_consume *c = g->consume;
    kc_lock_take(&c->lock);
    bool any = kc_group_drop_all(g);
    kc_lock_give(&c->lock);
    kc_core_log(c->core, any ? 4 : 6, "group %s: %s: %s", c->settings->group_id, any ? "partitions are lost, and it joins again" : "it joins again",
                why);
    kc_group_rest(g);
    kc_group_forget(g, id_too);
    g->why = why;
    kc_group_again(g);
}

/* A group that is never of one mind is not asked without a break. */
void kc_group_again(struct kc_group *g) {
    g->rebalance_since_us = now_of(g);
    if (g->errors < INT32_MAX) g->errors++;
    if (g->errors > AT_ONCE_MAX) {
        g->not_before_us = kc_after(now_of(g), kc_backoff_us(g->consume, g->errors - AT_ONCE_MAX));
        kc_group_enter(g, KC_GROUP_BACKOFF);
    } else {
        kc_group_enter(g, KC_GROUP_START);
    }
}

void kc_group_tell_error(struct kc_group *g, kc_err err, const char *what) {
    struct kc_consume *c = g->consume;
    g->last_err = err;
    if (g->told == err) return;
    g->told = err;
    kc_core_log(c->core, 3, "group %s: %s: %s: %s", c->settings->group_id, what, kc_err_name(err), kc_err_text(err));
    kc_lock_take(&c->lock);
    g->failed = err;
    struct kc_handover *h = kc_handover_new(g, KC_EVENT_ERROR, 0);
    if (h) {
        kc_error_make(&h->error, err, KC_NOT_PERSISTED, NULL, "group %s: %s: %s", c->settings->group_id, what, kc_err_text(err));
        if (g->state == KC_GROUP_FAILED) kc_error_fatal_set(h->error, KC_ACTION_RECREATE);
        kc_handover_tell(g, h, false);
    }
    kc_lock_give(&c->lock);
}

void kc_group_fenced(struct kc_group *g) {
    const char *text = "another consumer has joined with the same group.instance.id";
    kc_group_lose(g, true, text);
    kc_group_enter(g, KC_GROUP_FAILED);
    g->told = KC_OK;
    kc_group_tell_error(g, KE_FENCED_INSTANCE_ID, text);
}

static bool passes(kc_err err) {
    return kc_err_retriable(err) || err == KE_REBALANCE_IN_PROGRESS || err == KC_TRANSPORT || err == KC_TIMED_OUT || err == KC_NO_MEMORY;
}

/* What passes by itself is only tried again; of the rest the application is told once. */
void kc_group_retry(struct kc_group *g, kc_err err) {
    struct kc_consume *c = g->consume;
    if (g->errors < INT32_MAX) g->errors++;
    g->last_err = err;
    if (!passes(err)) kc_group_tell_error(g, err, "joining");
    kc_core_log(c->core, 7, "group %s: %s; tried again", c->settings->group_id, kc_err_name(err));
    kc_group_lead_over(g);
    g->not_before_us = kc_after(now_of(g), kc_backoff_us(c, g->errors));
    kc_group_enter(g, KC_GROUP_BACKOFF);
}

void kc_group_rebalance(struct kc_group *g, int64_t now_us) {
    if (g->state != KC_GROUP_STABLE || g->rejoin) return;
    g->why = "the group rebalances";
    g->rejoin = true;
    g->rebalance_since_us = now_us;
}

void kc_group_refused(void *ctx, const struct kc_commit_member *as, kc_err err) {
    struct kc_consume *c = ctx;
    struct kc_group *g = atomic_load(&c->group);
    if (!g || g->stopped || !is_member(g) || !kc_group_is_in(g) || as->generation != g->generation) return;
    if (err == KE_REBALANCE_IN_PROGRESS)
        kc_group_rebalance(g, now_of(g));
    else if (err == KE_FENCED_INSTANCE_ID)
        kc_group_fenced(g);
    else
        kc_group_lose(g, err == KE_UNKNOWN_MEMBER_ID, kc_err_name(err));
    c->kick(c->ctx);
}

/* ---- After SyncGroup ---- */

size_t kc_group_counts_at(const struct kc_group *g, int32_t topic) {
    size_t from = 0, to = g->first_count;
    while (from < to) {
        size_t mid = from + (to - from) / 2;
        if (g->first_counts[mid].topic < topic)
            from = mid + 1;
        else
            to = mid;
    }
    return from;
}

static kw_err note_count(struct kc_group *g, int32_t topic, int32_t least) {
    size_t at = kc_group_counts_at(g, topic);
    if (at < g->first_count && g->first_counts[at].topic == topic) return KW_OK;
    const struct kc_topic_meta *t = kc_metadata_topic(g->consume->core, topic);
    if (!t->known && least == 0) return KW_OK; /* nothing is known of it yet */
    if (g->first_count == g->first_cap) {
        size_t cap = g->first_cap ? g->first_cap * 2 : 8;
        struct kc_counts *grown = kw_realloc(g->first_counts, cap * sizeof(*grown));
        if (!grown) return KW_ENOMEM;
        g->first_counts = grown;
        g->first_cap = cap;
    }
    memmove(&g->first_counts[at + 1], &g->first_counts[at], (g->first_count++ - at) * sizeof(*g->first_counts));
    g->first_counts[at] = (struct kc_counts){topic, KW_MAX(t->err == KE_NONE ? t->partition_count : 0, least)};
    return KW_OK;
}

kw_err kc_group_note_counts(struct kc_group *g, const kc_topic_partition *v, size_t n) {
    for (size_t i = 0; i < n; i++) { /* ascending: the last of a topic's is its highest */
        if (i + 1 < n && v[i + 1].topic == v[i].topic) continue;
        if (note_count(g, v[i].topic, v[i].partition + 1) != KW_OK) return KW_ENOMEM;
    }
    for (size_t i = 0; i < g->topics.count; i++)
        if (note_count(g, g->topics.v[i], 0) != KW_OK) return KW_ENOMEM;
    return KW_OK;
}

void kc_group_settled(struct kc_group *g, bool gone) {
    struct kc_consume *c = g->consume;
    g->errors = 0;
    g->last_err = g->told = KC_OK;
    g->revoke_listed = gone;
    g->rebalance_since_us = now_of(g);
    g->beat_due_us = kc_after(now_of(g), c->settings->heartbeat_us);
    kc_lock_take(&c->lock);
    g->failed = KC_OK;
    kc_lock_give(&c->lock);
    kc_group_lead_over(g);
    g->survey_due = g->leading && g->skip_assignment;
    g->survey_at_us = now_of(g);
    g->survey_errors = 0;
    if (!kc_numbers_same(&g->joined_topics, &g->topics)) {
        g->rejoin = true;
        g->why = "the subscription changed";
    }
    kc_group_enter(g, KC_GROUP_STABLE);
    kc_group_publish(g, true);
    kc_core_lane_rest(c->core, g->lane);
}

/* ---- What the application wants ---- */

static void begin_leaving(struct kc_group *g) {
    kc_group_rest(g);
    g->after_drain = KC_GROUP_LEAVE;
    g->after_leave = KC_GROUP_IDLE;
    g->leave_why = g->closing ? "the consumer is closed" : "the consumer unsubscribed";
    g->leave_static = !g->closing;
    kc_group_enter(g, KC_GROUP_DRAIN);
}

static void begin_subscribing(struct kc_group *g) {
    g->why = "the subscription changed";
    switch (g->state) {
    case KC_GROUP_IDLE:
        g->polled_us = now_of(g);
        g->why = "it subscribes";
        kc_group_enter(g, KC_GROUP_START);
        break;
    case KC_GROUP_FAILED:
        g->told = KC_OK;
        kc_group_enter(g, KC_GROUP_START);
        break;
    case KC_GROUP_STABLE:
        if (g->search_due || !kc_numbers_same(&g->joined_topics, &g->topics)) {
            if (!g->rejoin) g->rebalance_since_us = now_of(g);
            g->rejoin = true;
        } else {
            g->consume->notify(g->consume->ctx); /* it has what it wants */
        }
        break;
    case KC_GROUP_DRAIN:
        if (g->after_drain == KC_GROUP_LEAVE) g->after_leave = KC_GROUP_START;
        break;
    case KC_GROUP_LEAVE:
        if (g->after_leave == KC_GROUP_IDLE) g->after_leave = KC_GROUP_START;
        break;
    default: /* on its way to JoinGroup, or sees afterwards that its topics are others now */
        break;
    }
}

/* A subscription, or its end, that was not looked at yet. */
static void take_wish(struct kc_group *g) {
    struct kc_consume *c = g->consume;
    struct kc_numbers now = {NULL, 0};
    kw_err err = KW_OK;
    kc_lock_take(&c->lock);
    uint64_t wishes = g->wishes;
    bool subscribed = g->subscribed, pattern = g->matcher != NULL, fresh = wishes != g->wish;
    if (fresh && !pattern) err = kc_numbers_set(&now, g->wanted.v, subscribed ? g->wanted.count : 0);
    bool stays = fresh && err == KW_OK && subscribed && !pattern && g->state == KC_GROUP_STABLE && !g->rejoin;
    if (stays && kc_numbers_same(&now, &g->joined_topics)) g->joined = true;
    kc_lock_give(&c->lock);
    if (!fresh) return;
    if (err != KW_OK) {
        c->short_of_memory = true;
        return;
    }
    g->wish = wishes;
    g->search_due = subscribed && pattern;
    g->search_at_us = KW_NEVER;
    if (!pattern || !subscribed) kc_group_want(g, &g->topics, &now);
    if (!subscribed)
        begin_leaving(g);
    else
        begin_subscribing(g);
}

/* ---- Limits ---- */

bool kc_group_is_in(const struct kc_group *g) {
    return g->state != KC_GROUP_IDLE && g->state != KC_GROUP_OUT && g->state != KC_GROUP_FAILED && g->state != KC_GROUP_LEAVE &&
           !(g->state == KC_GROUP_DRAIN && g->after_drain == KC_GROUP_LEAVE);
}

/* The counter is looked at now and then, at each heartbeat at least: a poll costs nothing more, and the limit is as exact as that. */
static void watch_polls(struct kc_group *g, int64_t now_us) {
    struct kc_consume *c = g->consume;
    uint32_t polls = atomic_load(&c->polls);
    if (polls != g->polls || (polls & 1)) g->polled_us = now_us;
    g->polls = polls;
    if (!kc_group_is_in(g)) return;
    atomic_store(&g->tie->poll_by_us, kc_after(g->polled_us, c->settings->poll_interval_max_us));
    if (now_us < kc_after(g->polled_us, c->settings->poll_interval_max_us)) return;
    kc_group_lose(g, false, "poll was not called for max.poll.interval.ms");
    g->polls_out = polls;
    atomic_store(&c->poll_wanted, true);
    g->leave_why = g->why;
    g->leave_static = false;
    g->after_leave = KC_GROUP_OUT;
    kc_group_enter(g, KC_GROUP_LEAVE);
}

/* When the group will put it out, unless it is heard of; KW_NEVER: it has no session. */
static int64_t session_end(const struct kc_group *g) {
    return kc_group_is_in(g) && g->generation >= 0 ? kc_after(g->heard_us, g->consume->settings->session_timeout_us) : KW_NEVER;
}

/* For poll. */
static void show_session(struct kc_group *g, int64_t now_us) {
    struct kc_consume *c = g->consume;
    int64_t by_us = g->stopped || c->closed ? KW_NEVER : session_end(g);
    if (atomic_exchange(&c->session_by_us, by_us) <= now_us) c->notify(c->ctx); /* it may have waited for this look */
}

/* The group has put the member out by now, as far as can be known. */
static void watch_session(struct kc_group *g, int64_t now_us) {
    struct kc_consume *c = g->consume;
    if (!kc_group_is_in(g) || g->generation < 0) return;
    struct kc_coordinator *co = kc_commits_coordinator(c->commits);
    bool waits_there = g->state == KC_GROUP_JOIN && co && kc_core_in_flight(c->core, kc_coordinator_broker(co), g->lane) > 0;
    if (waits_there) g->heard_us = now_us; /* whoever waits in JoinGroup is not put out for being silent */
    if (now_us >= session_end(g))
        kc_group_lose(g, false, "no heartbeat was answered for session.timeout.ms");
    else if (g->revoking && now_us >= atomic_load(&g->revoking->deadline_us))
        kc_group_lose(g, false, "REVOKED was not acknowledged in time");
}

/* ---- States ---- */

static void drained(struct kc_commit_drain *d, kc_err err) {
    struct kc_group *g = d->ctx;
    struct kc_consume *c = g->consume;
    g->draining = false;
    if (g->stopped || g->state != KC_GROUP_DRAIN) return;
    if (err == KC_TIMED_OUT)
        kc_core_log(c->core, 4, "group %s: what is processed could not be committed in time; it is tried on", c->settings->group_id);
    g->drained = true;
    c->kick(c->ctx);
}

static bool drain(struct kc_group *g, int64_t now_us) {
    struct kc_consume *c = g->consume;
    if (g->drained) {
        g->drained = false;
        if (g->after_drain == KC_GROUP_LEAVE)
            kc_group_enter(g, KC_GROUP_LEAVE);
        else
            kc_group_join(g);
        return true;
    }
    if (g->draining) return false;
    int64_t limit_us = g->published ? kc_after(now_us, c->settings->api_timeout_us) : now_us; /* nobody: nothing can be committed */
    if (g->after_drain == KC_GROUP_JOIN) limit_us = KW_MIN(limit_us, kc_after(g->rebalance_since_us, c->settings->poll_interval_max_us));
    if (g->closing) limit_us = KW_MIN(limit_us, g->close_by_us);
    g->draining = true;
    g->drain.deadline_us = limit_us;
    g->drain.done = drained;
    g->drain.ctx = g;
    kc_commits_drain(c->commits, &g->drain);
    return g->drained;
}

/* What has to be given up before the group is joined: all, or, where partitions stay, those of topics that are no longer subscribed to. */
static bool begin_revoking(struct kc_group *g) {
    struct kc_consume *c = g->consume;
    struct kc_handover *h = NULL;
    kc_lock_take(&c->lock);
    size_t there = 0;
    for (struct kw_list *it = c->parts.next; it != &c->parts; it = it->next) {
        struct kc_part *p = KW_CONTAINER_OF(it, struct kc_part, link);
        if (g->state == KC_GROUP_START) p->listed = p->assigned && !kc_numbers_have(&g->topics, p->topic);
        there += p->assigned;
    }
    bool all = g->state == KC_GROUP_START && !g->cooperative;
    kc_err err = kc_group_revoke(g, all, kc_after(g->rebalance_since_us, c->settings->poll_interval_max_us), &h);
    if (err == KC_OK && all) g->joined = false;
    kc_lock_give(&c->lock);
    if (err != KC_OK) {
        c->short_of_memory = true;
        return false;
    }
    g->revoke_listed = false;
    g->revoking = h;
    g->after_drain = KC_GROUP_JOIN;
    if (h)
        kc_group_enter(g, KC_GROUP_REVOKE);
    else if (there > 0 && !g->cooperative)
        kc_group_enter(g, KC_GROUP_DRAIN);
    else
        kc_group_join(g);
    return true;
}

static bool start(struct kc_group *g) {
    if (g->rq_busy) return false; /* cancelled: its end is near */
    if (g->search_due) {
        kc_group_enter(g, KC_GROUP_SEARCH);
        return true;
    }
    return begin_revoking(g);
}

static bool search(struct kc_group *g, int64_t now_us) {
    if (!g->search_due) {
        kc_group_enter(g, KC_GROUP_START);
        return true;
    }
    if (!g->search_busy && (g->search_at_us == KW_NEVER || g->search_at_us <= now_us)) kc_group_search(g);
    return false;
}

static bool revoke(struct kc_group *g) {
    kc_lock_take(&g->consume->lock);
    bool acknowledged = g->revoking->state != KC_HANDOVER_OPEN;
    kc_lock_give(&g->consume->lock);
    if (!acknowledged) return false;
    drop_revoking(g);
    kc_group_enter(g, KC_GROUP_DRAIN);
    return true;
}

static bool stable(struct kc_group *g, int64_t now_us) {
    struct kc_consume *c = g->consume;
    if (g->publish_due) kc_group_publish(g, true);
    if (g->revoke_listed) { /* what the share-out gave to others: once that is given up, they are given it */
        g->why = "it has given up what others are to have";
        return begin_revoking(g);
    }
    if (g->search_at_us <= now_us) kc_group_search(g); /* whether other topics match by now */
    if (g->survey_due && !g->rejoin && g->survey_at_us <= now_us) kc_group_survey(g, now_us);
    if (g->metadata_changed && !g->rejoin && kc_group_led_changed(g)) {
        kc_group_rebalance(g, now_us);
        g->why = "topics have other partitions than when they were shared out";
    }
    g->metadata_changed = false;
    if (!g->rejoin) return false;
    g->rejoin = false;
    kc_core_log(c->core, 6, "group %s: joins again: %s", c->settings->group_id, g->why);
    kc_group_enter(g, KC_GROUP_START);
    return true;
}

static bool leave(struct kc_group *g, int64_t now_us) {
    struct kc_consume *c = g->consume;
    if (!g->left) {
        bool tells = *g->member_id && (!kc_group_is_static(g) || g->leave_static);
        int64_t until_us = kc_after(now_us, c->settings->request_timeout_us);
        if (g->closing) until_us = KW_MIN(until_us, g->close_by_us);
        g->left = true;
        g->leave_errors = 0;
        g->leave_again_us = 0;
        if (tells && until_us > now_us) kc_group_send_leave(g, until_us);
    } else if (g->leave_again_us && now_us >= g->leave_again_us) {
        kc_group_send_leave(g, g->leave_until_us);
    }
    bool late = g->closing && now_us >= g->close_by_us;
    if (late && g->leave_busy) kc_core_cancel(c->core, &g->leave);
    if ((g->leave_busy || g->leave_again_us) && !late) return false;
    g->leave_again_us = 0;
    g->left = false;
    kc_group_forget(g, true);
    kc_core_lane_rest(c->core, g->lane);
    kc_group_enter(g, g->after_leave);
    if (g->state == KC_GROUP_IDLE && !g->closing) kc_commits_member(c->commits, &(struct kc_commit_member){-1, kw_str_of(""), kw_str_null()});
    return true;
}

static bool idle(struct kc_group *g) {
    struct kc_consume *c = g->consume;
    if (!g->closing || g->gone) return false;
    kc_lock_take(&c->lock);
    g->gone = true;
    kc_lock_give(&c->lock);
    c->kick(c->ctx);
    return false;
}

static bool step(struct kc_group *g, int64_t now_us) {
    switch (g->state) {
    case KC_GROUP_IDLE:
        return idle(g);
    case KC_GROUP_START:
        return start(g);
    case KC_GROUP_SEARCH:
        return search(g, now_us);
    case KC_GROUP_REVOKE:
        return revoke(g);
    case KC_GROUP_DRAIN:
        return drain(g, now_us);
    case KC_GROUP_LEAD:
        if (!g->rq_busy) kc_group_lead(g);
        return false;
    case KC_GROUP_STABLE:
        return stable(g, now_us);
    case KC_GROUP_BACKOFF:
        if (now_us < g->not_before_us) return false;
        g->rebalance_since_us = now_us; /* what was tried in vain may be long ago; where the group had to wait for it, a heartbeat tells when it is out */
        kc_group_enter(g, KC_GROUP_START);
        return true;
    case KC_GROUP_LEAVE:
        return leave(g, now_us);
    case KC_GROUP_OUT:
        if (atomic_load(&g->consume->polls) == g->polls_out) return false;
        g->why = "poll is called again";
        g->polled_us = now_us;
        kc_group_enter(g, KC_GROUP_START);
        return true;
    default:
        return false;
    }
}

static bool beats(const struct kc_group *g) {
    if (g->generation < 0) return false;
    return kc_group_is_in(g) && g->state != KC_GROUP_JOIN;
}

static int64_t next_look(const struct kc_group *g) {
    const struct kc_settings *s = g->consume->settings;
    int64_t at_us = KW_NEVER;
    if (kc_group_is_in(g)) at_us = kc_after(g->polled_us, s->poll_interval_max_us);
    at_us = KW_MIN(at_us, session_end(g));
    if (g->revoking) at_us = KW_MIN(at_us, atomic_load(&g->revoking->deadline_us));
    if (beats(g) && !g->beat_busy) at_us = KW_MIN(at_us, g->beat_due_us);
    if (g->state == KC_GROUP_BACKOFF) at_us = KW_MIN(at_us, g->not_before_us);
    if ((g->state == KC_GROUP_STABLE || g->state == KC_GROUP_SEARCH) && !g->search_busy) at_us = KW_MIN(at_us, g->search_at_us);
    if (g->state == KC_GROUP_STABLE && g->survey_due && !g->survey_busy) at_us = KW_MIN(at_us, g->survey_at_us);
    if (g->leave_again_us && !g->leave_busy) at_us = KW_MIN(at_us, g->leave_again_us);
    if (g->closing && !g->gone) at_us = KW_MIN(at_us, g->close_by_us);
    return at_us;
}

void kc_group_run(struct kc_consume *c, int64_t now_us) {
    struct kc_group *g = atomic_load(&c->group);
    if (!g) return;
    if (g->stopped || c->closed) {
        show_session(g, now_us);
        return;
    }
    take_wish(g);
    watch_polls(g, now_us);
    watch_session(g, now_us);
    for (int i = 0; i < STEPS_MAX && step(g, now_us); i++) continue;
    if (beats(g) && now_us >= g->beat_due_us) kc_group_beat(g, now_us);
    show_session(g, now_us);
    int64_t at_us = next_look(g);
    if (c->short_of_memory || g->publish_due) at_us = KW_MIN(at_us, now_us + MEMORY_RETRY_US);
    if (at_us == KW_NEVER || !kw_timer_armed(&g->timer) || g->timer.at_us != at_us) kc_core_arm(c->core, &g->timer, at_us);
}

void kc_group_metadata(struct kc_consume *c) {
    struct kc_group *g = atomic_load(&c->group);
    if (g) g->metadata_changed = true;
}

/* ---- The end ---- */

void kc_group_stop(struct kc_consume *c) {
    struct kc_group *g = atomic_load(&c->group);
    if (!g || g->stopped) return;
    kc_group_rest(g);
    g->stopped = true;
    if (g->beat_busy) kc_core_cancel(c->core, &g->beat);
    if (g->leave_busy) kc_core_cancel(c->core, &g->leave);
    if (g->search_busy) kc_core_cancel(c->core, &g->search);
    if (g->survey_busy) kc_core_cancel(c->core, &g->survey);
    kw_timers_cancel(kc_core_timers(c->core), &g->timer);
}

/* Nothing of it is outstanding any more. */
void kc_group_release(struct kc_consume *c) {
    struct kc_group *g = atomic_load(&c->group);
    struct kc_numbers none = {NULL, 0};
    if (!g) return;
    kc_group_want(g, &g->topics, &none);
    kc_group_want(g, &g->led, &none);
    if (g->has_lane) kc_core_lane_give(c->core, g->lane);
    g->has_lane = false;
}
