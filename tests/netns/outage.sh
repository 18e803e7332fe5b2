#!/bin/bash
# Two hosts joined by veth, two ranks in each, which go on with operations while their network is taken away: KIND is
#   down   both ends of the pair, one after the other, down and up again
#   reset  a firewall that resets all established connections of net-socket for a while
#   kill   the kernels abort single connections (ss -K)
#   silent a firewall that drops everything, longer than the plugin waits before it dials anew
#   start  the same, from before the first operation on: connections are made meanwhile
#   long   silence for 30 s and on all ports: the control plane's connections are lost, too, and come back
# Exit 77: not possible here. Everything made is removed again, whatever happens.
set -u
program=$1 kind=$2
a=tutti-$$-a b=tutti-$$-b
stop=$(mktemp -u) logs=$(mktemp -d)
pids=()
clean() {
  for p in "${pids[@]}"; do kill -9 "$p" 2>/dev/null; done
  ip netns del $a 2>/dev/null
  ip netns del $b 2>/dev/null
  rm -rf "$stop" "$stop".* "$logs"
}
trap clean EXIT
ip netns add $a 2>/dev/null && ip netns add $b 2>/dev/null || { echo "skipped: cannot make network namespaces"; exit 77; }
ip link add veth0 netns $a type veth peer name veth0 netns $b 2>/dev/null || { echo "skipped: cannot make veth pairs"; exit 77; }
i=1
for ns in $a $b; do
  ip -n $ns addr add 10.78.0.$i/24 dev veth0 && ip -n $ns link set veth0 up && ip -n $ns link set lo up || exit 1
  i=$((i + 1))
done
within() { # seconds, command: until it succeeds
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    ((SECONDS < end)) || { echo "not in time: $*"; return 1; }
    sleep 0.05
  done
}
# Without a carrier, other devices would be listed than a moment later.
carrier() { ip -n $1 -o link show veth0 | grep -q LOWER_UP; }
within 10 carrier $a && within 10 carrier $b || exit 1
# All kinds but down and long touch the ports of net-socket only: the control plane has connections and time limits of its own.
control=4478 first=30000 last=30999
filter() { # namespace, rule
  ip netns exec $1 nft -f - <<EOF || { echo "skipped: no nftables here"; exit 77; }
table inet t {
  chain in {
    type filter hook input priority 0
    iifname "veth0" tcp dport $first-$last $2
    iifname "veth0" tcp sport $first-$last $2
  }
}
EOF
}
unfilter() { ip netns exec $1 nft delete table inet t; }

for r in 0 1 2 3; do
  ns=$a
  ((r > 1)) && ns=$b
  TUTTI_SHM_DISABLE=1 TUTTI_RANK=$r TUTTI_NRANKS=4 TUTTI_COMM_ID=10.78.0.1:$control TUTTI_INIT_TIMEOUT=60s TUTTI_TEST_STOP=$stop \
    TUTTI_PLUGIN_NET_SOCKET_SILENCE=2s TUTTI_PLUGIN_NET_SOCKET_PORT_RANGE=$first-$last TUTTI_DEBUG=debug \
    ip netns exec $ns "$program" --no-intro --test-case="operations go on*" >"$logs/$r" 2>&1 &
  pids+=($!)
done
all() { # state: every rank is there
  for r in 0 1 2 3; do [ -e "$stop.$1.$r" ] || return 1; done
}
failed=0
within 60 all joined || failed=1
if [ $kind = start ]; then
  filter $a drop
  filter $b drop
fi
touch "$stop.go"
[ $kind = start ] || within 60 all running || failed=1
case $kind in
down)
  for ns in $a $b; do
    ip -n $ns link set veth0 down && sleep 3 && ip -n $ns link set veth0 up
    sleep 1
  done
  ;;
reset)
  filter $b 'tcp flags & syn == 0 reject with tcp reset'
  sleep 2
  unfilter $b
  ;;
kill)
  for n in 1 2 3 4 5 6; do
    ip netns exec $a ss -K "dst 10.78.0.2 and ( dport ge :$first and dport le :$last )" >/dev/null 2>&1 ||
      { echo "skipped: ss cannot end connections here"; exit 77; }
    sleep 0.5
  done
  ;;
silent)
  filter $a drop
  filter $b drop
  sleep 6
  unfilter $a
  unfilter $b
  ;;
start)
  sleep 6
  unfilter $a
  unfilter $b
  ;;
long)
  for ns in $a $b; do
    ip netns exec $ns nft "table inet t { chain in { type filter hook input priority 0; iifname \"veth0\" drop; }; }" ||
      { echo "skipped: no nftables here"; exit 77; }
  done
  sleep 30
  unfilter $a
  unfilter $b
  sleep 8
  ;;
*)
  echo "unknown kind $kind"
  exit 1
  ;;
esac
touch "$stop"
for p in "${pids[@]}"; do wait "$p" || failed=1; done
restored=$(cat "$logs"/* | grep -c "restored after")
control_restored=$(cat "$logs"/* | grep -c "bootstrap.*restored after\|comm 0x.*restored after")
echo "$kind: $restored connections restored, $control_restored of the control plane"
case $kind in
down) ((restored > 0)) || echo "TCP itself has held through this one" ;;
start) ;; # those that were not there yet are none that were lost
long) ((control_restored > 0)) || failed=1 ;;
*) ((restored > 0)) || failed=1 ;;
esac
((failed)) && tail -n 20 "$logs"/*
exit $failed
