/* check_quorum.c - the metadata quorum: invariants 16 (one leader an epoch, epochs grow), 22 (the metadata log is never truncated below what was
 * committed), 24 (one history: every node applies the same records; equal images at equal offsets), 25 (one vote an epoch, across restarts; what is
 * committed is synced on a majority).
 *
 * What any node has applied counts as committed. It is replayed here into an image of the simulator's own, record by record, from the log of the node
 * that is furthest. Called after each turn of a node, and at its deaths. Calls check_leaders for each record about a partition.
 */
#include <stdio.h>
#include <stdlib.h>

#include "alloc.h"
#include "cluster.h"
#include "kw_messages.h"
#include "node_priv.h"
#include "quorum/raft_priv.h"

#define META_DIR SIM_DATA "/__cluster_metadata-0"

/* ---- 24 ---- */

struct sum {
    uint64_t hash;
    struct kw_out out;
};
static kw_err add_record(void *ctx, int16_t type, int16_t version, const void *record) {
    struct sum *s = ctx;
    kw_out_reset(&s->out);
    kw_err err = kw_encode(kw_metadata_record_by_type(type), version, record, &s->out);
    uint64_t h = 14695981039346656037u + (uint64_t)type;
    for (size_t i = 0; i < s->out.len; i++) h = (h ^ s->out.p[i]) * 1099511628211u;
    s->hash += h; /* the order is a map's */
    return err;
}
static uint64_t image_hash(const struct kb_image *im) {
    struct sum s = {0};
    struct sim_host *turn = sim_alloc_turn(NULL);
    kw_out_init(&s.out);
    if (kb_image_emit(im, add_record, &s) != KW_OK) abort();
    kw_out_deinit(&s.out);
    (void)sim_alloc_turn(turn);
    return s.hash;
}

static const struct sim_hash_at *hash_at(const struct sim_cluster *c, int64_t offset) {
    size_t lo = 0, hi = c->hash_count;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (c->hashes[mid].offset < offset)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < c->hash_count && c->hashes[lo].offset == offset ? &c->hashes[lo] : NULL;
}

/* The bytes of the segment that holds an offset. */
static const uint8_t *segment_of(struct sim_broker *b, int64_t offset, size_t *n, char *path, size_t size) {
    char **names;
    int64_t base = -1;
    size_t count = sim_disk_names(b->disk, META_DIR, &names);
    for (size_t i = 0; i < count; i++) {
        if (strlen(names[i]) == 24 && strcmp(names[i] + 20, ".log") == 0 && strtoll(names[i], NULL, 10) <= offset) base = strtoll(names[i], NULL, 10);
        free(names[i]);
    }
    free(names);
    snprintf(path, size, META_DIR "/%020lld.log", (long long)base);
    return base < 0 ? NULL : sim_disk_peek(b->disk, path, n);
}

static void replay_to(struct sim_cluster *c, struct sim_broker *b, int64_t offset) {
    struct sim_world *w = &c->run->w;
    char path[160];
    while (c->replay.next <= offset) {
        size_t n = 0, at = 0, used;
        const uint8_t *p = segment_of(b, c->replay.next, &n, path, sizeof path);
        bool any = false;
        struct kw_batch_header h;
        for (; p && at < n && c->replay.next <= offset; at += (size_t)h.length + KW_BATCH_OVERHEAD) {
            if (kw_batch_parse(p + at, n - at, &h) != KW_OK || (size_t)h.length + KW_BATCH_OVERHEAD > n - at) break;
            if (h.base_offset + h.last_offset_delta < c->replay.next) continue;
            struct sim_host *turn = sim_alloc_turn(NULL);
            kw_err err = kb_replay_batches(&c->replay, p + at, (size_t)h.length + KW_BATCH_OVERHEAD, &used);
            (void)sim_alloc_turn(turn);
            if (err) sim_fail(w, 24, "node %d has applied the metadata up to %lld; the batch at %lld of its log does not: %s", b->index, (long long)offset,
                              (long long)h.base_offset, c->replay.why);
            c->hashes = sim_grow(c->hashes, c->hash_count, &c->hash_cap, sizeof *c->hashes);
            c->hashes[c->hash_count++] = (struct sim_hash_at){c->replay.next - 1, image_hash(&c->image)};
            struct sim_batch_id id = {h.base_offset, h.base_offset + h.last_offset_delta, 0, 0, (size_t)h.length + KW_BATCH_OVERHEAD, h.crc,
                                      h.leader_epoch};
            sim_batches_add(&c->meta.committed, &id);
            c->meta.end = c->replay.next;
            any = true;
        }
        if (!any)
            sim_fail(w, 24, "node %d has applied the metadata up to %lld; its log has nothing readable at %lld (%s)", b->index, (long long)offset,
                     (long long)c->replay.next, path);
    }
}

static void check_image(struct sim_cluster *c, struct sim_broker *b) {
    struct sim_meta_node *m = &c->nodes[b->index];
    const struct kb_image *im = &b->node->image;
    if (im->offset < 0 || im->offset == m->offset) return;
    const struct sim_hash_at *h = hash_at(c, im->offset);
    m->offset = im->offset;
    if (h && h->hash != image_hash(im))
        sim_fail(&c->run->w, 24, "node %d: its image at offset %lld is another than what was committed up to there says", b->index, (long long)im->offset);
}

/* ---- 16, 25 ---- */

static void check_leader(struct sim_cluster *c, struct sim_broker *b) {
    int32_t epoch, leader = kb_store_leader(b->node->parts.store, &epoch);
    struct sim_meta_node *m = &c->nodes[b->index];
    struct sim_world *w = &c->run->w;
    int32_t known = b->node->parts.store->raft->election.state.epoch; /* what is told may have to wait for its being stored */
    if (known < m->epoch && m->life == b->lives) sim_fail(w, 16, "node %d: the quorum's epoch goes from %d to %d", b->index, m->epoch, known);
    m->epoch = known;
    if (leader < 0) return;
    int node = sim_cluster_node(c, leader);
    if (node < 0 || !c->voter[node]) sim_fail(w, 16, "node %d: the leader of epoch %d is %d, which does not vote", b->index, epoch, leader);
    while ((size_t)epoch >= c->controller_count) {
        c->controllers = sim_grow(c->controllers, c->controller_count, &c->controller_cap, sizeof *c->controllers);
        c->controllers[c->controller_count++] = 0;
    }
    if (c->controllers[epoch] && c->controllers[epoch] != node + 1)
        sim_fail(w, 16, "node %d says that node %d leads the quorum in epoch %d; node %d does, or did", b->index, node, epoch, c->controllers[epoch] - 1);
    if (!c->controllers[epoch]) {
        c->controller_elections++;
        sim_trace(w, "node %d leads the quorum in epoch %d", node, epoch);
    }
    c->controllers[epoch] = node + 1;
}

static void check_vote(struct sim_cluster *c, struct sim_broker *b, const struct kb_raft *r) {
    struct sim_meta_node *m = &c->nodes[b->index];
    const struct kb_election_state *s = &r->election.stored;
    if (r->phase != KB_RAFT_MEMBER) return;
    struct sim_ballot *last = m->ballot_count ? &m->ballots[m->ballot_count - 1] : NULL;
    if (last && s->epoch < last->epoch)
        sim_fail(&c->run->w, 25, "node %d knows of epoch %d only, and has voted in epoch %d", b->index, s->epoch, last->epoch);
    if (last && s->epoch == last->epoch) {
        if (s->voted_id != last->voted)
            sim_fail(&c->run->w, 25, "node %d has voted in epoch %d for %d, and now its vote is %d (-1: it knows of none)", b->index, s->epoch,
                 last->voted, s->voted_id);
        return;
    }
    if (s->voted_id < 0) return;
    m->ballots = sim_grow(m->ballots, m->ballot_count, &m->ballot_cap, sizeof *m->ballots);
    m->ballots[m->ballot_count++] = (struct sim_ballot){s->epoch, s->voted_id};
}

static void check_majority(struct sim_cluster *c) {
    int have = 0, all = 0;
    for (int i = 0; i < c->run->node_count; i++) {
        struct sim_broker *b = &c->run->nodes[i];
        if (!c->voter[i]) continue;
        all++;
        if (b->node && b->node->parts.store && b->node->parts.store->log && c->meta.copies[i].life == b->lives)
            c->meta.copies[i].synced = b->node->parts.store->log->synced;
        have += c->meta.copies[i].synced >= c->replay.next;
    }
    if (have < all / 2 + 1)
        sim_fail(&c->run->w, 25, "the metadata is applied up to %lld, and so far it is synced on %d of %d voters", (long long)c->replay.next - 1, have, all);
}

void sim_check_quorum(struct sim_broker *b) {
    struct sim_run *r = b->ctx;
    struct sim_cluster *c = r->cluster;
    struct kb_store *s = b->node->parts.store;
    if (!s || !s->raft || !s->log || !kb_raft_is_up(s->raft)) return; /* an image that is being read is none */
    if (r->meta_rot.there && r->meta_rot.node == b->index) { /* it is found when it is applied, or mended before */
        struct sim_copy *y = &c->meta.copies[b->index];
        y->synced = s->log->synced;
        while (y->have.count > y->agreed && y->have.v[y->have.count - 1].last >= s->log->leo) y->end = y->have.v[--y->have.count].base;
        return;
    }
    sim_copy_look(c, &c->meta, b, s->log);
    if (b->node->image.offset >= c->replay.next) {
        replay_to(c, b, b->node->image.offset);
        check_majority(c);
        sim_check_returned(c);
    }
    if (kb_node_state(b->node) != KB_NODE_FAILED) check_image(c, b); /* it may have failed for what it had no memory to apply */
    check_leader(c, b);
    check_vote(c, b, s->raft);
    c->nodes[b->index].life = b->lives;
    if (s->raft->phase == KB_RAFT_MEMBER) c->nodes[b->index].wiped = false;
}

void sim_check_quorum_death(struct sim_broker *b) {
    sim_check_quorum(b);
    ((struct sim_run *)b->ctx)->cluster->nodes[b->index].offset = -1;
}

void sim_check_quorum_wiped(struct sim_cluster *c, int node) {
    struct sim_meta_node *m = &c->nodes[node];
    c->meta.copies[node].synced = 0;
    m->epoch = 0;
    m->ballot_count = 0;
    m->wiped = true;
}
