/* shell_timer.c - see shell_timer.h. Calls timerfd and libuv. */
#include "shell_timer.h"

#include <errno.h>
#include <sys/timerfd.h>
#include <unistd.h>

static void readable(uv_poll_t *p, int status, int events) {
    (void)status;
    (void)events;
    struct kc_shell_timer *t = p->data;
    uint64_t n;
    (void)!read(t->fd, &n, sizeof n);
    t->armed_us = KW_NEVER;
    if (t->fired) t->fired(t->ctx);
}

int kc_shell_timer_init(struct kc_shell_timer *t, uv_loop_t *loop, void (*fired)(void *ctx), void *ctx) {
    *t = (struct kc_shell_timer){.armed_us = KW_NEVER, .fired = fired, .ctx = ctx};
    t->fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (t->fd < 0) return uv_translate_sys_error(errno);
    int r = uv_poll_init(loop, &t->poll, t->fd);
    if (r != 0) {
        close(t->fd);
        t->fd = -1;
        return r;
    }
    t->poll.data = t;
    uv_poll_start(&t->poll, UV_READABLE, readable);
    return 0;
}

void kc_shell_timer_at(struct kc_shell_timer *t, int64_t at_us) {
    if (at_us >= t->armed_us) return;
    t->armed_us = at_us;
    int64_t at = KW_MAX(at_us, 1); /* 0 would disarm it; what has passed fires at once */
    struct itimerspec when = {.it_value = {.tv_sec = at / 1000000, .tv_nsec = at % 1000000 * 1000}};
    (void)timerfd_settime(t->fd, TFD_TIMER_ABSTIME, &when, NULL);
}

void kc_shell_timer_close(struct kc_shell_timer *t) {
    uv_close((uv_handle_t *)&t->poll, NULL);
    close(t->fd);
}
