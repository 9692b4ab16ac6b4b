/* find_coordinator.c - FindCoordinator v0-6: who coordinates a group. __consumer_offsets is made the first time that anyone asks, and the
 * answer waits for it. Called by dispatch. Calls group/coordinator (which partition), make_topics, image.
 *
 * Transactions and share groups: UNSUPPORTED_VERSION, which clients take as final, so that a transactional producer fails at once and shows
 * the text, where it would wait in vain otherwise. KIP-699 (several keys), 932.
 */
#include <stdio.h>

#include "api.h"
#include "group/coordinator.h"
#include "make_topics.h"
#include "node_priv.h"

#define CREATE_WAIT_MS 5000
enum { GROUP, TRANSACTION, SHARE };

struct find {
    struct kb_request *rq;
    struct kw_find_coordinator_request req;
    struct kb_topic_create topic;
    struct kb_config_kv configs[2];
    char segment_bytes[16];
    struct kb_make_topics make;
};

static void offsets_topic(struct kb_node *n, struct kb_topic_create *t, struct kb_config_kv configs[2], char segment_bytes[16]) {
    const struct kb_config *config = n->parts.config;
    struct kb_image_broker *b;
    int32_t brokers = 0;
    for (size_t i = 0; (b = kw_map_next(&n->image.brokers, &i));) brokers += !b->fenced;
    int64_t rf = kb_config_int(config, "offsets.topic.replication.factor");
    snprintf(segment_bytes, 16, "%lld", (long long)kb_config_int(config, "offsets.topic.segment.bytes"));
    configs[0] = (struct kb_config_kv){.key = kw_str_of("cleanup.policy"), .value = kw_str_of("compact")};
    configs[1] = (struct kb_config_kv){.key = kw_str_of("segment.bytes"), .value = kw_str_of(segment_bytes)};
    *t = (struct kb_topic_create){.name = kw_str_of(KB_OFFSETS_TOPIC),
                                  .partitions = (int32_t)kb_config_int(config, "offsets.topic.num.partitions"),
                                  .replication_factor = (int16_t)KW_MAX(KW_MIN(rf, brokers), 1),
                                  .configs = configs,
                                  .config_count = 2};
}

struct place {
    int16_t code;
    const char *text;
    int32_t node_id, port;
    struct kw_str host;
};

static struct place group_place(struct find *f, struct kw_str key) {
    const struct kb_image *im = &f->rq->node->image;
    const struct kb_image_topic *t = kb_image_topic(im, kw_str_of(KB_OFFSETS_TOPIC));
    struct place p = {.node_id = -1, .port = -1, .host = kw_str_of("")};
    if (key.len <= 0) {
        p.code = KE_INVALID_GROUP_ID;
        p.text = "a group's id may not be empty";
        return p;
    }
    p.code = KE_COORDINATOR_NOT_AVAILABLE;
    p.text = "the topic __consumer_offsets is not there yet; try again";
    if (!t || t->partition_count == 0) return p;
    int32_t leader = t->partitions[kb_coordinator_partition_of(key, t->partition_count)].leader;
    const struct kb_image_broker *b = leader < 0 ? NULL : kb_image_broker(im, leader);
    p.text = "the group's partition of __consumer_offsets has no leader now; try again";
    if (!b || b->fenced || !kb_admin_address(f->rq, b, &p.host, &p.port)) return p;
    p.code = KE_NONE;
    p.text = NULL;
    p.node_id = leader;
    return p;
}

static struct place place_of(struct find *f, struct kw_str key) {
    struct place p = {.node_id = -1, .port = -1, .host = kw_str_of("")};
    if (f->req.key_type == GROUP) return group_place(f, key);
    p.code = f->req.key_type == TRANSACTION || f->req.key_type == SHARE ? KE_UNSUPPORTED_VERSION : KE_INVALID_REQUEST;
    p.text = f->req.key_type == TRANSACTION ? "this kbroker has no transaction coordinator yet: produce without a transactional.id"
             : f->req.key_type == SHARE     ? "this kbroker has no share coordinator yet"
                                            : "a coordinator's key type is 0 (group), 1 (transaction) or 2 (share)";
    return p;
}

static void answer(struct find *f) {
    struct kw_find_coordinator_response resp;
    kw_msg_init(&kw_find_coordinator_response_desc, &resp);
    if (f->rq->head.version <= 3) {
        struct place p = place_of(f, f->req.key);
        resp.error_code = p.code;
        resp.error_message = kw_str_of(p.text);
        resp.node_id = p.node_id;
        resp.host = p.host;
        resp.port = p.port;
        kb_request_reply(f->rq, &resp);
        return;
    }
    resp.coordinators.n = f->req.coordinator_keys.n;
    resp.coordinators.v = kw_arena_calloc(&f->rq->arena, (size_t)f->req.coordinator_keys.n, sizeof(*resp.coordinators.v));
    if (!resp.coordinators.v) {
        kb_admin_no_memory(f->rq);
        return;
    }
    for (int32_t i = 0; i < f->req.coordinator_keys.n; i++) {
        struct place p = place_of(f, f->req.coordinator_keys.v[i]);
        resp.coordinators.v[i] = (struct kw_find_coordinator_response_coordinator){.key = f->req.coordinator_keys.v[i],
                                                                                   .node_id = p.node_id,
                                                                                   .host = p.host,
                                                                                   .port = p.port,
                                                                                   .error_code = p.code,
                                                                                   .error_message = kw_str_of(p.text)};
    }
    kb_request_reply(f->rq, &resp);
}

static void made(struct kb_make_topics *m) {
    answer(m->ctx);
}

void kb_api_find_coordinator(struct kb_request *rq) {
    struct find *f = kw_arena_calloc(&rq->arena, 1, sizeof(*f));
    if (!f) {
        kb_admin_no_memory(rq);
        return;
    }
    f->rq = rq;
    if (kb_request_decode(rq, &f->req) != KW_OK) return;
    if (f->req.key_type != GROUP || kb_image_topic(&rq->node->image, kw_str_of(KB_OFFSETS_TOPIC))) {
        answer(f);
        return;
    }
    offsets_topic(rq->node, &f->topic, f->configs, f->segment_bytes);
    f->make = (struct kb_make_topics){.rq = rq, .creates = &f->topic, .count = 1, .done = made, .ctx = f};
    if (kb_make_topics(&f->make, CREATE_WAIT_MS)) kb_admin_no_memory(rq);
}
