#!/usr/bin/env bash
# venv.sh DIR [PACKAGE...] - a virtual environment with kclient, built from this tree, and other packages (newest, unless said otherwise).
# What has not changed is not built again. PYTHON: the interpreter (python3). Used by test.sh and tests/bench.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
dir=${1:?"venv.sh DIR [PACKAGE...]"}
shift
python=${PYTHON:-python3}
build=("scikit-build-core>=0.10" "cffi>=1.17" ninja)
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
exec 9>"$dir/.lock"
flock 9
"$dir/venv/bin/python" -c '' 2>/dev/null || "$python" -m venv --clear "$dir/venv"
want=$(printf '%s\n' "${build[@]}" "$@")
if [ "$(cat "$dir/.packages" 2>/dev/null)" != "$want" ]; then
    "$dir/venv/bin/pip" install -q --disable-pip-version-check --upgrade "${build[@]}" "$@"
    printf '%s\n' "$want" >"$dir/.packages"
fi
# All that goes into the wheel, by content.
sum=$(cd "$root" && find CMakeLists.txt cmake client broker-ref include bindings/python/{CMakeLists.txt,pyproject.toml,README.md,build_backend.py,src} -type f \
    ! -name '*.pyc' -print0 | sort -z | xargs -0 sha256sum | sha256sum)
if [ "$(cat "$dir/.sum" 2>/dev/null)" != "$sum" ] || ! "$dir/venv/bin/python" -c 'import kclient' 2>/dev/null; then
    rm -rf "$dir/wheel"
    CMAKE_BUILD_PARALLEL_LEVEL=$(nproc) "$dir/venv/bin/pip" wheel -q --disable-pip-version-check --no-deps --no-build-isolation --config-settings "build-dir=$dir/build" \
        -w "$dir/wheel" "$here"
    "$dir/venv/bin/pip" install -q --disable-pip-version-check --no-deps --force-reinstall "$dir"/wheel/*.whl
    printf '%s\n' "$sum" >"$dir/.sum"
fi
