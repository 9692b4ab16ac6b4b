/* growth.c - past one machine: clusters of 3 to 50 brokers with 100 to 20,000 partitions in the simulated world, without faults but for the loss of a
 * broker. What a partition costs the active controller and what a node costs it must stay flat while both grow, and a lost broker's partitions
 * have new leaders in time. A program of its own, called by tests/sim/run --growth. Calls world, net, hosts, count, traffic.
 *
 * Turns take no time in this world: what is told in seconds is waiting (timeouts, disks, the network); what is worked is told in steps (count.h).
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "broker_host.h"
#include "count.h"
#include "kw_messages.h"
#include "node_priv.h"
#include "replica/partition.h"
#include "traffic.h"

enum {
    VOTERS = 3, FIRST_VOTER_ID = 1000, NODES_MAX = SIM_SERVERS_MAX, TOPIC_PARTITIONS = 100, TOPICS_MAX = 400, TOPICS_AT_ONCE = 10, RACKS = 3,
    QUIET_S = 10, WRITE_EVERY_MS = 10, LOOK_EVERY_MS = 10, PATIENCE_S = 300, SIZES_MAX = 8, SESSION_MS = 3000
};
/* ---- The bars ---- */
#define LOST_MAX_US (3 * SIM_S)                                    /* its process died: its connections say so */
#define SILENT_MAX_US (SESSION_MS * SIM_MS + 1500 * SIM_MS)        /* its machine is gone without a word: its session has to end first */
#define FLAT 1.5                                                   /* from one size to the next, at most */

struct node {
    struct sim_broker b; /* first */
    struct grow_work work;
    void (*turn)(struct sim_host *h);
};
struct phase { /* what was done between two moments */
    int64_t us;
    struct grow_work controller, broker; /* the active controller; the mean of all brokers */
    struct grow_apis apis;
    int64_t records;                     /* of metadata */
    int64_t moved;                       /* partitions that it concerned */
};
struct growth {
    struct sim_world w;
    struct sim_net net;
    struct node *nodes; /* brokers, then voters */
    int brokers, partitions;
    struct sim_client client;
    char names[TOPICS_MAX][16];
    const char *name_of[TOPICS_MAX];
    struct grow_topics topics;
    struct sim_role *maker, *writer;
    struct grow_apis apis;
    /* when the phase under way began */
    int64_t began_us, began_records;
    int active;
    struct grow_work before[NODES_MAX];
    struct grow_apis before_apis;
};
struct result {
    int brokers, partitions;
    struct phase up, make, quiet, lost, back, silent;
    int64_t metadata_bytes;
    struct grow_written written;
};

/* ---- Nodes ---- */

static struct kb_node *core(const struct growth *g, int i) {
    return g->nodes[i].b.life == SIM_DOWN ? NULL : g->nodes[i].b.node;
}

static int active(const struct growth *g) {
    for (int i = g->brokers; i < g->brokers + VOTERS; i++)
        if (core(g, i) && core(g, i)->parts.store && kb_store_leads(core(g, i)->parts.store)) return i;
    return -1;
}
static const struct kb_image *image(const struct growth *g) {
    int a = active(g);
    return a < 0 ? NULL : &core(g, a)->image;
}

static void counted_turn(struct sim_host *h) {
    struct node *n = (struct node *)h;
    struct grow_work *was = grow_count_for(&n->work);
    n->turn(h);
    (void)grow_count_for(was);
}

static void start(struct node *n) {
    struct grow_work *was = grow_count_for(&n->work);
    sim_broker_start(&n->b);
    (void)grow_count_for(was);
}

static void set(struct sim_broker *b, const char *name, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void set(struct sim_broker *b, const char *name, const char *fmt, ...) {
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    sim_broker_set(b, name, text);
}

static void add_node(struct growth *g, int i) {
    static const struct sim_disk_options disk = {.delay_min_us = 20, .delay_max_us = 500, .inline_ppm = 800000};
    struct node *n = &g->nodes[i];
    struct sim_broker *b = &n->b;
    char name[16], voters[256] = "";
    for (int v = 0, at = 0; v < VOTERS; v++)
        at += snprintf(voters + at, sizeof voters - (size_t)at, "%s%d@10.0.0.%d:9092", v ? "," : "", FIRST_VOTER_ID + v, g->brokers + v + 1);
    snprintf(name, sizeof name, "node %d", i);
    sim_broker_init(b, &g->w, &g->net, i, name, &disk);
    bool voter = i >= g->brokers;
    set(b, "node.id", "%d", voter ? FIRST_VOTER_ID + i - g->brokers : i);
    set(b, "process.roles", "%s", voter ? "controller" : "broker");
    set(b, "controller.quorum.voters", "%s", voters);
    if (voter) set(b, "listeners", "CONTROLLER://10.0.0.%d:9092", i + 1);
    set(b, "broker.rack", "rack-%d", i % RACKS);
    set(b, "min.insync.replicas", "2");
    set(b, "auto.create.topics.enable", "false");
    set(b, "broker.session.timeout.ms", "%d", SESSION_MS);
    n->turn = b->host.turn;
    b->host.turn = counted_turn;
}

/* ---- What is ---- */

static bool all_registered(struct growth *g) {
    const struct kb_image *im = image(g);
    for (int i = 0; i < g->brokers; i++) {
        const struct kb_image_broker *k = im ? kb_image_broker(im, i) : NULL;
        if (!k || k->fenced || g->nodes[i].b.life != SIM_UP) return false;
    }
    return true;
}

struct held {
    int64_t led, without, short_of, by; /* led by anyone; without a leader; not all in sync; led by one node */
};
static struct held look(const struct growth *g, int node) {
    struct held h = {0};
    const struct kb_image *im = image(g);
    const struct kb_image_topic *t;
    for (size_t it = 0; im && (t = kw_map_next(&im->topics_by_id, &it));)
        for (int32_t i = 0; i < t->partition_count; i++) {
            const struct kb_image_partition *p = &t->partitions[i];
            h.led += p->leader >= 0;
            h.without += p->leader < 0;
            h.by += p->leader == node;
            h.short_of += p->isr_count < p->replica_count;
        }
    return h;
}
/* What the brokers themselves do: logs that are open, and those that they lead. */
static void serve(const struct growth *g, int64_t *leads, int64_t *open) {
    *leads = *open = 0;
    for (int i = 0; i < g->brokers; i++)
        for (struct kb_partition *p = NULL; core(g, i) && (p = kb_partitions_next(core(g, i), p));) {
            *open += p->state == KB_PART_ONLINE;
            *leads += p->state == KB_PART_ONLINE && p->role == KB_PART_LEADS;
        }
}

static bool all_made(struct growth *g) {
    int64_t leads, open;
    if (!grow_maker_done(g->maker)) return false;
    serve(g, &leads, &open);
    return leads == g->partitions && open == 3 * (int64_t)g->partitions;
}

static int lost_node;
static bool all_led_by_others(struct growth *g) {
    int64_t leads, open;
    struct held h = look(g, lost_node);
    if (h.led != g->partitions || h.by) return false;
    serve(g, &leads, &open);
    return leads == g->partitions;
}
static bool all_in_sync(struct growth *g) {
    struct held h = look(g, -1);
    return h.led == g->partitions && h.short_of == 0;
}
static bool quiet(struct growth *g) {
    return g->w.now_us - g->began_us >= QUIET_S * SIM_S;
}

/* ---- Phases ---- */

static int64_t metadata_end(const struct growth *g) {
    const struct kb_image *im = image(g);
    return im ? im->offset + 1 : 0;
}

static void begin(struct growth *g) {
    (void)grow_count_for(NULL); /* takes in what was counted last */
    g->began_us = g->w.now_us;
    g->began_records = metadata_end(g);
    g->active = active(g);
    for (int i = 0; i < g->brokers + VOTERS; i++) {
        g->nodes[i].work.held_max = g->nodes[i].work.held;
        g->before[i] = g->nodes[i].work;
    }
    g->before_apis = g->apis;
}

static void add(struct grow_work *sum, const struct grow_work *now, const struct grow_work *before, uint64_t share) {
    sum->steps += (now->steps - before->steps) / share;
    sum->allocs += (now->allocs - before->allocs) / share;
    sum->turns += (now->turns - before->turns) / share;
    sum->held += (now->held - before->held) / (int64_t)share;
    sum->held_max += (now->held_max - before->held) / (int64_t)share;
    sum->cpu_ns += (now->cpu_ns - before->cpu_ns) / (int64_t)share;
}

static struct phase end(struct growth *g) {
    struct phase p = {.us = g->w.now_us - g->began_us, .records = metadata_end(g) - g->began_records};
    int a = g->active >= 0 ? g->active : active(g);
    if (a >= 0) add(&p.controller, &g->nodes[a].work, &g->before[a], 1);
    for (int i = 0; i < g->brokers; i++) add(&p.broker, &g->nodes[i].work, &g->before[i], (uint64_t)g->brokers);
    for (int k = 0; k < GROW_KEYS_MAX; k++) {
        p.apis.of[k].requests = g->apis.of[k].requests - g->before_apis.of[k].requests;
        p.apis.of[k].bytes = g->apis.of[k].bytes - g->before_apis.of[k].bytes;
        p.apis.of[k].answer_bytes = g->apis.of[k].answer_bytes - g->before_apis.of[k].answer_bytes;
    }
    return p;
}

static struct phase wait_for(struct growth *g, bool (*is_so)(struct growth *g), const char *what) {
    int64_t until = g->began_us + PATIENCE_S * SIM_S;
    while (!is_so(g)) {
        if (g->w.now_us >= until) {
            struct held h = look(g, lost_node);
            int64_t leads, open;
            serve(g, &leads, &open);
            sim_fail(&g->w, 36,
                     "%d brokers, %d partitions: %s: not within %d s: %lld led, %lld not, %lld by node %d, %lld not whole; %lld served, %lld open",
                     g->brokers, g->partitions, what, PATIENCE_S, (long long)h.led, (long long)h.without, (long long)h.by, lost_node,
                     (long long)h.short_of, (long long)leads, (long long)open);
        }
        sim_run_until(&g->w, g->w.now_us + LOOK_EVERY_MS * SIM_MS);
    }
    struct phase p = end(g);
    fprintf(stderr, "  %2d brokers, %5d partitions: %s: %.3f s\n", g->brokers, g->partitions, what, (double)p.us / SIM_S);
    return p;
}

static int64_t metadata_bytes(struct growth *g) {
    char **names, path[128];
    int64_t sum = 0;
    int a = active(g);
    size_t n = sim_disk_names(g->nodes[a].b.disk, SIM_DATA "/__cluster_metadata-0", &names);
    for (size_t i = 0; i < n; i++) {
        size_t size = 0;
        snprintf(path, sizeof path, SIM_DATA "/__cluster_metadata-0/%s", names[i]);
        if (strlen(names[i]) == 24 && strcmp(names[i] + 20, ".log") == 0 && sim_disk_peek(g->nodes[a].b.disk, path, &size)) sum += (int64_t)size;
        free(names[i]);
    }
    free(names);
    return sum;
}

/* ---- A cluster's life ---- */

static void init(struct growth *g, int brokers, int partitions, uint64_t seed) {
    memset(g, 0, sizeof *g);
    g->brokers = brokers;
    g->partitions = partitions;
    sim_world_init(&g->w, seed);
    g->w.replay = "--growth ";
    sim_net_init(&g->net, &g->w);
    g->net.faults.delay_us = 100;
    grow_count_init(&g->net, &g->apis);
    g->nodes = sim_need(calloc((size_t)(brokers + VOTERS), sizeof *g->nodes));
    for (int i = 0; i < brokers + VOTERS; i++) add_node(g, i);
    g->topics.partitions = KW_MIN(partitions, TOPIC_PARTITIONS);
    g->topics.count = partitions / g->topics.partitions;
    g->partitions = g->topics.count * g->topics.partitions;
    g->topics.names = g->name_of;
    for (int t = 0; t < g->topics.count; t++) {
        snprintf(g->names[t], sizeof g->names[t], "topic-%d", t);
        g->name_of[t] = g->names[t];
    }
}

static void deinit(struct growth *g) {
    sim_client_deinit(&g->client);
    for (int i = 0; i < g->brokers + VOTERS; i++) sim_broker_deinit(&g->nodes[i].b);
    sim_net_deinit(&g->net);
    sim_world_deinit(&g->w);
    grow_count_deinit();
    free(g->nodes);
}

static void start_client(struct growth *g) {
    sim_client_init(&g->client, &g->w, &g->net, 0);
    sim_client_set(&g->client, "bootstrap.servers", "10.0.0.1:9092,10.0.0.2:9092,10.0.0.3:9092");
    sim_client_start(&g->client, g->name_of, (size_t)g->topics.count);
}

/* The broker that leads most; it is lost. */
static int leader_of_most(const struct growth *g) {
    int most = 0;
    int64_t led = -1;
    for (int i = 0; i < g->brokers; i++) {
        int64_t n = look(g, i).by;
        if (n > led) led = n, most = i;
    }
    return most;
}

static void lose(struct growth *g, struct phase *p, bool machine, const char *what) {
    lost_node = leader_of_most(g);
    int64_t led = look(g, lost_node).by;
    struct node *n = &g->nodes[lost_node];
    begin(g);
    struct grow_work *was = grow_count_for(&n->work);
    machine ? sim_broker_power_loss(&n->b) : sim_broker_kill(&n->b);
    (void)grow_count_for(was);
    *p = wait_for(g, all_led_by_others, what);
    p->moved = led;
}

static void live(struct growth *g, struct result *r) {
    begin(g);
    for (int i = 0; i < g->brokers + VOTERS; i++) start(&g->nodes[i]);
    r->up = wait_for(g, all_registered, "all brokers are up");
    start_client(g);
    int64_t bytes = metadata_bytes(g);
    begin(g);
    g->maker = grow_maker_new(&g->client, &g->topics, TOPICS_AT_ONCE);
    r->make = wait_for(g, all_made, "all partitions are made");
    r->metadata_bytes = metadata_bytes(g) - bytes;
    g->writer = grow_writer_new(&g->client, &g->topics, WRITE_EVERY_MS * SIM_MS);
    sim_run_until(&g->w, g->w.now_us + 2 * SIM_S);
    begin(g);
    r->quiet = wait_for(g, quiet, "light traffic");
    lose(g, &r->lost, false, "a broker's process dies");
    begin(g);
    int back = lost_node;
    start(&g->nodes[back]);
    r->back = wait_for(g, all_in_sync, "it is back in sync");
    r->back.moved = r->lost.moved;
    sim_run_until(&g->w, g->w.now_us + 2 * SIM_S);
    lose(g, &r->silent, true, "a broker's machine is gone");
    r->written = grow_writer_counts(g->writer);
    if (r->written.acked == 0) sim_fail(&g->w, 1, "nothing was acknowledged");
}

static struct result run(int brokers, int partitions, uint64_t seed) {
    static struct growth g;
    struct result r = {0};
    init(&g, brokers, partitions, seed);
    live(&g, &r);
    r.brokers = g.brokers;
    r.partitions = g.partitions;
    deinit(&g);
    return r;
}

/* ---- The table ---- */

static struct grow_api heartbeats(const struct result *r) {
    return r->quiet.apis.of[KW_API_BROKER_HEARTBEAT];
}
static double seconds(const struct phase *p) {
    return (double)p->us / SIM_S;
}
static double a_node_second(const struct result *r, uint64_t n) {
    return (double)n / r->brokers / seconds(&r->quiet);
}

#define ROWS(R)                                                                                                                            \
    R("all brokers are up, s", 0, seconds(&r->up))                                                                                         \
    R("creation, s", 0, seconds(&r->make))                                                                                                 \
    R("a process dies: all led again, s", (double)LOST_MAX_US / SIM_S, seconds(&r->lost))                                                  \
    R("  partitions that it led", 0, (double)r->lost.moved)                                                                                \
    R("it is back: all in sync, s", 0, seconds(&r->back))                                                                                  \
    R("a machine is gone: all led again, s", (double)SILENT_MAX_US / SIM_S, seconds(&r->silent))                                           \
    R("controller, steps a partition made", -1, (double)r->make.controller.steps / r->partitions)                                          \
    R("  allocations a partition made", -1, (double)r->make.controller.allocs / r->partitions)                                             \
    R("  host CPU a partition made, us", 0, (double)r->make.controller.cpu_ns / 1e3 / r->partitions)                                       \
    R("  bytes held a partition", -1, (double)r->make.controller.held / r->partitions)                                                     \
    R("  bytes at most a partition", -1, (double)r->make.controller.held_max / r->partitions)                                              \
    R("  records a partition", -1, (double)r->make.records / r->partitions)                                                                \
    R("  bytes of metadata a partition", -1, (double)r->metadata_bytes / r->partitions)                                                    \
    R("controller, steps a partition that moves", -1, (double)r->lost.controller.steps / (double)r->lost.moved)                            \
    R("  records a partition that moves", -1, (double)r->lost.records / (double)r->lost.moved)                                             \
    R("  host CPU of the loss, ms", 0, (double)r->lost.controller.cpu_ns / 1e6)                                                            \
    R("controller, steps a partition that is back", -1, (double)r->back.controller.steps / (double)r->back.moved)                          \
    R("  host CPU of the return, ms", 0, (double)r->back.controller.cpu_ns / 1e6)                                                          \
    R("controller at rest, steps a broker a second", -1, a_node_second(r, r->quiet.controller.steps))                                      \
    R("  allocations a broker a second", -1, a_node_second(r, r->quiet.controller.allocs))                                                 \
    R("heartbeats a broker a second", -1, a_node_second(r, heartbeats(r).requests))                                                        \
    R("  bytes, both ways", -1, a_node_second(r, heartbeats(r).bytes + heartbeats(r).answer_bytes))                                        \
    R("fetches a broker a second", 0, a_node_second(r, r->quiet.apis.of[KW_API_FETCH].requests))                                           \
    R("  bytes, both ways", 0, a_node_second(r, r->quiet.apis.of[KW_API_FETCH].bytes + r->quiet.apis.of[KW_API_FETCH].answer_bytes))        \
    R("broker, steps a partition made", -1, (double)r->make.broker.steps / r->partitions)                                                  \
    R("  bytes held a partition", -1, (double)r->make.broker.held / r->partitions)                                                         \
    R("  MB held", 0, (double)r->make.broker.held / 1e6)                                                                                   \
    R("  bytes held a partition beyond the controller's", 0,                                                                               \
      (double)(r->make.broker.held - r->make.controller.held) / ((double)r->partitions * 3 / r->brokers))                                  \
    R("broker at rest, steps a second", 0, (double)r->quiet.broker.steps / seconds(&r->quiet))                                             \
    R("  host CPU a second, ms", 0, (double)r->quiet.broker.cpu_ns / 1e6 / seconds(&r->quiet))

static int judge(const struct result *v, int n) {
    int failed = 0;
    for (int i = 0; i < n; i++) {
        const struct result *r = &v[i];
#define R(name, bar, value)                                                                                                                \
    if ((bar) > 0 && (value) > (bar)) {                                                                                                    \
        printf("failed: %d brokers, %d partitions: %s: %.3f, at most %.3f\n", r->brokers, r->partitions, name, (double)(value), (double)(bar)); \
        failed++;                                                                                                                          \
    }
        ROWS(R)
#undef R
    }
    for (int i = 1; i < n; i++) {
        double before[64];
        int k = 0;
        const struct result *r = &v[i - 1];
#define R(name, bar, value) before[k++] = (double)(value);
        ROWS(R)
#undef R
        k = 0;
        r = &v[i];
#define R(name, bar, value)                                                                                                                \
    if ((bar) < 0 && (double)(value) > before[k] * FLAT) {                                                                                 \
        printf("failed: %s: %.1f with %d brokers and %d partitions, %.1f with %d and %d: it grows\n", name, (double)(value), r->brokers,   \
               r->partitions, before[k], v[i - 1].brokers, v[i - 1].partitions);                                                           \
        failed++;                                                                                                                          \
    }                                                                                                                                      \
    k++;
        ROWS(R)
#undef R
    }
    return failed;
}

static void print(const struct result *v, int n) {
    printf("%-50s", "brokers (and 3 voters), partitions of 3 replicas");
    for (int i = 0; i < n; i++) printf(" %6d,%6d", v[i].brokers, v[i].partitions);
    printf("\n");
#define R(name, bar, value)                                                                                                                \
    printf("%-50s", (bar) < 0 ? name " =" : name);                                                                                         \
    for (int i = 0; i < n; i++) {                                                                                                          \
        const struct result *r = &v[i];                                                                                                    \
        double x = (double)(value);                                                                                                        \
        printf(" %13.*f", x < 100 ? 3 : 0, x);                                                                                             \
    }                                                                                                                                      \
    printf("\n");
    ROWS(R)
#undef R
    printf("=: must stay flat, at most %.1f times from one size to the next\n", FLAT);
}

static int usage(void) {
    fprintf(stderr, "usage: tests/sim/run --growth [--small] [--size BROKERS:PARTITIONS]... [--seed S]\n"
                    "  3:100, 10:1000, 20:5000 and 50:20000; --small: without the last\n");
    return 2;
}

int main(int argc, char **argv) {
    static const int whole[][2] = {{3, 100}, {10, 1000}, {20, 5000}, {50, 20000}}, small[][2] = {{3, 100}, {10, 1000}, {20, 5000}};
    struct result v[SIZES_MAX];
    int sizes[SIZES_MAX][2], n = 0, failed;
    uint64_t seed = 1;
    bool is_small = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--small") == 0)
            is_small = true;
        else if (i + 1 == argc)
            return usage();
        else if (strcmp(argv[i], "--seed") == 0)
            seed = strtoull(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--size") == 0 && n < SIZES_MAX && sscanf(argv[++i], "%d:%d", &sizes[n][0], &sizes[n][1]) == 2)
            n++;
        else
            return usage();
    }
    if (!n) {
        n = is_small ? (int)KW_COUNTOF(small) : (int)KW_COUNTOF(whole);
        memcpy(sizes, is_small ? small : whole, (size_t)n * sizeof *sizes);
    }
    for (int i = 0; i < n; i++) {
        if (sizes[i][0] < 3 || sizes[i][0] + VOTERS > NODES_MAX || sizes[i][1] < 1 || sizes[i][1] > TOPICS_MAX * TOPIC_PARTITIONS) return usage();
        v[i] = run(sizes[i][0], sizes[i][1], seed);
    }
    print(v, n);
    failed = judge(v, n);
    printf("%d passed, %d failed\n", n, failed);
    return failed != 0;
}
