/* cluster.c - the parent of a cluster's processes: takes the folder, makes the plan, starts the nodes, ends when all have ended.
 *
 * Called by main.c (`kbroker cluster`). Calls cluster_options, cluster_plan, cluster_children, cluster_http, cluster_ask. Nodes die with this process
 * however it ends (PR_SET_PDEATHSIG).
 */
#include "cluster_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "shell_command.h"
#include "shell_snapshot.h"

static const char usage[] = "usage: kbroker cluster --nodes N [options]\n"
                            "       kbroker cluster COMMAND [ID[,ID...]] [--data DIR]\n"
                            "\n"
                            "Runs N brokers on this machine under one process; they end with it. Prints\n"
                            "\"ready HOST:PORT,...\" once all serve. SIGTERM or Ctrl-C stops them in order.\n"
                            "\n"
                            "  --nodes N           brokers, 1 to 9, numbered from 0\n"
                            "  --controllers C     so many processes, from 1000 on, are the quorum; without\n"
                            "                      it the first 1 (N <= 2), 3 (N <= 4) or 5 brokers are\n"
                            "  --base-port P       the first broker's port, the others follow (9092);\n"
                            "                      0: free ports\n"
                            "  --data DIR          where all data goes (./kbroker-cluster)\n"
                            "  --ephemeral         a temporary folder, never synced, removed at the end\n"
                            "  --admin [HOST:]PORT HTTP + JSON of the whole cluster there, too (0: a free\n"
                            "                      port); prints \"admin URL\" first. See README, Admin port\n"
                            "  --clock virtual     time that can be advanced, on all nodes at once (POST\n"
                            "                      /clock): retention, sessions and other policies\n"
                            "  --record FILE       each request and response that a node gets and sends, all\n"
                            "                      in one file (kbroker print FILE)\n"
                            "  --until-eof         ends when standard input does\n"
                            "  --from SNAPSHOT     starts with a copy of it (kbroker snapshot); a name in\n"
                            "                      DIR/snapshots, or a path with a /\n"
                            "  --set NAME=VALUE    a property of server.properties, for all nodes\n"
                            "  --profile reliable  the settings of the high-reliability profile\n"
                            "  --faults FILE       fault rules (JSON) for all nodes\n"
                            "  --verbose           debug lines too, in DIR/node-ID.log\n"
                            "\n"
                            "commands on a running cluster: stop-node, kill-node, pause-node, resume-node,\n"
                            "start-node, wipe-node, add-node, status\n"
                            "\n"
                            "example:\n"
                            "  kbroker cluster --nodes 3 --data /tmp/c &\n"
                            "  kbroker cluster kill-node 0 --data /tmp/c\n";

void kb_cluster_say(const char *fmt, ...) {
    va_list ap;
    fprintf(stderr, "kbroker: ");
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
}

void kb_cluster_handle_freed(uv_handle_t *h) {
    free(h);
}

static void signalled(uv_signal_t *h, int number) {
    struct kb_cluster *c = h->data;
    if (number == SIGCHLD) {
        kb_cluster_reap(c);
        return;
    }
    if (c->stopping) { /* the second one means now */
        kb_cluster_kill(c);
        return;
    }
    kb_cluster_say("stopping (once more: at once)");
    kb_cluster_stop(c, 0);
}

static bool take_folder(struct kb_cluster *c) {
    char path[4200], text[600];
    if (c->ephemeral) c->dir = c->temporary = kb_command_make_temporary(text, sizeof(text));
    if (!c->dir) {
        kb_cluster_say("%s", text);
        return false;
    }
    int err = kb_command_make_folder(c->dir);
    snprintf(path, sizeof(path), "%s/.cluster.lock", c->dir);
    c->lock_fd = err == 0 ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644) : -1;
    if (c->lock_fd < 0) {
        kb_cluster_say("the folder %s cannot be used: %s; choose another with --data DIR", c->dir, strerror(err ? err : errno));
        return false;
    }
    char pid[32] = "";
    if (flock(c->lock_fd, LOCK_EX | LOCK_NB) != 0) {
        ssize_t n = pread(c->lock_fd, pid, sizeof(pid) - 1, 0);
        pid[n > 0 ? n : 0] = 0;
        kb_cluster_say("a cluster runs in %s already%s%.20s: end that one, or choose another folder with --data DIR", c->dir, pid[0] ? ", process " : "", pid);
        return false;
    }
    int n = snprintf(pid, sizeof(pid), "%d", (int)getpid());
    if (ftruncate(c->lock_fd, 0) == 0) (void)!pwrite(c->lock_fd, pid, (size_t)n, 0); /* it only tells others */
    return true;
}

/* A restore that was interrupted is finished. */
static bool finish_restore(const struct kb_cluster *c) {
    struct kb_failure f;
    if (kb_restore_finish(c->dir, !c->ephemeral, &f) == 0) return true;
    kb_cluster_say("%s", f.text);
    return false;
}

/* --from: the snapshot's nodes, with their data, on ports of this cluster's own. */
static bool start_from(struct kb_cluster *c) {
    struct kb_snapshot_facts facts;
    struct kb_cluster_plan plan;
    struct kb_failure f;
    char path[KB_SNAPSHOT_PATH_MAX];
    size_t brokers = 0;
    if (kb_snapshot_kind_of(c->dir) != KB_SNAPSHOT_UNKNOWN) {
        kb_cluster_say("%s has data already: choose another folder for --from, or: kbroker snapshot restore %s --data %s", c->dir, c->from, c->dir);
        return false;
    }
    if (kb_snapshot_path(c->dir, c->from, path, &f) != 0 || kb_snapshot_read(path, &facts, &f) != 0) goto fail;
    for (size_t i = 0; i < facts.plan.count; i++) brokers += facts.plan.nodes[i].broker;
    if (facts.kind != KB_SNAPSHOT_CLUSTER) {
        kb_cluster_say("%s is of a single broker, not of a cluster", path);
        return false;
    }
    if (c->nodes > 0 && (size_t)c->nodes != brokers) {
        kb_cluster_say("%s has %zu brokers: leave --nodes out", path, brokers);
        return false;
    }
    if (kb_restore_plan(&facts, NULL, c->base_port < 0 ? 9092 : c->base_port, &plan, &f) != 0 ||
        kb_restore_prepare(c->dir, path, &facts, &plan, !c->ephemeral, &f) != 0 || kb_restore_commit(c->dir, &f) != 0)
        goto fail;
    c->nodes = c->controllers = 0; /* as the plan has it */
    c->plan_is_new = true;
    return finish_restore(c);
fail:
    kb_cluster_say("%s", f.text);
    return false;
}

/* The plan of the folder when it has one: it must be what the command line asks for. */
static bool make_plan(struct kb_cluster *c) {
    char text[4400];
    struct kb_cluster_plan asked;
    if (c->from && !start_from(c)) return false;
    int known = kb_cluster_plan_read(&c->plan, c->dir, text, sizeof(text));
    if (known == 1 && c->nodes > 0) {
        size_t brokers = 0, alone = 0;
        for (size_t i = 0; i < c->plan.count; i++) {
            brokers += c->plan.nodes[i].broker;
            alone += !c->plan.nodes[i].broker;
        }
        if ((size_t)c->nodes == brokers && (size_t)c->controllers == alone && (c->base_port <= 0 || c->base_port == c->plan.nodes[0].port)) return true;
        kb_cluster_say("%s has a cluster of %zu brokers and %zu separate controllers from port %u on: leave --nodes, --controllers and --base-port out "
                       "to run it as it is, or choose another folder with --data DIR (more brokers: kbroker cluster add-node)",
                       c->dir, brokers, alone, c->plan.nodes[0].port);
        return false;
    }
    if (known == 1) return true;
    if (known == 0 && c->nodes == 0) return false; /* said before (it went this moment) */
    if (known < 0 || kb_cluster_plan_make(&asked, c->nodes, c->controllers, c->base_port < 0 ? 9092 : c->base_port, text, sizeof(text)) != 0 ||
        kb_cluster_plan_write(&asked, c->dir, text, sizeof(text)) != 0) {
        kb_cluster_say("%s", text);
        return false;
    }
    c->plan = asked;
    c->plan_is_new = true;
    return true;
}

/* ---- --until-eof ---- */

static void input_ended(struct kb_cluster *c) {
    if (c->ephemeral) {
        c->dropped = true;
        kb_cluster_stop(c, 0);
        kb_cluster_kill(c);
    } else if (!c->stopping) {
        kb_cluster_say("standard input has ended: stopping");
        kb_cluster_stop(c, 0);
    }
}

static void input_readable(uv_poll_t *p, int status, int events) {
    char text[4096];
    struct kb_cluster *c = p->data;
    (void)events;
    ssize_t n = status < 0 ? 0 : read(c->input_fd, text, sizeof(text)); /* whatever it says */
    if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR))) return;
    uv_poll_stop(p);
    input_ended(c);
}

/* A description of its own where there is one: non-blocking is not for those that share the other. */
static bool watch_input(struct kb_cluster *c) {
    c->input_fd = open("/proc/self/fd/0", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (c->input_fd < 0) c->input_fd = STDIN_FILENO; /* a socket */
    int err = uv_poll_init(&c->loop, &c->input_poll, c->input_fd);
    if (err != 0) {
        kb_cluster_say("--until-eof wants a pipe, a socket or a terminal as standard input (%s)", uv_strerror(err));
        return false;
    }
    c->input_poll.data = c;
    return uv_poll_start(&c->input_poll, UV_READABLE, input_readable) == 0;
}

static bool start(struct kb_cluster *c) {
    static const int numbers[] = {SIGTERM, SIGINT, SIGCHLD};
    signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; i < KW_COUNTOF(numbers); i++) {
        uv_signal_init(&c->loop, &c->signals[i]);
        c->signals[i].data = c;
        uv_signal_start(&c->signals[i], signalled, numbers[i]);
    }
    uv_timer_init(&c->loop, &c->stop_timer);
    c->stop_timer.data = c;
    kb_cluster_plan_hold(&c->plan);
    c->voters = kb_cluster_plan_voters(&c->plan);
    ssize_t n = readlink("/proc/self/exe", c->exe, sizeof(c->exe) - 1);
    if (n <= 0 || !c->voters || !kb_cluster_serve(c) || (c->until_eof && !watch_input(c))) return false;
    c->exe[n] = 0;
    for (size_t i = 0; i < c->plan.count; i++) {
        if (kb_child_start(c, &c->plan.nodes[i]) == 0) continue;
        kb_cluster_say("node %d cannot be started: %s", c->plan.nodes[i].id, strerror(errno));
        return false;
    }
    return true;
}

static void close_handle(uv_handle_t *h, void *arg) {
    struct kb_cluster *c = arg;
    bool ours = (char *)h >= (char *)c && (char *)h < (char *)(c + 1);
    if (!uv_is_closing(h)) uv_close(h, ours ? NULL : kb_cluster_handle_freed);
}

/* Without --nodes there must be a cluster already: no folder is made for nothing. */
static bool knows_what(const struct kb_cluster *c) {
    char path[4200];
    snprintf(path, sizeof(path), "%s/cluster.json", c->dir);
    if (c->nodes > 0 || c->from || access(path, F_OK) == 0 || errno != ENOENT) return true;
    kb_cluster_say("%s has no cluster yet: say how many brokers with --nodes N", c->dir);
    return false;
}

static int run(struct kb_cluster *c) {
    if (!knows_what(c) || !take_folder(c) || !finish_restore(c) || !make_plan(c) || uv_loop_init(&c->loop) != 0) return 1;
    for (size_t i = 0; i < KB_CLUSTER_NODES_MAX; i++) c->children[i].c = c;
    if (!start(c)) kb_cluster_stop(c, 1);
    if (kb_cluster_any_alive(c, false) || !c->stopping) uv_run(&c->loop, UV_RUN_DEFAULT);
    while (c->snapshot) uv_run(&c->loop, UV_RUN_ONCE); /* copied off the loop */
    kb_cluster_serve_no_more(c);
    uv_walk(&c->loop, close_handle, c);
    uv_run(&c->loop, UV_RUN_DEFAULT);
    uv_loop_close(&c->loop);
    free(c->voters);
    return c->exit_code;
}

int kb_cluster_main(int argc, char **argv) {
    static struct kb_cluster c;
    if (argc > 2 && kb_cluster_is_command(argv[2])) return kb_cluster_ask(argc, argv);
    if (kb_command_asks_help(argc, argv)) {
        fputs(usage, stdout);
        return 0;
    }
    if (argc < 3) {
        fputs(usage, stderr);
        return 2;
    }
    c = (struct kb_cluster){.dir = "kbroker-cluster", .base_port = -1};
    int code = kb_cluster_parse(&c, argc, argv);
    if (code < 0) code = run(&c);
    if (c.temporary && kb_command_remove_tree(c.temporary) != 0 && errno != ENOENT)
        kb_cluster_say("the temporary folder %s cannot be removed: %s", c.temporary, strerror(errno));
    free(c.temporary);
    return code;
}
