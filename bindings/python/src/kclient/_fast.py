"""The hot calls: a second module in cffi's shared object (native/), so that both have the same copy of the library."""
import importlib.machinery
import importlib.util
import os
import threading

from . import _native


def _load() -> None:
    name = __name__
    path = _native.__file__
    loader = importlib.machinery.ExtensionFileLoader(name, path)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    globals().update({k: v for k, v in vars(module).items() if not k.startswith("__")})


_load()
set_main_thread(threading.main_thread().ident)  # type: ignore[name-defined]  # noqa: F821
os.register_at_fork(after_in_child=lambda: set_main_thread(threading.get_ident()))  # type: ignore[name-defined]  # noqa: F821
