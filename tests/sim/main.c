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
#include "workload.h"

enum { RECORDS_MIN = 5000, FAULTS_MIN = 20, GATE_SEEDS = 300, TWICE_EVERY = 10, SEEDS_FILE_MAX = 4096 };

struct result { /* what a seed's process tells */
    uint64_t hash, records, read, acked, events, faults;
    int64_t virtual_us, cpu_us;
    uint64_t fired[SIM_F_COUNT], disk_fired[SIM_DISK_FAULT_COUNT];
};
struct job {
    pid_t pid;
    int fd;
    uint64_t seed;
    bool again; /* the second run of a seed: its hash must be the first one's */
};
struct all {
    uint64_t passed, failed;
    struct result sum;
    uint64_t gate_seeds;
    struct job jobs[64];
    int job_count, jobs_max;
    uint64_t *seeds, *hashes; /* of seeds that run twice */
    size_t hash_count, hash_cap, hash_cap2;
    bool loud;
};

/* ---- One seed ---- */

static struct result run_one(uint64_t seed, bool loud) {
    static struct sim_run r;
    struct result out = {0};
    sim_alloc_init();
    sim_run_seed(&r, seed, loud);
    for (int i = 0; i < SIM_F_COUNT; i++) out.faults += out.fired[i] = r.w.fired[i];
    for (int i = 0; i < SIM_DISK_FAULT_COUNT; i++) out.faults += out.disk_fired[i] = sim_disk_fired(r.nodes[0].disk, (enum sim_disk_fault)i);
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

static void start(struct all *a, uint64_t seed, bool again) {
    int fds[2];
    if (pipe(fds) != 0) abort();
    fflush(stdout);
    pid_t pid = fork();
    if (pid < 0) abort();
    if (pid == 0) {
        close(fds[0]);
        struct result r = run_one(seed, a->loud && !again);
        if (write(fds[1], &r, sizeof r) != sizeof r) _exit(2);
        fflush(NULL);
        exit(0); /* leak checkers have their say */
    }
    close(fds[1]);
    a->jobs[a->job_count++] = (struct job){pid, fds[0], seed, again};
}

static void add(struct all *a, const struct result *r) {
    struct result *s = &a->sum;
    a->gate_seeds++;
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
static bool same_hash(struct all *a, uint64_t seed, uint64_t hash) {
    for (size_t i = 0; i < a->hash_count; i++)
        if (a->seeds[i] == seed) return a->hashes[i] == hash;
    a->seeds = sim_grow(a->seeds, a->hash_count, &a->hash_cap, sizeof *a->seeds);
    a->hashes = sim_grow(a->hashes, a->hash_count, &a->hash_cap2, sizeof *a->hashes);
    a->seeds[a->hash_count] = seed;
    a->hashes[a->hash_count++] = hash;
    return true;
}

static void finish(struct all *a, const struct job *j, int status) {
    struct result r;
    bool told = read(j->fd, &r, sizeof r) == sizeof r, ok = told && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    close(j->fd);
    if (!ok && WIFSIGNALED(status))
        printf("failed seed %llu invariant 37: the process died of signal %d; replay: tests/sim/run --seed %llu --trace\n",
               (unsigned long long)j->seed, WTERMSIG(status), (unsigned long long)j->seed);
    else if (!ok && told)
        printf("failed seed %llu invariant 37: exit status %d at the end\n", (unsigned long long)j->seed, WEXITSTATUS(status));
    if (ok && r.records < RECORDS_MIN) {
        printf("failed seed %llu: %llu records, %d are wanted\n", (unsigned long long)j->seed, (unsigned long long)r.records, RECORDS_MIN);
        ok = false;
    }
    if (ok && r.faults < FAULTS_MIN) {
        printf("failed seed %llu: %llu faults fired, %d are wanted\n", (unsigned long long)j->seed, (unsigned long long)r.faults,
               FAULTS_MIN);
        ok = false;
    }
    if (ok && !same_hash(a, j->seed, r.hash)) {
        printf("failed seed %llu invariant 38: run twice, its hashes differ; compare two outputs of tests/sim/run --seed %llu --trace\n",
               (unsigned long long)j->seed, (unsigned long long)j->seed);
        ok = false;
    }
    if (j->again) {
        if (!ok) a->failed++;
        return;
    }
    if (ok) add(a, &r);
    ok ? a->passed++ : a->failed++;
    if (ok && a->jobs_max == 1)
        printf("seed %llu hash %016llx: %llu records, %llu read, %llu faults, %llu events, %lld s in %lld ms\n",
               (unsigned long long)j->seed, (unsigned long long)r.hash, (unsigned long long)r.records, (unsigned long long)r.read,
               (unsigned long long)r.faults, (unsigned long long)r.events, (long long)(r.virtual_us / SIM_S), (long long)(r.cpu_us / 1000));
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

static void run(struct all *a, uint64_t seed, bool twice) {
    for (int k = 0; k <= (twice ? 1 : 0); k++) {
        while (a->job_count >= a->jobs_max) reap(a);
        start(a, seed, k == 1);
    }
}

static size_t read_seeds(const char *path, uint64_t *v) {
    FILE *f = path ? fopen(path, "r") : NULL;
    char line[512];
    size_t n = 0;
    while (f && n < SEEDS_FILE_MAX && fgets(line, sizeof line, f))
        if (line[0] >= '0' && line[0] <= '9') v[n++] = strtoull(line, NULL, 10);
    if (f) fclose(f);
    return n;
}

static void report(struct all *a, bool gate) {
    const struct result *s = &a->sum;
    printf("%llu seeds: %llu records sent, %llu acknowledged, %llu read, %llu faults, %llu events; %lld s of virtual time in %lld s of CPU "
           "time: %lld times as fast\n",
           (unsigned long long)a->gate_seeds, (unsigned long long)s->records, (unsigned long long)s->acked, (unsigned long long)s->read,
           (unsigned long long)s->faults, (unsigned long long)s->events, (long long)(s->virtual_us / SIM_S), (long long)(s->cpu_us / SIM_S),
           (long long)(s->virtual_us / KW_MAX(s->cpu_us, 1)));
    for (int i = 0; i < SIM_F_COUNT + SIM_DISK_FAULT_COUNT; i++) {
        uint64_t n = i < SIM_F_COUNT ? s->fired[i] : s->disk_fired[i - SIM_F_COUNT];
        const char *name =
            i < SIM_F_COUNT ? sim_fault_name((enum sim_fault)i) : sim_disk_fault_name((enum sim_disk_fault)(i - SIM_F_COUNT));
        printf("  %-28s%s %llu\n", name, i < SIM_F_COUNT ? "      " : " (disk)", (unsigned long long)n);
        if (n == 0 && gate) {
            printf("failed: the fault \"%s\" never fired over %llu seeds\n", name, (unsigned long long)a->gate_seeds);
            a->failed++;
        }
    }
}

static int usage(void) {
    fprintf(stderr, "usage: tests/sim/run [--seed S] [--seeds N] [--from S] [--minutes M] [--jobs J] [--trace] [--regressions FILE]\n"
                    "  --seed S     one seed, twice; prints its hash\n"
                    "  --seeds N    the regression seeds and N others, counted from --from (1)\n"
                    "  --minutes M  as many as there is time for, from a new place each time unless --from is given\n"
                    "  --trace      what happens, on stderr\n"
                    "  --here       with --seed: once, in this process, for a debugger\n");
    return 2;
}

int main(int argc, char **argv) {
    static struct all a = {.jobs_max = 2};
    static uint64_t regressions[SEEDS_FILE_MAX];
    const char *file = NULL;
    uint64_t seed = 0, seeds = 0, from = 0;
    double minutes = 0;
    bool one = false, here = false;
    for (int i = 1; i < argc; i++) {
        const char *v = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "--trace") == 0)
            a.loud = true;
        else if (strcmp(argv[i], "--here") == 0)
            here = true;
        else if (!v)
            return usage();
        else if (strcmp(argv[i], "--seed") == 0)
            seed = strtoull(v, NULL, 10), one = true, i++;
        else if (strcmp(argv[i], "--seeds") == 0)
            seeds = strtoull(v, NULL, 10), i++;
        else if (strcmp(argv[i], "--from") == 0)
            from = strtoull(v, NULL, 10), i++;
        else if (strcmp(argv[i], "--minutes") == 0)
            minutes = strtod(v, NULL), i++;
        else if (strcmp(argv[i], "--jobs") == 0)
            a.jobs_max = atoi(v), i++;
        else if (strcmp(argv[i], "--regressions") == 0)
            file = v, i++;
        else
            return usage();
    }
    if (a.jobs_max < 1 || a.jobs_max > (int)KW_COUNTOF(a.jobs)) return usage();
    if (here) {
        struct result r = run_one(seed, a.loud);
        printf("hash %016llx\n", (unsigned long long)r.hash);
        return 0;
    }
    if (one) {
        a.jobs_max = 1;
        run(&a, seed, !a.loud);
        while (a.job_count) reap(&a);
    } else {
        time_t until = time(NULL) + (time_t)(minutes * 60);
        size_t n = read_seeds(file, regressions);
        if (!from) from = minutes > 0 ? (uint64_t)time(NULL) * 1000 : 1;
        if (!seeds) seeds = minutes > 0 ? UINT64_MAX : 100;
        for (size_t i = 0; i < n; i++) run(&a, regressions[i], false);
        for (uint64_t i = 0; i < seeds && (minutes <= 0 || time(NULL) < until); i++) run(&a, from + i, i % TWICE_EVERY == 0);
        while (a.job_count) reap(&a);
        report(&a, a.gate_seeds >= GATE_SEEDS);
    }
    printf("%llu passed, %llu failed\n", (unsigned long long)a.passed, (unsigned long long)a.failed);
    return a.failed != 0;
}
