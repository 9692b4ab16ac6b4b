/* check_meta.c - invariants 24 and 25 for one node: what was committed to the metadata log is there after every start. What the image said
 * when the process died (committed, and so synced) is what the next image begins with: topics under their ids, with their partitions.
 *
 * Called by the broker's hooks in workload.c. Looks into the node.
 */
#include <stdio.h>

#include "node_priv.h"
#include "quorum/image.h"
#include "workload.h"

static struct kb_image_topic *topic_of(struct sim_run *r, int t) {
    return kb_image_topic(r->nodes[0].node->parts.image, kw_str_of(r->model.topics[t].name));
}

/* The node is there, and has an image: it was ready once in this life. */
void sim_check_meta_death(struct sim_broker *b) {
    struct sim_run *r = b->ctx;
    if (b->life != SIM_UP && b->life != SIM_STOPPING) return;
    for (int t = 0; t < r->model.topic_count; t++) {
        const struct kb_image_topic *x = topic_of(r, t);
        struct sim_meta_claim *c = &r->meta.topics[t];
        c->there = x != NULL;
        if (!x) continue;
        c->id = x->id;
        c->partitions = x->partition_count;
    }
    r->meta.known = true;
    r->meta.offset = b->node->parts.image->offset;
}

void sim_check_meta_ready(struct sim_broker *b) {
    struct sim_run *r = b->ctx;
    if (!r->meta.known) return;
    r->meta.known = false;
    if (b->node->parts.image->offset < r->meta.offset)
        sim_fail(&r->w, 24, "the metadata ends at offset %lld after the start, what was committed before at %lld",
                 (long long)b->node->parts.image->offset, (long long)r->meta.offset);
    for (int t = 0; t < r->model.topic_count; t++) {
        const struct sim_meta_claim *c = &r->meta.topics[t];
        const struct kb_image_topic *x = topic_of(r, t);
        const char *name = r->model.topics[t].name;
        if (!c->there || r->model.topics[t].churned) continue;
        if (!x) sim_fail(&r->w, 24, "%s is not known after the start, and was before", name);
        if (!kw_uuid_eq(x->id, c->id)) sim_fail(&r->w, 24, "%s has another id after the start", name);
        if (x->partition_count < c->partitions)
            sim_fail(&r->w, 24, "%s has %d partitions after the start, and had %d", name, x->partition_count, c->partitions);
    }
}
