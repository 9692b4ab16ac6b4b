/* scan.c - the walk over a segment's entries for jobs. Called by recover, reload, segment (index job); calls entry, index, the file interface. */
#include "scan.h"

#include <stdio.h>

#define SCAN_BUF (256 << 10)
#define SCAN_LITTLE (4 << 10)

kw_err kb_scan_open(struct kb_scan *s, struct kb_fs *fs, const char *path, bool headers_only, bool *missing) {
    memset(s, 0, sizeof(*s));
    *missing = false;
    s->fs = fs;
    s->headers_only = headers_only;
    s->buf = kw_malloc(SCAN_BUF);
    if (!s->buf) return KW_ENOMEM;
    s->cap = SCAN_BUF;
    enum kb_disk_err err = fs->ops->open(fs, path, 0, &s->file, &s->size);
    if (!err) return KW_OK;
    kw_free(s->buf);
    memset(s, 0, sizeof(*s));
    *missing = err == KB_DISK_ENOENT;
    return err == KB_DISK_ENOMEM ? KW_ENOMEM : KW_EIO;
}

void kb_scan_close(struct kb_scan *s) {
    if (s->file) s->fs->ops->close(s->fs, s->file);
    kw_free(s->buf);
    memset(s, 0, sizeof(*s));
}

kw_err kb_scan_bytes(struct kb_scan *s, int64_t pos, size_t need, const uint8_t **p, size_t *n) {
    int64_t left = KW_MAX(s->size - pos, 0);
    if ((int64_t)need > left) need = (size_t)left;
    if (need > s->cap) need = s->cap;
    if (pos < s->at || pos + (int64_t)need > s->at + (int64_t)s->len) {
        size_t want = s->headers_only && s->last_size > SCAN_LITTLE ? SCAN_LITTLE : s->cap;
        want = KW_MAX(want, need);
        if ((int64_t)want > left) want = (size_t)left;
        size_t got = 0;
        s->len = 0;
        enum kb_disk_err err = s->fs->ops->read(s->fs, s->file, pos, s->buf, want, &got);
        if (err) return KW_EIO;
        if (got < need) return KW_EIO; /* shorter than its size says */
        s->at = pos;
        s->len = got;
    }
    *p = s->buf + (pos - s->at);
    *n = (size_t)(s->at + (int64_t)s->len - pos);
    return KW_OK;
}

static kw_err sum(struct kb_scan *s, int64_t pos, const struct kb_entry *e, const uint8_t *head) {
    struct kb_entry_sum x;
    kb_entry_sum_begin(&x, e, head);
    while (x.left) {
        const uint8_t *p;
        size_t n;
        kw_err err = kb_scan_bytes(s, pos + e->size - x.left, (size_t)KW_MIN(x.left, (int64_t)s->cap), &p, &n);
        if (err) return err;
        kb_entry_sum_add(&x, p, n);
    }
    return kb_entry_sum_ok(&x) ? KW_OK : KW_ECRC;
}

kw_err kb_scan_entry(struct kb_scan *s, int64_t pos, bool crc, struct kb_entry *e) {
    const uint8_t *p;
    size_t n;
    kw_err err = kb_scan_bytes(s, pos, KB_ENTRY_PEEK, &p, &n);
    if (err) return err;
    err = kb_entry_parse(p, n, e);
    if (err || e->size > s->size - pos) return KW_EDECODE;
    s->last_size = e->size;
    return crc ? sum(s, pos, e, p) : KW_OK;
}

void kb_facts_init(struct kb_facts *f, int64_t base, int32_t interval) {
    memset(f, 0, sizeof(*f));
    f->base = f->end = base;
    f->interval = interval;
    f->first_timestamp = f->max_timestamp = f->max_timestamp_offset = -1;
    f->dense = true;
}

void kb_facts_deinit(struct kb_facts *f) {
    kb_index_deinit(&f->offsets);
    kb_index_deinit(&f->times);
}

kw_err kb_facts_add(struct kb_facts *f, const struct kb_entry *e, int64_t pos) {
    if (kb_index_reserve(&f->offsets, KB_OFFSET_ENTRY) || kb_index_reserve(&f->times, 2 * KB_TIME_ENTRY)) return KW_ENOMEM;
    if (e->max_timestamp > f->max_timestamp) {
        f->max_timestamp = e->max_timestamp;
        f->max_timestamp_offset = e->last;
    }
    if (f->since_index > f->interval) {
        kb_offsets_add(&f->offsets, f->base, e->last, pos);
        if (f->max_timestamp >= 0) kb_times_add(&f->times, f->base, f->max_timestamp, f->max_timestamp_offset);
        f->since_index = 0;
    } else if (pos) {
        f->dense = false;
    }
    if (pos == 0) f->first_timestamp = e->max_timestamp;
    if (e->record_count == 0) f->empties = true;
    f->since_index += e->size;
    f->batch_size_max = KW_MAX(f->batch_size_max, e->size);
    f->end = e->last + 1;
    f->size = pos + e->size;
    return KW_OK;
}

kw_err kb_facts_seal(struct kb_facts *f) {
    if (f->max_timestamp < 0) return KW_OK;
    if (kb_index_reserve(&f->times, KB_TIME_ENTRY)) return KW_ENOMEM;
    kb_times_add(&f->times, f->base, f->max_timestamp, f->max_timestamp_offset);
    return KW_OK;
}

kw_err kb_fs_read_file(struct kb_fs *fs, const char *path, int64_t max, uint8_t **p, size_t *n, bool *missing) {
    void *f;
    int64_t size;
    *missing = false;
    enum kb_disk_err err = fs->ops->open(fs, path, 0, &f, &size);
    if (err) {
        *missing = err == KB_DISK_ENOENT;
        return err == KB_DISK_ENOMEM ? KW_ENOMEM : KW_EIO;
    }
    kw_err r = size > max ? KW_ELIMIT : KW_OK;
    uint8_t *b = r ? NULL : kw_malloc((size_t)size);
    if (!r && !b) r = KW_ENOMEM;
    size_t done = 0;
    while (!r && done < (size_t)size) {
        size_t got = 0;
        if (fs->ops->read(fs, f, (int64_t)done, b + done, (size_t)size - done, &got) || got == 0) r = KW_EIO;
        done += got;
    }
    fs->ops->close(fs, f);
    if (r) {
        kw_free(b);
        return r;
    }
    *p = b;
    *n = (size_t)size;
    return KW_OK;
}

kw_err kb_fs_write_atomic(struct kb_fs *fs, const char *dir, const char *path, const void *p, size_t n) {
    size_t len = strlen(path);
    char *tmp = kw_malloc(len + 5);
    if (!tmp) return KW_ENOMEM;
    memcpy(tmp, path, len);
    memcpy(tmp + len, ".tmp", 5);
    void *f = NULL;
    int64_t size;
    enum kb_disk_err err = fs->ops->open(fs, tmp, KB_DISK_CREATE, &f, &size);
    if (!err) {
        if (size) err = fs->ops->truncate(fs, f, 0);
        if (!err && n) err = fs->ops->write(fs, f, 0, p, n);
        if (!err) err = fs->ops->sync(fs, f);
        fs->ops->close(fs, f);
        if (!err) err = fs->ops->rename(fs, tmp, path);
        if (!err) err = fs->ops->sync_dir(fs, dir);
        if (err) (void)fs->ops->unlink(fs, tmp);
    }
    kw_free(tmp);
    return err == KB_DISK_OK ? KW_OK : err == KB_DISK_ENOMEM ? KW_ENOMEM : KW_EIO;
}

/* What cannot be read as an entry ends the walk: the index covers what comes before. */
void kb_index_job_run(struct kb_index_job *j, struct kb_fs *fs) {
    struct kb_scan s;
    bool missing;
    j->err = kb_scan_open(&s, fs, j->path, true, &missing);
    if (j->err) return;
    if (s.size > j->size) s.size = j->size;
    struct kb_facts f;
    kb_facts_init(&f, j->base, j->interval);
    kw_err err = KW_OK;
    while (f.size < s.size && !err) {
        struct kb_entry e;
        err = kb_scan_entry(&s, f.size, false, &e);
        if (!err && (e.base < f.end || e.last - j->base > INT32_MAX)) err = KW_EDECODE;
        if (!err) err = kb_facts_add(&f, &e, f.size);
    }
    if (err == KW_EDECODE) err = KW_OK;
    if (!err) err = kb_facts_seal(&f);
    kb_scan_close(&s);
    j->err = err;
    if (err) {
        kb_facts_deinit(&f);
        return;
    }
    kb_index_trim(&f.offsets);
    kb_index_trim(&f.times);
    j->offsets = f.offsets;
    j->times = f.times;
}
