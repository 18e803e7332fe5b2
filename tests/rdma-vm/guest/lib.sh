# tests/rdma-vm/guest/lib.sh: sourced by the scripts that run in the guest. Devices, wires and their faults, ranks, and the table of
# results. VM_OUT is the folder that the host sees; VM_BUILD the build; VM_INDEX this guest, of two.
set -u
only=("$@") # the script's arguments: names of cases
failures=0
# A guest has booted after 7 s, or as many times later as the machine has other work: so many times longer is everything waited for.
slowness=$(awk '{ s = int($1 / 7 + 0.5); print(s < 1 ? 1 : (s > 20 ? 20 : s)) }' /proc/uptime)
VM_PLUGIN=$VM_BUILD/lib/tutti/plugins/libtutti-net-ib.so
VM_RANK=$VM_BUILD/tests/rdma_rank

# ---- wires and devices. Wire w joins the interfaces va$w and vb$w, with the devices rxa$w and rxb$w on them; w is "" for the first
# wire, then 1, 2 ... Each has an IPv4 and an IPv6 address. Both ends are in one network namespace (devices of two do not reach each
# other in Linux 6.1), so rules route by the interface that a device sends through, and neighbours are known beforehand.
ends=(a b)
number() { [ "$1" = a ] && echo 1 || echo 2; }
address() { echo "10.8.${2:-0}.$(number "$1")"; } # end, wire
address6() { echo "fd00:8:${2:-0}::$(number "$1")"; }
table() { echo $((100 + 10 * ${2:-0} + $(number "$1"))); }
other() { [ "$1" = a ] && echo b || echo a; }

# Also what a link loses when it goes down.
route_wire() { # wire
  local w=$1 e at
  for e in a b; do ip link set "v$e$w" up; done
  for e in a b; do
    at=$(cat "/sys/class/net/v$(other $e)$w/address")
    ip neigh replace "$(address "$(other $e)" "$w")" dev "v$e$w" lladdr "$at" nud permanent
    ip neigh replace "$(address6 "$(other $e)" "$w")" dev "v$e$w" lladdr "$at" nud permanent
    ip route replace "$(address "$(other $e)" "$w")/32" dev "v$e$w" src "$(address $e "$w")" table "$(table $e "$w")"
    ip -6 route replace "$(address6 "$(other $e)" "$w")/128" dev "v$e$w" table "$(table $e "$w")"
  done
}

make_wire() { # wire, mtu
  local w=$1 e at family
  ip link add "va$w" type veth peer name "vb$w"
  for e in a b; do
    at=v$e$w
    ip link set "$at" mtu "$2"
    ip addr add "$(address $e "$w")/32" dev "$at"
    ip addr add "$(address6 $e "$w")/128" dev "$at" nodad
    echo 0 >"/proc/sys/net/ipv4/conf/$at/rp_filter"
    echo 1 >"/proc/sys/net/ipv4/conf/$at/accept_local"
    echo 1 >"/proc/sys/net/ipv6/conf/$at/keep_addr_on_down"
  done
  route_wire "$w"
  for e in a b; do
    for family in -4 -6; do
      ip $family rule add pref 10 iif "v$e$w" lookup local
      ip $family rule add pref 20 oif "v$e$w" lookup "$(table $e "$w")"
    done
    rdma link add "rx$e$w" type rxe netdev "v$e$w"
  done
}

make_wires() { # how many, mtu
  local i family
  echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter
  for family in -4 -6; do
    ip $family rule add pref 200 lookup local
    ip $family rule del pref 0
  done
  make_wire "" "${2:-4500}"
  for ((i = 1; i < $1; i++)); do make_wire $i "${2:-4500}"; done
  await 50 active "rxa" && await 50 active "rxb"
}

# The entry of device $1's GID table that starts so: "fd00:", "0000:" (IPv4).
gid_index() { grep -l "^$2" "/sys/class/infiniband/$1/ports/1/gids/"* 2>/dev/null | head -n 1 | xargs -r basename; }
active() { grep -q ACTIVE "/sys/class/infiniband/$1/ports/1/state"; }

# Tries a command every 0.1 s, so many times.
await() { # times, command
  local i times=$(($1 * slowness))
  shift
  for ((i = 0; i < times; i++)); do
    "$@" && return 0
    sleep 0.1
  done
  return 1
}

# ---- faults, of one direction of a wire (a to b, or b to a) or of both
netem() { local e; for e in a b; do tc qdisc replace dev "v$e${wire:-}" root netem limit 100000 "$@"; done; } # wire=W netem loss 1%
no_netem() { local e; for e in a b; do tc qdisc del dev "v$e${wire:-}" root 2>/dev/null; done; }
link_down() { ip link set "v$1" down; } # "a", "b1"
link_up() { ip link set "v$1" up; route_wire "${1:1}"; }
gid_gone() { ip addr del "$(address "${1:0:1}" "${1:1}")/32" dev "v$1"; }
gid_back() { ip addr add "$(address "${1:0:1}" "${1:1}")/32" dev "v$1"; route_wire "${1:1}"; }

# "packets bytes" that interface v$1 has sent.
sent() { echo "$(cat "/sys/class/net/v$1/statistics/tx_packets") $(cat "/sys/class/net/v$1/statistics/tx_bytes")"; }
# A counter of device rx$1, by the driver.
hw_counter() { cat "/sys/class/infiniband/rx$1/ports/1/hw_counters/$2"; }

# Between sent_before and wire_carried the interface has sent at least so many bytes.
sent_before() { read -r _ bytes_before < <(sent "$1"); }
wire_carried() { # end, bytes
  local bytes_now
  read -r _ bytes_now < <(sent "$1")
  check "v$1 sent $((bytes_now - bytes_before)) bytes, at least $2" [ $((bytes_now - bytes_before)) -ge "$2" ]
}

# ---- ranks
declare -a rank_pids=()
job_port=4400

# Starts ranks 0..n-1 of PROGRAM; rank r's devices are those of end a if r is even. Output: $VM_OUT/<case>.<rank>.
# rank_env: further settings, "NAME=value"; rank_env_<r>: of one rank.
declare -a rank_env=()
start_ranks() { # case, n, program, args
  local name=$1 n=$2 r e
  shift 2
  rank_pids=()
  job_port=$((job_port + 1))
  for ((r = 0; r < n; r++)); do
    e=${ends[r % 2]}
    local own="rank_env_$r[@]"
    env TUTTI_RANK=$r TUTTI_NRANKS="$n" TUTTI_LOCAL_RANK=$r TUTTI_LOCAL_SIZE="$n" TUTTI_COMM_ID=127.0.0.1:$job_port TUTTI_SOCKET_IFNAME=lo \
      TUTTI_SHM_DISABLE=1 TUTTI_INIT_TIMEOUT=$((30 * slowness))s TUTTI_NET="${net:-ib}" NCCL_IB_HCA="rx$e" "${rank_env[@]}" "${!own:-VM=1}" \
      "$@" >"$VM_OUT/$name.$r" 2>&1 &
    rank_pids+=($!)
  done
}

# Waits for them, at most so many seconds (of a quick machine), then ends what is left. Exit statuses in rank_status.
declare -a rank_status=()
wait_ranks() { # seconds
  local r pid until=$((SECONDS + $1 * slowness))
  rank_status=()
  for pid in "${rank_pids[@]}"; do
    while kill -0 "$pid" 2>/dev/null && ((SECONDS < until)); do sleep 0.05; done
    if kill -0 "$pid"; then
      echo "pid $pid did not end within $1 s; its threads are in:"
      cat /proc/"$pid"/task/*/stack | sort | uniq -c | sort -rn | head -n 20
      kill -9 "$pid"
    fi
    wait "$pid" 2>/dev/null
    rank_status+=($?)
  done
  for r in "${!rank_status[@]}"; do [ "${rank_status[r]}" = 0 ] || return 1; done
} 2>/dev/null # bash tells of jobs that were killed

# Starts a loop of two ranks, and does the command in its midst.
amid() { # case, operations, bytes, command
  local name=$1 count=$2 bytes=$3
  shift 3
  start_ranks "$name" 2 "$VM_RANK" loop --count "$count" --bytes "$bytes" --memory "${memory:-plain}"
  if await 300 said "$name" 0 "0: 4 done"; then "$@"; else echo "$name did not get to its fifth operation"; fi
}

# A line of a rank's output has appeared.
said() { grep -q -- "$3" "$VM_OUT/$1.$2"; } # case, rank, text

# ---- results
check() { # text, command
  local text=$1
  shift
  if "$@"; then echo "ok      $text"; return 0; fi
  echo "FAILED  $text"
  failures=$((failures + 1))
  return 1
}

# A table in $VM_OUT/table.txt: what was done, and what each rank reported.
# record CASE "what was done" EXPECTED...: of each rank right, error or killed, "a|b" for either; said_all: what errors must say.
said_all=""
record() {
  local name=$1 what=$2 r status line verdict good=yes expected
  shift 2
  for r in "${!rank_status[@]}"; do
    status=${rank_status[r]}
    line=$(grep -aE "^rank [0-9]+: .*(right|error|WRONG)" "$VM_OUT/$name.$r" | tail -n 1)
    : "${line:=$(tail -n 1 "$VM_OUT/$name.$r")}"
    case $status in
      0) verdict=right ;;
      3) verdict=error ;;
      4) verdict="WRONG DATA" good=no ;;
      137) verdict=killed line="(killed)" ;;
      *) verdict="exit $status" good=no ;;
    esac
    expected=${1:-right}
    [ $# -gt 1 ] && shift
    [[ "|$expected|" == *"|$verdict|"* ]] || good=no
    [ "$verdict" != error ] || [ -z "$said_all" ] || grep -qE -- "$said_all" <<<"$line" || good="no: the error does not say \"$said_all\""
    printf '%-4s  %-16s %-72s  rank %d  %-10s  %s\n' "${good%%:*}" "$name" "$what" "$r" "$verdict" "$(cut -c1-400 <<<"${line#rank [0-9]: }")" >>"$VM_OUT/table.txt"
    what='"'
  done
  said_all=""
  check "$name" [ "$good" = yes ] || { [ "$good" = no ] || echo "        $good"; }
  [ "$good" = yes ] || for r in "${!rank_status[@]}"; do echo "-- rank $r:"; tail -n 5 "$VM_OUT/$name.$r" | cut -c1-500; done
}
show_table() {
  echo "good  case             what was done"
  cat "$VM_OUT/table.txt"
}
stamp() { echo "## [$(cut -d' ' -f1 /proc/uptime) s] $*"; }
# Runs functions, those that the script's arguments name (by their beginning), or all.
run_cases() {
  local each pick
  for each in "$@"; do
    for pick in "${only[@]:-}"; do
      [[ $each == "$pick"* ]] || continue
      stamp "$each"
      rank_env=() rank_env_0=() rank_env_1=() wire=""
      "$each"
      break
    done
  done
}
finish() { stamp "done: $failures failed"; [ "$failures" = 0 ]; exit; }
