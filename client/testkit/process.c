/* process.c - the child of a test: started by posix_spawn, with a socket at its standard input that it lives as long as, a pipe at its output, and its
 * standard error in a file in memory. Called by cluster.c. Contract: testkit.h.
 */
#include "testkit.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

/* ---- Time ---- */

int64_t kt_now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

int64_t kt_deadline(int64_t timeout_us, int64_t otherwise_s) {
    if (timeout_us == 0) timeout_us = otherwise_s * 1000000;
    int64_t now = kt_now_us();
    return timeout_us < 0 || timeout_us > INT64_MAX - now ? INT64_MAX : now + timeout_us;
}

int kt_poll_ms(int64_t deadline_us) {
    if (deadline_us == INT64_MAX) return -1;
    int64_t left = deadline_us - kt_now_us();
    return left <= 0 ? 0 : left > INT64_C(1000000000) ? 1000000 : (int)((left + 999) / 1000);
}

void kt_sleep_ms(int64_t ms) {
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

/* ---- Start ---- */

void kt_process_init(struct kt_process *p) {
    *p = (struct kt_process){.in = -1, .out = -1, .log = -1};
}

static void close_one(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

/* Above the standard ones, which a test may have closed: what is put in their place would shut others out. */
static int lift(int *fd) {
    if (*fd > 2 || *fd < 0) return *fd;
    int high = fcntl(*fd, F_DUPFD_CLOEXEC, 3);
    close(*fd);
    return *fd = high;
}

static int make_pipe(int ends[2]) {
    if (pipe2(ends, O_CLOEXEC) != 0) return errno;
    return lift(&ends[0]) < 0 || lift(&ends[1]) < 0 ? errno : 0;
}

/* For the input: it can be ended though a forked child of the test has the descriptor, too. */
static int make_pair(int ends[2]) {
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return errno;
    return lift(&ends[0]) < 0 || lift(&ends[1]) < 0 ? errno : 0;
}

/* A group of its own: Ctrl-C at the terminal is the test's to handle, and the child goes when the test does. Signals as in a new session. */
static int spawn(struct kt_process *p, const char *const *argv, int in, int out, int log) {
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    int err = posix_spawn_file_actions_init(&files);
    if (err) return err;
    err = posix_spawnattr_init(&attr);
    if (!err) {
        posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
        posix_spawnattr_setpgroup(&attr, 0);
        posix_spawnattr_setsigmask(&attr, &none);
        posix_spawnattr_setsigdefault(&attr, &all);
        err = posix_spawn_file_actions_adddup2(&files, in, 0);
        if (!err) err = posix_spawn_file_actions_adddup2(&files, out, 1);
        if (!err && log >= 0) err = posix_spawn_file_actions_adddup2(&files, log, 2);
        if (!err) err = posix_spawn(&p->pid, argv[0], &files, &attr, (char *const *)(uintptr_t)argv, environ);
        posix_spawnattr_destroy(&attr);
    }
    posix_spawn_file_actions_destroy(&files);
    if (err) p->pid = 0;
    return err;
}

int kt_process_start(struct kt_process *p, const char *const *argv, bool show_log) {
    int in[2] = {-1, -1}, out[2] = {-1, -1};
    kt_process_init(p);
    int err = make_pair(in);
    if (!err) err = make_pipe(out);
    if (!err && !show_log) {
        p->log = memfd_create("kbroker", MFD_CLOEXEC);
        if (lift(&p->log) < 0) err = errno;
    }
    if (!err) err = spawn(p, argv, in[0], out[1], p->log);
    close_one(&in[0]);
    close_one(&out[1]);
    p->in = in[1];
    p->out = out[0];
    if (err) kt_process_close(p);
    return err;
}

/* ---- What it says ---- */

int kt_process_line(struct kt_process *p, int64_t deadline_us, const char **text) {
    for (;;) {
        struct pollfd ready = {.fd = p->out, .events = POLLIN};
        int n = poll(&ready, 1, kt_poll_ms(deadline_us));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return -1;
        char c;
        ssize_t got = read(p->out, &c, 1); /* a few short lines in the whole life of a cluster */
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return 0;
        if (c != '\n') {
            if (p->line_size + 1 < sizeof p->line) p->line[p->line_size++] = c;
            continue;
        }
        p->line[p->line_size] = 0;
        p->line_size = 0;
        *text = p->line;
        return 1;
    }
}

void kt_process_drain(struct kt_process *p) {
    char text[4096];
    struct pollfd ready = {.fd = p->out, .events = POLLIN};
    while (p->out >= 0 && poll(&ready, 1, 0) == 1 && read(p->out, text, sizeof text) > 0) continue;
}

const char *kt_process_said(const struct kt_process *p, char text[KT_LOG_SHOWN + 2]) {
    off_t size = p->log >= 0 ? lseek(p->log, 0, SEEK_END) : 0;
    off_t from = size > KT_LOG_SHOWN ? size - KT_LOG_SHOWN : 0;
    ssize_t n = size > 0 ? pread(p->log, text + 1, KT_LOG_SHOWN, from) : 0;
    char *begin = text + 1;
    if (n <= 0) return "";
    while (n > 0 && begin[n - 1] == '\n') n--;
    begin[n] = 0;
    if (from > 0 && memchr(begin, '\n', (size_t)n)) begin = strchr(begin, '\n') + 1; /* whole lines */
    begin[-1] = '\n';
    return begin - 1;
}

/* ---- Its end ---- */

/* true: it has been waited for. The child is reaped by others where the test waits for any: then nobody knows how it ended. */
static bool reap(struct kt_process *p, int options) {
    int status;
    pid_t pid;
    do pid = waitpid(p->pid, &status, options);
    while (pid < 0 && errno == EINTR);
    if (pid == 0) return false;
    p->status = pid < 0 ? 0 : status;
    p->pid = 0;
    return true;
}

bool kt_process_ended(struct kt_process *p, int64_t deadline_us) {
    for (int64_t ms = 1; p->pid != 0; ms = ms < 20 ? 2 * ms : ms) {
        if (reap(p, WNOHANG)) break;
        if (kt_now_us() >= deadline_us) return false;
        kt_process_drain(p);
        kt_sleep_ms(ms);
    }
    return true;
}

void kt_process_end_input(struct kt_process *p) {
    if (p->in >= 0) shutdown(p->in, SHUT_WR);
}

void kt_process_kill(struct kt_process *p) {
    if (p->pid == 0) return;
    kill(p->pid, SIGKILL);
    (void)reap(p, 0);
}

void kt_process_close(struct kt_process *p) {
    close_one(&p->in);
    close_one(&p->out);
    close_one(&p->log);
}

const char *kt_process_fate(const struct kt_process *p, char *text, size_t size) {
    if (p->pid != 0) snprintf(text, size, "it runs");
    else if (WIFSIGNALED(p->status)) snprintf(text, size, "killed by signal %d", WTERMSIG(p->status));
    else snprintf(text, size, "exit status %d", WEXITSTATUS(p->status));
    return text;
}
