/* fuzz_client_answers.c - the client's core with a producer and a consumer, and brokers whose answers come from the input: what a healthy
 * one would say with fields changed by the schemas, with bytes changed, or bytes that are no answer; late, never, or with the connection lost.
 * With a group.id: a coordinator too, commits and committed offsets.
 *
 * Whatever comes: each accepted record has exactly one report once its producer is closed, and the close keeps its time; a consumer
 * gives views that lie in their span and parse; each commit and query ends once; nothing goes round without time passing; memory stays
 * within the client's bounds, and in the end all of it is given back.
 */
#include "kit/gen.h"
#include "kit/producer.h"
#include "unit/client/peer.h"

#include "consume/commit.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
extern const size_t fuzz_head_size;
const size_t fuzz_head_size = 2;

enum { TOPICS = 2, PARTS = 2, PLANS_MAX = 32, WAITING_MAX = 64, STEPS_MAX = 1200, OPS_MAX = 200, HELD_MAX = 4 };
enum { CLOSE_US = 3000000, SLACK_US = 200000 };
enum { OPT_ACKS_1 = 1, OPT_ACKS_0 = 2, OPT_COMMITTED = 4, OPT_NO_CRC = 8, OPT_EOF = 16, OPT_CODEC = 32, OPT_EARLIEST = 64, OPT_OLD = 128 };
enum { MORE_GROUP = 1, MORE_EXPLICIT = 2 }; /* of the second byte */

struct waiting { /* a request that its broker has, and its answer's time */
    struct link *link;
    struct kc_conn *conn;
    struct kw_frame_request head;
    uint8_t *body;
    size_t size;
    int64_t due_us;
};
struct run {
    struct net *net;
    struct fuzz_producer *producer;
    struct kc_consume consume;
    struct kc_task run_consumer;
    int32_t topic[TOPICS];
    struct fuzz_op plans[PLANS_MAX];
    size_t plan_count;
    struct waiting waiting[WAITING_MAX];
    size_t waiting_count;
    struct fuzz_records records;
    struct fuzz_dict dict;
    int64_t numbers[10];
    kc_event *held[HELD_MAX]; /* the application keeps some events for a while */
    int steps;
    uint8_t more;
    struct kc_commits *commits; /* MORE_GROUP */
    int calls;                  /* commits and queries that have not ended */
};

static const char *const topics[TOPICS] = {"t", "u"};
static const char *const texts[] = {"t", "u", "b0", "b1", "", "cluster", "b2", "nowhere", "rack"};

/* ---- The application ---- */

static void run_consumer(struct kc_task *task, void *ctx) {
    (void)task;
    kc_consume_run(ctx);
}
static void app_kick(void *ctx) {
    struct run *x = ctx;
    kc_core_defer(x->net->core, &x->run_consumer);
}
static void app_notify(void *ctx) { (void)ctx; }

static void check_event(struct run *x, const kc_event *e) {
    size_t size, n = kc_event_count(e);
    const uint8_t *span = kc_event_span(e, &size);
    const kc_view *v = kc_event_views(e);
    int64_t last = -1;
    uint8_t sum = 0;
    (void)x;
    for (size_t i = 0; i < n; i++) {
        FUZZ_CHECK(v[i].offset > last, "offset %lld behind %lld in one event", (long long)v[i].offset, (long long)last);
        last = v[i].offset;
        FUZZ_CHECK(v[i].key_size <= 0 || (v[i].key_at <= size && (size_t)v[i].key_size <= size - v[i].key_at), "a key lies outside its span");
        FUZZ_CHECK(v[i].value_size <= 0 || (v[i].value_at <= size && (size_t)v[i].value_size <= size - v[i].value_at), "a value lies outside its span");
        for (int32_t k = 0; k < v[i].key_size; k++) sum ^= span[v[i].key_at + (size_t)k];
        for (int32_t k = 0; k < v[i].value_size; k++) sum ^= span[v[i].value_at + (size_t)k];
        kc_message m;
        kc_header headers[4];
        FUZZ_CHECK(kc_event_message(e, i, &m) == KC_OK, "a record of an event cannot be had");
        size_t count = kc_event_headers(e, i, headers, sizeof *headers, KW_COUNTOF(headers));
        FUZZ_CHECK(count == v[i].header_count, "%zu headers, %u were promised", count, v[i].header_count);
        for (size_t k = 0; k < count && k < KW_COUNTOF(headers); k++) {
            for (size_t b = 0; b < headers[k].name_size; b++) sum ^= (uint8_t)headers[k].name[b];
            for (size_t b = 0; headers[k].value.p && b < headers[k].value.size; b++) sum ^= ((const uint8_t *)headers[k].value.p)[b];
        }
    }
    (void)*(volatile uint8_t *)&sum;
}

static void poll(struct run *x, int count, bool hold) {
    for (int i = 0; i < count; i++) {
        kc_event *e = NULL;
        kc_consume_passed(&x->consume);
        if (kc_consume_take(&x->consume, &e) != KC_OK) return;
        if (kc_event_kind(e) == KC_EVENT_RECORDS) check_event(x, e);
        else if (kc_event_kind(e) == KC_EVENT_ERROR) FUZZ_CHECK(kc_event_error(e), "an error event without an error");
        struct kc_event **place = &x->held[(size_t)i % HELD_MAX];
        if (!hold) (void)kc_event_drop(e);
        else {
            if (*place) (void)kc_event_drop(*place);
            *place = e;
        }
    }
}

static void drop_held(struct run *x) {
    for (size_t i = 0; i < HELD_MAX; i++) {
        if (x->held[i]) check_event(x, x->held[i]); /* its bytes are there until now */
        if (x->held[i]) (void)kc_event_drop(x->held[i]);
        x->held[i] = NULL;
    }
}

static void assign(struct run *x, struct fuzz_src *s) {
    kc_topic_partition parts[TOPICS * PARTS];
    size_t n = 0;
    uint8_t c = fuzz_u8(s);
    for (int t = 0; t < TOPICS; t++) {
        for (int p = 0; p < PARTS; p++) {
            static const int64_t offsets[] = {KC_OFFSET_BEGINNING, KC_OFFSET_END, 0, 5};
            if (c >> (t * PARTS + p) & 1) continue;
            int64_t from = offsets[c >> 4 & 3];
            if (x->commits && from == 0) from = KC_OFFSET_COMMITTED;
            parts[n++] = (kc_topic_partition){.topic = x->topic[t], .partition = p, .offset = from, .leader_epoch = -1};
        }
    }
    FUZZ_CHECK(kc_consume_assign(&x->consume, parts, sizeof *parts, n, x->net->now.mono_us) == KC_OK, "cannot assign");
}

static void queried(struct kc_offset_query *q) {
    free(q->items);
    free(q);
}
static void query(struct run *x, struct fuzz_src *s) {
    static const int64_t times[] = {KC_OFFSET_BEGINNING, KC_OFFSET_END, 1700000000000, 0};
    struct kc_offset_query *q = calloc(1, sizeof *q);
    if (q) q->items = calloc(2, sizeof *q->items);
    if (!q || !q->items) abort();
    q->count = q->left = 2;
    for (size_t i = 0; i < q->count; i++)
        q->items[i].tp = (kc_topic_partition){.topic = x->topic[i], .partition = fuzz_u8(s) & 1, .offset = times[fuzz_u8(s) & 3], .leader_epoch = -1};
    q->deadline_us = x->net->now.mono_us + 2000000;
    q->done = queried;
    kw_list_init(&q->link);
    kc_consume_query(&x->consume, q);
}

struct commit_call {
    struct kc_commit_call call;
    struct kc_commit_item items[2];
    struct run *x;
};
static void committed(struct kc_commit_call *call) {
    struct commit_call *c = call->ctx;
    c->x->calls--;
    kc_attempts_unref(call->attempts);
    free(c);
}
static void commit(struct run *x, struct fuzz_src *s) {
    struct commit_call *c = calloc(1, sizeof *c);
    if (!c) abort();
    c->x = x;
    c->call = (struct kc_commit_call){.items = c->items, .count = 2, .deadline_us = x->net->now.mono_us + 3000000, .done = committed, .ctx = c};
    for (size_t i = 0; i < 2; i++)
        c->items[i].at = (kc_offset){.topic = x->topic[i], .partition = fuzz_u8(s) & 3, .offset = fuzz_u8(s), .metadata = {"note", fuzz_u8(s) & 4}};
    kc_commits_stamp(x->commits, c->items, 2);
    x->calls++;
    kc_commits_call(x->commits, &c->call);
}

struct committed_query {
    struct kc_committed_query q;
    struct kc_committed_item items[2];
    struct run *x;
};
static void was_committed(struct kc_committed_query *q) {
    struct committed_query *c = q->ctx;
    c->x->calls--;
    for (size_t i = 0; i < q->count; i++) {
        FUZZ_CHECK(c->items[i].at.err != KC_OK || c->items[i].at.offset >= -1, "offset %lld is committed", (long long)c->items[i].at.offset);
        kw_free(c->items[i].metadata);
    }
    kc_attempts_unref(q->attempts);
    free(c);
}
static void ask_committed(struct run *x, struct fuzz_src *s) {
    struct committed_query *c = calloc(1, sizeof *c);
    if (!c) abort();
    c->x = x;
    c->q = (struct kc_committed_query){.items = c->items, .count = 2, .deadline_us = x->net->now.mono_us + 3000000, .done = was_committed, .ctx = c};
    for (size_t i = 0; i < 2; i++) c->items[i].at = (kc_offset){.topic = x->topic[i], .partition = fuzz_u8(s) & 3};
    x->calls++;
    kc_commits_query(x->commits, &c->q);
}

/* ---- What a healthy broker would say ---- */

static void *make(struct run *x, int32_t n, size_t size) { return kw_arena_calloc(&x->net->arena, (size_t)KW_MAX(n, 0) + 1, size); }

static void say_versions(struct run *x, struct kw_api_versions_response *m, uint8_t options) {
    m->api_keys.v = make(x, (int32_t)kw_api_count, sizeof *m->api_keys.v);
    for (size_t i = 0; i < kw_api_count; i++) {
        int16_t max = kw_apis[i].max, old = kw_apis[i].key == KW_API_API_VERSIONS ? 3 : 4;
        if ((options & OPT_OLD) && max > old) max = old;
        if (kw_apis[i].min > max) continue;
        m->api_keys.v[m->api_keys.n++] =
            (struct kw_api_versions_response_api_version){.api_key = kw_apis[i].key, .min_version = kw_apis[i].min, .max_version = max};
    }
}

static void say_produced(struct run *x, const struct kw_produce_request *q, struct kw_produce_response *m) {
    m->responses.v = make(x, q->topic_data.n, sizeof *m->responses.v);
    for (int32_t i = 0; i < q->topic_data.n; i++) {
        struct kw_produce_response_topic_produce_response *t = &m->responses.v[m->responses.n++];
        *t = (struct kw_produce_response_topic_produce_response){.name = q->topic_data.v[i].name, .topic_id = q->topic_data.v[i].topic_id};
        t->partition_responses.v = make(x, q->topic_data.v[i].partition_data.n, sizeof *t->partition_responses.v);
        for (int32_t k = 0; k < q->topic_data.v[i].partition_data.n; k++)
            t->partition_responses.v[t->partition_responses.n++] = (struct kw_produce_response_partition_produce_response){
                .index = q->topic_data.v[i].partition_data.v[k].index, .base_offset = 10, .log_append_time_ms = -1, .log_start_offset = 0,
                .error_message = {NULL, -1}, .current_leader = {-1, -1}};
    }
}

static void say_fetched(struct run *x, const struct kw_fetch_request *q, struct kw_fetch_response *m, struct fuzz_src *s) {
    m->responses.v = make(x, q->topics.n, sizeof *m->responses.v);
    for (int32_t i = 0; i < q->topics.n; i++) {
        struct kw_fetch_response_fetchable_topic_response *t = &m->responses.v[m->responses.n++];
        *t = (struct kw_fetch_response_fetchable_topic_response){.topic = q->topics.v[i].topic, .topic_id = q->topics.v[i].topic_id};
        t->partitions.v = make(x, q->topics.v[i].partitions.n, sizeof *t->partitions.v);
        for (int32_t k = 0; k < q->topics.v[i].partitions.n; k++) {
            const struct kw_fetch_request_fetch_partition *p = &q->topics.v[i].partitions.v[k];
            struct kw_bytes b = {NULL, 0};
            x->records.base_offset = KW_MAX(p->fetch_offset, 0);
            if (fuzz_left(s)) b = fuzz_records_make(s, &x->records, &x->net->arena);
            t->partitions.v[t->partitions.n++] = (struct kw_fetch_response_partition_data){
                .partition_index = p->partition, .high_watermark = x->records.base_offset, .last_stable_offset = x->records.base_offset, .log_start_offset = 0,
                .preferred_read_replica = -1, .diverging_epoch = {-1, -1}, .current_leader = {-1, -1}, .snapshot_id = {-1, -1},
                .aborted_transactions = {.n = -1}, .records = {b.p, b.len, NULL}};
        }
    }
}

static void say_offsets(struct run *x, const struct kw_list_offsets_request *q, struct kw_list_offsets_response *m) {
    m->topics.v = make(x, q->topics.n, sizeof *m->topics.v);
    for (int32_t i = 0; i < q->topics.n; i++) {
        struct kw_list_offsets_response_list_offsets_topic_response *t = &m->topics.v[m->topics.n++];
        t->name = q->topics.v[i].name;
        t->partitions.v = make(x, q->topics.v[i].partitions.n, sizeof *t->partitions.v);
        for (int32_t k = 0; k < q->topics.v[i].partitions.n; k++)
            t->partitions.v[t->partitions.n++] = (struct kw_list_offsets_response_list_offsets_partition_response){
                .partition_index = q->topics.v[i].partitions.v[k].partition_index, .timestamp = -1, .offset = 5, .leader_epoch = 0};
    }
}

static void say_epochs(struct run *x, const struct kw_offset_for_leader_epoch_request *q, struct kw_offset_for_leader_epoch_response *m) {
    m->topics.v = make(x, q->topics.n, sizeof *m->topics.v);
    for (int32_t i = 0; i < q->topics.n; i++) {
        struct kw_offset_for_leader_epoch_response_offset_for_leader_topic_result *t = &m->topics.v[m->topics.n++];
        t->topic = q->topics.v[i].topic;
        t->partitions.v = make(x, q->topics.v[i].partitions.n, sizeof *t->partitions.v);
        for (int32_t k = 0; k < q->topics.v[i].partitions.n; k++)
            t->partitions.v[t->partitions.n++] = (struct kw_offset_for_leader_epoch_response_epoch_end_offset){
                .partition = q->topics.v[i].partitions.v[k].partition, .leader_epoch = q->topics.v[i].partitions.v[k].leader_epoch, .end_offset = 1000};
    }
}

static void say_coordinator(struct run *x, int16_t version, const struct kw_find_coordinator_request *q, struct kw_find_coordinator_response *m) {
    m->coordinators.v = make(x, q->coordinator_keys.n, sizeof *m->coordinators.v);
    for (int32_t i = 0; i < q->coordinator_keys.n; i++)
        m->coordinators.v[m->coordinators.n++] = (struct kw_find_coordinator_response_coordinator){
            .key = ((struct kw_str *)q->coordinator_keys.v)[i], .node_id = 1, .host = kw_str_of("b0"), .port = 9092, .error_message = {NULL, -1}};
    if (version >= 4) return;
    m->node_id = 1;
    m->host = kw_str_of("b0");
    m->port = 9092;
}

static void say_committed(struct run *x, const struct kw_offset_commit_request *q, struct kw_offset_commit_response *m) {
    m->topics.v = make(x, q->topics.n, sizeof *m->topics.v);
    for (int32_t i = 0; i < q->topics.n; i++) {
        struct kw_offset_commit_response_topic *t = &m->topics.v[m->topics.n++];
        *t = (struct kw_offset_commit_response_topic){.name = q->topics.v[i].name, .topic_id = q->topics.v[i].topic_id};
        t->partitions.v = make(x, q->topics.v[i].partitions.n, sizeof *t->partitions.v);
        for (int32_t k = 0; k < q->topics.v[i].partitions.n; k++)
            t->partitions.v[t->partitions.n++].partition_index = q->topics.v[i].partitions.v[k].partition_index;
    }
}

static void say_offsets_of_group(struct run *x, const struct kw_offset_fetch_request *q, struct kw_offset_fetch_response *m) {
    m->groups.v = make(x, q->groups.n, sizeof *m->groups.v);
    for (int32_t g = 0; g < q->groups.n; g++) {
        struct kw_offset_fetch_response_group *to = &m->groups.v[m->groups.n++];
        to->group_id = q->groups.v[g].group_id;
        to->topics.v = make(x, q->groups.v[g].topics.n, sizeof *to->topics.v);
        for (int32_t i = 0; i < q->groups.v[g].topics.n; i++) {
            const struct kw_offset_fetch_request_topics *from = &q->groups.v[g].topics.v[i];
            struct kw_offset_fetch_response_topics *t = &to->topics.v[to->topics.n++];
            *t = (struct kw_offset_fetch_response_topics){.name = from->name, .topic_id = from->topic_id};
            t->partitions.v = make(x, from->partition_indexes.n, sizeof *t->partitions.v);
            for (int32_t k = 0; k < from->partition_indexes.n; k++)
                t->partitions.v[t->partitions.n++] = (struct kw_offset_fetch_response_partitions){
                    .partition_index = ((int32_t *)from->partition_indexes.v)[k], .committed_offset = 5 * k - 1, .committed_leader_epoch = -1,
                    .metadata = kw_str_of("note")};
        }
    }
    m->topics.v = make(x, q->topics.n, sizeof *m->topics.v);
    for (int32_t i = 0; i < q->topics.n; i++) {
        struct kw_offset_fetch_response_topic *t = &m->topics.v[m->topics.n++];
        t->name = q->topics.v[i].name;
        t->partitions.v = make(x, q->topics.v[i].partition_indexes.n, sizeof *t->partitions.v);
        for (int32_t k = 0; k < q->topics.v[i].partition_indexes.n; k++)
            t->partitions.v[t->partitions.n++] = (struct kw_offset_fetch_response_partition){
                .partition_index = ((int32_t *)q->topics.v[i].partition_indexes.v)[k], .committed_offset = 5, .committed_leader_epoch = -1,
                .metadata = kw_str_of("note")};
    }
}

/* The message, in the net's arena. */
static void *say(struct run *x, struct waiting *w, struct fuzz_src *s, uint8_t options) {
    struct request rq = {.link = w->link, .head = w->head};
    union {
        struct kw_metadata_response metadata;
        char room[1024];
    } keep;
    kw_in_init(&rq.body, w->body, w->size);
    if (w->head.api_key == KW_API_METADATA) fill_metadata(x->net, &rq, &keep.metadata); /* resets the arena */
    else kw_arena_reset(&x->net->arena);
    const struct kw_api *api = w->head.api;
    void *q = make(x, 1, api->request->size), *m = make(x, 1, api->response->size);
    kw_msg_init(api->response, m);
    if (w->head.api_key == KW_API_METADATA) {
        memcpy(m, &keep.metadata, sizeof keep.metadata);
        return m;
    }
    FUZZ_CHECK(kw_decode(api->request, w->head.version, &rq.body, &x->net->arena, q) == KW_OK && kw_in_left(&rq.body) == 0,
               "the client's %s v%d does not follow its schema", api->name, w->head.version);
    switch (w->head.api_key) {
    case KW_API_API_VERSIONS: say_versions(x, m, options); break;
    case KW_API_PRODUCE: say_produced(x, q, m); break;
    case KW_API_FETCH: say_fetched(x, q, m, s); break;
    case KW_API_LIST_OFFSETS: say_offsets(x, q, m); break;
    case KW_API_OFFSET_FOR_LEADER_EPOCH: say_epochs(x, q, m); break;
    case KW_API_FIND_COORDINATOR: say_coordinator(x, w->head.version, q, m); break;
    case KW_API_OFFSET_COMMIT: say_committed(x, q, m); break;
    case KW_API_OFFSET_FETCH: say_offsets_of_group(x, q, m); break;
    case KW_API_INIT_PRODUCER_ID: ((struct kw_init_producer_id_response *)m)->producer_id = 1000; break;
    default: break;
    }
    return m;
}

/* ---- What these brokers say ---- */

static void feed(struct run *x, struct waiting *w, const struct kw_out *out, uint8_t pieces) {
    x->net->read_max = pieces ? (size_t)1 << pieces : 0;
    link_feed(w->link, out->p, out->len);
    x->net->read_max = 0;
}

enum { SAY_CHANGED = 0, SAY_EDITED = 1, SAY_RAW_BODY = 2, SAY_RAW = 3, SAY_NOTHING = 4, SAY_CLOSE = 5, SAY_OTHER_ID = 6, SAY_TWICE = 7 };

static void answer(struct run *x, struct waiting *w, struct fuzz_op *plan, uint8_t options) {
    struct fuzz_src none = {NULL, NULL}, *s = plan ? &plan->src : &none;
    int how = plan ? plan->arg & 7 : SAY_CHANGED;
    if (how == SAY_NOTHING) return;
    if (how == SAY_CLOSE) {
        link_lost(w->link, KW_EIO, "connection reset by peer");
        return;
    }
    struct kw_out out;
    kw_out_init(&out);
    if (how == SAY_RAW) {
        kw_out_bytes(&out, s->p, fuzz_left(s));
    } else {
        void *m = say(x, w, s, options);
        if (plan) fuzz_message(w->head.api->response, w->head.version, &x->dict, s, &x->net->arena, m, false);
        kw_err err = kw_frame_response(&out, w->head.api, w->head.version, w->head.correlation_id + (how == SAY_OTHER_ID), m);
        FUZZ_CHECK(err == KW_OK, "the fuzzer's own answer to %s v%d cannot be encoded: %d", w->head.api->name, w->head.version, err);
        size_t head = out.len > 8 ? 8 : out.len, n = out.len;
        if (how == SAY_RAW_BODY) {
            out.len = head;
            kw_out_bytes(&out, s->p, fuzz_left(s));
            n = out.len;
        } else if (how == SAY_EDITED && kw_out_reserve(&out, 16)) {
            n = head + fuzz_edit(s, out.p + head, n - head);
            out.len = n;
        } else if (how == SAY_TWICE && kw_out_grow(&out, n)) {
            kw_out_bytes(&out, out.p, n);
        }
        kw_store32(out.p, (uint32_t)(n - 4));
    }
    feed(x, w, &out, plan ? plan->kind >> 4 : 0);
    kw_out_deinit(&out);
}

/* Plans may be for one kind of request: 1 Fetch, 2 Produce, 3 Metadata, 4 ApiVersions, 5 lookups and ids, 6 the coordinator's;
 * else for whichever comes. */
static bool plan_fits(const struct fuzz_op *plan, int16_t key) {
    switch (plan->arg >> 3 & 7) {
    case 1: return key == KW_API_FETCH;
    case 2: return key == KW_API_PRODUCE;
    case 3: return key == KW_API_METADATA;
    case 4: return key == KW_API_API_VERSIONS;
    case 5: return key == KW_API_LIST_OFFSETS || key == KW_API_OFFSET_FOR_LEADER_EPOCH || key == KW_API_INIT_PRODUCER_ID;
    case 6: return key == KW_API_FIND_COORDINATOR || key == KW_API_OFFSET_COMMIT || key == KW_API_OFFSET_FETCH;
    default: return true;
    }
}

static bool take_plan(struct run *x, int16_t key, struct fuzz_op *out) {
    for (size_t i = 0; i < x->plan_count; i++) {
        if (!plan_fits(&x->plans[i], key)) continue;
        *out = x->plans[i];
        memmove(&x->plans[i], &x->plans[i + 1], (--x->plan_count - i) * sizeof x->plans[0]);
        return true;
    }
    return false;
}

static bool keep_request(struct net *n, struct request *rq) {
    struct run *x = n->ctx;
    if (x->waiting_count == WAITING_MAX) return true; /* never answered */
    struct waiting *w = &x->waiting[x->waiting_count++];
    *w = (struct waiting){.link = rq->link, .conn = rq->link->conn, .head = rq->head, .size = kw_in_left(&rq->body), .due_us = n->now.mono_us + 1000};
    w->head.client_id = kw_str_null();
    w->body = malloc(w->size + 1);
    if (!w->body) abort();
    memcpy(w->body, rq->body.p, w->size);
    return true;
}

static bool expects_answer(const struct run *x, const struct waiting *w) {
    return w->head.api_key != KW_API_PRODUCE || x->net->settings->acks != 0;
}

/* Answers that are due, in the order of their requests. */
static void serve(struct run *x, uint8_t options) {
    struct waiting due[WAITING_MAX];
    size_t n = 0, kept = 0;
    for (size_t i = 0; i < x->waiting_count; i++) {
        if (x->waiting[i].due_us <= x->net->now.mono_us) due[n++] = x->waiting[i];
        else x->waiting[kept++] = x->waiting[i];
    }
    x->waiting_count = kept;
    for (size_t i = 0; i < n; i++) {
        struct waiting *w = &due[i];
        struct fuzz_op plan;
        bool here = w->link->conn == w->conn && expects_answer(x, w), planned = here && take_plan(x, w->head.api_key, &plan);
        if (here && !planned && w->head.api_key == KW_API_FETCH && w->size != SIZE_MAX && x->net->now.mono_us - w->due_us < 300000 && !w->head.client_id.p) {
            if (x->waiting_count < WAITING_MAX) { /* nothing there: it waits, as a long poll does */
                w->due_us = x->net->now.mono_us + 400000;
                w->head.client_id.p = "";
                x->waiting[x->waiting_count++] = *w;
                continue;
            }
        }
        if (here) answer(x, w, planned ? &plan : NULL, options);
        free(w->body);
    }
}

/* ---- Time ---- */

static void check_memory(struct run *x) {
    struct kc_budget *b = kc_core_budget(x->net->core);
    FUZZ_CHECK(b->used[KC_ROLE_PRODUCE] >= 0 && b->used[KC_ROLE_PRODUCE] <= b->max, "producing takes %lld bytes of a budget of %lld",
               (long long)b->used[KC_ROLE_PRODUCE], (long long)b->max);
}

static void pass(struct run *x, int64_t us, uint8_t options) {
    int64_t end = x->net->now.mono_us + us;
    net_turn(x->net);
    while (x->net->now.mono_us < end && x->steps < STEPS_MAX) {
        int64_t next = KW_MIN(kc_core_deadline(x->net->core), end);
        for (size_t i = 0; i < x->waiting_count; i++) next = KW_MIN(next, x->waiting[i].due_us);
        x->steps++;
        net_advance(x->net, KW_MAX(next - x->net->now.mono_us, 1));
        serve(x, options);
        net_turn(x->net);
        fuzz_producer_reports(x->producer);
    }
    check_memory(x);
}

/* ---- Operations ---- */

static void op_app(struct run *x, struct fuzz_op *op) {
    struct fuzz_src *s = &op->src;
    kc_topic_partition tp = {.topic = x->topic[op->arg >> 4 & 1], .partition = op->arg >> 5 & 1, .offset = fuzz_u8(s), .leader_epoch = -1};
    if (x->commits && (op->arg & 8)) {
        if ((op->arg & 7) < 4) commit(x, s);
        else if ((op->arg & 7) < 6) ask_committed(x, s);
        else kc_consume_processed(&x->consume, &tp, sizeof tp, 1, x->more & MORE_EXPLICIT);
        net_turn(x->net);
        return;
    }
    switch (op->arg & 7) {
    case 0:
        assign(x, s);
        break;
    case 1:
        if (op->arg & 0x80) tp.offset = (int64_t)fuzz_bytes(s, 8) & INT64_MAX;
        kc_consume_seek(&x->consume, &tp, sizeof tp, 1, x->net->now.mono_us);
        break;
    case 2:
        kc_consume_pause(&x->consume, &tp, sizeof tp, 1, op->arg & 0x80);
        break;
    case 3:
        fuzz_producer_purge(x->producer, op->arg & 0x80);
        break;
    case 4:
        fuzz_producer_flush(x->producer);
        break;
    case 5:
        query(x, s);
        break;
    case 6:
        drop_held(x);
        break;
    default:
        for (int i = 0; i < (op->arg >> 4); i++) fuzz_producer_send(x->producer, s);
    }
    net_turn(x->net);
}

static void run_op(struct run *x, struct fuzz_op *op, uint8_t options) {
    switch (op->kind & 7) {
    case 0:
    case 1:
    case 2:
        if (x->plan_count < PLANS_MAX) x->plans[x->plan_count++] = *op;
        break;
    case 3:
        for (int i = 0; i <= (op->arg & 7); i++) fuzz_producer_send(x->producer, &op->src);
        net_turn(x->net);
        break;
    case 4:
        poll(x, op->arg & 15, op->arg & 0x80);
        break;
    case 5:
        op_app(x, op);
        break;
    default:
        pass(x, (int64_t)op->arg * (op->kind & 8 ? 100000 : 2000), options);
    }
}

/* ---- Beginning and end ---- */

static void begin(struct run *x, uint8_t options, uint8_t more) {
    const char *pairs[] = {"acks", options & OPT_ACKS_0 ? "0" : options & OPT_ACKS_1 ? "1" : "-1",
                           "fetch.max.bytes", "65536", "max.partition.fetch.bytes", "32768", "receive.message.max.bytes", "100000",
                           "memory.max.bytes", "1048576", "queue.buffering.max.kbytes", "64", "batch.size", "4096", "max.request.size", "20000",
                           "queued.max.messages.kbytes", "128", "isolation.level", options & OPT_COMMITTED ? "read_committed" : "read_uncommitted",
                           "check.crcs", options & OPT_NO_CRC ? "false" : "true", "enable.partition.eof", options & OPT_EOF ? "true" : "false",
                           "compression.type", options & OPT_CODEC ? "lz4" : "none", "auto.offset.reset", options & OPT_EARLIEST ? "earliest" : "latest",
                           "auto.commit.interval.ms", "300",
                           "request.timeout.ms", "5000", "delivery.timeout.ms", "20000", "metadata.max.age.ms", "20000", NULL};
    memset(x, 0, sizeof *x);
    fuzz_memory_count();
    fuzz_memory = (struct fuzz_memory){.live_max = 12u << 20, .one_max = 4u << 20};
    struct net *n = x->net = net_new(pairs);
    n->ctx = x;
    n->hook = keep_request;
    net_broker(n, 1, "b0", 9092);
    net_broker(n, 2, "b1", 9092);
    for (int t = 0; t < TOPICS; t++) {
        struct model_topic *m = net_topic(n, topics[t], (uint8_t)(t + 1), PARTS, 1);
        m->leader[1] = 2;
        x->topic[t] = kc_metadata_intern(n->core, topics[t], strlen(topics[t]));
    }
    static const struct kw_uuid ids[] = {{{1}}, {{2}}, {{3}}, {{0}}};
    static const int64_t numbers[] = {9092, 1000, 5, 10, 1700000000000, 2, 41, 87, 100, 65536};
    memcpy(x->numbers, numbers, sizeof numbers);
    x->dict = (struct fuzz_dict){texts, KW_COUNTOF(texts), ids, KW_COUNTOF(ids), x->numbers, KW_COUNTOF(numbers), NULL, x};
    x->records = (struct fuzz_records){.timestamp = 1700000000000, .body_max = 4000};
    x->producer = fuzz_producer_new(n->core, n->settings, &n->now, x->topic);
    kc_task_init(&x->run_consumer, run_consumer, &x->consume);
    assert_int_equal(kc_consume_init(&x->consume, n->core, n->settings, app_notify, app_kick, x), KW_OK);
    x->more = more;
    struct kc_commits_options o = {.consume = &x->consume, .group_id = kw_str_of("g"),
                                   .mode = more & MORE_EXPLICIT ? KC_PROCESSED_EXPLICIT : KC_PROCESSED_BY_POLL};
    if (more & MORE_GROUP) assert_int_equal(kc_commits_new(&o, &x->commits), KW_OK);
    kc_consume_start(&x->consume);
    struct fuzz_src none = {NULL, NULL};
    assign(x, &none);
    net_turn(n);
}

static void end_producer(struct run *x, uint8_t options) {
    int64_t limit = x->net->now.mono_us + CLOSE_US, at;
    fuzz_producer_close(x->producer, limit);
    x->steps = 0;
    pass(x, CLOSE_US + SLACK_US, options);
    FUZZ_CHECK(fuzz_producer_closed(x->producer, &at) && at <= limit + SLACK_US, "the producer's close does not end in time");
    fuzz_producer_stop(x->producer);
    net_turn(x->net);
    net_advance(x->net, 1);
    FUZZ_CHECK(fuzz_producer_stopped(x->producer), "the producer does not stop");
    fuzz_producer_free(x->producer);
}

static void end_consumer(struct run *x) {
    poll(x, 100, false);
    kc_consume_stop(&x->consume);
    net_turn(x->net);
    FUZZ_CHECK(kc_consume_stopped(&x->consume), "the consumer does not stop");
    FUZZ_CHECK(x->calls == 0, "%d commits and queries never end", x->calls);
    drop_held(x);
    kc_task_cancel(&x->run_consumer);
    kc_consume_deinit(&x->consume);
    struct kc_budget *b = kc_core_budget(x->net->core);
    FUZZ_CHECK(b->used[KC_ROLE_FETCH] == 0 && b->used[KC_ROLE_PRODUCE] == 0, "the budget still counts %lld and %lld bytes",
               (long long)b->used[KC_ROLE_FETCH], (long long)b->used[KC_ROLE_PRODUCE]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct run x;
    struct fuzz_src input = {data, data + size};
    struct fuzz_op op;
    uint8_t options = fuzz_u8(&input);
    uint8_t more = fuzz_u8(&input);
    setenv("CMOCKA_TEST_ABORT", "1", 1);
    begin(&x, options, more);
    for (int i = 0; i < OPS_MAX && fuzz_op_next(&input, &op); i++) run_op(&x, &op, options);
    pass(&x, 1000000, options);
    x.plan_count = 0;
    end_producer(&x, options);
    end_consumer(&x);
    for (size_t i = 0; i < x.waiting_count; i++) free(x.waiting[i].body);
    net_free(x.net);
    fuzz_compressor_drop();
    FUZZ_CHECK(fuzz_memory.live == 0, "%zu bytes are never given back", fuzz_memory.live);
    return 0;
}
