# Towpath's NIC in userspace and rxe, each with the other: over a good cable and bad ones.
# test: device_contract
# test: interop
# test: link_contract

# The NIC's sockets live in a network namespace of their own: rxe has UDP port 4791 of this one.
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

peer_up
tests interop-contract device_contract nic_to_kernel:: kernel_to_nic::
tests interop-link-contract link_contract nic_and_kernel::
tests interop interop clean_cable
peer_cable loss 1%
tests interop-loss-1 interop bad_cable
peer_cable delay 1ms reorder 1% duplicate 1%
tests interop-disorder interop bad_cable::links
peer_cable
peer_down
