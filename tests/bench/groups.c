/* groups - group members and committers without any client behind them: raw requests, one connection a member. For run.py's section `groups`.
 *
 *   groups rebalance HOST PORT GROUP MEMBERS           all but one are in; from the last one's JoinGroup until everyone has an assignment
 *   groups idle HOST PORT GROUPS MEMBERS SECONDS       members that say every 3 s that they are alive; prints "ready" before, waits for stdin's end
 *   groups echo CONNECTIONS SECONDS                    the kernel's share of the above: as many bytes received and sent by a bare loop, and its CPU
 *   groups commits HOST PORT TOPIC PARTS MEMBERS RATE SECONDS   each commits PARTS partitions at a time, RATE offsets a second together (0: all it can)
 *   groups fetch HOST PORT TOPIC SECONDS               a Fetch of one record each millisecond: its latency
 * Each prints one line of JSON. Members notice a rebalance by their heartbeats, here every 10 ms.
 */
#include "raw.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>

enum { FETCH = 1, OFFSET_COMMIT = 8, FIND = 10, JOIN = 11, HEARTBEAT = 12, SYNC = 14, MEMBER_ID_REQUIRED = 79 };

/* ---- Members ---- */

struct member {
    int fd;
    const char *group;
    char id[80];
    int32_t generation;
    int leads;
    char (*members)[80];
    int count;
};
static struct out o;

static void find(const char *group) {
    for (int tries = 0;; tries++) {
        int fd = dial();
        begin(&o, FIND, 1);
        put_str(&o, group);
        put(&o, "", 1);
        send_all(fd, &o);
        const uint8_t *p = answer(fd) + 4;
        int code = get16(&p);
        close(fd);
        if (code == 0) return;
        if (tries == 100) die("there is no coordinator");
        usleep(50000);
    }
}
static void join_send(struct member *m) {
    begin(&o, JOIN, 5);
    put_str(&o, m->group);
    put32(&o, 30000);
    put32(&o, 60000);
    put_str(&o, m->id);
    put_str(&o, NULL);
    put_str(&o, "consumer");
    put32(&o, 1);
    put_str(&o, "range");
    static const uint8_t subscription[] = "\0\0\0\0\0\1\0\5bench\xff\xff\xff\xff";
    put32(&o, sizeof subscription - 1);
    put(&o, subscription, sizeof subscription - 1);
    send_all(m->fd, &o);
}
static int join_take(struct member *m) {
    const uint8_t *p = answer(m->fd) + 4;
    char leader[80];
    int code = get16(&p);
    m->generation = get32(&p);
    get_str(&p, NULL, 0);
    get_str(&p, leader, sizeof leader);
    get_str(&p, m->id, sizeof m->id);
    m->leads = code == 0 && strcmp(leader, m->id) == 0;
    m->count = get32(&p);
    if (!m->leads) return code;
    m->members = realloc(m->members, (size_t)m->count * sizeof *m->members);
    for (int i = 0; i < m->count; i++) {
        get_str(&p, m->members[i], sizeof m->members[i]);
        get_str(&p, NULL, 0);
        p += 4 + get32(&(const uint8_t *){p});
    }
    return code;
}
static void sync_send(struct member *m) {
    static const uint8_t share[100];
    begin(&o, SYNC, 3);
    put_str(&o, m->group);
    put32(&o, m->generation);
    put_str(&o, m->id);
    put_str(&o, NULL);
    put32(&o, m->leads ? m->count : 0);
    for (int i = 0; m->leads && i < m->count; i++) {
        put_str(&o, m->members[i]);
        put32(&o, sizeof share);
        put(&o, share, sizeof share);
    }
    send_all(m->fd, &o);
}
static int code_take(struct member *m) {
    const uint8_t *p = answer(m->fd) + 4;
    return get16(&p);
}
static void beat_send(struct member *m) {
    begin(&o, HEARTBEAT, 3);
    put_str(&o, m->group);
    put32(&o, m->generation);
    put_str(&o, m->id);
    put_str(&o, NULL);
    send_all(m->fd, &o);
}
static void must(int code, const char *what) {
    if (code == 0) return;
    fprintf(stderr, "groups: %s: error %d\n", what, code);
    exit(1);
}
/* All of them, from nothing: the first alone, then the others, then all together. */
static void form(struct member *m, int n) {
    for (int i = 0; i < n; i++) {
        m[i].fd = dial();
        join_send(&m[i]);
        int code = join_take(&m[i]);
        if (code != MEMBER_ID_REQUIRED) must(code ? code : -1, "JoinGroup without an id");
        if (i == 0) {
            join_send(&m[0]);
            must(join_take(&m[0]), "JoinGroup");
        }
    }
    for (int i = n - 1; i >= 0; i--) join_send(&m[i]);
    for (int i = 0; i < n; i++) must(join_take(&m[i]), "JoinGroup");
    for (int i = 0; i < n; i++) sync_send(&m[i]);
    for (int i = 0; i < n; i++) must(code_take(&m[i]), "SyncGroup");
}

/* ---- Modes ---- */

static int readable(int fd) {
    return poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 0) > 0;
}

static void rebalance(const char *group, int n) {
    struct member *m = calloc((size_t)n, sizeof *m);
    for (int i = 0; i < n; i++) m[i].group = group;
    find(group);
    form(m, n - 1);
    struct member *last = &m[n - 1];
    last->fd = dial();
    join_send(last);
    (void)join_take(last);
    int *state = calloc((size_t)n, sizeof *state), done = 0; /* 0 beats, 1 joins, 2 syncs, 3 done */
    double start = now_ms(), noticed = 0, *beat_at = calloc((size_t)n, sizeof *beat_at);
    int *waits = calloc((size_t)n, sizeof *waits);
    join_send(last);
    state[n - 1] = waits[n - 1] = 1;
    while (done < n)
        for (int i = 0; i < n; i++) {
            if (state[i] == 0 && !waits[i] && now_ms() >= beat_at[i]) {
                beat_send(&m[i]);
                waits[i] = 1;
            }
            if (!waits[i] || !readable(m[i].fd)) continue;
            waits[i] = 0;
            if (state[i] == 0) {
                beat_at[i] = now_ms() + 10;
                if (code_take(&m[i]) == 0) continue;
                noticed = now_ms() - start;
                join_send(&m[i]);
            } else if (state[i] == 1) {
                must(join_take(&m[i]), "JoinGroup");
                sync_send(&m[i]);
            } else {
                must(code_take(&m[i]), "SyncGroup");
                done++;
            }
            waits[i] = ++state[i] < 3;
        }
    double all = now_ms() - start;
    printf("{\"records\": 1, \"ms\": %.3f, \"noticed_ms\": %.3f, \"beyond_ms\": %.3f}\n", all, noticed, all - noticed);
}

static void idle(int groups, int n, double seconds) {
    int total = groups * n, fd = epoll_create1(0);
    struct member *m = calloc((size_t)total, sizeof *m);
    for (int g = 0; g < groups; g++) {
        char name[32];
        snprintf(name, sizeof name, "idle-%d-%d", getpid(), g);
        if (g == 0) find(name);
        for (int i = 0; i < n; i++) m[g * n + i].group = strdup(name);
        form(&m[g * n], n);
    }
    for (int i = 0; i < total; i++) {
        struct epoll_event e = {.events = EPOLLIN, .data.u32 = (uint32_t)i};
        if (epoll_ctl(fd, EPOLL_CTL_ADD, m[i].fd, &e)) die("epoll");
    }
    puts("ready");
    fflush(stdout);
    double start = now_ms(), period = 3000;
    long beats = 0, bad = 0, sent = 0;
    while (now_ms() - start < seconds * 1000) {
        struct epoll_event e[256];
        for (; sent < (long)((now_ms() - start) / period * total); sent++) beat_send(&m[sent % total]);
        int k = epoll_wait(fd, e, 256, 1);
        for (int i = 0; i < k; i++) {
            beats++;
            bad += code_take(&m[e[i].data.u32]) != 0;
        }
    }
    printf("{\"records\": %ld, \"failed\": %ld, \"members\": %d}\n", beats, bad, total);
    fflush(stdout);
    while (getchar() != EOF) {}
}

/* What the kernel alone takes for so many heartbeats: a process that receives and sends as many bytes, and knows no protocol. */
static void echo(int total, double seconds) {
    socklen_t size = sizeof address;
    enum { REQUEST = 90, ANSWER = 14 };
    char bytes[4096] = {0};
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(listener, (void *)&address, size) || getsockname(listener, (void *)&address, &size) || listen(listener, 1000)) die("listen");
    pid_t child = fork();
    if (child < 0) die("fork");
    int epoll = epoll_create1(0);
    int *fds = calloc((size_t)total, sizeof *fds);
    for (int i = 0; i < total; i++) {
        fds[i] = child ? accept(listener, NULL, NULL) : dial();
        setsockopt(fds[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        struct epoll_event e = {.events = EPOLLIN, .data.u32 = (uint32_t)i};
        if (fds[i] < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, fds[i], &e)) die("epoll");
    }
    double start = now_ms(), period = 3000;
    clock_t cpu = clock();
    for (long sent = 0; now_ms() - start < seconds * 1000;) {
        struct epoll_event e[256];
        for (; !child && sent < (long)((now_ms() - start) / period * total); sent++)
            if (send(fds[sent % total], bytes, REQUEST, MSG_NOSIGNAL) < 0) die("send");
        int k = epoll_wait(epoll, e, 256, child ? 100 : 1);
        for (int i = 0; i < k; i++)
            if (recv(fds[e[i].data.u32], bytes, sizeof bytes, 0) > 0 && child) (void)!send(fds[e[i].data.u32], bytes, ANSWER, MSG_NOSIGNAL);
    }
    if (!child) exit(0);
    printf("{\"records\": 1, \"cpu_percent\": %.3f}\n", (double)(clock() - cpu) / CLOCKS_PER_SEC / seconds * 100);
}

static void commits(const char *topic, int parts, int n, double rate, double seconds) {
    struct pollfd *p = calloc((size_t)n, sizeof *p);
    char (*groups)[32] = calloc((size_t)n, sizeof *groups);
    long accepted = 0, failed = 0, sent = 0;
    for (int i = 0; i < n; i++) {
        snprintf(groups[i], sizeof groups[i], "commits-%d-%d", getpid(), i);
        p[i] = (struct pollfd){.fd = dial(), .events = POLLIN};
    }
    find(groups[0]);
    char *busy = calloc((size_t)n, 1);
    double start = now_ms(), end = start;
    for (long next = 0; (end = now_ms()) - start < seconds * 1000;) {
        long due = rate > 0 ? (long)((end - start) / 1000 * rate) : sent + (long)n * parts;
        for (int tried = 0; tried < n && sent < due; tried++, next++) {
            int i = (int)(next % n);
            if (busy[i]) continue;
            begin(&o, OFFSET_COMMIT, 6);
            put_str(&o, groups[i]);
            put32(&o, -1);
            put_str(&o, "");
            put32(&o, 1);
            put_str(&o, topic);
            put32(&o, parts);
            for (int k = 0; k < parts; k++) {
                put32(&o, k);
                put64(&o, sent);
                put32(&o, -1);
                put_str(&o, "");
            }
            send_all(p[i].fd, &o);
            busy[i] = 1;
            sent += parts;
        }
        if (poll(p, (nfds_t)n, 1) <= 0) continue;
        for (int i = 0; i < n; i++) {
            if (!(p[i].revents & POLLIN)) continue;
            const uint8_t *q = answer(p[i].fd) + 4 + 4;
            get_str(&q, NULL, 0);
            int32_t count = get32(&q);
            for (int32_t k = 0; k < count; k++) {
                q += 4;
                int code = get16(&q);
                accepted += code == 0;
                failed += code != 0;
            }
            busy[i] = 0;
        }
    }
    printf("{\"records\": %ld, \"failed\": %ld, \"commits_per_s\": %.0f}\n", accepted, failed, (double)accepted / (end - start) * 1000);
}

static void fetch(const char *topic, double seconds) {
    size_t cap = (size_t)(seconds * 1000) + 1000, n = 0;
    double *v = calloc(cap, sizeof *v), start = now_ms();
    int fd = dial();
    while (now_ms() - start < seconds * 1000 && n < cap) {
        double at = now_ms();
        begin(&o, FETCH, 4);
        put32(&o, -1);
        put32(&o, 0);
        put32(&o, 1);
        put32(&o, 1000);
        put(&o, "", 1);
        put32(&o, 1);
        put_str(&o, topic);
        put32(&o, 1);
        put32(&o, 0);
        put64(&o, 0);
        put32(&o, 1000);
        send_all(fd, &o);
        answer(fd);
        v[n++] = (now_ms() - at) * 1000;
        double left = 1 - (now_ms() - at);
        if (left > 0) usleep((useconds_t)(left * 1000));
    }
    qsort(v, n, sizeof *v, by_value);
    printf("{\"records\": %zu, \"p50_us\": %.1f, \"p99_us\": %.1f}\n", n, v[n / 2], v[n * 99 / 100]);
}

int main(int argc, char **argv) {
    struct rlimit files;
    if (argc < 4) return 2;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    if (strcmp(argv[1], "echo") == 0) {
        echo(atoi(argv[2]), atof(argv[3]));
        return 0;
    }
    if (argc < 6) return 2;
    address_set(argv[2], argv[3]);
    if (strcmp(argv[1], "rebalance") == 0)
        rebalance(argv[4], atoi(argv[5]));
    else if (strcmp(argv[1], "idle") == 0 && argc == 7)
        idle(atoi(argv[4]), atoi(argv[5]), atof(argv[6]));
    else if (strcmp(argv[1], "commits") == 0 && argc == 9)
        commits(argv[4], atoi(argv[5]), atoi(argv[6]), atof(argv[7]), atof(argv[8]));
    else if (strcmp(argv[1], "fetch") == 0)
        fetch(argv[4], atof(argv[5]));
    else
        return 2;
    return 0;
}
