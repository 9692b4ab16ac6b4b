/* cluster.c - kc cluster: brokers, controller, and partitions that need attention. */
#include "cli.h"

#include <string.h>

struct health {
    size_t topics, partitions, leaderless, under_replicated;
};

static struct health count_health(const kc_cluster_info *info) {
    struct health h = {.topics = kc_cluster_info_topic_count(info)};
    for (size_t t = 0; t < h.topics; t++) {
        kc_topic_info topic;
        if (kc_cluster_info_topic(info, t, &topic) != KC_OK) continue;
        for (size_t i = 0; i < topic.partition_count; i++) {
            kc_partition_info p;
            if (kc_cluster_info_partition(info, t, i, &p) != KC_OK) continue;
            h.partitions++;
            h.leaderless += p.leader < 0;
            h.under_replicated += p.isr_count < p.replica_count;
        }
    }
    return h;
}

static void print_json(const kc_cluster_info *info, struct health h) {
    printf("{\"cluster\":");
    const char *id = kc_cluster_info_id(info);
    cli_json_text(stdout, id, strlen(id));
    printf(",\"controller\":%d,\"brokers\":[", (int)kc_cluster_info_controller(info));
    for (size_t i = 0; i < kc_cluster_info_broker_count(info); i++) {
        kc_broker_info b;
        if (kc_cluster_info_broker(info, i, &b) != KC_OK) continue;
        printf("%s{\"id\":%d,\"host\":", i ? "," : "", (int)b.id);
        cli_json_text(stdout, b.host, strlen(b.host));
        printf(",\"port\":%d,\"rack\":", (int)b.port);
        if (b.rack)
            cli_json_text(stdout, b.rack, strlen(b.rack));
        else
            fputs("null", stdout);
        putchar('}');
    }
    printf("],\"topics\":%zu,\"partitions\":%zu,\"leaderless\":%zu,\"under_replicated\":%zu}\n", h.topics, h.partitions, h.leaderless,
           h.under_replicated);
}

static void print_text(const kc_cluster_info *info, struct health h) {
    printf("cluster %s, controller %d\n", kc_cluster_info_id(info), (int)kc_cluster_info_controller(info));
    static const char *const heads[] = {"broker", "address", "rack"};
    struct cli_table *table = cli_table_new(heads, sizeof heads / sizeof *heads);
    for (size_t i = 0; i < kc_cluster_info_broker_count(info); i++) {
        kc_broker_info b;
        if (kc_cluster_info_broker(info, i, &b) != KC_OK) continue;
        cli_table_add(table, "%d", (int)b.id);
        cli_table_add(table, "%s:%d", b.host, (int)b.port);
        cli_table_add(table, "%s", b.rack ? b.rack : "-");
    }
    cli_table_print(table);
    printf("%zu topics, %zu partitions", h.topics, h.partitions);
    if (h.leaderless) printf("; %zu without a leader: nothing is served there", h.leaderless);
    if (h.under_replicated) printf("; %zu with replicas out of sync", h.under_replicated);
    printf("\n");
}

int cmd_cluster(int argc, char **argv) {
    struct cli_session s = {0};
    bool json = false;
    const struct cli_option options[] = {CLI_SESSION_OPTIONS(&s), {0, "json", NULL, "print JSON", CLI_FLAG, &json}};
    const struct cli_command c = {"cluster",
                                  "",
                                  "Shows brokers, controller, and partitions that need attention.",
                                  NULL,
                                  0,
                                  0,
                                  options,
                                  sizeof options / sizeof *options,
                                  "  kc cluster\n"
                                  "  kc cluster -b 127.0.0.1:9092 --json\n"};
    struct cli_operands none;
    int rc = cli_parse(&c, argc, argv, &none);
    if (rc >= 0 || (rc = cli_session_open(&s)) != CLI_OK) return rc;
    kc_cluster_info *info = NULL;
    kc_error *error = NULL;
    kc_err err = cli_describe(&s, NULL, &info, &error);
    if (err != KC_OK) {
        rc = cli_fail("cluster", err, error);
    } else {
        struct health h = count_health(info);
        if (json)
            print_json(info, h);
        else
            print_text(info, h);
    }
    kc_cluster_info_free(info);
    cli_session_close(&s);
    return rc;
}
