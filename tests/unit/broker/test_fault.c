/* test_fault.c - fault rules: which requests a rule strikes, what each of its effects does, and what is wrong with a rule that cannot be
 * read. */
#include "node_rig.h"

#include <jansson.h>

#include "random_msg.h"

#include "fault.h"

struct fixture {
    struct rig r;
    struct rig_conn *c;
};

static void up(struct fixture *x, const char *rules) {
    rig_init(&x->r, 1);
    x->r.faults = rules;
    rig_start(&x->r);
    x->c = rig_connect(&x->r);
    assert_int_equal(rig_create(x->c, "t", 2, NULL, NULL), KE_NONE);
}
static void down(struct fixture *x) {
    rig_deinit(&x->r);
}

static int16_t put(struct fixture *x) {
    return rig_produce(x->c, "t", (struct rig_batch){.count = 1}).error_code;
}

static int64_t end_of(struct fixture *x) {
    return rig_partition(&x->r, "t", 0)->hw;
}

static void test_nth_every_percent(void **state) {
    (void)state;
    struct fixture x;
    up(&x, "{\"rules\": [{\"api\": \"Produce\", \"nth\": 3, \"error\": \"NOT_LEADER_OR_FOLLOWER\"}]}");
    for (int i = 1; i <= 6; i++) assert_int_equal(put(&x), i == 3 ? KE_NOT_LEADER_OR_FOLLOWER : KE_NONE);
    assert_int_equal(end_of(&x), 5); /* before: it had no effect */
    down(&x);
    up(&x, "[{\"api\": 0, \"every\": 2, \"times\": 2, \"error\": 7, \"when\": \"after\"}]");
    for (int i = 1; i <= 8; i++) assert_int_equal(put(&x), i == 2 || i == 4 ? KE_REQUEST_TIMED_OUT : KE_NONE);
    assert_int_equal(end_of(&x), 8); /* after: it had */
    assert_int_equal(kb_faults_hits(x.r.node->faults), 2);
    down(&x);
    up(&x, "[{\"api\": \"Produce\", \"percent\": 30, \"error\": \"REQUEST_TIMED_OUT\"}]");
    int hits = 0;
    for (int i = 0; i < 300; i++) hits += put(&x) != KE_NONE;
    assert_in_range(hits, 60, 120);
    down(&x);
    up(&x, "[{\"api\": \"Produce\", \"after\": 2, \"error\": \"REQUEST_TIMED_OUT\", \"times\": 1}]");
    for (int i = 1; i <= 4; i++) assert_int_equal(put(&x), i == 3 ? KE_REQUEST_TIMED_OUT : KE_NONE);
    down(&x);
}

static void test_filters(void **state) {
    (void)state;
    struct fixture x;
    up(&x, "[{\"api\": \"Produce\", \"topic\": \"t\", \"partition\": 1, \"error\": \"REQUEST_TIMED_OUT\"}]");
    size_t n;
    uint8_t *p = rig_batch(&x.r, &(struct rig_batch){.count = 1, .pid = -1, .epoch = -1, .seq = -1}, &n);
    assert_int_equal(rig_produce_bytes(x.c, "t", 0, 9, 1, p, n).error_code, KE_NONE);
    assert_int_equal(rig_produce_bytes(x.c, "t", 1, 9, 1, p, n).error_code, KE_REQUEST_TIMED_OUT);
    down(&x);
    up(&x, "[{\"api\": \"Fetch\", \"versions\": [4, 11], \"topic\": \"t\", \"error\": \"NOT_LEADER_OR_FOLLOWER\"},"
           " {\"api\": \"Fetch\", \"versions\": 13, \"topic\": \"t\", \"error\": \"UNKNOWN_TOPIC_ID\"},"
           " {\"client_id\": \"other\", \"close\": true}, {\"broker\": 7, \"close\": true}, {\"topic\": \"u\", \"close\": true}]");
    put(&x);
    assert_int_equal(rig_fetch_one(x.c, RIG_FETCH(.version = 11, .topic = "t"))->error_code, KE_NOT_LEADER_OR_FOLLOWER);
    assert_int_equal(rig_fetch_one(x.c, RIG_FETCH(.version = 12, .topic = "t"))->error_code, KE_NONE);
    assert_int_equal(rig_fetch_one(x.c, RIG_FETCH(.version = 13, .topic = "t"))->error_code, KE_UNKNOWN_TOPIC_ID); /* by id */
    down(&x);
}

/* An answer that mirrors the request, for the APIs where it can; else the real one with its errors set. */
static void test_errors_of_other_apis(void **state) {
    (void)state;
    struct fixture x;
    up(&x, "[{\"api\": \"ListOffsets\", \"error\": 6}, {\"api\": \"Metadata\", \"error\": \"LEADER_NOT_AVAILABLE\"}, {\"api\": "
           "\"InitProducerId\", \"error\": 15},"
           " {\"api\": \"CreateTopics\", \"after\": 1, \"error\": \"NOT_CONTROLLER\"}, {\"api\": \"DeleteRecords\", \"error\": 6},"
           " {\"api\": \"ApiVersions\", \"error\": 42}, {\"api\": \"FindCoordinator\", \"error\": 29}]");
    struct kw_list_offsets_request lo;
    struct kw_list_offsets_response lr;
    struct kw_list_offsets_request_list_offsets_partition part = {
        .partition_index = 1, .current_leader_epoch = -1, .timestamp = -1, .max_num_offsets = 1};
    struct kw_list_offsets_request_list_offsets_topic topic = {.name = kw_str_of("t"), .partitions = {&part, 1}};
    kw_msg_init(&kw_list_offsets_request_desc, &lo);
    lo.replica_id = -1;
    lo.topics.v = &topic;
    lo.topics.n = 1;
    for (int16_t v = 0; v <= 11; v++) {
        rig_call(x.c, KW_API_LIST_OFFSETS, v, &lo, &lr);
        assert_int_equal(lr.topics.v[0].partitions.v[0].error_code, 6);
        assert_int_equal(lr.topics.v[0].partitions.v[0].partition_index, 1);
        assert_true(kw_str_eq(lr.topics.v[0].name, kw_str_of("t")));
    }
    struct kw_metadata_request md;
    struct kw_metadata_response mr;
    struct kw_metadata_request_topic mt = {.name = kw_str_of("t")};
    kw_msg_init(&kw_metadata_request_desc, &md);
    md.topics.v = &mt;
    md.topics.n = 1;
    rig_call(x.c, KW_API_METADATA, 9, &md, &mr);
    assert_int_equal(mr.brokers.n, 1); /* the rest of the answer is real */
    assert_int_equal(mr.topics.v[0].error_code, KE_LEADER_NOT_AVAILABLE);
    struct kw_init_producer_id_request ip;
    struct kw_init_producer_id_response ir;
    kw_msg_init(&kw_init_producer_id_request_desc, &ip);
    ip.transactional_id = kw_str_null();
    rig_call(x.c, KW_API_INIT_PRODUCER_ID, 3, &ip, &ir);
    assert_int_equal(ir.error_code, 15);
    assert_int_equal(rig_create(x.c, "u", 1, NULL, NULL), KE_NOT_CONTROLLER);
    assert_null(kb_image_topic(&x.r.node->image, kw_str_of("u")));
    struct kw_find_coordinator_request fq;
    struct kw_find_coordinator_response fr;
    struct kw_str key = kw_str_of("g");
    kw_msg_init(&kw_find_coordinator_request_desc, &fq);
    fq.coordinator_keys.v = &key;
    fq.coordinator_keys.n = 1;
    rig_call(x.c, KW_API_FIND_COORDINATOR, 4, &fq, &fr);
    assert_int_equal(fr.coordinators.v[0].error_code, 29);
    assert_true(kw_str_eq(fr.coordinators.v[0].key, key));
    down(&x);
}

/* Whatever is asked, in any version, by random: the error is answered in a form that the version has. */
static void test_errors_of_every_api(void **state) {
    (void)state;
    struct fixture x;
    struct kw_rng rng;
    kw_rng_init(&rng, 9);
    up(&x, "{\"rules\": [{\"after\": 1, \"error\": \"REQUEST_TIMED_OUT\"}]}");
    for (size_t i = 0; i < kb_api_table_count; i++)
        for (int16_t v = kb_api_table[i].min; v <= kb_api_table[i].max; v++)
            for (uint32_t k = 0; k < 12; k++) {
                const struct kw_api *api = kw_api_by_key(kb_api_table[i].key);
                struct kw_arena arena;
                kw_arena_init(&arena, 0);
                void *msg = random_message(api->request, v, &rng, &arena, k % 4);
                if (api->key == KW_API_PRODUCE) ((struct kw_produce_request *)msg)->acks = 1; /* else none is due */
                if (api->key == KW_API_DESCRIBE_TOPIC_PARTITIONS) ((struct kw_describe_topic_partitions_request *)msg)->response_partition_limit = 9;
                struct rig_conn *c = rig_connect(&x.r);
                rig_request(c, api->key, v, 5, msg);
                for (int t = 0; t < 100 && c->conn && c->in_len == 0; t++) rig_pass(&x.r, 20000);
                if (!c->conn || c->in_len == 0) fail_msg("%s v%d: %s\n%s", api->name, v, c->conn ? "no answer" : "closed", x.r.lines);
                void *answer = kw_arena_alloc(&arena, api->response->size);
                assert_true(rig_response(c, api->key, v, 5, answer));
                kb_conn_closed(c->conn, x.r.now);
                c->conn = NULL;
                kw_arena_deinit(&arena);
            }
    down(&x);
}

static void test_close(void **state) {
    (void)state;
    struct fixture x;
    up(&x,
       "[{\"api\": \"Produce\", \"nth\": 1, \"close\": true}, {\"api\": \"Produce\", \"nth\": 1, \"close\": true, \"when\": \"after\"}]");
    for (int i = 0; i < 2; i++) {
        struct rig_conn *c = rig_connect(&x.r);
        size_t n;
        uint8_t *p = rig_batch(&x.r, &(struct rig_batch){.count = 1, .pid = -1, .epoch = -1, .seq = -1}, &n);
        rig_request(c, KW_API_PRODUCE, 9, 1, &rig_produce_msg(&x.r, "t", 0, 1, p, n)->req);
        rig_settle(&x.r);
        assert_null(c->conn);
        assert_int_equal(c->in_len, 0);
        assert_int_equal(end_of(&x), i); /* the second one closes after the effect */
    }
    assert_int_equal(put(&x), KE_NONE);
    down(&x);
}

static void test_delay_and_throttle(void **state) {
    (void)state;
    for (int after = 0; after < 2; after++) {
        struct fixture x;
        up(&x, after ? "[{\"api\": \"Produce\", \"delay_ms\": 500, \"when\": \"after\", \"throttle_ms\": 77}]"
                     : "[{\"api\": \"Produce\", \"delay_ms\": 500}]");
        size_t n;
        uint8_t *p = rig_batch(&x.r, &(struct rig_batch){.count = 1, .pid = -1, .epoch = -1, .seq = -1}, &n);
        rig_request(x.c, KW_API_PRODUCE, 9, 1, &rig_produce_msg(&x.r, "t", 0, 1, p, n)->req);
        rig_pass(&x.r, 400000);
        struct kw_produce_response resp;
        assert_false(rig_response(x.c, KW_API_PRODUCE, 9, 1, &resp));
        assert_int_equal(end_of(&x), after);
        rig_pass(&x.r, 200000);
        assert_true(rig_response(x.c, KW_API_PRODUCE, 9, 1, &resp));
        assert_int_equal(end_of(&x), 1);
        assert_int_equal(resp.throttle_time_ms, after ? 77 : 0);
        p = rig_batch(&x.r, &(struct rig_batch){.count = 1, .pid = -1, .epoch = -1, .seq = -1}, &n);
        rig_request(x.c, KW_API_PRODUCE, 9, 1, &rig_produce_msg(&x.r, "t", 0, 1, p, n)->req);
        rig_close_conns(&x.r); /* gone in the meantime */
        rig_pass(&x.r, 1000000);
        assert_true(kw_list_empty(&x.r.node->net.orphans));
        down(&x);
    }
}

static void test_stall(void **state) {
    (void)state;
    struct fixture x;
    up(&x, "[{\"api\": \"Produce\", \"nth\": 1, \"stall\": true}]");
    struct rig_conn *c = rig_connect(&x.r);
    size_t n;
    uint8_t *p = rig_batch(&x.r, &(struct rig_batch){.count = 1, .pid = -1, .epoch = -1, .seq = -1}, &n);
    rig_request(c, KW_API_PRODUCE, 9, 1, &rig_produce_msg(&x.r, "t", 0, 1, p, n)->req);
    p = rig_batch(&x.r, &(struct rig_batch){.count = 1, .pid = -1, .epoch = -1, .seq = -1}, &n);
    rig_request(c, KW_API_PRODUCE, 9, 2, &rig_produce_msg(&x.r, "t", 0, 1, p, n)->req);
    rig_pass(&x.r, 60000000);
    assert_non_null(c->conn);
    assert_int_equal(c->in_len, 0); /* what comes behind it waits too */
    assert_int_equal(put(&x), KE_NONE);
    down(&x);
}

static void test_corrupt(void **state) {
    (void)state;
    struct fixture x;
    up(&x, "[{\"api\": \"Fetch\", \"nth\": 1, \"corrupt\": -40}, {\"api\": \"Fetch\", \"nth\": 1, \"corrupt\": 10}]");
    rig_produce(x.c, "t", (struct rig_batch){.count = 1, .value_size = 500});
    rig_fetched *f = rig_fetch_one(x.c, RIG_FETCH(.topic = "t")); /* in the records, which lie in a file */
    assert_int_equal(f->error_code, KE_NONE);
    assert_false(kw_batch_crc_ok(f->records.p, (size_t)f->records.len));
    rig_request(x.c, KW_API_FETCH, 11, 5, &rig_fetch_msg(&x.r, &RIG_FETCH(.topic = "t"))->req);
    rig_settle(&x.r);
    size_t n;
    const uint8_t *p = rig_frame(x.c, &n);
    assert_non_null(p);
    assert_int_equal(p[6], 0x20); /* byte 10 with the length: in the throttle time */
    f = rig_fetch_one(x.c, RIG_FETCH(.topic = "t"));
    assert_true(kw_batch_crc_ok(f->records.p, (size_t)f->records.len)); /* the log itself is whole */
    down(&x);
}

static void test_drip(void **state) {
    (void)state;
    struct fixture x;
    up(&x, "[{\"api\": \"Fetch\", \"drip_bytes_per_s\": 1000}]");
    rig_produce(x.c, "t", (struct rig_batch){.count = 1, .value_size = 3000});
    struct rig_conn *c = rig_connect(&x.r);
    rig_request(c, KW_API_FETCH, 11, 5, &rig_fetch_msg(&x.r, &RIG_FETCH(.topic = "t"))->req);
    rig_pass(&x.r, 1000000);
    assert_in_range(c->in_len, 800, 1100);
    rig_pass(&x.r, 1000000);
    assert_in_range(c->in_len, 1800, 2100);
    rig_pass(&x.r, 3000000);
    struct kw_fetch_response resp;
    assert_true(rig_response(c, KW_API_FETCH, 11, 5, &resp));
    assert_true(kw_batch_crc_ok(resp.responses.v[0].partitions.v[0].records.p, (size_t)resp.responses.v[0].partitions.v[0].records.len));
    rig_request(c, KW_API_FETCH, 11, 6, &rig_fetch_msg(&x.r, &RIG_FETCH(.topic = "t"))->req);
    rig_pass(&x.r, 500000);
    rig_close_conns(&x.r); /* gone in the middle of an answer */
    down(&x);
}

static void test_bad_rules(void **state) {
    (void)state;
    static const char *const cases[][3] = {
        {"{", "not JSON", ""},
        {"{\"rules\": 3}", "expected {\"rules\"", ""},
        {"[3]", "rule 1: a rule is an object", ""},
        {"[{\"api\": \"Produze\", \"close\": true}]", "rule 1: no API is called \"Produze\"; did you mean \"Produce\"?", "api"},
        {"[{\"close\": true}, {\"api\": \"Fetch\", \"eror\": 5}]", "rule 2: nothing is called \"eror\"; did you mean \"error\"?", "eror"},
        {"[{\"api\": \"Fetch\"}]", "it does nothing", ""},
        {"[{\"error\": \"NOPE\"}]", "\"error\" is the name or the number", "error"},
        {"[{\"close\": true, \"stall\": true}]", "exclude one another", "stall"},
        {"[{\"close\": true, \"nth\": 1, \"every\": 2}]", "exclude one another", "every"},
        {"[{\"close\": true, \"nth\": 0}]", "\"nth\" is a whole number from 1", "nth"},
        {"[{\"close\": 1}]", "\"close\" is true or false", "close"},
        {"[{\"close\": true, \"percent\": 101}]", "\"percent\" is a number from 0 to 100", "percent"},
        {"[{\"close\": true, \"versions\": [9, 3]}]", "\"versions\" goes from a lower", "versions"},
        {"[{\"close\": true, \"when\": \"later\"}]", "\"when\" is \"before\"", "when"},
        {"[{\"disk\": \"erase\", \"error\": \"EIO\"}]", "\"disk\" is \"read\", \"write\" or \"sync\"", "disk"},
        {"[{\"disk\": \"write\"}]", "\"error\": \"EIO\" or \"ENOSPC\"", "error"},
        {"[{\"disk\": \"write\", \"error\": 6}]", "\"error\": \"EIO\" or \"ENOSPC\"", "error"},
        {"[{\"disk\": \"write\", \"error\": \"EIO\", \"delay_ms\": 5}]", "a \"disk\" rule goes with", "delay_ms"},
        {"[{\"disk\": \"sync\", \"error\": \"ENOSPC\"}]", "only writes fail with ENOSPC", "error"},
        {"[{\"api\": \"Produce\", \"error\": \"EIO\"}]", "that error is a disk's", "error"},
        {"[{\"close\": true, \"from\": \"broker\"}]", "\"from\" is \"clients\" or \"nodes\"", "from"},
        {"[{\"disk\": \"write\", \"error\": \"EIO\", \"group\": \"g\"}]", "a \"disk\" rule goes with", "group"},
        {"[{\"close\": true, \"api\": 65536}]", "\"api\" is the name or the key", "api"},
    };
    for (size_t i = 0; i < KW_COUNTOF(cases); i++) {
        struct kb_faults *f = kb_faults_new();
        struct kb_fault_wrong w = {.rule = -1};
        assert_int_equal(kb_faults_add(f, cases[i][0], NULL, &w), KW_EINVAL);
        if (!strstr(w.text, cases[i][1])) fail_msg("%s: %s", cases[i][0], w.text);
        assert_string_equal(w.field, cases[i][2]);
        assert_int_equal(w.rule, strncmp(w.text, "rule ", 5) == 0 ? atoi(w.text + 5) : 0);
        char *list = kb_faults_list(f); /* all or none */
        assert_string_equal(list, "{\"rules\":[]}");
        kw_free(list);
        kb_faults_free(f);
    }
    struct kb_faults *f = kb_faults_new();
    struct kb_fault_wrong w;
    assert_int_equal(kb_faults_add(f, "[]", NULL, &w), KW_OK);
    for (size_t n = 1; n < 600; n++) { /* a long name is cut, between letters */
        char json[1400] = "{\"close\": true, \"";
        for (size_t k = 0; k < n; k++) strcat(json, k == 0 && n % 2 ? "a" : "\xc3\xa9");
        strcat(json, "\": 1}");
        assert_int_equal(kb_faults_add(f, json, NULL, &w), KW_EINVAL);
        json_t *j = json_pack("{s:s, s:s}", "text", w.text, "field", w.field);
        assert_non_null(j);
        json_decref(j);
    }
    kb_faults_free(f);
}

static int16_t disk_put(struct fixture *x, int32_t index) {
    size_t n;
    struct rig_batch b = {.count = 1, .pid = -1, .epoch = -1, .seq = -1};
    uint8_t *p = rig_batch(&x->r, &b, &n);
    return rig_produce_bytes(x->c, "t", index, 9, -1, p, n).error_code;
}

/* The disk: of one partition's log, of all, and of the metadata's, which is the node's end. */
static void test_disk(void **state) {
    (void)state;
    struct fixture x;
    up(&x, "[{\"disk\": \"write\", \"topic\": \"t\", \"partition\": 1, \"after\": 1, \"times\": 1, \"error\": \"ENOSPC\"},"
           " {\"disk\": \"sync\", \"broker\": 7, \"error\": \"EIO\"},"
           " {\"disk\": \"write\", \"topic\": \"t\", \"partition\": 0, \"nth\": 2, \"error\": \"EIO\"}]");
    static const int16_t wanted[2][4] = {{KE_NONE, KE_KAFKA_STORAGE_ERROR, KE_KAFKA_STORAGE_ERROR, KE_KAFKA_STORAGE_ERROR},
                                         {KE_NONE, KE_KAFKA_STORAGE_ERROR, KE_NONE, KE_NONE}};
    for (int32_t p = 0; p < 2; p++)
        for (int i = 0; i < 4; i++) assert_int_equal(disk_put(&x, p), wanted[p][i]);
    assert_int_equal(kb_faults_hits(x.r.node->faults), 2);
    static const char rule[] = "{\"disk\": \"write\", \"topic\": \"__cluster_metadata\", \"error\": \"EIO\"}";
    struct kb_fault_wrong wrong;
    assert_int_equal(kb_node_faults_add(x.r.node, rule, NULL, &wrong), KW_OK);
    assert_int_equal(disk_put(&x, 1), KE_NONE);
    assert_int_equal(kb_node_state(x.r.node), KB_NODE_READY);
    struct kw_create_topics_request req;
    struct kw_create_topics_request_creatable_topic t = {.name = kw_str_of("u"), .num_partitions = 1, .replication_factor = 1};
    kw_msg_init(&kw_create_topics_request_desc, &req);
    req.topics.v = &t, req.topics.n = 1;
    rig_request(x.c, KW_API_CREATE_TOPICS, 7, 99, &req);
    rig_pass(&x.r, 100000);
    assert_int_equal(kb_node_state(x.r.node), KB_NODE_FAILED);
    rig_free_node(&x.r);
    down(&x);
}

/* A produce with acks=0 gets no answer: only the closed connection can tell of an error, and what comes after the effect has no answer to
 * hang on to. (fuzz_broker_conn: an answer came that nobody waits for.) */
static void test_acks_0(void **state) {
    (void)state;
    static const struct {
        const char *rule;
        bool closed, stored, serves;
    } cases[] = {
        {"[{\"api\": \"Produce\", \"error\": \"NOT_LEADER_OR_FOLLOWER\"}]", true, false, false},
        {"[{\"api\": \"Produce\", \"error\": \"NOT_LEADER_OR_FOLLOWER\", \"when\": \"after\"}]", true, true, false},
        {"[{\"api\": \"Produce\", \"close\": true, \"when\": \"after\"}]", true, true, false},
        {"[{\"api\": \"Produce\", \"stall\": true, \"when\": \"after\"}]", false, true, false},
        {"[{\"api\": \"Produce\", \"throttle_ms\": 5, \"corrupt\": 5, \"drip_bytes_per_s\": 100}]", false, true, true},
    };
    for (size_t i = 0; i < KW_COUNTOF(cases); i++) {
        struct fixture x;
        size_t n;
        up(&x, cases[i].rule);
        uint8_t *p = rig_batch(&x.r, &(struct rig_batch){.count = 1, .pid = -1, .epoch = -1, .seq = -1}, &n);
        rig_request(x.c, KW_API_PRODUCE, 9, 77, &rig_produce_msg(&x.r, "t", 0, 0, p, n)->req);
        rig_pass(&x.r, 1000000);
        assert_int_equal(kb_faults_hits(x.r.node->faults), 1);
        assert_int_equal(x.c->conn == NULL, cases[i].closed);
        assert_int_equal(end_of(&x), cases[i].stored);
        assert_int_equal(x.c->in_len, 0);
        if (!cases[i].closed) {
            struct kw_api_versions_request req;
            kw_msg_init(&kw_api_versions_request_desc, &req);
            rig_request(x.c, KW_API_API_VERSIONS, 0, 78, &req);
            rig_pass(&x.r, 1000000);
            assert_int_equal(x.c->in_len > 0, cases[i].serves);
        }
        down(&x);
    }
}

/* Rules come and go while the node runs; who was stalled goes on, as if the rule had never struck. */
static void test_rules_at_run_time(void **state) {
    (void)state;
    struct fixture x;
    struct kb_fault_wrong wrong;
    int32_t first = 0;
    up(&x, NULL);
    assert_int_equal(put(&x), KE_NONE);
    assert_int_equal(kb_node_faults_add(x.r.node, "{\"api\": \"Produce\", \"error\": 7}", &first, &wrong), KW_OK);
    assert_int_equal(first, 1);
    assert_int_equal(kb_node_faults_add(x.r.node, "[{\"api\": \"Fetch\", \"close\": true}, {\"close\": 1}]", &first, &wrong), KW_EINVAL);
    assert_non_null(strstr(wrong.text, "rule 2"));
    assert_int_equal(put(&x), KE_REQUEST_TIMED_OUT);
    assert_int_equal(kb_node_faults_clear(x.r.node, 9, x.r.now), 0);
    assert_int_equal(kb_node_faults_clear(x.r.node, 1, x.r.now), 1);
    assert_int_equal(put(&x), KE_NONE);
    static const char *const stalls[] = {"{\"api\": \"Produce\", \"times\": 1, \"stall\": true}",
                                         "{\"api\": \"Produce\", \"times\": 1, \"stall\": true, \"when\": \"after\"}"};
    for (size_t i = 0; i < KW_COUNTOF(stalls); i++) {
        int64_t end = end_of(&x);
        assert_int_equal(kb_node_faults_add(x.r.node, stalls[i], &first, &wrong), KW_OK);
        assert_int_equal(first, 2 + (int)i);
        size_t n;
        uint8_t *p = rig_batch(&x.r, &(struct rig_batch){.count = 1, .pid = -1, .epoch = -1, .seq = -1}, &n);
        rig_request(x.c, KW_API_PRODUCE, 9, 77, &rig_produce_msg(&x.r, "t", 0, 1, p, n)->req);
        rig_pass(&x.r, 60000000);
        assert_int_equal(x.c->in_len, 0);
        assert_int_equal(end_of(&x), end + (i == 1)); /* after: it had its effect */
        char *list = kb_node_faults_list(x.r.node);
        assert_non_null(strstr(list, "\"seen\":1,\"hits\":1,\"rule\":{\"api\":\"Produce\""));
        kw_free(list);
        assert_int_equal(kb_node_faults_clear(x.r.node, 0, x.r.now), 1);
        rig_settle(&x.r);
        struct kw_produce_response m;
        assert_true(rig_response(x.c, KW_API_PRODUCE, 9, 77, &m));
        assert_int_equal(end_of(&x), end + 1);
    }
    assert_int_equal(kb_faults_hits(x.r.node->faults), 3);
    down(&x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nth_every_percent),
        cmocka_unit_test(test_filters),
        cmocka_unit_test(test_errors_of_other_apis),
        cmocka_unit_test(test_disk),
        cmocka_unit_test(test_errors_of_every_api),
        cmocka_unit_test(test_close),
        cmocka_unit_test(test_delay_and_throttle),
        cmocka_unit_test(test_stall),
        cmocka_unit_test(test_corrupt),
        cmocka_unit_test(test_drip),
        cmocka_unit_test(test_bad_rules),
        cmocka_unit_test(test_acks_0),
        cmocka_unit_test(test_rules_at_run_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
