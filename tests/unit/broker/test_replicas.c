/* test_replicas.c - two node cores, each leading and following, whose partitions must end byte-identical whatever stops, dies, loses power, is cut off
 * or hears of the metadata late; and the same with a third for the ways in which a leader's death can go. All is drawn from seeds.
 *
 * REPLICAS_SEED=n runs that one, REPLICAS_SEEDS=n so many.
 */
#include "replica_rig.h"

#include "log/epochs.h"
#include "log/pid_state.h"
#include "wire/frame.h"

enum { PUTS_MAX = 64, ACKED_MAX = 4096, PARTITIONS = 3 };

struct put { /* a produce request under way */
    struct rig_conn *conn; /* NULL: free */
    struct host *host;
    int32_t index;
    int64_t pid;
};
struct acked {
    int32_t index;
    int64_t offset, pid;
};
struct world {
    struct cluster c;
    struct kw_rng rng;
    struct put puts[PUTS_MAX];
    struct acked acked[ACKED_MAX];
    size_t acked_count;
    int64_t next_pid, next_epoch;
    int32_t correlation;
    bool unclean; /* elections of any live replica are made */
    int kills, powers, elections;
};

static uint64_t below(struct world *w, uint64_t n) {
    return kw_rng_below(&w->rng, n);
}
static bool chance(struct world *w, uint32_t percent) {
    return below(w, 100) < percent;
}

/* ---- The controller ---- */

static bool is_in(const struct part_state *s, int32_t id) {
    return (s->isr & 1u << id) != 0;
}
static int32_t first_live(const struct world *w, unsigned mask) {
    for (int32_t i = 0; i < w->c.hosts; i++)
        if ((mask & 1u << i) && !w->c.dead[i]) return i;
    return -1;
}

static void host_died(struct world *w, int32_t id, bool power) {
    w->c.dead[id] = true;
    for (int32_t i = 0; i < PARTITIONS; i++) {
        struct part_state *s = &w->c.parts[1][i];
        unsigned rest = s->isr & ~(1u << id), isr = s->isr;
        if (power && rest)
            isr = rest; /* what it had not synced is lost */
        else if (first_live(w, rest) >= 0)
            isr = rest;
        if (s->leader == id)
            cl_elect(&w->c, 1, i, first_live(w, isr), isr, false);
        else if (isr != s->isr)
            cl_elect(&w->c, 1, i, CL_SAME_LEADER, isr, false);
    }
}

static void host_came(struct world *w, int32_t id) {
    w->c.dead[id] = false;
    w->next_epoch += 10;
    cl_add_broker(&w->c, id, w->next_epoch);
    for (int32_t i = 0; i < PARTITIONS; i++) {
        struct part_state *s = &w->c.parts[1][i];
        if (s->leader >= 0) continue;
        if (is_in(s, id))
            cl_elect(&w->c, 1, i, id, 1u << id, false);
        else if (w->unclean && chance(w, 30))
            cl_elect(&w->c, 1, i, id, 1u << id, true);
    }
}

static void elect_another(struct world *w) {
    int32_t i = (int32_t)below(w, PARTITIONS), to = (int32_t)below(w, (uint64_t)w->c.hosts);
    struct part_state *s = &w->c.parts[1][i];
    if (w->c.dead[to]) return;
    bool clean = is_in(s, to);
    if (!clean && !w->unclean) return;
    cl_elect(&w->c, 1, i, to, clean ? s->isr : 1u << to, !clean);
    w->elections++;
}

/* ---- Producers ---- */

static void put_drop(struct put *p) {
    p->conn = NULL; /* its memory is the rig's */
}

static void produce(struct world *w) {
    int32_t index = (int32_t)below(w, PARTITIONS), leader = w->c.parts[1][index].leader;
    struct put *p = NULL;
    for (size_t i = 0; i < PUTS_MAX && !p; i++)
        if (!w->puts[i].conn) p = &w->puts[i];
    if (!p || leader < 0 || !w->c.h[leader].up) return;
    struct host *h = &w->c.h[leader];
    struct rig_conn *conn = rig_connect(&h->r);
    if (!conn->conn) return;
    *p = (struct put){.conn = conn, .host = h, .index = index, .pid = w->next_pid++};
    struct rig_batch b = {.pid = p->pid, .count = 1 + (int32_t)below(w, 4), .value_size = (size_t)below(w, chance(w, 5) ? 300000 : 2000)};
    size_t n;
    uint8_t *bytes = rig_batch(&h->r, &b, &n);
    struct rig_produce *m = rig_produce_msg(&h->r, "t1", index, chance(w, 80) ? -1 : 1, bytes, n);
    m->req.timeout_ms = 60000;
    rig_request(conn, KW_API_PRODUCE, 9, 1, &m->req);
    if (m->req.acks == 1) put_drop(p); /* it may be lost */
}

static void take_answers(struct world *w) {
    for (size_t i = 0; i < PUTS_MAX; i++) {
        struct put *p = &w->puts[i];
        struct kw_produce_response resp;
        if (!p->conn) continue;
        if (rig_response(p->conn, KW_API_PRODUCE, 9, 1, &resp)) {
            rig_produced a = resp.responses.v[0].partition_responses.v[0];
            if (a.error_code == KE_NONE && w->acked_count < ACKED_MAX)
                w->acked[w->acked_count++] = (struct acked){p->index, a.base_offset, p->pid};
            put_drop(p);
        } else if (!p->conn->conn) {
            put_drop(p);
        }
    }
}

/* ---- What happens ---- */

static void drop_puts(struct world *w, const struct host *h) {
    for (size_t i = 0; i < PUTS_MAX; i++)
        if (w->puts[i].conn && w->puts[i].host == h) put_drop(&w->puts[i]);
}

static bool may_lose_power(const struct world *w, int32_t id) {
    for (int32_t i = 0; i < PARTITIONS; i++)
        if (w->c.parts[1][i].isr == 1u << id) return false;
    return true;
}

static void stop_one(struct world *w, struct host *h) {
    take_answers(w);
    drop_puts(w, h);
    uint64_t how = below(w, 10);
    if (how < 3) {
        cl_stop(h);
        host_died(w, h->id, false);
        return;
    }
    bool power = how < 6 && may_lose_power(w, h->id);
    cl_kill(h, power);
    w->kills++;
    w->powers += power;
    host_died(w, h->id, power);
}

static void step(struct world *w) {
    struct cluster *c = &w->c;
    struct host *h = &c->h[below(w, (uint64_t)c->hosts)];
    uint64_t what = below(w, 100);
    if (what < 60) {
        for (uint64_t n = below(w, 6) + 1; n > 0; n--) produce(w);
    } else if (what < 70) {
        if (h->up) stop_one(w, h);
    } else if (what < 82) {
        if (!h->up) {
            host_came(w, h->id);
            cl_boot_at(h, c->news_count);
        }
    } else if (what < 87) {
        elect_another(w);
    } else if (what < 93) {
        c->held[h->id] = !c->held[h->id];
    } else if (what < 96 && h->up) {
        for (int i = 0; i < PIPES_MAX; i++)
            if (c->pipes[i].used && c->pipes[i].from == h) cl_pipe_close(&c->pipes[i], KB_LINK_RESET);
    }
    for (int i = 0; i < c->hosts; i++)
        if (chance(w, 70)) cl_read(&c->h[i], c->news_count);
    cl_pass(c, (int64_t)below(w, chance(w, 10) ? 3000000 : chance(w, 50) ? 3000 : 200000));
    take_answers(w);
}

/* ---- What must hold ---- */

static void expect_same_state(struct kb_partition *a, struct kb_partition *b) {
    assert_int_equal(a->log->leo, b->log->leo);
    assert_int_equal(a->log->start, b->log->start);
    assert_int_equal(a->log->written, b->log->written);
    assert_int_equal(a->hw, b->hw);
    size_t n = a->log->epochs->count, m = b->log->epochs->count;
    while (n > 0 && a->log->epochs->v[n - 1].start >= a->log->leo) n--; /* begun, and nothing appended */
    while (m > 0 && b->log->epochs->v[m - 1].start >= b->log->leo) m--;
    assert_int_equal(n, m);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(a->log->epochs->v[i].epoch, b->log->epochs->v[i].epoch);
        assert_int_equal(a->log->epochs->v[i].start, b->log->epochs->v[i].start);
    }
    assert_int_equal(a->log->pids->by_pid.count, b->log->pids->by_pid.count);
    const struct kb_pid_entry *e;
    for (size_t it = 0; (e = kw_map_next(&a->log->pids->by_pid, &it));) {
        const struct kb_pid_entry *f = kw_map_get_u64(&b->log->pids->by_pid, (uint64_t)e->pid);
        assert_non_null(f);
        assert_int_equal(e->batch_count, f->batch_count);
        assert_int_equal(e->epoch, f->epoch);
    }
}

static void expect_acked(const struct world *w, int32_t index, const uint8_t *p, size_t n) {
    for (size_t i = 0; i < w->acked_count; i++) {
        const struct acked *a = &w->acked[i];
        if (a->index != index) continue;
        const uint8_t *at = p, *end = p + n;
        struct kw_entry e;
        bool found = false;
        while (!found && kw_entry_next(&at, end, &e) > 0) {
            struct kw_batch_header h;
            assert_int_equal(kw_batch_parse(e.p, e.size, &h), KW_OK);
            found = h.base_offset == a->offset && h.producer_id == a->pid;
        }
        if (!found) fail_msg("acknowledged and gone: partition %d offset %lld producer %lld", index, (long long)a->offset, (long long)a->pid);
    }
}

static void heal(struct world *w) {
    struct cluster *c = &w->c;
    for (int i = 0; i < c->hosts; i++) {
        c->held[i] = false;
        if (c->h[i].up) continue;
        host_came(w, i);
        cl_boot_at(&c->h[i], c->news_count);
    }
    for (int32_t i = 0; i < PARTITIONS; i++)
        if (c->parts[1][i].leader < 0) {
            assert_true(w->unclean);
            cl_elect(c, 1, i, 0, 1, true);
        }
    cl_read_all(c);
    for (int i = 0; i < 60; i++) { /* the rest of the controller's news goes out as it comes */
        cl_pass(c, 1000000);
        cl_read_all(c);
        take_answers(w);
    }
}

static void show(struct world *w) { /* with RIG_LOG */
    for (int32_t i = 0; i < PARTITIONS && getenv("RIG_LOG"); i++)
        for (int j = 0; j < w->c.hosts; j++) {
            const struct kb_partition *p = cl_partition(&w->c.h[j], 1, i);
            const struct part_state *s = &w->c.parts[1][i];
            fprintf(stderr, "t1-%d on %d: state %d role %d leader %d epoch %d/%d isr %x start %lld synced %lld written %lld leo %lld hw %lld busy %d\n", i, j,
                    (int)p->state, (int)p->role, p->leader_id, p->leader_epoch, s->leader_epoch, s->isr, (long long)p->log->start,
                    (long long)p->log->synced, (long long)p->log->written, (long long)p->log->leo, (long long)p->hw, p->log->busy);
            for (size_t k = 0; k < p->log->epochs->count; k++)
                fprintf(stderr, "  epoch %d from %lld\n", p->log->epochs->v[k].epoch, (long long)p->log->epochs->v[k].start);
        }
}

static void expect_whole(struct world *w) {
    struct cluster *c = &w->c;
    show(w);
    for (int32_t i = 0; i < PARTITIONS; i++) {
        struct kb_partition *a = cl_partition(&c->h[0], 1, i);
        for (int j = 1; j < c->hosts; j++) {
            struct kb_partition *b = cl_partition(&c->h[j], 1, i);
            assert_int_equal(a->state, KB_PART_ONLINE);
            assert_int_equal(b->state, KB_PART_ONLINE);
            expect_same_state(a, b);
        }
        assert_int_equal(a->hw, a->log->leo);
        assert_int_equal(c->parts[1][i].isr, (1u << c->hosts) - 1);
    }
    if (!w->unclean)
        for (int j = 0; j < c->hosts; j++) {
            assert_int_equal(kb_followers_stats(c->h[j].r.node)->unclean_truncations, 0);
            assert_null(strstr(c->h[j].r.lines, "no unclean election"));
        }
    for (int j = 0; j < c->hosts; j++) {
        assert_int_equal(kb_followers_stats(c->h[j].r.node)->corrupt, 0);
        cl_stop(&c->h[j]);
    }
    for (int32_t i = 0; i < PARTITIONS; i++) {
        size_t n, m;
        uint8_t *a = cl_log_bytes(&c->h[0], i, &n);
        for (int j = 1; j < c->hosts; j++) {
            uint8_t *b = cl_log_bytes(&c->h[j], i, &m);
            assert_int_equal(n, m);
            assert_memory_equal(a, b, n);
            free(b);
        }
        if (!w->unclean) expect_acked(w, i, a, n);
        free(a);
    }
}

static void run(uint64_t seed, int hosts, bool unclean) {
    struct world *w = calloc(1, sizeof(*w));
    assert_non_null(w);
    if (getenv("RIG_LOG")) fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
    kw_rng_init(&w->rng, seed);
    w->unclean = unclean;
    w->next_pid = 1000;
    w->next_epoch = 100;
    cl_init(&w->c, hosts, seed);
    for (int32_t i = 0; i < hosts; i++) cl_add_broker(&w->c, i, ++w->next_epoch);
    cl_tell(&w->c, (struct news){.kind = NEWS_TOPIC, .topic = 1});
    if (seed % 4 == 3) cl_tell(&w->c, (struct news){.kind = NEWS_CONFIG, .topic = 1, .key = "flush.on.ack", .value = "true"});
    for (int32_t i = 0; i < PARTITIONS; i++) cl_add_partition(&w->c, 1, i, hosts, i % hosts);
    for (int i = 0; i < hosts; i++) cl_boot(&w->c.h[i]);
    for (int i = 0; i < 120; i++) step(w);
    heal(w);
    if (getenv("RIG_LOG")) fprintf(stderr, "acked %zu kills %d powers %d elections %d\n", w->acked_count, w->kills, w->powers, w->elections);
    expect_whole(w);
    cl_deinit(&w->c);
    free(w);
}

/* The leader's records were deleted up to the middle of a batch while the follower was away. */
static void test_start_inside_batch(void **state) {
    (void)state;
    struct cluster *c = calloc(1, sizeof(*c));
    cl_init(c, 2, 5);
    for (int32_t i = 0; i < 2; i++) cl_add_broker(c, i, 100 + i);
    cl_tell(c, (struct news){.kind = NEWS_TOPIC, .topic = 1});
    cl_add_partition(c, 1, 0, 2, 0);
    cl_elect(c, 1, 0, 0, 1, false);
    cl_boot(&c->h[0]);
    struct rig_conn *k = rig_connect(&c->h[0].r);
    for (int i = 0; i < 3; i++) {
        struct rig_batch b = {.pid = -1, .epoch = -1, .seq = -1, .count = 4, .value_size = 100};
        size_t n;
        uint8_t *p = rig_batch(&c->h[0].r, &b, &n);
        struct kw_produce_response resp;
        rig_request(k, KW_API_PRODUCE, 9, 1, &rig_produce_msg(&c->h[0].r, "t1", 0, -1, p, n)->req);
        cl_pass(c, 100000);
        assert_true(rig_response(k, KW_API_PRODUCE, 9, 1, &resp));
        assert_int_equal(resp.responses.v[0].partition_responses.v[0].error_code, KE_NONE);
    }
    struct kb_partition *a = cl_partition(&c->h[0], 1, 0);
    assert_int_equal(a->hw, 12);
    assert_int_equal(kb_log_raise_start(a->log, 6, a->hw, c->now), KW_OK);
    cl_boot(&c->h[1]);
    cl_pass(c, 2000000);
    cl_read_all(c);
    struct kb_partition *b = cl_partition(&c->h[1], 1, 0);
    assert_int_equal(b->log->leo, 12);
    assert_int_equal(b->log->start, 6);
    assert_int_equal(b->hw, 12);
    assert_int_equal(kb_followers_stats(c->h[1].r.node)->resets, 2);
    assert_int_equal(c->parts[1][0].isr, 3);
    cl_deinit(c);
    free(c);
}

static void run_seeds(uint64_t from, int hosts, bool unclean) {
    const char *one = getenv("REPLICAS_SEED"), *many = getenv("REPLICAS_SEEDS");
    uint64_t count = one ? 1 : many ? strtoull(many, NULL, 10) : 20;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t seed = one ? strtoull(one, NULL, 10) : from + i;
        print_message("%s", ""); /* a failure's seed is the one printed last */
        if (many) fprintf(stderr, "seed %llu\r", (unsigned long long)seed);
        run(seed, hosts, unclean);
    }
}

static void test_two(void **state) {
    (void)state;
    run_seeds(1, 2, false);
}
static void test_two_unclean(void **state) {
    (void)state;
    run_seeds(1001, 2, true);
}
static void test_three(void **state) {
    (void)state;
    run_seeds(2001, 3, false);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_start_inside_batch),
                                       cmocka_unit_test(test_two), cmocka_unit_test(test_two_unclean), cmocka_unit_test(test_three)};
    if (getenv("REPLICAS_TEST")) cmocka_set_test_filter(getenv("REPLICAS_TEST"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
