/* check_final.c - when all is over: invariants 1 (what was acknowledged is there), 3 (once, if idempotent), 5 (in the order of production),
 * 27 (PERSISTED and NOT_PERSISTED are true). The log is what check_disk.c's last scan found. */
#include <stdlib.h>

#include "model.h"

static void check_acked(struct sim_model *m, uint32_t id) {
    struct sim_record *rec = &m->records[id];
    struct sim_log *l = sim_model_log(m, rec->topic, rec->partition);
    const struct sim_producer_facts *p = &m->producers[rec->producer];
    if (p->acks == 0 || (m->replicated && p->acks == 1)) return;
    if (m->topics[rec->topic].churned || l->tainted) return;
    if (rec->offset >= 0 && rec->offset < l->start) return; /* deleted on demand */
    if (rec->offset < 0 && l->start > 0) return;
    if (rec->offset >= 0 && sim_log_lost(m, l, rec->offset, rec)) return;
    if (rec->offset < 0 && l->loss_count) return; /* a duplicate whose offset nobody knows any more */
    const char *flush = m->flush_on_ack ? "with flush.on.ack" : "without flush.on.ack";
    if (rec->offset < 0) {
        if (rec->copies == 0)
            sim_fail(m->w, 1, "record %u was acknowledged to %d-%d (as a duplicate) and is nowhere, %s", id, rec->topic, rec->partition,
                     flush);
        return;
    }
    uint32_t there = (size_t)rec->offset < l->count ? l->slots[rec->offset].id1 : 0;
    if (there == id + 1) return;
    if (!there || rec->copies == 0)
        sim_fail(m->w, 1, "record %u was acknowledged (acks=%d) at %d-%d offset %lld and is not there, %s", id, p->acks, rec->topic,
                 rec->partition, (long long)rec->offset, flush);
    sim_fail(m->w, 4, "record %u was acknowledged at %d-%d offset %lld, where record %u is", id, rec->topic, rec->partition,
             (long long)rec->offset, there - 1);
}

/* Two orders, one for those that were given their partition by number and one for those that were not: a record that waits for the number
 * of partitions to be known may come behind a later one that was sent straight to its partition, and behind no other. */
static void check_order(struct sim_model *m, int topic, int partition) {
    struct sim_log *l = sim_model_log(m, topic, partition);
    int64_t *last = sim_need(calloc(2 * m->producer_count + 2, sizeof *last)); /* order + 1 of each producer's latest */
    for (size_t i = 0; i < l->count; i++) {
        if (!l->slots[i].id1) continue;
        const struct sim_record *rec = &m->records[l->slots[i].id1 - 1];
        const struct sim_producer_facts *p = &m->producers[rec->producer];
        if (rec->shared) continue; /* it may be another's, which was there first */
        if (!p->idempotent && m->topics[topic].guid) continue; /* a batch that is sent again stores what has no id again, and nothing else */
        if (!(p->idempotent || (p->ordered && rec->state == SIM_OK && rec->offset == (int64_t)i))) continue;
        for (int k = 0; k < 2; k++) {
            if (k == 0 ? rec->staged : rec->placed) continue;
            int64_t *mine = &last[2 * rec->producer + k];
            if (rec->order + 1 <= *mine)
                sim_fail(m->w, 5, "%d-%d offset %zu: record %u, number %u of producer %d, comes behind its number %lld", topic, partition,
                         i, l->slots[i].id1 - 1, rec->order, rec->producer, (long long)*mine - 1);
            *mine = rec->order + 1;
        }
    }
    free(last);
}

void sim_check_final(struct sim_model *m) {
    for (uint32_t id = 0; id < m->count; id++) {
        struct sim_record *rec = &m->records[id];
        if (rec->state == SIM_SENT) sim_fail(m->w, 27, "record %u has no report", id);
        if (rec->state == SIM_OK && rec->guid1) sim_guid_acked(m, id);
        else if (rec->state == SIM_OK) check_acked(m, id);
        if (rec->copies > 1 && !rec->shared && m->producers[rec->producer].idempotent && !m->topics[rec->topic].churned)
            sim_fail(m->w, 3, "record %u of an idempotent producer is in the log %u times", id, rec->copies);
    }
    for (int t = 0; t < m->topic_count; t++)
        for (int p = 0; p < m->topics[t].partitions && !m->topics[t].churned; p++)
            if (!m->topics[t].logs[p].tainted) check_order(m, t, p);
}
