"""The figures of dedup by GUID: what it costs a produce, what its index takes on disk and in memory, finding, starting. Section of run.py: guid."""
import subprocess
import time

import measure
from measure import cache, drop_topic, fresh_topic, interleave, program, servers, with_broker

DEDUP = {"message.guid.dedup": "true"}
TABLE = 262144   # ids that a partition has in memory before they are written


def raw():
    return cache.c_build("guid", [measure.BENCH / "guid.c"], ["-msse4.2"], [measure.BENCH / "raw.h"])


def call(server, mode, *args):
    return [raw(), mode, *server.boot.split(",")[0].rsplit(":", 1), *args]


def say(text):
    print(f"  … {text}", flush=True)


def stats(server, topic, parts=1):
    return program(call(server, "stats", topic, parts))


def settled(server, topic, parts=1, seconds=300):
    """The index's figures once nothing is written or merged any more."""
    deadline, before, since = time.monotonic() + seconds, None, time.monotonic()
    while True:
        d = stats(server, topic, parts)
        now = time.monotonic()
        if before is None or any(d[k] != before[k] for k in ("flushes", "merges", "runs")):
            before, since = d, now
        if any(server.data.glob(f"{topic}-*/guid/*.tmp")):   # a job's: on a busy machine it may seem to stand still
            since = now
        if now - since > 3 or now > deadline:
            return d
        time.sleep(0.05)


def hwm_mb(pid):
    """The most that a process ever had resident."""
    for line in open(f"/proc/{pid}/status"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"no VmHWM of {pid}")


# ---- what it costs a produce

def by_client(b, s):
    """libkclient, which makes the ids; acks=-1."""
    n = b.size(2_000_000, 100_000)

    def one(configs):
        topic = fresh_topic(s, "guid", 1, configs)
        d = with_broker(s, b.kc_produce(s, topic, 100, n, "-1", True, "--set", "enable.guid=true"))
        drop_topic(s, topic)
        return d
    one(DEDUP)
    r = b.keep("produce", interleave(b.rounds, off=lambda: one(None), on=lambda: one(DEDUP)))
    on, off = r["on"], r["off"]
    b.row("100 B, UUIDv7, dedup on against off: rate", on["records_per_s"], "records/s", off["records_per_s"], 0.6, at_least=True)
    b.row("the same: broker CPU", on["broker_ns_per_record"], "ns/record", off["broker_ns_per_record"])
    b.row("the same: broker CPU more", on["broker_ns_per_record"] - off["broker_ns_per_record"], "ns/record", None, 200, of_peer=False)


def by_requests(b, s):
    """Batches that are ready to be sent: the broker alone is the limit."""
    n = b.size(2_000_000, 100_000)

    def one(kind, configs):
        topic = fresh_topic(s, "guid", 1, configs)
        d = with_broker(s, call(s, "produce", topic, 1, kind, 0, n, 100, 5000))
        drop_topic(s, topic)
        return d
    for kind in ("v7", "v4"):
        r = b.keep(f"requests {kind}", interleave(b.rounds, off=lambda: one(kind, None), on=lambda: one(kind, DEDUP)))
        on, off = r["on"], r["off"]
        b.row(f"by requests, UUID{kind}: rate", on["records_per_s"], "records/s", off["records_per_s"])
        b.row(f"by requests, UUID{kind}: broker CPU more", on["broker_ns_per_record"] - off["broker_ns_per_record"], "ns/record")


# ---- what it takes, finding, starting: millions of ids

def load(s, topic, ids, size, kind="v4"):
    step, at = max(ids // 5, 1), 0
    while at < ids:
        n = min(step, ids - at)
        d = program(call(s, "produce", topic, 1, kind, at, n, size, 5000))
        at += n
        say(f"{at / 1e6:.1f} of {ids / 1e6:.1f} million ids stored, {d['records_per_s'] / 1e3:,.0f} k/s, {hwm_mb(s.pid()):.0f} MB at most")


def ready(s, topic, ids, kind="v4"):
    """From the process's start until it has found an id, known one for a duplicate, and stored a new one: (milliseconds, its CPU's)."""
    p = subprocess.Popen([str(x) for x in call(s, "ready", topic, kind, ids)], stdout=subprocess.PIPE, text=True)
    p.stdout.readline()
    start = time.monotonic() * 1000
    s.launch()
    line = p.stdout.readline()
    cpu = measure.cpu_ns(s.pid()) / 1e6
    if p.wait(300) or not line:
        raise RuntimeError(f"the start was not well:\n{s.log_tail()}")
    s.boot = s._ready(60)
    return measure.json.loads(line)["at_ms"] - start, cpu


def starts(b, s, topic, ids):
    """Stopped cleanly, and by kill -9 with a table that is not written, in turn."""
    ms, cpu = {"clean": [], "killed": []}, {"clean": [], "killed": []}
    for _ in range(b.size(3, 1)):
        for how, end in (("killed", s.kill9), ("clean", s.stop)):
            load_quietly(s, topic, ids, TABLE - 1000)
            ids += TABLE - 1000
            end()
            took, used = ready(s, topic, ids)
            ids += 1
            ms[how].append(took)
            cpu[how].append(used)
            say(f"{how}: ready after {took:.0f} ms, {used:.0f} ms of CPU")
    return ids, b.keep("start", {"ms": ms, "cpu_ms": cpu})


def load_quietly(s, topic, first, ids):
    program(call(s, "produce", topic, 1, "v4", first, ids, 100, 5000))


def sealed(b, name, d):
    """After a clean stop nothing is in a table but the one id that was sent since."""
    b.row(f"{name}: index on disk", d["disk_bytes"] / d["records"], "B/record", None, 27, of_peer=False)
    b.row(f"{name}: in memory, sealed", d["memory_bytes"] / d["records"], "B/record", None, 2, of_peer=False)


def many_ids(b, ids):
    s = servers.Kbroker(b.props).start()
    topic = fresh_topic(s, "ids", 1, {**DEDUP, "retention.ms": -1})
    load(s, topic, ids, 100)
    s.kill9()
    killed, used = ready(s, topic, ids)
    say(f"killed amidst its merges: ready after {killed:.0f} ms, {used:.0f} ms of CPU")
    ids += 1
    b.keep("index", settled(s, topic))
    name = f"{ids / 1e6:.0f} M ids"
    r = b.keep("get", program(call(s, "get", topic, "v4", ids, b.size(20_000, 2_000))))
    b.row(f"{name}: LookupGuid beyond an empty Metadata, p50", r["p50_us"] - r["ping_p50_us"], "us", None, 200, of_peer=False)
    b.row(f"{name}: LookupGuid itself, and the Metadata", r["p50_us"], "us", r["ping_p50_us"])
    b.row(f"{name}: of an id that is not there", r["unknown_p50_us"], "us", r["ping_p50_us"])
    ids, d = starts(b, s, topic, ids)
    sealed(b, name, stats(s, topic))
    median = measure.statistics.median
    b.row(f"{name}: start after a clean stop", median(d["ms"]["clean"]), "ms", None, 500, of_peer=False)
    b.row(f"{name}: its CPU", median(d["cpu_ms"]["clean"]), "ms")
    b.row(f"{name}: start after kill -9, the slowest", max(d["ms"]["killed"] + [killed]), "ms", None, 2000, of_peer=False)
    b.row(f"{name}: its CPU, the most", max(d["cpu_ms"]["killed"] + [used]), "ms")
    s.stop()


def budget(b):
    """More partitions than the budget has tables for."""
    parts, mb = b.size(32, 8), b.size(64, 16)
    s = servers.Kbroker({**b.props, "guid.index.memory.bytes": mb << 20}).start()
    one = fresh_topic(s, "one", 1, DEDUP)
    load_quietly(s, one, 0, TABLE)
    b.row("open part of a partition, full", stats(s, one)["memory_bytes"] / (1 << 20), "MiB", None, 8, of_peer=False)
    drop_topic(s, one)
    topic, most = fresh_topic(s, "parts", parts, DEDUP), 0
    for i in range(b.size(24, 8)):
        n = parts * TABLE // 16
        program(call(s, "produce", topic, parts, "v4", i * n, n, 20, 4096))
        d = stats(s, topic, parts)
        most = max(most, d["memory_bytes"] - 2 * d["disk_bytes"] // 26)
    b.row(f"tables of {parts} partitions, at most", most / (1 << 20), "MiB", None, 2 * mb, of_peer=False)
    s.stop()


def large(b):
    ids = b.size(100_000_000, 2_000_000)
    name = f"{ids // 1_000_000} M ids"
    with servers.Kbroker(b.props) as s:
        topic = fresh_topic(s, "large", 1, {**DEDUP, "retention.ms": -1})
        load(s, topic, ids, 2, "v7")
        b.row(f"{name}: RSS at most, as they came", hwm_mb(s.pid()), "MB", None, 512, of_peer=False)
        d = b.keep("large", settled(s, topic, seconds=600))
        b.row(f"{name}: RSS at most, all merged", hwm_mb(s.pid()), "MB", None, 512, of_peer=False)
        b.row(f"{name}: runs", d["runs"], "runs", None, 24, of_peer=False)
        if d["records"] != ids:
            raise RuntimeError(f"{d['records']} of {ids} ids are known")
        s.stop()
        b.row(f"{name}: start after a clean stop", ready(s, topic, ids, "v7")[0], "ms")
        sealed(b, name, stats(s, topic))


def guid(b):
    """Dedup by GUID: produce with and without it, the index's bytes, finding, starting; --large: 100 million ids."""
    if b.a.stand_in:
        print(f"{b.current:16} is of kbroker alone")
        return
    b.props = {"log.segment.delete.delay.ms": 1000}
    with servers.Kbroker(b.props) as s:
        by_client(b, s)
        by_requests(b, s)
    many_ids(b, b.size(10_000_000, 600_000))
    budget(b)
    if b.a.large:
        large(b)


SECTIONS = {"guid": guid}
