/* fault_answer.c - reads requests and makes error answers for any API, by the schemas alone. Called by fault.c. Calls wire/codec, image
 * (topic ids).
 *
 * An error answer that nothing was done for mirrors the request: what was asked for by topic and partition is answered by topic and
 * partition, each with the error. For APIs whose answer does not mirror the request (Metadata, ApiVersions …) the API runs and its errors
 * are set.
 */
#include "fault_priv.h"
#include "kw_messages.h"

/* ---- Does the request name this topic, this partition? ---- */

static bool is(const struct kw_field *f, const char *a, const char *b, const char *c) {
    return strcmp(f->name, a) == 0 || (b && strcmp(f->name, b) == 0) || (c && strcmp(f->name, c) == 0);
}

static const uint8_t *at(const void *msg, const struct kw_field *f) {
    return (const uint8_t *)msg + f->offset;
}

enum named { NOT_NAMED, NAMED_OTHER, NAMED_IT };

static enum named topic_of(struct kb_request *rq, const struct kw_desc *d, const void *s, const char *topic) {
    enum named n = NOT_NAMED;
    for (size_t i = 0; i < d->field_count; i++) {
        const struct kw_field *f = &d->fields[i];
        struct kw_str name = kw_str_null();
        if (f->type == KW_T_STRING && is(f, "topic", "name", "topicName")) {
            memcpy(&name, at(s, f), sizeof(name));
        } else if (f->type == KW_T_UUID && is(f, "topicId", NULL, NULL)) {
            struct kw_uuid id;
            memcpy(&id, at(s, f), sizeof(id));
            const struct kb_image_topic *t = kw_uuid_is_zero(id) ? NULL : kb_image_topic_by_id(&rq->node->image, id);
            if (t) name = kw_str_of(t->name);
        }
        if (name.len > 0) n = !topic || kw_str_eq(name, kw_str_of(topic)) ? NAMED_IT : n == NAMED_IT ? n : NAMED_OTHER;
    }
    return n;
}

static bool partition_in(const struct kw_desc *d, const void *s, int32_t partition) {
    for (size_t i = 0; i < d->field_count; i++) {
        const struct kw_field *f = &d->fields[i];
        int32_t v;
        if (f->type == KW_T_I32 && is(f, "partition", "partitionIndex", "index")) {
            memcpy(&v, at(s, f), sizeof(v));
            if (v == partition) return true;
        }
        if (f->type != KW_T_ARRAY) continue;
        struct kw_array a;
        memcpy(&a, at(s, f), sizeof(a));
        for (int32_t j = 0; j < a.n; j++) {
            if (f->desc && partition_in(f->desc, (uint8_t *)a.v + (size_t)j * f->desc->size, partition)) return true;
            if (!f->desc && f->elem == KW_T_I32 && ((int32_t *)a.v)[j] == partition) return true;
        }
    }
    return false;
}

static bool names(struct kb_request *rq, const struct kw_desc *d, const void *s, const char *topic, int32_t partition) {
    enum named n = topic_of(rq, d, s, topic);
    if (n == NAMED_OTHER) return false;
    if (n == NAMED_IT) return partition < 0 || partition_in(d, s, partition);
    for (size_t i = 0; i < d->field_count; i++) {
        const struct kw_field *f = &d->fields[i];
        if (f->type != KW_T_ARRAY) continue;
        struct kw_array a;
        memcpy(&a, at(s, f), sizeof(a));
        for (int32_t j = 0; j < a.n; j++)
            if (f->desc && names(rq, f->desc, (uint8_t *)a.v + (size_t)j * f->desc->size, topic, partition)) return true;
    }
    return false;
}

static void *decode_copy(struct kb_request *rq) {
    const struct kw_desc *d = rq->head.api->request;
    struct kw_in in = rq->body;
    void *msg = kw_arena_calloc(&rq->arena, 1, d->size);
    rq->arena.budget = rq->arena.used + 64 * rq->frame_size + 4096;
    kw_err err = msg ? kw_decode(d, rq->head.version, &in, &rq->arena, msg) : KW_ENOMEM;
    rq->arena.budget = 0;
    return err == KW_OK ? msg : NULL; /* malformed: the API says so itself */
}

/* Small requests are many, and most name others: their bytes say so sooner than a decoder. false: these stand nowhere in it. */
static bool may_have(const struct kb_request *rq, const void *bytes, size_t n) {
    enum { SMALL = 4096 };
    const uint8_t *p = rq->body.p, *end = rq->body.end, *b = bytes;
    if ((size_t)(end - p) > SMALL || n == 0) return true;
    for (; (size_t)(end - p) >= n && (p = memchr(p, b[0], (size_t)(end - p) - n + 1)); p++) /* memmem prepares for longer searches */
        if (memcmp(p, b, n) == 0) return true;
    return false;
}

static bool may_name(struct kb_request *rq, const char *topic) {
    if (may_have(rq, topic, strlen(topic))) return true;
    const struct kb_image_topic *t = kb_image_topic(&rq->node->image, kw_str_of(topic));
    return t && may_have(rq, &t->id, sizeof(t->id));
}

bool kb_fault_names(struct kb_request *rq, const char *topic, int32_t partition) {
    if (rq->head_err != KW_OK || (topic && !may_name(rq, topic))) return false;
    const void *msg = decode_copy(rq);
    return msg && names(rq, rq->head.api->request, msg, topic, partition);
}

/* Wherever it stands: of one group, of several, of those whose coordinator is looked for. */
static bool names_group(const struct kw_desc *d, const void *s, struct kw_str group, bool keys) {
    for (size_t i = 0; i < d->field_count; i++) {
        const struct kw_field *f = &d->fields[i];
        if (f->type == KW_T_STRING && (is(f, "groupId", NULL, NULL) || (keys && is(f, "key", NULL, NULL)))) {
            struct kw_str id;
            memcpy(&id, at(s, f), sizeof(id));
            if (kw_str_eq(id, group)) return true;
        }
        if (f->type != KW_T_ARRAY) continue;
        bool ids = f->elem == KW_T_STRING && (is(f, "groups", "groupsNames", NULL) || (keys && is(f, "coordinatorKeys", NULL, NULL)));
        struct kw_array a;
        memcpy(&a, at(s, f), sizeof(a));
        for (int32_t j = 0; j < a.n; j++) {
            if (f->desc && names_group(f->desc, (uint8_t *)a.v + (size_t)j * f->desc->size, group, false)) return true;
            if (ids && kw_str_eq(((struct kw_str *)a.v)[j], group)) return true;
        }
    }
    return false;
}

bool kb_fault_is_of_group(struct kb_request *rq, const char *group) {
    if (rq->head_err != KW_OK || !may_have(rq, group, strlen(group))) return false;
    const void *msg = decode_copy(rq);
    bool keys = rq->head.api_key == KW_API_FIND_COORDINATOR && msg && ((const struct kw_find_coordinator_request *)msg)->key_type == 0;
    return msg && names_group(rq->head.api->request, msg, kw_str_of(group), keys);
}

bool kb_fault_has_no_answer(struct kb_request *rq) {
    if (rq->head_err != KW_OK || rq->head.api_key != KW_API_PRODUCE) return false;
    const struct kw_produce_request *m = decode_copy(rq);
    return m && m->acks == 0;
}

/* ---- Errors into an answer ---- */

static void clear_records(const struct kw_field *f, void *msg) {
    struct kw_records none = {NULL, 0, NULL};
    memcpy((uint8_t *)msg + f->offset, &none, sizeof(none));
}

/* Every place gets it, but the top only where there is none below: there it would be an error of the whole answer. */
static bool set_errors(const struct kw_desc *d, int16_t version, void *msg, int16_t code, const char *text, bool top) {
    bool below = false;
    for (size_t i = 0; i < d->field_count; i++) {
        const struct kw_field *f = &d->fields[i];
        if (f->type == KW_T_RECORDS) clear_records(f, msg);
        if (f->type != KW_T_ARRAY || !f->desc) continue;
        struct kw_array a;
        memcpy(&a, at(msg, f), sizeof(a));
        for (int32_t j = 0; j < a.n; j++)
            below = set_errors(f->desc, version, (uint8_t *)a.v + (size_t)j * f->desc->size, code, text, false) || below;
    }
    bool here = false;
    for (size_t i = 0; i < d->field_count && !(top && below); i++) {
        const struct kw_field *f = &d->fields[i];
        int64_t none = -1;
        struct kw_str why = kw_str_of(text);
        if (version < f->min || version > f->max) continue;
        if (f->type == KW_T_I16 && is(f, "errorCode", NULL, NULL)) {
            memcpy((uint8_t *)msg + f->offset, &code, sizeof(code));
            here = true;
        } else if (f->type == KW_T_I64 && is(f, "baseOffset", "lowWatermark", NULL)) {
            memcpy((uint8_t *)msg + f->offset, &none, sizeof(none));
        } else if (text && f->type == KW_T_STRING && is(f, "errorMessage", NULL, NULL)) {
            memcpy((uint8_t *)msg + f->offset, &why, sizeof(why));
        }
    }
    return below || here;
}

void kb_fault_set_error(struct kb_request *rq, void *msg, int16_t code) {
    (void)set_errors(rq->head.api->response, rq->head.version, msg, code, NULL, true);
}

void kb_fault_set_throttle(const struct kw_desc *d, void *msg, int32_t ms) {
    for (size_t i = 0; i < d->field_count; i++)
        if (d->fields[i].type == KW_T_I32 && is(&d->fields[i], "throttleTimeMs", NULL, NULL))
            memcpy((uint8_t *)msg + d->fields[i].offset, &ms, sizeof(ms));
}

/* ---- An answer that mirrors its request ---- */

static bool same_meaning(const struct kw_field *a, const struct kw_field *b) {
    static const char *const alike[][3] = {{"topic", "name", "topicName"}, {"partition", "partitionIndex", "index"}};
    if (a->type != b->type) return false;
    if (strcmp(a->name, b->name) == 0) return true;
    for (size_t i = 0; i < KW_COUNTOF(alike); i++)
        if (is(a, alike[i][0], alike[i][1], alike[i][2]) && is(b, alike[i][0], alike[i][1], alike[i][2])) return true;
    return false;
}

static size_t scalar_size(uint8_t type) {
    switch (type) {
    case KW_T_BOOL:
    case KW_T_I8:
        return 1;
    case KW_T_I16:
        return 2;
    case KW_T_I32:
        return 4;
    case KW_T_UUID:
        return sizeof(struct kw_uuid);
    case KW_T_STRING:
        return sizeof(struct kw_str);
    default:
        return 0;
    }
}

struct mirroring {
    struct kw_arena *arena;
    int16_t version;
};
static bool has(const struct mirroring *m, const struct kw_field *f) {
    return m->version >= f->min && m->version <= f->max;
}
static kw_err mirror(const struct mirroring *m, const struct kw_desc *from, const void *req, const struct kw_desc *to, void *resp);

/* The request's array that an answer's array of structs mirrors: its first one that holds anything, by structs or plain numbers and names.
 */
static const struct kw_field *source_of(const struct kw_desc *from, const void *req) {
    for (size_t i = 0; i < from->field_count; i++) {
        const struct kw_field *f = &from->fields[i];
        struct kw_array a;
        if (f->type != KW_T_ARRAY) continue;
        memcpy(&a, at(req, f), sizeof(a));
        if (a.n > 0) return f;
    }
    return NULL;
}

static void put_plain(const struct mirroring *m, const struct kw_field *src, const void *elem, const struct kw_desc *to, void *resp) {
    size_t size = scalar_size(src->elem);
    for (size_t i = 0; size && i < to->field_count; i++)
        if (to->fields[i].type == src->elem && has(m, &to->fields[i]) && !is(&to->fields[i], "errorCode", "throttleTimeMs", "errorMessage")) {
            memcpy((uint8_t *)resp + to->fields[i].offset, elem, size);
            return;
        }
}

static kw_err mirror_array(const struct mirroring *m, const struct kw_field *src, const void *req, const struct kw_field *dst, void *resp) {
    struct kw_array in, out;
    memcpy(&in, at(req, src), sizeof(in));
    out.n = in.n;
    out.v = kw_arena_calloc(m->arena, (size_t)in.n, dst->desc->size);
    if (!out.v) return KW_ENOMEM;
    size_t in_size = src->desc ? src->desc->size : scalar_size(src->elem);
    for (int32_t i = 0; i < in.n; i++) {
        const uint8_t *elem = (const uint8_t *)in.v + (size_t)i * in_size;
        uint8_t *made = (uint8_t *)out.v + (size_t)i * dst->desc->size;
        kw_msg_init(dst->desc, made);
        kw_err err = KW_OK;
        if (src->desc)
            err = mirror(m, src->desc, elem, dst->desc, made);
        else
            put_plain(m, src, elem, dst->desc, made);
        if (err != KW_OK) return err;
    }
    memcpy((uint8_t *)resp + dst->offset, &out, sizeof(out));
    return KW_OK;
}

static kw_err mirror(const struct mirroring *m, const struct kw_desc *from, const void *req, const struct kw_desc *to, void *resp) {
    bool array_done = false;
    for (size_t i = 0; i < to->field_count; i++) {
        const struct kw_field *dst = &to->fields[i];
        if (!has(m, dst)) continue;
        if (dst->type == KW_T_ARRAY && dst->desc && dst->tag < 0 && !array_done) {
            const struct kw_field *src = source_of(from, req);
            kw_err err = src ? mirror_array(m, src, req, dst, resp) : KW_OK;
            if (err != KW_OK) return err;
            array_done = true;
            continue;
        }
        for (size_t j = 0; scalar_size(dst->type) && j < from->field_count; j++)
            if (same_meaning(dst, &from->fields[j]))
                memcpy((uint8_t *)resp + dst->offset, at(req, &from->fields[j]), scalar_size(dst->type));
    }
    return KW_OK;
}

static bool mirrors(int16_t key) {
    switch (key) {
    case KW_API_METADATA:
    case KW_API_API_VERSIONS:
    case KW_API_DESCRIBE_CLUSTER:
    case KW_API_DESCRIBE_TOPIC_PARTITIONS:
    case KW_API_DESCRIBE_LOG_DIRS:
        return false;
    default:
        return true;
    }
}

bool kb_fault_mirror(struct kb_request *rq, int16_t code, const char *text) {
    const struct kw_desc *d = rq->head.api->response;
    const void *req = decode_copy(rq);
    void *resp = req ? kw_arena_calloc(&rq->arena, 1, d->size) : NULL;
    if (!resp) return false;
    kw_msg_init(d, resp);
    if (mirror(&(struct mirroring){&rq->arena, rq->head.version}, rq->head.api->request, req, d, resp) != KW_OK) return false;
    (void)set_errors(d, rq->head.version, resp, code, text, true);
    kb_request_reply(rq, resp);
    return true;
}

void kb_fault_refuse(struct kb_request *rq, int16_t code) {
    const struct kw_desc *d = rq->head_err == KW_OK ? rq->head.api->response : NULL;
    const void *req = d && mirrors(rq->head.api_key) ? decode_copy(rq) : NULL;
    void *resp = req ? kw_arena_calloc(&rq->arena, 1, d->size) : NULL;
    if (!resp) { /* it runs, and its answer gets the error */
        rq->abandon = NULL;
        rq->fault->in_answer = false;
        rq->fault->forced = true;
        kb_dispatch_run(rq);
        return;
    }
    kw_msg_init(d, resp);
    bool of_session =
        code == KE_FETCH_SESSION_ID_NOT_FOUND || code == KE_INVALID_FETCH_SESSION_EPOCH || code == KE_FETCH_SESSION_TOPIC_ID_ERROR;
    if (!of_session && mirror(&(struct mirroring){&rq->arena, rq->head.version}, rq->head.api->request, req, d, resp) != KW_OK) {
        kb_request_close(rq, "out of memory");
        return;
    }
    kb_fault_set_error(rq, resp, code);
    kb_request_reply(rq, resp);
}
