/* delete_groups.c - DeleteGroups v0-3: groups without members, and all that they have stored. Called by dispatch. Calls group/coordinator.
 * KIP-229. */
#include "group_api.h"

struct delete_ {
    struct kb_request *rq;
    struct kw_delete_groups_request req;
    struct kw_delete_groups_response resp;
    struct one {
        struct delete_ *d;
        struct kb_commit *pending;
        int32_t at;
    } * ones;
    int32_t left;
};

static void set(struct delete_ *d, int32_t at, int16_t code) {
    d->resp.results.v[at].error_code = code;
    if (code) d->resp.results.v[at].error_message = kw_str_of(kw_kerror_info(code)->text);
}

static void done(void *ctx, int16_t code, struct kb_now now) {
    struct one *o = ctx;
    struct delete_ *d = o->d;
    (void)now;
    o->pending = NULL;
    set(d, o->at, code);
    if (--d->left > 0) return;
    d->rq->abandon = NULL;
    kb_request_reply(d->rq, &d->resp);
}

static void abandon(struct kb_request *rq) {
    struct delete_ *d = rq->state;
    for (int32_t i = 0; i < d->resp.results.n; i++)
        if (d->ones[i].pending) kb_commit_forget(d->ones[i].pending);
    kb_request_drop(rq);
}

void kb_api_delete_groups(struct kb_request *rq) {
    struct delete_ *d = kw_arena_calloc(&rq->arena, 1, sizeof(*d));
    if (!d) {
        kb_request_close(rq, "out of memory");
        return;
    }
    d->rq = rq;
    if (kb_request_decode(rq, &d->req) != KW_OK) return;
    kw_msg_init(&kw_delete_groups_response_desc, &d->resp);
    d->resp.results.v = kw_arena_calloc(&rq->arena, (size_t)d->req.groups_names.n, sizeof(*d->resp.results.v));
    d->ones = kw_arena_calloc(&rq->arena, (size_t)d->req.groups_names.n, sizeof(*d->ones));
    if (!d->resp.results.v || !d->ones) {
        kb_request_close(rq, "out of memory");
        return;
    }
    for (int32_t i = 0; i < d->req.groups_names.n; i++) {
        d->ones[i] = (struct one){.d = d, .at = i};
        d->resp.results.v[d->resp.results.n++] =
            (struct kw_delete_groups_response_deletable_group_result){.group_id = d->req.groups_names.v[i], .error_message = kw_str_null()};
        int16_t code = kb_coordinator_delete(rq->node, d->req.groups_names.v[i], done, &d->ones[i], rq->node->now, &d->ones[i].pending);
        if (code) set(d, i, code);
        d->left += d->ones[i].pending != NULL;
    }
    if (d->left == 0) {
        kb_request_reply(rq, &d->resp);
        return;
    }
    rq->state = d;
    rq->abandon = abandon;
}
