/* scan.h - walking a segment file on a job lane: one entry after the other through the synchronous file interface, and what a segment's
 * indexes and marks must be for the entries seen. Called by recover, reload and the index job; nothing here knows a log.
 */
#ifndef KB_SCAN_H
#define KB_SCAN_H

#include "../event.h"
#include "entry.h"
#include "index.h"

struct kb_scan {
    struct kb_fs *fs;
    void *file;
    int64_t size;
    uint8_t *buf;
    size_t cap, len;
    int64_t at;              /* of buf */
    bool headers_only;       /* read little around large entries */
    int64_t last_size;       /* of the entry before: guesses how much to read */
};
/* KW_EIO, KW_ENOMEM; *missing when there is no such file. */
kw_err kb_scan_open(struct kb_scan *s, struct kb_fs *fs, const char *path, bool headers_only, bool *missing) KW_CHECK;
void kb_scan_close(struct kb_scan *s);
kw_err kb_scan_bytes(struct kb_scan *s, int64_t pos, size_t need, const uint8_t **p, size_t *n) KW_CHECK; /* n >= need, or to the file's end */
/* The entry at pos: KW_OK; KW_EDECODE: none there, or it runs over the file's end; KW_ECRC (only with crc): its sum is wrong, *e is filled. */
kw_err kb_scan_entry(struct kb_scan *s, int64_t pos, bool crc, struct kb_entry *e) KW_CHECK;

/* What a segment is, told entry by entry; the rules are those of append. */
struct kb_facts {
    int64_t base, end, size;
    int32_t interval;
    int64_t since_index, first_timestamp, max_timestamp, max_timestamp_offset, batch_size_max;
    bool dense, empties; /* empties: there are batches without records */
    struct kb_index offsets, times;
};
void kb_facts_init(struct kb_facts *f, int64_t base, int32_t interval);
void kb_facts_deinit(struct kb_facts *f);
kw_err kb_facts_add(struct kb_facts *f, const struct kb_entry *e, int64_t pos) KW_CHECK;
kw_err kb_facts_seal(struct kb_facts *f) KW_CHECK; /* the last time entry */

/* Whole small files. */
kw_err kb_fs_read_file(struct kb_fs *fs, const char *path, int64_t max, uint8_t **p, size_t *n, bool *missing) KW_CHECK; /* kw_malloc */
kw_err kb_fs_write_atomic(struct kb_fs *fs, const char *dir, const char *path, const void *p, size_t n) KW_CHECK;

/* Rebuilds the indexes of one segment from its bytes below `size`. */
struct kb_index_job {
    char *path;
    int64_t base, size;
    int32_t interval;
    struct kb_index offsets, times; /* out */
    kw_err err;
    int os_errno;
};
void kb_index_job_run(struct kb_index_job *j, struct kb_fs *fs);

#endif
