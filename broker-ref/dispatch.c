/* dispatch.c - the table of what this broker serves, and the way of a request to its API: header, version, state, fault rules.
 *
 * Called by conn (a request whose turn it is). Calls api/, fault and forward. KIP-35, KIP-511 (ApiVersions of an unknown version).
 */
#include <stdio.h>

#include "api/api.h"
#include "fault.h"
#include "forward.h"
#include "kw_messages.h"
#include "node_priv.h"

enum {
    EARLY = KB_API_EARLY,
    BROKER = KB_API_ON_BROKER,
    CONTROLLER = KB_API_ON_CONTROLLER,
    BOTH = BROKER | CONTROLLER,
    ASKED = BOTH | KB_API_FORWARDED, /* of the controller */
    CHANGE = ASKED | KB_API_CHANGES,
    GROUP = BROKER | KB_API_OF_GROUP,
};

const struct kb_api_entry kb_api_table[] = {
    {KW_API_PRODUCE, 0, 13, kb_api_produce, BROKER}, /* from 0, else librdkafka takes the broker for too old (KAFKA-18659) */
    {KW_API_FETCH, 0, 18, kb_api_fetch, BOTH | EARLY},
    {KW_API_LIST_OFFSETS, 0, 11, kb_api_list_offsets, BROKER},
    {KW_API_METADATA, 0, 13, kb_api_metadata, BROKER},
    {KW_API_OFFSET_COMMIT, 2, 10, kb_api_offset_commit, GROUP},
    {KW_API_OFFSET_FETCH, 1, 10, kb_api_offset_fetch, BROKER},
    {KW_API_FIND_COORDINATOR, 0, 6, kb_api_find_coordinator, BROKER},
    {KW_API_JOIN_GROUP, 0, 9, kb_api_join_group, GROUP},
    {KW_API_HEARTBEAT, 0, 4, kb_api_heartbeat, BROKER},
    {KW_API_LEAVE_GROUP, 0, 5, kb_api_leave_group, BROKER},
    {KW_API_SYNC_GROUP, 0, 5, kb_api_sync_group, GROUP},
    {KW_API_DESCRIBE_GROUPS, 0, 6, kb_api_describe_groups, BROKER},
    {KW_API_LIST_GROUPS, 0, 5, kb_api_list_groups, BROKER},
    {KW_API_API_VERSIONS, 0, 5, kb_api_api_versions, BOTH},
    {KW_API_CREATE_TOPICS, 0, 7, kb_api_create_topics, CHANGE},
    {KW_API_DELETE_TOPICS, 0, 6, kb_api_delete_topics, CHANGE},
    {KW_API_DELETE_RECORDS, 0, 2, kb_api_delete_records, BROKER},
    {KW_API_INIT_PRODUCER_ID, 0, 5, kb_api_init_producer_id, BROKER},
    {KW_API_OFFSET_FOR_LEADER_EPOCH, 0, 4, kb_api_offset_for_leader_epoch, BROKER},
    {KW_API_DESCRIBE_CONFIGS, 0, 4, kb_api_describe_configs, BOTH},
    {KW_API_ALTER_CONFIGS, 0, 2, kb_api_alter_configs, CHANGE},
    {KW_API_DESCRIBE_LOG_DIRS, 0, 5, kb_api_describe_log_dirs, BROKER},
    {KW_API_CREATE_PARTITIONS, 0, 3, kb_api_create_partitions, CHANGE},
    {KW_API_INCREMENTAL_ALTER_CONFIGS, 0, 1, kb_api_incremental_alter_configs, CHANGE},
    {KW_API_VOTE, 0, 2, kb_api_vote, CONTROLLER | EARLY},
    {KW_API_BEGIN_QUORUM_EPOCH, 0, 1, kb_api_begin_quorum_epoch, CONTROLLER | EARLY},
    {KW_API_END_QUORUM_EPOCH, 0, 1, kb_api_end_quorum_epoch, CONTROLLER | EARLY},
    {KW_API_OFFSET_DELETE, 0, 0, kb_api_offset_delete, GROUP},
    {KW_API_DESCRIBE_QUORUM, 0, 2, kb_api_describe_quorum, ASKED | EARLY},
    {KW_API_FETCH_SNAPSHOT, 0, 1, kb_api_fetch_snapshot, CONTROLLER | EARLY},
    {KW_API_DESCRIBE_CLUSTER, 0, 2, kb_api_describe_cluster, BOTH | EARLY},
    {KW_API_DESCRIBE_PRODUCERS, 0, 0, kb_api_describe_producers, BROKER},
    {KW_API_LIST_CONFIG_RESOURCES, 0, 1, kb_api_list_config_resources, BROKER},
    {KW_API_DESCRIBE_TOPIC_PARTITIONS, 0, 0, kb_api_describe_topic_partitions, BROKER},
    {KW_API_BROKER_REGISTRATION, 0, 4, kb_api_broker_registration, CONTROLLER | EARLY},
    {KW_API_BROKER_HEARTBEAT, 0, 2, kb_api_broker_heartbeat, CONTROLLER | EARLY},
    {KW_API_ALTER_PARTITION, 0, 3, kb_api_alter_partition, CONTROLLER | EARLY},
    {KW_API_ASSIGN_REPLICAS_TO_DIRS, 0, 0, kb_api_assign_replicas_to_dirs, CONTROLLER | EARLY},
    {KW_API_ALLOCATE_PRODUCER_IDS, 0, 0, kb_api_allocate_producer_ids, CONTROLLER | EARLY},
    {KW_API_DELETE_GROUPS, 0, 3, kb_api_delete_groups, GROUP},
    {KW_API_ELECT_LEADERS, 0, 2, kb_api_elect_leaders, CHANGE},
    {KW_API_ALTER_PARTITION_REASSIGNMENTS, 0, 1, kb_api_alter_partition_reassignments, CHANGE},
    {KW_API_LIST_PARTITION_REASSIGNMENTS, 0, 0, kb_api_list_partition_reassignments, ASKED},
    {KW_API_UNREGISTER_BROKER, 0, 0, kb_api_unregister_broker, CHANGE},
    {KW_API_LOOKUP_GUID, 0, 0, kb_api_lookup_guid, BROKER},
};
const size_t kb_api_table_count = KW_COUNTOF(kb_api_table);

const struct kb_api_entry *kb_api_entry(int16_t key) {
    for (size_t i = 0; i < kb_api_table_count; i++)
        if (kb_api_table[i].key == key) return &kb_api_table[i];
    return NULL;
}

static const struct kb_api_entry *entry_of(const struct kb_node *n, int16_t key) {
    const struct kb_api_entry *e = kb_api_entry(key);
    return e && kb_forward_is_served(n, e) ? e : NULL;
}

static void refuse_version(struct kb_request *rq, const struct kb_api_entry *e) {
    char why[160];
    if (e)
        snprintf(why, sizeof(why), "%s v%d is not served here (v%d to v%d are; ApiVersions tells)",
                 rq->head.api ? rq->head.api->name : "API", rq->head.version, e->min, e->max);
    else if (rq->head.api)
        snprintf(why, sizeof(why), "%s (API key %d) is not served here; ApiVersions tells what is", rq->head.api->name, rq->head.api_key);
    else
        snprintf(why, sizeof(why), "API key %d is not known here; ApiVersions tells what is served", rq->head.api_key);
    kb_request_close(rq, why);
}

static bool may_run(const struct kb_node *n, const struct kb_api_entry *e) {
    return n->state == KB_NODE_READY || ((e->traits & KB_API_EARLY) && kb_node_accepts(n));
}

static void run(struct kb_request *rq, const struct kb_api_entry *e) {
    rq->later = (e->traits & KB_API_OF_GROUP) != 0;
    if (kb_forward_is_due(rq))
        kb_forward_request(rq);
    else
        e->fn(rq);
}

/* The request is whole, its turn has come. */
void kb_dispatch_start(struct kb_request *rq) {
    const struct kb_api_entry *e = entry_of(rq->node, rq->head.api_key);
    if (rq->head_err != KW_OK && rq->head_err != KW_EVERSION) {
        kb_request_close(rq, "the request's header does not follow its format");
        return;
    }
    bool version_ok = rq->head_err == KW_OK && e && rq->head.version >= e->min && rq->head.version <= e->max;
    if (!version_ok && rq->head.api_key != KW_API_API_VERSIONS) {
        refuse_version(rq, e);
        return;
    }
    if (!may_run(rq->node, e)) {
        kb_request_close(rq, rq->node->state == KB_NODE_LOADING ? "this broker is not ready yet" : "this broker is stopping");
        return;
    }
    if (rq->node->faults && !rq->inner && kb_fault_before(rq)) return;
    run(rq, e);
}

void kb_dispatch_run(struct kb_request *rq) {
    const struct kb_api_entry *e = entry_of(rq->node, rq->head.api_key);
    if (!may_run(rq->node, e)) { /* its log may be shut by now */
        kb_request_close(rq, "this broker is stopping");
        return;
    }
    run(rq, e);
}
