/* unregister.c - kc unregister: a broker that will not come back leaves the cluster's metadata. KIP-185, KIP-631. */
#include <string.h>

#include "cli.h"

static size_t held_by(const kc_cluster_info *info, int32_t id) {
    size_t n = 0;
    kc_topic_info t;
    kc_partition_info p;
    for (size_t i = 0; kc_cluster_info_topic(info, i, &t) == KC_OK; i++)
        for (size_t k = 0; kc_cluster_info_partition(info, i, k, &p) == KC_OK; k++) n += cli_has_id(p.replicas, p.replica_count, id);
    return n;
}

/* What speaks against it; a broker that the metadata does not show may be registered all the same: the controller knows. */
static int check(const kc_cluster_info *info, int32_t id) {
    kc_broker_info b;
    size_t held = held_by(info, id);
    for (size_t i = 0; kc_cluster_info_broker(info, i, &b) == KC_OK; i++) {
        if (b.id != id || b.fenced) continue;
        fprintf(stderr, "kc: unregister: broker %d is up: it would register again. Stop it first (or --force)\n", (int)id);
        return CLI_FAILURE;
    }
    if (held == 0) return CLI_OK;
    fprintf(stderr,
            "kc: unregister: broker %d still holds replicas of %zu partition%s: move them first (kc reassign TOPIC --to ID,...; or --force, and\n"
            "  they wait for it)\n",
            (int)id, held, held == 1 ? "" : "s");
    return CLI_FAILURE;
}

static int one(struct cli_session *s, int32_t id, bool json) {
    kc_error *error = NULL;
    kc_op *op = NULL;
    kc_err err = kc_admin_unregister_broker_start(s->client, id, 0, 0, &op, &error);
    if (err == KC_OK) err = cli_wait(s, op, &error);
    kc_op_free(op);
    if (err != KC_OK) return cli_fail("unregister", err, error);
    if (json)
        printf("{\"broker\":%d,\"unregistered\":true}\n", (int)id);
    else
        printf("broker %d is no part of the cluster any more\n", (int)id);
    return CLI_OK;
}

int cmd_unregister(int argc, char **argv) {
    struct cli_session s = {0};
    bool force = false, json = false;
    const struct cli_option options[] = {
        CLI_SESSION_OPTIONS(&s),
        {0, "force", NULL, "also one that is up, or holds replicas", CLI_FLAG, &force},
        {0, "json", NULL, "print JSON, a line a broker", CLI_FLAG, &json},
    };
    const struct cli_command c = {"unregister",
                                  "BROKER...",
                                  "Removes brokers that will not come back from the cluster.",
                                  "A broker that is only away needs nothing of this: it comes back by itself when it is started.",
                                  1,
                                  CLI_OPERANDS_MAX,
                                  options,
                                  sizeof options / sizeof *options,
                                  "  kc unregister 3\n"};
    struct cli_operands o;
    int64_t ids[CLI_OPERANDS_MAX];
    int rc = cli_parse(&c, argc, argv, &o);
    if (rc >= 0) return rc;
    for (int i = 0; i < o.count; i++)
        if (!cli_number(o.v[i], 0, INT32_MAX, &ids[i])) return cli_usage_error(&c, "'%s' is no broker: give its number (kc cluster shows them)", o.v[i]);
    if ((rc = cli_session_open(&s)) != CLI_OK) return rc;
    kc_cluster_info *info = NULL;
    kc_error *error = NULL;
    kc_err err = force ? KC_OK : cli_describe(&s, NULL, &info, &error);
    if (err != KC_OK) rc = cli_fail(c.name, err, error);
    for (int i = 0; !force && rc == CLI_OK && i < o.count; i++) rc = check(info, (int32_t)ids[i]);
    for (int i = 0; rc == CLI_OK && i < o.count; i++) rc = one(&s, (int32_t)ids[i], json);
    kc_cluster_info_free(info);
    cli_session_close(&s);
    return rc;
}
