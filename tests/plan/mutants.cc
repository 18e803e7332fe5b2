#include "mutants.h"
#include <algorithm>
#include <set>

namespace plans {
namespace {

class Collector {
public:
  explicit Collector(const Plan &plan) : plan_(plan) {}

  std::vector<Mutant> all() {
    shape();
    for (size_t l = 0; l < plan_.lanes.size(); l++) lane(l);
    return std::move(out_);
  }

private:
  void add(std::string what, std::function<void(Plan &)> apply) { out_.push_back({std::move(what), std::move(apply)}); }

  // field(plan) gives a reference to the number; other plans change by as much.
  template <class Field> void number(const std::string &name, Field field) {
    Plan copy = plan_;
    using T = std::remove_reference_t<decltype(field(copy))>;
    const T now = field(copy);
    const std::set<T> values{static_cast<T>(now + 1), static_cast<T>(now - 1), static_cast<T>(now + 2), T{0},
                             static_cast<T>(-now),    static_cast<T>(2 * now)};
    for (const T value : values)
      if (value != now)
        change(name, now, value,
               [field, by = value - now](Plan &p) { field(p) = static_cast<T>(field(p) + static_cast<T>(by)); });
  }
  template <class Field> void bits(const std::string &name, uint32_t count, Field field) {
    Plan copy = plan_;
    using T = std::remove_reference_t<decltype(field(copy))>;
    const T now = field(copy);
    for (uint32_t bit = 0; bit < count; bit++)
      change(name, now, static_cast<T>(now ^ (1u << bit)),
             [field, bit](Plan &p) { field(p) = static_cast<T>(field(p) ^ (1u << bit)); });
  }
  template <class Field> void choice(const std::string &name, uint32_t count, Field field) {
    Plan copy = plan_;
    using T = std::remove_reference_t<decltype(field(copy))>;
    const T now = field(copy);
    for (uint32_t value = 0; value < count; value++)
      if (value != now) change(name, now, static_cast<T>(value), [field, value](Plan &p) { field(p) = static_cast<T>(value); });
  }
  template <class T> void change(const std::string &name, T now, T value, const std::function<void(Plan &)> &apply) {
    add(fmt::format("{} {} -> {}", name, now, value), apply);
  }

  void shape() {
    number("groups", [](Plan &p) -> uint32_t & { return p.groups; });
    number("min_depth", [](Plan &p) -> uint32_t & { return p.min_depth; });
    number("window", [](Plan &p) -> uint32_t & { return p.window; });
    number("resident_lanes", [](Plan &p) -> uint32_t & { return p.resident_lanes; });
    for (const uint32_t by : {plan_.pieces() + 1, plan_.pieces() - 1, 2 * plan_.pieces()})
      add(fmt::format("pieces {} -> {}", plan_.pieces(), by), [by](Plan &p) {
        p.out_chunks = p.out_chunks / p.pieces() * by;
        p.in_chunks = p.in_chunks / p.pieces() * by;
      });
    for (const int by : {-1, 1})
      if (plan_.scratch_chunks)
        add(fmt::format("scratch_chunks {:+}", by), [by](Plan &p) {
          p.scratch_chunks += static_cast<uint32_t>(by);
          p.scratch_size.resize(p.scratch_chunks, p.scratch_size[0]);
        });
    for (size_t i = 0; i < plan_.scratch_size.size(); i++) {
      choice(fmt::format("scratch_size[{}].buf", i), 2, [i](Plan &p) -> uint32_t & { return p.scratch_size[i].buf; });
      number(fmt::format("scratch_size[{}].chunk", i), [i](Plan &p) -> uint32_t & { return p.scratch_size[i].chunk; });
    }
  }

  void lane(size_t l) {
    const std::string where = fmt::format("lane {}", l);
    const PlanLane &lane = plan_.lanes[l];
    number(where + ": group", [l](Plan &p) -> uint32_t & { return p.lanes[l].group; });
    for (size_t i = 0; i < lane.recv.size(); i++)
      link(fmt::format("{}: receive link {}", where, i), [l, i](Plan &p) -> tutti_link & { return p.lanes[l].recv[i]; });
    for (size_t i = 0; i < lane.send.size(); i++)
      link(fmt::format("{}: send link {}", where, i), [l, i](Plan &p) -> tutti_link & { return p.lanes[l].send[i]; });
    for (size_t i = 0; i < lane.steps.size(); i++) step(l, i);
  }
  template <class At> void link(const std::string &where, At at) {
    number(where + " peer", [at](Plan &p) -> int32_t & { return at(p).peer; });
    number(where + " conn", [at](Plan &p) -> uint16_t & { return at(p).conn; });
    bits(where + " flags", 2, [at](Plan &p) -> uint16_t & { return at(p).flags; });
  }

  void step(size_t l, size_t i) {
    const std::string where = fmt::format("lane {} step {}: ", l, i);
    const auto at = [l, i](Plan &p) -> tutti_step & { return p.lanes[l].steps[i]; };
    bits(where + "ops", 7, [at](Plan &p) -> uint32_t & { return at(p).ops; });
    number(where + "repeat", [at](Plan &p) -> uint32_t & { return at(p).repeat; });
    const tutti_step &s = plan_.lanes[l].steps[i];
    if (s.src.count) ref(where + "src.", [at](Plan &p) -> tutti_ref & { return at(p).src; });
    if (s.dst.count) ref(where + "dst.", [at](Plan &p) -> tutti_ref & { return at(p).dst; });
    number(where + "recv_first", [at](Plan &p) -> uint16_t & { return at(p).recv_first; });
    number(where + "recv_count", [at](Plan &p) -> uint16_t & { return at(p).recv_count; });
    number(where + "send_first", [at](Plan &p) -> uint16_t & { return at(p).send_first; });
    number(where + "send_count", [at](Plan &p) -> uint16_t & { return at(p).send_count; });
    number(where + "link_stride", [at](Plan &p) -> int16_t & { return at(p).link_stride; });
    number(where + "src_pos", [at](Plan &p) -> uint16_t & { return at(p).src_pos; });
    deps(l, i);
    add(where + "removed", [l, i](Plan &p) { p.lanes[l].steps.erase(p.lanes[l].steps.begin() + static_cast<long>(i)); });
    add(where + "doubled", [l, i](Plan &p) {
      p.lanes[l].steps.insert(p.lanes[l].steps.begin() + static_cast<long>(i), tutti_step(p.lanes[l].steps[i]));
    });
    if (i + 1 < plan_.lanes[l].steps.size())
      add(where + "after the next", [l, i](Plan &p) { std::swap(p.lanes[l].steps[i], p.lanes[l].steps[i + 1]); });
  }
  template <class At> void ref(const std::string &where, At at) {
    choice(where + "buf", 3, [at](Plan &p) -> uint16_t & { return at(p).buf; });
    number(where + "count", [at](Plan &p) -> uint16_t & { return at(p).count; });
    number(where + "first", [at](Plan &p) -> int32_t & { return at(p).first; });
    number(where + "stride", [at](Plan &p) -> int32_t & { return at(p).stride; });
    number(where + "modulus", [at](Plan &p) -> uint32_t & { return at(p).modulus; });
  }
  void deps(size_t l, size_t i) {
    const tutti_step &s = plan_.lanes[l].steps[i];
    const std::string where = fmt::format("lane {} step {}: dep", l, i);
    for (uint32_t d = 0; d < s.dep_count; d++) {
      const uint32_t at = s.dep_first + d;
      const std::string name = fmt::format("{} {}", where, d);
      number(name + " lane", [at](Plan &p) -> uint32_t & { return p.deps[at].lane; });
      number(name + " step", [at](Plan &p) -> uint32_t & { return p.deps[at].step; });
      add(name + " removed", [l, i, at](Plan &p) {
        tutti_step &mine = p.lanes[l].steps[i];
        std::swap(p.deps[at], p.deps[mine.dep_first + mine.dep_count - 1]);
        mine.dep_count--;
      });
    }
    for (uint32_t other = 0; other < plan_.lanes.size(); other++)
      for (uint32_t on = 0; other != l && on < plan_.lanes[other].steps.size(); on++)
        add(fmt::format("{} on lane {} step {} added", where, other, on), [l, i, other, on](Plan &p) {
          tutti_step &mine = p.lanes[l].steps[i];
          std::vector<tutti_dep> list(p.deps.begin() + mine.dep_first, p.deps.begin() + mine.dep_first + mine.dep_count);
          list.push_back({other, on});
          mine.dep_first = static_cast<uint32_t>(p.deps.size());
          mine.dep_count = static_cast<uint16_t>(list.size());
          p.deps.insert(p.deps.end(), list.begin(), list.end());
        });
  }

  const Plan &plan_;
  std::vector<Mutant> out_;
};

void chunks(std::string &out, const Plan &p, const tutti_ref &r, uint32_t iter) {
  const int64_t first = ref_first(r, iter);
  for (int64_t c = first; c < first + r.count; c++) {
    out += fmt::format(" {}{}", buf_name(r.buf), c);
    if (r.buf != TUTTI_BUF_SCRATCH) continue;
    const tutti_chunk_id like = p.scratch_size[static_cast<size_t>(c)];
    out += fmt::format("={}{}", buf_name(like.buf), like.chunk);
  }
}

void links(std::string &out, const std::vector<tutti_link> &list, int64_t first, uint32_t count) {
  for (int64_t i = first; i < first + count; i++) {
    const tutti_link &l = list[static_cast<size_t>(i)];
    out += fmt::format(" {}/{}/{}", l.peer, l.conn, l.flags);
  }
}

} // namespace

std::vector<Mutant> mutants_of(const Plan &plan) {
  return Collector(plan).all();
}

std::string canonical(const Plan &p) {
  std::string out =
      fmt::format("K{} G{} depth{} window{} resident{}\n", p.pieces(), p.groups, p.min_depth, p.window, p.resident_lanes);
  for (const PlanLane &lane : p.lanes) {
    out += fmt::format("lane of {}\n", lane.group);
    for (const tutti_step &s : lane.steps)
      for (uint32_t i = 0; i < s.repeat; i++) {
        const int64_t shift = static_cast<int64_t>(i) * s.link_stride;
        out += fmt::format("{:x}@{}:", s.ops, has(s, TUTTI_STEP_REDUCE) ? s.src_pos : 0);
        if (s.src.count) chunks(out, p, s.src, i);
        out += " >";
        if (s.dst.count) chunks(out, p, s.dst, i);
        out += " <";
        links(out, lane.recv, s.recv_first + shift, s.recv_count);
        out += " !";
        links(out, lane.send, s.send_first + shift, s.send_count);
        std::set<std::pair<uint32_t, uint32_t>> after;
        for (uint32_t d = 0; i == 0 && d < s.dep_count; d++)
          after.emplace(p.deps[s.dep_first + d].lane, p.deps[s.dep_first + d].step);
        for (const auto &[on, step] : after) out += fmt::format(" after {}.{}", on, step);
        out += "\n";
      }
  }
  return out;
}

} // namespace plans
