/* cluster.c - kc cluster: brokers, the metadata quorum, and what is wrong with which partition. */
#include "cli.h"

#include <string.h>

#define PROBLEM_MAX 512
#define PROBLEMS_SHOWN 40 /* as text; JSON has all */

struct health {
    size_t topics, partitions, states[CLI_OFFLINE + 1], under_replicated, shown;
};

/* Each partition in turn; `json`: the problems as elements of a list, else as lines. */
static void look_at(struct cli_view *v, struct health *h, bool json) {
    h->topics = kc_cluster_info_topic_count(v->info);
    for (size_t t = 0; t < h->topics; t++) {
        kc_topic_info topic;
        if (kc_cluster_info_topic(v->info, t, &topic) != KC_OK) continue;
        for (size_t i = 0; i < topic.partition_count; i++) {
            kc_partition_info p;
            char problem[PROBLEM_MAX];
            if (kc_cluster_info_partition(v->info, t, i, &p) != KC_OK) continue;
            h->partitions++;
            h->under_replicated += p.isr_count < p.replica_count;
            enum cli_state state = cli_view_partition(v, &topic, &p, problem, sizeof problem);
            h->states[state]++;
            if (!*problem) continue;
            h->shown++;
            if (json) {
                printf("%s{\"topic\":", h->shown > 1 ? "," : "");
                cli_json_text(stdout, topic.name, strlen(topic.name));
                printf(",\"partition\":%d,\"state\":\"%s\",\"problem\":", (int)p.partition, cli_state_name(state));
                cli_json_text(stdout, problem, strlen(problem));
                putchar('}');
            } else if (h->shown <= PROBLEMS_SHOWN) {
                printf("%s partition %d: %s\n", topic.name, (int)p.partition, problem);
            }
        }
    }
}

/* A broker names any broker as the controller; the quorum's leader is the one. */
static int32_t controller_of(const struct cli_view *v) {
    int32_t leader = kc_quorum_info_leader(v->quorum);
    return leader >= 0 ? leader : kc_cluster_info_controller(v->info);
}

static void print_quorum_json(const struct cli_view *v) {
    printf(",\"quorum\":");
    if (!v->quorum) {
        printf("null");
        return;
    }
    printf("{\"leader\":%d,\"epoch\":%d,\"high_watermark\":%lld,\"replicas\":[", (int)kc_quorum_info_leader(v->quorum),
           (int)kc_quorum_info_epoch(v->quorum), (long long)kc_quorum_info_high_watermark(v->quorum));
    kc_quorum_replica r;
    for (size_t i = 0; kc_quorum_info_get(v->quorum, i, &r) == KC_OK; i++)
        printf("%s{\"id\":%d,\"voter\":%s,\"log_end\":%lld,\"fetched_ms_ago\":%lld,\"caught_up_ms_ago\":%lld}", i ? "," : "", (int)r.id,
               r.voter ? "true" : "false", (long long)r.log_end, (long long)r.fetched_ms_ago, (long long)r.caught_up_ms_ago);
    printf("]}");
}

static void print_json(struct cli_view *v) {
    struct health h = {0};
    printf("{\"cluster\":");
    const char *id = kc_cluster_info_id(v->info);
    cli_json_text(stdout, id, strlen(id));
    printf(",\"controller\":%d,\"brokers\":[", (int)controller_of(v));
    kc_broker_info b;
    for (size_t i = 0; kc_cluster_info_broker(v->info, i, &b) == KC_OK; i++) {
        printf("%s{\"id\":%d,\"host\":", i ? "," : "", (int)b.id);
        cli_json_text(stdout, b.host, strlen(b.host));
        printf(",\"port\":%d,\"rack\":", (int)b.port);
        if (b.rack)
            cli_json_text(stdout, b.rack, strlen(b.rack));
        else
            fputs("null", stdout);
        printf(",\"up\":%s,\"seen_ms_ago\":%lld}", b.fenced ? "false" : "true", (long long)cli_view_seen_ms_ago(v, b.id));
    }
    printf("]");
    print_quorum_json(v);
    printf(",\"problems\":[");
    look_at(v, &h, true);
    printf("],\"topics\":%zu,\"partitions\":%zu,\"leaderless\":%zu,\"below_min_isr\":%zu,\"under_replicated\":%zu}\n", h.topics, h.partitions,
           h.states[CLI_OFFLINE], h.states[CLI_READ_ONLY], h.under_replicated);
}

static const char *quorum_place(const struct cli_view *v, int32_t id, char *text, size_t size) {
    kc_quorum_replica r;
    for (size_t i = 0; kc_quorum_info_get(v->quorum, i, &r) == KC_OK; i++) {
        if (r.id != id) continue;
        if (id == kc_quorum_info_leader(v->quorum)) return "leader";
        snprintf(text, size, "%s", r.voter ? "voter" : "observer");
        return text;
    }
    return "-";
}

static void add_state(struct cli_table *table, const struct cli_view *v, int32_t id, bool up) {
    char ago[32];
    int64_t seen = cli_view_seen_ms_ago(v, id);
    if (up)
        cli_table_add(table, "up");
    else if (seen >= 0)
        cli_table_add(table, "down, last seen %s", cli_ago(ago, sizeof ago, seen));
    else
        cli_table_add(table, "down");
}

#define VOTER_SILENT_MS 2000 /* a follower asks for more at least twice a second */

static void print_nodes(const struct cli_view *v) {
    static const char *const heads[] = {"node", "address", "rack", "quorum", "state"};
    struct cli_table *table = cli_table_new(heads, sizeof heads / sizeof *heads);
    char text[32];
    kc_broker_info b;
    for (size_t i = 0; kc_cluster_info_broker(v->info, i, &b) == KC_OK; i++) {
        cli_table_add(table, "%d", (int)b.id);
        cli_table_add(table, "%s:%d", b.host, (int)b.port);
        cli_table_add(table, "%s", b.rack ? b.rack : "-");
        cli_table_add(table, "%s", quorum_place(v, b.id, text, sizeof text));
        add_state(table, v, b.id, !b.fenced);
    }
    kc_quorum_replica r;
    for (size_t i = 0; kc_quorum_info_get(v->quorum, i, &r) == KC_OK; i++) { /* controllers that are no brokers */
        bool broker = false;
        for (size_t k = 0; kc_cluster_info_broker(v->info, k, &b) == KC_OK; k++) broker = broker || b.id == r.id;
        if (broker || !r.voter) continue;
        cli_table_add(table, "%d", (int)r.id);
        cli_table_add(table, "-");
        cli_table_add(table, "-");
        cli_table_add(table, "%s", quorum_place(v, r.id, text, sizeof text));
        add_state(table, v, r.id, r.id == kc_quorum_info_leader(v->quorum) || (r.fetched_ms_ago >= 0 && r.fetched_ms_ago < VOTER_SILENT_MS));
    }
    cli_table_print(table);
}

static void print_text(struct cli_view *v) {
    struct health h = {0};
    printf("cluster %s, controller %d", kc_cluster_info_id(v->info), (int)controller_of(v));
    if (v->quorum) printf(" in epoch %d", (int)kc_quorum_info_epoch(v->quorum));
    printf("\n");
    print_nodes(v);
    if (!v->quorum && v->quorum_err != KC_OK && v->quorum_err != KC_UNSUPPORTED)
        printf("the metadata quorum does not answer (%s): nothing can be changed, and no leader be elected, until a majority of its voters is there\n",
               kc_err_text(v->quorum_err));
    look_at(v, &h, false);
    if (h.shown > PROBLEMS_SHOWN) printf("… and %zu more partitions\n", h.shown - PROBLEMS_SHOWN);
    printf("%zu topics, %zu partitions", h.topics, h.partitions);
    if (h.states[CLI_OFFLINE]) printf("; %zu without a leader", h.states[CLI_OFFLINE]);
    if (h.states[CLI_READ_ONLY]) printf("; %zu below min.insync.replicas", h.states[CLI_READ_ONLY]);
    if (h.under_replicated) printf("; %zu with replicas out of sync", h.under_replicated);
    printf("\n");
}

int cmd_cluster(int argc, char **argv) {
    struct cli_session s = {0};
    bool json = false;
    const struct cli_option options[] = {CLI_SESSION_OPTIONS(&s), {0, "json", NULL, "print JSON", CLI_FLAG, &json}};
    const struct cli_command c = {"cluster",
                                  "",
                                  "Shows brokers, the quorum, and what is wrong with which partition.",
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
    struct cli_view view;
    kc_error *error = NULL;
    kc_err err = cli_view_open(&s, NULL, &view, &error);
    if (err != KC_OK)
        rc = cli_fail("cluster", err, error);
    else if (json)
        print_json(&view);
    else
        print_text(&view);
    cli_view_close(&view);
    cli_session_close(&s);
    return rc;
}
