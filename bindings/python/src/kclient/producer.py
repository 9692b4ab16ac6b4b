"""Producer: records in, what became of them out."""
import os
import threading
import time
import uuid
import warnings
from collections import deque
from dataclasses import dataclass
from typing import Any, Callable, Deque, Dict, Iterator, List, Optional, Tuple

from . import _alive
from ._fast import Report, Sender
from ._native import ffi, lib
from ._types import Data, Headers
from ._wait import FOREVER, SLICE_US, TIMED_OUT, Call, finished, micros, nothing
from .client import Place, client_of, effective
from .errors import Closed, DeliveryFailed, ErrorSlot, Forked, KafkaError, TimedOut, borrowed, check, of_code
from .guid import Guid

FAILURES_KEPT = 1000
Partitioner = Callable[[str, Optional[bytes], int], Optional[int]]


@dataclass(frozen=True)
class ProducerStats:
    """What waits and what was done (kc_producer_stats)."""

    queued_records: int
    queued_bytes: int
    in_flight_requests: int
    records_ok: int
    records_failed: int
    batches_sent: int
    bytes_sent: int
    retries: int
    records_duplicate: int


def flush_call(handle: Any) -> Call[None]:
    """Ends when all that was accepted before has its outcome."""
    return Call("flush", lambda opaque, op, error: int(lib.kc_producer_flush_start(handle, opaque, op, error)), nothing)


def close_call(handle: Any, timeout_us: int) -> Call[None]:
    return Call("close", lambda opaque, op, error: int(lib.kc_producer_close_start(handle, timeout_us, opaque, op, error)), nothing)


class PartitionerSlot:
    """A Python partitioner behind C's: what it raises is kept for the send that asked, of the same thread."""

    def __init__(self, fn: Partitioner, topic_name: Callable[[int], str]) -> None:
        self.fn = fn
        self.topic_name = topic_name
        self.raised = threading.local()

    def __call__(self, topic: int, key: Optional[bytes], count: int) -> int:
        try:
            choice = self.fn(self.topic_name(topic), key, count)
            if choice is None:
                return -1
            if not isinstance(choice, int) or not 0 <= choice < count:
                raise ValueError(f"the partitioner chose {choice!r}: 0 to {count - 1}, or None for the configured one")
            return choice
        except BaseException as e:
            self.raised.error = e
            return -2

    def take(self) -> Optional[BaseException]:
        error: Optional[BaseException] = getattr(self.raised, "error", None)
        self.raised.error = None
        return error


def kclient_py_partitioner(ctx: Any, topic: int, key: Any, key_size: int, has_key: int, count: int) -> int:
    slot: PartitionerSlot = ffi.from_handle(ctx)
    return slot(topic, bytes(ffi.buffer(key, key_size)) if has_key else None, count)


ffi.def_extern(error=-2)(kclient_py_partitioner)


def new_producer(client: Any, config: Any) -> Any:
    """The C handle of a new producer, freed by garbage collection."""
    out, slot = ffi.new("kc_producer **"), ErrorSlot()
    slot.check(lib.kc_producer_new(client.handle, config._c if config is not None else ffi.NULL, out, slot.p), "producer")
    return ffi.gc(out[0], lib.kc_producer_free)


class ProducerBase(Sender):
    """What the synchronous and the asyncio producer share: how one is made, the partitioner, and what a refused send raises."""

    _close_rank = 1
    _partitioner: Optional[PartitionerSlot] = None

    def _open(self, place: Place, named: Dict[str, Any], partitioner: Optional[Partitioner], enqueue_us: Optional[int] = None) -> None:
        self.client, config, self._owns_client = client_of(place, named)
        self.handle: Any = new_producer(self.client, config)
        self._pid = os.getpid()
        self._closed = False
        self._callbacks: Dict[int, Callable[[Report], object]] = {}
        self._inbox: List[Report] = []
        if enqueue_us is None:
            ms = int(effective(self.client, config).get("queue.enqueue.timeout.ms") or -1)
            enqueue_us = ms * 1000 if ms >= 0 else FOREVER
        self._attach(int(ffi.cast("uintptr_t", self.client.handle)), int(ffi.cast("uintptr_t", self.handle)), self.handle, self.client._topics,
                     self.client._names, self._callbacks, self._inbox, enqueue_us)
        if partitioner is not None:
            self._partitioner = PartitionerSlot(partitioner, self.client.topic_name)
            self._partitioner_handle = ffi.new_handle(self._partitioner)
            check(lib.kc_producer_partitioner_set(self.handle, lib.kclient_py_partitioner, self._partitioner_handle), "partitioner")

    def _topic_number(self, topic: str) -> int:
        return self.client.topic(topic)

    def _send_error(self, code: int, topic: str, accepted: int) -> BaseException:
        """What a send raises that was refused with this code."""
        if self._partitioner is not None:
            raised = self._partitioner.take()
            if raised is not None:
                return raised
        fatal = lib.kc_producer_fatal(self.handle)
        if fatal != ffi.NULL:
            try:
                if lib.kc_error_code(fatal) == code:
                    return borrowed(fatal, accepted)
            finally:
                lib.kc_error_free(fatal)
        return of_code(code, f"send to {topic}", accepted)

    def guid(self) -> uuid.UUID:
        """A new record id (UUIDv7), ascending within the producer."""
        out = ffi.new("uint8_t[16]")
        check(lib.kc_producer_guid_make(self.handle, out), "guid")
        return uuid.UUID(bytes=bytes(ffi.buffer(out)))

    def stats(self) -> ProducerStats:
        out = ffi.new("kc_producer_stats *")
        check(lib.kc_producer_stats_get(self.handle, out, ffi.sizeof("kc_producer_stats")), "stats")
        return ProducerStats(*(int(getattr(out, name)) for name in ProducerStats.__dataclass_fields__))

    def purge(self, in_flight: bool = False) -> None:
        """Fails what is queued, and what is in flight if asked, with Cancelled."""
        check(lib.kc_producer_purge(self.handle, lib.KC_PURGE_QUEUED | (lib.KC_PURGE_IN_FLIGHT if in_flight else 0)), "purge")

    @property
    def fatal(self) -> Optional[KafkaError]:
        """The error that ended the producer; None: it works."""
        e = lib.kc_producer_fatal(self.handle)
        if e == ffi.NULL:
            return None
        try:
            return borrowed(e)
        finally:
            lib.kc_error_free(e)

    @property
    def closed(self) -> bool:
        return self._closed

    def __len__(self) -> int:
        """Records that were accepted and have no outcome yet, or whose report was not taken."""
        return self.stats().queued_records

    def __bool__(self) -> bool:
        return True

    def __del__(self) -> None:
        if getattr(self, "_closed", True) or self._pid != os.getpid():
            return
        warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self)
        _alive.close_behind(repr(self), self.handle, self.client)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} to {self.client.config.get('bootstrap.servers')}{', closed' if self._closed else ''}>"


class Producer(ProducerBase):
    """A producer.

        with Producer(bootstrap_servers="localhost:9092") as producer:
            producer.send("greetings", "hello", key="en")          # returns quickly
            report = producer.send_wait("greetings", "bonjour")    # returns once it is stored: report.partition, report.offset

    The first argument is a Client to share, or nothing, for one of its own; others are properties (linger_ms=20, acks=1, …). reports=True: every
    record has a report, to be taken by reports(). partitioner: called as (topic, key, partition count) for records without a partition;
    returns one, or None for the configured one. Any thread may use it. Leaving `with` closes it, which sends what is queued.
    """

    def __init__(self, client: Place = None, *, reports: bool = False, partitioner: Optional[Partitioner] = None, **properties: Any) -> None:
        self._open(client, properties, partitioner)
        self._track = int(reports)
        self._lock = threading.RLock()  # of the next four; a signal's handler may come while it is held
        self._failures: Deque[Report] = deque()
        self._failed = 0
        self._beyond: Optional[Report] = None  # the last failure that was counted alone
        self._told: Deque[Report] = deque()  # out of the inbox, on their way to reports()
        self._turn = threading.Condition()
        self._leading = False
        self._closing: Optional[Tuple[Call[None], Any]] = None
        _alive.opened(self)

    # -- reports

    def _take(self, timeout_us: int) -> int:
        """Takes reports: on_report is called, failures without one are kept for flush(). The kc_err of the library."""
        try:
            return self._drain(timeout_us)
        finally:
            self._sort_inbox()

    def _out_of_the_inbox(self) -> List[Report]:
        count = len(self._inbox)  # another thread may add to it
        taken = self._inbox[:count]
        del self._inbox[:count]
        return taken

    def _sort_inbox(self) -> None:
        if self._track or not self._inbox:
            return
        with self._lock:
            for report in self._out_of_the_inbox():
                if report.error is None:
                    continue
                self._failed += 1
                if len(self._failures) < FAILURES_KEPT:
                    self._failures.append(report)
                else:
                    self._beyond = report

    def _make_room(self) -> None:
        """The queue is full (native/sender.c): reports that wait hold places in it."""
        self._take(5_000 if self._callbacks or self._track else 0)
        if self._track and len(self._inbox) + len(self._told) >= 100_000:
            raise of_code(lib.KC_QUEUE_FULL, "send: 100000 reports wait: take them with reports()")

    def _raise_failures(self) -> None:
        with self._lock:
            failures, count, beyond = list(self._failures), self._failed, self._beyond
            self._failures.clear()
            self._failed, self._beyond = 0, None
        if not failures and beyond is not None:  # reports() gave those that were kept
            failures = [beyond]
        if count:
            raise DeliveryFailed(failures, count)

    def poll_reports(self, timeout: Optional[float] = 0.0) -> None:
        """Calls on_report of the records that have their outcome, waiting for the first of them at most so long. What it raises is raised here, once all
        were called."""
        self._take(micros(timeout))
        self.client.drain_logs()

    def reports(self, timeout: Optional[float] = 0.0) -> Iterator[Report]:
        """Reports of records without on_report (of all with reports=True, of failures otherwise), waiting for the first at most so long; ends when none is
        left at hand."""
        if not self._inbox and not self._failures and not self._told:
            self._await(lambda: bool(self._inbox or self._failures or self._told), micros(timeout))
        while True:
            report = self._next_report()
            while report is not None:
                yield report
                report = self._next_report()
            if self._drain(0) != 0 and not self._inbox:
                return

    def _next_report(self) -> Optional[Report]:
        """Of those at hand."""
        with self._lock:
            if self._failures:
                self._failed -= 1
                return self._failures.popleft()
            if not self._told:
                self._told.extend(self._out_of_the_inbox())
            return self._told.popleft() if self._told else None

    def _await(self, done: Callable[[], bool], timeout_us: int) -> bool:
        """Takes reports until done() or the limit. One thread at a time takes them, and the others wait for it to pass on what is theirs; it looks up now
        and then, since flush() in another thread may have taken its own."""
        deadline = None if timeout_us < 0 else time.monotonic() + timeout_us / 1e6
        while not done():
            left = SLICE_US if deadline is None else min(SLICE_US, int((deadline - time.monotonic()) * 1e6))
            code = self._await_once(max(left, 0))
            if left <= 0 or code not in (0, lib.KC_TIMED_OUT):
                if code not in (0, lib.KC_TIMED_OUT) and not done():
                    raise of_code(code, "reports")
                return done()
        return True

    def _await_once(self, us: int) -> int:
        with self._turn:
            if self._leading:
                self._turn.wait(us / 1e6)
                return TIMED_OUT
            self._leading = True
        try:
            return self._take(us)
        finally:
            with self._turn:
                self._leading = False
                self._turn.notify_all()

    # -- sending

    def send_wait(self, topic: str, value: Data, key: Data = None, headers: Optional[Headers] = None, partition: Optional[int] = None,
                  timestamp: Optional[int] = None, guid: Optional[Guid] = None, timeout: Optional[float] = None) -> Report:
        """Sends a record and waits until it is stored; raises its error otherwise, with what was tried. It leaves at once, linger does not hold it back.
        timeout: of the wait (TimedOut: the record may still be stored); None: the record's own, delivery.timeout.ms."""
        box: List[Report] = []
        self._send_now(topic, value, key, headers, partition, timestamp, guid, box.append)
        limit = micros(timeout)
        while not self._await(lambda: bool(box), limit):
            if limit != FOREVER:
                raise TimedOut(f"send to {topic}: no outcome within {timeout} s; the record may still be stored")
        return box[0].raise_for_error()

    def flush(self, timeout: Optional[float] = None) -> None:
        """Sends what is queued and waits for the outcome of all of it; calls on_report. DeliveryFailed: records without an on_report failed, now or since the
        last flush. TimedOut: some have no outcome yet."""
        flush_call(self.handle).run(micros(timeout))
        self._take(0)
        self.client.drain_logs()
        self._raise_failures()

    def close(self, timeout: Optional[float] = None) -> None:
        """Sends what it can within the limit, fails the rest; every accepted record has its report then: on_report is called. DeliveryFailed as in flush. A
        second close does nothing."""
        if self._closed:
            return
        if self._closing is None:
            self._closing = self._start_close(micros(timeout))
        call, op = self._closing
        if op is not None and not finished(op, micros(timeout)):  # its own limit ends it, unless this is a second try, after a Ctrl-C
            self.purge(in_flight=True)
            finished(op, FOREVER)
        self._closed = True
        try:
            while self._take(0) == 0:  # until KC_CLOSED: closed and drained
                pass
            self._finish_close(call, op)
        except BaseException as e:
            self._closed = isinstance(e, Exception)  # after a Ctrl-C reports may be left: for another close(), or the interpreter's exit
            raise
        finally:
            if self._closed:
                _alive.closed(self)
                if self._owns_client:
                    self.client.close()
        self._raise_failures()

    def _start_close(self, timeout_us: int) -> "tuple[Call[None], Any]":
        call = close_call(self.handle, timeout_us)
        try:
            return call, call.begin()
        except (Closed, Forked):
            return call, None

    def _finish_close(self, call: Call[None], op: Any) -> None:
        if self._pid == os.getpid():
            self.client.drain_logs()
        try:
            if op is not None:
                call.finish(op)
        except TimedOut:  # some were failed for it, as their reports say
            pass

    def _close_at_exit(self, timeout: float) -> None:
        self.close(timeout)

    def __enter__(self) -> "Producer":
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        if kind is None:
            self.close()
        else:
            try:
                self.close()
            except KafkaError as e:  # the exception on its way is the one to see
                warnings.warn(f"{self!r}: {e}", RuntimeWarning)
