# What continuous integration always runs: the devices as tutti sees them, the plugin's rules, verified operations over the wire.
. "$VM_LIB"
make_wires 1
stamp "tutti info"
TUTTI_NET=ib tutti info | tee "$VM_OUT/info"
check "tutti info lists both devices" eval 'grep -q rxa "$VM_OUT/info" && grep -q rxb "$VM_OUT/info"'

stamp "the verbs that the unit tests' double imitates"
check "they hold on real devices" timeout $((100 * slowness)) "$VM_BUILD/tests/net_ib_verbs_cases" rxa rxb

stamp "conformance: messages"
NCCL_IB_HCA=rxa check "conformance of net-ib, N-2*" timeout $((100 * slowness)) tutti check-plugin --only N-2 "$VM_PLUGIN"

stamp "all-reduce over two devices"
sent_before a
start_ranks all_reduce 2 "$VM_RANK" loop --count 10 --bytes 1048576
wait_ranks 40
record all_reduce "nothing" right
wire_carried a 10485760
show_table
finish
