"""pytest's part of the test kit (entry point pytest11): a Kafka cluster as a fixture, and the nodes' logs with what failed.

    def test_orders(kafka_cluster):                        # one node, this test's own
        producer = Producer(bootstrap_servers=kafka_cluster.bootstrap)

    @pytest.mark.kafka_cluster(nodes=3, clock="virtual")   # arguments of kclient.testing.Cluster
    def test_retention(kafka_cluster): ...

    def test_mirror(kafka_cluster_factory):                # as many as it takes
        source, target = kafka_cluster_factory(), kafka_cluster_factory(nodes=3)

Clusters take free ports, so that any number of tests run at once (pytest-xdist).
"""

from __future__ import annotations

import os
from typing import Any, Callable, Generator, Iterator, List, Tuple

import pytest

from . import testing
from .testing import Cluster, running_clusters

__all__ = ["kafka_cluster", "kafka_cluster_factory"]


_lines = 0  # of each log
_told: List[Tuple[str, str]] = []  # logs of clusters that the test under way has left by an exception


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kafka", "kclient's test clusters")
    group.addoption("--kbroker", metavar="PATH", help="the kbroker program that test clusters run (else: KBROKER, the package's own, PATH)")
    group.addoption("--kafka-log-lines", type=int, default=60, metavar="N", help="lines of each node's log that a failure shows (60; 0: none)")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "kafka_cluster(**arguments): how the fixture kafka_cluster is started (kclient.testing.Cluster)")
    global _lines
    _lines = config.getoption("--kafka-log-lines")
    testing.on_failure = _remember
    if config.getoption("--kbroker"):
        os.environ["KBROKER"] = config.getoption("--kbroker")


@pytest.fixture
def kafka_cluster_factory() -> Iterator[Callable[..., Cluster]]:
    """Starts clusters (arguments of kclient.testing.Cluster), and stops them all after the test."""
    started: List[Cluster] = []

    def start(nodes: int = 1, **arguments: Any) -> Cluster:
        started.append(Cluster(nodes, **arguments))
        return started[-1]

    yield start
    for cluster in reversed(started):
        cluster.stop()


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest, kafka_cluster_factory: Callable[..., Cluster]) -> Cluster:
    """A cluster of one node, or as the mark kafka_cluster says, for this test alone."""
    mark = request.node.get_closest_marker("kafka_cluster")
    return kafka_cluster_factory(*mark.args, **mark.kwargs) if mark else kafka_cluster_factory()


def _remember(cluster: Cluster) -> None:
    for name, text in {"": cluster.stderr(), **cluster.logs(_lines)}.items():
        if text:
            _told.append((f"kafka cluster {cluster.bootstrap} {name}".rstrip(), text))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Generator[None, Any, None]:
    """A failed test shows what the nodes of its clusters, and of all that run, have logged."""
    outcome = yield
    report = outcome.get_result()
    if report.failed and _lines > 0:
        for cluster in running_clusters():
            _remember(cluster)
        report.sections.extend(_told)
    _told.clear()
