"""Records under ids: where nobody looks at them, as Apache Kafka does not and kbroker not on every topic, and sent twice to a topic of kbroker that does.

Each function returns problems (empty when all is well). Called by test_kafka_broker.py and test_guid.py.
"""
import json
import subprocess

from . import cli, peers, records, wire

DUPLICATE, DEDUPED = 1, 8   # flags of libkclient's reports


def job(maker, boot, **what):
    p = maker(boot)
    try:
        return p.job(**what)
    finally:
        p.close()


def reports(path):
    with open(path) as f:
        return [json.loads(line) for line in f]


def header_is_read(boot, topic, folder):
    """What enable.guid adds is one header of 16 bytes, which every reader shows beside the others; the reports speak of no duplicates."""
    rs = [dict(r, headers=[("origin", b"x")]) for r in records.lines(300, seed=8)]
    with wire.Wire(boot) as w:
        w.create(topic, 1)
    records.save(rs, folder / "set.jsonl")
    job(peers.Kclient, boot, op="produce", topic=topic, file=str(folder / "set.jsonl"), out=str(folder / "reports"), codec="zstd", acks=-1,
        idempotence=True, conf={"enable.guid": "true"})
    told = reports(folder / "reports")
    bad = [] if [(r["offset"], r["flags"]) for r in told] == [(i, 0) for i in range(len(rs))] else [f"reports say {told[:3]}…"]
    seen = {}
    for reader in (peers.Java, peers.KafkaPython, peers.RdkNew):
        job(reader, boot, op="consume", topics={topic: 1}, out=str(folder / "got"))
        got = records.load(folder / "got")
        ids = [v for r in got for n, v in r["headers"] if n == "guid"]
        bad += [f"{reader.name}: {x}" for x in records.compare(rs, [dict(r, headers=[h for h in r["headers"] if h[0] != "guid"]) for r in got])]
        if len(ids) != len(rs) or any(len(v) != 16 or v[6] >> 4 != 7 for v in ids) or sorted(set(ids)) != ids:
            bad.append(f"{reader.name} reads {len(ids)} ids, {len(set(ids))} of them apart: {ids[:2]}")
        seen[reader.name] = ids
    return bad + ([] if len(set(map(tuple, seen.values()))) == 1 else ["the readers show other ids"])


def said_once(boot, topic, why):
    """Many batches under ids that were sent before: all are stored, and one line says that nobody looks at them."""
    cli.topic(boot, topic)
    lines = b"".join(b"%032x %d\n" % (i, i) for i in range(1, 301))
    bad = []
    for n in (1, 2):
        r = subprocess.run([cli.cache.build_tree() / "bin" / "kc", "produce", "-b", boot, "-t", topic, "-p", "0", "--guid-from", "field", "--reports",
                            "--set", "batch.size=500"], input=lines, capture_output=True, timeout=60)
        told, said = [json.loads(x) for x in r.stdout.splitlines()], r.stderr.decode()
        if r.returncode or said.count("does not dedup by id") != 1 or len(said.splitlines()) != 1 or why not in said or "idempotence alone" not in said:
            bad.append(f"exit {r.returncode}, and said is: {said!r}")
        if sorted(x["offset"] for x in told) != list(range(300 * (n - 1), 300 * n)) or any(x.get("duplicate") for x in told):
            bad.append(f"reports say {told[:2]}…")
    return bad


def sent_twice(boot, maker, topic, rng, folder, codec):
    """A producer sends its records again: none is stored twice, and each is reported as stored, where its first copy is."""
    rs = [records.record(0, b"k", b"%d" % i, [("guid", rng.randbytes(16))], records.NOW + i) for i in range(500)]
    with wire.Wire(boot) as w:
        w.create(topic, 1, {"message.guid.dedup": "true"})
    records.save(rs, folder / "set.jsonl")
    bad = []
    for again in (False, True):
        a = job(maker, boot, op="produce", topic=topic, file=str(folder / "set.jsonl"), out=str(folder / "reports"), codec=codec, acks=-1,
                idempotence=maker is not peers.KafkaJs)
        told = sorted(reports(folder / "reports"), key=lambda r: r["i"])
        if a["count"] != len(rs) or [r["offset"] for r in told] != list(range(len(rs))):
            bad.append(f"{a['count']} acked{', sent again' if again else ''}; offsets {[r['offset'] for r in told][:5]}…")
        if maker in peers.OURS and {r["flags"] for r in told} != {DEDUPED | DUPLICATE if again else DEDUPED}:
            bad.append(f"flags {sorted({r['flags'] for r in told})}{', sent again' if again else ''}")
    job(peers.RdkNew, boot, op="consume", topics={topic: 1}, out=str(folder / "got"))
    got = records.load(folder / "got")
    want = [(i, r["value"]) for i, r in enumerate(rs)]
    return bad + ([] if [(r["offset"], r["value"]) for r in got] == want else [f"{len(got)} records are stored, of {len(rs)}"])
