/* test_guid_index.c - the index of one log on the simulated disk: random adds, finds, cuts, flushes, merges, restarts, kills and power losses, time that
 * passes and clocks that jump; each answer is that of a scan of what the log should have (invariant 14). And single cases: rot, a full disk, the memory
 * of many indexes, files that stayed behind, finds that are under way while things change.
 */
#include "log_rig.h"

#include "base/rng.h"
#include "guid/index_priv.h"

struct rec {
    struct kb_guid_entry e;
    int64_t added_us; /* INT64_MIN: the index has not got it, or may have forgotten it */
    int64_t added_wall_ms;
};
static struct rig r;
static struct kw_rng rng, id_rng;
static struct kb_guid_env env;
static struct kb_guid_index *ix;
static struct rec *recs; /* of the log, by its offsets: those with an id */
static size_t rec_count, rec_cap;
static int64_t window_ms;
static bool opened, went_back_, cut_over, stop_over, gone_;
static kw_err open_err;
static int32_t epoch;
static uint64_t seed_now;
static const char *doing = "";
static bool repeats; /* ids come again, as where a topic was not always deduped: then the log's start stays (of three copies in a run two are known) */

static void on_open(void *ctx, struct kb_guid_index *index, kw_err err, struct kb_now now) {
    (void)ctx, (void)now;
    opened = true;
    open_err = err;
    ix = index;
}
static void on_back(void *ctx, struct kb_guid_index *index, struct kb_now now) {
    (void)ctx, (void)now, (void)index;
    went_back_ = true;
}
static void on_flag(void *ctx, struct kb_now now) {
    (void)now;
    *(bool *)ctx = true;
}

static void catch_up(int64_t to) {
    while (kb_guid_end(ix) < to) {
        int64_t from = kb_guid_end(ix), end = KW_MIN(to, from + 1 + (int64_t)kw_rng_below(&rng, 400));
        struct kb_guid_entry v[400];
        size_t n = 0;
        for (size_t i = 0; i < rec_count; i++)
            if (recs[i].e.offset >= from && recs[i].e.offset < end) {
                recs[i].added_us = r.now.mono_us;
                recs[i].added_wall_ms = r.now.wall_ms;
                v[n++] = recs[i].e;
            }
        kw_err err = kb_guid_add(ix, from, end, v, n, r.now);
        if (err == KW_ENOMEM) rig_idle(&r);
        else assert_int_equal(err, KW_OK);
    }
}

static void open_index(int64_t trust_to) {
    struct kb_guid_open o = {.env = &env, .log = r.log, .window_ms = window_ms, .trust_to = trust_to, .done = on_open, .went_back = on_back};
    opened = false;
    assert_int_equal(kb_guid_open(&o, &ix, r.now), KW_OK);
    rig_idle(&r);
    assert_true(opened);
    assert_int_equal(open_err, KW_OK);
    assert_true(kb_guid_end(ix) <= r.log->leo);
    kb_guid_skip(ix, r.log->start);
}

static void start(uint64_t seed) {
    rig_init(&r, seed, NULL);
    r.config.segment_bytes = 20000;
    seed_now = seed;
    kw_rng_init(&rng, seed);
    kw_rng_init(&id_rng, seed + 1000);
    rig_open(&r);
    kb_guid_env_init(&env, &r.queue, &r.logger, &rng);
    env.started = r.now;
    rec_count = 0;
    window_ms = 600000;
    epoch = 1;
    open_index(INT64_MAX);
    kb_guid_skip(ix, r.log->start);
}
static void end(void) {
    kb_guid_free(ix);
    rig_idle(&r);
    assert_int_equal(env.memory_used, 0);
    assert_int_equal(env.memory_frozen, 0);
    assert_int_equal(env.open_files, 0);
    assert_true(kw_list_empty(&env.indexes));
    rig_deinit(&r);
    free(recs);
    recs = NULL;
    rec_cap = rec_count = 0;
}

static void draw_id(uint8_t id[16]) {
    memset(id, 0, 16);
    if (rec_count > 0 && kw_rng_below(&id_rng, 2)) memcpy(id, recs[kw_rng_below(&id_rng, rec_count)].e.id, 16);
    else kw_store64(id + 8, kw_rng_below(&id_rng, repeats ? 600 : 60000) * 0x9e3779b97f4a7c15);
}
static bool is_there(const uint8_t *id) {
    for (size_t i = 0; i < rec_count && !repeats; i++)
        if (recs[i].e.offset >= r.log->start && memcmp(recs[i].e.id, id, 16) == 0) return true;
    return false;
}

/* n records in a batch, of which most have an id; into log, model and index. */
static void append(int32_t n, bool flush) {
    struct rig_batch b = RIG_BATCH;
    struct kb_guid_entry v[64];
    size_t ids = 0;
    b.count = n;
    b.value_size = 20;
    b.leader_epoch = epoch;
    int64_t base = rig_append(&r, &b);
    for (int32_t i = 0; i < n; i++) {
        if (kw_rng_below(&rng, 10) == 0) continue;
        struct kb_guid_entry e = {.offset = base + i, .payload = (uint32_t)kw_rng_next(&rng)};
        draw_id(e.id);
        if (is_there(e.id)) continue;
        v[ids++] = e;
        if (rec_count == rec_cap) recs = realloc(recs, (rec_cap = rec_cap * 2 + 100) * sizeof(*recs));
        recs[rec_count++] = (struct rec){e, INT64_MIN, 0};
    }
    if (flush) kb_log_flush(r.log, r.now);
    if (kb_guid_end(ix) < base) return;
    kw_err err = kb_guid_add(ix, base, r.log->leo, v, ids, r.now);
    if (err == KW_ENOMEM) return;
    assert_int_equal(err, KW_OK);
    for (size_t i = rec_count - ids; i < rec_count; i++) {
        recs[i].added_us = r.now.mono_us;
        recs[i].added_wall_ms = r.now.wall_ms;
    }
}

static void cut_model(int64_t to) {
    while (rec_count > 0 && recs[rec_count - 1].e.offset >= to) rec_count--;
}

/* Which copy, if any: must: added within the window. may: somewhere in the log. */
static void expect(const uint8_t *id, const struct kb_guid_entry *got) {
    bool must = false, is = false;
    int64_t first_must = INT64_MAX;
    for (size_t i = 0; i < rec_count; i++) {
        const struct rec *x = &recs[i];
        if (memcmp(x->e.id, id, 16) != 0 || x->e.offset < r.log->start || x->e.offset >= kb_guid_end(ix)) continue;
        if (x->added_us > INT64_MIN && r.now.mono_us - x->added_us < window_ms * 1000) {
            must = true;
            first_must = KW_MIN(first_must, x->e.offset);
        }
        if (got->offset == x->e.offset) {
            is = true;
            assert_int_equal(got->payload, x->e.payload);
        }
    }
    if (got->offset >= 0 && !is)
        fail_msg("an offset (%lld) that has not got this id; log %lld to %lld", (long long)got->offset, (long long)r.log->start, (long long)r.log->leo);
    if (must && got->offset < 0 && !(repeats && r.log->start > 0))
        fail_msg("seed %d: an id at offset %lld is not found; index to %lld; last: %s", (int)seed_now, (long long)first_must,
                 (long long)kb_guid_end(ix), doing);
}

static void find_done(struct kb_guid_find *f, struct kb_now now) {
    (void)now;
    *(bool *)f->ctx = true;
}

static void find_some(size_t n) {
    uint8_t ids[64][16];
    struct kb_guid_entry found[64];
    bool done = false;
    for (size_t i = 0; i < n; i++) draw_id(ids[i]);
    struct kb_guid_find f = {.index = ix, .ids = ids[0], .stride = 16, .count = n, .found = found, .done = find_done, .ctx = &done};
    int32_t x = kb_guid_find(&f, r.now);
    assert_true(x >= 0);
    if (x == 0) rig_idle(&r);
    assert_true(x == 1 || done);
    assert_int_equal(f.err, KW_OK);
    size_t hits = 0;
    for (size_t i = 0; i < n; i++) {
        expect(ids[i], &found[i]);
        hits += found[i].offset >= 0;
    }
    assert_int_equal(f.hits, hits);
}

static void do_cut(int64_t to) {
    to = KW_MAX(to, r.log->start);
    doing = "cut";
    kb_log_flush(r.log, r.now);
    rig_idle(&r);
    cut_over = false;
    int32_t x = kb_guid_cut(ix, to, on_flag, &cut_over, r.now);
    if (x == 0) rig_idle(&r);
    assert_true(x == 1 || cut_over);
    rig_truncate(&r, to);
    if (r.log->leo < to) { /* it was inside of a batch */
        cut_over = false;
        x = kb_guid_cut(ix, r.log->leo, on_flag, &cut_over, r.now);
        if (x == 0) rig_idle(&r);
        assert_true(x == 1 || cut_over);
    }
    cut_model(r.log->leo);
    epoch++;
    assert_int_equal(kb_guid_end(ix), r.log->leo);
}

/* What a table of this size does every 256 Ki entries. */
static void force_flush(void) {
    kb_guid_freeze(ix);
    kb_log_flush(r.log, r.now);
    kb_guid_work(ix, r.now);
    if (kw_rng_below(&rng, 3)) rig_idle(&r);
    kb_guid_work(ix, r.now);
}

static void stop_index(void) {
    stop_over = false;
    assert_int_equal(kb_guid_shutdown(ix, on_flag, &stop_over, r.now), KW_OK);
    rig_idle(&r);
    if (!stop_over) kb_guid_work(ix, r.now); /* the log is written by now */
    rig_idle(&r);
    assert_true(stop_over);
}

static void set_clock(void) {
    if (kw_rng_below(&rng, 2)) r.now.wall_ms += (int64_t)kw_rng_below(&rng, 7200000) - 3600000;
}
/* What it would say, had it not been set since the process started. */
static int64_t wall_unset(void) {
    return env.started.wall_ms + (r.now.mono_us - env.started.mono_us) / 1000;
}

static void restart(int how) { /* 0 clean, 1 killed, 2 power */
    doing = how == 0 ? "restart" : how == 1 ? "kill" : "power";
    kb_log_flush(r.log, r.now);
    if (how == 0 || kw_rng_below(&rng, 2)) rig_idle(&r);
    if (kw_rng_below(&rng, 2)) kb_log_sync(r.log) == KW_OK ? rig_idle(&r) : (void)0;
    int64_t point = r.log->recovery_point;
    r.start_checkpoint = r.log->start; /* DeleteRecords is told once that is stored */
    if (how == 0) {
        stop_index();
        int64_t covered = kb_guid_end(ix);
        kb_guid_free(ix);
        rig_restart(&r);
        env.started = r.now;
        set_clock();
        open_index(INT64_MAX);
        if (covered == r.log->leo && !went_back_ && r.log->leo > r.log->start && ix->run_count > 0)
            assert_int_equal(kb_guid_end(ix), covered); /* nothing is read again */
    } else {
        kb_guid_free(ix);
        rig_kill(&r, how == 2);
        kb_guid_env_init(&env, &r.queue, &r.logger, &rng);
        env.started = r.now;
        set_clock();
        rig_recover(&r, point);
        cut_model(r.log->leo);
        epoch++;
        open_index(how == 2 ? point : INT64_MAX);
    }
    /* Across a restart the wall clock says how old what was written is. */
    for (size_t i = 0; i < rec_count; i++)
        if (recs[i].added_us > INT64_MIN && r.now.mono_us - recs[i].added_us < window_ms * 1000) /* else it may be forgotten by now */
            recs[i].added_us = r.now.mono_us - KW_MAX(wall_unset() - recs[i].added_wall_ms, INT64_C(0)) * 1000;
        else
            recs[i].added_us = INT64_MIN;
    catch_up(r.log->leo);
}

/* More of them: MODEL_SEEDS=N. */
static uint64_t more(void) {
    const char *n = getenv("MODEL_SEEDS");
    return n ? strtoull(n, NULL, 10) : 0;
}

static void test_model(void **state) {
    (void)state;
    int64_t flushes = 0, merges = 0, reads = 0;
    for (uint64_t seed = 0; seed < 24 + more(); seed++) {
        start(seed);
        repeats = seed % 4 == 0;
        went_back_ = false;
        uint64_t busy = seed % 3 ? 30 : 200; /* pages that are read while other things happen */
        for (int i = 0; i < 1500; i++) {
            uint64_t what = kw_rng_below(&rng, 1000);
            if (what < 450) append(1 + (int32_t)kw_rng_below(&rng, 30), kw_rng_below(&rng, 2));
            else if (what < 800) find_some(1 + kw_rng_below(&rng, 40));
            else if (what < 800 + busy / 2) force_flush();
            else if (what < 910) rig_advance(&r, (int64_t)kw_rng_below(&rng, 2) * (int64_t)kw_rng_below(&rng, 20000));
            else if (what < 915) set_clock();
            else if (what < 920 && r.log->leo > r.log->start) do_cut(r.log->leo - (int64_t)kw_rng_below(&rng, kw_rng_below(&rng, 3) ? 60 : 3000));
            else if (what < 924) restart((int)kw_rng_below(&rng, 3));
            else if (what < 926) {
                kb_log_flush(r.log, r.now);
                rig_idle(&r);
                int64_t to = r.log->start + (int64_t)kw_rng_below(&rng, (uint64_t)(r.log->leo - r.log->start) / 3 + 1);
                assert_int_equal(kb_log_raise_start(r.log, to, r.log->leo, r.now), KW_OK);
            } else if (what < 930) rig_idle(&r);
            kb_guid_work(ix, r.now);
            catch_up(r.log->leo);
        }
        struct kb_guid_stats s;
        kb_guid_stats(ix, &s);
        flushes += s.flushes, merges += s.merges, reads += s.run_reads;
        assert_true(s.runs <= 24);
        if (strstr(r.lines, "/guid")) fail_msg("%s", r.lines); /* nothing was damaged */
        end();
    }
    assert_true(flushes > 200 && merges > 20 && reads > 1000);
}

static int64_t put(const char *id, struct kb_guid_entry *e) {
    struct rig_batch b = RIG_BATCH;
    b.leader_epoch = epoch;
    *e = (struct kb_guid_entry){.offset = rig_append(&r, &b), .payload = 7};
    memset(e->id, 0, 16);
    memcpy(e->id, id, strlen(id));
    assert_int_equal(kb_guid_add(ix, e->offset, e->offset + 1, e, 1, r.now), KW_OK);
    kb_log_flush(r.log, r.now);
    return e->offset;
}
static void to_run(void) {
    kb_guid_freeze(ix);
    rig_idle(&r);
    kb_guid_work(ix, r.now);
    rig_idle(&r);
    assert_int_equal(ix->table_count, 0);
}
static int64_t find_one(const struct kb_guid_entry *e, kw_err *err) {
    struct kb_guid_entry out;
    bool done = false;
    struct kb_guid_find f = {.index = ix, .ids = e->id, .stride = 16, .count = 1, .found = &out, .done = find_done, .ctx = &done};
    int32_t x = kb_guid_find(&f, r.now);
    if (x == 0) rig_idle(&r);
    if (err) *err = x < 0 ? x : f.err;
    return x < 0 || f.err ? -2 : out.offset;
}

static void test_rot(void **state) { /* a page, and a run that is gone: read again */
    (void)state;
    for (int how = 0; how < 2; how++) {
        struct kb_guid_entry a, b, c;
        kw_err err;
        start(1);
        put("a", &a);
        to_run();
        put("b", &b);
        to_run();
        put("c", &c);
        to_run();
        assert_int_equal(ix->run_count, 3);
        assert_int_equal(find_one(&b, &err), 1);
        kb_guid_run_close(ix->runs[1]);
        rig_idle(&r);
        if (how) sim_disk_remove(r.disk, ix->runs[1]->path);
        else sim_disk_rot(r.disk, ix->runs[1]->path, 3, 1);
        went_back_ = false;
        assert_int_equal(find_one(&b, &err), -2);
        assert_int_equal(err, KW_EIO);
        assert_true(went_back_);
        assert_int_equal(kb_guid_end(ix), 1);
        assert_int_equal(find_one(&a, &err), 0);
        assert_int_equal(kb_guid_add(ix, 1, 2, &b, 1, r.now), KW_OK);
        assert_int_equal(kb_guid_add(ix, 2, 3, &c, 1, r.now), KW_OK);
        assert_int_equal(find_one(&b, &err), 1);
        assert_int_equal(find_one(&c, &err), 2);
        rig_idle(&r);
        size_t names = 0;
        char **v;
        for (names = sim_disk_names(r.disk, RIG_DIR "/guid", &v); names > 0; names--) free(v[names - 1]);
        free(v);
        end();
    }
}

static void test_expiry_and_hold(void **state) {
    (void)state;
    struct kb_guid_entry a, b;
    start(2);
    assert_true(kb_guid_hold_from(ix) == INT64_MAX);
    put("a", &a);
    to_run();
    rig_advance(&r, window_ms / 2);
    put("b", &b);
    assert_int_equal(kb_guid_hold_from(ix), 0);
    assert_int_equal(kb_guid_count(ix, 0, 2), 2); /* one in a run, one in a table */
    assert_int_equal(kb_guid_count(ix, 1, 9), 1);
    assert_int_equal(kb_guid_count(ix, 2, 9), 0);
    rig_advance(&r, window_ms / 2 - 10000);
    assert_int_equal(find_one(&a, NULL), 0);
    r.now.wall_ms += 100 * window_ms; /* not by the wall clock */
    assert_int_equal(find_one(&a, NULL), 0);
    rig_advance(&r, 10001);
    assert_int_equal(find_one(&a, NULL), -1);
    assert_int_equal(kb_guid_hold_from(ix), 1);
    kb_guid_work(ix, r.now);
    rig_idle(&r);
    char **v;
    size_t n = sim_disk_names(r.disk, RIG_DIR "/guid", &v); /* its file went */
    assert_int_equal(n, 1);
    free(v[0]);
    free(v);
    assert_int_equal(find_one(&b, NULL), 1);
    rig_advance(&r, window_ms);
    assert_int_equal(find_one(&b, NULL), -1);
    assert_true(kb_guid_hold_from(ix) == INT64_MAX);
    end();
}

static void test_a_restart_knows_the_age(void **state) {
    (void)state;
    struct kb_guid_entry a;
    start(3);
    put("a", &a);
    stop_index();
    kb_guid_free(ix);
    rig_restart(&r);
    r.now.wall_ms += window_ms - 60000; /* the machine was off */
    env.started = r.now;
    open_index(INT64_MAX);
    assert_int_equal(kb_guid_end(ix), 1);
    assert_int_equal(find_one(&a, NULL), 0);
    rig_advance(&r, 60001);
    assert_int_equal(find_one(&a, NULL), -1);
    end();
}

/* A clock that is set after the start, before the index is open or while it is, makes nothing older. */
static void test_a_clock_that_is_set(void **state) {
    (void)state;
    struct kb_guid_entry a, b;
    start(4);
    put("a", &a);
    stop_index();
    kb_guid_free(ix);
    rig_restart(&r);
    env.started = r.now;
    rig_advance(&r, 1000);
    r.now.wall_ms += 100 * window_ms;
    open_index(INT64_MAX);
    assert_int_equal(kb_guid_end(ix), 1);
    assert_int_equal(find_one(&a, NULL), 0);
    rig_advance(&r, window_ms / 2);
    r.now.wall_ms -= 200 * window_ms;
    put("b", &b);
    stop_index();
    kb_guid_free(ix);
    rig_restart(&r); /* the log; the process goes on */
    r.now.wall_ms += 100 * window_ms;
    open_index(INT64_MAX);
    assert_int_equal(find_one(&a, NULL), 0);
    assert_int_equal(find_one(&b, NULL), 1);
    rig_advance(&r, window_ms - 10000);
    assert_int_equal(find_one(&b, NULL), 1);
    end();
}

/* What the log does not bear out: dedup was off while it was cut and went on under another epoch. */
static void test_files_that_stayed_behind(void **state) {
    (void)state;
    struct kb_guid_entry a, b, c;
    start(4);
    put("a", &a);
    to_run();
    put("b", &b);
    put("c", &c);
    to_run();
    kb_guid_free(ix);
    rig_idle(&r);
    rig_truncate(&r, 2);
    epoch = 9;
    struct rig_batch batch = RIG_BATCH;
    batch.leader_epoch = epoch;
    batch.count = 10;
    rig_append(&r, &batch);
    rig_flush(&r);
    open_index(INT64_MAX);
    assert_int_equal(ix->run_count, 1);
    assert_int_equal(kb_guid_end(ix), 1);
    assert_int_equal(find_one(&a, NULL), 0);
    assert_int_equal(find_one(&c, NULL), -1);
    kb_guid_free(ix);
    rig_idle(&r);
    open_index(INT64_MAX); /* and it is gone for good */
    assert_int_equal(ix->run_count, 1);
    gone_ = false;
    assert_int_equal(kb_guid_remove(ix, on_flag, &gone_), KW_OK);
    rig_idle(&r);
    assert_true(gone_);
    assert_false(rig_exists(&r, RIG_DIR "/guid/manifest"));
    open_index(INT64_MAX);
    assert_int_equal(kb_guid_end(ix), 0);
    end();
}

/* The masks of a cut were not stored, and the log has grown again, by what an earlier leader had where the run knows of the later one's records. */
static void test_an_earlier_epoch_where_the_log_ends(void **state) {
    (void)state;
    struct kb_guid_entry a, b, c;
    start(7);
    epoch = 4;
    put("a", &a);
    epoch = 5;
    put("b", &b);
    put("c", &c);
    to_run();
    kb_guid_free(ix);
    rig_idle(&r);
    rig_truncate(&r, 1);
    struct rig_batch batch = RIG_BATCH;
    batch.leader_epoch = 4;
    batch.count = 1;
    rig_append(&r, &batch);
    rig_flush(&r);
    open_index(INT64_MAX);
    assert_int_equal(find_one(&b, NULL), -1);
    assert_int_equal(kb_guid_end(ix), 0); /* how much of it is true nobody can tell */
    end();
}

static void test_a_full_disk(void **state) { /* tables wait; a cut goes on without a list of the files */
    (void)state;
    struct kb_guid_entry a, b;
    start(5);
    put("a", &a);
    to_run();
    put("b", &b);
    rig_idle(&r);
    sim_disk_faults(r.disk)->enospc_ppm = 1000000;
    kb_guid_freeze(ix);
    kb_guid_work(ix, r.now);
    rig_idle(&r);
    assert_int_equal(ix->run_count, 1);
    assert_int_equal(find_one(&b, NULL), 1);
    assert_non_null(strstr(r.lines, "cannot be written"));
    cut_over = false;
    assert_int_equal(kb_guid_cut(ix, 0, on_flag, &cut_over, r.now), 0);
    rig_idle(&r);
    assert_true(cut_over);
    assert_false(rig_exists(&r, RIG_DIR "/guid/manifest"));
    sim_disk_faults(r.disk)->enospc_ppm = 0;
    rig_truncate(&r, 0);
    epoch++;
    put("b", &b);
    rig_idle(&r);
    rig_advance(&r, 11000);
    to_run();
    assert_int_equal(find_one(&b, NULL), 0);
    assert_int_equal(find_one(&a, NULL), -1);
    assert_true(rig_exists(&r, RIG_DIR "/guid/manifest"));
    end();
}

static void test_memory_of_many(void **state) { /* the largest are written first, and nothing goes far beyond */
    (void)state;
    start(6);
    env.memory_max = 300000;
    struct rig_batch b = RIG_BATCH;
    b.value_size = 1;
    uint64_t n = 0;
    int64_t most = 0;
    for (int i = 0; i < 300; i++) {
        struct kb_guid_entry v[200];
        b.count = 200;
        b.leader_epoch = epoch;
        int64_t base = rig_append(&r, &b);
        for (int k = 0; k < 200; k++) {
            v[k] = (struct kb_guid_entry){.offset = base + k};
            kw_store64(v[k].id, ++n * 0x9e3779b97f4a7c15);
        }
        kb_log_flush(r.log, r.now);
        kw_err err;
        for (int tries = 0; (err = kb_guid_add(ix, base, base + 200, v, 200, r.now)) == KW_ENOMEM; tries++) {
            assert_true(tries < 100);
            rig_advance(&r, 100);
        }
        assert_int_equal(err, KW_OK);
        most = KW_MAX(most, env.memory_used);
    }
    assert_true(most < 900000);
    rig_idle(&r);
    for (int i = 0; i < 50; i++) {
        kb_guid_work(ix, r.now);
        rig_idle(&r);
    }
    struct kb_guid_stats s;
    kb_guid_stats(ix, &s);
    assert_true(s.runs <= 24);
    assert_true(s.merges > 0);
    for (uint64_t i = 1; i <= n; i += 997) {
        struct kb_guid_entry e = {0};
        kw_store64(e.id, i * 0x9e3779b97f4a7c15);
        assert_int_equal(find_one(&e, NULL), (int64_t)i - 1);
    }
    end();
}

static void on_one_of_many(void *ctx, struct kb_guid_index *index, kw_err err, struct kb_now now) {
    (void)ctx, (void)index, (void)now;
    assert_int_equal(err, KW_OK);
}

/* Of many indexes those with the largest tables are to be written, and no more of them than it takes; whatever was added, frozen and dropped before. The log
 * is not written, so that no table goes. */
static void test_the_largest_of_many_come_first(void **state) {
    (void)state;
    enum { MANY = 60, MOST = 2048 };
    static struct kb_guid_entry v[MOST];
    struct kb_guid_index *many[MANY];
    start(7);
    for (int i = 0; i < MANY; i++) {
        struct kb_guid_open o = {.env = &env, .log = r.log, .window_ms = window_ms, .trust_to = INT64_MAX, .done = on_one_of_many};
        assert_int_equal(kb_guid_open(&o, &many[i], r.now), KW_OK);
    }
    rig_idle(&r);
    struct rig_batch b = RIG_BATCH;
    b.count = 128;
    b.value_size = 1;
    b.leader_epoch = epoch;
    while (r.log->leo < MOST) rig_append(&r, &b);
    for (int i = 0; i < MANY; i++) {
        int64_t from = kb_guid_end(many[i]);
        size_t n = (size_t)16 << kw_rng_below(&rng, 8);
        for (size_t k = 0; k < n; k++) {
            v[k] = (struct kb_guid_entry){.offset = from + (int64_t)k};
            kw_store64(v[k].id, kw_rng_next(&rng));
        }
        assert_int_equal(kb_guid_add(many[i], from, from + (int64_t)n, v, n, r.now), KW_OK);
        if (i % 10 == 3) kb_guid_freeze(many[i]);
        if (i % 10 == 4) kb_guid_table_drop(many[i], 0);
        if (i % 10 == 5) assert_int_equal(kb_guid_cut(many[i], from + 1, NULL, NULL, r.now), 1);
    }
    for (int64_t part = 9; part > 0; part--) { /* ever less memory, down to none */
        env.memory_max = part > 1 ? (env.memory_used - env.memory_frozen) * (part - 1) / part : 0;
        v[0].offset = kb_guid_end(many[0]);
        assert_int_equal(kb_guid_add(many[0], v[0].offset, v[0].offset + 1, v, 1, r.now), env.memory_used > 2 * env.memory_max ? KW_ENOMEM : KW_OK);
        assert_true(env.memory_used - env.memory_frozen <= env.memory_max);
        int64_t least_frozen = INT64_MAX, most_open = 0;
        for (int i = 1; i < MANY; i++) {
            if (i % 10 == 3 || i % 10 == 4 || i % 10 == 5) continue;
            int64_t memory = kb_guid_table_memory(many[i]->tables[0]);
            if (many[i]->tables[0]->frozen) least_frozen = KW_MIN(least_frozen, memory);
            else most_open = KW_MAX(most_open, memory);
        }
        if (least_frozen <= most_open / 2) fail_msg("one of %d is to be written, one of %d is not", (int)least_frozen, (int)most_open);
    }
    for (int i = 0; i < MANY; i++) kb_guid_free(many[i]);
    rig_idle(&r);
    for (size_t i = 0; i < KB_GUID_SIZES; i++) assert_true(kw_list_empty(&env.open_by_size[i]));
    end();
}

/* A run of n ids, from `id` on, so far apart. */
static void put_run(uint64_t id, uint64_t step, int n) {
    struct rig_batch b = RIG_BATCH;
    struct kb_guid_entry v[64];
    b.count = n;
    b.leader_epoch = epoch;
    int64_t base = rig_append(&r, &b);
    for (int k = 0; k < n; k++) {
        v[k] = (struct kb_guid_entry){.offset = base + k};
        kw_store64(v[k].id, id + (uint64_t)k * step);
    }
    kb_log_flush(r.log, r.now);
    assert_int_equal(kb_guid_add(ix, base, base + n, v, (size_t)n, r.now), KW_OK);
    to_run();
}
static void test_what_is_merged(void **state) {
    (void)state;
    for (int spread = 0; spread < 2; spread++) {
        start(8);
        size_t most = 0;
        for (uint64_t i = 0; i < 100; i++) {
            put_run(spread ? i + 1 : i * 100 + 1, spread ? 1000 : 1, 20);
            most = KW_MAX(most, ix->run_count);
            /* Ids that grow (UUIDv7): runs that keep apart cost a find nothing, and are merged eight at a time; others as soon as there are four. */
            if (i < 8) assert_int_equal(ix->run_count, spread ? (i < 3 ? i + 1 : i < 7 ? i - 2 : 1) : i < 7 ? i + 1 : 1);
        }
        assert_true(most <= KB_GUID_LIVE_MAX + 1);
        for (uint64_t i = 0; i < 100; i++) {
            struct kb_guid_entry e = {0};
            kw_store64(e.id, spread ? i + 1 + 1000 : i * 100 + 2);
            assert_int_equal(find_one(&e, NULL), (int64_t)i * 20 + 1);
        }
        end();
    }
}

/* A find that reads while its log grows, is cut and goes on: its answer is that of the end. */
static void test_find_meanwhile(void **state) {
    (void)state;
    struct kb_guid_entry a, b, out[2];
    uint8_t ids[2][16];
    for (int what = 0; what < 5; what++) {
        bool done = false;
        start(7);
        put("a", &a);
        to_run();
        memcpy(ids[0], a.id, 16);
        memset(ids[1], 0, 16);
        memcpy(ids[1], "b", 1);
        struct kb_guid_find f = {.index = ix, .ids = ids[0], .stride = 16, .count = 2, .found = out, .done = find_done, .ctx = &done};
        assert_int_equal(kb_guid_find(&f, r.now), 0);
        if (what == 0) {
            put("b", &b);
        } else if (what == 1) {
            put("b", &b);
            kb_guid_freeze(ix);
            kb_guid_work(ix, r.now);
        } else if (what == 2) {
            assert_int_equal(kb_guid_cut(ix, 0, on_flag, &cut_over, r.now), 0);
        } else if (what == 3) {
            kb_guid_find_cancel(&f);
        } else {
            put("b", &b);
            rig_idle(&r);
            assert_int_equal(kb_log_raise_start(r.log, 1, 2, r.now), KW_OK);
            done = false;
            assert_int_equal(kb_guid_find(&f, r.now), 1);
            done = true;
        }
        rig_idle(&r);
        assert_int_equal(done, what != 3);
        if (what != 3) {
            assert_int_equal(f.err, KW_OK);
            assert_int_equal(out[0].offset, what == 2 || what == 4 ? -1 : 0);
            assert_int_equal(out[1].offset, what == 2 ? -1 : 1);
        }
        if (what == 4) {
            struct kb_guid_stats s;
            kb_guid_stats(ix, &s);
            assert_int_equal(s.forgotten, 1);
        }
        end();
    }
}

static void test_no_memory(void **state) {
    (void)state;
    for (int64_t at = 0; at < 60; at++) {
        struct kb_guid_entry a;
        start(8);
        put("a", &a);
        kw_alloc_fail_after(at);
        kb_guid_freeze(ix);
        kb_guid_work(ix, r.now);
        for (int i = 0; i < 200 && rig_step(&r); i++) (void)0;
        kb_guid_work(ix, r.now);
        for (int i = 0; i < 200 && rig_step(&r); i++) (void)0;
        kw_err err;
        int64_t x = find_one(&a, &err);
        kw_alloc_fail_after(-1);
        assert_true(x == 0 || err == KW_ENOMEM || err == KW_EIO);
        rig_advance(&r, 11000);
        catch_up(r.log->leo);
        if (kb_guid_end(ix) < 1) assert_int_equal(kb_guid_add(ix, 0, 1, &a, 1, r.now), KW_OK);
        end();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rot), cmocka_unit_test(test_expiry_and_hold), cmocka_unit_test(test_a_restart_knows_the_age),
                                       cmocka_unit_test(test_a_clock_that_is_set), cmocka_unit_test(test_files_that_stayed_behind),
                                       cmocka_unit_test(test_an_earlier_epoch_where_the_log_ends), cmocka_unit_test(test_a_full_disk),
                                       cmocka_unit_test(test_memory_of_many), cmocka_unit_test(test_the_largest_of_many_come_first),
                                       cmocka_unit_test(test_what_is_merged), cmocka_unit_test(test_find_meanwhile), cmocka_unit_test(test_no_memory),
                                       cmocka_unit_test(test_model)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
