/* bench.h - what the parts of kc bench scenario share: its cells with the published figures, a cluster of its own, loads, judgements, results.
 *
 * bench_scenario.c is the command. It takes its cells from bench_cells.c, a cluster from bench_cluster.c, runs them by bench_load.c (1 to 4) or
 * bench_kills.c (5, with bench_judge.c), and tells of them by bench_print.c, bench_json.c, bench_chart.c and bench_chart_kills.c.
 */
#ifndef KC_BENCH_H
#define KC_BENCH_H

#include "cli.h"

#include <kclient/kclient_test.h>

enum { BENCH_CELLS_MAX = 16, BENCH_ROUNDS_MAX = 99, BENCH_ERRORS_MAX = 24, BENCH_PAIRS_MAX = 16, BENCH_CLAIMS_MAX = 8, BENCH_BROKERS = 4, BENCH_CASES = 5 };

/* ---- What is measured (bench_cells.c) ---- */

/* Pipelined: as many records under way as the client's limits allow. One by one: each is waited for (producer.type=sync). */
enum bench_mode { BENCH_PIPELINED, BENCH_ONE_BY_ONE, BENCH_MODES };
extern const char *const bench_mode_names[BENCH_MODES];

struct bench_cell {
    int32_t partitions, rf, min_isr, acks;
    double published; /* records a second; 0: none was */
};
struct bench_scenario {
    int number;
    const char *title, *published_note; /* the note: what was published besides figures; NULL */
    const struct bench_cell *cells;     /* the first is the base that ratios are to; NULL: scenario 5 */
    size_t cell_count;
};
extern const struct bench_scenario bench_scenarios[5];
enum { BENCH_TEXT_MAX = 96 };
/* "rf 2, min.isr 1, acks -1"; in a scenario that varies the partitions their number. */
const char *bench_cell_text(const struct bench_scenario *s, size_t cell, char text[BENCH_TEXT_MAX]);
const char *bench_thousands(double n, char text[32]); /* "28,511" */

/* ---- Results ---- */

struct bench_errors { /* what the client saw, by code */
    struct bench_error {
        kc_err code;
        uint64_t met;   /* records one of whose attempts ended so */
        uint64_t ended; /* records that ended so */
    } v[BENCH_ERRORS_MAX];
    size_t count;
};
void bench_errors_note(struct bench_errors *e, kc_err code, bool met, bool ended);

struct bench_result { /* of a cell in one mode */
    double rate[BENCH_ROUNDS_MAX];
    int rounds; /* that were measured; 0: not yet, or skipped */
    uint64_t records, failed, stored, batches; /* over all rounds */
    int64_t cpu_ns;
    struct bench_errors errors;
    double median, low, high; /* records a second */
};
void bench_result_settle(struct bench_result *r); /* median, low and high from the rounds */

struct bench_kill_case {
    const char *name, *retries;
    int kills;
    bool restart, idempotent;
    double published; /* 0: none */
    const char *published_note;
};
extern const struct bench_kill_case bench_kill_cases[BENCH_CASES];

struct bench_kill_result {
    bool ran;
    uint64_t sent, acked, failed;
    uint64_t stored;        /* different records in the log */
    uint64_t lost;          /* acked, and not there */
    uint64_t doubled, extra; /* there more than once; copies too many */
    uint64_t failed_stored; /* reported as failed, and there all the same */
    uint64_t told_wrong;    /* reported as certainly not stored, and there */
    uint64_t retries;       /* batches that were sent again */
    double seconds;
    struct bench_errors errors;
};

/* ---- Do the conclusions hold? (bench_cells.c) ---- */

enum bench_verdict { BENCH_HOLDS, BENCH_NOISE, BENCH_FAILS, BENCH_UNKNOWN, BENCH_VERDICTS };
extern const char *const bench_verdict_names[];
struct bench_pair {
    size_t a, b;            /* cells */
    double ratio, noise;    /* a's median to b's; by how much they may differ by chance */
    double published_ratio; /* 0: none */
    enum bench_verdict verdict;
};
struct bench_claim {
    const char *text;
    enum bench_mode mode;
    enum bench_verdict verdict; /* of all pairs together */
    size_t count[BENCH_VERDICTS]; /* of pairs with each verdict */
    struct bench_pair pairs[BENCH_PAIRS_MAX];
    size_t pair_count;
};
/* The article's conclusions about this scenario in one mode, judged by the results. Returns how many there are. */
size_t bench_claims(const struct bench_scenario *s, enum bench_mode mode, const struct bench_result *results, struct bench_claim out[BENCH_CLAIMS_MAX]);

/* ---- A cluster of its own (bench_cluster.c) ---- */

/* CLI_OK, or the exit code with the error printed. data NULL: a temporary folder, removed at the end. controllers 0: brokers are the quorum. */
int bench_cluster_start(kc_test_cluster **out, int brokers, int controllers, const char *data);
/* Begins to do something to nodes (enum kc_test_action), without waiting; NULL: it could not, told on stderr. */
struct bench_order;
struct bench_order *bench_cluster_ask(kc_test_cluster *c, int32_t action, const int32_t *ids, size_t count);
/* 0: under way (never with wait). 1: done. -1: it failed, told on stderr. Unless 0, the order is gone. */
int bench_cluster_answered(struct bench_order *o, bool wait);

/* ---- Running ---- */

struct bench_pool { /* payloads, one after another; a record's number goes into its first 8 bytes */
    uint8_t *p;
    size_t stride, size;
};
#define BENCH_POOL 1024
int bench_pool_make(struct bench_pool *pool, size_t size, bool json); /* CLI_OK, or CLI_FAILURE with the error printed */
int64_t bench_cpu_ns(void);

struct bench_run {
    struct cli_session s;
    const struct bench_scenario *scenario;
    int64_t records, seconds, rounds, size; /* records 0: by time */
    bool modes[BENCH_MODES], own, json;
    const char *data, *json_file, *svg_file;
    kc_test_cluster *cluster; /* its own; NULL: one that is given */
    int brokers; /* that there are */
    double load; /* of the machine before */
    int cpus;
    struct bench_pool pool;
    struct cli_progress progress;
    int step, steps; /* what is measured now, of how many */
    char doing[BENCH_TEXT_MAX + 32];
    unsigned topics; /* made so far */
    struct bench_result results[BENCH_MODES][BENCH_CELLS_MAX];
    struct bench_kill_result kills[BENCH_MODES][BENCH_CASES];
};
/* One line on a terminal: which step, what, and until when. share: how much of the step is done. */
void bench_progress(struct bench_run *r, const char *what, double share);

/* A fresh topic whose partitions all have a leader and their replicas in sync. CLI_OK, or the exit code with the error printed. */
struct bench_topic {
    char name[80];
    int32_t id;
};
int bench_topic_make(struct bench_run *r, const struct bench_cell *cell, struct bench_topic *t);
void bench_topic_delete(struct bench_run *r, const struct bench_topic *t);
/* Waits until each partition has a leader, so many in sync at least, and all that it has is committed. ends: where they end, or NULL. */
#define BENCH_SETTLE_US ((int64_t)60000000)
int bench_topic_settle(struct bench_run *r, const struct bench_topic *t, int32_t partitions, int32_t in_sync, int64_t limit_us, int64_t *ends);

int bench_producer_open(struct bench_run *r, int32_t acks, const char *retries, bool idempotent, enum bench_mode mode, kc_producer **p);
/* A record without a number to each partition, answered: connections and metadata are there when the clock starts. */
int bench_warm_up(kc_producer *p, const struct bench_topic *t, int32_t partitions);
/* The i-th record, numbered. */
kc_record bench_record(struct bench_run *r, const struct bench_topic *t, uint64_t i);

int bench_load(struct bench_run *r, enum bench_mode mode, size_t cell);   /* one round of one cell (bench_load.c) */
int bench_kills(struct bench_run *r, enum bench_mode mode, size_t which); /* one case of scenario 5 (bench_kills.c) */
/* Reads all partitions up to their ends: copies[i], how often record i is there, for i < count (bench_judge.c). */
int bench_read_back(struct bench_run *r, const struct bench_topic *t, const int64_t *ends, int32_t partitions, uint8_t *copies, uint64_t count);

/* ---- Telling ---- */

void bench_print(const struct bench_run *r);          /* tables and conclusions on stdout (bench_print.c) */
void bench_print_kills(const struct bench_run *r);    /* scenario 5 */
void bench_json(FILE *f, const struct bench_run *r);  /* one object (bench_json.c) */
extern const char bench_json_schema[];                /* for the help */
void bench_chart(FILE *f, const struct bench_run *r); /* SVG (bench_chart.c) */
void bench_chart_kills(FILE *f, const struct bench_run *r);

int cmd_bench_scenario(int argc, char **argv);

#endif
