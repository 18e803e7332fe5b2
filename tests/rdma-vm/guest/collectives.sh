# Everything that must work where nothing fails: the whole conformance suite, and all collectives over each protocol in sizes to 8 MiB.
. "$VM_LIB"
make_wires 1
stamp "conformance"
NCCL_IB_HCA=rxa timeout $((400 * slowness)) tutti check-plugin "$VM_PLUGIN" >"$VM_OUT/conformance" 2>&1
check "conformance of net-ib" [ $? = 0 ]
tail -n 40 "$VM_OUT/conformance"

for proto in "" simple ll ll8 ll128 pull; do
  stamp "all collectives, protocol ${proto:-chosen by the tuner}"
  name=all_${proto:-default}
  rank_env=(VM=1)
  [ -z "$proto" ] || rank_env=(TUTTI_PROTO=$proto)
  start_ranks "$name" 2 "$VM_RANK" all --bytes 8388608
  wait_ranks 200
  record "$name" "nothing" right
done
stamp "memory that the network has registered"
for memory in alloc user; do
  rank_env=(VM=1)
  start_ranks "$memory" 2 "$VM_RANK" loop --count 6 --bytes 4194304 --memory "$memory"
  wait_ranks 100
  record "$memory" "nothing; memory of tutti$([ "$memory" = alloc ] && echo MemAlloc || echo CommRegister)" right
  rank_env=(TUTTI_PROTO=pull)
  start_ranks "pull_$memory" 2 "$VM_RANK" loop --count 6 --bytes 4194304 --memory "$memory"
  wait_ranks 100
  record "pull_$memory" "nothing; the same, read by the receiver" right
  for r in 0 1; do check "rank $r read where the data lay ($memory)" grep -qE "^rank $r: read [0-9]+ bytes" "$VM_OUT/pull_$memory.$r"; done
done
stamp "four ranks, two on each device"
rank_env=(VM=1)
start_ranks four 4 "$VM_RANK" all --bytes 1048576
wait_ranks 100
record four "nothing" right
stamp "many connections"
rank_env=("TUTTI_INIT_TIMEOUT=$((100 * slowness))s") # 1000 control connections
start_ranks many 2 tutti perf alltoall -t 16 -b 4096 -e 4096 -n 2 -w 1 -c 1 -T 200
check "more than 500 queue pairs at once" await 1000 eval '[ "$(rdma resource show qp 2>/dev/null | grep -c "RC")" -ge 500 ]'
wait_ranks 200
check "alltoall of 32 ranks in two processes" [ $? = 0 ]
tail -n 8 "$VM_OUT/many.0"
show_table
finish
