#!/usr/bin/env bash
# test.sh [PYTEST ARGUMENT...] - builds the wheel into a virtual environment below $KC_CACHE, looks into it, runs pytest and mypy --strict.
# The last line sums up. PYTHON: another interpreter (3.9 or newer).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
"$root/tests/deps.sh" build
cache=${KC_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kclient}
version=$("${PYTHON:-python3}" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
dir=$cache/python-$version
"$here/venv.sh" "$dir" pytest mypy pytest-xdist uvloop
bin=$dir/venv/bin

# What is in the wheel, and nothing else.
wheel=$(echo "$dir"/wheel/kclient-*.whl)
"$bin/python" - "$wheel" <<'PY'
import re, sys, zipfile
names = zipfile.ZipFile(sys.argv[1]).namelist()
stray = [n for n in names if not re.fullmatch(r"kclient/(aio/)?\w+\.pyi?|kclient/(py\.typed|bin/kbroker|_native\.[\w-]+\.so)|kclient-[\d.]+\.dist-info/.*", n)]
missing = [n for n in ("kclient/bin/kbroker", "kclient/py.typed", "kclient/_fast.pyi") if n not in names]
size = sum(i.compress_size for i in zipfile.ZipFile(sys.argv[1]).infolist())
if stray or missing or size > 4_000_000 or "kclient/_ffi_build.py" in names:
    sys.exit(f"the wheel: stray {stray}, missing {missing}, {size} bytes")
PY

cd "$here"
MYPYPATH=src "$bin/mypy" --cache-dir "$dir/mypy"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
jobs=()
[ $# -gt 0 ] || jobs=(-n "$(nproc)")
"$bin/pytest" -q -p no:cacheprovider ${jobs[@]+"${jobs[@]}"} "$@" 2>&1 | tee "$log"
echo "python $version: $(tail -1 "$log" | sed 's/=*//g; s/^ *//; s/ *$//'); mypy clean; wheel $(($(stat -c %s "$wheel") / 1024)) kB"
