#!/usr/bin/env python3
"""Segments written by Apache Kafka, put into a stopped kbroker's partition folders, are served record by record.

    test_segments.py [--quick] [--broker kbroker|kafka]

Everything but Kafka's partition.metadata is taken over (that file names the topic's id, which is the target's own). Variants:
all files; only the .log files, so that indexes and snapshots must be rebuilt. Afterwards the target appends more records and
is judged by kafka-dump-log. --broker kafka: into another Apache Kafka.
"""
import argparse
import shutil

from judge import peers, records, segments, servers, tally, tools, wire

PROPS = {"log.segment.bytes": 1 << 20, "log.index.interval.bytes": 4096, "log.roll.ms": 10 ** 12}


def plan(quick):
    """(topic, variant, producer class, codec, records)"""
    for n, codec in enumerate(("zstd",) if quick else peers.CODECS):
        for variant in ("whole", "logs-only"):
            maker = peers.Java if n % 2 else peers.RdkNew
            yield f"{codec}.{variant}", variant, maker, codec, records.many(2, 8_000, seed=n, size=1600) + records.mix(2, seed=n)


def write_by_kafka(t, topics, folder):
    with servers.Kafka(PROPS) as k:
        makers = {}
        for topic, _, maker, codec, rs in topics:
            with wire.Wire(k.boot) as w:
                w.create(topic, 2)
            records.save(rs, folder / "set.jsonl")
            peer = makers.setdefault(maker, maker(k.boot))
            conf = {"batch.num.messages": "200"} if maker is peers.RdkNew else {}
            t.attempt(f"{peer.name} writes {topic} to Apache Kafka", lambda: peer.job(
                op="produce", topic=topic, file=str(folder / "set.jsonl"), out=str(folder / "reports"), codec=codec, acks=-1,
                idempotence=True, conf=conf)["count"] != len(rs) and "not all were acked")
        k.stop()
        for p in makers.values():
            p.close()
        for topic, _, _, _, _ in topics:
            for p in range(2):
                shutil.copytree(k.partition(topic, p), folder / "taken" / f"{topic}-{p}")


def move_in(server, topics, folder):
    for topic, variant, _, _, _ in topics:
        for p in range(2):
            target = server.partition(topic, p)
            target.mkdir(parents=True, exist_ok=True)   # a broker may make the folder at the first append
            for f in target.iterdir():
                if f.name != "partition.metadata":
                    f.unlink()
            for f in (folder / "taken" / f"{topic}-{p}").iterdir():
                if f.name != "partition.metadata" and (variant == "whole" or f.suffix == ".log"):
                    shutil.copy(f, target)


def append_more(boot, topic, folder, sent):
    """Without idempotence: the taken-over logs know producer ids of another cluster, which this one may give out anew."""
    more = records.many(2, 100, seed=99)
    records.save(more, folder / "more.jsonl")
    peer = peers.RdkNew(boot)
    peer.job(op="produce", topic=topic, file=str(folder / "more.jsonl"), out=str(folder / "reports"), codec="none", acks=-1,
             idempotence=False)
    peer.job(op="consume", topics={topic: 2}, out=str(folder / "got"))
    peer.close()
    return records.compare(sent + more, records.load(folder / "got"))


def run():
    ap = argparse.ArgumentParser()
    ap.add_argument("--quick", action="store_true")
    ap.add_argument("--broker", choices=("kbroker", "kafka"), default="kbroker")
    a = ap.parse_args()
    t = tally.Tally(f"Apache Kafka's segments served by {a.broker}")
    folder = servers.temp_folder("segments")
    topics = list(plan(a.quick))
    write_by_kafka(t, topics, folder)
    count = sum(1 for _ in (folder / "taken").glob("*/*.log"))
    t.check("Apache Kafka wrote several segments a partition", [] if count >= 4 * len(topics) else f"{count} segments")
    with servers.server(a.broker, PROPS) as s:
        for topic, *_ in topics:
            with wire.Wire(s.boot) as w:
                w.create(topic, 2)
        s.stop()
        move_in(s, topics, folder)
        s.start()
        for reader in [peers.RdkNew(s.boot), peers.Java(s.boot)] + ([c(s.boot) for c in peers.OURS] if a.broker == "kbroker" else []):
            for topic, _, _, _, rs in topics:
                def read(reader=reader, topic=topic, rs=rs):
                    reader.job(op="consume", topics={topic: 2}, out=str(folder / "got"))
                    return records.compare(rs, records.load(folder / "got"))
                t.attempt(f"{reader.name} reads {topic}", read)
            reader.close()
        for topic, _, _, _, rs in topics:
            t.attempt(f"{topic} takes more records", append_more, s.boot, topic, folder, rs)
        s.stop()
        folders = [s.partition(topic, p) for topic, *_ in topics for p in range(2)]
        t.attempt("kafka-dump-log afterwards", tools.dump_log_problems, folders)
        t.attempt("batches and indexes agree afterwards", segments.problems, folders)
    return t.close()


if __name__ == "__main__":
    tally.main(run)
