#!/usr/bin/env python3
"""Apache Kafka's kafka-consumer-groups on what libkclient commits for a manual assignment: described, reset, deleted; and what libkclient then
reads of it, and where it begins. On kbroker, or on Apache Kafka. And on a cluster of kbroker whose nodes are killed: an acknowledged commit stays.

    test_commits.py [--quick] [--broker kbroker|kafka] [--seed S]
"""
import argparse
import json
import random
import re
import subprocess
import time

from judge import cluster, peers, servers, tally, tools

PARTITIONS, EACH = 3, 40
TOPIC, GROUP = "committed", "by-hand"


class Bench:
    def __init__(self, boot, folder):
        self.boot, self.folder, self.box = boot, folder, tools.Toolbox()

    def groups(self, *args, **kw):
        return self.box("kafka-consumer-groups", "--bootstrap-server", self.boot, *args, **kw)

    def described(self):
        """{partition: (current, end, consumer id)}, as the tool says."""
        said = self.groups("--describe", "--group", GROUP, check=False)
        rows = re.findall(rf"^{GROUP}\s+{TOPIC}\s+(\d+)\s+(\d+|-)\s+(\d+)\s+(?:\d+|-)\s+(\S+)", said, re.M)
        return {int(p): (-1 if at == "-" else int(at), int(end), who) for p, at, end, who in rows}

    def job(self, maker, **job):
        p = maker(self.boot)
        conf = {"group.id": GROUP, "auto.commit.interval.ms": "50", **job.pop("conf", {})}
        try:
            p.job(out=str(self.folder / "out"), conf=conf, **job)
        finally:
            p.close()
        return [json.loads(line) for line in open(self.folder / "out", encoding="utf-8", errors="replace")]

    def commit(self, offsets=None, maker=peers.Kclient):
        """Commits {partition: (offset, metadata)}; all that is committed then, likewise."""
        got = self.job(maker, op="commit", topic=TOPIC, partitions=PARTITIONS, offsets={str(p): list(v) for p, v in (offsets or {}).items()})
        return {x["partition"]: (x["offset"], x["metadata"]) for x in got}

    def consume(self, origin, maker=peers.Kclient):
        """How many records of each partition come."""
        counts = dict.fromkeys(range(PARTITIONS), 0)
        for r in self.job(maker, op="consume", topics={TOPIC: PARTITIONS}, **{"from": origin}):
            counts[r["partition"]] += 1
        return list(counts.values())


def differs(what, seen, wanted):
    return [] if seen == wanted else [f"{what}: {seen}, not {wanted}"]


def filled(b):
    tools.kafka("kafka-topics", "--bootstrap-server", b.boot, "--create", "--topic", TOPIC, "--partitions", str(PARTITIONS), "--replication-factor", "1")
    for p in range(PARTITIONS):
        tools.kcat("-P", "-b", b.boot, "-t", TOPIC, "-p", str(p), stdin="".join(f"{p}/{i}\n" for i in range(EACH)).encode())
    return []


def automatic(b, maker):
    bad = differs("records", b.consume("beginning", maker), [EACH] * PARTITIONS)
    bad += differs("described", b.described(), {p: (EACH, EACH, "-") for p in range(PARTITIONS)})
    return bad + differs("records after that", b.consume("committed", maker), [0] * PARTITIONS)


def by_hand(b, maker):
    want = {0: (5, "a note"), 1: (6, ""), 2: (EACH, "")}
    bad = differs("committed", b.commit({0: want[0], 1: want[1]}, maker), want)
    return bad + differs("described", {p: x[0] for p, x in b.described().items()}, {p: x[0] for p, x in want.items()})


def reset(b):
    b.groups("--reset-offsets", "--group", GROUP, "--topic", TOPIC, "--to-offset", "7", "--execute")
    bad = differs("committed after a reset", {p: x[0] for p, x in b.commit().items()}, {p: 7 for p in range(PARTITIONS)})
    bad += differs("records from there", b.consume("committed"), [EACH - 7] * PARTITIONS)
    return bad + differs("described", {p: x[0] for p, x in b.described().items()}, {p: EACH for p in range(PARTITIONS)})


def deleted(b):
    b.groups("--delete-offsets", "--group", GROUP, "--topic", TOPIC)
    return differs("committed after a deletion", b.commit(), {p: (-1, "") for p in range(PARTITIONS)})


def a_group_with_members(b):
    """One that has members takes no offsets of anybody else, and says so."""
    member = servers.spawn([*tools.jvm("128m"), tools.CLASSES["kafka-console-consumer"], "--bootstrap-server", b.boot, "--topic", TOPIC, "--group", GROUP],
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end, who = time.monotonic() + 60, {"-"}
    while who & {"-"} or not who:
        if time.monotonic() > end:
            return "the member of the group never had its partitions"
        who = {x[2] for x in b.described().values()}
    try:
        b.commit({0: (1, "")})
        bad = ["a commit beside the members went through"]
    except peers.PeerError as e:
        bad = [] if "UNKNOWN_MEMBER_ID" in str(e) else [str(e)[-300:]]
    member.kill()
    member.wait(30)
    servers.forget(member)
    return bad


def coordinators_die(c, folder, rng, rounds):
    """Commits while one node after the other is killed, the coordinator among them; each that was acknowledged is there from then on."""
    b, bad, acked = Bench(c.boot, folder), [], -1
    tools.kafka("kafka-topics", "--bootstrap-server", c.boot, "--create", "--topic", TOPIC, "--partitions", str(PARTITIONS), "--replication-factor", "3")
    for i in range(rounds):
        node = (i + rng.randrange(2)) % 3
        c.kill_node(node)
        got = b.commit({0: (i, f"round {i}")})
        acked = i
        bad += differs(f"round {i}, node {node} killed: committed", got[0], (acked, f"round {acked}"))
        c.start_node(node)
        c.until_in_sync(TOPIC)
        bad += differs(f"round {i}, node {node} is back: committed", b.commit()[0], (acked, f"round {acked}"))
    return bad


def run():
    ap = argparse.ArgumentParser()
    ap.add_argument("--quick", action="store_true")
    ap.add_argument("--broker", choices=("kbroker", "kafka"), default="kbroker")
    ap.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    a = ap.parse_args()
    t = tally.Tally(f"offsets committed by libkclient on {a.broker}, and Apache Kafka's tool")
    folder = servers.temp_folder("commits")
    with servers.server(a.broker, None if a.broker == "kbroker" else {"offsets.topic.replication.factor": 1}) as s:
        b = Bench(s.boot, folder)
        t.attempt("records", filled, b)
        for maker in (peers.Kclient,) if a.quick else (peers.Kclient, peers.KclientOwnLoop):
            t.attempt(f"{maker.name}: automatic commits", automatic, b, maker)
            t.attempt(f"{maker.name}: commits with metadata", by_hand, b, maker)
        t.attempt("--reset-offsets", reset, b)
        t.attempt("--delete-offsets", deleted, b)
        t.attempt("a group with members", a_group_with_members, b)
    if a.broker == "kbroker":
        with cluster.Cluster(3, {"min.insync.replicas": 2, "offsets.topic.num.partitions": 3}) as c:
            t.attempt(f"three nodes, killed in turn (--seed {a.seed})", coordinators_die, c, folder, random.Random(a.seed), 3 if a.quick else 9)
    return t.close()


if __name__ == "__main__":
    tally.main(run)
