/* test_nearest.c - which word was meant. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/nearest.h"

static const char *nearest(const char *word) {
    static const char *const words[] = {"linger.ms", "batch.size", "acks", "retries", "bootstrap.servers", "topic", "produce", "consume"};
    struct kw_nearest n;
    kw_nearest_init(&n, word);
    for (size_t i = 0; i < KW_COUNTOF(words); i++) kw_nearest_offer(&n, words[i]);
    return n.best ? n.best : "";
}

static void finds_the_word_that_was_meant(void **state) {
    (void)state;
    assert_string_equal(nearest("linger.sm"), "linger.ms");
    assert_string_equal(nearest("Batch.Size"), "batch.size");
    assert_string_equal(nearest("ack"), "acks");
    assert_string_equal(nearest("bootstrap.server"), "bootstrap.servers");
    assert_string_equal(nearest("prodcue"), "produce");
}

static void offers_nothing_for_another_word(void **state) {
    (void)state;
    assert_string_equal(nearest("zzzz"), "");
    assert_string_equal(nearest(""), "");
    assert_string_equal(nearest("a-word-that-is-much-longer-than-any-name-in-the-table-of-names-and-more"), "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_the_word_that_was_meant),
        cmocka_unit_test(offers_nothing_for_another_word),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
