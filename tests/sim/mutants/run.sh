#!/bin/sh
# Plants one bug after the other and demands that the simulator's checker of the invariant that each breaks finds it within 20 seeds.
# tests/sim/mutants/run.sh [--jobs J] [NAME…]   (all of *.mutant without a name). Last line: "N passed, N failed".
exec python3 "$(dirname "$0")/run.py" "$@"
