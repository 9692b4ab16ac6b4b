/* isr_change.c - changes of the ISR: wished by the leader, sent to the controller (AlterPartition) until answered. KIP-497, 903.
 *
 * Called by isr.c and, with answers, by channel. Calls channel, partition. A wish lives until it is committed (the answer, or the image, has a higher
 * partition epoch), or refused for what it is (INELIGIBLE_REPLICA, OPERATION_NOT_ATTEMPTED). Whatever else happens to the request, it may have been
 * carried out, so the same is sent again.
 */
#include <stdio.h>
#include <stdlib.h>

#include "isr_priv.h"
#include "partitions_priv.h"

enum {
    VERSION = 3,
    PARTITIONS_MAX = 1000,       /* of a request */
    AGAIN_US = 50000,            /* no controller, or it failed; it refuses the whole request: doubling … */
    AGAIN_MAX_US = 2000000,
    AGAIN_LATER_US = 1000000,    /* it has other views of the partition: the image will tell which */
    REST_US = 200000,            /* after a refusal */
    ANSWER_SIZE_MAX = 16 << 20,
};

typedef struct kw_alter_partition_request_topic_data topic_asked;
typedef struct kw_alter_partition_request_partition_data part_asked;
typedef struct kw_alter_partition_response_partition_data part_answer;

static void send_soon(struct kb_isrs *all, int64_t at_us) {
    if (all->stopped || (kw_timer_armed(&all->send_timer) && all->send_timer.at_us <= at_us)) return;
    if (kw_timers_set(&all->node->parts.timers, &all->send_timer, at_us) != KW_OK)
        kb_node_fail(all->node, "no memory for the timer of changes of the ISR");
}

/* ---- Wishes ---- */

void kb_isr_wish_drop(struct kb_isr *s) {
    kw_list_remove(&s->wish_link);
    kw_free(s->wish);
    s->wish = NULL;
    s->wish_count = 0;
    s->sent = s->complained = false;
}

static void put(struct kb_isr *s, int32_t id) {
    const struct kb_node *n = s->p->node;
    const struct kb_remote *r = kb_isr_remote(s, id);
    int64_t epoch = id == n->id ? kb_store_broker_epoch(n->parts.store) : r ? r->broker_epoch : -1;
    s->wish[s->wish_count++] = (struct kw_alter_partition_request_broker_state){id, epoch};
}

/* "0,1,2" */
static const char *text_of(char *buf, size_t size, const int32_t *ids, int32_t count) {
    size_t n = 0;
    buf[0] = 0;
    for (int32_t i = 0; i < count && n + 14 < size; i++) {
        int len = snprintf(buf + n, size - n, i ? ",%d" : "%d", ids[i]);
        n += len > 0 ? (size_t)len : 0;
    }
    return buf;
}

static void say(const struct kb_isr *s, const char *what) {
    const struct kb_partition *p = s->p;
    char from[200], to[200];
    int32_t ids[16], n = 0;
    for (; n < s->wish_count && n < (int32_t)KW_COUNTOF(ids); n++) ids[n] = s->wish[n].broker_id;
    KB_SAY(p->node, KB_INFO, "%s-%d: %s from (%s) to (%s); it ends at %lld, its high watermark is %lld", p->topic, p->index, what,
           text_of(from, sizeof(from), p->isr, p->isr_count), text_of(to, sizeof(to), ids, n), (long long)p->log->leo, (long long)p->hw);
}

void kb_isr_wish(struct kb_isr *s, int32_t joins, struct kb_now now) {
    struct kb_partition *p = s->p;
    struct kb_isrs *all = &p->node->partitions->isrs;
    bool expands = joins >= 0;
    if (s->wish || all->stopped) return;
    s->wish = kw_malloc(((size_t)p->isr_count + 1) * sizeof(*s->wish));
    if (!s->wish) return; /* the next fetch, or the timer, comes again */
    for (int32_t i = 0; i < p->isr_count; i++) {
        const struct kb_remote *r = kb_isr_remote(s, p->isr[i]);
        if (expands || !r || !r->behind) put(s, p->isr[i]);
    }
    if (expands) put(s, joins);
    if (s->wish_count == p->isr_count) {
        kb_isr_wish_drop(s);
        return;
    }
    say(s, expands ? "the ISR is to grow" : "the ISR is to shrink");
    s->again_us = now.mono_us;
    kw_list_push(&all->unsent, &s->wish_link);
    send_soon(all, now.mono_us); /* at the end of the turn: many at a time */
}

static void wish_again(struct kb_isrs *all, struct kb_isr *s, int64_t at_us) {
    s->again_us = at_us;
    kw_list_remove(&s->wish_link);
    kw_list_push(&all->unsent, &s->wish_link);
    send_soon(all, at_us);
}

/* ---- Answers ---- */

static struct kb_isr *find_sent(const struct kb_isrs *all, struct kw_uuid id, int32_t index) {
    const struct kb_partition *p = kb_partition_by_id(all->node, id, index);
    struct kb_isr *s = p ? p->in_sync : NULL;
    return s && s->wish && s->sent ? s : NULL;
}

static void refused(struct kb_isr *s, int16_t code, struct kb_now now) {
    struct kb_partition *p = s->p;
    KB_SAY(p->node, KB_INFO, "%s-%d: the controller refused the ISR that was asked for: %s", p->topic, p->index, kw_kerror_name(code));
    s->rest_until_us = now.mono_us + REST_US;
    kb_isr_wish_drop(s);
    kb_partition_reckon(p, now);
}

static void take_answer(struct kb_isrs *all, struct kb_isr *s, const part_answer *a, struct kb_now now) {
    struct kb_partition *p = s->p;
    s->sent = false;
    switch (a->error_code) {
    case KE_NONE:
        if (a->leader_epoch == p->leader_epoch && a->partition_epoch > p->partition_epoch) {
            kb_partition_take_isr(p, a->partition_epoch, a->isr.v, KW_MAX(a->isr.n, 0), now);
            return;
        }
        break; /* an answer to something older, or a change of the leader that the image will tell */
    case KE_OPERATION_NOT_ATTEMPTED:
    case KE_INELIGIBLE_REPLICA:
        refused(s, a->error_code, now);
        return;
    case KE_NOT_CONTROLLER:
    case KE_REQUEST_TIMED_OUT:
        wish_again(all, s, now.mono_us + AGAIN_US);
        return;
    default:
        if (!s->complained)
            KB_SAY(p->node, KB_INFO, "%s-%d: the controller did not change the ISR: %s", p->topic, p->index, kw_kerror_name(a->error_code));
        s->complained = true;
        break;
    }
    wish_again(all, s, now.mono_us + AGAIN_LATER_US);
}

static void take_answers(struct kb_isrs *all, const struct kw_alter_partition_response *resp, struct kb_now now) {
    for (int32_t i = 0; i < resp->topics.n; i++)
        for (int32_t j = 0; j < resp->topics.v[i].partitions.n; j++) {
            const part_answer *a = &resp->topics.v[i].partitions.v[j];
            struct kb_isr *s = find_sent(all, resp->topics.v[i].topic_id, a->partition_index);
            if (s) take_answer(all, s, a, now);
        }
}

/* Said once, and asked again ever more seldom, until it takes one. A controller that has just lost its office is another soon. */
static int64_t refused_whole(struct kb_isrs *all, int16_t code) {
    if (code == KE_NOT_CONTROLLER || code == KE_REQUEST_TIMED_OUT) return AGAIN_US;
    if (all->refusals == 0)
        KB_SAY(all->node, KB_WARN, "the controller takes no changes of in-sync replicas from this broker: %s; it is asked again", kw_kerror_name(code));
    if (all->refusals < 16) all->refusals++;
    return KW_MIN((int64_t)AGAIN_US << all->refusals, (int64_t)AGAIN_MAX_US);
}

static void answered(struct kb_call *c, kw_err err, struct kw_in *body, struct kw_blk *blk, struct kb_now now) {
    (void)blk;
    struct kb_isrs *all = c->ctx;
    struct kw_alter_partition_response resp;
    struct kw_arena arena;
    kw_arena_init(&arena, ANSWER_SIZE_MAX);
    if (err == KW_OK) err = kw_decode(&kw_alter_partition_response_desc, VERSION, body, &arena, &resp);
    int64_t pause_us = AGAIN_US;
    if (err == KW_OK && resp.error_code != KE_NONE) {
        pause_us = refused_whole(all, resp.error_code);
    } else if (err == KW_OK) {
        all->refusals = 0;
        take_answers(all, &resp, now);
    }
    kw_arena_deinit(&arena);
    struct kw_list *l;
    while ((l = kw_list_shift(&all->sent))) { /* those without an answer */
        struct kb_isr *s = KW_CONTAINER_OF(l, struct kb_isr, wish_link);
        s->sent = false;
        wish_again(all, s, now.mono_us + pause_us);
    }
    if (!kw_list_empty(&all->unsent)) send_soon(all, now.mono_us); /* those that came meanwhile */
}

/* ---- Requests ---- */

static int by_topic(const void *a, const void *b) {
    const struct kb_partition *x = (*(struct kb_isr *const *)a)->p, *y = (*(struct kb_isr *const *)b)->p;
    int c = memcmp(x->topic_id.b, y->topic_id.b, sizeof(x->topic_id.b));
    return c ? c : (x->index > y->index) - (x->index < y->index);
}

/* Those that are due, in order of topics; *next: when the next of the others is. */
static size_t collect(struct kb_isrs *all, struct kb_isr *due[PARTITIONS_MAX], int64_t *next, struct kb_now now) {
    size_t n = 0;
    *next = KW_NEVER;
    for (struct kw_list *l = all->unsent.next; l != &all->unsent; l = l->next) {
        struct kb_isr *s = KW_CONTAINER_OF(l, struct kb_isr, wish_link);
        if (s->again_us <= now.mono_us && n < PARTITIONS_MAX)
            due[n++] = s;
        else
            *next = KW_MIN(*next, KW_MAX(s->again_us, now.mono_us));
    }
    qsort(due, n, sizeof(due[0]), by_topic);
    return n;
}

static kw_err ask(struct kb_isrs *all, struct kb_isr *const *due, size_t count, struct kb_now now) {
    struct kb_node *n = all->node;
    struct kw_alter_partition_request req;
    topic_asked *topics = kw_calloc(count, sizeof(*topics));
    part_asked *parts = kw_calloc(count, sizeof(*parts));
    kw_err err = KW_ENOMEM;
    if (!topics || !parts) goto fail;
    kw_msg_init(&kw_alter_partition_request_desc, &req);
    req.broker_id = n->id;
    req.broker_epoch = kb_store_broker_epoch(n->parts.store);
    req.topics.v = topics;
    for (size_t i = 0; i < count; i++) {
        const struct kb_partition *p = due[i]->p;
        if (i == 0 || !kw_uuid_eq(p->topic_id, due[i - 1]->p->topic_id))
            topics[req.topics.n++] = (topic_asked){.topic_id = p->topic_id, .partitions.v = &parts[i]};
        topics[req.topics.n - 1].partitions.n++;
        parts[i] = (part_asked){.partition_index = p->index, .leader_epoch = p->leader_epoch, .partition_epoch = p->partition_epoch};
        parts[i].new_isr_with_epochs.v = due[i]->wish;
        parts[i].new_isr_with_epochs.n = due[i]->wish_count;
    }
    int64_t timeout_us = kb_partitions_config_us(n, "controller.quorum.request.timeout.ms");
    err = all->ask(n, &all->call, &kw_alter_partition_request_desc, VERSION, &req, timeout_us, now);
fail:
    kw_free(topics);
    kw_free(parts);
    return err;
}

static void send_fire(struct kw_timer *t, void *ctx, int64_t now_us) {
    (void)t, (void)now_us;
    struct kb_isrs *all = ctx;
    struct kb_now now = all->node->now;
    struct kb_isr *due[PARTITIONS_MAX];
    int64_t next;
    if (all->stopped || kb_call_is_under_way(&all->call)) return; /* its answer comes back here */
    size_t n = collect(all, due, &next, now);
    if (n > 0) {
        if (ask(all, due, n, now) != KW_OK) {
            send_soon(all, now.mono_us + AGAIN_US);
            return;
        }
        for (size_t i = 0; i < n; i++) {
            due[i]->sent = true;
            kw_list_remove(&due[i]->wish_link);
            kw_list_push(&all->sent, &due[i]->wish_link);
        }
        return;
    }
    if (next != KW_NEVER) send_soon(all, next);
}

void kb_isrs_init_wishes(struct kb_isrs *all) {
    all->call.done = answered;
    all->call.ctx = all;
    kw_timer_init(&all->send_timer, send_fire, all);
}
