#!/bin/sh
# PID 1 of the demo images: /bin/demo MODE SITE
mode=$1
site=$2
port=${PORT:-8080}
[ "$mode" = stubborn ] && trap '' TERM || trap 'exit 0' TERM INT

serve() {
    httpd -f -p "$port" -h "/www/$site" &
}

case $mode in
web)
    serve
    ;;
stubborn)
    serve
    ;;
slow)
    sleep 3 &
    wait $!
    serve
    ;;
echo)
    nc -ll -p "$port" -e /bin/cat &
    ;;
exit)
    echo "leaving at once" >&2
    exit 3
    ;;
writer)
    serve
    read -r id </proc/sys/kernel/random/uuid
    echo "start $id $site" >>/data/log
    while :; do
        echo "tick $id" >>/data/log
        sleep 0.05 &
        wait $!
    done
    ;;
esac
echo "serving $site"
wait
