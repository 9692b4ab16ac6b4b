"""Waiting: limits in seconds, and waits that Ctrl-C ends.

A wait runs in C without the GIL. The main thread waits in slices, since Python's signal handlers run only between bytecodes: Ctrl-C takes 25 ms at
most, 12 on average (tests/test_signals.py). Other threads, which never run handlers, wait in one piece.
"""
import os
import threading
from typing import Any, Callable, Generic, Optional, TypeVar

from ._native import ffi, lib
from .errors import ErrorSlot

SLICE_US = 25_000
FOREVER = -1
TIMED_OUT: int = lib.KC_TIMED_OUT

T = TypeVar("T")
_main = threading.main_thread().ident


def _forked() -> None:
    global _main
    _main = threading.get_ident()


os.register_at_fork(after_in_child=_forked)


def micros(timeout: Optional[float]) -> int:
    """Seconds as microseconds; None: no limit."""
    if timeout is None:
        return FOREVER
    if timeout < 0:
        raise ValueError(f"a timeout is 0 or more seconds, or None: {timeout}")
    return min(int(timeout * 1_000_000 + 0.5), (1 << 62))


def limit_micros(timeout: Optional[float]) -> int:
    """The same for calls whose 0 is the configured limit: None is that, 0 a microsecond."""
    return 0 if timeout is None else max(micros(timeout), 1)


class Slices:
    """for us in Slices(timeout_us): how long to wait this time, until the limit is used up. At least one."""

    __slots__ = ("left", "piece", "first")

    def __init__(self, timeout_us: int) -> None:
        self.left = timeout_us
        self.piece = SLICE_US if threading.get_ident() == _main else FOREVER
        self.first = True

    def __iter__(self) -> "Slices":
        return self

    def __next__(self) -> int:
        if not self.first and self.left == 0:
            raise StopIteration
        self.first = False
        if self.piece == FOREVER or 0 <= self.left <= self.piece:
            us, self.left = self.left, 0
            return us
        if self.left != FOREVER:
            self.left -= self.piece
        return self.piece


def wait(call: Callable[[int], int], timeout_us: int) -> int:
    """Calls until the answer is another than KC_TIMED_OUT, or the limit is used up; the last answer."""
    code = TIMED_OUT
    for us in Slices(timeout_us):
        code = call(us)
        if code != TIMED_OUT:
            break
    return code


def finished(op: Any, timeout_us: int) -> bool:
    """Waits for an operation: whether it is done, well or not."""
    for us in Slices(timeout_us):
        if lib.kc_op_wait(op, us, ffi.NULL) != TIMED_OUT or lib.kc_op_done(op):
            return True
    return bool(lib.kc_op_done(op))


class Call(Generic[T]):
    """A slow call that is not made yet: how its operation is started, and what its result is. Both APIs run it, each in its own way.

    start(opaque, op, error) -> kc_err: a C function of the `_start` kind with its other arguments bound (which it copies, so that they need to live
    for as long as this object alone). result(op) -> the Python value; run only if the operation succeeded, or always with partial: then it
    is given the exception, too, and decides.
    """

    __slots__ = ("what", "start", "result", "keep")

    def __init__(self, what: str, start: Callable[[int, Any, Any], int], result: Callable[[Any, Optional[Exception]], T], keep: Any = None) -> None:
        self.what = what
        self.start = start
        self.result = result
        self.keep = keep

    def begin(self, opaque: int = 0) -> Any:
        """Starts it: the operation, freed by garbage collection (which detaches it). Raises what _start answers."""
        op, slot = ffi.new("kc_op **"), ErrorSlot()
        slot.check(self.start(opaque, op, slot.p), self.what)
        return ffi.gc(op[0], lib.kc_op_free)

    def finish(self, op: Any) -> T:
        """The result of an operation that is done (kc_op_done)."""
        slot = ErrorSlot()
        code = lib.kc_op_wait(op, 0, slot.p)
        return self.result(op, slot.take(code, self.what) if code else None)

    def run(self, timeout_us: int = FOREVER) -> T:
        """The synchronous form: starts it and waits. TimedOut: it goes on, detached."""
        op = self.begin()
        finished(op, timeout_us)
        return self.finish(op)


def nothing(op: Any, error: Optional[Exception]) -> None:
    """The result of a call that has none."""
    if error is not None:
        raise error
