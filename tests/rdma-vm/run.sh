#!/bin/bash
# Runs a script in a guest whose kernel has RDMA devices in software: run.sh [OPTIONS] SCRIPT [ARGS]. See README.md.
#   --build DIR   the build whose programs the script runs (default build/release)
#   --two         two guests, joined by a wire; the script runs in both
#   --smp N       processors of a guest (default 2)      --mem MIB   its memory (default 1024)
#   --limit S     seconds until it is ended by force (default 120)
#   --keep DIR    where results go (default DIR-of-build/rdma-vm/NAME-of-script); the console stays there if it failed
# Exit: the script's; 77: cannot be run here, "skipped: reason"; 124: over the limit; 125: a guest ended without a result.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source_dir=$(cd "$here/../.." && pwd)
build=$source_dir/build/release guests=1 smp=2 mem=1024 limit=120 keep=""

usage() { sed -n '2,/^set/{/^#/p}' "${BASH_SOURCE[0]}" >&2; exit 2; }
skip() { echo "skipped: $*"; exit 77; }

while [[ ${1:-} == --* ]]; do
  case $1 in
    --two) guests=2 ;;
    --build | --smp | --mem | --limit | --keep)
      [ $# -ge 2 ] || usage
      declare "${1#--}=$2"
      shift
      ;;
    *) usage ;;
  esac
  shift
done
[ $# -ge 1 ] || usage
build=$(cd "$build" && pwd) || exit 2
script=$1
[ -e "$script" ] || script=$here/guest/$1
[ -e "$script" ] || { echo "run.sh: no script \"$1\"" >&2; exit 2; }
script=$(realpath "$script")
shift
: "${keep:=$build/rdma-vm/$(basename "$script" .sh)}"

# A guest ends with the one who started it, and leaves with it: no process and no file.
# What one that was killed had to leave is removed by the next.
for old in "${TMPDIR:-/tmp}"/tutti-rdma-vm-*; do
  pid=${old##*/tutti-rdma-vm-}
  [ ! -O "$old" ] || kill -0 "${pid%%-*}" 2>/dev/null || rm -rf "$old"
done
work=$(mktemp -d "${TMPDIR:-/tmp}/tutti-rdma-vm-$$-XXXXXX")
qemus=() tails=()
finish() {
  local pid
  for pid in "${qemus[@]}" "${tails[@]}"; do kill -9 "$pid" 2>/dev/null; done
  rm -rf "$work"
}
trap finish EXIT
trap 'exit 129' HUP INT TERM

# Arguments: seconds, where the console goes, then further arguments of QEMU.
qemu() {
  local seconds=$1 console=$2
  shift 2
  exec setpriv --pdeathsig KILL timeout --foreground --kill-after=5 "$seconds" setpriv --pdeathsig KILL \
    qemu-system-x86_64 -cpu max -nodefaults -no-user-config -display none -no-reboot -serial "file:$console" -kernel "$image/vmlinuz" -initrd "$image/initrd" "$@" </dev/null
}
kernel_line="console=ttyS0 panic=-1 oops=panic quiet loglevel=4 mitigations=off"

# KVM if a guest does boot with it: a /dev/kvm that can be opened says little inside other virtual machines. Known until the next boot.
accelerator() {
  local known
  known=$image/../kvm-$(cat /proc/sys/kernel/random/boot_id)
  if [ -n "${TUTTI_RDMA_VM_ACCEL:-}" ]; then
    echo "$TUTTI_RDMA_VM_ACCEL"
  elif [ ! -w /dev/kvm ]; then
    echo tcg
  elif [ -e "$known" ]; then
    cat "$known"
  else
    rm -f "$image"/../kvm-*
    (qemu 8 "$work/probe" -accel kvm -m 256 -append "$kernel_line tutti.probe") >/dev/null 2>&1
    if grep -q tutti.booted "$work/probe" 2>/dev/null; then echo kvm; else echo tcg; fi | tee "$known"
  fi
}

# What the guest does, in a folder that it shares with us.
prepare() { # index
  local out=$work/$1 name
  mkdir "$out"
  echo "tutti-vm$1" >"$out/name"
  {
    echo "cd $(printf %q "$source_dir")"
    echo "export PATH=$(printf %q "$build/bin"):/usr/sbin:/usr/bin:/sbin:/bin HOME=/run TUTTI_CALIBRATE=off"
    echo "export VM_BUILD=$(printf %q "$build") VM_LIB=$(printf %q "$here/guest/lib.sh") VM_OUT=/run/tutti VM_INDEX=$1 VM_LIMIT=$((limit - 15))"
    for name in TEST_FULL TUTTI_DEBUG; do [ -z "${!name:-}" ] || echo "export $name=$(printf %q "${!name}")"; done
    printf 'exec timeout --kill-after=3 %s bash %q' $((limit - 10)) "$script"
    [ $# -eq 1 ] || printf ' %q' "${@:2}"
    echo
  } >"$out/job"
  : >"$out/output"
}

boot() { # index
  local out=$work/$1
  local -a wire=()
  [ "$guests" = 1 ] || wire=(-netdev "dgram,id=wire,local.type=unix,local.path=$work/wire$1,remote.type=unix,remote.path=$work/wire$((1 - $1))"
    -device "virtio-net-pci,netdev=wire,mac=52:54:00:74:75:0$1,host_mtu=4500")
  qemu "$limit" "$out/console" -accel "$accel" -smp "$smp" -m "$mem" -append "$kernel_line" \
    -fsdev local,id=host,path=/,security_model=none,readonly=on,multidevs=remap -device virtio-9p-pci,fsdev=host,mount_tag=host \
    -fsdev "local,id=out,path=$out,security_model=none" -device virtio-9p-pci,fsdev=out,mount_tag=out "${wire[@]}"
}

# The script's, or what became of the guest.
status_of() { # index, exit status of QEMU
  if [ -s "$work/$1/status" ]; then cat "$work/$1/status"
  elif [ "$2" = 124 ] || [ "$2" = 137 ]; then echo 124
  else echo 125; fi
}

for tool in qemu-system-x86_64 setpriv flock rdma ibv_devinfo; do
  command -v $tool >/dev/null || PATH=$PATH:/usr/sbin:/sbin command -v $tool >/dev/null || skip "$tool is not installed (./dev deps --all)"
done
image=$("$here/image.sh" 2>"$work/why") || { [ $? = 77 ] && skip "$(tail -n 1 "$work/why")"; cat "$work/why"; exit 1; }
accel=$(accelerator)
started=$SECONDS
for ((g = 0; g < guests; g++)); do
  prepare $g "$@"
  boot $g >"$work/$g/qemu" 2>&1 &
  qemus+=($!)
  tail --pid=${qemus[g]} -s 0.2 -q -f -n +1 "$work/$g/output" > >(if [ "$guests" = 1 ]; then cat; else sed -u "s/^/vm$g: /"; fi) &
  tails+=($!)
done
worst=0
for ((g = 0; g < guests; g++)); do
  wait "${qemus[g]}"
  status=$(status_of $g $?)
  ((status > worst)) && worst=$status
done
wait "${tails[@]}"
qemus=() tails=()

rm -rf "$keep"
mkdir -p "$keep"
for ((g = 0; g < guests; g++)); do
  to=$keep
  [ "$guests" = 1 ] || to=$keep/vm$g
  mkdir -p "$to"
  (cd "$work/$g" && rm -f job name status && { [ "$worst" != 0 ] || rm -f console qemu; } && cp -r . "$to")
  [ "$worst" = 0 ] && continue
  [ "$worst" -lt 124 ] || { echo "-- the end of the console:"; cat "$to/qemu"; tail -n 40 "$to/console"; }
done
echo "-- $(basename "$script" .sh): exit $worst after $((SECONDS - started)) s (linux $(basename "$image" | sed 's/-[0-9a-f]*$//'), $accel); results in ${keep#"$PWD"/}"
exit "$worst"
