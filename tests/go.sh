#!/usr/bin/env bash
# Says where a Go is that can build the module in a folder, on standard output; gets one where there is none, saying what: the distribution's, and where
# that is too old (before 1.21 it cannot fetch what a go.mod asks for by itself) a newer one from the module proxy, into the cache folder.
# Called by bindings/go/test.sh, tests/bench/go.py and tests/interop/judge/cache.py. Usage: tests/go.sh FOLDER
set -euo pipefail
module=$(realpath "${1:?"go.sh: needs the folder of a module"}")
cache=${KC_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kclient}
newer=1.26.0 # as new as the newest go.mod of this tree asks for
got=$cache/go-$newer
case $(uname -m) in aarch64) arch=arm64 ;; *) arch=amd64 ;; esac

fits() { # in the module's folder a Go that is too old, and may not fetch another one, fails
    local minor
    minor=$("$1" env GOVERSION 2>/dev/null | sed -n 's/^go1\.\([0-9]*\).*/\1/p')
    [ "${minor:-0}" -ge 21 ] && (cd "$module" && "$1" version) >/dev/null 2>&1
}
look() {
    local go
    for go in $(command -v go || true) /usr/local/go/bin/go "$got/bin/go"; do
        if [ -x "$go" ] && fits "$go"; then
            echo "$go"
            exit 0
        fi
    done
}
install_any() {
    command -v go >/dev/null && return
    local sudo=
    [ "$(id -u)" = 0 ] || sudo=sudo
    echo "go.sh: installing golang-go" >&2
    command -v apt-get >/dev/null || { echo "go.sh: no go on \$PATH, and no apt-get here: install Go 1.23 or later" >&2; exit 1; }
    $sudo apt-get update -qq >&2 || true
    DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends golang-go >/dev/null || { echo "go.sh: apt-get could not install golang-go" >&2; exit 1; }
}
# Go itself is a module of the proxy, checked against its sums like any other; its programs are not marked as such there.
fetch_newer() {
    local work
    work=$(mktemp -d "$cache/go.XXXXXX")
    trap 'chmod -R u+w "$work"; rm -rf "$work"' RETURN
    echo "go.sh: $(go version) is too old for $module: fetching go $newer" >&2
    (cd "$work" && GOFLAGS=-mod=mod GOTOOLCHAIN=local GOPATH=$work/path GOCACHE=$work/cache go mod download "golang.org/toolchain@v0.0.1-go$newer.linux-$arch") >&2 || return 1
    mv "$work/path/pkg/mod/golang.org/toolchain@v0.0.1-go$newer.linux-$arch" "$work/go"
    chmod -R u+w "$work/go"
    chmod a+x "$work"/go/bin/* "$work"/go/pkg/tool/*/*
    rm -rf "$got"
    mv "$work/go" "$got"
}

mkdir -p "$cache"
exec 9>"$cache/.go.lock"
look
flock 9
look
install_any
look
fetch_newer || { echo "go.sh: go $newer could not be fetched: install Go 1.23 or later" >&2; exit 1; }
look
echo "go.sh: no Go can build $module" >&2
exit 1
