/* follower.c - which partitions follow which broker, and the one link to each of those: made, dialed again, moved, closed.
 *
 * Called by partitions.c and node.c (follower.h). Calls follower_fetch (requests), channel (addresses), link. Everything that is to be sent is
 * sent at the end of a turn, so that what a turn brought goes in one request. A peer is freed there only.
 */
#include "follower_priv.h"
#include "node_priv.h"

#define AGAIN_US 100000            /* what found no memory */
#define REDIAL_MIN_US 20000        /* doubled with each failure */
#define REDIAL_MAX_US 1000000
#define METADATA_US 50000          /* until the metadata is asked what it says now */
#define METADATA_PATIENCE 40       /* refusals of that kind in a row that are nothing to speak of */

/* ---- Lists ---- */

void kb_peer_touch(struct kb_peer *peer) {
    if (kw_list_empty(&peer->dirty)) kw_list_push(&peer->fs->dirty, &peer->dirty);
}

void kb_follower_changed(struct kb_follower *f) {
    if (!f->peer) return;
    if (kw_list_empty(&f->changed)) kw_list_push(&f->peer->changed, &f->changed);
    kb_peer_touch(f->peer);
}

void kb_follower_set_writing(struct kb_follower *f, bool writing) {
    if (f->writing == writing) return;
    f->writing = writing;
    if (!f->peer) return;
    f->peer->writing += writing ? 1 : SIZE_MAX;
    kb_follower_changed(f); /* begun: out of the session, unless it ends before the next fetch */
}

void kb_follower_delay(struct kb_follower *f, enum kb_delay why) {
    struct kb_peer *peer = f->peer;
    struct kb_node *n = peer->fs->node;
    if (why == KB_DELAY_METADATA && ++f->refusals > METADATA_PATIENCE) why = KB_DELAY_TROUBLE;
    int64_t us = why == KB_DELAY_METADATA ? METADATA_US : peer->fs->set.backoff_us;
    f->asked = false;
    f->until_us = n->now.mono_us + us;
    kw_list_remove(&f->delayed);
    kw_list_push(&peer->delays[why], &f->delayed);
    kb_follower_changed(f); /* out of the session: it would be refused at once, again and again */
}

static void end_delays(struct kb_peer *peer, struct kb_now now) {
    for (size_t i = 0; i < KB_DELAY_COUNT; i++)
        while (!kw_list_empty(&peer->delays[i])) {
            struct kb_follower *f = KW_CONTAINER_OF(peer->delays[i].next, struct kb_follower, delayed);
            if (f->until_us > now.mono_us) break;
            kw_list_remove(&f->delayed);
            kb_follower_changed(f);
        }
}

/* ---- The session's memory ---- */

void kb_follower_set_session(struct kb_follower *f, bool in_session) {
    if (f->in_session != in_session) f->peer->session_count += in_session ? 1 : SIZE_MAX;
    f->in_session = f->asked = in_session;
    f->missed = false;
}

void kb_peer_session_reset(struct kb_peer *peer) {
    peer->session_id = peer->session_epoch = 0;
    peer->session_serial++;
    peer->forgotten_count = 0;
    for (struct kw_list *l = peer->followers.next; l != &peer->followers; l = l->next) {
        struct kb_follower *f = KW_CONTAINER_OF(l, struct kb_follower, link);
        kb_follower_set_session(f, false);
    }
    kb_peer_touch(peer);
}

static void forget(struct kb_follower *f) {
    struct kb_peer *peer = f->peer;
    if (!f->in_session) return;
    if (peer->forgotten_count == peer->forgotten_cap) {
        size_t cap = KW_MAX(2 * peer->forgotten_cap, (size_t)16);
        struct kb_forgotten *v = kw_realloc(peer->forgotten, cap * sizeof(*v));
        if (!v) { /* a full request says it all */
            kb_peer_session_reset(peer);
            return;
        }
        peer->forgotten = v;
        peer->forgotten_cap = cap;
    }
    peer->forgotten[peer->forgotten_count++] = (struct kb_forgotten){f->p->topic_id, f->p->index};
    kb_follower_set_session(f, false);
}

/* ---- Peers ---- */

static void peer_fire(struct kw_timer *t, void *ctx, int64_t now_us) {
    (void)t, (void)now_us;
    kb_peer_touch(ctx);
}

static void peer_opened(void *ctx, struct kb_link *l, struct kb_now now) {
    struct kb_peer *peer = ctx;
    (void)l, (void)now;
    if (peer->said) KB_SAY(peer->fs->node, KB_INFO, "fetching from broker %d (%s:%u) again", peer->id, peer->host, peer->port);
    peer->said = false;
    peer->not_before_us = 0;
    kb_peer_session_reset(peer);
}

static void back_off(struct kb_peer *peer, struct kb_now now) {
    int64_t us = REDIAL_MIN_US << KW_MIN(peer->failures, 10);
    us = KW_MIN(us, REDIAL_MAX_US);
    us = us / 2 + (int64_t)kw_rng_below(&peer->fs->node->parts.rng, (uint64_t)us / 2 + 1);
    peer->failures++;
    peer->not_before_us = now.mono_us + us;
    kb_peer_touch(peer);
}

static void peer_ended(void *ctx, struct kb_link *l, enum kb_link_end how, struct kb_now now) {
    struct kb_peer *peer = ctx;
    (void)l;
    if (!peer->said)
        KB_SAY(peer->fs->node, KB_WARN, "fetching from broker %d (%s:%u) is interrupted: %s; it is dialed again", peer->id, peer->host,
               peer->port, kb_link_end_text(how));
    peer->said = true;
    kb_peer_session_reset(peer);
    back_off(peer, now);
}

static struct kb_peer *peer_of(struct kb_followers *fs, int32_t id) {
    struct kb_peer *peer = kw_map_get_u64(&fs->peers, (uint64_t)(uint32_t)id);
    if (peer) return peer;
    peer = kw_calloc(1, sizeof(*peer));
    if (!peer) return NULL;
    peer->fs = fs;
    peer->id = id;
    peer->moved = true;
    for (size_t i = 0; i < KB_PEER_CALLS; i++) peer->calls[i] = (struct kb_peer_call){.call = {.done = kb_peer_answered, .ctx = &peer->calls[i]}, .peer = peer};
    kw_list_init(&peer->soon);
    kw_timer_init(&peer->timer, peer_fire, peer);
    kw_list_init(&peer->dirty);
    kw_list_init(&peer->followers);
    kw_list_init(&peer->changed);
    for (size_t i = 0; i < KB_DELAY_COUNT; i++) kw_list_init(&peer->delays[i]);
    if (kw_map_put_u64(&fs->peers, (uint64_t)(uint32_t)id, peer) == KW_OK) return peer;
    kw_free(peer);
    return NULL;
}

static void cancel_calls(struct kb_peer *peer) {
    for (size_t i = 0; i < KB_PEER_CALLS; i++) kb_call_cancel(&peer->calls[i].call);
}

static void peer_free(struct kb_peer *peer) {
    kw_map_remove_u64(&peer->fs->peers, (uint64_t)(uint32_t)peer->id);
    kw_timers_cancel(&peer->fs->node->parts.timers, &peer->timer);
    kw_list_remove(&peer->dirty);
    kw_list_remove(&peer->soon);
    cancel_calls(peer);
    kb_link_free(peer->link);
    kw_free(peer->forgotten);
    kw_free(peer);
}

static void drop_link(struct kb_peer *peer) {
    cancel_calls(peer);
    kb_link_free(peer->link);
    peer->link = NULL;
    peer->failures = 0;
    peer->not_before_us = 0;
    kb_peer_session_reset(peer);
}

/* Where the broker is now. Another address, or another epoch (it was started anew): another connection. */
static void look_up(struct kb_peer *peer) {
    struct kb_node *n = peer->fs->node;
    const struct kb_image_broker *b = kb_image_broker(&n->image, peer->id);
    char host[KB_HOST_SIZE];
    uint16_t port;
    peer->moved = false;
    bool known = b && kb_channel_broker_address(n, peer->id, host, &port);
    bool same = known && peer->known && b->epoch == peer->broker_epoch && port == peer->port && strcmp(host, peer->host) == 0;
    if (same) return;
    if (peer->link) drop_link(peer);
    peer->known = known;
    if (!known) return;
    peer->broker_epoch = b->epoch;
    peer->port = port;
    memcpy(peer->host, host, sizeof(host));
}

static kw_err dial(struct kb_peer *peer, struct kb_now now) {
    struct kb_link_options o = {
        .node = peer->fs->node, .host = peer->host, .port = peer->port, .opened = peer_opened, .ended = peer_ended, .ctx = peer};
    kw_err err = peer->link ? KW_OK : kb_link_new(&o, &peer->link);
    return err == KW_OK ? kb_link_dial(peer->link, now) : err;
}

/* What came last is not written by the loop itself, or it would be by now: more is asked for meanwhile. */
static bool is_on_its_way(const struct kb_peer *peer) {
    return kb_peer_goes_ahead(peer) && peer->fs->turn >= peer->appended_turn + 2;
}

/* Once all that came is written: else the next answer is soon followed by a fetch that tells. */
static bool has_to_tell(const struct kb_peer *peer) {
    return kb_peer_goes_ahead(peer) && peer->progress && peer->writing == 0;
}

/* Whatever the peer's link needs now; when to look again. */
static int64_t go_on(struct kb_peer *peer, struct kb_now now) {
    bool idle = !peer->link || kb_link_is_idle(peer->link);
    size_t calls = kb_peer_calls(peer);
    if (!peer->known || kb_node_broker_epoch(peer->fs->node) < 0) return KW_NEVER; /* the image will tell */
    if (!idle && !kb_link_is_open(peer->link)) return KW_NEVER;
    if (!idle && calls > 0 && !(calls < KB_PEER_CALLS && has_to_tell(peer))) return KW_NEVER;
    if (now.mono_us < peer->not_before_us) return peer->not_before_us;
    if (!idle && calls == 0 && peer->writing > 0 && now.mono_us < peer->patience_until_us && !is_on_its_way(peer)) {
        if (kb_peer_goes_ahead(peer) && kw_list_empty(&peer->soon)) kw_list_push(&peer->fs->soon, &peer->soon);
        return peer->patience_until_us;
    }
    kw_err err = idle ? dial(peer, now) : kb_peer_fetch(peer, now);
    if (err == KW_OK) return KW_NEVER;
    if (err != KW_ENOMEM) KB_SAY(peer->fs->node, KB_WARN, "broker %d (%s:%u) cannot be fetched from now (%d)", peer->id, peer->host, peer->port, err);
    return peer->not_before_us = now.mono_us + AGAIN_US;
}

static void step(struct kb_peer *peer, struct kb_now now) {
    if (peer->count == 0) {
        peer_free(peer);
        return;
    }
    end_delays(peer, now);
    if (peer->moved) look_up(peer);
    int64_t next = go_on(peer, now);
    kw_list_remove(&peer->dirty); /* what it did to itself is done */
    for (size_t i = 0; i < KB_DELAY_COUNT; i++)
        if (!kw_list_empty(&peer->delays[i]))
            next = KW_MIN(next, KW_CONTAINER_OF(peer->delays[i].next, struct kb_follower, delayed)->until_us);
    if (kw_timers_set(&peer->fs->node->parts.timers, &peer->timer, next) != KW_OK) peer->fs->starved = true;
}

/* ---- Following ---- */

static void detach(struct kb_follower *f) {
    struct kb_peer *peer = f->peer;
    if (!peer) return;
    forget(f);
    kb_follower_set_writing(f, false);
    kb_follower_set_session(f, false);
    f->peer = NULL;
    kw_list_remove(&f->link);
    kw_list_remove(&f->changed);
    kw_list_remove(&f->delayed);
    peer->count--;
    kb_peer_touch(peer);
}

static struct kb_follower *follower_of(struct kb_partition *p) {
    struct kb_follower *f = p->follower ? p->follower : kw_calloc(1, sizeof(*f));
    if (!f || p->follower) return f;
    f->p = p;
    f->recovery_max = INT64_MAX;
    kw_list_init(&f->link);
    kw_list_init(&f->changed);
    kw_list_init(&f->delayed);
    return p->follower = f;
}

static void starve(struct kb_followers *fs) {
    fs->starved = true;
    (void)!kw_timers_set(&fs->node->parts.timers, &fs->timer, fs->node->now.mono_us + AGAIN_US); /* else some other turn */
}

void kb_follower_follow(struct kb_partition *p, struct kb_now now) {
    struct kb_followers *fs = p->node->followers;
    if (fs->stopped || p->state != KB_PART_ONLINE || p->leader_id < 0 || p->leader_id == p->node->id) return;
    struct kb_follower *f = follower_of(p);
    if (f && f->peer && f->peer->id == p->leader_id && f->leader_epoch == p->leader_epoch) return;
    struct kb_peer *peer = f ? peer_of(fs, p->leader_id) : NULL;
    if (f) {
        f->generation++;
        kb_follower_cut_left(f);
        if (f->peer != peer) detach(f);
    }
    if (!peer) {
        starve(fs);
        return;
    }
    if (!f->peer) {
        f->peer = peer;
        kw_list_push(&peer->followers, &f->link);
        peer->count++;
    }
    f->leader_epoch = p->leader_epoch;
    f->asked = false;
    f->leader_hw = f->leader_start = -1;
    f->refusals = f->said = 0;
    kw_list_remove(&f->delayed);
    kb_follower_set_writing(f, kb_follower_mark(f) < p->log->leo);
    if (f->writing && p->log_config.flush_on_ack) (void)!kb_log_sync(p->log); /* else its failure is told */
    fs->moved_us = now.mono_us;
    kb_follower_changed(f);
    kb_peer_touch(peer);
}

void kb_follower_leave(struct kb_partition *p) {
    struct kb_follower *f = p->follower;
    if (!f || !f->peer) return;
    f->generation++;
    kb_follower_cut_left(f);
    detach(f);
}

void kb_follower_free(struct kb_partition *p) {
    if (!p->follower) return;
    if (p->node->followers) kb_follower_leave(p);
    kw_blk_unref(p->follower->held);
    kw_free(p->follower);
    p->follower = NULL;
}

void kb_follower_marks_moved(struct kb_partition *p, struct kb_now now) {
    struct kb_follower *f = p->follower;
    if (!f || !f->peer || p->state != KB_PART_ONLINE) return;
    struct kb_log *log = p->log;
    kb_follower_raise_hw(f, now);
    if (log->start != f->sent_start) kb_follower_changed(f);
    if (log->busy || !f->writing) return;
    if (f->in_session && kb_follower_mark(f) > f->sent_mark) {
        f->peer->progress = true;
        kb_follower_changed(f);
    }
    if (kb_follower_mark(f) < log->leo) return;
    kb_follower_set_writing(f, false);
    if (log->read_only) kb_follower_delay(f, KB_DELAY_TROUBLE); /* the disk was full: what came is gone, and is fetched again later */
}

int64_t kb_follower_recovery_max(const struct kb_partition *p) {
    return p->follower ? p->follower->recovery_max : INT64_MAX;
}

/* ---- All of them ---- */

static void starved_fire(struct kw_timer *t, void *ctx, int64_t now_us) {
    (void)t, (void)ctx, (void)now_us; /* the turn's end does it */
}

static void take_config(struct kb_followers *fs, const struct kb_config *c) {
    fs->set.wait_ms = kb_config_int(c, "replica.fetch.wait.max.ms");
    fs->set.timeout_us = kb_partitions_config_us(fs->node, "replica.socket.timeout.ms");
    fs->set.backoff_us = kb_partitions_config_us(fs->node, "replica.fetch.backoff.ms");
    fs->set.bytes_max = (int32_t)kb_config_int(c, "replica.fetch.max.bytes");
    fs->set.bytes_min = (int32_t)kb_config_int(c, "replica.fetch.min.bytes");
    fs->set.response_bytes_max = (int32_t)kb_config_int(c, "replica.fetch.response.max.bytes");
}

kw_err kb_followers_new(struct kb_node *n) {
    struct kb_followers *fs = kw_calloc(1, sizeof(*fs));
    if (!fs) return KW_ENOMEM;
    fs->node = n;
    fs->moved_us = INT64_MIN / 2;
    take_config(fs, n->parts.config);
    kw_arena_init(&fs->arena, 0);
    kw_map_init(&fs->peers);
    kw_list_init(&fs->dirty);
    kw_list_init(&fs->soon);
    kw_timer_init(&fs->timer, starved_fire, fs);
    n->followers = fs;
    return KW_OK;
}

static void leave_all(struct kb_followers *fs) {
    struct kb_peer *peer;
    for (size_t it = 0; (peer = kw_map_next(&fs->peers, &it));) {
        peer->forgotten_count = 0;
        for (struct kw_list *l; (l = peer->followers.next) != &peer->followers;) {
            struct kb_follower *f = KW_CONTAINER_OF(l, struct kb_follower, link);
            kb_follower_set_session(f, false); /* the session goes with the link */
            kb_follower_leave(f->p);
        }
        peer_free(peer);
    }
}

void kb_followers_stop(struct kb_node *n) {
    struct kb_followers *fs = n->followers;
    if (!fs || fs->stopped) return;
    fs->stopped = true;
    kw_timers_cancel(&n->parts.timers, &fs->timer);
    leave_all(fs);
}

void kb_followers_free(struct kb_node *n) {
    struct kb_followers *fs = n->followers;
    if (!fs) return;
    leave_all(fs);
    kw_map_deinit(&fs->peers);
    kw_arena_deinit(&fs->arena);
    kw_free(fs);
    n->followers = NULL;
}

void kb_followers_applied(struct kb_node *n) {
    struct kb_followers *fs = n->followers;
    struct kb_peer *peer;
    for (size_t it = 0; (peer = kw_map_next(&fs->peers, &it));) {
        peer->moved = true;
        kb_peer_touch(peer);
    }
}

void kb_followers_turn(struct kb_node *n) {
    struct kb_followers *fs = n->followers;
    fs->turn++;
    for (struct kw_list *l; (l = kw_list_shift(&fs->soon));) kb_peer_touch(KW_CONTAINER_OF(l, struct kb_peer, soon));
}

void kb_followers_flush(struct kb_node *n, struct kb_now now) {
    struct kb_followers *fs = n->followers;
    if (fs->stopped) return;
    if (KW_UNLIKELY(fs->starved)) {
        fs->starved = false;
        struct kb_peer *peer;
        for (size_t it = 0; (peer = kw_map_next(&fs->peers, &it));) kb_peer_touch(peer);
        for (struct kb_partition *p = NULL; (p = kb_partitions_next(n, p));) kb_follower_follow(p, now);
        if (fs->starved) (void)!kw_timers_set(&n->parts.timers, &fs->timer, now.mono_us + AGAIN_US);
    }
    for (struct kw_list *l; (l = kw_list_shift(&fs->dirty));) step(KW_CONTAINER_OF(l, struct kb_peer, dirty), now);
}

const struct kb_follower_stats *kb_followers_stats(const struct kb_node *n) {
    return &n->followers->stats;
}
