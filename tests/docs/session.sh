# What the blocks of a page run in: sourced by the shell of tests/docs/run.py, which then sources one block after another.
# A broker in the background is waited for until it serves, as a person does who reads "ready" before typing on.
set -e -o pipefail
docs_started=0
docs_ready() {
    docs_started=$((docs_started + 1))
    local i
    for i in $(seq 1200); do
        [ "$(grep -h '^ready ' "$DOCS_OUT"/*.out | wc -l)" -lt "$docs_started" ] || return 0
        kill -0 "$1" 2>/dev/null || { echo "docs: it ended before it was ready" >&2; return 1; }
        sleep 0.05
    done
    echo "docs: not ready after 60 s" >&2
    return 1
}
docs_fails() { echo "docs: this was to fail, and did not: $1" >&2; return 99; }
