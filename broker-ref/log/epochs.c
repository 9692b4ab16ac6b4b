/* epochs.c - leader epochs of a log and their checkpoint file. Called by log, append, cut, recover and replica/; calls text. KIP-101, KIP-279. */
#include "epochs.h"

#include <inttypes.h>

#include "text.h"

void kb_epochs_init(struct kb_epochs *e) { memset(e, 0, sizeof(*e)); }

void kb_epochs_deinit(struct kb_epochs *e) {
    kw_free(e->v);
    kb_epochs_init(e);
}

kw_err kb_epochs_assign(struct kb_epochs *e, int32_t epoch, int64_t start) {
    if (epoch < 0 || start < 0) return KW_EINVAL;
    if (e->count && e->v[e->count - 1].epoch == epoch && e->v[e->count - 1].start <= start) return KW_OK;
    size_t keep = e->count;
    while (keep && (e->v[keep - 1].epoch > epoch || e->v[keep - 1].start >= start)) keep--;
    if (keep && e->v[keep - 1].epoch == epoch) { /* it goes on, behind one that was begun here and had no batch */
        e->count = keep;
        e->dirty = true;
        return KW_OK;
    }
    if (keep == e->cap) {
        size_t cap = e->cap ? e->cap * 2 : 4;
        struct kb_epoch_entry *v = kw_realloc(e->v, cap * sizeof(*v));
        if (!v) return KW_ENOMEM;
        e->v = v;
        e->cap = cap;
    }
    e->v[keep] = (struct kb_epoch_entry){epoch, start};
    e->count = keep + 1;
    e->dirty = true;
    return KW_OK;
}

int32_t kb_epochs_latest(const struct kb_epochs *e) { return e->count ? e->v[e->count - 1].epoch : -1; }

/* The number of entries with start <= offset. */
static size_t upto(const struct kb_epochs *e, int64_t offset) {
    size_t lo = 0, hi = e->count;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (e->v[mid].start <= offset) lo = mid + 1;
        else hi = mid;
    }
    return lo;
}

int32_t kb_epochs_at(const struct kb_epochs *e, int64_t offset) {
    size_t n = upto(e, offset);
    return n ? e->v[n - 1].epoch : -1;
}

void kb_epochs_end_offset(const struct kb_epochs *e, int32_t asked, int64_t leo, int32_t *epoch, int64_t *end) {
    *epoch = -1;
    *end = -1;
    if (asked < 0 || !e->count) return;
    size_t lo = 0, hi = e->count; /* entries below lo have epoch <= asked */
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (e->v[mid].epoch <= asked) lo = mid + 1;
        else hi = mid;
    }
    if (lo == e->count) {
        if (e->v[lo - 1].epoch != asked) return; /* newer than any that we know */
        *epoch = asked;
        *end = leo;
        return;
    }
    *epoch = lo ? e->v[lo - 1].epoch : asked;
    *end = e->v[lo].start;
}

void kb_epochs_truncate_end(struct kb_epochs *e, int64_t to) {
    size_t n = to > INT64_MIN ? upto(e, to - 1) : 0;
    if (n != e->count) e->dirty = true;
    e->count = n;
}

void kb_epochs_truncate_start(struct kb_epochs *e, int64_t start) {
    size_t n = upto(e, start);
    if (!n || (n == 1 && e->v[0].start == start)) return;
    struct kb_epoch_entry last = {e->v[n - 1].epoch, start};
    memmove(e->v, e->v + n - 1, (e->count - n + 1) * sizeof(*e->v));
    e->count -= n - 1;
    e->v[0] = last;
    e->dirty = true;
}

kw_err kb_epochs_encode(const struct kb_epochs *e, struct kw_out *out) {
    kb_text_add(out, "0\n%zu\n", e->count);
    for (size_t i = 0; i < e->count; i++) kb_text_add(out, "%" PRId32 " %" PRId64 "\n", e->v[i].epoch, e->v[i].start);
    return out->err;
}

static bool decode_entry(const char *line, size_t n, struct kb_epoch_entry *e) {
    const char *f[2];
    size_t fn[2];
    int64_t epoch;
    for (int i = 0; i < 2; i++)
        if (!kb_text_field(&line, &n, &f[i], &fn[i])) return false;
    if (n || !kb_text_int(f[0], fn[0], 0, INT32_MAX, &epoch) || !kb_text_int(f[1], fn[1], 0, INT64_MAX, &e->start)) return false;
    e->epoch = (int32_t)epoch;
    return true;
}

kw_err kb_epochs_decode(struct kb_epochs *e, const uint8_t *p, size_t size) {
    struct kb_text t = {p, p + size};
    const char *line;
    size_t n;
    int64_t version, count;
    if (!kb_text_line(&t, &line, &n) || !kb_text_int(line, n, 0, 0, &version)) return KW_EDECODE;
    if (!kb_text_line(&t, &line, &n) || !kb_text_int(line, n, 0, INT32_MAX, &count)) return KW_EDECODE;
    if (p[size - 1] != '\n') return KW_EDECODE; /* cut in the middle of a number it would still be one */
    if ((size_t)count > size / 4) return KW_EDECODE; /* "0 0\n": an entry has four bytes or more */
    struct kb_epochs r;
    kb_epochs_init(&r);
    kw_err err = KW_OK;
    for (int64_t i = 0; i < count && !err; i++) {
        struct kb_epoch_entry x;
        if (!kb_text_line(&t, &line, &n) || !decode_entry(line, n, &x)) err = KW_EDECODE;
        else if (r.count && (x.epoch <= r.v[r.count - 1].epoch || x.start <= r.v[r.count - 1].start)) err = KW_EDECODE;
        else err = kb_epochs_assign(&r, x.epoch, x.start);
    }
    if (!err && t.p != t.end) err = KW_EDECODE;
    if (err) {
        kb_epochs_deinit(&r);
        return err;
    }
    kb_epochs_deinit(e);
    *e = r;
    e->dirty = false;
    return KW_OK;
}
