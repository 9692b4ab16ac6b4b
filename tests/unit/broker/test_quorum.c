/* test_quorum.c - the metadata quorum of several nodes: first start, leaders lost, logs that part, snapshots for those behind, wiped disks,
 * foreign folders, full disks, failing allocation; kills and power losses at any step.
 */
#include "quorum_rig.h"

#include "log/epochs.h"

/* ---- Life ---- */

static void test_first_start(void **state) {
    (void)state;
    struct quorum *q = malloc(sizeof(*q));
    q_init(q, 3, 3, 1);
    q_boot_all(q);
    struct host *l = q_wait_leader(q, 5 * SECOND);
    assert_non_null(l);
    q_agree(q, SECOND);
    append_some(q, l, 20);
    q_agree(q, SECOND);
    const char *id = kb_store_cluster_id(q_store(l));
    assert_int_equal(strlen(id), 22);
    for (int i = 0; i < 3; i++) {
        size_t n;
        const char *p = (const char *)sim_disk_peek(q->h[i].r.disk, "/data/meta.properties", &n);
        assert_non_null(p);
        assert_non_null(memmem(p, n, id, 22));
        p = (const char *)sim_disk_peek(q->h[i].r.disk, "/data/__cluster_metadata-0/quorum-state", &n);
        assert_non_null(p);
        assert_non_null(memmem(p, n, "\"currentVoters\":[{\"voterId\":0},{\"voterId\":1},{\"voterId\":2}]", 58));
        int32_t epoch, leader = kb_store_leader(q_store(&q->h[i]), &epoch);
        assert_int_equal(leader, l->id);
        assert_int_equal(epoch, q_store(l)->epoch);
        assert_int_equal(kb_store_leads(q_store(&q->h[i])), &q->h[i] == l);
        assert_int_equal(kb_node_state(q->h[i].r.node), KB_NODE_READY);
    }
    assert_non_null(kw_map_get_str(&l->r.node->image.features, kw_str_of("metadata.version")));
    q_deinit(q);
    free(q);
}

/* However the empty voters come to hear of each other, and of the first leader while they store their first epoch: nobody takes it for the leader of
 * another epoch than its own. */
static void test_first_start_of_five(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct quorum *q = malloc(sizeof(*q));
        q_init(q, 5, 5, seed);
        for (int i = 0; i < 5; i++) {
            q_boot(&q->h[i]);
            if (seed % 2) q_pass(q, (int64_t)kw_rng_below(&q->rng, 20000));
        }
        struct host *l = q_wait_leader(q, 5 * SECOND);
        assert_non_null(l);
        q_agree(q, 5 * SECOND);
        q_deinit(q);
        free(q);
    }
}

/* Two of three that have nothing cannot know whether the third has: they wait, and the third's coming starts the cluster. */
static void test_first_start_needs_all(void **state) {
    (void)state;
    struct quorum *q = malloc(sizeof(*q));
    q_init(q, 3, 3, 2);
    q_boot(&q->h[1]);
    q_boot(&q->h[2]);
    assert_null(q_wait_leader(q, 10 * SECOND));
    assert_true(said(&q->h[1], "waiting for voters: 0 at h0:9093"));
    q_boot(&q->h[0]);
    assert_non_null(q_wait_leader(q, 5 * SECOND));
    q_agree(q, SECOND);
    q_deinit(q);
    free(q);
}

static void test_leader_is_killed(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct quorum *q = malloc(sizeof(*q));
        q_init(q, 3, 3, seed);
        q_boot_all(q);
        for (int round = 0; round < 4; round++) {
            struct host *l = q_wait_leader(q, 5 * SECOND);
            assert_non_null(l);
            q_agree(q, 5 * SECOND);
            append_some(q, l, 10);
            int64_t offset, before = q->now.mono_us;
            for (int i = 0; i < 3; i++) (void)q_append(l, &offset); /* may or may not come to be */
            if (round % 2) q_turn(q);
            q_kill(l, round % 2);
            struct host *next = q_wait_leader(q, 5 * SECOND);
            assert_non_null(next);
            assert_ptr_not_equal(next, l);
            assert_true(q->now.mono_us - before < SECOND); /* a dead process is seen, not waited out */
            append_some(q, next, 3);
            q_boot(l);
            q_agree(q, 5 * SECOND);
        }
        q_deinit(q);
        free(q);
    }
}

/* A leader that nobody reaches appends what the others never hear of; when it is back, it is cut off. */
static void test_divergence(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct quorum *q = malloc(sizeof(*q));
        q_init(q, 3, 3, seed);
        q_boot_all(q);
        struct host *old = q_wait_leader(q, 5 * SECOND);
        assert_non_null(old);
        append_some(q, old, 5);
        q_agree(q, SECOND);
        int64_t end = q_store(old)->log->leo, offset;
        for (int i = 0; i < 3; i++)
            if (i != old->id) q->cut[old->id][i] = q->cut[i][old->id] = true;
        for (int i = 0; i < 7; i++) assert_true(q_append(old, &offset));
        q_pass(q, 4 * SECOND);
        assert_false(kb_store_leads(q_store(old))); /* check-quorum */
        assert_int_equal(old->r.node->image.offset, end - 1);
        struct host *next = q_leader(q);
        assert_non_null(next);
        append_some(q, next, 3);
        memset(q->cut, 0, sizeof(q->cut));
        q_agree(q, 10 * SECOND);
        struct host *l = q_leader(q);
        append_some(q, l, 3);
        q_agree(q, 5 * SECOND);
        q_deinit(q);
        free(q);
    }
}

static void test_clean_stop_hands_over(void **state) {
    (void)state;
    struct quorum *q = malloc(sizeof(*q));
    q_init(q, 3, 3, 7);
    q_boot_all(q);
    for (int round = 0; round < 6; round++) {
        struct host *l = q_wait_leader(q, 5 * SECOND);
        assert_non_null(l);
        append_some(q, l, 3);
        q_agree(q, SECOND);
        q_stop(l);
        assert_true(!said(l, "not in order"));
        struct host *next = q_wait_leader(q, SECOND);
        assert_non_null(next);
        append_some(q, next, 3);
        q_boot(l);
        q_agree(q, 5 * SECOND);
    }
    q_deinit(q);
    free(q);
}

static void test_whole_cluster_restarts(void **state) {
    (void)state;
    struct quorum *q = malloc(sizeof(*q));
    q_init(q, 5, 5, 8);
    q_boot_all(q);
    for (int round = 0; round < 4; round++) {
        struct host *l = q_wait_leader(q, 5 * SECOND);
        assert_non_null(l);
        append_some(q, l, 10);
        for (int i = 0; i < 5; i++) q_kill(&q->h[i], round % 2);
        for (int i = 0; i < 5; i++)
            if (i != round) q_boot(&q->h[i]); /* a majority is enough */
        l = q_wait_leader(q, 5 * SECOND);
        assert_non_null(l);
        append_some(q, l, 2);
        q_boot(&q->h[round]);
        q_agree(q, 5 * SECOND);
    }
    q_deinit(q);
    free(q);
}

/* ---- Snapshots ---- */

static void test_snapshot_for_one_behind(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct quorum *q = malloc(sizeof(*q));
        q_init(q, 3, 3, seed);
        set_all(q, "metadata.log.max.record.bytes.between.snapshots", "2000");
        set_all(q, "metadata.log.segment.bytes", "1048576");
        set_all(q, "controller.quorum.fetch.snapshot.max.bytes", "100");
        q_boot_all(q);
        struct host *l = q_wait_leader(q, 5 * SECOND);
        assert_non_null(l);
        struct host *behind = &q->h[(l->id + 1) % 3];
        append_some(q, l, 5);
        q_agree(q, SECOND);
        q_kill(behind, false);
        for (int i = 0; i < 12; i++) {
            append_some(q, l, 20);
            q_pass(q, SECOND / 10);
        }
        assert_true(q_store(l)->log->start > 10);
        q_boot(behind);
        q_agree(q, 20 * SECOND);
        assert_true(q_store(behind)->snapshot_end > 10);
        append_some(q, l, 50);
        q_agree(q, 5 * SECOND);
        q_kill(behind, true);
        q_boot(behind);
        q_agree(q, 5 * SECOND);
        /* It leads from what it took over as well as anyone. */
        q_kill(l, false);
        struct host *next = q_wait_leader(q, 5 * SECOND);
        assert_non_null(next);
        append_some(q, next, 5);
        q_boot(l);
        q_agree(q, 5 * SECOND);
        q_deinit(q);
        free(q);
    }
}

/* Killed at any step of taking a snapshot over, it starts again and comes to the same. */
static void test_install_is_killed_at_any_step(void **state) {
    (void)state;
    struct quorum *q = malloc(sizeof(*q));
    q_init(q, 3, 3, 3);
    set_all(q, "metadata.log.max.record.bytes.between.snapshots", "2000");
    set_all(q, "controller.quorum.fetch.snapshot.max.bytes", "500");
    q_boot_all(q);
    struct host *l = q_wait_leader(q, 5 * SECOND);
    assert_non_null(l);
    struct host *behind = &q->h[(l->id + 1) % 3];
    q_agree(q, SECOND);
    for (int steps = 0; steps < 120; steps += 3) {
        q_kill(behind, steps % 2);
        for (int i = 0; i < 8; i++) append_some(q, l, 20);
        q_pass(q, SECOND / 10);
        q_boot(behind);
        for (int i = 0; i < steps; i++) q_step(q, q->now.mono_us + 1000);
        q_kill(behind, steps % 4 < 2);
        q_boot(behind);
        q_agree(q, 20 * SECOND);
    }
    q_deinit(q);
    free(q);
}

/* Killed between the snapshot's new name and the log's end: the log is longer than the snapshot, and of another leader's making. */
static void test_snapshot_over_a_log_that_parts(void **state) {
    (void)state;
    struct quorum *q = malloc(sizeof(*q));
    q_init(q, 3, 3, 14);
    set_all(q, "metadata.log.max.record.bytes.between.snapshots", "1500");
    q_boot_all(q);
    struct host *old = q_wait_leader(q, 5 * SECOND);
    assert_non_null(old);
    append_some(q, old, 5);
    q_agree(q, SECOND);
    for (int i = 0; i < 3; i++)
        if (i != old->id) q->cut[old->id][i] = q->cut[i][old->id] = true;
    int64_t offset;
    for (int i = 0; i < 300; i++) assert_true(q_append(old, &offset));
    q_pass(q, 4 * SECOND);
    struct host *next = q_leader(q);
    assert_non_null(next);
    for (int i = 0; i < 8; i++) append_some(q, next, 20);
    assert_true(q_store(next)->log->start > 20 && q_store(next)->snapshot_end < q_store(old)->log->leo);
    char name[KB_SNAPSHOT_NAME_SIZE], path[128];
    size_t n;
    kb_snapshot_name(q_store(next)->snapshot_end, q_store(next)->snapshot_epoch, name);
    snprintf(path, sizeof(path), "/data/__cluster_metadata-0/%s", name);
    const uint8_t *p = sim_disk_peek(next->r.disk, path, &n);
    assert_non_null(p);
    q_kill(old, false);
    sim_disk_poke(old->r.disk, path, p, n);
    memset(q->cut, 0, sizeof(q->cut));
    q_boot(old);
    q_agree(q, 10 * SECOND);
    assert_true(said(old, "not in agreement"));
    q_deinit(q);
    free(q);
}

/* ---- Folders that are not as they were ---- */

static void test_wiped_voter_comes_back(void **state) {
    (void)state;
    struct quorum *q = malloc(sizeof(*q));
    q_init(q, 3, 3, 4);
    q_boot_all(q);
    struct host *l = q_wait_leader(q, 5 * SECOND);
    assert_non_null(l);
    append_some(q, l, 10);
    q_agree(q, SECOND);
    struct host *wiped = &q->h[(l->id + 1) % 3], *other = &q->h[(l->id + 2) % 3];
    q_kill(wiped, false);
    q_wipe(wiped);
    q_kill(l, false);
    q_boot(wiped);
    q_pass(q, 5 * SECOND);
    /* With the leader away the wiped one and the other are two of three, but what the wiped one knew is not known. */
    assert_null(q_leader(q));
    assert_false(other->failed || wiped->failed);
    q_boot(l);
    struct host *next = q_wait_leader(q, 5 * SECOND);
    assert_non_null(next);
    assert_ptr_not_equal(next, wiped);
    q_agree(q, 5 * SECOND);
    assert_string_equal(kb_store_cluster_id(q_store(wiped)), kb_store_cluster_id(q_store(next)));
    assert_int_equal(q_store(wiped)->raft->phase, KB_RAFT_MEMBER); /* it votes again */
    q_kill(next, false);
    struct host *third = q_wait_leader(q, 5 * SECOND);
    assert_non_null(third);
    append_some(q, third, 3);
    q_boot(next);
    q_agree(q, 5 * SECOND);
    q_deinit(q);
    free(q);
}

/* A wall clock that jumps years ahead and back, on all nodes and on one: nothing in the quorum is timed by it. */
static void test_wall_clock_jumps(void **state) {
    static const int64_t jumps_ms[] = {315360000000, -630720000000, 1, 3600000, -3600000};
    (void)state;
    struct quorum *q = malloc(sizeof(*q));
    q_init(q, 3, 3, 26);
    q_boot_all(q);
    struct host *l = q_wait_leader(q, 5 * SECOND);
    assert_non_null(l);
    int32_t epoch = q_store(l)->epoch;
    for (size_t i = 0; i < KW_COUNTOF(jumps_ms); i++) {
        q->now.wall_ms += jumps_ms[i];
        append_some(q, l, 3);
        q_pass(q, 3 * SECOND);
        assert_ptr_equal(q_leader(q), l);
        assert_int_equal(q_store(l)->epoch, epoch);
    }
    q_agree(q, SECOND);
    q_kill(l, true); /* what it wrote with the other clock is read again */
    q_boot(l);
    q_agree(q, 5 * SECOND);
    q_deinit(q);
    free(q);
}

/* ---- Nodes that do not fit together ---- */

static void set_voters(struct host *h, const char *list) {
    char text[400];
    rig_set(&h->r, "controller.quorum.voters", list);
    if (kb_config_finish(h->r.config, text, sizeof(text)) != KW_OK) fail_msg("%s", text);
}

/* An empty folder, and one more voter on the list than the others know of: it never votes, and says why. */
static void test_voter_that_others_do_not_know(void **state) {
    (void)state;
    struct quorum *q = malloc(sizeof(*q));
    q_init(q, 3, 4, 21);
    rig_set(&q->h[3].r, "process.roles", "controller");
    rig_set(&q->h[3].r, "listeners", "CONTROLLER://h:9093");
    set_voters(&q->h[3], "0@h0:9093,1@h1:9093,2@h2:9093,3@h3:9093");
    q_boot_all(q);
    struct host *l = q_wait_leader(q, 5 * SECOND);
    assert_non_null(l);
    append_some(q, l, 3);
    q_pass(q, 2 * SECOND);
    assert_int_not_equal(q_store(&q->h[3])->raft->phase, KB_RAFT_MEMBER);
    assert_true(said(&q->h[3], "name the same voters on all nodes"));
    assert_true(said(l, "does not name it here"));
    append_some(q, l, 3);
    q_deinit(q);
    free(q);
}

/* Voter 0 alone is the quorum by its own list, and by that of the others one of three: they would elect another leader beside it. */
static void test_leader_with_other_voters(void **state) {
    (void)state;
    struct quorum *q = malloc(sizeof(*q));
    q_init(q, 3, 3, 22);
    q->voters = 1; /* as the one sees it */
    set_voters(&q->h[0], "0@h0:9093");
    q_boot_all(q);
    q_pass(q, 3 * SECOND);
    assert_true(q_leads(&q->h[0]));
    for (int i = 1; i < 3; i++) {
        assert_true(q->h[i].failed);
        assert_true(said(&q->h[i], "names 0,1,2 here, and 0 where node 0 is configured"));
    }
    q_deinit(q);
    free(q);
}

/* The leader is none of those that this broker was told of: it waits, and says what it hears. */
static void test_broker_of_other_voters(void **state) {
    (void)state;
    struct quorum *q = malloc(sizeof(*q));
    q_init(q, 3, 4, 23);
    set_voters(&q->h[3], "0@h0:9093");
    for (int i = 0; i < 3; i++) q_boot(&q->h[i]);
    struct host *l = q_wait_leader(q, 5 * SECOND);
    assert_non_null(l);
    if (l->id == 0) {
        q_kill(l, false);
        l = q_wait_leader(q, 5 * SECOND);
        assert_non_null(l);
        q_boot(&q->h[0]);
        q_pass(q, SECOND);
        assert_false(q_leads(&q->h[0]));
    }
    q_boot(&q->h[3]);
    q_pass(q, SECOND);
    assert_true(said(&q->h[3], "leads the metadata quorum, which controller.quorum.voters does not name here (0)"));
    q_deinit(q);
    free(q);
}

/* A fetch in the name of a voter, from another data folder: while both come neither acknowledges anything, and the quorum of the others goes on. */
static void test_two_that_are_one_voter(void **state) {
    (void)state;
    struct quorum *q = malloc(sizeof(*q));
    q_init(q, 3, 3, 24);
    q_boot_all(q);
    struct host *l = q_wait_leader(q, 5 * SECOND);
    assert_non_null(l);
    append_some(q, l, 3);
    q_agree(q, SECOND);
    struct host *twice = &q->h[(l->id + 1) % 3], *other = &q->h[(l->id + 2) % 3];
    q_kill(other, false);
    struct kb_raft *r = q_store(l)->raft;
    struct kw_uuid folder = {{9, 9, 9}};
    int64_t offset;
    assert_true(q_append(l, &offset));
    kb_raft_note_fetch(r, twice->id, folder, offset + 1, l->r.now); /* what was synced here, and on that disk alone */
    assert_true(r->hw <= offset);
    assert_true(said(l, "two data folders fetch metadata as voter"));
    q_pass(q, 200000);
    assert_true(r->hw <= offset); /* the true one has it: it may not say so yet */
    q_boot(other);
    q_pass(q, 3 * SECOND); /* one of them went away */
    struct host *next = q_wait_leader(q, 5 * SECOND);
    assert_non_null(next);
    append_some(q, next, 3);
    q_agree(q, 5 * SECOND);
    q_deinit(q);
    free(q);
}

/* A second process under the leader's id hears from the others that it leads, and it does not: the others know one that is alive. */
static void test_another_process_leads_under_this_id(void **state) {
    (void)state;
    struct quorum *q = malloc(sizeof(*q));
    q_init(q, 3, 4, 25);
    q_boot(&q->h[0]), q_boot(&q->h[1]), q_boot(&q->h[2]);
    struct host *l = q_wait_leader(q, 5 * SECOND);
    assert_non_null(l);
    struct host *second = &q->h[3];
    char id[12], list[256];
    snprintf(id, sizeof(id), "%d", l->id);
    snprintf(list, sizeof(list), "%s", "0@h0:9093,1@h1:9093,2@h2:9093");
    rig_set(&second->r, "node.id", id);
    rig_set(&second->r, "process.roles", "controller");
    rig_set(&second->r, "listeners", "CONTROLLER://h:9093");
    set_voters(second, list);
    q_boot(second);
    q_pass(q, 5 * SECOND);
    assert_true(second->failed);
    assert_true(said(second, "another process is voter"));
    assert_true(q_leads(l));
    append_some(q, l, 3);
    q_deinit(q);
    free(q);
}

/* One wiped, one gone for good: only the operator can know that nothing was lost with them. */
static void test_rejoin_by_hand(void **state) {
    (void)state;
    struct quorum *q = malloc(sizeof(*q));
    q_init(q, 3, 3, 5);
    q_boot_all(q);
    struct host *l = q_wait_leader(q, 5 * SECOND);
    append_some(q, l, 10);
    q_agree(q, SECOND);
    struct host *wiped = &q->h[(l->id + 1) % 3], *gone = &q->h[(l->id + 2) % 3];
    q_kill(wiped, false);
    q_kill(gone, false);
    q_wipe(wiped);
    q_boot(wiped);
    q_pass(q, 5 * SECOND);
    assert_null(q_leader(q));
    q_kill(wiped, false);
    rig_set(&wiped->r, "controller.quorum.rejoin", "true");
    q_boot(wiped);
    struct host *next = q_wait_leader(q, 10 * SECOND);
    assert_ptr_equal(next, l);
    append_some(q, l, 2);
    q_agree(q, 5 * SECOND);
    q_deinit(q);
    free(q);
}

static void test_foreign_folder_is_refused(void **state) {
    (void)state;
    struct quorum *q = malloc(sizeof(*q));
    static const char properties[] = "#\ncluster.id=another-cluster-0000000\ndirectory.id=AAAAAAAAAAAAAAAAAAAAyA\nnode.id=2\nversion=1\n";
    q_init(q, 3, 3, 6);
    q_boot_all(q);
    struct host *l = q_wait_leader(q, 5 * SECOND);
    append_some(q, l, 3);
    q_agree(q, SECOND);
    struct host *other = &q->h[2];
    q_kill(other, false);
    sim_disk_poke(other->r.disk, "/data/meta.properties", properties, sizeof(properties) - 1);
    q_boot(other);
    q_pass(q, 5 * SECOND);
    assert_true(other->failed);
    assert_non_null(strstr(kb_node_failure(other->r.node), "another cluster"));
    assert_non_null(strstr(kb_node_failure(other->r.node), "another-cluster-0000000"));
    assert_true(said(&q->h[0], "another cluster") || said(&q->h[1], "another cluster")); /* on both sides */
    l = q_wait_leader(q, 5 * SECOND);
    assert_non_null(l);
    append_some(q, l, 3);
    q_deinit(q);
    free(q);
}

/* Folders as `kafka-storage format` leaves them: an id, and what the first leader is to write. One node's folder is new all the same. */
static void test_formatted_folders(void **state) {
    (void)state;
    struct quorum *q = malloc(sizeof(*q));
    struct kb_image im;
    struct kw_feature_level_record level;
    struct kw_out bytes;
    q_init(q, 3, 3, 15);
    kb_image_init(&im);
    kw_msg_init(&kw_feature_level_record_desc, &level);
    level.name = kw_str_of("group.version");
    level.feature_level = 1;
    assert_int_equal(kb_image_apply(&im, 0, 0, KW_RECORD_FEATURE_LEVEL, &level), KW_OK);
    kw_out_init(&bytes);
    assert_int_equal(kb_snapshot_encode(&im, 0, 0, &bytes), KW_OK);
    for (int i = 0; i < 2; i++) {
        char text[200];
        int n = snprintf(text, sizeof(text),
                         "#\ncluster.id=formatted-cluster-00000\ndirectory.id=AAAAAAAAAAAAAAAAAAAA%cA\nnode.id=%d\nversion=1\n", 'x' + i, i);
        sim_disk_poke(q->h[i].r.disk, "/data/meta.properties", text, (size_t)n);
        sim_disk_poke(q->h[i].r.disk, "/data/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint", bytes.p, bytes.len);
    }
    q_boot_all(q);
    struct host *l = q_wait_leader(q, 5 * SECOND);
    assert_non_null(l);
    q_agree(q, SECOND);
    for (int i = 0; i < 3; i++) assert_string_equal(kb_store_cluster_id(q_store(&q->h[i])), "formatted-cluster-00000");
    bool formatted = l->id < 2;
    assert_int_equal(kw_map_get_str(&l->r.node->image.features, kw_str_of("group.version")) != NULL, formatted);
    for (int i = 0; i < 3; i++) q_kill(&q->h[i], false);
    q_boot_all(q);
    q_agree(q, 5 * SECOND);
    kw_out_deinit(&bytes);
    kb_image_deinit(&im);
    q_deinit(q);
    free(q);
}

static void test_voters_that_disagree(void **state) {
    (void)state;
    struct quorum *q = malloc(sizeof(*q));
    q_init(q, 3, 3, 9);
    q_boot_all(q);
    struct host *l = q_wait_leader(q, 5 * SECOND);
    append_some(q, l, 3);
    q_agree(q, SECOND);
    struct host *other = &q->h[(l->id + 1) % 3];
    char list[64], text[200];
    q_kill(other, false);
    snprintf(list, sizeof(list), "%d@h%d:9093,7@h7:9093,8@h8:9093", other->id, other->id);
    rig_set(&other->r, "controller.quorum.voters", list);
    assert_int_equal(kb_config_finish(other->r.config, text, sizeof(text)), KW_OK);
    q_boot(other);
    q_pass(q, SECOND);
    assert_true(other->failed);
    assert_non_null(strstr(kb_node_failure(other->r.node), "names the voters 0,1,2"));
    append_some(q, l, 3);
    q_deinit(q);
    free(q);
}

/* ---- Anything at any time ---- */

/* One disk at a time is wiped, and the next only when it is a full voter again: no quorum outlives the loss of a majority's disks. */
static struct host *chaos_wiped(struct host *wiped) {
    if (!wiped || !wiped->up || wiped->failed || !q_store(wiped) || !q_store(wiped)->raft) return wiped;
    return q_store(wiped)->raft->phase == KB_RAFT_MEMBER ? NULL : wiped;
}

static void chaos_act(struct quorum *q, bool wipes, struct host **wiped) {
    struct host *h = &q->h[kw_rng_below(&q->rng, (uint64_t)q->hosts)];
    uint64_t what = kw_rng_below(&q->rng, 100);
    *wiped = chaos_wiped(*wiped);
    if (h->up && h->failed) q_kill(h, false); /* a sick disk was exchanged for its copy, say */
    if (what < 2 && wipes && !*wiped) {
        if (h->up) q_kill(h, false);
        q_wipe(h);
        *wiped = h;
    } else if (what < 8) {
        if (h->up) q_kill(h, false);
    } else if (what < 11) {
        if (h->up) q_kill(h, true);
    } else if (what < 40) {
        if (!h->up) q_boot(h);
    } else if (what < 48) {
        int to = (int)kw_rng_below(&q->rng, (uint64_t)q->hosts);
        q->cut[h->id][to] = true;
        if (kw_rng_chance(&q->rng, 500000)) q->cut[to][h->id] = true;
    } else if (what < 58) {
        memset(q->cut, 0, sizeof(q->cut));
    } else {
        int64_t offset;
        for (int i = 0; i < q->hosts; i++)
            if (q_leads(&q->h[i])) (void)q_append(&q->h[i], &offset);
    }
}

static void chaos(uint64_t seed, int voters, int hosts, bool snapshots, bool wipes, bool sick, bool slow) {
    struct quorum *q = malloc(sizeof(*q));
    struct host *wiped = NULL;
    q_init(q, voters, hosts, seed);
    if (snapshots) {
        set_all(q, "metadata.log.max.record.bytes.between.snapshots", "1000");
        set_all(q, "controller.quorum.fetch.snapshot.max.bytes", "700");
    }
    q_boot_all(q);
    assert_non_null(q_wait_leader(q, 5 * SECOND));
    q_agree(q, 5 * SECOND);
    for (int k = 0; k < hosts && slow; k++) {
        sim_disk_faults(q->h[k].r.disk)->slow_ppm = 50000;
        sim_disk_faults(q->h[k].r.disk)->slow_us = 400000;
    }
    for (int i = 0; i < 200; i++) {
        for (int k = 0; k < hosts && sick; k++) sim_disk_faults(q->h[k].r.disk)->eio_sync_ppm = sim_disk_faults(q->h[k].r.disk)->enospc_ppm = 500;
        chaos_act(q, wipes, &wiped);
        q_pass(q, (int64_t)kw_rng_below(&q->rng, kw_rng_chance(&q->rng, 100000) ? 2000000 : 30000));
    }
    memset(q->cut, 0, sizeof(q->cut));
    for (int k = 0; k < hosts; k++) {
        sim_disk_faults(q->h[k].r.disk)->slow_ppm = 0;
        sim_disk_faults(q->h[k].r.disk)->eio_sync_ppm = sim_disk_faults(q->h[k].r.disk)->enospc_ppm = 0;
        if (q->h[k].up && q->h[k].failed) q_kill(&q->h[k], false);
    }
    q_boot_all(q);
    q_agree(q, 60 * SECOND);
    struct host *l = q_leader(q);
    append_some(q, l, 5);
    q_agree(q, 5 * SECOND);
    assert_true(q->committed > 5);
    q_deinit(q);
    free(q);
}

static void test_chaos(void **state) {
    (void)state;
    uint64_t from = getenv("QUORUM_SEED") ? strtoull(getenv("QUORUM_SEED"), NULL, 10) : 1;
    uint64_t seeds = getenv("QUORUM_SEEDS") ? strtoull(getenv("QUORUM_SEEDS"), NULL, 10) : 40;
    for (uint64_t seed = from; seed < from + seeds; seed++) {
        if (seeds > 100 || getenv("RIG_LOG")) fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
        chaos(seed, seed % 4 == 0 ? 5 : 3, seed % 4 == 0 ? 5 : 3, seed % 2, seed % 3 == 0, seed % 5 == 0, seed % 7 < 2);
    }
    for (uint64_t seed = from + 1000; seed < from + 1000 + seeds / 4; seed++) chaos(seed, 5, 5, seed % 2, true, false, seed % 3 == 0);
}

/* ---- Memory ---- */

/* The n-th allocation of a run fails: the node that it hits goes on, or fails with a text; the cluster stays one. */
static void test_failing_allocation(void **state) {
    (void)state;
    for (int64_t n = 0; n < 3000; n += 1 + n / 40) {
        struct quorum *q = malloc(sizeof(*q));
        q_init(q, 3, 3, 12);
        set_all(q, "metadata.log.max.record.bytes.between.snapshots", "600");
        q_boot_all(q);
        kw_alloc_fail_after(n);
        q_pass(q, SECOND);
        struct host *l = q_leader(q);
        int64_t offset;
        for (int i = 0; l && i < 10; i++) (void)q_append(l, &offset);
        q_pass(q, SECOND);
        kw_alloc_fail_after(-1);
        for (int i = 0; i < 3; i++) {
            struct host *h = &q->h[i];
            if (!h->failed) continue;
            assert_non_null(kb_node_failure(h->r.node));
            q_kill(h, false);
            q_boot(h);
        }
        q_agree(q, 30 * SECOND);
        q_deinit(q);
        free(q);
    }
}

static void test_full_disk(void **state) {
    (void)state;
    for (int who = 0; who < 3; who++) {
        struct quorum *q = malloc(sizeof(*q));
        q_init(q, 3, 3, 13);
        q_boot_all(q);
        struct host *l = q_wait_leader(q, 5 * SECOND);
        assert_non_null(l);
        append_some(q, l, 3);
        q_agree(q, SECOND);
        sim_disk_faults(q->h[who].r.disk)->free_bytes = 0;
        for (int i = 0; i < 20; i++) {
            int64_t offset;
            l = q_leader(q);
            if (l) (void)q_append(l, &offset);
            q_pass(q, SECOND / 4);
        }
        sim_disk_faults(q->h[who].r.disk)->free_bytes = -1;
        q_pass(q, 2 * SECOND);
        for (int i = 0; i < 3; i++)
            if (q->h[i].failed) {
                q_kill(&q->h[i], false);
                q_boot(&q->h[i]);
            }
        q_agree(q, 20 * SECOND);
        q_deinit(q);
        free(q);
    }
}

int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_start),
        cmocka_unit_test(test_first_start_of_five),
        cmocka_unit_test(test_first_start_needs_all),
        cmocka_unit_test(test_leader_is_killed),
        cmocka_unit_test(test_divergence),
        cmocka_unit_test(test_clean_stop_hands_over),
        cmocka_unit_test(test_whole_cluster_restarts),
        cmocka_unit_test(test_snapshot_for_one_behind),
        cmocka_unit_test(test_install_is_killed_at_any_step),
        cmocka_unit_test(test_snapshot_over_a_log_that_parts),
        cmocka_unit_test(test_wiped_voter_comes_back),
        cmocka_unit_test(test_rejoin_by_hand),
        cmocka_unit_test(test_wall_clock_jumps),
        cmocka_unit_test(test_voter_that_others_do_not_know),
        cmocka_unit_test(test_leader_with_other_voters),
        cmocka_unit_test(test_broker_of_other_voters),
        cmocka_unit_test(test_two_that_are_one_voter),
        cmocka_unit_test(test_another_process_leads_under_this_id),
        cmocka_unit_test(test_foreign_folder_is_refused),
        cmocka_unit_test(test_formatted_folders),
        cmocka_unit_test(test_voters_that_disagree),
        cmocka_unit_test(test_chaos),
        cmocka_unit_test(test_failing_allocation),
        cmocka_unit_test(test_full_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
