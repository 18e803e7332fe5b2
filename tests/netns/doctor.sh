#!/bin/bash
# Three hosts around a bridge, made of network namespaces: what `tutti doctor --hosts` says when a firewall drops or rejects, when
# the way between carries smaller packets, when a host is slow, when one cannot be started, and inside a job. doctor.sh TUTTI.
# Exit 77: not possible here. Everything made is removed again, whatever happens.
set -u
tutti=$1
a=tutti-$$-a b=tutti-$$-b c=tutti-$$-c x=tutti-$$-x
dir=$(mktemp -d) || exit 2
pids=()
clean() {
  for p in "${pids[@]}"; do kill -9 "$p" 2>/dev/null; done
  for ns in $a $b $c $x; do ip netns del $ns 2>/dev/null; done
  rm -rf "$dir"
}
trap clean EXIT
for ns in $a $b $c $x; do ip netns add $ns 2>/dev/null || { echo "skipped: cannot make network namespaces"; exit 77; }; done
ip -n $x link add bridge0 type bridge 2>/dev/null && ip -n $x link set bridge0 up || { echo "skipped: cannot make a bridge"; exit 77; }
i=1
for ns in $a $b $c; do
  ip link add eth0 netns $ns type veth peer name port$i netns $x 2>/dev/null || { echo "skipped: cannot make veth pairs"; exit 77; }
  ip -n $x link set port$i master bridge0 up && ip -n $ns addr add 10.91.0.$i/24 dev eth0 && ip -n $ns link set eth0 up && ip -n $ns link set lo up || exit 1
  i=$((i + 1))
done
failed=0 shell="ip netns exec"
# Runs the command, keeps its JSON, and asks Python whether all expressions of it hold. `of(id)`: findings of that name.
expect() { # what, exit code (a pattern), arguments of tutti doctor --, expressions
  local what=$1 wanted=$2 words=() code
  shift 2
  while [ "$1" != -- ]; do words+=("$1"); shift; done
  shift
  timeout 100 "$tutti" doctor --json --timeout 60 --ssh "$shell" "${words[@]}" >"$dir/out" 2>"$dir/err"
  code=$?
  python3 - "$dir/out" "$@" <<'P' && [[ $code = $wanted ]] && { echo "ok: $what"; return; }
import json, sys
d = json.load(open(sys.argv[1]))
names = [h["name"] for h in d["hosts"]]
of = lambda id: [f["seen"] for f in d["findings"] if f["id"] == id and f["level"] != "ok"]
levels = lambda id: [f["level"] for f in d["findings"] if f["id"] == id]
reached = {(p["from"], p["to"]): p["reached"] for p in d["pairs"]}
wrong = [e for e in sys.argv[2:] if not eval(e)]
for e in wrong: print("does not hold:", e)
if wrong: print(json.dumps({"findings": d["findings"], "reached": str(reached)}, indent=1)[:6000])
sys.exit(bool(wrong))
P
  echo "FAILED: $what (exit code $code, expected $wanted)"
  cat "$dir/err"
  failed=1
}
all=(--hosts "$a,$b,$c")
expect "three hosts that reach each other" 0 "${all[@]}" -- 'names == '"['$a', '$b', '$c']" 'len(reached) == 6 and all(reached.values())' \
  'not of("pairs.mtu") and not of("pairs.start") and not of("pairs.refused") and not of("pairs.timed_out")' \
  'all(p["measured"]["mtu"] == 1500 and p["measured"]["latency_us"] > 0 for p in d["pairs"] if "measured" in p)' \
  'sum("measured" in p for p in d["pairs"]) == 3' 'd["rounds_done"] == 3'
# Its output ends after a few answers, and with it the program.
printf '#!/bin/sh\nif [ "$1" = %s ]; then ip netns exec "$@" | { head -n 3; kill $$; }; else exec ip netns exec "$@"; fi\n' $a >"$dir/cut"
chmod +x "$dir/cut"
shell="$dir/cut"
expect "the first host ends in the middle" 1 "${all[@]}" -- 'len(of("pairs.start")) == 1' "'$a: it ' in of('pairs.start')[0]" \
  'any((p["from"], p["to"]) == (1, 2) and p["reached"] for p in d["pairs"])'
shell="ip netns exec"

if ip netns exec $b nft list ruleset >/dev/null 2>&1; then
  rule() { ip netns exec $b nft add table inet t && ip netns exec $b nft add chain inet t in '{ type filter hook input priority 0 ; policy accept ; }' && ip netns exec $b nft add rule inet t in "$@" || exit 1; }
  rule ip saddr 10.91.0.1 tcp flags '&' '(syn|ack)' == syn drop
  expect "a firewall that drops what comes from one host" 1 "${all[@]}" -- 'len(of("pairs.timed_out")) == 1' \
    "'$a to $b: no answer' in of('pairs.timed_out')[0] and 'the other direction works' in of('pairs.timed_out')[0]" \
    '[k for k, v in reached.items() if not v] == [(0, 1)]' 'any("drop" in f for f in of("firewall.refuses"))' \
    'sum("measured" in p for p in d["pairs"]) == 3'
  ip netns exec $b nft flush ruleset
  rule tcp flags '&' '(syn|ack)' == syn reject with tcp reset
  expect "a firewall that rejects all" 1 "${all[@]}" -- 'len(of("pairs.refused")) == 1' "'nobody reaches $b' in of('pairs.refused')[0]" \
    'sorted(k for k, v in reached.items() if not v) == [(0, 1), (2, 1)]'
  ip netns exec $b nft flush ruleset
  rule meta l4proto udp drop
  expect "a firewall that drops datagrams" 0 "${all[@]}" -- 'len(of("pairs.mtu_unknown")) == 2 and all(reached.values())'
  ip netns exec $b nft flush ruleset
  # The job's ranks meet at the first host; the second one cannot be reached there.
  ip netns exec $a nft add table inet t && ip netns exec $a nft add chain inet t in '{ type filter hook input priority 0 ; policy drop ; }' || exit 1
  TUTTI_RANK=0 TUTTI_NRANKS=2 TUTTI_COMM_ID=10.91.0.1:4479 TUTTI_INIT_TIMEOUT=6s timeout 60 ip netns exec $a "$tutti" doctor --job --timeout 30 >/dev/null 2>&1 &
  pids=($!)
  TUTTI_RANK=1 TUTTI_NRANKS=2 TUTTI_COMM_ID=10.91.0.1:4479 TUTTI_INIT_TIMEOUT=6s timeout 60 ip netns exec $b "$tutti" doctor --job --timeout 30 >"$dir/out" 2>"$dir/err"
  code=$?
  wait "${pids[0]}"
  grep -q 'the place where the ranks meet cannot be reached from here: 10.91.0.1:4479: Connection timed out' "$dir/out" "$dir/err" && [ $code = 2 ] ||
    { echo "FAILED: a job that does not come together (exit code $code)"; cat "$dir/out" "$dir/err"; failed=1; }
  ip netns exec $a nft flush ruleset
else
  echo "skipped: firewalls, nft cannot be used here"
fi

ip -n $x link set port2 mtu 1300
# Some of a stream gets through or none does, as the kernel cuts it or not: exit code 0 or 1.
expect "a way that carries smaller packets than both ends" "[01]" "${all[@]}" -- 'len(of("pairs.mtu")) == 2' \
  'all("packets of 1280 bytes get through, those of 1400 do not" in f and "'$b'" in f for f in of("pairs.mtu"))'
ip -n $x link set port2 mtu 1500
ip -n $c link set eth0 mtu 1400
expect "an MTU that differs" 0 "${all[@]}" -- 'of("differs.MTU_of_eth0") == ["MTU of eth0 differs: 1500 on '"$a, $b, 1400 on $c"'"]'
ip -n $c link set eth0 mtu 1500
if ip netns exec $c tc qdisc add dev eth0 root tbf rate 80mbit burst 64kb latency 50ms 2>/dev/null; then
  expect "a slow host" 0 "${all[@]}" -- 'len(of("pairs.slow_host")) == 1' "'all pairs of $c are slow' in of('pairs.slow_host')[0]"
  ip netns exec $c tc qdisc del dev eth0 root
else
  echo "skipped: a slow host, the kernel has no tbf"
fi
expect "a host that cannot be started" 1 --hosts "$a,$b,tutti-$$-none" -- 'len(of("pairs.start")) == 1' 'len(of("pairs.absent")) == 1' 'reached[(0, 1)] and reached[(1, 0)]'
TUTTI_SOCKET_PORT_RANGE=45010-45040 expect "ports of the range alone" 0 "${all[@]}" -- 'all(45010 <= a["port"] <= 45040 for p in d["pairs"] for a in p["attempts"])'

# In a job of four ranks on two hosts.
pids=()
for r in 0 1 2 3; do
  ns=$a
  ((r > 1)) && ns=$b
  TUTTI_RANK=$r TUTTI_NRANKS=4 TUTTI_COMM_ID=10.91.0.1:4480 TUTTI_INIT_TIMEOUT=60s ip netns exec $ns "$tutti" doctor --job --json --timeout 60 >"$dir/job$r" 2>"$dir/err$r" &
  pids+=($!)
done
for p in "${pids[@]}"; do wait "$p" || { echo "FAILED: a rank of a job"; failed=1; }; done
python3 -c '
import json, sys
d = json.load(open(sys.argv[1]))
assert [h["ranks"] for h in d["hosts"]] == [[0, 1], [2, 3]], d["hosts"]
assert all(p["reached"] for p in d["pairs"]) and len(d["pairs"]) == 2
assert sorted((p["a"], p["b"]) for p in d["same_host"]) == [(0, 1), (2, 3)] and all(p["gbs"] > 0 for p in d["same_host"]), d["same_host"]
' "$dir/job0" && [ ! -s "$dir/job1" ] && echo "ok: in a job" || { echo "FAILED: in a job"; cat "$dir"/job* "$dir"/err*; failed=1; }
# The key goes over standard input: no command line and no environment holds it.
cat >"$dir/shell" <<S
#!/bin/bash
head -c 4000 >"$dir/stdin" <<<"\$(head -n 1)"
echo "\$*" >"$dir/words"; env >"$dir/env"
S
chmod +x "$dir/shell"
timeout 60 "$tutti" doctor --timeout 10 --ssh "$dir/shell" --hosts "$a,$b" >/dev/null 2>&1
key=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["key"])' "$dir/stdin")
[ ${#key} = 64 ] && ! grep -q "$key" "$dir/words" "$dir/env" && echo "ok: the key is in no command line" || { echo "FAILED: where the key is"; cat "$dir/words"; failed=1; }
exit $failed
