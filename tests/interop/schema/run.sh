#!/bin/sh
# run.sh - proves the schemas and the codec against Apache Kafka's own jars (from Maven, kept in $KC_CACHE):
#   compare.py: our schemas field by field with the definitions in the jars
#   SchemaPeer.java and schema_tool.c: random instances of every message in every version, both ways, byte for byte
# Last line: `N passed, 0 failed`. KC_BUILD: the build tree (default: build). KC_SEED, KC_COUNT: of the random instances.
# `run.sh --golden` also rewrites tests/unit/golden_messages.h.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
build=${KC_BUILD:-$root/build}
cache=${KC_CACHE:-$HOME/.cache/kclient}/schema
seed=${KC_SEED:-1}
count=${KC_COUNT:-40}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$cache"

jar() { # group artifact version
    [ -s "$cache/$2-$3.jar" ] && return
    mvn -q -B dependency:copy -Dartifact="$1:$2:$3" -DoutputDirectory="$cache" >"$work/mvn.log" 2>&1 || {
        cat "$work/mvn.log" >&2
        echo "run.sh: Maven cannot get $1:$2:$3" >&2
        exit 1
    }
}
for v in 4.4.0 3.9.1; do
    jar org.apache.kafka kafka-clients $v
    jar org.apache.kafka kafka-metadata $v
    jar org.apache.kafka kafka-group-coordinator $v
done
jar org.apache.kafka kafka-clients 2.8.2
jar org.slf4j slf4j-api 1.7.36
jar org.slf4j slf4j-nop 1.7.36

if [ ! -f "$build/build.ninja" ]; then cmake -G Ninja -B "$build" -S "$root" >/dev/null; fi
ninja -C "$build" schema_tool >"$work/ninja.log" || { cat "$work/ninja.log" >&2; exit 1; }
tool=$build/tests/schema_tool

passed=0 failed=0
step() { # label command...; its last line counts
    label=$1
    shift
    "$@" >"$work/out" 2>&1 || true
    last=$(tail -n 1 "$work/out")
    p=$(printf %s "$last" | sed -n 's/.*\b\([0-9][0-9]*\) passed, [0-9]* failed$/\1/p')
    f=$(printf %s "$last" | sed -n 's/.* passed, \([0-9]*\) failed$/\1/p')
    if [ -z "$p" ]; then # it broke before it could count
        p=0 f=1
    fi
    if [ "$f" != 0 ]; then cat "$work/out"; else grep -E '^(ours|not compared):' "$work/out" || true; fi
    echo "$label: $p passed, $f failed"
    passed=$((passed + p)) failed=$((failed + f))
}

step "definitions" python3 "$here/compare.py" "$cache"
python3 "$here/compare.py" --list >"$work/list"
"$tool" make "$work/ours.bin" "$seed" "$count" >/dev/null
for v in 4.4.0 3.9.1; do
    path=$cache/kafka-clients-$v.jar:$cache/kafka-metadata-$v.jar:$cache/kafka-group-coordinator-$v.jar:$cache/slf4j-api-1.7.36.jar:$cache/slf4j-nop-1.7.36.jar
    mkdir "$work/$v"
    javac -d "$work/$v" -cp "$path" "$here/SchemaPeer.java"
    java -cp "$work/$v:$path" SchemaPeer make "$work/list" "$work/java-$v.bin" "$seed" "$count" >/dev/null
    step "Java $v -> C" "$tool" check "$work/java-$v.bin"
    step "C -> Java $v" java -cp "$work/$v:$path" SchemaPeer check "$work/list" "$work/ours.bin"
done
step "every version met" python3 "$here/compare.py" --coverage "$work/java-4.4.0.bin" "$work/java-3.9.1.bin"
if [ "${1:-}" = --golden ]; then
    python3 -B "$here/golden.py" "$root/tests/unit/golden_messages.h" "$root/tests/fuzz/corpus" "$work/java-4.4.0.bin" "$work/java-3.9.1.bin"
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
