/* compact_job.c - sealed segments written anew. Contract: compact_job.h. */
#include "compact_job.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define READ_SIZE (1u << 20)
#define WRITE_SIZE (1u << 20)
#define BODY_SIZE_MAX (1u << 30) /* decompressed */

struct work {
    struct kb_compact_job *j;
    struct kb_fs *fs;
    struct kw_compressor *compressor;
    /* the segment being read */
    void *in;
    int64_t in_size, win_at;
    uint8_t *win;
    size_t win_cap, win_len;
    /* the segment being written */
    void *out;
    int64_t out_size; /* with what is in `pending` */
    struct kw_out pending, batch, body;
    struct kb_compact_result *result;
    int64_t source_end; /* where the segment behind the one being read begins */
    struct kw_batch_header last; /* the last batch of a source of which nothing stays; see end_result */
    bool has_last;
};

static kw_err fail(struct work *w, kw_err err, const char *fmt, ...) {
    if (w->j->why[0]) return err;
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(w->j->why, sizeof(w->j->why), fmt, ap);
    va_end(ap);
    if (n < 0) w->j->why[0] = 0;
    return err;
}

static char *path_of(const struct kb_compact_job *j, int64_t base, const char *suffix) {
    size_t n = strlen(j->dir) + 24 + strlen(suffix);
    char *p = kw_malloc(n);
    if (p) snprintf(p, n, "%s/%020" PRId64 "%s", j->dir, base, suffix);
    return p;
}

static kw_err disk_err(struct work *w, enum kb_disk_err err, const char *path) {
    if (!err) return KW_OK;
    if (!w->j->disk_err) w->j->disk_err = err;
    return fail(w, err == KB_DISK_ENOMEM ? KW_ENOMEM : KW_EIO, "%s: %s", path ? path : w->j->dir, kb_disk_text(err));
}

/* ---- Reading ---- */

static kw_err open_source(struct work *w, const struct kb_compact_source *s) {
    char *path = path_of(w->j, s->base, ".log");
    if (!path) return KW_ENOMEM;
    kw_err err = disk_err(w, w->fs->ops->open(w->fs, path, 0, &w->in, &w->in_size), path);
    kw_free(path);
    if (err) return err;
    w->in_size = KW_MIN(w->in_size, s->size);
    w->win_len = 0;
    return KW_OK;
}

static void close_source(struct work *w) {
    if (w->in) w->fs->ops->close(w->fs, w->in);
    w->in = NULL;
}

/* n bytes at pos, contiguous. */
static kw_err bytes_at(struct work *w, int64_t pos, size_t n, const uint8_t **p) {
    if ((int64_t)n > w->in_size - pos) return fail(w, KW_EDECODE, "a batch at %lld runs over the segment's end", (long long)pos);
    if (pos < w->win_at || pos + (int64_t)n > w->win_at + (int64_t)w->win_len) {
        size_t want = KW_MAX(n, (size_t)READ_SIZE), got = 0;
        if ((int64_t)want > w->in_size - pos) want = (size_t)(w->in_size - pos);
        if (want > w->win_cap) {
            uint8_t *win = kw_realloc(w->win, want);
            if (!win) return KW_ENOMEM;
            w->win = win;
            w->win_cap = want;
        }
        w->win_at = pos;
        w->win_len = 0;
        while (w->win_len < want) { /* at most 1 MB at a time */
            size_t part = KW_MIN(want - w->win_len, (size_t)READ_SIZE);
            kw_err err = disk_err(w, w->fs->ops->read(w->fs, w->in, pos + (int64_t)w->win_len, w->win + w->win_len, part, &got), NULL);
            if (err) return err;
            if (got == 0) return fail(w, KW_EIO, "a segment is shorter than its size says");
            w->win_len += got;
        }
    }
    *p = w->win + (pos - w->win_at);
    return KW_OK;
}

/* The whole batch at pos, checked. */
static kw_err batch_at(struct work *w, int64_t pos, const uint8_t **p, struct kb_entry *e, struct kw_batch_header *h) {
    if (atomic_load_explicit(&w->j->stop, memory_order_relaxed)) return fail(w, KW_EBUSY, "stopped");
    kw_err err = bytes_at(w, pos, KW_BATCH_HEADER_SIZE, p);
    if (!err && kb_entry_parse(*p, KW_BATCH_HEADER_SIZE, e)) err = fail(w, KW_EDECODE, "no batch stands at %lld", (long long)pos);
    if (err) return err;
    if (e->magic != 2)
        return fail(w, KW_EUNSUPPORTED, "offset %lld is of message format v%d, which is not compacted", (long long)e->base, e->magic);
    if (e->attributes & (KW_ATTR_TRANSACTIONAL | KW_ATTR_CONTROL))
        return fail(w, KW_EUNSUPPORTED, "offset %lld is of a transaction, which is not compacted yet", (long long)e->base);
    err = bytes_at(w, pos, (size_t)e->size, p);
    if (err) return err;
    if (!kw_batch_crc_ok(*p, (size_t)e->size)) return fail(w, KW_ECRC, "the batch at offset %lld fails its checksum", (long long)e->base);
    return kw_batch_parse(*p, (size_t)e->size, h);
}

static kw_err body_of(struct work *w, const uint8_t *p, const struct kb_entry *e, const struct kw_batch_header *h,
                      struct kw_record_iter *it) {
    const uint8_t *body;
    size_t size;
    kw_err err = kw_batch_body(p, (size_t)e->size, h, BODY_SIZE_MAX, w->compressor, &body, &size);
    if (err) return fail(w, err, "the batch at offset %lld cannot be read", (long long)e->base);
    kw_record_iter_init(it, h, body, size);
    return KW_OK;
}

/* ---- The newest offset of each key ---- */

#define WINDOW 32 /* records whose keys are looked up together: memory answers them side by side */
struct window {
    struct kw_record_view r[WINDOW];
    uint64_t hash[WINDOW][2]; /* of those that have a key */
    size_t n;
};

/* The next records; none at the end. hashed_to: those below it are to be looked up. */
static kw_err next_window(struct work *w, struct kw_record_iter *it, int64_t hashed_to, struct window *v) {
    int32_t more = 0;
    for (v->n = 0; v->n < WINDOW && (more = kw_record_next(it, &v->r[v->n])) > 0; v->n++) {
        const struct kw_record_view *r = &v->r[v->n];
        if (r->offset < 0 || r->offset >= w->j->end) return fail(w, KW_EDECODE, "a record's offset (%lld) is not in its segment", (long long)r->offset);
        if (r->key.len >= 0 && r->offset < hashed_to) kb_compact_map_hash(&w->j->map, r->key, v->hash[v->n]);
    }
    return more < 0 ? fail(w, more, "a batch cannot be read") : KW_OK;
}

static int64_t asked_of_map(const struct work *w) { return w->j->overwritten ? w->j->dirty : INT64_MAX; }

static kw_err note_record(struct work *w, const struct kw_record_view *r, const uint64_t hash[2]) {
    struct kb_compact_job *j = w->j;
    int64_t before;
    if (r->key.len < 0 || r->offset < j->dirty) return KW_OK;
    kw_err err = kb_compact_map_put_hashed(&j->map, hash, r->offset, &before);
    if (!err && j->overwritten && before >= j->dirty) j->overwritten[(before - j->dirty) / 8] |= (uint8_t)(1 << (before - j->dirty) % 8);
    return err;
}

/* KW_ELIMIT: the map is full; what of the batch is in it does no harm. */
static kw_err note_batch(struct work *w, const uint8_t *p, const struct kb_entry *e, const struct kw_batch_header *h) {
    struct kw_record_iter it;
    struct window v;
    kw_err err = body_of(w, p, e, h, &it);
    if (!err) err = next_window(w, &it, INT64_MAX, &v);
    while (!err && v.n > 0) {
        for (size_t i = 0; i < v.n && !err; i++) err = note_record(w, &v.r[i], v.hash[i]);
        if (!err) err = next_window(w, &it, INT64_MAX, &v);
    }
    return err;
}

static kw_err note_source(struct work *w, const struct kb_compact_source *s) {
    kw_err err = open_source(w, s);
    for (int64_t pos = 0; !err && pos < w->in_size;) {
        const uint8_t *p;
        struct kb_entry e;
        struct kw_batch_header h;
        err = batch_at(w, pos, &p, &e, &h);
        if (!err && e.last >= w->j->dirty) err = note_batch(w, p, &e, &h);
        if (err == KW_ELIMIT && w->j->cleaned_to == w->j->dirty)
            err = fail(w, KW_ELIMIT, "the keys of one batch need more memory than log.cleaner.dedupe.buffer.size (%zu bytes)",
                       w->j->memory_max);
        if (err) break;
        w->j->cleaned_to = KW_MAX(w->j->cleaned_to, e.last + 1);
        pos += e.size;
    }
    close_source(w);
    return err;
}

static int64_t end_of(const struct kb_compact_job *j, size_t i) {
    return i + 1 < j->source_count ? j->sources[i + 1].base : j->end;
}

static kw_err note_all(struct work *w) {
    w->j->cleaned_to = w->j->dirty;
    for (size_t i = 0; i < w->j->source_count; i++) {
        int64_t end = end_of(w->j, i);
        if (end <= w->j->dirty) continue;
        kw_err err = note_source(w, &w->j->sources[i]);
        if (err == KW_ELIMIT && !w->j->why[0]) return KW_OK; /* the rest the next time */
        if (err) return err;
        w->j->cleaned_to = KW_MAX(w->j->cleaned_to, end);
    }
    return KW_OK;
}

/* ---- Writing ---- */

static kw_err flush(struct work *w) {
    if (w->pending.len == 0) return KW_OK;
    kw_err err = disk_err(w, w->fs->ops->write(w->fs, w->out, w->out_size - (int64_t)w->pending.len, w->pending.p, w->pending.len), NULL);
    kw_out_reset(&w->pending);
    if (!err && !w->j->ephemeral && w->fs->ops->start_sync) w->fs->ops->start_sync(w->fs, w->out); /* little by little: others use the disk, too */
    return err;
}

static kw_err put(struct work *w, const uint8_t *p, size_t n) {
    struct kb_entry e;
    kw_err err = kb_entry_parse(p, n, &e);
    if (!err) err = kb_facts_add(&w->result->facts, &e, w->out_size);
    w->has_last = false; /* what comes behind it reaches further */
    kw_out_bytes(&w->pending, p, n);
    if (!err && w->pending.err) err = KW_ENOMEM;
    if (err) return err;
    w->out_size += (int64_t)n;
    return w->pending.len >= WRITE_SIZE ? flush(w) : KW_OK;
}

static kw_err write_file(struct work *w, int64_t base, const char *suffix, const uint8_t *p, size_t n) {
    char *path = path_of(w->j, base, suffix);
    void *f = NULL;
    int64_t size;
    if (!path) return KW_ENOMEM;
    enum kb_disk_err err = w->fs->ops->open(w->fs, path, KB_DISK_CREATE, &f, &size);
    if (!err && size > 0) err = w->fs->ops->truncate(w->fs, f, 0);
    if (!err && n > 0) err = w->fs->ops->write(w->fs, f, 0, p, n);
    if (!err && !w->j->ephemeral) err = w->fs->ops->sync(w->fs, f);
    if (f) w->fs->ops->close(w->fs, f);
    kw_err e = disk_err(w, err, path);
    kw_free(path);
    return e;
}

static kw_err begin_result(struct work *w, int64_t base) {
    struct kb_compact_result *v = kw_realloc(w->j->results, (w->j->result_count + 1) * sizeof(*v));
    if (!v) return KW_ENOMEM;
    w->j->results = v;
    w->result = &v[w->j->result_count++];
    *w->result = (struct kb_compact_result){.base = base, .end = base};
    w->has_last = false;
    kb_facts_init(&w->result->facts, base, w->j->interval);
    char *path = path_of(w->j, base, ".log.cleaned");
    int64_t size = 0;
    if (!path) return KW_ENOMEM;
    enum kb_disk_err err = w->fs->ops->open(w->fs, path, KB_DISK_CREATE, &w->out, &size);
    if (!err && size > 0) err = w->fs->ops->truncate(w->fs, w->out, 0);
    kw_err e = disk_err(w, err, path);
    kw_free(path);
    w->out_size = 0;
    return e;
}

static kw_err put_empty(struct work *w, struct kw_batch_header h) {
    uint8_t p[KW_BATCH_HEADER_SIZE];
    h.attributes &= (int16_t)~KW_ATTR_CODEC;
    h.record_count = 0;
    h.length = KW_BATCH_HEADER_SIZE - KW_BATCH_OVERHEAD;
    kw_batch_write_header(p, &h);
    kw_batch_crc_set(p, sizeof(p));
    return put(w, p, sizeof(p));
}

/* A segment reaches to the next one, if only by an empty batch: recovery takes anything else for a tail that was lost. */
static kw_err end_result(struct work *w, int64_t end) {
    struct kb_facts *f = &w->result->facts;
    w->result->end = end;
    kw_err err = w->has_last ? put_empty(w, w->last) : KW_OK;
    if (!err) err = flush(w);
    if (!err) err = kb_facts_seal(f);
    if (!err && !w->j->ephemeral) err = disk_err(w, w->fs->ops->sync(w->fs, w->out), NULL);
    w->fs->ops->close(w->fs, w->out);
    w->out = NULL;
    w->j->bytes_out += w->out_size;
    if (!err) err = write_file(w, w->result->base, ".index.cleaned", f->offsets.p, f->offsets.len);
    if (!err) err = write_file(w, w->result->base, ".timeindex.cleaned", f->times.p, f->times.len);
    return err;
}

/* ---- A batch ---- */

int kb_compact_by_pid(const void *a, const void *b) {
    int64_t x = ((const struct kb_compact_producer *)a)->pid, y = ((const struct kb_compact_producer *)b)->pid;
    return (x > y) - (x < y);
}

/* It is some producer's last: its sequence must stay known. */
static bool is_last_of_producer(const struct work *w, const struct kw_batch_header *h, int64_t last) {
    struct kb_compact_producer key = {.pid = h->producer_id};
    if (h->producer_id < 0 || w->j->producer_count == 0) return false;
    const struct kb_compact_producer *p = bsearch(&key, w->j->producers, w->j->producer_count, sizeof(key), kb_compact_by_pid);
    return p && p->last_offset == last;
}

struct sieve { /* what of a batch stays */
    int32_t kept, dropped;
    bool tombstones; /* among those that stay */
    int64_t max_timestamp;
};

static bool stays(const struct work *w, const struct kw_batch_header *h, const struct kw_record_view *r, const uint64_t hash[2]) {
    if (r->key.len < 0) return false;
    int64_t bit = r->offset - w->j->dirty;
    if (r->offset >= asked_of_map(w) ? w->j->overwritten[bit / 8] >> bit % 8 & 1 : kb_compact_map_get_hashed(&w->j->map, hash) > r->offset) return false;
    bool has_horizon = h->attributes & KW_ATTR_DELETE_HORIZON;
    return r->value.len >= 0 || !has_horizon || h->base_timestamp > w->j->wall_ms;
}

static kw_err take_run(struct work *w, const uint8_t *from, const uint8_t *to) {
    kw_out_bytes(&w->body, from, (size_t)(to - from));
    return w->body.err ? KW_ENOMEM : KW_OK;
}

/* Where anything goes, w->body has what stays, byte for byte as it is, behind the room for a header. */
static kw_err sift(struct work *w, const struct kw_batch_header *h, struct kw_record_iter it, struct sieve *s) {
    struct window v;
    const uint8_t *run = it.in.p, *at = run; /* records in between stay, and were not copied yet */
    *s = (struct sieve){.max_timestamp = -1};
    kw_out_reset(&w->body);
    kw_err err = kw_out_reserve(&w->body, KW_BATCH_HEADER_SIZE) ? next_window(w, &it, asked_of_map(w), &v) : KW_ENOMEM;
    while (!err && v.n > 0) {
        for (size_t i = 0; i < v.n && !err; i++, at += v.r[i - 1].wire_size) {
            const struct kw_record_view *r = &v.r[i];
            if (stays(w, h, r, v.hash[i])) {
                s->kept++;
                s->tombstones = s->tombstones || r->value.len < 0;
                s->max_timestamp = KW_MAX(s->max_timestamp, r->timestamp);
                continue;
            }
            s->dropped++;
            if (at > run) err = take_run(w, run, at);
            run = at + r->wire_size;
        }
        if (!err) err = next_window(w, &it, asked_of_map(w), &v);
    }
    if (!err && s->dropped && at > run) err = take_run(w, run, at);
    return err;
}

static kw_err put_record(struct work *w, const struct kw_record_view *r, int64_t timestamp_delta) {
    struct kw_header_view small[16], *headers = r->header_count > 16 ? kw_malloc((size_t)r->header_count * sizeof(*headers)) : small;
    struct kw_in in;
    size_t n = 0;
    if (!headers) return KW_ENOMEM;
    kw_in_init(&in, r->headers, r->headers_size);
    while (n < (size_t)r->header_count && kw_record_header_next(&in, &headers[n]) > 0) n++;
    struct kw_record_in rec = {.timestamp_delta = timestamp_delta,
                               .offset_delta = r->offset_delta,
                               .key = r->key,
                               .value = r->value,
                               .headers = headers,
                               .header_count = n};
    size_t size = kw_record_size(&rec);
    uint8_t *dst = size == SIZE_MAX ? NULL : kw_out_reserve(&w->body, size);
    if (dst) kw_record_write(dst, &rec, size);
    if (headers != small) kw_free(headers);
    return dst ? KW_OK : KW_ENOMEM;
}

/* Tombstones that are met for the first time get their horizon: the base timestamp says it from then on, and so all records are written anew. */
static kw_err date(struct work *w, const struct kw_batch_header *old, struct kw_record_iter it, int64_t base_timestamp) {
    struct window v;
    kw_out_reset(&w->body);
    kw_err err = kw_out_reserve(&w->body, KW_BATCH_HEADER_SIZE) ? next_window(w, &it, asked_of_map(w), &v) : KW_ENOMEM;
    while (!err && v.n > 0) {
        for (size_t i = 0; i < v.n && !err; i++)
            if (stays(w, old, &v.r[i], v.hash[i])) err = put_record(w, &v.r[i], v.r[i].timestamp - base_timestamp);
        if (!err) err = next_window(w, &it, asked_of_map(w), &v);
    }
    return err;
}

/* The batch with what stays of it. */
static kw_err rewrite(struct work *w, const struct kw_batch_header *old, struct kw_record_iter it, const struct sieve *s) {
    struct kw_batch_header h = *old;
    if (s->tombstones && !(old->attributes & KW_ATTR_DELETE_HORIZON)) {
        h.attributes |= KW_ATTR_DELETE_HORIZON;
        h.base_timestamp = w->j->wall_ms + w->j->delete_retention_ms;
        kw_err err = date(w, old, it, h.base_timestamp);
        if (err) return err;
    }
    int codec = old->attributes & KW_ATTR_CODEC;
    h.attributes &= (int16_t)~KW_ATTR_CODEC;
    h.record_count = s->kept;
    h.length = (int32_t)(w->body.len - KW_BATCH_OVERHEAD);
    if (!(old->attributes & KW_ATTR_LOG_APPEND_TIME) && s->kept > 0) h.max_timestamp = s->max_timestamp;
    kw_batch_write_header(w->body.p, &h);
    kw_batch_crc_set(w->body.p, w->body.len);
    if (codec == KW_CODEC_NONE || s->kept == 0) return put(w, w->body.p, w->body.len);
    size_t cap = KW_BATCH_HEADER_SIZE + kw_compress_bound(codec, w->body.len), n;
    kw_out_reset(&w->batch);
    uint8_t *dst = kw_out_reserve(&w->batch, cap);
    if (!dst) return KW_ENOMEM;
    kw_err err = kw_batch_compress(w->compressor, codec, KW_LEVEL_DEFAULT, w->body.p, w->body.len, dst, cap, &n);
    return err ? fail(w, err, "a batch cannot be compressed again") : put(w, dst, n);
}

static kw_err clean_batch(struct work *w, const uint8_t *p, const struct kb_entry *e, const struct kw_batch_header *h) {
    struct kw_record_iter it;
    struct sieve s;
    kw_err err = body_of(w, p, e, h, &it);
    if (!err) err = sift(w, h, it, &s);
    if (err) return err;
    w->j->records_in += s.kept + s.dropped;
    w->j->records_out += s.kept;
    if (s.kept == 0 && !is_last_of_producer(w, h, e->last)) {
        w->last = *h;
        w->has_last = e->last + 1 == w->source_end;
        return KW_OK;
    }
    bool as_it_is = s.dropped == 0 && (!s.tombstones || (h->attributes & KW_ATTR_DELETE_HORIZON));
    return as_it_is ? put(w, p, (size_t)e->size) : rewrite(w, h, it, &s);
}

static kw_err clean_source(struct work *w, const struct kb_compact_source *s) {
    kw_err err = open_source(w, s);
    for (int64_t pos = 0; !err && pos < w->in_size;) {
        const uint8_t *p;
        struct kb_entry e;
        struct kw_batch_header h;
        err = batch_at(w, pos, &p, &e, &h);
        if (!err) err = clean_batch(w, p, &e, &h);
        if (!err) pos += e.size;
    }
    w->j->bytes_in += w->in_size;
    close_source(w);
    return err;
}

/* ---- All of it ---- */

/* The next source goes into the same segment: its size and its offsets allow it, whatever of it stays. */
static bool fits(const struct work *w, size_t i) {
    const struct kb_compact_job *j = w->j;
    return w->out_size + j->sources[i].size <= j->segment_bytes && end_of(j, i) - 1 - w->result->base <= INT32_MAX;
}

static kw_err clean_some(struct work *w) {
    struct kb_compact_job *j = w->j;
    int64_t from = j->bytes_in;
    j->more = false;
    while (j->next < j->count && !j->more) {
        size_t i = j->next;
        kw_err err = begin_result(w, j->sources[i].base);
        bool enough = false;
        while (!err && i < j->count && !enough && (i == j->next || fits(w, i))) {
            w->source_end = end_of(j, i);
            err = clean_source(w, &j->sources[i++]);
            enough = j->step_bytes > 0 && j->bytes_in - from >= j->step_bytes;
        }
        if (!err) err = end_result(w, end_of(j, i - 1));
        if (err) return err;
        j->next = i;
        j->more = enough && j->next < j->count;
    }
    return KW_OK;
}

/* What earlier passes left unfinished goes first: by a `.cleaned` at a lower offset recovery would take a finished replacement for one that is not.
 * It is durable before anything is put in place: clean_some's end syncs the folder. */
static kw_err sweep(struct work *w) {
    uint8_t *names = NULL;
    int64_t count = 0;
    kw_err err = disk_err(w, w->fs->ops->list(w->fs, w->j->dir, &names, &count), w->j->dir);
    const char *z = (const char *)names;
    for (int64_t i = 0; i < count && !err; i++, z += strlen(z) + 1) {
        size_t n = strlen(z), size = strlen(w->j->dir) + n + 2;
        if (n < 8 || strcmp(z + n - 8, ".cleaned") != 0) continue;
        char *path = kw_malloc(size);
        if (path) snprintf(path, size, "%s/%s", w->j->dir, z);
        err = path ? disk_err(w, w->fs->ops->unlink(w->fs, path), path) : KW_ENOMEM;
        kw_free(path);
    }
    kw_free(names);
    return err;
}

/* As many as the dirty part can have keys, but no more than is allowed; what no key falls on is never touched. */
static size_t map_memory(const struct kb_compact_job *j) {
    uint64_t keys = (uint64_t)KW_MAX(j->end - j->dirty, 0);
    if (keys >= j->memory_max / (2 * sizeof(struct kb_compact_slot))) return j->memory_max;
    return KW_MIN(j->memory_max, (size_t)(keys + keys / 8 + 32) * 2 * sizeof(struct kb_compact_slot));
}

static kw_err map_keys(struct work *w) {
    struct kb_compact_job *j = w->j;
    kw_err err = sweep(w);
    if (!err) err = kb_compact_map_init(&j->map, map_memory(j), j->seed);
    j->mapped = !err;
    size_t bits = (size_t)KW_MAX(j->end - j->dirty, 0) / 8 + 1;
    if (!err && bits <= j->memory_max / 8) j->overwritten = kw_calloc(bits, 1); /* without it it only takes longer */
    if (!err) err = note_all(w);
    while (j->count < j->source_count && j->sources[j->count].base < j->cleaned_to) j->count++;
    return err;
}

void kb_compact_job_run(void *job, struct kb_fs *fs) {
    struct work w = {.j = job, .fs = fs, .compressor = kw_compressor_new()};
    struct kb_compact_job *j = w.j;
    kw_out_init(&w.pending);
    kw_out_init(&w.batch);
    kw_out_init(&w.body);
    j->err = w.compressor ? KW_OK : KW_ENOMEM;
    if (!j->err && !j->mapped) j->err = map_keys(&w);
    if (!j->err) j->err = clean_some(&w);
    if (!j->err && !j->ephemeral) j->err = disk_err(&w, fs->ops->sync_dir(fs, j->dir), j->dir);
    if (j->err && !j->why[0]) fail(&w, j->err, "%s", j->err == KW_ENOMEM ? "out of memory" : "it failed");
    close_source(&w);
    if (w.out) fs->ops->close(fs, w.out);
    if (j->err) (void)!sweep(&w); /* the next pass, or the next start, removes what is left */
    kw_compressor_free(w.compressor);
    kw_out_deinit(&w.pending);
    kw_out_deinit(&w.batch);
    kw_out_deinit(&w.body);
    kw_free(w.win);
}

void kb_compact_sweep_run(void *job, struct kb_fs *fs) {
    struct work w = {.j = job, .fs = fs};
    (void)!sweep(&w);
}

/* ---- In place ---- */

static kw_err rename_(struct work *w, int64_t base, const char *from, const char *to) {
    char *a = path_of(w->j, base, from), *b = path_of(w->j, base, to);
    kw_err err = a && b ? disk_err(w, w->fs->ops->rename(w->fs, a, b), a) : KW_ENOMEM;
    kw_free(a);
    kw_free(b);
    return err;
}

static kw_err remove_(struct work *w, int64_t base, const char *suffix) {
    char *path = path_of(w->j, base, suffix);
    kw_err err = path ? disk_err(w, w->fs->ops->unlink(w->fs, path), path) : KW_ENOMEM;
    kw_free(path);
    return err;
}

static kw_err sync_names(struct work *w) {
    return w->j->ephemeral ? KW_OK : disk_err(w, w->fs->ops->sync_dir(w->fs, w->j->dir), w->j->dir);
}

static kw_err remove_sources(struct work *w, const struct kb_compact_result *r) {
    const struct kb_compact_job *j = w->j;
    kw_err err = KW_OK;
    for (size_t i = 0; !err && i < j->source_count; i++) {
        int64_t base = j->sources[i].base;
        if (base < r->base || base >= r->end) continue;
        err = remove_(w, base, ".index");
        if (!err) err = remove_(w, base, ".timeindex");
        if (!err) err = remove_(w, base, ".txnindex");
        if (!err && base != r->base) err = remove_(w, base, ".log");
        if (!err && base != r->base) err = remove_(w, base, ".snapshot");
    }
    return err ? err : sync_names(w);
}

/* From the first durable `.log.swap` on it is decided: recovery goes on from there. Its indexes come last; without them it makes them anew. What was
 * renamed is not renamed again, and everything else can be done twice. */
static kw_err swap(struct work *w, struct kb_compact_result *r) {
    static const char *const names[][2] = {{".index.cleaned", ".index.swap"}, {".timeindex.cleaned", ".timeindex.swap"}, {".log.cleaned", ".log.swap"},
                                           {".log.swap", ".log"},             {".index.swap", ".index"},                 {".timeindex.swap", ".timeindex"}};
    const int half = (int)KW_COUNTOF(names) / 2;
    kw_err err = KW_OK;
    for (; !err && r->renamed < half; r->renamed += !err) err = rename_(w, r->base, names[r->renamed][0], names[r->renamed][1]);
    if (!err && r->renamed == half) err = sync_names(w);
    if (!err && r->renamed == half) err = remove_sources(w, r);
    for (; !err && r->renamed < 2 * half; r->renamed += !err) err = rename_(w, r->base, names[r->renamed][0], names[r->renamed][1]);
    return err ? err : sync_names(w);
}

void kb_compact_swap_run(void *arg, struct kb_fs *fs) {
    struct kb_compact_swap *s = arg;
    struct work w = {.j = s->job, .fs = fs};
    w.j->err = KW_OK;
    w.j->disk_err = KB_DISK_OK;
    w.j->why[0] = 0;
    for (size_t i = s->from; !w.j->err && i < s->from + s->count; i++) w.j->err = swap(&w, &w.j->results[i]);
    if (w.j->err && !w.j->why[0]) fail(&w, w.j->err, "out of memory");
}

void kb_compact_results_free(struct kb_compact_job *j) {
    for (size_t i = 0; i < j->result_count; i++) kb_facts_deinit(&j->results[i].facts);
    kw_free(j->results);
    j->results = NULL;
    j->result_count = 0;
}

void kb_compact_job_deinit(struct kb_compact_job *j) {
    kb_compact_results_free(j);
    kb_compact_map_deinit(&j->map);
    kw_free(j->overwritten);
    j->overwritten = NULL;
    j->mapped = false;
}
