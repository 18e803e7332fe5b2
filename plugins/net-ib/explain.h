// tutti/plugins/net-ib/explain.h: one sentence for what went wrong: what, to whom, the number and its name, what to do.
#pragma once
#include "ports.h"
#include "tutti/plugin/base.h"

namespace tutti::net_ib {

// One end and the other, as far as they are known.
struct Ends {
  const Port *own = nullptr;
  std::string peer_gid;  // or "LID 7", may be ""
  uint32_t peer_mtu = 0; // bytes, 0 = unknown
};

// "mlx5_0:1 (GID ::ffff:10.0.0.1, index 3) -> GID ::ffff:10.0.0.2"
std::string describe(const Ends &ends);

// A completion that failed. `request`: what was asked for, "a write" (a failed completion does not say).
std::string explain(const ibv_wc &wc, const char *request, const Ends &ends, const Settings &settings);
// What a failed completion is for the core: REMOTE where the peer or the way to it is at fault.
tutti_status status_of(ibv_wc_status status);

// err: errno of the call.
std::string explain_open(int err);
std::string explain_create_qp(int err, const Port &port, uint32_t send_wr, uint32_t recv_wr, uint32_t inline_bytes);
// `device`: its name, or a port's. `call`: the function that failed, "ibv_reg_mr".
std::string explain_reg_mr(int err, const std::string &device, const char *call, const void *addr, uint64_t bytes);
// To INIT, RTR or RTS. RTR is where GIDs and neighbours are looked up.
std::string explain_modify_qp(int err, ibv_qp_state to, const Ends &ends);
// Whether a move that failed so may succeed a moment later: the neighbour is being looked up, or addresses are being set.
bool worth_retrying(int err, ibv_qp_state to);

// Two ends that cannot talk with each other: why not; "" when they can.
struct PeerPort {
  bool ethernet = false;
  ibv_gid gid{};
};
std::string mismatch(const Port &own, const PeerPort &peer);

// All ports of an endpoint are down for too long.
std::string explain_all_down(const std::vector<Ends> &paths, nanoseconds how_long);

} // namespace tutti::net_ib
