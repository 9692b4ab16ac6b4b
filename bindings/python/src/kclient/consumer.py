"""Consumer: records out, one by one or in batches, by assignment or as a member of a group."""
import os
import warnings
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple, Union

from . import _alive
from ._fast import Event, Record, RecordBatch, Source
from ._native import ffi, lib
from ._wait import TIMED_OUT, Call, finished, micros, nothing, wait
from .client import Place, client_of, effective
from .errors import Closed, ErrorSlot, Forked, KafkaError, TimedOut, borrowed, check, error_class, of_code, text

BEGINNING: int = lib.KC_OFFSET_BEGINNING
END: int = lib.KC_OFFSET_END
RESET: int = lib.KC_OFFSET_RESET
COMMITTED: int = lib.KC_OFFSET_COMMITTED


class TopicPartition(NamedTuple):
    """A partition, and where it matters an offset: a number, or BEGINNING, END, COMMITTED, RESET (as auto.offset.reset says)."""

    topic: str
    partition: int
    offset: int = RESET
    leader_epoch: int = -1
    metadata: str = ""
    error: Optional[KafkaError] = None


Partition = Union[TopicPartition, Tuple[str, int], Tuple[str, int, int]]
Partitions = Union[Partition, Iterable[Partition]]
Processed = Union[Record, RecordBatch, TopicPartition, Tuple[str, int, int]]


@dataclass(frozen=True)
class Assigned:
    """The partitions are the consumer's from now on, besides those that it has. Nothing of them is delivered before the next poll."""

    partitions: List[TopicPartition]


@dataclass(frozen=True)
class Revoked:
    """The partitions are to be given up; offsets may be committed until the next poll."""

    partitions: List[TopicPartition]


@dataclass(frozen=True)
class LostPartitions:
    """The partitions are no longer the consumer's: another member may have them already."""

    partitions: List[TopicPartition]


@dataclass(frozen=True)
class PartitionEnd:
    """The end of a partition was reached (enable.partition.eof)."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True)
class ConsumerError:
    """Told once; the consumer goes on. position_before: of DataLost, where the consumer was; records from offset up to there are gone."""

    error: KafkaError
    topic: str
    partition: int
    offset: int
    position_before: int


Happening = Union[RecordBatch, Assigned, Revoked, LostPartitions, PartitionEnd, ConsumerError]
OnPartitions = Callable[[Any, List[TopicPartition]], object]


@dataclass(frozen=True)
class Why:
    """What a partition waits for; of the membership (topic "", partition -1), too. text: as a sentence."""

    topic: str
    partition: int
    state: int
    broker: int
    since: float
    last_error: Optional[KafkaError]
    text: str


# ---- C's shapes


def as_partitions(partitions: Partitions) -> List[TopicPartition]:
    """One or many, as tuples or TopicPartition."""
    if isinstance(partitions, tuple) and partitions and isinstance(partitions[0], str):
        partitions = [partitions]
    return [p if isinstance(p, TopicPartition) else TopicPartition(*p) for p in partitions]  # type: ignore[misc]


def to_c(client: Any, partitions: Sequence[TopicPartition], kind: str = "kc_topic_partition") -> Any:
    """An array of kc_topic_partition or kc_offset (whose metadata lives as long as the array's `keep`)."""
    out = ffi.new(f"{kind}[]", max(len(partitions), 1))
    for c, p in zip(out, partitions):
        c.topic, c.partition, c.offset, c.leader_epoch = client.topic(p.topic), p.partition, p.offset, p.leader_epoch
    return out


def from_c(client: Any, array: Any, n: int) -> List[TopicPartition]:
    return [TopicPartition(client.topic_name(c.topic), c.partition, c.offset, c.leader_epoch, "", error_class(c.err)(code=c.err) if c.err else None)
            for c in array[0:n]]


def offsets_to_c(client: Any, offsets: Sequence[TopicPartition]) -> Tuple[Any, List[Any]]:
    """An array of kc_offset, and what it points into."""
    array, keep = to_c(client, offsets, "kc_offset"), []
    for c, p in zip(array, offsets):
        if p.metadata:
            raw = p.metadata.encode()
            keep.append(ffi.from_buffer(raw))
            c.metadata.p, c.metadata.size = keep[-1], len(raw)
    return array, keep


def event_partitions(client: Any, event: Event) -> List[TopicPartition]:
    """Of an ASSIGNED, REVOKED or LOST."""
    e = ffi.cast("kc_event *", event.address)
    n = lib.kc_event_partitions(e, ffi.NULL, ffi.sizeof("kc_topic_partition"), 0)
    out = ffi.new("kc_topic_partition[]", max(n, 1))
    lib.kc_event_partitions(e, out, ffi.sizeof("kc_topic_partition"), n)
    return from_c(client, out, n)


def happening(client: Any, event: Union[RecordBatch, Event]) -> Optional[Happening]:
    """The Python shape of an event; None: of a kind that is not known."""
    if isinstance(event, RecordBatch):
        return event
    if event.kind == lib.KC_EVENT_ASSIGNED:
        return Assigned(event_partitions(client, event))
    if event.kind == lib.KC_EVENT_REVOKED:
        return Revoked(event_partitions(client, event))
    if event.kind == lib.KC_EVENT_LOST:
        return LostPartitions(event_partitions(client, event))
    if event.kind == lib.KC_EVENT_PARTITION_END:
        return PartitionEnd(event.topic or "", event.partition, event.offset)
    if event.kind == lib.KC_EVENT_ERROR:
        e = ffi.cast("kc_event *", event.address)
        return ConsumerError(borrowed(lib.kc_event_error(e)), event.topic or "", event.partition, event.offset, lib.kc_event_position_before(e))
    return None


def processed_offset(item: Processed) -> TopicPartition:
    """Up to where a record, a batch or an explicit offset is processed."""
    if isinstance(item, Record):
        return TopicPartition(item.topic, item.partition, item.offset + 1)
    if isinstance(item, RecordBatch):
        return TopicPartition(item.topic, item.partition, item.next_offset)
    return as_partitions(item)[0]


# ---- Slow calls, for both APIs


def offsets_result(client: Any, n: int, committed: bool) -> Callable[[Any, Optional[Exception]], List[TopicPartition]]:
    """Raises the first partition's error, whose `results` tell of each."""
    def result(op: Any, error: Optional[Exception]) -> List[TopicPartition]:
        shape, read = ("kc_offset", lib.kc_op_result_committed) if committed else ("kc_topic_partition", lib.kc_op_result_offsets)
        out = ffi.new(f"{shape}[]", max(n, 1))
        count = read(op, out, ffi.sizeof(shape), n)
        found = from_c(client, out, min(count, n))
        if committed:
            found = [p._replace(metadata=ffi.buffer(c.metadata.p, c.metadata.size)[:].decode("utf-8", "replace") if c.metadata.size else "")
                     for p, c in zip(found, out)]
        if error is not None:  # an offset of -1 must not be taken for an answer
            if isinstance(error, KafkaError):
                error.results = list(found)
            raise error
        return found
    return result


def commit_call(client: Any, handle: Any, offsets: Optional[Sequence[TopicPartition]]) -> Call[None]:
    """None: all that is processed and not committed yet. Raises the first item's error."""
    n = len(offsets or ())
    array, keep = offsets_to_c(client, offsets) if offsets else (ffi.NULL, [])
    size = ffi.sizeof("kc_offset")
    return Call("commit", lambda opaque, op, error: int(lib.kc_consumer_commit_start(handle, array, size, n, opaque, op, error)), nothing,
                (array, keep))


def committed_call(client: Any, handle: Any, partitions: Sequence[TopicPartition]) -> Call[List[TopicPartition]]:
    array, n = to_c(client, partitions), len(partitions)
    size = ffi.sizeof("kc_topic_partition")
    return Call("committed", lambda opaque, op, error: int(lib.kc_consumer_committed_start(handle, array, size, n, opaque, op, error)),
                offsets_result(client, n, True), array)


def offsets_call(client: Any, handle: Any, partitions: Sequence[TopicPartition]) -> Call[List[TopicPartition]]:
    array, n = to_c(client, partitions), len(partitions)
    size = ffi.sizeof("kc_topic_partition")
    return Call("offsets", lambda opaque, op, error: int(lib.kc_consumer_offsets_start(handle, array, size, n, opaque, op, error)),
                offsets_result(client, n, False), array)


def close_call(handle: Any, timeout_us: int) -> Call[None]:
    return Call("close", lambda opaque, op, error: int(lib.kc_consumer_close_start(handle, timeout_us, opaque, op, error)), nothing)


def new_consumer(client: Any, config: Any, mode: int) -> Any:
    """The C handle of a new consumer, freed by garbage collection."""
    out, slot = ffi.new("kc_consumer **"), ErrorSlot()
    slot.check(lib.kc_consumer_new(client.handle, config._c if config is not None else ffi.NULL, mode, out, slot.p), "consumer")
    return ffi.gc(out[0], lib.kc_consumer_free)


class ConsumerBase(Source):
    """What the synchronous and the asyncio consumer share: how one is made, and the calls that do not wait."""

    _close_rank = 0
    client: Any

    def _open(self, place: Place, named: Dict[str, Any], processed: str) -> None:
        if processed not in ("poll", "explicit"):
            raise ValueError(f'processed is "poll" or "explicit", not {processed!r}')
        self.client, config, self._owns_client = client_of(place, named)
        self._explicit = processed == "explicit"
        self.handle: Any = new_consumer(self.client, config, lib.KC_PROCESSED_EXPLICIT if self._explicit else lib.KC_PROCESSED_BY_POLL)
        self.config = effective(self.client, config)
        self._group = self.config.get("group.id") or ""
        self._pid = os.getpid()
        self._closed = False
        self._attach(int(ffi.cast("uintptr_t", self.client.handle)), int(ffi.cast("uintptr_t", self.handle)), self.handle, self.client._names)

    def _items(self, function: Any, partitions: Partitions, what: str) -> List[TopicPartition]:
        """A call over partitions that writes into them; raises the first item's error."""
        asked = as_partitions(partitions)
        array = to_c(self.client, asked)
        code = function(self.handle, array, ffi.sizeof("kc_topic_partition"), len(asked))
        found = from_c(self.client, array, len(asked))
        if code:
            wrong = [f"{p.topic}[{p.partition}]" for p in found if p.error is not None]
            raise of_code(code, f"{what}{' of ' + ', '.join(wrong) if wrong else ''}")
        return found

    def assign(self, partitions: Partitions) -> None:
        """Reads these partitions, each from its offset (by default as auto.offset.reset says, or where the group has committed: COMMITTED), in place of any
        assignment before."""
        asked, slot = as_partitions(partitions), ErrorSlot()
        slot.check(lib.kc_consumer_assign(self.handle, to_c(self.client, asked), ffi.sizeof("kc_topic_partition"), len(asked), slot.p), "assign")
        batch = self._batch
        if batch is not None and (batch.topic, batch.partition) not in {(p.topic, p.partition) for p in asked}:
            self._forget()

    def _subscribe(self, topics: Union[str, Iterable[str]], regex: bool) -> None:
        names = [topics] if isinstance(topics, str) else list(topics)
        keep = [ffi.new("char[]", name.encode()) for name in names]
        array, slot = ffi.new("const char *[]", keep), ErrorSlot()
        function = lib.kc_consumer_subscribe_regex if regex else lib.kc_consumer_subscribe
        slot.check(function(self.handle, array, len(names), slot.p), "subscribe")

    def unsubscribe(self) -> None:
        """Ends the subscription; the partitions are given up at once, and the member leaves the group."""
        slot = ErrorSlot()
        slot.check(lib.kc_consumer_unsubscribe(self.handle, slot.p), "unsubscribe")
        self._forget()

    def seek(self, partitions: Partitions, offset: Optional[int] = None) -> None:
        """Moves the position, before the next poll: seek(("t", 0), 42), or of several seek([("t", 0, 42), …]). What was read ahead is dropped."""
        asked = as_partitions(partitions)
        if offset is not None:
            asked = [p._replace(offset=offset) for p in asked]
        self._items(lib.kc_consumer_seek, asked, "seek")
        batch = self._batch
        if batch is not None and (batch.topic, batch.partition) in {(p.topic, p.partition) for p in asked}:
            self._forget()

    def pause(self, partitions: Partitions) -> None:
        """Nothing more of these is delivered until resume()."""
        self._items(lib.kc_consumer_pause, partitions, "pause")

    def resume(self, partitions: Partitions) -> None:
        self._items(lib.kc_consumer_resume, partitions, "resume")

    def position(self, partitions: Partitions) -> List[TopicPartition]:
        """The offsets that poll delivers next; RESET while one is being looked up."""
        return self._items(lib.kc_consumer_position, partitions, "position")

    def lag(self, partitions: Partitions) -> List[TopicPartition]:
        """How many offsets there are from the position to the end (in `offset`), as the last fetch told it; -1 unknown."""
        return self._items(lib.kc_consumer_lag, partitions, "lag")

    def processed(self, *items: Processed) -> None:
        """Marks records, batches or offsets as processed, which is what automatic commits and commit() commit. Needs processed="explicit"."""
        offsets = [processed_offset(item) for item in items]
        self._items(lib.kc_consumer_processed, offsets, "processed")

    @property
    def assignment(self) -> List[TopicPartition]:
        """The partitions that it reads, with their positions."""
        found = [(w.topic, w.partition) for w in self.why() if w.partition >= 0]
        return self.position(found) if found else []

    def why(self) -> List[Why]:
        """What each partition, and the membership, waits for, since when, and on whom."""
        count, n = ffi.new("size_t *"), 64
        while True:
            out = ffi.new("kc_why[]", n)
            check(lib.kc_consumer_why(self.handle, out, ffi.sizeof("kc_why"), n, count), "why")
            if count[0] <= n:
                break
            n = count[0]
        return [Why(self.client.topic_name(w.topic) if w.topic else "", w.partition, w.state, w.broker, w.since_us / 1e6,
                    error_class(w.last_error)(code=w.last_error) if w.last_error else None, text(w.text)) for w in out[0:count[0]]]

    @property
    def member(self) -> Tuple[int, str]:
        """Generation (-1: none) and member id of the membership at this moment."""
        generation, member = ffi.new("int32_t *"), ffi.new("char[]", 512)
        lib.kc_consumer_member(self.handle, generation, member, 512)
        return generation[0], text(member)

    def wake(self) -> None:
        """Ends the wait that is under way in another thread, or the next one: poll gives None, iteration ends."""
        lib.kc_consumer_wake(self.handle)

    def _to_commit(self, items: Tuple[Processed, ...]) -> Optional[List[TopicPartition]]:
        """Of commit(*items): items, or what was given out last and poll has not marked yet; None: only what is marked."""
        if items:
            return [processed_offset(i) for i in items]
        given = self._given
        return [TopicPartition(*given)] if given is not None and not self._explicit else None

    @property
    def closed(self) -> bool:
        return self._closed

    def __del__(self) -> None:
        if not getattr(self, "_closed", True) and self._pid == os.getpid():
            warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self)

    def __repr__(self) -> str:
        group = f" in {self._group}" if self._group else ""
        return f"<{type(self).__name__}{group} of {self.client.config.get('bootstrap.servers')}{', closed' if self._closed else ''}>"


class Consumer(ConsumerBase):
    """A consumer.

        with Consumer(bootstrap_servers="localhost:9092", group_id="billing", topics=["orders"]) as consumer:
            for record in consumer:
                print(record.offset, record.key, record.value)

    The first argument is a Client to share, or nothing, for one of its own; others are properties (auto_offset_reset="earliest", …). topics
    subscribes as a member of group_id; without it, call subscribe() or assign(). on_assigned(consumer, partitions), on_revoked and on_lost are
    called inside poll: seek() in on_assigned, commit() in on_revoked take effect. processed: "poll": what poll gave is processed when it is called
    again; "explicit": what processed() is told; with enable.auto.commit (the default) that is committed. One thread may poll; any may call the rest.
    Errors of single partitions are raised by poll; reading goes on with the next call. Leaving `with` closes it: it leaves the group.
    """

    def __init__(self, client: Place = None, *, topics: Union[str, Iterable[str], None] = None, processed: str = "poll",
                 on_assigned: Optional[OnPartitions] = None, on_revoked: Optional[OnPartitions] = None, on_lost: Optional[OnPartitions] = None,
                 stop_at_end: bool = False, **properties: Any) -> None:
        """stop_at_end: iteration ends once every assigned partition was read to its end, poll_batch() and poll_record() then give None."""
        if stop_at_end:
            properties.setdefault("enable_partition_eof", True)
        self._open(client, properties, processed)
        self._on = {lib.KC_EVENT_ASSIGNED: on_assigned, lib.KC_EVENT_REVOKED: on_revoked, lib.KC_EVENT_LOST: on_lost}
        self._stop_at_end = stop_at_end
        self._ends: Dict[Tuple[str, int], int] = {}
        self._closing: Optional[Tuple[Call[None], Any]] = None
        self._held: Any = None
        _alive.opened(self)
        if topics is not None:
            try:
                self.subscribe(topics)
            except BaseException:
                self.close()
                raise

    def subscribe(self, topics: Union[str, Iterable[str]], *, regex: bool = False, on_assigned: Optional[OnPartitions] = None,
                  on_revoked: Optional[OnPartitions] = None, on_lost: Optional[OnPartitions] = None) -> None:
        """Joins the group for these topics, in place of an earlier subscription; regex: for all that match one of these patterns (POSIX extended)."""
        for kind, function in ((lib.KC_EVENT_ASSIGNED, on_assigned), (lib.KC_EVENT_REVOKED, on_revoked), (lib.KC_EVENT_LOST, on_lost)):
            if function is not None:
                self._on[kind] = function
        self._subscribe(topics, regex)

    # -- events

    def _on_event(self, event: Event) -> bool:
        """Deals with what is no records, inside poll (native/source.c). True: poll goes on, False: it gives None."""
        shape = happening(self.client, event)
        if isinstance(shape, ConsumerError):
            raise shape.error
        if isinstance(shape, PartitionEnd):
            return self._at_end(shape)
        if isinstance(shape, (Assigned, Revoked, LostPartitions)):
            self._changed(event, shape)
        return True

    def _changed(self, event: Event, shape: Union[Assigned, Revoked, LostPartitions]) -> None:
        function = self._on.get(event.kind)
        try:
            if function is not None:
                function(self, shape.partitions)
        finally:
            if not isinstance(shape, Assigned):
                gone = {(p.topic, p.partition) for p in shape.partitions}
                self._ends = {k: v for k, v in self._ends.items() if k not in gone}
                batch = self._batch
                if batch is not None and (batch.topic, batch.partition) in gone:
                    self._forget()
        code = lib.kc_event_ack(ffi.cast("kc_event *", event.address))
        if code not in (0, lib.KC_LOST):  # too late: LOST comes by itself
            raise of_code(code, "acknowledging a rebalance")

    def _at_end(self, end: PartitionEnd) -> bool:
        if not self._stop_at_end:
            return True
        self._ends[end.topic, end.partition] = end.offset
        return not all((p.topic, p.partition) in self._ends and p.offset >= self._ends[p.topic, p.partition] for p in self.assignment)

    def poll(self, timeout: Optional[float] = None) -> Optional[Happening]:
        """The next event of any kind: a RecordBatch, Assigned, Revoked, LostPartitions, PartitionEnd or ConsumerError; None: none within the timeout, or
        wake(). Callbacks are not called. An Assigned or Revoked is acknowledged by the next poll."""
        batch = self._batch
        if batch is not None and self._given != (batch.topic, batch.partition, batch.next_offset):
            return self.poll_batch(0)  # the rest of one that iteration has begun
        self._forget()
        self._held = None
        event = self._held = self._poll(micros(timeout))  # freeing an event acknowledges it
        if isinstance(event, int):
            self.client.drain_logs()
            if event in (TIMED_OUT, lib.KC_WOKEN):
                return None
            raise of_code(event, "poll")
        return happening(self.client, event)

    def await_assigned(self, timeout: Optional[float] = None) -> None:
        """Waits until the group has given this member its partitions, of which the next poll tells on_assigned. TimedOut: why() tells on whom it waits."""
        slot = ErrorSlot()
        code = wait(lambda us: int(lib.kc_consumer_await_assigned(self.handle, us, ffi.NULL)), micros(timeout))
        slot.check(code, "await_assigned")

    # -- offsets

    def commit(self, *items: Processed, timeout: Optional[float] = None) -> None:
        """Commits and waits. commit(): what is processed, and what was given out last (with processed="poll"); commit(record), commit(batch): up to
        and with these; commit(("t", 0, 42)): that the next to be read is 42. Raises the first partition's error, NotAssigned among them."""
        offsets = self._to_commit(items)
        if not items:
            commit_call(self.client, self.handle, None).run(micros(timeout))
        if offsets:
            commit_call(self.client, self.handle, offsets).run(micros(timeout))

    def committed(self, partitions: Partitions, timeout: Optional[float] = None) -> List[TopicPartition]:
        """The group's committed offsets of any partitions; offset -1: none. Raises the first partition's error, whose `results` tell of each."""
        return committed_call(self.client, self.handle, as_partitions(partitions)).run(micros(timeout))

    def offsets(self, partitions: Partitions, timeout: Optional[float] = None) -> List[TopicPartition]:
        """Looks offsets up, of any partitions: each one's offset is BEGINNING, END, or a time in ms since 1970; -1: none at or after that.
        Raises the first partition's error, whose `results` tell of each."""
        return offsets_call(self.client, self.handle, as_partitions(partitions)).run(micros(timeout))

    # -- the end

    def close(self, timeout: Optional[float] = 30.0) -> None:
        """Gives partitions up (on_revoked is not called), commits what is processed (enable.auto.commit), leaves the group. Batches already given out stay
        readable. A second close does nothing."""
        if self._closed:
            return
        if self._closing is None:
            call = close_call(self.handle, micros(timeout))
            try:
                self._closing = call, call.begin()
            except (Closed, Forked):
                self._closing = call, None
        call, op = self._closing
        if op is not None and not finished(op, micros(timeout)):
            raise TimedOut("close: still under way; it ends without waiting any further")
        self._closed = True
        try:
            self._forget()
            if self._pid == os.getpid():
                self.client.drain_logs()
            if op is not None:
                call.finish(op)
        finally:
            _alive.closed(self)
            if self._owns_client:
                self.client.close()

    def _close_at_exit(self, timeout: float) -> None:
        self.close(timeout)

    def __enter__(self) -> "Consumer":
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        try:
            self.close()
        except KafkaError as e:
            if kind is None:
                raise
            warnings.warn(f"{self!r}: {e}", RuntimeWarning)
