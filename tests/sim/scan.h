/* scan.h - a full scan of a partition's files on the simulated disk: every batch, on demand every record. Called by check_*.c. */
#ifndef SIM_SCAN_H
#define SIM_SCAN_H

#include "broker_host.h"
#include "wire/batch.h"

struct sim_batch {
    struct kw_batch_header h;
    int64_t last;
    size_t segment; /* index into segments */
    size_t position, size;
};
struct sim_segment_file {
    char path[128]; /* without ".log" */
    int64_t base;
};
struct sim_scan {
    struct sim_batch *v;
    size_t count, cap;
    struct sim_segment_file *segments;
    size_t segment_count, segment_cap;
    bool torn;  /* it ends in something that is no whole, sound batch */
};
/* Stops at the first place that is not a whole batch with a good CRC. */
void sim_scan_log(struct sim_disk *d, const char *dir, struct sim_scan *s);
void sim_scan_deinit(struct sim_scan *s);
static inline int64_t sim_scan_end(const struct sim_scan *s) { return s->count ? s->v[s->count - 1].last + 1 : s->segment_count ? s->segments[0].base : 0; }
/* Every record of a batch; false: it does not decode. */
typedef void sim_scan_fn(void *ctx, const struct sim_batch *b, const struct kw_record_view *r);
bool sim_scan_records(struct sim_disk *d, const struct sim_scan *s, const struct sim_batch *b, struct kw_compressor *c, sim_scan_fn *fn, void *ctx);

/* check_files.c: 6, 12, 14 */
struct kb_log;
void sim_check_gaps(struct sim_world *w, const char *dir, const struct sim_scan *s, bool holes); /* holes: batches may have fewer records than offsets */
/* unread: the end of a batch that may count or not, since its node could not read it when it started; 0: none. */
void sim_check_indexes(struct sim_world *w, struct sim_disk *d, const struct sim_scan *s,
                       int64_t unread); /* of a log that is at rest, as it was left by a clean stop */
/* Of a log all of which is written. */
void sim_check_pids(struct sim_world *w, const struct kb_log *log, const struct sim_scan *s, int64_t unread);

#endif
