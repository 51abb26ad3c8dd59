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
    check a-drivers-call-for-ports-is-found-and-tried live_ports
    tow_devinfo --serve 10.0.0.2 -d rxe1 >/tmp/serve.log &
    serving=$!
    for _ in $(seq 100); do
        ! grep -q serving /tmp/serve.log || break
        usleep 100000
    done
    check a-check-of-two-devices-works two_devices
    kill "$serving"
    cat /out/check.json
    for row in uc rc tcp paths queue-pair-again write-read atomics; do
        check "$row-works" is "$row" works
    done
    check a-port-of-a-running-queue-pair-is-kept is port-live 'does not'
    ip link set veth0 down
    check a-port-that-is-down-says-so says 'cannot be used: .*it is down'
    ip link set veth0 up
    check what-is-not-there-is-refused refused
}
says() { tow_devinfo -d rxe0 | grep "$1"; }
is() { grep -A2 "\"id\": \"$1\"" /out/check.json | grep "\"status\": \"$2\""; }
two_devices() { tow_devinfo --check 10.0.0.2 -d rxe0 --json >/out/check.json; }
live_ports() {
    LD_PRELOAD=/usr/lib/made-up-mlx5.so tow_devinfo -d rxe0 | grep 'source port: *16384, changed while'
}
refused() { ! tow_devinfo -d none; }
checks devinfo devinfo
