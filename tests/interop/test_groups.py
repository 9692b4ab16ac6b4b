#!/usr/bin/env python3
"""Outside judges on the group coordinator of `kbroker cluster --nodes 3`: one group of libkclient, kcat, Apache Kafka's console consumer,
kafka-python, confluent-kafka, franz-go and kafkajs, whose members join, leave and are killed while brokers are; kafka-consumer-groups, and kc group beside it (on Apache
Kafka too); libkclient's members among Java's and kafka-python's on Apache Kafka, by each assignor, static ones too; kafka-dump-log on
__consumer_offsets.

    test_groups.py [--quick] [--seed S]
"""
import argparse
import collections
import random
import re
import signal
import subprocess
import threading
import time

from judge import cache, cluster, groups, segments, servers, tally, tools

PARTITIONS = 12
PROPS = {"min.insync.replicas": 2, "offsets.topic.num.partitions": 5, "log.segment.bytes": 1 << 20}


class Member:
    """A consumer of the group in a process of its own; what it was given goes into seen: {(partition, offset): (value, times)}."""

    def __init__(self, bench, kind, java_assignor="RangeAssignor"):
        self.bench, self.kind, self.java_assignor = bench, kind, java_assignor
        self.last = {}  # partition: offset last printed
        self.proc = servers.spawn(self.command(kind), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def command(self, kind):
        b = self.bench
        if kind.startswith("libkclient"):  # libkclient[:STRATEGY[:INSTANCE]]
            _, strategy, instance = (kind.split(":") + ["", ""])[:3]
            own = [f"group.instance.id={instance}"] if instance else []
            own += [f"partition.assignment.strategy={strategy}"] if strategy else []
            own += ["session.timeout.ms=6000", "heartbeat.interval.ms=1500", "auto.commit.interval.ms=500"]
            return [cache.build_tree() / "bin" / "kc", "consume", "-b", b.c.boot, "-G", b.group, b.topic, "-o", "beginning", "-q", "-f", "%p %o %s\n",
                    *[x for s in own for x in ("--set", s)]]
        if kind == "kcat":
            return [cache.kcat(), "-b", b.c.boot, "-G", b.group, b.topic, "-u", "-q", "-X", "auto.offset.reset=earliest", "-X", "session.timeout.ms=6000",
                    "-X", "auto.commit.interval.ms=500", "-X", "partition.assignment.strategy=range", "-f", "%p %o %s\\n"]
        if kind == "java":
            return [*tools.jvm("128m"), tools.CLASSES["kafka-console-consumer"], "--bootstrap-server", b.c.boot, "--topic", b.topic, "--group", b.group,
                    "--from-beginning", "--formatter-property", "print.partition=true", "--formatter-property", "print.offset=true",
                    "--formatter-property", "key.separator= ", "--command-property", "session.timeout.ms=6000",
                    "--command-property", "auto.commit.interval.ms=500",
                    "--command-property", f"partition.assignment.strategy=org.apache.kafka.clients.consumer.{self.java_assignor}"]
        if kind == "franz-go":
            return [cache.franz(), "member", b.c.boot, b.group, b.topic]
        if kind == "kafkajs":
            return ["node", cache.kafkajs() / "member.js", b.c.boot, b.group, b.topic]
        return [cache.venv(), cache.HERE / "python" / "member.py", kind, b.c.boot, b.group, b.topic]

    def read(self):
        for line in self.proc.stdout:
            m = re.match(r"(?:Partition:)?(\d+)\s+(?:Offset:)?(\d+)\s+(\S+)$", line.strip())
            if m:
                self.bench.seen[int(m[1]), int(m[2])].append(m[3])
                self.last[int(m[1])] = int(m[2])

    def end(self, sig=signal.SIGTERM):
        self.proc.send_signal(sig)
        self.proc.wait(60)
        servers.forget(self.proc)
        self.thread.join(10)
        if self.kind == "kcat" and sig == signal.SIGKILL:  # it commits from a thread of its own what it is just about to print
            self.bench.unprinted |= {(p, at + 1) for p, at in self.last.items()}


class Bench:
    def __init__(self, c):
        self.c, self.box = c, tools.Toolbox()
        self.topic, self.group, self.n = "shared", "mixed", 0
        self.seen = collections.defaultdict(list)
        self.unprinted = set()  # (partition, offset) that a killed member may have committed and not printed

    def groups(self, *args, **kw):
        return self.box("kafka-consumer-groups", "--bootstrap-server", self.c.boot, *args, **kw)

    def rows(self, *args):
        """What --describe says: {(topic, partition): (current, end, consumer id)}."""
        said = self.groups("--describe", *args)
        found = re.findall(r"^\S+\s+(\S+)\s+(\d+)\s+(\d+|-)\s+(\d+|-)\s+(?:\d+|-)\s+(\S+)", said, re.M)
        return {(t, int(p)): (-1 if at == "-" else int(at), int(end), who) for t, p, at, end, who in found}

    def produce(self, count):
        lines = "".join(f"k{i}:v{i}\n" for i in range(self.n, self.n + count))
        tools.kcat("-P", "-b", self.c.boot, "-t", self.topic, "-K", ":", "-X", "acks=all", "-X", "enable.idempotence=true", stdin=lines.encode(), timeout=120)
        self.n += count

    def missing(self):
        have = {v for values in self.seen.values() for v in values}
        lost = [f"v{i}" for i in range(self.n) if f"v{i}" not in have]
        ends = collections.defaultdict(int)
        for p, at in list(self.seen):
            ends[p] = max(ends[p], at)
        gaps = {(p, at) for p, end in ends.items() for at in range(end)} - self.seen.keys()
        return [] if len(lost) == len(gaps) and gaps <= self.unprinted else lost

    def until_all_are_read(self, wait=90):
        end = time.monotonic() + wait
        while time.monotonic() < end and self.missing():
            time.sleep(0.2)
        lost = self.missing()
        return [f"{len(lost)} of {self.n} were given to nobody: {lost[:5]}", self.c.log_tail()] if lost else []

    def contradictions(self):
        return [f"{at} was {sorted(set(v))}" for at, v in self.seen.items() if len(set(v)) > 1][:5]

    def until_shared(self, members, wait=60):
        """Every partition has an owner, every member has a part, nothing is left to do."""
        end, seen = time.monotonic() + wait, None
        while time.monotonic() < end:
            seen = self.rows("--group", self.group)
            owners = {who for _, _, who in seen.values()}
            if len(seen) == PARTITIONS and "-" not in owners and len(owners) == members and all(at == e for at, e, _ in seen.values()):
                return []
            time.sleep(0.5)
        return [f"not shared by {members} with nothing left within {wait} s: {seen}", self.c.log_tail()]


KINDS = ["libkclient", "kcat", "java", "kafka-python", "confluent", "franz-go", "kafkajs"]


def life_and_death(t, b, rng, quick):
    """Members come and go, brokers die: every record reaches the group."""
    members = [Member(b, kind) for kind in KINDS]
    b.produce(600)
    t.check(f"{len(KINDS)} kinds of members read all", b.until_all_are_read())
    t.check(f"{len(KINDS)} kinds of members share {PARTITIONS} partitions", b.until_shared(len(KINDS)))
    for step in range(2 if quick else 4):
        node = rng.randrange(3)
        b.c.kill_node(node)
        b.produce(300)
        victim = members.pop(rng.randrange(len(members)))
        victim.end(rng.choice([signal.SIGKILL, signal.SIGTERM]))
        b.produce(300)
        b.c.start_node(node)
        members.append(Member(b, victim.kind))
        b.produce(300)
        t.check(f"round {step}: node {node} and a member ({victim.kind}) were killed", b.until_all_are_read())
        b.c.until_in_sync(b.topic)
    t.check("all share, and nothing is left", b.until_shared(len(KINDS)))
    t.check("one offset, one value", b.contradictions())
    for m in members:
        m.end()
    again = collections.Counter(len(v) for v in b.seen.values())
    t.note(f"{b.n} records, given {sum(k * n for k, n in again.items())} times")
    before = sum(len(v) for v in b.seen.values())
    m = Member(b, "kcat")
    b.produce(60)
    t.check("a new member goes on where the group was", b.until_all_are_read())
    m.end()
    extra = sum(len(v) for v in b.seen.values()) - before
    t.check("and reads nothing twice", [] if extra == 60 else f"{extra} records for 60 new ones")


def tools_of_groups(b):
    bad = []
    for what, want, args in [("--list", b.group, ["--list"]), ("state", "Empty", ["--describe", "--group", b.group, "--state"]),
                             ("all groups", b.topic, ["--describe", "--all-groups"])]:
        said = b.groups(*args)
        if want not in said:
            bad.append(f"{what}: {said[-300:]}")
    topic = ["--group", b.group, "--topic", b.topic]
    for name, args, want in [("to-earliest", ["--to-earliest"], lambda end: 0), ("to-latest", ["--to-latest"], lambda end: end),
                             ("shift-by", ["--shift-by", "-5"], lambda end: end - 5), ("to-offset", ["--to-offset", "7"], lambda end: 7),
                             ("by-duration", ["--by-duration", "PT2H"], lambda end: 0)]:
        b.groups("--reset-offsets", *topic, *args, "--execute")
        wrong = {k: v for k, v in b.rows("--group", b.group).items() if v[0] != want(v[1])}
        if wrong:
            bad.append(f"{name}: {wrong}")
    b.groups("--delete-offsets", *topic)
    if b.rows("--group", b.group):
        bad.append(f"after --delete-offsets: {b.rows('--group', b.group)}")
    b.groups("--delete", "--group", b.group)
    if b.group in b.groups("--list").split():
        bad.append("it is still there after --delete")
    said = b.groups("--describe", "--group", "nobody", check=False)
    if "GroupIdNotFound" not in said and "does not exist" not in said:
        bad.append(f"a group that is not there: {said[-300:]}")
    return bad


def a_living_group_is_not_deleted(b):
    m = Member(b, "kcat")
    end = time.monotonic() + 30
    while not b.rows("--group", b.group) and time.monotonic() < end:
        time.sleep(0.2)
    said = b.groups("--delete", "--group", b.group, check=False)
    m.end()
    return [] if "not empty" in said else said[-400:]


def offsets_decoded(b):
    """Every record of __consumer_offsets, on every node, in the words of Apache Kafka's decoder."""
    bad, kinds = [], collections.Counter()
    for node in b.c.boots:
        logs = [f for d in tools.partition_folders(b.c.node_data(node)) if d.name.startswith("__consumer_offsets-") for f in d.glob("*.log")]
        text = tools.dump(logs, "--offsets-decoder", call=b.box)
        bad += tools.complaints(text)[:3]
        kinds.update(re.findall(r'key: \{"type":"(\d)"', text))
        unknown = [line for line in text.splitlines() if line.startswith("| offset:") and "payload:" not in line]
        bad += [x[:200] for x in unknown[:3]]
    if not kinds["1"] or not kinds["2"]:
        bad.append(f"kinds of records: {kinds}")
    return bad


class Plain:
    """A server with what Bench asks of a cluster."""

    def __init__(self, server):
        self.server, self.boot = server, server.boot

    def log_tail(self):
        return self.server.log_tail()


def libkclient_on_apache_kafka(t, kafka):
    """Members of libkclient and others in groups of Apache Kafka, by each assignor; who leads depends on who came first."""
    b = Bench(Plain(kafka))
    for name, java, kinds in [("range", "RangeAssignor", ["libkclient:range", "java", "kafka-python"]),
                              ("roundrobin", "RoundRobinAssignor", ["java", "libkclient:roundrobin", "libkclient:roundrobin"]),
                              ("sticky", "StickyAssignor", ["libkclient:sticky", "java", "libkclient:sticky"]),
                              ("cooperative-sticky", "CooperativeStickyAssignor", ["libkclient:cooperative-sticky", "java", "libkclient:cooperative-sticky"]),
                              ("cooperative-sticky-led-by-java", "CooperativeStickyAssignor", ["java", "libkclient:cooperative-sticky"]),
                              ("default", "RangeAssignor", ["java", "libkclient"])]:
        b.topic, b.group, b.n = f"on-{name}", f"of-{name}", 0
        b.seen.clear()
        b.box("kafka-topics", "--bootstrap-server", kafka.boot, "--create", "--topic", b.topic, "--partitions", PARTITIONS)
        members = [Member(b, kinds[0], java)]
        b.produce(120)
        bad = b.until_all_are_read()
        for kind in kinds[1:]:
            members.append(Member(b, kind, java))
            b.produce(120)
            bad += b.until_all_are_read()
        bad += b.until_shared(len(members))
        members.pop(0).end()
        b.produce(120)
        bad += b.until_all_are_read() + b.until_shared(len(members)) + b.contradictions()
        for m in members:
            m.end()
        t.check(f"Apache Kafka, {name}: {', '.join(kinds)}", bad)


def a_static_member_comes_back(c):
    """Restarted within its session it has its partitions again, and nobody else noticed."""
    b = Bench(c)
    b.topic, b.group = "static", "statics"
    b.box("kafka-topics", "--bootstrap-server", c.boot, "--create", "--topic", b.topic, "--partitions", PARTITIONS)
    members = [Member(b, f"libkclient:range:i{i}") for i in range(2)]
    b.produce(120)
    bad = b.until_all_are_read() + b.until_shared(2)
    before = {at: who for at, (_, _, who) in b.rows("--group", b.group).items()}
    members[0].end()
    members[0] = Member(b, "libkclient:range:i0")
    b.produce(120)
    bad += b.until_all_are_read() + b.until_shared(2)
    after = {at: who for at, (_, _, who) in b.rows("--group", b.group).items()}
    same = [at for at in before if before[at].startswith("i1") and before[at] != after[at]]
    moved = [at for at in before if before[at].startswith("i0") != after[at].startswith("i0")]
    for m in members:
        m.end()
    return bad + [f"{x} changed hands" for x in same + moved]


def on_disk(t, b):
    code = b.c.stop()
    t.check("SIGTERM ends the cluster with exit code 0", [] if code == 0 else f"exit code {code}\n{b.c.log_tail()}")
    t.attempt("kafka-dump-log --offsets-decoder", offsets_decoded, b)
    folders = [d for n in b.c.boots for d in tools.partition_folders(b.c.node_data(n)) if d.name.startswith("__consumer_offsets-")]
    t.attempt(f"kafka-dump-log on {len(folders)} replicas of __consumer_offsets", tools.dump_log_problems, folders, b.box)
    t.attempt("their batches and indexes agree", segments.problems, folders)


def run():
    ap = argparse.ArgumentParser()
    ap.add_argument("--quick", action="store_true")
    ap.add_argument("--seed", type=int, default=int(time.time()))
    a = ap.parse_args()
    t = tally.Tally(f"outside judges on the group coordinator (seed {a.seed})")
    with cluster.Cluster(3, PROPS) as c:
        b = Bench(c)
        b.box("kafka-topics", "--bootstrap-server", c.boot, "--create", "--topic", b.topic, "--partitions", PARTITIONS, "--replication-factor", 3)
        life_and_death(t, b, random.Random(a.seed), a.quick)
        t.note("life and death")
        t.attempt("a static member comes back", a_static_member_comes_back, c)
        t.attempt("a group with a member is not deleted", a_living_group_is_not_deleted, b)
        t.attempt("kafka-consumer-groups lists, resets, deletes", tools_of_groups, b)
        groups.run(t, c.boot, b.box, c.name)
        t.note("tools")
        on_disk(t, b)
        b.box.close()
    with servers.Kafka() as kafka:
        box = tools.Toolbox()
        groups.run(t, kafka.boot, box, kafka.name)
        box.close()
        libkclient_on_apache_kafka(t, kafka)
        t.attempt("Apache Kafka: a static member comes back", a_static_member_comes_back, Plain(kafka))
    return t.close()


if __name__ == "__main__":
    tally.main(run)
