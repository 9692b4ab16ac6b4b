/* test_kc_group.c - kc group, the program itself, against two scripted brokers: what it prints of groups in which much is wrong. */
#include <stdlib.h>
#include <sys/wait.h>

#include "group_server.h"

/* What kc prints, both what it says and what went wrong; it must end with this code. */
static char *kc_ends(int code, const char *args) {
    static char out[16384];
    char self[2000], command[2400];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(n > 0);
    self[n] = 0;
    *strrchr(self, '/') = 0;
    snprintf(command, sizeof command, "'%s/../bin/kc' group %s -b 127.0.0.1:%u --set retry.backoff.ms=10 2>&1", self, args, servers[0]->port);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    size_t got = fread(out, 1, sizeof out - 1, f);
    out[got] = 0;
    int status = pclose(f);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != code) fail_msg("kc group %s: status %d, wanted exit code %d:\n%s", args, status, code, out);
    return out;
}

static void holds(const char *text, const char *part) {
    if (!strstr(text, part)) fail_msg("'%s' is not in:\n%s", part, text);
}
static void lacks(const char *text, const char *part) {
    if (strstr(text, part)) fail_msg("'%s' is in:\n%s", part, text);
}

static void start(void) {
    begin();
    SCRIPT(topics = true);
}

static void test_describe(void **state) {
    (void)state;
    start();
    const char *out = kc_ends(0, "describe b");
    holds(out, "group b: Stable, range, 2 members, coordinator broker 1\n"
               "#  host        partitions  member\n"
               "1  /127.0.0.1  3           m-1, client c\n"
               "2  /127.0.0.1  0           m-2, client c, instance i-2\n"
               "topic  partition  committed  end  lag  member\n"
               "t      0          100        120  20   1\n"
               "t      1          101        120  19   1\n"
               "t      2          -          120  -    -\n"
               "t      3          -          -    -    -\n"
               "u      0          -          120  -    -\n"
               "u      5          -          -    -    1\n"
               "member 2 has no partition\n"
               "t 2: no member has it\n");
    holds(out, "\nt 3: its log's end is not known: ");
    holds(out, "\nt 3: no member has it\n");
    holds(out, "\nu 0: no member has it\n");
    holds(out, "\nu 5: there is no such partition\n");
    out = kc_ends(0, "describe b --json");
    holds(out, "{\"group\":\"b\",\"state\":\"Stable\",\"protocol_type\":\"consumer\",\"protocol\":\"range\",\"coordinator\":1,\"members\":[{\"id\":\"m-1\","
               "\"instance\":null,\"client\":\"c\",\"host\":\"/127.0.0.1\",\"topics\":[\"t\",\"u\"],\"assigned\":[{\"topic\":\"t\",\"partition\":0}");
    holds(out, "{\"topic\":\"t\",\"partition\":0,\"committed\":100,\"leader_epoch\":7,\"metadata\":\"note\",\"log_start\":10,\"log_end\":120,\"lag\":20,"
               "\"member\":\"m-1\"}");
    holds(out, "\"lag\":39,\"problems\":[\"member 2 has no partition\",");
    holds(out, "\"partition\":3,\"committed\":-1,\"leader_epoch\":-1,\"metadata\":\"\",\"log_start\":-1,\"log_end\":-1,\"lag\":-1,\"member\":null,"
               "\"error\":\"LEADER_NOT_AVAILABLE\"}");
}

static void test_what_is_wrong(void **state) {
    (void)state;
    start();
    SCRIPT(twice = true);
    SCRIPT(committed[0] = 4);
    SCRIPT(committed[1] = 130);
    const char *out = kc_ends(0, "describe b");
    holds(out, "\nt 0: members 1 and 2 both have it\n");
    holds(out, "\nt 0: committed 4, but the log begins at 10: what was between is gone\n");
    holds(out, "\nt 1: committed 130, but the log ends at 120\n");
    start();
    SCRIPT(malformed = true);
    holds(kc_ends(0, "describe b"), "\nmember 1: what it says or was given does not follow the consumer protocol\n");
    start();
    SCRIPT(whole[0] = KE_GROUP_AUTHORIZATION_FAILED);
    holds(kc_ends(0, "describe b"), "\nits offsets cannot be read: ");
}

static void test_a_rebalance(void **state) {
    (void)state;
    start();
    SCRIPT(state = "PreparingRebalance");
    const char *out = kc_ends(0, "describe b");
    holds(out, "\nit is rebalancing: waits for its members to join again, ");
    lacks(out, "no member has it"); /* not known */
    lacks(out, "has no partition");
    SCRIPT(state = "CompletingRebalance");
    holds(kc_ends(0, "describe b"), "\nit is rebalancing: waits for the leading member to share the partitions out\n");
}

static void test_groups_that_cannot_be_described(void **state) {
    (void)state;
    start();
    SCRIPT(codes[0] = KE_GROUP_AUTHORIZATION_FAILED);
    SCRIPT(whole[0] = KE_GROUP_AUTHORIZATION_FAILED);
    const char *out = kc_ends(1, "describe b c");
    holds(out, "kc: group describe: b: ");
    holds(out, "(GROUP_AUTHORIZATION_FAILED)");
    holds(out, "group c: Stable, range, 2 members"); /* one does not hide the other */
    /* Of another protocol: its offsets are shown all the same. */
    start();
    SCRIPT(codes[0] = KE_GROUP_ID_NOT_FOUND);
    out = kc_ends(1, "describe b");
    holds(out, "group b: not described, range, 0 members, coordinator broker 1\n  Group is not a classic group. (GROUP_ID_NOT_FOUND)\n");
    holds(out, "t      0          100        120  20   -\n");
    start();
    SCRIPT(down = true); /* the coordinator of z */
    out = kc_ends(1, "describe z --set default.api.timeout.ms=1000");
    holds(out, "kc: group describe: z: ");
}

static void test_list_without_a_broker(void **state) {
    (void)state;
    start();
    holds(kc_ends(0, "list"), "a\nb\nmoved\ny\nz\n");
    holds(kc_ends(0, "list -l"), "state   type     protocol  coordinator  group\n"
                                 "Empty   classic  -         1            a\n"
                                 "Stable  classic  consumer  1            b\n");
    SCRIPT(down = true);
    const char *out = kc_ends(1, "list");
    holds(out, "a\nb\nmoved\n");
    holds(out, "kc: group list: broker 2 did not tell its groups: ");
    holds(out, "the list is not complete");
}

static void test_reset(void **state) {
    (void)state;
    start();
    SCRIPT(no_members = true);
    SCRIPT(state = "Empty");
    const char *out = kc_ends(0, "reset b t:0,1,2 --to-offset 4");
    holds(out, "topic  partition  committed  new  start  end  note\n"
               "t      0          100        10   10     120  the log begins here\n"
               "t      1          101        10   10     120  the log begins here\n"
               "t      2          -          10   10     120  the log begins here\n"
               "group b: 3 offsets would be set; --execute does it\n");
    assert_int_equal(SAW(items[0]), 0);
    out = kc_ends(1, "reset b t --to-latest"); /* one has no leader */
    holds(out, "kc: group reset: t 3: the log cannot be looked at: ");
    holds(out, "nothing was changed");
    /* A member joins between the look and the commit. */
    SCRIPT(asked = 0);
    SCRIPT(codes[3] = KE_UNKNOWN_MEMBER_ID); /* behind one description and two offsets */
    out = kc_ends(1, "reset b t:0,1 --to-latest --execute");
    holds(out, "t      0          100        120  10     120  UNKNOWN_MEMBER_ID\n");
    holds(out, "group b: 1 of 2 offsets set\n");
    holds(out, "kc: group reset: t 0: the group has active members, who alone commit its offsets: stop them first (UNKNOWN_MEMBER_ID)\n");
    /* It has members, whatever its state is called. */
    SCRIPT(no_members = false);
    out = kc_ends(1, "reset b t:0 --to-latest");
    holds(out, "group b has 2 active members");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_describe),
        cmocka_unit_test(test_what_is_wrong),
        cmocka_unit_test(test_a_rebalance),
        cmocka_unit_test(test_groups_that_cannot_be_described),
        cmocka_unit_test(test_list_without_a_broker),
        cmocka_unit_test(test_reset),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
