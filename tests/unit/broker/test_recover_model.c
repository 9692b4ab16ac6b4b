/* test_recover_model.c - random appends, truncations, roll, retention, clean stops, kill -9 and power loss, against a model of the log:
 * a restart yields a prefix with all that was synced (invariant 11), lookups equal a full scan (12), producer state equals a replay (14), epochs
 * equal those of the batches, nothing corrupt is ever served (10).
 */
#include "log_rig.h"

struct entry {
    uint8_t *p;
    size_t n;
    struct kw_batch_header h;
};
#define LAZY 4
struct lazy { /* a read that runs while other things happen */
    struct kb_read k;
    struct model *m;
    bool busy;
};
struct model {
    struct rig rig;
    struct lazy lazy[LAZY];
    uint64_t lazy_reads;
    struct kw_rng rng;
    struct entry *v;
    size_t count, cap;
    int64_t next_pid_seq[4];
    int16_t pid_epoch[4];
    int32_t epoch;
    int64_t time, floor; /* floor: offsets below survive whatever comes */
    bool truncating;
    int64_t truncate_to;
    uint64_t crashes, clean, records, truncations, cut_backs;
};

static uint64_t rnd(struct model *m, uint64_t n) { return kw_rng_below(&m->rng, n); }
static int64_t last_of(const struct entry *e) { return e->h.base_offset + e->h.last_offset_delta; }

static void model_cut(struct model *m, int64_t to) {
    while (m->count && last_of(&m->v[m->count - 1]) >= to) free(m->v[--m->count].p);
    m->floor = KW_MIN(m->floor, to);
}

static void append(struct model *m) {
    struct rig *r = &m->rig;
    struct rig_batch b = RIG_BATCH;
    b.count = 1 + (int32_t)rnd(m, 5);
    b.value_size = rnd(m, 50) == 0 ? 700000 + (size_t)rnd(m, 900000) : rnd(m, 8) == 0 ? 3000 + (size_t)rnd(m, 9000) : (size_t)rnd(m, 300);
    if (b.value_size > 100000) b.count = 1 + (int32_t)rnd(m, 2);
    b.fill = (uint8_t)rnd(m, 256);
    m->time += (int64_t)rnd(m, 2000) - 500;
    b.timestamp = m->time;
    b.timestamp_step = (int64_t)rnd(m, 20);
    int pid = (int)rnd(m, 6);
    if (pid < 4) {
        if (rnd(m, 40) == 0) m->pid_epoch[pid]++, m->next_pid_seq[pid] = 0;
        b.pid = 1000 + pid;
        b.epoch = m->pid_epoch[pid];
        b.seq = (int32_t)(m->next_pid_seq[pid] & INT32_MAX);
    }
    if (rnd(m, 60) == 0) m->epoch++;
    b.leader_epoch = m->epoch;
    if (rnd(m, 20) == 0) b.base = r->log->leo + (int64_t)rnd(m, 4);
    size_t size;
    uint8_t *p = rig_build(&b, &size);
    struct kw_blk *blk = kw_blk_new(size);
    memcpy(blk->data, p, size);
    free(p);
    struct kb_log_append a = {.blk = blk, .batch = blk->data, .size = size, .leader_epoch = b.leader_epoch, .keep_offsets = b.base >= 0,
                              .max_timestamp = b.timestamp + (b.count - 1) * b.timestamp_step};
    kw_err err = kb_log_append(r->log, &a, r->now);
    if (err) {
        bool waits = r->config.flush_on_ack && r->log->synced < r->log->leo; /* an epoch begins */
        assert_true(r->log->busy || r->log->poisoned || (waits && err == KW_EBUSY));
        kw_blk_unref(blk);
        return;
    }
    if (pid < 4) m->next_pid_seq[pid] += b.count;
    if (m->count == m->cap) {
        m->cap = m->cap ? m->cap * 2 : 64;
        m->v = realloc(m->v, m->cap * sizeof(*m->v));
    }
    struct entry *e = &m->v[m->count++];
    e->n = size;
    e->p = malloc(size);
    memcpy(e->p, blk->data, size);
    assert_int_equal(kw_batch_parse(e->p, e->n, &e->h), KW_OK);
    kw_blk_unref(blk);
    m->records += (uint64_t)b.count;
}

static void cut_back(void *ctx, struct kb_log *log, struct kb_now now) {
    rig_cut_back(ctx, log, now);
    struct model *m = KW_CONTAINER_OF(ctx, struct model, rig);
    m->cut_backs++;
    model_cut(m, log->leo);
    for (int i = 0; i < 4; i++) m->next_pid_seq[i] += 100; /* a gap is fine here: the log does not judge */
}

static void truncated(void *ctx, struct kb_log *log, kw_err err, struct kb_now now) {
    (void)now;
    struct model *m = ctx;
    m->truncating = false;
    if (err) return;
    if (getenv("TRACE")) fprintf(stderr, "truncated to %lld\n", (long long)log->leo);
    m->rig.recovery_point = KW_MIN(m->rig.recovery_point, log->recovery_point); /* the owner's duty */
    model_cut(m, log->leo);
    m->truncations++;
}

/* Reads everything from the log start and compares with the model, in pieces of a drawn size. */
static void check_read(struct model *m, int64_t from, int64_t limit, size_t pieces) {
    struct rig *r = &m->rig;
    size_t i = 0;
    while (i < m->count && last_of(&m->v[i]) < from) i++;
    int64_t at = from;
    for (size_t k = 0; k < pieces && i < m->count && m->v[i].h.base_offset < limit; k++) {
        size_t max = rnd(m, 3) ? 1 + (size_t)rnd(m, 5000) : 1 + (size_t)rnd(m, 3000000);
        struct rig_bytes b = rig_read_full(r, at, limit, max, true, rnd(m, 4) == 0, NULL);
        if (b.err)
            fail_msg("read at %lld (limit %lld): error %d (start %lld, leo %lld)\n%s", (long long)at, (long long)limit, b.err,
                     (long long)r->log->start, (long long)r->log->leo, r->lines);
        assert_true(b.n > 0);
        size_t pos = 0;
        while (pos < b.n && i < m->count) {
            size_t n = KW_MIN(m->v[i].n, b.n - pos);
            assert_true(m->v[i].h.base_offset < limit || pos + n > b.n);
            if (memcmp(b.p + pos, m->v[i].p, n))
                fail_msg("read at %lld (limit %lld, max %zu): batch %lld differs at byte %zu of %zu (start %lld, written %lld, got offset %lld)", (long long)at,
                         (long long)limit, max, (long long)m->v[i].h.base_offset, pos, b.n, (long long)r->log->start, (long long)r->log->written,
                         (long long)kw_load64(b.p + pos));
            if (n < m->v[i].n) {
                assert_true(pos > 0);
                break;
            }
            pos += n;
            at = last_of(&m->v[i++]) + 1;
        }
        assert_true(pos > 0);
        free(b.p);
    }
    if (pieces == SIZE_MAX) assert_true(i == m->count || m->v[i].h.base_offset >= limit);
}

/* Whatever went on meanwhile, what comes is what the log holds: whole first batch, right bytes. */
static void lazy_done(struct kb_read *k, struct kb_now now) {
    (void)now;
    struct lazy *z = k->ctx;
    struct model *m = z->m;
    z->busy = false;
    size_t n = k->bytes, pos = 0;
    if (m->rig.log && k->err == KW_OK && k->slice_count == 1) {
        const struct kb_slice *s = &k->slices[0];
        uint8_t *p = malloc(n);
        if (s->file) assert_int_equal(sim_disk_pread(m->rig.disk, s->file, s->offset, p, n), n);
        else memcpy(p, s->p, n);
        for (size_t i = 0; i < m->count && pos + KW_BATCH_HEADER_SIZE <= n; i++) {
            if ((uint64_t)m->v[i].h.base_offset != kw_load64(p + pos) || n - pos < m->v[i].n) continue;
            if (pos == 0) assert_true(last_of(&m->v[i]) >= k->offset);
            assert_memory_equal(p + pos, m->v[i].p, m->v[i].n);
            pos += m->v[i].n;
        }
        if (n) assert_true(pos > 0);
        m->lazy_reads++;
        free(p);
    } else if (m->rig.log && !m->rig.log->poisoned && m->rig.log->owner.ctx) {
        assert_int_equal(k->err, KW_OK);
    }
    kb_read_release(k);
}

static void lazy_read(struct model *m) {
    struct kb_log *log = m->rig.log;
    struct lazy *z = &m->lazy[rnd(m, LAZY)];
    if (z->busy) {
        if (rnd(m, 4) == 0) {
            kb_read_cancel(&z->k);
            z->busy = false;
        }
        return;
    }
    if (log->written <= log->start) return;
    int64_t from = log->start + (int64_t)rnd(m, (uint64_t)(log->written - log->start));
    z->k = (struct kb_read){.log = log, .offset = from, .limit = log->written, .bytes_max = 1 + (size_t)rnd(m, 2000000), .min_one = true,
                            .into_memory = rnd(m, 2) == 0, .done = lazy_done, .ctx = z};
    z->m = m;
    z->busy = true;
    int32_t x = kb_log_read(&z->k, m->rig.now);
    if (x < 0) z->busy = false;
    if (x == 1) lazy_done(&z->k, m->rig.now);
}

static void check_times(struct model *m) {
    struct rig *r = &m->rig;
    for (int k = 0; k < 3; k++) {
        int64_t t = m->time - (int64_t)rnd(m, 20000) + 2000, limit = r->log->written;
        int64_t offset = -1, at = -1;
        for (size_t i = 0; i < m->count && offset < 0; i++) {
            const struct kw_batch_header *h = &m->v[i].h;
            if (h->base_offset >= limit) break;
            int64_t step = h->record_count > 1 ? (h->max_timestamp - h->base_timestamp) / (h->record_count - 1) : 0;
            for (int32_t j = 0; j < h->record_count && offset < 0; j++)
                if (h->base_timestamp + j * step >= t && h->base_offset + j >= r->log->start) offset = h->base_offset + j, at = h->base_timestamp + j * step;
        }
        struct kb_find_time f = rig_find_time(r, t, limit);
        assert_int_equal(f.err, KW_OK);
        assert_int_equal(f.offset, offset);
        assert_int_equal(f.found_timestamp, at);
    }
}

static void list(struct rig *r, const char *when) {
    char **names;
    size_t n = sim_disk_names(r->disk, RIG_DIR, &names);
    fprintf(stderr, "%s:", when);
    for (size_t i = 0; i < n; i++) {
        char path[200];
        size_t size = 0;
        snprintf(path, sizeof(path), RIG_DIR "/%s", names[i]);
        sim_disk_peek(r->disk, path, &size);
        fprintf(stderr, " %s(%zu)", names[i], size);
        free(names[i]);
    }
    fprintf(stderr, "\n");
    free(names);
}

static void check_state(struct model *m) {
    struct kb_log *log = m->rig.log;
    struct kb_pid_state s;
    struct kb_epochs e;
    kb_pid_state_init(&s);
    kb_epochs_init(&e);
    for (size_t i = 0; i < m->count; i++) {
        const struct kw_batch_header *h = &m->v[i].h;
        assert_int_equal(kb_pid_update(&s, h, h->base_offset, last_of(&m->v[i]), 0), KW_OK);
        if (last_of(&m->v[i]) < log->start) continue;
        if (h->leader_epoch > kb_epochs_latest(&e)) assert_int_equal(kb_epochs_assign(&e, h->leader_epoch, h->base_offset), KW_OK);
    }
    const struct kb_pid_entry *x, *y;
    for (size_t it = 0; (x = kw_map_next(&s.by_pid, &it));) {
        y = kb_pid_get(log->pids, x->pid);
        if (!y && log->pids->forgetful) continue;
        assert_non_null(y);
        if (getenv("TRACE") && x->batch_count != y->batch_count) list(&m->rig, "now");
        if (x->epoch == y->epoch && y->batch_count < x->batch_count && log->pids->forgetful) continue; /* and says so */
        if (x->epoch != y->epoch || x->batch_count != y->batch_count)
            fail_msg("producer %lld: epoch %d, %d batches; the log says %d, %d (its last at %lld, ours at %lld; leo %lld)\n%s", (long long)x->pid, x->epoch,
                     x->batch_count, y->epoch, y->batch_count, (long long)(y->batch_count ? y->batches[y->batch_count - 1].last_offset : -1),
                     (long long)(x->batch_count ? x->batches[x->batch_count - 1].last_offset : -1), (long long)log->leo, m->rig.lines);
        for (int i = 0; i < x->batch_count; i++) {
            assert_memory_equal(&x->batches[i], &y->batches[i], offsetof(struct kb_pid_batch, holes));
            assert_int_equal(x->batches[i].holes, y->batches[i].holes);
        }
    }
    assert_true(log->pids->forgetful || s.by_pid.count == log->pids->by_pid.count);
    if (e.count) assert_int_equal(kb_epochs_latest(&e), kb_epochs_latest(log->epochs));
    for (int k = 0; k < 10 && m->count; k++) {
        int64_t o = last_of(&m->v[rnd(m, m->count)]);
        if (o < log->start) continue;
        if (kb_epochs_at(&e, o) != kb_epochs_at(log->epochs, o))
            fail_msg("epoch of %lld: %d, the log says %d (first of %zu: %d from %lld; start %lld, leo %lld)", (long long)o, kb_epochs_at(&e, o),
                     kb_epochs_at(log->epochs, o), log->epochs->count, log->epochs->v[0].epoch, (long long)log->epochs->v[0].start, (long long)log->start,
                     (long long)log->leo);
    }
    kb_epochs_deinit(&e);
    kb_pid_state_deinit(&s);
}

static void check_all(struct model *m) {
    struct rig *r = &m->rig;
    check_read(m, r->log->start, r->log->written, SIZE_MAX);
    for (int i = 0; i < 5 && r->log->written > r->log->start; i++)
        check_read(m, r->log->start + (int64_t)rnd(m, (uint64_t)(r->log->written - r->log->start)), r->log->written, 2);
    check_times(m);
}

static void reopen(struct model *m, int64_t at_least) {
    struct rig *r = &m->rig;
    m->truncating = false;
    r->lines[0] = 0;
    rig_open(r);
    if (r->recovery_point > r->log->leo) r->recovery_point = r->log->recovery_point; /* as after a truncation */
    r->log->owner.cut_back = cut_back;
    if (r->log->leo < at_least) fail_msg("offset %lld was safe, the log ends at %lld\n%s", (long long)at_least, (long long)r->log->leo, r->lines);
    model_cut(m, strstr(r->lines, "nothing of it is left") ? 0 : r->log->leo); /* the log start was raised above what was synced */
    m->floor = KW_MIN(at_least, r->log->leo);
    int64_t end = m->count ? last_of(&m->v[m->count - 1]) + 1 : 0;
    assert_true(r->log->leo <= KW_MAX(end, r->log->start)); /* nothing that was never there */
    check_all(m);
    check_state(m);
}

static void crash(struct model *m, bool power) {
    struct rig *r = &m->rig;
    struct kb_log *log = r->log;
    int64_t keep = power ? log->synced : log->written;
    if (m->truncating || log->busy) keep = KW_MIN(keep, m->truncate_to);
    int64_t end = 0; /* a mark in a gap says no more than the batch before it */
    for (size_t i = 0; i < m->count && last_of(&m->v[i]) < keep; i++) end = last_of(&m->v[i]) + 1;
    keep = end;
    r->recovery_point = rnd(m, 3) ? log->recovery_point : r->recovery_point; /* a checkpoint is as old as it is */
    if (r->recovery_point > log->recovery_point && !log->busy && rnd(m, 2)) r->recovery_point = log->recovery_point;
    for (int i = 0; i < LAZY; i++) {
        if (m->lazy[i].busy) kb_read_cancel(&m->lazy[i].k);
        m->lazy[i].busy = false;
    }
    if (getenv("TRACE"))
        fprintf(stderr, "recovery point %lld (the log says %lld), start %lld\n", (long long)r->recovery_point, (long long)log->recovery_point,
                (long long)r->start_checkpoint);
    if (getenv("TRACE")) list(r, "before");
    rig_kill(r, power);
    if (getenv("TRACE")) list(r, "after");
    m->crashes++;
    reopen(m, keep);
}

static void step(struct model *m, bool faults) {
    struct rig *r = &m->rig;
    uint64_t what = rnd(m, 40);
    if (getenv("TRACE"))
        fprintf(stderr, "%llu: start %lld synced %lld written %lld leo %lld%s\n", (unsigned long long)what, (long long)r->log->start, (long long)r->log->synced,
                (long long)r->log->written, (long long)r->log->leo, r->log->busy ? " busy" : "");
    switch (what) {
    case 0: case 1: case 2: case 3: case 4: case 5: case 6: case 7: case 8: case 9: case 10: case 11: case 12: case 13: case 14:
        for (uint64_t n = 1 + rnd(m, 6); n; n--) append(m);
        kb_log_flush(r->log, r->now);
        break;
    case 15: case 16: case 17:
        if (!r->log->poisoned) assert_int_equal(kb_log_sync(r->log), KW_OK);
        break;
    case 18: case 19: case 20: case 21: case 22: case 23: case 24: case 25:
        for (uint64_t n = rnd(m, 30); n && rig_step(r); n--) {}
        break;
    case 26:
        rig_idle(r);
        check_all(m);
        check_state(m);
        break;
    case 27:
        rig_idle(r);
        if (r->log->written > r->log->start) check_read(m, r->log->start + (int64_t)rnd(m, (uint64_t)(r->log->written - r->log->start)), r->log->written, 3);
        break;
    case 28: case 36: case 37:
        lazy_read(m);
        break;
    case 29:
        if (r->log->leo > r->log->start && !m->truncating) {
            m->truncate_to = KW_MAX(r->log->start, r->log->leo - (int64_t)rnd(m, rnd(m, 4) ? 20 : 500));
            m->truncating = kb_log_truncate(r->log, m->truncate_to, truncated, m, r->now) == KW_OK;
            for (size_t i = 0; i < m->count; i++) /* inside a batch: the whole batch goes */
                if (m->v[i].h.base_offset <= m->truncate_to && m->truncate_to <= last_of(&m->v[i])) m->truncate_to = m->v[i].h.base_offset;
        }
        break;
    case 30:
        kb_log_housekeep(r->log, r->log->written, r->now);
        break;
    case 31:
        if (!r->log->busy && r->log->written > r->log->start) {
            int64_t to = r->log->start + (int64_t)rnd(m, (uint64_t)(r->log->written - r->log->start) / 4 + 1);
            assert_int_equal(kb_log_raise_start(r->log, to, r->log->written, r->now), KW_OK);
            r->start_checkpoint = r->log->start;
        }
        break;
    case 32:
        sim_disk_faults(r->disk)->enospc_at = -1;
        rig_idle(r);
        rig_stop(r);
        m->clean++;
        reopen(m, m->count ? last_of(&m->v[m->count - 1]) + 1 : 0);
        break;
    case 33:
        crash(m, false);
        break;
    case 34:
        crash(m, true);
        break;
    case 35:
        if (faults) sim_disk_faults(r->disk)->enospc_at = (int64_t)rnd(m, 8);
        break;
    default:
        rig_advance(r, (int64_t)rnd(m, 100));
        break;
    }
}

static void run(uint64_t seed, int steps) {
    struct model m;
    memset(&m, 0, sizeof(m));
    kw_rng_init(&m.rng, seed);
    struct sim_disk_options o = {10, 3000, (uint32_t)rnd(&m, 1000000), rnd(&m, 2) ? 200000 : 0, 0};
    rig_init(&m.rig, seed, &o);
    m.time = m.rig.now.wall_ms;
    m.rig.config.segment_bytes = 20000 + (int64_t)rnd(&m, 3000000);
    m.rig.config.index_interval_bytes = rnd(&m, 2) ? 4096 : 300;
    m.rig.config.flush_on_ack = rnd(&m, 3) == 0;
    m.rig.config.retention_bytes = rnd(&m, 3) ? -1 : 4000000;
    m.rig.env.open_files_max = 1 + (int32_t)rnd(&m, 5);
    m.rig.env.index_memory_max = (int64_t)rnd(&m, 2) * 2000;
    m.rig.recovery_point = 0; /* as the node says when it made the folder */
    bool faults = rnd(&m, 2) == 0;
    reopen(&m, 0);
    for (int i = 0; i < steps && !m.rig.log->poisoned; i++) step(&m, faults);
    sim_disk_faults(m.rig.disk)->enospc_at = -1;
    rig_idle(&m.rig);
    if (!m.rig.log->poisoned) {
        check_all(&m);
        rig_stop(&m.rig);
        reopen(&m, m.count ? last_of(&m.v[m.count - 1]) + 1 : 0);
    }
    assert_int_equal(m.rig.failed, 0);
    rig_deinit(&m.rig);
    model_cut(&m, 0);
    free(m.v);
}

static void test_random(void **state) {
    (void)state;
    const char *seed = getenv("SEED"), *seeds = getenv("SEEDS");
    uint64_t from = seed ? strtoull(seed, NULL, 10) : 1, n = seeds ? strtoull(seeds, NULL, 10) : seed ? 1 : 40;
    for (uint64_t s = from; s < from + n; s++) {
        if (getenv("RIG_LOG") || seeds) fprintf(stderr, "seed %llu\n", (unsigned long long)s);
        run(s, 400);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
