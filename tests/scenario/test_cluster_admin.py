"""The cluster as a test kit drives it: one process, its admin port over HTTP, gone with the pipe that it was given."""
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from pathlib import Path

import scene
from scene import KBROKER, KC, ask, equal, eventually, holds, main, run, test
from scene_cluster import Cluster, Kit, nobody_left, processes_of


@test
def a_kits_cluster_says_what_it_is_and_leaves_nothing_behind(folder):
    for nodes, controllers in ((1, 0), (3, 0), (2, 1)):
        kit = Kit(*(["--controllers", controllers] if controllers else []), nodes=nodes)
        seen = kit.ok("GET", "/cluster")
        equal((seen["bootstrap"], seen["ephemeral"], seen["clock"]), (kit.address, True, "real"))
        equal(seen["version"], run(KBROKER, "--version").stdout.split()[1])
        equal([n["id"] for n in seen["nodes"]], [*range(nodes), *range(1000, 1000 + controllers)])
        equal(seen["nodes"][-1]["roles"], ["controller"] if controllers else ["broker", "controller"])
        for n in seen["nodes"]:
            equal(n["state"], "up")
            os.kill(n["pid"], 0)
        equal([n["address"] for n in seen["nodes"]][:nodes], kit.address.split(","))
        equal(run(KC, "produce", "-t", "made-when-used", "-b", kit.address, stdin="a\n").returncode, 0)
        equal(os.stat(f"{seen['data']}/.admin.sock").st_mode & 0o777, 0o600)
        holds(run(KBROKER, "cluster", "status", "--data", seen["data"]).stdout, "node 0 ", " up pid ")
        equal(kit.end(), 0)
        equal((os.path.exists(seen["data"]), processes_of(seen["data"])), (False, []))
        equal(kit.p.stderr.read(), b"")


@test
def it_goes_with_the_process_that_started_it_however_that_ends(folder):
    script = f"import subprocess, sys, time\np = subprocess.Popen([{KBROKER!r}, 'cluster', '--nodes', '2', '--base-port', '0', '--ephemeral', '--until-eof'], stdin=subprocess.PIPE, stdout=subprocess.PIPE)\nprint(p.pid, p.stdout.readline().decode(), flush=True)\ntime.sleep(1000)"
    parent = subprocess.Popen(["python3", "-c", script], stdout=subprocess.PIPE)
    scene._children.append(parent)
    cluster = int(parent.stdout.readline().split()[0])
    nodes = [int(p) for p in run("pgrep", "-P", cluster).stdout.split()]
    equal(len(nodes), 2)
    parent.kill()
    parent.wait()
    eventually("all of them are gone", lambda: not any(os.path.exists(f"/proc/{p}") for p in (cluster, *nodes)), 60)


@test
def folders_of_those_that_were_killed_go_with_the_next_start(folder):
    """And no others: of those that run, of those that somebody runs on, of other programs, or that another name leads to."""
    env = {**os.environ, "TMPDIR": str(folder)}

    def start(*args):
        known = {*folder.iterdir()}
        p = subprocess.Popen([KBROKER, *args], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        scene._children.append(p)
        holds(scene.line_of(p), "ready ")
        return p, ({*folder.iterdir()} - known).pop()

    def kill(p):
        p.kill()
        p.wait()

    cluster, single = ("cluster", "--nodes", "2", "--base-port", "0", "--ephemeral"), ("run", "--ephemeral", "--listen", "127.0.0.1:0")
    lives, left = zip(*(start(*args) for args in (cluster, single, cluster, single)))
    other, elsewhere = folder / "kbroker-others", folder / "elsewhere"
    for d in (other, elsewhere):
        d.mkdir(mode=0o700)
        (d / "precious").write_text("x")
    (elsewhere / ".ephemeral").touch()
    (folder / "kbroker-linked").symlink_to(elsewhere)
    for p, d in zip(lives[:2], left):
        kill(p)
        nobody_left(d)
    equal([d.exists() for d in left], [True] * 4, "whoever is killed leaves its folder")
    start(*cluster)
    equal([d.exists() for d in left], [False, False, True, True], "of those that were killed, and of those that run")
    equal([(d / "precious").exists() for d in (other, elsewhere)], [True, True], "others' folders")
    kill(lives[2])
    nobody_left(left[2])
    on_it = Cluster(left[2], 2)  # --data: somebody wants to know what was in it
    start(*single)
    equal((left[2].exists(), on_it.ok("topic", "list")), (True, ""), "somebody runs on it")
    equal(on_it.stop(), 0)
    start(*single)
    equal([left[2].exists(), left[3].exists()], [False, True])


@test
def data_that_stays_is_stopped_in_order_when_input_ends(folder):
    kit = Kit("--data", folder / "c", nodes=2, ephemeral=False)
    equal(kit.ok("GET", "/cluster")["data"], str(folder / "c"))
    equal(run(KC, "produce", "-t", "t", "-b", kit.address, stdin="kept\n").returncode, 0)
    kit.p.stdin.write(b"whatever is said is not the end\n" * 1000)
    kit.p.stdin.flush()
    equal(kit.states(), ["up", "up"])
    equal(kit.end(), 0)
    holds(kit.p.stderr.read().decode(), "standard input has ended")
    equal([(folder / "c" / f"node-{i}" / ".kafka_cleanshutdown").exists() for i in range(2)], [True, True])
    kit = Kit("--data", folder / "c", nodes=2, ephemeral=False)
    equal(run(KC, "consume", "-t", "t", "-o", "beginning", "-e", "-b", kit.address).stdout, "kept\n")
    for stdin in (subprocess.DEVNULL, (folder / "c" / "cluster.json").open()):  # the end is there at once, or nobody can wait for it
        r = subprocess.run([KBROKER, "cluster", "--nodes", "1", "--base-port", "0", "--ephemeral", "--until-eof"], stdin=stdin, capture_output=True, timeout=60)
        equal((r.returncode, b"--until-eof wants a pipe" in r.stderr), (1, True), r.stderr.decode())


@test
def nodes_are_stopped_killed_paused_resumed_started_wiped_and_added(folder):
    kit = Kit(nodes=3)
    data = kit.ok("GET", "/cluster")["data"]
    before = kit.ok("GET", "/cluster")["nodes"]
    seen = kit.do("kill", 1)
    equal((seen[1]["state"], seen[1]["pid"]), ("down", 0))
    equal(kit.do("stop", 2)[2]["state"], "down")
    equal({i: n["state"] for i, n in kit.do("start", 1, 2).items()}, {0: "up", 1: "up", 2: "up"})
    seen = kit.do("pause", 0, 2)
    equal([seen[i]["state"] for i in range(3)], ["paused", "up", "paused"])
    for node in (0, 2):
        pid = seen[node]["pid"]
        equal({open(f"/proc/{pid}/task/{t}/stat").read().rsplit(")", 1)[1].split()[0] for t in os.listdir(f"/proc/{pid}/task")}, {"T"}, "state of each thread")
    equal(kit.do("resume", 0)[0]["state"], "up")
    seen = kit.do("start", 2)
    equal((seen[2]["state"], seen[2]["pid"] != before[2]["pid"]), ("up", True))
    kit.do("pause", 1)
    equal(kit.do("kill", 1)[1]["state"], "down")
    equal(os.path.exists(f"{data}/node-1"), True)
    kit.do("wipe", 1)
    equal(os.path.exists(f"{data}/node-1"), False)
    equal(kit.do("start", 1)[1]["state"], "up")
    seen = kit.do("add", 3, 4)
    equal([(i, n["state"], n["roles"]) for i, n in seen.items()][3:], [(3, "up", ["broker"]), (4, "up", ["broker"])])
    holds(kit.ok("GET", "/cluster")["bootstrap"], seen[4]["address"])
    os.kill(seen[3]["pid"], signal.SIGSTOP)  # whoever has it stand still
    eventually("it is seen to stand still", lambda: kit.states()[3] == "paused")
    kit.do("resume", 3)
    equal(run(KBROKER, "cluster", "pause-node", "3,4", "--data", data).returncode, 0)
    equal(kit.states(), ["up", "up", "up", "paused", "paused"])
    equal(run(KBROKER, "cluster", "resume-node", "3,4", "--data", data).returncode, 0)
    equal(kit.states(), ["up"] * 5)
    equal(kit.end(), 0)


@test
def what_cannot_be_done_is_refused_and_nothing_is(folder):
    kit = Kit(nodes=2)
    kit.do("kill", 1)
    for status, body, words in (
        (409, {"do": "kill", "ids": [0, 1]}, ["node 1", "does not run", "nothing was done"]), (409, {"do": "start", "ids": [0]}, ["node 0", "runs already"]),
        (409, {"do": "resume", "ids": [0]}, ["not paused"]), (409, {"do": "resume", "ids": [1]}, ["start"]), (409, {"do": "wipe", "ids": [0]}, ["stop or kill it first"]),
        (409, {"do": "add", "ids": [0]}, ["exists"]), (409, {"do": "add", "ids": list(range(2, 12))}, ["at most 9 brokers"]), (404, {"do": "kill", "ids": [0, 7]}, ["node 7", "none of this id"]),
        (400, {"do": "explode", "ids": [0]}, ["explode", "stop, kill, pause"]), (400, {"do": "kil", "ids": [0]}, ["did you mean kill"]), (400, {"ids": [0]}, ["do is missing"]),
        (400, {"do": 5, "ids": [0]}, ["do is missing"]), (400, {"do": "kill"}, ["ids is missing"]), (400, {"do": "kill", "ids": []}, ["ids is missing"]),
        (400, {"do": "kill", "ids": 0}, ["ids is missing"]), (400, {"do": "kill", "ids": ["0"]}, ["numbers"]), (400, {"do": "kill", "ids": [-1]}, ["numbers"]),
        (400, {"do": "kill", "ids": [2**40]}, ["numbers"]), (400, {"do": "kill", "ids": list(range(65))}, ["numbers"]), (400, {"do": "kill", "ids": [0, 0]}, ["named twice"]),
        (400, {"do": "kill", "ids": [0], "when": "now"}, ["\"when\""]), (400, [], ["no object"]), (400, b"", ["{\"do\""]), (400, b"{", ["{\"do\""]), (400, b"\xff\xfe", ["byte 0xff"]),
        (400, b"{\"do\":\"kill\",\"do\":\"stop\",\"ids\":[0]}", ["duplicate"]), (400, b"{}\0", ["zero byte"]), (400, b"[" * 100000, ["depth"]), (413, b"x" * 1100000, ["1 MB"]),
    ):
        kit.refused(status, "POST", "/nodes", body, *words)
    for status, method, path, words in (
        (404, "GET", "/", ["/cluster"]), (404, "GET", "/cluster/", ["/nodes"]), (404, "GET", "/../etc/passwd", ["nothing here"]), (405, "POST", "/cluster", ["GET"]),
        (405, "GET", "/nodes", ["POST"]), (405, "PUT", "/faults", ["DELETE"]), (405, "DELETE", "/status", ["GET"]), (400, "GET", "/status?node=x", ["node="]),
        (400, "GET", "/status?node=", ["node="]), (400, "GET", "/status?node", ["node="]), (400, "GET", "/status?node=0,0", ["twice"]), (404, "GET", "/status?node=0,5", ["node 5"]),
        (409, "GET", "/status?node=1", ["does not run"]), (400, "DELETE", "/faults?rule=x", ["rule="]), (400, "DELETE", "/faults?rule=", ["rule="]), (404, "DELETE", "/faults?rule=9", ["no rule"]),
    ):
        kit.refused(status, method, path, None, *words)
    host = kit.url.split("//")[1]
    for origin, wanted in (("http://evil.example", 403), ("null", 403), (kit.url.replace("http", "https"), 403), (kit.url, 200), (None, 200)):  # pages in a browser
        c = http.client.HTTPConnection(host)
        c.request("GET", "/cluster", headers={"Origin": origin} if origin else {})
        equal(c.getresponse().status, wanted, origin)
        c.close()
    c = http.client.HTTPConnection(host)
    c.request("GET", "/cluster", headers={"Origin": "http://evil.example:80", "Host": "evil.example:80"})  # a name that leads here
    equal(c.getresponse().status, 403)
    c.close()
    equal(kit.states(), ["up", "down"])
    with socket.create_connection(("127.0.0.1", int(kit.url.rsplit(":", 1)[1]))) as s:  # it is not HTTP at all
        s.sendall(b"\x00\x00\x00\x0a" * 1000)
        s.settimeout(30)
        try:
            while s.recv(4096):
                pass
        except ConnectionError:
            pass
    equal(kit.states(), ["up", "down"])


@test
def rules_and_status_are_those_of_all_nodes_or_of_some(folder):
    kit = Kit(nodes=3)
    rule = {"api": "Produce", "topic": "t", "times": 1, "error": "NOT_LEADER_OR_FOLLOWER"}
    equal(kit.ok("POST", "/faults", rule), {"nodes": [{"id": i, "first": 1} for i in range(3)]})
    equal(kit.ok("POST", "/faults?node=2,0", {"rules": [rule, rule]}), {"nodes": [{"id": 2, "first": 2}, {"id": 0, "first": 2}]})
    seen = kit.ok("GET", "/faults")
    equal([(n["id"], [r["number"] for r in n["rules"]]) for n in seen["nodes"]], [(0, [1, 2, 3]), (1, [1]), (2, [1, 2, 3])])
    equal([n["id"] for n in kit.ok("GET", "/faults?node=1")["nodes"]], [1])
    equal(kit.ok("DELETE", "/faults?rule=3"), {"nodes": [{"id": 0, "cleared": 1}, {"id": 1, "cleared": 0}, {"id": 2, "cleared": 1}]})
    kit.refused(404, "DELETE", "/faults?rule=3", None, "no rule")
    equal(kit.ok("DELETE", "/faults?node=0,1&rule=2"), {"nodes": [{"id": 0, "cleared": 1}, {"id": 1, "cleared": 0}]})
    seen = kit.refused(400, "POST", "/faults", {"api": "Fetch", "delay_ms": "long"}, "rule 1", "delay_ms")
    equal((seen["rule"], seen["field"]), (1, "delay_ms"))
    kit.refused(400, "POST", "/faults", {"api": "Ftch", "close": True}, "Fetch")
    kit.refused(413, "POST", "/faults", b" " * 1100000, "1 MB")
    equal(kit.ok("DELETE", "/faults"), {"nodes": [{"id": 0, "cleared": 1}, {"id": 1, "cleared": 1}, {"id": 2, "cleared": 2}]})
    seen = kit.ok("GET", "/status")["nodes"]
    equal([(n["id"], n["status"]["node"], n["status"]["state"]) for n in seen], [(i, i, "ready") for i in range(3)])
    equal([n["id"] for n in kit.ok("GET", "/status?node=2,1")["nodes"]], [2, 1])
    kit.do("pause", 1)
    kit.do("kill", 2)
    for path in ("/status", "/faults"):
        equal([n["id"] for n in kit.ok("GET", path)["nodes"]], [0], path)
    equal(kit.ok("POST", "/faults", rule)["nodes"][0]["id"], 0)
    kit.refused(409, "POST", "/faults?node=0,1", rule, "node 1", "paused")
    kit.do("kill", 0, 1)
    equal(kit.ok("GET", "/status"), {"nodes": []})
    kit.refused(409, "POST", "/faults", rule, "no node runs")


@test
def a_node_that_does_not_answer_is_named_and_holds_nobody_up(folder):
    kit = Kit(nodes=2)
    data = kit.ok("GET", "/cluster")["data"]
    kit.do("kill", 1)
    with socket.socket(socket.AF_UNIX) as s:  # in its place: one that takes the request, and is silent
        os.unlink(f"{data}/node-1/.admin.sock")
        s.bind(f"{data}/node-1/.admin.sock")
        s.listen()
        pid = kit.ok("GET", "/cluster")["nodes"][0]["pid"]
        result = []
        # the node stands still for the parent, too, but only a moment after the parent looked
        os.rename(f"{data}/node-0/.admin.sock", f"{data}/node-0/.admin.away")
        os.symlink(f"{data}/node-1/.admin.sock", f"{data}/node-0/.admin.sock")
        t = threading.Thread(target=lambda: result.append(kit.ask("GET", "/status")))
        began = time.monotonic()
        t.start()
        for _ in range(20):
            equal(kit.ok("GET", "/cluster")["nodes"][0]["pid"], pid)  # meanwhile others are served
        t.join(60)
        if time.monotonic() - began < 14:
            raise AssertionError("it did not wait")
        equal(result[0][0], 500)
        holds(result[0][1]["error"], "node 0 did not answer within 15 s")


@test
def a_rule_that_no_node_took_is_no_success(folder):
    kit = Kit(nodes=1)
    node = Path(kit.ok("GET", "/cluster")["data"]) / "node-0"
    os.rename(node / ".admin.sock", node / ".admin.away")  # as while it starts
    for method in ("POST", "DELETE"):
        kit.refused(409, method, "/faults", {"api": "Produce", "close": True}, "no node serves")
    equal(kit.ok("GET", "/faults"), {"nodes": []})
    os.rename(node / ".admin.away", node / ".admin.sock")
    equal(kit.ok("GET", "/faults"), {"nodes": [{"id": 0, "rules": []}]})


@test
def one_virtual_clock_for_all_nodes_whenever_they_hear_of_it(folder):
    day = 86400_000
    kit = Kit("--clock", "virtual", nodes=3)
    data = Path(kit.ok("GET", "/cluster")["data"])
    equal(kit.ok("GET", "/cluster")["clock"], "virtual")

    def nodes():
        return [ask(data / f"node-{i}", "GET", "/clock")[1]["advanced_ms"] for i in range(3)]
    seen = kit.ok("POST", "/clock", {"advance_ms": day})
    equal((seen["clock"], seen["advanced_ms"], abs(seen["wall_ms"] / 1000 - time.time() - 86400) < 600), ("virtual", day, True), seen)
    equal(nodes(), [day] * 3)
    kit.do("pause", 1)
    kit.do("kill", 2)
    equal(kit.ok("POST", "/clock", {"advance_ms": day})["advanced_ms"], 2 * day)  # of those that can hear of it
    equal(kit.ok("POST", "/clock", {"advance_ms": 5})["advanced_ms"], 2 * day + 5)
    kit.do("resume", 1)
    kit.do("start", 2)
    kit.do("add", 3)
    equal([*nodes(), ask(data / "node-3", "GET", "/clock")[1]["advanced_ms"]], [2 * day + 5] * 4)
    kit.ok("POST", "/snapshots", {"save": "s"})
    kit.ok("POST", "/clock", {"advance_ms": 0})
    waiting = [threading.Thread(target=kit.ok, args=("POST", "/clock", {"advance_ms": 1})) for _ in range(10)]
    pausing = threading.Thread(target=lambda: (kit.do("pause", 0), kit.do("resume", 0), kit.do("kill", 1), kit.do("start", 1)))
    for t in (*waiting, pausing):
        t.start()
    for t in (*waiting, pausing):
        t.join()
    equal(nodes(), [2 * day + 15] * 3)
    kit.ok("POST", "/snapshots", {"restore": "s"})
    equal((nodes(), kit.ok("GET", "/clock")["advanced_ms"]), ([2 * day + 15] * 3, 2 * day + 15), "time does not go back")
    for body, words in (({"advance_ms": -1}, ["negative"]), ({"advance_ms": 1.5}, ["whole"]), ({"advance_ms": "1"}, ["whole"]), ({}, ["wanted"]), ([], ["wanted"]), (b"", ["wanted"]),
                        ({"advance_ms": 10**13}, ["hundred years"]), ({"advance_ms": 1, "x": 2}, ["wanted"]), ({"advance_ms": 10**30}, ["wanted"])):
        kit.refused(400, "POST", "/clock", body, *words)
    kit.refused(405, "DELETE", "/clock", None, "GET tells")
    equal(kit.end(), 0)
    kit = Kit(nodes=1)
    equal(kit.ok("GET", "/clock")["clock"], "real")
    kit.refused(409, "POST", "/clock", {"advance_ms": 1}, "--clock virtual")
    r = run(KBROKER, "cluster", "--nodes", "1", "--clock", "fast")
    equal(r.returncode, 2)
    holds(r.stderr, "real or virtual")


@test
def a_folder_need_not_be_of_utf_8(folder):
    data = os.fsencode(folder) + b"/caf\xe9 \"q\""
    kit = Kit("--data", os.fsdecode(data), ephemeral=False)
    equal(kit.ok("GET", "/cluster")["data"], f'{folder}/caf? "q"')
    kit.ok("POST", "/snapshots", {"save": "s"})
    kit.refused(409, "POST", "/snapshots", {"save": "s"}, 'caf? "q"/snapshots/s')
    kit.ok("POST", "/snapshots", {"restore": "s"})
    equal(run(KBROKER, "snapshot", "save", b"caf\xe9".decode("utf-8", "surrogateescape"), "--data", data).returncode, 1)
    equal(kit.end(), 0)


@test
def many_ask_at_the_same_time_and_some_hang_up(folder):
    kit = Kit(nodes=2)
    host = kit.url.split("//")[1]
    for i in range(40):  # they do not wait for the answer
        c = http.client.HTTPConnection(host)
        c.request("POST", "/nodes", json.dumps({"do": "pause" if i % 2 == 0 else "resume", "ids": [1]}))
        c.close()
    goes_on = []

    def settled():  # none of them is still under way
        kit.ask("POST", "/nodes", {"do": "resume", "ids": [1]})
        goes_on.append(kit.states()[1] == "up")
        return len(goes_on) >= 10 and all(goes_on[-10:])
    eventually("it goes on", settled, 60)
    results = []
    threads = [threading.Thread(target=lambda: results.append(kit.ask("GET", "/status"))) for _ in range(30)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    equal([r for r in results if r[0] != 200], [])
    starts = []
    kit.do("kill", 0, 1)
    waiting = threading.Thread(target=lambda: starts.append(kit.ask("POST", "/nodes", {"do": "start", "ids": [0, 1]})))
    waiting.start()
    waiting.join()
    equal(starts[0][0], 200)
    equal(kit.end(), 0)


@test
def more_connections_than_it_takes_do_not_end_the_admin_port(folder):
    kit = Kit(nodes=1)
    host, port = kit.url.split("//")[1].split(":")
    for held in (False, True):
        idle = [socket.create_connection((host, int(port))) for _ in range(100)]
        time.sleep(0.5)
        for s in [] if held else idle:
            s.close()
        equal(kit.ask("GET", "/cluster", timeout=60)[0], 200)  # held: once those that say nothing have been given up
        for s in idle:
            s.close()
    equal(kit.end(), 0)


@test
def the_admin_port_listens_where_it_is_told(folder):
    for address, words in (("x", ["HOST:PORT"]), ("127.0.0.1:x", ["HOST:PORT"]), ("70000", ["HOST:PORT"]), ("no.such.host.invalid:0", ["is the host's name right"])):
        r = run(KBROKER, "cluster", "--nodes", 1, "--base-port", 0, "--ephemeral", "--admin", address)
        equal((r.returncode, r.stdout), (1, ""), address)
        holds(r.stderr, f"--admin {address}", *words)
    p = subprocess.Popen([KBROKER, "cluster", "--nodes", "1", "--base-port", "0", "--ephemeral", "--admin", "[::1]:0", "--until-eof"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    scene._children.append(p)
    url = re.fullmatch(r"admin (http://\[::1\]:\d+)\n", p.stdout.readline().decode()).group(1)
    with urllib.request.urlopen(f"{url}/cluster", timeout=60) as r:
        equal(json.loads(r.read())["nodes"][0]["id"], 0)


@test
def a_port_or_folder_that_is_taken_says_who_has_it(folder):
    c = Cluster(folder / "c", 2)
    pids = {a: line.split()[-1] for a, line in zip(c.addresses, run(KBROKER, "cluster", "status", "--data", c.data).stdout.splitlines())}
    for address in c.addresses:
        port = int(address.rsplit(":", 1)[1])
        mine = ["Address already in use: process ", f"process {pids[address]} ({KBROKER} run --data {c.data}/node-"[:90], f"listens at 127.0.0.1 port {port}"]
        r = run(KBROKER, "cluster", "--nodes", 1, "--base-port", port, "--data", folder / "d")
        equal((r.returncode, r.stdout), (1, ""))
        holds(r.stderr, *mine, "--base-port P", "stop that program")
        for options in (["run", "--ephemeral", "--listen", address], ["run", "--ephemeral", "--listen", f":{port}"], ["run", "--ephemeral", "--listen", f"0.0.0.0:{port}"],
                        ["run", "--ephemeral", "--listen", "127.0.0.1:0", "--set", f"admin.listener={address}"], ["cluster", "--nodes", 1, "--base-port", 0, "--ephemeral", "--admin", port]):
            r = run(KBROKER, *options)
            equal((r.returncode, r.stdout), (1, ""), options)
            holds(r.stderr, *mine, "choose another")
    for where, shown in (("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "0.0.0.0"), ("::", "::")):  # whoever it is
        with socket.socket(socket.AF_INET6 if ":" in where else socket.AF_INET) as s:
            s.bind((where, 0))
            s.listen()
            port = s.getsockname()[1]
            r = run(KBROKER, "run", "--ephemeral", "--listen", f"127.0.0.1:{port}")
            equal(r.returncode, 1)
            holds(r.stderr, f"process {os.getpid()} (", "python3", f"listens at {shown} port {port}")
    r = run(KBROKER, "cluster", "--nodes", 2, "--data", c.data)
    equal(r.returncode, 1)
    holds(r.stderr, f"a cluster runs in {c.data} already, process {c.p.pid}: end that one")
    equal(c.stop(), 0)
    again = Cluster(folder / "c", 2)
    equal(again.addresses, c.addresses)


@test
def ports_of_nodes_that_are_down_stay_theirs(folder):
    c = Cluster(folder / "c", 3)
    c.kill(1)
    host, port = c.addresses[1].rsplit(":", 1)
    with socket.socket() as s:
        try:
            s.bind((host, int(port)))
            raise AssertionError(f"{port} is to be had")
        except OSError:
            pass
        if s.connect_ex((host, int(port))) == 0:
            raise AssertionError(f"somebody listens at {port}")
    c.start(1)
    equal(c.stop(), 0)
    again = Cluster(folder / "c", 3)  # with ports that it had before
    equal(again.addresses, c.addresses)
    again.kill(0, 1, 2)
    again.start(0, 1, 2)
    kits = []
    threads = [threading.Thread(target=lambda: kits.append(Kit())) for _ in range(12)]  # all look for free ports at the same moment
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    equal(len({kit.address for kit in kits} | set(again.addresses)), 15)


@test
def words_that_do_not_go_together_are_usage_errors(folder):
    for args, words in ((["--ephemeral"], ["--nodes N"]), (["--nodes", "1", "--ephemeral", "--data", "d"], ["--ephemeral", "--data"]), (["--nodes", "1", "--admin"], ["--admin needs a value"]),
                        (["--nodes", "1", "--until-eoff"], ["--until-eof"]), (["--nodes", "1", "--ephemera"], ["--ephemeral"]),
                        (["--nodes", "2", "--set", "admin.listener=127.0.0.1:8080"], ["admin.listener", "one node", "--admin", "port 0"])):
        r = run(KBROKER, "cluster", *args, cwd=folder)
        equal((r.returncode, r.stdout), (2, ""), " ".join(args))
        holds(r.stderr, *words)
    equal(os.listdir(folder), [])


if __name__ == "__main__":
    main()
