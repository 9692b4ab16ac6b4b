"""Administration, each call against a broker."""
import time
import uuid

import kclient
import pytest
from kclient import Admin, Consumer, NewTopic, Producer, TopicPartition, errors


def test_topics(broker: str, topic: str) -> None:
    with Admin(bootstrap_servers=broker) as admin:
        admin.create_topic(topic, partitions=3, configs={"retention.ms": 3_600_000})
        with pytest.raises(errors.TopicAlreadyExists, match=topic) as raised:
            admin.create_topics([NewTopic(topic), NewTopic(topic + "-b", replicas=[[0], [0]])])
        assert [(r.name, r.error is None) for r in raised.value.results] == [(topic, False), (topic + "-b", True)]
        assert {topic, topic + "-b"} <= set(admin.list_topics())
        admin.create_partitions({topic: 5})
        info = admin.describe_topic(topic)
        assert len(info.partitions) == 5 and info.partitions[0].replicas == [0] and info.partitions[4].high_watermark == 0 and info.id.int != 0
        admin.alter_topic_configs(topic, {"retention.ms": None, "max.message.bytes": 2_000_000})
        configs = admin.topic_configs(topic)
        assert configs["max.message.bytes"].value == "2000000" and configs["max.message.bytes"].source == "topic"
        assert configs["retention.ms"].source != "topic"
        with pytest.raises(errors.InvalidConfig):
            admin.alter_topic_configs(topic, {"retention.ms": "soon"})
        admin.delete_topics([topic, topic + "-b"])
        with pytest.raises(errors.UnknownTopicOrPartition):
            admin.describe_topic(topic)
        admin.create_topics([NewTopic(topic)], validate_only=True)
        assert topic not in admin.list_topics()


def test_cluster(broker: str, topic: str) -> None:
    with Admin(bootstrap_servers=broker) as admin:
        admin.create_topic(topic)
        info = admin.describe()
        assert info.controller == 0 and [f"{b.host}:{b.port}" for b in info.brokers] == [broker] and topic in info.topics and info.id
        assert admin.quorum().leader == 0 and admin.quorum().replicas[0].voter
        dirs = admin.log_dirs(0)
        assert any(r.topic == topic for r in dirs[0].replicas) and dirs[0].error is None
        assert admin.reassignments() == []
        assert admin.broker_configs(0)["log.segment.bytes"].value
        admin.alter_broker_configs(0, {"log.cleaner.backoff.ms": 1234})
        assert admin.broker_configs(0)["log.cleaner.backoff.ms"].value == "1234"
        assert "unclean_elections" in admin.node_counts()
        results = admin.elect_leaders([(topic, 0)])
        assert type(results[0].error) is errors.ElectionNotNeeded
        with pytest.raises(errors.NoReassignmentInProgress):
            admin.reassign({(topic, 0): None})
        with pytest.raises(kclient.KafkaError):
            admin.unregister_broker(77)


def test_records_are_deleted(broker: str, topic: str) -> None:
    with Producer(bootstrap_servers=broker) as producer, Admin(producer.client) as admin:
        producer.send_many(topic, ["a"] * 10)
        producer.flush()
        assert admin.delete_records((topic, 0, 4))[0].offset == 4
        assert admin.describe_topic(topic).partitions[0].log_start == 4
        with pytest.raises(errors.OffsetOutOfRange) as raised:
            admin.delete_records((topic, 0, 400))
        assert raised.value.results[0].topic == topic


def test_ids(broker: str, topic: str) -> None:
    known, unknown = kclient.new_guid(), uuid.uuid4()
    with Producer(bootstrap_servers=broker) as producer, Admin(producer.client) as admin:
        admin.create_topic(topic, configs={"message.guid.dedup": True})
        first = producer.send_wait(topic, "ann pays 10", guid=known)
        again = producer.send_wait(topic, "ann pays 10", guid=known)
        assert again.duplicate and again.offset == first.offset and first.deduped and not first.duplicate
        places = admin.lookup_guids(topic, [known, unknown, str(known)])
        assert [(p.guid, p.state, p.offset) for p in places] == [(known, "found", first.offset), (unknown, "unknown", -1), (known, "found", first.offset)]
        assert sum(p.entries for p in admin.guid_stats(topic)) == 1
        with pytest.raises(kclient.BadGuid):
            producer.send(topic, "x", guid="nonsense")
        with pytest.raises(kclient.BadGuid):
            producer.send_many(topic, ["x", "y"], guids=[known, b"short"])


def test_groups(broker: str, topic: str) -> None:
    group = topic
    with Producer(bootstrap_servers=broker) as producer, Admin(producer.client) as admin:
        producer.send_many(topic, ["a"] * 10)
        producer.flush()
        with Consumer(producer.client, group_id=group, topics=topic, auto_offset_reset="earliest", client_id="me") as consumer:
            assert consumer.poll_batch(30) is not None
            info = admin.describe_group(group)
            assert info.state == "Stable" and info.members[0].topics == [topic] and info.members[0].assigned == [(topic, 0)]
            with pytest.raises(errors.NonEmptyGroup):
                admin.delete_groups(group)
            admin.remove_group_members(group, reason="test")
        deadline = time.monotonic() + 30
        while admin.describe_group(group).state != "Empty" and time.monotonic() < deadline:
            time.sleep(0.01)
        admin.alter_group_offsets(group, TopicPartition(topic, 0, 7, metadata="note"))
        offsets = admin.group_offsets(group)[group]
        assert [(p.topic, p.partition, p.offset, p.metadata) for p in offsets] == [(topic, 0, 7, "note")]
        assert admin.group_offsets([group], (topic, 0))[group][0].offset == 7
        assert group in [g.group for g in admin.list_groups(states=["Empty"]).groups] and not admin.list_groups().failed
        admin.delete_group_offsets(group, (topic, 0))
        assert admin.group_offsets(group)[group] == []
        admin.alter_group_offsets(group, (topic, 0, 1))
        admin.delete_groups(group)
        with pytest.raises(errors.GroupIdNotFound):
            admin.describe_group(group)


def test_time_limit() -> None:
    with Admin(bootstrap_servers="127.0.0.1:1") as admin:
        with pytest.raises(kclient.TimedOut) as raised:
            admin.describe(timeout=0.3)
        assert raised.value.attempts and "connect" in str(raised.value)
