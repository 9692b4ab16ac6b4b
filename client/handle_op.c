/* handle_op.c - kc_op: a slow call that runs by itself. Made by admin.c and the roles; waited for, cancelled and freed by applications. */
#include "handle.h"

#include <kclient/consumer.h>

static void on_start(struct kc_post *post) {
    struct kc_op *op = KW_CONTAINER_OF(post, struct kc_op, start_post);
    if (!atomic_load(&op->done)) op->start(op);
}

static void op_unref(struct kc_op *op) {
    if (atomic_fetch_sub_explicit(&op->refs, 1, memory_order_acq_rel) != 1) return;
    kc_client *c = op->client;
    if (op->deinit) op->deinit(op);
    kc_error_free(op->error);
    kw_free(op);
    kc_client_unref(c);
}

static void on_cancel(struct kc_post *post) {
    struct kc_op *op = KW_CONTAINER_OF(post, struct kc_op, cancel_post);
    if (!atomic_load(&op->done) && op->cancel) op->cancel(op);
    op_unref(op);
}

kc_err kc_op_new(kc_client *c, size_t size, uint64_t opaque, void (*start)(struct kc_op *), void (*cancel)(struct kc_op *),
                 void (*deinit)(struct kc_op *), struct kc_op **out, kc_error **error) {
    KW_ASSERT(size >= sizeof(struct kc_op));
    struct kc_op *op = kw_calloc(1, size);
    if (!op) {
        kc_error_make(error, KC_NO_MEMORY, KC_NOT_PERSISTED, NULL, "out of memory");
        return KC_NO_MEMORY;
    }
    op->client = kc_client_ref(c);
    atomic_init(&op->refs, 2);
    op->opaque = opaque;
    op->start = start;
    op->cancel = cancel;
    op->deinit = deinit;
    kc_ready_init(&op->ready, KC_READY_OP, op, opaque);
    kc_post_init(&op->start_post, on_start);
    kc_post_init(&op->cancel_post, on_cancel);
    *out = op;
    return KC_OK;
}

void kc_op_start(struct kc_op *op) {
    kc_client_post(op->client, &op->start_post);
}

static bool is_done(void *ctx) {
    return atomic_load(&((struct kc_op *)ctx)->done);
}

static kc_err result(struct kc_op *op, kc_err waited, kc_error **error) {
    if (waited != KC_OK) {
        kc_error_make(error, waited, KC_MAYBE_PERSISTED, NULL, "the operation is still under way: wait again, or cancel it");
        return waited;
    }
    if (op->err != KC_OK && error) *error = op->error ? kc_error_dup(op->error) : NULL;
    if (op->err != KC_OK && !op->error) kc_error_make(error, op->err, KC_NOT_PERSISTED, NULL, "%s", kc_err_text(op->err));
    return op->err;
}

kc_err kc_op_run(struct kc_op *op, int64_t timeout_us, kc_error **error) {
    op->quiet = true;
    return result(op, kc_drive_until(op->client, &op->start_post, is_done, op, kc_deadline_after(timeout_us), NULL), error);
}

void kc_op_complete(struct kc_op *op, kc_err err, kc_error *error) {
    KW_ASSERT(!atomic_load(&op->done));
    op->err = err;
    op->error = error;
    atomic_store(&op->done, true);
    if (!op->quiet) kc_ready_raise(op->client, &op->ready);
    kc_client_signal(op->client);
    op_unref(op);
}

/* ---- Public ---- */

kc_err kc_op_wait(kc_op *op, int64_t timeout_us, kc_error **error) {
    if (!op) return KC_INVALID;
    if (kc_client_is_forked(op->client)) return KC_FORKED;
    if (kc_client_enter(op->client) == KC_REENTRANT) return KC_REENTRANT;
    return result(op, kc_drive_until(op->client, NULL, is_done, op, kc_deadline_after(timeout_us), NULL), error);
}

size_t kc_op_result_offsets(const kc_op *op, kc_topic_partition *out, size_t stride, size_t max) {
    if (!op || !op->offsets || !kc_op_done(op) || (max > 0 && (!out || stride < sizeof *out))) return 0;
    return op->offsets(op, out, stride, max);
}

int32_t kc_op_done(const kc_op *op) {
    return op && atomic_load(&op->done);
}
uint64_t kc_op_opaque(const kc_op *op) {
    return op ? op->opaque : 0;
}

void kc_op_cancel(kc_op *op) {
    if (!op || kc_client_is_forked(op->client) || atomic_load(&op->done)) return;
    if (atomic_exchange(&op->cancel_asked, true)) return;
    atomic_fetch_add(&op->refs, 1);
    kc_client_post(op->client, &op->cancel_post);
    kc_loop_help(op->client);
}

void kc_op_free(kc_op *op) {
    if (!op) return;
    if (kc_client_is_forked(op->client)) {
        atomic_store(&op->refs, 1); /* loop context is in the parent */
        op_unref(op);
        return;
    }
    kc_ready_drop(op->client, &op->ready);
    kc_client *c = kc_client_ref(op->client);
    op_unref(op);
    kc_loop_help(c);
    kc_client_unref(c);
}
