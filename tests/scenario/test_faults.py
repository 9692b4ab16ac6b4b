"""Fault rules on a broker that runs, over HTTP: which requests each of a rule's words picks, and what each of its effects does, as a client sees it on its socket;
a rule that is wrong is refused with the field named."""
import json
import socket
import struct
import time

from scene import KBROKER, KC, Broker, equal, eventually, holds, kc, main, run, test
from scene_cluster import Cluster
from scene import ask

PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_FETCH, FIND_COORDINATOR, HEARTBEAT, DESCRIBE_GROUPS = 0, 1, 2, 3, 9, 10, 12, 15


# ---- A client that hides nothing ----

def crc32c(data, table=[]):
    if not table:
        for i in range(256):
            for _ in range(8):
                i = i >> 1 ^ (0x82f63b78 if i & 1 else 0)
            table.append(i)
    c = 0xffffffff
    for b in data:
        c = table[(c ^ b) & 255] ^ c >> 8
    return c ^ 0xffffffff


def text(s):
    return struct.pack(">h", len(s)) + s.encode()


def batch():
    """One record: no key, value v."""
    record = bytes([0, 0, 0, 1, 2]) + b"v" + b"\0"
    body = struct.pack(">hiqqqhii", 0, 0, 0, 0, -1, -1, -1, 1) + bytes([len(record) * 2]) + record
    return struct.pack(">qiibI", 0, 9 + len(body), -1, 2, crc32c(body)) + body


def list_offsets(topic="t", partition=0):
    return struct.pack(">iii", -1, 1, 0)[:8] + text(topic) + struct.pack(">iiq", 1, partition, -1)


def produce(topic="t", acks=-1):
    b = batch()
    return struct.pack(">hhii", -1, acks, 5000, 1) + text(topic) + struct.pack(">iii", 1, 0, len(b)) + b


class Client:
    def __init__(self, b, name="raw"):
        self.b, self.name, self.next, self.rest = b, name, 0, b""
        self.s = socket.create_connection(("127.0.0.1", b.port), 60)

    def send(self, api, version, body):
        self.next += 1
        frame = struct.pack(">hhi", api, version, self.next) + text(self.name) + body
        self.s.sendall(struct.pack(">i", len(frame)) + frame)

    def get(self, wait=60):
        """The whole answer, its length and correlation id included; b"": the connection was closed; None: nothing within the time."""
        self.s.settimeout(wait)
        try:
            while len(self.rest) < 4 or len(self.rest) < 4 + struct.unpack(">i", self.rest[:4])[0]:
                more = self.s.recv(65536)
                if not more:
                    return self.rest
                self.rest += more
        except TimeoutError:
            return None
        n = 4 + struct.unpack(">i", self.rest[:4])[0]
        data, self.rest = self.rest[:n], self.rest[n:]
        return data

    def call(self, api, version, body, wait=60):
        self.send(api, version, body)
        return self.get(wait)


def leader_error(answer):
    """Of a ListOffsets v1 answer about one partition."""
    n = struct.unpack(">h", answer[12:14])[0]
    return struct.unpack(">h", answer[14 + n + 8:14 + n + 10])[0]


def produce_error(answer):
    """Of a Produce v3 answer; (error, base offset)."""
    n = struct.unpack(">h", answer[12:14])[0]
    return struct.unpack(">hq", answer[14 + n + 8:14 + n + 18])


def begin(folder, *options):
    b = Broker(folder / "d", *options)
    b.data = folder / "d"
    for topic in ("t", "u"):
        equal(kc(b, "topic", "create", topic, "--partitions", 2).returncode, 0)
    return b


def rule(b, **fields):
    """Adds it, and forgets the others."""
    equal(ask(b.data, "DELETE", "/faults")[0], 200)
    status, answer = ask(b.data, "POST", "/faults", fields)
    equal(status, 200, answer)
    return answer["first"]


def codes(c, n, **which):
    return [leader_error(c.call(LIST_OFFSETS, 1, list_offsets(**which))) for _ in range(n)]


def end_of(b, topic="t"):
    return json.loads(kc(b, "topic", "describe", topic, "--json").stdout)["partitions"][0]["leo"]


# ---- Which requests ----

@test
def a_rule_picks_its_requests(folder):
    b = begin(folder)
    c = Client(b)
    bad = dict(api="ListOffsets", error="NOT_LEADER_OR_FOLLOWER")
    rule(b, **bad)
    equal(codes(c, 3), [6, 6, 6])
    rule(b, **bad, nth=2)
    equal(codes(c, 4), [0, 6, 0, 0])
    rule(b, **bad, every=3)
    equal(codes(c, 7), [0, 0, 6, 0, 0, 6, 0])
    rule(b, **bad, after=2, times=1)
    equal(codes(c, 5), [0, 0, 6, 0, 0])
    rule(b, **bad, percent=50)
    assert 40 <= codes(c, 200).count(6) <= 160
    rule(b, **bad, percent=0)
    equal(codes(c, 20), [0] * 20)
    rule(b, **{**bad, "api": 2, "error": 6})  # by numbers
    equal(codes(c, 1), [6])
    rule(b, **{**bad, "api": "Produce"})
    equal(codes(c, 1), [0])
    rule(b, error=6)  # any API
    equal(codes(c, 1), [6])
    for versions, wanted in ((1, 6), ([1, 1], 6), ([0, 3], 6), (2, 0), ([2, 9], 0)):
        rule(b, **bad, versions=versions)
        equal(codes(c, 1), [wanted], versions)
    rule(b, **bad, client_id="raw")
    equal((codes(c, 1), codes(Client(b, "other"), 1)), ([6], [0]))
    rule(b, **bad, topic="t")
    equal((codes(c, 1), codes(c, 1, topic="u")), ([6], [0]))
    rule(b, **bad, topic="t", partition=1)
    equal((codes(c, 1), codes(c, 1, partition=1), codes(c, 1, topic="u", partition=1)), ([0], [6], [0]))
    rule(b, **bad, broker=0)
    equal(codes(c, 1), [6])
    rule(b, **bad, broker=1)
    equal(codes(c, 1), [0])
    for who, wanted in (("clients", [6]), ("nodes", [0])):
        rule(b, **bad, **{"from": who})
        equal(codes(c, 1), wanted)
    rule(b, **bad, **{"from": "nodes"})
    equal(codes(Client(b, "kbroker-1"), 1), [6])
    listed = ask(b.data, "GET", "/faults")[1]["rules"]
    equal([(x["hits"], x["seen"], x["rule"]["from"]) for x in listed], [(1, 1, "nodes")])


@test
def a_rule_picks_a_group(folder):
    b = begin(folder)
    c = Client(b)
    for g in ("g", "h"):  # the coordinator's topic is made
        eventually("a coordinator", lambda: c.call(FIND_COORDINATOR, 0, text(g))[8:10] == b"\0\0")
    calls = {
        "FindCoordinator": (FIND_COORDINATOR, 1, lambda g: text(g) + b"\0", lambda a: struct.unpack(">h", a[12:14])[0]),
        "Heartbeat": (HEARTBEAT, 0, lambda g: text(g) + struct.pack(">i", 1) + text("m"), lambda a: struct.unpack(">h", a[8:10])[0]),
        "DescribeGroups": (DESCRIBE_GROUPS, 0, lambda g: struct.pack(">i", 1) + text(g), lambda a: struct.unpack(">h", a[12:14])[0]),
        "OffsetFetch": (OFFSET_FETCH, 2, lambda g: text(g) + struct.pack(">i", 0), lambda a: struct.unpack(">h", a[-2:])[0]),
    }
    rule(b, group="g", error="COORDINATOR_NOT_AVAILABLE")
    for name, (api, version, body, code) in calls.items():
        equal(code(c.call(api, version, body("g"))), 15, f"{name} of g")
        assert code(c.call(api, version, body("h"))) != 15, f"{name} of h"
    equal(codes(c, 1), [0])
    rule(b, api="Heartbeat", group="h", error="COORDINATOR_NOT_AVAILABLE")
    equal([code(c.call(api, version, body("h"))) == 15 for api, version, body, code in calls.values()], [False, True, False, False])


# ---- What happens ----

@test
def errors_before_and_after_the_effect(folder):
    b = begin(folder)
    c = Client(b)
    rule(b, api="Produce", error="REQUEST_TIMED_OUT")
    equal(produce_error(c.call(PRODUCE, 3, produce())), (7, -1))
    equal(end_of(b), 0)
    rule(b, api="Produce", error="REQUEST_TIMED_OUT", when="after")
    equal(produce_error(c.call(PRODUCE, 3, produce())), (7, -1))
    equal(end_of(b), 1)
    rule(b, api="Produce", topic="u", error=7)
    equal(produce_error(c.call(PRODUCE, 3, produce())), (0, 1))


@test
def a_connection_closes_before_and_after_the_effect(folder):
    b = begin(folder)
    for when, end in (("before", 0), ("after", 1)):
        rule(b, api="Produce", close=True, when=when)
        c = Client(b)
        equal(c.call(PRODUCE, 3, produce()), b"")
        equal(end_of(b), end)
    rule(b, api="Produce", close=True, when="after")
    c = Client(b)
    equal(c.call(PRODUCE, 3, produce(acks=0)), b"")  # no answer was due
    eventually("it is stored", lambda: end_of(b) == 2)


@test
def delays_stalls_and_throttles(folder):
    b = begin(folder)
    for when, end in (("before", 0), ("after", 1)):
        rule(b, api="Produce", delay_ms=1500, when=when)
        c, began = Client(b), time.monotonic()
        c.send(PRODUCE, 3, produce())
        if when == "before":
            equal(end_of(b), end)
        else:
            eventually("it is stored", lambda: end_of(b) == 2)
        equal(produce_error(c.get())[0], 0)
        assert time.monotonic() - began >= 1.5
    for when, end in (("before", 2), ("after", 4)):
        number = rule(b, api="Produce", stall=True, when=when)
        c = Client(b)
        equal(c.call(PRODUCE, 3, produce(), wait=0.5), None)
        equal(end_of(b), end)
        c.send(LIST_OFFSETS, 1, list_offsets())  # what comes behind it waits too
        equal(c.get(0.3), None)
        equal(ask(b.data, "DELETE", f"/faults?rule={number}")[0], 200)
        equal(produce_error(c.get())[0], 0)
        equal(leader_error(c.get()), 0)
        eventually("it is stored, once", lambda: end_of(b) == max(end, 3))
    rule(b, api="Produce", throttle_ms=12345)
    equal(struct.unpack(">i", Client(b).call(PRODUCE, 3, produce())[-4:])[0], 12345)


@test
def drips_and_turned_bits(folder):
    b = begin(folder)
    c = Client(b)
    plain = c.call(METADATA, 0, struct.pack(">i", 1) + text("t"))
    rule(b, api="Metadata", drip_bytes_per_s=len(plain) // 2)
    began = time.monotonic()
    c.send(METADATA, 0, struct.pack(">i", 1) + text("t"))
    c.s.settimeout(60)
    first = c.s.recv(65536)
    assert 0 < len(first) < len(plain), "it came at once"
    while len(first) < len(plain):
        first += c.s.recv(65536)
    equal(first[8:], plain[8:])
    assert time.monotonic() - began >= 1
    for at in (9, len(plain) - 1, -1, -5, len(plain) + 9):
        rule(b, api="Metadata", corrupt=at)
        got = c.call(METADATA, 0, struct.pack(">i", 1) + text("t"))
        equal([i for i in range(8, len(plain)) if got[i] != plain[i]], [at % len(plain)], at)
    rule(b, api="Metadata", corrupt=at, when="before", delay_ms=1, throttle_ms=5)  # what goes together does
    assert c.call(METADATA, 0, struct.pack(">i", 1) + text("t")) != plain


@test
def a_disk_that_fails(folder):
    b = begin(folder)
    c = Client(b)
    rule(b, disk="write", topic="t", error="ENOSPC", times=1)
    equal(produce_error(c.call(PRODUCE, 3, produce()))[0], 56)
    equal(produce_error(c.call(PRODUCE, 3, produce("u")))[0], 0)
    eventually("there is room again", lambda: produce_error(c.call(PRODUCE, 3, produce()))[0] == 0)
    rule(b, disk="write", topic="u", partition=0, error="EIO")
    equal(produce_error(c.call(PRODUCE, 3, produce("u")))[0], 56)
    equal(produce_error(c.call(PRODUCE, 3, produce()))[0], 0)


# ---- What is wrong ----

@test
def a_rule_that_is_wrong_is_refused_with_its_field(folder):
    b = begin(folder)
    good = {"api": "Produce", "close": True}
    for body, number, field, words in (
        ([good, {"api": "Produce", "delay_ms": -1}], 2, "delay_ms", ["rule 2", "delay_ms", "whole number"]), ({"api": "Produze", "close": True}, 1, "api", ["did you mean \"Produce\""]),
        ({"api": "Fetch", "eror": 5}, 1, "eror", ["did you mean \"error\""]), ({"api": "Fetch", "close": True, "nth": 1, "every": 2}, 1, "every", ["exclude"]),
        ({"api": "Fetch"}, 1, None, ["does nothing"]), ([good, 3], 2, None, ["an object"]), ({"disk": "write", "error": "EIO", "client_id": "c"}, 1, "client_id", ["disk"]),
        ({"close": True, "from": "me"}, 1, "from", ["clients", "nodes"]), ({"close": True, "gr\u00fcn\"\\": 1}, 1, "gr\u00fcn\"\\", ["nothing is called"]),
    ):
        status, answer = ask(b.data, "POST", "/faults", body)
        equal((status, answer.get("rule"), answer["field"]), (400, number, field), body)
        holds(answer["error"], f"rule {number}: ", *words)
    for body in ("{", "", "3", '{"rules": 3}'):
        status, answer = ask(b.data, "POST", "/faults", body)
        equal((status, sorted(answer)), (400, ["error"]), body)
    equal(ask(b.data, "GET", "/faults")[1], {"rules": []})
    equal(ask(b.data, "DELETE", "/faults?rule=7")[0], 404)
    r = run(KBROKER, "fault", "add", '{"api": "Fetch", "nth": 0, "close": true}', "--data", b.data)
    equal(r.returncode, 1)
    holds(r.stderr, "rule 1", "nth")


@test
def a_clusters_refusal_names_the_field_too(folder):
    c = Cluster(folder / "c", 2)
    status, answer = ask(folder / "c", "POST", "/faults", [{"api": "Fetch", "close": True}, {"api": "Fetch", "delay_ms": "long"}])
    equal((status, answer["rule"], answer["field"]), (400, 2, "delay_ms"))
    holds(answer["error"], "rule 2: ", "delay_ms")
    equal([x["rules"] for x in ask(folder / "c", "GET", "/faults")[1]["nodes"]], [[], []])
    # Only what nodes ask of each other: no follower gets anything, clients do.
    c.create("t", "0:1")
    c.until("t", "both in sync", isr=[0, 1])
    equal(ask(folder / "c", "POST", "/faults?node=0", {"api": "Fetch", "topic": "t", "from": "nodes", "stall": True})[0], 200)
    run(KC, "produce", "-t", "t", "-p", 0, "--set", "acks=1", "-b", c.address, stdin="a\n")
    equal(run(KC, "topic", "describe", "t", "--json", "-b", c.address).returncode, 0)


main()
