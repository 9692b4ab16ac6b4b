/* test_loop.c - who runs a client's loop, where threads meet in the worst moment (loop.h). */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "handle.h"
#include "shell.h"

static kc_client *client_new(void) {
    kc_config *f = kc_config_new();
    kc_client *c = NULL;
    assert_int_equal(kc_config_set(f, "bootstrap.servers", "127.0.0.1:1", NULL), KC_OK); /* nobody is asked for anything */
    assert_int_equal(kc_config_set(f, "client.thread", "none", NULL), KC_OK);
    assert_int_equal(kc_client_new(f, &c, NULL), KC_OK);
    kc_config_free(f);
    return c;
}

/* The one that runs the loop lets it go in the very moment in which another one, who is about to wait beside it, looks at what it waits for: that one
 * takes the loop over at once, instead of at its deadline. */
struct handover {
    kc_client *client;
    _Atomic bool driving, leave;
    int looks;
};
static bool has_to_leave(void *ctx) {
    struct handover *h = ctx;
    atomic_store(&h->driving, true);
    return atomic_load(&h->leave);
}
static void *drive_first(void *ctx) {
    struct handover *h = ctx;
    assert_int_equal(kc_drive_until(h->client, NULL, has_to_leave, h, KW_NEVER, NULL), KC_OK);
    return NULL;
}
static bool is_driven_by_us(void *ctx) {
    struct handover *h = ctx;
    if (++h->looks != 2) return h->looks > 2 && atomic_load(&h->client->loop.driven);
    atomic_store(&h->leave, true); /* the first look was before it asked for the loop, this one is the last before it sleeps */
    kc_shell_wake(h->client->shell);
    while (atomic_load(&h->client->loop.state) != KC_LOOP_FREE) usleep(100);
    return false;
}
static void test_a_loop_let_go_while_another_looks(void **state) {
    (void)state;
    struct handover h = {.client = client_new()};
    pthread_t first;
    assert_int_equal(pthread_create(&first, NULL, drive_first, &h), 0);
    while (!atomic_load(&h.driving)) usleep(100);
    int64_t deadline_us = kc_clock_now().mono_us + 20000000;
    assert_int_equal(kc_drive_until(h.client, NULL, is_driven_by_us, &h, deadline_us, NULL), KC_OK);
    assert_true(kc_clock_now().mono_us < deadline_us);
    assert_int_equal(pthread_join(first, NULL), 0);
    kc_client_free(h.client);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_loop_let_go_while_another_looks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
