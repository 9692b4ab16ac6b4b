/* test_image_replace.c - a snapshot's image put in another's place (BR-14): who hears of what, what the node hung on partitions stays, allocation fails.
 */
#include "image_rig.h"

#include <stdio.h>

#include "quorum/store_priv.h"

struct heard {
    char text[2048];
    int refuse; /* the n-th call from now fails; -1: none */
};

static kw_err note(struct heard *h, const char *what, const char *name, int32_t index) {
    if (h->refuse >= 0 && h->refuse-- == 0) return KW_ENOMEM;
    size_t n = strlen(h->text);
    snprintf(h->text + n, sizeof(h->text) - n, "%s %s %d;", what, name, (int)index);
    return KW_OK;
}
static kw_err hear_partition(void *ctx, struct kb_image_topic *t, struct kb_image_partition *p) {
    return note(ctx, "partition", t->name, p->index);
}
static kw_err hear_removed(void *ctx, struct kb_image_topic *t) {
    return note(ctx, "removed", t->name, t->partition_count);
}
static kw_err hear_config(void *ctx, int8_t type, struct kw_str resource) {
    char name[32];
    snprintf(name, sizeof(name), "%.*s", resource.len, resource.p);
    return note(ctx, "config", name, type);
}

static void add_partition(struct kb_image *im, uint8_t id, int32_t index, int32_t isr_count) {
    MSG(partition, p);
    int32_t replicas[] = {1, 2, 3};
    p.topic_id = id_of(id);
    p.partition_id = index;
    p.replicas.v = replicas, p.replicas.n = 3;
    p.isr.v = replicas, p.isr.n = isr_count;
    p.leader = 1;
    p.leader_epoch = 4;
    p.partition_epoch = 4;
    assert_int_equal(apply(im, KW_RECORD_PARTITION, &p), KW_OK);
}
static void set_config(struct kb_image *im, const char *topic, const char *value) {
    MSG(config, c);
    c.resource_type = 2;
    c.resource_name = kw_str_of(topic);
    c.name = kw_str_of("retention.ms");
    c.value = kw_str_of(value);
    assert_int_equal(apply(im, KW_RECORD_CONFIG, &c), KW_OK);
}

/* stays: as it was; moves: one partition changed, one more; goes; comes, by a name that was another's. */
static void fill(struct kb_image *im, bool later) {
    kb_image_init(im);
    assert_int_equal(add_topic(im, "stays", 1), KW_OK);
    for (int32_t i = 0; i < 3; i++) add_partition(im, 1, i, 3);
    assert_int_equal(add_topic(im, "moves", 2), KW_OK);
    for (int32_t i = 0; i < (later ? 3 : 2); i++) add_partition(im, 2, i, later && i == 1 ? 2 : 3);
    if (!later) {
        assert_int_equal(add_topic(im, "goes", 3), KW_OK);
        add_partition(im, 3, 0, 3);
    }
    assert_int_equal(add_topic(im, "again", later ? 5 : 4), KW_OK);
    add_partition(im, later ? 5 : 4, 0, 3);
    set_config(im, later ? "moves" : "goes", later ? "2" : "1");
    MSG(producer_ids, ids);
    ids.next_producer_id = later ? 5000 : 1000;
    assert_int_equal(apply(im, KW_RECORD_PRODUCER_IDS, &ids), KW_OK);
    im->offset = later ? 500 : 50;
    im->epoch = later ? 6 : 2;
}

static void assert_same(const struct kb_image *a, const struct kb_image *b) {
    struct kw_out x, y;
    kw_out_init(&x), kw_out_init(&y);
    assert_int_equal(kb_snapshot_encode(a, 0, 0, &x), KW_OK);
    assert_int_equal(kb_snapshot_encode(b, 0, 0, &y), KW_OK);
    assert_int_equal(x.len, y.len);
    assert_memory_equal(x.p, y.p, x.len);
    kw_out_deinit(&x), kw_out_deinit(&y);
}

static void test_what_is_heard(void **state) {
    (void)state;
    struct kb_image im, with, same;
    struct heard h = {.refuse = -1};
    int local[3];
    fill(&im, false);
    fill(&with, true);
    fill(&same, true);
    im.observer = (struct kb_image_observer){.partition = hear_partition, .topic_removed = hear_removed, .config = hear_config, .ctx = &h};
    kb_image_partition(&im, kw_str_of("stays"), 2)->local = &local[0];
    kb_image_partition(&im, kw_str_of("moves"), 1)->local = &local[1];
    kb_image_partition(&im, kw_str_of("again"), 0)->local = &local[2];
    assert_int_equal(kb_image_replace(&im, &with), KW_OK);
    assert_string_equal(h.text, "removed goes 1;removed again 1;partition moves 1;partition moves 2;partition again 0;config goes 2;config moves 2;");
    assert_ptr_equal(kb_image_partition(&im, kw_str_of("stays"), 2)->local, &local[0]);
    assert_ptr_equal(kb_image_partition(&im, kw_str_of("moves"), 1)->local, &local[1]);
    assert_null(kb_image_partition(&im, kw_str_of("moves"), 2)->local);
    assert_null(kb_image_partition(&im, kw_str_of("again"), 0)->local); /* another topic of that name */
    assert_same(&im, &same);
    assert_int_equal(im.offset, 500);
    assert_int_equal(im.epoch, 6);
    assert_int_equal(im.next_producer_id, 5000);
    assert_int_equal(im.partition_count, 7);
    assert_int_equal(with.offset, -1);
    assert_int_equal(with.topics_by_name.count, 0);
    kb_image_deinit(&im), kb_image_deinit(&with), kb_image_deinit(&same);
}

/* Records go on from there, and are heard as ever. */
static void test_records_go_on(void **state) {
    (void)state;
    struct kb_image im, with;
    struct heard h = {.refuse = -1};
    fill(&im, false);
    fill(&with, true);
    im.observer = (struct kb_image_observer){.partition = hear_partition, .ctx = &h};
    assert_int_equal(kb_image_replace(&im, &with), KW_OK);
    h.text[0] = 0;
    add_partition(&im, 2, 3, 3);
    assert_string_equal(h.text, "partition moves 3;");
    kb_image_deinit(&im), kb_image_deinit(&with);
}

/* A topic that has lost partitions is no later state of this cluster's. */
static void test_a_topic_does_not_shrink(void **state) {
    (void)state;
    struct kb_image im, with;
    fill(&im, true);
    fill(&with, false);
    assert_int_equal(kb_image_replace(&im, &with), KW_EDECODE);
    kb_image_deinit(&im), kb_image_deinit(&with);
}

static void test_failing_observer(void **state) {
    (void)state;
    for (int n = 0; n < 8; n++) {
        struct kb_image im, with;
        struct heard h = {.refuse = n};
        fill(&im, false);
        fill(&with, true);
        im.observer = (struct kb_image_observer){.partition = hear_partition, .topic_removed = hear_removed, .config = hear_config, .ctx = &h};
        assert_int_equal(kb_image_replace(&im, &with), n < 7 ? KW_ENOMEM : KW_OK);
        kb_image_deinit(&im), kb_image_deinit(&with); /* nothing is lost, nothing freed twice */
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_heard),
        cmocka_unit_test(test_records_go_on),
        cmocka_unit_test(test_a_topic_does_not_shrink),
        cmocka_unit_test(test_failing_observer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
