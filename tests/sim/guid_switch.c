/* guid_switch.c - an administrator changes his mind about topics that look ids up, in a share of the seeds that have some: message.guid.dedup is switched
 * off and on again while there is data, message.guid.window.ms is made shorter and longer. Drawn from a stream of its own: other seeds stay as they are.
 *
 * What a node promises follows from what its settings were at each time, and each node hears of them in its own time. So of every copy the spans are kept
 * in which its node had the same settings. While dedup is off nothing is promised. From the switch-on a record's id is known if it is younger than
 * the window then. An id that has once been older than the window of the moment may be forgotten, and a longer window does not bring it back.
 *
 * Called by guid_model.c, guid_faults.c, workload.c, check_guid.c. Calls admin_app.c.
 */
#include <stdio.h>
#include <stdlib.h>

#include "guid.h"
#include "node_priv.h"

/* ---- Drawing ---- */

static int64_t draw_window_ms(const struct sim_guids *g, struct kw_rng *own) {
    switch (kw_rng_below(own, 3)) {
    case 0: return 1000 + (int64_t)kw_rng_below(own, 8000);
    case 1: return 8000 + (int64_t)kw_rng_below(own, 20000);
    default: return g->retention == SIM_KEEP_WINDOW ? 3000 + (int64_t)kw_rng_below(own, 20000) : 30000 + (int64_t)kw_rng_below(own, 4000000);
    }
}

static void add_change(struct sim_guids *g, int topic, int64_t at_us, enum sim_guid_change_kind kind, int64_t window_ms) {
    if (g->change_count < SIM_GUID_CHANGES_MAX) g->changes[g->change_count++] = (struct sim_guid_change){at_us, window_ms, topic, kind};
}

void sim_guids_draw_changes(struct sim_guids *g) {
    struct sim_model *m = &g->run->model;
    struct kw_rng own;
    kw_rng_init(&own, g->run->w.seed ^ 0x7377697463680aULL);
    if (kw_rng_below(&own, 4)) return;
    int kinds = 1 + (int)kw_rng_below(&own, 3); /* 1: switches, 2: windows, 3: both */
    for (int t = 0; t < m->topic_count; t++) {
        if (!m->topics[t].guid) continue;
        g->windows[t][g->window_count[t]++] = m->topics[t].window_us / 1000;
        int64_t at_us = (int64_t)kw_rng_below(&own, 20 * SIM_S) + 3 * SIM_S;
        for (int i = 0; i < 5 && at_us < 70 * SIM_S; i++) {
            bool off = kinds == 1 || (kinds == 3 && kw_rng_below(&own, 2));
            int64_t lasts_us = kw_rng_below(&own, 3) ? (int64_t)kw_rng_below(&own, 12 * SIM_S) : (int64_t)kw_rng_below(&own, 500 * SIM_MS);
            add_change(g, t, at_us, off ? SIM_GUID_SWITCH_OFF : SIM_GUID_WINDOW, off ? 0 : draw_window_ms(g, &own));
            if (off) add_change(g, t, at_us += lasts_us, SIM_GUID_SWITCH_ON, 0);
            at_us += (int64_t)kw_rng_below(&own, 20 * SIM_S) + SIM_S;
        }
    }
    g->switches = kinds != 2;
}

/* ---- Doing ---- */

static void set_number(struct sim_run *r, int topic, const char *name, int64_t v) {
    char value[24];
    snprintf(value, sizeof value, "%lld", (long long)v);
    sim_admin_config(r->admin, topic, name, value);
}

/* Records that go by time are never to go before their ids: that is refused. */
static void set_window(struct sim_run *r, int topic, int64_t window_ms) {
    bool kept_for = r->guids->retention == SIM_KEEP_WINDOW;
    if (kept_for) set_number(r, topic, "retention.ms", 3600000);
    set_number(r, topic, "message.guid.window.ms", window_ms);
    if (kept_for) set_number(r, topic, "retention.ms", window_ms + 1500);
}

static void change(void *ctx, uint64_t i) {
    struct sim_run *r = ctx;
    struct sim_guids *g = r->guids;
    const struct sim_guid_change *x = &g->changes[i];
    if (x->kind == SIM_GUID_WINDOW) {
        g->windows[x->topic][g->window_count[x->topic]++] = x->window_ms;
        set_window(r, x->topic, x->window_ms);
        sim_fire(&r->w, SIM_F_GUID_WINDOW);
        sim_trace(&r->w, "ids of topic-%d are to be known for %lld ms", x->topic, (long long)x->window_ms);
        return;
    }
    g->off[x->topic] = x->kind == SIM_GUID_SWITCH_OFF;
    sim_admin_config(r->admin, x->topic, "message.guid.dedup", g->off[x->topic] ? "false" : "true");
    if (g->off[x->topic]) sim_fire(&r->w, SIM_F_GUID_OFF);
    sim_trace(&r->w, "ids of topic-%d are to be looked up %s", x->topic, g->off[x->topic] ? "no more" : "again");
}

void sim_guids_changes_start(struct sim_run *r) {
    for (size_t i = 0; r->guids && i < r->guids->change_count; i++) sim_at(&r->w, r->w.now_us + r->guids->changes[i].at_us, change, r, i);
}

void sim_guids_admin_again(struct sim_run *r) {
    struct sim_guids *g = r->guids;
    if (!g || !g->change_count) return;
    for (int t = 0; t < r->model.topic_count; t++) {
        if (!r->model.topics[t].guid) continue;
        set_window(r, t, g->windows[t][g->window_count[t] - 1]);
        sim_admin_config(r->admin, t, "message.guid.dedup", g->off[t] ? "false" : "true");
    }
}

/* ---- What a node had, and when ---- */

static size_t place_of(const struct sim_guids *g, int topic, int64_t window_us) {
    for (size_t i = 0; i < g->window_count[topic]; i++)
        if (g->windows[topic][i] * 1000 == window_us) return i;
    sim_fail(&g->run->w, 36, "topic-%d: a node has a window of %lld us, which nobody has set", topic, (long long)window_us);
}

/* A node may hear of several changes at once. */
static int64_t shortest_between(const struct sim_guids *g, int topic, int64_t a_us, int64_t b_us) {
    size_t a = place_of(g, topic, a_us), b = place_of(g, topic, b_us);
    int64_t shortest = KW_MIN(a_us, b_us);
    for (size_t i = KW_MIN(a, b); i <= KW_MAX(a, b); i++) shortest = KW_MIN(shortest, g->windows[topic][i] * 1000);
    return shortest;
}

static void add_span(struct sim_guid_copy *c, struct sim_guid_span s) {
    c->spans = sim_grow(c->spans, c->span_count, &c->span_cap, sizeof *c->spans);
    c->spans[c->span_count++] = s;
}

void sim_guid_saw(struct sim_guids *g, struct sim_guid_copy *c, const struct sim_broker *b, const struct kb_partition *x, int topic) {
    int64_t now_us = g->run->w.now_us;
    struct sim_guid_span s = {now_us, now_us, x->config.guid_window_ms * 1000, b->lives, !x->config.guid_dedup};
    struct sim_guid_span *last = c->span_count ? &c->spans[c->span_count - 1] : NULL;
    if (last && last->life == s.life) last->to_us = now_us;
    if (last && last->life == s.life && last->window_us == s.window_us && last->off == s.off) return;
    int64_t between = last ? shortest_between(g, topic, last->window_us, s.window_us) : s.window_us;
    if (last && between < KW_MIN(last->window_us, s.window_us)) add_span(c, (struct sim_guid_span){now_us, now_us, between, s.life, false});
    add_span(c, s);
}

bool sim_guid_was_off(const struct sim_guid_copy *c, int64_t since_us) {
    for (size_t i = c->span_count; i-- > 0 && c->spans[i].to_us >= since_us;)
        if (c->spans[i].off) return true;
    return c->span_count > 1 && c->spans[c->span_count - 2].off && c->spans[c->span_count - 1].from_us >= since_us; /* and it was down meanwhile */
}

int64_t sim_guid_left_us(const struct sim_guid_copy *c, int64_t appended_us, int64_t early_us, int64_t since_us, int64_t at_us) {
    int64_t left_us = INT64_MAX;
    bool newest = true;
    for (size_t i = c->span_count; i-- > 0;) {
        const struct sim_guid_span *s = &c->spans[i];
        if (s->from_us > at_us) continue;
        if (s->off && (newest || s->to_us >= since_us)) return 0;
        int64_t end_us = newest ? at_us : KW_MIN(s->to_us, at_us);
        if (s->off || end_us < appended_us) break; /* when it was switched on, or when the record came, nothing had been forgotten yet */
        left_us = KW_MIN(left_us, s->window_us - s->window_us / 200 - early_us - (end_us - appended_us));
        newest = false;
    }
    return left_us == INT64_MAX ? 0 : left_us;
}
