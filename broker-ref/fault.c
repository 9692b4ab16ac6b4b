/* fault.c - the rule engine: which rule strikes a request, and what it does to it. Called by dispatch, request, node. Calls fault_rules
 * (JSON), fault_answer.
 *
 * A rule acts before the request has any effect, or after (`when`). What it does, in this order: wait, then stall, close, or answer an
 * error; on the way out: throttle, corrupt, drip.
 */
#include <errno.h>

#include "fault_priv.h"
#include "quorum/raft.h"
#include "replica/partition.h"

enum { DRIP_STEP_US = 100000 };

void kb_fault_rule_unref(struct kb_fault_rule *r) {
    if (--r->refs > 0) return;
    kw_free(r->client_id);
    kw_free(r->topic);
    kw_free(r->group);
    kw_free(r->text);
    kw_free(r);
}

struct kb_faults *kb_faults_new(void) {
    struct kb_faults *f = kw_calloc(1, sizeof(*f));
    if (!f) return NULL;
    kw_list_init(&f->rules);
    kw_list_init(&f->stalled);
    return f;
}

static struct kb_fault_rule *rule_of(struct kw_list *l) {
    return KW_CONTAINER_OF(l, struct kb_fault_rule, link);
}

void kb_faults_free(struct kb_faults *f) {
    if (!f) return;
    for (struct kw_list *l; (l = kw_list_shift(&f->rules));) kb_fault_rule_unref(rule_of(l));
    kw_free(f);
}

uint64_t kb_faults_hits(const struct kb_faults *f) {
    uint64_t n = f->gone_hits;
    for (const struct kw_list *l = f->rules.next; l != &f->rules; l = l->next) n += KW_CONTAINER_OF(l, const struct kb_fault_rule, link)->hits;
    return n;
}

/* ---- Does a rule strike? ---- */

/* The nodes of a cluster call themselves kbroker-ID, whoever they ask. */
static bool is_of_node(const struct kb_request *rq) {
    static const char name[] = "kbroker-";
    const struct kw_str id = rq->head.client_id;
    return id.len >= (int32_t)sizeof(name) && memcmp(id.p, name, sizeof(name) - 1) == 0 && id.p[sizeof(name) - 1] >= '0' && id.p[sizeof(name) - 1] <= '9';
}

static bool fits(struct kb_fault_rule *r, struct kb_request *rq) {
    if (r->disk || (r->api_key >= 0 && r->api_key != rq->head.api_key)) return false;
    if (rq->head.version < r->version_min || rq->head.version > r->version_max) return false;
    if (r->broker >= 0 && r->broker != rq->node->id) return false;
    if (r->client_id && !kw_str_eq(rq->head.client_id, kw_str_of(r->client_id))) return false;
    if (r->from != KB_FAULT_ANYBODY && is_of_node(rq) != (r->from == KB_FAULT_NODES)) return false;
    if (r->group && !kb_fault_is_of_group(rq, r->group)) return false;
    return (!r->topic && r->partition < 0) || kb_fault_names(rq, r->topic, r->partition);
}

static bool counts(struct kb_fault_rule *r, struct kw_rng *rng) {
    uint64_t n = ++r->seen;
    if (r->times > 0 && r->hits >= r->times) return false;
    if (n <= r->after) return false;
    n -= r->after;
    if (r->nth > 0) return n == r->nth;
    if (r->every > 0) return n % r->every == 0;
    return r->per_million >= 1000000 || kw_rng_chance(rng, r->per_million);
}

static struct kb_fault_rule *strike(struct kb_request *rq) {
    struct kb_faults *f = rq->node->faults;
    for (struct kw_list *l = f->rules.next; l != &f->rules; l = l->next) {
        struct kb_fault_rule *r = rule_of(l);
        if (fits(r, rq) && counts(r, &rq->node->parts.rng)) {
            r->hits++;
            return r;
        }
    }
    return NULL;
}

/* ---- The disk ---- */

static bool has_file(const struct kb_fault_rule *r, const struct kb_node *n, const struct kb_file *file) {
    if (r->topic && strcmp(r->topic, KB_METADATA_TOPIC) == 0) return n->parts.store && kb_store_has_file(n->parts.store, file);
    for (struct kb_partition *p = NULL; (p = kb_partitions_next(n, p));) {
        if (!p->log || (r->topic && strcmp(r->topic, p->topic) != 0) || (r->partition >= 0 && r->partition != p->index)) continue;
        if (kb_log_has_file(p->log, file)) return true;
    }
    return false;
}

void kb_fault_disk(struct kb_node *n, struct kb_disk_req *r) {
    int op = r->op == KB_DISK_READ ? KB_FAULT_READ : r->op == KB_DISK_APPEND ? KB_FAULT_WRITE : r->op == KB_DISK_SYNC ? KB_FAULT_SYNC : 0;
    if (!op || r->err) return;
    for (struct kw_list *l = n->faults->rules.next; l != &n->faults->rules; l = l->next) {
        struct kb_fault_rule *f = rule_of(l);
        if ((int)f->disk != op || (f->broker >= 0 && f->broker != n->id) || !has_file(f, n, r->file) || !counts(f, &n->parts.rng)) continue;
        f->hits++;
        r->err = f->disk_error;
        r->os_errno = f->disk_error == KB_DISK_ENOSPC ? ENOSPC : EIO;
        KB_SAY(n, KB_INFO, "fault rule %d: a log's %s fails", f->number, op == KB_FAULT_READ ? "read" : op == KB_FAULT_WRITE ? "write" : "sync");
        return;
    }
}

/* ---- Timers and stalls ---- */

static bool set_timer(struct kb_request *rq, int64_t delay_us, void (*fire)(struct kw_timer *, void *, int64_t)) {
    rq->timer.fire = fire;
    return kw_timers_set(&rq->node->parts.timers, &rq->timer, rq->node->now.mono_us + delay_us) == KW_OK;
}

static void abandoned(struct kb_request *rq) {
    kw_timers_cancel(&rq->node->parts.timers, &rq->timer);
    kb_request_drop(rq);
}

/* ---- Before the effect ---- */

/* Until the connection goes, or the rule does. */
static void stall(struct kb_request *rq) {
    kw_list_push(&rq->node->faults->stalled, &rq->fault->stall_link);
}

static void act_before(struct kb_request *rq) {
    struct kb_fault_rule *r = rq->fault->rule;
    if (r->stall) {
        stall(rq);
        return;
    }
    if (r->close) {
        kb_request_close(rq, "a fault rule says so");
    } else if (r->has_error && kb_fault_has_no_answer(rq)) {
        kb_request_close(rq, "a fault rule's error for a produce with acks=0, which only a closed connection can tell");
    } else if (r->has_error) {
        rq->fault->in_answer = true;
        kb_fault_refuse(rq, r->error);
    } else {
        rq->abandon = NULL;
        kb_dispatch_run(rq);
    }
}

static void before_fire(struct kw_timer *t, void *ctx, int64_t now_us) {
    (void)t, (void)now_us;
    act_before(ctx);
}

bool kb_fault_before(struct kb_request *rq) {
    struct kb_fault_rule *r = strike(rq);
    if (!r) return false;
    rq->fault = kw_arena_calloc(&rq->arena, 1, sizeof(*rq->fault));
    if (!rq->fault) return false;
    rq->fault->rule = r;
    rq->fault->rq = rq;
    kw_list_init(&rq->fault->stall_link);
    r->refs++;
    KB_SAY(rq->node, KB_INFO, "fault rule %d strikes %s v%d of client \"%.*s\"", r->number, rq->head.api ? rq->head.api->name : "?",
           rq->head.version, KW_MAX(rq->head.client_id.len, 0), rq->head.client_id.len > 0 ? rq->head.client_id.p : "");
    bool acts = !r->after_effect && (r->delay_us > 0 || r->stall || r->close || r->has_error);
    if (!acts) return false;
    rq->abandon = abandoned;
    if (r->delay_us > 0 && set_timer(rq, r->delay_us, before_fire)) return true;
    act_before(rq);
    return true;
}

/* ---- The answer ---- */

static void corrupt_byte(struct kb_reply *reply, int64_t at) {
    size_t total = reply->total, pos = at >= 0 ? (size_t)at : total - KW_MIN((size_t)-at, total);
    if (total == 0) return;
    pos %= total;
    for (size_t i = 0; i < reply->part_count; i++) {
        struct kb_part *p = &reply->parts[i];
        if (pos >= p->len) {
            pos -= p->len;
            continue;
        }
        if (p->p) ((uint8_t *)(uintptr_t)p->p)[pos] ^= 0x20;
        return;
    }
}

static void drip_fire(struct kw_timer *t, void *ctx, int64_t now_us);

/* A few bytes more of the held answer, once it is this request's turn. */
static bool drip_some(struct kb_request *rq) {
    struct kb_fault_hit *hit = rq->fault;
    struct kb_conn *c = rq->conn;
    if (c->requests.next != &rq->link) return true;
    size_t n = KW_MIN((size_t)KW_MAX(hit->rule->drip_bytes_per_s * DRIP_STEP_US / 1000000, 1), hit->held->total - hit->dripped);
    struct kb_reply *piece = kb_reply_new(1);
    uint8_t *bytes = kw_malloc(n);
    if (!piece || !bytes) {
        kb_reply_free(piece);
        kw_free(bytes);
        return true; /* the next time */
    }
    size_t done = 0, at = hit->dripped;
    for (size_t i = 0; i < hit->held->part_count && done < n; i++) {
        const struct kb_part *p = &hit->held->parts[i];
        if (at >= p->len) {
            at -= p->len;
            continue;
        }
        size_t take = KW_MIN(p->len - at, n - done);
        memcpy(bytes + done, p->p + at, take);
        done += take;
        at = 0;
    }
    if (hit->dripped == 0) kb_conn_record_reply(c, rq, hit->held);
    piece->head = bytes;
    piece->parts[0] = (struct kb_part){.p = bytes, .len = n};
    piece->part_count = 1;
    piece->total = n;
    hit->dripped += n;
    c->out_bytes += n;
    kw_list_push(&c->replies, &piece->link);
    kb_conn_ready(c);
    return hit->dripped < hit->held->total;
}

static void drip_fire(struct kw_timer *t, void *ctx, int64_t now_us) {
    (void)t, (void)now_us;
    struct kb_request *rq = ctx;
    if (drip_some(rq) && set_timer(rq, DRIP_STEP_US, drip_fire)) return;
    kb_request_done(rq);
}

/* The answer is whole, in memory where it is to be corrupted or dripped. */
static void send_out(struct kb_request *rq) {
    struct kb_fault_hit *hit = rq->fault;
    struct kb_fault_rule *r = hit->rule;
    if (r->corrupts) corrupt_byte(hit->held, r->corrupt_at);
    if (r->drip_bytes_per_s > 0) {
        rq->abandon = abandoned;
        if (set_timer(rq, DRIP_STEP_US, drip_fire)) return;
    }
    rq->reply = hit->held;
    hit->held = NULL;
    kb_request_done(rq);
}

static void file_part_read(struct kb_disk_req *req, struct kb_now now);

/* File slices become memory, one after the other. */
static void load_file_parts(struct kb_request *rq) {
    struct kb_fault_hit *hit = rq->fault;
    for (; hit->loading < hit->held->part_count; hit->loading++) {
        struct kb_part *p = &hit->held->parts[hit->loading];
        if (p->p) continue;
        hit->blk = kw_blk_new(p->len);
        if (!hit->blk) break;
        hit->read = (struct kb_disk_req){.op = KB_DISK_READ,
                                         .lane = KB_LANE_READ,
                                         .file = p->file,
                                         .offset = p->offset,
                                         .length = (int64_t)p->len,
                                         .buf = hit->blk->data,
                                         .done = file_part_read,
                                         .ctx = rq};
        rq->abandon = NULL; /* the read must come back first */
        kb_disk_submit(&rq->node->parts.disk, &hit->read);
        return;
    }
    if (rq->conn && hit->loading == hit->held->part_count) {
        send_out(rq);
        return;
    }
    rq->closes = true;
    kb_request_done(rq);
}

static void file_part_read(struct kb_disk_req *req, struct kb_now now) {
    (void)now;
    struct kb_request *rq = req->ctx;
    struct kb_fault_hit *hit = rq->fault;
    struct kb_part *p = &hit->held->parts[hit->loading];
    if (req->err != KB_DISK_OK || (size_t)req->result < p->len) {
        kw_blk_unref(hit->blk);
        hit->blk = NULL;
        rq->closes = true;
        kb_request_done(rq);
        return;
    }
    kb_file_unref(p->file);
    *p = (struct kb_part){.p = hit->blk->data, .len = p->len, .blk = hit->blk};
    hit->blk = NULL;
    load_file_parts(rq);
}

static void act_after(struct kb_request *rq) {
    struct kb_fault_rule *r = rq->fault->rule;
    if (r->after_effect && r->stall) {
        stall(rq);
        return;
    }
    if (r->after_effect && r->close) {
        kb_request_close(rq, "a fault rule says so, after the effect");
        return;
    }
    if (r->corrupts || r->drip_bytes_per_s > 0) {
        load_file_parts(rq);
        return;
    }
    rq->reply = rq->fault->held;
    rq->fault->held = NULL;
    kb_request_done(rq);
}

static void after_fire(struct kw_timer *t, void *ctx, int64_t now_us) {
    (void)t, (void)now_us;
    act_after(ctx);
}

bool kb_fault_answer(struct kb_request *rq, void *msg) {
    struct kb_fault_hit *hit = rq->fault;
    struct kb_fault_rule *r = hit->rule;
    if ((r->after_effect || hit->forced) && r->has_error && !hit->in_answer) kb_fault_set_error(rq, msg, r->error);
    if (r->throttle_ms > 0) kb_fault_set_throttle(rq->head.api->response, msg, r->throttle_ms);
    hit->held = kb_reply_encode(rq, rq->head.version, msg);
    if (!hit->held) {
        rq->closes = true;
        kb_request_done(rq);
        return true;
    }
    rq->abandon = abandoned;
    if (r->after_effect && r->delay_us > 0 && set_timer(rq, r->delay_us, after_fire)) return true;
    act_after(rq);
    return true;
}

/* ---- Where there is no answer (acks=0) ---- */

static bool act_unanswered(struct kb_request *rq) {
    struct kb_fault_rule *r = rq->fault->rule;
    if (r->stall) stall(rq);
    if (r->close || r->has_error) kb_request_close(rq, "a fault rule says so, after the effect of a produce with acks=0");
    return r->stall || r->close || r->has_error;
}

static void unanswered_fire(struct kw_timer *t, void *ctx, int64_t now_us) {
    (void)t, (void)now_us;
    if (!act_unanswered(ctx)) kb_request_done(ctx);
}

bool kb_fault_unanswered(struct kb_request *rq) {
    struct kb_fault_rule *r = rq->fault->rule;
    if (!r->after_effect || !rq->conn) return false;
    rq->abandon = abandoned;
    if (r->delay_us > 0 && set_timer(rq, r->delay_us, unanswered_fire)) return true;
    return act_unanswered(rq);
}

void kb_fault_release(struct kb_request *rq) {
    if (!rq->fault) return;
    kw_list_remove(&rq->fault->stall_link);
    kb_fault_rule_unref(rq->fault->rule);
    kb_reply_free(rq->fault->held);
    kw_blk_unref(rq->fault->blk);
    rq->fault = NULL;
}

/* ---- Rules that go ---- */

/* As if the rule had not struck: it has its effect yet, or its answer leaves. */
static void unstall(struct kb_request *rq) {
    struct kb_fault_hit *hit = rq->fault;
    rq->abandon = NULL;
    if (hit->held) {
        rq->reply = hit->held;
        hit->held = NULL;
        kb_request_done(rq);
    } else if (hit->rule->after_effect) {
        kb_request_done(rq); /* no answer was due */
    } else {
        kb_dispatch_run(rq);
    }
}

size_t kb_faults_clear(struct kb_faults *f, int32_t number) {
    struct kw_list gone, *l, *next;
    size_t n = 0;
    kw_list_init(&gone);
    for (l = f->rules.next; l != &f->rules; l = next) {
        next = l->next;
        if (number != 0 && rule_of(l)->number != number) continue;
        kw_list_remove(l);
        f->count--;
        f->gone_hits += rule_of(l)->hits;
        n++;
        kb_fault_rule_unref(rule_of(l));
    }
    for (l = f->stalled.next; l != &f->stalled; l = next) {
        next = l->next;
        if (number != 0 && KW_CONTAINER_OF(l, struct kb_fault_hit, stall_link)->rule->number != number) continue;
        kw_list_remove(l);
        kw_list_push(&gone, l);
    }
    while ((l = kw_list_shift(&gone))) unstall(KW_CONTAINER_OF(l, struct kb_fault_hit, stall_link)->rq);
    return n;
}
