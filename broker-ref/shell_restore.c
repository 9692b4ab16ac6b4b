/* shell_restore.c - a snapshot brought back into a folder: prepared beside it, decided by one rename, finished by whoever has the folder. Contract:
 * shell_snapshot.h.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shell_command.h"
#include "shell_copy.h"
#include "shell_snapshot_priv.h"

static const char partial[] = ".restore.partial", decided[] = ".restore", emptied[] = ".restored";

/* ---- Prepare ---- */

/* The copy is durable, and stands for a kill -9 at that time on this machine as it runs now: a start of the machine since then was no loss of power to
 * it. A folder that had seen another start already when it was saved keeps what it knows. */
static int stamp_boot_id(int node, const struct kb_snapshot_facts *facts) {
    char now[64], then[64] = "";
    kb_boot_id(now, sizeof(now));
    int fd = openat(node, "kbroker.boot-id", O_RDWR | O_CLOEXEC);
    if (fd < 0) return errno == ENOENT ? 0 : errno;
    ssize_t n = read(fd, then, sizeof(then) - 1);
    bool mine = n > 0 && facts->synced && now[0] && strcmp(then, facts->boot_id) == 0 && strcmp(then, now) != 0;
    size_t size = strlen(now);
    int err = mine && (pwrite(fd, now, size, 0) != (ssize_t)size || ftruncate(fd, (off_t)size) != 0) ? errno : 0;
    close(fd);
    return err;
}

static int stamp_all(int data, const struct kb_snapshot_facts *facts) {
    if (facts->kind == KB_SNAPSHOT_NODE) return stamp_boot_id(data, facts);
    for (size_t i = 0; i < facts->plan.count; i++) {
        char name[40];
        snprintf(name, sizeof(name), "node-%d", facts->plan.nodes[i].id);
        int node = openat(data, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        int err = node >= 0 ? stamp_boot_id(node, facts) : errno == ENOENT ? 0 : errno; /* it was wiped when all was saved */
        if (node >= 0) close(node);
        if (err != 0) return err;
    }
    return 0;
}

static int copy_data(int from, int to, const char *path, const struct kb_snapshot_facts *facts, struct kb_failure *f) {
    struct kb_copy c = {0};
    int err = kb_copy_tree(&c, from, to);
    if (err != 0) return kb_failed(f, 500, "%s/data/%s cannot be copied: %s; nothing was changed", path, c.failed, strerror(err));
    if (c.bytes != facts->bytes)
        return kb_failed(f, 409, "the snapshot %s is not whole: it has %lld bytes of %lld; nothing was changed", path, (long long)c.bytes,
                         (long long)facts->bytes);
    err = stamp_all(to, facts);
    return err == 0 ? 0 : kb_failed(f, 500, "kbroker.boot-id of %s cannot be written: %s; nothing was changed", path, strerror(err));
}

int kb_restore_prepare(const char *dir, const char *path, const struct kb_snapshot_facts *facts, const struct kb_cluster_plan *plan, bool sync,
                       struct kb_failure *f) {
    char aside[KB_SNAPSHOT_PATH_MAX], source[KB_SNAPSHOT_PATH_MAX + 10], text[400];
    snprintf(aside, sizeof(aside), "%s/%s", dir, partial);
    snprintf(source, sizeof(source), "%s/data", path);
    kb_restore_abandon(dir); /* of one that was killed */
    if (mkdir(aside, 0755) != 0) return kb_failed(f, 500, "the folder %s cannot be made: %s", aside, strerror(errno));
    int from = kb_open_folder(source), to = kb_open_folder(aside);
    int err = from >= 0 && to >= 0 ? copy_data(from, to, path, facts, f)
                                   : kb_failed(f, 500, "%s cannot be opened: %s", from < 0 ? source : aside, strerror(errno));
    if (err == 0 && plan && kb_cluster_plan_write(plan, aside, text, sizeof(text)) != 0) err = kb_failed(f, 500, "%s; nothing was changed", text);
    int synced = err == 0 && sync ? kb_sync_tree(to) : 0;
    if (synced != 0) err = kb_failed(f, 500, "%s cannot be made durable: %s; nothing was changed", aside, strerror(synced));
    if (from >= 0) close(from);
    if (to >= 0) close(to);
    if (err != 0) kb_restore_abandon(dir);
    return err;
}

void kb_restore_abandon(const char *dir) {
    char aside[KB_SNAPSHOT_PATH_MAX];
    snprintf(aside, sizeof(aside), "%s/%s", dir, partial);
    kb_command_remove_tree(aside);
}

/* ---- Commit, finish ---- */

/* What was prepared is durable; from here on each step is a rename, of which a loss of power keeps the first so many. So only the last one is waited for. */
int kb_restore_commit(const char *dir, struct kb_failure *f) {
    int fd = kb_open_folder(dir), err = fd < 0 || renameat(fd, partial, fd, decided) != 0 ? errno : 0;
    if (err == ENOTEMPTY || err == EEXIST) { /* another was decided, and nobody has begun with it: now it is this one */
        err = renameat2(fd, partial, fd, decided, RENAME_EXCHANGE) == 0 ? 0 : errno;
        kb_restore_abandon(dir);
    }
    if (fd >= 0) close(fd);
    if (err == 0) return 0;
    kb_restore_abandon(dir);
    return kb_failed(f, 500, "%s/%s cannot be renamed: %s; nothing was changed", dir, partial, strerror(err));
}

static bool has(const char *dir, const char *name) {
    char path[KB_SNAPSHOT_PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return access(path, F_OK) == 0;
}

bool kb_restore_is_decided(const char *dir) {
    return has(dir, decided);
}

bool kb_restore_is_unfinished(const char *dir) {
    return has(dir, decided) || has(dir, emptied);
}

/* Moves the entries of one folder that belong to the state into another; but for one, which goes last. */
static int move_all(int from, int to, enum kb_snapshot_kind kind, const char *last) {
    int fd = fcntl(from, F_DUPFD_CLOEXEC, 0), err = 0;
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        err = errno;
        if (fd >= 0) close(fd);
        return err;
    }
    rewinddir(dir);
    for (struct dirent *e; err == 0 && (errno = 0, e = readdir(dir));) {
        const char *name = e->d_name;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(name, last) == 0 || !kb_snapshot_wants(kind, 0, name)) continue;
        if (renameat(from, name, to, name) != 0) err = errno;
    }
    if (err == 0) err = errno;
    closedir(dir);
    return err == 0 && renameat(from, last, to, last) != 0 && errno != ENOENT ? errno : err;
}

static enum kb_snapshot_kind kind_at(int dir, const char *name) {
    char path[60];
    snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", dir, name);
    return kb_snapshot_kind_of(path);
}

static const char *told_by(enum kb_snapshot_kind kind) {
    return kind == KB_SNAPSHOT_CLUSTER ? "cluster.json" : "meta.properties";
}

/* What was there goes into .restore/.old: one that was killed may have moved a part of it. */
static int empty_folder(int dir) {
    enum kb_snapshot_kind kind = kind_at(dir, decided);
    int aside = openat(dir, decided, O_RDONLY | O_DIRECTORY | O_CLOEXEC), old = -1, err = 0;
    if (aside < 0) return errno == ENOENT ? 0 : errno;
    if (mkdirat(aside, ".old", 0755) != 0 && errno != EEXIST) err = errno;
    if (err == 0) old = openat(aside, ".old", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (err == 0) err = old < 0 ? errno : move_all(dir, old, kind, told_by(kind));
    if (old >= 0) close(old);
    close(aside);
    return err == 0 && renameat(dir, decided, dir, emptied) != 0 ? errno : err;
}

/* By which file the kind is told goes last: one that is killed on the way is gone on from. */
static int fill_folder(int dir, bool sync) {
    char path[60];
    enum kb_snapshot_kind kind = kind_at(dir, emptied); /* UNKNOWN: all was moved before */
    int aside = openat(dir, emptied, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (aside < 0) return errno == ENOENT ? 0 : errno;
    int err = kind == KB_SNAPSHOT_UNKNOWN ? 0 : move_all(aside, dir, kind, told_by(kind));
    close(aside);
    if (err == 0 && sync && fsync(dir) != 0) err = errno;
    if (err != 0) return err;
    snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", dir, emptied);
    return kb_command_remove_tree(path) == 0 ? 0 : errno;
}

int kb_restore_finish(const char *dir, bool sync, struct kb_failure *f) {
    kb_restore_abandon(dir); /* of one that was killed before it was decided */
    int fd = kb_open_folder(dir), err = fd < 0 ? errno : fill_folder(fd, sync); /* of one before, which could not be finished */
    if (err == 0) err = empty_folder(fd);
    if (err == 0) err = fill_folder(fd, sync);
    if (fd >= 0) close(fd);
    if (err == 0) return 0;
    return kb_failed(f, 500, "the restore of %s cannot be finished: %s; once that is mended, the next start finishes it", dir, strerror(err));
}

/* ---- Ports ---- */

int kb_restore_plan(const struct kb_snapshot_facts *facts, const struct kb_cluster_plan *now, int base_port, struct kb_cluster_plan *out,
                    struct kb_failure *f) {
    char text[400];
    struct kb_cluster_plan have = now ? *now : (struct kb_cluster_plan){0};
    *out = (struct kb_cluster_plan){0};
    for (size_t i = 0; i < facts->plan.count; i++) { /* those first that have a port already: nobody else is given it */
        struct kb_cluster_node n = facts->plan.nodes[i];
        const struct kb_cluster_node *has = kb_cluster_plan_find(&have, n.id);
        n.port = has ? has->port : 0;
        out->nodes[out->count++] = n;
    }
    for (size_t i = 0; i < out->count; i++) {
        if (out->nodes[i].port != 0) continue;
        int wanted = base_port > 0 ? base_port + (int)i : base_port < 0 ? facts->plan.nodes[i].port : 0;
        if (kb_cluster_plan_port(out, &out->nodes[i], wanted, base_port > 0, text, sizeof(text)) != 0) return kb_failed(f, 409, "%s", text);
    }
    return 0;
}
