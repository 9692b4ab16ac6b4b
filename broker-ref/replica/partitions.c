/* partitions.c - all partitions of the node: follows the image (create, change, delete), flushes, housekeeping, checkpoints, clean stop.
 *
 * Called by node.c and, through the image's observer, by quorum/store. Calls partition, opening, log/, quorum/effective.
 * Nothing here wakes the node while nothing happens, but for the checks of retention and of idle producers.
 */
#include <stdio.h>

#include "follower.h"
#include "guids.h"
#include "group/coordinator.h"
#include "partitions_priv.h"
#include "quorum/effective.h"

static const char *const point_names[KB_POINT_COUNT] = {"recovery-point-offset-checkpoint", "log-start-offset-checkpoint",
                                                        "replication-offset-checkpoint"};

/* ---- The image's news ---- */

static kw_err note_partition(void *ctx, struct kb_image_topic *t, struct kb_image_partition *ip) {
    struct kb_partitions *ps = ((struct kb_node *)ctx)->partitions;
    if (!ps->loaded) return KW_OK; /* the first look takes the image whole */
    if (ps->note_count == ps->note_cap) {
        size_t cap = KW_MAX(2 * ps->note_cap, (size_t)16);
        struct kb_note *v = kw_realloc(ps->notes, cap * sizeof(*v));
        if (!v) return KW_ENOMEM;
        ps->notes = v;
        ps->note_cap = cap;
    }
    ps->notes[ps->note_count++] = (struct kb_note){t->id, ip->index};
    return KW_OK;
}

/* The topic is gone, or this node is no replica any more. */
static void remove_partition(struct kb_partitions *ps, struct kb_partition *p) {
    kb_partition_leave_role(p);
    p->state = KB_PART_DELETED;
    kb_guids_left(p);
    kb_cleaner_left(p);
    kw_list_remove(&p->config_link);
    kw_list_remove(&p->link);
    kw_list_push(&ps->removed, &p->link);
}

static kw_err note_removed(void *ctx, struct kb_image_topic *t) {
    kb_coordinator_topic_removed(ctx, kw_str_of(t->name));
    struct kb_partitions *ps = ((struct kb_node *)ctx)->partitions;
    for (int32_t i = 0; i < t->partition_count; i++) {
        struct kb_partition *p = t->partitions[i].local;
        if (!p) continue;
        t->partitions[i].local = NULL;
        remove_partition(ps, p);
    }
    return KW_OK;
}

enum { RESOURCE_TOPIC = 2, RESOURCE_BROKER = 4 };

static void note_configured(struct kb_partitions *ps, struct kb_partition *p) {
    kw_list_remove(&p->config_link);
    kw_list_push(&ps->configured, &p->config_link);
}

/* A topic's settings concern its partitions alone: else each topic that is made with some would cost as much as there are partitions. */
static kw_err note_config(void *ctx, int8_t type, struct kw_str resource) {
    struct kb_node *n = ctx;
    const struct kb_image_topic *t = type == RESOURCE_TOPIC ? kb_image_topic(&n->image, resource) : NULL;
    for (int32_t i = 0; t && i < t->partition_count; i++)
        if (t->partitions[i].local) note_configured(n->partitions, t->partitions[i].local);
    for (struct kb_partition *p = NULL; type == RESOURCE_BROKER && (p = kb_partitions_next(n, p));) note_configured(n->partitions, p);
    return KW_OK;
}

void kb_partition_configure(struct kb_partition *p) {
    struct kb_node *n = p->node;
    struct kw_str topic = kw_str_of(p->topic);
    kb_effective_log(&n->image, n->parts.config, topic, &p->log_config);
    kb_effective_partition(&n->image, n->parts.config, topic, &p->config);
    p->config.guid_dedup &= !p->internal;
}

static void drop_removed(struct kb_node *n, struct kb_now now) {
    struct kw_list *l;
    bool any = false;
    while ((l = kw_list_shift(&n->partitions->removed))) {
        struct kb_partition *p = KW_CONTAINER_OF(l, struct kb_partition, link);
        kw_list_push(&n->partitions->leaving, &p->link);
        kb_purgatory_moved(p, now);
        kb_partition_try_free(p, now);
        any = true;
    }
    if (any) kb_openings_unpark(n, NULL, now); /* one that waited may have been deleted itself */
}

static void take_partition(struct kb_node *n, struct kb_image_topic *t, struct kb_image_partition *ip, struct kb_now now) {
    bool mine = kb_ids_have(ip->replicas, ip->replica_count, n->id);
    struct kb_partition *p = ip->local;
    if (p && !mine) {
        ip->local = NULL;
        remove_partition(n->partitions, p);
        drop_removed(n, now);
        return;
    }
    if (p) {
        kb_partition_take_image(p, t, ip, now);
        kb_purgatory_moved(p, now);
        kb_dirs_look(p, ip, now);
        return;
    }
    if (!mine) return;
    p = kb_partition_new(n, t, ip);
    if (!p)
        kb_node_fail(n, "no memory for the partition %s-%d", t->name, ip->index);
    else if (kb_opening_start(p, now) != KW_OK)
        kb_partition_offline(p, "no memory to open its log");
}

bool kb_partition_same_name(const struct kb_partition *a, const struct kb_partition *b) {
    return a->index == b->index && strcmp(a->topic, b->topic) == 0;
}

bool kb_partitions_leaving(const struct kb_partition *p) {
    const struct kb_partitions *ps = p->node->partitions;
    if (ps->stale_points) return true;
    for (const struct kw_list *l = ps->leaving.next; l != &ps->leaving; l = l->next) {
        const struct kb_partition *q = KW_CONTAINER_OF(l, const struct kb_partition, link);
        if (q != p && kb_partition_same_name(q, p)) return true;
    }
    return false;
}

/* DeleteRecords waits for the live replicas: one that is fenced is none, in sync or not. */
static void wake_for_brokers(struct kb_node *n, struct kb_now now) {
    struct kb_partitions *ps = n->partitions;
    if (ps->broker_news == n->image.broker_news) return;
    ps->broker_news = n->image.broker_news;
    for (struct kb_partition *p = NULL; (p = kb_partitions_next(n, p));)
        if (p->in_sync) kb_purgatory_moved(p, now);
}

void kb_partitions_look_registered(struct kb_node *n, struct kb_now now) {
    struct kb_partitions *ps = n->partitions;
    bool registered = kb_partitions_registered(n);
    if (!ps->loaded || ps->stopping) return;
    if (registered && !ps->registered) {
        for (struct kb_partition *p = NULL; (p = kb_partitions_next(n, p));)
            if (p->state == KB_PART_ONLINE) kb_partition_retake_role(p, now);
        kb_dirs_look_at_all(n, now);
    }
    ps->registered = registered;
}

void kb_partitions_applied(struct kb_node *n, struct kb_now now) {
    struct kb_partitions *ps = n->partitions;
    if (!ps->loaded || ps->stopping) return;
    drop_removed(n, now);
    /* First: a role that comes by the same news (a snapshot's, say) is taken up under the present min.insync.replicas. */
    for (struct kw_list *l = ps->configured.next; l != &ps->configured; l = l->next)
        kb_partition_configure(KW_CONTAINER_OF(l, struct kb_partition, config_link));
    for (size_t i = 0; i < ps->note_count; i++) {
        struct kb_image_topic *t = kb_image_topic_by_id(&n->image, ps->notes[i].topic_id);
        if (t && ps->notes[i].index < t->partition_count) take_partition(n, t, &t->partitions[ps->notes[i].index], now);
    }
    ps->note_count = 0;
    kb_partitions_look_registered(n, now);
    wake_for_brokers(n, now);
    for (struct kw_list *l; (l = kw_list_shift(&ps->configured));) {
        struct kb_partition *p = KW_CONTAINER_OF(l, struct kb_partition, config_link);
        if (p->log) kb_log_config_set(p->log, &p->log_config, now);
        kb_cleaner_look(p);
        kb_guids_look(p, now);
        if (p->in_sync) kb_partition_reckon(p, now); /* min.insync.replicas may be another */
        kb_purgatory_moved(p, now);
    }
}

struct kb_partition *kb_partitions_next(const struct kb_node *n, const struct kb_partition *p) {
    const struct kw_list *l = p ? p->link.next : n->partitions->all.next;
    return l == &n->partitions->all ? NULL : KW_CONTAINER_OF(l, struct kb_partition, link);
}

size_t kb_partitions_opening(const struct kb_node *n) {
    return n->partitions->opening;
}

void kb_partitions_flush(struct kb_node *n, struct kb_now now) {
    struct kw_list *l;
    while ((l = kw_list_shift(&n->partitions->dirty))) {
        struct kb_partition *p = KW_CONTAINER_OF(l, struct kb_partition, dirty_link);
        if (p->log && p->state != KB_PART_DELETED) kb_log_flush(p->log, now);
    }
}

/* ---- Checkpoints ---- */

/* -1: the file says nothing of it. One whose log is not open (yet, or for a sick disk) keeps its place: DeleteRecords was promised to last. */
static int64_t point_value(const struct kb_partition *p, enum kb_point what) {
    if (!p->was_online) return p->points[what];
    switch (what) {
    case KB_POINT_RECOVERY:
        return KW_MIN(p->log->recovery_point, kb_follower_recovery_max(p));
    case KB_POINT_START:
        return p->log->start;
    default:
        return p->hw;
    }
}

static void write_point(struct kb_node *n, enum kb_point what);

static void maybe_stopped(struct kb_node *n, struct kb_now now) {
    struct kb_partitions *ps = n->partitions;
    if (!ps->stopping || ps->stop_pending > 0 || !ps->stop_done) return;
    void (*done)(struct kb_node *, bool, struct kb_now) = ps->stop_done;
    ps->stop_done = NULL;
    done(n, !ps->failed, now);
}

static void arm(struct kb_node *n, struct kw_timer *t, int64_t delay_us) {
    int64_t at_us = n->now.mono_us + delay_us;
    if ((kw_timer_armed(t) && t->at_us <= at_us) || n->partitions->stopping) return;
    if (kw_timers_set(&n->parts.timers, t, at_us) != KW_OK) KB_SAY(n, KB_ERROR, "no memory for a timer of the checkpoints");
}

#define POINT_AGAIN_US 1000000

/* Those whose write this was; for the others one more is begun. */
static void tell_waiters(struct kb_node *n, struct kb_point_file *f, bool stored, struct kb_now now) {
    struct kw_list left;
    struct kw_list *l;
    bool again = false;
    kw_list_init(&left);
    while ((l = kw_list_shift(&f->waiters))) {
        struct kb_point_waiter *w = KW_CONTAINER_OF(l, struct kb_point_waiter, link);
        if (w->from <= f->writes && (stored || !w->patient)) {
            w->done(w, stored, now);
            continue;
        }
        again = again || w->from > f->writes;
        if (w->from <= f->writes) w->from = f->writes + 1;
        kw_list_push(&left, l);
    }
    while ((l = kw_list_shift(&left))) kw_list_push(&f->waiters, l);
    if (again && !f->in_flight) write_point(n, (enum kb_point)(f - n->partitions->points));
}

void kb_partitions_store_point(struct kb_node *n, enum kb_point what, struct kb_point_waiter *w) {
    struct kb_point_file *f = &n->partitions->points[what];
    w->from = f->writes + 1;
    kw_list_init(&w->link);
    kw_list_push(&f->waiters, &w->link);
    f->dirty = true;
    if (!f->in_flight) write_point(n, what);
    if (f->in_flight) return;
    if (w->patient) { /* no memory: said so */
        arm(n, &f->timer, POINT_AGAIN_US);
        return;
    }
    kw_list_remove(&w->link);
    w->done(w, false, n->now);
}

static void point_forgotten(struct kb_point_waiter *w, bool stored, struct kb_now now) {
    struct kb_points_waiter *both = w->ctx;
    (void)stored; /* it was: the waiter is patient */
    if (--both->left == 0) both->done(both->ctx, now);
}

void kb_partitions_forget_points(struct kb_node *n, struct kb_points_waiter *w, void (*done)(void *ctx, struct kb_now now), void *ctx) {
    static const enum kb_point which[] = {KB_POINT_RECOVERY, KB_POINT_START, KB_POINT_HW};
    const int32_t count = n->lifecycle ? 3 : 2; /* in a cluster a start that finds less than was committed leaves the in-sync replicas */
    *w = (struct kb_points_waiter){.left = count, .done = done, .ctx = ctx};
    for (int32_t i = 0; i < count; i++) {
        w->files[i] = (struct kb_point_waiter){.patient = true, .done = point_forgotten, .ctx = w};
        kb_partitions_store_point(n, which[i], &w->files[i]);
    }
}

void kb_partitions_store_starts(struct kb_node *n, struct kb_point_waiter *w) {
    kb_partitions_store_point(n, KB_POINT_START, w);
}

static void point_written(struct kb_disk_req *r, struct kb_now now) {
    struct kb_node *n = r->ctx;
    struct kb_partitions *ps = n->partitions;
    struct kb_point_file *f = KW_CONTAINER_OF(r, struct kb_point_file, req);
    f->in_flight = false;
    if (r->err != KB_DISK_OK) {
        ps->failed = ps->failed || ps->stopping; /* no marker of a clean stop then (BL-03) */
        KB_SAY(n, KB_ERROR, "%s cannot be written (%s): %s", f->path, kb_os_text(r->os_errno),
               ps->stopping ? "the next start recovers more than it would need to" : "it is tried again");
        f->dirty = f->dirty || !ps->last_points;
        arm(n, &f->timer, POINT_AGAIN_US);
    }
    tell_waiters(n, f, r->err == KB_DISK_OK, now);
    if (!ps->last_points) return;
    if (f->dirty) write_point(n, (enum kb_point)(f - ps->points));
    if (f->in_flight) return;
    ps->stop_pending--;
    maybe_stopped(n, now);
}

static void write_point(struct kb_node *n, enum kb_point what) {
    struct kb_partitions *ps = n->partitions;
    struct kb_point_file *f = &ps->points[what];
    if (f->in_flight) return; /* dirty stays set: the timer, or the stop, comes again */
    size_t count = 0;
    for (struct kb_partition *p = NULL; (p = kb_partitions_next(n, p));) count += point_value(p, what) >= 0;
    kw_out_reset(&f->out);
    kb_checkpoint_begin(&f->out, count);
    for (struct kb_partition *p = NULL; (p = kb_partitions_next(n, p));)
        if (point_value(p, what) >= 0) kb_checkpoint_add(&f->out, p->topic, p->index, point_value(p, what));
    if (f->out.err != KW_OK) {
        KB_SAY(n, KB_ERROR, "no memory to write %s", f->path);
        ps->failed = ps->failed || ps->stopping;
        return;
    }
    f->dirty = false;
    f->in_flight = true;
    f->writes++;
    f->iov = (struct kb_iov){f->out.p, f->out.len};
    f->req = (struct kb_disk_req){.op = KB_DISK_WRITE_ATOMIC,
                                  .lane = KB_LANE_ATOMIC,
                                  .flags = KB_DISK_SYNC_FLAG,
                                  .path = f->path,
                                  .iov = &f->iov,
                                  .iov_count = 1,
                                  .done = point_written,
                                  .ctx = n};
    kb_disk_submit(&n->parts.disk, &f->req);
}

int64_t kb_partitions_config_us(const struct kb_node *n, const char *name) {
    int64_t ms = kb_config_int(n->parts.config, name);
    return ms < 0 || ms > INT64_MAX / 4000 ? INT64_MAX / 4 : KW_MAX(ms, 1) * 1000;
}

void kb_partitions_point_moved(struct kb_node *n, enum kb_point what) {
    static const char *const intervals[KB_POINT_COUNT] = {"log.flush.offset.checkpoint.interval.ms",
                                                          "log.flush.start.offset.checkpoint.interval.ms",
                                                          "replica.high.watermark.checkpoint.interval.ms"};
    struct kb_point_file *f = &n->partitions->points[what];
    if (f->dirty) return;
    f->dirty = true;
    arm(n, &f->timer, kb_partitions_config_us(n, intervals[what]));
}

static void point_fire(struct kw_timer *t, void *ctx, int64_t now_us) {
    (void)now_us;
    struct kb_node *n = ctx;
    struct kb_point_file *f = KW_CONTAINER_OF(t, struct kb_point_file, timer);
    if (f->dirty) write_point(n, (enum kb_point)(f - n->partitions->points));
    if (f->dirty) arm(n, t, POINT_AGAIN_US);
}

/* ---- Housekeeping ---- */

enum { HURRIES = 500, HURRY_US = 20000 };

static void housekeep_fire(struct kw_timer *t, void *ctx, int64_t now_us) {
    (void)now_us;
    struct kb_node *n = ctx;
    bool due = false;
    for (struct kb_partition *p = NULL; (p = kb_partitions_next(n, p));) {
        if (p->state != KB_PART_ONLINE) continue;
        int64_t start = p->log->start;
        kb_guids_housekeep(p, n->now);
        kb_log_housekeep(p->log, p->hw, n->now);
        if (p->log->start != start) kb_partitions_point_moved(n, KB_POINT_START);
        due = due || (n->partitions->hurries > 0 && kb_log_has_due(p->log, p->hw, n->now));
    }
    if (due) n->partitions->hurries--;
    arm(n, t, due ? HURRY_US : kb_partitions_config_us(n, "log.retention.check.interval.ms"));
}

static void producers_fire(struct kw_timer *t, void *ctx, int64_t now_us) {
    (void)now_us;
    struct kb_node *n = ctx;
    for (struct kb_partition *p = NULL; (p = kb_partitions_next(n, p));)
        if (p->state == KB_PART_ONLINE) kb_log_expire_producers(p->log, n->now);
    arm(n, t, kb_partitions_config_us(n, "producer.id.expiration.check.interval.ms"));
}

void kb_partitions_advance(struct kb_node *n, int64_t ms) {
    struct kb_partitions *ps = n->partitions;
    struct kw_timer *const looks[] = {&ps->housekeep_timer, &ps->producers_timer, &ps->cleaner.timer};
    ps->hurries = HURRIES;
    for (struct kb_partition *p = NULL; (p = kb_partitions_next(n, p));)
        if (p->log) kb_log_advance(p->log, ms);
    for (size_t i = 0; i < KW_COUNTOF(looks); i++)
        if (kw_timer_armed(looks[i])) (void)!kw_timers_set(&n->parts.timers, looks[i], n->now.mono_us); /* armed: it has its place */
}

/* With flush.on.ack the log syncs by itself, and tries again by itself. */
void kb_partitions_flush_due(struct kb_partition *p) {
    int64_t ms = p->log_config.flush_ms;
    if (p->flush_due_us != KW_NEVER || ms > INT64_MAX / 4000) return;
    struct kb_node *n = p->node;
    struct kw_timer *t = &n->partitions->flush_timer;
    p->flush_due_us = n->now.mono_us + ms * 1000;
    if (kw_timer_armed(t) && t->at_us <= p->flush_due_us) return;
    if (kw_timers_set(&n->parts.timers, t, p->flush_due_us) != KW_OK) KB_SAY(n, KB_ERROR, "no memory for the timer of flush.ms");
}

static void flush_fire(struct kw_timer *t, void *ctx, int64_t now_us) {
    struct kb_node *n = ctx;
    int64_t next = KW_NEVER;
    for (struct kb_partition *p = NULL; (p = kb_partitions_next(n, p));) {
        if (p->state != KB_PART_ONLINE || p->flush_due_us == KW_NEVER) continue;
        if (p->flush_due_us > now_us)
            next = KW_MIN(next, p->flush_due_us);
        else if (kb_log_sync(p->log) == KW_OK)
            p->flush_due_us = KW_NEVER;
        else
            next = now_us + 1000000;
    }
    (void)!kw_timers_set(&n->parts.timers, t, next); /* it was armed: its place is there */
}

/* ---- Life ---- */

kw_err kb_partitions_new(struct kb_node *n) {
    struct kb_partitions *ps = kw_calloc(1, sizeof(*ps));
    if (!ps) return KW_ENOMEM;
    kw_list_init(&ps->all);
    kw_list_init(&ps->dirty);
    kw_list_init(&ps->removed);
    kw_list_init(&ps->configured);
    kw_list_init(&ps->leaving);
    kw_list_init(&ps->parked);
    kw_timer_init(&ps->housekeep_timer, housekeep_fire, n);
    kw_timer_init(&ps->producers_timer, producers_fire, n);
    kw_timer_init(&ps->flush_timer, flush_fire, n);
    kb_isrs_init(&ps->isrs, n);
    kb_dirs_init(&ps->dirs, n);
    n->partitions = ps;
    kw_err err = kb_cleaner_init(&ps->cleaner, n);
    if (err != KW_OK) return err; /* kb_partitions_free sees to the rest */
    for (enum kb_point what = 0; what < KB_POINT_COUNT; what++) {
        size_t size = strlen(n->log_dir) + strlen(point_names[what]) + 2;
        ps->points[what].path = kw_malloc(size);
        if (!ps->points[what].path) return KW_ENOMEM;
        snprintf(ps->points[what].path, size, "%s/%s", n->log_dir, point_names[what]);
        kw_out_init(&ps->points[what].out);
        kw_list_init(&ps->points[what].waiters);
        kw_timer_init(&ps->points[what].timer, point_fire, n);
    }
    n->image.observer =
        (struct kb_image_observer){.partition = note_partition, .topic_removed = note_removed, .config = note_config, .ctx = n};
    return KW_OK;
}

/* What the last process left in its checkpoint files. */
static size_t take_points(struct kb_node *n, const struct kb_checkpoint found[KB_POINT_COUNT], struct kb_now now) {
    struct kb_image_topic *t;
    size_t known = 0;
    for (size_t it = 0; (t = kw_map_next(&n->image.topics_by_name, &it));)
        for (int32_t i = 0; i < t->partition_count; i++) {
            struct kb_partition *p;
            take_partition(n, t, &t->partitions[i], now);
            if (!(p = t->partitions[i].local)) continue;
            for (enum kb_point what = 0; what < KB_POINT_COUNT; what++) p->points[what] = kb_checkpoint_get(&found[what], p->topic, p->index);
            known += (size_t)(p->points[KB_POINT_RECOVERY] >= 0) + (size_t)(p->points[KB_POINT_START] >= 0);
        }
    return known;
}

static void stale_gone(void *ctx, struct kb_now now) {
    struct kb_node *n = ctx;
    n->partitions->stale_points = false;
    kb_openings_unpark(n, NULL, now);
}

/* Points of partitions that were deleted while the last process ended: a new one of such a name must not take them for its own. */
static void drop_stale(struct kb_node *n) {
    n->partitions->stale_points = true;
    kb_partitions_forget_points(n, &n->partitions->stale, stale_gone, n);
}

kw_err kb_partitions_load(struct kb_node *n, const struct kb_found *found, struct kb_now now) {
    struct kb_partitions *ps = n->partitions;
    struct kb_checkpoint points[KB_POINT_COUNT];
    ps->found_clean = found->clean;
    for (enum kb_point what = 0; what < KB_POINT_COUNT; what++) {
        kw_map_init(&points[what].by_name);
        if (!found->files[what] || kb_checkpoint_decode(&points[what], found->files[what], (size_t)found->sizes[what]) == KW_OK) continue;
        KB_SAY(n, KB_WARN, "%s is not in Kafka's format: the logs are recovered without it", ps->points[what].path);
        if (what == KB_POINT_RECOVERY) ps->found_clean = false;
    }
    kw_err err = kb_strays_start(n, found);
    ps->opening++; /* held until all are started, so that the end is told once */
    size_t known = err == KW_OK ? take_points(n, points, now) : 0;
    size_t named = points[KB_POINT_RECOVERY].by_name.count + points[KB_POINT_START].by_name.count;
    for (enum kb_point what = 0; what < KB_POINT_COUNT; what++) kb_checkpoint_deinit(&points[what]);
    if (err != KW_OK) return err;
    ps->loaded = true;
    if (known < named) drop_stale(n);
    arm(n, &ps->housekeep_timer, kb_partitions_config_us(n, "log.retention.check.interval.ms"));
    arm(n, &ps->producers_timer, kb_partitions_config_us(n, "producer.id.expiration.check.interval.ms"));
    if (--ps->opening == 0) kb_node_opened(n, now);
    return KW_OK;
}

void kb_partitions_part_stopped(struct kb_node *n, struct kb_now now) {
    struct kb_partitions *ps = n->partitions;
    if (--ps->stop_pending > 0) return;
    ps->stop_pending = KB_POINT_COUNT;
    ps->last_points = true;
    for (enum kb_point what = 0; what < KB_POINT_COUNT; what++) {
        ps->points[what].dirty = true;
        write_point(n, what);
        if (!ps->points[what].in_flight) ps->stop_pending--; /* no memory: said so */
    }
    maybe_stopped(n, now);
}

static void log_shut(void *ctx, struct kb_log *log, kw_err err, struct kb_now now) {
    struct kb_partition *p = ctx;
    if (err != KW_OK) {
        p->node->partitions->failed = true;
        KB_SAY(p->node, KB_ERROR, "%s-%d could not be closed in order (%s): it is recovered at the next start", p->topic, p->index, log->failure);
    }
    kb_partitions_part_stopped(p->node, now);
}

void kb_partitions_stop(struct kb_node *n, void (*done)(struct kb_node *, bool, struct kb_now), struct kb_now now) {
    struct kb_partitions *ps = n->partitions;
    for (enum kb_point what = 0; what < KB_POINT_COUNT; what++) kw_timers_cancel(&n->parts.timers, &ps->points[what].timer);
    kw_timers_cancel(&n->parts.timers, &ps->housekeep_timer);
    kw_timers_cancel(&n->parts.timers, &ps->producers_timer);
    kw_timers_cancel(&n->parts.timers, &ps->flush_timer);
    kb_isrs_stop(&ps->isrs);
    kb_dirs_stop(&ps->dirs);
    ps->stopping = true;
    ps->stop_done = done;
    ps->stop_pending = kb_cleaner_stop(&ps->cleaner) ? 1 : 2;
    ps->failed = ps->failed || !ps->loaded || ps->opening > 0;
    for (struct kb_partition *p = NULL; (p = kb_partitions_next(n, p));) {
        if (p->state == KB_PART_OFFLINE) ps->failed = true;
        if (p->state != KB_PART_ONLINE) continue;
        ps->stop_pending += !kb_guids_stop(p, now);
        ps->stop_pending++;
        if (kb_log_shutdown(p->log, log_shut, p, now) != KW_OK) {
            ps->stop_pending--;
            ps->failed = true;
        }
    }
    if (--ps->stop_pending > 0) return;
    ps->stop_done = NULL;
    done(n, !ps->failed, now); /* no log, so no checkpoint moved */
}

void kb_partitions_free(struct kb_node *n) {
    struct kb_partitions *ps = n->partitions;
    if (!ps) return;
    n->image.observer = (struct kb_image_observer){0};
    kb_isrs_stop(&ps->isrs);
    kb_dirs_stop(&ps->dirs);
    kb_guids_dropped(n);
    struct kw_list *lists[] = {&ps->all, &ps->removed, &ps->leaving};
    for (size_t i = 0; i < KW_COUNTOF(lists); i++) {
        struct kw_list *l;
        while ((l = kw_list_shift(lists[i]))) {
            struct kb_partition *p = KW_CONTAINER_OF(l, struct kb_partition, link);
            kb_partition_leave_role(p);
            if (p->log) kb_log_free(p->log);
            kb_opening_free(p->opening);
            kw_list_remove(&p->dirty_link);
            kw_list_remove(&p->config_link);
            kb_partition_freed(p);
        }
    }
    for (enum kb_point what = 0; what < KB_POINT_COUNT; what++) {
        kw_free(ps->points[what].path);
        kw_out_deinit(&ps->points[what].out);
    }
    kb_cleaner_deinit(&ps->cleaner);
    kw_free(ps->notes);
    kw_free(ps);
    n->partitions = NULL;
}
