/* test_guid_produce_model.c - producers with overlapping ids against one node that is restarted, killed, short of disk and of memory, with an index that
 * has to read its files: each id is stored once, and what a producer was told is where it was told (invariants 3, 4, 6 and 14). */
#include "guid_rig.h"

#include "replica/guids.h"

enum { ACTORS = 4, IDS_ALL = 600, CLAIMS_MAX = 20000 };

struct actor {
    struct rig_conn *c;
    struct guids g;
    int32_t next_seq, correlation;
    bool busy, sent, idempotent;
};
struct claim {
    int64_t offset;
    uint64_t id;
};
struct model {
    struct rig r;
    struct kw_rng rng;
    struct actor a[ACTORS];
    bool sent[IDS_ALL + 1]; /* ids that are acknowledged */
    int64_t run_reads;      /* of the indexes so far */
    uint64_t pause_us;
    struct claim claims[CLAIMS_MAX];
    size_t claim_count, done, refused, duplicates;
    int32_t correlation;
};

static uint64_t draw(struct model *m, uint64_t n) { return kw_rng_below(&m->rng, n); }

static void claim(struct model *m, int64_t offset, uint64_t id) {
    assert_true(m->claim_count < CLAIMS_MAX);
    m->claims[m->claim_count++] = (struct claim){offset, id};
}

static void new_batch(struct model *m, struct actor *a, size_t n) {
    a->g = (struct guids){.count = 1 + (int32_t)draw(m, 12), .codec = draw(m, 3) == 0 ? KW_CODEC_LZ4 : KW_CODEC_NONE};
    for (int32_t i = 0; i < a->g.count; i++) a->g.ids[i] = 1 + draw(m, IDS_ALL);
    if (a->idempotent) {
        a->g.pid = 1000 + (int64_t)n;
        a->g.seq = a->next_seq;
    }
    a->busy = true;
    a->sent = false;
}

static void send(struct model *m, struct actor *a) {
    if (!a->c || !a->c->conn) a->c = rig_connect(&m->r);
    a->correlation = ++m->correlation;
    a->sent = true;
    rig_request(a->c, KW_API_PRODUCE, 9, a->correlation, &guid_msg(&m->r, "t", -1, true, &a->g)->req);
}

/* Every record of the batch is where it was told to be. */
static void take_success(struct model *m, struct actor *a, const rig_produced *p) {
    bool told[GUIDS_MAX] = {false};
    assert_true(p->guid.deduped);
    for (int32_t i = 0; i < p->guid.ranges.n; i++) {
        const struct kw_produce_response_guid_range *v = &p->guid.ranges.v[i];
        assert_int_equal(v->flags, 0); /* the same payload, and none is forgotten */
        for (int32_t j = 0; j < v->count; j++) {
            claim(m, v->first_offset + j, a->g.ids[v->index + j]);
            told[v->index + j] = true;
            m->duplicates++;
        }
    }
    for (int32_t i = 0; i < a->g.count; i++) {
        if (!told[i]) claim(m, p->base_offset + i, a->g.ids[i]);
        m->sent[a->g.ids[i]] = true;
    }
    a->busy = false;
    a->next_seq += a->g.count;
    m->done++;
}

static void poll_one(struct model *m, struct actor *a) {
    rig_produced p;
    if (!a->busy || !a->sent) return;
    if (!a->c->conn) {
        a->sent = false;
        return;
    }
    if (!guid_answer(a->c, a->correlation, &p)) return;
    a->sent = false;
    if (p.error_code == KE_NONE) {
        take_success(m, a, &p);
        return;
    }
    bool retriable = p.error_code == KE_KAFKA_STORAGE_ERROR || p.error_code == KE_NOT_LEADER_OR_FOLLOWER || p.error_code == KE_REQUEST_TIMED_OUT;
    if (!retriable) fail_msg("%s: %.*s", kw_kerror_name(p.error_code), KW_MAX(p.error_message.len, 0), p.error_message.p);
    m->refused++;
}

static void verify(struct model *m) {
    struct guid_log l;
    uint8_t seen[IDS_ALL + 1] = {0};
    rig_settle(&m->r);
    struct kb_log *log = guid_log_of(&m->r);
    guid_read(&m->r, log, &l);
    uint64_t *at = calloc((size_t)l.end + 1, sizeof(*at));
    for (size_t i = 0; i < l.count; i++) {
        at[l.v[i].offset] = l.v[i].id;
        if (seen[l.v[i].id]++) fail_msg("id %llu is stored twice, the second time at offset %lld", (unsigned long long)l.v[i].id, (long long)l.v[i].offset);
    }
    for (size_t i = 0; i < m->claim_count; i++)
        if (at[m->claims[i].offset] != m->claims[i].id)
            fail_msg("id %llu was told to be at offset %lld, where %llu is", (unsigned long long)m->claims[i].id, (long long)m->claims[i].offset,
                     (unsigned long long)at[m->claims[i].offset]);
    for (size_t id = 1; id <= IDS_ALL; id++) assert_int_equal(seen[id] >= m->sent[id], true);
    free(at);
    free(l.v);
}

static void note_reads(struct model *m) {
    struct kb_guid_stats v;
    struct kb_partition *p = kb_image_topic(&m->r.node->image, kw_str_of("t"))->partitions[0].local;
    struct kb_guid_index *index = p ? kb_guids_index(p) : NULL;
    if (!index) return;
    kb_guid_stats(index, &v);
    m->run_reads += v.run_reads;
}

static void go_down(struct model *m, bool kill) {
    note_reads(m);
    for (size_t i = 0; i < ACTORS; i++) m->a[i].c = NULL, m->a[i].sent = false;
    sim_disk_faults(m->r.disk)->enospc_ppm = 0;
    if (kill) rig_kill(&m->r);
    else rig_stop(&m->r);
    rig_start(&m->r);
}

static void step(struct model *m) {
    size_t n = draw(m, ACTORS);
    struct actor *a = &m->a[n];
    poll_one(m, a);
    if (!a->busy) new_batch(m, a, n);
    if (!a->sent && !(a->c && a->c->conn && draw(m, 3) == 0)) send(m, a);
    if (draw(m, 4) == 0) rig_pass(&m->r, (int64_t)draw(m, m->pause_us));
    uint64_t what = draw(m, 400);
    if (what < 3) go_down(m, what > 0);
    if (what == 3) sim_disk_faults(m->r.disk)->enospc_ppm = 300000;
    if (what > 3 && what < 24) sim_disk_faults(m->r.disk)->enospc_ppm = 0;
    if (what == 24 || what == 25) kw_alloc_fail_after((int64_t)draw(m, 40));
    if (what == 26) verify(m);
}

static void run(uint64_t seed, const char *memory, uint64_t pause_us) {
    static struct model m;
    memset(&m, 0, sizeof(m));
    kw_rng_init(&m.rng, seed);
    m.pause_us = pause_us;
    rig_init(&m.r, seed);
    sim_disk_faults(m.r.disk)->spare = "__cluster_metadata";
    rig_set(&m.r, "guid.index.memory.bytes", memory);
    rig_set(&m.r, "log.segment.bytes", "20000");
    rig_set(&m.r, "log.message.guid.dedup", "true");
    rig_start(&m.r);
    struct rig_conn *c = rig_connect(&m.r);
    assert_int_equal(rig_create(c, "t", 1, NULL, NULL), KE_NONE);
    for (size_t i = 0; i < ACTORS; i++) m.a[i].idempotent = i % 2 == 0;
    for (int i = 0; i < 3000; i++) {
        step(&m);
        kw_alloc_fail_after(-1);
        if (kb_node_state(m.r.node) == KB_NODE_FAILED) go_down(&m, true); /* it had no memory to go on */
    }
    sim_disk_faults(m.r.disk)->enospc_ppm = 0;
    for (int i = 0; i < 200; i++) {
        bool any = false;
        for (size_t j = 0; j < ACTORS; j++) {
            poll_one(&m, &m.a[j]);
            if (m.a[j].busy && !m.a[j].sent) send(&m, &m.a[j]);
            any = any || m.a[j].busy;
        }
        if (!any) break;
        rig_pass(&m.r, 1000000);
    }
    for (size_t j = 0; j < ACTORS; j++) assert_false(m.a[j].busy);
    verify(&m);
    note_reads(&m);
    if (getenv("RIG_LOG"))
        fprintf(stderr, "seed %d: %zu batches, %zu refusals, %zu duplicates, %zu claims, %lld reads of runs\n", (int)seed, m.done, m.refused, m.duplicates,
                m.claim_count, (long long)m.run_reads);
    assert_true(m.done > 100 && m.duplicates > 100 && m.run_reads > 50);
    rig_deinit(&m.r);
}

/* More of them: MODEL_SEEDS=N. */
static uint64_t more(void) {
    const char *n = getenv("MODEL_SEEDS");
    return n ? strtoull(n, NULL, 10) : 0;
}
static void test_in_memory(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 6 + more(); seed++) run(seed, "67108864", 4000);
}
static void test_from_files(void **state) {
    (void)state;
    run(1133, "1", 200000); /* what a full disk took back was in the list of the index's files */
    for (uint64_t seed = 1001; seed <= 1010 + more(); seed++) run(seed, "1", 200000);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_in_memory), cmocka_unit_test(test_from_files)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
