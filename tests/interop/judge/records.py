"""Record sets and the comparer: what is produced, and whether what comes back is the same, record by record.

A set is a list of dicts {partition, key, value, headers, timestamp}; key and value are bytes or None, headers a list of
(name, bytes or None). On disk: a JSON line a record, bytes in base64. A consumer's file has the offset too.
"""
import base64
import json
import random

NOW = 1_760_000_000_000   # a fixed "today", so that a set is the same in every run


def b64(b):
    return None if b is None else base64.b64encode(b).decode()


def unb64(s):
    return None if s is None else base64.b64decode(s)


def record(partition, key, value, headers=(), timestamp=NOW):
    return {"partition": partition, "key": key, "value": value, "headers": list(headers), "timestamp": timestamp}


def blob(rng, size):
    """Half noise, half repetition: compressible, but not to nothing."""
    if size == 0:
        return b""
    noise = rng.randbytes((size + 1) // 2)
    word = rng.randbytes(1) + b"kafka protocol "
    return (noise + word * (size // len(word) + 1))[:size]


HEADERS = [
    [],
    [("trace", b"00-4bf92f35")],
    [("a", b"1"), ("b", b""), ("a", b"2")],                 # a repeated name, an empty value
    [("\u00fcml\u00e4ut \u2603", bytes(range(256)))],       # a name in UTF-8, every byte
    [(f"h{i}", bytes([i]) * i) for i in range(40)],
    [("null", None), ("after", b"x")],
    [("", b"empty name")],
]


def mix(partitions, seed=1, per_partition=None, text_only=False):
    """Small records: 0 B to 10 kB, null and empty keys and values, headers, timestamps that go back and forth."""
    rng = random.Random(seed)
    keys = [None, b"", b"k", b"key-0123456789", rng.randbytes(300)]
    values = [None, b"", b"v", blob(rng, 100), blob(rng, 1000), blob(rng, 1024), blob(rng, 10_000)]
    shapes = [(k, v, h) for k in keys for v in values for h in (HEADERS[0], HEADERS[1])]
    shapes += [(b"with headers", b"v", h) for h in HEADERS] + [(None, None, h) for h in HEADERS]
    rng.shuffle(shapes)
    if per_partition:
        shapes = shapes[:per_partition * partitions]
    out = []
    for i, (k, v, h) in enumerate(shapes):
        # forward, back, far back, a little ahead, equal: brokers must store what was sent
        step = [i * 1000, -i * 977, -86_400_000 * (i % 400), 60_000, 0][i % 5]
        out.append(record(i % partitions, k, v, h, NOW + step))
    return out


def steps(partitions, seed=2):
    """The size ladder: 0 B, 1, 100, 1 kB, 100 kB, around 1 MB, 10 MB."""
    rng = random.Random(seed)
    sizes = [0, 1, 100, 1024, 100_000, 1_000_000, (1 << 20) - 1, 1 << 20, 10 << 20, 3]
    return [record(i % partitions, b"size-%d" % n, blob(rng, n), HEADERS[i % 2], NOW + i) for i, n in enumerate(sizes)]


def many(partitions, count, seed=3, size=300):
    """Many small records with one clock, to fill batches."""
    rng = random.Random(seed)
    return [record(i % partitions, b"%d" % (i % 1000), blob(rng, rng.randrange(0, size)), (), NOW + i) for i in range(count)]


def lines(count, seed=4):
    """Printable keys and values without tab or newline, for line-based command-line tools; partition 0 only."""
    rng = random.Random(seed)
    alphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .,;:-_{}[]()\u00e9\u2603"
    word = lambda lo, hi: "".join(rng.choice(alphabet) for _ in range(rng.randrange(lo, hi))).encode()
    return [record(0, word(1, 20), word(1, 400)) for _ in range(count)]


def without_null_headers(records):
    return [dict(r, headers=[(n, v) for n, v in r["headers"] if v is not None]) for r in records]


def save(records, path):
    with open(path, "w") as f:
        for r in records:
            f.write(json.dumps({"partition": r["partition"], "key": b64(r["key"]), "value": b64(r["value"]),
                                "headers": [[n, b64(v)] for n, v in r["headers"]], "timestamp": r["timestamp"]}) + "\n")


def load(path):
    out = []
    with open(path) as f:
        for line in f:
            d = json.loads(line)
            out.append({"topic": d["topic"], "partition": d["partition"], "offset": d["offset"], "key": unb64(d["key"]),
                        "value": unb64(d["value"]), "headers": [(n, unb64(v)) for n, v in d["headers"]],
                        "timestamp": d["timestamp"]})
    return out


def by_partition(records):
    out = {}
    for r in records:
        out.setdefault(r["partition"], []).append(r)
    return out


def show(v):
    if isinstance(v, bytes) and len(v) > 40:
        return f"{v[:40]!r}… ({len(v)} B)"
    return repr(v)


FIELDS = ("key", "value", "headers", "timestamp")


def compare(sent, got, fields=FIELDS, first_offset=0, limit=5):
    """Differences as text, empty when got is sent: the same records, each once, in order, offsets without a gap."""
    bad = []
    want, have = by_partition(sent), by_partition(got)
    for p in sorted(set(want) | set(have)):
        w, h = want.get(p, []), have.get(p, [])
        if len(w) != len(h):
            bad.append(f"partition {p}: {len(h)} records in place of {len(w)}")
        for i, (a, b) in enumerate(zip(w, h)):
            if b["offset"] != first_offset + i:
                bad.append(f"partition {p}, record {i}: offset {b['offset']} in place of {first_offset + i}")
            for f in fields:
                if a[f] != b[f]:
                    bad.append(f"partition {p}, record {i}: {f} {show(b[f])} in place of {show(a[f])}")
            if len(bad) >= limit:
                return bad[:limit] + ["…"]
    return bad


def compare_reports(sent, reports, limit=5):
    """What the producer was told: each record exactly once, without error, at the offset where it must lie."""
    bad, nexts, want = [], {}, []
    for r in sent:
        p = r["partition"]
        want.append((p, nexts.get(p, 0)))
        nexts[p] = nexts.get(p, 0) + 1
    told = {}
    for d in reports:
        if d["i"] in told:
            bad.append(f"record {d['i']} was reported twice")
        told[d["i"]] = (d["partition"], d["offset"])
    for i, w in enumerate(want):
        if told.get(i) != w:
            bad.append(f"record {i}: reported at {told.get(i)}, lies at {w}")
        if len(bad) >= limit:
            return bad + ["…"]
    return bad


def controls():
    """The comparer judged: every kind of difference must be seen. Returns what it missed."""
    sent = mix(2)
    got = [dict(r, offset=i // 2) for i, r in enumerate(sent)]
    victim = next(i for i, r in enumerate(sent) if r["key"] == b"" and r["headers"])
    change = lambda **kw: got[:victim] + [dict(got[victim], **kw)] + got[victim + 1:]
    spoiled = {
        "a lost record": got[:victim] + got[victim + 1:],
        "a doubled record": got[:victim] + [got[victim]] + got[victim:],
        "two swapped records": [got[2], got[1], got[0]] + got[3:],
        "null for empty": change(key=None), "another value": change(value=b"?"), "a lost header": change(headers=[]),
        "another timestamp": change(timestamp=1), "another offset": change(offset=10 ** 6),
    }
    missed = [f"did not see {what}" for what, g in spoiled.items() if not compare(sent, g)]
    return missed + (["found fault with equal records"] if compare(sent, got) else [])
