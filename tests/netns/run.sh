#!/bin/bash
# Two network namespaces joined by veth, two ranks in each, and in each a dead interface that is listed first. Exit 77: not possible
# here. Everything made is removed again, whatever happens.
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
ip link add veth0 netns $a type veth peer name veth0 netns $b 2>/dev/null || { echo "skipped: cannot make veth pairs"; exit 77; }
i=1
for ns in $a $b; do
  # Up and with an address, but nobody is at the other end.
  ip -n $ns link add aaa0 type veth peer name aaa1 && ip -n $ns addr add 10.66.$i.1/24 dev aaa0 && ip -n $ns link set aaa0 up
  ip -n $ns addr add 10.77.0.$i/24 dev veth0 && ip -n $ns link set veth0 up && ip -n $ns link set lo up || exit 1
  i=$((i + 1))
done
failed=0
run() { # interface rule
  pids=()
  local r ns
  for r in 0 1 2 3; do
    ns=$a
    ((r > 1)) && ns=$b
    TUTTI_SOCKET_IFNAME=$1 TUTTI_RANK=$r TUTTI_NRANKS=4 TUTTI_COMM_ID=10.77.0.1:4477 TUTTI_INIT_TIMEOUT=60s \
      ip netns exec $ns "$program" --no-intro --test-case="every operation*" &
    pids+=($!)
  done
  for p in "${pids[@]}"; do wait "$p" || failed=1; done
}
run ""
run aaa0,veth0
exit $failed
