/* test_link.c - connections that a node opens: order of answers, bytes in any pieces, what ends a link and what is left of its calls. */
#include "node_rig.h"

#include "link.h"

/* The other end, and the shell in between: at most one dial at a time is connected. */
struct peer {
    struct rig rig;
    struct kb_link *l;
    struct kb_dial *dial;
    uint8_t got[1 << 16]; /* requests, as they came */
    size_t got_len, parsed;
    int opened, ended;
    enum kb_link_end how;
    bool dial_again, free_in_ended;
};
struct test_call {
    struct kb_call c;
    struct peer *p;
    int done;
    kw_err err;
    int64_t first; /* of the answer */
    struct kw_blk *kept;
    bool free_link, call_again;
    struct test_call *cancels;
    int order;
};
static int order;

static void opened(void *ctx, struct kb_link *l, struct kb_now now) {
    struct peer *p = ctx;
    (void)l, (void)now;
    p->opened++;
}

static void ended(void *ctx, struct kb_link *l, enum kb_link_end how, struct kb_now now) {
    struct peer *p = ctx;
    p->ended++;
    p->how = how;
    assert_true(kb_link_is_idle(l));
    assert_int_equal(kb_link_call_count(l), 0);
    if (p->dial_again) assert_int_equal(kb_link_dial(l, now), KW_OK);
    if (p->free_in_ended) {
        kb_link_free(l);
        p->l = NULL;
    }
}

static void peer_init(struct peer *p, uint64_t seed) {
    memset(p, 0, sizeof(*p));
    rig_init(&p->rig, seed);
    rig_start(&p->rig);
    struct kb_link_options o = {.node = p->rig.node, .host = "peer.example", .port = 1234, .opened = opened, .ended = ended, .ctx = p};
    assert_int_equal(kb_link_new(&o, &p->l), KW_OK);
    assert_true(kb_link_is_idle(p->l));
}

/* The shell's part: takes what is ready. */
static void serve(struct peer *p) {
    kb_node_tick(p->rig.node, p->rig.now);
    for (struct kb_dial *d; (d = kb_node_next_dial(p->rig.node));) {
        const char *host;
        uint16_t port;
        kb_dial_address(d, &host, &port);
        assert_string_equal(host, "peer.example");
        assert_int_equal(port, 1234);
        if (kb_dial_wants_close(d)) {
            if (d == p->dial) p->dial = NULL;
            kb_dial_ended(d, KB_LINK_CLOSED, p->rig.now);
            continue;
        }
        if (!kb_dial_shell(d)) {
            assert_null(p->dial);
            p->dial = d;
            kb_dial_set_shell(d, p);
        }
        struct kb_iov iov[3];
        for (size_t n; (n = kb_dial_send(d, iov, 3)) > 0;) {
            size_t sum = 0;
            for (size_t i = 0; i < n; i++) {
                memcpy(p->got + p->got_len, iov[i].p, iov[i].len);
                p->got_len += iov[i].len;
                sum += iov[i].len;
            }
            kb_dial_sent(d, sum, p->rig.now);
        }
    }
}

static void dial(struct peer *p) {
    assert_int_equal(kb_link_dial(p->l, p->rig.now), KW_OK);
    assert_int_equal(kb_link_dial(p->l, p->rig.now), KW_EBUSY);
    serve(p);
    kb_dial_connected(p->dial, p->rig.now);
    assert_true(kb_link_is_open(p->l));
    serve(p);
}

static void peer_deinit(struct peer *p) {
    kb_link_free(p->l);
    serve(p);
    assert_null(p->dial);
    rig_deinit(&p->rig);
}

static void done(struct kb_call *c, kw_err err, struct kw_in *body, struct kw_blk *blk, struct kb_now now) {
    struct test_call *t = c->ctx;
    assert_false(kb_call_is_under_way(c));
    t->done++;
    t->err = err;
    t->order = ++order;
    if (!err) {
        struct kw_allocate_producer_ids_response r;
        struct kw_arena a;
        kw_arena_init(&a, 0);
        assert_int_equal(kw_decode(&kw_allocate_producer_ids_response_desc, 0, body, &a, &r), KW_OK);
        assert_int_equal(kw_in_left(body), 0);
        kw_arena_deinit(&a);
        t->first = r.producer_id_start;
        t->kept = kw_blk_ref(blk);
    } else {
        assert_null(body);
        assert_null(blk);
    }
    if (t->cancels) kb_call_cancel(&t->cancels->c);
    if (t->call_again) {
        t->call_again = false;
        struct kw_allocate_producer_ids_request rq = {.broker_id = 1};
        kw_err again = kb_link_call(t->p->l, c, &kw_allocate_producer_ids_request_desc, 0, &rq, 1000000, now);
        assert_int_equal(again, err ? KW_EBUSY : KW_OK);
    }
    if (t->free_link) {
        kb_link_free(t->p->l);
        t->p->l = NULL;
    }
}

static kw_err call(struct peer *p, struct test_call *t, int64_t timeout_us) {
    *t = (struct test_call){.c = {.done = done, .ctx = t}, .p = p};
    struct kw_allocate_producer_ids_request rq = {.broker_id = 7, .broker_epoch = 9};
    return kb_link_call(p->l, &t->c, &kw_allocate_producer_ids_request_desc, 0, &rq, timeout_us, p->rig.now);
}

/* The next request that came; its correlation id. */
static int32_t next_request(struct peer *p) {
    assert_true(p->got_len - p->parsed >= 4);
    size_t size = kw_load32(p->got + p->parsed);
    assert_true(p->got_len - p->parsed >= size + 4);
    struct kw_in in;
    struct kw_frame_request r;
    kw_in_init(&in, p->got + p->parsed + 4, size);
    assert_int_equal(kw_frame_parse_request(&in, &r), KW_OK);
    assert_int_equal(r.api_key, KW_API_ALLOCATE_PRODUCER_IDS);
    assert_true(kw_str_eq(r.client_id, kw_str_of("kbroker-0")));
    p->parsed += size + 4;
    return r.correlation_id;
}

static size_t answer_frame(int32_t correlation, int64_t first, uint8_t *buf, size_t cap) {
    struct kw_out out;
    struct kw_allocate_producer_ids_response r = {.producer_id_start = first, .producer_id_len = 1000};
    kw_out_init_fixed(&out, buf, cap);
    assert_int_equal(kw_frame_response(&out, kw_api_by_key(KW_API_ALLOCATE_PRODUCER_IDS), 0, correlation, &r), KW_OK);
    return out.len;
}

/* In pieces of `piece` bytes. */
static void feed(struct peer *p, const uint8_t *b, size_t n, size_t piece) {
    while (n > 0 && p->dial) {
        uint8_t *to;
        size_t room;
        kb_dial_recv_buf(p->dial, &to, &room);
        if (room == 0) return;
        size_t k = KW_MIN(KW_MIN(room, piece), n);
        memcpy(to, b, k);
        kb_dial_received(p->dial, k, p->rig.now);
        b += k;
        n -= k;
    }
}

static void answer_next(struct peer *p, int64_t first) {
    uint8_t b[128];
    feed(p, b, answer_frame(next_request(p), first, b, sizeof(b)), sizeof(b));
}

static void drop_kept(struct test_call *t, size_t n) {
    for (size_t i = 0; i < n; i++) kw_blk_unref(t[i].kept);
}

/* ---- Answers ---- */

static void test_pipelined_and_in_pieces(void **state) {
    (void)state;
    for (size_t piece = 1; piece < 80; piece += piece < 8 ? 1 : 17) {
        struct peer p;
        struct test_call t[5];
        uint8_t b[512];
        size_t n = 0;
        peer_init(&p, piece);
        assert_int_equal(kb_link_dial(p.l, p.rig.now), KW_OK);
        for (int i = 0; i < 3; i++) assert_int_equal(call(&p, &t[i], 1000000), KW_OK); /* before it is connected */
        serve(&p);
        assert_int_equal(p.got_len, 0);
        kb_dial_connected(p.dial, p.rig.now);
        assert_int_equal(p.opened, 1);
        for (int i = 3; i < 5; i++) assert_int_equal(call(&p, &t[i], 1000000), KW_OK);
        serve(&p);
        assert_int_equal(kb_link_call_count(p.l), 5);
        for (int i = 0; i < 5; i++) n += answer_frame(next_request(&p), 100 + i, b + n, sizeof(b) - n);
        assert_int_equal(p.parsed, p.got_len);
        feed(&p, b, n, piece);
        for (int i = 0; i < 5; i++) {
            assert_int_equal(t[i].done, 1);
            assert_int_equal(t[i].first, 100 + i);
            if (i > 0) assert_true(t[i].order > t[i - 1].order);
        }
        drop_kept(t, 5);
        assert_int_equal(p.ended, 0);
        peer_deinit(&p);
    }
}

/* An answer over what a small block holds comes in a block of its own, that outlives the link; small ones that are kept do not change. */
static void test_large_answer(void **state) {
    (void)state;
    static const size_t sizes[] = {3000, 4090, 4096, 5000, 32 << 10, 100000, 3 << 20};
    for (size_t i = 0; i < KW_COUNTOF(sizes); i++) {
        struct peer p;
        struct test_call t[3];
        peer_init(&p, 50 + i);
        dial(&p);
        for (int k = 0; k < 3; k++) assert_int_equal(call(&p, &t[k], 1000000), KW_OK);
        serve(&p);
        answer_next(&p, 1);
        /* the same answer with an unknown tagged field that makes it long */
        uint8_t *b = malloc(sizes[i] + 64);
        size_t n = answer_frame(next_request(&p), 2, b, 64) - 1;
        struct kw_out out;
        kw_out_init_fixed(&out, b + n, 16);
        kw_out_uvarint(&out, 1);
        kw_out_uvarint(&out, 9000);
        kw_out_uvarint(&out, (uint32_t)sizes[i]);
        n += out.len;
        memset(b + n, 'x', sizes[i]);
        n += sizes[i];
        kw_store32(b, (uint32_t)n - 4);
        feed(&p, b, n, 1000);
        answer_next(&p, 3);
        for (int k = 0; k < 3; k++) assert_true(t[k].done == 1 && t[k].err == KW_OK && t[k].first == k + 1);
        kb_link_free(p.l);
        p.l = NULL;
        serve(&p);
        bool own = t[1].kept != t[0].kept;
        assert_int_equal(own, n > 4096 - 200);
        if (own) assert_memory_equal(t[1].kept->data, b, n);
        assert_int_equal(p.rig.node->net.pool.used_bytes > 0, n > (32 << 10));
        drop_kept(t, 3);
        free(b);
        peer_deinit(&p);
    }
}

static void test_called_again_from_done(void **state) {
    (void)state;
    struct peer p;
    struct test_call t;
    peer_init(&p, 3);
    dial(&p);
    assert_int_equal(call(&p, &t, 1000000), KW_OK);
    t.call_again = true;
    serve(&p);
    answer_next(&p, 1);
    assert_int_equal(t.done, 1);
    drop_kept(&t, 1);
    t.kept = NULL;
    serve(&p);
    answer_next(&p, 2);
    assert_int_equal(t.done, 2);
    assert_int_equal(t.first, 2);
    drop_kept(&t, 1);
    peer_deinit(&p);
}

/* ---- What breaks a link ---- */

static void expect_broken(uint64_t seed, void (*harm)(struct peer *p)) {
    struct peer p;
    struct test_call t[2];
    peer_init(&p, seed);
    dial(&p);
    for (int i = 0; i < 2; i++) assert_int_equal(call(&p, &t[i], 1000000), KW_OK);
    serve(&p);
    harm(&p);
    assert_int_equal(p.ended, 1);
    assert_int_equal(p.how, KB_LINK_BROKEN);
    for (int i = 0; i < 2; i++) assert_true(t[i].done == 1 && t[i].err == KW_EIO);
    assert_non_null(strstr(p.rig.lines, "peer.example:1234"));
    assert_true(kb_link_is_idle(p.l));
    uint8_t *to;
    size_t room;
    kb_dial_recv_buf(p.dial, &to, &room); /* nothing more is read before the shell has closed */
    assert_int_equal(room, 0);
    serve(&p);
    assert_null(p.dial);
    peer_deinit(&p);
}

static void wrong_correlation(struct peer *p) {
    uint8_t b[128];
    feed(p, b, answer_frame(next_request(p) + 1, 1, b, sizeof(b)), 7);
}
static void oversize(struct peer *p) {
    static const uint8_t b[] = {0x10, 0, 0, 0};
    feed(p, b, 4, 4);
}
static void negative_length(struct peer *p) {
    static const uint8_t b[] = {0xff, 0xff, 0xff, 0xff};
    feed(p, b, 4, 1);
}
static void too_short(struct peer *p) {
    static const uint8_t b[] = {0, 0, 0, 3, 0, 0, 0};
    feed(p, b, 7, 7);
}

static void test_broken(void **state) {
    (void)state;
    expect_broken(10, wrong_correlation);
    expect_broken(11, oversize);
    expect_broken(12, negative_length);
    expect_broken(13, too_short);
}

static void test_unasked_answers(void **state) {
    (void)state;
    struct peer p;
    struct test_call t;
    uint8_t b[128];
    peer_init(&p, 14);
    dial(&p);
    size_t n = answer_frame(0, 1, b, sizeof(b));
    feed(&p, b, n, n);
    assert_true(p.ended == 1 && p.how == KB_LINK_BROKEN);
    serve(&p);
    dial(&p);
    assert_int_equal(call(&p, &t, 1000000), KW_OK); /* queued and not sent: an answer cannot be to it */
    feed(&p, b, n, n);
    assert_true(p.ended == 2 && p.how == KB_LINK_BROKEN && t.err == KW_EIO);
    peer_deinit(&p);
}

/* ---- Ends ---- */

static void test_deadlines(void **state) {
    (void)state;
    struct peer p;
    struct test_call t[3];
    peer_init(&p, 20);
    assert_int_equal(kb_link_dial(p.l, p.rig.now), KW_OK); /* connecting takes at most a second, however long a call may */
    assert_int_equal(call(&p, &t[0], 5000000), KW_OK);
    serve(&p);
    p.rig.now.mono_us += 999999;
    serve(&p);
    assert_int_equal(p.ended, 0);
    p.rig.now.mono_us += 1;
    serve(&p);
    assert_true(p.ended == 1 && p.how == KB_LINK_TIMED_OUT && t[0].err == KW_EIO);
    serve(&p);
    dial(&p);
    assert_int_equal(call(&p, &t[0], 300000), KW_OK);
    assert_int_equal(call(&p, &t[1], 200000), KW_OK); /* the earlier deadline of the later call */
    assert_int_equal(call(&p, &t[2], 100000), KW_OK);
    kb_call_cancel(&t[2].c);                          /* nobody waits; but an answer is due all the same */
    serve(&p);
    answer_next(&p, 1);
    p.rig.now.mono_us += 100000;
    serve(&p);
    assert_true(p.ended == 2 && p.how == KB_LINK_TIMED_OUT);
    assert_true(t[0].err == KW_OK && t[0].done == 1 && t[1].err == KW_EIO && t[1].done == 1 && t[2].done == 0);
    drop_kept(t, 1);
    serve(&p);
    dial(&p); /* an answered call's deadline is nobody's */
    p.got_len = p.parsed = 0;
    assert_int_equal(call(&p, &t[0], 100000), KW_OK);
    serve(&p);
    answer_next(&p, 1);
    assert_int_equal(call(&p, &t[1], 300000), KW_OK);
    serve(&p);
    p.rig.now.mono_us += 299999;
    serve(&p);
    assert_int_equal(p.ended, 2);
    p.rig.now.mono_us += 1;
    serve(&p);
    assert_true(p.ended == 3 && p.how == KB_LINK_TIMED_OUT);
    drop_kept(t, 1);
    peer_deinit(&p);
}

static void test_ended_by_the_shell(void **state) {
    (void)state;
    static const enum kb_link_end hows[] = {KB_LINK_REFUSED, KB_LINK_UNREACHABLE, KB_LINK_CLOSED_BY_PEER, KB_LINK_RESET};
    for (size_t i = 0; i < KW_COUNTOF(hows); i++) {
        struct peer p;
        struct test_call t;
        peer_init(&p, 30 + i);
        assert_int_equal(call(&p, &t, 1000000), KW_EBUSY);
        assert_int_equal(kb_link_dial(p.l, p.rig.now), KW_OK);
        serve(&p);
        if (i >= 2) kb_dial_connected(p.dial, p.rig.now);
        assert_int_equal(call(&p, &t, 1000000), KW_OK);
        struct kb_dial *d = p.dial;
        p.dial = NULL;
        p.dial_again = i % 2 == 0;
        kb_dial_ended(d, hows[i], p.rig.now);
        assert_true(p.ended == 1 && p.how == hows[i] && t.err == KW_EIO && t.done == 1);
        assert_string_not_equal(kb_link_end_text(hows[i]), "");
        assert_int_equal(kb_link_is_idle(p.l), !p.dial_again);
        serve(&p);
        assert_int_equal(p.dial != NULL, p.dial_again);
        p.dial_again = false;
        peer_deinit(&p);
    }
}

static void test_close(void **state) {
    (void)state;
    for (int connected = 0; connected < 2; connected++) {
        struct peer p;
        struct test_call t;
        peer_init(&p, 40);
        kb_link_close(p.l, p.rig.now); /* nothing to close */
        serve(&p);
        assert_int_equal(p.ended, 0);
        assert_int_equal(kb_link_dial(p.l, p.rig.now), KW_OK);
        serve(&p);
        if (connected) kb_dial_connected(p.dial, p.rig.now);
        assert_int_equal(call(&p, &t, 1000000), KW_OK);
        kb_link_close(p.l, p.rig.now);
        assert_true(t.done == 0 && p.ended == 0 && !kb_link_is_idle(p.l));
        struct test_call late;
        assert_int_equal(call(&p, &late, 1000000), KW_EBUSY);
        assert_int_equal(kb_link_dial(p.l, p.rig.now), KW_EBUSY);
        p.dial_again = connected;
        struct kb_dial *d = p.dial;
        p.dial = NULL; /* the new one may come before the old one has gone */
        kb_node_tick(p.rig.node, p.rig.now);
        assert_true(t.done == 1 && t.err == KW_EIO && p.ended == 1 && p.how == KB_LINK_CLOSED);
        assert_true(kb_dial_wants_close(d));
        serve(&p);
        assert_int_equal(p.dial != NULL, connected);
        p.dial_again = false;
        peer_deinit(&p);
    }
}

/* Closed before the shell has seen it: it never does. */
static void test_closed_unseen(void **state) {
    (void)state;
    struct peer p;
    peer_init(&p, 45);
    assert_int_equal(kb_link_dial(p.l, p.rig.now), KW_OK);
    kb_link_close(p.l, p.rig.now);
    assert_null(kb_node_next_dial(p.rig.node));
    serve(&p);
    assert_true(p.ended == 1 && kb_link_is_idle(p.l));
    peer_deinit(&p);
}

static void test_cancel(void **state) {
    (void)state;
    struct peer p;
    struct test_call t[3];
    peer_init(&p, 46);
    dial(&p);
    for (int i = 0; i < 3; i++) assert_int_equal(call(&p, &t[i], 1000000), KW_OK);
    serve(&p);
    kb_call_cancel(&t[0].c);
    assert_false(kb_call_is_under_way(&t[0].c));
    kb_call_cancel(&t[0].c);
    t[1].cancels = &t[2];
    for (int i = 0; i < 3; i++) answer_next(&p, i);
    assert_true(t[0].done == 0 && t[1].done == 1 && t[2].done == 0);
    drop_kept(t, 3);
    for (int i = 0; i < 2; i++) assert_int_equal(call(&p, &t[i], 1000000), KW_OK);
    t[0].cancels = &t[1]; /* while both are being failed */
    serve(&p);
    struct kb_dial *d = p.dial;
    p.dial = NULL;
    kb_dial_ended(d, KB_LINK_RESET, p.rig.now);
    assert_true(t[0].done == 1 && t[1].done == 0);
    peer_deinit(&p);
}

/* ---- Freed from within ---- */

static void test_freed_inside(void **state) {
    (void)state;
    for (int way = 0; way < 5; way++) {
        struct peer p;
        struct test_call t[3];
        uint8_t b[512];
        size_t n = 0;
        peer_init(&p, 60);
        dial(&p);
        for (int i = 0; i < 3; i++) assert_int_equal(call(&p, &t[i], 1000000), KW_OK);
        t[1].free_link = way < 4;
        p.free_in_ended = way == 4;
        serve(&p);
        if (way == 0) { /* in the middle of answers */
            for (int i = 0; i < 3; i++) n += answer_frame(next_request(&p), i, b + n, sizeof(b) - n);
            feed(&p, b, n, n);
        } else if (way == 1) { /* of failing them, by a deadline */
            p.rig.now.mono_us += 1000000;
            serve(&p);
        } else if (way == 2) { /* by the shell */
            struct kb_dial *d = p.dial;
            p.dial = NULL;
            kb_dial_ended(d, KB_LINK_RESET, p.rig.now);
        } else { /* by a close */
            kb_link_close(p.l, p.rig.now);
            serve(&p);
        }
        assert_null(p.l);
        assert_int_equal(p.ended, way == 4);
        assert_true(t[0].done == 1 && t[1].done == 1 && t[2].done == (way == 4));
        assert_false(kb_call_is_under_way(&t[2].c));
        drop_kept(t, 3);
        peer_deinit(&p);
    }
}

/* ---- Limits and memory ---- */

static void test_limits(void **state) {
    (void)state;
    struct peer p;
    peer_init(&p, 70);
    dial(&p);
    struct test_call *t = calloc(5000, sizeof(*t));
    int n = 0;
    while (n < 5000 && call(&p, &t[n], 1000000) == KW_OK) n++;
    assert_int_equal(n, 4096);
    assert_int_equal(call(&p, &t[n], 1000000), KW_ELIMIT);
    kb_link_free(p.l);
    p.l = NULL;
    for (int i = 0; i < n; i++) assert_true(t[i].done == 0 && !kb_call_is_under_way(&t[i].c));
    free(t);
    peer_deinit(&p);
}

static void test_no_memory(void **state) {
    (void)state;
    struct peer p;
    struct test_call t;
    peer_init(&p, 71);
    struct kb_link_options o = {.node = p.rig.node, .host = "h", .port = 1};
    struct kb_link *l;
    kw_alloc_fail_after(0);
    assert_int_equal(kb_link_new(&o, &l), KW_ENOMEM);
    kw_alloc_fail_after(0);
    assert_int_equal(kb_link_dial(p.l, p.rig.now), KW_ENOMEM);
    kw_alloc_fail_after(-1);
    assert_true(kb_link_is_idle(p.l));
    dial(&p);
    int failures = 0;
    for (;; failures++) {
        kw_alloc_fail_after(failures);
        kw_err err = call(&p, &t, 1000000);
        kw_alloc_fail_after(-1);
        if (err == KW_OK) break;
        assert_int_equal(err, KW_ENOMEM);
        assert_int_equal(kb_link_call_count(p.l), 0);
        assert_false(kb_call_is_under_way(&t.c));
    }
    assert_int_equal(failures, 2); /* what it takes to remember it, and its bytes */
    serve(&p);
    answer_next(&p, 5);
    assert_int_equal(t.first, 5);
    drop_kept(&t, 1);
    assert_int_equal(call(&p, &t, 1000000), KW_OK); /* none to receive into: the link ends, it does not hang */
    serve(&p);
    kw_blk_unref(NULL);
    uint8_t b[4] = {0, 1, 0, 0};
    size_t room;
    uint8_t *to;
    kb_dial_recv_buf(p.dial, &to, &room);
    memcpy(to, b, 4);
    kw_alloc_fail_after(0);
    kb_dial_received(p.dial, 4, p.rig.now);
    kw_alloc_fail_after(-1);
    assert_true(p.ended == 1 && p.how == KB_LINK_BROKEN && t.err == KW_EIO);
    peer_deinit(&p);
}

/* The node's end while dials are there: the shell forgets them, whether it knew them or not. */
static void test_drop(void **state) {
    (void)state;
    struct peer p;
    peer_init(&p, 72);
    dial(&p);
    kb_link_free(p.l);
    struct kb_link *second;
    struct kb_link_options o = {.node = p.rig.node, .host = "peer.example", .port = 1234};
    assert_int_equal(kb_link_new(&o, &second), KW_OK);
    assert_int_equal(kb_link_dial(second, p.rig.now), KW_OK);
    kb_link_free(second);
    rig_deinit(&p.rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pipelined_and_in_pieces),
        cmocka_unit_test(test_large_answer),
        cmocka_unit_test(test_called_again_from_done),
        cmocka_unit_test(test_broken),
        cmocka_unit_test(test_unasked_answers),
        cmocka_unit_test(test_deadlines),
        cmocka_unit_test(test_ended_by_the_shell),
        cmocka_unit_test(test_close),
        cmocka_unit_test(test_closed_unseen),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_freed_inside),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
