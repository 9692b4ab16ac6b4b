/* plan.c - see plan.h. Three passes: what can stay and what is missing; replicas from those with most to those with fewest; first places likewise. */
#include "plan.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct plan {
    struct cli_move *v;
    size_t n;
    const struct cli_plan_broker *brokers;
    size_t broker_count;
    size_t *load, *firsts; /* of each broker */
    size_t cursor;         /* where to look next, so that changes spread over the partitions */
};

static size_t place_of(const struct cli_move *m, size_t count, int32_t id) { /* count: it is not there */
    size_t i = 0;
    while (i < count && m->then[i] != id) i++;
    return i;
}

static size_t broker_of(const struct plan *p, int32_t id) { /* broker_count: none of these */
    size_t i = 0;
    while (i < p->broker_count && p->brokers[i].id != id) i++;
    return i;
}

static bool same_rack(const struct plan *p, size_t a, size_t b) {
    const char *x = p->brokers[a].rack, *y = p->brokers[b].rack;
    return x && y && !strcmp(x, y);
}

/* One of the partition's replicas, but for that at `except`, is in this broker's rack. */
static bool has_rack(const struct plan *p, const struct cli_move *m, size_t count, size_t except, size_t broker) {
    for (size_t i = 0; i < count; i++)
        if (i != except && same_rack(p, broker_of(p, m->then[i]), broker)) return true;
    return false;
}

/* ---- What stays, what is missing ---- */

static size_t keep(struct plan *p, struct cli_move *m) {
    size_t count = 0;
    for (size_t i = 0; i < m->now_count && count < m->want; i++) {
        size_t b = broker_of(p, m->now[i]);
        if (b == p->broker_count) continue;
        m->then[count++] = m->now[i];
        p->load[b]++;
    }
    return count;
}

static void fill(struct plan *p, struct cli_move *m, size_t count) {
    while (count < m->want) {
        size_t best = p->broker_count;
        bool best_shares = false;
        for (size_t b = 0; b < p->broker_count; b++) {
            if (place_of(m, count, p->brokers[b].id) < count) continue;
            bool shares = has_rack(p, m, count, count, b);
            bool better = best == p->broker_count || (shares == best_shares ? p->load[b] < p->load[best] : !shares);
            if (better) best = b, best_shares = shares;
        }
        m->then[count++] = p->brokers[best].id;
        p->load[best]++;
    }
}

/* ---- Even shares ---- */

/* A replica of `from` that can lie on `to`: rather one that is not the first. */
static bool shift_one(struct plan *p, size_t from, size_t to) {
    for (int first = 0; first < 2; first++) {
        for (size_t k = 0; k < p->n; k++) {
            struct cli_move *m = &p->v[(p->cursor + k) % p->n];
            size_t at = place_of(m, m->want, p->brokers[from].id);
            if (at == m->want || (at == 0) != (first == 1) || place_of(m, m->want, p->brokers[to].id) < m->want) continue;
            bool poorer = has_rack(p, m, m->want, at, to) && !has_rack(p, m, m->want, at, from);
            if (poorer) continue;
            m->then[at] = p->brokers[to].id;
            p->cursor = (p->cursor + k + 1) % p->n;
            return true;
        }
    }
    return false;
}

static bool lead_one(struct plan *p, size_t from, size_t to) {
    for (size_t k = 0; k < p->n; k++) {
        struct cli_move *m = &p->v[(p->cursor + k) % p->n];
        size_t at = place_of(m, m->want, p->brokers[to].id);
        if (m->want == 0 || m->then[0] != p->brokers[from].id || at == m->want) continue;
        m->then[at] = m->then[0];
        m->then[0] = p->brokers[to].id;
        p->cursor = (p->cursor + k + 1) % p->n;
        return true;
    }
    return false;
}

/* One step from a broker with more to one with fewer, of those that differ most first. Each step makes the shares more even, so it ends. */
static bool even_out(struct plan *p, size_t *share, bool (*step)(struct plan *, size_t, size_t)) {
    size_t most = 0;
    for (size_t b = 0; b < p->broker_count; b++) most = share[b] > most ? share[b] : most;
    for (size_t gap = most; gap >= 2; gap--) {
        for (size_t from = 0; from < p->broker_count; from++) {
            for (size_t to = 0; to < p->broker_count; to++) {
                if (share[from] != share[to] + gap || !step(p, from, to)) continue;
                share[from]--;
                share[to]++;
                return true;
            }
        }
    }
    return false;
}

int cli_plan(struct cli_move *v, size_t n, const struct cli_plan_broker *brokers, size_t broker_count) {
    struct plan p = {.v = v, .n = n, .brokers = brokers, .broker_count = broker_count};
    size_t *counts = calloc(2 * broker_count + n + 1, sizeof *counts);
    if (!counts) return -1;
    size_t *kept = counts + 2 * broker_count;
    p.load = counts;
    p.firsts = counts + broker_count;
    for (size_t i = 0; i < n; i++) kept[i] = keep(&p, &v[i]);
    for (size_t i = 0; i < n; i++) fill(&p, &v[i], kept[i]);
    while (even_out(&p, p.load, shift_one)) {
    }
    for (size_t i = 0; i < n; i++)
        if (v[i].want > 0) p.firsts[broker_of(&p, v[i].then[0])]++;
    while (even_out(&p, p.firsts, lead_one)) {
    }
    free(counts);
    return 0;
}
