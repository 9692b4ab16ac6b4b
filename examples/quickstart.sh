#!/usr/bin/env bash
# From a fresh machine to records going through: installs what is missing, builds, starts a broker, creates a topic, produces, consumes,
# shows the records, stops. Debian 12+ or Ubuntu 22.04+. Non-interactive; the second run takes seconds.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
[ -t 1 ] || say() { printf '\n%s\n' "$*"; }

say "1. What building needs"
tests/deps.sh build
echo "all there"

say "2. Build"
[ -f build/build.ninja ] || cmake -G Ninja -B build -S . -DKC_TESTS=OFF -Wno-dev >/dev/null
ninja -C build kbroker kc kclient | tail -n 1 # and the library, for the README's tour

say "3. Start a broker"
work=$(mktemp -d)
broker=
stop() {
    [ -z "$broker" ] || { kill -TERM "$broker" 2>/dev/null || true; wait "$broker" 2>/dev/null || true; }
    rm -rf "$work"
}
trap stop EXIT
mkfifo "$work/out"
build/bin/kbroker run --data "$work/data" --listen 127.0.0.1:0 >"$work/out" 2>"$work/log" &
broker=$!
if ! read -r -t 30 word address <"$work/out" || [ "$word" != ready ]; then
    echo "quickstart: the broker did not get ready; its log:" >&2
    cat "$work/log" >&2
    exit 1
fi
echo "kbroker serves at $address"

say "4. Create a topic, produce three records, consume them"
echo "\$ kc topic create greetings -b $address --partitions 1"
build/bin/kc topic create greetings -b "$address" --partitions 1
echo "\$ printf 'en:hello\nfr:bonjour\nde:hallo\n' | kc produce -b $address -t greetings -K :"
printf 'en:hello\nfr:bonjour\nde:hallo\n' | build/bin/kc produce -b "$address" -t greetings -K :
echo "\$ kc consume -b $address -t greetings -o beginning -e -f '%o %k %s\n'"
build/bin/kc consume -b "$address" -t greetings -o beginning -e -f '%o %k %s\n' | tee "$work/seen"
[ "$(cat "$work/seen")" = $'0 en hello\n1 fr bonjour\n2 de hallo' ] || { echo "quickstart: these are not the records that were produced" >&2; exit 1; }

say "5. Stop"
kill -TERM "$broker"
wait "$broker"
broker=
echo "stopped cleanly. Records went through: quickstart passed"
