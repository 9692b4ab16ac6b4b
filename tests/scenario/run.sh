#!/usr/bin/env bash
# Scenario tests on real processes: the command lines, the broker's life, full disks, hostile bytes, the README's commands.
# Each script prints `N passed, N failed`; so does this one, as its last line. Three run at a time: they mostly wait.
set -u
cd "$(dirname "$0")/../.."
out=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; wait; rm -rf "$out"' EXIT
trap 'exit 143' TERM
trap 'exit 130' INT

one() { # SCRIPT
    local pid
    python3 "$1" >"$out/${1##*/}" 2>&1 </dev/null &
    pid=$!
    trap 'kill $pid 2>/dev/null; wait $pid' TERM
    wait $pid
    echo $? >"$out/${1##*/}.rc"
}

# The longest first, so that none of them runs alone at the end.
scripts=() long="test_guid_kills test_guarantees test_cluster test_cluster_clients test_cluster_bad_input test_groups"
for name in $long; do scripts+=("tests/scenario/$name.py"); done
for script in tests/scenario/test_*.py; do
    name=${script##*/} name=${name%.py}
    [[ " $long " = *" $name "* ]] || scripts+=("$script")
done
for script in "${scripts[@]}"; do
    while (($(jobs -rp | wc -l) >= 3)); do wait -n; done
    one "$script" &
done
wait

passed=0 failed=0
for script in "${scripts[@]}"; do
    echo "== $script"
    log=$out/${script##*/}
    cat "$log"
    rc=$(cat "$log.rc")
    read -r p f < <(sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p' "$log" | tail -1)
    [ -n "${p:-}" ] || { echo "FAILED: $script printed no closing line"; p=0 f=1; }
    [ "$rc" -eq 0 ] || [ "$f" -gt 0 ] || f=1
    passed=$((passed + p)) failed=$((failed + f))
    p='' f=''
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
