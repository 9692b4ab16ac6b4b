/* shell_disk_priv.h - what shell_disk.c (queues, lanes) and shell_fs.c (paths, jobs' files) share. */
#ifndef KB_SHELL_DISK_PRIV_H
#define KB_SHELL_DISK_PRIV_H

#include "shell_parts.h"

void kb_disk_fail(struct kb_disk_req *r, int os_errno);
void kb_path_run(struct kb_disk_req *r, bool ephemeral); /* every operation on paths */
extern const struct kb_fs_ops kb_fs_syscalls;            /* kb_fs.ctx not NULL: nothing is synced */

#endif
