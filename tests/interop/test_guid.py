#!/usr/bin/env python3
"""Outside judges on a topic with message.guid.dedup: producers that send everything again, with and without idempotence; thousands of batches without
records, and with holes, in a row and at the tail, for every consumer; kafka-dump-log and indexes on the files.

    test_guid.py [--quick] [--seed S]
"""
import argparse
import random
import re
import signal
import time

from judge import cache, guids, peers, records, segments, servers, tally, tools, wire

PROPS = {"log.segment.bytes": 1 << 20, "group.initial.rebalance.delay.ms": 0}
TOPIC = {"message.guid.dedup": "true", "segment.bytes": 300000, "index.interval.bytes": 1000}
TAIL = (peers.Java, peers.RdkNew, peers.RdkDebian, peers.KafkaPython, *peers.OURS)  # those whose programs see a position, not records alone
LIMIT = 120  # seconds: a consumer that has not come to the end by then stands still


def unique(rng, count, first):
    """Records under ids of their own; the number is the value, so that the readers of old formats can be judged as well."""
    return [records.record(0, b"key-%d" % (i % 100), b"%d" % i, [("guid", rng.randbytes(16)), ("other", b"x")], records.NOW + i)
            for i in range(first, first + count)]


class Bench:
    def __init__(self, folder, seed):
        self.folder, self.rng, self.box = folder, random.Random(seed), tools.Toolbox()
        self.kept = {"t": [], "plain": []}  # what is to be read, in order

    def produce(self, s, maker, rs, codec="none", idempotence=True, one_by_one=False, topic="t"):
        records.save(rs, self.folder / "set.jsonl")
        p = maker(s.boot)
        try:
            told = p.job(op="produce", topic=topic, file=str(self.folder / "set.jsonl"), out=str(self.folder / "reports"), codec=codec, acks=-1,
                         idempotence=idempotence, conf={"batch.num.messages": "1"} if one_by_one else {})
        finally:
            p.close()
        known = {dict(r["headers"])["guid"] for r in self.kept[topic]}
        for r in rs:
            g = dict(r["headers"])["guid"]
            if g not in known:
                known.add(g)
                self.kept[topic].append(r)
        return [] if told["count"] == len(rs) else f"{told['count']} of {len(rs)} were acked"

    def read(self, s, reader, topic="t"):
        p = reader(s.boot)
        try:
            p.job(LIMIT, op="consume", topics={topic: 1}, out=str(self.folder / "got"))
        finally:
            p.close()
        got = records.load(self.folder / "got")
        want = [r["value"] for r in self.kept[topic]]
        have = [r["value"] for r in got]
        if want == have:
            return [] if all(a["offset"] < b["offset"] for a, b in zip(got, got[1:])) else "offsets do not ascend"
        missing, twice = sorted(set(want) - set(have))[:5], len(have) - len(set(have))
        return f"{len(have)} records in place of {len(want)}: missing {missing}, {twice} twice"


def kafkajs(b, s):
    """A group of kafkajs reads all, waits behind the empty tail, and is there when a record follows."""
    out, want = b.folder / "kafkajs", b.kept["plain"]
    proc = servers.spawn(["node", cache.kafkajs() / "member.js", s.boot, "js", "plain"], stdout=open(out, "wb"),
                         stderr=open(b.folder / "fetches", "wb"))

    def wait_for(count):
        end = time.monotonic() + LIMIT
        while time.monotonic() < end and len(out.read_text().splitlines()) < count:
            time.sleep(0.2)
        got = [line.split(" ", 2)[2].encode() for line in out.read_text().splitlines()]
        return [] if got == [r["value"] for r in want] else f"{len(got)} records in place of {len(want)}"

    def fetches():
        proc.send_signal(signal.SIGUSR2)
        time.sleep(0.5)
        return int((b.folder / "fetches").read_text().split()[-1])
    try:
        bad = wait_for(len(want))
        if bad:
            return bad
        time.sleep(1)
        before = fetches()
        time.sleep(3)
        asked = fetches() - before
        if asked > 100:  # each waits for 300 ms when there is nothing
            return f"at the tail it asks without a pause: {asked} fetches in 3.5 s"
        b.produce(s, peers.RdkNew, unique(b.rng, 1, 10_000_000), topic="plain")
        return wait_for(len(want))
    finally:
        proc.terminate()
        proc.wait()
        servers.forget(proc)


def holes_only(lines):
    return [x for x in lines if "Non-consecutive offsets" not in x and not re.match(r"^\s*\S+\.log is followed by", x)]


def files(t, b, s):
    folder = s.partition("t", 0)
    logs = sorted(folder.glob("*.log"))
    text = tools.dump(logs, "--deep-iteration", call=b.box)
    empties = len(re.findall(r"count: 0\b", text))
    t.check(f"kafka-dump-log --deep-iteration on {len(logs)} segments with {empties} empty batches",
            holes_only(tools.complaints(text)) + ([] if empties > 1000 else ["there are too few empty batches to judge by"]))
    t.attempt("kafka-dump-log on indexes and snapshots", lambda: [x for x in tools.dump_log_problems([folder], b.box) if x not in set(tools.complaints(text))
                                                                  and holes_only([x])])
    t.attempt("batches and indexes agree", segments.problems, [folder], holes=True)


def run():
    ap = argparse.ArgumentParser()
    ap.add_argument("--quick", action="store_true")
    ap.add_argument("--seed", type=int, default=int(time.time()))
    a = ap.parse_args()
    t = tally.Tally(f"outside judges on dedup by GUID (seed {a.seed})")
    b = Bench(servers.temp_folder("guid"), a.seed)
    n = 1000 if a.quick else 3000
    with servers.server("kbroker", PROPS) as s:
        with wire.Wire(s.boot) as w:
            for topic in b.kept:
                w.create(topic, 1, TOPIC)
        first = unique(b.rng, n, 0)
        t.attempt("Java produces", b.produce, s, peers.Java, first)
        t.attempt("librdkafka sends all of it again, one record a batch", b.produce, s, peers.RdkNew, first, "none", True, True)
        for reader in TAIL:
            t.attempt(f"{reader.name} passes {n} empty batches at the tail", b.read, s, reader)
        for maker, codec in ((peers.Java, "zstd"), (peers.RdkDebian, "lz4"), (peers.Franz, "snappy"), (peers.KafkaPython, "gzip"), (peers.KafkaJs, "none")):
            mixed = b.rng.sample(first, n // 5) + unique(b.rng, n // 5, len(b.kept["t"]))
            b.rng.shuffle(mixed)
            t.attempt(f"{maker.name} sends old and new ones, {codec}", b.produce, s, maker, mixed, codec, maker is not peers.KafkaJs)
        t.attempt("librdkafka sends everything again", b.produce, s, peers.RdkNew, list(b.kept["t"]), "none", True, True)
        t.attempt("and one that is new", b.produce, s, peers.RdkNew, unique(b.rng, 1, 5_000_000))
        for reader in (*TAIL, peers.Franz):
            t.attempt(f"{reader.name} reads every record once", b.read, s, reader)
        plain = unique(b.rng, n, 0)
        for rs, one in ((plain[:n // 2], False), (plain[:n // 2], True), (plain, False), (plain, True)):
            t.attempt(f"{len(rs)} records without a codec", b.produce, s, peers.RdkNew, rs, "none", True, one, "plain")
        t.attempt("kafkajs reads every record once, comes past the tail, and goes on", kafkajs, b, s)
        for reader in (*peers.OLD, peers.Franz):
            t.attempt(f"{reader.name} reads every record once, without a codec", b.read, s, reader, "plain")
        for maker, codec in ((peers.Java, "lz4"), (peers.RdkNew, "zstd"), (peers.RdkDebian, "none"), (peers.Franz, "gzip"), (peers.KafkaPython, "snappy"),
                             (peers.KafkaJs, "gzip"), (peers.Kclient, "zstd"), (peers.KclientOwnLoop, "none")):
            t.attempt(f"{maker.name} sends twice, and is told where the first copies are", guids.sent_twice, s.boot, maker, f"twice-{maker.name}", b.rng,
                      b.folder, codec)
        t.attempt("where ids are not looked at, each is read as a header", guids.header_is_read, s.boot, "no-dedup", b.folder)
        t.attempt("and it is said once that nobody looks", guids.said_once, s.boot, "no-dedup-again", "message.guid.dedup=true is not set on it")
        t.note("served")
        s.stop()
        files(t, b, s)
        s.start()
        for reader in (peers.Java, peers.RdkNew, peers.Franz):
            t.attempt(f"{reader.name} reads every record once after a restart", b.read, s, reader)
        t.attempt("what was sent before the restart is known", b.produce, s, peers.Java, first)
        t.attempt("and is not stored again", b.read, s, peers.RdkNew)
    b.box.close()
    return t.close()


if __name__ == "__main__":
    tally.main(run)
