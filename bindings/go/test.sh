#!/usr/bin/env bash
# Tests the Go binding: go vet, go test, go test -race. The last line is the summary. Needs Go 1.23 or later (tests/go.sh gets
# it where there is none) and what building the library needs.
#
#   test.sh [BUILD]   BUILD: a build tree of this repository (with libkclient.a and kbroker); without it build/, or, where that has none,
#                     one that is made in the cache folder
set -euo pipefail
given=${1:+$(realpath -m "$1")}
cd "$(dirname "${BASH_SOURCE[0]}")"
root=$(cd ../.. && pwd)
cache=${KC_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kclient}
tree=${given:-$root/build}
go=$("$root/tests/go.sh" .)
export PATH=${go%/*}:$PATH
if [ ! -e "$tree/lib/libkclient.a" ] || [ ! -e "$tree/pkgconfig/kclient.pc" ] || [ ! -x "$tree/bin/kbroker" ]; then
    [ -z "$given" ] || { echo "test.sh: $tree has no libkclient.a, kclient.pc or kbroker: build it first" >&2; exit 1; }
    tree=$cache/go-build
    cmake -G Ninja -B "$tree" -S "$root" -DKC_TESTS=OFF -Wno-dev >/dev/null
    ninja -C "$tree" lib/libkclient.a lib/libkclient.so bin/kbroker >/dev/null
fi
tree=$(cd "$tree" && pwd)
export PKG_CONFIG_PATH=$tree/pkgconfig${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH} KBROKER=$tree/bin/kbroker GOFLAGS=-mod=mod
unformatted=$(gofmt -l .)
[ -z "$unformatted" ] || { echo "test.sh: not formatted by gofmt: $unformatted" >&2; exit 1; }
go vet ./...
start=$SECONDS
results=$(mktemp)
trap 'rm -f "$results" "$results.one"' EXIT
for race in "" -race; do
    go test $race -count=1 -timeout 300s -v ./... >"$results.one" 2>&1 || { grep -vE '^ *(=== |--- (PASS|SKIP))' "$results.one"; echo "go: failed"; exit 1; }
    cat "$results.one" >>"$results"
done
passed=$(grep -cE '^ *--- PASS' "$results" || true)
skipped=$(grep -cE '^ *--- SKIP' "$results" || true)
echo "go: vet, $passed tests passed (with and without the race detector), $skipped skipped, $((SECONDS - start)) s"
