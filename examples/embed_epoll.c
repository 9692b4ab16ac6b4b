/* embed_epoll.c - a client without a thread of its own (client.thread=none) in an epoll loop, beside whatever else the loop serves (here: a timer of the
 * application's own). Two descriptors are the client's: kc_client_fd, which is readable when something is ready or the client has to run, and a timerfd for
 * kc_client_next_deadline_us. What the application does: embed_app.h. Usage: embed_epoll HOST:PORT TOPIC COUNT, of a topic that exists.
 *
 *     cc embed_epoll.c $(pkg-config --cflags --libs kclient)
 */
#include "embed_app.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { OWN_TIMER_MS = 5 };

static void watch(int epoll, int fd) {
    struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e) == 0) return;
    perror("epoll_ctl");
    exit(1);
}

/* Wakes the loop in so many microseconds, or (KC_FOREVER) not at all. */
static void set_timer(int timer, int64_t us) {
    struct itimerspec t = {.it_value = {.tv_sec = us < 0 ? 0 : us / 1000000, .tv_nsec = us < 0 ? 0 : us % 1000000 * 1000}};
    timerfd_settime(timer, 0, &t, NULL);
}

static long expired(int timer) {
    uint64_t n = 0;
    return read(timer, &n, sizeof n) == sizeof n ? (long)n : 0;
}

int main(int argc, char **argv) {
    if (argc != 4 || atol(argv[3]) < 1) {
        fprintf(stderr, "usage: %s HOST:PORT TOPIC COUNT\n", argv[0]);
        return 2;
    }
    struct app app;
    app_start(&app, argv[1], argv[2], atol(argv[3]));
    int epoll = epoll_create1(EPOLL_CLOEXEC), deadline = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC),
        own = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    struct itimerspec every = {.it_interval = {.tv_nsec = OWN_TIMER_MS * 1000000}, .it_value = {.tv_nsec = OWN_TIMER_MS * 1000000}};
    timerfd_settime(own, 0, &every, NULL);
    watch(epoll, kc_client_fd(app.client));
    watch(epoll, deadline);
    watch(epoll, own);
    long ticks = 0;
    for (bool ending = false;;) {
        bool more = ending ? false : app_turn(&app);
        ending = ending || app_is_done(&app);
        if (ending && app_end(&app)) break;
        int64_t due_us = more ? 0 : kc_client_next_deadline_us(app.client);
        if (due_us != 0) set_timer(deadline, due_us);
        struct epoll_event ready[4];
        int n = epoll_wait(epoll, ready, 4, due_us == 0 ? 0 : -1);
        for (int i = 0; i < n; i++) {
            if (ready[i].data.fd == own) ticks += expired(own); /* here it would serve its other descriptors */
            if (ready[i].data.fd == deadline) expired(deadline); /* the client runs with the next turn, as it does for kc_client_fd */
        }
        if (n < 0 && errno != EINTR) {
            perror("epoll_wait");
            return 1;
        }
    }
    fprintf(stderr, "the loop's own timer went off %ld times meanwhile\n", ticks);
    close(epoll);
    close(deadline);
    close(own);
    return app_free(&app);
}
