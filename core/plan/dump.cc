// Plans for people (text), for tools (JSON) and for graphviz (dot).
#include "plan/refs.h"
#include "plan/wiring.h"
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

namespace tutti {
namespace {

// "OUT[3]", "IN[2 -1 mod 4]": first chunk, then what each iteration adds.
std::string ref_text(const tutti_ref &r, uint32_t repeat) {
  std::string text = fmt::format("{}[{}", buf_name(r.buf), r.first);
  if (r.count > 1) text += fmt::format("..{}", r.first + r.count - 1);
  if (repeat > 1 && r.stride != 0) text += fmt::format(" {:+}", r.stride);
  if (repeat > 1 && r.stride != 0 && r.modulus != 0) text += fmt::format(" mod {}", r.modulus);
  return text + "]";
}

std::string links_text(const std::vector<tutti_link> &links, uint32_t first, uint32_t count, const tutti_step &s) {
  std::string text;
  for (uint32_t i = 0; i < std::min(count, 8u); i++) {
    const tutti_link &l = links[first + i];
    const char *kind = l.flags & TUTTI_LINK_MULTICAST ? "*" : l.flags & TUTTI_LINK_REDUCING ? "group " : "";
    text += fmt::format("{}{}{}/{}", i ? "," : "", kind, l.peer, l.conn);
  }
  if (count > 8) text += fmt::format(",... ({})", count);
  if (s.repeat > 1 && s.link_stride != 0) text += fmt::format(" {:+}", s.link_stride);
  return text;
}

std::string step_text(const Plan &plan, const PlanLane &lane, const tutti_step &s) {
  std::vector<std::string> operands;
  if (s.recv_count == 1) operands.push_back(fmt::format("recv {}", links_text(lane.recv, s.recv_first, 1, s)));
  if (s.recv_count > 1)
    operands.push_back(fmt::format("each of recv {}", links_text(lane.recv, s.recv_first, s.recv_count, s)));
  if (has(s, TUTTI_STEP_SRC)) {
    std::string src = ref_text(s.src, s.repeat);
    if (has(s, TUTTI_STEP_PREOP)) src = fmt::format("pre({})", src);
    if (s.recv_count > 1) src += fmt::format(" at position {}", s.src_pos);
    operands.insert(operands.begin() + (s.recv_count == 1 && s.src_pos == 1 ? 1 : 0), src);
  }
  std::string text;
  for (const std::string &o : operands) text += fmt::format("{}{}", text.empty() ? "" : " (+) ", o);
  if (has(s, TUTTI_STEP_POSTOP)) text = fmt::format("post({})", text);
  if (has(s, TUTTI_STEP_STORE))
    text += fmt::format(" -> {}", ref_text(s.dst, s.repeat));
  else if (!has(s, TUTTI_STEP_SRC))
    text += fmt::format(" sized as {}", ref_text(s.dst, s.repeat));
  if (has(s, TUTTI_STEP_SEND)) text += fmt::format(", send {}", links_text(lane.send, s.send_first, s.send_count, s));
  for (uint32_t d = 0; d < s.dep_count; d++) {
    const tutti_dep &dep = plan.deps[s.dep_first + d];
    text += fmt::format("{} lane {} step {}", d ? "," : ", after", dep.lane, dep.step);
  }
  return text;
}

std::string life_text(uint32_t life) {
  std::string text;
  const auto add = [&](uint32_t bit, const char *name) {
    if (life & bit) text += fmt::format("{}{}", text.empty() ? "" : " ", name);
  };
  add(kSendHome, "send-home");
  add(kSendHomeInPlace, "send-home-in-place");
  add(kRecvHome, "recv-home");
  add(kRecvEarly, "recv-early");
  add(kRecvEarlyInPlace, "recv-early-in-place");
  return text;
}

nlohmann::ordered_json ref_json(const tutti_ref &r) {
  return {{"buf", std::string(buf_name(r.buf))},
          {"count", r.count},
          {"first", r.first},
          {"stride", r.stride},
          {"modulus", r.modulus}};
}

nlohmann::ordered_json step_json(const Plan &plan, const PlanLane &lane, size_t at) {
  const tutti_step &s = lane.steps[at];
  constexpr std::pair<uint32_t, const char *> kOps[] = {
      {TUTTI_STEP_SRC, "src"},       {TUTTI_STEP_PREOP, "preop"}, {TUTTI_STEP_RECV, "recv"}, {TUTTI_STEP_REDUCE, "reduce"},
      {TUTTI_STEP_POSTOP, "postop"}, {TUTTI_STEP_STORE, "store"}, {TUTTI_STEP_SEND, "send"}};
  nlohmann::ordered_json j{{"ops", nlohmann::ordered_json::array()}, {"repeat", s.repeat}};
  for (const auto &[bit, name] : kOps)
    if (s.ops & bit) j["ops"].push_back(name);
  if (has(s, TUTTI_STEP_SRC)) j["src"] = ref_json(s.src);
  if (s.dst.count > 0) j["dst"] = ref_json(s.dst);
  if (s.recv_count) j["recv"] = {{"first", s.recv_first}, {"count", s.recv_count}};
  if (s.send_count) j["send"] = {{"first", s.send_first}, {"count", s.send_count}};
  if (s.link_stride) j["link_stride"] = s.link_stride;
  if (has(s, TUTTI_STEP_REDUCE)) j["src_pos"] = s.src_pos;
  for (uint32_t d = 0; d < s.dep_count; d++)
    j["after"].push_back({{"lane", plan.deps[s.dep_first + d].lane}, {"step", plan.deps[s.dep_first + d].step}});
  j["life"] = life_text(lane.life[at]);
  return j;
}

nlohmann::ordered_json links_json(const std::vector<tutti_link> &links) {
  auto j = nlohmann::ordered_json::array();
  for (const tutti_link &l : links)
    j.push_back({{"peer", l.peer},
                 {"conn", l.conn},
                 {"multicast", (l.flags & TUTTI_LINK_MULTICAST) != 0},
                 {"reducing", (l.flags & TUTTI_LINK_REDUCING) != 0}});
  return j;
}

nlohmann::ordered_json plan_json(const Plan &p) {
  nlohmann::ordered_json j{{"rank", p.request.rank}, {"lanes", nlohmann::ordered_json::array()}};
  for (const auto &id : p.scratch_size)
    j["scratch_size"].push_back({{"buf", std::string(buf_name(id.buf))}, {"chunk", id.chunk}});
  for (const PlanLane &lane : p.lanes) {
    nlohmann::ordered_json l{{"group", lane.group},
                             {"recv", links_json(lane.recv)},
                             {"send", links_json(lane.send)},
                             {"steps", nlohmann::ordered_json::array()}};
    for (size_t i = 0; i < lane.steps.size(); i++) l["steps"].push_back(step_json(p, lane, i));
    j["lanes"].push_back(std::move(l));
  }
  return j;
}

// The chunks that one link carries in a slice, in order: "3 2 1", cut after a dozen.
std::string traffic(const PlanLane &lane, uint32_t link) {
  std::string text;
  size_t messages = 0;
  for (const tutti_step &s : lane.steps)
    for (uint32_t i = 0; i < s.repeat && s.send_count > 0; i++) {
      const int64_t lo = s.send_first + static_cast<int64_t>(i) * s.link_stride;
      if (link < lo || link >= lo + s.send_count) continue;
      const int64_t chunk = ref_first(sizing_ref(s), i);
      if (messages++ < 12) text += fmt::format("{}{}{}", text.empty() ? "" : " ", has(s, TUTTI_STEP_REDUCE) ? "+" : "", chunk);
    }
  return messages > 12 ? text + fmt::format(" ... ({} messages)", messages) : text;
}

} // namespace

std::string dump_text(const Plan &plan) {
  std::string out =
      fmt::format("{} by {}, rank {} of {}", coll_name(plan.request.coll), plan.algo, plan.request.rank, plan.request.nranks);
  if (plan.request.root >= 0) out += fmt::format(", root {}", plan.request.root);
  out += fmt::format(": {} group{}, {} chunk{} per block, {} scratch, depth >= {}\n", plan.groups, plan.groups == 1 ? "" : "s",
                     plan.pieces(), plan.pieces() == 1 ? "" : "s", plan.scratch_chunks, plan.min_depth);
  for (size_t l = 0; l < plan.lanes.size(); l++) {
    const PlanLane &lane = plan.lanes[l];
    out += fmt::format("lane {} (group {})\n", l, lane.group);
    for (size_t i = 0; i < lane.steps.size(); i++) {
      const tutti_step &s = lane.steps[i];
      const std::string life = life_text(lane.life[i]);
      out += fmt::format("  {:>3}  {:<6}{}{}\n", i, s.repeat > 1 ? fmt::format("x{}", s.repeat) : "", step_text(plan, lane, s),
                         life.empty() ? "" : fmt::format("  [{}]", life));
    }
  }
  return out;
}

std::string dump_json(Plans plans) {
  if (plans.empty()) return "{}\n";
  const Plan &p = *plans[0];
  nlohmann::ordered_json j{{"algo", p.algo},
                           {"coll", std::string(coll_name(p.request.coll))},
                           {"nranks", p.request.nranks},
                           {"root", p.request.root},
                           {"channels", p.request.channels},
                           {"groups", p.groups},
                           {"in_chunks", p.in_chunks},
                           {"out_chunks", p.out_chunks},
                           {"min_depth", p.min_depth},
                           {"window", p.window},
                           {"plans", nlohmann::ordered_json::array()}};
  for (const auto &plan : plans) j["plans"].push_back(plan_json(*plan));
  return j.dump(1) + "\n";
}

std::string dump_dot(Plans plans) {
  if (plans.empty()) return "digraph plan {}\n";
  std::string out = fmt::format("digraph plan {{\n  label=\"{} by {}, {} ranks: chunks per link and slice, + combined\";\n",
                                coll_name(plans[0]->request.coll), plans[0]->algo, plans[0]->request.nranks);
  out += "  layout=circo; node [shape=circle];\n";
  std::set<int32_t> groups;
  for (const auto &p : plans)
    for (const PlanLane &lane : p->lanes) {
      for (const tutti_link &l : lane.recv)
        if (l.flags & TUTTI_LINK_REDUCING) {
          groups.insert(l.peer);
          out += fmt::format("  group{} -> {};\n", l.peer, p->request.rank);
        }
      for (uint32_t i = 0; i < lane.send.size(); i++) {
        const std::string label = traffic(lane, i);
        if (lane.send[i].flags & TUTTI_LINK_REDUCING) {
          groups.insert(lane.send[i].peer);
          out += fmt::format("  {} -> group{} [label=\"{}\"];\n", p->request.rank, lane.send[i].peer, label);
        } else if (lane.send[i].flags & TUTTI_LINK_MULTICAST) {
          for (const auto &to : plans)
            if (to != p && to->request.node_of_rank[static_cast<size_t>(to->request.rank)] ==
                               p->request.node_of_rank[static_cast<size_t>(p->request.rank)])
              out += fmt::format("  {} -> {} [label=\"{}\", style=dashed];\n", p->request.rank, to->request.rank, label);
        } else {
          out += fmt::format("  {} -> {} [label=\"{}\"];\n", p->request.rank, lane.send[i].peer, label);
        }
      }
    }
  for (const int32_t g : groups) out += fmt::format("  group{} [label=\"group {}\", shape=box];\n", g, g);
  return out + "}\n";
}

} // namespace tutti
