/* request.c - a request's life: made from a frame, decoded, answered, freed. Called by conn, dispatch and every API; calls codec and fault.
 */
#include <stdio.h>

#include "channel.h"
#include "fault.h"
#include "kw_messages.h"
#include "node_priv.h"

enum { SPARE_MAX = 64 };

static struct kb_request *make(struct kb_node *n, struct kw_blk *blk, const uint8_t *frame, size_t size) {
    struct kb_net *net = &n->net;
    struct kw_list *spare = kw_list_shift(&net->spare);
    struct kb_request *rq = spare ? KW_CONTAINER_OF(spare, struct kb_request, link) : kw_malloc(sizeof(*rq));
    if (!rq) return NULL;
    struct kw_arena arena;
    if (spare) {
        net->spare_count--;
        arena = rq->arena;
    } else {
        kw_arena_init(&arena, 0);
    }
    memset(rq, 0, sizeof(*rq));
    rq->arena = arena;
    kw_list_init(&rq->link);
    rq->node = n;
    rq->blk = kw_blk_ref(blk);
    rq->frame_size = size;
    rq->arrived = n->now;
    kw_timer_init(&rq->timer, NULL, rq);
    kw_in_init(&rq->body, frame, size);
    rq->head_err = kw_frame_parse_request(&rq->body, &rq->head);
    return rq;
}

struct kb_request *kb_request_new(struct kb_conn *c, struct kw_blk *blk, const uint8_t *frame, size_t size) {
    struct kb_request *rq = make(c->node, blk, frame, size);
    if (rq) rq->conn = c;
    return rq;
}

struct kb_request *kb_request_new_inner(struct kb_node *n, struct kb_inner *in, struct kw_blk *blk, const uint8_t *frame, size_t size) {
    struct kb_request *rq = make(n, blk, frame, size);
    if (!rq) return NULL;
    rq->inner = in;
    kw_list_push(&n->net.orphans, &rq->link);
    return rq;
}

void kb_request_free(struct kb_request *rq) {
    struct kb_node *n = rq->node;
    if (rq->inner) kb_inner_answered(rq->inner, NULL);
    if (rq->cleanup) rq->cleanup(rq);
    kw_timers_cancel(&n->parts.timers, &rq->timer);
    kw_list_remove(&rq->link);
    kb_reply_free(rq->reply);
    kw_blk_unref(rq->blk);
    kb_fault_release(rq);
    if (n->net.spare_count >= SPARE_MAX) {
        kw_arena_deinit(&rq->arena);
        kw_free(rq);
        return;
    }
    kw_arena_reset(&rq->arena);
    kw_list_push(&n->net.spare, &rq->link);
    n->net.spare_count++;
}

static const char *api_name(const struct kb_request *rq) {
    return rq->head.api ? rq->head.api->name : "unknown API";
}

kw_err kb_request_decode(struct kb_request *rq, void *msg) {
    /* What a decoder may take follows from what was sent: the widest struct is some 20 times its smallest encoding. */
    rq->arena.budget = rq->arena.used + 64 * rq->frame_size + 4096;
    kw_err err = kw_decode(rq->head.api->request, rq->head.version, &rq->body, &rq->arena, msg);
    rq->arena.budget = 0;
    if (err == KW_OK) return KW_OK;
    char why[160];
    snprintf(why, sizeof(why), "the %s v%d request of %zu bytes does not follow its format (%s)", api_name(rq), rq->head.version,
             rq->frame_size,
             err == KW_ESHORT   ? "it ends too early"
             : err == KW_ENOMEM ? "it asks for more memory than its size allows"
                                : "invalid field");
    kb_request_close(rq, why);
    return err;
}

/* ---- Answers ---- */

void kb_request_done(struct kb_request *rq) {
    KW_ASSERT(rq->started && !rq->answered);
    struct kb_conn *c = rq->conn;
    rq->answered = true;
    rq->abandon = NULL;
    if (rq->inner) kb_inner_answered(rq->inner, NULL);
    if (!c) {
        kb_request_free(rq);
        return;
    }
    c->open--;
    if (rq->head.api_key == KW_API_PRODUCE) c->open_produce--;
    if (rq->later)
        kb_conn_pump_later(c);
    else
        kb_conn_pump(c);
}

void kb_request_drop(struct kb_request *rq) {
    if (rq->fault && kb_fault_unanswered(rq)) return;
    kb_request_done(rq);
}

void kb_request_close(struct kb_request *rq, const char *why) {
    if (rq->conn) {
        struct kw_str id = rq->head.client_id;
        int len = id.len < 0 ? 0 : KW_MIN(id.len, 60);
        kb_conn_say(rq->conn, KB_WARN, "closed: %s (client id \"%.*s\")", why, len, len ? id.p : "");
    } else if (rq->inner) {
        KB_SAY(rq->node, KB_DEBUG, "own %s request: %s", rq->head.api ? rq->head.api->name : "", why);
    }
    rq->closes = true;
    kb_request_done(rq);
}

static bool add_part(struct kb_reply *r, const uint8_t *p, size_t len) {
    if (len == 0) return true;
    r->parts[r->part_count++] = (struct kb_part){.p = p, .len = len};
    r->total += len;
    return true;
}

static bool add_splice(struct kb_reply *r, const struct kw_splice *s) {
    if (s->len == 0) return true;
    if (!s->ref) { /* bytes of an arena, which goes before the reply does */
        struct kw_blk *b = kw_blk_new(s->len);
        if (!b) return false;
        memcpy(b->data, s->p, s->len);
        add_part(r, b->data, s->len);
        r->parts[r->part_count - 1].blk = b;
        return true;
    }
    struct kb_read *read = s->ref;
    KW_ASSERT(s->len == read->bytes);
    for (size_t i = 0; i < read->slice_count; i++) {
        struct kb_slice *sl = &read->slices[i];
        r->parts[r->part_count++] =
            (struct kb_part){.p = sl->file ? NULL : sl->p, .len = sl->len, .file = sl->file, .offset = sl->offset, .blk = sl->blk};
        r->total += sl->len;
    }
    read->slice_count = 0; /* the reply holds the references now */
    return true;
}

static size_t part_bound(const struct kw_out *out) {
    size_t n = 1;
    for (size_t i = 0; i < out->splice_count; i++)
        n += 1 + (out->splices[i].ref ? ((struct kb_read *)out->splices[i].ref)->slice_count : 1);
    return n;
}

struct kb_reply *kb_reply_encode(struct kb_request *rq, int16_t version, const void *msg) {
    struct kw_out out;
    struct kb_reply *r = NULL;
    kw_out_init(&out);
    out.splice = true;
    kw_err err = kw_frame_response(&out, rq->head.api, version, rq->head.correlation_id, msg);
    if (err == KW_OK) {
        r = kb_reply_new(part_bound(&out));
        if (!r) err = KW_ENOMEM;
    }
    if (err != KW_OK) goto fail;
    size_t at = 0;
    for (size_t i = 0; i < out.splice_count; i++) {
        add_part(r, out.p + at, out.splices[i].at - at);
        at = out.splices[i].at;
        if (!add_splice(r, &out.splices[i])) {
            err = KW_ENOMEM;
            goto fail;
        }
    }
    add_part(r, out.p + at, out.len - at);
    r->head = out.p; /* the reply frees it */
    out.p = NULL;
    kw_out_deinit(&out);
    return r;
fail:
    KB_SAY(rq->node, KB_ERROR, "the answer to %s v%d cannot be built (%s): the connection is closed", api_name(rq), version,
           err == KW_ENOMEM ? "out of memory" : "a value that this version cannot carry");
    kb_reply_free(r);
    kw_out_deinit(&out);
    return NULL;
}

void kb_request_reply(struct kb_request *rq, const void *msg) {
    if (rq->inner) kb_inner_answered(rq->inner, msg);
    if (!rq->conn) {
        kb_request_done(rq);
        return;
    }
    if (rq->fault && kb_fault_answer(rq, (void *)(uintptr_t)msg)) return; /* the rule sees to the rest */
    rq->reply = kb_reply_encode(rq, rq->head.version, msg);
    if (!rq->reply) rq->closes = true;
    kb_request_done(rq);
}

static struct kb_reply *relayed(struct kb_request *rq, const uint8_t *body, size_t size, struct kw_blk *blk) {
    struct kw_out out;
    struct kw_response_header h = {.correlation_id = rq->head.correlation_id};
    struct kb_reply *r = kb_reply_new(2);
    kw_out_init(&out);
    kw_out_i32(&out, 0);
    if (!r || kw_encode(&kw_response_header_desc, kw_response_header_version(rq->head.api, rq->head.version), &h, &out) != KW_OK) {
        kb_reply_free(r);
        kw_out_deinit(&out);
        return NULL;
    }
    kw_store32(out.p, (uint32_t)(out.len - 4 + size));
    r->head = out.p; /* the reply frees it */
    add_part(r, out.p, out.len);
    if (add_part(r, body, size) && size > 0) r->parts[r->part_count - 1].blk = kw_blk_ref(blk);
    return r;
}

void kb_request_relay(struct kb_request *rq, const uint8_t *body, size_t size, struct kw_blk *blk) {
    if (rq->conn && !rq->inner && !rq->fault) {
        rq->reply = relayed(rq, body, size, blk);
        if (!rq->reply) rq->closes = true;
        kb_request_done(rq);
        return;
    }
    struct kw_in in; /* a fault rule wants to see it */
    void *msg = kw_arena_alloc(&rq->arena, rq->head.api->response->size);
    kw_in_init(&in, body, size);
    if (msg && kw_decode(rq->head.api->response, rq->head.version, &in, &rq->arena, msg) == KW_OK)
        kb_request_reply(rq, msg);
    else
        kb_request_close(rq, "the controller's answer cannot be read");
}
