/* shell_record.c - kbroker run --record FILE: appends each frame that the core shows to a file (recording.h), whole entries by one write each, so that the
 * nodes of a cluster may share one.
 *
 * What lies in memory is written from there; what an answer would send from a file (sendfile) is read into a buffer first, so that the recording does not
 * need the data folder: at most KB_RECORDING_STORED_MAX bytes a frame. What cannot be written is said, once, counted, and tried again with the next frame:
 * the broker serves on. Called by main.c and the core. Calls recording.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "recording.h"
#include "shell_parts.h"

enum { KEEP = 256 << 10 /* of the buffer, between frames */ };

struct kb_shell_record {
    const struct kb_logger *logger;
    char *path;
    int fd;
    int32_t node;
    uint8_t *buf;
    size_t cap;
    int64_t lost; /* frames, since the last that was written; 0: all is well */
};

static void failed(struct kb_shell_record *r, const char *why) {
    if (r->lost++ == 0)
        kb_say(r->logger, KB_WARN, "--record %s: a frame could not be recorded (%s); the broker goes on, and frames are missing from the recording", r->path,
               why);
}

static void went_well(struct kb_shell_record *r) {
    if (r->lost > 0) kb_say(r->logger, KB_WARN, "--record %s: goes on; %lld frames are missing", r->path, (long long)r->lost);
    r->lost = 0;
}

/* ---- The bytes ---- */

/* Bytes [from, from + n) of a part. */
static bool copy(const struct kb_part *p, size_t from, size_t n, uint8_t *to) {
    if (p->p) {
        memcpy(to, p->p + from, n);
        return true;
    }
    return pread(kb_shell_fd(p->file), to, n, (off_t)p->offset + (off_t)from) == (ssize_t)n;
}

/* The pieces' bytes, one behind the other, into the buffer. */
static bool collect(struct kb_shell_record *r, const struct kb_recorded *f, const struct kb_recording_entry *e) {
    size_t at = 0, part = 0, begin = 0, skip = f->skip; /* of the part: where it begins in the frame, and what of it is none of it */
    for (size_t i = 0; i < e->piece_count; i++) {
        for (size_t pos = e->pieces[i].at, left = e->pieces[i].len; left > 0;) {
            size_t off = KW_MIN(skip, f->parts[part].len), len = f->parts[part].len - off;
            if (pos >= begin + len) {
                begin += len;
                skip -= off;
                part++;
                continue;
            }
            size_t n = KW_MIN(left, begin + len - pos);
            if (!copy(&f->parts[part], off + pos - begin, n, r->buf + at)) return false;
            at += n;
            pos += n;
            left -= n;
        }
    }
    return true;
}

static bool make_room(struct kb_shell_record *r, size_t n) {
    if (n <= r->cap) return true;
    uint8_t *p = realloc(r->buf, n);
    if (!p) return false;
    r->buf = p;
    r->cap = n;
    return true;
}

static void give_back(struct kb_shell_record *r) {
    if (r->cap <= KEEP) return;
    free(r->buf);
    r->buf = NULL;
    r->cap = 0;
}

/* ---- Frames ---- */

static int64_t wall_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000 + kb_shell_clock_ahead_ms() * 1000;
}

static void write_entry(struct kb_shell_record *r, const struct kb_recording_entry *e, struct kb_iov data) {
    uint8_t head[KB_RECORDING_HEAD_MAX];
    size_t n = kb_recording_head(e, &data, 1, head);
    struct iovec iov[] = {{head, n}, {(void *)(uintptr_t)data.p, data.len}};
    ssize_t done;
    do done = writev(r->fd, iov, 2);
    while (done < 0 && errno == EINTR);
    if (done == (ssize_t)(n + data.len))
        went_well(r);
    else
        failed(r, done < 0 ? strerror(errno) : "only a part of it was written: is the disk full?");
}

static void frame(void *ctx, const struct kb_recorded *f) {
    struct kb_shell_record *r = ctx;
    struct kb_recording_entry e = {.response = f->response,
                                   .node = r->node,
                                   .connection = f->connection,
                                   .at_us = wall_us(),
                                   .took_us = f->took_us,
                                   .api_key = f->api_key,
                                   .version = f->version,
                                   .correlation_id = f->correlation_id,
                                   .frame_size = (uint32_t)f->size,
                                   .peer = kw_str_of(f->peer),
                                   .client_id = f->client_id};
    kb_recording_choose(f, &e);
    const struct kb_part *only = f->part_count == 1 && f->parts[0].p && e.piece_count == 1 ? &f->parts[0] : NULL;
    if (e.data_size == 0) {
        write_entry(r, &e, (struct kb_iov){(const uint8_t *)"", 0});
    } else if (only) {
        write_entry(r, &e, (struct kb_iov){only->p + f->skip + e.pieces[0].at, e.data_size});
    } else if (!make_room(r, e.data_size)) {
        failed(r, "no memory for one of its size");
    } else if (!collect(r, f, &e)) {
        failed(r, "a file that it comes from cannot be read");
    } else {
        write_entry(r, &e, (struct kb_iov){r->buf, e.data_size});
        give_back(r);
    }
}

/* ---- Life ---- */

/* Something else is not to be appended to. */
static bool is_recording(int fd, const struct stat *st) {
    uint8_t b[4];
    return st->st_size == 0 || (pread(fd, b, 4, 0) == 4 && kw_load32(b) == KB_RECORDING_MAGIC);
}

struct kb_recorder kb_shell_record_new(const char *path, int32_t node, const struct kb_logger *logger, struct kb_shell_record **out) {
    static const char dropped[] = "the broker runs without a recording";
    struct kb_shell_record *r = calloc(1, sizeof(*r));
    struct stat st;
    int fd = r ? open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0600) : -1; /* what clients send is the user's alone */
    if (fd < 0) {
        kb_say(logger, KB_ERROR, "--record %s: cannot be opened (%s); %s", path, strerror(r ? errno : ENOMEM), dropped);
    } else if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        kb_say(logger, KB_ERROR, "--record %s: is no file; %s", path, dropped);
    } else if (!is_recording(fd, &st)) {
        kb_say(logger, KB_ERROR, "--record %s: there is a file that is no recording, and it is left alone; %s: name another", path, dropped);
    } else if (!(r->path = strdup(path))) {
        kb_say(logger, KB_ERROR, "--record %s: out of memory; %s", path, dropped);
    } else {
        r->fd = fd;
        r->node = node;
        r->logger = logger;
        *out = r;
        return (struct kb_recorder){frame, r};
    }
    if (fd >= 0) close(fd);
    free(r);
    *out = NULL;
    return (struct kb_recorder){0};
}

void kb_shell_record_free(struct kb_shell_record *r) {
    if (!r) return;
    close(r->fd);
    free(r->buf);
    free(r->path);
    free(r);
}
