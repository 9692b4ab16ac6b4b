/* quorum_rig.h - several whole nodes in one process and one virtual time, each on a simulated disk of its own, links joined to connections in
 * memory: the metadata quorum as it is, with kills, power losses, wiped disks and links that hold their bytes back.
 *
 * What it watches all the time: an epoch has one leader, and nobody follows another in it; what any node applied at an offset is
 * what all others do; what a leader saw committed is never lost.
 */
#ifndef QUORUM_RIG_H
#define QUORUM_RIG_H

#include "node_rig.h"

#include "link.h"
#include "log/epochs.h"
#include "quorum/raft_priv.h"

enum { HOSTS_MAX = 6, PIPES_MAX = 128, EPOCHS_MAX = 4096, OFFSETS_MAX = 65536 };

struct host {
    struct rig r;
    struct quorum *q;
    int32_t id;
    bool up, failed;
    bool wiped; /* once: what it acknowledged before that counted rightly, as nobody can know */
    int64_t applied; /* offset that was looked at last */
    int64_t durable; /* what it had synced when it was looked at last: no crash takes that */
    int32_t led;     /* the epoch that it leads, and the high watermark with which it began; -1 */
    int64_t led_from;
};
struct pipe { /* from a link of one host to a connection of another */
    struct kb_dial *dial;
    struct host *from, *to;
    struct rig_conn *conn;
    bool used, ended; /* ended: told the dial */
};
struct quorum {
    struct host h[HOSTS_MAX];
    int hosts, voters;
    struct pipe pipes[PIPES_MAX];
    struct kb_now now;
    struct kw_rng rng;
    bool cut[HOSTS_MAX][HOSTS_MAX]; /* nothing goes from the one to the other */
    int32_t leader_of[EPOCHS_MAX];  /* -1: had none yet; -2: not known */
    int32_t epoch_at[OFFSETS_MAX];  /* of what was applied there; -1: not yet */
    int64_t committed;              /* highest offset that a node applied */
    uint32_t serial;                /* of records appended */
    uint32_t refused;               /* dials */
};

/* ---- Pipes ---- */

static inline void q_pipe_close(struct pipe *p, enum kb_link_end how) {
    if (!p->used) return;
    if (p->dial) kb_dial_ended(p->dial, how, p->from->r.now);
    if (p->conn && p->conn->conn) {
        struct kb_conn *c = p->conn->conn;
        p->conn->conn = NULL;
        kb_conn_closed(c, p->to->r.now);
    }
    memset(p, 0, sizeof(*p));
}

static inline void q_dial(struct quorum *q, struct host *from, struct kb_dial *d) {
    const char *name;
    uint16_t port;
    kb_dial_address(d, &name, &port);
    struct host *to = NULL;
    for (int i = 0; i < q->hosts; i++)
        if (q->h[i].id == atoi(name + 1) && q->h[i].up && !q->h[i].failed) to = &q->h[i];
    struct pipe *p = NULL;
    for (int i = 0; i < PIPES_MAX && !p; i++)
        if (!q->pipes[i].used) p = &q->pipes[i];
    assert_non_null(p);
    *p = (struct pipe){.dial = d, .from = from, .to = to, .used = true};
    kb_dial_set_shell(d, p);
    if (to && q->cut[from - q->h][to - q->h]) return; /* the connect times out, if it does */
    if (to && !kb_node_accepts(to->r.node)) to = NULL;
    if (to) {
        p->conn = rig_connect(&to->r);
        if (!p->conn->conn) to = NULL;
    }
    q->refused += !to;
    if (!to)
        q_pipe_close(p, KB_LINK_REFUSED);
    else
        kb_dial_connected(d, from->r.now);
}

static inline bool q_forth(struct pipe *p) {
    struct kb_iov iov[4];
    bool any = false;
    for (size_t n; p->dial && (n = kb_dial_send(p->dial, iov, 4)) > 0;) {
        size_t room;
        uint8_t *to;
        if (!p->conn || !p->conn->conn) return any;
        kb_conn_recv_buf(p->conn->conn, &to, &room);
        if (room == 0) return any;
        size_t take = KW_MIN(room, iov[0].len);
        memcpy(to, iov[0].p, take);
        kb_conn_received(p->conn->conn, take, p->to->r.now);
        if (p->dial) kb_dial_sent(p->dial, take, p->from->r.now);
        any = true;
    }
    return any;
}

static inline bool q_back(struct pipe *p) {
    struct rig_conn *k = p->conn;
    size_t done = 0;
    while (p->dial && done < k->in_len) {
        uint8_t *to;
        size_t room;
        kb_dial_recv_buf(p->dial, &to, &room);
        if (room == 0) break;
        size_t take = KW_MIN(room, k->in_len - done);
        memcpy(to, k->in + done, take);
        done += take;
        kb_dial_received(p->dial, take, p->from->r.now);
    }
    if (done > 0) memmove(k->in, k->in + done, k->in_len - done);
    k->in_len -= done;
    if (!k->conn && k->in_len == 0) {
        q_pipe_close(p, KB_LINK_CLOSED_BY_PEER);
        return true;
    }
    return done > 0;
}

static inline bool q_pipe_turn(struct quorum *q, struct pipe *p) {
    if (!p->used || !p->to || !p->conn) return false;
    bool any = false;
    size_t from = (size_t)(p->from - q->h), to = (size_t)(p->to - q->h);
    if (!q->cut[from][to]) any = q_forth(p);
    if (p->used && !q->cut[to][from]) any = q_back(p) || any;
    return any;
}

/* ---- What must hold ---- */

static inline struct kb_store *q_store(const struct host *h) {
    return h->r.node->parts.store;
}

static inline bool q_leads(const struct host *h) {
    return h->up && !h->failed && kb_store_leads(q_store(h));
}

static inline void q_watch(struct host *h) {
    struct quorum *q = h->q;
    if (kb_node_state(h->r.node) == KB_NODE_FAILED) {
        if (!h->failed && getenv("RIG_LOG")) fprintf(stderr, "host %d failed: %s\n", h->id, kb_node_failure(h->r.node));
        h->failed = true;
        return;
    }
    struct kb_store *s = q_store(h);
    if (!s || !s->log || !kb_raft_is_up(s->raft)) return;
    h->durable = s->log->synced;
    const struct kb_epochs *epochs = s->log->epochs; /* recovery tells rot from a torn write by that: what lies before an epoch was synced */
    if (epochs->count && epochs->v[epochs->count - 1].start > s->log->synced)
        fail_msg("host %d: an epoch begins at %lld, and synced is up to %lld", h->id, (long long)epochs->v[epochs->count - 1].start, (long long)s->log->synced);
    if (!s->raft->leading || h->led != s->epoch) h->led = -1;
    if (s->raft->leading) {
        /* Copies of an earlier epoch's records prove nothing: one of this epoch comes first. */
        if (h->led < 0) h->led_from = s->raft->hw;
        h->led = s->epoch;
        if (s->raft->hw != h->led_from && s->raft->hw != s->snapshot_end && (s->raft->epoch_start < 0 || s->raft->hw <= s->raft->epoch_start))
            fail_msg("host %d: %lld is committed in epoch %d, which began at %lld", h->id, (long long)s->raft->hw, s->epoch, (long long)s->raft->epoch_start);
        assert_true(s->epoch < EPOCHS_MAX);
        int32_t *leader = &q->leader_of[s->epoch];
        if (*leader < 0) *leader = h->id;
        if (*leader != h->id) fail_msg("epoch %d has two leaders: %d and %d", s->epoch, *leader, h->id);
    }
    const struct kb_image *im = &h->r.node->image;
    if (im->offset == h->applied) return;
    if (im->offset < h->applied) fail_msg("host %d: the image went back from %lld to %lld", h->id, (long long)h->applied, (long long)im->offset);
    h->applied = im->offset;
    assert_true(im->offset < OFFSETS_MAX && im->offset < s->log->leo);
    for (int64_t i = s->log->start; i <= im->offset; i++) {
        int32_t epoch = kb_epochs_at(s->log->epochs, i);
        if (epoch < 0) continue;
        if (q->epoch_at[i] < 0) q->epoch_at[i] = epoch;
        if (q->epoch_at[i] != epoch)
            fail_msg("host %d: at offset %lld is a record of epoch %d, elsewhere one of %d was applied", h->id, (long long)i, epoch, q->epoch_at[i]);
    }
    if (im->offset <= q->committed) return;
    q->committed = im->offset;
    int durable = 0;
    for (int i = 0; i < q->voters; i++) durable += q->h[i].durable > im->offset || q->h[i].wiped;
    if (durable <= q->voters / 2) fail_msg("host %d: offset %lld was applied, and %d voters have it", h->id, (long long)im->offset, durable);
}

static inline void q_watch_follower(const struct host *h) {
    const struct kb_store *s = q_store(h);
    if (h->failed || !s || !s->raft || !s->raft->election.started || s->raft->election.role != KB_FOLLOWER) return;
    const struct kb_election_state *e = &s->raft->election.state;
    int32_t led_by = h->q->leader_of[e->epoch];
    if (led_by != -2 && led_by != e->leader_id) fail_msg("host %d follows %d in epoch %d, which was led by %d", h->id, e->leader_id, e->epoch, led_by);
}

/* ---- Turns ---- */

static inline bool q_turn(struct quorum *q) {
    bool any = false;
    for (int i = 0; i < q->hosts; i++) {
        struct host *h = &q->h[i];
        if (!h->up || h->failed) continue;
        h->r.now = q->now;
        any = rig_turn(&h->r) || any;
        for (struct kb_dial *d; (d = kb_node_next_dial(h->r.node)); any = true) {
            if (kb_dial_wants_close(d)) {
                if (kb_dial_shell(d)) q_pipe_close(kb_dial_shell(d), KB_LINK_CLOSED);
                else kb_dial_ended(d, KB_LINK_CLOSED, q->now);
            } else if (!kb_dial_shell(d)) {
                q_dial(q, h, d);
            }
        }
        q_watch(h);
    }
    for (int i = 0; i < PIPES_MAX; i++) any = q_pipe_turn(q, &q->pipes[i]) || any;
    for (int i = 0; i < q->hosts; i++)
        if (q->h[i].up) q_watch(&q->h[i]);
    for (int i = 0; i < q->hosts; i++)
        if (q->h[i].up) q_watch_follower(&q->h[i]);
    return any;
}

static inline void q_step(struct quorum *q, int64_t until_us) {
    if (q_turn(q)) return;
    int64_t next = until_us;
    for (int j = 0; j < q->hosts; j++) {
        struct host *h = &q->h[j];
        if (!h->up || h->failed) continue;
        next = KW_MIN(next, KW_MIN(sim_disk_next(h->r.disk), kb_node_deadline(h->r.node)));
    }
    next = KW_MAX(next, q->now.mono_us + 1);
    q->now.wall_ms += (next - q->now.mono_us + 999) / 1000;
    q->now.mono_us = next;
}

static inline void q_pass(struct quorum *q, int64_t us) {
    int64_t until = q->now.mono_us + us;
    for (int i = 0; q->now.mono_us < until; i++) {
        assert_true(i < 5000000); /* a busy loop is a bug */
        q_step(q, until);
    }
}

/* ---- Life ---- */

static inline void q_init(struct quorum *q, int voters, int hosts, uint64_t seed) {
    char list[256] = "";
    memset(q, 0, sizeof(*q));
    q->hosts = hosts;
    q->voters = voters;
    q->now = (struct kb_now){1000000, 1700000000000};
    q->committed = -1;
    kw_rng_init(&q->rng, seed);
    for (int i = 0; i < EPOCHS_MAX; i++) q->leader_of[i] = -1;
    for (int i = 0; i < OFFSETS_MAX; i++) q->epoch_at[i] = -1;
    for (int i = 0; i < voters; i++) snprintf(list + strlen(list), sizeof(list) - strlen(list), i ? ",%d@h%d:9093" : "%d@h%d:9093", i, i);
    for (int i = 0; i < hosts; i++) {
        struct host *h = &q->h[i];
        char id[12], text[400];
        rig_init(&h->r, seed * 64 + (uint64_t)i);
        h->q = q;
        h->id = i;
        h->applied = -1;
        snprintf(id, sizeof(id), "%d", i);
        rig_set(&h->r, "node.id", id);
        rig_set(&h->r, "process.roles", i < voters ? "controller" : "broker");
        rig_set(&h->r, "listeners", i < voters ? "CONTROLLER://h:9093" : "PLAINTEXT://h:9092");
        rig_set(&h->r, "controller.quorum.voters", list);
        if (kb_config_finish(h->r.config, text, sizeof(text)) != KW_OK) fail_msg("%s", text);
    }
}

static inline void q_boot(struct host *h) {
    h->r.now = h->q->now;
    h->applied = -1;
    h->failed = false;
    h->up = true;
    h->led = -1;
    rig_load(&h->r);
}
static inline void q_boot_all(struct quorum *q) {
    for (int i = 0; i < q->hosts; i++)
        if (!q->h[i].up) q_boot(&q->h[i]);
}

static inline void q_cut_off(struct host *h) { /* its connections end */
    for (int i = 0; i < PIPES_MAX; i++) {
        struct pipe *p = &h->q->pipes[i];
        if (!p->used || (p->from != h && p->to != h)) continue;
        if (p->from == h && p->dial) { /* the process is gone: nobody is told */
            kb_dial_ended(p->dial, KB_LINK_CLOSED, h->q->now);
            p->dial = NULL;
        }
        q_pipe_close(p, KB_LINK_RESET);
    }
}
static inline void q_kill(struct host *h, bool power) {
    h->r.now = h->q->now;
    if (power)
        sim_disk_power_loss(h->r.disk, h->r.now);
    else
        sim_disk_kill9(h->r.disk, h->r.now);
    h->up = false; /* refuses dials */
    q_cut_off(h);
    rig_close_conns(&h->r);
    rig_free_node(&h->r);
    sim_disk_restart(h->r.disk);
    h->failed = false;
}
static inline void q_stop(struct host *h) {
    h->r.now = h->q->now;
    kb_node_stop(h->r.node, h->q->now);
    for (int i = 0; i < 20000 && kb_node_state(h->r.node) == KB_NODE_READY; i++) q_pass(h->q, 1000);
    for (int i = 0; i < 20000 && kb_node_state(h->r.node) != KB_NODE_STOPPED && !h->failed; i++) q_pass(h->q, 1000);
    assert_true(h->failed || kb_node_state(h->r.node) == KB_NODE_STOPPED);
    q_turn(h->q);
    h->up = false;
    q_cut_off(h);
    rig_free_node(&h->r);
    h->failed = false;
}
static inline void q_deinit(struct quorum *q) {
    for (int i = 0; i < q->hosts; i++)
        if (q->h[i].up) q_kill(&q->h[i], false);
    for (int i = 0; i < q->hosts; i++) {
        kb_config_free(q->h[i].r.config);
        sim_disk_free(q->h[i].r.disk);
        kw_arena_deinit(&q->h[i].r.arena);
    }
}
static inline void q_wipe(struct host *h) {
    sim_disk_remove(h->r.disk, "/data/__cluster_metadata-0");
    sim_disk_remove(h->r.disk, "/data/meta.properties");
    h->applied = -1;
    h->wiped = true;
}

/* ---- Acting ---- */

static inline struct host *q_leader(struct quorum *q) {
    struct host *best = NULL;
    for (int i = 0; i < q->hosts; i++)
        if (q_leads(&q->h[i]) && (!best || q_store(&q->h[i])->epoch > q_store(best)->epoch)) best = &q->h[i];
    return best;
}
static inline struct host *q_wait_leader(struct quorum *q, int64_t at_most_us) {
    for (int64_t until = q->now.mono_us + at_most_us; q->now.mono_us < until;) {
        struct host *h = q_leader(q);
        if (h) return h;
        q_step(q, KW_MIN(until, q->now.mono_us + 1000));
    }
    return q_leader(q);
}
/* A configuration whose value counts up; *offset is its record's. false: it was not taken. */
static inline bool q_append(struct host *h, int64_t *offset) {
    char name[32], value[32];
    snprintf(name, sizeof(name), "r%u", h->q->serial % 50);
    snprintf(value, sizeof(value), "%u", h->q->serial++);
    struct kw_config_record c;
    kw_msg_init(&kw_config_record_desc, &c);
    c.resource_type = 32;
    c.resource_name = kw_str_of(name);
    c.name = kw_str_of("v");
    c.value = kw_str_of(value);
    struct kb_store_record rec = {.type = KW_RECORD_CONFIG, .version = 0, .message = &c};
    h->r.now = h->r.node->now = h->q->now;
    return kb_store_append(q_store(h), &rec, 1, offset, h->q->now) == KW_OK;
}
static inline bool q_same_images(struct quorum *q) {
    struct kw_out first;
    bool any = false, same = true;
    kw_out_init(&first);
    for (int i = 0; i < q->hosts; i++) {
        if (!q->h[i].up || q->h[i].failed) continue;
        struct kw_out b;
        kw_out_init(&b);
        assert_int_equal(kb_snapshot_encode(&q->h[i].r.node->image, 0, 0, &b), KW_OK);
        same = same && (!any || (b.len == first.len && memcmp(b.p, first.p, b.len) == 0));
        if (any) kw_out_deinit(&b);
        else first = b;
        any = true;
    }
    kw_out_deinit(&first);
    return same;
}
static inline void q_print(const struct host *h) {
    const struct kb_store *s = h->up ? q_store(h) : NULL;
    if (!s || !s->log) return;
    fprintf(stderr, "host %d: failed %d applied %lld log %lld..%lld synced %lld hw %lld leader %d epoch %d phase %d install %d\n", h->id, h->failed,
            (long long)h->r.node->image.offset, (long long)s->log->start, (long long)s->log->leo, (long long)s->log->synced, (long long)s->raft->hw,
            s->raft->leader, s->raft->epoch, (int)s->raft->phase, (int)s->raft->install.step);
}
/* With all voters there, none is left out of the votes. */
static inline bool q_belongs(const struct host *h) {
    for (int i = 0; i < h->q->voters; i++)
        if (!h->q->h[i].up) return true;
    return q_store(h)->raft->phase == KB_RAFT_MEMBER;
}
/* All that are up have applied the same, and it is all that was committed. */
static inline void q_agree(struct quorum *q, int64_t at_most_us) {
    int64_t until = q->now.mono_us + at_most_us, offset = 0;
    for (bool same = false; !same;) {
        struct host *l = q_wait_leader(q, until - q->now.mono_us);
        if (!l) fail_msg("nobody leads");
        same = true;
        offset = q_store(l)->log->leo - 1;
        for (int i = 0; i < q->hosts; i++)
            if (q->h[i].up && (q->h[i].failed || q->h[i].r.node->image.offset != offset || !q_belongs(&q->h[i]))) same = false;
        if (same) break;
        if (q->now.mono_us >= until)
            for (int i = 0; i < q->hosts; i++) q_print(&q->h[i]);
        if (q->now.mono_us >= until) fail_msg("they do not come to agree; the leader %d is at %lld", l->id, (long long)offset);
        q_pass(q, 1000);
    }
    assert_true(offset >= q->committed);
    assert_true(q_same_images(q));
}

/* ---- What tests do again and again ---- */

enum { SECOND = 1000000 };

static inline bool said(struct host *h, const char *text) {
    return strstr(h->r.lines, text) != NULL;
}

static inline void set_all(struct quorum *q, const char *name, const char *value) {
    for (int i = 0; i < q->hosts; i++) rig_set(&q->h[i].r, name, value);
}

static inline void append_some(struct quorum *q, struct host *l, int n) {
    int64_t offset = -1;
    for (int i = 0; i < n; i++) {
        assert_true(q_append(l, &offset));
        if (i % 7 == 6) q_pass(q, 3000);
    }
    for (int i = 0; i < 5000 && l->r.node->image.offset < offset; i++) q_pass(q, 1000);
    assert_true(l->r.node->image.offset >= offset);
}

#endif
