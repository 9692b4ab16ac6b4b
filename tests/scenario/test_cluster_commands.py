"""kc on a cluster that is changed while it works: elections, moves onto a broker that was added, brokers that go for good."""
import json
import os
import pty
import signal
import subprocess
import threading

import scene
from scene import KC, equal, eventually, holds, main, run, test, until_caught
from scene_cluster import Cluster

# Those that the tests of the other commands (test_cli.py) leave to this file: they want more than one broker.
COMMANDS = [["elect"], ["reassign"], ["unregister"]]


@test
def wrong_words_are_usage_errors_that_name_the_right_one(folder):
    for args, words in (
        (["elect"], ["preferred|unclean"]), (["elect", "prefered", "t"], ["'preferred' nor 'unclean'"]), (["elect", "preferred"], ["--all"]), (["elect", "preferred", "t", "--all"], ["without topics"]),
        (["elect", "unclean", "t:x"], ["TOPIC:PARTITION"]), (["elect", "unclean", "t:-1"], ["TOPIC:PARTITION"]), (["elect", "unclean", ":1"], ["TOPIC:PARTITION"]), (["reassing"], ["reassign"]),
        (["reassign"], ["TOPIC or TOPIC:PARTITION"]), (["reassign", "t"], ["--to ID,..."]), (["reassign", "t", "--to", "0,0"], ["each once"]), (["reassign", "t", "--to", "a"], ["1,2,3"]),
        (["reassign", "t", "--to", "0", "--replicas", "0"], ["either"]), (["reassign", "t", "--replicas", "0:1,2"], ["0:1:2,1:2:0"]), (["reassign", "t", "--replicas", "0", "--rf", "1"], ["--rf"]),
        (["reassign", "t", "--to", "0", "--rf", "0"], ["from 1"]), (["reassign", "--list", "--to", "0"], ["--list goes alone"]), (["reassign", "--cancel"], ["--all"]),
        (["reassign", "--cancel", "t", "--all"], ["without topics"]), (["reassign", "t", "--to", "0", "--all"], ["--cancel"]), (["reassign", "t:y", "--to", "0"], ["TOPIC:PARTITION"]),
        (["unregister"], ["BROKER"]), (["unregister", "x"], ["kc cluster"]), (["unregister", "-1"], ["no option"]), (["unregister", "1", "--forse"], ["--force"]),
    ):
        r = run(KC, *args)
        equal((r.returncode, r.stdout), (2, ""), " ".join(args))
        holds(r.stderr, *words)
    for c in COMMANDS:
        r = run(KC, *c, "--help")
        equal((r.returncode, r.stderr), (0, ""), f"{c} --help")
        equal([line for line in r.stdout.splitlines() if len(line) > 80], [], f"lines of {c} --help")


def lines(text):
    return [json.loads(x) for x in text.splitlines()]


@test
def the_preferred_leader_comes_back_and_an_unclean_one_is_told(folder):
    c = Cluster(folder / "c", 3)
    c.ok("topic", "create", "t", "--replicas", "0:1:2,1:2:0")
    c.ok("topic", "create", "u", "--replicas", "0")
    c.until("t", "all in sync", leader=0, isr=[0, 1, 2])
    r = c.kc("elect", "preferred", "--all")
    equal((r.returncode, r.stdout, r.stderr), (0, "nothing to elect: the preferred replica leads each partition\n", ""))
    equal(c.ok("elect", "preferred", "t:0"), "t partition 0: broker 0 leads already\n")
    c.kill(0)
    c.until("t", "1 leads", leader=1, isr=[1, 2])
    r = c.kc("elect", "preferred", "t:0", "--json")
    equal(r.returncode, 1)
    equal([(x["topic"], x["partition"], x["elected"], x["error"]) for x in lines(r.stdout)], [("t", 0, False, "PREFERRED_LEADER_NOT_AVAILABLE")])
    holds(r.stderr, "t partition 0", "PREFERRED_LEADER_NOT_AVAILABLE")
    r = c.kc("elect", "unclean", "u")  # there is no other replica
    equal((r.returncode, r.stdout), (1, ""))
    holds(r.stderr, "u partition 0", "ELIGIBLE_LEADERS_NOT_AVAILABLE")
    c.start(0)
    c.until("t", "0 in sync again", isr=[0, 1, 2])
    equal(c.ok("elect", "preferred", "--all"), "t partition 0: broker 0 leads now\n")
    c.until("t", "0 leads", leader=0)
    equal(lines(c.ok("elect", "preferred", "t", "--json")),
          [{"topic": "t", "partition": n, "elected": False, "leader": n, "error": "ELECTION_NOT_NEEDED", "message": x["message"]}
           for n, x in enumerate(lines(c.ok("elect", "preferred", "t", "--json")))])
    r = c.kc("elect", "preferred", "t:7")
    equal(r.returncode, 1)
    holds(r.stderr, "no partition t:7", "kc topic list")
    r = c.kc("elect", "preferred", "t", "t:1")
    equal(r.returncode, 2)
    holds(r.stderr, "'t' and 't:1' name the same partition")


@test
def an_unclean_election_brings_a_partition_back_without_what_was_lost(folder):
    c = Cluster(folder / "c", 3, controllers=1)
    c.create("t", "0:1", min_insync_replicas=1)
    c.until("t", "both in sync", leader=0, isr=[0, 1])
    equal(c.produce("t", "kept"), "")
    c.kill(1)
    c.until("t", "0 alone", leader=0, isr=[0])
    equal(c.produce("t", "lost"), "")
    c.kill(0)
    c.until("t", "no leader", leader=-1)
    c.start(1)
    c.until("t", "no leader still", leader=-1, isr=[0])
    r = c.kc("elect", "preferred", "t:0")
    equal(r.returncode, 1)
    equal(c.ok("elect", "unclean", "t:0"), "t partition 0: broker 1 leads now\n")
    c.until("t", "1 leads", leader=1, isr=[1])
    c.reads("t", ["kept"])
    seen = json.loads(c.ok("cluster", "--json"))  # the controller, a process of its own, counted it
    equal((seen["counts"]["unclean_elections"], seen["counts"]["brokers_fenced"]), (1, 2))
    equal([b["id"] for b in seen["brokers"] if "problem" in b], [0])
    holds(seen["brokers"][0]["problem"], "down, last seen ")
    holds(c.ok("cluster"), "counted since the nodes' start: ", "unclean_elections 1")


@test
def partitions_move_onto_a_broker_that_was_added_under_load(folder):
    c = Cluster(folder / "c", 3)
    c.ok("topic", "create", "t", "--partitions", 8, "--rf", 3, "--config", "min.insync.replicas=2")
    c.do("add-node", 3)
    eventually("broker 3 is up", lambda: any(b["id"] == 3 and b["up"] for b in json.loads(c.ok("cluster", "--json"))["brokers"]))
    r = c.ok("reassign", "t", "--to", "0,1,2,3", "--dry-run")
    holds(r, "topic  partition  now", "6 of 8 partitions to change, 6 replicas to copy")
    equal(c.ok("reassign", "--list"), "no partition is being moved\n")
    plan = lines(c.ok("reassign", "t", "--to", "0,1,2,3", "--dry-run", "--json"))
    equal((len(plan), {x["state"] for x in plan}), (8, {"planned", "unchanged"}))
    writer = subprocess.Popen([KC, "produce", "-b", c.address, "-t", "t", "--rate", "500"], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    scene._children.append(writer)
    sent = [f"v{i}" for i in range(2000)]
    result = []
    t = threading.Thread(target=lambda: result.append(writer.communicate("".join(f"{v}\n" for v in sent).encode(), timeout=60)))
    t.start()
    out = c.ok("reassign", "t", "--to", "0,1,2,3", timeout=120)
    holds(out, "6 of 8 partitions to change", "moved 6 partitions in ")
    ps = c.partitions("t")
    equal(sorted(sum(b in p["replicas"] for p in ps) for b in range(4)), [6, 6, 6, 6], "replicas of each broker")
    c.ok("elect", "preferred", "t")
    t.join()
    equal(writer.returncode, 0, result[0][1].decode())
    seen = []
    for n in range(8):
        r = c.kc("consume", "-t", "t", "-p", n, "-o", "beginning", "-e", timeout=60)
        seen += r.stdout.split()
    equal(sorted(seen), sorted(sent), "records")
    # Broker 0 goes: what it has moves away, and it leaves.
    r = c.kc("unregister", "0")
    equal((r.returncode, r.stdout), (1, ""))
    holds(r.stderr, "broker 0 is up")
    out = lines(c.ok("reassign", "t", "--to", "1,2,3", "--json", timeout=120))
    equal({x["state"] for x in out if 0 in x["from"]}, {"moved"})
    equal({tuple(sorted(x["to"])) for x in out}, {(1, 2, 3)})
    equal([p for p in c.partitions("t") if 0 in p["replicas"]], [])
    r = c.kc("reassign", "t", "--to", "1,9")
    equal(r.returncode, 1)
    holds(r.stderr, "no broker 9", "kc cluster")
    r = c.kc("reassign", "t", "--to", "1,2")
    equal(r.returncode, 2)
    holds(r.stderr, "t needs 3 replicas", "--rf")
    r = c.kc("reassign", "t:0", "t:1", "--replicas", "1:2:3")
    equal(r.returncode, 2)
    holds(r.stderr, "1 partition, and 2 are named")
    holds(c.ok("reassign", "t:0", "t:1", "--replicas", "2:1,3:2", timeout=60), "2 of 2 partitions to change, 0 replicas to copy", "moved 2 partitions")
    equal([p["replicas"] for p in c.partitions("t")][:2], [[2, 1], [3, 2]])
    equal(c.ok("reassign", "t:0", "t:1", "--replicas", "2:1,3:2"), "0 of 2 partitions to change, 0 replicas to copy\n")


@test
def a_move_is_shown_outlives_ctrl_c_and_can_be_stopped(folder):
    c = Cluster(folder / "c", 3)
    c.create("t", "0:1")
    c.until("t", "in sync", isr=[0, 1])
    equal(c.produce("t", *(f"v{i}" for i in range(50))), "")
    for n in (0, 1):  # of this topic alone: of the metadata broker 2 is to hear
        c.fault(n, {"api": "Fetch", "client_id": "kbroker-2", "topic": "t", "stall": True})
    main_end, terminal = pty.openpty()
    p = subprocess.Popen([KC, "reassign", "-b", c.address, "t", "--to", "2", "--rf", "1"], stdout=subprocess.PIPE, stderr=terminal)
    os.close(terminal)
    scene._children.append(p)
    shown = bytearray()

    def progress():
        shown.extend(os.read(main_end, 65536))
        return b"1 of 1 partitions left" in shown
    eventually("progress", progress)
    until_caught(p, signal.SIGINT)
    p.send_signal(signal.SIGINT)
    out = p.communicate(timeout=20)[0].decode()
    os.set_blocking(main_end, False)
    try:
        while more := os.read(main_end, 65536):
            shown.extend(more)
    except OSError:
        pass
    os.close(main_end)
    equal(p.returncode, 1)
    holds(out, "1 of 1 partitions to change, 1 replicas to copy")
    holds(shown.decode(), "the move goes on in the cluster", "--cancel stops it")
    moving = lines(c.ok("reassign", "--list", "--json"))
    equal([(m["topic"], m["partition"], sorted(m["adding"]), sorted(m["removing"])) for m in moving], [("t", 0, [2], [0, 1])])
    holds(moving[0]["problem"], "being moved; waiting for broker 2")
    holds(c.ok("reassign", "--list"), "being moved; waiting for broker 2")
    equal(c.ok("reassign", "--list", "t:0"), c.ok("reassign", "--list"))
    equal(c.ok("reassign", "t", "--to", "2", "--rf", "1", "--dry-run"), "0 of 1 partitions to change, 0 replicas to copy\n")
    equal(c.ok("reassign", "--cancel", "t"), "t partition 0 stays where it was\n")
    c.until("t", "as before", replicas=[0, 1], isr=[0, 1])
    equal(c.ok("reassign", "--cancel", "--all"), "no partition is being moved\n")
    equal(c.ok("reassign", "--list", "--json"), "")
    equal(lines(c.ok("reassign", "t", "--to", "2", "--rf", "1", "--no-wait", "--json"))[0]["state"], "moving")
    equal(lines(c.ok("reassign", "--cancel", "--all", "--json")), [{"topic": "t", "partition": 0, "state": "cancelled"}])
    equal(c.consume("t"), [f"v{i}" for i in range(50)])


@test
def a_broker_that_will_not_come_back_is_unregistered(folder):
    c = Cluster(folder / "c", 3)
    c.do("add-node", 3)
    eventually("broker 3 is up", lambda: any(b["id"] == 3 and b["up"] for b in json.loads(c.ok("cluster", "--json"))["brokers"]))
    c.ok("topic", "create", "orders", "--replicas", "0:3:1")
    c.until("orders", "in sync", isr=[0, 1, 3])
    c.kill(3)
    eventually("broker 3 is down", lambda: any(b["id"] == 3 and not b["up"] for b in json.loads(c.ok("cluster", "--json"))["brokers"]))
    r = c.kc("unregister", 3)
    equal((r.returncode, r.stdout), (1, ""))
    holds(r.stderr, "holds replicas of 1 partition", "kc reassign")
    # The examples of the help, on this cluster: the one that moves onto broker 3 says that it is down.
    r = c.kc("reassign", "orders", "--to", "0,1,3", "--dry-run")
    holds(r.stderr, "broker 3 is down")
    holds(c.ok("reassign", "orders", "--to", "0,1,2", timeout=60), "moved 1 partition in ")
    equal(lines(c.ok("unregister", 3, "--json")), [{"broker": 3, "unregistered": True}])
    eventually("it is gone", lambda: all(b["id"] != 3 for b in json.loads(c.ok("cluster", "--json"))["brokers"]))
    r = c.kc("unregister", 3)
    equal(r.returncode, 1)
    holds(r.stderr, "there is no broker 3", "BROKER_ID_NOT_REGISTERED")


@test
def the_examples_of_help_run(folder):
    c = Cluster(folder / "c", 3)
    c.do("add-node", 3)
    eventually("broker 3 is up", lambda: any(b["id"] == 3 and b["up"] for b in json.loads(c.ok("cluster", "--json"))["brokers"]))
    c.ok("topic", "create", "orders", "--partitions", 4, "--rf", 3)
    eventually("all in sync", lambda: all(len(p["isr"]) == 3 for p in c.partitions("orders")))
    for command in COMMANDS:
        for line in run(KC, *command, "--help").stdout.split("examples:\n")[1].splitlines():
            if command == ["unregister"]:
                c.ok("reassign", "orders", "--to", "0,1,2", timeout=60)
                c.kill(3)
                eventually("broker 3 is down", lambda: any(b["id"] == 3 and not b["up"] for b in json.loads(c.ok("cluster", "--json"))["brokers"]))
            r = c.kc(*line.split()[1:], timeout=60)
            equal((r.returncode, r.stderr), (0, ""), line)


if __name__ == "__main__":
    main()
