"""The README's examples, in order, in one namespace, as a reader would type them."""
import re
from pathlib import Path
from typing import Any, Dict

import pytest

README = Path(__file__).resolve().parent.parent / "README.md"


def blocks() -> "list[str]":
    return re.findall(r"^```python\n(.*?)^```", README.read_text(), re.M | re.S)


def test_examples(capsys: pytest.CaptureFixture[str]) -> None:
    names: Dict[str, Any] = {"__name__": "readme"}
    found = blocks()
    assert len(found) >= 7
    try:
        for number, block in enumerate(found):
            if "async " in block or "kclient.testing" in block or "def test_" in block:
                continue  # test_readme_aio.py, test_testing.py
            exec(compile(block, f"README.md, python block {number + 1}", "exec"), names)
        out = capsys.readouterr().out
        for text in ("b'es' b'hola'", "stored orders 0 0", "mine: orders 0", "36 TOPIC_ALREADY_EXISTS False NOT_PERSISTED", "True True", "state='found'",
                     "KC_TIMED_OUT"):
            assert text in out, f"{text} is not in {out}"
    finally:
        if "broker" in names:
            names["broker"].terminate()
            names["broker"].wait()
