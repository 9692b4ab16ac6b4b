/* scan.c - see scan.h. */
#include "scan.h"

#include "alloc.h"

#include <stdio.h>
#include <stdlib.h>

void sim_scan_deinit(struct sim_scan *s) {
    free(s->v);
    free(s->segments);
    memset(s, 0, sizeof *s);
}

static void scan_segment(struct sim_disk *d, struct sim_scan *s, size_t index) {
    char path[160];
    snprintf(path, sizeof path, "%s.log", s->segments[index].path);
    size_t n, at = 0;
    const uint8_t *p = sim_disk_peek(d, path, &n);
    while (p && at < n) {
        struct sim_batch b = {.segment = index, .position = at};
        if (kw_batch_parse(p + at, n - at, &b.h) != KW_OK) break;
        b.size = (size_t)b.h.length + KW_BATCH_OVERHEAD;
        if (b.size > n - at || !kw_batch_crc_ok(p + at, b.size)) break;
        b.last = b.h.base_offset + b.h.last_offset_delta;
        s->v = sim_grow(s->v, s->count, &s->cap, sizeof *s->v);
        s->v[s->count++] = b;
        at += b.size;
    }
    s->torn |= p && at < n;
}

void sim_scan_log(struct sim_disk *d, const char *dir, struct sim_scan *s) {
    memset(s, 0, sizeof *s);
    char **names;
    size_t count = sim_disk_names(d, dir, &names);
    for (size_t i = 0; i < count; i++) { /* sorted, and so by base offset */
        size_t n = strlen(names[i]);
        if (n == 24 && strcmp(names[i] + 20, ".log") == 0) {
            s->segments = sim_grow(s->segments, s->segment_count, &s->segment_cap, sizeof *s->segments);
            struct sim_segment_file *f = &s->segments[s->segment_count++];
            f->base = strtoll(names[i], NULL, 10);
            snprintf(f->path, sizeof f->path, "%s/%.20s", dir, names[i]);
        }
        free(names[i]);
    }
    free(names);
    for (size_t i = 0; i < s->segment_count && !s->torn; i++) scan_segment(d, s, i);
}

bool sim_scan_records(struct sim_disk *d, const struct sim_scan *s, const struct sim_batch *b, struct kw_compressor *c, sim_scan_fn *fn, void *ctx) {
    char path[160];
    snprintf(path, sizeof path, "%s.log", s->segments[b->segment].path);
    size_t n, body_size;
    const uint8_t *p = sim_disk_peek(d, path, &n), *body;
    if (!p) return false;
    struct sim_host *turn = sim_alloc_turn(NULL); /* it may run in the middle of one */
    kw_err err = kw_batch_body(p + b->position, b->size, &b->h, 64 << 20, c, &body, &body_size);
    (void)sim_alloc_turn(turn);
    if (err) return false;
    struct kw_record_iter it;
    struct kw_record_view r;
    int32_t rc;
    kw_record_iter_init(&it, &b->h, body, body_size);
    while ((rc = kw_record_next(&it, &r)) == 1) {
        if (b->h.attributes & KW_ATTR_LOG_APPEND_TIME) r.timestamp = b->h.max_timestamp;
        fn(ctx, b, &r);
    }
    return rc == 0;
}
