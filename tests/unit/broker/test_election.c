/* test_election.c - each rule of the election by itself; together, and under faults: test_election_model.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#include "quorum/election.h"
#include "wire/kerror.h"

#define MS 1000ll
#define FETCH (1000 * MS)
#define ELECT (500 * MS)

struct rig {
    struct kb_election e;
    struct kw_rng rng;
    struct kb_log_end end;
    int64_t now;
    bool hold; /* nothing is stored until rig_stored */
    bool storing;
    struct kb_election_state disk, writing;
    struct kb_election_send sent[64];
    int sent_n, views, stores, finds, found[8];
    struct kb_election_view view;
    struct kb_election_reply *replies[8];
    int reply_n;
};

static struct kb_log_end log_end(void *ctx) {
    return ((struct rig *)ctx)->end;
}

static void turn(struct rig *r) {
    struct kb_election_action a;
    while (kb_election_next(&r->e, &a, r->now)) switch (a.kind) {
        case KB_ELECT_STORE:
            r->stores++;
            r->writing = a.state;
            r->storing = true;
            if (r->hold) break;
            r->storing = false;
            r->disk = a.state;
            kb_election_stored(&r->e, r->now);
            break;
        case KB_ELECT_VIEW:
            r->views++;
            r->view = kb_election_view(&r->e);
            break;
        case KB_ELECT_REPLY:
            r->replies[r->reply_n++] = a.reply;
            break;
        case KB_ELECT_SEND:
            assert_int_equal(a.to, a.send.to);
            assert_true(r->sent_n < 64);
            r->sent[r->sent_n++] = a.send;
            break;
        case KB_ELECT_FIND:
            assert_true(r->finds < 8);
            r->found[r->finds++] = a.to;
            break;
        }
}

static void stored(struct rig *r) {
    assert_true(r->storing);
    r->storing = false;
    r->disk = r->writing;
    kb_election_stored(&r->e, r->now);
    turn(r);
}

static struct kb_election_options options(struct rig *r, int voters) {
    struct kb_election_options o = {.id = 1,
                                    .directory = {{1}},
                                    .cluster_id = "c",
                                    .voter_count = (size_t)voters,
                                    .fetch_timeout_us = FETCH,
                                    .election_timeout_us = ELECT,
                                    .backoff_max_us = 1000 * MS,
                                    .request_timeout_us = 2000 * MS,
                                    .retry_backoff_us = 20 * MS,
                                    .rng = &r->rng,
                                    .log_end = log_end,
                                    .ctx = r};
    for (int i = 0; i < voters; i++) o.voters[i] = i + 1;
    return o;
}

static void up_with(struct rig *r, const struct kb_election_options *o, struct kb_election_state s) {
    r->view = (struct kb_election_view){.leader_id = -1};
    r->disk = s;
    kb_election_init(&r->e, o);
    assert_int_equal(kb_election_start(&r->e, &s, r->now), KW_OK);
    turn(r);
}

static const struct kb_election_state NEW = {.leader_id = -1, .voted_id = -1};

/* Node 1 of 1..voters, epoch 5, log (5, 100), nobody known. */
static void up(struct rig *r, int voters) {
    *r = (struct rig){.now = 1000000 * MS, .end = {5, 100}};
    kw_rng_init(&r->rng, 7);
    struct kb_election_options o = options(r, voters);
    struct kb_election_state s = NEW;
    s.epoch = 5;
    up_with(r, &o, s);
}

static void forward(struct rig *r, int64_t us) {
    r->now += us;
    kb_election_tick(&r->e, r->now);
    turn(r);
}

/* On to the next deadline. */
static int64_t wait_for(struct rig *r) {
    int64_t at = kb_election_deadline(&r->e), from = r->now;
    assert_true(at != INT64_MAX);
    forward(r, KW_MAX(at - r->now, 0));
    return r->now - from;
}

static void answer(struct rig *r, int i, struct kb_election_reply a) {
    kb_election_answered(&r->e, &r->sent[i], &a, r->now);
    turn(r);
}
static struct kb_election_reply yes(int32_t epoch) {
    return (struct kb_election_reply){.leader_id = -1, .epoch = epoch, .granted = true};
}
static struct kb_election_reply no(int32_t epoch, int32_t leader) {
    return (struct kb_election_reply){.leader_id = leader, .epoch = epoch};
}

static struct kb_election_request request(enum kb_election_kind kind, int32_t from, int32_t epoch) {
    struct kb_election_request q = {
        .kind = kind, .cluster_id = kw_str_of("c"), .voter_id = 1, .epoch = epoch, .from = from, .log_end = {5, 100}};
    q.from_directory.b[0] = (uint8_t)from;
    return q;
}
static struct kb_election_request vote_of(int32_t from, int32_t epoch) {
    return request(KB_VOTE, from, epoch);
}
static struct kb_election_request pre_vote_of(int32_t from, int32_t epoch) {
    struct kb_election_request q = vote_of(from, epoch);
    q.pre_vote = true;
    return q;
}

static struct kb_election_reply ask(struct rig *r, struct kb_election_request q) {
    struct kb_election_reply a = {.error = 77};
    r->reply_n = 0;
    kb_election_ask(&r->e, &q, &a, r->now);
    turn(r);
    assert_int_equal(r->reply_n, 1);
    assert_ptr_equal(r->replies[0], &a);
    return a;
}

static void follow(struct rig *r, int32_t leader, int32_t epoch) {
    struct kb_election_reply a = ask(r, request(KB_BEGIN_EPOCH, leader, epoch));
    assert_int_equal(a.error, KE_NONE);
    assert_int_equal(r->view.leader_id, leader);
    assert_int_equal(kb_election_role(&r->e), KB_FOLLOWER);
}

/* Through pre-vote and vote: all that is asked is granted. */
static void elect(struct rig *r) {
    while (kb_election_role(&r->e) != KB_PROSPECTIVE) wait_for(r);
    for (int i = 0; kb_election_role(&r->e) != KB_LEADER; i++) {
        assert_true(i < r->sent_n);
        answer(r, i, yes(r->sent[i].request.epoch));
    }
    assert_true(r->view.leads);
}

/* ---- Start ---- */

static void test_one(void **state) {
    (void)state;
    struct rig r = {.now = 5, .end = {7, 100}};
    struct kb_election_options o = options(&r, 1);
    struct kb_election_state s = NEW;
    o.rng = NULL; /* draws nothing */
    s.epoch = 3;
    assert_int_equal(kb_election_claim(&o, &s, 7), KW_OK);
    assert_int_equal(s.epoch, 8);
    assert_int_equal(s.leader_id, 1);
    assert_int_equal(s.voted_id, 1);
    up_with(&r, &o, s);
    assert_true(r.view.leads && r.view.epoch == 8 && r.views == 1);
    assert_int_equal(r.stores + r.sent_n + r.finds, 0);
    assert_true(kb_election_deadline(&r.e) == INT64_MAX);
    forward(&r, 3600 * 1000 * MS);
    assert_true(kb_election_view(&r.e).leads);
    kb_election_resign(&r.e, r.now);
    turn(&r);
    assert_true(kb_election_resigned(&r.e) && r.view.leader_id == -1);
    s.epoch = KB_EPOCH_MAX;
    assert_int_equal(kb_election_claim(&o, &s, 0), KW_ELIMIT);
}

static void test_start(void **state) {
    (void)state;
    struct rig r;
    up(&r, 3);
    assert_int_equal(r.stores + r.sent_n + r.views, 0);
    assert_true(wait_for(&r) < 20 * MS);
    assert_int_equal(kb_election_role(&r.e), KB_PROSPECTIVE);
    assert_int_equal(r.sent_n, 2);
    assert_true(r.sent[0].request.pre_vote && r.sent[0].request.epoch == 5 && r.sent[0].to == 2 && r.sent[1].to == 3);
    assert_true(r.sent[0].request.log_end.epoch == 5 && r.sent[0].request.log_end.offset == 100);
    assert_int_equal(r.stores, 0); /* a pre-vote persists nothing */
    /* A log that knows more than quorum-state: that epoch is stored before anything. */
    struct kb_election_options o = options(&r, 3);
    r.end.epoch = 9;
    r.hold = true;
    r.sent_n = 0;
    up_with(&r, &o, NEW);
    assert_int_equal(r.writing.epoch, 9);
    forward(&r, 2 * ELECT);
    assert_int_equal(r.sent_n, 0);
    stored(&r);
    assert_int_equal(r.sent[0].request.epoch, 9);
    struct kb_election_state bad = {.epoch = -1};
    assert_int_equal(kb_election_start(&r.e, &bad, r.now), KW_EINVAL);
}

/* ---- Votes ---- */

static void test_vote_is_stored_first(void **state) {
    (void)state;
    struct rig r;
    up(&r, 3);
    r.hold = true;
    struct kb_election_request q = vote_of(2, 6);
    struct kb_election_reply a, b;
    kb_election_ask(&r.e, &q, &a, r.now);
    turn(&r);
    assert_true(r.storing && r.writing.epoch == 6 && r.writing.voted_id == 2 && r.writing.voted_directory.b[0] == 2);
    assert_int_equal(r.reply_n, 0);
    assert_int_equal(kb_election_view(&r.e).epoch, 5); /* outwardly nothing has happened */
    q = vote_of(3, 6);
    kb_election_ask(&r.e, &q, &b, r.now); /* asked meanwhile: the same wait */
    turn(&r);
    assert_int_equal(r.reply_n, 0);
    stored(&r);
    assert_int_equal(r.reply_n, 2);
    assert_true(r.replies[0] == &a && a.granted && a.epoch == 6);
    assert_true(r.replies[1] == &b && !b.granted && b.epoch == 6 && b.leader_id == -1);
    /* The same once more, after a restart too; never another; nor one of that id with another disk. */
    struct kb_election_options o = options(&r, 3);
    up_with(&r, &o, r.disk);
    assert_int_equal(kb_election_role(&r.e), KB_VOTED);
    assert_true(ask(&r, vote_of(2, 6)).granted);
    assert_false(ask(&r, vote_of(3, 6)).granted);
    q = vote_of(2, 6);
    q.from_directory.b[0] = 99;
    assert_false(ask(&r, q).granted);
}

static void test_reply_forgotten(void **state) {
    (void)state;
    struct rig r;
    up(&r, 3);
    r.hold = true;
    struct kb_election_request q = vote_of(2, 6);
    struct kb_election_reply a, b;
    kb_election_ask(&r.e, &q, &a, r.now);
    kb_election_ask(&r.e, &q, &b, r.now);
    kb_election_forget(&r.e, &a);
    turn(&r);
    stored(&r);
    assert_int_equal(r.reply_n, 1);
    assert_ptr_equal(r.replies[0], &b);
    kb_election_forget(&r.e, &b);
}

static void test_log_comparison(void **state) {
    (void)state;
    static const struct {
        int32_t epoch;
        int64_t offset;
        bool granted;
    } cases[] = {{5, 100, true}, {5, 99, false}, {5, 101, true}, {4, 1000, false}, {6, 1, true}};
    for (size_t i = 0; i < KW_COUNTOF(cases); i++)
        for (int pre = 0; pre < 2; pre++) {
            struct rig r;
            up(&r, 3);
            struct kb_election_request q = vote_of(2, 7);
            q.pre_vote = pre;
            q.log_end = (struct kb_log_end){cases[i].epoch, cases[i].offset};
            struct kb_election_reply a = ask(&r, q);
            assert_int_equal(a.granted, cases[i].granted);
            assert_int_equal(a.epoch, 7);
            assert_int_equal(r.disk.voted_id, !pre && cases[i].granted ? 2 : -1);
        }
}

static void test_pre_vote(void **state) {
    (void)state;
    struct rig r;
    up(&r, 3);
    assert_true(ask(&r, pre_vote_of(2, 5)).granted);
    assert_true(ask(&r, pre_vote_of(3, 5)).granted);
    assert_int_equal(r.stores, 0);
    follow(&r, 2, 5);
    struct kb_election_reply a = ask(&r, pre_vote_of(3, 5));
    assert_false(a.granted);
    assert_int_equal(a.leader_id, 2);
    forward(&r, FETCH - 1);
    assert_false(ask(&r, pre_vote_of(3, 5)).granted);
    kb_election_leader_answered(&r.e, 2, 5, r.now); /* heard again */
    forward(&r, FETCH - 1);
    assert_false(ask(&r, pre_vote_of(3, 5)).granted);
    r.now += 1; /* late for its tick, and yet right */
    a = ask(&r, pre_vote_of(3, 5));
    assert_true(a.granted && a.leader_id == -1);
    /* In a higher epoch: learnt, or the one who asks would have no way back. */
    follow(&r, 2, 5);
    a = ask(&r, pre_vote_of(3, 6));
    assert_true(a.granted && a.epoch == 6 && r.disk.epoch == 6 && r.disk.voted_id == -1);
}

static void test_hearsay(void **state) {
    (void)state;
    struct rig r;
    up(&r, 3);
    wait_for(&r);
    answer(&r, 1, no(5, 2)); /* 3 says that 2 leads */
    assert_int_equal(r.view.leader_id, 2);
    assert_int_equal(kb_election_role(&r.e), KB_FOLLOWER);
    struct kb_election_reply a = ask(&r, pre_vote_of(3, 5)); /* not heard of it itself: does not vouch for it */
    assert_true(a.granted && a.leader_id == -1);
    kb_election_leader_answered(&r.e, 2, 5, r.now);
    assert_false(ask(&r, pre_vote_of(3, 5)).granted);
}

static void test_refusals(void **state) {
    (void)state;
    struct rig r;
    up(&r, 3);
    struct kb_election_request q = vote_of(2, 6);
    q.cluster_id = kw_str_of("other");
    assert_int_equal(ask(&r, q).top_error, KE_INCONSISTENT_CLUSTER_ID);
    q.cluster_id = kw_str_null();
    q.voter_id = 2;
    assert_int_equal(ask(&r, q).error, KE_INVALID_VOTER_KEY);
    q.voter_id = -1;
    q.voter_directory.b[0] = 9;
    assert_int_equal(ask(&r, q).error, KE_INVALID_VOTER_KEY);
    assert_int_equal(ask(&r, vote_of(4, 6)).error, KE_INCONSISTENT_VOTER_SET);
    assert_int_equal(ask(&r, vote_of(1, 6)).error, KE_INVALID_REQUEST); /* in this node's own name */
    assert_int_equal(ask(&r, vote_of(2, INT32_MAX)).error, KE_INVALID_REQUEST);
    assert_int_equal(ask(&r, vote_of(2, -3)).error, KE_INVALID_REQUEST);
    assert_int_equal(ask(&r, vote_of(2, 5)).error, KE_INVALID_REQUEST); /* its log is of the epoch that it wants to be elected for */
    for (int kind = KB_VOTE; kind <= KB_END_EPOCH; kind++) {
        q = request((enum kb_election_kind)kind, 2, 4);
        q.log_end.epoch = 3;
        struct kb_election_reply a = ask(&r, q);
        assert_int_equal(a.error, KE_FENCED_LEADER_EPOCH);
        assert_true(a.epoch == 5 && !a.granted);
    }
    assert_int_equal(r.stores, 0); /* no epoch of such requests is believed */
    follow(&r, 2, 6);
    assert_int_equal(ask(&r, request(KB_BEGIN_EPOCH, 3, 6)).error, KE_INVALID_REQUEST);
    kb_election_heard(&r.e, 3, 3, 6, r.now);
    turn(&r);
    assert_int_equal(r.view.leader_id, 2);
    assert_false(ask(&r, vote_of(3, 6)).granted); /* the epoch has its leader */
    assert_int_equal(kb_election_check(&r.e, 5), KE_FENCED_LEADER_EPOCH);
    assert_int_equal(kb_election_check(&r.e, 6), KE_NOT_LEADER_OR_FOLLOWER);
    assert_int_equal(kb_election_check(&r.e, 7), KE_UNKNOWN_LEADER_EPOCH);
}

/* ---- Being elected ---- */

static void test_election(void **state) {
    (void)state;
    struct rig r;
    up(&r, 5);
    wait_for(&r);
    r.hold = true;
    assert_int_equal(r.sent_n, 4);
    answer(&r, 0, yes(5));
    assert_int_equal(kb_election_role(&r.e), KB_PROSPECTIVE);
    answer(&r, 1, yes(5));
    assert_int_equal(kb_election_role(&r.e), KB_CANDIDATE);
    assert_true(r.writing.epoch == 6 && r.writing.voted_id == 1 && r.writing.leader_id == -1);
    assert_int_equal(r.sent_n, 4); /* nothing before that is stored */
    stored(&r);
    assert_int_equal(r.sent_n, 6); /* 4 and 5 have still to answer the first */
    assert_true(!r.sent[4].request.pre_vote && r.sent[4].request.epoch == 6);
    answer(&r, 2, yes(5)); /* which says nothing about this epoch */
    answer(&r, 3, no(5, -1));
    assert_int_equal(r.sent_n, 8);
    answer(&r, 4, yes(6));
    assert_int_equal(kb_election_role(&r.e), KB_CANDIDATE);
    answer(&r, 7, yes(6));
    assert_true(r.view.leads && r.view.epoch == 6 && r.view.leader_id == 1);
    assert_int_equal(r.writing.leader_id, 1); /* held nothing up */
    assert_true(r.storing && r.sent[8].request.kind == KB_BEGIN_EPOCH && r.sent[8].to == 2 && r.sent[9].to == 5);
    assert_int_equal(kb_election_check(&r.e, 6), KE_NONE);
    assert_false(ask(&r, pre_vote_of(2, 6)).granted);
    assert_int_equal(ask(&r, pre_vote_of(2, 6)).leader_id, 1);
}

static void test_lost_election(void **state) {
    (void)state;
    struct rig r;
    int64_t longest = 0;
    up(&r, 3);
    elect(&r);
    /* Deposed, it asks again soon: its log may be the only one that can win. */
    r.hold = true;
    kb_election_heard(&r.e, 3, -1, 9, r.now);
    turn(&r);
    assert_true(!r.view.leads && r.view.epoch == 6 && r.view.leader_id == -1); /* told at once, the new epoch when it is stored */
    r.hold = false;
    stored(&r);
    assert_true(!r.view.leads && r.view.epoch == 9 && r.view.leader_id == -1);
    for (int round = 0; round < 12; round++) {
        r.sent_n = 0;
        for (int i = 0; i < 2; i++) /* whatever is still under way ends */
            if (r.e.peers[i + 1].under_way) {
                struct kb_election_send s = {.to = i + 2};
                kb_election_unanswered(&r.e, &s, r.now);
            }
        int64_t waited = 0;
        while (r.sent_n < 2) waited += wait_for(&r);
        longest = KW_MAX(longest, waited);
        assert_int_equal(kb_election_role(&r.e), KB_PROSPECTIVE);
        answer(&r, 0, no(9, -1));
        answer(&r, 1, no(9, -1));
        assert_int_equal(r.disk.epoch, 9); /* without a majority of pre-votes no epoch grows */
    }
    assert_true(longest > 100 * MS && longest <= 1020 * MS);
}

/* Equals part ways: each draws its own wait. */
static void test_backoff_is_random(void **state) {
    (void)state;
    int64_t first = -1;
    bool differ = false;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct rig r;
        up(&r, 3);
        wait_for(&r);
        kw_rng_init(&r.rng, seed);
        answer(&r, 0, no(5, -1));
        answer(&r, 1, no(5, -1));
        int64_t wait = kb_election_deadline(&r.e) - r.now;
        differ = differ || (first >= 0 && wait != first);
        first = first < 0 ? wait : first;
    }
    assert_true(differ);
}

/* Two living of three that refuse each other do not wait for the third. */
static void test_refused_by_all_there(void **state) {
    (void)state;
    struct rig r;
    up(&r, 3);
    wait_for(&r);
    kb_election_unanswered(&r.e, &r.sent[1], r.now);
    turn(&r);
    answer(&r, 0, no(5, -1));
    r.sent_n = 0;
    assert_true(wait_for(&r) <= 40 * MS);
    assert_int_equal(r.sent_n, 2);
    /* But one whom nobody answers goes on asking in the same attempt, seldom more than every 80 ms. */
    int64_t from = r.now;
    for (int i = 0; i < r.sent_n && r.sent_n < 40; i++) {
        while (!r.e.peers[r.sent[i].to - 1].under_way) wait_for(&r);
        kb_election_unanswered(&r.e, &r.sent[i], r.now);
        turn(&r);
        if (i == r.sent_n - 1) wait_for(&r);
    }
    assert_true(r.now - from >= 38 / 2 * 60 * MS && r.now - from < 40 / 2 * 100 * MS);
}

static void test_yield(void **state) {
    (void)state;
    struct rig r;
    up(&r, 3);
    follow(&r, 3, 5);
    kb_election_peer_dead(&r.e, 3, r.now);
    turn(&r);
    assert_int_equal(r.sent_n, 2);
    struct kb_election_request q = pre_vote_of(2, 5);
    q.log_end.offset = 101; /* the better one */
    assert_true(ask(&r, q).granted);
    answer(&r, 0, yes(5));
    assert_int_equal(kb_election_role(&r.e), KB_PROSPECTIVE); /* lets it go first */
    answer(&r, 1, no(5, -1));
    r.sent_n = 0;
    wait_for(&r);
    assert_int_equal(r.sent_n, 2);
    assert_true(ask(&r, q).granted);
    answer(&r, 0, yes(5));
    assert_int_equal(kb_election_role(&r.e), KB_CANDIDATE); /* once */
}

/* ---- Leading ---- */

static void test_begin_is_repeated(void **state) {
    (void)state;
    struct rig r;
    up(&r, 3);
    elect(&r);
    r.sent_n = 0;
    while (r.sent_n < 2) { /* one was under way to each at most: let them end */
        for (int i = 1; i < 3; i++)
            if (r.e.peers[i].under_way && r.sent_n < 2) {
                struct kb_election_send s = {.to = i + 1, .request.kind = KB_BEGIN_EPOCH};
                kb_election_unanswered(&r.e, &s, r.now);
                turn(&r);
            }
        wait_for(&r);
        kb_election_fetched(&r.e, 3, 100, r.now); /* 3 needs no telling any more */
        for (int i = 0; i < r.sent_n; i++) assert_int_equal(r.sent[i].request.kind, KB_BEGIN_EPOCH);
    }
    assert_int_equal(r.sent[r.sent_n - 1].to, 2);
    answer(&r, r.sent_n - 1, no(6, 1));
    r.sent_n = 0;
    for (int i = 0; i < 20; i++) {
        forward(&r, 100 * MS);
        kb_election_fetched(&r.e, 3, 100, r.now);
    }
    assert_int_equal(r.sent_n, 0); /* acknowledged */
    assert_true(kb_election_view(&r.e).leads);
}

/* BR-11: a leader that too few voters fetch from resigns; what others fetch does not count. */
static void test_br11_check_quorum(void **state) {
    (void)state;
    struct rig r;
    up(&r, 5);
    elect(&r);
    int64_t from = r.now;
    kb_election_fetched(&r.e, 7, 100, r.now); /* no voter */
    forward(&r, 600 * MS);
    kb_election_fetched(&r.e, 3, 150, r.now);
    forward(&r, FETCH + FETCH / 2 - 600 * MS - 1);
    assert_true(kb_election_view(&r.e).leads);
    kb_election_fetched(&r.e, 3, 150, r.now);
    forward(&r, 1); /* of the others two are needed, and one alone has fetched */
    assert_true(r.now == from + FETCH + FETCH / 2);
    assert_int_equal(kb_election_role(&r.e), KB_RESIGNED);
    assert_true(!r.view.leads && r.view.leader_id == -1);
    assert_int_equal(kb_election_check(&r.e, 6), KE_NOT_LEADER_OR_FOLLOWER);
    assert_false(kb_election_resigned(&r.e)); /* it was not asked to stop */
    assert_false(ask(&r, vote_of(2, 6)).granted);
    int64_t waited = 0;
    while (kb_election_role(&r.e) == KB_RESIGNED) waited += wait_for(&r);
    assert_true(waited >= ELECT && waited < 2 * ELECT);
    assert_int_equal(kb_election_view(&r.e).leader_id, -1); /* it does not take itself for its leader */
}

static void test_hand_over(void **state) {
    (void)state;
    struct rig r;
    up(&r, 5);
    elect(&r);
    for (int i = 0; i < r.sent_n; i++)
        if (r.sent[i].request.kind == KB_BEGIN_EPOCH && r.e.peers[r.sent[i].to - 1].under_way) answer(&r, i, no(6, 1));
    for (int i = 1; i < 5; i++)
        if (r.e.peers[i].under_way) {
            struct kb_election_send s = {.to = i + 1};
            kb_election_unanswered(&r.e, &s, r.now);
        }
    static const int64_t ends[] = {0, 0, 110, 90, 130, 120};
    for (int32_t id = 2; id <= 5; id++) kb_election_fetched(&r.e, id, ends[id], r.now);
    r.sent_n = 0;
    kb_election_resign(&r.e, r.now);
    turn(&r);
    assert_int_equal(kb_election_role(&r.e), KB_RESIGNED);
    assert_int_equal(r.view.leader_id, -1);
    assert_int_equal(r.sent_n, 4);
    const struct kb_election_request *q = &r.sent[0].request;
    assert_true(q->kind == KB_END_EPOCH && q->epoch == 6 && q->successor_count == 4);
    assert_true(q->successors[0] == 4 && q->successors[1] == 5 && q->successors[2] == 2 && q->successors[3] == 3);
    for (int i = 0; i < 3; i++) {
        assert_false(kb_election_resigned(&r.e));
        answer(&r, i, no(6, -1));
    }
    kb_election_unanswered(&r.e, &r.sent[3], r.now); /* 5 cannot be reached, and is tried once more */
    turn(&r);
    assert_false(kb_election_resigned(&r.e));
    wait_for(&r);
    assert_int_equal(r.sent_n, 5);
    kb_election_unanswered(&r.e, &r.sent[4], r.now);
    turn(&r);
    assert_true(kb_election_resigned(&r.e));
    struct kb_election_request v = vote_of(4, 7);
    v.log_end = (struct kb_log_end){6, 130};
    assert_true(ask(&r, v).granted); /* it helps its successor, and never stands again */
    while (kb_election_deadline(&r.e) != INT64_MAX) wait_for(&r);
    assert_int_equal(r.sent_n, 5);
}

/* ---- Following ---- */

static void test_end_of_epoch(void **state) {
    (void)state;
    static const int32_t orders[3][2] = {{1, 3}, {3, 1}, {3, 4}};
    static const int64_t waits[] = {0, ELECT / 10, 2 * (ELECT / 10)};
    for (int i = 0; i < 3; i++) {
        struct rig r;
        up(&r, 3);
        follow(&r, 2, 6);
        struct kb_election_request q = request(KB_END_EPOCH, 2, 6);
        memcpy(q.successors, orders[i], sizeof(orders[i]));
        q.successor_count = 2;
        assert_int_equal(ask(&r, q).error, KE_NONE);
        assert_int_equal(r.view.leader_id, -1);
        assert_int_equal(r.sent_n, waits[i] ? 0 : 2);
        if (waits[i]) assert_int_equal(wait_for(&r), waits[i]);
        assert_int_equal(r.sent_n, 2);
        assert_int_equal(ask(&r, q).error, KE_NONE); /* told again: nothing starts over */
        assert_int_equal(r.sent_n, 2);
        answer(&r, 1, no(6, 2)); /* what others still believe of 2 is no news */
        assert_int_equal(kb_election_role(&r.e), KB_PROSPECTIVE);
        answer(&r, 0, yes(6));
        assert_int_equal(kb_election_role(&r.e), KB_CANDIDATE);
    }
}

static void test_fetch_timeout(void **state) {
    (void)state;
    struct rig r;
    up(&r, 3);
    follow(&r, 2, 6);
    assert_int_equal(wait_for(&r), FETCH);
    assert_int_equal(kb_election_role(&r.e), KB_PROSPECTIVE);
    assert_int_equal(kb_election_view(&r.e).leader_id, 2); /* it goes on fetching */
    assert_int_equal(r.sent_n, 2);
    kb_election_heard(&r.e, 3, 3, 6, r.now); /* the epoch has its leader, and has no other */
    turn(&r);
    assert_int_equal(kb_election_role(&r.e), KB_PROSPECTIVE);
    kb_election_leader_answered(&r.e, 2, 6, r.now);
    turn(&r);
    assert_int_equal(kb_election_role(&r.e), KB_FOLLOWER);
    answer(&r, 0, yes(6)); /* too late to matter */
    answer(&r, 1, yes(6));
    assert_int_equal(kb_election_role(&r.e), KB_FOLLOWER);
    kb_election_leader_answered(&r.e, 2, 5, r.now); /* an old answer */
    kb_election_heard(&r.e, 3, 3, 5, r.now);
    turn(&r);
    assert_true(r.view.leader_id == 2 && r.view.epoch == 6);
    wait_for(&r);
    answer(&r, 2, no(6, -1));
    answer(&r, 3, no(6, -1)); /* refused: back to the leader, for another timeout */
    assert_int_equal(kb_election_role(&r.e), KB_FOLLOWER);
    assert_int_equal(wait_for(&r), FETCH);
}

static void test_leader_dead(void **state) {
    (void)state;
    struct rig r;
    up(&r, 3);
    follow(&r, 2, 6);
    kb_election_peer_dead(&r.e, 3, r.now); /* no leader */
    turn(&r);
    assert_int_equal(kb_election_role(&r.e), KB_FOLLOWER);
    kb_election_peer_dead(&r.e, 2, r.now);
    turn(&r);
    assert_int_equal(kb_election_role(&r.e), KB_PROSPECTIVE);
    assert_int_equal(r.sent_n, 2);
    assert_int_equal(r.view.leader_id, -1);
    assert_true(ask(&r, pre_vote_of(3, 6)).granted);
    answer(&r, 1, no(6, 2)); /* 3 has not seen it yet: hearsay does not count */
    assert_int_equal(kb_election_role(&r.e), KB_PROSPECTIVE);
    follow(&r, 2, 6); /* its own word does */
}

static void test_leader_says_it_is_none(void **state) {
    (void)state;
    struct rig r;
    up(&r, 3);
    follow(&r, 2, 6);
    kb_election_heard(&r.e, 2, -1, 6, r.now);
    turn(&r);
    assert_int_equal(r.view.leader_id, -1);
    assert_true(wait_for(&r) <= 40 * MS);
    assert_int_equal(r.sent_n, 2);
    kb_election_heard(&r.e, 2, 3, 8, r.now); /* another leader, a higher epoch */
    turn(&r);
    assert_true(r.view.leader_id == 3 && r.view.epoch == 8 && r.disk.epoch == 8);
    kb_election_heard(&r.e, 3, 3, INT32_MAX, r.now);
    assert_int_equal(kb_election_view(&r.e).epoch, 8);
}

static void test_observer(void **state) {
    (void)state;
    struct rig r = {.now = 5, .end = {0, 0}};
    kw_rng_init(&r.rng, 3);
    struct kb_election_options o = options(&r, 3);
    o.observes = true; /* a voter's id on an empty folder */
    up_with(&r, &o, NEW);
    assert_int_equal(r.finds, 1);
    while (r.finds < 4) assert_true(wait_for(&r) <= 160 * MS);
    assert_true(r.found[0] != 1 && r.found[1] != 1 && r.found[0] != r.found[1]);
    struct kb_election_request q = vote_of(2, 6);
    struct kb_election_reply a = ask(&r, q);
    assert_true(!a.granted && a.error == KE_NONE && a.epoch == 6 && r.disk.voted_id == -1);
    assert_false(ask(&r, pre_vote_of(2, 6)).granted);
    kb_election_heard(&r.e, 3, 2, 6, r.now);
    turn(&r);
    assert_int_equal(r.view.leader_id, 2);
    assert_true(kb_election_deadline(&r.e) == r.now + FETCH);
    r.finds = 0;
    forward(&r, FETCH);
    assert_true(r.view.leader_id == -1 && r.finds == 1);
    kb_election_heard(&r.e, 3, 2, 6, r.now); /* believes it again */
    turn(&r);
    assert_int_equal(r.view.leader_id, 2);
    assert_int_equal(r.sent_n, 0);
    o.id = 9; /* no voter at all */
    o.observes = false;
    up_with(&r, &o, NEW);
    q.voter_id = 9;
    assert_int_equal(ask(&r, q).error, KE_INCONSISTENT_VOTER_SET);
    assert_int_equal(kb_election_role(&r.e), KB_UNATTACHED);
}

/* ---- The last epoch ---- */

static void test_no_epoch_left(void **state) {
    (void)state;
    struct rig r;
    up(&r, 3);
    follow(&r, 2, KB_EPOCH_MAX);
    forward(&r, FETCH);
    forward(&r, 2 * ELECT);
    assert_int_equal(r.sent_n, 0); /* it cannot stand; it can be led */
    follow(&r, 2, KB_EPOCH_MAX);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one),
        cmocka_unit_test(test_start),
        cmocka_unit_test(test_vote_is_stored_first),
        cmocka_unit_test(test_reply_forgotten),
        cmocka_unit_test(test_log_comparison),
        cmocka_unit_test(test_pre_vote),
        cmocka_unit_test(test_hearsay),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_election),
        cmocka_unit_test(test_lost_election),
        cmocka_unit_test(test_backoff_is_random),
        cmocka_unit_test(test_refused_by_all_there),
        cmocka_unit_test(test_yield),
        cmocka_unit_test(test_begin_is_repeated),
        cmocka_unit_test(test_br11_check_quorum),
        cmocka_unit_test(test_hand_over),
        cmocka_unit_test(test_end_of_epoch),
        cmocka_unit_test(test_fetch_timeout),
        cmocka_unit_test(test_leader_dead),
        cmocka_unit_test(test_leader_says_it_is_none),
        cmocka_unit_test(test_observer),
        cmocka_unit_test(test_no_epoch_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
