/* shell_timer.h - a timer for a shell's loop that fires at a given time or before it. Used by client/shell.c and broker-ref/main.c.
 *
 * A finite timeout makes the kernel set and cancel a timer around every sleep: about 2 us, which a synchronous round trip pays four times. This
 * one keeps the earliest time that it was asked for and goes to the kernel only for an earlier one. Deadlines mostly move away, so steady
 * traffic sets none; now and then it fires for a time that has passed out of interest. Whoever is woken looks at his own deadlines anyway.
 * Its unit is the microsecond, where libuv's is the millisecond.
 */
#ifndef KC_SHELL_TIMER_H
#define KC_SHELL_TIMER_H

#include "base/timers.h"

#include <uv.h>

struct kc_shell_timer {
    uv_poll_t poll;
    int fd;
    int64_t armed_us; /* monotonic; KW_NEVER: not set */
    void (*fired)(void *ctx);
    void *ctx;
};

/* 0, or libuv's error. fired (may be NULL) is called in the loop. */
int kc_shell_timer_init(struct kc_shell_timer *t, uv_loop_t *loop, void (*fired)(void *ctx), void *ctx);
/* To fire at at_us (monotonic) at the latest. KW_NEVER: no need. */
void kc_shell_timer_at(struct kc_shell_timer *t, int64_t at_us);
void kc_shell_timer_close(struct kc_shell_timer *t); /* the handle's memory is libuv's until the loop has run once more */

#endif
