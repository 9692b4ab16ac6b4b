"""What the asyncio tests share: running a coroutine in each kind of loop, with both kinds of client."""

from __future__ import annotations

import asyncio
import functools
import gc
import warnings
from typing import Any, Awaitable, Callable, Coroutine, Dict, List

import pytest

try:
    import uvloop
except ImportError:  # pragma: no cover - an extra of the tests
    uvloop = None

#: No test waits longer for anything that must come: CI is slow.
LONG = 60.0

Async = Callable[..., Coroutine[Any, Any, None]]


def run(main: Coroutine[Any, Any, Any], kind: str = "asyncio") -> Any:
    """Runs it in a loop of its own, in asyncio's debug mode; what the loop complains of fails the test."""
    complaints: List[Dict[str, Any]] = []

    async def watched() -> Any:
        loop = asyncio.get_running_loop()
        loop.slow_callback_duration = 1.0  # a machine that is busy is not a slow callback
        loop.set_exception_handler(lambda loop, context: complaints.append(context))
        before = asyncio.all_tasks()
        try:
            return await asyncio.wait_for(main, LONG * 2)
        finally:
            await asyncio.sleep(0)
            left = asyncio.all_tasks() - before
            assert not left, left

    loop = uvloop.new_event_loop() if kind == "uvloop" else asyncio.new_event_loop()
    loop.set_debug(True)
    try:
        result = loop.run_until_complete(watched())
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()
    gc.collect()
    assert not complaints, complaints
    return result


MODES = [("asyncio", "own"), ("asyncio", "none")] + ([("uvloop", "own")] if uvloop is not None else [])


def in_loops(test: Async) -> Callable[..., None]:
    """The coroutine is run in each kind of loop, by a client with and without a thread of its own; its argument `properties` is what clients are made with."""

    @pytest.mark.parametrize("mode", MODES, ids=lambda mode: f"{mode[0]}-{mode[1]}")
    @functools.wraps(test)
    def wrapper(mode: Any, broker: str, **arguments: Any) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error", ResourceWarning)
            run(test(properties={"bootstrap_servers": broker, "client_thread": mode[1]}, **arguments), mode[0])

    names = [name for name in test.__code__.co_varnames[: test.__code__.co_argcount + test.__code__.co_kwonlyargcount] if name != "properties"]
    import inspect

    wrapper.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in ["mode", "broker", *names]]
    )
    return wrapper


async def until(check: Callable[[], Any]) -> None:
    """Waits for what must come about."""
    for _ in range(int(LONG * 100)):
        if check():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come about")


async def soon(awaitable: Awaitable[Any]) -> Any:
    return await asyncio.wait_for(awaitable, LONG)
