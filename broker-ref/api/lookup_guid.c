/* lookup_guid.c - LookupGuid v0, an API of ours: where a partition's records with given GUIDs are, and what its index counts.
 *
 * Called by dispatch. Calls replica/guids, guid/index (which may have to read its files), log/epochs. The leader alone answers, and of what is not
 * committed says no more than that it is pending: it may yet go.
 */
#include "api.h"
#include "kw_messages.h"
#include "log/epochs.h"
#include "log/log.h"
#include "node_priv.h"
#include "replica/guids.h"
#include "replica/purgatory.h"

enum { UNKNOWN, FOUND, PENDING };
enum { IDS_MAX = 1 << 20 };

typedef struct kw_lookup_guid_response_partition_result part_answer;

struct lookup {
    struct lookup_guid *s;
    struct kb_partition *p;
    part_answer *answer;
    struct kb_guid_find find;
    struct kb_guid_user user; /* while finding */
    struct kb_wait_hook *hook; /* while pending */
    bool pending, finding;
};
struct lookup_guid {
    struct kb_request *rq;
    struct kw_lookup_guid_request req;
    struct kw_lookup_guid_response resp;
    struct kb_waiter waiter; /* for its partitions to move away */
    struct lookup *lookups;
    size_t count, pending;
    bool starting;
};

static void refuse(part_answer *a, int16_t code, const char *text) {
    a->error_code = code;
    a->error_message = kw_str_of(text);
    a->ids.n = 0;
    a->stats = NULL;
}

static void maybe_answer(struct lookup_guid *s) {
    if (s->pending == 0 && !s->starting) kb_request_reply(s->rq, &s->resp);
}

static const char again_text[] = "the index of the partition's GUIDs is not whole at present; ask again";

static void take_found(struct lookup *l) {
    part_answer *a = l->answer;
    const struct kb_partition *p = l->p;
    int16_t code = kb_partition_error(p, -1);
    if (code != KE_NONE) {
        refuse(a, code, NULL);
        return;
    }
    if (l->find.err != KW_OK) {
        bool rot = l->find.err == KW_EIO;
        refuse(a, rot ? KE_LEADER_NOT_AVAILABLE : KE_KAFKA_STORAGE_ERROR, rot ? again_text : "the broker is out of memory; try again");
        return;
    }
    a->leader_epoch = p->leader_epoch;
    a->high_watermark = p->hw;
    for (int32_t i = 0; i < a->ids.n; i++) {
        int64_t offset = l->find.found[i].offset;
        if (offset < 0) continue;
        a->ids.v[i].state = offset < p->hw ? FOUND : PENDING;
        a->ids.v[i].offset = offset;
        a->ids.v[i].leader_epoch = kb_epochs_at(p->log->epochs, offset);
    }
}

static void let_go(struct lookup *l) {
    if (l->finding) kw_list_remove(&l->user.link);
    kb_waiter_unhook(l->hook);
    l->finding = l->pending = false;
    l->s->pending--;
}

static void found(struct kb_guid_find *f, struct kb_now now) {
    struct lookup *l = f->ctx;
    struct lookup_guid *s = l->s;
    let_go(l);
    if (f->err == KW_EIO) kb_guids_lost(l->p, now);
    take_found(l);
    maybe_answer(s);
}

/* It is told from amidst the end of the index: answered when the partition's waiters are asked. */
static void index_gone(struct kb_guid_user *u) {
    struct lookup *l = KW_CONTAINER_OF(u, struct lookup, user);
    kb_guid_find_cancel(&l->find);
    l->finding = false;
}

static void check(struct kb_waiter *w, struct kb_partition *moved, struct kb_now now) {
    struct lookup *l = w->asked->of;
    struct lookup_guid *s = l->s;
    int16_t code = kb_partition_error(moved, -1);
    (void)now;
    if (code == KE_NONE && l->finding) return;
    if (l->finding) kb_guid_find_cancel(&l->find);
    let_go(l);
    refuse(l->answer, code == KE_NONE ? KE_LEADER_NOT_AVAILABLE : code, code == KE_NONE ? again_text : NULL);
    maybe_answer(s);
}

static kw_err tell_stats(struct lookup *l, const struct kb_guid_index *index) {
    struct kb_guid_stats v;
    struct kw_lookup_guid_response_stats *out = kw_arena_alloc(&l->s->rq->arena, sizeof(*out));
    if (!out) return KW_ENOMEM;
    kb_guid_stats(index, &v);
    *out = (struct kw_lookup_guid_response_stats){.from = v.from,
                                                  .end = v.end,
                                                  .entries = v.entries,
                                                  .runs = v.runs,
                                                  .disk_bytes = v.disk_bytes,
                                                  .memory_bytes = v.memory_bytes,
                                                  .window_ms = v.window_ms,
                                                  .finds = v.finds,
                                                  .run_reads = v.run_reads,
                                                  .hits = v.hits,
                                                  .flushes = v.flushes,
                                                  .merges = v.merges,
                                                  .forgotten = v.forgotten,
                                                  .rotten = v.rotten};
    l->answer->stats = out;
    return KW_OK;
}

static kw_err ask(struct lookup *l, const struct kw_lookup_guid_request_partition *q, struct kb_guid_index *index) {
    struct kb_node *n = l->s->rq->node;
    struct kw_arena *arena = &l->s->rq->arena;
    size_t count = (size_t)KW_MAX(q->ids.n, 0);
    uint8_t *ids = kw_arena_alloc(arena, (count + 1) * KB_GUID_SIZE);
    struct kb_guid_entry *v = kw_arena_alloc(arena, (count + 1) * sizeof(*v));
    l->answer->ids.v = kw_arena_alloc(arena, (count + 1) * sizeof(*l->answer->ids.v));
    if (!ids || !v || !l->answer->ids.v) return KW_ENOMEM;
    for (size_t i = 0; i < count; i++) {
        memcpy(ids + i * KB_GUID_SIZE, q->ids.v[i].p, KB_GUID_SIZE);
        l->answer->ids.v[i] = (struct kw_lookup_guid_response_id_result){.state = UNKNOWN, .offset = -1, .leader_epoch = -1};
    }
    l->answer->ids.n = (int32_t)count;
    l->find = (struct kb_guid_find){.index = index, .ids = ids, .stride = KB_GUID_SIZE, .count = count, .found = v, .done = found, .ctx = l};
    int32_t r = count > 0 ? kb_guid_find(&l->find, n->now) : 1;
    if (r == 0) {
        l->pending = l->finding = true;
        l->s->pending++;
        l->hook = kb_waiter_hook(&l->s->waiter, l->p);
        l->hook->of = l;
        l->user.gone = index_gone;
        kw_list_init(&l->user.link);
        kw_list_push(&l->p->guid_users, &l->user.link);
        return KW_OK;
    }
    l->find.err = r < 0 ? r : KW_OK;
    if (r == KW_EIO) kb_guids_lost(l->p, n->now);
    take_found(l);
    return KW_OK;
}

static bool ids_ok(const struct kw_lookup_guid_request_partition *q, part_answer *a) {
    if (q->ids.n > IDS_MAX) {
        refuse(a, KE_INVALID_REQUEST, "more than 1048576 ids of one partition");
        return false;
    }
    for (int32_t i = 0; i < q->ids.n; i++)
        if (q->ids.v[i].len != KB_GUID_SIZE) {
            refuse(a, KE_INVALID_REQUEST, "an id has 16 bytes");
            return false;
        }
    return true;
}

static kw_err start(struct lookup_guid *s, const struct kw_lookup_guid_request_topic *t, const struct kw_lookup_guid_request_partition *q, part_answer *a) {
    struct lookup *l = &s->lookups[s->count++];
    struct kw_uuid id = t->name.len < 0 ? t->topic_id : (struct kw_uuid){{0}};
    *l = (struct lookup){.s = s, .answer = a};
    *a = (part_answer){.index = q->index, .error_message = kw_str_null(), .leader_epoch = -1, .high_watermark = -1};
    int16_t code = t->name.len < 0 && kw_uuid_is_zero(id) ? KE_UNKNOWN_TOPIC_ID
                                                          : kb_partition_find(s->rq->node, t->name, id, q->index, q->current_leader_epoch, &l->p);
    if (code != KE_NONE) {
        refuse(a, code, NULL);
        return KW_OK;
    }
    if (!kb_guids_wanted(l->p)) {
        refuse(a, KE_INVALID_REQUEST, "the topic is not deduped by GUID (message.guid.dedup)");
        return KW_OK;
    }
    if (!ids_ok(q, a)) return KW_OK;
    struct kb_guid_index *index = kb_guids_index(l->p);
    if (!index || !kb_guids_ready(l->p)) {
        refuse(a, KE_LEADER_NOT_AVAILABLE, again_text);
        return KW_OK;
    }
    kw_err err = s->req.include_stats ? tell_stats(l, index) : KW_OK;
    return err == KW_OK ? ask(l, q, index) : err;
}

static void cleanup(struct kb_request *rq) {
    struct lookup_guid *s = rq->state;
    for (size_t i = 0; i < s->count; i++) {
        struct lookup *l = &s->lookups[i];
        if (l->finding) kb_guid_find_cancel(&l->find);
        if (l->pending) let_go(l);
    }
}

static void abandon(struct kb_request *rq) {
    kb_request_drop(rq);
}

static kw_err start_all(struct lookup_guid *s) {
    struct kw_arena *arena = &s->rq->arena;
    size_t count = 0;
    for (int32_t i = 0; i < s->req.topics.n; i++) count += (size_t)s->req.topics.v[i].partitions.n;
    s->lookups = kw_arena_alloc(arena, (count + 1) * sizeof(*s->lookups));
    struct kb_wait_hook *hooks = kw_arena_alloc(arena, (count + 1) * sizeof(*hooks));
    s->resp.topics.v = kw_arena_calloc(arena, (size_t)s->req.topics.n + 1, sizeof(*s->resp.topics.v));
    if (!s->lookups || !hooks || !s->resp.topics.v) return KW_ENOMEM;
    kb_waiter_init(&s->waiter, hooks, count);
    s->waiter.check = check;
    for (int32_t i = 0; i < s->req.topics.n; i++) {
        const struct kw_lookup_guid_request_topic *t = &s->req.topics.v[i];
        struct kw_lookup_guid_response_topic_result *out = &s->resp.topics.v[s->resp.topics.n++];
        out->name = t->name;
        out->topic_id = t->topic_id;
        out->partitions.v = kw_arena_calloc(arena, (size_t)t->partitions.n + 1, sizeof(part_answer));
        if (!out->partitions.v) return KW_ENOMEM;
        for (int32_t j = 0; j < t->partitions.n; j++) {
            kw_err err = start(s, t, &t->partitions.v[j], &out->partitions.v[out->partitions.n++]);
            if (err != KW_OK) return err;
        }
    }
    return KW_OK;
}

void kb_api_lookup_guid(struct kb_request *rq) {
    struct lookup_guid *s = kw_arena_calloc(&rq->arena, 1, sizeof(*s));
    if (!s) {
        kb_request_close(rq, "out of memory");
        return;
    }
    s->rq = rq;
    if (kb_request_decode(rq, &s->req) != KW_OK) return;
    kw_msg_init(&kw_lookup_guid_response_desc, &s->resp);
    rq->state = s;
    rq->cleanup = cleanup;
    s->starting = true;
    kw_err err = start_all(s);
    s->starting = false;
    if (err != KW_OK) {
        kb_request_close(rq, "out of memory");
        return;
    }
    rq->abandon = abandon;
    maybe_answer(s);
}
