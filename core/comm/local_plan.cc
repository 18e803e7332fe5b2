#include "comm/local_plan.h"
#include "comm/startup.h"
#include "plan/life.h"
#include "tutti/plugin/proto.h"

namespace tutti {
namespace {

tutti_ref one_chunk(uint16_t buf, uint32_t chunk) {
  return {buf, 1, static_cast<int32_t>(chunk), 0, 0};
}

tutti_step copy_step(uint32_t from, uint32_t to, uint32_t extra_ops) {
  tutti_step s{};
  s.ops = TUTTI_STEP_SRC | TUTTI_STEP_STORE | extra_ops;
  s.repeat = 1;
  s.src = one_chunk(TUTTI_BUF_IN, from);
  s.dst = one_chunk(TUTTI_BUF_OUT, to);
  return s;
}

tutti_step send_step(uint32_t from) {
  tutti_step s{};
  s.ops = TUTTI_STEP_SRC | TUTTI_STEP_SEND;
  s.repeat = 1;
  s.src = one_chunk(TUTTI_BUF_IN, from);
  s.send_count = 1;
  return s;
}

tutti_step recv_step(uint32_t to) {
  tutti_step s{};
  s.ops = TUTTI_STEP_RECV | TUTTI_STEP_STORE;
  s.repeat = 1;
  s.dst = one_chunk(TUTTI_BUF_OUT, to);
  s.recv_count = 1;
  return s;
}

Result<std::shared_ptr<const Plan>> finished(std::shared_ptr<Plan> plan) {
  TUTTI_TRY(find_life(*plan));
  return std::shared_ptr<const Plan>(std::move(plan));
}

} // namespace

Result<std::shared_ptr<const Plan>> local_plan(tutti_coll coll) {
  auto plan = std::make_shared<Plan>();
  plan->algo = "local";
  plan->request = PlanRequest::simple(coll, 0, 1);
  plan->in_chunks = plan->out_chunks = 1;
  PlanLane &lane = plan->lanes.emplace_back();
  lane.steps.push_back(copy_step(0, 0, TUTTI_STEP_PREOP | TUTTI_STEP_POSTOP));
  return finished(std::move(plan));
}

Result<Selection> local_selection() {
  TUTTI_ASSIGN(p, process());
  const auto protos = p.registry->all<tutti_proto_v1>(TUTTI_PROTO);
  if (protos.empty()) return fail(Code::invalid_usage, "no protocol plugin is loaded");
  for (const auto &proto : protos)
    if (proto.table->signal == TUTTI_SIGNAL_COUNTER) return Selection{proto, 1 << 20, 2, 0};
  return Selection{protos.front(), 1 << 20, 2, 0};
}

Result<std::shared_ptr<const Plan>> p2p_plan(int rank, int nranks, std::span<const PairCount> pairs) {
  auto plan = std::make_shared<Plan>();
  plan->algo = "p2p";
  plan->request = PlanRequest::simple(TUTTI_COLL_SEND_RECV, rank, nranks);
  plan->step_major = true;
  uint32_t sends = 0, recvs = 0;
  for (const PairCount &p : pairs) {
    if (p.peer == rank) {
      PlanLane &lane = plan->lanes.emplace_back();
      for (uint32_t i = 0; i < p.sends; i++) lane.steps.push_back(copy_step(sends + i, recvs + i, 0));
    } else {
      const tutti_link link{p.peer, kP2pConn, 0};
      if (p.recvs) {
        PlanLane &lane = plan->lanes.emplace_back();
        lane.recv.push_back(link);
        for (uint32_t i = 0; i < p.recvs; i++) lane.steps.push_back(recv_step(recvs + i));
      }
      if (p.sends) {
        PlanLane &lane = plan->lanes.emplace_back();
        lane.send.push_back(link);
        for (uint32_t i = 0; i < p.sends; i++) lane.steps.push_back(send_step(sends + i));
      }
    }
    sends += p.sends;
    recvs += p.recvs;
  }
  plan->in_chunks = sends;
  plan->out_chunks = recvs;
  return finished(std::move(plan));
}

} // namespace tutti
