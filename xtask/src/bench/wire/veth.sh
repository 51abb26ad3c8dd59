# Two network namespaces with a veth between, each end behind a token bucket of the kernel.
# Parameters: MTU, rate and queue as tc writes them, port, limit in seconds, server, client (both
# shell commands). The client finds the server's namespace in $SERVER_NS. Prints what the client
# prints, and ends with its code; 124 when the limit is over.
mtu=$1 rate=$2 queue=$3 port=$4 limit=$5 server=$6 client=$7
SERVER_NS=towpath-wire-$$-a CLIENT_NS=towpath-wire-$$-b
export SERVER_NS CLIENT_NS
end() {
    trap - EXIT
    for ns in $CLIENT_NS $SERVER_NS; do
        pids=$(ip netns pids $ns 2>/dev/null)
        [ -z "$pids" ] || kill -KILL $pids 2>/dev/null
        ip netns delete $ns 2>/dev/null
    done
}
trap end EXIT
trap 'exit 130' INT TERM HUP
for ns in $SERVER_NS $CLIENT_NS; do
    ip netns add $ns || exit 125
    ip -n $ns link set lo up
done
ip link add eth0 netns $SERVER_NS mtu $mtu type veth peer name eth0 netns $CLIENT_NS mtu $mtu ||
    exit 125
# A bucket that holds more than a packet of the largest MTU, and less than a run of them.
for side in "$SERVER_NS 10.0.0.1" "$CLIENT_NS 10.0.0.2"; do
    set -- $side
    ip -n $1 address add $2/24 dev eth0
    ip -n $1 link set eth0 up
    tc -n $1 qdisc add dev eth0 root tbf rate $rate burst 12000 limit $queue || exit 125
done
ip netns exec $SERVER_NS sh -c "$server" >/dev/null &
tries=0
until ip netns exec $SERVER_NS ss -Hltn "sport = :$port" | grep -q .; do
    tries=$((tries + 1))
    [ $tries -lt 100 ] || exit 125
    sleep 0.1
done
timeout -k 2 "$limit" ip netns exec $CLIENT_NS sh -c "$client" &
wait $!
code=$?
end
exit $code
