/* pid_state.c - producer state of a log and its snapshot format. Called by append, recover, api/produce; calls base. KIP-98, KIP-360. */
#include "pid_state.h"

#include "base/crc32c.h"

enum { SNAPSHOT_VERSION = 1, SNAPSHOT_HEAD = 10, SNAPSHOT_CRC_FROM = 6, SNAPSHOT_ENTRY = 46, COUNT_BITS = 3 };
static const uint32_t trailer_magic = 0x6b623577; /* "kb5w" */

void kb_pid_state_init(struct kb_pid_state *s) {
    memset(s, 0, sizeof(*s));
    kw_map_init(&s->by_pid);
}

void kb_pid_clear(struct kb_pid_state *s) {
    struct kb_pid_entry *e;
    for (size_t it = 0; (e = kw_map_next(&s->by_pid, &it));) kw_free(e);
    kw_map_deinit(&s->by_pid);
    kb_pid_state_init(s);
}

void kb_pid_state_deinit(struct kb_pid_state *s) { kb_pid_clear(s); }

const struct kb_pid_entry *kb_pid_get(const struct kb_pid_state *s, int64_t pid) { return kw_map_get_u64(&s->by_pid, (uint64_t)pid); }

/* Sequences run from 0 to 2^31-1 and start over at 0. */
static int32_t seq_add(int32_t seq, int32_t n) {
    int64_t v = (int64_t)seq + n;
    return (int32_t)(v > INT32_MAX ? v - INT32_MAX - 1 : v);
}

static int32_t seq_sub(int32_t seq, int32_t n) {
    int64_t v = (int64_t)seq - n;
    return (int32_t)(v < 0 ? v + INT32_MAX + 1 : v);
}

enum kb_pid_verdict kb_pid_check(const struct kb_pid_state *s, const struct kw_batch_header *h, struct kb_pid_batch *dup) {
    const struct kb_pid_entry *e = kb_pid_get(s, h->producer_id);
    if (!e) {
        if (h->base_sequence == 0) return KB_PID_APPEND;
        return s->forgetful ? KB_PID_UNKNOWN : KB_PID_OUT_OF_ORDER;
    }
    if (h->producer_epoch < e->epoch) return KB_PID_FENCED;
    if (h->producer_epoch > e->epoch) return h->base_sequence == 0 ? KB_PID_APPEND : KB_PID_OUT_OF_ORDER;
    int32_t last = seq_add(h->base_sequence, h->last_offset_delta);
    for (uint8_t i = 0; i < e->batch_count; i++) {
        if (e->batches[i].first_seq == h->base_sequence && e->batches[i].last_seq == last) {
            *dup = e->batches[i];
            return KB_PID_DUPLICATE;
        }
    }
    int32_t next = e->batch_count ? seq_add(e->batches[e->batch_count - 1].last_seq, 1) : 0;
    return h->base_sequence == next ? KB_PID_APPEND : KB_PID_OUT_OF_ORDER;
}

static void push_batch(struct kb_pid_entry *e, struct kb_pid_batch b) {
    if (e->batch_count == KB_PID_BATCHES) memmove(e->batches, e->batches + 1, sizeof(b) * --e->batch_count);
    e->batches[e->batch_count++] = b;
}

kw_err kb_pid_update(struct kb_pid_state *s, const struct kw_batch_header *h, int64_t first_offset, int64_t last_offset, int64_t now_wall_ms) {
    if (h->producer_id < 0) return KW_OK;
    struct kb_pid_entry *e = kw_map_get_u64(&s->by_pid, (uint64_t)h->producer_id);
    if (!e) {
        e = kw_calloc(1, sizeof(*e));
        if (!e) return KW_ENOMEM;
        e->pid = h->producer_id;
        e->epoch = h->producer_epoch;
        e->coordinator_epoch = -1;
        e->txn_first_offset = -1;
        kw_err err = kw_map_put_u64(&s->by_pid, (uint64_t)e->pid, e);
        if (err) {
            kw_free(e);
            return err;
        }
    }
    if (h->producer_epoch != e->epoch) {
        e->epoch = h->producer_epoch;
        e->batch_count = 0;
    }
    e->last_timestamp = now_wall_ms;
    if (h->attributes & KW_ATTR_CONTROL) {
        e->txn_first_offset = -1;
        return KW_OK;
    }
    if ((h->attributes & KW_ATTR_TRANSACTIONAL) && e->txn_first_offset < 0) e->txn_first_offset = first_offset;
    if (h->base_sequence >= 0)
        push_batch(e, (struct kb_pid_batch){h->base_sequence, seq_add(h->base_sequence, h->last_offset_delta), first_offset, last_offset, h->max_timestamp,
                                            h->record_count <= h->last_offset_delta});
    return KW_OK;
}

kw_err kb_pid_merge(struct kb_pid_state *s, const struct kb_pid_state *old, int64_t to) {
    const struct kb_pid_entry *o;
    for (size_t it = 0; (o = kw_map_next(&old->by_pid, &it));) {
        uint8_t left = o->batch_count;
        while (left && o->batches[left - 1].last_offset >= to) left--;
        struct kb_pid_entry *e = kw_map_get_u64(&s->by_pid, (uint64_t)o->pid);
        bool whole = left == o->batch_count;
        if (!whole && (left == 0 || (e && (e->epoch != o->epoch || e->batch_count >= left)))) continue;
        if (!e) {
            e = kw_malloc(sizeof(*e));
            kw_err err = e ? kw_map_put_u64(&s->by_pid, (uint64_t)o->pid, e) : KW_ENOMEM;
            if (err) {
                kw_free(e);
                return err;
            }
        }
        *e = *o;
        e->batch_count = left;
        if (e->txn_first_offset >= to) e->txn_first_offset = -1;
    }
    s->forgetful = s->forgetful || old->forgetful;
    return KW_OK;
}

size_t kb_pid_expire(struct kb_pid_state *s, int64_t older_than_wall_ms) {
    size_t n = 0;
    struct kb_pid_entry *e;
    for (size_t it = 0; (e = kw_map_next(&s->by_pid, &it));) {
        if (e->last_timestamp >= older_than_wall_ms || e->txn_first_offset >= 0) continue;
        kw_map_remove_u64(&s->by_pid, (uint64_t)e->pid);
        kw_free(e);
        n++;
    }
    if (n) s->forgetful = true;
    return n;
}

int64_t kb_pid_highest(const struct kb_pid_state *s) {
    int64_t highest = -1;
    const struct kb_pid_entry *e;
    for (size_t it = 0; (e = kw_map_next(&s->by_pid, &it));)
        if (e->pid <= KB_PID_HANDED_OUT_MAX) highest = KW_MAX(highest, e->pid);
    return highest;
}

static void encode_entry(const struct kb_pid_entry *e, struct kw_out *out) {
    const struct kb_pid_batch *last = e->batch_count ? &e->batches[e->batch_count - 1] : NULL;
    kw_out_i64(out, e->pid);
    kw_out_i16(out, e->epoch);
    kw_out_i32(out, last ? last->last_seq : -1);
    kw_out_i64(out, last ? last->last_offset : -1);
    kw_out_i32(out, last ? (int32_t)(last->last_offset - last->first_offset) : 0);
    kw_out_i64(out, e->last_timestamp);
    kw_out_i32(out, e->coordinator_epoch);
    kw_out_i64(out, e->txn_first_offset);
}

static void encode_window(const struct kb_pid_entry *e, struct kw_out *out) {
    uint8_t holes = 0; /* a bit a batch, above the three of their number */
    for (uint8_t i = 0; i < e->batch_count; i++) holes |= (uint8_t)(e->batches[i].holes << i);
    kw_out_i8(out, (int8_t)(holes << COUNT_BITS | e->batch_count));
    for (uint8_t i = 0; i < e->batch_count; i++) {
        kw_out_i32(out, e->batches[i].first_seq);
        kw_out_i32(out, e->batches[i].last_seq);
        kw_out_i64(out, e->batches[i].first_offset);
        kw_out_i64(out, e->batches[i].last_offset);
        kw_out_i64(out, e->batches[i].timestamp);
    }
}

kw_err kb_pid_encode(const struct kb_pid_state *s, struct kw_out *out) {
    size_t from = out->len;
    if (s->by_pid.count > INT32_MAX / 256) return KW_ELIMIT;
    kw_out_i16(out, SNAPSHOT_VERSION);
    kw_out_i32(out, 0);
    kw_out_i32(out, (int32_t)s->by_pid.count);
    struct kb_pid_entry *e;
    for (size_t it = 0; (e = kw_map_next(&s->by_pid, &it));) encode_entry(e, out);
    kw_out_i32(out, (int32_t)trailer_magic);
    kw_out_i8(out, s->forgetful);
    for (size_t it = 0; (e = kw_map_next(&s->by_pid, &it));) encode_window(e, out);
    if (out->err) return out->err;
    uint8_t *p = out->p + from;
    kw_store32(p + 2, kw_crc32c(0, p + SNAPSHOT_CRC_FROM, out->len - from - SNAPSHOT_CRC_FROM));
    return KW_OK;
}

static kw_err decode_entry(struct kb_pid_state *s, struct kw_in *in) {
    struct kb_pid_entry *e = kw_calloc(1, sizeof(*e));
    if (!e) return KW_ENOMEM;
    e->pid = kw_in_i64(in);
    e->epoch = kw_in_i16(in);
    int32_t last_seq = kw_in_i32(in);
    int64_t last_offset = kw_in_i64(in);
    int32_t delta = kw_in_i32(in);
    e->last_timestamp = kw_in_i64(in);
    e->coordinator_epoch = kw_in_i32(in);
    e->txn_first_offset = kw_in_i64(in);
    kw_err err = in->err;
    if (!err && (e->pid < 0 || last_seq < -1 || delta < 0 || last_offset < -1 || e->txn_first_offset < -1)) err = KW_EDECODE;
    if (!err && last_seq >= 0) {
        if (delta > last_offset) err = KW_EDECODE;
        else push_batch(e, (struct kb_pid_batch){seq_sub(last_seq, delta), last_seq, last_offset - delta, last_offset, e->last_timestamp, false});
    }
    if (!err && kw_map_get_u64(&s->by_pid, (uint64_t)e->pid)) err = KW_EDECODE;
    if (!err) err = kw_map_put_u64(&s->by_pid, (uint64_t)e->pid, e);
    if (err) kw_free(e);
    return err;
}

static kw_err decode_window(struct kb_pid_entry *e, struct kw_in *in) {
    uint8_t head = (uint8_t)kw_in_i8(in), n = head & ((1 << COUNT_BITS) - 1);
    if (in->err || n > KB_PID_BATCHES) return KW_EDECODE;
    e->batch_count = n;
    for (uint8_t i = 0; i < n; i++) {
        struct kb_pid_batch *b = &e->batches[i];
        b->holes = head >> (COUNT_BITS + i) & 1;
        b->first_seq = kw_in_i32(in);
        b->last_seq = kw_in_i32(in);
        b->first_offset = kw_in_i64(in);
        b->last_offset = kw_in_i64(in);
        b->timestamp = kw_in_i64(in);
        if (b->first_seq < 0 || b->last_seq < 0 || b->first_offset < 0 || b->last_offset < b->first_offset) return KW_EDECODE;
    }
    return in->err ? KW_EDECODE : KW_OK;
}

static kw_err decode_trailer(struct kb_pid_state *s, struct kw_in *in) {
    if ((uint32_t)kw_in_i32(in) != trailer_magic) return in->err ? KW_EDECODE : KW_OK; /* someone else's: not ours to judge */
    s->forgetful = kw_in_i8(in) != 0;
    struct kb_pid_entry *e;
    for (size_t it = 0; (e = kw_map_next(&s->by_pid, &it));) {
        kw_err err = decode_window(e, in);
        if (err) return err;
    }
    return kw_in_left(in) ? KW_EDECODE : KW_OK;
}

kw_err kb_pid_decode(struct kb_pid_state *s, const uint8_t *p, size_t n) {
    if (n < SNAPSHOT_HEAD) return KW_ESHORT;
    struct kw_in in;
    kw_in_init(&in, p, n);
    if (kw_in_i16(&in) != SNAPSHOT_VERSION) return KW_EVERSION;
    uint32_t crc = (uint32_t)kw_in_i32(&in);
    if (crc != kw_crc32c(0, p + SNAPSHOT_CRC_FROM, n - SNAPSHOT_CRC_FROM)) return KW_ECRC;
    int32_t count = kw_in_i32(&in);
    if (count < 0 || (size_t)count > kw_in_left(&in) / SNAPSHOT_ENTRY) return KW_EDECODE;
    struct kb_pid_state r;
    kb_pid_state_init(&r);
    kw_err err = KW_OK;
    for (int32_t i = 0; i < count && !err; i++) err = decode_entry(&r, &in);
    if (!err && kw_in_left(&in)) err = decode_trailer(&r, &in);
    if (err) {
        kb_pid_state_deinit(&r);
        return err;
    }
    kb_pid_clear(s);
    *s = r;
    return KW_OK;
}
