/* commit_auto.c - automatic commits: at their interval, of partitions that are given up, before a membership goes on. Loop context.
 *
 * Called by commit.c, and as kc_commits_drain by group*.c and handle_consumer.c. Calls commit_part.c for what is processed.
 */
#include "commit_priv.h"

static void on_interval(struct kw_timer *t, void *ctx, int64_t now_us) {
    struct kc_commits *m = ctx;
    (void)t;
    (void)now_us;
    kc_commits_auto_run(m);
    kc_commits_look(m); /* which sets the timer anew */
}

void kc_commits_auto_init(struct kc_commits *m) {
    kw_timer_init(&m->auto_timer, on_interval, m);
}

void kc_commits_auto_start(struct kc_commits *m) {
    if (!m->settings->auto_commit || kw_timer_armed(&m->auto_timer)) return;
    kc_core_arm(m->core, &m->auto_timer, kc_core_now(m->core).mono_us + m->settings->auto_commit_interval_us);
}

/* Under the lock. */
static bool put(struct kc_commits *m, const struct kc_part *p, int64_t offset, int32_t epoch) {
    struct kc_value v = {.topic = p->topic, .partition = p->partition, .offset = offset, .epoch = epoch, .assignment = p->assignment, .era = p->era};
    if (kc_slot_put(m, &v, NULL) == KC_OK) return true;
    m->short_of_memory = true;
    return false;
}

void kc_commits_leave_run(struct kc_commits *m) {
    struct kc_consume *c = m->consume;
    kc_lock_take(&c->lock);
    if (!kw_list_empty(&m->leaving)) m->orders++;
    while (!kw_list_empty(&m->leaving)) {
        struct kc_part *p = KW_CONTAINER_OF(m->leaving.next, struct kc_part, leave_link);
        if (!put(m, p, p->left_at, p->left_epoch)) break; /* soon again */
        kw_list_remove(&p->leave_link);
        kc_part_unref(p);
    }
    kc_lock_give(&c->lock);
}

void kc_commits_auto_run(struct kc_commits *m) {
    struct kc_consume *c = m->consume;
    int32_t epoch;
    if (m->stopped || m->closed || (m->managed && !m->somebody)) return;
    kc_lock_take(&c->lock);
    m->orders++;
    for (struct kw_list *it = c->parts.next; it != &c->parts; it = it->next) {
        struct kc_part *p = KW_CONTAINER_OF(it, struct kc_part, link);
        if (!p->assigned) continue;
        int64_t offset = kc_part_processed(p, &epoch);
        if (!kc_part_to_commit(p, offset)) continue;
        if (!put(m, p, offset, epoch)) break; /* at the next interval */
        p->submitted = p->asked = offset;
    }
    kc_lock_give(&c->lock);
}

/* Whether the error is the partition's own. */
static bool is_partition_error(kc_err err) {
    return err == KE_TOPIC_AUTHORIZATION_FAILED || err == KE_UNKNOWN_TOPIC_OR_PARTITION || err == KE_OFFSET_METADATA_TOO_LARGE ||
           err == KE_INVALID_COMMIT_OFFSET_SIZE;
}

static void tell_failed(struct kc_commits *m, struct kc_part *p, const struct kc_slot *s, kc_err err) {
    kc_err *told = p && is_partition_error(err) ? &p->commit_told : &m->told;
    if (*told == err) return;
    *told = err;
    kc_core_log(m->core, 4, "group %.*s: an automatic commit (partition %d, offset %lld) failed: %s: %s", m->group_id.len, m->group_id.p,
                (int)s->partition, (long long)s->sent_offset, kc_err_name(err), kc_err_text(err));
    if (p)
        kc_part_tell_commit(p, err, s->sent_offset, "offset %lld could not be committed for group %.*s: %s", (long long)s->sent_offset,
                            m->group_id.len, m->group_id.p, kc_err_text(err));
}

void kc_commits_auto_ended(struct kc_commits *m, const struct kc_slot *s, kc_err err, bool tell) {
    struct kc_consume *c = m->consume;
    kc_lock_take(&c->lock);
    struct kc_part *p = kc_part_find(c, s->topic, s->partition);
    if (p && p->assignment != s->sent_assignment) p = NULL;
    bool current = p && p->era == s->sent_era;
    if (err == KC_OK) m->told = KC_OK;
    if (p && err == KC_OK) p->commit_told = KC_OK;
    if (current && err == KC_OK) p->acked = s->sent_offset;
    if (current && err != KC_OK) { /* the next automatic commit tries it again */
        p->submitted = -1;
        p->asked = p->acked;
    }
    if (tell && err != KC_OK) tell_failed(m, p, s, err);
    kc_lock_give(&c->lock);
}

/* ---- Until all is committed ---- */

static void drain_late(struct kw_timer *t, void *ctx, int64_t now_us) {
    struct kc_commit_drain *d = ctx;
    (void)t;
    (void)now_us;
    d->err = KC_TIMED_OUT;
    kc_commits_look(d->commits);
}

void kc_commits_drain(struct kc_commits *m, struct kc_commit_drain *d) {
    d->commits = m;
    d->err = KC_OK;
    kw_list_init(&d->link);
    kw_timer_init(&d->timer, drain_late, d);
    if (m->stopped) {
        d->done(d, KC_CLOSED);
        return;
    }
    kc_commits_leave_run(m);
    if (m->settings->auto_commit) kc_commits_auto_run(m);
    d->order = m->orders;
    kw_list_push(&m->drains, &d->link);
    if (kw_timers_set(kc_core_timers(m->core), &d->timer, d->deadline_us) != KW_OK) d->err = KC_NO_MEMORY;
    kc_commits_look(m);
}

void kc_commits_drain_cancel(struct kc_commits *m, struct kc_commit_drain *d) {
    kw_timers_cancel(kc_core_timers(m->core), &d->timer);
    kw_list_remove(&d->link);
}

static bool any_upto(const struct kw_list *slots, uint64_t order) {
    for (const struct kw_list *l = slots->next; l != slots; l = l->next)
        if (KW_CONTAINER_OF(l, struct kc_slot, link)->first <= order) return true;
    return false;
}

/* KC_BUSY: not yet. */
static kc_err drained(struct kc_commits *m, const struct kc_commit_drain *d) {
    if (m->stopped || m->closed) return KC_CLOSED;
    bool left = !kw_list_empty(&m->leaving) || any_upto(&m->pending, d->order) || any_upto(&m->sent, d->order);
    if (!left || d->err != KC_OK) return left ? d->err : KC_OK;
    return m->managed && (!m->somebody || m->stamp == m->refused_stamp) && !m->outstanding ? KC_LOST : KC_BUSY;
}

void kc_commits_drains_run(struct kc_commits *m) {
    struct kw_list done, *l, *next;
    if (kw_list_empty(&m->drains)) return; /* mostly */
    kw_list_init(&done);
    kc_lock_take(&m->consume->lock);
    for (l = m->drains.next; l != &m->drains; l = next) {
        next = l->next;
        struct kc_commit_drain *d = KW_CONTAINER_OF(l, struct kc_commit_drain, link);
        kc_err err = drained(m, d);
        if (err == KC_BUSY) continue;
        d->err = err;
        kw_list_remove(l);
        kw_list_push(&done, l);
    }
    kc_lock_give(&m->consume->lock);
    while ((l = kw_list_shift(&done)) != NULL) {
        struct kc_commit_drain *d = KW_CONTAINER_OF(l, struct kc_commit_drain, link);
        kw_timers_cancel(kc_core_timers(m->core), &d->timer);
        d->done(d, d->err);
    }
}
