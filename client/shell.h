/* shell.h - the client's I/O: sockets, name lookups, waiting and the clock, over libuv. One a client; belongs to whoever owns the loop.
 *
 * Called by loop.c and handle_client.c. Calls core/event.h.
 */
#ifndef KC_SHELL_H
#define KC_SHELL_H

#include "core/config.h"
#include "core/event.h"

struct kc_shell;
/* `why` gets the system's words on failure: KW_ENOMEM, KW_EIO (no descriptor to be had). */
kw_err kc_shell_new(const struct kc_settings *settings, struct kc_shell **shell, char *why, size_t size) KW_CHECK;
void kc_shell_attach(struct kc_shell *shell, struct kc_core *core);
/* Ends the turn: ticks the core and does what it wants until nothing is due now. */
void kc_shell_settle(struct kc_shell *shell);
/* Waits for something to happen, at most timeout_us (KW_NEVER: no limit) and not past the core's deadline, and hands events to the core. 0: only looks. */
void kc_shell_wait(struct kc_shell *shell, int64_t timeout_us);
/* Ends a wait, or the next one. Any thread; safe in a signal handler. */
void kc_shell_wake(struct kc_shell *shell);
/* Readable when kc_shell_wait would have something to do. kc_shell_flush first: libuv tells the kernel late. */
int kc_shell_fd(struct kc_shell *shell);
bool kc_shell_flush(struct kc_shell *shell); /* true: it looked at the sockets as well, so there may be something to settle */
/* Whether its owner is (was, at the fork) inside an event of this wait: then nothing of it and of the core can be trusted to be whole. */
bool kc_shell_in_event(const struct kc_shell *shell);
/* In a forked child only descriptors are closed and, where they are `whole`, memory is given back: the kernel's objects are the parent's too. */
void kc_shell_free_forked(struct kc_shell *shell, bool whole);
void kc_shell_free(struct kc_shell *shell);

struct kc_now kc_clock_now(void);
uint64_t kc_random_seed(void);

#endif
