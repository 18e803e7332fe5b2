#!/bin/bash
# What it costs net-socket that lost connections come back, between two namespaces joined by veth. Exit 77: not possible here.
# Everything made is removed again, whatever happens.
set -u
program=$1
a=tutti-$$-a b=tutti-$$-b
clean() {
  ip netns del $a 2>/dev/null
  ip netns del $b 2>/dev/null
}
trap clean EXIT
ip netns add $a 2>/dev/null && ip netns add $b 2>/dev/null || { echo "skipped: cannot make network namespaces"; exit 77; }
ip link add veth0 netns $a type veth peer name veth0 netns $b 2>/dev/null || { echo "skipped: cannot make veth pairs"; exit 77; }
i=1
for ns in $a $b; do
  ip -n $ns addr add 10.79.0.$i/24 dev veth0 && ip -n $ns link set veth0 up && ip -n $ns link set lo up || exit 1
  i=$((i + 1))
done
file=/run/netns/$b
[ -e "$file" ] || file=/var/run/netns/$b
timeout 110 ip netns exec $a "$program" resume veth0 "$file"
