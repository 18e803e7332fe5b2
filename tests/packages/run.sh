#!/bin/bash
# run.sh BUILD CPACK CMAKE: see README.md.
set -eu
build=$1 cpack=$2 cmake=$3 here=$(cd "$(dirname "$0")" && pwd)
library=$(sed -n 's/^set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME "\(.*\)")$/\1/p' "$build/CPackConfig.cmake") # libtuttiN
packages=(tutti-plugins "$library" libtutti-dev tutti-tools) # in the order in which they may be installed one by one
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
root=$scratch/root
export LC_ALL=C PATH=$PATH:/usr/sbin:/sbin
die() { echo "error: $*" >&2; exit 1; }
# Variables of a job around this test would be the tested command's.
for name in $(compgen -e | grep -E '^(TUTTI|NCCL|OMPI|PMIX|PMI|SLURM)_' || true); do unset "$name"; done

build_packages() {
  "$cpack" -G DEB --config "$build/CPackConfig.cmake" -B "$scratch/deb" >"$scratch/log" 2>&1 || { cat "$scratch/log"; die "cpack failed"; }
  local found wanted
  found=$(for deb in "$scratch"/deb/*.deb; do dpkg-deb -f "$deb" Package; done | sort | xargs)
  wanted=$(printf '%s\n' "${packages[@]}" | sort | xargs)
  [ "$found" = "$wanted" ] || die "made $found, not $wanted"
  files_of "$library" | grep -q "/libtutti\.so\.${library#libtutti}\$" || die "$library lacks libtutti.so.${library#libtutti}"
}
deb_of() { ls "$scratch/deb/$1"_*.deb; }
files_of() { dpkg-deb --fsys-tarfile "$(deb_of "$1")" | tar -t | sed 's,^\./,,' | grep -v '/$'; }

# Every installed file is in one package, and nothing else but licences is.
check_contents() {
  DESTDIR=$scratch/all "$cmake" --install "$build" --prefix /usr >/dev/null
  (cd "$scratch/all" && find . -not -type d | sed 's,^\./,,' | sort) >"$scratch/installed"
  for p in "${packages[@]}"; do files_of "$p"; done | sort >"$scratch/packed"
  [ -z "$(uniq -d "$scratch/packed")" ] || die "in two packages: $(uniq -d "$scratch/packed")"
  grep -vxE 'usr/share/doc/[a-z0-9-]+/copyright' "$scratch/packed" | diff "$scratch/installed" - || die "installed (<) and packed (>) differ"
  [ "$(grep -cxE 'usr/share/doc/[a-z0-9-]+/copyright' "$scratch/packed")" = ${#packages[@]} ] || die "not every package has its licence"
}

# What is opened at run time, which no tool sees: a plugin that names the library is in a package that recommends it.
check_recommendations() {
  local p depends
  for p in "${packages[@]}"; do
    grep -rqsF libcurl.so.4 "$scratch/x/$p" || continue
    depends=$(dpkg-deb -f "$(deb_of "$p")" Recommends)
    [[ $depends == *libcurl4* ]] || die "$p opens libcurl and recommends \"$depends\""
    opened=yes
  done
  [ -n "${opened:-}" ] || [ ! -e "$build/lib/tutti/plugins/libtutti-store-etcd.so" ] || die "no package has what opens libcurl"
}

# What the loader will ask for, package by package, against the field Depends.
declare -A names_of # library -> names that its package goes by
check_dependencies() {
  local p file lib depends
  for p in "${packages[@]}"; do
    depends=$(dpkg-deb -f "$(deb_of "$p")" Depends | tr ',' '\n' | awk '{ print $1 }')
    mkdir -p "$scratch/x/$p"
    dpkg-deb -x "$(deb_of "$p")" "$scratch/x/$p"
    while read -r file; do
      while read -r lib; do
        [ -n "${names_of[$lib]:-}" ] || names_of[$lib]=$(owners "$lib")
        grep -qxF "${names_of[$lib]}" <<<"$depends" || die "$p: $file needs $lib of ${names_of[$lib]//$'\n'/ }, depends on ${depends//$'\n'/ }"
      done < <(libraries_of "$file")
    done < <(find "$scratch/x/$p" -type f \( -name '*.so*' -o -path '*/bin/*' \))
  done
}
# Paths of the libraries that a file itself names.
libraries_of() {
  ldd "$1" | awk -v wanted="$(objdump -p "$1" | awk '$1 == "NEEDED" { print $2 }' | xargs)" '
    BEGIN { split(wanted, list, " "); for (i in list) need[list[i]] = 1 }
    { n = split($1, part, "/"); if (part[n] in need) print (n > 1 ? $1 : $3) }'
}
# The package that a library came with, and the names that this one provides.
owners() {
  local path owner
  path=$(readlink -f "$1")
  owner=$(dpkg -S "$path" "${path#/usr}" 2>/dev/null | head -n 1 | cut -d: -f1 || true) # some lists say /lib for /usr/lib
  [ -n "$owner" ] || die "no package has $1"
  echo "$owner"
  dpkg-query -W -f '${Provides}\n' "$owner" | tr ',' '\n' | awk 'NF { print $1 }'
}

# dpkg's own view, with the packages of this machine as installed: it refuses what lacks a dependency. A stand-in for ldconfig notes
# that the script of the package called it.
dpkg_in_root() {
  dpkg --root="$root" --log="$scratch/dpkg.log" --force-script-chrootless "$@" >"$scratch/log" 2>&1
}
install_as_root() {
  local admin=$root/var/lib/dpkg p
  mkdir -p "$admin/info" "$admin/updates" "$admin/triggers" "$scratch/bin"
  cp /var/lib/dpkg/status "$admin/status"
  printf '#!/bin/sh\n: >"%s"\n' "$scratch/ldconfig-ran" >"$scratch/bin/ldconfig"
  chmod +x "$scratch/bin/ldconfig"
  PATH=$scratch/bin:$PATH
  dpkg_in_root --install "$(deb_of libtutti-dev)" && die "dpkg took libtutti-dev without $library"
  dpkg_in_root --purge libtutti-dev || { cat "$scratch/log"; die "the half-installed package does not go"; }
  for p in "${packages[@]}"; do
    dpkg_in_root --install "$(deb_of "$p")" || { cat "$scratch/log"; die "dpkg refuses $p"; }
  done
  [ -e "$scratch/ldconfig-ran" ] || die "$library did not call ldconfig"
  for p in --audit --verify; do
    dpkg_in_root "$p" "${packages[@]}" || true # what it finds it prints
    [ ! -s "$scratch/log" ] || { cat "$scratch/log"; die "dpkg $p finds fault"; }
  done
}
remove_as_root() {
  dpkg_in_root --purge "${packages[@]}" || { cat "$scratch/log"; die "the packages do not go"; }
  local left
  left=$(find "$root/usr" -not -type d 2>/dev/null || true)
  [ -z "$left" ] || die "left behind: $left"
}

run_from_root() {
  local out lib
  "$root/usr/bin/tutti" version
  out=$("$root/usr/bin/tutti" info plugins)
  lib=$(dirname "$(find "$root/usr" -name "libtutti.so.${library#libtutti}")")
  [[ $out == *"$lib/tutti/plugins"* ]] || die "plugins are not those of the packages: $out"
  "$root/usr/bin/all_reduce_perf" --ranks 2 -b 8 -e 1M -f 64 -n 2 | grep '^# Out of bounds values : 0 OK'
  # A program, by pkg-config: its prefix follows the file.
  read -ra flags < <(PKG_CONFIG_PATH=$lib/pkgconfig pkg-config --cflags --libs tutti)
  "${CC:-cc}" "$here/../consumer/program/consumer.c" -o "$scratch/consumer" "${flags[@]}"
  LD_LIBRARY_PATH=$lib "$scratch/consumer"
}

build_packages
check_contents
check_dependencies
check_recommendations
if [ "$(id -u)" = 0 ]; then
  install_as_root
  run_from_root
  remove_as_root
else # dpkg wants root, even elsewhere
  for p in "${packages[@]}"; do dpkg-deb -x "$(deb_of "$p")" "$root"; done
  run_from_root
fi
echo "packages: ${packages[*]}: built, installed, run"
