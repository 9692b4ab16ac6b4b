/* main.c - the simulator's program: one seed, or many, each in a process of its own, so that a crash is a result like any other.
 *
 * Called by tests/sim/run. Calls workload. Counts what was done and broken, over all seeds, and judges the whole: a seed that did too
 * little work, or a kind of fault that never fired, fails.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "alloc.h"
#include "cluster.h"

enum {
    RECORDS_MIN = 5000, FAULTS_MIN = 20, GATE_SEEDS = 300, GATE_CLUSTER_SEEDS = 150, ELECTIONS_MIN = 3, TWICE_EVERY = 10, ONE_EVERY = 2,
    SEEDS_FILE_MAX = 4096
};

enum world { ONE, CLUSTER, WORLDS }; /* one node; several */
struct result { /* what a seed's process tells */
    uint64_t hash, records, read, acked, events, faults;
    int64_t virtual_us, cpu_us;
    uint64_t controller_elections, leader_elections;
    uint64_t fired[SIM_F_COUNT], disk_fired[SIM_DISK_FAULT_COUNT];
};
struct job {
    pid_t pid;
    int fd;
    uint64_t seed;
    enum world world;
    bool again; /* the second run of a seed: its hash must be the first one's */
};
struct all {
    uint64_t passed, failed;
    struct result sum[WORLDS];
    uint64_t gate_seeds[WORLDS];
    struct job jobs[64];
    int job_count, jobs_max;
    struct first {
        uint64_t seed, hash;
        enum world world;
    } * firsts; /* of seeds that run twice */
    size_t first_count, first_cap;
    bool loud;
};
static const char *const flags[WORLDS] = {"", "--cluster "}, *const names[WORLDS] = {"one node", "cluster"};

/* ---- One seed ---- */

static struct result run_one(enum world world, uint64_t seed, bool loud) {
    static struct sim_run r;
    struct result out = {0};
    sim_alloc_init();
    world == CLUSTER ? sim_cluster_run(&r, seed, loud) : sim_run_seed(&r, seed, loud);
    for (int i = 0; i < SIM_F_COUNT; i++) out.faults += out.fired[i] = r.w.fired[i];
    for (int i = 0; i < SIM_DISK_FAULT_COUNT; i++) {
        for (int n = 0; n < r.node_count; n++) out.disk_fired[i] += sim_disk_fired(r.nodes[n].disk, (enum sim_disk_fault)i);
        out.faults += out.disk_fired[i];
    }
    if (r.cluster) {
        out.controller_elections = r.cluster->controller_elections;
        out.leader_elections = r.cluster->leader_elections;
    }
    sim_run_deinit(&r);
    if (sim_alloc_blocks()) {
        sim_the_world = &r.w;
        sim_fail(&r.w, 37, "%zu blocks of memory are left over", sim_alloc_blocks());
    }
    out.hash = r.w.hash;
    out.records = r.model.count;
    out.read = r.model.read;
    out.acked = r.model.acked;
    out.events = r.w.events;
    out.virtual_us = r.w.now_us - 1000 * SIM_S;
    struct timespec cpu;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    out.cpu_us = (int64_t)cpu.tv_sec * SIM_S + cpu.tv_nsec / 1000;
    return out;
}

/* ---- Many ---- */

static void start(struct all *a, enum world world, uint64_t seed, bool again) {
    int fds[2];
    if (pipe(fds) != 0) abort();
    fflush(stdout);
    pid_t pid = fork();
    if (pid < 0) abort();
    if (pid == 0) {
        close(fds[0]);
        struct result r = run_one(world, seed, a->loud && !again);
        if (write(fds[1], &r, sizeof r) != sizeof r) _exit(2);
        fflush(NULL);
        exit(0); /* leak checkers have their say */
    }
    close(fds[1]);
    a->jobs[a->job_count++] = (struct job){pid, fds[0], seed, world, again};
}

static void add(struct all *a, enum world world, const struct result *r) {
    struct result *s = &a->sum[world];
    a->gate_seeds[world]++;
    s->controller_elections += r->controller_elections;
    s->leader_elections += r->leader_elections;
    s->records += r->records;
    s->read += r->read;
    s->acked += r->acked;
    s->events += r->events;
    s->faults += r->faults;
    s->virtual_us += r->virtual_us;
    s->cpu_us += r->cpu_us;
    for (int i = 0; i < SIM_F_COUNT; i++) s->fired[i] += r->fired[i];
    for (int i = 0; i < SIM_DISK_FAULT_COUNT; i++) s->disk_fired[i] += r->disk_fired[i];
}

/* Both runs of a seed have told their hash: false, they differ. */
static bool same_hash(struct all *a, enum world world, uint64_t seed, uint64_t hash) {
    for (size_t i = 0; i < a->first_count; i++)
        if (a->firsts[i].seed == seed && a->firsts[i].world == world) return a->firsts[i].hash == hash;
    a->firsts = sim_grow(a->firsts, a->first_count, &a->first_cap, sizeof *a->firsts);
    a->firsts[a->first_count++] = (struct first){seed, hash, world};
    return true;
}

static bool too_little(const struct job *j, const struct result *r) {
    bool elections = j->world == ONE || r->controller_elections + r->leader_elections >= ELECTIONS_MIN;
    if (r->records >= RECORDS_MIN && r->faults >= FAULTS_MIN && elections) return false;
    printf("failed seed %llu: %llu records, %llu faults that fired, %llu elections: %d, %d%s are wanted; replay: tests/sim/run %s--seed %llu --trace\n",
           (unsigned long long)j->seed, (unsigned long long)r->records, (unsigned long long)r->faults,
           (unsigned long long)(r->controller_elections + r->leader_elections), RECORDS_MIN, FAULTS_MIN, j->world == ONE ? "" : ", 3",
           flags[j->world], (unsigned long long)j->seed);
    return true;
}

static void finish(struct all *a, const struct job *j, int status) {
    struct result r;
    bool told = read(j->fd, &r, sizeof r) == sizeof r, ok = told && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    close(j->fd);
    if (!ok && WIFSIGNALED(status))
        printf("failed seed %llu invariant 37: the process died of signal %d; replay: tests/sim/run %s--seed %llu --trace\n",
               (unsigned long long)j->seed, WTERMSIG(status), flags[j->world], (unsigned long long)j->seed);
    else if (!ok && told)
        printf("failed seed %llu invariant 37: exit status %d at the end; replay: tests/sim/run %s--seed %llu --trace\n", (unsigned long long)j->seed,
               WEXITSTATUS(status), flags[j->world], (unsigned long long)j->seed);
    if (ok && too_little(j, &r)) ok = false;
    if (ok && !same_hash(a, j->world, j->seed, r.hash)) {
        printf("failed seed %llu invariant 38: run twice, its hashes differ; compare two outputs of tests/sim/run %s--seed %llu --trace\n",
               (unsigned long long)j->seed, flags[j->world], (unsigned long long)j->seed);
        ok = false;
    }
    if (j->again) {
        if (!ok) a->failed++;
        return;
    }
    if (ok) add(a, j->world, &r);
    ok ? a->passed++ : a->failed++;
    if (!ok || a->jobs_max > 1) return;
    printf("seed %llu hash %016llx: %llu records, %llu read, %llu faults, %llu events, %lld s in %lld ms", (unsigned long long)j->seed,
           (unsigned long long)r.hash, (unsigned long long)r.records, (unsigned long long)r.read, (unsigned long long)r.faults,
           (unsigned long long)r.events, (long long)(r.virtual_us / SIM_S), (long long)(r.cpu_us / 1000));
    if (j->world == CLUSTER)
        printf(", %llu controllers, %llu elections of leaders", (unsigned long long)r.controller_elections, (unsigned long long)r.leader_elections);
    printf("\n");
}

static void reap(struct all *a) {
    int status;
    pid_t pid = wait(&status);
    for (int i = 0; i < a->job_count; i++) {
        if (a->jobs[i].pid != pid) continue;
        struct job j = a->jobs[i];
        a->jobs[i] = a->jobs[--a->job_count];
        finish(a, &j, status);
        return;
    }
}

static void run(struct all *a, enum world world, uint64_t seed, bool twice) {
    for (int k = 0; k <= (twice ? 1 : 0); k++) {
        while (a->job_count >= a->jobs_max) reap(a);
        start(a, world, seed, k == 1);
    }
}

/* Lines "SEED why" and "cluster SEED why". */
static size_t read_seeds(const char *path, struct first *v) {
    FILE *f = path ? fopen(path, "r") : NULL;
    char line[512];
    size_t n = 0;
    while (f && n < SEEDS_FILE_MAX && fgets(line, sizeof line, f)) {
        bool cluster = strncmp(line, "cluster ", 8) == 0;
        const char *p = line + (cluster ? 8 : 0);
        if (*p >= '0' && *p <= '9') v[n++] = (struct first){.seed = strtoull(p, NULL, 10), .world = cluster ? CLUSTER : ONE};
    }
    if (f) fclose(f);
    return n;
}

/* Kinds of faults that this world has no use for. */
static bool is_foreign(enum world world, int f) {
    static const enum sim_fault one[] = {SIM_F_KILL_LEADER, SIM_F_KILL_CONTROLLER, SIM_F_KILL_ALL, SIM_F_ROTTEN_TAIL, SIM_F_POWER_SEVERAL,
                                        SIM_F_MESH, SIM_F_ISOLATED, SIM_F_WIPED, SIM_F_LEFT_OUT, SIM_F_SLOW_DISK,
                                        SIM_F_REASSIGN, SIM_F_CANCEL, SIM_F_ELECT, SIM_F_UNREGISTER, SIM_F_FORGED,
                                        SIM_F_OLD_VOTER, SIM_F_STATE, SIM_F_JOINED, SIM_F_LEFT, SIM_F_SPIKE, SIM_F_UNCLEAN};
    static const enum sim_fault cluster[] = {SIM_F_RESOLVE, SIM_F_WRONG_ADDRESS, SIM_F_MOVED};
    for (size_t i = 0; i < KW_COUNTOF(one) && world == ONE; i++)
        if ((int)one[i] == f) return true;
    for (size_t i = 0; i < KW_COUNTOF(cluster) && world == CLUSTER; i++)
        if ((int)cluster[i] == f) return true;
    return world == ONE && f == SIM_F_COUNT + SIM_DISK_BAD_SECTOR;
}

static void report(struct all *a, enum world world) {
    const struct result *s = &a->sum[world];
    uint64_t seeds = a->gate_seeds[world];
    bool gate = seeds >= (world == ONE ? GATE_SEEDS : GATE_CLUSTER_SEEDS);
    if (!seeds) return;
    printf("%llu seeds, %s: %llu records sent, %llu acknowledged, %llu read, %llu faults, %llu events; %lld s of virtual time in %lld s of CPU "
           "time: %lld times as fast\n",
           (unsigned long long)seeds, names[world], (unsigned long long)s->records, (unsigned long long)s->acked, (unsigned long long)s->read,
           (unsigned long long)s->faults, (unsigned long long)s->events, (long long)(s->virtual_us / SIM_S), (long long)(s->cpu_us / SIM_S),
           (long long)(s->virtual_us / KW_MAX(s->cpu_us, 1)));
    if (world == CLUSTER)
        printf("  a seed: %llu controllers elected, %llu leaders, %llu records\n", (unsigned long long)(s->controller_elections / seeds),
               (unsigned long long)(s->leader_elections / seeds), (unsigned long long)(s->records / seeds));
    for (int i = 0; i < SIM_F_COUNT + SIM_DISK_FAULT_COUNT; i++) {
        uint64_t n = i < SIM_F_COUNT ? s->fired[i] : s->disk_fired[i - SIM_F_COUNT];
        const char *name = i < SIM_F_COUNT ? sim_fault_name((enum sim_fault)i) : sim_disk_fault_name((enum sim_disk_fault)(i - SIM_F_COUNT));
        if (n == 0 && is_foreign(world, i)) continue;
        printf("  %-28s%s %llu\n", name, i < SIM_F_COUNT ? "      " : " (disk)", (unsigned long long)n);
        if (n == 0 && gate) {
            printf("failed: the fault \"%s\" never fired over %llu seeds\n", name, (unsigned long long)seeds);
            a->failed++;
        }
    }
}

static int usage(FILE *to) {
    fprintf(to, "usage: tests/sim/run [--cluster | --one] [--seed S] [--seeds N] [--from S] [--minutes M] [--jobs J] [--trace] [--advance]\n"
                    "       [--regressions FILE]\n"
                    "  --seed S     one seed, twice; prints its hash. One node, with --cluster several\n"
                    "  --seeds N    the regression seeds and N others of a cluster, counted from --from (1), and half as many of one node\n"
                    "  --minutes M  as many as there is time for, from a new place each time unless --from is given\n"
                    "  --cluster    of many seeds, those of a cluster alone; --one, those of one node alone: N then counts these\n"
                    "  --jobs J     so many at a time (2); one at a time, each seed says what it did, and its hash\n"
                    "  --advance    where a node's wall clock jumps forward, it is time that passes for its policies (kb_node_advance); other hashes\n"
                    "  --trace      what happens, on stderr; with --seed: once\n"
                    "  --here       with --seed: once, in this process, for a debugger\n");
    return to == stdout ? 0 : 2;
}

static bool number(const char *text, double most, double *n) {
    char *end;
    *n = strtod(text, &end);
    return *text >= '0' && *text <= '9' && *end == 0 && *n <= most;
}

static void run_many(struct all *a, const bool worlds[WORLDS], const char *file, uint64_t seeds, uint64_t from, double minutes) {
    static struct first regressions[SEEDS_FILE_MAX];
    time_t until = time(NULL) + (time_t)(minutes * 60);
    size_t n = read_seeds(file, regressions);
    if (!from) from = minutes > 0 ? (uint64_t)time(NULL) * 1000 : 1;
    if (!seeds) seeds = minutes > 0 ? UINT64_MAX : 100;
    for (size_t i = 0; i < n; i++)
        if (worlds[regressions[i].world]) run(a, regressions[i].world, regressions[i].seed, false);
    for (uint64_t i = 0; i < seeds && (minutes <= 0 || time(NULL) < until); i++) {
        if (worlds[CLUSTER]) run(a, CLUSTER, from + i, i % TWICE_EVERY == 0);
        if (worlds[ONE] && (i % ONE_EVERY == 0 || !worlds[CLUSTER]))
            run(a, ONE, from + (worlds[CLUSTER] ? i / ONE_EVERY : i), i % TWICE_EVERY == 0);
    }
    while (a->job_count) reap(a);
    for (int k = 0; k < WORLDS; k++) report(a, (enum world)k);
}

int main(int argc, char **argv) {
    static struct all a = {.jobs_max = 2};
    const char *file = NULL;
    uint64_t counts[3] = {0, 0, 0};
    const char *const counted[3] = {"--seed", "--seeds", "--from"};
    double minutes = 0, n;
    bool one = false, here = false, worlds[WORLDS] = {true, true};
    for (int i = 1; i < argc; i++) {
        const char *v = i + 1 < argc ? argv[i + 1] : "";
        int k = 0;
        while (k < 3 && strcmp(argv[i], counted[k]) != 0) k++;
        if (strcmp(argv[i], "--help") == 0)
            return usage(stdout);
        else if (strcmp(argv[i], "--trace") == 0)
            a.loud = true;
        else if (strcmp(argv[i], "--advance") == 0)
            sim_advances = true;
        else if (strcmp(argv[i], "--here") == 0)
            here = true;
        else if (strcmp(argv[i], "--cluster") == 0)
            worlds[ONE] = false;
        else if (strcmp(argv[i], "--one") == 0)
            worlds[CLUSTER] = false;
        else if (strcmp(argv[i], "--regressions") == 0 && *v)
            file = v, i++;
        else if (strcmp(argv[i], "--minutes") == 0 && number(v, 1e6, &minutes))
            i++;
        else if (strcmp(argv[i], "--jobs") == 0 && number(v, (double)KW_COUNTOF(a.jobs), &n) && n >= 1)
            a.jobs_max = (int)n, i++;
        else if (k < 3 && *v && !v[strspn(v, "0123456789")])
            counts[k] = strtoull(v, NULL, 10), one |= k == 0, i++;
        else
            return usage(stderr);
    }
    uint64_t seed = counts[0], seeds = counts[1], from = counts[2];
    if ((!worlds[ONE] && !worlds[CLUSTER]) || (here && !one)) return usage(stderr);
    enum world world = worlds[ONE] ? ONE : CLUSTER;
    if (here) {
        struct result r = run_one(world, seed, a.loud);
        printf("hash %016llx\n", (unsigned long long)r.hash);
        return 0;
    }
    if (one) {
        a.jobs_max = 1;
        run(&a, world, seed, !a.loud);
        while (a.job_count) reap(&a);
    } else {
        run_many(&a, worlds, file, seeds, from, minutes);
    }
    printf("%llu passed, %llu failed\n", (unsigned long long)a.passed, (unsigned long long)a.failed);
    return a.failed != 0;
}
