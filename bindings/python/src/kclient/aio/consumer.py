"""The asyncio consumer: records and batches out, by assignment or as a member of a group."""

from __future__ import annotations

import asyncio
import inspect
import time
import warnings
from collections import deque
from typing import Any, Awaitable, Callable, Deque, Dict, Iterable, List, Optional, Tuple, Union

from .. import _alive
from .._fast import AsyncSource, Event, Record, RecordBatch, Source
from .._native import ffi, lib
from .._wait import TIMED_OUT, micros
from ..client import Place
from ..consumer import (
    Assigned,
    ConsumerBase,
    ConsumerError,
    Happening,
    LostPartitions,
    PartitionEnd,
    Partitions,
    Processed,
    Revoked,
    TopicPartition,
    as_partitions,
    close_call,
    commit_call,
    committed_call,
    happening,
    offsets_call,
)
from ..errors import Closed, Forked, KafkaError, TimedOut, of_code
from ._loop import STEP, Driver, Role, driver_of

OnPartitions = Callable[[Any, List[TopicPartition]], Union[Awaitable[object], object]]

#: How soon the group's state is looked at again, by await_assigned, of which nothing tells.
_LOOK = 0.02


class Consumer(ConsumerBase, AsyncSource, Role):
    """A consumer in an event loop.

        async with Consumer(bootstrap_servers="localhost:9092", group_id="billing", topics=["orders"]) as consumer:
            async for record in consumer:
                print(record.offset, record.key, record.value)

    Arguments as for kclient.Consumer. on_assigned, on_revoked and on_lost may be coroutine functions: poll awaits them, and the group waits for the
    acknowledgement that follows; they go on where a poll that awaits them is cancelled, and the next poll awaits their end. Made inside a running event
    loop, and used in that one alone. Cancelling a wait for records loses none. Several tasks may poll; each record goes to one of them.
    """

    def __init__(
        self,
        client: Place = None,
        *,
        topics: Union[str, Iterable[str], None] = None,
        processed: str = "poll",
        on_assigned: Optional[OnPartitions] = None,
        on_revoked: Optional[OnPartitions] = None,
        on_lost: Optional[OnPartitions] = None,
        stop_at_end: bool = False,
        **properties: Any,
    ) -> None:
        """stop_at_end: iteration ends once every assigned partition was read to its end, poll_batch() and poll_record() then give None."""
        self._loop = asyncio.get_running_loop()
        if stop_at_end:
            properties.setdefault("enable_partition_eof", True)
        self._open(client, properties, processed)
        self._driver: Driver = driver_of(self.client)
        self._driver.join(self, int(ffi.cast("uintptr_t", self.handle)))
        self._on: Dict[int, Optional[OnPartitions]] = {
            lib.KC_EVENT_ASSIGNED: on_assigned,
            lib.KC_EVENT_REVOKED: on_revoked,
            lib.KC_EVENT_LOST: on_lost,
        }
        self._stop_at_end = stop_at_end
        self._ends: Dict[Tuple[str, int], int] = {}
        self._at_the_end = False
        self._woken = 0  # waits that wake() is to end still
        self._waiters: Deque["asyncio.Future[None]"] = deque()
        self._handover: Optional["asyncio.Task[None]"] = None
        self._closing: Optional["asyncio.Task[None]"] = None
        self._held: Any = None
        self._paused_at = time.monotonic()
        # A consumer that nobody polls leaves its group: one that waits here polls this often.
        self._beat = int(self.config.get("max.poll.interval.ms") or 300_000) / 3000
        _alive.opened(self)
        if topics is not None:
            self.subscribe(topics)

    def subscribe(
        self,
        topics: Union[str, Iterable[str]],
        *,
        regex: bool = False,
        on_assigned: Optional[OnPartitions] = None,
        on_revoked: Optional[OnPartitions] = None,
        on_lost: Optional[OnPartitions] = None,
    ) -> None:
        """Joins the group for these topics, in place of an earlier subscription; regex: for all that match one of these patterns (POSIX extended). Waits for
        nothing."""
        for kind, function in ((lib.KC_EVENT_ASSIGNED, on_assigned), (lib.KC_EVENT_REVOKED, on_revoked), (lib.KC_EVENT_LOST, on_lost)):
            if function is not None:
                self._on[kind] = function
        self._subscribe(topics, regex)

    # ---- what the driver tells

    def _on_ready(self, kind: int) -> None:
        self._wake_waiters()

    def _wake_waiters(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def wake(self) -> None:
        """Ends the waits that are under way, or else the next one, however much there is to take: poll gives None, iteration ends. In the loop's thread."""
        self._woken = max(len(self._waiters), 1)
        self._wake_waiters()

    async def _wait(self, deadline: Optional[float]) -> bool:
        """Until there is something to look at; False: the time is up. What was taken before is not touched: a cancelled wait loses nothing."""
        now = self._loop.time()
        if deadline is not None and now >= deadline:
            return False
        due = now + self._beat
        waiter: "asyncio.Future[None]" = self._loop.create_future()
        alarm = self._loop.call_at(due if deadline is None else min(due, deadline), _set, waiter)
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            alarm.cancel()
            self._waiters.remove(waiter)
            self._paused_at = time.monotonic()
        return True

    async def _breathe(self) -> None:
        """Between batches that were at hand: lets others run, once a step."""
        if time.monotonic() - self._paused_at >= STEP:
            await asyncio.sleep(0)
            self._paused_at = time.monotonic()

    def _deadline(self, timeout: Optional[float]) -> Optional[float]:
        return None if timeout is None else self._loop.time() + micros(timeout) / 1e6

    # ---- records

    async def poll_batch(self, timeout: Optional[float] = None) -> Optional[RecordBatch]:  # type: ignore[override]
        """The next records of one partition, as many as the library has at hand; None: none within the timeout (seconds; None: no limit), or wake().
        Rebalances are dealt with meanwhile: on_assigned and on_revoked are called in here. By default the next poll counts these records as processed."""
        deadline = self._deadline(timeout)
        while True:
            if await self._is_woken():
                return None
            batch = Source.poll_batch(self, 0)
            if batch is not None:
                return batch
            if await self._is_over(deadline):
                return None

    async def poll_record(self, timeout: Optional[float] = None) -> Optional[Record]:  # type: ignore[override]
        """The next record; None: none within the timeout, or wake(). `async for record in consumer` waits without limit."""
        record = self._rest()
        if record is not None:
            return record
        deadline = self._deadline(timeout)
        while True:
            if await self._is_woken():
                return None
            record = Source.poll_record(self, 0)
            if record is not None:
                return record
            if await self._is_over(deadline):
                return None

    async def _next_record(self) -> Record:
        """Of `async for`, where the batch at hand is at its end (native/aio.c)."""
        record = await self.poll_record()
        if record is None:
            raise StopAsyncIteration
        return record

    def __aiter__(self) -> "Consumer":
        return self

    def __iter__(self) -> Any:
        raise TypeError("this is the asyncio consumer: `async for record in consumer`")

    def __next__(self) -> Record:
        raise TypeError("this is the asyncio consumer: `async for record in consumer`")

    async def _is_woken(self) -> bool:
        """Before a poll: a callback that a cancelled poll left behind has come to its end, and others had their turn. True: wake() ends this one."""
        if self._handover is not None:
            await self._finish_handover()
        await self._breathe()
        if self._woken == 0:
            return False
        self._woken -= 1
        return True

    async def _is_over(self, deadline: Optional[float]) -> bool:
        """A poll gave nothing: whether the caller gives up, after a wait for more."""
        if self._handover is not None:
            await self._finish_handover()
            return False
        if self._at_the_end:
            self._at_the_end = False
            return True
        self.client.drain_logs()
        return not await self._wait(deadline)

    # ---- other events

    def _on_event(self, event: Event) -> bool:
        """Deals with what is no records, inside Source's poll (native/source.c). True: it goes on, False: it gives None."""
        shape = happening(self.client, event)
        if isinstance(shape, ConsumerError):
            raise shape.error
        if isinstance(shape, PartitionEnd):
            self._at_the_end = self._is_end(shape)
            return not self._at_the_end
        if isinstance(shape, (Assigned, Revoked, LostPartitions)):
            self._handover = self._loop.create_task(self._hand_over(event, shape))
            return False
        return True

    async def _hand_over(self, event: Event, shape: Union[Assigned, Revoked, LostPartitions]) -> None:
        """Calls the application, then acknowledges. A task of its own, so that cancelling a poll does not leave a callback half done."""
        function = self._on.get(event.kind)
        try:
            if function is not None:
                answer = function(self, shape.partitions)
                if inspect.isawaitable(answer):
                    await answer
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

    async def _finish_handover(self) -> None:
        """Awaits the callback under way; what it raised is raised once, by the poll that sees its end."""
        task = self._handover
        assert task is not None
        try:
            await asyncio.shield(task)
        finally:
            if task.done() and self._handover is task:
                self._handover = None

    def _is_end(self, end: PartitionEnd) -> bool:
        if not self._stop_at_end:
            return False
        self._ends[end.topic, end.partition] = end.offset
        return all((p.topic, p.partition) in self._ends and p.offset >= self._ends[p.topic, p.partition] for p in self.assignment)

    async def poll(self, timeout: Optional[float] = None) -> Optional[Happening]:
        """The next event of any kind: a RecordBatch, Assigned, Revoked, LostPartitions, PartitionEnd or ConsumerError; None: none within the timeout, or
        wake(). Callbacks are not called. An Assigned or Revoked is acknowledged by the next poll."""
        batch = self._batch
        if batch is not None and self._given != (batch.topic, batch.partition, batch.next_offset):
            return await self.poll_batch(0)  # the rest of one that iteration has begun
        deadline = self._deadline(timeout)
        while True:
            if await self._is_woken():
                return None
            self._forget()
            self._held = None  # freeing an event acknowledges it
            event = self._held = self._poll(0)
            if not isinstance(event, int):
                return happening(self.client, event)
            if event != TIMED_OUT:
                raise of_code(event, "poll")
            if await self._is_over(deadline):
                return None

    async def await_assigned(self, timeout: Optional[float] = None) -> None:
        """Waits until the group has given this member its partitions. TimedOut: why() tells on whom it waits."""
        deadline = self._deadline(timeout)
        while True:
            code = lib.kc_consumer_await_assigned(self.handle, 0, ffi.NULL)
            if code != TIMED_OUT:
                break
            look = self._loop.time() + _LOOK
            if not await self._wait(look if deadline is None else min(look, deadline)):
                break
        if code:
            raise of_code(code, "await_assigned")

    # ---- offsets

    async def commit(self, *items: Processed, timeout: Optional[float] = None) -> None:
        """Commits, and returns once it is done. commit(): what is processed, and what was given out last (with processed="poll"); commit(record),
        commit(batch): up to and with these; commit(("t", 0, 42)): that the next to be read is 42. Raises the first partition's error, NotAssigned among
        them. Cancelled: it goes on."""
        offsets = self._to_commit(items)
        started = []
        if not items:
            started.append(commit_call(self.client, self.handle, None))
        if offsets:
            started.append(commit_call(self.client, self.handle, offsets))
        for call in started:
            await self._driver.run(call, timeout, keep_on=True)

    async def committed(self, partitions: Partitions, timeout: Optional[float] = None) -> List[TopicPartition]:
        """The group's committed offsets of any partitions; offset -1: none. Raises the first partition's error, whose `results` tell of each."""
        return await self._driver.run(committed_call(self.client, self.handle, as_partitions(partitions)), timeout)

    async def offsets(self, partitions: Partitions, timeout: Optional[float] = None) -> List[TopicPartition]:
        """Looks offsets up, of any partitions: each one's offset is BEGINNING, END, or a time in ms since 1970; -1: none at or after that.
        Raises the first partition's error, whose `results` tell of each."""
        return await self._driver.run(offsets_call(self.client, self.handle, as_partitions(partitions)), timeout)

    # ---- the end

    async def close(self, timeout: Optional[float] = 30.0) -> None:
        """Gives partitions up (on_revoked is not called), commits what is processed (enable.auto.commit), leaves the group. Batches already given out stay
        readable. A second close does nothing. Cancelled: the closing goes on by itself, and another close() waits for it."""
        if self._closed:
            return
        if self._closing is None:
            self._closing = self._loop.create_task(self._close(timeout))
            self._closing.add_done_callback(_look)
        await asyncio.shield(self._closing)

    async def _close(self, timeout: Optional[float]) -> None:
        if self._handover is not None and self._handover is not asyncio.current_task():
            await asyncio.wait([self._handover], timeout=timeout)
        call = close_call(self.handle, micros(timeout))
        try:
            opaque, operation = self._driver.start(call)
            self._wake_waiters()  # they are told Closed
            await self._driver.wait(opaque)
            call.finish(operation)
        except (Closed, Forked):  # with the client, before
            pass
        finally:
            self._closed = True
            _alive.closed(self)
            self._forget()
            self._wake_waiters()
            if self._owns_client:
                self.client.drain_logs()
                self._driver.end()

    def _close_at_exit(self, timeout: float) -> None:
        """The interpreter ends: no loop runs any more."""
        self._closed = True
        try:
            close_call(self.handle, micros(timeout)).run(micros(timeout))
        except TimedOut:
            pass

    async def __aenter__(self) -> "Consumer":
        return self

    async def __aexit__(self, kind: Any, value: Any, trace: Any) -> None:
        try:
            await self.close()
        except KafkaError as e:
            if kind is None:
                raise
            warnings.warn(f"{self!r}: {e}", RuntimeWarning)  # the exception on its way is the one to see


def _set(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


def _look(task: "asyncio.Task[None]") -> None:
    """What a closing raised that nobody awaits any more was told to whoever did."""
    if not task.cancelled():
        task.exception()


__all__ = ["Consumer"]
