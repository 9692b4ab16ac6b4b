/* shell_snapshot_priv.h - what shell_snapshot.c and shell_restore.c share. Private to them. */
#ifndef KB_SHELL_SNAPSHOT_PRIV_H
#define KB_SHELL_SNAPSHOT_PRIV_H

#include <stdarg.h>

#include "shell_snapshot.h"

int kb_failed(struct kb_failure *f, int status, const char *fmt, ...) __attribute__((format(printf, 3, 4))); /* -1 */
int kb_open_folder(const char *path);                                                                        /* -1: errno */
const char *kb_boot_id(char *id, size_t size);                                                               /* the machine's; "": unknown */
/* Is an entry of a cluster's (or broker's) folder part of its state, or its lock, its socket, its snapshots? depth 0: in the folder itself. */
bool kb_snapshot_wants(enum kb_snapshot_kind kind, int depth, const char *name);

#endif
