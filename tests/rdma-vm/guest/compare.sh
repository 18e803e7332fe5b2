# What one all-reduce of 1 MiB on 2 ranks costs on the wire, per direction: ours and Open MPI's. Each is run with few and with many
# operations; the difference is the cost of the operations alone, without connections and their end.
. "$VM_LIB"
make_wires 1
bytes=1048576 few=5 many=25
gid=$(gid_index rxa fd00:)
rank_env=(NCCL_IB_GID_INDEX="$gid") # as the peer's: headers of IPv6 are longer

# Prints "packets bytes" of a to b and of b to a, and what the device counted as sent.
counts() { echo "$(sent a) $(sent b) $(hw_counter a sent_pkts) $(hw_counter b sent_pkts)"; }

# What has been sent again, since a guest that is slow loses packets: a number that grows with it.
again() {
  local e c sum=0
  for e in "${ends[@]}"; do
    for c in completer_retry_err out_of_seq_request duplicate_request; do sum=$((sum + $(hw_counter "$e" $c))); done
  done
  echo $sum
}

ours() { # count
  start_ranks ours 2 "$VM_RANK" loop --count "$1" --bytes $bytes
  wait_ranks 100
}

# Under mpirun each rank has the device of its end.
cat >/run/by_rank <<'X'
#!/bin/bash
e=$([ "$OMPI_COMM_WORLD_RANK" = 0 ] && echo a || echo b)
export OMPI_MCA_btl_openib_if_include=rx$e UCX_NET_DEVICES=rx$e:1
exec "$@"
X
chmod +x /run/by_rank
mpi() { # count, arguments of mpirun
  local count=$1
  shift
  timeout $((120 * slowness)) mpirun.openmpi --allow-run-as-root --oversubscribe -np 2 "$@" /run/by_rank "$VM_BUILD/tests/mpi_peer" "$count" $bytes
}
# Rank 0 and 1 meet by datagrams, whose IPv4 form UCX does not accept from this device, so that they use the IPv6 addresses.
ucx() { UCX_TLS=rc_v,ud_v,self UCX_IB_GID_INDEX=$gid mpi "$1" -mca pml ucx -mca osc '^ucx'; }
# Debian's has no connection manager for RoCE, only the one for InfiniBand: it is tried, so that the table says what became of it.
openib() { mpi "$1" -mca pml ob1 -mca btl openib,self -mca btl_openib_allow_ib 1 -mca btl_openib_gid_index "$gid" -mca orte_base_help_aggregate 0; }

# Runs WAY with few and with many operations and adds a line to the table, or says that it does not run. Where packets were sent
# again it is run anew, twice at most.
measure() { # name, way
  local name=$1 way=$2 tries=${3:-3}
  local -a before between after
  local status lost
  lost=$(again)
  read -r -a before < <(counts)
  "$way" $few >"$VM_OUT/$way.few" 2>&1
  status=$?
  if [ $status != 0 ]; then
    printf '%-28s does not run here: exit %d: %s\n' "$name" $status "$(grep -iE 'unable|invalid|error|fail' "$VM_OUT/$way.few" | head -n 1)" >>"$VM_OUT/wire.txt"
    return 1
  fi
  read -r -a between < <(counts)
  "$way" $many >"$VM_OUT/$way.many" 2>&1 || return 1
  read -r -a after < <(counts)
  if [ "$(again)" != "$lost" ] && ((tries > 1)); then
    measure "$name" "$way" $((tries - 1))
    return
  fi
  awk -v name="$name" -v ops=$((many - few)) -v message=$bytes -v b="${before[*]}" -v m="${between[*]}" -v a="${after[*]}" 'BEGIN {
    split(b, x); split(m, y); split(a, z)
    for (i = 1; i <= 6; i++) per[i] = ((z[i] - y[i]) - (y[i] - x[i])) / ops
    printf "%-28s %9.1f %11.0f %8.4f   %9.1f %11.0f %8.4f   %9.1f %9.1f\n", name, per[1], per[2], per[2] / message, per[3], per[4],
           per[4] / message, per[5], per[6]
  }' >>"$VM_OUT/wire.txt"
}

{
  echo "all-reduce of $bytes bytes on 2 ranks, MTU 4096, per operation (of $((many - few)))"
  printf '%-28s %31s   %31s   %20s\n' "" "rank 0 to rank 1" "rank 1 to rank 0" "device's packets"
  printf '%-28s %9s %11s %8s   %9s %11s %8s   %9s %9s\n' "" packets bytes "/message" packets bytes "/message" 0 1
} >"$VM_OUT/wire.txt"
check "tutti" measure "tutti, net-ib" ours
if [ -x "$VM_BUILD/tests/mpi_peer" ]; then
  if measure "Open MPI, ucx (rc)" ucx; then peer=ran; else echo "Open MPI with ucx does not run: $(tail -n 3 "$VM_OUT/ucx.few")"; fi
  measure "Open MPI, openib" openib || echo "Open MPI with openib does not run: $(tail -n 3 "$VM_OUT/openib.few")"
else
  echo "skipped: Open MPI is not installed" | tee -a "$VM_OUT/wire.txt"
fi
cat "$VM_OUT/wire.txt"
[ "${peer:-}" != ran ] || check "no more packets than Open MPI's, each way" awk '/^tutti/ { a = $3; b = $6 } /^Open MPI, ucx/ { good = a && b && a <= $5 && b <= $8 } END { exit !good }' "$VM_OUT/wire.txt"
check "at most 1.03 bytes on the wire per byte of the message, each way" awk '/^tutti/ { seen = 1; good = $5 <= 1.03 && $8 <= 1.03 } END { exit !(seen && good) }' "$VM_OUT/wire.txt"
finish
