/* directories.c - tells the controller which partitions' logs failed here, so that other replicas lead, and which are open again: AssignReplicasToDirs
 * to the directory "lost", and back to this node's; and which a start found to lack something, so that they do not count: to a directory of that
 * meaning, which only says so (elect.h). And says when no log is left that works: then it is the disk. KIP-858.
 *
 * Called by partition (logs that fail or open), partitions (the image, life). Calls channel, lifecycle. Nothing is kept of what was told: what the image
 * says is compared with how the logs are, whenever one of them changes, until both agree. That a log failed is told only of partitions with other
 * replicas.
 */
#include <stdlib.h>

#include "kw_messages.h"
#include "lifecycle.h"
#include "partitions_priv.h"
#include "quorum/elect.h"
#include "wire/kerror.h"

enum {
    VERSION = 0,
    PARTITIONS_MAX = 1000, /* of a request */
    AGAIN_US = 50000,      /* doubling … */
    AGAIN_MAX_US = 5000000,
    LOOK_US = 50000,       /* it was answered: does the image have it? */
    ANSWER_SIZE_MAX = 1 << 20,
};

typedef struct kw_assign_replicas_to_dirs_request_directory_data dir_asked;
typedef struct kw_assign_replicas_to_dirs_request_topic_data topic_asked;
typedef struct kw_assign_replicas_to_dirs_request_partition_data part_asked;
typedef struct kw_assign_replicas_to_dirs_response_topic_data topic_told;

/* The log failed and the image does not say so, or the other way round. */
static bool differs(const struct kb_partition *p, const struct kb_image_partition *ip) {
    if (p->state == KB_PART_LOADING) return kb_opening_lacks(p);
    if (kb_elect_is_lost(ip, p->node->id)) return p->state == KB_PART_ONLINE; /* alone, too: others may have been replicas when it was told */
    return p->state == KB_PART_OFFLINE && ip->replica_count > 1;
}

static bool is_untold(const struct kb_partition *p) {
    const struct kb_image_topic *t = kb_image_topic_by_id(&p->node->image, p->topic_id);
    return t && p->index < t->partition_count && differs(p, &t->partitions[p->index]);
}

static void arm(struct kb_dirs *d, int64_t at_us) {
    if (d->stopped || (kw_timer_armed(&d->timer) && d->timer.at_us <= at_us)) return;
    if (kw_timers_set(&d->node->parts.timers, &d->timer, at_us) != KW_OK) kb_node_fail(d->node, "no memory for the timer that tells of failed logs");
}

void kb_dirs_look(struct kb_partition *p, const struct kb_image_partition *ip, struct kb_now now) {
    struct kb_dirs *d = &p->node->partitions->dirs;
    if (ip ? differs(p, ip) : is_untold(p)) arm(d, now.mono_us + d->pause_us);
}

void kb_dirs_look_at_all(struct kb_node *n, struct kb_now now) {
    for (struct kb_partition *p = NULL; (p = kb_partitions_next(n, p));) kb_dirs_look(p, NULL, now);
}

/* ---- The disk ---- */

/* One log that failed may be its file alone. All of several are the disk: a broker that can serve nothing is in the way. */
void kb_dirs_failed(struct kb_partition *p, struct kb_now now) {
    struct kb_node *n = p->node;
    int32_t failed = 0;
    bool shared = false;
    kb_dirs_look(p, NULL, now);
    for (struct kb_partition *q = NULL; (q = kb_partitions_next(n, q)); failed++) {
        if (q->state != KB_PART_OFFLINE) return;
        shared = shared || q->replica_count > 1;
    }
    if (failed > 1 && shared && !n->partitions->stopping) kb_lifecycle_disk_failed(n, now);
}

/* ---- Requests ---- */

static int by_topic(const void *a, const void *b) {
    const struct kb_partition *x = *(struct kb_partition *const *)a, *y = *(struct kb_partition *const *)b;
    if (x->state != y->state) return x->state < y->state ? -1 : 1;
    int c = memcmp(x->topic_id.b, y->topic_id.b, sizeof(x->topic_id.b));
    return c ? c : (x->index > y->index) - (x->index < y->index);
}

static size_t collect(struct kb_node *n, struct kb_partition *due[PARTITIONS_MAX]) {
    size_t count = 0;
    for (struct kb_partition *p = NULL; count < PARTITIONS_MAX && (p = kb_partitions_next(n, p));)
        if (is_untold(p)) due[count++] = p;
    if (count > 0) qsort(due, count, sizeof(due[0]), by_topic);
    return count;
}

static struct kw_uuid directory_of(const struct kb_partition *p) {
    return p->state == KB_PART_OFFLINE   ? kb_directory_lost
           : p->state == KB_PART_LOADING ? kb_directory_lacking
                                         : kb_store_directory_id(p->node->parts.store);
}

static kw_err ask(struct kb_dirs *d, struct kb_partition *const *due, size_t count, struct kb_now now) {
    struct kb_node *n = d->node;
    struct kw_assign_replicas_to_dirs_request req;
    dir_asked dirs[3];
    topic_asked *topics = kw_calloc(count, sizeof(*topics)), *t = topics;
    part_asked *parts = kw_calloc(count, sizeof(*parts));
    kw_err err = KW_ENOMEM;
    memset(dirs, 0, sizeof(dirs));
    if (!topics || !parts) goto fail;
    kw_msg_init(&kw_assign_replicas_to_dirs_request_desc, &req);
    req.broker_id = n->id;
    req.broker_epoch = kb_store_broker_epoch(n->parts.store);
    req.directories.v = dirs;
    for (size_t i = 0; i < count; i++) {
        const struct kb_partition *p = due[i];
        bool other_dir = i == 0 || p->state != due[i - 1]->state;
        if (other_dir) {
            dirs[req.directories.n].id = directory_of(p);
            dirs[req.directories.n++].topics.v = t;
        }
        if (other_dir || !kw_uuid_eq(p->topic_id, due[i - 1]->topic_id)) {
            dirs[req.directories.n - 1].topics.n++;
            *t++ = (topic_asked){.topic_id = p->topic_id, .partitions.v = &parts[i]};
        }
        t[-1].partitions.n++;
        parts[i].partition_index = p->index;
    }
    int64_t timeout_us = kb_partitions_config_us(n, "controller.quorum.request.timeout.ms");
    err = d->ask(n, &d->call, &kw_assign_replicas_to_dirs_request_desc, VERSION, &req, timeout_us, now);
    for (size_t i = 0; err == KW_OK && i < count; i++) /* not before: an answer to another request says nothing of them */
        if (due[i]->state == KB_PART_LOADING) kb_opening_asks(due[i]);
fail:
    kw_free(topics);
    kw_free(parts);
    return err;
}

/* After a refusal or a failure, later and later. What is new meanwhile is told at once all the same, unless nothing can be. */
static void again(struct kb_dirs *d, int64_t *pause_us, struct kb_now now) {
    *pause_us = *pause_us > 0 ? KW_MIN(2 * *pause_us, (int64_t)AGAIN_MAX_US) : AGAIN_US;
    arm(d, now.mono_us + *pause_us);
}

static void complain(struct kb_dirs *d, const struct kb_partition *p, int16_t code) {
    if (d->complained) return;
    d->complained = true;
    if (p)
        KB_SAY(d->node, KB_WARN, "%s-%d: the controller does not take it that its log failed here, lacks something or is back: %s; it is told again", p->topic,
               p->index, kw_kerror_name(code));
    else
        KB_SAY(d->node, KB_WARN, "the controller does not take it that logs of this broker failed, or are back: %s; it is told again", kw_kerror_name(code));
}

/* Each partition by its own code; true when all were taken. */
static bool take(struct kb_dirs *d, const topic_told *t, struct kb_now now) {
    bool all = true;
    for (int32_t i = 0; i < t->partitions.n; i++) {
        struct kb_partition *p = kb_partition_by_id(d->node, t->topic_id, t->partitions.v[i].partition_index);
        int16_t code = t->partitions.v[i].error_code;
        if (code != KE_NONE && p) complain(d, p, code);
        all = all && code == KE_NONE;
        if (p) kb_opening_answered(p, code == KE_NONE, now);
    }
    return all;
}

static void answered(struct kb_call *c, kw_err err, struct kw_in *body, struct kw_blk *blk, struct kb_now now) {
    struct kb_dirs *d = c->ctx;
    struct kw_assign_replicas_to_dirs_response resp;
    struct kw_arena arena;
    bool all = true;
    (void)blk;
    kw_arena_init(&arena, ANSWER_SIZE_MAX);
    if (err == KW_OK) err = kw_decode(&kw_assign_replicas_to_dirs_response_desc, VERSION, body, &arena, &resp);
    int16_t code = err == KW_OK ? resp.error_code : KE_NONE;
    bool known = err == KW_OK && code == KE_NONE;
    if (code != KE_NONE) complain(d, NULL, code);
    for (int32_t i = 0; known && i < resp.directories.n; i++)
        for (int32_t j = 0; j < resp.directories.v[i].topics.n; j++) all = take(d, &resp.directories.v[i].topics.v[j], now) && all;
    kw_arena_deinit(&arena);
    for (struct kb_partition *p = NULL; (p = kb_partitions_next(d->node, p));) kb_opening_answered(p, false, now); /* that the answer does not name */
    if (!known) {
        again(d, &d->pause_us, now);
        return;
    }
    d->pause_us = 0;
    if (!all) {
        again(d, &d->refused_us, now);
        return;
    }
    d->complained = false;
    d->refused_us = 0;
    arm(d, now.mono_us + LOOK_US);
}

static void fire(struct kw_timer *t, void *ctx, int64_t now_us) {
    struct kb_dirs *d = ctx;
    struct kb_node *n = d->node;
    struct kb_partition *due[PARTITIONS_MAX];
    (void)t;
    n->now.mono_us = now_us;
    if (d->stopped || kb_call_is_under_way(&d->call) || !kb_partitions_registered(n)) return; /* its answer, or the registration, comes back here */
    size_t count = collect(n, due);
    if (count > 0 && ask(d, due, count, n->now) != KW_OK) again(d, &d->pause_us, n->now);
}

void kb_dirs_init(struct kb_dirs *d, struct kb_node *n) {
    *d = (struct kb_dirs){.node = n, .ask = kb_channel_call, .call = {.done = answered, .ctx = d}};
    kw_timer_init(&d->timer, fire, d);
}

void kb_dirs_stop(struct kb_dirs *d) {
    d->stopped = true;
    kb_call_cancel(&d->call);
    kw_timers_cancel(&d->node->parts.timers, &d->timer);
}
