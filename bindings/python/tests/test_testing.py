"""kclient.testing: clusters that start, break, and are gone with the test."""

from __future__ import annotations

import datetime
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest

from kclient import Consumer, KafkaError, Producer
from kclient.testing import Cluster, ClusterError, FaultError, find_kbroker, running_clusters, wait_until


@pytest.fixture(scope="module")
def three() -> Iterator[Cluster]:
    with Cluster(3) as cluster:
        yield cluster


@pytest.fixture
def whole(three: Cluster) -> Iterator[Cluster]:
    """Three nodes, put in order again after the test."""
    yield three
    three.clear_faults()
    for node in three.describe().nodes:
        if node.state != "up":
            three.start_node(node.id)


def alive(pid: int) -> bool:
    """Whether the process runs: a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def await_gone(pids: list[int], paths: list[Path]) -> None:
    wait_until(
        lambda: not any(alive(pid) for pid in pids) and not any(path.exists() for path in paths),
        60,
        lambda: f"still there: {[p for p in pids if alive(p)]} {[p for p in paths if p.exists()]}",
    )


def pids_of(cluster: Cluster) -> list[int]:
    return [node.pid for node in cluster.describe().nodes if node.pid] + [cluster._process.pid]


# ---- start and end


def test_one_node_serves_at_once(kafka_cluster: Cluster) -> None:
    with Producer(bootstrap_servers=kafka_cluster.bootstrap) as producer:
        report = producer.send_wait("greetings", b"hello")
    assert report.offset == 0
    info = kafka_cluster.describe()
    assert [node.state for node in info.nodes] == ["up"] and info.node(0).address == kafka_cluster.bootstrap
    assert info.ephemeral and info.clock == "real" and "broker" in info.node(0).roles
    with pytest.raises(KeyError, match="no node 7"):
        info.node(7)


def test_stop_takes_everything_away() -> None:
    cluster = Cluster(2)
    pids, data = pids_of(cluster), cluster.describe().data
    assert data.is_dir() and cluster.running and cluster in running_clusters()
    cluster.stop()
    cluster.stop()
    assert not cluster.running and cluster not in running_clusters() and "stopped" in repr(cluster)
    await_gone(pids, [data])
    with pytest.raises(ClusterError, match="did not answer.*has ended"):
        cluster.describe()


def test_garbage_stops_it() -> None:
    cluster = Cluster()
    pids, data = pids_of(cluster), cluster.describe().data
    del cluster
    await_gone(pids, [data])


@pytest.mark.parametrize("end", ["exit", "kill", "sigterm", "os_exit", "exception"])
def test_it_ends_with_its_process_however_that_ends(end: str, tmp_path: Path) -> None:
    program = """
        import os, signal, sys
        from kclient.testing import Cluster
        cluster = Cluster(2)
        print(cluster.describe().data, *[node.pid for node in cluster.describe().nodes], cluster._process.pid, flush=True)
        end = sys.argv[1]
        if end == "kill": os.kill(os.getpid(), signal.SIGKILL)
        if end == "sigterm": os.kill(os.getpid(), signal.SIGTERM)
        if end == "os_exit": os._exit(3)
        if end == "exception": raise RuntimeError("as it may be")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program), end], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    words = done.stdout.split()
    assert len(words) == 4, done.stderr
    await_gone([int(pid) for pid in words[1:]], [Path(words[0])])


def test_a_child_that_outlives_its_parent_does_not_keep_the_cluster(tmp_path: Path) -> None:
    program = """
        import os, signal, sys, time
        from kclient.testing import Cluster
        cluster = Cluster()
        pids = [node.pid for node in cluster.describe().nodes] + [cluster._process.pid]
        child = os.fork()
        if child == 0:
            assert not cluster.running
            cluster.stop()
            time.sleep(600)
        print(child, *pids, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        child, *pids = [int(word) for word in process.stdout.readline().split()]
        try:
            await_gone(pids, [])
            assert alive(child)
        finally:
            os.kill(child, signal.SIGKILL)


def _child(bootstrap: str) -> None:
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send_wait("from-child", b"hello")


def test_the_cluster_survives_a_child_that_ends(kafka_cluster: Cluster) -> None:
    for method in ("fork", "spawn"):
        process = multiprocessing.get_context(method).Process(  # type: ignore[attr-defined]
            target=_child, args=(kafka_cluster.bootstrap,)
        )
        process.start()
        process.join(60)
        assert process.exitcode == 0
    assert kafka_cluster.running and kafka_cluster.describe().node(0).state == "up"


def test_many_at_once() -> None:
    clusters = [Cluster() for _ in range(8)]
    try:
        assert len({cluster.bootstrap for cluster in clusters}) == 8
        for cluster in clusters:
            with Producer(bootstrap_servers=cluster.bootstrap) as producer:
                assert producer.send_wait("t", b"v").offset == 0
    finally:
        for cluster in clusters:
            cluster.stop()


def test_data_in_a_folder_stays(tmp_path: Path) -> None:
    with Cluster(data=tmp_path / "c") as cluster:
        with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            producer.send_wait("kept", b"first")
    with Cluster(data=tmp_path / "c") as cluster:
        assert not cluster.describe().ephemeral
        with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            assert producer.send_wait("kept", b"second").offset == 1
        assert "node-0.log" in cluster.logs()


def test_configuration_reaches_the_nodes() -> None:
    with Cluster(config={"num.partitions": 5, "auto_create_topics_enable": True}) as cluster:
        with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            producer.send_wait("t", b"v")
        assert len(cluster.admin().describe_topic("t").partitions) == 5


# ---- what goes wrong at the start


def test_a_start_that_fails_says_why(tmp_path: Path) -> None:
    before = running_clusters()  # of other tests, too
    with pytest.raises(ClusterError, match="num.partitionz"):
        Cluster(config={"num.partitionz": 3})
    with pytest.raises(ClusterError, match="no_such_api|NoSuchApi"):
        Cluster(faults={"api": "NoSuchApi", "close": True})
    with pytest.raises(ClusterError, match="(?s)ended with status"):
        Cluster(nodes=99)
    assert running_clusters() == before


def test_two_clusters_on_one_port_say_who_holds_it(kafka_cluster: Cluster) -> None:
    port = int(kafka_cluster.bootstrap.rsplit(":", 1)[1])
    with pytest.raises(ClusterError, match=str(port)):
        Cluster(port=port)


def test_a_missing_kbroker_names_all_places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="the argument kbroker .*/nowhere"):
        Cluster(kbroker=tmp_path / "nowhere")
    monkeypatch.setenv("KBROKER", str(tmp_path / "neither"))
    with pytest.raises(FileNotFoundError, match="KBROKER .*/neither"):
        find_kbroker()
    monkeypatch.delenv("KBROKER")
    monkeypatch.setattr("kclient.testing.__file__", str(tmp_path / "kclient" / "testing.py"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="(?s)the package .*PATH"):
        find_kbroker()
    program = tmp_path / "kbroker"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert find_kbroker() == str(program)


def test_a_start_that_hangs_is_ended(tmp_path: Path) -> None:
    program = tmp_path / "kbroker"
    program.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\necho waits >&2\nexec sleep 600\n")
    program.chmod(0o755)
    with pytest.raises(ClusterError, match="(?s)not ready in time.*waits"):
        Cluster(kbroker=program, timeout=0.5)
    # It does not look at its standard input, as kbroker does, so it gets the signal that nobody can overlook.
    await_gone([int((tmp_path / "pid").read_text())], [])


# ---- nodes


def test_nodes_are_killed_paused_stopped_wiped_and_started(whole: Cluster) -> None:
    before = whole.describe()
    assert whole.kill_node(0).node(0).state == "down"
    assert not alive(before.node(0).pid or 0)
    after = whole.start_node(0)
    assert after.node(0).state == "up" and after.node(0).address == before.node(0).address and after.node(0).pid != before.node(0).pid
    with whole.paused(1, 2) as info:
        assert info.node(1).state == info.node(2).state == "paused" and info.node(0).state == "up"
    assert {node.state for node in whole.describe().nodes} == {"up"}
    with whole.stopped(2) as info:
        assert info.node(2).state == "down"
        whole.wipe_node(2)
    assert whole.describe().node(2).state == "up"
    with whole.killed(1) as info:
        assert info.node(1).state == "down"
    assert whole.describe().node(1).state == "up"


def test_orders_that_make_no_sense_are_refused(whole: Cluster) -> None:
    with pytest.raises(ClusterError, match="42") as refused:
        whole.kill_node(42)
    assert refused.value.status in (400, 404)
    with pytest.raises(ClusterError) as refused:
        whole.wipe_node(0)  # it runs
    assert refused.value.status == 409
    with pytest.raises(ValueError, match="name at least one node"):
        whole.kill_node()


def test_a_paused_node_goes_on_after_an_exception(whole: Cluster) -> None:
    with pytest.raises(RuntimeError, match="mine"):
        with whole.paused(0):
            raise RuntimeError("mine")
    assert whole.describe().node(0).state == "up"


def test_a_node_is_added() -> None:
    with Cluster(1) as cluster:
        info = cluster.add_node(1)
        assert [node.id for node in info.nodes] == [0, 1] and info.node(1).state == "up"
        wait_until(lambda: len(cluster.admin().describe().brokers) == 2, 30, lambda: str(cluster.admin().describe()))


# ---- waiting for what the cluster does


def test_leaders_and_isr_are_waited_for(whole: Cluster) -> None:
    whole.create_topic("waits", partitions=2, replication_factor=3)
    leader = whole.wait_for_leader("waits", 1)
    whole.wait_for_isr("waits", 1, {0, 1, 2})
    with whole.killed(leader):
        other = whole.wait_for_leader("waits", 1, leader={0, 1, 2} - {leader})
        assert other != leader
        whole.wait_for_isr("waits", 1, {0, 1, 2} - {leader})
        with pytest.raises(TimeoutError, match=rf"(?s)waits.*1.*leader {other}"):
            whole.wait_for_leader("waits", 1, leader=leader, timeout=0.2)
    whole.wait_for_isr("waits", 1, {0, 1, 2})
    with pytest.raises(TimeoutError, match="(?s)no-such-topic.*UNKNOWN_TOPIC"):
        whole.wait_for_leader("no-such-topic", 0, timeout=datetime.timedelta(seconds=0.2))
    with pytest.raises(TimeoutError, match="(?s)waits.*9"):
        whole.wait_for_isr("waits", 9, {1}, timeout=0.2)


def test_an_assignment_is_waited_for(kafka_cluster: Cluster) -> None:
    kafka_cluster.create_topic("shared", partitions=2)
    with Consumer(bootstrap_servers=kafka_cluster.bootstrap, group_id="g") as consumer:
        consumer.subscribe(["shared"])
        kafka_cluster.wait_for_assigned(consumer)
        rules = kafka_cluster.fault(api="JoinGroup", stall=True)
        with Consumer(bootstrap_servers=kafka_cluster.bootstrap, group_id="g") as late:
            late.subscribe(["shared"])
            with pytest.raises(TimeoutError, match="(?s)assigned"):
                kafka_cluster.wait_for_assigned(late, timeout=0.3)
            rules.remove()


# ---- faults


def test_faults_strike_and_go(kafka_cluster: Cluster) -> None:
    with Producer(bootstrap_servers=kafka_cluster.bootstrap, retries=0, enable_idempotence=False) as producer:
        producer.send_wait("t", b"v")
        with kafka_cluster.fault(api="Produce", error="CORRUPT_MESSAGE") as fault:
            with pytest.raises(KafkaError):
                producer.send_wait("t", b"v")
            fault.wait_for_hits(1)
            assert fault.hits == 1
            assert [rule.rule["api"] for rule in kafka_cluster.faults()] == ["Produce"]
        assert fault.hits == 1 and kafka_cluster.faults() == []
        producer.send_wait("t", b"v")
        with pytest.raises(TimeoutError, match="1 hits instead of 2"):
            fault.wait_for_hits(2, timeout=0.1)


def test_faults_of_some_nodes_and_all(whole: Cluster) -> None:
    rules = whole.add_faults([{"api": "Fetch", "delay_ms": 1}, {"api": "Produce", "delay_ms": 1}], nodes=[0, 2])
    one = whole.fault(api="Metadata", delay_ms=1)
    assert sorted((rule.node, rule.rule["api"]) for rule in whole.faults()) == [
        (0, "Fetch"), (0, "Metadata"), (0, "Produce"), (1, "Metadata"), (2, "Fetch"), (2, "Metadata"), (2, "Produce"),
    ]  # fmt: skip
    rules.remove()
    rules.remove()
    assert {rule.rule["api"] for rule in whole.faults()} == {"Metadata"}
    assert [rule.node for rule in whole.faults([1])] == [1]
    assert whole.clear_faults([1]) == 1 and whole.clear_faults() == 2 and one.hits == 0


def test_a_handle_leaves_the_rules_of_a_restarted_node_alone(whole: Cluster) -> None:
    old = whole.fault(api="Produce", delay_ms=1, nodes=[1])
    whole.kill_node(1)
    assert old.hits == 0
    whole.start_node(1)
    new = whole.fault(api="Fetch", delay_ms=1, nodes=[1])
    old.remove()
    assert [rule.rule["api"] for rule in whole.faults([1])] == ["Fetch"]
    new.remove()
    assert whole.faults([1]) == []


def test_a_handle_while_a_node_is_paused(whole: Cluster) -> None:
    fault = whole.fault(api="Metadata", delay_ms=1)
    whole.create_topic("struck")
    fault.wait_for_hits(1)
    before = fault.hits
    with whole.paused(2):
        assert fault.hits >= before
        with pytest.raises(ClusterError, match=r"\[2\] are paused"):
            fault.remove()
        assert [rule.node for rule in whole.faults()] == []
    assert [rule.node for rule in whole.faults()] == [2]
    fault.remove()
    fault.remove()
    assert whole.faults() == [] and not fault._own()[0]


def test_a_malformed_rule_names_its_field(kafka_cluster: Cluster) -> None:
    with pytest.raises(FaultError, match="delay_ms") as refused:
        kafka_cluster.add_faults([{"api": "Fetch", "close": True}, {"api": "Produce", "delay_ms": "long"}])
    assert (refused.value.rule, refused.value.field, refused.value.status) == (2, "delay_ms", 400)
    assert kafka_cluster.faults() == []


def test_faults_from_the_start() -> None:
    with Cluster(faults={"api": "Produce", "nth": 1, "error": "NOT_LEADER_OR_FOLLOWER"}) as cluster:
        with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            producer.send_wait("t", b"v")
        assert [rule.hits for rule in cluster.faults()] == [1]


# ---- time, snapshots, record


def test_a_real_clock_does_not_jump(kafka_cluster: Cluster) -> None:
    with pytest.raises(ClusterError) as refused:
        kafka_cluster.advance(5)
    assert refused.value.status == 409


def test_the_clock_jumps() -> None:
    with Cluster(clock="virtual", config={"log.retention.check.interval.ms": 1000}) as cluster:
        cluster.create_topic("t", configs={"retention.ms": 3600_000, "segment.ms": 60_000})
        with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            producer.send_wait("t", b"old")
            before = cluster.clock()
            cluster.advance(datetime.timedelta(hours=2))
            assert datetime.timedelta(hours=2) <= cluster.clock() - before < datetime.timedelta(hours=3)
            wait_until(lambda: cluster.admin().describe_topic("t").partitions[0].log_start == 1, 60, lambda: str(cluster.admin().describe_topic("t")))


def test_a_snapshot_is_restored(tmp_path: Path) -> None:
    with Cluster(data=tmp_path / "c") as cluster:
        with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            producer.send_wait("t", b"kept")
            saved = cluster.save_snapshot("after-one")
            assert saved.name == "after-one" and saved.bytes > 0
            producer.send_wait("t", b"forgotten")
        assert [snapshot.name for snapshot in cluster.snapshots()] == ["after-one"]
        cluster.restore_snapshot("after-one")
        assert cluster.admin().describe_topic("t").partitions[0].log_end == 1
        with Cluster(snapshot=tmp_path / "c" / "snapshots" / "after-one") as copy:
            assert copy.admin().describe_topic("t").partitions[0].log_end == 1
        cluster.delete_snapshot("after-one")
        assert cluster.snapshots() == []
        with pytest.raises(ClusterError) as refused:
            cluster.restore_snapshot("after-one")
        assert refused.value.status == 404


def test_requests_are_recorded() -> None:
    with Cluster(record=True) as cluster:
        with Producer(bootstrap_servers=cluster.bootstrap, client_id="tester") as producer:
            producer.send_wait("t", b"v")
        asked = cluster.requests(api="Produce", kind="request")
        answered = cluster.requests(api="Produce", node=0, kind="response")
        assert len(asked) == len(answered) == 1
        assert asked[0]["client_id"] == "tester" and asked[0]["correlation_id"] == answered[0]["correlation_id"]
        assert {entry["api"] for entry in cluster.requests()} >= {"ApiVersions", "Metadata", "Produce"}
    with Cluster() as cluster, pytest.raises(ClusterError, match="record=True"):
        cluster.requests()
