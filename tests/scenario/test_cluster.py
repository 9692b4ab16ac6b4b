"""The failure scenarios of a partition with three replicas, on real processes: brokers 0, 1, 2 and a quorum of three of their own.

What is seen is seen from outside, through kc. A control that is to lose or to duplicate must be seen to do so.
"""
import json
import os
import signal
import socket
import subprocess
import threading
import time

import scene
from scene import KBROKER, equal, eventually, holds, main, run, test
from scene_cluster import Cluster, command_line


def begin(folder, *options, **config):
    c = Cluster(folder / "c", 3, *options, controllers=3)
    c.create("t", "0:1:2", **{"min_insync_replicas": 2, **config})
    c.until("t", "all in sync", leader=0, isr=[0, 1, 2])
    return c


def taken_in(c, broker):
    """Waits until the controller has dealt with the return of a broker: what it decided about the others' partitions then, it has decided."""
    topic = f"back-{broker}-{time.monotonic_ns()}"
    c.create(topic, broker)
    c.until(topic, f"{broker} is back", leader=broker)


def begin_without(folder, *followers, options=(), **config):
    """Their fetches stand still wherever they fetch from, in every life of a node; a record that they lack shows them out of the in-sync replicas."""
    rules = folder / "rules.json"
    rules.write_text(json.dumps([{"api": "Fetch", "client_id": f"kbroker-{f}", "broker": b, "stall": True} for f in followers for b in (0, 1, 2)]))
    c = begin(folder, "--set", "replica.lag.time.max.ms=1500", "--faults", rules, *options, **config)
    equal(c.produce("t", "first"), "")
    c.until("t", f"{followers} are out", leader=0, isr=[r for r in (0, 1, 2) if r not in followers])
    return c


@test
def scenario_1_the_leader_crashes_and_one_of_the_in_sync_replicas_is_left(folder):
    c = begin_without(folder, 2)
    equal(c.produce("t", "a", "b"), "")
    c.kill(0)
    c.until("t", "1 leads alone", leader=1, isr=[1])
    seen = c.consume("t")  # up to the high watermark, which stands still below min.insync.replicas
    equal(seen, ["first", "a", "b"][: len(seen)])
    holds(c.produce("t", "refused", retries=False), "NOT_ENOUGH_REPLICAS")
    c.start(0)
    c.until("t", "0 is back", leader=1, isr=[0, 1])
    c.reads("t", ["first", "a", "b"])
    equal(c.produce("t", "c"), "")
    c.kill(0)
    c.until("t", "1 alone again", leader=1, isr=[1])
    c.ok("topic", "alter", "t", "--config", "min.insync.replicas=1")
    equal(c.produce("t", "d"), "")
    c.reads("t", ["first", "a", "b", "c", "d"])


@test
def scenario_2_both_in_sync_replicas_crash_one_after_the_other(folder):
    c = begin_without(folder, 2)
    equal(c.produce("t", "a"), "")
    c.kill(0)
    c.until("t", "1 leads alone", leader=1, isr=[1])
    equal(c.produce("t", "alone", acks=1, enable_idempotence="false"), "")  # acknowledged by 1 alone, and by no one else
    c.kill(1)
    c.until("t", "no leader", leader=-1, isr=[1])
    holds(c.produce("t", "x", retries=False, delivery_timeout_ms=3000), "the partition's leader is not known")
    c.start(0)  # it failed first: it may not know all
    taken_in(c, 0)
    p = c.partition("t")
    equal((p["leader"], p["isr"]), (-1, [1]), "still no leader")
    c.start(1)
    c.until("t", "normal", leader=1, isr=[0, 1])
    c.reads("t", ["first", "a", "alone"])
    # The same once more, and this time 1 does not come back.
    c.kill(0)
    c.until("t", "1 leads alone", leader=1, isr=[1])
    equal(c.produce("t", "lost", acks=1, enable_idempotence="false"), "")
    c.kill(1)
    c.until("t", "no leader", leader=-1, isr=[1])
    c.start(0)
    c.ok("topic", "alter", "t", "--config", "unclean.leader.election.enable=true")
    c.until("t", "0 leads, unclean", leader=0, isr=[0])
    seen = c.consume("t")  # up to the high watermark that it had stored
    equal(seen, ["first", "a", "alone"][: len(seen)])
    holds(c.logs(400), "unclean election: t-0 is led by broker 0")
    c.ok("topic", "alter", "t", "--config", "min.insync.replicas=1")
    equal(c.produce("t", "after"), "")
    c.reads("t", ["first", "a", "alone", "after"])


@test
def scenario_2_nobody_of_the_in_sync_replicas_returns(folder):
    c = begin_without(folder, 2)
    equal(c.produce("t", "a"), "")
    c.kill(0)
    c.until("t", "1 leads alone", leader=1, isr=[1])
    c.kill(1)
    c.until("t", "no leader", leader=-1, isr=[1])
    c.ok("topic", "alter", "t", "--config", "unclean.leader.election.enable=true")
    c.until("t", "2 leads, unclean", leader=2, isr=[2])


@test
def scenario_3_both_in_sync_replicas_crash_together(folder):
    c = begin_without(folder, 2)
    equal(c.produce("t", "a"), "")
    c.kill(0, 1)
    c.until("t", "no leader, both in sync", leader=-1, isr=[0, 1])
    c.start(1)
    c.until("t", "1 leads", leader=1, isr=[1])
    seen = c.consume("t")
    equal(seen, ["first", "a"][: len(seen)])
    c.start(0)
    c.until("t", "both", leader=1, isr=[0, 1])
    equal(c.produce("t", "b"), "")
    c.reads("t", ["first", "a", "b"])


def leader_dies_with_the_answer_held(folder, idempotence):
    c = begin(folder)
    c.fault(0, {"api": "Produce", "topic": "t", "when": "after", "stall": True})
    p = subprocess.Popen([scene.KC, "produce", "-b", c.address, "-t", "t", "-p", "0", "--set", f"enable.idempotence={idempotence}", "--set", "acks=-1"],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    scene._children.append(p)
    p.stdin.write(b"once\n")
    p.stdin.flush()
    eventually("the followers have it", lambda: (c.partition("t") or {}).get("hw") == 1)
    c.kill(0)
    _, err = p.communicate(timeout=60)
    equal(p.returncode, 0, err.decode())
    c.until("t", "1 leads", leader=1, isr=[1, 2])
    return c


@test
def scenario_4_a_retry_after_the_leader_died_is_stored_once_with_idempotence(folder):
    c = leader_dies_with_the_answer_held(folder, "true")
    c.reads("t", ["once"])


@test
def scenario_4_control_without_idempotence_it_is_stored_twice(folder):
    c = leader_dies_with_the_answer_held(folder, "false")
    c.reads("t", ["once", "once"])


@test
def scenario_5_control_acks_1_loses_what_no_follower_had_fetched(folder):
    c = begin(folder)
    equal(c.produce("t", "kept"), "")
    c.fault(0, {"api": "Fetch", "stall": True})
    c.struck(0, 2)
    equal(c.produce("t", "lost", acks=1, enable_idempotence="false"), "")
    c.kill(0)
    c.until("t", "1 leads", leader=1, isr=[1, 2])
    c.reads("t", ["kept"])
    c.start(0)  # scenario 8: what it alone had goes, and it fetches on
    c.until("t", "all in sync", leader=1, isr=[0, 1, 2])
    equal(c.produce("t", "after"), "")
    c.reads("t", ["kept", "after"])


@test
def scenario_6_control_the_only_replica_in_sync_loses_its_disk(folder):
    c = begin_without(folder, 1, 2, min_insync_replicas=1)
    equal(c.produce("t", "acked"), "")
    c.kill(0)
    c.do("wipe-node", 0)
    c.start(0)
    taken_in(c, 0)
    equal(c.partition("t")["leader"], -1, "a wiped disk does not lead")
    c.ok("topic", "alter", "t", "--config", "unclean.leader.election.enable=true")
    eventually("one that was not in sync leads", lambda: c.partition("t")["leader"] in (1, 2), 30)  # which one is not promised
    equal(c.produce("t", "after"), "")
    c.reads("t", ["after"])  # neither "first" nor "acked"


@test
def scenario_7_the_first_in_sync_replica_leads_not_the_longest(folder):
    c = begin(folder)
    for v in range(4):
        equal(c.produce("t", f"r{v}"), "")
    equal(c.produce("t", "r4", acks=1, enable_idempotence="false"), "")
    eventually("both have it", lambda: (c.partition("t") or {}).get("hw") == 5)
    c.fault(0, {"api": "Fetch", "client_id": "kbroker-1", "stall": True})
    c.struck(0, 1)
    equal(c.produce("t", "r5", acks=1, enable_idempotence="false"), "")
    log2 = c.data / "node-2" / "t-0" / "00000000000000000000.log"
    eventually("2 has the last one", lambda: b"r5" in log2.read_bytes())
    c.kill(0)
    c.until("t", "1 leads", leader=1, isr=[1, 2])
    c.reads("t", [f"r{v}" for v in range(5)])
    c.start(0)
    c.until("t", "all in sync", leader=1, isr=[0, 1, 2])
    equal(c.produce("t", "after"), "")
    c.reads("t", [*(f"r{v}" for v in range(5)), "after"])
    equal(c.stop(), 0)
    logs = [(c.data / f"node-{n}" / "t-0" / "00000000000000000000.log").read_bytes() for n in (0, 1, 2)]
    if logs[0] != logs[1] or logs[1] != logs[2] or b"r5" in logs[0]:
        raise AssertionError(f"the replicas differ: {[len(x) for x in logs]} bytes")


def send_while(c, act, count, *sets):
    """Sends values v0, v1, … at a steady pace, and acts in the middle; what was told of each: {value: report}."""
    args = [x for kv in sets for x in ("--set", kv)]
    p = subprocess.Popen([scene.KC, "produce", "-b", c.address, "-t", "t", "--rate", "400", "--reports", *args], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    scene._children.append(p)
    values, failed = [f"v{i}" for i in range(count)], []

    def guarded():
        try:
            act()
        except Exception as e:  # noqa: BLE001 - it fails the test, not this thread alone
            failed.append(e)
    timer = threading.Timer(count / 400 / 3, guarded)
    timer.start()
    out, _ = p.communicate("".join(f"{v}\n" for v in values).encode(), timeout=150)
    timer.join()
    if failed:
        raise failed[0]
    reports = [json.loads(line) for line in out.decode().splitlines()]
    equal(len(reports), count)
    return {values[r["record"] - 1] if "record" in r else v: r for v, r in zip(values, reports)}


def judge(c, reports, doubles_allowed):
    """acked => stored, and told so truly; a count of what became of the records."""
    def served():
        partitions = c.partitions("t")
        return partitions and all(p["leader"] >= 0 and len(p["isr"]) >= 2 for p in partitions)
    eventually("leaders, enough in sync", served, 60)
    stored = []
    for n in range(12):
        r = c.kc("consume", "-t", "t", "-p", n, "-o", "beginning", "-e", timeout=60)
        equal(r.returncode, 0, r.stderr)
        stored += r.stdout.split()
    acked = {v for v, r in reports.items() if not r.get("error")}
    lost, doubled = acked - set(stored), len(stored) - len(set(stored))
    print(f"{len(reports)} sent, {len(acked)} acked, {len(set(stored))} stored, {len(lost)} lost, {doubled} doubled")
    equal(sorted(lost), [], "acked and not stored")
    if not doubles_allowed:
        equal(doubled, 0, "doubled")
    return acked


def four(folder):
    c = Cluster(folder / "c", 4)
    c.ok("topic", "create", "t", "--partitions", 12, "--rf", 4, "--config", "min.insync.replicas=2")
    return c


def who_leads_not(c):
    """Two brokers that are not the active controller: with them the quorum of three keeps its majority only if one votes not."""
    controller = json.loads(c.ok("cluster", "--json"))["controller"]
    return [n for n in (3, 2, 1, 0) if n != controller][:2]


@test
def benchmark_scenario_5_two_of_four_die_without_retries(folder):
    c = four(folder)
    victims = who_leads_not(c)

    def act():
        for v in victims:  # so that there are some under way, whatever the machine's pace
            c.fault(v, {"api": "Produce", "when": "after", "stall": True})
            c.struck(v, 1)
        c.kill(*victims)
    reports = send_while(c, act, 2000, "enable.idempotence=false", "retries=0")
    acked = judge(c, reports, doubles_allowed=False)
    if len(acked) == 2000:
        raise AssertionError("nothing failed: the two were not missed")


@test
def benchmark_scenario_5_two_of_four_die_with_retries(folder):
    c = four(folder)
    victims = who_leads_not(c)
    reports = send_while(c, lambda: c.kill(*victims), 2000)
    equal(len(judge(c, reports, doubles_allowed=False)), 2000, "acked")


@test
def benchmark_scenario_5_three_of_four_die_and_return(folder):
    c = four(folder)

    def act():
        c.kill(1, 2, 3)
        time.sleep(1)
        c.start(1, 2, 3)
    reports = send_while(c, act, 2000)
    equal(len(judge(c, reports, doubles_allowed=False)), 2000, "acked")


@test
def a_cluster_stops_in_order_and_comes_back_with_everything(folder):
    c = begin(folder)
    equal(c.produce("t", *[f"r{i}" for i in range(100)]), "")
    equal(c.stop(), 0)
    c = Cluster(folder / "c", 3, controllers=3)
    c.until("t", "all in sync", isr=[0, 1, 2])
    c.reads("t", [f"r{i}" for i in range(100)])


@test
def a_cluster_of_three_that_vote_themselves_survives_each_of_them(folder):
    c = Cluster(folder / "c", 3)
    c.create("t", "0:1:2", min_insync_replicas=2)
    stored = []
    for round, node in enumerate((0, 1, 2)):
        equal(c.produce("t", f"before{round}"), "")
        c.kill(node)
        equal(c.produce("t", f"while{round}"), "")
        c.start(node)
        c.until("t", "all in sync", isr=[0, 1, 2])
        stored += [f"before{round}", f"while{round}"]
    c.reads("t", stored)


# ---- Machines that go down, stops that nobody answers ----

def machine_went_down(c, *nodes):
    """kill -9 leaves what was written; that the system was started anew since, a node tells by its boot id."""
    for n in nodes:
        (c.data / f"node-{n}" / "kbroker.boot-id").write_text("11111111-2222-3333-4444-555555555555")


@test
def a_replica_whose_machine_went_down_does_not_lead_while_another_may(folder):
    c = begin_without(folder, 2)
    equal(c.produce("t", "a"), "")
    c.kill(0, 1)
    c.until("t", "no leader, both in sync", leader=-1, isr=[0, 1])
    machine_went_down(c, 0)
    c.start(0)
    c.until("t", "0 is not counted upon", leader=-1, isr=[1])
    holds(c.logs(200), "broker 0 registers in epoch", "its machine went down, it is not counted upon")
    c.start(1)
    c.until("t", "1 leads, 0 has caught up", leader=1, isr=[0, 1])
    equal(c.produce("t", "b"), "")
    c.reads("t", ["first", "a", "b"])


@test
def the_last_replica_whose_machine_went_down_leads_and_says_what_may_be_lost(folder):
    c = begin_without(folder, 2)
    c.kill(0, 1)
    c.until("t", "no leader, both in sync", leader=-1, isr=[0, 1])
    machine_went_down(c, 0, 1)
    c.start(0, 1)
    c.until("t", "the last of them leads, the other follows", isr=[0, 1])
    holds(c.logs(400), "t-0 is led by its last known leader")
    c.reads("t", ["first"])


@test
def where_the_last_known_leader_may_not_lead_only_what_was_synced_is_served(folder):
    c = begin_without(folder, 2, options=["--set", "last.known.leader.enable=false"])
    c.create("safe", "0:1:2", min_insync_replicas=2, flush_on_ack="true")
    equal(c.produce("safe", "a"), "")
    c.kill(0, 1)
    c.until("t", "no leader, both in sync", leader=-1, isr=[0, 1])
    machine_went_down(c, 0, 1)
    c.start(0, 1)
    c.until("safe", "what was acknowledged was on the disk", isr=[0, 1])
    c.reads("safe", ["a"])
    c.until("t", "nobody may", leader=-1, isr=[])


@test
def a_stop_ends_though_no_controller_lets_the_node_go(folder):
    c = Cluster(folder / "c", 3, controllers=1)
    c.create("t", "0:1:2", min_insync_replicas=2)
    equal(c.produce("t", "a"), "")
    c.fault(1000, {"api": "BrokerHeartbeat", "stall": True})
    c.halt(0)
    holds((c.data / "node-0.log").read_text(), "the controller did not let it go within 5 s: this broker stops without handing over")
    c.do("pause-node", 1000)
    c.halt(1)
    holds((c.data / "node-1.log").read_text(), "this broker stops without handing over")
    c.kill(1000)
    c.start(1000, 0, 1)
    c.until("t", "back", isr=[0, 1, 2])
    c.reads("t", ["a"])
    equal(c.stop(), 0)


@test
def nodes_die_with_their_parent(folder):
    c = Cluster(folder / "c", 1)
    status = run(KBROKER, "cluster", "status", "--data", c.data).stdout
    pid = int(status.split()[-1])
    c.p.send_signal(signal.SIGKILL)
    c.p.wait()
    eventually("the node is gone", lambda: not command_line(pid))


@test
def wrong_words_of_the_cluster_say_what_is_right(folder):
    for args, words in ((["cluster", "--node", "3"], ["--nodes"]), (["cluster", "--nodes", "0"], ["1 to 9"]), (["cluster", "kil-node", "0"], ["kill-node"]),
                        (["cluster", "kill-node", "x", "--data", "d"], ["x"]), (["cluster", "kill-node", "--data", "d"], ["ID"]),
                        (["fault", "ad", "--data", "d"], ["add"]), (["fault", "add", "--data", "d"], ["RULES"]), (["fault", "clear", "x", "--data", "d"], ["number"])):
        r = run(KBROKER, *args, cwd=folder)
        equal(r.returncode, 2, " ".join(args))
        holds(r.stderr, *words)
    r = run(KBROKER, "cluster", "kill-node", "0", "--data", folder)
    equal(r.returncode, 1)
    holds(r.stderr, "no cluster runs in")
    c = Cluster(folder / "c", 1)
    for args, words in ((["cluster", "kill-node", "5"], ["none of this id"]), (["cluster", "start-node", "0"], ["runs already"]), (["cluster", "wipe-node", "0"], ["stop or kill it first"]),
                        (["fault", "add", "{\"api\": \"Ftch\", \"close\": true}"], ["Fetch"]), (["fault", "clear", "9"], ["no rule"])):
        r = run(KBROKER, *args, "--data", c.data)
        equal(r.returncode, 1, " ".join(args))
        holds(r.stderr, *words)
    r = run(KBROKER, "cluster", "--nodes", "1", "--data", c.data)
    equal(r.returncode, 1)
    holds(r.stderr, "runs in")
    equal(c.stop(), 0)
    for other in ("2", "9"):  # not what the folder has: nothing is done
        r = run(KBROKER, "cluster", "--nodes", other, "--data", c.data)
        equal(r.returncode, 1)
        holds(r.stderr, "cluster of 1 brokers", "leave --nodes", "--data DIR", "add-node")


@test
def a_cluster_that_does_not_start_says_why_and_only_that(folder):
    for wrong, words in (("a.b=c", ["unknown property a.b"]), ("num.partitions=x", ["num.partitions=x"])):
        r = run(KBROKER, "cluster", "--nodes", "2", "--base-port", "0", "--data", folder / "c", "--set", wrong)
        equal((r.returncode, r.stdout), (2, ""), wrong)
        holds(r.stderr, "the cluster did not start", *words)
        if "--base-port" in r.stderr or len(r.stderr.splitlines()) > 5:  # each node tells it, and what the first try said is over
            raise AssertionError(f"more than that: {r.stderr}")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        r = run(KBROKER, "cluster", "--nodes", "1", "--base-port", s.getsockname()[1], "--data", folder / "d")
    equal((r.returncode, r.stdout), (1, ""))
    holds(r.stderr, "cannot listen", "--base-port P")
    r = run(KBROKER, "cluster", "--data", folder / "none")
    equal((r.returncode, (folder / "none").exists()), (1, False))
    holds(r.stderr, "has no cluster yet", "--nodes N")


@test
def commands_go_to_the_folder_that_a_cluster_has_without_a_word(folder):
    c = Cluster.__new__(Cluster)
    where = os.getcwd()
    os.chdir(folder)
    try:
        c.launch([KBROKER, "cluster", "--nodes", "1", "--base-port", "0"], 30)
        r = run(KBROKER, "cluster", "status")
        equal(r.returncode, 0, r.stderr)
        holds(r.stdout, "node 0 broker,controller", "up")
        r = run(KBROKER, "cluster", "status", "--help")
        equal((r.returncode, r.stdout.startswith("usage: kbroker cluster COMMAND")), (0, True))
    finally:
        os.chdir(where)


@test
def a_cluster_grows_to_nine_brokers_and_is_started_as_it_is(folder):
    c = Cluster(folder / "c", 1)
    c.do("add-node", *range(1, 9))
    r = run(KBROKER, "cluster", "add-node", 9, "--data", c.data)
    equal((r.returncode, r.stdout), (1, ""))
    holds(r.stderr, "at most 9 brokers")
    equal(c.stop(), 0)
    r = run(KBROKER, "cluster", "--nodes", "1", "--data", c.data)  # fewer than there are: not without a word
    equal(r.returncode, 1)
    holds(r.stderr, "cluster of 9 brokers", "leave --nodes")
    again = Cluster.__new__(Cluster)
    again.launch([KBROKER, "cluster", "--data", str(c.data)], 60)
    equal(len(again.address.split(",")), 9)


@test
def a_node_that_stands_still_does_not_hold_up_who_asks_for_faults(folder):
    c = Cluster(folder / "c", 2)
    c.do("pause-node", 1)
    r = run(KBROKER, "fault", "list", "--data", c.data, timeout=60)
    equal(r.returncode, 1)
    holds(r.stdout, "node 0: {")
    holds(r.stderr, "node 1: no answer within", "start-node")
    c.start(1)
    equal(run(KBROKER, "fault", "list", "--data", c.data).returncode, 0)


if __name__ == "__main__":
    main()
