/* pid_source.h - producer ids, handed out one by one from the controller's blocks. Called by api/init_producer_id; node makes and frees it.
 */
#ifndef KB_PID_SOURCE_H
#define KB_PID_SOURCE_H

#include "node.h"

kw_err kb_pid_source_new(struct kb_node *n) KW_CHECK;
void kb_pid_source_free(struct kb_node *n);

#endif
