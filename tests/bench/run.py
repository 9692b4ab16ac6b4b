#!/usr/bin/env python3
"""Speed and memory, side by side in one run: kbroker against Apache Kafka, libkclient against librdkafka, both against the machine.

    run.py [--short] [--rounds N] [--json FILE] [--stand-in] [--large] [SECTION...]

Prints a line a figure: `section name: measured, peer, ratio, target, ok|miss`, and a JSON file with everything behind it.
Method: measure.py and README.md. Misses do not change the exit code (it is 1 only when a measurement could not be made).
--short: small sizes, to see that it works; its figures mean little. --stand-in puts Apache Kafka in kbroker's place and
librdkafka in libkclient's: every ratio should then be near 1, which proves the benchmark, and nothing of the product is needed.
"""
import argparse
import json
import os
import platform
import random
import subprocess
import sys
import time
import traceback

import cluster
import go
import groups
import guid
import measure
import python as python_figures
import testkit
from measure import cache, fresh_topic, drop_topic, interleave, loadgen, program, servers, wire, with_broker

KAFKA_PROPS = {"log.segment.delete.delay.ms": 1000, "num.network.threads": 3, "num.io.threads": 8}
KBROKER_PROPS = {"log.segment.delete.delay.ms": 1000}
SECTIONS = {}


def section(f):
    SECTIONS[f.__name__] = f
    return f


class Bench:
    def __init__(self, a):
        self.a, self.rounds, self.rows, self.raw, self.broken = a, a.rounds, [], {}, 0
        self._kafka = self._own = None

    # -- brokers, started once, hot from then on

    def kafka(self):
        if self._kafka is None:
            self._kafka = servers.Kafka(KAFKA_PROPS).start()
            self.heat(self._kafka)
        return self._kafka

    def own(self):
        if self._own is None:
            self._own = (servers.Kafka(KAFKA_PROPS) if self.a.stand_in else servers.Kbroker(KBROKER_PROPS)).start()
            self.heat(self._own)
        return self._own

    def heat(self, server):
        """Touches memory and lets a JIT settle: the first gigabytes are several times slower, whoever writes them."""
        topic = fresh_topic(server, "heat", 6)
        n = self.size(4_000_000, 200_000)
        program([loadgen(), "produce", "-b", server.boot, "-t", topic, "-s", "1024", "-n", n, "-T", "120"])
        program([loadgen(), "produce", "-b", server.boot, "-t", topic, "-s", "100", "-n", 2 * n, "-T", "120"])
        program([loadgen(), "produce", "-b", server.boot, "-t", topic, "-s", "1024", "-n", n // 20, "-X", "batch.size=16384", "-T", "60"])
        program([loadgen(), "consume", "-b", server.boot, "-t", topic, "-n", n // 2, "-q"])
        drop_topic(server, topic)
        time.sleep(2)

    # -- clients: argument lists

    def size(self, full, short):
        return short if self.a.short else full

    def rdk(self, server, mode, topic, *args):
        return [loadgen(), mode, "-b", server.boot, "-t", topic, *args]

    def kc_produce(self, server, topic, size, count, acks, idempotent, *more):
        if self.a.stand_in:
            args = self.rdk(server, "produce", topic, "-s", size, "-n", count, "-a", acks) + (["-I"] if idempotent else [])
            codec = more[more.index("-z") + 1:more.index("-z") + 2] if "-z" in more else []
            return args + (["-z", *codec, "-P", "json"] if codec else ["-P", "json"] if "json" in more else [])
        return [measure.kc(), "bench", "produce", "-b", server.boot, "-t", topic, "--size", size, "--count", count, "--acks", acks,
                "--set", f"enable.idempotence={'true' if idempotent else 'false'}", "--json", *more]

    def kc_consume(self, server, topic, count, one):
        if self.a.stand_in:
            return self.rdk(server, "consume", topic, "-n", count) + ([] if one else ["-q"])
        return [measure.kc(), "bench", "consume", "-b", server.boot, "-t", topic, "--count", count, "--json"] + (["--one"] if one else [])

    def kc_latency(self, server, topic, count, *more):
        if self.a.stand_in:
            e2e = "--e2e" in more
            return self.rdk(server, "e2e" if e2e else "sync", topic, "-n", count, "-a", 1, "-l", 0)
        return [measure.kc(), "bench", "latency", "-b", server.boot, "-t", topic, "--size", 1024, "--count", count, "--acks", "1",
                "--set", "linger.ms=0", "--json", *more]

    # -- results

    def row(self, name, measured, unit, peer=None, target=None, at_least=False, of_peer=True):
        """target is a bound of the ratio to the peer (of_peer), or of the figure itself."""
        ratio = measured / peer if peer else None
        judged = (ratio if of_peer else measured) if target is not None else None
        ok = None if judged is None else (judged >= target if at_least else judged <= target)
        sign = "≥" if at_least else "≤"
        bound = "" if target is None else f"{sign} {target:g}{' ×' if of_peer else ' ' + unit}"
        verdict = "" if ok is None else "ok" if ok else "MISS"
        print(f"{self.current:16} {name:46} {measured:12,.2f} {unit:10} {'' if peer is None else f'{peer:12,.2f}':>12} "
              f"{'' if ratio is None else f'{ratio:7.3f}':>8}  {bound:14} {verdict}", flush=True)
        self.rows.append({"section": self.current, "name": name, "measured": measured, "unit": unit, "peer": peer, "ratio": ratio,
                          "target": target, "at_least": at_least, "of_peer": of_peer, "ok": ok})

    def keep(self, name, results):
        self.raw[f"{self.current} {name}"] = results
        return results

    def run(self, names):
        print(f"{'section':16} {'name':46} {'measured':>12} {'unit':10} {'peer':>12} {'ratio':>8}  {'target':14}")
        for name in names:
            self.current = name
            try:
                SECTIONS[name](self)
            except Exception:
                self.broken += 1
                traceback.print_exc()
                print(f"{name}: could not be measured", flush=True)


# ---------------------------------------------------------------- broker

def first_ack(boot, batch):
    """One connection's try: False when it cannot be made or ends. A broker that is up but not ready is asked with patience."""
    patience = 0.001
    try:
        with wire.Wire(boot) as w:
            while True:
                try:
                    w.partitions("first")   # makes the topic
                    w.produce("first", batch)
                    return True
                except wire.WireError as e:
                    if "closed" in str(e) or patience > 5:
                        return False
                    time.sleep(min(patience, 0.05))
                    patience *= 1.3
    except OSError:
        return False


def first_ack_ms(make):
    """Process start to the first acknowledged record of a topic made on first use: raw requests, retried every half millisecond."""
    server = make()
    if isinstance(server, servers.Kafka):   # formatting is not part of the start
        server.format()
    batch = wire.batch([b"x" * 1024])
    if isinstance(server, servers.Kbroker):
        server.listen = f"127.0.0.1:{servers.free_ports(1)[0]}"
        server.boot = server.listen
    start = time.monotonic()
    server.launch()
    deadline = start + 120
    while not first_ack(server.boot, batch):
        if server.proc.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{server.name} took no record:\n{server.log_tail()}")
        time.sleep(0.0005)
    ms = (time.monotonic() - start) * 1000
    return server, ms


@section
def start(b):
    """Start to first acked record; idle memory and CPU."""
    makers = {"own": lambda: servers.Kafka(KAFKA_PROPS) if b.a.stand_in else servers.Kbroker(), "kafka": lambda: servers.Kafka(KAFKA_PROPS)}
    ms, idle = {}, {}
    for who, rounds in (("own", max(b.rounds, b.size(10, 1) if not b.a.stand_in else 1)), ("kafka", b.size(2, 1))):
        ms[who] = []
        for i in range(rounds):
            server, t = first_ack_ms(makers[who])
            ms[who].append(t)
            if i == rounds - 1:
                time.sleep(3)
                c0, t0 = measure.cpu_ns(server.pid()), time.monotonic()
                time.sleep(b.size(20, 5))
                idle[who] = (measure.pss_kb(server.pid()) / 1024, (measure.cpu_ns(server.pid()) - c0) / 1e9 / (time.monotonic() - t0) * 100)
            server.stop()
    b.keep("first_ack_ms", ms)
    b.row("start to first acked record", sorted(ms["own"])[len(ms["own"]) // 2], "ms", min(ms["kafka"]), 30, of_peer=False)
    b.row("idle Pss", idle["own"][0], "MB", idle["kafka"][0], 10, of_peer=False)
    b.row("idle CPU, of a core", idle["own"][1], "%", idle["kafka"][1], 0.1, of_peer=False)


@section
def memory(b):
    """Broker memory after 5 GB of traffic in and some of it out."""
    server = (servers.Kafka(KAFKA_PROPS) if b.a.stand_in else servers.Kbroker(KBROKER_PROPS)).start()
    topic = fresh_topic(server, "mem", 12)
    n = b.size(5_000_000, 200_000)
    program(b.rdk(server, "produce", topic, "-s", 1024, "-n", n, "-a", 1, "-T", 300))
    program(b.rdk(server, "consume", topic, "-n", n // 2, "-q", "-T", 300))
    b.row(f"Pss after {n * 1024 / 1e9:.1f} GB", measure.pss_kb(server.pid()) / 1024, "MB", None, 48, of_peer=False)
    server.stop()


@section
def broker_cpu(b):
    """The same librdkafka against both brokers: broker CPU a record."""
    kafka, own = b.kafka(), b.own()
    cells = [("1 kB", 1024, 1_000_000, [], 0.5), ("100 B", 100, 4_000_000, [], 0.5), ("1 kB in 16 kB batches", 1024, 200_000, ["-X", "batch.size=16384"], 0.125)]
    for label, size, count, extra, target in cells:
        for parts in (1,) if b.a.short else (1, 12):
            for acks in ("1",) if b.a.short else ("0", "1", "-1"):
                n = b.size(count, count // 10)

                def one(server, size=size, n=n, parts=parts, acks=acks, extra=extra):
                    topic = fresh_topic(server, "cpu", parts)
                    d = with_broker(server, b.rdk(server, "produce", topic, "-s", size, "-n", n, "-a", acks, *extra))
                    drop_topic(server, topic)
                    return d
                runs = {"own": lambda: one(own), "kafka": lambda: one(kafka)}
                if label == "1 kB":
                    runs["limit"] = lambda: program([measure.limit(), "stream", "all", b.size(1000, 100), servers.temp_folder("limit") / "f"])
                name = f"{label}, {parts} partition{'s' if parts > 1 else ''}, acks={acks}"
                r = b.keep(name, interleave(b.rounds, **runs))
                b.row(name, r["own"]["broker_ns_per_record"], "ns/record", r["kafka"]["broker_ns_per_record"], target)
                if "limit" in r:
                    b.row(f"{name}, of limit's receiver", r["own"]["broker_ns_per_record"], "ns/record", r["limit"]["receiver_cpu_ns_per_kb"], 1.4)


@section
def random_fetch(b):
    """Broker CPU of a fetch of one record at a random offset: many segments against one."""
    own = b.own()
    count, size = b.size(100_000, 10_000), 10_000
    topics = {"one segment": {"segment.bytes": (1 << 31) - 1}, f"{count * size >> 20} segments": {"segment.bytes": 1 << 20}}
    made = {}
    for name, configs in topics.items():
        t = made[name] = fresh_topic(own, "rf", 1, configs)
        program(b.rdk(own, "produce", t, "-s", size, "-n", count, "-a", 1, "-l", 0, "-X", "batch.num.messages=1", "-T", 300))
    rng, n = random.Random(1), b.size(20_000, 2_000)
    offsets = [rng.randrange(count) for _ in range(n)]

    def run(name):
        t = made[name]
        with wire.Wire(own.boot) as w:
            for o in offsets[:200]:
                w.fetch(t, 0, o, 1)
            before = measure.cpu_ns(own.pid())
            for o in offsets:
                w.fetch(t, 0, o, 1)
            return {"ns": (measure.cpu_ns(own.pid()) - before) / n}
    one, many = topics
    r = b.keep("fetch", interleave(b.rounds, **{one: lambda: run(one), many: lambda: run(many)}))
    b.row(f"{many} against {one}", r[many]["ns"] / 1000, "us/fetch", r[one]["ns"] / 1000, 1.2)
    for t in made.values():
        drop_topic(own, t)


# ---------------------------------------------------------------- both ends

@section
def produce_limit(b):
    """One libkclient producer, one partition, acks=1, 1 kB, against the raw limit on a fresh file."""
    own, n = b.own(), b.size(2_000_000, 100_000)

    def one():
        topic = fresh_topic(own, "pl", 1)
        d = with_broker(own, b.kc_produce(own, topic, 1024, n, "1", False))
        drop_topic(own, topic)
        return d
    r = b.keep("produce", interleave(b.rounds, limit=lambda: program(
        [measure.limit(), "stream", "all", n * 1024 >> 20, servers.temp_folder("limit") / "f"]), own=one))
    b.row("1 kB, acks=1, of limit stream all", r["own"]["mb_per_s"], "MB/s", r["limit"]["mb_per_s"], 0.7, at_least=True)


@section
def consume_limit(b):
    """One libkclient consumer against raw TCP + CRC."""
    own, n = b.own(), b.size(2_000_000, 100_000)
    topic = fresh_topic(own, "cl", 1)
    program(b.rdk(own, "produce", topic, "-s", 1024, "-n", n, "-a", 1, "-T", 120))
    r = b.keep("consume", interleave(b.rounds, limit=lambda: program([measure.limit(), "stream", "crc", n * 1024 >> 20, "-"]),
                                     own=lambda: with_broker(own, b.kc_consume(own, topic, n, False)), rdk=lambda: with_broker(
                                         own, b.rdk(own, "consume", topic, "-n", n, "-q"))))
    mb = r["own"]["records_per_s"] * 1024 / 1e6
    b.row("1 kB, of limit stream crc", mb, "MB/s", r["limit"]["mb_per_s"], 0.6, at_least=True)
    b.row("1 kB, librdkafka's batch call for comparison", r["rdk"]["records_per_s"] * 1024 / 1e6, "MB/s", r["limit"]["mb_per_s"])
    drop_topic(own, topic)


@section
def client_produce(b):
    """libkclient and librdkafka producing to the same broker with the same settings."""
    own = b.own()
    for label, size, count, cpu in (("100 B", 100, 4_000_000, 1 / 3), ("1 kB", 1024, 1_000_000, 1 / 2)):
        for idempotent in (False, True):
            n, acks = b.size(count, count // 20), "-1" if idempotent else "1"

            def one(args):
                topic = fresh_topic(own, "cp", 1)
                d = with_broker(own, args(topic))
                drop_topic(own, topic)
                return d
            r = b.keep(f"{label} idempotence={idempotent}", interleave(
                b.rounds,
                own=lambda: one(lambda t: b.kc_produce(own, t, size, n, acks, idempotent)),
                rdk=lambda: one(lambda t: b.rdk(own, "produce", t, "-s", size, "-n", n, "-a", acks, *(["-I"] if idempotent else [])))))
            name = f"{label}, idempotence {'on' if idempotent else 'off'}"
            b.row(f"{name}: CPU", r["own"]["cpu_ns_per_record"], "ns/record", r["rdk"]["cpu_ns_per_record"], round(cpu, 3))
            b.row(f"{name}: rate", r["own"]["records_per_s"], "records/s", r["rdk"]["records_per_s"],
                  1.5 if size == 100 else None, at_least=True)
            b.row(f"{name}: memory", r["own"]["rss_kb"] / 1024, "MB", r["rdk"]["rss_kb"] / 1024)


@section
def client_consume(b):
    """libkclient and librdkafka consuming the same topic: by batch, and one by one."""
    own = b.own()
    for label, size, count, batch, single in (("100 B", 100, 4_000_000, 1 / 3, 1 / 5), ("1 kB", 1024, 1_000_000, 1 / 2, 1 / 2)):
        n = b.size(count, count // 20)
        topic = fresh_topic(own, "cc", 1)
        program(b.rdk(own, "produce", topic, "-s", size, "-n", n, "-a", 1, "-T", 120))
        r = b.keep(label, interleave(
            b.rounds,
            own_batch=lambda: with_broker(own, b.kc_consume(own, topic, n, False)),
            rdk_batch=lambda: with_broker(own, b.rdk(own, "consume", topic, "-n", n, "-q")),
            own_one=lambda: with_broker(own, b.kc_consume(own, topic, n, True)),
            rdk_one=lambda: with_broker(own, b.rdk(own, "consume", topic, "-n", n))))
        for how, target in (("batch", batch), ("one", single)):
            b.row(f"{label}, {'batch call' if how == 'batch' else 'one by one'}: CPU", r[f"own_{how}"]["cpu_ns_per_record"],
                  "ns/record", r[f"rdk_{how}"]["cpu_ns_per_record"], round(target, 3))
            b.row(f"{label}, {'batch call' if how == 'batch' else 'one by one'}: rate", r[f"own_{how}"]["records_per_s"],
                  "records/s", r[f"rdk_{how}"]["records_per_s"])
        drop_topic(own, topic)


@section
def codecs(b):
    """zstd and lz4 of a compressible 1 kB payload: the codec's own time + our uncompressed cost + 10 %."""
    own, n = b.own(), b.size(500_000, 30_000)
    sample_topic = fresh_topic(own, "sample", 1)
    program(b.rdk(own, "produce", sample_topic, "-s", 1024, "-n", 2000, "-P", "json"))
    with wire.Wire(own.boot) as w:
        sample = b""
        while len(sample) < 1 << 20:
            raw = w.fetch(sample_topic, 0, 0, 1 << 22)
            sample += raw if raw else b""
    sample = sample[:1 << 20]
    drop_topic(own, sample_topic)

    def one(codec):
        topic = fresh_topic(own, "cz", 1)
        more = ["--payload", "json"] + (["-z", codec] if codec != "none" else [])
        d = with_broker(own, b.kc_produce(own, topic, 1024, n, "1", False, *more))
        drop_topic(own, topic)
        return d
    runs = {c: (lambda c=c: one(c)) for c in ("none", "zstd", "lz4")}
    runs |= {f"{c} alone": (lambda c=c: program([measure.codec(), c, b.size(300, 30)], stdin=sample)) for c in ("zstd", "lz4")}
    r = b.keep("codecs", interleave(b.rounds, **runs))
    for c in ("zstd", "lz4"):
        b.row(f"{c}: CPU against codec + uncompressed", r[c]["cpu_ns_per_record"], "ns/record",
              r[f"{c} alone"]["ns_per_kb"] + r["none"]["cpu_ns_per_record"], 1.1)


# ---------------------------------------------------------------- latency

@section
def sync(b):
    """One record in flight, acks=1, 1 kB, against the raw ping-pong: caller-driven, and when the waiting caller drives."""
    own, kafka, n = b.own(), b.kafka(), b.size(20_000, 2_000)
    ours, theirs = fresh_topic(own, "sy"), fresh_topic(kafka, "sy")
    none = ("--set", "client.thread=none")
    r = b.keep("sync", interleave(
        b.rounds, limit=lambda: program([measure.limit(), "pingpong", n, 1024, 64]),
        own=lambda: with_broker(own, b.kc_latency(own, ours, n)), own_none=lambda: with_broker(own, b.kc_latency(own, ours, n, *none)),
        rdk=lambda: with_broker(own, b.rdk(own, "sync", ours, "-n", n, "-a", 1)),
        kafka=lambda: with_broker(kafka, b.rdk(kafka, "sync", theirs, "-n", n, "-a", 1))))
    limit = r["limit"]["p50_us"]
    b.row("waiting caller drives the loop: p50", r["own"]["p50_us"], "us", limit, 1.5)
    b.row("client.thread=none: p50", r["own_none"]["p50_us"], "us", limit, 1.5)
    b.row("waiting caller drives the loop: p99", r["own"]["p99_us"], "us", r["limit"]["p99_us"])
    b.row("librdkafka, same broker: p50", r["rdk"]["p50_us"], "us", limit)
    b.row("librdkafka on Apache Kafka: p50", r["kafka"]["p50_us"], "us", limit)


@section
def end_to_end(b):
    """5,000 records/s, linger 0, producer and consumer in one process."""
    own, kafka, n = b.own(), b.kafka(), b.size(25_000, 5_000)
    ours, theirs = fresh_topic(own, "e2e"), fresh_topic(kafka, "e2e")
    r = b.keep("e2e", interleave(
        b.rounds, limit=lambda: program([measure.limit(), "pingpong", 20_000, 1024, 64]),
        own=lambda: with_broker(own, b.kc_latency(own, ours, n, "--e2e", "--rate", 5000)),
        rdk=lambda: with_broker(own, b.rdk(own, "e2e", ours, "-n", n, "-r", 5000, "-l", 0))))
    r["kafka"] = with_broker(kafka, b.rdk(kafka, "e2e", theirs, "-n", b.size(15_000, 3_000), "-r", 5000, "-l", 0))
    for who in ("own", "rdk", "kafka"):
        d = r[who]
        d["busy"] = (d["broker_cpu_s"] + d["cpu_ns_per_record"] * d["records"] / 1e9) / d["seconds"] / 2 * 100
    limit = r["limit"]["p50_us"]
    b.row("p50", r["own"]["p50_us"], "us", limit, 2.5)
    b.row("p99", r["own"]["p99_us"], "us", r["limit"]["p99_us"])
    b.row("both cores busy", r["own"]["busy"], "%", r["kafka"]["busy"], 60, of_peer=False)
    b.row("librdkafka, same broker: p50", r["rdk"]["p50_us"], "us", limit)
    b.row("librdkafka on Apache Kafka: p50", r["kafka"]["p50_us"], "us", limit)


def compacted(server, topic, partition=0):
    """How far a partition has been compacted: cleaner-offset-checkpoint."""
    try:
        lines = (server.data / "cleaner-offset-checkpoint").read_text().splitlines()
    except FileNotFoundError:
        return 0
    return max([int(line.split()[2]) for line in lines if line.startswith(f"{topic} {partition} ")], default=0)


def compact_now(server, topic, before=0):
    """Lets a full log be compacted; the seconds from the order until the checkpoint has passed `before`. Without what waits for the cleaner's timer."""
    subprocess.run([measure.kc(), "topic", "alter", topic, "-b", server.boot, "--config", "cleanup.policy=compact"], check=True, capture_output=True)
    start = time.monotonic()
    while compacted(server, topic) <= before:
        if time.monotonic() - start > 600:
            raise RuntimeError(f"{topic} was not compacted: {server.log_tail(5)}")
        time.sleep(0.02)
    return time.monotonic() - start


@section
def compact(b):
    """10 million records of 100 B with 1 million keys: a pass of compaction over all of them, and what others notice of it."""
    if b.a.stand_in:
        print(f"{b.current:16} is of kbroker alone")
        return
    n = b.size(10_000_000, 1_000_000)
    props = {**KBROKER_PROPS, "log.cleaner.backoff.ms": 50, "log.segment.bytes": n * 100 // 8}
    with servers.Kbroker(props) as s:
        def full_log():
            topic = fresh_topic(s, "compact", 1)
            program([loadgen(), "produce", "-b", s.boot, "-t", topic, "-s", 90, "-k", n // 10, "-n", n, "-T", 300, "-X", "linger.ms=20"])
            time.sleep(3)   # until what was closed is durable
            return topic, sorted(s.partition(topic, 0).glob("*.log"))[:-1]

        def one():
            topic, logs = full_log()
            size = sum(f.stat().st_size for f in logs)
            raw = program([measure.limit(), "copy", servers.temp_folder("copy") / "f", *logs])
            seconds = compact_now(s, topic)
            left = sum(f.stat().st_size for f in s.partition(topic, 0).glob("*.log"))
            drop_topic(s, topic)
            return {"mb": size / 1e6, "seconds": seconds, "mb_per_s": size / 1e6 / seconds, "left_mb": left / 1e6, "raw_mb_per_s": raw["mb_per_s"]}
        r = b.keep("pass", interleave(b.rounds, own=one))["own"]
        b.row(f"{n // 1_000_000} M records, of reading and writing them", r["mb_per_s"], "MB/s", r["raw_mb_per_s"], 0.5, at_least=True)
        b.row("of the log is left", 100 * r["left_mb"] / r["mb"], "%")

        def others(busy):
            topic, _ = full_log()
            ours = fresh_topic(s, "beside")
            count = max(int(r["seconds"] * 1000), 500)
            p = subprocess.Popen([str(x) for x in b.kc_latency(s, ours, count, "--e2e", "--rate", 1000)], stdout=subprocess.PIPE)
            if busy:
                time.sleep(0.1)
                compact_now(s, topic)
            d = json.loads(p.communicate(timeout=300)[0].splitlines()[-1])
            for t in (topic, ours):
                drop_topic(s, t)
            return d
        q = b.keep("beside", interleave(b.rounds, calm=lambda: others(False), busy=lambda: others(True)))
        b.row("produce to fetch beside it: p99", q["busy"]["p99_us"], "us", q["calm"]["p99_us"], 2)
        b.row("produce to fetch beside it: p50", q["busy"]["p50_us"], "us", q["calm"]["p50_us"])


@section
def client_memory(b):
    """An idle client over an empty process."""
    if b.a.stand_in:
        print(f"{b.current:16} needs libkclient: nothing stands in for it")
        return
    own = b.own()
    topic = fresh_topic(own, "idle")
    pss = {}
    for who, args in (("empty", ["cat"]), ("client", [measure.idle(), own.boot, topic])):
        p = servers.spawn(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        if who == "empty":
            p.stdin.write(b"ready\n")   # cat says it back
        if p.stdout.readline() != b"ready\n":
            raise RuntimeError("idle did not get ready")
        time.sleep(1)
        pss[who] = measure.pss_kb(p.pid) / 1024
        p.stdin.close()
        p.wait()
        servers.forget(p)
    b.row("idle client over an empty process", pss["client"] - pss["empty"], "MB", None, 3, of_peer=False)


SECTIONS.update(cluster.SECTIONS)
SECTIONS.update(groups.SECTIONS)
SECTIONS.update(guid.SECTIONS)
SECTIONS.update(go.SECTIONS)
SECTIONS.update(python_figures.SECTIONS)
SECTIONS.update(testkit.SECTIONS)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    ap.add_argument("--short", action="store_true")
    ap.add_argument("--rounds", type=int)
    ap.add_argument("--json", default=str(cache.CACHE / "bench.json"))
    ap.add_argument("--stand-in", action="store_true")
    ap.add_argument("--large", action="store_true", help="guid: with 100 million ids, too (12 GB of disk)")
    a = ap.parse_args()
    unknown = [s for s in a.sections if s not in SECTIONS]
    if unknown:
        ap.error(f"no section {unknown[0]}; there are {', '.join(SECTIONS)}")
    a.rounds = a.rounds or (1 if a.short else 5)
    loads = [os.getloadavg()[0]]
    b = Bench(a)
    b.run(a.sections or SECTIONS)
    loads.append(os.getloadavg()[0])
    out = {"machine": platform.platform(), "cores": os.cpu_count(), "short": a.short, "stand_in": a.stand_in, "load": loads, "rounds": a.rounds,
           "kafka": cache.KAFKA_VERSION, "rows": b.rows, "raw": b.raw}
    with open(a.json, "w") as f:
        json.dump(out, f, indent=1)
    judged = [r["ok"] for r in b.rows if r["ok"] is not None]
    if loads[0] > 1 or max(loads) - 2 > os.cpu_count():
        print(f"the machine was busy with other things (load {loads[0]:.1f} before, {loads[1]:.1f} after): take no figure from this run")
    print(f"{sum(judged)} of {len(judged)} targets met; {b.broken} sections could not be measured; details in {a.json}")
    return 1 if b.broken else 0


if __name__ == "__main__":
    sys.exit(main())
