# What continuous integration always runs: the devices as tutti sees them, the plugin's rules, verified operations over the wire.
. "$VM_LIB"
make_wires 1
stamp "tutti info"
TUTTI_NET=ib tutti info | tee "$VM_OUT/info"
check "tutti info lists both devices" eval 'grep -q rxa "$VM_OUT/info" && grep -q rxb "$VM_OUT/info"'

stamp "the verbs that the unit tests' double imitates"
check "cases of the double hold with real verbs" timeout 60 "$VM_BUILD/tests/net_ib_verbs_cases"

stamp "conformance: devices and connections"
for only in N-1 N-2; do
  NCCL_IB_HCA=rxa check "conformance $only*" timeout 100 tutti check-plugin --only $only "$VM_PLUGIN"
done

stamp "all-reduce over two devices"
sent_before a
start_ranks all_reduce 2 "$VM_RANK" loop --count 10 --bytes 1048576
wait_ranks 40
record all_reduce "nothing" right
wire_carried a 10485760
show_table
finish
