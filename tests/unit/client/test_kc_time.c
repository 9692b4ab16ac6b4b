/* test_kc_time.c - moments as command lines of kc name them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "cli/cli.h"

#define HOUR 3600000LL
#define NEW_YEAR 1767225600000LL /* 2026-01-01T00:00Z */
#define NOW (NEW_YEAR + 100 * HOUR)

static void test_moments(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int64_t ms;
    } good[] = {{"2026-01-01", NEW_YEAR},
                {"2026-01-01T00:00", NEW_YEAR},
                {"2026-01-01 02:00", NEW_YEAR + 2 * HOUR},
                {"2026-01-01T02:00:01Z", NEW_YEAR + 2 * HOUR + 1000},
                {"2026-01-01T02:00:00.001Z", NEW_YEAR + 2 * HOUR + 1},
                {"2026-01-01T02:00+01:00", NEW_YEAR + HOUR},
                {"2026-01-01T01:30:30-0130", NEW_YEAR + 3 * HOUR + 30000},
                {"2026-01-01T05:00+05", NEW_YEAR},
                {"2024-02-29T00:00", 1709164800000},
                {"1970-01-01T00:00Z", 0},
                {"@0", 0},
                {"@1767225600001", NEW_YEAR + 1},
                {"0s", NOW},
                {"90m", NOW - 90 * 60000},
                {"2h", NOW - 2 * HOUR},
                {"4d", NOW - 96 * HOUR},
                {"9999999999999d", 0}}; /* before there was time */
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        int64_t ms = -1;
        if (!cli_time(good[i].text, NOW, &ms) || ms != good[i].ms) fail_msg("%s: %lld", good[i].text, (long long)ms);
    }
}

static void test_what_is_none(void **state) {
    (void)state;
    static const char *const bad[] = {"", "@", "@-1", "@x", "yesterday", "2h ago", "-2h", "2", "2 h", "2w", "h", "99999999999999999999d",
                                      "2026", "2026-1-1", "2026-02-30", "2026-13-01", "2026-01-01T", "2026-01-01T25:00",
                                      "2026-01-01T24:00", "2026-01-01T02", "2026-01-01T02:60", "2026-01-01T02:00:",
                                      "2026-01-01T02:00:00.1", "2026-01-01T02:00z", "2026-01-01T02:00+1", "2026-01-01T02:00+24:00",
                                      "2026-01-01T02:00+01:60", "2026-01-01T02:00Zx", "2026-01-01x", "1969-12-31T23:59Z",
                                      "1970-01-01T00:00+00:01"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int64_t ms = -7;
        if (cli_time(bad[i], NOW, &ms)) fail_msg("'%s' is %lld", bad[i], (long long)ms);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_moments), cmocka_unit_test(test_what_is_none)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
