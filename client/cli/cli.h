/* cli.h - what the commands of kc share: command lines, clients, errors, progress, text output.
 *
 * kc is an application over the public headers alone (and base/nearest): what it can do, any program can. Data goes to stdout; progress and
 * errors to stderr. Exit codes: 0 ok, 1 failure, 2 usage.
 */
#ifndef KC_CLI_H
#define KC_CLI_H

#include <kclient/admin.h>
#include <kclient/consumer.h>
#include <kclient/kclient.h>
#include <kclient/producer.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>

enum { CLI_OK = 0, CLI_FAILURE = 1, CLI_USAGE = 2 };

/* ---- Command lines (args.c) ---- */

/* CLI_MANY: may be repeated. CLI_MAYBE: text, or nothing where the next word is an option, or none: then "".
 * Numbers: CLI_INDEX from 0, CLI_COUNT from 1, each up to 2^31-1; CLI_TOTAL from 1, 64 bits. */
enum cli_kind { CLI_FLAG, CLI_TEXT, CLI_INDEX, CLI_COUNT, CLI_TOTAL, CLI_MANY, CLI_MAYBE };
struct cli_option {
    char letter;       /* 0: none */
    const char *name;  /* without the dashes */
    const char *value; /* what stands for its value in the help; NULL for flags */
    const char *help;
    enum cli_kind kind;
    void *out; /* bool *, const char **, int64_t *, struct cli_many * */
};
#define CLI_MANY_MAX 64
struct cli_many {
    const char *v[CLI_MANY_MAX];
    int count;
};
struct cli_command {
    const char *name;     /* "topic create" */
    const char *operands; /* "TOPIC", "" none */
    const char *summary;  /* one line */
    const char *notes;    /* more, or NULL */
    int operands_min, operands_max;
    const struct cli_option *options;
    size_t option_count;
    const char *examples; /* whole lines, or NULL */
};
#define CLI_OPERANDS_MAX 16
struct cli_operands {
    const char *v[CLI_OPERANDS_MAX];
    int count;
};
/* The words of a text behind `at` columns, broken at 80, further lines indented; ends the line. */
void cli_print_wrapped(FILE *f, const char *text, size_t at, size_t indent);
/* -1: go on; else the exit code (help printed: 0; usage error printed: 2). */
int cli_parse(const struct cli_command *c, int argc, char **argv, struct cli_operands *operands);
int cli_usage_error(const struct cli_command *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- Clients (session.c) ---- */

struct cli_session { /* the options that every command has, and the client they make */
    const char *brokers;
    struct cli_many set;
    bool verbose;
    kc_config *config;
    kc_client *client;
};
#define CLI_SESSION_OPTIONS(s)                                                                                                             \
    {'b', "bootstrap", "HOST:PORT", "brokers to start from (default 127.0.0.1:9092)", CLI_TEXT, &(s)->brokers},                            \
        {0, "set", "NAME=VALUE", "a client property, as kc config explain lists", CLI_MANY, &(s)->set}, {                             \
        'v', "verbose", NULL, "log lines of the client on stderr", CLI_FLAG, &(s)->verbose                                                 \
    }
int cli_session_open(struct cli_session *s); /* CLI_OK, or the exit code with the error printed */
void cli_session_close(struct cli_session *s);
void cli_session_logs(struct cli_session *s); /* prints waiting log lines when verbose */
#define CLI_TIMEOUT_MS "30000" /* default.api.timeout.ms of kc, unless --set says another */

/* Waits for an operation; log lines are shown meanwhile, Ctrl-C (where signals are caught) cancels it. */
kc_err cli_wait(struct cli_session *s, kc_op *op, kc_error **error);
/* The same for one that changes n items, as its _start left it (err, op, error): prints what failed, and frees it. done[i], where it is given:
 * the ith item succeeded. CLI_OK: all did. */
int cli_wait_items(struct cli_session *s, const char *what, kc_err err, kc_op *op, kc_error *error, bool *done, size_t n);
/* The same for any number of items, which the caller tells of: CLI_OK: each has a result of its own in *results (free() them; their strings live as
 * long as the op, which is the caller's still), else the exit code with the error printed. */
int cli_wait_results(struct cli_session *s, const char *what, kc_err err, kc_op *op, kc_error *error, kc_admin_result **results, size_t *count);
/* NAME=VALUE words (set) and bare names (back to the default) as pairs; -1 or the exit code. */
struct cli_pairs {
    kc_config_pair v[2 * CLI_MANY_MAX];
    char names[CLI_MANY_MAX][128];
    size_t count;
};
int cli_pairs_make(const struct cli_command *c, const struct cli_many *set, const struct cli_many *unset, struct cli_pairs *out);
/* Changes configs of one topic or broker. */
int cli_alter_configs(struct cli_session *s, const char *what, int32_t resource, const char *name, const struct cli_pairs *pairs);
/* Describes the cluster, or one topic of it. */
kc_err cli_describe(struct cli_session *s, const char *topic, kc_cluster_info **info, kc_error **error);
/* One topic: its own error is the call's. *t lives in *info, which is to be freed on error too. */
kc_err cli_describe_topic(struct cli_session *s, const char *topic, kc_cluster_info **info, kc_topic_info *t, kc_error **error);
/* A producer with these acks and codec, where they are given. CLI_OK, or the exit code with the error printed. */
int cli_producer_open(struct cli_session *s, const char *what, const char *acks, const char *codec, kc_producer **p);

/* ---- What is wrong (view.c) ---- */

struct cli_view { /* a cluster at one moment */
    struct cli_session *session;
    kc_cluster_info *info;
    kc_quorum_info *quorum; /* NULL: not told, quorum_err says why */
    kc_err quorum_err;
    kc_reassignment_list *moves; /* NULL: not told, moves_err says why */
    kc_err moves_err;
    bool later, asked_aside; /* for the quorum and the moves: by cli_view_aside (set before it is opened by cli_view_topic), or already */
    /* asked for once they are needed */
    char *topic; /* whose min_isr this is */
    int32_t min_isr;
    struct cli_disk {
        int32_t broker;
        bool asked;
        kc_log_dir_list *list; /* NULL: it did not say */
    } * disks;
    size_t disk_count;
};
/* topic: NULL: all, without offsets. To be closed on error too. */
kc_err cli_view_open(struct cli_session *s, const char *topic, struct cli_view *v, kc_error **error);
kc_err cli_view_topic(struct cli_view *v, const char *topic, kc_error **error); /* another topic, the rest as it was; open still on error */
void cli_view_aside(struct cli_view *v);
void cli_view_close(struct cli_view *v);
bool cli_view_is_up(const struct cli_view *v, int32_t id);
struct cli_disk *cli_view_disk(struct cli_view *v, int32_t id); /* its place, made when there is none: nothing is asked for; NULL: no memory */
int64_t cli_view_seen_ms_ago(const struct cli_view *v, int32_t id); /* by the quorum's leader; -1 unknown */
const char *cli_ago(char *text, size_t size, int64_t ms);          /* "4 s ago" */
/* read only: below min.insync.replicas. */
enum cli_state { CLI_HEALTHY, CLI_MOVING, CLI_DEGRADED, CLI_READ_ONLY, CLI_OFFLINE };
/* How a partition is, and, unless it is healthy, what is wrong and on whom it waits: one line, "" else. */
enum cli_state cli_view_partition(struct cli_view *v, const kc_topic_info *t, const kc_partition_info *p, char *text, size_t size);
const char *cli_state_name(enum cli_state s);

/* ---- Nodes (nodes.c) ---- */
#define VOTER_SILENT_MS 2000 /* a follower asks for more at least twice a second */

struct cli_node {
    int32_t id;
    bool broker, up;
    kc_broker_info info; /* of a broker */
    kc_count_list *counts; /* NULL: not told, counts_err says why */
    kc_err counts_err;
    const kc_log_dir_list *disk; /* NULL: not told; the view's */
    size_t out_of_sync; /* replicas of its that are */
};
struct cli_nodes {
    struct cli_view *view;
    struct cli_node *v; /* brokers, then controllers that are none */
    size_t count;
};
/* Asks each broker that is up what it has counted and how its disk is, then for the quorum, and the controller. v: opened "later". False: no memory. */
bool cli_nodes_open(struct cli_view *v, struct cli_nodes *out);
void cli_nodes_close(struct cli_nodes *n);
const char *cli_node_quorum(const struct cli_nodes *n, const struct cli_node *d); /* "leader", "voter", "observer", "-" */
/* What is wrong with it, one line; "" nothing. */
const char *cli_node_problem(const struct cli_nodes *n, const struct cli_node *d, char *text, size_t size);
/* The sums over all that told, by the order of the first one: false past the end. */
bool cli_nodes_sum(const struct cli_nodes *n, size_t index, kc_count *out);

/* ---- Topics and partitions of the cluster, and those that a command line names (parts.c) ---- */

/* A topic of the cluster by name, however many there are. */
struct cli_topic {
    kc_topic_info said;
    size_t index; /* in the info */
};
struct cli_topics {
    struct cli_topic *v;
    size_t count;
    const kc_cluster_info *info;
};
bool cli_topics_make(struct cli_topics *t, const kc_cluster_info *info); /* false: no memory */
const struct cli_topic *cli_topics_find(const struct cli_topics *t, const char *name); /* NULL: it is not there */
void cli_topics_free(struct cli_topics *t);

struct cli_part { /* views into a kc_cluster_info */
    const char *topic;
    kc_partition_info p;
    int word; /* the place of the one that names it; 0 too where none were given */
};
struct cli_parts {
    struct cli_part *v;
    size_t count;
};
/* Words are TOPIC (all of its partitions) or TOPIC:PARTITION. -1: they are, else the exit code with the error printed. */
int cli_parts_check(const struct cli_command *c, const char *const *words, int count);
/* What the words name in the cluster, in their order; no words: all. CLI_OK or the exit code with the error printed. */
int cli_parts_find(const struct cli_command *c, const kc_cluster_info *info, const char *const *words, int count, struct cli_parts *out);
void cli_parts_free(struct cli_parts *p);
bool cli_part_find(const struct cli_topics *topics, const char *topic, int32_t partition, kc_partition_info *out);
void cli_json_part(const char *topic, int32_t partition); /* {"topic":"t","partition":0 */

/* Prints "kc: WHAT: message", the attempts and what to do; frees the error. Returns CLI_FAILURE. */
int cli_fail(const char *what, kc_err code, kc_error *error);
void cli_attempts(const kc_error *error); /* what was tried, a line each */

extern volatile sig_atomic_t cli_interrupted;            /* SIGINT or SIGTERM came */
void cli_catch_signals(void (*wake)(void *), void *ctx); /* wake is called in the handler */

/* Standard output took all so far. The first failure is remembered, and main tells it. */
bool cli_output_ok(void);
extern int cli_output_errno;

/* ---- Time, progress, text (text.c) ---- */

int64_t cli_now_us(void);
void cli_pause(int64_t us); /* a signal ends it early */
void cli_pace(int64_t start_us, uint64_t sent, int64_t rate); /* sleeps until the next record is due at rate a second; rate <= 0: not */
bool cli_split_pair(const char *text, char *name, size_t size, const char **value); /* NAME=VALUE */
bool cli_number(const char *text, int64_t min, int64_t max, int64_t *out);
void cli_json_text(FILE *f, const void *p, size_t n); /* a JSON string; bytes that are not UTF-8 become \ufffd */
void cli_base64(FILE *f, const void *p, size_t n);
int64_t cli_base64_decode(const char *text, size_t n, uint8_t *out); /* -1: malformed; out has room for n bytes */
/* Expands \t \n \r \0 \\ \xHH in place; returns the size. */
size_t cli_unescape(char *text);

/* A moment, in ms since 1970: "2026-11-30T04:00[:00[.000]][Z|+01:00]" or the day alone, UTC where no zone is said (time.c); "@MS"; an age, "90m". */
bool cli_time(const char *text, int64_t now_ms, int64_t *ms);

/* "0:1:2,1:2:0": a partition's replicas by ':', partitions by ',', equally many each; ids has room for CLI_REPLICAS_MAX. */
#define CLI_REPLICAS_MAX 4096
bool cli_replicas(const char *text, int32_t *ids, int64_t *partitions, int64_t *rf);
size_t cli_ids(const char *text, int32_t *ids, size_t max); /* "1,2,3", none twice: how many; 0: it is not that, or more than max */
bool cli_has_id(const int32_t *v, size_t n, int32_t id);
void cli_json_ids(FILE *f, const char *name, const int32_t *v, size_t n); /* ,"name":[1,2] */
const char *cli_ids_text(char *text, size_t size, const int32_t *v, size_t n);

/* One line on stderr when it is a terminal, at most every 200 ms. */
struct cli_progress {
    bool on;
    int64_t started_us, shown_us;
    const char *label;
    uint64_t total; /* 0: unknown */
};
void cli_progress_start(struct cli_progress *p, const char *label, uint64_t total);
void cli_progress_show(struct cli_progress *p, uint64_t records, uint64_t bytes);
void cli_progress_say(struct cli_progress *p, const char *fmt, ...) __attribute__((format(printf, 2, 3))); /* in place of the counts */
void cli_progress_end(struct cli_progress *p);
void cli_progress_clear(void); /* before anything else is said on stderr, where a line stands */

/* A table on stdout: columns as wide as their widest cell, the last one free. */
struct cli_table;
struct cli_table *cli_table_new(const char *const *heads, size_t columns);
void cli_table_add(struct cli_table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3))); /* next cell, row by row */
void cli_table_print(struct cli_table *t);                                                           /* and frees it */
void cli_table_free(struct cli_table *t);

/* ---- Formats (format.c): kcat's -f ---- */

struct cli_format;
struct cli_format *cli_format_new(const char *text, char *why, size_t size); /* NULL: why says which letter */
void cli_format_print(const struct cli_format *f, FILE *out, const char *topic, const kc_message *m, const kc_header *headers,
                      size_t header_count);
void cli_format_free(struct cli_format *f);
/* "guid" is its id, where it has one: a single header guid of 16 bytes. _message: as a line. */
void cli_json_record(FILE *out, const char *topic, const kc_message *m, const kc_header *headers, size_t header_count, bool base64);
void cli_json_message(FILE *out, const char *topic, const kc_message *m, const kc_header *headers, size_t header_count, bool base64);

/* ---- Commands ---- */
int cmd_topic(int argc, char **argv);
int cmd_produce(int argc, char **argv);
int cmd_consume(int argc, char **argv);
int cmd_group(int argc, char **argv);
int cmd_config(int argc, char **argv);
int cmd_cluster(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_elect(int argc, char **argv);
int cmd_reassign(int argc, char **argv);
int cmd_guid(int argc, char **argv);
int cmd_unregister(int argc, char **argv);

/* Runs the sub-command that argv[1] names. */
struct cli_sub {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
};
int cli_dispatch(const char *program, const struct cli_sub *subs, size_t count, int argc, char **argv);

#endif
