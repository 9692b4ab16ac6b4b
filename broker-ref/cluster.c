/* cluster.c - the parent of a cluster's processes: starts a `kbroker run` for each node, supervises them, obeys commands, ends them all.
 *
 * Called by main.c (`kbroker cluster`). Calls cluster_plan, cluster_ask, libuv. A node's data lies in DIR/node-ID, what it says in
 * DIR/node-ID.log. Nodes die with this process however it ends (PR_SET_PDEATHSIG).
 */
#include "cluster.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>

#include "base/base.h"
#include "base/nearest.h"

enum { ASKERS_MAX = 32, SETS_MAX = 128, ARGS_MAX = 2 * SETS_MAX + 20, WAIT_MS = 60000, STOP_MS = 30000, LINE_SIZE = 1024, TAIL_SIZE = 600, LAST_READS = 100 };

static const char usage[] = "usage: kbroker cluster --nodes N [options]\n"
                            "       kbroker cluster COMMAND [ID[,ID...]] --data DIR\n"
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
                            "  --set NAME=VALUE    a property of server.properties, for all nodes\n"
                            "  --profile reliable  the settings of the high-reliability profile\n"
                            "  --faults FILE       fault rules (JSON) for all nodes\n"
                            "  --verbose           debug lines too, in DIR/node-ID.log\n"
                            "\n"
                            "commands on a running cluster: stop-node, kill-node, pause-node, start-node,\n"
                            "wipe-node, add-node, status\n"
                            "\n"
                            "example:\n"
                            "  kbroker cluster --nodes 3 --data /tmp/c &\n"
                            "  kbroker cluster kill-node 0 --data /tmp/c\n";

enum life { DOWN, STARTING, UP };
struct cluster;
struct child {
    struct cluster *c;
    pid_t pid; /* 0: no process */
    enum life life;
    bool paused, was_up, expected; /* expected: its end was asked for */
    int status;                    /* of the last end, as waitpid gives it */
    int out;
    uv_poll_t *poll;
    char line[LINE_SIZE];
    size_t line_size;
};
struct asker {
    struct cluster *c;
    int fd; /* -1: free */
    uv_poll_t *poll;
    uv_timer_t *timer;
    char line[LINE_SIZE];
    size_t line_size;
    const char *command; /* NULL: not yet known */
    int32_t ids[KB_CLUSTER_NODES_MAX];
    size_t count;
};
struct cluster {
    uv_loop_t loop;
    struct kb_cluster_plan plan;
    struct child children[KB_CLUSTER_NODES_MAX];
    struct asker askers[ASKERS_MAX];
    uv_signal_t signals[3];
    uv_timer_t stop_timer;
    uv_poll_t listen_poll;
    int listen_fd, lock_fd;
    const char *dir, *profile, *faults;
    const char *sets[SETS_MAX];
    size_t set_count;
    int nodes, controllers, base_port;
    bool verbose, ready, stopping, controllers_told;
    bool plan_is_new; /* made from this command line */
    int exit_code;
    char *voters;
    char exe[4096];
};

static void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *fmt, ...) {
    va_list ap;
    fprintf(stderr, "kbroker: ");
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
}

static struct child *child_of(struct cluster *c, const struct kb_cluster_node *n) {
    return &c->children[n - c->plan.nodes];
}
static int32_t id_of(const struct child *k) {
    return k->c->plan.nodes[k - k->c->children].id;
}

/* ---- Askers ---- */

static void handle_freed(uv_handle_t *h) {
    free(h);
}

static void asker_close(struct asker *a) {
    uv_close((uv_handle_t *)a->poll, handle_freed);
    uv_close((uv_handle_t *)a->timer, handle_freed);
    close(a->fd);
    a->fd = -1;
}

static void tell(struct asker *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void tell(struct asker *a, const char *fmt, ...) {
    char text[LINE_SIZE];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof(text) - 1, fmt, ap);
    va_end(ap);
    n = n < 0 ? 0 : n > (int)sizeof(text) - 2 ? (int)sizeof(text) - 2 : n;
    text[n++] = '\n';
    (void)!send(a->fd, text, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT); /* one that does not listen any more needs no answer */
}

static const char *end_text(const struct child *k, char *text, size_t size) {
    if (WIFSIGNALED(k->status))
        snprintf(text, size, "signal %d, %s", WTERMSIG(k->status), strsignal(WTERMSIG(k->status)));
    else
        snprintf(text, size, "exit code %d", WEXITSTATUS(k->status));
    return text;
}

/* What was asked for may have come about. */
static void look_at(struct asker *a) {
    char why[100];
    if (a->fd < 0 || !a->command) return;
    bool up = strcmp(a->command, "start-node") == 0 || strcmp(a->command, "add-node") == 0;
    for (size_t i = 0; i < a->count; i++) {
        struct child *k = child_of(a->c, kb_cluster_plan_find(&a->c->plan, a->ids[i]));
        if (up && k->life == DOWN) {
            tell(a, "error node %d ended while it started (%s): see %s/node-%d.log", a->ids[i], end_text(k, why, sizeof(why)), a->c->dir, a->ids[i]);
            asker_close(a);
            return;
        }
        if (k->life != (up ? UP : DOWN)) return;
    }
    tell(a, "ok");
    asker_close(a);
}

static void look_at_all(struct cluster *c) {
    for (size_t i = 0; i < ASKERS_MAX; i++) look_at(&c->askers[i]);
}

static void asker_late(uv_timer_t *t) {
    struct asker *a = t->data;
    tell(a, "error not done after %d s; it may still come: kbroker cluster status --data %s", WAIT_MS / 1000, a->c->dir);
    asker_close(a);
}

/* ---- Children ---- */

static void child_said(struct child *k, const char *line) {
    struct cluster *c = k->c;
    if (strncmp(line, "ready ", 6) != 0) return;
    k->life = UP;
    k->was_up = true;
    look_at_all(c);
    if (c->ready || c->stopping) return;
    for (size_t i = 0; i < c->plan.count; i++)
        if (!c->children[i].was_up) return;
    c->ready = true;
    const char *sep = "ready ";
    for (size_t i = 0; i < c->plan.count; i++) {
        if (!c->plan.nodes[i].broker) continue;
        printf("%s127.0.0.1:%u", sep, c->plan.nodes[i].port);
        sep = ",";
    }
    putchar('\n');
    fflush(stdout);
}

static void child_readable(uv_poll_t *p, int status, int events) {
    struct child *k = p->data;
    (void)events;
    ssize_t n = status < 0 ? 0 : read(k->out, k->line + k->line_size, sizeof(k->line) - 1 - k->line_size);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
        uv_close((uv_handle_t *)k->poll, handle_freed);
        k->poll = NULL;
        close(k->out);
        return;
    }
    k->line_size += (size_t)n;
    k->line[k->line_size] = 0;
    for (char *end; (end = strchr(k->line, '\n'));) {
        *end = 0;
        child_said(k, k->line);
        k->line_size -= (size_t)(end + 1 - k->line);
        memmove(k->line, end + 1, k->line_size + 1);
    }
    if (k->line_size == sizeof(k->line) - 1) k->line_size = 0;
}

/* In the child, after fork: system calls only, until the program is another. */
static _Noreturn void become_node(const struct cluster *c, char *const *args, int out, const char *log, pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    setpgid(0, 0); /* Ctrl-C is for the parent, which stops the nodes in order */
    int err = open(log, O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (err < 0 || dup2(err, STDERR_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0) _exit(126);
    signal(SIGPIPE, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execv(c->exe, args);
    _exit(127);
}

static int start_child(struct cluster *c, struct kb_cluster_node *n) {
    struct child *k = child_of(c, n);
    char data[4200], log[4300], listen[80], id[60], roles[60], voters[4200], port[16];
    char *args[ARGS_MAX];
    size_t count = 0;
    int out[2];
    snprintf(data, sizeof(data), "%s/node-%d", c->dir, n->id);
    snprintf(log, sizeof(log), "%s/node-%d.log", c->dir, n->id);
    snprintf(port, sizeof(port), "%u", n->port);
    snprintf(listen, sizeof(listen), "listeners=%s://127.0.0.1:%s", n->broker ? "PLAINTEXT" : "CONTROLLER", port);
    snprintf(id, sizeof(id), "node.id=%d", n->id);
    snprintf(roles, sizeof(roles), "process.roles=%s", n->broker && n->controller ? "broker,controller" : n->broker ? "broker" : "controller");
    snprintf(voters, sizeof(voters), "controller.quorum.voters=%s", c->voters);
    char *fixed[] = {c->exe, (char *)"run", (char *)"--data", data, (char *)"--set", listen, (char *)"--set", id, (char *)"--set", roles,
                     (char *)"--set", voters};
    for (size_t i = 0; i < KW_COUNTOF(fixed); i++) args[count++] = fixed[i];
    for (size_t i = 0; i < c->set_count; i++) {
        args[count++] = (char *)"--set";
        args[count++] = (char *)(uintptr_t)c->sets[i];
    }
    if (c->profile) args[count++] = (char *)"--profile", args[count++] = (char *)(uintptr_t)c->profile;
    if (c->faults) args[count++] = (char *)"--faults", args[count++] = (char *)(uintptr_t)c->faults;
    if (c->verbose) args[count++] = (char *)"--verbose";
    args[count] = NULL;
    if (pipe2(out, O_CLOEXEC) != 0) return -1;
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) become_node(c, args, out[1], log, parent);
    close(out[1]);
    k->poll = pid > 0 ? calloc(1, sizeof(*k->poll)) : NULL;
    if (!k->poll || fcntl(out[0], F_SETFL, O_NONBLOCK) != 0 || uv_poll_init(&c->loop, k->poll, out[0]) != 0) {
        if (pid > 0) kill(pid, SIGKILL);
        free(k->poll);
        k->poll = NULL;
        close(out[0]);
        return -1;
    }
    k->poll->data = k;
    k->out = out[0];
    k->line_size = 0;
    k->pid = pid;
    k->life = STARTING;
    k->paused = k->expected = false;
    uv_poll_start(k->poll, UV_READABLE, child_readable);
    return 0;
}

static void signal_child(struct child *k, int number) {
    if (k->pid == 0) return;
    k->expected = true;
    kill(k->pid, number);
    if (k->paused && number != SIGKILL) kill(k->pid, SIGCONT);
    k->paused = false;
}

/* The last lines that a node wrote, for one that did not start. */
static void show_tail(const struct cluster *c, int32_t id) {
    char path[4300], text[TAIL_SIZE + 1];
    snprintf(path, sizeof(path), "%s/node-%d.log", c->dir, id);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    off_t size = fd >= 0 ? lseek(fd, 0, SEEK_END) : 0;
    ssize_t n = fd >= 0 ? pread(fd, text, TAIL_SIZE, size > TAIL_SIZE ? size - TAIL_SIZE : 0) : 0;
    if (fd >= 0) close(fd);
    text[n > 0 ? n : 0] = 0;
    const char *from = size > TAIL_SIZE && strchr(text, '\n') ? strchr(text, '\n') + 1 : text;
    fprintf(stderr, "%s", from);
}

static void stop_all(struct cluster *c, int code);

/* One that never ran must not hold the next try to its ports. */
static void forget_plan(const struct cluster *c) {
    char path[4200];
    snprintf(path, sizeof(path), "%s/cluster.json", c->dir);
    if (c->plan_is_new) unlink(path);
}

static bool any_alive(const struct cluster *c, bool brokers_only) {
    for (size_t i = 0; i < c->plan.count; i++)
        if (c->children[i].pid != 0 && (!brokers_only || c->plan.nodes[i].broker)) return true;
    return false;
}

/* Controllers go last: brokers hand their leaderships over through them. */
static void go_on_stopping(struct cluster *c) {
    if (!c->stopping) return;
    if (!c->controllers_told && !any_alive(c, true)) {
        c->controllers_told = true;
        for (size_t i = 0; i < c->plan.count; i++) signal_child(&c->children[i], SIGTERM);
    }
    if (!any_alive(c, false)) uv_stop(&c->loop);
}

static void child_ended(struct child *k, int status) {
    struct cluster *c = k->c;
    char why[100];
    bool started = k->life == UP;
    for (int i = 0; k->poll && i < LAST_READS; i++) child_readable(k->poll, 0, UV_READABLE); /* what it said last */
    k->pid = 0;
    k->life = DOWN;
    k->paused = false;
    k->status = status;
    if (!k->expected) say("node %d ended by itself (%s); see %s/node-%d.log", id_of(k), end_text(k, why, sizeof(why)), c->dir, id_of(k));
    if (c->stopping && (!WIFEXITED(status) || WEXITSTATUS(status) != 0)) c->exit_code = 1;
    look_at_all(c);
    if (!c->ready && !c->stopping && !k->expected && !started) {
        show_tail(c, id_of(k));
        say("the cluster did not start: what node %d said is above; a port that is taken: choose others with --base-port P (0: free ones)", id_of(k));
        forget_plan(c);
        stop_all(c, 1);
    }
    go_on_stopping(c);
}

static void reap(struct cluster *c) {
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        for (size_t i = 0; i < c->plan.count; i++)
            if (c->children[i].pid == pid) child_ended(&c->children[i], status);
}

static void stop_late(uv_timer_t *t) {
    struct cluster *c = t->data;
    for (size_t i = 0; i < c->plan.count; i++) {
        if (c->children[i].pid == 0) continue;
        say("node %d did not stop within %d s and is killed", c->plan.nodes[i].id, STOP_MS / 1000);
        signal_child(&c->children[i], SIGKILL);
    }
}

static void stop_all(struct cluster *c, int code) {
    if (c->stopping) return;
    c->stopping = true;
    c->exit_code = code;
    for (size_t i = 0; i < c->plan.count; i++)
        if (c->plan.nodes[i].broker) signal_child(&c->children[i], SIGTERM);
    uv_timer_start(&c->stop_timer, stop_late, STOP_MS, 0);
    go_on_stopping(c);
}

static void signalled(uv_signal_t *h, int number) {
    struct cluster *c = h->data;
    if (number == SIGCHLD) {
        reap(c);
        return;
    }
    if (c->stopping) { /* the second one means now */
        for (size_t i = 0; i < c->plan.count; i++) signal_child(&c->children[i], SIGKILL);
        return;
    }
    say("stopping (once more: at once)");
    stop_all(c, 0);
}

/* ---- Commands ---- */

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *ftw) {
    (void)st, (void)kind, (void)ftw;
    return remove(path);
}

static bool wipe(struct asker *a, int32_t id) {
    char path[4200];
    snprintf(path, sizeof(path), "%s/node-%d", a->c->dir, id);
    if (nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS) == 0 || errno == ENOENT) return true;
    tell(a, "error %.900s cannot be removed: %s", path, strerror(errno));
    return false;
}

static void status_of(struct asker *a) {
    static const char *const lives[] = {"down", "starting", "up"};
    for (size_t i = 0; i < a->c->plan.count; i++) {
        const struct kb_cluster_node *n = &a->c->plan.nodes[i];
        const struct child *k = &a->c->children[i];
        tell(a, "said node %d %s 127.0.0.1:%u %s pid %d", n->id, n->broker && n->controller ? "broker,controller" : n->broker ? "broker" : "controller",
             n->port, k->paused ? "paused" : lives[k->life], (int)k->pid);
    }
    tell(a, "ok");
    asker_close(a);
}

/* Why the command cannot be done to this node; NULL: it can. */
static const char *refuses(const struct asker *a, const struct child *k) {
    const char *cmd = a->command;
    if (a->c->stopping) return "the cluster is stopping";
    if (strcmp(cmd, "stop-node") == 0 || strcmp(cmd, "kill-node") == 0) return k->pid ? NULL : "it does not run";
    if (strcmp(cmd, "pause-node") == 0) return !k->pid ? "it does not run" : k->paused ? "it is paused already" : NULL;
    if (strcmp(cmd, "start-node") == 0) return k->pid && !k->paused ? "it runs already" : NULL;
    if (strcmp(cmd, "wipe-node") == 0) return k->pid ? "it runs: stop or kill it first" : NULL;
    return NULL;
}

static int act(struct asker *a, struct kb_cluster_node *n) {
    struct child *k = child_of(a->c, n);
    if (strcmp(a->command, "stop-node") == 0) signal_child(k, SIGTERM);
    if (strcmp(a->command, "kill-node") == 0) signal_child(k, SIGKILL);
    if (strcmp(a->command, "pause-node") == 0) {
        kill(k->pid, SIGSTOP);
        k->paused = true;
    }
    if (strcmp(a->command, "wipe-node") == 0 && !wipe(a, n->id)) return -1;
    if (strcmp(a->command, "start-node") != 0 && strcmp(a->command, "add-node") != 0) return 0;
    if (k->paused) {
        kill(k->pid, SIGCONT);
        k->paused = false;
        return 0;
    }
    if (start_child(a->c, n) == 0) return 0;
    tell(a, "error node %d cannot be started: %s", n->id, strerror(errno));
    return -1;
}

static bool add_nodes(struct asker *a) {
    struct kb_cluster_plan plan = a->c->plan;
    char text[400];
    for (size_t i = 0; i < a->count; i++)
        if (kb_cluster_plan_add(&plan, a->ids[i], text, sizeof(text)) != 0) goto fail;
    if (kb_cluster_plan_write(&plan, a->c->dir, text, sizeof(text)) != 0) goto fail;
    a->c->plan = plan;
    for (size_t i = 0; i < plan.count; i++) a->c->children[i].c = a->c;
    return true;
fail:
    tell(a, "error %s", text);
    return false;
}

static bool carry_out(struct asker *a) {
    struct cluster *c = a->c;
    bool adds = strcmp(a->command, "add-node") == 0;
    if (adds && !c->stopping && !add_nodes(a)) return false;
    for (size_t i = 0; i < a->count; i++) {
        struct kb_cluster_node *n = kb_cluster_plan_find(&c->plan, a->ids[i]);
        const char *why = n ? refuses(a, child_of(c, n)) : "there is none of this id";
        for (size_t k = 0; !why && k < i; k++)
            if (a->ids[k] == a->ids[i]) why = "it is named twice";
        if (!why) continue;
        tell(a, "error node %d: %s; nothing was done", a->ids[i], why);
        return false;
    }
    for (size_t i = 0; i < a->count; i++)
        if (act(a, kb_cluster_plan_find(&c->plan, a->ids[i])) != 0) return false;
    return true;
}

static void obey(struct asker *a) {
    char *space = strchr(a->line, ' ');
    if (space) *space = 0;
    for (size_t i = 0; i < kb_cluster_command_count; i++)
        if (strcmp(a->line, kb_cluster_commands[i]) == 0) a->command = kb_cluster_commands[i];
    for (char *at = space ? space + 1 : NULL; at && *at && a->count < KB_CLUSTER_NODES_MAX; at = *at ? at + 1 : at) {
        unsigned long id = strtoul(at, &at, 10);
        a->ids[a->count++] = id > INT32_MAX ? -1 : (int32_t)id;
    }
    if (!a->command) {
        tell(a, "error no such command");
        asker_close(a);
        return;
    }
    if (strcmp(a->command, "status") == 0) {
        status_of(a);
        return;
    }
    if (!carry_out(a)) {
        asker_close(a);
        return;
    }
    if (strcmp(a->command, "pause-node") == 0) { /* done at once */
        tell(a, "ok");
        asker_close(a);
        return;
    }
    uv_timer_start(a->timer, asker_late, WAIT_MS, 0);
    look_at(a);
}

static void asker_readable(uv_poll_t *p, int status, int events) {
    struct asker *a = p->data;
    (void)events;
    size_t room = sizeof(a->line) - 1 - a->line_size;
    ssize_t n = status < 0 || room == 0 ? 0 : read(a->fd, a->line + a->line_size, room);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
        asker_close(a); /* gave up: what it asked for goes on */
        return;
    }
    a->line_size += (size_t)n;
    a->line[a->line_size] = 0;
    char *end = strchr(a->line, '\n');
    if (!end || a->command) return;
    *end = 0;
    obey(a);
}

static void asker_came(uv_poll_t *p, int status, int events) {
    struct cluster *c = p->data;
    (void)events;
    int fd = status < 0 ? -1 : accept4(c->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return;
    for (size_t i = 0; i < ASKERS_MAX; i++) {
        struct asker *a = &c->askers[i];
        if (a->fd >= 0) continue;
        uv_poll_t *poll = calloc(1, sizeof(*poll));
        uv_timer_t *timer = calloc(1, sizeof(*timer));
        if (!poll || !timer || uv_poll_init(&c->loop, poll, fd) != 0) {
            free(poll);
            free(timer);
            break;
        }
        *a = (struct asker){.c = c, .fd = fd, .poll = poll, .timer = timer};
        uv_timer_init(&c->loop, timer);
        poll->data = timer->data = a;
        uv_poll_start(poll, UV_READABLE, asker_readable);
        return;
    }
    close(fd); /* too many at a time, or no memory: the asker says that nobody answered */
}

/* ---- Life ---- */

static int make_folder(const char *dir) {
    char path[4096];
    size_t n = strlen(dir);
    if (n == 0 || n + 1 > sizeof(path)) return ENAMETOOLONG;
    memcpy(path, dir, n + 1);
    for (char *p = path + 1; *p; p++) {
        if (*p != '/') continue;
        *p = 0;
        if (mkdir(path, 0755) != 0 && errno != EEXIST) return errno;
        *p = '/';
    }
    return mkdir(path, 0755) == 0 || errno == EEXIST ? 0 : errno;
}

static bool take_folder(struct cluster *c) {
    char path[4200];
    int err = make_folder(c->dir);
    snprintf(path, sizeof(path), "%s/.cluster.lock", c->dir);
    c->lock_fd = err == 0 ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644) : -1;
    if (c->lock_fd < 0) {
        say("the folder %s cannot be used: %s; choose another with --data DIR", c->dir, strerror(err ? err : errno));
        return false;
    }
    if (flock(c->lock_fd, LOCK_EX | LOCK_NB) == 0) return true;
    say("a cluster runs in %s already: end that one, or choose another folder with --data DIR", c->dir);
    return false;
}

/* The plan of the folder when it has one: it must be what the command line asks for. */
static bool make_plan(struct cluster *c) {
    char text[4400];
    struct kb_cluster_plan asked;
    int known = kb_cluster_plan_read(&c->plan, c->dir, text, sizeof(text));
    if (known == 1 && c->nodes > 0) {
        size_t brokers = 0, alone = 0;
        for (size_t i = 0; i < c->plan.count; i++) {
            brokers += c->plan.nodes[i].broker;
            alone += !c->plan.nodes[i].broker;
        }
        if ((size_t)c->nodes <= brokers && (size_t)c->controllers == alone && (c->base_port <= 0 || c->base_port == c->plan.nodes[0].port)) return true;
        say("%s has a cluster of %zu brokers and %zu separate controllers from port %u on: leave --nodes, --controllers and --base-port out "
            "to run it, or choose another folder with --data DIR",
            c->dir, brokers, alone, c->plan.nodes[0].port);
        return false;
    }
    if (known == 1) return true;
    if (known == 0 && c->nodes == 0) {
        say("%s has no cluster yet: say how many brokers with --nodes N", c->dir);
        return false;
    }
    if (known < 0 || kb_cluster_plan_make(&asked, c->nodes, c->controllers, c->base_port < 0 ? 9092 : c->base_port, text, sizeof(text)) != 0 ||
        kb_cluster_plan_write(&asked, c->dir, text, sizeof(text)) != 0) {
        say("%s", text);
        return false;
    }
    c->plan = asked;
    c->plan_is_new = true;
    return true;
}

static bool listen_for_askers(struct cluster *c) {
    struct sockaddr_un a;
    char path[4200];
    snprintf(path, sizeof(path), "%s/.cluster.sock", c->dir);
    unlink(path); /* left by one that was killed: the lock says that none lives */
    int dir_fd = kb_cluster_socket_address(c->dir, ".cluster.sock", &a);
    c->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    bool ok = dir_fd >= 0 && c->listen_fd >= 0 && bind(c->listen_fd, (struct sockaddr *)&a, sizeof(a)) == 0 && listen(c->listen_fd, 16) == 0;
    if (!ok) say("%s cannot be made: %s", path, strerror(errno));
    if (dir_fd >= 0) close(dir_fd);
    if (!ok || uv_poll_init(&c->loop, &c->listen_poll, c->listen_fd) != 0) return false;
    c->listen_poll.data = c;
    uv_poll_start(&c->listen_poll, UV_READABLE, asker_came);
    return true;
}

static bool start(struct cluster *c) {
    static const int numbers[] = {SIGTERM, SIGINT, SIGCHLD};
    signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; i < KW_COUNTOF(numbers); i++) {
        uv_signal_init(&c->loop, &c->signals[i]);
        c->signals[i].data = c;
        uv_signal_start(&c->signals[i], signalled, numbers[i]);
    }
    uv_timer_init(&c->loop, &c->stop_timer);
    c->stop_timer.data = c;
    c->voters = kb_cluster_plan_voters(&c->plan);
    ssize_t n = readlink("/proc/self/exe", c->exe, sizeof(c->exe) - 1);
    if (n <= 0 || !c->voters || !listen_for_askers(c)) return false;
    c->exe[n] = 0;
    for (size_t i = 0; i < c->plan.count; i++) {
        if (start_child(c, &c->plan.nodes[i]) == 0) continue;
        say("node %d cannot be started: %s", c->plan.nodes[i].id, strerror(errno));
        return false;
    }
    return true;
}

static void close_handle(uv_handle_t *h, void *arg) {
    struct cluster *c = arg;
    bool ours = (char *)h >= (char *)c && (char *)h < (char *)(c + 1);
    if (!uv_is_closing(h)) uv_close(h, ours ? NULL : handle_freed);
}

static int run(struct cluster *c) {
    if (!take_folder(c) || !make_plan(c) || uv_loop_init(&c->loop) != 0) return 1;
    for (size_t i = 0; i < KB_CLUSTER_NODES_MAX; i++) c->children[i].c = c;
    for (size_t i = 0; i < ASKERS_MAX; i++) c->askers[i].fd = -1;
    if (!start(c)) stop_all(c, 1);
    if (any_alive(c, false) || !c->stopping) uv_run(&c->loop, UV_RUN_DEFAULT);
    char path[4200];
    snprintf(path, sizeof(path), "%s/.cluster.sock", c->dir);
    unlink(path);
    for (size_t i = 0; i < ASKERS_MAX; i++)
        if (c->askers[i].fd >= 0) asker_close(&c->askers[i]);
    uv_walk(&c->loop, close_handle, c);
    uv_run(&c->loop, UV_RUN_DEFAULT);
    uv_loop_close(&c->loop);
    free(c->voters);
    return c->exit_code;
}

/* ---- Command line ---- */

static int wrong(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static int wrong(const char *fmt, ...) {
    va_list ap;
    fprintf(stderr, "kbroker: ");
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fprintf(stderr, "\nTry: kbroker cluster --help\n");
    return 2;
}

static int number(const char *name, const char *value, int min, int max, int *out) {
    char *end;
    long n = strtol(value, &end, 10);
    if (end == value || *end || n < min || n > max) return wrong("%s wants a number from %d to %d, not \"%s\"", name, min, max, value);
    *out = (int)n;
    return -1;
}

static int take(struct cluster *c, const char *name, const char *value) {
    if (strcmp(name, "--nodes") == 0) return number(name, value, 1, KB_CLUSTER_BROKERS_MAX, &c->nodes);
    if (strcmp(name, "--controllers") == 0) return number(name, value, 1, KB_CLUSTER_CONTROLLERS_MAX, &c->controllers);
    if (strcmp(name, "--base-port") == 0) return number(name, value, 0, 65535 - KB_CLUSTER_NODES_MAX, &c->base_port);
    if (strcmp(name, "--data") == 0) {
        if (!value[0] || strlen(value) > 4000) return wrong("--data wants a folder");
        c->dir = value;
    } else if (strcmp(name, "--profile") == 0) {
        c->profile = value;
    } else if (strcmp(name, "--faults") == 0) {
        c->faults = value;
    } else {
        static const char *const own[] = {"node.id", "broker.id", "process.roles", "controller.quorum.voters", "listeners", "advertised.listeners",
                                          "log.dirs", "log.dir"};
        if (!strchr(value, '=')) return wrong("--set wants NAME=VALUE, not \"%s\"", value);
        for (size_t i = 0; i < KW_COUNTOF(own); i++)
            if (strcspn(value, "=") == strlen(own[i]) && strncmp(value, own[i], strlen(own[i])) == 0)
                return wrong("--set %s: each node has its own, which the cluster gives it (--nodes, --controllers, --base-port, --data)", own[i]);
        if (c->set_count == SETS_MAX) return wrong("at most %d of --set", SETS_MAX);
        c->sets[c->set_count++] = value;
    }
    return -1;
}

static int parse(struct cluster *c, int argc, char **argv) {
    static const char *const names[] = {"--nodes", "--controllers", "--base-port", "--data", "--set", "--profile", "--faults", "--verbose", "--help"};
    for (int i = 2; i < argc; i++) {
        const char *arg = argv[i], *eq = arg[0] == '-' ? strchr(arg, '=') : NULL;
        char name[32];
        struct kw_nearest near;
        bool known = false;
        snprintf(name, sizeof(name), "%.*s", (int)(eq ? eq - arg : (long)strlen(arg)), arg);
        kw_nearest_init(&near, name);
        for (size_t k = 0; k < KW_COUNTOF(names); k++) {
            known = known || strcmp(name, names[k]) == 0;
            kw_nearest_offer(&near, names[k]);
        }
        for (size_t k = 0; !known && arg[0] != '-' && k < kb_cluster_command_count; k++) kw_nearest_offer(&near, kb_cluster_commands[k]);
        if (!known) return near.best ? wrong("what is \"%s\"? Did you mean %s?", arg, near.best) : wrong("what is \"%s\"?", arg);
        if (strcmp(name, "--verbose") == 0) {
            c->verbose = true;
            continue;
        }
        if (!eq && i + 1 >= argc) return wrong("%s needs a value", name);
        int code = take(c, name, eq ? eq + 1 : argv[++i]);
        if (code >= 0) return code;
    }
    return -1;
}

int kb_cluster_main(int argc, char **argv) {
    static struct cluster c;
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "--help") != 0 && strcmp(argv[i], "-h") != 0) continue;
        fputs(usage, stdout);
        return 0;
    }
    if (argc > 2 && kb_cluster_is_command(argv[2])) return kb_cluster_ask(argv[2], argc - 3, argv + 3);
    if (argc < 3) {
        fputs(usage, stderr);
        return 2;
    }
    c = (struct cluster){.dir = "kbroker-cluster", .base_port = -1};
    int code = parse(&c, argc, argv);
    return code >= 0 ? code : run(&c);
}
