/* group.c - kc group list, delete, delete-offsets. */
#include "group.h"

#include <stdlib.h>
#include <string.h>

/* ---- List ---- */

#define NAMES_MAX 16

/* "Stable,Empty" as names; false: too many, or an empty one. */
static bool split(char *text, const char **v, size_t *n) {
    char *rest = NULL;
    *n = 0;
    for (char *word = text ? strtok_r(text, ",", &rest) : NULL; word; word = strtok_r(NULL, ",", &rest)) {
        if (*n == NAMES_MAX) return false;
        v[(*n)++] = word;
    }
    return !text || *n > 0;
}

static void print_listing(const kc_group_listing *g, struct cli_table *table, bool json) {
    if (json) {
        group_json('{', "group", g->group);
        group_json(',', "state", g->state);
        group_json(',', "type", g->type);
        group_json(',', "protocol_type", g->protocol_type);
        printf(",\"coordinator\":%d}\n", (int)g->coordinator);
    } else if (table) {
        cli_table_add(table, "%s", *g->state ? g->state : "-");
        cli_table_add(table, "%s", *g->type ? g->type : "-");
        cli_table_add(table, "%s", *g->protocol_type ? g->protocol_type : "-");
        cli_table_add(table, "%d", (int)g->coordinator);
        cli_table_add(table, "%s", g->group);
    } else {
        puts(g->group);
    }
}

static int print_list(const kc_group_list *l, bool longer, bool json) {
    static const char *const heads[] = {"state", "type", "protocol", "coordinator", "group"};
    struct cli_table *table = longer && !json ? cli_table_new(heads, sizeof heads / sizeof *heads) : NULL;
    kc_group_listing g;
    kc_group_list_failure f;
    int rc = CLI_OK;
    for (size_t i = 0; kc_group_list_get(l, i, &g) == KC_OK; i++) print_listing(&g, table, json);
    cli_table_print(table);
    fflush(stdout);
    for (size_t i = 0; kc_group_list_failed(l, i, &f) == KC_OK; i++) {
        fprintf(stderr, "kc: group list: broker %d did not tell its groups: %s (%s)\n", (int)f.broker, kc_err_text(f.err), kc_err_name(f.err));
        rc = CLI_FAILURE;
    }
    if (rc != CLI_OK) fprintf(stderr, "  the list is not complete; kc cluster shows which brokers are up\n");
    return rc;
}

static int list_with(struct cli_session *s, const char *const *states, size_t state_count, const char *const *types, size_t type_count, bool longer,
                     bool json) {
    kc_error *error = NULL;
    kc_op *op = NULL;
    kc_err err = kc_admin_list_groups_start(s->client, states, state_count, types, type_count, 0, 0, &op, &error);
    if (err == KC_OK) err = cli_wait(s, op, &error);
    kc_group_list *l = kc_op_result_groups(op);
    int rc = err == KC_OK ? print_list(l, longer, json) : cli_fail("group list", err, error);
    kc_group_list_free(l);
    kc_op_free(op);
    return rc;
}

static int group_list(int argc, char **argv) {
    struct cli_session s = {0};
    const char *state = NULL, *type = NULL, *states[NAMES_MAX], *types[NAMES_MAX];
    bool longer = false, json = false;
    const struct cli_option options[] = {
        CLI_SESSION_OPTIONS(&s),
        {'l', "long", NULL, "state, type, protocol and coordinator of each", CLI_FLAG, &longer},
        {0, "state", "STATE,...", "only those in one of these: Stable, Empty, PreparingRebalance, CompletingRebalance", CLI_TEXT, &state},
        {0, "type", "TYPE,...", "only those of these types: classic, consumer", CLI_TEXT, &type},
        {0, "json", NULL, "print JSON, a line a group", CLI_FLAG, &json},
    };
    const struct cli_command c = {"group list", "", "Lists the groups of all brokers, a name a line.", NULL, 0, 0, options, sizeof options / sizeof *options,
                                  "  kc group list --long\n"
                                  "  kc group list --state Empty\n"};
    struct cli_operands none;
    int rc = cli_parse(&c, argc, argv, &none);
    if (rc >= 0) return rc;
    size_t state_count = 0, type_count = 0;
    char *state_text = state ? strdup(state) : NULL, *type_text = type ? strdup(type) : NULL;
    if ((state && !state_text) || (type && !type_text))
        rc = cli_fail(c.name, KC_NO_MEMORY, NULL);
    else if (!split(state_text, states, &state_count) || !split(type_text, types, &type_count))
        rc = cli_usage_error(&c, "--state and --type take names with commas between them, at most %d", NAMES_MAX);
    else if ((rc = cli_session_open(&s)) == CLI_OK)
        rc = list_with(&s, states, state_count, types, type_count, longer, json);
    free(state_text);
    free(type_text);
    cli_session_close(&s);
    return rc;
}

/* ---- Delete ---- */

static void tell_delete(const kc_admin_result *r, bool json) {
    if (json) {
        group_json('{', "group", r->name);
        printf(",\"deleted\":%s", r->err == KC_OK ? "true" : "false");
        group_json_error(r->err, r->message);
        puts("}");
    } else if (r->err == KC_OK) {
        printf("deleted group %s\n", r->name);
    }
    if (r->err == KC_OK) return;
    fflush(stdout);
    fprintf(stderr, "kc: group delete: %s: %s (%s)\n", r->name, r->message, kc_err_name(r->err));
    if (r->err == KE_NON_EMPTY_GROUP) fprintf(stderr, "  kc group describe %s shows them\n", r->name);
}

static int group_delete(int argc, char **argv) {
    struct cli_session s = {0};
    bool json = false;
    const struct cli_option options[] = {CLI_SESSION_OPTIONS(&s), {0, "json", NULL, "print JSON, a line a group", CLI_FLAG, &json}};
    const struct cli_command c = {
        "group delete", "GROUP...", "Deletes groups without members, and their committed offsets.", NULL, 1, CLI_OPERANDS_MAX, options,
        sizeof options / sizeof *options, "  kc group delete billing\n"};
    struct cli_operands names;
    int rc = cli_parse(&c, argc, argv, &names);
    if (rc >= 0 || (rc = cli_session_open(&s)) != CLI_OK) return rc;
    kc_admin_item items[CLI_OPERANDS_MAX] = {{0}};
    for (int i = 0; i < names.count; i++) items[i].name = names.v[i];
    kc_error *error = NULL;
    kc_op *op = NULL;
    kc_admin_result *results = NULL;
    size_t count = 0;
    kc_err err = kc_admin_delete_groups_start(s.client, items, sizeof *items, (size_t)names.count, 0, 0, &op, &error);
    rc = cli_wait_results(&s, c.name, err, op, error, &results, &count);
    for (size_t i = 0; i < count; i++) {
        tell_delete(&results[i], json);
        if (results[i].err != KC_OK) rc = CLI_FAILURE;
    }
    free(results);
    kc_op_free(op);
    cli_session_close(&s);
    return rc;
}

/* ---- Delete offsets ---- */

struct forget {
    struct cli_session s;
    const struct cli_command *c;
    const char *group;
    bool all, json;
    struct group_words words;
    kc_group_offsets *offsets;
    struct group_parts parts; /* those with a committed offset */
    bool *wanted;             /* of parts */
};

static bool word_names(const char *word, const struct group_part *p) {
    const char *colon = strchr(word, ':');
    size_t n = colon ? (size_t)(colon - word) : strlen(word);
    return strlen(p->topic) == n && !memcmp(p->topic, word, n) && (!colon || strtol(colon + 1, NULL, 10) == p->partition);
}

/* Words name what the group has committed, if only for a topic that is gone. */
static int choose(struct forget *f, size_t *count) {
    kc_error *error = NULL;
    kc_err err = group_offsets_all(&f->s, &f->group, 1, &f->offsets, &error);
    if (err == KC_OK) err = kc_group_offsets_err(f->offsets, 0);
    if (err == KC_OK && !group_parts_committed(&f->parts, f->offsets, 0)) err = KC_NO_MEMORY;
    if (err == KC_OK && !(f->wanted = calloc(f->parts.count + 1, sizeof *f->wanted))) err = KC_NO_MEMORY;
    if (err != KC_OK) return cli_fail(f->c->name, err, error);
    int rc = CLI_OK;
    for (size_t i = 0; f->all && i < f->parts.count; i++) f->wanted[i] = true;
    for (int w = 0; w < f->words.count; w++) {
        bool any = false;
        for (size_t i = 0; i < f->parts.count; i++) {
            if (!word_names(f->words.v[w], &f->parts.v[i])) continue;
            any = f->wanted[i] = true;
        }
        if (any) continue;
        fprintf(stderr, "kc: %s: group %s has no committed offset of %s\n", f->c->name, f->group, f->words.v[w]);
        rc = CLI_FAILURE;
    }
    for (size_t i = 0; i < f->parts.count; i++) *count += f->wanted[i];
    if (*count == 0 && rc == CLI_OK) {
        fprintf(stderr, "kc: %s: group %s has no committed offsets\n", f->c->name, f->group);
        rc = CLI_FAILURE;
    }
    if (rc != CLI_OK) fprintf(stderr, "  nothing was deleted; kc group describe %s shows what there is\n", f->group);
    return rc;
}

static void tell_forgotten(const struct forget *f, const kc_admin_result *r) {
    if (f->json) {
        cli_json_part(r->name, r->partition);
        printf(",\"deleted\":%s", r->err == KC_OK ? "true" : "false");
        if (r->err != KC_OK) printf(",\"error\":\"%s\"", kc_err_name(r->err));
        puts("}");
    } else if (r->err == KC_OK) {
        printf("deleted the offset of %s %d\n", r->name, (int)r->partition);
    }
    if (r->err == KC_OK) return;
    fflush(stdout);
    fprintf(stderr, "kc: %s: %s %d: %s (%s)\n", f->c->name, r->name, (int)r->partition, r->message, kc_err_name(r->err));
}

static int forget(struct forget *f) {
    size_t n = 0, count = 0;
    int rc = choose(f, &n);
    if (rc != CLI_OK) return rc;
    kc_group_offset_item *items = calloc(n, sizeof *items);
    if (!items) return cli_fail(f->c->name, KC_NO_MEMORY, NULL);
    for (size_t i = 0, to = 0; i < f->parts.count; i++)
        if (f->wanted[i]) items[to++] = (kc_group_offset_item){.topic = f->parts.v[i].topic, .partition = f->parts.v[i].partition};
    kc_error *error = NULL;
    kc_op *op = NULL;
    kc_admin_result *results = NULL;
    bool subscribed = false;
    kc_err err = kc_admin_delete_group_offsets_start(f->s.client, f->group, items, sizeof *items, n, 0, 0, &op, &error);
    free(items);
    rc = cli_wait_results(&f->s, f->c->name, err, op, error, &results, &count);
    for (size_t i = 0; i < count; i++) {
        tell_forgotten(f, &results[i]);
        if (results[i].err != KC_OK) rc = CLI_FAILURE;
        subscribed = subscribed || results[i].err == KE_GROUP_SUBSCRIBED_TO_TOPIC;
    }
    if (subscribed) fprintf(stderr, "  kc group describe %s shows them\n", f->group);
    free(results);
    kc_op_free(op);
    return rc;
}

int group_delete_offsets(int argc, char **argv) {
    struct forget f = {0};
    const struct cli_option options[] = {
        CLI_SESSION_OPTIONS(&f.s),
        {0, "all-topics", NULL, "all that the group has committed", CLI_FLAG, &f.all},
        {0, "json", NULL, "print JSON, a line a partition", CLI_FLAG, &f.json},
    };
    const struct cli_command c = {"group delete-offsets",
                                  "GROUP TOPIC[:PARTITION,...]...",
                                  "Forgets committed offsets of topics that no member of the group reads.",
                                  NULL,
                                  1,
                                  CLI_OPERANDS_MAX,
                                  options,
                                  sizeof options / sizeof *options,
                                  "  kc group delete-offsets billing orders\n"
                                  "  kc group delete-offsets billing orders:0,3\n"};
    struct cli_operands o;
    int rc = cli_parse(&c, argc, argv, &o);
    if (rc >= 0) return rc;
    f.c = &c;
    f.group = o.v[0];
    if (f.all == (o.count > 1))
        return cli_usage_error(&c, f.all ? "--all-topics goes without topics" : "say which: TOPIC, TOPIC:PARTITION,... or --all-topics");
    rc = group_words_make(&c, o.v + 1, o.count - 1, &f.words);
    if (rc < 0 && (rc = cli_session_open(&f.s)) == CLI_OK) rc = forget(&f);
    group_words_free(&f.words);
    group_parts_free(&f.parts);
    free(f.wanted);
    kc_group_offsets_free(f.offsets);
    cli_session_close(&f.s);
    return rc;
}

int cmd_group(int argc, char **argv) {
    static const struct cli_sub subs[] = {
        {"list", group_list, "list groups"},
        {"describe", group_describe, "show members, offsets, lag, what is wrong"},
        {"reset", group_reset, "move a group's offsets; shows first what it would do"},
        {"delete", group_delete, "delete groups without members"},
        {"delete-offsets", group_delete_offsets, "forget offsets of topics that are not read any more"},
    };
    return cli_dispatch("kc group", subs, sizeof subs / sizeof *subs, argc, argv);
}
