/* main.c - the kbroker program: command line, data folder and its lock, one node in the real shell, signals.
 *
 * Calls shell_options (command line), shell_net, shell_link, shell_disk, admin_http, node; `kbroker cluster` is cluster's, `kbroker fault` admin_http_ask's,
 * `kbroker explain` shell_explain's, `kbroker print` shell_print's.
 * The loop's turns end in kb_shell_turn.
 */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "admin_http.h"
#include "cluster.h"
#include "shell_command.h"
#include "shell_options.h"
#include "shell_parts.h"
#include "shell_snapshot.h"
#include "shell_timer.h"

enum { FLUSH_US = 1000000, SPINS_MAX = 1000, BACKLOG = 1024 };

struct run {
    struct kb_shell shell;
    struct kb_options options;
    struct kb_logger logger;
    struct kb_admin *admin;
    struct kb_shell_record *record;
    struct kc_shell_timer timer;
    uv_signal_t signals[2];
    uv_timer_t again_timer;
    bool accepting, ready, stopping, ended;
    bool again; /* ends to start again with what was restored */
    int64_t stopped_us;
    char host[256];
    uint16_t port;
    int lock_fd;
    int exit_code;
    int32_t open_files_max;
    uint64_t seed;
};

static void print_log(void *ctx, enum kb_level level, const char *text) {
    (void)ctx;
    static const char *const names[] = {"DEBUG", "INFO", "WARN", "ERROR"};
    struct kb_now now = kb_shell_now();
    time_t s = (time_t)(now.wall_ms / 1000);
    struct tm tm;
    char when[32];
    gmtime_r(&s, &tm);
    strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%S", &tm);
    fprintf(stderr, "%s.%03dZ %-5s %s\n", when, (int)(now.wall_ms % 1000), names[level], text);
}

/* ---- Turns ---- */

static void timer_fired(void *ctx) {
    kb_shell_turn(&((struct run *)ctx)->shell);
}

static void end(struct run *r, int code) {
    if (r->ended) return;
    r->ended = true;
    r->exit_code = code;
    uv_stop(r->shell.loop);
}

static void accept_all(struct run *r) {
    const struct kb_config *c = r->options.config;
    r->accepting = true;
    kb_shell_net_accept(r->shell.net,
                        kb_config_is_set(c, "socket.send.buffer.bytes") ? (int)kb_config_int(c, "socket.send.buffer.bytes") : -1,
                        kb_config_is_set(c, "socket.receive.buffer.bytes") ? (int)kb_config_int(c, "socket.receive.buffer.bytes") : -1);
}

static void say_ready(struct run *r) {
    r->ready = true;
    printf(strchr(r->host, ':') ? "ready [%s]:%u\n" : "ready %s:%u\n", r->host, r->port);
    fflush(stdout);
}

static void follow_state(struct run *r) {
    int64_t now = r->shell.now.mono_us;
    if (!r->accepting && kb_node_accepts(r->shell.node)) accept_all(r);
    switch (kb_node_state(r->shell.node)) {
    case KB_NODE_READY:
        if (!r->ready) say_ready(r);
        return;
    case KB_NODE_FAILED:
        end(r, 1);
        return;
    case KB_NODE_STOPPED:
        if (r->stopped_us == 0) r->stopped_us = now;
        if (kb_shell_net_flushed(r->shell.net) || now - r->stopped_us >= FLUSH_US)
            end(r, 0);
        else
            kc_shell_timer_at(&r->timer, r->stopped_us + FLUSH_US);
        return;
    default:
        return;
    }
}

void kb_shell_turn(struct kb_shell *s) {
    struct run *r = KW_CONTAINER_OF(s, struct run, shell);
    if (!s->node) return;
    bool more = true;
    for (int i = 0; more && i < SPINS_MAX; i++) {
        s->now = kb_shell_now();
        more = kb_shell_disk_bring(s->disk); /* before the core looks at what is to be done: what was written has its consequences at once */
        kb_node_tick(s->node, s->now);
        more = kb_shell_disk_run(s->disk) || more;
        more = kb_shell_net_run(s->net) || more;
        more = kb_shell_link_run(s->links) || more;
    }
    kc_shell_timer_at(&r->timer, more ? s->now.mono_us : kb_node_deadline(s->node));
    follow_state(r);
}

static void again_now(uv_timer_t *t) {
    end(t->data, 0);
}

void kb_shell_restart(struct kb_shell *s) {
    enum { ANSWER_MS = 20 }; /* whoever asked for it is to hear that it comes */
    struct run *r = KW_CONTAINER_OF(s, struct run, shell);
    if (r->again || r->stopping) return;
    r->again = true;
    kb_say(&r->logger, KB_INFO, "a snapshot was restored: this run ends as if it were killed, and the next one begins with it");
    uv_timer_init(s->loop, &r->again_timer);
    r->again_timer.data = r;
    uv_timer_start(&r->again_timer, again_now, ANSWER_MS, 0);
}

static void signalled(uv_signal_t *h, int number) {
    struct run *r = h->data;
    if (r->stopping) _exit(1); /* the second one means now */
    r->stopping = true;
    r->again = false;
    kb_say(&r->logger, KB_INFO, "%s: stopping (once more: at once, and the next start recovers)",
           number == SIGINT ? "interrupt" : "termination");
    kb_node_stop(r->shell.node, kb_shell_now());
    kb_shell_turn(&r->shell);
}

/* ---- The data folder ---- */

/* Both kinds of lock: flock for our own, fcntl since that is what Apache Kafka takes on the same file. */
static bool lock_folder(struct run *r, const char *dir) {
    char path[4200], pid[32] = "";
    int err = kb_command_make_folder(dir);
    if (err != 0) {
        kb_say(&r->logger, KB_ERROR, "the data folder %s cannot be made: %s; choose another with --data DIR", dir, strerror(err));
        return false;
    }
    snprintf(path, sizeof(path), "%s/.lock", dir);
    r->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (r->lock_fd < 0) {
        kb_say(&r->logger, KB_ERROR, "%s cannot be opened: %s; make the data folder writable, or choose another with --data DIR", path,
               strerror(errno));
        return false;
    }
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (flock(r->lock_fd, LOCK_EX | LOCK_NB) != 0 || fcntl(r->lock_fd, F_SETLK, &whole) != 0) {
        ssize_t n = pread(r->lock_fd, pid, sizeof(pid) - 1, 0);
        pid[n > 0 ? n : 0] = 0;
        pid[strcspn(pid, "\n")] = 0;
        kb_say(
            &r->logger, KB_ERROR,
            "the data folder %s is in use by another broker (process %s; lock %s): stop that one, or choose another folder with --data DIR",
            dir, pid[0] ? pid : "unknown", path);
        return false;
    }
    int n = snprintf(pid, sizeof(pid), "%d\n", (int)getpid());
    if (ftruncate(r->lock_fd, 0) != 0 || pwrite(r->lock_fd, pid, (size_t)n, 0) != n)
        kb_say(&r->logger, KB_WARN, "%s cannot be written (%s): a second broker will not be able to name this one", path, strerror(errno));
    return true;
}

/* As many descriptors as the system allows: one a connection and one a log that is written to, and a share for old segments. */
static int32_t raise_descriptors(void) {
    enum { ENOUGH = 1 << 20, SHARE = 4, LEAST = 16, MOST = 1024 };
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l) != 0) return 0;
    if (l.rlim_cur < l.rlim_max) {
        struct rlimit more = {.rlim_cur = KW_MIN(l.rlim_max, (rlim_t)ENOUGH), .rlim_max = l.rlim_max};
        if (more.rlim_cur > l.rlim_cur && setrlimit(RLIMIT_NOFILE, &more) == 0) l = more;
    }
    return (int32_t)KW_MAX(KW_MIN(l.rlim_cur / SHARE, (rlim_t)MOST), (rlim_t)LEAST);
}

/* A restore that was interrupted, or for which this run makes room, is finished. */
static bool finish_restore(struct run *r) {
    struct kb_failure f;
    if (kb_restore_finish(kb_config_log_dir(r->options.config), !r->options.no_sync, &f) == 0) return true;
    kb_say(&r->logger, KB_ERROR, "%s", f.text);
    return false;
}

/* ---- Putting it together ---- */

static bool listen_all(struct run *r) {
    struct kb_listener l[16];
    const struct kb_config *c = r->options.config;
    size_t n = kb_config_listeners(c, false, l, KW_COUNTOF(l));
    if (!kb_config_is_single(c) && n < KW_COUNTOF(l)) n += kb_config_controller_listeners(c, l + n, KW_COUNTOF(l) - n);
    /* Kafka's default of 50 makes a burst of clients wait a second each (dropped SYNs): only an explicit value is taken. */
    int backlog = kb_config_is_set(c, "socket.listen.backlog.size") ? (int)kb_config_int(c, "socket.listen.backlog.size") : BACKLOG;
    for (size_t i = 0; i < n && i < KW_COUNTOF(l); i++) {
        char host[256], text[800];
        uint16_t got;
        snprintf(host, sizeof(host), "%.*s", (int)l[i].host.len, l[i].host.p);
        uint16_t port = i == 0 && r->port != 0 ? r->port : l[i].port; /* of the run before, where it drew one */
        if (kb_shell_net_listen(r->shell.net, host, port, backlog, &got, text, sizeof(text)) != 0) {
            kb_say(&r->logger, KB_ERROR, "%s", text);
            return false;
        }
        if (i > 0) continue;
        bool any = host[0] == 0 || strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0;
        snprintf(r->host, sizeof(r->host), "%s", any ? "127.0.0.1" : host);
        r->port = got;
    }
    if (n == 0) kb_say(&r->logger, KB_ERROR, "listeners names no address to listen on");
    return n > 0;
}

static const char *read_boot_id(char *buf, size_t size) {
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, buf, size - 1) : -1;
    if (fd >= 0) close(fd);
    buf[n > 0 ? n : 0] = 0;
    buf[strcspn(buf, "\n")] = 0;
    return buf[0] ? buf : NULL;
}

static bool make_node(struct run *r) {
    char boot_id[64];
    struct kb_node_options o = {.config = r->options.config,
                                .seed = r->seed,
                                .logger = r->logger,
                                .faults_json = r->options.faults_json,
                                .port = r->port,
                                .boot_id = read_boot_id(boot_id, sizeof(boot_id)),
                                .open_files_max = r->open_files_max,
                                .ahead_ms = kb_shell_clock_ahead_ms(),
                                .ephemeral = r->options.no_sync};
    if (r->options.record)
        o.recorder = kb_shell_record_new(r->options.record, (int32_t)kb_config_int(o.config, "node.id"), &r->logger, &r->record);
    kw_err err = kb_node_new(&o, &r->shell.node);
    if (err == KW_OK) err = kb_node_start(r->shell.node, kb_shell_now());
    if (err == KW_ENOMEM) kb_say(&r->logger, KB_ERROR, "out of memory");
    return err == KW_OK;
}

static void start_signals(struct run *r) {
    static const int numbers[] = {SIGTERM, SIGINT};
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file at its size limit (ulimit -f) is a full disk to it, no more */
    for (size_t i = 0; i < KW_COUNTOF(numbers); i++) {
        uv_signal_init(r->shell.loop, &r->signals[i]);
        r->signals[i].data = r;
        uv_signal_start(&r->signals[i], signalled, numbers[i]);
    }
}

static bool start_admin(struct run *r) {
    char text[600];
    const struct kb_config *c = r->options.config;
    if (kb_admin_new(&r->shell, kb_config_log_dir(c), kb_config_get(c, "admin.listener"), &r->admin, text, sizeof(text)) == 0) return true;
    kb_say(&r->logger, KB_ERROR, "%s", text);
    return false;
}

static void close_handle(uv_handle_t *h, void *arg) {
    (void)arg;
    if (!uv_is_closing(h)) uv_close(h, NULL);
}

static void finish_disk(struct kb_shell *s) {
    while (kb_shell_disk_bring(s->disk) || kb_shell_disk_run(s->disk) || kb_node_disk(s->node)->outstanding > 0) usleep(1000);
}

/* Everything in order, so that a leak checker sees what leaks. */
static void take_apart(struct run *r) {
    struct kb_shell *s = &r->shell;
    kb_admin_free(r->admin);
    kb_shell_net_free(s->net);
    kb_shell_link_free(s->links);
    if (s->node) {
        finish_disk(s);
        kb_node_drop(s->node);
        finish_disk(s);
        kb_node_free(s->node);
        s->node = NULL;
    }
    kb_shell_record_free(r->record);
    kb_shell_disk_free(s->disk);
    if (r->timer.fd > 0) kc_shell_timer_close(&r->timer);
    uv_walk(s->loop, close_handle, NULL);
    uv_run(s->loop, UV_RUN_DEFAULT);
    uv_loop_close(s->loop);
}

static int run_node(struct run *r) {
    struct kb_shell *s = &r->shell;
    uv_loop_t loop;
    *s = (struct kb_shell){0};
    r->admin = NULL;
    r->record = NULL;
    r->timer = (struct kc_shell_timer){0};
    r->accepting = r->ready = r->stopping = r->ended = r->again = false;
    r->stopped_us = 0;
    if (uv_loop_init(&loop) != 0) return 1;
    s->loop = &loop;
    s->logger = &r->logger;
    r->exit_code = 1;
    struct kb_shell_disk_options o = {.ephemeral = r->options.no_sync, .inline_write_max = r->options.inline_write_max};
    if (kc_shell_timer_init(&r->timer, &loop, timer_fired, r) != 0 || kb_shell_disk_new(s, &o, &s->disk) != 0 || kb_shell_net_new(s, &s->net) != 0 ||
        kb_shell_link_new(s, &s->links) != 0) {
        kb_say(&r->logger, KB_ERROR, "out of memory or descriptors");
    } else if ((r->lock_fd >= 0 || lock_folder(r, kb_config_log_dir(r->options.config))) && finish_restore(r) && listen_all(r)) {
        start_signals(r);
        if (make_node(r) && start_admin(r)) {
            kb_shell_turn(s);
            if (!r->ended) uv_run(&loop, UV_RUN_DEFAULT);
        }
    }
    take_apart(r);
    return r->exit_code;
}

/* As main does it: nothing is left of what the run before had set. */
static int begin_again(struct run *r, int argc, char **argv) {
    struct kb_options fresh = {0};
    char clock[40];
    snprintf(clock, sizeof(clock), kb_shell_clock_is_virtual() ? "virtual+%lld" : "real", (long long)kb_shell_clock_ahead_ms());
    int code = kb_options_parse(&fresh, argc, argv, &r->logger);
    (void)!kb_shell_clock_set(clock); /* time does not go back */
    fresh.temporary = r->options.temporary;
    r->options.temporary = NULL;
    kb_options_deinit(&r->options);
    r->options = fresh;
    if (code < 0 && r->options.ephemeral && !kb_options_make_temporary(&r->options, &r->logger)) code = 1;
    return code;
}

/* A standard descriptor that is closed would go to the next file that is opened, a log say, and log lines with it. */
static void hold_standard_descriptors(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) /* open gives the lowest that is free */
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0) return;
}

int main(int argc, char **argv) {
    static struct run r;
    hold_standard_descriptors();
    if (argc > 1 && strcmp(argv[1], "cluster") == 0) return kb_cluster_main(argc, argv);
    if (argc > 1 && strcmp(argv[1], "fault") == 0) return kb_admin_ask_main(argc, argv);
    if (argc > 1 && strcmp(argv[1], "snapshot") == 0) return kb_snapshot_ask_main(argc, argv);
    if (argc > 1 && strcmp(argv[1], "print") == 0) return kb_print_main(argc, argv);
    if (argc > 1 && strcmp(argv[1], "explain") == 0) return kb_explain_main(argc, argv);
    mallopt(M_MMAP_THRESHOLD, 256 << 10); /* large blocks go back to the system when they are freed */
    mallopt(M_TRIM_THRESHOLD, 1 << 20);
    mallopt(M_ARENA_MAX, 2);
    r.logger = (struct kb_logger){.fn = print_log, .level = KB_INFO};
    r.lock_fd = -1;
    uint64_t seed[3];
    if (getrandom(seed, sizeof(seed), 0) != sizeof(seed)) {
        kb_say(&r.logger, KB_ERROR, "the system gives no random numbers");
        return 1;
    }
    r.open_files_max = raise_descriptors();
    kw_map_seed(seed[1], seed[2]); /* before any map is filled, and the configuration has some */
    r.seed = seed[0];
    int code = kb_options_parse(&r.options, argc, argv, &r.logger);
    if (code >= 0) return code;
    if (r.options.ephemeral && !kb_options_make_temporary(&r.options, &r.logger)) return 1;
    code = run_node(&r);
    while (r.again && (code = begin_again(&r, argc, argv)) < 0) code = run_node(&r);
    kb_options_deinit(&r.options);
    return code;
}
