# Two guests, a rank in each: nothing is shared but the wire between them.
. "$VM_LIB"
at=10.9.0.$((VM_INDEX + 1))
nic=$(basename /sys/class/net/e*)
ip link set "$nic" mtu 4500 up
ip addr add $at/24 dev "$nic"
rdma link add rx0 type rxe netdev "$nic"
await 50 active rx0
await 100 busybox ping -c 1 -W 1 10.9.0.$((2 - VM_INDEX)) >/dev/null
stamp "guest $VM_INDEX: $at on $nic"
TUTTI_RANK=$VM_INDEX TUTTI_NRANKS=2 TUTTI_COMM_ID=10.9.0.1:4477 TUTTI_INIT_TIMEOUT=$((60 * slowness))s TUTTI_NET=ib \
  "$VM_RANK" loop --count 10 --bytes 1048576 >"$VM_OUT/two.$VM_INDEX" 2>&1
check "all-reduce of 1 MiB across two kernels, 10 times" [ $? = 0 ]
grep -E "right|error|WRONG" "$VM_OUT/two.$VM_INDEX"
echo "packets sent by rx0: $(cat /sys/class/infiniband/rx0/ports/1/hw_counters/sent_pkts)"
check "the device carried them" [ "$(cat /sys/class/infiniband/rx0/ports/1/hw_counters/sent_pkts)" -gt 2000 ]
finish
