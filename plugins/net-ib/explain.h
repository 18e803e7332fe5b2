// tutti/plugins/net-ib/explain.h: one sentence for what went wrong: what, to whom, the number and its name, what to do.
#pragma once
#include "ports.h"

namespace tutti::net_ib {

// One end and the other, as far as they are known. Texts of the peer come from its address.
struct Ends {
  const Port *own = nullptr;
  std::string peer;     // "rank 3" or what the endpoint knows of it, may be ""
  std::string peer_gid; // or "LID 7"
};

// "mlx5_0:1 (GID ::ffff:10.0.0.1) -> ::ffff:10.0.0.2"
std::string describe(const Ends &ends);

// A completion that failed. `opcode` is what the request was (it is undefined in a failed completion).
std::string explain(const ibv_wc &wc, const char *request, const Ends &ends, const Settings &settings);

// What a failed completion is for the core: REMOTE where the peer or the way to it is at fault.
tutti_status status_of(ibv_wc_status status);

// err: errno of the call.
std::string explain_open(int err, const std::string &device);
std::string explain_create_qp(int err, const Port &port, uint32_t send_wr, uint32_t recv_wr, uint32_t inline_bytes);
std::string explain_create_cq(int err, const Port &port, int entries);
std::string explain_reg_mr(int err, const Port &port, const void *addr, uint64_t bytes, tutti_mem_kind kind);
// To: INIT, RTR or RTS, of which RTR is where GIDs and neighbours are looked up.
std::string explain_modify_qp(int err, ibv_qp_state to, const Ends &ends);
// Whether a move to RTR that failed so may succeed a moment later (the neighbour is being looked up).
bool worth_retrying(int err, ibv_qp_state to);

// Two ends that cannot talk with each other: "" or why not.
struct PeerPort {
  bool ethernet = false;
  ibv_gid gid{};
  uint16_t lid = 0;
  ibv_mtu mtu = IBV_MTU_1024;
};
std::string mismatch(const Port &own, const PeerPort &peer);
// The ends have different MTUs: the smaller one is used, and what that may mean. "" when they are the same.
std::string mtu_note(const Port &own, ibv_mtu peer);

// All ports of an endpoint are down for too long. since_ns: how long.
std::string explain_all_down(const std::vector<Ends> &paths, nanoseconds for_how_long);

} // namespace tutti::net_ib
