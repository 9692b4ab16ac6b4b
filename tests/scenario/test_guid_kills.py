"""A producer that is killed (kill -9) mid-batch a hundred times and started again with the same ids, on a cluster whose leaders are killed under it: the topic
holds one copy of each id and misses none, by kcat's reading and by ours; and all sent once more is answered with the places of those copies.

The program is guid_producer.c, on libkclient's public API. The control, without ids on the same cluster, is seen to store copies.
"""
import collections
import json
import random
import struct
import subprocess
import threading

import scene
from scene import BUILD, ROOT, equal, eventually, main, run, test
from scene_cluster import Cluster, LeaderKiller

KILLS, CONTROL_KILLS, RUNS_MAX, ENDLESS = 100, 20, 1000, 1 << 40


def build(folder):
    r = run("gcc", "-O1", "-Wall", "-Wextra", "-Werror", "-I", ROOT / "include", ROOT / "tests" / "scenario" / "guid_producer.c", "-o", folder / "guid_producer",
            f"-L{BUILD}/lib", "-lkclient", f"-Wl,-rpath,{BUILD}/lib")
    equal(r.returncode, 0, r.stderr)
    return folder / "guid_producer"


class Killed(threading.Thread):
    """The producer of a topic, killed again and again until so many kills have hit it at work, with records that were not answered yet."""

    def __init__(self, program, c, folder, topic, kills, *flags):
        super().__init__()
        self.program, self.c, self.topic, self.wanted, self.flags = program, c, topic, kills, flags
        self.path, self.rng = folder / f"{topic}.state", random.Random(topic)
        self.kills, self.requests, self.runs, self.error = 0, 0, 0, None
        self.path.write_bytes(bytes(32))

    def state(self):
        return collections.namedtuple("State", "mark sent waiting requests")(*struct.unpack("=4q", self.path.read_bytes()))

    def command(self, first, last, *flags):
        return [str(x) for x in (self.program, self.c.address, self.topic, self.path, first, last, *self.flags, *flags)]

    def disturbed(self):
        """One run that is killed at a random moment, mostly once it has had an answer."""
        first = max(1, self.state().mark + 1 - self.rng.choice((0, 0, 100, 3000)))
        with subprocess.Popen(self.command(first, ENDLESS), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as p:
            scene._children.append(p)
            working = self.runs % 5 > 0 and scene.line_of(p) != ""
            try:
                p.wait(self.rng.uniform(0.002, 0.1))
            except subprocess.TimeoutExpired:
                p.kill()
            error = p.communicate()[1].decode()
        scene._children.remove(p)
        equal(p.returncode, -9, error)
        self.runs += 1
        self.kills += working and self.state().waiting > 0
        self.requests += self.state().requests > 0

    def run(self):
        try:
            while self.kills < self.wanted:
                equal(self.runs < RUNS_MAX, True, f"{self.kills} of {self.runs} kills struck it at work")
                self.disturbed()
        except Exception as e:  # noqa: BLE001 - told by end()
            self.error = e

    def end(self):
        self.join()
        if self.error:
            raise self.error

    def finish(self):
        """What is left, undisturbed. How many there are then."""
        s = self.state()
        r = run(*self.command(s.mark + 1, s.sent), timeout=120)
        equal(r.returncode, 0, r.stderr)
        return s.sent


def by_kcat(c, topic):
    """{number: [(partition, offset), …]}, as a client that is not ours reads them."""
    r = run("kcat", "-C", "-b", c.address, "-t", topic, "-o", "beginning", "-e", "-q", "-f", "%s %p %o\\n", timeout=120)
    equal(r.returncode, 0, r.stderr)
    seen = collections.defaultdict(list)
    for line in r.stdout.splitlines():
        number, partition, offset = map(int, line.split())
        seen[number].append((partition, offset))
    return seen


def by_kc(c, topic):
    return collections.Counter(map(int, c.ok("consume", "-t", topic, "-o", "beginning", "-e", timeout=120).split()))


def under_kills(c, folder, producers):
    killer = LeaderKiller(c, *(p.topic for p in producers))
    killer.start()
    for p in producers:
        p.start()
    try:
        for p in producers:
            p.end()
    finally:
        leaders = killer.end()
    for p in producers:
        eventually("leaders", lambda: (ps := c.partitions(p.topic)) and all(x["leader"] >= 0 for x in ps), 60)
    return leaders


def sent_again(p, folder, count):
    """All of it once more, by a producer that knows nothing of the others: each is a duplicate, and stands where the answer says."""
    out = folder / f"{p.topic}.reports"
    r = run(*p.command(1, count, "--reports", out), timeout=120)
    equal(r.returncode, 0, r.stderr)
    told = {}
    for line in out.read_text().splitlines():
        number, partition, offset, duplicate = map(int, line.split())
        equal(duplicate, 1, f"{p.topic}: {number} was stored again")
        told[number] = [(partition, offset)]
    return told


@test
def a_producer_killed_a_hundred_times_stores_each_id_once(folder):
    c, program = Cluster(folder / "c", 3, "--set", "guid.index.memory.bytes=1000000"), build(folder)  # most ids are in files soon
    for topic, partitions in (("one", 1), ("six", 6)):
        c.ok("topic", "create", topic, "--partitions", partitions, "--rf", "3", "--config", "min.insync.replicas=2", "--config", "message.guid.dedup=true")
    producers = [Killed(program, c, folder, topic, KILLS) for topic in ("one", "six")]
    leaders = under_kills(c, folder, producers)
    for p in producers:
        count = p.finish()
        seen = by_kcat(c, p.topic)
        print(f"{p.topic}: {count} ids, {p.kills} of {p.runs} kills with records unanswered ({p.requests} just after a request), {leaders} of leaders", flush=True)
        equal([n for n in range(1, count + 1) if n not in seen][:10], [], f"{p.topic}: missing")
        equal([(n, at) for n, at in seen.items() if len(at) > 1 or not 1 <= n <= count][:10], [], f"{p.topic}: more than once")
        equal(by_kc(c, p.topic), collections.Counter(range(1, count + 1)), f"{p.topic}: as kc reads it")
        equal(sent_again(p, folder, count) == seen, True, f"{p.topic}: the answers say other places than kcat sees")
        equal(by_kcat(c, p.topic) == seen, True, f"{p.topic}: changed by sending all again")
        runs = sum(x["runs"] for x in json.loads(c.ok("guid", "stats", "-t", p.topic, "--json"))["partitions"])
        equal(runs > 0, True, f"{p.topic}: no id was looked for in a file")
    equal(leaders >= 5, True, f"{leaders} kills of leaders")
    equal(c.stop(), 0)


@test
def without_ids_it_stores_copies(folder):
    c, program = Cluster(folder / "c", 3), build(folder)
    c.ok("topic", "create", "plain", "--partitions", 1, "--rf", "3", "--config", "min.insync.replicas=2")
    p = Killed(program, c, folder, "plain", CONTROL_KILLS, "--no-ids")
    p.rng.choice = lambda _: 0  # it sends nothing that it knows is stored
    under_kills(c, folder, [p])
    count = p.finish()
    seen = by_kcat(c, "plain")
    equal([n for n in range(1, count + 1) if n not in seen], [], "missing")
    equal(sum(len(at) > 1 for at in seen.values()) > 0, True, "kills that stored nothing twice show nothing")
    equal(c.stop(), 0)


main()
