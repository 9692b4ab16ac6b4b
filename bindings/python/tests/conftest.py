"""A broker for the tests: one kbroker for all of them, with topics of their own."""
import os
import signal
import subprocess
from pathlib import Path
from typing import Iterator

import kclient
import pytest

KBROKER = Path(os.environ.get("KBROKER") or Path(kclient.__file__).parent / "bin" / "kbroker")


@pytest.fixture(scope="session")
def broker() -> Iterator[str]:
    """The address of a broker that makes topics when they are first used."""
    process = subprocess.Popen([str(KBROKER), "run", "--ephemeral", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("ready "), line
    yield line.split()[1]
    process.send_signal(signal.SIGTERM)
    process.wait()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name of this test's own."""
    name: str = f"{request.node.path.stem}-{request.node.name}"
    return "".join(c if c.isalnum() else "-" for c in name)[:200]
