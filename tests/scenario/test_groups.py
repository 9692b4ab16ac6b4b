"""kc group against groups of kcat and kc: listed, described, reset, deleted, on one broker and on a cluster whose coordinators die; wrong arguments; kc
consume -G as a member."""
import json
import os
import pty
import select
import signal
import subprocess
import time

import scene
from scene import KC, Broker, equal, eventually, holds, kc, main, run, test
from scene_cluster import Cluster
from scene_group import Kcat, described

COMMANDS = [["group", "list"], ["group", "describe"], ["group", "reset"], ["group", "delete"], ["group", "delete-offsets"]]


def until(b, group, what, is_so, wait=60):
    last = {}

    def look():
        last.clear()
        last.update(described(b, group))
        return last and is_so(last)
    try:
        eventually(what, look, wait)
    except AssertionError as e:
        raise AssertionError(f"{e}: last {last}") from None
    return dict(last)


def is_shared(g, members):
    """Each partition is somebody's, each member has some, nothing is left to be read."""
    owners = {p["member"] for p in g["partitions"]}
    return g["state"] == "Stable" and len(g["members"]) == members and None not in owners and len(owners) == members and all(p["lag"] == 0 for p in g["partitions"])


def fill(b, topic, partitions, each=10):
    equal(kc(b, "topic", "create", topic, "--partitions", partitions).returncode, 0)
    for p in range(partitions):
        equal(kc(b, "produce", "-t", topic, "-p", p, stdin="".join(f"{topic}-{p}-{i}\n" for i in range(each))).returncode, 0)


def committed(b, group, **offsets):
    """A group that nobody is in: its offsets, set through a file. t_0=5 is partition 0 of t."""
    lines = "".join("{},{},{}\n".format(*k.rsplit("_", 1), v) for k, v in offsets.items())
    r = kc(b, "group", "reset", group, "--from-file", "-", "--execute", stdin=lines)
    equal((r.returncode, r.stderr), (0, ""), r.stdout)


def offsets(b, group):
    return {f"{p['topic']}_{p['partition']}": p["committed"] for p in described(b, group)["partitions"]}


@test
def wrong_words_are_usage_errors_that_say_what_is_right(folder):
    reset = ["group", "reset", "g"]
    for args, words in (
        (["group"], ["kc group COMMAND"]), (["group", "lst"], ["list"]), (["group", "list", "x"], ["one word too many"]), (["group", "list", "--state", ""], ["commas"]),
        (["group", "describe"], ["GROUP"]), (["group", "describe", "g", "--jsn"], ["--json"]), (["group", "delete"], ["GROUP"]),
        (["group", "delete-offsets", "g"], ["--all-topics"]), (["group", "delete-offsets", "g", "t", "--all-topics"], ["without topics"]),
        (["group", "delete-offsets", "g", "t:x"], ["TOPIC:PARTITION"]), (["group", "delete-offsets", "g", "t:1,"], ["TOPIC:PARTITION"]),
        (["group", "reset"], ["GROUP"]), (reset, ["--to-earliest", "--from-file"]), ([*reset, "t"], ["--to-earliest"]),
        ([*reset, "t", "--to-earliest", "--to-latest"], ["give one of"]), ([*reset, "--to-latest"], ["--all-topics"]), ([*reset, "t", "--all-topics", "--to-latest"], ["without topics"]),
        ([*reset, "t", "--to-offset", "-1"], ["from 0"]), ([*reset, "t", "--to-offset", "x"], ["from 0"]), ([*reset, "t", "--shift-by", "ten"], ["-10"]),
        ([*reset, "t", "--to-time", "yesterday"], ["2026-11-30T04:00", "2h"]), ([*reset, "t", "--to-time", "2026-02-30"], ["UTC"]), ([*reset, "t", "--to-time", "2026-02-03T04:00+1"], ["UTC"]),
        ([*reset, "t", "--from-file", "f"], ["without topics"]), ([*reset, "t:", "--to-latest"], ["TOPIC:PARTITION"]), ([*reset, ":1", "--to-latest"], ["TOPIC"]),
    ):
        r = run(KC, *args)
        equal((r.returncode, r.stdout), (2, ""), " ".join(args))
        holds(r.stderr, *words)
    for c in COMMANDS:
        r = run(KC, *c, "--help")
        equal((r.returncode, r.stderr), (0, ""), f"{c} --help")
        equal([line for line in r.stdout.splitlines() if len(line) > 80], [], f"lines of {c} --help")
        holds(r.stdout, "examples:")


@test
def nobody_there_is_told(folder):
    for args in (["list"], ["describe", "g"], ["reset", "g", "t", "--to-latest"], ["delete", "g"], ["delete-offsets", "g", "t"]):
        r = run(KC, "group", *args, "-b", "127.0.0.1:1", "--set", "default.api.timeout.ms=700")
        equal((r.returncode, r.stdout), (1, ""), args)
        holds(r.stderr, "tried: connect", "-b HOST:PORT")


@test
def a_group_is_listed_and_described_while_it_lives(folder):
    b = Broker(folder / "d")
    fill(b, "t", 3)
    equal(kc(b, "group", "list").stdout, "")
    r = kc(b, "group", "describe", "g")
    equal((r.returncode, r.stdout), (1, ""))
    holds(r.stderr, "there is no such group", "GROUP_ID_NOT_FOUND", "kc group list")
    one = Kcat(b.address, "g", "t")
    g = until(b, "g", "one member has all", lambda g: is_shared(g, 1))
    equal([(p["topic"], p["partition"], p["committed"], p["log_end"]) for p in g["partitions"]], [("t", i, 10, 10) for i in range(3)])
    equal(g["problems"], [])
    equal(g["protocol"], "range")
    equal(sorted((a["topic"], a["partition"]) for a in g["members"][0]["assigned"]), [("t", 0), ("t", 1), ("t", 2)])
    equal(g["members"][0]["topics"], ["t"])
    holds(g["members"][0]["host"], "127.0.0.1")
    equal(kc(b, "group", "list").stdout, "g\n")
    listed = json.loads(kc(b, "group", "list", "--json").stdout)
    equal(listed, {"group": "g", "state": "Stable", "type": "classic", "protocol_type": "consumer", "coordinator": 0})
    equal(kc(b, "group", "list", "--state", "empty,Dead").stdout, "")
    equal(kc(b, "group", "list", "--state", "stable", "--type", "classic").stdout, "g\n")
    text = kc(b, "group", "describe", "g").stdout
    holds(text, "group g: Stable, range, 1 member, coordinator broker 0", g["members"][0]["id"], "topic  partition  committed  end  lag  member")
    # What of it changes: members, a topic that grows.
    two = Kcat(b.address, "g", "t", group_instance_id="i2")
    g = until(b, "g", "two members share", lambda g: is_shared(g, 2))
    equal(sorted((m["instance"] or "") for m in g["members"]), ["", "i2"])
    equal(kc(b, "topic", "alter", "t", "--partitions", 4).returncode, 0)
    g = until(b, "g", "the new partition is nobody's", lambda g: any(p["partition"] == 3 for p in g["partitions"]))
    holds(str(g["problems"]), "t 3: no member has it")
    one.end()
    two.end()
    g = until(b, "g", "all left", lambda g: g["state"] == "Empty" or len(g["members"]) == 1, 20)
    equal([m["instance"] for m in g["members"]] in ([], ["i2"]), True)  # a static member does not leave


@test
def offsets_that_the_log_does_not_have_are_told(folder):
    b = Broker(folder / "d")
    fill(b, "t", 2)
    fill(b, "gone", 1)
    committed(b, "g", t_0=2, t_1=7, gone_0=3)
    equal(kc(b, "topic", "delete", "gone").returncode, 0)
    g = described(b, "g")
    equal({f"{p['topic']}_{p['partition']}": p["lag"] for p in g["partitions"] if p["topic"] == "t"}, {"t_0": 8, "t_1": 3})
    equal(g["lag"], 11)
    text = kc(b, "group", "describe", "g").stdout
    holds(text, "group g: Empty, 0 members")
    if "gone" in text:  # a broker may forget with the topic what was committed for it
        holds(text, "gone 0: there is no such partition any more: kc group delete-offsets")
        equal(kc(b, "group", "delete-offsets", "g", "gone").stdout, "deleted the offset of gone 0\n")
    equal(offsets(b, "g"), {"t_0": 2, "t_1": 7})


@test
def a_reset_is_shown_before_it_is_done(folder):
    b = Broker(folder / "d")
    fill(b, "t", 2)
    committed(b, "g", t_0=4)

    def reset(*args, **kw):
        r = kc(b, "group", "reset", "g", *args, "--json", **kw)
        equal((r.returncode, r.stderr), (0, ""), args)
        j = json.loads(r.stdout)
        return {f"{p['topic']}_{p['partition']}": p["new"] for p in j["partitions"]}
    equal(reset("t", "--to-latest"), {"t_0": 10, "t_1": 10})
    equal(offsets(b, "g"), {"t_0": 4}, "nothing was changed")
    r = kc(b, "group", "reset", "g", "t", "--to-latest")
    equal(r.stdout.splitlines(), ["topic  partition  committed  new  start  end  note", "t      0          4          10   0      10   ",
                                  "t      1          -          10   0      10   ", "group g: 2 offsets would be set; --execute does it"])
    r = kc(b, "group", "reset", "g", "t", "--to-latest", "--execute")
    equal(r.stdout.splitlines()[-1], "group g: 2 offsets set")
    equal(offsets(b, "g"), {"t_0": 10, "t_1": 10})
    for args, want in ((["t:1", "--to-offset", "3"], {"t_1": 3}), (["t:0,1", "--to-offset", "99"], {"t_0": 10, "t_1": 10}), (["--all-topics", "--shift-by", "-4"], {"t_0": 6, "t_1": 6}),
                       (["--all-topics", "--shift-by", "-40"], {"t_0": 0, "t_1": 0}), (["t", "--to-earliest"], {"t_0": 0, "t_1": 0}), (["t", "--to-time", "1h"], {"t_0": 0, "t_1": 0}),
                       (["t", "--to-time", "2999-01-01T00:00Z"], {"t_0": 10, "t_1": 10}), (["t", "--to-time", "@0"], {"t_0": 0, "t_1": 0})):
        equal(reset(*args), want, args)
    (folder / "f").write_text("# topic,partition,offset\nt,1,2\n\n t,0,12 \n")
    equal(reset("--from-file", folder / "f", "--execute"), {"t_0": 10, "t_1": 2})
    equal(offsets(b, "g"), {"t_0": 10, "t_1": 2})
    # Who comes next begins there.
    r = run("timeout", "20", "kcat", "-b", b.address, "-G", "g", "t", "-c", "8", "-q", "-X", "session.timeout.ms=6000")
    equal(sorted(r.stdout.split()), [f"t-1-{i}" for i in range(2, 10)])


@test
def a_reset_that_cannot_be_is_refused_as_a_whole(folder):
    b = Broker(folder / "d")
    fill(b, "t", 2)
    committed(b, "g", t_0=4)
    for args, words in ((["nope", "--to-latest"], ["there is no topic nope", "kc topic list"]), (["t:7", "--to-latest"], ["no partition t:7"]),
                        (["t", "--shift-by", "1"], ["t 1: the group has no committed offset to be shifted", "nothing was changed"]),
                        (["--from-file", folder / "missing"], ["missing cannot be read"])):
        r = kc(b, "group", "reset", "g", *args, "--execute")
        equal((r.returncode, r.stdout), (1, ""), args)
        holds(r.stderr, *words)
    r = kc(b, "group", "reset", "other", "--all-topics", "--to-latest")
    equal((r.returncode, r.stdout), (1, ""))
    holds(r.stderr, "no committed offsets", "name topics")
    for text, words in (("t,0\n", [":1:", "TOPIC,PARTITION,OFFSET"]), ("t,0,1\nt,x,1\n", [":2:"]), ("", ["no partition"]), ("t,0,-1\n", [":1:"]), ("nope,0,1\n", ["nope 0", "UNKNOWN_TOPIC"]),
                        ("t,0,1\nt,1,1\nt,0,2\n", ["a partition more than once"]), ("t,0,1\n\0\nt,1,1\n", ["cannot be read"])):
        r = kc(b, "group", "reset", "g", "--from-file", "-", "--execute", stdin=text)
        equal(r.returncode != 0, True, text)
        holds(r.stderr, *words)
    equal(offsets(b, "g"), {"t_0": 4}, "nothing was changed")
    m = Kcat(b.address, "g", "t")
    until(b, "g", "a member", lambda g: is_shared(g, 1))
    for execute in ([], ["--execute"]):
        r = kc(b, "group", "reset", "g", "t", "--to-earliest", *execute)
        equal((r.returncode, r.stdout), (1, ""))
        holds(r.stderr, "has 1 active member", "nothing was changed", "kc group describe g")
    r = kc(b, "group", "delete", "g")
    equal((r.returncode, r.stdout), (1, ""))
    holds(r.stderr, "NON_EMPTY_GROUP", "kc group describe g shows them")
    r = kc(b, "group", "delete-offsets", "g", "t:0")
    equal((r.returncode, r.stdout), (1, ""))
    holds(r.stderr, "GROUP_SUBSCRIBED_TO_TOPIC", "a member of the group reads the topic")
    m.end()
    eventually("it left", lambda: kc(b, "group", "delete", "g").returncode == 0)
    equal(kc(b, "group", "list").stdout, "")


@test
def groups_and_offsets_are_deleted(folder):
    b = Broker(folder / "d")
    fill(b, "t", 2)
    for g in ("g1", "g2", "g3"):
        committed(b, g, t_0=1, t_1=2)
    r = kc(b, "group", "delete", "g1", "nope", "g2")
    equal((r.returncode, r.stdout), (1, "deleted group g1\ndeleted group g2\n"))
    holds(r.stderr, "nope: ", "GROUP_ID_NOT_FOUND")
    equal(kc(b, "group", "list").stdout, "g3\n")
    r = kc(b, "group", "delete-offsets", "g3", "t:1,5")
    equal((r.returncode, r.stdout), (1, ""))
    holds(r.stderr, "no committed offset of t:5", "nothing was deleted")
    equal(kc(b, "group", "delete-offsets", "g3", "t:1").stdout, "deleted the offset of t 1\n")
    equal(offsets(b, "g3"), {"t_0": 1})
    r = kc(b, "group", "delete-offsets", "g3", "--all-topics", "--json")
    equal(json.loads(r.stdout), {"topic": "t", "partition": 0, "deleted": True})
    r = kc(b, "group", "delete", "g3", "--json")
    equal(json.loads(r.stdout or "{}").get("group", "g3"), "g3")


@test
def a_coordinator_that_is_killed_is_waited_for(folder):
    c = Cluster(folder / "c", 3, "--set", "offsets.topic.num.partitions=6")
    c.ok("topic", "create", "t", "--partitions", 3, "--rf", 3)
    for p in range(3):
        equal(c.kc("produce", "-t", "t", "-p", p, stdin="a\nb\nc\n").returncode, 0)
    groups = [f"g{i}" for i in range(8)]
    for g in groups:
        r = c.kc("group", "reset", g, "t", "--to-offset", 1, "--execute")
        equal(r.returncode, 0, r.stderr)
    listed = [json.loads(x) for x in c.ok("group", "list", "--json").splitlines()]
    equal([x["group"] for x in listed], groups)
    equal(len({x["coordinator"] for x in listed}) > 1, True, "groups have more than one coordinator")
    victim = listed[0]["coordinator"]
    c.kill(victim)  # asked at once, while nobody has noticed yet
    r = c.kc("group", "describe", *groups, "--json", timeout=120)
    seen = [json.loads(x) for x in r.stdout.splitlines()]
    equal((r.returncode, [x["group"] for x in seen]), (0, groups), r.stderr)
    equal([[p["committed"] for p in x["partitions"]] for x in seen], [[1, 1, 1]] * 8)
    equal([x["coordinator"] for x in seen if x["coordinator"] == victim], [])
    equal(c.ok("group", "list").split(), groups)
    r = c.kc("group", "reset", groups[0], "--all-topics", "--to-latest", "--execute", timeout=120)
    equal(r.returncode, 0, r.stderr)
    r = c.kc("group", "delete", *groups[1:], timeout=120)
    equal(r.returncode, 0, r.stderr)
    c.start(victim)
    equal(c.ok("group", "list", timeout=120).split(), groups[:1])


@test
def ctrl_c_ends_a_wait(folder):
    b = Broker(folder / "d")
    fill(b, "t", 1)
    b.p.send_signal(signal.SIGSTOP)
    p = subprocess.Popen([KC, "group", "reset", "g", "t", "--to-latest", "-b", b.address], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    scene._children.append(p)
    scene.until_caught(p, signal.SIGINT)
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=20)
    b.p.send_signal(signal.SIGCONT)
    equal((p.returncode, out), (1, b""))
    holds(err.decode(), "interrupted")


def on_a_terminal(*args):
    """What it prints, and what the terminal sees meanwhile."""
    master, slave = pty.openpty()
    p = subprocess.Popen([KC, *args], stdout=subprocess.PIPE, stderr=slave)
    os.close(slave)
    out = p.communicate(timeout=30)[0].decode()
    said, end = b"", time.monotonic() + 5
    while time.monotonic() < end and select.select([master], [], [], 0.2)[0]:
        try:
            part = os.read(master, 4096)
        except OSError:
            break
        if not part:
            break
        said += part
    os.close(master)
    return out, said.decode()


@test
def a_terminal_sees_how_far_it_is(folder):
    b = Broker(folder / "d")
    fill(b, "t", 1)
    out, said = on_a_terminal("group", "reset", "g", "t", "--to-latest", "--execute", "-b", b.address)
    holds(out, "group g: 1 offset set")
    holds(said, "looking at the logs of 1 partitions", "setting 1 offsets")


@test
def the_logs_of_several_groups_are_looked_at_together(folder):
    b = Broker(folder / "d")
    fill(b, "t", 1)
    fill(b, "u", 2)
    for group, topics in (("g", ["t"]), ("h", ["t", "u"])):
        equal(kc(b, "group", "reset", group, *topics, "--to-earliest", "--execute").returncode, 0)
    out, said = on_a_terminal("group", "describe", "g", "h", "none", "-b", b.address)
    holds(said, "looking at the logs of 3 partitions", "none")
    equal([l.split()[:5] for l in out.splitlines() if l.startswith(("t ", "u "))],
          [["t", "0", "0", "10", "10"], ["t", "0", "0", "10", "10"], ["u", "0", "0", "10", "10"], ["u", "1", "0", "10", "10"]])


# ---- kc consume -G ----

class Kc:
    """kc as a member of a group, until .end(); what it prints goes into files."""

    def __init__(self, boot, folder, group, *topics, args=()):
        Kc.count = getattr(Kc, "count", 0) + 1
        self.out, self.err = folder / f"kc-{Kc.count}.out", folder / f"kc-{Kc.count}.err"
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self.p = subprocess.Popen([KC, "consume", "-G", group, *topics, "-b", boot, "-o", "beginning", "--set", "session.timeout.ms=6000",
                                       "--set", "heartbeat.interval.ms=500", "--set", "auto.commit.interval.ms=200", *map(str, args)], stdout=out, stderr=err)
        scene._children.append(self.p)

    def lines(self):
        return self.out.read_text().splitlines()

    def said(self):
        return self.err.read_text()

    def end(self, sig=signal.SIGINT, code=0):
        self.p.send_signal(sig)
        equal(self.p.wait(30), code, self.said())


def in_group(b, group, *topics, args=(), code=0):
    """To the end of what there is; what it printed."""
    r = kc(b, "consume", "-G", group, *topics, "-o", "beginning", "-e", *args)
    equal(r.returncode, code, r.stderr)
    return r.stdout.splitlines()


@test
def wrong_words_of_a_member(folder):
    for args, words in (([], ["-t TOPIC"]), (["t", "-p", "0"], ["-p does not go with -G"]), (["t", "--to", "end"], ["--to"]), (["t", "-o", "5"], ["beginning or end", "kc group reset"]),
                        (["t", "^u"], ["not both"]), (["t", "-f", "%y"], ["%y"]), (["t", "-c", "0"], ["from 1"])):
        r = run(KC, "consume", "-G", "g", *args)
        equal((r.returncode, r.stdout), (2, ""), args)
        holds(r.stderr, *words)
    r = run(KC, "consume", "t")
    equal((r.returncode, r.stdout), (2, ""))
    holds(r.stderr, "-t TOPIC", "-G GROUP TOPIC...")
    b = Broker(folder / "d")
    for args, words in ((["a b"], ["a b"]), (["^("], ["^("]), (["t", "--set", "partition.assignment.strategy=fair"], ["fair"])):
        r = kc(b, "consume", "-G", "g", *args, "-e")
        equal((r.returncode, r.stdout), (2, ""), f"{args}: {r.stderr}")
        holds(r.stderr, *words)


@test
def a_member_commits_what_it_printed(folder):
    b = Broker(folder / "d")
    fill(b, "t", 2)
    fill(b, "u", 1, 3)
    wanted = [f"t-{p}-{i}" for p in range(2) for i in range(10)]
    equal(sorted(in_group(b, "g", "t")), sorted(wanted))
    equal(in_group(b, "g", "t"), [])
    equal(offsets(b, "g"), {"t_0": 10, "t_1": 10})
    # So many and no more, and the next goes on behind them, though they came in one answer.
    seen = [x for n in (1, 4, 100) for x in in_group(b, "counted", "t", args=["-c", n])]
    equal(sorted(seen), sorted(wanted))
    # Others know nothing of it; two topics, a pattern, JSON.
    equal(len(in_group(b, "both", "t", "u")), 23)
    equal(len(in_group(b, "pattern", "^[tu]$")), 23)
    equal([json.loads(x)["topic"] for x in in_group(b, "json", "-t", "u", args=["--json"])], ["u"] * 3)
    # Without -o: from the end, for whom nothing is committed.
    r = kc(b, "consume", "-G", "late", "t", "-e", "-q")
    equal((r.returncode, r.stdout, r.stderr), (0, "", ""))
    # Where a reset has put it.
    equal(kc(b, "group", "reset", "g", "t:1", "--to-offset", 7, "--execute").returncode, 0)
    equal(in_group(b, "g", "t"), ["t-1-7", "t-1-8", "t-1-9"])


@test
def what_was_not_written_is_not_committed(folder):
    b = Broker(folder / "d")
    fill(b, "t", 1)
    with open("/dev/full", "w") as full:
        p = subprocess.run([KC, "consume", "-G", "g", "t", "-o", "beginning", "-e", "-b", b.address], stdout=full, stderr=subprocess.PIPE, timeout=30)
    equal(p.returncode, 1)
    holds(p.stderr.decode(), "standard output cannot be written")
    equal(in_group(b, "g", "t"), [f"t-0-{i}" for i in range(10)])
    # Nor with commits turned off.
    equal(len(in_group(b, "off", "t", args=["--set", "enable.auto.commit=false"])), 10)
    equal(len(in_group(b, "off", "t")), 10)


@test
def members_share_and_take_over(folder):
    b = Broker(folder / "d")
    fill(b, "t", 4)
    members = [Kc(b.address, folder, "g", "t")]
    until(b, "g", "one has all", lambda g: is_shared(g, 1))
    members += [Kcat(b.address, "g", "t", partition_assignment_strategy="range"), Kc(b.address, folder, "g", "t")]
    until(b, "g", "three members share", lambda g: is_shared(g, 3))
    holds(members[0].said(), "kc: consume: group g: assigned t 0-3\n", "group g: gives up t 0-3\n")
    # Ctrl-C leaves at once: the group knows before anybody's session could have ended.
    members.pop(0).end()
    until(b, "g", "two are left", lambda g: is_shared(g, 2), 20)
    equal(kc(b, "produce", "-t", "t", "-p", 0, stdin="x\ny\n").returncode, 0)
    # Killed: the others take its part when its session has ended.
    members.pop(1).end(signal.SIGKILL, -9)
    until(b, "g", "kcat has all", lambda g: is_shared(g, 1))
    last = Kc(b.address, folder, "g", "t")
    until(b, "g", "two again", lambda g: is_shared(g, 2))
    members.pop(0).end()
    until(b, "g", "kc has all", lambda g: is_shared(g, 1))
    for p in range(4):
        equal(kc(b, "produce", "-t", "t", "-p", p, stdin=f"new-{p}\n").returncode, 0)
    eventually("it prints them", lambda: {f"new-{p}" for p in range(4)} <= set(last.lines()))
    last.end(signal.SIGTERM)
    equal(set(offsets(b, "g").values()) & {-1}, set())
    until(b, "g", "nobody is left", lambda g: g["state"] == "Empty" and g["lag"] == 0)


@test
def a_static_member_comes_back_to_what_it_had(folder):
    b = Broker(folder / "d")
    fill(b, "t", 2)
    m = Kc(b.address, folder, "g", "t", args=["--set", "group.instance.id=one"])
    until(b, "g", "it has all", lambda g: is_shared(g, 1))
    m.end()
    equal([x["instance"] for x in described(b, "g")["members"]], ["one"])
    m = Kc(b.address, folder, "g", "t", args=["--set", "group.instance.id=one"])
    equal(kc(b, "produce", "-t", "t", "-p", 0, stdin="x\n").returncode, 0)
    eventually("it goes on", lambda: m.lines() == ["x"])
    m.end()


@test
def it_says_what_it_waits_for(folder):
    b = Broker(folder / "d", "--set", "auto.create.topics.enable=false")
    fill(b, "t", 1, 1)
    m = Kc(b.address, folder, "g", "t", "missing", args=["--why"])
    eventually("it prints", lambda: m.lines() == ["t-0-0"])
    eventually("it says so", lambda: "kc: why: t 0: at the end, offset 1" in m.said())
    holds(m.said(), "kc: why: group g: is a member")
    holds(kc(b, "group", "describe", "g").stdout, "missing: members subscribe to it, and there is no such topic")
    b.p.send_signal(signal.SIGSTOP)
    m.end(code=1)  # however deaf the coordinator is
    b.p.send_signal(signal.SIGCONT)
    holds(m.said(), "group g was not left in good order, what was printed last may come again")


@test
def asked_by_a_signal_it_says_what_it_waits_for(folder):
    b = Broker(folder / "d")
    fill(b, "t", 1, 1)
    m = Kc(b.address, folder, "g", "t")
    eventually("it prints", lambda: m.lines() == ["t-0-0"])
    equal("why" in m.said(), False)
    m.p.send_signal(signal.SIGUSR1)
    eventually("it says so", lambda: "kc: why: t 0: " in m.said())
    m.end()
    said = folder / "alone"  # without a group too
    with said.open("wb") as f:
        p = subprocess.Popen([KC, "consume", "-t", "t", "-b", b.address], stdout=subprocess.DEVNULL, stderr=f)
    scene._children.append(p)
    scene.until_caught(p, signal.SIGUSR1)
    p.send_signal(signal.SIGUSR1)
    eventually("it says so without a group", lambda: "kc: why: t 0: " in said.read_text())
    p.send_signal(signal.SIGINT)
    p.wait(timeout=20)


@test
def a_member_lives_on_when_its_coordinator_is_killed(folder):
    c = Cluster(folder / "c", 3, "--set", "offsets.topic.num.partitions=3", "--set", "min.insync.replicas=2")
    c.ok("topic", "create", "t", "--partitions", 3, "--rf", 3)
    m = Kc(c.address, folder, "g", "t")
    wanted = set()
    for round_ in range(3):
        for p in range(3):
            values = [f"{round_}-{p}-{i}" for i in range(20)]
            wanted |= set(values)
            equal(c.kc("produce", "-t", "t", "-p", p, "--set", "acks=-1", stdin="".join(f"{v}\n" for v in values), timeout=120).returncode, 0)
        eventually(f"all of round {round_} is printed", lambda: wanted <= set(m.lines()), 60)
        g = json.loads(c.ok("group", "describe", "g", "--json", timeout=120))
        victim = g["coordinator"]
        c.kill(victim)
        c.start(victim)
    m.end()
    g = json.loads(c.ok("group", "describe", "g", "--json", timeout=120))
    equal((g["state"], g["lag"]), ("Empty", 0), g)
    equal(set(m.lines()), wanted)

if __name__ == "__main__":
    main()
