/* check_reads.c - what is read: invariants 2 (one offset, one value), 4 (at the acknowledged offset), 10 (as written), 30 (nothing
 * skipped), 31 (nothing twice). Called by consumer_app.c for every record, and by check_disk.c for those of the final scan. */
#include "model.h"

static struct sim_content content; /* one process, one seed */

/* The record is what was sent, and it was sent to here. */
void sim_check_content(struct sim_model *m, const char *where, int topic, int partition, int64_t offset, int32_t epoch, int timestamp_type,
                       int64_t timestamp_ms, struct kw_bytes key, struct kw_bytes value, const uint8_t *headers, size_t headers_size,
                       uint32_t *id_out) {
    struct sim_topic *t = &m->topics[topic];
    struct sim_log *l = sim_model_log(m, topic, partition);
    uint32_t id;
    if (!sim_content_id(key, value, headers, headers_size, &id) || id >= m->count)
        sim_fail(m->w, 10, "%s: %d-%d offset %lld holds a record that nobody wrote", where, topic, partition, (long long)offset);
    struct sim_record *rec = &m->records[id];
    sim_content_of(m, id, &content);
    const char *differs = sim_content_differs(&content, key, value, headers, headers_size);
    if (differs)
        sim_fail(m->w, 10, "%s: %d-%d offset %lld, record %u: %s is not what was written", where, topic, partition, (long long)offset, id,
                 differs);
    if (rec->has_timestamp && timestamp_type == 0 && timestamp_ms != rec->timestamp_ms)
        sim_fail(m->w, 10, "%s: %d-%d offset %lld, record %u: timestamp %lld, written %lld", where, topic, partition, (long long)offset, id,
                 (long long)timestamp_ms, (long long)rec->timestamp_ms);
    if (rec->topic != topic || (rec->partition >= 0 && rec->partition != partition && !rec->shared))
        sim_fail(m->w, 10, "%s: record %u was sent to %d-%d and is in %d-%d", where, id, rec->topic, rec->partition, topic, partition);
    if (id_out) *id_out = id;
    if (t->churned || l->tainted || sim_log_stale(l, offset, epoch)) return;
    if (rec->state == SIM_FAILED && rec->outcome == KC_NOT_PERSISTED && !rec->shared)
        sim_fail(m->w, 27, "%s: record %u is at %d-%d offset %lld, its report said that it is certainly not (%s)", where, id, topic,
                 partition, (long long)offset, kc_err_name(rec->err));
    struct sim_slot *s = sim_log_slot(l, offset);
    if (s->id1 && (s->id1 != id + 1 || (epoch >= 0 && s->epoch >= 0 && s->epoch != epoch)))
        sim_fail(m->w, 2, "%s: %d-%d offset %lld is record %u of leader epoch %d, and was record %u of epoch %d", where, topic, partition,
                 (long long)offset, id, epoch, s->id1 - 1, s->epoch);
    *s = (struct sim_slot){id + 1, epoch < 0 && s->id1 ? s->epoch : epoch};
    if (rec->shared) return; /* how often its id may be there, check_guid.c knows */
    if (rec->first_offset < 0) {
        rec->first_offset = offset;
        rec->found_partition = (int16_t)partition;
    } else if (rec->first_offset != offset && m->producers[rec->producer].idempotent) {
        sim_fail(m->w, 3, "%s: record %u of an idempotent producer is at %d-%d offset %lld and at %lld", where, id, topic, partition,
                 (long long)offset, (long long)rec->first_offset);
    }
    if (offset < rec->first_offset) rec->first_offset = offset;
    bool idempotent = m->producers[rec->producer].idempotent;
    if (rec->state == SIM_OK && rec->offset >= 0 && offset != rec->offset && idempotent && !sim_log_lost(m, l, rec->offset, rec))
        sim_fail(m->w, 4, "%s: record %u was acknowledged at offset %lld of %d-%d and is at %lld", where, id, (long long)rec->offset, topic,
                 partition, (long long)offset);
}

/* Its place in what this reader has seen, and in what anyone may see. */
static void check_place(struct sim_model *m, struct sim_tracker *t, int64_t offset, int32_t epoch) {
    struct sim_log *l = sim_model_log(m, t->topic, t->partition);
    bool free_to_move = m->topics[t->topic].churned || l->tainted, stale = sim_log_stale(l, offset, epoch);
    m->read++;
    if (offset >= l->hw_max && !free_to_move && !stale)
        sim_fail(m->w, 2, "%d-%d: offset %lld was served, the high watermark has never been above %lld", t->topic, t->partition,
                 (long long)offset, (long long)l->hw_max);
    if (stale && m->topics[t->topic].guid && offset > t->next) free_to_move = true; /* what is between was lost with it, or was never there */
    if (t->next >= 0 && offset != t->next && !free_to_move && !t->may_jump) {
        bool deleted = offset > t->next && offset <= l->start;
        bool holes = offset > t->next && sim_guid_holes(m, t->topic, t->partition, KW_MAX(t->next, l->start), offset);
        if (offset > t->next && !deleted && !holes && !m->in_files(m->ctx, t->topic, t->partition, t->next))
            sim_fail(m->w, 6, "%d-%d: behind offset %lld the log goes on with %lld", t->topic, t->partition, (long long)t->next - 1,
                     (long long)offset);
        if (offset > t->next && !deleted && !holes)
            sim_fail(m->w, 30, "%d-%d: after offset %lld comes %lld: what is between was skipped", t->topic, t->partition,
                     (long long)t->next - 1, (long long)offset);
        if (offset < t->next)
            sim_fail(m->w, 31, "%d-%d: after offset %lld comes %lld again", t->topic, t->partition, (long long)t->next - 1,
                     (long long)offset);
    }
    if (t->next < 0 || offset != t->next) t->may_jump = false;
    if (stale) t->may_jump = true;
    t->next = offset + 1;
}

void sim_check_read(struct sim_model *m, struct sim_tracker *t, int64_t offset, int32_t epoch, int timestamp_type, int64_t timestamp_ms,
                    struct kw_bytes key, struct kw_bytes value, const uint8_t *headers, size_t headers_size) {
    check_place(m, t, offset, epoch);
    sim_check_content(m, "read", t->topic, t->partition, offset, epoch, timestamp_type, timestamp_ms, key, value, headers, headers_size,
                      NULL);
}

void sim_check_read_old(struct sim_model *m, struct sim_tracker *t, int64_t offset, int64_t timestamp_ms, struct kw_bytes key,
                        struct kw_bytes value) {
    uint32_t id;
    check_place(m, t, offset, -1);
    if (!sim_content_id(key, value, NULL, SIM_NO_HEADERS, &id)) { /* its number was in a header, and stayed behind */
        if (value.len > 0)
            sim_fail(m->w, 10, "read in an old format: %d-%d offset %lld holds a value that nobody wrote", t->topic, t->partition,
                     (long long)offset);
        return;
    }
    sim_check_content(m, "read in an old format", t->topic, t->partition, offset, -1, timestamp_ms < 0 ? 1 : 0, timestamp_ms, key, value, NULL,
                      SIM_NO_HEADERS, NULL);
}
