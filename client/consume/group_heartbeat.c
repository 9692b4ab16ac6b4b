/* group_heartbeat.c - Heartbeat: that the member is there, and whether it has to join again; LeaveGroup. Loop context. Called by group_classic.c.
 * KIP-62, 345 (static members), 800 (reasons).
 */
#include "group.h"

#define STATIC_VERSION_MIN 3

/* ---- Heartbeat ---- */

static kw_err encode_beat(struct kc_request *rq, struct kw_out *out) {
    struct kc_group *g = rq->ctx;
    struct kw_heartbeat_request m;
    kw_msg_init(&kw_heartbeat_request_desc, &m);
    m.group_id = kc_group_id(g);
    m.generation_id = g->beat_generation;
    m.member_id = kw_str_of(g->member_id);
    if (rq->version >= STATIC_VERSION_MIN) m.group_instance_id = kc_group_instance(g);
    return kw_encode(&kw_heartbeat_request_desc, rq->version, &m, out);
}

static kc_err read_beat(struct kc_group *g, struct kc_request *rq, struct kw_in *body) {
    struct kw_heartbeat_response m;
    struct kw_arena arena;
    kw_arena_init(&arena, 0);
    kw_err err = kw_decode(&kw_heartbeat_response_desc, rq->version, body, &arena, &m);
    kw_arena_deinit(&arena);
    if (err != KW_OK) return kc_err_from(err);
    kc_core_broker_throttle(g->consume->core, rq->sent_to, m.throttle_time_ms);
    return m.error_code;
}

static void take_beat(struct kc_group *g, struct kc_request *rq, kc_err err, int64_t now_us) {
    struct kc_consume *c = g->consume;
    g->beat_due_us = now_us + c->settings->heartbeat_us;
    if (err == KC_OK || err == KE_REBALANCE_IN_PROGRESS) {
        g->heard_us = KW_MAX(g->heard_us, g->beat_sent_us);
        g->beat_errors = 0;
    }
    switch (err) {
    case KC_OK:
        break;
    case KE_REBALANCE_IN_PROGRESS:
        kc_group_rebalance(g, now_us);
        break;
    case KE_ILLEGAL_GENERATION:
        kc_group_lose(g, false, "the group has gone on without this member (ILLEGAL_GENERATION)");
        break;
    case KE_UNKNOWN_MEMBER_ID:
        kc_group_lose(g, true, "the group has put this member out (UNKNOWN_MEMBER_ID)");
        break;
    case KE_FENCED_INSTANCE_ID:
        kc_group_fenced(g);
        break;
    default:
        if (g->beat_errors < INT32_MAX) g->beat_errors++;
        if (!kc_coordinator_failed(kc_commits_coordinator(c->commits), rq, err)) kc_group_tell_error(g, err, "heartbeat");
        g->beat_due_us = now_us + KW_MIN(kc_backoff_us(c, g->beat_errors), c->settings->heartbeat_us);
    }
}

static void beat_done(struct kc_request *rq, kc_err err, struct kw_in *body, struct kw_blk *blk) {
    struct kc_group *g = rq->ctx;
    struct kc_consume *c = g->consume;
    (void)blk;
    g->beat_busy = false;
    c->requests--;
    if (err == KC_OK) err = read_beat(g, rq, body);
    bool counts = !g->stopped && err != KC_CANCELLED && err != KC_CLOSED && g->beat_generation == g->generation && g->generation >= 0 &&
                  g->state != KC_GROUP_JOIN && kc_group_is_in(g);
    if (counts) take_beat(g, rq, err, kc_core_now(c->core).mono_us);
    kc_consume_run(c);
}

void kc_group_beat(struct kc_group *g, int64_t now_us) {
    struct kc_consume *c = g->consume;
    struct kc_coordinator *co = kc_commits_coordinator(c->commits);
    if (g->beat_busy || !co) return;
    kc_request_init(&g->beat, KW_API_HEARTBEAT);
    kc_coordinator_aim(co, &g->beat);
    if (kc_group_is_static(g)) g->beat.version_min = STATIC_VERSION_MIN;
    g->beat.encode = encode_beat;
    g->beat.done = beat_done;
    g->beat.ctx = g;
    g->beat.deadline_us = now_us + c->settings->session_timeout_us;
    g->beat_busy = true;
    g->beat_sent_us = now_us;
    g->beat_generation = g->generation;
    c->requests++;
    kc_core_send(c->core, &g->beat);
}

/* ---- LeaveGroup ---- */

static kw_err encode_leave(struct kc_request *rq, struct kw_out *out) {
    struct kc_group *g = rq->ctx;
    struct kw_leave_group_request m;
    struct kw_leave_group_request_member_identity who;
    kw_msg_init(&kw_leave_group_request_desc, &m);
    m.group_id = kc_group_id(g);
    if (rq->version < STATIC_VERSION_MIN) {
        m.member_id = kw_str_of(g->member_id);
    } else {
        who = (struct kw_leave_group_request_member_identity){
            .member_id = kw_str_of(g->member_id), .group_instance_id = kc_group_instance(g), .reason = kw_str_of(g->leave_why)};
        m.members.v = &who;
        m.members.n = 1;
    }
    return kw_encode(&kw_leave_group_request_desc, rq->version, &m, out);
}

static kc_err read_leave(struct kc_group *g, struct kw_in *body) {
    struct kw_leave_group_response m;
    struct kw_arena arena;
    kw_arena_init(&arena, 0);
    kw_err err = kw_decode(&kw_leave_group_response_desc, g->leave.version, body, &arena, &m);
    kw_arena_deinit(&arena);
    return err == KW_OK ? m.error_code : kc_err_from(err);
}

/* Told again while the coordinator moves or loads, and there is time. Whatever else the answer is, the member is out, or will be when its session ends. */
static void leave_done(struct kc_request *rq, kc_err err, struct kw_in *body, struct kw_blk *blk) {
    struct kc_group *g = rq->ctx;
    struct kc_consume *c = g->consume;
    (void)blk;
    g->leave_busy = false;
    c->requests--;
    if (err == KC_OK) err = read_leave(g, body);
    bool again = kc_coordinator_failed(kc_commits_coordinator(c->commits), rq, err) && !g->stopped;
    int64_t again_us = kc_core_now(c->core).mono_us + kc_backoff_us(c, ++g->leave_errors);
    if (again && again_us < g->leave_until_us)
        g->leave_again_us = again_us;
    else if (err != KC_OK && err != KE_UNKNOWN_MEMBER_ID && !g->stopped)
        kc_core_log(c->core, 4, "group %s was not told that this member leaves: %s", c->settings->group_id, kc_err_name(err));
    kc_consume_run(c);
}

void kc_group_send_leave(struct kc_group *g, int64_t until_us) {
    struct kc_consume *c = g->consume;
    struct kc_coordinator *co = kc_commits_coordinator(c->commits);
    if (!co || g->leave_busy) return;
    kc_request_init(&g->leave, KW_API_LEAVE_GROUP);
    kc_coordinator_aim(co, &g->leave);
    if (kc_group_is_static(g)) g->leave.version_min = STATIC_VERSION_MIN;
    g->leave.encode = encode_leave;
    g->leave.done = leave_done;
    g->leave.ctx = g;
    g->leave.deadline_us = g->leave_until_us = until_us;
    g->leave_again_us = 0;
    g->leave_busy = true;
    c->requests++;
    kc_core_send(c->core, &g->leave);
}
