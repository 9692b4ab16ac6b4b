/* bench_kills.c - scenario 5: brokers are killed while records are sent; then what was acknowledged is held against what is in the log.
 *
 * Called by bench_scenario, with a cluster of its own whose quorum runs apart from the brokers (as the published one's ZooKeeper did), so that those that
 * are left can go on. Every record carries its number. What a retry was for is told too (kc_reports_attempt).
 */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

enum { SLICE_US = 20000, OUTAGE_US = 2000000, SENT_MAX = 50000000 };
static const struct bench_cell setting = {12, 4, 2, -1, 0};
static const int32_t victims[] = {1, 2, 3}; /* two of them: the last two */
enum { VICTIMS = 3 };

enum phase { BEFORE, KILLING, KILLED, STARTING, OVER };
enum told { NOTHING, ACKED, MAYBE, NOT_STORED };

struct play {
    struct bench_run *r;
    const struct bench_kill_case *c;
    struct bench_kill_result *out;
    enum bench_mode mode;
    struct bench_topic topic;
    kc_producer *producer;
    uint8_t *told, *copies; /* a byte a record */
    uint64_t room, sent, done;
    enum phase phase;
    struct bench_order *order; /* under way; NULL: none */
    int64_t start, end, killed_at;
};

/* ---- The events of the play ---- */

/* The published ones died somewhere in the middle: here once a third is over. */
static bool is_time_to_kill(const struct play *p) {
    const struct bench_run *r = p->r;
    return r->records > 0 ? p->done >= (uint64_t)r->records / 3 : cli_now_us() - p->start >= r->seconds * 1000000 / 3;
}

static int move_on(struct play *p, enum phase next) {
    int answered = bench_cluster_answered(p->order, false);
    if (answered == 0) return CLI_OK;
    p->order = NULL;
    if (answered < 0) return CLI_FAILURE;
    p->phase = next;
    p->killed_at = cli_now_us();
    return CLI_OK;
}

static int order(struct play *p, int32_t action, enum phase phase) {
    size_t kills = (size_t)p->c->kills;
    p->order = bench_cluster_ask(p->r->cluster, action, victims + VICTIMS - kills, kills);
    p->phase = phase;
    return p->order ? CLI_OK : CLI_FAILURE;
}

static int act(struct play *p) {
    switch (p->phase) {
    case BEFORE:
        if (!is_time_to_kill(p)) return CLI_OK;
        return order(p, KC_TEST_KILL, KILLING);
    case KILLING: return move_on(p, p->c->restart ? KILLED : OVER);
    case KILLED:
        if (cli_now_us() - p->killed_at < OUTAGE_US) return CLI_OK;
        return order(p, KC_TEST_START, STARTING);
    case STARTING: return move_on(p, OVER);
    case OVER: break;
    }
    return CLI_OK;
}

/* By number: a third is kept for after the kill, however fast the first two go. */
static bool may_send(const struct play *p) {
    const struct bench_run *r = p->r;
    if (p->sent >= p->room || cli_interrupted || (p->mode == BENCH_ONE_BY_ONE && p->done < p->sent)) return false;
    if (r->records > 0) return p->sent < (uint64_t)(p->phase <= KILLING ? r->records * 2 / 3 : r->records);
    return p->phase != OVER || cli_now_us() - p->start < r->seconds * 1000000;
}

static bool is_all_sent(const struct play *p) {
    const struct bench_run *r = p->r;
    if (cli_interrupted || p->sent >= p->room) return true;
    return p->phase == OVER && (r->records > 0 ? p->sent >= (uint64_t)r->records : cli_now_us() - p->start >= r->seconds * 1000000);
}

/* ---- Sending, and what is told ---- */

static void note_attempts(struct play *p, const kc_reports *reports, kc_err end) {
    kc_err seen[16];
    size_t n = 0;
    kc_attempt a;
    for (size_t i = 0; kc_reports_attempt(reports, i, &a) == KC_OK; i++) {
        bool known = a.cause == KC_EXPIRED;
        for (size_t k = 0; k < n; k++) known = known || seen[k] == a.cause;
        if (known || n == sizeof seen / sizeof *seen) continue;
        seen[n++] = a.cause;
        bench_errors_note(&p->out->errors, a.cause, true, a.cause == end);
        if (a.cause == end) end = KC_OK;
    }
    if (end != KC_OK) bench_errors_note(&p->out->errors, end, true, true);
}

static void drain(struct play *p, int64_t timeout_us) {
    kc_reports *reports = NULL;
    kc_report one;
    if (kc_producer_reports(p->producer, &reports, timeout_us) != KC_OK) return;
    while (kc_reports_next(reports, &one)) {
        p->done++;
        p->told[one.opaque] = one.err == KC_OK ? ACKED : one.outcome == KC_NOT_PERSISTED ? NOT_STORED : MAYBE;
        note_attempts(p, reports, one.err);
    }
    kc_reports_free(reports);
}

static void show(const struct play *p) {
    struct bench_run *r = p->r;
    static const char *const words[] = {"sending", "killing", "killed", "starting again", "the rest"};
    double by_time = (double)(cli_now_us() - p->start) / (double)(r->seconds * 1000000);
    double share = r->records > 0 ? (double)p->done / (double)r->records : by_time;
    bench_progress(r, words[p->phase], share > 1 ? 1 : share);
}

static int send_all(struct play *p) {
    kc_err err = KC_OK;
    for (uint64_t turn = 1; err == KC_OK && (!is_all_sent(p) || p->done < p->sent) && !cli_interrupted; turn++) {
        bool wait = true;
        if (act(p) != CLI_OK) break;
        for (int i = 0; i < 64 && may_send(p); i++) {
            kc_record record = bench_record(p->r, &p->topic, p->sent);
            err = kc_producer_send(p->producer, &record, 0);
            if (err != KC_OK) break;
            p->sent++;
            wait = false;
        }
        if (err == KC_QUEUE_FULL) err = KC_OK;
        drain(p, wait || p->mode == BENCH_ONE_BY_ONE ? SLICE_US : 0);
        if (turn % 64 == 0 || wait) show(p);
        cli_session_logs(&p->r->s);
    }
    p->end = cli_now_us();
    if (p->order) (void)bench_cluster_answered(p->order, true);
    if (cli_interrupted) return cli_fail("bench", KC_CANCELLED, NULL);
    if (err != KC_OK) return cli_fail("bench: send", err, NULL);
    return p->phase == OVER ? CLI_OK : CLI_FAILURE;
}

/* ---- Judging ---- */

static void judge(struct play *p) {
    struct bench_kill_result *o = p->out;
    for (uint64_t i = 0; i < p->sent; i++) {
        bool there = p->copies[i] > 0;
        o->acked += p->told[i] == ACKED;
        o->failed += p->told[i] != ACKED;
        o->stored += there;
        o->lost += p->told[i] == ACKED && !there;
        o->doubled += p->copies[i] > 1;
        o->extra += there ? p->copies[i] - 1u : 0;
        o->failed_stored += p->told[i] != ACKED && there;
        o->told_wrong += p->told[i] == NOT_STORED && there;
    }
}

static int read_back(struct play *p) {
    int64_t ends[12];
    bench_progress(p->r, "reading back", 1);
    int rc = bench_topic_settle(p->r, &p->topic, setting.partitions, setting.min_isr, BENCH_SETTLE_US, ends);
    if (rc == CLI_OK) rc = bench_read_back(p->r, &p->topic, ends, setting.partitions, p->copies, p->sent);
    if (rc == CLI_OK) judge(p);
    return rc;
}

static int perform(struct play *p) {
    struct bench_run *r = p->r;
    p->room = r->records > 0 ? (uint64_t)r->records : SENT_MAX;
    p->told = calloc(p->room, 1);
    p->copies = calloc(p->room, 1);
    if (!p->told || !p->copies) return cli_fail("bench", KC_NO_MEMORY, NULL);
    int rc = bench_topic_make(r, &setting, &p->topic);
    if (rc == CLI_OK) rc = bench_producer_open(r, setting.acks, p->c->retries, p->c->idempotent, p->mode, &p->producer);
    if (rc == CLI_OK) rc = bench_warm_up(p->producer, &p->topic, setting.partitions);
    if (rc != CLI_OK) return rc;
    p->start = cli_now_us();
    rc = send_all(p);
    kc_producer_stats stats = {0};
    (void)kc_producer_stats_get(p->producer, &stats, sizeof stats);
    (void)kc_producer_close(p->producer, 5000000, NULL);
    p->out->sent = p->sent;
    p->out->retries = stats.retries;
    p->out->seconds = (double)(p->end - p->start) / 1e6;
    return rc == CLI_OK ? read_back(p) : rc;
}

int bench_kills(struct bench_run *r, enum bench_mode mode, size_t which) {
    struct play p = {.r = r, .c = &bench_kill_cases[which], .out = &r->kills[mode][which], .mode = mode};
    int rc = perform(&p);
    kc_producer_free(p.producer);
    free(p.told);
    free(p.copies);
    p.out->ran = rc == CLI_OK;
    if (rc == CLI_OK && !p.c->restart) { /* the next case begins with all four */
        rc = order(&p, KC_TEST_START, OVER);
        if (rc == CLI_OK) rc = bench_cluster_answered(p.order, true) == 1 ? CLI_OK : CLI_FAILURE;
    }
    if (rc == CLI_OK) bench_topic_delete(r, &p.topic);
    return rc;
}
