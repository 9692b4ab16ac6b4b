/* cluster_steps.h - what tests of the controller's partitions share: one rig (cluster_rig.h) of three brokers for each test, changes of in-sync replicas as
 * the leader asks for them, reassignments.
 */
#ifndef CLUSTER_STEPS_H
#define CLUSTER_STEPS_H

#include "cluster_rig.h"

static struct rig r;

static int setup(void **state) {
    (void)state;
    rig_init(&r, 3);
    return 0;
}
static int teardown(void **state) {
    (void)state;
    rig_deinit(&r);
    return 0;
}

static const int AR[] = {0, 1, 2};

struct isr {
    struct kb_isr_request q;
    struct kb_isr_alter a;
    int32_t ids[BROKERS], room[BROKERS];
    int64_t epochs[BROKERS];
    struct meta_change c;
};

/* As the leader that the image has, with its epochs; text: "012". */
static inline struct isr *isr_of(struct isr *s, const char *topic, int32_t index, const char *text) {
    const struct kb_image_partition *p = rig_partition(&r, topic, index);
    memset(s, 0, sizeof(*s));
    s->q.broker = p->leader;
    s->q.broker_epoch = r.b[p->leader - ID0].epoch;
    s->q.items = &s->a;
    s->a = (struct kb_isr_alter){.topic = kw_str_null(),
                                 .topic_id = kb_image_topic(&r.m.image, kw_str_of(topic))->id,
                                 .partition = index,
                                 .leader_epoch = p->leader_epoch,
                                 .partition_epoch = p->partition_epoch,
                                 .isr = s->ids,
                                 .broker_epochs = s->epochs,
                                 .isr_room = s->room};
    for (; *text; text++) {
        s->ids[s->a.isr_count] = rig_id(*text - '0');
        s->epochs[s->a.isr_count++] = r.b[*text - '0'].epoch;
    }
    return s;
}
static inline void isr_start(struct isr *s) {
    assert_int_equal(kb_controller_alter_isr(r.m.controller, &s->q, 1, meta_change(&s->c), r.m.now), KW_OK);
}
static inline int16_t isr_run(struct isr *s) {
    isr_start(s);
    rig_commit(&r);
    assert_int_equal(s->c.done, 1);
    return s->a.result.code;
}
static inline int16_t set_isr(const char *topic, int32_t index, const char *text) {
    struct isr s;
    return isr_run(isr_of(&s, topic, index, text));
}

static inline int16_t reassign(const char *topic, int32_t partition, const char *to, bool keep) {
    struct meta_change c;
    int32_t ids[BROKERS], n = 0;
    for (const char *s = to; s && *s; s++) ids[n++] = rig_id(*s - '0');
    struct kb_reassign a = {.topic = kw_str_of(topic), .partition = partition, .replicas = to ? ids : NULL, .replica_count = n, .keep_factor = keep};
    assert_int_equal(kb_controller_reassign(r.m.controller, &a, 1, meta_change(&c), r.m.now), KW_OK);
    rig_commit(&r);
    assert_int_equal(c.done, 1);
    return a.result.code;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

#endif
