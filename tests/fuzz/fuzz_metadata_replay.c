/* fuzz_metadata_replay.c - a data folder whose metadata is made by the input: records of every type and version in batches, control batches,
 * segments and snapshots of `__cluster_metadata-0`, meta.properties, quorum-state, checkpoints, partition.metadata; a node is started on it.
 *
 * Whatever lies there: it is refused with a reason, or the node serves. Then its image can be written as a snapshot and read back to the same
 * bytes, requests about it are answered by their schemas, and it stops in order and starts again.
 */
#include "kit/gen.h"
#include "kit/node.h"
#include "kit/scan.h"
#include "quorum/store_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
extern const size_t fuzz_head_size;
const size_t fuzz_head_size = 2;

#define META "/data/__cluster_metadata-0"
enum { OPS_MAX = 120, FILE_MAX = 60000, NODE_ID = 1 };
enum { OPT_NO_PROPERTIES = 1, OPT_NO_BATCHES = 2, OPT_CLEAN = 4, OPT_VOTE = 8, OPT_SLOW_DISK = 16 };

struct run {
    struct rig r;
    struct kw_arena arena;
    struct fuzz_dict dict;
    struct kw_out file, body; /* the file being made, the batch being made */
    int32_t count;            /* its records */
    int64_t base;             /* first offset of the file */
    int64_t next;
    bool snapshot;
    int32_t epoch;
};

static const char *const texts[] = {"t0", "t1", "a.b", "a_b", "", "metadata.version", "kraft.version", "retention.ms", "1000", "cleanup.policy", "compact",
                                    "1", "PLAINTEXT", "localhost", "min.insync.replicas", "group.version", "__consumer_offsets", "no.such.config", "x/../y"};
static const struct kw_uuid ids[] = {{{1, 2, 3}}, {{4, 5, 6}}, {{7}}};
static const int64_t numbers[] = {0, 1, 2, 3, 33, 5, 9092, 1000, 7, 20};

/* ---- Batches ---- */

static void add_record(struct run *x, struct kw_bytes key, struct kw_bytes value) {
    struct kw_record_in rec = {.offset_delta = x->count, .key = key, .value = value};
    size_t size = kw_record_size(&rec);
    uint8_t *p = kw_out_reserve(&x->body, size);
    FUZZ_CHECK(p, "no memory");
    kw_record_write(p, &rec, size);
    x->count++;
}

/* arg: 0-2 codec, 3 a transaction's producer, 6 damage before the CRC, 7 behind it. */
static void end_batch(struct run *x, struct fuzz_op *op, bool control) {
    if (x->count == 0 || x->file.len > FILE_MAX) return;
    uint8_t arg = op ? op->arg : 0;
    struct kw_batch_header h = {.base_offset = x->next, .length = (int32_t)(x->body.len + KW_BATCH_HEADER_SIZE - KW_BATCH_OVERHEAD), .leader_epoch = x->epoch,
                                .magic = 2, .attributes = control ? KW_ATTR_CONTROL : 0, .last_offset_delta = x->count - 1,
                                .base_timestamp = 1700000000000, .max_timestamp = 1700000000000, .producer_id = -1, .producer_epoch = -1,
                                .base_sequence = -1, .record_count = x->count};
    size_t n = KW_BATCH_HEADER_SIZE + x->body.len, cap = n * 2 + 400;
    uint8_t *p = kw_arena_alloc(&x->arena, cap), *packed = kw_arena_alloc(&x->arena, cap + 16);
    FUZZ_CHECK(p && packed, "no memory");
    kw_batch_write_header(p, &h);
    memcpy(p + KW_BATCH_HEADER_SIZE, x->body.p, x->body.len);
    kw_batch_crc_set(p, n);
    int codec = arg & 7;
    if (codec == 0 || codec >= KW_CODEC_COUNT || kw_batch_compress(fuzz_compressor(), codec, KW_LEVEL_DEFAULT, p, n, packed, cap, &n) != KW_OK)
        memcpy(packed, p, n);
    if (op && arg & 0xc0) n = fuzz_edit(&op->src, packed, n);
    if (arg & 0x40 && n >= KW_BATCH_HEADER_SIZE) {
        kw_store32(packed + KW_BATCH_LENGTH, (uint32_t)(n - KW_BATCH_OVERHEAD));
        kw_batch_crc_set(packed, n);
    }
    kw_out_bytes(&x->file, packed, n);
    x->next += x->count;
    x->count = 0;
    kw_out_reset(&x->body);
    kw_arena_reset(&x->arena);
}

static void op_record(struct run *x, struct fuzz_op *op) {
    const struct kw_desc *d = kw_metadata_records[fuzz_u8(&op->src) % kw_metadata_record_count];
    int16_t version = (int16_t)(d->min + op->arg % (d->max - d->min + 1));
    void *msg = kw_arena_calloc(&x->arena, 1, d->size);
    struct kw_out value;
    kw_out_init(&value);
    kw_out_uvarint(&value, op->arg == 0xff ? 2 : 1);
    kw_out_uvarint(&value, (uint32_t)d->api_key);
    kw_out_uvarint(&value, op->arg == 0xfe ? 99 : (uint32_t)version);
    kw_msg_init(d, msg);
    fuzz_message(d, version, &x->dict, &op->src, &x->arena, msg, true);
    FUZZ_CHECK(kw_encode(d, version, msg, &value) == KW_OK, "the fuzzer's own %s v%d cannot be encoded", d->name, version);
    size_t n = value.len;
    if (fuzz_left(&op->src) >= 3 && kw_out_reserve(&value, 16)) n = fuzz_edit(&op->src, value.p, n);
    add_record(x, (struct kw_bytes){NULL, -1}, (struct kw_bytes){value.p, (int32_t)n});
    kw_out_deinit(&value);
    kw_arena_reset(&x->arena);
}

static void add_control(struct run *x, int16_t type, const struct kw_desc *d, struct fuzz_src *s) {
    uint8_t key[4] = {0};
    kw_store16(key + 2, (uint16_t)type);
    void *msg = kw_arena_calloc(&x->arena, 1, d->size);
    struct kw_out value;
    kw_out_init(&value);
    kw_msg_init(d, msg);
    if (s) fuzz_message(d, d->max, &x->dict, s, &x->arena, msg, true);
    FUZZ_CHECK(kw_encode(d, d->max, msg, &value) == KW_OK, "the fuzzer's own %s cannot be encoded", d->name);
    size_t n = value.len;
    if (s && fuzz_left(s) >= 3 && kw_out_reserve(&value, 16)) n = fuzz_edit(s, value.p, n);
    add_record(x, (struct kw_bytes){key, 4}, (struct kw_bytes){value.p, (int32_t)n});
    kw_out_deinit(&value);
    kw_arena_reset(&x->arena);
}

static void op_control(struct run *x, struct fuzz_op *op) {
    static const struct {
        int16_t type;
        const struct kw_desc *d;
    } kinds[] = {{KB_CONTROL_LEADER_CHANGE, &kw_leader_change_message_desc}, {KB_CONTROL_SNAPSHOT_HEADER, &kw_snapshot_header_record_desc},
                 {KB_CONTROL_SNAPSHOT_FOOTER, &kw_snapshot_footer_record_desc}, {KB_CONTROL_KRAFT_VERSION, &kw_kraft_version_record_desc},
                 {KB_CONTROL_VOTERS, &kw_voters_record_desc}};
    end_batch(x, NULL, false);
    size_t i = op->arg % KW_COUNTOF(kinds);
    add_control(x, kinds[i].type, kinds[i].d, &op->src);
    end_batch(x, NULL, true);
}

/* ---- Files ---- */

static void end_file(struct run *x, struct fuzz_src *s) {
    char path[160], name[KB_SNAPSHOT_NAME_SIZE];
    end_batch(x, NULL, false);
    if (x->snapshot) {
        add_control(x, KB_CONTROL_SNAPSHOT_FOOTER, &kw_snapshot_footer_record_desc, NULL);
        end_batch(x, NULL, true);
        kb_snapshot_name(x->base, x->epoch, name);
        snprintf(path, sizeof path, META "/%s", name);
    } else {
        snprintf(path, sizeof path, META "/%020lld.log", (long long)x->base);
    }
    if (x->file.len == 0) return;
    if (s && kw_out_reserve(&x->file, 16)) {
        x->file.len -= 16;
        x->file.len = fuzz_edit(s, x->file.p, x->file.len);
    }
    sim_disk_poke(x->r.disk, path, x->file.p, x->file.len);
    kw_out_reset(&x->file);
}

/* arg: 0 a snapshot (it ends where the log goes on), else a segment; 1-3 how far on; 4-5 a later epoch, 6 any place. */
static void op_file(struct run *x, struct fuzz_op *op) {
    end_file(x, op->arg & 0x80 ? &op->src : NULL);
    int64_t end = x->snapshot ? x->base : x->next;
    x->snapshot = op->arg & 1;
    x->base = end + (op->arg >> 1 & 7);
    if (op->arg & 0x40) x->base = (int64_t)(fuzz_bytes(&op->src, 8) & (INT64_MAX - 4096));
    if (op->arg & 0x10) x->epoch = KW_MIN(x->epoch, INT32_MAX - 256) + fuzz_u8(&op->src);
    if (op->arg & 0x20) x->epoch = (int32_t)(fuzz_bytes(&op->src, 4) & INT32_MAX);
    x->next = x->snapshot ? 0 : x->base;
    if (!x->snapshot) return;
    add_control(x, KB_CONTROL_SNAPSHOT_HEADER, &kw_snapshot_header_record_desc, NULL);
    end_batch(x, NULL, true);
}

static void op_small_file(struct run *x, struct fuzz_op *op) {
    static const struct {
        const char *path, *text;
    } files[] = {
        {"/data/meta.properties", "#\ncluster.id=fuzzfuzzfuzzfuzzfuzzfu\ndirectory.id=AQIDBAUGBwgJCgsMDQ4PEA\nnode.id=1\nversion=1\n"},
        {META "/quorum-state",
         "{\"clusterId\":\"\",\"leaderId\":1,\"leaderEpoch\":5,\"votedId\":-1,\"appliedOffset\":0,\"currentVoters\":[],\"data_version\":0}"},
        {"/data/.kafka_cleanshutdown", "{\"version\":0,\"brokerEpoch\":3}"},
        {"/data/recovery-point-offset-checkpoint", "0\n2\nt0 0 5\nt1 0 1\n"},
        {"/data/log-start-offset-checkpoint", "0\n1\nt0 0 2\n"},
        {"/data/replication-offset-checkpoint", "0\n2\nt0 0 3\nt1 0 0\n"},
        {"/data/kbroker.boot-id", "boot"},
        {"/data/t0-0/partition.metadata", "version: 0\ntopic_id: AQIDAAAAAAAAAAAAAAAAAA"},
        {"/data/t1-0/partition.metadata", "version: 0\ntopic_id: BAUGAAAAAAAAAAAAAAAAAA"},
        {META "/partition.metadata", "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"},
        {"/data/t0-0/00000000000000000000.log", "junk"},
        {"/data/zz-9/junk", "junk"},
        {"/data/t0-0.0123456789abcdef0123456789abcdef-delete/junk", "junk"},
        {"/data/bootstrap.checkpoint", "junk"}};
    size_t i = (op->arg & 31) % KW_COUNTOF(files), n = strlen(files[i].text);
    uint8_t *p = malloc(n + 300);
    if (!p) abort();
    memcpy(p, files[i].text, n);
    if (op->arg & 0x80) memcpy(p, op->src.p, n = fuzz_left(&op->src));
    else n = fuzz_edit(&op->src, p, n);
    sim_disk_poke(x->r.disk, files[i].path, p, n);
    free(p);
}

/* ---- The node on it ---- */

static void check_image(struct run *x) {
    struct kw_out first, second;
    struct kb_image again;
    char why[200] = "";
    kw_out_init(&first);
    kw_out_init(&second);
    kb_image_init(&again);
    const struct kb_image *im = &x->r.node->image;
    FUZZ_CHECK(kb_snapshot_encode(im, 0, 0, &first) == KW_OK, "the image cannot be written as a snapshot");
    FUZZ_CHECK(kb_snapshot_whole(first.p, first.len), "the snapshot of the image is not whole");
    FUZZ_CHECK(kb_snapshot_load(first.p, first.len, im->offset + 1, im->epoch, NODE_ID, fuzz_compressor(), &again, why, sizeof why) == KW_OK,
               "the snapshot of the image cannot be read: %s", why);
    FUZZ_CHECK(kb_snapshot_encode(&again, 0, 0, &second) == KW_OK, "the image read back cannot be written");
    FUZZ_CHECK(first.len == second.len && memcmp(first.p, second.p, first.len) == 0, "the image read back is another");
    kb_image_deinit(&again);
    kw_out_deinit(&first);
    kw_out_deinit(&second);
}

static void ask(struct run *x, struct rig_conn *c, int16_t key) {
    const struct kw_api *api = kw_api_by_key(key);
    struct fuzz_src none = {NULL, NULL};
    void *req = kw_arena_calloc(&x->r.arena, 1, api->request->size), *resp = kw_arena_calloc(&x->r.arena, 1, api->response->size);
    int16_t version = KW_MIN(api->max, (int16_t)12);
    kw_msg_init(api->request, req);
    fuzz_message(api->request, version, &x->dict, &none, &x->r.arena, req, true);
    if (key == KW_API_METADATA) ((struct kw_metadata_request *)req)->topics = (typeof(((struct kw_metadata_request *)req)->topics)){.n = -1};
    rig_call(c, key, version, req, resp);
    kw_arena_reset(&x->r.arena);
}

static void serve(struct run *x) {
    static const int16_t keys[] = {KW_API_METADATA, KW_API_DESCRIBE_CLUSTER, KW_API_DESCRIBE_CONFIGS, KW_API_DESCRIBE_TOPIC_PARTITIONS,
                                   KW_API_DESCRIBE_LOG_DIRS, KW_API_LIST_CONFIG_RESOURCES, KW_API_INIT_PRODUCER_ID,
                                   KW_API_CREATE_PARTITIONS, KW_API_DELETE_TOPICS};
    struct rig_conn *c = rig_connect(&x->r);
    if (!c->conn) return; /* a limit that the metadata set */
    for (size_t i = 0; i < KW_COUNTOF(keys); i++) ask(x, c, keys[i]);
    (void)rig_create(c, "made-here", 1, NULL, NULL);
    kw_arena_reset(&x->r.arena);
}

static bool start(struct run *x) {
    rig_boot(&x->r);
    rig_pass(&x->r, 1000000);
    enum kb_node_state state = kb_node_state(x->r.node);
    FUZZ_CHECK(state == KB_NODE_READY || state == KB_NODE_FAILED, "the start does not end: state %d", (int)state);
    FUZZ_CHECK(state == KB_NODE_READY || kb_node_failure(x->r.node), "the node is refused without a word");
    if (state == KB_NODE_READY) return true;
    rig_free_node(&x->r);
    return false;
}

static void stop(struct run *x) {
    kb_node_stop(x->r.node, x->r.now);
    rig_settle(&x->r);
    FUZZ_CHECK(kb_node_state(x->r.node) == KB_NODE_STOPPED, "the node does not stop: state %d %s", (int)kb_node_state(x->r.node),
               kb_node_failure(x->r.node) ? kb_node_failure(x->r.node) : "");
    rig_free_node(&x->r);
}

static void live(struct run *x) {
    if (!start(x)) return;
    check_image(x);
    serve(x);
    if (kb_node_state(x->r.node) != KB_NODE_READY) { /* it may find on its way that it cannot go on */
        FUZZ_CHECK(kb_node_failure(x->r.node), "the node failed without a word");
        rig_free_node(&x->r);
        return;
    }
    check_image(x);
    stop(x);
    FUZZ_CHECK(start(x), "what served does not start again");
    check_image(x);
    stop(x);
}

static struct kb_config *config(void) {
    struct rig r = {0};
    char text[400];
    assert_int_equal(kb_config_new(&r.config), KW_OK);
    rig_set(&r, "log.dirs", "/data");
    rig_set(&r, "node.id", "1");
    assert_int_equal(kb_config_finish(r.config, text, sizeof text), KW_OK);
    return r.config;
}

static void begin(struct run *x, uint8_t options) {
    static struct kb_config *shared;
    memset(x, 0, sizeof *x);
    if (!shared) shared = config();
    fuzz_memory_count();
    fuzz_memory = (struct fuzz_memory){.live_max = 24u << 20, .one_max = 9u << 20};
    fuzz_rig_init(&x->r, shared, options & OPT_SLOW_DISK);
    x->r.boot_id = "boot";
    kw_arena_init(&x->arena, 0);
    kw_out_init(&x->file);
    kw_out_init(&x->body);
    x->dict = (struct fuzz_dict){texts, KW_COUNTOF(texts), ids, KW_COUNTOF(ids), numbers, KW_COUNTOF(numbers), NULL, NULL};
    struct fuzz_op op = {0};
    if (!(options & OPT_NO_PROPERTIES)) op_small_file(x, &op);
    op.arg = 1;
    if (options & OPT_VOTE) op_small_file(x, &op);
    op.arg = 2;
    if (options & OPT_CLEAN) op_small_file(x, &op);
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
        switch (op.kind & 7) {
        case 4:
            end_batch(&x, &op, false);
            break;
        case 5:
            op_control(&x, &op);
            break;
        case 6:
            op_file(&x, &op);
            break;
        case 7:
            op_small_file(&x, &op);
            break;
        default:
            op_record(&x, &op);
        }
    }
    end_file(&x, NULL);
    live(&x);
    kw_out_deinit(&x.file);
    kw_out_deinit(&x.body);
    kw_arena_deinit(&x.arena);
    fuzz_rig_deinit(&x.r);
    fuzz_compressor_drop();
    FUZZ_CHECK(fuzz_memory.live == 0, "%zu bytes are never given back", fuzz_memory.live);
    return 0;
}
