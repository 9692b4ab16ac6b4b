/* records.c - record batches and message sets out of choices. Contract: gen.h. */
#include "gen.h"
#include "wire/message_set.h"

enum { RECORDS_MAX = 7, SETS_MAX = 3, HEADERS_MAX = 2 };

static struct kw_compressor *compressor;

struct kw_compressor *fuzz_compressor(void) {
    if (!compressor) compressor = kw_compressor_new();
    FUZZ_CHECK(compressor, "no compressor");
    return compressor;
}
void fuzz_compressor_drop(void) {
    kw_compressor_free(compressor);
    compressor = NULL;
}

static void *need(void *p) {
    FUZZ_CHECK(p, "no memory for the fuzzer's own records");
    return p;
}

/* A few bytes, or many of one kind; c: 0 and up. len -1: null. */
static struct kw_bytes draw_bytes(struct fuzz_src *s, uint8_t c, size_t max, struct kw_arena *a) {
    if (c >= 0xf8) return (struct kw_bytes){NULL, -1};
    size_t n = c < 0xe0 ? (size_t)c & 15 : ((size_t)c & 31) * 97 + 1;
    n = KW_MIN(n, max);
    uint8_t *p = need(kw_arena_alloc(a, n + 1));
    memset(p, c, n);
    if (n && c < 0xe0) p[0] = fuzz_u8(s);
    return (struct kw_bytes){p, (int32_t)n};
}

/* ---- v2 ---- */

static uint8_t *write_records(struct fuzz_src *s, const struct fuzz_records *r, int32_t count, uint8_t *at, uint8_t *end, struct kw_arena *a,
                              int64_t *latest) {
    int64_t time = 0;
    for (int32_t i = 0; i < count; i++) {
        uint8_t c = fuzz_u8(s);
        struct kw_header_view headers[HEADERS_MAX];
        struct kw_record_in rec = {.timestamp_delta = time, .offset_delta = i, .headers = headers, .header_count = c >> 6 & 1};
        rec.key = draw_bytes(s, c & 0x80 ? fuzz_u8(s) : 0xf8, r->body_max / 8, a);
        rec.value = draw_bytes(s, c & 0x3f ? fuzz_u8(s) : 4, r->body_max / 2, a);
        headers[0] = (struct kw_header_view){kw_str_of("guid"), draw_bytes(s, 16, 16, a)};
        if (c & 0x20) time += (int8_t)fuzz_u8(s);
        *latest = KW_MAX(*latest, rec.timestamp_delta);
        size_t size = kw_record_size(&rec);
        if (size > (size_t)(end - at)) return at;
        at = kw_record_write(at, &rec, size);
    }
    return at;
}

static void set_producer(struct fuzz_src *s, struct kw_batch_header *h) {
    uint8_t c = fuzz_u8(s);
    h->producer_id = c & 3;
    h->producer_epoch = c >> 2 & 1;
    h->base_sequence = c & 8 ? (int32_t)fuzz_u8(s) : c & 0x10 ? INT32_MAX - (c >> 5) : 0;
    if (c == 0xff) h->producer_id = (int64_t)fuzz_bytes(s, 8);
}

static struct kw_bytes compressed(struct kw_bytes batch, int codec, struct kw_arena *a) {
    size_t body = (size_t)batch.len - KW_BATCH_HEADER_SIZE, cap = KW_BATCH_HEADER_SIZE + kw_compress_bound(codec, body), n;
    uint8_t *p = need(kw_arena_alloc(a, cap));
    if (kw_batch_compress(fuzz_compressor(), codec, KW_LEVEL_DEFAULT, batch.p, (size_t)batch.len, p, cap, &n) != KW_OK) return batch;
    return (struct kw_bytes){p, (int32_t)n};
}

/* flags: 0-2 codec, 3 append time, 4 producer, 5 attributes and counts as drawn, 6 damage before the CRC, 7 behind it. */
static struct kw_bytes make_batch(struct fuzz_src *s, struct fuzz_records *r, struct kw_arena *a) {
    uint8_t flags = fuzz_u8(s), c = fuzz_u8(s), extra = flags & 0x20 ? fuzz_u8(s) : 0;
    int32_t count = c == 0 ? 1 : c % (RECORDS_MAX + 1);
    size_t cap = KW_BATCH_HEADER_SIZE + r->body_max + 512;
    uint8_t *p = need(kw_arena_calloc(a, 1, cap + 16));
    int64_t latest = 0;
    uint8_t *end = write_records(s, r, count, p + KW_BATCH_HEADER_SIZE, p + cap, a, &latest);
    struct kw_batch_header h = {.base_offset = r->base_offset, .length = (int32_t)(end - p - KW_BATCH_OVERHEAD), .leader_epoch = r->leader_epoch,
                                .magic = 2, .attributes = (int16_t)(flags & KW_ATTR_LOG_APPEND_TIME), .last_offset_delta = KW_MAX(count - 1, 0),
                                .base_timestamp = r->timestamp, .max_timestamp = r->timestamp + latest, .producer_id = -1, .producer_epoch = -1,
                                .base_sequence = -1, .record_count = count};
    if (flags & 0x10) set_producer(s, &h);
    h.attributes = (int16_t)(h.attributes | (extra & 0x70));
    if (extra & 0x80) h.last_offset_delta += (int8_t)fuzz_u8(s);
    if (extra & 0x08) h.record_count += (int8_t)fuzz_u8(s);
    if (extra & 0x04) h.base_offset += (int8_t)fuzz_u8(s);
    if (extra & 0x02) h.max_timestamp += (int64_t)fuzz_bytes(s, 4) - (1 << 30);
    kw_batch_write_header(p, &h);
    kw_batch_crc_set(p, (size_t)(end - p));
    struct kw_bytes b = {p, (int32_t)(end - p)};
    int codec = flags & 7;
    if (codec > 0 && codec < KW_CODEC_COUNT && kw_codec_built(codec)) b = compressed(b, codec, a);
    r->base_offset = h.base_offset + h.last_offset_delta + 1;
    r->timestamp = h.max_timestamp;
    if (!(flags & 0xc0)) return b;
    uint8_t *copy = need(kw_arena_alloc(a, (size_t)b.len + 16));
    memcpy(copy, b.p, (size_t)b.len);
    size_t n = fuzz_edit(s, copy, (size_t)b.len);
    if (flags & 0x40 && n >= KW_BATCH_HEADER_SIZE) {
        if (flags & 0x20) kw_store32(copy + KW_BATCH_LENGTH, (uint32_t)(n - KW_BATCH_OVERHEAD));
        kw_batch_crc_set(copy, n);
    }
    return (struct kw_bytes){copy, (int32_t)n};
}

/* ---- v0 and v1 ---- */

/* flags: 0-1 codec, 2 magic, 3 append time, 7 damage. */
static struct kw_bytes make_set(struct fuzz_src *s, struct fuzz_records *r, struct kw_arena *a) {
    uint8_t flags = fuzz_u8(s);
    int8_t magic = flags >> 2 & 1;
    int32_t count = 1 + (flags >> 4 & 3);
    struct kw_out set, out;
    kw_out_init(&set);
    kw_out_init(&out);
    int codec = flags & 3;
    bool wraps = codec && kw_codec_built(codec);
    int64_t first = wraps && magic ? 0 : r->base_offset;
    for (int32_t i = 0; i < count; i++) {
        struct kw_bytes key = draw_bytes(s, fuzz_u8(s) | 0xf0, 64, a), value = draw_bytes(s, fuzz_u8(s), r->body_max / 4, a);
        FUZZ_CHECK(kw_message_write(&set, magic, first + i, r->timestamp, flags & 8, key, value) == KW_OK, "a message cannot be written");
    }
    if (wraps) FUZZ_CHECK(kw_message_write_wrapper(&out, magic, codec, KW_LEVEL_DEFAULT, r->base_offset + count - 1, r->timestamp, flags & 8, set.p,
                                                   set.len, fuzz_compressor()) == KW_OK, "a wrapper cannot be written");
    else kw_out_bytes(&out, set.p, set.len);
    uint8_t *p = need(kw_arena_alloc(a, out.len + 16));
    size_t n = out.len;
    memcpy(p, out.p, n);
    kw_out_deinit(&set);
    kw_out_deinit(&out);
    r->base_offset += count;
    if (flags & 0x80) n = fuzz_edit(s, p, n);
    return (struct kw_bytes){p, (int32_t)n};
}

static struct kw_bytes make_raw(struct fuzz_src *s, struct kw_arena *a) {
    size_t n = fuzz_u8(s);
    n = KW_MIN(n, fuzz_left(s));
    uint8_t *p = need(kw_arena_alloc(a, n + 1));
    memcpy(p, s->p, n);
    s->p += n;
    return (struct kw_bytes){p, (int32_t)n};
}

struct kw_bytes fuzz_records_make(struct fuzz_src *s, struct fuzz_records *r, struct kw_arena *a) {
    struct kw_bytes parts[SETS_MAX];
    uint8_t kind = fuzz_u8(s);
    size_t count = 1 + (size_t)(kind & 3) % SETS_MAX, total = 0, at = 0;
    for (size_t i = 0; i < count; i++) {
        if (kind >= 0xf0) parts[i] = make_raw(s, a);
        else if (kind >= 0xb0 && !r->v2_only) parts[i] = make_set(s, r, a);
        else parts[i] = make_batch(s, r, a);
        total += (size_t)parts[i].len;
    }
    uint8_t *p = need(kw_arena_alloc(a, total + 16));
    for (size_t i = 0; i < count; at += (size_t)parts[i++].len)
        if (parts[i].len) memcpy(p + at, parts[i].p, (size_t)parts[i].len);
    return (struct kw_bytes){p, (int32_t)total};
}
