/* check_live.c - invariant 36, after healing: the broker is up with all its logs, every record has its report, every consumer comes to the
 * end of every log, administration is through; all within a bounded time. */
#include <stdio.h>

#include "node_priv.h"
#include "replica/partition.h"
#include "workload.h"

enum {
    LIVE_S = 180,
    PATIENCE_S = 90, /* the longest delivery timeout fits twice into LIVE_S, and once behind this */
};

static bool tampered(struct sim_run *r, const struct kb_partition *p) {
    int t = sim_topic_number(p->topic);
    return t >= 0 && sim_model_log(&r->model, t, p->index)->tainted;
}

static bool broker_is_whole(struct sim_run *r, char *why, size_t size) {
    struct sim_broker *b = &r->nodes[0];
    if (b->life != SIM_UP) {
        snprintf(why, size, "the broker is not up (%d)", b->life);
        return false;
    }
    for (struct kb_partition *p = NULL; (p = kb_partitions_next(b->node, p));)
        if (p->state != KB_PART_ONLINE || p->log->poisoned || p->log->busy) {
            if (p->state == KB_PART_DELETED || tampered(r, p)) continue;
            snprintf(why, size, "partition %s-%d is in state %d: %s", p->topic, p->index, p->state,
                     !p->log ? "no log" : p->log->poisoned ? p->log->failure : p->log->busy ? "its log is busy" : "");
            return false;
        }
    return true;
}

static bool consumed(struct sim_run *r, struct sim_role *c, const char *name, char *why, size_t size) {
    for (struct kb_partition *p = NULL; (p = kb_partitions_next(r->nodes[0].node, p));) {
        int t = sim_topic_number(p->topic);
        int64_t at;
        if (t < 0 || p->state != KB_PART_ONLINE || !sim_consumer_position(c, t, p->index, &at)) continue;
        if (at >= p->hw || tampered(r, p)) continue;
        int n = snprintf(why, size, "%s is at %lld of %lld in %s-%d;", name, (long long)at, (long long)p->hw, p->topic, p->index);
        sim_consumer_describe(c, why + n, size - (size_t)n);
        return false;
    }
    return true;
}

static bool through(struct sim_run *r, char *why, size_t size) {
    if (!broker_is_whole(r, why, size)) return false;
    if (!sim_admin_idle(r->admin)) {
        snprintf(why, size, "the administrator has not had its will");
        return false;
    }
    for (int i = 1; i <= r->plan.clients; i++) {
        char name[32];
        snprintf(name, sizeof name, "client %d", i);
        if (r->producers[i] && !sim_producer_done(r->producers[i])) {
            snprintf(why, size, "%s has not had all its reports (%u records unsent)", name, sim_producer_left(r->producers[i]));
            return false;
        }
        if (r->consumers[i] && !consumed(r, r->consumers[i], name, why, size)) return false;
    }
    return consumed(r, r->verifier, "the verifier", why, size) && sim_commits_through(r, why, size) &&
           sim_members_through(r, why, size);
}

/* Nobody mends a log that was tampered with: where it is offline, records for it wait for their delivery timeout. */
static bool log_stays_offline(struct sim_run *r) {
    for (struct kb_partition *p = NULL; r->nodes[0].life == SIM_UP && (p = kb_partitions_next(r->nodes[0].node, p));)
        if (tampered(r, p) && (p->state == KB_PART_OFFLINE || (p->log && p->log->poisoned))) return true;
    return false;
}

/* Such records fill a small queue again and again, and each time a delivery timeout passes before the next ones are let in: how often is a
 * matter of the sizes drawn, and not of liveness. So applications stop sending in time; what they sent must have its report all the same. */
static void stop_sending(struct sim_run *r) {
    for (int i = 1; i <= r->plan.clients; i++)
        if (r->producers[i]) sim_producer_enough(r->producers[i]);
}

void sim_check_live(struct sim_run *r) {
    struct sim_world *w = &r->w;
    int64_t until = w->now_us + LIVE_S * SIM_S, patient_until = w->now_us + PATIENCE_S * SIM_S;
    char why[2000] = "";
    while (!through(r, why, sizeof why)) {
        if (w->now_us >= patient_until && log_stays_offline(r)) stop_sending(r);
        if (w->now_us >= until) {
            sim_check_reports_late(&r->model);
            sim_fail(w, 36, "%d s after healing: %s", LIVE_S, why);
        }
        sim_run_until(w, w->now_us + 200 * SIM_MS);
    }
    sim_trace(w, "all is through");
}
