"""Cancellation at every await, at random moments: no hang, no leak, nothing acknowledged lost, every record accounted for."""

from __future__ import annotations

import asyncio
import random
from typing import Any, Callable, Coroutine, Dict, List, Optional, Set

import pytest
from aio_support import in_loops, soon, until
from test_aio_consumer import fill, numbers
from test_aio_producer import stored

from kclient import Outcome, errors
from kclient.aio import Admin, Consumer, Producer
from kclient.consumer import BEGINNING, TopicPartition

Properties = Dict[str, Any]
ROUNDS = 40


async def cancelled_at_random(make: Callable[[], Coroutine[Any, Any, Any]], rng: random.Random, most: float = 0.01) -> Any:
    """Starts it and cancels it some passes of the loop, or some milliseconds, later. Its result, where it was quicker; else the CancelledError."""
    raised = asyncio.CancelledError()
    raised.outcome = Outcome.NOT_PERSISTED  # type: ignore[attr-defined]

    async def inside() -> Any:
        nonlocal raised
        try:
            return await make()
        except asyncio.CancelledError as e:  # what it tells does not cross from task to task in all Pythons
            raised = e
            raise

    task = asyncio.ensure_future(inside())
    if rng.random() < 0.5:
        for _ in range(rng.randrange(6)):
            await asyncio.sleep(0)
    else:
        await asyncio.sleep(rng.random() * most)
    task.cancel()
    try:
        return await soon(task)
    except asyncio.CancelledError:
        return raised


def nothing_left(*roles: Any) -> None:
    for role in roles:
        driver = role._driver
        assert not driver._operations, driver._operations
        assert not getattr(role, "_waiting", None) and not getattr(role, "_waiters", None)


@in_loops
async def test_sends(properties: Properties, topic: str) -> None:
    """What was said to be stored is; what was said not to have been taken is not; all is accounted for in the end."""
    rng = random.Random(1)
    told: Dict[bytes, Optional[Outcome]] = {}
    async with Producer(**properties, queue_buffering_max_messages=5, linger_ms=1) as producer:

        async def one(value: bytes) -> None:
            result = await cancelled_at_random(lambda: producer.send(topic, value, partition=0), rng)
            told[value] = result.outcome

        for i in range(ROUNDS):
            await asyncio.gather(*(one(b"%d-%d" % (i, k)) for k in range(12)))
        await soon(producer.flush())
        await until(lambda: len(producer) == 0)
        nothing_left(producer)
        assert not producer._has_outstanding()
    found = stored(properties, topic)
    assert len(found) == len(set(found))
    assert {value for value, outcome in told.items() if outcome == Outcome.PERSISTED} <= set(found)
    assert not {value for value, outcome in told.items() if outcome == Outcome.NOT_PERSISTED} & set(found)
    assert {value for value, outcome in told.items() if outcome != Outcome.NOT_PERSISTED} == set(found)


@in_loops
async def test_futures_that_are_cancelled_are_sent_all_the_same(properties: Properties, topic: str) -> None:
    async with Producer(**properties) as producer:
        futures = [producer.send_nowait(topic, b"%d" % i, partition=0) for i in range(100)]
        for future in futures[::2]:
            assert future.cancel()
        await soon(producer.flush())
        assert [future.result().offset for future in futures[1::2]] == list(range(1, 100, 2))
    assert stored(properties, topic) == numbers(100)


@in_loops
async def test_send_many(properties: Properties, topic: str) -> None:
    rng = random.Random(2)
    sure: Set[Optional[bytes]] = set()
    never: Set[Optional[bytes]] = set()
    async with Producer(**properties, queue_buffering_max_messages=50, linger_ms=0) as producer:

        async def one(values: List[bytes]) -> None:
            result = await cancelled_at_random(lambda: producer.send_many(topic, values, partition=0), rng)
            if isinstance(result, list):
                sure.update(values)
            elif result.outcome == Outcome.NOT_PERSISTED:
                never.update(values)

        for i in range(ROUNDS):
            await asyncio.gather(*(one([b"%d-%d-%d" % (i, k, n) for n in range(120)]) for k in range(3)))
        await soon(producer.flush())
        await until(lambda: len(producer) == 0)
        nothing_left(producer)
        assert not producer._has_outstanding()
    found = stored(properties, topic)
    assert len(found) == len(set(found)) and sure <= set(found) and not never & set(found)


@in_loops
async def test_flush_and_close(properties: Properties, topic: str) -> None:
    rng = random.Random(3)
    count = 0
    for _ in range(ROUNDS // 4):
        producer = Producer(**properties, linger_ms=5)
        futures = [producer.send_nowait(topic, b"%d" % (count + i), partition=0) for i in range(20)]
        count += 20
        await cancelled_at_random(producer.flush, rng)
        await cancelled_at_random(producer.close, rng)
        await soon(producer.close())
        assert all(future.result().ok for future in futures)
        nothing_left(producer)
    assert stored(properties, topic) == numbers(count)


@in_loops
async def test_polls_lose_no_record(properties: Properties, topic: str) -> None:
    """Records come in while polls of each kind are cancelled: each is given out once, in order."""
    rng = random.Random(4)
    total = 2000
    async with Producer(**properties) as producer, Consumer(**properties, fetch_wait_max_ms=5) as consumer:
        await soon(producer.send(topic, b"0", partition=0))
        consumer.assign((topic, 0, BEGINNING))
        found: List[int] = []

        async def feed() -> None:
            for i in range(1, total):
                producer.send_nowait(topic, b"%d" % i, partition=0)
                if i % 20 == 0:
                    await asyncio.sleep(0.001)

        async def iterate() -> None:
            async for record in consumer:
                found.append(record.offset)
                if rng.random() < 0.1:
                    await asyncio.sleep(0)

        async def batch() -> None:
            got = await consumer.poll_batch()
            found.extend(record.offset for record in got or [])

        async def record() -> None:
            got = await consumer.poll_record(0.01)
            if got is not None:
                found.append(got.offset)

        async def poll() -> None:
            got = await consumer.poll(0.01)
            found.extend(r.offset for r in got or [])

        feeder = asyncio.ensure_future(feed())
        while len(found) < total:
            await cancelled_at_random(rng.choice([iterate, batch, record, poll]), rng, 0.003)
        await soon(feeder)
        assert found == list(range(total))
        nothing_left(consumer, producer)


@in_loops
async def test_a_callback_is_not_left_half_done(properties: Properties, topic: str) -> None:
    fill(properties, topic, numbers(10))
    rng = random.Random(5)
    for round in range(6):
        steps: List[str] = []

        async def on_assigned(consumer: Consumer, partitions: List[TopicPartition]) -> None:
            steps.append("begun")
            await asyncio.sleep(0.05)
            consumer.seek([(p.topic, p.partition, 5) for p in partitions])
            steps.append("done")

        async with Consumer(**properties, group_id=f"{topic}-{round}", topics=topic, on_assigned=on_assigned) as consumer:
            while not steps:
                await cancelled_at_random(consumer.poll_record, rng)
            await cancelled_at_random(consumer.poll_record, rng)
            assert (await soon(consumer.poll_record())).offset == 5 and steps == ["begun", "done"]
            nothing_left(consumer)


@in_loops
async def test_commits_and_lookups(properties: Properties, topic: str) -> None:
    fill(properties, topic, numbers(50))
    rng = random.Random(6)
    async with Consumer(**properties, group_id=topic, enable_auto_commit=False) as consumer:
        consumer.assign((topic, 0, BEGINNING))
        for i in range(1, ROUNDS):
            assert (await soon(consumer.poll_record())).offset == i - 1
            await cancelled_at_random(consumer.commit, rng, 0.003)
            await cancelled_at_random(lambda: consumer.committed((topic, 0)), rng, 0.003)
            await cancelled_at_random(lambda: consumer.offsets((topic, 0, BEGINNING)), rng, 0.003)
        await soon(consumer.commit())
        assert (await soon(consumer.committed((topic, 0))))[0].offset == ROUNDS - 1
        nothing_left(consumer)
        await cancelled_at_random(consumer.close, rng)
        await soon(consumer.close())


@in_loops
async def test_await_assigned(properties: Properties, topic: str) -> None:
    fill(properties, topic, numbers(1))
    rng = random.Random(7)
    async with Consumer(**properties, group_id=topic, topics=topic) as consumer:
        for _ in range(10):
            await cancelled_at_random(consumer.await_assigned, rng, 0.003)
        await soon(consumer.await_assigned())
        nothing_left(consumer)


CALLS: Dict[str, Callable[[Admin, str], Coroutine[Any, Any, Any]]] = {
    "create_topic": lambda admin, name: admin.create_topic(name),
    "describe": lambda admin, name: admin.describe(name),
    "list_topics": lambda admin, name: admin.list_topics(),
    "topic_configs": lambda admin, name: admin.topic_configs(name),
    "alter_topic_configs": lambda admin, name: admin.alter_topic_configs(name, {"retention.ms": 1000}),
    "create_partitions": lambda admin, name: admin.create_partitions({name: 3}),
    "list_groups": lambda admin, name: admin.list_groups(),
    "describe_groups": lambda admin, name: admin.describe_groups(name),
    "group_offsets": lambda admin, name: admin.group_offsets(name),
    "delete_records": lambda admin, name: admin.delete_records((name, 0, -1)),
    "quorum": lambda admin, name: admin.quorum(),
    "log_dirs": lambda admin, name: admin.log_dirs(0),
    "delete_topics": lambda admin, name: admin.delete_topics(name),
}


@in_loops
async def test_administration(properties: Properties, topic: str) -> None:
    rng = random.Random(8)
    async with Admin(**properties) as admin:
        for i in range(3):
            for call in CALLS.values():
                try:
                    await cancelled_at_random(lambda: call(admin, f"{topic}-{i}"), rng, 0.004)
                except errors.KafkaError:
                    pass  # an earlier call was cancelled before it had its effect
        nothing_left(admin)
        await soon(admin.describe())


@in_loops
async def test_a_timeout_around_anything(properties: Properties, topic: str) -> None:
    fill(properties, topic, numbers(1))
    async with Consumer(**properties) as consumer, Producer(**properties, linger_ms=60_000) as producer:
        consumer.assign((topic, 0, 1))
        producer.send_nowait(topic, b"lingers", partition=0)  # and so does what comes beside it
        for wait in (consumer.poll_batch(), consumer.poll_record(), consumer.poll(), producer.send(topic, b"x", partition=0)):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(wait, 0.02)
        await soon(producer.flush())
        assert [(await soon(consumer.poll_record())).value for _ in range(2)] == [b"lingers", b"x"]
        nothing_left(consumer, producer)
