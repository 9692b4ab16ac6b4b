"""A cluster of real processes for the scenario tests: kbroker cluster, its commands, and what kc sees of it from outside."""
import json
import os
import random
import subprocess
import threading
import time
import urllib.error
import urllib.request

import scene
from scene import KBROKER, KC, Broker, equal, eventually, holds, run


def command_line(pid):
    """Empty: no such process is left."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            return f.read()
    except OSError:
        return b""


def processes_of(data):
    """The nodes of a cluster's folder that are still there."""
    return [pid for pid in os.listdir("/proc") if pid.isdigit() and f"{data}/node-".encode() in command_line(pid)]


def nobody_left(data):
    """Waits until a parent that was killed has taken its nodes with it."""
    eventually(f"no node of {data} is left", lambda: not processes_of(data))


class Cluster(Broker):
    def __init__(self, data, nodes, *options, controllers=0, wait=30):
        self.data = data
        args = [KBROKER, "cluster", "--nodes", str(nodes), "--base-port", "0", "--data", str(data)]
        if controllers:
            args += ["--controllers", str(controllers)]
        self.launch([*args, *map(str, options)], wait)
        if self.address is None:
            raise AssertionError(f"the cluster did not start: {self.text()}\n{self.logs()}")
        self.addresses = self.address.split(",")

    def logs(self, lines=15):
        out = []
        for f in sorted(self.data.glob("node-*.log")):
            out.append(f"-- {f.name}")
            out += f.read_text(errors="replace").splitlines()[-lines:]
        return "\n".join(out)

    def do(self, command, *ids):
        r = run(KBROKER, "cluster", command, ",".join(map(str, ids)), "--data", self.data, timeout=90)
        if r.returncode:
            raise AssertionError(f"{command} {ids}: {r.stderr}\n{self.logs()}")

    def kill(self, *ids):
        self.do("kill-node", *ids)

    def start(self, *ids):
        self.do("start-node", *ids)

    def halt(self, *ids):
        self.do("stop-node", *ids)

    def fault(self, node, rule):
        r = run(KBROKER, "fault", "add", json.dumps(rule), "--data", self.data, "--node", node)
        if r.returncode:
            raise AssertionError(f"fault {rule}: {r.stderr}")

    def struck(self, node, hits):
        """Waits until the node's rules have struck so often: what was under way when they came is over then."""
        def enough():
            r = run(KBROKER, "fault", "list", "--data", self.data, "--node", node)
            return sum(x["hits"] for x in json.loads(r.stdout.split(": ", 1)[1])["rules"]) >= hits
        eventually(f"{hits} strikes on node {node}", enough)

    def mend(self, node):
        r = run(KBROKER, "fault", "clear", "--data", self.data, "--node", node)
        if r.returncode:
            raise AssertionError(f"fault clear: {r.stderr}")

    def kc(self, *args, **kw):
        return run(KC, *args, "-b", self.address, **kw)

    def ok(self, *args, **kw):
        r = self.kc(*args, **kw)
        if r.returncode:
            raise AssertionError(f"kc {' '.join(map(str, args))}: {r.stderr}\n{self.logs()}")
        return r.stdout

    def partitions(self, topic):
        """As described; empty: not now."""
        r = self.kc("topic", "describe", topic, "--json", "--set", "request.timeout.ms=5000")
        return [] if r.returncode else json.loads(r.stdout)["partitions"]

    def partition(self, topic, index=0):
        return (self.partitions(topic) or {index: None})[index]

    def until(self, topic, what, wait=30, index=0, **fields):
        """Waits until the partition is described so: leader=1, isr=[1, 2], …"""
        last = {}

        def is_so():
            last["p"] = self.partition(topic, index)
            return last["p"] is not None and all((sorted(last["p"][k]) if k == "isr" else last["p"][k]) == (sorted(v) if k == "isr" else v) for k, v in fields.items())
        try:
            eventually(what, is_so, wait)
        except AssertionError as e:
            raise AssertionError(f"{e}: wanted {fields}, last {last.get('p')}\n{self.logs()}") from None

    def create(self, topic, replicas, **config):
        self.ok("topic", "create", topic, "--replicas", replicas, *(x for k, v in config.items() for x in ("--config", f"{k.replace('_', '.')}={v}")))

    def produce(self, topic, *values, acks=-1, retries=True, **sets):
        """One record a line; what kc said when it was refused, '' when all were stored."""
        args = ["--set", f"acks={acks}"]
        if not retries:
            args += ["--set", "retries=0", "--set", "enable.idempotence=false"]
        for k, v in sets.items():
            args += ["--set", f"{k.replace('_', '.')}={v}"]
        r = self.kc("produce", "-t", topic, "-p", 0, *args, stdin="".join(f"{v}\n" for v in values), timeout=120)
        return r.stderr if r.returncode else ""

    def consume(self, topic):
        r = self.kc("consume", "-t", topic, "-p", 0, "-o", "beginning", "-e", timeout=60)
        if r.returncode:
            raise AssertionError(f"consume: {r.stderr}\n{self.logs()}")
        return r.stdout.split()

    def reads(self, topic, wanted):
        """What is committed shows as soon as the in-sync replicas have told their leader that they have it."""
        seen = []

        def all_there():
            seen[:] = self.consume(topic)
            return seen == wanted
        try:
            eventually("", all_there, 10)
        except AssertionError:
            raise AssertionError(f"seen {seen}, wanted {wanted}\n{self.logs()}") from None

    def stop(self, wait=60):
        return super().stop(wait=wait)


class Kit:
    """kbroker cluster --ephemeral --until-eof --admin 0 …, as Popen'ed by a kit."""

    def __init__(self, *options, nodes=1, ephemeral=True, wait=60):
        args = [KBROKER, "cluster", "--nodes", nodes, "--base-port", 0, "--admin", 0, "--until-eof", *(["--ephemeral"] if ephemeral else []), *options]
        self.p = subprocess.Popen([str(a) for a in args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        scene._children.append(self.p)
        self.url = self.line("admin http://127.0.0.1:")
        self.address = self.line("ready 127.0.0.1:")

    def line(self, start):
        text = self.p.stdout.readline().decode().rstrip("\n")
        if not text.startswith(start):
            raise AssertionError(f"{text!r} instead of {start}: {self.p.stderr.read() if not text else ''}")
        return text.split(" ", 1)[1]

    def ask(self, method, path, body=None, timeout=90):
        """(HTTP status, JSON)"""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, method=method, data=data)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as r:
                equal(r.headers["Content-Type"], "application/json")
                answer = r.read()
                equal((answer.count(b"\n"), answer[-1:]), (1, b"\n"), "an answer is a line")
                return r.status, json.loads(answer)
        except urllib.error.HTTPError as e:
            equal(e.headers["Content-Type"], "application/json")
            return e.code, json.loads(e.read())

    def ok(self, method, path, body=None):
        status, answer = self.ask(method, path, body)
        equal(status, 200, f"{method} {path} {body}: {answer}")
        return answer

    def refused(self, wanted, method, path, body, *words):
        status, answer = self.ask(method, path, body)
        equal(status, wanted, f"{method} {path} {str(body)[:100]}: {answer}")
        holds(answer["error"], *words)
        return answer

    def do(self, what, *ids):
        return {n["id"]: n for n in self.ok("POST", "/nodes", {"do": what, "ids": list(ids)})["nodes"]}

    def states(self):
        return [n["state"] for n in self.ok("GET", "/cluster")["nodes"]]

    def end(self):
        self.p.stdin.close()
        return self.p.wait(60)


class LeaderKiller(threading.Thread):
    """Kills (kill -9) the leader of one of the topics' partitions, has it return, and again, until told to end."""

    def __init__(self, cluster, *topics):
        super().__init__()
        self.cluster, self.topics, self.rng, self.over, self.kills, self.error = cluster, topics, random.Random(7), threading.Event(), 0, None

    def run(self):
        try:
            while not self.over.wait(0.3):
                leaders = [p["leader"] for t in self.topics for p in self.cluster.partitions(t) if p["leader"] >= 0 and len(p["isr"]) == 3]
                if not leaders:
                    continue
                victim = self.rng.choice(leaders)
                self.cluster.kill(victim)
                self.kills += 1
                time.sleep(0.5)
                self.cluster.start(victim)
        except Exception as e:  # noqa: BLE001 - told by end()
            self.error = e

    def end(self):
        self.over.set()
        self.join()
        if self.error:
            raise self.error
        return self.kills
