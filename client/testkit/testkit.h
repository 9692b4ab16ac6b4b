/* testkit.h - what the files of the test kit (include/kclient/kclient_test.h) share. It stands on libkclient's public API alone, and on jansson.
 *
 * cluster.c: life. find.c: where kbroker is. process.c: the child. http.c: a request to the admin port. ask.c: the same with JSON and errors. nodes.c,
 * faults.c, state.c (status, clock, snapshots), topics.c (topics and waiting): what a test asks for.
 */
#ifndef KT_TESTKIT_H
#define KT_TESTKIT_H

#include <jansson.h>
#include <kclient/kclient_test.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

enum { KT_NODES_MAX = 1000, KT_WAIT_DEFAULT_S = 30, KT_CALL_DEFAULT_S = 60, KT_LOG_SHOWN = 1500, KT_END_S = 10, KT_END_UNREADY_S = 1 };

/* ---- Time: deadlines by the monotonic clock, in microseconds; INT64_MAX: none ---- */
int64_t kt_now_us(void);
int64_t kt_deadline(int64_t timeout_us, int64_t otherwise_s); /* timeout_us 0: otherwise_s; negative: none */
int kt_poll_ms(int64_t deadline_us);                          /* what is left, for poll(): -1 none, rounded up */
void kt_sleep_ms(int64_t ms);

/* Gives code, and the error where one is wanted; a text that is too long is cut. */
kc_err kt_fail(kc_error **error, kc_err code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* ---- The child ---- */
struct kt_process {
    pid_t pid; /* 0: none, or it has ended and was waited for */
    int in, out, log; /* its standard input, which it lives as long as; its standard output; what it wrote to standard error. -1: none */
    int status;       /* once it has ended: as waitpid tells */
    char line[1024];  /* of its output, not yet whole */
    size_t line_size;
};
void kt_process_init(struct kt_process *p);
/* argv: up to a NULL. show_log: its standard error is this process's. 0, or an errno. */
int kt_process_start(struct kt_process *p, const char *const *argv, bool show_log);
/* 1: *text is the next line of its output, without its end, until the next call; 0: it has closed it; -1: not by the deadline. */
int kt_process_line(struct kt_process *p, int64_t deadline_us, const char **text);
void kt_process_drain(struct kt_process *p); /* output that nobody reads must not make it wait */
bool kt_process_ended(struct kt_process *p, int64_t deadline_us); /* waits for it */
void kt_process_end_input(struct kt_process *p); /* whoever else has it open */
void kt_process_kill(struct kt_process *p); /* and waits for it */
void kt_process_close(struct kt_process *p); /* descriptors; the process is let go of */
const char *kt_process_fate(const struct kt_process *p, char *text, size_t size); /* "exit status 1", "killed by signal 9", "it runs" */
/* The end of what it wrote to standard error, a line of its own each, in front of them a line feed; "": nothing. */
const char *kt_process_said(const struct kt_process *p, char text[KT_LOG_SHOWN + 2]);

/* ---- Finding kbroker ---- */
char *kt_find_kbroker(const char *asked, kc_error **error); /* free(); NULL: *error says where it was looked for */

/* ---- HTTP ---- */
struct kt_address {
    bool is_unix;
    char host[256]; /* or the socket's folder */
    char port[8];
};
/* "http://HOST:PORT[/]" or a folder. false: neither. */
bool kt_address_parse(const char *where, struct kt_address *out);
struct kt_answer {
    int status;
    char *body; /* zero-terminated; free() */
    size_t size;
};
/* One request, over a connection of its own. KC_TRANSPORT, KC_TIMED_OUT, KC_BAD_MESSAGE, KC_NO_MEMORY: why says what happened. */
kc_err kt_http(const struct kt_address *at, const char *method, const char *path, const char *body, int64_t deadline_us, struct kt_answer *out, char *why,
               size_t why_size);

/* ---- A cluster ---- */
struct kc_test_cluster {
    pthread_mutex_t lock; /* of process, stopped, client */
    pid_t owner;          /* the process that made the handle */
    bool attached, stopped, ephemeral;
    struct kt_process process;
    struct kt_address at;
    int64_t timeout_us;   /* of a call; > 0 or KC_FOREVER */
    char *bootstrap, *admin, *data;
    kc_client *client;
    /* What looks at the cluster, with the addresses that it has now: nodes may have been added. Those with older ones stay, who uses them is not known. */
    kc_client **watchers; /* the last one is in use */
    char *watched;        /* its addresses */
    size_t watcher_count;
};
kc_err kt_watcher(kc_test_cluster *c, kc_client **out, kc_error **error); /* borrowed until the cluster is freed, or stopped */
/* A request to the cluster; what it refuses becomes an error. *out: the answer, a new reference. out may be NULL. */
kc_err kt_ask(kc_test_cluster *c, const char *method, const char *path, const json_t *body, json_t **out, kc_error **error);
/* kt_ask of a path with ?node=…, of n nodes; 0: all that run. */
kc_err kt_ask_nodes(kc_test_cluster *c, const char *method, const char *path, const int32_t *nodes, size_t n, const json_t *body, json_t **out,
                    kc_error **error);
/* A list {"nodes": […]} in an answer; NULL: it is none, which *error says. Borrowed. */
json_t *kt_nodes_in(const json_t *answer, kc_error **error);
kc_err kt_text_of(json_t *answer, char **out, kc_error **error); /* takes the answer */
kc_err kt_bad_answer(kc_error **error, const char *what);

#endif
