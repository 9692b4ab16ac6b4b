/* cluster_command.c - who asks a running cluster for something (cluster_ask.c), over DIR/.cluster.sock: what they ask is done, and they are told
 * once it has come about.
 *
 * Called by cluster, cluster_children and libuv.
 */
#include "cluster_priv.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "shell_command.h"

enum { WAIT_MS = 60000 };

/* ---- Askers ---- */

void kb_asker_close(struct kb_asker *a) {
    uv_close((uv_handle_t *)a->poll, kb_cluster_handle_freed);
    uv_close((uv_handle_t *)a->timer, kb_cluster_handle_freed);
    close(a->fd);
    a->fd = -1;
}

static void tell(struct kb_asker *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void tell(struct kb_asker *a, const char *fmt, ...) {
    char text[KB_CLUSTER_LINE_SIZE];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof(text) - 1, fmt, ap);
    va_end(ap);
    n = n < 0 ? 0 : n > (int)sizeof(text) - 2 ? (int)sizeof(text) - 2 : n;
    text[n++] = '\n';
    (void)!send(a->fd, text, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT); /* one that does not listen any more needs no answer */
}

/* What was asked for may have come about. */
static void look_at(struct kb_asker *a) {
    char why[100];
    if (a->fd < 0 || !a->command) return;
    bool up = strcmp(a->command, "start-node") == 0 || strcmp(a->command, "add-node") == 0;
    for (size_t i = 0; i < a->count; i++) {
        struct kb_child *k = kb_child_of(a->c, kb_cluster_plan_find(&a->c->plan, a->ids[i]));
        if (up && k->life == DOWN) {
            tell(a, "error node %d ended while it started (%s): see %s/node-%d.log", a->ids[i], kb_child_end_text(k, why, sizeof(why)), a->c->dir, a->ids[i]);
            kb_asker_close(a);
            return;
        }
        if (k->life != (up ? UP : DOWN)) return;
    }
    tell(a, "ok");
    kb_asker_close(a);
}

void kb_cluster_look_at_askers(struct kb_cluster *c) {
    for (size_t i = 0; i < KB_CLUSTER_ASKERS_MAX; i++) look_at(&c->askers[i]);
}

static void asker_late(uv_timer_t *t) {
    struct kb_asker *a = t->data;
    tell(a, "error not done after %d s; it may still come: kbroker cluster status --data %s", WAIT_MS / 1000, a->c->dir);
    kb_asker_close(a);
}

/* ---- Commands ---- */

static bool wipe(struct kb_asker *a, int32_t id) {
    char path[4200];
    snprintf(path, sizeof(path), "%s/node-%d", a->c->dir, id);
    if (kb_command_remove_tree(path) == 0 || errno == ENOENT) return true;
    tell(a, "error %.900s cannot be removed: %s", path, strerror(errno));
    return false;
}

static void status_of(struct kb_asker *a) {
    static const char *const lives[] = {"down", "starting", "up"};
    for (size_t i = 0; i < a->c->plan.count; i++) {
        const struct kb_cluster_node *n = &a->c->plan.nodes[i];
        const struct kb_child *k = &a->c->children[i];
        tell(a, "said node %d %s 127.0.0.1:%u %s pid %d", n->id, kb_cluster_roles(n),
             n->port, k->paused ? "paused" : lives[k->life], (int)k->pid);
    }
    tell(a, "ok");
    kb_asker_close(a);
}

/* Why the command cannot be done to this node; NULL: it can. */
static const char *refuses(const struct kb_asker *a, const struct kb_child *k) {
    const char *cmd = a->command;
    if (a->c->stopping) return "the cluster is stopping";
    if (strcmp(cmd, "stop-node") == 0 || strcmp(cmd, "kill-node") == 0) return k->pid ? NULL : "it does not run";
    if (strcmp(cmd, "pause-node") == 0) return !k->pid ? "it does not run" : k->paused ? "it is paused already" : NULL;
    if (strcmp(cmd, "start-node") == 0) return k->pid && !k->paused ? "it runs already" : NULL;
    if (strcmp(cmd, "wipe-node") == 0) return k->pid ? "it runs: stop or kill it first" : NULL;
    return NULL;
}

static int act(struct kb_asker *a, struct kb_cluster_node *n) {
    struct kb_child *k = kb_child_of(a->c, n);
    if (strcmp(a->command, "stop-node") == 0) kb_child_signal(k, SIGTERM);
    if (strcmp(a->command, "kill-node") == 0) kb_child_signal(k, SIGKILL);
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
    if (kb_child_start(a->c, n) == 0) return 0;
    tell(a, "error node %d cannot be started: %s", n->id, strerror(errno));
    return -1;
}

static bool add_nodes(struct kb_asker *a) {
    struct kb_cluster_plan plan = a->c->plan;
    char text[400];
    for (size_t i = 0; i < a->count; i++)
        if (kb_cluster_plan_add(&plan, a->ids[i], text, sizeof(text)) != 0) goto fail;
    if (kb_cluster_plan_write(&plan, a->c->dir, text, sizeof(text)) != 0) goto fail;
    a->c->plan = plan;
    return true;
fail:
    tell(a, "error %s", text);
    return false;
}

static bool carry_out(struct kb_asker *a) {
    struct kb_cluster *c = a->c;
    bool adds = strcmp(a->command, "add-node") == 0;
    if (adds && !c->stopping && !add_nodes(a)) return false;
    for (size_t i = 0; i < a->count; i++) {
        struct kb_cluster_node *n = kb_cluster_plan_find(&c->plan, a->ids[i]);
        const char *why = n ? refuses(a, kb_child_of(c, n)) : "there is none of this id";
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

static void obey(struct kb_asker *a) {
    char *space = strchr(a->line, ' ');
    if (space) *space = 0;
    for (size_t i = 0; i < kb_cluster_command_count; i++)
        if (strcmp(a->line, kb_cluster_commands[i]) == 0) a->command = kb_cluster_commands[i];
    a->count = space ? kb_command_ids(space + 1, a->ids, KB_CLUSTER_NODES_MAX) : 0;
    if (!a->command || (a->count == 0 && strcmp(a->command, "status") != 0)) {
        tell(a, a->command ? "error it wants ID[,ID...]" : "error no such command");
        kb_asker_close(a);
        return;
    }
    if (strcmp(a->command, "status") == 0) {
        status_of(a);
        return;
    }
    if (!carry_out(a)) {
        kb_asker_close(a);
        return;
    }
    if (strcmp(a->command, "pause-node") == 0) { /* done at once */
        tell(a, "ok");
        kb_asker_close(a);
        return;
    }
    uv_timer_start(a->timer, asker_late, WAIT_MS, 0);
    look_at(a);
}

static void asker_readable(uv_poll_t *p, int status, int events) {
    struct kb_asker *a = p->data;
    (void)events;
    size_t room = sizeof(a->line) - 1 - a->line_size;
    ssize_t n = status < 0 || room == 0 ? 0 : read(a->fd, a->line + a->line_size, room);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
        kb_asker_close(a); /* gave up: what it asked for goes on */
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
    struct kb_cluster *c = p->data;
    (void)events;
    int fd = status < 0 ? -1 : accept4(c->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return;
    for (size_t i = 0; i < KB_CLUSTER_ASKERS_MAX; i++) {
        struct kb_asker *a = &c->askers[i];
        if (a->fd >= 0) continue;
        uv_poll_t *poll = calloc(1, sizeof(*poll));
        uv_timer_t *timer = calloc(1, sizeof(*timer));
        if (!poll || !timer || uv_poll_init(&c->loop, poll, fd) != 0) {
            free(poll);
            free(timer);
            break;
        }
        *a = (struct kb_asker){.c = c, .fd = fd, .poll = poll, .timer = timer};
        uv_timer_init(&c->loop, timer);
        poll->data = timer->data = a;
        uv_poll_start(poll, UV_READABLE, asker_readable);
        return;
    }
    close(fd); /* too many at a time, or no memory: the asker says that nobody answered */
}

bool kb_cluster_listen(struct kb_cluster *c) {
    struct sockaddr_un a;
    char path[4200];
    snprintf(path, sizeof(path), "%s/.cluster.sock", c->dir);
    unlink(path); /* left by one that was killed: the lock says that none lives */
    int dir_fd = kb_command_socket_address(c->dir, ".cluster.sock", &a);
    c->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    bool ok = dir_fd >= 0 && c->listen_fd >= 0 && bind(c->listen_fd, (struct sockaddr *)&a, sizeof(a)) == 0 && listen(c->listen_fd, 16) == 0;
    if (!ok) kb_cluster_say("%s cannot be made: %s", path, strerror(errno));
    if (dir_fd >= 0) close(dir_fd);
    if (!ok || uv_poll_init(&c->loop, &c->listen_poll, c->listen_fd) != 0) return false;
    c->listen_poll.data = c;
    uv_poll_start(&c->listen_poll, UV_READABLE, asker_came);
    return true;
}
