"""kafka-python as a peer of the interoperability tests.

Called by judge/peers.py as `python peer.py BOOTSTRAP` in the environment that judge/cache.py makes; jobs and answers as in
rdk/rdk_peer.c.
"""
import base64
import json
import logging
import sys
import time

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError

RECORD_SIZE_MAX = 11 * 1024 * 1024
logging.disable(logging.CRITICAL)


def unb64(s):
    return None if s is None else base64.b64decode(s)


def b64(b):
    return None if b is None else base64.b64encode(bytes(b)).decode()


def produce(boot, job):
    acks = job["acks"]
    codec = None if job["codec"] == "none" else job["codec"]
    producer = KafkaProducer(bootstrap_servers=boot, acks="all" if acks == -1 else acks, compression_type=codec,
                             enable_idempotence=job["idempotence"], max_request_size=RECORD_SIZE_MAX, linger_ms=5, **job.get("conf", {}))
    try:
        sent = []
        with open(job["file"]) as f:
            for line in f:
                r = json.loads(line)
                sent.append(producer.send(job["topic"], key=unb64(r["key"]), value=unb64(r["value"]),
                                          headers=[(n, unb64(v)) for n, v in r["headers"]], partition=r["partition"],
                                          timestamp_ms=r["timestamp"]))
        producer.flush(60)
        with open(job["out"], "w") as out:
            for i, future in enumerate(sent):
                m = future.get(60)
                out.write(json.dumps({"i": i, "partition": m.partition, "offset": m.offset}) + "\n")
    finally:
        producer.close()
    return len(sent)


def consume(boot, job):
    parts = [TopicPartition(t, p) for t, n in job["topics"].items() for p in range(n)]
    consumer = KafkaConsumer(bootstrap_servers=boot, enable_auto_commit=False, auto_offset_reset="none",
                             fetch_max_wait_ms=20, check_crcs=True, **job.get("conf", {}))
    count = 0
    try:
        consumer.assign(parts)
        consumer.seek_to_beginning(*parts)
        ends = consumer.end_offsets(parts)
        quiet_end = time.monotonic() + 30
        with open(job["out"], "w") as out:
            while any(consumer.position(p) < ends[p] for p in parts):
                for batch in consumer.poll(timeout_ms=200).values():
                    quiet_end = time.monotonic() + 30
                    for r in batch:
                        out.write(json.dumps({"topic": r.topic, "partition": r.partition, "offset": r.offset,
                                              "timestamp": r.timestamp, "key": b64(r.key), "value": b64(r.value),
                                              "headers": [[n, b64(v)] for n, v in r.headers]}) + "\n")
                        count += 1
                if time.monotonic() > quiet_end:
                    raise TimeoutError("nothing came for 30 s, the end is not reached")
    finally:
        consumer.close()
    return count


def metadata(boot, job):
    """What the client is told of the brokers and of one topic."""
    admin = KafkaAdminClient(bootstrap_servers=boot.split(","), request_timeout_ms=30000, **job.get("conf", {}))
    try:
        cluster, (topic,) = admin.describe_cluster(), admin.describe_topics([job["topic"]])
        said = {"brokers": [b["broker_id" if "broker_id" in b else "node_id"] for b in cluster["brokers"] if not b.get("is_fenced")],
                "controller": cluster["controller_id"], "partitions": {}}
        for p in topic["partitions"]:
            said["partitions"][p["partition_index"]] = {"leader": p["leader_id"], "replicas": p["replica_nodes"], "isr": p["isr_nodes"],
                                                        "offline": p["offline_replicas"], "error": p["error_code"]}
        with open(job["out"], "w") as out:
            json.dump(said, out)
        return len(said["partitions"])
    finally:
        admin.close()


def main():
    for line in sys.stdin:
        job = json.loads(line)
        try:
            n = {"produce": produce, "consume": consume, "metadata": metadata}[job["op"]](sys.argv[1], job)
            answer = {"ok": True, "count": n, "error": ""}
        except (KafkaError, OSError, KeyError, ValueError, TypeError, AssertionError, TimeoutError) as e:
            answer = {"ok": False, "count": -1, "error": f"{type(e).__name__}: {e}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
