# Links and addresses that go, ranks that die, limits and settings that do not fit: what each rank says then, and whether the data was right.
. "$VM_LIB"
make_wires 1
# The device gives up within a second; with retry count 7 it never does.
impatient=(NCCL_IB_RETRY_CNT=6 NCCL_IB_TIMEOUT=14)

# Runs a loop, and in its midst the command.
amid() { # case, operations done before, command
  local name=$1 op=$2
  shift 2
  start_ranks "$name" 2 "$VM_RANK" loop --count "$count" --bytes "$bytes" --limit 60
  await 200 said "$name" 0 "0: $op done" || { echo "$name did not get to operation $op"; wait_ranks 1; return 1; }
  "$@"
}
count=2000 bytes=1048576
stamp "link down and not up again"
rank_env=("${impatient[@]}" TUTTI_PLUGIN_NET_IB_LINK_DOWN_TIMEOUT=3s)
amid link_gone 3 link_down a
wait_ranks 60
link_up a
said_all="rx[ab]|rank [01]"
record link_gone "link of va down in mid-transfer, stays down" error
await 50 active rxa

stamp "link down and up"
count=40
rank_env=("${impatient[@]}" TUTTI_PLUGIN_NET_IB_LINK_DOWN_TIMEOUT=20s)
blink() { link_down a; sleep 1; link_up a; }
amid link_back 3 blink
wait_ranks 60
said_all="rx[ab]|rank [01]"
record link_back "link of va down in mid-transfer, up after 1 s (one path only)" "right|error"
await 50 active rxa

stamp "all packets lost"
count=2000
rank_env=("${impatient[@]}" TUTTI_PLUGIN_NET_IB_LINK_DOWN_TIMEOUT=3s)
amid silence 3 netem loss 100%
wait_ranks 60
no_netem
said_all="rx[ab]|rank [01]"
record silence "all packets lost from operation 4 on, link up, retry count 6" error

stamp "GID removed and added again"
rank_env=("${impatient[@]}" TUTTI_PLUGIN_NET_IB_LINK_DOWN_TIMEOUT=3s)
count=40
renumber() { gid_gone a; sleep 0.5; gid_back a; }
amid gid 3 renumber
wait_ranks 60
said_all="rx[ab]|rank [01]"
record gid "address of va removed, added again after 0.5 s" "right|error"
start_ranks gid_after 2 "$VM_RANK" loop --count 5 --bytes 65536
wait_ranks 30
record gid_after "a new job after that" right

for phase in bootstrap connect transfer between finalize; do
  stamp "rank 1 killed: $phase"
  rank_env=("${impatient[@]}" TUTTI_INIT_TIMEOUT=8s)
  start_ranks "die_$phase" 2 bash -c '[ "$TUTTI_RANK" = 0 ] && exec "$1" loop "${@:3}"; exec "$1" loop --die "$2" "${@:3}"' _ \
    "$VM_RANK" $phase --count 10 --bytes 1048576
  wait_ranks 40
  expected=error
  [ $phase = finalize ] && expected="right|error"
  [ $phase = finalize ] || said_all="rank 1|missing: 1|missing"
  record "die_$phase" "rank 1 killed ($phase)" "$expected" killed
done

stamp "little memory may be pinned"
rank_env=(VM=1)
start_ranks memlock 2 bash -c 'ulimit -l 64; exec setpriv --bounding-set -ipc_lock --inh-caps -ipc_lock "$@"' _ "$VM_RANK" loop --count 5 --bytes 1048576
wait_ranks 40
said_all="ulimit -l|memlock"
record memlock "ulimit -l 64 (KiB), without CAP_IPC_LOCK" error

stamp "devices that are not there, or not the same"
rank_env=(NCCL_IB_HCA=mlx5_7)
start_ranks no_device 2 "$VM_RANK" loop --count 1
wait_ranks 40
said_all="mlx5_7"
record no_device "NCCL_IB_HCA names a device that is not there" error
rank_env=(NCCL_IB_GID_INDEX=9)
start_ranks no_gid 2 "$VM_RANK" loop --count 1
wait_ranks 40
said_all="gid|GID"
record no_gid "NCCL_IB_GID_INDEX=9, an empty entry" error
rank_env=(VM=1)
rank_env_1=(NCCL_IB_GID_INDEX="$(gid_index rxa fd00:)")
start_ranks gid_family 2 "$VM_RANK" loop --count 1 --limit 40
wait_ranks 45
rank_env_1=()
said_all="GID|gid"
record gid_family "rank 0 has an IPv4 GID, rank 1 an IPv6 one" "right|error"

for mtu in 1500; do
  stamp "MTU"
  ip link set va mtu $mtu
  sleep 1
  rank_env=("${impatient[@]}")
  start_ranks mtu 2 "$VM_RANK" loop --count 5 --bytes 1048576 --limit 40
  wait_ranks 45
  record mtu "va has MTU $mtu, vb 4500" right
  ip link set va mtu 4500
done
show_table
finish
