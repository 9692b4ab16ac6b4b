#!/usr/bin/env python3
"""kill -9 under load: no acknowledged record lost, none corrupt, offsets continuous.

    kill9.py [--quick] [--kills 50] [--seed S] [--broker kbroker|kafka]

Producers (librdkafka and libkclient; acks=1, acks=-1, idempotent) send numbered records and log every acknowledgement. The
broker is killed at random moments and restarted on the same folder and port. After each restart the log must still reach
every acknowledged offset; at the end a consumer reads everything, and this script, which shares no code with the producers
but the rule of a value, compares. The seed decides the moments; it is printed.
"""
import argparse
import json
import random
import time

from judge import peers, records, segments, servers, tally, tools, wire

PARTITIONS = 3
RATE = 800            # records a second and producer
DRAIN_S_MAX = 120     # for a producer's last reports, its own delivery timeout included
LETTERS = bytes(range(ord("a"), ord("z") + 1)) * 50


def value_of(number):
    """The value that belongs to an id: as in cpeer/job.c, stated again."""
    head = b"%016x:" % number
    first = (number + len(head)) % 26
    return head + LETTERS[first:first + (number * 2654435761 % 2 ** 64) % 900]


class Load:
    """One producer under load."""

    def __init__(self, peer, name, acks, idempotence, folder):
        self.peer, self.name, self.acks, self.idempotence = peer, name, acks, idempotence
        self.topic, self.log = name, folder / f"{name}.log"
        self.result = None
        self.seen, self.at = [], 0

    def start(self, boot):
        with wire.Wire(boot) as w:
            w.create(self.topic, PARTITIONS)
        self.peer.start(dict(op="load", topic=self.topic, partitions=PARTITIONS, acks=self.acks, idempotence=self.idempotence,
                             rate=RATE, log=str(self.log), conf={"message.timeout.ms": "60000"}))

    def stop(self):
        self.peer.proc.stdin.write(b"\n")   # any line ends the load
        self.peer.proc.stdin.flush()
        self.result = self.peer.answer(DRAIN_S_MAX)

    def acked(self):
        """(partition, offset, id) of every acknowledgement so far; a half-written last line is not one yet."""
        with open(self.log, "rb") as f:
            f.seek(self.at)
            new = f.read()
        whole = new[:new.rfind(b"\n") + 1]
        self.at += len(whole)
        for line in whole.splitlines():
            what, p, o, i = line.split()
            if what == b"ack":
                self.seen.append((int(p), int(o), int(i)))
        return self.seen


def reaches(load, boot):
    """After a restart: the end offsets are past every acknowledged offset. Only what was acked before the look counts."""
    acked = load.acked()
    ends, starts = wire.patient(boot, lambda w: (w.ends(load.topic, PARTITIONS),
                                                 [w.offset(load.topic, p, -2) for p in range(PARTITIONS)]))
    top = [max((o for q, o, _ in acked if q == p), default=-1) for p in range(PARTITIONS)]
    bad = [f"{load.name}-{p}: end {ends[p]}, acknowledged up to {top[p]}" for p in range(PARTITIONS) if ends[p] <= top[p]]
    return bad + [f"{load.name}-{p}: log starts at {starts[p]}" for p in range(PARTITIONS) if starts[p]]


def one_kill(server, loads, rng):
    time.sleep(rng.uniform(0.05, 1.2))
    server.kill9()
    server.start()
    return [x for load in loads for x in reaches(load, server.boot)]


def read_back(load, reader, folder):
    reader.job(timeout=300, op="consume", topics={load.topic: PARTITIONS}, out=str(folder / "got"))
    return records.load(folder / "got")


def verify(load, got):
    """Compares what the topic holds with the acknowledgements."""
    acked, bad, ids, place = load.acked(), [], [], {}
    for p, rs in records.by_partition(got).items():
        offsets = [r["offset"] for r in rs]
        if offsets != list(range(len(offsets))):
            bad.append(f"partition {p}: offsets are not continuous from 0 ({len(offsets)} records)")
    for r in got:
        number = int(r["value"][:16], 16)
        if r["value"] != value_of(number):
            bad.append(f"partition {r['partition']} offset {r['offset']} is corrupt: {records.show(r['value'])}")
        ids.append((r["partition"], number))
        place[r["partition"], r["offset"]] = number
    wrong = [(p, o, i) for p, o, i in acked if o >= 0 and place.get((p, o)) != i]
    bad += [f"record {i} was acknowledged at {p}/{o}; there lies {place.get((p, o))}" for p, o, i in wrong[:5]]
    stored = {i for _, i in ids}
    lost = [i for _, _, i in acked if i not in stored]
    bad += [f"{len(lost)} acknowledged records are nowhere, the first {lost[0]}"] if lost else []
    if load.idempotence:
        bad += once_in_order(ids)
    if not acked:
        bad.append("nothing was acknowledged")
    return bad[:8]


def controls(load, got):
    """The judge judged: a lost record, a corrupt one, a gap and an acknowledgement of nothing must all be seen."""
    last = got[-1]
    spoiled = {
        "a lost tail": got[:len(got) // 2],
        "a corrupt record": got[:-1] + [dict(last, value=last["value"][:-1] + b"!")],
        "a gap": got[:1] + got[2:],
        "another record in the place": got[:-1] + [dict(last, value=value_of(10 ** 9))],
    }
    return [f"did not see {what}" for what, g in spoiled.items() if not verify(load, g)]


def once_in_order(ids):
    """An idempotent producer's records lie once each and in order, whatever was retried."""
    bad = []
    for p in range(PARTITIONS):
        mine = [i for q, i in ids if q == p]
        if len(set(mine)) != len(mine):
            bad.append(f"partition {p}: {len(mine) - len(set(mine))} duplicates in spite of idempotence")
        if mine != sorted(mine):
            bad.append(f"partition {p}: out of order in spite of idempotence")
    return bad


def run():
    ap = argparse.ArgumentParser()
    ap.add_argument("--quick", action="store_true")
    ap.add_argument("--kills", type=int)
    ap.add_argument("--seed", type=int, default=int(time.time()))
    ap.add_argument("--broker", choices=("kbroker", "kafka"), default="kbroker")
    a = ap.parse_args()
    kills = a.kills or (5 if a.quick else 50)
    t = tally.Tally(f"{kills} times kill -9 on {a.broker} under load (seed {a.seed})")
    rng, folder = random.Random(a.seed), servers.temp_folder("kill9")
    s = servers.server(a.broker, {"log.segment.bytes": 4 << 20, "log.index.interval.bytes": 4096}).start()
    kinds = ((1, False, "acks1"), (-1, False, "acksall"), (-1, True, "idempotent"))
    makers = (peers.RdkNew,) + ((peers.Kclient,) if a.broker == "kbroker" else ())
    loads = [Load(m(s.boot), f"{m.name}-{name}", acks, idem, folder) for m in makers for acks, idem, name in kinds]
    for load in loads:
        load.start(s.boot)
    for n in range(kills):
        if not t.attempt(f"kill {n + 1}", one_kill, s, loads, rng):
            break
    for load in loads:
        load.stop()
    t.note(f"{sum(x.result['acked'] for x in loads)} acknowledged, {sum(x.result['failed'] for x in loads)} reported failed")
    reader = peers.RdkNew(s.boot)
    for load in loads:
        got = read_back(load, reader, folder)
        t.attempt(f"{load.name}: all that was acknowledged", verify, load, got)
        t.check(f"{load.name}: a report for every record", [] if load.result["count"] == load.result["acked"] + load.result["failed"]
                else json.dumps(load.result))
    t.attempt("control: the judge sees loss and damage", controls, load, got)
    s.stop()
    folders = [s.partition(x.topic, p) for x in loads for p in range(PARTITIONS)]
    t.attempt("kafka-dump-log afterwards", tools.dump_log_problems, folders)
    t.attempt("batches and indexes agree afterwards", segments.problems, folders)
    return t.close()


if __name__ == "__main__":
    tally.main(run)
