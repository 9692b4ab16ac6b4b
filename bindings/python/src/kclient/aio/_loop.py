"""One client in one event loop: what became ready is told to the roles and operations that wait for it; nothing here ever blocks.

The loop waits on the client's descriptor (kc_client_fd). By default the client's own thread does the I/O and compresses; with client.thread=none its loop
runs here, in turns of at most TURN_US, when the descriptor is readable and when a deadline of its own is due.

Lifetimes: a role holds its driver, the driver its client. The event loop holds the driver, and that its roles, weakly unless something is outstanding
(`busy`): a role that is garbage goes, one with records on their way does not.
"""

from __future__ import annotations

import asyncio
import itertools
import weakref
from typing import Any, Dict, Optional, Set, Tuple, TypeVar

from .._native import ffi, lib
from .._wait import Call, micros
from ..client import Client

T = TypeVar("T")

#: How long the event loop is held up at a time, in microseconds, by a turn of a client without a thread.
TURN_US = 2000
#: The same, in seconds, by reports that come in, or batches that nobody awaits.
STEP = 0.003
_READY_MAX = 64


class Role:
    """A producer or consumer, as the driver sees it."""

    def _on_ready(self, kind: int) -> None:
        """kind: enum kc_ready_kind, REPORTS, SPACE or EVENT."""
        raise NotImplementedError


class _Anchor:
    """What the event loop holds of a driver."""

    __slots__ = ("ref", "held")

    def __init__(self, driver: "Driver") -> None:
        self.ref = weakref.ref(driver)
        self.held: Optional[Driver] = None


def _readable(anchor: _Anchor) -> None:
    driver = anchor.ref()
    if driver is not None:
        driver._turn()


def _leave(loop: asyncio.AbstractEventLoop, fd: int, handle: Any) -> None:
    """Takes the descriptor out of the loop while the client, which `handle` is, still has it open."""
    if not loop.is_closed():
        loop.remove_reader(fd)


class Driver:
    """See above. Made by driver_of; all methods in the loop's thread."""

    def __init__(self, client: Client, loop: asyncio.AbstractEventLoop) -> None:
        self.client = client
        self.loop = loop
        self._handle = client.handle
        self._fd = client.fileno()
        self._ready = ffi.new("kc_ready[]", _READY_MAX)
        self._roles: "weakref.WeakValueDictionary[int, Role]" = weakref.WeakValueDictionary()
        self._busy: Set[Role] = set()
        self._operations: Dict[int, "asyncio.Future[None]"] = {}
        self._opaques = itertools.count(1)
        self._has_thread = client.config.get("client.thread") != "none"
        self._alarm: Optional[asyncio.TimerHandle] = None
        self._anchor = _Anchor(self)
        loop.add_reader(self._fd, _readable, self._anchor)
        if not self._has_thread:
            loop.call_soon(_readable, self._anchor)  # from then on the descriptor tells of what is due before the deadline that it was told

    # ---- roles

    def join(self, role: Role, address: int) -> None:
        """From now on the role is told what becomes ready; address: of its C handle."""
        self._roles[address] = role

    def busy(self, role: Role, on: bool) -> None:
        """While it is, the loop keeps the role alive."""
        if on:
            self._busy.add(role)
            self._anchor.held = self
        else:
            self._busy.discard(role)
            if not self._busy:
                self._anchor.held = None

    def end(self) -> None:
        """Closes the client, of which nothing more comes, without waiting for its connections to be gone."""
        if self._fd < 0:
            return
        self._silence()
        _leave(self.loop, self._fd, self._handle)
        self._fd = -1
        lib.kc_client_close(self._handle, 0, ffi.NULL)
        self.client._closed = True

    def _silence(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def __del__(self) -> None:
        if self.__dict__.get("_fd", -1) < 0 or self.loop.is_closed():
            return
        self._silence()
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        try:
            if running is self.loop:
                _leave(self.loop, self._fd, self._handle)
            else:  # garbage is collected in any thread; the handle is held until the loop has let go
                self.loop.call_soon_threadsafe(_leave, self.loop, self._fd, self._handle)
        except RuntimeError:  # closed meanwhile
            pass

    # ---- the loop's side

    def _turn(self) -> None:
        """The descriptor is readable, or the client's loop is due."""
        if not self._has_thread:
            lib.kc_client_run_once(self._handle, 0, TURN_US)
        try:
            self._dispatch()
        finally:
            if not self._has_thread:
                self._set_alarm()

    def _set_alarm(self) -> None:
        """client.thread=none: comes again when the client's next deadline is due."""
        self._silence()
        due_us = lib.kc_client_next_deadline_us(self._handle)
        if due_us >= 0:
            self._alarm = self.loop.call_later(due_us / 1e6, _readable, self._anchor)

    def _dispatch(self) -> None:
        """Hands on what became ready, of which C tells once: an exception on the way (of a logging handler, a signal's) comes out when all have had theirs."""
        raised: Optional[BaseException] = None
        while True:
            count = lib.kc_client_ready(self._handle, self._ready, ffi.sizeof("kc_ready"), _READY_MAX)
            for i in range(count):
                try:
                    self._tell(self._ready[i])
                except BaseException as e:
                    raised = raised or e
            if count < _READY_MAX:
                break
        if raised is not None:
            raise raised

    def _tell(self, item: Any) -> None:
        if item.kind == lib.KC_READY_OP:
            future = self._operations.get(item.opaque)
            if future is not None:
                _set(future)
        elif item.kind == lib.KC_READY_LOG:
            self.client.drain_logs()
        else:
            role = self._roles.get(int(ffi.cast("uintptr_t", item.role)))
            if role is not None:
                role._on_ready(item.kind)

    # ---- operations

    def start(self, call: Call[Any]) -> Tuple[int, Any]:
        """Starts a slow call, to be awaited by wait(): the operation and its number."""
        opaque = next(self._opaques)
        operation = call.begin(opaque)
        self._operations[opaque] = self.loop.create_future()
        return opaque, operation

    async def wait(self, opaque: int, timeout: Optional[float] = None) -> None:
        """Until the operation is done, or the time (in seconds) is up."""
        future = self._operations[opaque]
        alarm = None if timeout is None else self.loop.call_later(timeout, _set, future)
        try:
            await future
        finally:
            del self._operations[opaque]
            if alarm is not None:
                alarm.cancel()

    async def run(self, call: Call[T], timeout: Optional[float] = None, keep_on: bool = False) -> T:
        """Awaits a slow call. Cancelled: the operation is given up too (its effect may still come), unless keep_on. TimedOut: it goes on, detached."""
        limit = None if timeout is None else micros(timeout) / 1e6
        opaque, operation = self.start(call)
        try:
            await self.wait(opaque, limit)
        except asyncio.CancelledError:
            if not keep_on:
                lib.kc_op_cancel(operation)
            raise
        return call.finish(operation)


def _set(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


_drivers: "weakref.WeakKeyDictionary[Client, weakref.ref[Driver]]" = weakref.WeakKeyDictionary()


def driver_of(client: Client) -> Driver:
    """The client's driver in the running loop, made when first asked for. RuntimeError: no loop runs, or the client is in another one that is not
    closed."""
    loop = asyncio.get_running_loop()
    ref = _drivers.get(client)
    driver = ref() if ref is not None else None
    if driver is not None and driver.loop is not loop and not driver.loop.is_closed():
        raise RuntimeError("this client is in use in another event loop: make a client of its own for each loop")
    if driver is None or driver.loop is not loop:
        driver = Driver(client, loop)
        _drivers[client] = weakref.ref(driver)
    return driver


