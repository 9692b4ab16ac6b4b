/* replica_rig.h - several node cores in one process and one virtual time, each on a simulated disk of its own, links joined to connections in
 * memory; the metadata is the test's to say. For the tests of replication.
 *
 * The nodes have no metadata log: their images are made from a journal of the test's, which each node reads at its own pace and anew after each
 * start. A host without a node is the test itself, which sees requests and writes answers.
 */
#ifndef REPLICA_RIG_H
#define REPLICA_RIG_H

#include "node_rig.h"

#include "link.h"
#include "quorum/store_priv.h"
#include "replica/follower.h"
#include "replica/partitions_priv.h"

enum { HOSTS_MAX = 4, PIPES_MAX = 64, JOURNAL_MAX = 4096, REPLICAS_MAX = 3, TOPICS_MAX = 4, PARTS_MAX = 8, ASKED_MAX = 8 };

struct news { /* one change of the metadata */
    enum { NEWS_BROKER, NEWS_TOPIC, NEWS_PARTITION, NEWS_LEADER, NEWS_CONFIG, NEWS_GONE } kind;
    int32_t id; /* of the broker, or the partition; of a topic that has another's name: that one */
    int32_t leader, isr[REPLICAS_MAX], isr_count, replicas[REPLICAS_MAX], replica_count;
    int8_t recovery;
    int64_t epoch; /* of the broker */
    uint16_t port;
    uint8_t topic;
    const char *key, *value; /* of a topic: its name, unless it is that of its number */
};
struct host {
    struct rig r;
    struct cluster *c;
    int32_t id;
    bool up, clean, stopped, scripted;
    size_t read; /* of the journal */
};
struct part_state { /* of a partition, as the controller has it */
    int32_t leader, leader_epoch, partition_epoch;
    unsigned isr;
};
struct asked { /* an AlterPartition that is to be answered */
    struct kb_call *call; /* NULL: none */
    struct host *host;
    struct kw_blk *answer;
    size_t size;
};
struct pipe { /* from a link of one host to a connection of another */
    struct kb_dial *dial;
    struct host *from, *to;
    struct rig_conn *conn; /* NULL: `to` is the test */
    uint8_t *got;          /* by the test; not yet taken */
    size_t got_len;
    bool used, held; /* held: no byte goes either way */
};
struct cluster {
    struct host h[HOSTS_MAX];
    int hosts;
    struct pipe pipes[PIPES_MAX];
    struct kb_now now;
    struct news journal[JOURNAL_MAX];
    size_t news_count;
    int32_t correlation;
    bool held[HOSTS_MAX]; /* links of that host stall */
    struct part_state parts[TOPICS_MAX][PARTS_MAX];
    const char *names[TOPICS_MAX]; /* NULL: by its number */
    int64_t broker_epochs[HOSTS_MAX];
    bool dead[HOSTS_MAX]; /* by the controller's view: not electable, no member of an ISR */
    bool isr_stays;       /* the controller does not answer */
    struct asked asked[ASKED_MAX];
};

#define CL_SAME_LEADER (-2)

static inline struct kw_uuid cl_topic_id(uint8_t topic) {
    struct kw_uuid u = {{9}};
    u.b[15] = topic;
    return u;
}

/* ---- Metadata ---- */

static inline void cl_image(struct host *h, int16_t type, const void *record) {
    struct kb_image *im = &h->r.node->image;
    assert_int_equal(kb_image_apply(im, im->offset + 1, 1, type, record), KW_OK);
}

static inline void cl_topic_name(const struct cluster *c, const struct news *w, char *name, size_t size) {
    const char *own = w->topic < TOPICS_MAX ? c->names[w->topic] : NULL;
    snprintf(name, size, "t%u", w->kind == NEWS_TOPIC && w->id ? (unsigned)w->id : w->topic);
    if (own) snprintf(name, size, "%s", own);
}

static inline void cl_read_one(struct host *h, const struct news *w) {
    char name[32];
    cl_topic_name(h->c, w, name, sizeof(name));
    switch (w->kind) {
    case NEWS_BROKER: {
        struct kw_register_broker_record r;
        char host[32];
        snprintf(host, sizeof(host), "n%d", w->id);
        struct kw_register_broker_record_broker_endpoint e = {.name = kw_str_of("PLAINTEXT"), .host = kw_str_of(host), .port = w->port};
        kw_msg_init(&kw_register_broker_record_desc, &r);
        r.broker_id = w->id;
        r.broker_epoch = w->epoch;
        r.fenced = false;
        if (w->id == h->id) h->r.node->parts.store->broker_epoch = w->epoch;
        r.end_points.v = &e;
        r.end_points.n = 1;
        cl_image(h, KW_RECORD_REGISTER_BROKER, &r);
        return;
    }
    case NEWS_TOPIC: {
        struct kw_topic_record r;
        kw_msg_init(&kw_topic_record_desc, &r);
        r.name = kw_str_of(name);
        r.topic_id = cl_topic_id(w->topic);
        cl_image(h, KW_RECORD_TOPIC, &r);
        return;
    }
    case NEWS_GONE: {
        struct kw_remove_topic_record r = {.topic_id = cl_topic_id(w->topic)};
        cl_image(h, KW_RECORD_REMOVE_TOPIC, &r);
        return;
    }
    case NEWS_PARTITION: {
        struct kw_partition_record r;
        kw_msg_init(&kw_partition_record_desc, &r);
        r.partition_id = w->id;
        r.topic_id = cl_topic_id(w->topic);
        r.replicas.v = (int32_t *)(uintptr_t)w->replicas;
        r.replicas.n = w->replica_count;
        r.isr.v = (int32_t *)(uintptr_t)w->isr;
        r.isr.n = w->isr_count;
        r.leader = w->leader;
        r.leader_epoch = r.partition_epoch = 0;
        cl_image(h, KW_RECORD_PARTITION, &r);
        return;
    }
    case NEWS_LEADER: {
        struct kw_partition_change_record r;
        kw_msg_init(&kw_partition_change_record_desc, &r);
        r.partition_id = w->id;
        r.topic_id = cl_topic_id(w->topic);
        r.isr.v = (int32_t *)(uintptr_t)w->isr;
        r.isr.n = w->isr_count;
        r.leader = w->leader;
        r.leader_recovery_state = w->recovery;
        cl_image(h, KW_RECORD_PARTITION_CHANGE, &r);
        return;
    }
    case NEWS_CONFIG: {
        struct kw_config_record r;
        kw_msg_init(&kw_config_record_desc, &r);
        r.resource_type = 2;
        r.resource_name = kw_str_of(name);
        r.name = kw_str_of(w->key);
        r.value = kw_str_of(w->value);
        cl_image(h, KW_RECORD_CONFIG, &r);
        return;
    }
    }
}

/* What there is to read, up to `to`. */
static inline void cl_read(struct host *h, size_t to) {
    if (h->scripted || !h->up || h->read >= to) return;
    while (h->read < to) cl_read_one(h, &h->c->journal[h->read++]);
    h->r.now = h->r.node->now = h->c->now;
    kb_partitions_applied(h->r.node, h->r.now);
    kb_followers_applied(h->r.node);
}
static inline void cl_read_all(struct cluster *c) {
    for (int i = 0; i < c->hosts; i++) cl_read(&c->h[i], c->news_count);
}
static inline void cl_tell(struct cluster *c, struct news w) {
    assert_true(c->news_count < JOURNAL_MAX);
    if (w.kind == NEWS_BROKER) c->broker_epochs[w.id] = w.epoch;
    if (w.kind == NEWS_TOPIC && w.key) c->names[w.topic] = w.key;
    if ((w.kind == NEWS_PARTITION || w.kind == NEWS_LEADER) && w.topic < TOPICS_MAX && w.id < PARTS_MAX) {
        struct part_state *s = &c->parts[w.topic][w.id];
        if (w.kind == NEWS_PARTITION)
            *s = (struct part_state){.leader = w.leader};
        else
            s->partition_epoch++;
        if (w.kind == NEWS_LEADER && w.leader != CL_SAME_LEADER) {
            s->leader = w.leader;
            s->leader_epoch++;
        }
        s->isr = 0;
        for (int32_t i = 0; i < w.isr_count; i++) s->isr |= 1u << w.isr[i];
    }
    c->journal[c->news_count++] = w;
}

/* ---- Pipes ---- */

static inline void cl_pipe_close(struct pipe *p, enum kb_link_end how) {
    if (!p->used) return;
    if (p->dial) kb_dial_ended(p->dial, how, p->from->r.now);
    if (p->conn && p->conn->conn) {
        kb_conn_closed(p->conn->conn, p->to->r.now);
        p->conn->conn = NULL;
    }
    free(p->got);
    memset(p, 0, sizeof(*p));
}

static inline void cl_dial(struct cluster *c, struct host *from, struct kb_dial *d) {
    const char *name;
    uint16_t port;
    kb_dial_address(d, &name, &port);
    struct host *to = NULL;
    for (int i = 0; i < c->hosts; i++)
        if (c->h[i].id == atoi(name + 1) && c->h[i].up) to = &c->h[i];
    struct pipe *p = NULL;
    for (int i = 0; i < PIPES_MAX && !p; i++)
        if (!c->pipes[i].used) p = &c->pipes[i];
    assert_non_null(p);
    *p = (struct pipe){.dial = d, .from = from, .to = to, .used = true};
    kb_dial_set_shell(d, p);
    if (to && !to->scripted) {
        p->conn = rig_connect(&to->r);
        if (!p->conn->conn) to = NULL;
    }
    if (!to) {
        cl_pipe_close(p, KB_LINK_REFUSED);
        return;
    }
    kb_dial_connected(d, from->r.now);
}

static inline bool cl_forth(struct pipe *p) {
    struct kb_iov iov[4];
    bool any = false;
    for (size_t n; p->dial && (n = kb_dial_send(p->dial, iov, 4)) > 0;) {
        size_t room = iov[0].len;
        uint8_t *to = NULL;
        if (p->conn) {
            if (!p->conn->conn) return any;
            kb_conn_recv_buf(p->conn->conn, &to, &room);
            if (room == 0) return any;
        } else {
            p->got = realloc(p->got, p->got_len + room);
            assert_non_null(p->got);
            to = p->got + p->got_len;
            p->got_len += room;
        }
        size_t take = KW_MIN(room, iov[0].len);
        memcpy(to, iov[0].p, take);
        if (p->conn) kb_conn_received(p->conn->conn, take, p->to->r.now);
        kb_dial_sent(p->dial, take, p->from->r.now);
        any = true;
    }
    return any;
}

static inline size_t cl_back_bytes(struct pipe *p, const uint8_t *from, size_t len) {
    size_t done = 0;
    while (p->dial && done < len) {
        uint8_t *to;
        size_t room;
        kb_dial_recv_buf(p->dial, &to, &room);
        if (room == 0) break;
        size_t take = KW_MIN(room, len - done);
        memcpy(to, from + done, take);
        done += take;
        kb_dial_received(p->dial, take, p->from->r.now);
    }
    return done;
}

static inline bool cl_pipe_turn(struct cluster *c, struct pipe *p) {
    if (!p->used || p->held || c->held[p->from - c->h]) return false;
    bool any = cl_forth(p);
    struct rig_conn *k = p->conn;
    if (!k) return any;
    size_t done = cl_back_bytes(p, k->in, k->in_len);
    if (done > 0) memmove(k->in, k->in + done, k->in_len - done);
    k->in_len -= done;
    if (!k->conn && k->in_len == 0) {
        cl_pipe_close(p, KB_LINK_CLOSED_BY_PEER);
        any = true;
    }
    return any || done > 0;
}

/* ---- The controller, as leaders see it ---- */

static inline struct host *cl_host_of(struct cluster *c, const struct kb_node *n) {
    for (int i = 0; i < c->hosts; i++)
        if (c->h[i].r.node == n) return &c->h[i];
    return NULL;
}
static struct cluster *cl_now; /* the one at work: a node does not know it */

static inline int16_t cl_alter(struct cluster *c, uint8_t topic, const struct kw_alter_partition_request_partition_data *q) {
    struct part_state *s = &c->parts[topic][q->partition_index];
    struct news w = {.kind = NEWS_LEADER, .topic = topic, .id = q->partition_index, .leader = CL_SAME_LEADER, .recovery = 0};
    if (q->leader_epoch != s->leader_epoch) return KE_FENCED_LEADER_EPOCH;
    if (q->partition_epoch != s->partition_epoch) return KE_INVALID_UPDATE_VERSION;
    for (int32_t i = 0; i < q->new_isr_with_epochs.n; i++) {
        int32_t id = q->new_isr_with_epochs.v[i].broker_id;
        if (c->dead[id] || q->new_isr_with_epochs.v[i].broker_epoch != c->broker_epochs[id]) return KE_INELIGIBLE_REPLICA;
        w.isr[w.isr_count++] = id;
    }
    cl_tell(c, w);
    return KE_NONE;
}

static inline void cl_cancel(struct kb_call *call) {
    ((struct asked *)call->carrier)->call = NULL;
}

static inline kw_err cl_ask(struct kb_node *n, struct kb_call *call, const struct kw_desc *request, int16_t version, const void *msg,
                            int64_t timeout_us, struct kb_now now) {
    (void)request, (void)timeout_us, (void)now;
    struct cluster *c = cl_now;
    const struct kw_alter_partition_request *rq = msg;
    struct asked *a = NULL;
    if (c->isr_stays) return KW_EBUSY;
    for (size_t i = 0; i < ASKED_MAX && !a; i++)
        if (!c->asked[i].answer) a = &c->asked[i];
    if (!a) return KW_EBUSY;
    struct kw_alter_partition_response resp;
    struct kw_alter_partition_response_topic_data topics[TOPICS_MAX];
    struct kw_alter_partition_response_partition_data parts[TOPICS_MAX * PARTS_MAX];
    int32_t ids[TOPICS_MAX * PARTS_MAX][REPLICAS_MAX], count = 0;
    kw_msg_init(&kw_alter_partition_response_desc, &resp);
    resp.topics.v = topics;
    for (int32_t i = 0; i < rq->topics.n; i++) {
        topics[resp.topics.n++] = (struct kw_alter_partition_response_topic_data){.topic_id = rq->topics.v[i].topic_id, .partitions.v = &parts[count]};
        for (int32_t j = 0; j < rq->topics.v[i].partitions.n; j++) {
            const struct kw_alter_partition_request_partition_data *q = &rq->topics.v[i].partitions.v[j];
            uint8_t topic = rq->topics.v[i].topic_id.b[15];
            int16_t code = cl_alter(c, topic, q);
            const struct part_state *s = &c->parts[topic][q->partition_index];
            int32_t k = 0;
            for (int32_t id = 0; id < REPLICAS_MAX; id++)
                if (s->isr & 1u << id) ids[count][k++] = id;
            parts[count] = (struct kw_alter_partition_response_partition_data){.partition_index = q->partition_index,
                                                                               .error_code = code,
                                                                               .leader_id = s->leader,
                                                                               .leader_epoch = s->leader_epoch,
                                                                               .isr = {ids[count], k},
                                                                               .partition_epoch = s->partition_epoch};
            count++;
            topics[resp.topics.n - 1].partitions.n++;
        }
    }
    struct kw_out out;
    kw_out_init(&out);
    assert_int_equal(kw_encode(&kw_alter_partition_response_desc, version, &resp, &out), KW_OK);
    *a = (struct asked){.call = call, .host = cl_host_of(c, n), .answer = kw_blk_new(out.len + 1), .size = out.len};
    memcpy(a->answer->data, out.p, out.len);
    kw_out_deinit(&out);
    call->cancel = cl_cancel;
    call->carrier = a;
    return KW_OK;
}

static inline bool cl_answer_asked(struct cluster *c) {
    bool any = false;
    for (size_t i = 0; i < ASKED_MAX; i++) {
        struct asked a = c->asked[i];
        if (!a.answer) continue;
        c->asked[i] = (struct asked){0};
        struct kw_in in;
        kw_in_init(&in, a.answer->data, a.size);
        if (a.call) {
            a.call->cancel = NULL;
            a.call->done(a.call, KW_OK, &in, a.answer, a.host->r.now);
        }
        kw_blk_unref(a.answer);
        any = true;
    }
    return any;
}

/* ---- Turns ---- */

static inline bool cl_turn(struct cluster *c) {
    bool any = false;
    for (int i = 0; i < c->hosts; i++) {
        struct host *h = &c->h[i];
        if (!h->up || h->scripted) continue;
        h->r.now = c->now;
        any = rig_turn(&h->r) || any;
        for (struct kb_dial *d; (d = kb_node_next_dial(h->r.node)); any = true) {
            if (kb_dial_wants_close(d)) {
                if (kb_dial_shell(d)) cl_pipe_close(kb_dial_shell(d), KB_LINK_CLOSED);
                else kb_dial_ended(d, KB_LINK_CLOSED, c->now);
            } else if (!kb_dial_shell(d)) {
                cl_dial(c, h, d);
            }
        }
    }
    any = cl_answer_asked(c) || any;
    for (int i = 0; i < PIPES_MAX; i++) any = cl_pipe_turn(c, &c->pipes[i]) || any;
    return any;
}

static inline void cl_run(struct cluster *c, int64_t until_us) {
    for (int i = 0;; i++) {
        assert_true(i < 2000000); /* a busy loop is a bug */
        if (cl_turn(c)) continue;
        int64_t next = KW_NEVER;
        for (int j = 0; j < c->hosts; j++) {
            struct host *h = &c->h[j];
            if (!h->up || h->scripted) continue;
            next = KW_MIN(next, KW_MIN(sim_disk_next(h->r.disk), kb_node_deadline(h->r.node)));
        }
        if (next > until_us) break;
        if (next > c->now.mono_us) {
            c->now.wall_ms += (next - c->now.mono_us + 999) / 1000;
            c->now.mono_us = next;
        }
    }
    if (until_us > c->now.mono_us) {
        c->now.wall_ms += (until_us - c->now.mono_us) / 1000;
        c->now.mono_us = until_us;
    }
    cl_turn(c);
}
static inline void cl_pass(struct cluster *c, int64_t us) {
    cl_run(c, c->now.mono_us + us);
}

/* ---- Life ---- */

static inline void cl_init(struct cluster *c, int hosts, uint64_t seed) {
    memset(c, 0, sizeof(*c));
    c->hosts = hosts;
    cl_now = c;
    c->now = (struct kb_now){1000000, 1700000000000};
    for (int i = 0; i < hosts; i++) {
        struct host *h = &c->h[i];
        char id[16], text[400];
        rig_init(&h->r, seed * 16 + (uint64_t)i);
        h->c = c;
        h->id = i;
        snprintf(id, sizeof(id), "%d", i);
        rig_set(&h->r, "node.id", id);
        if (kb_config_finish(h->r.config, text, sizeof(text)) != KW_OK) fail_msg("%s", text);
        h->clean = true;
    }
}

/* Starts a node with the metadata up to `to`. */
static inline void cl_boot_at(struct host *h, size_t to) {
    static const char *const files[] = {"/data/recovery-point-offset-checkpoint", "/data/log-start-offset-checkpoint",
                                        "/data/replication-offset-checkpoint"};
    struct kb_node_options o = {.config = h->r.config, .seed = h->r.seed++, .logger = {rig_line, &h->r, KB_INFO}, .port = 9092};
    assert_int_equal(kb_node_new(&o, &h->r.node), KW_OK);
    struct kb_parts *parts = &h->r.node->parts;
    struct kb_store_options so = {.env = &parts->log_env, .config = h->r.config, .rng = &parts->rng, .image = &h->r.node->image};
    assert_int_equal(kb_store_new(&so, &parts->store), KW_OK); /* it is asked who this node is, and never started */
    h->r.node->partitions->isrs.ask = cl_ask;
    h->r.now = h->r.node->now = h->c->now;
    h->r.node->state = KB_NODE_LOADING;
    h->up = true;
    h->stopped = false;
    for (h->read = 0; h->read < to; h->read++) cl_read_one(h, &h->c->journal[h->read]);
    struct kb_found found = {.clean = h->clean};
    for (size_t i = 0; i < 3; i++) {
        size_t n;
        found.files[i] = sim_disk_peek(h->r.disk, files[i], &n);
        found.sizes[i] = (int64_t)n;
    }
    assert_int_equal(kb_partitions_load(h->r.node, &found, h->r.now), KW_OK);
    h->clean = false;
}
static inline void cl_boot(struct host *h) {
    cl_boot_at(h, h->c->news_count);
    for (int i = 0; i < 10000 && kb_node_state(h->r.node) == KB_NODE_LOADING; i++) cl_pass(h->c, 1000);
    assert_int_equal(kb_node_state(h->r.node), KB_NODE_READY);
}

static inline void cl_cut_off(struct host *h) { /* its connections end */
    for (int i = 0; i < PIPES_MAX; i++) {
        struct pipe *p = &h->c->pipes[i];
        if (p->used && (p->from == h || p->to == h)) cl_pipe_close(p, KB_LINK_RESET);
    }
}
static inline void cl_kill(struct host *h, bool power) {
    h->r.now = h->c->now;
    cl_cut_off(h);
    for (size_t i = 0; i < ASKED_MAX; i++)
        if (h->c->asked[i].host == h) h->c->asked[i].call = NULL;
    rig_close_conns(&h->r);
    if (power)
        sim_disk_power_loss(h->r.disk, h->r.now);
    else
        sim_disk_kill9(h->r.disk, h->r.now);
    rig_free_node(&h->r);
    sim_disk_restart(h->r.disk);
    h->up = false;
}

static inline void cl_stopped(struct kb_node *n, bool clean, struct kb_now now) {
    (void)now;
    struct host *h = cl_host_of(cl_now, n);
    h->stopped = true;
    h->clean = clean;
}
static inline void cl_stop(struct host *h) {
    h->r.now = h->r.node->now = h->c->now;
    kb_followers_stop(h->r.node);
    kb_partitions_stop(h->r.node, cl_stopped, h->c->now);
    for (int i = 0; i < 10000 && !h->stopped; i++) cl_pass(h->c, 1000);
    assert_true(h->stopped);
    cl_turn(h->c); /* closed dials are carried out */
    cl_cut_off(h);
    rig_free_node(&h->r);
    h->up = false;
}

static inline void cl_deinit(struct cluster *c) {
    for (int i = 0; i < c->hosts; i++)
        if (c->h[i].up && !c->h[i].scripted) cl_stop(&c->h[i]);
    for (int i = 0; i < PIPES_MAX; i++) cl_pipe_close(&c->pipes[i], KB_LINK_RESET);
    for (int i = 0; i < c->hosts; i++) {
        kb_config_free(c->h[i].r.config);
        sim_disk_free(c->h[i].r.disk);
        kw_arena_deinit(&c->h[i].r.arena);
    }
}

/* ---- Looking and asking ---- */

static inline struct kb_partition *cl_partition(struct host *h, uint8_t topic, int32_t index) {
    const struct kb_image_topic *t = kb_image_topic_by_id(&h->r.node->image, cl_topic_id(topic));
    return t && index < t->partition_count ? t->partitions[index].local : NULL;
}

/* Everyone at once; topic `topic` gets partition `index` on the first `replicas` hosts, led by `leader`. */
static inline void cl_add_broker(struct cluster *c, int32_t id, int64_t epoch) {
    cl_tell(c, (struct news){.kind = NEWS_BROKER, .id = id, .epoch = epoch, .port = 9092});
}
static inline void cl_add_partition(struct cluster *c, uint8_t topic, int32_t index, int32_t replicas, int32_t leader) {
    struct news w = {.kind = NEWS_PARTITION, .topic = topic, .id = index, .leader = leader, .isr_count = replicas, .replica_count = replicas};
    for (int32_t i = 0; i < replicas; i++) w.isr[i] = w.replicas[i] = i;
    cl_tell(c, w);
}
/* isr: ids as bits; recovery: an unclean election. */
static inline void cl_elect(struct cluster *c, uint8_t topic, int32_t index, int32_t leader, unsigned isr, bool unclean) {
    struct news w = {.kind = NEWS_LEADER, .topic = topic, .id = index, .leader = leader, .recovery = unclean};
    for (int32_t i = 0; i < REPLICAS_MAX; i++)
        if (isr & 1u << i) w.isr[w.isr_count++] = i;
    cl_tell(c, w);
}

/* All segments of a partition of topic 1, one behind the other; to be freed. */
static inline uint8_t *cl_log_bytes(struct host *h, int32_t index, size_t *size) {
    char dir[32], path[128], **names;
    snprintf(dir, sizeof(dir), "/data/t1-%d", index);
    size_t count = sim_disk_names(h->r.disk, dir, &names);
    uint8_t *all = malloc(1);
    *size = 0;
    for (size_t i = 0; i < count; i++) {
        size_t len = strlen(names[i]), n;
        if (len > 4 && strcmp(names[i] + len - 4, ".log") == 0) {
            snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
            const uint8_t *p = sim_disk_peek(h->r.disk, path, &n);
            all = realloc(all, *size + n + 1);
            assert_non_null(all);
            if (n > 0) memcpy(all + *size, p, n);
            *size += n;
        }
        free(names[i]);
    }
    free(names);
    return all;
}

#endif
