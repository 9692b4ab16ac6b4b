"""kbroker as a test kit's server: how fast clusters are there, what fifty of them take, how fast state is saved and brought back, what recorder and rules cost.

Section of run.py: testkit. All as a kit does it: `kbroker cluster --ephemeral --until-eof --admin 0` behind a pipe. Against Apache Kafka's start where it can be
had, against what the machine needs for a process that does nothing (/bin/true) and for a copy (cp -r) else.
"""
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cluster
import measure
from measure import cache, servers, wire


def kbroker():
    binary = cache.build_tree() / "bin" / "kbroker"
    if not binary.exists():
        raise cache.Missing(f"{binary} is not built")
    return binary


class Kit:
    """Ready when it is made; .ms is how long that took, from before exec."""

    def __init__(self, nodes, *options, ephemeral=True):
        args = [kbroker(), "cluster", "--nodes", nodes, "--base-port", 0, "--admin", 0, "--until-eof", *(["--ephemeral"] if ephemeral else []), *options]
        begin = time.perf_counter()
        self.p = subprocess.Popen([str(a) for a in args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.url, self.boot = (self.p.stdout.readline().decode().split(" ", 1)[-1].strip() for _ in range(2))
        self.ms = (time.perf_counter() - begin) * 1000
        if not self.boot:
            raise RuntimeError(f"the cluster did not start: {args}")

    def ask(self, path, body=None):
        request = urllib.request.Request(self.url + path, method="GET" if body is None else "POST", data=None if body is None else json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=120) as r:
            return json.loads(r.read())

    def pids(self):
        return [self.p.pid, *(n["pid"] for n in self.ask("/cluster")["nodes"])]

    def stop(self):
        self.p.stdin.close()
        self.p.wait(60)
        self.p.stdout.close()


def timed(f):
    begin = time.perf_counter()
    f()
    return (time.perf_counter() - begin) * 1000


def nothing():
    """A process that does nothing, with the pipes that a kit has."""
    p = subprocess.Popen(["/bin/true"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    p.stdout.read()
    p.stdin.close()
    p.wait()


def kafka_start_ms(nodes):
    c = cluster.KafkaCluster(nodes)
    try:
        c.format()   # is not part of the start
        return timed(c.launch)
    finally:
        c.stop()


def starts(b):
    rounds = b.size(20, 5)
    ms = {1: [], 3: [], "true": []}
    for _ in range(rounds):
        ms["true"].append(timed(nothing))
        for nodes in (1, 3):
            kit = Kit(nodes)
            ms[nodes].append(kit.ms)
            kit.stop()
    b.keep("start_ms", ms)
    true = statistics.median(ms["true"])
    for nodes, target in ((1, 30), (3, 400)):
        kafka = None if b.a.short else b.keep(f"kafka_{nodes}_ms", kafka_start_ms(nodes))
        b.row(f"{nodes} node{'s' if nodes > 1 else ''}: exec to ready, of {rounds}; Kafka's", statistics.median(ms[nodes]), "ms", kafka, target, of_peer=False)
        b.row(f"{nodes} node{'s' if nodes > 1 else ''}: of /bin/true", statistics.median(ms[nodes]), "ms", true)


def serves(kit):
    with wire.Wire(kit.boot.split(",")[0]) as w:
        for _ in range(200):
            try:
                w.produce("t", wire.batch([b"x" * 100]), acks=-1)
                return
            except wire.WireError:   # the topic is being made
                time.sleep(0.02)
    raise RuntimeError(f"{kit.boot} takes no record")


def many(b):
    """One-node clusters in parallel, each of which has taken a record."""
    count = b.size(50, 5)
    begin = time.perf_counter()
    with ThreadPoolExecutor(count) as pool:
        kits = list(pool.map(lambda _: Kit(1), range(count)))
    ready = (time.perf_counter() - begin) * 1000
    try:
        for kit in kits:
            subprocess.run([str(measure.kc()), "topic", "create", "t", "-b", kit.boot], check=True, capture_output=True, timeout=60)
            serves(kit)
        time.sleep(1)
        pss = b.keep("pss_kb", [sum(measure.pss_kb(p) for p in kit.pids()) for kit in kits])
        before, clock = sum(measure.cpu_ns(p) for kit in kits for p in kit.pids()), time.monotonic()
        time.sleep(b.size(10, 2))
        busy = (sum(measure.cpu_ns(p) for kit in kits for p in kit.pids()) - before) / 1e9 / (time.monotonic() - clock) * 100
        b.row(f"{count} of one node: all ready", ready, "ms")
        b.row(f"{count} of one node: Pss of all", sum(pss) / 1024, "MB", None, 1000 * count / 50, of_peer=False)
        b.row(f"{count} of one node: CPU when idle, of a core", busy, "%")
    finally:
        for kit in kits:
            kit.stop()


def copied(folder, durable):
    """What the machine needs for a copy of the same files."""
    to = f"{folder}.copy"
    ms = timed(lambda: subprocess.run(["cp", "-r", folder, to], check=True))
    if durable:
        ms += timed(lambda: subprocess.run(["sync", *(str(p) for p in Path(to).rglob("*"))], check=True))
    shutil.rmtree(to)
    return ms


def snapshots(b):
    """10 MB, saved and brought back, answered when all serve again."""
    rounds = b.size(9, 3)
    for name, nodes, durable, targets in (("1 node", 1, False, (100, 50)), ("3 nodes", 3, False, (None, None)), ("1 node, synced", 1, True, (None, None))):
        folder = servers.temp_folder("testkit") / "c" if durable else None
        kit = Kit(nodes, *(["--data", folder] if durable else []), ephemeral=not durable)
        try:
            record = os.urandom(500).hex() + "\n"
            subprocess.run([str(measure.kc()), "produce", "-t", "t", "-b", kit.boot], input=(record * 10_000).encode(), check=True, timeout=60, capture_output=True)
            ms = {"save": [], "restore": [], "cp": []}
            for i in range(rounds):
                ms["save"].append(timed(lambda: kit.ask("/snapshots", {"save": f"s{i}"})))
                ms["cp"].append(copied(f"{kit.ask('/cluster')['data']}/snapshots/s{i}", durable))
            for i in range(rounds):
                ms["restore"].append(timed(lambda: kit.ask("/snapshots", {"restore": f"s{i}"})))
            b.keep(f"snapshot_ms {name}", ms)
            cp = statistics.median(ms["cp"])
            for what, target in zip(("save", "restore"), targets):
                b.row(f"{name}: 10 MB, {what}; cp -r{' and sync' if durable else ''}", statistics.median(ms[what]), "ms", cp, target, of_peer=False)
        finally:
            kit.stop()
            if folder:
                shutil.rmtree(folder, ignore_errors=True)


# ---- What recorder and fault rules cost: a broker's CPU a record, in pairs of runs, each pair in the other order than the one before; and the instructions
# that its own code takes a record (valgrind counts them, whatever else the machine does)

SMALL = ["--set", "batch.num.messages=1", "--set", "linger.ms=0"]


class One:
    """kbroker run, of any build."""

    def __init__(self, binary, *options, under=()):
        self.p = subprocess.Popen([str(a) for a in (*under, binary, "run", "--ephemeral", "--listen", "127.0.0.1:0", "--set", "admin.listener=127.0.0.1:0", *options)],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.boot = self.p.stdout.readline().decode().split()[-1]
        for line in self.p.stderr:
            if b"admin port: " in line:
                self.url = line.decode().split("admin port: ")[1].strip()
                break

    def pid(self):
        return self.p.pid

    def rules(self, *rules):
        urllib.request.urlopen(urllib.request.Request(self.url, method="DELETE"), timeout=60).read()
        if rules:
            urllib.request.urlopen(urllib.request.Request(self.url, method="POST", data=json.dumps(rules).encode()), timeout=60).read()

    def stop(self):
        self.p.terminate()
        self.p.wait(60)


def loads(b):
    """name -> (prepares, runs): full load by large batches, and by the smallest requests there are."""
    many, few = b.size(1_000_000, 50_000), b.size(60_000, 5_000)
    bench = [measure.kc(), "bench"]

    def produce(server, topic, count, *more):
        return measure.with_broker(server, [*bench, "produce", "-b", server.boot, "-t", topic, "--size", 100, "--count", count, "--json", *more])

    def consume(server, topic, count, *more):
        return measure.with_broker(server, [*bench, "consume", "-b", server.boot, "-t", topic, "--count", count, "--json", *more])
    return {"produce": (None, lambda s, t: produce(s, t, many)),
            "produce, a record a request": (None, lambda s, t: produce(s, t, few, *SMALL)),
            "fetch": (lambda s, t: produce(s, t, many), lambda s, t: consume(s, t, many)),
            "fetch, 1 kB an answer": (lambda s, t: produce(s, t, few), lambda s, t: consume(s, t, few, "--set", "max.partition.fetch.bytes=1000"))}


def pairs(b, what, one, other, target=None):
    """one, other: (server, before each run, or None). Rows of other's CPU a record against one's: the median of the pairs' ratios, and their spread."""
    for name, (prepare, run) in loads(b).items():
        ratios = []
        for i in range(b.size(8, 2)):
            used = {}
            for which in ((0, 1), (1, 0))[i % 2]:
                server, before = (one, other)[which]
                topic = measure.fresh_topic(server, "cost")
                if prepare:
                    prepare(server, topic)
                if before:
                    before()
                used[which] = run(server, topic)["broker_ns_per_record"]
                measure.drop_topic(server, topic)
            ratios.append(used[1] / used[0])
        ratios.sort()
        b.keep(f"cost {what}, {name}", ratios)
        b.row(f"{what}, {name}: CPU, in % ({ratios[0] * 100 - 100:+.1f} to {ratios[-1] * 100 - 100:+.1f})", statistics.median(ratios) * 100 - 100, "%", None, target, of_peer=False)


def instructions(b, binary, *options, rule=None):
    """A record, produced alone in its request and fetched in answers of 1 kB: the difference of a long and a short run."""
    few, many, kc = b.size(1000, 100), b.size(6000, 600), measure.kc()
    out = {}
    with tempfile.TemporaryDirectory() as folder:
        for n in (few, many):
            counts = f"{folder}/{n}"
            server = One(binary, *options, under=["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={counts}"])
            topic = measure.fresh_topic(server, "cost")
            server.rules(*([rule] if rule else []))
            measure.program([kc, "bench", "produce", "-b", server.boot, "-t", topic, "--size", 100, "--count", n, "--json", *SMALL])
            measure.program([kc, "bench", "consume", "-b", server.boot, "-t", topic, "--count", n, "--json", "--set", "max.partition.fetch.bytes=1000"])
            server.stop()
            out[n] = next(int(line.split()[1]) for line in open(counts) if line.startswith("totals:"))
    return (out[many] - out[few]) / (many - few)


def counted(b, before, folder):
    cache.apt("/usr/bin/valgrind", "valgrind")
    binary, rule = kbroker(), {"topic": "other", "close": True}
    plain = instructions(b, binary)
    b.row("instructions a record, sent and fetched", plain, "", instructions(b, before) if before else None)
    for text, figure in (("a rule of another API", instructions(b, binary, rule={"api": "DeleteRecords", "close": True})), ("a rule of another topic", instructions(b, binary, rule=rule)),
                         ("recording", instructions(b, binary, "--record", folder / "counted"))):
        b.row(f"instructions a record: {text}; without", figure, "", plain)


def costs(b):
    plain, twin, folder = One(kbroker()), One(kbroker()), servers.temp_folder("testkit")
    recording = One(kbroker(), "--record", folder / "frames")
    before = os.environ.get("KBROKER_BEFORE")   # another build, to see what a change costs
    old = One(before) if before else None
    try:
        counted(b, before, folder)
        pairs(b, "the same broker again", (plain, None), (twin, None))
        if old:
            pairs(b, "against KBROKER_BEFORE", (old, None), (plain, None))
        for text, rule in (("a rule of another API", {"api": "DeleteRecords", "close": True}), ("a rule of another topic", {"topic": "other", "close": True})):
            pairs(b, text, (plain, plain.rules), (plain, lambda rule=rule: plain.rules(rule)), 1)
        plain.rules()
        pairs(b, "recording", (plain, None), (recording, lambda: os.truncate(folder / "frames", 0)))
    finally:
        for server in (plain, twin, recording, old):
            if server:
                server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def testkit(b):
    """Clusters as test kits use them."""
    starts(b)
    many(b)
    snapshots(b)
    costs(b)


SECTIONS = {"testkit": testkit}
