"""The README's examples of asyncio and of the test kit; the others: test_readme.py."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any, Dict

import pytest
from test_pytest_plugin import run
from test_readme import blocks


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
