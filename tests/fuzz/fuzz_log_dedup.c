/* fuzz_log_dedup.c - one batch against the GUID index: made of the input, as it is or with its bytes changed and its checksum mended.
 *
 * Whatever it is: what is read of it stays inside of it. What a broker would take gets verdicts that are those of a plain look at every pair of records,
 * and the batch without its duplicates is one that a follower takes: what is kept is there byte for byte, at its offset, and all else of the header as it
 * was sent.
 */
#include <stdlib.h>

#include "kit/kit.h"

#include "guid/dedup.h"
#include "wire/compress.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
extern const size_t fuzz_head_size;
const size_t fuzz_head_size = 2;

enum { EDITED = 1, MENDED = 2, STRANGE = 4, LIMIT = 1 << 16, RECORDS_MAX = 200, BASE = 1000 };

struct plain { /* a record, looked at plainly */
    uint8_t id[KB_GUID_SIZE];
    bool has_id, wrong;
    const uint8_t *p;
    size_t size;
    int64_t timestamp;
};

/* ---- A batch ---- */

static size_t put_headers(struct fuzz_src *s, uint8_t how, struct kw_header_view v[3], uint8_t id[KB_GUID_SIZE]) {
    size_t n = 0;
    memset(id, 0, KB_GUID_SIZE);
    id[how & 8 ? 0 : 15] = fuzz_u8(s) & 31;
    if (how & 1) v[n++] = (struct kw_header_view){kw_str_of("guide"), {id, 16}};
    if (how & 6) v[n++] = (struct kw_header_view){kw_str_of("guid"), {id, KB_GUID_SIZE}};
    if ((how & 0x70) == 0x70) v[n++] = (struct kw_header_view){kw_str_of("guid"), {id, (how & 0x80) ? -1 : fuzz_u8(s) % 17}};
    return n;
}

static size_t make(struct fuzz_src *s, uint8_t options, struct kw_compressor *c, uint8_t *p, size_t cap) {
    uint8_t shape = fuzz_u8(s), *at = p + KW_BATCH_HEADER_SIZE;
    int32_t count = 0;
    int64_t newest = INT64_MIN;
    while (fuzz_left(s) > 3 && count < RECORDS_MAX) {
        uint8_t how = fuzz_u8(s), id[KB_GUID_SIZE];
        struct kw_header_view v[3];
        struct kw_record_in rec = {.timestamp_delta = (int8_t)fuzz_u8(s), .offset_delta = count++, .key = {NULL, -1}, .headers = v};
        if (!(options & STRANGE)) how &= 0x8f;
        rec.header_count = put_headers(s, how, v, id);
        rec.value = (struct kw_bytes){s->p, (int32_t)KW_MIN(fuzz_left(s), (size_t)(how & 3))};
        at = kw_record_write(at, &rec, kw_record_size(&rec));
        newest = KW_MAX(newest, rec.timestamp_delta);
    }
    size_t size = (size_t)(at - p);
    bool idempotent = shape & 1;
    struct kw_batch_header h = {.length = (int32_t)(size - KW_BATCH_OVERHEAD), .leader_epoch = -1, .magic = 2, .last_offset_delta = count - 1,
                                .attributes = shape & 2 ? KW_ATTR_LOG_APPEND_TIME : 0, .base_timestamp = 5000, .max_timestamp = 5000 + newest,
                                .producer_id = idempotent ? 7 : -1, .producer_epoch = idempotent ? 3 : -1, .base_sequence = idempotent ? 11 : -1,
                                .record_count = count};
    kw_batch_write_header(p, &h);
    kw_batch_crc_set(p, size);
    int codec = shape >> 2 & 7;
    uint8_t *packed = codec > 0 && codec < KW_CODEC_COUNT ? malloc(cap) : NULL;
    size_t n;
    if (packed && count > 0 && kw_batch_compress(c, codec, KW_LEVEL_DEFAULT, p, size, packed, cap, &n) == KW_OK) {
        memcpy(p, packed, n);
        size = n;
    }
    free(packed);
    return size;
}

/* ---- A plain look ---- */

static size_t look(const uint8_t *p, size_t n, struct kw_compressor *c, struct plain *v, uint8_t **body_copy) {
    struct kw_batch_header h;
    const uint8_t *body;
    size_t body_size, count = 0, at = 0;
    struct kw_record_iter it;
    struct kw_record_view r;
    FUZZ_CHECK(kw_batch_parse(p, n, &h) == KW_OK && kw_batch_body(p, n, &h, LIMIT, c, &body, &body_size) == KW_OK, "it cannot be read again");
    *body_copy = malloc(body_size + 1);
    if (body_size > 0) memcpy(*body_copy, body, body_size);
    kw_record_iter_init(&it, &h, *body_copy, body_size);
    int32_t more;
    while ((more = kw_record_next(&it, &r)) > 0) {
        struct kw_in in;
        struct kw_header_view hv;
        size_t ids = 0;
        FUZZ_CHECK(r.offset_delta >= 0 && r.offset_delta <= h.last_offset_delta, "a record at delta %d", r.offset_delta);
        struct plain *x = &v[r.offset_delta];
        *x = (struct plain){.p = *body_copy + at, .size = r.wire_size, .timestamp = r.timestamp};
        at += r.wire_size;
        kw_in_init(&in, r.headers, r.headers_size);
        while (kw_record_header_next(&in, &hv) > 0) {
            if (!kw_str_eq(hv.key, kw_str_of("guid"))) continue;
            ids++;
            x->wrong = x->wrong || hv.value.len != KB_GUID_SIZE || ids > 1;
            if (hv.value.len == KB_GUID_SIZE) memcpy(x->id, hv.value.p, KB_GUID_SIZE);
        }
        x->has_id = ids == 1 && !x->wrong;
        count++;
    }
    FUZZ_CHECK(more == 0 && (int32_t)count == h.record_count, "%zu records of %d", count, h.record_count);
    return count;
}

/* Where the index has an id: some are known. */
static int64_t known(const uint8_t *id, uint8_t salt) {
    uint8_t x = (uint8_t)(id[0] + id[15] + salt);
    return x & 1 ? -1 : x;
}
/* Where the first copy of record i is; -1: nowhere. */
static int64_t first_of(const struct plain *v, size_t i, uint8_t salt) {
    if (!v[i].has_id) return -1;
    if (known(v[i].id, salt) >= 0) return known(v[i].id, salt);
    for (size_t k = 0; k < i; k++)
        if (v[k].has_id && memcmp(v[k].id, v[i].id, KB_GUID_SIZE) == 0) return BASE + (int64_t)k;
    return -1;
}

static void check_rewritten(struct kb_dedup *d, const uint8_t *p, size_t n, const struct plain *v, size_t count, struct kw_compressor *c) {
    struct kw_batch_header h, was;
    struct kw_blk *blk;
    static struct plain w[1 << 16];
    size_t size;
    uint8_t *body;
    FUZZ_CHECK(kw_batch_parse(p, n, &was) == KW_OK, "parsed before");
    FUZZ_CHECK(kb_dedup_rewrite(d, p, n, &was, c, KW_LEVEL_DEFAULT, LIMIT, &blk, &size) == KW_OK, "it cannot be rewritten");
    struct kw_batch_check check = {.allow_holes = true, .limit = LIMIT, .compressor = c};
    struct kw_batch_facts facts;
    const char *why = NULL;
    if (d->kept > 0) FUZZ_CHECK(kw_batch_check(blk->data, size, &check, &facts, &why) == KW_OK, "a follower would refuse it: %s", why);
    FUZZ_CHECK(kw_batch_parse(blk->data, size, &h) == KW_OK && kw_batch_crc_ok(blk->data, size), "its header or checksum");
    FUZZ_CHECK(h.record_count == (int32_t)d->kept && h.last_offset_delta == was.last_offset_delta && h.base_timestamp == was.base_timestamp &&
                   h.producer_id == was.producer_id && h.producer_epoch == was.producer_epoch && h.base_sequence == was.base_sequence,
               "its header is another");
    FUZZ_CHECK((h.attributes & ~KW_ATTR_CODEC) == (was.attributes & ~KW_ATTR_CODEC), "its attributes are others");
    memset(w, 0, count * sizeof(*w));
    FUZZ_CHECK(look(blk->data, size, c, w, &body) == d->kept, "not as many as are kept");
    int64_t newest = INT64_MIN;
    for (size_t i = 0; i < count; i++) {
        bool kept = kb_dedup_first(d, i, BASE) < 0;
        FUZZ_CHECK(kept == (w[i].size > 0), "record %zu", i);
        if (kept) FUZZ_CHECK(w[i].size == v[i].size && memcmp(w[i].p, v[i].p, v[i].size) == 0, "the bytes of record %zu are others", i);
        if (kept) newest = KW_MAX(newest, v[i].timestamp);
    }
    bool as_sent = d->kept == 0 || (was.attributes & KW_ATTR_LOG_APPEND_TIME);
    FUZZ_CHECK(h.max_timestamp == (as_sent ? was.max_timestamp : newest), "its largest timestamp");
    free(body);
    kw_blk_unref(blk);
}

static void check_dedup(const uint8_t *p, size_t n, uint8_t salt, struct kw_compressor *c) {
    struct kw_batch_header h;
    struct kw_rng rng;
    static struct plain v[1 << 16];
    uint8_t *body;
    size_t bad = 0, kept = 0, ids = 0;
    kw_rng_init(&rng, salt);
    struct kb_dedup *d = kb_dedup_new(&rng);
    FUZZ_CHECK(d && kw_batch_parse(p, n, &h) == KW_OK, "no memory");
    size_t count = look(p, n, c, v, &body);
    for (size_t i = 0; i < count; i++) bad += v[i].wrong;
    FUZZ_CHECK(kb_dedup_take(d, p, n, &h, c, LIMIT) == KW_OK, "it cannot be taken");
    FUZZ_CHECK(d->batch.count == count && d->batch.bad_count == bad, "%zu records, %zu bad, and %zu and %zu are found", count, bad, d->batch.count,
               d->batch.bad_count);
    if (bad == 0) {
        for (size_t i = 0; i < d->batch.entry_count; i++) d->found[i].offset = known(d->batch.entries[i].id, salt);
        FUZZ_CHECK(kb_dedup_judge(d) == KW_OK, "it cannot be judged");
        for (size_t i = 0; i < count; i++) {
            int64_t first = first_of(v, i, salt);
            FUZZ_CHECK(kb_dedup_first(d, i, BASE) == first, "record %zu: first copy at %lld, should be %lld", i, (long long)kb_dedup_first(d, i, BASE),
                       (long long)first);
            kept += first < 0;
            ids += first < 0 && v[i].has_id;
        }
        FUZZ_CHECK(d->kept == kept, "%zu kept, should be %zu", d->kept, kept);
        check_rewritten(d, p, n, v, count, c);
        FUZZ_CHECK(kb_dedup_stored(d, BASE) == ids, "what the index is told");
        for (size_t i = 0; i < ids; i++) {
            int64_t at = d->batch.entries[i].offset - BASE;
            FUZZ_CHECK(at >= 0 && at < (int64_t)count && memcmp(v[at].id, d->batch.entries[i].id, KB_GUID_SIZE) == 0, "an id at another's offset");
        }
    }
    free(body);
    kb_dedup_free(d);
}

/* Others are refused as they come (produce_check.c). */
static bool is_produced(const uint8_t *p) {
    return kw_load64(p + KW_BATCH_BASE_OFFSET) == 0 && !(kw_load16(p + KW_BATCH_ATTRIBUTES) & KW_ATTR_CONTROL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz_src input = {data, data + size};
    uint8_t options = fuzz_u8(&input), salt = fuzz_u8(&input);
    size_t cap = KW_BATCH_HEADER_SIZE + 8192 + (size_t)RECORDS_MAX * 128;
    uint8_t *p = malloc(cap);
    struct kw_compressor *c = kw_compressor_new();
    struct kb_guid_batch b;
    struct kw_batch_header h;
    FUZZ_CHECK(p && c, "no memory");
    struct fuzz_src changes = {input.p, input.p + (options & EDITED ? KW_MIN(fuzz_left(&input), (size_t)16) : 0)};
    input.p = changes.end;
    size_t n = make(&input, options, c, p, cap - 8);
    if (options & EDITED) n = fuzz_edit(&changes, p, n);
    if ((options & MENDED) && n >= KW_BATCH_HEADER_SIZE) {
        p[KW_BATCH_MAGIC] = 2;
        kw_store32(p + KW_BATCH_LENGTH, (uint32_t)(n - KW_BATCH_OVERHEAD));
        kw_batch_crc_set(p, n);
    }
    uint8_t *exact = malloc(n + !n); /* so that a read past its end is seen */
    memcpy(exact, p, n);
    kb_guid_batch_init(&b);
    if (kw_batch_parse(exact, n, &h) == KW_OK) (void)!kb_guid_extract(exact, n, &h, c, LIMIT, &b);
    kb_guid_batch_deinit(&b);
    struct kw_batch_check check = {.limit = LIMIT, .compressor = c};
    struct kw_batch_facts facts;
    const char *why = NULL;
    if (kw_batch_check(exact, n, &check, &facts, &why) == KW_OK && is_produced(exact)) check_dedup(exact, n, salt, c);
    kw_compressor_free(c);
    free(exact);
    free(p);
    return 0;
}
