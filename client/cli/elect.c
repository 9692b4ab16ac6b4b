/* elect.c - kc elect preferred|unclean: leaders of partitions chosen anew. KIP-460. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"

#define KE_ELECTION_NOT_NEEDED 84
#define SETTLE_LOOKS 20 /* the broker that is asked may hear a little later than the controller who leads now */
#define LOOK_US 100000

struct election {
    struct cli_session s;
    const struct cli_command *c;
    int32_t kind;
    bool json;
    kc_cluster_info *info, *after; /* after: to tell who leads now; may be NULL */
    struct cli_topics topics;      /* of `after` */
    struct cli_parts parts;
    kc_admin_result *results; /* strings are the operation's */
    size_t count;
};

static int32_t leader_of(const struct election *e, const char *topic, int32_t partition) {
    kc_partition_info p;
    return cli_part_find(&e->topics, topic, partition, &p) ? p.leader : -1;
}

/* The broker that was asked has heard of what was elected. */
static bool is_known(const struct election *e) {
    for (size_t i = 0; i < e->count; i++) {
        kc_partition_info p;
        if (e->results[i].err != KC_OK || !cli_part_find(&e->topics, e->results[i].name, e->results[i].partition, &p)) continue;
        if (e->kind == KC_ELECT_PREFERRED && p.replica_count > 0 ? p.leader != p.replicas[0] : p.leader < 0) return false;
    }
    return true;
}

static void look(struct election *e) {
    for (int i = 0; i < SETTLE_LOOKS; i++) {
        cli_topics_free(&e->topics);
        kc_cluster_info_free(e->after);
        e->after = NULL;
        if (cli_describe(&e->s, NULL, &e->after, NULL) == KC_OK) (void)!cli_topics_make(&e->topics, e->after); /* else it is not told who leads */
        if (is_known(e)) return;
        cli_pause(LOOK_US);
    }
}

static void print_one(const struct election *e, const kc_admin_result *r) {
    int32_t leader = leader_of(e, r->name, r->partition);
    if (e->json) {
        cli_json_part(r->name, r->partition);
        printf(",\"elected\":%s,\"leader\":%d", r->err == KC_OK ? "true" : "false", (int)leader);
        if (r->err != KC_OK) {
            printf(",\"error\":\"%s\",\"message\":", kc_err_name(r->err));
            cli_json_text(stdout, r->message, strlen(r->message));
        }
        puts("}");
        return;
    }
    if (r->err != KC_OK && r->err != KE_ELECTION_NOT_NEEDED) return; /* told on stderr */
    printf("%s partition %d: ", r->name, (int)r->partition);
    if (leader >= 0)
        printf("broker %d leads%s\n", (int)leader, r->err == KC_OK ? " now" : " already");
    else
        puts(r->err == KC_OK ? "elected" : "no election was needed");
}

static int print_all(const struct election *e) {
    int rc = CLI_OK;
    if (e->count == 0 && !e->json)
        puts(e->kind == KC_ELECT_PREFERRED ? "nothing to elect: the preferred replica leads each partition" : "nothing to elect: each partition has a leader");
    for (size_t i = 0; i < e->count; i++) {
        const kc_admin_result *r = &e->results[i];
        print_one(e, r);
        if (r->err == KC_OK || r->err == KE_ELECTION_NOT_NEEDED) continue;
        rc = CLI_FAILURE;
        fprintf(stderr, "kc: elect: %s partition %d: %s (%s)\n", r->name, (int)r->partition, r->message, kc_err_name(r->err));
    }
    return rc;
}

static int hold(struct election *e) {
    kc_error *error = NULL;
    kc_op *op = NULL;
    kc_partition_item *items = calloc(e->parts.count + 1, sizeof *items);
    if (!items) return cli_fail(e->c->name, KC_NO_MEMORY, NULL);
    for (size_t i = 0; i < e->parts.count; i++)
        items[i] = (kc_partition_item){.topic = e->parts.v[i].topic, .partition = e->parts.v[i].p.partition};
    kc_err err = kc_admin_elect_leaders_start(e->s.client, e->kind, items, sizeof *items, e->parts.count, 0, 0, &op, &error);
    free(items);
    int rc = cli_wait_results(&e->s, e->c->name, err, op, error, &e->results, &e->count);
    if (rc == CLI_OK) {
        look(e);
        rc = print_all(e);
    }
    free(e->results);
    kc_op_free(op);
    return rc;
}

static int run(struct election *e, const char *const *words, int count) {
    kc_error *error = NULL;
    int rc = cli_session_open(&e->s);
    if (rc != CLI_OK) return rc;
    if (count > 0) { /* else all */
        kc_err err = cli_describe(&e->s, NULL, &e->info, &error);
        rc = err == KC_OK ? cli_parts_find(e->c, e->info, words, count, &e->parts) : cli_fail(e->c->name, err, error);
    }
    if (rc == CLI_OK) rc = hold(e);
    cli_parts_free(&e->parts);
    kc_cluster_info_free(e->info);
    cli_topics_free(&e->topics);
    kc_cluster_info_free(e->after);
    cli_session_close(&e->s);
    return rc;
}

int cmd_elect(int argc, char **argv) {
    struct election e = {0};
    bool all = false;
    const struct cli_option options[] = {
        CLI_SESSION_OPTIONS(&e.s),
        {0, "all", NULL, "every partition that needs it", CLI_FLAG, &all},
        {0, "json", NULL, "print JSON, a line a partition", CLI_FLAG, &e.json},
    };
    const struct cli_command c = {"elect",
                                  "preferred|unclean TOPIC[:PARTITION]...",
                                  "Chooses leaders of partitions anew.",
                                  "preferred: the first of a partition's replicas leads again, where it is in sync. unclean: where no replica in sync is left, "
                                  "any other that is up leads, and records that only the others had are lost.",
                                  1,
                                  CLI_OPERANDS_MAX,
                                  options,
                                  sizeof options / sizeof *options,
                                  "  kc elect preferred --all\n"
                                  "  kc elect unclean orders:3\n"};
    struct cli_operands o;
    int rc = cli_parse(&c, argc, argv, &o);
    if (rc >= 0) return rc;
    e.c = &c;
    if (!strcmp(o.v[0], "preferred"))
        e.kind = KC_ELECT_PREFERRED;
    else if (!strcmp(o.v[0], "unclean"))
        e.kind = KC_ELECT_UNCLEAN;
    else
        return cli_usage_error(&c, "'%s' is neither 'preferred' nor 'unclean'", o.v[0]);
    if (all == (o.count > 1)) return cli_usage_error(&c, all ? "--all goes without topics" : "say which: TOPIC, TOPIC:PARTITION, or --all");
    if ((rc = cli_parts_check(&c, o.v + 1, o.count - 1)) >= 0) return rc;
    return run(&e, o.v + 1, o.count - 1);
}
