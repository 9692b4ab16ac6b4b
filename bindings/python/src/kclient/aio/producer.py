"""The asyncio producer: records in, a future or a coroutine for the outcome of each."""

from __future__ import annotations

import asyncio
import time
import warnings
from collections import deque
from typing import Any, Callable, Deque, List, Optional, Sequence, Tuple

from .. import _alive
from .._fast import Group, Report
from .._native import ffi, lib
from .._types import Data, Headers
from .._wait import micros
from ..client import Place
from ..errors import Busy, Closed, DeliveryFailed, Forked, KafkaError, Outcome, QueueFull, TimedOut
from ..guid import Guid
from ..producer import FAILURES_KEPT, Partitioner, ProducerBase, close_call, flush_call
from ._loop import STEP, Driver, Role, driver_of

#: How soon a send is tried again that waits for something that nobody tells of: a topic's partition count, for a partitioner of the application's.
_RETRY = 0.01


class Producer(ProducerBase, Role):
    """A producer in an event loop.

        async with Producer(bootstrap_servers="localhost:9092") as producer:
            report = await producer.send("greetings", "hello", key="en")          # returns once it is stored
            futures = [producer.send_nowait("greetings", text) for text in texts]  # many on their way
            reports = await asyncio.gather(*futures)
            reports = await producer.send_many("greetings", texts)                 # the same, much faster

    Arguments as for kclient.Producer. Made inside a running event loop, and used in that one alone. The client's own thread sends and compresses; with
    client_thread="none" the event loop does. Leaving `async with` closes it, which sends what is queued.
    """

    def __init__(self, client: Place = None, *, partitioner: Optional[Partitioner] = None, **properties: Any) -> None:
        self._loop = asyncio.get_running_loop()
        self._open(client, properties, partitioner, enqueue_us=0)
        self._driver: Driver = driver_of(self.client)
        self._driver.join(self, int(ffi.cast("uintptr_t", self.handle)))
        self._in_loop(self._loop.create_future)
        self._waiting: Deque[Tuple[Callable[[], bool], "asyncio.Future[None]"]] = deque()
        self._retry: Optional[asyncio.TimerHandle] = None
        self._settling = False
        self._closing: Optional["asyncio.Task[None]"] = None
        _alive.opened(self)

    # ---- what the driver and C tell

    def _set_busy(self, on: int) -> None:
        """Records have no outcome yet: it must live until they have."""
        self._driver.busy(self, bool(on))

    def _on_ready(self, kind: int) -> None:
        if kind == lib.KC_READY_REPORTS:
            self._take_reports_now()
        elif kind == lib.KC_READY_SPACE:
            self._pump()

    def _take_reports_now(self) -> None:
        """Resolves futures for one step's time; where more is left, goes on in the loop's next pass."""
        end = time.monotonic() + STEP
        self._settling = False
        more = True
        try:
            while more and time.monotonic() < end:
                more = self._settle() == 0
        finally:  # C tells of reports once: also after an exception
            if more and not self._loop.is_closed():
                self._settling = True
                self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        if self._settling:
            self._take_reports_now()

    # ---- sending

    def send_nowait(
        self,
        topic: str,
        value: Data,
        key: Data = None,
        headers: Optional[Headers] = None,
        partition: Optional[int] = None,
        timestamp: Optional[int] = None,
        guid: Optional[Guid] = None,
    ) -> "asyncio.Future[Report]":
        """Takes a record, and gives the future of its Report, which raises the record's error where it failed. Raises QueueFull where there is no room,
        TooLarge, Closed, …: then it was not taken. A future that is cancelled is forgotten; the record is sent all the same."""
        if self._waiting:
            raise QueueFull(f"send to {topic}: sends that came before wait for room")
        return self._send_future(topic, value, key, headers, partition, timestamp, guid)

    async def send(  # type: ignore[override]
        self,
        topic: str,
        value: Data,
        key: Data = None,
        headers: Optional[Headers] = None,
        partition: Optional[int] = None,
        timestamp: Optional[int] = None,
        guid: Optional[Guid] = None,
    ) -> Report:
        """Sends a record and returns its Report once it is stored; raises its error otherwise, with what was tried. Awaits room where the queue is full, in
        the order of the calls. Where no other record is on its way it leaves at once; else it lingers (linger.ms), so that many sends at once share batches.

        Cancelled while it waits for room, the record is not sent; later it is on its way and may be stored: CancelledError's attribute `outcome` says which
        (NOT_PERSISTED, MAYBE_PERSISTED)."""
        future: Optional["asyncio.Future[Report]"] = None
        try:
            if not self._waiting:
                try:
                    future = self._send_awaited(topic, value, key, headers, partition, timestamp, guid)
                except (QueueFull, TimedOut) as e:
                    if not _is_passing(e):
                        raise
            if future is None:
                held: List["asyncio.Future[Report]"] = []

                def attempt() -> bool:
                    held.append(self._send_awaited(topic, value, key, headers, partition, timestamp, guid))
                    return True

                try:
                    await self._when_room(attempt)
                finally:
                    future = held[0] if held else None
                assert future is not None
            return await future
        except asyncio.CancelledError as e:
            _tell(e, future is not None)
            if future is not None:
                future.cancel()  # nobody looks at it any more
            raise

    async def send_many(  # type: ignore[override]
        self,
        topic: str,
        values: Any,
        keys: Any = None,
        partition: Optional[int] = None,
        timestamps: Optional[Sequence[int]] = None,
        guids: Optional[Sequence[Optional[Guid]]] = None,
        headers: Optional[Sequence[Optional[Headers]]] = None,
        sizes: Optional[Sequence[int]] = None,
        key_sizes: Optional[Sequence[int]] = None,
    ) -> List[Report]:
        """Sends a record for each of values, with one crossing into C for as many as there is room for, and returns the list of their Reports once all have
        their outcome. Arguments as for kclient.Producer.send_many.

        DeliveryFailed: some failed; its reports are theirs. An error of the call itself (TooLarge, Closed, …) says in `accepted` how many, from the
        first on, were taken; it is raised once these have their outcome. Cancelled: what was not taken is not sent; `outcome` as for send()."""
        columns = _Columns(values, keys, timestamps, guids, headers, sizes, key_sizes)
        group = Group(self._loop.create_future(), columns.count)
        failure: Optional[KafkaError] = None

        def attempt() -> bool:
            try:
                self._many(topic, partition, columns, group)
            except (QueueFull, TimedOut) as e:
                if not _is_passing(e):
                    raise
                columns.drop(e.accepted)
                return False
            return True

        try:
            if self._waiting or not attempt():
                await self._when_room(attempt)
        except KafkaError as e:
            e.accepted = group.accepted
            failure = e
            if group.accepted == 0:
                raise
        except asyncio.CancelledError as e:
            group.shrink(group.accepted)
            _tell(e, group.accepted > 0)
            raise
        if failure is not None or columns.count == 0:
            group.shrink(group.accepted)
        try:
            reports: List[Report] = await group.future
        except asyncio.CancelledError as e:
            _tell(e, True)
            raise
        if failure is not None:
            raise failure
        if group.failed:
            raise DeliveryFailed([r for r in reports if r.error is not None][:FAILURES_KEPT], group.failed)
        return reports

    def _many(self, topic: str, partition: Optional[int], columns: "_Columns", group: Group) -> None:
        self._set_busy(1)
        try:
            # A group in the place of on_report: C puts the reports of these numbers into it.
            super().send_many(topic, *columns.now(partition), group, columns.sizes, columns.key_sizes)  # type: ignore[call-arg]
        finally:
            if not self._has_outstanding():
                self._set_busy(0)

    # ---- back-pressure

    async def _when_room(self, attempt: Callable[[], bool]) -> None:
        """Waits until attempt succeeded, which is tried when there is room, in the order of the calls. Raises what it raises. Cancelled: it is not tried any
        more."""
        future: "asyncio.Future[None]" = self._loop.create_future()
        self._waiting.append((attempt, future))
        self._driver.busy(self, True)
        if len(self._waiting) == 1:
            self._pump()
        try:
            await future
        finally:
            if not future.done() or future.cancelled():
                self._waiting = deque(w for w in self._waiting if w[1] is not future)
                self._pump()  # it may have been the one that the others waited behind
            if not self._waiting and not self._has_outstanding():
                self._driver.busy(self, False)

    def _pump(self) -> None:
        """Lets sends that wait have the room that there is."""
        while self._waiting:
            attempt, future = self._waiting[0]
            if not future.done():
                try:
                    if not attempt():
                        self._try_later()
                        return
                    future.set_result(None)
                except (QueueFull, TimedOut) as e:
                    if _is_passing(e):
                        self._try_later()
                        return
                    future.set_exception(e)
                except BaseException as e:
                    if isinstance(e, (KeyboardInterrupt, SystemExit)):
                        raise
                    future.set_exception(e)
            self._waiting.popleft()

    def _try_later(self) -> None:
        """SPACE tells of room; what else a send can wait for nobody tells of, so it is looked after now and then."""
        if self._retry is None and not self._loop.is_closed():
            self._retry = self._loop.call_later(_RETRY, self._try_again)

    def _try_again(self) -> None:
        self._retry = None
        self._pump()

    # ---- the end

    async def flush(self, timeout: Optional[float] = None) -> None:
        """Sends what is queued without waiting for linger, and returns once all that was taken before has its outcome, and its futures have it too. TimedOut:
        some have none yet. Errors are those futures' to raise."""
        await self._driver.run(flush_call(self.handle), timeout, keep_on=True)
        await self._settle_all()

    async def _settle_all(self) -> None:
        """Takes the reports that there are, a step at a time."""
        while True:
            end = time.monotonic() + STEP
            while self._settle() == 0:
                if time.monotonic() >= end:
                    break
            else:
                break
            await asyncio.sleep(0)
        await asyncio.sleep(0)  # whoever awaits these futures has been told

    async def close(self, timeout: Optional[float] = None) -> None:
        """Sends what it can within the limit, fails the rest; every future has its outcome then. A second close does nothing. Cancelled: the closing goes
        on by itself, and another close() waits for it."""
        if self._closed:
            return
        if self._closing is None:
            self._closing = self._loop.create_task(self._close(timeout))
            self._closing.add_done_callback(_look)
        await asyncio.shield(self._closing)

    async def _close(self, timeout: Optional[float]) -> None:
        call = close_call(self.handle, micros(timeout))
        try:
            opaque, operation = self._driver.start(call)
        except (Closed, Forked):  # with the client, before
            pass
        else:
            try:
                await self._driver.wait(opaque)
            except BaseException:  # the loop ends: it goes on closing without it
                _alive.keep(repr(self), self.handle, self.client, operation)
                self._over()
                raise
            try:
                call.finish(operation)
            except TimedOut:  # some were failed for it, as their futures tell
                pass
        self._over()
        self._pump()  # who waits for room is told Closed
        await self._settle_all()
        self._driver.busy(self, False)
        self.client.drain_logs()
        if self._owns_client:
            self._driver.end()

    def _over(self) -> None:
        self._closed = True
        _alive.closed(self)

    def _close_at_exit(self, timeout: float) -> None:
        """The interpreter ends: no loop runs any more."""
        self._closed = True
        try:
            close_call(self.handle, micros(timeout)).run(micros(timeout))
        except (TimedOut, Busy):  # reports tell; or a close is under way that no loop awaits any more
            pass
        failed: List[Report] = []
        while isinstance(reports := self._take_reports(0), list):
            failed += [r for r in reports if r.error is not None]
        if failed:
            raise DeliveryFailed(failed[:FAILURES_KEPT], len(failed))

    async def __aenter__(self) -> "Producer":
        return self

    async def __aexit__(self, kind: Any, value: Any, trace: Any) -> None:
        try:
            await self.close()
        except KafkaError as e:
            if kind is None:
                raise
            warnings.warn(f"{self!r}: {e}", RuntimeWarning)  # the exception on its way is the one to see


def _is_passing(e: KafkaError) -> bool:
    """The send may be tried again by itself: no room, or the partition count that a partitioner needs is not known yet."""
    return e.code in (lib.KC_QUEUE_FULL, lib.KC_TIMED_OUT)


def _tell(e: asyncio.CancelledError, taken: bool) -> None:
    """What became of the record of a send that was cancelled."""
    e.outcome = Outcome.MAYBE_PERSISTED if taken else Outcome.NOT_PERSISTED  # type: ignore[attr-defined]


def _look(task: "asyncio.Task[None]") -> None:
    """What a closing raised that nobody awaits any more was told to whoever did."""
    if not task.cancelled():
        task.exception()


class _Columns:
    """What send_many was given and C has not taken yet."""

    def __init__(self, values: Any, keys: Any, timestamps: Any, guids: Any, headers: Any, sizes: Any, key_sizes: Any) -> None:
        self.values, self.sizes = _column(values, sizes)
        self.keys, self.key_sizes = _column(keys, key_sizes)
        self.rest = [None if column is None else list(column) for column in (timestamps, guids, headers)]
        self.count = len(self.values if self.sizes is None else self.sizes)

    def now(self, partition: Optional[int]) -> Tuple[Any, ...]:
        """Arguments of the synchronous send_many, from values to headers."""
        return (self.values, self.keys, partition, *self.rest)

    def drop(self, count: int) -> None:
        """The first so many were taken."""
        if count:
            self.values, self.sizes = _behind(self.values, self.sizes, count)
            self.keys, self.key_sizes = _behind(self.keys, self.key_sizes, count)
            self.rest = [None if column is None else column[count:] for column in self.rest]


def _column(data: Any, sizes: Any) -> Tuple[Any, Optional[List[int]]]:
    if sizes is not None:
        return memoryview(data).cast("B"), list(sizes)
    return (data, None) if data is None or isinstance(data, (list, tuple, str, bytes, bytearray)) else (list(data), None)


def _behind(data: Any, sizes: Optional[List[int]], count: int) -> Tuple[Any, Optional[List[int]]]:
    if sizes is None:
        return (None if data is None else data[count:]), None
    return data[sum(size for size in sizes[:count] if size > 0) :], sizes[count:]


__all__ = ["Producer"]
