/* event.h - everything that crosses between the broker's core and its shell (libuv, or the simulator): time, disk, connections.
 *
 * An event is a call from the shell into the core (node.h); it never re-enters. An action is a request that the core has queued here;
 * the shell takes the queues after every event and carries them out. Disk requests come back through kb_node_disk_done, replies
 * through kb_reply_free. Each log has three marks over its bytes: queued, written, synced.
 *
 * Called by log/, replica/, quorum/, api/ (to queue) and by shell_net, shell_disk, tests/sim (to take and complete).
 */
#ifndef KB_EVENT_H
#define KB_EVENT_H

#include "base/base.h"
#include "base/blk.h"

/* Every event brings both clocks: mono for all waits and deadlines, wall only for timestamps in records and files. */
struct kb_now {
    int64_t mono_us;
    int64_t wall_ms;
};

/* ---- Disk ---- */

struct kb_file { /* owned by the core, reference-counted (single-threaded): the log, requests and replies in flight each hold one */
    uint32_t refs;
    void *shell; /* the shell's handle, set by a successful open, dropped by close */
    struct kb_disk *disk;
    bool poisoned; /* EIO or a failed fsync: no operation on it is tried again */
};

struct kb_iov { /* laid out as struct iovec */
    const uint8_t *p;
    size_t len;
};

enum kb_disk_op {
    KB_DISK_OPEN,     /* path, flags -> file->shell, result = size. The name is durable only after SYNC_DIR of its folder */
    KB_DISK_CLOSE,    /* file; after all operations in flight on it */
    KB_DISK_APPEND,   /* file, offset, iov -> result = end. FIFO a file. Short writes are the shell's to finish */
    KB_DISK_READ,     /* file, offset, buf, length <= 1 MB -> result = bytes read (short only at the end of the file). Never issued across a
                         queued truncate */
    KB_DISK_SYNC,     /* file; covers the appends queued before it. One outstanding a file */
    KB_DISK_TRUNCATE, /* file, length; a FIFO barrier among the file's operations */
    KB_DISK_WRITE_ATOMIC, /* path, iov: temporary, fsync (when flags has SYNC), rename, fsync of the folder: old or new after any crash */
    KB_DISK_READ_FILE,    /* path -> data (kw_malloc, the owner frees), result = length; at most `length` bytes (else EFBIG) */
    KB_DISK_RENAME,       /* path -> path2, with directory sync of both folders when flags has SYNC */
    KB_DISK_UNLINK,       /* path: a file, or with RECURSIVE a folder and what is in it; missing is success */
    KB_DISK_MKDIR,        /* path: one level; existing is success */
    KB_DISK_SYNC_DIR,     /* path */
    KB_DISK_LIST,         /* path -> names (sorted, '\0'-separated in data, result = count) */
    KB_DISK_SPACE,        /* path -> result = free bytes, offset = size of the file system */
    KB_DISK_JOB,          /* job(job_arg, fs): on the job lane, with a synchronous file interface */
};
enum { KB_DISK_CREATE = 1, KB_DISK_SYNC_FLAG = 2, KB_DISK_RECURSIVE = 4, KB_DISK_EXCLUSIVE = 8 };
enum kb_lane { KB_LANE_LOG, KB_LANE_READ, KB_LANE_ATOMIC, KB_LANE_JOB, KB_LANE_CLEAN /* long jobs that nobody waits for */, KB_LANE_COUNT };

/* The kinds of failure that the core tells apart; the shell maps errno to these and keeps errno for the log line. */
enum kb_disk_err {
    KB_DISK_OK = 0,
    KB_DISK_ENOENT,
    KB_DISK_ENOSPC,
    KB_DISK_EIO,
    KB_DISK_EFBIG,
    KB_DISK_ENOMEM, /* or no descriptor is left: nothing was tried, and it may be tried again */
    KB_DISK_EEXIST,
    KB_DISK_EOTHER
};
const char *kb_disk_text(enum kb_disk_err err); /* as a person reads it; static */
const char *kb_os_text(int os_errno);           /* the system's own words for an errno that a request brought back; the core's thread only */

struct kb_fs;
struct kb_disk_req {
    struct kw_list link;
    enum kb_disk_op op;
    enum kb_lane lane;
    uint32_t flags;
    struct kb_file *file;
    const char *path, *path2; /* live until done; absolute, or relative to the working directory as configured */
    int64_t offset, length;
    struct kb_iov *iov;
    size_t iov_count;
    uint8_t *buf;
    void (*job)(void *arg, struct kb_fs *fs);
    void *job_arg;
    /* out */
    enum kb_disk_err err;
    int os_errno;
    int64_t result;
    uint8_t *data;
    /* owner */
    void (*done)(struct kb_disk_req *req, struct kb_now now); /* called by the core's turn, never from within kb_disk_submit */
    void *ctx;
    void *shell; /* the shell's own use while it has the request */
};

struct kb_disk { /* the queue of requests not yet taken by the shell */
    struct kw_list queue;
    size_t queued_append_bytes,
        queued_append_bytes_max; /* appends not yet written, all files: over the bound the node stops reading producers */
    size_t outstanding;
};
void kb_disk_init(struct kb_disk *d);
/* The request stays the caller's memory until done is called, and holds a reference to its file until after. Clears the out fields; of an
 * APPEND, length becomes the sum of iov. */
void kb_disk_submit(struct kb_disk *d, struct kb_disk_req *r);
struct kb_disk_req *kb_disk_take(struct kb_disk *d); /* shell: next request, NULL when none */
void kb_disk_complete(struct kb_disk *d, struct kb_disk_req *r,
                      struct kb_now now); /* node: after the shell gave it back, with the out fields set */
struct kb_file *kb_file_new(struct kb_disk *d);
struct kb_file *kb_file_ref(struct kb_file *f);
void kb_file_unref(struct kb_file *f); /* the last one queues CLOSE when the file is open */

/* The synchronous file interface of jobs. The real shell gives system calls on a lane's thread; the simulator its disk. */
struct kb_fs_ops {
    enum kb_disk_err (*open)(struct kb_fs *fs, const char *path, uint32_t flags, void **file, int64_t *size);
    void (*close)(struct kb_fs *fs, void *file);
    enum kb_disk_err (*read)(struct kb_fs *fs, void *file, int64_t offset, void *buf, size_t n, size_t *got);
    enum kb_disk_err (*write)(struct kb_fs *fs, void *file, int64_t offset, const void *buf, size_t n);
    enum kb_disk_err (*truncate)(struct kb_fs *fs, void *file, int64_t length);
    enum kb_disk_err (*sync)(struct kb_fs *fs, void *file);
    enum kb_disk_err (*rename)(struct kb_fs *fs, const char *from, const char *to);
    enum kb_disk_err (*unlink)(struct kb_fs *fs, const char *path);
    enum kb_disk_err (*sync_dir)(struct kb_fs *fs, const char *path);
    enum kb_disk_err (*mkdir)(struct kb_fs *fs, const char *path);
    enum kb_disk_err (*list)(struct kb_fs *fs, const char *path, uint8_t **names, int64_t *count); /* as KB_DISK_LIST */
    enum kb_disk_err (*mtime)(struct kb_fs *fs, const char *path, int64_t *wall_ms);
    void (*start_sync)(struct kb_fs *fs, void *file); /* a sync will follow: what is written may go out now. NULL: not offered */
};
struct kb_fs {
    const struct kb_fs_ops *ops;
    void *ctx;
};

/* ---- Replies: what a connection is to send, memory and file slices in order ---- */

struct kb_part {
    const uint8_t *p; /* memory; NULL: `len` bytes of file at offset */
    size_t len;
    struct kb_file *file; /* one reference, below the written mark: the bytes cannot change while pinned */
    int64_t offset;
    struct kw_blk *blk; /* one reference when p points into a block */
};
struct kb_reply {
    struct kw_list link;
    uint8_t *head; /* kw_malloc, the encoded frame that memory parts may point into */
    size_t total, part_count;
    struct kb_part parts[];
};
struct kb_reply *kb_reply_new(size_t part_count_max); /* NULL: out of memory */
void kb_reply_free(struct kb_reply *r);               /* drops every reference */

/* ---- Frames: the core shows each to whoever records them (kbroker run --record) ---- */
struct kb_recorded {
    bool response;
    int64_t connection; /* of this node, from 1 */
    const char *peer;
    int16_t api_key, version;
    int32_t correlation_id;
    struct kw_str client_id;
    int64_t took_us; /* of a response: since its request was whole */
    const struct kb_part *parts; /* the frame; the first `skip` bytes (its length) are no part of it */
    size_t part_count, skip, size;
};
struct kb_recorder { /* fn NULL: nobody. Called as a request has come and as a response goes to the shell; what it is shown is good for the call */
    void (*fn)(void *ctx, const struct kb_recorded *r);
    void *ctx;
};

/* ---- Log lines: the core says, the shell prints ---- */
enum kb_level { KB_DEBUG, KB_INFO, KB_WARN, KB_ERROR };
struct kb_logger {
    void (*fn)(void *ctx, enum kb_level level, const char *text);
    void *ctx;
    enum kb_level level;
};
void kb_say(const struct kb_logger *l, enum kb_level level, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
