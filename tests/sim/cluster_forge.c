/* cluster_forge.c - requests that only nodes send, forged: in the name of a replica, a leader, a candidate, with epochs that are over, another
 * cluster's id, or an id that nobody has. All of them must be refused; the checkers see to it that none has an effect (18, 19, 20, 23, 25).
 *
 * What names the present broker epoch, leader epoch and partition epoch of somebody cannot be told from what he sends (there is no authentication):
 * that is not forged here. Called by attacker.c through its hook. Calls the wire's schemas.
 */
#include <stdlib.h>

#include "alloc.h"
#include "cluster_faults.h"
#include "kw_messages.h"
#include "quorum/raft.h"
#include "wire/frame.h"

static void send_it(struct sim_attacker *a, const struct kw_api *api, int16_t version, const void *m) {
    struct sim_host *turn = sim_alloc_turn(NULL);
    struct kw_out out;
    kw_out_init(&out);
    if (kw_frame_request(&out, api, version, (int32_t)sim_below(a->w, 1000), kw_str_of("kbroker-0"), m) != KW_OK) abort();
    sim_attacker_add(a, out.p, out.len);
    kw_out_deinit(&out);
    (void)sim_alloc_turn(turn);
    sim_fire(a->w, SIM_F_FORGED);
}

static int32_t some_id(struct sim_cluster *c) {
    struct sim_world *w = &c->run->w;
    return sim_below(w, 4) ? c->ids[sim_below(w, (uint64_t)c->run->node_count)] : (int32_t)sim_range(w, 500, 600);
}
/* Of a broker, but one that is over, or never was. */
static int64_t old_broker_epoch(struct sim_cluster *c, int32_t id) {
    const struct kb_image_broker *k = kb_image_broker(&c->image, id);
    return !k || sim_below(&c->run->w, 4) == 0 ? (int64_t)sim_below(&c->run->w, 3) - 1 : k->epoch - sim_range(&c->run->w, 1, 20);
}
static int32_t some_epoch(struct sim_cluster *c, int32_t now) {
    return sim_below(&c->run->w, 2) ? now : now - (int32_t)sim_range(&c->run->w, 1, 3);
}

static struct sim_part *any_part(struct sim_cluster *c, int *topic, int *partition) {
    *topic = (int)sim_below(&c->run->w, (uint64_t)c->run->model.topic_count);
    *partition = (int)sim_below(&c->run->w, (uint64_t)c->run->model.topics[*topic].partitions);
    return &c->parts[*topic][*partition];
}

/* As a follower that is further than it is, or that is none. Without a broker epoch (up to version 14) it never counts. */
static void fetch(struct sim_cluster *c, struct sim_attacker *a) {
    struct sim_world *w = a->w;
    int topic, partition;
    const struct sim_part *p = any_part(c, &topic, &partition);
    struct kw_fetch_request m;
    struct kw_fetch_request_fetch_partition x;
    struct kw_fetch_request_fetch_topic t = {.topic = kw_str_of(c->run->model.topics[topic].name), .topic_id = p->id, .partitions = {&x, 1}};
    if (!p->known || p->leader < 0) return;
    int16_t version = (int16_t)sim_range(w, 12, 17);
    int32_t id = some_id(c);
    kw_msg_init(&kw_fetch_request_desc, &m);
    x = (struct kw_fetch_request_fetch_partition){.partition = partition,
                                                  .current_leader_epoch = some_epoch(c, p->leader_epoch),
                                                  .fetch_offset = p->end + (int64_t)sim_below(w, 200),
                                                  .last_fetched_epoch = some_epoch(c, p->leader_epoch),
                                                  .log_start_offset = 0,
                                                  .partition_max_bytes = 1000000,
                                                  .high_watermark = INT64_MAX};
    if (version < 15)
        m.replica_id = id;
    else
        m.replica_state = (struct kw_fetch_request_replica_state){id, old_broker_epoch(c, id)};
    m.max_wait_ms = (int32_t)sim_below(w, 500);
    m.topics.v = &t, m.topics.n = 1;
    a->target = p->leader;
    send_it(a, kw_api_by_key(KW_API_FETCH), version, &m);
}

static bool is_out_and_alive(const struct sim_cluster *c, const struct sim_part *p) {
    for (int i = 0; p->known && p->leader >= 0 && i < p->replica_count; i++) {
        const struct kb_image_broker *k = kb_image_broker(&c->image, c->ids[p->replicas[i]]);
        if (!sim_part_in_isr(p, p->replicas[i]) && k && !k->fenced) return true;
    }
    return false;
}

/* One that has a replica which lives and is not in sync, if there is any: there a change of the ISR that is not refused shows. */
static struct sim_part *part_short_of_one(struct sim_cluster *c, int *topic, int *partition) {
    struct sim_part *p = any_part(c, topic, partition);
    for (int tries = 0; tries < 20 && !is_out_and_alive(c, p); tries++) p = any_part(c, topic, partition);
    return p;
}

/* As the leader, or as another; all replicas in sync, or one alone. What was held up on its way while the ISR or the leader changed, or its sender was
 * started anew, looks like this. */
static void alter_one(struct sim_cluster *c, struct sim_attacker *a) {
    struct sim_world *w = a->w;
    int topic, partition;
    const struct sim_part *p = part_short_of_one(c, &topic, &partition);
    if (!p->known || p->leader < 0 || !c->controller_count) return;
    int kind = (int)sim_below(w, 3);
    int32_t leader = c->ids[p->leader], who = kind == 2 ? some_id(c) : leader;
    const struct kb_image_broker *k = kb_image_broker(&c->image, who);
    int32_t member = sim_below(w, 2) ? who : c->ids[p->replicas[sim_below(w, (uint64_t)p->replica_count)]];
    struct kw_alter_partition_request_broker_state isr[SIM_NODES_MAX] = {{member, -1}};
    struct kw_alter_partition_request_partition_data x = {.partition_index = partition, .leader_epoch = p->leader_epoch,
                                                          .new_isr_with_epochs = {isr, 1}, .partition_epoch = p->partition_epoch};
    struct kw_alter_partition_request_topic_data t = {.topic_id = p->id, .partitions = {&x, 1}};
    struct kw_alter_partition_request m = {.broker_id = who, .broker_epoch = k ? k->epoch : 5, .topics = {&t, 1}};
    if (sim_below(w, 3)) {
        for (int i = 0; i < p->replica_count; i++) isr[i] = (struct kw_alter_partition_request_broker_state){c->ids[p->replicas[i]], -1};
        x.new_isr_with_epochs.n = p->replica_count;
    }
    if (kind == 0)
        m.broker_epoch = old_broker_epoch(c, who);
    else if (kind == 2 && who == leader)
        return;
    else if (kind == 1 && sim_below(w, 2))
        x.leader_epoch -= (int32_t)sim_range(w, 1, 3);
    else if (kind == 1)
        x.partition_epoch -= (int32_t)sim_range(w, 1, 3);
    a->target = KW_MAX(c->controllers[c->controller_count - 1] - 1, 0);
    send_it(a, kw_api_by_key(KW_API_ALTER_PARTITION), 3, &m);
}

static void alter(struct sim_cluster *c, struct sim_attacker *a) {
    for (uint64_t n = 1 + sim_below(a->w, 8); n > 0; n--) alter_one(c, a);
}

/* Of an epoch that its receiver has left behind; of a later one only as a question, or as of another cluster. */
static void vote(struct sim_cluster *c, struct sim_attacker *a) {
    struct sim_world *w = a->w;
    int32_t known = c->nodes[a->target].epoch, kind = (int32_t)sim_below(w, 3);
    struct kw_vote_request_partition_data x = {.replica_id = some_id(c), .last_offset_epoch = known, .last_offset = c->replay.next + 1000};
    struct kw_vote_request_topic_data t = {.topic_name = kw_str_of(KB_METADATA_TOPIC), .partitions = {&x, 1}};
    struct kw_vote_request m = {.cluster_id = {NULL, -1}, .voter_id = c->ids[a->target], .topics = {&t, 1}};
    if (known < 2 || c->nodes[a->target].wiped) return;
    x.replica_epoch = kind ? known + (int32_t)sim_below(w, 3) : known - (int32_t)sim_range(w, 1, known - 1);
    x.pre_vote = kind == 1;
    if (kind == 2) m.cluster_id = kw_str_of("another-cluster-of-ours");
    send_it(a, kw_api_by_key(KW_API_VOTE), 2, &m);
}

static void begin_epoch(struct sim_cluster *c, struct sim_attacker *a) {
    struct sim_world *w = a->w;
    int32_t known = c->nodes[a->target].epoch;
    struct kw_begin_quorum_epoch_request_partition_data x = {.leader_id = some_id(c)};
    struct kw_begin_quorum_epoch_request_topic_data t = {.topic_name = kw_str_of(KB_METADATA_TOPIC), .partitions = {&x, 1}};
    struct kw_begin_quorum_epoch_request_leader_endpoint e = {kw_str_of("PLAINTEXT"), kw_str_of("10.0.0.250"), 9092};
    struct kw_begin_quorum_epoch_request m = {.cluster_id = {NULL, -1}, .voter_id = c->ids[a->target], .topics = {&t, 1}, .leader_endpoints = {&e, 1}};
    if (known < 2 || c->nodes[a->target].wiped) return;
    x.leader_epoch = known - (int32_t)sim_range(w, 1, known - 1);
    if (sim_below(w, 3) == 0) {
        x.leader_epoch = known + 5;
        m.cluster_id = kw_str_of("another-cluster-of-ours");
    }
    send_it(a, kw_api_by_key(KW_API_BEGIN_QUORUM_EPOCH), 1, &m);
}

static void heartbeat(struct sim_cluster *c, struct sim_attacker *a) {
    struct kw_broker_heartbeat_request m;
    kw_msg_init(&kw_broker_heartbeat_request_desc, &m);
    m.broker_id = some_id(c);
    m.broker_epoch = old_broker_epoch(c, m.broker_id);
    m.want_fence = sim_below(a->w, 2);
    m.want_shut_down = sim_below(a->w, 2);
    if (!c->controller_count) return;
    a->target = KW_MAX(c->controllers[c->controller_count - 1] - 1, 0);
    send_it(a, kw_api_by_key(KW_API_BROKER_HEARTBEAT), 1, &m);
}

void sim_cluster_forge(void *ctx, struct sim_attacker *a) {
    static void (*const kinds[])(struct sim_cluster *, struct sim_attacker *) = {fetch, fetch, alter, alter, alter, vote, begin_epoch, heartbeat};
    kinds[sim_below(a->w, KW_COUNTOF(kinds))](ctx, a);
}
