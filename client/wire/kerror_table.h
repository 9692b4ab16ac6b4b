/* kerror_table.h - the protocol's error codes as of Apache Kafka 4.4, then ours. Included by kerror.h alone.
 *
 * Retriable and refresh follow the class of Kafka's exception for the code: retriable if it is a RetriableException, refresh if it is
 * an InvalidMetadataException. (Coordinator errors ask for a new FindCoordinator, not for metadata.) The texts are our own.
 * tests/interop/golden checks codes, names and both flags against the kafka-clients jar. Codes below -1 never go on the wire.
 */
#ifndef KW_KERROR_TABLE_H
#define KW_KERROR_TABLE_H

/* X(code, NAME, retriable, refresh_metadata, "text") */
/* clang-format off */
#define KW_KERRORS_KAFKA(X) \
    X(-1, UNKNOWN_SERVER_ERROR, false, false, "the broker failed in a way that it did not expect; its log says more") \
    X(0, NONE, false, false, "success") \
    X(1, OFFSET_OUT_OF_RANGE, false, false, "the offset lies outside the partition's log (below its start or past its end)") \
    X(2, CORRUPT_MESSAGE, true, false, "the record batch is damaged: wrong checksum, wrong sizes, or a null key on a compacted topic") \
    X(3, UNKNOWN_TOPIC_OR_PARTITION, true, true, "this broker does not know the topic, or does not hold the partition") \
    X(4, INVALID_FETCH_SIZE, false, false, "the fetch size is not valid") \
    X(5, LEADER_NOT_AVAILABLE, true, true, "the partition has no leader at the moment; an election is under way") \
    X(6, NOT_LEADER_OR_FOLLOWER, true, true, "this broker is not the partition's leader, or for a replica's request not a replica of it") \
    X(7, REQUEST_TIMED_OUT, true, false, "the broker could not finish the request within its time limit") \
    X(8, BROKER_NOT_AVAILABLE, false, false, "the broker is not reachable") \
    X(9, REPLICA_NOT_AVAILABLE, true, true, "the replica is not there for this partition") \
    X(10, MESSAGE_TOO_LARGE, false, false, "a record batch is larger than the topic's max.message.bytes") \
    X(11, STALE_CONTROLLER_EPOCH, false, false, "the controller has moved on to another broker") \
    X(12, OFFSET_METADATA_TOO_LARGE, false, false, "the metadata string of a committed offset is longer than offset.metadata.max.bytes") \
    X(13, NETWORK_EXCEPTION, true, true, "the connection closed before the answer came") \
    X(14, COORDINATOR_LOAD_IN_PROGRESS, true, false, "the coordinator is still loading its state") \
    X(15, COORDINATOR_NOT_AVAILABLE, true, false, "there is no coordinator at the moment") \
    X(16, NOT_COORDINATOR, true, false, "this broker is not the coordinator of the group or transactional id") \
    X(17, INVALID_TOPIC_EXCEPTION, false, false, "the topic name is not legal, or the topic is internal and not open to this operation") \
    X(18, RECORD_LIST_TOO_LARGE, false, false, "the record batch is larger than the partition's segment size") \
    X(19, NOT_ENOUGH_REPLICAS, true, false, "fewer replicas are in sync than min.insync.replicas asks for; nothing was written") \
    X(20, NOT_ENOUGH_REPLICAS_AFTER_APPEND, true, false, "the records were written, but fewer replicas are in sync than min.insync.replicas asks for") \
    X(21, INVALID_REQUIRED_ACKS, false, false, "acks must be 0, 1 or -1") \
    X(22, ILLEGAL_GENERATION, false, false, "the group's generation has changed; the member must rejoin") \
    X(23, INCONSISTENT_GROUP_PROTOCOL, false, false, "the member's protocol type or protocols do not fit those of the group") \
    X(24, INVALID_GROUP_ID, false, false, "the group id is not legal") \
    X(25, UNKNOWN_MEMBER_ID, false, false, "the coordinator does not know this member id; the member must rejoin") \
    X(26, INVALID_SESSION_TIMEOUT, false, false, "the session timeout is outside the range that the broker allows") \
    X(27, REBALANCE_IN_PROGRESS, false, false, "the group is rebalancing; the member must rejoin") \
    X(28, INVALID_COMMIT_OFFSET_SIZE, false, false, "the offset commit is too large to be stored") \
    X(29, TOPIC_AUTHORIZATION_FAILED, false, false, "not authorized to use the topic") \
    X(30, GROUP_AUTHORIZATION_FAILED, false, false, "not authorized to use the group") \
    X(31, CLUSTER_AUTHORIZATION_FAILED, false, false, "not authorized to act on the cluster") \
    X(32, INVALID_TIMESTAMP, false, false, "a record's timestamp is outside the range that the topic allows") \
    X(33, UNSUPPORTED_SASL_MECHANISM, false, false, "the broker does not offer this SASL mechanism") \
    X(34, ILLEGAL_SASL_STATE, false, false, "the request does not fit the present state of the SASL exchange") \
    X(35, UNSUPPORTED_VERSION, false, false, "the broker does not speak this version of the API") \
    X(36, TOPIC_ALREADY_EXISTS, false, false, "a topic of this name exists already") \
    X(37, INVALID_PARTITIONS, false, false, "the number of partitions is not valid") \
    X(38, INVALID_REPLICATION_FACTOR, false, false, "the replication factor is below 1 or above the number of available brokers") \
    X(39, INVALID_REPLICA_ASSIGNMENT, false, false, "the given replica assignment is not valid") \
    X(40, INVALID_CONFIG, false, false, "a configuration name or value is not valid") \
    X(41, NOT_CONTROLLER, true, false, "this node is not the active controller") \
    X(42, INVALID_REQUEST, false, false, "the request breaks the protocol's rules") \
    X(43, UNSUPPORTED_FOR_MESSAGE_FORMAT, false, false, "the message format of the broker or topic is too old for this request") \
    X(44, POLICY_VIOLATION, false, false, "a policy of the cluster forbids these parameters") \
    X(45, OUT_OF_ORDER_SEQUENCE_NUMBER, false, false, "the producer's sequence number leaves a gap: an earlier batch is missing") \
    X(46, DUPLICATE_SEQUENCE_NUMBER, false, false, "the batch was written before; its offset is no longer known") \
    X(47, INVALID_PRODUCER_EPOCH, false, false, "a newer epoch of this producer exists") \
    X(48, INVALID_TXN_STATE, false, false, "the transactional operation does not fit the transaction's state") \
    X(49, INVALID_PRODUCER_ID_MAPPING, false, false, "the producer id is not the one assigned to the transactional id") \
    X(50, INVALID_TRANSACTION_TIMEOUT, false, false, "the transaction timeout is above the broker's transaction.max.timeout.ms") \
    X(51, CONCURRENT_TRANSACTIONS, true, false, "another operation on the same transaction is still going on") \
    X(52, TRANSACTION_COORDINATOR_FENCED, false, false, "the coordinator that sent the marker is no longer in charge of this producer") \
    X(53, TRANSACTIONAL_ID_AUTHORIZATION_FAILED, false, false, "not authorized to use the transactional id") \
    X(54, SECURITY_DISABLED, false, false, "the broker has no authorizer configured") \
    X(55, OPERATION_NOT_ATTEMPTED, false, false, "the broker did not try this part, since another part of the request failed") \
    X(56, KAFKA_STORAGE_ERROR, true, true, "the disk under this partition failed") \
    X(57, LOG_DIR_NOT_FOUND, false, false, "the named log directory does not exist on the broker") \
    X(58, SASL_AUTHENTICATION_FAILED, false, false, "authentication failed") \
    X(59, UNKNOWN_PRODUCER_ID, false, false, "the broker holds no state for this producer id; its records may have been deleted by retention") \
    X(60, REASSIGNMENT_IN_PROGRESS, false, false, "the partition is being reassigned") \
    X(61, DELEGATION_TOKEN_AUTH_DISABLED, false, false, "delegation tokens are not enabled") \
    X(62, DELEGATION_TOKEN_NOT_FOUND, false, false, "the delegation token does not exist") \
    X(63, DELEGATION_TOKEN_OWNER_MISMATCH, false, false, "the principal neither owns nor may renew the delegation token") \
    X(64, DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, false, false, "delegation tokens need an authenticated connection that was not opened with a token") \
    X(65, DELEGATION_TOKEN_AUTHORIZATION_FAILED, false, false, "not authorized to use the delegation token") \
    X(66, DELEGATION_TOKEN_EXPIRED, false, false, "the delegation token has expired") \
    X(67, INVALID_PRINCIPAL_TYPE, false, false, "this type of principal is not supported") \
    X(68, NON_EMPTY_GROUP, false, false, "the group still has members") \
    X(69, GROUP_ID_NOT_FOUND, false, false, "the group does not exist") \
    X(70, FETCH_SESSION_ID_NOT_FOUND, true, false, "the broker does not know the fetch session; a new one is needed") \
    X(71, INVALID_FETCH_SESSION_EPOCH, true, false, "the fetch session's epoch is not the expected one; a new session is needed") \
    X(72, LISTENER_NOT_FOUND, true, true, "the leader has no listener of the name that the client uses") \
    X(73, TOPIC_DELETION_DISABLED, false, false, "topic deletion is switched off on the broker") \
    X(74, FENCED_LEADER_EPOCH, true, true, "the given leader epoch is older than the broker's") \
    X(75, UNKNOWN_LEADER_EPOCH, true, false, "the given leader epoch is newer than the broker's") \
    X(76, UNSUPPORTED_COMPRESSION_TYPE, false, false, "the client's version cannot carry the codec in which the partition's records are compressed") \
    X(77, STALE_BROKER_EPOCH, false, false, "the broker's registration epoch has changed") \
    X(78, OFFSET_NOT_AVAILABLE, true, false, "the new leader's high watermark has not caught up yet, so offsets cannot be told") \
    X(79, MEMBER_ID_REQUIRED, false, false, "the member must join again with the member id that it was just given") \
    X(80, PREFERRED_LEADER_NOT_AVAILABLE, true, true, "the preferred leader is not available") \
    X(81, GROUP_MAX_SIZE_REACHED, false, false, "the group has as many members as the broker allows") \
    X(82, FENCED_INSTANCE_ID, false, false, "another member with the same group.instance.id has taken this one's place") \
    X(83, ELIGIBLE_LEADERS_NOT_AVAILABLE, true, true, "no replica is fit to become leader") \
    X(84, ELECTION_NOT_NEEDED, true, true, "the leader is already the wanted one") \
    X(85, NO_REASSIGNMENT_IN_PROGRESS, false, false, "the partition is not being reassigned") \
    X(86, GROUP_SUBSCRIBED_TO_TOPIC, false, false, "offsets of a topic to which the group is subscribed cannot be deleted") \
    X(87, INVALID_RECORD, false, false, "the broker refused a record by its validation rules") \
    X(88, UNSTABLE_OFFSET_COMMIT, true, false, "open transactions still have offsets to commit for these partitions") \
    X(89, THROTTLING_QUOTA_EXCEEDED, true, false, "the client is over its quota; it should wait and try again") \
    X(90, PRODUCER_FENCED, false, false, "a newer producer with the same transactional id has taken over") \
    X(91, RESOURCE_NOT_FOUND, false, false, "the named resource does not exist") \
    X(92, DUPLICATE_RESOURCE, false, false, "the request names a resource twice") \
    X(93, UNACCEPTABLE_CREDENTIAL, false, false, "the credential does not meet the rules for credentials") \
    X(94, INCONSISTENT_VOTER_SET, false, false, "the sender or the receiver is not among the expected voters") \
    X(95, INVALID_UPDATE_VERSION, false, false, "the feature's update version is not valid") \
    X(96, FEATURE_UPDATE_FAILED, false, false, "the feature levels could not be updated") \
    X(97, PRINCIPAL_DESERIALIZATION_FAILURE, false, false, "the principal of a forwarded request could not be read") \
    X(98, SNAPSHOT_NOT_FOUND, false, false, "the snapshot does not exist") \
    X(99, POSITION_OUT_OF_RANGE, false, false, "the position lies outside the snapshot") \
    X(100, UNKNOWN_TOPIC_ID, true, true, "this broker does not know the topic id") \
    X(101, DUPLICATE_BROKER_REGISTRATION, false, false, "a broker with this id is registered already") \
    X(102, BROKER_ID_NOT_REGISTERED, false, false, "no broker with this id is registered") \
    X(103, INCONSISTENT_TOPIC_ID, true, true, "the topic id of the log differs from the one in the request") \
    X(104, INCONSISTENT_CLUSTER_ID, false, false, "the cluster id in the request is not that of this cluster") \
    X(105, TRANSACTIONAL_ID_NOT_FOUND, false, false, "the transactional id does not exist") \
    X(106, FETCH_SESSION_TOPIC_ID_ERROR, true, false, "the fetch session mixes topic names and topic ids, or its topic ids do not match") \
    X(107, INELIGIBLE_REPLICA, false, false, "the new set of in-sync replicas has a member that may not be in it") \
    X(108, NEW_LEADER_ELECTED, false, false, "the partition was changed, but another broker leads it now") \
    X(109, OFFSET_MOVED_TO_TIERED_STORAGE, false, false, "the offset lives in tiered storage only") \
    X(110, FENCED_MEMBER_EPOCH, false, false, "the member's epoch is fenced; it must give up its partitions and rejoin") \
    X(111, UNRELEASED_INSTANCE_ID, false, false, "another member still uses the instance id") \
    X(112, UNSUPPORTED_ASSIGNOR, false, false, "the group does not support this assignor, or not in this version") \
    X(113, STALE_MEMBER_EPOCH, false, false, "the member's epoch is behind; it must first learn the new one by a heartbeat") \
    X(114, MISMATCHED_ENDPOINT_TYPE, false, false, "this endpoint is of another type (broker or controller)") \
    X(115, UNSUPPORTED_ENDPOINT_TYPE, false, false, "endpoints of this type are not supported") \
    X(116, UNKNOWN_CONTROLLER_ID, false, false, "no controller with this id is known") \
    X(117, UNKNOWN_SUBSCRIPTION_ID, false, false, "the telemetry subscription id is unknown or outdated") \
    X(118, TELEMETRY_TOO_LARGE, false, false, "the pushed telemetry is larger than the broker accepts") \
    X(119, INVALID_REGISTRATION, false, false, "the controller refused the broker's registration") \
    X(120, TRANSACTION_ABORTABLE, false, false, "the transaction has to be aborted; afterwards the transactional id can be used on") \
    X(121, INVALID_RECORD_STATE, false, false, "the record is not in a state in which it can be acknowledged") \
    X(122, SHARE_SESSION_NOT_FOUND, true, false, "the broker does not know the share session") \
    X(123, INVALID_SHARE_SESSION_EPOCH, true, false, "the share session's epoch is not the expected one") \
    X(124, FENCED_STATE_EPOCH, false, false, "the state epoch does not match the coordinator's") \
    X(125, INVALID_VOTER_KEY, false, false, "the voter's key is not that of the receiving replica") \
    X(126, DUPLICATE_VOTER, false, false, "the voter is in the voter set already") \
    X(127, VOTER_NOT_FOUND, false, false, "the voter is not in the voter set") \
    X(128, INVALID_REGULAR_EXPRESSION, false, false, "the regular expression is not valid") \
    X(129, REBOOTSTRAP_REQUIRED, false, false, "the client's metadata is too old; it must start again from its bootstrap servers") \
    X(130, STREAMS_INVALID_TOPOLOGY, false, false, "the streams topology is not valid") \
    X(131, STREAMS_INVALID_TOPOLOGY_EPOCH, false, false, "the epoch of the streams topology is not valid") \
    X(132, STREAMS_TOPOLOGY_FENCED, false, false, "a newer epoch of the streams topology exists") \
    X(133, SHARE_SESSION_LIMIT_REACHED, true, false, "the broker holds as many share sessions as it allows") \
    X(134, GROUP_DELETION_FAILED, false, false, "the group could not be deleted; the result's message says why") \
    X(135, STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED, false, false, "the description of the streams topology could not be updated; the message says why") \
    X(136, CONTROLLER_ID_NOT_REGISTERED, false, false, "no controller with this id is registered")

/* base.h's results. */
#define KW_KERRORS_OWN(X) \
    X(KW_ENOMEM, OUT_OF_MEMORY, true, false, "memory ran out, or a configured bound on it was reached") \
    X(KW_EDECODE, MALFORMED, false, false, "the bytes do not follow the format") \
    X(KW_ESHORT, TRUNCATED, false, false, "the bytes end before the structure does") \
    X(KW_ELIMIT, OVER_LIMIT, false, false, "a size, count or depth is over its limit") \
    X(KW_ECRC, CHECKSUM_MISMATCH, false, false, "the checksum does not match the bytes") \
    X(KW_EVERSION, UNKNOWN_FORMAT_VERSION, false, false, "a version or magic that this code does not speak") \
    X(KW_EINVAL, NOT_REPRESENTABLE, false, false, "a value that the format cannot carry") \
    X(KW_EUNSUPPORTED, CODEC_NOT_BUILT, false, false, "a codec that this build left out, or that the target format lacks") \
    X(KW_EIO, IO_FAILED, false, false, "the disk or the network failed") \
    X(KW_EBUSY, BUSY, true, false, "something that excludes it is under way; ask again")
/* clang-format on */

#define KW_KERRORS(X) KW_KERRORS_KAFKA(X) KW_KERRORS_OWN(X)

#endif
