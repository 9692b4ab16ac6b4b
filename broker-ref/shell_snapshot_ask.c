/* shell_snapshot_ask.c - `kbroker snapshot save|restore|list|delete`: of a cluster that runs (over its admin socket), of one that does not, of a single
 * broker's folder.
 *
 * Called by main. Calls shell_snapshot, shell_stand (a broker that runs), admin_http_client, shell_command.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "admin_http_client.h"
#include "admin_http_server.h"
#include "base/base.h"
#include "shell_command.h"
#include "shell_snapshot.h"
#include "shell_stand.h"

enum { WAIT_S = 600, ENDING_TRIES = 100, ENDING_US = 100000, SERVES_TRIES = 6000 };

static const char usage[] = "usage: kbroker snapshot save NAME [--data DIR] [--replace]\n"
                            "       kbroker snapshot restore NAME [--data DIR]\n"
                            "       kbroker snapshot list [--data DIR] [--json]\n"
                            "       kbroker snapshot delete NAME [--data DIR]\n"
                            "\n"
                            "Keeps the whole state of a cluster (or of one broker: kbroker run), running or\n"
                            "not, and brings it back. While it is saved all nodes stand still; what is saved\n"
                            "is what a kill -9 of all at that moment would leave. When it is restored, nodes\n"
                            "that run are killed, and started again on the same ports.\n"
                            "\n"
                            "NAME lies in DIR/snapshots; with a / it is a path of its own.\n"
                            "\n"
                            "  --data DIR   the cluster's folder (./kbroker-cluster), or a broker's\n"
                            "  --replace    save: in place of a snapshot of this name\n"
                            "  --json       list: as JSON\n"
                            "\n"
                            "A new cluster begins with a snapshot: kbroker cluster --from SNAPSHOT\n"
                            "\n"
                            "example:\n"
                            "  kbroker snapshot save loaded --data /tmp/c\n"
                            "  kbroker snapshot restore loaded --data /tmp/c\n";

struct ask {
    const char *verb, *dir;
    char *name; /* a path of the name is absolute: the cluster has another working folder */
    bool replace, json;
};

static bool is(const struct ask *a, const char *verb) {
    return strcmp(a->verb, verb) == 0;
}

/* ---- The command line ---- */

static int take_name(struct ask *a, const char *arg) {
    char *here = arg[0] != '/' && strchr(arg, '/') ? getcwd(NULL, 0) : NULL;
    if (here && asprintf(&a->name, "%s/%s", here, arg) < 0) a->name = NULL;
    if (!here) a->name = strdup(arg);
    free(here);
    return a->name ? -1 : 1;
}

static int parse(struct ask *a, int argc, char **argv) {
    static const char *const verbs[] = {"save", "restore", "list", "delete"};
    for (size_t i = 0; i < KW_COUNTOF(verbs); i++)
        if (strcmp(argv[2], verbs[i]) == 0) a->verb = verbs[i];
    if (!a->verb) return kb_command_wrong("snapshot", kb_command_nearest(argv[2], verbs, KW_COUNTOF(verbs)), "snapshot has no command \"%s\"", argv[2]);
    for (int i = 3; i < argc; i++) {
        const char *arg = argv[i], *data = kb_command_value("--data", argc, argv, &i);
        int code = -1;
        if (data && (!*data || strlen(data) > 4000))
            code = kb_command_wrong("snapshot", NULL, "--data wants a folder");
        else if (data)
            a->dir = data;
        else if (strcmp(arg, "--replace") == 0 && is(a, "save"))
            a->replace = true;
        else if (strcmp(arg, "--json") == 0 && is(a, "list"))
            a->json = true;
        else if (arg[0] == '-' || a->name || is(a, "list"))
            code = kb_command_wrong("snapshot", NULL, "snapshot %s: what is \"%s\"?", a->verb, arg);
        else
            code = take_name(a, arg);
        if (code >= 0) return code;
    }
    return !a->name && !is(a, "list") ? kb_command_wrong("snapshot", NULL, "snapshot %s wants a NAME", a->verb) : -1;
}

/* ---- What is said ---- */

static int say_failure(const struct kb_failure *f) {
    fprintf(stderr, "kbroker: %s\n", f->text);
    return 1;
}

static int say_done(const struct ask *a, int64_t bytes, int64_t ms) {
    printf("%s %s: %lld bytes in %lld ms\n", is(a, "save") ? "saved" : "restored", a->name, (long long)bytes, (long long)ms);
    return 0;
}

static int64_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int list(const struct ask *a) {
    char *json = kb_snapshot_list(a->dir);
    json_t *root = json ? json_loads(json, 0, NULL) : NULL, *s;
    size_t i;
    if (a->json && json) puts(json);
    json_array_foreach(a->json ? NULL : json_object_get(root, "snapshots"), i, s) {
        time_t at = (time_t)(json_integer_value(json_object_get(s, "created_ms")) / 1000);
        struct tm tm;
        char when[32];
        strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&at, &tm));
        size_t nodes = KW_MAX(json_array_size(json_object_get(s, "nodes")), (size_t)1); /* a single broker has no plan */
        printf("%-20s %s %12lld bytes  %zu node%s\n", json_string_value(json_object_get(s, "name")), when,
               (long long)json_integer_value(json_object_get(s, "bytes")), nodes, nodes == 1 ? "" : "s");
    }
    int code = json && root ? 0 : 1;
    json_decref(root);
    free(json);
    return code;
}

static int delete(const struct ask *a) {
    char path[KB_SNAPSHOT_PATH_MAX];
    struct kb_failure f;
    int64_t bytes;
    if (kb_snapshot_path(a->dir, a->name, path, &f) != 0 || kb_snapshot_delete(path, &bytes, &f) != 0) return say_failure(&f);
    printf("deleted %s\n", a->name);
    return 0;
}

/* ---- A cluster that runs ---- */

/* -1: none does. */
static int ask_parent(const struct ask *a) {
    int status = 0;
    json_t *body = json_pack("{s:s}", a->verb, a->name);
    if (!body) {
        fprintf(stderr, "kbroker: \"%s\" is no name for a snapshot: it is not UTF-8\n", a->name);
        return 1;
    }
    if (a->replace) json_object_set_new(body, "replace", json_true());
    char *text = json_dumps(body, JSON_COMPACT), *answer = text ? kb_http_ask(a->dir, "POST", "/snapshots", text, WAIT_S, &status) : NULL;
    int err = errno;
    json_decref(body);
    free(text);
    if (!answer && (err == ENOENT || err == ECONNREFUSED)) return -1;
    if (!answer) {
        fprintf(stderr, "kbroker: the cluster in %s did not answer: %s\n", a->dir, err == EAGAIN ? "not in time" : strerror(err));
        return 1;
    }
    if (status == KB_HTTP_OK) {
        json_t *root = json_loads(answer, 0, NULL);
        say_done(a, json_integer_value(json_object_get(root, "bytes")), json_integer_value(json_object_get(root, "ms")));
        json_decref(root);
    } else {
        char *why = kb_http_error_text(answer);
        fprintf(stderr, "kbroker: %s\n", why ? why : answer);
        free(why);
    }
    free(answer);
    return status == KB_HTTP_OK ? 0 : 1;
}

/* ---- Nobody runs, or it stands still ---- */

static int save(const struct ask *a, struct kb_stand *stand) {
    struct kb_snapshot_save s;
    struct kb_failure f;
    int64_t began = now_ms();
    int err = kb_snapshot_begin(&s, a->dir, a->name, a->replace, &f);
    if (err == 0 && stand) err = kb_stand_still(stand, &f);
    if (err == 0) err = kb_snapshot_copy(&s, &f);
    if (stand) kb_stand_go_on(stand);
    if (err == 0) err = kb_snapshot_commit(&s, true, &f);
    kb_snapshot_abandon(&s);
    return err == 0 ? say_done(a, s.facts.bytes, now_ms() - began) : say_failure(&f);
}

static int prepare(const struct ask *a, enum kb_snapshot_kind kind, const struct kb_cluster_plan *now, int64_t *bytes, struct kb_failure *f) {
    char path[KB_SNAPSHOT_PATH_MAX];
    struct kb_snapshot_facts facts;
    struct kb_cluster_plan plan;
    bool cluster = kind == KB_SNAPSHOT_CLUSTER;
    if (kb_snapshot_path(a->dir, a->name, path, f) != 0 || kb_snapshot_read(path, &facts, f) != 0) return -1;
    if (facts.kind != kind) {
        f->status = 409;
        snprintf(f->text, sizeof(f->text), "%.400s is of %s, and %.400s has %s", path, cluster ? "a single broker" : "a cluster", a->dir,
                 cluster ? "a cluster" : "a single broker");
        return -1;
    }
    if (cluster && kb_restore_plan(&facts, now, -1, &plan, f) != 0) return -1;
    *bytes = facts.bytes;
    return kb_restore_prepare(a->dir, path, &facts, cluster ? &plan : NULL, true, f) != 0 ? -1 : kb_restore_commit(a->dir, f);
}

static int restore(const struct ask *a, enum kb_snapshot_kind kind, const struct kb_cluster_plan *now) {
    struct kb_failure f;
    int64_t bytes = 0, began = now_ms();
    if (prepare(a, kind, now, &bytes, &f) != 0 || kb_restore_finish(a->dir, true, &f) != 0) return say_failure(&f);
    return say_done(a, bytes, now_ms() - began);
}

/* ---- A cluster that does not run ---- */

/* Those of a parent that was killed end a moment after it. */
static int none_runs(const struct ask *a, const struct kb_cluster_plan *plan) {
    for (size_t i = 0; i < plan->count; i++) {
        char dir[4200];
        snprintf(dir, sizeof(dir), "%s/node-%d", a->dir, plan->nodes[i].id);
        pid_t pid = kb_stand_holder(dir);
        for (int tries = 0; pid > 0 && tries < ENDING_TRIES; tries++) {
            usleep(ENDING_US);
            pid = kb_stand_holder(dir);
        }
        if (pid <= 0) continue;
        fprintf(stderr, "kbroker: process %d runs node %d in %s, without the cluster: end it first\n", (int)pid, plan->nodes[i].id, dir);
        return 1;
    }
    return 0;
}

static int act_on_cluster(const struct ask *a) {
    char path[4200], text[4400];
    struct kb_cluster_plan plan = {0};
    struct kb_failure f;
    int code = ask_parent(a);
    if (code >= 0) return code;
    snprintf(path, sizeof(path), "%s/.cluster.lock", a->dir);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) != 0) {
        fprintf(stderr, "kbroker: %s: %s\n", path, fd < 0 ? strerror(errno) : "the cluster starts or ends this moment: try again");
        if (fd >= 0) close(fd);
        return 1;
    }
    if (kb_restore_finish(a->dir, true, &f) != 0) {
        code = say_failure(&f);
    } else if (kb_cluster_plan_read(&plan, a->dir, text, sizeof(text)) < 0) {
        fprintf(stderr, "kbroker: %s\n", text);
        code = 1;
    } else {
        code = none_runs(a, &plan);
        if (code == 0) code = is(a, "save") ? save(a, NULL) : restore(a, KB_SNAPSHOT_CLUSTER, &plan);
    }
    close(fd);
    return code;
}

/* ---- A single broker ---- */

static int no_part_of_a_cluster(const struct ask *a) {
    char *real = realpath(a->dir, NULL), *slash = real ? strrchr(real, '/') : NULL, path[4300];
    bool part = false;
    if (slash && strncmp(slash + 1, "node-", 5) == 0) {
        snprintf(path, sizeof(path), "%.*s/cluster.json", (int)(slash - real), real);
        part = access(path, F_OK) == 0;
        if (part) fprintf(stderr, "kbroker: %s is a node of the cluster in %.*s: a snapshot is of all of it\n", a->dir, (int)(slash - real), real);
    }
    free(real);
    return part ? 1 : 0;
}

/* Its process takes what was decided upon, as if it had been killed, and starts again. */
static int restore_running(const struct ask *a) {
    struct kb_failure f;
    int64_t bytes = 0, began = now_ms();
    int status = 0;
    if (prepare(a, KB_SNAPSHOT_NODE, NULL, &bytes, &f) != 0) return say_failure(&f);
    char *answer = kb_http_ask(a->dir, "POST", "/restore", "", WAIT_S, &status);
    bool taken = answer && status == KB_HTTP_OK;
    free(answer);
    if (!taken) {
        fprintf(stderr, "kbroker: the broker in %s does not answer: stop it; its next start has what was restored\n", a->dir);
        return 1;
    }
    for (int tries = 0; tries < SERVES_TRIES; tries++) {
        bool begun = !kb_restore_is_decided(a->dir);
        answer = kb_http_ask(a->dir, "GET", "/status", "", 1, &status);
        bool serves = begun && answer && strstr(answer, "\"state\":\"ready\"");
        free(answer);
        if (serves) return say_done(a, bytes, now_ms() - began);
        usleep(ENDING_US / 10);
    }
    fprintf(stderr, "kbroker: %s is restored, but the broker does not serve yet: see its log\n", a->name);
    return 1;
}

static int act_on_node(const struct ask *a) {
    struct kb_stand stand;
    struct kb_failure f;
    if (no_part_of_a_cluster(a) != 0) return 1;
    int code, runs = kb_stand_take(&stand, a->dir, &f);
    if (runs < 0) return say_failure(&f);
    if (is(a, "save"))
        code = save(a, &stand);
    else if (runs)
        code = restore_running(a);
    else
        code = kb_restore_finish(a->dir, true, &f) != 0 ? say_failure(&f) : restore(a, KB_SNAPSHOT_NODE, NULL);
    kb_stand_free(&stand);
    return code;
}

/* ---- Which ---- */

/* A folder that has only snapshots yet is what the one that is to be restored is of. */
static enum kb_snapshot_kind kind_of(const struct ask *a) {
    char path[KB_SNAPSHOT_PATH_MAX];
    struct kb_snapshot_facts facts;
    struct kb_failure f;
    enum kb_snapshot_kind kind = kb_snapshot_kind_of(a->dir);
    if (kind != KB_SNAPSHOT_UNKNOWN || !is(a, "restore")) return kind;
    if (kb_snapshot_path(a->dir, a->name, path, &f) == 0 && kb_snapshot_read(path, &facts, &f) == 0) return facts.kind;
    say_failure(&f);
    return KB_SNAPSHOT_UNKNOWN;
}

static int act(const struct ask *a) {
    if (is(a, "list")) return list(a);
    if (is(a, "delete")) return delete(a);
    enum kb_snapshot_kind kind = kind_of(a);
    if (kind == KB_SNAPSHOT_CLUSTER) return act_on_cluster(a);
    if (kind == KB_SNAPSHOT_NODE) return act_on_node(a);
    if (is(a, "save")) fprintf(stderr, "kbroker: %s is neither a cluster's folder nor a broker's: say which with --data DIR\n", a->dir);
    return 1;
}

int kb_snapshot_ask_main(int argc, char **argv) {
    struct ask a = {.dir = "kbroker-cluster"};
    if (kb_command_asks_help(argc, argv)) {
        fputs(usage, stdout);
        return 0;
    }
    if (argc < 3) {
        fputs(usage, stderr);
        return 2;
    }
    int code = parse(&a, argc, argv);
    if (code < 0) code = act(&a);
    free(a.name);
    return code;
}
