#!/usr/bin/env python3
"""Outside judges on `kbroker cluster --nodes 3`: Apache Kafka's tools ask, move and elect; its and librdkafka's producers keep every
acknowledgement while leaders are killed; kcat, kafka-python and franz-go look at a cluster with a dead node.

    test_cluster.py [--quick] [--rounds 3] [--seed S] [NAME...]

NAME: tools, dead, controller, moves, unclean, unregister, rolling; without any, all of them. Only when it is named: chaos, the same as rolling
with any node killed, stopped or paused, also two at once, at moments that the seed decides, whoever is in sync. After them the cluster is
stopped, and Apache Kafka's decoder and a comparison byte by byte judge what each node has on disk.
"""
import argparse
import json
import random
import re
import time

import kill9
from judge import cluster, peers, records, segments, servers, tally, tools, wire

PROPS = {"min.insync.replicas": 2, "log.segment.bytes": 4 << 20, "log.index.interval.bytes": 4096,
         "metadata.log.max.record.bytes.between.snapshots": 3000}
RATE = 300   # records a second of each producer


class Bench:
    """The cluster, the JVM that runs the tools, a scratch folder."""

    def __init__(self, c):
        self.c, self.box, self.folder = c, tools.Toolbox(), servers.temp_folder("cluster")

    def tool(self, tool, *args, **kw):
        return self.box(tool, "--bootstrap-server", self.c.boot, *args, **kw)

    def describe(self, *args):
        """{(topic, partition): (leader, replicas, isr)} as kafka-topics says."""
        said = self.tool("kafka-topics", "--describe", *args)
        rows = re.findall(r"Topic: (\S+)\s+Partition: (\d+)\s+Leader: (\S+)\s+Replicas: (\S*)\s+Isr: (\S*)", said)
        numbers = lambda text: [int(x) for x in text.split(",") if x]
        return {(t, int(p)): (-1 if leader == "none" else int(leader), numbers(r), numbers(i)) for t, p, leader, r, i in rows}

    def quorum(self):
        said = self.box("kafka-metadata-quorum", "--bootstrap-server", self.c.boot, "describe", "--status")
        return dict(re.findall(r"^(\w+):\s+(.*?)\s*$", said, re.M)), said

    def replication(self):
        """{node: (end, lag, status)}."""
        said = self.box("kafka-metadata-quorum", "--bootstrap-server", self.c.boot, "describe", "--replication")
        return {int(n): (int(end), int(lag), status) for n, end, lag, status in re.findall(r"^(\d+)\s+\S+\s+(\d+)\s+(\d+)\s+-?\d+\s+-?\d+\s+(\w+)", said, re.M)}

    def nodes(self):
        """What kafka-cluster knows of registered brokers: {id: state}."""
        said = self.box("kafka-cluster", "list-endpoints", "--bootstrap-server", self.c.boot, "--include-fenced-brokers")
        return {int(n): state for n, state in re.findall(r"^(\d+)\s+\S+\s+\d+\s+\S+\s+(\w+)", said, re.M)}


class Load(kill9.Load):
    """A producer with acks=all, idempotent, on three partitions of three replicas."""

    def __init__(self, peer, folder, kind):
        super().__init__(peer, f"{kind}.{peer.name}", -1, True, folder)

    def start(self, boot):
        self.peer.start(dict(op="load", topic=self.topic, partitions=kill9.PARTITIONS, acks=-1, idempotence=True, rate=RATE, log=str(self.log),
                             conf={"delivery.timeout.ms": "90000"}))


# ---- Apache Kafka's tools ----

def create_and_describe(b):
    b.tool("kafka-topics", "--create", "--topic", "adm", "--partitions", "6", "--replication-factor", "3", "--config", "segment.bytes=2097152")
    bad, seen = [], b.describe("--topic", "adm")
    if sorted(p for _, p in seen) != list(range(6)):
        bad.append(f"partitions {seen}")
    for (_, p), (leader, replicas, isr) in seen.items():
        if sorted(replicas) != [0, 1, 2] or sorted(isr) != [0, 1, 2] or leader != replicas[0]:
            bad.append(f"partition {p}: leader {leader}, replicas {replicas}, isr {isr}")
    leaders = [leader for leader, _, _ in seen.values()]
    if any(leaders.count(n) != 2 for n in range(3)):
        bad.append(f"leaders are not spread: {leaders}")
    said = b.tool("kafka-topics", "--create", "--topic", "rf4", "--replication-factor", "4", check=False)
    return bad if re.search("replication factor 4 .* 3 brokers", said) else bad + [f"replication factor 4 on three brokers says {said[:300]!r}"]


def create_assigned(b):
    b.tool("kafka-topics", "--create", "--topic", "placed", "--replica-assignment", "2:0,1:2")
    seen = b.describe("--topic", "placed")
    return [] if seen == {("placed", 0): (2, [2, 0], [2, 0]), ("placed", 1): (1, [1, 2], [1, 2])} else [f"placed: {seen}"]


def quorum_of_three(b):
    status, said = b.quorum()
    bad, voters = [], [v["id"] for v in json.loads(status["CurrentVoters"])]
    if voters != [0, 1, 2] or int(status["LeaderId"]) not in voters or int(status["LeaderEpoch"]) < 1 or int(status["HighWatermark"]) < 1:
        bad.append(said)
    b.c.until("three voters with the same end", lambda: (lambda r: True if sorted(r) == [0, 1, 2] and len({x[0] for x in r.values()}) == 1 else r)(b.replication()))
    rows = b.replication()
    if [n for n, r in rows.items() if r[2] == "Leader"] != [int(status["LeaderId"])] or sum(r[2] == "Follower" for r in rows.values()) != 2:
        bad.append(f"replication: {rows}")
    said = b.box("kafka-metadata-quorum", "--bootstrap-controller", b.c.boot, "describe", "--status")
    return bad if f"LeaderId:               {status['LeaderId']}\n" in said else bad + [f"--bootstrap-controller: {said}"]


def configs(b):
    topic = ("--entity-type", "topics", "--entity-name", "adm")
    every = ("--entity-type", "brokers", "--entity-default")
    b.tool("kafka-configs", "--alter", *topic, "--add-config", "retention.bytes=104857600")
    b.tool("kafka-configs", "--alter", *every, "--add-config", "log.retention.ms=7200000")
    b.tool("kafka-configs", "--alter", "--entity-type", "brokers", "--entity-name", "1", "--add-config", "log.cleaner.threads=2")
    bad = []
    said = b.tool("kafka-configs", "--describe", *topic)
    bad += [f"topic lacks {w}: {said!r}" for w in ("retention.bytes=104857600", "segment.bytes=2097152") if w not in said]
    said = b.tool("kafka-configs", "--describe", *every)
    if "log.retention.ms=7200000" not in said:
        bad.append(f"the brokers' default: {said!r}")
    for node, address in b.c.boots.items():   # each node knows: a topic's value comes from the default of all brokers
        def known(address=address):
            said = b.box("kafka-configs", "--bootstrap-server", address, "--describe", "--all", *topic)
            return "DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=7200000" in said or said[-400:]
        b.c.until(f"node {node} knows the default", known, 20)
    said = b.tool("kafka-configs", "--describe", "--entity-type", "brokers", "--entity-name", "1")
    if "log.cleaner.threads=2" not in said:
        bad.append(f"broker 1: {said!r}")
    b.tool("kafka-configs", "--alter", *every, "--delete-config", "log.retention.ms")
    said = b.tool("kafka-configs", "--describe", *every)
    return bad + ([f"after --delete-config: {said!r}"] if "7200000" in said else [])


def log_dirs(b):
    said = b.tool("kafka-log-dirs", "--describe", "--topic-list", "adm")
    d = json.loads(next(line for line in said.splitlines() if line.startswith("{")))
    have = {x["broker"]: sorted(p["partition"] for ld in x["logDirs"] for p in ld["partitions"]) for x in d["brokers"]}
    bad = [] if have == {n: [f"adm-{p}" for p in range(6)] for n in range(3)} else [f"partitions {have}"]
    return bad + [f"broker {x['broker']}: {ld['error']}" for x in d["brokers"] for ld in x["logDirs"] if ld["error"]]


def cluster_id(b):
    said = {b.box("kafka-cluster", "cluster-id", "--bootstrap-server", a) for a in b.c.boots.values()}
    bad = [] if len(said) == 1 and re.search(r"Cluster ID: \S{22}", next(iter(said))) else [f"says {said}"]
    return bad if b.nodes() == dict.fromkeys(range(3), "unfenced") else bad + [f"list-endpoints: {b.nodes()}"]


def the_tools(t, b):
    t.attempt("kafka-topics: replication factor 3", create_and_describe, b)
    t.attempt("kafka-topics: --replica-assignment", create_assigned, b)
    t.attempt("kafka-metadata-quorum", quorum_of_three, b)
    t.attempt("kafka-configs: topic, broker, default of all brokers", configs, b)
    t.attempt("kafka-log-dirs", log_dirs, b)
    t.attempt("kafka-cluster", cluster_id, b)


# ---- A dead node ----

DEAD = 1


def after_a_kill(b):
    b.c.kill_node(DEAD)
    b.c.until_states("adm", f"{DEAD} is out", lambda p, leader, r, isr: leader not in (-1, DEAD) and DEAD not in isr)
    bad, seen = [], b.describe("--under-replicated-partitions", "--topic", "adm")
    if sorted(p for _, p in seen) != list(range(6)):
        bad.append(f"under-replicated: {seen}")
    bad += [f"{k}: {v}" for k, v in seen.items() if sorted(v[1]) != [0, 1, 2] or sorted(v[2]) != [0, 2] or v[0] not in (0, 2)]
    if b.describe("--unavailable-partitions"):
        bad.append(f"unavailable: {b.describe('--unavailable-partitions')}")
    at_min = b.describe("--at-min-isr-partitions", "--topic", "adm")
    if sorted(at_min) != sorted(seen):
        bad.append(f"at min.insync.replicas: {at_min}")
    if set(b.describe("--under-min-isr-partitions")) != {("placed", 1)}:
        bad.append(f"under min.insync.replicas: {b.describe('--under-min-isr-partitions')}")
    if b.nodes() != {0: "unfenced", 1: "fenced", 2: "unfenced"}:
        bad.append(f"list-endpoints: {b.nodes()}")
    status, said = b.quorum()   # its lag in time is -1 to a leader that never heard of it
    return bad if int(status["LeaderId"]) in (0, 2) and int(status["MaxFollowerLagTimeMs"]) != 0 else bad + [said]


def check_metadata(who, said):
    bad = [] if sorted(said["brokers"]) == [0, 2] else [f"{who}: brokers {said['brokers']}"]
    if said["controller"] not in (0, 2):
        bad.append(f"{who}: controller {said['controller']}")
    if len(said["partitions"]) != 6:
        bad.append(f"{who}: {said['partitions']}")
    for p, s in said["partitions"].items():
        if s["leader"] not in (0, 2) or sorted(s["replicas"]) != [0, 1, 2] or sorted(s["isr"]) != [0, 2] or s["error"]:
            bad.append(f"{who}: partition {p}: {s}")
        if s.get("offline", [DEAD]) != [DEAD]:
            bad.append(f"{who}: partition {p}: offline replicas {s['offline']}")
    return bad


def seen_by_kcat(b):
    d = json.loads(tools.kcat("-L", "-J", "-b", b.c.boot, "-t", "adm"))
    partitions = {p["partition"]: {"leader": p["leader"], "replicas": [r["id"] for r in p["replicas"]], "isr": [r["id"] for r in p["isrs"]], "error": p.get("error")}
                  for topic in d["topics"] for p in topic["partitions"]}
    return check_metadata("kcat", {"brokers": [x["id"] for x in d["brokers"]], "controller": d["controllerid"], "partitions": partitions})


def seen_by(b, peer):
    p, out = peer(b.c.boot), b.folder / f"metadata-{peer.name}"
    try:
        p.job(op="metadata", topic="adm", out=str(out))
    finally:
        p.close()
    return check_metadata(peer.name, json.loads(out.read_text()))


def deleted_meanwhile(b):
    """Topics are deleted while a node is dead, and two of them made anew, one without a replica there."""
    for name in ("gone", "moved", "reborn"):
        b.tool("kafka-topics", "--delete", "--topic", name)
    b.tool("kafka-topics", "--create", "--topic", "moved", "--replica-assignment", "0:2")
    b.tool("kafka-topics", "--create", "--topic", "reborn", "--replica-assignment", "0:1:2")
    b.tool("kafka-topics", "--alter", "--topic", "reborn", "--partitions", "2", "--replica-assignment", "0:1:2,2:1:0")
    left = b.tool("kafka-topics", "--list").split()
    return [f"--list: {left}"] if "gone" in left or "reborn" not in left else []


def begins_anew(b):
    """It takes no record of the old topic for one of the new, and says what it leaves alone."""
    b.c.until_in_sync("reborn")
    with wire.Wire(b.c.boots[0]) as w:
        w.produce("reborn", wire.batch([b"new"]), acks=-1)
    stored = lambda: b"".join(f.read_bytes() for f in sorted((b.c.node_data(DEAD) / "reborn-0").glob("*.log")))
    bad = [] if b"new" in stored() and b"old" not in stored() else [f"stored: {stored()!r}"]
    said = (b.c.data / f"node-{DEAD}.log").read_text()
    return bad + [f"the log does not name {x}" for x in ("gone-0", "moved-0") if not re.search(rf"/{x} belongs to no .*left alone", said)]


def preferred(b):
    b.c.start_node(DEAD)
    b.c.until_in_sync("adm")
    b.c.until_in_sync("placed")
    bad = [f"still under-replicated: {x}" for x in b.describe("--under-replicated-partitions").items()]
    moved = {k: v for k, v in b.describe("--topic", "adm").items() if v[0] != v[1][0]}
    if len(moved) != 2 or any(v[1][0] != DEAD for v in moved.values()):
        bad.append(f"led by another than the preferred one: {moved}")
    one = min(p for _, p in moved)
    said = b.tool("kafka-leader-election", "--election-type", "preferred", "--topic", "adm", "--partition", one)
    if "Successfully completed leader election (PREFERRED)" not in said:
        bad.append(f"one partition: {said!r}")
    said = b.tool("kafka-leader-election", "--election-type", "preferred", "--topic", "adm", "--partition", one)
    if "already" not in said and "not needed" not in said:
        bad.append(f"the same once more: {said!r}")
    b.tool("kafka-leader-election", "--election-type", "preferred", "--all-topic-partitions")
    seen = b.describe("--topic", "adm")
    return bad + [f"after the election: {k}: {v}" for k, v in seen.items() if v[0] != v[1][0]]


def a_dead_node(t, b):
    for name in ("gone", "moved", "reborn"):
        b.tool("kafka-topics", "--create", "--topic", name, "--replica-assignment", "0:1:2")
        with wire.Wire(b.c.boots[0]) as w:
            w.produce(name, wire.batch([b"old"]), acks=-1)
    t.attempt("kafka-topics, kafka-metadata-quorum: a node was killed", after_a_kill, b)
    t.attempt("kcat -L: a node is dead", seen_by_kcat, b)
    for peer in (peers.KafkaPython, peers.Franz):
        t.attempt(f"{peer.name}: metadata, a node is dead", seen_by, b, peer)
    t.attempt("kafka-topics --delete, --alter: a node is dead", deleted_meanwhile, b)
    t.attempt("kafka-leader-election preferred", preferred, b)
    t.attempt("a topic made anew while the node was dead begins anew there", begins_anew, b)


# ---- The active controller dies ----

def another_controller(b):
    status, _ = b.quorum()
    dead, epoch = int(status["LeaderId"]), int(status["LeaderEpoch"])
    b.c.kill_node(dead)
    others = [n for n in range(3) if n != dead]
    b.tool("kafka-topics", "--create", "--topic", "after", "--replica-assignment", ":".join(map(str, others)))   # waits for the next controller
    status, said = b.quorum()
    bad = [] if int(status["LeaderId"]) in others and int(status["LeaderEpoch"]) > epoch else [f"{dead} led epoch {epoch} and is dead: {said}"]
    if b.describe("--topic", "after") != {("after", 0): (others[0], others, others)}:
        bad.append(f"describe: {b.describe('--topic', 'after')}")
    b.c.start_node(dead)
    b.c.until_in_sync("adm")
    b.c.until("the dead voter follows", lambda: (lambda r: True if r[dead][1:] == (0, "Follower") else r)(b.replication()))
    return bad


# ---- Partitions that move ----

def plan(path, topic, replicas):
    path.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": p, "replicas": r} for p, r in replicas.items()]}))
    return path


def generate(b):
    b.c.add_node(3)
    b.c.until("broker 3 is registered", lambda: True if b.nodes().get(3) == "unfenced" else b.nodes())
    b.c.until("it follows the quorum", lambda: True if b.replication().get(3, (0, 0, ""))[2] == "Observer" else b.replication())
    what = b.folder / "topics.json"
    what.write_text(json.dumps({"version": 1, "topics": [{"topic": "move.librdkafka-new"}]}))
    said = b.tool("kafka-reassign-partitions", "--generate", "--topics-to-move-json-file", what, "--broker-list", "1,2,3")
    have, proposed = (json.loads(x) for x in re.findall(r"^\{.*\}$", said, re.M))
    bad = [f"current: {p}" for p in have["partitions"] if 3 in p["replicas"]]
    return bad + [f"proposed: {p}" for p in proposed["partitions"] if not set(p["replicas"]) <= {1, 2, 3}]


def move(b, load):
    before = len(load.acked())
    to = {0: [3, 1, 2], 1: [1, 2, 3], 2: [2, 3, 0]}
    how = plan(b.folder / "move.json", load.topic, to)
    said = b.tool("kafka-reassign-partitions", "--execute", "--reassignment-json-file", how, "--throttle", "50000000")
    bad = [] if "Successfully started partition reassignment" in said else [f"--execute says {said!r}"]

    def complete():
        said = b.tool("kafka-reassign-partitions", "--verify", "--reassignment-json-file", how, "--preserve-throttles")
        return True if len(re.findall(r"Reassignment of partition \S+ is completed\.", said)) == 3 else said
    b.c.until("--verify: all completed", complete, 90)
    said = b.tool("kafka-reassign-partitions", "--verify", "--reassignment-json-file", how)
    if "throttle" not in said:
        bad.append(f"--verify says nothing of throttles: {said!r}")
    said = b.tool("kafka-configs", "--describe", "--entity-type", "topics", "--entity-name", load.topic)
    if "throttled.replicas" in said:
        bad.append(f"throttles are left: {said!r}")
    seen = {p: v for (_, p), v in b.describe("--topic", load.topic).items()}
    bad += [f"partition {p}: {v}" for p, v in seen.items() if v[1] != to[p] or sorted(v[2]) != sorted(to[p]) or v[0] not in to[p]]
    b.c.until("the producer goes on", lambda: len(load.acked()) > before + RATE or len(load.acked()))
    b.tool("kafka-leader-election", "--election-type", "preferred", "--topic", load.topic, "--partition", 0)
    leader = b.describe("--topic", load.topic)[load.topic, 0][0]
    return bad if leader == 3 else bad + [f"partition 0 is led by {leader}, not by the new 3"]


def cancel(b):
    before = b.describe("--topic", "placed")["placed", 0]
    for node in (0, 1, 2):
        b.c.fault(node, json.dumps({"api": "Fetch", "client_id": "kbroker-3", "topic": "placed", "stall": True}))
    how = plan(b.folder / "cancel.json", "placed", {0: [3, 0]})
    b.tool("kafka-reassign-partitions", "--execute", "--reassignment-json-file", how)
    said = b.tool("kafka-reassign-partitions", "--list")
    bad = [] if re.search(r"placed-0: replicas: .*adding: 3\b.*removing: 2\b", said) else [f"--list says {said!r}"]
    if "still in progress" not in b.tool("kafka-reassign-partitions", "--verify", "--reassignment-json-file", how):
        bad.append("--verify does not say that it is in progress")
    said = b.tool("kafka-reassign-partitions", "--cancel", "--reassignment-json-file", how)
    if not re.search("Successfully cancelled partition reassignments? for: placed-0", said):
        bad.append(f"--cancel says {said!r}")
    for node in (0, 1, 2):
        b.c.mend(node)
    said = b.tool("kafka-reassign-partitions", "--list")
    if "No partition reassignments found" not in said:
        bad.append(f"--list after it says {said!r}")
    after = b.describe("--topic", "placed")["placed", 0]
    same = after[0] == before[0] and sorted(after[1]) == sorted(before[1]) and sorted(after[2]) == sorted(before[2])
    return bad if same else bad + [f"before {before}, after {after}"]   # the replicas' order is that of the plan, as with Apache Kafka


def moves(t, b):
    b.tool("kafka-topics", "--create", "--topic", "move.librdkafka-new", "--replica-assignment", "0:1:2,1:2:0,2:0:1")
    load = Load(peers.RdkNew(b.c.boot), b.folder, "move")
    load.start(b.c.boot)
    t.attempt("kafka-reassign-partitions --generate: broker 3 is new", generate, b)
    t.attempt("kafka-reassign-partitions --execute, --verify under load", move, b, load)
    t.attempt("kafka-reassign-partitions --list, --cancel", cancel, b)
    t.attempt("librdkafka: nothing lost, doubled or out of order by the moves", finish, b, load)


# ---- Unclean election, unregistering ----

def unclean(b):
    b.tool("kafka-topics", "--create", "--topic", "risky", "--replica-assignment", "0:3", "--config", "min.insync.replicas=1")
    b.c.kill_node(3)
    b.c.until_states("risky", "0 alone in sync", lambda p, leader, r, isr: (leader, isr) == (0, [0]))
    with wire.Wire(b.c.boots[0]) as w:
        w.produce("risky", wire.batch([b"lost"]), acks=-1)
    b.c.kill_node(0)
    b.c.until_states("risky", "no leader", lambda p, leader, r, isr: leader == -1)
    b.c.start_node(3)
    bad = []
    if ("risky", 0) not in b.describe("--unavailable-partitions"):
        bad.append(f"unavailable: {b.describe('--unavailable-partitions')}")
    said = b.tool("kafka-leader-election", "--election-type", "preferred", "--topic", "risky", "--partition", "0", check=False)
    if "Successfully" in said:
        bad.append(f"a preferred election without the preferred replica says {said!r}")
    said = b.tool("kafka-leader-election", "--election-type", "unclean", "--topic", "risky", "--partition", "0")
    if "Successfully completed leader election (UNCLEAN)" not in said:
        bad.append(f"says {said!r}")
    b.c.until_states("risky", "3 leads", lambda p, leader, r, isr: (leader, isr) == (3, [3]))
    with wire.Wire(b.c.boots[3]) as w:
        w.produce("risky", wire.batch([b"kept"]), acks=-1)
    b.c.start_node(0)
    b.c.until_in_sync("risky")
    with wire.Wire(b.c.boots[3]) as w:
        data = w.fetch("risky", 0, 0, 1 << 20)
    return bad if b"kept" in data and b"lost" not in data else bad + [f"stored: {data!r}"]


def unregister(b):
    b.c.stop_node(3)
    said = b.box("kafka-cluster", "unregister", "--bootstrap-server", b.c.boot, "--id", "3")
    bad = [] if "Broker 3 is no longer registered." in said else [f"says {said!r}"]
    if sorted(b.nodes()) != [0, 1, 2]:
        bad.append(f"list-endpoints: {b.nodes()}")
    said = b.box("kafka-cluster", "unregister", "--bootstrap-server", b.c.boot, "--id", "3", check=False)
    if not re.search("not registered|BrokerIdNotRegistered", said, re.I):
        bad.append(f"once more: {said!r}")
    b.c.start_node(3)
    b.c.until("broker 3 is registered anew", lambda: True if b.nodes().get(3) == "unfenced" else b.nodes())
    if b.c.partition_states("risky"):
        b.c.until_in_sync("risky")
    return bad


# ---- Leaders killed one after the other ----

def finish(b, load):
    """The end of a load, and all that the topic holds, by another client."""
    load.stop()
    reader = peers.Java(b.c.boot) if isinstance(load.peer, peers.RdkNew) else peers.RdkNew(b.c.boot)
    try:
        got = kill9.read_back(load, reader, b.folder)
    finally:
        reader.close()
        load.peer.close()
    load.got = got
    bad = [f"{load.result['failed']} were reported as failed"] if load.result["failed"] else []
    if len(got) != load.result["acked"]:
        bad.append(f"{load.result['acked']} acknowledged, {len(got)} stored")
    return bad + kill9.verify(load, got)


def roll(b, topics, n):
    victim = b.c.partition_states(topics[0])[n % kill9.PARTITIONS][0]
    if victim < 0:
        return f"partition {n % kill9.PARTITIONS} has no leader"
    time.sleep(1)
    b.c.kill_node(victim)
    for topic in topics:
        b.c.until_states(topic, f"others than {victim} lead", lambda p, leader, r, isr: leader not in (-1, victim))
    time.sleep(1)
    b.c.start_node(victim)
    for topic in topics:
        b.c.until_in_sync(topic)
    return []


def chaos(rng):
    """Any node at any time; the quorum and min.insync.replicas may well be lost for a while."""
    def strike(b, topics, n):
        what = rng.choice(("kill-node", "kill-node", "kill-node", "stop-node", "pause-node"))
        nodes = rng.sample(range(3), 2 if what == "kill-node" and rng.random() < 0.4 else 1)
        time.sleep(rng.uniform(0, 1.5))
        for node in nodes:
            b.c.command("cluster", what, node)
        time.sleep(rng.uniform(0.5, 5) if what == "pause-node" else rng.uniform(0, 2))
        for node in nodes:
            b.c.start_node(node)
        if rng.random() < 0.3:
            for topic in topics:
                b.c.until_in_sync(topic)
        return []
    return strike


def saw_all(follower, loads, out):
    follower.proc.stdin.write(b"\n")
    follower.proc.stdin.flush()
    follower.answer(120)
    return differences(loads, [json.loads(line) for line in out.read_text().splitlines()])


def follower_controls(loads, out):
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    at = len(rows) // 2
    later = next(i for i in range(at + 1, len(rows)) if (rows[i]["topic"], rows[i]["partition"]) == (rows[at]["topic"], rows[at]["partition"]))
    swapped = list(rows)
    swapped[at], swapped[later] = rows[later], rows[at]
    spoiled = {"a gap": rows[:at] + rows[at + 1:], "a record twice": rows[:at] + rows[at:at + 1] + rows[at:], "two records the wrong way round": swapped,
               "a missing end": rows[:at]}
    return [f"did not see {what}" for what, r in spoiled.items() if not differences(loads, r)]


def differences(loads, rows):
    """The consumer that read all the time: the same records, each partition in its order, none left out and none twice."""
    seen, bad = {}, []
    for r in rows:
        seen.setdefault((r["topic"], r["partition"]), []).append((r["offset"], records.unb64(r["value"])))
    for load in loads:
        for p, rs in records.by_partition(load.got).items():
            want, have = [(r["offset"], r["value"]) for r in rs], seen.get((load.topic, p), [])
            if want != have:
                at = next((i for i, (x, y) in enumerate(zip(want, have)) if x != y), min(len(want), len(have)))
                bad.append(f"{load.topic}-{p}: {len(want)} stored, {len(have)} read; they part at the {at}th, "
                           f"offset {want[at][0] if at < len(want) else None} stored, {have[at][0] if at < len(have) else None} read")
    return bad


def rolling(t, b, rounds, kind="roll", disturb=roll):
    loads = [Load(peer(b.c.boot), b.folder, kind) for peer in (peers.Java, peers.RdkDebian)]
    for load in loads:
        b.tool("kafka-topics", "--create", "--topic", load.topic, "--replica-assignment", "0:1:2,1:2:0,2:0:1")
        load.start(b.c.boot)
    for load in loads:
        b.c.until(f"{load.peer.name} has begun", lambda load=load: True if load.acked() else "no acknowledgement")
    follower, out = peers.Franz(b.c.boot), b.folder / "followed"
    follower.start(dict(op="follow", topics={load.topic: kill9.PARTITIONS for load in loads}, out=str(out)))
    for n in range(rounds):
        t.attempt(f"round {n + 1}: nodes go and come back", disturb, b, [load.topic for load in loads], n)
    for load in loads:
        b.c.until_in_sync(load.topic)
        t.attempt(f"{load.peer.name}: nothing lost, doubled or out of order in {rounds} rounds", finish, b, load)
    t.note(f"{sum(x.result['acked'] for x in loads)} acknowledged")
    t.attempt("franz-go read all of it meanwhile, without a gap", saw_all, follower, loads, out)
    follower.close()
    t.attempt("control: the reader's judge sees a gap, a double, a wrong order", follower_controls, loads, out)
    t.attempt("control: the judge sees loss and damage", kill9.controls, loads[0], loads[0].got)


# ---- What lies on disk ----

def high_watermarks(data):
    lines = (data / "replication-offset-checkpoint").read_text().splitlines()[2:]
    return {f"{topic}-{p}": int(hw) for topic, p, hw in (line.rsplit(" ", 2) for line in lines)}


def below(folder, end):
    """(offset of the first batch, bytes of all batches below an offset)."""
    out, first = b"", None
    for log in sorted(folder.glob("*.log")):
        data, found = log.read_bytes(), segments.batches(log)
        for (at, base, last, _), stop in zip(found, [x[0] for x in found[1:]] + [len(data)]):
            if last < end:
                first = base if first is None else first
                out += data[at:stop]
    return first, out


def same_bytes(b):
    bad, compared = [], 0
    marks = {n: high_watermarks(b.c.node_data(n)) for n in b.c.boots}
    for name in sorted({x for m in marks.values() for x in m}):
        mine = {n: m[name] for n, m in marks.items() if name in m}
        if len(set(mine.values())) != 1:
            bad.append(f"{name}: high watermarks {mine}")
        seen = {n: below(b.c.node_data(n) / name, min(mine.values())) for n in mine}
        if len(set(seen.values())) != 1:
            bad.append(f"{name}: below {min(mine.values())} " + ", ".join(f"node {n} has {len(s[1])} bytes from {s[0]}" for n, s in seen.items()))
        compared += sum(len(s[1]) for s in seen.values())
    return bad if compared else bad + ["no byte was compared"]


def one_bit(b):
    """The control: one bit of the largest replica."""
    log = max((f for n in b.c.boots for d in tools.partition_folders(b.c.node_data(n)) if d.name != "__cluster_metadata-0" for f in d.glob("*.log")),
              key=lambda f: f.stat().st_size)
    data = bytearray(log.read_bytes())
    data[100] ^= 1
    log.write_bytes(data)
    return [] if same_bytes(b) else "it saw nothing"


def snapshots(b):
    files = [f for n in b.c.boots for f in sorted((b.c.node_data(n) / "__cluster_metadata-0").glob("*.checkpoint"))]
    bad = [f"node {n} has no snapshot" for n in b.c.boots if not any(b.c.node_data(n) in f.parents for f in files)]
    for f in files:   # one at a time: all must show what a snapshot begins with
        text = tools.dump([f], "--cluster-metadata-decoder", call=b.box)
        bad += tools.complaints(text)
        if '"type":"REGISTER_BROKER_RECORD"' not in text:
            bad.append(f"{f}: no broker in it: {text[:600]}")
    return bad


def on_disk(t, b):
    code = b.c.stop()
    t.check("SIGTERM ends the cluster with exit code 0", [] if code == 0 else f"exit code {code}\n{b.c.log_tail()}")
    t.attempt("the replicas are the same, byte by byte", same_bytes, b)
    for n in b.c.boots:
        t.attempt(f"kafka-dump-log on the metadata log of node {n}", tools.metadata_log_problems, b.c.node_data(n), b.box)
    t.attempt("kafka-dump-log on the snapshots of all nodes", snapshots, b)
    folders = [d for n in b.c.boots for d in tools.partition_folders(b.c.node_data(n)) if d.name != "__cluster_metadata-0"]
    t.attempt(f"kafka-dump-log on {len(folders)} replicas", tools.dump_log_problems, folders, b.box)
    t.attempt("batches and indexes of the replicas agree", segments.problems, folders)
    t.attempt("control: the comparison sees one bit", one_bit, b)


def run():
    ap = argparse.ArgumentParser()
    ap.add_argument("--quick", action="store_true")
    ap.add_argument("--rounds", type=int)
    ap.add_argument("--seed", type=int, default=int(time.time()))
    ap.add_argument("names", nargs="*")
    a = ap.parse_args()
    t = tally.Tally("outside judges on kbroker cluster" + (f" (seed {a.seed})" if "chaos" in a.names else ""))
    c = cluster.Cluster(3, PROPS)
    with c:
        b = Bench(c)
        steps = {"tools": the_tools, "dead": a_dead_node,
                 "controller": lambda t, b: t.attempt("kafka-metadata-quorum, kafka-topics: the active controller was killed", another_controller, b),
                 "moves": moves,
                 "unclean": lambda t, b: t.attempt("kafka-leader-election unclean", unclean, b),
                 "unregister": lambda t, b: t.attempt("kafka-cluster unregister", unregister, b),
                 "rolling": lambda t, b: rolling(t, b, a.rounds or (1 if a.quick else 3)),
                 "chaos": lambda t, b: rolling(t, b, a.rounds or 15, "chaos", chaos(random.Random(a.seed)))}
        if {"dead", "controller", "moves"} & set(a.names):
            a.names.append("tools")   # they look at its topics
        for name, step in steps.items():
            if name in a.names or not a.names and name != "chaos":
                step(t, b)
                t.note(name)
        on_disk(t, b)
        b.box.close()
    return t.close()


if __name__ == "__main__":
    tally.main(run)
