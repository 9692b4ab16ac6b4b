/* api.h - every API that the broker serves, one function each, in the file of its name. Called by dispatch alone. */
#ifndef KB_API_H
#define KB_API_H

#include "../request.h"

kb_api_fn kb_api_vote, kb_api_begin_quorum_epoch, kb_api_end_quorum_epoch, kb_api_describe_quorum, kb_api_fetch_snapshot;
kb_api_fn kb_api_produce, kb_api_fetch, kb_api_list_offsets, kb_api_metadata, kb_api_find_coordinator, kb_api_api_versions,
    kb_api_create_topics, kb_api_delete_topics, kb_api_delete_records, kb_api_init_producer_id, kb_api_offset_for_leader_epoch,
    kb_api_describe_configs, kb_api_alter_configs, kb_api_describe_log_dirs, kb_api_create_partitions, kb_api_incremental_alter_configs,
    kb_api_describe_cluster, kb_api_describe_producers, kb_api_list_config_resources, kb_api_describe_topic_partitions,
    kb_api_broker_registration, kb_api_broker_heartbeat, kb_api_unregister_broker,
    kb_api_alter_partition, kb_api_assign_replicas_to_dirs, kb_api_allocate_producer_ids, kb_api_elect_leaders, kb_api_alter_partition_reassignments,
    kb_api_list_partition_reassignments, kb_api_lookup_guid;
kb_api_fn kb_api_join_group, kb_api_sync_group, kb_api_heartbeat, kb_api_leave_group, kb_api_offset_commit, kb_api_offset_fetch, kb_api_offset_delete,
    kb_api_describe_groups, kb_api_list_groups, kb_api_delete_groups;

#endif
