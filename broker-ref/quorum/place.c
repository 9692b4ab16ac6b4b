/* place.c - which brokers hold a partition: round robin over the live ones from a random start, on as many racks as there are, or as given by hand.
 * Brokers that are registered but not alive are the last choice, and not in sync. Called by the controller. KIP-36, KIP-631.
 */
#include <stdlib.h>

#include "controller_priv.h"

static int by_id(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static bool is_live(const struct kb_image_broker *b) {
    return b && !b->fenced && !b->in_controlled_shutdown;
}

/* The racks' numbers, in the order of v; all 0 where there are none, or just one. */
static int32_t *number_racks(struct kb_controller *k, const int32_t *v, int32_t n, int32_t *count) {
    int32_t *racks = kw_arena_alloc(&k->arena, ((size_t)n + 1) * sizeof(*racks));
    const char **names = kw_arena_alloc(&k->arena, ((size_t)n + 1) * sizeof(*names)); /* of the racks found so far */
    *count = 0;
    if (!names) return NULL;
    for (int32_t i = 0; racks && i < n; i++) {
        const char *rack = kb_image_broker(k->o.image, v[i])->rack;
        int32_t at = 0;
        while (at < *count && !(rack && names[at] ? strcmp(rack, names[at]) == 0 : rack == names[at])) at++;
        if (at == *count) names[(*count)++] = rack;
        racks[i] = at;
    }
    return racks;
}

kw_err kb_place_init(struct kb_controller *k, struct kb_place *p) {
    const struct kb_image *im = k->o.image;
    int32_t *v = kw_arena_alloc(&k->arena, (im->brokers.count + 1) * sizeof(*v)), n = 0, all = 0;
    if (!v) return KW_ENOMEM;
    struct kb_image_broker *b;
    for (size_t it = 0; (b = kw_map_next(&im->brokers, &it));)
        if (is_live(b)) v[n++] = b->id;
    all = n;
    for (size_t it = 0; (b = kw_map_next(&im->brokers, &it));)
        if (!is_live(b)) v[all++] = b->id;
    qsort(v, (size_t)n, sizeof(*v), by_id);
    qsort(v + n, (size_t)(all - n), sizeof(*v), by_id);
    *p = (struct kb_place){.brokers = v, .live_count = n, .broker_count = all, .shift = n ? (int32_t)kw_rng_below(k->o.rng, (uint64_t)n) : 0};
    p->racks = number_racks(k, v, all, &p->rack_count);
    return p->racks ? KW_OK : KW_ENOMEM;
}

bool kb_place_ok(const struct kb_place *p, int32_t rf, struct kb_result *r) {
    if (rf > p->broker_count)
        kb_result_set(r, KE_INVALID_REPLICATION_FACTOR, "replication factor %d is more than the %d broker%s that can take a replica now", (int)rf,
                      (int)p->broker_count, p->broker_count == 1 ? "" : "s");
    else if (p->live_count == 0)
        kb_result_set(r, KE_INVALID_REPLICATION_FACTOR, "none of the %d registered brokers is alive", (int)p->broker_count);
    else
        return true;
    return false;
}

/* Where the i-th follower's search begins: the others follow the first, with a gap that grows a round, so that the followers spread too. */
static int64_t begin_at(int64_t first, int64_t round, int32_t i, int64_t n) {
    return (first + 1 + (round + i - 1) % (n - 1)) % n;
}

static bool rack_used(const struct kb_place *p, const int32_t *places, int32_t n, int32_t rack) {
    for (int32_t i = 0; i < n; i++)
        if (p->racks[places[i]] == rack) return true;
    return false;
}

/* The next free one of [from, from + n), beginning at `at`, on another rack than the first i where that is wanted; -1: none. */
static int32_t search(const struct kb_place *p, int32_t from, int32_t n, int64_t at, const int32_t *places, int32_t i, bool new_rack) {
    for (int32_t step = 0; step < n; step++) {
        int32_t place = from + (int32_t)((at + step) % n);
        if (kb_elect_has(places, i, place) || (new_rack && rack_used(p, places, i, p->racks[place]))) continue;
        return place;
    }
    return -1;
}

/* The first replica moves on by one a partition. out: places first, then the brokers that are there. */
void kb_place_partition(const struct kb_place *p, int32_t partition, int32_t rf, int32_t *out) {
    int64_t n = p->live_count, first = (p->shift + (int64_t)partition) % n, round = partition / n;
    int32_t fenced = p->broker_count - p->live_count;
    out[0] = (int32_t)first;
    for (int32_t i = 1; i < rf; i++) {
        int64_t at = n > 1 ? begin_at(first, round, i, n) : 0;
        out[i] = search(p, 0, p->live_count, at, out, i, p->rack_count > 1);
        if (out[i] < 0) out[i] = search(p, 0, p->live_count, at, out, i, false);
        if (out[i] < 0) out[i] = search(p, p->live_count, fenced, partition, out, i, false);
    }
    for (int32_t i = 0; i < rf; i++) out[i] = p->brokers[out[i]];
}

bool kb_place_check(struct kb_controller *k, const struct kb_assignment *a, int32_t count, int32_t first, int32_t rf, struct kb_result *r) {
    for (int32_t i = 0; i < count; i++) {
        int32_t live = 0;
        if (a[i].index != first + i) {
            kb_result_set(r, KE_INVALID_REPLICA_ASSIGNMENT,
                          "the assignment names partition %d where %d was due: give them in order, without gaps", (int)a[i].index,
                          (int)(first + i));
            return false;
        }
        if (a[i].count <= 0) {
            kb_result_set(r, KE_INVALID_REPLICA_ASSIGNMENT, "partition %d is assigned to no broker", (int)a[i].index);
            return false;
        }
        if (a[i].count != (rf < 0 ? a[0].count : rf)) {
            kb_result_set(r, KE_INVALID_REPLICA_ASSIGNMENT, "partition %d has %d replicas where the topic's others have %d",
                          (int)a[i].index, (int)a[i].count, (int)(rf < 0 ? a[0].count : rf));
            return false;
        }
        for (int32_t j = 0; j < a[i].count; j++) {
            if (!kb_image_broker(k->o.image, a[i].brokers[j])) {
                kb_result_set(r, KE_INVALID_REPLICA_ASSIGNMENT, "partition %d is assigned to broker %d, which is not registered",
                              (int)a[i].index, (int)a[i].brokers[j]);
                return false;
            }
            live += is_live(kb_image_broker(k->o.image, a[i].brokers[j]));
            if (kb_elect_has(a[i].brokers, j, a[i].brokers[j])) {
                kb_result_set(r, KE_INVALID_REPLICA_ASSIGNMENT, "partition %d is assigned to broker %d twice", (int)a[i].index,
                              (int)a[i].brokers[j]);
                return false;
            }
        }
        if (live == 0) {
            kb_result_set(r, KE_INVALID_REPLICA_ASSIGNMENT, "partition %d is assigned to brokers none of which is alive", (int)a[i].index);
            return false;
        }
    }
    return true;
}

kw_err kb_place_record(struct kb_controller *k, struct kw_uuid topic, int32_t partition, const int32_t *replicas, int32_t rf) {
    struct kw_partition_record *r = kb_controller_record(k, KW_RECORD_PARTITION, 2);
    int32_t *all = kw_arena_dup(&k->arena, replicas, (size_t)rf * sizeof(*all));
    int32_t *live = kw_arena_alloc(&k->arena, (size_t)rf * sizeof(*live)), n = 0;
    struct kw_uuid *dirs = kw_arena_calloc(&k->arena, (size_t)rf, sizeof(*dirs));
    if (!r || !all || !live || !dirs) return KW_ENOMEM;
    for (int32_t i = 0; i < rf; i++) {
        const struct kb_image_broker *b = kb_image_broker(k->o.image, replicas[i]);
        if (is_live(b)) live[n++] = replicas[i];
        if (b && b->log_dir_count == 1) dirs[i] = b->log_dirs[0]; /* of several the broker chooses itself: zero is "not assigned" */
    }
    r->partition_id = partition;
    r->topic_id = topic;
    r->replicas.v = all, r->replicas.n = rf;
    r->isr.v = live, r->isr.n = n;
    r->directories.v = dirs, r->directories.n = rf;
    r->leader = n ? live[0] : -1;
    r->leader_epoch = 0;
    r->partition_epoch = 0;
    return KW_OK;
}
