/* shell_copy.c - contract: shell_copy.h. */
#include "shell_copy.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEPTH_MAX = 8, BUFFER_SIZE = 1 << 16 };

/* ---- One file ---- */

static int copy_by_hand(int from, int to, off_t at, off_t end) {
    char buf[BUFFER_SIZE];
    while (at < end) {
        size_t want = end - at < BUFFER_SIZE ? (size_t)(end - at) : BUFFER_SIZE;
        ssize_t n = pread(from, buf, want, at), done = 0;
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return n < 0 ? errno : EIO; /* shorter than it was: somebody still writes it */
        while (done < n) {
            ssize_t put = pwrite(to, buf + done, (size_t)(n - done), at + done);
            if (put < 0 && errno != EINTR) return errno;
            if (put > 0) done += put;
        }
        at += n;
    }
    return 0;
}

/* From `at` to `end`, where there is data. */
static int copy_range(int from, int to, off_t at, off_t end) {
    while (at < end) {
        off_t in = at, out = at;
        ssize_t n = copy_file_range(from, &in, to, &out, (size_t)(end - at), 0);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EXDEV || errno == ENOSYS || errno == EINVAL || errno == EOPNOTSUPP)) return copy_by_hand(from, to, at, end);
        if (n <= 0) return n < 0 ? errno : EIO;
        at += n;
    }
    return 0;
}

/* Holes stay holes: an index that was made in full size is mostly one. */
static int copy_content(int from, int to, const struct stat *st) {
    if (st->st_size == 0 || ioctl(to, FICLONE, from) == 0) return 0;
    if ((off_t)st->st_blocks * 512 >= st->st_size) return copy_range(from, to, 0, st->st_size);
    for (off_t at = 0; at < st->st_size;) {
        off_t data = lseek(from, at, SEEK_DATA), hole = data < 0 ? -1 : lseek(from, data, SEEK_HOLE);
        if (data < 0 && errno == ENXIO) break;
        int err = hole < 0 ? copy_range(from, to, at, st->st_size) : copy_range(from, to, data, hole);
        if (err != 0) return err;
        at = hole < 0 ? st->st_size : hole;
    }
    return ftruncate(to, st->st_size) == 0 ? 0 : errno;
}

static int copy_file(struct kb_copy *c, int from_dir, int to_dir, const char *name) {
    struct stat st;
    int from = openat(from_dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW), to = -1, err = from < 0 || fstat(from, &st) != 0 ? errno : 0;
    if (err == 0) to = openat(to_dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, st.st_mode & 0777);
    if (err == 0 && to < 0) err = errno;
    if (err == 0) err = copy_content(from, to, &st);
    struct timespec times[2] = {st.st_atim, st.st_mtim};
    if (err == 0 && futimens(to, times) != 0) err = errno;
    if (to >= 0 && close(to) != 0 && err == 0) err = errno;
    if (from >= 0) close(from);
    if (err == 0) c->bytes += st.st_size;
    return err;
}

/* ---- Folders ---- */

static int copy_folder(struct kb_copy *c, int from, int to, int depth);

static int copy_below(struct kb_copy *c, int from_dir, int to_dir, const char *name, int depth) {
    if (depth >= DEPTH_MAX) return ELOOP;
    if (mkdirat(to_dir, name, 0755) != 0) return errno;
    int from = openat(from_dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC), to = openat(to_dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int err = from < 0 || to < 0 ? errno : copy_folder(c, from, to, depth + 1);
    if (from >= 0) close(from);
    if (to >= 0) close(to);
    return err;
}

static int copy_entry(struct kb_copy *c, int from, int to, const char *name, int depth) {
    struct stat st;
    if (fstatat(from, name, &st, depth == 0 ? 0 : AT_SYMLINK_NOFOLLOW) != 0) return errno; /* a node's folder may be a link to another disk's */
    if (S_ISDIR(st.st_mode)) return copy_below(c, from, to, name, depth);
    return S_ISREG(st.st_mode) ? copy_file(c, from, to, name) : 0;
}

static int copy_folder(struct kb_copy *c, int from, int to, int depth) {
    int fd = fcntl(from, F_DUPFD_CLOEXEC, 0), err = 0;
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        err = errno;
        if (fd >= 0) close(fd);
        return err;
    }
    for (struct dirent *e; err == 0 && (errno = 0, e = readdir(dir));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 || (c->wants && !c->wants(c->ctx, depth, e->d_name))) continue;
        err = copy_entry(c, from, to, e->d_name, depth);
        if (err == 0) continue;
        char rest[sizeof(c->failed)];
        snprintf(rest, sizeof(rest), "%s", c->failed);
        snprintf(c->failed, sizeof(c->failed), "%.100s%s%.190s", e->d_name, rest[0] ? "/" : "", rest);
    }
    if (err == 0) err = errno; /* readdir's */
    closedir(dir);
    return err;
}

int kb_copy_tree(struct kb_copy *c, int from, int to) {
    c->failed[0] = 0;
    return copy_folder(c, from, to, 0);
}

/* ---- Durable ---- */

enum pass { START, WAIT }; /* all begin to be written before one is waited for: one commit of the journal for most of them */

static int sync_folder(int folder, enum pass pass, int depth) {
    int fd = fcntl(folder, F_DUPFD_CLOEXEC, 0), err = 0;
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        err = errno;
        if (fd >= 0) close(fd);
        return err;
    }
    rewinddir(dir);
    for (struct dirent *e; err == 0 && (errno = 0, e = readdir(dir));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        struct stat st;
        int file = openat(folder, e->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        if (file < 0 || fstat(file, &st) != 0)
            err = errno;
        else if (S_ISDIR(st.st_mode))
            err = depth >= DEPTH_MAX ? ELOOP : sync_folder(file, pass, depth + 1);
        else if (pass == WAIT)
            err = fsync(file) == 0 ? 0 : errno;
        else
            (void)!sync_file_range(file, 0, 0, SYNC_FILE_RANGE_WRITE);
        if (file >= 0) close(file);
        errno = 0;
    }
    if (err == 0) err = errno;
    closedir(dir);
    if (err == 0 && pass == WAIT && fsync(folder) != 0) err = errno;
    return err;
}

int kb_sync_tree(int dir) {
    int err = sync_folder(dir, START, 0);
    return err != 0 ? err : sync_folder(dir, WAIT, 0);
}
