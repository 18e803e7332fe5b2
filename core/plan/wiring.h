// tutti/core/plan/wiring.h: the links of all ranks' plans joined into wires, for those who run all ranks in one process.
#pragma once
#include "plan/check.h"

namespace tutti {

// Collects findings up to the limit of check_plans().
class Findings {
public:
  template <class... A> void add(const char *rule, fmt::format_string<A...> text, A &&...a) {
    if (!full()) list_.push_back({rule, fmt::format(text, std::forward<A>(a)...)});
  }
  bool full() const { return list_.size() >= 20; }
  bool empty() const { return list_.empty(); }
  std::vector<PlanFinding> take() { return std::move(list_); }

private:
  std::vector<PlanFinding> list_;
};

// One FIFO. A multicast link is one wire per reader.
struct Wire {
  uint32_t src = 0, dst = 0; // ranks
  uint16_t conn = 0;
  uint32_t writer = 0, reader = 0; // lanes, numbered over all ranks
  uint32_t width = 1;              // chunks of its widest message
};

using Plans = std::span<const std::shared_ptr<const Plan>>;

struct Wiring {
  std::vector<uint32_t> lane_base; // by rank: number of its first lane; one more entry at the end
  std::vector<Wire> wires;
  std::vector<uint32_t> recv_base, send_base;  // by lane: where its links begin in the next two
  std::vector<uint32_t> recv_wire;             // by receive link
  std::vector<uint32_t> send_start, send_wire; // by send link: range of its wires; one more entry at the end

  std::span<const uint32_t> targets(uint32_t lane, uint32_t pos) const {
    const uint32_t link = send_base[lane] + pos;
    return std::span(send_wire).subspan(send_start[link], send_start[link + 1] - send_start[link]);
  }
  uint32_t source(uint32_t lane, uint32_t pos) const { return recv_wire[recv_base[lane] + pos]; }
};

// Plans of ranks 0 .. n-1 that belong together: adds findings "shape" where they do not.
void check_shapes(Plans plans, Findings &findings);
// Pairs every send link with its receive link; findings "link" for what has no other end or other message counts.
Wiring wire_links(Plans plans, Findings &findings);

} // namespace tutti
