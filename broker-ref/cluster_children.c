/* cluster_children.c - the nodes' processes: started as `kbroker run`, listened to, ended, reaped.
 *
 * Called by cluster, cluster_command, cluster_http and libuv. A node's data lies in DIR/node-ID, what it says in DIR/node-ID.log.
 */
#include "cluster_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ARGS_MAX = 2 * KB_CLUSTER_SETS_MAX + 32, STOP_MS = 30000, TAIL_SIZE = 1500, LAST_READS = 100 };

struct kb_child *kb_child_of(struct kb_cluster *c, const struct kb_cluster_node *n) {
    return &c->children[n - c->plan.nodes];
}
static int32_t id_of(const struct kb_child *k) {
    return k->c->plan.nodes[k - k->c->children].id;
}

bool kb_child_is_paused(const struct kb_child *k) {
    return k->paused && !k->held;
}

const char *kb_child_end_text(const struct kb_child *k, char *text, size_t size) {
    if (WIFSIGNALED(k->status))
        snprintf(text, size, "signal %d, %s", WTERMSIG(k->status), strsignal(WTERMSIG(k->status)));
    else
        snprintf(text, size, "exit code %d", WEXITSTATUS(k->status));
    return text;
}

void kb_cluster_something_came(struct kb_cluster *c) {
    kb_cluster_look_at_clock(c);
    kb_cluster_look_at_orders(c);
    kb_cluster_look_at_snapshot(c);
}

/* ---- What they say ---- */

static void child_said(struct kb_child *k, const char *line) {
    struct kb_cluster *c = k->c;
    if (strncmp(line, "ready ", 6) != 0) return;
    k->life = UP;
    k->was_up = true;
    kb_cluster_something_came(c);
    if (c->ready || c->stopping) return;
    for (size_t i = 0; i < c->plan.count; i++)
        if (!c->children[i].was_up) return;
    c->ready = true;
    char *bootstrap = kb_cluster_bootstrap(c);
    printf("ready %s\n", bootstrap ? bootstrap : "");
    fflush(stdout);
    free(bootstrap);
}

static void child_readable(uv_poll_t *p, int status, int events) {
    struct kb_child *k = p->data;
    (void)events;
    ssize_t n = status < 0 ? 0 : read(k->out, k->line + k->line_size, sizeof(k->line) - 1 - k->line_size);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
        uv_close((uv_handle_t *)k->poll, kb_cluster_handle_freed);
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
static _Noreturn void become_node(const struct kb_cluster *c, char *const *args, int out, const char *log, pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    setpgid(0, 0); /* Ctrl-C is for the parent, which stops the nodes in order */
    int err = open(log, O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (err < 0 || dup2(err, STDERR_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0) _exit(126);
    static const int ours[] = {SIGPIPE, SIGTERM, SIGINT, SIGCHLD};
    for (size_t i = 0; i < KW_COUNTOF(ours); i++) signal(ours[i], SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execv(c->exe, args);
    _exit(127);
}

static off_t log_size(const struct kb_cluster *c, int32_t id) {
    char path[4300];
    struct stat st;
    snprintf(path, sizeof(path), "%s/node-%d.log", c->dir, id);
    return stat(path, &st) == 0 ? st.st_size : 0;
}

int kb_child_start(struct kb_cluster *c, struct kb_cluster_node *n) {
    struct kb_child *k = kb_child_of(c, n);
    char data[4200], log[4300], listen[80], id[60], roles[60], voters[4200], port[16], clock[40];
    char *args[ARGS_MAX];
    size_t count = 0;
    int out[2];
    snprintf(data, sizeof(data), "%s/node-%d", c->dir, n->id);
    snprintf(log, sizeof(log), "%s/node-%d.log", c->dir, n->id);
    snprintf(port, sizeof(port), "%u", n->port);
    snprintf(listen, sizeof(listen), "listeners=%s://127.0.0.1:%s", n->broker ? "PLAINTEXT" : "CONTROLLER", port);
    snprintf(id, sizeof(id), "node.id=%d", n->id);
    snprintf(roles, sizeof(roles), "process.roles=%s", kb_cluster_roles(n));
    snprintf(clock, sizeof(clock), "virtual+%lld", (long long)c->ahead_ms);
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
    if (c->clock_is_virtual) args[count++] = (char *)"--clock", args[count++] = clock;
    if (c->record) args[count++] = (char *)"--record", args[count++] = (char *)(uintptr_t)c->record;
    if (c->ephemeral) args[count++] = (char *)"--no-sync";
    if (c->verbose) args[count++] = (char *)"--verbose";
    args[count] = NULL;
    if (pipe2(out, O_CLOEXEC) != 0) return -1;
    k->log_from = log_size(c, n->id);
    sigset_t all, before; /* until it is another program, a signal to the child would run the parent's handlers, which write to the parent's loop */
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) become_node(c, args, out[1], log, parent);
    sigprocmask(SIG_SETMASK, &before, NULL);
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
    k->ahead_ms = c->ahead_ms;
    k->is_told = k->held = k->to_pause = false;
    k->paused = k->expected = false;
    uv_poll_start(k->poll, UV_READABLE, child_readable);
    return 0;
}

void kb_child_signal(struct kb_child *k, int number) {
    if (k->pid == 0) return;
    if (number == SIGKILL || !k->expected) kill(k->pid, number); /* a second SIGTERM would end it at once, out of order */
    k->expected = true;
    if (number == SIGKILL) return;
    kill(k->pid, SIGCONT); /* whoever made it stand still */
    k->paused = k->to_pause = false;
}

/* The last lines that a node wrote since its start, for one that did not come up, and what may be done about it. */
static void show_end(const struct kb_child *k) {
    const struct kb_cluster *c = k->c;
    char path[4300], text[TAIL_SIZE + 1];
    snprintf(path, sizeof(path), "%s/node-%d.log", c->dir, id_of(k));
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    off_t size = fd >= 0 ? lseek(fd, 0, SEEK_END) : 0, from = KW_MAX(k->log_from, size - TAIL_SIZE);
    ssize_t n = fd >= 0 && from < size ? pread(fd, text, (size_t)(size - from), from) : 0;
    if (fd >= 0) close(fd);
    text[n > 0 ? n : 0] = 0;
    const char *whole = from > k->log_from && strchr(text, '\n') ? strchr(text, '\n') + 1 : text;
    fprintf(stderr, "%s", whole);
    if (!*whole)
        kb_cluster_say("the cluster did not start: node %d said nothing. Is there space left in %s, and may %s be written?", id_of(k), c->dir, path);
    else if (strstr(whole, "cannot listen"))
        kb_cluster_say("the cluster did not start: node %d could not take its port (above). Choose others with --base-port P (0: free ones)", id_of(k));
    else
        kb_cluster_say("the cluster did not start: what node %d said is above", id_of(k));
}

/* One that never ran must not hold the next try to its ports. */
static void forget_plan(const struct kb_cluster *c) {
    char path[4200];
    snprintf(path, sizeof(path), "%s/cluster.json", c->dir);
    if (c->plan_is_new) unlink(path);
}

bool kb_cluster_any_alive(const struct kb_cluster *c, bool brokers_only) {
    for (size_t i = 0; i < c->plan.count; i++)
        if (c->children[i].pid != 0 && (!brokers_only || c->plan.nodes[i].broker)) return true;
    return false;
}

/* Controllers go last: brokers hand their leaderships over through them. */
static void go_on_stopping(struct kb_cluster *c) {
    if (!c->stopping) return;
    if (!c->controllers_told && !kb_cluster_any_alive(c, true)) {
        c->controllers_told = true;
        for (size_t i = 0; i < c->plan.count; i++) kb_child_signal(&c->children[i], SIGTERM);
    }
    if (!kb_cluster_any_alive(c, false)) uv_stop(&c->loop);
}

static void child_ended(struct kb_child *k, int status) {
    struct kb_cluster *c = k->c;
    char why[100];
    bool started = k->life == UP;
    for (int i = 0; k->poll && i < LAST_READS; i++) child_readable(k->poll, 0, UV_READABLE); /* what it said last */
    k->pid = 0;
    k->life = DOWN;
    k->paused = false;
    k->status = status;
    if (!k->expected) kb_cluster_say("node %d ended by itself (%s); see %s/node-%d.log", id_of(k), kb_child_end_text(k, why, sizeof(why)), c->dir, id_of(k));
    if (c->stopping && !c->dropped && c->exit_code == 0 && (!WIFEXITED(status) || WEXITSTATUS(status) != 0)) c->exit_code = 1;
    kb_cluster_something_came(c);
    if (!c->ready && !c->stopping && !k->expected && !started) {
        show_end(k);
        forget_plan(c);
        kb_cluster_stop(c, WIFEXITED(status) && WEXITSTATUS(status) == 2 ? 2 : 1); /* 2: what the command line passes on to it is wrong */
    }
    go_on_stopping(c);
}

/* All its threads stand still now, or go on again. */
static void child_changed(struct kb_child *k, int status) {
    k->paused = WIFSTOPPED(status);
    if (k->paused) k->to_pause = false;
    if (!k->paused && !k->c->snapshot) k->held = false;
    kb_cluster_something_came(k->c);
}

void kb_cluster_reap(struct kb_cluster *c) {
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED)) > 0) {
        for (size_t i = 0; i < c->plan.count; i++) {
            if (c->children[i].pid != pid) continue;
            if (WIFSTOPPED(status) || WIFCONTINUED(status))
                child_changed(&c->children[i], status);
            else
                child_ended(&c->children[i], status);
        }
    }
}

void kb_cluster_kill(struct kb_cluster *c) {
    for (size_t i = 0; i < c->plan.count; i++) kb_child_signal(&c->children[i], SIGKILL);
}

static void stop_late(uv_timer_t *t) {
    struct kb_cluster *c = t->data;
    for (size_t i = 0; i < c->plan.count; i++) {
        if (c->children[i].pid == 0) continue;
        kb_cluster_say("node %d did not stop within %d s and is killed", c->plan.nodes[i].id, STOP_MS / 1000);
        kb_child_signal(&c->children[i], SIGKILL);
    }
}

void kb_cluster_stop(struct kb_cluster *c, int code) {
    if (c->stopping) return;
    c->stopping = true;
    c->exit_code = code;
    kb_cluster_snapshot_stop(c);
    for (size_t i = 0; i < c->plan.count; i++)
        if (c->plan.nodes[i].broker) kb_child_signal(&c->children[i], SIGTERM);
    uv_timer_start(&c->stop_timer, stop_late, STOP_MS, 0);
    go_on_stopping(c);
}
