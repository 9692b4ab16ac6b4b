/* test_elect.c - who leads and who is in sync: each cell of the rules (elect.h), as text. A partition of replicas 1,2,3,… in this order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/rng.h"
#include "quorum/elect.h"

enum {
    DEAD = 0,
    LIVE = KB_REPLICA_ALIVE | KB_REPLICA_STAYS,
    GOES = KB_REPLICA_ALIVE, /* shutting down */
    LOST = KB_REPLICA_LOST,
    WIPED = KB_REPLICA_WIPED,
    WEAK = KB_REPLICA_WEAK
};

struct cell {
    int32_t leader;   /* -1: none */
    const char *isr;  /* "12" */
    uint8_t state[4]; /* of replicas 1, 2, 3, 4 */
    const char *rules; /* u unclean, k last known, p preferred, a anew */
    const char *then;  /* leader(isr) and what is said: ! led anew, L lossy, D doubtful, G gave up; "=": no change */
    const char *elr, *last_known;
    int replicas; /* 0: 3 */
};

static int32_t ids(const char *s, int32_t *v) {
    int32_t n = 0;
    for (; s && *s; s++) v[n++] = *s - '0';
    return n;
}

static void check(const struct cell *c, size_t i) {
    int32_t replicas[4] = {1, 2, 3, 4}, isr[4], elr[4], last[4], out[4];
    struct kb_image_partition p = {.leader = c->leader, .replicas = replicas, .replica_count = c->replicas ? c->replicas : 3, .isr = isr};
    p.isr_count = ids(c->isr, isr);
    p.elr = elr, p.elr_count = ids(c->elr, elr);
    p.last_known_elr = last, p.last_known_elr_count = ids(c->last_known, last);
    struct kb_elect_rules rules = {.unclean = c->rules && strchr(c->rules, 'u'),
                                   .last_known = c->rules && strchr(c->rules, 'k'),
                                   .preferred = c->rules && strchr(c->rules, 'p'),
                                   .anew = c->rules && strchr(c->rules, 'a')};
    struct kb_elected e = {.isr = out};
    kb_elect(&p, c->state, &rules, &e);
    char text[40];
    int n = e.leader < 0 ? snprintf(text, sizeof(text), "-(") : snprintf(text, sizeof(text), "%d(", e.leader);
    for (int32_t k = 0; k < e.isr_count; k++) n += snprintf(text + n, sizeof(text) - (size_t)n, "%d", e.isr[k]);
    snprintf(text + n, sizeof(text) - (size_t)n, ")%s%s%s%s", e.led_anew ? "!" : "", e.lossy ? "L" : "", e.doubtful ? "D" : "",
             e.gave_up ? "G" : "");
    if (!e.changed) snprintf(text, sizeof(text), "=");
    if (strcmp(text, c->then) != 0) fail_msg("cell %zu: %s, not %s", i, text, c->then);
}

static void run(const struct cell *c, size_t n) {
    for (size_t i = 0; i < n; i++) check(&c[i], i);
}

static void test_in_sync(void **state) {
    (void)state;
    static const struct cell cells[] = {
        {1, "123", {LIVE, LIVE, LIVE}, "", "=", 0, 0, 0},
        {1, "123", {DEAD, LIVE, LIVE}, "", "2(23)!", 0, 0, 0},
        {1, "132", {DEAD, LIVE, LIVE}, "", "2(32)!", 0, 0, 0}, /* assignment order, not that of the in-sync replicas */
        {1, "123", {DEAD, DEAD, LIVE}, "", "3(3)!", 0, 0, 0},
        {2, "123", {DEAD, LIVE, LIVE}, "", "2(23)", 0, 0, 0}, /* who leads goes on: no new leader epoch */
        {1, "13", {DEAD, LIVE, LIVE}, "", "3(3)!", 0, 0, 0},  /* a live one that is not in sync does not lead */
        {1, "1", {DEAD, LIVE, LIVE}, "", "-(1)!", 0, 0, 0},
        {1, "12", {DEAD, DEAD, LIVE}, "", "-(12)!", 0, 0, 0}, /* whole when none is alive */
        {-1, "12", {DEAD, DEAD, LIVE}, "", "=", 0, 0, 0},
        {-1, "12", {DEAD, LIVE, LIVE}, "", "2(2)!", 0, 0, 0}, /* one is back: its live members */
        {-1, "12", {LIVE, LIVE, LIVE}, "", "1(12)!", 0, 0, 0},
        {-1, "2", {LIVE, DEAD, LIVE}, "", "=", 0, 0, 0},
        {1, "123", {LIVE, LIVE, LIVE}, "a", "1(123)!", 0, 0, 0}, /* a new epoch all the same */
        {1, "12", {DEAD, DEAD, LIVE}, "a", "-(12)!", 0, 0, 0},
    };
    run(cells, KW_COUNTOF(cells));
}

static void test_shutting_down(void **state) {
    (void)state;
    static const struct cell cells[] = {
        {1, "123", {GOES, LIVE, LIVE}, "", "2(23)!", 0, 0, 0},
        {2, "123", {GOES, LIVE, LIVE}, "", "2(23)", 0, 0, 0},
        {1, "1", {GOES, LIVE, LIVE}, "", "=", 0, 0, 0}, /* nobody else can: it leads to its end */
        {1, "12", {GOES, DEAD, LIVE}, "", "1(1)", 0, 0, 0},
        {1, "12", {GOES, GOES, LIVE}, "", "=", 0, 0, 0},
        {1, "12", {DEAD, GOES, LIVE}, "", "2(2)!", 0, 0, 0}, /* better than nobody */
    };
    run(cells, KW_COUNTOF(cells));
}

static void test_preferred(void **state) {
    (void)state;
    static const struct cell cells[] = {
        {2, "123", {LIVE, LIVE, LIVE}, "p", "1(123)!", 0, 0, 0},
        {2, "23", {LIVE, LIVE, LIVE}, "p", "=", 0, 0, 0}, /* not in sync */
        {2, "123", {DEAD, LIVE, LIVE}, "p", "2(23)", 0, 0, 0},
        {2, "123", {GOES, LIVE, LIVE}, "p", "2(23)", 0, 0, 0},
        {1, "123", {LIVE, LIVE, LIVE}, "p", "=", 0, 0, 0},
    };
    run(cells, KW_COUNTOF(cells));
}

/* BR-15: what was acknowledged and not synced may have gone with the machine; who still has it is waited for. */
static void test_losses(void **state) {
    (void)state;
    static const struct cell cells[] = {
        {1, "123", {LOST, LIVE, LIVE}, "k", "2(23)!", 0, 0, 0},
        {2, "123", {LOST | LIVE, LIVE, LIVE}, "k", "2(23)", 0, 0, 0}, /* it leaves, live or not */
        {-1, "12", {LOST, DEAD, LIVE}, "k", "-(2)", 0, 0, 0},         /* the other one may know more: it is waited for */
        {-1, "1", {LOST, DEAD, LIVE}, "k", "=", 0, 0, 0},             /* the last */
        {-1, "1", {LOST | LIVE, DEAD, LIVE}, "k", "1(1)!D", 0, 0, 0},
        {-1, "1", {LOST, DEAD, LIVE}, "", "-()G", 0, 0, 0}, /* not allowed: remembered as the last known leader */
        {-1, "", {LIVE, DEAD, LIVE}, "", "=", 0, "1", 0},
        {-1, "", {LIVE, DEAD, LIVE}, "k", "1(1)!D", 0, "1", 0},
        {-1, "", {DEAD, DEAD, LIVE}, "k", "=", 0, "1", 0},
        {-1, "", {LIVE, LIVE, LIVE}, "k", "2(2)!", "23", 0, 0}, /* eligible as Apache Kafka left them */
        {-1, "", {LIVE, DEAD, DEAD}, "k", "=", "23", "1", 0},   /* they come before the last known leader */
        {-1, "12", {LOST, LOST | LIVE, LIVE}, "k", "-(1)", 0, 0, 0}, /* both: the first of them stays */
        {1, "1", {WIPED | LIVE, LIVE, LIVE}, "k", "-(1)!", 0, 0, 0},  /* an emptied disk among others never leads */
        {1, "12", {WIPED | LIVE, LIVE, LIVE}, "k", "2(2)!", 0, 0, 0},
        {-1, "1", {WIPED | LOST | LIVE, LIVE, LIVE}, "k", "=", 0, 0, 0},
        {-1, "", {WIPED | LIVE, LIVE, LIVE}, "k", "=", 0, "1", 0},
        {-1, "1", {WIPED | LIVE}, "k", "1(1)!D", 0, 0, 1}, /* alone it is all there is */
        {-1, "1", {WIPED | LIVE}, "", "-()G", 0, 0, 1},
    };
    run(cells, KW_COUNTOF(cells));
}

static void test_unclean(void **state) {
    (void)state;
    static const struct cell cells[] = {
        {1, "1", {DEAD, LIVE, LIVE}, "u", "2(2)!L", 0, 0, 0},
        {-1, "12", {DEAD, DEAD, LIVE}, "u", "3(3)!L", 0, 0, 0},
        {-1, "12", {DEAD, DEAD, DEAD}, "u", "=", 0, 0, 0},
        {1, "12", {DEAD, LIVE, LIVE}, "u", "2(2)!", 0, 0, 0}, /* not while one is in sync */
        {-1, "1", {DEAD, WIPED | LIVE, LIVE}, "u", "3(3)!L", 0, 0, 0}, /* wiped ones last */
        {-1, "1", {DEAD, WEAK | LIVE, LIVE}, "u", "3(3)!L", 0, 0, 0},
        {-1, "1", {DEAD, WIPED | LIVE, WEAK | LIVE}, "u", "3(3)!L", 0, 0, 0},
        {-1, "1", {WIPED | LIVE, LIVE, LIVE}, "u", "2(2)!L", 0, 0, 0}, /* scenario 6 */
        {-1, "1", {WIPED | LIVE, DEAD, DEAD}, "u", "1(1)!L", 0, 0, 0},
        {-1, "1", {LOST, LIVE, LIVE}, "u", "2(2)!L", 0, 0, 0},
        {-1, "1", {DEAD, GOES, LIVE}, "u", "3(3)!L", 0, 0, 0},
        {-1, "1", {DEAD, GOES, DEAD}, "u", "2(2)!L", 0, 0, 0},
        {-1, "", {DEAD, LIVE, DEAD}, "u", "2(2)!L", 0, "1", 0},
    };
    run(cells, KW_COUNTOF(cells));
}

static void test_directories(void **state) {
    (void)state;
    struct kw_uuid mine = {{1}}, other = {{2}}, unassigned = {{0}}, dirs[2] = {{{1}}, {{9}}};
    int32_t replicas[] = {1, 2};
    struct kw_uuid of[] = {mine, other};
    struct kb_image_partition p = {.replicas = replicas, .replica_count = 2, .directories = of, .directory_count = 2};
    assert_false(kb_elect_other_disk(&p, 1, dirs, 2));
    assert_true(kb_elect_other_disk(&p, 2, dirs, 2));
    assert_false(kb_elect_other_disk(&p, 2, NULL, 0)); /* a broker that tells none */
    assert_false(kb_elect_other_disk(&p, 3, dirs, 2));
    of[1] = unassigned;
    assert_false(kb_elect_other_disk(&p, 2, dirs, 2));
    unassigned.b[15] = 99;
    of[1] = unassigned;
    assert_false(kb_elect_other_disk(&p, 2, dirs, 2));
    of[1].b[15] = 100;
    assert_true(kb_elect_other_disk(&p, 2, dirs, 2));
    p.directory_count = 0; /* an old record */
    assert_false(kb_elect_other_disk(&p, 2, dirs, 2));
}

/* Whatever the states: who leads is alive and in sync; in sync are replicas, some, and none is new but an unclean leader; deciding again changes nothing. */
static void test_random(void **state) {
    (void)state;
    struct kw_rng rng;
    kw_rng_init(&rng, 5);
    for (int round = 0; round < 200000; round++) {
        int32_t replicas[4] = {1, 2, 3, 4}, isr[4], out[4], again[4], n = 1 + (int32_t)kw_rng_below(&rng, 4);
        uint8_t states[4];
        struct kb_image_partition p = {.leader = -1, .replicas = replicas, .replica_count = n, .isr = isr};
        for (int32_t i = 0; i < n; i++) {
            states[i] = (uint8_t)kw_rng_below(&rng, 32);
            if (!(states[i] & KB_REPLICA_ALIVE)) states[i] &= (uint8_t)~KB_REPLICA_STAYS;
            if (kw_rng_below(&rng, 2)) isr[p.isr_count++] = replicas[i];
        }
        if (p.isr_count == 0) isr[p.isr_count++] = replicas[0];
        if (kw_rng_below(&rng, 3)) p.leader = isr[kw_rng_below(&rng, (uint64_t)p.isr_count)];
        struct kb_elect_rules rules = {.unclean = kw_rng_below(&rng, 2), .last_known = kw_rng_below(&rng, 2), .preferred = kw_rng_below(&rng, 2)};
        struct kb_elected e = {.isr = out}, f = {.isr = again};
        kb_elect(&p, states, &rules, &e);
        assert_true(e.isr_count > 0 || e.gave_up);
        for (int32_t i = 0; i < e.isr_count; i++) assert_true(kb_elect_has(isr, p.isr_count, out[i]) || (e.lossy && e.isr_count == 1));
        if (e.leader >= 0) {
            assert_true(kb_elect_has(out, e.isr_count, e.leader));
            assert_true(states[e.leader - 1] & KB_REPLICA_ALIVE);
            if (e.lossy)
                for (int32_t i = 0; i < p.isr_count; i++)
                    assert_false((states[isr[i] - 1] & (KB_REPLICA_ALIVE | KB_REPLICA_LOST | KB_REPLICA_WIPED)) == KB_REPLICA_ALIVE);
        }
        assert_int_equal(e.led_anew, e.leader != p.leader || e.lossy);
        if (e.gave_up || e.lossy || e.doubtful) continue;
        p.leader = e.leader;
        p.isr = out;
        p.isr_count = e.isr_count;
        kb_elect(&p, states, &rules, &f);
        assert_false(f.changed && !f.gave_up);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_sync), cmocka_unit_test(test_shutting_down), cmocka_unit_test(test_preferred), cmocka_unit_test(test_losses),
        cmocka_unit_test(test_unclean), cmocka_unit_test(test_directories),   cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
