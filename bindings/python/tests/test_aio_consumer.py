"""kclient.aio.Consumer: each method, groups, events."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Dict, List, Optional

import pytest
from aio_support import in_loops, run, soon, until

from kclient import Producer, errors
from kclient.aio import Admin, Client, Consumer
from kclient.consumer import BEGINNING, COMMITTED, END, Assigned, PartitionEnd, TopicPartition
from kclient.testing import Cluster

Properties = Dict[str, Any]


def fill(properties: Properties, topic: str, values: List[bytes], partition: Optional[int] = 0, partitions: int = 1) -> None:
    with Producer(bootstrap_servers=properties["bootstrap_servers"]) as producer:
        producer.send_many(topic, values, partition=partition)


def numbers(count: int) -> List[bytes]:
    return [b"%d" % i for i in range(count)]


@in_loops
async def test_async_for(properties: Properties, topic: str) -> None:
    fill(properties, topic, numbers(3000))
    async with Consumer(**properties, stop_at_end=True) as consumer:
        consumer.assign((topic, 0, BEGINNING))
        records = []
        async for record in consumer:
            records.append(record)
            if len(records) == 1000:
                break
        assert consumer.position((topic, 0))[0].offset >= 1000
        async for record in consumer:  # goes on behind the one before
            records.append(record)
        assert [record.value for record in records] == numbers(3000) and records[7].offset == 7
        with pytest.raises(TypeError, match="async for"):
            iter(consumer)
    with pytest.raises(errors.Closed):
        await soon(consumer.poll_batch())
    await consumer.close()


@in_loops
async def test_batches(properties: Properties, topic: str) -> None:
    fill(properties, topic, numbers(3000))
    async with Consumer(**properties) as consumer:
        consumer.assign((topic, 0, BEGINNING))
        first = await soon(consumer.poll_record())
        assert first is not None and first.value == b"0"
        found: List[Any] = []
        while len(found) < 2999:
            batch = await soon(consumer.poll_batch())
            assert batch is not None and batch.topic == topic
            found += batch.values()
        assert found == numbers(3000)[1:]
        before = time.monotonic()
        assert await consumer.poll_batch(0) is None and await consumer.poll_record(0.1) is None
        assert time.monotonic() - before >= 0.1


@in_loops
async def test_it_waits_for_what_comes_later(properties: Properties, topic: str) -> None:
    fill(properties, topic, numbers(1))
    async with Consumer(**properties) as consumer:
        consumer.assign((topic, 0, 1))
        waits = [asyncio.ensure_future(consumer.poll_record()) for _ in range(3)]
        await asyncio.sleep(0.05)
        assert not any(task.done() for task in waits)
        fill(properties, topic, [b"a", b"b", b"c"])
        records = await soon(asyncio.gather(*waits))
        assert sorted(record.value for record in records) == [b"a", b"b", b"c"]


@in_loops
async def test_seek_pause_position_lag_and_lookups(properties: Properties, topic: str) -> None:
    fill(properties, topic, numbers(100))
    async with Consumer(**properties) as consumer:
        consumer.assign((topic, 0, 40))
        assert (await soon(consumer.poll_record())).offset == 40
        consumer.seek((topic, 0), 90)
        assert (await soon(consumer.poll_record())).offset == 90
        consumer.pause((topic, 0))
        consumer.seek((topic, 0), 10)
        assert await consumer.poll_record(0.1) is None
        consumer.resume((topic, 0))
        record = await soon(consumer.poll_record())
        assert record.offset == 10 and consumer.position((topic, 0))[0].offset > 10 and consumer.lag((topic, 0))[0].offset >= 0
        assert [p.partition for p in consumer.assignment] == [0] and consumer.why()
        found = await soon(consumer.offsets([(topic, 0, BEGINNING), (topic, 0, END)]))
        assert [p.offset for p in found] == [0, 100]
        assert (await soon(consumer.offsets((topic, 0, int(time.time() * 1000) + 10**6))))[0].offset == -1


@in_loops
async def test_a_group_shares_commits_and_goes_on(properties: Properties, topic: str) -> None:
    async with Admin(**properties) as admin:
        await soon(admin.create_topic(topic, partitions=2))
    for partition in (0, 1):
        fill(properties, topic, numbers(50), partition)
    group = dict(group_id=topic, topics=[topic], auto_offset_reset="earliest", enable_auto_commit=False)
    told: List[Any] = []

    async def on_assigned(consumer: Consumer, partitions: List[TopicPartition]) -> None:
        await asyncio.sleep(0.01)
        told.append(("assigned", sorted(p.partition for p in partitions)))

    async def on_revoked(consumer: Consumer, partitions: List[TopicPartition]) -> None:
        await consumer.commit()  # takes effect: the group waits
        told.append(("revoked", sorted(p.partition for p in partitions)))

    async with Consumer(**properties, **group, on_assigned=on_assigned, on_revoked=on_revoked) as one:
        seen = [await soon(one.poll_record()) for _ in range(100)]
        assert told == [("assigned", [0, 1])] and one.member[0] >= 0
        async with Consumer(**properties, **group) as two:
            reader = asyncio.ensure_future(one.poll_record())
            both = asyncio.ensure_future(two.poll_record())
            await until(lambda: len(two.assignment) == 1 and len(one.assignment) == 1)
            assert told[1][0] == "revoked"
            for task in (reader, both):
                task.cancel()
            await asyncio.gather(reader, both, return_exceptions=True)
            committed = await soon(two.committed([(topic, 0), (topic, 1)]))
            assert [p.offset for p in committed] == [50, 50]
        assert len({(record.partition, record.offset) for record in seen}) == 100
    async with Consumer(**properties, **group) as three:
        await soon(three.await_assigned())
        assert await three.poll_record(0.3) is None  # all was committed
        await soon(three.commit((topic, 0, 49), timeout=30))
        assert (await soon(three.committed((topic, 0))))[0].offset == 49
        with pytest.raises(errors.NotAssigned):
            await soon(three.commit(("another", 0, 1)))


@in_loops
async def test_commits_of_records_and_batches(properties: Properties, topic: str) -> None:
    fill(properties, topic, numbers(20))
    async with Consumer(**properties, group_id=topic, enable_auto_commit=False) as consumer:
        consumer.assign((topic, 0, BEGINNING))
        records = [await soon(consumer.poll_record()) for _ in range(5)]
        await soon(consumer.commit())
        assert (await soon(consumer.committed((topic, 0))))[0].offset == 5
        await soon(consumer.commit(records[2]))
        assert (await soon(consumer.committed((topic, 0))))[0].offset == 3
        batch = await soon(consumer.poll_batch())
        await soon(consumer.commit(batch))
        assert (await soon(consumer.committed((topic, 0))))[0].offset == batch.next_offset
    async with Consumer(**properties, group_id=topic, processed="explicit") as consumer:
        consumer.assign((topic, 0, BEGINNING))
        record = await soon(consumer.poll_record())
        consumer.processed(record)
        await soon(consumer.commit())
        assert (await soon(consumer.committed((topic, 0))))[0].offset == 1
        consumer.assign((topic, 0, COMMITTED))


@in_loops
async def test_commit_after_an_event(properties: Properties, topic: str) -> None:
    fill(properties, topic, numbers(10))
    async with Consumer(**properties, group_id=topic, enable_auto_commit=False) as consumer:
        consumer.assign((topic, 0, BEGINNING))
        assert len(await soon(consumer.poll()) or []) == 10
        await soon(consumer.commit())
        assert (await soon(consumer.committed((topic, 0))))[0].offset == 10


@in_loops
async def test_poll_gives_events(properties: Properties, topic: str) -> None:
    fill(properties, topic, numbers(3))
    async with Consumer(**properties, group_id=topic, topics=topic, auto_offset_reset="earliest", enable_partition_eof=True) as consumer:
        event = await soon(consumer.poll())
        assert isinstance(event, Assigned) and [p.partition for p in event.partitions] == [0]
        batch = await soon(consumer.poll())
        assert len(batch) == 3
        assert isinstance(await soon(consumer.poll()), PartitionEnd)
        assert await consumer.poll(0.05) is None
        consumer.unsubscribe()
        consumer.subscribe("another-.*", regex=True)


@in_loops
async def test_wake_ends_the_waits(properties: Properties, topic: str) -> None:
    fill(properties, topic, numbers(1))
    async with Consumer(**properties) as consumer:
        consumer.assign((topic, 0, END))
        for wait in (consumer.poll_batch, consumer.poll_record, consumer.poll):
            task = asyncio.ensure_future(wait())
            await asyncio.sleep(0.05)
            consumer.wake()
            assert await soon(task) is None
        task = asyncio.ensure_future(consumer.poll_record())
        await asyncio.sleep(0)
        await soon(consumer.close())
        with pytest.raises(errors.Closed):
            await soon(task)


@in_loops
async def test_an_exception_in_a_callback_reaches_the_poll_and_breaks_nothing(properties: Properties, topic: str) -> None:
    fill(properties, topic, numbers(3))
    calls: List[int] = []

    def sync(consumer: Consumer, partitions: List[TopicPartition]) -> None:
        calls.append(1)
        raise RuntimeError("mine")

    async def later(consumer: Consumer, partitions: List[TopicPartition]) -> None:
        calls.append(2)
        await asyncio.sleep(0.01)
        raise RuntimeError("mine")

    for callback in (sync, later):
        group = dict(group_id=f"{topic}-{callback.__name__}", topics=topic, auto_offset_reset="earliest")
        async with Consumer(**properties, **group, on_assigned=callback) as consumer:
            with pytest.raises(RuntimeError, match="mine"):
                await soon(consumer.poll_record())
            assert (await soon(consumer.poll_record())).value == b"0"
    assert calls == [1, 2]


@in_loops
async def test_offsets_kept_elsewhere_are_sought_in_on_assigned(properties: Properties, topic: str) -> None:
    fill(properties, topic, numbers(10))

    async def on_assigned(consumer: Consumer, partitions: List[TopicPartition]) -> None:
        await asyncio.sleep(0)
        consumer.seek([(p.topic, p.partition, 7) for p in partitions])

    async with Consumer(**properties, group_id=topic, topics=topic, auto_offset_reset="earliest", on_assigned=on_assigned) as consumer:
        assert (await soon(consumer.poll_record())).offset == 7


@in_loops
async def test_errors_are_raised_by_poll_which_then_goes_on(properties: Properties, topic: str) -> None:
    fill(properties, topic, numbers(3))
    async with Consumer(**properties, auto_offset_reset="error") as consumer:
        consumer.assign((topic, 0, 99))
        with pytest.raises(errors.OffsetOutOfRange):  # type: ignore[attr-defined]
            await soon(consumer.poll_batch())
        consumer.seek((topic, 0), 1)
        assert (await soon(consumer.poll_record())).offset == 1


@in_loops
async def test_the_loop_runs_on_while_records_are_at_hand(properties: Properties, topic: str) -> None:
    fill(properties, topic, [b"x" * 100] * 200_000)
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    async with Consumer(**properties, stop_at_end=True) as consumer:
        consumer.assign((topic, 0, BEGINNING))
        ticker = asyncio.ensure_future(tick())
        count = 0
        async for _ in consumer:
            count += 1
            if count == 1:
                ticks = 0
        ticker.cancel()
        assert count == 200_000 and ticks >= 5


@in_loops
async def test_a_shared_client(properties: Properties, topic: str) -> None:
    fill(properties, topic, numbers(10))
    async with Client(**properties) as client:
        member = Consumer(client, group_id=topic, topics=topic, auto_offset_reset="earliest")
        async with Consumer(client, stop_at_end=True) as one, member as two, Admin(client) as admin:
            one.assign((topic, 0, BEGINNING))
            assert [record.value async for record in one] == numbers(10)
            assert (await soon(two.poll_record())).value == b"0"
            assert topic in await soon(admin.list_topics())


@pytest.fixture
def hasty(kafka_cluster_factory: Any) -> str:
    """A broker that takes short session timeouts."""
    bootstrap: str = kafka_cluster_factory(config={"group.min.session.timeout.ms": 100}).bootstrap
    return bootstrap


def test_a_consumer_that_waits_stays_in_its_group(hasty: str, topic: str) -> None:
    """A wait counts as polling: max.poll.interval.ms does not end the membership of one that has nothing to read."""
    told: List[str] = []

    async def main() -> None:
        with Producer(bootstrap_servers=hasty) as producer:
            producer.send_wait(topic, b"first")
        async with Consumer(
            bootstrap_servers=hasty, group_id=topic, topics=topic, auto_offset_reset="earliest", max_poll_interval_ms=1500, session_timeout_ms=1000,
            heartbeat_interval_ms=100, on_lost=lambda consumer, partitions: told.append("lost"),
        ) as consumer:  # fmt: skip
            assert (await soon(consumer.poll_record())).value == b"first"
            generation = consumer.member[0]
            assert await consumer.poll_record(4.0) is None
            assert consumer.member[0] == generation and told == []

    run(main())


def test_partitions_are_lost_where_nobody_polls(hasty: str, topic: str) -> None:
    told: List[Any] = []

    async def main() -> None:
        with Producer(bootstrap_servers=hasty) as producer:
            producer.send_wait(topic, b"first")

        async def on_lost(consumer: Consumer, partitions: List[TopicPartition]) -> None:
            told.append([p.partition for p in partitions])

        async with Consumer(
            bootstrap_servers=hasty, group_id=topic, topics=topic, auto_offset_reset="earliest", max_poll_interval_ms=700, session_timeout_ms=600,
            heartbeat_interval_ms=50, enable_auto_commit=False, on_lost=on_lost,
        ) as consumer:  # fmt: skip
            assert (await soon(consumer.poll_record())).value == b"first"
            await until(lambda: consumer.member[0] == -1)  # polls nothing
            assert (await soon(consumer.poll_record())).value == b"first"  # joined anew
            assert told == [[0]]

    run(main())


def test_wait_for_assigned_of_the_test_kit(kafka_cluster: Cluster) -> None:
    async def main() -> None:
        kafka_cluster.create_topic("t")
        async with Consumer(bootstrap_servers=kafka_cluster.bootstrap, group_id="g", topics="t") as consumer:
            await kafka_cluster.wait_for_assigned(consumer)
            with kafka_cluster.fault(api="JoinGroup", stall=True):
                async with Consumer(bootstrap_servers=kafka_cluster.bootstrap, group_id="g", topics="t") as late:
                    with pytest.raises(TimeoutError, match="to be assigned"):
                        await kafka_cluster.wait_for_assigned(late, timeout=0.3)

    run(main())
