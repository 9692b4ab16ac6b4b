/* test_guid_fork.c - ids in a forked child: kc_guid_make works there, and makes other ids than the parent; a producer's are refused (CX-05). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <kclient/kclient.h>
#include <kclient/producer.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { IDS = 1000 };
static uint8_t parents[IDS][16], childs[IDS][16];

static bool make_all(uint8_t ids[IDS][16]) {
    bool good = true;
    for (int i = 0; i < IDS; i++) good &= kc_guid_make(ids[i]) == KC_OK;
    return good;
}

/* What the child does; it must not use cmocka, nor anything that the parent's threads may have been in the middle of. */
static int in_child(kc_producer *producer, kc_client *client, int out) {
    uint8_t id[16], untouched[16];
    memset(id, 0xa5, sizeof id);
    memcpy(untouched, id, sizeof id);
    if (kc_producer_guid_make(producer, id) != KC_FORKED) return 1;
    if (memcmp(id, untouched, sizeof id) != 0) return 2;
    if (!make_all(childs)) return 3;
    if (write(out, childs, sizeof childs) != sizeof childs) return 4;
    kc_producer_free(producer);
    kc_client_free(client);
    return make_all(childs) ? 0 : 5; /* needs neither */
}

static bool is_among(const uint8_t id[16], uint8_t ids[IDS][16]) {
    for (int i = 0; i < IDS; i++)
        if (!memcmp(id, ids[i], 16)) return true;
    return false;
}

static void play(const char *thread) {
    kc_config *config = kc_config_new();
    kc_client *client;
    kc_producer *producer;
    int ids[2], status = -1;
    assert_int_equal(kc_config_set(config, "bootstrap.servers", "127.0.0.1:1", NULL), KC_OK); /* nobody is needed */
    assert_int_equal(kc_config_set(config, "client.thread", thread, NULL), KC_OK);
    assert_int_equal(kc_client_new(config, &client, NULL), KC_OK);
    assert_int_equal(kc_producer_new(client, NULL, &producer, NULL), KC_OK);
    assert_true(make_all(parents));
    assert_int_equal(pipe(ids), 0);
    pid_t child = fork();
    if (child == 0) _exit(in_child(producer, client, ids[1]));
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(read(ids[0], childs, sizeof childs), sizeof childs);
    close(ids[0]);
    close(ids[1]);
    assert_int_equal(childs[0][6] >> 4, 7);
    for (int i = 0; i < IDS; i++) assert_false(is_among(childs[i], parents));
    assert_true(make_all(parents)); /* no state is shared that would make the same from here on */
    for (int i = 0; i < IDS; i++) assert_false(is_among(childs[i], parents));
    uint8_t id[16];
    assert_int_equal(kc_producer_guid_make(producer, id), KC_OK); /* the parent has not noticed */
    kc_producer_free(producer);
    kc_client_free(client);
    kc_config_free(config);
}

static void test_with_a_thread(void **state) {
    (void)state;
    play("own");
}

static void test_without_a_thread(void **state) {
    (void)state;
    play("none");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_with_a_thread), cmocka_unit_test(test_without_a_thread)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
