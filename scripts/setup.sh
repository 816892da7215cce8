#!/bin/sh
# Installs the Debian packages that building, testing and the demo need, and that
# are missing. No service is started or enabled by it.
set -eu

packages="ca-certificates gcc libc6-dev protobuf-compiler libprotobuf-dev
    podman runc crun conmon netavark aardvark-dns iptables catatonit uidmap slirp4netns
    etcd-server etcd-client busybox-static curl jq"

command -v cargo >/dev/null || {
    echo "setup: no cargo here; install Rust 1.90 or newer from https://rustup.rs" >&2
    exit 1
}
command -v dpkg-query >/dev/null || {
    echo "setup: not a Debian; needed are the programs of these packages:" $packages >&2
    exit 1
}

missing=
for package in $packages; do
    status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$status" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

echo "setup: installing$missing"
sudo=
[ "$(id -u)" = 0 ] || sudo=sudo

enabled() {
    if [ -d /run/systemd/system ]; then
        systemctl list-unit-files --state=enabled --no-legend | cut -d ' ' -f 1 | sort
    fi
}

# This file tells package scripts not to start services; an existing one is kept.
policy=/usr/sbin/policy-rc.d
before=$(mktemp)
after=$(mktemp)
ours=
finish() {
    rm -f "$before" "$after"
    [ -z "$ours" ] || $sudo rm -f "$policy"
}
trap finish EXIT
trap 'exit 1' INT TERM
enabled >"$before"
if [ ! -e "$policy" ]; then
    ours=yes
    printf '#!/bin/sh\nexit 101\n' | $sudo tee "$policy" >/dev/null
    $sudo chmod 755 "$policy"
fi

$sudo apt-get update -qq
# shellcheck disable=SC2086
$sudo env DEBIAN_FRONTEND=noninteractive \
    apt-get install -qq -y --no-install-recommends $missing >/dev/null

enabled >"$after"
new=$(comm -13 "$before" "$after")
# shellcheck disable=SC2086
[ -z "$new" ] || $sudo systemctl disable --quiet $new
