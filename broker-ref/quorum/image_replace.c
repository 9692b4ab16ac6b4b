/* image_replace.c - puts a whole image, a snapshot's, in another's place, so that who hears of changes hears of all that is different. KIP-630.
 *
 * Called by store.c when a follower takes over its leader's snapshot. Topics and partitions that are in both keep what the node has hung on
 * them (local).
 */
#include "image_priv.h"

static bool same_ids(const int32_t *a, int32_t n, const int32_t *b, int32_t m) {
    return n == m && (n == 0 || memcmp(a, b, (size_t)n * sizeof(*a)) == 0);
}

static bool same_partition(const struct kb_image_partition *a, const struct kb_image_partition *b) {
    return a->partition_epoch == b->partition_epoch && a->leader_epoch == b->leader_epoch && a->leader == b->leader &&
           a->recovery_state == b->recovery_state && a->directory_count == b->directory_count &&
           (a->directory_count == 0 || memcmp(a->directories, b->directories, (size_t)a->directory_count * sizeof(*a->directories)) == 0) &&
           same_ids(a->isr, a->isr_count, b->isr, b->isr_count) && same_ids(a->replicas, a->replica_count, b->replicas, b->replica_count) &&
           same_ids(a->adding, a->adding_count, b->adding, b->adding_count) &&
           same_ids(a->removing, a->removing_count, b->removing, b->removing_count) && same_ids(a->elr, a->elr_count, b->elr, b->elr_count) &&
           same_ids(a->last_known_elr, a->last_known_elr_count, b->last_known_elr, b->last_known_elr_count);
}

/* Those of the old image that are not in the new one are told of while they are still there. A topic never shrinks: one that does is another. */
static kw_err tell_removed(struct kb_image *old, const struct kb_image *with) {
    struct kb_image_topic *t;
    for (size_t it = 0; (t = kw_map_next(&old->topics_by_name, &it));) {
        struct kb_image_topic *next = kb_image_topic_by_id(with, t->id);
        if (next && next->partition_count < t->partition_count) return KW_EDECODE;
        if (next || !old->observer.topic_removed) continue;
        kw_err err = old->observer.topic_removed(old->observer.ctx, t);
        if (err) return err;
    }
    return KW_OK;
}

/* What is the same need not be heard of: its local is all that it takes over. */
static void take_local(struct kb_image *old, struct kb_image *with) {
    struct kb_image_topic *t;
    for (size_t it = 0; (t = kw_map_next(&old->topics_by_name, &it));) {
        struct kb_image_topic *next = kb_image_topic_by_id(with, t->id);
        for (int32_t i = 0; next && i < t->partition_count; i++) next->partitions[i].local = t->partitions[i].local;
    }
}

static kw_err tell_changed(struct kb_image *now, const struct kb_image *old) {
    struct kb_image_topic *t;
    for (size_t it = 0; now->observer.partition && (t = kw_map_next(&now->topics_by_name, &it));) {
        struct kb_image_topic *before = kb_image_topic_by_id(old, t->id);
        for (int32_t i = 0; i < t->partition_count; i++) {
            if (before && i < before->partition_count && same_partition(&before->partitions[i], &t->partitions[i])) continue;
            kw_err err = now->observer.partition(now->observer.ctx, t, &t->partitions[i]);
            if (err) return err;
        }
    }
    return KW_OK;
}

static kw_err tell_configs(struct kb_image *now, const struct kb_image *of) {
    struct kb_image_config *c;
    for (size_t it = 0; now->observer.config && (c = kw_map_next(&of->configs, &it));) {
        kw_err err = now->observer.config(now->observer.ctx, c->type, kw_str_of(c->name));
        if (err) return err;
    }
    return KW_OK;
}

kw_err kb_image_replace(struct kb_image *im, struct kb_image *with) {
    struct kb_image old;
    kw_err err = tell_removed(im, with);
    if (err) return err;
    take_local(im, with);
    old = *im;
    *im = *with;
    im->observer = old.observer;
    im->broker_news = old.broker_news + 1;
    err = tell_changed(im, &old);
    if (!err) err = tell_configs(im, &old);
    if (!err) err = tell_configs(im, im);
    kb_image_deinit(&old);
    kb_image_init(with);
    return err;
}
