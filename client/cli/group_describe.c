/* group_describe.c - kc group describe: members, what they have, committed offsets, how far behind they are, and what is wrong. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "group.h"

#define PROBLEM_MAX 512
#define PROBLEMS_SHOWN 40        /* as text; JSON has all */
#define LOG_LIMIT_US 5000000     /* a leader that is silent must not hide the rest */

struct view { /* one group */
    kc_group_info info;
    kc_err offsets_err;
    struct group_parts parts;
    char (*problems)[PROBLEM_MAX];
    size_t problem_count, problem_cap;
};
struct describe {
    struct cli_session s;
    const struct cli_command *c;
    bool json;
    kc_group_details *details;
    kc_group_offsets *offsets;
    kc_cluster_info *cluster;
    struct cli_topics topics;
    struct group_log log;
    struct cli_progress progress;
};

static bool is_stable(const struct view *v) {
    return !strcmp(v->info.state, "Stable");
}

/* ---- What is wrong ---- */

static void problem(struct view *v, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void problem(struct view *v, const char *fmt, ...) {
    if (v->problem_count == v->problem_cap) {
        size_t cap = v->problem_cap ? v->problem_cap * 2 : 16;
        void *grown = realloc(v->problems, cap * sizeof *v->problems);
        if (!grown) return;
        v->problems = grown;
        v->problem_cap = cap;
    }
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(v->problems[v->problem_count++], PROBLEM_MAX, fmt, ap);
    va_end(ap);
}

static void state_problems(const struct describe *d, size_t group, struct view *v) {
    kc_group_member m;
    if (v->offsets_err != KC_OK) problem(v, "its offsets cannot be read: %s (%s)", kc_err_text(v->offsets_err), kc_err_name(v->offsets_err));
    if (!strcmp(v->info.state, "PreparingRebalance"))
        problem(v, "it is rebalancing: waits for its members to join again, for each as long as its max.poll.interval.ms");
    if (!strcmp(v->info.state, "CompletingRebalance")) problem(v, "it is rebalancing: waits for the leading member to share the partitions out");
    for (size_t i = 0; kc_group_details_member(d->details, group, i, &m) == KC_OK; i++) {
        if (m.err != KC_OK) problem(v, "member %zu: what it says or was given does not follow the consumer protocol", i + 1);
        if (is_stable(v) && m.err == KC_OK && m.assigned_count == 0 && !strcmp(v->info.protocol_type, "consumer"))
            problem(v, "member %zu has no partition", i + 1);
    }
}

static void part_problems(struct view *v, const struct group_part *p) {
    const char *t = p->topic;
    int n = p->partition;
    if (p->log_err == KE_UNKNOWN_TOPIC_OR_PARTITION)
        problem(v, "%s %d: there is no such partition%s", t, n, p->committed >= 0 ? " any more: kc group delete-offsets forgets its offset" : "");
    else if (p->log_err != KC_OK)
        problem(v, "%s %d: its log's end is not known: %s (%s)", t, n, kc_err_text(p->log_err), kc_err_name(p->log_err));
    if (is_stable(v) && p->subscribed && !p->owner) problem(v, "%s %d: no member has it", t, n);
    if (p->other) problem(v, "%s %d: members %zu and %zu both have it", t, n, p->owner, p->other);
    if (p->committed >= 0 && p->start > p->committed)
        problem(v, "%s %d: committed %lld, but the log begins at %lld: what was between is gone", t, n, (long long)p->committed, (long long)p->start);
    if (p->end >= 0 && p->committed > p->end)
        problem(v, "%s %d: committed %lld, but the log ends at %lld", t, n, (long long)p->committed, (long long)p->end);
}

/* ---- What there is ---- */

static bool add_subscribed(const struct describe *d, struct view *v, const char *topic, const char *before) {
    if (before && !strcmp(before, topic)) return true;
    const struct cli_topic *t = cli_topics_find(&d->topics, topic);
    if (!t) {
        problem(v, "%s: members subscribe to it, and there is no such topic", topic);
        return true;
    }
    for (size_t i = 0; i < t->said.partition_count; i++) {
        struct group_part *p = group_parts_add(&v->parts, topic, (int32_t)i);
        if (!p) return false;
        p->subscribed = true;
    }
    return true;
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Of all members, each topic once. */
static bool add_subscriptions(const struct describe *d, size_t group, struct view *v) {
    kc_group_member m;
    size_t n = 0, at = 0;
    for (size_t i = 0; kc_group_details_member(d->details, group, i, &m) == KC_OK; i++) n += m.topic_count;
    const char **topics = calloc(n + 1, sizeof *topics);
    bool ok = topics != NULL;
    for (size_t i = 0; ok && kc_group_details_member(d->details, group, i, &m) == KC_OK; i++)
        for (size_t k = 0; k < m.topic_count; k++) topics[at++] = m.topics[k];
    if (ok) qsort(topics, n, sizeof *topics, by_text);
    for (size_t i = 0; ok && i < n; i++) ok = add_subscribed(d, v, topics[i], i > 0 ? topics[i - 1] : NULL);
    free(topics);
    return ok;
}

static bool add_assigned(const struct describe *d, size_t group, struct view *v) {
    kc_group_member m;
    for (size_t i = 0; kc_group_details_member(d->details, group, i, &m) == KC_OK; i++) {
        for (size_t k = 0; k < m.assigned_count; k++) {
            struct group_part *p = group_parts_add(&v->parts, m.assigned[k].topic, m.assigned[k].partition);
            if (!p) return false;
            p->owner = i + 1;
        }
    }
    return true;
}

static kc_err gather(const struct describe *d, size_t group, struct view *v) {
    kc_err err = kc_group_details_get(d->details, group, &v->info);
    if (err != KC_OK) return err;
    v->offsets_err = kc_group_offsets_err(d->offsets, group);
    state_problems(d, group, v);
    if (!group_parts_committed(&v->parts, d->offsets, group) || !add_assigned(d, group, v) || !add_subscriptions(d, group, v)) return KC_NO_MEMORY;
    group_parts_order(&v->parts);
    return KC_OK;
}

/* All groups' partitions are asked for at once: one silent leader costs its time once, not once a group. */
static kc_err look_at_logs(struct describe *d, struct view *views, size_t n, kc_error **error) {
    struct group_parts logs = {0};
    kc_err err = KC_OK;
    for (size_t g = 0; err == KC_OK && g < n; g++)
        for (size_t i = 0; err == KC_OK && i < views[g].parts.count; i++)
            if (!group_parts_add(&logs, views[g].parts.v[i].topic, views[g].parts.v[i].partition)) err = KC_NO_MEMORY;
    group_parts_order(&logs);
    cli_progress_say(&d->progress, "looking at the logs of %zu partitions", logs.count);
    if (err == KC_OK && logs.count > 0) err = group_log_ask(&d->s, &d->log, &d->topics, &logs, -1, LOG_LIMIT_US, error);
    cli_progress_end(&d->progress);
    for (size_t g = 0; err == KC_OK && g < n; g++)
        for (size_t i = 0; i < views[g].parts.count; i++) {
            struct group_part *p = &views[g].parts.v[i];
            const struct group_part *found = group_parts_find(&logs, p->topic, p->partition);
            p->start = found->start;
            p->end = found->end;
            p->log_err = found->log_err;
            part_problems(&views[g], p);
        }
    group_parts_free(&logs);
    return err;
}

/* ---- Printed ---- */

static int64_t lag_of(const struct group_part *p) { /* -1 unknown */
    if (p->committed < 0 || p->end < 0) return -1;
    return p->end > p->committed ? p->end - p->committed : 0;
}

static void add_number(struct cli_table *t, int64_t n) {
    if (n < 0)
        cli_table_add(t, "-");
    else
        cli_table_add(t, "%lld", (long long)n);
}

static void print_members(const struct describe *d, size_t group) {
    static const char *const heads[] = {"#", "host", "partitions", "member"};
    struct cli_table *table = cli_table_new(heads, sizeof heads / sizeof *heads);
    kc_group_member m;
    for (size_t i = 0; kc_group_details_member(d->details, group, i, &m) == KC_OK; i++) {
        bool named = !strncmp(m.id, m.client_id, strlen(m.client_id)); /* as a rule an id begins with its client's, or with the instance's */
        cli_table_add(table, "%zu", i + 1);
        cli_table_add(table, "%s", m.host);
        cli_table_add(table, "%zu", m.assigned_count);
        cli_table_add(table, "%s%s%s%s%s", m.id, named ? "" : ", client ", named ? "" : m.client_id, m.instance_id ? ", instance " : "",
                      m.instance_id ? m.instance_id : "");
    }
    cli_table_print(table);
}

static void print_parts(const struct view *v) {
    static const char *const heads[] = {"topic", "partition", "committed", "end", "lag", "member"};
    struct cli_table *table = cli_table_new(heads, sizeof heads / sizeof *heads);
    for (size_t i = 0; i < v->parts.count; i++) {
        const struct group_part *p = &v->parts.v[i];
        cli_table_add(table, "%s", p->topic);
        cli_table_add(table, "%d", (int)p->partition);
        add_number(table, p->committed);
        add_number(table, p->end);
        add_number(table, lag_of(p));
        cli_table_add(table, p->owner ? "%zu" : "-", p->owner);
    }
    cli_table_print(table);
}

static void print_text(const struct describe *d, size_t group, const struct view *v) {
    const kc_group_info *g = &v->info;
    printf("group %s: %s%s%s, %zu member%s", g->group, g->err == KC_OK ? g->state : "not described", *g->protocol ? ", " : "", g->protocol, g->member_count,
           g->member_count == 1 ? "" : "s");
    if (g->coordinator >= 0) printf(", coordinator broker %d", (int)g->coordinator);
    putchar('\n');
    if (g->err != KC_OK) printf("  %s (%s)\n", g->message, kc_err_name(g->err));
    if (g->member_count > 0) print_members(d, group);
    if (v->parts.count > 0)
        print_parts(v);
    else if (v->offsets_err == KC_OK)
        puts("no offsets are committed");
    for (size_t i = 0; i < v->problem_count && i < PROBLEMS_SHOWN; i++) puts(v->problems[i]);
    if (v->problem_count > PROBLEMS_SHOWN) printf("… and %zu more: --json has all\n", v->problem_count - PROBLEMS_SHOWN);
}

static void json_member(const kc_group_member *m) {
    group_json('{', "id", m->id);
    group_json(',', "instance", m->instance_id);
    group_json(',', "client", m->client_id);
    group_json(',', "host", m->host);
    printf(",\"topics\":[");
    for (size_t i = 0; i < m->topic_count; i++) {
        if (i > 0) putchar(',');
        cli_json_text(stdout, m->topics[i], strlen(m->topics[i]));
    }
    printf("],\"assigned\":[");
    for (size_t i = 0; i < m->assigned_count; i++) {
        if (i > 0) putchar(',');
        cli_json_part(m->assigned[i].topic, m->assigned[i].partition);
        putchar('}');
    }
    printf("]}");
}

static void json_part(const struct describe *d, size_t group, const struct group_part *p) {
    kc_group_member m;
    cli_json_part(p->topic, p->partition);
    printf(",\"committed\":%lld,\"leader_epoch\":%d", (long long)p->committed, (int)p->epoch);
    group_json(',', "metadata", p->metadata);
    printf(",\"log_start\":%lld,\"log_end\":%lld,\"lag\":%lld", (long long)p->start, (long long)p->end, (long long)lag_of(p));
    bool owned = p->owner > 0 && kc_group_details_member(d->details, group, p->owner - 1, &m) == KC_OK;
    group_json(',', "member", owned ? m.id : NULL);
    if (p->log_err != KC_OK) printf(",\"error\":\"%s\"", kc_err_name(p->log_err));
    putchar('}');
}

static void print_json(const struct describe *d, size_t group, const struct view *v) {
    const kc_group_info *g = &v->info;
    kc_group_member m;
    int64_t lag = 0;
    group_json('{', "group", g->group);
    group_json(',', "state", g->state);
    group_json(',', "protocol_type", g->protocol_type);
    group_json(',', "protocol", g->protocol);
    printf(",\"coordinator\":%d,\"members\":[", (int)g->coordinator);
    for (size_t i = 0; kc_group_details_member(d->details, group, i, &m) == KC_OK; i++) {
        if (i > 0) putchar(',');
        json_member(&m);
    }
    printf("],\"partitions\":[");
    for (size_t i = 0; i < v->parts.count; i++) {
        if (i > 0) putchar(',');
        json_part(d, group, &v->parts.v[i]);
        if (lag_of(&v->parts.v[i]) > 0) lag += lag_of(&v->parts.v[i]);
    }
    printf("],\"lag\":%lld,\"problems\":[", (long long)lag);
    for (size_t i = 0; i < v->problem_count; i++) {
        if (i > 0) putchar(',');
        cli_json_text(stdout, v->problems[i], strlen(v->problems[i]));
    }
    putchar(']');
    group_json_error(g->err, g->message);
    puts("}");
}

/* A group that is not of the classic protocol has offsets all the same. */
static int print_one(const struct describe *d, size_t group, const struct view *v) {
    if (v->info.err != KC_OK && v->parts.count == 0) {
        fprintf(stderr, "kc: %s: %s: %s (%s)\n", d->c->name, v->info.group, v->info.message, kc_err_name(v->info.err));
        if (v->info.err == KE_GROUP_ID_NOT_FOUND) fprintf(stderr, "  kc group list shows which groups there are\n");
    } else if (d->json) {
        print_json(d, group, v);
    } else {
        if (group > 0) putchar('\n');
        print_text(d, group, v);
    }
    return v->info.err == KC_OK ? CLI_OK : CLI_FAILURE;
}

static int describe_all(struct describe *d, size_t n) {
    kc_error *error = NULL;
    struct view *views = calloc(n + 1, sizeof *views);
    kc_err err = views ? KC_OK : KC_NO_MEMORY;
    int rc = CLI_OK;
    for (size_t i = 0; err == KC_OK && i < n; i++) err = gather(d, i, &views[i]);
    if (err == KC_OK) err = look_at_logs(d, views, n, &error);
    if (err != KC_OK) rc = cli_fail(d->c->name, err, error);
    for (size_t i = 0; err == KC_OK && i < n; i++)
        if (print_one(d, i, &views[i]) != CLI_OK) rc = CLI_FAILURE;
    for (size_t i = 0; views && i < n; i++) {
        group_parts_free(&views[i].parts);
        free(views[i].problems);
    }
    free(views);
    return rc;
}

static int run(struct describe *d, const char *const *groups, size_t n) {
    kc_error *error = NULL;
    cli_progress_start(&d->progress, "", 0);
    cli_progress_say(&d->progress, "looking for the coordinators of %zu groups", n);
    kc_err err = group_describe_all(&d->s, groups, n, &d->details, &error);
    if (err == KC_OK) err = group_offsets_all(&d->s, groups, n, &d->offsets, &error);
    if (err == KC_OK) err = cli_describe(&d->s, NULL, &d->cluster, &error);
    if (err == KC_OK && !cli_topics_make(&d->topics, d->cluster)) err = KC_NO_MEMORY;
    cli_progress_end(&d->progress);
    if (err != KC_OK) return cli_fail(d->c->name, err, error);
    return describe_all(d, n);
}

int group_describe(int argc, char **argv) {
    struct describe d = {0};
    const struct cli_option options[] = {CLI_SESSION_OPTIONS(&d.s), {0, "json", NULL, "print JSON, a line a group", CLI_FLAG, &d.json}};
    const struct cli_command c = {"group describe",
                                  "GROUP...",
                                  "Shows members, what they have, committed offsets, lag, and what is wrong.",
                                  "end: where the log ends, as consumers see it. lag: records from the committed offset to there. What is not known is '-'.",
                                  1,
                                  CLI_OPERANDS_MAX,
                                  options,
                                  sizeof options / sizeof *options,
                                  "  kc group describe billing\n"
                                  "  kc group describe billing --json\n"};
    struct cli_operands groups;
    int rc = cli_parse(&c, argc, argv, &groups);
    if (rc >= 0 || (rc = cli_session_open(&d.s)) != CLI_OK) return rc;
    d.c = &c;
    rc = run(&d, groups.v, (size_t)groups.count);
    group_log_close(&d.log);
    cli_topics_free(&d.topics);
    kc_cluster_info_free(d.cluster);
    kc_group_offsets_free(d.offsets);
    kc_group_details_free(d.details);
    cli_session_close(&d.s);
    return rc;
}
