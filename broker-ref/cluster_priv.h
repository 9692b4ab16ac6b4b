/* cluster_priv.h - what cluster.c, cluster_children.c, cluster_command.c and cluster_options.c share: the state of the parent. Private to them. */
#ifndef KB_CLUSTER_PRIV_H
#define KB_CLUSTER_PRIV_H

#include <sys/types.h>
#include <uv.h>

#include "base/base.h"
#include "cluster.h"

enum { KB_CLUSTER_ASKERS_MAX = 32, KB_CLUSTER_SETS_MAX = 128, KB_CLUSTER_LINE_SIZE = 1024 };

enum kb_child_life { DOWN, STARTING, UP };
struct kb_cluster;
struct kb_child {
    struct kb_cluster *c;
    pid_t pid; /* 0: no process */
    enum kb_child_life life;
    bool paused, was_up, expected; /* expected: its end was asked for */
    int status;                    /* of the last end, as waitpid gives it */
    off_t log_from;                /* where in its log file this process begins */
    int out;
    uv_poll_t *poll;
    char line[KB_CLUSTER_LINE_SIZE];
    size_t line_size;
};
struct kb_asker {
    struct kb_cluster *c;
    int fd; /* -1: free */
    uv_poll_t *poll;
    uv_timer_t *timer;
    char line[KB_CLUSTER_LINE_SIZE];
    size_t line_size;
    const char *command; /* NULL: not yet known */
    int32_t ids[KB_CLUSTER_NODES_MAX];
    size_t count;
};
struct kb_cluster {
    uv_loop_t loop;
    struct kb_cluster_plan plan;
    struct kb_child children[KB_CLUSTER_NODES_MAX];
    struct kb_asker askers[KB_CLUSTER_ASKERS_MAX];
    uv_signal_t signals[3];
    uv_timer_t stop_timer;
    uv_poll_t listen_poll;
    int listen_fd, lock_fd;
    const char *dir, *profile, *faults;
    const char *sets[KB_CLUSTER_SETS_MAX];
    size_t set_count;
    int nodes, controllers, base_port;
    bool verbose, ready, stopping, controllers_told;
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
int kb_child_start(struct kb_cluster *c, struct kb_cluster_node *n);              /* -1: errno */
void kb_child_signal(struct kb_child *k, int number);                             /* SIGTERM or SIGKILL: it is to end */
void kb_cluster_reap(struct kb_cluster *c);
bool kb_cluster_any_alive(const struct kb_cluster *c, bool brokers_only);
void kb_cluster_stop(struct kb_cluster *c, int code); /* brokers, then controllers; then the loop ends */

/* ---- cluster_command.c ---- */

bool kb_cluster_listen(struct kb_cluster *c); /* for commands; false: said why */
void kb_cluster_look_at_askers(struct kb_cluster *c); /* what they wait for may have come about */
void kb_asker_close(struct kb_asker *a);

/* ---- cluster_options.c ---- */

int kb_cluster_parse(struct kb_cluster *c, int argc, char **argv); /* -1: go on and run; else the exit code, everything said */

#endif
