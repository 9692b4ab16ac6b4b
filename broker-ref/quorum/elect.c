/* elect.c - contract: elect.h. */
#include "elect.h"

bool kb_elect_has(const int32_t *v, int32_t n, int32_t id) {
    for (int32_t i = 0; i < n; i++)
        if (v[i] == id) return true;
    return false;
}

bool kb_elect_same(const int32_t *a, int32_t n, const int32_t *b, int32_t m) {
    return n == m && (n == 0 || memcmp(a, b, (size_t)n * sizeof(*a)) == 0);
}

enum { DIRECTORY_RESERVED = 100 }; /* ids below have meanings of their own: unassigned, lost, migrating */

static bool reserved(struct kw_uuid id) {
    for (size_t k = 0; k < 15; k++)
        if (id.b[k]) return false;
    return id.b[15] < DIRECTORY_RESERVED;
}

const struct kw_uuid kb_directory_lost = {{[15] = 1}};
const struct kw_uuid kb_directory_lacking = {{[15] = DIRECTORY_RESERVED - 1}};

bool kb_elect_is_lost(const struct kb_image_partition *p, int32_t replica) {
    for (int32_t i = 0; i < p->replica_count && i < p->directory_count; i++)
        if (p->replicas[i] == replica) return kw_uuid_eq(p->directories[i], kb_directory_lost);
    return false;
}

bool kb_elect_other_disk(const struct kb_image_partition *p, int32_t replica, const struct kw_uuid *dirs, int32_t dir_count) {
    for (int32_t i = 0; i < p->replica_count && i < p->directory_count; i++) {
        if (p->replicas[i] != replica) continue;
        if (reserved(p->directories[i]) || dir_count == 0) return false;
        for (int32_t k = 0; k < dir_count; k++)
            if (kw_uuid_eq(p->directories[i], dirs[k])) return false;
        return true;
    }
    return false;
}

/* ---- Replicas by number ---- */

static int32_t place_of(const struct kb_image_partition *p, int32_t id) {
    for (int32_t i = 0; i < p->replica_count; i++)
        if (p->replicas[i] == id) return i;
    return -1;
}

static uint8_t state_of(const struct kb_image_partition *p, const uint8_t *states, int32_t id) {
    int32_t i = place_of(p, id);
    return i < 0 ? 0 : states[i];
}

/* What it had is not whole. */
static bool is_lost(uint8_t state) {
    return state & (KB_REPLICA_LOST | KB_REPLICA_WIPED);
}

/* Alone, an emptied disk is all there is; beside others it is worth nothing. */
static bool is_worthless(const struct kb_image_partition *p, uint8_t state) {
    return (state & KB_REPLICA_WIPED) && p->replica_count > 1;
}

/* The members of v that have all bits of `with` and are not lost, in v's order. */
static int32_t select_whole(const struct kb_image_partition *p, const uint8_t *states, const int32_t *v, int32_t n, uint8_t with, int32_t *out) {
    int32_t count = 0;
    for (int32_t i = 0; i < n; i++) {
        uint8_t s = state_of(p, states, v[i]);
        if ((s & with) == with && !is_lost(s)) out[count++] = v[i];
    }
    return count;
}

static int32_t first_in_order(const struct kb_image_partition *p, const int32_t *v, int32_t n) {
    for (int32_t i = 0; i < p->replica_count; i++)
        if (kb_elect_has(v, n, p->replicas[i])) return p->replicas[i];
    return -1;
}

/* ---- The in-sync replicas ---- */

static void set_single(struct kb_elected *e, int32_t id) {
    e->isr[0] = id;
    e->isr_count = 1;
}

/* The one of a set of lost ones that stays: who led, else the first in order. */
static int32_t last_one(const struct kb_image_partition *p) {
    return kb_elect_has(p->isr, p->isr_count, p->leader) ? p->leader : first_in_order(p, p->isr, p->isr_count);
}

/* Every in-sync replica may have lost something: true when one of them leads all the same. */
static bool elect_lost(const struct kb_image_partition *p, const uint8_t *states, const struct kb_elect_rules *rules, struct kb_elected *e) {
    int32_t id = last_one(p);
    uint8_t s = state_of(p, states, id);
    set_single(e, id);
    e->leader = -1;
    if (is_worthless(p, s)) return false;
    if (!rules->last_known) {
        e->gave_up = true;
        return false;
    }
    if (!(s & KB_REPLICA_ALIVE)) return false;
    e->leader = id;
    e->doubtful = true;
    return true;
}

static void choose(const struct kb_image_partition *p, const uint8_t *states, const struct kb_elect_rules *rules, struct kb_elected *e) {
    bool keeps = kb_elect_has(e->isr, e->isr_count, p->leader);
    if (rules->preferred && kb_elect_has(e->isr, e->isr_count, p->replicas[0]) && (states[0] & KB_REPLICA_STAYS))
        e->leader = p->replicas[0];
    else
        e->leader = keeps ? p->leader : first_in_order(p, e->isr, e->isr_count);
}

/* From the in-sync replicas; true when one leads. */
static bool elect_in_sync(const struct kb_image_partition *p, const uint8_t *states, const struct kb_elect_rules *rules, struct kb_elected *e) {
    e->isr_count = select_whole(p, states, p->isr, p->isr_count, KB_REPLICA_ALIVE | KB_REPLICA_STAYS, e->isr);
    if (e->isr_count == 0) e->isr_count = select_whole(p, states, p->isr, p->isr_count, KB_REPLICA_ALIVE, e->isr);
    if (e->isr_count > 0) {
        choose(p, states, rules, e);
        return true;
    }
    e->isr_count = select_whole(p, states, p->isr, p->isr_count, 0, e->isr);
    if (e->isr_count == 0) return elect_lost(p, states, rules, e);
    e->leader = -1;
    return false;
}

/* Nobody is in sync: Apache Kafka left eligible replicas, or the last known leader was not allowed to lead (KIP-966). */
static bool elect_eligible(const struct kb_image_partition *p, const uint8_t *states, const struct kb_elect_rules *rules, struct kb_elected *e) {
    int32_t id = -1;
    for (int32_t i = 0; id < 0 && i < p->replica_count; i++)
        if ((states[i] & KB_REPLICA_ALIVE) && !is_lost(states[i]) && kb_elect_has(p->elr, p->elr_count, p->replicas[i])) id = p->replicas[i];
    for (int32_t i = 0; id < 0 && p->elr_count == 0 && rules->last_known && i < p->replica_count; i++) {
        if (!(states[i] & KB_REPLICA_ALIVE) || is_worthless(p, states[i])) continue;
        if (!kb_elect_has(p->last_known_elr, p->last_known_elr_count, p->replicas[i])) continue;
        id = p->replicas[i];
        e->doubtful = true;
    }
    e->leader = id;
    if (id < 0) return false;
    set_single(e, id);
    e->cleared = true;
    return true;
}

/* ---- Unclean ---- */

static bool elect_unclean(const struct kb_image_partition *p, const uint8_t *states, struct kb_elected *e) {
    static const uint8_t worse[] = {0, KB_REPLICA_LOST | KB_REPLICA_WEAK, KB_REPLICA_LOST | KB_REPLICA_WEAK | KB_REPLICA_WIPED};
    for (int stays = 1; stays >= 0; stays--)
        for (size_t k = 0; k < KW_COUNTOF(worse); k++)
            for (int32_t i = 0; i < p->replica_count; i++) {
                uint8_t s = states[i], bad = KB_REPLICA_LOST | KB_REPLICA_WEAK | KB_REPLICA_WIPED;
                if (!(s & KB_REPLICA_ALIVE) || (stays && !(s & KB_REPLICA_STAYS)) || (s & bad & ~worse[k])) continue;
                e->leader = p->replicas[i];
                set_single(e, p->replicas[i]);
                e->lossy = true;
                e->cleared = p->elr_count > 0 || p->last_known_elr_count > 0;
                e->gave_up = e->doubtful = false;
                return true;
            }
    return false;
}

void kb_elect(const struct kb_image_partition *p, const uint8_t *states, const struct kb_elect_rules *rules, struct kb_elected *e) {
    *e = (struct kb_elected){.leader = -1, .isr = e->isr};
    bool leads = p->isr_count > 0 ? elect_in_sync(p, states, rules, e) : elect_eligible(p, states, rules, e);
    if (!leads && rules->unclean) leads = elect_unclean(p, states, e);
    if (e->gave_up) e->isr_count = 0;
    e->led_anew = e->leader != p->leader || e->lossy || (rules->anew && leads);
    e->changed = e->led_anew || e->gave_up || !kb_elect_same(e->isr, e->isr_count, p->isr, p->isr_count);
}
