/* raft.c - wires the quorum's election to the disk (quorum-state), to links (requests to the other voters) and to the log's two sides, leader
 * and follower. Contract: raft.h. KIP-595.
 *
 * Called by the store; calls election, raft_join (first), raft_fetch, raft_lead. What the election wants done comes out of kb_raft_drain,
 * after every event.
 */
#include "raft_priv.h"

#include <stdio.h>

#include "log/epochs.h"

const struct kw_uuid kb_metadata_topic_id = {{[15] = 1}};

static void fire(struct kw_timer *t, void *ctx, int64_t now_us);

static void read_settings(const struct kb_config *c, struct kb_raft_settings *set) {
    *set = (struct kb_raft_settings){.fetch_timeout_us = kb_config_int(c, "controller.quorum.fetch.timeout.ms") * 1000,
                                     .election_timeout_us = kb_config_int(c, "controller.quorum.election.timeout.ms") * 1000,
                                     .backoff_max_us = kb_config_int(c, "controller.quorum.election.backoff.max.ms") * 1000,
                                     .request_timeout_us = kb_config_int(c, "controller.quorum.request.timeout.ms") * 1000,
                                     .retry_backoff_us = kb_config_int(c, "controller.quorum.retry.backoff.ms") * 1000,
                                     .fetch_bytes_max = kb_config_int(c, "controller.quorum.fetch.max.bytes"),
                                     .snapshot_bytes_max = kb_config_int(c, "controller.quorum.fetch.snapshot.max.bytes")};
}

struct kb_now kb_raft_now(const struct kb_raft *r, int64_t now_us) {
    struct kb_now now = r->node->now;
    now.mono_us = KW_MAX(now.mono_us, now_us);
    return now;
}

void kb_raft_arm(struct kb_raft *r, struct kw_timer *t, int64_t at_us) {
    if (kw_timers_set(r->s->o.env->timers, t, at_us))
        kb_store_fail(r->s, r->node->now, "%s: out of memory for the quorum's timers", r->s->load.meta_dir);
}

/* ---- Life ---- */

static char *join_path(const char *dir, const char *name) {
    size_t n = strlen(dir) + strlen(name) + 2;
    char *p = kw_malloc(n);
    if (p) snprintf(p, n, "%s/%s", dir, name);
    return p;
}

static void take_voters(struct kb_raft *r) {
    struct kb_voter v[KB_VOTERS_MAX];
    size_t n = kb_config_voters(r->s->o.config, v, KB_VOTERS_MAX);
    for (size_t i = 0; i < n; i++) {
        r->voters[r->voter_count++] = v[i].id;
        if (v[i].id == r->id) {
            r->voter = true;
            continue;
        }
        struct kb_raft_peer *p = &r->peers[r->peer_count++];
        *p = (struct kb_raft_peer){.r = r, .id = v[i].id, .port = v[i].port};
        snprintf(p->host, sizeof(p->host), "%.*s", (int)v[i].host.len, v[i].host.p);
    }
}

kw_err kb_raft_new(struct kb_store *s, struct kb_raft **out) {
    KW_ASSERT(s->o.node);
    struct kb_raft *r = kw_calloc(1, sizeof(*r));
    if (!r) return KW_ENOMEM;
    r->s = s;
    r->node = s->o.node;
    r->id = s->load.node_id;
    r->leader = r->follow.leader = r->follow.gone = -1;
    r->epoch_start = r->ready_at = r->follow.heard_hw = -1;
    kw_map_init(&r->observers);
    kw_arena_init(&r->arena, 64u << 20);
    kw_timer_init(&r->timer, fire, r);
    kb_raft_join_init(r);
    kb_raft_lead_init(r);
    kb_raft_follow_init(r);
    kw_list_init(&r->waiting);
    kw_list_init(&r->pieces);
    kw_out_init(&r->state_bytes);
    kw_out_init(&r->properties_bytes);
    kw_out_init(&r->install.bytes);
    take_voters(r);
    read_settings(s->o.config, &r->set);
    r->state_path = join_path(s->load.meta_dir, "quorum-state");
    r->properties_path = join_path(s->load.dir, "meta.properties");
    if (!r->state_path || !r->properties_path) {
        kb_raft_free(r);
        return KW_ENOMEM;
    }
    *out = r;
    return KW_OK;
}

void kb_raft_stop(struct kb_raft *r, struct kb_now now) {
    struct kw_timers *ts = r->s->o.env->timers;
    if (r->stopped) return;
    if (r->leading) kb_raft_stop_leading(r, now);
    r->stopped = true;
    kb_raft_serve_end(r);
    kb_raft_leave_join(r);
    kb_raft_install_forget(r);
    for (size_t i = 0; i < r->peer_count; i++) {
        kb_call_cancel(&r->peers[i].ask);
        kb_call_cancel(&r->peers[i].find);
        kb_link_free(r->peers[i].link);
        r->peers[i].link = NULL;
    }
    kb_call_cancel(&r->follow.call);
    kb_link_free(r->follow.link);
    r->follow.link = NULL;
    kw_timers_cancel(ts, &r->timer);
    kw_timers_cancel(ts, &r->lead_timer);
    kw_timers_cancel(ts, &r->follow.timer);
}

void kb_raft_free(struct kb_raft *r) {
    if (!r) return;
    r->leading = r->leads = false; /* nobody is told any more */
    kb_raft_stop(r, r->node->now);
    kb_raft_install_deinit(r);
    struct kb_raft_replica *o;
    for (size_t it = 0; (o = kw_map_next(&r->observers, &it));) kw_free(o);
    kw_map_deinit(&r->observers);
    kw_arena_deinit(&r->arena);
    kw_out_deinit(&r->state_bytes);
    kw_out_deinit(&r->properties_bytes);
    kw_free(r->state_path);
    kw_free(r->properties_path);
    kw_free(r);
}

void kb_raft_loaded(struct kb_raft *r, struct kb_now now) {
    if (kw_timers_reserve(r->s->o.env->timers, 16)) {
        kb_store_fail(r->s, now, "%s: out of memory", r->s->load.meta_dir);
        return;
    }
    r->hw = KW_MAX(r->s->snapshot_end, 0);
    kb_raft_join(r, now);
    if (r->s->state != KB_STORE_FAILED) kb_raft_applied(r, now);
}

/* ---- Facts ---- */

struct kb_log_end kb_raft_log_end(const struct kb_raft *r) {
    const struct kb_store *s = r->s;
    /* Empty while it is brought behind a snapshot: what it then has is the snapshot. */
    if (r->install.step == KB_INSTALL_RESET) return (struct kb_log_end){.epoch = r->install.epoch, .offset = r->install.end};
    int64_t end = r->follow.cutting ? r->follow.cut_to : s->log->leo; /* what will be gone cannot be boasted of */
    int32_t epoch = end > s->log->start ? kb_epochs_at(s->log->epochs, end - 1) : -1;
    if (epoch < 0 && end == s->snapshot_end) epoch = s->snapshot_epoch;
    if (epoch < 0 && end == s->snapshot_previous) epoch = s->snapshot_previous_epoch;
    return (struct kb_log_end){.epoch = KW_MAX(epoch, 0), .offset = end};
}

static struct kb_log_end log_end(void *ctx) {
    return kb_raft_log_end(ctx);
}

int64_t kb_raft_high_watermark(const struct kb_raft *r) {
    return r->hw;
}
int32_t kb_raft_leader(const struct kb_raft *r) {
    return r->leader;
}
bool kb_raft_leads(const struct kb_raft *r) {
    return r->leads;
}
bool kb_raft_is_up(const struct kb_raft *r) {
    return r->phase != KB_RAFT_DOWN && !r->stopped;
}

struct kb_raft_peer *kb_raft_peer(struct kb_raft *r, int32_t id) {
    for (size_t i = 0; i < r->peer_count; i++)
        if (r->peers[i].id == id) return &r->peers[i];
    return NULL;
}

int16_t kb_raft_cluster_code(const struct kb_store *s, struct kw_str cluster_id) {
    if (cluster_id.len < 0 || !s->load.cluster_id[0] || kw_str_eq(cluster_id, kw_str_of(s->load.cluster_id))) return KE_NONE;
    return KE_INCONSISTENT_CLUSTER_ID;
}

/* ---- quorum-state ---- */

static void state_done(struct kb_disk_req *q, struct kb_now now) {
    struct kb_raft *r = q->ctx;
    r->storing = false;
    kw_out_deinit(&r->state_bytes);
    kw_out_init(&r->state_bytes);
    if (q->err) {
        kb_store_fail(r->s, now, "%s cannot be written (%s): without it this node may not vote", r->state_path, kb_os_text(q->os_errno));
        return;
    }
    if (!r->stopped) r->stored(r, now);
}

void kb_raft_store_state(struct kb_raft *r, const struct kb_election_state *st, void (*done)(struct kb_raft *r, struct kb_now now), struct kb_now now) {
    KW_ASSERT(!r->storing);
    kw_out_reset(&r->state_bytes);
    if (kb_store_state_write(&r->state_bytes, st, r->voters, r->voter_count)) {
        kb_store_fail(r->s, now, "%s: out of memory", r->state_path);
        return;
    }
    r->stored = done;
    r->storing = true;
    kb_store_write_file(r->s, &r->state_file, r->state_path, &r->state_bytes, state_done, r);
}

static void election_stored(struct kb_raft *r, struct kb_now now) {
    kb_election_stored(&r->election, now.mono_us);
    kb_raft_drain(r, now);
}

/* ---- Requests to the other voters ---- */

static void link_ended(void *ctx, struct kb_link *l, enum kb_link_end how, struct kb_now now) {
    struct kb_raft_peer *p = ctx;
    (void)l, (void)now;
    bool away = how == KB_LINK_UNREACHABLE || how == KB_LINK_BROKEN;
    if (away && !p->said)
        kb_say(p->r->s->o.env->logger, KB_WARN, "voter %d at %s:%u: %s; it is tried again", (int)p->id, p->host, (unsigned)p->port,
               kb_link_end_text(how));
    p->said = away;
}

kw_err kb_raft_call(struct kb_raft_peer *p, struct kb_call *c, const struct kw_desc *d, int16_t version, const void *msg, int64_t timeout_us,
                    struct kb_now now) {
    if (!p->link) {
        struct kb_link_options o = {.node = p->r->node, .host = p->host, .port = p->port, .ended = link_ended, .ctx = p};
        kw_err err = kb_link_new(&o, &p->link);
        if (err) return err;
    }
    if (kb_link_is_idle(p->link)) {
        kw_err err = kb_link_dial(p->link, now);
        if (err) return err;
    }
    return kb_link_call(p->link, c, d, version, msg, timeout_us, now);
}

/* ---- Another cluster's ---- */

void kb_raft_refused(struct kb_raft *r, int32_t id, struct kb_now now) {
    struct kb_raft_peer *p = kb_raft_peer(r, id);
    size_t count = 0;
    if (!p) return;
    if (!p->refused)
        kb_say(r->s->o.env->logger, KB_ERROR, "voter %d at %s:%u belongs to another cluster than this node (%s in %s/meta.properties)", (int)id, p->host,
               (unsigned)p->port, r->s->load.cluster_id, r->s->load.dir);
    p->refused = true;
    for (size_t i = 0; i < r->peer_count; i++) count += r->peers[i].refused;
    if (count < r->voter_count / 2 + 1) return;
    kb_store_fail(r->s, now,
                  "%s/meta.properties has cluster.id=%s, and most voters of controller.quorum.voters belong to another cluster: this is another "
                  "cluster's data folder; use the right one, or an empty one",
                  r->s->load.dir, r->s->load.cluster_id);
}

/* ---- The election's wishes ---- */

static void ask_done(struct kb_call *c, kw_err err, struct kw_in *body, struct kw_blk *blk, struct kb_now now) {
    struct kb_raft_peer *p = c->ctx;
    struct kb_raft *r = p->r;
    struct kb_election_reply reply;
    (void)blk;
    if (!err) err = kb_raft_read_answer(r, p->sent.request.kind, body, &reply);
    if (err) {
        kb_election_unanswered(&r->election, &p->sent, now.mono_us);
    } else {
        if (reply.top_error == KE_INCONSISTENT_CLUSTER_ID)
            kb_raft_refused(r, p->id, now);
        else
            p->refused = false;
        if (!reply.top_error) (void)kb_raft_doubts(r, p, reply.error, reply.leader_id, reply.epoch, now);
        kb_election_answered(&r->election, &p->sent, &reply, now.mono_us);
    }
    kb_raft_drain(r, now);
}

static void send_ask(struct kb_raft *r, const struct kb_election_send *s, struct kb_now now) {
    struct kb_raft_peer *p = kb_raft_peer(r, s->to);
    KW_ASSERT(p && !kb_call_is_under_way(&p->ask));
    p->sent = *s;
    p->ask.done = ask_done;
    p->ask.ctx = p;
    p->ask_failed = kb_raft_send(p, s, now) != KW_OK;
}

static void find_done(struct kb_call *c, kw_err err, struct kw_in *body, struct kw_blk *blk, struct kb_now now) {
    struct kb_raft_peer *p = c->ctx;
    struct kb_raft *r = p->r;
    int16_t top;
    struct kw_fetch_response_partition_data *d;
    (void)blk;
    if (err || kb_raft_read_fetch(r, body, &top, &d)) return; /* another is asked in its time */
    if (top == KE_INCONSISTENT_CLUSTER_ID) kb_raft_refused(r, p->id, now);
    if (top || r->phase == KB_RAFT_DOWN) return;
    p->refused = false;
    if (kb_raft_doubts(r, p, KE_NONE, d->current_leader.leader_id, d->current_leader.leader_epoch, now)) return;
    kb_election_heard(&r->election, p->id, d->current_leader.leader_id, d->current_leader.leader_epoch, now.mono_us);
    kb_raft_drain(r, now);
}

static void find(struct kb_raft *r, int32_t to, struct kb_now now) {
    struct kb_raft_peer *p = kb_raft_peer(r, to);
    if (!p || kb_call_is_under_way(&p->find)) return;
    struct kb_raft_fetch_request f;
    kb_raft_fetch_init(r, &f);
    f.req.max_wait_ms = 0;
    f.req.max_bytes = f.partition.partition_max_bytes = 0;
    f.req.replica_state.replica_id = -1; /* this is no fetch to be counted */
    p->find.done = find_done;
    p->find.ctx = p;
    (void)!kb_raft_call(p, &p->find, &kw_fetch_request_desc, kw_fetch_request_desc.max, &f.req, r->set.request_timeout_us,
                        now); /* else the next is asked */
}

static void take_view(struct kb_raft *r, struct kb_now now) {
    struct kb_election_view v = kb_election_view(&r->election);
    bool same = v.epoch == r->epoch;
    if (r->leading && (!v.leads || !same)) kb_raft_stop_leading(r, now);
    bool changed = v.leader_id != r->leader || !same;
    r->epoch = r->s->epoch = v.epoch;
    r->leader = v.leader_id;
    if (changed) {
        kb_say(r->s->o.env->logger, KB_INFO, v.leader_id < 0 ? "metadata quorum: epoch %d, no leader yet" : "metadata quorum: epoch %d, leader %d",
               (int)v.epoch, (int)v.leader_id);
        r->follow.heard_hw = -1;
    }
    if (v.leads) {
        kb_raft_follow(r, -1, now);
        if (!r->leading) kb_raft_lead(r, now);
    } else {
        kb_raft_follow(r, v.leader_id == r->id ? -1 : v.leader_id, now);
    }
    kb_raft_serve_moved(r, now);
}

static void act_on(struct kb_raft *r, const struct kb_election_action *act, struct kb_now now) {
    switch (act->kind) {
    case KB_ELECT_STORE:
        if (r->phase == KB_RAFT_MEMBER && r->voter)
            kb_raft_store_state(r, &act->state, election_stored, now);
        else
            kb_election_stored(&r->election, now.mono_us); /* it gives no vote: what it knows of epochs need not last */
        break;
    case KB_ELECT_VIEW:
        take_view(r, now);
        break;
    case KB_ELECT_REPLY: {
        struct kb_raft_ask *a = KW_CONTAINER_OF(act->reply, struct kb_raft_ask, reply);
        a->answer(a);
        break;
    }
    case KB_ELECT_SEND:
        send_ask(r, &act->send, now);
        break;
    case KB_ELECT_FIND:
        find(r, act->to, now);
        break;
    }
}

static bool ask_failed(const struct kb_raft *r) {
    for (size_t i = 0; i < r->peer_count; i++)
        if (r->peers[i].ask_failed) return true;
    return false;
}

void kb_raft_drain(struct kb_raft *r, struct kb_now now) {
    struct kb_election_action act;
    if (r->draining || r->stopped) return;
    r->draining = true;
    while (!r->stopped && r->s->state != KB_STORE_FAILED && kb_election_next(&r->election, &act, now.mono_us)) act_on(r, &act, now);
    r->draining = false;
    if (r->stopped || r->s->state == KB_STORE_FAILED) return;
    int64_t at = ask_failed(r) ? now.mono_us : kb_election_deadline(&r->election);
    kb_raft_arm(r, &r->timer, at);
    if (r->resigned && kb_election_resigned(&r->election)) kb_raft_arm(r, &r->timer, now.mono_us);
}

static void fire(struct kw_timer *t, void *ctx, int64_t now_us) {
    struct kb_raft *r = ctx;
    struct kb_now now = kb_raft_now(r, now_us);
    (void)t;
    for (size_t i = 0; i < r->peer_count; i++) {
        if (!r->peers[i].ask_failed) continue;
        r->peers[i].ask_failed = false;
        kb_election_unanswered(&r->election, &r->peers[i].sent, now.mono_us);
    }
    kb_election_tick(&r->election, now.mono_us);
    if (r->resigned && kb_election_resigned(&r->election)) {
        void (*done)(void *, struct kb_now) = r->resigned;
        r->resigned = NULL;
        done(r->resigned_ctx, now);
    }
    kb_raft_drain(r, now);
}

static struct kb_election_options options(struct kb_raft *r, bool observes) {
    struct kb_election_options o = {.id = r->id,
                                    .directory = r->s->load.directory_id,
                                    .cluster_id = r->s->load.cluster_id,
                                    .voter_count = r->voter_count,
                                    .observes = observes,
                                    .fetch_timeout_us = r->set.fetch_timeout_us,
                                    .election_timeout_us = r->set.election_timeout_us,
                                    .backoff_max_us = r->set.backoff_max_us,
                                    .request_timeout_us = r->set.request_timeout_us,
                                    .retry_backoff_us = r->set.retry_backoff_us,
                                    .rng = r->s->o.rng,
                                    .log_end = log_end,
                                    .ctx = r};
    memcpy(o.voters, r->voters, sizeof(o.voters));
    return o;
}

void kb_raft_start_election(struct kb_raft *r, const struct kb_election_state *st, bool observes, struct kb_now now) {
    struct kb_election_options o = options(r, observes);
    bool stopping = r->election.stopping; /* a stop that began before this machine */
    for (size_t i = 0; i < r->peer_count; i++) { /* of the machine before this one */
        kb_call_cancel(&r->peers[i].ask);
        r->peers[i].ask_failed = false;
    }
    kb_election_init(&r->election, &o);
    if (st->epoch != r->epoch) { /* whom it followed leads another epoch, and is not to be taken for the leader of this one */
        kb_raft_follow(r, -1, now);
        r->leader = -1;
        r->follow.heard_hw = -1;
    }
    r->epoch = r->s->epoch = st->epoch;
    if (kb_election_start(&r->election, st, now.mono_us))
        kb_store_fail(r->s, now, "%s: epoch %d cannot be: the file, or the log, is damaged; restore it from a copy", r->state_path, (int)st->epoch);
    if (stopping) kb_election_resign(&r->election, now.mono_us);
}

/* ---- From the store ---- */

void kb_raft_marks_moved(struct kb_raft *r, struct kb_now now) {
    if (r->phase == KB_RAFT_DOWN || r->stopped) return;
    if (r->leading) {
        kb_raft_lead_step(r, now);
        kb_raft_advance(r, now);
        kb_raft_serve_moved(r, now);
    } else {
        kb_raft_follow_step(r, now);
    }
    kb_raft_drain(r, now);
}

void kb_raft_cut_back(struct kb_raft *r, struct kb_now now) {
    if (r->phase == KB_RAFT_DOWN || r->stopped) return;
    if (r->leading && r->epoch_start >= r->s->log->leo) {
        r->epoch_start = -1;
        kb_raft_arm(r, &r->lead_timer, now.mono_us + KB_RAFT_TEMPORARY_US);
    }
    if (r->leading) r->lead_end = KW_MIN(r->lead_end, r->s->log->leo);
    if (r->follow.leader >= 0) kb_raft_follow_pause(r, 10 * KB_RAFT_TEMPORARY_US, now);
}

void kb_raft_resign(struct kb_raft *r, void (*done)(void *ctx, struct kb_now now), void *ctx, struct kb_now now) {
    r->resigned = done;
    r->resigned_ctx = ctx;
    kb_election_resign(&r->election, now.mono_us);
    kb_raft_arm(r, &r->timer, now.mono_us);
    kb_raft_drain(r, now);
}

void kb_raft_ask(struct kb_raft *r, const struct kb_election_request *q, struct kb_raft_ask *a, struct kb_now now) {
    a->reply = (struct kb_election_reply){.leader_id = -1};
    kw_list_init(&a->reply.link);
    if (r->stopped || !r->election.started) {
        a->reply.error = KE_BROKER_NOT_AVAILABLE; /* asked again a little later */
        a->answer(a);
        return;
    }
    if (kb_raft_cluster_code(r->s, q->cluster_id) && a->rq->conn)
        kb_conn_say(a->rq->conn, KB_WARN, "node %d asks as a voter and belongs to another cluster (%.*s; this one is %s): refused", (int)q->from,
                    (int)KW_MIN(q->cluster_id.len, 60), q->cluster_id.p, r->s->load.cluster_id);
    else if (!kb_election_is_voter(&r->election, q->from) && q->from >= 0 && a->rq->conn)
        kb_conn_say(a->rq->conn, KB_WARN, "node %d asks as a voter, and controller.quorum.voters does not name it here: refused; name the same voters on all "
                    "nodes", (int)q->from);
    bool empty = r->phase == KB_RAFT_FORGETFUL && r->leader < 0 && kb_raft_log_end(r).offset == 0;
    kb_election_ask(&r->election, q, &a->reply, now.mono_us);
    /* That there is nothing here is what one that has nothing needs to know: raft_join.c. */
    if (empty && q->kind == KB_VOTE && q->pre_vote && q->log_end.offset == 0 && !a->reply.top_error && !a->reply.error) a->reply.granted = true;
    kb_raft_drain(r, now);
}

void kb_raft_forget(struct kb_raft *r, struct kb_raft_ask *a) {
    kb_election_forget(&r->election, &a->reply);
}

void kb_raft_applied(struct kb_raft *r, struct kb_now now) {
    struct kb_store *s = r->s;
    if (r->stopped) return;
    kb_raft_compare_voters(r, now);
    if (s->state == KB_STORE_FAILED) return;
    kb_raft_lead_step(r, now);
    if (s->ready_told || s->state != KB_STORE_READY) return;
    bool current = !(kb_config_roles(s->o.config) & KB_ROLE_BROKER) || (r->ready_at >= 0 && s->o.image->offset + 1 >= r->ready_at);
    if (!current) return;
    s->ready_told = true;
    if (s->o.ready) s->o.ready(s->o.ctx, KW_OK, now);
}
