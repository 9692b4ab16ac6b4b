/* coordinator_load.c - an office is taken: the log of its partition of __consumer_offsets is read whole, a megabyte a turn.
 *
 * What this node has of the log when it comes to lead is what there is; it serves once all of that is committed, so that nobody is told of
 * an offset that another coordinator would not know. Records that cannot be understood end it, loudly: to leave one out would set a group
 * back. Called by coordinator.c. Calls log, group_record, offsets, group.
 */
#include "coordinator_priv.h"

#define READ_SIZE (1u << 20)
#define BATCH_SIZE_MAX (100 << 20) /* decompressed */
#define MEMORY_AGAIN_US 1000000

static const char *text_of(kw_err err) {
    return err == KW_ECRC     ? "a batch fails its checksum"
           : err == KW_ENOMEM ? "out of memory"
           : err == KW_EIO    ? "the disk failed"
                              : "a record does not follow its format";
}

/* Want of memory passes: then all is read anew (the waiter's expiry). */
static void fail(struct kb_shard *s, kw_err err, struct kb_now now) {
    bool again = err == KW_ENOMEM && kb_waiter_arm(&s->waiter, s->c->node, now.mono_us + MEMORY_AGAIN_US) == KW_OK;
    KB_SAY(s->c->node, KB_ERROR, "%s-%d cannot be read at offset %lld: %s; its groups have no coordinator until it %s, or led by another broker",
           KB_OFFSETS_TOPIC, (int)s->index, (long long)s->load_next, text_of(err), again ? "is read again in a second" : "is mended");
    s->state = KB_SHARD_FAILED;
}

/* ---- Records ---- */

static kw_err take_offset(struct kb_shard *s, const struct kb_group_key *k, struct kw_bytes value, int64_t at, struct kw_arena *a) {
    struct kb_group_entry *e = kb_shard_group(s, k->group, value.len >= 0);
    struct kb_offset v;
    if (value.len < 0) {
        if (e) kb_committed_forget(&e->offsets, k->topic, k->partition, at);
        return KW_OK;
    }
    if (!e) return KW_ENOMEM;
    kw_err err = kb_group_value_offset(value, a, &v); /* v owns metadata, which the next takes */
    if (err) return err;
    return kb_committed_load(&e->offsets, k->topic, k->partition, at, &v);
}

static kw_err take_group(struct kb_shard *s, const struct kb_group_key *k, struct kw_bytes value) {
    struct kb_group_entry *e = kb_shard_group(s, k->group, value.len >= 0);
    if (!e) return value.len >= 0 ? KW_ENOMEM : KW_OK;
    kw_free(e->loaded);
    e->loaded = value.len >= 0 ? kw_memdup(value.p, (size_t)value.len) : NULL;
    e->loaded_size = value.len;
    return value.len >= 0 && !e->loaded ? KW_ENOMEM : KW_OK;
}

static kw_err take_record(struct kb_shard *s, const struct kw_record_view *r, struct kw_arena *a) {
    struct kb_group_key k;
    kw_err err = kb_group_key_read(r->key, &k);
    if (err || k.kind == KB_GROUP_KEY_OTHER) return err;
    if (k.group.len <= 0) return KW_EDECODE;
    kw_arena_reset(a);
    return k.kind == KB_GROUP_KEY_OFFSET ? take_offset(s, &k, r->value, r->offset, a) : take_group(s, &k, r->value);
}

static kw_err take_batch(struct kb_shard *s, const uint8_t *p, size_t size, const struct kw_batch_header *h, struct kw_arena *a) {
    const uint8_t *body;
    size_t body_size;
    struct kw_record_iter it;
    struct kw_record_view r;
    if (h->attributes & KW_ATTR_CONTROL) return KW_OK;
    kw_err err = kw_batch_body(p, size, h, BATCH_SIZE_MAX, s->c->node->compressor, &body, &body_size);
    if (err) return err;
    kw_record_iter_init(&it, h, body, body_size);
    int32_t more = 0;
    while (!err && (more = kw_record_next(&it, &r)) > 0)
        if (r.offset < s->load_end) err = take_record(s, &r, a);
    return err ? err : more;
}

static kw_err take_batches(struct kb_shard *s, const uint8_t *p, size_t n) {
    struct kw_arena a;
    kw_err err = KW_OK;
    kw_arena_init(&a, 0);
    while (!err && n >= KW_BATCH_HEADER_SIZE && s->load_next < s->load_end) {
        struct kw_batch_header h;
        int64_t size = kw_batch_size_peek(p, n);
        if (size < 0 || (size_t)size > n) break; /* the rest of it did not fit */
        err = kw_batch_parse(p, n, &h);
        if (!err) err = take_batch(s, p, (size_t)size, &h, &a);
        if (err) break;
        s->load_next = h.base_offset + h.last_offset_delta + 1;
        p += size;
        n -= (size_t)size;
    }
    kw_arena_deinit(&a);
    return err;
}

/* The slices of a read may part batches anywhere: they are joined first. */
static kw_err take_read(struct kb_shard *s) {
    struct kb_read *r = &s->read;
    if (r->err) return r->err;
    if (r->slice_count == 1) return take_batches(s, r->slices[0].p, r->slices[0].len);
    uint8_t *all = kw_malloc(r->bytes + 1);
    if (!all) return KW_ENOMEM;
    size_t at = 0;
    for (size_t i = 0; i < r->slice_count; i++) {
        memcpy(all + at, r->slices[i].p, r->slices[i].len);
        at += r->slices[i].len;
    }
    kw_err err = take_batches(s, all, at);
    kw_free(all);
    return err;
}

/* ---- The end of it ---- */

static kw_err restore(struct kb_group_entry *e, struct kw_arena *a) {
    struct kw_group_metadata_value v;
    kw_arena_reset(a);
    kw_err err = kb_group_value_group((struct kw_bytes){e->loaded, e->loaded_size}, a, &v);
    if (!err) err = kb_group_restore(e->group, &v);
    kw_free(e->loaded);
    e->loaded = NULL;
    return err;
}

static void loaded(struct kb_shard *s, struct kb_now now) {
    struct kw_arena a;
    struct kb_group_entry *e;
    kw_err err = KW_OK;
    kw_arena_init(&a, 0);
    for (size_t i = 0; !err && (e = kw_map_next(&s->groups, &i));) {
        if (e->loaded)
            err = restore(e, &a);
        else if (e->offsets.entries == 0)
            kb_shard_drop_group(e, KE_NONE);
    }
    kw_arena_deinit(&a);
    if (err) {
        fail(s, err, now);
        return;
    }
    s->state = KB_SHARD_CATCHING;
    if (s->p->hw >= s->load_end) kb_shard_serve(s, now);
}

static bool read_some(struct kb_shard *s, struct kb_now now) {
    int64_t before = s->load_next;
    kw_err err = take_read(s);
    bool end = s->read.err == KW_OK && s->read.bytes == 0;
    kb_read_release(&s->read);
    if (!err && end) s->load_next = s->load_end; /* nothing is there any more: what was left out by compaction */
    if (!err && s->load_next == before && !end) err = KW_EDECODE;
    if (err) fail(s, err, now);
    return err == KW_OK;
}

static void read_done(struct kb_read *r, struct kb_now now) {
    struct kb_shard *s = r->ctx;
    s->reading = false;
    struct kb_partition *p = s->p;
    if (read_some(s, now)) kb_shard_load(s, now);
    kb_partition_unpin(p);
}

void kb_shard_load(struct kb_shard *s, struct kb_now now) {
    struct kb_log *log = s->p->log;
    s->load_end = KW_MIN(s->load_end, log->leo); /* a full disk took some of it back */
    s->load_next = KW_MAX(s->load_next, log->start);
    if (s->load_next >= s->load_end) {
        loaded(s, now);
        return;
    }
    s->read = (struct kb_read){.log = log,
                               .offset = s->load_next,
                               .limit = s->load_end,
                               .bytes_max = READ_SIZE,
                               .min_one = true,
                               .into_memory = true,
                               .done = read_done,
                               .ctx = s};
    int32_t answered = kb_log_read(&s->read, now);
    if (answered == 0) {
        s->reading = true;
        kb_partition_pin(s->p);
        return;
    }
    if (answered < 0) s->read.err = answered;
    if (read_some(s, now) && kb_waiter_arm(&s->waiter, s->c->node, now.mono_us))
        fail(s, KW_ENOMEM, now); /* the next megabyte in the next turn */
}

void kb_shard_load_stop(struct kb_shard *s) {
    if (!s->reading) return;
    s->reading = false;
    kb_read_cancel(&s->read);
    kb_partition_unpin(s->p);
}
