/* shell_stand.h - a broker of which only the folder is known: does it run, and may it stand still for a moment? Called by shell_snapshot_ask. */
#ifndef KB_SHELL_STAND_H
#define KB_SHELL_STAND_H

#include <sys/types.h>

#include "shell_snapshot.h"

/* The process that holds the lock of a broker's folder; 0: none does. */
pid_t kb_stand_holder(const char *dir);

struct kb_stand {
    pid_t pid;     /* of who runs; 0: nobody, and the folder's lock is ours */
    int lock_fd;
    int watch;     /* while it stands: the end of a pipe by which a process of its own tells that we are gone, and lets it go on; -1 */
    pid_t watcher;
};
/* 1: it runs; 0: it does not, and cannot before kb_stand_free; -1 with what is wrong. */
int kb_stand_take(struct kb_stand *s, const char *dir, struct kb_failure *f);
int kb_stand_still(struct kb_stand *s, struct kb_failure *f); /* all its threads; nothing to do when nobody runs */
void kb_stand_go_on(struct kb_stand *s);                      /* twice: nothing */
void kb_stand_free(struct kb_stand *s);

#endif
