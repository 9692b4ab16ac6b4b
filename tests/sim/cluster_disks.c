/* cluster_disks.c - what goes wrong with the disks of a cluster's nodes: lost, gone back to an older image, hung, slow, full, failing, unreadable in
 * places; and, at a start, files that are gone, cut, zeroed, rotten or not where they were written. Called by cluster_faults.c; cluster_atlas.c says when.
 *
 * Of what a node lost and others have, it may take no advantage: it is out of the ISR, or has it again.
 */
#include <stdio.h>
#include <stdlib.h>

#include "cluster_faults.h"
#include "guid.h"
#include "node_priv.h"
#include "quorum/raft_priv.h"
#include "scan.h"

enum { SECTOR = 512 };

/* ---- All of it ---- */

static void come_back(void *ctx, uint64_t node) {
    struct sim_cluster *c = ctx;
    sim_start_later(c, &c->run->nodes[node], SIM_S);
}

/* Who has what this one lost is away when it comes back: it is in sync by the metadata still, with all of them, and must not lead. So their deaths are
 * seen as one, and before it is back: were the others fenced first, because the network kept this one's from the controller, it would be the last in sync,
 * and nobody could lead any more but by an unclean election (specs.md 2.9, 2.10, 2.21, 2.22). */
static void take_the_others(struct sim_cluster *c, const struct sim_broker *b) {
    for (int i = 0; i < c->run->node_count; i++) {
        if (!c->broker[i] || i == b->index) continue;
        sim_broker_kill(&c->run->nodes[i]);
        sim_at(&c->run->w, c->run->w.now_us + sim_range(&c->run->w, 3 * SIM_S, 8 * SIM_S), come_back, c, (uint64_t)i);
    }
}

/* All it had is gone, and it comes back under its id. */
void sim_disks_wipe(struct sim_cluster *c) {
    struct sim_broker *b = sim_any_node(c);
    struct sim_world *w = &c->run->w;
    if (c->plan.apart && sim_below(w, 3) == 0 && sim_disks_kill_all_rotten(c)) return;
    if (b->life != SIM_UP || !sim_atlas_may_lose(c, b->index, true)) return;
    sim_fire(w, SIM_F_WIPED);
    c->trouble_us = w->now_us;
    sim_steady(c);
    bool first = c->plan.apart && c->broker[b->index] && sim_below(w, 2); /* the quorum stays */
    if (first) sim_net_deaths_are_seen(c, SIM_S);
    sim_broker_kill(b);
    sim_disk_remove(b->disk, SIM_DATA);
    sim_trace(w, "%s: its disk is replaced by an empty one", b->host.name);
    sim_check_copies_lost(c, b->index, true);
    sim_check_quorum_wiped(c, b->index);
    if (first) take_the_others(c, b);
    if (first)
        sim_at(w, w->now_us + SIM_S / 2, come_back, c, (uint64_t)b->index);
    else
        sim_start_later(c, b, sim_below(w, 2) ? SIM_S : 10 * SIM_S);
}

static bool voters_agree(struct sim_cluster *c) {
    for (int i = 0; i < c->run->node_count; i++) {
        struct sim_broker *b = &c->run->nodes[i];
        if (!c->voter[i]) continue;
        if (b->life != SIM_UP || !b->node->parts.store || !b->node->parts.store->log || c->nodes[i].wiped) return false;
        if (b->node->parts.store->log->synced < c->replay.next) return false;
    }
    return true;
}

/* It may have forgotten votes, and metadata that it helped to commit: of a voter only while all others have everything and stay until it has
 * caught up. */
void sim_disks_old_image(struct sim_cluster *c) {
    struct sim_broker *b = sim_any_node(c);
    struct sim_world *w = &c->run->w;
    if (b->life != SIM_UP) return;
    if (!c->old[b->index]) {
        c->old[b->index] = sim_disk_image_take(b->disk);
        sim_trace(w, "%s: an image of its disk is taken", b->host.name);
        return;
    }
    if (!sim_atlas_may_lose(c, b->index, true) || (c->voter[b->index] && !voters_agree(c))) return;
    sim_fire(w, c->voter[b->index] ? SIM_F_OLD_VOTER : SIM_F_OLD_IMAGE);
    if (c->voter[b->index]) {
        c->owes[b->index].offset = c->replay.next;
        c->owes[b->index].epoch = c->nodes[b->index].epoch;
    }
    c->trouble_us = w->now_us;
    sim_steady(c);
    sim_broker_kill(b);
    sim_disk_image_restore(b->disk, c->old[b->index]);
    c->old[b->index] = NULL;
    b->rebooted = true;
    sim_trace(w, "%s: its disk is what it was in its image", b->host.name);
    sim_check_copies_lost(c, b->index, true);
    sim_check_quorum_wiped(c, b->index);
    sim_start_later(c, b, SIM_S);
}

void sim_disks_hang(struct sim_cluster *c) {
    struct sim_broker *b = sim_any_node(c);
    struct sim_world *w = &c->run->w;
    if (b->life == SIM_DOWN) return;
    int64_t t = sim_range(w, 50 * SIM_MS, sim_below(w, 3) ? 2 * SIM_S : 15 * SIM_S);
    sim_fire(w, SIM_F_HUNG);
    sim_trace(w, "%s: the disk hangs for %lld ms", b->host.name, (long long)t / 1000);
    c->trouble_us = w->now_us;
    sim_disk_faults(b->disk)->hung_until_us = sim_broker_now(b).mono_us + t;
}

static void enough_space(void *ctx, uint64_t node) {
    struct sim_cluster *c = ctx;
    struct sim_disk_faults *f = sim_disk_faults(c->run->nodes[node].disk);
    f->enospc_at = f->free_bytes = -1;
    sim_trace(&c->run->w, "node %d: the disk has space again", (int)node);
}
void sim_disks_full(struct sim_cluster *c) {
    struct sim_broker *b = sim_any_node(c);
    struct sim_world *w = &c->run->w;
    struct sim_disk_faults *f = sim_disk_faults(b->disk);
    if (f->free_bytes >= 0) return;
    f->free_bytes = sim_below(w, 3) ? (int64_t)sim_below(w, 100000) : 0;
    sim_fire(w, SIM_F_FULL);
    sim_trace(w, "%s: the disk has %lld bytes left", b->host.name, (long long)f->free_bytes);
    c->trouble_us = w->now_us;
    sim_at(w, w->now_us + sim_range(w, 100 * SIM_MS, 10 * SIM_S), enough_space, c, (uint64_t)b->index);
}


/* ---- While it runs ---- */

/* The administrator comes: the disk is sound again, and so are, after a start, the logs that had failed. */
static void repair(void *ctx, uint64_t node) {
    struct sim_cluster *c = ctx;
    struct sim_broker *b = &c->run->nodes[node];
    struct sim_world *w = &c->run->w;
    if (w->healed) return;
    sim_disk_remap(b->disk);
    if (!sim_node_broken(b)) return;
    if (sim_atlas_fragile(c)) {
        sim_at(w, w->now_us + SIM_S, repair, c, node);
        return;
    }
    c->trouble_us = w->now_us;
    sim_trace(w, "%s: its disk is repaired", b->host.name);
    sim_broker_kill(b);
    sim_start_later(c, b, SIM_S);
}
static void repair_later(struct sim_cluster *c, struct sim_broker *b) {
    sim_at(&c->run->w, c->run->w.now_us + sim_range(&c->run->w, SIM_S, 20 * SIM_S), repair, c, (uint64_t)b->index);
}

void sim_disks_eio(struct sim_cluster *c) {
    struct sim_broker *b = sim_any_node(c);
    struct sim_world *w = &c->run->w;
    struct sim_disk_faults *f = sim_disk_faults(b->disk);
    int64_t n = (int64_t)sim_below(w, 60);
    f->sync_sticks = sim_below(w, 2);
    switch (sim_below(w, 3)) {
    case 0:
        f->eio_read_at = n;
        break;
    case 1:
        f->eio_write_at = n;
        break;
    default:
        f->eio_sync_at = n / 4;
        break;
    }
    sim_trace(w, "%s: the disk is to fail", b->host.name);
    c->trouble_us = w->now_us;
    repair_later(c, b);
}

/* Found when it is read, at a start most likely. */
void sim_disks_bad_sector(struct sim_cluster *c) {
    struct sim_broker *b = sim_any_node(c);
    struct sim_world *w = &c->run->w;
    char path[160];
    size_t size;
    if (!sim_fault_segment(w, b, true, path, sizeof path, &size)) return;
    size_t at = sim_below(w, size);
    sim_disk_bad_sector(b->disk, path, at);
    sim_trace(w, "%s: %s cannot be read at %zu", b->host.name, path, at);
    c->trouble_us = w->now_us;
    repair_later(c, b);
}

static void fast_again(void *ctx, uint64_t node) {
    struct sim_cluster *c = ctx;
    sim_disk_faults(c->run->nodes[node].disk)->slow_ppm = c->run->w.healed ? 0 : c->run->plan.slow_ppm;
}
void sim_disks_slow(struct sim_cluster *c) {
    struct sim_broker *b = sim_any_node(c);
    struct sim_world *w = &c->run->w;
    struct sim_disk_faults *f = sim_disk_faults(b->disk);
    int64_t t = sim_range(w, SIM_S, 15 * SIM_S);
    f->slow_ppm = (uint32_t)sim_range(w, 100000, 1000000);
    f->slow_us = sim_range(w, SIM_MS, 200 * SIM_MS);
    sim_fire(w, SIM_F_SLOW_DISK);
    sim_trace(w, "%s: the disk is slow (%lld us) for %lld ms", b->host.name, (long long)f->slow_us, (long long)t / 1000);
    c->trouble_us = w->now_us;
    sim_at(w, w->now_us + t, fast_again, c, (uint64_t)b->index);
}

/* ---- At a start ---- */

#define STATE SIM_DATA "/__cluster_metadata-0/quorum-state"

/* A voter that does not know its votes does not start: its administrator brings the file back from a copy. */
static void damage_state(struct sim_cluster *c, struct sim_broker *b) {
    struct sim_world *w = &c->run->w;
    size_t n;
    const uint8_t *p = sim_disk_peek(b->disk, STATE, &n);
    if (c->state.node >= 0 || !p || n == 0 || n > sizeof c->state.was) return;
    memcpy(c->state.was, p, n);
    c->state.size = n;
    c->state.node = b->index;
    c->state.ready_lives = b->ready_lives;
    if (sim_below(w, 2)) {
        sim_disk_cut(b->disk, STATE, sim_below(w, n));
    } else {
        uint8_t zeros[sizeof c->state.was] = {0};
        sim_disk_poke(b->disk, STATE, zeros, n);
    }
    p = sim_disk_peek(b->disk, STATE, &c->state.left_size);
    memcpy(c->state.left, p, c->state.left_size);
    sim_fire(w, SIM_F_STATE);
    sim_trace(w, "%s: its quorum-state is damaged", b->host.name);
}

/* A cut of the last, blank byte does not keep it from starting: it may have voted since, and died before it was ready. */
static bool is_written_anew(const struct sim_cluster *c, const struct sim_broker *b) {
    size_t n;
    const uint8_t *p = sim_disk_peek(b->disk, STATE, &n);
    return !p || n != c->state.left_size || memcmp(p, c->state.left, n) != 0;
}

static void restore_state(struct sim_cluster *c) {
    struct sim_broker *b = &c->run->nodes[c->state.node];
    sim_disk_poke(b->disk, STATE, c->state.was, c->state.size);
    c->state.node = -1;
    sim_trace(&c->run->w, "%s: its quorum-state is what it was", b->host.name);
}

void sim_disks_after_death(struct sim_cluster *c, struct sim_broker *b) {
    if (c->state.node != b->index) return;
    if (c->state.ready_lives == b->ready_lives && !is_written_anew(c, b)) restore_state(c); /* else it did without */
    c->state.node = -1;
}

/* A segment of a partition of which all is known, and its size; NULL: none was met. */
static struct sim_part *some_segment(struct sim_cluster *c, struct sim_broker *b, char *path, size_t n, size_t *size) {
    int t, i;
    if (c->rot.part || !sim_fault_segment(&c->run->w, b, false, path, n, size) || sscanf(path, SIM_DATA "/topic-%d-%d/", &t, &i) != 2) return NULL;
    struct sim_part *p = &c->parts[t][i];
    return sim_part_is_open(c, t, i) || p->copies[b->index].unread ? NULL : p;
}

/* ---- Damage to a copy ---- */

static void note_damage(struct sim_cluster *c, size_t at, size_t size, const uint8_t *file) {
    struct sim_damage *d = &c->rot.v[c->rot.count++];
    *d = (struct sim_damage){.at = at, .size = size, .was = sim_need(calloc(2, size))};
    d->is = d->was + size;
    memcpy(d->was, file + at, size);
}

/* What noted bytes have become; the copy is one of which nothing is demanded any more. */
static void damaged(struct sim_cluster *c, struct sim_broker *b, struct sim_part *p, const char *path) {
    size_t size;
    const uint8_t *file = sim_disk_peek(b->disk, path, &size);
    const struct kb_image_broker *k = kb_image_broker(&c->image, c->ids[b->index]);
    struct sim_copy *y = &p->copies[b->index];
    for (int i = 0; i < c->rot.count; i++) memcpy(c->rot.v[i].is, file + c->rot.v[i].at, c->rot.v[i].size);
    c->rot.part = p;
    c->rot.node = b->index;
    snprintf(c->rot.file, sizeof c->rot.file, "%s", path);
    y->suspect = true;
    y->have.count = y->agreed = 0;
    y->out = !sim_part_in_isr(p, b->index);
    y->lost_in = k ? k->epoch : -1;
    c->trouble_us = c->run->w.now_us;
}

static void turn_a_bit(struct sim_cluster *c, struct sim_broker *b, struct sim_part *p, const char *path, size_t at) {
    size_t size;
    sim_steady(c);
    note_damage(c, at, 1, sim_disk_peek(b->disk, path, &size));
    sim_disk_rot(b->disk, path, at, (uint8_t)(1u << sim_below(&c->run->w, 8)));
    damaged(c, b, p, path);
    sim_trace(&c->run->w, "%s: %s: a bit turns at %zu", b->host.name, path, at);
}

/* What it hit may be lost, while others have it. It must not be served, nor may its node count as one that has it. */
static void rot_log(struct sim_cluster *c, struct sim_broker *b) {
    char path[160];
    size_t size;
    struct sim_part *p = some_segment(c, b, path, sizeof path, &size);
    if (p && sim_atlas_may_rot(c, p, b->index)) turn_a_bit(c, b, p, path, sim_below(&c->run->w, size));
}

/* One to three batches of a segment that were written at once: often of the last ones. false: there are none. */
static bool some_write(struct sim_cluster *c, struct sim_broker *b, const struct sim_part *p, const char *path, size_t *at, size_t *size) {
    struct sim_world *w = &c->run->w;
    struct sim_scan s;
    char dir[160];
    size_t first = 0, count = 0, n = strlen(path) - 4; /* ".log" */
    snprintf(dir, sizeof dir, SIM_DATA "/%s", p->name);
    sim_scan_log(b->disk, dir, &s);
    for (size_t i = 0; i < s.count; i++) {
        const char *of = s.segments[s.v[i].segment].path;
        if (strlen(of) != n || memcmp(of, path, n) != 0) continue;
        if (count++ == 0) first = i;
    }
    if (count) {
        size_t k = first + (sim_below(w, 2) ? count - 1 - sim_below(w, KW_MIN(count, 4)) : sim_below(w, count));
        size_t last = k + sim_below(w, 3);
        last = KW_MIN(last, first + count - 1);
        *at = s.v[k].position;
        *size = s.v[last].position + s.v[last].size - *at;
    }
    sim_scan_deinit(&s);
    return count > 0;
}

/* A write of its last life had gone elsewhere in its file, to a sector that is not its: while the process lived its memory hid it. What should be there is
 * not, and what it fell upon may look whole: it is, at another place and offset. */
static void misdirect(struct sim_cluster *c, struct sim_broker *b) {
    struct sim_world *w = &c->run->w;
    char path[160];
    size_t size, from, n;
    struct sim_part *p = some_segment(c, b, path, sizeof path, &size);
    if (!p || size < 2 * SECTOR || !sim_atlas_may_rot(c, p, b->index) || !some_write(c, b, p, path, &from, &n)) return;
    size_t to = sim_below(w, 3) ? sim_below(w, size / SECTOR) * SECTOR : 0, hit = KW_MIN(n, size - to);
    if (to < from + n && from < to + hit) return;
    sim_steady(c);
    const uint8_t *file = sim_disk_peek(b->disk, path, &size);
    note_damage(c, from, n, file);
    note_damage(c, to, hit, file);
    sim_disk_misdirect(b->disk, path, from, n, to);
    damaged(c, b, p, path);
    sim_trace(w, "%s: %s: %zu bytes that should be at %zu are at %zu", b->host.name, path, n, from, to);
}

/* All brokers are killed, and a bit turns at the end of a log of the one that comes back first: nobody is there who could lead instead. */
bool sim_disks_kill_all_rotten(struct sim_cluster *c) {
    struct sim_broker *b = sim_any_node(c);
    struct sim_world *w = &c->run->w;
    char path[160];
    size_t size, now;
    if (b->life != SIM_UP || !c->broker[b->index] || !sim_atlas_may_lose(c, b->index, true)) return false;
    struct sim_part *p = some_segment(c, b, path, sizeof path, &size);
    if (!p || !sim_part_in_isr(p, b->index)) return false;
    sim_fire(w, SIM_F_ROTTEN_TAIL);
    c->trouble_us = w->now_us;
    sim_net_deaths_are_seen(c, SIM_S);
    sim_broker_kill(b);
    if (sim_disk_peek(b->disk, path, &now) && now > 0) turn_a_bit(c, b, p, path, now - 1 - sim_below(w, KW_MIN(now, 300)));
    take_the_others(c, b);
    sim_at(w, w->now_us + SIM_S / 2, come_back, c, (uint64_t)b->index);
    return true;
}

/* The batch that is there again: a start may have found it corrupt, kept it and not read it, so that its producers are known without it (14). */
static int64_t unread(const struct sim_cluster *c, const struct sim_scan *s, size_t at) {
    int64_t end = 0;
    size_t n = strlen(c->rot.file) - 4; /* ".log" */
    for (size_t i = 0; i < s->count; i++) {
        const char *path = s->segments[s->v[i].segment].path;
        bool in_it = strlen(path) == n && memcmp(path, c->rot.file, n) == 0;
        if (in_it && s->v[i].position <= at && at < s->v[i].position + s->v[i].size) end = s->v[i].last + 1;
    }
    return end;
}

static void mend_log(struct sim_cluster *c, struct sim_broker *b) {
    size_t n;
    struct sim_scan s;
    char dir[160];
    struct sim_copy *y = &c->rot.part->copies[b->index];
    const uint8_t *p = sim_disk_peek(b->disk, c->rot.file, &n);
    bool there = false;
    for (int i = 0; i < c->rot.count; i++) {
        struct sim_damage *d = &c->rot.v[i];
        bool back = p && d->at + d->size <= n && memcmp(p + d->at, d->is, d->size) == 0;
        if (back) sim_disk_patch(b->disk, c->rot.file, d->at, d->was, d->size);
        there |= back;
    }
    snprintf(dir, sizeof dir, SIM_DATA "/%s", c->rot.part->name);
    sim_scan_log(b->disk, dir, &s);
    if (there) y->unread = unread(c, &s, c->rot.v[0].at);
    sim_scan_deinit(&s);
    sim_disks_forget_damage(c);
}

void sim_disks_forget_damage(struct sim_cluster *c) {
    for (int i = 0; i < c->rot.count; i++) free(c->rot.v[i].was);
    c->rot.count = 0;
    c->rot.part = NULL;
}

void sim_disks_ready(struct sim_cluster *c, struct sim_broker *b) {
    if (c->rot.part && c->rot.node == b->index) mend_log(c, b);
}

void sim_disks_before_start(struct sim_cluster *c, struct sim_broker *b) {
    struct sim_world *w = &c->run->w;
    bool tampers = sim_chance(w, c->plan.tamper_ppm);
    if (tampers) sim_fault_tamper(w, b, true);
    sim_guids_before_start(c->run, b);
    if (sim_chance(w, c->plan.meta_rot_ppm) && b->death == SIM_DEATH_STOP) sim_fault_rot_meta(c->run, b);
    if (sim_chance(w, c->plan.rot_ppm)) rot_log(c, b);
    if (sim_chance(w, c->plan.misdirect_ppm) && !tampers) misdirect(c, b); /* else producers might be known without several batches (14) */
    if (sim_chance(w, c->plan.state_ppm)) damage_state(c, b);
}

void sim_disks_heal(struct sim_cluster *c, struct sim_broker *b) {
    struct sim_disk_faults *f = sim_disk_faults(b->disk);
    f->enospc_at = f->free_bytes = f->eio_read_at = f->eio_write_at = f->eio_sync_at = -1;
    f->slow_ppm = 0;
    f->hung_until_us = 0;
    sim_disk_remap(b->disk);
    if (c->rot.part && c->rot.node == b->index && b->life == SIM_DOWN) mend_log(c, b);
    if (c->state.node == b->index && b->life == SIM_DOWN) restore_state(c);
}
