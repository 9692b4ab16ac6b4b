#!/usr/bin/env bash
# Scenario tests on real processes: the command lines, the broker's life, full disks, hostile bytes, the README's commands.
# Each script prints `N passed, N failed`; so does this one, as its last line.
set -u
cd "$(dirname "$0")/../.."
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
passed=0 failed=0
for script in tests/scenario/test_*.py; do
    echo "== $script"
    python3 "$script" >"$out/log" 2>&1 </dev/null
    rc=$?
    cat "$out/log"
    read -r p f < <(sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p' "$out/log" | tail -1)
    [ -n "${p:-}" ] || { echo "FAILED: $script printed no closing line"; p=0 f=1; }
    [ $rc -eq 0 ] || [ "$f" -gt 0 ] || f=1
    passed=$((passed + p)) failed=$((failed + f))
    p='' f=''
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
