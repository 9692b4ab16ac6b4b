#!/usr/bin/env bash
# Fuzzes each target for a while, beginning with its corpus. Usage: tests/fuzz/run.sh [SECONDS a target, default 120] [TARGET...]
# New inputs stay in build-fuzz/found/TARGET for the next run; what fails is in build-fuzz/failed-TARGET-...
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
seconds=${1:-120}
shift || true
[[ $seconds =~ ^[0-9]+$ ]] || { echo "fuzz/run.sh: '$seconds' is no number of seconds" >&2; exit 2; }
cmake -G Ninja -B build-fuzz -S . -DKC_FUZZ=ON -DCMAKE_C_COMPILER=clang -DCMAKE_BUILD_TYPE=Debug -Wno-dev >/dev/null && ninja -C build-fuzz fuzz || exit 1
targets=("$@")
[ ${#targets[@]} -gt 0 ] || for f in tests/fuzz/fuzz_*.c; do f=${f##*/fuzz_}; targets+=("${f%.c}"); done
bad=()
for t in "${targets[@]}"; do
    mkdir -p "build-fuzz/found/$t"
    log=build-fuzz/found/$t.log
    if build-fuzz/tests/fuzz_"$t" -entropic=0 -max_len=1500 -timeout=30 -rss_limit_mb=2500 -max_total_time="$seconds" -print_final_stats=1 \
        -artifact_prefix="build-fuzz/failed-$t-" "build-fuzz/found/$t" "tests/fuzz/corpus/$t" >"$log" 2>&1; then
        printf '%-16s %s runs, %s\n' "$t" "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" "$(grep -oE 'cov: [0-9]+' "$log" | tail -1)"
    else
        bad+=("$t")
        grep -vE '^#[0-9]+.(NEW|REDUCE|pulse|INITED|RELOAD)|NEW_FUNC' "$log" | tail -60
    fi
done
[ ${#bad[@]} -eq 0 ] || { printf 'failed: %s\n' "${bad[*]}"; exit 1; }
echo "${#targets[@]} targets fuzzed, $seconds s each"
