# Links and addresses that go, ranks that die, limits and settings that do not fit: what each rank says then, and whether the data was
# right. Arguments: cases to run, instead of all.
. "$VM_LIB"
make_wires 1
# The device gives up within a second; with retry count 7 it never does.
impatient=(NCCL_IB_RETRY_CNT=6 NCCL_IB_TIMEOUT=14)
mib=1048576
names_way="rx[ab]:1"

link_gone() {
  rank_env=("${impatient[@]}" TUTTI_PLUGIN_NET_IB_LINK_DOWN_TIMEOUT=3s)
  amid link_gone 2000 $mib link_down a
  wait_ranks 60
  link_up a
  said_all=$names_way
  record link_gone "link of va down in mid-transfer, stays down" error
  await 50 active rxa
}

link_back() {
  blink() { link_down a; sleep 1; link_up a; }
  rank_env=("${impatient[@]}" TUTTI_PLUGIN_NET_IB_LINK_DOWN_TIMEOUT=20s)
  amid link_back 40 $mib blink
  wait_ranks 60
  said_all=$names_way
  record link_back "link of va down in mid-transfer, up after 1 s (there is no other path)" "right|error"
  await 50 active rxa
}

silence() {
  rank_env=("${impatient[@]}" TUTTI_PLUGIN_NET_IB_LINK_DOWN_TIMEOUT=3s)
  amid silence 2000 $mib netem loss 100%
  wait_ranks 60
  no_netem
  said_all=$names_way
  record silence "all packets lost in mid-transfer, link up" error
}

gid() {
  renumber() { gid_gone a; sleep 0.5; gid_back a; }
  rank_env=("${impatient[@]}" TUTTI_PLUGIN_NET_IB_LINK_DOWN_TIMEOUT=3s)
  amid gid 40 $mib renumber
  wait_ranks 60
  said_all=$names_way
  record gid "address of va removed in mid-transfer, added again after 0.5 s" "right|error"
  start_ranks gid_after 2 "$VM_RANK" loop --count 5 --bytes 65536
  wait_ranks 40
  record gid_after "a new job after that" right
}

# Rank 1 kills itself in a phase of its life.
die_in() { # phase, expected of rank 0
  local name=die_$1
  rank_env=("${impatient[@]}" TUTTI_INIT_TIMEOUT=$((8 * slowness))s)
  start_ranks "$name" 2 bash -c '[ "$TUTTI_RANK" = 0 ] || die=(--die "$2"); exec "$1" loop "${die[@]}" "${@:3}"' _ "$VM_RANK" "$1" \
    --count 10 --bytes $mib
  wait_ranks 40
  said_all="rank 1|missing: 1"
  record "$name" "rank 1 killed: $1" "$2" killed
}
die_bootstrap() { die_in bootstrap error; }
die_connect() { die_in connect error; }
die_transfer() { die_in transfer error; }
die_between() { die_in between error; }
die_finalize() { die_in finalize "right|error"; }

memlock() {
  start_ranks memlock 2 bash -c 'ulimit -l 64; exec setpriv --bounding-set -ipc_lock --inh-caps -ipc_lock "$@"' _ "$VM_RANK" loop \
    --count 5 --bytes $mib
  wait_ranks 40
  said_all="ulimit -l|memlock"
  record memlock "64 KiB may be pinned (ulimit -l), no CAP_IPC_LOCK" error
}

# Settings that name nothing, or that differ.
no_device() {
  rank_env=(NCCL_IB_HCA=mlx5_7)
  start_ranks no_device 2 "$VM_RANK" loop --count 1
  wait_ranks 40
  said_all="mlx5_7"
  record no_device "NCCL_IB_HCA names a device that is not there" error
}
no_gid() {
  rank_env=(NCCL_IB_GID_INDEX=9)
  start_ranks no_gid 2 "$VM_RANK" loop --count 1
  wait_ranks 40
  said_all="gid|GID"
  record no_gid "NCCL_IB_GID_INDEX=9, an empty entry" error
}
gid_family() {
  rank_env_1=(NCCL_IB_GID_INDEX="$(gid_index rxb fd00:)")
  start_ranks gid_family 2 "$VM_RANK" loop --count 1
  wait_ranks 60
  said_all="GID|gid"
  record gid_family "rank 0 has an IPv4 GID, rank 1 an IPv6 one" error
}
mtu() {
  ip link set va mtu 1500
  sleep 1
  rank_env=("${impatient[@]}")
  start_ranks mtu 2 "$VM_RANK" loop --count 5 --bytes $mib
  wait_ranks 60
  record mtu "va has MTU 1500, vb 4500" right
  ip link set va mtu 4500
}

run_cases link_gone link_back silence gid die_bootstrap die_connect die_transfer die_between die_finalize memlock no_device no_gid \
  gid_family mtu
show_table
finish
