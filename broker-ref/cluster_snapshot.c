/* cluster_snapshot.c - /snapshots of the cluster's admin port: all nodes stand still while their folders are copied; all are killed, and start again with
 * what was saved.
 *
 * Called by cluster_http, cluster_children and libuv. Calls shell_snapshot, off the loop wherever files are copied. One at a time.
 */
#include "cluster_priv.h"

#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shell_snapshot.h"

enum { STAND_MS = 30000, SERVE_MS = 60000 };

struct kb_cluster_snapshot {
    struct kb_cluster *c;
    struct kb_http_request *request;
    enum { STANDS, COPIES, COMMITS, PREPARES, ENDS, FINISHES, SERVES } step;
    bool restores, sync;
    bool stood[KB_CLUSTER_NODES_MAX]; /* by us: those go on */
    uv_work_t work;
    uv_timer_t *timer;
    uint64_t began_ns, paused_ns;
    char *name, *dir;
    char path[KB_SNAPSHOT_PATH_MAX];
    struct kb_snapshot_save save;
    struct kb_snapshot_facts facts;
    struct kb_cluster_plan plan;
    int result;
    struct kb_failure failure;
};

static void go_to_work(struct kb_cluster_snapshot *s, int step);

static void drop(struct kb_cluster_snapshot *s) {
    kb_snapshot_abandon(&s->save);
    uv_close((uv_handle_t *)s->timer, kb_cluster_handle_freed);
    s->c->snapshot = NULL;
    for (size_t i = 0; i < s->c->plan.count; i++) /* those that are still seen to stand go on this moment (child_changed) */
        if (!s->c->children[i].paused) s->c->children[i].held = false;
    free(s->name);
    free(s->dir);
    free(s);
}

static void let_go_on(struct kb_cluster_snapshot *s) {
    for (size_t i = 0; i < s->c->plan.count; i++)
        if (s->stood[i] && s->c->children[i].pid != 0) kill(s->c->children[i].pid, SIGCONT);
    memset(s->stood, 0, sizeof(s->stood));
}

static void fail(struct kb_cluster_snapshot *s) {
    if (!s->restores) let_go_on(s);
    kb_http_refuse(s->request, s->failure.status, "%s", s->failure.text);
    drop(s);
}

static void fail_with(struct kb_cluster_snapshot *s, int status, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void fail_with(struct kb_cluster_snapshot *s, int status, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(s->failure.text, sizeof(s->failure.text), fmt, ap);
    va_end(ap);
    s->failure.status = status;
    fail(s);
}

static void succeed(struct kb_cluster_snapshot *s) {
    int64_t ms = (int64_t)((uv_hrtime() - s->began_ns + 999999) / 1000000), paused_ms = (int64_t)((s->paused_ns + 999999) / 1000000);
    json_t *root = json_pack("{s:s, s:I, s:I}", "name", s->name, "bytes", (json_int_t)(s->restores ? s->facts.bytes : s->save.facts.bytes), "ms",
                             (json_int_t)ms);
    if (root && !s->restores) json_object_set_new(root, "paused_ms", json_integer(paused_ms));
    char *json = root ? json_dumps(root, JSON_COMPACT) : NULL;
    if (json) kb_http_answer(s->request, KB_HTTP_OK, json);
    if (!json) kb_http_refuse(s->request, KB_HTTP_FAILED, "out of memory");
    free(json);
    json_decref(root);
    drop(s);
}

/* ---- What nodes do meanwhile ---- */

static void all_stand(struct kb_cluster_snapshot *s) {
    for (size_t i = 0; i < s->c->plan.count; i++)
        if (s->c->children[i].pid != 0 && !s->c->children[i].paused) return;
    uv_timer_stop(s->timer);
    go_to_work(s, COPIES);
}

static void all_serve(struct kb_cluster_snapshot *s) {
    struct kb_cluster *c = s->c;
    char why[100];
    for (size_t i = 0; i < c->plan.count; i++) {
        const struct kb_child *k = &c->children[i];
        if (k->life == DOWN) {
            fail_with(s, KB_HTTP_FAILED, "%s is restored, but node %d ended while it started (%s): see %s/node-%d.log", s->name, c->plan.nodes[i].id,
                      kb_child_end_text(k, why, sizeof(why)), c->dir, c->plan.nodes[i].id);
            return;
        }
        if (k->life != UP || k->paused) return;
    }
    succeed(s);
}

void kb_cluster_look_at_snapshot(struct kb_cluster *c) {
    struct kb_cluster_snapshot *s = c->snapshot;
    if (!s) return;
    if (s->step == STANDS) all_stand(s);
    else if (s->step == ENDS && !kb_cluster_any_alive(c, false)) go_to_work(s, FINISHES);
    else if (s->step == SERVES) all_serve(s);
}

static void late(uv_timer_t *t) {
    struct kb_cluster_snapshot *s = t->data;
    const struct kb_cluster *c = s->c;
    if (s->step == SERVES) {
        fail_with(s, KB_HTTP_FAILED, "%s is restored, but not all nodes serve after %d s: see %s/node-*.log", s->name, SERVE_MS / 1000, c->dir);
        return;
    }
    for (size_t i = 0; i < c->plan.count; i++) {
        if (c->children[i].pid == 0 || c->children[i].paused) continue;
        fail_with(s, KB_HTTP_FAILED, "node %d does not come to a stand within %d s: is its disk stuck? Nothing was saved", c->plan.nodes[i].id,
                  STAND_MS / 1000);
        return;
    }
}

/* ---- The work, off the loop ---- */

static void work(uv_work_t *w) {
    struct kb_cluster_snapshot *s = w->data;
    switch (s->step) {
    case COPIES:
        s->result = kb_snapshot_copy(&s->save, &s->failure);
        return;
    case COMMITS:
        s->result = kb_snapshot_commit(&s->save, s->sync, &s->failure);
        return;
    case PREPARES:
        s->result = kb_restore_prepare(s->dir, s->path, &s->facts, &s->plan, s->sync, &s->failure);
        if (s->result == 0) s->result = kb_restore_commit(s->dir, &s->failure);
        return;
    default:
        s->result = kb_restore_finish(s->dir, s->sync, &s->failure);
        return;
    }
}

static void start_all(struct kb_cluster_snapshot *s) {
    struct kb_cluster *c = s->c;
    free(c->voters);
    c->plan = s->plan;
    kb_cluster_plan_hold(&c->plan);
    c->voters = kb_cluster_plan_voters(&c->plan);
    if (!c->voters) {
        fail_with(s, KB_HTTP_FAILED, "out of memory");
        return;
    }
    s->step = SERVES;
    uv_timer_start(s->timer, late, SERVE_MS, 0);
    for (size_t i = 0; i < c->plan.count; i++) {
        if (kb_child_start(c, &c->plan.nodes[i]) == 0) continue;
        fail_with(s, KB_HTTP_FAILED, "%s is restored, but node %d cannot be started: %s", s->name, c->plan.nodes[i].id, strerror(errno));
        return;
    }
}

static void worked(uv_work_t *w, int status) {
    struct kb_cluster_snapshot *s = w->data;
    struct kb_cluster *c = s->c;
    (void)status;
    if (s->step == COPIES) s->paused_ns = uv_hrtime() - s->paused_ns;
    if (c->stopping) { /* the nodes go on, and end, whatever was to be done */
        fail_with(s, KB_HTTP_CONFLICT, "the cluster is stopping");
    } else if (s->result != 0) {
        fail(s);
    } else if (s->step == COPIES) {
        let_go_on(s);
        go_to_work(s, COMMITS);
    } else if (s->step == COMMITS) {
        succeed(s);
    } else if (s->step == PREPARES) {
        s->step = ENDS;
        kb_cluster_kill(c);
        kb_cluster_look_at_snapshot(c);
    } else {
        start_all(s);
    }
}

static void go_to_work(struct kb_cluster_snapshot *s, int step) {
    s->step = step;
    s->work.data = s;
    uv_queue_work(&s->c->loop, &s->work, work, worked); /* fails only without a function */
}

/* ---- What is asked ---- */

static void save(struct kb_cluster_snapshot *s, bool replace) {
    struct kb_cluster *c = s->c;
    if (kb_snapshot_begin(&s->save, s->dir, s->name, replace, &s->failure) != 0) {
        fail(s);
        return;
    }
    s->sync = !c->ephemeral || strchr(s->name, '/'); /* in the temporary folder: it ends with that */
    s->step = STANDS;
    s->paused_ns = uv_hrtime();
    for (size_t i = 0; i < c->plan.count; i++) {
        struct kb_child *k = &c->children[i];
        if (k->pid == 0 || kb_child_is_paused(k) || k->to_pause) continue; /* those stay as they are, or are to be */
        s->stood[i] = k->held = true;
        k->paused = false; /* of the save before, perhaps, after which it has gone on: waited for is this stop */
        kill(k->pid, SIGSTOP);
    }
    uv_timer_start(s->timer, late, STAND_MS, 0);
    all_stand(s);
}

static void restore(struct kb_cluster_snapshot *s) {
    struct kb_cluster *c = s->c;
    s->restores = true;
    s->sync = !c->ephemeral;
    if (kb_snapshot_path(s->dir, s->name, s->path, &s->failure) != 0 || kb_snapshot_read(s->path, &s->facts, &s->failure) != 0) {
        fail(s);
    } else if (s->facts.kind != KB_SNAPSHOT_CLUSTER) {
        fail_with(s, KB_HTTP_CONFLICT, "%s is of a single broker (kbroker run), not of a cluster", s->path);
    } else if (kb_restore_plan(&s->facts, &c->plan, -1, &s->plan, &s->failure) != 0) {
        fail(s);
    } else {
        go_to_work(s, PREPARES);
    }
}

/* {"save": NAME, "replace": true} or {"restore": NAME}. NULL: it is neither; why: of size bytes. */
static const char *parse(const json_t *root, bool *restores, bool *replace, char *why, size_t size) {
    const char *field, *name = NULL;
    json_t *value;
    *replace = false;
    snprintf(why, size, "wanted {\"save\": NAME} or {\"restore\": NAME}");
    if (!json_is_object(root)) return NULL;
    json_object_foreach((json_t *)(uintptr_t)root, field, value) {
        bool names = strcmp(field, "save") == 0 || strcmp(field, "restore") == 0;
        if (names && json_is_string(value) && !name) {
            *restores = field[0] == 'r';
            name = json_string_value(value);
        } else if (strcmp(field, "replace") == 0 && json_is_boolean(value)) {
            *replace = json_is_true(value);
        } else {
            snprintf(why, size, "\"%.100s\": wanted {\"save\": NAME}, with \"replace\": true or false, or {\"restore\": NAME}", field);
            return NULL;
        }
    }
    if (!name || strlen(name) >= KB_SNAPSHOT_PATH_MAX - 300) return NULL;
    if (!strchr(name, '/') || name[0] == '/') return name;
    snprintf(why, size, "\"%.200s\": a path begins with /; a name without / lies in the cluster's folder", name);
    return NULL;
}

static void begin(struct kb_cluster *c, struct kb_http_request *r, const char *name, bool restores, bool replace) {
    struct kb_cluster_snapshot *s = calloc(1, sizeof(*s));
    uv_timer_t *timer = calloc(1, sizeof(*timer));
    char *dir = realpath(c->dir, NULL), *copy = strdup(name);
    if (!s || !timer || !dir || !copy) {
        free(s);
        free(timer);
        free(dir);
        free(copy);
        kb_http_refuse(r, KB_HTTP_FAILED, "out of memory, or the cluster's folder is gone");
        return;
    }
    *s = (struct kb_cluster_snapshot){.c = c, .request = r, .timer = timer, .name = copy, .dir = dir, .began_ns = uv_hrtime(), .save.aside_fd = -1};
    uv_timer_init(&c->loop, timer);
    timer->data = s;
    c->snapshot = s;
    if (restores)
        restore(s);
    else
        save(s, replace);
}

static void change(struct kb_cluster *c, struct kb_http_request *r) {
    char why[400];
    json_error_t e;
    json_t *root = json_loads(kb_http_body(r), JSON_REJECT_DUPLICATES, &e);
    bool restores = false, replace = false;
    const char *name = parse(root, &restores, &replace, why, sizeof(why));
    if (!name)
        kb_http_refuse(r, KB_HTTP_BAD_REQUEST, "%s%s%s", root ? "" : e.text, root ? "" : ": ", why);
    else
        begin(c, r, name, restores, replace);
    json_decref(root);
}

static void forget(struct kb_cluster *c, struct kb_http_request *r) {
    const char *name = kb_http_query(r, "name");
    char path[KB_SNAPSHOT_PATH_MAX];
    struct kb_failure f;
    int64_t bytes;
    if (!name || !*name) {
        kb_http_refuse(r, KB_HTTP_BAD_REQUEST, "name= wants a snapshot's name");
    } else if (strchr(name, '/') && name[0] != '/') {
        kb_http_refuse(r, KB_HTTP_BAD_REQUEST, "\"%.200s\": a path begins with /", name);
    } else if (kb_snapshot_path(c->dir, name, path, &f) != 0 || kb_snapshot_delete(path, &bytes, &f) != 0) {
        kb_http_refuse(r, f.status, "%s", f.text);
    } else {
        json_t *root = json_pack("{s:s, s:I}", "name", name, "bytes", (json_int_t)bytes);
        char *json = root ? json_dumps(root, JSON_COMPACT) : NULL;
        kb_http_answer(r, json ? KB_HTTP_OK : KB_HTTP_FAILED, json ? json : "{}");
        free(json);
        json_decref(root);
    }
}

void kb_cluster_serve_snapshots(struct kb_cluster *c, struct kb_http_request *r) {
    if (kb_http_is(r, "GET")) {
        char *json = kb_snapshot_list(c->dir);
        kb_http_answer(r, json ? KB_HTTP_OK : KB_HTTP_FAILED, json ? json : "{\"error\":\"out of memory\"}");
        free(json);
    } else if (!kb_http_is(r, "POST") && !kb_http_is(r, "DELETE")) {
        kb_http_refuse(r, KB_HTTP_NOT_ALLOWED, "GET lists, POST {\"save\": NAME} or {\"restore\": NAME}, DELETE ?name=NAME");
    } else if (c->stopping) {
        kb_http_refuse(r, KB_HTTP_CONFLICT, "the cluster is stopping");
    } else if (c->snapshot) {
        kb_http_refuse(r, KB_HTTP_CONFLICT, "a snapshot is being %s: one at a time", c->snapshot->restores ? "restored" : "saved");
    } else if (kb_http_is(r, "POST")) {
        change(c, r);
    } else {
        forget(c, r);
    }
}

void kb_cluster_snapshot_stop(struct kb_cluster *c) {
    struct kb_cluster_snapshot *s = c->snapshot;
    bool works = s && (s->step == COPIES || s->step == COMMITS || s->step == PREPARES || s->step == FINISHES);
    if (!s || works) return; /* worked() ends it */
    fail_with(s, KB_HTTP_CONFLICT, "the cluster is stopping");
}
