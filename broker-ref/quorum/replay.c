/* replay.c - walks batches of metadata records and applies them to the image. Contract: meta_batch.h.
 *
 * Called by the store: at start for snapshot and log, later for every batch that has been committed, from the very bytes that are on the
 * disk.
 */
#include <stdio.h>

#include "advertise.h"
#include "kw_messages.h"
#include "meta_batch.h"

#define RECORD_MEMORY_MAX (256u << 20) /* of one decoded record */
#define HELD_MAX (256u << 20)
#define DECOMPRESSED_MAX (64u << 20)

void kb_replay_init(struct kb_replay *r, struct kb_image *image, struct kw_compressor *compressor, int32_t node_id, int64_t next) {
    *r = (struct kb_replay){.image = image, .compressor = compressor, .node_id = node_id, .next = next, .last_timestamp = -1};
    kw_out_init(&r->held);
    kw_arena_init(&r->arena, RECORD_MEMORY_MAX);
}

void kb_replay_deinit(struct kb_replay *r) {
    kw_out_deinit(&r->held);
    kw_arena_deinit(&r->arena);
}

#define WHY(r, ...) snprintf((r)->why, sizeof((r)->why), __VA_ARGS__)

/* ---- One record ---- */

struct frame { /* where a record's message begins */
    uint32_t type, version;
    struct kw_in in;
};

static kw_err open_frame(struct kb_replay *r, const uint8_t *p, size_t n, int64_t offset, struct frame *f) {
    kw_in_init(&f->in, p, n);
    uint32_t frame_version = kw_in_uvarint(&f->in);
    f->type = kw_in_uvarint(&f->in);
    f->version = kw_in_uvarint(&f->in);
    if (!f->in.err && frame_version == 1 && f->type <= INT16_MAX && f->version <= INT16_MAX) return KW_OK;
    WHY(r, "the record at offset %lld is no metadata record", (long long)offset);
    return KW_EDECODE;
}

/* How records are meant goes by the level of metadata.version: those of a higher one than is known are not to be half understood. */
static bool level_ok(struct kb_replay *r, const struct kw_feature_level_record *f, int64_t offset) {
    if (f->feature_level <= KB_METADATA_VERSION || !kw_str_eq(f->name, kw_str_of("metadata.version"))) return true;
    WHY(r, "the record at offset %lld sets metadata.version %d: this version of kbroker knows levels up to %d", (long long)offset,
        (int)f->feature_level, KB_METADATA_VERSION);
    return false;
}

static kw_err apply_frame(struct kb_replay *r, struct frame *f, int64_t offset, int32_t epoch) {
    const struct kw_desc *d = kw_metadata_record_by_type((int16_t)f->type);
    if (!d || !kb_image_knows((int16_t)f->type) || (int16_t)f->version > d->max) {
        WHY(r, "the record at offset %lld has type %u version %u%s%s%s, which this version of kbroker does not know", (long long)offset, f->type,
            f->version, d ? " (" : "", d ? d->name : "", d ? ")" : "");
        return KW_EVERSION;
    }
    kw_arena_reset(&r->arena);
    void *message = kw_arena_alloc(&r->arena, d->size);
    kw_err err = message ? kw_decode(d, (int16_t)f->version, &f->in, &r->arena, message) : KW_ENOMEM;
    if (!err && kw_in_left(&f->in)) err = KW_EDECODE;
    if (!err && f->type == KW_RECORD_FEATURE_LEVEL && !level_ok(r, message, offset)) return KW_EVERSION;
    if (!err) err = kb_image_apply(r->image, offset, epoch, (int16_t)f->type, message);
    if (err) WHY(r, "the %s at offset %lld cannot be applied%s", d->name, (long long)offset, err == KW_ENOMEM ? ": out of memory" : "");
    return err;
}

/* ---- Transactions ---- */

static kw_err hold(struct kb_replay *r, const uint8_t *p, size_t n, int64_t offset, int32_t epoch) {
    if (r->held.len + n > HELD_MAX) {
        WHY(r, "the transaction at offset %lld is too large", (long long)offset);
        return KW_ELIMIT;
    }
    kw_out_i64(&r->held, offset);
    kw_out_i32(&r->held, epoch);
    kw_out_i32(&r->held, (int32_t)n);
    kw_out_bytes(&r->held, p, n);
    return r->held.err;
}

static kw_err apply_held(struct kb_replay *r) {
    struct kw_in in;
    kw_in_init(&in, r->held.p, r->held.len);
    while (kw_in_left(&in)) {
        int64_t offset = kw_in_i64(&in);
        int32_t epoch = kw_in_i32(&in);
        size_t n = (size_t)kw_in_i32(&in);
        const uint8_t *p = kw_in_take(&in, n);
        struct frame f;
        kw_err err = open_frame(r, p, n, offset, &f);
        if (!err) err = apply_frame(r, &f, offset, epoch);
        if (err) return err;
    }
    return KW_OK;
}

static kw_err end_transaction(struct kb_replay *r, bool commit, int64_t offset, int32_t epoch) {
    if (!r->in_transaction) {
        WHY(r, "offset %lld ends a transaction that did not begin", (long long)offset);
        return KW_EDECODE;
    }
    r->in_transaction = false;
    kw_err err = commit ? apply_held(r) : KW_OK;
    kw_out_deinit(&r->held);
    kw_out_init(&r->held);
    r->image->offset = offset;
    r->image->epoch = epoch;
    return err;
}

static kw_err data_record(struct kb_replay *r, const struct kw_record_view *v, int32_t epoch) {
    if (v->value.len < 0) {
        WHY(r, "the record at offset %lld is empty", (long long)v->offset);
        return KW_EDECODE;
    }
    struct frame f;
    kw_err err = open_frame(r, v->value.p, (size_t)v->value.len, v->offset, &f);
    if (err) return err;
    switch (f.type) {
    case KW_RECORD_BEGIN_TRANSACTION:
        if (r->in_transaction) {
            WHY(r, "offset %lld begins a transaction inside another", (long long)v->offset);
            return KW_EDECODE;
        }
        r->in_transaction = true;
        return KW_OK;
    case KW_RECORD_END_TRANSACTION:
        return end_transaction(r, true, v->offset, epoch);
    case KW_RECORD_ABORT_TRANSACTION:
        return end_transaction(r, false, v->offset, epoch);
    default:
        break;
    }
    if (r->in_transaction) return hold(r, v->value.p, (size_t)v->value.len, v->offset, epoch);
    return apply_frame(r, &f, v->offset, epoch);
}

/* ---- Control records ---- */

static kw_err foreign_voter(struct kb_replay *r, int32_t id) {
    WHY(r, "node %d is a voter of this metadata log: it belongs to a quorum of several nodes, which this version does not run", (int)id);
    return KW_EINVAL;
}

static kw_err leader_change(struct kb_replay *r, struct kw_in *in, int32_t epoch) {
    struct kw_leader_change_message m;
    struct kw_in peek = *in; /* the message begins with its own version */
    int16_t version = kw_in_i16(&peek);
    kw_err err = kw_decode(&kw_leader_change_message_desc, version, in, &r->arena, &m);
    for (int32_t i = 0; !err && i < m.voters.n; i++)
        if (r->node_id >= 0 && m.voters.v[i].voter_id != r->node_id) return foreign_voter(r, m.voters.v[i].voter_id);
    if (err) return err;
    r->led_by = (struct kb_led_by){.epoch = epoch, .count = (size_t)KW_MAX(m.voters.n, 0)};
    for (size_t i = 0; i < r->led_by.count && i < KB_VOTERS_MAX; i++) r->led_by.voters[i] = m.voters.v[i].voter_id;
    return KW_OK;
}

static kw_err voters(struct kb_replay *r, struct kw_in *in) {
    struct kw_voters_record m;
    kw_err err = kw_decode(&kw_voters_record_desc, 0, in, &r->arena, &m);
    for (int32_t i = 0; !err && i < m.voters.n; i++)
        if (r->node_id >= 0 && m.voters.v[i].voter_id != r->node_id) return foreign_voter(r, m.voters.v[i].voter_id);
    return err;
}

static kw_err control_record(struct kb_replay *r, const struct kw_record_view *v, int32_t epoch) {
    kw_err err = KW_OK;
    if (v->key.len < 4 || v->value.len < 0) {
        WHY(r, "the control record at offset %lld is malformed", (long long)v->offset);
        return KW_EDECODE;
    }
    uint16_t type = kw_load16(v->key.p + 2);
    struct kw_in in;
    kw_in_init(&in, v->value.p, (size_t)v->value.len);
    kw_arena_reset(&r->arena);
    r->why[0] = 0;
    if (type < 32) r->control_seen |= (int32_t)(1u << type);
    if (type == KB_CONTROL_LEADER_CHANGE) err = leader_change(r, &in, epoch);
    if (type == KB_CONTROL_VOTERS) err = voters(r, &in);
    if (err) {
        if (!r->why[0]) WHY(r, "the control record at offset %lld is malformed", (long long)v->offset);
        return err;
    }
    if (type == KB_CONTROL_SNAPSHOT_FOOTER) r->footer_last = true;
    if (!r->in_transaction) {
        r->image->offset = v->offset;
        r->image->epoch = epoch;
    }
    return KW_OK;
}

/* ---- Batches ---- */

static kw_err replay_records(struct kb_replay *r, const struct kw_batch_header *h, const uint8_t *body, size_t n) {
    struct kw_record_iter it;
    struct kw_record_view v;
    int32_t got;
    kw_record_iter_init(&it, h, body, n);
    while ((got = kw_record_next(&it, &v)) == 1) {
        if (v.offset < r->next) continue;
        if (v.offset > r->next) {
            WHY(r, "offset %lld follows %lld: records are missing between them", (long long)v.offset, (long long)(r->next - 1));
            return KW_EDECODE;
        }
        r->footer_last = false;
        kw_err err = h->attributes & KW_ATTR_CONTROL ? control_record(r, &v, h->leader_epoch) : data_record(r, &v, h->leader_epoch);
        if (err) return err;
        r->next = v.offset + 1;
    }
    if (got == 0) return KW_OK;
    WHY(r, "the batch at offset %lld is malformed", (long long)h->base_offset);
    return got;
}

static kw_err replay_batch(struct kb_replay *r, const uint8_t *p, size_t size) {
    struct kw_batch_header h;
    kw_err err = kw_batch_parse(p, size, &h);
    if (err) {
        WHY(r, "what follows offset %lld is no record batch", (long long)(r->next - 1));
        return err;
    }
    if (!kw_batch_crc_ok(p, size)) {
        WHY(r, "the batch at offset %lld fails its checksum", (long long)h.base_offset);
        return KW_ECRC;
    }
    r->last_timestamp = h.max_timestamp;
    const uint8_t *body = p + KW_BATCH_HEADER_SIZE;
    size_t n = size - KW_BATCH_HEADER_SIZE;
    int codec = h.attributes & KW_ATTR_CODEC;
    if (codec == KW_CODEC_NONE) return replay_records(r, &h, body, n);
    uint8_t *plain = NULL;
    size_t plain_size;
    err = kw_decompress(r->compressor, codec, 2, body, n, DECOMPRESSED_MAX, &plain, &plain_size);
    if (err) {
        WHY(r, "the batch at offset %lld cannot be decompressed", (long long)h.base_offset);
        return err;
    }
    err = replay_records(r, &h, plain, plain_size);
    kw_free(plain);
    return err;
}

kw_err kb_replay_batches(struct kb_replay *r, const uint8_t *p, size_t n, size_t *used) {
    *used = 0;
    while (n - *used >= KW_BATCH_HEADER_SIZE) {
        int64_t size = kw_batch_size_peek(p + *used, n - *used);
        if (size < KW_BATCH_HEADER_SIZE) {
            WHY(r, "what follows offset %lld is no record batch", (long long)(r->next - 1));
            return KW_EDECODE;
        }
        if ((uint64_t)size > n - *used) break;
        kw_err err = replay_batch(r, p + *used, (size_t)size);
        if (err) return err;
        *used += (size_t)size;
    }
    return KW_OK;
}
