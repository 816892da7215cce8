#!/bin/bash
# One app's life, from the first manifest to its removal.
#
#     scripts/demo.sh target/debug/podherd
#
# etcd, Podman and podherd run in namespaces of the demo's own (processes, mounts,
# network), with all state in ./.demo: nothing of the host is changed, and
# everything ends with the script, however it ends.
set -euo pipefail
cd "$(dirname "$0")/.."

podherd=$(realpath "${1:-target/debug/podherd}")
state=$PWD/.demo

if [ -z "${DEMO_INSIDE:-}" ]; then
    if [ "$(id -u)" != 0 ]; then
        echo "demo: making namespaces needs root, so sudo is used"
        exec sudo env "PATH=$PATH" "$0" "${1:-target/debug/podherd}"
    fi
    rm -rf "$state"
    mkdir "$state"
    # Killing unshare ends all that runs inside, and so does its parent's end.
    DEMO_INSIDE=yes setpriv --pdeathsig KILL unshare --mount --net --pid --fork \
        --kill-child=KILL --mount-proc --propagation private -- \
        catatonit -- "$0" "${1:-target/debug/podherd}" &
    inside=$!
    trap 'kill -KILL "$inside"' INT TERM HUP
    code=0
    wait "$inside" || code=$?
    wait "$inside" 2>/dev/null || true
    for container in "$state"/podman/root/*-containers/*/; do
        rmdir /sys/fs/cgroup{,/*}/libpod_parent/*"$(basename "$container")" 2>/dev/null || true
    done
    if [ "$code" = 0 ]; then
        rm -rf "$state"
    else
        echo "demo: failed; the logs are in $state"
    fi
    exit "$code"
fi

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
show() { printf '$ %s\n' "$*"; }

mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /dev/shm
busybox ip link set lo up

export ETCDCTL_API=3 ETCDCTL_ENDPOINTS=http://127.0.0.1:2379
export PODMAN_IGNORE_CGROUPSV1_WARNING=1 CONTAINERS_CONF=$state/containers.conf
socket=/run/podman.sock

# What this host's kernel doesn't allow is left out, for the demo's Podman only.
{
    printf '[network]\nnetwork_backend = "netavark"\nnetwork_config_dir = "%s"\n' "$state/networks"
    printf '[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
    [ -e /sys/fs/cgroup/cgroup.controllers ] || printf 'runtime = "runc"\n'
    printf '[containers]\nlog_driver = "k8s-file"\n'
    capabilities=0x$(sed -n 's/^CapEff:[[:space:]]*//p' /proc/self/status)
    ((capabilities >> 24 & 1)) ||
        printf 'default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\n'
} >"$CONTAINERS_CONF"
podman() {
    command podman --storage-driver vfs --root "$state/podman/root" --runroot /run/podman "$@"
}

# wait_for SECONDS WHAT COMMAND...: until the command succeeds
wait_for() {
    local limit=$((SECONDS + $1)) what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        if ((SECONDS >= limit)); then
            echo "demo: $what: not in time"
            return 1
        fi
        sleep 0.1
    done
}

# put VERSION: the manifest with that version of the image; sets $revision
put() {
    show "etcdctl put /podherd/apps/blog < manifests/blog.yaml   # demo-web:$1"
    revision=$(sed "s#demo-web:[0-9]*#demo-web:$1#" manifests/blog.yaml |
        etcdctl put -w json /podherd/apps/blog | jq .header.revision)
}

# ready: the status speaks of the manifest last put, and says Ready
ready() {
    etcdctl get --print-value-only /podherd/status/blog | jq --argjson revision "$revision" '
        .observedRevision >= $revision
        and any(.conditions[]; .type == "Ready" and .status == "True")' |
        grep -q true
}

request() {
    show "curl --header 'Host: $host' http://127.0.0.1:8080/"
    curl --silent --show-error --fail --max-time 5 --header "Host: $host" http://127.0.0.1:8080/
}

steps() {
    etcdctl get --prefix --print-value-only /podherd/state/operations/blog/ |
        jq -rs 'map(select(.id)) | last | .request.verb as $verb
            | "\($verb): " + ([.steps[].kind] | join(" → ")) + " → \(.outcome.result)"'
}

gone() {
    [ -z "$(podman ps --all --quiet --filter "label=$label")" ] &&
        etcdctl get --prefix --keys-only /podherd/state/retained/ | grep -q .
}

say "An etcd and a Podman service of the demo's own"
etcd --data-dir "$state/etcd" --log-level warn >"$state/etcd.log" 2>&1 &
podman system service --time=0 "unix://$socket" >"$state/podman.log" 2>&1 &
wait_for 20 etcd etcdctl endpoint health
wait_for 20 Podman curl --silent --fail --unix-socket "$socket" http://d/v4.0.0/libpod/_ping

say "A small image in two versions, from busybox"
image=$state/image
mkdir -p "$image"/{bin,data,dev,etc,proc,sys,tmp,www/1,www/2}
cp "$(command -v busybox)" "$image/bin/busybox"
for applet in sh httpd sleep; do ln -s busybox "$image/bin/$applet"; done
install -m 755 scripts/demo-web.sh "$image/bin/demo"
for version in 1 2; do
    echo "demo-web version $version" >"$image/www/$version/index.html"
    echo ok >"$image/www/$version/healthz"
done
tar -C "$image" -cf "$state/image.tar" .
for version in 1 2; do
    podman import --quiet --change "CMD [\"/bin/demo\",\"web\",\"$version\"]" \
        "$state/image.tar" "localhost/demo-web:$version" >/dev/null
    echo "localhost/demo-web:$version"
done

say "podherd: controller and proxy in one process"
show "podherd run --etcd $ETCDCTL_ENDPOINTS --podman unix://$socket --http 127.0.0.1:8080"
"$podherd" run --etcd "$ETCDCTL_ENDPOINTS" --podman "unix://$socket" --node demo \
    --state-dir "$state/podherd" --http 127.0.0.1:8080 --listen 127.0.0.1:9090 \
    >"$state/podherd.log" 2>&1 &
controller=$!
wait_for 20 podherd curl --silent --fail http://127.0.0.1:9090/readyz
host=$(sed -n 's/^ *- {\{0,1\}host: *\([^,} ]*\).*/\1/p' manifests/blog.yaml | head -n 1)
label=io.podherd.app=blog

say "The manifest goes into etcd; wait for Ready at its revision"
put 1
wait_for 30 "blog ready" ready
request
steps

say "An update: version 2 replaces version 1, one step after the other"
put 2
wait_for 30 "blog ready again" ready
request
steps

say "The key is deleted: traffic and containers go, volumes stay"
show "etcdctl del /podherd/apps/blog"
etcdctl del /podherd/apps/blog >/dev/null
wait_for 30 "blog removed" gone
steps
echo "retained: $(etcdctl get --prefix --print-value-only /podherd/state/retained/ |
    jq -r '(.volumes + .images) | join(", ")')"

say "SIGTERM: podherd leaves; the rest of the demo ends with it"
kill -TERM "$controller"
wait "$controller"
echo done
