#!/bin/bash
# Two network namespaces joined by two veth pairs, two ranks in each: long messages are right, and go over both. Exit 77: not
# possible here. Everything made is removed again, whatever happens.
set -u
program=$1
a=tutti-$$-a b=tutti-$$-b
pids=()
clean() {
  for p in "${pids[@]}"; do kill -9 "$p" 2>/dev/null; done
  ip netns del $a 2>/dev/null
  ip netns del $b 2>/dev/null
}
trap clean EXIT
ip netns add $a 2>/dev/null && ip netns add $b 2>/dev/null || { echo "skipped: cannot make network namespaces"; exit 77; }
for nic in 0 1; do
  ip link add nic$nic netns $a type veth peer name nic$nic netns $b 2>/dev/null || { echo "skipped: cannot make veth pairs"; exit 77; }
  ip -n $a addr add 10.8$nic.0.1/24 dev nic$nic && ip -n $b addr add 10.8$nic.0.2/24 dev nic$nic || exit 1
  for ns in $a $b; do ip -n $ns link set nic$nic up || exit 1; done
done
for ns in $a $b; do ip -n $ns link set lo up || exit 1; done
sent() { ip netns exec "$1" cat /sys/class/net/"$2"/statistics/tx_bytes; } # namespace, interface
failed=0
# Runs the ranks with these settings. Leaves in `share` what nic1 carried of all bytes, in percent.
run() {
  local before0 before1 after0 after1 r ns
  before0=$(($(sent $a nic0) + $(sent $b nic0))) before1=$(($(sent $a nic1) + $(sent $b nic1)))
  pids=()
  for r in 0 1 2 3; do
    ns=$a
    ((r > 1)) && ns=$b
    env "$@" TUTTI_RANK=$r TUTTI_NRANKS=4 TUTTI_COMM_ID=10.80.0.1:4478 TUTTI_INIT_TIMEOUT=60s \
      ip netns exec $ns "$program" --no-intro --test-case="long messages*" &
    pids+=($!)
  done
  for p in "${pids[@]}"; do wait "$p" || failed=1; done
  after0=$(($(sent $a nic0) + $(sent $b nic0) - before0)) after1=$(($(sent $a nic1) + $(sent $b nic1) - before1))
  share=$((100 * after1 / (after0 + after1)))
  echo "$*: nic0 carried $after0 bytes, nic1 $after1: $share %"
}
run TUTTI_ALGO=ring
((share >= 35 && share <= 65)) || { echo "ring: not shared"; failed=1; }
run TUTTI_ALGO=tree
((share >= 35 && share <= 65)) || { echo "tree: not shared"; failed=1; }
run TUTTI_ALGO=
((share >= 25 && share <= 75)) || { echo "default: not shared"; failed=1; }
run TUTTI_MAX_CHANNELS=1
((share <= 5 || share >= 95)) || { echo "one channel: over both"; failed=1; }
exit $failed
