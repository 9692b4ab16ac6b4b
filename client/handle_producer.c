/* handle_producer.c - kc_producer_*: the thread-safe façade of a producer. Called by applications. Calls produce/, handle.h, loop.h.
 *
 * A send is the caller's own work up to the open batch (produce/accum.h). Threads that wait (for room, for an outcome, for reports) run the loop
 * themselves where they can (kc_drive_until).
 */
#include "handle.h"
#include "produce/produce.h"

#include <time.h>

enum { CHUNK = 32, HEADERS_INLINE = 64 };

struct kc_producer {
    kc_client *client;             /* held */
    struct kc_settings *settings;
    struct kc_produce produce;
    _Atomic int32_t refs;          /* the handle's, one for each container of reports and each operation */
    struct kc_post wake_post, init_post, free_post;
    kw_err init_err;
    _Atomic bool init_done, closed; /* closed: every record has its outcome */
    struct kc_ready_source reports_ready, space_ready;
    kc_partitioner_fn partitioner;
    void *partitioner_ctx;
    _Atomic int64_t tick;          /* of the coarse clock when the exact one was last read */
};

/* ---- Life ---- */

static struct kc_now call_clock(void *ctx) {
    (void)ctx;
    return kc_clock_now();
}
static void call_wake(void *ctx) {
    kc_producer *p = ctx;
    kc_client_post(p->client, &p->wake_post);
}
static void call_signal(void *ctx) {
    kc_producer *p = ctx;
    kc_client_signal(p->client);
}
static void call_ready(void *ctx, int32_t kind) {
    kc_producer *p = ctx;
    kc_ready_raise(p->client, kind == KC_READY_SPACE ? &p->space_ready : &p->reports_ready);
}

static void run_wake(struct kc_post *post) { kc_produce_turn(&KW_CONTAINER_OF(post, kc_producer, wake_post)->produce); }

static void run_init(struct kc_post *post) {
    static const struct kc_accum_calls calls = {.clock = call_clock, .wake = call_wake, .signal = call_signal, .ready = call_ready};
    kc_producer *p = KW_CONTAINER_OF(post, kc_producer, init_post);
    p->init_err = kc_produce_init(&p->produce, p->client->core, p->settings, &calls, p);
    atomic_store(&p->init_done, true);
    kc_client_signal(p->client);
}
static bool is_init_done(void *ctx) { return atomic_load(&((kc_producer *)ctx)->init_done); }

static kc_producer *producer_ref(kc_producer *p) {
    atomic_fetch_add(&p->refs, 1);
    return p;
}
static void producer_unref(kc_producer *p) {
    if (atomic_fetch_sub(&p->refs, 1) > 1) return;
    kc_client *c = p->client;
    if (kc_client_is_forked(c)) {
        /* A child has neither the loop nor, perhaps, locks and lists in one piece: its copy of the producer's memory goes with the process. Not so the
         * client's descriptors, which keep the parent's connections open. */
        kc_client_unref(c);
        return;
    }
    kc_produce_deinit(&p->produce);
    kc_settings_free(p->settings);
    kw_free(p);
    kc_client_unref(c);
}

kc_err kc_producer_new(kc_client *c, const kc_config *config, kc_producer **producer, kc_error **error) {
    kc_err err = kc_client_enter(c);
    if (!err && !producer) err = KC_INVALID;
    kc_producer *p = NULL;
    if (!err) {
        p = kw_calloc(1, sizeof *p);
        err = p ? kc_settings_new(c->config, config, &p->settings, error) : KC_NO_MEMORY;
        if (p && err) {
            kw_free(p);
            return err;
        }
    }
    if (err) {
        kc_error_make(error, err, KC_NOT_PERSISTED, NULL, "kc_producer_new: %s", kc_err_text(err));
        return err;
    }
    p->client = kc_client_ref(c);
    atomic_init(&p->refs, 1);
    kc_post_init(&p->wake_post, run_wake);
    kc_post_init(&p->init_post, run_init);
    kc_ready_init(&p->reports_ready, KC_READY_REPORTS, p, p->settings->opaque);
    kc_ready_init(&p->space_ready, KC_READY_SPACE, p, p->settings->opaque);
    (void)kc_drive_until(c, &p->init_post, is_init_done, p, KW_NEVER, NULL);
    if (p->init_err) {
        err = kc_err_from(p->init_err);
        kc_error_make(error, err, KC_NOT_PERSISTED, NULL, "kc_producer_new: %s", kc_err_text(err));
        kc_settings_free(p->settings);
        kw_free(p);
        kc_client_unref(c);
        return err;
    }
    *producer = p;
    return KC_OK;
}

static void on_stopped(struct kc_sender *s) {
    kc_producer *p = KW_CONTAINER_OF(s, kc_producer, produce.sender);
    kc_produce_detach(&p->produce);
    kc_ready_drop(p->client, &p->reports_ready);
    kc_ready_drop(p->client, &p->space_ready);
    producer_unref(p);
}
static void run_free(struct kc_post *post) { kc_produce_stop(&KW_CONTAINER_OF(post, kc_producer, free_post)->produce, on_stopped); }

void kc_producer_free(kc_producer *p) {
    if (!p) return;
    if (kc_client_is_forked(p->client)) {
        producer_unref(p);
        return;
    }
    kc_client *c = kc_client_ref(p->client);
    kc_post_init(&p->free_post, run_free);
    kc_client_post(c, &p->free_post);
    kc_loop_help(c);
    kc_client_unref(c);
}

/* ---- Records in ---- */

static kc_err enter(kc_producer *p) { return p ? kc_client_enter(p->client) : KC_INVALID; }

static kc_err bytes_in(kc_bytes b, struct kw_bytes *out) {
    if (!b.p && b.size > 0) return KC_INVALID;
    if (b.size > INT32_MAX) return KC_TOO_LARGE;
    *out = (struct kw_bytes){b.p, b.p ? (int32_t)b.size : -1};
    return KC_OK;
}

static kc_err place_in(int32_t topic, int32_t partition, uint32_t flags, int64_t timestamp_ms, int64_t timeout_us, uint64_t opaque, struct kc_rec *r) {
    bool given = (flags & KC_HAS_PARTITION) || partition > 0;
    if (topic <= 0 || (given && (partition < 0 || partition > KC_PARTITION_MAX))) return KC_INVALID;
    r->topic = topic;
    r->partition = given ? partition : -1;
    r->flags = flags;
    r->has_timestamp = (flags & KC_HAS_TIMESTAMP) || timestamp_ms != 0;
    r->timestamp_ms = timestamp_ms;
    r->timeout_us = timeout_us;
    r->opaque = opaque;
    r->header_count = 0;
    r->has_hash = r->has_guid = r->reserved = false;
    r->waiter = NULL;
    return KC_OK;
}

/* headers: room for header_count + 1. */
static kc_err record_in(const kc_record *rec, struct kw_header_view *headers, struct kc_rec *r) {
    kc_err err = place_in(rec->topic, rec->partition, rec->flags, rec->timestamp_ms, rec->timeout_us, rec->opaque, r);
    if (!err) err = bytes_in(rec->key, &r->key);
    if (!err) err = bytes_in(rec->value, &r->value);
    if (err) return err;
    r->headers = headers;
    for (uint32_t i = 0; i < rec->header_count; i++) {
        const kc_header *h = &rec->headers[i];
        if (!h->name) return KC_INVALID;
        size_t n = h->name_size ? h->name_size : strlen(h->name);
        if (n > INT32_MAX) return KC_TOO_LARGE;
        headers[i].key = (struct kw_str){h->name, (int32_t)n};
        err = bytes_in(h->value, &headers[i].value);
        if (err) return err;
    }
    r->header_count = rec->header_count;
    if (rec->guid) {
        memcpy(r->guid, rec->guid, KC_GUID_SIZE);
        r->has_guid = true;
    }
    return KC_OK;
}

/* The exact clocks are read once a tick (1 to 4 ms) of the coarse one, which costs a quarter of them; and whenever a batch is opened. */
static const struct kc_now *tick_now(kc_producer *p, struct kc_now *now) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
    int64_t tick = (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
    if (tick == atomic_load_explicit(&p->tick, memory_order_relaxed)) return NULL;
    atomic_store_explicit(&p->tick, tick, memory_order_relaxed);
    *now = kc_clock_now();
    return now;
}

static kc_err learn_topic(kc_producer *p, int32_t topic) {
    if (!kc_client_topic_name(p->client, topic)) return KC_INVALID;
    return kc_accum_add_topic(&p->produce.accum, topic);
}

struct counting {
    kc_producer *p;
    int32_t topic;
};
static bool count_known(void *ctx) {
    struct counting *w = ctx;
    struct kc_accum *a = &w->p->produce.accum;
    return kc_accum_partition_count(a, w->topic) > 0 || kc_accum_is_over(a);
}

/* The application's own partitioner, in the sending thread. It needs the count: until that is known the send waits. */
static kc_err ask_partitioner(kc_producer *p, struct kc_rec *r, int64_t deadline_us) {
    int32_t count = kc_accum_partition_count(&p->produce.accum, r->topic);
    if (count < 0) {
        kc_err err = learn_topic(p, r->topic);
        if (err) return err;
        count = 0;
    }
    if (count == 0) {
        struct counting w = {p, r->topic};
        kc_err err = kc_drive_until(p->client, &p->wake_post, count_known, &w, deadline_us, NULL);
        if (err) return err;
        count = kc_accum_partition_count(&p->produce.accum, r->topic);
        if (count <= 0) return KC_CLOSED;
    }
    kc_callback_enter();
    int32_t index = p->partitioner(p->partitioner_ctx, r->topic, r->key.p, (size_t)KW_MAX(r->key.len, 0), r->key.len >= 0, count);
    kc_callback_leave();
    if (index >= count || index < -1) return KC_INVALID;
    r->partition = index;
    return KC_OK;
}

struct space {
    struct kc_accum *a;
    struct kc_space_waiter waiter;
};
static bool has_space(void *ctx) {
    struct space *w = ctx;
    return kc_accum_wait_over(w->a, &w->waiter);
}

/* Puts a prepared record, waiting for room. Posts the wake-up of the sender, unless *wake is given: then the caller drives. */
static kc_err put(kc_producer *p, struct kc_rec *r, const struct kc_now *now, bool urgent, int64_t deadline_us, bool *wake_out) {
    struct kc_accum *a = &p->produce.accum;
    for (;;) {
        bool wake = false;
        kc_err err = kc_accum_put(a, r, now, urgent, &wake);
        if (wake && wake_out) *wake_out = true;
        else if (wake) kc_client_post_soon(p->client, &p->wake_post);
        if (KW_LIKELY(!err)) return KC_OK;
        if (err == KC_INVALID) { /* it does not know the topic; another thread may have told it by now */
            err = learn_topic(p, r->topic);
            if (err) return err;
            continue;
        }
        if (err != KC_QUEUE_FULL) return err;
        if (deadline_us == INT64_MIN) {
            kc_ready_rearm(p->client, &p->space_ready);
            kc_accum_arm_space(a);
            return err;
        }
        struct space w = {.a = a};
        wake = false;
        kc_accum_wait_add(a, &w.waiter, r, &wake);
        kc_err waited = kc_drive_until(p->client, wake ? &p->wake_post : NULL, has_space, &w, deadline_us, NULL);
        r->reserved = atomic_load(&w.waiter.granted);
        if (!r->reserved) {
            kc_accum_wait_remove(a, &w.waiter); /* which gives a place back that was granted just now */
            if (waited) {
                kc_ready_rearm(p->client, &p->space_ready);
                kc_accum_arm_space(a);
                return KC_QUEUE_FULL;
            }
        }
    }
}

static int64_t deadline_of(int64_t timeout_us) { return timeout_us == 0 ? INT64_MIN : kc_deadline_after(timeout_us); }

static kc_err send_prepared(kc_producer *p, struct kc_rec *r, int64_t timeout_us) {
    struct kc_now now;
    kc_err err = kc_accum_prepare(&p->produce.accum, r);
    if (err) return err;
    if (p->partitioner && r->partition < 0) {
        err = ask_partitioner(p, r, timeout_us == 0 ? kc_clock_now().mono_us : kc_deadline_after(timeout_us));
        if (err) return err;
    }
    return put(p, r, tick_now(p, &now), false, deadline_of(timeout_us), NULL);
}

/* Room for the views of a record's headers and its id: the stack's, or of kw_malloc. */
static struct kw_header_view *header_room(uint32_t count, struct kw_header_view *inl) {
    if (KW_LIKELY(count < HEADERS_INLINE)) return inl;
    return kw_malloc(((size_t)count + 1) * sizeof *inl);
}

kc_err kc_producer_send(kc_producer *p, const kc_record *record, int64_t timeout_us) {
    kc_err err = enter(p);
    if (err) return err;
    if (!record || (record->header_count && !record->headers)) return KC_INVALID;
    struct kw_header_view inl[HEADERS_INLINE], *headers = header_room(record->header_count, inl);
    if (!headers) return KC_NO_MEMORY;
    struct kc_rec r;
    err = record_in(record, headers, &r);
    if (!err) err = send_prepared(p, &r, timeout_us);
    if (headers != inl) kw_free(headers);
    return err;
}

/* ---- Many ---- */

/* Turns the i-th record of the caller's array into *r; *headers_left: views that are left. KC_QUEUE_FULL: not enough of those for this one. */
struct source {
    const uint8_t *at;
    size_t stride, size; /* from one to the next; of one, at least */
    const uint8_t *arena;
    size_t arena_size;
    kc_err (*read)(const struct source *src, const void *rec, struct kw_header_view *headers, size_t headers_left, struct kc_rec *r);
};

static kc_err read_record(const struct source *src, const void *rec, struct kw_header_view *headers, size_t headers_left, struct kc_rec *r) {
    (void)src;
    kc_record one;
    memcpy(&one, rec, sizeof one);
    if (one.header_count && !one.headers) return KC_INVALID;
    if (one.header_count >= headers_left) return KC_QUEUE_FULL;
    return record_in(&one, headers, r);
}

static bool within(const struct source *src, uint64_t at, uint64_t size) { return at <= src->arena_size && size <= src->arena_size - at; }

static kc_err flat_bytes(const struct source *src, uint64_t at, int32_t size, struct kw_bytes *out) {
    if (size < -1) return KC_INVALID;
    if (size < 0) {
        *out = (struct kw_bytes){NULL, -1};
        return KC_OK;
    }
    if (!within(src, at, (uint64_t)size)) return KC_INVALID;
    *out = (struct kw_bytes){src->arena + at, size};
    return KC_OK;
}

static kc_err flat_headers(const struct source *src, const kc_flat *f, struct kw_header_view *headers) {
    uint64_t at = f->headers_at;
    for (uint32_t i = 0; i < f->header_count; i++) {
        int32_t size[2];
        struct kw_bytes name;
        if (!within(src, at, sizeof size)) return KC_INVALID;
        memcpy(size, src->arena + at, sizeof size);
        at += sizeof size;
        if (size[0] < 0 || flat_bytes(src, at, size[0], &name)) return KC_INVALID;
        at += (uint64_t)size[0];
        headers[i].key = (struct kw_str){(const char *)name.p, name.len};
        if (flat_bytes(src, at, size[1], &headers[i].value)) return KC_INVALID;
        at += (uint64_t)KW_MAX(size[1], 0);
    }
    return KC_OK;
}

static kc_err read_flat(const struct source *src, const void *rec, struct kw_header_view *headers, size_t headers_left, struct kc_rec *r) {
    kc_flat f;
    memcpy(&f, rec, sizeof f);
    if (f.header_count > src->arena_size / 8) return KC_INVALID; /* each takes 8 bytes at least */
    if (f.header_count >= headers_left) return KC_QUEUE_FULL;
    kc_err err = place_in(f.topic, f.partition, f.flags, f.timestamp_ms, f.timeout_us, f.opaque, r);
    if (!err) err = flat_bytes(src, f.key_at, f.key_size, &r->key);
    if (!err) err = flat_bytes(src, f.value_at, f.value_size, &r->value);
    if (!err) err = flat_headers(src, &f, headers);
    if (err) return err;
    r->headers = headers;
    r->header_count = f.header_count;
    if (f.guid_at) {
        if (!within(src, f.guid_at - 1, KC_GUID_SIZE)) return KC_INVALID;
        memcpy(r->guid, src->arena + f.guid_at - 1, KC_GUID_SIZE);
        r->has_guid = true;
    }
    return KC_OK;
}

/* One whose headers do not fit the stack. */
static kc_err send_big(kc_producer *p, const struct source *src, const void *rec, int64_t timeout_us) {
    uint32_t n = src->read == read_flat ? ((const kc_flat *)rec)->header_count : ((const kc_record *)rec)->header_count;
    size_t count = (size_t)n + 2; /* one for an id, and the readers want one to spare */
    struct kw_header_view *headers = kw_malloc(count * sizeof *headers);
    struct kc_rec r;
    kc_err err = headers ? src->read(src, rec, headers, count, &r) : KC_NO_MEMORY;
    if (!err) err = send_prepared(p, &r, timeout_us);
    kw_free(headers);
    return err;
}

/* Takes the chunk under one hold of the lock; what the lock's holder could not take goes one by one, which waits or says why not. */
static size_t put_chunk(kc_producer *p, struct kc_rec *recs, size_t n, int64_t deadline_us, kc_err *err) {
    struct kc_now now;
    bool wake = false;
    size_t done = kc_accum_put_many(&p->produce.accum, recs, n, tick_now(p, &now), &wake, err);
    if (wake) kc_client_post_soon(p->client, &p->wake_post);
    while (done < n) {
        *err = put(p, &recs[done], NULL, false, deadline_us, NULL);
        if (*err) break;
        done++;
        wake = false;
        done += kc_accum_put_many(&p->produce.accum, recs + done, n - done, NULL, &wake, err);
        if (wake) kc_client_post_soon(p->client, &p->wake_post);
    }
    return done;
}

static size_t send_all(kc_producer *p, const struct source *src, size_t n, int64_t timeout_us, kc_err *err) {
    struct kc_rec recs[CHUNK];
    struct kw_header_view views[HEADERS_INLINE];
    int64_t deadline_us = deadline_of(timeout_us);
    size_t done = 0;
    while (done < n) {
        size_t k = 0, used = 0;
        kc_err stop = KC_OK;
        for (; k < CHUNK && done + k < n; k++) {
            const void *rec = src->at + (done + k) * src->stride;
            stop = src->read(src, rec, views + used, HEADERS_INLINE - used, &recs[k]);
            if (!stop) stop = kc_accum_prepare(&p->produce.accum, &recs[k]);
            if (!stop && p->partitioner && recs[k].partition < 0)
                stop = ask_partitioner(p, &recs[k], timeout_us == 0 ? kc_clock_now().mono_us : deadline_us);
            if (stop) break;
            used += recs[k].header_count;
        }
        size_t taken = k ? put_chunk(p, recs, k, deadline_us, err) : 0;
        done += taken;
        if (taken < k) return done; /* *err says why */
        if (stop == KC_QUEUE_FULL && k == 0) { /* no room for its headers even alone */
            *err = send_big(p, src, src->at + done * src->stride, timeout_us);
            if (*err) return done;
            done++;
        } else if (stop && stop != KC_QUEUE_FULL) {
            *err = stop;
            return done;
        }
    }
    *err = KC_OK;
    return done;
}

static size_t send_source(kc_producer *p, const struct source *src, size_t n, int64_t timeout_us, kc_err *err) {
    kc_err ignored;
    if (!err) err = &ignored;
    *err = enter(p);
    if (!*err && n > 0 && (!src->at || src->stride < src->size)) *err = KC_INVALID;
    return *err ? 0 : send_all(p, src, n, timeout_us, err);
}

size_t kc_producer_send_many(kc_producer *p, const kc_record *records, size_t stride, size_t n, int64_t timeout_us, kc_err *err) {
    const struct source src = {.at = (const uint8_t *)records, .stride = stride ? stride : sizeof *records, .size = sizeof *records, .read = read_record};
    return send_source(p, &src, n, timeout_us, err);
}

size_t kc_producer_send_flat(kc_producer *p, const kc_flat *records, size_t stride, size_t n, const void *arena, size_t arena_size, int64_t timeout_us,
                             kc_err *err) {
    const struct source src = {.at = (const uint8_t *)records,
                               .stride = stride ? stride : sizeof *records,
                               .size = sizeof *records,
                               .arena = arena ? arena : (const uint8_t *)"",
                               .arena_size = arena ? arena_size : 0,
                               .read = read_flat};
    return send_source(p, &src, n, timeout_us, err);
}

/* ---- One, with its outcome ---- */

static bool has_outcome(void *ctx) { return atomic_load(&((struct kc_report_waiter *)ctx)->done); }

kc_err kc_producer_send_wait(kc_producer *p, const kc_record *record, kc_report *report, kc_error **error) {
    kc_err err = enter(p);
    if (!err && (!record || (record->header_count && !record->headers))) err = KC_INVALID;
    struct kw_header_view inl[HEADERS_INLINE], *headers = err ? NULL : header_room(record->header_count, inl);
    struct kc_report_waiter w = {.opaque = err ? 0 : record->opaque};
    struct kc_rec r;
    bool wake = false;
    if (!err && !headers) err = KC_NO_MEMORY;
    if (!err) err = record_in(record, headers, &r);
    if (!err) err = kc_accum_prepare(&p->produce.accum, &r);
    int64_t deadline_us = err ? 0 : kc_deadline_after(r.timeout_us);
    if (!err && p->partitioner && r.partition < 0) err = ask_partitioner(p, &r, deadline_us);
    if (!err) {
        struct kc_now now = kc_clock_now();
        r.waiter = &w;
        err = put(p, &r, &now, true, deadline_us, &wake);
    }
    if (headers != inl) kw_free(headers);
    if (err) {
        kc_error_make(error, err, KC_NOT_PERSISTED, NULL, "the record was not accepted: %s", kc_err_text(err));
        return err;
    }
    /* Its own deadline ends it; whatever else happens to the producer gives it an outcome too. */
    while (kc_drive_until(p->client, wake ? &p->wake_post : NULL, has_outcome, &w, KW_NEVER, NULL) != KC_OK) {
    }
    if (report) *report = w.report;
    if (error && w.error) *error = w.error;
    else kc_error_free(w.error);
    return w.report.err;
}

/* ---- Reports out ---- */

static bool has_reports(void *ctx) {
    kc_producer *p = ctx;
    return atomic_load(&p->closed) || kc_reports_waiting(&p->produce.accum) || kc_accum_is_ended(&p->produce.accum);
}

kc_err kc_producer_reports(kc_producer *p, kc_reports **reports, int64_t timeout_us) {
    kc_err err = enter(p);
    if (err && err != KC_CLOSED) return err; /* after a close they can still be taken */
    if (!reports) return KC_INVALID;
    int64_t deadline_us = timeout_us == 0 ? 0 : kc_deadline_after(timeout_us);
    for (;;) {
        bool closed = atomic_load(&p->closed) || kc_accum_is_ended(&p->produce.accum);
        kc_ready_rearm(p->client, &p->reports_ready); /* before looking: what comes later raises it again */
        err = kc_reports_collect(&p->produce.accum, p, reports);
        if (!err) {
            producer_ref(p);
            return KC_OK;
        }
        if (err == KC_NO_MEMORY) kc_ready_raise(p->client, &p->reports_ready); /* they are still there */
        if (err != KC_TIMED_OUT) return err;
        if (closed) return KC_CLOSED;
        if (timeout_us == 0) return KC_TIMED_OUT;
        err = kc_drive_until(p->client, NULL, has_reports, p, deadline_us, NULL);
        if (err) return err;
    }
}

void kc_reports_free(kc_reports *r) {
    if (!r) return;
    kc_producer *p = r->owner;
    if (!kc_client_is_forked(p->client)) kc_reports_give_back(r);
    producer_unref(p);
}

/* ---- Operations ---- */

struct flushing;
struct producer_op {
    struct kc_op op;
    kc_producer *p;             /* held */
    struct flushing *flushing;  /* not started yet, or under way */
    int64_t deadline_us;        /* of a close */
    int32_t what;               /* to purge */
};
struct flushing {               /* outlives an operation that was cancelled */
    struct kc_flush flush;
    struct producer_op *op;     /* NULL: nobody waits */
};

static void op_deinit(struct kc_op *op) { producer_unref(((struct producer_op *)op)->p); }

static kc_err op_new(kc_producer *p, uint64_t opaque, void (*start)(struct kc_op *), void (*cancel)(struct kc_op *), struct producer_op **out,
                     kc_error **error) {
    struct kc_op *op;
    kc_err err = enter(p);
    if (err) kc_error_make(error, err, KC_NOT_PERSISTED, NULL, "%s", kc_err_text(err));
    else err = kc_op_new(p->client, sizeof **out, opaque, start, cancel, op_deinit, &op, error);
    if (err) return err;
    *out = (struct producer_op *)op;
    (*out)->p = producer_ref(p);
    return KC_OK;
}

static kc_err run_and_free(struct producer_op *o, int64_t timeout_us, kc_error **error) {
    kc_err err = kc_op_run(&o->op, timeout_us, error);
    if (err == KC_TIMED_OUT) kc_op_cancel(&o->op);
    kc_op_free(&o->op);
    return err;
}

static void flush_done(struct kc_flush *f) {
    struct flushing *fl = KW_CONTAINER_OF(f, struct flushing, flush);
    struct producer_op *o = fl->op;
    kw_free(fl);
    if (!o) return;
    o->flushing = NULL;
    kc_op_complete(&o->op, KC_OK, NULL);
}
static void flush_start(struct kc_op *op) {
    struct producer_op *o = (struct producer_op *)op;
    o->flushing->op = o;
    o->flushing->flush.done = flush_done;
    kc_produce_flush(&o->p->produce, &o->flushing->flush);
}
static void flush_cancel(struct kc_op *op) {
    struct producer_op *o = (struct producer_op *)op;
    if (o->flushing) o->flushing->op = NULL; /* the records are on their way all the same */
    o->flushing = NULL;
    kc_op_complete(op, KC_CANCELLED, NULL);
}

static kc_err flush_new(kc_producer *p, uint64_t opaque, struct producer_op **out, kc_error **error) {
    struct flushing *fl = kw_calloc(1, sizeof *fl);
    kc_err err = fl ? op_new(p, opaque, flush_start, flush_cancel, out, error) : KC_NO_MEMORY;
    if (!fl) kc_error_make(error, err, KC_NOT_PERSISTED, NULL, "%s", kc_err_text(err));
    if (err) kw_free(fl);
    else (*out)->flushing = fl;
    return err;
}

kc_err kc_producer_flush_start(kc_producer *p, uint64_t opaque, kc_op **op, kc_error **error) {
    struct producer_op *o;
    kc_err err = op ? flush_new(p, opaque, &o, error) : KC_INVALID;
    if (err) return err;
    *op = &o->op;
    kc_op_start(&o->op);
    return KC_OK;
}

kc_err kc_producer_flush(kc_producer *p, int64_t timeout_us, kc_error **error) {
    struct producer_op *o;
    kc_err err = flush_new(p, 0, &o, error);
    return err ? err : run_and_free(o, timeout_us, error);
}

static void purge_start(struct kc_op *op) {
    struct producer_op *o = (struct producer_op *)op;
    kc_produce_purge(&o->p->produce, o->what);
    kc_op_complete(op, KC_OK, NULL);
}

kc_err kc_producer_purge(kc_producer *p, int32_t what) {
    struct producer_op *o;
    if (what & ~(KC_PURGE_QUEUED | KC_PURGE_IN_FLIGHT)) return KC_INVALID;
    kc_err err = op_new(p, 0, purge_start, NULL, &o, NULL);
    if (err) return err;
    o->what = what;
    return run_and_free(o, KC_FOREVER, NULL);
}

static void close_done(struct kc_produce *produce, void *ctx, kc_err err) {
    kc_producer *p = KW_CONTAINER_OF(produce, kc_producer, produce);
    struct producer_op *o = ctx;
    kc_error *e = NULL;
    atomic_store(&p->closed, true);
    kc_ready_raise(p->client, &p->reports_ready); /* there is something to learn: that no more will come */
    if (err) kc_error_make(&e, err, KC_MAYBE_PERSISTED, NULL, "kc_producer_close: records without an answer were failed, their reports say which");
    kc_op_complete(&o->op, err, e);
}
static void close_start(struct kc_op *op) {
    struct producer_op *o = (struct producer_op *)op;
    kc_err err = kc_produce_close(&o->p->produce, o->deadline_us, close_done, o);
    kc_error *e = NULL;
    if (!err) return;
    kc_error_make(&e, err, KC_NOT_PERSISTED, NULL, "%s", err == KC_BUSY ? "an earlier close of this producer is still under way" : kc_err_text(err));
    kc_op_complete(op, err, e);
}

static kc_err close_new(kc_producer *p, int64_t timeout_us, uint64_t opaque, struct producer_op **out, kc_error **error) {
    if (p && atomic_load(&p->closed)) {
        kc_error_make(error, KC_CLOSED, KC_NOT_PERSISTED, NULL, "%s", kc_err_text(KC_CLOSED));
        return KC_CLOSED;
    }
    kc_err err = op_new(p, opaque, close_start, NULL, out, error);
    if (!err) (*out)->deadline_us = kc_deadline_after(timeout_us);
    return err;
}

kc_err kc_producer_close_start(kc_producer *p, int64_t timeout_us, uint64_t opaque, kc_op **op, kc_error **error) {
    struct producer_op *o;
    kc_err err = op ? close_new(p, timeout_us, opaque, &o, error) : KC_INVALID;
    if (err) return err;
    *op = &o->op;
    kc_op_start(&o->op);
    return KC_OK;
}

kc_err kc_producer_close(kc_producer *p, int64_t timeout_us, kc_error **error) {
    struct producer_op *o;
    kc_err err = close_new(p, timeout_us, 0, &o, error);
    return err ? err : run_and_free(o, KC_FOREVER, error); /* the close keeps the limit itself: what is left then fails at once */
}

/* ---- The rest ---- */

kc_err kc_producer_stats_get(kc_producer *p, kc_producer_stats *out, size_t size) {
    if (!p || !out) return KC_INVALID;
    if (kc_client_is_forked(p->client)) return KC_FORKED;
    struct kc_accum *a = &p->produce.accum;
    kc_lock_take(&a->lock);
    kc_producer_stats s = a->stats;
    s.queued_records = (uint64_t)a->records;
    s.queued_bytes = (uint64_t)a->bytes;
    kc_lock_give(&a->lock);
    memcpy(out, &s, KW_MIN(size, sizeof s));
    return KC_OK;
}

kc_error *kc_producer_fatal(kc_producer *p) {
    if (!p || kc_client_is_forked(p->client)) return NULL;
    struct kc_accum *a = &p->produce.accum;
    kc_lock_take(&a->lock);
    kc_error *e = p->produce.sender.fatal ? kc_error_dup(p->produce.sender.fatal) : NULL;
    kc_lock_give(&a->lock);
    return e;
}

kc_err kc_producer_partitioner_set(kc_producer *p, kc_partitioner_fn fn, void *ctx) {
    kc_err err = enter(p);
    if (err) return err;
    p->partitioner = fn;
    p->partitioner_ctx = ctx;
    return KC_OK;
}

kc_err kc_producer_guid_make(kc_producer *p, uint8_t guid[16]) {
    kc_err err = enter(p);
    if (!err && !guid) err = KC_INVALID;
    if (err) return err;
    struct kc_accum *a = &p->produce.accum;
    int64_t wall_ms = kc_clock_now().wall_ms;
    kc_lock_take(&a->lock);
    kc_guid_next(&a->guid, &a->rng, wall_ms, guid);
    kc_lock_give(&a->lock);
    return KC_OK;
}
