/* config_table.c - the table behind config.h: what a broker and a topic can be told, in Kafka's names, with range, default and text.
 *
 * Defaults are Kafka 4.4's unless the text says otherwise. Names that have no effect here are in config_ignored.h. KIP-226, KIP-569.
 */
#include "config.h"

#define NUM(name_, type_, scope_, def_, min_, max_, syn_, doc_)                                                                        \
    {.name = name_, .type = type_, .scope = scope_, .def = def_, .min = min_, .max = max_, .broker_synonym = syn_, .doc = doc_},
#define TXT(name_, type_, scope_, def_, values_, syn_, doc_)                                                                           \
    {.name = name_, .type = type_, .scope = scope_, .def = def_, .values = values_, .broker_synonym = syn_, .doc = doc_},
#define BINT(n, def, min, max, doc) NUM(n, KB_C_INT, KB_C_BROKER, def, min, max, NULL, doc)
#define BLONG(n, def, min, max, doc) NUM(n, KB_C_LONG, KB_C_BROKER, def, min, max, NULL, doc)
#define BDINT(n, def, min, max, doc) NUM(n, KB_C_INT, KB_C_BROKER | KB_C_DYNAMIC, def, min, max, NULL, doc)
#define BDLONG(n, def, min, max, doc) NUM(n, KB_C_LONG, KB_C_BROKER | KB_C_DYNAMIC, def, min, max, NULL, doc)
#define BSHORT(n, def, min, max, doc) NUM(n, KB_C_SHORT, KB_C_BROKER, def, min, max, NULL, doc)
#define BBOOL(n, def, doc) TXT(n, KB_C_BOOL, KB_C_BROKER, def, NULL, NULL, doc)
#define BDBOOL(n, def, doc) TXT(n, KB_C_BOOL, KB_C_BROKER | KB_C_DYNAMIC, def, NULL, NULL, doc)
#define BSTR(n, def, doc) TXT(n, KB_C_STRING, KB_C_BROKER, def, NULL, NULL, doc)
#define BLIST(n, def, values, doc) TXT(n, KB_C_LIST, KB_C_BROKER, def, values, NULL, doc)
#define BDLIST(n, def, values, doc) TXT(n, KB_C_LIST, KB_C_BROKER | KB_C_DYNAMIC, def, values, NULL, doc)
#define BDENUM(n, def, values, doc) TXT(n, KB_C_ENUM, KB_C_BROKER | KB_C_DYNAMIC, def, values, NULL, doc)
#define TINT(n, def, min, max, syn, doc) NUM(n, KB_C_INT, KB_C_TOPIC, def, min, max, syn, doc)
#define TLONG(n, def, min, max, syn, doc) NUM(n, KB_C_LONG, KB_C_TOPIC, def, min, max, syn, doc)
#define TBOOL(n, def, syn, doc) TXT(n, KB_C_BOOL, KB_C_TOPIC, def, NULL, syn, doc)
#define TLIST(n, def, values, syn, doc) TXT(n, KB_C_LIST, KB_C_TOPIC, def, values, syn, doc)
#define TENUM(n, def, values, syn, doc) TXT(n, KB_C_ENUM, KB_C_TOPIC, def, values, syn, doc)
#define IGNORED(name_, type_, scope_)                                                                                                  \
    {.name = name_, .type = type_, .scope = scope_, .min = INT64_MIN, .max = INT64_MAX,                                                \
     .doc = "Known to Apache Kafka, without effect here."},
#define TIGNORED(name_, type_, def_, syn_)                                                                                             \
    {.name = name_, .type = type_, .scope = KB_C_TOPIC | KB_C_IGNORED, .def = def_, .min = INT64_MIN, .max = INT64_MAX,                \
     .broker_synonym = syn_, .doc = "Known to Apache Kafka, without effect here."},

#define BDRATIO(n, def, doc) NUM(n, KB_C_DOUBLE, KB_C_BROKER | KB_C_DYNAMIC, def, 0, 1, NULL, doc)
#define TRATIO(n, def, syn, doc) NUM(n, KB_C_DOUBLE, KB_C_TOPIC, def, 0, 1, syn, doc)
#define I32 INT32_MAX
#define I64 INT64_MAX
#define DAY_MS "86400000"
#define WEEK_MS "604800000"
#define NEVER_MS "9223372036854775807"
#define CODECS "uncompressed,zstd,lz4,snappy,gzip,producer"

const struct kb_config_def kb_config_defs[] = {
    /* Who the node is, and where */
    BINT("node.id", "0", 0, I32, "The node's number in its cluster.")
    BINT("broker.id", "-1", -1, I32, "Old name of node.id; when both are given they must agree.")
    BLIST("process.roles", "broker,controller", "broker,controller", "What this process is. One node is both.")
    BSTR("broker.rack", NULL, "Where the node stands; clients see it in the metadata.")
    BLIST("listeners", "PLAINTEXT://127.0.0.1:9092", NULL, "NAME://HOST:PORT to listen on; an empty host is every address, port 0 any free port.")
    BLIST("advertised.listeners", NULL, NULL, "The addresses that clients are told to use. Not set: the one that the client connected to.")
    BLIST("listener.security.protocol.map", "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT", NULL,
          "NAME:PROTOCOL for listeners of other names than a protocol's.")
    BLIST("controller.listener.names", "CONTROLLER", NULL,
          "Listeners of the metadata quorum: not told to clients. A node that is a broker too needs none: its first listener serves both.")
    BLIST("controller.quorum.voters", "", NULL, "ID@HOST:PORT of the metadata quorum's members. Empty: this node alone.")
    BSTR("inter.broker.listener.name", NULL, "The listener at which brokers reach each other. Not set: each broker's first.")
    BSTR("admin.listener", NULL, "HOST:PORT of the admin port: fault rules over HTTP. Not set: only DIR/.admin.sock. Not in Apache Kafka.")
    BLIST("log.dirs", NULL, NULL, "The data folder. Not set: log.dir.")
    BLIST("log.dir", "kbroker-data", NULL, "The data folder when log.dirs is not set.")
    /* Connections and requests */
    BINT("socket.send.buffer.bytes", "102400", -1, I32, "SO_SNDBUF of client connections; -1 leaves it to the system.")
    BINT("socket.receive.buffer.bytes", "102400", -1, I32, "SO_RCVBUF of client connections; -1 leaves it to the system.")
    BINT("socket.request.max.bytes", "104857600", 1, I32, "The largest request; a larger one closes its connection.")
    BINT("socket.listen.backlog.size", "50", 1, I32, "Connections that may wait to be accepted.")
    BDINT("max.connections", "2147483647", 0, I32, "Connections at a time.")
    BDINT("max.connections.per.ip", "2147483647", 0, I32, "Connections at a time from one address.")
    BLONG("connections.max.idle.ms", "600000", -1, I64, "A connection that is silent for so long is closed; -1 never.")
    BLONG("queued.max.request.bytes", "-1", -1, I64, "Bytes of requests in memory before reading stops; -1 is a bound of the node's own.")
    /* Topics */
    BINT("num.partitions", "1", 1, I32, "Partitions of a topic that is created without a number.")
    BINT("default.replication.factor", "1", 1, INT16_MAX, "Replicas of a topic that is created without a number.")
    BBOOL("auto.create.topics.enable", "true", "A topic is created when a client first asks for it.")
    BBOOL("delete.topic.enable", "true", "Topics may be deleted.")
    BDBOOL("unclean.leader.election.enable", "false", "A replica that is not in sync may lead, with loss, when no other is left.")
    BBOOL("last.known.leader.enable", "true",
          "After the machine went down, the last replica leads though records that were acknowledged and not synced may be lost. "
          "False: only with flush.on.ack. Not in Apache Kafka.")
    BDINT("min.insync.replicas", "1", 1, I32, "With acks=all, replicas that must be in sync for a write.")
    BSHORT("offsets.topic.replication.factor", "3", 1, INT16_MAX, "Replicas of __consumer_offsets; never more than there are brokers.")
    BINT("offsets.topic.num.partitions", "50", 1, I32, "Partitions of __consumer_offsets.")
    BINT("group.initial.rebalance.delay.ms", "0", 0, I32, "How long a new group waits for more members. Apache Kafka's default is 3000.")
    BINT("group.min.session.timeout.ms", "6000", 1, I32, "The shortest session that a member may ask for.")
    BINT("group.max.session.timeout.ms", "1800000", 1, I32, "The longest.")
    BINT("group.max.size", "2147483647", 1, I32, "Members of a group.")
    BINT("offset.metadata.max.bytes", "4096", 0, I32, "The most that a commit may say about an offset.")
    BINT("offsets.commit.timeout.ms", "5000", 1, I32, "How long a commit waits for the replicas.")
    BINT("offsets.retention.minutes", "10080", 1, I32, "How long the offsets of a group without members are kept.")
    BLONG("offsets.retention.check.interval.ms", "600000", 1, I64, "How often that is looked at.")
    BINT("offsets.topic.segment.bytes", "104857600", 1, I32, "Size of a segment of __consumer_offsets.")
    /* Fetch and produce */
    BINT("fetch.max.bytes", "57671680", 1024, I32, "The most that one fetch answers.")
    BINT("max.incremental.fetch.session.cache.slots", "1000", 0, I32, "Fetch sessions at a time (KIP-227).")
    BDINT("message.max.bytes", "1048588", 0, I32, "The largest record batch.")
    BDINT("max.decompressed.message.bytes", "2147483639", 1, 2147483639, "The most that the records of a batch may decompress to.")
    BDENUM("compression.type", "producer", CODECS, "The codec of stored batches; producer keeps what the producer chose.")
    BDINT("compression.gzip.level", "-1", -1, 9, "Level where gzip is the topic's codec.")
    BDINT("compression.lz4.level", "9", 1, 17, "Level where lz4 is the topic's codec.")
    BDINT("compression.zstd.level", "3", -131072, 22, "Level where zstd is the topic's codec.")
    BDENUM("log.message.timestamp.type", "CreateTime", "CreateTime,LogAppendTime", "Who dates records: the producer, or the broker at append.")
    BDLONG("log.message.timestamp.before.max.ms", NEVER_MS, 0, I64, "How far a record's timestamp may lie before the broker's time.")
    BDLONG("log.message.timestamp.after.max.ms", "3600000", 0, I64, "How far a record's timestamp may lie after the broker's time.")
    BDBOOL("log.message.guid.dedup", "false",
           "Records whose header guid (16 bytes) was stored in the partition before, within the window, are not stored again. Not in Apache Kafka.")
    BDLONG("log.message.guid.window.ms", "3600000", 1, I64,
           "How long a GUID is known at least, from when its record was appended; at most the logs' retention. Not in Apache Kafka.")
    BLONG("guid.index.memory.bytes", "67108864", 1, I64,
          "Memory for the GUIDs that are not in files yet, of all partitions; over it the largest part is written. Not in Apache Kafka.")
    BDINT("producer.id.expiration.ms", DAY_MS, 1, I32, "Idempotent producers that are silent for so long are forgotten.")
    BINT("producer.id.expiration.check.interval.ms", "600000", 1, I32, "How often that is looked at.")
    /* Logs */
    BDINT("log.segment.bytes", "1073741824", 14, I32, "Size of a segment. Apache Kafka's least value is 1048576.")
    BDLONG("log.roll.ms", NULL, 1, I64, "Age at which a segment is closed. Not set: log.roll.hours.")
    BINT("log.roll.hours", "168", 1, I32, "Age at which a segment is closed.")
    BDINT("log.index.interval.bytes", "4096", 0, I32, "Bytes between two entries of the offset index.")
    BDINT("log.index.size.max.bytes", "10485760", 4, I32, "The largest index; a segment rolls when its index is full.")
    BDLONG("log.retention.bytes", "-1", INT64_MIN, I64, "Size of a partition above which old segments go; -1 none.")
    BDLONG("log.retention.ms", NULL, -1, I64, "Age at which a segment goes; -1 never. Not set: log.retention.minutes.")
    BINT("log.retention.minutes", NULL, -1, I32, "Age at which a segment goes. Not set: log.retention.hours.")
    BINT("log.retention.hours", "168", -1, I32, "Age at which a segment goes.")
    BLONG("log.retention.check.interval.ms", "300000", 1, I64, "How often retention looks at the logs.")
    BDLONG("log.segment.delete.delay.ms", "60000", 0, I64, "How long a deleted topic's folder stays. Removed segments go at once; who reads one reads on.")
    BDLIST("log.cleanup.policy", "delete", "delete,compact", "What happens to old records.")
    BBOOL("log.cleaner.enable", "true", "Logs with cleanup.policy=compact are compacted.")
    BDLONG("log.cleaner.backoff.ms", "15000", 0, I64, "How long until the logs are looked at again when none was dirty enough.")
    BDLONG("log.cleaner.dedupe.buffer.size", "134217728", 0, I64, "Memory for the keys of one pass: 24 bytes a key, at a load of 0.9.")
    BDLONG("log.cleaner.delete.retention.ms", DAY_MS, 0, I64, "How long compaction keeps a tombstone from when it first met it.")
    BDRATIO("log.cleaner.min.cleanable.ratio", "0.5", "The part of a log that must not have been compacted yet for it to be time.")
    BDLONG("log.cleaner.min.compaction.lag.ms", "0", 0, I64, "Records that are younger are not compacted.")
    BDLONG("log.cleaner.max.compaction.lag.ms", NEVER_MS, 1, I64, "Records that are older are compacted, however small their part is.")
    BDLONG("log.flush.interval.messages", NEVER_MS, 1, I64, "Records after which a log is synced.")
    BDLONG("log.flush.interval.ms", NULL, 0, I64, "Time after which a log is synced. Not set: log.flush.scheduler.interval.ms.")
    BLONG("log.flush.scheduler.interval.ms", NEVER_MS, 0, I64, "Time after which a log is synced when log.flush.interval.ms is not set.")
    BINT("log.flush.offset.checkpoint.interval.ms", "60000", 0, I32, "How often recovery points are stored.")
    BINT("log.flush.start.offset.checkpoint.interval.ms", "60000", 0, I32, "How often log starts are stored.")
    BLONG("replica.high.watermark.checkpoint.interval.ms", "5000", 1, I64, "How often high watermarks are stored.")
    BDBOOL("flush.on.ack", "false", "Records are synced to the disk before they are acknowledged. Not in Apache Kafka.")
    /* Replication */
    BLONG("replica.lag.time.max.ms", "10000", 1, I64, "A follower that has not caught up for so long leaves the in-sync replicas.")
    BINT("replica.fetch.max.bytes", "1048576", 0, I32, "The most that a follower asks for of one partition at a time.")
    BINT("replica.fetch.response.max.bytes", "10485760", 0, I32, "The most that a follower asks for at a time.")
    BINT("replica.fetch.min.bytes", "1", 0, I32, "The least that a leader answers a follower with before replica.fetch.wait.max.ms is over.")
    BINT("replica.fetch.wait.max.ms", "500", 0, I32, "How long a leader lets a follower wait for more.")
    BINT("replica.fetch.backoff.ms", "1000", 0, I32, "How long a follower leaves a partition alone that could not be fetched.")
    BINT("replica.socket.timeout.ms", "30000", 1, I32, "How long a follower waits for an answer.")
    TXT("replica.selector.class", KB_C_STRING, KB_C_BROKER, NULL, NULL, NULL,
        "Which replica a consumer is sent to (KIP-392): org.apache.kafka.common.replica.RackAwareReplicaSelector, or the leader.")
    /* Cluster */
    BINT("broker.heartbeat.interval.ms", "500", 1, I32, "How often a broker tells the controller that it lives. Apache Kafka's default is 2000.")
    BINT("broker.session.timeout.ms", "3000", 1, I32, "A broker that is silent for so long is fenced. Apache Kafka's default is 9000.")
    BINT("controller.quorum.fetch.timeout.ms", "1000", 1, I32,
         "A voter that heard nothing of the leader for so long asks for an election. Apache Kafka's default is 2000.")
    BINT("controller.quorum.election.timeout.ms", "500", 1, I32, "How long a candidate waits for votes. Apache Kafka's default is 1000.")
    BINT("controller.quorum.election.backoff.max.ms", "1000", 0, I32, "The longest wait, drawn at random, before the next attempt.")
    BINT("controller.quorum.request.timeout.ms", "2000", 1, I32, "How long a request within the quorum may take.")
    BINT("controller.quorum.retry.backoff.ms", "20", 0, I32, "How long until a request within the quorum is sent again.")
    BINT("controller.quorum.fetch.max.bytes", "1048576", 0, I32, "The most that one fetch of metadata answers.")
    BINT("controller.quorum.fetch.snapshot.max.bytes", "1048576", 0, I32, "The most of a metadata snapshot that goes at a time.")
    BBOOL("controller.quorum.rejoin", "false",
          "A voter whose metadata folder is empty votes at once. Only for one that is new, or when what the folder held is known not to matter.")
    BBOOL("auto.leader.rebalance.enable", "true", "Leadership goes back to the preferred replicas by itself.")
    BLONG("leader.imbalance.check.interval.seconds", "300", 1, I64, "How often that is looked at.")
    BBOOL("controlled.shutdown.enable", "true", "A broker that stops hands its leaderships over first.")
    /* Metadata */
    BLONG("metadata.log.max.record.bytes.between.snapshots", "20971520", 1, I64, "Bytes of metadata records after which a snapshot is written.")
    BINT("metadata.log.segment.bytes", "1073741824", 1024, I32, "Size of a segment of the metadata log. Apache Kafka's least value is 8388608.")

    /* Topics: what is not set comes from the broker's synonym */
    TLIST("cleanup.policy", "delete", "delete,compact", "log.cleanup.policy", "What happens to old records.")
    TENUM("compression.type", "producer", CODECS, "compression.type", "The codec of stored batches; producer keeps what the producer chose.")
    TINT("compression.gzip.level", "-1", -1, 9, "compression.gzip.level", "Level where gzip is the topic's codec.")
    TINT("compression.lz4.level", "9", 1, 17, "compression.lz4.level", "Level where lz4 is the topic's codec.")
    TINT("compression.zstd.level", "3", -131072, 22, "compression.zstd.level", "Level where zstd is the topic's codec.")
    TLONG("delete.retention.ms", DAY_MS, 0, I64, "log.cleaner.delete.retention.ms", "How long compaction keeps a tombstone from when it first met it.")
    TLONG("file.delete.delay.ms", "60000", 0, I64, "log.segment.delete.delay.ms",
          "How long a deleted topic's folder stays. Removed segments go at once; who reads one reads on.")
    TLONG("flush.messages", NEVER_MS, 1, I64, "log.flush.interval.messages", "Records after which the log is synced.")
    TLONG("flush.ms", NEVER_MS, 0, I64, "log.flush.interval.ms,log.flush.scheduler.interval.ms", "Time after which the log is synced.")
    TBOOL("flush.on.ack", "false", "flush.on.ack", "Records are synced to the disk before they are acknowledged. Not in Apache Kafka.")
    TINT("index.interval.bytes", "4096", 0, I32, "log.index.interval.bytes", "Bytes between two entries of the offset index.")
    TINT("max.decompressed.message.bytes", "2147483639", 1, 2147483639, "max.decompressed.message.bytes",
          "The most that the records of a batch may decompress to.")
    TINT("max.message.bytes", "1048588", 0, I32, "message.max.bytes", "The largest record batch.")
    TLONG("max.compaction.lag.ms", NEVER_MS, 1, I64, "log.cleaner.max.compaction.lag.ms",
          "Records that are older are compacted, however small their part is; the active segment is closed at that age.")
    TBOOL("message.guid.dedup", "false", "log.message.guid.dedup",
          "Records whose header guid (16 bytes) was stored in the partition before, within message.guid.window.ms, are not stored again. Not in Apache Kafka.")
    TLONG("message.guid.window.ms", "3600000", 1, I64, "log.message.guid.window.ms",
          "How long a GUID is known at least, from when its record was appended; at most retention.ms. Not in Apache Kafka.")
    TLONG("message.timestamp.after.max.ms", "3600000", 0, I64, "log.message.timestamp.after.max.ms",
          "How far a record's timestamp may lie after the broker's time.")
    TLONG("message.timestamp.before.max.ms", NEVER_MS, 0, I64, "log.message.timestamp.before.max.ms",
          "How far a record's timestamp may lie before the broker's time.")
    TRATIO("min.cleanable.dirty.ratio", "0.5", "log.cleaner.min.cleanable.ratio",
           "The part of a log that must not have been compacted yet for it to be time.")
    TLONG("min.compaction.lag.ms", "0", 0, I64, "log.cleaner.min.compaction.lag.ms", "Records that are younger are not compacted.")
    TENUM("message.timestamp.type", "CreateTime", "CreateTime,LogAppendTime", "log.message.timestamp.type",
          "Who dates records: the producer, or the broker at append.")
    TINT("min.insync.replicas", "1", 1, I32, "min.insync.replicas", "With acks=all, replicas that must be in sync for a write.")
    TLONG("retention.bytes", "-1", INT64_MIN, I64, "log.retention.bytes", "Size of a partition above which old segments go; -1 none.")
    TLONG("retention.ms", WEEK_MS, -1, I64, "log.retention.ms,log.retention.minutes:60000,log.retention.hours:3600000",
          "Age at which a segment goes; -1 never.")
    TINT("segment.bytes", "1073741824", 14, I32, "log.segment.bytes", "Size of a segment. Apache Kafka's least value is 1048576.")
    TINT("segment.index.bytes", "10485760", 4, I32, "log.index.size.max.bytes", "The largest index; a segment rolls when its index is full.")
    TLONG("segment.ms", WEEK_MS, 1, I64, "log.roll.ms,log.roll.hours:3600000", "Age at which a segment is closed.")
    TBOOL("unclean.leader.election.enable", "false", "unclean.leader.election.enable",
          "A replica that is not in sync may lead, with loss, when no other is left.")
#include "config_ignored.h"
};
const size_t kb_config_def_count = KW_COUNTOF(kb_config_defs);
