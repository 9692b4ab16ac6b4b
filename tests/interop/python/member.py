#!/usr/bin/env python3
"""member.py kafka-python|confluent BOOT GROUP TOPIC - a group member that prints `partition offset value` a record, until SIGTERM, on which it leaves."""
import signal
import sys

kind, boot, group, topic = sys.argv[1:5]
over = False


def end(*_):
    global over
    over = True


signal.signal(signal.SIGTERM, end)


def show(partition, offset, value):
    print(partition, offset, value.decode(), flush=True)


if kind == "confluent":
    from confluent_kafka import Consumer
    c = Consumer({"bootstrap.servers": boot, "group.id": group, "auto.offset.reset": "earliest", "session.timeout.ms": 6000,
                  "auto.commit.interval.ms": 500, "partition.assignment.strategy": "range"})
    c.subscribe([topic])
    while not over:
        m = c.poll(0.2)
        if m and not m.error():
            show(m.partition(), m.offset(), m.value())
    c.close()
else:
    from kafka import KafkaConsumer
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    c = KafkaConsumer(topic, bootstrap_servers=boot.split(","), group_id=group, auto_offset_reset="earliest", session_timeout_ms=6000,
                      heartbeat_interval_ms=1500, auto_commit_interval_ms=500, partition_assignment_strategy=[RangePartitionAssignor])
    while not over:
        for records in c.poll(timeout_ms=200).values():
            for m in records:
                show(m.partition, m.offset, m.value)
    c.close()
