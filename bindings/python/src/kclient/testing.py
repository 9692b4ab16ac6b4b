"""A Kafka cluster of kbroker's for tests: started in milliseconds, broken on order, gone with the test.

    with Cluster(nodes=3) as cluster:
        cluster.create_topic("orders", partitions=3, replication_factor=3)
        with cluster.fault(api="Produce", every=3, error="NOT_LEADER_OR_FOLLOWER"):
            ...                                    # clients at cluster.bootstrap
        cluster.kill_node(0)
        cluster.wait_for_isr("orders", 0, {1, 2})

It is `kbroker cluster` in a process of its own, which ends with this one however that ends, spoken to over HTTP. Standard library alone, but for what
asks the cluster as a client does: create_topic and the wait_for_… helpers. All methods may be called from any thread; from a coroutine, by
asyncio.to_thread where they take long. pytest fixtures: kclient.pytest_plugin.
"""

from __future__ import annotations

import datetime
import json
import os
import select
import shutil
import subprocess
import tempfile
import threading
import time
import weakref
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Awaitable,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    Optional,
    Sequence,
    Type,
    TypeVar,
    Union,
    overload,
)

from .errors import KafkaError, TimedOut

if TYPE_CHECKING:
    from subprocess import Popen

    from . import Admin, Consumer
    from .admin_data import PartitionInfo
    from .aio import Consumer as AsyncConsumer

__all__ = ["Cluster", "ClusterError", "ClusterInfo", "Fault", "FaultError", "FaultRule", "Node", "Snapshot", "find_kbroker"]

PathLike = Union[str, "os.PathLike[str]"]
Rule = Mapping[str, Any]
Duration = Union[float, int, datetime.timedelta]
T = TypeVar("T")

#: How long an order to the cluster may take, in seconds: bounded by what it waits for itself, so this is for a process that is gone or hangs.
_ORDER_TIMEOUT = 120.0


class ClusterError(Exception):
    """The test cluster could not be started, or refused an order; the message says why. status: of HTTP, 0 where there was none."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class FaultError(ClusterError):
    """A fault rule is malformed. rule: which of them, from 1; field: its member that is wrong; None where it is none in particular."""

    def __init__(self, message: str, status: int, rule: Optional[int], field: Optional[str]) -> None:
        super().__init__(message, status)
        self.rule = rule
        self.field = field


@dataclass(frozen=True)
class Node:
    """A process of the cluster."""

    id: int
    roles: Sequence[str]  #: "broker", "controller"
    address: str  #: "127.0.0.1:9092"; of a controller alone, where controllers speak
    state: str  #: "up", "starting", "down", "paused"
    pid: Optional[int]  #: None while it does not run


@dataclass(frozen=True)
class ClusterInfo:
    """The cluster at one moment."""

    version: str
    bootstrap: str
    data: Path
    ephemeral: bool
    clock: str  #: "real", "virtual"
    nodes: Sequence[Node]

    def node(self, id: int) -> Node:
        """The node with this id. KeyError: there is none."""
        for node in self.nodes:
            if node.id == id:
                return node
        raise KeyError(f"the cluster has no node {id}, but {sorted(n.id for n in self.nodes)}")


@dataclass(frozen=True)
class FaultRule:
    """A fault rule that is in force on one node."""

    node: int
    number: int
    seen: int  #: requests that it fitted
    hits: int  #: requests that it struck
    rule: Rule  #: as it was given


@dataclass(frozen=True)
class Snapshot:
    """A stored state of the whole cluster. ms: how long it took to save or restore; 0 where it was only listed."""

    name: str
    bytes: int
    ms: float


class Fault:
    """Fault rules in force, until remove() or the end of the `with` block. Those that struck nobody yet are as good as any: look at `hits`."""

    def __init__(self, cluster: Cluster, rules: Sequence[Rule], first: Mapping[int, int], pids: Mapping[int, Optional[int]]) -> None:
        self._cluster = cluster
        self._rules = rules
        self._first = dict(first)
        self._pids = dict(pids)
        self._hits: Dict[int, int] = {}  # by node, as last seen
        self._removed = False

    def _own(self) -> tuple[List[FaultRule], List[int]]:
        """Those of its rules that are still there, and the nodes that cannot be asked (paused). A node that was started anew since has forgotten them, and
        counts its rules from 1 again."""
        mine = {id: self._pids.get(id) for id in self._first}
        there = [node for node in self._cluster.describe().nodes if node.pid is not None and node.pid == mine.get(node.id)]
        paused = [node.id for node in there if node.state == "paused"]
        asked = [node.id for node in there if node.state != "paused"]
        count = len(self._rules)
        own = [r for r in self._cluster.faults(asked) if self._first[r.node] <= r.number < self._first[r.node] + count] if asked else []
        self._hits = {**{id: self._hits.get(id, 0) for id in paused}, **{id: 0 for id in asked}}
        for rule in own:
            self._hits[rule.node] += rule.hits
        return own, paused

    @property
    def hits(self) -> int:
        """How many requests they struck so far, on all their nodes (a paused one: as last seen); after remove() as it was then."""
        if not self._removed:
            self._own()
        return sum(self._hits.values())

    def wait_for_hits(self, count: int = 1, timeout: Duration = 30.0) -> None:
        """Waits until they have struck so many requests."""
        wait_until(lambda: self.hits >= count, timeout, lambda: f"fault rules {list(self._rules)}: {self.hits} hits instead of {count}")

    def remove(self) -> None:
        """Takes them away, and lets go of whom they have stalled. Again: does nothing. ClusterError: a node is paused, which has its rules still: again once it
        goes on."""
        if self._removed:
            return
        own, paused = self._own()
        for rule in own:
            self._cluster._order("DELETE", f"/faults?node={rule.node}&rule={rule.number}")
        if paused:
            raise ClusterError(f"nodes {paused} are paused, and keep their fault rules: resume them, then remove() again", 409)
        self._removed = True

    def __enter__(self) -> Fault:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        try:
            if self._cluster.running:
                self.remove()
        except ClusterError:
            if error is None:  # else what went wrong before tells more
                raise


def _seconds(duration: Duration) -> float:
    return duration.total_seconds() if isinstance(duration, datetime.timedelta) else float(duration)


def wait_until(check: Callable[[], Optional[T]], timeout: Duration, seen: Callable[[], str], interval: float = 0.01) -> T:
    """Calls check until it gives something true, and returns that. TimeoutError with what seen() says when the time is up."""
    end = time.monotonic() + _seconds(timeout)
    while True:
        result = check()
        if result:
            return result
        if time.monotonic() >= end:
            raise TimeoutError(f"not within {_seconds(timeout):g} s: {seen()}")
        time.sleep(interval)
        interval = min(interval * 1.5, 0.25)


def _places(explicit: Optional[PathLike]) -> Iterator[tuple[str, Optional[str]]]:
    """Where kbroker may be: a description, and the path (None: not set)."""
    if explicit is not None:
        yield "the argument kbroker", os.fspath(explicit)
        return
    yield "the environment's KBROKER", os.environ.get("KBROKER") or None
    if os.environ.get("KBROKER"):
        return
    package = Path(__file__).resolve().parent
    yield "the package", str(package / "bin" / "kbroker")
    for folder in package.parents:
        if (folder / "broker-ref").is_dir():
            yield "the build tree", str(folder / "build" / "bin" / "kbroker")
            break
    yield "PATH", shutil.which("kbroker")


def find_kbroker(explicit: Optional[PathLike] = None) -> str:
    """The kbroker program: what is given, else KBROKER, else the one that came with this package, a build tree's around it, PATH's. FileNotFoundError names
    all places that were looked at."""
    looked = []
    for what, path in _places(explicit):
        if path and os.access(path, os.X_OK) and os.path.isfile(path):
            return path
        looked.append(f"{what} ({path})" if path else f"{what} (nothing there)")
    raise FileNotFoundError(f"kbroker was not found. Looked at: {'; '.join(looked)}. Give Cluster(kbroker=…), or set KBROKER.")


#: All clusters of this process that run: for the plugin's logs on failure, and for a child after fork.
_running: "weakref.WeakSet[Cluster]" = weakref.WeakSet()


def running_clusters() -> List[Cluster]:
    """The clusters of this process that run, oldest first."""
    return sorted((c for c in _running if c.running), key=lambda c: c._started)


#: Set by the plugin: told of a cluster whose `with` block an exception has left, while its logs are there still.
on_failure: Optional[Callable[[Cluster], None]] = None


def _forget_in_child() -> None:
    """A forked child must not keep the pipe open whose end tells the cluster that its test process is gone."""
    for cluster in list(_running):
        cluster._forget()


os.register_at_fork(after_in_child=_forget_in_child)


def _end(process: Popen[bytes], owner: int, clean: bool, folder: Optional[str]) -> None:
    """Ends the cluster's process, and with it its nodes. Nothing in a forked child. clean: nodes close their logs."""
    if os.getpid() != owner:
        return
    if process.poll() is None:
        if clean:
            process.terminate()
        if process.stdin:
            try:
                process.stdin.close()
            except OSError:
                pass
        try:
            process.wait(30 if clean else 10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    for stream in (process.stdin, process.stdout):
        if stream:
            stream.close()
    if folder:
        shutil.rmtree(folder, ignore_errors=True)


class Cluster:
    """A cluster of `nodes` brokers on free ports of 127.0.0.1, serving once the constructor returns. Stopped by stop(), the end of the `with` block, when it
    is garbage, and when this process ends, in whatever way.

    controllers: so many processes (ids from 1000) are the quorum; else the first brokers are.
    config: broker properties (server.properties, dots or underscores) for all nodes. profile: "reliable".
    clock: "virtual" lets advance() jump. record: True, or a file: requests() then tells each request and response.
    data: a folder that stays; without it all data goes with the cluster. snapshot: start from a copy of this stored state.
    faults: rules that are in force from the start, on nodes that start anew too. port: the first broker's, 0 picks free ones.
    kbroker: the program (find_kbroker). verbose: debug lines too in the nodes' logs. timeout: for the start.

    ClusterError: it did not start, and why; FileNotFoundError: no kbroker.
    """

    def __init__(
        self,
        nodes: int = 1,
        *,
        controllers: Optional[int] = None,
        config: Optional[Mapping[str, Any]] = None,
        profile: Optional[str] = None,
        clock: str = "real",
        record: Union[bool, PathLike] = False,
        data: Optional[PathLike] = None,
        snapshot: Optional[PathLike] = None,
        faults: Optional[Union[Rule, Sequence[Rule]]] = None,
        port: int = 0,
        kbroker: Optional[PathLike] = None,
        verbose: bool = False,
        timeout: Duration = 30.0,
    ) -> None:
        self._lock = threading.Lock()
        self._admin_client: Optional[Admin] = None
        self._folder: Optional[str] = None
        self._started = time.monotonic()
        self._kbroker = find_kbroker(kbroker)
        self._record: Optional[str] = None
        self._data = data
        command = [self._kbroker, "cluster", "--nodes", str(nodes), "--base-port", str(port), "--admin", "0", "--until-eof"]
        if controllers is not None:
            command += ["--controllers", str(controllers)]
        command += ["--data", os.fspath(data)] if data is not None else ["--ephemeral"]
        for name, value in (config or {}).items():
            command += ["--set", f"{name.replace('_', '.')}={_property(value)}"]
        if profile is not None:
            command += ["--profile", profile]
        if clock != "real":
            command += ["--clock", clock]
        if record is not False:
            self._record = os.path.join(self._own_folder(), "record.jsonl") if record is True else os.fspath(record)
            command += ["--record", self._record]
        if snapshot is not None:
            command += ["--from", os.fspath(snapshot)]
        if faults is not None:
            command += ["--faults", self._write_faults(faults)]
        if verbose:
            command.append("--verbose")
        self._errors = tempfile.TemporaryFile()
        # A session of its own: Ctrl-C reaches the tests, whose end then ends the cluster.
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, start_new_session=True)
        self._finalizer = weakref.finalize(self, _end, self._process, os.getpid(), data is not None, self._folder)
        _running.add(self)
        try:
            self.admin_url, self.bootstrap = self._await_ready(time.monotonic() + _seconds(timeout))
        except BaseException:
            self._process.kill()  # it may not even look at its standard input; nodes that run end with it
            self._finalizer()
            raise

    # ---- start and end

    def _own_folder(self) -> str:
        if self._folder is None:
            self._folder = tempfile.mkdtemp(prefix="kclient-testing-")
        return self._folder

    def _write_faults(self, faults: Union[Rule, Sequence[Rule]]) -> str:
        path = os.path.join(self._own_folder(), "faults.json")
        with open(path, "w", encoding="utf-8") as out:
            json.dump({"rules": [faults] if isinstance(faults, Mapping) else list(faults)}, out)
        return path

    def _await_ready(self, end: float) -> tuple[str, str]:
        """The admin URL and the bootstrap addresses, as the cluster prints them."""
        assert self._process.stdout
        stdout = self._process.stdout.fileno()
        poll = select.poll()
        poll.register(stdout, select.POLLIN)
        seen, admin = b"", ""
        while True:
            for line in seen.split(b"\n")[:-1]:
                word, _, rest = line.decode("utf-8", "replace").partition(" ")
                if word == "admin":
                    admin = rest.strip()
                if word == "ready":
                    return admin, rest.strip()
            left = end - time.monotonic()
            if left <= 0 or not poll.poll(left * 1000):
                raise ClusterError(self._tell("the cluster was not ready in time", seen))
            more = os.read(stdout, 65536)
            if not more:
                self._process.wait()
                raise ClusterError(self._tell(f"the cluster ended with status {self._process.returncode} before it was ready", seen))
            seen += more

    def _tell(self, what: str, printed: bytes = b"") -> str:
        """An error's text: what went wrong, what was run, and what it said."""
        said = (printed.decode("utf-8", "replace") + self.stderr()).strip()
        return f"{what}: {' '.join(self._process.args)}\n{said[-4000:] or '(it printed nothing)'}"  # type: ignore[arg-type]

    @property
    def running(self) -> bool:
        """Whether the cluster's process is there: False after stop(), and in a forked child."""
        return self._finalizer.alive and self._process.poll() is None

    def stop(self) -> None:
        """Ends all nodes and gives back what they took. Data in a folder of yours stays, closed cleanly. Again: does nothing."""
        admin, self._admin_client = self._admin_client, None
        if admin is not None:
            admin.close()
        self._finalizer()
        _running.discard(self)
        self._errors.close()

    def _forget(self) -> None:
        self._finalizer.detach()
        self._admin_client = None
        for stream in (self._process.stdin, self._process.stdout):
            if stream:
                stream.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        if error is not None and on_failure is not None:
            on_failure(self)
        self.stop()

    def __repr__(self) -> str:
        return f"<kclient.testing.Cluster {getattr(self, 'bootstrap', 'that did not start')}{'' if self.running else ' (stopped)'}>"

    # ---- orders over HTTP

    def _order(self, method: str, path: str, body: Optional[Any] = None) -> Any:
        """One request to the admin port: its answer's JSON. ClusterError, FaultError."""
        from http.client import HTTPConnection, HTTPException  # takes longer to import than a cluster to start

        address = self.admin_url.split("//", 1)[-1].rstrip("/")
        connection = HTTPConnection(address, timeout=_ORDER_TIMEOUT)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            text = response.read()
        except (OSError, HTTPException) as e:
            state = "it runs" if self.running else "it has ended"
            raise ClusterError(self._tell(f"{method} {path}: the cluster's admin port {address} did not answer ({e!r}; {state})")) from e
        finally:
            connection.close()
        try:
            answer = json.loads(text or b"null")
        except ValueError as e:
            raise ClusterError(f"{method} {path}: status {response.status}, not JSON: {text[:500]!r}", response.status) from e
        if response.status < 300:
            return answer
        told = answer if isinstance(answer, dict) else {}
        message = f"{method} {path}: {told.get('error') or text[:500]!r}"
        if "rule" in told or "field" in told:
            raise FaultError(message, response.status, told.get("rule"), told.get("field"))
        raise ClusterError(message, response.status)

    def describe(self) -> ClusterInfo:
        """The cluster as it is now: its nodes, their processes and states."""
        return _cluster_info(self._order("GET", "/cluster"))

    def status(self, nodes: Optional[Iterable[int]] = None) -> Dict[int, Dict[str, Any]]:
        """What each node tells of itself (its /status): by id."""
        answer = self._order("GET", "/status" + _of_nodes(nodes))
        return {item["id"]: item["status"] for item in answer["nodes"]}

    # ---- nodes

    def _do(self, action: str, ids: Sequence[int]) -> ClusterInfo:
        if not ids:
            raise ValueError(f"{action}: name at least one node, as in {action}_node(0)")
        return _cluster_info(self._order("POST", "/nodes", {"do": action, "ids": list(ids)}))

    def stop_node(self, *ids: int) -> ClusterInfo:
        """Stops nodes in order (leaders move first). Returns once they are gone, as all of these once it has come about."""
        return self._do("stop", ids)

    def kill_node(self, *ids: int) -> ClusterInfo:
        """kill -9, of all of them at the same moment."""
        return self._do("kill", ids)

    def pause_node(self, *ids: int) -> ClusterInfo:
        """Freezes them (SIGSTOP): connections stay, nothing is answered."""
        return self._do("pause", ids)

    def resume_node(self, *ids: int) -> ClusterInfo:
        """Lets paused ones go on."""
        return self._do("resume", ids)

    def start_node(self, *ids: int) -> ClusterInfo:
        """Starts nodes that do not run, with their data, on their ports; paused ones go on. Returns once they serve."""
        return self._do("start", ids)

    def wipe_node(self, *ids: int) -> ClusterInfo:
        """Empties their folders, as a disk that was replaced."""
        return self._do("wipe", ids)

    def add_node(self, *ids: int) -> ClusterInfo:
        """Adds brokers with these ids."""
        return self._do("add", ids)

    @contextmanager
    def stopped(self, *ids: int) -> Iterator[ClusterInfo]:
        """The nodes are stopped within the block, and started again at its end."""
        yield self.stop_node(*ids)
        self.start_node(*ids)

    @contextmanager
    def killed(self, *ids: int) -> Iterator[ClusterInfo]:
        """The nodes are killed at the block's beginning, and started again at its end."""
        yield self.kill_node(*ids)
        self.start_node(*ids)

    @contextmanager
    def paused(self, *ids: int) -> Iterator[ClusterInfo]:
        """The nodes are frozen within the block, and go on after it, also after an exception."""
        info = self.pause_node(*ids)
        try:
            yield info
        finally:
            if self.running:
                self.resume_node(*ids)

    # ---- faults

    def add_faults(self, rules: Union[Rule, Sequence[Rule]], nodes: Optional[Iterable[int]] = None) -> Fault:
        """Puts fault rules (members as in the JSON, broker-ref/README.md "Fault rules") in force on these nodes, or all that run. FaultError: one is
        malformed, and none is in force."""
        rules = [rules] if isinstance(rules, Mapping) else list(rules)
        answer = self._order("POST", "/faults" + _of_nodes(nodes), {"rules": rules})
        pids = {node.id: node.pid for node in self.describe().nodes}
        return Fault(self, rules, {n["id"]: n["first"] for n in answer["nodes"]}, pids)

    def fault(self, *, nodes: Optional[Iterable[int]] = None, **rule: Any) -> Fault:
        """One rule by its members: cluster.fault(api="Produce", nth=3, close=True, when="after")."""
        return self.add_faults(rule, nodes)

    def faults(self, nodes: Optional[Iterable[int]] = None) -> List[FaultRule]:
        """The rules in force, with what they have struck."""
        answer = self._order("GET", "/faults" + _of_nodes(nodes))
        return [FaultRule(n["id"], r["number"], r["seen"], r["hits"], r["rule"]) for n in answer["nodes"] for r in n["rules"]]

    def clear_faults(self, nodes: Optional[Iterable[int]] = None) -> int:
        """Takes all rules away; returns how many."""
        return sum(n["cleared"] for n in self._order("DELETE", "/faults" + _of_nodes(nodes))["nodes"])

    # ---- time, snapshots, record

    def advance(self, duration: Duration) -> None:
        """Lets the virtual clock of all nodes jump, by seconds or a timedelta: what retention, sessions and windows are due by then happens now.
        ClusterError (409): it was not started with clock="virtual"."""
        self._order("POST", "/clock", {"advance_ms": round(_seconds(duration) * 1000)})

    def clock(self) -> datetime.datetime:
        """The nodes' wall clock, in UTC."""
        wall_ms = self._order("GET", "/clock")["wall_ms"]
        return datetime.datetime.fromtimestamp(wall_ms / 1000, datetime.timezone.utc)

    def save_snapshot(self, name: str) -> Snapshot:
        """Stores the state of all nodes, as a kill -9 of all at this moment would leave it. name: within the cluster's data; with a slash: that path."""
        return _snapshot(self._order("POST", "/snapshots", {"save": name}))

    def restore_snapshot(self, name: str) -> Snapshot:
        """Puts all nodes back into a stored state. Returns once they serve again, on their ports."""
        return _snapshot(self._order("POST", "/snapshots", {"restore": name}))

    def snapshots(self) -> List[Snapshot]:
        """Those stored within the cluster's data."""
        answer = self._order("GET", "/snapshots")
        return [_snapshot(item) for item in (answer["snapshots"] if isinstance(answer, dict) else answer)]

    def delete_snapshot(self, name: str) -> None:
        """Forgets a stored state."""
        from urllib.parse import quote

        self._order("DELETE", f"/snapshots?name={quote(name, safe='')}")

    def requests(self, api: Optional[str] = None, node: Optional[int] = None, kind: Optional[str] = None) -> List[Dict[str, Any]]:
        """Each request and response that the nodes took so far, in the order of time (`kbroker print`): needs record=True. api: "Produce"; kind: "request" or
        "response"."""
        if self._record is None:
            raise ClusterError("nothing is recorded: start the cluster with record=True")
        command = [self._kbroker, "print", self._record]
        command += ["--api", api] if api is not None else []
        command += ["--node", str(node)] if node is not None else []
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if done.returncode != 0:
            raise ClusterError(f"{' '.join(command)}: {done.stderr.decode('utf-8', 'replace').strip()}")
        entries = [json.loads(line) for line in done.stdout.splitlines()]
        return [entry for entry in entries if kind is None or entry["kind"] == kind]

    # ---- as a client

    def admin(self) -> Admin:
        """An administration client of this cluster, made when first asked for, and closed with the cluster."""
        from . import Admin

        with self._lock:
            if self._admin_client is None:
                self._admin_client = Admin(bootstrap_servers=self.bootstrap)
            return self._admin_client

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = 1,
        configs: Optional[Mapping[str, object]] = None,
        *,
        timeout: Duration = 30.0,
    ) -> None:
        """Creates a topic, and waits until each partition has a leader."""
        self.admin().create_topic(name, partitions, replication_factor, configs, timeout=_seconds(timeout))
        for partition in range(partitions):
            self.wait_for_leader(name, partition, timeout=timeout)

    def _partition(self, topic: str, partition: int) -> tuple[Optional[PartitionInfo], str]:
        """The partition as the cluster tells of it, if it does, and the same in words."""
        try:
            for found in self.admin().describe_topic(topic, timeout=10).partitions:
                if found.partition == partition:
                    return found, f"{topic}[{partition}] has leader {found.leader}, replicas {found.replicas}, in sync {sorted(found.isr)}"
            return None, f"{topic} has no partition {partition}"
        except KafkaError as e:
            return None, f"{topic}[{partition}]: {e}"

    def wait_for_leader(
        self, topic: str, partition: int = 0, leader: Optional[Union[int, Iterable[int]]] = None, *, timeout: Duration = 30.0
    ) -> int:
        """Waits until the partition has a leader (leader: this one, or one of these) that is up, and returns its id. TimeoutError: who leads instead."""
        wanted = None if leader is None else {leader} if isinstance(leader, int) else set(leader)
        seen = ""

        def check() -> Optional[tuple[int]]:
            nonlocal seen
            found, seen = self._partition(topic, partition)
            good = found is not None and found.leader >= 0 and found.error is None and (wanted is None or found.leader in wanted)
            return (found.leader,) if found is not None and good else None

        return wait_until(check, timeout, lambda: f"a leader{'' if wanted is None else f' among {sorted(wanted)}'} was wanted, but {seen}")[0]

    def wait_for_isr(self, topic: str, partition: int, ids: Iterable[int], *, timeout: Duration = 30.0) -> None:
        """Waits until exactly these replicas are in sync. TimeoutError: which are instead."""
        wanted, seen = set(ids), ""

        def check() -> bool:
            nonlocal seen
            found, seen = self._partition(topic, partition)
            return found is not None and set(found.isr) == wanted

        wait_until(check, timeout, lambda: f"in sync {sorted(wanted)} was wanted, but {seen}")

    @overload
    def wait_for_assigned(self, consumer: Consumer, *, timeout: Duration = 30.0) -> None: ...
    @overload
    def wait_for_assigned(self, consumer: AsyncConsumer, *, timeout: Duration = 30.0) -> Awaitable[None]: ...
    def wait_for_assigned(self, consumer: Union[Consumer, AsyncConsumer], *, timeout: Duration = 30.0) -> Optional[Awaitable[None]]:
        """Waits until the group has given the consumer its partitions, if only none; to be awaited for one of kclient.aio. Others' consumers:
        wait_for_group. TimeoutError: what it waits for instead."""
        from .aio import Consumer as AsyncConsumer

        if isinstance(consumer, AsyncConsumer):
            return _assigned(consumer, _seconds(timeout))
        try:
            consumer.await_assigned(_seconds(timeout))
        except TimedOut:
            raise _not_assigned(consumer, _seconds(timeout)) from None
        return None

    def wait_for_group(self, group: str, members: Optional[int] = None, *, timeout: Duration = 30.0) -> None:
        """Waits until a group of any client's consumers is stable (members: with so many). TimeoutError: its state instead."""
        seen = ""

        def check() -> bool:
            nonlocal seen
            try:
                found = self.admin().describe_group(group, timeout=10)
            except KafkaError as e:
                seen = str(e)
                return False
            seen = f"group {group} is {found.state}, with {len(found.members)} members"
            return found.state == "Stable" and (members is None or len(found.members) == members)

        wait_until(check, timeout, lambda: f"a stable group{'' if members is None else f' of {members}'} was wanted, but {seen}")

    def stderr(self) -> str:
        """What the cluster's own process has said."""
        try:
            size = os.fstat(self._errors.fileno()).st_size
            return os.pread(self._errors.fileno(), size, 0).decode("utf-8", "replace")
        except ValueError:  # stopped
            return ""

    def logs(self, lines: Optional[int] = None) -> Dict[str, str]:
        """The nodes' logs (the last so many lines), by file name; {} once an ephemeral cluster has stopped."""
        found: Dict[str, str] = {}
        try:
            folder = Path(self._data) if self._data is not None else self.describe().data
        except ClusterError:
            return found
        for path in sorted(folder.glob("node-*.log")):
            text = path.read_text("utf-8", "replace").splitlines(keepends=True)
            found[path.name] = "".join(text if lines is None else text[-lines:])
        return found


def _not_assigned(consumer: Union[Consumer, AsyncConsumer], timeout: float) -> TimeoutError:
    why = "; ".join(reason.text for reason in consumer.why())
    return TimeoutError(f"not within {timeout:g} s: {consumer!r} was to be assigned its partitions, but: {why}")


async def _assigned(consumer: AsyncConsumer, timeout: float) -> None:
    try:
        await consumer.await_assigned(timeout)
    except TimedOut:
        raise _not_assigned(consumer, timeout) from None


def _property(value: Any) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _of_nodes(nodes: Optional[Iterable[int]]) -> str:
    return "" if nodes is None else "?node=" + ",".join(str(id) for id in nodes)


def _cluster_info(answer: Mapping[str, Any]) -> ClusterInfo:
    nodes = [Node(n["id"], tuple(n["roles"]), n["address"], n["state"], n.get("pid")) for n in answer["nodes"]]
    return ClusterInfo(answer["version"], answer["bootstrap"], Path(answer["data"]), bool(answer["ephemeral"]), answer["clock"], tuple(nodes))


def _snapshot(answer: Mapping[str, Any]) -> Snapshot:
    return Snapshot(answer["name"], answer["bytes"], answer.get("ms", 0))
