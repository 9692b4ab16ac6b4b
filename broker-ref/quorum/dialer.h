/* dialer.h - tries whether anything listens where a broker is: how the controller tells a dead process from a broken connection.
 *
 * Called by the controller (its `dial`), made by the node. Calls link.
 */
#ifndef KB_DIALER_H
#define KB_DIALER_H

#include "../node.h"

struct kb_dialer;

kw_err kb_dialer_new(struct kb_node *n, struct kb_dialer **d) KW_CHECK;
void kb_dialer_free(struct kb_dialer *d); /* nothing is told any more; NULL is fine */
/* ctx is the dialer. kb_controller_dialed tells what came of it, in a later turn, unless this failed. One at a time a broker: KW_EBUSY. */
kw_err kb_dialer_dial(void *ctx, int32_t broker, const char *host, uint16_t port, struct kb_now now) KW_CHECK;

#endif
