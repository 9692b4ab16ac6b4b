/* test_store.c - the metadata store on the simulated disk: first start, restarts, kill -9 and power loss at any step, snapshots, BR-14,
 * BR-16, damaged files, full and failing disks, failing allocation.
 */
#include "meta_rig.h"

#include "uuid.h"

static bool has_file(struct meta *m, const char *path) {
    size_t n;
    return sim_disk_peek(m->sim, path, &n) != NULL;
}

static const char *text_of(struct meta *m, const char *path) {
    static char text[2][4096];
    static int turn;
    size_t n;
    const uint8_t *p = sim_disk_peek(m->sim, path, &n);
    assert_non_null(p);
    assert_true(n < sizeof(text[0]));
    turn = !turn;
    memcpy(text[turn], p, n);
    text[turn][n] = 0;
    return text[turn];
}

static int32_t stored_epoch(struct meta *m) {
    int32_t epoch = -1;
    size_t n;
    const uint8_t *p = sim_disk_peek(m->sim, META_LOG "/quorum-state", &n);
    if (!p) return 0;
    assert_int_equal(kb_store_vote_read(p, n, &epoch), KW_OK);
    return epoch;
}

/* ---- Life ---- */

static void test_first_start(void **state) {
    (void)state;
    struct meta m;
    meta_init(&m, 1, NULL);
    meta_start(&m);
    assert_int_equal(m.applied, 1);
    assert_string_equal(m.lines, "");
    assert_int_equal(strlen(kb_store_cluster_id(m.store)), 22);
    char id[23];
    kb_uuid_text(kb_store_directory_id(m.store), id);
    const char *properties = text_of(&m, META_DIR "/meta.properties");
    assert_non_null(strstr(properties, "version=1\n"));
    assert_non_null(strstr(properties, "node.id=1\n"));
    assert_non_null(strstr(properties, id));
    assert_non_null(strstr(properties, kb_store_cluster_id(m.store)));
    assert_string_equal(text_of(&m, META_LOG "/quorum-state"),
                        "{\"clusterId\":\"\",\"leaderId\":1,\"leaderEpoch\":1,\"votedId\":-1,\"appliedOffset\":0,"
                        "\"currentVoters\":[{\"voterId\":1}],\"data_version\":0}");
    assert_string_equal(text_of(&m, META_LOG "/partition.metadata"), "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ");
    assert_int_equal(kb_store_epoch(m.store), 1);
    const struct kb_image_broker *b = kb_image_broker(&m.image, 1);
    assert_non_null(b);
    assert_false(b->fenced);
    assert_int_equal(b->epoch, kb_store_broker_epoch(m.store));
    assert_int_equal(b->epoch, 4); /* leader change, begin, level, end */
    assert_true(kw_uuid_eq(b->log_dirs[0], kb_store_directory_id(m.store)));
    assert_string_equal(b->endpoints[0].host, "127.0.0.1");
    assert_int_equal(b->endpoints[0].port, 9092);
    assert_int_equal(((struct kb_image_level *)kw_map_get_str(&m.image.features, kw_str_of("metadata.version")))->level, 33);
    assert_int_equal(m.image.offset, m.store->log->leo - 1);
    meta_stop(&m);
    meta_deinit(&m);
}

static void test_restart_raises_epochs(void **state) {
    (void)state;
    struct meta m;
    char cluster[64];
    meta_init(&m, 2, NULL);
    meta_start(&m);
    assert_int_equal(meta_create(&m, "t", 3), 0);
    snprintf(cluster, sizeof(cluster), "%s", kb_store_cluster_id(m.store));
    struct kw_uuid directory = kb_store_directory_id(m.store), incarnation = kb_image_broker(&m.image, 1)->incarnation;
    for (int32_t round = 1; round <= 4; round++) {
        int64_t epoch_before = kb_store_broker_epoch(m.store);
        if (round % 2)
            meta_stop(&m);
        else
            meta_crash(&m, false);
        meta_start(&m);
        assert_int_equal(kb_store_epoch(m.store), round + 1);
        assert_int_equal(stored_epoch(&m), round + 1);
        assert_int_equal(m.image.epoch, round + 1);
        assert_true(kb_store_broker_epoch(m.store) > epoch_before);
        assert_string_equal(kb_store_cluster_id(m.store), cluster);
        assert_true(kw_uuid_eq(kb_store_directory_id(m.store), directory));
        assert_false(kw_uuid_eq(kb_image_broker(&m.image, 1)->incarnation, incarnation));
        for (int32_t i = 0; i < 3; i++) {
            struct kb_image_partition *p = kb_image_partition(&m.image, kw_str_of("t"), i);
            assert_int_equal(p->leader, 1);
            assert_int_equal(p->leader_epoch, round); /* before anything is served in it */
            assert_int_equal(p->partition_epoch, round);
        }
    }
    meta_stop(&m);
    meta_deinit(&m);
}

static void test_many_partitions_take_several_batches(void **state) {
    (void)state;
    struct meta m;
    meta_init(&m, 3, NULL);
    meta_start(&m);
    for (int i = 0; i < 3; i++) {
        char name[16];
        snprintf(name, sizeof(name), "t%d", i);
        assert_int_equal(meta_create(&m, name, 9000), 0);
    }
    meta_stop(&m);
    int applied = m.applied;
    meta_start(&m);
    assert_int_equal(m.applied, applied + 1); /* ready once all are in */
    assert_int_equal(kb_image_partition(&m.image, kw_str_of("t0"), 0)->leader_epoch, 1);
    assert_int_equal(kb_image_partition(&m.image, kw_str_of("t2"), 8999)->leader_epoch, 1);
    assert_int_equal(m.image.partition_count, 27000);
    meta_stop(&m);
    meta_deinit(&m);
}

/* ---- Crashes ---- */

struct model { /* what was acknowledged, and what may or may not have happened */
    char present[40][16], maybe[40][16];
    int present_count, maybe_count;
};

static bool in(char (*v)[16], int n, const char *name) {
    for (int i = 0; i < n; i++)
        if (strcmp(v[i], name) == 0) return true;
    return false;
}

static void check_model(struct meta *m, const struct model *mo) {
    struct kb_image_topic *t;
    for (int i = 0; i < mo->present_count; i++) {
        t = kb_image_topic(&m->image, kw_str_of(mo->present[i]));
        if (!t) fail_msg("topic %s was acknowledged and is gone", mo->present[i]);
        assert_int_equal(t->partition_count, 2); /* a batch is whole or not at all */
        assert_string_equal(kb_image_config_get(&m->image, 2, kw_str_of(t->name), "retention.ms"), "1234");
    }
    for (size_t it = 0; (t = kw_map_next(&m->image.topics_by_name, &it));)
        if (!in((char(*)[16])mo->present, mo->present_count, t->name) && !in((char(*)[16])mo->maybe, mo->maybe_count, t->name))
            fail_msg("topic %s was never asked for", t->name);
}

/* Nothing in the log is of an epoch that quorum-state does not know: the vote is stored first. */
static void check_epochs(struct meta *m) {
    size_t n, at = 0;
    int32_t stored = stored_epoch(m);
    const uint8_t *p = sim_disk_peek(m->sim, META_LOG "/00000000000000000000.log", &n);
    while (p && at + KW_BATCH_HEADER_SIZE <= n) {
        int64_t size = kw_batch_size_peek(p + at, n - at);
        if (size < KW_BATCH_HEADER_SIZE || (uint64_t)size > n - at) return; /* torn */
        int32_t epoch = (int32_t)kw_load32(p + at + KW_BATCH_LEADER_EPOCH);
        if (epoch > stored) fail_msg("a batch of epoch %d is in the log, quorum-state knows %d", (int)epoch, (int)stored);
        at += (size_t)size;
    }
}

static void run_until_crash(struct meta *m, struct model *mo, int steps, bool power, int *serial) {
    struct meta_change c[8];
    struct kb_topic_create t[8];
    char names[8][16];
    struct kb_config_kv kv = {.key = kw_str_of("retention.ms"), .value = kw_str_of("1234")};
    int n = 0;
    assert_int_equal(meta_boot(m), KW_OK);
    for (int i = 0; i < steps && meta_step(m); i++) {
        if (m->ready && n < 8 && kw_rng_chance(&m->rng, 300000)) {
            snprintf(names[n], sizeof(names[n]), "t%d", (*serial)++);
            t[n] = (struct kb_topic_create){
                .name = kw_str_of(names[n]), .partitions = 2, .replication_factor = -1, .configs = &kv, .config_count = 1};
            assert_int_equal(kb_controller_create_topics(m->controller, &t[n], 1, false, meta_change(&c[n]), m->now), KW_OK);
            n++;
        }
    }
    bool acknowledged[8];
    for (int i = 0; i < n; i++) acknowledged[i] = c[i].done && t[i].result.code == 0;
    meta_crash(m, power); /* what is answered now was not heard by anyone */
    for (int i = 0; i < n; i++) {
        char(*v)[16] = acknowledged[i] ? mo->present : mo->maybe;
        int *count = acknowledged[i] ? &mo->present_count : &mo->maybe_count;
        if (*count < 40) memcpy(v[(*count)++], names[i], 16);
    }
}

static void crash_rounds(bool power) {
    int acknowledged = 0, unknown = 0;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct meta m;
        struct model mo = {.present_count = 0};
        int serial = 0;
        struct sim_disk_options o = {
            .delay_min_us = 10, .delay_max_us = 3000, .inline_ppm = seed % 3 ? 0 : 300000, .writeback_ppm = 100000};
        meta_init(&m, seed, &o);
        for (int round = 0; round < 4; round++) {
            run_until_crash(&m, &mo, (int)kw_rng_below(&m.rng, 80), power, &serial);
            check_epochs(&m);
        }
        meta_start(&m);
        check_model(&m, &mo);
        struct kw_out before = meta_bytes(&m.image);
        int64_t end = m.image.offset;
        acknowledged += mo.present_count;
        unknown += mo.maybe_count;
        /* Invariant 24: what a replay of the disk gives is what was there, but for the new epoch's own records. */
        meta_crash(&m, false);
        struct kb_image again;
        struct kb_replay r;
        size_t n, used;
        const uint8_t *log = sim_disk_peek(m.sim, META_LOG "/00000000000000000000.log", &n);
        kb_image_init(&again);
        kb_replay_init(&r, &again, m.compressor, 1, 0);
        if (kb_replay_batches(&r, log, n, &used)) fail_msg("%s", r.why);
        assert_int_equal(again.offset, end);
        struct kw_out replayed = meta_bytes(&again);
        assert_int_equal(before.len, replayed.len);
        assert_memory_equal(before.p, replayed.p, before.len);
        kw_out_deinit(&before);
        kw_out_deinit(&replayed);
        kb_replay_deinit(&r);
        kb_image_deinit(&again);
        meta_deinit(&m);
    }
    assert_true(acknowledged > 20); /* the rounds did real work */
    assert_true(unknown > 5);
}

static void test_kill9_at_any_step(void **state) {
    (void)state;
    crash_rounds(false);
}

static void test_power_loss_at_any_step(void **state) {
    (void)state;
    crash_rounds(true);
}

/* ---- Snapshots ---- */

static int checkpoint_count(struct meta *m, char first[2][64]) {
    char **names;
    int found = 0;
    size_t n = sim_disk_names(m->sim, META_LOG, &names);
    for (size_t i = 0; i < n; i++) {
        int64_t end;
        int32_t epoch;
        if (kb_snapshot_name_parse(names[i], &end, &epoch) && found < 2) snprintf(first[found], 64, "%s", names[i]);
        found += kb_snapshot_name_parse(names[i], &end, &epoch);
        free(names[i]);
    }
    free(names);
    return found;
}

static void make_snapshots(struct meta *m, int topics) {
    for (int i = 0; i < topics; i++) {
        char name[16];
        snprintf(name, sizeof(name), "s%d", i);
        assert_int_equal(meta_create(m, name, 2), 0);
        assert_int_equal(meta_config(m, 2, name, "retention.ms", "77", 0), 0);
        if (i % 3 == 0) assert_int_equal(meta_delete(m, name), 0);
    }
}

static void test_snapshots_cut_the_log(void **state) {
    (void)state;
    struct meta m;
    char names[2][64];
    meta_init(&m, 4, NULL);
    meta_set(&m, "metadata.log.max.record.bytes.between.snapshots", "2000");
    meta_set(&m, "metadata.log.segment.bytes", "1024");
    meta_start(&m);
    make_snapshots(&m, 30);
    assert_int_equal(checkpoint_count(&m, names), 2);
    int64_t end, previous;
    int32_t epoch;
    assert_true(kb_snapshot_name_parse(names[0], &previous, &epoch));
    assert_true(kb_snapshot_name_parse(names[1], &end, &epoch));
    assert_true(previous < end);
    assert_int_equal(m.store->log->start, previous); /* the older one's end: the newest may turn out corrupt */
    meta_idle(&m);                                   /* the deletion's delay passes */
    assert_false(has_file(&m, META_LOG "/00000000000000000000.log"));
    for (int round = 0; round < 3; round++) {
        if (round == 0)
            meta_stop(&m);
        else
            meta_crash(&m, round == 2);
        meta_start(&m);
        assert_int_equal(kb_image_partition(&m.image, kw_str_of("s1"), 0)->leader_epoch, round + 1); /* BR-14: applied once, not twice */
        assert_null(kb_image_topic(&m.image, kw_str_of("s3"))); /* BR-14: what went before the snapshot stays gone */
        assert_string_equal(kb_image_config_get(&m.image, 2, kw_str_of("s1"), "retention.ms"), "77");
    }
    assert_int_equal(m.image.topics_by_name.count, 20);
    meta_stop(&m);
    meta_deinit(&m);
}

/* BR-14: crashes around the writing of snapshots; the image that comes back is the one that was, plus the new epoch's records. */
static void test_br_14_snapshot_and_tail_after_crashes(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 30; seed++) {
        struct meta m;
        meta_init(&m, seed, NULL);
        meta_set(&m, "metadata.log.max.record.bytes.between.snapshots", "1500");
        meta_set(&m, "metadata.log.segment.bytes", "1024");
        meta_start(&m);
        int made = 0;
        for (int round = 0; round < 3; round++) {
            for (int i = 0; i < 8; i++) {
                char name[16];
                snprintf(name, sizeof(name), "n%d", made++);
                assert_int_equal(meta_create(&m, name, 1), 0);
                if (i % 2) assert_int_equal(meta_delete(&m, name), 0);
            }
            struct meta_change c; /* one more is under way, and with it perhaps a snapshot */
            struct kb_topic_create t = {.name = kw_str_of("last"), .partitions = 1, .replication_factor = -1};
            assert_int_equal(kb_controller_create_topics(m.controller, &t, 1, false, meta_change(&c), m.now), KW_OK);
            for (int i = (int)kw_rng_below(&m.rng, 30); i > 0 && meta_step(&m); i--) {
            }
            bool last = c.done && t.result.code == 0;
            meta_crash(&m, seed % 2);
            meta_start(&m);
            if (last) assert_non_null(kb_image_topic(&m.image, kw_str_of("last")));
            if (kb_image_topic(&m.image, kw_str_of("last"))) assert_int_equal(meta_delete(&m, "last"), 0);
            for (int i = 0; i < made; i++) {
                char name[16];
                snprintf(name, sizeof(name), "n%d", i);
                const struct kb_image_partition *p = kb_image_partition(&m.image, kw_str_of(name), 0);
                assert_true((p != NULL) == (i % 2 == 0));
                if (p) assert_int_equal(p->leader_epoch, round + 1 - i / 8);
            }
        }
        meta_stop(&m);
        meta_deinit(&m);
    }
}

static void refuses_to_start(struct meta *m, const char *says) {
    m->lines[0] = 0;
    assert_int_equal(meta_boot(m), KW_OK);
    meta_idle(m);
    assert_true(m->ready);
    assert_int_equal(m->ready_err, KW_EIO);
    const char *why = kb_store_failure(m->store);
    assert_non_null(why);
    if (!strstr(why, says)) fail_msg("it says \"%s\", without \"%s\"", why, says);
    assert_non_null(strstr(m->lines, says)); /* in the log too */
    meta_drop(m);
}

/* BR-16: a corrupt snapshot never makes a node forget its topics: it goes back to the one before and the log, or it does not serve. */
static void test_br_16_corrupt_snapshot(void **state) {
    (void)state;
    struct meta m;
    char names[2][64], path[2][160];
    meta_init(&m, 6, NULL);
    meta_set(&m, "metadata.log.max.record.bytes.between.snapshots", "2000");
    meta_set(&m, "metadata.log.segment.bytes", "1024");
    meta_start(&m);
    make_snapshots(&m, 30);
    sim_disk_poke(m.sim, META_DIR "/s1-0/00000000000000000000.log", "records", 7);
    meta_stop(&m);
    assert_int_equal(checkpoint_count(&m, names), 2);
    for (int i = 0; i < 2; i++) snprintf(path[i], sizeof(path[i]), "%s/%s", META_LOG, names[i]);
    meta_set(&m, "metadata.log.max.record.bytes.between.snapshots", "1000000"); /* no new ones from here on */
    sim_disk_rot(m.sim, path[1], 200, 0x10);                                    /* the newest */
    meta_start(&m);
    assert_non_null(strstr(m.lines, "is corrupt"));
    assert_int_equal(m.image.topics_by_name.count, 20);
    assert_int_equal(kb_image_partition(&m.image, kw_str_of("s29"), 0)->leader_epoch, 1);
    meta_crash(&m, false);
    sim_disk_rot(m.sim, path[0], 300, 0x01); /* now both */
    refuses_to_start(&m, "no valid snapshot reaches it");
    assert_non_null(strstr(m.lines, "no partition is taken for deleted"));
    assert_true(has_file(&m, META_DIR "/s1-0/00000000000000000000.log"));
    sim_disk_rot(m.sim, path[0], 300, 0x01); /* restored from a copy */
    meta_start(&m);
    assert_int_equal(m.image.topics_by_name.count, 20);
    meta_stop(&m);
    sim_disk_cut(m.sim, path[0], 100);
    sim_disk_remove(m.sim, path[1]);
    refuses_to_start(&m, "no valid snapshot reaches it");
    meta_deinit(&m);
}

static void test_snapshot_ahead_of_the_log(void **state) {
    (void)state;
    struct meta m;
    char **names;
    meta_init(&m, 7, NULL);
    meta_set(&m, "metadata.log.max.record.bytes.between.snapshots", "2000");
    meta_start(&m);
    make_snapshots(&m, 20);
    meta_stop(&m);
    size_t n = sim_disk_names(m.sim, META_LOG, &names); /* the log is lost, the snapshots are not */
    for (size_t i = 0; i < n; i++) {
        char path[200];
        snprintf(path, sizeof(path), "%s/%s", META_LOG, names[i]);
        if (!strstr(names[i], ".checkpoint") && !strstr(names[i], "quorum-state")) sim_disk_remove(m.sim, path);
        free(names[i]);
    }
    free(names);
    meta_start(&m);
    assert_non_null(strstr(m.lines, "below its snapshot"));
    assert_non_null(kb_image_topic(&m.image, kw_str_of("s1")));
    int64_t leo = m.store->log->leo;
    meta_stop(&m);
    meta_start(&m);
    assert_true(m.store->log->leo > leo);
    meta_stop(&m);
    meta_deinit(&m);
}

/* ---- Damaged and foreign files ---- */

static void test_damaged_files_stop_the_start(void **state) {
    (void)state;
    struct meta m;
    meta_init(&m, 8, NULL);
    meta_start(&m);
    assert_int_equal(meta_create(&m, "t", 1), 0);
    meta_stop(&m);
    char properties[400], vote[400];
    snprintf(properties, sizeof(properties), "%s", text_of(&m, META_DIR "/meta.properties"));
    snprintf(vote, sizeof(vote), "%s", text_of(&m, META_LOG "/quorum-state"));

    sim_disk_remove(m.sim, META_DIR "/meta.properties");
    refuses_to_start(&m, "meta.properties is missing");
    sim_disk_poke(m.sim, META_DIR "/meta.properties", "version=1\n", 10);
    refuses_to_start(&m, "cluster.id, directory.id and node.id");
    sim_disk_poke(m.sim, META_DIR "/meta.properties", "", 0);
    refuses_to_start(&m, "cluster.id, directory.id and node.id");
    char other[400];
    snprintf(other, sizeof(other), "%s", properties);
    memcpy(strstr(other, "node.id=1"), "node.id=2", 9);
    sim_disk_poke(m.sim, META_DIR "/meta.properties", other, strlen(other));
    refuses_to_start(&m, "belongs to node 2");
    sim_disk_poke(m.sim, META_DIR "/meta.properties", properties, strlen(properties));

    static const char *const votes[] = {"", "{", "{}", "{\"leaderEpoch\":x}", "{\"leaderEpoch\":99999999999}", "\"leaderEpoch\":3"};
    for (size_t i = 0; i < KW_COUNTOF(votes); i++) {
        sim_disk_poke(m.sim, META_LOG "/quorum-state", votes[i], strlen(votes[i]));
        refuses_to_start(&m, "quorum-state is corrupt");
    }
    /* A quorum-state that is older than the log (restored from a copy): the epoch goes above both, and is stored before it is used. */
    sim_disk_poke(m.sim, META_LOG "/quorum-state", vote, strlen(vote));
    for (int i = 0; i < 3; i++) {
        meta_start(&m);
        meta_stop(&m);
    }
    sim_disk_poke(m.sim, META_LOG "/quorum-state", vote, strlen(vote));
    meta_start(&m);
    assert_non_null(strstr(m.lines, "an older one"));
    assert_int_equal(kb_store_epoch(m.store), 5);
    assert_int_equal(stored_epoch(&m), 5);
    meta_stop(&m);
    sim_disk_remove(m.sim, META_LOG "/quorum-state");
    meta_start(&m);
    assert_int_equal(kb_store_epoch(m.store), 6);
    assert_non_null(kb_image_topic(&m.image, kw_str_of("t")));
    meta_stop(&m);

    size_t n; /* rot in the middle of the log: the node must not go on without what stood there */
    sim_disk_peek(m.sim, META_LOG "/00000000000000000000.log", &n);
    sim_disk_rot(m.sim, META_LOG "/00000000000000000000.log", 150, 0x40);
    m.clean = true;
    refuses_to_start(&m, "metadata log cannot be read");
    meta_deinit(&m);
}

/* After a crash a batch that does not hold together may be one that was being written. Not so in front of an epoch's beginning: whatever byte of it
 * rots, the start is refused, or does without it; nothing of what was committed is cut off. */
static void test_rot_is_no_torn_write(void **state) {
    (void)state;
    static const char log[] = META_LOG "/00000000000000000000.log";
    struct meta m;
    meta_init(&m, 21, NULL);
    meta_start(&m);
    assert_int_equal(meta_create(&m, "t", 2), 0);
    meta_crash(&m, true);
    size_t before, n;
    sim_disk_peek(m.sim, log, &before);
    meta_start(&m);
    assert_int_equal(meta_create(&m, "u", 1), 0);
    meta_crash(&m, true);
    int refused = 0;
    for (size_t at = 0; at < before; at++) {
        sim_disk_rot(m.sim, log, at, (uint8_t)(1 << at % 8));
        assert_int_equal(meta_boot(&m), KW_OK);
        meta_idle(&m);
        assert_true(m.ready);
        refused += m.ready_err != KW_OK;
        if (!m.ready_err) assert_true(kb_image_topic(&m.image, kw_str_of("t")) && kb_image_topic(&m.image, kw_str_of("u")));
        meta_crash(&m, false);
        sim_disk_peek(m.sim, log, &n);
        assert_true(n > before);
        sim_disk_rot(m.sim, log, at, (uint8_t)(1 << at % 8)); /* from a copy */
    }
    assert_in_range(refused, before * 9 / 10, before); /* checksums do not cover leader epochs */
    meta_start(&m);
    assert_non_null(kb_image_topic(&m.image, kw_str_of("t")));
    meta_deinit(&m);
}

/* No epoch comes behind the last: a folder that knows it is damaged. (fuzz_metadata_replay: it was counted on from there.) */
static void test_the_last_epoch(void **state) {
    (void)state;
    struct meta m;
    meta_init(&m, 9, NULL);
    meta_start(&m);
    struct kw_out image = meta_bytes(&m.image);
    char name[KB_SNAPSHOT_NAME_SIZE], path[160];
    kb_snapshot_name(m.image.offset + 1, INT32_MAX, name);
    snprintf(path, sizeof(path), "%s/%s", META_LOG, name);
    meta_stop(&m);
    sim_disk_poke(m.sim, path, image.p, image.len);
    kw_out_deinit(&image);
    refuses_to_start(&m, "no epoch comes behind 2147483647");
    sim_disk_remove(m.sim, path);
    size_t n;
    uint8_t log[4096];
    const char *const file = META_LOG "/00000000000000000000.log";
    const uint8_t *p = sim_disk_peek(m.sim, file, &n);
    assert_true(n <= sizeof(log));
    memcpy(log, p, n);
    for (size_t at = 0; at < n; at += (size_t)kw_batch_size_peek(log + at, n - at)) kw_batch_set_leader_epoch(log + at, INT32_MAX);
    sim_disk_poke(m.sim, file, log, n);
    sim_disk_remove(m.sim, META_LOG "/leader-epoch-checkpoint");
    m.clean = false;
    refuses_to_start(&m, "no epoch comes behind 2147483647");
    meta_deinit(&m);
}

static void test_apache_kafkas_meta_properties(void **state) {
    (void)state;
    struct meta m;
    static const char file[] =
        "#\n#Sun Nov 29 14:03:58 UTC 2026\nnode.id=1\ndirectory.id=1dr-wX82K6UoHrDdESN43A\nversion=1\ncluster.id=bench-cluster-00000000\n";
    meta_init(&m, 9, NULL);
    sim_disk_poke(m.sim, META_DIR "/meta.properties", file, sizeof(file) - 1);
    meta_start(&m);
    assert_string_equal(kb_store_cluster_id(m.store), "bench-cluster-00000000");
    char id[23];
    kb_uuid_text(kb_store_directory_id(m.store), id);
    assert_string_equal(id, "1dr-wX82K6UoHrDdESN43A");
    meta_stop(&m);
    meta_deinit(&m);
}

/* ---- Failing disk ---- */

static void test_full_disk_refuses_and_recovers(void **state) {
    (void)state;
    struct meta m;
    meta_init(&m, 10, NULL);
    meta_start(&m);
    assert_int_equal(meta_create(&m, "before", 1), 0);
    sim_disk_faults(m.sim)->free_bytes = 0;
    assert_int_equal(meta_create(&m, "full", 1), KE_KAFKA_STORAGE_ERROR);
    assert_null(kb_image_topic(&m.image, kw_str_of("full")));
    sim_disk_faults(m.sim)->free_bytes = -1;
    assert_int_equal(meta_create(&m, "full", 1), 0);
    assert_true(m.refused > 0);
    meta_crash(&m, true);
    meta_start(&m);
    assert_non_null(kb_image_topic(&m.image, kw_str_of("before")));
    assert_non_null(kb_image_topic(&m.image, kw_str_of("full")));
    meta_stop(&m);
    meta_deinit(&m);
}

static void test_failed_sync_is_never_acknowledged(void **state) {
    (void)state;
    struct meta m;
    meta_init(&m, 11, NULL);
    meta_start(&m);
    sim_disk_faults(m.sim)->eio_sync_at = 0;
    assert_int_equal(meta_create(&m, "t", 1), KE_KAFKA_STORAGE_ERROR);
    assert_non_null(kb_store_failure(m.store));
    assert_int_equal(m.ready_err, KW_EIO); /* the node hears of it */
    assert_null(kb_image_topic(&m.image, kw_str_of("t")));
    assert_int_equal(meta_create(&m, "u", 1), KE_KAFKA_STORAGE_ERROR);
    meta_crash(&m, true);
    meta_start(&m);
    assert_null(kb_image_topic(&m.image, kw_str_of("u")));
    meta_stop(&m);
    meta_deinit(&m);
}

static void test_full_disk_at_the_first_start(void **state) {
    (void)state;
    for (int64_t n = 0; n < 12; n++) {
        struct meta m;
        meta_init(&m, 12, NULL);
        sim_disk_faults(m.sim)->enospc_at = n;
        assert_int_equal(meta_boot(&m), KW_OK);
        meta_idle(&m);
        assert_true(m.ready);
        assert_true(m.ready_err == KW_OK || kb_store_failure(m.store) != NULL);
        meta_drop(&m);
        sim_disk_faults(m.sim)->enospc_at = -1;
        meta_start(&m); /* with room it starts, whatever the first left behind */
        assert_int_equal(meta_create(&m, "t", 1), 0);
        meta_stop(&m);
        meta_deinit(&m);
    }
}

static bool no_memory;
static int memory_for; /* so many more */
static bool refused(void) {
    return no_memory && memory_for-- <= 0;
}
static void *some_malloc(size_t n, void *ctx) {
    (void)ctx;
    return refused() ? NULL : malloc(n);
}
static void *some_realloc(void *p, size_t n, void *ctx) {
    (void)ctx;
    return refused() ? NULL : realloc(p, n);
}
static void some_free(void *p, void *ctx) {
    (void)ctx;
    free(p);
}

/* A round of syncs finds no memory, and neither does the next, nor the one after that: what is written is made durable all the same, later
 * (simulator: an observer that never fetched again). */
static void test_sync_without_memory_for_long(void **state) {
    (void)state;
    struct kw_allocator some = {some_malloc, some_realloc, some_free, NULL};
    int stuck = 0;
    kw_allocator_set(&some);
    for (int64_t n = 0; n < 12; n++) {
        struct meta m;
        struct meta_change c;
        struct kb_topic_create t = {.name = kw_str_of("t"), .partitions = 1, .replication_factor = -1};
        meta_init(&m, 14, NULL);
        meta_start(&m);
        assert_int_equal(kb_controller_create_topics(m.controller, &t, 1, false, meta_change(&c), m.now), KW_OK);
        kw_alloc_fail_after(n);
        meta_turn(&m); /* the write, and the round of syncs: one of them is not made */
        kw_alloc_fail_after(-1);
        memory_for = 0;
        no_memory = true;
        for (int64_t until = m.now.mono_us + 1000000; m.now.mono_us < until && meta_step(&m);) continue;
        stuck += m.store->log->written > m.store->log->synced;
        no_memory = false;
        meta_idle(&m);
        assert_int_equal(c.done, 1);
        assert_int_equal(m.store->log->synced, m.store->log->leo);
        meta_drop(&m);
        meta_deinit(&m);
    }
    assert_true(stuck > 0);
}

static void idle_timer(struct kw_timer *t, void *ctx, int64_t now_us) {
    (void)t, (void)ctx, (void)now_us;
}

/* No room for another timer. */
static void fill(struct meta *m, struct kw_timer *idle, size_t count) {
    for (size_t i = 0; i < count && m->timers.count + m->timers.late < m->timers.cap; i++)
        if (!kw_timer_armed(&idle[i])) assert_int_equal(kw_timers_set(&m->timers, &idle[i], m->now.mono_us + 5000000), KW_OK);
}

/* A sync fails, and its next try finds no timer, for want of memory: it is set later, though nothing more is written to the log. */
static void test_sync_without_a_timer(void **state) {
    (void)state;
    struct kw_allocator some = {some_malloc, some_realloc, some_free, NULL};
    struct kw_timer idle[1024];
    int stuck = 0;
    kw_allocator_set(&some);
    for (int n = 0; n < 12; n++) {
        struct meta m;
        struct meta_change c;
        struct kb_topic_create t = {.name = kw_str_of("t"), .partitions = 1, .replication_factor = -1};
        meta_init(&m, 14, NULL);
        meta_start(&m);
        for (size_t i = 0; i < KW_COUNTOF(idle); i++) kw_timer_init(&idle[i], idle_timer, NULL);
        assert_int_equal(kb_controller_create_topics(m.controller, &t, 1, false, meta_change(&c), m.now), KW_OK);
        fill(&m, idle, KW_COUNTOF(idle));
        memory_for = n; /* the write finds memory and the round of syncs does not, say */
        no_memory = true;
        meta_turn(&m);
        for (int64_t until = m.now.mono_us + 1000000; m.now.mono_us < until && meta_step(&m);) fill(&m, idle, KW_COUNTOF(idle));
        no_memory = false;
        stuck += m.store->log->written > m.store->log->synced && !kw_timer_armed(&m.store->sync_again);
        kw_timers_cancel(&m.timers, &idle[0]);
        assert_int_equal(kw_timers_set(&m.timers, &idle[0], m.now.mono_us + 1000), KW_OK); /* one more turn of a node that is idle */
        meta_idle(&m);
        assert_int_equal(m.store->log->synced, m.store->log->leo);
        for (size_t i = 0; i < KW_COUNTOF(idle); i++) kw_timers_cancel(&m.timers, &idle[i]);
        meta_drop(&m);
        meta_deinit(&m);
    }
    assert_true(stuck > 0);
}

static void test_failing_allocation(void **state) {
    (void)state;
    bool done = false;
    for (int64_t n = 0; !done; n++) {
        struct meta m;
        struct meta_change c = {.done = 0};
        struct kb_topic_create t = {.name = kw_str_of("t"), .partitions = 2, .replication_factor = -1};
        meta_init(&m, 13, NULL);
        meta_set(&m, "metadata.log.max.record.bytes.between.snapshots", "100");
        kw_alloc_fail_after(n);
        kw_err err = meta_boot(&m);
        if (!err) meta_idle(&m);
        if (!err && m.ready && !m.ready_err) {
            err = kb_controller_create_topics(m.controller, &t, 1, false, meta_change(&c), m.now);
            if (!err) meta_idle(&m);
        }
        kw_alloc_fail_after(-1);
        assert_true(err == KW_OK || err == KW_ENOMEM);
        if (!err && m.ready && !m.ready_err) assert_int_equal(c.done, 1);
        done = !err && m.ready && !m.ready_err && t.result.code == 0 && n > 50;
        bool made = c.done && t.result.code == 0;
        meta_drop(&m);
        meta_start(&m);
        if (made) assert_non_null(kb_image_topic(&m.image, kw_str_of("t")));
        meta_stop(&m);
        meta_deinit(&m);
        assert_in_range(n, 0, 3000);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_start),
        cmocka_unit_test(test_restart_raises_epochs),
        cmocka_unit_test(test_many_partitions_take_several_batches),
        cmocka_unit_test(test_kill9_at_any_step),
        cmocka_unit_test(test_power_loss_at_any_step),
        cmocka_unit_test(test_snapshots_cut_the_log),
        cmocka_unit_test(test_br_14_snapshot_and_tail_after_crashes),
        cmocka_unit_test(test_br_16_corrupt_snapshot),
        cmocka_unit_test(test_snapshot_ahead_of_the_log),
        cmocka_unit_test(test_damaged_files_stop_the_start),
        cmocka_unit_test(test_rot_is_no_torn_write),
        cmocka_unit_test(test_the_last_epoch),
        cmocka_unit_test(test_apache_kafkas_meta_properties),
        cmocka_unit_test(test_full_disk_refuses_and_recovers),
        cmocka_unit_test(test_failed_sync_is_never_acknowledged),
        cmocka_unit_test(test_full_disk_at_the_first_start),
        cmocka_unit_test(test_sync_without_memory_for_long),
        cmocka_unit_test(test_sync_without_a_timer),
        cmocka_unit_test(test_failing_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
