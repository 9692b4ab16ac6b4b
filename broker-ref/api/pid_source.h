/* pid_source.h - producer ids, handed out one by one from the controller's blocks. Called by api/init_producer_id and
 * replica/partition; node makes and frees it. */
#ifndef KB_PID_SOURCE_H
#define KB_PID_SOURCE_H

#include "node.h"

kw_err kb_pid_source_new(struct kb_node *n) KW_CHECK;
void kb_pid_source_free(struct kb_node *n);
/* A log holds producers of ids below `next`, whoever gave them out: ids go on from there. Called by replica/ for each log that is opened. */
void kb_pid_source_from(struct kb_node *n, int64_t next);

#endif
