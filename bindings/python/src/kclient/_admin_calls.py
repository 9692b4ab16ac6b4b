"""Every administrative call as a Call: how it is started, and how its result is read. admin.py waits for them, aio awaits them.

timeout_us: 0 is default.api.timeout.ms. A call over items raises the first item's error, which has all of them in `results`.
"""
import uuid
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from . import admin_data as d
from ._native import ffi, lib
from ._wait import Call, nothing
from .config import _as_text
from .consumer import TopicPartition, offsets_result, to_c
from .errors import KafkaError, error_class, text
from .guid import guid_bytes

NULL = ffi.NULL
TOPIC: int = lib.KC_RESOURCE_TOPIC
BROKER: int = lib.KC_RESOURCE_BROKER
OPS = {"set": 0, "delete": 1, "append": 2, "subtract": 3}
STATES = {lib.KC_GUID_UNKNOWN: "unknown", lib.KC_GUID_FOUND: "found", lib.KC_GUID_PENDING: "pending"}
Result = Callable[[Any, Optional[Exception]], Any]


class Strings:
    """C strings and arrays that live as long as this."""

    def __init__(self) -> None:
        self.kept: List[Any] = []

    def keep(self, cdata: Any) -> Any:
        self.kept.append(cdata)
        return cdata

    def text(self, value: Optional[object]) -> Any:
        return NULL if value is None else self.keep(ffi.new("char[]", _as_text(value)))

    def texts(self, values: Iterable[object]) -> Tuple[Any, int]:
        pointers = [self.text(v) for v in values]
        return self.keep(ffi.new("const char *[]", pointers or [NULL])), len(pointers)

    def numbers(self, values: Sequence[int]) -> Any:
        return self.keep(ffi.new("int32_t[]", list(values))) if values else NULL


def _error(code: int, message: str = "") -> Optional[KafkaError]:
    return error_class(code)(message, code=code) if code else None


def _raise(error: Optional[Exception]) -> None:
    if error is not None:
        raise error


# ---- Calls over items


def _items(op: Any, error: Optional[Exception]) -> List[d.ItemResult]:
    size = ffi.sizeof("kc_admin_result")
    n = lib.kc_op_result_items(op, NULL, size, 0)
    out = ffi.new("kc_admin_result[]", max(n, 1))
    lib.kc_op_result_items(op, out, size, n)
    found = [d.ItemResult(text(i.name), i.partition, _error(i.err, text(i.message))) for i in out[0:n]]
    if isinstance(error, KafkaError):
        error.results = list(found)
    _raise(error)
    return found


def create_topics(client: Any, topics: Sequence[d.NewTopic], validate_only: bool, timeout_us: int) -> Call[List[d.ItemResult]]:
    s = Strings()
    array = s.keep(ffi.new("kc_topic_new[]", max(len(topics), 1)))
    for c, t in zip(array, topics):
        c.name, c.partitions, c.replication_factor = s.text(t.name), t.partitions, t.replication_factor
        c.configs, c.config_count = _pairs(s, {k: (v, "set") for k, v in t.configs.items()}), len(t.configs)
        if t.replicas is not None:
            if len({len(r) for r in t.replicas}) > 1:
                raise ValueError(f"topic {t.name}: all partitions need the same number of replicas")
            c.partitions, c.replication_factor = len(t.replicas), len(t.replicas[0]) if t.replicas else 0
            c.replicas = s.numbers([b for r in t.replicas for b in r])
    size, n = ffi.sizeof("kc_topic_new"), len(topics)
    return Call("create topics", lambda o, op, e: int(lib.kc_admin_create_topics_start(client.handle, array, size, n, int(validate_only), timeout_us, o, op, e)),
                _items, s)


def _pairs(s: Strings, changes: Mapping[str, Tuple[object, str]]) -> Any:
    pairs = s.keep(ffi.new("kc_config_pair[]", max(len(changes), 1)))
    for c, (name, (value, how)) in zip(pairs, changes.items()):
        c.name, c.value, c.op = s.text(name), s.text(value), OPS[how]
    return pairs


def _named(client: Any, what: str, start: Any, names: Sequence[Tuple[str, int]], timeout_us: int) -> Call[List[d.ItemResult]]:
    s = Strings()
    array = s.keep(ffi.new("kc_admin_item[]", max(len(names), 1)))
    for c, (name, count) in zip(array, names):
        c.name, c.count = s.text(name), count
    size, n = ffi.sizeof("kc_admin_item"), len(names)
    return Call(what, lambda o, op, e: int(start(client.handle, array, size, n, timeout_us, o, op, e)), _items, s)


def delete_topics(client: Any, names: Sequence[str], timeout_us: int) -> Call[List[d.ItemResult]]:
    return _named(client, "delete topics", lib.kc_admin_delete_topics_start, [(n, 0) for n in names], timeout_us)


def create_partitions(client: Any, totals: Mapping[str, int], timeout_us: int) -> Call[List[d.ItemResult]]:
    return _named(client, "create partitions", lib.kc_admin_create_partitions_start, list(totals.items()), timeout_us)


def delete_groups(client: Any, groups: Sequence[str], timeout_us: int) -> Call[List[d.ItemResult]]:
    return _named(client, "delete groups", lib.kc_admin_delete_groups_start, [(g, 0) for g in groups], timeout_us)


def alter_configs(client: Any, resource: int, name: str, changes: Mapping[str, Tuple[object, str]], timeout_us: int) -> Call[List[d.ItemResult]]:
    """changes: name → (value, "set", "delete", "append" or "subtract")."""
    s = Strings()
    one = s.keep(ffi.new("kc_config_alter *"))
    one.resource, one.name, one.pairs, one.pair_count = resource, s.text(name), _pairs(s, changes), len(changes)
    size = ffi.sizeof("kc_config_alter")
    return Call("alter configs", lambda o, op, e: int(lib.kc_admin_alter_configs_start(client.handle, one, size, 1, timeout_us, o, op, e)), _items, s)


def _partition_items(s: Strings, parts: Sequence[Tuple[str, int, Optional[Sequence[int]]]]) -> Tuple[Any, int, int]:
    array = s.keep(ffi.new("kc_partition_item[]", max(len(parts), 1)))
    for c, (topic, partition, replicas) in zip(array, parts):
        c.topic, c.partition, c.replicas, c.replica_count = s.text(topic), partition, s.numbers(replicas or []), len(replicas or [])
    return array, ffi.sizeof("kc_partition_item"), len(parts)


def elect_leaders(client: Any, unclean: bool, parts: Sequence[Tuple[str, int]], timeout_us: int) -> Call[List[d.ItemResult]]:
    s = Strings()
    array, size, n = _partition_items(s, [(t, p, None) for t, p in parts])
    how = lib.KC_ELECT_UNCLEAN if unclean else lib.KC_ELECT_PREFERRED
    return Call("elect leaders", lambda o, op, e: int(lib.kc_admin_elect_leaders_start(client.handle, how, array, size, n, timeout_us, o, op, e)), _items, s)


def alter_reassignments(client: Any, moves: Mapping[Tuple[str, int], Optional[Sequence[int]]], timeout_us: int) -> Call[List[d.ItemResult]]:
    s = Strings()
    array, size, n = _partition_items(s, [(t, p, r) for (t, p), r in moves.items()])
    return Call("alter reassignments", lambda o, op, e: int(lib.kc_admin_alter_reassignments_start(client.handle, array, size, n, timeout_us, o, op, e)),
                _items, s)


def _group_offset_items(s: Strings, offsets: Sequence[TopicPartition]) -> Tuple[Any, int, int]:
    array = s.keep(ffi.new("kc_group_offset_item[]", max(len(offsets), 1)))
    for c, p in zip(array, offsets):
        c.topic, c.partition, c.offset, c.leader_epoch, c.metadata = s.text(p.topic), p.partition, p.offset, p.leader_epoch, s.text(p.metadata or None)
    return array, ffi.sizeof("kc_group_offset_item"), len(offsets)


def alter_group_offsets(client: Any, group: str, offsets: Sequence[TopicPartition], timeout_us: int) -> Call[List[d.ItemResult]]:
    s = Strings()
    array, size, n = _group_offset_items(s, offsets)
    name = s.text(group)
    return Call("alter group offsets", lambda o, op, e: int(lib.kc_admin_alter_group_offsets_start(client.handle, name, array, size, n, timeout_us, o, op, e)),
                _items, s)


def delete_group_offsets(client: Any, group: str, parts: Sequence[TopicPartition], timeout_us: int) -> Call[List[d.ItemResult]]:
    s = Strings()
    array, size, n = _group_offset_items(s, parts)
    name = s.text(group)
    return Call("delete group offsets",
                lambda o, op, e: int(lib.kc_admin_delete_group_offsets_start(client.handle, name, array, size, n, timeout_us, o, op, e)), _items, s)


def remove_group_members(client: Any, group: str, members: Sequence[str], static: bool, reason: Optional[str], timeout_us: int) -> Call[List[d.ItemResult]]:
    s = Strings()
    array = s.keep(ffi.new("kc_group_member_item[]", max(len(members), 1)))
    for c, member in zip(array, members):
        c.name, c.is_static = s.text(member), int(static)
    size, n, name, why = ffi.sizeof("kc_group_member_item"), len(members), s.text(group), s.text(reason)
    return Call("remove group members",
                lambda o, op, e: int(lib.kc_admin_remove_group_members_start(client.handle, name, why, array, size, n, timeout_us, o, op, e)), _items, s)


def delete_records(client: Any, parts: Sequence[TopicPartition], timeout_us: int) -> Call[List[TopicPartition]]:
    """Gives the new log start of each in `offset`."""
    array, n, size = to_c(client, parts), len(parts), ffi.sizeof("kc_topic_partition")
    return Call("delete records", lambda o, op, e: int(lib.kc_admin_delete_records_start(client.handle, array, size, n, timeout_us, o, op, e)),
                offsets_result(client, n, False), array)


def unregister_broker(client: Any, broker: int, timeout_us: int) -> Call[None]:
    return Call("unregister broker", lambda o, op, e: int(lib.kc_admin_unregister_broker_start(client.handle, broker, timeout_us, o, op, e)), nothing)


# ---- Calls whose answer is a tree


def _tree(take: Any, free: Any, read: Callable[[Any], Any]) -> Result:
    def result(op: Any, error: Optional[Exception]) -> Any:
        _raise(error)
        tree = take(op)
        try:
            return read(tree)
        finally:
            free(tree)
    return result


def _each(shape: str, get: Callable[[int, Any], int]) -> Any:
    """The items of a tree, each in the same memory."""
    out, index = ffi.new(f"{shape} *"), 0
    while get(index, out) == 0:
        yield out
        index += 1


def describe_configs(client: Any, resource: int, name: str, timeout_us: int) -> Call[Dict[str, d.ConfigEntry]]:
    s = Strings()
    c_name = s.text(name)

    def read(tree: Any) -> Dict[str, d.ConfigEntry]:
        return {text(c.name): d.ConfigEntry(text(c.name), None if c.value == NULL else text(c.value), text(c.source), bool(c.read_only), bool(c.sensitive),
                                            text(c.doc)) for c in _each("kc_config_item", lambda i, out: int(lib.kc_config_list_get(tree, i, out)))}
    return Call("describe configs", lambda o, op, e: int(lib.kc_admin_describe_configs_start(client.handle, resource, c_name, timeout_us, o, op, e)),
                _tree(lib.kc_op_result_configs, lib.kc_config_list_free, read), s)


def describe(client: Any, topic: Optional[str], timeout_us: int) -> Call[d.ClusterInfo]:
    s = Strings()
    name = s.text(topic)
    return Call("describe", lambda o, op, e: int(lib.kc_admin_describe_start(client.handle, name, timeout_us, o, op, e)),
                _tree(lib.kc_op_result_cluster, lib.kc_cluster_info_free, _cluster), s)


def _cluster(tree: Any) -> d.ClusterInfo:
    brokers = [d.BrokerInfo(b.id, text(b.host), b.port, None if b.rack == NULL else text(b.rack), bool(b.fenced))
               for b in _each("kc_broker_info", lambda i, out: int(lib.kc_cluster_info_broker(tree, i, out)))]
    topics = [d.TopicInfo(text(t.name), uuid.UUID(bytes=bytes(ffi.buffer(t.id))), bool(t.internal), _partitions(tree, i), _error(t.err))
              for i, t in enumerate(_each("kc_topic_info", lambda i, out: int(lib.kc_cluster_info_topic(tree, i, out))))]
    return d.ClusterInfo(text(lib.kc_cluster_info_id(tree)), lib.kc_cluster_info_controller(tree), brokers, {t.name: t for t in topics})


def _partitions(tree: Any, topic: int) -> List[d.PartitionInfo]:
    return [d.PartitionInfo(p.partition, p.leader, p.leader_epoch, _ints(p.replicas, p.replica_count), _ints(p.isr, p.isr_count),
                            _ints(p.offline, p.offline_count), p.log_start, p.high_watermark, p.log_end, _error(p.err))
            for p in _each("kc_partition_info", lambda i, out: int(lib.kc_cluster_info_partition(tree, topic, i, out)))]


def _ints(p: Any, n: int) -> List[int]:
    return list(p[0:n]) if n else []


def list_reassignments(client: Any, timeout_us: int) -> Call[List[d.Reassignment]]:
    def read(tree: Any) -> List[d.Reassignment]:
        return [d.Reassignment(text(r.topic), r.partition, _ints(r.replicas, r.replica_count), _ints(r.adding, r.adding_count),
                               _ints(r.removing, r.removing_count))
                for r in _each("kc_reassignment", lambda i, out: int(lib.kc_reassignment_list_get(tree, i, out)))]
    return Call("list reassignments", lambda o, op, e: int(lib.kc_admin_list_reassignments_start(client.handle, timeout_us, o, op, e)),
                _tree(lib.kc_op_result_reassignments, lib.kc_reassignment_list_free, read))


def describe_quorum(client: Any, timeout_us: int) -> Call[d.QuorumInfo]:
    def read(tree: Any) -> d.QuorumInfo:
        replicas = [d.QuorumReplica(r.id, bool(r.voter), r.log_end, r.fetched_ms_ago, r.caught_up_ms_ago, uuid.UUID(bytes=bytes(ffi.buffer(r.directory))))
                    for r in _each("kc_quorum_replica", lambda i, out: int(lib.kc_quorum_info_get(tree, i, out)))]
        return d.QuorumInfo(lib.kc_quorum_info_leader(tree), lib.kc_quorum_info_epoch(tree), lib.kc_quorum_info_high_watermark(tree), replicas)
    return Call("describe quorum", lambda o, op, e: int(lib.kc_admin_describe_quorum_start(client.handle, timeout_us, o, op, e)),
                _tree(lib.kc_op_result_quorum, lib.kc_quorum_info_free, read))


def describe_log_dirs(client: Any, broker: int, timeout_us: int) -> Call[List[d.LogDir]]:
    def read(tree: Any) -> List[d.LogDir]:
        dirs = [d.LogDir(text(c.path), _error(c.err), c.total_bytes, c.usable_bytes, [])
                for c in _each("kc_log_dir", lambda i, out: int(lib.kc_log_dir_list_get(tree, i, out)))]
        for r in _each("kc_log_dir_replica", lambda i, out: int(lib.kc_log_dir_list_replica(tree, i, out))):
            dirs[r.dir].replicas.append(d.LogDirReplica(text(r.topic), r.partition, r.size, r.lag, bool(r.future)))
        return dirs
    return Call("describe log dirs", lambda o, op, e: int(lib.kc_admin_describe_log_dirs_start(client.handle, broker, timeout_us, o, op, e)),
                _tree(lib.kc_op_result_log_dirs, lib.kc_log_dir_list_free, read))


def node_counts(client: Any, broker: int, timeout_us: int) -> Call[Dict[str, int]]:
    def read(tree: Any) -> Dict[str, int]:
        return {text(c.name): c.value for c in _each("kc_count", lambda i, out: int(lib.kc_count_list_get(tree, i, out)))}
    return Call("node counts", lambda o, op, e: int(lib.kc_admin_node_counts_start(client.handle, broker, timeout_us, o, op, e)),
                _tree(lib.kc_op_result_counts, lib.kc_count_list_free, read))


# ---- Ids


def lookup_guids(client: Any, topic: str, guids: Sequence[Any], partitions: Sequence[int], timeout_us: int) -> Call[List[d.GuidPlace]]:
    s = Strings()
    raw = [guid_bytes(g) for g in guids]
    packed, name, parts = s.keep(ffi.new("uint8_t[]", b"".join(raw) or b"\0")), s.text(topic), s.numbers(partitions)

    def read(tree: Any) -> List[d.GuidPlace]:
        return [d.GuidPlace(uuid.UUID(bytes=raw[p.guid]), STATES.get(p.state, "unknown"), p.partition, p.offset, p.leader_epoch, _error(p.err))
                for p in _each("kc_guid_place", lambda i, out: int(lib.kc_guid_list_get(tree, i, out)))]
    return Call("look up guids",
                lambda o, op, e: int(lib.kc_admin_lookup_guids_start(client.handle, name, packed, len(raw), parts, len(partitions), timeout_us, o, op, e)),
                _tree(lib.kc_op_result_guids, lib.kc_guid_list_free, read), s)


def guid_stats(client: Any, topic: str, timeout_us: int) -> Call[List[d.GuidPartition]]:
    s = Strings()
    name = s.text(topic)

    def read(tree: Any) -> List[d.GuidPartition]:
        return [d.GuidPartition(p.partition, p.leader, p.leader_epoch, _error(p.err, text(p.message)), p.high_watermark, getattr(p, "from"), p.end, p.entries,
                                p.runs, p.disk_bytes, p.memory_bytes, p.window_ms, p.finds, p.run_reads, p.hits, p.flushes, p.merges, p.forgotten)
                for p in _each("kc_guid_partition", lambda i, out: int(lib.kc_guid_list_partition(tree, i, out)))]
    return Call("guid stats", lambda o, op, e: int(lib.kc_admin_guid_stats_start(client.handle, name, timeout_us, o, op, e)),
                _tree(lib.kc_op_result_guids, lib.kc_guid_list_free, read), s)


# ---- Groups


def list_groups(client: Any, states: Sequence[str], types: Sequence[str], timeout_us: int) -> Call[d.GroupList]:
    s = Strings()
    (c_states, n_states), (c_types, n_types) = s.texts(states), s.texts(types)

    def read(tree: Any) -> d.GroupList:
        groups = [d.GroupListing(text(g.group), text(g.protocol_type), text(g.state), text(g.type), g.coordinator)
                  for g in _each("kc_group_listing", lambda i, out: int(lib.kc_group_list_get(tree, i, out)))]
        failed = {f.broker: error_class(f.err)(code=f.err)
                  for f in _each("kc_group_list_failure", lambda i, out: int(lib.kc_group_list_failed(tree, i, out)))}
        return d.GroupList(groups, failed)
    return Call("list groups",
                lambda o, op, e: int(lib.kc_admin_list_groups_start(client.handle, c_states, n_states, c_types, n_types, timeout_us, o, op, e)),
                _tree(lib.kc_op_result_groups, lib.kc_group_list_free, read), s)


def _raw(b: Any) -> bytes:
    return bytes(ffi.buffer(b.p, b.size)) if b.size else b""


def _member(m: Any) -> d.GroupMember:
    topics = [text(t) for t in (m.topics[0:m.topic_count] if m.topic_count else [])]
    assigned = [(text(a.topic), int(a.partition)) for a in (m.assigned[0:m.assigned_count] if m.assigned_count else [])]
    return d.GroupMember(text(m.id), text(m.client_id), text(m.host), None if m.instance_id == NULL else text(m.instance_id), topics, assigned,
                         _error(m.err), _raw(m.metadata), _raw(m.assignment))


def describe_groups(client: Any, groups: Sequence[str], timeout_us: int) -> Call[List[d.GroupInfo]]:
    s = Strings()
    names, n = s.texts(groups)

    def read(tree: Any) -> List[d.GroupInfo]:
        found = []
        for i, g in enumerate(_each("kc_group_info", lambda i, out: int(lib.kc_group_details_get(tree, i, out)))):
            members = [_member(m) for m in _each("kc_group_member", lambda k, out, i=i: int(lib.kc_group_details_member(tree, i, k, out)))]  # type: ignore[misc]
            found.append(d.GroupInfo(text(g.group), text(g.state), text(g.protocol_type), text(g.protocol), g.coordinator, members,
                                     _error(g.err, text(g.message))))
        return found
    return Call("describe groups", lambda o, op, e: int(lib.kc_admin_describe_groups_start(client.handle, names, n, timeout_us, o, op, e)),
                _tree(lib.kc_op_result_group_details, lib.kc_group_details_free, read), s)


def group_offsets(client: Any, groups: Sequence[str], partitions: Sequence[TopicPartition], require_stable: bool,
                  timeout_us: int) -> Call[Dict[str, List[TopicPartition]]]:
    """Raises the first group's error."""
    s = Strings()
    names, n = s.texts(groups)
    parts = s.keep(ffi.new("kc_group_partition[]", max(len(partitions), 1)))
    for c, p in zip(parts, partitions):
        c.topic, c.partition = s.text(p.topic), p.partition
    size = ffi.sizeof("kc_group_partition")

    def read(tree: Any) -> Dict[str, List[TopicPartition]]:
        found: Dict[str, List[TopicPartition]] = {}
        for i, group in enumerate(groups):
            _raise(_error(lib.kc_group_offsets_err(tree, i)))
            found[group] = [TopicPartition(text(p.topic), p.partition, p.offset, p.leader_epoch, text(p.metadata), _error(p.err))
                            for p in _each("kc_group_offset", lambda k, out, i=i: int(lib.kc_group_offsets_get(tree, i, k, out)))]  # type: ignore[misc]
        return found
    return Call("group offsets",
                lambda o, op, e: int(lib.kc_admin_group_offsets_start(client.handle, names, n, parts, size, len(partitions), int(require_stable), timeout_us,
                                                                      o, op, e)),
                _tree(lib.kc_op_result_group_offsets, lib.kc_group_offsets_free, read), s)
