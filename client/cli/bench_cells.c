/* bench_cells.c - the five scenarios: their cells, the published figures, and what was concluded from them, judged by figures of our own.
 *
 * Called by the other parts of kc bench scenario. The published figures: a cluster of four machines of 24 cores, Kafka 0.10.1, one producer, records of 1 kB.
 */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

const char *const bench_mode_names[BENCH_MODES] = {"pipelined", "one by one"};
const char *const bench_verdict_names[] = {"holds", "within noise", "does not hold", "not measured"};

/* partitions, replication factor, min.insync.replicas, acks, published records a second */
static const struct bench_cell twelve_partitions[] = {
    {12, 1, 1, -1, 28511}, {12, 2, 1, -1, 22360}, {12, 2, 2, -1, 22927}, {12, 4, 1, -1, 16194}, {12, 4, 2, -1, 16600}, {12, 4, 4, -1, 16680},
    {12, 1, 1, 0, 45354},  {12, 2, 1, 0, 46427},  {12, 4, 1, 0, 46764},  {12, 1, 1, 1, 33950},  {12, 2, 1, 1, 32192},  {12, 4, 1, 1, 32276},
};
static const struct bench_cell one_partition[] = {
    {1, 2, 1, -1, 9739}, {1, 2, 2, -1, 9702}, {1, 3, 1, -1, 9000}, {1, 3, 2, -1, 9243},
    {1, 4, 1, -1, 9006}, {1, 4, 2, -1, 8217}, {1, 4, 4, -1, 9092},
};
static const struct bench_cell replicas_and_acks[] = {
    {1, 1, 1, -1, 18641}, {1, 2, 1, -1, 9739}, {1, 4, 1, -1, 9006},  {1, 1, 1, 0, 76696}, {1, 2, 1, 0, 57503},
    {1, 4, 1, 0, 59367},  {1, 1, 1, 1, 19489}, {1, 2, 1, 1, 20404}, {1, 4, 1, 1, 18365},
};
/* Published as a curve; its ends are cells of scenarios 2 and 1. */
static const struct bench_cell more_partitions[] = {{1, 2, 2, -1, 9702}, {2, 2, 2, -1, 0}, {4, 2, 2, -1, 0}, {8, 2, 2, -1, 0}, {12, 2, 2, -1, 22927}};

#define CELLS(v) v, sizeof v / sizeof *v
const struct bench_scenario bench_scenarios[5] = {
    {1, "12 partitions: replicas, min.insync.replicas and acks", NULL, CELLS(twelve_partitions)},
    {2, "1 partition, acks -1: replicas and min.insync.replicas", NULL, CELLS(one_partition)},
    {3, "1 partition, min.insync.replicas 1: replicas and acks", NULL, CELLS(replicas_and_acks)},
    {4, "2 replicas, min.insync.replicas 2, acks -1: partitions", "published as a curve that rises, not in proportion, then dips slightly",
     CELLS(more_partitions)},
    {5, "4 replicas, min.isr 2, acks -1, 12 partitions: brokers are killed", NULL, NULL, 0},
};

#define FOREVER_TRIES "100000000"
const struct bench_kill_case bench_kill_cases[BENCH_CASES] = {
    {"two of four killed, retries 0", "0", 2, false, false, 12840, "some stored, some failed with NetworkException"},
    {"two of four killed, retries 10^8", FOREVER_TRIES, 2, false, false, 13870, "stored, with duplicates; NETWORK_EXCEPTION retried"},
    {"two of four killed, idempotence", FOREVER_TRIES, 2, false, true, 0, NULL},
    {"three killed and restarted, retries 10^8", FOREVER_TRIES, 3, true, false, 0,
     "duplicates; also NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS_AFTER_APPEND"},
    {"three killed and restarted, idempotence", FOREVER_TRIES, 3, true, true, 0, NULL},
};

const char *bench_cell_text(const struct bench_scenario *s, size_t cell, char text[BENCH_TEXT_MAX]) {
    const struct bench_cell *c = &s->cells[cell];
    if (s->number == 4) snprintf(text, BENCH_TEXT_MAX, "%d partition%s", (int)c->partitions, c->partitions == 1 ? "" : "s");
    else snprintf(text, BENCH_TEXT_MAX, "rf %d, min.isr %d, acks %d", (int)c->rf, (int)c->min_isr, (int)c->acks);
    return text;
}

const char *bench_thousands(double n, char text[32]) {
    char plain[32];
    int size = snprintf(plain, sizeof plain, "%.0f", n);
    size_t at = 0;
    for (int i = 0; i < size && at + 2 < 32; i++) {
        text[at++] = plain[i];
        if (i + 1 < size && plain[i] != '-' && (size - i - 1) % 3 == 0) text[at++] = ',';
    }
    text[at] = 0;
    return text;
}

void bench_errors_note(struct bench_errors *e, kc_err code, bool met, bool ended) {
    size_t i = 0;
    while (i < e->count && e->v[i].code != code) i++;
    if (i == BENCH_ERRORS_MAX) return;
    if (i == e->count) e->v[e->count++] = (struct bench_error){.code = code};
    e->v[i].met += met;
    e->v[i].ended += ended;
}

static int by_rate(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

void bench_result_settle(struct bench_result *r) {
    double sorted[BENCH_ROUNDS_MAX];
    if (r->rounds == 0) return;
    memcpy(sorted, r->rate, (size_t)r->rounds * sizeof *sorted);
    qsort(sorted, (size_t)r->rounds, sizeof *sorted, by_rate);
    size_t middle = (size_t)r->rounds / 2;
    r->median = r->rounds % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
    r->low = sorted[0];
    r->high = sorted[r->rounds - 1];
}

/* ---- Conclusions ---- */

enum field { ACKS, RF, MIN_ISR, PARTITIONS };
enum relation { GREATER, EQUAL, BELOW_PROPORTION };
struct rule { /* cells that differ in one field alone, a value and the next one, are to stand so to each other */
    int scenario;
    enum field field;
    enum relation relation;
    const char *text;
};
static const struct rule rules[] = {
    {1, ACKS, GREATER, "acks 0 is faster than 1, 1 than -1"},
    {1, RF, GREATER, "with acks -1 more replicas are slower"},
    {1, MIN_ISR, EQUAL, "min.insync.replicas does not matter"},
    {2, RF, GREATER, "with acks -1 more replicas are slower"},
    {2, MIN_ISR, EQUAL, "min.insync.replicas does not matter"},
    {3, ACKS, GREATER, "acks 0 is faster than 1, 1 than -1"},
    {3, RF, GREATER, "with acks -1 more replicas are slower"},
    {4, PARTITIONS, GREATER, "more partitions are faster, then a dip"},
    {4, PARTITIONS, BELOW_PROPORTION, "they are so less than in proportion"},
};
/* By chance two figures may differ by so much; where each was taken once, nothing is known of the chance. */
static const double noise_min = 0.03, noise_unknown = 0.10, equal_within = 0.10, dip_most = 0.30;

/* Where the value stands in the order of the claim: the faster first. */
static int rank(const struct bench_cell *c, enum field f) {
    switch (f) {
    case ACKS: return c->acks == 0 ? 0 : c->acks == 1 ? 1 : 2;
    case RF: return c->rf;
    case MIN_ISR: return c->min_isr;
    case PARTITIONS: return c->partitions;
    }
    return 0;
}

static bool alike_but(const struct bench_cell *a, const struct bench_cell *b, enum field f) {
    return (f == ACKS || a->acks == b->acks) && (f == RF || a->rf == b->rf) && (f == MIN_ISR || a->min_isr == b->min_isr) &&
           (f == PARTITIONS || a->partitions == b->partitions);
}

/* b has the next value after a's, all else being equal. */
static bool is_next(const struct bench_scenario *s, size_t a, size_t b, enum field f) {
    int low = rank(&s->cells[a], f), high = rank(&s->cells[b], f);
    if (low >= high || !alike_but(&s->cells[a], &s->cells[b], f)) return false;
    for (size_t i = 0; i < s->cell_count; i++) {
        int between = rank(&s->cells[i], f);
        if (between > low && between < high && alike_but(&s->cells[a], &s->cells[i], f)) return false;
    }
    return true;
}

static double noise_of(const struct bench_result *a, const struct bench_result *b) {
    if (a->rounds < 2 || b->rounds < 2) return noise_unknown;
    double n = ((a->high - a->low) / a->median + (b->high - b->low) / b->median) / 2; /* beyond it their rounds do not overlap */
    return n > noise_min ? n : noise_min;
}

static enum bench_verdict judge(const struct bench_scenario *s, const struct rule *rule, const struct bench_pair *p) {
    const struct bench_cell *a = &s->cells[p->a], *b = &s->cells[p->b];
    double off = p->ratio - 1;
    if (rule->relation == EQUAL) {
        double apart = off < 0 ? -off : off;
        return apart <= equal_within ? BENCH_HOLDS : apart <= p->noise ? BENCH_NOISE : BENCH_FAILS;
    }
    if (rule->relation == BELOW_PROPORTION) {
        double share = p->ratio / ((double)a->partitions / b->partitions);
        return share * (1 + p->noise) < 1 ? BENCH_HOLDS : share <= 1 + p->noise ? BENCH_NOISE : BENCH_FAILS;
    }
    if (off > p->noise) { /* the last step of the partitions is the dip */
        bool dip = rule->field == PARTITIONS && b->partitions == 12;
        return dip && off > dip_most ? BENCH_FAILS : BENCH_HOLDS;
    }
    return off >= -p->noise ? BENCH_NOISE : BENCH_FAILS;
}

/* The pair as the claim orders it: a is to be the faster one. */
static struct bench_pair make_pair(const struct bench_scenario *s, const struct rule *rule, const struct bench_result *results, size_t a, size_t b) {
    bool rises = rule->field == PARTITIONS && (rule->relation == BELOW_PROPORTION || s->cells[b].partitions < 12);
    struct bench_pair p = {.a = rises ? b : a, .b = rises ? a : b, .verdict = BENCH_UNKNOWN};
    const struct bench_result *x = &results[p.a], *y = &results[p.b];
    if (s->cells[p.a].published > 0 && s->cells[p.b].published > 0) p.published_ratio = s->cells[p.a].published / s->cells[p.b].published;
    if (x->rounds == 0 || y->rounds == 0 || y->median <= 0) return p;
    p.ratio = x->median / y->median;
    p.noise = noise_of(x, y);
    p.verdict = judge(s, rule, &p);
    return p;
}

/* One that fails spoils the claim; where more of them are within noise than hold, so is the claim. */
static enum bench_verdict together(struct bench_claim *c) {
    for (size_t i = 0; i < c->pair_count; i++) c->count[c->pairs[i].verdict]++;
    if (c->count[BENCH_FAILS]) return BENCH_FAILS;
    if (c->count[BENCH_NOISE] > c->count[BENCH_HOLDS]) return BENCH_NOISE;
    return c->count[BENCH_HOLDS] ? BENCH_HOLDS : BENCH_UNKNOWN;
}

static bool belongs(const struct bench_scenario *s, const struct rule *rule, size_t a, size_t b) {
    if (rule->field == RF && s->cells[a].acks != -1) return false;
    if (rule->relation == BELOW_PROPORTION) return s->cells[a].partitions == 1 && s->cells[b].partitions > 1;
    return is_next(s, a, b, rule->field);
}

size_t bench_claims(const struct bench_scenario *s, enum bench_mode mode, const struct bench_result *results, struct bench_claim out[BENCH_CLAIMS_MAX]) {
    size_t count = 0;
    for (size_t k = 0; k < sizeof rules / sizeof *rules && count < BENCH_CLAIMS_MAX; k++) {
        if (rules[k].scenario != s->number) continue;
        struct bench_claim *c = &out[count++];
        *c = (struct bench_claim){.text = rules[k].text, .mode = mode};
        for (size_t a = 0; a < s->cell_count; a++)
            for (size_t b = 0; b < s->cell_count; b++)
                if (a != b && c->pair_count < BENCH_PAIRS_MAX && belongs(s, &rules[k], a, b))
                    c->pairs[c->pair_count++] = make_pair(s, &rules[k], results, a, b);
        c->verdict = together(c);
    }
    return count;
}
