"""--clock virtual and /clock of a node's admin port: what is due by then has happened when the answer is there, a cluster does not notice a day that is skipped,
wrong advances are refused."""
import json
import re
import socket
import subprocess
import tempfile
import time

import scene
from scene import KBROKER, KC, Broker, ask, equal, eventually, holds, kc, main, run, test
from scene_group import Kcat, described

HOUR, DAY = 3600_000, 86400_000


def advance(data, ms):
    status, answer = ask(data, "POST", "/clock", {"advance_ms": ms})
    equal((status, answer["clock"]), (200, "virtual"), answer)
    return answer


def make(b, topic, *config):
    r = kc(b, "topic", "create", topic, *(x for c in config for x in ("--config", c)))
    equal((r.returncode, r.stderr), (0, ""))


def send(b, topic, *values):
    r = kc(b, "produce", "-t", topic, stdin="".join(f"{v}\n" for v in values))
    equal((r.returncode, r.stderr), (0, ""))


def read(b, topic):
    r = kc(b, "consume", "-t", topic, "-o", "beginning", "-e")
    equal(r.returncode, 0, r.stderr)
    return r.stdout.split()


@test
def records_leave_by_their_retention_when_the_clock_is_advanced(folder):
    b = Broker(folder / "d", "--clock", "virtual")
    make(b, "t", "retention.ms=3600000")
    send(b, "t", "a", "b")
    advance(folder / "d", HOUR - 60_000)
    equal(read(b, "t"), ["a", "b"])
    answer = advance(folder / "d", 120_000)
    equal(answer["advanced_ms"], HOUR + 60_000)
    eventually("the records are gone", lambda: read(b, "t") == [])
    send(b, "t", "c")  # by this program's clock it is older than the retention
    advance(folder / "d", 1)
    time.sleep(0.2)
    equal(read(b, "t"), ["c"])
    equal(b.stop(), 0)
    first = b.text().splitlines()[0][:24]  # log lines tell the virtual time
    last = b.text().splitlines()[-1][:24]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", last), last
    t = [time.mktime(time.strptime(x[:19], "%Y-%m-%dT%H:%M:%S")) for x in (first, last)]
    assert HOUR / 1000 <= t[1] - t[0] < HOUR / 1000 + 600, (first, last)


@test
def a_group_loses_its_members_and_gets_them_back(folder):
    b = Broker(folder / "d", "--clock", "virtual")
    make(b, "t")
    send(b, "t", "a")
    m = Kcat(b.address, "g", "t")
    eventually("a member", lambda: described(b, "g").get("state") == "Stable" and len(described(b, "g")["members"]) == 1, 60)
    old = described(b, "g")["members"][0]["id"]
    advance(folder / "d", 60_000)
    holds(b.text(), f"member {old} was silent for its session timeout")
    eventually("it is back", lambda: [x["id"] for x in described(b, "g").get("members", [])] not in ([], [old]), 60)
    m.end()


@test
def a_guid_is_forgotten_after_its_window(folder):
    b = Broker(folder / "d", "--clock", "virtual")
    make(b, "t", "message.guid.dedup=true")
    one = ["produce", "-t", "t", "--guid", "01890a5d-ac96-774b-bcce-b302099a8057"]
    for _ in range(2):
        equal(kc(b, *one, stdin="a\n").returncode, 0)
    equal(read(b, "t"), ["a"])
    advance(folder / "d", HOUR + HOUR // 16 + 60_000)
    equal(kc(b, *one, stdin="a\n").returncode, 0)
    equal(read(b, "t"), ["a", "a"])


@test
def what_is_no_advance_is_refused(folder):
    b = Broker(folder / "d", "--clock", "virtual+3600000")
    data = folder / "d"
    equal(ask(data, "GET", "/clock")[1]["advanced_ms"], HOUR)
    assert abs(ask(data, "GET", "/clock")[1]["wall_ms"] - HOUR - time.time() * 1000) < 60_000
    for body, words in (({"advance_ms": -1}, ["advance_ms", "negative"]), ({"advance_ms": 1.5}, ["advance_ms", "whole number"]), ({"advance_ms": "1"}, ["advance_ms", "whole number"]),
                        ({"advance_ms": 1 << 62}, ["advance_ms", "hundred years"]), ({}, ["advance_ms"]), ({"advance_ms": 1, "by": 2}, ["unknown field \"by\""]), ("[1]", ["object"]),
                        ("{", ["not JSON"]), ("", ["not JSON"]), ('{"advance_ms":1,"advance_ms":2}', ["not JSON"]), ('{"advance_ms":1e400}', ["not JSON"])):
        status, answer = ask(data, "POST", "/clock", body)
        equal(status, 400, body)
        holds(answer["error"], *words)
    equal(ask(data, "DELETE", "/clock")[0], 405)
    equal(ask(data, "GET", "/clock")[1]["advanced_ms"], HOUR)
    equal(b.stop(), 0)
    b = Broker(folder / "e")
    status, answer = ask(folder / "e", "POST", "/clock", {"advance_ms": 1})
    equal(status, 409)
    holds(answer["error"], "--clock virtual")
    equal(ask(folder / "e", "GET", "/clock")[1]["clock"], "real")
    equal(b.stop(), 0)
    for word in ("virtual+", "virtual-1", "virtual+x", "virtual+1x", "fast", "virtual+99999999999999999", "virtual+ 1"):
        r = run(KBROKER, "run", "--ephemeral", "--clock", word)
        equal(r.returncode, 2, word)
        holds(r.stderr, "virtual+MS", word)


def free_ports(n):
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [s.getsockname()[1] for s in held]
    for s in held:
        s.close()
    return ports


class Node(Broker):
    """One of several that start together: none is ready before the others are there."""

    def __init__(self, data, port, *sets):
        self.data, self.address, self.log = data, f"127.0.0.1:{port}", tempfile.TemporaryFile()
        args = [KBROKER, "run", "--data", str(data), "--listen", self.address, "--clock", "virtual", *(x for s in sets for x in ("--set", s))]
        self.p = subprocess.Popen(args, stdout=subprocess.DEVNULL, stderr=self.log)
        scene._children.append(self.p)


def quorum(folder):
    """Three nodes by hand: what kbroker cluster makes of --clock is its own tests' matter."""
    ports = free_ports(3)
    voters = ",".join(f"{i}@127.0.0.1:{p}" for i, p in enumerate(ports))
    return [Node(folder / f"n{i}", p, f"node.id={i}", "process.roles=broker,controller", f"controller.quorum.voters={voters}") for i, p in enumerate(ports)]


def state(b):
    """What must not change: each partition's leader, its epoch and who is in sync; the controller and its epoch."""
    r = run(KC, "topic", "describe", "t", "--json", "-b", b.address)
    s = ask(b.data, "GET", "/status")[1]
    if r.returncode or s["state"] != "ready":
        return None
    return [(p["partition"], p["leader"], p["leader_epoch"], sorted(p["isr"])) for p in json.loads(r.stdout)["partitions"]], s["controller"], s["epoch"]


@test
def a_cluster_does_not_notice_that_a_day_was_skipped(folder):
    nodes = quorum(folder)
    b = nodes[0]
    eventually("a topic", lambda: run(KC, "topic", "create", "t", "--partitions", 6, "--rf", 3, "-b", b.address).returncode == 0, 60)
    eventually("all in sync", lambda: (s := state(b)) and all(len(p[3]) == 3 for p in s[0]), 60)
    send(b, "t", *range(50))
    before = state(b)
    for _ in range(5):
        for n in nodes:
            advance(n.data, DAY)
        send(b, "t", *range(10))
        equal(state(b), before)
    time.sleep(4)  # broker.session.timeout.ms, and the quorum's
    equal(state(b), before)
    equal(len(read(b, "t")), 100)
    for n in nodes:
        s = ask(n.data, "GET", "/status")[1]["counts"]
        equal((s["brokers_fenced"], s["truncations"], s["unclean_elections"]), (0, 0, 0), n.text())
    for n in nodes:
        equal(n.stop(), 0)


if __name__ == "__main__":
    main()
