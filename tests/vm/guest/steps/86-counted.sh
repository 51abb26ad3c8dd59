# perftest and Towpath's tools in turn where a nanosecond is an instruction: what both ends and the
# driver do for a message, and not how fast. `cargo xtask vm-test` makes tables of it.
# bin: tow_send_bw tow_write_bw
# command: ib_send_bw ib_write_bw chrt
# package: perftest util-linux
# suite: named
# clock: counted

. /compare.sh
loss=0

# One processor has both ends and the driver, so nobody may take it to wait: who finds nothing gives
# way (yield.c), whatever would be fair, and the kernel's thread for packets goes first.
give_way() {
    mount -t debugfs debug /sys/kernel/debug
    echo 1000000000 >/sys/kernel/debug/sched/wakeup_granularity_ns
    for process in /proc/[0-9]*; do
        ! grep -q '^ksoftirqd' "$process/comm" 2>/dev/null || chrt -f -p 1 "${process#/proc/}"
    done
}

# Not the same number of messages in each round, or all of them would come to the same figure. A
# receiver has 512 receives, so on UC nothing is lost while it waits for its turn.
counted_rounds() {
    export LD_PRELOAD=/usr/lib/yield.so
    for round in 1 2 3; do
        count=$((250 + 50 * round))
        for type in RC UC; do
            compare write_bw 65536 $type $count
            compare send_bw 65536 $type $count
        done
        measure unchecked send_bw 65536 UC both tow_send_bw --no-payload-crc -n $count
    done
    unset LD_PRELOAD
}

# The driver checks packets with tables, or as on a processor with carry-less multiplication: it
# asks the kernel for the better one when a device is made.
with_tables() {
    FIGURES=/out/counted.tsv
    counted_rounds
}
with_pclmul() {
    FIGURES=/out/counted-pclmul.tsv
    devices_down
    check pclmul_is_there insmod /usr/lib/crc32-pclmul.ko
    devices_up
    counted_rounds
}
give_way
checks counted with_tables
checks counted-pclmul with_pclmul
