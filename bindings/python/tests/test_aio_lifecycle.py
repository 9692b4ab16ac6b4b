"""Ends of all kinds: loops that close over open clients, garbage, exit, Ctrl-C, fork, threads."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
import weakref
from typing import Any, Dict, List

import pytest
from aio_support import LONG, in_loops, run, soon, until
from test_aio_producer import stored

from kclient import Outcome, errors
from kclient.aio import Admin, Client, Consumer, Producer
from kclient.consumer import BEGINNING
from kclient.testing import Cluster, wait_until

Properties = Dict[str, Any]


def program(text: str, *arguments: str, **options: Any) -> "subprocess.CompletedProcess[str]":
    """Runs a Python program to its end."""
    command = [sys.executable, "-X", "dev", "-W", "ignore::ResourceWarning", "-c", textwrap.dedent(text), *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=LONG, **options)


def values(broker: str, topic: str) -> List[Any]:
    return stored({"bootstrap_servers": broker}, topic)


@pytest.mark.parametrize("thread", ["own", "none"])
def test_a_loop_that_closes_over_open_clients(broker: str, topic: str, thread: str) -> None:
    """What was taken is sent all the same, behind the loop's back."""

    async def main() -> None:
        producer = Producer(bootstrap_servers=broker, client_thread=thread, linger_ms=0)
        consumer = Consumer(bootstrap_servers=broker, client_thread=thread, group_id=topic, topics=topic)
        for _ in range(10):
            producer.send_nowait(topic, b"x")
        await consumer.poll_record(0.05)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        asyncio.run(main())
        gc.collect()
    if thread == "none":  # somebody has to run its loop: at the latest the interpreter's exit does
        from kclient import _alive
        from kclient._native import ffi, lib

        for _, _, _, op in list(_alive._closing.values()):
            lib.kc_op_wait(op, 30_000_000, ffi.NULL)
    wait_until(lambda: len(values(broker, topic)) == 10, LONG, lambda: str(values(broker, topic)))


@pytest.mark.parametrize("thread", ["own", "none"])
@pytest.mark.parametrize("how", ["returns", "raises", "exits", "cancelled"])
def test_the_interpreter_ends_with_open_clients(broker: str, topic: str, thread: str, how: str) -> None:
    done = program(
        """
        import asyncio, sys
        from kclient.aio import Producer, Consumer, Admin
        broker, topic, thread, how = sys.argv[1:]
        async def main():
            global producer, consumer, admin
            producer = Producer(bootstrap_servers=broker, client_thread=thread, linger_ms=100)
            consumer = Consumer(bootstrap_servers=broker, client_thread=thread, group_id=topic, topics=topic)
            admin = Admin(producer.client)
            for i in range(100):
                producer.send_nowait(topic, b"x")
            await consumer.poll_record(0.05)
            if how == "raises":
                raise RuntimeError("mine")
            if how == "exits":
                sys.exit(3)
            if how == "cancelled":
                global tasks
                tasks = [asyncio.ensure_future(wait) for wait in (consumer.poll_batch(), producer.send(topic, b"y"), producer.close(), admin.describe())]
                await asyncio.sleep(0)
        asyncio.run(main())
        """,
        broker, topic, thread, how,
    )  # fmt: skip
    assert done.returncode == {"raises": 1, "exits": 3}.get(how, 0), done.stderr
    assert "not delivered" not in done.stderr and "Fatal" not in done.stderr
    assert values(broker, topic).count(b"x") == 100


@pytest.mark.parametrize("thread", ["own", "none"])
def test_ctrl_c(broker: str, topic: str, thread: str) -> None:
    text = """
        import asyncio, signal, sys
        from kclient.aio import Producer, Consumer
        signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored, where the tests run in the background
        broker, topic, thread = sys.argv[1:]
        async def main():
            async with Producer(bootstrap_servers=broker, client_thread=thread, linger_ms=100) as producer:
                async with Consumer(bootstrap_servers=broker, client_thread=thread, group_id=topic, topics=topic) as consumer:
                    for i in range(100):
                        producer.send_nowait(topic, b"x")
                    print("ready", flush=True)
                    async for record in consumer:
                        pass
        try:
            asyncio.run(main())
        except KeyboardInterrupt:
            print("interrupted")
    """
    command = [sys.executable, "-c", textwrap.dedent(text), broker, topic, thread]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline() == "ready\n"
        time.sleep(0.2)
        before = time.monotonic()
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=LONG)
    assert output == "interrupted\n" and process.returncode == 0, errors
    assert time.monotonic() - before < LONG / 2
    assert values(broker, topic) == [b"x"] * 100


@in_loops
async def test_garbage_is_collected(properties: Properties, topic: str) -> None:
    def make() -> "List[weakref.ref[Any]]":
        producer, consumer, admin = Producer(**properties), Consumer(**properties), Admin(**properties)
        producer.mine = producer  # type: ignore[attr-defined]  # a cycle
        return [weakref.ref(role) for role in (producer, consumer, admin, producer._driver, consumer._driver, admin._driver)]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        for _ in range(5):
            refs = make()
            await asyncio.sleep(0)
            gc.collect()
            assert [ref() for ref in refs] == [None] * 6
    await asyncio.sleep(0.05)


@in_loops
async def test_a_producer_with_records_on_their_way_is_no_garbage(properties: Properties, topic: str) -> None:
    """Whoever awaits a future gets its outcome, though nobody holds the producer."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        future = Producer(**properties, linger_ms=50).send_nowait(topic, b"x")
        many = asyncio.ensure_future(Producer(**properties, linger_ms=50).send_many(topic, ["a", "b"]))
        gc.collect()
        assert (await soon(future)).ok and len(await soon(many)) == 2
        del future, many
        gc.collect()


@in_loops
async def test_batches_outlive_their_consumer(properties: Properties, topic: str) -> None:
    async with Producer(**properties) as producer, Consumer(**properties) as consumer:
        await soon(producer.send_many(topic, [b"v%d" % i for i in range(100)], partition=0))
        consumer.assign((topic, 0, BEGINNING))
        batch = await soon(consumer.poll_batch())
        record, view = batch[5], memoryview(batch)
    del producer, consumer
    gc.collect()
    assert batch.values()[7] == b"v7" and record.value == b"v5" and len(view) > 0


@in_loops
async def test_resources_that_stay_open_are_told_of(properties: Properties, topic: str) -> None:
    with pytest.warns(ResourceWarning, match="was not closed"):
        Producer(**properties)
        gc.collect()


@in_loops
async def test_no_descriptor_and_no_thread_is_left(properties: Properties, topic: str) -> None:
    def count() -> int:
        gc.collect()
        return len(os.listdir("/proc/self/fd")) + len(os.listdir("/proc/self/task"))

    async def all_kinds() -> None:
        async with Client(**properties) as client, Producer(client) as producer, Consumer(client) as consumer, Admin(client) as admin:
            await soon(producer.send(topic, b"x", partition=0))
            consumer.assign((topic, 0, BEGINNING))
            await soon(consumer.poll_record())
            await soon(admin.describe())
        async with Producer(**properties) as producer:
            await soon(producer.send(topic, b"x"))

    await all_kinds()
    before = count()
    for _ in range(5):
        await all_kinds()
    await until(lambda: count() <= before)


def test_loops_in_threads(broker: str, topic: str) -> None:
    """Each with clients of its own; one that is used from another thread than its loop's would be told by the loop's debug mode."""
    wrong: List[BaseException] = []

    async def main(number: int) -> None:
        async with Producer(bootstrap_servers=broker, linger_ms=1) as producer:
            for _ in range(20):
                await soon(asyncio.gather(*(producer.send_nowait(topic, b"%d" % number) for _ in range(50))))

    def thread(number: int) -> None:
        try:
            run(main(number))
        except BaseException as e:
            wrong.append(e)

    threads = [threading.Thread(target=thread, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong, wrong
    assert sorted(values(broker, topic)) == sorted([b"%d" % number for number in range(4)] * 1000)


def test_one_loop_after_the_other(broker: str, topic: str) -> None:
    async def main() -> None:
        async with Producer(bootstrap_servers=broker) as producer:
            await soon(producer.send(topic, b"x"))

    for _ in range(10):
        run(main())
    assert len(values(broker, topic)) == 10


def test_fork(broker: str, topic: str) -> None:
    """A child may only let go of what its parent had; a client of its own works."""

    async def child_main() -> None:
        async with Producer(bootstrap_servers=broker) as producer:
            await soon(producer.send(topic, b"of the child"))

    async def main() -> None:
        async with Producer(bootstrap_servers=broker, linger_ms=0) as producer, Consumer(bootstrap_servers=broker) as consumer:
            await soon(producer.send(topic, b"before"))
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    with pytest.raises(errors.Forked):
                        producer.send_nowait(topic, b"never")
                    with pytest.raises(errors.Forked):
                        await consumer.poll_record(0)
                    asyncio.events._set_running_loop(None)
                    asyncio.run(child_main())
                    status = 0
                finally:
                    os._exit(status)
            status = await asyncio.to_thread(os.waitpid, pid, 0)
            assert status[1] == 0
            await soon(producer.send(topic, b"after"))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python warns of fork beside threads
        run(main())
    assert sorted(values(broker, topic)) == [b"after", b"before", b"of the child"]


@in_loops
async def test_an_exception_in_a_done_callback_is_the_loops_to_tell(properties: Properties, topic: str) -> None:
    """It keeps no other future from its outcome."""
    told: List[Any] = []
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    loop.set_exception_handler(lambda loop, context: told.append(context["exception"]))

    def broken(future: Any) -> None:
        raise RuntimeError("mine")

    async with Producer(**properties) as producer:
        futures = [producer.send_nowait(topic, b"%d" % i) for i in range(100)]
        for future in futures:
            future.add_done_callback(broken)
        reports = await soon(asyncio.gather(*futures))
        assert all(report.ok for report in reports) and len(told) == 100
    loop.set_exception_handler(before)


def test_a_logging_handler_that_raises_keeps_nobody_waiting(topic: str) -> None:
    """What it raises is the loop's to tell; what became ready at the same moment is told all the same."""

    def broken(record: logging.LogRecord) -> bool:
        raise LookupError("of the filter")

    async def main() -> None:
        told: List[Any] = []
        loop = asyncio.get_running_loop()
        before = loop.get_exception_handler()
        loop.set_exception_handler(lambda loop, context: told.append(context["exception"]))
        producer = Producer(bootstrap_servers="127.0.0.1:1", message_timeout_ms=100)
        logging.getLogger("kclient").addFilter(broken)
        try:
            future = producer.send_nowait(topic, b"x")
            flush = asyncio.ensure_future(producer.flush())
            await asyncio.sleep(0)
            time.sleep(1)  # all comes at once then
            await soon(flush)
            assert isinstance(future.exception(), errors.Expired)
            assert told and all(isinstance(e, LookupError) for e in told)
        finally:
            logging.getLogger("kclient").removeFilter(broken)
            loop.set_exception_handler(before)
            await soon(producer.close())

    run(main())


def test_an_outcome_is_told_to_whoever_was_cancelled(topic: str) -> None:
    async def main() -> None:
        async with Producer(bootstrap_servers="127.0.0.1:1", message_timeout_ms=1000, queue_buffering_max_messages=1) as producer:
            told: List[Any] = []

            async def send() -> None:
                try:
                    await producer.send(topic, b"x")
                except asyncio.CancelledError as e:
                    told.append(e.outcome)  # type: ignore[attr-defined]
                    raise

            tasks = [asyncio.ensure_future(send()) for _ in range(2)]
            await asyncio.sleep(0.05)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            assert told == [Outcome.MAYBE_PERSISTED, Outcome.NOT_PERSISTED]

    run(main())


@pytest.mark.parametrize("thread", ["own", "none"])
def test_it_sleeps_while_there_is_nothing_to_do(kafka_cluster: Cluster, thread: str) -> None:
    async def main() -> None:
        properties: Properties = {"bootstrap_servers": kafka_cluster.bootstrap, "client_thread": thread}
        async with Producer(**properties) as producer, Consumer(**properties, group_id="g", topics="t") as consumer:
            await soon(producer.send("t", b"x"))
            with kafka_cluster.fault(api="Produce", stall=True):
                future = producer.send_nowait("t", b"y")
                waits = asyncio.ensure_future(consumer.poll_batch())
                await soon(consumer.await_assigned())
                before = time.process_time()
                await asyncio.sleep(2)
                assert time.process_time() - before < 0.5, "it spins"
            await soon(future)
            await soon(waits)

    run(main())
