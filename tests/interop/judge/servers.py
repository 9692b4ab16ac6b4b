"""Brokers as child processes on loopback: Apache Kafka (KRaft, one node) and kbroker, with the same handle.

start, stop (clean), kill9, restart on the same port and folder. Every process started here is ended when the script ends,
also on failure or a signal; by pid, never by name.
"""
import atexit
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from . import cache, wire

RECORD_MAX = 11 * 1024 * 1024   # 10 MB values fit, with their batch
_live = []
_folders = []


def _end_all():
    for p in list(_live):
        if p.poll() is None:
            p.kill()
            p.wait()
    if not os.environ.get("KC_KEEP"):
        for d in _folders:
            shutil.rmtree(d, ignore_errors=True)


atexit.register(_end_all)
for _sig in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(_sig, lambda n, f: sys.exit(128 + n))


def spawn(args, **kw):
    """A child that dies with the script."""
    p = subprocess.Popen([str(a) for a in args], **kw)
    _live.append(p)
    return p


def forget(p):
    if p in _live:
        _live.remove(p)


def temp_folder(prefix):
    d = Path(tempfile.mkdtemp(prefix=f"kc-{prefix}-"))
    _folders.append(d)
    return d


def free_ports(n):
    held = []
    for _ in range(n):
        s = socket.socket()
        s.bind(("127.0.0.1", 0))
        held.append(s)
    ports = [s.getsockname()[1] for s in held]
    for s in held:
        s.close()
    return ports


class Server:
    """What both brokers share: a process, a folder, an address."""
    proc = None
    boot = ""

    def pid(self):
        return self.proc.pid

    def kill9(self):
        self.proc.kill()
        self.proc.wait()
        forget(self.proc)

    def stop(self, timeout=60):
        """Clean shutdown; returns the exit code."""
        if self.proc is None or self.proc.poll() is not None:
            return None
        self.proc.terminate()
        try:
            code = self.proc.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill9()
            raise RuntimeError(f"{self.name} did not stop within {timeout} s of SIGTERM") from None
        forget(self.proc)
        return code

    def log_tail(self, lines=30):
        p = self.folder / "out.log"
        return "\n".join(p.read_text(errors="replace").splitlines()[-lines:]) if p.exists() else ""

    def partition(self, topic, p):
        """The partition's folder on disk."""
        return self.data / f"{topic}-{p}"

    def __enter__(self):
        return self.start()

    def __exit__(self, *exc):
        self.stop()


class Kafka(Server):
    name = "Apache Kafka"

    def __init__(self, props=None, heap=("-Xms256m", "-Xmx1g")):
        self.libs = cache.kafka_libs()
        self.folder = temp_folder("kafka")
        self.data = self.folder / "data"
        self.heap = heap
        port, ctl = free_ports(2)
        self.boot = f"127.0.0.1:{port}"
        base = {
            "process.roles": "broker,controller", "node.id": 1, "controller.quorum.voters": f"1@127.0.0.1:{ctl}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{ctl}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT", "log.dirs": self.data,
            "offsets.topic.replication.factor": 1, "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": 1, "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 1,
            "share.coordinator.state.topic.replication.factor": 1, "share.coordinator.state.topic.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0, "auto.create.topics.enable": "true",
            "message.max.bytes": RECORD_MAX, "replica.fetch.max.bytes": RECORD_MAX,
            "socket.request.max.bytes": 104857600, "log.retention.hours": -1,
        }
        base.update(props or {})
        self.config = self.folder / "server.properties"
        self.config.write_text("".join(f"{k}={v}\n" for k, v in base.items()))

    def java(self, cls, *args, heap=()):
        return ["java", *heap, "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-Djava.awt.headless=true",
                f"-Dlog4j2.configurationFile={cache.HERE / 'java' / 'log4j2.properties'}", "-cp", f"{self.libs}/*", cls, *args]

    def format(self):
        """Apache Kafka wants its folder formatted before the first start."""
        if not (self.data / "meta.properties").exists():
            cache.run(self.java("kafka.tools.StorageTool", "format", "-t", "kclient-interop-000000", "-c", self.config))

    def launch(self):
        """Starts the process and does not wait for it to serve."""
        log = open(self.folder / "out.log", "ab")
        flags = ["-server", "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"]
        self.proc = spawn(self.java("kafka.Kafka", self.config, heap=(*self.heap, *flags)), stdout=log, stderr=log,
                          stdin=subprocess.DEVNULL)
        log.close()

    def start(self, timeout=240):
        self.format()
        self.launch()
        deadline = time.monotonic() + timeout
        while True:
            try:
                with wire.Wire(self.boot) as w:
                    if w.brokers():
                        return self
            except (OSError, wire.WireError):
                pass
            if self.proc.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"Apache Kafka does not serve:\n{self.log_tail()}")
            time.sleep(0.05)


class Kbroker(Server):
    name = "kbroker"

    def __init__(self, props=None, binary=None, args=()):
        self.binary = Path(binary or os.environ.get("KBROKER") or cache.REPO / "build" / "bin" / "kbroker")
        if not self.binary.exists():
            raise cache.Missing(f"{self.binary} is not built")
        self.folder = temp_folder("kbroker")
        self.data = self.folder / "data"
        self.listen = "127.0.0.1:0"
        self.args = list(args)
        self.props = {"message.max.bytes": RECORD_MAX, "log.retention.hours": -1}
        self.props.update(props or {})

    def launch(self):
        """Starts the process and does not wait for it to serve."""
        sets = [x for k, v in self.props.items() for x in ("--set", f"{k}={v}")]
        log = open(self.folder / "out.log", "ab")
        self.proc = spawn([self.binary, "run", "--data", self.data, "--listen", self.listen, *sets, *self.args],
                          stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL)
        log.close()

    def start(self, timeout=60):
        self.launch()
        self.boot = self._ready(timeout)
        self.listen = self.boot   # a restart takes the same port, as its clients expect
        return self

    def _ready(self, timeout):
        deadline, seen, fd = time.monotonic() + timeout, b"", self.proc.stdout.fileno()
        while time.monotonic() < deadline:
            if select.select([fd], [], [], 0.05)[0]:
                part = os.read(fd, 4096)
                seen += part
                m = re.search(rb"^ready (127\.0\.0\.1:\d+(?:,127\.0\.0\.1:\d+)*)\s*$", seen, re.M)
                if m and m.group(0).endswith(b"\n") or m and not part:
                    return m.group(1).decode()
                if not part:
                    break
        raise RuntimeError(f"kbroker printed no ready line: {seen!r}\n{self.log_tail()}")


def server(kind, props=None):
    return {"kafka": Kafka, "kbroker": Kbroker}[kind](props)
