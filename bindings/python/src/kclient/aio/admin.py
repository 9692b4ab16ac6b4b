"""Administration in an event loop. The calls themselves: kclient/_admin_calls.py."""

from __future__ import annotations

import asyncio
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, TypeVar, Union

from .. import _admin_calls as calls
from .._wait import Call, limit_micros
from ..admin import Changes, Timeout, changes_of, names_of
from ..admin_data import (
    ClusterInfo,
    ConfigEntry,
    GroupInfo,
    GroupList,
    GuidPartition,
    GuidPlace,
    ItemResult,
    LogDir,
    NewTopic,
    QuorumInfo,
    Reassignment,
    TopicInfo,
)
from ..client import Place, client_of
from ..consumer import Partitions, TopicPartition, as_partitions
from ..guid import Guid
from ._loop import Driver, driver_of

T = TypeVar("T")
Names = Union[str, Iterable[str]]


class Admin:
    """Administration in an event loop.

        async with Admin(bootstrap_servers="localhost:9092") as admin:
            await admin.create_topic("orders", partitions=4, configs={"retention.ms": 3_600_000})

    Arguments, results and errors as kclient.Admin's. A call that is cancelled is given up; what was sent may still take effect.
    """

    def __init__(self, client: Place = None, **properties: Any) -> None:
        asyncio.get_running_loop()
        self.client, _, self._owns_client = client_of(client, properties)
        self._driver: Driver = driver_of(self.client)

    async def _run(self, call: Call[T]) -> T:
        try:
            return await self._driver.run(call)  # its own limit ends it
        finally:
            self.client.drain_logs()

    # ---- topics

    async def create_topic(
        self,
        name: str,
        partitions: int = 0,
        replication_factor: int = 0,
        configs: Optional[Mapping[str, object]] = None,
        *,
        replicas: Optional[Sequence[Sequence[int]]] = None,
        timeout: Timeout = None,
    ) -> None:
        """Makes a topic; 0: as the broker is configured. errors.TopicAlreadyExists, errors.InvalidReplicationFactor, …"""
        await self.create_topics([NewTopic(name, partitions, replication_factor, configs or {}, replicas)], timeout=timeout)

    async def create_topics(self, topics: Sequence[NewTopic], *, validate_only: bool = False, timeout: Timeout = None) -> List[ItemResult]:
        """Makes topics; validate_only: they are checked alone."""
        return await self._run(calls.create_topics(self.client, topics, validate_only, limit_micros(timeout)))

    async def delete_topics(self, names: Names, *, timeout: Timeout = None) -> List[ItemResult]:
        """Deletes topics with all their records."""
        return await self._run(calls.delete_topics(self.client, names_of(names), limit_micros(timeout)))

    async def create_partitions(self, totals: Mapping[str, int], *, timeout: Timeout = None) -> List[ItemResult]:
        """Lets topics grow: {name: new number of partitions}."""
        return await self._run(calls.create_partitions(self.client, totals, limit_micros(timeout)))

    async def list_topics(self, *, internal: bool = False, timeout: Timeout = None) -> List[str]:
        """The names of all topics."""
        return sorted(t.name for t in (await self.describe(timeout=timeout)).topics.values() if internal or not t.internal)

    async def describe_topic(self, name: str, *, timeout: Timeout = None) -> TopicInfo:
        """A topic with its partitions and their offsets. errors.UnknownTopicOrPartition."""
        topic = (await self.describe(name, timeout=timeout)).topics[name]
        if topic.error is not None:
            raise topic.error
        return topic

    async def delete_records(self, before: Partitions, *, timeout: Timeout = None) -> List[TopicPartition]:
        """Deletes records below each partition's offset (END: all); gives the new log starts."""
        return await self._run(calls.delete_records(self.client, as_partitions(before), limit_micros(timeout)))

    # ---- configurations

    async def topic_configs(self, topic: str, *, timeout: Timeout = None) -> Dict[str, ConfigEntry]:
        """All configurations of a topic, defaults included."""
        return await self._run(calls.describe_configs(self.client, calls.TOPIC, topic, limit_micros(timeout)))

    async def broker_configs(self, broker: int, *, timeout: Timeout = None) -> Dict[str, ConfigEntry]:
        """All configurations of a broker."""
        return await self._run(calls.describe_configs(self.client, calls.BROKER, str(broker), limit_micros(timeout)))

    async def alter_topic_configs(self, topic: str, changes: Changes, *, timeout: Timeout = None) -> None:
        """Changes single configurations, all or none: {name: value}; None: back to the default; (value, "append") or (value, "subtract"): of a list."""
        await self._run(calls.alter_configs(self.client, calls.TOPIC, topic, changes_of(changes), limit_micros(timeout)))

    async def alter_broker_configs(self, broker: Optional[int], changes: Changes, *, timeout: Timeout = None) -> None:
        """The same for a broker; None: all of them."""
        name = "" if broker is None else str(broker)
        await self._run(calls.alter_configs(self.client, calls.BROKER, name, changes_of(changes), limit_micros(timeout)))

    # ---- the cluster

    async def describe(self, topic: Optional[str] = None, *, timeout: Timeout = None) -> ClusterInfo:
        """Brokers, controller and topics; with a topic only that one, and the offsets of its partitions."""
        return await self._run(calls.describe(self.client, topic, limit_micros(timeout)))

    async def elect_leaders(self, partitions: Iterable[Tuple[str, int]] = (), *, unclean: bool = False, timeout: Timeout = None) -> List[ItemResult]:
        """Elects the preferred leaders (unclean: any live replica, where none in sync is left: records may be lost); of no partitions: of all that need it.
        ElectionNotNeeded among the results is no failure."""
        return await self._run(calls.elect_leaders(self.client, unclean, list(partitions), limit_micros(timeout)))

    async def reassign(self, moves: Mapping[Tuple[str, int], Optional[Sequence[int]]], *, timeout: Timeout = None) -> List[ItemResult]:
        """Has partitions moved: {(topic, partition): brokers, the preferred leader first}; None: stop its move. reassignments() shows what is under way."""
        return await self._run(calls.alter_reassignments(self.client, moves, limit_micros(timeout)))

    async def reassignments(self, *, timeout: Timeout = None) -> List[Reassignment]:
        """The partitions that are being moved."""
        return await self._run(calls.list_reassignments(self.client, limit_micros(timeout)))

    async def unregister_broker(self, broker: int, *, timeout: Timeout = None) -> None:
        """Removes a broker that will not come back from the metadata."""
        await self._run(calls.unregister_broker(self.client, broker, limit_micros(timeout)))

    async def quorum(self, *, timeout: Timeout = None) -> QuorumInfo:
        """The metadata quorum as its leader sees it."""
        return await self._run(calls.describe_quorum(self.client, limit_micros(timeout)))

    async def log_dirs(self, broker: int, *, timeout: Timeout = None) -> List[LogDir]:
        """A broker's log directories and the replicas in them."""
        return await self._run(calls.describe_log_dirs(self.client, broker, limit_micros(timeout)))

    async def node_counts(self, broker: int = -1, *, timeout: Timeout = None) -> Dict[str, int]:
        """What a kbroker has counted since its start; -1: the active controller."""
        return await self._run(calls.node_counts(self.client, broker, limit_micros(timeout)))

    # ---- records by their ids

    async def lookup_guids(self, topic: str, guids: Sequence[Guid], *, partitions: Sequence[int] = (), timeout: Timeout = None) -> List[GuidPlace]:
        """Where the records with these ids are (topics with message.guid.dedup=true; at most 1000 ids): one place an id, or more."""
        return await self._run(calls.lookup_guids(self.client, topic, guids, partitions, limit_micros(timeout)))

    async def guid_stats(self, topic: str, *, timeout: Timeout = None) -> List[GuidPartition]:
        """What the indexes of ids of a topic's partitions hold."""
        return await self._run(calls.guid_stats(self.client, topic, limit_micros(timeout)))

    # ---- groups

    async def list_groups(self, *, states: Sequence[str] = (), types: Sequence[str] = (), timeout: Timeout = None) -> GroupList:
        """The groups of all brokers; a broker that cannot be asked does not fail the call."""
        return await self._run(calls.list_groups(self.client, states, types, limit_micros(timeout)))

    async def describe_groups(self, groups: Names, *, timeout: Timeout = None) -> List[GroupInfo]:
        """Groups with their members; each has an error of its own."""
        return await self._run(calls.describe_groups(self.client, names_of(groups), limit_micros(timeout)))

    async def describe_group(self, group: str, *, timeout: Timeout = None) -> GroupInfo:
        """A group with its members. errors.GroupIdNotFound."""
        found = (await self.describe_groups([group], timeout=timeout))[0]
        if found.error is not None:
            raise found.error
        return found

    async def group_offsets(
        self, groups: Names, partitions: Partitions = (), *, require_stable: bool = False, timeout: Timeout = None
    ) -> Dict[str, List[TopicPartition]]:
        """The committed offsets of groups: of these partitions, or of all that have one."""
        return await self._run(calls.group_offsets(self.client, names_of(groups), as_partitions(partitions), require_stable, limit_micros(timeout)))

    async def alter_group_offsets(self, group: str, offsets: Partitions, *, timeout: Timeout = None) -> List[ItemResult]:
        """Commits offsets in a group's place, which must have no members."""
        return await self._run(calls.alter_group_offsets(self.client, group, as_partitions(offsets), limit_micros(timeout)))

    async def delete_group_offsets(self, group: str, partitions: Partitions, *, timeout: Timeout = None) -> List[ItemResult]:
        """Forgets committed offsets."""
        return await self._run(calls.delete_group_offsets(self.client, group, as_partitions(partitions), limit_micros(timeout)))

    async def delete_groups(self, groups: Names, *, timeout: Timeout = None) -> List[ItemResult]:
        """Deletes groups without members, with their offsets."""
        return await self._run(calls.delete_groups(self.client, names_of(groups), limit_micros(timeout)))

    async def remove_group_members(
        self, group: str, members: Iterable[str] = (), *, static: bool = False, reason: Optional[str] = None, timeout: Timeout = None
    ) -> List[ItemResult]:
        """Puts members (ids, or with static instance ids) out of a group; none: all of them."""
        return await self._run(calls.remove_group_members(self.client, group, list(members), static, reason, limit_micros(timeout)))

    # ---- the end

    async def close(self) -> None:
        """Closes its client, if that is its own."""
        if self._owns_client:
            self._driver.end()

    async def __aenter__(self) -> "Admin":
        return self

    async def __aexit__(self, kind: Any, value: Any, trace: Any) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<Admin of {self.client.config.get('bootstrap.servers')}>"
