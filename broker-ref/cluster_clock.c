/* cluster_clock.c - /clock of the cluster's admin port: one virtual clock for all nodes, however late one of them hears of it.
 *
 * Each advance is told to each node that serves. One that starts, or stands still, meanwhile is told what it missed as soon as it serves again; one that
 * starts later begins so far ahead (--clock virtual+MS).
 * Called by cluster_http, cluster_children, cluster_command. Calls cluster_relay.
 */
#include "cluster_priv.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "node.h"

enum { WAIT_MS = 60000 };

struct kb_clock_wait { /* somebody who advanced the clock */
    struct kb_cluster *c;
    struct kb_clock_wait *next;
    struct kb_http_request *request;
    uv_timer_t *timer;
    int64_t ahead_ms; /* until all that serve are so far */
};

static void answer_clock(struct kb_cluster *c, struct kb_http_request *r) {
    struct timespec wall;
    char out[120];
    clock_gettime(CLOCK_REALTIME, &wall);
    snprintf(out, sizeof(out), "{\"clock\":\"%s\",\"wall_ms\":%lld,\"advanced_ms\":%lld}", c->clock_is_virtual ? "virtual" : "real",
             (long long)wall.tv_sec * 1000 + wall.tv_nsec / 1000000 + (long long)c->ahead_ms, (long long)c->ahead_ms);
    kb_http_answer(r, KB_HTTP_OK, out);
}

static void drop(struct kb_clock_wait *w) {
    struct kb_clock_wait **at = &w->c->clock_waits;
    while (*at != w) at = &(*at)->next;
    *at = w->next;
    uv_close((uv_handle_t *)w->timer, kb_cluster_handle_freed);
    free(w);
}

void kb_cluster_drop_clock(struct kb_cluster *c) {
    while (c->clock_waits) drop(c->clock_waits);
}

/* ---- The nodes ---- */

bool kb_child_is_in_time(const struct kb_child *k) {
    return !k->c->clock_is_virtual || k->ahead_ms >= k->c->ahead_ms;
}

static void look_at_waits(struct kb_cluster *c) {
    for (struct kb_clock_wait *w = c->clock_waits, *next; w; w = next) {
        bool all = true;
        next = w->next;
        for (size_t i = 0; i < c->plan.count; i++) {
            const struct kb_child *k = &c->children[i];
            all = all && (k->life != UP || kb_child_is_paused(k) || k->ahead_ms >= w->ahead_ms);
        }
        if (!all) continue;
        answer_clock(c, w->request);
        drop(w);
    }
}

struct told { /* one advance, to one process */
    struct kb_child *k;
    pid_t pid;
    int64_t ms;
};

static void told(void *ctx, const struct kb_relay_answer *a, size_t count) {
    struct told t = *(struct told *)ctx;
    (void)count;
    free(ctx);
    if (t.k->pid != t.pid) return; /* it has ended since */
    t.k->is_told = false;
    if (a->status == KB_HTTP_OK) {
        t.k->ahead_ms += t.ms;
        kb_cluster_something_came(t.k->c);
    } else {
        kb_cluster_say("node %d did not take an advance of the clock by %lld ms: its time is behind the others'; start it again", (int)a->id, (long long)t.ms);
    }
}

/* Waited for as long as the process lives: one that stands still has the request, and takes it when it goes on; a second one would be another advance. */
static void tell_node(struct kb_child *k, int32_t id) {
    char body[60];
    struct told *t = malloc(sizeof(*t));
    if (!t) return; /* again with whatever comes next */
    *t = (struct told){.k = k, .pid = k->pid, .ms = k->c->ahead_ms - k->ahead_ms};
    k->is_told = true;
    snprintf(body, sizeof(body), "{\"advance_ms\":%lld}", (long long)t->ms);
    struct kb_relay_call call = {.ids = &id, .count = 1, .method = "POST", .path = "/clock", .body = body, .wait_ms = KB_AHEAD_MS_MAX, .done = told, .ctx = t};
    kb_cluster_relay(k->c, &call);
}

void kb_cluster_look_at_clock(struct kb_cluster *c) {
    if (!c->clock_is_virtual) return;
    for (size_t i = 0; i < c->plan.count; i++) {
        struct kb_child *k = &c->children[i];
        if (k->life == UP && !kb_child_is_paused(k) && !k->is_told && k->ahead_ms < c->ahead_ms) tell_node(k, c->plan.nodes[i].id);
    }
    look_at_waits(c);
}

/* ---- What is asked ---- */

static void late(uv_timer_t *t) {
    struct kb_clock_wait *w = t->data;
    kb_http_refuse(w->request, KB_HTTP_FAILED, "not all nodes took the advance within %d s: see %s/node-*.log", WAIT_MS / 1000, w->c->dir);
    drop(w);
}

static void advance(struct kb_cluster *c, struct kb_http_request *r, int64_t ms) {
    struct kb_clock_wait *w = calloc(1, sizeof(*w));
    uv_timer_t *timer = calloc(1, sizeof(*timer));
    if (!w || !timer) {
        free(w);
        free(timer);
        kb_http_refuse(r, KB_HTTP_FAILED, "out of memory");
        return;
    }
    c->ahead_ms += ms;
    *w = (struct kb_clock_wait){.c = c, .next = c->clock_waits, .request = r, .timer = timer, .ahead_ms = c->ahead_ms};
    c->clock_waits = w;
    uv_timer_init(&c->loop, timer);
    timer->data = w;
    uv_timer_start(timer, late, WAIT_MS, 0);
    kb_cluster_look_at_clock(c);
}

static void parse(struct kb_cluster *c, struct kb_http_request *r) {
    json_error_t e;
    json_t *body = json_loads(kb_http_body(r), JSON_REJECT_DUPLICATES, &e);
    const json_t *ms = json_object_get(body, "advance_ms");
    int64_t n = json_is_integer(ms) ? json_integer_value(ms) : -1;
    if (!json_is_integer(ms) || json_object_size(body) != 1)
        kb_http_refuse(r, KB_HTTP_BAD_REQUEST, "wanted {\"advance_ms\": N}, N whole milliseconds%s%s", body ? "" : ": ", body ? "" : e.text);
    else if (n < 0)
        kb_http_refuse(r, KB_HTTP_BAD_REQUEST, "\"advance_ms\" is negative, and time goes forward only");
    else if (n > KB_AHEAD_MS_MAX - c->ahead_ms)
        kb_http_refuse(r, KB_HTTP_BAD_REQUEST, "\"advance_ms\" goes more than a hundred years ahead (all advances together)");
    else
        advance(c, r, n);
    json_decref(body);
}

void kb_cluster_serve_clock(struct kb_cluster *c, struct kb_http_request *r) {
    if (kb_http_is(r, "GET"))
        answer_clock(c, r);
    else if (!kb_http_is(r, "POST"))
        kb_http_refuse(r, KB_HTTP_NOT_ALLOWED, "GET tells what the clock says, POST {\"advance_ms\": N} advances it");
    else if (!c->clock_is_virtual)
        kb_http_refuse(r, KB_HTTP_CONFLICT, "the cluster's clock is real and cannot be advanced: start it with --clock virtual");
    else if (c->stopping)
        kb_http_refuse(r, KB_HTTP_CONFLICT, "the cluster is stopping");
    else
        parse(c, r);
}
