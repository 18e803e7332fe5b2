#!/bin/bash
# A job on two hosts made of network namespaces, looked at by `tutti ras` from one of them and from afar: ranks of the other host
# answer, one of them that is stopped is told of by its neighbour there, and one whose host is cut off is silent. Exit 77: not
# possible here. Everything made is removed again, whatever happens.
set -u
tutti=$1
a=tutti-$$-a b=tutti-$$-b
dir=$(mktemp -d)
pids=()
clean() {
  for p in "${pids[@]}"; do kill -9 "$p" 2>/dev/null; done
  wait "${pids[@]}" 2>/dev/null
  ip netns del $a 2>/dev/null
  ip netns del $b 2>/dev/null
  rm -rf "$dir"
}
trap clean EXIT
ip netns add $a 2>/dev/null && ip netns add $b 2>/dev/null || { echo "skipped: cannot make network namespaces"; exit 77; }
ip link add veth0 netns $a type veth peer name veth0 netns $b 2>/dev/null || { echo "skipped: cannot make veth pairs"; exit 77; }
i=1
for ns in $a $b; do
  ip -n $ns addr add 10.77.0.$i/24 dev veth0 && ip -n $ns link set veth0 up && ip -n $ns link set lo up || exit 1
  i=$((i + 1))
done
head -c 32 /dev/urandom >"$dir/key" && chmod 600 "$dir/key"
export TUTTI_CALIBRATE=off TUTTI_JOB_KEY_FILE=$dir/key
for r in 0 1 2 3; do
  ns=$a
  ((r > 1)) && ns=$b
  TUTTI_RANK=$r TUTTI_NRANKS=4 TUTTI_COMM_ID=10.77.0.1:4477 TUTTI_INIT_TIMEOUT=60s TUTTI_SOCKET_DEAD_AFTER=3s TUTTI_SOCKET_RECONNECT_TIMEOUT=300s \
    ip netns exec $ns "$tutti" perf all_reduce -b 64 -e 64 -n 100000000 -w 1 -c 0 >"$dir/out.$r" 2>&1 &
  pids+=($!)
done
# ask NAMESPACE OPTIONS...: prints host and process counts, verdict, culprits, missing ranks and the verdict's text.
ask() {
  local ns=$1
  shift
  ip netns exec $ns "$tutti" ras --json --interval 0.1 "$@" 2>"$dir/err" >"$dir/json"
  python3 - "$dir/json" <<'PY'
import json, sys
try:
    j = json.load(open(sys.argv[1]))["jobs"][0]
    c = j["communicators"][0]
    answered = sum(p["answered"] for p in j["processes"])
    print(len({r["process"] for r in c["ranks"] if "process" in r}), answered, c["verdict"]["state"],
          ",".join(map(str, c["verdict"]["ranks"])) or "-", ",".join(map(str, c["missing"])) or "-", c["verdict"].get("text", "-"))
except Exception as e:
    print("nothing", e)
PY
}
# expect WHAT PATTERN NAMESPACE OPTIONS...: until it is so, for up to 40 s.
expect() {
  local what=$1 pattern=$2 said
  shift 2
  for _ in $(seq 1 200); do
    said=$(ask "$@")
    # shellcheck disable=SC2053
    [[ $said == $pattern ]] && return 0
    sleep 0.2
  done
  echo "$what: wanted $pattern, got $said"
  cat "$dir/err" "$dir"/out.*
  exit 1
}
expect "both hosts answer one question" "4 4 RUNNING - -*" $a
expect "also on the other host" "4 4 RUNNING - -*" $b
at=$(ip netns exec $a "$tutti" ras --where | sed -n 's/.*: \(10\.77\.0\.1:[0-9]*\).*/\1/p' | head -1)
expect "and from afar with the key" "4 4 RUNNING - -*" $b --host "$at" --key-file "$dir/key"
kill -STOP "${pids[3]}"
expect "a stopped rank of another host is told of by its neighbour there" "4 3 STALLED 3 3 rank 3 (pid ${pids[3]}*is stopped*" $a
kill -CONT "${pids[3]}"
expect "and runs on" "4 4 RUNNING - -*" $a
ip -n $b link set veth0 down
expect "ranks behind a link that is down are silent" "4 2 STALLED *2* 2,3 *" $a
before=$SECONDS
ask $a --timeout 1 --interval 0 >/dev/null
((SECONDS - before <= 5)) || { echo "waited $((SECONDS - before)) s for silent ranks, with a timeout of 1 s"; exit 1; }
shown=
for _ in $(seq 1 100); do
  ip netns exec $a "$tutti" ras --timeout 1 --interval 0 >"$dir/text" 2>&1
  grep -Eq 'rank [01]: connection to rank [23] \(10\.77\.0\.2\) lost [0-9]+ s ago, not restored yet' "$dir/text" && shown=1 && break
  sleep 0.2
done
[ -n "$shown" ] || { echo "lost control connections are not shown:"; cat "$dir/text"; exit 1; }
ip -n $b link set veth0 up
for _ in $(seq 1 200); do
  ip netns exec $a "$tutti" ras --json --timeout 1 --interval 0 >"$dir/json" 2>/dev/null
  grep -q '"answered": true' "$dir/json" && ! grep -q '"restoring"' "$dir/json" && exit 0
  sleep 0.2
done
echo "control connections are still shown as lost:"
cat "$dir/json"
exit 1
