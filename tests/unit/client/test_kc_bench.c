/* test_kc_bench.c - whether the article's conclusions hold: results of known medians and spreads against the verdicts that must come of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "cli/bench.h"

static struct bench_result results[BENCH_CELLS_MAX];

/* Every cell as published, each of three rounds within so much of it either way. */
static const struct bench_scenario *as_published(int number, double spread) {
    const struct bench_scenario *s = &bench_scenarios[number - 1];
    memset(results, 0, sizeof results);
    for (size_t i = 0; i < s->cell_count; i++) {
        double n = s->cells[i].published;
        results[i] = (struct bench_result){.rate = {n * (1 + spread), n, n * (1 - spread)}, .rounds = n > 0 ? 3 : 0};
        bench_result_settle(&results[i]);
    }
    return s;
}

static struct bench_claim claim_of(const struct bench_scenario *s, const char *text) {
    struct bench_claim v[BENCH_CLAIMS_MAX];
    size_t n = bench_claims(s, BENCH_PIPELINED, results, v);
    for (size_t i = 0; i < n; i++)
        if (strstr(v[i].text, text)) return v[i];
    fail_msg("no claim %s", text);
    return v[0];
}

static void test_medians(void **state) {
    (void)state;
    struct bench_result r = {.rate = {3, 1, 2}, .rounds = 3};
    bench_result_settle(&r);
    assert_true(r.median == 2 && r.low == 1 && r.high == 3);
    r = (struct bench_result){.rate = {4, 1, 2, 3}, .rounds = 4};
    bench_result_settle(&r);
    assert_true(r.median == 2.5);
    r = (struct bench_result){.rounds = 0};
    bench_result_settle(&r);
    assert_true(r.median == 0);
}

static void test_published_figures_bear_out_what_was_concluded(void **state) {
    (void)state;
    const struct bench_scenario *s = as_published(1, 0.01);
    assert_int_equal(claim_of(s, "acks 0").verdict, BENCH_HOLDS);
    assert_int_equal(claim_of(s, "acks 0").pair_count, 6);
    assert_int_equal(claim_of(s, "replicas are slower").verdict, BENCH_HOLDS);
    assert_int_equal(claim_of(s, "min.insync").verdict, BENCH_HOLDS);
    for (size_t i = 0; i < claim_of(s, "acks 0").pair_count; i++) {
        struct bench_pair p = claim_of(s, "acks 0").pairs[i];
        assert_true(p.ratio == p.published_ratio && p.ratio > 1);
    }
    s = as_published(2, 0.01);
    assert_int_equal(claim_of(s, "min.insync").verdict, BENCH_HOLDS); /* 9,006 and 8,217 are as good as equal */
    s = as_published(3, 0.01);
    assert_int_equal(claim_of(s, "acks 0").count[BENCH_HOLDS], 6);
    s = as_published(4, 0.01);
    assert_int_equal(claim_of(s, "less than in proportion").verdict, BENCH_HOLDS);
    assert_int_equal(claim_of(s, "then a dip").verdict, BENCH_UNKNOWN); /* only the ends were published */
}

static void test_what_may_be_chance_is_not_concluded(void **state) {
    (void)state;
    const struct bench_scenario *s = as_published(1, 0.5); /* rounds that overlap */
    struct bench_claim c = claim_of(s, "acks 0");
    assert_int_equal(c.verdict, BENCH_NOISE);
    assert_int_equal(c.count[BENCH_NOISE], 6);
    assert_true(c.pairs[0].noise > 0.9);
    results[2].median = results[1].median * 0.6; /* nor that two are the same, where they are not */
    assert_int_equal(claim_of(s, "min.insync").count[BENCH_NOISE], 1);
    s = as_published(1, 0);
    for (size_t i = 0; i < s->cell_count; i++) results[i].rounds = 1; /* nothing is known of chance */
    assert_true(claim_of(s, "acks 0").pairs[0].noise == 0.10);
}

static void test_what_does_not_hold_is_told(void **state) {
    (void)state;
    const struct bench_scenario *s = as_published(1, 0.01);
    results[3].median = results[1].median * 1.2; /* four replicas faster than two */
    assert_int_equal(claim_of(s, "replicas are slower").verdict, BENCH_FAILS);
    assert_int_equal(claim_of(s, "replicas are slower").count[BENCH_FAILS], 1);
    results[4].median = results[3].median * 0.7; /* and min.isr matters */
    assert_int_equal(claim_of(s, "min.insync").verdict, BENCH_FAILS);
    memset(&results[8], 0, sizeof results[8]); /* one that was not measured is judged with nobody */
    struct bench_claim c = claim_of(s, "acks 0");
    assert_int_equal(c.count[BENCH_UNKNOWN], 1);
}

static void test_partitions(void **state) {
    (void)state;
    const struct bench_scenario *s = &bench_scenarios[3];
    static const double rises[] = {100, 150, 220, 300, 280}, proportional[] = {100, 210, 420, 850, 800}, falls[] = {100, 90, 80, 70, 30};
    const struct {
        const double *v;
        enum bench_verdict rise, proportion;
    } rows[] = {{rises, BENCH_HOLDS, BENCH_HOLDS}, {proportional, BENCH_HOLDS, BENCH_FAILS}, {falls, BENCH_FAILS, BENCH_HOLDS}};
    for (size_t k = 0; k < 3; k++) {
        for (size_t i = 0; i < s->cell_count; i++) {
            results[i] = (struct bench_result){.rate = {rows[k].v[i], rows[k].v[i]}, .rounds = 2};
            bench_result_settle(&results[i]);
        }
        assert_int_equal(claim_of(s, "then a dip").verdict, rows[k].rise);
        assert_int_equal(claim_of(s, "less than in proportion").verdict, rows[k].proportion);
    }
}

static void test_texts_and_errors(void **state) {
    (void)state;
    char text[BENCH_TEXT_MAX], number[32];
    assert_string_equal(bench_cell_text(&bench_scenarios[0], 3, text), "rf 4, min.isr 1, acks -1");
    assert_string_equal(bench_cell_text(&bench_scenarios[3], 0, text), "1 partition");
    assert_string_equal(bench_thousands(0, number), "0");
    assert_string_equal(bench_thousands(999, number), "999");
    assert_string_equal(bench_thousands(28511.4, number), "28,511");
    assert_string_equal(bench_thousands(1234567, number), "1,234,567");
    struct bench_errors e = {0};
    for (int i = 0; i < 100; i++) bench_errors_note(&e, i % 50, true, i < 50); /* more kinds than there is room for */
    assert_int_equal(e.count, BENCH_ERRORS_MAX);
    assert_int_equal(e.v[3].met, 2);
    assert_int_equal(e.v[3].ended, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_medians),    cmocka_unit_test(test_published_figures_bear_out_what_was_concluded),
        cmocka_unit_test(test_what_may_be_chance_is_not_concluded), cmocka_unit_test(test_what_does_not_hold_is_told),
        cmocka_unit_test(test_partitions), cmocka_unit_test(test_texts_and_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
