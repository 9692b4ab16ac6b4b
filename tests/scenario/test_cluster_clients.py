"""Our own producer and consumer, as kc runs them, on a cluster that breaks under them: what was acknowledged, stored, lost, doubled, reordered.

The simulator does this with many seeds; here it is real processes, sockets and disks.
"""
import json
import random
import subprocess
import threading
import time

import scene
from scene import KC, equal, eventually, holds, main, test
from scene_cluster import Cluster


class Traffic:
    """An idempotent producer at a steady pace and a consumer of everything, both for as long as it takes. Values are v0, v1, …"""

    def __init__(self, c, folder, partitions, count, rate, bootstrap=None):
        self.c, self.partitions, self.count = c, partitions, count
        address = bootstrap or c.address
        self.files = {n: open(folder / n, "wb+") for n in ("reports", "consumed", "producer.err", "consumer.err")}
        self.producer = subprocess.Popen([KC, "produce", "-b", address, "-t", "t", "--rate", str(rate), "--reports", "--set", "batch.size=2000"],
                                         stdin=subprocess.PIPE, stdout=self.files["reports"], stderr=self.files["producer.err"])
        self.consumer = subprocess.Popen([KC, "consume", "-b", address, "-t", "t", "-o", "beginning", "-f", "%p %o %s\\n"],
                                         stdout=self.files["consumed"], stderr=self.files["consumer.err"])
        scene._children.extend([self.producer, self.consumer])
        self.feeder = threading.Thread(target=self.feed)
        self.feeder.start()

    def feed(self):
        try:
            for i in range(self.count):
                self.producer.stdin.write(b"v%d\n" % i)
            self.producer.stdin.close()
        except BrokenPipeError:
            pass

    def text(self, name):
        self.files[name].flush()
        self.files[name].seek(0)
        return self.files[name].read().decode(errors="replace")

    def consumed(self):
        """By partition: (offset, number) as they came."""
        seen = [[] for _ in range(self.partitions)]
        whole = self.text("consumed")
        for line in whole[: whole.rfind("\n") + 1].splitlines():
            p, offset, value = line.split()
            seen[int(p)].append((int(offset), int(value[1:])))
        return seen

    def end(self):
        """Both have come to the end. Returns what was told of each number, and what is stored and was consumed by partition."""
        equal(self.producer.wait(180), 0, self.text("producer.err"))
        self.feeder.join()
        reports = [json.loads(line) for line in self.text("reports").splitlines()]
        equal(len(reports), self.count, "reports")
        acked = {(r["record"] - 1 if "record" in r else i): (r["partition"], r["offset"]) for i, r in enumerate(reports) if not r.get("error")}
        eventually("leaders", lambda: (ps := self.c.partitions("t")) and all(p["leader"] >= 0 for p in ps), 60)
        stored = []
        for n in range(self.partitions):
            r = self.c.kc("consume", "-t", "t", "-p", n, "-o", "beginning", "-e", "-f", "%o %s\\n", timeout=60)
            equal(r.returncode, 0, r.stderr)
            stored.append([(int(o), int(v[1:])) for o, v in (line.split() for line in r.stdout.splitlines())])
        eventually("the consumer has all", lambda: sum(map(len, self.consumed())) >= sum(map(len, stored)), 60)
        equal(self.consumer.poll(), None, self.text("consumer.err"))
        self.consumer.terminate()
        self.consumer.wait(20)
        return acked, stored, self.consumed()


def count(acked, stored, consumed):
    """lost, doubled, out of order, acknowledged with another place than they have, partitions that were consumed otherwise than they are stored."""
    places = {}
    for p, records in enumerate(stored):
        for offset, number in records:
            places.setdefault(number, []).append((p, offset))
    order = sum(a[1] > b[1] for records in stored for a, b in zip(records, records[1:]))
    return {"lost": sum(n not in places for n in acked), "doubled": sum(len(v) - 1 for v in places.values()), "reordered": order,
            "misplaced": sum(n in places and at not in places[n] for n, at in acked.items()), "misread": sum(a != b for a, b in zip(stored, consumed))}


NOTHING = {"lost": 0, "doubled": 0, "reordered": 0, "misplaced": 0, "misread": 0}


@test
def the_count_sees_what_it_is_to_see(folder):
    good = [[(0, 0), (1, 2)], [(0, 1)]]
    acked = {0: (0, 0), 1: (1, 0), 2: (0, 1)}
    equal(count(acked, good, good), NOTHING)
    for what, stored in (("lost", [[(0, 0), (1, 2)], []]), ("doubled", [[(0, 0), (1, 2), (2, 2)], [(0, 1)]]), ("reordered", [[(0, 2), (1, 0)], [(0, 1)]]),
                         ("misplaced", [[(0, 0), (2, 2)], [(0, 1)]])):
        equal(count(acked, stored, stored)[what], 1, what)
    equal(count(acked, good, [[(0, 0)], [(0, 1)]]), {**NOTHING, "misread": 1})


@test
def rolling_kills_stops_and_pauses_lose_double_and_reorder_nothing(folder):
    c = Cluster(folder / "c", 3)
    c.ok("topic", "create", "t", "--partitions", 6, "--rf", 3, "--config", "min.insync.replicas=2")
    t = Traffic(c, folder, 6, 15000, 500)
    rnd = random.Random(4711)
    done = 0
    while t.producer.poll() is None or done < 6:
        act = ("kill-node", "pause-node", "stop-node", "kill-node", "pause-node")[done % 5]
        nodes = rnd.sample(range(3), 2 if done % 3 == 2 else 1)  # two of three: nothing is written until one is back
        c.do(act, *nodes)
        time.sleep(rnd.uniform(0.1, 2.5))  # how long it is away: shorter and longer than it takes to be missed
        for n in nodes:
            c.start(n)
        done += 1
        eventually("all in sync", lambda: (ps := c.partitions("t")) and all(len(p["isr"]) == 3 for p in ps), 60)
    acked, stored, consumed = t.end()
    print(f"{t.count} sent, {len(acked)} acked, {sum(map(len, stored))} stored, {done} times a node or two went away: {count(acked, stored, consumed)}")
    equal(len(acked), t.count, "acked")
    equal(count(acked, stored, consumed), NOTHING)


@test
def all_brokers_that_clients_started_from_are_replaced(folder):
    c = Cluster(folder / "c", 2, controllers=1)
    c.ok("topic", "create", "t", "--partitions", 3, "--rf", 2)
    t = Traffic(c, folder, 3, 4000, 400, bootstrap=c.addresses[0])
    c.do("add-node", 2, 3)
    c.address = ",".join(f"127.0.0.1:{n['port']}" for n in json.loads((c.data / "cluster.json").read_text())["nodes"] if n["id"] in (2, 3))
    c.ok("reassign", "t", "--to", "2,3", timeout=60)
    c.halt(0)
    c.kill(1)
    acked, stored, consumed = t.end()
    equal(sorted({b for p in c.partitions("t") for b in p["replicas"]}), [2, 3])
    equal((len(acked), count(acked, stored, consumed)), (4000, NOTHING))


@test
def a_consumer_says_what_an_unclean_election_lost_and_goes_on(folder):
    c = Cluster(folder / "c", 2, controllers=1)
    c.create("t", "0:1", min_insync_replicas=1)
    c.until("t", "both in sync", leader=0, isr=[0, 1])
    equal(c.produce("t", "kept0", "kept1"), "")
    out = open(folder / "out", "wb+")
    err = open(folder / "err", "wb+")
    k = subprocess.Popen([KC, "consume", "-b", c.address, "-t", "t", "-o", "beginning", "-f", "%o %s\\n"], stdout=out, stderr=err)
    scene._children.append(k)

    def said(f):
        f.seek(0)
        return f.read().decode()
    eventually("what is kept", lambda: said(out) == "0 kept0\n1 kept1\n")
    c.kill(1)
    c.until("t", "0 alone", leader=0, isr=[0])
    equal(c.produce("t", "lost2", "lost3", "lost4"), "")
    eventually("what will be lost is read", lambda: said(out).endswith("4 lost4\n"))
    c.kill(0)
    c.start(1)
    c.until("t", "no leader", leader=-1, isr=[0])
    c.ok("elect", "unclean", "t")
    equal(c.produce("t", "after2", "after3"), "")
    eventually("it goes on where the logs part", lambda: said(out).endswith("4 lost4\n2 after2\n3 after3\n"))
    holds(said(err), "kc: consume: t [0]: data was lost: offsets 2 to 4, already consumed, ", "going on at offset 2 (KC_DATA_LOST)")
    equal(said(err).count("KC_DATA_LOST"), 1, "told once")
    equal(k.poll(), None)


if __name__ == "__main__":
    main()
