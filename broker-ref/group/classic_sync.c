/* classic_sync.c - what members ask of a generation: their assignment, whether it still is, to leave, whether they may commit.
 *
 * Called by api/sync_group, heartbeat, leave_group, offset_commit through group.h, and by classic.c, classic_join.c. KIP-345, 559.
 */
#include "group_priv.h"

/* ---- SyncGroup ---- */

static void answer(struct kb_group_wait *w, const struct kb_sync_answer *a) {
    if (w->member) w->member->sync_wait = NULL;
    w->member = NULL;
    w->synced(w, a);
}

static void answer_error(struct kb_group_wait *w, int16_t code) {
    struct kb_sync_answer a = {
        .code = code, .protocol_type = kw_str_null(), .protocol = kw_str_null(), .assignment = {(const uint8_t *)"", 0}};
    answer(w, &a);
}

static void answer_assignment(struct kb_group *g, struct kb_member *m, struct kb_group_wait *w, struct kb_now now) {
    g->synced += !m->synced;
    m->synced = true;
    struct kb_sync_answer a = {.protocol_type = kw_str_of(g->protocol_type),
                               .protocol = kw_str_of(g->protocol),
                               .assignment = {m->assignment ? m->assignment : (const uint8_t *)"", m->assignment_size}};
    kb_member_alive(m, now);
    answer(w, &a);
}

void kb_group_sync_error(struct kb_member *m, int16_t code, struct kb_now now) {
    if (!m->sync_wait) return;
    kb_member_alive(m, now); /* it was the group that it waited for */
    answer_error(m->sync_wait, code);
}

static void clear(struct kb_member *m) {
    kw_free(m->assignment);
    m->assignment = NULL;
    m->assignment_size = 0;
}

void kb_group_reset_sync(struct kb_group *g, int16_t code, struct kb_now now) {
    g->sync_number = 0;
    g->synced = 0;
    for (struct kw_list *l = g->members.next; l != &g->members; l = l->next) {
        struct kb_member *m = KW_CONTAINER_OF(l, struct kb_member, link);
        clear(m);
        m->synced = false;
        kb_group_sync_error(m, code, now);
    }
}

/* Who is not named gets nothing; who is named twice gets the last; who is no member is ignored. */
static kw_err assign(struct kb_group *g, const struct kb_sync *s) {
    for (struct kw_list *l = g->members.next; l != &g->members; l = l->next) clear(KW_CONTAINER_OF(l, struct kb_member, link));
    for (int32_t i = 0; i < s->assignment_count; i++) {
        struct kb_member *m = kb_group_member(g, s->assignments[i].member_id);
        struct kw_bytes b = s->assignments[i].assignment;
        if (!m) continue;
        clear(m);
        if (b.len <= 0) continue;
        m->assignment = kw_memdup(b.p, (size_t)b.len);
        if (!m->assignment) return KW_ENOMEM;
        m->assignment_size = b.len;
    }
    return KW_OK;
}

static bool protocol_differs(struct kw_str said, const char *is) {
    return said.len >= 0 && !kw_str_eq(said, kw_str_of(is));
}

static int16_t check(struct kb_group *g, const struct kb_sync *s, struct kb_member **m) {
    int16_t code = kb_group_check_member(g, s->member_id, s->instance_id, m);
    if (code) return code;
    if (s->generation != g->generation) return KE_ILLEGAL_GENERATION;
    if (protocol_differs(s->protocol_type, g->protocol_type) || protocol_differs(s->protocol, g->protocol))
        return KE_INCONSISTENT_GROUP_PROTOCOL;
    return g->state == KB_GROUP_PREPARING ? KE_REBALANCE_IN_PROGRESS : KE_NONE;
}

void kb_group_sync(struct kb_group *g, const struct kb_sync *s, struct kb_group_wait *w, struct kb_now now) {
    struct kb_member *m;
    w->member = NULL;
    int16_t code = check(g, s, &m);
    if (code) {
        answer_error(w, code);
        return;
    }
    if (g->state == KB_GROUP_STABLE) {
        answer_assignment(g, m, w, now);
        return;
    }
    if (m->sync_wait) answer_error(m->sync_wait, KE_REBALANCE_IN_PROGRESS); /* the same member, by another connection */
    m->sync_wait = w;
    w->member = m;
    g->synced += !m->synced;
    m->synced = true;
    if (m != g->leader || g->sync_number != 0) return;
    if (assign(g, s)) {
        kb_group_reset_sync(g, KE_COORDINATOR_NOT_AVAILABLE, now);
        kb_group_prepare(g, now);
        return;
    }
    g->sync_number = g->number + 1;
    kb_group_store(g, now);
}

void kb_group_sync_stored(struct kb_group *g, int16_t code, struct kb_now now) {
    g->sync_number = 0;
    if (code) {
        kb_group_reset_sync(g, code, now);
        kb_group_prepare(g, now);
        return;
    }
    kb_group_state_set(g, KB_GROUP_STABLE, now);
    for (struct kw_list *l = g->members.next; l != &g->members; l = l->next) {
        struct kb_member *m = KW_CONTAINER_OF(l, struct kb_member, link);
        if (m->sync_wait) answer_assignment(g, m, m->sync_wait, now);
    }
}

/* ---- Signs of life, and the end ---- */

int16_t kb_group_heartbeat(struct kb_group *g, struct kw_str member_id, struct kw_str instance_id, int32_t generation, struct kb_now now) {
    struct kb_member *m;
    int16_t code = kb_group_check_member(g, member_id, instance_id, &m);
    if (code) return code;
    if (generation != g->generation) return KE_ILLEGAL_GENERATION;
    kb_member_alive(m, now);
    return g->state == KB_GROUP_PREPARING ? KE_REBALANCE_IN_PROGRESS : KE_NONE;
}

int16_t kb_group_leave(struct kb_group *g, struct kw_str member_id, struct kw_str instance_id, struct kw_str reason, struct kb_now now) {
    struct kb_member *m;
    if (instance_id.len < 0 && kb_group_unpend(g, member_id)) {
        kb_group_maybe_complete(g, now);
        return KE_NONE;
    }
    if (instance_id.len >= 0 && member_id.len <= 0) { /* an administrator's wish: whoever it is now */
        m = kw_map_get_str(&g->by_instance, instance_id);
        if (!m) return KE_UNKNOWN_MEMBER_ID;
    } else {
        int16_t code = kb_group_check_member(g, member_id, instance_id, &m);
        if (code) return code;
    }
    kb_say(g->env->logger, KB_DEBUG, "group %s: member %s leaves%s%.*s", g->id, m->id, reason.len > 0 ? ": " : "",
           KW_MIN(KW_MAX(reason.len, 0), 200), reason.len > 0 ? reason.p : "");
    kb_group_drop(m, KE_UNKNOWN_MEMBER_ID, now);
    return KE_NONE;
}

int16_t kb_group_may_commit(struct kb_group *g, struct kw_str member_id, struct kw_str instance_id, int32_t generation, struct kb_now now) {
    struct kb_member *m;
    if (generation < 0 && g->state == KB_GROUP_EMPTY) return KE_NONE; /* a consumer that assigns itself, or a tool */
    if (generation < 0 && member_id.len <= 0 && instance_id.len < 0) return KE_UNKNOWN_MEMBER_ID;
    int16_t code = kb_group_check_member(g, member_id, instance_id, &m);
    if (code) return code;
    if (generation != g->generation) return KE_ILLEGAL_GENERATION;
    if (g->state == KB_GROUP_COMPLETING) return KE_REBALANCE_IN_PROGRESS;
    kb_member_alive(m, now);
    return KE_NONE;
}
