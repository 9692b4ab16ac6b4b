"""Apache Kafka's own data that is hard to read, read by libkclient and, beside it, by Kafka's own consumer: record by record the same.

Transactions (committed, aborted, still open, interleaved, compressed) at both isolation levels; a compacted log after the cleaner ran, with
holes and empty batches; a topic deleted and created anew, and one that grows, while it is assigned. Called by test_kafka_broker.py.
"""
import json
import random
import struct
import time

from . import peers, records, segments, wire

# What the cleaner needs to run at once. Segments that compaction may look at are closed by the next record after segment.ms.
BROKER_PROPS = {"log.cleaner.backoff.ms": 200, "log.initial.task.delay.ms": 1000}
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.001", "segment.ms": 500, "delete.retention.ms": 0,
             "min.compaction.lag.ms": 0}


def until(what, ask, timeout=60.0):
    """What ask returns, once that is true."""
    deadline = time.monotonic() + timeout
    while True:
        got = ask()
        if got:
            return got
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what}: not within {timeout:.0f} s")
        time.sleep(0.05)


def read(reader, topic, partitions, folder, **job):
    out = folder / "consuming.jsonl"
    reader.job(op="consume", topics={topic: partitions}, out=str(out), **job)
    return records.load(out)


def differences(want, got, limit=5):
    """Empty when both show the same records at the same offsets, in the same order within each partition."""
    w, g, bad = records.by_partition(want), records.by_partition(got), []
    for p in sorted(set(w) | set(g)):
        a, b = w.get(p, []), g.get(p, [])
        if len(a) != len(b):
            bad.append(f"partition {p}: {len(b)} records in place of {len(a)}")
        for x, y in zip(a, b):
            if x != y:
                bad.append(f"partition {p}: {y} in place of {x}")
            if len(bad) >= limit:
                return bad
    return bad


# ---- transactions ----

def steps(rng, partitions, rounds):
    """Interleaved transactions of three producers and records outside of any; and the values that end up committed."""
    out, committed, pending, number = [], set(), {}, 0
    for _ in range(rounds):
        who = rng.choice(["a", "b", "c", ""])
        if who and who not in pending:
            out.append([who, "begin"])
            pending[who] = set()
        if who and rng.random() < 0.25:
            end = rng.choice(["commit", "abort"])   # now and then of an empty transaction
            out.append([who, end])
            values = pending.pop(who)
            committed |= values if end == "commit" else set()
            continue
        for _ in range(rng.randrange(1, 6)):
            value = b"%d:" % number + rng.randbytes(2) * rng.randrange(0, 60)
            number += 1
            out.append([who, "send", rng.randrange(partitions), records.b64(b"k%d" % (number % 7)), records.b64(value)])
            (pending[who] if who else committed).add(value)
        out.append([who, "flush"])   # so that batches of several transactions lie between each other
    for who in sorted(pending):
        if who != "a":
            out.append([who, "abort" if who == "b" else "commit"])
            committed |= pending[who] if who == "c" else set()
    if "a" not in pending:
        out.append(["a", "begin"])
    out += [["a", "send", p, None, records.b64(b"open %d" % p)] for p in range(partitions)] + [["a", "flush"]]
    out += [["", "send", p, None, records.b64(b"behind the open one %d" % p)] for p in range(partitions)] + [["", "flush"]]
    return out, committed | {b"behind the open one %d" % p for p in range(partitions)}


def transactions(tally, kafka, java, readers, codec, folder, rounds):
    topic, partitions = f"transactions-{codec}", 2
    todo, committed = steps(random.Random(codec), partitions, rounds)
    with wire.Wire(kafka.boot) as w:
        w.create(topic, partitions)
    java.job(op="transact", topic=topic, codec=codec, steps=todo)
    for ended in (False, True):
        if ended:
            java.job(op="transact", topic=topic, codec=codec, steps=[["a", "abort"]])
        state = "all ended" if ended else "one open"
        want = {}
        for level in ("read_uncommitted", "read_committed"):
            conf = {"isolation.level": level}
            want[level] = read(java, topic, partitions, folder, conf=conf)
            for reader in readers:
                tally.attempt(f"{reader.name}, {level}, {codec}, {state}",
                              lambda r=reader, c=conf, v=want[level]: differences(v, read(r, topic, partitions, folder, conf=c)))
        if ended:   # the judge judged
            kept = [r for r in want["read_uncommitted"] if r["value"] in committed]
            tally.check(f"control: {codec}, the Java consumer shows what was committed", differences(kept, want["read_committed"]))
            tally.check(f"control: {codec}, something was aborted", [] if len(kept) < len(want["read_uncommitted"]) else ["nothing was"])


# ---- a compacted log ----

def batch_facts(folder):
    """(holes between or inside batches, batches without records) of all segments but the open one."""
    holes = empty = 0
    expected = None
    for log in sorted(folder.glob("*.log"))[:-1]:
        data = log.read_bytes()
        for at, base, last, _ in segments.batches(log):
            count = struct.unpack_from(">i", data, at + 57)[0]
            empty += count == 0
            holes += (last - base + 1 != count) + (expected is not None and base != expected)
            expected = last + 1
    return holes, empty


def compacted(tally, kafka, java, readers, folder):
    topic, rng = "compacted", random.Random(5)
    with wire.Wire(kafka.boot) as w:
        w.create(topic, 1, COMPACTED)
    path, reports = folder / "compact.jsonl", folder / "compact.out"
    for turn in range(4):   # each a producer of its own, whose keys the next one writes again
        keys = [b"k%d" % k for k in range(40 if turn % 2 == 0 else 60)]
        rng.shuffle(keys)
        made = [records.record(0, k, None if rng.random() < 0.2 else b"%d:%d:" % (turn, n) + k * 20, records.HEADERS[n % 2])
                for n, k in enumerate(keys)]
        records.save(made, path)
        java.job(op="produce", topic=topic, file=str(path), out=str(reports), codec=peers.CODECS[turn], acks=-1, idempotence=True)
        aborted = [["t", "begin"]] + [["t", "send", 0, records.b64(b"k%d" % n), records.b64(b"never")] for n in range(5)]
        java.job(op="transact", topic=topic, codec="none", steps=aborted + [["t", "flush"], ["t", "abort" if turn % 2 else "commit"]])
        time.sleep(0.6)   # segment.ms
    records.save([records.record(0, b"last", b"rolls")], path)
    java.job(op="produce", topic=topic, file=str(path), out=str(reports), codec="none", acks=-1, idempotence=True)
    where = kafka.partition(topic, 0)
    until("the cleaner leaves holes and an empty batch", lambda: all(batch_facts(where)))

    def settled():   # the same twice in a row: the cleaner is through
        before = batch_facts(where), read(java, topic, 1, folder)
        time.sleep(1.0)
        return before if before == (batch_facts(where), read(java, topic, 1, folder)) else None

    (holes, empty), want = until("the cleaner is through", settled)
    tally.note(f"compacted: {len(want)} records left, {holes} holes, {empty} empty batches")
    for level in ("read_uncommitted", "read_committed"):
        conf = {"isolation.level": level}
        want = read(java, topic, 1, folder, conf=conf)
        for reader in readers:
            tally.attempt(f"{reader.name}, compacted, {level}", lambda r=reader: differences(want, read(r, topic, 1, folder, conf=conf)))
    with wire.Wire(kafka.boot) as w:
        end = w.offset(topic, 0)
    kc = next(r for r in readers if r.name == "kc")
    for at in range(0, end, 7):   # from any offset, there or not
        tally.attempt(f"kc, compacted, from {at}", lambda: differences([r for r in want if r["offset"] >= at],
                                                                       read(kc, topic, 1, folder, offset=at, conf=conf)))


# ---- a topic that changes while it is assigned ----

class Follower:
    """libkclient, reading on in the background."""

    def __init__(self, boot, topic, partitions, folder, own_loop, **conf):
        self.peer = (peers.KclientOwnLoop if own_loop else peers.Kclient)(boot)
        self.out = folder / f"follow-{topic}.jsonl"
        self.out.write_text("")
        self.peer.start(dict(op="follow", topics={topic: partitions}, out=str(self.out), conf=conf))

    def lines(self):
        return [json.loads(x) for x in self.out.read_text().split("\n")[:-1]]

    def errors(self):
        return [x["error"] for x in self.lines() if "error" in x]

    def count(self, partition=None):
        return sum(1 for x in self.lines() if "offset" in x and partition in (None, x["partition"]))

    def stop(self):
        self.peer.proc.stdin.write(b"\n")
        self.peer.proc.stdin.flush()
        self.peer.answer(60)
        self.peer.close()
        errors = self.errors()
        self.out.write_text("".join(json.dumps(x) + "\n" for x in self.lines() if "offset" in x))
        return records.load(self.out), errors


def fill(kafka, java, topic, partitions, count, tag, folder):
    made = [records.record(n % partitions, None, b"%s %d" % (tag, n)) for n in range(count)]
    records.save(made, folder / "fill.jsonl")
    java.job(op="produce", topic=topic, file=str(folder / "fill.jsonl"), out=str(folder / "fill.out"), codec="lz4", acks=-1, idempotence=True)


def recreated(kafka, java, folder, own_loop):
    """Its records up to the end, then those of the new topic from its beginning, with the news of it in between."""
    topic = f"recreated-{own_loop}"
    with wire.Wire(kafka.boot) as w:
        w.create(topic, 2)
    fill(kafka, java, topic, 2, 120, b"old", folder)
    old = read(java, topic, 2, folder)
    f = Follower(kafka.boot, topic, 2, folder, own_loop, **{"auto.offset.reset": "earliest", "allow.auto.create.topics": "false"})
    until("the old topic is read", lambda: f.count() == 120)
    with wire.Wire(kafka.boot) as w:
        w.delete(topic)   # (to ask for it now would create it)
        w.create(topic, 2)
    fill(kafka, java, topic, 2, 50, b"new", folder)
    new = read(java, topic, 2, folder)
    until("the new topic is read", lambda: f.count() >= 170)
    got, errors = f.stop()
    bad = differences(old, got[:120]) + differences(new, got[120:])
    return bad + ([] if "INCONSISTENT_TOPIC_ID" in errors else [f"told {errors}, not that the topic is another one"])


def grown(kafka, java, folder, own_loop):
    """Partitions that are assigned before they exist are read from their beginning once they do, while the others go on."""
    topic = f"grown-{own_loop}"
    with wire.Wire(kafka.boot) as w:
        w.create(topic, 1)
    fill(kafka, java, topic, 1, 30, b"before", folder)
    f = Follower(kafka.boot, topic, 3, folder, own_loop)
    until("the first partition is read", lambda: f.count(0) == 30)
    until("the missing ones are told of", lambda: len(f.errors()) == 2)
    with wire.Wire(kafka.boot) as w:
        w.grow(topic, 3)
        until("the new partitions have leaders", lambda: len(w.partitions(topic)) == 3 and all(e == 0 for e, _ in w.partitions(topic).values()))
    fill(kafka, java, topic, 3, 90, b"after", folder)
    want = read(java, topic, 3, folder)
    until("all three are read", lambda: f.count() >= 120)
    got, errors = f.stop()
    return differences(want, got) + ([] if errors == ["UNKNOWN_TOPIC_OR_PARTITION"] * 2 else [f"told {errors}"])


def run(tally, kafka, quick, folder):
    java = peers.Java(kafka.boot)
    readers = [c(kafka.boot) for c in peers.OURS]
    for codec in ("none", "zstd") if quick else peers.CODECS:
        tally.attempt(f"transactions, {codec}", transactions, tally, kafka, java, readers, codec, folder, 40)
    tally.note("transactions are read")
    tally.attempt("a compacted log", compacted, tally, kafka, java, readers, folder)
    for own_loop in (False, True):
        tally.attempt(f"a topic created anew while assigned{', own loop' if own_loop else ''}", recreated, kafka, java, folder, own_loop)
        tally.attempt(f"a topic that grows while assigned{', own loop' if own_loop else ''}", grown, kafka, java, folder, own_loop)
    tally.note("topics that changed are read")
