/* leader_hint.c - contract: leader_hint.h. */
#include "leader_hint.h"

#include "admin.h"
#include "node_priv.h"

/* Without memory the client asks for metadata. */
static void add(struct kb_request *rq, struct kb_leader_hints *h, int32_t id) {
    const struct kb_image *im = &rq->node->image;
    const struct kb_image_broker *b = kb_image_broker(im, id);
    for (int32_t i = 0; b && i < h->count; i++)
        if (h->brokers[i] == b) return;
    if (b && !h->brokers) h->brokers = kw_arena_alloc(&rq->arena, im->brokers.count * sizeof(*h->brokers));
    if (b && h->brokers) h->brokers[h->count++] = b;
}

bool kb_leader_hint(struct kb_request *rq, struct kb_leader_hints *h, struct kw_str topic, struct kw_uuid topic_id, int32_t index,
                    bool epoch_is_wrong, int32_t *leader, int32_t *epoch) {
    const struct kb_image *im = &rq->node->image;
    if (im->brokers.count <= 1) return false; /* nobody else */
    const struct kb_image_topic *t = kw_uuid_is_zero(topic_id) ? kb_image_topic(im, topic) : kb_image_topic_by_id(im, topic_id);
    if (!t || index < 0 || index >= t->partition_count) return false;
    const struct kb_image_partition *p = &t->partitions[index];
    if (p->leader < 0 || (p->leader == rq->node->id && !epoch_is_wrong)) return false; /* nobody, for now */
    *leader = p->leader;
    *epoch = p->leader_epoch;
    add(rq, h, p->leader);
    return true;
}

bool kb_leader_place(struct kb_request *rq, const struct kb_leader_hints *h, int32_t i, struct kb_leader_place *p) {
    const struct kb_image_broker *b = h->brokers[i];
    p->id = b->id;
    p->rack = kw_str_of(b->rack);
    return kb_admin_address(rq, b, &p->host, &p->port);
}
