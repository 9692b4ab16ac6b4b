/* controller_topics.c - creating and deleting topics: the rules, then the records. KIP-4, KIP-464, KIP-516; PR-15.
 *
 * Called by api/create_topics, api/delete_topics, api/metadata (creation on first use) through controller.h.
 */
#include "controller_priv.h"
#include "uuid.h"

enum { TOPIC = 2 }; /* resource type */

/* ---- Create ---- */

/* Another of the same request whose name differs in '.' and '_' only; the accepted ones are noted as they come. */
static kw_err clash(struct kb_controller *k, struct kb_topic_create *t, bool *clashes) {
    char key[KB_CLAIM_SIZE];
    size_t n;
    *clashes = false;
    if (!kb_claim_topic(t->name, key, &n)) return KW_OK;
    const struct kb_topic_create *other = kw_map_get(&k->seen, key, n);
    if (!other) return kw_map_put(&k->seen, key, n, t);
    kb_result_set(&t->result, KE_INVALID_TOPIC_EXCEPTION,
                  "the name collides with topic %.*s of the same request: two names must not differ in '.' and '_' only",
                  (int)KW_MIN(other->name.len, 100), other->name.p);
    *clashes = true;
    return KW_OK;
}

static bool name_ok(struct kb_controller *k, struct kb_topic_create *t) {
    const char *problem = kb_topic_name_problem(t->name);
    if (problem) {
        kb_result_set(&t->result, KE_INVALID_TOPIC_EXCEPTION, "%s", problem);
        return false;
    }
    if (kb_image_topic(k->o.image, t->name)) {
        kb_result_set(&t->result, KE_TOPIC_ALREADY_EXISTS, "topic %.*s exists already", (int)t->name.len, t->name.p);
        return false;
    }
    const struct kb_image_topic *alike = kb_image_topic_alike(k->o.image, t->name);
    if (alike) {
        kb_result_set(&t->result, KE_INVALID_TOPIC_EXCEPTION,
                      "the name collides with topic %.100s: two names must not differ in '.' and '_' only", alike->name);
        return false;
    }
    return true;
}

/* partitions_made and rf_made from what was asked and the defaults. */
static bool shape_ok(struct kb_controller *k, struct kb_topic_create *t, const struct kb_place *place) {
    if (t->assignment_count > 0) {
        if (t->partitions != -1 || t->replication_factor != -1) {
            kb_result_set(&t->result, KE_INVALID_REQUEST, "with an assignment given, the numbers of partitions and replicas must be -1");
            return false;
        }
        if (!kb_place_check(k, t->assignments, t->assignment_count, 0, -1, &t->result)) return false;
        t->partitions_made = t->assignment_count;
        t->rf_made = (int16_t)t->assignments[0].count;
        return true;
    }
    t->partitions_made = t->partitions == -1 ? (int32_t)kb_config_int(k->o.config, "num.partitions") : t->partitions;
    t->rf_made = t->replication_factor == -1 ? (int16_t)kb_config_int(k->o.config, "default.replication.factor") : t->replication_factor;
    if (t->partitions_made <= 0) {
        kb_result_set(&t->result, KE_INVALID_PARTITIONS, "%d partitions: give a number above 0, or -1 for num.partitions",
                      (int)t->partitions);
        return false;
    }
    if (t->rf_made <= 0) {
        kb_result_set(&t->result, KE_INVALID_REPLICATION_FACTOR,
                      "replication factor %d: give a number above 0, or -1 for default.replication.factor", (int)t->replication_factor);
        return false;
    }
    if (!kb_place_ok(place, t->rf_made, &t->result)) return false;
    if (t->partitions_made > KB_RECORDS_PER_CHANGE_MAX) {
        kb_result_set(&t->result, KE_POLICY_VIOLATION, "%d partitions in one request are too many: create fewer, then add more",
                      (int)t->partitions_made);
        return false;
    }
    return true;
}

static bool configs_ok(struct kb_controller *k, struct kb_topic_create *t) {
    for (int32_t i = 0; i < t->config_count; i++) {
        if (t->configs[i].value.len < 0) {
            kb_result_set(&t->result, KE_INVALID_CONFIG, "%.*s has no value: leave it out for its default",
                          (int)KW_MIN(t->configs[i].key.len, 100), t->configs[i].key.p);
            return false;
        }
        if (!kb_config_entry_check(k, &t->configs[i], KB_C_TOPIC, &t->result)) return false;
    }
    return true;
}

static bool topic_id_taken(struct kb_controller *k, struct kw_uuid id) {
    return kb_image_topic_by_id(k->o.image, id) != NULL;
}

static kw_err create_records(struct kb_controller *k, struct kb_topic_create *t, const struct kb_place *place) {
    do t->id = kb_uuid_random(k->o.rng);
    while (topic_id_taken(k, t->id));
    struct kw_topic_record *r = kb_controller_record(k, KW_RECORD_TOPIC, 0);
    if (!r) return KW_ENOMEM;
    r->name = t->name;
    r->topic_id = t->id;
    kw_err err = KW_OK;
    for (int32_t i = 0; !err && i < t->config_count; i++) err = kb_config_record(k, 2, t->name, t->configs[i].key, t->configs[i].value);
    int32_t *replicas = kw_arena_alloc(&k->arena, (size_t)t->rf_made * sizeof(*replicas));
    if (!replicas) return KW_ENOMEM;
    for (int32_t i = 0; !err && i < t->partitions_made; i++) {
        const int32_t *v = t->assignment_count > 0 ? t->assignments[i].brokers : replicas;
        if (v == replicas) kb_place_partition(place, i, t->rf_made, replicas);
        err = kb_place_record(k, t->id, i, v, t->rf_made);
    }
    return err;
}

static kw_err run_create(struct kb_controller *k, struct kb_change *c) {
    struct kb_topic_create *topics = c->items;
    struct kb_place place;
    kw_err err = kb_place_init(k, &place);
    for (int32_t i = 0; !err && i < c->count; i++) {
        struct kb_topic_create *t = &topics[i];
        bool clashes;
        if (t->result.code || !name_ok(k, t) || !shape_ok(k, t, &place) || !configs_ok(k, t)) continue;
        err = clash(k, t, &clashes);
        if (err || clashes) continue;
        if (k->record_count + (size_t)t->partitions_made > KB_RECORDS_PER_CHANGE_MAX) {
            kb_result_set(&t->result, KE_POLICY_VIOLATION, "the request makes more than %d partitions: split it",
                          KB_RECORDS_PER_CHANGE_MAX);
            continue;
        }
        size_t mark = k->record_count;
        err = create_records(k, t, &place);
        if (!err && !kb_guid_config_ok(k, TOPIC, t->name, mark, mark, &t->result)) k->record_count = mark;
    }
    return err;
}

static bool claim_create(struct kb_controller *k, struct kb_change *c, int32_t i, char key[KB_CLAIM_SIZE], size_t *n) {
    (void)k;
    return kb_claim_topic(((struct kb_topic_create *)c->items)[i].name, key, n);
}
static bool names_create(struct kb_controller *k, struct kb_change *c, int32_t i, char key[KB_CLAIM_SIZE], size_t *n) {
    (void)k;
    return kb_names_topic(((struct kb_topic_create *)c->items)[i].name, key, n);
}
static struct kb_result *create_result(struct kb_change *c, int32_t i) {
    return &((struct kb_topic_create *)c->items)[i].result;
}
static const struct kb_change_kind create_kind = {
    .run = run_create, .claim = claim_create, .names = names_create, .result = create_result};

kw_err kb_controller_create_topics(struct kb_controller *k, struct kb_topic_create *topics, int32_t count, bool validate_only,
                                   struct kb_change *c, struct kb_now now) {
    return kb_controller_submit(k, c, &create_kind, topics, count, validate_only, now);
}

/* ---- Delete ---- */

static const struct kb_image_topic *referred(const struct kb_controller *k, const struct kb_topic_ref *t) {
    return t->name.len >= 0 ? kb_image_topic(k->o.image, t->name) : kb_image_topic_by_id(k->o.image, t->id);
}

static kw_err delete_one(struct kb_controller *k, struct kb_topic_ref *t) {
    if (t->result.code) return KW_OK;
    const struct kb_image_topic *found = referred(k, t);
    if (!found) {
        if (t->name.len >= 0)
            kb_result_set(&t->result, KE_UNKNOWN_TOPIC_OR_PARTITION, "there is no topic %.*s", (int)KW_MIN(t->name.len, 100), t->name.p);
        else
            kb_result_set(&t->result, KE_UNKNOWN_TOPIC_ID, "there is no topic with this id");
        return KW_OK;
    }
    if (!kb_config_bool(k->o.config, "delete.topic.enable")) {
        kb_result_set(&t->result, KE_TOPIC_DELETION_DISABLED, "delete.topic.enable is false on this cluster");
        return KW_OK;
    }
    struct kw_remove_topic_record *r = kb_controller_record(k, KW_RECORD_REMOVE_TOPIC, 0);
    if (!r) return KW_ENOMEM;
    r->topic_id = found->id;
    return KW_OK;
}

static kw_err run_delete(struct kb_controller *k, struct kb_change *c) {
    kw_err err = KW_OK;
    for (int32_t i = 0; !err && i < c->count; i++) err = delete_one(k, &((struct kb_topic_ref *)c->items)[i]);
    return err;
}

static bool claim_delete(struct kb_controller *k, struct kb_change *c, int32_t i, char key[KB_CLAIM_SIZE], size_t *n) {
    const struct kb_topic_ref *t = &((struct kb_topic_ref *)c->items)[i];
    const struct kb_image_topic *found = referred(k, t);
    return kb_claim_topic(found ? kw_str_of(found->name) : t->name, key, n);
}
static bool names_delete(struct kb_controller *k, struct kb_change *c, int32_t i, char key[KB_CLAIM_SIZE], size_t *n) {
    const struct kb_image_topic *found = referred(k, &((struct kb_topic_ref *)c->items)[i]); /* by name and by id it is the same topic */
    return found && kb_names_topic(kw_str_of(found->name), key, n);
}
static struct kb_result *delete_result(struct kb_change *c, int32_t i) {
    return &((struct kb_topic_ref *)c->items)[i].result;
}
static const struct kb_change_kind delete_kind = {
    .run = run_delete, .claim = claim_delete, .names = names_delete, .result = delete_result};

kw_err kb_controller_delete_topics(struct kb_controller *k, struct kb_topic_ref *topics, int32_t count, struct kb_change *c,
                                   struct kb_now now) {
    return kb_controller_submit(k, c, &delete_kind, topics, count, false, now);
}
