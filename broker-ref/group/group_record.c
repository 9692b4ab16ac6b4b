/* group_record.c - records of __consumer_offsets. Contract: group_record.h. */
#include "group_record.h"

enum { KEY_OFFSET_OLD = 0, KEY_OFFSET = 1, KEY_GROUP = 2 };
enum { OFFSET_VERSION = 3, OFFSET_VERSION_EXPIRES = 1, OFFSET_VERSION_ID = 4, GROUP_VERSION = 3 };

kw_err kb_group_key_read(struct kw_bytes key, struct kb_group_key *k) {
    struct kw_in in;
    struct kw_arena none; /* no arrays in keys: nothing is allocated */
    if (key.len < 2) return KW_EDECODE;
    kw_in_init(&in, key.p, (size_t)key.len);
    *k = (struct kb_group_key){.kind = KB_GROUP_KEY_OTHER, .partition = -1};
    kw_arena_init(&none, 0);
    kw_err err = KW_OK;
    int16_t kind = kw_in_i16(&in);
    if (kind == KEY_OFFSET || kind == KEY_OFFSET_OLD) {
        struct kw_offset_commit_key m;
        err = kw_decode(&kw_offset_commit_key_desc, 0, &in, &none, &m);
        *k = (struct kb_group_key){KB_GROUP_KEY_OFFSET, m.group, m.topic, m.partition};
    } else if (kind == KEY_GROUP) {
        struct kw_group_metadata_key m;
        err = kw_decode(&kw_group_metadata_key_desc, 0, &in, &none, &m);
        *k = (struct kb_group_key){KB_GROUP_KEY_GROUP, m.group, kw_str_null(), -1};
    }
    kw_arena_deinit(&none);
    return err;
}

static kw_err value_read(const struct kw_desc *d, struct kw_bytes value, struct kw_arena *a, void *m, int16_t *version) {
    struct kw_in in;
    if (value.len < 2) return KW_EDECODE;
    kw_in_init(&in, value.p, (size_t)value.len);
    *version = kw_in_i16(&in);
    return kw_decode(d, *version, &in, a, m);
}

kw_err kb_group_value_offset(struct kw_bytes value, struct kw_arena *a, struct kb_offset *v) {
    struct kw_offset_commit_value m;
    int16_t version;
    kw_err err = value_read(&kw_offset_commit_value_desc, value, a, &m, &version);
    if (err) return err;
    *v = (struct kb_offset){.offset = m.offset,
                            .leader_epoch = m.leader_epoch,
                            .topic_id = m.topic_id,
                            .commit_ms = m.commit_timestamp,
                            .expire_ms = m.expire_timestamp,
                            .metadata_size = KW_MAX(m.metadata.len, 0)};
    if (v->metadata_size == 0) return KW_OK;
    v->metadata = kw_memdup(m.metadata.p, (size_t)m.metadata.len);
    return v->metadata ? KW_OK : KW_ENOMEM;
}

kw_err kb_group_value_group(struct kw_bytes value, struct kw_arena *a, struct kw_group_metadata_value *v) {
    int16_t version;
    return value_read(&kw_group_metadata_value_desc, value, a, v, &version);
}

/* ---- Writing ---- */

void kb_group_batch_init(struct kb_group_batch *b) {
    *b = (struct kb_group_batch){0};
    kw_out_init(&b->body);
    kw_out_init(&b->key);
    kw_out_init(&b->value);
}

void kb_group_batch_deinit(struct kb_group_batch *b) {
    kw_out_deinit(&b->body);
    kw_out_deinit(&b->key);
    kw_out_deinit(&b->value);
}

size_t kb_group_batch_size(const struct kb_group_batch *b) {
    return KW_BATCH_HEADER_SIZE + b->body.len;
}

static kw_err add(struct kb_group_batch *b, int16_t kind, const struct kw_desc *key_desc, const void *key, const struct kw_desc *value_desc,
                  int16_t version, const void *value) {
    kw_out_reset(&b->key);
    kw_out_reset(&b->value);
    kw_out_i16(&b->key, kind);
    kw_err err = kw_encode(key_desc, 0, key, &b->key);
    if (!err && value) {
        kw_out_i16(&b->value, version);
        err = kw_encode(value_desc, version, value, &b->value);
    }
    if (!err && (b->key.err || b->value.err)) err = KW_ENOMEM;
    if (err) return err;
    struct kw_record_in r = {.offset_delta = b->count,
                             .key = {b->key.p, (int32_t)b->key.len},
                             .value = {value ? b->value.p : NULL, value ? (int32_t)b->value.len : -1}};
    size_t size = kw_record_size(&r);
    uint8_t *dst = size == SIZE_MAX ? NULL : kw_out_reserve(&b->body, size);
    if (!dst) {
        b->body.err = KW_OK; /* the batch stays as it was */
        return KW_ENOMEM;
    }
    kw_record_write(dst, &r, size);
    b->count++;
    return KW_OK;
}

kw_err kb_group_batch_offset(struct kb_group_batch *b, struct kw_str group, struct kw_str topic, int32_t partition,
                             const struct kb_offset *v) {
    struct kw_offset_commit_key key = {.group = group, .topic = topic, .partition = partition};
    if (!v) return add(b, KEY_OFFSET, &kw_offset_commit_key_desc, &key, NULL, 0, NULL);
    int16_t version = v->expire_ms >= 0 ? OFFSET_VERSION_EXPIRES : kw_uuid_is_zero(v->topic_id) ? OFFSET_VERSION : OFFSET_VERSION_ID;
    struct kw_offset_commit_value value = {.offset = v->offset,
                                           .leader_epoch = v->leader_epoch,
                                           .metadata = {v->metadata ? v->metadata : "", v->metadata_size},
                                           .commit_timestamp = v->commit_ms,
                                           .expire_timestamp = v->expire_ms,
                                           .topic_id = v->topic_id};
    return add(b, KEY_OFFSET, &kw_offset_commit_key_desc, &key, &kw_offset_commit_value_desc, version, &value);
}

kw_err kb_group_batch_group(struct kb_group_batch *b, struct kw_str group, const struct kw_group_metadata_value *v) {
    struct kw_group_metadata_key key = {.group = group};
    return add(b, KEY_GROUP, &kw_group_metadata_key_desc, &key, &kw_group_metadata_value_desc, GROUP_VERSION, v);
}

void kb_group_batch_cut(struct kb_group_batch *b, size_t size, int32_t count) {
    b->body.len = size - KW_BATCH_HEADER_SIZE;
    b->count = count;
}

kw_err kb_group_batch_finish(struct kb_group_batch *b, int64_t wall_ms, struct kw_blk **blk, size_t *size) {
    KW_ASSERT(b->count > 0);
    size_t total = kb_group_batch_size(b);
    struct kw_blk *made = kw_blk_new(total);
    if (!made) return KW_ENOMEM;
    struct kw_batch_header h = {.length = (int32_t)(total - KW_BATCH_OVERHEAD),
                                .magic = 2,
                                .last_offset_delta = b->count - 1,
                                .base_timestamp = wall_ms,
                                .max_timestamp = wall_ms,
                                .producer_id = -1,
                                .producer_epoch = -1,
                                .base_sequence = -1,
                                .record_count = b->count};
    kw_batch_write_header(made->data, &h);
    memcpy(made->data + KW_BATCH_HEADER_SIZE, b->body.p, b->body.len);
    kw_batch_crc_set(made->data, total);
    kw_out_reset(&b->body);
    b->count = 0;
    *blk = made;
    *size = total;
    return KW_OK;
}
