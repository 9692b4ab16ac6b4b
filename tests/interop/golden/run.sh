#!/usr/bin/env bash
# run.sh - gives the message sets and record batches that we write, in every format and codec, to Apache Kafka's own code (jars from Maven,
# kept in $KC_CACHE), and compares the table of error codes. The other direction is a unit test over checked-in sets (test_golden).
# KC_BUILD: the build tree (default: build). `run.sh --write` also makes tests/unit/golden/batches.h anew. Last line: `N passed, 0 failed`.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../.." && pwd)
build=${KC_BUILD:-$root/build}
cache=${KC_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kclient}/golden
version=4.4.0
libs=$cache/libs-$version
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

need() { # COMMAND PACKAGE
    command -v "$1" >/dev/null && return
    echo "golden: installing $2"
    local sudo=
    [ "$(id -u)" = 0 ] || sudo=sudo
    $sudo apt-get update -qq >/dev/null
    DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "$2" >/dev/null
}
need javac default-jdk-headless
if [ ! -e "$libs/complete" ]; then
    need mvn maven
    rm -rf "$libs"
    mkdir -p "$libs"
    mvn -q -B -f "$here/pom.xml" -Dkafka.version="$version" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$libs" >"$work/mvn.log" 2>&1 || {
        cat "$work/mvn.log" >&2
        echo "golden: Maven cannot get kafka-clients $version and what it needs" >&2
        exit 1
    }
    touch "$libs/complete"
fi
javac -d "$work" -cp "$libs/*" "$here/Golden.java"
golden() { java -Djava.io.tmpdir="$work" -cp "$work:$libs/*" Golden "$@"; } # the codecs unpack their libraries into tmpdir
if [ "${1:-}" = --write ]; then golden write "$root/tests/unit/golden/batches.h"; fi
if [ ! -f "$build/build.ninja" ]; then cmake -G Ninja -B "$build" -S "$root" >/dev/null; fi
ninja -C "$build" test_golden >"$work/ninja.log" || { cat "$work/ninja.log" >&2; exit 1; }
mkdir "$work/ours"
"$build/tests/test_golden" --write "$work/ours" >"$work/test.log" 2>&1 || { cat "$work/test.log" >&2; exit 1; }
golden verify "$work/ours" "$root/client/wire/kerror_table.h"
