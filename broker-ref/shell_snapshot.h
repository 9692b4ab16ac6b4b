/* shell_snapshot.h - snapshots: the state of a cluster (or of one broker's folder), copied while its nodes stand still, and brought back.
 *
 * A snapshot is a folder: snapshot.json (what it is; written last) and data/ (the plan and the nodes' folders, or the broker's folder). It is made aside,
 * as .NAME.partial, and renamed once it is whole and durable; so is what is to be restored, as DIR/.restore.partial. From .restore on a restore is
 * decided: whoever takes the folder next (the parent, a start) finishes it (kb_restore_finish). DIR/.restored: what was there before was moved away.
 *
 * Called by cluster (--from, a restore that was interrupted), cluster_snapshot (while the nodes run; off its loop), shell_snapshot_ask, main. Calls
 * shell_copy, cluster_plan. None of it says anything or stops anybody.
 */
#ifndef KB_SHELL_SNAPSHOT_H
#define KB_SHELL_SNAPSHOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cluster.h"

enum { KB_SNAPSHOT_PATH_MAX = 4300 };

enum kb_snapshot_kind { KB_SNAPSHOT_UNKNOWN, KB_SNAPSHOT_NODE, KB_SNAPSHOT_CLUSTER };

struct kb_failure { /* what failed, where, why, what to do */
    int status;     /* as HTTP has it: 400 wrong name, 404 no such snapshot, 409 not in this state, 500 it failed */
    char text[1000];
};

/* What a folder is. */
enum kb_snapshot_kind kb_snapshot_kind_of(const char *dir);

struct kb_snapshot_facts { /* of snapshot.json */
    enum kb_snapshot_kind kind;
    int64_t bytes, created_ms;
    bool synced;      /* durable when it was made */
    char boot_id[64]; /* of the machine then */
    char version[32];
    struct kb_cluster_plan plan; /* of a cluster's */
};
/* 0; -1 with what is wrong. */
int kb_snapshot_read(const char *path, struct kb_snapshot_facts *facts, struct kb_failure *f);

/* Where the snapshot lies: NAME with a slash is a path, else DIR/snapshots/NAME. path: of KB_SNAPSHOT_PATH_MAX. -1: no name for one. */
int kb_snapshot_path(const char *dir, const char *name, char *path, struct kb_failure *f);

/* ---- Saving: begin, copy (nobody writes meanwhile), commit; abandon at any time before the end of commit ---- */

struct kb_snapshot_save {
    const char *dir; /* whose state; lives until the end */
    char path[KB_SNAPSHOT_PATH_MAX], aside[KB_SNAPSHOT_PATH_MAX];
    bool replace;
    int aside_fd; /* locked: nobody else makes the same; -1: not begun, or over */
    struct kb_snapshot_facts facts;
};
int kb_snapshot_begin(struct kb_snapshot_save *s, const char *dir, const char *name, bool replace, struct kb_failure *f);
int kb_snapshot_copy(struct kb_snapshot_save *s, struct kb_failure *f);
int kb_snapshot_commit(struct kb_snapshot_save *s, bool sync, struct kb_failure *f); /* sync: it is to outlive the machine's end */
void kb_snapshot_abandon(struct kb_snapshot_save *s);                                /* what was begun and not committed goes; twice: nothing */

int kb_snapshot_delete(const char *path, int64_t *bytes, struct kb_failure *f);
/* DIR/snapshots as JSON: {"snapshots":[{"name","bytes","created_ms","version","nodes":[0,1]}]}. free(); NULL: no memory. */
char *kb_snapshot_list(const char *dir);

/* ---- Restoring: prepare (the nodes may run), commit, finish (nobody uses the folder) ---- */

/* plan: the nodes and ports that the restored cluster is to have; NULL: a broker's folder. sync: as above. */
int kb_restore_prepare(const char *dir, const char *path, const struct kb_snapshot_facts *facts, const struct kb_cluster_plan *plan, bool sync,
                       struct kb_failure *f);
int kb_restore_commit(const char *dir, struct kb_failure *f);
void kb_restore_abandon(const char *dir);                                /* what was prepared and not committed */
int kb_restore_finish(const char *dir, bool sync, struct kb_failure *f); /* what was committed; nothing to do: 0 */
bool kb_restore_is_decided(const char *dir);                             /* committed, and nothing of it done yet */
bool kb_restore_is_unfinished(const char *dir);                          /* committed, and not all of it done yet */
/* Which ports a restored cluster has: each node's that it has in `now` (NULL: a new cluster), else base_port and on (0: free ones), else (-1) the
 * snapshot's. */
int kb_restore_plan(const struct kb_snapshot_facts *facts, const struct kb_cluster_plan *now, int base_port, struct kb_cluster_plan *out,
                    struct kb_failure *f);

/* ---- shell_snapshot_ask.c ---- */

int kb_snapshot_ask_main(int argc, char **argv); /* `kbroker snapshot …`. The exit code */

#endif
