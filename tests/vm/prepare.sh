#!/usr/bin/env bash
# usage: prepare.sh DIR
# Installs what the virtual machine is made of, and unpacks a stock kernel below DIR/kernel without
# installing it. Debian; does nothing when all of it is there.
set -euo pipefail
dir=${1:?usage: prepare.sh DIR}

packages=(qemu-system-x86 busybox-static kmod cpio zstd xz-utils iproute2 tcpdump
    libibverbs-dev librdmacm-dev ibverbs-providers libclang-dev pkg-config)
missing=()
for package in "${packages[@]}"; do
    state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$state" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
    if [ "$(id -u)" != 0 ]; then
        echo "not installed: ${missing[*]}" >&2
        echo "as root: apt-get install --no-install-recommends ${missing[*]}" >&2
        exit 1
    fi
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends "${missing[@]}"
fi

if ! compgen -G "$dir/kernel/boot/vmlinuz-*" >/dev/null; then
    # The plain flavour: the others come without the RDMA drivers, or with another scheduler.
    pattern='^linux-image-[0-9.]+-[0-9]+-amd64$'
    kernel=${TOWPATH_VM_KERNEL:-$(apt-cache search --names-only "$pattern" |
        cut -d' ' -f1 | sort -V | tail -1)}
    if [ -z "$kernel" ]; then
        echo "apt knows no linux-image; run apt-get update, or set TOWPATH_VM_KERNEL" >&2
        exit 1
    fi
    rm -rf "$dir/download" "$dir/kernel"
    mkdir -p "$dir/download"
    (cd "$dir/download" && apt-get download -qq "$kernel")
    dpkg -x "$dir/download"/*.deb "$dir/unpacked"
    release=$(basename "$dir"/unpacked/boot/vmlinuz-*)
    depmod -b "$dir/unpacked" "${release#vmlinuz-}"
    mv "$dir/unpacked" "$dir/kernel"
    rm -rf "$dir/download"
fi
