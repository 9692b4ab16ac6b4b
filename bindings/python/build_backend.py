"""The build backend: scikit-build-core, and for an sdist the C sources, which live outside this folder, in csrc/.

A wheel is built from the repository, or from csrc/ where that is (an unpacked sdist). `pip install ./bindings/python` needs no copy.
"""
import contextlib
import shutil
from pathlib import Path

from scikit_build_core.build import *  # noqa: F403
from scikit_build_core import build as _base

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
COPY = HERE / "csrc"
NEEDED = ("CMakeLists.txt", "LICENSE", "cmake", "client", "broker-ref", "include")


@contextlib.contextmanager
def _sources():
    """csrc/ for as long as an sdist is made; one that is there (of an unpacked sdist) stays."""
    if COPY.exists() or not (ROOT / "client").is_dir():
        yield
        return
    try:
        COPY.mkdir()
        for name in NEEDED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, COPY / name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
            else:
                shutil.copy2(ROOT / name, COPY / name)
        yield
    finally:
        shutil.rmtree(COPY, ignore_errors=True)


def build_sdist(sdist_directory, config_settings=None):
    with _sources():
        return _base.build_sdist(sdist_directory, config_settings)
