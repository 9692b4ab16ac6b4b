/* cluster_priv.h - what the files of `kbroker cluster`'s parent share: its state. Private to them. */
#ifndef KB_CLUSTER_PRIV_H
#define KB_CLUSTER_PRIV_H

#include <sys/types.h>
#include <uv.h>

#include "admin_http_server.h"
#include "base/base.h"
#include "cluster.h"

enum { KB_CLUSTER_SETS_MAX = 128, KB_CLUSTER_LINE_SIZE = 1024 };

enum kb_child_life { DOWN, STARTING, UP };
struct kb_cluster;
struct kb_order;
struct kb_relay;
struct kb_clock_wait;
struct kb_cluster_snapshot;
struct kb_child {
    struct kb_cluster *c;
    pid_t pid; /* 0: no process */
    enum kb_child_life life;
    bool paused;            /* it stands still, whoever had it stand */
    bool to_pause;          /* it was told to stand still, and was not seen to yet */
    bool held;              /* for the moment of a snapshot: it goes on by itself */
    bool was_up, expected;  /* expected: its end was asked for */
    int status;             /* of the last end, as waitpid gives it */
    int64_t ahead_ms;       /* of its clock, as far as it is known to have it */
    bool is_told;           /* that it is later, this moment */
    off_t log_from;         /* where in its log file this process begins */
    int out;
    uv_poll_t *poll;
    char line[KB_CLUSTER_LINE_SIZE];
    size_t line_size;
};
struct kb_cluster {
    uv_loop_t loop;
    struct kb_cluster_plan plan;
    struct kb_child children[KB_CLUSTER_NODES_MAX];
    struct kb_http *http;
    struct kb_order *orders; /* not yet come about */
    struct kb_relay *relays; /* not yet answered by all */
    struct kb_clock_wait *clock_waits;
    struct kb_cluster_snapshot *snapshot; /* being saved or restored; NULL */
    uv_signal_t signals[3];
    uv_timer_t stop_timer;
    uv_poll_t input_poll;
    int lock_fd, input_fd;
    char *temporary; /* the folder of --ephemeral; NULL: another's */
    const char *dir, *profile, *faults, *from;
    const char *admin; /* HOST:PORT or PORT of --admin; NULL */
    const char *sets[KB_CLUSTER_SETS_MAX];
    size_t set_count;
    int nodes, controllers, base_port;
    int64_t ahead_ms; /* of a virtual clock */
    const char *record; /* where all nodes record their frames; NULL: nowhere */
    bool clock_is_virtual;
    bool verbose, ephemeral, until_eof, data_given;
    bool ready, stopping, controllers_told;
    bool dropped;     /* ends without order, since nobody wants what it has: that it does is no failure */
    bool plan_is_new; /* made from this command line */
    int exit_code;
    char *voters;
    char exe[4096];
};

/* ---- cluster.c ---- */

void kb_cluster_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void kb_cluster_handle_freed(uv_handle_t *h); /* a close callback */

/* ---- cluster_children.c ---- */

struct kb_child *kb_child_of(struct kb_cluster *c, const struct kb_cluster_node *n);
const char *kb_child_end_text(const struct kb_child *k, char *text, size_t size); /* how its last process ended */
bool kb_child_is_paused(const struct kb_child *k);                                /* until somebody lets it go on */
int kb_child_start(struct kb_cluster *c, struct kb_cluster_node *n);              /* -1: errno */
void kb_child_signal(struct kb_child *k, int number);                             /* SIGTERM or SIGKILL: it is to end */
void kb_cluster_reap(struct kb_cluster *c);
bool kb_cluster_any_alive(const struct kb_cluster *c, bool brokers_only);
void kb_cluster_stop(struct kb_cluster *c, int code); /* brokers, then controllers; then the loop ends */
void kb_cluster_kill(struct kb_cluster *c);           /* all that still run, at once */
void kb_cluster_something_came(struct kb_cluster *c); /* orders, the clock, a snapshot may have waited for it */

/* ---- cluster_http.c ---- */

bool kb_cluster_serve(struct kb_cluster *c); /* DIR/.admin.sock, and --admin; false: said why */
void kb_cluster_serve_no_more(struct kb_cluster *c);
char *kb_cluster_describe(struct kb_cluster *c); /* GET /cluster; free(); NULL: no memory */
char *kb_cluster_bootstrap(const struct kb_cluster *c); /* the brokers' addresses; free() */

/* ---- cluster_command.c ---- */

void kb_cluster_order(struct kb_cluster *c, struct kb_http_request *r); /* POST /nodes: done, and answered once it has come about */
void kb_cluster_look_at_orders(struct kb_cluster *c);                   /* what they wait for may have come about */
void kb_cluster_drop_orders(struct kb_cluster *c);                      /* unanswered */

/* ---- cluster_relay.c: a request to many nodes' admin sockets, without waiting for any ---- */

struct kb_relay_answer {
    int32_t id;
    int status; /* HTTP's; 0: none came, errno says why (ETIMEDOUT: not in time) */
    int err;
    const char *body;
};
struct kb_relay_call {
    const int32_t *ids;
    size_t count;
    const char *method, *path, *body;
    int64_t wait_ms;
    void (*done)(void *ctx, const struct kb_relay_answer *answers, size_t count); /* once, in the order of ids; perhaps before the call returns */
    void *ctx; /* done's to free, or free()d when it is not called */
};
void kb_cluster_relay(struct kb_cluster *c, const struct kb_relay_call *call);
void kb_cluster_drop_relays(struct kb_cluster *c); /* done is not called any more */

/* ---- cluster_clock.c ---- */

void kb_cluster_serve_clock(struct kb_cluster *c, struct kb_http_request *r); /* /clock */
void kb_cluster_look_at_clock(struct kb_cluster *c);                          /* nodes that missed an advance, and serve, are told */
bool kb_child_is_in_time(const struct kb_child *k);                           /* it has heard of all advances */
void kb_cluster_drop_clock(struct kb_cluster *c);                             /* who waits is not answered */

/* ---- cluster_snapshot.c ---- */

void kb_cluster_serve_snapshots(struct kb_cluster *c, struct kb_http_request *r); /* /snapshots */
void kb_cluster_look_at_snapshot(struct kb_cluster *c);                           /* what it waits for may have come about */
void kb_cluster_snapshot_stop(struct kb_cluster *c); /* the cluster stops: what was not done yet is not; a step under way ends in the loop */

/* ---- cluster_options.c ---- */

int kb_cluster_parse(struct kb_cluster *c, int argc, char **argv); /* -1: go on and run; else the exit code, everything said */

#endif
