/* event.h - everything that crosses between the client's core and its shell (libuv, or the simulator): time, names, connections.
 *
 * An event is a call from the shell into the core; it never re-enters. Actions are flags on connections in the core's action list. After every event
 * the shell takes kc_core_next_action until NULL, then re-arms its timer to kc_core_deadline.
 *
 * Called by shell.c, handle.c, tests/sim, tests/unit/client. Implemented by core.c and conn.c.
 */
#ifndef KC_EVENT_H
#define KC_EVENT_H

#include "base/base.h"
#include "base/blk.h"
#include "base/timers.h"

struct kc_now {
    int64_t mono_us;
    int64_t wall_ms;
};

struct kc_core;
struct kc_conn;

struct kc_iov { /* laid out as struct iovec */
    const uint8_t *p;
    size_t len;
};

enum kc_want { /* what a connection in the action list wants from the shell */
    KC_WANT_RESOLVE = 1, /* kc_conn_host/port -> kc_conn_resolved */
    KC_WANT_CONNECT = 2, /* kc_conn_address -> kc_conn_connected */
    KC_WANT_WRITE = 4,   /* kc_conn_out -> kc_conn_written */
    KC_WANT_CLOSE = 8,   /* close the socket and forget it; then kc_conn_closed with KW_OK */
};
#define KC_ADDRESS_MAX 128 /* holds any sockaddr of the shell */
struct kc_address {
    uint32_t size;
    uint8_t bytes[KC_ADDRESS_MAX];
};

struct kc_conn *kc_core_next_action(struct kc_core *core, uint32_t *wants); /* enum kc_want bits; taken off the list */
const char *kc_conn_host(const struct kc_conn *c);
uint16_t kc_conn_port(const struct kc_conn *c);
const struct kc_address *kc_conn_address(const struct kc_conn *c);
void *kc_conn_shell(const struct kc_conn *c);
void kc_conn_shell_set(struct kc_conn *c, void *shell);

/* Events. `text` is the system's own words for a failure, may be NULL. */
void kc_conn_resolved(struct kc_conn *c, const struct kc_address *addresses, size_t count, const char *text, struct kc_now now); /* count 0: failed */
void kc_conn_connected(struct kc_conn *c, kw_err err, const char *text, struct kc_now now);
/* Where the next bytes go: large answers land once, in a block that the consumer hands out views of. *n is never 0 while the connection is up,
 * unless reading is held back (then kc_conn_wants_read tells when to go on). */
void kc_conn_recv_buf(struct kc_conn *c, uint8_t **p, size_t *n);
void kc_conn_received(struct kc_conn *c, size_t n, struct kc_now now);
bool kc_conn_wants_read(const struct kc_conn *c);
void kc_conn_closed(struct kc_conn *c, kw_err err, const char *text, struct kc_now now); /* the peer closed or the socket failed, or our close is done */
/* What is to be written, up to max pieces; they stay put until kc_conn_written says how many bytes went. */
size_t kc_conn_out(struct kc_conn *c, struct kc_iov *iov, size_t max);
void kc_conn_written(struct kc_conn *c, size_t n, struct kc_now now);

int64_t kc_core_deadline(const struct kc_core *core); /* monotonic us; KW_NEVER */
void kc_core_tick(struct kc_core *core, struct kc_now now); /* due timers and end-of-turn work; the shell ends every turn with it */

#endif
