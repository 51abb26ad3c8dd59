#!/usr/bin/env bash
# usage: initramfs.sh DIR FILE=PLACE...
# Packs DIR/initramfs: busybox, the modules, iproute2, libibverbs with its software drivers, the
# guest's scripts, and the files, each with the libraries that it is linked to. A FILE without a
# slash is a command of the host.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
dir=${1:?usage: initramfs.sh DIR FILE=PLACE...}
shift
release=$(basename "$dir"/kernel/boot/vmlinuz-*)
release=${release#vmlinuz-}
root=$(mktemp -d)
# It becomes the guest's root folder, which is for everyone there.
chmod 755 "$root"
trap 'rm -rf "$root"' EXIT
mkdir -p "$root"/{bin,dev,etc/libibverbs.d,modules,out,proc,run,sys,tests,tmp}
mkdir -p "$root"/usr/{bin,sbin,lib,lib64}
# As on every system of today: a library is found under either name.
ln -s usr/lib usr/lib64 "$root/"

cp "$(command -v busybox)" "$root/bin/busybox"

# crc32_generic is asked for by name at run time, so no dependency of rdma_rxe tells of it.
wanted="crc32_generic ib_uverbs rdma_rxe veth sch_netem sch_prio cls_u32 virtio_pci 9pnet_virtio 9p"
number=100
unpacked() {
    case $1 in
    *.xz) xz -dc "$1" ;;
    *) cat "$1" ;;
    esac
}
files_of() {
    # One that is built in, or that this kernel does not have, is no module to load.
    modprobe -d "$dir/kernel" -S "$release" --show-depends "$1" 2>/dev/null || true
}
for module in $wanted; do
    files_of "$module"
done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' | while read -r file; do
    unpacked "$file" >"$root/modules/$number-$(basename "${file%.xz}")"
    number=$((number + 1))
done
# What a step may load, where the processor claims the instruction.
files_of crc32_pclmul | while read -r _ file _; do
    unpacked "$file" >"$root/usr/lib/crc32-pclmul.ko"
done

add() { # FILE TARGET: with the libraries that it is linked to
    # Debugging information is most of a test program, and unpacking it takes the guest seconds.
    strip --strip-debug -o "$root$2" "$1" 2>/dev/null || cp -L "$1" "$root$2"
    ldd "$1" 2>/dev/null | grep -oE '/[^ ]+' | while read -r library; do
        mkdir -p "$root$(dirname "$library")"
        [ -e "$root$library" ] || cp -L "$library" "$root$library"
    done || true
}
export PATH=$PATH:/usr/sbin:/sbin
for pair in {ip,tc,rdma,tcpdump}=/usr/bin/ "$@"; do
    file=${pair%%=*} place=${pair#*=}
    case $place in */) place=$place$file ;; esac
    program=$(command -v "$file") || { echo "there is no $file here" >&2; exit 1; }
    add "$program" "$place"
done
drivers=$(dirname "$(ldconfig -p | awk '/libibverbs\.so\.1 /{ print $NF; exit }')")/libibverbs
mkdir -p "$root$drivers"
cp -L "$drivers"/librxe-*.so "$root$drivers/"
cp /etc/libibverbs.d/rxe.driver "$root/etc/libibverbs.d/"
# netem reads its distributions from here.
tc_data=$(dirname "$(ldconfig -p | awk '/libc\.so\.6 /{ print $NF; exit }')")/../tc
[ ! -d "$tc_data" ] || { mkdir -p "$root/usr/lib/tc"; cp "$tc_data"/* "$root/usr/lib/tc/"; }

# Made for the kind of machine that it runs on; a linker of Rust's is a compiler of C.
cc -O2 -Wall -Werror -shared -fPIC -o "$root/usr/lib/yield.so" "$here/yield.c"

# The calls of a NIC's driver, under the name that libibverbs would load that by.
cc -O2 -Wall -Werror -shared -fPIC -Wl,-soname,libmlx5.so.1 -o "$root/usr/lib/made-up-mlx5.so" \
    "$here/mlx5.c"

printf 'root:x:0:0:root:/:/bin/sh\n' >"$root/etc/passwd"
printf 'root:x:0:\n' >"$root/etc/group"
printf '127.0.0.1 localhost\n' >"$root/etc/hosts"
cp -r "$here/guest/." "$root/"
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc --quiet | zstd -q -3 -T0) >"$dir/initramfs"
