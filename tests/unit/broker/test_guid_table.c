/* test_guid_table.c - the newest ids in memory: every answer is that of a scan, with ids that come twice, entries taken back, and a log that begins later;
 * and what an id costs (printed, not judged).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "base/rng.h"
#include "guid/table.h"

static const uint64_t key[2] = {11, 22};

static void make_id(uint64_t n, uint8_t id[16]) {
    memset(id, 0, 16);
    kw_store64(id + 4, n);
}

struct model {
    struct kb_guid_entry *v;
    size_t count;
};

static bool scan(const struct model *m, const uint8_t *id, int64_t from, int64_t to, struct kb_guid_entry *out) {
    for (size_t i = 0; i < m->count; i++)
        if (memcmp(m->v[i].id, id, 16) == 0 && m->v[i].offset >= from && m->v[i].offset < to) {
            *out = m->v[i];
            return true;
        }
    return false;
}

static void test_against_a_scan(void **state) {
    (void)state;
    struct kw_rng rng;
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct kb_guid_table t;
        struct model m = {.v = malloc(9000 * sizeof(*m.v))};
        kw_rng_init(&rng, seed);
        uint64_t ids = 1 + kw_rng_below(&rng, 2000);
        int64_t next = 1000, start = 0;
        uint64_t ascend = seed % 4, highest = 0; /* how often one is less than the one before it, if they ascend at all */
        assert_int_equal(kb_guid_table_init(&t, key, 1000, seed % 3 * 500), KW_OK);
        for (int step = 0; step < 3000; step++) {
            uint64_t what = kw_rng_below(&rng, 1000);
            if (what < 600) {
                struct kb_guid_entry *e = &m.v[m.count];
                size_t n = kw_rng_below(&rng, 20) ? 1 : 1 + kw_rng_below(&rng, 40);
                for (size_t i = 0; i < n; i++) {
                    bool up = ascend && kw_rng_below(&rng, 1000 * ascend) > 0;
                    e[i] = (struct kb_guid_entry){.offset = next, .payload = (uint32_t)step};
                    make_id(up ? ++highest : kw_rng_below(&rng, ids + highest), e[i].id);
                    next += 1 + (int64_t)kw_rng_below(&rng, 3);
                }
                assert_int_equal(kb_guid_table_add(&t, e, n), KW_OK);
                m.count += n;
                assert_int_equal(t.end, m.v[m.count - 1].offset + 1);
            } else if (what < 604) {
                int64_t to = next - (int64_t)kw_rng_below(&rng, 100);
                kb_guid_table_pop(&t, to);
                while (m.count > 0 && m.v[m.count - 1].offset >= to) m.count--;
                next = KW_MAX(to, INT64_C(1000));
                assert_int_equal(t.count, m.count);
            } else if (what < 608) {
                int64_t to = next - (int64_t)kw_rng_below(&rng, 2000);
                start = KW_MAX(start, to);
            } else {
                struct kb_guid_entry want, got;
                uint8_t id[16];
                int64_t to = kw_rng_below(&rng, 4) ? INT64_MAX : next - (int64_t)kw_rng_below(&rng, 50);
                make_id(kw_rng_below(&rng, ids + highest), id);
                bool there = scan(&m, id, start, to, &want);
                assert_int_equal(kb_guid_table_find(&t, id, kb_guid_hash(key, id), start, to, &got), there);
                if (there) {
                    assert_int_equal(got.offset, want.offset);
                    assert_int_equal(got.payload, want.payload);
                }
            }
        }
        kb_guid_table_deinit(&t);
        free(m.v);
    }
}

static void test_one_id_all_over(void **state) { /* no chain grows by it */
    (void)state;
    struct kb_guid_table t;
    struct kb_guid_entry e = {.offset = 0}, got;
    assert_int_equal(kb_guid_table_init(&t, key, 0, 0), KW_OK);
    for (size_t i = 0; i < KB_GUID_TABLE_MAX; i++, e.offset++) assert_int_equal(kb_guid_table_add(&t, &e, 1), KW_OK);
    assert_true(kb_guid_table_find(&t, e.id, kb_guid_hash(key, e.id), 0, INT64_MAX, &got));
    assert_int_equal(got.offset, 0);
    assert_true(kb_guid_table_find(&t, e.id, kb_guid_hash(key, e.id), 77, INT64_MAX, &got));
    assert_int_equal(got.offset, 77);
    assert_true(kb_guid_table_memory(&t) <= 8 << 20);
    kb_guid_table_deinit(&t);
}

static void test_no_memory(void **state) {
    (void)state;
    for (int64_t at = 0; at < 80; at++) {
        bool up = at < 40;
        struct kb_guid_table t;
        struct kb_guid_entry e = {.offset = 5}, got;
        kw_alloc_fail_after(at % 40);
        kw_err err = kb_guid_table_init(&t, key, 5, 0);
        size_t n = 0;
        for (; err == KW_OK && n < 3000; n++, e.offset++) {
            make_id(up ? n : 5000 - n, e.id);
            if ((err = kb_guid_table_add(&t, &e, 1)) != KW_OK) break;
        }
        kw_alloc_fail_after(-1);
        for (size_t i = 0; i < n + 1 && n > 0; i++) {
            make_id(up ? i : 5000 - i, e.id);
            assert_int_equal(kb_guid_table_find(&t, e.id, kb_guid_hash(key, e.id), 0, INT64_MAX, &got), i < n);
        }
        if (err == KW_OK) at = up ? 39 : 80;
        kb_guid_table_deinit(&t);
    }
}

static double ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void test_what_it_costs(void **state) {
    (void)state;
    struct kw_rng rng;
    struct kb_guid_table t;
    struct kb_guid_entry e = {0}, got;
    kw_rng_init(&rng, 3);
    assert_int_equal(kb_guid_table_init(&t, key, 0, KB_GUID_TABLE_MAX), KW_OK);
    double from = ns();
    for (size_t i = 0; i < KB_GUID_TABLE_MAX; i++, e.offset++) {
        kw_store64(e.id, kw_rng_next(&rng));
        uint64_t h = kb_guid_hash(key, e.id);
        assert_false(kb_guid_table_find(&t, e.id, h, 0, INT64_MAX, &got));
        assert_int_equal(kb_guid_table_add(&t, &e, 1), KW_OK);
    }
    print_message("table: %.0f ns to probe and add one of %zu ids, %.1f bytes each\n", (ns() - from) / (double)KB_GUID_TABLE_MAX, t.count,
                  (double)kb_guid_table_memory(&t) / (double)t.count);
    kb_guid_table_deinit(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_a_scan), cmocka_unit_test(test_one_id_all_over), cmocka_unit_test(test_no_memory),
                                       cmocka_unit_test(test_what_it_costs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
