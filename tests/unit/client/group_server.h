/* group_server.h - two scripted brokers for test_admin_group*.c and test_kc_group.c, on server.h's sockets: each coordinates the groups that it is said
 * to; what they are to answer, and what they saw. Groups whose name begins with a letter before 'm' belong to broker 1, the others to broker 2. */
#ifndef TESTS_CLIENT_GROUP_SERVER_H
#define TESTS_CLIENT_GROUP_SERVER_H

#include "server.h"

#include <kclient/admin.h>
#include <string.h>

#include "base/arena.h"
#include "consume/assignor.h"
#include "wire/kerror.h"

static struct server *servers[2]; /* of brokers 1 and 2 */
static kc_client *client;
static pthread_mutex_t script_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    int16_t find[8];      /* codes of the nth group looked for */
    int16_t codes[16];    /* of the nth group, partition or member asked for */
    int16_t whole[8];     /* of the nth answer that has one for the whole */
    int finds, asked, wholes; /* counted */
    int find_requests, requests[2], lists[2], metadatas; /* requests: to coordinators, by broker */
    int32_t drop;         /* close the connection on so many requests to coordinators */
    int16_t max[128];     /* the newest version of an API that they know; 0: all */
    int32_t items[8];     /* partitions or members in the nth request */
    bool down;            /* broker 2 is where nobody listens */
    bool leave_out;       /* answers name nothing */
    bool malformed;       /* the first member's assignment is */
    bool backwards;       /* answers name groups from the last to the first */
    bool swapped;         /* broker 1 coordinates what 2 did, and the other way round */
    bool dead;            /* described as groups that are not there, as before version 6 */
    bool no_members;
    bool topics;          /* there are some: t with four partitions, the last without a leader, and u with one */
    bool twice;           /* the second member has what the first one has */
    const char *state;    /* NULL: Stable */
    int64_t committed[2]; /* of partitions 0 and 1; 0: as ever */
    uint64_t mutate;      /* not 0: bytes of answers are changed, by this seed */
    char seen[256];       /* of the last request: what is worth looking at */
} script;
static struct kw_arena arenas[2];

/* In place of server_reply: changed, where the script says so, behind its length and correlation id. */
static void group_reply(struct server_conn *c, struct kw_frame_request *h, const void *msg) {
    struct kw_out out;
    kw_out_init(&out);
    kw_err err = kw_frame_response(&out, h->api, h->version, h->correlation_id, msg);
    for (uint64_t i = 0; err == KW_OK && script.mutate && out.len > 8 && i <= script.mutate % 3; i++) {
        script.mutate = script.mutate * 6364136223846793005u + 1442695040888963407u;
        static const uint8_t values[] = {0, 1, 0xff, 0x7f, 0x80, 16};
        out.p[8 + (script.mutate >> 33) % (out.len - 8)] = values[(script.mutate >> 20) % sizeof values];
    }
    if (err == KW_OK) server_write(c, out.p, out.len);
    kw_out_deinit(&out);
}

static int16_t next_of(const int16_t *v, int *at, int n) {
    int i = (*at)++;
    return i < n ? v[i] : 0;
}
#define NEXT(v, at) next_of(script.v, &script.at, (int)(sizeof script.v / sizeof script.v[0]))

static int32_t owner(struct kw_str group) {
    bool first = group.len > 0 && group.p[0] < 'm';
    return first != script.swapped ? 1 : 2;
}

static void see(const char *fmt, ...) {
    size_t n = strlen(script.seen);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(script.seen + n, sizeof script.seen - n, fmt, ap);
    va_end(ap);
}

static void answer_versions(struct server_conn *c, struct kw_frame_request *h) {
    struct kw_api_versions_response m;
    struct kw_api_versions_response_api_version keys[100];
    kw_msg_init(&kw_api_versions_response_desc, &m);
    m.api_keys.v = keys;
    for (size_t i = 0; i < kw_api_count && i < 100; i++) {
        int16_t max = kw_apis[i].key < 128 ? script.max[kw_apis[i].key] : 0;
        keys[m.api_keys.n++] = (struct kw_api_versions_response_api_version){
            .api_key = kw_apis[i].key, .min_version = kw_apis[i].min, .max_version = max > 0 ? max : kw_apis[i].max};
    }
    server_reply(c, h, &m);
}

static void answer_metadata(struct server_conn *c, struct kw_frame_request *h) {
    struct kw_metadata_response m;
    struct kw_metadata_response_broker b[2] = {
        {.node_id = 1, .host = kw_str_of("127.0.0.1"), .port = servers[0]->port, .rack = kw_str_null()},
        {.node_id = 2, .host = kw_str_of("127.0.0.1"), .port = script.down ? 1 : servers[1]->port, .rack = kw_str_null()}};
    int32_t one[] = {1};
    struct kw_metadata_response_partition parts[5];
    static const int32_t numbers[] = {0, 1, 2, 3, 0}, leaders[] = {1, 1, 2, -1, 1};
    for (int i = 0; i < 5; i++)
        parts[i] = (struct kw_metadata_response_partition){.partition_index = numbers[i],
                                                           .leader_id = leaders[i],
                                                           .leader_epoch = 1,
                                                           .error_code = leaders[i] < 0 ? KE_LEADER_NOT_AVAILABLE : 0,
                                                           .replica_nodes = {one, 1},
                                                           .isr_nodes = {one, 1}};
    struct kw_metadata_response_topic t[2] = {
        {.name = kw_str_of("t"), .topic_id = {{9}}, .partitions = {parts, 4}, .topic_authorized_operations = INT32_MIN},
        {.name = kw_str_of("u"), .topic_id = {{8}}, .partitions = {&parts[4], 1}, .topic_authorized_operations = INT32_MIN}};
    kw_msg_init(&kw_metadata_response_desc, &m);
    script.metadatas++;
    m.topics.v = t;
    m.topics.n = script.topics ? 2 : 0;
    m.brokers.v = b;
    m.brokers.n = 2;
    m.controller_id = 1;
    group_reply(c, h, &m);
}

/* Each log begins at 10 and ends at 120. */
static void answer_list_offsets(struct server_conn *c, struct kw_frame_request *h, struct kw_in *body, struct kw_arena *arena) {
    struct kw_list_offsets_request q;
    struct kw_list_offsets_response m;
    if (kw_decode(&kw_list_offsets_request_desc, h->version, body, arena, &q) != KW_OK) return;
    kw_msg_init(&kw_list_offsets_response_desc, &m);
    m.topics.v = kw_arena_calloc(arena, (size_t)q.topics.n + 1, sizeof *m.topics.v);
    for (; m.topics.n < q.topics.n; m.topics.n++) {
        const struct kw_list_offsets_request_list_offsets_topic *from = &q.topics.v[m.topics.n];
        struct kw_list_offsets_response_list_offsets_topic_response *to = &m.topics.v[m.topics.n];
        to->name = from->name;
        to->partitions.v = kw_arena_calloc(arena, (size_t)from->partitions.n + 1, sizeof *to->partitions.v);
        for (; to->partitions.n < from->partitions.n; to->partitions.n++)
            to->partitions.v[to->partitions.n] = (struct kw_list_offsets_response_list_offsets_partition_response){
                .partition_index = from->partitions.v[to->partitions.n].partition_index,
                .timestamp = -1,
                .offset = from->partitions.v[to->partitions.n].timestamp == -2 ? 10 : 120,
                .leader_epoch = -1};
    }
    group_reply(c, h, &m);
}

static void answer_find(struct server_conn *c, struct kw_frame_request *h, struct kw_in *body, struct kw_arena *arena) {
    struct kw_find_coordinator_request q;
    struct kw_find_coordinator_response m;
    if (kw_decode(&kw_find_coordinator_request_desc, h->version, body, arena, &q) != KW_OK) return;
    kw_msg_init(&kw_find_coordinator_response_desc, &m);
    script.find_requests++;
    if (h->version < 4) {
        m.error_code = NEXT(find, finds);
        m.error_message = kw_str_null();
        m.node_id = m.error_code ? -1 : owner(q.key);
        m.host = kw_str_of("127.0.0.1");
        m.port = servers[owner(q.key) - 1]->port;
        group_reply(c, h, &m);
        return;
    }
    int32_t n = q.coordinator_keys.n;
    m.coordinators.v = kw_arena_calloc(arena, (size_t)n + 1, sizeof *m.coordinators.v);
    for (int32_t i = 0; i < n && !script.leave_out; i++) {
        struct kw_str key = q.coordinator_keys.v[script.backwards ? n - 1 - i : i];
        int16_t code = NEXT(find, finds);
        m.coordinators.v[m.coordinators.n++] = (struct kw_find_coordinator_response_coordinator){.key = key,
                                                                                                .node_id = code ? -1 : owner(key),
                                                                                                .host = kw_str_of(code ? "" : "127.0.0.1"),
                                                                                                .port = code ? -1 : servers[owner(key) - 1]->port,
                                                                                                .error_code = code,
                                                                                                .error_message = kw_str_null()};
    }
    group_reply(c, h, &m);
}

static void answer_list(struct server_conn *c, struct kw_frame_request *h, struct kw_in *body, int broker, struct kw_arena *arena) {
    struct kw_list_groups_request q;
    struct kw_list_groups_response m;
    struct kw_list_groups_response_listed_group g[3] = {
        {.group_id = kw_str_of(broker == 1 ? "b" : "z"), .protocol_type = kw_str_of("consumer"), .group_state = kw_str_of("Stable")},
        {.group_id = kw_str_of(broker == 1 ? "a" : "y"), .protocol_type = kw_str_of(""), .group_state = kw_str_of("Empty")},
        {.group_id = kw_str_of("moved"), .protocol_type = kw_str_of("consumer"), .group_state = kw_str_of("Empty")}};
    for (int i = 0; i < 3; i++) g[i].group_type = kw_str_of("classic");
    if (kw_decode(&kw_list_groups_request_desc, h->version, body, arena, &q) != KW_OK) return;
    kw_msg_init(&kw_list_groups_response_desc, &m);
    script.lists[broker - 1]++;
    script.seen[0] = 0;
    for (int32_t i = 0; i < q.states_filter.n; i++) see("%.*s,", q.states_filter.v[i].len, q.states_filter.v[i].p);
    for (int32_t i = 0; i < q.types_filter.n; i++) see("%.*s;", q.types_filter.v[i].len, q.types_filter.v[i].p);
    m.error_code = NEXT(whole, wholes);
    m.groups.v = g;
    m.groups.n = m.error_code ? 0 : 3;
    group_reply(c, h, &m);
}

/* t-0, t-1 and u-5, and a subscription to t and u; made before allocations fail. */
static uint8_t said_bytes[256], given_bytes[256];
static struct kw_bytes said = {said_bytes, 0}, given = {given_bytes, 0};
static void make_member(void) {
    int32_t of_t[] = {0, 1}, of_u[] = {5};
    struct kw_consumer_protocol_assignment_topic_partition topics[2] = {{.topic = kw_str_of("t"), .partitions = {of_t, 2}},
                                                                        {.topic = kw_str_of("u"), .partitions = {of_u, 1}}};
    struct kw_str names[2] = {kw_str_of("t"), kw_str_of("u")};
    struct kc_share share = {topics, 2};
    struct kc_subscription subscription = {.topics = names, .topic_count = 2, .generation = -1, .rack = kw_str_null()};
    struct kw_out out;
    kw_out_init(&out);
    assert_int_equal(kc_subscription_write(KC_ASSIGN_RANGE, &subscription, &out), KW_OK);
    memcpy(said_bytes, out.p, out.len);
    said.len = (int32_t)out.len;
    kw_out_deinit(&out);
    kw_out_init(&out);
    assert_int_equal(kc_share_write(&share, &out), KW_OK);
    memcpy(given_bytes, out.p, out.len);
    given.len = (int32_t)out.len;
    kw_out_deinit(&out);
}

static void answer_describe(struct server_conn *c, struct kw_frame_request *h, struct kw_in *body, int broker, struct kw_arena *arena) {
    struct kw_describe_groups_request q;
    struct kw_describe_groups_response m;
    if (kw_decode(&kw_describe_groups_request_desc, h->version, body, arena, &q) != KW_OK) return;
    kw_msg_init(&kw_describe_groups_response_desc, &m);
    m.groups.v = kw_arena_calloc(arena, (size_t)q.groups.n + 1, sizeof *m.groups.v);
    struct kw_describe_groups_response_described_group_member *members = kw_arena_calloc(arena, 2, sizeof *members);
    members[0] = (struct kw_describe_groups_response_described_group_member){.member_id = kw_str_of("m-1"),
                                                                             .group_instance_id = kw_str_null(),
                                                                             .client_id = kw_str_of("c"),
                                                                             .client_host = kw_str_of("/127.0.0.1"),
                                                                             .member_metadata = said,
                                                                             .member_assignment = given};
    if (script.malformed) members[0].member_assignment.len -= 3;
    members[1] = (struct kw_describe_groups_response_described_group_member){.member_id = kw_str_of("m-2"),
                                                                             .group_instance_id = h->version >= 4 ? kw_str_of("i-2") : kw_str_null(),
                                                                             .client_id = kw_str_of("c"),
                                                                             .client_host = kw_str_of("/127.0.0.1")};
    if (script.twice) members[1].member_assignment = given;
    bool stable = !script.state || !strcmp(script.state, "Stable");
    for (int i = 0; i < 2 && !stable; i++) members[i].member_metadata.len = members[i].member_assignment.len = 0;
    for (int32_t i = 0; i < q.groups.n && !script.leave_out; i++) {
        struct kw_describe_groups_response_described_group *g = &m.groups.v[m.groups.n++];
        *g = (struct kw_describe_groups_response_described_group){.group_id = q.groups.v[script.backwards ? q.groups.n - 1 - i : i],
                                                                  .error_message = kw_str_null(),
                                                                  .group_state = kw_str_of(script.dead ? "Dead" : script.state ? script.state : "Stable"),
                                                                  .protocol_type = kw_str_of("consumer"),
                                                                  .protocol_data = kw_str_of("range"),
                                                                  .authorized_operations = INT32_MIN};
        g->error_code = owner(g->group_id) == broker ? NEXT(codes, asked) : KE_NOT_COORDINATOR;
        if (g->error_code == KE_GROUP_ID_NOT_FOUND && h->version >= 6) g->error_message = kw_str_of("Group is not a classic group.");
        if (g->error_code || script.dead || script.no_members) continue;
        g->members.v = members;
        g->members.n = 2;
    }
    group_reply(c, h, &m);
}

static void fetch_partitions(struct kw_arena *arena, const int32_t *numbers, int32_t n, struct kw_offset_fetch_response_partitions **v) {
    *v = kw_arena_calloc(arena, (size_t)n + 1, sizeof **v);
    for (int32_t i = 0; i < n; i++) {
        int16_t code = NEXT(codes, asked);
        int64_t at = numbers[i] < 2 && script.committed[numbers[i]] ? script.committed[numbers[i]] : 100 + numbers[i];
        (*v)[i] = (struct kw_offset_fetch_response_partitions){.partition_index = numbers[i],
                                                               .committed_offset = code ? -1 : at,
                                                               .committed_leader_epoch = 7,
                                                               .metadata = numbers[i] == 0 ? kw_str_of("note") : kw_str_null(),
                                                               .error_code = code};
    }
}

static void answer_fetch_old(struct server_conn *c, struct kw_frame_request *h, const struct kw_offset_fetch_request *q, struct kw_arena *arena) {
    struct kw_offset_fetch_response m;
    int32_t two[] = {1, 0};
    struct kw_offset_fetch_response_partitions *p;
    struct kw_offset_fetch_response_partition old[2];
    struct kw_offset_fetch_response_topic t = {.name = kw_str_of("t"), .partitions = {old, 2}};
    kw_msg_init(&kw_offset_fetch_response_desc, &m);
    see("%s%.*s", q->topics.n < 0 ? "all of " : "some of ", q->group_id.len, q->group_id.p);
    m.error_code = NEXT(whole, wholes);
    fetch_partitions(arena, two, 2, &p);
    for (int i = 0; i < 2; i++)
        old[i] = (struct kw_offset_fetch_response_partition){.partition_index = p[i].partition_index,
                                                             .committed_offset = p[i].committed_offset,
                                                             .committed_leader_epoch = h->version >= 5 ? p[i].committed_leader_epoch : -1,
                                                             .metadata = p[i].metadata,
                                                             .error_code = p[i].error_code};
    m.topics.v = &t;
    m.topics.n = m.error_code ? 0 : 1;
    group_reply(c, h, &m);
}

static void answer_fetch(struct server_conn *c, struct kw_frame_request *h, struct kw_in *body, struct kw_arena *arena) {
    struct kw_offset_fetch_request q;
    struct kw_offset_fetch_response m;
    int32_t two[] = {1, 0};
    if (kw_decode(&kw_offset_fetch_request_desc, h->version, body, arena, &q) != KW_OK) return;
    script.seen[0] = 0;
    if (q.require_stable) see("stable ");
    if (h->version < 8) return answer_fetch_old(c, h, &q, arena);
    kw_msg_init(&kw_offset_fetch_response_desc, &m);
    m.groups.v = kw_arena_calloc(arena, (size_t)q.groups.n + 1, sizeof *m.groups.v);
    for (int32_t i = 0; i < q.groups.n && !script.leave_out; i++) {
        const struct kw_offset_fetch_request_group *asked = &q.groups.v[script.backwards ? q.groups.n - 1 - i : i];
        struct kw_offset_fetch_response_group *g = &m.groups.v[m.groups.n++];
        *g = (struct kw_offset_fetch_response_group){.group_id = asked->group_id, .error_code = NEXT(whole, wholes)};
        int32_t n = g->error_code ? 0 : asked->topics.n < 0 ? 1 : asked->topics.n;
        see("%.*s:%d ", asked->group_id.len, asked->group_id.p, (int)asked->topics.n);
        g->topics.v = kw_arena_calloc(arena, (size_t)n + 1, sizeof *g->topics.v);
        for (g->topics.n = 0; g->topics.n < n; g->topics.n++) {
            struct kw_offset_fetch_response_topics *t = &g->topics.v[g->topics.n];
            bool all = asked->topics.n < 0;
            t->name = all ? kw_str_of("t") : asked->topics.v[g->topics.n].name;
            t->partitions.n = all ? 2 : asked->topics.v[g->topics.n].partition_indexes.n;
            fetch_partitions(arena, all ? two : asked->topics.v[g->topics.n].partition_indexes.v, t->partitions.n, &t->partitions.v);
        }
    }
    group_reply(c, h, &m);
}

static void count_items(int32_t n) {
    int at = script.requests[0] + script.requests[1] - 1;
    if (at >= 0 && at < 8) script.items[at] = n;
}

static void answer_commit(struct server_conn *c, struct kw_frame_request *h, struct kw_in *body, struct kw_arena *arena) {
    struct kw_offset_commit_request q;
    struct kw_offset_commit_response m;
    int32_t items = 0;
    if (kw_decode(&kw_offset_commit_request_desc, h->version, body, arena, &q) != KW_OK) return;
    kw_msg_init(&kw_offset_commit_response_desc, &m);
    m.topics.v = kw_arena_calloc(arena, (size_t)q.topics.n + 1, sizeof *m.topics.v);
    snprintf(script.seen, sizeof script.seen, "%.*s generation %d member '%.*s'", q.group_id.len, q.group_id.p, q.generation_id_or_member_epoch,
             q.member_id.len, q.member_id.p);
    for (int32_t t = 0; t < q.topics.n; t++) {
        int32_t n = q.topics.v[t].partitions.n;
        m.topics.v[m.topics.n].name = q.topics.v[t].name;
        m.topics.v[m.topics.n].partitions.v = kw_arena_calloc(arena, (size_t)n + 1, sizeof *m.topics.v[0].partitions.v);
        for (int32_t i = 0; i < n && !script.leave_out; i++, items++) {
            const struct kw_offset_commit_request_partition *p = &q.topics.v[t].partitions.v[i];
            if (items < 2)
                see(" %d=%lld/%d/%.*s", p->partition_index, (long long)p->committed_offset, p->committed_leader_epoch, p->committed_metadata.len,
                    p->committed_metadata.p);
            m.topics.v[m.topics.n].partitions.v[m.topics.v[m.topics.n].partitions.n++] =
                (struct kw_offset_commit_response_partition){.partition_index = p->partition_index, .error_code = NEXT(codes, asked)};
        }
        m.topics.n++;
    }
    count_items(items);
    group_reply(c, h, &m);
}

static void answer_forget(struct server_conn *c, struct kw_frame_request *h, struct kw_in *body, struct kw_arena *arena) {
    struct kw_offset_delete_request q;
    struct kw_offset_delete_response m;
    int32_t items = 0;
    if (kw_decode(&kw_offset_delete_request_desc, h->version, body, arena, &q) != KW_OK) return;
    kw_msg_init(&kw_offset_delete_response_desc, &m);
    m.error_code = NEXT(whole, wholes);
    m.topics.v = kw_arena_calloc(arena, (size_t)q.topics.n + 1, sizeof *m.topics.v);
    for (int32_t t = 0; t < q.topics.n && !m.error_code; t++, m.topics.n++) {
        int32_t n = q.topics.v[t].partitions.n;
        m.topics.v[t].name = q.topics.v[t].name;
        m.topics.v[t].partitions.v = kw_arena_calloc(arena, (size_t)n + 1, sizeof *m.topics.v[0].partitions.v);
        for (int32_t i = 0; i < n; i++, items++)
            m.topics.v[t].partitions.v[m.topics.v[t].partitions.n++] = (struct kw_offset_delete_response_partition){
                .partition_index = q.topics.v[t].partitions.v[i].partition_index, .error_code = NEXT(codes, asked)};
    }
    count_items(items);
    group_reply(c, h, &m);
}

static void answer_delete(struct server_conn *c, struct kw_frame_request *h, struct kw_in *body, struct kw_arena *arena) {
    struct kw_delete_groups_request q;
    struct kw_delete_groups_response m;
    if (kw_decode(&kw_delete_groups_request_desc, h->version, body, arena, &q) != KW_OK) return;
    kw_msg_init(&kw_delete_groups_response_desc, &m);
    m.results.v = kw_arena_calloc(arena, (size_t)q.groups_names.n + 1, sizeof *m.results.v);
    for (int32_t i = 0; i < q.groups_names.n; i++)
        m.results.v[m.results.n++] = (struct kw_delete_groups_response_deletable_group_result){
            .group_id = q.groups_names.v[i], .error_code = NEXT(codes, asked), .error_message = kw_str_null()};
    count_items(q.groups_names.n);
    group_reply(c, h, &m);
}

static void answer_leave(struct server_conn *c, struct kw_frame_request *h, struct kw_in *body, struct kw_arena *arena) {
    struct kw_leave_group_request q;
    struct kw_leave_group_response m;
    if (kw_decode(&kw_leave_group_request_desc, h->version, body, arena, &q) != KW_OK) return;
    kw_msg_init(&kw_leave_group_response_desc, &m);
    m.error_code = NEXT(whole, wholes);
    m.members.v = kw_arena_calloc(arena, (size_t)q.members.n + 1, sizeof *m.members.v);
    script.seen[0] = 0;
    for (int32_t i = 0; i < q.members.n && !m.error_code; i++) {
        const struct kw_leave_group_request_member_identity *p = &q.members.v[i];
        see("%.*s/%.*s/%.*s ", p->member_id.len, p->member_id.p, KW_MAX(p->group_instance_id.len, 0), p->group_instance_id.p,
            KW_MAX(p->reason.len, 0), p->reason.p);
        m.members.v[m.members.n++] = (struct kw_leave_group_response_member_response){
            .member_id = p->member_id, .group_instance_id = p->group_instance_id, .error_code = NEXT(codes, asked)};
    }
    count_items(q.members.n);
    group_reply(c, h, &m);
}

static bool answer(struct server *s, struct server_conn *c, struct kw_frame_request *h, struct kw_in *body) {
    int broker = s == servers[0] ? 1 : 2;
    struct kw_arena *arena = &arenas[broker - 1];
    kw_arena_reset(arena);
    switch (h->api_key) {
    case KW_API_API_VERSIONS:
        return answer_versions(c, h), true;
    case KW_API_METADATA:
        return answer_metadata(c, h), true;
    case KW_API_FIND_COORDINATOR:
        return answer_find(c, h, body, arena), true;
    case KW_API_LIST_OFFSETS:
        return answer_list_offsets(c, h, body, arena), true;
    case KW_API_LIST_GROUPS:
        return answer_list(c, h, body, broker, arena), true;
    default:
        break;
    }
    script.requests[broker - 1]++;
    if (script.drop > 0) {
        script.drop--;
        shutdown(c->fd, SHUT_RDWR);
        return true;
    }
    switch (h->api_key) {
    case KW_API_DESCRIBE_GROUPS:
        return answer_describe(c, h, body, broker, arena), true;
    case KW_API_OFFSET_FETCH:
        return answer_fetch(c, h, body, arena), true;
    case KW_API_OFFSET_COMMIT:
        return answer_commit(c, h, body, arena), true;
    case KW_API_OFFSET_DELETE:
        return answer_forget(c, h, body, arena), true;
    case KW_API_DELETE_GROUPS:
        return answer_delete(c, h, body, arena), true;
    case KW_API_LEAVE_GROUP:
        return answer_leave(c, h, body, arena), true;
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

static int32_t saw;
#define SAW(field) (pthread_mutex_lock(&script_lock), saw = (int32_t)script.field, pthread_mutex_unlock(&script_lock), saw)
#define SCRIPT(statement) (pthread_mutex_lock(&script_lock), script.statement, pthread_mutex_unlock(&script_lock))

static char seen_copy[256];
static inline const char *seen(void) {
    pthread_mutex_lock(&script_lock);
    memcpy(seen_copy, script.seen, sizeof seen_copy);
    pthread_mutex_unlock(&script_lock);
    return seen_copy;
}

static void client_open(void) {
    char address[40];
    snprintf(address, sizeof address, "127.0.0.1:%u", servers[0]->port);
    kc_config *f = kc_config_new();
    (void)kc_config_set(f, "bootstrap.servers", address, NULL);
    (void)kc_config_set(f, "retry.backoff.ms", "10", NULL);
    (void)kc_config_set(f, "reconnect.backoff.ms", "10", NULL);
    assert_int_equal(kc_client_new(f, &client, NULL), KC_OK);
    kc_config_free(f);
}

/* A new script, and a client that knows nothing of an earlier one. */
static void begin(void) {
    kc_client_free(client);
    client = NULL;
    pthread_mutex_lock(&script_lock);
    memset(&script, 0, sizeof script);
    pthread_mutex_unlock(&script_lock);
    client_open();
}

static int group_setup(void **state) {
    (void)state;
    make_member();
    for (int i = 0; i < 2; i++) {
        kw_arena_init(&arenas[i], 0);
        (void)kw_arena_alloc(&arenas[i], 1 << 20); /* kept: no allocation of the servers' fails where one of the client's is to */
    }
    for (int i = 0; i < 2; i++) servers[i] = server_new_with(hook);
    return 0;
}
static int group_teardown(void **state) {
    (void)state;
    kc_client_free(client);
    for (int i = 0; i < 2; i++) {
        server_free(servers[i]);
        kw_arena_deinit(&arenas[i]);
    }
    return 0;
}

#endif
