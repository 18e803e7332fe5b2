#!/bin/bash
# Makes the kernel and the initial root of the guest, once, and prints the folder they are in: image.sh. They are kept outside the
# source tree, in TUTTI_RDMA_VM_CACHE or the user's cache folder, one folder per kernel version and recipe (this file, the list of
# modules, init). Exit 77 with the reason on stderr: they cannot be had here.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${TUTTI_RDMA_VM_CACHE:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/tutti/rdma-vm}

skip() { echo "$*" >&2; exit 77; }

# What the guest loads; what they need in turn is found out.
modules=(virtio_pci 9pnet_virtio 9p overlay veth virtio_net sch_netem crc32_generic crc32c_generic rdma_rxe ib_uverbs rdma_ucm)

# The package that Debian's own meta package stands for, without asking the network. Empty: apt does not know it.
kernel_package() { apt-cache depends linux-image-amd64 2>/dev/null | awk '/Depends: linux-image-/ { print $2; exit }'; }

# modules.dep names each module's needs in full: "a.ko: b.ko c.ko", b after c.
copy_modules() { # from, to: folders with lib/modules/VERSION
  local from=$1/lib/modules/$3 to=$2/lib/modules/$3 name file
  busybox depmod -b "$1" "$3"
  for name in "${modules[@]}"; do
    for file in $(grep -E "(^|/)${name//_/[-_]}\.ko:" "$from/modules.dep" | tr -d :); do
      mkdir -p "$to/$(dirname "$file")"
      cp "$from/$file" "$to/$file"
    done
  done
  for file in modules.builtin modules.order; do [ ! -e "$from/$file" ] || cp "$from/$file" "$to/"; done
  busybox depmod -b "$2" "$3"
}

# In $work: downloads, unpacks, packs; the result is work/image.
make_image() { # package
  local version=${1#linux-image-} root=root
  cd "$work"
  timeout 300 apt-get -q download "$1" >download.log 2>&1 || return 1
  mkdir -p all image $root/{bin,sbin,proc,sys,dev,host,own,new}
  dpkg-deb --fsys-tarfile "$1"_*.deb |
    tar x -C all --wildcards "./boot/vmlinuz-$version" "./lib/modules/$version/modules.*" "./lib/modules/$version/kernel/*"
  mv "all/boot/vmlinuz-$version" image/vmlinuz
  copy_modules all $root "$version"
  printf '%s\n' "${modules[@]}" >$root/modules
  cp "$(command -v busybox)" $root/bin/busybox
  ln -s busybox $root/bin/sh
  cp "$here/init" $root/init
  chmod +x $root/init
  (cd $root && find . | cpio -o -H newc --quiet) | gzip -1 >image/initrd
}

[ "$(uname -m)" = x86_64 ] || skip "the guest is x86_64, this is $(uname -m)"
for tool in apt-cache dpkg-deb busybox cpio; do
  command -v $tool >/dev/null || skip "$tool is not installed (./dev deps --all)"
done
mkdir -p "$cache" 2>/dev/null || skip "cannot write to $cache (TUTTI_RDMA_VM_CACHE)"
recipe=$(cat "$here/image.sh" "$here/init" | sha256sum | cut -c1-12)

exec 9>"$cache/lock" # whoever comes second finds it made
flock -w 600 9 || skip "somebody holds $cache/lock"
package=$(kernel_package)
if [ -z "$package" ] || [ ! -d "$cache/${package#linux-image-}-$recipe" ]; then
  why=""
  work=$(mktemp -d "$cache/new-XXXXXX")
  trap 'rm -rf "$work"' EXIT
  if [ -n "$package" ] && (set -e; make_image "$package"); then
    mv "$work/image" "$cache/${package#linux-image-}-$recipe"
  else # an older one by the same recipe will do
    [ -z "$package" ] || why="cannot download and unpack $package: $(tail -n 1 "$work/download.log" 2>/dev/null)"
    package=$(find "$cache" -maxdepth 1 -name "*-$recipe" -printf 'linux-image-%f\n' | sed "s/-$recipe\$//" | sort -V | tail -n 1)
    [ -n "$package" ] || skip "no kernel: ${why:-apt knows no package linux-image-amd64}"
  fi
fi
image=$cache/${package#linux-image-}-$recipe
touch "$image"
find "$cache" -mindepth 1 -maxdepth 1 -type d -mtime +60 -exec rm -rf {} + # of recipes and kernels that nobody uses any more
echo "$image"
