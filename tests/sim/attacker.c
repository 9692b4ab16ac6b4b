/* attacker.c - see attacker.h. */
#include "attacker.h"

#include <stdlib.h>

#include "kw_messages.h"

enum { LOOT_SIZE_MAX = 65536, FRAME_HEAD = 8 /* length, API key, version */ };

/* ---- Loot ---- */

static void keep(struct sim_attacker *a) {
    size_t i = a->loot_count < SIM_LOOT_MAX ? a->loot_count++ : (size_t)sim_below(a->w, SIM_LOOT_MAX);
    free(a->loot[i].p);
    a->loot[i].p = a->seen.p;
    a->loot[i].size = a->seen.size;
    a->seen.p = NULL;
    a->seen.conn = 0;
}

/* A client writes the head of a request by itself, so that what begins with a fitting length and a known key is one's beginning. */
static void tap(void *ctx, struct sim_conn *c, enum sim_side side, const void *p, size_t n) {
    struct sim_attacker *a = ctx;
    const uint8_t *b = p;
    if (side != SIM_CLIENT || !sim_from_client(c) || c->from == sim_client_host(SIM_ATTACKER)) return;
    if (a->seen.conn == c->id) {
        size_t k = KW_MIN(n, a->seen.want - a->seen.size);
        memcpy(a->seen.p + a->seen.size, b, k);
        a->seen.size += k;
        if (a->seen.size == a->seen.want) keep(a);
        return;
    }
    if (a->seen.conn && sim_below(a->w, 8)) return; /* busy with another's; now and then that one is given up */
    if (n < FRAME_HEAD || n > LOOT_SIZE_MAX) return;
    size_t want = (size_t)kw_load32(b) + 4;
    const struct kw_api *api = kw_api_by_key((int16_t)kw_load16(b + 4));
    if (want < n || want > LOOT_SIZE_MAX || !api || (int16_t)kw_load16(b + 6) > api->max) return;
    free(a->seen.p);
    a->seen.p = sim_need(malloc(want));
    a->seen.want = want;
    a->seen.size = n;
    a->seen.conn = c->id;
    memcpy(a->seen.p, b, n);
    if (n == want) keep(a);
}

static bool harmless(int16_t key) { /* it changes nothing, whatever it says */
    switch (key) {
    case KW_API_FETCH:
    case KW_API_LIST_OFFSETS:
    case KW_API_METADATA:
    case KW_API_API_VERSIONS:
    case KW_API_OFFSET_FOR_LEADER_EPOCH:
    case KW_API_FIND_COORDINATOR:
    case KW_API_DESCRIBE_CONFIGS:
        return true;
    default:
        return false;
    }
}

/* ---- What is sent ---- */

static uint8_t *room(struct sim_attacker *a, size_t n) {
    if (a->out_size + n > a->out_cap) {
        a->out_cap = (a->out_size + n) * 2;
        a->out = sim_need(realloc(a->out, a->out_cap));
    }
    a->out_size += n;
    return a->out + a->out_size - n;
}

void sim_attacker_add(struct sim_attacker *a, const void *p, size_t n) {
    memcpy(room(a, n), p, n);
}

static void random_bytes(struct sim_attacker *a) {
    size_t n = 1 + sim_below(a->w, 3000);
    uint8_t *p = room(a, n);
    for (size_t i = 0; i < n; i++) p[i] = (uint8_t)kw_rng_next(&a->w->rng);
    sim_fire(a->w, SIM_F_BAD_BYTES);
    if (n >= 4 && (p[0] & 0x80)) { /* a negative length */
        a->poison = a->out_size;
        a->over = true;
    }
    a->over |= n >= 4; /* the rest would be taken for what the length announced */
}

static void impossible_length(struct sim_attacker *a) {
    static const uint32_t lengths[] = {0xffffffffu, 0x80000000u, 0x7fffffffu, 0xdeadbeefu, 0x47455420u};
    uint8_t *p = room(a, 40);
    memset(p, 0, 40);
    kw_store32(p, lengths[sim_below(a->w, KW_COUNTOF(lengths))]);
    sim_fire(a->w, SIM_F_BAD_LENGTH);
    a->poison = a->out_size;
    a->over = true;
}

/* Some of a request: its length says so, or the connection ends in its middle. */
static void cut_short(struct sim_attacker *a) {
    if (!a->loot_count) return;
    size_t i = sim_below(a->w, a->loot_count), n = a->loot[i].size;
    size_t k = FRAME_HEAD + sim_below(a->w, n - FRAME_HEAD);
    uint8_t *p = room(a, k);
    memcpy(p, a->loot[i].p, k);
    if (sim_below(a->w, 3))
        kw_store32(p, (uint32_t)(k - 4));
    else
        a->over = true;
    sim_fire(a->w, SIM_F_BAD_CUT);
}

static void changed(struct sim_attacker *a) {
    static const uint8_t odd[] = {0xff, 0x80, 0x7f, 0x00, 0x01};
    for (int tries = 0; tries < 20 && a->loot_count; tries++) {
        size_t i = sim_below(a->w, a->loot_count), n = a->loot[i].size;
        if (!harmless((int16_t)kw_load16(a->loot[i].p + 4)) || n <= FRAME_HEAD) continue;
        uint8_t *p = memcpy(room(a, n), a->loot[i].p, n);
        for (uint64_t k = 1 + sim_below(a->w, 6); k > 0; k--) {
            uint8_t *at = p + 6 + sim_below(a->w, n - 6); /* the version and what follows: the key stays */
            *at = (uint8_t)(sim_below(a->w, 2) ? odd[sim_below(a->w, sizeof odd)] : *at ^ (1u << sim_below(a->w, 8)));
        }
        sim_fire(a->w, SIM_F_BAD_CHANGED);
        return;
    }
}

static void random_body(struct sim_attacker *a) {
    size_t n = FRAME_HEAD + 6 + sim_below(a->w, 200);
    uint8_t *p = room(a, n);
    for (size_t i = 0; i < n; i++) p[i] = sim_below(a->w, 3) ? (uint8_t)sim_below(a->w, 4) : (uint8_t)kw_rng_next(&a->w->rng);
    kw_store32(p, (uint32_t)(n - 4));
    kw_store16(p + 4, (uint16_t)sim_below(a->w, sim_below(a->w, 4) ? 80 : 65536));
    kw_store16(p + 6, (uint16_t)sim_below(a->w, 20));
    kw_store16(p + 12, 0); /* an empty client id: else it hardly gets as far as its body */
    sim_fire(a->w, SIM_F_BAD_BODY);
}

static void prepare(struct sim_attacker *a) {
    static void (*const kinds[])(struct sim_attacker *) = {random_bytes, impossible_length, cut_short, changed, changed, random_body};
    a->out_size = a->out_sent = a->poison = 0;
    a->over = false;
    a->target = a->servers > 1 ? (int)sim_below(a->w, (uint64_t)a->servers) : 0;
    a->forged = a->forge && sim_below(a->w, 2);
    if (a->forged) {
        a->forge(a->forge_ctx, a);
        return;
    }
    for (uint64_t n = 1 + sim_below(a->w, 4); n > 0 && !a->over; n--) kinds[sim_below(a->w, KW_COUNTOF(kinds))](a);
}

/* ---- Its turns ---- */

static void leave(struct sim_attacker *a) {
    sim_close(a->conn, SIM_CLIENT, sim_below(a->w, 2));
    a->conn = NULL;
}

static void turn(struct sim_host *h) {
    struct sim_attacker *a = (struct sim_attacker *)h;
    uint8_t buf[8192];
    int64_t n;
    if (!a->conn) return;
    if (a->conn->refused || a->w->now_us >= a->leave_us) {
        leave(a);
        return;
    }
    sim_host_wake(h, a->leave_us);
    if (!a->conn->established) return;
    while (a->out_sent < a->out_size) {
        n = sim_write(a->conn, SIM_CLIENT, a->out + a->out_sent, a->out_size - a->out_sent);
        if (n < 0) {
            leave(a);
            return;
        }
        if (n == 0) break;
        a->out_sent += (size_t)n;
        if (a->poison && a->out_sent == a->out_size) a->conn->pipe[SIM_CLIENT].poison_at = a->conn->pipe[SIM_CLIENT].total;
    }
    for (int i = 0; i < 16; i++) {
        n = sim_read(a->conn, SIM_CLIENT, buf, sizeof buf);
        if (n == SIM_READ_NONE) return;
        if (n <= 0) {
            leave(a);
            return;
        }
        sim_hash(a->w, buf, (size_t)n);
    }
    sim_host_wake(h, a->w->now_us + SIM_MS);
}

void sim_attacker_strike(struct sim_attacker *a) {
    if (a->conn) return;
    prepare(a);
    if (!a->out_size) return;
    int64_t most_us = a->forged ? SIM_S / 2 : a->forge ? 3 * SIM_S : 20 * SIM_S; /* the next forgery meets another state of things */
    a->leave_us = a->w->now_us + sim_range(a->w, 20 * SIM_MS, most_us);
    a->conn = sim_connect(a->net, sim_client_host(SIM_ATTACKER), a->net->servers[a->target].address, NULL);
    sim_trace(a->w, "the attacker connects%s: %llu, %zu bytes", a->target ? " elsewhere" : "", (unsigned long long)a->conn->id, a->out_size);
    sim_host_wake(&a->host, a->leave_us);
}

void sim_attacker_init(struct sim_attacker *a, struct sim_world *w, struct sim_net *net) {
    memset(a, 0, sizeof *a);
    sim_host_init(&a->host, w, "attacker", SIM_ATTACKER + 1, turn);
    a->w = w;
    a->net = net;
    net->hosts[sim_client_host(SIM_ATTACKER)] = &a->host;
    net->tap = tap;
    net->tap_ctx = a;
}

void sim_attacker_deinit(struct sim_attacker *a) {
    for (size_t i = 0; i < a->loot_count; i++) free(a->loot[i].p);
    free(a->seen.p);
    free(a->out);
}
