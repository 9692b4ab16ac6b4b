"""kclient.pytest_plugin, in runs of pytest of its own."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import List

import pytest


def plugin_arguments(config: pytest.Config) -> List[str]:
    """Where the package is not installed, only on the path, nothing tells pytest of the plugin."""
    return [] if config.pluginmanager.get_plugin("kclient") else ["-p", "kclient.pytest_plugin"]


def run(tmp_path: Path, config: pytest.Config, text: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    (tmp_path / "test_it.py").write_text(textwrap.dedent(text))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-v", *plugin_arguments(config), *arguments, "test_it.py"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}
    return subprocess.run(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)


GOOD = """
    import pytest
    from kclient import Producer

    @pytest.mark.parametrize("number", range(6))
    def test_each_has_its_own(kafka_cluster, number):
        with Producer(bootstrap_servers=kafka_cluster.bootstrap) as producer:
            assert producer.send_wait("t", b"v").offset == 0

    @pytest.mark.kafka_cluster(nodes=2, config={"num.partitions": 3})
    def test_as_the_mark_says(kafka_cluster):
        assert len(kafka_cluster.describe().nodes) == 2

    def test_as_many_as_it_takes(kafka_cluster_factory):
        clusters = [kafka_cluster_factory(), kafka_cluster_factory(nodes=2)]
        assert len({cluster.bootstrap for cluster in clusters}) == 2
"""


def test_fixtures(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    done = run(tmp_path, request.config, GOOD, "--strict-markers")
    assert done.returncode == 0 and "8 passed" in done.stdout, done.stdout


def test_many_at_once(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if importlib.util.find_spec("xdist") is None:
        pytest.skip("pytest-xdist is not installed")
    done = run(tmp_path, request.config, GOOD, "-n", "3")
    assert done.returncode == 0 and "8 passed" in done.stdout, done.stdout


BAD = """
    from kclient.testing import Cluster

    def test_fails(kafka_cluster):
        assert False

    def test_fails_with_a_cluster_of_its_own():
        with Cluster(2):
            assert False
"""


def test_a_failure_shows_the_nodes_logs(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    done = run(tmp_path, request.config, BAD, "--kafka-log-lines", "500")
    assert done.returncode == 1 and "2 failed" in done.stdout
    assert done.stdout.count("kafka cluster 127.0.0.1:") >= 2, done.stdout
    assert all(text in done.stdout for text in ("node-0.log", "node-1.log", "is ready")), done.stdout
    quiet = run(tmp_path, request.config, BAD, "--kafka-log-lines", "0")
    assert "2 failed" in quiet.stdout and "node-0.log" not in quiet.stdout, quiet.stdout


def test_a_kbroker_that_is_not_there(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    done = run(tmp_path, request.config, GOOD, "--kbroker", "/nowhere/kbroker", "-x")
    assert done.returncode == 1 and "kbroker was not found" in done.stdout and "/nowhere/kbroker" in done.stdout, done.stdout
