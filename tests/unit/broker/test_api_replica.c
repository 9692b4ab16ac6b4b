/* test_api_replica.c - what clients and followers are answered where a partition has several replicas: acks, waits, ListOffsets after an election,
 * reads from followers, DeleteRecords. */
#include "isr_rig.h"

static const int32_t only0[] = {0}, with1[] = {0, 1};

/* P5: acks x replication factor x min.insync.replicas x how many are in sync. */
static void test_acks_table(void **state) {
    (void)state;
    uint64_t seed = 100;
    for (int32_t rf = 1; rf <= 4; rf++)
        for (int32_t min = 1; min <= 4; min++)
            for (int32_t isr = 1; isr <= rf; isr++)
                for (int16_t acks = -1; acks <= 1; acks++) {
                    struct lead l;
                    lead_up(&l, seed++, rf, isr);
                    char text[16];
                    snprintf(text, sizeof(text), "%d", min);
                    lead_config(&l, "min.insync.replicas", text);
                    struct kb_partition *p = lead_part(&l, 0);
                    bool enough = isr >= KW_MIN(min, rf);
                    lead_send(&l, l.c, 0, acks, 1);
                    assert_int_equal(p->log->leo, acks == -1 && !enough ? 0 : 1);
                    if (acks == 0)
                        assert_int_equal(lead_produced(l.c, 1), -100);
                    else if (acks == 1)
                        assert_int_equal(lead_produced(l.c, 1), KE_NONE);
                    else if (!enough)
                        assert_int_equal(lead_produced(l.c, 1), KE_NOT_ENOUGH_REPLICAS);
                    for (int32_t id = 1; id < isr && p->log->leo > 0; id++) {
                        if (acks == -1) assert_int_equal(lead_produced(l.c, 1), -100); /* not before the last of them */
                        assert_int_equal(p->hw, 0);
                        lead_fetch(&l, BY(.id = id, .offset = 1, .last_epoch = 5));
                    }
                    if (acks == -1 && enough) assert_int_equal(lead_produced(l.c, 1), KE_NONE);
                    assert_int_equal(p->hw, enough ? 1 : 0);
                    lead_down(&l);
                }
}

/* A wait ends with the request's timeout. */
static void test_acks_time_out(void **state) {
    (void)state;
    struct lead l;
    lead_up(&l, 1, 2, 2);
    lead_send(&l, l.c, 0, -1, 1);
    rig_pass(&l.r, 29000000);
    int16_t code = lead_produced(l.c, 1);
    assert_int_equal(code, -100);
    rig_pass(&l.r, 2000000);
    assert_int_equal(lead_produced(l.c, 1), KE_REQUEST_TIMED_OUT);
    lead_down(&l);
}

/* A follower that waits is answered by what is written, a consumer by the high watermark; news without records comes soon, once. */
static void test_who_is_woken(void **state) {
    (void)state;
    struct lead l;
    struct kw_fetch_response resp;
    lead_up(&l, 2, 2, 2);
    lead_fetch(&l, BY(.id = 1));
    rig_request(l.c, KW_API_FETCH, 11, 1, &rig_fetch_msg(&l.r, &RIG_FETCH(.topic = "t", .max_wait_ms = 60000))->req);
    struct rig_fetch_msg *m = lead_fetch_msg(&l, BY(.id = 1, .max_wait_ms = 60000));
    m->req.session_epoch = 0;
    rig_request(l.f[1], KW_API_FETCH, 17, 1, &m->req);
    rig_pass(&l.r, 50000);
    assert_true(rig_response(l.f[1], KW_API_FETCH, 17, 1, &resp)); /* the first fetch of a session: where the leader stands */
    assert_int_equal(resp.responses.v[0].partitions.v[0].records.len, 0);
    int32_t session = resp.session_id;
    assert_true(session > 0);
    m->req.session_id = session;
    m->req.session_epoch = 1;
    m->req.topics.n = 0;
    rig_request(l.f[1], KW_API_FETCH, 17, 2, &m->req);
    rig_pass(&l.r, 1000000);
    assert_false(rig_response(l.f[1], KW_API_FETCH, 17, 2, &resp)); /* nothing is news */
    struct rig_conn *producer = rig_connect(&l.r);
    lead_send(&l, producer, 0, 1, 1);
    assert_true(rig_response(l.f[1], KW_API_FETCH, 17, 2, &resp));
    assert_true(resp.responses.v[0].partitions.v[0].records.len > 0);
    assert_false(rig_response(l.c, KW_API_FETCH, 11, 1, &resp));
    m->req.session_epoch = 2;
    m->req.topics.n = 1;
    m->part.fetch_offset = 1;
    m->part.last_fetched_epoch = 5;
    rig_request(l.f[1], KW_API_FETCH, 17, 3, &m->req);
    rig_settle(&l.r);
    assert_true(rig_response(l.c, KW_API_FETCH, 11, 1, &resp)); /* that fetch committed it */
    assert_int_equal(resp.responses.v[0].partitions.v[0].high_watermark, 1);
    assert_false(rig_response(l.f[1], KW_API_FETCH, 17, 3, &resp));
    rig_pass(&l.r, 50000);
    assert_true(rig_response(l.f[1], KW_API_FETCH, 17, 3, &resp));
    assert_int_equal(resp.responses.v[0].partitions.v[0].high_watermark, 1);
    assert_int_equal(resp.responses.v[0].partitions.v[0].records.len, 0);
    m->req.session_epoch = 3;
    m->req.topics.n = 0;
    rig_request(l.f[1], KW_API_FETCH, 17, 4, &m->req);
    rig_pass(&l.r, 1000000);
    assert_false(rig_response(l.f[1], KW_API_FETCH, 17, 4, &resp));
    lead_down(&l);
}

/* A replica reads ahead of what it has written: it is sent what comes behind what it has, each once; only what is written counts; and a fetch that waits
 * is answered when the next one is there. Who did not say that it does so notices nothing. */
static void test_read_ahead(void **state) {
    (void)state;
    struct lead l;
    struct kw_fetch_response resp;
    lead_up(&l, 3, 2, 2);
    lead_fill(&l, 0, 3);
    struct rig_fetch_msg *m = lead_fetch_msg(&l, BY(.id = 1, .max_wait_ms = 60000));
    m->part.partition_max_bytes = 200; /* one record */
    m->req.session_epoch = 0;
    m->req.reads_ahead = true;
    rig_call(l.f[1], KW_API_FETCH, 17, &m->req, &resp);
    assert_true(resp.reads_ahead);
    assert_true(resp.responses.v[0].partitions.v[0].records.len > 0);
    m->req.reads_ahead = false;
    m->req.session_id = resp.session_id;
    m->req.session_epoch = 1;
    m->req.topics.n = 0;
    rig_request(l.f[1], KW_API_FETCH, 17, 1, &m->req); /* the same again, as nothing is named: that was sent */
    rig_pass(&l.r, 1000000);
    assert_false(rig_response(l.f[1], KW_API_FETCH, 17, 1, &resp));
    m->req.session_epoch = 2;
    m->req.topics.n = 1;
    m->part.fetch_offset = 0;
    m->part.read_from = 1;
    m->part.last_fetched_epoch = 5;
    rig_request(l.f[1], KW_API_FETCH, 17, 2, &m->req);
    rig_settle(&l.r);
    assert_true(rig_response(l.f[1], KW_API_FETCH, 17, 1, &resp)); /* it need not wait any longer */
    assert_int_equal(resp.responses.n, 0);
    assert_true(rig_response(l.f[1], KW_API_FETCH, 17, 2, &resp));
    struct kw_batch_header h;
    const struct kw_records *got = &resp.responses.v[0].partitions.v[0].records;
    assert_int_equal(kw_batch_parse(got->p, (size_t)got->len, &h), KW_OK);
    assert_int_equal(h.base_offset, 1);
    assert_int_equal(lead_part(&l, 0)->hw, 0);
    m->req.session_epoch = 3; /* the answer to the last is on its way: this one only tells */
    m->part.fetch_offset = 1;
    rig_request(l.f[1], KW_API_FETCH, 17, 3, &m->req);
    rig_pass(&l.r, 5000);
    assert_false(rig_response(l.f[1], KW_API_FETCH, 17, 3, &resp));
    assert_int_equal(lead_part(&l, 0)->hw, 1);
    m->req.session_epoch = 4;
    m->part.fetch_offset = m->part.read_from = 2;
    rig_request(l.f[1], KW_API_FETCH, 17, 4, &m->req);
    rig_settle(&l.r);
    assert_true(rig_response(l.f[1], KW_API_FETCH, 17, 3, &resp));
    assert_true(rig_response(l.f[1], KW_API_FETCH, 17, 4, &resp));
    got = &resp.responses.v[0].partitions.v[0].records;
    assert_int_equal(kw_batch_parse(got->p, (size_t)got->len, &h), KW_OK);
    assert_int_equal(h.base_offset, 2);
    assert_int_equal(lead_part(&l, 0)->hw, 2);
    /* Another session, of one that did not say so: the same is given again, and read_from is nothing to it. */
    m->req.session_id = 0;
    m->req.session_epoch = 0;
    m->part.fetch_offset = 1;
    m->part.read_from = 3;
    for (int i = 0; i < 2; i++) {
        rig_call(l.f[1], KW_API_FETCH, 17, &m->req, &resp);
        assert_false(resp.reads_ahead);
        got = &resp.responses.v[0].partitions.v[0].records;
        assert_int_equal(kw_batch_parse(got->p, (size_t)got->len, &h), KW_OK);
        assert_int_equal(h.base_offset, 1);
        m->req.session_id = resp.session_id;
        m->req.session_epoch = i + 1;
    }
    lead_down(&l);
}

/* Rule 25: a partition with much to give does not keep the others from their turn. */
static void test_no_starving(void **state) {
    (void)state;
    struct lead l;
    struct kw_fetch_response resp;
    lead_init(&l, 3);
    lead_start(&l);
    lead_topic(&l);
    for (int32_t i = 0; i < 3; i++) lead_partition(&l, i, 2, 1);
    lead_fill(&l, 0, 200);
    lead_fill(&l, 1, 1);
    lead_fill(&l, 2, 1);
    struct rig_fetch_msg *m = lead_fetch_msg(&l, BY(.id = 1));
    struct kw_fetch_request_fetch_partition parts[3] = {m->part, m->part, m->part};
    for (int32_t i = 0; i < 3; i++) parts[i].partition = i;
    m->topic.partitions.v = parts;
    m->topic.partitions.n = 3;
    m->req.max_bytes = 2000; /* partition 0 alone fills it, over and over */
    m->req.session_epoch = 0;
    bool given[3] = {false};
    for (int32_t round = 0; round < 4; round++) {
        rig_call(l.f[1], KW_API_FETCH, 17, &m->req, &resp);
        assert_int_equal(resp.error_code, KE_NONE);
        for (int32_t i = 0; i < resp.responses.n; i++)
            for (int32_t j = 0; j < resp.responses.v[i].partitions.n; j++) {
                rig_fetched *f = &resp.responses.v[i].partitions.v[j];
                if (f->records.len > 0) given[f->partition_index] = true;
            }
        m->req.session_id = resp.session_id;
        m->req.session_epoch = round + 1;
        m->req.topics.n = 0; /* asks for the same again: it never gets on with partition 0 */
    }
    assert_true(given[0] && given[1] && given[2]);
    lead_down(&l);
}

static int16_t list(struct lead *l, int16_t version, int64_t timestamp, int64_t *offset) {
    struct kw_list_offsets_request req;
    struct kw_list_offsets_response resp;
    struct kw_list_offsets_request_list_offsets_topic t = {.name = kw_str_of("t")};
    struct kw_list_offsets_request_list_offsets_partition q = {.current_leader_epoch = -1, .timestamp = timestamp, .max_num_offsets = 1};
    kw_msg_init(&kw_list_offsets_request_desc, &req);
    req.replica_id = -1;
    req.topics.v = &t;
    req.topics.n = 1;
    t.partitions.v = &q;
    t.partitions.n = 1;
    rig_call(l->c, KW_API_LIST_OFFSETS, version, &req, &resp);
    *offset = resp.topics.v[0].partitions.v[0].offset;
    return resp.topics.v[0].partitions.v[0].error_code;
}

/* Rule 19, KIP-207, BR-06: the latest offset must not go back with a change of the leader. */
static void test_br06_latest_after_election(void **state) {
    (void)state;
    struct lead l;
    int64_t at;
    lead_up(&l, 4, 2, 2);
    lead_fill(&l, 0, 2);
    assert_int_equal(list(&l, 5, -1, &at), KE_NONE);
    assert_int_equal(at, 0);
    lead_change(&l, 0, 0, NULL, -1);
    assert_int_equal(list(&l, 5, -1, &at), KE_OFFSET_NOT_AVAILABLE);
    assert_int_equal(list(&l, 4, -1, &at), KE_LEADER_NOT_AVAILABLE);
    assert_int_equal(list(&l, 5, -2, &at), KE_NONE); /* the first is known */
    assert_int_equal(at, 0);
    assert_int_equal(list(&l, 5, l.r.now.wall_ms + 1000, &at), KE_OFFSET_NOT_AVAILABLE);
    lead_fetch(&l, BY(.id = 1, .offset = 1, .last_epoch = 5, .leader_epoch = 6));
    assert_int_equal(list(&l, 5, -1, &at), KE_OFFSET_NOT_AVAILABLE);
    assert_int_equal(list(&l, 5, 1, &at), KE_NONE); /* below the high watermark */
    assert_int_equal(at, 0);
    lead_fetch(&l, BY(.id = 1, .offset = 2, .last_epoch = 5, .leader_epoch = 6));
    assert_int_equal(list(&l, 5, -1, &at), KE_NONE);
    assert_int_equal(at, 2);
    lead_down(&l);
}

/* It follows: its waiters are failed, and clients are told who leads and where (KIP-951). */
static void test_becomes_follower(void **state) {
    (void)state;
    struct lead l;
    struct kw_fetch_response resp;
    struct kw_produce_response produced;
    lead_up(&l, 5, 2, 2);
    struct kb_partition *p = lead_part(&l, 0);
    lead_fill(&l, 0, 2);
    lead_fetch(&l, BY(.id = 1, .offset = 1, .last_epoch = 5));
    lead_send(&l, l.c, 0, -1, 1);
    struct rig_conn *consumer = rig_connect(&l.r);
    rig_request(consumer, KW_API_FETCH, 17, 1,
                &rig_fetch_msg(&l.r, &RIG_FETCH(.version = 17, .topic = "t", .offset = 2, .max_wait_ms = 60000, .leader_epoch = 5))->req);
    struct rig_fetch_msg *m = lead_fetch_msg(&l, BY(.id = 1, .offset = 2, .last_epoch = 5, .max_wait_ms = 60000));
    m->req.min_bytes = 100000;
    m->req.session_epoch = 0;
    rig_request(l.f[1], KW_API_FETCH, 17, 1, &m->req);
    rig_settle(&l.r);
    assert_int_equal(p->hw, 2);
    lead_change(&l, 0, 1, NULL, -1);
    assert_int_equal(p->role, KB_PART_FOLLOWS);
    assert_null(p->in_sync);
    assert_true(rig_response(l.c, KW_API_PRODUCE, 10, 1, &produced));
    struct kw_produce_response_partition_produce_response *a = &produced.responses.v[0].partition_responses.v[0];
    assert_int_equal(a->error_code, KE_NOT_LEADER_OR_FOLLOWER);
    assert_int_equal(a->current_leader.leader_id, 1);
    assert_int_equal(a->current_leader.leader_epoch, 6);
    assert_int_equal(produced.node_endpoints.n, 1);
    assert_int_equal(produced.node_endpoints.v[0].node_id, 1);
    assert_int_equal(produced.node_endpoints.v[0].port, 9001);
    assert_true(rig_response(consumer, KW_API_FETCH, 17, 1, &resp));
    rig_fetched *f = &resp.responses.v[0].partitions.v[0];
    assert_int_equal(f->error_code, KE_FENCED_LEADER_EPOCH);
    assert_int_equal(f->current_leader.leader_id, 1);
    assert_int_equal(f->current_leader.leader_epoch, 6);
    assert_int_equal(resp.node_endpoints.n, 1);
    assert_int_equal(resp.node_endpoints.v[0].port, 9001);
    assert_true(rig_response(l.f[1], KW_API_FETCH, 17, 1, &resp));
    lead_send(&l, l.c, 0, 1, 2);
    assert_int_equal(lead_produced(l.c, 2), KE_NOT_LEADER_OR_FOLLOWER);
    assert_int_equal(lead_fetch(&l, BY(.id = 1, .leader_epoch = 6))->error_code, KE_NOT_LEADER_OR_FOLLOWER);
    int64_t at;
    assert_int_equal(list(&l, 5, -1, &at), KE_NOT_LEADER_OR_FOLLOWER);
    /* nobody leads */
    lead_change(&l, 0, -1, NULL, -1);
    assert_int_equal(p->role, KB_PART_IDLE);
    lead_send(&l, l.c, 0, 1, 3);
    assert_int_equal(lead_produced(l.c, 3), KE_NOT_LEADER_OR_FOLLOWER);
    lead_change(&l, 0, 0, NULL, -1);
    assert_int_equal(p->role, KB_PART_LEADS);
    lead_fill(&l, 0, 1);
    lead_down(&l);
}

static rig_fetched *fetch_in_rack(struct lead *l, int16_t version, const char *rack, int64_t offset) {
    struct kw_fetch_response resp;
    struct rig_fetch_msg *m = rig_fetch_msg(&l->r, &RIG_FETCH(.version = version, .topic = "t", .offset = offset));
    m->req.rack_id = kw_str_of(rack);
    rig_call(l->c, KW_API_FETCH, version, &m->req, &resp);
    return &resp.responses.v[0].partitions.v[0];
}

/* KIP-392: a consumer is sent to a replica in its rack that is in sync and has the offset; a follower serves what is committed. */
static void test_nearest(void **state) {
    (void)state;
    struct lead l;
    lead_init(&l, 6);
    rig_set(&l.r, "replica.selector.class", "org.apache.kafka.common.replica.RackAwareReplicaSelector");
    rig_set(&l.r, "broker.rack", "r0");
    lead_start(&l);
    lead_broker(&l, (struct lead_broker){.id = 1, .epoch = 101, .rack = "r1"});
    lead_broker(&l, (struct lead_broker){.id = 2, .epoch = 102, .rack = "r1"});
    lead_topic(&l);
    lead_partition(&l, 0, 3, 3);
    lead_fill(&l, 0, 3);
    lead_fetch(&l, BY(.id = 1, .offset = 2, .last_epoch = 5));
    lead_fetch(&l, BY(.id = 2, .offset = 3, .last_epoch = 5, .log_start = 1));
    assert_int_equal(lead_part(&l, 0)->hw, 2);
    rig_fetched *f = fetch_in_rack(&l, 11, "r1", 0);
    assert_int_equal(f->error_code, KE_NONE);
    assert_int_equal(f->preferred_read_replica, 1); /* 2 does not have offset 0 any more */
    assert_int_equal(f->records.len, 0);
    assert_int_equal(fetch_in_rack(&l, 11, "r1", 1)->preferred_read_replica, 2); /* the farther one */
    f = fetch_in_rack(&l, 11, "r0", 0);
    assert_int_equal(f->preferred_read_replica, -1);
    assert_true(f->records.len > 0);
    assert_int_equal(fetch_in_rack(&l, 11, "r9", 0)->preferred_read_replica, -1);
    assert_int_equal(fetch_in_rack(&l, 11, "", 0)->preferred_read_replica, -1);
    lead_broker(&l, (struct lead_broker){.id = 1, .epoch = 101, .rack = "r1", .fenced = true});
    assert_int_equal(fetch_in_rack(&l, 11, "r1", 0)->preferred_read_replica, -1);
    /* as a follower */
    lead_change(&l, 0, 1, NULL, -1);
    f = fetch_in_rack(&l, 11, "r0", 0);
    assert_int_equal(f->error_code, KE_NONE);
    assert_int_equal(f->high_watermark, 2);
    assert_true(f->records.len > 0);
    assert_int_equal(fetch_in_rack(&l, 11, "r0", 2)->records.len, 0);
    assert_int_equal(fetch_in_rack(&l, 11, "", 0)->error_code, KE_NOT_LEADER_OR_FOLLOWER);
    assert_int_equal(fetch_in_rack(&l, 10, "", 0)->error_code, KE_NOT_LEADER_OR_FOLLOWER);
    kb_partition_set_hw(lead_part(&l, 0), 3, l.r.now);
    assert_int_equal(fetch_in_rack(&l, 11, "r0", 0)->high_watermark, 3);
    kb_partition_set_hw(lead_part(&l, 0), 1, l.r.now); /* a new leader may know less: this one does not forget */
    kb_partition_set_hw(lead_part(&l, 0), 99, l.r.now);
    assert_int_equal(fetch_in_rack(&l, 11, "r0", 0)->high_watermark, 3);
    lead_down(&l);
}

/* The default is the leader. */
static void test_leader_by_default(void **state) {
    (void)state;
    struct lead l;
    lead_up(&l, 7, 2, 2);
    lead_broker(&l, (struct lead_broker){.id = 1, .epoch = 101, .rack = "r1"});
    lead_fetch(&l, BY(.id = 1));
    assert_int_equal(fetch_in_rack(&l, 11, "r1", 0)->preferred_read_replica, -1);
    lead_down(&l);
}

static void send_delete(struct lead *l, int64_t offset, int32_t timeout_ms, int32_t correlation) {
    struct kw_delete_records_request req;
    struct kw_delete_records_request_delete_records_topic t = {.name = kw_str_of("t")};
    struct kw_delete_records_request_delete_records_partition q = {.offset = offset};
    kw_msg_init(&kw_delete_records_request_desc, &req);
    req.timeout_ms = timeout_ms;
    req.topics.v = &t;
    req.topics.n = 1;
    t.partitions.v = &q;
    t.partitions.n = 1;
    rig_request(l->c, KW_API_DELETE_RECORDS, 2, correlation, &req);
    rig_pass(&l->r, 100000);
}
/* -100: no answer yet. */
static int16_t deleted(struct lead *l, int32_t correlation, int64_t *low) {
    struct kw_delete_records_response resp;
    if (!rig_response(l->c, KW_API_DELETE_RECORDS, 2, correlation, &resp)) return -100;
    *low = resp.topics.v[0].partitions.v[0].low_watermark;
    return resp.topics.v[0].partitions.v[0].error_code;
}

/* Rule 24: answered when every live replica's log starts there; one that is fenced is not waited for. */
static void test_delete_records(void **state) {
    (void)state;
    struct lead l;
    int64_t low = -7;
    lead_up(&l, 8, 3, 3);
    lead_fill(&l, 0, 4);
    lead_fetch(&l, BY(.id = 1, .offset = 4, .last_epoch = 5));
    lead_fetch(&l, BY(.id = 2, .offset = 4, .last_epoch = 5));
    send_delete(&l, 3, 30000, 1);
    assert_int_equal(lead_part(&l, 0)->log->start, 3);
    assert_int_equal(deleted(&l, 1, &low), -100);
    assert_int_equal(lead_fetch(&l, BY(.id = 1, .offset = 4, .last_epoch = 5))->log_start_offset, 3); /* how they hear of it */
    lead_fetch(&l, BY(.id = 1, .offset = 4, .last_epoch = 5, .log_start = 3));
    assert_int_equal(deleted(&l, 1, &low), -100);
    lead_fetch(&l, BY(.id = 2, .offset = 4, .last_epoch = 5, .log_start = 3));
    assert_int_equal(deleted(&l, 1, &low), KE_NONE);
    assert_int_equal(low, 3);
    send_delete(&l, -1, 2000, 2);
    lead_fetch(&l, BY(.id = 1, .offset = 4, .last_epoch = 5, .log_start = 4));
    rig_pass(&l.r, 3000000);
    assert_int_equal(deleted(&l, 2, &low), KE_REQUEST_TIMED_OUT);
    lead_broker(&l, (struct lead_broker){.id = 2, .epoch = 102, .fenced = true});
    send_delete(&l, 4, 2000, 3);
    assert_int_equal(deleted(&l, 3, &low), KE_NONE);
    lead_fill(&l, 0, 1);
    lead_change(&l, 0, -2, with1, 2);
    lead_fetch(&l, BY(.id = 1, .offset = 5, .last_epoch = 5, .log_start = 4));
    send_delete(&l, 5, 30000, 4);
    lead_change(&l, 0, 1, NULL, -1);
    assert_int_equal(deleted(&l, 4, &low), KE_NOT_LEADER_OR_FOLLOWER);
    assert_int_equal(low, -1);
    lead_down(&l);
}

/* A connection that goes takes its waits with it. */
static void test_abandoned(void **state) {
    (void)state;
    struct lead l;
    lead_up(&l, 9, 2, 2);
    lead_fill(&l, 0, 2);
    lead_fetch(&l, BY(.id = 1, .offset = 2, .last_epoch = 5));
    send_delete(&l, 1, 30000, 1);
    struct rig_conn *producer = rig_connect(&l.r);
    lead_send(&l, producer, 0, -1, 1);
    rig_request(l.f[1], KW_API_FETCH, 17, 1, &lead_fetch_msg(&l, BY(.id = 1, .offset = 3, .max_wait_ms = 60000))->req);
    rig_settle(&l.r);
    struct rig_conn *gone[] = {l.c, producer, l.f[1]};
    for (size_t i = 0; i < 3; i++) {
        struct kb_conn *c = gone[i]->conn;
        gone[i]->conn = NULL;
        kb_conn_closed(c, l.r.now);
    }
    rig_settle(&l.r);
    assert_true(kw_list_empty(&lead_part(&l, 0)->waiters));
    lead_down(&l);
}

/* Two replicas, one of them down: what is seen of it. */
static void test_shrunk_then_alone(void **state) {
    (void)state;
    struct lead l;
    lead_up(&l, 10, 2, 2);
    lead_fill(&l, 0, 3);
    lead_send(&l, l.c, 0, -1, 1);
    lead_broker(&l, (struct lead_broker){.id = 1, .epoch = 101, .fenced = true});
    lead_change(&l, 0, -2, only0, 1); /* the controller fenced it */
    assert_int_equal(lead_produced(l.c, 1), KE_NONE);
    assert_int_equal(lead_part(&l, 0)->hw, 4);
    lead_down(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_acks_table),
        cmocka_unit_test(test_acks_time_out),
        cmocka_unit_test(test_who_is_woken),
        cmocka_unit_test(test_read_ahead),
        cmocka_unit_test(test_no_starving),
        cmocka_unit_test(test_br06_latest_after_election),
        cmocka_unit_test(test_becomes_follower),
        cmocka_unit_test(test_nearest),
        cmocka_unit_test(test_leader_by_default),
        cmocka_unit_test(test_delete_records),
        cmocka_unit_test(test_abandoned),
        cmocka_unit_test(test_shrunk_then_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
