"""Admin: topics, partitions, configurations, groups, the cluster. The calls themselves: _admin_calls.py."""
import os
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, TypeVar, Union

from . import _admin_calls as calls
from ._wait import FOREVER, Call, limit_micros
from .admin_data import (BrokerInfo, ClusterInfo, ConfigEntry, GroupInfo, GroupList, GroupListing, GroupMember, GuidPartition, GuidPlace, ItemResult, LogDir,
                         LogDirReplica, NewTopic, PartitionInfo, QuorumInfo, QuorumReplica, Reassignment, TopicInfo)
from .client import Place, client_of
from .consumer import Partitions, TopicPartition, as_partitions
from .guid import Guid

__all__ = ["Admin", "BrokerInfo", "ClusterInfo", "ConfigEntry", "GroupInfo", "GroupList", "GroupListing", "GroupMember", "GuidPartition", "GuidPlace",
           "ItemResult", "LogDir", "LogDirReplica", "NewTopic", "PartitionInfo", "QuorumInfo", "QuorumReplica", "Reassignment", "TopicInfo"]

T = TypeVar("T")
Timeout = Optional[float]
Changes = Mapping[str, Union[object, Tuple[object, str]]]


def names_of(names: Union[str, Iterable[str]]) -> List[str]:
    return [names] if isinstance(names, str) else list(names)


def changes_of(changes: Changes) -> Dict[str, Tuple[object, str]]:
    """name → value, None (back to the default) or (value, "append"/"subtract")."""
    pairs: Dict[str, Tuple[object, str]] = {}
    for name, value in changes.items():
        if isinstance(value, tuple):
            pairs[name] = (value[0], str(value[1]))
        else:
            pairs[name] = (value, "delete" if value is None else "set")
    return pairs


class Admin:
    """Administration.

        with Admin(bootstrap_servers="localhost:9092") as admin:
            admin.create_topic("orders", partitions=4, configs={"retention.ms": 3_600_000})

    The first argument is a Client to share, or nothing, for one of its own. Every call waits at most `timeout` seconds; None: default.api.timeout.ms.
    A call over several items raises the first one's error, whose `results` tell of each. Any thread may use it.
    """

    def __init__(self, client: Place = None, **properties: Any) -> None:
        self.client, _, self._owns_client = client_of(client, properties)
        self._pid = os.getpid()

    def _run(self, call: Call[T]) -> T:
        try:
            return call.run(FOREVER)  # its own limit ends it
        finally:
            if self._pid == os.getpid():
                self.client.drain_logs()

    # -- topics

    def create_topic(self, name: str, partitions: int = 0, replication_factor: int = 0, configs: Optional[Mapping[str, object]] = None, *,
                     replicas: Optional[Sequence[Sequence[int]]] = None, timeout: Timeout = None) -> None:
        """Makes a topic; 0: as the broker is configured. errors.TopicAlreadyExists, errors.InvalidReplicationFactor, …"""
        self.create_topics([NewTopic(name, partitions, replication_factor, configs or {}, replicas)], timeout=timeout)

    def create_topics(self, topics: Sequence[NewTopic], *, validate_only: bool = False, timeout: Timeout = None) -> List[ItemResult]:
        return self._run(calls.create_topics(self.client, topics, validate_only, limit_micros(timeout)))

    def delete_topics(self, names: Union[str, Iterable[str]], *, timeout: Timeout = None) -> List[ItemResult]:
        """Deletes topics with all their records."""
        return self._run(calls.delete_topics(self.client, names_of(names), limit_micros(timeout)))

    def create_partitions(self, totals: Mapping[str, int], *, timeout: Timeout = None) -> List[ItemResult]:
        """Lets topics grow: {name: new number of partitions}."""
        return self._run(calls.create_partitions(self.client, totals, limit_micros(timeout)))

    def list_topics(self, *, internal: bool = False, timeout: Timeout = None) -> List[str]:
        """The names of all topics."""
        return sorted(t.name for t in self.describe(timeout=timeout).topics.values() if internal or not t.internal)

    def describe_topic(self, name: str, *, timeout: Timeout = None) -> TopicInfo:
        """A topic with its partitions and their offsets. errors.UnknownTopicOrPartition."""
        topic = self.describe(name, timeout=timeout).topics[name]
        if topic.error is not None:
            raise topic.error
        return topic

    def delete_records(self, before: Partitions, *, timeout: Timeout = None) -> List[TopicPartition]:
        """Deletes records below each partition's offset (END: all); gives the new log starts."""
        return self._run(calls.delete_records(self.client, as_partitions(before), limit_micros(timeout)))

    # -- configurations

    def topic_configs(self, topic: str, *, timeout: Timeout = None) -> Dict[str, ConfigEntry]:
        """All configurations of a topic, defaults included."""
        return self._run(calls.describe_configs(self.client, calls.TOPIC, topic, limit_micros(timeout)))

    def broker_configs(self, broker: int, *, timeout: Timeout = None) -> Dict[str, ConfigEntry]:
        return self._run(calls.describe_configs(self.client, calls.BROKER, str(broker), limit_micros(timeout)))

    def alter_topic_configs(self, topic: str, changes: Changes, *, timeout: Timeout = None) -> None:
        """Changes single configurations, all or none: {name: value}; None: back to the default; (value, "append") or (value, "subtract"): of a list."""
        self._run(calls.alter_configs(self.client, calls.TOPIC, topic, changes_of(changes), limit_micros(timeout)))

    def alter_broker_configs(self, broker: Optional[int], changes: Changes, *, timeout: Timeout = None) -> None:
        """The same for a broker; None: all of them."""
        name = "" if broker is None else str(broker)
        self._run(calls.alter_configs(self.client, calls.BROKER, name, changes_of(changes), limit_micros(timeout)))

    # -- the cluster

    def describe(self, topic: Optional[str] = None, *, timeout: Timeout = None) -> ClusterInfo:
        """Brokers, controller and topics; with a topic only that one, and the offsets of its partitions."""
        return self._run(calls.describe(self.client, topic, limit_micros(timeout)))

    def elect_leaders(self, partitions: Iterable[Tuple[str, int]] = (), *, unclean: bool = False, timeout: Timeout = None) -> List[ItemResult]:
        """Elects the preferred leaders (unclean: any live replica, where none in sync is left: records may be lost); of no partitions: of all that need it.
        ElectionNotNeeded among the results is no failure."""
        return self._run(calls.elect_leaders(self.client, unclean, list(partitions), limit_micros(timeout)))

    def reassign(self, moves: Mapping[Tuple[str, int], Optional[Sequence[int]]], *, timeout: Timeout = None) -> List[ItemResult]:
        """Has partitions moved: {(topic, partition): brokers, the preferred leader first}; None: stop its move. reassignments() shows what is under way."""
        return self._run(calls.alter_reassignments(self.client, moves, limit_micros(timeout)))

    def reassignments(self, *, timeout: Timeout = None) -> List[Reassignment]:
        """The partitions that are being moved."""
        return self._run(calls.list_reassignments(self.client, limit_micros(timeout)))

    def unregister_broker(self, broker: int, *, timeout: Timeout = None) -> None:
        """Removes a broker that will not come back from the metadata."""
        self._run(calls.unregister_broker(self.client, broker, limit_micros(timeout)))

    def quorum(self, *, timeout: Timeout = None) -> QuorumInfo:
        """The metadata quorum as its leader sees it."""
        return self._run(calls.describe_quorum(self.client, limit_micros(timeout)))

    def log_dirs(self, broker: int, *, timeout: Timeout = None) -> List[LogDir]:
        """A broker's log directories and the replicas in them."""
        return self._run(calls.describe_log_dirs(self.client, broker, limit_micros(timeout)))

    def node_counts(self, broker: int = -1, *, timeout: Timeout = None) -> Dict[str, int]:
        """What a kbroker has counted since its start; -1: the active controller."""
        return self._run(calls.node_counts(self.client, broker, limit_micros(timeout)))

    # -- records by their ids

    def lookup_guids(self, topic: str, guids: Sequence[Guid], *, partitions: Sequence[int] = (), timeout: Timeout = None) -> List[GuidPlace]:
        """Where the records with these ids are (topics with message.guid.dedup=true; at most 1000 ids): one place an id, or more."""
        return self._run(calls.lookup_guids(self.client, topic, guids, partitions, limit_micros(timeout)))

    def guid_stats(self, topic: str, *, timeout: Timeout = None) -> List[GuidPartition]:
        """What the indexes of ids of a topic's partitions hold."""
        return self._run(calls.guid_stats(self.client, topic, limit_micros(timeout)))

    # -- groups

    def list_groups(self, *, states: Sequence[str] = (), types: Sequence[str] = (), timeout: Timeout = None) -> GroupList:
        """The groups of all brokers; a broker that cannot be asked does not fail the call."""
        return self._run(calls.list_groups(self.client, states, types, limit_micros(timeout)))

    def describe_groups(self, groups: Union[str, Iterable[str]], *, timeout: Timeout = None) -> List[GroupInfo]:
        """Groups with their members; each has an error of its own."""
        return self._run(calls.describe_groups(self.client, names_of(groups), limit_micros(timeout)))

    def describe_group(self, group: str, *, timeout: Timeout = None) -> GroupInfo:
        """A group with its members. errors.GroupIdNotFound."""
        found = self.describe_groups([group], timeout=timeout)[0]
        if found.error is not None:
            raise found.error
        return found

    def group_offsets(self, groups: Union[str, Iterable[str]], partitions: Partitions = (), *, require_stable: bool = False,
                      timeout: Timeout = None) -> Dict[str, List[TopicPartition]]:
        """The committed offsets of groups: of these partitions, or of all that have one."""
        return self._run(calls.group_offsets(self.client, names_of(groups), as_partitions(partitions), require_stable, limit_micros(timeout)))

    def alter_group_offsets(self, group: str, offsets: Partitions, *, timeout: Timeout = None) -> List[ItemResult]:
        """Commits offsets in a group's place, which must have no members."""
        return self._run(calls.alter_group_offsets(self.client, group, as_partitions(offsets), limit_micros(timeout)))

    def delete_group_offsets(self, group: str, partitions: Partitions, *, timeout: Timeout = None) -> List[ItemResult]:
        return self._run(calls.delete_group_offsets(self.client, group, as_partitions(partitions), limit_micros(timeout)))

    def delete_groups(self, groups: Union[str, Iterable[str]], *, timeout: Timeout = None) -> List[ItemResult]:
        """Deletes groups without members, with their offsets."""
        return self._run(calls.delete_groups(self.client, names_of(groups), limit_micros(timeout)))

    def remove_group_members(self, group: str, members: Iterable[str] = (), *, static: bool = False, reason: Optional[str] = None,
                             timeout: Timeout = None) -> List[ItemResult]:
        """Puts members (ids, or with static instance ids) out of a group; none: all of them."""
        return self._run(calls.remove_group_members(self.client, group, list(members), static, reason, limit_micros(timeout)))

    # -- the end

    def close(self) -> None:
        """Closes its client, if that is its own."""
        if self._owns_client:
            self.client.close()

    def __enter__(self) -> "Admin":
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Admin of {self.client.config.get('bootstrap.servers')}>"
