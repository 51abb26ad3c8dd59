# Sourced: which emulator there is, and what it does well.

qemu_name=qemu-system-x86_64
# Since 8.2 QEMU multiplies without carry by the host's own instruction, before it did so bit by bit.
qemu_new=8.2

qemu_version() {
    "$1" --version 2>/dev/null | sed -n 's/^QEMU emulator version \([0-9.]*\).*/\1/p'
}

qemu_is_new() {
    local version
    version=$(qemu_version "$1")
    [ -n "$version" ] && printf '%s\n' "$qemu_new" "$version" | sort -VC
}

# qemu_of DIR: the one that emulator.sh unpacked, or else the installed one.
qemu_of() {
    local own=$1/emulator/usr/bin/$qemu_name
    if [ -x "$own" ]; then echo "$own"; else echo "$qemu_name"; fi
}
