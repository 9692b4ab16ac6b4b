/* test_golden.c - sets that Apache Kafka's own code built (golden/batches.h), read record by record in all three formats; converted between
 * formats; and with `--write DIR` the same sets built by us, which tests/interop/golden gives to Kafka's code to read.
 *
 * What a set holds follows from its format and scenario by the rules in expect(); Golden.java states the same rules.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "golden/batches.h"
#include "wire/message_set.h"

#define BASE_OFFSET 100
#define TIME INT64_C(1700000000000)
#define APPEND_TIME INT64_C(1700000009999)
#define RECORDS_MAX 40

struct expected {
    int64_t timestamp;
    struct kw_bytes key, value;
    struct kw_header_view headers[6];
    size_t header_count;
    char text[32], value_text[8000];
};
static struct expected want[RECORDS_MAX];
static struct kw_compressor *comp;

static struct kw_bytes of(const char *z) { return (struct kw_bytes){(const uint8_t *)z, (int32_t)strlen(z)}; }

static const struct kw_bytes null_bytes = {NULL, -1}, empty = {(const uint8_t *)"", 0};

static void expect_one(struct expected *e, const char *scenario, int i) {
    static const char *const header_values[] = {"x0", NULL, "x2", "", "x4", "x5"};
    memset(e, 0, sizeof(*e));
    e->timestamp = TIME + i * 7 - (i == 3 ? 100000 : 0);
    snprintf(e->text, sizeof(e->text), "key-%d", i);
    int n = snprintf(e->value_text, sizeof(e->value_text), "value-%d-", i);
    memset(e->value_text + n, 'a' + i % 26, 20);
    e->key = of(e->text);
    e->value = of(e->value_text);
    if (strcmp(scenario, "nulls") == 0) {
        if (i % 3 < 2) e->key = i % 3 == 0 ? null_bytes : empty;
        if (i % 2 == 0) e->value = null_bytes;
        if (i == 1) e->value = empty;
    } else if (strcmp(scenario, "headers") == 0) {
        e->header_count = (size_t)i;
        for (int k = 0; k < i; k++)
            e->headers[k] = (struct kw_header_view){kw_str_of(k == 2 ? "" : k % 2 ? "h1" : "h0"),
                                                    header_values[k] ? of(header_values[k]) : null_bytes};
    } else if (strcmp(scenario, "times") == 0) {
        e->timestamp = i == 0 ? 0 : i == 1 ? TIME : i == 2 ? INT64_C(1) << 33 : i;
    } else if (strcmp(scenario, "large") == 0) {
        char piece[16];
        n = snprintf(piece, sizeof(piece), "large %d ", i);
        for (int k = 0; k < 600; k++) memcpy(e->value_text + k * n, piece, (size_t)n);
        e->value_text[600 * n] = 0;
        e->value = of(e->value_text);
    } else if (strcmp(scenario, "append") == 0) {
        e->timestamp = APPEND_TIME;
    }
}

static size_t expect(int magic, const char *scenario) {
    size_t count = strcmp(scenario, "large") == 0 ? 40 : 6;
    for (size_t i = 0; i < count; i++) {
        expect_one(&want[i], scenario, (int)i);
        if (magic == 0) want[i].timestamp = -1;
    }
    return count;
}

static void assert_bytes(struct kw_bytes a, struct kw_bytes b) {
    assert_int_equal(a.len, b.len);
    if (a.len > 0) assert_memory_equal(a.p, b.p, (size_t)a.len);
}

static uint8_t *unhex(const char *hex, size_t *n) {
    *n = strlen(hex) / 2;
    uint8_t *p = malloc(*n);
    for (size_t i = 0; i < *n; i++) {
        const char two[3] = {hex[2 * i], hex[2 * i + 1], 0};
        p[i] = (uint8_t)strtoul(two, NULL, 16);
    }
    return p;
}

/* Offsets from BASE_OFFSET + skip on; timestamps only where `times`. */
static void assert_messages(const uint8_t *p, size_t n, int magic, size_t skip, size_t count, bool times, int64_t base) {
    struct kw_message_iter it;
    struct kw_message_view m;
    kw_message_iter_init(&it, p, n, 1 << 20, comp);
    for (size_t i = skip; i < count; i++) {
        assert_int_equal(kw_message_iter_next(&it, &m), 1);
        assert_int_equal(m.offset, base + (int64_t)i);
        assert_int_equal(m.magic, magic);
        if (times) assert_true(m.timestamp == want[i].timestamp);
        assert_bytes(m.key, want[i].key);
        assert_bytes(m.value, want[i].value);
    }
    assert_int_equal(kw_message_iter_next(&it, &m), 0);
    assert_int_equal(it.left, 0);
    kw_message_iter_deinit(&it);
}

static void assert_batch(const uint8_t *p, size_t n, size_t count, int64_t base, bool headers) {
    struct kw_batch_check c = {.limit = 1 << 20, .compressor = comp};
    struct kw_batch_facts f;
    const char *why = "";
    assert_int_equal(kw_batch_check(p, n, &c, &f, &why), KW_OK);
    struct kw_batch_header h;
    assert_int_equal(kw_batch_parse(p, n, &h), KW_OK);
    assert_int_equal(h.base_offset, base);
    assert_int_equal(h.record_count, count);
    if (!(h.attributes & KW_ATTR_LOG_APPEND_TIME)) assert_true(f.max_timestamp == h.max_timestamp);
    const uint8_t *body;
    size_t size;
    assert_int_equal(kw_batch_body(p, n, &h, 1 << 20, comp, &body, &size), KW_OK);
    struct kw_record_iter it;
    struct kw_record_view r;
    kw_record_iter_init(&it, &h, body, size);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(kw_record_next(&it, &r), 1);
        assert_int_equal(r.offset, base + (int64_t)i);
        assert_true(r.timestamp == want[i].timestamp);
        assert_bytes(r.key, want[i].key);
        assert_bytes(r.value, want[i].value);
        struct kw_in in;
        struct kw_header_view header;
        kw_in_init(&in, r.headers, r.headers_size);
        for (size_t k = 0; headers && k < want[i].header_count; k++) {
            assert_int_equal(kw_record_header_next(&in, &header), 1);
            assert_true(kw_str_eq(header.key, want[i].headers[k].key));
            assert_bytes(header.value, want[i].headers[k].value);
        }
        assert_int_equal(kw_record_header_next(&in, &header), 0);
    }
    assert_int_equal(kw_record_next(&it, &r), 0);
}

static void test_reads_what_kafka_wrote(void **state) {
    (void)state;
    size_t read = 0;
    for (size_t i = 0; i < KW_COUNTOF(goldens); i++) {
        const struct golden *g = &goldens[i];
        if (!kw_codec_built(kw_codec_by_name(g->codec))) continue;
        size_t n, count = expect(g->magic, g->scenario);
        uint8_t *p = unhex(g->hex, &n);
        if (g->magic == 2)
            assert_batch(p, n, count, BASE_OFFSET, true);
        else
            assert_messages(p, n, g->magic, 0, count, true, BASE_OFFSET);
        free(p);
        read++;
    }
    assert_true(read >= 8);
}

/* PR-07: one fetch answer holds entries of v0, v1 and v2, plain and compressed: each is read by its own magic, offsets go on. */
static void test_PR_07_mixed_formats(void **state) {
    (void)state;
    struct kw_out out;
    kw_out_init(&out);
    int64_t next = 0;
    static const char *const codecs[] = {"none", "lz4", "none", "gzip"};
    for (size_t c = 0; c < KW_COUNTOF(codecs); c++)
        for (int magic = 0; magic <= 2; magic++)
            for (size_t i = 0; i < KW_COUNTOF(goldens); i++) {
                const struct golden *g = &goldens[i];
                if (g->magic != magic || strcmp(g->codec, codecs[c]) || strcmp(g->scenario, "plain")) continue;
                if (!kw_codec_built(kw_codec_by_name(g->codec))) continue;
                size_t n;
                uint8_t *set = unhex(g->hex, &n);
                struct kw_entry e;
                const uint8_t *p = set;
                while (kw_entry_next(&p, set + n, &e) == 1) { /* the broker gives offsets on append */
                    bool wrapper = magic == 1 && (e.p[KW_MESSAGE_ATTRIBUTES] & KW_ATTR_CODEC);
                    if (magic == 0 && (e.p[KW_MESSAGE_ATTRIBUTES] & KW_ATTR_CODEC)) break; /* absolute inside: cannot be moved in place */
                    kw_batch_set_base_offset(set + (e.p - set), next + (wrapper ? 5 : 0));
                    kw_out_bytes(&out, e.p, e.size);
                    next += wrapper || magic == 2 ? 6 : 1;
                }
                free(set);
            }
    assert_true(next >= 36);
    int64_t offset = 0;
    int seen = 0;
    struct kw_entry e;
    for (const uint8_t *p = out.p; kw_entry_next(&p, out.p + out.len, &e) == 1;) {
        size_t count = e.magic < 2 && (e.p[KW_MESSAGE_ATTRIBUTES] & KW_ATTR_CODEC) == 0 ? 1 : 6, at = (size_t)(offset % 6);
        expect(e.magic, "plain");
        if (e.magic == 2)
            assert_batch(e.p, e.size, 6, offset, false);
        else if (count == 1)
            assert_messages(e.p, e.size, e.magic, at, at + 1, true, offset - (int64_t)at);
        else
            assert_messages(e.p, e.size, e.magic, 0, 6, true, offset);
        offset += (int64_t)count;
        seen |= 1 << e.magic;
    }
    assert_int_equal(offset, next);
    assert_int_equal(seen, 7);
    /* A message iterator that meets a batch says so. */
    struct kw_message_iter it;
    struct kw_message_view m;
    kw_message_iter_init(&it, out.p, out.len, 1 << 20, comp);
    int32_t rc;
    while ((rc = kw_message_iter_next(&it, &m)) == 1) {}
    assert_int_equal(rc, KW_EVERSION);
    kw_message_iter_deinit(&it);
    kw_out_deinit(&out);
}

static void test_conversion_up(void **state) {
    (void)state;
    for (size_t i = 0; i < KW_COUNTOF(goldens); i++) {
        const struct golden *g = &goldens[i];
        if (g->magic == 2 || !kw_codec_built(kw_codec_by_name(g->codec))) continue;
        size_t n, size = 0, count = expect(g->magic, g->scenario);
        uint8_t *p = unhex(g->hex, &n), *batch = NULL;
        const char *why = "";
        assert_int_equal(kw_message_set_to_batch(p, n, 1 << 20, comp, &batch, &size, &why), KW_OK);
        assert_int_equal(batch[KW_BATCH_ATTRIBUTES + 1], kw_codec_by_name(g->codec));
        assert_batch(batch, size, count, 0, false);
        kw_free(batch);
        assert_int_equal(kw_message_set_to_batch(p, n - 1, 1 << 20, comp, &batch, &size, &why), KW_EDECODE); /* cut */
        assert_int_equal(kw_message_set_to_batch(p, n, 80, comp, &batch, &size, &why), KW_ELIMIT);
        free(p);
    }
    uint8_t *batch;
    size_t size;
    const char *why;
    assert_int_equal(kw_message_set_to_batch(NULL, 0, 100, comp, &batch, &size, &why), KW_EDECODE);
}

static void test_conversion_down(void **state) {
    (void)state;
    struct kw_out out;
    kw_out_init(&out);
    for (size_t i = 0; i < KW_COUNTOF(goldens); i++) {
        const struct golden *g = &goldens[i];
        int codec = kw_codec_by_name(g->codec);
        if (g->magic != 2 || !kw_codec_built(codec)) continue;
        size_t n, count = expect(2, g->scenario);
        uint8_t *p = unhex(g->hex, &n);
        for (int8_t magic = 0; magic <= 1; magic++)
            for (size_t skip = 0; skip <= count; skip += skip == 2 ? count - 2 : 2) {
                kw_out_reset(&out);
                kw_err err = kw_batch_to_message_set(p, n, magic, BASE_OFFSET + (int64_t)skip, 1 << 20, comp, &out);
                assert_int_equal(err, codec == KW_CODEC_ZSTD ? KW_EUNSUPPORTED : KW_OK);
                if (err) {
                    assert_int_equal(out.len, 0);
                    continue;
                }
                if (skip == count) assert_int_equal(out.len, 0);
                else assert_int_equal(out.p[KW_MESSAGE_ATTRIBUTES] & KW_ATTR_CODEC, codec);
                assert_messages(out.p, out.len, magic, skip, count, magic == 1, BASE_OFFSET);
                if (codec == KW_CODEC_LZ4 && skip < count) /* PR-08 */
                    assert_int_equal(out.p[out.len - kw_load32(out.p + KW_MESSAGE_TIMESTAMP + 8 * magic + 4) + 6] == 0x82, magic == 1);
            }
        kw_out_reset(&out);
        p[KW_BATCH_ATTRIBUTES + 1] |= KW_ATTR_CONTROL;
        assert_int_equal(kw_batch_to_message_set(p, n, 1, 0, 1 << 20, comp, &out), KW_OK);
        assert_int_equal(out.len, 0);
        free(p);
    }
    kw_out_deinit(&out);
}

/* ---- the other direction: our sets for Kafka's code */

static void build_batch(struct kw_out *out, const char *scenario, int codec) {
    struct kw_out plain;
    kw_out_init(&plain);
    size_t count = expect(2, scenario);
    assert_non_null(kw_out_reserve(&plain, KW_BATCH_HEADER_SIZE));
    struct kw_batch_header h = {.base_offset = BASE_OFFSET, .last_offset_delta = (int32_t)count - 1, .base_timestamp = want[0].timestamp,
                                .max_timestamp = want[0].timestamp, .producer_id = -1, .producer_epoch = -1, .base_sequence = -1,
                                .leader_epoch = -1, .record_count = (int32_t)count};
    for (size_t i = 0; i < count; i++) {
        struct kw_record_in r = {.timestamp_delta = want[i].timestamp - want[0].timestamp, .offset_delta = (int32_t)i, .key = want[i].key,
                                 .value = want[i].value, .headers = want[i].headers, .header_count = want[i].header_count};
        size_t size = kw_record_size(&r);
        kw_record_write(kw_out_reserve(&plain, size), &r, size);
        h.max_timestamp = KW_MAX(h.max_timestamp, want[i].timestamp);
    }
    h.length = (int32_t)plain.len - KW_BATCH_OVERHEAD;
    kw_batch_write_header(plain.p, &h);
    kw_batch_crc_set(plain.p, plain.len);
    if (strcmp(scenario, "append") == 0) kw_batch_set_max_timestamp(plain.p, plain.len, APPEND_TIME, true);
    kw_out_reset(out);
    if (codec == KW_CODEC_NONE) {
        kw_out_bytes(out, plain.p, plain.len);
    } else {
        size_t cap = KW_BATCH_HEADER_SIZE + kw_compress_bound(codec, plain.len);
        assert_int_equal(kw_batch_compress(comp, codec, KW_LEVEL_DEFAULT, plain.p, plain.len, kw_out_reserve(out, cap), cap, &out->len), KW_OK);
    }
    kw_out_deinit(&plain);
}

static void build_message_set(struct kw_out *out, int8_t magic, const char *scenario, int codec) {
    struct kw_out inner;
    kw_out_init(&inner);
    kw_out_reset(out);
    size_t count = expect(magic, scenario);
    bool append = strcmp(scenario, "append") == 0;
    int64_t latest = INT64_MIN;
    for (size_t i = 0; i < count; i++) {
        int64_t offset = (int64_t)i + (codec != KW_CODEC_NONE && magic == 1 ? 0 : BASE_OFFSET);
        assert_int_equal(kw_message_write(codec == KW_CODEC_NONE ? out : &inner, magic, offset, want[i].timestamp,
                                          append && magic == 1 ? KW_ATTR_LOG_APPEND_TIME : 0, want[i].key, want[i].value), KW_OK);
        latest = KW_MAX(latest, want[i].timestamp);
    }
    if (codec != KW_CODEC_NONE)
        assert_int_equal(kw_message_write_wrapper(out, magic, codec, KW_LEVEL_DEFAULT, BASE_OFFSET + (int64_t)count - 1, latest, append, inner.p,
                                                  inner.len, comp), KW_OK);
    kw_out_deinit(&inner);
}

static const char *write_dir;

static void test_reads_what_we_write(void **state) {
    (void)state;
    static const char *const scenarios[] = {"plain", "nulls", "headers", "times", "append", "large"};
    struct kw_out out;
    kw_out_init(&out);
    for (int8_t magic = 0; magic <= 2; magic++)
        for (int codec = 0; codec < KW_CODEC_COUNT; codec++)
            for (size_t s = 0; s < KW_COUNTOF(scenarios); s++) {
                const char *scenario = scenarios[s];
                if (!kw_codec_built(codec) || (magic < 2 && (codec == KW_CODEC_ZSTD || strcmp(scenario, "headers") == 0))) continue;
                if (magic == 0 && (strcmp(scenario, "times") == 0 || strcmp(scenario, "append") == 0)) continue;
                if (magic == 2) {
                    build_batch(&out, scenario, codec);
                    assert_batch(out.p, out.len, expect(2, scenario), BASE_OFFSET, true);
                } else {
                    build_message_set(&out, magic, scenario, codec);
                    assert_messages(out.p, out.len, magic, 0, expect(magic, scenario), true, BASE_OFFSET);
                }
                if (!write_dir) continue;
                char path[4096];
                snprintf(path, sizeof(path), "%s/%d-%s-%s.bin", write_dir, magic, kw_codec_name(codec), scenario);
                FILE *f = fopen(path, "wb");
                assert_non_null(f);
                assert_int_equal(fwrite(out.p, 1, out.len, f), out.len);
                assert_int_equal(fclose(f), 0);
            }
    kw_out_deinit(&out);
}

static int setup(void **state) {
    (void)state;
    comp = kw_compressor_new();
    return comp ? 0 : -1;
}
static int teardown(void **state) {
    (void)state;
    kw_compressor_free(comp);
    return 0;
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_what_kafka_wrote),
        cmocka_unit_test(test_PR_07_mixed_formats),
        cmocka_unit_test(test_conversion_up),
        cmocka_unit_test(test_conversion_down),
        cmocka_unit_test(test_reads_what_we_write),
    };
    if (argc == 3 && strcmp(argv[1], "--write") == 0) write_dir = argv[2];
    return cmocka_run_group_tests(tests, setup, teardown);
}
