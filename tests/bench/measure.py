"""How run.py measures: processes' CPU and memory, one run of a load program, interleaved runs, medians.

CPU of a broker comes from the scheduler's nanosecond counts of its threads, taken right before and after the client's run;
a client measures itself, from its first record to its last. A and B always run in turn (A B A B), after a warm-up of both.
"""
import itertools
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

BENCH = Path(__file__).resolve().parent
sys.path.insert(0, str(BENCH.parent / "interop"))

from judge import cache, servers, wire   # noqa: E402


def loadgen():
    return cache.c_build("loadgen", [BENCH / "loadgen.c"], cache.rdk_flags(True))


def limit():
    return cache.c_build("limit", [BENCH / "limit.c"], ["-msse4.2"])


def codec():
    cache.apt("/usr/include/zstd.h", "libzstd-dev")
    cache.apt("/usr/include/lz4frame.h", "liblz4-dev")
    return cache.c_build("codec", [BENCH / "codec.c"], ["-lzstd", "-llz4"])


def idle():
    lib = cache.build_tree() / "lib" / "libkclient.so"
    if not lib.exists():
        raise cache.Missing(f"{lib} is not built")
    return cache.c_build("idle", [BENCH / "idle.c"], [f"-I{cache.REPO / 'include'}", f"-L{lib.parent}", f"-Wl,-rpath,{lib.parent}",
                                                      "-lkclient"], sorted((cache.REPO / "include" / "kclient").glob("*.h")))


def kc():
    binary = cache.build_tree() / "bin" / "kc"
    if not binary.exists():
        raise cache.Missing(f"{binary} is not built")
    return binary


def cpu_ns(pid):
    """CPU time of all living threads."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            total += int((task / "schedstat").read_text().split()[0])
        except FileNotFoundError:
            pass   # it ended meanwhile
    return total


def pss_kb(pid):
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    raise RuntimeError(f"no Pss of {pid}")


def program(args, timeout=600, stdin=None):
    """Runs a load program; its one JSON line as a dict."""
    r = subprocess.run([str(a) for a in args], capture_output=True, timeout=timeout, input=stdin)
    lines = [x for x in r.stdout.splitlines() if x.startswith(b"{")]
    if r.returncode or not lines:
        raise RuntimeError(f"{' '.join(str(a) for a in args)} exited {r.returncode}: {(r.stderr + r.stdout)[-600:].decode(errors='replace')}")
    d = json.loads(lines[-1])
    if d.get("failed"):
        raise RuntimeError(f"{' '.join(str(a) for a in args)}: {d['failed']} records failed, {d.get('last_error')}")
    return d


def with_broker(server, args):
    """A client's run with the broker's CPU beside it."""
    before, clock = cpu_ns(server.pid()), time.monotonic()
    d = program(args)
    used = cpu_ns(server.pid()) - before
    d["broker_ns_per_record"] = used / max(d["records"], 1)
    d["broker_cpu_s"], d["wall_s"] = used / 1e9, time.monotonic() - clock
    return d


_topics = itertools.count(1)


def fresh_topic(server, name, partitions=1, configs=None):
    """A topic of its own each time: no earlier run's records, and no wait until a deletion is through."""
    name = f"{name}-{next(_topics)}"
    with wire.Wire(server.boot) as w:
        w.create(name, partitions, configs)
    return name


def drop_topic(server, name):
    with wire.Wire(server.boot) as w:
        w.delete(name)


def interleave(rounds, **runs):
    """Calls each in turn, rounds times; {name: medians of every figure}."""
    got = {name: [] for name in runs}
    for _ in range(rounds):
        for name, call in runs.items():
            got[name].append(call())
    return {name: medians(ds) for name, ds in got.items()}


def medians(ds):
    keys = [k for k, v in ds[0].items() if isinstance(v, (int, float)) and not isinstance(v, bool)]
    out = {k: statistics.median(d[k] for d in ds) for k in keys if all(k in d for d in ds)}
    out["spread"] = {k: [min(d[k] for d in ds), max(d[k] for d in ds)] for k in out}
    return out
