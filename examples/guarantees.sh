#!/usr/bin/env bash
# Plays a delivery guarantee: starts a broker, runs examples/NAME.c, whose both halves (sending, processing) are killed (kill -9) again and again and started
# anew, and counts what became of each order. Usage: examples/guarantees.sh at_most_once|at_least_once|exactly_once [control]
# control: the same with the one thing left out that the guarantee rests on, and what comes of it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
name=${1:-} count=2000 kills=12 send=() process=() topic=()
case "$name ${2:-}" in
"at_most_once " | "at_least_once ") ;;
"exactly_once ") topic=(--config message.guid.dedup=true) ;;
"at_most_once control") send=(--note-after) process=(--note-after) ;;
"at_least_once control") send=(--note-before) process=(--note-before) ;;
"exactly_once control") topic=(--config message.guid.dedup=true) send=(--no-ids) process=(--note-apart) ;;
*) echo "usage: $0 at_most_once|at_least_once|exactly_once [control]" >&2; exit 2 ;;
esac
tests/deps.sh examples
build=${KC_BUILD:-build}
[ -f "$build/build.ninja" ] || cmake -G Ninja -B "$build" -S . -DKC_TESTS=OFF -Wno-dev >/dev/null
ninja -C "$build" kbroker kc kclient | tail -n 1
work=$(mktemp -d) broker=
stop() {
    [ -z "$broker" ] || { kill -TERM "$broker" 2>/dev/null || true; wait "$broker" 2>/dev/null || true; }
    rm -rf "$work"
}
trap stop EXIT
libraries=(-lkclient)
[ "$name" = exactly_once ] && libraries+=(-lsqlite3)
gcc -O1 -I include "examples/$name.c" -o "$work/$name" -L"$build/lib" "${libraries[@]}" -Wl,-rpath,"$(cd "$build" && pwd)/lib"
mkfifo "$work/out" "$work/says"
"$build/bin/kbroker" run --data "$work/data" --listen 127.0.0.1:0 >"$work/out" 2>"$work/log" &
broker=$!
read -r -t 30 _ at <"$work/out"
"$build/bin/kc" topic create orders -b "$at" --partitions 2 "${topic[@]}"
# Runs a command to its end, after so many kills in the middle of it.
under_kills() {
    local killed=0 pid rc
    while :; do
        "$@" >"$work/says" &
        pid=$!
        read -r _ <"$work/says" || true # "working"
        if [ "$killed" -lt "$kills" ]; then
            sleep "0.0$((RANDOM % 50 + 10))"
            kill -9 "$pid" 2>/dev/null && killed=$((killed + 1))
        fi
        rc=0
        wait "$pid" 2>/dev/null || rc=$?
        [ "$rc" = 137 ] && continue
        [ "$rc" = 0 ] || { echo "guarantees: $* failed ($rc)" >&2; exit 1; }
        break
    done
    echo "$2: killed $killed times"
}
under_kills "$work/$name" send "$at" orders "$work" "$count" "${send[@]}"
under_kills "$work/$name" process "$at" orders "$work" "${process[@]}"
if [ -f "$work/results.db" ]; then
    python3 -c 'import sqlite3, sys
for (n,) in sqlite3.connect(sys.argv[1]).execute("SELECT number FROM results"): print(n)' "$work/results.db" >"$work/done"
else
    mv "$work/results" "$work/done"
fi
"$build/bin/kc" consume -b "$at" -t orders -o beginning -e >"$work/sent"
tell() {
    local different
    different=$(sort -u "$2" | wc -l)
    echo "$1 $(wc -l <"$2") records of $count orders: $((count - different)) lost, $(sort "$2" | uniq -d | wc -l) more than once"
}
tell "stored   " "$work/sent"
tell "processed" "$work/done"
