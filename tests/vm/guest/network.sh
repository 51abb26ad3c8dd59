# Two rxe devices at the two ends of one cable, and what the cable does to packets.

# The shell of busybox prefers its own ip and tc, which know too little.
ip() { /usr/bin/ip "$@"; }
tc() { /usr/bin/tc "$@"; }

# Both ends live in one network namespace, and yet the packets cross the cable, so that netem and a
# capture see them.
network_up() {
    ip link set lo up
    ip link add veth0 address 02:00:00:00:00:01 mtu 5000 txqueuelen 10000 type veth \
        peer name veth1 address 02:00:00:00:00:02 mtu 5000 txqueuelen 10000
    # The default of 1000 packets per processor is fewer than a window of two endpoints.
    echo 100000 >/proc/sys/net/core/netdev_max_backlog
    for end in 0 1; do
        # The receiving processor, or the kernel reorders over its backlogs.
        echo 1 >"/sys/class/net/veth$end/queues/rx-0/rps_cpus"
        ip addr add "10.0.0.$((end + 1))/24" dev "veth$end"
        ip link set "veth$end" up
    done
    for file in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 >"$file"; done
    for file in /proc/sys/net/ipv4/conf/*/accept_local; do echo 1 >"$file"; done
    devices_up
}
devices_up() {
    for end in 0 1; do
        rdma link add "rxe$end" type rxe netdev "veth$end"
    done
}
devices_down() {
    for end in 0 1; do
        rdma link delete "rxe$end"
    done
}

# netem WORDS...: what happens to packets, both ways; without words nothing.
cable() {
    for end in veth0 veth1; do
        tc qdisc del dev "$end" root 2>/dev/null
        [ $# = 0 ] || tc qdisc add dev "$end" root netem limit 100000 "$@"
    done
}

# swallow PORT: what leaves veth0 from this UDP port is lost; without a port nothing.
swallow() {
    tc qdisc del dev veth0 root 2>/dev/null
    [ $# = 0 ] || {
        tc qdisc add dev veth0 root handle 1: prio bands 3 priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
        tc qdisc add dev veth0 parent 1:1 handle 10: netem limit 100000
        tc qdisc add dev veth0 parent 1:3 handle 30: netem limit 100000 loss 100%
        tc filter add dev veth0 parent 1: protocol ip u32 match ip protocol 17 0xff \
            match ip sport "$1" 0xffff flowid 1:3
    }
}

# Another cable: rxe2 here, and at the other end a network namespace for the userspace NIC, since
# rxe has UDP port 4791 of this one.
peer_up() {
    # Where iproute2 keeps its namespaces.
    mkdir -p /var
    ln -sfn /run /var/run
    ip netns add peer
    ip link add veth2 address 02:00:00:00:00:03 mtu 5000 txqueuelen 10000 type veth \
        peer name peer0 address 02:00:00:00:00:04 mtu 5000 txqueuelen 10000
    for end in veth2 peer0; do
        echo 1 >"/sys/class/net/$end/queues/rx-0/rps_cpus"
    done
    ip link set peer0 netns peer
    ip addr add 10.0.1.1/24 dev veth2
    ip addr add fd00:1::1/64 dev veth2 nodad
    ip -n peer addr add 10.0.1.2/24 dev peer0
    ip -n peer addr add fd00:1::2/64 dev peer0 nodad
    ip link set veth2 up
    ip -n peer link set peer0 up
    # Nobody asks for a neighbour: questions get lost too, and rxe waits for answers a second.
    for far in 10.0.1.2 fd00:1::2; do
        ip neigh replace "$far" lladdr 02:00:00:00:00:04 dev veth2 nud permanent
    done
    for near in 10.0.1.1 fd00:1::1; do
        ip -n peer neigh replace "$near" lladdr 02:00:00:00:00:03 dev peer0 nud permanent
    done
    rdma link add rxe2 type rxe netdev veth2
    export TOWPATH_INTEROP=rxe2,/run/netns/peer,10.0.1.2,fd00:1::2
}
peer_down() {
    rdma link delete rxe2
    ip link delete veth2
    ip netns delete peer
}
# peer_cable WORDS...: as `cable`, between these two.
peer_cable() {
    tc qdisc del dev veth2 root 2>/dev/null
    tc -n peer qdisc del dev peer0 root 2>/dev/null
    [ $# = 0 ] || tc qdisc add dev veth2 root netem limit 100000 "$@"
    [ $# = 0 ] || tc -n peer qdisc add dev peer0 root netem limit 100000 "$@"
}
