"""What is open, so that nothing that was accepted is lost silently: closed at the interpreter's exit, and finished after garbage collection.

A producer that is collected while open goes on closing in the background (its kc_producer_close_start): collecting never blocks. At exit all that is
open is closed within EXIT_S seconds; what could not be delivered by then is told on stderr.
"""
import atexit
import os
import sys
import threading
import time
import weakref
from typing import Any, Dict, List

from ._native import ffi, lib

EXIT_S = 10.0
_open: "weakref.WeakSet[Any]" = weakref.WeakSet()
_closing: Dict[int, Any] = {}  # operations of producers that were collected, with the handles that they need
_lock = threading.RLock()  # a collection may come while it is held


def opened(role: Any) -> None:
    """Remembers a producer, consumer or client until it is collected."""
    sweep()
    with _lock:
        _open.add(role)


def closed(role: Any) -> None:
    with _lock:
        _open.discard(role)


def close_behind(name: str, handle: Any, client: Any) -> None:
    """Goes on closing a collected producer; client: what must live until then."""
    op = ffi.new("kc_op **")
    if lib.kc_producer_close_start(handle, int(EXIT_S * 1e6), 0, op, ffi.NULL) == 0:
        keep(name, handle, client, ffi.gc(op[0], lib.kc_op_free))


def keep(name: str, handle: Any, client: Any, op: Any) -> None:
    """The same for one whose close (op) is under way already."""
    with _lock:
        _closing[id(handle)] = (name, handle, client, op)


def sweep() -> None:
    """Lets go of those that are done."""
    with _lock:
        done = [key for key, (_, _, _, op) in _closing.items() if lib.kc_op_done(op)]
        for key in done:
            _told(*_closing.pop(key))


def _told(name: str, handle: Any, client: Any, op: Any) -> None:
    """Says on stderr which records of a collected producer failed."""
    failed, one, out = 0, ffi.new("kc_report *"), ffi.new("kc_reports **")
    while lib.kc_producer_reports(handle, out, 0) == 0:
        while lib.kc_reports_next(out[0], one):
            failed += one.err != 0
        lib.kc_reports_free(out[0])
    if failed:
        print(f"kclient: {name} was not closed, and {failed} of its records were not delivered", file=sys.stderr)


def _at_exit() -> None:
    deadline = time.monotonic() + EXIT_S
    with _lock:
        roles: List[Any] = [r for r in _open if getattr(r, "_pid", None) == os.getpid()]
    for role in sorted(roles, key=lambda r: int(r._close_rank)):
        try:
            role._close_at_exit(max(deadline - time.monotonic(), 0.1))
        except Exception as e:
            print(f"kclient: {role!r} was open when the interpreter ended: {e}", file=sys.stderr)
    for name, handle, client, op in list(_closing.values()):
        lib.kc_op_wait(op, int(max(deadline - time.monotonic(), 0.1) * 1e6), ffi.NULL)
    sweep()


def _forked() -> None:
    """A child has none of its parent's: it may only free them."""
    global _lock
    _lock = threading.RLock()
    _open.clear()
    _closing.clear()


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_forked)
