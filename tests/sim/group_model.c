/* group_model.c - invariants 33 and 34: what groups have committed stays and does not go back; one owner for each partition and generation;
 * who is of an older generation commits nothing. Called by commits_app.c with what clients were told.
 *
 * A commit whose answer did not come may take effect at any time, even after a later one, where its connection was abandoned: the model
 * keeps it as one that may be seen. In a crew that ends with the next commit of a later generation, since an older one is refused from then on.
 */
#include "groups.h"

#include <stdio.h>

#include "workload.h"

enum { BRIEF_S = 55 }; /* offsets that are kept for a minute stay for so long at least */

void sim_groups_init(struct sim_groups *g) {
    for (int i = 0; i < SIM_ALONE; i++) snprintf(g->alone[i].id, sizeof g->alone[i].id, "alone-%d", i);
    for (int i = 0; i < SIM_CREWS; i++) {
        snprintf(g->crews[i].id, sizeof g->crews[i].id, "crew-%d", i);
        g->crews[i].crew = true;
    }
    for (int i = 0; i < SIM_ALONE + SIM_CREWS; i++) {
        struct sim_group *one = i < SIM_ALONE ? &g->alone[i] : &g->crews[i - SIM_ALONE];
        for (int k = 0; k < SIM_CELLS; k++) one->cells[k].current = one->cells[k].generation = -1;
    }
}

/* ---- Commits ---- */

static bool take_unsure(struct sim_cell *c, int64_t value) {
    for (int i = 0; i < c->unsure_count; i++)
        if (c->unsure[i].value == value) {
            memmove(&c->unsure[i], &c->unsure[i + 1], (size_t)(--c->unsure_count - i) * sizeof c->unsure[0]);
            return true;
        }
    return false;
}

int64_t sim_commit_sent(struct sim_cell *c, int32_t generation) {
    if (c->unsure_count == SIM_UNSURE_MAX) take_unsure(c, c->unsure[0].value); /* so long ago that no connection has it still on the way */
    c->unsure[c->unsure_count++] = (struct sim_unsure){++c->next, generation};
    return c->next;
}

static void stored(struct sim_cell *c, int64_t value, int32_t generation) {
    c->current = value;
    c->generation = generation;
    c->anything = false;
    c->version++;
    for (int i = c->unsure_count; i-- > 0 && generation >= 0;)
        if (c->unsure[i].generation < generation) take_unsure(c, c->unsure[i].value);
}

static bool is_before_loss(const struct sim_run *r, int64_t asked_us) {
    return r->groups.losses > 0 && asked_us <= r->groups.lost_us;
}

void sim_commit_ended(struct sim_run *r, struct sim_group *g, int cell, int64_t value, int32_t generation, int64_t sent_us, enum sim_commit_end end) {
    struct sim_cell *c = &g->cells[cell];
    if (end == SIM_COMMIT_REFUSED) take_unsure(c, value);
    if (end != SIM_COMMIT_ACKED) return;
    r->groups.acked++;
    if (is_before_loss(r, sent_us)) return; /* the answer was on its way when what it tells of was lost */
    if (g->crew && generation < g->synced && sent_us > g->synced_us)
        sim_fail(&r->w, 33, "%s: %lld was committed for partition %d by generation %d, long after generation %d had begun", g->id, (long long)value, cell,
                 generation, g->synced);
    if (!take_unsure(c, value)) return; /* it was seen already, or what came later was */
    if (generation < c->generation) return; /* its answer was long in coming */
    stored(c, value, generation);
    c->acked_us = r->w.now_us;
}

static bool may_have_aged(const struct sim_run *r, const struct sim_group *g, const struct sim_cell *c) {
    return r->groups.brief && r->w.now_us - (g->crew ? KW_MAX(g->sign_us, c->acked_us) : c->acked_us) >= BRIEF_S * SIM_S;
}

void sim_commit_read(struct sim_run *r, struct sim_group *g, int cell, int64_t value, uint64_t version) {
    struct sim_cell *c = &g->cells[cell];
    if (version != c->version) return; /* somebody else committed meanwhile: which came first nobody can tell */
    r->groups.fetched++;
    for (int i = 0; i < c->unsure_count; i++)
        if (c->unsure[i].value == value) {
            int32_t generation = c->unsure[i].generation;
            take_unsure(c, value);
            stored(c, value, KW_MAX(generation, c->generation));
            c->acked_us = 0; /* nobody knows since when */
            return;
        }
    if (value == c->current) return;
    if (c->anything || (value < 0 && may_have_aged(r, g, c))) {
        stored(c, value, -1);
        c->acked_us = 0;
        return;
    }
    sim_fail(&r->w, 34, "%s: %lld was committed for partition %d, and %lld is there now", g->id, (long long)c->current, cell, (long long)value);
}

/* ---- Members ---- */

static uint64_t hash(const char *s) {
    uint64_t h = 0xcbf29ce484222325u;
    for (; *s; s++) h = (h ^ (uint8_t)*s) * 0x100000001b3u;
    return h | 1;
}

static void begin_anew(struct sim_group *g) {
    g->synced = 0;
    memset(g->owners, 0, sizeof g->owners);
}

/* A group without members and offsets is forgotten with the next look at what has aged, and begins at generation 1 again. */
static bool has_committed(const struct sim_group *g) {
    for (int i = 0; i < SIM_CELLS; i++)
        if (g->cells[i].current >= 0) return true;
    return false;
}

void sim_group_sign(struct sim_run *r, struct sim_group *g) {
    if (r->groups.brief && r->w.now_us - g->sign_us >= BRIEF_S * SIM_S) { /* it may have been without members, and forgotten */
        begin_anew(g);
        for (int i = 0; i < SIM_CELLS; i++) g->cells[i].anything = true;
    }
    g->sign_us = r->w.now_us;
}

static void began(struct sim_run *r, struct sim_group *g, int32_t generation) {
    if (generation <= g->synced) return;
    g->synced = generation;
    g->synced_us = r->w.now_us;
}

void sim_group_beat(struct sim_run *r, struct sim_group *g, int32_t generation, int64_t asked_us) {
    if (!is_before_loss(r, asked_us)) began(r, g, generation);
}

void sim_group_synced(struct sim_run *r, struct sim_group *g, int32_t generation, const char *member, const uint8_t *cells, int count,
                      int64_t asked_us) {
    r->groups.syncs++;
    if (is_before_loss(r, asked_us)) return;
    if (generation == 1 && !has_committed(g)) begin_anew(g);
    if (generation < g->synced && asked_us > g->synced_us)
        sim_fail(&r->w, 33, "%s: member %s is told what it owns in generation %d, when generation %d had begun", g->id, member, generation, g->synced);
    began(r, g, generation);
    int at = generation % SIM_OWNERS;
    if (g->owners[at].generation != generation) {
        memset(&g->owners[at], 0, sizeof g->owners[at]);
        g->owners[at].generation = generation;
    }
    for (int i = 0; i < count; i++) {
        uint64_t *owner = &g->owners[at].of[cells[i] % SIM_CELLS];
        if (*owner && *owner != hash(member))
            sim_fail(&r->w, 33, "%s: partition %d has two owners in generation %d, the second is %s", g->id, cells[i], generation, member);
        *owner = hash(member);
    }
}

void sim_groups_lost(struct sim_run *r) {
    if (!r->groups.on) return;
    r->groups.losses++;
    r->groups.lost_us = r->w.now_us;
    for (int i = 0; i < SIM_ALONE + SIM_CREWS; i++) {
        struct sim_group *g = i < SIM_ALONE ? &r->groups.alone[i] : &r->groups.crews[i - SIM_ALONE];
        begin_anew(g);
        for (int k = 0; k < SIM_CELLS; k++) {
            g->cells[k].anything = true;
            g->cells[k].generation = -1;
            g->cells[k].version++;
        }
    }
}
