#!/usr/bin/env bash
# Runs the commands of every page and compares what they print with what the page says; checks links, options and generated pages.
#   tests/docs/run.sh [PAGE…]            these pages, or all; the last line: N passed, N failed
#   tests/docs/run.sh --update PAGE…     writes what was printed into the page, wherever it is not what stands there
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
exec python3 tests/docs/run.py "$@"
