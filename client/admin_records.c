/* admin_records.c - kc_admin_delete_records: metadata first, then a request a leader.
 *
 * Loop context, but for the public functions. Calls admin_call.c (sending, retrying).
 */
#include "admin_call.h"

struct delete_records {
    size_t n;
    kc_topic_partition *v;
    bool *settled;
    int32_t *leaders; /* -1: not known, or to be asked for again */
    size_t from;      /* where the next result is looked for first: they come in the order of the request */
};

static void records_free(void *call) {
    struct delete_records *d = call;
    if (!d) return;
    kw_free(d->v);
    kw_free(d->settled);
    kw_free(d->leaders);
    kw_free(d);
}

static struct kw_str record_topic(struct kc_admin *a, const kc_topic_partition *tp) {
    return kw_str_of(kc_client_topic_name(a->op.client, tp->topic));
}

static kw_err leaders_encode(struct kc_admin *a, int16_t version, struct kw_arena *arena, struct kw_out *out) {
    const struct delete_records *d = a->call;
    struct kw_metadata_request m;
    kw_msg_init(&kw_metadata_request_desc, &m);
    m.allow_auto_topic_creation = false;
    m.topics.v = kw_arena_calloc(arena, d->n + 1, sizeof *m.topics.v);
    if (!m.topics.v) return KW_ENOMEM;
    for (size_t i = 0; i < d->n; i++)
        if (i == 0 || d->v[i].topic != d->v[i - 1].topic)
            m.topics.v[m.topics.n++].name = record_topic(a, &d->v[i]);
    return kw_encode(&kw_metadata_request_desc, version, &m, out);
}

static void leaders_note(struct kc_admin *a, const struct kw_metadata_response_topic *t) {
    struct delete_records *d = a->call;
    for (size_t i = 0; i < d->n; i++) {
        kc_topic_partition *tp = &d->v[i];
        if (d->settled[i] || !kw_str_eq(t->name, record_topic(a, tp))) continue;
        d->leaders[i] = -1;
        int16_t code = t->error_code != KE_NONE ? t->error_code : KE_UNKNOWN_TOPIC_OR_PARTITION;
        for (int32_t k = 0; t->error_code == KE_NONE && k < t->partitions.n; k++) { /* mostly they come in order, and it is the first that is looked at */
            const struct kw_metadata_response_partition *p = &t->partitions.v[(tp->partition % t->partitions.n + k) % t->partitions.n];
            if (p->partition_index != tp->partition) continue;
            d->leaders[i] = p->leader_id;
            code = d->leaders[i] < 0 ? KE_LEADER_NOT_AVAILABLE : KE_NONE;
            break;
        }
        if (code == KE_NONE || (code != KE_UNKNOWN_TOPIC_OR_PARTITION && kc_admin_again(a, code))) continue;
        tp->err = code;
        d->settled[i] = true;
    }
}

static kw_err records_encode(struct kc_admin *a, int16_t version, struct kw_arena *arena, struct kw_out *out) {
    const struct delete_records *d = a->call;
    if (a->api == KW_API_METADATA) return leaders_encode(a, version, arena, out);
    struct kw_delete_records_request m;
    kw_msg_init(&kw_delete_records_request_desc, &m);
    m.timeout_ms = kc_admin_time_left_ms(a);
    m.topics.v = kw_arena_calloc(arena, d->n + 1, sizeof *m.topics.v);
    struct kw_delete_records_request_delete_records_partition *parts = kw_arena_calloc(arena, d->n + 1, sizeof *parts);
    if (!m.topics.v || !parts) return KW_ENOMEM;
    for (size_t i = 0; i < d->n; i++) {
        if (d->settled[i] || d->leaders[i] != a->broker) continue;
        parts[i].partition_index = d->v[i].partition;
        parts[i].offset = d->v[i].offset;
        struct kw_delete_records_request_delete_records_topic *e = &m.topics.v[m.topics.n++];
        e->name = record_topic(a, &d->v[i]);
        e->partitions.v = &parts[i];
        e->partitions.n = 1;
    }
    return kw_encode(&kw_delete_records_request_desc, version, &m, out);
}

static void records_result(struct kc_admin *a, struct kw_str topic,
                           const struct kw_delete_records_response_delete_records_partition_result *r) {
    struct delete_records *d = a->call;
    for (size_t k = 0; k < d->n; k++) {
        size_t i = (d->from + k) % d->n;
        kc_topic_partition *tp = &d->v[i];
        if (d->settled[i] || d->leaders[i] != a->broker || tp->partition != r->partition_index || !kw_str_eq(topic, record_topic(a, tp))) continue;
        d->from = i + 1;
        d->leaders[i] = -1; /* asked for again, should it be tried again */
        if (kc_admin_again(a, r->error_code)) return;
        d->settled[i] = true;
        tp->err = r->error_code;
        if (tp->err == KC_OK) tp->offset = r->low_watermark;
        return;
    }
}

static kc_err records_read(struct kc_admin *a, struct kw_in *body, struct kw_arena *arena, kc_error **error) {
    struct delete_records *d = a->call;
    if (a->api == KW_API_METADATA) {
        struct kw_metadata_response m;
        kc_err err = kc_admin_decode(a, &kw_metadata_response_desc, body, arena, &m, &m.throttle_time_ms);
        if (err != KC_OK) return err;
        for (int32_t t = 0; t < m.topics.n; t++) leaders_note(a, &m.topics.v[t]);
    } else {
        struct kw_delete_records_response m;
        kc_err err = kc_admin_decode(a, &kw_delete_records_response_desc, body, arena, &m, &m.throttle_time_ms);
        if (err != KC_OK) return err;
        for (int32_t t = 0; t < m.topics.n; t++)
            for (int32_t i = 0; i < m.topics.v[t].partitions.n; i++) records_result(a, m.topics.v[t].name, &m.topics.v[t].partitions.v[i]);
        for (size_t i = 0; i < d->n; i++) {
            if (d->settled[i] || d->leaders[i] != a->broker) continue;
            d->settled[i] = true; /* asking for what it does not name would not end */
            d->v[i].err = KC_BAD_MESSAGE;
        }
    }
    bool left = false;
    for (size_t i = 0; i < d->n; i++) {
        if (d->settled[i]) continue;
        left = true;
        if (d->leaders[i] < 0) continue;
        kc_admin_step(a, KW_API_DELETE_RECORDS, 0, d->leaders[i]);
        return ADMIN_NEXT;
    }
    if (left) { /* no leader known for the rest: ask again who leads */
        kc_admin_step(a, KW_API_METADATA, ADMIN_METADATA_MIN, KC_BROKER_ANY);
        return ADMIN_AGAIN;
    }
    for (size_t i = 0; i < d->n; i++) {
        const kc_topic_partition *tp = &d->v[i];
        if (tp->err == KC_OK) continue;
        kc_error_make(error, tp->err, KC_NOT_PERSISTED, a->attempts, "delete records of %s [%d]: %s",
                      kc_client_topic_name(a->op.client, tp->topic), (int)tp->partition, kc_err_text(tp->err));
        return tp->err;
    }
    return KC_OK;
}

/* A leader that is gone: perhaps there is another one by now. */
static kc_err records_unreachable(struct kc_admin *a, kc_err err) {
    struct delete_records *d = a->call;
    if (err == KC_UNSUPPORTED) return err;
    if (a->api == KW_API_METADATA) return ADMIN_AGAIN;
    for (size_t i = 0; i < d->n; i++)
        if (d->leaders[i] == a->broker) d->leaders[i] = -1;
    kc_admin_step(a, KW_API_METADATA, ADMIN_METADATA_MIN, KC_BROKER_ANY);
    return ADMIN_AGAIN;
}

static const struct kc_admin_kind records_kind = {"delete records", KW_API_METADATA, ADMIN_METADATA_MIN, KC_BROKER_ANY, records_encode,
                                                  records_read, NULL, records_unreachable, records_free};

static bool records_valid(kc_client *c, const kc_topic_partition *parts, size_t stride, size_t n) {
    if (!c || (n > 0 && (!parts || stride < sizeof *parts))) return false;
    for (size_t i = 0; i < n; i++) {
        const kc_topic_partition *tp = KW_AT(const kc_topic_partition, parts, stride, i);
        if (!kc_client_topic_name(c, tp->topic) || tp->partition < 0 || tp->offset < -1) return false;
    }
    return true;
}

static struct delete_records *records_new(const kc_topic_partition *parts, size_t stride, size_t n) {
    struct delete_records *d = kw_calloc(1, sizeof *d);
    if (!d) return NULL;
    d->n = n;
    d->v = kw_calloc(n + 1, sizeof *d->v);
    d->settled = kw_calloc(n + 1, sizeof *d->settled);
    d->leaders = kw_calloc(n + 1, sizeof *d->leaders);
    if (!d->v || !d->settled || !d->leaders) {
        records_free(d);
        return NULL;
    }
    for (size_t i = 0; i < n; i++) {
        d->v[i] = *KW_AT(const kc_topic_partition, parts, stride, i);
        d->v[i].err = KC_OK;
        d->leaders[i] = -1;
    }
    return d;
}

/* What has no result of its own when the call ends gets the call's. */
static size_t records_results(const struct kc_op *op, kc_topic_partition *out, size_t stride, size_t max) {
    const struct delete_records *d = kc_admin_of(op)->call;
    for (size_t i = 0; i < d->n && i < max; i++) {
        kc_topic_partition *tp = KW_AT(kc_topic_partition, out, stride, i);
        *tp = d->v[i];
        if (!d->settled[i]) tp->err = op->err;
    }
    return d->n;
}

static kc_err records_make(kc_client *c, const kc_topic_partition *parts, size_t stride, size_t n, int64_t timeout_us, uint64_t opaque,
                           kc_op **op, kc_error **error) {
    if (!records_valid(c, parts, stride, n)) return kc_admin_invalid(&records_kind, error);
    kc_err err = kc_admin_make(c, &records_kind, records_new(parts, stride, n), timeout_us, opaque, op, error);
    if (err == KC_OK) (*op)->offsets = records_results;
    return err;
}

kc_err kc_admin_delete_records(kc_client *c, kc_topic_partition *parts, size_t stride, size_t n, int64_t timeout_us, kc_error **error) {
    kc_op *op = NULL;
    kc_err err = records_make(c, parts, stride, n, timeout_us, 0, &op, error);
    if (err != KC_OK) return err;
    err = kc_op_run(op, KC_FOREVER, error);
    if (kc_op_done(op)) (void)records_results(op, parts, stride, n);
    kc_op_free(op);
    return err;
}

kc_err kc_admin_delete_records_start(kc_client *c, const kc_topic_partition *parts, size_t stride, size_t n, int64_t timeout_us,
                                     uint64_t opaque, kc_op **op, kc_error **error) {
    kc_op *made = NULL;
    if (!op) return kc_admin_invalid(&records_kind, error);
    kc_err err = records_make(c, parts, stride, n, timeout_us, opaque, &made, error);
    return kc_admin_begin(err, made, op);
}
