#!/usr/bin/env bash
# Installs what is missing and runs every test. The last line of each runner stays visible; exit 0 only if all passed.
#
#   tests/run.sh            everything a change must pass
#   tests/run.sh --quick    the loop for a person at work: build, style, units, a few simulator seeds
#   tests/run.sh --long     the night's run: more seeds, more fuzzing
#   tests/run.sh --only X   one runner by its name (see the list that --help prints)
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mode=full only=
while [ $# -gt 0 ]; do
    case $1 in
        --quick) mode=quick ;;
        --long) mode=long ;;
        --only) only=${2:?"--only needs a runner's name"}; shift ;;
        -h | --help) sed -n '2,7p' "$0" | sed 's/^# \{0,1\}//'; grep -oE '^runner [a-z0-9-]+' "$0" | sed 's/^runner /  /'; exit 0 ;;
        *) echo "run.sh: no option '$1'; --quick, --long, --only NAME or none" >&2; exit 2 ;;
    esac
    shift
done
export KC_CACHE=${KC_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kclient}
mkdir -p "$KC_CACHE"
jobs=$(nproc)
passed=0 failed=0 failures=()
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

# runner NAME MODES COMMAND...: runs it when the mode fits; shows its last line, or its whole output when it failed.
runner() {
    local name=$1 modes=$2; shift 2
    [ -z "$only" ] || [ "$only" = "$name" ] || return 0
    [ -n "$only" ] || case ",$modes," in *",$mode,"* | *,all,*) ;; *) return 0 ;; esac
    local start=$SECONDS log=$logs/$name rc=0
    printf '== %s\n' "$name"
    "$@" >"$log" 2>&1 </dev/null || rc=$?
    if [ $rc -eq 0 ]; then
        passed=$((passed + 1))
        grep -E '[^[:space:]]' "$log" | tail -n "${TAIL:-1}"
    else
        failed=$((failed + 1)); failures+=("$name")
        tail -n 200 "$log"
        printf 'FAILED: %s (exit %d)\n' "$name" "$rc"
    fi
    printf '   %s: %d s\n' "$name" $((SECONDS - start))
}
build() { # DIR FLAGS...
    local dir=$1; shift
    cmake -G Ninja -B "$dir" -S . "$@" -Wno-dev && ninja -C "$dir" -j "$jobs" && echo "built $dir"
}
units() { # DIR
    ASAN_OPTIONS=detect_leaks=1:abort_on_error=0 UBSAN_OPTIONS=print_stacktrace=1 TSAN_OPTIONS=suppressions=$PWD/tests/tsan.supp ctest --test-dir "$1" --output-on-failure -j "$jobs" "${@:2}"
}

tests/deps.sh test || exit 1
runner build all build build -DKC_TESTS=ON
runner tidy all tests/tidy.py build
runner build-asan all build build-asan -DKC_ASAN=ON -DCMAKE_BUILD_TYPE=Debug
TAIL=3 runner units all units build-asan
runner build-tsan full,long build build-tsan -DKC_TSAN=ON -DCMAKE_BUILD_TYPE=Debug
TAIL=3 runner units-tsan full,long units build-tsan -R 'handle|producer|consumer|thread'
runner simulator-quick quick tests/sim/run --seeds 5
runner simulator full tests/sim/run --seeds 1000 --jobs "$jobs"
runner growth full,long tests/sim/run --growth --small
runner simulator-asan full,long env KC_SIM_BUILD=build-asan tests/sim/run --seeds 50 --from 100001 --jobs "$jobs"
runner simulator-night long tests/sim/run --minutes 120
runner fuzz long tests/fuzz/run.sh 600
runner mutants full,long tests/sim/mutants/run.sh
runner python full,long bindings/python/test.sh
runner packaging full,long tests/packaging/run.sh build
runner scenario full,long tests/scenario/run.sh
runner docs full,long tests/docs/run.sh
runner go full,long bindings/go/test.sh build
runner schema full,long tests/interop/schema/run.sh
runner golden full,long tests/interop/golden/run.sh
runner interop full,long tests/interop/run.sh
runner quickstart full,long examples/quickstart.sh

echo
[ $failed -eq 0 ] || printf 'failed: %s\n' "${failures[*]}"
printf '%d passed, %d failed\n' "$passed" "$failed"
[ -z "$only" ] || [ $((passed + failed)) -gt 0 ] || echo "run.sh: no runner '$only'; --help lists them" >&2
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
