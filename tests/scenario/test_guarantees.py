"""The three delivery guarantees, as examples/ states them, with both halves killed (kill -9) in the middle of sending and of processing: what each promises is
checked, and its control, which notes what was done in the other order or sends without ids, is seen to break that promise."""
import collections
import os
import random
import re
import sqlite3
import subprocess

from scene import BUILD, ROOT, Broker, equal, kc, line_of, main, run, test
from scene_cluster import Cluster, LeaderKiller

COUNT, KILLS, RUNS_MAX = 1200, 12, 400


def build(folder, name):
    libraries = ["-lsqlite3"] if name == "exactly_once" else []
    r = run("gcc", "-O1", "-Wall", "-Werror", "-I", ROOT / "include", ROOT / "examples" / f"{name}.c", "-o", folder / name, f"-L{BUILD}/lib", "-lkclient",
            *libraries, f"-Wl,-rpath,{BUILD}/lib")
    equal(r.returncode, 0, r.stderr)
    return folder / name


def under_kills(seed, *args, kills=KILLS, longest=0.05):
    """Runs the program again and again, killing it at a random moment, mostly once it says that it works, until so many kills have hit it; then to its end.
    Returns how many hit it: work that is done after half of them was not disturbed enough."""
    rng = random.Random(seed)
    wanted, kills = kills, 0
    for _ in range(RUNS_MAX):
        p = subprocess.Popen([str(a) for a in args], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if kills % 4 < 3:
            line_of(p)
        try:
            p.wait(rng.uniform(0.005, longest) if kills < wanted else 120)
        except subprocess.TimeoutExpired:
            p.kill()
            kills += 1
        error = p.communicate()[1].decode()
        if p.returncode == -9:
            continue
        equal(p.returncode, 0, f"{args}: {error}")
        if kills < wanted // 2:
            raise AssertionError(f"{args}: done after {kills} kills: it was not disturbed enough to show anything")
        return kills
    raise AssertionError(f"{args}: never done")


def in_topic(b, topic):
    return collections.Counter(int(x) for x in kc(b, "consume", "-t", topic, "-o", "beginning", "-e").stdout.split())


def in_file(path):
    """Results by number. A line that a kill cut short would be no number: writes of a line are whole."""
    return collections.Counter(int(x) for x in path.read_text().split())


def lost(seen):
    return [n for n in range(1, COUNT + 1) if seen[n] == 0]


def twice(seen):
    return [n for n, times in seen.items() if times > 1]


class Played:
    """One play of an example: what is in the topic then, and what in its results."""

    def __init__(self, folder, b, program, topic, send_flags=(), process_flags=(), dedup=False):
        kc(b, "topic", "create", topic, "--partitions", "2", *(["--config", "message.guid.dedup=true"] if dedup else []))
        state = folder / topic
        state.mkdir()
        under_kills(f"{topic} send", program, "send", b.address, topic, state, COUNT, *send_flags)
        under_kills(f"{topic} process", program, "process", b.address, topic, state, *process_flags)
        self.sent = in_topic(b, topic)
        database = state / "results.db"
        if database.exists():
            with sqlite3.connect(database) as db:
                self.done = collections.Counter(n for n, in db.execute("SELECT number FROM results"))
        else:
            self.done = in_file(state / "results")
        equal(set(self.done) <= set(self.sent) <= set(range(1, COUNT + 1)), True, "results of what was never sent")


@test
def at_most_once_loses_and_never_does_twice(folder):
    b = Broker(folder / "d")
    program = build(folder, "at_most_once")
    p = Played(folder, b, program, "most")
    equal((twice(p.sent), twice(p.done)), ([], []), "twice")
    equal(len(lost(p.sent)) > 0 and len(lost(p.done)) > len(lost(p.sent)), True, "kills that lost nothing show nothing")
    control = Played(folder, b, program, "most-control", ["--note-after"], ["--note-after"])
    equal(len(twice(control.sent)) > 0, True, "the control, which sends before it notes, sends twice")
    equal(len(twice(control.done)) > len(twice(control.sent)), True, "the control, which processes before it commits, processes twice")


@test
def at_least_once_does_twice_and_never_loses(folder):
    b = Broker(folder / "d")
    program = build(folder, "at_least_once")
    p = Played(folder, b, program, "least")
    equal((lost(p.sent), lost(p.done)), ([], []), "lost")
    equal(len(twice(p.sent)) > 0 and sum(p.done.values()) > sum(p.sent.values()), True, "kills that did nothing twice show nothing")
    control = Played(folder, b, program, "least-control", ["--note-before"], ["--note-before"])
    equal(len(lost(control.sent)) > 0, True, "the control, which notes before it sends, loses")
    equal(len(lost(control.done)) > len(lost(control.sent)), True, "the control, which commits before it processes, loses")


@test
def exactly_once_does_each_once(folder):
    b = Broker(folder / "d")
    program = build(folder, "exactly_once")
    p = Played(folder, b, program, "once", dedup=True)
    once = collections.Counter(range(1, COUNT + 1))
    equal(p.sent - once, collections.Counter(), "sent twice")
    equal(once - p.sent, collections.Counter(), "lost on the way in")
    equal(p.done - once, collections.Counter(), "done twice")
    equal(once - p.done, collections.Counter(), "not done")
    control = Played(folder, b, program, "once-control", ["--no-ids"], ["--note-apart"], dedup=True)
    equal((lost(control.sent), len(twice(control.sent)) > 0), ([], True), "the control, without ids, sends twice")
    equal(sum(control.done.values()) > sum(control.sent.values()), True, "the control, whose position is stored apart, does twice")


@test
def exactly_once_refuses_a_topic_that_looks_no_ids_up(folder):
    b = Broker(folder / "d")
    program = build(folder, "exactly_once")
    kc(b, "topic", "create", "plain")
    r = run(program, "send", b.address, "plain", folder, 10)
    equal(r.returncode, 1)
    equal("message.guid.dedup=true" in r.stderr, True, r.stderr)
    equal(run(program, "send", b.address, "plain").returncode, 2)


@test
def they_say_what_is_wrong(folder):
    for name in ("at_most_once", "at_least_once", "exactly_once"):
        program = build(folder, name)
        for words in (["send", "127.0.0.1:1", "t", folder, "many"], ["send", "127.0.0.1:1", "t", folder, 5, "--once"], ["process", "127.0.0.1:1", "t"], []):
            r = run(program, *words)
            equal((r.returncode, r.stdout, "usage" in r.stderr), (2, "", True), f"{name} {words}")
        r = run(program, "process", "127.0.0.1:1", "t", folder)
        equal((r.returncode, r.stdout, "127.0.0.1:1: " in r.stderr), (1, "", True), r.stderr)


@test
def exactly_once_survives_leaders_that_die_under_it(folder):
    c, count = Cluster(folder / "c", 3), 6000
    program = build(folder, "exactly_once")
    c.ok("topic", "create", "once", "--partitions", "2", "--rf", "3", "--config", "min.insync.replicas=2", "--config", "message.guid.dedup=true")
    killer = LeaderKiller(c, "once")
    killer.start()
    try:
        kills = under_kills("cluster send", program, "send", c.address, "once", folder, count, kills=60, longest=0.1)
        kills += under_kills("cluster process", program, "process", c.address, "once", folder, kills=30, longest=0.1)
    finally:
        leaders = killer.end()
    equal(kills >= 45 and leaders >= 3, True, f"{kills} kills of the programs, {leaders} of leaders")
    once = collections.Counter(range(1, count + 1))
    equal(in_topic(c, "once"), once, "in the topic")
    # What came after the last look: to the end, in peace.
    equal(run(program, "process", c.address, "once", folder).returncode, 0)
    with sqlite3.connect(folder / "results.db") as db:
        equal(collections.Counter(n for n, in db.execute("SELECT number FROM results")), once, "results")
    equal(c.stop(), 0)


@test
def the_script_plays_them(folder):
    def play(*args):
        r = run(ROOT / "examples" / "guarantees.sh", *args, env={**os.environ, "KC_BUILD": str(BUILD)}, timeout=300)
        equal(r.returncode, 0, r.stderr)
        return [(int(lost), int(twice)) for lost, twice in re.findall(r"(\d+) lost, (\d+) more than once", r.stdout)]
    equal(play("exactly_once"), [(0, 0), (0, 0)], "exactly once")
    equal([(lost, twice > 0) for lost, twice in play("exactly_once", "control")], [(0, True), (0, True)], "its control")
    equal([(lost > 0, twice) for lost, twice in play("at_most_once")], [(True, 0), (True, 0)], "at most once")
    equal([twice > 0 for _, twice in play("at_most_once", "control")], [True, True], "its control, which notes after it acts")
    equal([(lost, twice > 0) for lost, twice in play("at_least_once")], [(0, True), (0, True)], "at least once")
    equal([lost > 0 for lost, _ in play("at_least_once", "control")], [True, True], "its control, which notes before it acts")
    r = run(ROOT / "examples" / "guarantees.sh", "exactly_twice")
    equal((r.returncode, r.stdout), (2, ""))
    equal("usage" in r.stderr, True)


main()
