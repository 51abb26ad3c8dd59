#!/usr/bin/env bash
# usage: boot.sh DIR SECONDS [counted]
# Boots DIR/kernel with DIR/initramfs under emulation; the guest does what DIR/out/plan says, writes
# its results to DIR/out and powers off. Its console goes to our standard output. Where it is
# counted, a nanosecond of the guest is an instruction of its one processor, whatever the host does.
set -euo pipefail
dir=${1:?usage: boot.sh DIR SECONDS}
seconds=${2:?usage: boot.sh DIR SECONDS}
. "$(dirname "$0")/qemu.sh"
qemu=$(qemu_of "$dir")
# The guest takes its time from the counter of cycles, as real machines do: under emulation other
# clocks take a hundred times longer to read. It finds the rate of the counter badly on a busy host
# (by a factor), so it is told, where we know: what is a guest itself has that as its MHz.
clock=$(awk '/^flags/ && / hypervisor / { guest = 1 } /^cpu MHz/ { mhz = $4 } END {
    if (guest) printf "tsc=reliable clocksource=tsc tsc_early_khz=%d", mhz * 1000 }' /proc/cpuinfo)
# What the processor does not claim are instructions that the emulator carries out bit by bit or byte
# by byte, and that programs take for their fastest: docs/vm.md has what they cost. With `fsrm` but
# not `erms` Linux 6.1 hangs as it boots.
cpu=max,-erms,-fsrm,-sse4.2
qemu_is_new "$qemu" || cpu=max,-erms,-fsrm,-pclmulqdq,-vpclmulqdq
# Two processors, so that what only shows on several is seen.
machine=(-accel tcg,thread=multi -smp 2)
if [ "${3:-}" = counted ]; then
    # Every instruction costs the same there, so the processor claims what hardware has, but for
    # one that counts for each byte that it copies.
    cpu=max,-erms,-fsrm
    machine=(-accel tcg,thread=single -smp 1 -icount shift=0,sleep=off -rtc clock=vm)
    clock="tsc=reliable clocksource=tsc tsc_early_khz=1000000"
fi
boot() {
    # The emulator makes the file that is its console non-blocking, and that is whatever we were
    # given: through a pipe of its own nobody else's lines are lost where a reader is slow.
    timeout -k 5 "$seconds" "$qemu" "${machine[@]}" -cpu "$cpu" -m 1536 \
        -nographic -nodefaults -no-reboot -serial stdio -monitor none \
        -kernel "$dir"/kernel/boot/vmlinuz-* -initrd "$dir/initramfs" \
        -virtfs "local,path=$dir/out,mount_tag=out,security_model=none" \
        -append "console=ttyS0 panic=-1 quiet mitigations=off $clock" </dev/null | cat
}

# The guest asks for another try where its clock came up wrong.
for _ in $(seq 10); do
    rm -f "$dir/out/again"
    boot
    [ -e "$dir/out/again" ] || exit 0
done
echo "the guest's clock came up wrong ten times: this host is too busy" >&2
exit 1
