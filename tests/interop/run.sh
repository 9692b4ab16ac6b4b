#!/usr/bin/env bash
# run.sh [--quick] [--prove] - every interoperability test: installs the peers, runs the scripts (two at a time on a machine
# with two cores), shows each one's output and closing line, ends with the sum `N passed, N failed`. Exit 0 only if all passed.
# --prove runs the scripts that judge kbroker against Apache Kafka in its place, and the peers against each other: it proves
# the judges, and needs nothing of the product.
set -u
cd "$(dirname "$0")"
quick=() prove=0
for a in "$@"; do
    case $a in
    --quick) quick=(--quick) ;;
    --prove) prove=1 ;;
    *) echo "usage: run.sh [--quick] [--prove]" >&2; exit 2 ;;
    esac
done
out=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; wait; rm -rf "$out"' EXIT
trap 'exit 143' TERM
trap 'exit 130' INT

if ((prove)); then
    scripts=("test_kbroker.py --broker kafka" "test_segments.py --broker kafka" "test_admin_tools.py --broker kafka" "kill9.py --broker kafka --kills 3")
else
    scripts=("test_kbroker.py" "test_kafka_broker.py" "kill9.py" "test_segments.py" "test_admin_tools.py" "test_metadata.py" "test_cluster.py" "test_groups.py" "test_commits.py" "test_commits.py --broker kafka" "test_compact.py" "test_guid.py" "test_guid_files.py")
fi

echo "== peers"
if ! python3 -m judge.cache; then
    echo "0 passed, 1 failed"
    exit 1
fi

one() { # index, script and its arguments
    local i=$1
    shift
    # shellcheck disable=SC2086
    python3 $* ${quick[@]+"${quick[@]}"} >"$out/$i" 2>&1 &
    local pid=$!
    trap 'kill $pid 2>/dev/null; wait $pid' TERM
    wait $pid
}

lanes=$(($(nproc) < 2 ? 1 : 2))
pids=()
for i in "${!scripts[@]}"; do
    while (($(jobs -rp | wc -l) >= lanes)); do wait -n; done
    one "$i" "${scripts[$i]}" &
    pids+=($!)
done
wait "${pids[@]}"

passed=0 failed=0
for i in "${!scripts[@]}"; do
    echo
    cat "$out/$i"
    read -r p f < <(sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p' "$out/$i" | tail -1)
    if [[ -z ${p:-} ]]; then
        echo "FAILED: ${scripts[$i]} printed no closing line"
        p=0 f=1
    fi
    passed=$((passed + p)) failed=$((failed + f))
    unset p f
done
echo
echo "tests/interop: ${#scripts[@]} scripts"
echo "$passed passed, $failed failed"
((failed == 0 && passed > 0))
