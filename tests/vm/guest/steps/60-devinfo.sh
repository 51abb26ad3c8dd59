# What the tools say of the devices.
# bin: tow_devinfo
devinfo() {
    tow_devinfo -v
    tow_devinfo --json >/out/devinfo.json
    check all-devices-are-listed test "$(tow_devinfo -l | xargs)" = "roce mem rxe0 rxe1"
    check uc-carries-links-on-rxe says 'carrier: *UC'
    check rxe-has-no-clock says 'clock: *software'
    check rxe-has-a-queue-for-each-path says 'receive queues: *per path'
    check its-source-ports-are-flow-labels says 'source port: *16384, fixed for each queue pair'
    check its-mtu-is-that-of-the-cable says 'active_mtu: *4096'
    check the-json-says-the-same grep -q '"clock": "software"' /out/devinfo.json
    ip link set veth0 down
    check a-port-that-is-down-says-so says 'cannot be used: .*it is down'
    ip link set veth0 up
    check what-is-not-there-is-refused refused
}
says() { tow_devinfo -d rxe0 | grep "$1"; }
refused() { ! tow_devinfo -d none; }
checks devinfo devinfo
