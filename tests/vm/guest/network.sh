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
    for end in 0 1; do
        rdma link add "rxe$end" type rxe netdev "veth$end"
    done
}

# netem WORDS...: what happens to packets, both ways; without words nothing.
cable() {
    for end in veth0 veth1; do
        tc qdisc del dev "$end" root 2>/dev/null
        [ $# = 0 ] || tc qdisc add dev "$end" root netem limit 100000 "$@"
    done
}
