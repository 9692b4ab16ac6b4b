#!/usr/bin/env python3
"""Outside judges on compaction: what clients read of compacted topics, what kafka-dump-log says of the files, Apache Kafka serving and compacting on
what kbroker has compacted, and kbroker what Apache Kafka has; tombstones and their time; __consumer_offsets.

    test_compact.py [--quick] [--seed S]
"""
import argparse
import random
import re
import shutil
import time

from judge import peers, records, segments, servers, tally, tools, wire

KEYS = 200
PROPS = {"log.segment.bytes": 1 << 20, "log.cleaner.backoff.ms": 200, "offsets.topic.segment.bytes": 1500, "offsets.topic.num.partitions": 1,
         "group.initial.rebalance.delay.ms": 0}
TOPIC = {"cleanup.policy": "compact", "segment.bytes": 1 << 20, "min.cleanable.dirty.ratio": 0.1, "delete.retention.ms": 1000}


def keyed(rng, count):
    """Few keys, written over and over; a tombstone now and then."""
    return [records.record(0, b"key-%d" % rng.randrange(KEYS), None if rng.randrange(8) == 0 else records.blob(rng, rng.randrange(2000)),
                           records.HEADERS[rng.randrange(4)], records.NOW + i) for i in range(count)]


class Bench:
    def __init__(self, folder, seed):
        self.folder, self.rng, self.box = folder, random.Random(seed), tools.Toolbox()
        self.sent = {}     # topic -> records, by offset
        self.cleaned = {}  # topic -> below this a record had time to go

    def produce(self, boot, topic, rs, maker=peers.RdkNew, codec="none", idempotence=True):
        records.save(rs, self.folder / "set.jsonl")
        p = maker(boot)
        conf = {"batch.num.messages": "50"} if maker is peers.RdkNew else {}
        told = p.job(op="produce", topic=topic, file=str(self.folder / "set.jsonl"), out=str(self.folder / "reports"), codec=codec, acks=-1,
                     idempotence=idempotence, conf=conf)
        p.close()
        self.sent.setdefault(topic, []).extend(rs)
        return [] if told["count"] == len(rs) else "not all were acked"

    def read(self, boot, topic, reader):
        p = reader(boot)
        p.job(op="consume", topics={topic: 1}, out=str(self.folder / "got"))
        p.close()
        return records.load(self.folder / "got")

    def judge(self, topic, got, below, gone=()):
        """Each record as it was sent, in order; the newest of each key; below `below` nothing else. gone: offsets that need not be there."""
        sent, bad, last, newest = self.sent[topic], [], -1, {}
        for i, r in enumerate(sent[:below]):
            newest[r["key"]] = i
        keep = set(newest.values()) | set(range(below, len(sent)))
        for r in got:
            at = r["offset"]
            if at <= last:
                bad.append(f"offset {at} after {last}")
            last = at
            bad += [f"offset {at}: {f} is not what was sent" for f in records.FIELDS if r[f] != sent[at][f]]
        have = {r["offset"] for r in got}
        lost, stale = sorted(keep - have - set(gone)), sorted(have - keep)
        bad += [f"{len(lost)} records are lost, {lost[:5]}"] if lost else []
        bad += [f"{len(stale)} records should have gone, {stale[:5]}"] if stale else []
        return bad[:8]


def cleaned_to(server, topic, past, wait=60):
    """What cleaner-offset-checkpoint says, once it has come past that."""
    end, seen = time.monotonic() + wait, None
    while time.monotonic() < end:
        try:
            seen = re.search(rf"^{re.escape(topic)} 0 (\d+)$", (server.data / "cleaner-offset-checkpoint").read_text(), re.M)
        except FileNotFoundError:
            pass
        if seen and int(seen[1]) > past:
            time.sleep(1)  # maybe another pass follows at once
            return int(re.search(rf"^{re.escape(topic)} 0 (\d+)$", (server.data / "cleaner-offset-checkpoint").read_text(), re.M)[1])
        time.sleep(0.1)
    raise tools.ToolError(f"{topic} was not compacted past {past} within {wait} s: {seen and seen[0]}\n{server.log_tail()}")


def compacted_by_kbroker(t, b, s, quick):
    for i, codec in enumerate(("none", "zstd") if quick else peers.CODECS):
        topic = f"c.{codec}"
        with wire.Wire(s.boot) as w:
            w.create(topic, 1, TOPIC)
        makers = (peers.RdkNew, peers.Java)
        t.attempt(f"{topic} is written", b.produce, s.boot, topic, keyed(b.rng, 4000), makers[i % 2], codec)
        first = cleaned_to(s, topic, 0)
        for reader in (peers.RdkNew, peers.Java, *peers.OURS):
            t.attempt(f"{reader.name} reads {topic}", lambda r=reader: b.judge(topic, b.read(s.boot, topic, r), first))
        t.attempt(f"{topic} is written on", b.produce, s.boot, topic, keyed(b.rng, 6000), makers[(i + 1) % 2], codec)
        b.cleaned[topic] = cleaned_to(s, topic, first)
        tombstones = [n for n, r in enumerate(b.sent[topic][:first]) if r["value"] is None]
        for reader in (peers.RdkNew, peers.Java):
            t.attempt(f"{reader.name} reads {topic} again", lambda r=reader: b.judge(topic, b.read(s.boot, topic, r), b.cleaned[topic], tombstones))


def console(b, s, topic):
    """Apache Kafka's console consumer: key and value of the newest record of each key."""
    said = tools.kafka("kafka-console-consumer", "--bootstrap-server", s.boot, "--topic", topic, "--from-beginning", "--timeout-ms", 8000,
                       "--formatter-property", "print.key=true", "--formatter-property", "print.value=false", "--formatter-property", "print.offset=true",
                       check=False).decode(errors="replace")
    got = {int(o): k for o, k in re.findall(r"^Offset:(\d+)\s+(key-\d+)", said, re.M)}
    newest = {}
    for i, r in enumerate(b.sent[topic]):
        newest[r["key"].decode()] = (i, r["value"])
    missing = [k for k, (i, v) in newest.items() if v is not None and got.get(i) != k]
    return [f"{missing[:5]} are missing among {len(got)}"] if missing else []


def tombstones_go(b, s):
    """All keys end in a tombstone; after delete.retention.ms the next passes leave nothing of them."""
    topic = "c.gone"
    with wire.Wire(s.boot) as w:
        w.create(topic, 1, TOPIC)
    b.produce(s.boot, topic, [records.record(0, b"dead-%d" % i, b"x" * 500) for i in range(3000)])
    b.produce(s.boot, topic, [records.record(0, b"dead-%d" % i, None) for i in range(3000)])
    b.produce(s.boot, topic, keyed(b.rng, 2000))
    first = cleaned_to(s, topic, 6000)
    got = b.read(s.boot, topic, peers.RdkNew)
    if not any(r["value"] is None and r["key"].startswith(b"dead") for r in got):
        return "the tombstones went before their time"
    bad = b.judge(topic, got, first)
    time.sleep(1.5)
    b.produce(s.boot, topic, keyed(b.rng, 3000))
    cleaned_to(s, topic, first)
    left = [r for r in b.read(s.boot, topic, peers.RdkNew) if r["key"].startswith(b"dead")]
    return bad + ([f"{len(left)} of the dead keys are still there"] if left else [])


def offsets_are_compacted(b, s):
    """A hundred commits of one group leave little, and the last one counts after a restart, too."""
    topic, group = "c.none", "often"
    args = ["--bootstrap-server", s.boot, "--group", group, "--topic", topic]
    for i in range(100):
        b.box("kafka-consumer-groups", "--reset-offsets", *args, "--to-offset", i + 1, "--execute")
    cleaned_to(s, "__consumer_offsets", 60)
    s.stop()
    s.start()
    said = b.box("kafka-consumer-groups", "--describe", *args[:4])
    bad = [] if re.search(rf"{re.escape(topic)}\s+0\s+100\s", said) else [f"the offset is not 100: {said[-300:]}"]
    logs = sorted(s.partition("__consumer_offsets", 0).glob("*.log"))
    text = tools.dump(logs, "--offsets-decoder", call=b.box)
    commits = len(re.findall(r'key: \{"type":"1"', text))
    return bad + ([] if 0 < commits < 60 else [f"{commits} commits are left of 100"]) + holes_only(tools.complaints(text))


def holes_only(lines):
    """Compaction leaves holes, and kafka-dump-log says so of its own brokers' logs, too."""
    return [x for x in lines if "Non-consecutive offsets" not in x and not re.match(r"^\s*\S+\.log is followed by", x)]


def files(t, b, s):
    folders = [d for d in tools.partition_folders(s.data) if d.name.startswith(("c.", "__consumer_offsets"))]
    logs = sorted(f for d in folders for f in d.glob("*.log"))
    text = tools.dump(logs, "--deep-iteration", call=b.box)
    t.check(f"kafka-dump-log --deep-iteration on {len(logs)} segments", dump_problems(text))
    t.attempt("kafka-dump-log on indexes and snapshots", lambda: [x for x in tools.dump_log_problems(folders, b.box) if x not in set(tools.complaints(text))
                                                                  and holes_only([x])])
    t.attempt("batches and indexes agree", segments.problems, folders, holes=True)


def dump_problems(text):
    """Its words on what does not follow, taken apart: the lines behind "Non-consecutive offsets" are pairs of offsets."""
    bad = holes_only(tools.complaints(text))
    pairs = [(int(x), int(y)) for x, y in re.findall(r"^\s*(\d+) is followed by (\d+)$", text, re.M)]
    return (bad + [f"{x} is followed by {y}" for x, y in pairs if y <= x])[:10]


def move(source, target):
    target.mkdir(parents=True, exist_ok=True)
    for f in target.iterdir():
        if f.name != "partition.metadata":
            f.unlink()
    for f in source.iterdir():
        if f.name != "partition.metadata":
            shutil.copy(f, target)


def taken_over_by_kafka(t, b, s):
    topics = sorted(b.cleaned)
    with servers.Kafka(PROPS) as k:
        for topic in topics:
            with wire.Wire(k.boot) as w:
                w.create(topic, 1, TOPIC)
        k.stop()
        for topic in topics:
            move(s.partition(topic, 0), k.partition(topic, 0))
        k.start()
        for topic in topics:
            gone = [n for n, r in enumerate(b.sent[topic]) if r["value"] is None]
            t.attempt(f"Apache Kafka serves {topic} as kbroker left it",
                      lambda: b.judge(topic, b.read(k.boot, topic, peers.Java), b.cleaned[topic], gone))
        topic = topics[0]
        b.produce(k.boot, topic, keyed(b.rng, 3000), idempotence=False)

        def goes_on():
            to = cleaned_to(k, topic, b.cleaned[topic])
            gone = [n for n, r in enumerate(b.sent[topic]) if r["value"] is None]
            return b.judge(topic, b.read(k.boot, topic, peers.RdkNew), to, gone)
        t.attempt(f"Apache Kafka compacts {topic} further", goes_on)
        k.stop()
        return topic, k.partition(topic, 0)


def taken_back(t, b, s, topic, folder):
    """Gaps where segments meet, as Apache Kafka leaves them (BL-09)."""
    move(folder, s.partition(topic, 0))
    s.start()
    gone = [n for n, r in enumerate(b.sent[topic]) if r["value"] is None]
    t.attempt(f"kbroker serves {topic} as Apache Kafka left it", lambda: b.judge(topic, b.read(s.boot, topic, peers.Java), 0, range(len(b.sent[topic]) - 1)))
    b.produce(s.boot, topic, keyed(b.rng, 3000), idempotence=False)
    before = len(b.sent[topic]) - 3000

    def goes_on():
        to = cleaned_to(s, topic, before)
        return b.judge(topic, b.read(s.boot, topic, peers.RdkNew), to, gone)
    t.attempt("and compacts it further", goes_on)
    s.stop()


def run():
    ap = argparse.ArgumentParser()
    ap.add_argument("--quick", action="store_true")
    ap.add_argument("--seed", type=int, default=int(time.time()))
    a = ap.parse_args()
    t = tally.Tally(f"outside judges on compaction (seed {a.seed})")
    b = Bench(servers.temp_folder("compact"), a.seed)
    with servers.server("kbroker", PROPS) as s:
        compacted_by_kbroker(t, b, s, a.quick)
        t.attempt("kafka-console-consumer", console, b, s, "c.none")
        t.attempt("tombstones go after delete.retention.ms", tombstones_go, b, s)
        t.attempt("__consumer_offsets is compacted", offsets_are_compacted, b, s)
        t.note("served")
        s.stop()
        files(t, b, s)
        t.note("files")
        topic, folder = taken_over_by_kafka(t, b, s)
        taken_back(t, b, s, topic, folder)
    b.box.close()
    return t.close()


if __name__ == "__main__":
    tally.main(run)
