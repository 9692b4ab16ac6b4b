/* check_reports.c - invariants 27 (one report a record, none after close, outcomes that are true) and 28 (in time); notes what 1 and 4
 * need.
 *
 * Whether PERSISTED and NOT_PERSISTED are true is seen at the end, in check_final.c. Called by producer_app.c.
 */
#include "model.h"

#define SLACK_US (1500 * SIM_MS)

uint32_t sim_model_sent(struct sim_model *m, int producer, int topic, int partition, uint32_t order, const struct sim_host *h,
                        int64_t timeout_us) {
    m->records = sim_grow(m->records, m->count, &m->cap, sizeof *m->records);
    m->records[m->count] = (struct sim_record){.topic = (int8_t)topic,
                                               .partition = (int16_t)partition,
                                               .producer = producer,
                                               .order = order,
                                               .sent_us = m->w->now_us,
                                               .sent_mono_us = sim_host_now(h).mono_us,
                                               .paused_us = h->paused_total_us,
                                               .timeout_us = timeout_us,
                                               .offset = -1,
                                               .first_offset = -1,
                                               .found_partition = -1};
    return (uint32_t)m->count++;
}

void sim_model_unsent(struct sim_model *m, uint32_t id) {
    if (id != m->count - 1) sim_fail(m->w, 37, "the simulator takes back a record that is not the last");
    m->count--;
}

static void check_time(struct sim_model *m, const struct sim_record *rec, uint32_t id, const struct sim_host *h) {
    int64_t took = sim_host_now(h).mono_us - rec->sent_mono_us, paused = h->paused_total_us - rec->paused_us;
    if (rec->timeout_us == KC_FOREVER || took <= rec->timeout_us + paused + SLACK_US) return;
    sim_fail(m->w, 28, "record %u has its report after %lld us; its limit is %lld us, its process was paused for %lld us", id,
             (long long)took, (long long)rec->timeout_us, (long long)paused);
}

void sim_check_report(struct sim_model *m, const kc_report *r, const struct sim_host *h) {
    uint32_t id = (uint32_t)r->opaque;
    if (r->opaque >= m->count) sim_fail(m->w, 27, "a report for record %llu, which nobody sent", (unsigned long long)r->opaque);
    struct sim_record *rec = &m->records[id];
    const struct sim_producer_facts *p = &m->producers[rec->producer];
    if (rec->reports++) sim_fail(m->w, 27, "record %u has a second report", id);
    if (rec->topic != r->topic - 1) sim_fail(m->w, 27, "record %u was sent to topic %d, its report names %d", id, rec->topic, r->topic - 1);
    if (rec->partition >= 0 && r->partition != rec->partition)
        sim_fail(m->w, 27, "record %u was sent to partition %d, its report names %d", id, rec->partition, r->partition);
    check_time(m, rec, id, h);
    rec->partition = (int16_t)r->partition;
    rec->err = r->err;
    rec->outcome = (uint8_t)r->outcome;
    rec->state = r->err == KC_OK ? SIM_OK : SIM_FAILED;
    m->reported++;
    if (r->err != KC_OK && r->outcome == KC_PERSISTED)
        sim_fail(m->w, 27, "record %u failed with %s, and its report says that it is in the log", id, kc_err_name(r->err));
    if (r->err == KC_OK && p->acks != 0 && r->outcome != KC_PERSISTED)
        sim_fail(m->w, 27, "record %u was acknowledged, its report says outcome %d", id, r->outcome);
    if (r->err != KC_OK || p->acks == 0) return;
    if (r->offset < 0) {
        if (!(r->flags & (KC_REPORT_DUPLICATE | KC_REPORT_OFFSET_UNKNOWN))) sim_fail(m->w, 4, "record %u was acknowledged without an offset", id);
        return;
    }
    rec->offset = r->offset;
    m->acked++;
    if (rec->guid1) {
        sim_guid_reported(m, id, r);
        return;
    }
    const struct sim_log *l = sim_model_log(m, rec->topic, rec->partition);
    if (m->replicated && p->acks == 1) return;
    if (!l || m->topics[rec->topic].churned || l->tainted || (size_t)r->offset >= l->count) return;
    uint32_t seen = l->slots[r->offset].id1;
    if (seen && seen != id + 1 && !sim_log_lost(m, l, r->offset, rec))
        sim_fail(m->w, 4, "record %u was acknowledged at %d-%d offset %lld, where record %u was read", id, rec->topic, rec->partition,
                 (long long)r->offset, seen - 1);
}

void sim_check_reports_done(struct sim_model *m, int producer) {
    for (size_t i = 0; i < m->count; i++) {
        const struct sim_record *rec = &m->records[i];
        if (rec->producer == producer && rec->state == SIM_SENT)
            sim_fail(m->w, 27, "record %zu of producer %d has no report, and the producer is closed", i, producer);
    }
}

void sim_check_reports_late(struct sim_model *m) {
    for (size_t i = 0; i < m->count; i++) {
        const struct sim_record *rec = &m->records[i];
        if (rec->state == SIM_SENT && rec->timeout_us != KC_FOREVER && m->w->now_us - rec->sent_us > rec->timeout_us + 60 * SIM_S)
            sim_fail(m->w, 27, "record %zu has no report %lld s after it was sent", i, (long long)((m->w->now_us - rec->sent_us) / SIM_S));
    }
}

void sim_model_dropped(struct sim_model *m, int producer) {
    for (size_t i = 0; i < m->count; i++)
        if (m->records[i].producer == producer && m->records[i].state == SIM_SENT) m->records[i].state = SIM_DROPPED;
}
