/* consume.c - kc consume: assigned partitions from an offset or a time, printed by a format, to an end, a count, or for ever. As a member of a group:
 * consume_group.c.
 */
#include "consume.h"

#include <stdlib.h>
#include <string.h>

struct part {
    int64_t next, stop; /* stop -1: none; done when next >= stop */
    bool done;
};
struct consume {
    struct cli_session s;
    struct consume_options o;
    int32_t topic_id;
    kc_consumer *consumer;
    struct consume_printer printer;
    struct consume_why why;
    struct part *parts;
    int32_t partition_count, left; /* left: partitions not done */
    struct cli_progress progress;
};

/* The partition count of the topic, or < 0 with the error printed. */
static int32_t partitions_of(struct consume *k) {
    kc_cluster_info *info = NULL;
    kc_error *error = NULL;
    kc_topic_info t;
    kc_err err = cli_describe_topic(&k->s, k->o.topic, &info, &t, &error);
    int32_t count = err == KC_OK ? (int32_t)t.partition_count : -1;
    if (err != KC_OK) cli_fail(k->o.topic, err, error);
    kc_cluster_info_free(info);
    return count;
}

static kc_err look_up(struct consume *k, kc_topic_partition *parts, size_t n, kc_error **error) {
    kc_op *op = NULL;
    kc_err err = kc_consumer_offsets_start(k->consumer, parts, sizeof *parts, n, 0, &op, error);
    if (err == KC_OK) err = cli_wait(&k->s, op, error);
    if (err == KC_OK) (void)kc_op_result_offsets(op, parts, sizeof *parts, n);
    kc_op_free(op);
    return err;
}

/* Resolves "beginning", "end", OFFSET, -N (N before the end), @MS into offsets. end_rule: @MS past the last record means the end. */
static int resolve(struct consume *k, const struct cli_command *c, const char *word, kc_topic_partition *parts, size_t n, bool end_rule) {
    int64_t number = 0;
    kc_error *error = NULL;
    if (!strcmp(word, "beginning") || !strcmp(word, "end")) {
        for (size_t i = 0; i < n; i++) parts[i].offset = *word == 'b' ? KC_OFFSET_BEGINNING : KC_OFFSET_END;
        if (!end_rule) return -1;
    } else if (*word == '@' && cli_number(word + 1, 0, INT64_MAX, &number)) {
        for (size_t i = 0; i < n; i++) parts[i].offset = number;
    } else if (cli_number(word, INT64_MIN + 1, INT64_MAX, &number)) {
        for (size_t i = 0; i < n; i++) parts[i].offset = number >= 0 ? number : KC_OFFSET_END;
        if (number >= 0) return -1;
    } else {
        return cli_usage_error(c, "'%s' is no offset: beginning, end, OFFSET, -N (before the end), or @MILLISECONDS", word);
    }
    kc_err err = look_up(k, parts, n, &error);
    if (err != KC_OK) return cli_fail("offset lookup", err, error);
    for (size_t i = 0; i < n; i++) {
        if (parts[i].offset < 0)
            parts[i].offset = KC_OFFSET_END;
        else if (number < 0)
            parts[i].offset = parts[i].offset + number > 0 ? parts[i].offset + number : KC_OFFSET_BEGINNING;
    }
    if (!end_rule) return -1;
    bool any_end = false;
    for (size_t i = 0; i < n; i++) any_end |= parts[i].offset == KC_OFFSET_END;
    if (any_end) {
        kc_topic_partition *ends = calloc(n, sizeof *ends);
        if (!ends) return cli_fail("offset lookup", KC_NO_MEMORY, NULL);
        memcpy(ends, parts, n * sizeof *ends);
        for (size_t i = 0; i < n; i++) ends[i].offset = KC_OFFSET_END;
        err = look_up(k, ends, n, &error);
        for (size_t i = 0; err == KC_OK && i < n; i++)
            if (parts[i].offset == KC_OFFSET_END) parts[i].offset = ends[i].offset;
        free(ends);
        if (err != KC_OK) return cli_fail("offset lookup", err, error);
    }
    return -1;
}

/* Assigns; -1 or the exit code. */
static int start(struct consume *k, const struct cli_command *c) {
    int32_t all = partitions_of(k);
    if (all < 0) return CLI_FAILURE;
    if (k->o.partition >= all)
        return cli_usage_error(c, "topic %s has partitions 0 to %d, not %lld", k->o.topic, (int)all - 1, (long long)k->o.partition);
    size_t n = k->o.partition >= 0 ? 1 : (size_t)all;
    k->partition_count = all;
    k->parts = calloc((size_t)all, sizeof *k->parts);
    kc_topic_partition *parts = calloc(n, sizeof *parts);
    if (!k->parts || !parts) {
        free(parts);
        return cli_fail("consume", KC_NO_MEMORY, NULL);
    }
    for (size_t i = 0; i < n; i++)
        parts[i] = (kc_topic_partition){
            .topic = k->topic_id, .partition = k->o.partition >= 0 ? (int32_t)k->o.partition : (int32_t)i, .leader_epoch = -1};
    int rc = -1;
    for (int32_t i = 0; i < all; i++) k->parts[i].stop = -1;
    if (k->o.to) {
        rc = resolve(k, c, k->o.to, parts, n, true);
        for (size_t i = 0; rc < 0 && i < n; i++) k->parts[parts[i].partition].stop = parts[i].offset;
    }
    if (rc < 0) rc = resolve(k, c, k->o.offset ? k->o.offset : "end", parts, n, false);
    kc_error *error = NULL;
    if (rc < 0) {
        kc_err err = kc_consumer_assign(k->consumer, parts, sizeof *parts, n, &error);
        if (err != KC_OK) rc = cli_fail("assign", err, error);
    }
    k->left = (int32_t)n;
    for (size_t i = 0; rc < 0 && i < n; i++) {
        struct part *p = &k->parts[parts[i].partition];
        if (p->stop >= 0 && (p->stop == 0 || (parts[i].offset >= 0 && parts[i].offset >= p->stop))) {
            p->done = true;
            k->left--;
        }
    }
    free(parts);
    return rc;
}

static void finish_partition(struct consume *k, int32_t partition) {
    struct part *p = &k->parts[partition];
    if (p->done) return;
    p->done = true;
    k->left--;
    kc_topic_partition tp = {.topic = k->topic_id, .partition = partition};
    (void)kc_consumer_pause(k->consumer, &tp, sizeof tp, 1);
}

/* False: out of memory. */
static bool print_records(struct consume *k, const kc_event *e) {
    struct part *p = &k->parts[kc_event_partition(e)];
    for (size_t i = 0; i < kc_event_count(e) && !p->done; i++) {
        kc_message m;
        if (kc_event_message(e, i, &m) != KC_OK) continue;
        if (p->stop >= 0 && m.offset >= p->stop) {
            finish_partition(k, m.partition);
            break;
        }
        if (!consume_print(&k->printer, e, i, &m, k->o.topic)) return false;
        if (!cli_output_ok()) break;
        if (p->stop >= 0 && m.offset + 1 >= p->stop) finish_partition(k, m.partition);
        if (k->o.count > 0 && k->printer.records >= (uint64_t)k->o.count) break;
    }
    return true;
}

static int run(struct consume *k) {
    int rc = CLI_OK;
    while (!cli_interrupted && k->left > 0 && (k->o.count <= 0 || k->printer.records < (uint64_t)k->o.count)) {
        kc_event *e = NULL;
        kc_err err = kc_consumer_poll(k->consumer, &e, 200000);
        cli_session_logs(&k->s);
        cli_progress_show(&k->progress, k->printer.records, k->printer.bytes);
        consume_why_tick(&k->why, &k->s, k->consumer, err == KC_OK && kc_event_kind(e) == KC_EVENT_RECORDS);
        if (err == KC_TIMED_OUT || err == KC_WOKEN) {
            fflush(stdout);
            continue;
        }
        if (err != KC_OK) return cli_fail("consume", err, NULL);
        switch (kc_event_kind(e)) {
        case KC_EVENT_RECORDS:
            if (print_records(k, e)) break;
            kc_event_free(e);
            return cli_fail("consume", KC_NO_MEMORY, NULL);
        case KC_EVENT_PARTITION_END:
            fflush(stdout);
            if (k->o.exit_at_end) finish_partition(k, kc_event_partition(e));
            break;
        case KC_EVENT_ERROR:
            if (consume_tell_error(&k->s, e)) break;
            rc = CLI_FAILURE;
            k->left = 0;
            break;
        default:
            break;
        }
        kc_event_free(e);
        if (!cli_output_ok()) return CLI_FAILURE;
    }
    return rc;
}

static void wake(void *ctx) {
    kc_consumer_wake(ctx);
}

static int open_consumer(struct consume *k) {
    k->topic_id = kc_client_topic(k->s.client, k->o.topic);
    if (k->topic_id == 0) {
        fprintf(stderr, "kc: consume: '%s' is no topic name: 1 to 249 of a-z A-Z 0-9 . _ -\n", k->o.topic);
        return CLI_USAGE;
    }
    kc_error *error = NULL;
    kc_config *config = kc_config_new();
    kc_err err = config ? kc_config_set(config, "enable.partition.eof", "true", &error) : KC_NO_MEMORY;
    if (err == KC_OK) err = kc_consumer_new(k->s.client, config, KC_PROCESSED_EXPLICIT, &k->consumer, &error);
    kc_config_free(config);
    return err == KC_OK ? CLI_OK : cli_fail("consumer", err, error);
}

static int consume(struct consume *k, const struct cli_command *c) {
    int rc = consume_printer_make(&k->printer, c, &k->o);
    if (rc >= 0) return rc;
    rc = cli_session_open(&k->s);
    if (rc == CLI_OK) rc = open_consumer(k);
    if (rc == CLI_OK) {
        cli_catch_signals(wake, k->consumer);
        rc = start(k, c);
        if (rc < 0) {
            consume_why_start(&k->why, k->consumer);
            cli_progress_start(&k->progress, "consumed", k->o.count > 0 ? (uint64_t)k->o.count : 0);
            rc = run(k);
            cli_progress_end(&k->progress);
            consume_why_end();
        }
    }
    cli_catch_signals(NULL, NULL);
    if (fflush(stdout) != 0) rc = CLI_FAILURE;
    (void)cli_output_ok();
    if (!k->o.quiet && rc == CLI_OK && k->progress.on) fprintf(stderr, "%llu records\n", (unsigned long long)k->printer.records);
    if (k->consumer) (void)kc_consumer_close(k->consumer, 2000000, NULL);
    kc_consumer_free(k->consumer);
    cli_session_close(&k->s);
    consume_printer_free(&k->printer);
    free(k->parts);
    return rc;
}

int cmd_consume(int argc, char **argv) {
    struct consume k = {.o = {.partition = -1}};
    struct consume_options *o = &k.o;
    const struct cli_option options[] = {
        CLI_SESSION_OPTIONS(&k.s),
        {'t', "topic", "TOPIC", "the topic", CLI_TEXT, &o->topic},
        {'p', "partition", "N", "only this partition", CLI_INDEX, &o->partition},
        {'G', "group", "GROUP", "as a member of a group, whose members share TOPIC...", CLI_TEXT, &o->group},
        {'o', "offset", "WHERE", "beginning, end (default), OFFSET, -N, or @MS since 1970", CLI_TEXT, &o->offset},
        {0, "to", "WHERE", "stop before this OFFSET, @MS, or the end as of now", CLI_TEXT, &o->to},
        {'e', "exit", NULL, "exit at the end of the partitions", CLI_FLAG, &o->exit_at_end},
        {'c', "count", "N", "exit after N records", CLI_TOTAL, &o->count},
        {'f', "format", "FORMAT", "how to print a record (default '%s\\n')", CLI_TEXT, &o->format},
        {'J', "json", NULL, "print JSON, a line a record", CLI_FLAG, &o->json},
        {0, "base64", NULL, "with --json: keys, values and header values in base64", CLI_FLAG, &o->base64},
        {0, "why", NULL, "say on stderr, while no record comes, what each partition waits for; SIGUSR1 asks at any time", CLI_FLAG, &o->why},
        {'q', "quiet", NULL, "no count at the end, nothing about rebalances", CLI_FLAG, &o->quiet},
    };
    const struct cli_command c = {"consume",
                                  "[TOPIC...]",
                                  "Prints the records of a topic, or those that a group gives this member.",
                                  "FORMAT: %s value, %S its size (-1: null), %R its size as 4 bytes, %k %K key, %h headers, %t topic, %p "
                                  "partition, %o offset, %T timestamp, %%; \\t \\n \\xHH as in C.\n"
                                  "-G: begins where the group has committed, and commits what was printed; -o beginning or end says where partitions "
                                  "begin that have no committed offset. TOPIC may be a pattern, ^orders-. Ctrl-C commits and leaves. --set "
                                  "group.instance.id=NAME makes it a static member.",
                                  0,
                                  CLI_OPERANDS_MAX,
                                  options,
                                  sizeof options / sizeof *options,
                                  "  kc consume -t numbers -o beginning -e\n"
                                  "  kc consume -t numbers -o -5 -e -f '%p/%o %k=%s\\n'\n"
                                  "  kc consume -t numbers -o @1700000000000 --to end --json\n"
                                  "  kc consume -G billing numbers -o beginning -e -q\n"};
    struct cli_operands words;
    int rc = cli_parse(&c, argc, argv, &words);
    if (rc >= 0) return rc;
    if (o->base64 && !o->json) return cli_usage_error(&c, "--base64 goes with --json");
    if (o->format && o->json) return cli_usage_error(&c, "-f and --json do not go together");
    if (o->group) return consume_in_group(&k.s, &c, o, &words);
    if (words.count > 0) return cli_usage_error(&c, "'%s' is one word too many: -t TOPIC reads a topic, -G GROUP TOPIC... joins a group", words.v[0]);
    if (!o->topic) return cli_usage_error(&c, "needs -t TOPIC, or -G GROUP TOPIC...");
    k.why.on = o->why;
    return consume(&k, &c);
}
