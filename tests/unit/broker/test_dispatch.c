/* test_dispatch.c - frames and connections: what is malformed, too large, too many, out of order, idle (PR-02, PR-04, SE-05, SE-08, SE-09,
 * PR-15). */
#include "node_rig.h"

static void start(struct rig *r, uint64_t seed) {
    rig_init(r, seed);
    rig_start(r);
}

static void send_raw(struct rig_conn *c, const void *p, size_t n) {
    rig_send(c, p, n);
    rig_settle(c->rig);
}

static void expect_closed(struct rig *r, const void *p, size_t n, const char *line) {
    struct rig_conn *c = rig_connect(r);
    r->lines[0] = 0;
    send_raw(c, p, n);
    assert_null(c->conn);
    assert_int_equal(c->in_len, 0);
    if (!strstr(r->lines, line)) fail_msg("expected \"%s\" in: %s", line, r->lines);
    rig_pass(r, 2000000);                   /* lines about peers are rate-limited */
    struct rig_conn *next = rig_connect(r); /* the node serves on */
    struct kw_api_versions_request req;
    struct kw_api_versions_response resp;
    kw_msg_init(&kw_api_versions_request_desc, &req);
    rig_call(next, KW_API_API_VERSIONS, 0, &req, &resp);
    assert_int_equal(resp.error_code, KE_NONE);
    rig_close_conns(r);
    assert_int_equal(r->node->net.pool.used_bytes, 0);
}

/* SE-05: the first bytes of another protocol are a nonsense length: closed before anything is allocated, with a hint. */
static void test_SE_05(void **state) {
    (void)state;
    struct rig r;
    start(&r, 1);
    static const uint8_t hello[] = {0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc};
    expect_closed(&r, hello, sizeof(hello), "TLS handshake");
    expect_closed(&r, hello, 4, "TLS handshake"); /* as soon as the length is there */
    expect_closed(&r, "GET / HTTP/1.1\r\n\r\n", 18, "HTTP request");
    expect_closed(&r, "POST /topics HTTP/1.1\r\n", 23, "HTTP request");
    expect_closed(&r, "SSH-2.0-OpenSSH_9.2\r\n", 21, "SSH");
    rig_deinit(&r);
}

static void test_frame_lengths(void **state) {
    (void)state;
    struct rig r;
    start(&r, 2);
    static const uint8_t negative[] = {0xff, 0xff, 0xff, 0xff}, zero[] = {0, 0, 0, 0}, seven[] = {0, 0, 0, 7, 0, 3, 0, 0, 0, 0, 0},
                         over[] = {0x06, 0x40, 0x00, 0x01, 0, 0};
    expect_closed(&r, negative, 4, "a frame of -1 bytes");
    expect_closed(&r, zero, 4, "a frame of 0 bytes");
    expect_closed(&r, seven, sizeof(seven), "a frame of 7 bytes");
    expect_closed(&r, over, sizeof(over), "socket.request.max.bytes=104857600");
    rig_deinit(&r);
}

static void test_headers(void **state) {
    (void)state;
    struct rig r;
    start(&r, 3);
    static const uint8_t unknown_key[] = {0, 0, 0, 10, 0x7f, 0xff, 0, 0, 0, 0, 0, 1, 0xff, 0xff},
                         not_served[] = {0, 0, 0, 10, 0, 11, 0, 5, 0, 0, 0, 1, 0xff, 0xff},
                         too_new[] = {0, 0, 0, 10, 0, 3, 0, 99, 0, 0, 0, 1, 0xff, 0xff},
                         negative[] = {0, 0, 0, 10, 0, 3, 0xff, 0xff, 0, 0, 0, 1, 0xff, 0xff},
                         no_client[] = {0, 0, 0, 8, 0, 3, 0, 1, 0, 0, 0, 1},
                         long_client[] = {0, 0, 0, 12, 0, 3, 0, 1, 0, 0, 0, 1, 0x7f, 0xff, 'a', 'b'};
    expect_closed(&r, unknown_key, sizeof(unknown_key), "API key 32767");
    expect_closed(&r, not_served, sizeof(not_served), "not");
    expect_closed(&r, too_new, sizeof(too_new), "Metadata v99 is not served");
    expect_closed(&r, negative, sizeof(negative), "Metadata v-1");
    expect_closed(&r, no_client, sizeof(no_client), "header does not follow its format");
    expect_closed(&r, long_client, sizeof(long_client), "header does not follow its format");
    rig_deinit(&r);
}

/* PR-02: counts and lengths that the bytes cannot hold are refused against what is left, before anything is allocated. */
static void test_PR_02(void **state) {
    (void)state;
    struct rig r;
    start(&r, 4);
    static const uint8_t array[] = {0,    0,    0,    26, 0, 1, 0, 4, 0, 0, 0, 1,    0xff, 0xff, 0xff,
                                    0xff, 0xff, 0xff, 0,  0, 0, 1, 0, 0, 0, 1, 0x7f, 0xff, 0xff, 0xff},
                         string[] = {0, 0, 0, 18, 0, 3, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0, 0, 0, 1, 0x7f, 0xff, 'x', 'y'},
                         compact[] = {0, 0, 0, 17, 0, 3, 0, 9, 0, 0, 0, 1, 0xff, 0xff, 0, 0xff, 0xff, 0xff, 0xff, 0x0f, 0},
                         nested[] = {0, 0, 0, 39, 0, 0, 0,   3, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0,    1,    0,    0, 0, 1,
                                     0, 0, 0, 1,  0, 1, 't', 0, 0, 0, 1, 0, 0,    0,    0,    0x7f, 0xff, 0xff, 0xff, 1, 2};
    size_t before = r.node->net.pool.used_bytes;
    expect_closed(&r, array, sizeof(array), "does not follow its format");
    expect_closed(&r, string, sizeof(string), "does not follow its format");
    expect_closed(&r, compact, sizeof(compact), "does not follow its format");
    expect_closed(&r, nested, sizeof(nested), "does not follow its format");
    assert_int_equal(r.node->net.pool.used_bytes, before);
    rig_deinit(&r);
}

/* Every prefix of a good request, then silence, or other bytes after it, leaves the node sound. */
static void test_truncated(void **state) {
    (void)state;
    struct rig r;
    start(&r, 5);
    rig_create(rig_connect(&r), "t", 1, NULL, NULL);
    size_t n;
    uint8_t *batch = rig_batch(&r, &(struct rig_batch){.count = 2, .pid = -1, .epoch = -1, .seq = -1}, &n);
    struct kw_out out;
    kw_out_init(&out);
    assert_int_equal(
        kw_frame_request(&out, kw_api_by_key(KW_API_PRODUCE), 9, 1, kw_str_of("x"), &rig_produce_msg(&r, "t", 0, 1, batch, n)->req), KW_OK);
    for (size_t cut = 0; cut < out.len; cut++) {
        struct rig_conn *c = rig_connect(&r);
        uint8_t *p = kw_arena_dup(&r.arena, out.p, out.len);
        rig_send(c, p, cut); /* and goes away */
        rig_close_conns(&r);
        if (cut < 12) continue;
        kw_store32(p, (uint32_t)(cut - 4)); /* a whole frame with a cut body */
        c = rig_connect(&r);
        rig_send(c, p, cut);
        rig_settle(&r);
        rig_close_conns(&r);
    }
    kw_out_deinit(&out);
    rig_settle(&r);
    assert_int_equal(r.node->net.pool.used_bytes, 0);
    struct rig_conn *c = rig_connect(&r);
    assert_int_equal(rig_produce(c, "t", (struct rig_batch){.count = 1}).error_code, KE_NONE);
    rig_deinit(&r);
}

/* PR-04: ApiVersions of a version that is too new is answered in version 0, with error 35 and the list; the connection lives. */
static void test_PR_04(void **state) {
    (void)state;
    struct rig r;
    start(&r, 6);
    struct rig_conn *c = rig_connect(&r);
    static const uint8_t too_new[] = {0, 0, 0, 14, 0, 18, 0, 77, 0, 0, 0, 42, 0, 1, 'x', 0, 9, 9};
    send_raw(c, too_new, sizeof(too_new));
    struct kw_api_versions_response resp;
    assert_true(rig_response(c, KW_API_API_VERSIONS, 0, 42, &resp));
    assert_int_equal(resp.error_code, KE_UNSUPPORTED_VERSION);
    bool found = false;
    for (int32_t i = 0; i < resp.api_keys.n; i++) {
        if (resp.api_keys.v[i].api_key == KW_API_API_VERSIONS) found = resp.api_keys.v[i].max_version == 5;
        if (resp.api_keys.v[i].api_key == KW_API_PRODUCE) assert_int_equal(resp.api_keys.v[i].min_version, 0);
    }
    assert_true(found);
    assert_non_null(c->conn);
    struct kw_api_versions_request req;
    for (int16_t v = 0; v <= 5; v++) {
        kw_msg_init(&kw_api_versions_request_desc, &req);
        req.client_software_name = req.client_software_version = kw_str_of(v >= 3 ? "rig" : "");
        rig_call(c, KW_API_API_VERSIONS, v, &req, &resp);
        assert_int_equal(resp.error_code, KE_NONE);
    }
    assert_true(resp.finalized_features.n > 0);
    req.client_software_name = kw_str_of("no spaces, please");
    rig_call(c, KW_API_API_VERSIONS, 3, &req, &resp);
    assert_int_equal(resp.error_code, KE_INVALID_REQUEST);
    rig_deinit(&r);
}

/* Answers leave in the order of the requests, whatever is ready first. */
static void test_order(void **state) {
    (void)state;
    struct rig r;
    start(&r, 7);
    struct rig_conn *c = rig_connect(&r);
    rig_create(c, "t", 1, NULL, NULL);
    size_t n;
    struct kw_api_versions_request av;
    kw_msg_init(&kw_api_versions_request_desc, &av);
    for (int32_t i = 0; i < 10; i++) {
        uint8_t *p = rig_batch(&r, &(struct rig_batch){.count = 1, .pid = -1, .epoch = -1, .seq = -1}, &n);
        rig_request(c, KW_API_PRODUCE, 9, 10 * i + 1, &rig_produce_msg(&r, "t", 0, -1, p, n)->req); /* waits for the disk */
        rig_request(c, KW_API_API_VERSIONS, 0, 10 * i + 2, &av);                                    /* could be answered at once */
        rig_request(c, KW_API_FETCH, 11, 10 * i + 3, &rig_fetch_msg(&r, &RIG_FETCH(.topic = "t", .offset = i, .max_wait_ms = 50))->req);
    }
    rig_pass(&r, 10000000);
    for (int32_t i = 0; i < 10; i++) {
        struct kw_produce_response p;
        struct kw_api_versions_response a;
        struct kw_fetch_response f;
        assert_true(rig_response(c, KW_API_PRODUCE, 9, 10 * i + 1, &p));
        assert_int_equal(p.responses.v[0].partition_responses.v[0].base_offset, i);
        assert_true(rig_response(c, KW_API_API_VERSIONS, 0, 10 * i + 2, &a));
        assert_true(rig_response(c, KW_API_FETCH, 11, 10 * i + 3, &f));
        assert_true(f.responses.v[0].partitions.v[0].records.len > 0); /* sees the produce that was sent before it */
    }
    rig_deinit(&r);
}

static void test_pipelined_produce_is_one_batch_of_writes(void **state) {
    (void)state;
    struct rig r;
    start(&r, 8);
    struct rig_conn *c = rig_connect(&r);
    rig_create(c, "t", 1, NULL, NULL);
    for (int32_t i = 0; i < 20; i++) {
        size_t n;
        uint8_t *p = rig_batch(&r, &(struct rig_batch){.count = 3, .pid = -1, .epoch = -1, .seq = -1}, &n);
        rig_request(c, KW_API_PRODUCE, 9, i, &rig_produce_msg(&r, "t", 0, 1, p, n)->req);
    }
    assert_int_equal(c->conn->open, 20); /* all are under way at once */
    rig_settle(&r);
    for (int32_t i = 0; i < 20; i++) {
        struct kw_produce_response p;
        assert_true(rig_response(c, KW_API_PRODUCE, 9, i, &p));
        assert_int_equal(p.responses.v[0].partition_responses.v[0].base_offset, 3 * i);
    }
    rig_deinit(&r);
}

/* SE-08: 10,000 large requests on one connection whose answers nobody reads: memory stays bounded, others are served. */
static void test_SE_08(void **state) {
    (void)state;
    struct rig r;
    start(&r, 9);
    struct rig_conn *c = rig_connect(&r), *other = rig_connect(&r);
    rig_create(other, "t", 1, NULL, NULL);
    size_t n;
    uint8_t *p = rig_batch(&r, &(struct rig_batch){.count = 100, .value_size = 3000, .pid = -1, .epoch = -1, .seq = -1}, &n);
    struct kw_out out;
    kw_out_init(&out);
    assert_int_equal(
        kw_frame_request(&out, kw_api_by_key(KW_API_PRODUCE), 9, 1, kw_str_of("x"), &rig_produce_msg(&r, "t", 0, 1, p, n)->req), KW_OK);
    c->stuck = true;
    size_t most = 0, whole = 0;
    for (int i = 0; i < 10000; i++) {
        size_t sent = rig_send(c, out.p, out.len);
        most = KW_MAX(most, r.node->net.pool.used_bytes);
        assert_true(c->conn->request_count <= 64);
        if (i % 100 == 99) rig_pass(&r, 100000);
        if (sent < out.len) break; /* the node does not read on: the peer is stuck */
        whole++;
        for (struct rig_conn *k = r.conns; k; k = k->next)
            while (k != c && k->conn && kb_conn_wants_close(k->conn)) fail();
    }
    assert_true(most <= r.node->net.memory_max + (4u << 20));
    assert_true(whole > 10);
    assert_int_equal(rig_produce(other, "t", (struct rig_batch){.count = 1}).error_code, KE_NONE);
    kw_out_deinit(&out);
    rig_deinit(&r);
}

/* Unsent answers stop the reading of requests. */
static void test_slow_reader(void **state) {
    (void)state;
    struct rig r;
    start(&r, 10);
    struct rig_conn *c = rig_connect(&r), *slow = rig_connect(&r);
    rig_create(c, "t", 1, NULL, NULL);
    for (int i = 0; i < 12; i++) rig_produce(c, "t", (struct rig_batch){.count = 10, .value_size = 90000});
    slow->stuck = true;
    int sent = 0;
    for (; sent < 1000; sent++) {
        if (!kb_conn_wants_read(slow->conn)) break;
        rig_request(slow, KW_API_FETCH, 11, sent,
                    &rig_fetch_msg(&r, &RIG_FETCH(.topic = "t", .max_bytes = 8 << 20, .part_max_bytes = 8 << 20))->req);
        rig_settle(&r);
    }
    assert_true(sent < 100);
    assert_true(slow->conn->out_bytes < (32u << 20));
    slow->stuck = false;
    kb_conn_ready(slow->conn);
    rig_settle(&r);
    for (int i = 0; i < sent; i++) {
        struct kw_fetch_response f;
        assert_true(rig_response(slow, KW_API_FETCH, 11, i, &f));
    }
    assert_true(kb_conn_wants_read(slow->conn));
    rig_deinit(&r);
}

/* SE-09: silent connections are closed at the idle limit; those that talk or wait for an answer stay. */
static void test_SE_09(void **state) {
    (void)state;
    struct rig r;
    rig_init(&r, 11);
    rig_set(&r, "connections.max.idle.ms", "10000");
    rig_start(&r);
    struct rig_conn *talks = rig_connect(&r), *silent[1000];
    rig_create(talks, "t", 1, NULL, NULL);
    for (size_t i = 0; i < KW_COUNTOF(silent); i++) silent[i] = rig_connect(&r);
    rig_send(silent[7], "\0\0", 2); /* half a length */
    struct kw_api_versions_request req;
    struct kw_api_versions_response resp;
    kw_msg_init(&kw_api_versions_request_desc, &req);
    for (int i = 0; i < 4; i++) {
        rig_call(talks, KW_API_API_VERSIONS, 0, &req, &resp);
        rig_pass(&r, 4000000);
    }
    for (size_t i = 0; i < KW_COUNTOF(silent); i++) assert_null(silent[i]->conn);
    assert_non_null(talks->conn);
    assert_int_equal(r.node->net.conn_count, 1);
    rig_request(talks, KW_API_FETCH, 11, 5, &rig_fetch_msg(&r, &RIG_FETCH(.topic = "t", .max_wait_ms = 25000))->req);
    rig_pass(&r, 30000000);
    struct kw_fetch_response f;
    assert_true(rig_response(talks, KW_API_FETCH, 11, 5, &f));
    rig_deinit(&r);
}

static void test_connection_limit(void **state) {
    (void)state;
    struct rig r;
    rig_init(&r, 12);
    rig_set(&r, "max.connections", "3");
    rig_start(&r);
    struct rig_conn *c = NULL;
    for (int i = 0; i < 3; i++) assert_non_null((c = rig_connect(&r))->conn);
    assert_null(rig_connect(&r)->conn);
    assert_non_null(strstr(r.lines, "max.connections=3"));
    kb_conn_closed(c->conn, r.now);
    c->conn = NULL;
    assert_non_null(rig_connect(&r)->conn);
    rig_deinit(&r);
}

static void test_connection_limit_per_address(void **state) {
    (void)state;
    struct rig r;
    rig_init(&r, 15);
    rig_set(&r, "max.connections.per.ip", "2");
    rig_start(&r);
    struct rig_conn *c = rig_connect(&r);
    assert_non_null(c->conn);
    assert_non_null(rig_connect(&r)->conn);
    assert_null(rig_connect(&r)->conn);
    assert_non_null(strstr(r.lines, "max.connections.per.ip=2"));
    struct kb_conn_info other = {.local_host = "127.0.0.1", .local_port = 9092, .peer = "[::1]:50000"};
    struct kb_conn *o = kb_node_accept(r.node, &other, NULL, r.now);
    assert_non_null(o);
    kb_conn_closed(o, r.now);
    kb_conn_closed(c->conn, r.now);
    c->conn = NULL;
    assert_non_null(rig_connect(&r)->conn);
    rig_deinit(&r);
}

static void test_stopping_refuses(void **state) {
    (void)state;
    struct rig r;
    start(&r, 13);
    struct rig_conn *c = rig_connect(&r);
    rig_create(c, "t", 1, NULL, NULL);
    size_t n;
    uint8_t *p = rig_batch(&r, &(struct rig_batch){.count = 1, .pid = -1, .epoch = -1, .seq = -1}, &n);
    rig_request(c, KW_API_PRODUCE, 9, 1, &rig_produce_msg(&r, "t", 0, -1, p, n)->req);
    kb_node_stop(r.node, r.now);
    assert_null(rig_connect(&r)->conn);
    rig_settle(&r);
    struct kw_produce_response resp; /* what was under way is answered, and the connection closes */
    assert_true(rig_response(c, KW_API_PRODUCE, 9, 1, &resp));
    assert_int_equal(resp.responses.v[0].partition_responses.v[0].error_code, KE_NONE);
    assert_null(c->conn);
    assert_int_equal(kb_node_state(r.node), KB_NODE_STOPPED);
    rig_free_node(&r);
    rig_deinit(&r);
}

/* Bytes may arrive in any pieces. */
static void test_any_pieces(void **state) {
    (void)state;
    struct rig r;
    start(&r, 14);
    struct rig_conn *c = rig_connect(&r);
    rig_create(c, "t", 1, NULL, NULL);
    struct kw_rng rng;
    kw_rng_init(&rng, 14);
    int64_t offset = 0;
    for (int round = 0; round < 60; round++) {
        struct kw_out out;
        int count = (int)kw_rng_below(&rng, 4) + 1;
        kw_out_init(&out);
        for (int i = 0; i < count; i++) {
            size_t n, size = kw_rng_below(&rng, 3) == 0 ? kw_rng_below(&rng, 90000) : kw_rng_below(&rng, 2000);
            uint8_t *p = rig_batch(&r, &(struct rig_batch){.count = 1, .value_size = size, .pid = -1, .epoch = -1, .seq = -1}, &n);
            assert_int_equal(
                kw_frame_request(&out, kw_api_by_key(KW_API_PRODUCE), 9, i, kw_str_of("x"), &rig_produce_msg(&r, "t", 0, 1, p, n)->req),
                KW_OK);
        }
        for (size_t at = 0; at < out.len;) {
            size_t piece = (size_t)kw_rng_below(&rng, round % 2 ? 40000 : 300) + 1;
            piece = KW_MIN(piece, out.len - at);
            assert_int_equal(rig_send(c, out.p + at, piece), piece);
            at += piece;
        }
        rig_settle(&r);
        for (int i = 0; i < count; i++) {
            struct kw_produce_response resp;
            assert_true(rig_response(c, KW_API_PRODUCE, 9, i, &resp));
            assert_int_equal(resp.responses.v[0].partition_responses.v[0].base_offset, offset++);
        }
        kw_out_deinit(&out);
        kw_arena_reset(&r.arena);
    }
    assert_int_equal(r.node->net.pool.used_bytes, 0);
    assert_null(c->conn->blk);
    rig_deinit(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_SE_05),
        cmocka_unit_test(test_frame_lengths),
        cmocka_unit_test(test_headers),
        cmocka_unit_test(test_PR_02),
        cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_PR_04),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_pipelined_produce_is_one_batch_of_writes),
        cmocka_unit_test(test_SE_08),
        cmocka_unit_test(test_slow_reader),
        cmocka_unit_test(test_SE_09),
        cmocka_unit_test(test_connection_limit),
        cmocka_unit_test(test_connection_limit_per_address),
        cmocka_unit_test(test_stopping_refuses),
        cmocka_unit_test(test_any_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
