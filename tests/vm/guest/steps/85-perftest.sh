# perftest and Towpath's tools in turn on the same two devices, over a good cable and a bad one.
# `cargo xtask vm-test` makes the table of it.
# bin: tow_send_bw tow_send_lat tow_write_bw
# command: ib_send_bw ib_send_lat ib_write_bw
# package: perftest
# suite: full

. /compare.sh
FIGURES=/out/perftest.tsv
# How long all of it may take. It runs in rounds, so that what drifts drifts for all.
COMPARE_SECONDS=$(cat /out/compare_seconds)

# Under loss perftest has an answer on RC alone: its WRITEs on UC are not missed by anybody, and
# its SENDs are waited for for ever. Ours have every byte checked.
compare_long() {
    measure perftest write_bw 1048576 RC both ib_write_bw -F -x 1 -n "$1"
    measure reliable write_bw 1048576 UC both tow_write_bw --data_validation -n "$1"
}

one_round() {
    loss=0
    for type in RC UC; do
        compare write_bw 65536 $type 500
        compare send_bw 65536 $type 500
        compare send_lat 64 $type 200
    done
    measure unchecked send_bw 65536 UC both tow_send_bw --no-payload-crc -n 500
    compare_long 32
    loss=1
    cable loss 1%
    compare_long 32
    cable
}
# As many as fit, if they take as long as those before.
rounds() {
    round=0 spent=0 first=$(uptime_s)
    while [ "$round" = 0 ] || [ $((spent + spent / round)) -le "$COMPARE_SECONDS" ]; do
        round=$((round + 1))
        one_round
        spent=$(($(uptime_s) - first))
    done
}
checks perftest rounds
