/* test_recording.c - entries of a recording: written and found again, whole, cut at every byte, damaged anywhere; what of large frames is stored; which
 * frames a node shows, in which order, and what it says of them.
 */
#include "node_rig.h"

#include "recording.h"

/* ---- The file ---- */

static size_t put(uint8_t *to, const struct kb_recording_entry *e, const uint8_t *data) {
    uint8_t head[KB_RECORDING_HEAD_MAX];
    struct kb_iov iov = {data, e->data_size};
    size_t n = kb_recording_head(e, &iov, 1, head);
    assert_true(n <= sizeof(head));
    memcpy(to, head, n);
    memcpy(to + n, data, e->data_size);
    return n + e->data_size;
}

static struct kb_recording_entry make(int i, uint8_t data[400]) {
    struct kb_recording_entry e = {.response = i % 2, .node = i, .connection = INT64_C(1) << 40 | i, .at_us = 1000 + i, .took_us = 5,
                                   .api_key = (int16_t)(i - 1), .version = -1, .correlation_id = -i, .frame_size = 100 + (uint32_t)i,
                                   .peer = kw_str_of("[::1]:55"),
                                   .client_id = i % 3 ? kw_str_of("client") : kw_str_null(), .piece_count = i % 2 ? 2 : 1, .pieces = {{0, 50}, {60, 40}}};
    e.data_size = i % 2 ? 90 : 50;
    for (size_t k = 0; k < e.data_size; k++) data[k] = (uint8_t)(k * 7 + (size_t)i);
    memcpy(data + 10, "KBRF", 4); /* it may stand anywhere */
    return e;
}

static void same(const struct kb_recording_entry *a, int i) {
    uint8_t data[400], *made = NULL;
    struct kb_recording_entry b = make(i, data);
    assert_int_equal(a->response, b.response);
    assert_int_equal(a->node, b.node);
    assert_true(a->connection == b.connection && a->at_us == b.at_us && a->took_us == b.took_us);
    assert_int_equal(a->api_key, b.api_key);
    assert_int_equal(a->version, b.version);
    assert_int_equal(a->correlation_id, b.correlation_id);
    assert_true(kw_str_eq(a->peer, b.peer));
    assert_int_equal(a->client_id.len, b.client_id.len);
    assert_int_equal(a->piece_count, b.piece_count);
    assert_memory_equal(a->pieces, b.pieces, b.piece_count * sizeof(struct kb_piece));
    assert_int_equal(a->data_size, b.data_size);
    assert_memory_equal(a->data, data, b.data_size);
    const uint8_t *frame = kb_recording_frame(a, &made);
    assert_memory_equal(frame, data, 50);
    if (i % 2) assert_memory_equal(frame + 60, data + 50, 40);
    assert_int_equal(frame[55], 0);
    kw_free(made);
}

enum { COUNT = 6 };

/* Which of the entries are found, as bits; *bad: bytes that are none. */
static unsigned walk(const uint8_t *p, size_t n, size_t *bad) {
    unsigned found = 0;
    *bad = 0;
    for (size_t at = 0; at < n;) {
        struct kb_recording_entry e;
        size_t used;
        const char *why;
        enum kb_recording_found x = kb_recording_next(p + at, n - at, true, &e, &used, &why);
        assert_int_not_equal(x, KB_RECORDING_MORE);
        assert_true(used > 0 && used <= n - at);
        if (x == KB_RECORDING_ENTRY) {
            same(&e, e.node);
            found |= 1u << e.node;
        } else {
            assert_non_null(why);
            *bad += used;
        }
        at += used;
    }
    return found;
}

static size_t make_file(uint8_t *p, size_t ends[COUNT]) {
    size_t n = 0;
    for (int i = 0; i < COUNT; i++) {
        uint8_t data[400];
        struct kb_recording_entry e = make(i, data);
        n += put(p + n, &e, data);
        ends[i] = n;
    }
    return n;
}

static void test_whole_and_cut(void **state) {
    (void)state;
    uint8_t file[4000];
    size_t ends[COUNT], n = make_file(file, ends), bad;
    assert_int_equal(walk(file, n, &bad), (1u << COUNT) - 1);
    assert_int_equal(bad, 0);
    for (size_t cut = 0; cut < n; cut++) {
        unsigned whole = 0;
        size_t sound = 0, used;
        struct kb_recording_entry e;
        const char *why;
        for (int i = 0; i < COUNT; i++)
            if (ends[i] <= cut) whole |= 1u << i, sound = ends[i];
        assert_int_equal(walk(file, cut, &bad), whole);
        assert_int_equal(bad, cut - sound);
        if (cut > sound) assert_int_equal(kb_recording_next(file + sound, cut - sound, false, &e, &used, &why), KB_RECORDING_MORE); /* it may still come */
    }
    /* The end of one was lost amidst others: a full disk, and then room again. */
    for (size_t lost = 1; lost < ends[2] - ends[1]; lost++) {
        uint8_t torn[4000];
        memcpy(torn, file, ends[2] - lost);
        memcpy(torn + ends[2] - lost, file + ends[2], n - ends[2]);
        assert_int_equal(walk(torn, n - lost, &bad), ((1u << COUNT) - 1) & ~4u);
        assert_int_equal(bad, ends[2] - ends[1] - lost);
    }
}

static void test_damage(void **state) {
    (void)state;
    uint8_t file[4000];
    size_t ends[COUNT], n = make_file(file, ends), bad;
    for (size_t at = 0; at < n; at++)
        for (int bit = 0; bit < 8; bit++) {
            int hit = 0;
            while (ends[hit] <= at) hit++;
            file[at] ^= (uint8_t)(1 << bit);
            assert_int_equal(walk(file, n, &bad), ((1u << COUNT) - 1) & ~(1u << hit)); /* the others are found */
            assert_int_equal(bad, ends[hit] - (hit ? ends[hit - 1] : 0));
            file[at] ^= (uint8_t)(1 << bit);
        }
}

/* ---- What is stored ---- */

static void test_large_frames(void **state) {
    (void)state;
    uint8_t *memory = calloc(1, 20 << 20);
    struct kb_part parts[200];
    struct kb_recording_entry e = {0};
    struct kb_recorded r = {.parts = parts, .part_count = 1, .size = 20 << 20};
    parts[0] = (struct kb_part){.p = memory, .len = 20 << 20};
    kb_recording_choose(&r, &e);
    assert_int_equal(e.piece_count, 1);
    assert_int_equal(e.data_size, KB_RECORDING_STORED_MAX);
    /* Memory before files: 10 + 1 bytes of it, and of the files what fits. */
    parts[0] = (struct kb_part){.p = memory, .len = 14};
    parts[1] = (struct kb_part){.len = 6 << 20};
    parts[2] = (struct kb_part){.len = 6 << 20};
    parts[3] = (struct kb_part){.p = memory, .len = 1};
    r = (struct kb_recorded){.response = true, .parts = parts, .part_count = 4, .skip = 4, .size = 11 + (12 << 20)};
    kb_recording_choose(&r, &e);
    assert_int_equal(e.piece_count, 2);
    assert_int_equal(e.data_size, KB_RECORDING_STORED_MAX);
    assert_int_equal(e.pieces[0].len, KB_RECORDING_STORED_MAX - 1);
    assert_int_equal(e.pieces[1].at, 10 + (12 << 20));
    e.frame_size = (uint32_t)r.size;
    assert_int_equal(kb_recording_stored(&e, 10, 12 << 20), KB_RECORDING_STORED_MAX - 11);
    assert_int_equal(kb_recording_stored(&e, KB_RECORDING_STORED_MAX, 5), 0);
    /* More gaps than there are places for pieces: the rest is left out. */
    for (size_t i = 0; i < KW_COUNTOF(parts); i++) parts[i] = (struct kb_part){.p = i % 2 ? memory : NULL, .len = i % 2 ? 5 : 9 << 20};
    r = (struct kb_recorded){.response = true, .parts = parts, .part_count = KW_COUNTOF(parts), .skip = 4};
    kb_recording_choose(&r, &e);
    assert_int_equal(e.piece_count, KB_RECORDING_PIECES_MAX);
    free(memory);
}

/* ---- What a node shows ---- */

struct shown {
    struct kb_recorded r;
    uint8_t bytes[2000];
    char peer[40], client[40];
};
static struct shown seen[100];
static size_t seen_count;
static struct rig r;

static void show(void *ctx, const struct kb_recorded *f) {
    struct shown *s = &seen[seen_count++];
    assert_ptr_equal(ctx, &r);
    s->r = *f;
    snprintf(s->peer, sizeof(s->peer), "%s", f->peer);
    snprintf(s->client, sizeof(s->client), "%.*s", KW_MAX(f->client_id.len, 0), f->client_id.len > 0 ? f->client_id.p : "");
    size_t at = 0, skip = f->skip;
    for (size_t i = 0; i < f->part_count; i++) {
        size_t off = KW_MIN(skip, f->parts[i].len);
        skip -= off;
        assert_non_null(f->parts[i].p);
        assert_true(at + f->parts[i].len - off <= sizeof(s->bytes));
        memcpy(s->bytes + at, f->parts[i].p + off, f->parts[i].len - off);
        at += f->parts[i].len - off;
    }
    assert_int_equal(at, f->size);
}

static void begin(uint64_t seed, const char *faults) {
    seen_count = 0;
    rig_init(&r, seed);
    r.faults = faults;
    r.recorder = (struct kb_recorder){show, &r};
    rig_start(&r);
}

static void test_what_a_node_shows(void **state) {
    (void)state;
    begin(1, NULL);
    struct rig_conn *a = rig_connect(&r), *b = rig_connect(&r);
    assert_int_equal(rig_create(a, "t", 1, NULL, NULL), KE_NONE);
    rig_produce_three(b, "t");
    assert_int_equal(seen_count, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(seen[i].r.response, i % 2);
        assert_int_equal(seen[i].r.connection, 1 + i / 2);
        assert_int_equal(seen[i].r.api_key, i < 2 ? KW_API_CREATE_TOPICS : KW_API_PRODUCE);
        assert_int_equal(seen[i].r.correlation_id, seen[i & ~1u].r.correlation_id);
        assert_string_equal(seen[i].peer, "127.0.0.1:50000");
        assert_string_equal(seen[i].client, "rig");
        if (i % 2) assert_int_equal(kw_load32(seen[i].bytes), seen[i].r.correlation_id);
        if (i % 2 == 0) assert_int_equal(kw_load16(seen[i].bytes), seen[i].r.api_key);
    }
    assert_true(seen[1].r.took_us > 0); /* it went over the disk */
    size_t n;
    uint8_t *p = rig_batch(&r, &(struct rig_batch){.count = 1, .value_size = 5, .pid = -1, .epoch = -1, .seq = -1}, &n);
    rig_request(b, KW_API_PRODUCE, 9, 1, &rig_produce_msg(&r, "t", 0, 0, p, n)->req); /* acks=0 */
    rig_settle(&r);
    assert_int_equal(seen_count, 5);
    assert_false(seen[4].r.response);
    uint8_t odd[] = {0, 0, 0, 12, 0x7f, 0x7f, 0, 0, 0, 0, 0, 9, 0xff, 0xff, 0, 0}; /* nobody knows this API: shown, and the connection closes */
    rig_send(rig_connect(&r), odd, sizeof(odd));
    rig_settle(&r);
    assert_int_equal(seen_count, 6);
    assert_int_equal(seen[5].r.api_key, 0x7f7f);
    assert_int_equal(seen[5].r.client_id.len, -1);
    rig_deinit(&r);
}

static void test_under_fault_rules(void **state) {
    (void)state;
    begin(2, "[{\"api\": \"Produce\", \"nth\": 1, \"drip_bytes_per_s\": 100}, {\"api\": \"Produce\", \"nth\": 1, \"close\": true, \"when\": \"after\"}]");
    struct rig_conn *c = rig_connect(&r);
    assert_int_equal(rig_create(c, "t", 1, NULL, NULL), KE_NONE);
    seen_count = 0;
    rig_produce_three(c, "t");
    assert_int_equal(seen_count, 2); /* once, whole, in however many pieces it goes out */
    assert_true(seen[1].r.response);
    assert_true(seen[1].r.size > 20);
    size_t n;
    uint8_t *p = rig_batch(&r, &(struct rig_batch){.count = 1, .value_size = 5, .pid = -1, .epoch = -1, .seq = -1}, &n);
    rig_request(c, KW_API_PRODUCE, 9, 1, &rig_produce_msg(&r, "t", 0, -1, p, n)->req);
    rig_settle(&r);
    assert_int_equal(seen_count, 3); /* the answer that was never sent is not shown */
    rig_deinit(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_and_cut), cmocka_unit_test(test_damage), cmocka_unit_test(test_large_frames), cmocka_unit_test(test_what_a_node_shows),
        cmocka_unit_test(test_under_fault_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
