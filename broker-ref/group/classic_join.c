/* classic_join.c - JoinGroup, and the rebalance that it leads to: who is waited for, the next generation and its leader.
 *
 * Called by api/join_group through group.h, and by classic.c when a member goes. KIP-62, 345, 394, 814.
 *
 * A rebalance (PREPARING) ends when every member has joined and every id that was given out has been used, or at its deadline without those
 * who have not; static members stay all the same, until their session ends.
 */
#include "group_priv.h"

#include <stdio.h>

enum { NAME_SIZE_MAX = 1000 /* of a client's id in a member's */ };

/* ---- Answers ---- */

void kb_group_join_error(struct kb_group_wait *w, int16_t code, struct kw_str member_id) {
    struct kb_join_answer a = {.code = code,
                               .generation = -1,
                               .protocol_type = kw_str_null(),
                               .protocol = kw_str_null(),
                               .leader = kw_str_of(""),
                               .member_id = member_id};
    if (w->member) w->member->join_wait = NULL;
    w->member = NULL;
    w->joined(w, &a);
}

static void answer(struct kb_group *g, struct kb_member *m, struct kb_group_wait *w) {
    struct kb_join_answer a = {.generation = g->generation,
                               .protocol_type = kw_str_of(g->protocol_type),
                               .protocol = kw_str_of(g->protocol),
                               .leader = kw_str_of(g->leader->id),
                               .member_id = kw_str_of(m->id),
                               .members_of = g->leader == m ? g : NULL};
    if (w->member) w->member->join_wait = NULL;
    w->member = NULL;
    w->joined(w, &a);
}

/* A static member that came back into a stable group. One that leads and cannot skip the assignment must not think that it leads. */
static void answer_replaced(struct kb_group *g, struct kb_member *m, struct kb_group_wait *w, bool led, const char *old) {
    struct kb_join_answer a = {.generation = g->generation,
                               .protocol_type = kw_str_of(g->protocol_type),
                               .protocol = kw_str_of(g->protocol),
                               .leader = kw_str_of(led && !w->skips ? old : g->leader->id),
                               .member_id = kw_str_of(m->id),
                               .skip_assignment = led && w->skips,
                               .members_of = led && w->skips ? g : NULL};
    m->join_wait = NULL;
    w->member = NULL;
    w->joined(w, &a);
}

static void wait_for(struct kb_member *m, struct kb_group_wait *w) {
    if (m->join_wait)
        kb_group_join_error(m->join_wait, KE_REBALANCE_IN_PROGRESS, kw_str_of(m->id)); /* the same member, by another connection */
    m->join_wait = w;
    w->member = m;
}

/* ---- The rebalance ---- */

static void has_joined(struct kb_member *m, struct kb_group_wait *w) {
    wait_for(m, w);
    m->group->joined += !m->joined;
    m->joined = true;
}

static void go_on_at(struct kb_group *g, int64_t at_us) {
    g->deadline_us = at_us;
    if (at_us < g->timer.at_us) (void)!kw_timers_set(g->env->timers, &g->timer, at_us); /* always armed: needs no memory */
}

static int64_t rebalance_timeout_us(const struct kb_group *g) {
    int64_t ms = 0;
    for (const struct kb_member *m = NULL; (m = kb_group_next(g, m));) ms = KW_MAX(ms, m->rebalance_timeout_ms);
    return ms * 1000;
}

void kb_group_prepare(struct kb_group *g, struct kb_now now) {
    bool anew = g->state == KB_GROUP_EMPTY;
    int64_t timeout = rebalance_timeout_us(g);
    if (g->state == KB_GROUP_COMPLETING) kb_group_reset_sync(g, KE_REBALANCE_IN_PROGRESS, now);
    kb_group_state_set(g, KB_GROUP_PREPARING, now);
    for (struct kw_list *l = g->members.next; l != &g->members; l = l->next) { /* who came back is one of those who join */
        struct kb_member *m = KW_CONTAINER_OF(l, struct kb_member, link);
        if (m->replaced_number == 0) continue;
        m->replaced_number = 0;
        g->joined += !m->joined;
        m->joined = true;
    }
    g->delaying = anew && g->env->initial_delay_us > 0;
    g->newcomer = false;
    if (g->delaying) {
        int64_t delay = KW_MIN(g->env->initial_delay_us, timeout);
        g->delay_left_us = timeout - delay;
        go_on_at(g, now.mono_us + delay);
        return;
    }
    go_on_at(g, now.mono_us + timeout);
    kb_group_maybe_complete(g, now);
}

void kb_group_maybe_complete(struct kb_group *g, struct kb_now now) {
    if (g->state == KB_GROUP_PREPARING && !g->delaying && g->joined == g->count && g->pending.count == 0) kb_group_complete(g, now);
}

static void become_empty(struct kb_group *g, struct kb_now now) {
    kw_free(g->protocol);
    g->protocol = NULL;
    g->deadline_us = KW_NEVER;
    kb_group_state_set(g, KB_GROUP_EMPTY, now);
    kb_group_store(g, now);
}

static int32_t next_generation(const struct kb_group *g) {
    return g->generation == INT32_MAX ? 1 : g->generation + 1;
}

/* Dynamic members that have not joined are gone. */
static void leave_behind(struct kb_group *g, struct kb_now now) {
    for (struct kw_list *l = g->members.next, *next; l != &g->members; l = next) {
        struct kb_member *m = KW_CONTAINER_OF(l, struct kb_member, link);
        next = l->next;
        if (m->joined || m->instance_id) continue;
        kb_say(g->env->logger, KB_INFO, "group %s: member %s has not joined within the rebalance timeout: it is taken out", g->id, m->id);
        kb_group_drop(m, KE_UNKNOWN_MEMBER_ID, now);
    }
}

static void elect(struct kb_group *g) {
    for (struct kw_list *l = g->members.next; l != &g->members && !g->leader->joined; l = l->next) {
        struct kb_member *m = KW_CONTAINER_OF(l, struct kb_member, link);
        if (m->joined) g->leader = m;
    }
}

static void begin_generation(struct kb_group *g, struct kb_now now) {
    struct kw_str name = kb_group_select(g);
    char *protocol = name.len >= 0 ? kw_malloc((size_t)name.len + 1) : NULL;
    if (!protocol) { /* out of memory: all try again */
        go_on_at(g, now.mono_us + 1000000);
        return;
    }
    memcpy(protocol, name.p, (size_t)name.len);
    protocol[name.len] = 0;
    kw_free(g->protocol);
    g->protocol = protocol;
    elect(g);
    g->generation = next_generation(g);
    kb_group_state_set(g, KB_GROUP_COMPLETING, now);
    go_on_at(g, now.mono_us + rebalance_timeout_us(g));
    g->joined = g->synced = 0;
    for (struct kw_list *l = g->members.next; l != &g->members; l = l->next) {
        struct kb_member *m = KW_CONTAINER_OF(l, struct kb_member, link);
        if (m->join_wait) kb_member_alive(m, now);
        m->is_new = m->joined = m->synced = false;
        if (m->join_wait) answer(g, m, m->join_wait);
    }
}

/* Those who have not asked for their assignment by now are gone. */
static void leave_unsynced(struct kb_group *g, struct kb_now now) {
    g->state = KB_GROUP_EMPTY; /* nothing follows until all of them have gone */
    for (struct kw_list *l = g->members.next, *next; l != &g->members; l = next) {
        struct kb_member *m = KW_CONTAINER_OF(l, struct kb_member, link);
        next = l->next;
        if (m->synced) continue;
        kb_say(g->env->logger, KB_INFO,
               "group %s: member %s has not asked for its assignment within the rebalance timeout: it is taken out", g->id, m->id);
        kb_group_drop(m, KE_UNKNOWN_MEMBER_ID, now);
    }
    g->state = KB_GROUP_COMPLETING;
    kb_group_prepare(g, now);
}

void kb_group_complete(struct kb_group *g, struct kb_now now) {
    if (g->state == KB_GROUP_COMPLETING || g->state == KB_GROUP_STABLE) {
        g->deadline_us = KW_NEVER;
        if (g->synced < g->count) leave_unsynced(g, now);
        return;
    }
    if (g->state != KB_GROUP_PREPARING) return;
    if (g->delaying && g->newcomer && g->delay_left_us > 0) { /* more may come */
        int64_t delay = KW_MIN(g->env->initial_delay_us, g->delay_left_us);
        g->newcomer = false;
        g->delay_left_us -= delay;
        go_on_at(g, now.mono_us + delay);
        return;
    }
    g->delaying = true; /* nothing is completed by those who are left behind */
    leave_behind(g, now);
    g->delaying = false;
    if (g->count == 0) {
        g->generation = next_generation(g);
        become_empty(g, now);
    } else if (g->joined == 0) { /* static members alone, which may come back */
        go_on_at(g, now.mono_us + rebalance_timeout_us(g));
    } else {
        begin_generation(g, now);
    }
}

/* ---- Ids of new members ---- */

static void pending_fire(struct kw_timer *t, void *ctx, int64_t now_us) {
    struct kb_pending *p = ctx;
    struct kb_group *g = p->group;
    struct kb_now now = *g->env->now;
    (void)t;
    now.mono_us = KW_MAX(now.mono_us, now_us);
    kb_group_unpend(g, kw_str_of(p->id));
    kb_group_maybe_complete(g, now);
}

kw_err kb_group_pend(struct kb_group *g, struct kw_str id, int64_t until_us) {
    struct kb_pending *p = kw_malloc(sizeof(*p) + (size_t)id.len + 1);
    if (!p) return KW_ENOMEM;
    p->group = g;
    memcpy(p->id, id.p, (size_t)id.len);
    p->id[id.len] = 0;
    kw_timer_init(&p->timer, pending_fire, p);
    kw_err err = kw_map_put(&g->pending, id.p, (size_t)id.len, p);
    if (!err) err = kw_timers_set(g->env->timers, &p->timer, until_us);
    if (!err) return KW_OK;
    kw_map_remove(&g->pending, id.p, (size_t)id.len);
    kw_free(p);
    return err;
}

bool kb_group_unpend(struct kb_group *g, struct kw_str id) {
    struct kb_pending *p = kw_map_get_str(&g->pending, id);
    if (!p) return false;
    kw_timers_cancel(g->env->timers, &p->timer);
    kw_map_remove(&g->pending, p->id, strlen(p->id));
    kw_free(p);
    return true;
}

/* An id is a string of the protocol, and of the group's record. */
static struct kw_str cut_name(struct kw_str s) {
    if (s.len <= NAME_SIZE_MAX) return s;
    for (s.len = NAME_SIZE_MAX; s.len > 0 && ((uint8_t)s.p[s.len] & 0xc0) == 0x80;) s.len--; /* between letters: clients read it as text */
    return s;
}

/* The client's id or the static id, then a random UUID, as Apache Kafka makes them. */
static struct kw_str make_id(struct kb_group *g, const struct kb_join *j, char *text, size_t size) {
    struct kw_str name = cut_name(j->instance_id.len >= 0 ? j->instance_id : j->client_id);
    uint64_t a = kw_rng_next(g->env->rng), b = kw_rng_next(g->env->rng);
    int n = snprintf(text, size, "%.*s-%08x-%04x-4%03x-%04x-%012llx", KW_MAX(name.len, 0), name.len > 0 ? name.p : "", (unsigned)(a >> 32),
                     (unsigned)(a >> 16 & 0xffff), (unsigned)(a & 0xfff), (unsigned)(b >> 48 & 0x3fff) | 0x8000u,
                     (unsigned long long)(b & 0xffffffffffff));
    KW_ASSERT(n > 0 && (size_t)n < size);
    return (struct kw_str){text, n};
}

/* ---- JoinGroup ---- */

static bool has_room(const struct kb_group *g, const struct kb_member *m) {
    if (g->state == KB_GROUP_PREPARING) return (m && m->joined) || g->joined < g->env->members_max;
    return m || g->state == KB_GROUP_EMPTY || g->count < g->env->members_max;
}

/* What a join of a member that there is leads to. */
static void rebalance(struct kb_group *g, struct kb_member *m, struct kb_group_wait *w, struct kb_now now) {
    has_joined(m, w);
    if (m->is_new) m->deadline_us = now.mono_us + KB_GROUP_NEW_MEMBER_US; /* also where its last connection closed */
    if (g->state == KB_GROUP_PREPARING)
        kb_group_maybe_complete(g, now);
    else
        kb_group_prepare(g, now);
}

static int16_t add(struct kb_group *g, const struct kb_join *j, struct kw_str id, struct kb_group_wait *w, struct kb_now now) {
    struct kb_member *m;
    if (kb_group_add(g, j, id, now, &m)) return KE_COORDINATOR_NOT_AVAILABLE;
    rebalance(g, m, w, now);
    return KE_NONE;
}

/* A static member is there again, under another id. */
static int16_t replace(struct kb_group *g, struct kb_member *m, const struct kb_join *j, struct kw_str id, struct kb_group_wait *w,
                       struct kb_now now) {
    char *old;
    if (kb_member_rename(m, id, &old)) return KE_COORDINATOR_NOT_AVAILABLE;
    if (kb_member_say(m, j)) {
        char *unused;
        if (kb_member_rename(m, kw_str_of(old), &unused) == KW_OK) kw_free(unused); /* else the client comes back with another once more */
        kw_free(old);
        return KE_COORDINATOR_NOT_AVAILABLE;
    }
    if (m->join_wait) kb_group_join_error(m->join_wait, KE_FENCED_INSTANCE_ID, kw_str_of(old));
    kb_group_sync_error(m, KE_FENCED_INSTANCE_ID, now);
    kw_free(m->replaced_id);
    m->replaced_id = old;
    m->replaced_leader = g->leader == m;
    kb_member_alive(m, now);
    if (g->state != KB_GROUP_STABLE || !kw_str_eq(kb_group_select(g), kw_str_of(g->protocol))) {
        rebalance(g, m, w, now);
        return KE_NONE;
    }
    wait_for(m, w); /* nothing changes for the others, but a new coordinator has to know it by this id */
    m->replaced_number = g->number + 1;
    kb_group_store(g, now);
    return KE_NONE;
}

void kb_group_replaced(struct kb_group *g, int16_t code, struct kb_now now) {
    (void)now;
    for (struct kw_list *l = g->members.next; l != &g->members; l = l->next) {
        struct kb_member *m = KW_CONTAINER_OF(l, struct kb_member, link);
        if (m->replaced_number == 0 || m->replaced_number > g->stored) continue;
        m->replaced_number = 0;
        if (code && m->join_wait) kb_group_join_error(m->join_wait, code, kw_str_of(m->id));
        char *unused;
        if (code && kb_member_rename(m, kw_str_of(m->replaced_id), &unused) == KW_OK) kw_free(unused); /* as it is stored */
        if (!code && m->join_wait) answer_replaced(g, m, m->join_wait, m->replaced_leader, m->replaced_id);
    }
}

static int16_t new_member(struct kb_group *g, const struct kb_join *j, struct kb_group_wait *w, struct kb_now now, char *text, size_t size,
                          struct kw_str *told) {
    struct kw_str id = make_id(g, j, text, size);
    if (j->instance_id.len >= 0) {
        struct kb_member *m = kw_map_get_str(&g->by_instance, j->instance_id);
        return m ? replace(g, m, j, id, w, now) : add(g, j, id, w, now);
    }
    if (!j->id_required) return add(g, j, id, w, now);
    if (g->pending.count >= KB_GROUP_PENDING_MAX) return KE_GROUP_MAX_SIZE_REACHED;
    if (kb_group_pend(g, id, now.mono_us + (int64_t)j->session_timeout_ms * 1000)) return KE_COORDINATOR_NOT_AVAILABLE;
    *told = id;
    return KE_MEMBER_ID_REQUIRED;
}

static int16_t known_member(struct kb_group *g, const struct kb_join *j, struct kb_group_wait *w, struct kb_now now) {
    struct kb_member *m = NULL;
    if (j->instance_id.len < 0 && kb_group_unpend(g, j->member_id)) {
        int16_t code = add(g, j, j->member_id, w, now);
        if (code) (void)!kb_group_pend(g, j->member_id, now.mono_us + (int64_t)j->session_timeout_ms * 1000);
        return code;
    }
    int16_t code = kb_group_check_member(g, j->member_id, j->instance_id, &m);
    if (code) return code;
    bool same = kb_member_matches(m, j), stays = false;
    if (g->state == KB_GROUP_COMPLETING) stays = same;               /* its answer was lost */
    if (g->state == KB_GROUP_STABLE) stays = same && g->leader != m; /* the leader asks for a rebalance by joining */
    if (stays && m->replaced_number == 0) {
        kb_member_alive(m, now);
        answer(g, m, w);
        return KE_NONE;
    }
    if (kb_member_say(m, j)) return KE_COORDINATOR_NOT_AVAILABLE;
    rebalance(g, m, w, now);
    return KE_NONE;
}

void kb_group_join(struct kb_group *g, const struct kb_join *j, struct kb_group_wait *w, struct kb_now now) {
    struct kw_str told = j->member_id;
    size_t size = (size_t)KW_MAX(j->client_id.len, 0) + (size_t)KW_MAX(j->instance_id.len, 0) + 40;
    char *text = kw_malloc(size);
    struct kb_member *m = j->member_id.len > 0      ? kb_group_member(g, j->member_id)
                          : j->instance_id.len >= 0 ? kw_map_get_str(&g->by_instance, j->instance_id)
                                                    : NULL;
    int16_t code;
    w->member = NULL;
    w->skips = j->skips;
    if (!text) {
        code = KE_COORDINATOR_NOT_AVAILABLE;
    } else if (!has_room(g, m)) {
        kb_group_unpend(g, j->member_id);
        code = KE_GROUP_MAX_SIZE_REACHED;
    } else if (!kb_group_supports(g, j)) {
        code = KE_INCONSISTENT_GROUP_PROTOCOL;
    } else {
        code = j->member_id.len > 0 ? known_member(g, j, w, now) : new_member(g, j, w, now, text, size, &told);
    }
    if (code) kb_group_join_error(w, code, told);
    kw_free(text);
}
