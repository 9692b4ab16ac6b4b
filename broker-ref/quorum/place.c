/* place.c - which brokers hold a partition: round robin over the live ones from a random start, or as given by hand. Called by the
 * controller. */
#include <stdlib.h>

#include "controller_priv.h"

static int by_id(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

kw_err kb_place_init(struct kb_controller *k, struct kb_place *p) {
    const struct kb_image *im = k->o.image;
    int32_t *v = kw_arena_alloc(&k->arena, (im->brokers.count + 1) * sizeof(*v)), n = 0;
    if (!v) return KW_ENOMEM;
    struct kb_image_broker *b;
    for (size_t it = 0; (b = kw_map_next(&im->brokers, &it));)
        if (!b->fenced && !b->in_controlled_shutdown) v[n++] = b->id;
    qsort(v, (size_t)n, sizeof(*v), by_id);
    *p = (struct kb_place){.brokers = v, .broker_count = n, .shift = n ? (int32_t)kw_rng_below(k->o.rng, (uint64_t)n) : 0};
    return KW_OK;
}

/* The first replica moves on by one a partition; the others follow it, with a gap that grows a round, so that the followers spread too. */
void kb_place_partition(const struct kb_place *p, int32_t partition, int32_t rf, int32_t *out) {
    int64_t n = p->broker_count, first = (p->shift + (int64_t)partition) % n, round = partition / n;
    for (int32_t i = 0; i < rf; i++) {
        int64_t gap = i == 0 ? 0 : 1 + (round + i - 1) % (n - 1);
        out[i] = p->brokers[(first + gap) % n];
    }
}

bool kb_place_check(struct kb_controller *k, const struct kb_assignment *a, int32_t count, int32_t first, int32_t rf, struct kb_result *r) {
    for (int32_t i = 0; i < count; i++) {
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
            for (int32_t m = 0; m < j; m++)
                if (a[i].brokers[m] == a[i].brokers[j]) {
                    kb_result_set(r, KE_INVALID_REPLICA_ASSIGNMENT, "partition %d is assigned to broker %d twice", (int)a[i].index,
                                  (int)a[i].brokers[j]);
                    return false;
                }
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
        if (b && !b->fenced) live[n++] = replicas[i];
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
