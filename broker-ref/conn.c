/* conn.c - connections: where the shell shall read, frames out of bytes, order of answers, backpressure, idle and connection limits.
 *
 * Called by the shell (node.h), request (answers) and node (turns). Calls request and dispatch. Several requests of a connection are under
 * way only while all of them are Produce: any other waits until what came before it is answered, so that a client that pipelines sees
 * its own effects as on a broker that takes one request at a time.
 */
#include <stdarg.h>
#include <stdio.h>

#include "kw_messages.h"
#include "node_priv.h"
#include "quorum/effective.h"

enum {
    SMALL_SIZE = 4096,       /* first block of a connection */
    HOT_SIZE = 64 << 10,     /* of one that fills it */
    IN_PLACE_MAX = 32 << 10, /* larger frames get a block of their own */
    FRAME_SIZE_MIN = 8,      /* key, version, correlation id */
    REQUEST_COUNT_MAX = 64,  /* a connection, read and not answered */
    REQUEST_BYTES_MAX = 8 << 20,
    OUT_BYTES_MAX = 4 << 20, /* unsent answers: beyond, no request is started or read */
    SAID_MAX = 10,           /* lines about peers a second */
    TRIM_US = 5000000,
};

static void idle_fire(struct kw_timer *t, void *ctx, int64_t now_us);
static void trim_fire(struct kw_timer *t, void *ctx, int64_t now_us);

void kb_net_init(struct kb_node *n) {
    struct kb_net *net = &n->net;
    memset(net, 0, sizeof(*net));
    kw_list_init(&net->conns);
    kw_list_init(&net->ready);
    kw_list_init(&net->stalled);
    kw_list_init(&net->later);
    kw_list_init(&net->orphans);
    kw_list_init(&net->spare);
    kw_timer_init(&net->idle_timer, idle_fire, n);
    kw_timer_init(&net->trim_timer, trim_fire, n);
    kb_pool_init(&net->pool);
    kw_map_init(&net->hosts);
}

kw_err kb_net_configure(struct kb_node *n) {
    const struct kb_config *c = n->parts.config;
    int64_t idle_ms = kb_config_int(c, "connections.max.idle.ms"), memory = kb_config_int(c, "queued.max.request.bytes");
    n->net.frame_size_max = (size_t)kb_config_int(c, "socket.request.max.bytes");
    n->net.memory_max = memory > 0 ? (size_t)memory : KB_POOL_BYTES;
    n->net.idle_max_us = idle_ms < 0 || idle_ms > INT64_MAX / 2000 ? KW_NEVER : idle_ms * 1000;
    return kw_timers_reserve(&n->parts.timers, 64); /* the timers of the node's own life cannot fail */
}

void kb_conn_say(struct kb_conn *c, enum kb_level level, const char *fmt, ...) {
    struct kb_net *net = &c->node->net;
    int64_t now = c->node->now.mono_us;
    if (now - net->said_us >= 1000000) {
        if (net->unsaid_count > 0)
            KB_SAY(c->node, KB_WARN, "%u more lines about connections were left out in the last second", net->unsaid_count);
        net->said_us = now;
        net->said_count = net->unsaid_count = 0;
    }
    if (++net->said_count > SAID_MAX) {
        net->unsaid_count++;
        return;
    }
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    int len = vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (len >= 0) KB_SAY(c->node, level, "connection from %s: %s", c->peer, text);
}

void kb_conn_ready(struct kb_conn *c) {
    if (kw_list_empty(&c->ready_link)) kw_list_push(&c->node->net.ready, &c->ready_link);
}

/* ---- Life ---- */

static size_t host_size(const struct kb_conn *c) {
    const char *colon = strrchr(c->peer, ':');
    return colon ? (size_t)(colon - c->peer) : strlen(c->peer);
}

static uintptr_t host_count(const struct kb_conn *c) {
    return (uintptr_t)kw_map_get(&c->node->net.hosts, c->peer, host_size(c));
}

static kw_err host_set(const struct kb_conn *c, uintptr_t count) {
    if (count > 0) return kw_map_put(&c->node->net.hosts, c->peer, host_size(c), (void *)count);
    kw_map_remove(&c->node->net.hosts, c->peer, host_size(c));
    return KW_OK;
}

/* Both limits may be changed while the node runs. */
static bool has_place(struct kb_conn *c) {
    struct kb_node *n = c->node;
    int64_t all = kb_effective_broker_int(&n->image, n->parts.config, "max.connections");
    int64_t one = kb_effective_broker_int(&n->image, n->parts.config, "max.connections.per.ip");
    if ((int64_t)n->net.conn_count >= all)
        kb_conn_say(c, KB_WARN, "refused: max.connections=%lld are open; raise it, or lower connections.max.idle.ms", (long long)all);
    else if ((int64_t)host_count(c) >= one)
        kb_conn_say(c, KB_WARN, "refused: max.connections.per.ip=%lld are open from there; raise it", (long long)one);
    else
        return true;
    return false;
}

static char *dup_text(const char *s) {
    return kw_memdup(s ? s : "", s ? strlen(s) + 1 : 1);
}

struct kb_conn *kb_node_accept(struct kb_node *n, const struct kb_conn_info *info, void *shell, struct kb_now now) {
    n->now = now;
    if (!kb_node_accepts(n)) return NULL;
    struct kb_conn *c = kw_calloc(1, sizeof(*c));
    if (!c) return NULL;
    c->node = n;
    c->shell = shell;
    c->id = ++n->net.last_id;
    c->local_host = dup_text(info->local_host);
    c->local_port = info->local_port;
    c->peer = dup_text(info->peer);
    kw_list_init(&c->link);
    kw_list_init(&c->ready_link);
    kw_list_init(&c->stalled_link);
    kw_list_init(&c->later_link);
    kw_list_init(&c->requests);
    kw_list_init(&c->replies);
    c->active_us = now.mono_us;
    c->reading_told = true;
    if (!c->local_host || !c->peer) goto fail;
    if (!has_place(c)) goto fail;
    if (!kw_timer_armed(&n->net.idle_timer) && n->net.idle_max_us != KW_NEVER &&
        kw_timers_set(&n->parts.timers, &n->net.idle_timer, now.mono_us + n->net.idle_max_us) != KW_OK)
        goto fail;
    if (host_set(c, host_count(c) + 1) != KW_OK) goto fail;
    kw_list_push(&n->net.conns, &c->link);
    n->net.conn_count++;
    return c;
fail:
    kw_free(c->local_host);
    kw_free(c->peer);
    kw_free(c);
    return NULL;
}

static void drop_receive_blocks(struct kb_conn *c) {
    kw_blk_unref(c->blk);
    kw_blk_unref(c->big);
    c->blk = c->big = NULL;
    c->pos = c->end = c->big_fill = c->big_size = 0;
}

static void unstall(struct kb_conn *c) {
    kw_list_remove(&c->stalled_link);
    c->stalled = false;
}

void kb_conn_closed(struct kb_conn *c, struct kb_now now) {
    struct kb_node *n = c->node;
    n->now = now;
    kw_list_remove(&c->link);
    kw_list_remove(&c->ready_link);
    kw_list_remove(&c->later_link);
    unstall(c);
    n->net.conn_count--;
    (void)!host_set(c, host_count(c) - 1); /* a smaller count needs no memory */
    drop_receive_blocks(c);
    c->pumping = true; /* an abandoned request must start nothing */
    struct kw_list *l;
    while ((l = kw_list_shift(&c->requests))) {
        struct kb_request *rq = KW_CONTAINER_OF(l, struct kb_request, link);
        rq->conn = NULL;
        if (!rq->started || rq->answered) {
            kb_request_free(rq);
            continue;
        }
        kw_list_push(&n->net.orphans, &rq->link);
        if (rq->abandon) rq->abandon(rq);
    }
    while ((l = kw_list_shift(&c->replies))) kb_reply_free(KW_CONTAINER_OF(l, struct kb_reply, link));
    if (c->of_broker && n->parts.controller) kb_controller_conn_closed(n->parts.controller, c, now);
    kw_free(c->local_host);
    kw_free(c->peer);
    kw_free(c);
}

void kb_conn_deafen(struct kb_conn *c) {
    if (c->deaf) return;
    c->deaf = true;
    drop_receive_blocks(c);
    unstall(c);
    kb_conn_ready(c);
    kb_conn_pump(c);
}

void kb_net_stop(struct kb_node *n) {
    for (struct kw_list *l = n->net.conns.next, *next; l != &n->net.conns; l = next) {
        next = l->next;
        kb_conn_deafen(KW_CONTAINER_OF(l, struct kb_conn, link));
    }
}

void kb_net_deinit(struct kb_node *n) {
    KW_ASSERT(kw_list_empty(&n->net.conns)); /* the shell told of every close */
    struct kw_list *l;
    while (!kw_list_empty(&n->net.orphans)) kb_request_free(KW_CONTAINER_OF(n->net.orphans.next, struct kb_request, link));
    while ((l = kw_list_shift(&n->net.spare))) {
        struct kb_request *rq = KW_CONTAINER_OF(l, struct kb_request, link);
        kw_arena_deinit(&rq->arena);
        kw_free(rq);
    }
    kw_map_deinit(&n->net.hosts);
    kw_timers_cancel(&n->parts.timers, &n->net.idle_timer);
    kw_timers_cancel(&n->parts.timers, &n->net.trim_timer);
}

/* ---- Limits ---- */

static bool node_is_full(const struct kb_node *n) {
    return n->net.pool.used_bytes >= n->net.memory_max || n->parts.disk.queued_append_bytes >= n->parts.disk.queued_append_bytes_max;
}

bool kb_conn_wants_read(const struct kb_conn *c) {
    if (c->deaf || c->closing || c->stalled) return false;
    return c->request_count < REQUEST_COUNT_MAX && c->request_bytes < REQUEST_BYTES_MAX && c->out_bytes < OUT_BYTES_MAX;
}

static void stall(struct kb_conn *c) {
    if (c->stalled) return;
    c->stalled = true;
    kw_list_push(&c->node->net.stalled, &c->stalled_link);
    kb_conn_ready(c);
}

/* A block for the large frame at pos; false: it must wait for memory, in its turn. A frame over the whole bound passes when it is alone. */
static bool take_big(struct kb_conn *c, size_t size) {
    struct kb_net *net = &c->node->net;
    bool in_turn = kw_list_empty(&net->stalled) || net->stalled.next == &c->stalled_link;
    size_t used = net->pool.used_bytes - (c->blk && c->blk->cap == HOT_SIZE ? HOT_SIZE : 0);
    bool room = used == 0 || used + size <= net->memory_max;
    if (!in_turn || !room || c->node->parts.disk.queued_append_bytes >= c->node->parts.disk.queued_append_bytes_max) return false;
    c->big = kb_pool_take(&net->pool, size);
    if (!c->big) return false;
    c->big_size = size;
    c->big_fill = c->end - c->pos;
    memcpy(c->big->data, c->blk->data + c->pos, c->big_fill);
    kw_blk_unref(c->blk);
    c->blk = NULL;
    c->pos = c->end = 0;
    return true;
}

static void parse(struct kb_conn *c);

void kb_net_end_of_turn(struct kb_node *n) {
    while (!kw_list_empty(&n->net.stalled) && !node_is_full(n)) {
        struct kb_conn *c = KW_CONTAINER_OF(n->net.stalled.next, struct kb_conn, stalled_link);
        size_t frame = c->blk && c->end - c->pos >= 4 ? (size_t)kw_load32(c->blk->data + c->pos) + 4 : 0;
        if (frame > IN_PLACE_MAX && !c->big && !take_big(c, frame)) break;
        unstall(c);
        kb_conn_ready(c);
        parse(c);
    }
    if (n->net.pool.free_bytes > 0 && !kw_timer_armed(&n->net.trim_timer))
        (void)!kw_timers_set(&n->parts.timers, &n->net.trim_timer, n->now.mono_us + TRIM_US); /* room was reserved */
}

static void trim_fire(struct kw_timer *t, void *ctx, int64_t now_us) {
    struct kb_node *n = ctx;
    kb_pool_trim(&n->net.pool);
    if (n->net.pool.free_bytes > 0) (void)!kw_timers_set(&n->parts.timers, t, now_us + TRIM_US);
}

static void idle_fire(struct kw_timer *t, void *ctx, int64_t now_us) {
    struct kb_node *n = ctx;
    n->now.mono_us = now_us;
    while (!kw_list_empty(&n->net.conns)) {
        struct kb_conn *c = KW_CONTAINER_OF(n->net.conns.next, struct kb_conn, link);
        if (c->active_us + n->net.idle_max_us > now_us) {
            (void)!kw_timers_set(&n->parts.timers, t, c->active_us + n->net.idle_max_us);
            return;
        }
        c->active_us = now_us;
        kw_list_remove(&c->link);
        kw_list_push(&n->net.conns, &c->link);
        if (c->open > 0 || c->closing) continue; /* works for it, or is on its way out */
        kb_conn_say(c, KB_DEBUG, "closed after connections.max.idle.ms=%lld without a request", (long long)(n->net.idle_max_us / 1000));
        c->deaf = c->closing = true;
        drop_receive_blocks(c);
        unstall(c);
        kb_conn_ready(c);
    }
}

/* ---- Receiving ---- */

static bool renew_small(struct kb_conn *c) {
    size_t have = c->end - c->pos;
    struct kw_blk *b = c->hot || have > 0 ? kb_pool_take(&c->node->net.pool, HOT_SIZE) : kw_blk_new(SMALL_SIZE);
    if (!b) return false;
    if (have > 0) memcpy(b->data, c->blk->data + c->pos, have);
    kw_blk_unref(c->blk);
    c->blk = b;
    c->pos = 0;
    c->end = have;
    return true;
}

void kb_conn_recv_buf(struct kb_conn *c, uint8_t **p, size_t *n) {
    *p = NULL;
    *n = 0;
    if (c->big) {
        *p = c->big->data + c->big_fill;
        *n = c->big_size - c->big_fill;
        return;
    }
    if (c->produces && node_is_full(c->node)) stall(c);
    if (!kb_conn_wants_read(c)) {
        c->reading_told = false;
        return;
    }
    size_t need = 1;
    if (c->blk && c->end - c->pos >= 4) need = kw_load32(c->blk->data + c->pos) + 4 - (c->end - c->pos);
    if ((!c->blk || c->blk->cap - c->end < need) && !renew_small(c)) {
        kb_conn_say(c, KB_ERROR, "closed: no memory to receive into");
        kb_conn_deafen(c);
        return;
    }
    *p = c->blk->data + c->end;
    *n = c->blk->cap - c->end;
}

static const char *nonsense_hint(uint32_t length) {
    uint8_t b[4];
    kw_store32(b, length);
    static const char http[][5] = {"GET ", "POST", "HEAD", "PUT ", "DELE", "OPTI", "CONN", "PATC", "PRI ", "TRAC"};
    for (size_t i = 0; i < KW_COUNTOF(http); i++)
        if (memcmp(b, http[i], 4) == 0) return " (these bytes begin an HTTP request: this port speaks the Kafka protocol)";
    if (b[0] == 0x16 && b[1] == 0x03)
        return " (these bytes begin a TLS handshake: this listener is PLAINTEXT, set security.protocol=PLAINTEXT)";
    if (b[0] == 0x80 && b[2] == 0x01) return " (these bytes begin an SSLv2 handshake: this listener is PLAINTEXT)";
    if (memcmp(b, "SSH-", 4) == 0) return " (these bytes begin an SSH greeting)";
    return "";
}

static bool frame_length_ok(struct kb_conn *c, uint32_t length) {
    if (length >= FRAME_SIZE_MIN && length <= c->node->net.frame_size_max) return true;
    kb_conn_say(c, KB_WARN, "closed: a frame of %lld bytes is not possible here (%d to socket.request.max.bytes=%zu)%s",
                (long long)(int32_t)length, FRAME_SIZE_MIN, c->node->net.frame_size_max, nonsense_hint(length));
    kb_conn_deafen(c);
    return false;
}

static void record(struct kb_conn *c, const struct kb_request *rq, struct kb_recorded r) {
    const struct kb_recorder *to = &c->node->recorder;
    r.connection = c->id;
    r.peer = c->peer;
    r.api_key = rq->head.api_key;
    r.version = rq->head.version;
    r.correlation_id = rq->head.correlation_id;
    r.client_id = rq->head.client_id;
    to->fn(to->ctx, &r);
}

static void record_request(struct kb_conn *c, const struct kb_request *rq, const uint8_t *frame, size_t size) {
    struct kb_part part = {.p = frame, .len = size};
    record(c, rq, (struct kb_recorded){.parts = &part, .part_count = 1, .size = size});
}

void kb_conn_record_reply(struct kb_conn *c, const struct kb_request *rq, const struct kb_reply *reply) {
    if (KW_LIKELY(!c->node->recorder.fn) || reply->total < 4) return;
    record(c, rq, (struct kb_recorded){.response = true,
                                       .took_us = c->node->now.mono_us - rq->arrived.mono_us,
                                       .parts = reply->parts,
                                       .part_count = reply->part_count,
                                       .skip = 4,
                                       .size = reply->total - 4});
}

/* Takes a whole frame (without its length) into the connection's requests. */
static bool enqueue(struct kb_conn *c, struct kw_blk *blk, const uint8_t *frame, size_t size) {
    struct kb_request *rq = kb_request_new(c, blk, frame, size);
    if (!rq) {
        kb_conn_say(c, KB_ERROR, "closed: no memory for a request of %zu bytes", size);
        kb_conn_deafen(c);
        return false;
    }
    if (KW_UNLIKELY(c->node->recorder.fn)) record_request(c, rq, frame, size);
    kw_list_push(&c->requests, &rq->link);
    if (!c->next) c->next = rq;
    c->request_count++;
    c->request_bytes += size;
    if (rq->head.api_key == KW_API_PRODUCE) c->produces = true;
    return true;
}

static void parse(struct kb_conn *c) {
    while (c->blk && c->end - c->pos >= 4) {
        uint32_t length = kw_load32(c->blk->data + c->pos);
        if (!frame_length_ok(c, length)) return;
        size_t have = c->end - c->pos, whole = (size_t)length + 4;
        if (have < whole) {
            if (whole > IN_PLACE_MAX && !c->stalled && !take_big(c, whole)) stall(c);
            break;
        }
        if (!enqueue(c, c->blk, c->blk->data + c->pos + 4, length)) return;
        c->pos += whole;
    }
    if (c->blk && c->pos == c->end) { /* nothing half received: an idle connection holds no memory */
        kw_blk_unref(c->blk);
        c->blk = NULL;
        c->pos = c->end = 0;
    }
    kb_conn_pump(c);
}

void kb_conn_received(struct kb_conn *c, size_t n, struct kb_now now) {
    struct kb_net *net = &c->node->net;
    c->node->now = now;
    c->active_us = now.mono_us;
    if (net->conns.prev != &c->link) {
        kw_list_remove(&c->link);
        kw_list_push(&net->conns, &c->link);
    }
    if (c->big) {
        KW_ASSERT(n <= c->big_size - c->big_fill);
        c->big_fill += n;
        if (c->big_fill < c->big_size) return;
        struct kw_blk *b = c->big;
        c->big = NULL;
        if (enqueue(c, b, b->data + 4, c->big_size - 4)) kb_conn_pump(c);
        kw_blk_unref(b);
        return;
    }
    if (!c->blk) return; /* closing, or deaf */
    KW_ASSERT(n <= c->blk->cap - c->end);
    c->end += n;
    c->hot = n >= SMALL_SIZE; /* the next block may be large: it goes back as soon as it holds nothing */
    parse(c);
}

/* ---- Order and answers ---- */

static bool may_start(const struct kb_conn *c) {
    if (!c->next || c->closing || c->out_bytes >= OUT_BYTES_MAX) return false;
    return c->open == 0 || (c->open == c->open_produce && c->next->head.api_key == KW_API_PRODUCE);
}

static void start_next(struct kb_conn *c) {
    struct kb_request *rq = c->next;
    c->next = rq->link.next == &c->requests ? NULL : KW_CONTAINER_OF(rq->link.next, struct kb_request, link);
    rq->started = true;
    c->open++;
    if (rq->head.api_key == KW_API_PRODUCE) c->open_produce++;
    kb_dispatch_start(rq);
}

static void send_head(struct kb_conn *c, struct kb_request *rq) {
    kw_list_remove(&rq->link);
    c->request_count--;
    c->request_bytes -= rq->frame_size;
    if (rq->reply && !c->closing) {
        kb_conn_record_reply(c, rq, rq->reply);
        c->out_bytes += rq->reply->total;
        kw_list_push(&c->replies, &rq->reply->link);
        rq->reply = NULL;
    }
    if (rq->closes) c->deaf = c->closing = true;
    kb_request_free(rq);
    kb_conn_ready(c);
}

static void hurry(struct kb_request *rq) {
    void (*fn)(struct kb_request *) = rq->hurry;
    rq->hurry = NULL;
    fn(rq);
}

void kb_conn_pump(struct kb_conn *c) {
    if (c->pumping) return;
    c->pumping = true;
    for (;;) {
        struct kb_request *head = kw_list_empty(&c->requests) ? NULL : KW_CONTAINER_OF(c->requests.next, struct kb_request, link);
        if (head && head->answered)
            send_head(c, head);
        else if (may_start(c))
            start_next(c);
        else if (head && head->hurry && c->next)
            hurry(head);
        else
            break;
    }
    if (c->deaf && kw_list_empty(&c->requests) && !c->closing) {
        c->closing = true;
        kb_conn_ready(c);
    }
    if (kb_conn_wants_read(c) != c->reading_told) kb_conn_ready(c);
    c->pumping = false;
}

void kb_conn_pump_later(struct kb_conn *c) {
    if (!c->pumping && kw_list_empty(&c->later_link)) kw_list_push(&c->node->net.later, &c->later_link);
}

bool kb_net_pump_all(struct kb_node *n) {
    bool any = false;
    for (struct kw_list *l; (l = kw_list_shift(&n->net.later)); any = true) kb_conn_pump(KW_CONTAINER_OF(l, struct kb_conn, later_link));
    return any;
}

struct kb_conn *kb_node_next_conn(struct kb_node *n) {
    struct kw_list *l = kw_list_shift(&n->net.ready);
    if (!l) return NULL;
    struct kb_conn *c = KW_CONTAINER_OF(l, struct kb_conn, ready_link);
    c->reading_told = kb_conn_wants_read(c);
    return c;
}

struct kb_reply *kb_conn_take_reply(struct kb_conn *c) {
    struct kw_list *l = kw_list_shift(&c->replies);
    return l ? KW_CONTAINER_OF(l, struct kb_reply, link) : NULL;
}

bool kb_conn_wants_close(const struct kb_conn *c) {
    return c->closing && kw_list_empty(&c->replies);
}

void kb_conn_sent(struct kb_conn *c, size_t bytes, struct kb_now now) {
    c->node->now = now;
    KW_ASSERT(bytes <= c->out_bytes);
    bool was_full = c->out_bytes >= OUT_BYTES_MAX;
    c->out_bytes -= bytes;
    if (was_full && c->out_bytes < OUT_BYTES_MAX) kb_conn_pump(c);
}

void *kb_conn_shell(const struct kb_conn *c) {
    return c->shell;
}

void kb_conn_advertised(const struct kb_conn *c, struct kw_str *host, int32_t *port) {
    const struct kb_node *n = c->node;
    *host = kw_str_of(n->advertised_host ? n->advertised_host : c->local_host);
    *port = n->advertised_host ? n->advertised_port : c->local_port;
}
