"""What the administration takes and gives: plain dataclasses, the same for both APIs."""
import uuid
from dataclasses import dataclass, field
from typing import Dict, List, Mapping, Optional, Sequence

from .errors import KafkaError


@dataclass(frozen=True)
class NewTopic:
    """A topic to be made. 0: as the broker is configured. replicas: for each partition its brokers, the preferred leader first, in place of both."""

    name: str
    partitions: int = 0
    replication_factor: int = 0
    configs: Mapping[str, object] = field(default_factory=dict)
    replicas: Optional[Sequence[Sequence[int]]] = None


@dataclass(frozen=True)
class ItemResult:
    """What became of one item of a call; partition -1: items are no partitions."""

    name: str
    partition: int
    error: Optional[KafkaError]


@dataclass(frozen=True)
class ConfigEntry:
    """A configuration in effect. value None: null, or sensitive. source: "topic", "broker", "broker default", "static", "default"."""

    name: str
    value: Optional[str]
    source: str
    read_only: bool
    sensitive: bool
    doc: str


@dataclass(frozen=True)
class BrokerInfo:
    """A broker; fenced: registered, but without a live session."""

    id: int
    host: str
    port: int
    rack: Optional[str]
    fenced: bool


@dataclass(frozen=True)
class PartitionInfo:
    """A partition; leader -1: none; log_start, high_watermark, log_end: the leader's, where one topic was asked for, -1 unknown."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: List[int]
    isr: List[int]
    offline: List[int]
    log_start: int
    high_watermark: int
    log_end: int
    error: Optional[KafkaError]


@dataclass(frozen=True)
class TopicInfo:
    name: str
    id: uuid.UUID
    internal: bool
    partitions: List[PartitionInfo]
    error: Optional[KafkaError]


@dataclass(frozen=True)
class ClusterInfo:
    """The cluster; controller -1: unknown."""

    id: str
    controller: int
    brokers: List[BrokerInfo]
    topics: Dict[str, TopicInfo]


@dataclass(frozen=True)
class Reassignment:
    """A partition that is being moved; replicas: all that hold it now or shall."""

    topic: str
    partition: int
    replicas: List[int]
    adding: List[int]
    removing: List[int]


@dataclass(frozen=True)
class QuorumReplica:
    """A member of the metadata quorum; voter False: an observer. -1: unknown."""

    id: int
    voter: bool
    log_end: int
    fetched_ms_ago: int
    caught_up_ms_ago: int
    directory: uuid.UUID


@dataclass(frozen=True)
class QuorumInfo:
    leader: int
    epoch: int
    high_watermark: int
    replicas: List[QuorumReplica]


@dataclass(frozen=True)
class LogDirReplica:
    """A partition's copy in a log directory; lag: records behind, as its broker was last told, -1: unknown; future: being moved there."""

    topic: str
    partition: int
    size: int
    lag: int
    future: bool


@dataclass(frozen=True)
class LogDir:
    path: str
    error: Optional[KafkaError]
    total_bytes: int
    usable_bytes: int
    replicas: List[LogDirReplica]


@dataclass(frozen=True)
class GuidPlace:
    """Where the record with an id is. state: "unknown", "found", "pending" (not yet on all in-sync replicas). -1: unknown. error: a partition that may have
    it could not be asked."""

    guid: uuid.UUID
    state: str
    partition: int
    offset: int
    leader_epoch: int
    error: Optional[KafkaError]


@dataclass(frozen=True)
class GuidPartition:
    """A partition's index of ids (kc_guid_partition)."""

    partition: int
    leader: int
    leader_epoch: int
    error: Optional[KafkaError]
    high_watermark: int
    start: int
    end: int
    entries: int
    runs: int
    disk_bytes: int
    memory_bytes: int
    window_ms: int
    finds: int
    run_reads: int
    hits: int
    flushes: int
    merges: int
    forgotten: int


@dataclass(frozen=True)
class GroupListing:
    group: str
    protocol_type: str
    state: str
    type: str
    coordinator: int


@dataclass(frozen=True)
class GroupList:
    """The groups, and the brokers that could not be asked for theirs."""

    groups: List[GroupListing]
    failed: Dict[int, KafkaError]


@dataclass(frozen=True)
class GroupMember:
    """A member; topics and assigned: once the group is stable, and of the consumer protocol; metadata and assignment: as it said and was given."""

    id: str
    client_id: str
    host: str
    instance_id: Optional[str]
    topics: List[str]
    assigned: "List[tuple[str, int]]"
    error: Optional[KafkaError]
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True)
class GroupInfo:
    group: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: int
    members: List[GroupMember]
    error: Optional[KafkaError]
