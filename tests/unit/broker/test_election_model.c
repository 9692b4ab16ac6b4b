/* test_election_model.c - the election under faults: 3, 5 and 9 voters with toy logs, and observers, on a network that loses, delays,
 * duplicates, reorders and cuts (one way too), with nodes that crash, freeze, restart without what was not stored, lose their disks, and
 * clocks that step.
 *
 * Each seed has its own mixture of faults; then they end for a majority, which has to elect and keep a leader. ELECTION_SEEDS (count) and
 * ELECTION_SEED (the first) set what runs; a failure names its seed, ELECTION_TRACE=1 prints what happened.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "quorum/election.h"
#include "wire/kerror.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SEEDS 100
#else
#define SEEDS 1000
#endif
#define MS 1000ll
#define SEC 1000000ll
#define NODES_MAX 11
#define OBSERVERS 2
#define LOG_MAX 4096
#define EPOCHS_MAX 4096
#define EVENTS_MAX 8192
#define REPLIES_MAX 512
#define BATCH 8
#define FETCH_TIMEOUT (1000 * MS)
#define ELECTION_TIMEOUT (500 * MS)
#define SENDS_PER_PEER_AND_SECOND 60
enum { ALL_UP = 6 * SEC /* the longest until a healed majority agrees */, CHAOS = 8 * SEC, CALM = 2 * SEC };

struct fetch {
    int32_t epoch, last_epoch;
    int64_t offset;
};
struct fetched {
    int16_t error;
    int32_t leader_id, epoch, diverging_epoch; /* -1: none */
    int64_t diverging_end;
    int32_t entries[BATCH];
    int n;
};
enum event_kind {
    EV_ASK,
    EV_ANSWER,
    EV_LOST,
    EV_STORED,
    EV_FETCH,
    EV_FETCHED,
    EV_FETCH_LOST,
    EV_FETCH_AGAIN,
    EV_DEAD,
    EV_FAULT,
    EV_APPEND
};
struct event {
    enum event_kind kind;
    int node, peer; /* where it happens, who caused it */
    uint32_t life, call;
    union {
        struct kb_election_request ask;
        struct kb_election_reply answer;
        struct fetch fetch;
        struct fetched fetched;
    } u;
    int next_free;
};
struct key {
    int64_t at;
    uint64_t seq;
    int event;
};
struct reply {
    struct kb_election_reply r;
    bool used;
    int peer;
    uint32_t peer_life, call;
    struct kb_election_request ask;
};
struct node {
    struct kb_election e;
    struct kw_rng rng;
    struct kb_election_state disk, writing;
    bool up, stopping, wiped, voter;
    uint32_t life;
    int64_t clock, frozen_until, tick_at;
    int32_t log[LOG_MAX]; /* the epoch of each entry: with its offset it says which one it is */
    int64_t end;
    uint32_t calls[NODES_MAX], fetch_call;
    struct kb_election_send sent[NODES_MAX];
    int fetch_to;
    struct reply replies[REPLIES_MAX];
    int32_t told_epoch, told_leader;
    int64_t window_at;
    int window_sends, most_sends;
};
static struct world {
    uint64_t seed, seq, draws;
    struct kw_rng rng;
    int64_t now;
    int voters, nodes;
    struct node n[NODES_MAX];
    bool cut[NODES_MAX][NODES_MAX];
    struct event events[EVENTS_MAX];
    struct key heap[EVENTS_MAX];
    int heap_n, free_event;
    uint32_t call;
    bool chaos, quiet, tells_death, wipes, trace;
    uint32_t loss, duplicates, faults_us;
    int64_t delay_max, store_max;
    int32_t leader_of[EPOCHS_MAX];
    uint32_t leader_life[EPOCHS_MAX];
    int32_t vote_of[NODES_MAX][EPOCHS_MAX];
    int32_t committed[LOG_MAX], committed_by[LOG_MAX]; /* the entry's epoch; that of the first leader that saw a majority have it */
    int64_t committed_end;
    uint64_t elections, commits, faults, events_run;
} * w;

#define CHECK(x, ...)                                                                                                                      \
    do {                                                                                                                                   \
        if (!(x)) bad(#x, __LINE__, __VA_ARGS__);                                                                                          \
    } while (0)
static void bad(const char *what, int line, const char *fmt, ...) {
    char text[300];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    fail_msg("seed %llu at %lld us, line %d: %s: %s", (unsigned long long)w->seed, (long long)w->now, line, what, text);
}
#define TRACE(...)                                                                                                                         \
    do {                                                                                                                                   \
        if (w->trace) printf("%9lld ", (long long)w->now), printf(__VA_ARGS__), printf("\n");                                              \
    } while (0)

static int64_t below(int64_t n) {
    return (int64_t)kw_rng_below(&w->rng, (uint64_t)KW_MAX(n, 1));
}
static bool chance(uint32_t per_million) {
    return kw_rng_chance(&w->rng, per_million);
}

/* ---- Events by time ---- */

static bool before(struct key a, struct key b) {
    return a.at != b.at ? a.at < b.at : a.seq < b.seq;
}

static void heap_add(int64_t at, int event) {
    int i = w->heap_n++;
    struct key k = {at, w->seq++, event};
    for (; i > 0 && before(k, w->heap[(i - 1) / 2]); i = (i - 1) / 2) w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = k;
}

static struct key heap_take(void) {
    struct key top = w->heap[0], last = w->heap[--w->heap_n];
    int i = 0;
    for (int c; (c = 2 * i + 1) < w->heap_n; i = c) {
        if (c + 1 < w->heap_n && before(w->heap[c + 1], w->heap[c])) c++;
        if (!before(w->heap[c], last)) break;
        w->heap[i] = w->heap[c];
    }
    w->heap[i] = last;
    return top;
}

static struct event *at(int64_t when, enum event_kind kind, int node, int peer) {
    int i = w->free_event;
    CHECK(i >= 0, "more events under way than there can be");
    struct event *ev = &w->events[i];
    w->free_event = ev->next_free;
    ev->kind = kind;
    ev->node = node;
    ev->peer = peer;
    ev->life = ev->call = 0;
    heap_add(when, i);
    return ev;
}

static void release(struct event *ev) {
    ev->next_free = w->free_event;
    w->free_event = (int)(ev - w->events);
}

/* ---- Network ---- */

static int64_t delay(void) {
    return chance(20000) ? below(w->delay_max * 4) : 50 + below(w->delay_max);
}
static bool passes(int from, int to) {
    return !w->cut[from][to] && !chance(w->loss);
}

/* Copies of the message that arrive: none, one, or two. */
static void carry(int from, int to, enum event_kind kind, uint32_t life, uint32_t call, const void *body, size_t size) {
    for (int copies = 1 + chance(w->duplicates); copies > 0; copies--) {
        if (!passes(from, to)) continue;
        struct event *ev = at(w->now + delay(), kind, to, from);
        ev->life = life;
        ev->call = call;
        memcpy(&ev->u, body, size);
    }
}

/* ---- Nodes ---- */

static int64_t local(const struct node *n) {
    return w->now + n->clock;
}
static int id_of(const struct node *n) {
    return (int)(n - w->n);
}
static struct kb_log_end log_end(void *ctx) {
    struct node *n = ctx;
    return (struct kb_log_end){n->end ? n->log[n->end - 1] : 0, n->end};
}

static void drain(struct node *n);

static void start(struct node *n) {
    struct kb_election_options o = {.id = id_of(n),
                                    .directory = {{1, (uint8_t)(id_of(n) + 1), n->wiped}},
                                    .cluster_id = "model",
                                    .voter_count = (size_t)w->voters,
                                    .observes = !n->voter || n->wiped,
                                    .fetch_timeout_us = FETCH_TIMEOUT,
                                    .election_timeout_us = ELECTION_TIMEOUT,
                                    .backoff_max_us = 1000 * MS,
                                    .request_timeout_us = 2000 * MS,
                                    .retry_backoff_us = 20 * MS,
                                    .rng = &n->rng,
                                    .log_end = log_end,
                                    .ctx = n};
    for (int i = 0; i < w->voters; i++) o.voters[i] = i;
    n->up = true;
    n->stopping = false;
    n->frozen_until = 0;
    n->clock = below(1000 * SEC);
    n->told_epoch = n->disk.epoch;
    n->told_leader = -1;
    kw_rng_init(&n->rng, kw_rng_next(&w->rng));
    kb_election_init(&n->e, &o);
    assert_int_equal(kb_election_start(&n->e, &n->disk, local(n)), KW_OK);
    TRACE("%d starts in epoch %d, voted %d, log %lld", id_of(n), n->disk.epoch, n->disk.voted_id, (long long)n->end);
    drain(n);
}

static void crash(struct node *n) {
    TRACE("%d crashes", id_of(n));
    /* A write under way is on the disk, or it is not. */
    if (n->e.store_under_way && chance(500000)) n->disk = n->writing;
    n->up = false;
    n->life++;
    n->fetch_call = 0;
    memset(n->calls, 0, sizeof(n->calls));
    memset(n->replies, 0, sizeof(n->replies));
    for (int i = 0; w->tells_death && i < w->nodes; i++)
        if (i != id_of(n) && w->n[i].up) at(w->now + 100 + below(2 * MS), EV_DEAD, i, id_of(n));
}

static void wipe(struct node *n) {
    TRACE("%d loses its disk", id_of(n));
    n->wiped = true;
    n->end = 0;
    kb_election_none(&n->disk);
}

static void append(struct node *n, int32_t epoch) {
    CHECK(n->end < LOG_MAX, "log full");
    n->log[n->end++] = epoch;
}

static void commit(struct node *n) {
    int64_t ends[KB_VOTERS_MAX];
    for (int i = 0; i < w->voters; i++) {
        int64_t end = i == id_of(n) ? n->end : n->e.peers[i].end_offset;
        int k = i;
        for (; k > 0 && ends[k - 1] < end; k--) ends[k] = ends[k - 1];
        ends[k] = end;
    }
    int64_t to = ends[w->voters / 2];
    if (to <= 0 || n->log[to - 1] != n->e.state.epoch) return;
    for (int64_t i = 0; i < to; i++) {
        CHECK(i >= w->committed_end || w->committed[i] == n->log[i], "offset %lld committed in epochs %d and %d", (long long)i,
              w->committed[i], n->log[i]);
        if (i >= w->committed_end || n->e.state.epoch < w->committed_by[i]) w->committed_by[i] = n->e.state.epoch;
        w->committed[i] = n->log[i];
    }
    w->commits += (uint64_t)KW_MAX(to - w->committed_end, 0);
    w->committed_end = KW_MAX(w->committed_end, to);
}

/* ---- Fetching ---- */

static void fetch_from(struct node *n, int to) {
    struct fetch f = {n->told_epoch, n->end ? n->log[n->end - 1] : 0, n->end};
    n->fetch_call = ++w->call;
    n->fetch_to = to;
    carry(id_of(n), to, EV_FETCH, n->life, n->fetch_call, &f, sizeof(f));
    struct event *ev = at(w->now + 2 * SEC, EV_FETCH_LOST, id_of(n), to);
    ev->life = n->life;
    ev->call = n->fetch_call;
}

static void fetch_again(struct node *n, int64_t wait) {
    at(w->now + wait, EV_FETCH_AGAIN, id_of(n), 0)->life = n->life;
}

/* The last entry of this or an earlier epoch, and where that epoch ends here. */
static int64_t epoch_end(const struct node *n, int32_t *epoch) {
    int64_t end = n->end;
    while (end > 0 && n->log[end - 1] > *epoch) end--;
    *epoch = end ? n->log[end - 1] : 0;
    return end;
}

static void on_fetch(struct node *n, const struct event *ev) {
    const struct fetch *f = &ev->u.fetch;
    struct fetched a = {.error = kb_election_check(&n->e, f->epoch), .diverging_epoch = -1};
    struct kb_election_view v = kb_election_view(&n->e);
    a.leader_id = v.leader_id;
    a.epoch = v.epoch;
    if (!a.error) {
        int32_t epoch = f->last_epoch;
        int64_t end = epoch_end(n, &epoch);
        if (epoch != f->last_epoch || end < f->offset) {
            a.diverging_epoch = epoch;
            a.diverging_end = end;
        } else {
            kb_election_fetched(&n->e, ev->peer, f->offset, local(n));
            commit(n);
            for (int64_t i = f->offset; i < n->end && a.n < BATCH; i++) a.entries[a.n++] = n->log[i];
        }
    }
    carry(id_of(n), ev->peer, EV_FETCHED, ev->life, ev->call, &a, sizeof(a));
}

static void truncate_to(struct node *n, int32_t epoch, int64_t end) {
    int64_t to = KW_MIN(end, epoch_end(n, &epoch));
    for (int64_t i = to; i < KW_MIN(n->end, w->committed_end); i++)
        CHECK(n->log[i] != w->committed[i] || n->wiped, "%d takes back offset %lld, which is committed", id_of(n), (long long)i);
    n->end = to;
}

static void on_fetched(struct node *n, const struct event *ev) {
    const struct fetched *a = &ev->u.fetched;
    if (n->fetch_call != ev->call) return;
    n->fetch_call = 0;
    if (a->error) {
        kb_election_heard(&n->e, ev->peer, a->leader_id, a->epoch, local(n));
        fetch_again(n, 20 * MS);
        return;
    }
    kb_election_leader_answered(&n->e, ev->peer, a->epoch, local(n));
    struct kb_election_view v = kb_election_view(&n->e);
    if (v.epoch != a->epoch || v.leader_id != ev->peer || v.leads) return;
    if (a->diverging_epoch >= 0) truncate_to(n, a->diverging_epoch, a->diverging_end);
    for (int i = 0; i < a->n; i++) append(n, a->entries[i]);
    fetch_again(n, a->n || a->diverging_epoch >= 0 ? 0 : 50 * MS);
}

/* ---- What an election says ---- */

static void on_view(struct node *n) {
    struct kb_election_view v = kb_election_view(&n->e);
    TRACE("%d sees epoch %d led by %d", id_of(n), v.epoch, v.leader_id);
    CHECK(v.epoch >= n->told_epoch && v.epoch <= n->disk.epoch && v.epoch < EPOCHS_MAX, "%d: epoch %d after %d, stored %d", id_of(n),
          v.epoch, n->told_epoch, n->disk.epoch);
    CHECK(v.leads == (v.leader_id == id_of(n)), "%d leads %d by %d", id_of(n), v.leads, v.leader_id);
    n->told_epoch = v.epoch;
    n->told_leader = v.leader_id;
    n->fetch_call = 0;
    if (v.leads) {
        CHECK(w->leader_of[v.epoch] < 0, "epoch %d has two leaders: %d, %d", v.epoch, w->leader_of[v.epoch], id_of(n));
        w->leader_of[v.epoch] = id_of(n);
        w->leader_life[v.epoch] = n->life;
        w->elections++;
        for (int64_t i = 0; i < w->committed_end; i++)
            CHECK(w->committed_by[i] >= v.epoch || (i < n->end && n->log[i] == w->committed[i]),
                  "%d leads epoch %d without the committed offset %lld", id_of(n), v.epoch, (long long)i);
        append(n, v.epoch);
    } else if (v.leader_id >= 0) {
        CHECK(w->leader_of[v.epoch] == v.leader_id, "%d believes in %d, epoch %d is led by %d", id_of(n), v.leader_id, v.epoch,
              w->leader_of[v.epoch]);
        fetch_from(n, v.leader_id);
    }
}

static void one_vote(struct node *n, int32_t epoch, int32_t id) {
    CHECK(epoch < EPOCHS_MAX, "epoch %d", epoch);
    int32_t *v = &w->vote_of[id_of(n)][epoch];
    CHECK(*v < 0 || *v == id, "%d votes twice in epoch %d: %d, %d", id_of(n), epoch, *v, id);
    CHECK(!n->wiped && n->voter, "%d votes, and must not", id_of(n));
    *v = id;
}

static void on_reply(struct node *n, struct kb_election_reply *r) {
    struct reply *x = KW_CONTAINER_OF(r, struct reply, r);
    CHECK(r->epoch <= n->disk.epoch, "%d answers of epoch %d, stored is %d", id_of(n), r->epoch, n->disk.epoch);
    if (r->granted && !x->ask.pre_vote) {
        CHECK(n->disk.epoch > r->epoch || (n->disk.voted_id == x->ask.from), "%d votes for %d, stored is %d", id_of(n), x->ask.from,
              n->disk.voted_id);
        one_vote(n, r->epoch, x->ask.from);
    }
    carry(id_of(n), x->peer, EV_ANSWER, x->peer_life, x->call, r, sizeof(*r));
    x->used = false;
}

static void on_send(struct node *n, const struct kb_election_action *act) {
    const struct kb_election_request *r = &act->send.request;
    CHECK(r->epoch == n->disk.epoch, "%d sends of epoch %d, stored is %d", id_of(n), r->epoch, n->disk.epoch);
    CHECK(n->calls[act->to] == 0, "%d sends twice at a time", id_of(n));
    if (r->kind == KB_VOTE && !r->pre_vote) {
        CHECK(n->disk.voted_id == id_of(n), "%d stands, its vote is stored for %d", id_of(n), n->disk.voted_id);
        one_vote(n, r->epoch, id_of(n));
    }
    if (w->now >= n->window_at + SEC) n->window_at = w->now, n->window_sends = 0;
    n->window_sends++;
    n->most_sends = KW_MAX(n->most_sends, n->window_sends);
    CHECK(n->window_sends <= SENDS_PER_PEER_AND_SECOND * (w->voters - 1), "%d sends a storm: %s", id_of(n),
          kb_election_role_text(n->e.role));
    uint32_t call = n->calls[act->to] = ++w->call;
    n->sent[act->to] = act->send;
    carry(id_of(n), act->to, EV_ASK, n->life, call, r, sizeof(*r));
    struct event *ev = at(w->now + act->send.timeout_us, EV_LOST, id_of(n), act->to);
    ev->life = n->life;
    ev->call = call;
}

static void drain(struct node *n) {
    struct kb_election_action act;
    int rounds = 0;
    while (kb_election_next(&n->e, &act, local(n))) {
        CHECK(++rounds < 100 + REPLIES_MAX, "%d has no end of things to say", id_of(n));
        switch (act.kind) {
        case KB_ELECT_STORE:
            CHECK(act.state.epoch >= n->disk.epoch, "%d stores epoch %d over %d", id_of(n), act.state.epoch, n->disk.epoch);
            n->writing = act.state;
            at(w->now + 200 + below(w->store_max), EV_STORED, id_of(n), 0)->life = n->life;
            break;
        case KB_ELECT_VIEW:
            on_view(n);
            break;
        case KB_ELECT_REPLY:
            on_reply(n, act.reply);
            break;
        case KB_ELECT_SEND:
            on_send(n, &act);
            break;
        case KB_ELECT_FIND:
            fetch_from(n, act.to);
            break;
        }
    }
    int64_t deadline = kb_election_deadline(&n->e);
    n->tick_at = deadline == INT64_MAX ? INT64_MAX : KW_MAX(deadline - n->clock, w->now);
}

static void on_ask(struct node *n, const struct event *ev) {
    int i = 0;
    while (i < REPLIES_MAX && n->replies[i].used) i++;
    CHECK(i < REPLIES_MAX, "%d keeps every answer", id_of(n));
    struct reply *x = &n->replies[i];
    *x = (struct reply){.used = true, .peer = ev->peer, .peer_life = ev->life, .call = ev->call, .ask = ev->u.ask};
    kb_election_ask(&n->e, &ev->u.ask, &x->r, local(n));
}

/* ---- Faults ---- */

static struct node *any(int among) {
    return &w->n[below(among)];
}

static void cut_some(void) {
    int a = (int)below(w->nodes), b = (int)below(w->nodes);
    bool in = chance(600000), out = !in || chance(600000), one = chance(500000);
    TRACE("cut %d %s%s %d", a, in ? "<" : "", out ? ">" : "", one ? b : -1);
    for (int i = 0; i < w->nodes; i++) {
        if (i == a || (one && i != b)) continue;
        if (in) w->cut[i][a] = true;
        if (out) w->cut[a][i] = true;
    }
}

static void on_fault(void) {
    at(w->now + 1 + below(w->faults_us), EV_FAULT, -1, 0);
    w->faults++;
    struct node *n = any(w->nodes);
    switch (below(12)) {
    case 0:
    case 1:
        if (n->up) crash(n);
        break;
    case 2:
    case 3:
    case 4:
        for (int i = 0; i < w->nodes; i++)
            if (!w->n[i].up && chance(700000)) start(&w->n[i]);
        break;
    case 5:
        cut_some();
        break;
    case 6:
    case 7:
        memset(w->cut, 0, sizeof(w->cut));
        break;
    case 8:
        TRACE("%d freezes", id_of(n));
        n->frozen_until = w->now + below(3 * SEC);
        break;
    case 9:
        n->clock += below(chance(500000) ? 3 * SEC : 100 * MS);
        if (n->up) drain(n);
        break;
    case 10:
        if (!n->up || n->stopping || !chance(500000)) break;
        TRACE("%d is told to stop", id_of(n));
        n->stopping = true;
        kb_election_resign(&n->e, local(n));
        drain(n);
        break;
    default:
        for (int i = 0; i < w->voters; i++)
            if (w->n[i].wiped) return; /* a majority has to keep what it stored */
        if (!w->wipes || w->voters < 5 || !n->voter) break;
        if (n->up) crash(n);
        wipe(n);
        break;
    }
}

/* ---- Running ---- */

static void happen(struct event *ev) {
    if (ev->kind == EV_FAULT) {
        if (w->chaos) on_fault();
        return;
    }
    if (ev->kind == EV_APPEND) {
        at(w->now + 30 * MS, EV_APPEND, -1, 0);
        for (int i = 0; i < w->nodes && !w->quiet; i++)
            if (w->n[i].up && w->n[i].frozen_until <= w->now && kb_election_view(&w->n[i].e).leads) append(&w->n[i], w->n[i].e.state.epoch);
        return;
    }
    struct node *n = &w->n[ev->node];
    bool request = ev->kind == EV_ASK || ev->kind == EV_FETCH;
    if (!n->up && request && passes(ev->node, ev->peer)) { /* refused */
        struct event *no = at(w->now + 100, ev->kind == EV_ASK ? EV_LOST : EV_FETCH_LOST, ev->peer, ev->node);
        no->life = ev->life;
        no->call = ev->call;
    }
    if (!n->up || (!request && ev->kind != EV_DEAD && ev->life != n->life)) return;
    switch (ev->kind) {
    case EV_ASK:
        on_ask(n, ev);
        break;
    case EV_ANSWER:
    case EV_LOST:
        if (n->calls[ev->peer] != ev->call) return;
        n->calls[ev->peer] = 0;
        if (ev->kind == EV_ANSWER)
            kb_election_answered(&n->e, &n->sent[ev->peer], &ev->u.answer, local(n));
        else
            kb_election_unanswered(&n->e, &n->sent[ev->peer], local(n));
        break;
    case EV_STORED:
        n->disk = n->writing;
        kb_election_stored(&n->e, local(n));
        break;
    case EV_FETCH:
        on_fetch(n, ev);
        break;
    case EV_FETCHED:
        on_fetched(n, ev);
        break;
    case EV_FETCH_LOST:
        if (n->fetch_call != ev->call) return;
        n->fetch_call = 0;
        fetch_again(n, 20 * MS);
        break;
    case EV_FETCH_AGAIN:
        if (n->fetch_call == 0 && n->told_leader >= 0 && n->told_leader != id_of(n)) fetch_from(n, n->told_leader);
        break;
    case EV_DEAD:
        if (!w->cut[ev->node][ev->peer] && !w->cut[ev->peer][ev->node]) kb_election_peer_dead(&n->e, ev->peer, local(n));
        break;
    default:
        break;
    }
    drain(n);
}

static void step_to(int64_t until) {
    for (;;) {
        struct node *due = NULL;
        int64_t when = w->heap[0].at; /* EV_APPEND is always there */
        for (int i = 0; i < w->nodes; i++) {
            struct node *n = &w->n[i];
            if (n->up && KW_MAX(n->tick_at, n->frozen_until) < when) when = KW_MAX(n->tick_at, n->frozen_until), due = n;
        }
        if (when > until) break;
        w->now = KW_MAX(w->now, when);
        w->events_run++;
        if (due) {
            kb_election_tick(&due->e, local(due));
            drain(due);
            CHECK(kb_election_deadline(&due->e) > local(due), "%d is due at once again", id_of(due));
            continue;
        }
        struct key k = heap_take();
        struct event *ev = &w->events[k.event];
        if (ev->node >= 0 && w->n[ev->node].up && w->n[ev->node].frozen_until > w->now) {
            heap_add(w->n[ev->node].frozen_until, k.event);
            continue;
        }
        happen(ev);
        release(ev);
        for (int i = 0; i < w->nodes; i++)
            if (w->n[i].up && w->n[i].stopping && kb_election_resigned(&w->n[i].e)) crash(&w->n[i]);
    }
    w->now = until;
}

/* ---- Phases ---- */

/* Who is up, of one mind and led; fails unless all are. */
static struct node *agreed(const bool *core) {
    struct node *leader = NULL;
    for (int i = 0; i < w->nodes; i++) {
        struct node *n = &w->n[i];
        if (!core[i] || !n->up) continue;
        CHECK(n->told_leader >= 0, "%d has no leader, epoch %d, %s", i, n->told_epoch, kb_election_role_text(n->e.role));
        struct node *its = &w->n[n->told_leader];
        if (!leader) leader = its;
        CHECK(its == leader && kb_election_view(&its->e).leads && its->told_epoch == n->told_epoch, "%d follows %d in %d, others %d in %d",
              i, id_of(its), n->told_epoch, id_of(leader), leader->told_epoch);
    }
    CHECK(leader && core[id_of(leader)], "no leader in the core");
    return leader;
}

/* Faults end for a majority (or all): the rest is down or cut off. */
static void heal(bool *core) {
    int majority = w->voters / 2 + 1, chosen = 0, size = chance(500000) ? w->voters : majority;
    w->chaos = false;
    w->loss = 0;
    w->delay_max = KW_MIN(w->delay_max, 10 * MS);
    w->store_max = KW_MIN(w->store_max, 10 * MS);
    memset(w->cut, 0, sizeof(w->cut));
    for (int first = (int)below(w->voters), i = 0; i < w->voters; i++) {
        struct node *n = &w->n[(first + i) % w->voters];
        core[id_of(n)] = !n->wiped && chosen < size && ++chosen;
    }
    for (int i = 0; i < w->nodes; i++) {
        struct node *n = &w->n[i];
        if (!n->voter || (n->wiped && size == w->voters)) core[i] = true;
        n->frozen_until = 0;
        if (n->up && n->stopping) crash(n);
        if (!core[i] && n->up && chance(500000)) crash(n);
        if (core[i] && !n->up) start(n);
        for (int k = 0; !core[i] && k < w->nodes; k++) w->cut[i][k] = w->cut[k][i] = k != i;
    }
    TRACE("healed");
}

static int core_voters(const bool *core) {
    int count = 0;
    for (int i = 0; i < w->voters; i++) count += core[i] && w->n[i].up && !w->n[i].wiped;
    return count;
}

/* One follower, away and back: the leader stays, the others do not so much as notice. */
static void away_and_back(const bool *core, struct node *leader) {
    int32_t epoch = leader->told_epoch;
    struct node *away;
    do away = any(w->voters);
    while (away == leader || !core[id_of(away)] || away->wiped);
    bool in = chance(600000), out = !in || chance(600000);
    TRACE("away: %d %d%d", id_of(away), in, out);
    for (int i = 0; i < w->nodes; i++) {
        if (i == id_of(away) || !core[i]) continue;
        w->cut[i][id_of(away)] = in;
        w->cut[id_of(away)][i] = out;
    }
    step_to(w->now + 3 * SEC);
    for (int i = 0; i < w->nodes; i++)
        if (core[i]) w->cut[i][id_of(away)] = w->cut[id_of(away)][i] = false;
    step_to(w->now + 3 * SEC);
    struct node *now = agreed(core);
    CHECK(now == leader && now->told_epoch == epoch, "%d came back, and %d in %d became %d in %d", id_of(away), id_of(leader), epoch,
          id_of(now), now->told_epoch);
}

/* One that stood, was stored, and got no further: it is an epoch ahead, and has to find its way back. */
static void ahead_and_back(const bool *core, const struct node *leader) {
    struct node *n;
    do n = any(w->voters);
    while (n == leader || !core[id_of(n)] || n->wiped);
    crash(n);
    n->disk = (struct kb_election_state){.epoch = leader->told_epoch + 1, .leader_id = -1, .voted_id = id_of(n)};
    w->vote_of[id_of(n)][n->disk.epoch] = id_of(n);
    start(n);
    step_to(w->now + 3 * SEC);
    agreed(core);
}

/* A leader without its majority, alone or with a few, has to step down by itself. */
static void alone(const bool *core, struct node *leader) {
    bool with[NODES_MAX] = {false}, rest[NODES_MAX], others = chance(500000);
    with[id_of(leader)] = true;
    for (int i = 0, left = (int)below(w->voters / 2); i < w->voters; i++)
        if (i != id_of(leader) && left > 0) with[i] = true, left--;
    for (int i = 0; i < w->nodes; i++)
        for (int k = 0; k < w->nodes; k++) w->cut[i][k] = w->cut[i][k] || (with[i] != with[k] && (with[k] || others));
    step_to(w->now + FETCH_TIMEOUT + FETCH_TIMEOUT / 2 + 60 * MS /* what was on its way */);
    CHECK(!kb_election_view(&leader->e).leads, "%d leads, and no majority can reach it", id_of(leader));
    step_to(w->now + 3 * SEC);
    for (int i = 0; i < w->nodes; i++) rest[i] = core[i] && !with[i];
    if (core_voters(rest) > w->voters / 2) agreed(rest);
    for (int i = 0; i < w->nodes; i++)
        for (int k = 0; k < w->nodes; k++) w->cut[i][k] = w->cut[i][k] && !(core[i] && core[k]);
    step_to(w->now + 3 * SEC);
    agreed(core);
}

static struct tally {
    int64_t first_us, dead_us, stop_us, hung_us;
    int first, dead, stop, hung;
} most, sum;

static void take(int64_t took, int64_t bound, int64_t *of_sum, int64_t *of_most, int *count, const char *what) {
    CHECK(took <= bound, "%s: no leader for %lld us", what, (long long)took);
    *of_sum += took;
    *of_most = KW_MAX(*of_most, took);
    ++*count;
}

/* How long until another of the core leads. */
static int64_t takeover(const bool *core, const struct node *old, int64_t bound) {
    int64_t from = w->now;
    for (; w->now < from + bound;) {
        step_to(w->now + MS);
        for (int i = 0; i < w->voters; i++)
            if (core[i] && w->n[i].up && &w->n[i] != old && kb_election_view(&w->n[i].e).leads) return w->now - from;
    }
    return INT64_MAX;
}

static void lose_leader(const bool *core, struct node *leader) {
    switch (below(3)) {
    case 0:
        w->tells_death = true;
        crash(leader);
        take(takeover(core, leader, 3 * SEC), 500 * MS, &sum.dead_us, &most.dead_us, &sum.dead, "its death was seen");
        break;
    case 1:
        leader->stopping = true;
        kb_election_resign(&leader->e, local(leader));
        drain(leader);
        take(takeover(core, leader, 3 * SEC), 500 * MS, &sum.stop_us, &most.stop_us, &sum.stop, "it stopped");
        break;
    default:
        leader->frozen_until = w->now + 60 * SEC;
        take(takeover(core, leader, 6 * SEC), 5 * SEC, &sum.hung_us, &most.hung_us, &sum.hung, "it hung");
        leader->frozen_until = 0; /* it believes that it leads, until it hears */
        step_to(w->now + 3 * SEC);
        agreed(core);
        break;
    }
}

static void world_init(uint64_t seed) {
    static const int sizes[] = {3, 5, 9, 3};
    static const uint32_t losses[] = {0, 0, 10000, 200000};
    static const int64_t delays[] = {200, 2 * MS, 20 * MS, 300 * MS}, stores[] = {500, 5 * MS, 200 * MS};
    memset(w, 0, offsetof(struct world, n));
    w->seed = seed;
    kw_rng_init(&w->rng, seed);
    w->voters = sizes[below(4)];
    w->nodes = w->voters + (int)below(KW_MIN(OBSERVERS, NODES_MAX - w->voters) + 1);
    for (int i = 0; i < NODES_MAX; i++) {
        memset(&w->n[i], 0, offsetof(struct node, log));
        memset(&w->n[i].end, 0, sizeof(struct node) - offsetof(struct node, end));
    }
    memset(&w->cut, 0, sizeof(w->cut));
    w->heap_n = 0;
    w->free_event = -1;
    for (int i = EVENTS_MAX - 1; i >= 0; i--) release(&w->events[i]);
    w->call = 0;
    w->chaos = true;
    w->quiet = false;
    w->trace = getenv("ELECTION_TRACE");
    w->tells_death = chance(700000);
    w->wipes = chance(200000);
    w->loss = losses[below(4)];
    w->duplicates = chance(500000) ? 0 : 100000;
    w->faults_us = (uint32_t)(20 * MS + below(800 * MS));
    w->delay_max = delays[below(4)];
    w->store_max = stores[below(3)];
    memset(w->leader_of, -1, sizeof(w->leader_of));
    memset(w->vote_of, -1, sizeof(w->vote_of));
    w->committed_end = 0;
}

static void run(uint64_t seed) {
    bool core[NODES_MAX] = {false};
    world_init(seed);
    at(30 * MS, EV_APPEND, -1, 0);
    at(below(2 * SEC), EV_FAULT, -1, 0);
    for (int i = 0; i < w->nodes; i++) {
        w->n[i].voter = i < w->voters;
        kb_election_none(&w->n[i].disk);
        start(&w->n[i]);
    }
    step_to(CHAOS);
    heal(core);
    int64_t commits_end = w->committed_end;
    step_to(w->now + ALL_UP);
    struct node *leader = agreed(core);
    CHECK(w->committed_end > commits_end, "nothing is committed any more");
    int32_t epoch = leader->told_epoch;
    step_to(w->now + CALM);
    CHECK(agreed(core) == leader && leader->told_epoch == epoch, "a leader in peace is deposed");
    bool spare = core_voters(core) > w->voters / 2 + 1;
    w->quiet = chance(500000); /* then all logs are equal, and it is not the log that keeps one from being elected */
    switch (below(3)) {
    case 0:
        if (spare) away_and_back(core, leader);
        break;
    case 1:
        ahead_and_back(core, leader);
        break;
    default:
        alone(core, leader);
        break;
    }
    leader = agreed(core);
    if (spare) lose_leader(core, leader);
}

static void test_model(void **state) {
    (void)state;
    const char *seeds = getenv("ELECTION_SEEDS"), *first = getenv("ELECTION_SEED");
    uint64_t count = seeds ? strtoull(seeds, NULL, 10) : first ? 1 : SEEDS, from = first ? strtoull(first, NULL, 10) : 1;
    w = calloc(1, sizeof(*w));
    assert_non_null(w);
    for (uint64_t i = 0; i < count; i++) run(from + i);
    printf("%llu seeds: %llu events, %llu faults, %llu elections, %llu commits\n", (unsigned long long)count,
           (unsigned long long)w->events_run, (unsigned long long)w->faults, (unsigned long long)w->elections,
           (unsigned long long)w->commits);
    printf("without a leader, mean and most in us: dead %lld %lld, stopped %lld %lld, hung %lld %lld\n",
           (long long)(sum.dead_us / KW_MAX(sum.dead, 1)), (long long)most.dead_us, (long long)(sum.stop_us / KW_MAX(sum.stop, 1)),
           (long long)most.stop_us, (long long)(sum.hung_us / KW_MAX(sum.hung, 1)), (long long)most.hung_us);
    if (count >= 1000) assert_true(w->elections > count * 3 && w->faults > count * 10 && w->commits > count * 50);
    free(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_model)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
