/* test_kc_cluster.c - kc cluster and kc topic describe, the program itself, against a scripted cluster in which much is wrong: what they print; kc elect,
 * reassign and unregister there.
 *
 * Broker 1 leads, 3 and 5 are there, 2 is fenced since 4 s, 4 is not registered; all that are there listen at one address.
 */
#include <stdlib.h>
#include <sys/wait.h>

#include "server.h"
#include "wire/kerror.h"

static struct server *srv, *other; /* other: broker 3, once it leads */
static struct kw_arena arenas[2]; /* a server each, which is a thread */
static _Thread_local struct kw_arena *arena;
static _Atomic bool healthy, no_quorum, no_counts, knows_no_lag, frozen; /* frozen: leaders take no question for offsets */
static _Atomic int new_leader; /* so many questions for offsets come too early */
static _Atomic int moves_after; /* from the so-manieth metadata on broker 3 leads, and has a server of its own; broker 1 does not: 0: never */
static _Atomic int metadata_asked, quorum_asked;

#define PARTITIONS 5
static const struct {
    int32_t leader, replicas[3], isr[3];
    int32_t replica_count, isr_count;
} parts[PARTITIONS] = {
    {1, {1, 2, 3}, {1}, 3, 1}, {1, {1, 2, 3}, {1, 3}, 3, 2}, {-1, {2, 4}, {2}, 2, 1}, {1, {1, 3}, {1, 3}, 2, 2}, {1, {1, 3, 5}, {1, 3}, 3, 2}};

static void metadata(struct server *s, struct server_conn *c, struct kw_frame_request *h) {
    struct kw_metadata_response m;
    struct kw_metadata_response_broker b[3];
    struct kw_metadata_response_partition p[PARTITIONS];
    int32_t ids[] = {1, 3, 5};
    bool moved = moves_after > 0 && metadata_asked++ >= moves_after;
    for (int i = 0; i < 3; i++)
        b[i] = (struct kw_metadata_response_broker){.node_id = ids[i], .host = kw_str_of("127.0.0.1"), .port = s->port, .rack = kw_str_null()};
    for (int i = 0; i < PARTITIONS; i++) {
        p[i] = (struct kw_metadata_response_partition){.partition_index = i, .leader_id = parts[i].leader, .leader_epoch = 6 + i};
        if (parts[i].leader < 0) p[i].error_code = KE_LEADER_NOT_AVAILABLE;
        p[i].replica_nodes.v = kw_arena_dup(arena, parts[i].replicas, sizeof parts[i].replicas);
        p[i].replica_nodes.n = parts[i].replica_count;
        p[i].isr_nodes.v = kw_arena_dup(arena, parts[i].isr, sizeof parts[i].isr);
        p[i].isr_nodes.n = parts[i].isr_count;
        if (healthy)
            p[i] = (struct kw_metadata_response_partition){
                .partition_index = i, .leader_id = 1, .leader_epoch = 1, .replica_nodes = {ids, 2}, .isr_nodes = {ids, 2}};
    }
    if (moves_after > 0) b[1].port = other->port;
    for (int i = 0; moved && i < PARTITIONS; i++) p[i].leader_id = 3, p[i].leader_epoch = 9;
    struct kw_metadata_response_topic t = {.name = kw_str_of("t"), .topic_id = {{9}}, .partitions = {p, PARTITIONS}};
    kw_msg_init(&kw_metadata_response_desc, &m);
    m.brokers.v = b;
    m.brokers.n = 3;
    m.cluster_id = kw_str_of("the-cluster");
    m.controller_id = 3;
    m.topics.v = &t;
    m.topics.n = 1;
    server_reply(c, h, &m);
}

static void describe_cluster(struct server *s, struct server_conn *c, struct kw_frame_request *h, struct kw_in *body) {
    struct kw_describe_cluster_request q;
    struct kw_describe_cluster_response m;
    struct kw_describe_cluster_response_node_count counts[] = {{kw_str_of("records_lost"), 2}, {kw_str_of("resets"), 0}};
    if (kw_decode(&kw_describe_cluster_request_desc, h->version, body, arena, &q) != KW_OK) return;
    struct kw_describe_cluster_response_describe_cluster_broker b[2] = {
        {.broker_id = 1, .host = kw_str_of("127.0.0.1"), .port = s->port, .rack = kw_str_null()},
        {.broker_id = 2, .host = kw_str_of("away.example"), .port = 9092, .rack = kw_str_of("r2"), .is_fenced = true}};
    kw_msg_init(&kw_describe_cluster_response_desc, &m);
    m.counts.v = counts;
    m.counts.n = q.include_counts && !no_counts ? 2 : 0;
    m.brokers.v = b;
    m.brokers.n = 2;
    server_reply(c, h, &m);
}

static void quorum(struct server_conn *c, struct kw_frame_request *h) {
    struct kw_describe_quorum_response m;
    struct kw_describe_quorum_response_replica_state v[4] = {
        {.replica_id = 1, .log_end_offset = 90, .last_fetch_timestamp = 1000000, .last_caught_up_timestamp = 1000000},
        {.replica_id = 2, .log_end_offset = 80, .last_fetch_timestamp = 995900, .last_caught_up_timestamp = 990000},
        {.replica_id = 1000, .log_end_offset = 80, .last_fetch_timestamp = 400000, .last_caught_up_timestamp = 400000},
        {.replica_id = 1001, .log_end_offset = -1, .last_fetch_timestamp = 999900, .last_caught_up_timestamp = -1}};
    struct kw_describe_quorum_response_partition_data p = {
        .leader_id = 1, .leader_epoch = 8, .high_watermark = 85, .current_voters = {v, 4}, .error_message = kw_str_null()};
    struct kw_describe_quorum_response_topic_data t = {.topic_name = kw_str_of("__cluster_metadata"), .partitions = {&p, 1}};
    kw_msg_init(&kw_describe_quorum_response_desc, &m);
    quorum_asked++;
    if (no_quorum) m.error_code = KE_BROKER_NOT_AVAILABLE;
    m.topics.v = &t;
    m.topics.n = no_quorum ? 0 : 1;
    server_reply(c, h, &m);
}

static void moves(struct server_conn *c, struct kw_frame_request *h) {
    struct kw_list_partition_reassignments_response m;
    int32_t all[] = {1, 3, 5}, adding[] = {5}, removing[] = {3};
    struct kw_list_partition_reassignments_response_ongoing_partition_reassignment p = {
        .partition_index = 4, .replicas = {all, 3}, .adding_replicas = {adding, 1}, .removing_replicas = {removing, 1}};
    struct kw_list_partition_reassignments_response_ongoing_topic_reassignment t = {.name = kw_str_of("t"), .partitions = {&p, 1}};
    kw_msg_init(&kw_list_partition_reassignments_response_desc, &m);
    m.topics.v = &t;
    m.topics.n = 1;
    server_reply(c, h, &m);
}

static void log_dirs(struct server_conn *c, struct kw_frame_request *h) {
    struct kw_describe_log_dirs_response m;
    struct kw_describe_log_dirs_response_describe_log_dirs_partition p[2] = {{.partition_index = 0, .offset_lag = 17},
                                                                             {.partition_index = 4, .offset_lag = knows_no_lag ? 0 : 40}};
    struct kw_describe_log_dirs_response_describe_log_dirs_topic t = {.name = kw_str_of("t"), .partitions = {p, 2}};
    struct kw_describe_log_dirs_response_describe_log_dirs_result r = {.log_dir = kw_str_of("/data"), .topics = {&t, 1}};
    kw_msg_init(&kw_describe_log_dirs_response_desc, &m);
    m.results.v = &r;
    m.results.n = 1;
    server_reply(c, h, &m);
}

static void configs(struct server_conn *c, struct kw_frame_request *h) {
    struct kw_describe_configs_response m;
    struct kw_describe_configs_response_describe_configs_resource_result e = {
        .name = kw_str_of("min.insync.replicas"), .value = kw_str_of("2"), .config_source = 1, .documentation = kw_str_null()};
    struct kw_describe_configs_response_describe_configs_result r = {
        .error_message = kw_str_null(), .resource_type = 2, .resource_name = kw_str_of("t"), .configs = {&e, 1}};
    kw_msg_init(&kw_describe_configs_response_desc, &m);
    m.results.v = &r;
    m.results.n = 1;
    server_reply(c, h, &m);
}

/* The nth partition of a request has the nth of these. */
static const int16_t item_codes[] = {0, KE_ELECTION_NOT_NEEDED, KE_PREFERRED_LEADER_NOT_AVAILABLE, 0, 0};
static _Atomic int16_t whole_code;  /* of the whole answer */
static _Atomic int submitted;       /* reassignments that were asked for; -1 each: stopped */

static void elect(struct server_conn *c, struct kw_frame_request *h, struct kw_in *body) {
    struct kw_elect_leaders_request q;
    struct kw_elect_leaders_response m;
    struct kw_elect_leaders_response_partition_result p[PARTITIONS];
    struct kw_elect_leaders_response_replica_election_result t = {.topic = kw_str_of("t"), .partition_result = {p, 0}};
    if (kw_decode(&kw_elect_leaders_request_desc, h->version, body, arena, &q) != KW_OK || q.topic_partitions.n > 1) return;
    kw_msg_init(&kw_elect_leaders_response_desc, &m);
    m.error_code = whole_code;
    for (int32_t i = 0; q.topic_partitions.n == 1 && i < q.topic_partitions.v[0].partitions.n && i < PARTITIONS && !m.error_code; i++)
        p[t.partition_result.n++] = (struct kw_elect_leaders_response_partition_result){
            .partition_id = q.topic_partitions.v[0].partitions.v[i], .error_code = item_codes[i], .error_message = kw_str_null()};
    m.replica_election_results.v = &t;
    m.replica_election_results.n = t.partition_result.n > 0;
    server_reply(c, h, &m);
}

static void reassign(struct server_conn *c, struct kw_frame_request *h, struct kw_in *body) {
    struct kw_alter_partition_reassignments_request q;
    struct kw_alter_partition_reassignments_response m;
    struct kw_alter_partition_reassignments_response_reassignable_partition_response p[PARTITIONS];
    struct kw_alter_partition_reassignments_response_reassignable_topic_response t = {.name = kw_str_of("t"), .partitions = {p, 0}};
    if (kw_decode(&kw_alter_partition_reassignments_request_desc, h->version, body, arena, &q) != KW_OK || q.topics.n != 1) return;
    kw_msg_init(&kw_alter_partition_reassignments_response_desc, &m);
    m.error_code = whole_code;
    for (int32_t i = 0; i < q.topics.v[0].partitions.n && i < PARTITIONS && !m.error_code; i++) {
        const struct kw_alter_partition_reassignments_request_reassignable_partition *a = &q.topics.v[0].partitions.v[i];
        bool refused = a->partition_index == 2;
        submitted += a->replicas.n < 0 ? -1 : 1;
        p[t.partitions.n++] = (struct kw_alter_partition_reassignments_response_reassignable_partition_response){
            .partition_index = a->partition_index,
            .error_code = refused ? KE_INVALID_REPLICA_ASSIGNMENT : 0,
            .error_message = refused ? kw_str_of("the broker's own words") : kw_str_null()};
    }
    m.responses.v = &t;
    m.responses.n = t.partitions.n > 0;
    server_reply(c, h, &m);
}

static void unregister(struct server_conn *c, struct kw_frame_request *h) {
    struct kw_unregister_broker_response m;
    kw_msg_init(&kw_unregister_broker_response_desc, &m);
    m.error_code = whole_code;
    m.error_message = kw_str_null();
    server_reply(c, h, &m);
}

static void list_offsets(struct server *s, struct server_conn *c, struct kw_frame_request *h, struct kw_in *body) {
    struct kw_list_offsets_request q;
    struct kw_list_offsets_response m;
    struct kw_list_offsets_response_list_offsets_partition_response p[PARTITIONS];
    struct kw_list_offsets_response_list_offsets_topic_response t = {.name = kw_str_of("t"), .partitions = {p, 0}};
    if ((frozen && s == srv) || kw_decode(&kw_list_offsets_request_desc, h->version, body, arena, &q) != KW_OK || q.topics.n != 1) return;
    kw_msg_init(&kw_list_offsets_response_desc, &m);
    for (int32_t i = 0; i < q.topics.v[0].partitions.n && i < PARTITIONS; i++)
        p[t.partitions.n++] = (struct kw_list_offsets_response_list_offsets_partition_response){
            .partition_index = q.topics.v[0].partitions.v[i].partition_index,
            .timestamp = -1,
            .offset = q.topics.v[0].partitions.v[i].timestamp == -2 ? 10 : q.replica_id == -2 ? 33 : 22,
            .leader_epoch = -1};
    for (int32_t i = 0; moves_after > 0 && s == srv && i < t.partitions.n; i++) p[i].error_code = KE_NOT_LEADER_OR_FOLLOWER;
    if (t.partitions.n > 0 && new_leader > 0) {
        new_leader--;
        p[0].error_code = KE_NOT_LEADER_OR_FOLLOWER;
    }
    m.topics.v = &t;
    m.topics.n = 1;
    server_reply(c, h, &m);
}

static bool hook(struct server *s, struct server_conn *c, struct kw_frame_request *h, struct kw_in *body) {
    arena = &arenas[s == other];
    kw_arena_reset(arena);
    switch (h->api_key) {
    case KW_API_METADATA:
        return metadata(s, c, h), true;
    case KW_API_DESCRIBE_CLUSTER:
        return describe_cluster(s, c, h, body), true;
    case KW_API_DESCRIBE_QUORUM:
        return quorum(c, h), true;
    case KW_API_LIST_PARTITION_REASSIGNMENTS:
        return moves(c, h), true;
    case KW_API_DESCRIBE_LOG_DIRS:
        return log_dirs(c, h), true;
    case KW_API_DESCRIBE_CONFIGS:
        return configs(c, h), true;
    case KW_API_ELECT_LEADERS:
        return elect(c, h, body), true;
    case KW_API_ALTER_PARTITION_REASSIGNMENTS:
        return reassign(c, h, body), true;
    case KW_API_UNREGISTER_BROKER:
        return unregister(c, h), true;
    case KW_API_LIST_OFFSETS:
        return list_offsets(s, c, h, body), true;
    default:
        return false;
    }
}

/* What kc prints, both what it says and what went wrong; it must end with this code. */
static char *kc_ends(int code, const char *args) {
    static char out[16384];
    char self[2000], command[2400];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(n > 0);
    self[n] = 0;
    *strrchr(self, '/') = 0;
    snprintf(command, sizeof command, "'%s/../bin/kc' %s -b 127.0.0.1:%u 2>&1", self, args, srv->port);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    size_t got = fread(out, 1, sizeof out - 1, f);
    out[got] = 0;
    int status = pclose(f);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != code) fail_msg("kc %s: status %d, wanted exit code %d:\n%s", args, status, code, out);
    return out;
}
static char *kc(const char *args) {
    return kc_ends(0, args);
}

static void holds(const char *text, const char *part) {
    if (!strstr(text, part)) fail_msg("'%s' is not in:\n%s", part, text);
}

/* Behind, and not told by how much. */
#define P4_UNTOLD "being moved; waiting for broker 5, which has all that it was told of"
#define P0 "below min.insync.replicas (1 of 2 in sync), writes refused; waiting for broker 2, last seen 4 s ago, and broker 3, 17 records behind"
#define P1 "2 of 3 replicas in sync; waiting for broker 2, last seen 4 s ago"
#define P2 "no leader, nothing is served; waiting for broker 2, last seen 4 s ago"
#define P4 "being moved; waiting for broker 5, 40 records behind"

static void test_topic_describe(void **state) {
    (void)state;
    healthy = no_quorum = false;
    new_leader = 2; /* is asked again */
    const char *out = kc("topic describe t");
    assert_int_equal(new_leader, 0);
    holds(out, "0          1       6      1,2,3     1    2,3  10     22  33   read only\n");
    holds(out, "2          none    8      2,4       2    4    -      -   -    offline\n");
    holds(out, "\npartition 0: " P0 "\n");
    holds(out, "\npartition 1: " P1 "\n");
    holds(out, "\npartition 2: " P2 "\n");
    holds(out, "\npartition 4: " P4 "\n");
    assert_null(strstr(out, "partition 3:"));
    knows_no_lag = true;
    out = kc("topic describe t");
    knows_no_lag = false;
    holds(out, "\npartition 4: " P4_UNTOLD "\n");
    out = kc("topic describe t --json");
    holds(out, "{\"name\":\"t\",");
    holds(out, "{\"partition\":0,\"leader\":1,\"leader_epoch\":6,\"replicas\":[1,2,3],\"isr\":[1],\"osr\":[2,3],\"log_start\":10,\"hw\":22,\"leo\":33,"
               "\"state\":\"read only\",\"problem\":\"" P0 "\"}");
    holds(out, "\"leader_epoch\":9,\"replicas\":[1,3],\"isr\":[1,3],\"osr\":[],\"log_start\":10,\"hw\":22,\"leo\":33,\"state\":\"ok\"}");
    holds(out, "\"state\":\"moving\"");
    healthy = true;
    new_leader = 1000; /* is told in the end */
    out = kc("topic describe t");
    new_leader = 0;
    holds(out, "\npartition 0: the leader, broker 1, did not tell its offsets: ");
    assert_null(strstr(out, "partition 1:"));
}

/* A leader that hangs does not take the rest with it. */
static void test_a_frozen_leader(void **state) {
    (void)state;
    healthy = no_quorum = false;
    frozen = true;
    const char *out = kc("topic describe t");
    frozen = false;
    holds(out, "\npartition 1: the leader, broker 1, does not answer: ");
    holds(out, "\npartition 2: " P2 "\n");
    holds(out, "3          1       9      1,3       1,3  -    -      -   -    offline\n");
}

/* One that is none any more, or is silent: the one that leads now is asked. */
static void test_a_leader_that_moved(void **state) {
    (void)state;
    healthy = true;
    no_quorum = false;
    for (int silent = 0; silent < 2; silent++) {
        moves_after = 2; /* the client's own look and the first of the call */
        metadata_asked = 0;
        frozen = silent;
        const char *out = kc("topic describe t");
        frozen = false;
        moves_after = 0;
        for (int i = 0; i < PARTITIONS; i++) {
            char line[200];
            snprintf(line, sizeof line, "\n%d          3       9      1,3       1,3  -    10     22  33   ok\n", i);
            holds(out, line);
        }
        assert_null(strstr(out, "answer"));
    }
}

/* The quorum and the moves are asked for once, however many topics are shown. */
static void test_many_topics(void **state) {
    (void)state;
    healthy = true;
    no_quorum = false;
    quorum_asked = 0;
    const char *out = kc("topic describe t t t --json");
    assert_int_equal(quorum_asked, 1);
    const char *second = strstr(out + 1, "{\"name\":\"t\"");
    assert_non_null(second);
    assert_non_null(strstr(second + 1, "{\"name\":\"t\""));
}

static void test_cluster(void **state) {
    (void)state;
    healthy = no_quorum = false;
    const char *out = kc("cluster");
    holds(out, "cluster the-cluster, controller 1 in epoch 8\n"); /* the quorum's leader, not the broker that metadata names */
    holds(out, "down, last seen 4 s ago\n");
    holds(out, "1000  ");                  /* a controller that is no broker */
    holds(out, "\nvoter 1001 started with an empty folder and gives no vote until every other voter has answered it; waiting for voter 2 and 1000 (");
    holds(out, "down, last seen 10 min ago\n");
    holds(out, "\nt partition 0: " P0 "\n");
    holds(out, "\nt partition 4: " P4 "\n");
    holds(out, "\n1 topics, 5 partitions; 1 without a leader; 1 below min.insync.replicas; 4 with replicas out of sync\n"
               "counted since the nodes' start: records_lost 6\n");
    holds(out, "-       up; 1 of its replicas out of sync\n");
    out = kc("cluster --json");
    holds(out, "{\"id\":2,\"host\":\"away.example\",\"port\":9092,\"rack\":\"r2\",\"up\":false,\"seen_ms_ago\":4100,"
               "\"problem\":\"down, last seen 4 s ago\"}");
    holds(out, "\"up\":true,\"seen_ms_ago\":-1,\"problem\":\"1 of its replicas out of sync\",\"counts\":{\"records_lost\":2,\"resets\":0}}");
    holds(out, ",\"counts\":{\"records_lost\":6,\"resets\":0},\"problems\":["); /* of three brokers */
    no_counts = true;
    out = kc("cluster --json"); /* of a cluster that tells none */
    holds(out, ",\"counts\":{},\"problems\":[");
    assert_null(strstr(out, "records_lost"));
    no_counts = false;
    out = kc("cluster --json");
    holds(out, "\"quorum\":{\"leader\":1,\"epoch\":8,\"high_watermark\":85,\"replicas\":[{\"id\":1,\"voter\":true,");
    holds(out, "{\"topic\":\"t\",\"partition\":2,\"state\":\"offline\",\"problem\":\"" P2 "\"}");
    holds(out, "\"topics\":1,\"partitions\":5,\"leaderless\":1,\"below_min_isr\":1,\"under_replicated\":4}");
    no_quorum = true;
    out = kc("cluster");
    holds(out, "cluster the-cluster, no controller\n"); /* that which metadata names is any broker */
    holds(out, "the metadata quorum does not answer");
    holds(out, "waiting for broker 2, which is down, and broker 3, 17 records behind");
    no_quorum = false;
    healthy = true;
    out = kc("cluster");
    holds(out, "\n1 topics, 5 partitions\n");
    assert_null(strstr(out, "t partition"));
}

/* Each partition has its own result; the exit code says whether one failed. */
static void test_elect(void **state) {
    (void)state;
    healthy = no_quorum = false;
    const char *out = kc_ends(1, "elect preferred t");
    holds(out, "t partition 0: broker 1 leads now\n");
    holds(out, "t partition 1: broker 1 leads already\n");
    holds(out, "kc: elect: t partition 2: ");
    holds(out, "(PREFERRED_LEADER_NOT_AVAILABLE)\n");
    out = kc_ends(1, "elect unclean t --json");
    holds(out, "{\"topic\":\"t\",\"partition\":0,\"elected\":true,\"leader\":1}\n");
    holds(out, "{\"topic\":\"t\",\"partition\":1,\"elected\":false,\"leader\":1,\"error\":\"ELECTION_NOT_NEEDED\",");
    holds(out, "{\"topic\":\"t\",\"partition\":2,\"elected\":false,\"leader\":-1,\"error\":\"PREFERRED_LEADER_NOT_AVAILABLE\",");
    holds(kc("elect preferred --all"), "nothing to elect: the preferred replica leads each partition\n");
    holds(kc("elect unclean --all"), "nothing to elect: each partition has a leader\n");
    whole_code = KE_CLUSTER_AUTHORIZATION_FAILED;
    out = kc_ends(1, "elect preferred t:0 t:3");
    whole_code = 0;
    holds(out, "kc: elect: ");
    holds(out, "  error: CLUSTER_AUTHORIZATION_FAILED\n");
    assert_null(strstr(out, "partition 0"));
    holds(kc_ends(1, "elect preferred u"), "kc: elect: there is no topic u\n");
    holds(kc_ends(1, "elect preferred t:9"), "kc: elect: there is no partition t:9\n");
}

static void test_reassign(void **state) {
    (void)state;
    healthy = no_quorum = false;
    submitted = 0;
    const char *out = kc_ends(0, "reassign t --to 1,3,5 --dry-run");
    assert_int_equal(submitted, 0);
    holds(out, "topic  partition  now    then");
    holds(out, "t      0          1,2,3  5,3,1  5          2\n");
    out = kc_ends(1, "reassign t --to 1,3,5 --no-wait");
    assert_int_equal(submitted, 3);
    holds(out, "partitions to change, ");
    holds(out, "kc: reassign: t partition 2: the broker's own words (INVALID_REPLICA_ASSIGNMENT)\n");
    holds(out, "begun; kc reassign --list shows how far it is\n");
    out = kc_ends(1, "reassign t --to 1,3,5 --no-wait --json");
    holds(out, "{\"topic\":\"t\",\"partition\":0,\"from\":[1,2,3],\"to\":[5,3,1],\"adding\":[5],\"removing\":[2],\"state\":\"moving\"}\n");
    holds(out, "\"state\":\"failed\",\"error\":\"INVALID_REPLICA_ASSIGNMENT\",\"message\":\"the broker's own words\"}\n");
    holds(out, "{\"topic\":\"t\",\"partition\":4,\"from\":[1,5],\"to\":[1,5],"); /* what it becomes when the move under way is over */
}

static void test_reassign_refusals(void **state) {
    (void)state;
    healthy = no_quorum = false;
    submitted = 0;
    whole_code = KE_CLUSTER_AUTHORIZATION_FAILED;
    const char *out = kc_ends(1, "reassign t:0 --to 1,3,5 --json");
    whole_code = 0;
    holds(out, "  error: CLUSTER_AUTHORIZATION_FAILED\n");
    assert_null(strstr(out, "{\"topic\""));
    holds(kc_ends(1, "reassign t --to 1,3,9 --dry-run"), "kc: reassign: there is no broker 9; kc cluster shows which there are\n");
    holds(kc_ends(2, "reassign t --to 1,3"), "kc reassign: t needs 3 replicas, and --to names 2 brokers: name more, or say --rf N\n");
    holds(kc_ends(2, "reassign t --replicas 1:3,1:3"), "kc reassign: --replicas is for 2 partitions, and 5 are named\n");
    holds(kc("reassign t:0 --to 1,2,3 --dry-run"), "kc: reassign: broker 2 is down: what it gets is copied once it is back\n");
    assert_int_equal(submitted, 0);
    holds(kc("reassign --list"), "t      4          1,3,5     5          3             " P4 "\n");
    holds(kc("reassign --list t:4 --json"),
          "{\"topic\":\"t\",\"partition\":4,\"replicas\":[1,3,5],\"adding\":[5],\"removing\":[3],\"problem\":\"" P4 "\"}\n");
    holds(kc("reassign --list t:1"), "no partition is being moved\n");
    holds(kc("reassign --cancel t"), "t partition 4 stays where it was\n");
    assert_int_equal(submitted, -1);
}

static void test_unregister(void **state) {
    (void)state;
    healthy = no_quorum = false;
    holds(kc_ends(1, "unregister 3"), "kc: unregister: broker 3 is up: ");
    holds(kc_ends(1, "unregister 2"), "kc: unregister: broker 2 still holds replicas of 3 partitions: ");
    holds(kc("unregister 2 --force"), "broker 2 is no part of the cluster any more\n");
    holds(kc("unregister 7 8 --json"), "{\"broker\":7,\"unregistered\":true}\n{\"broker\":8,\"unregistered\":true}\n");
    whole_code = KE_BROKER_ID_NOT_REGISTERED;
    holds(kc_ends(1, "unregister 7"), "  error: BROKER_ID_NOT_REGISTERED\n");
    whole_code = 0;
}

static int setup(void **state) {
    (void)state;
    kw_arena_init(&arenas[0], 0);
    kw_arena_init(&arenas[1], 0);
    srv = server_new_with(hook);
    other = server_new_with(hook);
    return 0;
}
static int teardown(void **state) {
    (void)state;
    server_free(srv);
    server_free(other);
    kw_arena_deinit(&arenas[0]);
    kw_arena_deinit(&arenas[1]);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_topic_describe), cmocka_unit_test(test_a_frozen_leader),
                                       cmocka_unit_test(test_a_leader_that_moved), cmocka_unit_test(test_many_topics), cmocka_unit_test(test_cluster),
                                       cmocka_unit_test(test_elect), cmocka_unit_test(test_reassign), cmocka_unit_test(test_reassign_refusals),
                                       cmocka_unit_test(test_unregister)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
