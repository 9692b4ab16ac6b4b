/* bench_cluster.c - a kbroker cluster that lives as long as this kc, by the test kit (kclient_test.h): started, its nodes killed and started again, ended.
 *
 * Called by bench_scenario and bench_kills. However kc ends, no process of the cluster stays: the kit sees to that. Orders run in a thread of their own, since
 * records go on being sent while brokers die.
 */
#include "bench.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

struct bench_order {
    kc_test_cluster *cluster;
    int32_t action, ids[BENCH_BROKERS];
    size_t count;
    pthread_t thread;
    atomic_bool done;
    kc_err err;
    kc_error *error;
};

int bench_cluster_start(kc_test_cluster **out, int brokers, int controllers, const char *data) {
    static const kc_config_pair configs[] = {{.name = "log.segment.delete.delay.ms", .value = "0"}, /* what was measured makes room for what comes */
                                             {.name = "auto.create.topics.enable", .value = "false"}};
    const kc_test_options options = {
        .nodes = brokers, .controllers = controllers, .data = data, .configs = configs, .config_count = sizeof configs / sizeof *configs};
    kc_error *error = NULL;
    kc_err err = kc_test_cluster_start(&options, sizeof options, out, &error);
    if (err == KC_OK) return CLI_OK;
    cli_fail("bench: the cluster did not start", err, error);
    fprintf(stderr, "  -b HOST:PORT measures a cluster that runs\n");
    return CLI_FAILURE;
}

static void *carry_out(void *arg) {
    struct bench_order *o = arg;
    o->err = kc_test_nodes(o->cluster, o->action, o->ids, o->count, &o->error);
    atomic_store(&o->done, true);
    return NULL;
}

struct bench_order *bench_cluster_ask(kc_test_cluster *c, int32_t action, const int32_t *ids, size_t count) {
    struct bench_order *o = calloc(1, sizeof *o);
    if (o) {
        o->cluster = c;
        o->action = action;
        for (; o->count < count && o->count < BENCH_BROKERS; o->count++) o->ids[o->count] = ids[o->count];
        if (pthread_create(&o->thread, NULL, carry_out, o) == 0) return o;
    }
    free(o);
    cli_fail("bench: cluster", KC_NO_MEMORY, NULL);
    return NULL;
}

int bench_cluster_answered(struct bench_order *o, bool wait) {
    if (!wait && !atomic_load(&o->done)) return 0;
    pthread_join(o->thread, NULL);
    int ok = o->err == KC_OK ? 1 : -1;
    if (ok < 0) cli_fail("bench: the cluster did not do what it was asked", o->err, o->error);
    free(o);
    return ok;
}
