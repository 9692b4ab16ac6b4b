"""kclient.aio.Producer: each method, back-pressure, failures."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any, Dict, List, Optional

import pytest
from aio_support import in_loops, run, soon, until

from kclient import Consumer, DeliveryFailed, KafkaError, Outcome, QueueFull, TooLarge, errors, new_guid
from kclient.aio import Client, Producer
from kclient.testing import Cluster

Properties = Dict[str, Any]


def stored(properties: Properties, topic: str, partitions: int = 1) -> List[Optional[bytes]]:
    """All values in the topic, partition by partition."""
    with Consumer(bootstrap_servers=properties["bootstrap_servers"], stop_at_end=True, enable_auto_commit=False) as consumer:
        consumer.assign([(topic, i, 0) for i in range(partitions)])
        return [record.value for record in consumer]


@in_loops
async def test_send_gives_the_report(properties: Properties, topic: str) -> None:
    async with Producer(**properties) as producer:
        report = await soon(producer.send(topic, "hello", key="k", headers={"h": b"1"}, timestamp=1234))
        assert (report.topic, report.partition, report.offset, report.timestamp, report.ok) == (topic, 0, 0, 1234, True)
        assert report.outcome == Outcome.PERSISTED and report.size == 6
        assert (await soon(producer.send(topic, None))).offset == 1
    with Consumer(bootstrap_servers=properties["bootstrap_servers"], stop_at_end=True) as consumer:
        consumer.assign([(topic, 0, 0)])
        first, second = list(consumer)
    assert (first.key, first.value, first.headers, first.timestamp) == (b"k", b"hello", [("h", b"1")], 1234)
    assert second.value is None


@in_loops
async def test_a_send_on_its_own_does_not_linger(properties: Properties, topic: str) -> None:
    async with Producer(**properties, linger_ms=60_000) as producer:
        for offset in range(5):
            assert (await soon(producer.send(topic, b"x", partition=0))).offset == offset
        held = producer.send_nowait(topic, b"x", partition=0)
        beside = asyncio.ensure_future(producer.send(topic, b"x", partition=0))  # may share its batch
        await asyncio.sleep(0.1)
        assert not held.done() and not beside.done()
        await soon(producer.flush())
        assert (held.result().offset, (await soon(beside)).offset, producer.stats().batches_sent) == (5, 6, 6)


@in_loops
async def test_many_are_on_their_way_at_once(properties: Properties, topic: str) -> None:
    async with Producer(**properties) as producer:
        futures = [producer.send_nowait(topic, str(i), partition=0) for i in range(2000)]
        reports = await soon(asyncio.gather(*futures))
        assert [report.offset for report in reports] == list(range(2000))
        reports = await soon(asyncio.gather(*(producer.send(topic, str(i), partition=0) for i in range(2000, 2500))))
        assert [report.offset for report in reports] == list(range(2000, 2500))
    assert stored(properties, topic) == [str(i).encode() for i in range(2500)]


@in_loops
async def test_send_many(properties: Properties, topic: str) -> None:
    async with Producer(**properties) as producer:
        values = [f"value {i}" for i in range(5000)]
        reports = await soon(producer.send_many(topic, values, partition=0))
        assert [report.offset for report in reports] == list(range(5000))
        assert await soon(producer.send_many(topic, [])) == []
        both = await soon(asyncio.gather(producer.send_many(topic, iter(["a", "b"]), ["k", None]), producer.send_many(topic, b"ccdddd", sizes=[2, -1, 4])))
        assert sorted(report.offset for reports in both for report in reports) == list(range(5000, 5005))
        guids = [new_guid(), None]
        assert len(await soon(producer.send_many(topic, ["x", "y"], headers=[{"h": "1"}, None], guids=guids, timestamps=[1, 2]))) == 2
    found = stored(properties, topic)
    assert found[:5000] == [value.encode() for value in values]
    assert found[5000:] == [b"a", b"b", b"cc", None, b"dddd", b"x", b"y"]


@in_loops
async def test_a_full_queue_awaits_space_in_order(properties: Properties, topic: str) -> None:
    async with Producer(**properties, queue_buffering_max_messages=10, linger_ms=0) as producer:
        tasks = [asyncio.ensure_future(producer.send(topic, str(i), partition=0)) for i in range(200)]
        await asyncio.sleep(0)
        with pytest.raises(QueueFull):
            for i in range(11):
                producer.send_nowait(topic, "no room", partition=0)
        reports = await soon(asyncio.gather(*tasks))
        assert [report.offset for report in reports] == list(range(200))
        reports = await soon(producer.send_many(topic, [str(i) for i in range(200, 500)], partition=0))
        assert [report.offset for report in reports] == list(range(200, 500))
        reports = await soon(producer.send_many(topic, b"".join(b"%d" % i for i in range(500, 600)), sizes=[3] * 100, partition=0))
        assert [report.offset for report in reports] == list(range(500, 600))
    assert stored(properties, topic) == [b"%d" % i for i in range(600)]


@in_loops
async def test_what_was_refused_was_not_taken(properties: Properties, topic: str) -> None:
    async with Producer(**properties, message_max_bytes=2000, max_request_size=2000) as producer:
        with pytest.raises(TooLarge):
            producer.send_nowait(topic, b"x" * 5000)
        with pytest.raises(TooLarge):
            await producer.send(topic, b"x" * 5000)
        with pytest.raises(TooLarge) as refused:
            await soon(producer.send_many(topic, [b"1", b"2", b"x" * 5000, b"4"]))
        assert refused.value.accepted == 2
        with pytest.raises(TypeError):
            await producer.send(topic, 7)  # type: ignore[arg-type]
        with pytest.raises(errors.Invalid):
            producer.send_nowait("no/such/name", b"x")
        with pytest.raises(ValueError):
            await producer.send_many(topic, ["a", "b"], keys=["k"])
    with pytest.raises(errors.Closed):
        await producer.send(topic, b"x")
    with pytest.raises(errors.Closed):
        producer.send_nowait(topic, b"x")
    assert sorted(stored(properties, topic)) == [b"1", b"2"]


@in_loops
async def test_a_record_that_fails_raises_its_error_with_what_was_tried(properties: Properties, topic: str) -> None:
    nowhere = {**properties, "bootstrap_servers": "127.0.0.1:1"}
    async with Producer(**nowhere, message_timeout_ms=300, linger_ms=0) as producer:
        with pytest.raises(errors.Expired) as failed:
            await soon(producer.send(topic, b"x"))
        assert failed.value.outcome == Outcome.NOT_PERSISTED and failed.value.attempts[0].phase in str(failed.value)
        future = producer.send_nowait(topic, b"x")
        with pytest.raises(errors.Expired):
            await soon(future)
        with pytest.raises(DeliveryFailed) as many:
            await soon(producer.send_many(topic, ["a", "b", "c"]))
        assert many.value.count == 3 and [report.ok for report in many.value.reports] == [False] * 3
        await soon(producer.flush())


@in_loops
async def test_flush_leaves_nothing_undone(properties: Properties, topic: str) -> None:
    async with Producer(**properties, linger_ms=30_000) as producer:
        futures = [producer.send_nowait(topic, b"x") for _ in range(10)]
        await soon(producer.flush())
        assert all(future.done() for future in futures) and len(producer) == 0
    async with Producer(**{**properties, "bootstrap_servers": "127.0.0.1:1"}, message_timeout_ms=500) as producer:
        future = producer.send_nowait(topic, b"x")
        with pytest.raises(errors.TimedOut):
            await producer.flush(0.05)
        await soon(producer.flush())
        assert isinstance(future.exception(), errors.Expired)


@in_loops
async def test_a_wrong_timeout_is_told_before_anything_is_begun(properties: Properties, topic: str) -> None:
    async with Producer(**properties, linger_ms=30_000) as producer:
        future = producer.send_nowait(topic, b"x")
        with pytest.raises(ValueError):
            await producer.flush(-1)
        assert not producer._driver._operations and not future.done()
        await soon(producer.flush())


@in_loops
async def test_close_sends_what_is_queued(properties: Properties, topic: str) -> None:
    producer = Producer(**properties, linger_ms=30_000)
    futures = [producer.send_nowait(topic, b"%d" % i, partition=0) for i in range(100)]
    await soon(asyncio.gather(producer.close(), producer.close()))
    await producer.close()
    assert [future.result().offset for future in futures] == list(range(100)) and producer.closed


@in_loops
async def test_close_fails_what_it_cannot_send(properties: Properties, topic: str) -> None:
    producer = Producer(**{**properties, "bootstrap_servers": "127.0.0.1:1"}, queue_buffering_max_messages=2)
    futures = [producer.send_nowait(topic, b"x") for _ in range(2)]
    waits = asyncio.ensure_future(producer.send(topic, b"waits for room"))
    await asyncio.sleep(0)
    await soon(producer.close(0.2))
    for future in futures:
        assert isinstance(future.exception(), KafkaError)
    with pytest.raises(KafkaError):
        await soon(waits)


@in_loops
async def test_an_exception_inside_the_block_is_the_one_to_see(properties: Properties, topic: str) -> None:
    with pytest.raises(RuntimeError, match="mine"):
        async with Producer(**properties, linger_ms=30_000) as producer:
            future = producer.send_nowait(topic, b"x")
            raise RuntimeError("mine")
    assert future.result().ok


@in_loops
async def test_a_partitioner_is_asked_and_what_it_raises_is_told(properties: Properties, topic: str) -> None:
    def choose(topic: str, key: Optional[bytes], count: int) -> Optional[int]:
        if key == b"bad":
            raise RuntimeError("mine")
        return count - 1

    async with Producer(**properties, partitioner=choose) as producer:
        assert (await soon(producer.send(topic, b"x"))).partition == 0
        with pytest.raises(RuntimeError, match="mine"):
            await soon(producer.send(topic, b"x", key="bad"))
        assert len(await soon(producer.send_many(topic, ["a", "b"]))) == 2


@in_loops
async def test_producers_share_a_client(properties: Properties, topic: str) -> None:
    async with Client(**properties) as client:
        async with Producer(client) as one, Producer(client, linger_ms=1) as other:
            offsets = [(await soon(producer.send(topic, b"x"))).offset for producer in (one, other, one)]
            assert offsets == [0, 1, 2]
        async with Producer(client) as one:
            await soon(one.send(topic, b"x"))
    with pytest.raises(errors.Closed):
        Producer(client)


@in_loops
async def test_ids(properties: Properties, topic: str) -> None:
    guid = new_guid()
    async with Producer(**properties) as producer:
        await soon(producer.send(topic, b"x", guid=guid))
        with pytest.raises(errors.BadGuid):
            await producer.send(topic, b"x", guid="no id")
    with Consumer(bootstrap_servers=properties["bootstrap_servers"], stop_at_end=True) as consumer:
        consumer.assign([(topic, 0, 0)])
        assert [record.guid for record in consumer] == [guid] and isinstance(guid, uuid.UUID)


def test_it_needs_a_loop(broker: str) -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        Producer(bootstrap_servers=broker)


def test_a_client_is_of_one_loop_at_a_time(broker: str, topic: str) -> None:
    clients: List[Client] = []

    async def first() -> None:
        clients.append(Client(bootstrap_servers=broker))
        producer = Producer(clients[0])
        await soon(producer.send(topic, b"x"))
        await asyncio.to_thread(other)
        await producer.close()

    def other() -> None:
        async def second() -> None:
            with pytest.raises(RuntimeError, match="another event loop"):
                Producer(clients[0])

        run(second())

    async def later() -> None:
        async with Producer(clients[0]) as producer:
            await soon(producer.send(topic, b"x"))
        await clients[0].close()

    run(first())
    run(later())


def test_records_survive_a_leader_that_goes() -> None:
    async def main(cluster: Cluster) -> None:
        async with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            futures = []
            for i in range(3000):
                futures.append(producer.send_nowait("t", b"%d" % i, partition=0))
                if i == 1000:
                    leader = cluster.wait_for_leader("t", 0)
                    cluster.kill_node(leader)
                if i % 10 == 0:
                    await asyncio.sleep(0.001)
            reports = await soon(asyncio.gather(*futures))
            assert sorted(report.offset for report in reports) == list(range(3000))

    with Cluster(3) as cluster:
        cluster.create_topic("t", replication_factor=3, configs={"min.insync.replicas": 2})
        run(main(cluster))


def test_a_fault_shows_in_the_attempts(kafka_cluster: Cluster) -> None:
    async def main() -> None:
        async with Producer(bootstrap_servers=kafka_cluster.bootstrap, retries=0, enable_idempotence=False) as producer:
            await soon(producer.send("t", b"x"))
            with kafka_cluster.fault(api="Produce", close=True, when="after"):
                with pytest.raises(KafkaError) as failed:
                    await soon(producer.send("t", b"x"))
            assert failed.value.outcome == Outcome.MAYBE_PERSISTED
            await until(lambda: len(producer) == 0)

    run(main())
