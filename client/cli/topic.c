/* topic.c - kc topic create|list|describe|alter|delete. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

static int topic_create(int argc, char **argv) {
    struct cli_session s = {0};
    struct cli_many config = {0};
    int64_t partitions = 0, rf = 0;
    const char *replicas = NULL;
    int32_t ids[CLI_REPLICAS_MAX];
    bool dry = false, json = false;
    const struct cli_option options[] = {
        CLI_SESSION_OPTIONS(&s),
        {0, "partitions", "N", "partitions (default: the broker's num.partitions)", CLI_COUNT, &partitions},
        {0, "rf", "N", "replication factor (default: the broker's)", CLI_COUNT, &rf},
        {0, "replicas", "ID:ID,...", "brokers of each partition, as 0:1:2,1:2:0, in place of the two", CLI_TEXT, &replicas},
        {0, "config", "NAME=VALUE", "a topic config; may be repeated", CLI_MANY, &config},
        {0, "dry-run", NULL, "only check, change nothing", CLI_FLAG, &dry},
        {0, "json", NULL, "print JSON", CLI_FLAG, &json},
    };
    const struct cli_command c = {
        "topic create", "TOPIC...", "Creates topics.", NULL, 1, CLI_OPERANDS_MAX, options, sizeof options / sizeof *options,
                                  "  kc topic create orders --partitions 6 --config retention.ms=86400000\n"
                                  "  kc topic create payments --config message.guid.dedup=true\n"
                                  "  kc topic create placed --replicas 0,0\n"};
    struct cli_operands names;
    int rc = cli_parse(&c, argc, argv, &names);
    if (rc >= 0) return rc;
    struct cli_pairs pairs;
    if ((rc = cli_pairs_make(&c, &config, NULL, &pairs)) >= 0) return rc;
    if (rf > INT16_MAX) return cli_usage_error(&c, "--rf is at most %d", INT16_MAX);
    if (replicas && (partitions || rf)) return cli_usage_error(&c, "--replicas says what --partitions and --rf would: give it alone");
    if (replicas && !cli_replicas(replicas, ids, &partitions, &rf))
        return cli_usage_error(&c, "--replicas wants as many broker ids for each partition, such as 0:1:2,1:2:0 (at most %d), not \"%s\"", CLI_REPLICAS_MAX,
                               replicas);
    if ((rc = cli_session_open(&s)) != CLI_OK) return rc;
    kc_topic_new items[CLI_OPERANDS_MAX] = {{0}};
    for (int i = 0; i < names.count; i++)
        items[i] = (kc_topic_new){.name = names.v[i],
                                  .partitions = (int32_t)partitions,
                                  .replication_factor = (int32_t)rf,
                                  .configs = pairs.v,
                                  .config_count = pairs.count,
                                  .replicas = replicas ? ids : NULL};
    kc_error *error = NULL;
    kc_op *op = NULL;
    bool done[CLI_OPERANDS_MAX] = {0};
    kc_err err = kc_admin_create_topics_start(s.client, items, sizeof *items, (size_t)names.count, dry, 0, 0, &op, &error);
    rc = cli_wait_items(&s, c.name, err, op, error, done, (size_t)names.count);
    for (int i = 0; i < names.count; i++) {
        if (!done[i]) continue;
        if (json) {
            printf("{\"name\":");
            cli_json_text(stdout, names.v[i], strlen(names.v[i]));
            printf(",\"created\":%s}\n", dry ? "false" : "true");
        } else {
            printf("%s topic %s\n", dry ? "would create" : "created", names.v[i]);
        }
    }
    cli_session_close(&s);
    return rc;
}

static int topic_delete(int argc, char **argv) {
    struct cli_session s = {0};
    const struct cli_option options[] = {CLI_SESSION_OPTIONS(&s)};
    const struct cli_command c = {"topic delete",   "TOPIC...", "Deletes topics and all their records.", NULL, 1,
                                  CLI_OPERANDS_MAX, options,    sizeof options / sizeof *options,
                                  "  kc topic delete orders\n"};
    struct cli_operands names;
    int rc = cli_parse(&c, argc, argv, &names);
    if (rc >= 0 || (rc = cli_session_open(&s)) != CLI_OK) return rc;
    kc_admin_item items[CLI_OPERANDS_MAX] = {{0}};
    for (int i = 0; i < names.count; i++) items[i].name = names.v[i];
    kc_error *error = NULL;
    kc_op *op = NULL;
    bool done[CLI_OPERANDS_MAX] = {0};
    kc_err err = kc_admin_delete_topics_start(s.client, items, sizeof *items, (size_t)names.count, 0, 0, &op, &error);
    rc = cli_wait_items(&s, c.name, err, op, error, done, (size_t)names.count);
    for (int i = 0; i < names.count; i++)
        if (done[i]) printf("deleted topic %s\n", names.v[i]);
    cli_session_close(&s);
    return rc;
}

static int alter_partitions(struct cli_session *s, const char *topic, int64_t partitions) {
    kc_admin_item item = {.name = topic, .count = (int32_t)partitions};
    kc_error *error = NULL;
    kc_op *op = NULL;
    kc_err err = kc_admin_create_partitions_start(s->client, &item, sizeof item, 1, 0, 0, &op, &error);
    int rc = cli_wait_items(s, "topic alter", err, op, error, NULL, 1);
    if (rc == CLI_OK) printf("topic %s has %lld partitions\n", topic, (long long)partitions);
    return rc;
}

static int topic_alter(int argc, char **argv) {
    struct cli_session s = {0};
    struct cli_many set = {0}, unset = {0};
    int64_t partitions = 0;
    const struct cli_option options[] = {
        CLI_SESSION_OPTIONS(&s),
        {0, "partitions", "N", "the new total; only growth is possible", CLI_COUNT, &partitions},
        {0, "config", "NAME=VALUE", "set a topic config; may be repeated", CLI_MANY, &set},
        {0, "delete-config", "NAME", "back to the default; may be repeated", CLI_MANY, &unset},
    };
    const struct cli_command c = {
        "topic alter", "TOPIC", "Adds partitions, changes configs.", NULL, 1, 1, options, sizeof options / sizeof *options,
                                  "  kc topic alter orders --partitions 12\n"
                                  "  kc topic alter orders --config retention.ms=3600000\n"
                                  "  kc topic alter orders --delete-config retention.ms\n"};
    struct cli_operands names;
    int rc = cli_parse(&c, argc, argv, &names);
    if (rc >= 0) return rc;
    struct cli_pairs pairs;
    if ((rc = cli_pairs_make(&c, &set, &unset, &pairs)) >= 0) return rc;
    if (partitions == 0 && pairs.count == 0) return cli_usage_error(&c, "nothing to alter: give --partitions, --config or --delete-config");
    if ((rc = cli_session_open(&s)) != CLI_OK) return rc;
    if (partitions > 0) rc = alter_partitions(&s, names.v[0], partitions);
    if (rc == CLI_OK && pairs.count > 0) {
        rc = cli_alter_configs(&s, c.name, KC_RESOURCE_TOPIC, names.v[0], &pairs);
        if (rc == CLI_OK) printf("altered topic %s\n", names.v[0]);
    }
    cli_session_close(&s);
    return rc;
}

/* Those of the replicas that are not in sync. */
static size_t osr_of(const kc_partition_info *p, int32_t *out, size_t max) {
    size_t n = 0;
    for (size_t i = 0; i < p->replica_count && n < max; i++) {
        bool in_sync = false;
        for (size_t k = 0; k < p->isr_count; k++) in_sync = in_sync || p->isr[k] == p->replicas[i];
        if (!in_sync) out[n++] = p->replicas[i];
    }
    return n;
}
#define REPLICAS_SHOWN 64
#define PROBLEM_MAX 512

static void describe_json(struct cli_view *v, const kc_topic_info *topic) {
    printf("{\"name\":");
    cli_json_text(stdout, topic->name, strlen(topic->name));
    printf(",\"id\":\"");
    for (int i = 0; i < 16; i++) printf("%02x", topic->id[i]);
    printf("\",\"internal\":%s,\"partitions\":[", topic->internal ? "true" : "false");
    for (size_t i = 0; i < topic->partition_count; i++) {
        kc_partition_info p;
        char problem[PROBLEM_MAX];
        int32_t osr[REPLICAS_SHOWN];
        if (kc_cluster_info_partition(v->info, 0, i, &p) != KC_OK) continue;
        printf("%s{\"partition\":%d,\"leader\":%d,\"leader_epoch\":%d", i ? "," : "", (int)p.partition, (int)p.leader, (int)p.leader_epoch);
        cli_json_ids(stdout, "replicas", p.replicas, p.replica_count);
        cli_json_ids(stdout, "isr", p.isr, p.isr_count);
        cli_json_ids(stdout, "osr", osr, osr_of(&p, osr, REPLICAS_SHOWN));
        printf(",\"log_start\":%lld,\"hw\":%lld,\"leo\":%lld", (long long)p.log_start, (long long)p.high_watermark, (long long)p.log_end);
        printf(",\"state\":\"%s\"", cli_state_name(cli_view_partition(v, topic, &p, problem, sizeof problem)));
        if (*problem) {
            printf(",\"problem\":");
            cli_json_text(stdout, problem, strlen(problem));
        }
        if (p.err != KC_OK) printf(",\"error\":\"%s\"", kc_err_name(p.err));
        putchar('}');
    }
    printf("]}\n");
}

/* Offsets that are not known (the leader is away) are shown as "-". */
static void add_offset(struct cli_table *table, int64_t offset) {
    if (offset < 0)
        cli_table_add(table, "-");
    else
        cli_table_add(table, "%lld", (long long)offset);
}

static void describe_text(struct cli_view *v, const kc_topic_info *topic) {
    printf("topic %s, %zu partition%s%s\n", topic->name, topic->partition_count, topic->partition_count == 1 ? "" : "s",
           topic->internal ? ", internal" : "");
    static const char *const heads[] = {"partition", "leader", "epoch", "replicas", "isr", "osr", "start", "hw", "leo", "state"};
    struct cli_table *table = cli_table_new(heads, sizeof heads / sizeof *heads);
    char (*problems)[PROBLEM_MAX] = calloc(topic->partition_count + 1, sizeof *problems);
    for (size_t i = 0; i < topic->partition_count; i++) {
        kc_partition_info p;
        char text[256], none[PROBLEM_MAX];
        int32_t osr[REPLICAS_SHOWN];
        if (kc_cluster_info_partition(v->info, 0, i, &p) != KC_OK) continue;
        size_t osr_count = osr_of(&p, osr, REPLICAS_SHOWN);
        cli_table_add(table, "%d", (int)p.partition);
        cli_table_add(table, p.leader < 0 ? "none" : "%d", (int)p.leader);
        cli_table_add(table, "%d", (int)p.leader_epoch);
        cli_table_add(table, "%s", cli_ids_text(text, sizeof text, p.replicas, p.replica_count));
        cli_table_add(table, "%s", cli_ids_text(text, sizeof text, p.isr, p.isr_count));
        cli_table_add(table, "%s", osr_count > 0 ? cli_ids_text(text, sizeof text, osr, osr_count) : "-");
        add_offset(table, p.log_start);
        add_offset(table, p.high_watermark);
        add_offset(table, p.log_end);
        cli_table_add(table, "%s", cli_state_name(cli_view_partition(v, topic, &p, problems ? problems[i] : none, PROBLEM_MAX)));
    }
    cli_table_print(table);
    for (size_t i = 0; problems && i < topic->partition_count; i++) {
        kc_partition_info p;
        if (*problems[i] && kc_cluster_info_partition(v->info, 0, i, &p) == KC_OK) printf("partition %d: %s\n", (int)p.partition, problems[i]);
    }
    free(problems);
}

static int topic_describe(int argc, char **argv) {
    struct cli_session s = {0};
    bool json = false;
    const struct cli_option options[] = {CLI_SESSION_OPTIONS(&s), {0, "json", NULL, "print JSON", CLI_FLAG, &json}};
    const struct cli_command c = {"topic describe",
                                  "TOPIC...",
                                  "Shows leaders, replicas in and out of sync, offsets, and what is wrong.",
                                  NULL,
                                  1,
                                  CLI_OPERANDS_MAX,
                                  options,
                                  sizeof options / sizeof *options,
                                  "  kc topic describe orders\n"
                                  "  kc topic describe orders --json\n"};
    struct cli_operands names;
    int rc = cli_parse(&c, argc, argv, &names);
    if (rc >= 0 || (rc = cli_session_open(&s)) != CLI_OK) return rc;
    struct cli_view view = {.session = &s};
    for (int i = 0; i < names.count; i++) {
        kc_error *error = NULL;
        kc_topic_info topic;
        kc_err err = cli_view_topic(&view, names.v[i], &error);
        if (err == KC_OK) err = kc_cluster_info_topic(view.info, 0, &topic);
        if (err == KC_OK) err = topic.err;
        if (err != KC_OK) {
            rc = cli_fail(names.v[i], err, error);
        } else if (json) {
            describe_json(&view, &topic);
        } else {
            describe_text(&view, &topic);
        }
    }
    cli_view_close(&view);
    cli_session_close(&s);
    return rc;
}

static int topic_list(int argc, char **argv) {
    struct cli_session s = {0};
    bool json = false;
    const struct cli_option options[] = {CLI_SESSION_OPTIONS(&s), {0, "json", NULL, "print JSON, a line a topic", CLI_FLAG, &json}};
    const struct cli_command c = {
        "topic list", "", "Lists the topics, a name a line.", NULL, 0, 0, options, sizeof options / sizeof *options,
                                  "  kc topic list -b 127.0.0.1:9092\n"};
    struct cli_operands none;
    int rc = cli_parse(&c, argc, argv, &none);
    if (rc >= 0 || (rc = cli_session_open(&s)) != CLI_OK) return rc;
    kc_cluster_info *info = NULL;
    kc_error *error = NULL;
    kc_err err = cli_describe(&s, NULL, &info, &error);
    if (err != KC_OK) rc = cli_fail("topic list", err, error);
    for (size_t i = 0; err == KC_OK && i < kc_cluster_info_topic_count(info); i++) {
        kc_topic_info t;
        if (kc_cluster_info_topic(info, i, &t) != KC_OK) continue;
        if (!json) {
            printf("%s\n", t.name);
            continue;
        }
        printf("{\"name\":");
        cli_json_text(stdout, t.name, strlen(t.name));
        printf(",\"partitions\":%zu,\"internal\":%s}\n", t.partition_count, t.internal ? "true" : "false");
    }
    kc_cluster_info_free(info);
    cli_session_close(&s);
    return rc;
}

int cmd_topic(int argc, char **argv) {
    static const struct cli_sub subs[] = {
        {"create", topic_create, "create topics"},
        {"list", topic_list, "list topics"},
        {"describe", topic_describe, "show partitions, leaders, offsets"},
        {"alter", topic_alter, "add partitions, change configs"},
        {"delete", topic_delete, "delete topics"},
    };
    return cli_dispatch("kc topic", subs, sizeof subs / sizeof *subs, argc, argv);
}
