/* store_replay.c - reads the metadata log into the image. Called by store_load.c at the start and, where what was committed is not in memory, by
 * store.c. Calls the log and replay.c.
 */
#include "store_priv.h"

#define READ_SIZE (1u << 20)

static void replay_log(struct kb_store *s, struct kb_now now);

/* The slices of a read may part batches anywhere: they are joined first. */
static kw_err take_read(struct kb_store *s, size_t *used) {
    struct kb_read *r = &s->read;
    *used = 0;
    if (r->err) return r->err;
    if (r->slice_count == 1 && r->slices[0].p) return kb_replay_batches(&s->replay, r->slices[0].p, r->slices[0].len, used);
    uint8_t *all = kw_malloc(r->bytes + 1);
    if (!all) return KW_ENOMEM;
    size_t at = 0;
    for (size_t i = 0; i < r->slice_count; i++) {
        KW_ASSERT(r->slices[i].p); /* into_memory */
        memcpy(all + at, r->slices[i].p, r->slices[i].len);
        at += r->slices[i].len;
    }
    kw_err err = kb_replay_batches(&s->replay, all, at, used);
    kw_free(all);
    return err;
}

/* false: the store failed. */
static bool read_some(struct kb_store *s, struct kb_now now) {
    size_t used;
    int64_t before = s->replay.next;
    kw_err err = take_read(s, &used);
    kb_read_release(&s->read);
    s->bytes_since_snapshot += (int64_t)used;
    if (!err && s->replay.next == before) err = KW_EDECODE;
    if (!err) return true;
    kb_store_fail(
        s, now,
        "%s: the metadata log cannot be read at offset %lld: %s; the node does not serve, so that no partition is taken for deleted",
        s->load.meta_dir, (long long)s->replay.next,
        s->replay.why[0] ? s->replay.why
        : err == KW_ECRC ? "a batch fails its checksum"
                         : "the disk failed or memory ran out");
    return false;
}

static void read_done(struct kb_read *r, struct kb_now now) {
    struct kb_store *s = r->ctx;
    s->reading = false;
    if (read_some(s, now)) replay_log(s, now);
}

static void replay_log(struct kb_store *s, struct kb_now now) {
    while (s->replay.next < s->replay_to) {
        s->read = (struct kb_read){.log = s->log,
                                   .offset = s->replay.next,
                                   .limit = s->replay_to,
                                   .bytes_max = READ_SIZE,
                                   .min_one = true,
                                   .into_memory = true,
                                   .done = read_done,
                                   .ctx = s};
        int32_t answered = kb_log_read(&s->read, now);
        if (answered == 0) {
            s->reading = true;
            return;
        }
        if (answered < 0) s->read.err = answered;
        if (!read_some(s, now)) return;
    }
    s->replayed(s, now);
}

void kb_store_replay(struct kb_store *s, int64_t to, void (*then)(struct kb_store *s, struct kb_now now), struct kb_now now) {
    s->replay_to = to;
    s->replayed = then;
    replay_log(s, now);
}
