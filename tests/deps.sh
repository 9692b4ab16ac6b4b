#!/usr/bin/env bash
# Installs what building and testing need, by the system's package manager, saying what. Usage: tests/deps.sh [build|examples|test]
# Sourced or run; does nothing when all is there.
set -euo pipefail
what=${1:-test}
build=(gcc cmake ninja-build pkg-config python3 libuv1-dev libssl-dev libzstd-dev liblz4-dev libsnappy-dev zlib1g-dev libmicrohttpd-dev libjansson-dev)
test=(libcmocka-dev git curl clang libclang-rt-14-dev ccache kcat librdkafka-dev valgrind python3-venv doxygen mandoc groff util-linux iproute2)
packages=("${build[@]}")
[ "$what" = build ] || packages+=(libsqlite3-dev) # examples/exactly_once.c
[ "$what" = test ] && packages+=("${test[@]}")
command -v dpkg-query >/dev/null || { echo "deps: needs Debian 12+ or Ubuntu 22.04+ (no dpkg here): install ${packages[*]} by hand" >&2; exit 1; }
missing=()
for p in "${packages[@]}"; do
    dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' && continue
    case $p in # any version of these will do
        python3) command -v python3 >/dev/null && continue ;;
        cmake) command -v cmake >/dev/null && continue ;;
        ninja-build) command -v ninja >/dev/null && continue ;;
        git | curl | valgrind) command -v "$p" >/dev/null && continue ;;
        libclang-rt-14-dev) # the sanitizer runtime of the distribution's clang
            ls /usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.fuzzer-*.a >/dev/null 2>&1 && continue
            v=$(apt-cache depends clang 2>/dev/null | sed -n 's/.*Depends: clang-\([0-9]*\)$/\1/p' | head -1)
            p=libclang-rt-${v:-14}-dev ;;
        python3-venv) python3 -c 'import ensurepip, venv' 2>/dev/null && continue ;;
    esac
    missing+=("$p")
done
[ ${#missing[@]} -eq 0 ] && exit 0
sudo=
[ "$(id -u)" = 0 ] || sudo=sudo
echo "deps: installing ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get update -qq >&2 || { echo "deps: apt-get update failed; check the network and the sources list" >&2; exit 1; }
$sudo apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null || { echo "deps: apt-get could not install ${missing[*]}" >&2; exit 1; }
