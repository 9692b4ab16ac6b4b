"""The peers behind one contract: a child process that takes a JSON job a line and answers a JSON line.

One process a peer serves a whole run, so that a JVM starts once. cpeer/job.h states the jobs. Each peer says what it
cannot express; the matrix then gives it a record set without that, and nothing else is left out.
"""
import json
import os
import select
import subprocess
import time

from . import cache, records, servers

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ACKS = ((0, False), (1, False), (-1, False), (-1, True))   # (acks, idempotence)


class PeerError(Exception):
    """A peer reported a failure, died, or did not answer."""


class Peer:
    produces = consumes = True
    unique_headers = False    # headers are a map: no repeated names, no null values
    null_headers = True
    null_records = True       # key and value both null
    conf = {}                 # properties on every job
    no_headers = False
    thorough = False          # takes the heavy record sets with every codec
    codecs = CODECS
    acks = ACKS
    fields = records.FIELDS   # what its consumer shows

    def __init__(self, boot):
        self.boot = boot
        self.proc = None

    def command(self):
        raise NotImplementedError

    def job(self, timeout=300, **job):
        self.start(job)
        return self.answer(timeout)

    def reads(self, codec):
        return codec in self.codecs

    def start(self, job):
        if self.proc is None or self.proc.poll() is not None:
            self.proc = servers.spawn(self.command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      stderr=None if os.environ.get("KC_VERBOSE") else subprocess.DEVNULL)
        if self.conf:
            job["conf"] = dict(self.conf, **job.get("conf", {}))
        self.proc.stdin.write(json.dumps(job).encode() + b"\n")
        self.proc.stdin.flush()

    def answer(self, timeout):
        fd, seen, deadline = self.proc.stdout.fileno(), b"", time.monotonic() + timeout
        while not seen.endswith(b"\n"):
            if time.monotonic() > deadline:
                self.close()
                raise PeerError(f"{self.name} did not answer within {timeout} s")
            if select.select([fd], [], [], 0.2)[0]:
                part = os.read(fd, 65536)
                if not part:
                    code = self.proc.wait()
                    servers.forget(self.proc)
                    self.proc = None
                    raise PeerError(f"{self.name} ended with {code}: {seen!r}")
                seen += part
        a = json.loads(seen)
        if not a["ok"]:
            raise PeerError(f"{self.name}: {a['error']}")
        return a

    def close(self):
        if self.proc:
            self.proc.kill()
            self.proc.wait()
            servers.forget(self.proc)
            self.proc = None

    def fit(self, rs):
        """The part of a record set that this peer's API can express."""
        if self.no_headers:
            return [dict(r, headers=[]) for r in rs]
        if self.unique_headers:
            return [dict(r, headers=list({n: (n, v) for n, v in r["headers"] if v is not None}.values())) for r in rs]
        if not self.null_records:
            rs = [dict(r, value=b"") if r["key"] is None and r["value"] is None else r for r in rs]
        return rs if self.null_headers else records.without_null_headers(rs)


class RdkDebian(Peer):
    name = "librdkafka-debian"

    def command(self):
        return [cache.rdk_peer(False), self.boot]


class RdkNew(Peer):
    name = "librdkafka-new"

    def command(self):
        return [cache.rdk_peer(True), self.boot]


class Java(Peer):
    name = "java"

    def command(self):
        return ["java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
                f"-Dlog4j2.configurationFile={cache.HERE / 'java' / 'log4j2.properties'}",
                "-cp", f"{cache.java_peer()}:{cache.kafka_libs()}/*", "Peer", self.boot]


class KafkaPython(Peer):
    name = "kafka-python"
    null_headers = False
    null_records = False

    def command(self):
        return [cache.venv(), cache.HERE / "python" / "peer.py", self.boot]


class Franz(Peer):
    name = "franz-go"

    def command(self):
        return [cache.franz(), self.boot]


class KafkaJs(Peer):
    name = "kafkajs"
    consumes = False
    unique_headers = True

    def command(self):
        return ["node", cache.kafkajs() / "peer.js", self.boot]


class Old:
    """What an old client cannot do: it speaks the versions of that broker's time, so message formats v0 and v1."""
    no_headers = True
    codecs = ("none", "gzip", "snappy", "lz4")
    acks = ((0, False), (1, False), (-1, False))


class Old09(Old, RdkDebian):
    """librdkafka that is told not to ask for versions."""
    name = "librdkafka-0.9.0"
    conf = {"api.version.request": "false", "broker.version.fallback": "0.9.0"}
    fields = ("key", "value")   # format v0 has no timestamp


class Old010(Old, Franz):
    """franz-go kept to the versions of 0.10.0. (librdkafka asks for versions as soon as it is told 0.10.)"""
    name = "franz-go-0.10.0"
    conf = {"version": "0.10.0"}
    fields = ("key", "value", "timestamp")


class Kclient(Peer):
    name = "libkclient"
    thorough = True

    def command(self):
        return [cache.kc_peer(), self.boot]


class KclientOwnLoop(Kclient):
    name = "libkclient-own-loop"
    thorough = False
    conf = {"client.thread": "none"}


class KcCli(Peer):
    """kc consume as a reader of everything: its JSON lines in base64 are the lines that the other peers write."""
    name = "kc"
    produces = False

    def job(self, timeout=300, **job):
        binary = cache.build_tree() / "bin" / "kc"
        if not binary.exists():
            raise cache.Missing(f"{binary} is not built")
        with open(job["out"], "wb") as out:
            for topic in job["topics"]:
                sets = [x for k, v in job.get("conf", {}).items() for x in ("--set", f"{k}={v}")]
                r = subprocess.run([binary, "consume", "-b", self.boot, "-t", topic, "-o", str(job.get("offset", "beginning")), "-e",
                                    "--json", "--base64", *sets], stdout=out, stderr=subprocess.PIPE, timeout=timeout)
                if r.returncode:
                    raise PeerError(f"kc consume -t {topic} exited {r.returncode}: {r.stderr[-600:].decode(errors='replace')}")
        return {"ok": True}


OUTSIDE = (RdkDebian, RdkNew, Java, KafkaPython, Franz, KafkaJs)
OLD = (Old09, Old010)
OURS = (Kclient, KclientOwnLoop, KcCli)
