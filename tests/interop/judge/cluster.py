"""`kbroker cluster` as a child process: nodes killed, started, added by its own commands, and the judge's raw look at it.

Used by test_cluster.py. What the cluster is asked here goes over judge/wire.py, not over the product's client.
"""
import subprocess
import time
from pathlib import Path

from . import servers, wire


class Cluster(servers.Kbroker):
    """Brokers 0 to nodes - 1, all on one machine; `boot` names all of them, `boots` each by its id."""
    name = "kbroker cluster"

    def __init__(self, nodes, props=None, binary=None):
        super().__init__(props, binary)
        self.nodes = nodes
        self.boots = {}

    def launch(self):
        sets = [x for k, v in self.props.items() for x in ("--set", f"{k}={v}")]
        log = open(self.folder / "out.log", "ab")
        self.proc = servers.spawn([self.binary, "cluster", "--nodes", str(self.nodes), "--base-port", "0", "--data", self.data, *sets, *self.args],
                                  stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL)
        log.close()

    def start(self, timeout=120):
        self.launch()
        self.boot = self._ready(timeout)
        for node, _, address, *_ in self.status():
            self.boots[node] = address
        return self

    def command(self, *args, timeout=120):
        r = subprocess.run([self.binary, *map(str, args), "--data", self.data], capture_output=True, text=True, timeout=timeout)
        if r.returncode:
            raise RuntimeError(f"kbroker {' '.join(map(str, args))} exited {r.returncode}: {r.stderr}\n{self.log_tail()}")
        return r.stdout

    def status(self):
        """(id, life, address, pid) of each node."""
        rows = (line.split() for line in self.command("cluster", "status").splitlines())
        return [(int(r[1]), r[2], r[3], int(r[-1])) for r in rows]

    def kill_node(self, node):
        self.command("cluster", "kill-node", node)

    def start_node(self, node):
        self.command("cluster", "start-node", node)

    def stop_node(self, node):
        self.command("cluster", "stop-node", node)

    def add_node(self, node):
        self.command("cluster", "add-node", node)
        self.boots = {n: a for n, _, a, _ in self.status()}

    def fault(self, node, rule):
        self.command("fault", "add", rule, "--node", node)

    def mend(self, node):
        self.command("fault", "clear", "--node", node)

    def log_tail(self, lines=12):
        out = [super().log_tail(lines)]
        for f in sorted(Path(self.data).glob("node-*.log")):
            out += [f"-- {f.name}", *f.read_text(errors="replace").splitlines()[-lines:]]
        return "\n".join(out)

    def node_data(self, node):
        return self.data / f"node-{node}"

    def ask(self, question):
        """question(wire) of the first node that answers it."""
        for address in self.boots.values():
            try:
                with wire.Wire(address, 5) as w:
                    return question(w)
            except (OSError, wire.WireError):
                continue
        raise wire.WireError("no node answers")

    def partition_states(self, topic):
        """{partition: (leader, replicas, isr)} as any living node says."""
        return self.ask(lambda w: w.replicas(topic))

    def until(self, what, fits, wait=60):
        """Until fits() is true; what it saw last is in the complaint."""
        end, seen = time.monotonic() + wait, None
        while time.monotonic() < end:
            try:
                seen = fits()
            except (OSError, wire.WireError) as e:
                seen = e
            if seen is True:
                return
            time.sleep(0.1)
        raise RuntimeError(f"not within {wait} s: {what}; last seen {seen}\n{self.log_tail()}")

    def until_states(self, topic, what, fits, wait=60):
        def look():
            states = self.partition_states(topic)
            return True if states and all(fits(p, *s) for p, s in states.items()) else states
        self.until(f"{topic}: {what}", look, wait)

    def until_in_sync(self, topic, wait=60):
        self.until_states(topic, "all replicas in sync, with a leader", lambda p, leader, replicas, isr: leader >= 0 and sorted(isr) == sorted(replicas), wait)
