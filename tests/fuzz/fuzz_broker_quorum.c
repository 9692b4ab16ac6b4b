/* fuzz_broker_quorum.c - one node of a metadata quorum whose other voters are the input: what they ask (Vote, BeginQuorumEpoch, EndQuorumEpoch, fetches
 * of the metadata log and of snapshots), what they answer to what it asks, and when; with connections refused and cut, time, kills.
 *
 * Requests and answers begin as sound ones of this moment (its epochs, offsets, ids) and are changed by what is left of their bytes, so that the node
 * votes, leads, follows, is cut and takes snapshots over. Whatever comes: answers follow their schemas, the high watermark never goes back nor passes
 * the log, nothing is applied above it, a vote once given in an epoch stays, and a node that gives up says why.
 */
#include "kit/gen.h"
#include "kit/scan.h"
#include "quorum/raft_priv.h"
#include "unit/broker/node_rig.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
extern const size_t fuzz_head_size;
const size_t fuzz_head_size = 2;

enum { OPS_MAX = 200, PEERS = 2, DIALS = 16, ASKS_MAX = 64, ANSWER_MAX = (16 << 20) + (256 << 10) /* as link.c bounds them */ };
enum { OPT_OBSERVER = 1, OPT_EMPTY = 2, OPT_SLOW_DISK = 4, OPT_SMALL_SNAPSHOTS = 8, OPT_OTHER_CLUSTER = 16 };
#define CLUSTER "AAAAAAAAAAAAAAAAAAAAAA"

struct wire { /* a connection that the node opened */
    struct kb_dial *dial; /* NULL: this place is free */
    int peer;             /* 1 or 2 */
    uint8_t in[16384];    /* of the node's requests, not yet whole */
    size_t in_len;
};
struct ask { /* a request of the node that nobody answered yet */
    int wire;
    const struct kw_api *api;
    int16_t version;
    int32_t correlation, epoch; /* epoch: that it names */
    int64_t offset;             /* of a fetch, or the position in a snapshot */
};
struct run {
    struct rig r;
    struct wire wires[DIALS];
    struct ask asks[ASKS_MAX];
    size_t ask_count;
    struct rig_conn *conns[PEERS];
    bool listens[PEERS];
    bool was_full; /* the disk: what was told to be committed and found no room is fetched again */
    uint8_t options;
    struct kw_uuid ids[4];
    int64_t numbers[12];
    struct fuzz_dict dict;
    struct fuzz_records records;
    struct kw_out out, snapshot;
    int64_t hw;
    int32_t voted_epoch, voted_id; /* as its file says */
    uint32_t serial;
};

static const char *const texts[] = {"__cluster_metadata", CLUSTER, "other", "", "CONTROLLER", "h1", "kraft.version", "metadata.version"};

static struct kb_store *store(struct run *x) {
    return x->r.node->parts.store;
}
static struct kb_raft *raft(struct run *x) {
    struct kb_store *s = store(x);
    return s && s->log && s->state != KB_STORE_FAILED ? s->raft : NULL;
}

/* ---- What must hold ---- */

static void check_vote(struct run *x) {
    struct kb_election_state st;
    int32_t voters[KB_VOTERS_MAX];
    size_t n, count;
    const uint8_t *p = sim_disk_peek(x->r.disk, "/data/__cluster_metadata-0/quorum-state", &n);
    if (!p) return;
    FUZZ_CHECK(kb_store_state_read(p, n, &st, voters, &count) == KW_OK, "quorum-state cannot be read: %.*s", (int)n, (const char *)p);
    FUZZ_CHECK(st.epoch >= x->voted_epoch, "quorum-state goes back from epoch %d to %d", x->voted_epoch, st.epoch);
    bool again = st.epoch == x->voted_epoch && x->voted_id >= 0;
    FUZZ_CHECK(!again || st.voted_id == x->voted_id, "in epoch %d it votes for %d, and did for %d", st.epoch, st.voted_id, x->voted_id);
    x->voted_epoch = st.epoch;
    x->voted_id = st.voted_id;
}

static void check(struct run *x) {
    check_vote(x);
    if (kb_node_state(x->r.node) == KB_NODE_FAILED) {
        FUZZ_CHECK(kb_node_failure(x->r.node)[0], "it fails and does not say why");
        return;
    }
    struct kb_raft *r = raft(x);
    if (!r || !kb_raft_is_up(r)) return;
    const struct kb_log *log = store(x)->log;
    FUZZ_CHECK(r->hw >= x->hw, "the high watermark goes back from %lld to %lld", (long long)x->hw, (long long)r->hw);
    bool whole = r->hw <= KW_MAX(log->leo, store(x)->snapshot_end) || log->busy || x->was_full;
    FUZZ_CHECK(whole, "the high watermark %lld is above the log's end %lld", (long long)r->hw,
               (long long)log->leo);
    FUZZ_CHECK(x->r.node->image.offset < KW_MAX(r->hw, 1), "offset %lld is applied, %lld are committed", (long long)x->r.node->image.offset,
               (long long)r->hw);
    FUZZ_CHECK(!r->leading || (!(x->options & OPT_OBSERVER) && r->leader == r->id), "it leads, and %d is the leader", r->leader);
    x->hw = r->hw;
}

static void take_answers(struct run *x, struct rig_conn *c) {
    const uint8_t *frame;
    size_t n;
    while ((frame = rig_frame(c, &n))) {
        FUZZ_CHECK(n >= 4, "an answer of %zu bytes", n);
        uint32_t tag = kw_load32(frame); /* the correlation id says what was asked */
        const struct kw_api *api = kw_api_by_key((int16_t)(tag >> 24));
        int16_t version = (int16_t)(tag >> 16 & 0xff);
        struct kw_in in;
        int32_t id;
        FUZZ_CHECK(api, "an answer to nothing: %u", tag);
        if (api->key == KW_API_API_VERSIONS && version > 5) version = 0;
        void *msg = kw_arena_calloc(&x->r.arena, 1, api->response->size);
        kw_in_init(&in, frame, n);
        FUZZ_CHECK(kw_frame_parse_response(&in, api, version, &id) == KW_OK, "%s v%d: no response header", api->name, version);
        FUZZ_CHECK(kw_decode(api->response, version, &in, &x->r.arena, msg) == KW_OK && kw_in_left(&in) == 0, "%s v%d: the answer does not follow its schema",
                   api->name, version);
        kw_arena_reset(&x->r.arena);
    }
}

/* ---- The node's own connections ---- */

static void drop_asks(struct run *x, int wire) {
    size_t n = 0;
    for (size_t i = 0; i < x->ask_count; i++)
        if (x->asks[i].wire != wire) x->asks[n++] = x->asks[i];
    x->ask_count = n;
}

static void end_wire(struct run *x, int i, enum kb_link_end how) {
    struct kb_dial *d = x->wires[i].dial;
    if (!d) return;
    x->wires[i].dial = NULL;
    x->wires[i].in_len = 0;
    drop_asks(x, i);
    kb_dial_ended(d, how, x->r.now);
}

static void open_dial(struct run *x, struct kb_dial *d) {
    const char *host;
    uint16_t port;
    int at = -1;
    kb_dial_address(d, &host, &port);
    for (int i = 0; i < DIALS && at < 0; i++)
        if (!x->wires[i].dial) at = i;
    int peer = host[0] == 'h' ? host[1] - '0' : 0;
    if (at < 0 || peer < 1 || peer > PEERS || !x->listens[peer - 1]) {
        kb_dial_set_shell(d, x);
        kb_dial_ended(d, KB_LINK_REFUSED, x->r.now);
        return;
    }
    x->wires[at] = (struct wire){.dial = d, .peer = peer};
    kb_dial_set_shell(d, &x->wires[at]);
    kb_dial_connected(d, x->r.now);
}

static void note_ask(struct run *x, int wire, const uint8_t *p, size_t n) {
    struct kw_in in;
    struct kw_frame_request head;
    kw_in_init(&in, p, n);
    FUZZ_CHECK(kw_frame_parse_request(&in, &head) == KW_OK && head.api, "it sends what is no request");
    void *msg = kw_arena_calloc(&x->r.arena, 1, head.api->request->size);
    FUZZ_CHECK(kw_decode(head.api->request, head.version, &in, &x->r.arena, msg) == KW_OK, "%s v%d: its request does not follow the schema", head.api->name,
               head.version);
    struct ask a = {.wire = wire, .api = head.api, .version = head.version, .correlation = head.correlation_id};
    if (head.api_key == KW_API_FETCH) {
        const struct kw_fetch_request *m = msg;
        if (m->topics.n == 1 && m->topics.v[0].partitions.n == 1) {
            a.epoch = m->topics.v[0].partitions.v[0].current_leader_epoch;
            a.offset = m->topics.v[0].partitions.v[0].fetch_offset;
        }
    } else if (head.api_key == KW_API_VOTE) {
        a.epoch = ((const struct kw_vote_request *)msg)->topics.v[0].partitions.v[0].replica_epoch;
    } else if (head.api_key == KW_API_FETCH_SNAPSHOT) {
        const struct kw_fetch_snapshot_request *m = msg;
        a.epoch = m->topics.v[0].partitions.v[0].current_leader_epoch;
        a.offset = m->topics.v[0].partitions.v[0].position;
    }
    if (x->ask_count < ASKS_MAX) x->asks[x->ask_count++] = a; /* others are never answered */
    kw_arena_reset(&x->r.arena);
}

static bool take_requests(struct run *x, int i) {
    struct wire *w = &x->wires[i];
    struct kb_iov iov[4];
    bool any = false;
    while (w->dial && kb_dial_send(w->dial, iov, 4) > 0) {
        size_t n = KW_MIN(iov[0].len, sizeof w->in - w->in_len);
        FUZZ_CHECK(n > 0, "a request of more than %zu bytes", sizeof w->in);
        memcpy(w->in + w->in_len, iov[0].p, n);
        w->in_len += n;
        kb_dial_sent(w->dial, n, x->r.now);
        any = true;
        while (w->in_len >= 4 && w->in_len - 4 >= kw_load32(w->in)) {
            size_t size = 4 + (size_t)kw_load32(w->in);
            note_ask(x, i, w->in + 4, size - 4);
            memmove(w->in, w->in + size, w->in_len - size);
            w->in_len -= size;
        }
    }
    return any;
}

/* ---- Time ---- */

static bool turn(struct run *x) {
    bool any = rig_turn(&x->r);
    for (struct kb_dial *d; (d = kb_node_next_dial(x->r.node)); any = true) {
        struct wire *w = kb_dial_shell(d);
        if (!kb_dial_wants_close(d) && !w)
            open_dial(x, d);
        else if (kb_dial_wants_close(d) && w)
            end_wire(x, (int)(w - x->wires), KB_LINK_CLOSED);
        else if (kb_dial_wants_close(d))
            kb_dial_ended(d, KB_LINK_CLOSED, x->r.now);
    }
    for (int i = 0; i < DIALS; i++) any = take_requests(x, i) || any;
    for (int i = 0; i < PEERS; i++)
        if (x->conns[i]) take_answers(x, x->conns[i]);
    check(x);
    return any;
}

static void pass(struct run *x, int64_t us) {
    int64_t until = x->r.now.mono_us + us;
    for (int i = 0; i < 20000; i++) {
        if (turn(x)) continue;
        if (x->r.now.mono_us >= until) return;
        int64_t next = KW_MIN(until, KW_MIN(sim_disk_next(x->r.disk), kb_node_deadline(x->r.node)));
        next = KW_MAX(next, x->r.now.mono_us + 1);
        x->r.now.wall_ms += (next - x->r.now.mono_us + 999) / 1000;
        x->r.now.mono_us = next;
    }
    FUZZ_CHECK(us > 60000000, "it spins");
}

/* ---- Messages ---- */

static void numbers(struct run *x) {
    struct kb_raft *r = raft(x);
    int64_t epoch = r ? r->epoch : 0, leo = r ? store(x)->log->leo : 0;
    const int64_t v[12] = {0, 1, 2, 3, -1, epoch, epoch + 1, leo, r ? r->hw : 0, leo + 1, r ? store(x)->snapshot_end : 0, INT32_MAX};
    memcpy(x->numbers, v, sizeof v);
}

static void make_records(void *ctx, struct fuzz_src *s, struct kw_arena *a, struct kw_records *out) {
    struct run *x = ctx;
    struct kw_bytes b = fuzz_records_make(s, &x->records, a);
    *out = (struct kw_records){.p = b.p, .len = b.len};
}

/* Records as a leader of that epoch has them from that offset on. */
static struct kw_records leaders_records(struct run *x, int32_t leader, int32_t epoch, int64_t base, int count, bool begins) {
    struct kb_meta_batch b;
    struct kw_blk *blk;
    size_t size;
    kb_meta_batch_init(&b);
    if (begins) {
        struct kw_leader_change_message m;
        struct kw_leader_change_message_voter v[3] = {{.voter_id = 0}, {.voter_id = 1}, {.voter_id = 2}};
        kw_msg_init(&kw_leader_change_message_desc, &m);
        m.leader_id = leader;
        m.voters.v = v;
        m.voters.n = 3;
        FUZZ_CHECK(kb_meta_batch_add_control(&b, KB_CONTROL_LEADER_CHANGE, &kw_leader_change_message_desc, 0, &m) == KW_OK, "no memory");
    }
    for (int i = 0; i < count && !begins; i++) {
        char value[16];
        struct kw_config_record c;
        kw_msg_init(&kw_config_record_desc, &c);
        snprintf(value, sizeof value, "%u", x->serial++);
        c.resource_type = 32;
        c.resource_name = kw_str_of("r");
        c.name = kw_str_of("v");
        c.value = kw_str_of(value);
        FUZZ_CHECK(kb_meta_batch_add(&b, KW_RECORD_CONFIG, 0, &c) == KW_OK, "no memory");
    }
    FUZZ_CHECK(kb_meta_batch_finish(&b, begins, base, epoch, x->r.now.wall_ms, &blk, &size) == KW_OK, "no memory");
    uint8_t *p = kw_arena_alloc(&x->r.arena, size);
    memcpy(p, blk->data, size);
    kw_blk_unref(blk);
    kb_meta_batch_deinit(&b);
    return (struct kw_records){.p = p, .len = (int32_t)size};
}


static struct kw_str cluster_of(uint8_t how) {
    return how & 0x80 ? kw_str_null() : kw_str_of(CLUSTER);
}

static void sound_fetch(struct run *x, int16_t version, int from, uint8_t how, int32_t epoch, struct kb_log_end end, void *msg) {
    struct kw_arena *a = &x->r.arena;
    struct kw_fetch_request *m = msg;
    m->cluster_id = cluster_of(how);
    m->replica_id = -1;
    if (version >= 15)
        m->replica_state.replica_id = from;
    else
        m->replica_id = from;
    m->max_wait_ms = how & 8 ? 100 : 0;
    m->max_bytes = 100000;
    m->topics.v = kw_arena_calloc(a, 1, sizeof *m->topics.v);
    m->topics.n = 1;
    m->topics.v[0].topic = kw_str_of(KB_METADATA_TOPIC);
    m->topics.v[0].topic_id = kb_metadata_topic_id;
    m->topics.v[0].partitions.v = kw_arena_calloc(a, 1, sizeof *m->topics.v[0].partitions.v);
    m->topics.v[0].partitions.n = 1;
    m->topics.v[0].partitions.v[0] = (struct kw_fetch_request_fetch_partition){.current_leader_epoch = epoch, .fetch_offset = end.offset,
                                                                               .last_fetched_epoch = end.epoch, .partition_max_bytes = 100000,
                                                                               .log_start_offset = -1, .replica_directory_id = x->ids[from],
                                                                               .high_watermark = -1};
}

static void sound_fetch_snapshot(struct run *x, int from, uint8_t how, int32_t epoch, void *msg) {
    struct kw_arena *a = &x->r.arena;
    struct kb_raft *r = raft(x);
    struct kw_fetch_snapshot_request *m = msg;
    m->cluster_id = cluster_of(how);
    m->replica_id = from;
    m->max_bytes = 1000;
    m->topics.v = kw_arena_calloc(a, 1, sizeof *m->topics.v);
    m->topics.n = 1;
    m->topics.v[0].name = kw_str_of(KB_METADATA_TOPIC);
    m->topics.v[0].partitions.v = kw_arena_calloc(a, 1, sizeof *m->topics.v[0].partitions.v);
    m->topics.v[0].partitions.n = 1;
    m->topics.v[0].partitions.v[0].current_leader_epoch = epoch;
    m->topics.v[0].partitions.v[0].snapshot_id.end_offset = r ? store(x)->snapshot_end : 0;
    m->topics.v[0].partitions.v[0].snapshot_id.epoch = r ? store(x)->snapshot_epoch : 0;
}

static void *sound_request(struct run *x, const struct kw_api *api, int16_t version, int from, uint8_t how) {
    struct kb_raft *r = raft(x);
    struct kw_arena *a = &x->r.arena;
    void *msg = kw_arena_calloc(a, 1, api->request->size);
    int32_t epoch = (r ? r->epoch : 0) + (how & 3) - ((how & 3) == 3 ? 4 : 0); /* of now, the next, the one after that, the one before */
    struct kw_str topic = kw_str_of(KB_METADATA_TOPIC), cluster = cluster_of(how);
    struct kb_log_end end = r ? kb_raft_log_end(r) : (struct kb_log_end){0};
    kw_msg_init(api->request, msg);
    switch (api->key) {
    case KW_API_VOTE: {
        struct kw_vote_request *m = msg;
        m->cluster_id = cluster;
        m->voter_id = 0;
        m->topics.v = kw_arena_calloc(a, 1, sizeof *m->topics.v);
        m->topics.n = 1;
        m->topics.v[0].topic_name = topic;
        m->topics.v[0].partitions.v = kw_arena_calloc(a, 1, sizeof *m->topics.v[0].partitions.v);
        m->topics.v[0].partitions.n = 1;
        m->topics.v[0].partitions.v[0] = (struct kw_vote_request_partition_data){
            .replica_epoch = KW_MAX(epoch, 0),
            .replica_id = from,
            .last_offset_epoch = end.epoch,
            .last_offset = end.offset + (how >> 4 & 1),
            .pre_vote = version >= 2 && how & 4};
        break;
    }
    case KW_API_BEGIN_QUORUM_EPOCH: {
        struct kw_begin_quorum_epoch_request *m = msg;
        m->cluster_id = cluster;
        m->topics.v = kw_arena_calloc(a, 1, sizeof *m->topics.v);
        m->topics.n = 1;
        m->topics.v[0].topic_name = topic;
        m->topics.v[0].partitions.v = kw_arena_calloc(a, 1, sizeof *m->topics.v[0].partitions.v);
        m->topics.v[0].partitions.n = 1;
        m->topics.v[0].partitions.v[0] = (struct kw_begin_quorum_epoch_request_partition_data){.leader_id = from, .leader_epoch = epoch};
        break;
    }
    case KW_API_END_QUORUM_EPOCH: {
        struct kw_end_quorum_epoch_request *m = msg;
        m->cluster_id = cluster;
        m->topics.v = kw_arena_calloc(a, 1, sizeof *m->topics.v);
        m->topics.n = 1;
        m->topics.v[0].topic_name = topic;
        m->topics.v[0].partitions.v = kw_arena_calloc(a, 1, sizeof *m->topics.v[0].partitions.v);
        m->topics.v[0].partitions.n = 1;
        m->topics.v[0].partitions.v[0] = (struct kw_end_quorum_epoch_request_partition_data){.leader_id = from, .leader_epoch = epoch};
        break;
    }
    case KW_API_FETCH: sound_fetch(x, version, from, how, epoch, end, msg); break;
    case KW_API_FETCH_SNAPSHOT: sound_fetch_snapshot(x, from, how, epoch, msg); break;
    default: break;
    }
    return msg;
}

/* A snapshot of what is applied here and one thing more, that ends some way on. */
static void make_snapshot(struct run *x, int32_t epoch, int64_t end) {
    struct kb_image im;
    struct kw_config_record c;
    kb_image_init(&im);
    kw_msg_init(&kw_config_record_desc, &c);
    c.resource_type = 32;
    c.resource_name = kw_str_of("r");
    c.name = kw_str_of("snapshot");
    c.value = kw_str_of("1");
    FUZZ_CHECK(kb_image_apply(&im, end - 1, epoch, KW_RECORD_CONFIG, &c) == KW_OK, "no memory");
    kw_out_reset(&x->snapshot);
    FUZZ_CHECK(kb_snapshot_encode(&im, 0, 0, &x->snapshot) == KW_OK, "no memory");
    kb_image_deinit(&im);
}

static void *fetch_answer(struct run *x, const struct ask *q, int from, uint8_t how) {
    struct kw_arena *a = &x->r.arena;
    struct kw_fetch_response *m = kw_arena_calloc(a, 1, sizeof *m);
    struct kw_fetch_response_partition_data *d = kw_arena_calloc(a, 1, sizeof *d);
    kw_msg_init(&kw_fetch_response_desc, m);
    m->responses.v = kw_arena_calloc(a, 1, sizeof *m->responses.v);
    m->responses.n = 1;
    m->responses.v[0].topic_id = kb_metadata_topic_id;
    m->responses.v[0].partitions.v = d;
    m->responses.v[0].partitions.n = 1;
    struct kb_raft *r = raft(x);
    *d = (struct kw_fetch_response_partition_data){.high_watermark = -1, .last_stable_offset = -1, .diverging_epoch = {-1, -1}, .snapshot_id = {-1, -1},
                                                   .current_leader = {how & 0x40 ? from : -1, q->epoch + (how >> 7)}, .preferred_read_replica = -1};
    switch (how & 7) {
    case 0: d->error_code = KE_NOT_LEADER_OR_FOLLOWER; break;
    case 1: d->high_watermark = q->offset; break;
    case 2: d->diverging_epoch.epoch = KW_MAX(q->epoch - 1, 0), d->diverging_epoch.end_offset = KW_MAX(q->offset - (how >> 3 & 3), r ? r->hw : 0); break;
    case 3:
        d->snapshot_id.end_offset = q->offset + 10;
        d->snapshot_id.epoch = q->epoch;
        make_snapshot(x, q->epoch, q->offset + 10);
        break;
    default:
        d->records = leaders_records(x, from, q->epoch, q->offset, 1 + (how >> 4 & 3), how >> 3 & 1);
        d->high_watermark = how & 0x10 ? q->offset : q->offset + 1;
    }
    return m;
}

static void *sound_answer(struct run *x, const struct ask *q, int from, uint8_t how) {
    struct kw_arena *a = &x->r.arena;
    if (q->api->key == KW_API_FETCH) return fetch_answer(x, q, from, how);
    void *msg = kw_arena_calloc(a, 1, q->api->response->size);
    kw_msg_init(q->api->response, msg);
    if (q->api->key == KW_API_DESCRIBE_CLUSTER) {
        struct kw_describe_cluster_response *m = msg;
        m->cluster_id = how & 1 ? kw_str_of("") : kw_str_of(CLUSTER);
    } else if (q->api->key == KW_API_VOTE) {
        struct kw_vote_response *m = msg;
        m->topics.v = kw_arena_calloc(a, 1, sizeof *m->topics.v);
        m->topics.n = 1;
        m->topics.v[0].topic_name = kw_str_of(KB_METADATA_TOPIC);
        m->topics.v[0].partitions.v = kw_arena_calloc(a, 1, sizeof *m->topics.v[0].partitions.v);
        m->topics.v[0].partitions.n = 1;
        m->topics.v[0].partitions.v[0] = (struct kw_vote_response_partition_data){.leader_id = how & 4 ? from : -1, .leader_epoch = q->epoch + (how >> 1 & 1),
                                                                                  .vote_granted = !(how & 1)};
    } else if (q->api->key == KW_API_FETCH_SNAPSHOT) {
        struct kw_fetch_snapshot_response *m = msg;
        struct kw_fetch_snapshot_response_partition_snapshot *p = kw_arena_calloc(a, 1, sizeof *p);
        m->topics.v = kw_arena_calloc(a, 1, sizeof *m->topics.v);
        m->topics.n = 1;
        m->topics.v[0].name = kw_str_of(KB_METADATA_TOPIC);
        m->topics.v[0].partitions.v = p;
        m->topics.v[0].partitions.n = 1;
        size_t at = KW_MIN((size_t)KW_MAX(q->offset, 0), x->snapshot.len), n = KW_MIN(x->snapshot.len - at, how & 1 ? (size_t)50 : SIZE_MAX);
        p->size = (int64_t)x->snapshot.len;
        p->position = q->offset;
        p->current_leader.leader_id = from;
        p->current_leader.leader_epoch = q->epoch;
        p->unaligned_records = (struct kw_records){.p = n ? x->snapshot.p + at : (const uint8_t *)"", .len = (int32_t)n};
    }
    return msg;
}

/* ---- Operations ---- */

static void op_request(struct run *x, struct fuzz_op *op) {
    static const int16_t keys[] = {KW_API_VOTE, KW_API_BEGIN_QUORUM_EPOCH, KW_API_END_QUORUM_EPOCH, KW_API_FETCH, KW_API_FETCH_SNAPSHOT, KW_API_DESCRIBE_QUORUM,
                                   KW_API_DESCRIBE_CLUSTER, KW_API_VOTE};
    const struct kw_api *api = kw_api_by_key(keys[op->arg & 7]);
    const struct kb_api_entry *e = kb_api_table;
    while (e < kb_api_table + kb_api_table_count && e->key != api->key) e++;
    FUZZ_CHECK(e < kb_api_table + kb_api_table_count, "%s is not served", api->name);
    int from = op->arg >> 3 & 1;
    uint8_t how = fuzz_u8(&op->src), low = fuzz_u8(&op->src);
    int16_t version = (int16_t)(e->max - low % (e->max - e->min + 1));
    struct rig_conn **c = &x->conns[from];
    if (*c && !(*c)->conn) *c = NULL;
    if (!*c) *c = kb_node_accepts(x->r.node) ? rig_connect(&x->r) : NULL;
    if (!*c || !(*c)->conn) {
        *c = NULL;
        return;
    }
    void *msg = sound_request(x, api, version, from + 1, how);
    fuzz_message(api->request, version, &x->dict, &op->src, &x->r.arena, msg, false);
    kw_out_reset(&x->out);
    int32_t tag = (int32_t)((uint32_t)api->key << 24 | (uint32_t)version << 16 | (x->serial++ & 0xffff));
    kw_err err = kw_frame_request(&x->out, api, version, tag, kw_str_of("kbroker-1"), msg);
    kw_arena_reset(&x->r.arena);
    if (err) return; /* an old version that lacks one of its fields */
    rig_send(*c, x->out.p, x->out.len);
    pass(x, 0);
}

static void give(struct run *x, int wire, const uint8_t *p, size_t n) {
    for (size_t done = 0; done < n && x->wires[wire].dial;) {
        uint8_t *to;
        size_t room;
        kb_dial_recv_buf(x->wires[wire].dial, &to, &room);
        if (room == 0) return;
        size_t take = KW_MIN(room, n - done);
        memcpy(to, p + done, take);
        done += take;
        kb_dial_received(x->wires[wire].dial, take, x->r.now);
    }
}

static void op_answer(struct run *x, struct fuzz_op *op) {
    if (x->ask_count == 0) return;
    size_t first = op->arg & 1 ? x->ask_count - 1 : 0; /* of that connection the oldest: answers come in order */
    int wire = x->asks[first].wire;
    for (first = 0; x->asks[first].wire != wire;) first++;
    struct ask q = x->asks[first];
    memmove(x->asks + first, x->asks + first + 1, (x->ask_count - first - 1) * sizeof *x->asks);
    x->ask_count--;
    uint8_t how = fuzz_u8(&op->src);
    void *msg = sound_answer(x, &q, x->wires[wire].peer, how);
    fuzz_message(q.api->response, q.version, &x->dict, &op->src, &x->r.arena, msg, false);
    kw_out_reset(&x->out);
    FUZZ_CHECK(kw_frame_response(&x->out, q.api, q.version, q.correlation, msg) == KW_OK, "%s v%d cannot be encoded", q.api->name, q.version);
    kw_arena_reset(&x->r.arena);
    size_t n = x->out.len;
    if (op->arg & 0x80 && fuzz_left(&op->src) >= 3 && kw_out_reserve(&x->out, 16)) {
        n = 4 + fuzz_edit(&op->src, x->out.p + 4, n - 4);
        kw_store32(x->out.p, (uint32_t)(n - 4));
    }
    give(x, wire, x->out.p, n);
    pass(x, 0);
}

static void start(struct run *x) {
    x->ask_count = 0;
    memset(x->conns, 0, sizeof x->conns);
    x->hw = 0;
    rig_load(&x->r);
    pass(x, 20000);
}

static void kill9(struct run *x) {
    for (int i = 0; i < DIALS; i++) end_wire(x, i, KB_LINK_CLOSED);
    memset(x->conns, 0, sizeof x->conns);
    rig_kill(&x->r);
}

static void op_control(struct run *x, struct fuzz_op *op) {
    int i = op->arg >> 4;
    switch (op->arg & 7) {
    case 0: x->listens[i & 1] = !x->listens[i & 1]; break;
    case 1: end_wire(x, i % DIALS, KB_LINK_RESET); break;
    case 2: end_wire(x, i % DIALS, KB_LINK_CLOSED_BY_PEER); break;
    case 3:
        if (x->conns[i & 1] && x->conns[i & 1]->conn) {
            struct kb_conn *c = x->conns[i & 1]->conn;
            x->conns[i & 1]->conn = NULL;
            kb_conn_closed(c, x->r.now);
        }
        x->conns[i & 1] = NULL;
        break;
    case 4:
        kill9(x);
        start(x);
        break;
    case 5:
        sim_disk_faults(x->r.disk)->enospc_at = i;
        x->was_full = true;
        break;
    case 6: { /* raw bytes as an answer */
        int wire = i % DIALS;
        if (x->wires[wire].dial) give(x, wire, op->src.p, fuzz_left(&op->src));
        break;
    }
    default: pass(x, (int64_t)(i + 1) * 10000);
    }
    pass(x, 0);
}

/* ---- Beginning and end ---- */

static void begin(struct run *x, uint8_t options) {
    const struct sim_disk_options fast = {.inline_ppm = 1000000}, slow = {.delay_min_us = 20, .delay_max_us = 5000};
    char text[400];
    struct rig *r = &x->r;
    memset(x, 0, sizeof *x);
    x->options = options;
    fuzz_memory_count();
    fuzz_memory = (struct fuzz_memory){.live_max = (64u << 20) + DIALS * ANSWER_MAX, .one_max = ANSWER_MAX};
    rig_init(r, 7);
    sim_disk_free(r->disk);
    r->disk = sim_disk_new(7, options & OPT_SLOW_DISK ? &slow : &fast);
    sim_disk_poke(r->disk, "/data/.keep", "", 0);
    bool observes = options & OPT_OBSERVER;
    rig_set(r, "node.id", observes ? "3" : "0");
    rig_set(r, "process.roles", observes ? "broker" : "controller");
    rig_set(r, "listeners", observes ? "PLAINTEXT://h:9092" : "CONTROLLER://h:9093");
    rig_set(r, "socket.request.max.bytes", "131072");
    rig_set(r, "controller.quorum.voters", "0@h0:9093,1@h1:9093,2@h2:9093");
    if (options & OPT_SMALL_SNAPSHOTS) rig_set(r, "metadata.log.max.record.bytes.between.snapshots", "300");
    FUZZ_CHECK(kb_config_finish(r->config, text, sizeof text) == KW_OK, "%s", text);
    if (!(options & OPT_EMPTY)) {
        static const char state[] = "{\"clusterId\":\"\",\"leaderId\":-1,\"leaderEpoch\":3,\"votedId\":-1,\"appliedOffset\":0,"
                                    "\"currentVoters\":[{\"voterId\":0},"
                                    "{\"voterId\":1},{\"voterId\":2}],\"data_version\":0}";
        int n = snprintf(text, sizeof text, "#\ncluster.id=%s\ndirectory.id=AAAAAAAAAAAAAAAAAAAAyA\nnode.id=%d\nversion=1\n",
                         options & OPT_OTHER_CLUSTER ? "BBBBBBBBBBBBBBBBBBBBBB" : CLUSTER, observes ? 3 : 0);
        sim_disk_poke(r->disk, "/data/meta.properties", text, (size_t)n);
        sim_disk_poke(r->disk, "/data/__cluster_metadata-0/quorum-state", state, sizeof state - 1);
    }
    x->ids[0] = kb_metadata_topic_id;
    x->ids[1] = (struct kw_uuid){{1, 1}};
    x->ids[2] = (struct kw_uuid){{2, 2}};
    x->records = (struct fuzz_records){.v2_only = true, .body_max = 1000};
    x->dict = (struct fuzz_dict){texts, KW_COUNTOF(texts), x->ids, KW_COUNTOF(x->ids), x->numbers, KW_COUNTOF(x->numbers), make_records, x};
    x->listens[0] = x->listens[1] = true;
    x->voted_id = -1;
    kw_out_init(&x->out);
    kw_out_init(&x->snapshot);
    start(x);
}

/* It stops in order though no peer answers any more; a failed one goes as it is. */
static void end(struct run *x) {
    sim_disk_faults(x->r.disk)->enospc_at = -1;
    if (kb_node_state(x->r.node) != KB_NODE_FAILED) {
        kb_node_stop(x->r.node, x->r.now);
        enum kb_node_state st = kb_node_state(x->r.node);
        for (int i = 0; i < 300 && st != KB_NODE_STOPPED && st != KB_NODE_FAILED; i++) {
            pass(x, 1000000);
            st = kb_node_state(x->r.node);
        }
        FUZZ_CHECK(st == KB_NODE_STOPPED || st == KB_NODE_FAILED, "the node does not stop: state %d", (int)st);
    }
    kill9(x);
    kw_out_deinit(&x->out);
    kw_out_deinit(&x->snapshot);
    kb_config_free(x->r.config);
    sim_disk_free(x->r.disk);
    kw_arena_deinit(&x->r.arena);
    fuzz_compressor_drop();
    FUZZ_CHECK(fuzz_memory.live == 0, "%zu bytes are left", fuzz_memory.live);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct run x;
    struct fuzz_src input = {data, data + size};
    struct fuzz_op op;
    uint8_t options = fuzz_u8(&input);
    (void)fuzz_u8(&input); /* room for more options without a new corpus */
    setenv("CMOCKA_TEST_ABORT", "1", 1);
    begin(&x, options);
    for (int i = 0; i < OPS_MAX && kb_node_state(x.r.node) != KB_NODE_FAILED && fuzz_op_next(&input, &op); i++) {
        numbers(&x);
        switch (op.kind & 7) {
        case 0:
        case 1: op_request(&x, &op); break;
        case 2:
        case 3:
        case 4: op_answer(&x, &op); break;
        case 5: op_control(&x, &op); break;
        default: pass(&x, (int64_t)fuzz_u16(&op.src) * 100);
        }
    }
    end(&x);
    return 0;
}
