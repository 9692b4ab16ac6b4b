/* fetch_old.c - down-conversion of fetched batches. Called by fetch (v0-v3). Calls wire/batch, message_set. KIP-31, KIP-32, KIP-98. */
#include "fetch_old.h"

#include "wire/message_set.h"

enum { BODY_SIZE_MAX = 1 << 30 };

/* The slices as one run of bytes. One slice is taken as it is. */
static kw_err join(const struct kb_read *r, uint8_t **owned, const uint8_t **p) {
    *owned = NULL;
    *p = r->slices[0].p;
    if (r->slice_count <= 1) return KW_OK;
    *p = *owned = kw_malloc(r->bytes);
    if (!*owned) return KW_ENOMEM;
    size_t at = 0;
    for (size_t i = 0; i < r->slice_count; i++) {
        memcpy(*owned + at, r->slices[i].p, r->slices[i].len);
        at += r->slices[i].len;
    }
    return KW_OK;
}

static kw_err convert_all(const uint8_t *p, size_t n, int8_t magic, int64_t first_offset, struct kw_compressor *c, struct kw_out *out,
                          int64_t *next) {
    int64_t from = *next;
    while (n >= KW_BATCH_HEADER_SIZE) {
        int64_t size = kw_batch_size_peek(p, n);
        struct kw_batch_header h;
        if (size < 0 || (size_t)size > n) break; /* the rest of it did not fit */
        kw_err err = kw_batch_parse(p, n, &h);
        if (err != KW_OK) return err;
        /* Written anew, damage would hide behind a good checksum. What lies before it is served first. */
        if (!kw_batch_crc_ok(p, (size_t)size)) return *next > from ? KW_OK : KW_ECRC;
        err = kw_batch_to_message_set(p, (size_t)size, magic, first_offset, BODY_SIZE_MAX, c, out);
        if (err != KW_OK) return err;
        *next = h.base_offset + h.last_offset_delta + 1;
        p += size;
        n -= (size_t)size;
    }
    return KW_OK;
}

kw_err kb_fetch_old_convert(struct kb_read *r, int8_t magic, int64_t first_offset, struct kw_compressor *c, int64_t *next) {
    uint8_t *owned;
    const uint8_t *p;
    struct kw_out out;
    struct kw_blk *blk = NULL;
    *next = r->offset;
    kw_err err = join(r, &owned, &p);
    if (err != KW_OK) return err;
    kw_out_init(&out);
    err = convert_all(p, r->bytes, magic, first_offset, c, &out, next);
    if (err == KW_OK && out.len > 0) {
        blk = kw_blk_new(out.len);
        err = blk ? KW_OK : KW_ENOMEM;
    }
    if (err == KW_OK) {
        kb_read_release(r);
        r->bytes = out.len;
        r->slice_count = 0;
        if (blk) {
            memcpy(blk->data, out.p, out.len);
            r->slices[r->slice_count++] = (struct kb_slice){.blk = blk, .p = blk->data, .len = out.len};
        }
    }
    kw_out_deinit(&out);
    kw_free(owned);
    return err;
}
