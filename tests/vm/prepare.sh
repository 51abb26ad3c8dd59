#!/usr/bin/env bash
# usage: prepare.sh DIR PACKAGE...
# Installs what the virtual machine is made of and the packages beside it, and unpacks a stock
# kernel below DIR/kernel without installing it. Debian; does nothing when all of it is there.
set -euo pipefail
dir=${1:?usage: prepare.sh DIR PACKAGE...}
shift

refuse() {
    printf 'vm-test: %s\n' "$@" >&2
    exit 1
}
[ "$(uname -sm)" = "Linux x86_64" ] || refuse "the virtual machine is one of x86-64 Linux"
command -v dpkg-query >/dev/null && command -v apt-get >/dev/null ||
    refuse "this needs Debian: there is no apt here" \
        "docs/vm.md says how to run the same tests on a host with RDMA devices"

# Networks fail now and then, and lists of packages grow old.
again() {
    "$@" && return
    sleep 5
    update || true
    "$@"
}
update() { [ "$(id -u)" != 0 ] || apt-get update -qq; }

packages=(qemu-system-x86 busybox-static kmod cpio zstd xz-utils iproute2 tcpdump
    libibverbs-dev librdmacm-dev ibverbs-providers libclang-dev pkg-config "$@")
missing=()
for package in "${packages[@]}"; do
    state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$state" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
    [ "$(id -u)" = 0 ] || refuse "not installed: ${missing[*]}" \
        "as root: apt-get update && apt-get install --no-install-recommends ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    update || true
    # A machine that has just come up may be at its own updates.
    again apt-get -o DPkg::Lock::Timeout=120 install -y -qq --no-install-recommends "${missing[@]}"
fi

"$(dirname "$0")/emulator.sh" "$dir"

# The plain flavour: the others come without the RDMA drivers, or with another scheduler.
newest() {
    apt-cache search --names-only '^linux-image-[0-9.]+-[0-9]+-amd64$' |
        cut -d' ' -f1 | sort -V | tail -1
}
download() { (cd "$dir/download" && rm -f ./*.deb && apt-get download -qq "$kernel"); }

if ! compgen -G "$dir/kernel/boot/vmlinuz-*" >/dev/null; then
    kernel=${TOWPATH_VM_KERNEL:-$(newest)}
    [ -n "$kernel" ] || { update || true; kernel=$(newest); }
    [ -n "$kernel" ] || refuse "apt knows no linux-image" \
        "as root: apt-get update; or set TOWPATH_VM_KERNEL to the name of a package"
    rm -rf "$dir/download" "$dir/unpacked" "$dir/kernel"
    mkdir -p "$dir/download"
    again download
    dpkg -x "$dir/download"/*.deb "$dir/unpacked"
    release=$(basename "$dir"/unpacked/boot/vmlinuz-*)
    depmod -b "$dir/unpacked" "${release#vmlinuz-}"
    mv "$dir/unpacked" "$dir/kernel"
    rm -rf "$dir/download"
fi
