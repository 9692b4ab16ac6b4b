/* manifest.c - what guid/manifest says. Contract and format: manifest.h. */
#include "manifest.h"

#include "base/crc32c.h"

static const uint8_t magic[8] = {'K', 'B', 'G', 'U', 'I', 'D', 'M', '1'};

kw_err kb_manifest_encode(const struct kb_manifest *m, struct kw_out *out) {
    size_t from = out->len;
    kw_out_bytes(out, magic, sizeof(magic));
    kw_out_i64(out, (int64_t)m->key[0]);
    kw_out_i64(out, (int64_t)m->key[1]);
    kw_out_i64(out, (int64_t)m->next_seq);
    kw_out_i64(out, m->end);
    kw_out_i32(out, m->end_epoch);
    kw_out_i32(out, (int32_t)m->count);
    for (size_t i = 0; i < m->count; i++) {
        kw_out_i64(out, (int64_t)m->runs[i].seq);
        kw_out_i64(out, m->runs[i].base);
        kw_out_i64(out, m->runs[i].valid_to);
        kw_out_i32(out, m->runs[i].epoch);
    }
    if (out->err != KW_OK) return out->err;
    kw_out_i32(out, (int32_t)kw_crc32c(0, out->p + from, out->len - from));
    return out->err;
}

static bool sane(const struct kb_manifest *m) {
    int64_t at = 0;
    for (size_t i = 0; i < m->count; i++) {
        const struct kb_manifest_run *r = &m->runs[i];
        if (r->seq >= m->next_seq || r->base < at || r->valid_to <= r->base) return false;
        for (size_t k = 0; k < i; k++)
            if (m->runs[k].seq == r->seq) return false;
        at = r->valid_to;
    }
    return m->end >= at;
}

kw_err kb_manifest_decode(struct kb_manifest *m, const uint8_t *p, size_t n) {
    struct kw_in in;
    if (n < sizeof(magic) + 4 || n > KB_MANIFEST_SIZE_MAX || memcmp(p, magic, sizeof(magic)) != 0) return KW_EDECODE;
    if (kw_crc32c(0, p, n - 4) != kw_load32(p + n - 4)) return KW_ECRC;
    kw_in_init(&in, p + sizeof(magic), n - sizeof(magic) - 4);
    m->key[0] = (uint64_t)kw_in_i64(&in);
    m->key[1] = (uint64_t)kw_in_i64(&in);
    m->next_seq = (uint64_t)kw_in_i64(&in);
    m->end = kw_in_i64(&in);
    m->end_epoch = kw_in_i32(&in);
    int32_t count = kw_in_i32(&in);
    if (in.err != KW_OK || count < 0 || count > KB_MANIFEST_RUNS_MAX) return KW_EDECODE;
    m->count = (size_t)count;
    for (size_t i = 0; i < m->count; i++) {
        m->runs[i].seq = (uint64_t)kw_in_i64(&in);
        m->runs[i].base = kw_in_i64(&in);
        m->runs[i].valid_to = kw_in_i64(&in);
        m->runs[i].epoch = kw_in_i32(&in);
    }
    return in.err == KW_OK && kw_in_left(&in) == 0 && sane(m) ? KW_OK : KW_EDECODE;
}
