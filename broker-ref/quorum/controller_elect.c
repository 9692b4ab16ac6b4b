/* controller_elect.c - elections on demand: ElectLeaders, of preferred replicas or unclean. KIP-183, KIP-460.
 *
 * Called by api/elect_leaders through controller.h. Those that nobody asks for are controller_sweep.c's.
 */
#include "controller_priv.h"

static bool needed(struct kb_leader_elect *l, const struct kb_image_partition *p) {
    bool needless = l->type == KB_ELECT_PREFERRED ? p->leader == p->replicas[0] : p->leader >= 0;
    if (needless) kb_result_set(&l->result, KE_ELECTION_NOT_NEEDED, "broker %d leads the partition already", (int)p->leader);
    return !needless;
}

static kw_err elect_one(struct kb_controller *k, struct kb_leader_elect *l) {
    const struct kb_image_topic *t = kb_image_topic(k->o.image, l->topic);
    const struct kb_image_partition *p = kb_image_partition(k->o.image, l->topic, l->partition);
    if (l->result.code) return KW_OK;
    if (!p || p->replica_count == 0) {
        kb_result_set(&l->result, KE_UNKNOWN_TOPIC_OR_PARTITION, "there is no partition %d of topic %.*s", (int)l->partition,
                      (int)KW_MIN(l->topic.len, 100), l->topic.p);
        return KW_OK;
    }
    if (!needed(l, p)) return KW_OK;
    struct kb_elect_rules rules = kb_elect_rules_of(k, t);
    struct kb_elected e = {.isr = kw_arena_alloc(&k->arena, ((size_t)p->replica_count + 1) * sizeof(int32_t))};
    uint8_t *states = kb_replica_states(k, t, p);
    if (!e.isr || !states) return KW_ENOMEM;
    rules.preferred = l->type == KB_ELECT_PREFERRED;
    rules.unclean |= l->type == KB_ELECT_UNCLEAN;
    kb_elect(p, states, &rules, &e);
    if (l->type == KB_ELECT_PREFERRED && e.leader != p->replicas[0]) {
        kb_result_set(&l->result, KE_PREFERRED_LEADER_NOT_AVAILABLE, "broker %d is not in sync, or not alive", (int)p->replicas[0]);
        return KW_OK;
    }
    if (e.leader < 0) {
        kb_result_set(&l->result, KE_ELIGIBLE_LEADERS_NOT_AVAILABLE, "none of the partition's replicas is alive");
        return KW_OK;
    }
    kb_election_tell(k, t, p, &e);
    return kb_election_record(k, t, p, &e) ? KW_OK : KW_ENOMEM;
}

static kw_err run_elect(struct kb_controller *k, struct kb_change *c) {
    kw_err err = KW_OK;
    for (int32_t i = 0; !err && i < c->count; i++) err = elect_one(k, &((struct kb_leader_elect *)c->items)[i]);
    return err;
}

static bool claim_elect(struct kb_controller *k, struct kb_change *c, int32_t i, char key[KB_CLAIM_SIZE], size_t *n) {
    (void)k;
    return kb_claim_topic(((struct kb_leader_elect *)c->items)[i].topic, key, n);
}
static bool names_elect(struct kb_controller *k, struct kb_change *c, int32_t i, char key[KB_CLAIM_SIZE], size_t *n) {
    const struct kb_leader_elect *l = &((struct kb_leader_elect *)c->items)[i];
    (void)k;
    return kb_names_partition(l->topic, l->partition, key, n);
}
static struct kb_result *elect_result(struct kb_change *c, int32_t i) {
    return &((struct kb_leader_elect *)c->items)[i].result;
}
static const struct kb_change_kind elect_kind = {
    .run = run_elect, .claim = claim_elect, .names = names_elect, .result = elect_result, .soon = true};

kw_err kb_controller_elect_leaders(struct kb_controller *k, struct kb_leader_elect *v, int32_t count, struct kb_change *c, struct kb_now now) {
    return kb_controller_submit(k, c, &elect_kind, v, count, false, now);
}
