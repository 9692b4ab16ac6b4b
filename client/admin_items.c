/* admin_items.c - see admin_items.h. Loop context, but for making, running and results. */
#include "admin_items.h"

#include <stdio.h>
#include <stdlib.h>

static uint8_t *item_at(const struct items *it, size_t i) {
    return (uint8_t *)it->v + it->shape->size * i;
}
static const char *item_name(const struct items *it, size_t i) {
    const char *name;
    memcpy(&name, item_at(it, i) + it->shape->name_at, sizeof name);
    return name;
}
static kc_err *item_err(const struct items *it, size_t i) {
    return (kc_err *)(void *)(item_at(it, i) + it->shape->err_at);
}
static char *item_message(const struct items *it, size_t i) {
    return (char *)item_at(it, i) + it->shape->message_at;
}
enum { MESSAGE_SIZE = sizeof(((kc_admin_item *)0)->message) };

/* ---- Copies ---- */

static char *keep(struct kw_arena *a, const char *s) {
    return kw_arena_dup(a, s, strlen(s) + 1);
}

bool kc_items_dup_pairs(struct items *it, const kc_config_pair **pairs, size_t count) {
    if (count == 0) return true;
    kc_config_pair *v = kw_arena_dup(&it->arena, *pairs, count * sizeof *v);
    for (size_t i = 0; v && i < count; i++) {
        if (v[i].name && !(v[i].name = keep(&it->arena, v[i].name))) return false;
        if (v[i].value && !(v[i].value = keep(&it->arena, v[i].value))) return false;
    }
    *pairs = v;
    return v != NULL;
}

static kc_err copy_items(struct items *it, const void *v, size_t stride) {
    const struct shape *shape = it->shape;
    for (size_t i = 0; i < it->n; i++) {
        uint8_t *item = item_at(it, i);
        const char *name;
        memcpy(item, (const uint8_t *)v + stride * i, shape->size);
        memcpy(&name, item + shape->name_at, sizeof name);
        if (!name || (shape->valid && !shape->valid(item))) return KC_INVALID;
        name = keep(&it->arena, name);
        memcpy(item + shape->name_at, &name, sizeof name);
        if (!name || (shape->copy && !shape->copy(it, item))) return KC_NO_MEMORY;
        *item_err(it, i) = KC_OK;
        item_message(it, i)[0] = 0;
    }
    return KC_OK;
}

struct items *kc_items_new(const void *v, size_t stride, size_t n, const struct shape *shape, int32_t flag, kc_err *err) {
    *err = n > 0 && (!v || stride < shape->size) ? KC_INVALID : KC_NO_MEMORY;
    struct items *it = *err == KC_INVALID ? NULL : kw_calloc(1, sizeof *it);
    if (!it) return NULL;
    *it = (struct items){.shape = shape, .n = n, .flag = flag};
    kw_arena_init(&it->arena, 0);
    it->v = kw_arena_calloc(&it->arena, n + 1, shape->size);
    it->marks = kw_arena_calloc(&it->arena, n + 1, sizeof *it->marks);
    if (it->v && it->marks) *err = copy_items(it, v, stride);
    if (*err == KC_OK) return it;
    kc_items_free(it);
    return NULL;
}

void kc_items_free(void *call) {
    struct items *it = call;
    if (!it) return;
    if (it->more_free) it->more_free(it->more);
    kw_arena_deinit(&it->arena);
    kw_free(it);
}

/* ---- Answers ---- */

void kc_items_settle(const struct items *it, size_t i, kc_err err, struct kw_str text) {
    it->marks[i].state = ITEM_SETTLED;
    *item_err(it, i) = err;
    kc_admin_message(item_message(it, i), MESSAGE_SIZE, text, (int16_t)(err == KC_BAD_MESSAGE ? KE_NONE : err));
}

void kc_items_unsure(struct kc_admin *a) {
    const struct items *it = a->call;
    for (size_t i = 0; i < it->n && a->api == a->kind->api; i++)
        if (it->marks[i].state == ITEM_OPEN) it->marks[i].unsure = true;
}

static int32_t item_resource(const struct items *it, size_t i) {
    int32_t resource = 0;
    if (it->shape->resource_at >= 0) memcpy(&resource, item_at(it, i) + it->shape->resource_at, sizeof resource);
    return resource;
}

/* By name, then number; of two for one item the one that came first. */
static int by_item(const void *a, const void *b) {
    const struct result *x = a, *y = b;
    int names = kc_admin_name_order(x->name, y->name);
    if (names != 0) return names;
    if (x->resource != y->resource) return x->resource < y->resource ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* r: in order. */
static const struct result *result_of(const struct items *it, size_t i, const struct result *r, size_t count) {
    const struct result key = {.resource = item_resource(it, i), .name = kw_str_of(item_name(it, i))}; /* at: before any */
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (by_item(&r[middle], &key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && r[low].resource == key.resource && kw_str_eq(r[low].name, key.name) ? &r[low] : NULL;
}

void kc_items_sort(struct result *r, size_t count) {
    for (size_t k = 0; k < count; k++) r[k].at = k;
    qsort(r, count, sizeof *r, by_item); /* there may be a hundred thousand, in any order */
}

bool kc_items_take_one(struct kc_admin *a, size_t i, const struct result *results, size_t count) {
    const struct items *it = a->call;
    const struct result *r = result_of(it, i, results, count);
    const struct shape *shape = it->shape;
    struct item_mark *mark = &it->marks[i];
    if (!r) {
        kc_items_settle(it, i, KC_BAD_MESSAGE, kw_str_of("the answer does not name it"));
        return false;
    }
    bool done_before = mark->unsure && shape->done_code != KE_NONE && r->code == shape->done_code;
    if (done_before && !shape->verified) {
        kc_items_settle(it, i, KC_OK, kw_str_null());
        return false;
    }
    if (kc_admin_leaves_open(r->code)) mark->unsure = true;
    bool final = (shape->unknown_is_final && r->code == KE_UNKNOWN_TOPIC_OR_PARTITION) || (shape->final && shape->final(r->code));
    if (!done_before && !final && kc_admin_again(a, r->code)) return true;
    kc_items_settle(it, i, r->code, r->text);
    if (done_before) mark->state = ITEM_VERIFY;
    return false;
}

/* Another step, or the end: the first error. */
kc_err kc_items_end(struct kc_admin *a, kc_error **error) {
    const struct items *it = a->call;
    for (size_t i = 0; i < it->n; i++) {
        if (it->marks[i].state != ITEM_VERIFY) continue;
        kc_admin_step(a, KW_API_METADATA, ADMIN_METADATA_MIN, KC_BROKER_ANY);
        return ADMIN_NEXT;
    }
    for (size_t i = 0; i < it->n; i++) {
        kc_err err = *item_err(it, i);
        if (err == KC_OK || err == it->shape->quiet_code) continue;
        char number[16] = "";
        if (it->shape->partitioned) snprintf(number, sizeof number, " [%d]", (int)item_resource(it, i));
        kc_error_make(error, err, kc_admin_leaves_open((int16_t)err) ? KC_MAYBE_PERSISTED : KC_NOT_PERSISTED, a->attempts, "%s %s%s%s: %s",
                      it->shape->verb, item_name(it, i), number, it->about ? it->about : "", item_message(it, i));
        return err;
    }
    return KC_OK;
}

kc_err kc_items_take(struct kc_admin *a, struct result *r, size_t count, kc_error **error) {
    const struct items *it = a->call;
    bool again = false;
    kc_items_sort(r, count);
    for (size_t i = 0; i < it->n; i++)
        if (it->marks[i].state == ITEM_OPEN && kc_items_take_one(a, i, r, count)) again = true;
    return again ? ADMIN_AGAIN : kc_items_end(a, error);
}

/* ---- Whether an earlier try did it ---- */

kw_err kc_items_verify_encode(struct kc_admin *a, int16_t version, struct kw_arena *arena, struct kw_out *out) {
    const struct items *it = a->call;
    struct kw_metadata_request m;
    kw_msg_init(&kw_metadata_request_desc, &m);
    m.allow_auto_topic_creation = false;
    m.topics.v = kw_arena_calloc(arena, it->n + 1, sizeof *m.topics.v);
    if (!m.topics.v) return KW_ENOMEM;
    for (size_t i = 0; i < it->n; i++)
        if (it->marks[i].state == ITEM_VERIFY) m.topics.v[m.topics.n++].name = kw_str_of(item_name(it, i));
    return kw_encode(&kw_metadata_request_desc, version, &m, out);
}

kc_err kc_items_verify_read(struct kc_admin *a, struct kw_in *body, struct kw_arena *arena, kc_error **error,
                            int32_t (*shows)(const void *item, const struct kw_metadata_response_topic *t)) {
    const struct items *it = a->call;
    struct kw_metadata_response m;
    kc_err err = kc_admin_decode(a, &kw_metadata_response_desc, body, arena, &m, &m.throttle_time_ms);
    if (err != KC_OK) return err;
    bool again = false;
    int32_t from = 0; /* topics come in much the order in which they were asked for */
    for (size_t i = 0; i < it->n; i++) {
        if (it->marks[i].state != ITEM_VERIFY) continue;
        int32_t shown = -1; /* the broker that was asked may not have heard of it yet */
        for (int32_t k = 0; k < m.topics.n; k++) {
            const struct kw_metadata_response_topic *t = &m.topics.v[(from + k) % m.topics.n];
            if (!kw_str_eq(t->name, kw_str_of(item_name(it, i)))) continue;
            if (t->partitions.n > 0) shown = shows(item_at(it, i), t);
            from = (from + k + 1) % m.topics.n;
            break;
        }
        if (shown < 0) {
            again = true;
            continue;
        }
        if (shown > 0)
            kc_items_settle(it, i, KC_OK, kw_str_null());
        else
            it->marks[i].state = ITEM_SETTLED; /* with the error that it has */
    }
    return again ? ADMIN_AGAIN : kc_items_end(a, error);
}

/* ---- Results ---- */

/* What has no result of its own when the call ends gets the call's. */
static void outcome(const struct kc_op *op, const struct items *it, size_t i, kc_err *err, const char **message) {
    bool own = it->marks[i].state != ITEM_OPEN || op->err == KC_OK;
    *err = own ? *item_err(it, i) : op->err;
    *message = own ? item_message(it, i) : kc_err_text(op->err);
}

void kc_items_give(const kc_op *op, const struct items *it, void *v, size_t stride, size_t n) {
    for (size_t i = 0; op && i < n; i++) { /* n: the caller's; where it gave none they are made of the answer */
        uint8_t *item = (uint8_t *)v + stride * i;
        const char *message;
        kc_err own;
        outcome(op, it, i, &own, &message);
        memcpy(item + it->shape->err_at, &own, sizeof own);
        kc_admin_message((char *)item + it->shape->message_at, MESSAGE_SIZE, kw_str_of(message), KE_NONE);
    }
}

kc_err kc_items_call(kc_client *c, const struct kc_admin_kind *kind, const struct shape *shape, int32_t flag, void *v, size_t stride, size_t n,
                     int64_t timeout_us, kc_error **error) {
    kc_op *op = NULL;
    kc_err err;
    struct items *it = kc_items_new(v, stride, n, shape, flag, &err);
    if (err == KC_INVALID) return kc_admin_invalid(kind, error);
    err = kc_admin_run(c, kind, it, timeout_us, &op, error);
    kc_items_give(op, it, v, stride, n);
    kc_op_free(op);
    return err;
}

kc_err kc_items_start(kc_client *c, const struct kc_admin_kind *kind, const struct shape *shape, int32_t flag, const void *v, size_t stride,
                      size_t n, int64_t timeout_us, uint64_t opaque, kc_op **op, kc_error **error) {
    kc_err err = KC_INVALID;
    struct items *it = op ? kc_items_new(v, stride, n, shape, flag, &err) : NULL;
    if (err == KC_INVALID) return kc_admin_invalid(kind, error);
    kc_op *made = NULL;
    err = kc_admin_make(c, kind, it, timeout_us, opaque, &made, error);
    return kc_admin_begin(err, made, op);
}

size_t kc_op_result_items(const kc_op *op, kc_admin_result *out, size_t stride, size_t max) {
    if (max > 0 && (!out || stride < sizeof *out)) return 0;
    const struct items *it = kc_admin_done_freed_by(op, kc_items_free);
    for (size_t i = 0; it && i < it->n && i < max; i++) {
        kc_admin_result *r = KW_AT(kc_admin_result, out, stride, i);
        *r = (kc_admin_result){.name = item_name(it, i), .partition = it->shape->partitioned ? item_resource(it, i) : -1};
        outcome(op, it, i, &r->err, &r->message);
    }
    return it ? it->n : 0;
}
