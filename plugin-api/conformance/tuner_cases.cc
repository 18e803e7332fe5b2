#include "base/types.h"
#include "suite.h"
#include <cmath>
#include <cstring>
#include <vector>

namespace tutti::conformance {
namespace {

// A candidate of a core that is newer than the plugin: bytes behind the known ones that the tuner must not touch.
struct Wide {
  tutti_candidate known;
  unsigned char more[40];
};

std::vector<Wide> proposals() {
  std::vector<Wide> out;
  for (const char *algo : {"ring", "direct", "tree", "an-algorithm-nobody-has"})
    for (const char *proto : {"simple", "ll", "ll128", "a-protocol-nobody-has"}) {
      Wide w;
      std::memset(&w, 0xa5, sizeof(w));
      w.known = {algo, proto, out.size() % 2 ? 12.5 : 0.0, 2, 1, 4, 65536, 8, 0, nullptr};
      out.push_back(w);
    }
  return out;
}

tutti_tune_query query_of(uint32_t coll, uint64_t bytes, int32_t nranks, uint32_t transport) {
  tutti_tune_query q{};
  q.struct_size = sizeof(q);
  q.coll = coll;
  q.bytes = bytes;
  q.nranks = nranks;
  q.nnodes = transport == TUTTI_LINK_CLASS_NET ? 2 : 1;
  q.max_ppn = nranks;
  q.min_cores = 2;
  q.flags = nranks > 2 ? TUTTI_TUNE_OVERSUBSCRIBED : 0;
  q.transport = transport;
  return q;
}

template <class Fn> void each_query(Fn &&fn) {
  for (uint32_t coll = 0; coll <= TUTTI_COLL_SEND_RECV; coll++)
    for (uint32_t transport : {0u, 1u, 2u})
      for (int32_t n : {2, 3, 8, 64})
        for (unsigned bit = 0; bit <= 40; bit += 4) fn(query_of(coll, uint64_t(1) << bit, n, transport));
}

tutti_status rate(const Plugin &plugin, const tutti_tuner_v1 &tuner, const tutti_tune_query &q, std::vector<Wide> *list) {
  return tuner.rate(plugin.state, &q, list->empty() ? nullptr : &list->front().known, static_cast<uint32_t>(list->size()),
                    sizeof(Wide));
}

void within_bounds(const Plugin &plugin, const void *table) {
  const auto &tuner = *static_cast<const tutti_tuner_v1 *>(table);
  each_query([&](const tutti_tune_query &q) {
    const std::vector<Wide> before = proposals();
    std::vector<Wide> list = before;
    require(rate(plugin, tuner, q, &list) == TUTTI_OK, "rate() fails for {} of {} bytes", coll_name(q.coll), q.bytes);
    for (size_t i = 0; i < list.size(); i++) {
      const tutti_candidate &c = list[i].known, &b = before[i].known;
      require(std::memcmp(list[i].more, before[i].more, sizeof(list[i].more)) == 0,
              "rate() wrote beyond the bytes of a candidate that it knows");
      require(c.algo == b.algo && c.proto == b.proto, "rate() changed the names of candidate {}", i);
      require(std::isfinite(c.cost_us), "{} of {} bytes: {}/{} costs {}", coll_name(q.coll), q.bytes, c.algo, c.proto,
              c.cost_us);
      if (c.cost_us < 0) continue;
      require(c.channels >= b.min_channels && c.channels <= b.max_channels, "{} channels were chosen of {} to {}", c.channels,
              b.min_channels, b.max_channels);
      require(c.depth >= 2 && (c.depth & (c.depth - 1)) == 0, "depth {} is not a power of two of at least 2", c.depth);
      require(c.slot_bytes >= 64, "slots of {} bytes were chosen", c.slot_bytes);
    }
  });
}

void deterministic(const Plugin &plugin, const void *table) {
  const auto &tuner = *static_cast<const tutti_tuner_v1 *>(table);
  each_query([&](const tutti_tune_query &q) {
    std::vector<Wide> first = proposals(), second = proposals();
    require(rate(plugin, tuner, q, &first) == TUTTI_OK && rate(plugin, tuner, q, &second) == TUTTI_OK, "rate() fails");
    for (size_t i = 0; i < first.size(); i++) {
      const tutti_candidate &a = first[i].known, &b = second[i].known;
      const bool same = a.cost_us == b.cost_us && a.channels == b.channels && a.slot_bytes == b.slot_bytes &&
                        a.depth == b.depth && a.flags == b.flags;
      require(same, "{} of {} bytes: two calls rate {}/{} differently", coll_name(q.coll), q.bytes, a.algo, a.proto);
    }
  });
}

void leaves_a_way(const Plugin &plugin, const void *table) {
  const auto &tuner = *static_cast<const tutti_tuner_v1 *>(table);
  each_query([&](const tutti_tune_query &q) {
    std::vector<Wide> list = proposals();
    require(rate(plugin, tuner, q, &list) == TUTTI_OK, "rate() fails");
    size_t usable = 0;
    for (const Wide &w : list) usable += w.known.cost_us >= 0;
    require(usable > 0, "{} of {} bytes on {} ranks: every candidate is forbidden", coll_name(q.coll), q.bytes, q.nranks);
  });
}

void empty_list(const Plugin &plugin, const void *table) {
  const auto &tuner = *static_cast<const tutti_tuner_v1 *>(table);
  std::vector<Wide> none;
  require(rate(plugin, tuner, query_of(TUTTI_COLL_ALL_REDUCE, 1024, 2, 0), &none) == TUTTI_OK, "rate() of no candidates fails");
}

void one_at_a_time(const Plugin &plugin, const void *table) {
  const auto &tuner = *static_cast<const tutti_tuner_v1 *>(table);
  for (const Wide &w : proposals()) {
    std::vector<Wide> list = {w};
    require(rate(plugin, tuner, query_of(TUTTI_COLL_ALL_REDUCE, 4096, 4, 1), &list) == TUTTI_OK, "rate() of {}/{} alone fails",
            w.known.algo, w.known.proto);
  }
}

} // namespace

std::span<const Case> tuner_cases() {
  static const Case all[] = {
      {"T-01", "choices stay within the bounds of each candidate, and nothing else is written", within_bounds},
      {"T-02", "the same question has the same answer", deterministic},
      {"T-03", "some candidate stays usable at every size", leaves_a_way},
      {"T-04", "no candidates are no error", empty_list},
      {"T-05", "one candidate alone can be rated", one_at_a_time},
  };
  return all;
}

std::span<const Case> cases_of(std::string_view iface) {
  if (iface == TUTTI_NET) return net_cases();
  if (iface == TUTTI_COLLNET) return collnet_cases();
  if (iface == TUTTI_ALGO) return algo_cases();
  if (iface == TUTTI_PROTO) return proto_cases();
  if (iface == TUTTI_TUNER) return tuner_cases();
  if (iface == TUTTI_STORE) return store_cases();
  return {};
}

} // namespace tutti::conformance
