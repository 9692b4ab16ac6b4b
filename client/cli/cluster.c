/* cluster.c - kc cluster: nodes, the metadata quorum, what is wrong with which node and partition, what was counted. */
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

/* A broker names any broker as the controller; the quorum's leader is the one. -1: none is known. */
static int32_t controller_of(const struct cli_view *v) {
    bool no_quorum = v->quorum_err == KC_UNSUPPORTED; /* a cluster of before 3.3, whose brokers know it */
    return no_quorum ? kc_cluster_info_controller(v->info) : kc_quorum_info_leader(v->quorum);
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

static void print_counts_json(const kc_count_list *l) {
    kc_count c;
    for (size_t i = 0; kc_count_list_get(l, i, &c) == KC_OK; i++) printf("%s\"%s\":%lld", i ? "," : "", c.name, (long long)c.value);
}

static void print_broker_json(const struct cli_nodes *nodes, const struct cli_node *d) {
    char problem[PROBLEM_MAX];
    const kc_broker_info *b = &d->info;
    printf("{\"id\":%d,\"host\":", (int)b->id);
    cli_json_text(stdout, b->host, strlen(b->host));
    printf(",\"port\":%d,\"rack\":", (int)b->port);
    if (b->rack)
        cli_json_text(stdout, b->rack, strlen(b->rack));
    else
        fputs("null", stdout);
    printf(",\"up\":%s,\"seen_ms_ago\":%lld", b->fenced ? "false" : "true", (long long)cli_view_seen_ms_ago(nodes->view, b->id));
    if (*cli_node_problem(nodes, d, problem, sizeof problem)) {
        printf(",\"problem\":");
        cli_json_text(stdout, problem, strlen(problem));
    }
    if (d->counts) {
        printf(",\"counts\":{");
        print_counts_json(d->counts);
        putchar('}');
    }
    putchar('}');
}

static void print_json(struct cli_view *v, const struct cli_nodes *nodes) {
    struct health h = {0};
    kc_count sum;
    printf("{\"cluster\":");
    const char *id = kc_cluster_info_id(v->info);
    cli_json_text(stdout, id, strlen(id));
    printf(",\"controller\":%d,\"brokers\":[", (int)controller_of(v));
    for (size_t i = 0; i < nodes->count && nodes->v[i].broker; i++) {
        if (i > 0) putchar(',');
        print_broker_json(nodes, &nodes->v[i]);
    }
    printf("]");
    print_quorum_json(v);
    printf(",\"counts\":{");
    for (size_t i = 0; cli_nodes_sum(nodes, i, &sum); i++) printf("%s\"%s\":%lld", i ? "," : "", sum.name, (long long)sum.value);
    printf("},\"problems\":[");
    look_at(v, &h, true);
    printf("],\"topics\":%zu,\"partitions\":%zu,\"leaderless\":%zu,\"below_min_isr\":%zu,\"under_replicated\":%zu}\n", h.topics, h.partitions,
           h.states[CLI_OFFLINE], h.states[CLI_READ_ONLY], h.under_replicated);
}

static void print_nodes(const struct cli_nodes *nodes) {
    static const char *const heads[] = {"node", "address", "rack", "quorum", "state"};
    struct cli_table *table = cli_table_new(heads, sizeof heads / sizeof *heads);
    for (size_t i = 0; i < nodes->count; i++) {
        const struct cli_node *d = &nodes->v[i];
        char problem[PROBLEM_MAX];
        cli_node_problem(nodes, d, problem, sizeof problem);
        cli_table_add(table, "%d", (int)d->id);
        if (d->broker)
            cli_table_add(table, "%s:%d", d->info.host, (int)d->info.port);
        else
            cli_table_add(table, "-");
        cli_table_add(table, "%s", d->broker && d->info.rack ? d->info.rack : "-");
        cli_table_add(table, "%s", cli_node_quorum(nodes, d));
        cli_table_add(table, "%s%s%s", d->up ? "up" : "", d->up && *problem ? "; " : "", problem);
    }
    cli_table_print(table);
}

/* Those that are not zero. */
static void print_counts(const struct cli_nodes *nodes) {
    kc_count sum;
    const char *sep = "counted since the nodes' start: ";
    for (size_t i = 0; cli_nodes_sum(nodes, i, &sum); i++) {
        if (sum.value == 0) continue;
        printf("%s%s %lld", sep, sum.name, (long long)sum.value);
        sep = ", ";
    }
    if (*sep == ',') putchar('\n');
}

static bool is_silent(const struct cli_view *v, const kc_quorum_replica *r) {
    return r->id != kc_quorum_info_leader(v->quorum) && (r->fetched_ms_ago < 0 || r->fetched_ms_ago >= VOTER_SILENT_MS);
}

/* A voter that fetches and acknowledges nothing started with an empty folder: it may have voted, and knows no more for whom. */
static void print_forgetful(const struct cli_view *v) {
    static const uint8_t none[sizeof(((kc_quorum_replica *)0)->directory)];
    kc_quorum_replica r, other;
    for (size_t i = 0; kc_quorum_info_get(v->quorum, i, &r) == KC_OK; i++) {
        if (!r.voter || r.log_end >= 0 || is_silent(v, &r) || r.id == kc_quorum_info_leader(v->quorum) || memcmp(r.directory, none, sizeof none) != 0) continue;
        const char *before = "; waiting for voter";
        printf("voter %d started with an empty folder and gives no vote until every other voter has answered it", (int)r.id);
        for (size_t k = 0; kc_quorum_info_get(v->quorum, k, &other) == KC_OK; k++) {
            if (!other.voter || !is_silent(v, &other)) continue;
            printf("%s %d", before, (int)other.id);
            before = " and";
        }
        if (before[0] == ';')
            printf("\n");
        else
            printf(" (to be started; should one be lost for good: controller.quorum.rejoin=true on node %d)\n", (int)r.id);
    }
}

static void print_text(struct cli_view *v, const struct cli_nodes *nodes) {
    struct health h = {0};
    printf(controller_of(v) >= 0 ? "cluster %s, controller %d" : "cluster %s, no controller", kc_cluster_info_id(v->info), (int)controller_of(v));
    if (v->quorum) printf(" in epoch %d", (int)kc_quorum_info_epoch(v->quorum));
    printf("\n");
    print_nodes(nodes);
    if (!v->quorum && v->quorum_err != KC_OK && v->quorum_err != KC_UNSUPPORTED)
        printf("the metadata quorum does not answer (%s): nothing can be changed, and no leader be elected, until a majority of its voters is there\n",
               kc_err_text(v->quorum_err));
    print_forgetful(v);
    look_at(v, &h, false);
    if (h.shown > PROBLEMS_SHOWN) printf("… and %zu more partitions\n", h.shown - PROBLEMS_SHOWN);
    printf("%zu topics, %zu partitions", h.topics, h.partitions);
    if (h.states[CLI_OFFLINE]) printf("; %zu without a leader", h.states[CLI_OFFLINE]);
    if (h.states[CLI_READ_ONLY]) printf("; %zu below min.insync.replicas", h.states[CLI_READ_ONLY]);
    if (h.under_replicated) printf("; %zu with replicas out of sync", h.under_replicated);
    printf("\n");
    print_counts(nodes);
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
    struct cli_view view = {.session = &s, .later = true};
    struct cli_nodes nodes = {0};
    kc_error *error = NULL;
    kc_err err = cli_view_topic(&view, NULL, &error);
    if (err == KC_OK && !cli_nodes_open(&view, &nodes)) err = KC_NO_MEMORY;
    if (err != KC_OK)
        rc = cli_fail("cluster", err, error);
    else if (json)
        print_json(&view, &nodes);
    else
        print_text(&view, &nodes);
    cli_nodes_close(&nodes);
    cli_view_close(&view);
    cli_session_close(&s);
    return rc;
}
