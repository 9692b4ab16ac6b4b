"""Command-line peers: Apache Kafka's own tools (run from the jars, by class) and kcat; and kafka-dump-log as a judge of files.

Used by the test scripts. A tool that exits non-zero raises ToolError with what it printed.
"""
import json
import os
import re
import select
import shutil
import subprocess
import time
from pathlib import Path

from . import cache, servers

CLASSES = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs": "org.apache.kafka.tools.ConfigCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
}


class ToolError(Exception):
    """A tool failed or printed what it must not."""


def jvm(heap, classes=()):
    return ["java", f"-Xmx{heap}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            f"-Dlog4j2.configurationFile={cache.HERE / 'java' / 'log4j2.properties'}",
            "-cp", ":".join([*map(str, classes), f"{cache.kafka_libs()}/*"])]


def kafka(tool, *args, stdin=b"", timeout=300, check=True):
    """Runs a tool of Apache Kafka; returns what it printed on stdout (and stderr, when it failed)."""
    return _run(tool, [*jvm("256m"), CLASSES[tool], *[str(a) for a in args]], stdin, timeout, check)


class Toolbox:
    """Many calls of tools in one JVM (java/Tools.java): what each prints, as text. A broken one raises ToolError."""

    def __init__(self):
        self.proc = servers.spawn([*jvm("256m", [cache.java_peer()]), "Tools"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL)

    def __call__(self, tool, *args, timeout=120, check=True):
        job = {"class": CLASSES[tool], "args": [str(a) for a in args]}
        self.proc.stdin.write(json.dumps(job).encode() + b"\n")
        self.proc.stdin.flush()
        line, end = b"", time.monotonic() + timeout
        while not line.endswith(b"\n"):
            if time.monotonic() > end:
                self.close()
                raise ToolError(f"{tool} {' '.join(job['args'])[:200]} did not end within {timeout} s")
            if select.select([self.proc.stdout], [], [], 0.2)[0]:
                part = os.read(self.proc.stdout.fileno(), 1 << 16)
                if not part:
                    raise ToolError(f"{tool}: the JVM ended with {self.proc.wait()}")
                line += part
        a = json.loads(line)
        if check and a["code"]:
            raise ToolError(f"{tool} {' '.join(job['args'])[:200]} exited {a['code']}: {(a['err'].strip() or a['out'].strip())[:1500]}")
        return a["out"] if check else a["out"] + a["err"]

    def close(self):
        self.proc.kill()
        self.proc.wait()
        servers.forget(self.proc)


def kcat(*args, stdin=b"", timeout=60, check=True):
    return _run("kcat", [cache.kcat(), *[str(a) for a in args]], stdin, timeout, check)


def _run(name, cmd, stdin, timeout, check):
    try:
        r = subprocess.run(cmd, input=stdin, capture_output=True, timeout=timeout)
    except subprocess.TimeoutExpired as e:
        raise ToolError(f"{name} did not end within {timeout} s: {(e.stdout or b'')[-500:]!r}") from None
    if check and r.returncode:
        said = (r.stderr.strip() or r.stdout.strip())[:1500].decode(errors="replace")
        raise ToolError(f"{name} {' '.join(cmd[-6:])[:200]} exited {r.returncode}: {said}")
    return r.stdout if check else r.stdout + r.stderr


# What kafka-dump-log prints when it finds a fault (it then often exits 0 all the same), and anything that looks like one.
COMPLAINTS = re.compile(r"mismatch|non-consecutive|out of order|corrupt|not found|exception|error|invalid|could not|failed|"
                        r"isvalid: false|should not happen|less than", re.I)
INDEX_FINE = re.compile(r"^(/\S+) passed sanity check", re.M)


def partition_folders(data):
    """All partition folders under a data folder (topic-N)."""
    return sorted(d for d in Path(data).iterdir() if d.is_dir() and re.search(r"-\d+$", d.name) and any(d.glob("*.log")))


DUMP_FILES_MAX = 800  # one argument may have 128 kB


def dump(files, *options, call=None):
    """call: a Toolbox, when there is one."""
    call = call or (lambda *a: kafka(*a).decode(errors="replace"))
    # the index check reads at most --max-message-size at an entry's position: as large as the largest batch here
    text = []
    for i in range(0, len(files), DUMP_FILES_MAX):
        names = ",".join(str(f) for f in files[i:i + DUMP_FILES_MAX])
        text.append(call("kafka-dump-log", *options, "--max-message-size", str(1 << 26), "--files", names))
    return "\n".join(text)


def complaints(text):
    """Lines that complain. A record's own line is left out: its header names are the user's words."""
    return [line[:300] for line in text.splitlines() if COMPLAINTS.search(line.split(" headerKeys: ")[0])]


def dump_log_problems(folders, call=None):
    """kafka-dump-log over logs (deep iteration), indexes (sanity and content) and producer snapshots: its complaints.

    The broker must have been stopped cleanly: the indexes of an open segment end in zero padding, which the tool takes for
    entries.
    """
    logs = sorted(f for d in folders for f in d.glob("*.log"))
    indexes = sorted(f for d in folders for pattern in ("*.index", "*.timeindex") for f in d.glob(pattern))
    snapshots = sorted(f for d in folders for f in d.glob("*.snapshot"))
    if not logs:
        return ["no .log file to check"]
    if len(indexes) != 2 * len(logs):
        return [f"{len(logs)} logs and {len(indexes)} indexes"]
    try:
        text = dump(logs, "--deep-iteration", call=call)
        bad = complaints(text)
        if "baseOffset: " not in text and any(f.stat().st_size for f in logs):
            bad.append("kafka-dump-log showed no batch at all")
        bad += complaints(dump(indexes, "--verify-index-only", call=call))
        sane = dump(indexes, "--index-sanity-check", call=call)
        bad += complaints(sane)
        not_empty = [str(f) for f in indexes if f.stat().st_size]
        unsound = sorted(set(not_empty) - set(INDEX_FINE.findall(sane)))
        bad += [f"{f} did not pass the sanity check" for f in unsound[:5]]
        return bad + (complaints(dump(snapshots, call=call)) if snapshots else [])
    except ToolError as e:   # it crashes on some faults
        return [str(e)]


def dump_log_counts(folders):
    """(batches, records) as the tool's deep iteration shows them."""
    text = dump(sorted(f for d in folders for f in d.glob("*.log")), "--deep-iteration")
    return text.count("baseOffset: "), len(re.findall(r"^\| offset: ", text, re.M))


def metadata_log_problems(data, call=None):
    """The metadata log read by Apache Kafka's decoder, record types and all."""
    logs = sorted((Path(data) / "__cluster_metadata-0").glob("*.log"))
    if not logs:
        return ["no __cluster_metadata-0 log"]
    text = dump(logs, "--cluster-metadata-decoder", call=call)
    bad = complaints(text)
    if '"type":"' not in text and "payload:" not in text:
        bad.append(f"no metadata record decoded:\n{text[-800:]}")
    return bad


def spoiled_copy(folder, into, spoil):
    """A copy of a partition folder with one fault, for the controls: a judge that passes it judges nothing."""
    into = Path(into)
    shutil.rmtree(into, ignore_errors=True)
    shutil.copytree(folder, into)
    spoil(into)
    return into
