"""The figures of the Go binding: records in and out, against confluent-kafka-go and franz-go, kbroker as the broker of all. Section of run.py: go."""
import os

import measure
from measure import cache, drop_topic, fresh_topic, interleave, program, servers

PROGRAMS = ("kclient", "franz", "confluent")


def build():
    """The load programs, by name. Go itself knows what has changed."""
    go = cache.go(measure.BENCH / "go")
    tree = cache.build_tree()
    if not (tree / "pkgconfig" / "kclient.pc").exists():
        raise cache.Missing(f"{tree}/pkgconfig/kclient.pc is not there: build the library first")
    out = cache.CACHE / "bin" / "go-bench"
    out.mkdir(parents=True, exist_ok=True)
    with cache.locked("go-bench"):
        cache.run([go, "build", "-o", f"{out}/", "./..."], cwd=measure.BENCH / "go",
                  env={**os.environ, "PKG_CONFIG_PATH": str(tree / "pkgconfig"), "GOFLAGS": "-mod=mod"})
    return {name: out / name for name in PROGRAMS}


def produce(b, s, programs, size, n):
    def one(name, how=""):
        topic = fresh_topic(s, "go", 1)
        d = program([programs[name], "produce", "-b", s.boot, "-t", topic, "-n", n, "-s", size, "-how", how])
        drop_topic(s, topic)
        return d
    for name in PROGRAMS:
        one(name)   # files, pages and caches are warm from here on
    r = b.keep(f"produce {size}", interleave(b.rounds, kclient=lambda: one("kclient"), franz=lambda: one("franz"), confluent=lambda: one("confluent"),
                                             batch=lambda: one("kclient", "batch")))
    tell(b, f"produce {size} B, SendAsync", r, "kclient", True)
    tell(b, f"produce {size} B, SendBatchAsync", r, "batch", False)


def consume(b, s, programs, size, n):
    topic = fresh_topic(s, "go", 1)
    program([programs["kclient"], "produce", "-b", s.boot, "-t", topic, "-n", n, "-s", size])

    def one(name, how=""):
        return program([programs[name], "consume", "-b", s.boot, "-t", topic, "-n", n, "-how", how])
    for name in PROGRAMS:
        one(name)
    r = b.keep(f"consume {size}", interleave(b.rounds, kclient=lambda: one("kclient"), franz=lambda: one("franz"), confluent=lambda: one("confluent"),
                                             batch=lambda: one("kclient", "batch"), borrowed=lambda: one("kclient", "borrowed")))
    drop_topic(s, topic)
    tell(b, f"consume {size} B, Records", r, "kclient", True)
    tell(b, f"consume {size} B, PollBatch", r, "batch", False)
    tell(b, f"consume {size} B, PollBorrowed", r, "borrowed", False)


def tell(b, name, r, own, judged):
    """Against confluent-kafka-go and franz-go; `judged`: these are the figures that have targets."""
    rate, cpu = r[own]["records_per_s"], r[own]["cpu_ns_per_record"]
    b.row(f"{name}: confluent", rate, "records/s", r["confluent"]["records_per_s"], 1.5 if judged else None, at_least=True)
    b.row(f"{name}: franz", rate, "records/s", r["franz"]["records_per_s"], 0.9 if judged else None, at_least=True)
    b.row(f"{name}: CPU, confluent", cpu, "ns/record", r["confluent"]["cpu_ns_per_record"])
    b.row(f"{name}: CPU, franz", cpu, "ns/record", r["franz"]["cpu_ns_per_record"], 1 if judged else None)
    b.row(f"{name}: calls into C", 1000 * r[own]["crossings_per_record"], "/1000 rec.")


def go(b):
    """The Go binding against confluent-kafka-go and franz-go: 100 B and 1 kB, producing (acks=all, idempotent) and consuming."""
    if b.a.stand_in:
        print(f"{b.current:16} is of libkclient alone")
        return
    programs = build()
    with servers.Kbroker({"log.segment.delete.delay.ms": 1000}) as s:
        for size, n in ((100, b.size(1_000_000, 100_000)), (1024, b.size(400_000, 50_000))):
            produce(b, s, programs, size, n)
            consume(b, s, programs, size, n)


SECTIONS = {"go": go}
