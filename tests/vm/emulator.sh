#!/usr/bin/env bash
# usage: emulator.sh DIR
# Sees to it that there is an emulator that is quick at checksums. Where the installed one is too
# old for that and Debian has a newer one among the backports of this release, that is unpacked as
# DIR/emulator, not installed; it uses the libraries of the installed one.
set -euo pipefail
dir=${1:?usage: emulator.sh DIR}
. "$(dirname "$0")/qemu.sh"

# Its lists are its own, so that the host's apt is left as it is.
fetch() {
    local release uri keys=/usr/share/keyrings/debian-archive-keyring.gpg new=$dir/emulator.new
    release=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    uri=$(apt-get indextargets --format '$(REPO_URI)' \
        "Codename: $release" 'Component: main' 'Created-By: Packages' | sort -u | head -1)
    [ -n "$release" ] && [ -n "$uri" ] && [ -e "$keys" ] || return 1
    rm -rf "$new"
    mkdir -p "$new"/{lists,cache,packages}
    echo "deb [signed-by=$keys] $uri $release-backports main" >"$new/sources.list"
    local apt=(apt-get -qq -o APT::Sandbox::User= -o Dir::Etc::sourceparts=/dev/null
        -o "Dir::Etc::sourcelist=$new/sources.list" -o "Dir::State::lists=$new/lists"
        -o "Dir::Cache=$new/cache")
    "${apt[@]}" update || return 1
    (cd "$new/packages" && "${apt[@]}" download qemu-system-x86 qemu-system-common \
        qemu-system-data seabios) || return 1
    for package in "$new"/packages/*.deb; do
        dpkg -x "$package" "$new/tree" || return 1
    done
    # Fails where it wants a library that the installed one does not.
    qemu_is_new "$new/tree/usr/bin/$qemu_name" || return 1
    rm -rf "$dir/emulator"
    mv "$new/tree" "$dir/emulator"
    rm -rf "$new"
}

if ! qemu_is_new "$(qemu_of "$dir")"; then
    fetch || echo "vm-test: QEMU $(qemu_version "$qemu_name") it is, for Debian's backports have" \
        "no $qemu_new or later that runs here; checksums take long in the guest" >&2
fi
