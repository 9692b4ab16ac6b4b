"""Snapshots: what was acknowledged before one is saved is there when it is restored, on all replicas; and whatever goes wrong on the way leaves either
what was there or what was to come, whole.
"""
import json
import os
import random
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

import scene
from scene import KBROKER, KC, Broker, ask, equal, eventually, holds, main, run, test
from scene_cluster import Cluster, Kit, nobody_left


def snapshot(*args, code=0, **kw):
    r = run(KBROKER, "snapshot", *args, timeout=120, **kw)
    equal(r.returncode, code, f"snapshot {args}: {r.stderr}")
    return r


def put(address, topic, *values):
    r = run(KC, "produce", "-t", topic, "-b", address, stdin="".join(f"{v}\n" for v in values))
    equal(r.returncode, 0, r.stderr)


def read(address, topic):
    r = run(KC, "consume", "-t", topic, "-o", "beginning", "-e", "-b", address)
    equal(r.returncode, 0, r.stderr)
    return r.stdout.split()


def names(folder):
    return sorted(os.listdir(folder))


class Producer(threading.Thread):
    """kc produce without end, acks=all: .acked is the (partition, offset) of each record that was reported as stored."""

    def __init__(self, address, topic):
        super().__init__()
        self.p = subprocess.Popen([KC, "produce", "-t", topic, "-b", address, "--reports", "--rate", "4000", "--set", "linger.ms=1"],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        scene._children.append(self.p)
        self.acked, self.over = [], threading.Event()
        self.feeder = threading.Thread(target=self.feed)
        self.feeder.start()
        self.start()

    def feed(self):
        n = 0
        while not self.over.is_set():
            try:
                self.p.stdin.write("".join(f"v{i}\n" for i in range(n, n + 200)).encode())
                self.p.stdin.flush()
            except BrokenPipeError:
                break
            n += 200
            time.sleep(0.02)
        self.p.stdin.close()

    def run(self):
        for line in self.p.stdout:
            report = json.loads(line)
            if report.get("offset", -1) >= 0 and not report.get("error"):
                self.acked.append((report["partition"], report["offset"]))

    def end(self):
        self.over.set()
        self.feeder.join()
        self.join()
        equal(self.p.wait(60), 0, self.p.stderr.read())
        return self.acked


def records(address, topic):
    r = run(KC, "consume", "-t", topic, "-o", "beginning", "-e", "-b", address, "-f", "%p %o %s\\n", timeout=120)
    equal(r.returncode, 0, r.stderr)
    return {(int(p), int(o)): v for p, o, v in (line.split() for line in r.stdout.splitlines())}


def committed(address, group):
    r = run(KC, "group", "describe", group, "-b", address, "--json")
    equal(r.returncode, 0, r.stderr)
    return {(p["topic"], p["partition"]): p["committed"] for p in json.loads(r.stdout)["partitions"]}


def replica_bytes(data, node, topic, partition):
    folder = data / f"node-{node}" / f"{topic}-{partition}"
    return b"".join(p.read_bytes() for p in sorted(folder.glob("*.log")))


# ---- That it is what it says ----

@test
def what_was_acknowledged_before_a_save_is_there_after_the_restore_on_all_replicas(folder):
    c = Cluster(folder / "c", 3)
    c.ok("topic", "create", "t", "--partitions", 3, "--rf", 3, "--config", "min.insync.replicas=2")
    for i in range(3):
        c.until("t", "all in sync", isr=[0, 1, 2], index=i)
    before, saved = {}, {}
    producer = Producer(c.address, "t")
    for name in ("a", "b", "c"):
        have = len(producer.acked)
        eventually("records flow", lambda: len(producer.acked) > have + 500, 60)
        r = run(KC, "consume", "-G", "g", "t", "-o", "beginning", "-e", "-b", c.address, timeout=120)
        equal(r.returncode, 0, r.stderr)
        before[name] = (committed(c.address, "g"), list(producer.acked))
        saved[name] = snapshot("save", name, "--data", c.data).stdout
    have = len(producer.acked)
    eventually("records go on to flow", lambda: len(producer.acked) > have + 500, 60)
    producer.end()
    run(KC, "consume", "-G", "g", "t", "-o", "beginning", "-e", "-b", c.address, timeout=120)
    final = records(c.address, "t")
    ports = c.address
    for name in ("b", "a", "c"):  # back and forth
        snapshot("restore", name, "--data", c.data)
        for i in range(3):
            c.until("t", "all in sync", isr=[0, 1, 2], index=i, wait=60)
        seen, (groups, acked) = records(c.address, "t"), before[name]
        if not acked or not set(acked) <= set(seen):
            raise AssertionError(f"{name}: {len(set(acked) - set(seen))} of {len(acked)} acknowledged records are missing")
        equal({k: v for k, v in seen.items() if final[k] != v}, {}, f"{name}: other values")
        if len(seen) >= len(final):
            raise AssertionError(f"{name} has {len(seen)} records, not fewer than the {len(final)} of later")
        equal(committed(c.address, "g"), groups, f"{name}: offsets of the group")
    equal(c.address, ports)
    put(c.address, "t", *(f"more{i}" for i in range(100)))  # and it goes on from there
    for i in range(3):
        c.until("t", "all in sync", isr=[0, 1, 2], index=i)
    equal(c.stop(), 0)
    for i in range(3):
        copies = [replica_bytes(c.data, node, "t", i) for node in range(3)]
        equal([len(copies[0]) > 0, copies[0] == copies[1], copies[0] == copies[2]], [True] * 3, f"t-{i} on the replicas, {[len(x) for x in copies]} bytes")


@test
def a_save_keeps_the_processes_and_a_restore_takes_back_topics_and_nodes(folder):
    kit = Kit(nodes=3)
    put(kit.address, "old", 1, 2, 3)
    pids = [n["pid"] for n in kit.ok("GET", "/cluster")["nodes"]]
    seen = kit.ok("POST", "/snapshots", {"save": "three"})
    equal((seen["name"], seen["bytes"] > 1000, seen["ms"] >= seen["paused_ms"] >= 0), ("three", True, True), seen)
    equal([(n["pid"], n["state"]) for n in kit.ok("GET", "/cluster")["nodes"]], [(p, "up") for p in pids], "the same processes go on")
    kit.do("add", 3)
    put(kit.address, "new", 4)
    put(kit.address, "old", 5)
    kit.ok("POST", "/snapshots", {"save": "four"})
    kit.do("pause", 1)  # whatever the nodes do: all serve afterwards
    kit.do("kill", 2)
    ports = {n["id"]: n["address"] for n in kit.ok("GET", "/cluster")["nodes"]}
    seen = kit.ok("POST", "/snapshots", {"restore": "three"})
    equal((seen["name"], seen["bytes"] > 1000), ("three", True))
    nodes = kit.ok("GET", "/cluster")["nodes"]
    equal([(n["id"], n["state"], n["address"]) for n in nodes], [(i, "up", ports[i]) for i in range(3)])
    equal((sorted(read(kit.address, "old")), run(KC, "topic", "list", "-b", kit.address).stdout.split()[-1]), (["1", "2", "3"], "old"))
    kit.ok("POST", "/snapshots", {"restore": "four"})
    nodes = kit.ok("GET", "/cluster")["nodes"]
    equal([(n["id"], n["state"]) for n in nodes], [(i, "up") for i in range(4)])
    equal([n["address"] for n in nodes][:3], [ports[i] for i in range(3)])
    equal((sorted(read(kit.address, "old")), read(kit.address, "new")), (["1", "2", "3", "5"], ["4"]))
    data = Path(kit.ok("GET", "/cluster")["data"])
    equal([x for x in names(data) if x.startswith(".restore")], [])
    equal(names(data / "snapshots"), ["four", "three"])
    equal(kit.end(), 0)


@test
def nodes_that_do_not_run_are_saved_as_they_are(folder):
    kit = Kit(nodes=3)
    equal(run(KC, "topic", "create", "t", "--replicas", "0", "-b", kit.address).returncode, 0)
    put(kit.address, "t", *range(10))
    kit.do("stop", 1)
    kit.do("pause", 2)
    for i in range(5):  # one right after the other
        kit.ok("POST", "/snapshots", {"save": "s", "replace": True})
        equal(kit.states(), ["up", "down", "paused"], "those go on that went before")
    kit.do("pause", 0)
    equal(kit.do("resume", 0)[0]["state"], "up")
    kit.do("wipe", 1)
    kit.ok("POST", "/snapshots", {"save": "wiped"})
    kit.do("start", 1, 2)
    kit.ok("POST", "/snapshots", {"restore": "s"})
    equal(kit.states(), ["up"] * 3)
    equal(sorted(read(kit.address, "t")), sorted(map(str, range(10))))
    kit.ok("POST", "/snapshots", {"restore": "wiped"})
    equal(sorted(read(kit.address, "t")), sorted(map(str, range(10))))
    kit.do("kill", 0, 1, 2)
    kit.ok("POST", "/snapshots", {"save": "dead"})
    kit.ok("POST", "/snapshots", {"restore": "dead"})
    equal(sorted(read(kit.address, "t")), sorted(map(str, range(10))))


@test
def a_cluster_that_does_not_run_is_saved_and_restored_and_another_one_begins_with_it(folder):
    c = Cluster(folder / "c", 2, controllers=1)
    put(c.address, "t", "a")
    equal(c.stop(), 0)
    holds(snapshot("save", "off", "--data", c.data).stdout, "saved off: ", " bytes in ")
    here = folder / "elsewhere"
    snapshot("save", f"{here}/deep/s", "--data", "c", cwd=folder)
    snapshot("save", "./near", "--data", "c", cwd=folder)
    equal((names(here / "deep"), (folder / "near" / "snapshot.json").exists()), (["s"], True))
    c = Cluster(folder / "c", 2, controllers=1)
    put(c.address, "t", "b")
    ports = c.address
    for name in (f"{here}/deep/s", "../near"):  # it runs: the path is this command's, not the cluster's
        snapshot("restore", name, "--data", c.data, cwd=here)
        equal(read(c.address, "t"), ["a"])
        put(c.address, "t", "b")
    equal(c.stop(), 0)
    snapshot("restore", "off", "--data", c.data)
    c = Cluster(folder / "c", 2, controllers=1)
    equal((read(c.address, "t"), c.address), (["a"], ports))
    for args, extra in ((["--data", folder / "d"], []), (["--ephemeral"], ["--nodes", 2])):
        other = Cluster.__new__(Cluster)
        other.launch([KBROKER, "cluster", "--from", str(folder / "near"), "--base-port", "0", *map(str, args + extra)], 60)
        if not other.address or set(other.address.split(",")) & set(ports.split(",")):
            raise AssertionError(f"{other.address}, beside {ports}: {other.text()}")
        equal(read(other.address, "t"), ["a"])
        put(other.address, "t", "own")
        equal((read(other.address, "t"), read(c.address, "t")), (["a", "own"], ["a"]))
        equal(other.stop(), 0)
    again = Cluster.__new__(Cluster)
    again.launch([KBROKER, "cluster", "--data", str(folder / "d")], 60)
    equal(read(again.address, "t"), ["a", "own"])
    equal(again.stop(), 0)
    equal(c.stop(), 0)
    shutil.copytree(c.data / "snapshots", folder / "e" / "snapshots")  # a folder of which only the snapshots are left
    snapshot("restore", "off", "--data", folder / "e")
    equal(json.loads((folder / "e" / "cluster.json").read_text()), json.loads((c.data / "cluster.json").read_text()))
    for args, code, words in ((["--from", c.data / "snapshots/off", "--data", folder / "d"], 1, ["has data already", "snapshot restore"]),
                              (["--from", "off", "--ephemeral"], 2, ["path with a /"]), (["--from", "./none", "--ephemeral"], 1, ["there is no snapshot ./none"]),
                              (["--from", folder / "near", "--ephemeral", "--nodes", 3], 1, ["has 2 brokers", "leave --nodes"]),
                              (["--from", folder / "near", "--ephemeral", "--controllers", 3], 2, ["leave --controllers"])):
        r = run(KBROKER, "cluster", *args)
        equal(r.returncode, code, f"{args}: {r.stderr}")
        holds(r.stderr, *words)


@test
def a_single_broker_is_saved_and_restored_running_or_not(folder):
    for options in ((), ("--ephemeral",)):
        b = Broker.__new__(Broker)
        b.launch([KBROKER, "run", "--listen", "127.0.0.1:0", *(options or ("--data", str(folder / "d"))), "--set", "admin.listener=127.0.0.1:0"], 60)
        data = Path(os.readlink(next(f"/proc/{b.p.pid}/fd/{fd}" for fd in os.listdir(f"/proc/{b.p.pid}/fd") if os.readlink(f"/proc/{b.p.pid}/fd/{fd}").endswith("/.lock")))).parent
        put(b.address, "t", "a")
        snapshot("save", "one", "--data", data)
        put(b.address, "t", "b")
        snapshot("save", "two", "--data", data)
        port = b.address
        for name, wanted in (("one", ["a"]), ("two", ["a", "b"]), ("one", ["a"])):
            snapshot("restore", name, "--data", data)
            equal(read(port, "t"), wanted, name)
        holds(snapshot("list", "--data", data).stdout, "one ", "two ", " 1 node")
        equal(b.stop(), 0)
        equal(data.exists(), not options)
    snapshot("save", "three", "--data", folder / "d")
    snapshot("restore", "two", "--data", folder / "d")
    b = Broker(folder / "d")
    equal(read(b.address, "t"), ["a", "b"])
    r = snapshot("restore", "nope", "--data", folder / "d", code=1)
    holds(r.stderr, "no snapshot", "snapshot list")
    equal(read(b.address, "t"), ["a", "b"])
    c = Cluster(folder / "c", 1)
    holds(snapshot("restore", folder / "d" / "snapshots" / "two", "--data", c.data, code=1).stderr, "single broker")
    snapshot("save", "c", "--data", c.data)
    holds(snapshot("restore", c.data / "snapshots" / "c", "--data", folder / "d", code=1).stderr, "of a cluster")
    holds(snapshot("save", "x", "--data", c.data / "node-0", code=1).stderr, "node of the cluster", "all of it")


@test
def files_keep_their_times_and_their_holes(folder):
    b = Broker(folder / "d")
    put(b.address, "t", "a")
    equal(b.stop(), 0)
    index = folder / "d" / "t-0" / "00000000000000000000.spare"
    with open(index, "wb") as f:  # as an index that was made in full size
        f.write(b"front")
        f.seek(64 << 20)
        f.write(b"middle")
        f.truncate(200 << 20)
    os.utime(index, ns=(10**18, 10**18 + 123456789))
    os.symlink("/etc/passwd", folder / "d" / "t-0" / "link")
    (folder / "d" / "t-0" / "empty").touch()
    snapshot("save", "s", "--data", folder / "d")
    copy = folder / "d" / "snapshots" / "s" / "data" / "t-0"
    index.unlink()
    snapshot("restore", "s", "--data", folder / "d")
    for file in (copy / index.name, index):
        st = file.stat()
        equal((st.st_size, st.st_blocks * 512 < 1 << 20, st.st_mtime_ns), (200 << 20, True, 10**18 + 123456789), file)
        with open(file, "rb") as f:
            equal((f.read(6), os.pread(f.fileno(), 8, (64 << 20) - 1)), (b"front\0", b"\0middle\0"))
    equal(names(copy), sorted(x for x in names(folder / "d" / "t-0")))
    equal(("link" in names(copy), "empty" in names(copy)), (False, True), "files and folders alone")


# ---- Names ----

@test
def names_and_wrong_requests(folder):
    kit = Kit(nodes=1)
    data = Path(kit.ok("GET", "/cluster")["data"])
    equal(kit.ok("GET", "/snapshots"), {"snapshots": []})
    strange = ["a b", "ünïcode ☃", "-x", "%s%n", "q\"uo\\te", "a.b", "x" * 200]
    for name in strange:
        equal(kit.ok("POST", "/snapshots", {"save": name})["name"], name)
    equal(sorted(s["name"] for s in kit.ok("GET", "/snapshots")["snapshots"]), sorted(strange))
    equal(sorted(json.loads(snapshot("list", "--data", data, "--json").stdout)["snapshots"], key=lambda s: s["name"]),
          sorted(kit.ok("GET", "/snapshots")["snapshots"], key=lambda s: s["name"]))
    for s in kit.ok("GET", "/snapshots")["snapshots"]:
        equal((s["nodes"], s["kind"], s["bytes"] > 0, abs(s["created_ms"] / 1000 - time.time()) < 600), ([0], "cluster", True, True))
    for name in ("a b", "ünïcode ☃", "q\"uo\\te"):
        kit.ok("POST", "/snapshots", {"restore": name})
    for status, body, words in (
        (400, {"save": ""}, ["no name"]), (400, {"save": "."}, ["no name"]), (400, {"save": ".."}, ["no name"]), (400, {"save": ".hidden"}, ["dot in front"]),
        (400, {"save": "../../x"}, ["begins with /"]), (400, {"save": "a/b"}, ["begins with /"]), (400, {"save": "/tmp/.x"}, ["dot in front"]), (400, {"save": "/"}, ["no name"]),
        (400, {"save": "a\nb"}, ["control characters"]), (400, {"save": "x" * 201}, ["200 bytes"]), (400, {"save": "x" * 5000}, ["wanted"]), (400, {"save": 5}, ["\"save\""]),
        (400, {"save": "a", "restore": "b"}, ["wanted"]), (400, {"save": "z", "replace": 1}, ["replace"]), (400, {"sav": "a"}, ["\"sav\""]), (400, {}, ["wanted"]), (400, [], ["wanted"]),
        (400, b"", ["wanted"]), (400, b"{", ["wanted"]), (413, b" " * 1100000, ["1 MB"]), (409, {"save": "a b"}, ["there is a snapshot", "--replace"]), (404, {"restore": "none"}, ["no snapshot"]),
        (404, {"restore": "/none/of/it"}, ["no snapshot"]), (400, {"restore": "../snapshots/a b"}, ["begins with /"]), (500, {"save": "/proc/x"}, ["cannot be made"]),
    ):
        kit.refused(status, "POST", "/snapshots", body, *words)
    for path in (f"{data}/s", f"{data}/node-0/s", f"{data}/snapshots/../node-0/t-0/s", f"{data}/snapshotsx/s"):
        kit.refused(400, "POST", "/snapshots", {"save": path}, "lies in the data", "snapshots")
    kit.ok("POST", "/snapshots", {"save": f"{data}/snapshots/deeper/s"})
    kit.ok("POST", "/snapshots", {"restore": f"{data}/snapshots/deeper/s"})
    shutil.rmtree(data / "snapshots" / "deeper")
    kit.refused(405, "PUT", "/snapshots", {}, "GET lists")
    for status, query, words in ((400, "", ["name="]), (400, "?name=", ["name="]), (404, "?name=none", ["no snapshot"]), (400, "?name=..", ["no name"]), (400, "?name=../node-0", ["begins with /"]),
                                 (404, f"?name={data}/node-0", ["no snapshot"])):
        kit.refused(status, "DELETE", f"/snapshots{query}", None, *words)
    equal(kit.ok("DELETE", "/snapshots?name=a%20b")["name"], "a b")
    kit.refused(404, "POST", "/snapshots", {"restore": "a b"}, "no snapshot")
    (data / "snapshots" / "foreign").mkdir()
    (data / "snapshots" / "foreign" / "precious").write_text("mine")
    kit.refused(409, "POST", "/snapshots", {"save": "foreign", "replace": True}, "is no snapshot that could be replaced")
    kit.refused(404, "DELETE", "/snapshots?name=foreign", None, "no snapshot")
    equal((data / "snapshots" / "foreign" / "precious").read_text(), "mine")
    for damage, words in (("", ["is no snapshot"]), ("{}", ["does not say"]), ('{"kbroker_snapshot": 99}', ["does not say"]), (None, ["is not whole"])):
        if damage is None:
            kit.ok("POST", "/snapshots", {"save": "hurt", "replace": True})
        target = data / "snapshots" / ("hurt" if damage is None else "a.b")
        if damage is None:
            next((target / "data" / "node-0").glob("*/*.log")).write_bytes(b"")
        else:
            (target / "snapshot.json").write_text(damage)
        kit.refused(409, "POST", "/snapshots", {"restore": target.name}, *words)
    equal(kit.states(), ["up"])
    equal([x for x in names(data / "snapshots") if x.startswith(".")] + [x for x in names(data) if x.startswith(".restore")], [])


@test
def a_name_is_replaced_only_when_that_is_said(folder):
    c = Cluster(folder / "c", 1)
    put(c.address, "t", "a")
    snapshot("save", "s", "--data", c.data)
    put(c.address, "t", "b")
    holds(snapshot("save", "s", "--data", c.data, code=1).stderr, "there is a snapshot", "--replace")
    snapshot("save", "s", "--data", c.data, "--replace")
    put(c.address, "t", "c")
    snapshot("restore", "s", "--data", c.data)
    equal(read(c.address, "t"), ["a", "b"])
    equal(names(c.data / "snapshots"), ["s"])
    holds(snapshot("delete", "s", "--data", c.data).stdout, "deleted s")
    equal(names(c.data / "snapshots"), [])
    holds(snapshot("delete", "s", "--data", c.data, code=1).stderr, "no snapshot")
    for args, words in ((["sav", "x"], ["did you mean save"]), (["save"], ["wants a NAME"]), (["save", "a", "b"], ["what is \"b\""]), (["list", "x"], ["what is \"x\""]),
                        (["restore", "a", "--replace"], ["--replace"]), (["save", "x", "--data"], ["--data"])):
        holds(snapshot(*args, code=2).stderr, *words)
    equal(run(KBROKER, "snapshot", "--help").stdout, run(KBROKER, "snapshot").stderr)
    equal([line for line in run(KBROKER, "snapshot", "--help").stdout.splitlines() if len(line) > 80], [])
    holds(snapshot("save", "x", "--data", folder / "nothing", code=1).stderr, "neither a cluster's folder nor a broker's")
    equal((folder / "nothing").exists(), False)


# ---- What goes wrong ----

@test
def where_a_snapshot_is_made_is_nobody_elses(folder):
    """In a folder that others may write to, such as /tmp, somebody could have put there beforehand what the data would be copied into."""
    b = Broker(folder / "d")
    (folder / "elsewhere").mkdir()
    (folder / ".s.partial").symlink_to(folder / "elsewhere")
    holds(snapshot("save", folder / "s", "--data", folder / "d", code=1).stderr, f"{folder}/.s.partial")
    equal((names(folder / "elsewhere"), (folder / "s").exists()), ([], False))
    (folder / ".s.partial").unlink()
    if os.geteuid() == 0:
        (folder / ".s.partial").mkdir(mode=0o777)
        os.chown(folder / ".s.partial", 65534, 65534)
        holds(snapshot("save", folder / "s", "--data", folder / "d", code=1).stderr, f"{folder}/.s.partial", "another user")
        equal((names(folder / ".s.partial"), (folder / "s").exists()), ([], False))
        (folder / ".s.partial").rmdir()
    snapshot("save", folder / "s", "--data", folder / "d")
    equal(b.stop(), 0)


@test
def a_full_disk_leaves_what_was_there(folder):
    small = folder / "small"
    small.mkdir()
    equal(run("mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", small).returncode, 0, "mount")
    try:
        kit = Kit("--data", small / "c", ephemeral=False)
        put(kit.address, "t", *["x" * 999] * 9000)
        kit.ok("POST", "/snapshots", {"save": "fits"})
        seen = kit.refused(500, "POST", "/snapshots", {"save": "not"}, "cannot be copied", "No space left on device")
        holds(seen["error"], "node-0/t-0/")
        kit.refused(500, "POST", "/snapshots", {"save": "fits", "replace": True}, "No space left")
        kit.refused(500, "POST", "/snapshots", {"restore": "fits"}, "No space left", "nothing was changed")
        equal((names(small / "c" / "snapshots"), [x for x in names(small / "c") if x.startswith(".restore")], kit.states()), (["fits"], [], ["up"]))
        equal(len(read(kit.address, "t")), 9000)
        equal(run("mount", "-o", "remount,size=64m", small).returncode, 0)
        put(kit.address, "t", "more")
        kit.ok("POST", "/snapshots", {"restore": "fits"})
        equal(len(read(kit.address, "t")), 9000)
        equal(kit.end(), 0)
    finally:
        run("umount", "-l", small)


@test
def whoever_is_killed_in_the_middle_leaves_what_was_or_what_was_to_be(folder):
    rng = random.Random(5)
    c = Cluster(folder / "c", 3)
    c.create("t", "0:1:2")
    put(c.address, "t", *range(100))
    equal(c.stop(), 0)
    snapshot("save", "old", "--data", c.data)
    c = Cluster(folder / "c", 3)
    put(c.address, "t", *range(100, 200))
    equal(c.stop(), 0)
    snapshot("save", "new", "--data", c.data)
    states, ended, now = {}, 0, "new"
    began = time.monotonic()
    snapshot("restore", "new", "--data", c.data)
    takes = time.monotonic() - began
    for i in range(40):
        want = "old" if i % 2 else "new"
        args = ["restore", want] if i < 24 else ["save", "old" if now == "old" else "new", "--replace"]
        p = subprocess.Popen([KBROKER, "snapshot", *args, "--data", str(c.data)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            equal(p.wait(rng.uniform(0.0, 1.5 * takes)), 0, p.stderr.read())
            ended += 1
        except subprocess.TimeoutExpired:
            p.kill()
            p.wait()
        if i < 24:
            snapshot("save", f"probe{i}", "--data", c.data)  # takes the folder: finishes what was decided
            sizes = {name: json.loads((c.data / "snapshots" / name / "snapshot.json").read_text())["bytes"] for name in ("old", "new", f"probe{i}")}
            now = next(name for name in ("old", "new") if sizes[name] == sizes[f"probe{i}"])
            states[now] = states.get(now, 0) + 1
            snapshot("delete", f"probe{i}", "--data", c.data)
    if len(states) < 2 or not 0 < ended < 40:
        raise AssertionError(f"the kills were not in the middle: {states}, {ended} ended by themselves")
    for name, count in (("new", 200), ("old", 100)):
        snapshot("restore", name, "--data", c.data)
        c = Cluster(folder / "c", 3)
        equal(len(read(c.address, "t")), count, name)
        c.until("t", "all in sync", isr=[0, 1, 2], wait=60)
        equal(c.stop(), 0)
    equal([x for x in names(c.data) if x.startswith(".restore")], [])


@test
def a_parent_that_is_killed_while_it_restores_leaves_what_was_or_what_was_to_be(folder):
    rng, seen = random.Random(3), set()
    c = Cluster(folder / "c", 3)
    c.create("t", "0:1:2", min_insync_replicas=2)
    put(c.address, "t", *range(100))
    snapshot("save", "old", "--data", c.data)
    put(c.address, "t", *range(100, 200))
    snapshot("save", "new", "--data", c.data)
    began = time.monotonic()
    snapshot("restore", "new", "--data", c.data)
    takes, counts = time.monotonic() - began, {"old": 100, "new": 200}
    for i in range(8):
        p = subprocess.Popen([KBROKER, "snapshot", "restore", ("old", "new")[i % 2], "--data", str(c.data)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(rng.uniform(0, takes / 2))
        c.p.kill()
        c.p.wait()
        p.wait(60)
        nobody_left(c.data)
        c = Cluster(folder / "c", 3)
        c.until("t", "all in sync", isr=[0, 1, 2], wait=60)
        count = len(read(c.address, "t"))
        if count not in counts.values():
            raise AssertionError(f"{count} records")
        seen.add(count)
    equal(seen, {100, 200}, "the kills were not in the middle")
    equal([x for x in names(c.data) if x.startswith(".restore")], [])


@test
def a_restore_is_finished_by_the_next_start_wherever_it_was_interrupted(folder):
    b = Broker(folder / "d")
    put(b.address, "t", "a")
    snapshot("save", "s", "--data", folder / "d")
    put(b.address, "t", "b")
    put(b.address, "u", "c")
    equal(b.stop(), 0)
    data = folder / "d" / "snapshots" / "s" / "data"

    def after(prepare):
        shutil.rmtree(folder / "x", ignore_errors=True)
        shutil.copytree(folder / "d", folder / "x", ignore=shutil.ignore_patterns(".admin.sock", "snapshots"))
        prepare(folder / "x")
        x = Broker(folder / "x")
        seen = (read(x.address, "t"), run(KC, "topic", "list", "-b", x.address).stdout.split()[-1])
        equal(x.stop(), 0)
        equal([n for n in names(folder / "x") if n.startswith(".restore")], [])
        return seen

    def moved(folder, *gone):
        shutil.copytree(data, folder / ".restore")
        (folder / ".restore" / ".old").mkdir()
        for name in gone:
            shutil.move(folder / name, folder / ".restore" / ".old" / name)

    def filled(folder, *there):
        moved(folder, *(n for n in names(folder) if n not in (".lock",)))
        (folder / ".restore").rename(folder / ".restored")
        for name in there:
            shutil.move(folder / ".restored" / name, folder / name)

    equal(after(lambda f: shutil.copytree(data, f / ".restore.partial")), (["a", "b"], "u"), "not decided yet")
    shutil.rmtree(folder / "x", ignore_errors=True)
    restored = (["a"], "t")
    equal(after(lambda f: shutil.copytree(data, f / ".restore")), restored)
    equal(after(lambda f: moved(f, "t-0")), restored)
    equal(after(lambda f: moved(f, "u-0", "meta.properties", "__cluster_metadata-0")), restored)
    equal(after(lambda f: filled(f)), restored)
    equal(after(lambda f: filled(f, "t-0", "__cluster_metadata-0")), restored)
    equal(after(lambda f: filled(f, *names(data))), restored)


@test
def nodes_do_not_start_on_what_is_half_restored(folder):
    c = Cluster(folder / "c", 2)
    put(c.address, "t", "a")
    snapshot("save", "s", "--data", c.data)
    put(c.address, "t", "b")
    (c.data / ".restored" / "rest").mkdir(parents=True)  # of a restore whose last step failed
    snapshot("restore", "s", "--data", c.data)
    equal((read(c.address, "t"), (c.data / ".restored").exists()), (["a"], False))
    put(c.address, "t", "b")
    (c.data / ".restored").touch()  # so that the next one cannot be finished
    holds(snapshot("restore", "s", "--data", c.data, code=1).stderr, "cannot be finished", "the next start finishes it")
    r = run(KBROKER, "cluster", "start-node", "0,1", "--data", c.data, timeout=90)
    equal(r.returncode, 1)
    holds(r.stderr, "a restore is not finished", "end the cluster and start it again")
    equal(c.stop(), 0)
    (c.data / ".restored").unlink()
    c = Cluster(folder / "c", 2)
    equal(read(c.address, "t"), ["a"])
    equal(c.stop(), 0)


@test
def a_parent_or_command_that_is_killed_while_nodes_stand_leaves_none_that_stands(folder):
    b = Broker(folder / "d")
    put(b.address, "t", "a")
    junk = folder / "d" / "t-0" / "junk"
    with open(junk, "wb") as f:  # so that it takes a while
        for _ in range(40):
            f.write(os.urandom(10 << 20))

    def standing(pid):
        return open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0] == "T"
    for sig in (signal.SIGKILL, signal.SIGINT):
        p = subprocess.Popen([KBROKER, "snapshot", "save", "big", "--data", str(folder / "d")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        eventually("it stands still", lambda: standing(b.p.pid) or p.poll() is not None)
        p.send_signal(sig)
        if p.wait(60) == 0:
            raise AssertionError("it was saved too fast to be killed")
        eventually("the broker goes on", lambda: not standing(b.p.pid), 60)
        equal(read(b.address, "t"), ["a"])
    equal(names(folder / "d" / "snapshots"), [".big.partial"])
    snapshot("save", "big", "--data", folder / "d")  # what was left there goes
    equal(names(folder / "d" / "snapshots"), ["big"])
    b.p.kill()
    b.p.wait()

    c = Cluster(folder / "c", 3)
    put(c.address, "t", "a")
    shutil.move(junk, c.data / "node-0" / "junk")

    def save(name):
        """Under way: the nodes stand still."""
        pids = [n["pid"] for n in ask(c.data, "GET", "/cluster")[1]["nodes"]]
        p = subprocess.Popen([KBROKER, "snapshot", "save", name, "--data", str(c.data)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        scene._children.append(p)
        eventually("they stand still", lambda: all(map(standing, pids)) or p.poll() is not None)
        return p
    p = save("big1")
    answers = {path: ask(c.data, "GET", path)[1]["nodes"] for path in ("/cluster", "/status")}  # whoever asks meanwhile gets an answer, if a little later
    killed = run(KBROKER, "cluster", "kill-node", 1, "--data", c.data)
    equal(p.wait(60), 0)
    equal([n["state"] for n in answers["/cluster"]], ["up"] * 3, "for that moment they are not called paused")
    equal([n["status"]["state"] for n in answers["/status"]], ["ready"] * 3)
    if killed.returncode:
        holds(killed.stderr, "a snapshot is being saved")
    else:
        c.start(1)
    p = save("big2")
    c.p.terminate()  # nobody is left who stands
    equal(c.p.wait(60), 0)
    p.wait(60)
    nobody_left(c.data)
    equal([x for x in names(c.data / "snapshots") if not (c.data / "snapshots" / x / "snapshot.json").exists()], [])
    c = Cluster(folder / "c", 3)
    p = save("big3")
    c.p.kill()
    c.p.wait()
    p.wait(60)
    nobody_left(c.data)
    c = Cluster(folder / "c", 3)
    equal(read(c.address, "t"), ["a"])
    snapshot("save", "big3", "--data", c.data, "--replace")
    equal(".big3.partial" in names(c.data / "snapshots"), False)


class Asked(threading.Thread):
    """A request that is on its way while the cluster's parent stands still: it finds all that came meanwhile at one moment."""

    def __init__(self, kit, path, body):
        super().__init__()
        self.kit, self.path, self.body, self.seen = kit, path, body, None
        self.start()
        time.sleep(0.1)

    def run(self):
        self.seen = self.kit.ask("POST", self.path, self.body)

    def answer(self):
        self.join(100)
        return self.seen


@test
def a_save_and_an_order_that_come_at_the_same_moment_both_hold(folder):
    kit = Kit(nodes=1)
    node = kit.ok("GET", "/cluster")["nodes"][0]["pid"]
    data = Path(kit.ok("GET", "/cluster")["data"])
    size = 256 << 20
    (data / "node-0" / "ballast").write_bytes(os.urandom(1 << 20) * (size >> 20))
    for i in range(4):  # the server takes them in the one order or the other
        orders = [("/nodes", {"do": "pause", "ids": [0]}), ("/snapshots", {"save": "p", "replace": True})]
        os.kill(kit.p.pid, signal.SIGSTOP)
        asked = [Asked(kit, *o) for o in orders[::1 if i % 2 else -1]]
        os.kill(kit.p.pid, signal.SIGCONT)
        done = {a.path: a.answer() for a in asked}
        equal(done["/snapshots"][0], 200, done)
        if done["/nodes"][0] == 409:  # the save was first
            kit.do("pause", 0)
        else:
            equal(done["/nodes"][0], 200, done)
        equal(kit.states(), ["paused"])
        orders[0] = ("/nodes", {"do": "resume", "ids": [0]})
        os.kill(kit.p.pid, signal.SIGSTOP)
        asked = [Asked(kit, *o) for o in orders[::1 if i % 2 else -1]]
        os.kill(kit.p.pid, signal.SIGCONT)
        copy, ran = data / "snapshots" / ".p.partial" / "data" / "node-0" / "ballast", 0
        while any(a.is_alive() for a in asked):
            try:
                ran += Path(f"/proc/{node}/stat").read_text().rsplit(")", 1)[1].split()[0] != "T" and 0 < copy.stat().st_size < size
            except FileNotFoundError:
                pass
            time.sleep(0.001)
        done = {a.path: a.answer() for a in asked}
        equal((done["/snapshots"][0], ran), (200, 0), "the node stood for as long as it was copied")
        if done["/nodes"][0] == 409:
            kit.do("resume", 0)
        equal(kit.states(), ["up"])
    equal(kit.end(), 0)


@test
def a_start_of_the_machine_since_it_was_saved_is_no_loss_of_power(folder):
    b = Broker(folder / "d")
    put(b.address, "t", "a")
    snapshot("save", "s", "--data", folder / "d")
    boot = (folder / "d" / "kbroker.boot-id").read_text()
    saved = folder / "d" / "snapshots" / "s"
    manifest = json.loads((saved / "snapshot.json").read_text())
    equal((manifest["boot_id"], manifest["synced"]), (boot, True))
    other = "01234567-89ab-cdef-0123-456789abcdef"
    equal(b.stop(), 0)
    for synced, of_file, wanted in ((True, other, boot), (False, other, other), (True, "another" + other[7:], "another" + other[7:])):
        (saved / "snapshot.json").write_text(json.dumps(dict(manifest, boot_id=other, synced=synced)))
        (saved / "data" / "kbroker.boot-id").write_text(of_file)
        snapshot("restore", "s", "--data", folder / "d")
        equal((folder / "d" / "kbroker.boot-id").read_text(), wanted, (synced, of_file))
        b = Broker(folder / "d")
        equal(read(b.address, "t"), ["a"])
        equal("the machine was started anew" in b.text(), wanted != boot)
        equal(b.stop(), 0)


if __name__ == "__main__":
    main()
