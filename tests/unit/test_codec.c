/* test_codec.c - every message of every version: against bytes that Apache Kafka encoded, against a second encoder, and with what a
 * broken or hostile peer sends in any of its fields. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "golden_messages.h"
#include "kw_messages.h"
#include "plain_codec.h"
#include "random_msg.h"

static struct kw_arena arena, decoded;
static struct kw_out plain_out, out;

static int setup(void **state) {
    (void)state;
    kw_arena_init(&arena, 0);
    kw_arena_init(&decoded, 0);
    kw_out_init(&plain_out);
    kw_out_init(&out);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    kw_arena_deinit(&arena);
    kw_arena_deinit(&decoded);
    kw_out_deinit(&plain_out);
    kw_out_deinit(&out);
    return 0;
}

static const struct kw_desc *desc_by_name(const char *name) {
    for (size_t i = 0; i < kw_message_count; i++) {
        if (strcmp(kw_messages[i]->name, name) == 0) return kw_messages[i];
    }
    fail_msg("no message %s", name);
    return NULL;
}

/* The message lives in `decoded`; what it takes of it is bounded by the input. */
static kw_err decode_some(const struct kw_desc *d, int16_t v, const uint8_t *p, size_t n, void **msg, size_t *left) {
    kw_arena_reset(&decoded);
    *msg = kw_arena_alloc(&decoded, d->size);
    size_t before = decoded.used;
    struct kw_in in;
    kw_in_init(&in, p, n);
    kw_err err = kw_decode(d, v, &in, &decoded, *msg);
    assert_true(decoded.used - before <= KW_DECODE_EXPANSION_MAX * n);
    if (err != KW_OK) assert_memory_equal(*msg, d->init, d->size);
    *left = kw_in_left(&in);
    return err;
}

static kw_err decode(const struct kw_desc *d, int16_t v, const uint8_t *p, size_t n, void **msg) {
    size_t left;
    kw_err err = decode_some(d, v, p, n, msg, &left);
    if (err == KW_OK && left != 0) fail_msg("%s v%d: %zu bytes left over", d->name, v, left);
    return err;
}

static void expect_same(const struct kw_desc *d, int16_t v, const uint8_t *p, size_t n) {
    void *msg;
    kw_err err = decode(d, v, p, n, &msg);
    if (err != KW_OK) fail_msg("%s v%d: decode says %d", d->name, v, err);
    kw_out_reset(&out);
    assert_int_equal(kw_encode(d, v, msg, &out), KW_OK);
    if (out.len != n || (n && memcmp(out.p, p, n) != 0)) fail_msg("%s v%d: encodes to other bytes", d->name, v);
}

static void kafkas_bytes_come_back_and_no_prefix_decodes(void **state) {
    (void)state;
    size_t versions = 0;
    for (size_t i = 0; i < kw_message_count; i++) /* all but those of an API of ours */
        if (strncmp(kw_messages[i]->name, "LookupGuid", 10) != 0) versions += (size_t)(kw_messages[i]->max - kw_messages[i]->min + 1);
    assert_int_equal(KW_COUNTOF(golden_messages), versions);
    for (size_t i = 0; i < KW_COUNTOF(golden_messages); i++) {
        const struct kw_desc *d = desc_by_name(golden_messages[i].name);
        int16_t v = golden_messages[i].version;
        const char *hex = golden_messages[i].hex;
        uint8_t b[4096];
        size_t n = strlen(hex) / 2;
        assert_true(n <= sizeof b);
        for (size_t k = 0; k < n; k++) {
            unsigned x;
            assert_int_equal(sscanf(hex + 2 * k, "%2x", &x), 1);
            b[k] = (uint8_t)x;
        }
        expect_same(d, v, b, n);
        for (size_t k = 0; k < n; k++) {
            void *msg;
            kw_err err = decode(d, v, b, k, &msg);
            assert_true(err == KW_ESHORT || err == KW_EDECODE);
        }
    }
}

/* PR-17: no extra and no missing field in any version. */
static void PR_17_every_version_encodes_to_the_schemas_bytes(void **state) {
    (void)state;
    struct kw_rng rng;
    kw_rng_init(&rng, 17);
    for (size_t i = 0; i < kw_message_count; i++) {
        const struct kw_desc *d = kw_messages[i];
        for (int16_t v = d->min; v <= d->max; v++) {
            for (uint32_t k = 0; k < 12; k++) {
                kw_arena_reset(&arena);
                void *msg = random_message(d, v, &rng, &arena, k % 4);
                kw_out_reset(&plain_out);
                struct plain c = {.out = &plain_out, .version = v};
                plain_struct(&c, d, msg);
                kw_out_reset(&out);
                assert_int_equal(kw_encode(d, v, msg, &out), KW_OK);
                if (out.len != plain_out.len || (out.len && memcmp(out.p, plain_out.p, out.len) != 0)) fail_msg("%s v%d: not the schema's bytes", d->name, v);
                if (k == 0) assert_true(out.len >= d->size_min[v - d->min]);
                expect_same(d, v, plain_out.p, plain_out.len);
            }
        }
    }
}

/* A message whose arrays have one element, whose pointers and tagged fields are set. */
static void fill_full(const struct kw_desc *d, int16_t v, uint8_t *msg);

static void fill_full_field(const struct kw_field *f, int16_t v, uint8_t *at) {
    static const uint8_t one[16] = {1};
    uint8_t *s = NULL;
    if (f->type == KW_T_STRING) *(struct kw_str *)(void *)at = (struct kw_str){"s", 1};
    else if (f->type == KW_T_BYTES) *(struct kw_bytes *)(void *)at = (struct kw_bytes){one, 1};
    else if (f->type == KW_T_RECORDS) *(struct kw_records *)(void *)at = (struct kw_records){one, 1, NULL};
    else if (f->type == KW_T_ARRAY) {
        struct kw_array a = {kw_arena_calloc(&arena, 1, f->elem == KW_T_STRUCT ? f->desc->size : 16), 1};
        if (f->elem == KW_T_STRUCT) {
            kw_msg_init(f->desc, a.v);
            fill_full(f->desc, v, a.v);
        }
        memcpy(at, &a, sizeof a);
    } else if (f->type == KW_T_STRUCT && f->null_min < 0) {
        fill_full(f->desc, v, at);
    } else if (f->type == KW_T_STRUCT) {
        s = kw_arena_dup(&arena, f->desc->init, f->desc->size);
        fill_full(f->desc, v, s);
        memcpy(at, &s, sizeof s);
    } else if (f->tag >= 0) {
        memcpy(at, one, 1);
    }
}

static void fill_full(const struct kw_desc *d, int16_t v, uint8_t *msg) {
    for (size_t i = 0; i < d->field_count; i++) {
        if (v >= d->fields[i].min && v <= d->fields[i].max) fill_full_field(&d->fields[i], v, msg + d->fields[i].offset);
    }
}

typedef void visit_fn(const struct kw_desc *root, const void *msg, const struct kw_field *f, int16_t v, const uint8_t *at);

static void visit(const struct kw_desc *root, const void *msg, const struct kw_desc *d, int16_t v, const uint8_t *s, visit_fn *fn) {
    for (size_t i = 0; i < d->field_count; i++) {
        const struct kw_field *f = &d->fields[i];
        const uint8_t *at = s + f->offset, *sub = NULL;
        if (v < f->min || v > f->max) continue;
        if (f->type == KW_T_STRUCT && f->null_min < 0) {
            sub = at;
        } else {
            if (f->type >= KW_T_STRING) fn(root, msg, f, v, at);
            if (f->desc) memcpy(&sub, at, sizeof sub); /* the array's element, or the pointer */
        }
        if (sub) visit(root, msg, f->desc, v, sub, fn);
    }
}

static size_t visits, nulls_taken;

static void visit_all(visit_fn *fn) {
    visits = nulls_taken = 0;
    for (size_t i = 0; i < kw_message_count; i++) {
        const struct kw_desc *d = kw_messages[i];
        for (int16_t v = d->min; v <= d->max; v++) {
            kw_arena_reset(&arena);
            void *msg = kw_arena_dup(&arena, d->init, d->size);
            fill_full(d, v, msg);
            visit(d, msg, d, v, msg, fn);
        }
    }
}

static void lie(const struct kw_desc *d, const void *msg, int16_t v, const uint8_t *at, int64_t n) {
    kw_out_reset(&plain_out);
    struct plain c = {.out = &plain_out, .version = v, .lie_at = at, .lie = n};
    plain_struct(&c, d, msg);
}

static void check_null(const struct kw_desc *root, const void *msg, const struct kw_field *f, int16_t v, const uint8_t *at) {
    bool nullable = f->null_min >= 0 && v >= f->null_min && v <= f->null_max;
    if (f->type == KW_T_STRUCT && !nullable) return;
    lie(root, msg, v, at, -1);
    void *got;
    kw_err err = decode(root, v, plain_out.p, plain_out.len, &got);
    if (err != (nullable ? KW_OK : KW_EDECODE)) fail_msg("%s v%d %s null: %d", root->name, v, f->name, err);
    visits++;
    nulls_taken += nullable;
}

/* PR-01: a null in place of every array (string, bytes, struct) of every message. */
static void PR_01_null_is_taken_where_nullable_else_refused(void **state) {
    (void)state;
    visit_all(check_null);
        assert_true(visits >= 1000 && nulls_taken > 200 && nulls_taken < visits);
}

static void check_huge(const struct kw_desc *root, const void *msg, const struct kw_field *f, int16_t v, const uint8_t *at) {
    static const int64_t claims[] = {INT32_MAX, INT32_MAX - 1, 1 << 24, 40000, 300};
    if (f->type == KW_T_STRUCT) return;
    for (size_t i = 0; i < KW_COUNTOF(claims); i++) {
        if (f->type == KW_T_STRING && claims[i] > INT16_MAX && v < root->flexible_min) continue; /* the field cannot say so */
        lie(root, msg, v, at, claims[i]);
        void *got;
        kw_err err = decode(root, v, plain_out.p, plain_out.len, &got);
        if (err != KW_ESHORT && err != KW_EDECODE) fail_msg("%s v%d %s claims %ld: %d", root->name, v, f->name, (long)claims[i], err);
        assert_true(decoded.used < 4096 + KW_DECODE_EXPANSION_MAX * plain_out.len);
        visits++;
    }
}

/* PR-02: any count or length claims up to 2^31-1 in a short message, at any depth. */
static void PR_02_huge_counts_are_refused_before_allocation(void **state) {
    (void)state;
    visit_all(check_huge);
        assert_true(visits >= 4000);
}

/* PR-02: thirty bytes that repeat one count, so that it stands in the arrays of every level. */
static void PR_02_nested_counts_take_memory_like_the_input(void **state) {
    (void)state;
    enum { SIZE = 30 };
    size_t taken = 0;
    for (size_t i = 0; i < kw_message_count; i++) {
        const struct kw_desc *d = kw_messages[i];
        for (int16_t v = d->min; v <= d->max; v++) {
            for (int b = 0; b < 256; b++) {
                uint8_t in[SIZE];
                for (size_t k = 0; k < SIZE; k++) in[k] = (uint8_t)(k % 4 == 3 || v >= d->flexible_min ? b : 0);
                void *msg;
                size_t left; /* decode_some checks what the arena took; the result may be either */
                taken += decode_some(d, v, in, SIZE, &msg, &left) == KW_OK;
                taken += decode_some(d, v, in, (size_t)b % SIZE, &msg, &left) == KW_OK;
            }
        }
    }
    assert_true(taken > 1000);
}

/* PR-03: unknown tagged fields on every struct level of Metadata (and of every other flexible message). */
static void PR_03_unknown_tags_are_skipped_by_their_size(void **state) {
    (void)state;
    static const uint32_t sizes[] = {0, 1, 127, 128, 70000};
    size_t metadata = 0;
    for (size_t i = 0; i < kw_message_count; i++) {
        const struct kw_desc *d = kw_messages[i];
        for (int16_t v = KW_MAX(d->min, d->flexible_min); v <= d->max; v++) {
            kw_arena_reset(&arena);
            void *msg = kw_arena_dup(&arena, d->init, d->size), *got;
            fill_full(d, v, msg);
            struct kw_out want;
            kw_out_init(&want);
            assert_int_equal(kw_encode(d, v, msg, &want), KW_OK);
            for (size_t k = 0; k < KW_COUNTOF(sizes); k++) {
                kw_out_reset(&plain_out);
                struct plain c = {.out = &plain_out, .version = v, .unknown = true, .unknown_size = sizes[k]};
                plain_struct(&c, d, msg);
                assert_true(plain_out.len > want.len + sizes[k]);
                assert_int_equal(decode(d, v, plain_out.p, plain_out.len, &got), KW_OK);
                kw_out_reset(&out);
                assert_int_equal(kw_encode(d, v, got, &out), KW_OK);
                assert_int_equal(out.len, want.len);
                assert_memory_equal(out.p, want.p, want.len);
                metadata += strcmp(d->name, "MetadataResponse") == 0;
            }
            kw_out_deinit(&want);
        }
    }
    assert_int_equal(metadata, 5 * KW_COUNTOF(sizes)); /* v9 to v13 */
}

/* PR-10: a fetched partition without records: length -1, and 0. */
static void PR_10_records_null_and_empty_both_decode(void **state) {
    (void)state;
    for (int16_t v = kw_fetch_response_desc.min; v <= kw_fetch_response_desc.max; v++) {
        for (int32_t len = -1; len <= 0; len++) {
            struct kw_fetch_response m;
            struct kw_fetch_response_fetchable_topic_response t;
            struct kw_fetch_response_partition_data p;
            kw_msg_init(&kw_fetch_response_desc, &m);
            kw_msg_init(kw_fetch_response_desc.fields[3].desc, &t);
            kw_msg_init(kw_fetch_response_desc.fields[3].desc->fields[2].desc, &p);
            p.records = (struct kw_records){NULL, len, NULL};
            t.partitions.v = &p;
            m.responses.v = &t;
            t.partitions.n = m.responses.n = 1;
            kw_out_reset(&out);
            assert_int_equal(kw_encode(&kw_fetch_response_desc, v, &m, &out), KW_OK);
            void *got;
            assert_int_equal(decode(&kw_fetch_response_desc, v, out.p, out.len, &got), KW_OK);
            struct kw_fetch_response *g = got;
            assert_int_equal(g->responses.n, 1);
            assert_int_equal(g->responses.v[0].partitions.n, 1);
            assert_int_equal(g->responses.v[0].partitions.v[0].records.len, len);
        }
    }
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    const struct kw_desc *d = &kw_metadata_response_desc;
    int16_t v = 12;
    struct kw_rng rng;
    kw_rng_init(&rng, 5);
    kw_arena_reset(&arena);
    void *msg = random_message(d, v, &rng, &arena, 100), *got = kw_arena_alloc(&arena, d->size);
    kw_out_reset(&out);
    assert_int_equal(kw_encode(d, v, msg, &out), KW_OK);
    assert_true(out.len > 20000);
    for (int64_t n = 0;; n++) {
        struct kw_arena a;
        kw_arena_init(&a, 0);
        struct kw_out o;
        kw_out_init(&o);
        struct kw_in in;
        kw_in_init(&in, out.p, out.len);
        kw_alloc_fail_after(n);
        kw_err err = kw_decode(d, v, &in, &a, got);
        if (err == KW_OK) err = kw_encode(d, v, got, &o);
        kw_alloc_fail_after(-1);
        if (err == KW_OK) {
            assert_int_equal(o.len, out.len);
            assert_true(n > 8);
        } else {
            assert_int_equal(err, KW_ENOMEM);
        }
        kw_arena_deinit(&a);
        kw_out_deinit(&o);
        if (err == KW_OK) break;
    }
    struct kw_arena small; /* over its budget an arena says no */
    kw_arena_init(&small, 1000);
    struct kw_in in;
    kw_in_init(&in, out.p, out.len);
    assert_int_equal(kw_decode(d, v, &in, &small, got), KW_ENOMEM);
    assert_memory_equal(got, d->init, d->size);
    kw_arena_deinit(&small);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kafkas_bytes_come_back_and_no_prefix_decodes),
        cmocka_unit_test(PR_17_every_version_encodes_to_the_schemas_bytes),
        cmocka_unit_test(PR_01_null_is_taken_where_nullable_else_refused),
        cmocka_unit_test(PR_02_huge_counts_are_refused_before_allocation),
        cmocka_unit_test(PR_02_nested_counts_take_memory_like_the_input),
        cmocka_unit_test(PR_03_unknown_tags_are_skipped_by_their_size),
        cmocka_unit_test(PR_10_records_null_and_empty_both_decode),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
