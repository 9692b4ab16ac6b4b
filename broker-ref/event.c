/* event.c - the disk queue, files, replies and log lines of event.h. Called by the whole core and by its shells; calls base. */
#include "event.h"

#include <stdarg.h>
#include <stdio.h>

const char *kb_os_text(int os_errno) {
    return os_errno ? strerror(os_errno) : "an I/O error";
}

const char *kb_disk_text(enum kb_disk_err err) {
    switch (err) {
    case KB_DISK_ENOENT:
        return "it is not there";
    case KB_DISK_ENOSPC:
        return "the disk is full";
    case KB_DISK_EIO:
        return "the disk failed";
    case KB_DISK_EFBIG:
        return "it is larger than it can be";
    case KB_DISK_ENOMEM:
        return "out of memory or descriptors";
    default:
        return "the system refused (permissions?)";
    }
}

void kb_disk_init(struct kb_disk *d) {
    memset(d, 0, sizeof(*d));
    kw_list_init(&d->queue);
    d->queued_append_bytes_max = 64u << 20;
}

void kb_disk_submit(struct kb_disk *d, struct kb_disk_req *r) {
    r->err = KB_DISK_OK;
    r->os_errno = 0;
    r->result = 0;
    r->data = NULL;
    r->shell = NULL;
    if (r->op == KB_DISK_APPEND) {
        r->length = 0;
        for (size_t i = 0; i < r->iov_count; i++) r->length += (int64_t)r->iov[i].len;
        d->queued_append_bytes += (size_t)r->length;
    }
    if (r->file && r->op != KB_DISK_CLOSE) kb_file_ref(r->file);
    d->outstanding++;
    kw_list_push(&d->queue, &r->link);
}

struct kb_disk_req *kb_disk_take(struct kb_disk *d) {
    struct kw_list *l = kw_list_shift(&d->queue);
    return l ? KW_CONTAINER_OF(l, struct kb_disk_req, link) : NULL;
}

void kb_disk_complete(struct kb_disk *d, struct kb_disk_req *r, struct kb_now now) {
    KW_ASSERT(d->outstanding > 0);
    d->outstanding--;
    if (r->op == KB_DISK_APPEND) {
        KW_ASSERT(d->queued_append_bytes >= (size_t)r->length);
        d->queued_append_bytes -= (size_t)r->length;
    }
    struct kb_file *file = r->op == KB_DISK_CLOSE ? NULL : r->file; /* done may free the request */
    r->done(r, now);
    if (file) kb_file_unref(file);
}

/* The close request lives beside its file, so that closing can never fail for want of memory. */
struct file_box {
    struct kb_file file;
    struct kb_disk_req close;
};

static void close_done(struct kb_disk_req *r, struct kb_now now) {
    (void)now;
    kw_free(KW_CONTAINER_OF(r, struct file_box, close));
}

struct kb_file *kb_file_new(struct kb_disk *d) {
    struct file_box *b = kw_calloc(1, sizeof(*b));
    if (!b) return NULL;
    b->file.refs = 1;
    b->file.disk = d;
    return &b->file;
}

struct kb_file *kb_file_ref(struct kb_file *f) {
    KW_ASSERT(f->refs > 0);
    f->refs++;
    return f;
}

void kb_file_unref(struct kb_file *f) {
    if (!f) return;
    KW_ASSERT(f->refs > 0);
    if (--f->refs > 0) return;
    struct file_box *b = KW_CONTAINER_OF(f, struct file_box, file);
    if (!f->shell) {
        kw_free(b);
        return;
    }
    b->close.op = KB_DISK_CLOSE;
    b->close.lane = KB_LANE_LOG;
    b->close.file = f;
    b->close.done = close_done;
    kb_disk_submit(f->disk, &b->close);
}

struct kb_reply *kb_reply_new(size_t part_count_max) {
    struct kb_reply *r = kw_calloc(1, sizeof(*r) + part_count_max * sizeof(r->parts[0]));
    if (r) kw_list_init(&r->link);
    return r;
}

void kb_reply_free(struct kb_reply *r) {
    if (!r) return;
    for (size_t i = 0; i < r->part_count; i++) {
        kb_file_unref(r->parts[i].file);
        kw_blk_unref(r->parts[i].blk);
    }
    kw_free(r->head);
    kw_free(r);
}

void kb_say(const struct kb_logger *l, enum kb_level level, const char *fmt, ...) {
    if (!l || !l->fn || level < l->level) return;
    char text[640];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (n < 0) return;
    for (char *p = text; *p; p++) /* one line each, whatever a peer put into a name */
        if ((unsigned char)*p < 0x20 || *p == 0x7f) *p = '?';
    l->fn(l->ctx, level, text);
}
