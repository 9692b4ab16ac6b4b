"""Writes the C source of the cffi module `kclient._native`: the whole public C API, read from the headers themselves.

Run by CMakeLists.txt: _ffi_build.py INCLUDE_DIR OUT.c. Not part of the wheel.
"""
import re
import sys
from pathlib import Path

import cffi

HEADERS = ("kclient.h", "producer.h", "consumer.h", "admin.h")

# Python's side of callbacks that C makes (producer.py).
CALLBACKS = """
extern "Python" int32_t kclient_py_partitioner(void *ctx, int32_t topic, const void *key, size_t key_size, int32_t has_key, int32_t count);
"""


def declarations(text: str) -> str:
    """What cffi can parse of a header: no comments, no preprocessor, numeric macros as constants."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    text = re.sub(r"//[^\n]*", " ", text)
    text = re.sub(r'#ifdef __cplusplus\s.*?#endif', " ", text, flags=re.S)
    text = text.replace("KC_API ", "")
    lines = []
    for line in text.split("\n"):
        if not line.lstrip().startswith("#"):
            lines.append(line)
            continue
        m = re.match(r"\s*#define (KC_[A-Z0-9_]+) +(\S.*?)\s*$", line)
        if m and m.group(1) != "KC_API":
            lines.append(f"#define {m.group(1)} {m.group(2) if m.group(2).isdigit() else '...'}")
    return "\n".join(lines)


def builder(include: Path) -> cffi.FFI:
    ffi = cffi.FFI()
    for name in HEADERS:
        ffi.cdef(declarations((include / name).read_text()))
    ffi.cdef(CALLBACKS)
    ffi.set_source("kclient._native", "".join(f"#include <kclient/{name}>\n" for name in HEADERS))
    return ffi


def main() -> None:
    include, out = Path(sys.argv[1]), sys.argv[2]
    builder(include).emit_c_code(out)


if __name__ == "__main__":
    main()
