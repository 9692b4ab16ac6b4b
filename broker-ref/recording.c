/* recording.c - entries of a recording: what of a frame is stored, put together, found again in a file that may be cut or damaged. See recording.h. */
#include "recording.h"

#include "base/buf.h"
#include "base/crc32c.h"

enum { AT_SIZE = 4, AT_CRC = 8, AT_BODY = 12 };

bool kb_recording_is_secret(int16_t api_key) {
    static const int16_t keys[] = {36 /* SaslAuthenticate */, 38, 39, 40, 41 /* delegation tokens */, 50, 51 /* SCRAM credentials */};
    for (size_t i = 0; i < KW_COUNTOF(keys); i++)
        if (keys[i] == api_key) return true;
    return false;
}

/* ---- Written ---- */

static void add_piece(struct kb_recording_entry *e, size_t at, size_t len) {
    struct kb_piece *last = e->piece_count > 0 ? &e->pieces[e->piece_count - 1] : NULL;
    if (len == 0) return;
    if (last && last->at + last->len == at) {
        last->len += (uint32_t)len;
    } else if (e->piece_count < KB_RECORDING_PIECES_MAX) {
        e->pieces[e->piece_count++] = (struct kb_piece){(uint32_t)at, (uint32_t)len};
    } else {
        return;
    }
    e->data_size += len;
}

/* Memory first: it has what tells where everything else belongs. */
void kb_recording_choose(const struct kb_recorded *r, struct kb_recording_entry *e) {
    size_t memory = 0, at = 0;
    e->piece_count = e->data_size = 0;
    if (kb_recording_is_secret(r->api_key)) {
        e->flags |= KB_RECORDING_MASKED;
        return;
    }
    for (size_t i = 0; i < r->part_count; i++)
        if (r->parts[i].p) memory += r->parts[i].len;
    memory -= KW_MIN(memory, r->skip); /* lengths lie in memory */
    size_t room = KB_RECORDING_STORED_MAX, files = room - KW_MIN(memory, room);
    for (size_t i = 0, skip = r->skip; i < r->part_count; i++) {
        const struct kb_part *p = &r->parts[i];
        size_t off = KW_MIN(skip, p->len), len = p->len - off, take = KW_MIN(len, p->p ? room : files);
        skip -= off;
        add_piece(e, at, take);
        if (p->p)
            room -= take;
        else
            files -= take;
        at += len;
    }
}

static uint8_t *put_text(uint8_t *p, struct kw_str s) {
    if (s.len > 0) memcpy(p, s.p, (size_t)s.len);
    return p + KW_MAX(s.len, 0);
}

static struct kw_str cut_text(struct kw_str s) {
    if (s.len > KB_RECORDING_TEXT_MAX) s.len = KB_RECORDING_TEXT_MAX;
    return s;
}

size_t kb_recording_head(const struct kb_recording_entry *e, const struct kb_iov *iov, size_t iov_count, uint8_t out[KB_RECORDING_HEAD_MAX]) {
    struct kw_str peer = cut_text(e->peer), client = cut_text(e->client_id);
    uint8_t *p = out + KB_RECORDING_FIXED;
    kw_store32(out, KB_RECORDING_MAGIC);
    out[12] = e->response;
    out[13] = e->flags;
    kw_store16(out + 14, (uint16_t)KW_MAX(peer.len, 0));
    kw_store32(out + 16, (uint32_t)e->node);
    kw_store16(out + 20, (uint16_t)e->api_key);
    kw_store16(out + 22, (uint16_t)e->version);
    kw_store32(out + 24, (uint32_t)e->correlation_id);
    kw_store32(out + 28, e->frame_size);
    kw_store64(out + 32, (uint64_t)e->connection);
    kw_store64(out + 40, (uint64_t)e->at_us);
    kw_store64(out + 48, (uint64_t)e->took_us);
    kw_store16(out + 56, client.len < 0 ? UINT16_MAX : (uint16_t)client.len);
    kw_store16(out + 58, (uint16_t)e->piece_count);
    p = put_text(put_text(p, peer), client);
    for (size_t i = 0; i < e->piece_count; i++, p += 8) {
        kw_store32(p, e->pieces[i].at);
        kw_store32(p + 4, e->pieces[i].len);
    }
    size_t n = (size_t)(p - out), size = n - AT_BODY;
    uint32_t crc = kw_crc32c(0, out + AT_BODY, size);
    for (size_t i = 0; i < iov_count; i++) {
        crc = kw_crc32c(crc, iov[i].p, iov[i].len);
        size += iov[i].len;
    }
    kw_store32(out + AT_SIZE, (uint32_t)size);
    kw_store32(out + AT_CRC, crc);
    return n;
}

/* ---- Read ---- */

/* How far it is from p to the next place behind it where an entry may begin. */
static size_t to_next_magic(const uint8_t *p, size_t n) {
    for (size_t i = 1; i < n; i++) {
        const uint8_t *k = memchr(p + i, KB_RECORDING_MAGIC >> 24, n - i);
        if (!k) return n;
        i = (size_t)(k - p);
        if (n - i < 4 || kw_load32(k) == KB_RECORDING_MAGIC) return i;
    }
    return n;
}

static bool parse_pieces(struct kw_in *in, struct kb_recording_entry *e) {
    uint64_t from = 0, sum = 0;
    for (size_t i = 0; i < e->piece_count; i++) {
        struct kb_piece *k = &e->pieces[i];
        k->at = (uint32_t)kw_in_i32(in);
        k->len = (uint32_t)kw_in_i32(in);
        if (k->at < from || k->len == 0 || (uint64_t)k->at + k->len > e->frame_size) return false;
        from = (uint64_t)k->at + k->len;
        sum += k->len;
    }
    e->data_size = kw_in_left(in);
    e->data = in->p;
    return in->err == KW_OK && sum == e->data_size;
}

static bool parse(const uint8_t *p, size_t n, struct kb_recording_entry *e) {
    struct kw_in in;
    kw_in_init(&in, p + KB_RECORDING_FIXED, n - KB_RECORDING_FIXED);
    *e = (struct kb_recording_entry){.response = p[12],
                                     .flags = p[13],
                                     .node = (int32_t)kw_load32(p + 16),
                                     .api_key = (int16_t)kw_load16(p + 20),
                                     .version = (int16_t)kw_load16(p + 22),
                                     .correlation_id = (int32_t)kw_load32(p + 24),
                                     .frame_size = kw_load32(p + 28),
                                     .connection = (int64_t)kw_load64(p + 32),
                                     .at_us = (int64_t)kw_load64(p + 40),
                                     .took_us = (int64_t)kw_load64(p + 48),
                                     .peer = {NULL, kw_load16(p + 14)},
                                     .client_id = {NULL, kw_load16(p + 56)},
                                     .piece_count = kw_load16(p + 58)};
    if (p[12] > 1 || e->piece_count > KB_RECORDING_PIECES_MAX) return false;
    if (e->client_id.len == UINT16_MAX) e->client_id.len = -1;
    e->peer.p = (const char *)kw_in_take(&in, (size_t)e->peer.len);
    if (e->client_id.len >= 0) e->client_id.p = (const char *)kw_in_take(&in, (size_t)e->client_id.len);
    return parse_pieces(&in, e);
}

enum kb_recording_found kb_recording_next(const uint8_t *p, size_t n, bool end, struct kb_recording_entry *e, size_t *used, const char **why) {
    *used = 0;
    if (n == 0 || (n < AT_BODY && !end)) return KB_RECORDING_MORE;
    *used = to_next_magic(p, n);
    *why = "it is cut off";
    if (n < AT_BODY) return KB_RECORDING_UNSOUND;
    uint32_t size = kw_load32(p + AT_SIZE);
    *why = "no entry begins there";
    if (kw_load32(p) != KB_RECORDING_MAGIC) return KB_RECORDING_UNSOUND;
    *why = "its size is impossible";
    if (size < KB_RECORDING_FIXED - AT_BODY || size > KB_RECORDING_ENTRY_MAX) return KB_RECORDING_UNSOUND;
    *why = "it is cut off";
    if (n - AT_BODY < size) return end ? KB_RECORDING_UNSOUND : KB_RECORDING_MORE;
    *why = "its checksum is wrong";
    if (kw_crc32c(0, p + AT_BODY, size) != kw_load32(p + AT_CRC)) return KB_RECORDING_UNSOUND;
    *why = "its fields contradict each other";
    if (!parse(p, AT_BODY + size, e)) return KB_RECORDING_UNSOUND;
    *used = AT_BODY + size;
    return KB_RECORDING_ENTRY;
}

const uint8_t *kb_recording_frame(const struct kb_recording_entry *e, uint8_t **made) {
    *made = NULL;
    if (e->frame_size > KB_RECORDING_FRAME_MAX) return NULL;
    if (e->data_size == e->frame_size) return e->frame_size > 0 ? e->data : kw_in_none;
    uint8_t *frame = *made = kw_calloc(1, e->frame_size);
    const uint8_t *from = e->data;
    for (size_t i = 0; frame && i < e->piece_count; from += e->pieces[i++].len) memcpy(frame + e->pieces[i].at, from, e->pieces[i].len);
    return frame;
}

size_t kb_recording_stored(const struct kb_recording_entry *e, size_t at, size_t len) {
    for (size_t i = 0; i < e->piece_count; i++) {
        size_t from = e->pieces[i].at, to = from + e->pieces[i].len;
        if (at >= from && at < to) return KW_MIN(len, to - at);
    }
    return 0;
}
