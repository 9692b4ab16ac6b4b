"""The cffi module: the whole C API as lib.kc_*, made by _ffi_build.py."""
from typing import Any

ffi: Any
lib: Any
