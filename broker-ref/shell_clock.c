/* shell_clock.c - the clocks of a process: the system's, and with --clock virtual a wall clock that can be advanced.
 *
 * Time runs on as the system's does, ahead of it by all that was advanced. The monotonic clock is never touched: the core's waits are the machine's.
 * Called by main.c and the rest of the shell, shell_options (--clock), admin_http (/clock). Calls node.h.
 */
#include <stdlib.h>
#include <time.h>

#include "shell_parts.h"

static struct {
    bool is_virtual;
    int64_t ahead_ms;
} clock_;

struct kb_now kb_shell_now(void) {
    struct timespec mono, wall;
    clock_gettime(CLOCK_MONOTONIC, &mono);
    clock_gettime(CLOCK_REALTIME, &wall);
    return (struct kb_now){.mono_us = (int64_t)mono.tv_sec * 1000000 + mono.tv_nsec / 1000,
                           .wall_ms = (int64_t)wall.tv_sec * 1000 + wall.tv_nsec / 1000000 + clock_.ahead_ms};
}

bool kb_shell_clock_is_virtual(void) {
    return clock_.is_virtual;
}

int64_t kb_shell_clock_ahead_ms(void) {
    return clock_.ahead_ms;
}

bool kb_shell_clock_set(const char *text) {
    static const char name[] = "virtual";
    bool is_virtual = strncmp(text, name, sizeof(name) - 1) == 0;
    const char *rest = text + (is_virtual ? sizeof(name) - 1 : 0);
    char *end = NULL;
    long long ms = 0;
    if (!is_virtual && strcmp(text, "real") != 0) return false;
    if (is_virtual && *rest) {
        bool digits = rest[0] == '+' && rest[1] >= '0' && rest[1] <= '9';
        ms = digits ? strtoll(rest + 1, &end, 10) : -1;
        if (ms < 0 || *end || ms > KB_AHEAD_MS_MAX) return false;
    }
    clock_.is_virtual = is_virtual;
    clock_.ahead_ms = ms;
    return true;
}

kw_err kb_shell_clock_advance(struct kb_shell *s, int64_t ms) {
    struct kb_now now = kb_shell_now();
    if (!clock_.is_virtual || ms < 0 || ms > KB_AHEAD_MS_MAX - clock_.ahead_ms) return KW_EINVAL;
    now.wall_ms += ms;
    clock_.ahead_ms += ms; /* first: the node's log lines are stamped with it */
    kw_err err = kb_node_advance(s->node, ms, now);
    if (err != KW_OK) clock_.ahead_ms -= ms;
    else s->now = now;
    return err;
}
