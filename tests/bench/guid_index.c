/* guid_index.c - what the GUID index costs alone: nanoseconds to find and add an id with so many runs, bytes an id on disk and in memory, the time that a
 * start takes to load it. Built as build/tests/bench_guid_index; the disk is the simulator's, in memory, so that nothing but the index is measured.
 *
 *   bench_guid_index [MILLIONS]    ids in the last part, 10 unless said otherwise
 */
#include "unit/broker/log_rig.h"

#include <time.h>

#include "base/rng.h"
#include "guid/index_priv.h"

enum { BATCH = 100, WINDOW_MS = 3600000, SPAN = 4096 };
static struct rig r;
static struct kw_rng rng;
static struct kb_guid_env env;
static struct kb_guid_index *ix;
static int64_t next_offset;
static uint64_t counter;
static volatile bool opened;

static double ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void on_open(void *ctx, struct kb_guid_index *index, kw_err err, struct kb_now now) {
    (void)ctx, (void)now;
    assert_int_equal(err, KW_OK);
    ix = index;
    opened = true;
}
static void open_index(void) {
    struct kb_guid_open o = {.env = &env, .log = r.log, .window_ms = WINDOW_MS, .trust_to = INT64_MAX, .done = on_open};
    opened = false;
    assert_int_equal(kb_guid_open(&o, &ix, r.now), KW_OK);
    rig_idle(&r);
    assert_true(opened);
}

/* The log needs only to reach so far: a header stands for SPAN records. */
static void extend_log(void) {
    while (r.log->leo < next_offset + 2 * SPAN) {
        uint8_t p[KW_BATCH_HEADER_SIZE];
        struct kw_batch_header h = {.length = sizeof(p) - KW_BATCH_OVERHEAD, .magic = 2, .last_offset_delta = SPAN - 1, .producer_id = -1,
                                    .producer_epoch = -1, .base_sequence = -1, .record_count = 0};
        kw_batch_write_header(p, &h);
        kw_batch_crc_set(p, sizeof(p));
        struct kb_log_append a = {.batch = p, .size = sizeof(p), .leader_epoch = 1, .max_timestamp = -1};
        assert_int_equal(kb_log_append(r.log, &a, r.now), KW_OK);
    }
    kb_log_flush(r.log, r.now);
    rig_idle(&r);
}

static void make_id(bool v7, uint8_t id[16]) {
    kw_store64(id, v7 ? counter++ << 16 | 0x7000 | kw_rng_below(&rng, 4096) : kw_rng_next(&rng));
    kw_store64(id + 8, kw_rng_next(&rng));
}

static void find_done(struct kb_guid_find *f, struct kb_now now) {
    (void)now;
    *(bool *)f->ctx = true;
}

struct cost {
    double find_ns, add_ns;
    int64_t ids, waits;
};

/* As a produce does: a batch is looked up, then added. */
static void batch(bool v7, struct cost *c) {
    struct kb_guid_entry v[BATCH], found[BATCH];
    bool done = false;
    for (int i = 0; i < BATCH; i++) {
        make_id(v7, v[i].id);
        v[i].offset = next_offset + i;
        v[i].payload = 1;
    }
    struct kb_guid_find f = {.index = ix, .ids = v[0].id, .stride = sizeof(v[0]), .count = BATCH, .found = found, .done = find_done, .ctx = &done};
    double from = ns();
    int32_t x = kb_guid_find(&f, r.now);
    double between = ns();
    if (x == 0) {
        c->waits++;
        rig_idle(&r);
    }
    double again = ns();
    assert_int_equal(kb_guid_add(ix, next_offset, next_offset + BATCH, v, BATCH, r.now), KW_OK);
    c->add_ns += ns() - again;
    c->find_ns += between - from;
    c->ids += BATCH;
    next_offset += BATCH;
}

static void begin(void) {
    const struct sim_disk_options fast = {.inline_ppm = 1000000};
    rig_init(&r, 1, &fast);
    kw_rng_init(&rng, 1);
    rig_open(&r);
    kb_guid_env_init(&env, &r.queue, &r.logger, &rng);
    env.started = r.now;
    next_offset = 0;
    counter = (uint64_t)1 << 40;
    open_index();
    extend_log();
}
static void end(void) {
    kb_guid_free(ix);
    rig_idle(&r);
    rig_deinit(&r);
}

static void fill(bool v7, int64_t ids) {
    struct cost c = {0};
    for (int64_t n = 0; n < ids; n += BATCH) {
        if (r.log->leo < next_offset + SPAN) extend_log();
        batch(v7, &c);
    }
}

/* `runs` of 256 Ki ids that may not be merged, and half a table. */
static void probe(bool v7, int runs) {
    begin();
    ix->merge_retry_us = INT64_MAX; /* so many, whatever they are like */
    for (int i = 0; i < runs; i++) {
        fill(v7, 262100);
        kb_guid_freeze(ix);
        extend_log();
        kb_guid_work(ix, r.now);
        rig_idle(&r);
        r.now.mono_us += (int64_t)WINDOW_MS * 1000 / 30;
        r.now.wall_ms += WINDOW_MS / 30;
    }
    fill(v7, 100000);
    struct cost c = {0};
    for (int i = 0; i < 1000; i++) {
        if (r.log->leo < next_offset + SPAN) extend_log();
        batch(v7, &c);
    }
    printf("UUIDv%d, %2zu runs: %4.0f ns an id to find, %4.0f ns to add, %.1f%% of the batches of %d have to read\n", v7 ? 7 : 4, ix->run_count,
           c.find_ns / (double)c.ids, c.add_ns / (double)c.ids, 100.0 * (double)c.waits * BATCH / (double)c.ids, BATCH);
    end();
}

static void size(int64_t millions) {
    begin();
    double from = ns();
    fill(false, millions * 1000000);
    kb_guid_freeze(ix);
    extend_log();
    for (int i = 0; i < 40; i++) {
        kb_guid_work(ix, r.now);
        rig_idle(&r);
    }
    double filled = ns();
    struct kb_guid_stats s;
    kb_guid_stats(ix, &s);
    double sealed = (double)s.memory_bytes / (double)s.entries;
    printf("%lld ids, %lld runs after %lld flushes and %lld merges: %.2f bytes an id on disk, %.2f in memory; %.0f ns an id for all that\n",
           (long long)s.entries, (long long)s.runs, (long long)s.flushes, (long long)s.merges, (double)s.disk_bytes / (double)s.entries, sealed,
           (filled - from) / (double)s.entries);
    printf("100 million ids: %.0f MB, and the tables (at most 64 MB of them)\n", sealed * 100e6 / 1e6);
    kb_guid_free(ix);
    rig_idle(&r);
    from = ns();
    open_index();
    printf("opened in %.0f ms of CPU, to offset %lld of %lld\n", (ns() - from) / 1e6, (long long)kb_guid_end(ix), (long long)next_offset);
    end();
}

int main(int argc, char **argv) {
    for (int runs = 0; runs <= 24; runs += 8)
        for (int v7 = 1; v7 >= 0; v7--) probe(v7, runs);
    size(argc > 1 ? atoi(argv[1]) : 10);
    return 0;
}
