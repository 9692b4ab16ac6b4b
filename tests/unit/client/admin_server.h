/* admin_server.h - the scripted broker of test_admin.c, on server.h's socket: what it is to answer to each administrative request, and what it saw.
 */
#ifndef TESTS_CLIENT_ADMIN_SERVER_H
#define TESTS_CLIENT_ADMIN_SERVER_H

#include "server.h"

#include <kclient/admin.h>
#include <kclient/consumer.h>
#include <string.h>

#include "base/arena.h"
#include "wire/kerror.h"

static struct server *srv;
static kc_client *client;

/* What the scripted broker is to do, and what it saw. */
static pthread_mutex_t script_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    int16_t codes[8]; /* of the nth request that is counted here, by its first item */
    int count;
    int32_t controller;
    int metadata_requests;
    int32_t last_topics; /* items of the last request */
    int32_t placed;      /* the first topic's assignments, a digit a replica, after 7 (no number of partitions) and 9 for each partition */
    bool leave_out;      /* the answer names nothing */
    int32_t drop;        /* close the connection on so many requests */
    uint16_t away;       /* partition 1 is led by a second broker, on this port */
    int lags;            /* so many metadata answers do not know the topic yet */
    int16_t metadata_max; /* the newest Metadata that it knows; 0: all */
    int32_t throttle_ms; /* of what is answered to a description or a deletion of records */
} script;

static struct kw_arena arena;

static int16_t next_code(void) {
    int at = script.count++;
    return at < 8 ? script.codes[at] : 0;
}

static void metadata(struct server *s, struct server_conn *c, struct kw_frame_request *h, struct kw_in *body) {
    struct kw_metadata_request q;
    struct kw_metadata_response m;
    struct kw_metadata_response_broker b = {.node_id = 1, .host = kw_str_of("127.0.0.1"), .port = s->port, .rack = kw_str_of("r1")};
    int32_t replicas[] = {1};
    struct kw_metadata_response_partition parts[2] = {{.partition_index = 1, .leader_id = 1, .leader_epoch = 4},
                                                      {.partition_index = 0, .leader_id = 1, .leader_epoch = 3}};
    struct kw_metadata_response_topic t = {.name = kw_str_of("t"), .topic_id = {{9}}, .topic_authorized_operations = INT32_MIN};
    if (kw_decode(&kw_metadata_request_desc, h->version, body, &arena, &q) != KW_OK) return;
    script.metadata_requests++;
    for (int i = 0; i < 2; i++) {
        parts[i].replica_nodes.v = parts[i].isr_nodes.v = replicas;
        parts[i].replica_nodes.n = parts[i].isr_nodes.n = 1;
    }
    kw_msg_init(&kw_metadata_response_desc, &m);
    struct kw_metadata_response_broker both[2] = {
        b, {.node_id = 2, .host = kw_str_of("127.0.0.1"), .port = script.away, .rack = kw_str_null()}};
    if (script.away) parts[0].leader_id = 2;
    m.brokers.v = both;
    m.brokers.n = script.away ? 2 : 1;
    m.cluster_id = kw_str_of("the-cluster");
    m.controller_id = script.controller;
    t.partitions.v = parts;
    t.partitions.n = 2;
    bool lags = q.topics.n == 1 && script.lags > 0 && script.lags-- > 0;
    if (q.topics.n == 1 && (lags || !kw_str_eq(q.topics.v[0].name, kw_str_of("t")))) {
        t = (struct kw_metadata_response_topic){.name = q.topics.v[0].name, .error_code = 3, .topic_authorized_operations = INT32_MIN};
    }
    m.topics.v = &t;
    m.topics.n = q.topics.n != 0;
    server_reply(c, h, &m);
}

static void api_versions(struct server_conn *c, struct kw_frame_request *h) {
    struct kw_api_versions_response m;
    struct kw_api_versions_response_api_version keys[64];
    kw_msg_init(&kw_api_versions_response_desc, &m);
    m.api_keys.v = keys;
    for (size_t i = 0; i < kw_api_count && i < 64; i++) {
        int16_t max = kw_apis[i].key == KW_API_METADATA ? script.metadata_max : kw_apis[i].max;
        keys[m.api_keys.n++] =
            (struct kw_api_versions_response_api_version){.api_key = kw_apis[i].key, .min_version = kw_apis[i].min, .max_version = max};
    }
    server_reply(c, h, &m);
}

static void create_topics(struct server_conn *c, struct kw_frame_request *h, struct kw_in *body) {
    struct kw_create_topics_request q;
    struct kw_create_topics_response m;
    struct kw_create_topics_response_creatable_topic_result r[8];
    if (kw_decode(&kw_create_topics_request_desc, h->version, body, &arena, &q) != KW_OK) return;
    kw_msg_init(&kw_create_topics_response_desc, &m);
    script.last_topics = q.topics.n;
    m.topics.v = r;
    script.placed = q.topics.n > 0 && q.topics.v[0].num_partitions == -1 ? 7 : 0;
    for (int32_t i = 0; q.topics.n > 0 && i < q.topics.v[0].assignments.n; i++) {
        script.placed = script.placed * 10 + 9;
        for (int32_t k = 0; k < q.topics.v[0].assignments.v[i].broker_ids.n; k++)
            script.placed = script.placed * 10 + q.topics.v[0].assignments.v[i].broker_ids.v[k];
    }
    for (int32_t i = 0; i < q.topics.n && i < 8 && !script.leave_out; i++) {
        int16_t code = kw_str_eq(q.topics.v[i].name, kw_str_of("good")) ? 0 : next_code();
        r[m.topics.n++] = (struct kw_create_topics_response_creatable_topic_result){
            .name = q.topics.v[i].name,
            .error_code = code,
            .error_message = code == 37 ? kw_str_of("the broker's own words") : kw_str_null(),
            .num_partitions = -1,
            .replication_factor = -1,
            .configs.n = -1};
    }
    server_reply(c, h, &m);
}

static void delete_topics(struct server_conn *c, struct kw_frame_request *h, struct kw_in *body) {
    struct kw_delete_topics_request q;
    struct kw_delete_topics_response m;
    struct kw_delete_topics_response_deletable_topic_result r[8];
    if (kw_decode(&kw_delete_topics_request_desc, h->version, body, &arena, &q) != KW_OK) return;
    kw_msg_init(&kw_delete_topics_response_desc, &m);
    m.responses.v = r;
    for (int32_t i = 0; i < q.topics.n && i < 8; i++)
        r[m.responses.n++] = (struct kw_delete_topics_response_deletable_topic_result){
            .name = q.topics.v[i].name, .error_code = next_code(), .error_message = kw_str_null()};
    server_reply(c, h, &m);
}

static void create_partitions(struct server_conn *c, struct kw_frame_request *h, struct kw_in *body) {
    struct kw_create_partitions_request q;
    struct kw_create_partitions_response m;
    struct kw_create_partitions_response_create_partitions_topic_result r[8];
    if (kw_decode(&kw_create_partitions_request_desc, h->version, body, &arena, &q) != KW_OK) return;
    kw_msg_init(&kw_create_partitions_response_desc, &m);
    m.results.v = r;
    for (int32_t i = 0; i < q.topics.n && i < 8; i++)
        r[m.results.n++] = (struct kw_create_partitions_response_create_partitions_topic_result){
            .name = q.topics.v[i].name, .error_code = next_code(), .error_message = kw_str_of("the topic has so many")};
    server_reply(c, h, &m);
}

static void delete_records(struct server_conn *c, struct kw_frame_request *h, struct kw_in *body) {
    struct kw_delete_records_request q;
    struct kw_delete_records_response m;
    struct kw_delete_records_response_delete_records_topic_result t[8] = {0};
    struct kw_delete_records_response_delete_records_partition_result p[8];
    if (kw_decode(&kw_delete_records_request_desc, h->version, body, &arena, &q) != KW_OK) return;
    kw_msg_init(&kw_delete_records_response_desc, &m);
    m.throttle_time_ms = script.throttle_ms;
    m.topics.v = t;
    script.last_topics = q.topics.n;
    for (int32_t i = 0; i < q.topics.n && i < 8; i++) {
        p[i] = (struct kw_delete_records_response_delete_records_partition_result){.partition_index =
                                                                                       q.topics.v[i].partitions.v[0].partition_index,
                                                                                   .low_watermark = q.topics.v[i].partitions.v[0].offset,
                                                                                   .error_code = next_code()};
        t[i].name = q.topics.v[i].name;
        t[i].partitions.v = &p[i];
        t[i].partitions.n = 1;
        m.topics.n++;
    }
    server_reply(c, h, &m);
}

static void list_offsets(struct server_conn *c, struct kw_frame_request *h, struct kw_in *body) {
    struct kw_list_offsets_request q;
    struct kw_list_offsets_response m;
    struct kw_list_offsets_response_list_offsets_partition_response p[8];
    struct kw_list_offsets_response_list_offsets_topic_response t = {0};
    if (kw_decode(&kw_list_offsets_request_desc, h->version, body, &arena, &q) != KW_OK || q.topics.n != 1) return;
    kw_msg_init(&kw_list_offsets_response_desc, &m);
    m.throttle_time_ms = script.throttle_ms;
    t.name = q.topics.v[0].name;
    t.partitions.v = p;
    for (int32_t i = 0; i < q.topics.v[0].partitions.n && i < 8; i++) {
        int32_t index = q.topics.v[0].partitions.v[i].partition_index;
        int64_t offset = q.topics.v[0].partitions.v[i].timestamp == -2 ? 10 : q.replica_id == -2 ? 30 : 20;
        p[t.partitions.n++] = (struct kw_list_offsets_response_list_offsets_partition_response){
            .partition_index = index, .timestamp = -1, .offset = offset + index, .leader_epoch = -1};
    }
    m.topics.v = &t;
    m.topics.n = 1;
    server_reply(c, h, &m);
}

static void alter_configs(struct server_conn *c, struct kw_frame_request *h, struct kw_in *body) {
    struct kw_incremental_alter_configs_request q;
    struct kw_incremental_alter_configs_response m;
    struct kw_incremental_alter_configs_response_alter_configs_resource_response r[8];
    if (kw_decode(&kw_incremental_alter_configs_request_desc, h->version, body, &arena, &q) != KW_OK) return;
    kw_msg_init(&kw_incremental_alter_configs_response_desc, &m);
    m.responses.v = r;
    for (int32_t i = 0; i < q.resources.n && i < 8; i++) {
        int8_t op = q.resources.v[i].configs.n == 1 ? q.resources.v[i].configs.v[0].config_operation : -1;
        r[m.responses.n++] =
            (struct kw_incremental_alter_configs_response_alter_configs_resource_response){.error_code = op == 1 ? 0 : 40,
                                                                                           .error_message = kw_str_null(),
                                                                                           .resource_type = q.resources.v[i].resource_type,
                                                                                           .resource_name = q.resources.v[i].resource_name};
    }
    server_reply(c, h, &m);
}

static void describe_configs(struct server_conn *c, struct kw_frame_request *h, struct kw_in *body) {
    struct kw_describe_configs_request q;
    struct kw_describe_configs_response m;
    if (kw_decode(&kw_describe_configs_request_desc, h->version, body, &arena, &q) != KW_OK || q.resources.n != 1) return;
    struct kw_describe_configs_response_describe_configs_resource_result e[2] = {
        {.name = kw_str_of("retention.ms"), .value = kw_str_of("1000"), .config_source = 1, .documentation = kw_str_of("how long")},
        {.name = kw_str_of("secret"),
         .value = kw_str_null(),
         .config_source = 5,
         .is_sensitive = true,
         .read_only = true,
         .documentation = kw_str_null()}};
    struct kw_describe_configs_response_describe_configs_result r = {
        .error_message = kw_str_null(), .resource_type = q.resources.v[0].resource_type, .resource_name = q.resources.v[0].resource_name};
    kw_msg_init(&kw_describe_configs_response_desc, &m);
    m.throttle_time_ms = script.throttle_ms;
    r.error_code = next_code();
    r.configs.v = e;
    r.configs.n = r.error_code ? 0 : 2;
    m.results.v = &r;
    m.results.n = 1;
    server_reply(c, h, &m);
}

static bool answer(struct server *s, struct server_conn *c, struct kw_frame_request *h, struct kw_in *body) {
    kw_arena_reset(&arena);
    if (h->api_key != KW_API_API_VERSIONS && h->api_key != KW_API_METADATA && script.drop > 0) {
        script.drop--;
        shutdown(c->fd, SHUT_RDWR);
        return true;
    }
    switch (h->api_key) {
    case KW_API_API_VERSIONS:
        if (script.metadata_max == 0) return false;
        api_versions(c, h);
        return true;
    case KW_API_METADATA:
        metadata(s, c, h, body);
        return true;
    case KW_API_CREATE_TOPICS:
        create_topics(c, h, body);
        return true;
    case KW_API_DELETE_TOPICS:
        delete_topics(c, h, body);
        return true;
    case KW_API_CREATE_PARTITIONS:
        create_partitions(c, h, body);
        return true;
    case KW_API_DELETE_RECORDS:
        delete_records(c, h, body);
        return true;
    case KW_API_LIST_OFFSETS:
        list_offsets(c, h, body);
        return true;
    case KW_API_INCREMENTAL_ALTER_CONFIGS:
        alter_configs(c, h, body);
        return true;
    case KW_API_DESCRIBE_CONFIGS:
        describe_configs(c, h, body);
        return true;
    default:
        return false;
    }
}

static bool hook(struct server *s, struct server_conn *c, struct kw_frame_request *h, struct kw_in *body) {
    pthread_mutex_lock(&script_lock);
    bool done = answer(s, c, h, body);
    pthread_mutex_unlock(&script_lock);
    return done;
}

#endif
