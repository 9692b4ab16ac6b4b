/* fuzz_broker_groups.c - the group coordinator of a whole node: members and committers who mean it until the input changes their requests, time,
 * closed connections, stops and kills; and records of __consumer_offsets made of the input, which the next start reads.
 *
 * Whatever comes: every request is answered in order, and the answer follows its schema; what one group that nobody else names has committed is
 * there after every start, or its coordinator says that it is not available; a stable group is the same after a stop and a start; nothing waits for
 * ever; memory stays within what requests can justify, and nothing of it is left.
 */
#include "group/coordinator.h"
#include "kit/gen.h"
#include "kit/node.h"
#include "kit/scan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
extern const size_t fuzz_head_size;
const size_t fuzz_head_size = 2;

enum { PEERS = 3, OPS_MAX = 200, ID_MAX = 1200, WAITING_MAX = 64 };
enum { OPT_SLOW_DISK = 1, OPT_FLUSH = 2, OPT_SMALL_SEGMENTS = 4, OPT_DELAY = 8, OPT_SMALL_GROUPS = 16, OPT_LONG = 32 };

/* Nobody else comes upon this name. */
static const char kept[] = "the-group-whose-commits-are-kept-5f0c1b9e7a3d48e2b6c4";
static const int16_t apis[] = {KW_API_FIND_COORDINATOR, KW_API_JOIN_GROUP,   KW_API_SYNC_GROUP,    KW_API_HEARTBEAT,
                               KW_API_LEAVE_GROUP,      KW_API_OFFSET_COMMIT, KW_API_OFFSET_FETCH,  KW_API_OFFSET_DELETE,
                               KW_API_DESCRIBE_GROUPS,  KW_API_LIST_GROUPS,   KW_API_DELETE_GROUPS};

struct expected {
    int32_t id;
    int16_t key, version;
};
struct peer {
    struct rig_conn *c;
    struct expected v[WAITING_MAX];
    size_t first, count;
    char member[ID_MAX];
    int32_t generation;
};
struct run {
    struct rig r;
    struct peer peers[PEERS];
    struct fuzz_dict dict;
    struct kw_uuid ids[1];
    int64_t numbers[8 + PEERS];
    const char *texts[12 + PEERS];
    int64_t committed; /* of `kept`; -1: nothing yet */
    bool rot;          /* records of the input are in the log: it may not be understood */
    int32_t next_id;
    size_t base, sent;
};

/* ---- Answers ---- */

static void learn(struct peer *p, const struct expected *e, const void *msg) {
    if (e->key != KW_API_JOIN_GROUP) return;
    const struct kw_join_group_response *m = msg;
    if (m->member_id.len <= 0 || m->member_id.len >= ID_MAX) return;
    memcpy(p->member, m->member_id.p, (size_t)m->member_id.len);
    p->member[m->member_id.len] = 0;
    if (m->error_code == KE_NONE) p->generation = m->generation_id;
}

static void take_answers(struct run *x, int which) {
    struct peer *p = &x->peers[which];
    const uint8_t *frame;
    size_t n;
    while (p->c && (frame = rig_frame(p->c, &n))) {
        struct kw_in in;
        int32_t id;
        FUZZ_CHECK(p->count > 0, "an answer to nothing");
        struct expected e = p->v[p->first];
        p->first = (p->first + 1) % WAITING_MAX;
        p->count--;
        const struct kw_api *api = kw_api_by_key(e.key);
        void *msg = kw_arena_calloc(&x->r.arena, 1, api->response->size);
        kw_in_init(&in, frame, n);
        FUZZ_CHECK(kw_frame_parse_response(&in, api, e.version, &id) == KW_OK && id == e.id, "%s v%d: %d is answered where %d is due", api->name, e.version, id,
                   e.id);
        kw_err err = kw_decode(api->response, e.version, &in, &x->r.arena, msg);
        FUZZ_CHECK(err == KW_OK && kw_in_left(&in) == 0, "%s v%d: the answer does not follow its schema (%d)", api->name, e.version, err);
        learn(p, &e, msg);
        kw_arena_reset(&x->r.arena);
    }
    if (p->c && !p->c->conn) p->first = p->count = 0; /* it was closed, which answers, too */
}

static void settle(struct run *x, int64_t us) {
    rig_pass(&x->r, us);
    for (int i = 0; i < PEERS; i++) take_answers(x, i);
    FUZZ_CHECK(fuzz_memory.live <= x->base + (16u << 20) + 64 * x->sent, "%zu bytes in use after requests of %zu", fuzz_memory.live, x->sent);
}

static void connect_peer(struct run *x, int which) {
    struct peer *p = &x->peers[which];
    p->c = rig_connect(&x->r);
    p->first = p->count = 0;
}

/* ---- Requests as members and committers send them ---- */

struct parts { /* what such a request points to */
    struct kw_join_group_request_protocol protocol;
    struct kw_sync_group_request_assignment assignments[PEERS];
    struct kw_leave_group_request_member_identity leaver;
    struct kw_offset_commit_request_partition commit_partition;
    struct kw_offset_commit_request_topic commit_topic;
    struct kw_offset_fetch_request_topic fetch_topic;
    struct kw_offset_fetch_request_topics fetch_topics;
    struct kw_offset_fetch_request_group fetch_group;
    struct kw_offset_delete_request_partition delete_partition;
    struct kw_offset_delete_request_topic delete_topic;
    struct kw_str name;
    int32_t index;
};

static void fill_member(struct run *x, int16_t key, int16_t version, const struct peer *p, struct kw_str group, struct kw_str instance, struct parts *q,
                        void *msg) {
    struct kw_str member = kw_str_of(p->member);
    if (key == KW_API_JOIN_GROUP) {
        struct kw_join_group_request *m = msg;
        static const uint8_t subscription[] = "\0\0\0\0\0\1\0\2t0\xff\xff\xff\xff";
        q->protocol = (struct kw_join_group_request_protocol){.name = kw_str_of("range"), .metadata = {subscription, sizeof subscription - 1}};
        m->group_id = group;
        m->session_timeout_ms = 10000;
        m->rebalance_timeout_ms = version >= 1 ? 60000 : -1;
        m->member_id = member;
        if (version >= 5) m->group_instance_id = instance;
        m->protocol_type = kw_str_of("consumer");
        m->protocols.v = &q->protocol;
        m->protocols.n = 1;
    } else if (key == KW_API_SYNC_GROUP) {
        struct kw_sync_group_request *m = msg;
        m->group_id = group;
        m->member_id = member;
        m->generation_id = p->generation;
        for (int i = 0; i < PEERS; i++)
            q->assignments[i] = (struct kw_sync_group_request_assignment){.member_id = kw_str_of(x->peers[i].member),
                                                                          .assignment = {(const uint8_t *)"yours", 5}};
        m->assignments.v = q->assignments;
        m->assignments.n = PEERS;
    } else if (key == KW_API_HEARTBEAT) {
        struct kw_heartbeat_request *m = msg;
        m->group_id = group;
        m->member_id = member;
        m->generation_id = p->generation;
    } else {
        struct kw_leave_group_request *m = msg;
        q->leaver = (struct kw_leave_group_request_member_identity){.member_id = member, .group_instance_id = instance, .reason = kw_str_null()};
        m->group_id = group;
        if (version <= 2) m->member_id = member;
        m->members.v = &q->leaver;
        m->members.n = version >= 3 ? 1 : 0;
    }
}

static void fill_offsets(struct run *x, int16_t key, int16_t version, const struct peer *p, struct kw_str group, bool alone, int64_t offset, struct parts *q,
                         void *msg) {
    struct kw_str topic = kw_str_of("t0");
    if (key == KW_API_OFFSET_COMMIT) {
        struct kw_offset_commit_request *m = msg;
        q->commit_partition = (struct kw_offset_commit_request_partition){
            .committed_offset = offset, .committed_leader_epoch = -1, .commit_timestamp = -1, .committed_metadata = kw_str_of("")};
        q->commit_topic = (struct kw_offset_commit_request_topic){.name = topic, .partitions = {&q->commit_partition, 1}};
        if (version >= 10) q->commit_topic.name = kw_str_of(""), q->commit_topic.topic_id = x->ids[0];
        m->group_id = group;
        m->generation_id_or_member_epoch = alone ? -1 : p->generation;
        m->member_id = kw_str_of(alone ? "" : p->member);
        m->topics.v = &q->commit_topic;
        m->topics.n = 1;
    } else if (key == KW_API_OFFSET_FETCH) {
        struct kw_offset_fetch_request *m = msg;
        q->fetch_topic = (struct kw_offset_fetch_request_topic){.name = topic, .partition_indexes = {&q->index, 1}};
        q->fetch_topics = (struct kw_offset_fetch_request_topics){.name = topic, .partition_indexes = {&q->index, 1}};
        if (version >= 10) q->fetch_topics.name = kw_str_of(""), q->fetch_topics.topic_id = x->ids[0];
        q->fetch_group =
            (struct kw_offset_fetch_request_group){.group_id = group, .member_id = kw_str_null(), .member_epoch = -1, .topics = {&q->fetch_topics, 1}};
        m->group_id = version <= 7 ? group : kw_str_of("");
        m->topics.v = &q->fetch_topic;
        m->topics.n = version <= 7 ? 1 : 0;
        m->groups.v = &q->fetch_group;
        m->groups.n = version >= 8 ? 1 : 0;
    } else {
        struct kw_offset_delete_request *m = msg;
        q->delete_topic = (struct kw_offset_delete_request_topic){.name = topic, .partitions = {&q->delete_partition, 1}};
        m->group_id = group;
        m->topics.v = &q->delete_topic;
        m->topics.n = 1;
    }
}

static void fill_admin(int16_t key, int16_t version, struct kw_str group, struct parts *q, void *msg) {
    q->name = group;
    if (key == KW_API_FIND_COORDINATOR) {
        struct kw_find_coordinator_request *m = msg;
        if (version <= 3) m->key = group;
        m->coordinator_keys.v = &q->name;
        m->coordinator_keys.n = version >= 4 ? 1 : 0;
    } else if (key == KW_API_DESCRIBE_GROUPS) {
        struct kw_describe_groups_request *m = msg;
        m->groups.v = &q->name;
        m->groups.n = 1;
    } else if (key == KW_API_DELETE_GROUPS) {
        struct kw_delete_groups_request *m = msg;
        m->groups_names.v = &q->name;
        m->groups_names.n = 1;
    }
}

static void fill(struct run *x, int16_t key, int16_t version, const struct peer *p, uint8_t how, struct parts *q, void *msg) {
    struct kw_str group = kw_str_of(how & 1 ? "h" : "g"), instance = how & 2 ? kw_str_of("static") : kw_str_null();
    if (key == KW_API_JOIN_GROUP || key == KW_API_SYNC_GROUP || key == KW_API_HEARTBEAT || key == KW_API_LEAVE_GROUP)
        fill_member(x, key, version, p, group, instance, q, msg);
    else if (key == KW_API_OFFSET_COMMIT || key == KW_API_OFFSET_FETCH || key == KW_API_OFFSET_DELETE)
        fill_offsets(x, key, version, p, group, how & 4, how >> 3, q, msg);
    else
        fill_admin(key, version, group, q, msg);
}

/* ---- Operations ---- */

/* Source: API, version and group, then changes. */
static void op_request(struct run *x, struct fuzz_op *op) {
    struct fuzz_src *s = &op->src;
    int which = (op->arg & 3) % PEERS;
    struct peer *p = &x->peers[which];
    int16_t key = apis[fuzz_u8(s) % KW_COUNTOF(apis)];
    const struct kb_api_entry *entry = NULL;
    for (size_t i = 0; i < kb_api_table_count; i++)
        if (kb_api_table[i].key == key) entry = &kb_api_table[i];
    FUZZ_CHECK(entry, "API %d is not served", key);
    uint8_t c = fuzz_u8(s), how = fuzz_u8(s);
    int16_t version = (int16_t)(entry->max - c % (entry->max - entry->min + 1));
    const struct kw_api *api = kw_api_by_key(key);
    struct parts parts;
    struct kw_out out;
    if (!p->c || !p->c->conn) connect_peer(x, which);
    if (p->count == WAITING_MAX) return;
    memset(&parts, 0, sizeof parts);
    void *msg = kw_arena_calloc(&x->r.arena, 1, api->request->size);
    kw_msg_init(api->request, msg);
    fill(x, key, version, p, how, &parts, msg);
    fuzz_message(api->request, version, &x->dict, s, &x->r.arena, msg, false);
    kw_out_init(&out);
    kw_err err = kw_frame_request(&out, api, version, x->next_id, kw_str_of("fuzz"), msg);
    if (err == KW_OK && out.len <= 128 << 10) {
        p->v[(p->first + p->count++) % WAITING_MAX] = (struct expected){x->next_id++, key, version};
        x->sent += out.len;
        rig_send(p->c, out.p, out.len);
    }
    kw_out_deinit(&out);
    kw_arena_reset(&x->r.arena);
    if (!(op->arg & 4)) settle(x, 0);
}

/* The group that is watched: committed to and read alone, by a connection that is its own. */
static int64_t watched(struct run *x, struct rig_conn *c, int64_t commit) {
    struct parts q;
    memset(&q, 0, sizeof q);
    if (commit >= 0) {
        struct kw_offset_commit_request m;
        struct kw_offset_commit_response a;
        kw_msg_init(&kw_offset_commit_request_desc, &m);
        fill_offsets(x, KW_API_OFFSET_COMMIT, 8, NULL, kw_str_of(kept), true, commit, &q, &m);
        rig_call(c, KW_API_OFFSET_COMMIT, 8, &m, &a);
        int16_t code = a.topics.v[0].partitions.v[0].error_code;
        FUZZ_CHECK(code == KE_NONE || (x->rot && code == KE_COORDINATOR_NOT_AVAILABLE), "a commit of %lld: %s", (long long)commit, kw_kerror_info(code)->name);
        if (code == KE_NONE) x->committed = commit;
    }
    struct kw_offset_fetch_request m;
    struct kw_offset_fetch_response a;
    kw_msg_init(&kw_offset_fetch_request_desc, &m);
    fill_offsets(x, KW_API_OFFSET_FETCH, 7, NULL, kw_str_of(kept), true, 0, &q, &m);
    rig_call(c, KW_API_OFFSET_FETCH, 7, &m, &a);
    return a.error_code ? -2 - a.error_code : a.topics.v[0].partitions.v[0].committed_offset;
}

static void op_watch(struct run *x, int64_t commit) {
    struct rig_conn *c = rig_connect(&x->r);
    int64_t seen = watched(x, c, commit);
    FUZZ_CHECK(seen == x->committed || (x->rot && seen == -2 - KE_COORDINATOR_NOT_AVAILABLE), "committed was %lld, and there is %lld", (long long)x->committed,
               (long long)seen);
    kb_conn_closed(c->conn, x->r.now);
    c->conn = NULL;
    settle(x, 0);
    kw_arena_reset(&x->r.arena);
}

static void forget_peers(struct run *x) {
    for (int i = 0; i < PEERS; i++) x->peers[i].c = NULL, x->peers[i].first = x->peers[i].count = 0;
}

static void stop(struct run *x) {
    fuzz_node_stop(&x->r);
    rig_free_node(&x->r);
    forget_peers(x);
    fuzz_scan_all(x->r.disk, "/data", true);
}

static void start(struct run *x) {
    fuzz_node_boot(&x->r);
    rig_pass(&x->r, 1000000);
}

/* ---- Records of the input ---- */

static struct kw_bytes encode(struct run *x, const struct kw_desc *d, int16_t front, int16_t version, const void *m) {
    struct kw_out out;
    kw_out_init(&out);
    kw_out_i16(&out, front);
    kw_err err = kw_encode(d, version, m, &out);
    struct kw_bytes b = {err ? NULL : kw_arena_dup(&x->r.arena, out.p, out.len), err ? -1 : (int32_t)out.len};
    kw_out_deinit(&out);
    return b;
}

static void make_record(struct run *x, struct fuzz_src *s, struct kw_record_in *r) {
    uint8_t c = fuzz_u8(s);
    bool group = c & 1, gone = (c & 6) == 6;
    const struct kw_desc *kd = group ? &kw_group_metadata_key_desc : &kw_offset_commit_key_desc;
    const struct kw_desc *vd = group ? &kw_group_metadata_value_desc : &kw_offset_commit_value_desc;
    int16_t version = (int16_t)(vd->max - (c >> 3 & 3) % (vd->max - vd->min + 1));
    void *k = kw_arena_calloc(&x->r.arena, 1, kd->size), *v = kw_arena_calloc(&x->r.arena, 1, vd->size);
    kw_msg_init(kd, k);
    kw_msg_init(vd, v);
    fuzz_message(kd, 0, &x->dict, s, &x->r.arena, k, true);
    fuzz_message(vd, version, &x->dict, s, &x->r.arena, v, true);
    r->key = encode(x, kd, (int16_t)(c >= 0xf0 ? c - 0xf0 : group ? 2 : 1), 0, k);
    r->value = gone ? (struct kw_bytes){NULL, -1} : encode(x, vd, version, version, v);
    if (fuzz_left(s) >= 3 && c & 0x40) { /* and damaged */
        struct kw_bytes *b = c & 0x20 ? &r->key : &r->value;
        uint8_t *p = kw_arena_calloc(&x->r.arena, 1, (size_t)KW_MAX(b->len, 0) + 16);
        if (b->len > 0) memcpy(p, b->p, (size_t)b->len);
        *b = (struct kw_bytes){p, (int32_t)fuzz_edit(s, p, (size_t)KW_MAX(b->len, 0))};
    }
}

/* The node is killed, and its log has a batch more when it starts. */
static void op_records(struct run *x, struct fuzz_op *op) {
    struct kb_partition *p = rig_partition(&x->r, KB_OFFSETS_TOPIC, 0);
    int64_t end = p->log->leo, base = end; /* a segment has a file from its first batch on */
    char path[100], **names;
    rig_kill(&x->r);
    forget_peers(x);
    size_t count = sim_disk_names(x->r.disk, "/data/__consumer_offsets-0", &names), n = 0;
    for (size_t i = 0; i < count; i++) {
        if (strstr(names[i], ".log")) base = atoll(names[i]);
        free(names[i]);
    }
    free(names);
    snprintf(path, sizeof path, "/data/__consumer_offsets-0/%020lld.log", (long long)base);
    const uint8_t *old = sim_disk_peek(x->r.disk, path, &n);
    struct kw_record_in r[4];
    size_t size = n + KW_BATCH_HEADER_SIZE;
    int32_t records = 1 + op->arg % 4;
    for (int32_t i = 0; i < records; i++) {
        r[i] = (struct kw_record_in){.offset_delta = i};
        make_record(x, &op->src, &r[i]);
        size += kw_record_size(&r[i]);
    }
    uint8_t *all = malloc(size), *at = all + n + KW_BATCH_HEADER_SIZE;
    assert_non_null(all);
    if (old) memcpy(all, old, n);
    for (int32_t i = 0; i < records; i++) at = kw_record_write(at, &r[i], kw_record_size(&r[i]));
    struct kw_batch_header h = {.base_offset = end,
                                .length = (int32_t)(size - n - KW_BATCH_OVERHEAD),
                                .leader_epoch = 0,
                                .magic = 2,
                                .attributes = op->arg & 0x80 ? KW_ATTR_CONTROL : 0,
                                .last_offset_delta = records - 1,
                                .base_timestamp = x->r.now.wall_ms,
                                .max_timestamp = x->r.now.wall_ms,
                                .producer_id = -1,
                                .producer_epoch = -1,
                                .base_sequence = -1,
                                .record_count = records};
    kw_batch_write_header(all + n, &h);
    kw_batch_crc_set(all + n, size - n);
    sim_disk_poke(x->r.disk, path, all, size);
    free(all);
    kw_arena_reset(&x->r.arena);
    x->rot = true;
    start(x);
}

static void op_control(struct run *x, struct fuzz_op *op) {
    int which = (op->arg >> 4) % PEERS;
    struct peer *p = &x->peers[which];
    switch (op->arg & 7) {
    case 0:
    case 1: /* its client goes, with what was under way */
        if (p->c && p->c->conn) kb_conn_closed(p->c->conn, x->r.now);
        if (p->c) p->c->conn = NULL;
        connect_peer(x, which);
        break;
    case 2: /* another one comes in its place */
        p->member[0] = 0;
        p->generation = 0;
        break;
    case 3:
        stop(x);
        start(x);
        break;
    case 4:
        rig_kill(&x->r);
        forget_peers(x);
        start(x);
        break;
    case 5:
        op_watch(x, -1);
        break;
    default:
        op_watch(x, x->committed + 1);
    }
}

/* ---- The end ---- */

static void wait_for_all(struct run *x) {
    size_t left = 0;
    for (int i = 0; i < 300; i++) {
        settle(x, i < 4 ? 10000000LL : (int64_t)25 * 86400 * 1000000); /* longer than any rebalance's timeout */
        left = 0;
        for (int k = 0; k < PEERS; k++) left += x->peers[k].c && x->peers[k].c->conn ? x->peers[k].count : 0;
        if (left == 0) return;
    }
    FUZZ_CHECK(left == 0, "%zu requests are never answered", left);
}

/* What a stable group says of itself, in bytes; size 0: it is none. */
static size_t portrait(struct run *x, struct rig_conn *c, const char *group, uint8_t *to, size_t room) {
    struct kw_describe_groups_request m;
    struct kw_describe_groups_response a;
    struct kw_str id = kw_str_of(group);
    struct kw_out out;
    size_t n = 0;
    kw_msg_init(&kw_describe_groups_request_desc, &m);
    m.groups.v = &id;
    m.groups.n = 1;
    rig_call(c, KW_API_DESCRIBE_GROUPS, 5, &m, &a);
    if (a.groups.v[0].error_code == KE_NONE && kw_str_eq(a.groups.v[0].group_state, kw_str_of("Stable"))) {
        kw_out_init(&out);
        FUZZ_CHECK(kw_encode(&kw_describe_groups_response_desc, 5, &a, &out) == KW_OK, "what was decoded cannot be encoded");
        n = KW_MIN(out.len, room);
        memcpy(to, out.p, n);
        kw_out_deinit(&out);
    }
    kw_arena_reset(&x->r.arena);
    return n;
}

static void same_after_a_start(struct run *x) {
    static uint8_t before[2][64 << 10], after[64 << 10];
    size_t n[2];
    struct rig_conn *c = rig_connect(&x->r);
    for (int i = 0; i < 2; i++) n[i] = portrait(x, c, i ? "h" : "g", before[i], sizeof before[i]);
    stop(x);
    start(x);
    op_watch(x, -1);
    c = rig_connect(&x->r);
    for (int i = 0; i < 2; i++) {
        if (n[i] == 0) continue;
        size_t m = portrait(x, c, i ? "h" : "g", after, sizeof after);
        FUZZ_CHECK(m == n[i] && memcmp(after, before[i], m) == 0, "the stable group %s is another after a stop and a start", i ? "h" : "g");
    }
    stop(x);
}

static struct kb_config *config_of(uint8_t options) {
    struct rig r = {0};
    char text[400];
    assert_int_equal(kb_config_new(&r.config), KW_OK);
    rig_set(&r, "log.dirs", "/data");
    rig_set(&r, "socket.request.max.bytes", "131072");
    rig_set(&r, "log.retention.check.interval.ms", "1000000000");
    rig_set(&r, "offsets.topic.num.partitions", "1");
    rig_set(&r, "offsets.retention.minutes", "2147483647");
    rig_set(&r, "connections.max.idle.ms", "-1");
    if (options & OPT_FLUSH) rig_set(&r, "flush.on.ack", "true");
    if (options & OPT_SMALL_SEGMENTS) rig_set(&r, "offsets.topic.segment.bytes", "1024");
    if (options & OPT_DELAY) rig_set(&r, "group.initial.rebalance.delay.ms", "100");
    if (options & OPT_SMALL_GROUPS) rig_set(&r, "group.max.size", "2");
    if (options & OPT_LONG) rig_set(&r, "offsets.retention.check.interval.ms", "100000000000");
    assert_int_equal(kb_config_finish(r.config, text, sizeof text), KW_OK);
    return r.config;
}

static void find_coordinator(struct rig_conn *c) {
    struct kw_find_coordinator_request m;
    struct kw_find_coordinator_response a;
    kw_msg_init(&kw_find_coordinator_request_desc, &m);
    m.key = kw_str_of("g");
    rig_call(c, KW_API_FIND_COORDINATOR, 2, &m, &a);
    assert_int_equal(a.error_code, KE_NONE);
}

static void begin(struct run *x, uint8_t options) {
    static struct kb_config *configs[64];
    struct rig *r = &x->r;
    options &= 63;
    memset(x, 0, sizeof *x);
    if (!configs[options]) configs[options] = config_of(options);
    fuzz_memory_count();
    fuzz_memory = (struct fuzz_memory){.live_max = 128u << 20, .one_max = 2u << 20};
    fuzz_rig_init(r, configs[options], options & OPT_SLOW_DISK);
    fuzz_node_boot(r);
    struct rig_conn *c = rig_connect(r);
    assert_int_equal(rig_create(c, "t0", 2, NULL, NULL), KE_NONE);
    find_coordinator(c);
    rig_pass(r, 100000);
    rig_close_conns(r);
    x->ids[0] = kb_image_topic(&r->node->image, kw_str_of("t0"))->id;
    static const int64_t numbers[8] = {0, 1, 2, 3, 10000, -1, 60000, 6000};
    static const char *const texts[12] = {"g", "h", "t0", "t1", "consumer", "range", "sticky", "static", "", "connect", "other", "x"};
    memcpy(x->numbers, numbers, sizeof numbers);
    memcpy(x->texts, texts, sizeof texts);
    for (int i = 0; i < PEERS; i++) x->texts[12 + i] = x->peers[i].member;
    x->dict = (struct fuzz_dict){x->texts, KW_COUNTOF(x->texts), x->ids, 1, x->numbers, KW_COUNTOF(x->numbers), NULL, NULL};
    x->committed = -1;
    x->next_id = 1;
    kw_arena_reset(&r->arena);
    x->base = fuzz_memory.live;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct run x;
    struct fuzz_src input = {data, data + size};
    struct fuzz_op op;
    uint8_t options = fuzz_u8(&input);
    (void)fuzz_u8(&input);
    setenv("CMOCKA_TEST_ABORT", "1", 1);
    begin(&x, options);
    for (int i = 0; i < OPS_MAX && fuzz_op_next(&input, &op); i++) {
        for (int k = 0; k < PEERS; k++) x.numbers[8 + k] = x.peers[k].generation;
        switch (op.kind & 7) {
        case 5:
            settle(&x, (int64_t)fuzz_u16(&op.src) * (op.arg & 1 ? 1000000 : 10000));
            break;
        case 6:
            op_control(&x, &op);
            break;
        case 7:
            op_records(&x, &op);
            break;
        default:
            op_request(&x, &op);
        }
    }
    wait_for_all(&x);
    same_after_a_start(&x);
    fuzz_rig_deinit(&x.r);
    FUZZ_CHECK(fuzz_memory.live == 0, "%zu bytes are never given back", fuzz_memory.live);
    return 0;
}
