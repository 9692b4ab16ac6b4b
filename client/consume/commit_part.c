/* commit_part.c - what is processed of each partition, and so may be committed. Any thread, under the consumer's lock.
 *
 * BY_POLL: all that poll has gone past: the position, less the event that is in the application's hands. EXPLICIT: what the application said; and
 * where it said so of all that was delivered, also what came behind without a record to deliver (CC-03).
 *
 * Called by handle_consumer.c, handle_commit.c, part.c, fetched.c; by commit_auto.c in loop context.
 */
#include "commit_priv.h"

void kc_hand_drop(struct kc_consume *c) {
    struct kc_part *p = c->hand.part;
    c->hand.part = NULL;
    if (p) kc_part_unref(p);
}

void kc_consume_passed(struct kc_consume *c) {
    if (!c->commits) return;
    kc_lock_take(&c->lock);
    kc_hand_drop(c);
    if (c->one.part) atomic_store_explicit(&c->one.passed, atomic_load_explicit(&c->one.next, memory_order_relaxed), memory_order_relaxed);
    kc_lock_give(&c->lock);
}

void kc_part_anew(struct kc_part *p, int64_t begun_at) {
    struct kc_consume *c = p->consume;
    if (c->hand.part == p) kc_hand_drop(c); /* not the last reference: the caller has one */
    p->begun_at = begun_at;
    p->processed = p->delivered = p->submitted = p->asked = p->acked = -1;
    p->processed_epoch = -1;
    p->era++;
}

/* Mode BY_POLL. */
static int64_t gone_past(const struct kc_part *p, int32_t *epoch) {
    const struct kc_one *one = &p->consume->one;
    if (one->part == p) {
        int64_t passed = atomic_load_explicit(&one->passed, memory_order_relaxed);
        *epoch = passed == one->from ? one->epoch_before : one->e->leader_epoch;
        return passed;
    }
    if (p->consume->hand.part == p) {
        *epoch = p->consume->hand.epoch;
        return p->consume->hand.from;
    }
    *epoch = p->kept ? p->kept->leader_epoch : p->position_epoch;
    return kc_part_position(p);
}

static int64_t said(const struct kc_part *p, int32_t *epoch) {
    int64_t position = kc_part_position(p), delivered = p->consume->one.part == p ? position : p->delivered;
    *epoch = p->processed_epoch;
    if (p->processed < 0 || delivered < 0 || p->processed < delivered || position < p->processed) return p->processed;
    *epoch = p->kept ? p->kept->leader_epoch : p->position_epoch;
    return position;
}

int64_t kc_part_processed(const struct kc_part *p, int32_t *epoch) {
    if (p->held && p->given) return -1; /* its ASSIGNED is not acknowledged: the application may still say where it begins */
    if (p->consume->explicit_processed) return said(p, epoch);
    int64_t offset = gone_past(p, epoch);
    return p->begun_at == KC_BEGUN_UNKNOWN || offset <= p->begun_at ? -1 : offset;
}

bool kc_part_to_commit(const struct kc_part *p, int64_t processed) {
    return processed >= 0 && processed != p->submitted && processed > p->asked;
}

void kc_part_leave(struct kc_part *p) {
    struct kc_commits *m = p->consume->commits;
    int32_t epoch;
    if (!m || !m->settings->auto_commit) return;
    int64_t offset = kc_part_processed(p, &epoch);
    if (!kc_part_to_commit(p, offset)) return;
    p->submitted = p->asked = p->left_at = offset;
    p->left_epoch = epoch;
    if (!kw_list_empty(&p->leave_link)) return;
    kc_part_ref(p);
    kw_list_push(&m->leaving, &p->leave_link);
    atomic_store(&m->left, true);
    p->consume->kick(p->consume->ctx);
}

void kc_consume_processed(struct kc_consume *c, kc_topic_partition *parts, size_t stride, size_t n, bool may) {
    kc_lock_take(&c->lock);
    for (size_t i = 0; i < n; i++) {
        kc_topic_partition *tp = KW_AT(kc_topic_partition, parts, stride, i);
        struct kc_part *p = kc_part_find(c, tp->topic, tp->partition);
        tp->err = !may ? KC_INVALID : !p ? KC_NOT_ASSIGNED : tp->offset < 0 || tp->offset > kc_part_position(p) ? KC_INVALID : KC_OK;
        if (tp->err != KC_OK || tp->offset <= p->processed || tp->offset <= p->begun_at) continue;
        p->processed = tp->offset;
        p->processed_epoch = tp->leader_epoch > 0 ? tp->leader_epoch : -1;
    }
    kc_lock_give(&c->lock);
}

void kc_commits_stamp(struct kc_commits *m, struct kc_commit_item *items, size_t count) {
    struct kc_consume *c = m->consume;
    int32_t epoch;
    kc_lock_take(&c->lock);
    for (size_t i = 0; i < count; i++) {
        struct kc_part *p = kc_part_find(c, items[i].at.topic, items[i].at.partition);
        items[i].epoch = items[i].at.leader_epoch > 0 ? items[i].at.leader_epoch : -1;
        items[i].assignment = p ? p->assignment : 0;
        if (!p) continue;
        items[i].era = p->era;
        p->submitted = kc_part_processed(p, &epoch); /* automatic commits do not undo it: they wait for progress beyond it */
        p->asked = items[i].at.offset;
    }
    kc_lock_give(&c->lock);
}

static bool to_gather(struct kc_part *p, int64_t *offset, int32_t *epoch) {
    if (!p->assigned) return false;
    *offset = kc_part_processed(p, epoch);
    return *offset > p->acked;
}

kc_err kc_commits_gather(struct kc_commits *m, struct kc_commit_item **items, size_t *count) {
    struct kc_consume *c = m->consume;
    struct kc_commit_item *made = NULL;
    size_t n = 0, at = 0;
    int64_t offset;
    int32_t epoch;
    kc_err err = KC_OK;
    kc_lock_take(&c->lock);
    for (struct kw_list *it = c->parts.next; it != &c->parts; it = it->next)
        n += to_gather(KW_CONTAINER_OF(it, struct kc_part, link), &offset, &epoch);
    if (n > 0 && !(made = kw_calloc(n, sizeof *made))) err = KC_NO_MEMORY;
    for (struct kw_list *it = c->parts.next; it != &c->parts && made; it = it->next) {
        struct kc_part *p = KW_CONTAINER_OF(it, struct kc_part, link);
        if (!to_gather(p, &offset, &epoch) || at == n) continue;
        made[at++] = (struct kc_commit_item){
            .at = {.topic = p->topic, .partition = p->partition, .offset = offset, .leader_epoch = epoch},
            .epoch = epoch,
            .assignment = p->assignment,
            .era = p->era,
        };
        p->submitted = p->asked = offset;
    }
    kc_lock_give(&c->lock);
    if (err != KC_OK) return err;
    *items = made;
    *count = at;
    return KC_OK;
}
