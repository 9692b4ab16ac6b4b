#!/usr/bin/env bash
# run.sh BUILD_DIR - installs the library into a temporary prefix and builds a small program outside this tree in four ways: by pkg-config and by the CMake
# package, shared and static. The prefix is moved once in between: nothing may remember where it was installed. Also: only kc_ names are exported.
set -euo pipefail
build=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
say() { echo "packaging: $*"; }
fail() { say "FAILED: $*"; exit 1; }

cmake --install "$build" --prefix "$tmp/first" >"$tmp/install.log" 2>&1 || { cat "$tmp/install.log"; fail "cmake --install"; }
mv "$tmp/first" "$tmp/prefix"
prefix=$tmp/prefix
pc=$(find "$prefix" -name kclient.pc)
lib=$(dirname "$(dirname "$pc")")
export PKG_CONFIG_PATH=${pc%/*}
mkdir "$tmp/src"
cp "$here/hello.c" "$here/kit.c" "$here/CMakeLists.txt" "$tmp/src"
cd "$tmp/src"

for h in kclient producer consumer admin kclient_test; do [ -f "$prefix/include/kclient/$h.h" ] || fail "kclient/$h.h is not installed"; done
[ "$(find "$prefix/include" -name '*.h' | wc -l)" = "$(find "$here/../../include/kclient" -name '*.h' | wc -l)" ] || fail "a private header is installed"
for m in man1/kc.1 man1/kc-topic-create.1 man1/kbroker.1 man3/libkclient.3 man5/kclient.properties.5; do
    [ -f "$prefix/share/man/$m" ] || fail "$m is not installed"
done
for so in libkclient libkclient_test; do
    names=$(nm -D --defined-only "$lib/$so.so" | awk '$2 ~ /^[A-Z]$/ { print $3 }' | grep -v '^kc_' || true)
    [ -z "$names" ] || fail "exported without KC_API: $names"
    readelf -d "$lib/$so.so" | grep -q "SONAME.*$so\.so\.[0-9]*\]" || fail "$so has no SONAME"
done

cc=${CC:-cc}
expect="kclient $(pkg-config --modversion kclient), topic 1"
check() { # name, command…
    local out
    out=$("${@:2}") || fail "$1 does not run"
    [ "$out" = "$expect" ] || fail "$1 says \"$out\", not \"$expect\""
    say "$1: $out"
}
$cc -Wall -Wextra -Werror -std=c99 hello.c $(pkg-config --cflags --libs kclient) -o shared || fail "pkg-config, shared"
check "pkg-config, shared" env LD_LIBRARY_PATH="$lib" ./shared
sed 's/-lkclient/-l:libkclient.a/' <<<"$(pkg-config --static --cflags --libs kclient)" >flags
$cc -Wall -Wextra -Werror -std=c99 hello.c $(cat flags) -o static || fail "pkg-config, static"
ldd ./static | grep -q libkclient && fail "the static program needs libkclient.so"
check "pkg-config, static" ./static

# The test kit, which finds the kbroker that was installed beside it; linked statically on PATH.
expect="a cluster of 1 node, kbroker $(pkg-config --modversion kclient_test)"
$cc -Wall -Wextra -Werror -std=c99 kit.c $(pkg-config --cflags --libs kclient_test) -o kit_shared || fail "pkg-config, test kit, shared"
check "pkg-config, test kit, shared" env -u KBROKER PATH=/usr/bin:/bin LD_LIBRARY_PATH="$lib" ./kit_shared
sed 's/-lkclient_test/-l:libkclient_test.a/; s/-lkclient /-l:libkclient.a /' <<<"$(pkg-config --static --cflags --libs kclient_test) " >flags
$cc -Wall -Wextra -Werror -std=c99 kit.c $(cat flags) -o kit_static || fail "pkg-config, test kit, static"
ldd ./kit_static | grep -q libkclient && fail "the static program needs libkclient.so"
check "pkg-config, test kit, static" env -u KBROKER PATH="$prefix/bin:$PATH" ./kit_static
if command -v c++ >/dev/null; then c++ -x c++ -Wall -Wextra -Werror -fsyntax-only $(pkg-config --cflags kclient_test) kit.c || fail "kclient_test.h in C++"; fi
expect="kclient $(pkg-config --modversion kclient), topic 1"
if command -v c++ >/dev/null; then c++ -x c++ -Wall -Wextra -Werror -fsyntax-only $(pkg-config --cflags kclient) hello.c || fail "the headers in C++"; fi

cmake -S . -B out -DCMAKE_PREFIX_PATH="$prefix" >cmake.log 2>&1 || { cat cmake.log; fail "find_package(kclient)"; }
cmake --build out >cmake.log 2>&1 || { cat cmake.log; fail "the CMake package"; }
check "CMake package, shared" ./out/hello_shared
check "CMake package, static" ./out/hello_static
expect="a cluster of 1 node, kbroker $(pkg-config --modversion kclient_test)"
check "CMake package, test kit, shared" env -u KBROKER ./out/kit_shared
check "CMake package, test kit, static" env -u KBROKER PATH="$prefix/bin:$PATH" ./out/kit_static
say "all passed"
