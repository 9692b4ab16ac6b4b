/* consume_group.c - kc consume -G: as a member of a group. Records are printed as they come, and committed once they are written. */
#include <stdlib.h>
#include <string.h>

#include "consume.h"

#define CLOSE_US 5000000 /* for the last commit, and to leave */
#define PARTS_SHOWN 8    /* of a topic, in a line on a rebalance */

struct part { /* that this member has */
    int32_t topic, partition;
    bool ended;
};
struct member {
    struct cli_session *s;
    const struct consume_options *o;
    kc_consumer *consumer;
    struct consume_printer printer;
    struct consume_why why;
    struct cli_progress progress;
    struct part *parts;
    size_t count, cap, ended;
    bool over; /* the count is reached, or all are at their end */
};

/* ---- What this member has ---- */

static struct part *find(const struct member *k, int32_t topic, int32_t partition) {
    for (size_t i = 0; i < k->count; i++)
        if (k->parts[i].topic == topic && k->parts[i].partition == partition) return &k->parts[i];
    return NULL;
}

static void look_at_ends(struct member *k) {
    if (k->o->exit_at_end && k->count > 0 && k->ended == k->count) k->over = true;
}

static void set_ended(struct member *k, int32_t topic, int32_t partition, bool ended) {
    struct part *p = k->o->exit_at_end ? find(k, topic, partition) : NULL;
    if (!p || p->ended == ended) return;
    p->ended = ended;
    k->ended = ended ? k->ended + 1 : k->ended - 1;
    look_at_ends(k);
}

static bool add(struct member *k, const kc_topic_partition *tp) {
    if (k->count == k->cap) {
        size_t cap = k->cap ? k->cap * 2 : 16;
        struct part *grown = realloc(k->parts, cap * sizeof *grown);
        if (!grown) return false;
        k->parts = grown;
        k->cap = cap;
    }
    k->parts[k->count++] = (struct part){.topic = tp->topic, .partition = tp->partition};
    return true;
}

static void drop(struct member *k, const kc_topic_partition *tp) {
    struct part *p = find(k, tp->topic, tp->partition);
    if (!p) return;
    k->ended -= p->ended;
    *p = k->parts[--k->count];
}

static int by_place(const void *a, const void *b) {
    const kc_topic_partition *x = a, *y = b;
    if (x->topic != y->topic) return x->topic < y->topic ? -1 : 1;
    return x->partition < y->partition ? -1 : x->partition > y->partition;
}

/* "orders 0-2 5, payments 1" */
static void tell_parts(const struct member *k, const kc_topic_partition *v, size_t n) {
    for (size_t i = 0, shown = 0; i < n; i++) {
        bool new_topic = i == 0 || v[i].topic != v[i - 1].topic;
        size_t to = i;
        while (to + 1 < n && v[to + 1].topic == v[i].topic && v[to + 1].partition == v[to].partition + 1) to++;
        if (new_topic) {
            const char *name = kc_client_topic_name(k->s->client, v[i].topic);
            fprintf(stderr, "%s%s", i > 0 ? ", " : " ", name ? name : "?");
            shown = 0;
        }
        if (shown++ < PARTS_SHOWN) fprintf(stderr, to > i ? " %d-%d" : " %d", (int)v[i].partition, (int)v[to].partition);
        if (shown == PARTS_SHOWN + 1) fputs(" …", stderr);
        i = to;
    }
    fputc('\n', stderr);
}

static bool rebalanced(struct member *k, const kc_event *e, const char *verb, bool gained) {
    size_t n = kc_event_partitions(e, NULL, sizeof(kc_topic_partition), 0);
    kc_topic_partition *v = calloc(n + 1, sizeof *v);
    bool ok = v != NULL;
    if (ok) n = kc_event_partitions(e, v, sizeof *v, n);
    for (size_t i = 0; ok && i < n; i++) {
        if (gained)
            ok = add(k, &v[i]);
        else
            drop(k, &v[i]);
    }
    look_at_ends(k); /* what is left may be at its end, all of it */
    if (ok && !k->o->quiet) {
        fflush(stdout);
        cli_progress_end(&k->progress);
        qsort(v, n, sizeof *v, by_place);
        fprintf(stderr, "kc: consume: group %s: %s", k->o->group, verb);
        if (n == 0)
            fputs(" no partitions\n", stderr);
        else
            tell_parts(k, v, n);
    }
    free(v);
    return ok;
}

/* ---- Records ---- */

/* What is written counts as processed, and so is committed: not before, and not what standard output did not take. */
static bool print_records(struct member *k, const kc_event *e) {
    const char *topic = kc_client_topic_name(k->s->client, kc_event_topic(e));
    kc_topic_partition at = {.topic = kc_event_topic(e), .partition = kc_event_partition(e), .offset = -1, .leader_epoch = -1};
    size_t i = 0;
    set_ended(k, at.topic, at.partition, false);
    for (; i < kc_event_count(e) && !k->over; i++) {
        kc_message m;
        if (kc_event_message(e, i, &m) != KC_OK) continue;
        if (!consume_print(&k->printer, e, i, &m, topic ? topic : "")) return false;
        if (!cli_output_ok()) return true;
        at.offset = m.offset + 1;
        at.leader_epoch = m.leader_epoch;
        k->over = k->o->count > 0 && k->printer.records >= (uint64_t)k->o->count;
    }
    if (i == kc_event_count(e)) at.offset = kc_event_offset(e); /* what is behind the last one and is no record, too */
    if (fflush(stdout) != 0 || !cli_output_ok() || at.offset < 0) return true;
    (void)kc_consumer_processed(k->consumer, &at, sizeof at, 1); /* KC_NOT_ASSIGNED: a rebalance came between, its event tells */
    return true;
}

static int take(struct member *k, const kc_event *e) {
    bool ok = true;
    switch (kc_event_kind(e)) {
    case KC_EVENT_RECORDS:
        ok = print_records(k, e);
        break;
    case KC_EVENT_PARTITION_END:
        set_ended(k, kc_event_topic(e), kc_event_partition(e), true);
        break;
    case KC_EVENT_ASSIGNED:
        ok = rebalanced(k, e, "assigned", true);
        break;
    case KC_EVENT_REVOKED:
        ok = rebalanced(k, e, "gives up", false);
        break;
    case KC_EVENT_LOST:
        ok = rebalanced(k, e, "has lost", false);
        break;
    case KC_EVENT_ERROR:
        cli_progress_end(&k->progress);
        if (!consume_tell_error(k->s, e)) return CLI_FAILURE;
        break;
    default:
        break;
    }
    return ok ? CLI_OK : cli_fail("consume", KC_NO_MEMORY, NULL);
}

static int run(struct member *k) {
    int rc = CLI_OK;
    while (rc == CLI_OK && !cli_interrupted && !k->over) {
        kc_event *e = NULL;
        kc_err err = kc_consumer_poll(k->consumer, &e, 200000);
        cli_session_logs(k->s);
        if (err == KC_OK)
            rc = take(k, e);
        else if (err != KC_TIMED_OUT && err != KC_WOKEN)
            rc = cli_fail("consume", err, NULL);
        bool came = err == KC_OK && kc_event_kind(e) == KC_EVENT_RECORDS;
        kc_event_free(e);
        if (!cli_output_ok()) return CLI_FAILURE;
        cli_progress_show(&k->progress, k->printer.records, k->printer.bytes);
        consume_why_tick(&k->why, k->s, k->consumer, came);
    }
    return rc;
}

/* ---- Begin and end ---- */

static kc_err open_consumer(struct member *k, kc_error **error) {
    kc_config *config = kc_config_new();
    kc_err err = config ? kc_config_set(config, "group.id", k->o->group, error) : KC_NO_MEMORY;
    if (err == KC_OK) err = kc_config_set(config, "enable.partition.eof", "true", error);
    if (err == KC_OK && k->o->offset) err = kc_config_set(config, "auto.offset.reset", !strcmp(k->o->offset, "end") ? "latest" : "earliest", error);
    if (err == KC_OK) err = kc_consumer_new(k->s->client, config, KC_PROCESSED_EXPLICIT, &k->consumer, error);
    kc_config_free(config);
    return err;
}

static void wake(void *ctx) {
    kc_consumer_wake(ctx);
}

/* The last commit, and the group is left. What is not committed is printed again by who comes next. */
static int leave(struct member *k, int rc) {
    kc_error *error = NULL;
    if (!k->consumer) return rc;
    kc_err err = kc_consumer_close(k->consumer, CLOSE_US, &error);
    kc_consumer_free(k->consumer);
    if (err == KC_OK) return rc;
    fprintf(stderr, "kc: consume: group %s was not left in good order, what was printed last may come again: %s (%s)\n", k->o->group,
            error ? kc_error_message(error) : kc_err_text(err), kc_err_name(err));
    cli_attempts(error);
    kc_error_free(error);
    return CLI_FAILURE;
}

static int member(struct member *k, const char *const *topics, size_t n) {
    kc_error *error = NULL;
    kc_err err = open_consumer(k, &error);
    if (err == KC_OK) {
        cli_catch_signals(wake, k->consumer);
        err = *topics[0] == '^' ? kc_consumer_subscribe_regex(k->consumer, topics, n, &error) : kc_consumer_subscribe(k->consumer, topics, n, &error);
    }
    if (err != KC_OK) {
        cli_fail("consume", err, error);
        return leave(k, err == KC_CONFIG || err == KC_INVALID ? CLI_USAGE : CLI_FAILURE);
    }
    consume_why_start(&k->why, k->consumer);
    cli_progress_start(&k->progress, "consumed", k->o->count > 0 ? (uint64_t)k->o->count : 0);
    int rc = run(k);
    cli_progress_end(&k->progress);
    consume_why_end();
    cli_catch_signals(NULL, NULL); /* the wake must not touch what is being freed; a second signal ends at once */
    rc = leave(k, rc);
    if (!k->o->quiet && rc == CLI_OK && k->progress.on) fprintf(stderr, "%llu records\n", (unsigned long long)k->printer.records);
    return rc;
}

int consume_in_group(struct cli_session *s, const struct cli_command *c, const struct consume_options *o, const struct cli_operands *words) {
    const char *topics[CLI_OPERANDS_MAX + 1];
    size_t n = 0, patterns = 0;
    if (o->topic) topics[n++] = o->topic;
    for (int i = 0; i < words->count; i++) topics[n++] = words->v[i];
    for (size_t i = 0; i < n; i++) patterns += *topics[i] == '^';
    if (n == 0) return cli_usage_error(c, "-G needs topics: -t TOPIC, or TOPIC... behind it");
    if (patterns > 0 && patterns < n) return cli_usage_error(c, "either names of topics or patterns (^...), not both");
    if (o->partition >= 0) return cli_usage_error(c, "-p does not go with -G: the group shares the partitions out");
    if (o->to) return cli_usage_error(c, "--to does not go with -G");
    if (o->offset && strcmp(o->offset, "beginning") != 0 && strcmp(o->offset, "end") != 0)
        return cli_usage_error(c, "with -G, -o says where partitions without a committed offset begin: beginning or end; kc group reset moves the others");
    struct member k = {.s = s, .o = o, .why = {.on = o->why}};
    int rc = consume_printer_make(&k.printer, c, o);
    if (rc >= 0) return rc;
    rc = cli_session_open(s);
    if (rc == CLI_OK) rc = member(&k, topics, n);
    if (fflush(stdout) != 0) rc = CLI_FAILURE;
    (void)cli_output_ok();
    consume_printer_free(&k.printer);
    free(k.parts);
    cli_session_close(s);
    return rc;
}
