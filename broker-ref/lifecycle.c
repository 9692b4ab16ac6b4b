/* lifecycle.c - contract: lifecycle.h. Called by node. Calls link, channel, store, image, advertise.
 *
 * One request is under way at a time: the registration until it is granted, then heartbeats. The timer says when the next one is due; it is
 * armed as long as the lifecycle lives, so that moving it cannot fail.
 */
#include "lifecycle.h"

#include "advertise.h"
#include "channel.h"
#include "kw_messages.h"
#include "node_priv.h"
#include "replica/partition.h"
#include "uuid.h"
#include "wire/kerror.h"

enum {
    RETRY_US = 20000,        /* no controller is known, or it was not the one */
    FENCED_US = 50000,       /* between heartbeats that wait for being unfenced */
    LEAVING_US = 20000,      /* between those that wait for leaderships to go */
    LEAVE_US = 5000000,      /* at most */
    LAST_WORD_US = 500000,   /* that its disk has failed */
    UNREACHABLE_US = 500000, /* no controller is known or can be connected: nobody takes anything over */
    UNHEARD_US = 1500000,    /* nor where this node is the controller itself, and nothing is committed any more */
    DUPLICATE_US = 500000,
    DUPLICATE_MIN_US = 10000000, /* how long a broker of the same id is waited for at least */
};
enum { REGISTRATION_VERSION = 4, HEARTBEAT_VERSION = 1 };

struct kb_lifecycle {
    struct kb_node *node;
    enum { IDLE, REGISTERING, ALIVE, LEAVING, LEFT } state;
    struct kw_uuid incarnation;
    int64_t previous_epoch; /* to register with */
    int64_t epoch;          /* of the registration; -1 none yet */
    bool opened, told;      /* told: the node knows that it is unfenced */
    struct kw_timer timer;
    struct kb_call call;
    struct kb_voter_link to; /* the leader */
    int32_t leader, leader_epoch;
    int64_t interval_us, session_us;
    int64_t sent_us, sent_offset; /* of the last heartbeat */
    int64_t heard_us;             /* the controller's last answer */
    int64_t duplicate_since_us;   /* 0: not */
    int64_t leave_by_us;
    int64_t disk_failed_us; /* 0: it has not */
    void (*left)(struct kb_node *n, struct kb_now now);
};

static void fire(struct kw_timer *t, void *ctx, int64_t now_us);
static void answered(struct kb_call *c, kw_err err, struct kw_in *body, struct kw_blk *blk, struct kb_now now);
static void link_ended(void *ctx, enum kb_link_end how, struct kb_now now);

/* ---- Life ---- */

kw_err kb_lifecycle_new(struct kb_node *n) {
    const struct kb_config *c = n->parts.config;
    if (kb_config_is_single(c) || !(kb_config_roles(c) & KB_ROLE_BROKER)) return KW_OK;
    struct kb_lifecycle *l = kw_calloc(1, sizeof(*l));
    if (!l) return KW_ENOMEM;
    l->node = n;
    l->epoch = l->previous_epoch = -1;
    l->leader = -1;
    l->to = (struct kb_voter_link){.node = n, .id = -1, .pause_us = RETRY_US, .ended = link_ended, .ctx = l};
    l->incarnation = kb_uuid_random(&n->parts.rng);
    l->interval_us = kb_config_int(c, "broker.heartbeat.interval.ms") * 1000;
    l->session_us = kb_config_int(c, "broker.session.timeout.ms") * 1000;
    l->call = (struct kb_call){.done = answered, .ctx = l};
    kw_timer_init(&l->timer, fire, l);
    n->lifecycle = l;
    return KW_OK;
}

void kb_lifecycle_free(struct kb_node *n) {
    struct kb_lifecycle *l = n->lifecycle;
    if (!l) return;
    kb_call_cancel(&l->call);
    kb_voter_link_drop(&l->to);
    kw_timers_cancel(&n->parts.timers, &l->timer);
    kw_free(l);
    n->lifecycle = NULL;
}

static void at(struct kb_lifecycle *l, int64_t at_us) {
    if (kw_timers_set(&l->node->parts.timers, &l->timer, at_us) != KW_OK) /* only where it was not armed: at the start */
        kb_node_fail(l->node, "no memory to register this broker");
}

/* What this process knows of the last registration, or -1 where what was acknowledged then may be lost. */
static int64_t previous_epoch(const struct kb_node *n) {
    const struct kb_image_broker *b = kb_image_broker(&n->image, n->id);
    if (!b || n->start_unclean) return -1;
    struct kw_uuid mine = kb_store_directory_id(n->parts.store);
    bool same_disk = false;
    for (int32_t i = 0; i < b->log_dir_count; i++) same_disk = same_disk || kw_uuid_eq(b->log_dirs[i], mine);
    return same_disk || n->start_marked ? b->epoch : -1;
}

void kb_lifecycle_start(struct kb_node *n, struct kb_now now) {
    struct kb_lifecycle *l = n->lifecycle;
    if (!l || l->state != IDLE) return;
    l->state = REGISTERING;
    l->heard_us = now.mono_us;
    l->previous_epoch = previous_epoch(n);
    at(l, now.mono_us);
}

void kb_lifecycle_opened(struct kb_node *n, struct kb_now now) {
    struct kb_lifecycle *l = n->lifecycle;
    if (!l || l->opened) return;
    l->opened = true;
    if (l->state == ALIVE) at(l, now.mono_us);
}

/* ---- Whom to talk to ---- */

static void link_ended(void *ctx, enum kb_link_end how, struct kb_now now) {
    struct kb_lifecycle *l = ctx;
    (void)now;
    KB_SAY(l->node, KB_DEBUG, "heartbeats to controller %d: %s", l->leader, kb_link_end_text(how));
    if (l->state != LEFT) at(l, l->to.pause_until_us);
}

static void forget_leader(struct kb_lifecycle *l) {
    kb_call_cancel(&l->call);
    kb_voter_link_drop(&l->to);
}

static kw_err ask(struct kb_lifecycle *l, const struct kw_desc *request, int16_t version, const void *msg, struct kb_now now) {
    struct kb_node *n = l->node;
    if (l->leader < 0) return KW_EBUSY;
    if (l->leader == n->id) {
        struct kb_call_body b = {.api_key = request->api_key, .version = version, .msg = msg};
        return kb_store_leads(n->parts.store) ? kb_channel_to_self(n, &l->call, &b, l->session_us, now) : KW_EBUSY;
    }
    kw_err err = kb_voter_link_want(&l->to, now);
    return err ? err : kb_link_call(l->to.link, &l->call, request, version, msg, l->session_us, now);
}

/* ---- What is asked ---- */

static kw_err send_registration(struct kb_lifecycle *l, struct kb_now now) {
    struct kb_node *n = l->node;
    struct kb_listener e[KB_ENDPOINTS_MAX];
    struct kw_broker_registration_request_listener listeners[KB_ENDPOINTS_MAX];
    struct kw_broker_registration_request_feature features[4];
    struct kw_broker_registration_request r;
    struct kw_uuid dir = kb_store_directory_id(n->parts.store);
    size_t count = kb_advertise_endpoints(n->parts.config, n->port, e);
    KW_ASSERT(kb_advertised_feature_count <= KW_COUNTOF(features));
    kw_msg_init(&kw_broker_registration_request_desc, &r);
    for (size_t i = 0; i < count; i++)
        listeners[i] = (struct kw_broker_registration_request_listener){
            .name = e[i].name, .host = e[i].host, .port = e[i].port, .security_protocol = KB_PROTOCOL_PLAINTEXT};
    for (size_t i = 0; i < kb_advertised_feature_count; i++)
        features[i] = (struct kw_broker_registration_request_feature){.name = kw_str_of(kb_advertised_features[i].name),
                                                                      .min_supported_version = kb_advertised_features[i].min,
                                                                      .max_supported_version = kb_advertised_features[i].max};
    r.broker_id = n->id;
    r.cluster_id = kw_str_of(kb_store_cluster_id(n->parts.store));
    r.incarnation_id = l->incarnation;
    r.listeners.v = listeners;
    r.listeners.n = (int32_t)count;
    r.features.v = features;
    r.features.n = (int32_t)kb_advertised_feature_count;
    r.rack = kw_str_of(kb_config_get(n->parts.config, "broker.rack"));
    r.log_dirs.v = &dir;
    r.log_dirs.n = 1;
    r.previous_broker_epoch = l->previous_epoch;
    return ask(l, &kw_broker_registration_request_desc, REGISTRATION_VERSION, &r, now);
}

static kw_err send_heartbeat(struct kb_lifecycle *l, struct kb_now now) {
    struct kb_node *n = l->node;
    struct kw_broker_heartbeat_request r;
    kw_msg_init(&kw_broker_heartbeat_request_desc, &r);
    r.broker_id = n->id;
    r.broker_epoch = l->epoch;
    r.current_metadata_offset = n->image.offset;
    r.want_fence = !l->opened;
    r.want_shut_down = l->state == LEAVING;
    struct kw_uuid dir = kb_store_directory_id(n->parts.store);
    if (l->disk_failed_us) r.offline_log_dirs.v = &dir, r.offline_log_dirs.n = 1;
    kw_err err = ask(l, &kw_broker_heartbeat_request_desc, HEARTBEAT_VERSION, &r, now);
    if (err) return err;
    l->sent_us = now.mono_us;
    l->sent_offset = n->image.offset;
    return KW_OK;
}

static void leave_now(struct kb_lifecycle *l, struct kb_now now) {
    l->state = LEFT;
    kb_call_cancel(&l->call);
    l->left(l->node, now);
}

static bool is_left_alone(struct kb_lifecycle *l, struct kb_now now) {
    if (l->leader >= 0 && l->to.link && kb_link_is_open(l->to.link)) l->heard_us = now.mono_us; /* it may take its time */
    return now.mono_us - l->heard_us >= (l->leader == l->node->id ? UNHEARD_US : UNREACHABLE_US);
}

static void disk_failed(struct kb_node *n) {
    kb_node_fail(n, "%s: the logs of all partitions failed, the disk is broken (see above): mend it, or start this broker on another, empty one", n->log_dir);
}

static void step(struct kb_lifecycle *l, struct kb_now now) {
    if (l->disk_failed_us && now.mono_us >= l->disk_failed_us + LAST_WORD_US) disk_failed(l->node);
    if (l->state == IDLE || l->state == LEFT || l->node->state == KB_NODE_FAILED) return;
    if (l->state == LEAVING && (now.mono_us >= l->leave_by_us || is_left_alone(l, now))) {
        KB_SAY(l->node, KB_WARN, "%s: this broker stops without handing over what it still leads",
               now.mono_us >= l->leave_by_us ? "the controller did not let it go within 5 s" : "no controller can be reached");
        leave_now(l, now);
        return;
    }
    if (kb_call_is_under_way(&l->call)) return;
    kw_err err = l->state == REGISTERING ? send_registration(l, now) : send_heartbeat(l, now);
    if (!err) return;
    at(l, KW_MAX(now.mono_us + RETRY_US, KW_MIN(l->to.pause_until_us, now.mono_us + FENCED_US)));
}

static void fire(struct kw_timer *t, void *ctx, int64_t now_us) {
    struct kb_lifecycle *l = ctx;
    struct kb_node *n = l->node;
    n->now.mono_us = now_us;
    if (l->state == LEFT) return;
    /* its own place has just become free */
    (void)!kw_timers_set(&n->parts.timers, t, now_us + (l->state == LEAVING ? LEAVING_US : l->interval_us));
    step(l, n->now);
}

bool kb_lifecycle_may_be_fenced(const struct kb_node *n, struct kb_now now) {
    const struct kb_lifecycle *l = n->lifecycle;
    return l && now.mono_us - l->heard_us > KW_MAX(l->session_us - l->interval_us, l->session_us / 2); /* it heard of us before we heard of it */
}

/* ---- What is answered ---- */

static bool is_unfenced(const struct kb_lifecycle *l) {
    const struct kb_image_broker *b = kb_image_broker(&l->node->image, l->node->id);
    return l->epoch >= 0 && b && b->epoch == l->epoch && !b->fenced;
}

/* An answer that says: not me, not now. */
static bool is_passing(int16_t code) {
    return code == KE_NOT_CONTROLLER || code == KE_REQUEST_TIMED_OUT || code == KE_COORDINATOR_NOT_AVAILABLE ||
           code == KE_KAFKA_STORAGE_ERROR || code == KE_UNKNOWN_SERVER_ERROR || code == KE_THROTTLING_QUOTA_EXCEEDED;
}

static void refused(struct kb_lifecycle *l, int16_t code, struct kb_now now) {
    struct kb_node *n = l->node;
    const struct kw_kerror_info *e = kw_kerror_info(code);
    if (code == KE_DUPLICATE_BROKER_REGISTRATION) {
        if (l->duplicate_since_us == 0) {
            l->duplicate_since_us = now.mono_us;
            KB_SAY(n, KB_WARN, "the controller knows a broker %d that still lives, the last run of this one maybe: waiting for its session to end",
                   n->id);
        }
        if (now.mono_us - l->duplicate_since_us < KW_MAX(3 * l->session_us, (int64_t)DUPLICATE_MIN_US)) {
            at(l, now.mono_us + DUPLICATE_US);
            return;
        }
        kb_node_fail(n, "another broker with node.id=%d is alive in this cluster: stop it, or give this one a node.id of its own", n->id);
        return;
    }
    if (code == KE_INCONSISTENT_CLUSTER_ID)
        kb_node_fail(n, "the controllers of controller.quorum.voters=%.200s are of another cluster than this data folder (%s, cluster id %s): "
                        "name this cluster's controllers, or start with an empty folder",
                     kb_config_get(n->parts.config, "controller.quorum.voters"), n->log_dir, kb_store_cluster_id(n->parts.store));
    else if (code == KE_INVALID_REGISTRATION)
        kb_node_fail(n, "controller %d refuses to register broker %d: another broker has the data folder of which %s is a copy, or the advertised "
                        "address is none: start it on a folder of its own, look at advertised.listeners; the controller's log says which",
                     l->leader, n->id, n->log_dir);
    else
        kb_node_fail(n, "controller %d refuses to register broker %d: %s (%d): %s; its log says why", l->leader, n->id, e->name, code, e->text);
}

static void registration_answered(struct kb_lifecycle *l, struct kw_in *body, struct kb_now now) {
    struct kw_broker_registration_response r;
    struct kw_arena none;
    kw_arena_init(&none, 1);
    if (kw_decode(&kw_broker_registration_response_desc, REGISTRATION_VERSION, body, &none, &r) != KW_OK) {
        at(l, now.mono_us + FENCED_US);
        return;
    }
    if (is_passing(r.error_code)) {
        at(l, now.mono_us + RETRY_US);
        return;
    }
    l->heard_us = now.mono_us;
    if (r.error_code) {
        refused(l, r.error_code, now);
        return;
    }
    l->duplicate_since_us = 0;
    l->epoch = l->previous_epoch = r.broker_epoch;
    kb_store_set_broker_epoch(l->node->parts.store, r.broker_epoch);
    kb_partitions_look_registered(l->node, now);
    l->state = ALIVE;
    KB_SAY(l->node, KB_DEBUG, "broker %d is registered: broker epoch %lld", l->node->id, (long long)l->epoch);
    at(l, now.mono_us);
}

static void heartbeat_answered(struct kb_lifecycle *l, struct kw_in *body, struct kb_now now) {
    struct kw_broker_heartbeat_response r;
    struct kw_arena none;
    kw_arena_init(&none, 1);
    if (kw_decode(&kw_broker_heartbeat_response_desc, HEARTBEAT_VERSION, body, &none, &r) != KW_OK) {
        at(l, now.mono_us + FENCED_US);
        return;
    }
    if (r.error_code == KE_STALE_BROKER_EPOCH || r.error_code == KE_BROKER_ID_NOT_REGISTERED) {
        l->heard_us = now.mono_us;
        KB_SAY(l->node, KB_WARN, "the controller does not know broker %d with epoch %lld: it registers anew", l->node->id, (long long)l->epoch);
        if (l->state == LEAVING) {
            leave_now(l, now);
            return;
        }
        l->state = REGISTERING;
        at(l, now.mono_us + RETRY_US);
        return;
    }
    if (r.error_code) {
        at(l, now.mono_us + RETRY_US);
        return;
    }
    l->heard_us = now.mono_us;
    if (l->disk_failed_us && r.is_fenced) {
        disk_failed(l->node);
        return;
    }
    if (l->state == LEAVING) {
        if (r.should_shut_down)
            leave_now(l, now);
        else
            at(l, now.mono_us + LEAVING_US);
        return;
    }
    int64_t next = l->sent_us + (l->disk_failed_us ? RETRY_US : l->interval_us);
    if (r.is_fenced && l->opened) next = l->node->image.offset > l->sent_offset ? now.mono_us : KW_MIN(next, l->sent_us + FENCED_US);
    at(l, KW_MAX(next, now.mono_us));
}

static void answered(struct kb_call *c, kw_err err, struct kw_in *body, struct kw_blk *blk, struct kb_now now) {
    struct kb_lifecycle *l = c->ctx;
    (void)blk;
    if (l->state == LEFT || l->state == IDLE) return;
    if (err)
        at(l, now.mono_us + RETRY_US); /* a link that ended says more */
    else if (l->state == REGISTERING)
        registration_answered(l, body, now);
    else
        heartbeat_answered(l, body, now);
}

/* ---- What the node says ---- */

void kb_lifecycle_applied(struct kb_node *n, struct kb_now now) {
    struct kb_lifecycle *l = n->lifecycle;
    if (!l || l->state != ALIVE) return;
    if (is_unfenced(l)) {
        if (l->told) return;
        l->told = true;
        kb_node_unfenced(n, now);
    } else if (l->opened && !kb_call_is_under_way(&l->call) && n->image.offset > l->sent_offset) {
        at(l, now.mono_us); /* it may have caught up now */
    }
}

void kb_lifecycle_turn(struct kb_node *n, struct kb_now now) {
    struct kb_lifecycle *l = n->lifecycle;
    int32_t epoch;
    if (!l || l->state == IDLE || l->state == LEFT) return;
    int32_t leader = kb_store_leader(n->parts.store, &epoch);
    bool leads = leader == n->id && kb_store_leads(n->parts.store);
    if (leader == n->id && !leads) leader = -1; /* it has not taken office yet */
    if (leader == l->leader && epoch == l->leader_epoch) return;
    l->leader = l->to.id = leader;
    l->leader_epoch = epoch;
    forget_leader(l);
    at(l, now.mono_us);
}

void kb_lifecycle_disk_failed(struct kb_node *n, struct kb_now now) {
    struct kb_lifecycle *l = n->lifecycle;
    if (!l || l->state != ALIVE) {
        disk_failed(n);
        return;
    }
    if (l->disk_failed_us) return;
    l->disk_failed_us = now.mono_us;
    at(l, now.mono_us);
}

bool kb_lifecycle_leave(struct kb_node *n, void (*done)(struct kb_node *n, struct kb_now now), struct kb_now now) {
    struct kb_lifecycle *l = n->lifecycle;
    if (!l || l->state != ALIVE || !l->told || !kb_config_bool(n->parts.config, "controlled.shutdown.enable")) return false;
    l->state = LEAVING;
    l->left = done;
    l->leave_by_us = now.mono_us + LEAVE_US;
    l->heard_us = now.mono_us; /* from now on it is waited for */
    at(l, now.mono_us);
    return true;
}
