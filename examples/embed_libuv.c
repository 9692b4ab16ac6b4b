/* embed_libuv.c - a client without a thread of its own (client.thread=none) in a libuv loop: a uv_poll_t on kc_client_fd, which is readable when something is
 * ready or the client has to run, and a uv_timer_t for kc_client_next_deadline_us. A second timer is the application's own. What the application does:
 * embed_app.h. Usage: embed_libuv HOST:PORT TOPIC COUNT, of a topic that exists.
 *
 *     cc embed_libuv.c $(pkg-config --cflags --libs kclient libuv)
 */
#include "embed_app.h"

#include <uv.h>

enum { OWN_TIMER_MS = 5 };

static struct app app;
static uv_poll_t client;
static uv_timer_t deadline, own;
static bool ending;
static long ticks;

static void on_deadline(uv_timer_t *t);

/* A turn of the application's, and when the next one is due: the loop has its other work in between. */
static void turn(void) {
    bool more = ending ? false : app_turn(&app);
    if (!ending) ending = app_is_done(&app);
    if (ending && app_end(&app)) { /* with nothing left to watch the loop ends */
        uv_close((uv_handle_t *)&client, NULL);
        uv_close((uv_handle_t *)&deadline, NULL);
        uv_close((uv_handle_t *)&own, NULL);
        return;
    }
    int64_t due_us = more ? 0 : kc_client_next_deadline_us(app.client);
    if (due_us == KC_FOREVER) uv_timer_stop(&deadline);
    else uv_timer_start(&deadline, on_deadline, (uint64_t)(due_us + 999) / 1000, 0);
}

static void on_deadline(uv_timer_t *t) {
    (void)t;
    turn();
}

static void on_readable(uv_poll_t *p, int status, int events) {
    (void)p, (void)status, (void)events;
    turn();
}

static void on_own_timer(uv_timer_t *t) {
    (void)t;
    ticks++; /* here it would do something else */
}

int main(int argc, char **argv) {
    if (argc != 4 || atol(argv[3]) < 1) {
        fprintf(stderr, "usage: %s HOST:PORT TOPIC COUNT\n", argv[0]);
        return 2;
    }
    app_start(&app, argv[1], argv[2], atol(argv[3]));
    uv_loop_t *loop = uv_default_loop();
    uv_timer_init(loop, &deadline);
    uv_timer_init(loop, &own);
    uv_poll_init(loop, &client, kc_client_fd(app.client));
    uv_poll_start(&client, UV_READABLE, on_readable);
    uv_timer_start(&deadline, on_deadline, 0, 0);
    uv_timer_start(&own, on_own_timer, OWN_TIMER_MS, OWN_TIMER_MS);
    uv_run(loop, UV_RUN_DEFAULT);
    uv_loop_close(loop);
    fprintf(stderr, "the loop's own timer went off %ld times meanwhile\n", ticks);
    return app_free(&app);
}
