/* admin_guids.c - kc_admin_lookup_guids, kc_admin_guid_stats: where records with given ids are, and what the indexes of a topic's partitions hold.
 *
 * Metadata says who leads each partition; then a LookupGuid a leader. A leader that is none, or is silent, leads back to metadata: what is open is asked of
 * the one that leads then. Called by the application. Calls admin_call.c. LookupGuid is an API of kbroker's own.
 */
#include <stdlib.h>

#include "admin_call.h"
#include "produce/guid.h"

struct kc_guid_list {
    struct kw_arena arena; /* of messages */
    kc_guid_partition *parts;
    size_t part_count;
    kc_guid_place *places;
    size_t count;
};
struct part {              /* beside the list's */
    bool open;             /* still to be asked */
    bool asked;            /* of the request under way */
    int32_t silent;        /* the leader that took too long; -1: none did */
};
struct lookup {
    char *topic;
    uint8_t (*ids)[KC_GUID_SIZE];
    size_t n;
    int32_t *only;         /* partitions to ask; 0 of them: all */
    size_t only_count;
    bool stats;
    kc_guid_list *list;    /* NULL: taken */
    struct part *parts;    /* list->part_count; NULL: metadata has not told of them yet */
    size_t place_cap;
    int32_t looks;         /* at metadata again, because of leaders */
};
#define LOOKUP_STEP_US 3000000
#define ASKED_MAX 200000 /* ids times partitions of a request */
#define LOOKS_MAX 6 /* with the backoff of a few seconds in all */

static void lookup_free(void *call) {
    struct lookup *l = call;
    if (!l) return;
    kc_guid_list_free(l->list);
    kw_free(l->topic);
    kw_free(l->ids);
    kw_free(l->only);
    kw_free(l->parts);
    kw_free(l);
}

/* ---- Requests ---- */

static kw_err metadata_encode(const struct lookup *l, int16_t version, struct kw_arena *arena, struct kw_out *out) {
    struct kw_metadata_request m;
    kw_msg_init(&kw_metadata_request_desc, &m);
    m.allow_auto_topic_creation = false;
    m.topics.v = kw_arena_calloc(arena, 1, sizeof *m.topics.v);
    if (!m.topics.v) return KW_ENOMEM;
    m.topics.v[0].name = kw_str_of(l->topic);
    m.topics.n = 1;
    return kw_encode(&kw_metadata_request_desc, version, &m, out);
}

static kw_err lookup_encode(struct kc_admin *a, int16_t version, struct kw_arena *arena, struct kw_out *out) {
    struct lookup *l = a->call;
    if (a->api == KW_API_METADATA) return metadata_encode(l, version, arena, out);
    struct kw_lookup_guid_request m;
    kw_msg_init(&kw_lookup_guid_request_desc, &m);
    struct kw_lookup_guid_request_topic t = {.name = kw_str_of(l->topic)};
    struct kw_bytes *ids = kw_arena_calloc(arena, l->n + 1, sizeof *ids);
    t.partitions.v = kw_arena_calloc(arena, l->list->part_count + 1, sizeof *t.partitions.v);
    if (!ids || !t.partitions.v) return KW_ENOMEM;
    for (size_t i = 0; i < l->n; i++) ids[i] = (struct kw_bytes){l->ids[i], KC_GUID_SIZE};
    const size_t most = ASKED_MAX / KW_MAX(l->n, (size_t)1);
    for (size_t i = 0; i < l->list->part_count; i++) {
        const kc_guid_partition *p = &l->list->parts[i];
        l->parts[i].asked = l->parts[i].open && p->leader == a->broker && (size_t)t.partitions.n < most;
        if (!l->parts[i].asked) continue;
        struct kw_lookup_guid_request_partition *e = &t.partitions.v[t.partitions.n++];
        *e = (struct kw_lookup_guid_request_partition){.index = p->partition, .current_leader_epoch = p->leader_epoch};
        e->ids.v = ids;
        e->ids.n = (int32_t)l->n;
    }
    m.topics.v = &t;
    m.topics.n = 1;
    m.include_stats = l->stats;
    return kw_encode(&kw_lookup_guid_request_desc, version, &m, out);
}

/* ---- The end ---- */

static int by_guid_and_partition(const void *a, const void *b) {
    const kc_guid_place *x = a, *y = b;
    if (x->guid != y->guid) return x->guid < y->guid ? -1 : 1;
    return x->partition < y->partition ? -1 : x->partition > y->partition;
}

static bool add_place(struct lookup *l, kc_guid_place place) {
    kc_guid_list *list = l->list;
    if (list->count == l->place_cap) {
        size_t cap = KW_MAX(l->place_cap * 2, l->n + 1);
        kc_guid_place *v = kw_realloc(list->places, cap * sizeof *v);
        if (!v) return false;
        list->places = v;
        l->place_cap = cap;
    }
    list->places[list->count++] = place;
    return true;
}

/* All were asked, or given up: KC_OK, unless not one has answered. */
static kc_err finish(struct kc_admin *a, kc_err *why, const char **text) {
    struct lookup *l = a->call;
    kc_guid_list *list = l->list;
    kc_err missing = KC_OK;
    bool any = list->part_count == 0;
    for (size_t i = 0; i < list->part_count; i++) {
        const kc_guid_partition *p = &list->parts[i];
        any = any || p->err == KC_OK;
        if (p->err == KC_OK || missing != KC_OK) continue;
        missing = p->err;
        *text = p->message;
    }
    *why = missing;
    if (!any) return missing;
    size_t found = list->count, at = 0;
    if (found > 1) qsort(list->places, found, sizeof *list->places, by_guid_and_partition);
    for (size_t id = 0; id < l->n; id++) {
        bool known = at < found && list->places[at].guid == id;
        while (at < found && list->places[at].guid == id) at++;
        if (!known && !add_place(l, (kc_guid_place){.guid = id, .partition = -1, .offset = -1, .leader_epoch = -1, .err = missing})) return KC_NO_MEMORY;
    }
    if (list->count > 1) qsort(list->places, list->count, sizeof *list->places, by_guid_and_partition);
    return KC_OK;
}

static void give_up(struct lookup *l, size_t i, kc_err err, const char *text) {
    l->parts[i].open = false;
    l->list->parts[i].err = err;
    l->list->parts[i].message = text ? text : kc_err_text(err);
}

/* Back to metadata for what is open. */
static kc_err look_again(struct kc_admin *a) {
    struct lookup *l = a->call;
    l->looks++;
    a->tries = l->looks - 1; /* each a little later */
    kc_admin_step(a, KW_API_METADATA, ADMIN_METADATA_MIN, KC_BROKER_ANY);
    return ADMIN_AGAIN;
}

/* The next leader to ask. */
static kc_err next(struct kc_admin *a) {
    struct lookup *l = a->call;
    kc_err why = KC_OK;
    const char *text = NULL;
    bool leaderless = false;
    for (size_t i = 0; i < l->list->part_count; i++) {
        const kc_guid_partition *p = &l->list->parts[i];
        if (!l->parts[i].open) continue;
        bool silent = l->parts[i].silent >= 0 && l->parts[i].silent == p->leader; /* it leads still: asking it once more would cost as much again */
        if (silent) {
            give_up(l, i, KC_TIMED_OUT, "its leader does not answer");
        } else if (p->leader >= 0) {
            kc_admin_step(a, KW_API_LOOKUP_GUID, 0, p->leader);
            return ADMIN_NEXT;
        } else {
            leaderless = true;
        }
    }
    if (leaderless && l->looks < LOOKS_MAX) return look_again(a);
    for (size_t i = 0; leaderless && i < l->list->part_count; i++)
        if (l->parts[i].open) give_up(l, i, KE_LEADER_NOT_AVAILABLE, "it has no leader");
    return finish(a, &why, &text);
}

/* ---- Answers ---- */

static int by_number(const void *a, const void *b) {
    int32_t x = ((const kc_guid_partition *)a)->partition, y = ((const kc_guid_partition *)b)->partition;
    return x < y ? -1 : x > y;
}

static kc_guid_partition *part_of(const struct lookup *l, int32_t number) {
    const kc_guid_partition key = {.partition = number};
    return bsearch(&key, l->list->parts, l->list->part_count, sizeof key, by_number);
}

/* The partitions to ask: those that were named, or all. */
static kc_err make_parts(struct lookup *l, const struct kw_metadata_response_topic *t) {
    size_t all = t->partitions.n > 0 ? (size_t)t->partitions.n : 0, count = l->only_count > 0 ? l->only_count : all;
    l->list->parts = kw_calloc(count + 1, sizeof *l->list->parts);
    l->parts = kw_calloc(count + 1, sizeof *l->parts);
    if (!l->list->parts || !l->parts) return KC_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        l->list->parts[i] = (kc_guid_partition){.partition = l->only_count > 0 ? l->only[i] : t->partitions.v[i].partition_index,
                                                .leader = -1,
                                                .leader_epoch = -1,
                                                .high_watermark = -1,
                                                .message = ""};
        l->parts[i] = (struct part){.open = true, .silent = -1};
    }
    qsort(l->list->parts, count, sizeof *l->list->parts, by_number);
    for (size_t i = 0; i < count; i++) /* one that is named, or answered, twice is asked once */
        if (l->list->part_count == 0 || l->list->parts[i].partition != l->list->parts[l->list->part_count - 1].partition)
            l->list->parts[l->list->part_count++] = l->list->parts[i];
    return KC_OK;
}

static kc_err metadata_read(struct kc_admin *a, struct kw_in *body, struct kw_arena *arena, kc_error **error) {
    struct lookup *l = a->call;
    struct kw_metadata_response m;
    kc_err err = kc_admin_decode(a, &kw_metadata_response_desc, body, arena, &m, &m.throttle_time_ms);
    if (err != KC_OK) return err;
    if (m.topics.n != 1) return KC_BAD_MESSAGE;
    const struct kw_metadata_response_topic *t = &m.topics.v[0];
    bool first = !l->parts;
    if (t->error_code != KE_NONE && !first) return next(a); /* that broker does not know it: what was known stays */
    if (t->error_code != KE_NONE) {
        if (t->error_code != KE_UNKNOWN_TOPIC_OR_PARTITION && kc_admin_again(a, t->error_code)) return ADMIN_AGAIN;
        kc_error_make(error, t->error_code, KC_NOT_PERSISTED, a->attempts, "look up ids in topic %s: %s", l->topic, kc_err_text(t->error_code));
        return t->error_code;
    }
    if (first) err = make_parts(l, t);
    if (err != KC_OK) return err;
    for (int32_t i = 0; i < t->partitions.n; i++) {
        kc_guid_partition *p = part_of(l, t->partitions.v[i].partition_index);
        if (!p || t->partitions.v[i].leader_epoch < p->leader_epoch) continue;
        p->leader = t->partitions.v[i].leader_id;
        p->leader_epoch = t->partitions.v[i].leader_epoch;
        if (first && p->leader < 0) p->leader = -1;
    }
    for (size_t i = 0; first && i < l->list->part_count; i++)
        if (l->list->parts[i].partition >= t->partitions.n) give_up(l, i, KE_UNKNOWN_TOPIC_OR_PARTITION, "the topic has no such partition");
    return next(a);
}

static void keep_stats(kc_guid_partition *p, const struct kw_lookup_guid_response_stats *s) {
    p->from = s->from;
    p->end = s->end;
    p->entries = s->entries;
    p->runs = s->runs;
    p->disk_bytes = s->disk_bytes;
    p->memory_bytes = s->memory_bytes;
    p->window_ms = s->window_ms;
    p->finds = s->finds;
    p->run_reads = s->run_reads;
    p->hits = s->hits;
    p->flushes = s->flushes;
    p->merges = s->merges;
    p->forgotten = s->forgotten;
}

/* *again: to be asked of another, or later. */
static kc_err one_partition(struct kc_admin *a, const struct kw_lookup_guid_response_partition_result *r, bool *again) {
    struct lookup *l = a->call;
    kc_guid_partition *p = part_of(l, r->index);
    size_t at = p ? (size_t)(p - l->list->parts) : 0;
    if (!p || !l->parts[at].open || !l->parts[at].asked) return KC_OK;
    if (r->error_code != KE_NONE && l->looks < LOOKS_MAX && kc_admin_again(a, r->error_code)) {
        *again = true;
        return KC_OK;
    }
    if (r->error_code != KE_NONE) {
        char text[256];
        kc_admin_message(text, sizeof text, r->error_message, r->error_code);
        const char *kept = kc_admin_keep_str(&l->list->arena, kw_str_of(text));
        give_up(l, at, r->error_code, kept);
        return KC_OK;
    }
    if (r->ids.n != (int32_t)l->n && !(l->n == 0 && r->ids.n <= 0)) return KC_BAD_MESSAGE;
    l->parts[at].open = false;
    p->high_watermark = r->high_watermark;
    if (r->stats && l->stats) keep_stats(p, r->stats);
    for (int32_t i = 0; i < r->ids.n; i++) {
        int8_t state = r->ids.v[i].state;
        if (state != KC_GUID_FOUND && state != KC_GUID_PENDING) continue;
        if (!add_place(l, (kc_guid_place){.guid = (size_t)i,
                                          .state = state,
                                          .partition = p->partition,
                                          .offset = r->ids.v[i].offset,
                                          .leader_epoch = r->ids.v[i].leader_epoch}))
            return KC_NO_MEMORY;
    }
    return KC_OK;
}

static kc_err guids_read(struct kc_admin *a, struct kw_in *body, struct kw_arena *arena) {
    struct lookup *l = a->call;
    struct kw_lookup_guid_response m;
    kc_err err = kc_admin_decode(a, &kw_lookup_guid_response_desc, body, arena, &m, &m.throttle_time_ms);
    if (err != KC_OK) return err;
    if (m.topics.n != 1) return KC_BAD_MESSAGE;
    bool again = false;
    for (int32_t i = 0; i < m.topics.v[0].partitions.n && err == KC_OK; i++) err = one_partition(a, &m.topics.v[0].partitions.v[i], &again);
    if (err != KC_OK) return err;
    for (size_t i = 0; !again && i < l->list->part_count; i++) /* one that is left out would be asked for ever */
        if (l->parts[i].open && l->parts[i].asked) return KC_BAD_MESSAGE;
    return again ? look_again(a) : next(a);
}

static kc_err lookup_read(struct kc_admin *a, struct kw_in *body, struct kw_arena *arena, kc_error **error) {
    const struct lookup *l = a->call;
    kc_err err = a->api == KW_API_METADATA ? metadata_read(a, body, arena, error) : guids_read(a, body, arena);
    if (err == KC_OK || err == ADMIN_AGAIN || err == ADMIN_NEXT || *error) return err;
    kc_err why = KC_OK;
    const char *text = NULL;
    if (l->list->part_count > 0 && finish(a, &why, &text) == err && text)
        kc_error_make(error, err, KC_NOT_PERSISTED, a->attempts, "look up ids in topic %s: %s", l->topic, text);
    return err;
}

/* One leader that is down must not hide what is known of the others. */
static kc_err lookup_unreachable(struct kc_admin *a, kc_err err) {
    struct lookup *l = a->call;
    if (a->api == KW_API_METADATA) return ADMIN_AGAIN; /* of any broker: the next time of another */
    bool again = err != KC_UNSUPPORTED && l->looks < LOOKS_MAX;
    for (size_t i = 0; i < l->list->part_count; i++) {
        if (!l->parts[i].open || l->list->parts[i].leader != a->broker) continue;
        if (!again) give_up(l, i, err, err == KC_UNSUPPORTED ? "the broker looks no ids up: it has no LookupGuid" : NULL);
        else if (err == KC_TIMED_OUT) l->parts[i].silent = a->broker;
    }
    return again ? look_again(a) : next(a);
}

/* ---- The calls ---- */

static const struct kc_admin_kind lookup_kind = {"look up ids", KW_API_METADATA, ADMIN_METADATA_MIN, KC_BROKER_ANY, lookup_encode, lookup_read,
                                                 NULL, lookup_unreachable, lookup_free};

static struct lookup *lookup_new(const char *topic, const uint8_t *guids, size_t n, const int32_t *partitions, size_t partition_count) {
    struct lookup *l = kw_calloc(1, sizeof *l);
    if (!l) return NULL;
    l->topic = kw_memdup(topic, strlen(topic) + 1);
    l->n = n;
    if (n > 0) l->ids = kw_memdup(guids, n * KC_GUID_SIZE);
    l->only_count = partition_count;
    if (partition_count > 0) l->only = kw_memdup(partitions, partition_count * sizeof *partitions);
    l->list = kw_calloc(1, sizeof *l->list);
    if (l->list) kw_arena_init(&l->list->arena, 0);
    if (l->topic && l->list && (l->ids || n == 0) && (l->only || partition_count == 0)) return l;
    lookup_free(l);
    return NULL;
}

static kc_err make(kc_client *c, const char *topic, const uint8_t *guids, size_t n, const int32_t *partitions, size_t partition_count, bool stats,
                   int64_t timeout_us, uint64_t opaque, kc_op **op, kc_error **error) {
    bool valid = topic && *topic && n <= KC_GUID_LOOKUP_MAX && (guids || n == 0) && (partitions || partition_count == 0) && (n > 0 || stats);
    for (size_t i = 0; valid && i < partition_count; i++) valid = partitions[i] >= 0;
    if (!valid) return kc_admin_invalid(&lookup_kind, error);
    struct lookup *l = lookup_new(topic, guids, n, partitions, partition_count);
    if (l) l->stats = stats;
    kc_err err = kc_admin_make(c, &lookup_kind, l, timeout_us, opaque, op, error);
    if (err == KC_OK) kc_admin_of(*op)->step_us = LOOKUP_STEP_US;
    return err;
}

static kc_err run(kc_op *op, kc_guid_list **out, kc_error **error) {
    kc_err err = kc_op_run(op, KC_FOREVER, error); /* the call keeps its own limit */
    if (err == KC_OK) *out = kc_op_result_guids(op);
    kc_op_free(op);
    return err;
}

kc_err kc_admin_lookup_guids(kc_client *c, const char *topic, const uint8_t *guids, size_t n, const int32_t *partitions, size_t partition_count,
                             int64_t timeout_us, kc_guid_list **out, kc_error **error) {
    kc_op *op = NULL;
    if (!out) return kc_admin_invalid(&lookup_kind, error);
    kc_err err = make(c, topic, guids, n, partitions, partition_count, false, timeout_us, 0, &op, error);
    return err == KC_OK ? run(op, out, error) : err;
}

kc_err kc_admin_lookup_guids_start(kc_client *c, const char *topic, const uint8_t *guids, size_t n, const int32_t *partitions, size_t partition_count,
                                   int64_t timeout_us, uint64_t opaque, kc_op **op, kc_error **error) {
    kc_op *made = NULL;
    if (!op) return kc_admin_invalid(&lookup_kind, error);
    kc_err err = make(c, topic, guids, n, partitions, partition_count, false, timeout_us, opaque, &made, error);
    return kc_admin_begin(err, made, op);
}

kc_err kc_admin_guid_stats(kc_client *c, const char *topic, int64_t timeout_us, kc_guid_list **out, kc_error **error) {
    kc_op *op = NULL;
    if (!out) return kc_admin_invalid(&lookup_kind, error);
    kc_err err = make(c, topic, NULL, 0, NULL, 0, true, timeout_us, 0, &op, error);
    return err == KC_OK ? run(op, out, error) : err;
}

kc_err kc_admin_guid_stats_start(kc_client *c, const char *topic, int64_t timeout_us, uint64_t opaque, kc_op **op, kc_error **error) {
    kc_op *made = NULL;
    if (!op) return kc_admin_invalid(&lookup_kind, error);
    kc_err err = make(c, topic, NULL, 0, NULL, 0, true, timeout_us, opaque, &made, error);
    return kc_admin_begin(err, made, op);
}

kc_guid_list *kc_op_result_guids(kc_op *op) {
    struct lookup *l = kc_admin_done_call(op, &lookup_kind);
    kc_guid_list *list = l && op->err == KC_OK ? l->list : NULL;
    if (list) l->list = NULL;
    return list;
}

size_t kc_guid_list_count(const kc_guid_list *l) {
    return l ? l->count : 0;
}

kc_err kc_guid_list_get(const kc_guid_list *l, size_t index, kc_guid_place *out) {
    if (!l || !out || index >= l->count) return KC_INVALID;
    *out = l->places[index];
    return KC_OK;
}

size_t kc_guid_list_partition_count(const kc_guid_list *l) {
    return l ? l->part_count : 0;
}

kc_err kc_guid_list_partition(const kc_guid_list *l, size_t index, kc_guid_partition *out) {
    if (!l || !out || index >= l->part_count) return KC_INVALID;
    *out = l->parts[index];
    return KC_OK;
}

void kc_guid_list_free(kc_guid_list *l) {
    if (!l) return;
    kw_arena_deinit(&l->arena);
    kw_free(l->parts);
    kw_free(l->places);
    kw_free(l);
}
