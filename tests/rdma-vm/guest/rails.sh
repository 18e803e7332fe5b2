# Two wires, two devices per rank: both carry, and either may fail.
. "$VM_LIB"
make_wires 2
both=(NCCL_NET_FORCE_MERGE="rxa,rxa1;rxb,rxb1" NCCL_IB_RETRY_CNT=6 NCCL_IB_TIMEOUT=14)

# Percent that wire 1 carried of what was sent since share_before.
share_before() { read -r _ wire0 < <(sent a); read -r _ wire1 < <(sent a1); }
share() {
  local now0 now1
  read -r _ now0 < <(sent a)
  read -r _ now1 < <(sent a1)
  echo $((100 * (now1 - wire1) / (now0 - wire0 + now1 - wire1 + 1)))
}

for qps in 1 4; do
  stamp "two rails, $qps queue pairs on each path"
  rank_env=("${both[@]}" NCCL_IB_QPS_PER_CONNECTION=$qps)
  share_before
  start_ranks rails$qps 2 "$VM_RANK" loop --count 10 --bytes 4194304 --limit 60
  wait_ranks 60
  record rails$qps "nothing; two rails, $qps queue pairs on each path" right
  s=$(share)
  check "wire 1 carried $s % of all bytes" [ "$s" -ge 40 -a "$s" -le 60 ]
done
stamp "messages take turns instead of being split"
rank_env=("${both[@]}" NCCL_IB_SPLIT_DATA_ON_QPS=0)
start_ranks turns 2 "$VM_RANK" loop --count 10 --bytes 4194304 --limit 60
wait_ranks 60
record turns "nothing; two rails, messages take turns" right

stamp "all collectives over two rails"
rank_env=("${both[@]}")
start_ranks all 2 "$VM_RANK" all --bytes 1048576 --limit 100
wait_ranks 100
record all "nothing; all collectives over two rails" right

# In the midst of a loop the command, which also leaves the wire shares of what follows to look at.
amid() { # case, operations done before, command
  local name=$1 op=$2
  shift 2
  start_ranks "$name" 2 "$VM_RANK" loop --count 60 --bytes 4194304 --limit 90
  await 200 said "$name" 0 "0: $op done" || return 1
  "$@"
}
for wire_down in "" 1; do
  stamp "wire ${wire_down:-0} goes down and does not return"
  amid down${wire_down:-0} 5 link_down "a$wire_down"
  wait_ranks 100
  record down${wire_down:-0} "two rails; wire ${wire_down:-0} down in mid-transfer" right
  link_up "a$wire_down"
  await 50 active "rxa$wire_down"
  await 50 active "rxb$wire_down"
done

stamp "wire 1 goes down and returns"
blink() {
  link_down a1
  sleep 1
  link_up a1
  await 50 active rxa1
  sleep 1
  share_before
}
amid back 5 blink
wait_ranks 100
record back "two rails; wire 1 down in mid-transfer, up after 1 s" right
s=$(share)
check "after its return wire 1 carries again: $s %" [ "$s" -ge 10 ]

stamp "wires go down in turn"
turns() {
  local i w
  for i in 1 2 3; do
    for w in 1 ""; do
      link_down "a$w"
      sleep 0.5
      link_up "a$w"
      await 50 active "rxa$w"
      sleep 1
    done
  done
}
amid in_turn 5 turns
wait_ranks 100
record in_turn "two rails; they go down in turn for 0.5 s, 3 times each" right

stamp "wire 1 loses all packets, and its link stays up"
wire=1
amid silent 5 netem loss 100%
wait_ranks 100
no_netem
wire=""
record silent "two rails; wire 1 loses all packets in mid-transfer" right

stamp "both go down"
rank_env=("${both[@]}" TUTTI_PLUGIN_NET_IB_LINK_DOWN_TIMEOUT=3s)
amid both_down 5 eval 'link_down a; link_down a1'
wait_ranks 60
link_up a
link_up a1
await 50 active rxa
await 50 active rxa1
said_all="rx[ab]|rank [01]"
record both_down "two rails; both down in mid-transfer" error

stamp "a spare port"
rank_env=(NCCL_IB_MERGE_NICS=0 NCCL_IB_RETRY_CNT=6 NCCL_IB_TIMEOUT=14 TUTTI_MAX_CHANNELS=1)
amid spare 5 link_down a
wait_ranks 100
record spare "one rail and a spare; the wire in use (0) down in mid-transfer" right
link_up a
show_table
finish
