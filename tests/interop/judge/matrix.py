"""Every producer x codec x acks x partitions, read back by every consumer, compared record by record.

Called by test_kafka_broker.py and test_kbroker.py. A cell is one topic; the readers take all topics of a producer in one
go. What each check means is in records.compare and records.compare_reports.
"""
import json
import time

from . import peers, records, wire


def cells(producer, quick):
    """(name, records, partitions, codec, acks, idempotence): small mixed records over everything, the size ladder by codec."""
    codecs = ("none", "zstd") if quick else peers.CODECS
    acks = [a for a in producer.acks if a in ((0, False), (-1, True)) or not quick]
    for n, codec in enumerate(c for c in codecs if c in producer.codecs):
        for m, (a, idempotent) in enumerate(acks):
            parts = 1 if (n + m) % 2 and not quick else 3   # both counts with every codec and every acks level
            yield f"mix-{codec}-a{a}{'i' if idempotent else ''}-p{parts}", records.mix(parts), parts, codec, a, idempotent
    best = (-1, True) in producer.acks
    for n, codec in enumerate(("lz4",) if quick else large_codecs(producer)):
        parts = 3 if n % 2 else 1
        yield f"steps-{codec}-p{parts}", records.steps(parts), parts, codec, -1, best and n % 2 == 0
    if not quick:
        yield "many-lz4-p3", records.many(3, 6_000), 3, "lz4", -1, best
        yield "many-none-a0-p1", records.many(1, 3_000), 1, "none", 0, False


def large_codecs(producer):
    """The size ladder is heavy: libkclient takes it with every codec, each other producer with two, which differ."""
    if producer.thorough:
        return producer.codecs
    turn = sum(producer.name.encode())
    return [producer.codecs[(turn + k) % len(producer.codecs)] for k in (0, 2)]


def produce_cell(producer, boot, topic, sent, cell, folder):
    """Creates the topic, produces, checks the reports and that the end offsets are those of the records."""
    _, _, parts, codec, acks, idempotent = cell
    with wire.Wire(boot) as w:
        w.create(topic, parts)
    records.save(sent, folder / "set.jsonl")
    producer.job(op="produce", topic=topic, file=str(folder / "set.jsonl"), out=str(folder / "reports.jsonl"), codec=codec,
                 acks=acks, idempotence=idempotent)
    want = [sum(1 for r in sent if r["partition"] == p) for p in range(parts)]
    ends = wire.wait_ends(boot, topic, parts, len(sent))
    if ends != want:
        return f"end offsets {ends} in place of {want}"
    if acks == 0:
        return None   # a report without an answer knows no offset
    with open(folder / "reports.jsonl") as f:
        return records.compare_reports(sent, [json.loads(line) for line in f])


def read_topics(reader, topics, folder):
    """{topic: what came}, by one job."""
    out = folder / "got.jsonl"
    reader.job(timeout=300, op="consume", topics={t: c[2] for t, (c, _) in topics.items()}, out=str(out))
    got = {t: [] for t in topics}
    for r in records.load(out):
        got[r["topic"]].append(r)
    return got


def run(tally, server, producers, readers, quick, folder):
    """Fills the server and reads it back. Returns {topic: (cell, sent)} of everything that was produced."""
    tally.attempt("control: the comparer sees every kind of difference", records.controls)
    made = {}
    for producer in producers:
        topics = {}
        for cell in cells(producer, quick):
            topic, sent = f"{producer.name}.{cell[0]}", producer.fit(cell[1])
            if tally.attempt(f"{producer.name} produces {cell[0]} to {server.name}", produce_cell, producer, server.boot, topic,
                             sent, cell, folder):
                topics[topic] = (cell, sent)
        tally.note(f"{producer.name} produced {len(topics)} topics")
        took = {}
        for reader in readers:
            began = time.monotonic()
            read_back(tally, reader, producer, topics, folder)
            took[reader.name] = time.monotonic() - began
        slow = max(took, key=took.get)
        tally.note(f"{len(readers)} readers read them, {slow} slowest with {took[slow]:.1f} s")
        made.update(topics)
    return made


def refused(reader, topic, cell, folder):
    """A codec newer than the reader's versions: the broker must say so, not send what the reader cannot know (KIP-110)."""
    try:
        read_topics(reader, {topic: (cell, None)}, folder)
    except peers.PeerError as e:
        return [] if "compression" in str(e).lower() else [f"refused with {e}"]
    return ["was served"]


def read_back(tally, reader, producer, topics, folder):
    beyond = [t for t, (cell, _) in topics.items() if not reader.reads(cell[3])]
    for t in beyond[:1]:
        tally.attempt(f"{reader.name} is refused {t}", refused, reader, t, topics[t][0], folder)
    topics = {t: v for t, v in topics.items() if t not in beyond}
    try:
        got = read_topics(reader, topics, folder) if topics else {}
    except Exception as e:   # then one by one, to say which topic it is
        tally.check(f"{reader.name} reads all topics of {producer.name} at once", f"{type(e).__name__}: {e}")
        got = {}
        for t in topics:
            tally.attempt(f"{reader.name} reads {t}", lambda t=t: got.update(read_topics(reader, {t: topics[t]}, folder)))
    for t in got:
        fields = [f for f in producer.fields if f in reader.fields]
        tally.check(f"{reader.name} reads {t}", records.compare(topics[t][1], got[t], fields))
