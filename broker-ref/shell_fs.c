/* shell_fs.c - operations on paths, and the synchronous file interface of jobs, as system calls. Called by shell_disk's lanes. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "shell_disk_priv.h"

enum { DEPTH_MAX = 8 };

static enum kb_disk_err kind_of(int os_errno) {
    switch (os_errno) {
    case 0:
        return KB_DISK_OK;
    case ENOENT:
    case ENOTDIR:
        return KB_DISK_ENOENT;
    case ENOSPC:
    case EDQUOT:
        return KB_DISK_ENOSPC;
    case EIO:
        return KB_DISK_EIO;
    case EFBIG:
        return KB_DISK_EFBIG;
    case ENOMEM:
    case EMFILE:
    case ENFILE:
        return KB_DISK_ENOMEM;
    case EEXIST:
        return KB_DISK_EEXIST;
    default:
        return KB_DISK_EOTHER;
    }
}

void kb_disk_fail(struct kb_disk_req *r, int os_errno) {
    r->os_errno = os_errno;
    r->err = kind_of(os_errno);
}

/* ---- Paths: 0 or an errno ---- */

static int sync_dir(const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return errno;
    int err = fsync(fd) == 0 ? 0 : errno;
    close(fd);
    return err;
}

static int sync_parent(const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash) return sync_dir(".");
    if (slash == path) return sync_dir("/");
    char *dir = strndup(path, (size_t)(slash - path));
    if (!dir) return ENOMEM;
    int err = sync_dir(dir);
    free(dir);
    return err;
}

static int write_iov(int fd, const struct kb_iov *iov, size_t n) {
    for (size_t i = 0; i < n; i++)
        for (size_t at = 0; at < iov[i].len;) {
            ssize_t got = write(fd, iov[i].p + at, iov[i].len - at);
            if (got < 0 && errno == EINTR) continue;
            if (got <= 0) return got < 0 ? errno : ENOSPC;
            at += (size_t)got;
        }
    return 0;
}

static int write_atomic(const struct kb_disk_req *r, bool sync) {
    char *tmp = NULL;
    if (asprintf(&tmp, "%s.tmp", r->path) < 0) return ENOMEM;
    int fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644), err = fd < 0 ? errno : 0;
    if (err == 0) err = write_iov(fd, r->iov, r->iov_count);
    if (err == 0 && sync && fsync(fd) != 0) err = errno;
    if (fd >= 0 && close(fd) != 0 && err == 0) err = errno;
    if (err == 0 && rename(tmp, r->path) != 0) err = errno;
    if (err != 0 && fd >= 0) unlink(tmp);
    if (err == 0 && sync) err = sync_parent(r->path);
    free(tmp);
    return err;
}

static int read_file(struct kb_disk_req *r) {
    int fd = open(r->path, O_RDONLY | O_CLOEXEC), err = 0;
    if (fd < 0) return errno;
    struct stat st;
    if (fstat(fd, &st) != 0) err = errno;
    if (err == 0 && !S_ISREG(st.st_mode)) err = ENOENT;
    if (err == 0 && st.st_size > r->length) err = EFBIG;
    uint8_t *p = err == 0 ? kw_malloc((size_t)st.st_size + 1) : NULL;
    if (err == 0 && !p) err = ENOMEM;
    int64_t n = 0;
    while (err == 0 && n < st.st_size) {
        ssize_t got = read(fd, p + n, (size_t)(st.st_size - n));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) err = errno;
        if (got <= 0) break;
        n += got;
    }
    close(fd);
    if (err != 0) {
        kw_free(p);
        return err;
    }
    p[n] = 0;
    r->data = p;
    r->result = n;
    return 0;
}

static int unlink_tree(const char *path, int depth) {
    if (unlink(path) == 0 || errno == ENOENT) return 0;
    if (errno != EISDIR && errno != EPERM) return errno;
    DIR *dir = opendir(path);
    if (!dir) return errno;
    int err = depth == 0 ? ELOOP : 0;
    for (struct dirent *e; err == 0 && (e = readdir(dir));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        char *child = NULL;
        err = asprintf(&child, "%s/%s", path, e->d_name) < 0 ? ENOMEM : unlink_tree(child, depth - 1);
        free(child);
    }
    closedir(dir);
    if (err == 0 && rmdir(path) != 0 && errno != ENOENT) err = errno;
    return err;
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int join_names(char **names, size_t count, size_t bytes, uint8_t **out) {
    uint8_t *p = kw_malloc(bytes + 1);
    if (!p) return ENOMEM;
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        size_t n = strlen(names[i]) + 1;
        memcpy(p + at, names[i], n);
        at += n;
    }
    *out = p;
    return 0;
}

static int list(const char *path, uint8_t **out, int64_t *out_count) {
    DIR *dir = opendir(path);
    if (!dir) return errno;
    char **names = NULL;
    size_t count = 0, cap = 0, bytes = 0;
    int err = 0;
    for (struct dirent *e; err == 0 && (e = readdir(dir));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        if (count == cap) {
            cap = cap ? 2 * cap : 64;
            char **v = realloc(names, cap * sizeof(*v));
            if (!v)
                err = ENOMEM;
            else
                names = v;
        }
        char *name = err == 0 ? strdup(e->d_name) : NULL;
        if (!name) {
            err = ENOMEM;
            break;
        }
        names[count++] = name;
        bytes += strlen(name) + 1;
    }
    closedir(dir);
    if (err == 0 && count > 0) qsort(names, count, sizeof(*names), by_name);
    if (err == 0) err = join_names(names, count, bytes, out);
    if (err == 0) *out_count = (int64_t)count;
    for (size_t i = 0; i < count; i++) free(names[i]);
    free(names);
    return err;
}

static int rename_path(const char *from, const char *to, bool sync) {
    if (rename(from, to) != 0) return errno;
    int err = sync ? sync_parent(to) : 0;
    return err == 0 && sync ? sync_parent(from) : err;
}

static int make_dir(const char *path) {
    return mkdir(path, 0755) == 0 || errno == EEXIST ? 0 : errno;
}

static int space(struct kb_disk_req *r) {
    struct statvfs v;
    if (statvfs(r->path, &v) != 0) return errno;
    r->result = (int64_t)v.f_bavail * (int64_t)v.f_frsize;
    r->offset = (int64_t)v.f_blocks * (int64_t)v.f_frsize;
    return 0;
}

static int unlink_path(const struct kb_disk_req *r) {
    if (r->flags & KB_DISK_RECURSIVE) return unlink_tree(r->path, DEPTH_MAX);
    return unlink(r->path) == 0 || errno == ENOENT ? 0 : errno;
}

void kb_path_run(struct kb_disk_req *r, bool ephemeral) {
    bool sync = (r->flags & KB_DISK_SYNC_FLAG) && !ephemeral;
    int err;
    switch (r->op) {
    case KB_DISK_WRITE_ATOMIC:
        err = write_atomic(r, sync);
        break;
    case KB_DISK_READ_FILE:
        err = read_file(r);
        break;
    case KB_DISK_RENAME:
        err = rename_path(r->path, r->path2, sync);
        break;
    case KB_DISK_UNLINK:
        err = unlink_path(r);
        break;
    case KB_DISK_MKDIR:
        err = make_dir(r->path);
        break;
    case KB_DISK_SYNC_DIR:
        err = ephemeral ? 0 : sync_dir(r->path);
        break;
    case KB_DISK_LIST:
        err = list(r->path, &r->data, &r->result);
        break;
    case KB_DISK_SPACE:
        err = space(r);
        break;
    default:
        err = EINVAL;
    }
    if (err != 0) kb_disk_fail(r, err);
}

/* ---- The files of jobs ---- */

static int fd_of(void *file) {
    return (int)(intptr_t)file - 1;
} /* a handle is never NULL */

static enum kb_disk_err fs_open(struct kb_fs *fs, const char *path, uint32_t flags, void **file, int64_t *size) {
    (void)fs;
    int fd = open(path, O_RDWR | O_CLOEXEC | (flags & KB_DISK_CREATE ? O_CREAT : 0) | (flags & KB_DISK_EXCLUSIVE ? O_EXCL : 0), 0644);
    off_t n = fd >= 0 ? lseek(fd, 0, SEEK_END) : -1;
    if (n < 0) {
        int err = errno;
        if (fd >= 0) close(fd);
        return kind_of(err);
    }
    *file = (void *)(intptr_t)(fd + 1);
    *size = n;
    return KB_DISK_OK;
}

static void fs_close(struct kb_fs *fs, void *file) {
    (void)fs;
    close(fd_of(file));
}

static enum kb_disk_err fs_read(struct kb_fs *fs, void *file, int64_t offset, void *buf, size_t n, size_t *got) {
    (void)fs;
    for (*got = 0; *got < n;) {
        ssize_t r = pread(fd_of(file), (uint8_t *)buf + *got, n - *got, offset + (int64_t)*got);
        if (r < 0 && errno == EINTR) continue;
        if (r < 0) return kind_of(errno);
        if (r == 0) break;
        *got += (size_t)r;
    }
    return KB_DISK_OK;
}

static enum kb_disk_err fs_write(struct kb_fs *fs, void *file, int64_t offset, const void *buf, size_t n) {
    (void)fs;
    for (size_t at = 0; at < n;) {
        ssize_t r = pwrite(fd_of(file), (const uint8_t *)buf + at, n - at, offset + (int64_t)at);
        if (r < 0 && errno == EINTR) continue;
        if (r <= 0) return kind_of(r < 0 ? errno : ENOSPC);
        at += (size_t)r;
    }
    return KB_DISK_OK;
}

static enum kb_disk_err fs_truncate(struct kb_fs *fs, void *file, int64_t length) {
    (void)fs;
    return ftruncate(fd_of(file), length) == 0 ? KB_DISK_OK : kind_of(errno);
}

static void fs_start_sync(struct kb_fs *fs, void *file) {
    if (!fs->ctx) (void)!sync_file_range(fd_of(file), 0, 0, SYNC_FILE_RANGE_WRITE); /* only a hint: the sync tells of errors */
}

static enum kb_disk_err fs_sync(struct kb_fs *fs, void *file) {
    return fs->ctx || fdatasync(fd_of(file)) == 0 ? KB_DISK_OK : kind_of(errno);
}
static enum kb_disk_err fs_rename(struct kb_fs *fs, const char *from, const char *to) {
    (void)fs;
    return kind_of(rename_path(from, to, false));
}
static enum kb_disk_err fs_unlink(struct kb_fs *fs, const char *path) {
    (void)fs;
    return unlink(path) == 0 || errno == ENOENT ? KB_DISK_OK : kind_of(errno);
}
static enum kb_disk_err fs_sync_dir(struct kb_fs *fs, const char *path) {
    return fs->ctx ? KB_DISK_OK : kind_of(sync_dir(path));
}
static enum kb_disk_err fs_mkdir(struct kb_fs *fs, const char *path) {
    (void)fs;
    return kind_of(make_dir(path));
}
static enum kb_disk_err fs_list(struct kb_fs *fs, const char *path, uint8_t **names, int64_t *count) {
    (void)fs;
    return kind_of(list(path, names, count));
}
static enum kb_disk_err fs_mtime(struct kb_fs *fs, const char *path, int64_t *wall_ms) {
    (void)fs;
    struct stat st;
    if (stat(path, &st) != 0) return kind_of(errno);
    *wall_ms = (int64_t)st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000;
    return KB_DISK_OK;
}

const struct kb_fs_ops kb_fs_syscalls = {.open = fs_open,
                                         .close = fs_close,
                                         .read = fs_read,
                                         .write = fs_write,
                                         .truncate = fs_truncate,
                                         .start_sync = fs_start_sync,
                                         .sync = fs_sync,
                                         .rename = fs_rename,
                                         .unlink = fs_unlink,
                                         .sync_dir = fs_sync_dir,
                                         .mkdir = fs_mkdir,
                                         .list = fs_list,
                                         .mtime = fs_mtime};
