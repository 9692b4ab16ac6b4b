#!/usr/bin/env python3
"""The files of a GUID index in a partition's folder: Apache Kafka opens that folder, reads it, appends to it and ignores them; kbroker, back on it, finds
every id that it stored, those in its files and those that Apache Kafka appended meanwhile, and stores none of them again.

    test_guid_files.py [--quick]
"""
import argparse
import subprocess
import uuid

from judge import cache, servers, tally, tools

N = 60


def kc(*args, stdin=b""):
    p = subprocess.run([str(cache.build_tree() / "bin" / "kc"), *args], input=stdin, capture_output=True, timeout=120)
    if p.returncode != 0:
        raise RuntimeError(f"kc {args[0]}: {p.stderr.decode()[-300:]}")
    return p.stdout.decode()


def produce(boot, ids):
    """One record an id, its key and its GUID."""
    kc("produce", "-b", boot, "-t", "ids", "-K", ":", "--guid-from", "key", stdin="".join(f"{i}:value of {i}\n" for i in ids).encode())


def keys(boot):
    return tools.kcat("-C", "-b", boot, "-t", "ids", "-o", "beginning", "-e", "-q", "-f", "%k\\n").decode().split()


def once(boot, ids):
    got = keys(boot)
    return [] if sorted(got) == sorted(ids) else [f"{len(got)} records of {len(set(got))} ids, not {len(ids)}"]


def files(own):
    return sorted(f.name for f in (own.data / "ids-0" / "guid").glob("*"))


def run():
    ap = argparse.ArgumentParser()
    ap.add_argument("--quick", action="store_true")
    a = ap.parse_args()
    t = tally.Tally("the GUID index's files, and Apache Kafka on their folder")
    first = [str(uuid.uuid4()) for _ in range(N)]
    later = [str(uuid.uuid4()) for _ in range(N)]
    own = servers.Kbroker({"node.id": 1})
    own.start()
    kc("topic", "create", "ids", "-b", own.boot, "--partitions", "1", "--rf", "1", "--config", "message.guid.dedup=true")
    produce(own.boot, first)
    produce(own.boot, first)
    t.check("each stored once", once(own.boot, first))
    own.stop()
    t.check("the index is in files", [] if "manifest" in files(own) and len(files(own)) == 2 else files(own))
    own.start()
    produce(own.boot, first)
    t.check("none again after a clean stop", once(own.boot, first))
    own.kill9()
    own.start()
    produce(own.boot, first)
    t.check("none again after kill -9", once(own.boot, first))
    own.stop()
    if a.quick:
        return t.close()
    there = files(own)
    kafka = servers.Kafka({"log.dirs": own.data})
    kafka.data = own.data
    kafka.start()
    t.attempt("Apache Kafka reads it", once, kafka.boot, first)
    produce(kafka.boot, later)
    t.attempt("… and appends to it", once, kafka.boot, first + later)
    kafka.stop()
    t.check("… and leaves the files as they are", [] if files(own) == there else [f"{there} became {files(own)}"])
    own.start()
    produce(own.boot, first + later)
    t.attempt("kbroker, back on it, stores none again", once, own.boot, first + later)
    own.stop()
    return t.close()


if __name__ == "__main__":
    tally.main(run)
