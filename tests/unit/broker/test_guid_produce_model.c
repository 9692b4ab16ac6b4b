/* test_guid_produce_model.c - producers with overlapping ids against one node that is restarted, killed, short of disk and of memory, with an index that
 * has to read its files, which rot and go, records that are deleted, producers that begin anew: each id is stored once within its window, and what a
 * producer was told is where it was told (invariants 3, 4, 6 and 14). */
#include "guid_rig.h"

#include "replica/guids.h"

enum { ACTORS = 4, IDS_ALL = 600, CLAIMS_MAX = 20000 };

struct actor {
    struct rig_conn *c;
    struct guids g;
    int32_t next_seq, correlation;
    bool busy, sent, idempotent, plain; /* plain: knows nothing of ranges */
    int16_t acks;
    int64_t pid;
};
struct claim {
    int64_t offset;
    uint64_t id;
};
struct model_kind {
    const char *memory; /* guid.index.memory.bytes */
    uint64_t pause_us;
    int64_t window_ms; /* 0: longer than all of it */
    bool rough;        /* the index's files rot and go, clocks are set, records deleted */
};
struct model {
    struct rig r;
    struct model_kind kind;
    bool deleted; /* records were */
    int64_t set_ms; /* the clock, so far */
    struct kw_rng rng;
    struct actor a[ACTORS];
    bool sent[IDS_ALL + 1]; /* ids that are acknowledged */
    int64_t run_reads;      /* of the indexes so far */
    struct claim claims[CLAIMS_MAX];
    size_t claim_count, done, refused, duplicates;
    int32_t correlation;
};

static uint64_t draw(struct model *m, uint64_t n) { return kw_rng_below(&m->rng, n); }

static void claim(struct model *m, int64_t offset, uint64_t id) {
    assert_true(m->claim_count < CLAIMS_MAX);
    m->claims[m->claim_count++] = (struct claim){offset, id};
}

static void new_batch(struct model *m, struct actor *a) {
    a->g = (struct guids){.count = 1 + (int32_t)draw(m, 12), .codec = draw(m, 3) == 0 ? KW_CODEC_LZ4 : KW_CODEC_NONE};
    for (int32_t i = 0; i < a->g.count; i++) a->g.ids[i] = i > 0 && draw(m, 8) == 0 ? a->g.ids[draw(m, (uint64_t)i)] : 1 + draw(m, IDS_ALL);
    if (a->idempotent) {
        a->g.pid = a->pid;
        a->g.seq = a->next_seq;
    }
    a->busy = true;
    a->sent = false;
}

static void send(struct model *m, struct actor *a) {
    if (!a->c || !a->c->conn) a->c = rig_connect(&m->r);
    a->correlation = ++m->correlation;
    a->sent = true;
    rig_request(a->c, KW_API_PRODUCE, 9, a->correlation, &guid_msg(&m->r, "t", a->acks, !a->plain, &a->g)->req);
}

/* The producer died: another sends what it had under way, and goes on. */
static void begin_anew(struct model *m, struct actor *a) {
    if (!a->idempotent) return;
    a->pid += ACTORS;
    a->next_seq = 0;
    a->g.pid = a->pid;
    a->g.seq = 0;
    if (a->c && a->c->conn) kb_conn_closed(a->c->conn, m->r.now);
    if (a->c) a->c->conn = NULL;
    a->sent = false;
}

/* Every record of the batch is where it was told to be. */
static void take_success(struct model *m, struct actor *a, const rig_produced *p) {
    bool told[GUIDS_MAX] = {false};
    assert_int_equal(p->guid.deduped, !a->plain);
    for (int32_t i = 0; i < p->guid.ranges.n; i++) {
        const struct kw_produce_response_guid_range *v = &p->guid.ranges.v[i];
        assert_true(v->flags == 0 || (v->flags == 2 && (m->deleted || m->kind.window_ms))); /* the same payload, and none is forgotten */
        for (int32_t j = 0; j < v->count; j++) {
            if (v->flags == 0) claim(m, v->first_offset + j, a->g.ids[v->index + j]);
            told[v->index + j] = true;
            m->duplicates++;
        }
    }
    for (int32_t i = 0; i < a->g.count; i++) {
        if (!told[i] && !a->plain) claim(m, p->base_offset + i, a->g.ids[i]);
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
    if (p.error_code == KE_NONE || (a->plain && p.error_code == KE_DUPLICATE_SEQUENCE_NUMBER)) {
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
    int64_t last[IDS_ALL + 1], first[IDS_ALL + 1];
    rig_settle(&m->r);
    struct kb_log *log = guid_log_of(&m->r);
    guid_read(&m->r, log, &l);
    uint64_t *at = calloc((size_t)l.end + 1, sizeof(*at));
    for (size_t i = 0; i < l.count; i++) {
        at[l.v[i].offset] = l.v[i].id;
        if (seen[l.v[i].id]++ && (!m->kind.window_ms || l.v[i].timestamp - last[l.v[i].id] < m->kind.window_ms))
            fail_msg("id %llu is stored twice, at offset %lld and at %lld", (unsigned long long)l.v[i].id, (long long)first[l.v[i].id],
                     (long long)l.v[i].offset);
        first[l.v[i].id] = l.v[i].offset;
        last[l.v[i].id] = l.v[i].timestamp;
    }
    for (size_t i = 0; i < m->claim_count; i++)
        if (m->claims[i].offset >= log->start && at[m->claims[i].offset] != m->claims[i].id)
            fail_msg("id %llu was told to be at offset %lld, where %llu is", (unsigned long long)m->claims[i].id, (long long)m->claims[i].offset,
                     (unsigned long long)at[m->claims[i].offset]);
    for (size_t id = 1; id <= IDS_ALL && !m->deleted; id++) assert_int_equal(seen[id] >= m->sent[id], true);
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

/* One of the index's files, if there is one. */
static char *some_file(struct model *m) {
    char **names, *path = NULL;
    size_t n = sim_disk_names(m->r.disk, "/data/t-0/guid", &names), at = n > 0 ? draw(m, n) : 0;
    for (size_t i = 0; i < n; i++) {
        if (i == at && asprintf(&path, "/data/t-0/guid/%s", names[i]) < 0) path = NULL;
        free(names[i]);
    }
    free(names);
    return path;
}

static void damage(struct model *m) {
    size_t size;
    char *path = some_file(m);
    if (!path) return;
    if (!sim_disk_peek(m->r.disk, path, &size)) size = 0;
    if (draw(m, 6) == 0) sim_disk_remove(m->r.disk, path);
    else if (draw(m, 6) == 0 && size > 0) sim_disk_cut(m->r.disk, path, draw(m, size));
    else if (draw(m, 4) == 0 && size > 0) sim_disk_bad_sector(m->r.disk, path, draw(m, size));
    else if (size > 0) sim_disk_rot(m->r.disk, path, draw(m, size), (uint8_t)(1 + draw(m, 255)));
    free(path);
}

static void go_down(struct model *m, bool kill) {
    note_reads(m);
    for (size_t i = 0; i < ACTORS; i++) m->a[i].c = NULL, m->a[i].sent = false;
    if (kill || draw(m, 2)) sim_disk_faults(m->r.disk)->enospc_ppm = 0;
    if (kill) {
        rig_kill(&m->r);
    } else {
        kb_node_stop(m->r.node, m->r.now);
        for (int i = 0; i < 100 && kb_node_state(m->r.node) != KB_NODE_STOPPED; i++) rig_pass(&m->r, 100000);
        assert_int_equal(kb_node_state(m->r.node), KB_NODE_STOPPED);
        rig_free_node(&m->r);
    }
    sim_disk_faults(m->r.disk)->enospc_ppm = 0;
    if (m->kind.rough && draw(m, 3) == 0) damage(m);
    rig_start(&m->r);
}

/* As a client does: until it is answered a kill brings back what it deleted, and what was stored anew meanwhile is there, too. */
static void delete_some(struct model *m) {
    struct kb_partition *p = rig_partition(&m->r, "t", 0);
    struct kw_delete_records_request req;
    struct kw_delete_records_response resp;
    struct kw_delete_records_request_delete_records_partition part = {0};
    struct kw_delete_records_request_delete_records_topic t = {.name = kw_str_of("t"), .partitions = {&part, 1}};
    if (p->hw <= p->log->start) return;
    part.offset = p->log->start + (int64_t)draw(m, (uint64_t)(p->hw - p->log->start) / 4 + 1);
    kw_msg_init(&kw_delete_records_request_desc, &req);
    req.topics.v = &t;
    req.topics.n = 1;
    req.timeout_ms = 5000;
    sim_disk_faults(m->r.disk)->enospc_ppm = 0;
    rig_call(rig_connect(&m->r), KW_API_DELETE_RECORDS, 2, &req, &resp);
    m->deleted = true;
}

static void be_rough(struct model *m) {
    uint64_t what = draw(m, 600);
    if (what < 4) damage(m);
    if (what == 5) sim_disk_remap(m->r.disk);
    if (what == 6) delete_some(m);
    if (what == 7 && !m->kind.window_ms) { /* less than the window, in all */
        int64_t ms = (int64_t)draw(m, 3000000) - 1500000;
        if (m->set_ms + ms < 1500000 && m->set_ms + ms > -1500000) m->r.now.wall_ms += ms, m->set_ms += ms;
    }
    if (what >= 8 && what < 12) begin_anew(m, &m->a[draw(m, ACTORS)]);
}

static void step(struct model *m) {
    size_t n = draw(m, ACTORS);
    struct actor *a = &m->a[n];
    poll_one(m, a);
    if (!a->busy) new_batch(m, a);
    if (!a->sent && !(a->c && a->c->conn && draw(m, 3) == 0)) send(m, a);
    if (draw(m, 4) == 0) rig_pass(&m->r, (int64_t)draw(m, m->kind.pause_us));
    if (m->kind.rough) be_rough(m);
    uint64_t what = draw(m, 400);
    if (what < 3) go_down(m, what > 0);
    if (what == 3) sim_disk_faults(m->r.disk)->enospc_ppm = 300000;
    if (what > 3 && what < 24) sim_disk_faults(m->r.disk)->enospc_ppm = 0;
    if (what == 24 || what == 25) kw_alloc_fail_after((int64_t)draw(m, 40));
    if (what == 26) verify(m);
}

static void run(uint64_t seed, struct model_kind kind) {
    static struct model m;
    memset(&m, 0, sizeof(m));
    kw_rng_init(&m.rng, seed);
    m.kind = kind;
    rig_init(&m.r, seed);
    sim_disk_faults(m.r.disk)->spare = "__cluster_metadata";
    rig_set(&m.r, "guid.index.memory.bytes", kind.memory);
    rig_set(&m.r, "log.segment.bytes", "20000");
    rig_set(&m.r, "log.message.guid.dedup", "true");
    if (kind.window_ms) {
        char text[32];
        snprintf(text, sizeof(text), "%lld", (long long)kind.window_ms);
        rig_set(&m.r, "log.message.guid.window.ms", text);
        rig_set(&m.r, "log.message.timestamp.type", "LogAppendTime");
    }
    rig_start(&m.r);
    struct rig_conn *c = rig_connect(&m.r);
    assert_int_equal(rig_create(c, "t", 1, NULL, NULL), KE_NONE);
    for (size_t i = 0; i < ACTORS; i++) {
        m.a[i].idempotent = i % 2 == 0;
        m.a[i].pid = 1000 + (int64_t)i;
        m.a[i].plain = kind.rough && i == 2;
        m.a[i].acks = kind.rough && i == 3 ? 1 : -1;
    }
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
    assert_true(m.done > 100 && m.duplicates > 100 && (m.run_reads > 50 || kind.window_ms));
    rig_deinit(&m.r);
}

/* More of them: MODEL_SEEDS=N. */
static uint64_t more(void) {
    const char *n = getenv("MODEL_SEEDS");
    return n ? strtoull(n, NULL, 10) : 0;
}
static void test_in_memory(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 6 + more(); seed++) run(seed, (struct model_kind){.memory = "67108864", .pause_us = 4000});
}
static void test_from_files(void **state) {
    (void)state;
    run(1133, (struct model_kind){.memory = "1", .pause_us = 200000}); /* what a full disk took back was in the list of the index's files */
    for (uint64_t seed = 1001; seed <= 1010 + more(); seed++) run(seed, (struct model_kind){.memory = "1", .pause_us = 200000});
}
static void test_rough(void **state) {
    (void)state;
    for (uint64_t seed = 2001; seed <= 2006 + more(); seed++) run(seed, (struct model_kind){.memory = "1", .pause_us = 200000, .rough = true});
}
static void test_short_window(void **state) {
    (void)state;
    for (uint64_t seed = 3001; seed <= 3006 + more(); seed++)
        run(seed, (struct model_kind){.memory = seed % 2 ? "1" : "67108864",
                                      .pause_us = 200000,
                                      .window_ms = 10000 + (int64_t)seed % 5 * 5000,
                                      .rough = seed % 3 == 0});
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_in_memory), cmocka_unit_test(test_from_files), cmocka_unit_test(test_rough),
                                       cmocka_unit_test(test_short_window)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
