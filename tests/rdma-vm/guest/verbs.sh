# The devices by themselves: what rdma-core's own programs see and send.
. "$VM_LIB"
make_wires 1
stamp "devices"
ibv_devinfo -v 2>&1 | grep -E "hca_id|state|active_mtu|GID|max_qp:|link_layer"
pingpong() {
  timeout 20 stdbuf -oL ibv_rc_pingpong -d rxa -g 1 -m 4096 -s 65536 -n 200 >"$VM_OUT/server" 2>&1 &
  local server=$!
  await 50 grep -q "local address" "$VM_OUT/server"
  timeout 20 ibv_rc_pingpong -d rxb -g 1 -m 4096 -s 65536 -n 200 127.0.0.1 || return 1
  wait $server
}
stamp "a ping-pong of 200 messages of 64 KiB"
read -r packets bytes < <(sent a)
check "rxa and rxb reach each other" pingpong
read -r packets2 bytes2 < <(sent a)
echo "va sent $((packets2 - packets)) packets, $((bytes2 - bytes)) bytes"
check "packets of 4096 bytes went over the wire" [ $((bytes2 - bytes)) -ge $((200 * 65536)) ]
finish
