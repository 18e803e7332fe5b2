# Two wires, two devices per rank: both carry, and either may fail. Arguments: cases to run, instead of all.
. "$VM_LIB"
make_wires 2
# The device gives up within a second; with retry count 7 it never does.
impatient=(NCCL_IB_RETRY_CNT=6 NCCL_IB_TIMEOUT=14)
size=4194304

# Both wires, merged to one device per rank.
two_rails() { # settings
  rank_env=("${impatient[@]}" "$@")
  rank_env_0=(NCCL_NET_FORCE_MERGE=rxa,rxa1)
  rank_env_1=(NCCL_NET_FORCE_MERGE=rxb,rxb1)
}

share_before() { read -r _ wire0 < <(sent a); read -r _ wire1 < <(sent a1); }
# Percent that wire 1 has carried since, of what rank 0 sent.
share() {
  local now0 now1
  read -r _ now0 < <(sent a)
  read -r _ now1 < <(sent a1)
  echo $((100 * (now1 - wire1) / (now0 - wire0 + now1 - wire1 + 1)))
}

fault_free() { # case, what, settings
  local name=$1 what=$2 s
  shift 2
  two_rails "$@"
  share_before
  start_ranks "$name" 2 "$VM_RANK" loop --count 8 --bytes $size
  wait_ranks 60
  record "$name" "$what" right
  s=$(share)
  check "wire 1 carried $s % of all bytes" [ "$s" -ge 40 -a "$s" -le 60 ]
}
split() { fault_free split "nothing; messages are split over two rails"; }
queues() { fault_free queues "nothing; 4 queue pairs on each of two rails" NCCL_IB_QPS_PER_CONNECTION=4; }
turns() { fault_free turns "nothing; messages take turns on two rails" NCCL_IB_SPLIT_DATA_ON_QPS=0; }
collectives() {
  two_rails
  start_ranks collectives 2 "$VM_RANK" all --bytes 1048576
  wait_ranks 120
  record collectives "nothing; all collectives over two rails" right
}

up_again() { local w; for w in "$@"; do link_up "a$w"; done; for w in "$@"; do await 50 active "rxa$w" && await 50 active "rxb$w"; done; }

goes_down() { # wire, memory
  local memory=$2
  two_rails
  amid "down${1:-0}" 40 $size link_down "a$1"
  wait_ranks 120
  record "down${1:-0}" "two rails; wire ${1:-0} down in mid-transfer, stays down" right
  up_again "$1"
}
down0() { goes_down "" plain; }
down1() { goes_down 1 alloc; }

back() {
  local s memory=user
  blink() { link_down a1; sleep 1; up_again 1; sleep 1; share_before; }
  two_rails
  amid back 60 $size blink
  wait_ranks 120
  record back "two rails; wire 1 down in mid-transfer, up after 1 s" right
  s=$(share)
  check "after its return wire 1 carries again: $s %" [ "$s" -ge 10 ]
}

in_turn() {
  blinks() {
    local w
    for w in 1 "" 1 ""; do
      link_down "a$w"
      sleep 0.5
      up_again "$w"
      sleep 1
    done
  }
  two_rails
  amid in_turn 80 $size blinks
  wait_ranks 120
  record in_turn "two rails; they go down for 0.5 s in turn, twice each" right
}

silent() {
  local memory=alloc
  wire=1
  two_rails
  amid silent 40 $size netem loss 100%
  wait_ranks 120
  no_netem
  record silent "two rails; wire 1 loses all packets in mid-transfer, link up" right
}

both_down() {
  sever() { link_down a; link_down a1; }
  two_rails TUTTI_PLUGIN_NET_IB_LINK_DOWN_TIMEOUT=3s
  amid both_down 1000 $size sever
  wait_ranks 60
  up_again "" 1
  said_all="rx[ab]1?:1"
  record both_down "two rails; both down in mid-transfer" error
}

spare() {
  rank_env=(NCCL_IB_MERGE_NICS=0 TUTTI_MAX_CHANNELS=1 "${impatient[@]}")
  amid spare 40 $size link_down a
  wait_ranks 120
  record spare "a port and a spare one; wire 0 down in mid-transfer" right
  up_again ""
}

lost() {
  local w
  for w in "" 1; do wire=$w netem loss 1%; done
  two_rails NCCL_IB_RETRY_CNT=7
  start_ranks lost 2 "$VM_RANK" loop --count 6 --bytes $size
  wait_ranks 120
  for w in "" 1; do wire=$w no_netem; done
  record lost "two rails; 1 % of the packets lost on both" right
}

run_cases split queues turns collectives down0 down1 back in_turn silent both_down spare lost
show_table
finish
