"""The cluster's figures: three kbroker nodes against three Apache Kafka nodes and against what the machine itself must spend.

Sections of run.py: cluster_start, cluster_produce, cluster_sync, cluster_failover, cluster_many. Apache Kafka's three nodes take 1 to 2 GB.
"""
import json
import subprocess
import threading
import time

import measure
from judge import cluster as judged   # measure has set its path
from measure import interleave, limit, loadgen, program, servers, wire


class Cluster:
    """What both clusters share: several processes, one address list."""
    name = ""

    def pids(self):
        raise NotImplementedError

    def cpu_ns(self):
        return sum(measure.cpu_ns(p) for p in self.pids())

    def pss_mb(self):
        return sum(measure.pss_kb(p) for p in self.pids()) / 1024

    def create(self, topic, partitions, rf=3, **config):
        sets = [x for k, v in config.items() for x in ("--config", f"{k.replace('_', '.')}={v}")]
        r = subprocess.run([measure.kc(), "topic", "create", topic, "-b", self.boot, "--partitions", str(partitions), "--rf", str(rf), *sets],
                           capture_output=True, text=True, timeout=120)
        if r.returncode:
            raise RuntimeError(f"{self.name}: {r.stderr}")
        return topic

    def delete(self, topic):
        """And gives its files a moment to go. Dirty pages beyond the system's bound make every writer wait for the disk: that would be measured."""
        subprocess.run([measure.kc(), "topic", "delete", topic, "-b", self.boot], capture_output=True, timeout=120, check=True)
        time.sleep(2)

    def describe(self, topic):
        r = subprocess.run([measure.kc(), "topic", "describe", topic, "-b", self.boot, "--json"], capture_output=True, text=True, timeout=60)
        return json.loads(r.stdout)["partitions"] if r.returncode == 0 else None


class KbrokerCluster(Cluster, judged.Cluster):
    name = "kbroker cluster"

    def __init__(self, nodes=3, *args):
        judged.Cluster.__init__(self, nodes)
        self.props, self.args = {"log.segment.delete.delay.ms": 1000}, args   # its own defaults are measured; deleted files go as soon as Kafka's

    def start(self):
        self.launch()
        self.boot = self._ready(120)   # and no more: this is timed
        return self

    def pids(self):
        return [pid for *_, pid in self.status() if pid] + [self.proc.pid]

    def controller(self):
        r = subprocess.run([measure.kc(), "cluster", "-b", self.boot, "--json"], capture_output=True, text=True, timeout=60)
        return json.loads(r.stdout)["controller"]


class KafkaCluster(Cluster):
    """Three combined nodes, as the anchors' peers were run."""
    name = "Apache Kafka"

    def __init__(self, nodes=3):
        ports = servers.free_ports(2 * nodes)
        voters = ",".join(f"{i}@127.0.0.1:{ports[nodes + i]}" for i in range(nodes))
        self.nodes = []
        for i in range(nodes):
            self.nodes.append(servers.Kafka({
                "node.id": i, "controller.quorum.voters": voters,
                "listeners": f"PLAINTEXT://127.0.0.1:{ports[i]},CONTROLLER://127.0.0.1:{ports[nodes + i]}",
                "advertised.listeners": f"PLAINTEXT://127.0.0.1:{ports[i]}", "log.segment.delete.delay.ms": 1000,
                "offsets.topic.replication.factor": 3}))
        self.boot = ",".join(f"127.0.0.1:{p}" for p in ports[:nodes])

    def start(self):
        self.format()
        return self.launch()

    def format(self):
        for n in self.nodes:
            n.format()

    def launch(self):
        """Until all brokers are known to the first."""
        for n in self.nodes:
            n.launch()
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline:
            try:
                with wire.Wire(self.boot.split(",")[0]) as w:
                    if len(w.brokers()) == len(self.nodes):
                        return self
            except (OSError, wire.WireError):
                pass
            time.sleep(0.1)
        raise RuntimeError(f"Apache Kafka's nodes do not serve:\n{self.nodes[0].log_tail()}")

    def pids(self):
        return [n.pid() for n in self.nodes]

    def stop(self):
        for n in self.nodes:
            n.kill9()


def with_cluster(c, args):
    before = c.cpu_ns()
    d = program(args)
    d["broker_ns_per_record"] = (c.cpu_ns() - before) / max(d["records"], 1)
    return d


_names = iter(range(1, 10 ** 9))


def fresh(c, name, partitions, **config):
    return c.create(f"{name}-{next(_names)}", partitions, **config)


# ---------------------------------------------------------------- sections

def cluster_start(b):
    """Three nodes from process start to the first record acknowledged by all replicas; then what they cost when idle."""
    ms = []
    for i in range(max(b.rounds, 3)):
        c = KbrokerCluster()
        begin = time.monotonic()
        c.start()
        c.create("first", 1)
        batch = wire.batch([b"x" * 1024])
        leader = c.describe("first")[0]["leader"]
        with wire.Wire(c.boot.split(",")[leader]) as w:
            w.produce("first", batch, acks=-1)
        ms.append((time.monotonic() - begin) * 1000)
        if i == 0:
            time.sleep(3)
            cpu, t0 = c.cpu_ns(), time.monotonic()
            time.sleep(b.size(20, 3))
            idle_cpu = (c.cpu_ns() - cpu) / 1e9 / (time.monotonic() - t0) * 100
            b.row("idle Pss of all three and their parent", c.pss_mb(), "MB", None, 40, of_peer=False)
            b.row("idle CPU of all three, of a core", idle_cpu, "%", None, 1, of_peer=False)
        c.stop()
    b.keep("start_ms", ms)
    b.row("start to first acks=all record, RF 3", sorted(ms)[len(ms) // 2], "ms", None, 400, of_peer=False)


def cluster_produce(b):
    """RF 3, acks=-1, 1 kB: the same librdkafka against both, and the floor: three receivers that write, two senders that pass on."""
    own, kafka, n = KbrokerCluster().start(), KafkaCluster().start(), b.size(400_000, 20_000)
    for c in (own, kafka):   # hot with hot
        t = fresh(c, "heat", 12)
        program([loadgen(), "produce", "-b", c.boot, "-t", t, "-s", "1024", "-n", b.size(1_500_000, 20_000), "-a", "-1", "-T", "300"])
        c.delete(t)
    for partitions in (1, 12):
        def run(c):
            topic = fresh(c, "rp", partitions)
            d = with_cluster(c, [loadgen(), "produce", "-b", c.boot, "-t", topic, "-s", "1024", "-n", n, "-a", "-1", "-T", "120"])
            c.delete(topic)
            return d
        r = b.keep(f"p{partitions}", interleave(b.rounds, own=lambda: run(own), kafka=lambda: run(kafka), limit=lambda: program(
            [limit(), "stream", "all", b.size(400, 20), servers.temp_folder("limit") / "f"])))
        floor = 3 * r["limit"]["receiver_cpu_ns_per_kb"] + 2 * r["limit"]["sender_cpu_ns_per_kb"]
        b.row(f"{partitions} partitions: records a second", r["own"]["records_per_s"], "rec/s", r["kafka"]["records_per_s"], 3, at_least=True)
        b.row(f"{partitions} partitions: brokers' CPU a record", r["own"]["broker_ns_per_record"] / 1000, "us", r["kafka"]["broker_ns_per_record"] / 1000, 0.25)
        b.row(f"{partitions} partitions: brokers' CPU, of the raw floor", r["own"]["broker_ns_per_record"] / 1000, "us", floor / 1000, 1.6)
    kafka.stop()
    own.stop()


def cluster_sync(b):
    """One record in flight, acks=-1, RF 3, against the raw ping-pong."""
    own, n = KbrokerCluster().start(), b.size(10_000, 1_000)
    t = fresh(own, "sy", 1)
    r = b.keep("sync", interleave(b.rounds, limit=lambda: program([limit(), "pingpong", n, 1024, 64]), own=lambda: program(
        [measure.kc(), "bench", "latency", "-b", own.boot, "-t", t, "--size", 1024, "--count", n, "--acks", "-1", "--set", "linger.ms=0", "--json"])))
    b.row("p50, of the ping-pong", r["own"]["p50_us"], "us", r["limit"]["p50_us"], 4)
    b.row("p99, of the ping-pong", r["own"]["p99_us"], "us", r["limit"]["p99_us"])
    own.stop()


class Beat(threading.Thread):
    """Raw produces with acks=-1, one after the other, to whoever leads; the longest time without an answer that says stored."""

    def __init__(self, c, topic):
        super().__init__(daemon=True)
        self.c, self.topic, self.over, self.longest, self.last = c, topic, False, 0.0, None
        self.count = 0

    def run(self):
        batch, addresses, at = wire.batch([b"x" * 100]), self.c.boot.split(","), 0
        while not self.over:
            try:
                with wire.Wire(addresses[at], timeout=3.0) as w:
                    while not self.over:
                        w.produce(self.topic, batch, acks=-1)
                        now = time.monotonic()
                        if self.last:
                            self.longest = max(self.longest, now - self.last)
                        self.last = now
                        self.count += 1
            except (OSError, wire.WireError):
                at = (at + 1) % len(addresses)
                time.sleep(0.002)


def gap(c, topic, act):
    beat = Beat(c, topic)
    beat.start()
    deadline = time.monotonic() + 10
    while beat.count < 50 and time.monotonic() < deadline:
        time.sleep(0.05)
    if beat.count < 50:
        raise RuntimeError(f"{topic}: {beat.count} records acknowledged within 10 s")
    time.sleep(0.5)
    beat.longest = 0.0
    act()
    time.sleep(5)
    still = time.monotonic() - beat.last   # a gap that has not ended is one, too
    beat.over = True
    beat.join(20)
    return max(beat.longest, still) * 1000


def settled(c, topic, leader):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        p = (c.describe(topic) or [None])[0]
        if p and len(p["isr"]) == 3 and p["leader"] == leader:
            return
        time.sleep(0.1)
    raise RuntimeError(f"{topic} did not settle: {p}")


def cluster_failover(b):
    """A partition's leader, and then the active controller, killed or stopped under load: how long no record is acknowledged."""
    ms = {"leader killed": [], "controller that leads killed": [], "leader stopped": []}
    for _ in range(max(b.rounds, 3)):
        for what in ms:
            c = KbrokerCluster(3, "--controllers", "3") if what != "controller that leads killed" else KbrokerCluster(3)
            c.start()
            c.create("t", 1, min_insync_replicas=2)
            leader = c.describe("t")[0]["leader"]
            if what == "controller that leads killed":
                leader = c.controller()
                subprocess.run([measure.kc(), "topic", "create", "u", "-b", c.boot, "--replicas", ":".join(str(x) for x in [leader, *[i for i in range(3) if i != leader]]),
                                "--config", "min.insync.replicas=2"], check=True, capture_output=True, timeout=60)
            topic = "u" if what == "controller that leads killed" else "t"
            settled(c, topic, leader)
            ms[what].append(gap(c, topic, lambda: c.command("cluster", "stop-node" if "stopped" in what else "kill-node", leader)))
            c.stop()
    b.keep("gaps_ms", ms)
    for what, bound in (("leader killed", 1000), ("controller that leads killed", 1500), ("leader stopped", 100)):
        b.row(f"{what}: no record acknowledged for", sorted(ms[what])[len(ms[what]) // 2], "ms", None, bound, of_peer=False)


def cluster_many(b):
    """1,000 partitions on three nodes: made, and led again after a node was killed."""
    c, n = KbrokerCluster().start(), b.size(1000, 100)
    begin = time.monotonic()
    c.create("many", n)
    b.row(f"{n} partitions, RF 3: created", time.monotonic() - begin, "s", None, 3, of_peer=False)
    victim = (c.controller() + 1) % 3
    led = [p["partition"] for p in c.describe("many") if p["leader"] == victim]
    begin = time.monotonic()
    c.kill_node(victim)
    while time.monotonic() < begin + 60:
        p = c.describe("many")
        if p and all(x["leader"] not in (victim, -1) for x in p):
            break
    b.row(f"{len(led)} led by a killed node: all led again after", time.monotonic() - begin, "s", None, 3, of_peer=False)
    c.stop()


SECTIONS = {f.__name__: f for f in (cluster_start, cluster_produce, cluster_sync, cluster_failover, cluster_many)}
