/* fuzz_broker_conn.c - connections into a whole broker core: requests made from the schemas and then damaged, raw bytes, cut anywhere,
 * pipelined, with time, closes, crashes and restarts between.
 *
 * Whatever comes: every whole frame is answered in order, or its connection is closed; every answer follows its schema, and what a Fetch
 * gives passes its CRC; memory stays within what frames and partitions can justify; in the end the node stops in order, its logs are
 * whole, and it starts again.
 */
#include "kit/gen.h"
#include "kit/node.h"
#include "kit/scan.h"
#include "wire/message_set.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
extern const size_t fuzz_head_size;
const size_t fuzz_head_size = 2;

enum { CONNS = 3, REQUESTS_MAX = 300, FRAME_MAX = 128 << 10, TOPICS = 3, HOLD = 4, KEEP_LENGTH = 8, DAY_MS = 86400000 };
enum { OPT_FAULTS = 1, OPT_SLOW_DISK = 2, OPT_FLUSH = 4, OPT_SMALL_SEGMENTS = 8, OPT_RESTART = 16, OPT_NO_CREATE = 32, OPT_IDLE = 64 };

struct expected { /* a whole frame that the node has taken */
    int32_t id;
    int16_t key, version;
    bool silent; /* acks=0 */
};
struct peer {
    struct rig_conn *c;
    struct kw_out out; /* what it sends, in all */
    size_t sent, parsed;
    struct expected v[REQUESTS_MAX];
    size_t count, answered;
    bool refused; /* what follows can be no frame: the node closes */
};
struct run {
    struct rig r;
    struct peer peers[CONNS];
    struct fuzz_records records;
    struct kw_uuid ids[TOPICS];
    int64_t numbers[8 + CONNS];
    struct fuzz_dict dict;
    int32_t next_id;
    size_t base;
    bool dead; /* it was killed, and nothing is checked against what was sent before */
};

static const char *const topics[TOPICS] = {"t0", "t1", "t2"};
static const char *const texts[] = {"t0", "t1", "t2", "new", "a.b", "a_b", "", "0", "1", "default", "retention.ms", "1000", "cleanup.policy", "compact",
                                    "delete", "segment.bytes", "min.insync.replicas", "2", "max.message.bytes", "100", "compression.type", "zstd",
                                    "message.timestamp.type", "LogAppendTime", "__consumer_offsets", "fuzz", "log.retention.ms", "..", "-1",
                                    "max.connections", "flush.messages"};
static const char faults[] =
    "{\"rules\": [{\"api\": \"Fetch\", \"every\": 3, \"error\": \"NOT_LEADER_OR_FOLLOWER\"},"
    " {\"api\": \"Produce\", \"every\": 4, \"close\": true, \"when\": \"after\"}, {\"api\": \"Metadata\", \"every\": 2, \"delay_ms\": 50, \"throttle_ms\": 9},"
    " {\"topic\": \"t1\", \"every\": 2, \"error\": \"KAFKA_STORAGE_ERROR\", \"when\": \"after\"}, {\"api\": \"Fetch\", \"drip_bytes_per_s\": 3000},"
    " {\"every\": 5, \"error\": \"UNKNOWN_SERVER_ERROR\", \"throttle_ms\": 3}, {\"every\": 7, \"close\": true}]}";

/* ---- Answers ---- */

static void check_records(const struct kw_records *rec) {
    if (rec->len <= 0) return;
    const uint8_t *p = rec->p, *end = p + rec->len;
    struct kw_entry e;
    int32_t rc;
    int64_t last = -1;
    while ((rc = kw_entry_next(&p, end, &e)) == 1) {
        int64_t base = (int64_t)kw_load64(e.p);
        FUZZ_CHECK(base > last, "a batch at %lld behind offset %lld", (long long)base, (long long)last);
        last = base;
        if (e.magic != 2) continue;
        FUZZ_CHECK(kw_batch_crc_ok(e.p, e.size), "a batch at %lld is served that fails its checksum", (long long)base);
        last = base + (int32_t)kw_load32(e.p + KW_BATCH_LAST_OFFSET_DELTA);
    }
    FUZZ_CHECK(rc == 0, "what a Fetch gives is no sequence of entries");
}

static void check_fetch(struct run *x, int which, const struct kw_fetch_response *m) {
    if (m->session_id) x->numbers[8 + which] = m->session_id;
    for (int32_t i = 0; i < m->responses.n; i++)
        for (int32_t k = 0; k < m->responses.v[i].partitions.n; k++) check_records(&m->responses.v[i].partitions.v[k].records);
}

static void check_answer(struct run *x, int which, const struct expected *e, const uint8_t *p, size_t n) {
    const struct kw_api *api = kw_api_by_key(e->key);
    FUZZ_CHECK(api, "an answer to API %d, which there is not", e->key);
    int16_t version = e->key == KW_API_API_VERSIONS && (e->version < 0 || e->version > 5) ? 0 : e->version;
    struct kw_in in;
    int32_t id;
    void *msg = kw_arena_calloc(&x->r.arena, 1, api->response->size);
    kw_in_init(&in, p, n);
    FUZZ_CHECK(kw_frame_parse_response(&in, api, version, &id) == KW_OK, "%s v%d: no response header", api->name, version);
    kw_err err = kw_decode(api->response, version, &in, &x->r.arena, msg);
    FUZZ_CHECK(err == KW_OK && kw_in_left(&in) == 0, "%s v%d: the answer does not follow its schema (%d, %zu left)", api->name, version, err,
               kw_in_left(&in));
    if (e->key == KW_API_FETCH) check_fetch(x, which, msg);
}

static void take_answers(struct run *x, int which) {
    struct peer *p = &x->peers[which];
    const uint8_t *frame;
    size_t n;
    while (p->c && (frame = rig_frame(p->c, &n))) {
        FUZZ_CHECK(n >= 4, "an answer of %zu bytes", n);
        while (p->answered < p->count && p->v[p->answered].silent) p->answered++;
        FUZZ_CHECK(p->answered < p->count, "an answer to nothing");
        struct expected *e = &p->v[p->answered++];
        FUZZ_CHECK((int32_t)kw_load32(frame) == e->id, "the answer to request %d comes where that to %d (%d v%d) is due", (int32_t)kw_load32(frame), e->id,
                   e->key, e->version);
        check_answer(x, which, e, frame, n);
        kw_arena_reset(&x->r.arena);
    }
}

/* ---- Sending ---- */

static bool is_silent(struct run *x, const uint8_t *p, size_t n) {
    struct kw_in in;
    struct kw_frame_request head;
    struct kw_produce_request m;
    kw_in_init(&in, p, n);
    bool silent = kw_frame_parse_request(&in, &head) == KW_OK && head.api_key == KW_API_PRODUCE &&
                  kw_decode(head.api->request, head.version, &in, &x->r.arena, &m) == KW_OK && m.acks == 0;
    kw_arena_reset(&x->r.arena);
    return silent;
}

/* Which whole frames the node has taken by now. */
static void count_frames(struct run *x, struct peer *p) {
    while (!p->refused && p->sent - p->parsed >= 4) {
        const uint8_t *at = p->out.p + p->parsed;
        uint32_t n = kw_load32(at);
        if (n < 8 || n > FRAME_MAX) {
            p->refused = true;
            return;
        }
        if (p->sent - p->parsed < 4 + (size_t)n) return;
        if (p->count == REQUESTS_MAX) {
            p->refused = true;
            return;
        }
        p->v[p->count++] = (struct expected){.key = (int16_t)kw_load16(at + 4),
                                             .version = (int16_t)kw_load16(at + 6),
                                             .id = (int32_t)kw_load32(at + 8),
                                             .silent = is_silent(x, at + 4, n)};
        p->parsed += 4 + (size_t)n;
    }
}

/* As much as the node wants to read, in pieces. */
static void push(struct run *x, int which, size_t piece, bool turns) {
    struct peer *p = &x->peers[which];
    while (p->c && p->c->conn && p->sent < p->out.len && kb_conn_wants_read(p->c->conn)) {
        uint8_t *to;
        size_t room;
        kb_conn_recv_buf(p->c->conn, &to, &room);
        if (room == 0) break;
        size_t n = KW_MIN(KW_MIN(room, p->out.len - p->sent), piece);
        memcpy(to, p->out.p + p->sent, n);
        p->sent += n;
        count_frames(x, p);
        kb_conn_received(p->c->conn, n, x->r.now);
        if (turns) rig_turn(&x->r);
        take_answers(x, which);
    }
}

static void check_memory(struct run *x) {
    size_t partitions = (size_t)x->r.node->image.partition_count, frames = 0;
    for (int i = 0; i < CONNS; i++) frames += x->peers[i].out.cap;
    size_t justified = x->base + (4u << 20) + 8 * frames + (partitions << 14);
    FUZZ_CHECK(fuzz_memory.live <= justified, "%zu bytes in use, %zu can be justified (%zu partitions, frames of %zu bytes)", fuzz_memory.live, justified,
               partitions, frames);
}

static void settle(struct run *x, int64_t us) {
    for (int i = 0; i < CONNS; i++) push(x, i, SIZE_MAX, false);
    rig_pass(&x->r, us);
    for (int i = 0; i < CONNS; i++) {
        take_answers(x, i);
        push(x, i, SIZE_MAX, false);
    }
    check_memory(x);
}

static void connect_peer(struct run *x, int which) {
    struct peer *p = &x->peers[which];
    kw_out_deinit(&p->out);
    memset(p, 0, sizeof *p);
    kw_out_init(&p->out);
    p->c = rig_connect(&x->r);
    if (!p->c->conn) p->c = NULL; /* refused: a limit that was set by request */
}

/* ---- Operations ---- */

static void make_records(void *ctx, struct fuzz_src *s, struct kw_arena *a, struct kw_records *out) {
    struct run *x = ctx;
    x->records.base_offset = 0;
    x->records.timestamp = x->r.now.wall_ms;
    struct kw_bytes b = fuzz_records_make(s, &x->records, a);
    *out = (struct kw_records){b.p, b.len, NULL};
}

/* Few partitions a request: thousands are allowed, and would leave time for nothing else. */
static void limit_partitions(int16_t key, void *msg) {
    if (key == KW_API_CREATE_TOPICS) {
        struct kw_create_topics_request *m = msg;
        for (int32_t i = 0; i < m->topics.n; i++)
            if (m->topics.v[i].num_partitions > 20 && m->topics.v[i].num_partitions <= 10000) m->topics.v[i].num_partitions %= 20;
    } else if (key == KW_API_CREATE_PARTITIONS) {
        struct kw_create_partitions_request *m = msg;
        for (int32_t i = 0; i < m->topics.n; i++)
            if (m->topics.v[i].count > 20 && m->topics.v[i].count <= 10000) m->topics.v[i].count %= 20;
    }
}

static void op_request(struct run *x, struct fuzz_op *op) {
    struct fuzz_src *s = &op->src;
    int which = (op->arg & 3) % CONNS;
    struct peer *p = &x->peers[which];
    const struct kb_api_entry *entry = &kb_api_table[fuzz_u8(s) % kb_api_table_count];
    const struct kw_api *api = kw_api_by_key(entry->key);
    uint8_t c = fuzz_u8(s);
    int16_t version = (int16_t)(entry->min + c % (entry->max - entry->min + 1));
    void *msg = kw_arena_calloc(&x->r.arena, 1, api->request->size);
    kw_msg_init(api->request, msg);
    fuzz_message(api->request, version, &x->dict, s, &x->r.arena, msg, true);
    limit_partitions(entry->key, msg);
    size_t at = p->out.len, one_max = fuzz_memory.one_max;
    fuzz_memory.one_max = 0; /* what the peer sends is its own */
    kw_err err = kw_frame_request(&p->out, api, version, x->next_id++, kw_str_of(c & 0x40 ? "other" : "fuzz"), msg);
    kw_arena_reset(&x->r.arena);
    FUZZ_CHECK(err == KW_OK, "%s v%d: the fuzzer's own request cannot be encoded: %d", api->name, version, err);
    if (c >= 0xf8) kw_store16(p->out.p + at + 6, (uint16_t)(int16_t)(c - 0xfc)); /* versions that there are not */
    size_t n = p->out.len - at - 4;
    if (fuzz_left(s) >= 3 && kw_out_reserve(&p->out, 16)) {
        n = fuzz_edit(s, p->out.p + at + 4, n);
        p->out.len = at + 4 + n;
        if (!(op->arg & KEEP_LENGTH)) kw_store32(p->out.p + at, (uint32_t)n);
    }
    fuzz_memory.one_max = one_max;
    if (op->arg & HOLD) return;
    int piece = op->arg >> 4 & 7;
    push(x, which, piece ? (size_t)1 << piece : SIZE_MAX, op->arg & 0x80);
    settle(x, 0);
}

static void op_raw(struct run *x, struct fuzz_op *op) {
    int which = (op->arg & 3) % CONNS;
    kw_out_bytes(&x->peers[which].out, op->src.p, fuzz_left(&op->src));
    push(x, which, op->arg & 0x80 ? 1 : SIZE_MAX, op->arg & 0x40);
    if (!(op->arg & HOLD)) settle(x, 0);
}

static void forget_peers(struct run *x) {
    for (int i = 0; i < CONNS; i++) {
        kw_out_deinit(&x->peers[i].out);
        memset(&x->peers[i], 0, sizeof x->peers[i]);
        kw_out_init(&x->peers[i].out);
    }
}

static void unstick(struct run *x, int which) {
    struct rig_conn *c = x->peers[which].c;
    if (!c || !c->conn || !c->stuck) return;
    c->stuck = false;
    rig_serve(&x->r, c);
}

static void stop_in_order(struct run *x) {
    for (int i = 0; i < CONNS; i++) unstick(x, i);
    sim_disk_faults(x->r.disk)->enospc_at = -1;
    fuzz_node_stop(&x->r);
    for (int i = 0; i < CONNS; i++) take_answers(x, i); /* what is still open the shell closes now */
    rig_free_node(&x->r);
    forget_peers(x);
    fuzz_scan_all(x->r.disk, "/data", true);
}

static void start_again(struct run *x) {
    sim_disk_faults(x->r.disk)->enospc_at = -1; /* a full disk is a reason not to start */
    fuzz_node_boot(&x->r);
    for (int i = 0; i < CONNS; i++) connect_peer(x, i);
}

static void op_control(struct run *x, struct fuzz_op *op) {
    int which = (op->arg >> 4) % CONNS;
    struct peer *p = &x->peers[which];
    switch (op->arg & 15) {
    case 0:
    case 1: /* the peer goes, with all that was under way */
        if (p->c && p->c->conn) kb_conn_closed(p->c->conn, x->r.now);
        if (p->c) p->c->conn = NULL;
        connect_peer(x, which);
        break;
    case 2:
    case 3:
        if (p->c) p->c->stuck = true; /* it does not read */
        break;
    case 4:
        unstick(x, which);
        break;
    case 5:
        stop_in_order(x);
        start_again(x);
        break;
    case 6:
        rig_kill(&x->r);
        forget_peers(x);
        start_again(x);
        break;
    case 7:
        sim_disk_faults(x->r.disk)->enospc_at = op->arg >> 4;
        break;
    default:
        settle(x, (int64_t)(op->arg >> 4) * 1000);
    }
}

/* ---- The end ---- */

/* Open: nothing is left to be answered. Closed: that is an answer too. */
static void check_closed(struct run *x, int which) {
    struct peer *p = &x->peers[which];
    take_answers(x, which);
    if (!p->c || !p->c->conn) return;
    while (p->answered < p->count && p->v[p->answered].silent) p->answered++;
    FUZZ_CHECK(p->answered == p->count, "request %d (API %d v%d) is not answered, and its connection is open", p->v[p->answered].id,
               p->v[p->answered].key, p->v[p->answered].version);
    FUZZ_CHECK(!p->refused || p->count == REQUESTS_MAX, "what was sent is no frame, and the connection is open");
}

static bool waits(struct run *x) {
    for (int i = 0; i < CONNS; i++) {
        struct peer *p = &x->peers[i];
        if (p->c && p->c->conn && (p->answered < p->count || p->sent < p->out.len)) return true;
    }
    return false;
}

/* Every wait that a request may ask for ends. */
static void wait_for_all(struct run *x) {
    for (int i = 0; i < CONNS; i++) unstick(x, i);
    settle(x, 1000);
    for (int i = 0; waits(x) && i < REQUESTS_MAX; i++) settle(x, i < 4 ? 10000000LL : (int64_t)25 * DAY_MS * 1000);
    for (int i = 0; i < CONNS; i++) check_closed(x, i);
}

/* ---- Beginning ---- */

static struct kb_config *config_of(uint8_t options) {
    struct rig r = {0};
    char text[400];
    assert_int_equal(kb_config_new(&r.config), KW_OK);
    rig_set(&r, "log.dirs", "/data");
    rig_set(&r, "socket.request.max.bytes", "131072");
    rig_set(&r, "queued.max.request.bytes", "524288");
    rig_set(&r, "log.retention.check.interval.ms", "1000000000");
    rig_set(&r, "connections.max.idle.ms", options & OPT_IDLE ? "20000" : "-1");
    if (options & OPT_FLUSH) rig_set(&r, "flush.on.ack", "true");
    if (options & OPT_SMALL_SEGMENTS) rig_set(&r, "log.segment.bytes", "1024");
    if (options & OPT_NO_CREATE) rig_set(&r, "auto.create.topics.enable", "false");
    assert_int_equal(kb_config_finish(r.config, text, sizeof text), KW_OK);
    return r.config;
}

static void begin(struct run *x, uint8_t options) {
    static struct kb_config *configs[256];
    uint8_t kind = options & (OPT_FLUSH | OPT_SMALL_SEGMENTS | OPT_NO_CREATE | OPT_IDLE);
    struct rig *r = &x->r;
    memset(x, 0, sizeof *x);
    if (!configs[kind]) configs[kind] = config_of(options);
    fuzz_memory_count();
    fuzz_memory = (struct fuzz_memory){.live_max = 64u << 20, .one_max = 1u << 20};
    fuzz_rig_init(r, configs[kind], options & OPT_SLOW_DISK);
    r->faults = options & OPT_FAULTS ? faults : NULL;
    x->records = (struct fuzz_records){.leader_epoch = 0, .body_max = 4000};
    fuzz_node_boot(r);
    struct kb_faults *off = r->node->faults;
    r->node->faults = NULL;
    struct rig_conn *c = rig_connect(r);
    assert_int_equal(rig_create(c, topics[0], 2, NULL, NULL), KE_NONE);
    assert_int_equal(rig_create(c, topics[1], 1, "message.timestamp.type", "LogAppendTime"), KE_NONE);
    assert_int_equal(rig_create(c, topics[2], 1, "cleanup.policy", "compact"), KE_NONE);
    rig_close_conns(r);
    r->node->faults = off;
    for (int i = 0; i < TOPICS; i++) x->ids[i] = kb_image_topic(&r->node->image, kw_str_of(topics[i]))->id;
    static const int64_t numbers[8] = {0, 1, 2, 3, 1700000000000, -1, 50, 1000};
    memcpy(x->numbers, numbers, sizeof numbers);
    x->dict = (struct fuzz_dict){texts, KW_COUNTOF(texts), x->ids, TOPICS, x->numbers, KW_COUNTOF(x->numbers), make_records, x};
    kw_arena_reset(&r->arena);
    x->base = fuzz_memory.live;
    for (int i = 0; i < CONNS; i++) connect_peer(x, i);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct run x;
    struct fuzz_src input = {data, data + size};
    struct fuzz_op op;
    uint8_t options = fuzz_u8(&input);
    (void)fuzz_u8(&input); /* room for more options without a new corpus */
    setenv("CMOCKA_TEST_ABORT", "1", 1);
    begin(&x, options);
    for (int i = 0; i < REQUESTS_MAX && fuzz_op_next(&input, &op); i++) {
        switch (op.kind & 7) {
        case 5:
            op_raw(&x, &op);
            break;
        case 6:
            settle(&x, (int64_t)fuzz_u16(&op.src) * (op.arg & 1 ? 1000000 : 1000));
            break;
        case 7:
            op_control(&x, &op);
            break;
        default:
            op_request(&x, &op);
        }
    }
    wait_for_all(&x);
    stop_in_order(&x);
    if (options & OPT_RESTART) {
        start_again(&x);
        stop_in_order(&x);
    }
    forget_peers(&x);
    fuzz_rig_deinit(&x.r);
    fuzz_compressor_drop();
    FUZZ_CHECK(fuzz_memory.live == 0, "%zu bytes are never given back", fuzz_memory.live);
    return 0;
}
