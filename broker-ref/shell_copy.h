/* shell_copy.h - folders copied and made durable, as snapshots want it. Called by shell_snapshot, shell_restore. */
#ifndef KB_SHELL_COPY_H
#define KB_SHELL_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kb_copy {
    bool (*wants)(const void *ctx, int depth, const char *name); /* is this entry copied? depth 0: those of the folder itself. NULL: all are */
    const void *ctx;
    int64_t bytes; /* so many were copied, of files' contents */
    char failed[300]; /* what could not be copied, from the folder on */
};
/* Regular files and folders below the folder `from` (a descriptor), into `to`; sockets, links and the like are left out. Blocks are shared where the file
 * system can. Files keep their times, by which records without one are told to be old. 0, or an errno. */
int kb_copy_tree(struct kb_copy *c, int from, int to);
/* Everything below the folder is durable, and the folder's own names. 0, or an errno. */
int kb_sync_tree(int dir);

#endif
