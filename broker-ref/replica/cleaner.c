/* cleaner.c - which log is compacted next, and what is remembered of it. Contract: cleaner.h.
 *
 * As Apache Kafka's cleaner: of the logs that are due the dirtiest one; when it is done the next one at once, and when none is due another look after
 * log.cleaner.backoff.ms. One pass at a time, whatever log.cleaner.threads says: the lane is one thread. The file may be lost or
 * damaged: then the passes begin at the logs' starts again.
 */
#include "cleaner.h"

#include <stdio.h>

#include "log/compact.h"
#include "partitions_priv.h"
#include "quorum/effective.h"

enum { CHECKPOINT_SIZE_MAX = 64 << 20 };

static bool wanted(const struct kb_partition *p) {
    return p->state == KB_PART_ONLINE && p->log_config.compact_policy;
}

static int64_t broker_int(const struct kb_node *n, const char *name) {
    return kb_effective_broker_int(&n->image, n->parts.config, name);
}

static void arm(struct kb_cleaner *c) {
    struct kb_node *n = c->node;
    int64_t ms = broker_int(n, "log.cleaner.backoff.ms");
    if (c->stopped || kw_timer_armed(&c->timer)) return;
    int64_t us = ms > INT64_MAX / 4000 ? INT64_MAX / 4 : KW_MAX(ms, 1) * 1000;
    if (kw_timers_set(&n->parts.timers, &c->timer, n->now.mono_us + us) != KW_OK) KB_SAY(n, KB_ERROR, "no memory for the timer of compaction");
}

/* ---- cleaner-offset-checkpoint ---- */

static int64_t offset_of(const struct kb_cleaner *c, const struct kb_partition *p) {
    if (p->cleaned_known) return p->log ? p->log->cleaned : -1;
    return p->known_at_start && c->file == KB_CLEANER_READ ? kb_checkpoint_get(&c->found, p->topic, p->index) : -1;
}

static void written(struct kb_disk_req *r, struct kb_now now) {
    struct kb_cleaner *c = r->ctx;
    c->writing = false;
    if (r->err != KB_DISK_OK) {
        KB_SAY(c->node, KB_WARN, "%s cannot be written (%s): it is tried again", c->path, kb_os_text(r->os_errno));
        c->dirty = true;
    }
    if (c->stopped) kb_partitions_part_stopped(c->node, now);
}

static void write_file(struct kb_cleaner *c) {
    struct kb_node *n = c->node;
    size_t count = 0;
    if (c->writing || c->stopped || c->file != KB_CLEANER_READ) return;
    for (struct kb_partition *p = NULL; (p = kb_partitions_next(n, p));) count += offset_of(c, p) > 0;
    kw_out_reset(&c->out);
    kb_checkpoint_begin(&c->out, count);
    for (struct kb_partition *p = NULL; (p = kb_partitions_next(n, p));)
        if (offset_of(c, p) > 0) kb_checkpoint_add(&c->out, p->topic, p->index, offset_of(c, p));
    if (c->out.err != KW_OK) return; /* stays dirty */
    c->dirty = false;
    c->writing = true;
    c->iov = (struct kb_iov){c->out.p, c->out.len};
    c->req = (struct kb_disk_req){.op = KB_DISK_WRITE_ATOMIC,
                                  .lane = KB_LANE_ATOMIC,
                                  .flags = KB_DISK_SYNC_FLAG,
                                  .path = c->path,
                                  .iov = &c->iov,
                                  .iov_count = 1,
                                  .done = written,
                                  .ctx = c};
    kb_disk_submit(&n->parts.disk, &c->req);
}

static void file_read(struct kb_disk_req *r, struct kb_now now) {
    struct kb_cleaner *c = r->ctx;
    (void)now;
    c->file = KB_CLEANER_READ;
    if (r->err == KB_DISK_OK && kb_checkpoint_decode(&c->found, r->data, (size_t)r->result) != KW_OK)
        KB_SAY(c->node, KB_WARN, "%s is not in Kafka's format: compaction begins at the start of each log", c->path);
    else if (r->err != KB_DISK_OK && r->err != KB_DISK_ENOENT)
        KB_SAY(c->node, KB_WARN, "%s cannot be read (%s): compaction begins at the start of each log", c->path, kb_os_text(r->os_errno));
    kw_free(r->data);
    r->data = NULL;
    if (c->stopped) kb_partitions_part_stopped(c->node, now);
}

static void read_file(struct kb_cleaner *c) {
    c->file = KB_CLEANER_READING;
    c->req = (struct kb_disk_req){
        .op = KB_DISK_READ_FILE, .lane = KB_LANE_ATOMIC, .path = c->path, .length = CHECKPOINT_SIZE_MAX, .done = file_read, .ctx = c};
    kb_disk_submit(&c->node->parts.disk, &c->req);
}

/* ---- Passes ---- */

static void take_offset(struct kb_cleaner *c, struct kb_partition *p) {
    if (p->cleaned_known) return;
    p->log->cleaned = KW_MAX(offset_of(c, p), 0);
    p->cleaned_known = true;
}

static void clean_next(struct kb_cleaner *c, struct kb_now now);

static void pass_done(void *ctx, struct kb_log *log, const struct kb_compact_report *report, struct kb_now now) {
    struct kb_cleaner *c = ctx;
    if (c->current && c->current->log == log) c->current = NULL;
    c->uncleanable += log->uncleanable;
    if (report->err != KW_OK) return; /* the timer comes again */
    c->passes++;
    c->dirty = true;
    write_file(c);
    clean_next(c, now);
}

static void clean_next(struct kb_cleaner *c, struct kb_now now) {
    struct kb_node *n = c->node;
    struct kb_partition *filthiest = NULL;
    double most = -1;
    if (c->stopped || c->current || c->file != KB_CLEANER_READ) return;
    for (struct kb_partition *p = NULL; (p = kb_partitions_next(n, p));) {
        struct kb_compact_look look;
        if (!wanted(p)) continue;
        take_offset(c, p);
        if (!kb_log_compact_look(p->log, p->hw, now, &look) || look.ratio <= most) continue;
        filthiest = p;
        most = look.ratio;
    }
    if (!filthiest) return;
    struct kb_compact_order order = {.hw = filthiest->hw,
                                     .memory_max = (size_t)broker_int(n, "log.cleaner.dedupe.buffer.size"),
                                     .seed = {kw_rng_next(&n->parts.rng), kw_rng_next(&n->parts.rng)},
                                     .done = pass_done,
                                     .ctx = c};
    if (kb_log_compact(filthiest->log, &order, now) == KW_OK) c->current = filthiest; /* else the timer comes again */
}

static void look_again(struct kw_timer *t, void *ctx, int64_t now_us) {
    struct kb_cleaner *c = ctx;
    bool any = false;
    (void)t;
    (void)now_us;
    for (struct kb_partition *p = NULL; !any && (p = kb_partitions_next(c->node, p));) any = wanted(p);
    if (c->dirty) write_file(c);
    if (any) clean_next(c, c->node->now);
    if (any || c->dirty) arm(c);
}

/* ---- What comes and goes ---- */

void kb_cleaner_look(struct kb_partition *p) {
    struct kb_cleaner *c = &p->node->partitions->cleaner;
    if (!wanted(p) || c->stopped || !kb_config_bool(p->node->parts.config, "log.cleaner.enable")) return;
    if (c->file == KB_CLEANER_UNREAD) read_file(c);
    arm(c);
}

void kb_cleaner_left(struct kb_partition *p) {
    struct kb_cleaner *c = &p->node->partitions->cleaner;
    if (c->current == p) c->current = NULL;
    if (p->state != KB_PART_DELETED || offset_of(c, p) <= 0) return;
    c->dirty = true; /* a new one of its name has nothing to do with what is there */
    arm(c);
}

/* ---- Life ---- */

kw_err kb_cleaner_init(struct kb_cleaner *c, struct kb_node *n) {
    static const char name[] = "cleaner-offset-checkpoint";
    size_t size = strlen(n->log_dir) + sizeof(name) + 1;
    *c = (struct kb_cleaner){.node = n, .path = kw_malloc(size)};
    kw_map_init(&c->found.by_name);
    kw_out_init(&c->out);
    kw_timer_init(&c->timer, look_again, c);
    if (!c->path) return KW_ENOMEM;
    snprintf(c->path, size, "%s/%s", n->log_dir, name);
    return KW_OK;
}

bool kb_cleaner_stop(struct kb_cleaner *c) {
    kw_timers_cancel(&c->node->parts.timers, &c->timer);
    c->stopped = true;
    return !c->writing && c->file != KB_CLEANER_READING;
}

void kb_cleaner_deinit(struct kb_cleaner *c) {
    if (!c->node) return;
    kw_timers_cancel(&c->node->parts.timers, &c->timer);
    kb_checkpoint_deinit(&c->found);
    kw_out_deinit(&c->out);
    kw_free(c->path);
}
