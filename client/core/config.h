/* config.h - the client's one config table: name, aliases (Kafka's, librdkafka's, the old producers'), type, range, default, text; and the parsed values.
 *
 * Validation, documentation and `kc config explain` come from the table. Values are parsed once, into a plain struct that the cores read.
 */
#ifndef KC_CORE_CONFIG_H
#define KC_CORE_CONFIG_H

#include <kclient/kclient.h>
#include "base/base.h"
#include "outcome.h"

/* Durations in microseconds, sizes in bytes. KC_FOREVER where the property allows "no limit". */
struct kc_settings {
    /* client */
    char *bootstrap, *client_id, *rack;
    bool own_thread;
    int64_t connect_timeout_us, connections_idle_us, reconnect_min_us, reconnect_max_us, request_timeout_us;
    int64_t metadata_age_max_us, metadata_idle_us, retry_backoff_us, retry_backoff_max_us, api_timeout_us;
    int32_t receive_bytes_max, send_buffer_bytes, receive_buffer_bytes;
    bool rebootstrap; /* metadata.recovery.strategy=rebootstrap (KIP-899) */
    int64_t rebootstrap_trigger_us;
    int64_t memory_max;
    int32_t in_flight_max; /* max.in.flight.requests.per.connection, other channels */
    int32_t log_level;
    bool allow_auto_create;
    int32_t address_family; /* 0 any, 4, 6 */
    uint64_t opaque;
    int32_t profile;
    /* producer */
    int16_t acks;
    bool idempotence, sync, enable_guid, report_all;
    int64_t linger_us, delivery_timeout_us, enqueue_timeout_us, sticky_linger_us;
    int64_t queue_records_max, queue_bytes_max;
    int32_t batch_records_max, batch_bytes_max, request_bytes_max, retries_max, producer_in_flight_max;
    int32_t partitioner; /* enum kc_partitioner of produce/partitioner.h */
    int32_t codec, level; /* level KW_LEVEL_DEFAULT: the codec's own */
    int32_t level_gzip, level_lz4, level_zstd; /* given for one codec; level has the result */
    int64_t request_timeout_produce_us;
    bool partitioner_ignore_keys, partitioner_adaptive;
    /* consumer */
    int64_t fetch_wait_us, fetch_backoff_us;
    int32_t fetch_min_bytes, fetch_max_bytes, fetch_partition_bytes_max, poll_records_max;
    int64_t prefetch_bytes_max;
    int32_t offset_reset; /* 0 none/error, 1 earliest, 2 latest */
    bool check_crcs, partition_eof, read_committed;
    /* groups */
    char *group_id, *group_instance_id, *assignors, *topic_blacklist; /* "": not given */
    int64_t session_timeout_us, heartbeat_us, poll_interval_max_us;
    bool exclude_internal, auto_commit, auto_offset_store;
    int64_t auto_commit_interval_us;
    bool added_reset; /* partitions added to a topic later are begun at their beginning */
};

/* The handle's struct. `set` marks what was given explicitly (an explicit acks other than -1 turns idempotence off; both explicit is an error). */
struct kc_config;
/* Parses with the client's configuration below the role's own (role may be NULL). KC_CONFIG with a text. */
kc_err kc_settings_new(const struct kc_config *client, const struct kc_config *role, struct kc_settings **out, kc_error **error);
void kc_settings_free(struct kc_settings *s);
/* bootstrap.servers, address by address: false at the end. *ok false: not an address. */
bool kc_bootstrap_next(const char **list, const char **host, size_t *host_len, uint16_t *port, bool *ok);
/* What was set and has no effect here, as sentences to log: NULL past the last. */
const char *kc_config_warning(const struct kc_config *c, size_t index);

#endif
