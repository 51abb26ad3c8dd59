# Storage over rxe: the demo, and a chunk server with an RDMA NIC whose clients have none.
# bin: towpath towpath-chunkserver

# The server in a second process, on the other device.
demo() { # LOSS
    report=/out/demo-loss-$1.json
    timeout "$PART_SECONDS" towpath demo -d rxe0 --server-device rxe1 --size 16M \
        --latency-requests 100 --json >"$report" || return 1
    cat "$report"
    grep -q '"verified":true' "$report" || return 1
    # That packets were lost shows.
    [ "$1" = 0 ] || grep -q '"chunks_retransmitted":[1-9]' "$report"
}
demos() {
    check "demo-without-loss" demo 0
    for loss in 0.1 1 5; do
        cable loss "$loss%"
        check "demo-at-$loss%-loss" demo "$loss"
    done
    cable
}

# Whoever is in there has no device but the userspace NIC.
in_peer="nsenter --net=/run/netns/peer"

# server ARGUMENTS...: until `server_end`; `where` is where it runs, `client` its client's program.
server() {
    mkdir -p /tmp/store
    $where towpath-chunkserver --data-dir /tmp/store --capacity-bytes 1GiB "$@" >/tmp/ready 2>/tmp/server.log &
    server=$!
    for _ in $(seq 1200); do
        ! grep -q listening /tmp/ready || return 0
        usleep 100000
    done
    cat /tmp/server.log
    return 1
}
server_end() {
    kill "$server"
    wait "$server"
    ended=$?
    cat /tmp/server.log
    return "$ended"
}

# A file to the server and back; the words are those of the client.
there_and_back() {
    chunk=$(timeout "$PART_SECONDS" $client put /tmp/file "$@") || return 1
    rm -f /tmp/copy
    timeout "$PART_SECONDS" $client get "$chunk" /tmp/copy "$@" && cmp /tmp/file /tmp/copy
}
both() { # NAME WORDS...
    name=$1
    shift
    check "$name" there_and_back "$@"
    for loss in 0.1 1 5; do
        peer_cable loss "$loss%"
        check "$name-at-$loss%-loss" there_and_back "$@"
    done
    peer_cable
}

# What a server and its clients hold of a device goes with them, however they end.
held() { rdma resource show qp link rxe2 | grep -c towpath; }
nothing_held() {
    for _ in $(seq 600); do
        [ "$(held)" != 0 ] || return 0
        usleep 100000
    done
    rdma resource show qp link rxe2
    return 1
}
killed_client() {
    peer_cable rate 100mbit
    towpath put -d rxe2 /tmp/large 10.0.1.2 &
    client_pid=$!
    sleep 2
    echo "$(held) queue pairs are held"
    kill -9 "$client_pid" || return 1
    wait "$client_pid"
    peer_cable
    nothing_held && there_and_back -d rxe2 10.0.1.2
}
killed_server() {
    peer_cable rate 100mbit
    timeout "$PART_SECONDS" $client put --foreign-peers --patience 1 /tmp/large 10.0.1.1 &
    client_pid=$!
    sleep 2
    echo "$(held) queue pairs are held"
    kill -9 "$server"
    wait "$server"
    wait "$client_pid"
    ended=$?
    peer_cable
    echo "the client ended with $ended"
    # Not known whether done: the server went away.
    [ "$ended" = 6 ] && nothing_held
}

chunks() {
    head -c 8000001 /dev/urandom >/tmp/file
    # Some seconds on a slow cable.
    head -c 100000000 /dev/zero >/tmp/large
    peer_up
    capture storage -i veth2 -s 128 -c 50000
    where="" client="$in_peer towpath"
    check server-on-rxe server --device rxe2 --listen 10.0.1.1:7400
    both client-without-rdma-nic --foreign-peers 10.0.1.1
    capture_end
    check a-killed-server-is-told killed_server
    rm -rf /tmp/store
    where=$in_peer client=towpath
    check server-without-rdma-nic server --device-foreign-peers true --listen 10.0.1.2:7400
    both client-on-rxe -d rxe2 10.0.1.2
    check a-killed-client-leaves-nothing killed_client
    check the-server-stops-cleanly server_end
    peer_down
    rm -rf /tmp/store /tmp/file /tmp/large /tmp/copy
}

checks demo demos
checks storage chunks
