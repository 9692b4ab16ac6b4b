/* bench_cluster.c - a kbroker cluster that lives as long as this kc: found, started, its nodes killed and started again, ended.
 *
 * Called by bench_scenario and bench_kills. It ends when its standard input does (--until-eof), so however kc ends, no process of it stays. Orders go over HTTP
 * to its admin port, without waiting for their answer: records go on being sent while brokers die.
 */
#include "bench.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { START_MS = 60000, STOP_MS = 20000, ORDER_MS = 90000, LOOK_MS = 20, ARGS_MAX = 24 };

extern char **environ;

/* ---- Which program ---- */

static bool is_program(const char *path) {
    return access(path, X_OK) == 0;
}

static bool in_path(char *out, size_t size) {
    const char *path = getenv("PATH");
    for (const char *p = path; p && *p;) {
        size_t n = strcspn(p, ":");
        snprintf(out, size, "%.*s/kbroker", n ? (int)n : 1, n ? p : ".");
        if (is_program(out)) return true;
        p += n + (p[n] == ':');
    }
    return false;
}

static int find_kbroker(char *out, size_t size) {
    const char *named = getenv("KBROKER");
    char here[3900];
    if (named && *named) {
        snprintf(out, size, "%s", named);
        if (is_program(out)) return CLI_OK;
        fprintf(stderr, "kc: bench: KBROKER=%s is no program: %s\n", named, strerror(errno));
        return CLI_FAILURE;
    }
    ssize_t n = readlink("/proc/self/exe", here, sizeof here - 1);
    here[n > 0 ? n : 0] = 0;
    char *slash = strrchr(here, '/');
    if (slash) {
        *slash = 0;
        snprintf(out, size, "%s/kbroker", here);
        if (is_program(out)) return CLI_OK;
    }
    if (in_path(out, size)) return CLI_OK;
    fprintf(stderr, "kc: bench: kbroker is not there: neither in KBROKER (not set), nor beside kc (%s), nor in PATH\n", here);
    fprintf(stderr, "  -b HOST:PORT measures a cluster that runs\n");
    return CLI_FAILURE;
}

/* ---- Its start ---- */

static int spawn(struct bench_cluster *c, char **args, int in, int out) {
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    sigset_t none, normal;
    sigemptyset(&none);
    sigfillset(&normal);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, in, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&files, c->errors, STDERR_FILENO);
    posix_spawnattr_init(&attr); /* a group of its own: Ctrl-C is for kc, which ends it once it has measured no more */
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &normal);
    int err = posix_spawn(&c->pid, args[0], &files, &attr, args, environ);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&files);
    if (err) c->pid = 0;
    return err;
}

static void show_errors(const struct bench_cluster *c) {
    char text[4096];
    ssize_t n = pread(c->errors, text, sizeof text, 0);
    if (n > 0) fwrite(text, 1, (size_t)n, stderr);
}

/* "admin http://HOST:PORT", then "ready HOST:PORT,…". True once it is ready. */
static bool take_line(struct bench_cluster *c, const char *line) {
    if (!strncmp(line, "admin ", 6)) {
        const char *colon = strrchr(line, ':');
        c->admin_port = (uint16_t)(colon ? strtol(colon + 1, NULL, 10) : 0);
    }
    if (strncmp(line, "ready ", 6) != 0) return false;
    snprintf(c->bootstrap, sizeof c->bootstrap, "%.500s", line + 6);
    return true;
}

static int fail_start(struct bench_cluster *c, const char *why) {
    fprintf(stderr, "kc: bench: the cluster did not start: %s\n", why);
    show_errors(c);
    bench_cluster_stop(c);
    return CLI_FAILURE;
}

static int wait_ready(struct bench_cluster *c, int out) {
    char text[1200];
    size_t size = 0;
    int64_t until = cli_now_us() + START_MS * 1000LL;
    while (cli_now_us() < until) {
        struct pollfd p = {.fd = out, .events = POLLIN};
        if (cli_interrupted) {
            bench_cluster_stop(c);
            return cli_fail("bench", KC_CANCELLED, NULL);
        }
        if (poll(&p, 1, LOOK_MS) <= 0) continue;
        ssize_t n = read(out, text + size, sizeof text - 1 - size);
        if (n <= 0) return fail_start(c, "it ended before it was ready");
        size += (size_t)n;
        text[size] = 0;
        for (char *end; (end = strchr(text, '\n'));) {
            *end = 0;
            bool ready = take_line(c, text);
            size -= (size_t)(end + 1 - text);
            memmove(text, end + 1, size + 1);
            if (ready) return c->admin_port ? CLI_OK : fail_start(c, "it told no admin port");
        }
        if (size == sizeof text - 1) size = 0; /* no line of ours is that long */
    }
    return fail_start(c, "it was not ready in a minute");
}

int bench_cluster_start(struct bench_cluster *c, int brokers, int controllers, const char *data) {
    char program[4200], number[16], quorum[16];
    char *args[ARGS_MAX] = {program, (char *)"cluster", (char *)"--nodes", number, (char *)"--base-port", (char *)"0", (char *)"--admin", (char *)"0",
                            (char *)"--until-eof",
                            (char *)"--set", (char *)"log.segment.delete.delay.ms=0", /* what was measured makes room for what comes */
                            (char *)"--set", (char *)"auto.create.topics.enable=false"};
    size_t n = 13;
    int rc = find_kbroker(program, sizeof program), in[2], out[2];
    if (rc != CLI_OK) return rc;
    snprintf(number, sizeof number, "%d", brokers);
    snprintf(quorum, sizeof quorum, "%d", controllers);
    if (controllers > 0) args[n++] = (char *)"--controllers", args[n++] = quorum;
    args[n++] = data ? (char *)"--data" : (char *)"--ephemeral";
    if (data) args[n++] = (char *)(uintptr_t)data;
    *c = (struct bench_cluster){.keep = -1, .errors = memfd_create("kbroker", MFD_CLOEXEC)};
    if (c->errors < 0 || pipe2(in, O_CLOEXEC) != 0) return cli_fail("bench: cluster", KC_NO_MEMORY, NULL);
    c->keep = in[1];
    int err = pipe2(out, O_CLOEXEC) != 0 ? errno : 0;
    if (!err) {
        err = spawn(c, args, in[0], out[1]);
        close(out[1]);
    }
    close(in[0]);
    if (err) {
        fprintf(stderr, "kc: bench: %s cannot be started: %s\n", program, strerror(err));
        bench_cluster_stop(c);
        return CLI_FAILURE;
    }
    rc = wait_ready(c, out[0]);
    if (rc == CLI_OK) fcntl(out[0], F_SETFL, O_NONBLOCK);
    close(out[0]);
    return rc;
}

void bench_cluster_stop(struct bench_cluster *c) {
    if (c->keep >= 0 && c->pid > 0) close(c->keep);
    if (c->pid > 0) {
        int64_t until = cli_now_us() + STOP_MS * 1000LL;
        while (waitpid(c->pid, NULL, WNOHANG) == 0) {
            if (cli_now_us() > until) kill(c->pid, SIGKILL); /* its nodes die with it */
            cli_pause(LOOK_MS * 1000LL / 4);
        }
    } else if (c->keep > 0) {
        close(c->keep);
    }
    if (c->errors > 0) close(c->errors);
    *c = (struct bench_cluster){.keep = -1, .errors = -1};
}

/* ---- Orders ---- */

int bench_cluster_ask(const struct bench_cluster *c, const char *what, const int *ids, int count) {
    char body[200], text[500];
    int n = snprintf(body, sizeof body, "{\"do\":\"%s\",\"ids\":[", what);
    for (int i = 0; i < count; i++) n += snprintf(body + n, sizeof body - (size_t)n, "%s%d", i ? "," : "", ids[i]);
    n += snprintf(body + n, sizeof body - (size_t)n, "]}");
    int size = snprintf(text, sizeof text,
                        "POST /nodes HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
                        n, body);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(c->admin_port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a) == 0 && send(fd, text, (size_t)size, MSG_NOSIGNAL) == size) return fd;
    fprintf(stderr, "kc: bench: the cluster's admin port %u does not answer: %s\n", c->admin_port, strerror(errno));
    show_errors(c);
    if (fd >= 0) close(fd);
    return -1;
}

int bench_cluster_answered(int fd) {
    struct pollfd p = {.fd = fd, .events = POLLRDHUP}; /* it closes behind its answer */
    if (poll(&p, 1, 0) == 0) return 0;
    char text[2048];
    ssize_t n = recv(fd, text, sizeof text - 1, MSG_DONTWAIT);
    text[n > 0 ? n : 0] = 0;
    const char *head_end = strstr(text, "\r\n\r\n"), *status = strchr(text, ' ');
    bool ok = status && !strncmp(status, " 200", 4);
    if (!ok) fprintf(stderr, "kc: bench: the cluster did not do it: %s\n", head_end ? head_end + 4 : "it gave no answer");
    close(fd);
    return ok ? 1 : -1;
}

int bench_cluster_do(const struct bench_cluster *c, const char *what, const int *ids, int count) {
    int fd = bench_cluster_ask(c, what, ids, count), done = fd < 0 ? -1 : 0;
    int64_t until = cli_now_us() + ORDER_MS * 1000LL;
    while (done == 0 && !cli_interrupted && cli_now_us() < until) {
        cli_pause(LOOK_MS * 1000LL / 10);
        done = bench_cluster_answered(fd);
    }
    if (done == 0) {
        close(fd);
        fprintf(stderr, "kc: bench: %s\n", cli_interrupted ? "interrupted" : "the cluster did not do what it was asked in time");
    }
    return done == 1 ? CLI_OK : CLI_FAILURE;
}
