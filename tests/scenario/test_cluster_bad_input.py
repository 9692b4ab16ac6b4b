"""What a cluster is not to be fooled by: folders of others, ids that are there twice, voters that disagree, wiped and full disks, forged requests, wrong
words, a parent that is interrupted. Each is refused with what failed, where, why and what to do, or served safely; and what was acknowledged stays.
"""
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import time

import scene
from scene import KBROKER, equal, eventually, holds, main, run, test
from scene_cluster import Cluster, command_line, nobody_left, processes_of


def refused(c, command, node, *words):
    r = run(KBROKER, "cluster", command, node, "--data", c.data, timeout=90)
    equal(r.returncode, 1, f"{command} {node}")
    holds(r.stderr, f"node {node}")
    text = (c.data / f"node-{node}.log").read_text(errors="replace")
    holds(text[-1500:], *words)
    return text


def still_serves(c, topic="t"):
    seen = c.consume(topic)
    equal(c.produce(topic, "more"), "")
    c.reads(topic, [*seen, "more"])


def copied(source, target):
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(".admin.sock", ".lock"))


def plan(c):
    return {n["id"]: n for n in json.loads((c.data / "cluster.json").read_text())["nodes"]}


def voters(c):
    return [f"{n['id']}@127.0.0.1:{n['port']}" for n in plan(c).values() if "controller" in n["roles"]]


class Stray:
    """A node that nobody asked for."""

    def __init__(self, folder, name, node, roles, quorum, port=0):
        self.log = folder / f"{name}.log"
        listener = "PLAINTEXT" if "broker" in roles else "CONTROLLER"
        sets = {"node.id": node, "process.roles": roles, "controller.quorum.voters": ",".join(quorum), "listeners": f"{listener}://127.0.0.1:{port}"}
        with open(self.log, "wb") as err:
            self.p = subprocess.Popen([KBROKER, "run", "--data", str(folder / name), *(x for k, v in sets.items() for x in ("--set", f"{k}={v}"))],
                                      stdout=subprocess.DEVNULL, stderr=err)
        scene._children.append(self.p)

    def text(self):
        return self.log.read_text(errors="replace")

    def ends_with(self, *words, wait=40):
        equal(self.p.wait(wait), 1, self.text())
        holds(self.text(), *words)

    def says(self, words):
        eventually(words, lambda: words in self.text(), 15)


# ---- Folders ----

@test
def another_clusters_folder_is_refused_by_both_sides(folder):
    a = Cluster(folder / "a", 3)
    a.create("t", "0:1:2")
    equal(a.stop(), 0)
    b = Cluster(folder / "b", 3)
    b.create("t", "0:1:2", min_insync_replicas=2)
    equal(b.produce("t", "x"), "")
    b.kill(2)
    own = folder / "own"
    shutil.move(b.data / "node-2", own)
    copied(a.data / "node-2", b.data / "node-2")
    refused(b, "start-node", 2, "another cluster's data folder", "cluster.id=", "use the right one")
    holds((b.data / "node-0.log").read_text() + (b.data / "node-1.log").read_text(), "belongs to another cluster", "refused")
    still_serves(b)
    shutil.rmtree(b.data / "node-2")
    shutil.move(own, b.data / "node-2")
    b.start(2)
    b.until("t", "all in sync", isr=[0, 1, 2])


@test
def a_broker_of_another_cluster_at_the_same_ports_is_refused(folder):
    a = Cluster(folder / "a", 2, controllers=1)
    ports = voters(a)
    equal(a.stop(), 0)
    shutil.copytree(a.data, folder / "b", ignore=shutil.ignore_patterns("node-*"))  # the plan: the same ports
    b = Cluster(folder / "b", 2, controllers=1)
    b.create("t", "0:1")
    b.kill(1)
    old = folder / "old"
    copied(a.data / "node-1", old)
    s = Stray(folder, "old", 1, "broker", ports, plan(b)[1]["port"])
    s.ends_with("another cluster", "use the right one, or an empty one")
    holds((b.data / "node-1000.log").read_text(), "belongs to another cluster", "refused")
    b.start(1)
    b.until("t", "its own broker 1 is in", isr=[0, 1])


@test
def a_copy_of_another_nodes_folder_is_refused(folder):
    c = Cluster(folder / "c", 3)
    c.create("t", "0:1:2", min_insync_replicas=1)
    c.kill(2)
    copied(c.data / "node-1", c.data / "node-2")
    refused(c, "start-node", 2, "belongs to node 1, but node.id is 2", "set node.id=1, or use another data folder")
    properties = c.data / "node-2" / "meta.properties"
    properties.write_text(properties.read_text().replace("node.id=1", "node.id=2"))
    refused(c, "start-node", 2, "refuses to register broker 2", "folder of its own")
    still_serves(c)


@test
def a_wiped_disk_under_an_old_id_comes_back_empty_and_is_filled(folder):
    c = Cluster(folder / "c", 3)
    c.create("t", "0:1:2", min_insync_replicas=2)
    equal(c.produce("t", *[f"r{i}" for i in range(50)]), "")
    c.kill(0)  # a voter, and the leader
    c.do("wipe-node", 0)
    equal(c.produce("t", "while"), "")
    c.start(0)
    c.until("t", "all in sync", isr=[0, 1, 2])
    c.kill(1)
    c.reads("t", [*(f"r{i}" for i in range(50)), "while"])


# ---- Ids and voters ----

@test
def an_id_that_is_there_twice_is_refused_while_the_first_lives(folder):
    c = Cluster(folder / "c", 3, controllers=3)
    c.create("t", "0:1:2", min_insync_replicas=2)
    broker = Stray(folder, "broker", 0, "broker", voters(c))
    leader = json.loads(c.ok("cluster", "--json"))["controller"]
    lead = Stray(folder, "lead", leader, "controller", voters(c))
    other = 1000 + (leader - 999) % 3
    voter = Stray(folder, "voter", other, "controller", voters(c))
    broker.ends_with("another broker with node.id=0 is alive", "give this one a node.id of its own")
    lead.ends_with(f"another process is voter {leader}", "stop that one")
    log = c.data / f"node-{leader}.log"
    eventually("the leader says so", lambda: f"two data folders fetch metadata as voter {other}" in log.read_text(), 15)
    still_serves(c)  # with the third voter alone
    equal(voter.p.poll(), None)
    voter.p.terminate()
    voter.p.wait(30)
    third = next(n for n in (1000, 1001, 1002) if n not in (leader, other))
    c.kill(third)
    eventually("the true one counts again", lambda: c.kc("topic", "create", f"u{time.monotonic_ns()}", "--rf", 1, timeout=60).returncode == 0, 30)


@test
def voters_that_disagree_are_refused(folder):
    c = Cluster(folder / "c", 3, controllers=3)
    c.create("t", "0:1:2", min_insync_replicas=2)
    quorum = voters(c)
    follower = next(n for n in (1000, 1001, 1002) if n != json.loads(c.ok("cluster", "--json"))["controller"])
    own = next(v for v in quorum if v.startswith(f"{follower}@"))
    port = int(own.rsplit(":", 1)[1])
    c.halt(follower)
    copied(c.data / f"node-{follower}", folder / "known")
    others = [v for v in quorum if v != own]
    Stray(folder, "known", follower, "controller", [own, others[0]], port).ends_with("quorum-state names the voters 1000,1001,1002", "name them as they were")
    leader = next(v for v in others if v.startswith(f"{json.loads(c.ok('cluster', '--json'))['controller']}@"))
    Stray(folder, "pair", follower, "controller", [own, leader], port).ends_with("1000,1001,1002 where node", "name the same voters on all nodes")
    alone = Stray(folder, "alone", follower, "controller", [own], port)
    alone.says("a new cluster: its id is")
    still_serves(c)  # which has nothing to do with that one
    alone.p.kill()
    alone.p.wait()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        more = s.getsockname()[1]
    Stray(folder, "more", 1003, "controller", [*quorum, f"1003@127.0.0.1:{more}"], more).ends_with("name the same voters on all nodes")
    broker = Stray(folder, "seven", 7, "broker", [next(v for v in others if v != leader)])
    broker.says("name the same voters on all nodes")
    still_serves(c)
    c.start(follower)


# ---- A disk without room ----

@test
def a_full_disk_of_one_node_costs_no_acknowledged_record_and_heals(folder):
    c = Cluster(folder / "c", 3, controllers=1)
    c.kill(2)
    small = c.data / "node-2"
    shutil.rmtree(small, ignore_errors=True)
    small.mkdir()
    equal(run("mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", small).returncode, 0, "mount")
    try:
        c.start(2)
        c.create("t", "0:1:2", min_insync_replicas=2)
        value = "x" * 10000
        for i in range(8):
            equal(c.produce("t", *[f"{i}.{k}{value}" for k in range(100)]), "", "two of three take it")
        c.until("t", "the full one is out", isr=[0, 1], wait=60)
        log = (c.data / "node-2.log").read_text()
        holds(log, "no space left on the disk", "are refused until there is some")
        holds(c.ok("topic", "describe", "t"), "2 of 3 replicas in sync; waiting for broker 2, whose disk is full")
        equal(run("mount", "-o", "remount,size=200m", small).returncode, 0, "remount")
        c.until("t", "room was made", isr=[0, 1, 2], wait=60)
        c.kill(0)
        seen = c.consume("t")
        equal(len(seen), 800)
        equal(c.stop(), 0)
    finally:
        c.p.kill()
        c.p.wait()
        nobody_left(c.data)
        run("umount", "-l", small)


@test
def a_full_disk_of_the_leader_refuses_goes_on_serving_reads_and_heals(folder):
    small = folder / "c" / "node-0"
    small.mkdir(parents=True)
    equal(run("mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", small).returncode, 0, "mount")
    c = None
    try:
        c = Cluster(folder / "c", 3, controllers=1)
        c.create("t", "0:1:2", min_insync_replicas=2)
        value, acked, said = "x" * 10000, [], ""
        while not said and len(acked) < 20:
            sent = f"{len(acked)}.{value}"
            said = c.produce("t", *[sent] * 50, delivery_timeout_ms=3000)
            if not said:
                acked.append(sent)
        holds(said, "KAFKA_STORAGE_ERROR")
        holds((c.data / "node-0.log").read_text(), "no space left on the disk", "are refused until there is some")
        c.reads("t", [v for v in acked for _ in range(50)])
        holds(c.ok("topic", "describe", "t"), "the disk of the leader, broker 0, is full, writes refused")
        equal(run("mount", "-o", "remount,size=200m", small).returncode, 0, "remount")
        eventually("room was made", lambda: not c.produce("t", "after"), 20)
        c.kill(0)
        eventually("another has all of it", lambda: set(acked) | {"after"} <= set(c.consume("t")), 20)
        equal(c.stop(), 0)
    finally:
        if c:
            c.p.kill()
            c.p.wait()
        nobody_left(folder / "c")
        run("umount", "-l", small)


# ---- A disk that fails ----

@test
def a_leaders_log_that_fails_is_led_elsewhere_and_the_nodes_others_go_on(folder):
    c = Cluster(folder / "c", 3, controllers=1)
    c.create("t", "0:1:2", min_insync_replicas=2, flush_on_ack="true")
    c.create("u", "0:1:2", min_insync_replicas=2)
    equal(c.produce("t", "a"), "")
    c.fault(0, {"disk": "write", "topic": "t", "times": 1, "error": "EIO"})
    equal(c.produce("t", "b"), "", "the client finds the new leader")
    c.until("t", "others took over", leader=1, isr=[1, 2])
    c.until("u", "the log beside it works", leader=0, isr=[0, 1, 2])
    holds(c.ok("topic", "describe", "t"), "2 of 3 replicas in sync; waiting for broker 0, whose disk failed")
    equal(c.produce("u", "c"), "")
    lines = [line for line in (c.data / "node-0.log").read_text().splitlines() if "t-0" in line and "Input/output error" in line]
    equal(len(lines), 1, "one line says it")
    holds(lines[0], "t-0 is offline", "until the disk is mended and the broker restarted")
    c.fault(2, {"disk": "sync", "topic": "t", "error": "EIO"})
    holds(c.produce("t", "d", retries=False), "NOT_ENOUGH_REPLICAS")
    c.until("t", "a follower's sync failed", leader=1, isr=[1])
    c.mend(2)
    c.kill(0, 2)
    c.start(0, 2)
    c.until("t", "started anew", isr=[0, 1, 2])
    equal(c.produce("t", "e"), "")
    c.kill(1)
    eventually("nothing is lost", lambda: {"a", "b", "e"} <= set(c.consume("t")), 20)
    equal(c.stop(), 0)


@test
def a_node_whose_logs_all_fail_says_so_and_stops(folder):
    c = Cluster(folder / "c", 3, controllers=1)
    for topic in "tu":
        c.create(topic, "2:1:0", min_insync_replicas=2)
        equal(c.produce(topic, "a"), "")
    c.fault(2, {"disk": "write", "error": "EIO"})
    for topic in "tu":
        equal(c.produce(topic, "b"), "")
        c.until(topic, "others go on", leader=1, isr=[0, 1])
    eventually("it has stopped", lambda: "the logs of all partitions failed" in (c.data / "node-2.log").read_text())
    c.start(2)
    for topic in "tu":
        c.until(topic, "mended", isr=[0, 1, 2])
        c.reads(topic, ["a", "b"])
    equal(c.stop(), 0)


# ---- Forged requests ----

def text(s):
    return b"\0" if s is None else bytes([len(s) + 1]) + s.encode()


def ask(address, api, version, body, fields=""):
    """One request with the flexible header; the answer's first fields."""
    host, port = address.rsplit(":", 1)
    frame = struct.pack(">hhih", api, version, 7, 6) + b"forger" + b"\0" + body
    with socket.create_connection((host, int(port)), 10) as s:
        s.settimeout(20)
        s.sendall(struct.pack(">i", len(frame)) + frame)
        head = b""
        while len(head) < 4:
            got = s.recv(4 - len(head))
            if not got:
                return None  # it closed the connection
            head += got
        size, data = struct.unpack(">i", head)[0], b""
        while len(data) < size:
            data += s.recv(size - len(data))
    equal(struct.unpack_from(">i", data)[0], 7)
    return struct.unpack_from(">" + fields, data, 5)


def fetch_as(address, replica, offset):
    """(error, high watermark) of t-0."""
    part = struct.pack(">iiqiqi", 0, -1, offset, -1, -1, 1 << 20) + b"\0"
    body = struct.pack(">iiiibii", replica, 0, 1, 1 << 20, 0, 0, -1) + b"\x02" + text("t") + b"\x02" + part + b"\0" + b"\x01" + text("") + b"\0"
    return ask(address, 1, 12, body, "ihib2sbihq")[-2:]


NOT_LEADER, UNKNOWN_EPOCH, NOT_REGISTERED, STALE, INCONSISTENT, INVALID, DUPLICATE = 6, 75, 102, 77, 104, 42, 101


@test
def a_client_that_says_it_is_a_replica_moves_and_reads_nothing(folder):
    c = Cluster(folder / "c", 3, controllers=1)
    c.create("t", "0:1:2", min_insync_replicas=2)
    equal(c.produce("t", "seen"), "")
    c.fault(0, {"api": "Fetch", "client_id": "kbroker-1", "stall": True})
    c.fault(0, {"api": "Fetch", "client_id": "kbroker-2", "stall": True})
    c.struck(0, 2)
    equal(c.produce("t", "hidden", acks=1, enable_idempotence="false"), "")
    for replica in (0, 1, 2, 7, 2**31 - 1):
        for offset in (0, 2):
            error, hw = fetch_as(c.addresses[0], replica, offset)
            if error not in (NOT_LEADER, UNKNOWN_EPOCH):
                raise AssertionError(f"replica {replica} at {offset}: {error}, high watermark {hw}")
    equal(fetch_as(c.addresses[0], -1, 0), (0, 1))
    equal(c.partition("t")["hw"], 1)
    c.mend(0)
    c.until("t", "the true ones go on", isr=[0, 1, 2])
    c.reads("t", ["seen", "hidden"])


def registration(c, node, cluster, folder=bytes(range(16))):
    listeners = b"\x02" + text("PLAINTEXT") + text("127.0.0.1") + struct.pack(">Hh", 1, 0) + b"\0"
    body = struct.pack(">i", node) + text(cluster) + bytes([9] * 16) + listeners + b"\x01" + b"\0" + b"\0" + b"\x02" + folder + b"\0"
    return ask(controller(c), 62, 2, body, "ih")[1]


def controller(c):
    return next(f"127.0.0.1:{n['port']}" for n in plan(c).values() if "controller" in n["roles"])


@test
def forged_registrations_heartbeats_and_changes_of_the_isr_are_fenced(folder):
    c = Cluster(folder / "c", 3, controllers=1)
    c.create("t", "0:1:2", min_insync_replicas=2)
    cluster = json.loads(c.ok("cluster", "--json"))["cluster"]
    equal(registration(c, 0, "another"), INCONSISTENT)
    equal(registration(c, 0, ""), INCONSISTENT)
    equal(registration(c, 0, cluster), DUPLICATE)
    for epoch in (-1, 0, 1, 2**62):
        for node in (0, 1, 2):
            error = ask(controller(c), 63, 0, struct.pack(">iqq??", node, epoch, 2**62, True, True) + b"\0", "ih")[1]
            equal(error, STALE, f"heartbeat of {node} in {epoch}")
    equal(ask(controller(c), 63, 0, struct.pack(">iqq??", 55, 1, 1, True, False) + b"\0", "ih")[1], NOT_REGISTERED)
    for node, epoch in ((0, 1), (1, -1), (55, 3)):
        part = struct.pack(">ii", 0, 99) + b"\x02" + struct.pack(">i", 0) + struct.pack(">bi", 0, 99) + b"\0"
        body = struct.pack(">iq", node, epoch) + b"\x02" + bytes(16) + b"\x02" + part + b"\0" + b"\0"
        equal(ask(controller(c), 56, 2, body, "ih")[1], STALE)
    c.until("t", "as it was", leader=0, isr=[0, 1, 2])
    equal(c.produce("t", "x"), "")


@test
def votes_that_are_nonsense_move_no_epoch(folder):
    c = Cluster(folder / "c", 3, controllers=3)
    c.create("t", "0:1:2", min_insync_replicas=2)
    cluster = json.loads(c.ok("cluster", "--json"))["cluster"]
    before = json.loads(c.ok("cluster", "--json"))
    nodes = [f"127.0.0.1:{n['port']}" for n in plan(c).values() if "controller" in n["roles"]]

    def vote(address, cluster, topic, partition, epoch, candidate, last_epoch, last_offset):
        part = struct.pack(">iiiiq", partition, epoch, candidate, last_epoch, last_offset) + b"\0"
        body = text(cluster) + b"\x02" + text(topic) + b"\x02" + part + b"\0" + b"\0"
        return ask(address, 52, 0, body, "h")[0]
    for a in nodes:
        equal(vote(a, "another", "__cluster_metadata", 0, 99, 1000, 98, 10**9), INCONSISTENT)
        equal(ask(a, 52, 0, text(cluster) + b"\x01\0", "h")[0], INVALID)
        equal(vote(a, cluster, "", 0, 99, 1000, 98, 10**9), INVALID)
        equal(vote(a, cluster, "__cluster_metadata", 0, 99, 4242, 98, 10**9), 0)  # of the partition: not a voter
        for epoch, candidate, last, offset in ((-1, 1001, 0, 0), (99, -1, 0, 0), (99, 1001, 99, 5), (99, 1001, -1, -1), (2**31 - 1, 1001, 1, 1)):
            equal(vote(a, cluster, "__cluster_metadata", 0, epoch, candidate, last, offset), 0)
        for body in (b"", b"\xff" * 40, bytes(300), b"\x02" * 1000):
            for api in (52, 53, 54, 55, 56, 59, 62, 63, 64, 67, 43, 45, 46):
                try:
                    ask(a, api, 0, body)
                except (ConnectionError, struct.error, AssertionError):
                    pass
    after = json.loads(c.ok("cluster", "--json"))
    equal((after["controller"], after["quorum"]["epoch"]), (before["controller"], before["quorum"]["epoch"]))
    equal([line for line in c.logs(400).splitlines() if "epoch 99" in line], [])
    equal(c.produce("t", "x"), "")
    status = run(KBROKER, "cluster", "status", "--data", c.data).stdout
    equal(status.count(" up "), 6, status)


# ---- The parent ----

def cluster_says(folder, *args, code=1, words=()):
    r = run(KBROKER, "cluster", *args, cwd=folder, timeout=60)
    equal(r.returncode, code, f"{args}: {r.stderr}")
    holds(r.stderr, *words)
    return r


def taken_above_a_free_one():
    """A listening socket whose port follows one that was free a moment ago: the first node gets its port, the second does not."""
    while True:
        taken = socket.create_server(("127.0.0.1", 0))
        try:
            socket.create_server(("127.0.0.1", taken.getsockname()[1] - 1)).close()
            return taken
        except OSError:
            taken.close()


@test
def ports_that_are_taken_are_named_and_the_next_try_is_free_to_choose_others(folder):
    with taken_above_a_free_one() as taken:
        port = taken.getsockname()[1]
        r = cluster_says(folder, "--nodes", 2, "--base-port", port - 1, "--data", "c", words=(f"127.0.0.1:{port}", "in use", "--base-port"))
        equal(r.stdout, "")
        c = Cluster(folder / "c", 2)
    equal(c.stop(), 0)


@test
def folders_that_cannot_be_used_are_named(folder):
    (folder / "file").write_text("")
    cluster_says(folder, "--nodes", 1, "--base-port", 0, "--data", "file/c", words=("file/c", "Not a directory", "--data"))
    made = folder / "made"
    made.mkdir()
    (made / "node-0").write_text("")
    cluster_says(folder, "--nodes", 1, "--base-port", 0, "--data", "made", words=("node-0", "--data"))
    fixed = folder / "fixed"
    fixed.mkdir()
    equal(run("mount", "-t", "tmpfs", "-o", "ro,size=1m", "tmpfs", fixed).returncode, 0, "mount")
    try:
        cluster_says(folder, "--nodes", 1, "--base-port", 0, "--data", "fixed", words=("fixed", "Read-only file system", "--data"))
    finally:
        run("umount", "-l", fixed)
    broken = folder / "broken"
    broken.mkdir()
    (broken / "cluster.json").write_text("{\"nodes\": [{\"id\": 0}]}")
    cluster_says(folder, "--nodes", 1, "--data", "broken", words=("broken/cluster.json", "mend it"))


@test
def what_each_node_has_of_its_own_cannot_be_set_for_all(folder):
    for name, value in (("node.id", 4), ("listeners", "PLAINTEXT://127.0.0.1:0"), ("process.roles", "broker"), ("log.dirs", "/tmp/x"),
                        ("controller.quorum.voters", "0@h:1"), ("advertised.listeners", "PLAINTEXT://h:1")):
        cluster_says(folder, "--nodes", 1, "--set", f"{name}={value}", code=2, words=(f"--set {name}", "its own"))
    cluster_says(folder, "--nodes", 1, "--base-port", 0, "--data", "a", "--set", "num.partitons=3", code=2, words=("did you mean num.partitions?",))
    cluster_says(folder, "--nodes", 1, "--base-port", 0, "--data", "b", "--profile", "relable", code=2, words=("reliable",))
    cluster_says(folder, "--nodes", 1, "--base-port", 0, "--data", "d", "--faults", "none.json", words=("none.json", "No such file"))


@test
def a_node_named_twice_is_started_once(folder):
    c = Cluster(folder / "c", 2)
    c.kill(1)
    cluster_says(folder, "start-node", "1,1", "--data", "c", words=("node 1", "named twice", "nothing was done"))
    cluster_says(folder, "start-node", "1,99999999999", "--data", "c", code=2, words=("99999999999",))
    c.start(1)
    equal(c.stop(), 0)


@test
def interrupted_while_it_starts_it_leaves_nobody_behind(folder):
    for delay in (0.0, 0.02, 0.08, 0.2):
        data = folder / f"c{delay}"
        p = subprocess.Popen([KBROKER, "cluster", "--nodes", "3", "--base-port", "0", "--data", str(data)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        scene._children.append(p)
        scene.until_caught(p, signal.SIGINT)
        time.sleep(delay)
        p.send_signal(signal.SIGINT)
        p.communicate(timeout=60)
        equal(processes_of(data), [], f"after {delay} s")
        c = Cluster(data, 3)  # and it can be started again
        equal(c.stop(), 0)


@test
def a_killed_parent_takes_its_nodes_along_and_the_folder_is_free(folder):
    c = Cluster(folder / "c", 3)
    c.create("t", "0:1:2", min_insync_replicas=2)
    equal(c.produce("t", "kept"), "")
    pids = [line.split()[-1] for line in run(KBROKER, "cluster", "status", "--data", c.data).stdout.splitlines()]
    r = run(KBROKER, "cluster", "--nodes", "3", "--data", c.data)  # a second one beside it
    equal(r.returncode, 1)
    holds(r.stderr, "a cluster runs in", "end that one")
    c.p.kill()
    c.p.wait()
    eventually("the nodes are gone", lambda: not any(str(c.data).encode() in command_line(pid) for pid in pids))
    r = run(KBROKER, "cluster", "status", "--data", c.data)
    equal(r.returncode, 1)
    holds(r.stderr, "no cluster runs in", "start one")
    c = Cluster(folder / "c", 3)
    c.reads("t", ["kept"])


@test
def help_fits_a_terminal_of_80_columns(folder):
    for args in (["--help"], ["run", "--help"], ["cluster", "--help"], ["fault", "--help"], ["snapshot", "--help"], ["cluster", "stop-node"], ["cluster"], ["fault"]):
        r = run(KBROKER, *args, cwd=folder)
        equal([line for line in (r.stdout + r.stderr).splitlines() if len(line) > 80], [], " ".join(args))


if __name__ == "__main__":
    main()
