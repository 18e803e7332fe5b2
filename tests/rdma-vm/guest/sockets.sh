# The harness itself, without RDMA: ranks over sockets through the same wires.
. "$VM_LIB"
make_wires 1
net=socket
stamp "two ranks, sockets"
start_ranks sockets 2 "$VM_BUILD/tests/rdma_rank" loop --count 5 --bytes 1048576
wait_ranks 40
record sockets "nothing" right
rank_env_1=(VM=1)
start_ranks killed 2 "$VM_BUILD/tests/rdma_rank" loop --count 2000 --bytes 65536
await 100 said killed 1 "1: 10 done" && kill -9 "${rank_pids[1]}"
wait_ranks 40
record killed "rank 1 killed in an operation" error killed
show_table
finish
