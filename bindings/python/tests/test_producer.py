"""The producer: each way to send, what a report tells, errors at the call that caused them, callbacks that raise, threads."""
import gc
import threading
import weakref
from typing import Any, List

import kclient
import pytest
from kclient import Admin, Consumer, Producer, Report


def read(broker: str, topic: str, n: int) -> List[Any]:
    with Consumer(bootstrap_servers=broker) as consumer:
        consumer.assign((topic, 0, kclient.BEGINNING))
        found: List[Any] = []
        while len(found) < n:
            batch = consumer.poll_batch(30)
            assert batch is not None, f"{len(found)} of {n} records"
            found.extend(batch)
        assert len(found) == n
        return found


def test_send_and_report(broker: str, topic: str) -> None:
    reports: List[Report] = []
    with Producer(bootstrap_servers=broker) as producer:
        guid = producer.guid()
        number = producer.send(topic, "hello", key=b"k", headers={"a": "1", "none": None}, partition=0, timestamp=1_700_000_000_000, guid=guid,
                               on_report=reports.append)
        assert producer.send(topic, bytearray(b"raw"), memoryview(b"key"), [("x", b"1"), ("x", b"2")]) == number + 1
        producer.send(topic, None)
        producer.send(value="", topic=topic)
        producer.flush()
        assert len(reports) == 1 and reports[0].number == number and reports[0].offset == 0 and reports[0].ok and len(producer) == 0
        assert reports[0].topic == topic and reports[0].timestamp == 1_700_000_000_000 and reports[0].outcome == kclient.Outcome.PERSISTED
        assert reports[0].attempts == () and reports[0].raise_for_error() is reports[0] and reports[0].size == 6
    a, b, c, d = read(broker, topic, 4)
    assert (a.key, a.value, a.timestamp, a.timestamp_type, a.guid) == (b"k", b"hello", 1_700_000_000_000, 0, guid)
    assert a.headers[:2] == [("a", b"1"), ("none", None)] and a.header("none", b"?") is None and a.header("zzz", b"?") == b"?"
    assert (b.key, b.value, b.header("x")) == (b"key", b"raw", b"2") and (c.value, c.key, d.value) == (None, None, b"")


def test_many_headers(broker: str, topic: str) -> None:
    with Producer(bootstrap_servers=broker) as producer:
        producer.send(topic, "x", headers=[(f"h{i}", bytes([i])) for i in range(200)])
    assert [v for _, v in read(broker, topic, 1)[0].headers] == [bytes([i]) for i in range(200)]


def test_send_wait(broker: str, topic: str) -> None:
    with Producer(bootstrap_servers=broker, linger_ms=10_000) as producer:  # it does not wait for linger
        assert [producer.send_wait(topic, str(i)).offset for i in range(5)] == [0, 1, 2, 3, 4]
        with pytest.raises(kclient.TooLarge):
            producer.send_wait(topic, b"x" * 10_000_000)


def test_send_many(broker: str, topic: str) -> None:
    seen: List[Report] = []
    with Producer(bootstrap_servers=broker) as producer:
        numbers = producer.send_many(topic, (str(i) for i in range(1000)), keys=[f"k{i}".encode() for i in range(1000)], timestamps=range(1000),
                                     on_report=seen.append)
        assert numbers == range(0, 1000)
        assert producer.send_many(topic, [bytearray(b"a"), None, "ü", memoryview(b"z")]) == range(1000, 1004)
        assert producer.send_many(topic, b"abcdef", sizes=[1, -1, 0, 5], keys=bytearray(b"kk"), key_sizes=[1, -1, 1, 0]) == range(1004, 1008)
        guids = [kclient.new_guid(), None]
        producer.send_many(topic, ["g", "n"], guids=guids, headers=[{"h": b"1"}, None])
        assert producer.send_many(topic, []) == range(1010, 1010)
        producer.flush()
        assert sorted(r.number for r in seen) == list(range(1000)) and all(r.ok for r in seen)
    records = read(broker, topic, 1010)
    assert [r.value for r in records[:1000]] == [str(i).encode() for i in range(1000)] and records[999].key == b"k999" and records[7].timestamp == 7
    assert [r.value for r in records[1000:1008]] == [b"a", None, "ü".encode(), b"z", b"a", None, b"", b"bcdef"]
    assert [r.key for r in records[1004:1008]] == [b"k", None, b"k", b""]
    assert records[1008].guid == guids[0] and records[1008].header("h") == b"1" and records[1009].headers == []


@pytest.mark.parametrize("arguments", [
    {"values": "text"}, {"values": b"raw"}, {"values": [1]}, {"values": ["a", object()]}, {"values": ["a"], "keys": ["a", "b"]},
    {"values": ["a"], "timestamps": ["x"]}, {"values": b"abc", "sizes": [1, 1]}, {"values": b"abc", "sizes": [4]}, {"values": b"abc", "sizes": [-2, 5]},
    {"values": ["a"], "headers": [{1: b"x"}]}, {"values": ["a"], "headers": [["x"]]}, {"values": ["a"], "partition": -1}, {"values": ["a"], "nonsense": 1},
    {"values": ["\ud800"]}, {"values": ["a", "b"], "guids": ["x"]}, {}, {"values": None}, {"values": ["a", "b"], "headers": [{"h": "1"}, {"h": 1}]},
    {"values": ["a", "b"], "headers": [None, [("h",)]]}, {"values": ["a", "b"], "headers": [[], [("h", "\ud800")]]},
])
def test_send_many_of_nonsense_sends_nothing(broker: str, topic: str, arguments: Any) -> None:
    """And what was sent before keeps its on_report."""
    seen: List[int] = []
    with Producer(bootstrap_servers=broker, linger_ms=60_000) as producer:
        before = producer.send_many(topic, ["x"] * 3, on_report=lambda r: seen.append(r.number))
        with pytest.raises((TypeError, ValueError)):
            producer.send_many(topic, **arguments)
        with pytest.raises((TypeError, ValueError)):
            producer.send_many(topic, **{"on_report": print, **arguments})
        assert len(producer) == 3
        producer.flush()
    assert seen == list(before)


def test_headers_of_any_kind(broker: str, topic: str) -> None:
    """What is made while they are looked at lives until they are sent."""
    def pairs(n: int) -> Any:
        return ((text for text in (f"name {i} {n}", f"value {i} {n}")) for i in range(40))
    with Producer(bootstrap_servers=broker) as producer:
        producer.send(topic, "x", headers=pairs(0))
        producer.send_many(topic, ["x", "x"], headers=[pairs(1), [["name", bytearray(b"value")]]])
    found = [record.headers for record in read(broker, topic, 3)]
    assert found[:2] == [[(f"name {i} {n}", f"value {i} {n}".encode()) for i in range(40)] for n in range(2)] and found[2] == [("name", b"value")]


def test_a_zero_byte_ends_no_name(broker: str, topic: str) -> None:
    with Producer(bootstrap_servers=broker) as producer:
        with pytest.raises(ValueError):
            producer.send(topic + "\0 and more", "x")
        assert producer.send_wait(topic, "x").topic == topic
    with pytest.raises(ValueError):
        Producer(bootstrap_servers=broker, client_id="a\0b")


@pytest.mark.parametrize("arguments", [
    (1, "x"), ("t", 5), ("t", "x", 5), ("t", "x", None, 5), ("t", "x", None, {"a": 5}), ("t", "x", None, None, "p"), ("t", "x", None, None, -3),
    ("t", "x", None, None, None, "now"), ("t", "x", None, None, None, None, b"15 bytes of it."), ("t",), (), ("a/b", "x"), ("t", "\ud800"),
    ("t", "x", None, None, 1 << 40), ("t", "x", None, None, None, None, None, None, 9),
])
def test_send_of_nonsense(broker: str, arguments: Any) -> None:
    with Producer(bootstrap_servers=broker) as producer:
        with pytest.raises((TypeError, ValueError, OverflowError)):
            producer.send(*arguments)
        with pytest.raises(TypeError, match="topik"):
            producer.send("t", "x", topik=1)  # type: ignore[call-arg]
        assert len(producer) == 0


def test_too_large_is_told_at_the_call(broker: str, topic: str) -> None:
    with Producer(bootstrap_servers=broker) as producer:
        with pytest.raises(kclient.TooLarge, match=topic):
            producer.send(topic, b"x" * 10_000_000)
        with pytest.raises(kclient.TooLarge) as raised:
            producer.send_many(topic, [b"a", b"b", b"x" * 10_000_000, b"c"])
        assert raised.value.accepted == 2
    assert [r.value for r in read(broker, topic, 2)] == [b"a", b"b"]


def test_queue_full_is_told_at_the_call(topic: str) -> None:
    producer = Producer(bootstrap_servers="127.0.0.1:1", queue_buffering_max_messages=10, queue_enqueue_timeout_ms=50)
    for _ in range(10):
        producer.send(topic, "x")
    with pytest.raises(kclient.QueueFull):
        producer.send(topic, "y")
    with pytest.raises(kclient.QueueFull) as raised:
        producer.send_many(topic, ["y"] * 5)
    assert raised.value.accepted == 0
    with pytest.raises(kclient.DeliveryFailed, match="10 records not delivered") as failed:
        producer.close(0.1)
    assert failed.value.count == 10 and len(failed.value.reports) == 10 and failed.value.outcome == kclient.Outcome.NOT_PERSISTED


def test_a_role_goes_by_what_its_client_was_told(topic: str) -> None:
    with kclient.Client(bootstrap_servers="127.0.0.1:1", queue_buffering_max_messages=2, queue_enqueue_timeout_ms=0, max_poll_interval_ms=7000) as client:
        with Producer(client, linger_ms=5, message_timeout_ms=100) as producer:
            producer.send_many(topic, ["x"] * 2, on_report=lambda r: None)
            with pytest.raises(kclient.QueueFull):
                producer.send(topic, "y")
        with Consumer(client, group_id="g") as consumer:
            assert (consumer.config["max.poll.interval.ms"], consumer.config["group.id"]) == ("7000", "g")


def test_reports_hold_the_queue_and_a_send_takes_them(broker: str, topic: str) -> None:
    seen: List[int] = []
    with Producer(bootstrap_servers=broker, queue_buffering_max_messages=100, linger_ms=0) as producer:
        for _ in range(2000):
            producer.send(topic, "x", on_report=lambda r: seen.append(r.number))
        producer.send_many(topic, ["x"] * 2000, on_report=lambda r: seen.append(r.number))
    assert sorted(seen) == list(range(4000))


def test_reports_of_all(broker: str, topic: str) -> None:
    with Producer(bootstrap_servers=broker, reports=True) as producer:
        sent = set(producer.send_many(topic, ["x"] * 100))
        producer.send(topic, "y", on_report=lambda r: None)  # told there, and not here
        got = set()
        while len(got) < 100:
            got |= {r.number for r in producer.reports(30)}
        assert got == sent and list(producer.reports()) == []


def test_failures_without_a_callback_are_raised_by_flush(broker: str, topic: str) -> None:
    with Admin(bootstrap_servers=broker) as admin:
        admin.create_topic(topic, configs={"max.message.bytes": 1000})
    with Producer(bootstrap_servers=broker) as producer:
        failed: List[Report] = []
        producer.send(topic, b"x" * 5000, on_report=failed.append)
        producer.flush()  # told to the callback
        assert [r.ok for r in failed] == [False] and isinstance(failed[0].error, kclient.KafkaError) and failed[0].error.attempts
        assert failed[0].attempts and failed[0].attempts[0].broker == 0
        with pytest.raises(kclient.KafkaError):
            failed[0].raise_for_error()
        number = producer.send(topic, b"x" * 5000)
        with pytest.raises(kclient.DeliveryFailed, match=topic) as raised:
            producer.flush()
        assert [r.number for r in raised.value.reports] == [number]
        producer.flush()  # told once
        producer.send(topic, b"x" * 5000)
        assert [r.ok for r in producer.reports(30)] == [False]
        producer.flush()
        with pytest.raises(kclient.KafkaError) as waited:
            producer.send_wait(topic, b"x" * 5000)
        assert waited.value.attempts


def test_failures_in_their_order_and_more_than_are_kept(topic: str) -> None:
    with Producer(bootstrap_servers="127.0.0.1:1") as producer:
        producer.send_many(topic, ["x"] * 1500)
        producer.purge()
        with pytest.raises(kclient.DeliveryFailed, match="1500 records") as failed:
            producer.flush()
        assert [r.number for r in failed.value.reports] == list(range(1000))
        producer.send_many(topic, ["x"] * 1500)
        producer.purge()
        assert sorted(r.number for r in producer.reports(30)) == list(range(1500, 2500))  # flush() would have kept no more of them either
        with pytest.raises(kclient.DeliveryFailed, match="500 records"):
            producer.flush()
        producer.flush()


def test_an_error_that_was_raised_is_garbage_afterwards(topic: str) -> None:
    with Producer(bootstrap_servers="127.0.0.1:1", message_timeout_ms=50) as producer:
        def attempt() -> Any:
            try:
                producer.send_wait(topic, "x")
            except kclient.KafkaError as e:
                return weakref.ref(e)
        error = attempt()
        gc.collect()
        assert error() is None


def test_what_a_callback_raises_reaches_the_caller_and_no_report_is_lost(broker: str, topic: str) -> None:
    seen: List[int] = []

    def careless(report: Report) -> None:
        seen.append(report.number)
        if report.number == 3:
            raise LookupError("of the callback")
    with Producer(bootstrap_servers=broker) as producer:
        producer.send_many(topic, ["x"] * 10, on_report=careless)
        with pytest.raises(LookupError, match="of the callback"):
            producer.flush()
        assert seen == list(range(10))
        assert producer.send_wait(topic, "on").offset == 10
        producer.send(topic, "x", on_report=lambda r: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            producer.close()
        assert producer.closed and producer.client.closed
    with pytest.raises(kclient.Closed):
        producer.send(topic, "late")


def test_ctrl_c_in_close_leaves_it_to_be_closed(broker: str, topic: str) -> None:
    seen: List[int] = []

    def interrupted(report: Report) -> None:
        seen.append(report.number)
        if report.number == 0:
            raise KeyboardInterrupt
    producer = Producer(bootstrap_servers=broker)
    producer.send_many(topic, ["x"] * 10, on_report=interrupted)
    with pytest.raises(KeyboardInterrupt):
        producer.close()
    assert not producer.closed and not producer.client.closed
    producer.close()
    assert producer.closed and producer.client.closed and seen == list(range(10))


def test_partitioner(broker: str, topic: str) -> None:
    asked: List[Any] = []

    def choose(name: str, key: Any, count: int) -> Any:
        asked.append((name, key, count))
        if key == b"bad":
            raise KeyError("no such place")
        return {b"far": 2, b"outside": 7, b"kind": "x"}.get(key)
    with Admin(bootstrap_servers=broker) as admin:
        admin.create_topic(topic, partitions=3)
    with Producer(bootstrap_servers=broker, partitioner=choose) as producer:
        assert producer.send_wait(topic, "v", "far").partition == 2
        producer.send(topic, "v", "own way")
        for key, kind in (("bad", KeyError), ("outside", ValueError), ("kind", ValueError)):
            with pytest.raises(kind):
                producer.send(topic, "v", key)
        with pytest.raises(KeyError):
            producer.send_many(topic, ["a", "b"], ["far", "bad"])
        assert producer.send_wait(topic, "v", "far").offset == 2  # and the one before the bad one
    assert (topic, b"far", 3) in asked


def test_a_callback_may_send(broker: str, topic: str) -> None:
    more: List[int] = []
    with Producer(bootstrap_servers=broker) as producer:
        producer.send(topic, "1", on_report=lambda r: more.append(producer.send(topic, "2", on_report=lambda r: more.append(r.offset))))
        producer.flush()
        producer.flush()
        assert more == [1, 1]


def test_threads(broker: str, topic: str) -> None:
    wrong: List[BaseException] = []
    offsets: List[int] = []
    with Producer(bootstrap_servers=broker) as producer:
        def work(me: int) -> None:
            try:
                for i in range(100):
                    producer.send(topic, f"{me} {i}")
                    offsets.append(producer.send_wait(topic, f"{me} {i} waited", timeout=60).offset)
                    if i % 10 == 0:
                        producer.flush()
            except BaseException as e:
                wrong.append(e)
        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(120)
        assert not wrong and len(set(offsets)) == 800
        producer.flush()
        assert producer.stats().records_ok == 1600


def test_after_close(broker: str, topic: str) -> None:
    producer = Producer(bootstrap_servers=broker)
    producer.send(topic, "x")
    producer.close()
    producer.close()
    for call in (lambda: producer.send(topic, "y"), lambda: producer.send_many(topic, ["y"]), producer.flush, lambda: producer.send_wait(topic, "y"),
                 producer.guid):
        with pytest.raises(kclient.Closed):
            call()
    assert producer.fatal is None and "closed" in repr(producer)


def test_what_a_retry_was_for(kafka_cluster: Any, topic: str) -> None:
    """A record that was stored with the second try tells of the first."""
    with Admin(bootstrap_servers=kafka_cluster.bootstrap) as admin:
        admin.create_topic(topic)
    with kafka_cluster.fault(api="Produce", error="NOT_LEADER_OR_FOLLOWER", times=1), Producer(bootstrap_servers=kafka_cluster.bootstrap) as producer:
        report = producer.send_wait(topic, "x")
        assert report.ok and [kclient.errors.code_name(a.cause) for a in report.attempts] == ["NOT_LEADER_OR_FOLLOWER"]


def test_purge(topic: str) -> None:
    seen: List[Report] = []
    with Producer(bootstrap_servers="127.0.0.1:1") as producer:
        producer.send(topic, "x", on_report=seen.append)
        producer.purge()
        producer.poll_reports(30)
        assert [type(r.error) for r in seen] == [kclient.Cancelled]


@pytest.mark.parametrize("thread", [True, False])
def test_without_a_thread_of_its_own(broker: str, topic: str, thread: bool) -> None:
    with Producer(bootstrap_servers=broker, client_thread="own" if thread else "none") as producer:
        assert producer.send_wait(topic, "a").offset == 0
        producer.send_many(topic, ["b"] * 1000)
        producer.flush()
    assert len(read(broker, topic, 1001)) == 1001
