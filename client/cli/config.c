/* config.c - kc config describe|alter|explain. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/nearest.h"

static int resource_of(const struct cli_command *c, const char *word, int32_t *resource) {
    if (!strcmp(word, "topic"))
        *resource = KC_RESOURCE_TOPIC;
    else if (!strcmp(word, "broker"))
        *resource = KC_RESOURCE_BROKER;
    else
        return cli_usage_error(c, "'%s' is neither 'topic' nor 'broker'", word);
    return -1;
}

/* A broker is named by its number; "" stands for the default of all. -1: fine, else the exit code. */
static int check_broker(const struct cli_command *c, struct cli_session *s, const char *name) {
    int64_t id;
    if (!*name) return -1;
    if (!cli_number(name, 0, INT32_MAX, &id))
        return cli_usage_error(c, "'%s' is no broker: give its number (kc cluster shows them), or '' for the default of all", name);
    if (!s) return -1;
    kc_cluster_info *info = NULL;
    kc_error *error = NULL;
    kc_err err = cli_describe(s, NULL, &info, &error);
    if (err != KC_OK) return cli_fail(c->name, err, error);
    bool found = false;
    for (size_t i = 0; i < kc_cluster_info_broker_count(info); i++) {
        kc_broker_info b;
        found |= kc_cluster_info_broker(info, i, &b) == KC_OK && b.id == id;
    }
    kc_cluster_info_free(info);
    if (found) return -1;
    fprintf(stderr, "kc: %s: there is no broker %s now; kc cluster shows which there are\n", c->name, name);
    return CLI_FAILURE;
}

static kc_err describe(struct cli_session *s, int32_t resource, const char *name, kc_config_list **list, kc_error **error) {
    kc_op *op = NULL;
    kc_err err = kc_admin_describe_configs_start(s->client, resource, name, 0, 0, &op, error);
    if (err == KC_OK) err = cli_wait(s, op, error);
    if (err == KC_OK && !(*list = kc_op_result_configs(op))) err = KC_NO_MEMORY;
    kc_op_free(op);
    return err;
}

static void print_value(const kc_config_item *v) {
    if (v->value)
        cli_json_text(stdout, v->value, strlen(v->value));
    else
        fputs("null", stdout);
}

static int config_describe(int argc, char **argv) {
    struct cli_session s = {0};
    bool json = false, all = false, docs = false;
    const struct cli_option options[] = {
        CLI_SESSION_OPTIONS(&s),
        {0, "all", NULL, "defaults too, not just what was set", CLI_FLAG, &all},
        {0, "docs", NULL, "with what each one means", CLI_FLAG, &docs},
        {0, "json", NULL, "print JSON, a line a config", CLI_FLAG, &json},
    };
    const struct cli_command c = {"config describe",
                                  "topic|broker NAME",
                                  "Shows the configs of a topic or broker.",
                                  NULL,
                                  2,
                                  2,
                                  options,
                                  sizeof options / sizeof *options,
                                  "  kc config describe topic orders --all --docs\n"
                                  "  kc config describe broker 0\n"};
    struct cli_operands o;
    int32_t resource = 0;
    int rc = cli_parse(&c, argc, argv, &o);
    if (rc >= 0 || (rc = resource_of(&c, o.v[0], &resource)) >= 0) return rc;
    bool broker = resource == KC_RESOURCE_BROKER;
    if (broker && (rc = check_broker(&c, NULL, o.v[1])) >= 0) return rc;
    if ((rc = cli_session_open(&s)) != CLI_OK) return rc;
    kc_config_list *list = NULL;
    kc_error *error = NULL;
    if (broker && (rc = check_broker(&c, &s, o.v[1])) >= 0) {
        cli_session_close(&s);
        return rc;
    }
    kc_err err = describe(&s, resource, o.v[1], &list, &error);
    rc = err == KC_OK ? CLI_OK : cli_fail(c.name, err, error);
    for (size_t i = 0; err == KC_OK && i < kc_config_list_count(list); i++) {
        kc_config_item v;
        if (kc_config_list_get(list, i, &v) != KC_OK || (!all && !strcmp(v.source, "default"))) continue;
        if (json) {
            printf("{\"name\":");
            cli_json_text(stdout, v.name, strlen(v.name));
            printf(",\"value\":");
            print_value(&v);
            printf(",\"source\":\"%s\",\"read_only\":%s}\n", v.source, v.read_only ? "true" : "false");
        } else {
            printf("%s=%s  (%s)\n", v.name, v.value ? v.value : v.sensitive ? "(hidden)" : "null", v.source);
            if (docs && *v.doc) printf("    %s\n", v.doc);
        }
    }
    kc_config_list_free(list);
    cli_session_close(&s);
    return rc;
}

static int config_alter(int argc, char **argv) {
    struct cli_session s = {0};
    struct cli_many set = {0}, unset = {0};
    const struct cli_option options[] = {
        CLI_SESSION_OPTIONS(&s),
        {0, "config", "NAME=VALUE", "set; may be repeated", CLI_MANY, &set},
        {0, "delete-config", "NAME", "back to the default; may be repeated", CLI_MANY, &unset},
    };
    const struct cli_command c = {"config alter",
                                  "topic|broker NAME",
                                  "Changes configs of a topic or a broker ('' : all brokers).",
                                  NULL,
                                  2,
                                  2,
                                  options,
                                  sizeof options / sizeof *options,
                                  "  kc config alter topic orders --config retention.ms=3600000\n"
                                  "  kc config alter broker '' --config log.retention.ms=86400000\n"};
    struct cli_operands o;
    int32_t resource = 0;
    int rc = cli_parse(&c, argc, argv, &o);
    if (rc >= 0 || (rc = resource_of(&c, o.v[0], &resource)) >= 0) return rc;
    if (resource == KC_RESOURCE_BROKER && (rc = check_broker(&c, NULL, o.v[1])) >= 0) return rc;
    struct cli_pairs pairs;
    if ((rc = cli_pairs_make(&c, &set, &unset, &pairs)) >= 0) return rc;
    if (pairs.count == 0) return cli_usage_error(&c, "nothing to alter: give --config or --delete-config");
    if ((rc = cli_session_open(&s)) != CLI_OK) return rc;
    rc = cli_alter_configs(&s, c.name, resource, o.v[1], &pairs);
    if (rc == CLI_OK) printf(*o.v[1] ? "altered %s %s\n" : "altered all %ss\n", o.v[0], o.v[1]);
    cli_session_close(&s);
    return rc;
}

static void explain(const kc_config_entry *e) {
    char *head = NULL;
    if (asprintf(&head, "(%s, %s%s%s; default %s)", e->scope, e->type, *e->range ? ", " : "", e->range, *e->def ? e->def : "none") < 0) head = NULL;
    cli_print_wrapped(stdout, head ? head : "", (size_t)printf("%s  ", e->name), 4);
    free(head);
    if (*e->aliases) printf("    also: %s\n", e->aliases);
    printf("    ");
    cli_print_wrapped(stdout, e->text, 4, 4);
}

static void explain_json(const kc_config_entry *e) {
    const char *const members[][2] = {{"name", e->name}, {"aliases", e->aliases}, {"scope", e->scope}, {"type", e->type},
                                      {"range", e->range}, {"default", e->def}, {"text", e->text}};
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        printf("%s\"%s\":", i == 0 ? "{" : ",", members[i][0]);
        cli_json_text(stdout, members[i][1], strlen(members[i][1]));
    }
    printf("}\n");
}

static bool named(const kc_config_entry *e, const char *name) {
    if (!strcasecmp(e->name, name)) return true;
    size_t n = strlen(name);
    for (const char *p = e->aliases; p && *p;) {
        const char *end = strchr(p, ',');
        size_t len = end ? (size_t)(end - p) : strlen(p);
        while (len && *p == ' ') p++, len--;
        if (len == n && !strncasecmp(p, name, n)) return true;
        p = end ? end + 1 : NULL;
    }
    return false;
}

static int config_explain(int argc, char **argv) {
    bool json = false;
    const struct cli_option options[] = {{0, "json", NULL, "print JSON, a line a property", CLI_FLAG, &json}};
    const struct cli_command c = {"config explain",
                                  "[NAME...]",
                                  "Says what the client's properties mean: all, or those named.",
                                  NULL,
                                  0,
                                  CLI_OPERANDS_MAX,
                                  options,
                                  sizeof options / sizeof *options,
                                  "  kc config explain linger.ms acks\n  kc config explain --json\n"};
    struct cli_operands o;
    int rc = cli_parse(&c, argc, argv, &o);
    if (rc >= 0) return rc;
    kc_config_entry e;
    void (*show)(const kc_config_entry *) = json ? explain_json : explain;
    if (o.count == 0)
        for (size_t i = 0; kc_config_describe(i, &e) == KC_OK; i++) show(&e);
    rc = CLI_OK;
    for (int k = 0; k < o.count; k++) {
        bool found = false;
        struct kw_nearest near;
        kw_nearest_init(&near, o.v[k]);
        for (size_t i = 0; kc_config_describe(i, &e) == KC_OK && !found; i++) {
            kw_nearest_offer(&near, e.name);
            if ((found = named(&e, o.v[k]))) show(&e);
        }
        if (found) continue;
        fprintf(stderr, "kc: config explain: no property '%s'", o.v[k]);
        if (near.best) fprintf(stderr, "; did you mean '%s'?", near.best);
        fprintf(stderr, "\n");
        rc = CLI_FAILURE;
    }
    return rc;
}

int cmd_config(int argc, char **argv) {
    static const struct cli_sub subs[] = {
        {"describe", config_describe, "show a topic's or broker's configs"},
        {"alter", config_alter, "change them"},
        {"explain", config_explain, "what the client's properties mean"},
    };
    return cli_dispatch("kc config", subs, sizeof subs / sizeof *subs, argc, argv);
}
