/* shell_temporary.c - folders for what does not outlive its process (--ephemeral), and those that killed processes left. Contract: shell_command.h.
 *
 * Whoever makes a folder locks it (flock on the folder itself), and marks it under the lock, which goes with the process however that ends. So one that has the
 * mark, and that can be locked, was left; one that is being made, or is another program's, has no mark yet, or never.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shell_command.h"

static const char prefix[] = "kbroker-";

static void mark(int dir) {
    int fd = openat(dir, KB_EPHEMERAL_MARK, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd >= 0) close(fd);
}

/* ---- What was left ---- */

/* Nobody holds this lock file in the folder: a node's, a cluster's. */
static bool is_free(int dir, const char *lock) {
    int fd = openat(dir, lock, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return errno == ENOENT;
    bool locked = flock(fd, LOCK_EX | LOCK_NB) == 0;
    close(fd);
    return locked;
}

/* Neither somebody who runs on what was left (--data), nor nodes that end a moment after the parent that was killed. */
static bool nobody_runs(int dir) {
    bool nobody = is_free(dir, ".cluster.lock") && is_free(dir, ".lock");
    int fd = fcntl(dir, F_DUPFD_CLOEXEC, 0);
    DIR *all = fd < 0 ? NULL : fdopendir(fd);
    if (!all && fd >= 0) close(fd);
    for (struct dirent *e; all && nobody && (e = readdir(all));) {
        char lock[300];
        if (strncmp(e->d_name, "node-", 5) != 0 || strchr(e->d_name, '.')) continue; /* not its log */
        snprintf(lock, sizeof(lock), "%s/.lock", e->d_name);
        nobody = is_free(dir, lock);
    }
    bool looked = all != NULL;
    if (all) closedir(all);
    return looked && nobody;
}

/* Ours, and only ours to write to: nobody else could have put there what we would remove. */
static bool was_left(int dir) {
    struct stat st;
    return fstat(dir, &st) == 0 && st.st_uid == geteuid() && (st.st_mode & 077) == 0 && flock(dir, LOCK_EX | LOCK_NB) == 0 &&
           faccessat(dir, KB_EPHEMERAL_MARK, F_OK, AT_SYMLINK_NOFOLLOW) == 0 && nobody_runs(dir);
}

static void remove_left(const char *base) {
    DIR *all = opendir(base);
    for (struct dirent *e; all && (e = readdir(all));) {
        char path[4400], marked[300];
        if (strncmp(e->d_name, prefix, sizeof(prefix) - 1) != 0) continue;
        snprintf(marked, sizeof(marked), "%s/%s", e->d_name, KB_EPHEMERAL_MARK);
        if (faccessat(dirfd(all), marked, F_OK, 0) != 0) continue; /* sooner than by opening it: there may be hundreds */
        int dir = openat(dirfd(all), e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (dir < 0) continue;
        int n = snprintf(path, sizeof(path), "%s/%s", base, e->d_name);
        if (n < (int)sizeof(path) && was_left(dir) && kb_command_remove_tree(path) != 0) mark(dir); /* the next one tries again */
        close(dir);
    }
    if (all) closedir(all);
}

/* ---- A new one ---- */

char *kb_command_make_temporary(char *text, size_t size) {
    const char *base = getenv("TMPDIR");
    char *path = NULL;
    if (!base || !base[0]) base = "/tmp";
    remove_left(base);
    if (asprintf(&path, "%s/%sXXXXXX", base, prefix) < 0) {
        snprintf(text, size, "out of memory");
        return NULL;
    }
    if (!mkdtemp(path)) {
        snprintf(text, size, "a temporary folder %.300s cannot be made: %s; set TMPDIR", path, strerror(errno));
        free(path);
        return NULL;
    }
    int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC); /* never closed: with it goes the lock */
    if (dir >= 0 && flock(dir, LOCK_EX) == 0) mark(dir);      /* waits at most for one that looks whether it was left */
    return path;
}
