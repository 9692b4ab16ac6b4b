/* bench_scenario.c - kc bench scenario 1..5: the published benchmark, measured here, beside the published figures.
 *
 * Called by bench.c. Calls the other bench_*.c: bench.h says which does what. What is compared runs in turn, round by round, so that a machine that changes its
 * pace changes it for all.
 */
#include "bench.h"

#include <errno.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SECONDS = 2, SECONDS_KILLS = 6, ROUNDS = 3, SHOW_US = 200000, TOPIC_S = 1, SIZE_LEAST = 16, SIZE_MOST = 900000, RECORDS_MOST = 50000000 };

void bench_progress(struct bench_run *r, const char *what, double share) {
    int64_t now = cli_now_us();
    if (!r->progress.on || (share < 1 && now - r->progress.shown_us < SHOW_US)) return;
    r->progress.shown_us = now;
    double done = (r->step - 1 + share) / r->steps;
    double left = done > 0.01 ? (double)(now - r->progress.started_us) / 1e6 * (1 - done) / done : -1;
    char eta[32] = "";
    if (left >= 0) snprintf(eta, sizeof eta, "  ETA %d:%02d", (int)left / 60, (int)left % 60);
    cli_progress_say(&r->progress, "scenario %d: %d of %d: %.46s%s%s%s", r->scenario->number, r->step, r->steps, r->doing, *what ? ", " : "", what, eta);
}

/* ---- The run ---- */

static bool fits(const struct bench_run *r, size_t cell) {
    return r->scenario->cells[cell].rf <= r->brokers;
}

static int run_cells(struct bench_run *r) {
    char text[BENCH_TEXT_MAX];
    int rc = CLI_OK;
    for (size_t i = 0; i < r->scenario->cell_count; i++)
        for (int m = 0; m < BENCH_MODES; m++) r->steps += fits(r, i) && r->modes[m] ? (int)r->rounds : 0;
    if (r->steps == 0) {
        fprintf(stderr, "kc: bench: scenario %d needs at least %d brokers, this cluster has %d; without -b it starts one of its own\n", r->scenario->number,
                (int)r->scenario->cells[0].rf, r->brokers);
        return CLI_FAILURE;
    }
    for (int64_t round = 0; round < r->rounds; round++)
        for (int m = 0; m < BENCH_MODES; m++)
            for (size_t i = 0; i < r->scenario->cell_count && rc == CLI_OK; i++) {
                if (!r->modes[m] || !fits(r, i)) continue;
                r->step++;
                snprintf(r->doing, sizeof r->doing, "%s, %s", bench_cell_text(r->scenario, i, text), bench_mode_names[m]);
                bench_progress(r, "", 0);
                rc = bench_load(r, (enum bench_mode)m, i);
            }
    return rc;
}

static int run_kills(struct bench_run *r) {
    int rc = CLI_OK;
    for (int m = 0; m < BENCH_MODES; m++) r->steps += r->modes[m] ? BENCH_CASES : 0;
    for (int m = 0; m < BENCH_MODES; m++)
        for (size_t i = 0; i < BENCH_CASES && rc == CLI_OK && r->modes[m]; i++) {
            r->step++;
            snprintf(r->doing, sizeof r->doing, "%s", bench_kill_cases[i].name);
            rc = bench_kills(r, (enum bench_mode)m, i);
        }
    return rc;
}

static int count_brokers(struct bench_run *r) {
    kc_cluster_info *info = NULL;
    kc_error *error = NULL;
    kc_err err = cli_describe(&r->s, NULL, &info, &error);
    for (size_t i = 0; err == KC_OK && i < kc_cluster_info_broker_count(info); i++) {
        kc_broker_info b;
        if (kc_cluster_info_broker(info, i, &b) == KC_OK && !b.fenced) r->brokers++;
    }
    kc_cluster_info_free(info);
    return err == KC_OK ? CLI_OK : cli_fail("bench: cluster", err, error);
}

/* The settings of the producer that was published, the caller's own behind them: the last one counts. */
static int open_session(struct bench_run *r, const struct bench_run *given) {
    static const char *const of_then[] = {"batch.size=16384", "linger.ms=0", "max.in.flight.requests.per.connection=5", "partitioner=round_robin",
                                          "allow.auto.create.topics=false" /* a topic that was measured is deleted for good */};
    enum { COUNT = sizeof of_then / sizeof *of_then, MORE = COUNT + 1 };
    if (given->s.set.count > CLI_MANY_MAX - MORE) {
        fprintf(stderr, "kc: bench: at most %d of --set\n", CLI_MANY_MAX - MORE);
        return CLI_USAGE;
    }
    r->s.set.count = 0;
    for (int i = 0; i < COUNT; i++) r->s.set.v[r->s.set.count++] = of_then[i];
    if (r->scenario->number == 5 && !r->s.verbose) r->s.set.v[r->s.set.count++] = "log_level=3"; /* that connections are lost is what it is about */
    for (int i = 0; i < given->s.set.count; i++) r->s.set.v[r->s.set.count++] = given->s.set.v[i];
    return cli_session_open(&r->s);
}

/* A lost or wrongly told record, a copy that idempotence was to prevent, a failure where nothing was killed: the run says so, and so does its exit code. */
static int verdict(const struct bench_run *r) {
    uint64_t failed = 0, lost = 0, wrong = 0, doubled = 0, missing = 0;
    for (int m = 0; m < BENCH_MODES; m++) {
        for (size_t i = 0; i < r->scenario->cell_count; i++) {
            const struct bench_result *o = &r->results[m][i];
            failed += o->failed;
            if (o->stored + o->failed < o->records) missing += o->records - o->failed - o->stored;
        }
        for (size_t i = 0; i < BENCH_CASES && r->scenario->number == 5; i++) {
            lost += r->kills[m][i].lost;
            wrong += r->kills[m][i].told_wrong;
            doubled += bench_kill_cases[i].idempotent ? r->kills[m][i].doubled : 0;
        }
    }
    if (failed) fprintf(stderr, "kc: bench: %llu records failed though nothing was killed: the figures are not worth much\n", (unsigned long long)failed);
    if (missing) fprintf(stderr, "kc: bench: %llu records that were reported as sent are not in the log\n", (unsigned long long)missing);
    if (lost) fprintf(stderr, "kc: bench: %llu records were acknowledged and are not in the log\n", (unsigned long long)lost);
    if (wrong) fprintf(stderr, "kc: bench: %llu records were reported as certainly not stored, and are in the log\n", (unsigned long long)wrong);
    if (doubled) fprintf(stderr, "kc: bench: %llu records are in the log more than once, with idempotence\n", (unsigned long long)doubled);
    return failed || missing || lost || wrong || doubled ? CLI_FAILURE : CLI_OK;
}

static int write_file(const char *path, void (*write)(FILE *, const struct bench_run *), const struct bench_run *r) {
    FILE *f = path ? fopen(path, "w") : NULL;
    if (!path) return CLI_OK;
    if (f) write(f, r);
    if (f && !ferror(f) && fclose(f) == 0) return CLI_OK;
    fprintf(stderr, "kc: bench: %s cannot be written: %s\n", path, strerror(errno));
    return CLI_FAILURE;
}

static int tell(const struct bench_run *r) {
    bool kills = r->scenario->number == 5;
    if (r->json) bench_json(stdout, r);
    else (kills ? bench_print_kills : bench_print)(r);
    int rc = write_file(r->json_file, bench_json, r), charted = write_file(r->svg_file, kills ? bench_chart_kills : bench_chart, r);
    return rc == CLI_OK ? charted : rc;
}

static int perform(struct bench_run *r, const struct bench_run *given) {
    bool kills = r->scenario->number == 5;
    int rc = r->own ? bench_cluster_start(&r->cluster, BENCH_BROKERS, kills ? 3 : 0, r->data) : CLI_OK;
    if (rc == CLI_OK && r->own) r->s.brokers = kc_test_cluster_bootstrap(r->cluster);
    if (rc == CLI_OK) rc = open_session(r, given);
    if (rc == CLI_OK) rc = count_brokers(r);
    if (rc == CLI_OK) rc = bench_pool_make(&r->pool, (size_t)r->size, false);
    if (rc != CLI_OK) return rc;
    cli_progress_start(&r->progress, "", 0);
    rc = kills ? run_kills(r) : run_cells(r);
    cli_progress_end(&r->progress);
    if (rc != CLI_OK) return rc;
    rc = tell(r);
    return rc == CLI_OK ? verdict(r) : rc;
}

/* ---- The command line ---- */

/* Told before minutes are spent, not after. */
static bool can_write(const char *path) {
    char folder[4096];
    struct stat st;
    if (!path) return true;
    snprintf(folder, sizeof folder, "%s", path);
    bool there = stat(path, &st) == 0, is_folder = there && S_ISDIR(st.st_mode);
    if (!is_folder && access(there ? path : dirname(folder), W_OK) == 0) return true;
    fprintf(stderr, "kc: bench: %s cannot be written: %s\n", path, strerror(is_folder ? EISDIR : errno));
    return false;
}

static int list(void) {
    static const char *const heads[] = {"scenario", "cells", "what is compared"};
    struct cli_table *t = cli_table_new(heads, 3);
    for (size_t i = 0; i < sizeof bench_scenarios / sizeof *bench_scenarios; i++) {
        const struct bench_scenario *s = &bench_scenarios[i];
        cli_table_add(t, "%d", s->number);
        cli_table_add(t, "%zu", s->cells ? s->cell_count : (size_t)BENCH_CASES);
        cli_table_add(t, "%s", s->title);
    }
    cli_table_print(t);
    return CLI_OK;
}

static int check(const struct cli_command *c, struct bench_run *r, const struct cli_operands *words, const char *mode) {
    int64_t number;
    if (words->count == 0) return cli_usage_error(c, "needs the number of a scenario, 1 to 5; --list shows them");
    if (!cli_number(words->v[0], 1, 5, &number)) return cli_usage_error(c, "'%s' is no scenario: there are 1 to 5; --list shows them", words->v[0]);
    r->scenario = &bench_scenarios[number - 1];
    if (mode && strcmp(mode, "pipelined") != 0 && strcmp(mode, "sync") != 0 && strcmp(mode, "both") != 0)
        return cli_usage_error(c, "--mode takes pipelined, sync or both, not '%s'", mode);
    if (r->records && r->seconds) return cli_usage_error(c, "--records and --seconds: one or the other");
    if (r->records > RECORDS_MOST) return cli_usage_error(c, "--records is at most %d", RECORDS_MOST);
    if (r->rounds > BENCH_ROUNDS_MAX) return cli_usage_error(c, "--rounds is at most %d", BENCH_ROUNDS_MAX);
    if (r->size < SIZE_LEAST || r->size > SIZE_MOST) return cli_usage_error(c, "--size is %d to %d", SIZE_LEAST, SIZE_MOST);
    if (r->s.brokers && r->data) return cli_usage_error(c, "--data is for a cluster of its own, -b for one that runs: one or the other");
    if (number == 5 && r->s.brokers)
        return cli_usage_error(c, "scenario 5 kills brokers: it does so on a cluster of its own, never on one that is given by -b");
    if (number == 5 && r->rounds > 1) return cli_usage_error(c, "--rounds: a case of scenario 5 is judged record by record, not by a median");
    if (number == 5 && r->records && r->records < 30)
        return cli_usage_error(c, "scenario 5 needs --records 30 or more: a third goes before brokers are killed");
    return -1;
}

static void set_defaults(struct bench_run *r, const char *mode) {
    bool kills = r->scenario->number == 5;
    if (!r->records && !r->seconds) r->seconds = kills ? SECONDS_KILLS : SECONDS;
    if (!r->rounds) r->rounds = kills ? 1 : ROUNDS;
    r->modes[BENCH_PIPELINED] = !mode || strcmp(mode, "sync") != 0;
    r->modes[BENCH_ONE_BY_ONE] = mode ? strcmp(mode, "pipelined") != 0 : !kills;
    r->own = !r->s.brokers;
    r->cpus = (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (getloadavg(&r->load, 1) != 1) r->load = -1;
    if (r->load > r->cpus * 0.75)
        fprintf(stderr, "kc: bench: the machine is busy already (load %.1f on %d CPUs): figures will be low, and noisy\n", r->load, r->cpus);
}

static const char notes[] =
    "Without -b it starts four brokers of its own (kbroker cluster; kbroker is found in KBROKER, beside kc, or in PATH), by default in a temporary "
    "folder, and ends them however it ends. Settings are those of the producer that was published (batch.size 16384, linger.ms 0, five requests in "
    "flight, retries 0 in 1 to 4); --set changes them. Figures depend on the machine: compare ratios, each to the first cell.\n\n"
    "exit code: 0 measured, whatever came of it; 1 records failed, or were lost or doubled where that must not be, or it could not be measured; 2 usage\n\n";

static int run_command(struct cli_command *c, struct bench_run *r, const char *const *mode, const bool *only_list, int argc, char **argv) {
    struct cli_operands words;
    int rc = cli_parse(c, argc, argv, &words);
    if (rc >= 0) return rc;
    if (*only_list) return words.count ? cli_usage_error(c, "--list goes without a number") : list();
    rc = check(c, r, &words, *mode);
    if (rc >= 0) return rc;
    if (!can_write(r->json_file) || !can_write(r->svg_file)) return CLI_FAILURE;
    set_defaults(r, *mode);
    struct bench_run *run = malloc(sizeof *run); /* hundreds of kilobytes with its results */
    if (!run) return cli_fail("bench", KC_NO_MEMORY, NULL);
    *run = *r;
    cli_catch_signals(NULL, NULL);
    rc = perform(run, r);
    cli_session_close(&run->s);
    if (run->cluster && run->data) (void)kc_test_cluster_stop(run->cluster, NULL); /* in order: what is kept can be looked at */
    kc_test_cluster_free(run->cluster);
    free(run->pool.p);
    free(run);
    return rc;
}

int cmd_bench_scenario(int argc, char **argv) {
    static struct bench_run r;
    r = (struct bench_run){.size = 1024};
    const char *mode = NULL;
    bool only_list = false;
    const struct cli_option options[] = {
        {'b', "bootstrap", "HOST:PORT", "a cluster that runs (default: one of its own)", CLI_TEXT, &r.s.brokers},
        {0, "set", "NAME=VALUE", "a client property, as kc config explain lists", CLI_MANY, &r.s.set},
        {'v', "verbose", NULL, "log lines of the client on stderr", CLI_FLAG, &r.s.verbose},
        {0, "records", "N", "so many a cell", CLI_TOTAL, &r.records},
        {0, "seconds", "S", "or so long a cell (default 2; in scenario 5 6)", CLI_COUNT, &r.seconds},
        {0, "rounds", "N", "each cell so often, in turn; the median counts (default 3)", CLI_COUNT, &r.rounds},
        {0, "mode", "MODE", "pipelined, sync (one by one) or both (default both; in scenario 5 pipelined)", CLI_TEXT, &mode},
        {0, "size", "BYTES", "value size (default 1024)", CLI_COUNT, &r.size},
        {0, "data", "DIR", "folder of the cluster that it starts, kept (default: a temporary one)", CLI_TEXT, &r.data},
        {0, "json", NULL, "print one JSON object in place of tables", CLI_FLAG, &r.json},
        {0, "json-file", "FILE", "write that object there", CLI_TEXT, &r.json_file},
        {0, "svg", "FILE", "draw a chart there", CLI_TEXT, &r.svg_file},
        {0, "list", NULL, "what each scenario compares", CLI_FLAG, &only_list},
    };
    char more[6000];
    snprintf(more, sizeof more, "%s%s", notes, bench_json_schema);
    struct cli_command c = {"bench scenario",
                            "N",
                            "The published benchmark, 1 to 5: measured here, beside the published figures.",
                            more,
                            0,
                            1,
                            options,
                            sizeof options / sizeof *options,
                            "  kc bench scenario --list\n  kc bench scenario 1 --svg one.svg\n  kc bench scenario 4 --mode pipelined --rounds 5\n"
                            "  kc bench scenario 2 -b kafka:9092 --json\n"};
    return run_command(&c, &r, &mode, &only_list, argc, argv);
}
