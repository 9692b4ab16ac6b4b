"""The consumer: batches and records, positions, groups, commits, callbacks that raise, what outlives it."""
import gc
import threading
import time
import warnings
from typing import Any, Iterator, List

import kclient
import pytest
from kclient import Admin, Consumer, Producer, TopicPartition


@pytest.fixture
def filled(broker: str, topic: str) -> Iterator[str]:
    """A topic of two partitions with 100 records each: "0 0" to "1 99", keys "0" to "99"."""
    with Producer(bootstrap_servers=broker) as producer, Admin(producer.client) as admin:
        admin.create_topic(topic, partitions=2)
        for partition in (0, 1):
            producer.send_many(topic, [f"{partition} {i}" for i in range(100)], [str(i) for i in range(100)], partition)
    yield topic


def test_batch(broker: str, filled: str) -> None:
    with Consumer(bootstrap_servers=broker) as consumer:
        consumer.assign((filled, 1, 10))
        batch = consumer.poll_batch(30)
        assert batch is not None and (batch.topic, batch.partition, len(batch), batch.next_offset, batch.high_watermark) == (filled, 1, 90, 100, 100)
        assert batch.values() == [f"1 {i}".encode() for i in range(10, 100)] and batch.keys()[0] == b"10"
        assert batch.offsets.tolist() == list(range(10, 100)) and batch.timestamps[0] > 1_600_000_000_000
        at, size = batch.value_starts[3], batch.value_sizes[3]
        assert bytes(memoryview(batch)[at:at + size]) == b"1 13" and batch.key_sizes[3] == 2
        assert bytes(memoryview(batch)[batch.key_starts[3]:][:2]) == b"13"
        part = batch[5:8]
        assert [r.offset for r in part] == [15, 16, 17] and part.next_offset == 18 and part[-1].value == b"1 17" and len(batch[7:3]) == 0
        assert part.values() == [b"1 15", b"1 16", b"1 17"] and part[1:][0] == batch[6] and part[0] != batch[6] and hash(part[0]) == hash(batch[5])
        assert batch[-1].offset == 99 and [r.key for r in batch][:2] == [b"10", b"11"] and batch[3].leader_epoch == 0
        for wrong in (90, -91):
            with pytest.raises(IndexError):
                batch[wrong]
        with pytest.raises(ValueError):
            batch[::2]
        with pytest.raises(TypeError):
            batch["x"]  # type: ignore[call-overload]
        with pytest.raises(TypeError):
            memoryview(batch)[0] = 1
        assert repr(batch) == f"<RecordBatch {filled}[1] offsets 10 to 99, 90 records>" and "value=b'1 13'" in repr(batch[3])
        assert consumer.poll_batch(0) is None and consumer.poll_batch(timeout=0.01) is None


def test_what_a_batch_shows_outlives_everything(broker: str, filled: str) -> None:
    with Consumer(bootstrap_servers=broker) as consumer:
        consumer.assign((filled, 0, 0))
        batch = consumer.poll_batch(30)
        assert batch is not None
        record, view, offsets, part = batch[7], memoryview(batch), batch.offsets, batch[2:4]
        at = batch.value_starts[0]
    del batch, consumer
    gc.collect()
    assert record.value == b"0 7" and bytes(view[at:at + 3]) == b"0 0" and offsets[99] == 99 and part.values() == [b"0 2", b"0 3"]
    assert record.headers == [] and record.timestamp_type == 0


def test_records_one_by_one(broker: str, filled: str) -> None:
    with Consumer(bootstrap_servers=broker, stop_at_end=True) as consumer:
        consumer.assign([(filled, 0, kclient.BEGINNING), (filled, 1, 50)])
        assert sorted((r.partition, r.offset) for r in consumer) == [(0, i) for i in range(100)] + [(1, i) for i in range(50, 100)]
        assert sorted(consumer.assignment) == sorted([TopicPartition(filled, 0, 100, 0), TopicPartition(filled, 1, 100, 0)])


def test_iteration_and_batches_mix(broker: str, filled: str) -> None:
    with Consumer(bootstrap_servers=broker) as consumer:
        consumer.assign((filled, 0, 0))
        assert [next(consumer).offset for _ in range(3)] == [0, 1, 2]
        record = consumer.poll_record(30)
        assert record is not None and record.offset == 3
        rest = consumer.poll_batch(30)
        assert rest is not None and rest[0].offset == 4 and len(rest) == 96
        consumer.seek((filled, 0), 42)
        assert next(consumer).offset == 42
        event = consumer.poll(30)
        assert isinstance(event, kclient.RecordBatch) and event[0].offset == 43
        consumer.seek([(filled, 0, 98)])
        assert [next(consumer).offset, next(consumer).offset] == [98, 99] and consumer.poll_record(0.01) is None
        consumer.seek((filled, 0), 98)
        assert next(consumer).offset == 98
        consumer.assign((filled, 1, 5))
        assert next(consumer).partition == 1  # nothing of what is no longer assigned


def test_positions(broker: str, filled: str) -> None:
    with Consumer(bootstrap_servers=broker) as consumer:
        both = [(filled, 0), (filled, 1)]
        consumer.assign([(filled, 0, 0)])
        assert consumer.poll_batch(30)
        assert consumer.position((filled, 0))[0].offset == 100 and consumer.lag((filled, 0))[0].offset == 0
        assert [p.offset for p in consumer.offsets([(*p, kclient.END) for p in both])] == [100, 100]
        assert consumer.offsets((filled, 0, kclient.BEGINNING))[0].offset == 0
        assert consumer.offsets((filled, 0, 4_000_000_000_000))[0].offset == -1
        with pytest.raises(kclient.NotAssigned, match=rf"{filled}\[1\]"):
            consumer.seek((filled, 1), 5)
        with pytest.raises(kclient.NotAssigned):
            consumer.position(both)
        consumer.pause((filled, 0))
        consumer.seek((filled, 0), 0)
        assert consumer.poll_batch(0.05) is None and consumer.why()[0].state == 1
        consumer.resume((filled, 0))
        assert consumer.poll_batch(30)


def test_group(broker: str, filled: str) -> None:
    told: List[Any] = []
    config = dict(bootstrap_servers=broker, group_id=filled, auto_offset_reset="earliest", enable_auto_commit=False)
    with Consumer(topics=filled, on_assigned=lambda c, p: told.append(("assigned", p)), on_revoked=lambda c, p: told.append(("revoked", p)),
                  stop_at_end=True, **config) as consumer:
        for record in consumer:
            pass
        assert [kind for kind, _ in told] == ["assigned"] and {(p.topic, p.partition) for p in told[0][1]} == {(filled, 0), (filled, 1)}
        generation, member = consumer.member
        assert generation > 0 and member
        consumer.commit()
        assert [p.offset for p in consumer.committed([(filled, 0), (filled, 1)])] == [100, 100]
        consumer.commit((filled, 0, 7))
        consumer.commit(TopicPartition(filled, 1, 8, metadata="why not"))
        found = consumer.committed([(filled, 0), (filled, 1)])
        assert [(p.offset, p.metadata) for p in found] == [(7, ""), (8, "why not")]
        with pytest.raises(kclient.NotAssigned):
            consumer.commit(("another", 0, 1))
    with Consumer(topics=[filled], stop_at_end=True, **config) as consumer:
        assert sorted((r.partition, r.offset) for r in consumer)[0] == (0, 7)


def test_commit_in_the_middle(broker: str, filled: str) -> None:
    config = dict(bootstrap_servers=broker, group_id=filled, enable_auto_commit=False)
    with Consumer(**config) as consumer:
        consumer.assign((filled, 0, 0))
        for record in consumer:
            if record.offset == 9:
                break
        consumer.commit()
        assert consumer.committed((filled, 0))[0].offset == 10
        record = next(consumer)
        consumer.commit(record)
        assert consumer.committed((filled, 0))[0].offset == 11
        batch = consumer.poll_batch(30)
        assert batch is not None
        consumer.commit(batch[:5])
        assert consumer.committed((filled, 0))[0].offset == 16
        consumer.commit(batch)
        assert consumer.committed((filled, 0))[0].offset == 100


def test_explicitly_processed_is_what_is_committed(broker: str, filled: str) -> None:
    config = dict(bootstrap_servers=broker, group_id=filled, auto_offset_reset="earliest")
    with Consumer(processed="explicit", topics=filled, **config) as consumer:
        batch = consumer.poll_batch(30)
        assert batch is not None
        consumer.processed(batch[3])
        other = 1 - batch.partition
        place = (filled, batch.partition)
    with Consumer(**config) as consumer:
        assert [p.offset for p in consumer.committed([place, (filled, other)])] == [4, -1]
        with pytest.raises(kclient.Invalid):
            consumer.assign((filled, 0, 0))
            consumer.processed((filled, 0, 1))
    with pytest.raises(ValueError):
        Consumer(processed="never", **config)


def test_events_in_order(broker: str, filled: str) -> None:
    with Consumer(bootstrap_servers=broker, group_id=filled, auto_offset_reset="earliest", enable_partition_eof=True, topics=filled) as consumer:
        event = consumer.poll(30)
        assert isinstance(event, kclient.Assigned) and len(event.partitions) == 2
        consumer.seek([(filled, 0, 90), (filled, 1, 95)])  # not acknowledged yet: the committed offset does not count
        seen, ends = 0, set()
        while len(ends) < 2:
            event = consumer.poll(30)
            assert event is not None
            if isinstance(event, kclient.RecordBatch):
                seen += len(event)
            elif isinstance(event, kclient.PartitionEnd):
                ends.add((event.partition, event.offset))
        assert seen == 15 and ends == {(0, 100), (1, 100)} and consumer.poll(0) is None


def test_rebalance_callbacks(broker: str, filled: str) -> None:
    """A second member comes: the first commits what it has in on_revoked, and the second goes on from there."""
    config = dict(bootstrap_servers=broker, group_id=filled, auto_offset_reset="earliest", enable_auto_commit=False)
    revoked: List[Any] = []

    def give_up(consumer: Consumer, partitions: List[TopicPartition]) -> None:
        revoked.extend(partitions)
        consumer.commit(*[(p.topic, p.partition, 60) for p in partitions])
    first = Consumer(topics=filled, on_revoked=give_up, **config)
    assert first.poll_batch(30) is not None
    second = Consumer(topics=filled, **config)
    deadline = time.monotonic() + 60
    batch = None
    while batch is None and time.monotonic() < deadline:
        first.poll_batch(0.01)
        batch = second.poll_batch(0.01)
    assert batch is not None and batch[0].offset == 60 and revoked
    second.close()
    first.close()


def test_what_a_callback_raises_reaches_the_caller(broker: str, filled: str) -> None:
    def broken(consumer: Consumer, partitions: Any) -> None:
        raise LookupError("of the callback")
    with Consumer(bootstrap_servers=broker, group_id=filled, auto_offset_reset="earliest", topics=filled, on_assigned=broken) as consumer:
        with pytest.raises(LookupError, match="of the callback"):
            consumer.poll_batch(30)
        got = 0
        while got < 200:  # the assignment stands, and nothing is lost
            batch = consumer.poll_batch(30)
            assert batch is not None
            got += len(batch)


def test_commit_after_an_event(broker: str, filled: str) -> None:
    """commit() commits what poll() gave last, too."""
    with Consumer(bootstrap_servers=broker, group_id=filled, enable_auto_commit=False) as consumer:
        consumer.assign((filled, 0, 0))
        batch = consumer.poll(30)
        assert isinstance(batch, kclient.RecordBatch)
        consumer.commit()
        assert consumer.committed((filled, 0))[0].offset == batch.next_offset == 100
        assert consumer.poll(0) is None
        consumer.seek((filled, 0), 50)
        consumer.commit()
        assert consumer.committed((filled, 0))[0].offset == 100


def test_lookups_that_fail_are_no_answer(kafka_cluster: Any) -> None:
    """A committed offset that could not be asked for is not taken for none."""
    kafka_cluster.create_topic("t")
    with Consumer(bootstrap_servers=kafka_cluster.bootstrap, group_id="g", enable_auto_commit=False) as consumer:
        consumer.assign(("t", 0, 0))
        consumer.commit(("t", 0, 7))
        with kafka_cluster.fault(api="OffsetFetch", error="GROUP_AUTHORIZATION_FAILED"), pytest.raises(kclient.errors.GroupAuthorizationFailed):
            consumer.committed(("t", 0))
        with kafka_cluster.fault(api="OffsetFetch", stall=True), pytest.raises(kclient.TimedOut):
            consumer.committed(("t", 0), timeout=0.3)
        assert consumer.committed(("t", 0))[0].offset == 7
    with Consumer(bootstrap_servers=kafka_cluster.bootstrap, default_api_timeout_ms=3000) as consumer:  # it might be a new partition: tried until then
        with pytest.raises(kclient.errors.UnknownTopicOrPartition) as raised:
            consumer.offsets([("t", 0, kclient.END), ("t", 5, kclient.END)])
        assert [(p.offset, p.error is None) for p in raised.value.results] == [(0, True), (-1, False)]


def test_a_poll_keeps_its_limit_whatever_happens_meanwhile(broker: str, filled: str) -> None:
    ended: List[float] = []

    def slow(consumer: Consumer, partitions: Any) -> None:
        consumer.seek([(p.topic, p.partition, kclient.END) for p in partitions])
        time.sleep(5)
        ended.append(time.monotonic())
    with Consumer(bootstrap_servers=broker, group_id=filled, topics=filled, on_assigned=slow) as consumer:
        while not ended:
            assert consumer.poll_record(5) is None
        assert time.monotonic() - ended[0] < 4  # not five seconds more


def test_errors_of_partitions(broker: str, filled: str) -> None:
    with Consumer(bootstrap_servers=broker, auto_offset_reset="error") as consumer:
        consumer.assign([(filled, 0, 5000), (filled, 1, 0)])
        with pytest.raises(kclient.KafkaError) as raised:
            while True:
                consumer.poll_batch(30)
        assert filled in str(raised.value)
        consumer.seek((filled, 0), 99)
        got = set()
        while len(got) < 2:
            batch = consumer.poll_batch(30)
            assert batch is not None
            got.add(batch.partition)
            if batch.partition == 0:
                break
    with Consumer(bootstrap_servers=broker) as consumer:
        with pytest.raises(kclient.ConfigError, match="group.id"):
            consumer.subscribe(filled)
        with pytest.raises(kclient.ConfigError):
            consumer.commit((filled, 0, 1))
        with pytest.raises(kclient.Invalid):
            consumer.assign((filled, -1))
        with pytest.raises(ValueError):
            consumer.poll_batch(-1)


def test_a_consumer_that_cannot_begin_leaves_nothing_open(broker: str, topic: str) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with pytest.raises(kclient.ConfigError, match="group.id"):
            Consumer(bootstrap_servers=broker, topics=topic)
        gc.collect()
    assert [w for w in told if w.category is ResourceWarning and "Consumer" in str(w.message)] == []


def test_subscribe_by_pattern(broker: str, filled: str) -> None:
    with Consumer(bootstrap_servers=broker, group_id=filled, auto_offset_reset="earliest") as consumer:
        consumer.subscribe(f"^{filled}$", regex=True)
        assert consumer.poll_batch(30)
        consumer.await_assigned(30)
        consumer.unsubscribe()
        with pytest.raises(kclient.Invalid):
            consumer.subscribe("(", regex=True)


def test_wake_and_one_poller(broker: str, filled: str) -> None:
    with Consumer(bootstrap_servers=broker) as consumer:
        consumer.assign((filled, 0, kclient.END))
        ended: List[Any] = []
        thread = threading.Thread(target=lambda: ended.append(list(consumer)))
        thread.start()
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                consumer.poll_batch(0)
            except kclient.Busy:
                break
            time.sleep(0.001)
        else:
            pytest.fail("never busy")
        consumer.wake()
        thread.join(30)
        assert ended == [[]]
        consumer.wake()
        assert consumer.poll_batch(30) is None  # sticky


def test_after_close(broker: str, filled: str) -> None:
    consumer = Consumer(bootstrap_servers=broker)
    consumer.assign((filled, 0, 0))
    batch = consumer.poll_batch(30)
    consumer.close()
    consumer.close()
    for call in (lambda: consumer.poll_batch(1), lambda: next(consumer), lambda: consumer.poll(1), lambda: consumer.seek((filled, 0), 1),
                 lambda: consumer.assign((filled, 0)), consumer.why, lambda: consumer.committed((filled, 0)), lambda: consumer.poll_record(1)):
        with pytest.raises(kclient.Closed):
            call()
    assert batch is not None and len(batch.values()) == 100


def test_shared_client(broker: str, filled: str) -> None:
    with kclient.Client(bootstrap_servers=broker, auto_offset_reset="earliest") as client:
        with Producer(client, linger_ms=0) as producer, Consumer(client, client_id="x") as consumer:
            producer.send_wait(filled, "more", partition=0)
            consumer.assign((filled, 0))
            assert sum(len(consumer.poll_batch(30) or ()) for _ in range(1)) >= 100
        assert not client.closed
