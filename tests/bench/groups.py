"""The figures of consumer groups: what a coordinator costs, how long members wait for it. Section of run.py: groups."""
import itertools
import subprocess
import time

import measure
from measure import cache, drop_topic, fresh_topic, interleave, program, servers

_names = itertools.count(1)


def raw():
    return cache.c_build("groups", [measure.BENCH / "groups.c"], [], [measure.BENCH / "raw.h"])


def client():
    lib = cache.build_tree() / "lib" / "libkclient.so"
    if not lib.exists():
        raise cache.Missing(f"{lib} is not built")
    return cache.c_build("group_client", [measure.BENCH / "group_client.c"],
                         [f"-I{cache.REPO / 'include'}", f"-L{lib.parent}", f"-Wl,-rpath,{lib.parent}", "-lkclient"],
                         sorted((cache.REPO / "include" / "kclient").glob("*.h")))


def place(server):
    return server.boot.split(",")[0].rsplit(":", 1)


def first_join(b, own, kafka):
    """Subscribe to first record, in a group that nobody has heard of yet, by libkclient; the coordinator is known to the broker."""
    topics = {s: fresh_topic(s, "join", 1) for s in (own, kafka)}
    for s, t in topics.items():
        program(b.rdk(s, "produce", t, "-s", 100, "-n", 1000, "-a", 1))

    def one(s):
        return program([client(), "first", s.boot, topics[s], f"first-{next(_names)}"])
    for s in topics:
        one(s)   # makes __consumer_offsets
    r = b.keep("first", interleave(b.size(10, 2), own=lambda: one(own), kafka=lambda: one(kafka)))
    b.row("subscribe to first record", r["own"]["ms"], "ms", r["kafka"]["ms"], 50, of_peer=False)
    for s, t in topics.items():
        drop_topic(s, t)


def rebalance(b, own, kafka):
    members = b.size(10, 4)

    def one(s, tries=1):
        try:
            return program([raw(), "rebalance", *place(s), f"rebalance-{next(_names)}", members])
        except RuntimeError as e:
            if tries == 1 or "SyncGroup: error 25" not in str(e):
                raise
            return one(s, tries - 1)
    # Apache Kafka's coordinator answers one SyncGroup in some hundred with UNKNOWN_MEMBER_ID: that group is left, another one measured.
    r = b.keep("rebalance", interleave(b.size(10, 2), own=lambda: one(own), kafka=lambda: one(kafka, tries=5)))
    b.row(f"{members} members rebalance, beyond their polls", r["own"]["beyond_ms"], "ms", r["kafka"]["beyond_ms"], 500, of_peer=False)


def idle(b):
    groups, members, seconds = b.size(1000, 20), 10, b.size(30, 4)
    server = (servers.Kafka() if b.a.stand_in else servers.Kbroker()).start()
    p = subprocess.Popen([str(x) for x in (raw(), "idle", *place(server), groups, members, seconds)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    if p.stdout.readline().strip() != b"ready":
        raise RuntimeError("the members are not ready")
    time.sleep(1)
    cpu, clock = measure.cpu_ns(server.pid()), time.monotonic()
    time.sleep(seconds - 2)
    percent = (measure.cpu_ns(server.pid()) - cpu) / 1e9 / (time.monotonic() - clock) * 100
    line = p.stdout.readline()   # all of them are still connected
    pss = measure.pss_kb(server.pid()) / 1024
    p.communicate()
    if b'"failed": 0' not in line:
        raise RuntimeError(f"heartbeats failed: {line!r}")
    b.keep("idle", {"cpu_percent": percent, "pss_mb": pss, "line": line.decode()})
    floor = program([raw(), "echo", groups * members, b.size(15, 3)])
    b.keep("idle_floor", floor)
    b.row(f"{groups} groups of {members}, idle: CPU of a core, a bare echo's", percent, "%", floor["cpu_percent"], 5, of_peer=False)
    b.row(f"{groups} groups of {members}, idle: Pss", pss, "MB", None, 150, of_peer=False)
    server.stop()


def commits(b, own):
    """100 committers beside one who fetches: how much longer he waits."""
    seconds, members, parts, rate = b.size(10, 2), 100, 100, b.size(100_000, 20_000)
    topic, read = fresh_topic(own, "commits", parts), fresh_topic(own, "read", 1)
    program(b.rdk(own, "produce", read, "-s", 100, "-n", 1000, "-a", 1))
    fetch = [raw(), "fetch", *place(own), read, seconds]

    def both():
        args = [str(x) for x in (raw(), "commits", *place(own), topic, parts, members, rate, seconds + 1)]
        p = subprocess.Popen(args, stdout=subprocess.PIPE, text=True)
        time.sleep(0.5)
        d = program(fetch)
        out = measure.json.loads(p.communicate()[0])
        if out["failed"]:
            raise RuntimeError(f"{out['failed']} commits failed")
        return {**d, "commits_per_s": out["commits_per_s"]}
    r = b.keep("commits", interleave(b.rounds, alone=lambda: program(fetch), beside=both))
    b.row("commits of 100 members in batches of 100", r["beside"]["commits_per_s"], "offsets/s", None, 0.95 * rate, at_least=True, of_peer=False)
    b.row("p99 of a fetch beside them, and without", r["beside"]["p99_us"], "us", r["alone"]["p99_us"], 2)
    for t in (topic, read):
        drop_topic(own, t)


def consume(b, own):
    n = b.size(20_000_000, 200_000)   # so many that joining is no matter
    topic = fresh_topic(own, "group", 12)
    program(b.rdk(own, "produce", topic, "-s", 100, "-n", n, "-a", 1, "-T", 240))
    r = b.keep("consume", interleave(b.size(5, 1), assigned=lambda: program([client(), "assigned", own.boot, topic, n, 12]),
                                     subscribed=lambda: program([client(), "subscribed", own.boot, topic, n])))
    b.row("100 B, as a member against assigned", r["subscribed"]["records_per_s"], "records/s", r["assigned"]["records_per_s"], 0.95, at_least=True)
    d = b.keep("member", program([client(), "idle", own.boot, topic, f"idle-{next(_names)}", b.size(30, 4)]))
    b.row("an idle member of libkclient: CPU of a core", d["cpu_percent"], "%", None, 0.2, of_peer=False)
    drop_topic(own, topic)


def groups(b):
    """Consumer groups: first join, rebalance, idle groups, commits beside fetches, consuming as a member."""
    own, kafka = b.own(), b.kafka()
    first_join(b, own, kafka)
    rebalance(b, own, kafka)
    idle(b)
    commits(b, own)
    consume(b, own)


SECTIONS = {"groups": groups}
