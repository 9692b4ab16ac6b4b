/* test_fetched.c - from fetched bytes to events: compacted and empty batches, transactions, codecs, old formats, damage, limits, lack of
 * memory. */
#include "consume_peer.h"

#include "counted_alloc.h"

#define TXN KW_ATTR_TRANSACTIONAL

static struct cw *begin(const char *const *pairs, int *t) {
    struct cw *w = cw_new(pairs);
    *t = cw_topic(w, "t", 2, 1);
    return w;
}
static void abort_range(struct cw_log *l, int64_t pid, int64_t first) {
    l->aborted[l->aborted_count++] = (struct kw_fetch_response_aborted_transaction){.producer_id = pid, .first_offset = first};
}
static void expect_offsets(const struct cw *w, const int64_t *want, size_t n) {
    size_t at = 0;
    for (int i = 0; i < w->got_count; i++) {
        if (w->got[i].kind != KC_EVENT_RECORDS) continue;
        assert_true(at < n);
        assert_int_equal(w->got[i].offset, want[at++]);
    }
    assert_int_equal(at, n);
}

/* ---- CC-02: holes ---- */

static void CC_02_batches_whose_records_are_gone(void **state) {
    (void)state;
    int t;
    struct cw *w = begin(PAIRS("enable.partition.eof", "true"), &t);
    struct cw_log *l = &w->logs[t][0];
    log_batch(l, (struct batch_spec){.base = 0, .n = 3, .last_delta = 49});              /* 0 1 2, and holes up to 49 */
    log_batch(l, (struct batch_spec){.base = 50, .n = 0, .last_delta = 49});             /* nothing left at all */
    log_batch(l, (struct batch_spec){.base = 100, .n = 3, .step = 7, .last_delta = 40}); /* 100 107 114 */
    log_batch(l, (struct batch_spec){.base = 150, .n = 0, .last_delta = 9, .codec = KW_CODEC_ZSTD});
    cw_assign(w, t, 0, 20); /* in the holes of the first */
    cw_consume(w, 3000000);
    expect_offsets(w, (int64_t[]){100, 107, 114}, 3);
    assert_int_equal(cw_position(w, t, 0), 160); /* lag 0 */
    assert_int_equal(cw_count(w, KC_EVENT_PARTITION_END, 0), 1);
    assert_true(w->fetch_count < 10);
    assert_int_equal(cw_count(w, KC_EVENT_ERROR, -1), 0);
    w->got_count = 0;
    cw_seek(w, t, 0, 107);
    cw_consume(w, 1000000);
    expect_offsets(w, (int64_t[]){107, 114}, 2);
    cw_free(w);
}

static void holes_alone_move_the_position(void **state) {
    (void)state;
    int t;
    struct cw *w = begin(NULL, &t);
    log_batch(&w->logs[t][0], (struct batch_spec){.base = 0, .n = 0, .last_delta = 99});
    cw_assign(w, t, 0, 5);
    cw_consume(w, 2000000);
    assert_int_equal(w->got_count, 0);
    assert_int_equal(cw_position(w, t, 0), 100);
    assert_true(w->fetch_count < 8);
    cw_free(w);
}

/* ---- CC-03, CC-04, CC-05: transactions ---- */

static void CC_03_control_batches_and_aborted_records_alone(void **state) {
    (void)state;
    int t;
    struct cw *w = begin(PAIRS("isolation.level", "read_committed", "enable.partition.eof", "true"), &t);
    struct cw_log *l = &w->logs[t][0];
    log_batch(l, (struct batch_spec){.base = 0, .n = 10, .pid = 7, .attributes = TXN});
    log_marker(l, 7, false);
    abort_range(l, 7, 0);
    log_marker(&w->logs[t][1], 8, true);
    log_marker(&w->logs[t][1], 9, false);
    cw_assign(w, t, 0, 0);
    cw_assign(w, t, 1, 0);
    cw_consume(w, 2000000);
    assert_int_equal(cw_count(w, KC_EVENT_RECORDS, -1), 0);
    assert_int_equal(cw_position(w, t, 0), 11);
    assert_int_equal(cw_position(w, t, 1), 2);
    assert_int_equal(cw_count(w, KC_EVENT_PARTITION_END, 0), 1);
    assert_int_equal(cw_count(w, KC_EVENT_PARTITION_END, 1), 1);
    cw_free(w);
}

static void transactions(int codec, bool committed) {
    int t;
    struct cw *w = begin(PAIRS("isolation.level", committed ? "read_committed" : "read_uncommitted"), &t);
    struct cw_log *l = &w->logs[t][0];
    log_batch(l, (struct batch_spec){.base = 0, .n = 2, .pid = 1, .attributes = TXN, .codec = codec}); /* aborted */
    log_batch(l, (struct batch_spec){.base = 2, .n = 2, .pid = 2, .attributes = TXN, .codec = codec}); /* committed */
    log_batch(l, (struct batch_spec){.base = 4, .n = 2, .codec = codec});                              /* none */
    log_batch(l, (struct batch_spec){.base = 6, .n = 2, .pid = 1, .attributes = TXN, .codec = codec}); /* aborted, still */
    log_batch(l, (struct batch_spec){.base = 8, .n = 1, .pid = 1, .codec = codec}); /* the same producer outside of its transaction */
    log_marker(l, 1, false);                                                        /* 9 */
    log_batch(l, (struct batch_spec){.base = 10, .n = 2, .pid = 1, .attributes = TXN, .codec = codec}); /* its next one: committed */
    log_marker(l, 2, true);                                                                             /* 12 */
    log_marker(l, 5, false); /* 13: CC-04, a marker of one that wrote nothing */
    log_batch(l, (struct batch_spec){.base = 14, .n = 2, .pid = 5, .attributes = TXN, .codec = codec}); /* committed */
    log_marker(l, 1, true);                                                                             /* 16 */
    log_batch(l, (struct batch_spec){.base = 17, .n = 2, .pid = 1, .attributes = TXN, .codec = codec}); /* aborted again */
    log_marker(l, 5, true);                                                                             /* 19 */
    log_marker(l, 1, false);                                                                            /* 20 */
    abort_range(l, 1, 17);                                                                              /* in no order */
    abort_range(l, 1, 0);
    cw_assign(w, t, 0, 0);
    cw_consume(w, 2000000);
    if (committed)
        expect_offsets(w, (int64_t[]){2, 3, 4, 5, 8, 10, 11, 14, 15}, 9);
    else
        expect_offsets(w, (int64_t[]){0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 14, 15, 17, 18}, 15);
    assert_int_equal(cw_position(w, t, 0), 21);
    cw_free(w);
}
static void CC_04_cc05_only_what_was_committed(void **state) {
    (void)state;
    for (int codec = 0; codec < KW_CODEC_COUNT; codec++) {
        if (!kw_codec_built(codec)) continue;
        transactions(codec, true);
        transactions(codec, false);
    }
}

/* ---- Codecs ---- */

static void every_codec(void **state) {
    (void)state;
    int t;
    struct cw *w = begin(PAIRS("max.poll.records", "13"), &t);
    struct cw_log *l = &w->logs[t][0];
    for (int i = 0; i < 50; i++)
        log_batch(l, (struct batch_spec){.base = l->hw, .n = 1 + i * 7 % 40, .codec = i % KW_CODEC_COUNT, .value_size = i % 3 ? 0 : 500});
    cw_assign(w, t, 0, 33);
    cw_consume(w, 1000000);
    cw_expect(w, t, 0, 33, l->hw);
    cw_free(w);
}

/* SE-06: a batch that unpacks to gigabytes gives one error; what it may take is bounded, and others go on. */
static void se06_a_bomb_is_one_error(void **state) {
    (void)state;
    struct kw_compressor *c = kw_compressor_new();
    size_t n = (size_t)200 << 20, cap = KW_BATCH_HEADER_SIZE + kw_compress_bound(KW_CODEC_ZSTD, n), size = 0;
    uint8_t *zeros = calloc(1, n), *p = calloc(1, cap); /* 200 MiB here: past every limit as 4 GiB are, and the test stays quick */
    assert_int_equal(
        kw_compress(c, KW_CODEC_ZSTD, KW_LEVEL_DEFAULT, 2, zeros, n, p + KW_BATCH_HEADER_SIZE, cap - KW_BATCH_HEADER_SIZE, &size), KW_OK);
    free(zeros);
    size += KW_BATCH_HEADER_SIZE;
    struct kw_batch_header h = {.base_offset = 10,
                                .length = (int32_t)(size - KW_BATCH_OVERHEAD),
                                .attributes = KW_CODEC_ZSTD,
                                .last_offset_delta = 9,
                                .producer_id = -1,
                                .base_sequence = -1,
                                .record_count = 10};
    kw_batch_write_header(p, &h);
    kw_batch_crc_set(p, size);
    int t;
    struct cw *w = begin(PAIRS("receive.message.max.bytes", "60000000", "fetch.max.bytes", "50000000"), &t);
    log_fill(&w->logs[t][0], 10, 10, 0);
    log_raw(&w->logs[t][0], p, size, 20);
    log_fill(&w->logs[t][0], 10, 10, 0);
    log_fill(&w->logs[t][1], 10, 10, 0);
    cw_assign(w, t, 0, 0);
    counted.most = 0;
    cw_consume(w, 20000000);
    assert_true(counted.most <= ((size_t)64 << 20) + 65536);
    cw_expect(w, t, 0, 0, 10);
    assert_int_equal(cw_count(w, KC_EVENT_ERROR, -1), 1);
    assert_int_equal(cw_first(w, KC_EVENT_ERROR)->err, KC_CORRUPT);
    assert_int_equal(cw_first(w, KC_EVENT_ERROR)->offset, 10);
    cw_assign(w, t, 1, 0);
    cw_seek(w, t, 0, 20);
    w->got_count = 0;
    cw_consume(w, 2000000);
    cw_expect(w, t, 0, 20, 30);
    cw_expect(w, t, 1, 0, 10);
    cw_free(w);
    kw_compressor_free(c);
    free(p);
}

/* ---- Offsets that go back ---- */

/* Apache Kafka stores a batch whose deltas repeat, go back or pass the last one, if its checksum is right. Handed out, it would make the
 * position go back; left out in part, records would be gone without a word. So it is one error, and a seek passes it.
 * (fuzz_client_answers: offset 10 behind 45 in one event.) */
static void deltas_that_do_not_rise(void **state) {
    (void)state;
    static const int32_t cases[][3] = {{0, 2, 1}, {0, 1, 1}, {2, 1, 0}, {0, 1, 3}, {-1, 0, 1}, {0, 1, INT32_MAX}};
    for (size_t i = 0; i < KW_COUNTOF(cases) * 2; i++) {
        uint8_t buf[512];
        const int32_t *deltas = cases[i / 2];
        uint8_t *at = buf + KW_BATCH_HEADER_SIZE;
        for (int k = 0; k < 3; k++) {
            struct kw_record_in in = {.offset_delta = deltas[k], .key = {NULL, -1}, .value = {(const uint8_t *)"v", 1}};
            at = kw_record_write(at, &in, kw_record_size(&in));
        }
        size_t size = (size_t)(at - buf);
        struct kw_batch_header h = {.base_offset = 10,
                                    .length = (int32_t)(size - KW_BATCH_OVERHEAD),
                                    .last_offset_delta = 2,
                                    .producer_id = -1,
                                    .base_sequence = -1,
                                    .record_count = 3};
        kw_batch_write_header(buf, &h);
        kw_batch_crc_set(buf, size);
        uint8_t packed[512];
        struct kw_compressor *c = kw_compressor_new();
        bool pack = i & 1;
        if (pack) assert_int_equal(kw_batch_compress(c, KW_CODEC_LZ4, KW_LEVEL_DEFAULT, buf, size, packed, sizeof packed, &size), KW_OK);
        int t;
        struct cw *w = begin(NULL, &t);
        log_fill(&w->logs[t][0], 10, 10, 0);
        log_raw(&w->logs[t][0], pack ? packed : buf, size, 13);
        log_fill(&w->logs[t][0], 10, 10, 0);
        cw_assign(w, t, 0, 0);
        cw_consume(w, 5000000);
        cw_expect(w, t, 0, 0, 10);
        assert_int_equal(cw_count(w, KC_EVENT_ERROR, -1), 1);
        assert_int_equal(cw_first(w, KC_EVENT_ERROR)->err, KC_CORRUPT);
        assert_int_equal(cw_first(w, KC_EVENT_ERROR)->offset, 10);
        cw_seek(w, t, 0, 13);
        w->got_count = 0;
        cw_consume(w, 2000000);
        cw_expect(w, t, 0, 13, 23);
        cw_free(w);
        kw_compressor_free(c);
    }
}

/* The same of a wrapper of the old formats. */
static void old_offsets_that_do_not_rise(void **state) {
    (void)state;
    static const int64_t cases[][2] = {{11, 10}, {11, 11}};
    for (size_t i = 0; i < KW_COUNTOF(cases); i++) {
        struct kw_compressor *c = kw_compressor_new();
        struct kw_out inner, wrapper;
        kw_out_init(&inner);
        kw_out_init(&wrapper);
        for (int k = 0; k < 2; k++)
            assert_int_equal(kw_message_write(&inner, 0, cases[i][k], -1, 0, (struct kw_bytes){NULL, -1}, (struct kw_bytes){(const uint8_t *)"v", 1}), KW_OK);
        assert_int_equal(kw_message_write_wrapper(&wrapper, 0, KW_CODEC_GZIP, KW_LEVEL_DEFAULT, 11, -1, false, inner.p, inner.len, c), KW_OK);
        int t;
        struct cw *w = begin(NULL, &t);
        log_fill(&w->logs[t][0], 10, 10, 0);
        log_raw(&w->logs[t][0], wrapper.p, wrapper.len, 12);
        log_fill(&w->logs[t][0], 10, 10, 0);
        cw_assign(w, t, 0, 0);
        cw_consume(w, 5000000);
        cw_expect(w, t, 0, 0, 10);
        assert_int_equal(cw_count(w, KC_EVENT_ERROR, -1), 1);
        assert_int_equal(cw_first(w, KC_EVENT_ERROR)->err, KC_CORRUPT);
        cw_seek(w, t, 0, 12);
        w->got_count = 0;
        cw_consume(w, 2000000);
        cw_expect(w, t, 0, 12, 22);
        cw_free(w);
        kw_compressor_free(c);
        kw_out_deinit(&inner);
        kw_out_deinit(&wrapper);
    }
}

/* ---- Damage ---- */

static void flip(struct cw_log *l, size_t at) {
    l->bytes.p[at] ^= 0x40;
}

static void damage_on_the_way_is_fetched_again_quietly(void **state) {
    (void)state;
    int t;
    struct cw *w = begin(NULL, &t);
    struct cw_log *l = &w->logs[t][0];
    log_fill(l, 10, 10, 0);
    size_t second = l->bytes.len;
    log_fill(l, 10, 10, 0);
    flip(l, second + 80);
    cw_assign(w, t, 0, 0);
    cw_advance(w, 20000);
    flip(l, second + 80);
    cw_consume(w, 2000000);
    cw_expect(w, t, 0, 0, 20);
    assert_int_equal(cw_count(w, KC_EVENT_ERROR, -1), 0);
    cw_free(w);
}

static void damage_in_the_log_is_told_once(void **state) {
    (void)state;
    for (int kind = 0; kind < 6; kind++) {
        int t;
        struct cw *w = begin(PAIRS("check.crcs", kind == 0 ? "true" : "false"), &t);
        struct cw_log *l = &w->logs[t][0];
        log_fill(l, 10, 10, 0);
        size_t second = l->bytes.len;
        log_batch(l, (struct batch_spec){.base = 10, .n = 10, .codec = kind == 5 ? KW_CODEC_LZ4 : 0});
        log_fill(l, 10, 10, 0);
        uint8_t *b = l->bytes.p + second;
        switch (kind) {
        case 0:
            flip(l, second + 90);
            break; /* the checksum tells */
        case 1:
            kw_store32(b + KW_BATCH_RECORD_COUNT, 11);
            break; /* more than there are */
        case 2:
            kw_store32(b + KW_BATCH_RECORD_COUNT, 9);
            break; /* fewer */
        case 3:
            kw_store32(b + KW_BATCH_RECORD_COUNT, (uint32_t)-5);
            break;
        case 4:
            b[KW_BATCH_HEADER_SIZE + 20] = 0xff;
            break; /* a record's lengths */
        default:
            b[KW_BATCH_HEADER_SIZE + 3] ^= 0xff;
            break; /* the codec's frame */
        }
        cw_assign(w, t, 0, 0);
        cw_consume(w, 20000000);
        cw_expect(w, t, 0, 0, 10); /* nothing of the bad batch, and nothing twice */
        assert_int_equal(cw_count(w, KC_EVENT_ERROR, -1), 1);
        assert_int_equal(cw_first(w, KC_EVENT_ERROR)->err, KC_CORRUPT);
        assert_int_equal(cw_first(w, KC_EVENT_ERROR)->offset, 10);
        assert_in_range(w->fetch_count, 5, 60);
        assert_int_equal(cw_position(w, t, 0), 10);
        w->got_count = 0;
        cw_seek(w, t, 0, 20);
        cw_consume(w, 2000000);
        cw_expect(w, t, 0, 20, 30);
        cw_free(w);
    }
}

static int16_t junk_script(struct cw *w, const struct cw_fetched *f, struct kw_fetch_response_partition_data *d) {
    (void)f;
    d->records = (struct kw_records){w->logs[0][0].bytes.p, (int32_t)w->logs[0][0].bytes.len, NULL};
    d->high_watermark = 1000;
    return KE_NONE;
}
/* Garbage of every length where a batch should be: no crash, no spinning. */
static void garbage(void **state) {
    (void)state;
    struct kw_rng rng;
    kw_rng_init(&rng, 5);
    for (int round = 0; round < 300; round++) {
        int t;
        struct cw *w = begin(NULL, &t);
        struct cw_log *l = &w->logs[t][0];
        uint8_t junk[300];
        size_t n = 1 + kw_rng_below(&rng, sizeof junk - 1);
        for (size_t i = 0; i < n; i++) junk[i] = (uint8_t)kw_rng_below(&rng, 256);
        if (n > 12 && (round & 1)) kw_store32(junk + 8, (uint32_t)(n - 12)); /* a length that fits */
        if (n > 12 && (round & 2)) kw_store64(junk, kw_rng_below(&rng, 40));
        if (n > 16 && (round & 4)) junk[16] = (uint8_t)(round >> 3 & 3);
        if (round & 8) log_fill(l, 10, 10, 0);
        log_raw(l, junk, n, 1000);
        w->script = junk_script;
        cw_assign(w, t, 0, round & 16 ? 10 : 0);
        cw_consume(w, 3000000);
        assert_in_range(cw_count(w, KC_EVENT_RECORDS, -1), 0, 10);
        assert_in_range(w->fetch_count, 1, 60);
        cw_free(w);
    }
}

/* Mutations of sound batches, served whatever offset is asked for. */
static void mutated_batches(void **state) {
    (void)state;
    struct kw_rng rng;
    kw_rng_init(&rng, 6);
    for (int round = 0; round < 400; round++) {
        int t;
        struct cw *w = begin(
            PAIRS("check.crcs", round & 1 ? "true" : "false", "isolation.level", round & 2 ? "read_committed" : "read_uncommitted"), &t);
        struct cw_log *l = &w->logs[t][0];
        for (int i = 0; i < 3; i++)
            log_batch(l, (struct batch_spec){.base = l->hw, .n = 5, .codec = (round + i) % KW_CODEC_COUNT, .attributes = TXN, .pid = 4});
        log_marker(l, 4, false);
        for (int i = 0; i < 3; i++)
            l->bytes.p[kw_rng_below(&rng, l->bytes.len)] = (uint8_t)(kw_rng_below(&rng, 2) ? 0xff : kw_rng_below(&rng, 256));
        w->script = junk_script;
        cw_assign(w, t, 0, 0);
        kc_event *e;
        int events = 0;
        for (int i = 0; i < 200; i++) {
            while (kc_consume_take(&w->c, &e) == KC_OK) {
                for (size_t k = 0; k < e->count; k++) {
                    kc_message m;
                    kc_header h[4];
                    assert_int_equal(kc_event_message(e, k, &m), KC_OK);
                    uint8_t sum = 0; /* reads every byte, for the sanitizer */
                    for (size_t x = 0; x < m.value.size; x++) sum = (uint8_t)(sum + ((const uint8_t *)m.value.p)[x]);
                    for (size_t x = 0; x < m.key.size; x++) sum = (uint8_t)(sum + ((const uint8_t *)m.key.p)[x]);
                    size_t n = kc_event_headers(e, k, h, sizeof *h, 4);
                    for (size_t x = 0; x < KW_MIN(n, (size_t)4); x++) sum = (uint8_t)(sum + (h[x].name_size ? h[x].name[0] : 0));
                    (void)sum;
                }
                events++;
                (void)kc_event_drop(e);
            }
            cw_advance(w, 10000);
        }
        assert_true(events < 300);
        assert_true(w->fetch_count < 120);
        cw_free(w);
    }
}

static void offsets_at_the_edge_of_the_numbers(void **state) {
    (void)state;
    int64_t bases[] = {INT64_MAX, INT64_MAX - 5, -1, INT64_MIN};
    for (size_t i = 0; i < KW_COUNTOF(bases); i++) {
        for (int magic = 0; magic < 3; magic++) {
            int t;
            struct cw *w = begin(PAIRS("check.crcs", "false"), &t);
            struct cw_log *l = &w->logs[t][0];
            if (magic == 2) {
                log_batch(l, (struct batch_spec){.base = 0, .n = 10});
                kw_store64(l->bytes.p, (uint64_t)bases[i]);
            } else {
                struct kw_out o;
                kw_out_init(&o);
                assert_int_equal(kw_message_write(&o, (int8_t)magic, bases[i], 5, 0, (struct kw_bytes){NULL, -1},
                                                  (struct kw_bytes){(const uint8_t *)"v", 1}),
                                 KW_OK);
                log_raw(l, o.p, o.len, 10);
                kw_out_deinit(&o);
            }
            w->script = junk_script;
            cw_assign(w, t, 0, 0);
            kc_event *e;
            for (int k = 0; k < 50; k++) {
                while (kc_consume_take(&w->c, &e) == KC_OK) (void)kc_event_drop(e);
                cw_advance(w, 20000);
            }
            assert_true(w->fetch_count < 40);
            cw_free(w);
        }
    }
}

/* ---- Old formats ---- */

static void put_message(struct kw_out *o, int8_t magic, int64_t offset, int64_t timestamp, int8_t attributes, const char *key,
                        const char *value) {
    assert_int_equal(kw_message_write(o, magic, offset, timestamp, attributes,
                                      (struct kw_bytes){(const uint8_t *)key, key ? (int32_t)strlen(key) : -1},
                                      (struct kw_bytes){(const uint8_t *)value, value ? (int32_t)strlen(value) : -1}),
                     KW_OK);
}

/* PR-07: v0, v1, a wrapper of each, and v2 in one answer. */
static void PR_07_formats_mixed_in_one_answer(void **state) {
    (void)state;
    int t;
    struct cw *w = begin(NULL, &t);
    struct cw_log *l = &w->logs[t][0];
    struct kw_compressor *c = kw_compressor_new();
    struct kw_out o, inner;
    char v[32];
    kw_out_init(&o);
    kw_out_init(&inner);
    for (int i = 0; i < 3; i++) sprintf(v, "v%d", i), put_message(&o, 0, i, -1, 0, NULL, v);
    for (int i = 3; i < 6; i++) sprintf(v, "v%d", i), put_message(&o, 1, i, 1000 + i, 0, "k", v);
    for (int i = 6; i < 10; i++) sprintf(v, "v%d", i), put_message(&inner, 0, i, -1, 0, NULL, v);
    assert_int_equal(kw_message_write_wrapper(&o, 0, KW_CODEC_GZIP, KW_LEVEL_DEFAULT, 9, -1, false, inner.p, inner.len, c), KW_OK);
    kw_out_reset(&inner);
    for (int i = 10; i < 15; i++) sprintf(v, "v%d", i), put_message(&inner, 1, i - 10, 1000 + i, 0, NULL, v);
    assert_int_equal(kw_message_write_wrapper(&o, 1, KW_CODEC_SNAPPY, KW_LEVEL_DEFAULT, 14, 1014, false, inner.p, inner.len, c), KW_OK);
    log_raw(l, o.p, o.len, 15);
    log_fill(l, 5, 5, 0);
    kw_out_reset(&o);
    put_message(&o, 1, 20, 77, 0, NULL, "v20");
    log_raw(l, o.p, o.len, 21);
    kw_out_deinit(&o);
    kw_out_deinit(&inner);
    kw_compressor_free(c);
    for (int64_t from = 0; from <= 20; from++) {
        w->got_count = 0;
        if (from == 0)
            cw_assign(w, t, 0, 0);
        else
            cw_seek(w, t, 0, from);
        cw_consume(w, 1000000);
        cw_expect(w, t, 0, from, 21);
    }
    assert_int_equal(cw_count(w, KC_EVENT_ERROR, -1), 0);
    cw_free(w);
}

static void details_of_old_messages(void **state) {
    (void)state;
    int t;
    struct cw *w = begin(NULL, &t);
    struct kw_out o;
    kw_out_init(&o);
    put_message(&o, 0, 0, -1, 0, NULL, NULL);
    put_message(&o, 1, 1, 123, 0, "", "");
    put_message(&o, 1, 2, 456, KW_ATTR_LOG_APPEND_TIME, "k", "v");
    log_raw(&w->logs[t][0], o.p, o.len, 3);
    kw_out_deinit(&o);
    cw_assign(w, t, 0, 0);
    cw_advance(w, 10000);
    kc_event *e;
    kc_message m;
    assert_int_equal(kc_consume_take(&w->c, &e), KC_OK);
    assert_int_equal(kc_event_message(e, 0, &m), KC_OK);
    assert_int_equal(m.timestamp_ms, -1);
    assert_int_equal(m.timestamp_type, -1);
    assert_null(m.key.p);
    assert_null(m.value.p);
    assert_int_equal(kc_event_headers(e, 0, NULL, 0, 0), 0);
    (void)kc_event_drop(e);
    assert_int_equal(kc_consume_take(&w->c, &e), KC_OK);
    assert_int_equal(kc_event_message(e, 0, &m), KC_OK);
    assert_int_equal(m.timestamp_ms, 123);
    assert_int_equal(m.timestamp_type, 0);
    assert_non_null(m.key.p);
    assert_int_equal(m.key.size, 0);
    (void)kc_event_drop(e);
    assert_int_equal(kc_consume_take(&w->c, &e), KC_OK);
    assert_int_equal(kc_event_message(e, 0, &m), KC_OK);
    assert_int_equal(m.timestamp_ms, 456);
    assert_int_equal(m.timestamp_type, 1);
    (void)kc_event_drop(e);
    cw_free(w);
}

/* ---- PR-06, PR-16, headers, times: one batch by hand ---- */

static void details_of_records(void **state) {
    (void)state;
    struct kw_header_view headers[2] = {{.key = {"h", 1}, .value = {NULL, -1}}, {.key = {"", 0}, .value = {(const uint8_t *)"xy", 2}}};
    struct kw_bytes null = {NULL, -1}, empty = {(const uint8_t *)"", 0}, some = {(const uint8_t *)"kv", 2};
    int64_t now = 1700000000000;
    struct kw_record_in in[] = {
        {.timestamp_delta = 0, .offset_delta = 0, .key = null, .value = null},
        {.timestamp_delta = now, .offset_delta = 1, .key = null, .value = empty},
        {.timestamp_delta = -5, .offset_delta = 2, .key = empty, .value = null},
        {.timestamp_delta = (int64_t)1 << 40, .offset_delta = 3, .key = empty, .value = empty},
        {.timestamp_delta = 7, .offset_delta = 4, .key = some, .value = some, .headers = headers, .header_count = 2}};
    for (int append_time = 0; append_time < 2; append_time++) {
        uint8_t batch[1024], *at = batch + KW_BATCH_HEADER_SIZE;
        for (size_t i = 0; i < KW_COUNTOF(in); i++) at = kw_record_write(at, &in[i], kw_record_size(&in[i]));
        size_t size = (size_t)(at - batch);
        struct kw_batch_header h = {.length = (int32_t)(size - KW_BATCH_OVERHEAD),
                                    .leader_epoch = 3,
                                    .attributes = (int16_t)(append_time ? KW_ATTR_LOG_APPEND_TIME : 0),
                                    .last_offset_delta = 4,
                                    .base_timestamp = 0,
                                    .max_timestamp = now + 9,
                                    .producer_id = -1,
                                    .base_sequence = -1,
                                    .record_count = 5};
        kw_batch_write_header(batch, &h);
        kw_batch_crc_set(batch, size);
        int t;
        struct cw *w = begin(NULL, &t);
        log_raw(&w->logs[t][0], batch, size, 5);
        cw_assign(w, t, 0, 0);
        cw_advance(w, 10000);
        kc_event *e;
        assert_int_equal(kc_consume_take(&w->c, &e), KC_OK);
        assert_int_equal(kc_event_count(e), 5);
        assert_int_equal(kc_event_offset(e), 5);
        assert_int_equal(kc_event_high_watermark(e), 5);
        for (size_t i = 0; i < 5; i++) {
            kc_message m;
            assert_int_equal(kc_event_message(e, i, &m), KC_OK);
            assert_int_equal(m.timestamp_ms, append_time ? now + 9 : in[i].timestamp_delta); /* PR-16 */
            assert_int_equal(m.timestamp_type, append_time);
            assert_int_equal(m.leader_epoch, 3);
            assert_int_equal(m.key.p == NULL, in[i].key.len < 0); /* PR-06 */
            assert_int_equal(m.value.p == NULL, in[i].value.len < 0);
            assert_int_equal(m.key.size, KW_MAX(in[i].key.len, 0));
            assert_int_equal(m.value.size, KW_MAX(in[i].value.len, 0));
            const kc_view *v = &kc_event_views(e)[i];
            assert_int_equal(v->key_size, in[i].key.len);
            assert_int_equal(v->value_size, in[i].value.len);
            assert_int_equal(m.header_count, in[i].header_count);
        }
        kc_header got[2];
        assert_int_equal(kc_event_headers(e, 4, got, sizeof *got, 2), 2);
        assert_int_equal(got[0].name_size, 1);
        assert_memory_equal(got[0].name, "h", 1);
        assert_null(got[0].value.p);
        assert_int_equal(got[1].name_size, 0);
        assert_memory_equal(got[1].value.p, "xy", 2);
        assert_int_equal(kc_event_headers(e, 4, got, sizeof *got, 1), 2);
        assert_int_equal(kc_event_headers(e, 4, NULL, 0, 0), 2);
        assert_int_equal(kc_event_headers(e, 5, got, sizeof *got, 2), 0);
        assert_int_equal(kc_event_message(e, 5, NULL), KC_INVALID);
        kc_event *again = kc_event_ref(e);
        assert_null(kc_event_drop(e));
        assert_int_equal(kc_event_count(again), 5);
        assert_null(kc_event_drop(again));
        cw_free(w);
    }
}

/* ---- Limits of an event ---- */

static void poll_records_is_a_limit(void **state) {
    (void)state;
    int limits[] = {1, 7, 100, 5000};
    for (size_t i = 0; i < KW_COUNTOF(limits); i++) {
        char text[16];
        sprintf(text, "%d", limits[i]);
        int t;
        struct cw *w = begin(PAIRS("max.poll.records", text), &t);
        log_batch(&w->logs[t][0], (struct batch_spec){.base = 0, .n = 250});
        log_batch(&w->logs[t][0], (struct batch_spec){.base = 250, .n = 250, .codec = KW_CODEC_ZSTD});
        log_fill(&w->logs[t][0], 500, 9, 0);
        cw_assign(w, t, 0, 3);
        cw_advance(w, 10000);
        kc_event *e;
        int64_t next = 3;
        while (kc_consume_take(&w->c, &e) == KC_OK) {
            assert_in_range(kc_event_count(e), 1, limits[i]);
            cw_note(w, e);
            next += (int64_t)kc_event_count(e);
            assert_int_equal(kc_event_offset(e), next);
            assert_int_equal(cw_position(w, t, 0), next);
            (void)kc_event_drop(e);
            cw_advance(w, 100);
        }
        cw_expect(w, t, 0, 3, 1000);
        cw_free(w);
    }
}

/* ---- Lack of memory: each allocation fails once, and everything comes all the same ---- */

static void consume_with_failure(int64_t fail) {
    int t;
    struct cw *w = begin(PAIRS("max.poll.records", "20", "isolation.level", "read_committed"), &t);
    struct cw_log *l = &w->logs[t][0];
    for (int i = 0; i < 6; i++) log_batch(l, (struct batch_spec){.base = l->hw, .n = 25, .codec = i % KW_CODEC_COUNT});
    log_batch(l, (struct batch_spec){.base = l->hw, .n = 1, .pid = 5, .attributes = TXN});
    abort_range(l, 5, l->hw - 1);
    log_marker(l, 5, false);
    struct kw_out o;
    kw_out_init(&o);
    put_message(&o, 1, l->hw, 1, 0, NULL, "v152");
    log_raw(l, o.p, o.len, l->hw + 1);
    kw_out_deinit(&o);
    log_fill(&w->logs[t][1], 50, 10, 0);
    counted.calls = 0;
    kw_alloc_fail_after(fail);
    kc_err err = cw_assign(w, t, 0, KC_OFFSET_BEGINNING);
    if (err == KC_NO_MEMORY) {
        assert_int_equal(cw_position(w, t, 0), -9);
        err = cw_assign(w, t, 0, KC_OFFSET_BEGINNING);
    }
    assert_int_equal(err, KC_OK);
    if (cw_assign(w, t, 1, 0) == KC_NO_MEMORY) assert_int_equal(cw_assign(w, t, 1, 0), KC_OK);
    for (int i = 0; i < 3000 && cw_count(w, KC_EVENT_RECORDS, -1) < 151 + 50; i++) {
        kc_event *e = NULL;
        while ((err = kc_consume_take(&w->c, &e)) == KC_OK || err == KC_NO_MEMORY) {
            if (err != KC_OK) continue;
            cw_note(w, e);
            (void)kc_event_drop(e);
        }
        assert_int_equal(err, KC_BUSY);
        cw_advance(w, 5000);
    }
    kw_alloc_fail_after(-1);
    int64_t next = 0;
    for (int i = 0; i < w->got_count; i++) {
        if (w->got[i].kind != KC_EVENT_RECORDS || w->got[i].partition != 0) continue;
        if (next == 150) next = 152; /* aborted, and its marker */
        assert_int_equal(w->got[i].offset, next++);
    }
    assert_int_equal(next, 153);
    cw_expect(w, t, 1, 0, 50);
    cw_free(w);
}
static void every_allocation_may_fail(void **state) {
    (void)state;
    consume_with_failure(-1);
    int64_t n = counted.calls;
    assert_true(n > 50);
    for (int64_t fail = 0; fail < n; fail++) consume_with_failure(fail);
}

int main(void) {
    counted_install();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(CC_02_batches_whose_records_are_gone),
        cmocka_unit_test(holes_alone_move_the_position),
        cmocka_unit_test(CC_03_control_batches_and_aborted_records_alone),
        cmocka_unit_test(CC_04_cc05_only_what_was_committed),
        cmocka_unit_test(every_codec),
        cmocka_unit_test(deltas_that_do_not_rise),
        cmocka_unit_test(old_offsets_that_do_not_rise),
        cmocka_unit_test(damage_on_the_way_is_fetched_again_quietly),
        cmocka_unit_test(damage_in_the_log_is_told_once),
        cmocka_unit_test(garbage),
        cmocka_unit_test(mutated_batches),
        cmocka_unit_test(offsets_at_the_edge_of_the_numbers),
        cmocka_unit_test(PR_07_formats_mixed_in_one_answer),
        cmocka_unit_test(details_of_old_messages),
        cmocka_unit_test(details_of_records),
        cmocka_unit_test(poll_records_is_a_limit),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(se06_a_bomb_is_one_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
