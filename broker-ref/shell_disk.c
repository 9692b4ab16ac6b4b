/* shell_disk.c - the core's disk requests as system calls: by the loop itself where that will not block, else on lanes (threads) of this
 * shell.
 *
 * Called by main (kb_shell_turn). A log's operations are FIFO: one may start while others of its file are under way only on the same lane,
 * which is one thread. Syncs have a thread of their own, so that an fsync holds up no other file's appends. Completions come back in a
 * later turn, never from within the submission. specs: "Lanes", "When to leave the loop".
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "shell_disk_priv.h"

enum {
    LANE_SYNC = KB_LANE_COUNT,
    LANES,
    INLINE_WRITE_MAX = 64 << 10,
    SLOW_WRITE_US = 1000,       /* an inline write that took longer sends the appends to the lane … */
    BACK_OFF_US = 100000,       /* … for so long, doubling … */
    BACK_OFF_MAX_US = 10000000, /* … up to here */
    LANE_STACK = 512 << 10,
    CLEAN_NICE = 10, /* nobody waits for it */
};

struct handle {
    int fd;
    int lane;               /* of what is under way */
    size_t busy;            /* operations under way */
    struct kw_list pending; /* requests that wait for them */
};
struct lane {
    struct kb_shell_disk *d;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct kw_list queue;
    bool started, stop;
};
struct kb_shell_disk {
    struct kb_shell *s;
    struct lane lanes[LANES];
    uv_async_t wake;
    pthread_mutex_t lock;
    struct kw_list done;    /* by lanes */
    struct kw_list own;     /* by the loop: brought in the next turn */
    struct kw_list appends; /* taken this turn */
    bool ephemeral, closing;
    size_t inline_max;
    int64_t lane_until_us, back_off_us;
};

static struct kb_disk_req *of(struct kw_list *l) {
    return KW_CONTAINER_OF(l, struct kb_disk_req, link);
}
static bool is_file_op(const struct kb_disk_req *r) {
    return r->op == KB_DISK_APPEND || r->op == KB_DISK_SYNC || r->op == KB_DISK_TRUNCATE;
}
static int lane_of(const struct kb_disk_req *r) {
    return r->op == KB_DISK_SYNC ? LANE_SYNC : r->op == KB_DISK_CLOSE ? KB_LANE_READ : (int)r->lane;
}

/* ---- One request, on whatever thread ---- */

static void write_all(struct kb_disk_req *r, int fd) {
    size_t i = 0, skip = 0;
    int64_t at = r->offset, end = r->offset + r->length;
    while (at < end) {
        struct iovec iov[64];
        size_t n = 0;
        for (size_t j = i; j < r->iov_count && n < KW_COUNTOF(iov); j++, n++) {
            size_t from = j == i ? skip : 0;
            iov[n] = (struct iovec){(void *)(uintptr_t)(r->iov[j].p + from), r->iov[j].len - from};
        }
        ssize_t got = n == 1 ? pwrite(fd, iov[0].iov_base, iov[0].iov_len, at) : pwritev(fd, iov, (int)n, at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) {
            kb_disk_fail(r, got < 0 ? errno : ENOSPC);
            return;
        }
        at += got;
        for (skip += (size_t)got; i < r->iov_count && skip >= r->iov[i].len; i++) skip -= r->iov[i].len;
    }
    r->result = end;
}

static void read_some(struct kb_disk_req *r, int fd) {
    while (r->result < r->length) { /* the loop may have read a part */
        ssize_t got = pread(fd, r->buf + r->result, (size_t)(r->length - r->result), r->offset + r->result);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) kb_disk_fail(r, errno);
        if (got <= 0) return;
        r->result += got;
    }
}

static void run_open(struct kb_disk_req *r) {
    int flags = O_RDWR | O_CLOEXEC | (r->flags & KB_DISK_CREATE ? O_CREAT : 0) | (r->flags & KB_DISK_EXCLUSIVE ? O_EXCL : 0);
    struct handle *h = calloc(1, sizeof(*h));
    if (!h) {
        kb_disk_fail(r, ENOMEM);
        return;
    }
    h->fd = open(r->path, flags, 0644);
    off_t size = h->fd >= 0 ? lseek(h->fd, 0, SEEK_END) : -1;
    if (size < 0) {
        kb_disk_fail(r, errno);
        if (h->fd >= 0) close(h->fd);
        free(h);
        return;
    }
    kw_list_init(&h->pending);
    r->result = size;
    r->shell = h; /* the loop gives it to the file */
}

static void run(struct kb_shell_disk *d, struct kb_disk_req *r) {
    struct handle *h = r->file ? r->file->shell : NULL;
    switch (r->op) {
    case KB_DISK_OPEN:
        run_open(r);
        return;
    case KB_DISK_CLOSE:
        close(h->fd);
        return;
    case KB_DISK_APPEND:
        write_all(r, h->fd);
        return;
    case KB_DISK_READ:
        read_some(r, h->fd);
        return;
    case KB_DISK_SYNC:
        if (!d->ephemeral && fdatasync(h->fd) != 0) kb_disk_fail(r, errno);
        return;
    case KB_DISK_TRUNCATE:
        if (ftruncate(h->fd, r->length) != 0) kb_disk_fail(r, errno);
        return;
    case KB_DISK_JOB: {
        struct kb_fs fs = {.ops = &kb_fs_syscalls, .ctx = d->ephemeral ? d : NULL};
        r->job(r->job_arg, &fs);
        return;
    }
    default:
        kb_path_run(r, d->ephemeral);
    }
}

/* ---- Lanes ---- */

static void *lane_main(void *arg) {
    struct lane *l = arg;
    if (l == &l->d->lanes[KB_LANE_CLEAN]) (void)setpriority(PRIO_PROCESS, (id_t)gettid(), CLEAN_NICE); /* of this thread alone */
    pthread_mutex_lock(&l->lock);
    for (;;) {
        struct kw_list *next = kw_list_shift(&l->queue);
        if (!next) {
            if (l->stop) break;
            pthread_cond_wait(&l->more, &l->lock);
            continue;
        }
        pthread_mutex_unlock(&l->lock);
        run(l->d, of(next));
        pthread_mutex_lock(&l->d->lock);
        kw_list_push(&l->d->done, next);
        pthread_mutex_unlock(&l->d->lock);
        uv_async_send(&l->d->wake);
        pthread_mutex_lock(&l->lock);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

static bool start_lane(struct lane *l) {
    if (l->started) return true;
    pthread_attr_t attr;
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old); /* signals are the loop's */
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, LANE_STACK);
    l->started = pthread_create(&l->thread, &attr, lane_main, l) == 0;
    pthread_attr_destroy(&attr);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return l->started;
}

static void run_here(struct kb_shell_disk *d, struct kb_disk_req *r) {
    run(d, r);
    kw_list_push(&d->own, &r->link);
}

static void to_lane(struct kb_shell_disk *d, struct kb_disk_req *r) {
    struct lane *l = &d->lanes[lane_of(r)];
    if (!start_lane(l)) { /* no thread to be had: slowly, then */
        run_here(d, r);
        return;
    }
    pthread_mutex_lock(&l->lock);
    kw_list_push(&l->queue, &r->link);
    pthread_cond_signal(&l->more);
    pthread_mutex_unlock(&l->lock);
}

/* ---- FIFO a file ---- */

static void start_file_op(struct kb_shell_disk *d, struct handle *h, struct kb_disk_req *r, bool here) {
    h->busy++;
    h->lane = lane_of(r);
    if (here)
        run_here(d, r);
    else
        to_lane(d, r);
}

static void submit_file_op(struct kb_shell_disk *d, struct kb_disk_req *r, bool here) {
    struct handle *h = r->file->shell;
    bool free_way = kw_list_empty(&h->pending) && (h->busy == 0 || h->lane == lane_of(r));
    if (free_way)
        start_file_op(d, h, r, here && h->busy == 0);
    else
        kw_list_push(&h->pending, &r->link);
}

static void file_op_done(struct kb_shell_disk *d, struct handle *h) {
    if (--h->busy > 0) return;
    while (!kw_list_empty(&h->pending) && (h->busy == 0 || h->lane == lane_of(of(h->pending.next))))
        start_file_op(d, h, of(kw_list_shift(&h->pending)), false);
}

/* ---- The loop's own work ---- */

static int64_t mono_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void write_here(struct kb_shell_disk *d, struct kb_disk_req *r) {
    int64_t before = mono_us();
    submit_file_op(d, r, true);
    int64_t took = mono_us() - before;
    if (took <= SLOW_WRITE_US) {
        if (d->back_off_us > BACK_OFF_US && before > d->lane_until_us + BACK_OFF_MAX_US) d->back_off_us = BACK_OFF_US;
        return;
    }
    d->lane_until_us = before + took + d->back_off_us;
    d->back_off_us = KW_MIN(2 * d->back_off_us, BACK_OFF_MAX_US);
}

static void submit_appends(struct kb_shell_disk *d) {
    size_t total = 0;
    for (struct kw_list *l = d->appends.next; l != &d->appends; l = l->next) total += (size_t)of(l)->length;
    bool here = total <= d->inline_max && d->s->now.mono_us >= d->lane_until_us;
    struct kw_list *l;
    while ((l = kw_list_shift(&d->appends))) {
        if (here)
            write_here(d, of(l));
        else
            submit_file_op(d, of(l), false);
    }
}

static void submit_read(struct kb_shell_disk *d, struct kb_disk_req *r) {
    struct handle *h = r->file->shell;
    struct iovec iov = {r->buf, (size_t)r->length};
    ssize_t got = preadv2(h->fd, &iov, 1, r->offset, RWF_NOWAIT); /* what the page cache has */
    if (got > 0) r->result = got;
    if (got == r->length)
        kw_list_push(&d->own, &r->link);
    else
        to_lane(d, r); /* the rest; or the end of the file */
}

static void submit(struct kb_shell_disk *d, struct kb_disk_req *r) {
    if (r->op == KB_DISK_APPEND)
        kw_list_push(&d->appends, &r->link);
    else if (is_file_op(r)) {
        submit_appends(d); /* those of the same file came before: a sync covers them, a truncate cuts them */
        submit_file_op(d, r, r->op == KB_DISK_SYNC && d->ephemeral);
    } else if (r->op == KB_DISK_READ)
        submit_read(d, r);
    else
        to_lane(d, r);
}

static void bring(struct kb_shell_disk *d, struct kb_disk_req *r) {
    struct handle *h = r->file ? r->file->shell : NULL;
    if (r->op == KB_DISK_OPEN && r->err == KB_DISK_OK) {
        r->file->shell = r->shell;
    } else if (r->op == KB_DISK_CLOSE) {
        r->file->shell = NULL;
        free(h);
    } else if (is_file_op(r)) {
        file_op_done(d, h);
    }
    kb_node_disk_done(d->s->node, r, d->s->now);
}

bool kb_shell_disk_bring(struct kb_shell_disk *d) {
    struct kw_list back;
    kw_list_init(&back);
    pthread_mutex_lock(&d->lock);
    for (struct kw_list *l; (l = kw_list_shift(&d->done));) kw_list_push(&back, l);
    pthread_mutex_unlock(&d->lock);
    for (struct kw_list *l; (l = kw_list_shift(&d->own));) kw_list_push(&back, l);
    bool any = !kw_list_empty(&back);
    for (struct kw_list *l; (l = kw_list_shift(&back));) bring(d, of(l));
    return any;
}

bool kb_shell_disk_run(struct kb_shell_disk *d) {
    bool any = false;
    for (struct kb_disk_req *r; (r = kb_disk_take(kb_node_disk(d->s->node)));) {
        any = true;
        submit(d, r);
    }
    submit_appends(d);
    return any || !kw_list_empty(&d->own);
}

/* ---- Life ---- */

static void woken(uv_async_t *a) {
    kb_shell_turn(((struct kb_shell_disk *)a->data)->s);
}

int kb_shell_disk_new(struct kb_shell *s, const struct kb_shell_disk_options *o, struct kb_shell_disk **out) {
    struct kb_shell_disk *d = calloc(1, sizeof(*d));
    if (!d) return ENOMEM;
    d->s = s;
    d->ephemeral = o->ephemeral;
    d->inline_max = o->inline_write_max >= 0 ? (size_t)o->inline_write_max : INLINE_WRITE_MAX;
    d->back_off_us = BACK_OFF_US;
    kw_list_init(&d->done);
    kw_list_init(&d->own);
    kw_list_init(&d->appends);
    pthread_mutex_init(&d->lock, NULL);
    for (size_t i = 0; i < LANES; i++) {
        d->lanes[i].d = d;
        pthread_mutex_init(&d->lanes[i].lock, NULL);
        pthread_cond_init(&d->lanes[i].more, NULL);
        kw_list_init(&d->lanes[i].queue);
    }
    int err = uv_async_init(s->loop, &d->wake, woken);
    if (err != 0) {
        free(d);
        return -err;
    }
    d->wake.data = d;
    *out = d;
    return 0;
}

static void freed(uv_handle_t *h) {
    free(h->data);
}

void kb_shell_disk_free(struct kb_shell_disk *d) {
    if (!d) return;
    for (size_t i = 0; i < LANES; i++) {
        struct lane *l = &d->lanes[i];
        if (l->started) {
            pthread_mutex_lock(&l->lock);
            l->stop = true;
            pthread_cond_signal(&l->more);
            pthread_mutex_unlock(&l->lock);
            pthread_join(l->thread, NULL);
        }
        pthread_mutex_destroy(&l->lock);
        pthread_cond_destroy(&l->more);
    }
    pthread_mutex_destroy(&d->lock);
    uv_close((uv_handle_t *)&d->wake, freed);
}
