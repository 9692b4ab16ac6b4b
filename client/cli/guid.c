/* guid.c - kc guid get|stats: the record with an id, and what the indexes behind message.guid.dedup hold. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define GUID_UNSUPPORTED "this cluster has no dedup by id (kbroker has; on Apache Kafka the id is a header that nobody looks at)"
enum { CLI_PENDING = 3, INVALID_REQUEST = 42 };

/* What cli_fail prints, and what helps. */
static int fail(const char *what, const char *topic, kc_err err, kc_error *error) {
    int rc = cli_fail(what, err, error);
    if (err == INVALID_REQUEST)
        fprintf(stderr, "  kc topic alter %s --config message.guid.dedup=true makes it store each id once, and find records by it\n", topic);
    else if (err == KC_UNSUPPORTED)
        fprintf(stderr, "  " GUID_UNSUPPORTED "\n");
    return rc;
}

/* 0: it is no name, which is told. */
static int32_t topic_number(struct cli_session *s, const char *what, const char *topic) {
    int32_t number = kc_client_topic(s->client, topic);
    if (number == 0) fprintf(stderr, "kc: %s: '%s' is no topic name: 1 to 249 of a-z A-Z 0-9 . _ -\n", what, topic);
    return number;
}

static int list_of(struct cli_session *s, const char *what, const char *topic, kc_err err, kc_op *op, kc_error *error, kc_guid_list **out) {
    if (err == KC_OK) err = cli_wait(s, op, &error);
    if (err == KC_OK && !(*out = kc_op_result_guids(op))) err = KC_NO_MEMORY;
    kc_op_free(op);
    return err == KC_OK ? CLI_OK : fail(what, topic, err, error);
}

/* ---- get ---- */

struct get {
    struct cli_session s;
    const char *topic, *id;
    int64_t partition;
    bool json, base64;
    uint8_t guid[16];
    char text[KC_GUID_TEXT_SIZE];
    int32_t topic_id;
    kc_consumer *consumer;
};

static void print_bytes(const char *name, kc_bytes b) {
    printf("%-10s ", name);
    if (b.p) fwrite(b.p, 1, b.size, stdout);
    else fputs("(null)", stdout);
    putchar('\n');
}

static void print_text(const kc_guid_place *place, const kc_message *m, const kc_header *headers, size_t count) {
    char when[64];
    time_t seconds = (time_t)(m->timestamp_ms / 1000);
    struct tm t;
    printf("partition  %d\noffset     %lld\n", (int)place->partition, (long long)place->offset);
    if (m->timestamp_ms >= 0 && gmtime_r(&seconds, &t) && strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &t) > 0)
        printf("timestamp  %lld (%s.%03dZ)\n", (long long)m->timestamp_ms, when, (int)(m->timestamp_ms % 1000));
    print_bytes("key", m->key);
    print_bytes("value", m->value);
    for (size_t i = 0; i < count; i++) {
        uint8_t id[16];
        bool is_id = headers[i].name_size == 4 && !memcmp(headers[i].name, "guid", 4) && headers[i].value.size == sizeof id;
        printf("header     %.*s=", (int)headers[i].name_size, headers[i].name);
        if (is_id) {
            char text[KC_GUID_TEXT_SIZE];
            memcpy(id, headers[i].value.p, sizeof id);
            fputs(kc_guid_to_text(id, text), stdout);
        } else if (headers[i].value.p) {
            fwrite(headers[i].value.p, 1, headers[i].value.size, stdout);
        }
        putchar('\n');
    }
}

static void json_place(const struct get *g, const char *state, const kc_guid_place *place) {
    printf("{\"guid\":\"%s\",\"state\":\"%s\"", g->text, state);
    if (place->partition >= 0)
        printf(",\"partition\":%d,\"offset\":%lld,\"leader_epoch\":%d", (int)place->partition, (long long)place->offset, (int)place->leader_epoch);
}

static int print_record(struct get *g, const kc_guid_place *place, const kc_event *e, const kc_message *m) {
    kc_header *headers = calloc(m->header_count + (size_t)1, sizeof *headers);
    if (!headers) return cli_fail("guid get", KC_NO_MEMORY, NULL);
    size_t n = kc_event_headers(e, 0, headers, sizeof *headers, m->header_count);
    if (g->json) {
        json_place(g, "found", place);
        printf(",\"timestamp\":%lld,\"record\":", (long long)m->timestamp_ms);
        cli_json_record(stdout, g->topic, m, headers, n, g->base64);
        printf("}\n");
    } else {
        print_text(place, m, headers, n);
    }
    free(headers);
    return CLI_OK;
}

static int gone(const struct get *g, const kc_guid_place *place) {
    fprintf(stderr, "kc: guid get: %s was at offset %lld of partition %d, where no record is any more: deleted since\n", g->text, (long long)place->offset,
            (int)place->partition);
    return CLI_FAILURE;
}

/* The one record at the place. */
static int read_record(struct get *g, const kc_guid_place *place) {
    kc_topic_partition part = {.topic = g->topic_id, .partition = place->partition, .offset = place->offset, .leader_epoch = -1};
    kc_error *error = NULL;
    kc_err err = kc_consumer_assign(g->consumer, &part, sizeof part, 1, &error);
    if (err != KC_OK) return cli_fail("guid get", err, error);
    const char *limit = kc_config_get(g->s.config, "default.api.timeout.ms");
    int64_t until_us = cli_now_us() + (limit ? atoll(limit) : 30000) * 1000;
    while (!cli_interrupted && cli_now_us() < until_us) {
        kc_event *e = NULL;
        err = kc_consumer_poll(g->consumer, &e, 200000);
        cli_session_logs(&g->s);
        if (err == KC_TIMED_OUT || err == KC_WOKEN) continue;
        if (err != KC_OK) return cli_fail("guid get", err, NULL);
        int rc = -1;
        kc_message m;
        if (kc_event_kind(e) == KC_EVENT_RECORDS && kc_event_message(e, 0, &m) == KC_OK) {
            rc = m.offset == place->offset ? print_record(g, place, e, &m) : gone(g, place);
        } else if (kc_event_kind(e) == KC_EVENT_ERROR && kc_event_error(e) && !kc_error_retriable(kc_event_error(e))) {
            rc = kc_error_code(kc_event_error(e)) == 1 /* OFFSET_OUT_OF_RANGE */ ? gone(g, place) : CLI_FAILURE;
            if (rc == CLI_FAILURE) fprintf(stderr, "kc: guid get: %s\n", kc_error_message(kc_event_error(e)));
        }
        kc_event_free(e);
        if (rc >= 0) return rc;
    }
    return cli_fail("guid get: reading the record", KC_TIMED_OUT, NULL);
}

static int show_place(struct get *g, const kc_guid_place *place) {
    if (place->state == KC_GUID_FOUND) return read_record(g, place);
    if (place->state == KC_GUID_PENDING) {
        if (g->json) {
            json_place(g, "pending", place);
            printf("}\n");
        } else {
            printf("pending: partition %d, offset %lld: stored, but not yet on all in-sync replicas; ask again\n", (int)place->partition,
                   (long long)place->offset);
        }
        return CLI_PENDING;
    }
    if (place->err != KC_OK) { /* a partition that could not be asked may have it */
        if (g->json) printf("{\"guid\":\"%s\",\"state\":\"not known\",\"error\":\"%s\"}\n", g->text, kc_err_name(place->err));
        fprintf(stderr, "kc: guid get: not known: no partition that answered has %s\n", g->text);
        return CLI_FAILURE;
    }
    if (g->json) {
        json_place(g, "unknown", place);
        printf("}\n");
    } else {
        printf("unknown: topic %s has no record with id %s, or it is older than the topic's message.guid.window.ms\n", g->topic, g->text);
    }
    return CLI_FAILURE;
}

static void tell_missing(const char *what, const kc_guid_list *list) {
    kc_guid_partition p;
    for (size_t i = 0; kc_guid_list_partition(list, i, &p) == KC_OK; i++)
        if (p.err != KC_OK) fprintf(stderr, "kc: %s: partition %d was not asked: %s (%s)\n", what, (int)p.partition, p.message, kc_err_name(p.err));
}

static int open_reader(struct get *g) {
    kc_error *error = NULL;
    kc_config *config = kc_config_new();
    kc_err err = config ? kc_config_set(config, "auto.offset.reset", "error", &error) : KC_NO_MEMORY;
    if (err == KC_OK) err = kc_consumer_new(g->s.client, config, KC_PROCESSED_EXPLICIT, &g->consumer, &error);
    kc_config_free(config);
    return err == KC_OK ? CLI_OK : cli_fail("guid get", err, error);
}

static int get(struct get *g) {
    int rc = cli_session_open(&g->s);
    if (rc != CLI_OK) return rc;
    g->topic_id = topic_number(&g->s, "guid get", g->topic);
    if (g->topic_id == 0) return CLI_USAGE;
    cli_catch_signals(NULL, NULL);
    kc_error *error = NULL;
    kc_op *op = NULL;
    kc_guid_list *list = NULL;
    int32_t only = (int32_t)g->partition;
    kc_err err = kc_admin_lookup_guids_start(g->s.client, g->topic, g->guid, 1, g->partition >= 0 ? &only : NULL, g->partition >= 0, 0, 0, &op, &error);
    rc = list_of(&g->s, "guid get", g->topic, err, op, error, &list);
    if (rc == CLI_OK) {
        kc_guid_place place;
        tell_missing("guid get", list);
        if (kc_guid_list_get(list, 0, &place) == KC_OK && place.state == KC_GUID_FOUND) rc = open_reader(g);
        for (size_t i = 0; rc == CLI_OK && kc_guid_list_get(list, i, &place) == KC_OK; i++) {
            if (i > 0 && !g->json) putchar('\n'); /* several partitions have it: their records had different keys */
            rc = show_place(g, &place);
        }
    }
    kc_guid_list_free(list);
    return rc;
}

static int guid_get(int argc, char **argv) {
    struct get g = {.partition = -1};
    const struct cli_option options[] = {
        CLI_SESSION_OPTIONS(&g.s),
        {'t', "topic", "TOPIC", "the topic; it needs message.guid.dedup=true", CLI_TEXT, &g.topic},
        {'p', "partition", "N", "look in this partition alone", CLI_INDEX, &g.partition},
        {'J', "json", NULL, "print JSON", CLI_FLAG, &g.json},
        {0, "base64", NULL, "with --json: key, value and header values in base64", CLI_FLAG, &g.base64},
    };
    const struct cli_command c = {"guid get",
                                  "ID",
                                  "Finds the record with this id: its partition, offset, timestamp, and the record.",
                                  "ID: a UUID. Exit codes: 0 found, 1 unknown or failed, 2 usage, 3 pending: stored, but not yet on all in-sync replicas.",
                                  1,
                                  1,
                                  options,
                                  sizeof options / sizeof *options,
                                  "  kc guid get -t payments 01890a5d-ac96-774b-bcce-b302099a8057\n"
                                  "  kc guid get -t payments 01890a5d-ac96-774b-bcce-b302099a8057 --json\n"};
    struct cli_operands ids;
    int rc = cli_parse(&c, argc, argv, &ids);
    if (rc >= 0) return rc;
    if (!g.topic) return cli_usage_error(&c, "needs -t TOPIC");
    if (g.base64 && !g.json) return cli_usage_error(&c, "--base64 goes with --json");
    if (kc_guid_from_text(ids.v[0], 0, g.guid) != KC_OK)
        return cli_usage_error(&c, "'%s' is no UUID: 32 hexadecimal digits, as in 01890a5d-ac96-774b-bcce-b302099a8057", ids.v[0]);
    kc_guid_to_text(g.guid, g.text);
    rc = get(&g);
    fflush(stdout);
    (void)cli_output_ok();
    kc_consumer_free(g.consumer);
    cli_session_close(&g.s);
    return rc;
}

/* ---- stats ---- */

static void stats_json(const char *topic, const kc_guid_list *list) {
    kc_guid_partition p;
    printf("{\"topic\":");
    cli_json_text(stdout, topic, strlen(topic));
    printf(",\"partitions\":[");
    for (size_t i = 0; kc_guid_list_partition(list, i, &p) == KC_OK; i++) {
        printf("%s{\"partition\":%d,\"leader\":%d,\"leader_epoch\":%d", i ? "," : "", (int)p.partition, (int)p.leader, (int)p.leader_epoch);
        if (p.err != KC_OK) {
            printf(",\"error\":\"%s\"}", kc_err_name(p.err));
            continue;
        }
        printf(",\"hw\":%lld,\"from\":%lld,\"end\":%lld,\"entries\":%lld,\"runs\":%lld,\"disk_bytes\":%lld,\"memory_bytes\":%lld,\"window_ms\":%lld",
               (long long)p.high_watermark, (long long)p.from, (long long)p.end, (long long)p.entries, (long long)p.runs, (long long)p.disk_bytes,
               (long long)p.memory_bytes, (long long)p.window_ms);
        printf(",\"finds\":%lld,\"hits\":%lld,\"run_reads\":%lld,\"flushes\":%lld,\"merges\":%lld,\"forgotten\":%lld}", (long long)p.finds, (long long)p.hits,
               (long long)p.run_reads, (long long)p.flushes, (long long)p.merges, (long long)p.forgotten);
    }
    printf("]}\n");
}

static void add_number(struct cli_table *table, int64_t n) { cli_table_add(table, "%lld", (long long)n); }

static void stats_row(struct cli_table *table, const char *name, const char *leader, const kc_guid_partition *p) {
    cli_table_add(table, "%s", name);
    cli_table_add(table, "%s", leader);
    const int64_t numbers[] = {p->entries, p->runs, p->disk_bytes, p->memory_bytes, p->window_ms, p->finds, p->hits, p->run_reads, p->forgotten};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (p->err == KC_OK) add_number(table, numbers[i]);
        else cli_table_add(table, "-");
}

static void stats_text(const kc_guid_list *list) {
    static const char *const heads[] = {"partition", "leader", "entries", "runs", "disk", "memory", "window ms", "finds", "hits", "reads", "forgotten"};
    struct cli_table *table = cli_table_new(heads, sizeof heads / sizeof *heads);
    kc_guid_partition p, sum = {0};
    size_t n = 0;
    for (; kc_guid_list_partition(list, n, &p) == KC_OK; n++) {
        char name[16], leader[16];
        snprintf(name, sizeof name, "%d", (int)p.partition);
        snprintf(leader, sizeof leader, p.leader < 0 ? "none" : "%d", (int)p.leader);
        stats_row(table, name, leader, &p);
        sum.entries += p.entries;
        sum.runs += p.runs;
        sum.disk_bytes += p.disk_bytes;
        sum.memory_bytes += p.memory_bytes;
        sum.window_ms = p.err == KC_OK ? p.window_ms : sum.window_ms;
        sum.finds += p.finds;
        sum.hits += p.hits;
        sum.run_reads += p.run_reads;
        sum.forgotten += p.forgotten;
    }
    if (n > 1) stats_row(table, "all", "", &sum);
    cli_table_print(table);
}

static int guid_stats(int argc, char **argv) {
    struct cli_session s = {0};
    const char *topic = NULL;
    bool json = false;
    const struct cli_option options[] = {CLI_SESSION_OPTIONS(&s),
                                         {'t', "topic", "TOPIC", "the topic; it needs message.guid.dedup=true", CLI_TEXT, &topic},
                                         {'J', "json", NULL, "print JSON", CLI_FLAG, &json}};
    const struct cli_command c = {"guid stats",
                                  "",
                                  "Shows what the indexes of a topic's ids hold, a partition a line.",
                                  "entries: ids known. runs, disk: its sorted files, and their bytes. memory: bytes. window: how long an id is known. "
                                  "finds, hits: ids looked for and met since the leader opened the index; reads: reads of runs for it. forgotten: ids "
                                  "that went with their records within the window.",
                                  0,
                                  0,
                                  options,
                                  sizeof options / sizeof *options,
                                  "  kc guid stats -t payments\n"
                                  "  kc guid stats -t payments --json\n"};
    struct cli_operands none;
    int rc = cli_parse(&c, argc, argv, &none);
    if (rc >= 0) return rc;
    if (!topic) return cli_usage_error(&c, "needs -t TOPIC");
    rc = cli_session_open(&s);
    if (rc == CLI_OK && topic_number(&s, c.name, topic) == 0) rc = CLI_USAGE;
    if (rc == CLI_OK) {
        kc_error *error = NULL;
        kc_op *op = NULL;
        kc_guid_list *list = NULL;
        kc_err err = kc_admin_guid_stats_start(s.client, topic, 0, 0, &op, &error);
        rc = list_of(&s, c.name, topic, err, op, error, &list);
        if (rc == CLI_OK && json) stats_json(topic, list);
        else if (rc == CLI_OK) stats_text(list);
        fflush(stdout);
        tell_missing(c.name, list);
        kc_guid_partition p;
        for (size_t i = 0; kc_guid_list_partition(list, i, &p) == KC_OK; i++)
            if (p.err != KC_OK) rc = CLI_FAILURE;
        kc_guid_list_free(list);
    }
    cli_session_close(&s);
    return rc;
}

int cmd_guid(int argc, char **argv) {
    static const struct cli_sub subs[] = {
        {"get", guid_get, "find the record with an id"},
        {"stats", guid_stats, "show what the indexes of ids hold"},
    };
    return cli_dispatch("kc guid", subs, sizeof subs / sizeof *subs, argc, argv);
}
