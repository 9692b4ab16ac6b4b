/* test_image.c - records applied, what a record changes and what it refuses, random histories: replay, snapshot and tail (invariant 24),
 * BR-14, corrupt snapshots, transactions, failing allocation.
 */
#include "image_rig.h"

#include <stdio.h>

#include "base/rng.h"
#include "quorum/store_priv.h"
#include "uuid.h"

static kw_err add_partition(struct kb_image *im, uint8_t id, int32_t index, int32_t leader) {
    MSG(partition, p);
    int32_t self[] = {leader, 9};
    p.topic_id = id_of(id);
    p.partition_id = index;
    p.replicas.v = self, p.replicas.n = 2;
    p.isr.v = self, p.isr.n = 1;
    p.leader = leader;
    p.leader_epoch = 0;
    p.partition_epoch = 0;
    return apply(im, KW_RECORD_PARTITION, &p);
}

/* ---- One record at a time ---- */

static void test_topics_and_partitions(void **state) {
    (void)state;
    struct kb_image im;
    kb_image_init(&im);
    assert_int_equal(im.offset, -1);
    assert_int_equal(add_topic(&im, "a.b", 1), KW_OK);
    assert_int_equal(im.offset, 0);
    assert_int_equal(add_topic(&im, "a.b", 2), KW_EDECODE);
    assert_int_equal(add_topic(&im, "other", 1), KW_EDECODE);
    assert_int_equal(im.offset, 0);                            /* a refused record is not counted */
    assert_int_equal(add_partition(&im, 1, 1, 0), KW_EDECODE); /* a gap */
    assert_int_equal(add_partition(&im, 9, 0, 0), KW_EDECODE); /* no such topic */
    for (int32_t i = 0; i < 20; i++) assert_int_equal(add_partition(&im, 1, i, 0), KW_OK);
    assert_int_equal(im.partition_count, 20);
    struct kb_image_topic *t = kb_image_topic(&im, kw_str_of("a.b"));
    assert_ptr_equal(t, kb_image_topic_by_id(&im, id_of(1)));
    assert_ptr_equal(t, kb_image_topic_alike(&im, kw_str_of("a_b")));
    assert_null(kb_image_topic(&im, kw_str_of("a_b")));
    assert_null(kb_image_topic(&im, kw_str_null()));
    assert_int_equal(kb_image_partition(&im, kw_str_of("a.b"), 19)->index, 19);
    assert_null(kb_image_partition(&im, kw_str_of("a.b"), 20));
    assert_null(kb_image_partition(&im, kw_str_of("a.b"), -1));
    assert_false(t->internal);
    assert_int_equal(add_topic(&im, "__consumer_offsets", 3), KW_OK);
    assert_true(kb_image_topic(&im, kw_str_of("__consumer_offsets"))->internal);
    MSG(remove_topic, r);
    r.topic_id = id_of(1);
    assert_int_equal(apply(&im, KW_RECORD_REMOVE_TOPIC, &r), KW_OK);
    assert_int_equal(apply(&im, KW_RECORD_REMOVE_TOPIC, &r), KW_EDECODE);
    assert_null(kb_image_topic_alike(&im, kw_str_of("a_b")));
    assert_int_equal(im.partition_count, 0);
    assert_int_equal(add_topic(&im, "a_b", 4), KW_OK);
    assert_non_null(kb_image_topic_alike(&im, kw_str_of("a.b")));
    kb_image_deinit(&im);
}

static void test_partition_change(void **state) {
    (void)state;
    struct kb_image im;
    kb_image_init(&im);
    assert_int_equal(add_topic(&im, "t", 1), KW_OK);
    assert_int_equal(add_partition(&im, 1, 0, 5), KW_OK);
    MSG(partition_change, c);
    c.topic_id = id_of(1);
    c.partition_id = 0;
    assert_int_equal(apply(&im, KW_RECORD_PARTITION_CHANGE, &c), KW_OK); /* nothing but the partition epoch */
    struct kb_image_partition *p = kb_image_partition(&im, kw_str_of("t"), 0);
    assert_int_equal(p->leader, 5);
    assert_int_equal(p->leader_epoch, 0);
    assert_int_equal(p->partition_epoch, 1);
    c.leader = 5; /* the same leader anew: the epoch still rises */
    assert_int_equal(apply(&im, KW_RECORD_PARTITION_CHANGE, &c), KW_OK);
    assert_int_equal(p->leader_epoch, 1);
    int32_t both[] = {5, 9};
    c.leader = -1;
    c.isr.v = both, c.isr.n = 2;
    c.leader_recovery_state = 1;
    assert_int_equal(apply(&im, KW_RECORD_PARTITION_CHANGE, &c), KW_OK);
    assert_int_equal(p->leader, -1);
    assert_int_equal(p->leader_epoch, 2);
    assert_int_equal(p->partition_epoch, 3);
    assert_int_equal(p->isr_count, 2);
    assert_int_equal(p->recovery_state, 1);
    c.isr.n = 0;
    assert_int_equal(apply(&im, KW_RECORD_PARTITION_CHANGE, &c), KW_OK);
    assert_int_equal(p->isr_count, 0);
    c.partition_id = 1;
    assert_int_equal(apply(&im, KW_RECORD_PARTITION_CHANGE, &c), KW_EDECODE);
    kb_image_deinit(&im);
}

static void test_brokers_and_features(void **state) {
    (void)state;
    struct kb_image im;
    kb_image_init(&im);
    MSG(register_broker, b);
    struct kw_register_broker_record_broker_endpoint e = {.name = kw_str_of("PLAINTEXT"), .host = kw_str_of("h"), .port = 9092};
    b.broker_id = 3;
    b.broker_epoch = 0;
    b.end_points.v = &e, b.end_points.n = 1;
    b.rack = kw_str_of("r1");
    assert_int_equal(apply(&im, KW_RECORD_REGISTER_BROKER, &b), KW_OK);
    assert_true(kb_image_broker(&im, 3)->fenced);
    assert_string_equal(kb_image_broker(&im, 3)->endpoints[0].host, "h");
    assert_string_equal(kb_image_broker(&im, 3)->rack, "r1");
    MSG(broker_registration_change, c);
    c.broker_id = 3;
    c.broker_epoch = 1;
    c.fenced = -1;
    assert_int_equal(apply(&im, KW_RECORD_BROKER_REGISTRATION_CHANGE, &c), KW_EDECODE); /* another incarnation's */
    c.broker_epoch = 0;
    assert_int_equal(apply(&im, KW_RECORD_BROKER_REGISTRATION_CHANGE, &c), KW_OK);
    assert_false(kb_image_broker(&im, 3)->fenced);
    b.broker_epoch = 7;
    b.rack = kw_str_null();
    assert_int_equal(apply(&im, KW_RECORD_REGISTER_BROKER, &b), KW_OK); /* again, anew */
    assert_int_equal(im.brokers.count, 1);
    assert_int_equal(kb_image_broker(&im, 3)->epoch, 7);
    assert_null(kb_image_broker(&im, 3)->rack);
    MSG(unregister_broker, u);
    u.broker_id = 4;
    assert_int_equal(apply(&im, KW_RECORD_UNREGISTER_BROKER, &u), KW_EDECODE);
    u.broker_id = 3;
    assert_int_equal(apply(&im, KW_RECORD_UNREGISTER_BROKER, &u), KW_OK);
    assert_null(kb_image_broker(&im, 3));
    MSG(feature_level, f);
    f.name = kw_str_of("metadata.version");
    f.feature_level = 33;
    assert_int_equal(apply(&im, KW_RECORD_FEATURE_LEVEL, &f), KW_OK);
    assert_int_equal(((struct kb_image_level *)kw_map_get_str(&im.features, f.name))->level, 33);
    f.feature_level = 0;
    assert_int_equal(apply(&im, KW_RECORD_FEATURE_LEVEL, &f), KW_OK);
    assert_null(kw_map_get_str(&im.features, f.name));
    assert_int_equal(apply(&im, 999, &f), KW_EDECODE);
    assert_false(kb_image_knows(999));
    kb_image_deinit(&im);
}

/* What Kafka wrote before 3.3, or writes where eligible leader replicas and dynamic controllers are in use. */
static void test_rarer_records(void **state) {
    (void)state;
    struct kb_image im;
    kb_image_init(&im);
    MSG(register_broker, b);
    b.broker_id = 3;
    b.broker_epoch = 5;
    assert_int_equal(apply(&im, KW_RECORD_REGISTER_BROKER, &b), KW_OK);
    MSG(unfence_broker, u);
    u.id = 3;
    u.epoch = 4;
    assert_int_equal(apply(&im, KW_RECORD_UNFENCE_BROKER, &u), KW_EDECODE); /* another incarnation's */
    u.epoch = 5;
    assert_int_equal(apply(&im, KW_RECORD_UNFENCE_BROKER, &u), KW_OK);
    assert_false(kb_image_broker(&im, 3)->fenced);
    MSG(fence_broker, f);
    f.id = 4;
    f.epoch = 5;
    assert_int_equal(apply(&im, KW_RECORD_FENCE_BROKER, &f), KW_EDECODE);
    f.id = 3;
    assert_int_equal(apply(&im, KW_RECORD_FENCE_BROKER, &f), KW_OK);
    assert_true(kb_image_broker(&im, 3)->fenced);
    MSG(unregister_controller, gone);
    assert_int_equal(apply(&im, KW_RECORD_UNREGISTER_CONTROLLER, &gone), KW_OK);

    for (uint8_t id = 1; id <= 2; id++) {
        assert_int_equal(add_topic(&im, id == 1 ? "a" : "b", id), KW_OK);
        for (int32_t i = 0; i < 2; i++) assert_int_equal(add_partition(&im, id, i, 1), KW_OK);
        MSG(partition_change, c);
        int32_t elr[] = {9};
        c.topic_id = id_of(id);
        c.partition_id = 0;
        c.eligible_leader_replicas.v = c.last_known_elr.v = elr;
        c.eligible_leader_replicas.n = c.last_known_elr.n = 1;
        assert_int_equal(apply(&im, KW_RECORD_PARTITION_CHANGE, &c), KW_OK);
    }
    struct kb_image_partition *a = kb_image_partition(&im, kw_str_of("a"), 0), *other = kb_image_partition(&im, kw_str_of("b"), 0);
    assert_int_equal(a->elr_count + a->last_known_elr_count + other->elr_count, 3);
    MSG(clear_elr, clear);
    clear.topic_name = kw_str_of("none");
    assert_int_equal(apply(&im, KW_RECORD_CLEAR_ELR, &clear), KW_EDECODE);
    clear.topic_name = kw_str_of("a");
    assert_int_equal(apply(&im, KW_RECORD_CLEAR_ELR, &clear), KW_OK);
    assert_int_equal(a->elr_count + a->last_known_elr_count, 0);
    assert_int_equal(other->elr_count, 1);
    assert_int_equal(a->partition_epoch, 2);
    assert_int_equal(kb_image_partition(&im, kw_str_of("a"), 1)->partition_epoch, 0); /* had none */
    clear.topic_name = kw_str_of("");
    assert_int_equal(apply(&im, KW_RECORD_CLEAR_ELR, &clear), KW_OK);
    assert_int_equal(other->elr_count + other->last_known_elr_count, 0);
    assert_int_equal(a->partition_epoch, 2);
    kb_image_deinit(&im);
}

static void test_configs(void **state) {
    (void)state;
    struct kb_image im;
    kb_image_init(&im);
    assert_int_equal(add_topic(&im, "t", 1), KW_OK);
    MSG(config, c);
    c.resource_type = 2;
    c.resource_name = kw_str_of("t");
    static const char *const keys[] = {"b", "a", "c"};
    for (int i = 0; i < 3; i++) {
        c.name = kw_str_of(keys[i]);
        c.value = kw_str_of("1");
        assert_int_equal(apply(&im, KW_RECORD_CONFIG, &c), KW_OK);
    }
    c.name = kw_str_of("b");
    c.value = kw_str_of("2");
    assert_int_equal(apply(&im, KW_RECORD_CONFIG, &c), KW_OK);
    const char *key, *value;
    size_t it = 0;
    assert_true(kb_image_config_next(&im, 2, kw_str_of("t"), &it, &key, &value));
    assert_string_equal(key, "b");
    assert_string_equal(value, "2");
    assert_string_equal(kb_image_config_get(&im, 2, kw_str_of("t"), "c"), "1");
    assert_null(kb_image_config_get(&im, 4, kw_str_of("t"), "c"));
    assert_null(kb_image_config_get(&im, 2, kw_str_of("u"), "c"));
    c.value = kw_str_null();
    assert_int_equal(apply(&im, KW_RECORD_CONFIG, &c), KW_OK);
    assert_int_equal(apply(&im, KW_RECORD_CONFIG, &c), KW_OK); /* removing what is not there */
    assert_null(kb_image_config_get(&im, 2, kw_str_of("t"), "b"));
    MSG(remove_topic, r);
    r.topic_id = id_of(1);
    assert_int_equal(apply(&im, KW_RECORD_REMOVE_TOPIC, &r), KW_OK);
    assert_null(kb_image_config_get(&im, 2, kw_str_of("t"), "c")); /* a topic's configuration goes with it */
    assert_int_equal(im.configs.count, 0);
    kb_image_deinit(&im);
}

struct seen {
    int partitions, removed, configs, fail_at;
};
static kw_err saw_partition(void *ctx, struct kb_image_topic *t, struct kb_image_partition *p) {
    struct seen *s = ctx;
    assert_ptr_equal(&t->partitions[p->index], p);
    return s->partitions++ == s->fail_at ? KW_ENOMEM : KW_OK;
}
static kw_err saw_removed(void *ctx, struct kb_image_topic *t) {
    assert_string_equal(t->name, "t");
    ((struct seen *)ctx)->removed++;
    return KW_OK;
}
static kw_err saw_config(void *ctx, int8_t type, struct kw_str name) {
    assert_int_equal(type, 2);
    assert_true(kw_str_eq(name, kw_str_of("t")));
    ((struct seen *)ctx)->configs++;
    return KW_OK;
}

static void test_observer(void **state) {
    (void)state;
    struct kb_image im;
    struct seen seen = {.fail_at = 1};
    kb_image_init(&im);
    im.observer = (struct kb_image_observer){saw_partition, saw_removed, saw_config, &seen};
    assert_int_equal(add_topic(&im, "t", 1), KW_OK);
    assert_int_equal(add_partition(&im, 1, 0, 0), KW_OK);
    assert_int_equal(add_partition(&im, 1, 1, 0), KW_ENOMEM); /* the observer's failure is the record's */
    MSG(config, c);
    c.resource_type = 2;
    c.resource_name = kw_str_of("t");
    c.name = kw_str_of("k");
    c.value = kw_str_of("v");
    assert_int_equal(apply(&im, KW_RECORD_CONFIG, &c), KW_OK);
    MSG(remove_topic, r);
    r.topic_id = id_of(1);
    assert_int_equal(apply(&im, KW_RECORD_REMOVE_TOPIC, &r), KW_OK);
    assert_int_equal(seen.partitions, 2);
    assert_int_equal(seen.configs, 1);
    assert_int_equal(seen.removed, 1);
    kb_image_deinit(&im);
}

/* ---- Histories ---- */

struct history { /* a metadata log in memory, and the image of the one who wrote it */
    struct kw_rng rng;
    struct kb_image image;
    struct kb_replay replay;
    struct kw_out log;
    size_t batch_at[4096]; /* where batches begin */
    int64_t batch_base[4096];
    size_t batches;
    int32_t epoch;
    struct kb_meta_batch batch;
    uint32_t names;
};

static struct kb_image_topic *any_topic(struct history *h) {
    if (h->image.topics_by_name.count == 0) return NULL;
    uint64_t skip = kw_rng_below(&h->rng, h->image.topics_by_name.count);
    struct kb_image_topic *t = NULL;
    for (size_t it = 0; (t = kw_map_next(&h->image.topics_by_name, &it)) && skip > 0; skip--) {
    }
    return t;
}

static void emit(struct history *h, int16_t type, int16_t version, const void *m) {
    assert_int_equal(kb_meta_batch_add(&h->batch, type, version, m), KW_OK);
}

/* Closes the batch, appends it to the log, and applies it as a committed one is. */
static void commit(struct history *h) {
    struct kw_blk *blk;
    size_t size, used;
    if (h->batch.count == 0) return;
    assert_int_equal(kb_meta_batch_finish(&h->batch, false, h->replay.next, h->epoch, 1000 + (int64_t)h->batches, &blk, &size), KW_OK);
    h->batch_at[h->batches] = h->log.len;
    h->batch_base[h->batches++] = h->replay.next;
    kw_out_bytes(&h->log, blk->data, size);
    kw_err err = kb_replay_batches(&h->replay, blk->data, size, &used);
    if (err) fail_msg("%s", h->replay.why);
    assert_int_equal(used, size);
    kw_blk_unref(blk);
}

static void make_topic(struct history *h) {
    char name[32];
    snprintf(name, sizeof(name), "t%u.x", h->names++);
    MSG(topic, t);
    t.name = kw_str_of(name);
    t.topic_id = kb_uuid_random(&h->rng);
    emit(h, KW_RECORD_TOPIC, 0, &t);
    int32_t count = (int32_t)kw_rng_below(&h->rng, 4);
    for (int32_t i = 0; i < count; i++) {
        MSG(partition, p);
        int32_t ids[] = {1, 2, 3};
        struct kw_uuid dirs[] = {id_of(1), id_of(2), id_of(3)};
        p.topic_id = t.topic_id;
        p.partition_id = i;
        p.replicas.v = ids, p.replicas.n = (int32_t)kw_rng_below(&h->rng, 3) + 1;
        p.isr.v = ids, p.isr.n = 1;
        p.directories.v = dirs, p.directories.n = p.replicas.n;
        p.leader = 1;
        p.leader_epoch = 0;
        p.partition_epoch = 0;
        emit(h, KW_RECORD_PARTITION, 1, &p);
    }
}

static void change_partition(struct history *h) {
    struct kb_image_topic *t = any_topic(h);
    if (!t || t->partition_count == 0) return;
    MSG(partition_change, c);
    int32_t ids[] = {3, 1, 2};
    c.topic_id = t->id;
    c.partition_id = (int32_t)kw_rng_below(&h->rng, (uint64_t)t->partition_count);
    if (kw_rng_chance(&h->rng, 500000)) c.leader = (int32_t)kw_rng_below(&h->rng, 3) - 1;
    if (kw_rng_chance(&h->rng, 300000)) c.isr.v = ids, c.isr.n = (int32_t)kw_rng_below(&h->rng, 4);
    if (kw_rng_chance(&h->rng, 200000)) c.adding_replicas.v = ids, c.adding_replicas.n = (int32_t)kw_rng_below(&h->rng, 4);
    if (kw_rng_chance(&h->rng, 200000)) c.removing_replicas.v = ids, c.removing_replicas.n = (int32_t)kw_rng_below(&h->rng, 4);
    if (kw_rng_chance(&h->rng, 200000))
        c.eligible_leader_replicas.v = ids, c.eligible_leader_replicas.n = (int32_t)kw_rng_below(&h->rng, 4);
    if (kw_rng_chance(&h->rng, 200000)) c.last_known_elr.v = ids, c.last_known_elr.n = (int32_t)kw_rng_below(&h->rng, 4);
    if (kw_rng_chance(&h->rng, 200000)) c.leader_recovery_state = (int8_t)kw_rng_below(&h->rng, 2);
    emit(h, KW_RECORD_PARTITION_CHANGE, 2, &c);
}

static void change_config(struct history *h) {
    static const char *const keys[] = {"retention.ms", "segment.ms", "cleanup.policy", "flush.ms"};
    struct kb_image_topic *t = any_topic(h);
    MSG(config, c);
    c.resource_type = t && kw_rng_chance(&h->rng, 700000) ? 2 : 4;
    c.resource_name = c.resource_type == 2 ? kw_str_of(t->name) : kw_str_of(kw_rng_chance(&h->rng, 500000) ? "" : "1");
    c.name = kw_str_of(keys[kw_rng_below(&h->rng, 4)]);
    c.value = kw_rng_chance(&h->rng, 300000) ? kw_str_null() : kw_str_of(kw_rng_chance(&h->rng, 500000) ? "" : "123");
    emit(h, KW_RECORD_CONFIG, 0, &c);
}

static void change_broker(struct history *h) {
    int32_t id = (int32_t)kw_rng_below(&h->rng, 5);
    const struct kb_image_broker *b = kb_image_broker(&h->image, id);
    if (!b || kw_rng_chance(&h->rng, 200000)) {
        MSG(register_broker, r);
        struct kw_register_broker_record_broker_endpoint e[2] = {{.name = kw_str_of("A"), .host = kw_str_of("h"), .port = 65535},
                                                                 {.name = kw_str_of("B")}};
        struct kw_register_broker_record_broker_feature f = {
            .name = kw_str_of("metadata.version"), .min_supported_version = 7, .max_supported_version = 33};
        struct kw_uuid dirs[] = {id_of(1), id_of(2)};
        r.broker_id = id;
        r.broker_epoch = h->replay.next + h->batch.count;
        r.incarnation_id = kb_uuid_random(&h->rng);
        r.end_points.v = e, r.end_points.n = (int32_t)kw_rng_below(&h->rng, 3);
        r.features.v = &f, r.features.n = 1;
        r.log_dirs.v = dirs, r.log_dirs.n = (int32_t)kw_rng_below(&h->rng, 3);
        r.rack = kw_rng_chance(&h->rng, 500000) ? kw_str_null() : kw_str_of("");
        emit(h, KW_RECORD_REGISTER_BROKER, 4, &r);
    } else if (kw_rng_chance(&h->rng, 200000)) {
        MSG(unregister_broker, u);
        u.broker_id = id;
        emit(h, KW_RECORD_UNREGISTER_BROKER, 0, &u);
    } else {
        MSG(broker_registration_change, c);
        c.broker_id = id;
        c.broker_epoch = b->epoch;
        c.fenced = (int8_t)((int)kw_rng_below(&h->rng, 3) - 1);
        c.in_controlled_shutdown = (int8_t)kw_rng_below(&h->rng, 2);
        emit(h, KW_RECORD_BROKER_REGISTRATION_CHANGE, 1, &c);
    }
    commit(h); /* the next change looks at the image */
}

static void remove_topic(struct history *h) {
    struct kb_image_topic *t = any_topic(h);
    if (!t) return;
    MSG(remove_topic, r);
    r.topic_id = t->id;
    emit(h, KW_RECORD_REMOVE_TOPIC, 0, &r);
    commit(h);
}

static void other(struct history *h) {
    if (kw_rng_chance(&h->rng, 500000)) {
        MSG(producer_ids, p);
        p.next_producer_id = h->image.next_producer_id + 1000;
        emit(h, KW_RECORD_PRODUCER_IDS, 0, &p);
        commit(h);
    } else {
        static const char *const names[] = {"metadata.version", "group.version", "kraft.version"};
        MSG(feature_level, f);
        f.name = kw_str_of(names[kw_rng_below(&h->rng, 3)]);
        f.feature_level = (int16_t)kw_rng_below(&h->rng, 3);
        emit(h, KW_RECORD_FEATURE_LEVEL, 0, &f);
    }
}

/* Some batches wrap several others in a transaction that commits or aborts. */
static void step(struct history *h) {
    switch (kw_rng_below(&h->rng, 8)) {
    case 0:
        make_topic(h);
        break;
    case 1:
    case 2:
        change_partition(h);
        break;
    case 3:
    case 4:
        change_config(h);
        break;
    case 5:
        change_broker(h);
        break;
    case 6:
        remove_topic(h);
        break;
    default:
        other(h);
        break;
    }
    if (kw_rng_chance(&h->rng, 600000))
        commit(h);
    else if (h->batch.count)
        commit(h);
    if (kw_rng_chance(&h->rng, 50000)) h->epoch++;
}

static void transaction(struct history *h) {
    MSG(begin_transaction, b);
    MSG(end_transaction, e);
    MSG(abort_transaction, a);
    bool ends = kw_rng_chance(&h->rng, 500000);
    emit(h, KW_RECORD_BEGIN_TRANSACTION, 0, &b);
    if (kw_rng_chance(&h->rng, 500000)) commit(h);
    make_topic(h);
    if (kw_rng_chance(&h->rng, 500000)) commit(h);
    emit(h, ends ? KW_RECORD_END_TRANSACTION : KW_RECORD_ABORT_TRANSACTION, 0, ends ? (void *)&e : (void *)&a);
    commit(h);
}

static void history_init(struct history *h, uint64_t seed) {
    memset(h, 0, sizeof(*h));
    kw_rng_init(&h->rng, seed);
    kb_image_init(&h->image);
    kb_replay_init(&h->replay, &h->image, NULL, 1, 0);
    kw_out_init(&h->log);
    kb_meta_batch_init(&h->batch);
    h->epoch = 1;
}

static void history_deinit(struct history *h) {
    kb_replay_deinit(&h->replay);
    kb_image_deinit(&h->image);
    kw_out_deinit(&h->log);
    kb_meta_batch_deinit(&h->batch);
}

static void snapshot(const struct kb_image *im, struct kw_out *out) {
    kw_out_init(out);
    assert_int_equal(kb_snapshot_encode(im, 77, 99, out), KW_OK);
}

/* Two images are equal when all that they say is. */
static void assert_same(const struct kb_image *a, const struct kb_image *b) {
    struct kw_out x, y;
    snapshot(a, &x);
    snapshot(b, &y);
    assert_int_equal(a->offset, b->offset);
    assert_int_equal(a->epoch, b->epoch);
    assert_int_equal(x.len, y.len);
    assert_memory_equal(x.p, y.p, x.len);
    assert_int_equal(a->partition_count, b->partition_count);
    assert_int_equal(a->topics_by_id.count, b->topics_by_id.count);
    assert_int_equal(a->topics_by_normal.count, b->topics_by_normal.count);
    kw_out_deinit(&x);
    kw_out_deinit(&y);
}

/* An image from a snapshot and the log's batches from `batch` on. */
static void rebuild(struct history *h, const struct kw_out *snap, int64_t end, int32_t epoch, size_t batch, struct kb_image *out) {
    char why[200] = "";
    struct kb_replay r;
    size_t used = 0;
    kb_image_init(out);
    if (snap && kb_snapshot_load(snap->p, snap->len, end, epoch, 1, NULL, out, why, sizeof(why))) fail_msg("%s", why);
    if (snap) assert_int_equal(out->offset, end - 1);
    kb_replay_init(&r, out, NULL, 1, snap ? end : 0);
    size_t from = batch < h->batches ? h->batch_at[batch] : h->log.len;
    kw_err err = kb_replay_batches(&r, h->log.p + from, h->log.len - from, &used);
    if (err) fail_msg("%s", r.why);
    assert_int_equal(used, h->log.len - from);
    assert_int_equal(r.next, h->replay.next);
    kb_replay_deinit(&r);
}

/* Invariant 24: equal images at equal offsets; snapshot + tail equals replay. */
static void test_snapshot_and_tail_equal_replay(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct history h;
        struct kw_out snap = {0};
        int64_t end = -1;
        int32_t epoch = 0;
        size_t at_batch = 0;
        history_init(&h, seed);
        int steps = 20 + (int)kw_rng_below(&h.rng, 150), snap_at = (int)kw_rng_below(&h.rng, (uint64_t)steps);
        for (int i = 0; i < steps; i++) {
            if (kw_rng_chance(&h.rng, 50000)) transaction(&h);
            step(&h);
            if (i != snap_at) continue;
            snapshot(&h.image, &snap);
            end = h.image.offset + 1;
            epoch = h.image.epoch;
            at_batch = h.batches;
        }
        struct kb_image again;
        rebuild(&h, NULL, -1, 0, 0, &again);
        assert_same(&h.image, &again);
        kb_image_deinit(&again);
        assert_true(kb_snapshot_whole(snap.p, snap.len));
        rebuild(&h, &snap, end, epoch, at_batch, &again);
        assert_same(&h.image, &again);
        kb_image_deinit(&again);
        /* BR-14: a tail that begins before the snapshot's (exclusive) end applies nothing twice and skips nothing. */
        rebuild(&h, &snap, end, epoch, at_batch > 3 ? at_batch - 3 : 0, &again);
        assert_same(&h.image, &again);
        kb_image_deinit(&again);
        kw_out_deinit(&snap);
        history_deinit(&h);
    }
}

/* BR-14: what the log created and removed before the snapshot is not in it, and does not come back; the record at its end is applied once.
 */
static void test_br_14_removed_objects_vanish(void **state) {
    (void)state;
    struct history h;
    struct kw_out snap;
    history_init(&h, 5);
    MSG(topic, t);
    t.name = kw_str_of("gone");
    t.topic_id = id_of(1);
    emit(&h, KW_RECORD_TOPIC, 0, &t);
    t.name = kw_str_of("kept");
    t.topic_id = id_of(2);
    emit(&h, KW_RECORD_TOPIC, 0, &t);
    MSG(partition, p);
    int32_t self = 1;
    p.topic_id = id_of(2);
    p.partition_id = 0;
    p.replicas.v = p.isr.v = &self;
    p.replicas.n = p.isr.n = 1;
    p.leader = 1;
    p.leader_epoch = p.partition_epoch = 0;
    emit(&h, KW_RECORD_PARTITION, 1, &p);
    commit(&h);
    MSG(remove_topic, r);
    r.topic_id = id_of(1);
    emit(&h, KW_RECORD_REMOVE_TOPIC, 0, &r);
    commit(&h);
    MSG(partition_change, c);
    c.topic_id = id_of(2);
    c.partition_id = 0;
    c.leader = 1;
    emit(&h, KW_RECORD_PARTITION_CHANGE, 0, &c);
    commit(&h);
    snapshot(&h.image, &snap);
    int64_t end = h.image.offset + 1;
    size_t from = h.batches - 1;
    emit(&h, KW_RECORD_PARTITION_CHANGE, 0, &c);
    emit(&h, KW_RECORD_PARTITION_CHANGE, 0, &c);
    commit(&h);
    for (size_t batch = 0; batch <= from + 1; batch++) {
        struct kb_image again;
        rebuild(&h, &snap, end, 1, batch, &again);
        assert_null(kb_image_topic(&again, kw_str_of("gone")));
        assert_null(kb_image_topic_by_id(&again, id_of(1)));
        assert_int_equal(kb_image_partition(&again, kw_str_of("kept"), 0)->leader_epoch, 3);
        kb_image_deinit(&again);
    }
    kw_out_deinit(&snap);
    history_deinit(&h);
}

static void test_gap_in_the_log_is_refused(void **state) {
    (void)state;
    struct history h;
    struct kb_image im;
    struct kb_replay r;
    size_t used;
    history_init(&h, 3);
    for (int i = 0; i < 5; i++) {
        make_topic(&h);
        commit(&h);
    }
    kb_image_init(&im);
    kb_replay_init(&r, &im, NULL, 1, 0);
    assert_int_equal(kb_replay_batches(&r, h.log.p + h.batch_at[1], h.log.len - h.batch_at[1], &used), KW_EDECODE);
    assert_non_null(strstr(r.why, "missing between"));
    kb_replay_deinit(&r);
    kb_image_deinit(&im);
    history_deinit(&h);
}

/* Any flipped bit and any cut of a snapshot is seen: it is refused as a whole. */
static void test_corrupt_snapshot_is_refused(void **state) {
    (void)state;
    struct history h;
    struct kw_out snap;
    struct kb_image im;
    char why[200];
    history_init(&h, 11);
    for (int i = 0; i < 30; i++) step(&h);
    snapshot(&h.image, &snap);
    assert_true(kb_snapshot_whole(snap.p, snap.len));
    for (size_t n = 0; n < snap.len; n++) {
        assert_false(kb_snapshot_whole(snap.p, n));
        kb_image_init(&im);
        assert_true(kb_snapshot_load(snap.p, n, 1, 1, 1, NULL, &im, why, sizeof(why)) != KW_OK);
        kb_image_deinit(&im);
    }
    size_t batch = 0, next = (size_t)kw_batch_size_peek(snap.p, snap.len);
    for (size_t i = 0; i < snap.len; i++) {
        if (i == next) {
            batch = next;
            next += (size_t)kw_batch_size_peek(snap.p + batch, snap.len - batch);
        }
        size_t at = i - batch;
        uint8_t was = snap.p[i];
        snap.p[i] ^= (uint8_t)(1u << (i % 8));
        bool whole = kb_snapshot_whole(snap.p, snap.len);
        kb_image_init(&im);
        kw_err err = kb_snapshot_load(snap.p, snap.len, 1, 1, 1, NULL, &im, why, sizeof(why));
        kb_image_deinit(&im);
        snap.p[i] = was;
        if (at >= KW_BATCH_LEADER_EPOCH && at < KW_BATCH_MAGIC) continue; /* outside the checksum, as Kafka has it, and nothing reads it */
        if (!err) fail_msg("byte %zu, %zu in its batch, may be flipped unseen", i, at);
        if (at >= KW_BATCH_LENGTH) assert_false(whole); /* the base offset takes the replay to be seen wrong */
        assert_true(why[0]);
    }
    kw_out_deinit(&snap);
    history_deinit(&h);
}

static void test_snapshot_names(void **state) {
    (void)state;
    char name[KB_SNAPSHOT_NAME_SIZE];
    int64_t end;
    int32_t epoch;
    kb_snapshot_name(1234567, 42, name);
    assert_string_equal(name, "00000000000001234567-0000000042.checkpoint");
    assert_true(kb_snapshot_name_parse(name, &end, &epoch));
    assert_int_equal(end, 1234567);
    assert_int_equal(epoch, 42);
    kb_snapshot_name(INT64_MAX, INT32_MAX, name);
    assert_true(kb_snapshot_name_parse(name, &end, &epoch));
    static const char *const bad[] = {"",
                                      "00000000000001234567-0000000042.checkpoint.tmp",
                                      "00000000000001234567-0000000042.checkpoinx",
                                      "0000000000000123456x-0000000042.checkpoint",
                                      "00000000000001234567_0000000042.checkpoint",
                                      "99999999999999999999-0000000042.checkpoint",
                                      "00000000000001234567-9999999999.checkpoint"};
    for (size_t i = 0; i < KW_COUNTOF(bad); i++) assert_false(kb_snapshot_name_parse(bad[i], &end, &epoch));
}

static void test_foreign_voters_and_unknown_records(void **state) {
    (void)state;
    struct kb_image im;
    struct kb_replay r;
    struct kb_meta_batch b;
    struct kw_blk *blk;
    size_t size, used;
    struct kw_leader_change_message m;
    struct kw_leader_change_message_voter v[2] = {{.voter_id = 1}, {.voter_id = 2}};
    kb_image_init(&im);
    kb_replay_init(&r, &im, NULL, 1, 0);
    kb_meta_batch_init(&b);
    kw_msg_init(&kw_leader_change_message_desc, &m);
    m.leader_id = 1;
    m.voters.v = v, m.voters.n = 1;
    assert_int_equal(kb_meta_batch_add_control(&b, KB_CONTROL_LEADER_CHANGE, &kw_leader_change_message_desc, 0, &m), KW_OK);
    assert_int_equal(kb_meta_batch_finish(&b, true, 0, 1, 5, &blk, &size), KW_OK);
    assert_int_equal(kb_replay_batches(&r, blk->data, size, &used), KW_OK);
    assert_int_equal(im.offset, 0);
    kw_blk_unref(blk);
    m.voters.n = 2;
    assert_int_equal(kb_meta_batch_add_control(&b, KB_CONTROL_LEADER_CHANGE, &kw_leader_change_message_desc, 0, &m), KW_OK);
    assert_int_equal(kb_meta_batch_finish(&b, true, 1, 2, 5, &blk, &size), KW_OK);
    assert_int_equal(kb_replay_batches(&r, blk->data, size, &used), KW_EINVAL);
    assert_non_null(strstr(r.why, "quorum of several nodes"));
    kw_blk_unref(blk);
    /* A record type that nobody here knows: an access control entry (18). */
    kw_out_reset(&b.value);
    MSG(no_op, n);
    assert_int_equal(kb_meta_batch_add(&b, KW_RECORD_NO_OP, 0, &n), KW_OK);
    assert_int_equal(kb_meta_batch_finish(&b, false, 1, 2, 5, &blk, &size), KW_OK);
    assert_int_equal(blk->data[size - 4], KW_RECORD_NO_OP); /* … frame version, type, version, no tags, no headers */
    blk->data[size - 4] = 18;
    kw_batch_crc_set(blk->data, size);
    assert_int_equal(kb_replay_batches(&r, blk->data, size, &used), KW_EVERSION);
    assert_non_null(strstr(r.why, "type 18"));
    kw_blk_unref(blk);
    kb_meta_batch_deinit(&b);
    kb_replay_deinit(&r);
    kb_image_deinit(&im);
}

static void test_failing_allocation(void **state) {
    (void)state;
    struct history h;
    struct kw_out snap;
    history_init(&h, 21);
    for (int i = 0; i < 40; i++) step(&h);
    snapshot(&h.image, &snap);
    bool done = false;
    for (int64_t n = 0; !done; n++) {
        struct kb_image im;
        char why[200];
        struct kw_out out;
        kw_out_init(&out);
        kb_image_init(&im);
        kw_alloc_fail_after(n);
        kw_err err = kb_snapshot_load(snap.p, snap.len, h.image.offset + 1, h.image.epoch, 1, NULL, &im, why, sizeof(why));
        if (!err) err = kb_snapshot_encode(&im, 77, 99, &out);
        kw_alloc_fail_after(-1);
        assert_true(err == KW_OK || err == KW_ENOMEM);
        done = err == KW_OK;
        if (done) assert_memory_equal(out.p, snap.p, snap.len);
        kw_out_deinit(&out);
        kb_image_deinit(&im);
        assert_in_range(n, 0, 100000);
    }
    kw_out_deinit(&snap);
    history_deinit(&h);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_topics_and_partitions),
        cmocka_unit_test(test_partition_change),
        cmocka_unit_test(test_brokers_and_features),
        cmocka_unit_test(test_rarer_records),
        cmocka_unit_test(test_configs),
        cmocka_unit_test(test_observer),
        cmocka_unit_test(test_snapshot_and_tail_equal_replay),
        cmocka_unit_test(test_br_14_removed_objects_vanish),
        cmocka_unit_test(test_gap_in_the_log_is_refused),
        cmocka_unit_test(test_corrupt_snapshot_is_refused),
        cmocka_unit_test(test_snapshot_names),
        cmocka_unit_test(test_foreign_voters_and_unknown_records),
        cmocka_unit_test(test_failing_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
