"""The README's examples of asyncio and of the test kit, and examples/embed_asyncio.py; the others: test_readme.py."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict

import pytest
from test_pytest_plugin import run
from test_readme import blocks

from kclient import Admin


def block_with(text: str) -> str:
    found = [block for block in blocks() if text in block]
    assert len(found) == 1, text
    return found[0]


def test_asyncio(broker: str) -> None:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(block_with("asyncio.run"), "README.md, asyncio", "exec"), {"__name__": "readme", "bootstrap": broker})
    assert out.getvalue() == "stored 104\nread 104\n"


def test_a_cluster_that_breaks() -> None:
    names: Dict[str, Any] = {"__name__": "readme"}
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec("from kclient import Producer", names)
        exec(compile(block_with("Cluster(nodes=3)"), "README.md, testing", "exec"), names)
    assert out.getvalue() == "struck 1\nstill 2\n"


def test_the_fixtures(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    done = run(tmp_path, request.config, "from kclient import Producer\n" + block_with("def test_one_node"))
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout


def test_the_example_in_a_loop_without_a_thread(broker: str, topic: str) -> None:
    with Admin(bootstrap_servers=broker) as admin:
        admin.create_topic(topic, partitions=2)
    example = Path(__file__).resolve().parents[3] / "examples" / "embed_asyncio.py"
    done = subprocess.run([sys.executable, str(example), broker, topic, "5000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)
    assert sorted(done.stdout.splitlines()) == ["read 5000", "sent 5000", "the application's own timer ran as well"], done.stderr
