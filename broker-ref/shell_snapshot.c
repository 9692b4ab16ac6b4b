/* shell_snapshot.c - snapshots by name: what they are, saved, listed, deleted. Contract: shell_snapshot.h. */
#include "shell_snapshot.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "shell_command.h"
#include "shell_copy.h"
#include "shell_snapshot_priv.h"

enum { FORMAT = 1, NAME_MAX_SIZE = 200, MODE = 0755 };

int kb_failed(struct kb_failure *f, int status, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(f->text, sizeof(f->text), fmt, ap);
    va_end(ap);
    f->status = status;
    return -1;
}

int kb_open_folder(const char *path) {
    return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

const char *kb_boot_id(char *id, size_t size) {
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, id, size - 1) : -1;
    if (fd >= 0) close(fd);
    id[n > 0 ? n : 0] = 0;
    id[strcspn(id, "\n")] = 0;
    return id;
}

/* ---- What is part of the state ---- */

static bool is_node_folder(const char *name) {
    return strncmp(name, "node-", 5) == 0 && name[5] && strspn(name + 5, "0123456789") == strlen(name + 5);
}

bool kb_snapshot_wants(enum kb_snapshot_kind kind, int depth, const char *name) {
    if (kind == KB_SNAPSHOT_CLUSTER && depth == 0) return is_node_folder(name) || strcmp(name, "cluster.json") == 0;
    if (depth != (kind == KB_SNAPSHOT_CLUSTER ? 1 : 0)) return true;
    static const char *const others[] = {".lock", ".admin.sock", KB_EPHEMERAL_MARK, "snapshots", ".restore", ".restored", ".restore.partial", ".old"};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (strcmp(name, others[i]) == 0) return false;
    return true;
}

static bool wants(const void *ctx, int depth, const char *name) {
    const struct kb_snapshot_facts *facts = ctx;
    return kb_snapshot_wants(facts->kind, depth, name);
}

enum kb_snapshot_kind kb_snapshot_kind_of(const char *dir) {
    char path[KB_SNAPSHOT_PATH_MAX];
    snprintf(path, sizeof(path), "%s/cluster.json", dir);
    if (access(path, F_OK) == 0) return KB_SNAPSHOT_CLUSTER;
    snprintf(path, sizeof(path), "%s/meta.properties", dir);
    return access(path, F_OK) == 0 ? KB_SNAPSHOT_NODE : KB_SNAPSHOT_UNKNOWN;
}

/* ---- Names ---- */

static int check_name(const char *name, const char *whole, struct kb_failure *f) {
    size_t n = strlen(name);
    bool ok = n > 0 && n <= NAME_MAX_SIZE && name[0] != '.';
    for (const char *p = name; ok && *p; p++) ok = (unsigned char)*p >= ' ' && *p != 0x7f;
    if (ok) return 0;
    return kb_failed(f, 400, "\"%.300s\" is no name for a snapshot: 1 to %d bytes, no control characters, no dot in front", whole, NAME_MAX_SIZE);
}

int kb_snapshot_path(const char *dir, const char *name, char *path, struct kb_failure *f) {
    const char *slash = strrchr(name, '/');
    int n = slash ? snprintf(path, KB_SNAPSHOT_PATH_MAX, "%s", name) : snprintf(path, KB_SNAPSHOT_PATH_MAX, "%s/snapshots/%s", dir, name);
    if (n >= KB_SNAPSHOT_PATH_MAX - 20) return kb_failed(f, 400, "the path of the snapshot is too long (%d bytes)", n);
    return check_name(slash ? slash + 1 : name, name, f);
}

/* "" for what lies in the root. parent: of KB_SNAPSHOT_PATH_MAX. */
static char *parent_of(const char *path, char *parent) {
    snprintf(parent, KB_SNAPSHOT_PATH_MAX, "%.*s", (int)(strrchr(path, '/') - path), path);
    return parent;
}

static void name_aside(const char *path, const char *what, char *aside) {
    const char *slash = strrchr(path, '/');
    snprintf(aside, KB_SNAPSHOT_PATH_MAX, "%.*s.%s.%s", (int)(slash + 1 - path), path, slash + 1, what);
}

/* ---- snapshot.json ---- */

int kb_snapshot_read(const char *path, struct kb_snapshot_facts *facts, struct kb_failure *f) {
    char file[KB_SNAPSHOT_PATH_MAX + 20], text[400];
    json_error_t e;
    json_int_t format = 0;
    const char *kind = NULL, *boot_id = "", *version = "";
    int synced = 0;
    json_int_t bytes = 0, created = 0;
    *facts = (struct kb_snapshot_facts){0};
    snprintf(file, sizeof(file), "%s/snapshot.json", path);
    if (access(file, F_OK) != 0) return kb_failed(f, 404, "there is no snapshot %s: kbroker snapshot list says which there are", path);
    json_t *root = json_load_file(file, 0, &e);
    if (!root) return kb_failed(f, 409, "%s is no snapshot: %s: %.200s", path, file, e.text);
    int err = json_unpack(root, "{s:I, s:s, s:s, s:s, s:b, s:I, s:I}", "kbroker_snapshot", &format, "kind", &kind, "boot_id", &boot_id, "version",
                          &version, "synced", &synced, "bytes", &bytes, "created_ms", &created);
    bool cluster = err == 0 && strcmp(kind, "cluster") == 0;
    if (err != 0 || format != FORMAT || (!cluster && strcmp(kind, "node") != 0)) {
        kb_failed(f, 409, "%s does not say what this kbroker (%s) understands: it is damaged, or of another version", file, KB_VERSION);
        json_decref(root);
        return -1;
    }
    facts->kind = cluster ? KB_SNAPSHOT_CLUSTER : KB_SNAPSHOT_NODE;
    facts->bytes = bytes;
    facts->created_ms = created;
    facts->synced = synced != 0;
    snprintf(facts->boot_id, sizeof(facts->boot_id), "%s", boot_id);
    snprintf(facts->version, sizeof(facts->version), "%s", version);
    json_decref(root);
    if (!cluster) return 0;
    snprintf(file, sizeof(file), "%s/data", path);
    int known = kb_cluster_plan_read(&facts->plan, file, text, sizeof(text));
    return known == 1 ? 0 : kb_failed(f, 409, "%s is damaged: %s", path, known < 0 ? text : "it has no cluster.json");
}

static int write_facts(const struct kb_snapshot_save *s, struct kb_failure *f) {
    char file[KB_SNAPSHOT_PATH_MAX + 20];
    const struct kb_snapshot_facts *facts = &s->facts;
    json_t *root = json_pack("{s:i, s:s, s:s, s:s, s:b, s:I, s:I}", "kbroker_snapshot", FORMAT, "kind",
                             facts->kind == KB_SNAPSHOT_CLUSTER ? "cluster" : "node", "boot_id", facts->boot_id, "version", facts->version, "synced",
                             (int)facts->synced, "bytes", (json_int_t)facts->bytes, "created_ms", (json_int_t)facts->created_ms);
    snprintf(file, sizeof(file), "%s/snapshot.json", s->aside);
    bool ok = root && json_dump_file(root, file, JSON_INDENT(1)) == 0;
    int err = errno;
    json_decref(root);
    return ok ? 0 : kb_failed(f, 500, "%s cannot be written: %s", file, strerror(err));
}

/* ---- Saving ---- */

/* A copy of the data must not become a part of it. */
static bool lies_in_data(const char *dir, const char *parent) {
    char *whole = realpath(dir, NULL), *where = realpath(parent[0] ? parent : "/", NULL);
    size_t n = whole ? strlen(whole) : 0;
    bool inside = whole && where && strncmp(where, whole, n) == 0 && (where[n] == '/' || where[n] == 0);
    bool kept = inside && strncmp(where + n, "/snapshots", 10) == 0 && (where[n + 10] == '/' || where[n + 10] == 0);
    free(whole);
    free(where);
    return inside && !kept;
}

/* -1 with what is wrong: it is a link, or another's, who could read what is put there. */
static int open_aside(const char *path, struct kb_failure *f) {
    struct stat st;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return kb_failed(f, 500, "the folder %s cannot be opened: %s", path, strerror(errno));
    if (fstat(fd, &st) == 0 && st.st_uid == geteuid()) return fd;
    close(fd);
    return kb_failed(f, 409, "the folder %s is in the way: it belongs to another user; choose another name, or place", path);
}

/* A folder of this name that nobody else makes right now; what a save that was killed left there goes. */
static int make_aside(struct kb_snapshot_save *s, struct kb_failure *f) {
    for (int tries = 0; tries < 2; tries++) {
        if (mkdir(s->aside, MODE) != 0 && errno != EEXIST) break;
        s->aside_fd = open_aside(s->aside, f);
        if (s->aside_fd < 0) return -1;
        if (flock(s->aside_fd, LOCK_EX | LOCK_NB) != 0) {
            close(s->aside_fd);
            s->aside_fd = -1;
            return kb_failed(f, 409, "the snapshot %s is being saved this moment", s->path);
        }
        char data[KB_SNAPSHOT_PATH_MAX + 10];
        snprintf(data, sizeof(data), "%s/data", s->aside);
        if (mkdir(data, MODE) == 0) return 0;
        int err = errno;
        if (err == EEXIST) kb_command_remove_tree(s->aside);
        close(s->aside_fd);
        s->aside_fd = -1;
        errno = err;
        if (err != EEXIST) break;
    }
    return kb_failed(f, 500, "the folder %s cannot be made: %s", s->aside, strerror(errno));
}

int kb_snapshot_begin(struct kb_snapshot_save *s, const char *dir, const char *name, bool replace, struct kb_failure *f) {
    struct kb_snapshot_facts old;
    struct timespec now;
    *s = (struct kb_snapshot_save){.dir = dir, .replace = replace, .aside_fd = -1};
    if (kb_snapshot_path(dir, name, s->path, f) != 0) return -1;
    if (access(s->path, F_OK) == 0) {
        if (!replace) return kb_failed(f, 409, "there is a snapshot %s: choose another name, delete it, or say that it is to be replaced (--replace)", s->path);
        if (kb_snapshot_read(s->path, &old, f) != 0) return kb_failed(f, 409, "%s is there, and is no snapshot that could be replaced", s->path);
    }
    name_aside(s->path, "partial", s->aside);
    char parent[KB_SNAPSHOT_PATH_MAX];
    parent_of(s->path, parent);
    int err = parent[0] ? kb_command_make_folder(parent) : 0;
    if (err != 0) return kb_failed(f, 500, "the folder %s cannot be made: %s", parent, strerror(err));
    if (lies_in_data(dir, parent))
        return kb_failed(f, 400, "%s lies in the data that is to be saved: say NAME (it goes to %s/snapshots), or a path elsewhere", s->path, dir);
    clock_gettime(CLOCK_REALTIME, &now);
    s->facts.created_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    s->facts.kind = kb_snapshot_kind_of(dir);
    snprintf(s->facts.version, sizeof(s->facts.version), "%s", KB_VERSION);
    kb_boot_id(s->facts.boot_id, sizeof(s->facts.boot_id));
    if (s->facts.kind == KB_SNAPSHOT_UNKNOWN) return kb_failed(f, 404, "%s is neither a cluster's folder nor a broker's: nothing is there to be saved", dir);
    return make_aside(s, f);
}

int kb_snapshot_copy(struct kb_snapshot_save *s, struct kb_failure *f) {
    struct kb_copy c = {.wants = wants, .ctx = &s->facts};
    int from = kb_open_folder(s->dir), to = openat(s->aside_fd, "data", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int err = from < 0 || to < 0 ? errno : kb_copy_tree(&c, from, to);
    if (from >= 0) close(from);
    if (to >= 0) close(to);
    s->facts.bytes = c.bytes;
    return err == 0 ? 0 : kb_failed(f, 500, "%s/%s cannot be copied to %s: %s", s->dir, c.failed, s->aside, strerror(err));
}

/* In place of the old one at one moment, where the file system can. */
static int put_in_place(const struct kb_snapshot_save *s) {
    char old[KB_SNAPSHOT_PATH_MAX];
    if (renameat2(AT_FDCWD, s->aside, AT_FDCWD, s->path, RENAME_NOREPLACE) == 0) return 0;
    if (errno == EEXIST && !s->replace) return -1;
    if (renameat2(AT_FDCWD, s->aside, AT_FDCWD, s->path, RENAME_EXCHANGE) == 0) {
        kb_command_remove_tree(s->aside);
        return 0;
    }
    name_aside(s->path, "old", old);
    kb_command_remove_tree(old);
    if (s->replace && rename(s->path, old) != 0 && errno != ENOENT) return -1;
    if (rename(s->aside, s->path) != 0) return -1;
    kb_command_remove_tree(old);
    return 0;
}

static int sync_names(const char *path) {
    char parent[KB_SNAPSHOT_PATH_MAX];
    if (!strchr(path, '/')) return 0;
    parent_of(path, parent);
    int fd = kb_open_folder(parent[0] ? parent : "/"), err = fd < 0 || fsync(fd) != 0 ? errno : 0;
    if (fd >= 0) close(fd);
    return err;
}

int kb_snapshot_commit(struct kb_snapshot_save *s, bool sync, struct kb_failure *f) {
    char parent[KB_SNAPSHOT_PATH_MAX];
    s->facts.synced = sync;
    if (write_facts(s, f) != 0) return -1;
    int err = sync ? kb_sync_tree(s->aside_fd) : 0;
    if (err != 0) return kb_failed(f, 500, "%s cannot be made durable: %s", s->aside, strerror(err));
    if (put_in_place(s) != 0) {
        err = errno;
        return kb_failed(f, err == EEXIST ? 409 : 500, "%s cannot get its name, %s: %s", s->aside, s->path, strerror(err));
    }
    close(s->aside_fd);
    s->aside_fd = -1;
    err = sync ? sync_names(s->path) : 0;
    if (err == 0 && sync) err = sync_names(parent_of(s->path, parent)); /* DIR/snapshots may be new, too */
    return err == 0 ? 0 : kb_failed(f, 500, "the name %s cannot be made durable: %s", s->path, strerror(err));
}

void kb_snapshot_abandon(struct kb_snapshot_save *s) {
    if (s->aside_fd < 0) return;
    kb_command_remove_tree(s->aside);
    close(s->aside_fd);
    s->aside_fd = -1;
}

/* ---- Deleting, listing ---- */

int kb_snapshot_delete(const char *path, int64_t *bytes, struct kb_failure *f) {
    struct kb_snapshot_facts facts;
    char aside[KB_SNAPSHOT_PATH_MAX];
    if (kb_snapshot_read(path, &facts, f) != 0) return -1;
    name_aside(path, "deleted", aside);
    kb_command_remove_tree(aside); /* of one that was killed */
    if (rename(path, aside) != 0 || kb_command_remove_tree(aside) != 0) return kb_failed(f, 500, "%s cannot be removed: %s", path, strerror(errno));
    *bytes = facts.bytes;
    return 0;
}

static json_t *describe(const char *name, const struct kb_snapshot_facts *facts) {
    json_t *nodes = json_array();
    for (size_t i = 0; i < facts->plan.count; i++) json_array_append_new(nodes, json_integer(facts->plan.nodes[i].id));
    return json_pack("{s:s, s:I, s:I, s:s, s:s, s:o}", "name", name, "bytes", (json_int_t)facts->bytes, "created_ms", (json_int_t)facts->created_ms,
                     "version", facts->version, "kind", facts->kind == KB_SNAPSHOT_CLUSTER ? "cluster" : "node", "nodes", nodes);
}

static int by_name(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

char *kb_snapshot_list(const char *dir) {
    char folder[KB_SNAPSHOT_PATH_MAX], path[KB_SNAPSHOT_PATH_MAX + 300];
    struct dirent **names = NULL;
    struct kb_snapshot_facts facts;
    struct kb_failure f;
    json_t *all = json_array();
    snprintf(folder, sizeof(folder), "%s/snapshots", dir);
    int n = scandir(folder, &names, NULL, by_name);
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, names[i]->d_name);
        if (names[i]->d_name[0] != '.' && kb_snapshot_read(path, &facts, &f) == 0) json_array_append_new(all, describe(names[i]->d_name, &facts));
        free(names[i]);
    }
    free(names);
    json_t *root = json_pack("{s:o}", "snapshots", all);
    char *json = root ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    return json;
}
