/* request.c - the life of a request: sent, routed to a broker, queued in a lane, on the wire, done.
 *
 * Called by whoever sends (produce/, consume/, admin, metadata); calls brokers and conn. The wire itself is conn_out.c and conn_in.c.
 */
#include "internal.h"

static void on_deadline(struct kw_timer *t, void *ctx, int64_t now_us) {
    (void)now_us;
    struct kc_request *rq = KW_CONTAINER_OF(t, struct kc_request, timer);
    struct kc_core *core = ctx;
    bool nobody = rq->state == KC_RQ_ROUTING && core->all_down;
    if (rq->state != KC_RQ_FLIGHT)
        kc_request_note(core, rq, rq->to, KC_TIMED_OUT, "queue",
                        nobody ? "no broker could be reached" : "the request's deadline passed before it could be sent");
    else
        kc_request_note(core, rq, rq->sent_to, KC_TIMED_OUT, "await answer", "the request's deadline passed");
    kc_request_finish(core, rq, nobody ? KC_ALL_BROKERS_DOWN : KC_TIMED_OUT);
}

void kc_request_init(struct kc_request *rq, int16_t api_key) {
    *rq = (struct kc_request){.api = kw_api_by_key(api_key), .broker = KC_BROKER_ANY, .deadline_us = KW_NEVER, .sent_to = -1, .to = -1};
    KW_ASSERT(rq->api);
    rq->version_min = rq->api->min;
    rq->version_max = rq->api->max;
    kw_list_init(&rq->link);
    kw_timer_init(&rq->timer, on_deadline, NULL);
}

void kc_request_note(struct kc_core *core, struct kc_request *rq, int32_t broker, kc_err cause, const char *phase, const char *detail) {
    if (broker < 0) broker = -1;
    kc_attempts_note(rq->attempts, core->now.wall_ms, broker, cause, phase, detail);
}

static void unlink_queued(struct kc_core *core, struct kc_request *rq) {
    if (rq->state == KC_RQ_QUEUED) {
        struct kc_broker *b = kc_broker_get(core, rq->to);
        struct kc_lane *lane = b ? kc_lane_at(b, (size_t)rq->channel) : NULL;
        KW_ASSERT(lane && lane->queued > 0);
        lane->queued--;
    }
    kw_list_remove(&rq->link);
}

void kc_request_finish(struct kc_core *core, struct kc_request *rq, kc_err err) {
    if (rq->state == KC_RQ_FINISHED) return;
    if (rq->state == KC_RQ_FLIGHT && rq->conn) kc_conn_abandon(rq->conn, rq);
    unlink_queued(core, rq);
    kw_timers_cancel(&core->timers, &rq->timer);
    rq->state = KC_RQ_FINISHED;
    rq->conn = NULL;
    rq->err = err;
    kw_list_push(&core->finished, &rq->link);
}

void kc_core_send(struct kc_core *core, struct kc_request *rq) {
    KW_ASSERT(rq->state == KC_RQ_IDLE && rq->encode && rq->done);
    rq->conn = NULL;
    rq->sent = false;
    rq->sent_to = -1;
    rq->to = -1;
    rq->err = KC_OK;
    rq->state = KC_RQ_ROUTING;
    rq->timer.ctx = core;
    kw_list_init(&rq->link);
    if (core->stopping) {
        kc_request_finish(core, rq, KC_CLOSED);
        return;
    }
    if (rq->deadline_us != KW_NEVER && kw_timers_set(&core->timers, &rq->timer, rq->deadline_us) != KW_OK) {
        kc_request_finish(core, rq, KC_NO_MEMORY);
        return;
    }
    kc_request_reroute(core, rq);
}

/* Gives it to its broker, or to the router. */
void kc_request_reroute(struct kc_core *core, struct kc_request *rq) {
    if (rq->broker == KC_BROKER_ANY || rq->broker == KC_BROKER_CONTROLLER) {
        rq->state = KC_RQ_ROUTING;
        rq->to = -1;
        kw_list_push(rq->broker == KC_BROKER_ANY ? &core->any : &core->controller, &rq->link);
        kc_core_route(core);
        return;
    }
    if (rq->broker == KC_BROKER_COORDINATOR) {
        kc_coordinator_route(rq);
        return;
    }
    struct kc_broker *b = kc_broker_get(core, rq->broker);
    if (!b || b->gone) {
        kc_request_note(core, rq, rq->broker, KC_TRANSPORT, "queue", "the metadata knows no broker of this id");
        kc_request_finish(core, rq, KC_TRANSPORT);
        kc_metadata_refresh(core, "a request to a broker that is not known");
        return;
    }
    kc_request_queue(b, rq);
}

void kc_request_queue(struct kc_broker *b, struct kc_request *rq) {
    struct kc_lane *lane = kc_lane_make(b, rq->channel);
    kw_list_remove(&rq->link);
    if (!lane) {
        kc_request_finish(b->core, rq, KC_NO_MEMORY);
        return;
    }
    kw_list_push(&lane->queue, &rq->link);
    lane->queued++;
    rq->state = KC_RQ_QUEUED;
    rq->to = b->id;
    kc_broker_pump(b);
}

void kc_core_cancel(struct kc_core *core, struct kc_request *rq) {
    if (rq->state == KC_RQ_IDLE) return;
    kc_request_finish(core, rq, KC_CANCELLED);
}

void kc_lane_fail(struct kc_broker *b, enum kc_channel ch, kc_err err, const char *phase, const char *detail) {
    struct kc_core *core = b->core;
    struct kc_lane *lane = kc_lane_at(b, (size_t)ch);
    if (!lane) return;
    struct kw_list waiting, *l;
    kw_list_init(&waiting);
    while ((l = kw_list_shift(&lane->queue))) kw_list_push(&waiting, l);
    lane->queued = 0;
    while ((l = kw_list_shift(&waiting))) {
        struct kc_request *rq = KW_CONTAINER_OF(l, struct kc_request, link);
        rq->state = KC_RQ_ROUTING;
        kc_request_note(core, rq, b->id, err, phase, detail);
        bool roams = rq->broker == KC_BROKER_ANY || rq->broker == KC_BROKER_CONTROLLER || rq->broker == KC_BROKER_COORDINATOR;
        if (rq->broker == KC_BROKER_COORDINATOR) kc_coordinator_lost(rq->coordinator, b->id);
        if (roams && !core->stopping)
            kc_request_reroute(core, rq);
        else
            kc_request_finish(core, rq, core->stopping ? KC_CLOSED : err);
    }
}

bool kc_core_versions(struct kc_core *core, int32_t broker, int16_t api_key, int16_t *min, int16_t *max) {
    struct kc_broker *b = kc_broker_get(core, broker);
    const struct kw_api *api = kw_api_by_key(api_key);
    if (!b || !b->versions || !api) return false;
    const struct kc_version_range *r = kc_versions_of(b->versions, api);
    *min = r->min;
    *max = r->max;
    return true;
}

size_t kc_core_in_flight(struct kc_core *core, int32_t broker, enum kc_channel channel) {
    struct kc_broker *b = kc_broker_get(core, broker);
    const struct kc_lane *lane = b ? kc_lane_at(b, (size_t)channel) : NULL;
    return lane && lane->conn ? lane->conn->flight_count : 0;
}

/* ---- The router: requests to "any" and "the controller" ---- */

void kc_core_route(struct kc_core *core) {
    kc_core_defer(core, &core->route);
}

struct choice {
    struct kc_broker *ready; /* least loaded */
    size_t ready_load;
    struct kc_broker *fresh; /* could be connected to now; picked at random */
    size_t fresh_count;
    size_t connecting;
    int64_t began_us; /* the latest attempt to connect */
    int64_t next_us;  /* when one comes out of backoff or throttling */
};

static void consider(struct kc_core *core, struct kc_broker *b, enum kc_channel ch, struct choice *best) {
    if (b->gone) return;
    int64_t now = core->now.mono_us;
    if (b->throttled_until_us > now) {
        best->next_us = KW_MIN(best->next_us, b->throttled_until_us);
        return;
    }
    const struct kc_lane *lane = kc_lane_at(b, (size_t)ch);
    const struct kc_conn *conn = lane ? lane->conn : NULL;
    if (conn && conn->state == KC_CONN_READY) {
        size_t load = kc_broker_load(b);
        if (!best->ready || load < best->ready_load) {
            best->ready = b;
            best->ready_load = load;
        }
    } else if (conn) {
        best->connecting++;
        best->began_us = KW_MAX(best->began_us, conn->opened_us);
    } else if (b->retry_at_us <= now) {
        if (kw_rng_below(&core->rng, ++best->fresh_count) == 0) best->fresh = b;
    } else {
        best->next_us = KW_MIN(best->next_us, b->retry_at_us);
    }
}

static struct choice choose(struct kc_core *core, enum kc_channel ch) {
    struct choice best = {.began_us = INT64_MIN, .next_us = KW_NEVER};
    struct kc_broker *b;
    if (core->use_boots) {
        for (size_t i = 0; i < core->boot_count; i++) consider(core, core->boots[i], ch, &best);
    } else {
        for (size_t it = 0; (b = kw_map_next(&core->brokers, &it));) consider(core, b, ch, &best);
    }
    return best;
}

/* It waits for a broker that is still to be connected to: one is tried at a time, the next one at once when that fails, and beside it when it takes
 * long, since a machine that is gone may not even refuse. Returns when to look again. */
static int64_t route_any(struct kc_core *core, struct kc_request *rq) {
    struct choice best = choose(core, rq->channel);
    int64_t now = core->now.mono_us;
    if (best.ready) {
        kc_request_queue(best.ready, rq);
        return KW_NEVER;
    }
    if (best.connecting >= KC_ATTEMPTS_MAX) return KW_NEVER;
    int64_t at = best.connecting > 0 ? kc_after(best.began_us, KC_STAGGER_US) : now;
    if (!best.fresh) return best.next_us == KW_NEVER ? KW_NEVER : KW_MAX(at, best.next_us);
    if (at > now) return at;
    bool opened = kc_lane_make(best.fresh, rq->channel) && kc_conn_open(best.fresh, rq->channel);
    return kc_after(now, opened ? KC_STAGGER_US : 100000); /* no memory: soon again */
}

static int64_t route_controller(struct kc_core *core, struct kc_request *rq) {
    struct kc_broker *b = core->use_boots || core->metadata.controller < 0 ? NULL : kc_broker_get(core, core->metadata.controller);
    if (b && !b->gone && b->retry_at_us <= core->now.mono_us) {
        kc_request_queue(b, rq);
    } else if (core->metadata.known) {
        return route_any(core, rq); /* no controller named, or not reachable: brokers pass such requests on, or answer NOT_CONTROLLER */
    } else {
        kc_metadata_refresh(core, "the controller is not known yet");
    }
    return KW_NEVER;
}

void kc_core_route_run(struct kc_task *task, void *ctx) {
    (void)task;
    struct kc_core *core = ctx;
    if (core->stopping) return;
    struct kw_list *lists[] = {&core->any, &core->controller};
    int64_t again_us = KW_NEVER;
    for (size_t i = 0; i < KW_COUNTOF(lists); i++) {
        struct kw_list *l = lists[i]->next;
        while (l != lists[i]) { /* each either leaves the list or stays where it is */
            struct kw_list *next = l->next;
            struct kc_request *rq = KW_CONTAINER_OF(l, struct kc_request, link);
            int64_t at = i == 0 ? route_any(core, rq) : route_controller(core, rq);
            again_us = KW_MIN(again_us, at);
            l = next;
        }
    }
    kc_core_arm(core, &core->route_timer, again_us);
}
