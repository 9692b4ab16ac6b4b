"""Command-line clients against a broker: kcat, Kafka's console tools and producer performance tool, and kc.

Each function returns problems (empty when all is well). Called by test_kbroker.py (also with --broker kafka) and
test_kafka_broker.py.
"""
import json
import re
import subprocess

from . import cache, records, tools, wire

PARSED = b"%p %o %T %K %S\n%k%s\n"   # a format that kcat and kc share: lengths first, so that any bytes can be parsed


def topic(boot, name, partitions=1):
    with wire.Wire(boot) as w:
        w.create(name, partitions)
    return name


def as_lines(rs, separator=b"\t"):
    return b"".join(r["key"] + separator + r["value"] + b"\n" for r in rs)


def parse(out):
    """The output of PARSED as records. Lengths of -1 are null."""
    got, at = [], 0
    while at < len(out):
        end = out.index(b"\n", at)
        p, o, t, ks, vs = (int(x) for x in out[at:end].split(b" "))
        at = end + 1
        key = None if ks < 0 else out[at:at + ks]
        at += max(ks, 0)
        value = None if vs < 0 else out[at:at + vs]
        at += max(vs, 0)
        if out[at:at + 1] != b"\n":
            raise tools.ToolError(f"output does not fit its own lengths at byte {at}: {out[at - 20:at + 20]!r}")
        at += 1
        got.append({"partition": p, "offset": o, "timestamp": t, "key": key, "value": value})
    return got


def kcat_round(boot, codec, count=500):
    """Lines in with keys and a header, records out: by format, as JSON, from an offset, from a time; metadata, offsets."""
    t, rs = topic(boot, f"kcat-{codec}"), records.lines(count)
    half = count // 2
    for part in (rs[:half], rs[half:]):
        tools.kcat("-P", "-b", boot, "-t", t, "-p", "0", "-K", "\\t", "-z", codec, "-H", "origin=kcat", "-X", "acks=all",
                   stdin=as_lines(part))
    got = parse(tools.kcat("-C", "-b", boot, "-t", t, "-p", "0", "-o", "beginning", "-e", "-q", "-f", PARSED.decode().replace("\n", "\\n")))
    bad = records.compare(rs, got, ("key", "value"))
    tail = parse(tools.kcat("-C", "-b", boot, "-t", t, "-p", "0", "-o", "-7", "-e", "-q", "-f", PARSED.decode().replace("\n", "\\n")))
    bad += records.compare(rs[-7:], tail, ("key", "value"), first_offset=count - 7)
    rows = [json.loads(line) for line in tools.kcat("-C", "-b", boot, "-t", t, "-o", "beginning", "-e", "-q", "-J").splitlines()]
    if [(r["key"], r["payload"], r["headers"]) for r in rows] != [(r["key"].decode(), r["value"].decode(), ["origin", "kcat"]) for r in rs]:
        bad.append("kcat -J shows other records or headers")
    first_late = got[half]["timestamp"] if got else 0
    want = next((r["offset"] for r in got if r["timestamp"] >= first_late), None)
    line = tools.kcat("-Q", "-b", boot, "-t", f"{t}:0:{first_late}").decode().strip()
    if not line.endswith(f"offset {want}"):
        bad.append(f"kcat -Q for {first_late} says {line!r}, not offset {want}")
    listing = json.loads(tools.kcat("-L", "-J", "-b", boot, "-t", t))
    if [(x["topic"], len(x["partitions"])) for x in listing["topics"]] != [(t, 1)] or not listing["brokers"]:
        bad.append(f"kcat -L shows {listing}")
    return bad


def kcat_nulls(boot):
    """kcat -Z sends empty as null."""
    t = topic(boot, "kcat-nulls")
    tools.kcat("-P", "-b", boot, "-t", t, "-p", "0", "-K", ":", "-Z", stdin=b"k:\n:v\nk:v\n")
    got = parse(tools.kcat("-C", "-b", boot, "-t", t, "-o", "beginning", "-e", "-q", "-f", PARSED.decode().replace("\n", "\\n")))
    pairs = [(r["key"], r["value"]) for r in got]
    return [] if pairs == [(b"k", None), (None, b"v"), (b"k", b"v")] else [f"got {pairs}"]


def console_round(boot, codec):
    """Kafka's console producer and console consumer (by partition and offset, so without a group)."""
    t, rs = topic(boot, f"console-{codec}"), records.lines(300, seed=5)
    tools.kafka("kafka-console-producer", "--bootstrap-server", boot, "--topic", t, "--compression-codec", codec,
                "--reader-property", "parse.key=true", stdin=as_lines(rs))
    out = tools.kafka("kafka-console-consumer", "--bootstrap-server", boot, "--topic", t, "--partition", "0", "--offset", "earliest",
                      "--max-messages", len(rs), "--timeout-ms", "30000", "--formatter-property", "print.key=true",
                      "--formatter-property", "print.offset=true")
    want = [b"Offset:%d\t%s\t%s" % (i, r["key"], r["value"]) for i, r in enumerate(rs)]
    got = out.splitlines()
    return [] if got == want else [f"{len(got)} lines for {len(want)}; first difference: "
                                   + repr(next(((g, w) for g, w in zip(got, want) if g != w), None))]


def perf_round(boot, acks, size, count):
    """kafka-producer-perf-test: what it says it sent is what lies in the log."""
    t = topic(boot, f"perf-{'all' if acks == -1 else acks}-{size}", 3)
    out = tools.kafka("kafka-producer-perf-test", "--topic", t, "--num-records", count, "--record-size", size, "--throughput", "-1",
                      "--bootstrap-server", boot, "--command-property", f"acks={acks}").decode()
    m = re.search(rf"^{count} records sent, ", out, re.M)
    ends = wire.wait_ends(boot, t, 3, count)
    return [] if m and sum(ends) == count else [f"{count} records: tool said {out.strip()[-200:]!r}, log has {ends}"]


def kc(*args, stdin=b"", check=True):
    binary = cache.build_tree() / "bin" / "kc"
    if not binary.exists():
        raise cache.Missing(f"{binary} is not built")
    r = subprocess.run([binary, *[str(a) for a in args]], input=stdin, capture_output=True, timeout=60)
    if check and r.returncode:
        raise tools.ToolError(f"kc {' '.join(map(str, args))} exited {r.returncode}: {r.stderr[-800:].decode(errors='replace')}")
    return r.stdout


def kc_round(boot, codec):
    """kc's own lines in and out, and kcat reading the same: one judge that is not ours."""
    t, rs = topic(boot, f"kc-{codec}"), records.lines(500, seed=6)
    kc("produce", "-b", boot, "-t", t, "-p", "0", "-K", "\\t", "-H", "origin=kc", "-z", codec, "--set", "acks=all", stdin=as_lines(rs))
    fmt = PARSED.decode().replace("\n", "\\n")
    bad = records.compare(rs, parse(kc("consume", "-b", boot, "-t", t, "-p", "0", "-o", "beginning", "-e", "-f", fmt)), ("key", "value"))
    rows = [json.loads(line) for line in tools.kcat("-C", "-b", boot, "-t", t, "-o", "beginning", "-e", "-q", "-J").splitlines()]
    if [(r["key"], r["payload"], r["headers"]) for r in rows] != [(r["key"].decode(), r["value"].decode(), ["origin", "kc"]) for r in rs]:
        bad.append("kcat -J shows other records or headers than kc sent")
    ours = [json.loads(line) for line in kc("consume", "-b", boot, "-t", t, "-o", "beginning", "-e", "--json").splitlines()]
    if [r.get("offset") for r in ours] != list(range(len(rs))):
        bad.append(f"kc consume --json shows {len(ours)} lines, offsets {[r.get('offset') for r in ours[:3]]}…")
    return bad


def run(tally, server, quick, with_kc):
    """All rounds against a server."""
    boot = server.boot
    for codec in ("none", "zstd") if quick else ("none", "gzip", "snappy", "lz4", "zstd"):
        tally.attempt(f"kcat {codec} with {server.name}", kcat_round, boot, codec)
        if with_kc:
            tally.attempt(f"kc {codec} with {server.name}", kc_round, boot, codec)
    tally.attempt(f"kcat nulls with {server.name}", kcat_nulls, boot)
    for codec in ("none",) if quick else ("none", "lz4"):
        tally.attempt(f"console producer and consumer {codec} with {server.name}", console_round, boot, codec)
    for acks, size, count in ((1, 1000, 2000),) if quick else ((0, 100, 20000), (1, 1000, 20000), (-1, 1000, 20000)):
        tally.attempt(f"kafka-producer-perf-test acks={acks} {size} B with {server.name}", perf_round, boot, acks, size, count)
    tally.note("command-line clients done")
