/* config_table.h - the client's properties, one row each. Included by config.c alone.
 *
 * ROW(name, aliases, scope, kind, field, scale, min, max, default, choices, text). A value times `scale` is what the settings hold (ms -> us,
 * kB -> bytes). TWIN rows are other names of the same field in another unit: they have no default of their own, and the last one set counts.
 */
#ifndef KC_CONFIG_TABLE_H
#define KC_CONFIG_TABLE_H

#include "config.h"
#include "wire/compress.h"

#include <limits.h>

/* clang-format off */
#define MS 1000
#define FOREVER_TOO (-1)
#define KC_PROPERTIES(ROW, TWIN) \
  ROW("bootstrap.servers", "metadata.broker.list,broker.list", "client", K_ADDRESSES, bootstrap, 1, 0, 0, "", "", \
      "Addresses to begin with: host:port,…; IPv6 as [::1]:9092. The others are learned from them.") \
  ROW("client.id", "", "client", K_STRING, client_id, 1, 0, 0, "libkclient", "", \
      "Name under which brokers log, count and limit this client.") \
  ROW("client.rack", "", "client", K_STRING, rack, 1, 0, 0, "", "", \
      "Where this client is; consumers read from a replica in the same rack where brokers allow it (KIP-392).") \
  ROW("client.thread", "", "client", K_ENUM, own_thread, 1, 0, 0, "own", "own=1,none=0", \
      "own: one I/O thread inside. none: the application drives the client through kc_client_run_once.") \
  ROW("socket.connection.setup.timeout.ms", "", "client", K_INT, connect_timeout_us, MS, 1, 3600000, "10000", "", \
      "How long a connection, and a name lookup, may take before the name's next address is tried. Where any broker will do, the next one is tried " \
      "beside it after 250 ms already.") \
  ROW("connections.max.idle.ms", "", "client", K_FOREVER0, connections_idle_us, MS, FOREVER_TOO, INT_MAX, "540000", "", \
      "Connections unused so long are closed. 0 or -1: never.") \
  ROW("reconnect.backoff.ms", "reconnect.backoff.jitter.ms", "client", K_INT, reconnect_min_us, MS, 0, 3600000, "100", "", \
      "Wait after the first failure to connect to a broker; doubles up to reconnect.backoff.max.ms, +-20 %.") \
  ROW("reconnect.backoff.max.ms", "", "client", K_INT, reconnect_max_us, MS, 0, 3600000, "10000", "", \
      "Longest wait between two attempts to connect to one broker.") \
  ROW("request.timeout.ms", "socket.timeout.ms", "client", K_INT, request_timeout_us, MS, 1, 86400000, "30000", "", \
      "How long an answer may take. Then the connection is given up. For acks=-1 also how long the broker may wait for replicas.") \
  ROW("metadata.max.age.ms", "topic.metadata.refresh.interval.ms", "client", K_FOREVER, metadata_age_max_us, MS, FOREVER_TOO, INT_MAX, "300000", "", \
      "Metadata of topics in use is asked for again after this time. -1: only when something changed.") \
  ROW("metadata.max.idle.ms", "", "client", K_INT, metadata_idle_us, MS, 5000, INT_MAX, "300000", "", \
      "Topics unused so long are no longer asked for.") \
  ROW("retry.backoff.ms", "", "client", K_INT, retry_backoff_us, MS, 1, 300000, "100", "", \
      "Wait before a failed request is tried again; doubles up to retry.backoff.max.ms, +-20 %.") \
  ROW("retry.backoff.max.ms", "", "client", K_INT, retry_backoff_max_us, MS, 1, 300000, "1000", "", \
      "Longest wait before a failed request is tried again.") \
  ROW("default.api.timeout.ms", "", "client", K_INT, api_timeout_us, MS, 1, INT_MAX, "60000", "", \
      "Limit of administrative calls and lookups that are given none.") \
  ROW("receive.message.max.bytes", "", "client", K_INT, receive_bytes_max, 1, 1000, INT_MAX, "100000000", "", \
      "A larger answer closes the connection before anything is allocated. At least fetch.max.bytes + 512.") \
  ROW("send.buffer.bytes", "socket.send.buffer.bytes", "client", K_INT, send_buffer_bytes, 1, -1, 100000000, "0", "", \
      "The socket's send buffer. 0 or -1: the system's choice.") \
  ROW("receive.buffer.bytes", "socket.receive.buffer.bytes", "client", K_INT, receive_buffer_bytes, 1, -1, 100000000, "0", "", \
      "The socket's receive buffer. 0 or -1: the system's choice.") \
  ROW("metadata.recovery.strategy", "", "client", K_ENUM, rebootstrap, 1, 0, 0, "rebootstrap", "rebootstrap=1,none=0", \
      "rebootstrap: start again from bootstrap.servers when no known broker can be reached, or has given metadata for a while (KIP-899).") \
  ROW("metadata.recovery.rebootstrap.trigger.ms", "", "client", K_INT, rebootstrap_trigger_us, MS, 0, INT_MAX, "300000", "", \
      "How long metadata may be missing before the client starts again from bootstrap.servers.") \
  ROW("memory.max.bytes", "memory.max", "client", K_INT, memory_max, 1, 1048576, INT64_MAX, "268435456", "", \
      "Budget for queued, in-flight and fetched data together; a quarter of it is kept for each side, that of fetching in equal parts for the consumers.") \
  ROW("log_level", "log.level", "client", K_INT, log_level, 1, 0, 7, "6", "", \
      "What kc_client_log gives: 3 errors, 4 and warnings, 6 and information, 7 and details.") \
  ROW("allow.auto.create.topics", "", "client", K_BOOL, allow_auto_create, 1, 0, 0, "true", "", \
      "Topics that are used and do not exist may be created, where the brokers allow it.") \
  ROW("broker.address.family", "", "client", K_ENUM, address_family, 1, 0, 0, "any", "any=0,v4=4,v6=6", \
      "Kind of addresses to connect to.") \
  ROW("opaque", "", "client", K_UINT, opaque, 1, 0, 0, "0", "", \
      "A number of the application's, given back by kc_client_ready for this role.") \
  ROW("profile", "", "producer", K_ENUM, profile, 1, 0, 0, "none", "none=0,article=1,reliable=2", \
      "Other defaults: article, those of the producers of Kafka 0.8 (queue of 10000 records and 5000 ms, batches of 200, acks 0, " \
      "3 retries, sync); reliable, acks=-1, sync.") \
  ROW("acks", "request.required.acks", "producer", K_ENUM, acks, 1, 0, 0, "-1", "-1=-1,all=-1,0=0,1=1", \
      "Who must have a record before it counts as sent: 0 nobody, 1 the leader, -1 (all) every replica in sync. Other than -1 " \
      "turns idempotence off.") \
  ROW("enable.idempotence", "", "producer", K_BOOL, idempotence, 1, 0, 0, "true", "", \
      "A retry never stores a record twice, and order holds. Needs acks=-1, retries > 0 and at most 5 requests in flight.") \
  ROW("producer.type", "", "producer", K_ENUM, sync, 1, 0, 0, "async", "sync=1,async=0", \
      "What the simple form of send does: sync waits for the outcome.") \
  ROW("enable.guid", "", "producer", K_BOOL, enable_guid, 1, 0, 0, "false", "", \
      "Gives every record without one a globally unique id (UUIDv7) in the header `guid`. A topic with message.guid.dedup=true stores an id once.") \
  ROW("delivery.report.only.error", "", "producer", K_NOT, report_all, 1, 0, 0, "false", "", \
      "Only failed records are reported.") \
  ROW("linger.ms", "queue.buffering.max.ms", "producer", K_DECIMAL, linger_us, MS, 0, 900000, "5", "", \
      "How long a batch may wait for more records. Fractions are allowed.") \
  ROW("delivery.timeout.ms", "message.timeout.ms", "producer", K_FOREVER0, delivery_timeout_us, MS, 0, INT_MAX, "120000", "", \
      "From send to outcome, retries included; then the record is reported as expired. 0: no limit.") \
  ROW("queue.enqueue.timeout.ms", "max.block.ms", "producer", K_FOREVER, enqueue_timeout_us, MS, FOREVER_TOO, INT_MAX, "-1", "", \
      "How long a simple send waits for room in the queue: -1 as long as it takes, 0 not at all.") \
  ROW("sticky.partitioning.linger.ms", "", "producer", K_DECIMAL, sticky_linger_us, MS, 0, 900000, "10", "", \
      "How long records without a key stay with one partition at least.") \
  ROW("queue.buffering.max.messages", "", "producer", K_INT, queue_records_max, 1, 1, INT_MAX, "100000", "", \
      "Records in the queue at most.") \
  ROW("queue.buffering.max.kbytes", "", "producer", K_INT, queue_bytes_max, 1024, 1, INT_MAX, "65536", "", \
      "Size of the queue at most, in kilobytes of 1024.") \
  TWIN("buffer.memory", "", "producer", K_INT, queue_bytes_max, 1, 1024, INT64_MAX, "", "", \
      "The same as queue.buffering.max.kbytes, in bytes.") \
  ROW("batch.num.messages", "", "producer", K_INT, batch_records_max, 1, 1, 1000000, "10000", "", \
      "Records in a batch at most.") \
  ROW("batch.size", "", "producer", K_INT, batch_bytes_max, 1, 1, INT_MAX, "1000000", "", \
      "Bytes in a batch at most, before compression; a larger record has a batch to itself.") \
  ROW("max.request.size", "message.max.bytes", "producer", K_INT, request_bytes_max, 1, 1000, 1000000000, "1048576", "", \
      "A record that makes a larger batch is refused (KC_TOO_LARGE).") \
  ROW("retries", "message.send.max.retries", "producer", K_INT, retries_max, 1, 0, INT_MAX, "2147483647", "", \
      "How often a batch is tried again within delivery.timeout.ms. 0 turns idempotence off.") \
  ROW("max.in.flight.requests.per.connection", "max.in.flight", "client", K_INT, producer_in_flight_max, 1, 1, 1000, "5", "", \
      "Requests that wait for an answer at most, a connection. More than 5 turns idempotence off.") \
  ROW("partitioner", "partitioner.class,partition.class", "producer", K_ENUM, partitioner, 1, 0, 0, "murmur2_random", KC_PARTITIONER_CHOICES, \
      "Which partition a record goes to: by its key's hash, or by itself (murmur2 as Java, consistent as librdkafka).") \
  ROW("compression.type", "compression.codec", "producer", K_ENUM, codec, 1, 0, 0, "none", "none=0,0=0,gzip=1,1=1,snappy=2,2=2,lz4=3,3=3,zstd=4,4=4", \
      "How batches are compressed.") \
  ROW("compression.level", "", "producer", K_LEVEL, level, 1, -200000, 22, "-1", "", \
      "The codec's level; -1: its own default.") \
  ROW("compression.gzip.level", "", "producer", K_LEVEL, level_gzip, 1, -1, 9, "-1", "", "Level for gzip.") \
  ROW("compression.lz4.level", "", "producer", K_LEVEL, level_lz4, 1, -1, 17, "-1", "", "Level for lz4.") \
  ROW("compression.zstd.level", "", "producer", K_LEVEL, level_zstd, 1, -131072, 22, "-1", "", "Level for zstd.") \
  ROW("partitioner.ignore.keys", "", "producer", K_BOOL, partitioner_ignore_keys, 1, 0, 0, "false", "", \
      "Records with a key are spread like those without.") \
  ROW("partitioner.adaptive.partitioning.enable", "", "producer", K_BOOL, partitioner_adaptive, 1, 0, 0, "false", "", \
      "Records without a key go to fast brokers more often (KIP-794).") \
  ROW("fetch.wait.max.ms", "fetch.max.wait.ms", "consumer", K_INT, fetch_wait_us, MS, 0, 300000, "500", "", \
      "How long a broker may wait for fetch.min.bytes.") \
  ROW("fetch.error.backoff.ms", "", "consumer", K_INT, fetch_backoff_us, MS, 0, 300000, "500", "", \
      "Wait before a partition is fetched again after an error.") \
  ROW("fetch.min.bytes", "", "consumer", K_INT, fetch_min_bytes, 1, 0, 100000000, "1", "", \
      "A broker answers once it has so much.") \
  ROW("fetch.max.bytes", "", "consumer", K_INT, fetch_max_bytes, 1, 1, 2147483135, "52428800", "", \
      "Size of an answer to a fetch; at least one batch always comes.") \
  ROW("max.partition.fetch.bytes", "fetch.message.max.bytes", "consumer", K_INT, fetch_partition_bytes_max, 1, 1, 1000000000, "1048576", "", \
      "Share of one partition in an answer to a fetch.") \
  ROW("max.poll.records", "", "consumer", K_INT, poll_records_max, 1, 1, INT_MAX, "10000", "", \
      "Records in an event at most.") \
  ROW("queued.max.messages.kbytes", "", "consumer", K_INT, prefetch_bytes_max, 1024, 1, 2097151, "65536", "", \
      "Fetched and undelivered data at most, in kilobytes of 1024.") \
  ROW("auto.offset.reset", "", "consumer", K_ENUM, offset_reset, 1, 0, 0, "latest", \
      "latest=2,largest=2,end=2,earliest=1,smallest=1,beginning=1,none=0,error=0", \
      "Where to begin without an offset, or with one that is gone.") \
  ROW("check.crcs", "", "consumer", K_BOOL, check_crcs, 1, 0, 0, "true", "", \
      "The checksum of every fetched batch is verified.") \
  ROW("enable.partition.eof", "", "consumer", K_BOOL, partition_eof, 1, 0, 0, "false", "", \
      "An event says when the end of a partition is reached.") \
  ROW("group.id", "", "consumer", K_STRING, group_id, 1, 0, 0, "", "", \
      "The group whose member a subscription makes this consumer, and in which offsets are committed.") \
  ROW("group.instance.id", "", "consumer", K_STRING, group_instance_id, 1, 0, 0, "", "", \
      "This member's own name in the group: restarted within session.timeout.ms it gets its partitions back without a rebalance (KIP-345).") \
  ROW("partition.assignment.strategy", "", "consumer", K_STRING, assignors, 1, 0, 0, "range,cooperative-sticky", "", \
      "How the group shares partitions out, the preferred way first: range, roundrobin, sticky, cooperative-sticky, or the names of Java's " \
      "classes. Partitions stay while the group rebalances where cooperative-sticky is the only one (KIP-429).") \
  ROW("session.timeout.ms", "", "consumer", K_INT, session_timeout_us, MS, 1, 3600000, "45000", "", \
      "A member that is not heard of for so long is put out of the group. Brokers bound it by group.min and group.max.session.timeout.ms.") \
  ROW("heartbeat.interval.ms", "", "consumer", K_INT, heartbeat_us, MS, 1, 3600000, "3000", "", \
      "How often a member tells the group that it is there; a rebalance is noticed so soon. At most a third of session.timeout.ms, if not given.") \
  ROW("max.poll.interval.ms", "", "consumer", K_INT, poll_interval_max_us, MS, 1, INT_MAX, "300000", "", \
      "A consumer that is not polled for so long leaves the group until it is. Also how long a rebalance waits for this member.") \
  ROW("exclude.internal.topics", "", "consumer", K_BOOL, exclude_internal, 1, 0, 0, "true", "", \
      "Subscriptions by pattern leave out the brokers' own topics, such as __consumer_offsets.") \
  ROW("topic.blacklist", "", "consumer", K_STRING, topic_blacklist, 1, 0, 0, "", "", \
      "Subscriptions by pattern leave out topics that match one of these regular expressions (comma-separated).") \
  ROW("added.partitions.reset", "", "consumer", K_ENUM, added_reset, 1, 0, 0, "earliest", "earliest=1,policy=0", \
      "Where a group's member begins with a partition that was added to a topic after it joined: at its beginning, so that nothing of it is " \
      "missed, or as auto.offset.reset says.") \
  ROW("isolation.level", "", "consumer", K_ENUM, read_committed, 1, 0, 0, "read_uncommitted", "read_uncommitted=0,read_committed=1", \
      "read_committed: records of open and aborted transactions are not delivered.") \
  ROW("enable.auto.commit", "auto.commit.enable", "consumer", K_BOOL, auto_commit, 1, 0, 0, "true", "", \
      "What is processed is committed every auto.commit.interval.ms, before partitions are given up, and at close. Needs group.id.") \
  ROW("auto.commit.interval.ms", "", "consumer", K_INT, auto_commit_interval_us, MS, 1, INT_MAX, "5000", "", \
      "How often what is processed is committed by itself.") \
  ROW("enable.auto.offset.store", "", "consumer", K_BOOL, auto_offset_store, 1, 0, 0, "true", "", \
      "true: what counts as processed is as the consumer was created. false: only what the application says; a consumer that is created to have " \
      "polling say so is refused.")

/* As produce/partitioner.h counts them; class names of the Java and Scala producers too. */
#define KC_PARTITIONER_CHOICES \
  "murmur2_random=0,murmur2=1,consistent_random=2,consistent=3,fnv1a_random=4,fnv1a=5,random=6,sticky=7,round_robin=8," \
  "default=0,uniform=7,roundrobin=8,kafka.producer.DefaultPartitioner=0,org.apache.kafka.clients.producer.internals.DefaultPartitioner=0," \
  "org.apache.kafka.clients.producer.UniformStickyPartitioner=7,org.apache.kafka.clients.producer.RoundRobinPartitioner=8"

/* Known to Kafka's clients or librdkafka, and without effect here: accepted with a warning. */
static const char *const without_effect[] = {
    "api.version.request", "api.version.request.timeout.ms", "api.version.fallback.ms", "broker.version.fallback",
    "background_event_cb", "bootstrap.resolve.timeout.ms", "broker.address.ttl", "buffer.memory.allocation.strategy", "builtin.features", "client.dns.lookup",
    "closesocket_cb", "compressed.topics", "config.providers", "connect_cb", "consume.callback.max.messages", "consume_cb",
    "coordinator.query.interval.ms", "debug",
    "default_topic_conf", "dr_cb", "dr_msg_cb", "enable.gapless.guarantee", "enable.metrics.push",
    "enable.random.seed", "enabled_events", "error_cb", "fetch.queue.backoff.ms",
    "group.protocol",
    "group.protocol.type", "group.remote.assignor", "interceptor.classes", "interceptors", "internal.termination.signal",
    "key.deserializer",
    "key.serializer", "key.serializer.class", "log.connection.close", "log.queue", "log.thread.name", "log_cb",
    "message.copy.max.bytes",
    "metadata.cluster.check.enable", "metric.reporters", "metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms", "msg_order_cmp",
    "offset.store.method", "offset.store.path", "offset.store.sync.interval.ms", "offset_commit_cb", "open_cb",
    "partitioner.availability.timeout.ms", "partitioner.rack.aware", "partitioner_cb", "plugin.library.paths", "produce.offset.report",
    "queue.buffering.backpressure.threshold", "queued.min.messages", "queuing.strategy", "rebalance_cb", "resolve_cb", "security.providers",
    "serializer.class",
    "share.acknowledgement.mode", "share.acquire.mode", "socket.blocking.max.ms", "socket.connection.setup.timeout.max.ms",
    "socket.keepalive.enable", "socket.max.fails", "socket.nagle.disable", "socket_cb", "statistics.interval.ms", "stats_cb", "throttle_cb",
    "topic.metadata.propagation.max.ms", "topic.metadata.refresh.fast.cnt", "topic.metadata.refresh.fast.interval.ms", "topic.metadata.refresh.sparse",
    "value.deserializer", "value.serializer",
};
/* Known, and refused because ignoring them would break what they promise. A name ending in '.' stands for all that begin with it. */
static const struct refused {
    const char *name, *why;
} refused[] = {
    {"sasl.", "SASL is not in this build yet"},
    {"ssl.", "TLS is not in this build yet"},
    {"https.", "TLS is not in this build yet"},
    {"ssl_", "TLS is not in this build yet"},
    {"enable.ssl.certificate.verification", "TLS is not in this build yet"},
    {"enable.sasl.oauthbearer.unsecure.jwt", "SASL is not in this build yet"},
    {"oauthbearer_token_refresh_cb", "SASL is not in this build yet"},
    {"transactional.id", "transactions are not in this build yet"},
    {"transaction.timeout.ms", "transactions are not in this build yet"},
    {"transaction.two.phase.commit.enable", "transactions are not in this build yet"},
    {"bootstrap.controllers", "this client talks to brokers only: use bootstrap.servers"},
};
/* clang-format on */

#endif
