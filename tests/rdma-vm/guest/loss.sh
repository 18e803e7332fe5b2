# Wires that lose, delay, double, damage and reorder packets: nothing of it may be noticed but by the clock.
. "$VM_LIB"
make_wires 1
# Packets that are lost are sent again after 0.1 s, not after seconds, and the device never gives up.
rank_env=(NCCL_IB_RETRY_CNT=7 NCCL_IB_TIMEOUT=14)

lossy() { # case, what, operations, bytes, netem arguments
  local name=$1 what=$2 count=$3 bytes=$4
  shift 4
  stamp "$what"
  netem "$@"
  start_ranks "$name" 2 "$VM_RANK" loop --count "$count" --bytes "$bytes"
  wait_ranks 110
  no_netem
  record "$name" "$what, both ways" right
}
lossy loss1 "1 % of the packets lost" 10 1048576 loss 1%
lossy loss5 "5 % of the packets lost" 10 1048576 loss 5%
lossy duplicate "5 % of the packets come twice" 10 1048576 duplicate 5%
lossy corrupt "1 % of the packets damaged" 10 1048576 corrupt 1%
lossy reorder "1 of 4 packets overtakes others, which are late by 1 ms" 4 262144 delay 1ms reorder 25% 50%
lossy delay "5 ms of delay, 2 ms of jitter" 4 262144 delay 5ms 2ms
lossy all "1 % lost, 1 % twice, 1 ms of delay" 4 262144 delay 1ms loss 1% duplicate 1%
show_table
finish
