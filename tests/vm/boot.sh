#!/usr/bin/env bash
# usage: boot.sh DIR SECONDS
# Boots DIR/kernel with DIR/initramfs under emulation; the guest does what DIR/out/plan says, writes
# its results to DIR/out and powers off. Its console goes to our standard output.
set -euo pipefail
dir=${1:?usage: boot.sh DIR SECONDS}
seconds=${2:?usage: boot.sh DIR SECONDS}
# Two processors, so that what only shows on several is seen. The clock is the counter of cycles, as
# on real machines: under emulation others take a hundred times longer to read.
exec timeout -k 5 "$seconds" qemu-system-x86_64 \
    -accel tcg,thread=multi -cpu max -smp 2 -m 1536 \
    -nographic -nodefaults -no-reboot -serial stdio -monitor none \
    -kernel "$dir"/kernel/boot/vmlinuz-* -initrd "$dir/initramfs" \
    -virtfs "local,path=$dir/out,mount_tag=out,security_model=none" \
    -append "console=ttyS0 panic=-1 quiet mitigations=off tsc=reliable clocksource=tsc" </dev/null
