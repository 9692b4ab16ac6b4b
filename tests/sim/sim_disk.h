/* sim_disk.h - a disk in memory for the simulator and the log's tests: carries out struct kb_disk's requests and the jobs' struct kb_fs over a
 * file tree that knows, for every byte and every name, what would survive a kill -9 and what a power loss.
 *
 * Use: after every event of the core, sim_disk_take; then, in virtual time, sim_disk_pop until NULL, each request back to the core
 * (kb_disk_complete or kb_node_disk_done); sim_disk_next says when the next one is due. Everything is drawn from one seed.
 *
 * Order: a file's APPEND, SYNC, OPEN, CLOSE run first in, first out; READ in any order, but never across a TRUNCATE; everything else in any order.
 * Content: a file has what was written (page cache) and what is synced; a power loss keeps, sector (512 bytes) by sector, one or the other,
 * and likewise the size. Now and then the "kernel" writes a sector back by itself. Names: a create, rename or unlink is durable once its folder
 * was synced; before, a power loss keeps any subset of them. A WRITE_ATOMIC is one or the other.
 */
#ifndef SIM_DISK_H
#define SIM_DISK_H

#include "base/rng.h"
#include "event.h"

struct sim_disk_options {
    int64_t delay_min_us, delay_max_us; /* of a request that is not inline */
    uint32_t inline_ppm;                /* chance, per million, that a request is done at once */
    uint32_t writeback_ppm;             /* chance at each write that some unsynced sectors reach the disk by themselves */
    int64_t sync_max_us;                /* a sync takes up to so much more */
};

enum sim_disk_fault {
    SIM_DISK_ENOSPC, SIM_DISK_EIO_READ, SIM_DISK_EIO_WRITE, SIM_DISK_EIO_SYNC, SIM_DISK_SHORT_WRITE, SIM_DISK_SLOW, SIM_DISK_ROT, SIM_DISK_MISDIRECTED,
    SIM_DISK_KILL, SIM_DISK_TORN_WRITE, SIM_DISK_POWER_LOSS, SIM_DISK_LOST_SECTOR, SIM_DISK_LOST_NAME, SIM_DISK_LOST_SIZE, SIM_DISK_JOB_CUT,
    SIM_DISK_BAD_SECTOR,
    SIM_DISK_FAULT_COUNT
};
const char *sim_disk_fault_name(enum sim_disk_fault f);

struct sim_disk_faults { /* change at any time; zeroed by sim_disk_new but for the -1s */
    int64_t enospc_at;      /* the n-th call from now that needs space fails (0: the next); -1: off */
    int64_t free_bytes;     /* below this nothing fits; -1: endless */
    int64_t eio_read_at, eio_write_at, eio_sync_at; /* countdowns; -1: off */
    int64_t misdirect_at;   /* countdown: that write lands elsewhere in its file; -1: off */
    bool sync_sticks;       /* after a sync that failed, those that follow succeed without effect, until the next restart */
    const char *spare;      /* not in files whose path has this; NULL: in any */
    void (*misdirects)(void *ctx, const char *path); /* is told of the file, just before; may be NULL */
    void *misdirects_ctx;
    uint32_t eio_read_ppm, eio_write_ppm, eio_sync_ppm, enospc_ppm;
    uint32_t slow_ppm;      /* a request takes slow_us more */
    int64_t slow_us;
    int64_t hung_until_us;  /* nothing completes before */
    bool no_mtimes;         /* asking when a file was written fails */
};

struct sim_disk;
struct sim_disk *sim_disk_new(uint64_t seed, const struct sim_disk_options *o); /* o may be NULL: everything later, 20 to 2000 us */
void sim_disk_free(struct sim_disk *d); /* no request may be left */
struct sim_disk_faults *sim_disk_faults(struct sim_disk *d);
uint64_t sim_disk_fired(const struct sim_disk *d, enum sim_disk_fault f);
uint64_t sim_disk_ops(const struct sim_disk *d); /* requests and job calls carried out */

/* The shell's side. */
void sim_disk_take(struct sim_disk *d, struct kb_disk *q, struct kb_now now);
int64_t sim_disk_next(const struct sim_disk *d); /* KW_NEVER (INT64_MAX) when nothing is under way */
struct kb_disk_req *sim_disk_pop(struct sim_disk *d, struct kb_now now);
/* What a connection would send of a file slice: bytes read. */
size_t sim_disk_pread(struct sim_disk *d, const struct kb_file *f, int64_t offset, void *buf, size_t n);

/* Crashes. Whatever is under way takes effect in part or not at all; then every request, old or new, comes back as KB_DISK_EIO without effect, until
 * sim_disk_restart: take and pop until nothing is left, free the core, restart. */
void sim_disk_kill9(struct sim_disk *d, struct kb_now now);
void sim_disk_power_loss(struct sim_disk *d, struct kb_now now);
void sim_disk_restart(struct sim_disk *d);
/* The next job is cut off after n of its calls have had their effect; the rest fail. -1: off. */
void sim_disk_cut_job(struct sim_disk *d, int64_t n);

/* A look from outside, and tampering: both what is written and what is synced change. */
const uint8_t *sim_disk_peek(struct sim_disk *d, const char *path, size_t *n); /* NULL: no such file; valid until the next change */
void sim_disk_poke(struct sim_disk *d, const char *path, const void *p, size_t n); /* the whole content; makes file and folders */
void sim_disk_rot(struct sim_disk *d, const char *path, size_t offset, uint8_t mask);
void sim_disk_patch(struct sim_disk *d, const char *path, size_t offset, const uint8_t *p, size_t n);
/* A write of n bytes turns out to have gone to another place in its file: zeros are where it should be, and what it fell upon is gone. */
void sim_disk_misdirect(struct sim_disk *d, const char *path, size_t from, size_t n, size_t to);
/* A byte that cannot be read any more, nor what is read with it, until it is written anew; and the end of all such. */
void sim_disk_bad_sector(struct sim_disk *d, const char *path, size_t offset);
void sim_disk_remap(struct sim_disk *d);
void sim_disk_cut(struct sim_disk *d, const char *path, size_t size);
void sim_disk_remove(struct sim_disk *d, const char *path); /* a file, or a folder with all in it */
size_t sim_disk_names(struct sim_disk *d, const char *dir, char ***names); /* sorted; free each and the array */
/* An image of what is written at the moment; the disk goes back to it between a restart and the next request, when nothing is open. */
struct sim_disk_image;
struct sim_disk_image *sim_disk_image_take(struct sim_disk *d);
void sim_disk_image_restore(struct sim_disk *d, struct sim_disk_image *i); /* and frees it */
void sim_disk_image_free(struct sim_disk_image *i);
void sim_disk_sync_all(struct sim_disk *d);
uint64_t sim_disk_hash(struct sim_disk *d); /* of all names and contents */
struct kb_fs *sim_disk_fs(struct sim_disk *d);

#endif
