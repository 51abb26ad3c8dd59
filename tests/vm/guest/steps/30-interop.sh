# Towpath's NIC in userspace and rxe, each with the other: over a good cable and bad ones.
# test: device_contract
# test: interop
# test: link_contract

peer_up
tests interop-contract device_contract nic_to_kernel:: kernel_to_nic::
tests interop-link-contract link_contract nic_and_kernel::
tests interop interop clean_cable::every_verb clean_cable::datagrams
tests interop-links interop clean_cable::links
peer_cable loss 1%
tests interop-loss-1 interop bad_cable
tests interop-lane-loss-1 link_contract nic_and_kernel::additions \
    nic_and_kernel::what_is_written nic_and_kernel::words
for loss in 0.1 5; do
    peer_cable loss "$loss%"
    tests "interop-loss-$loss" interop bad_cable::links
done
peer_cable delay 1ms reorder 1% duplicate 1%
tests interop-disorder interop bad_cable::links
peer_cable
peer_down
