/* controller_grow.c - adding partitions to topics. Partitions are never taken away: their records would go with them. KIP-195; M2.
 *
 * Called by api/create_partitions through controller.h.
 */
#include "controller_priv.h"

static bool total_ok(const struct kb_topic_grow *g, const struct kb_image_topic *t, struct kb_result *r) {
    if (t->partition_count == 0) {
        kb_result_set(r, KE_INVALID_PARTITIONS, "topic %.100s has no partition that others could be made like: delete it, and create it anew",
                      t->name);
        return false;
    }
    if (g->total == t->partition_count) {
        kb_result_set(r, KE_INVALID_PARTITIONS, "topic %.100s has %d partitions already", t->name, (int)g->total);
        return false;
    }
    if (g->total < t->partition_count) {
        kb_result_set(r, KE_INVALID_PARTITIONS, "topic %.100s has %d partitions and cannot be made smaller: %d were asked for", t->name,
                      (int)t->partition_count, (int)g->total);
        return false;
    }
    if (g->total - t->partition_count > KB_RECORDS_PER_CHANGE_MAX) {
        kb_result_set(r, KE_POLICY_VIOLATION, "%d more partitions in one request are too many: do it in steps",
                      (int)(g->total - t->partition_count));
        return false;
    }
    return true;
}

static bool placement_ok(struct kb_controller *k, const struct kb_topic_grow *g, const struct kb_image_topic *t,
                         const struct kb_place *place, struct kb_result *r) {
    int32_t more = g->total - t->partition_count, rf = t->partitions[0].replica_count;
    if (g->assignment_count < 0) return kb_place_ok(place, rf, r);
    if (g->assignment_count != more) {
        kb_result_set(r, KE_INVALID_REPLICA_ASSIGNMENT, "%d partitions are added, but %d are assigned", (int)more,
                      (int)g->assignment_count);
        return false;
    }
    return kb_place_check(k, g->assignments, more, t->partition_count, rf, r);
}

static kw_err grow_one(struct kb_controller *k, struct kb_topic_grow *g, const struct kb_place *place) {
    if (g->result.code) return KW_OK;
    const struct kb_image_topic *t = kb_image_topic(k->o.image, g->name);
    if (!t) {
        kb_result_set(&g->result, KE_UNKNOWN_TOPIC_OR_PARTITION, "there is no topic %.*s", (int)KW_MIN(g->name.len, 100), g->name.p);
        return KW_OK;
    }
    if (!total_ok(g, t, &g->result) || !placement_ok(k, g, t, place, &g->result)) return KW_OK;
    if (k->record_count + (size_t)(g->total - t->partition_count) > KB_RECORDS_PER_CHANGE_MAX) {
        kb_result_set(&g->result, KE_POLICY_VIOLATION, "the request makes more than %d partitions: split it", KB_RECORDS_PER_CHANGE_MAX);
        return KW_OK;
    }
    int32_t rf = t->partitions[0].replica_count;
    int32_t *replicas = kw_arena_alloc(&k->arena, (size_t)rf * sizeof(*replicas));
    kw_err err = replicas ? KW_OK : KW_ENOMEM;
    for (int32_t i = t->partition_count; !err && i < g->total; i++) {
        const int32_t *v = g->assignment_count >= 0 ? g->assignments[i - t->partition_count].brokers : replicas;
        if (v == replicas) kb_place_partition(place, i, rf, replicas);
        err = kb_place_record(k, t->id, i, v, rf);
    }
    if (!err) kb_guid_warn_of_growth(k, t, g->total);
    return err;
}

static kw_err run_grow(struct kb_controller *k, struct kb_change *c) {
    struct kb_place place;
    kw_err err = kb_place_init(k, &place);
    for (int32_t i = 0; !err && i < c->count; i++) err = grow_one(k, &((struct kb_topic_grow *)c->items)[i], &place);
    return err;
}

static bool claim_grow(struct kb_controller *k, struct kb_change *c, int32_t i, char key[KB_CLAIM_SIZE], size_t *n) {
    (void)k;
    return kb_claim_topic(((struct kb_topic_grow *)c->items)[i].name, key, n);
}
static bool names_grow(struct kb_controller *k, struct kb_change *c, int32_t i, char key[KB_CLAIM_SIZE], size_t *n) {
    (void)k;
    return kb_names_topic(((struct kb_topic_grow *)c->items)[i].name, key, n);
}
static struct kb_result *grow_result(struct kb_change *c, int32_t i) {
    return &((struct kb_topic_grow *)c->items)[i].result;
}
static const struct kb_change_kind grow_kind = {
    .run = run_grow, .claim = claim_grow, .names = names_grow, .result = grow_result};

kw_err kb_controller_grow_topics(struct kb_controller *k, struct kb_topic_grow *topics, int32_t count, bool validate_only,
                                 struct kb_change *c, struct kb_now now) {
    return kb_controller_submit(k, c, &grow_kind, topics, count, validate_only, now);
}
