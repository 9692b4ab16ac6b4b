/* shell_stand.c - contract: shell_stand.h. */
#include "shell_stand.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shell_snapshot_priv.h"

enum { TRIES = 3000, PAUSE_US = 10000 };

static int open_lock(const char *dir, int flags) {
    char path[4200];
    snprintf(path, sizeof(path), "%s/.lock", dir);
    return open(path, O_RDWR | O_CLOEXEC | flags, 0644);
}

static pid_t holder(int fd) {
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_GETLK, &whole) == 0 && whole.l_type != F_UNLCK ? whole.l_pid : 0;
}

pid_t kb_stand_holder(const char *dir) {
    int fd = open_lock(dir, 0);
    pid_t pid = fd >= 0 ? holder(fd) : 0;
    if (fd >= 0) close(fd);
    return pid;
}

int kb_stand_take(struct kb_stand *s, const char *dir, struct kb_failure *f) {
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    *s = (struct kb_stand){.lock_fd = open_lock(dir, O_CREAT), .watch = -1};
    if (s->lock_fd < 0) return kb_failed(f, 500, "%s/.lock cannot be opened: %s", dir, strerror(errno));
    if (flock(s->lock_fd, LOCK_EX | LOCK_NB) == 0 && fcntl(s->lock_fd, F_SETLK, &whole) == 0) return 0;
    s->pid = holder(s->lock_fd);
    if (s->pid > 0) return 1;
    kb_stand_free(s);
    return kb_failed(f, 409, "%s is in use by a process that cannot be told (it starts or ends this moment, or runs elsewhere): try again", dir);
}

static bool thread_stands(pid_t pid, const char *thread) {
    char path[80], text[600];
    snprintf(path, sizeof(path), "/proc/%d/task/%.20s/stat", (int)pid, thread);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
    if (fd >= 0) close(fd);
    text[n > 0 ? n : 0] = 0;
    const char *state = strrchr(text, ')'); /* behind the name, whatever that is */
    return n <= 0 || !state || state[2] == 'T' || state[2] == 't' || state[2] == 'Z' || state[2] == 'X';
}

static bool all_stand(pid_t pid) {
    char path[40];
    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *dir = opendir(path);
    bool stand = true;
    for (struct dirent *e; dir && stand && (e = readdir(dir));)
        if (e->d_name[0] != '.') stand = thread_stands(pid, e->d_name);
    if (dir) closedir(dir);
    return stand; /* no such process: it does nothing any more */
}

/* Whoever ends this command in the middle must not leave a broker that stands still for ever. */
static int watch(struct kb_stand *s) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return -1;
    s->watcher = fork();
    if (s->watcher == 0) {
        char c;
        close(ends[1]);
        setsid(); /* Ctrl-C is for the command */
        while (read(ends[0], &c, 1) < 0 && errno == EINTR) {}
        kill(s->pid, SIGCONT);
        _exit(0);
    }
    close(ends[0]);
    s->watch = ends[1];
    return s->watcher > 0 ? 0 : -1;
}

int kb_stand_still(struct kb_stand *s, struct kb_failure *f) {
    if (s->pid == 0 || all_stand(s->pid)) return 0; /* it stood before: it is not ours to let it go on */
    if (watch(s) != 0 || kill(s->pid, SIGSTOP) != 0) {
        int err = errno;
        kb_stand_go_on(s);
        return kb_failed(f, 500, "the broker (process %d) cannot be made to stand still: %s", (int)s->pid, strerror(err));
    }
    for (int i = 0; i < TRIES; i++) {
        if (all_stand(s->pid)) return 0;
        usleep(i < 100 ? 100 : PAUSE_US);
    }
    return kb_failed(f, 500, "the broker (process %d) does not come to a stand: is its disk stuck?", (int)s->pid);
}

void kb_stand_go_on(struct kb_stand *s) {
    if (s->watch < 0) return;
    close(s->watch);
    s->watch = -1;
    while (s->watcher > 0 && waitpid(s->watcher, NULL, 0) < 0 && errno == EINTR) {}
}

void kb_stand_free(struct kb_stand *s) {
    kb_stand_go_on(s);
    if (s->lock_fd >= 0) close(s->lock_fd);
    s->lock_fd = -1;
}
