#include "executor.h"
#include "base/types.h"
#include "plan/chunks.h"
#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <tuple>

namespace plans {
namespace {

constexpr uint64_t kSlice = 128; // bytes

uint64_t scramble(uint64_t x) {
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdu;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53u;
  return x ^ (x >> 33);
}

// `sum` forgets the order of reduction, `order` does not.
struct Word {
  uint64_t sum = 0, order = 0;
  bool operator==(const Word &) const = default;
};
Word before(Word v, int rank) {
  const uint64_t by = 2 * static_cast<uint64_t>(rank) + 3;
  return {v.sum * by, v.order * by};
}
Word after(Word v) {
  return {v.sum * 5 + 1, v.order * 5 + 1};
}
Word both(Word a, Word b) {
  return {a.sum + b.sum, a.order * 31 + b.order};
}

struct Part {
  uint64_t bytes = 0;
  Word value;
  const Word *home = nullptr; // the sender's memory, read when the message is taken
};
struct Message {
  std::vector<Part> parts;
  uint32_t delay = 0; // looks until it has arrived
};
struct Link {
  std::vector<Message> queue; // a handful at most
  uint32_t depth = 2;
  bool has_writer = false, has_reader = false;
};
struct Runner { // a lane at work, or a collnet group, which has a rank number behind those of ranks
  size_t rank = 0, lane = 0;
  bool group = false;
  uint64_t slice = 0;
  uint32_t step = 0, iter = 0;
  bool taken = false;
  std::vector<Part> value; // between take and put
  std::vector<size_t> recv;
  std::vector<std::vector<size_t>> send;
  uint64_t rank_in_line = 0; // priority under strict schedules
};

} // namespace

struct Executor::Impl {
  const PlanSet &plans;
  const tutti_coll coll;
  const int n, root;
  const bool in_place, nonuniform;
  uint64_t block = 0, slices = 0;
  struct Memory {
    std::vector<uint64_t> in_bytes, out_bytes, in_at, out_at; // by block; offsets in a buffer of its own
    std::vector<Word> in, out, scratch, in0;                  // [chunk of all groups][slice]; scratch [copy][chunk]
    bool has_in = false, has_out = false;
    uint64_t window = 1;
  };
  std::vector<Memory> memory;
  std::vector<Link> links;
  std::vector<Runner> runners;
  std::string unwired, failure;
  std::mt19937_64 random;

  Impl(const PlanSet &p, bool place, Layout layout)
      : plans(p), coll(p[0]->request.coll), n(p[0]->request.nranks), root(p[0]->request.root), in_place(place),
        nonuniform(p[0]->request.flags & TUTTI_REQ_NONUNIFORM) {
    const uint64_t parts = uint64_t{p[0]->groups} * p[0]->pieces();
    block = layout == Layout::even ? parts * kSlice * 3 : parts * 192 - std::min<uint64_t>(parts * 192 - 8, 328);
    if (coll == TUTTI_COLL_BARRIER) block = 8;
    for (int r = 0; r < n; r++) lay_out(r);
    wire();
  }

  // ---- sizes ------------------------------------------------------------------------------------------------------------
  uint64_t size(int from, int to) const { // of the block that goes from `from` to `to`
    if (!nonuniform) return block;
    const bool many_out = coll == TUTTI_COLL_ALL_TO_ALL;
    const bool by_target = coll == TUTTI_COLL_REDUCE_SCATTER || coll == TUTTI_COLL_SCATTER;
    const uint64_t h = scramble(static_cast<uint64_t>(many_out ? from * 64 + to : by_target ? to : from) + 5);
    return h % 4 == 0 ? 0 : block / 2 + h % 7 * 40;
  }
  void lay_out(int r) {
    Memory &m = memory.emplace_back();
    const int ins = static_cast<int>(coll_in_blocks(coll, static_cast<uint32_t>(n)));
    const int outs = static_cast<int>(coll_out_blocks(coll, static_cast<uint32_t>(n)));
    const auto fill = [](std::vector<uint64_t> &at, const std::vector<uint64_t> &bytes) {
      uint64_t sum = 0;
      for (const uint64_t b : bytes) at.push_back(sum), sum += b;
    };
    for (int b = 0; b < ins; b++) m.in_bytes.push_back(ins > 1 ? size(r, b) : size(r, r));
    for (int b = 0; b < outs; b++) m.out_bytes.push_back(outs > 1 ? size(b, r) : size(r, r));
    fill(m.in_at, m.in_bytes);
    fill(m.out_at, m.out_bytes);
    m.has_in = (coll != TUTTI_COLL_BROADCAST && coll != TUTTI_COLL_SCATTER) || r == root;
    m.has_out = (coll != TUTTI_COLL_REDUCE && coll != TUTTI_COLL_GATHER) || r == root;
    const Plan &p = *plans[static_cast<size_t>(r)];
    for (uint32_t g = 0; g < p.groups; g++) {
      for (uint32_t c = 0; c < p.in_chunks; c++) slices = std::max(slices, slices_of(span(r, g, TUTTI_BUF_IN, c)));
      for (uint32_t c = 0; c < p.out_chunks; c++) slices = std::max(slices, slices_of(span(r, g, TUTTI_BUF_OUT, c)));
    }
  }
  static uint64_t slices_of(Span s) { return (s.bytes + kSlice - 1) / kSlice; }
  Span span(int r, uint32_t group, uint32_t buf, uint32_t chunk) const {
    const Plan &p = *plans[static_cast<size_t>(r)];
    if (buf == TUTTI_BUF_SCRATCH) return span(r, group, p.scratch_size[chunk].buf, p.scratch_size[chunk].chunk);
    const Memory &m = memory[static_cast<size_t>(r)];
    const auto &bytes = buf == TUTTI_BUF_IN ? m.in_bytes : m.out_bytes;
    const auto &at = buf == TUTTI_BUF_IN ? m.in_at : m.out_at;
    return chunk_span({static_cast<uint32_t>(bytes.size()), 0, bytes.data(), at.data()}, p.pieces(), p.groups, group, chunk);
  }
  uint64_t bytes_at(const Runner &l, uint32_t buf, uint32_t chunk) const {
    const Plan &p = *plans[l.rank];
    return slice_span(span(static_cast<int>(l.rank), p.lanes[l.lane].group, buf, chunk), kSlice, l.slice).bytes;
  }

  // ---- memory -----------------------------------------------------------------------------------------------------------
  // The OUT chunk that is the same memory as IN chunk c, in place.
  std::optional<uint32_t> alias(size_t r, uint32_t c) const {
    const Memory &m = memory[r];
    if (!in_place || !m.has_in || !m.has_out || coll == TUTTI_COLL_ALL_TO_ALL) return std::nullopt;
    const uint32_t k = plans[r]->pieces(), me = static_cast<uint32_t>(r);
    if (coll == TUTTI_COLL_ALL_GATHER || coll == TUTTI_COLL_GATHER) return me * k + c;
    if (coll != TUTTI_COLL_REDUCE_SCATTER && coll != TUTTI_COLL_SCATTER) return c;
    if (c / k != me) return std::nullopt;
    return c % k;
  }
  Word *word(const Runner &l, uint32_t buf, uint32_t chunk) {
    const Plan &p = *plans[l.rank];
    Memory &m = memory[l.rank];
    const uint64_t group = p.lanes[l.lane].group;
    if (buf == TUTTI_BUF_SCRATCH) return &m.scratch[(l.slice % m.window) * p.scratch_chunks + chunk];
    if (buf == TUTTI_BUF_IN)
      if (const auto same = alias(l.rank, chunk)) return &m.out[(group * p.out_chunks + *same) * slices + l.slice];
    return buf == TUTTI_BUF_IN ? &m.in[(group * p.in_chunks + chunk) * slices + l.slice]
                               : &m.out[(group * p.out_chunks + chunk) * slices + l.slice];
  }
  // What rank r's user put into its IN: a function of the place and length, so that other cuts are other words.
  Word given(int r, uint64_t in_block, uint64_t offset, uint64_t bytes) const {
    const uint64_t v = scramble(scramble(static_cast<uint64_t>(r) * 977 + in_block) ^ (offset * 131 + bytes));
    return {v, v};
  }
  Word given(int r, uint32_t group, uint32_t chunk, uint64_t slice) const {
    const uint64_t b = chunk / plans[static_cast<size_t>(r)]->pieces();
    const Span s = slice_span(span(r, group, TUTTI_BUF_IN, chunk), kSlice, slice);
    return given(r, b, s.offset - memory[static_cast<size_t>(r)].in_at[b], s.bytes);
  }
  void reset() {
    for (size_t r = 0; r < plans.size(); r++) {
      const Plan &p = *plans[r];
      Memory &m = memory[r];
      // Without scratch the engine lets lanes run apart as they like; with it some number is chosen.
      m.window = p.window ? p.window : p.scratch_chunks ? 1 + random() % 3 : slices + 1;
      m.out.assign(uint64_t{p.groups} * p.out_chunks * slices, {0xbad, 0xbad});
      m.in.assign(uint64_t{p.groups} * p.in_chunks * slices, {});
      m.scratch.assign(m.window * p.scratch_chunks, {0xdead, 0xdead});
      if (!m.has_in) continue;
      for (uint32_t g = 0; g < p.groups; g++)
        for (uint32_t c = 0; c < p.in_chunks; c++)
          for (uint64_t s = 0; s < slices; s++) {
            const Word v = given(static_cast<int>(r), g, c, s);
            m.in[(uint64_t{g} * p.in_chunks + c) * slices + s] = v;
            if (const auto same = alias(r, c)) m.out[(uint64_t{g} * p.out_chunks + *same) * slices + s] = v;
          }
    }
    for (Link &l : links) l.queue.clear();
    for (Runner &l : runners) {
      l.slice = 0;
      l.step = l.iter = 0;
      l.taken = false;
      l.rank_in_line = random();
    }
    failure.clear();
    land_early();
  }
  // What may land before its step is reached may be there from the beginning: whoever reads its place first reads that.
  void land_early() {
    for (Runner &l : runners) {
      if (l.group) continue;
      const PlanLane &lane = plans[l.rank]->lanes[l.lane];
      for (size_t i = 0; memory[l.rank].has_out && i < lane.steps.size(); i++)
        for (uint32_t iter = 0; (lane.life[i] & (in_place ? kRecvEarlyInPlace : kRecvEarly)) && iter < lane.steps[i].repeat;
             iter++)
          for (l.slice = 0; l.slice < slices; l.slice++)
            for (uint32_t j = 0; j < lane.steps[i].dst.count; j++)
              *word(l, TUTTI_BUF_OUT, chunk_of(lane.steps[i].dst, iter) + j) = {0xea, 0xea};
      l.slice = 0;
    }
  }

  // ---- links ------------------------------------------------------------------------------------------------------------
  void wire() {
    std::map<std::tuple<int, int, uint32_t>, size_t> number; // (from, to, conn); group g is n + g
    const auto link = [&](int from, int to, uint32_t conn, uint32_t depth) {
      const auto [it, fresh] = number.try_emplace({from, to, conn}, links.size());
      if (fresh) links.push_back({{}, depth, false, false});
      return it->second;
    };
    for (size_t r = 0; r < plans.size(); r++)
      for (size_t i = 0; i < plans[r]->lanes.size(); i++) {
        Runner &l = runners.emplace_back();
        l.rank = r;
        l.lane = i;
        const uint32_t depth = plans[r]->min_depth;
        for (const tutti_link &k : plans[r]->lanes[i].recv) {
          const int from = k.flags & TUTTI_LINK_REDUCING ? n + k.peer : k.peer;
          l.recv.push_back(link(from, static_cast<int>(r), k.conn, depth));
          links[l.recv.back()].has_reader = true;
        }
        for (const tutti_link &k : plans[r]->lanes[i].send) {
          auto &to = l.send.emplace_back();
          if (k.flags & TUTTI_LINK_REDUCING) to.push_back(link(static_cast<int>(r), n + k.peer, k.conn, depth));
          for (int peer = 0; peer < n; peer++)
            if (k.flags & TUTTI_LINK_MULTICAST ? peer != static_cast<int>(r) : to.empty() && peer == k.peer)
              to.push_back(link(static_cast<int>(r), peer, k.conn, depth));
          for (const size_t at : to) links[at].has_writer = true;
        }
      }
    std::map<int, bool> groups;
    for (const auto &[key, at] : number)
      for (const int end : {std::get<0>(key), std::get<1>(key)})
        if (end >= n) groups[end - n] = true;
    for (const auto &[group, used] : groups)
      add_group(group, [&](int from, int to) {
        const auto it = number.find({from, to, 0});
        return it == number.end() ? links.size() : it->second;
      });
    for (const auto &[key, at] : number)
      if (!links[at].has_reader || !links[at].has_writer)
        unwired = fmt::format("hang: link {} -> {} conn {} has one end", std::get<0>(key), std::get<1>(key), std::get<2>(key));
  }

  // find(from, to): the number of a link, or more than there are. Who takes part in what way follows from the collective.
  template <class Find> void add_group(int group, Find find) {
    Runner g;
    g.group = true;
    g.rank = plans.size() + static_cast<size_t>(group);
    const bool broadcast = coll == TUTTI_COLL_BROADCAST, reduce = coll == TUTTI_COLL_REDUCE;
    for (int r = 0; r < n; r++) {
      const PlanRequest &q = plans[static_cast<size_t>(r)]->request;
      if (q.channel[static_cast<size_t>(group)].head != r) continue;
      const bool root_here = root >= 0 && q.node_of_rank[static_cast<size_t>(r)] == q.node_of_rank[static_cast<size_t>(root)];
      const bool gives = !broadcast || root_here, gets = broadcast ? !root_here : !reduce || root_here;
      const size_t in = find(r, n + group), out = find(n + group, r);
      if (gives != (in < links.size()) || gets != (out < links.size())) {
        unwired = fmt::format("hang: rank {} posts something else to group {} than the others", r, group);
        return;
      }
      if (gives) {
        g.recv.push_back(in);
        links[in].has_reader = true;
      }
      if (gets) {
        g.send.push_back({out});
        links[out].has_writer = true;
      }
    }
    runners.push_back(g);
  }

  // ---- one event --------------------------------------------------------------------------------------------------------
  static uint32_t chunk_of(const tutti_ref &r, uint32_t iter) {
    int64_t c = int64_t{r.first} + int64_t{iter} * r.stride;
    if (r.modulus) c = (c % r.modulus + r.modulus) % r.modulus;
    return static_cast<uint32_t>(c);
  }
  const tutti_step &step(const Runner &l) const { return plans[l.rank]->lanes[l.lane].steps[l.step]; }
  static const tutti_ref &sizing(const tutti_step &s) { return s.ops & TUTTI_STEP_SRC ? s.src : s.dst; }

  bool may_begin(const Runner &l) const {
    for (const Runner &o : runners)
      if (o.rank == l.rank && plans[o.rank]->lanes[o.lane].group == plans[l.rank]->lanes[l.lane].group &&
          o.slice + memory[l.rank].window <= l.slice)
        return false;
    return true;
  }
  bool deps_met(const Runner &l, const tutti_step &s) const {
    for (uint32_t d = 0; d < s.dep_count; d++) {
      const tutti_dep &dep = plans[l.rank]->deps[s.dep_first + d];
      for (const Runner &o : runners)
        if (o.rank == l.rank && o.lane == dep.lane && (o.slice < l.slice || (o.slice == l.slice && o.step <= dep.step)))
          return false;
    }
    return true;
  }
  // One event of a lane; false: it has to wait.
  bool advance(Runner &l) {
    if (l.group) return combine(l);
    const auto &steps = plans[l.rank]->lanes[l.lane].steps;
    if (l.step == 0 && l.iter == 0 && !l.taken && !may_begin(l)) return false;
    if (steps.empty()) {
      l.slice++;
      return true;
    }
    const tutti_step &s = step(l);
    if (!l.taken && l.iter == 0 && !deps_met(l, s)) return false;
    uint64_t bytes = 0;
    for (uint32_t j = 0; j < sizing(s).count; j++) bytes += bytes_at(l, sizing(s).buf, chunk_of(sizing(s), l.iter) + j);
    if (bytes > 0) {
      if (!l.taken) return take(l, s);
      if (!put(l, s)) return false;
    }
    l.taken = false;
    if (++l.iter == s.repeat) l.iter = 0, l.step++;
    if (l.step == steps.size()) l.step = 0, l.slice++;
    return true;
  }
  // The front messages of all senders, once they are there, and where all receivers have room.
  bool combine(Runner &g) {
    bool waiting = g.recv.empty(), passes = false;
    for (const size_t at : g.recv) {
      auto &queue = links[at].queue;
      if (queue.empty())
        waiting = true;
      else if (queue[0].delay > 0)
        queue[0].delay--, waiting = passes = true;
    }
    for (const auto &to : g.send) waiting |= links[to[0]].queue.size() >= links[to[0]].depth;
    if (waiting) return passes;
    Message sum;
    for (const size_t at : g.recv) {
      auto &parts = links[at].queue[0].parts;
      for (Part &p : parts)
        if (p.home) p.value = *p.home, p.home = nullptr;
      if (at == g.recv[0]) {
        sum.parts = parts;
      } else if (parts.size() != sum.parts.size()) {
        failure = "wrong: members post messages of different sizes";
        return false;
      } else {
        for (size_t j = 0; j < parts.size(); j++) {
          if (parts[j].bytes != sum.parts[j].bytes) failure = "wrong: members post messages of different sizes";
          if (parts[j].bytes) sum.parts[j].value = both(sum.parts[j].value, parts[j].value);
        }
      }
      links[at].queue.erase(links[at].queue.begin());
    }
    for (const auto &to : g.send) {
      sum.delay = static_cast<uint32_t>(random() % 6);
      links[to[0]].queue.push_back(sum);
    }
    return failure.empty();
  }
  // Operands come into the lane's hands. Their slots are free at once: that lets the sender run ahead furthest.
  bool take(Runner &l, const tutti_step &s) {
    const int64_t shift = static_cast<int64_t>(l.iter) * s.link_stride;
    bool waiting = false, passes = false;
    for (int i = 0; i < s.recv_count; i++) {
      auto &queue = links[l.recv[static_cast<size_t>(s.recv_first + shift + i)]].queue;
      if (queue.empty())
        waiting = true;
      else if (queue[0].delay > 0)
        queue[0].delay--, waiting = passes = true;
    }
    if (waiting) return passes;
    std::vector<std::vector<Part>> operands;
    for (int i = 0; i < s.recv_count; i++) {
      auto &queue = links[l.recv[static_cast<size_t>(s.recv_first + shift + i)]].queue;
      for (Part &p : queue[0].parts)
        if (p.home) p.value = *p.home;
      operands.push_back(std::move(queue[0].parts));
      queue.erase(queue.begin());
    }
    if (s.ops & TUTTI_STEP_SRC) operands.insert(operands.begin() + s.src_pos, load(l, s));
    l.value = operands[0];
    const tutti_ref &like = sizing(s);
    for (uint32_t j = 0; j < like.count; j++) {
      const uint64_t due = bytes_at(l, like.buf, chunk_of(like, l.iter) + j);
      for (size_t i = 0; i < operands.size(); i++) {
        if (operands[i].size() != like.count || operands[i][j].bytes != due) {
          failure = fmt::format("wrong: rank {} lane {} step {} gets a message of another size", l.rank, l.lane, l.step);
          return false;
        }
        if (i > 0 && due) l.value[j].value = both(l.value[j].value, operands[i][j].value);
      }
      if (s.ops & TUTTI_STEP_POSTOP) l.value[j].value = after(l.value[j].value);
      l.value[j].home = nullptr;
    }
    l.taken = true;
    return true;
  }
  std::vector<Part> load(const Runner &l, const tutti_step &s) {
    std::vector<Part> parts;
    for (uint32_t j = 0; j < s.src.count; j++) {
      const uint32_t c = chunk_of(s.src, l.iter) + j;
      Word v = *word(l, s.src.buf, c);
      if (s.ops & TUTTI_STEP_PREOP) v = before(v, static_cast<int>(l.rank));
      parts.push_back({bytes_at(l, s.src.buf, c), v, nullptr});
    }
    return parts;
  }
  // The result goes to memory and to the links; waits for room in all of them.
  bool put(Runner &l, const tutti_step &s) {
    const int64_t shift = static_cast<int64_t>(l.iter) * s.link_stride;
    for (int i = 0; i < s.send_count; i++)
      for (const size_t at : l.send[static_cast<size_t>(s.send_first + shift + i)])
        if (links[at].queue.size() >= links[at].depth) return false;
    for (uint32_t j = 0; (s.ops & TUTTI_STEP_STORE) && j < s.dst.count; j++)
      if (l.value[j].bytes) *word(l, s.dst.buf, chunk_of(s.dst, l.iter) + j) = l.value[j].value;
    if (!(s.ops & TUTTI_STEP_SEND)) return true;
    Message message{l.value, 0};
    const uint32_t life = plans[l.rank]->lanes[l.lane].life[l.step];
    const bool stored = s.ops & TUTTI_STEP_STORE;
    const bool at_home = stored || !(s.ops & (TUTTI_STEP_PREOP | TUTTI_STEP_POSTOP)); // its home holds just what is sent
    if ((life & (in_place ? kSendHomeInPlace : kSendHome)) && at_home && random() % 2)
      for (uint32_t j = 0; j < message.parts.size(); j++)
        if (message.parts[j].bytes)
          message.parts[j].home =
              stored ? word(l, s.dst.buf, chunk_of(s.dst, l.iter) + j) : word(l, s.src.buf, chunk_of(s.src, l.iter) + j);
    for (int i = 0; i < s.send_count; i++)
      for (const size_t at : l.send[static_cast<size_t>(s.send_first + shift + i)]) {
        message.delay = static_cast<uint32_t>(random() % 6);
        links[at].queue.push_back(message);
      }
    return true;
  }

  // ---- a run ------------------------------------------------------------------------------------------------------------
  // Even seeds: any lane next. Odd seeds: the first of a random order that can, so that some lanes starve as long as they may.
  void schedule(bool strict) {
    std::vector<Runner *> able, all;
    for (Runner &l : runners) all.push_back(&l);
    if (strict)
      std::sort(all.begin(), all.end(), [](const Runner *a, const Runner *b) { return a->rank_in_line < b->rank_in_line; });
    const auto unfinished = [&] {
      able.clear();
      for (Runner *l : all)
        if (l->slice < slices) able.push_back(l);
    };
    unfinished();
    while (!able.empty() && failure.empty()) {
      const size_t at = strict ? 0 : random() % able.size();
      if (advance(*able[at]))
        unfinished();
      else
        able.erase(able.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }
  std::string verdict() {
    if (!failure.empty()) return failure;
    for (const Runner &l : runners)
      if (!l.group && l.slice < slices)
        return fmt::format("hang: rank {} lane {} step {} slice {}", l.rank, l.lane, l.step, l.slice);
    for (const Link &l : links)
      if (!l.queue.empty()) return "wrong: a message was never taken";
    std::map<std::tuple<uint64_t, uint64_t>, uint64_t> order; // (offset, bytes) of an all_reduce
    for (size_t r = 0; r < plans.size(); r++) {
      const Plan &p = *plans[r];
      if (!memory[r].has_out) continue;
      for (uint32_t g = 0; g < p.groups; g++)
        for (uint32_t c = 0; c < p.out_chunks; c++)
          for (uint64_t s = 0; s < slices; s++) {
            const uint64_t b = c / p.pieces();
            const Span at = slice_span(span(static_cast<int>(r), g, TUTTI_BUF_OUT, c), kSlice, s);
            if (at.bytes == 0) continue;
            const uint64_t offset = at.offset - memory[r].out_at[b];
            const Word got = memory[r].out[(uint64_t{g} * p.out_chunks + c) * slices + s];
            if (got.sum != due(static_cast<int>(r), b, offset, at.bytes).sum)
              return fmt::format("wrong: rank {} group {} chunk {} slice {}", r, g, c, s);
            if (coll != TUTTI_COLL_ALL_REDUCE && coll != TUTTI_COLL_BARRIER) continue;
            if (order.try_emplace({offset, at.bytes}, got.order).first->second != got.order)
              return fmt::format("wrong: rank {} group {} chunk {}: other bits than another rank's", r, g, c);
          }
    }
    return "";
  }
  Word due(int r, uint64_t out_block, uint64_t offset, uint64_t bytes) const {
    const auto me = static_cast<uint64_t>(r);
    switch (coll) {
    case TUTTI_COLL_BROADCAST:
      return given(root, 0, offset, bytes);
    case TUTTI_COLL_SCATTER:
      return given(root, me, offset, bytes);
    case TUTTI_COLL_ALL_GATHER:
    case TUTTI_COLL_GATHER:
      return given(static_cast<int>(out_block), 0, offset, bytes);
    case TUTTI_COLL_ALL_TO_ALL:
      return given(static_cast<int>(out_block), me, offset, bytes);
    default:
      break;
    }
    Word sum;
    for (int q = 0; q < n; q++) sum.sum += before(given(q, coll == TUTTI_COLL_REDUCE_SCATTER ? me : 0, offset, bytes), q).sum;
    return after(sum);
  }
};

Executor::Executor(const PlanSet &plans, bool in_place, Layout layout)
    : impl_(std::make_unique<Impl>(plans, in_place, layout)) {}
Executor::~Executor() = default;

std::string Executor::run(uint64_t seed) {
  if (!impl_->unwired.empty()) return impl_->unwired;
  impl_->random.seed(seed * 2 + 1);
  impl_->reset();
  impl_->schedule(seed % 2);
  return impl_->verdict();
}

std::string run_seeds(const PlanSet &plans, bool in_place, uint64_t first, uint64_t last) {
  Executor even(plans, in_place, Layout::even), ragged(plans, in_place, Layout::ragged);
  for (uint64_t seed = first; seed < last; seed++)
    if (std::string bad = (seed / 2 % 2 ? ragged : even).run(seed); !bad.empty()) return bad;
  return "";
}

} // namespace plans
