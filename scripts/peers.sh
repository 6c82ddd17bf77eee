#!/usr/bin/env bash
# Unpacks BIRD 2, FRR and GoBGP from Debian packages for the lab and the tests. Nothing is installed on the machine and
# no service is started: the files go to CACHE/margay/peers/NAME, wrappers that find their libraries to CACHE/margay/bin.
# Idempotent; a second run does nothing.
set -euo pipefail
cache=${XDG_CACHE_HOME:-$HOME/.cache}/margay
peers=$cache/peers
bin=$cache/bin
arch_lib=/usr/lib/$(uname -m)-linux-gnu

say() { echo "peers: $*" >&2; }
die() { echo "peers: error: $*" >&2; exit 1; }

# Library files the programs may lack, and the package that has each.
declare -A package_of=(
    [libaudit.so.1]=libaudit1 [libcap-ng.so.0]=libcap-ng0 [libcap.so.2]=libcap2 [libcares.so.2]=libc-ares2
    [libcom_err.so.2]=libcom-err2 [libcrypt.so.1]=libcrypt1 [libgcrypt.so.20]=libgcrypt20
    [libgpg-error.so.0]=libgpg-error0 [libgssapi_krb5.so.2]=libgssapi-krb5-2 [libjson-c.so.5]=libjson-c5
    [libk5crypto.so.3]=libk5crypto3 [libkeyutils.so.1]=libkeyutils1 [libkrb5.so.3]=libkrb5-3
    [libkrb5support.so.0]=libkrb5support0 [libpam.so.0]=libpam0g [libpcre2-8.so.0]=libpcre2-8-0
    [libreadline.so.8]=libreadline8 [libssh-gcrypt.so.4]=libssh-gcrypt-4 [libssl.so.3]=libssl3
    [libcrypto.so.3]=libssl3 [libtinfo.so.6]=libtinfo6 [libyang.so.2]=libyang2
)

updated=
fetch() { # fetch DIR PACKAGE: unpacks a package into DIR
    local work
    work=$(mktemp -d "$peers/.fetch.XXXXXX")
    if ! (cd "$work" && apt-get download -qq -o APT::Sandbox::User=root "$2" >/dev/null 2>&1); then
        [ -z "$updated" ] || { rm -rf "$work"; die "apt-get cannot download $2"; }
        updated=yes
        apt-get update -qq >/dev/null || { rm -rf "$work"; die "apt-get update failed"; }
        (cd "$work" && apt-get download -qq -o APT::Sandbox::User=root "$2" >/dev/null) ||
            { rm -rf "$work"; die "apt-get cannot download $2"; }
    fi
    dpkg -x "$work"/*.deb "$1"
    rm -rf "$work"
}

library_path() { echo "$1$arch_lib/frr:$1$arch_lib:$1/lib/$(uname -m)-linux-gnu"; }

missing() { # missing DIR FILE...: library names the files need and nobody has
    local dir=$1
    shift
    LD_LIBRARY_PATH=$(library_path "$dir") ldd "$@" 2>/dev/null | awk '/not found/ {print $1}' | sort -u
}

wrap() { # wrap DIR NAME FILE
    cat >"$bin/.$2.$$" <<WRAPPER
#!/bin/sh
LD_LIBRARY_PATH=$(library_path "$1")\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH} exec "$1$3" "\$@"
WRAPPER
    chmod 755 "$bin/.$2.$$"
    mv "$bin/.$2.$$" "$bin/$2"
}

peer() { # peer NAME PACKAGES -- FILE...
    local name=$1 dir=$peers/$1 packages=() files=() soname round
    shift
    while [ "$1" != -- ]; do packages+=("$1"); shift; done
    shift
    files=("$@")
    if [ ! -e "$dir/.complete" ]; then
        say "unpacking ${packages[*]}"
        rm -rf "$dir"
        mkdir -p "$dir"
        for package in "${packages[@]}"; do fetch "$dir" "$package"; done
        for round in 1 2 3 4 5 6 7 8; do
            [ -n "$(missing "$dir" "${files[@]/#/$dir}")" ] || break
            for soname in $(missing "$dir" "${files[@]/#/$dir}"); do
                [ -n "${package_of[$soname]:-}" ] || die "$name needs $soname and no package is known to have it"
                fetch "$dir" "${package_of[$soname]}"
            done
        done
        soname=$(missing "$dir" "${files[@]/#/$dir}")
        [ -z "$soname" ] || die "$name still lacks $soname after $round rounds"
        touch "$dir/.complete"
    fi
    for file in "${files[@]}"; do wrap "$dir" "$(basename "$file")" "$file"; done
}

command -v apt-get >/dev/null && command -v dpkg >/dev/null || die "needs apt-get and dpkg (Debian or Ubuntu)"
mkdir -p "$peers" "$bin"
exec 9>"$peers/.lock"
flock 9
peer bird bird2 -- /usr/sbin/bird /usr/sbin/birdc
peer frr frr -- /usr/lib/frr/zebra /usr/lib/frr/bgpd /usr/bin/vtysh
peer gobgp gobgpd -- /usr/bin/gobgpd /usr/bin/gobgp
