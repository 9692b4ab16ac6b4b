/* test_guid_dedup.c - one batch against what is known: which records are kept, and what the batch looks like without the others (specs.md, GUID dedup:
 * rules 1, 5, 6, 7). */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "guid/dedup.h"

struct rec { /* id 0: none; twice, length: a wrong one */
    uint64_t id;
    int64_t timestamp;
    const char *value;
    int length;
    bool twice;
};

static void put_id(uint8_t out[KB_GUID_SIZE], uint64_t id) {
    memset(out, 0x5a, KB_GUID_SIZE);
    kw_store64(out + 8, id);
}

static size_t make(uint8_t *p, size_t cap, const struct rec *v, int32_t n, int codec, int16_t attributes, int64_t pid, struct kw_compressor *c,
                   struct kw_batch_header *h) {
    uint8_t *plain = malloc(cap), *at = plain + KW_BATCH_HEADER_SIZE;
    *h = (struct kw_batch_header){.leader_epoch = -1, .magic = 2, .attributes = attributes, .last_offset_delta = n - 1, .base_timestamp = 1000,
                                  .max_timestamp = INT64_MIN, .producer_id = pid, .producer_epoch = pid < 0 ? -1 : 3,
                                  .base_sequence = pid < 0 ? -1 : 77, .record_count = n};
    for (int32_t i = 0; i < n; i++) {
        uint8_t id[KB_GUID_SIZE + 1] = {0};
        put_id(id, v[i].id);
        struct kw_header_view hs[3] = {{kw_str_of("other"), {(const uint8_t *)"x", 1}},
                                       {kw_str_of("guid"), {id, v[i].length ? v[i].length : KB_GUID_SIZE}},
                                       {kw_str_of("guid"), {id, KB_GUID_SIZE}}};
        const char *value = v[i].value ? v[i].value : "value";
        struct kw_record_in r = {.timestamp_delta = v[i].timestamp - 1000, .offset_delta = i, .key = {(const uint8_t *)"key", 3},
                                 .value = {(const uint8_t *)value, (int32_t)strlen(value)}, .headers = hs,
                                 .header_count = v[i].twice ? 3 : v[i].id || v[i].length ? 2 : 1};
        at = kw_record_write(at, &r, kw_record_size(&r));
        h->max_timestamp = KW_MAX(h->max_timestamp, v[i].timestamp);
        assert_true((size_t)(at - plain) < cap / 2);
    }
    size_t size = (size_t)(at - plain);
    h->length = (int32_t)(size - KW_BATCH_OVERHEAD);
    kw_batch_write_header(plain, h);
    kw_batch_crc_set(plain, size);
    memcpy(p, plain, size);
    if (codec) assert_int_equal(kw_batch_compress(c, codec, KW_LEVEL_DEFAULT, plain, size, p, cap, &size), KW_OK);
    assert_int_equal(kw_batch_parse(p, size, h), KW_OK);
    free(plain);
    return size;
}

struct rig {
    struct kw_compressor *c;
    struct kw_rng rng;
    struct kb_dedup *d;
    uint8_t batch[1 << 20];
    size_t size;
    struct kw_batch_header h;
    struct kw_blk *blk;
    size_t out_size;
};
static void up(struct rig *r) {
    memset(r, 0, sizeof(*r));
    r->c = kw_compressor_new();
    kw_rng_init(&r->rng, 1);
    r->d = kb_dedup_new(&r->rng);
    assert_non_null(r->d);
}
static void down(struct rig *r) {
    kw_blk_unref(r->blk);
    kb_dedup_free(r->d);
    kw_compressor_free(r->c);
}
static void take(struct rig *r, const struct rec *v, int32_t n, int codec, int16_t attributes, int64_t pid) {
    r->size = make(r->batch, sizeof(r->batch), v, n, codec, attributes, pid, r->c, &r->h);
    assert_int_equal(kb_dedup_take(r->d, r->batch, r->size, &r->h, r->c, 1 << 20), KW_OK);
    for (size_t i = 0; i < r->d->batch.entry_count; i++) r->d->found[i].offset = -1;
}
/* The index knows id at offset. */
static void known(struct rig *r, uint64_t id, int64_t offset, const char *value) {
    uint8_t b[KB_GUID_SIZE];
    put_id(b, id);
    for (size_t i = 0; i < r->d->batch.entry_count; i++) {
        if (memcmp(r->d->batch.entries[i].id, b, sizeof(b)) != 0) continue;
        r->d->found[i].offset = offset;
        r->d->found[i].payload = kb_guid_payload((struct kw_bytes){(const uint8_t *)"key", 3}, (struct kw_bytes){(const uint8_t *)value,
        (int32_t)strlen(value)});
    }
}
static void rewrite(struct rig *r) {
    kw_blk_unref(r->blk);
    r->blk = NULL;
    assert_int_equal(kb_dedup_judge(r->d), KW_OK);
    assert_int_equal(kb_dedup_rewrite(r->d, r->batch, r->size, &r->h, r->c, KW_LEVEL_DEFAULT, 1 << 20, &r->blk, &r->out_size), KW_OK);
}

/* The bytes of each record of a batch, one after the other. */
static size_t bytes_of(struct rig *r, const uint8_t *p, size_t size, int32_t *deltas, size_t *sizes, uint8_t *out) {
    struct kw_batch_header h;
    const uint8_t *body;
    size_t n, count = 0, at = 0;
    struct kw_record_iter it;
    struct kw_record_view v;
    assert_int_equal(kw_batch_parse(p, size, &h), KW_OK);
    assert_int_equal(kw_batch_body(p, size, &h, 1 << 20, r->c, &body, &n), KW_OK);
    memcpy(out, body, n);
    kw_record_iter_init(&it, &h, out, n);
    while (kw_record_next(&it, &v) > 0) {
        deltas[count] = v.offset_delta;
        sizes[count++] = v.wire_size;
        at += v.wire_size;
    }
    assert_int_equal(at, n);
    return count;
}

/* The batch is the one sent, without those that `gone` names: in the shape that compaction leaves. */
static void check_shape(struct rig *r, const bool *gone, int64_t max_timestamp) {
    static uint8_t a[1 << 20], b[1 << 20];
    int32_t da[64], db[64];
    size_t sa[64], sb[64], at_a = 0, at_b = 0, j = 0;
    struct kw_batch_header h;
    struct kw_batch_facts facts;
    struct kw_batch_check check = {.allow_holes = true, .limit = 1 << 20, .compressor = r->c};
    assert_int_equal(kw_batch_check(r->blk->data, r->out_size, &check, &facts, NULL), KW_OK);
    assert_int_equal(kw_batch_parse(r->blk->data, r->out_size, &h), KW_OK);
    assert_int_equal(h.length + KW_BATCH_OVERHEAD, r->out_size);
    assert_int_equal(h.base_offset, r->h.base_offset);
    assert_int_equal(h.last_offset_delta, r->h.last_offset_delta);
    assert_int_equal(h.base_timestamp, r->h.base_timestamp);
    assert_int_equal(h.max_timestamp, max_timestamp);
    assert_int_equal(h.producer_id, r->h.producer_id);
    assert_int_equal(h.producer_epoch, r->h.producer_epoch);
    assert_int_equal(h.base_sequence, r->h.base_sequence);
    size_t n = bytes_of(r, r->batch, r->size, da, sa, a), m = bytes_of(r, r->blk->data, r->out_size, db, sb, b);
    assert_int_equal(h.record_count, m);
    assert_int_equal(h.attributes, m > 0 ? r->h.attributes : r->h.attributes & ~KW_ATTR_CODEC);
    for (size_t i = 0; i < n; at_a += sa[i++]) {
        if (gone[i]) continue;
        assert_true(j < m);
        assert_int_equal(db[j], da[i]);
        assert_int_equal(sb[j], sa[i]);
        assert_memory_equal(b + at_b, a + at_a, sa[i]); /* byte for byte */
        at_b += sb[j++];
    }
    assert_int_equal(j, m);
}

static void test_rule_1_wrong_ids(void **state) {
    (void)state;
    struct rig r;
    up(&r);
    take(&r, (const struct rec[]){{1, 1000, 0, 0, 0}, {2, 1000, 0, 15, 0}, {0, 1000, 0, 0, 0}, {3, 1000, 0, 0, true}, {4, 1000, 0, 17, 0}, {0, 1000, 0, -1, 0}},
         6, 0, 0, -1);
    const struct kb_guid_batch *b = &r.d->batch;
    assert_int_equal(b->count, 6);
    assert_int_equal(b->bad_count, 4);
    assert_int_equal(b->v[0].verdict, KB_GUID_ID);
    assert_int_equal(b->v[1].verdict, KB_GUID_LENGTH);
    assert_int_equal(b->v[2].verdict, KB_GUID_NONE);
    assert_int_equal(b->v[3].verdict, KB_GUID_TWICE);
    assert_int_equal(b->v[4].verdict, KB_GUID_LENGTH);
    assert_int_equal(b->v[5].verdict, KB_GUID_LENGTH); /* null */
    down(&r);
}

/* Records without an id are stored, whatever they hold. */
static void test_rule_1_without_ids(void **state) {
    (void)state;
    struct rig r;
    up(&r);
    take(&r, (const struct rec[]){{0, 1000, 0, 0, 0}, {0, 1000, 0, 0, 0}, {5, 1000, 0, 0, 0}}, 3, 0, 0, -1);
    assert_int_equal(kb_dedup_judge(r.d), KW_OK);
    assert_int_equal(r.d->kept, 3);
    known(&r, 5, 40, "value");
    rewrite(&r);
    assert_int_equal(r.d->kept, 2);
    check_shape(&r, (bool[]){false, false, true}, 1000);
    down(&r);
}

/* Of a batch that comes as it is, nothing more is looked at; of one that repeats an id it is, though the index knows none of them. */
static void test_none_found(void **state) {
    (void)state;
    for (int repeats = 0; repeats < 2; repeats++) {
        struct rig r;
        up(&r);
        take(&r, (const struct rec[]){{3, 1001, 0, 0, 0}, {0, 1002, 0, 0, 0}, {repeats ? 3 : 4, 1003, 0, 0, 0}}, 3, 0, 0, -1);
        r.d->none_found = true;
        assert_int_equal(kb_dedup_judge(r.d), KW_OK);
        assert_int_equal(r.d->kept, repeats ? 2 : 3);
        assert_int_equal(kb_dedup_first(r.d, 2, 100), repeats ? 100 : -1);
        assert_int_equal(kb_dedup_stored(r.d, 100), repeats ? 1 : 2);
        assert_int_equal(r.d->batch.entries[0].offset, 100);
        if (!repeats) assert_int_equal(r.d->batch.entries[1].offset, 102);
        take(&r, (const struct rec[]){{3, 1001, 0, 0, 0}}, 1, 0, 0, -1);
        assert_false(r.d->none_found); /* of another batch */
        down(&r);
    }
}

/* The same id again within a batch is met, wherever the first copy is. */
static void test_rule_5_within_a_batch(void **state) {
    (void)state;
    struct rig r;
    up(&r);
    take(&r, (const struct rec[]){{9, 1001, "a", 0, 0}, {3, 1002, 0, 0, 0}, {9, 1003, "b", 0, 0}, {9, 1004, "a", 0, 0}, {3, 1005, 0, 0, 0}, {7, 1006, 0, 0, 0}},
         6, 0, 0, -1);
    known(&r, 3, 12, "value");
    rewrite(&r);
    assert_int_equal(r.d->kept, 2);
    assert_int_equal(r.d->mismatches, 1);
    const int64_t first[] = {-1, 12, 100, 100, 12, -1};
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(kb_dedup_first(r.d, i, 100), first[i]);
        assert_int_equal(kb_dedup_mismatch(r.d, i), i == 2);
    }
    check_shape(&r, (bool[]){false, true, true, true, true, false}, 1006);
    assert_int_equal(kb_dedup_stored(r.d, 100), 2);
    assert_int_equal(r.d->batch.entries[0].offset, 100);
    assert_int_equal(r.d->batch.entries[1].offset, 105);
    uint8_t id[KB_GUID_SIZE];
    put_id(id, 7);
    assert_memory_equal(r.d->batch.entries[1].id, id, KB_GUID_SIZE);
    down(&r);
}

/* Every subset of a batch of six, in every codec, with and without the broker's time. */
static void test_rule_6_every_subset(void **state) {
    (void)state;
    static struct rig r;
    up(&r);
    const struct rec v[] = {{1, 1500, "first", 0, 0}, {2, 1400, "2", 0, 0}, {3, 1900, "", 0, 0}, {4, 1300, "four", 0, 0}, {5, 1200, "5", 0, 0}, {6,
        1100, "six", 0, 0}};
    for (int codec = 0; codec < KW_CODEC_COUNT; codec++)
        for (unsigned mask = 1; mask < 64; mask++)
            for (int append_time = 0; append_time < 2; append_time++) {
                if (!kw_codec_built(codec)) continue;
                bool gone[6];
                int64_t max = INT64_MIN;
                take(&r, v, 6, codec, append_time ? KW_ATTR_LOG_APPEND_TIME : 0, 41);
                for (size_t i = 0; i < 6; i++) {
                    gone[i] = mask >> i & 1;
                    if (gone[i]) known(&r, v[i].id, 500 + (int64_t)i, "other");
                    else max = KW_MAX(max, v[i].timestamp);
                }
                if (mask == 63 || append_time) max = r.h.max_timestamp;
                rewrite(&r);
                assert_int_equal(r.d->mismatches, __builtin_popcount(mask));
                check_shape(&r, gone, max);
                if (mask == 63) assert_int_equal(r.out_size, KW_BATCH_HEADER_SIZE);
            }
    down(&r);
}

/* Rule 7: a wholly duplicate batch is 61 bytes: no codec, no record, the timestamp as sent. */
static void test_rule_7_empty(void **state) {
    (void)state;
    static struct rig r;
    up(&r);
    take(&r, (const struct rec[]){{1, 1500, 0, 0, 0}, {2, 1400, 0, 0, 0}}, 2, KW_CODEC_GZIP, 0, 41);
    known(&r, 1, 5, "value");
    known(&r, 2, 6, "value");
    rewrite(&r);
    assert_int_equal(r.out_size, 61);
    check_shape(&r, (bool[]){true, true}, 1500);
    assert_int_equal(kb_dedup_stored(r.d, 10), 0);
    down(&r);
}

/* Against sets and a plain search: thousands of random batches, whose ids repeat often, or ascend. */
static void test_random(void **state) {
    (void)state;
    static struct rig r;
    up(&r);
    for (int round = 0; round < 3000; round++) {
        struct rec v[60] = {{0}};
        int32_t n = 1 + (int32_t)kw_rng_below(&r.rng, 60);
        uint64_t ids = 1 + kw_rng_below(&r.rng, 80);
        bool up_only = kw_rng_below(&r.rng, 3) == 0;
        for (int32_t i = 0; i < n; i++) {
            v[i].id = kw_rng_below(&r.rng, 8) == 0 ? 0 : up_only ? (uint64_t)i + 1 : 1 + kw_rng_below(&r.rng, ids);
            v[i].timestamp = 1000 + (int64_t)kw_rng_below(&r.rng, 1000);
            v[i].value = kw_rng_below(&r.rng, 2) ? "one" : "two";
        }
        take(&r, v, n, (int)kw_rng_below(&r.rng, 2) * KW_CODEC_LZ4, 0, -1);
        bool is_known[100] = {false};
        for (uint64_t id = 1; id < 90; id++)
            if (kw_rng_below(&r.rng, 4) == 0) {
                is_known[id] = true;
                known(&r, id, (int64_t)id * 10, "one");
            }
        bool gone[60] = {false};
        size_t kept = 0, mismatches = 0;
        int64_t firsts[60], max = INT64_MIN;
        for (int32_t i = 0; i < n; i++) {
            int32_t j = 0;
            while (j < i && v[j].id != v[i].id) j++;
            const char *first_value = is_known[v[i].id] ? "one" : v[j].value;
            gone[i] = v[i].id != 0 && (is_known[v[i].id] || j < i);
            firsts[i] = !gone[i] ? -1 : is_known[v[i].id] ? (int64_t)v[i].id * 10 : 7000 + j;
            kept += !gone[i];
            mismatches += gone[i] && strcmp(first_value, v[i].value) != 0;
            if (!gone[i]) max = KW_MAX(max, v[i].timestamp);
        }
        rewrite(&r);
        assert_int_equal(r.d->kept, kept);
        assert_int_equal(r.d->mismatches, mismatches);
        for (int32_t i = 0; i < n; i++) assert_int_equal(kb_dedup_first(r.d, (size_t)i, 7000), firsts[i]);
        check_shape(&r, gone, kept > 0 ? max : r.h.max_timestamp);
        size_t stored = kb_dedup_stored(r.d, 7000), at = 0;
        for (int32_t i = 0; i < n; i++) {
            if (gone[i] || v[i].id == 0) continue;
            assert_true(at < stored);
            assert_int_equal(r.d->batch.entries[at++].offset, 7000 + i);
        }
        assert_int_equal(at, stored);
    }
    down(&r);
}

/* The longest row of slots that are taken: what a search may have to walk along. */
static size_t longest_row(const struct kb_dedup *d) {
    size_t longest = 0, row = 0;
    for (size_t i = 0; i < 2 * d->slot_cap; i++) { /* it may go past the end */
        row = d->slots[i & (d->slot_cap - 1)] == UINT32_MAX ? 0 : row + 1;
        longest = KW_MAX(longest, row);
    }
    return longest;
}

/* Ids that a sender chose so that they differ where a hash that only multiplies does not look: not one next to the other. */
static void test_chosen_ids(void **state) {
    (void)state;
    enum { N = 1000 };
    static struct rig r;
    static struct rec v[N];
    for (int shift = 0; shift <= 54; shift++) {
        up(&r);
        for (int i = 0; i < N; i++) v[i] = (struct rec){.id = (uint64_t)(N - i) << shift, .timestamp = 1500};
        take(&r, v, N, 0, 0, -1);
        assert_int_equal(kb_dedup_judge(r.d), KW_OK);
        assert_int_equal(r.d->kept, N);
        size_t row = longest_row(r.d);
        if (row > 200) fail_msg("ids that differ from bit %d on: a row of %d slots", shift, (int)row);
        down(&r);
    }
}

/* More records than are held account of; each failing allocation. */
static void test_limits(void **state) {
    (void)state;
    static struct rig r;
    up(&r);
    take(&r, (const struct rec[]){{2, 1500, 0, 0, 0}, {1, 1400, 0, 0, 0}}, 2, 0, 0, -1);
    struct kw_batch_header h = r.h;
    h.record_count = KB_DEDUP_RECORDS_MAX + 1;
    assert_int_equal(kb_dedup_take(r.d, r.batch, r.size, &h, r.c, 1 << 20), KW_ELIMIT);
    for (int n = 0;; n++) {
        kb_dedup_free(r.d);
        r.d = kb_dedup_new(&r.rng);
        kw_alloc_fail_after(n);
        kw_err err = kb_dedup_take(r.d, r.batch, r.size, &r.h, r.c, 1 << 20);
        if (err == KW_OK) {
            r.d->found[0].offset = 9;
            r.d->found[1].offset = -1;
        }
        if (err == KW_OK) err = kb_dedup_judge(r.d);
        if (err == KW_OK) err = kb_dedup_rewrite(r.d, r.batch, r.size, &r.h, r.c, KW_LEVEL_DEFAULT, 1 << 20, &r.blk, &r.out_size);
        kw_alloc_fail_after(-1);
        if (err == KW_OK) break;
        assert_int_equal(err, KW_ENOMEM);
        assert_true(n < 20);
    }
    check_shape(&r, (bool[]){true, false}, 1400);
    down(&r);
}

#define TEST(f) cmocka_unit_test(f)
int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_rule_1_wrong_ids), TEST(test_rule_1_without_ids), TEST(test_none_found), TEST(test_rule_5_within_a_batch), TEST(test_rule_6_every_subset),
        TEST(test_rule_7_empty),     TEST(test_random),             TEST(test_chosen_ids),
        TEST(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
