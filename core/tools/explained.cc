#include "tools/explained.h"
#include <algorithm>
#include <nlohmann/json.hpp>

namespace tutti::tools {
namespace {

using nlohmann::json;

std::optional<double> number(const json &j, const char *key) {
  const auto it = j.find(key);
  if (it == j.end() || !it->is_number()) return std::nullopt;
  return it->get<double>();
}

ExplainedWay read_way(const json &j) {
  ExplainedWay w;
  w.algo = j.value("algo", "");
  w.proto = j.value("proto", "");
  w.note = j.value("note", "");
  w.refused = j.value("refused", "");
  w.channels = j.value("channels", 1u);
  w.depth = j.value("depth", 0u);
  w.slot_bytes = j.value("slot_bytes", uint64_t{0});
  w.nontemporal = j.value("nontemporal", false);
  w.chosen = j.value("chosen", false);
  w.predicted_us = number(j, "predicted_us");
  w.measured_us = number(j, "measured_us");
  return w;
}

std::string collnet_text(const json &c) {
  const std::string why = c.value("why", "");
  if (!c.value("used", false)) return why.find("is \"off\"") == std::string::npos ? why : "";
  return fmt::format("{}, {} group{}, {} operations and {} bytes in flight, aggregators {} Mbit/s, hosts {} Mbit/s",
                     c.value("plugin", ""), c.value("groups", 0), c.value("groups", 0) == 1 ? "" : "s",
                     c.value("outstanding", 0), c.value("window_bytes", uint64_t{0}), c.value("aggregators_mbps", uint64_t{0}),
                     c.value("host_mbps", 0));
}

std::string slowest(const json &transports) {
  std::string out;
  for (const char *kind : {"local", "shm", "net"})
    for (const auto &[name, n] : transports.items())
      if (std::string_view(name).substr(0, std::string_view(kind).size()) == kind) out = kind;
  return out;
}

} // namespace

const ExplainedWay *Explanation::chosen() const {
  const auto hit = std::find_if(ways.begin(), ways.end(), [&](const auto &w) { return w.algo == algo && w.proto == proto; });
  return hit == ways.end() ? nullptr : &*hit;
}

std::string decided_text(const Explanation &e) {
  const ExplainedWay *way = e.chosen();
  std::string out = e.decided_by.empty() ? "-" : e.decided_by;
  if (!e.decided_how.empty()) return out + ": " + e.decided_how;
  return way && !way->note.empty() ? out + ": " + way->note : out;
}

Result<Explanation> read_explanation(const std::string &text) {
  const json j = json::parse(text, nullptr, false);
  if (!j.is_object()) return fail(Code::internal, "the explanation of the library is no JSON");
  Explanation e;
  try {
    e.coll = j.value("coll", "");
    e.algo = j.value("algo", "");
    e.proto = j.value("proto", "");
    e.why = j.value("why", "");
    e.decided_by = j.value("decided_by", "");
    e.decided_how = j.value("decided_how", "");
    e.deterministic = j.value("deterministic", "off");
    e.count = j.value("count", uint64_t{0});
    e.bytes = j.value("bytes", uint64_t{0});
    e.nranks = j.value("nranks", 0);
    e.channels = j.value("channels", 1u);
    e.depth = j.value("depth", 0u);
    e.slot_bytes = j.value("slot_bytes", uint64_t{0});
    e.nontemporal = j.value("nontemporal", false);
    if (j.contains("bucket")) e.bucket = j["bucket"].get<uint32_t>();
    const json places = j.value("places", json::object());
    e.hosts = places.value("hosts", 0);
    e.ppn = places.value("ppn", 0);
    e.cores = places.value("cores", 0);
    e.link = places.value("links", slowest(j.value("transports", json::object())));
    e.collnet = collnet_text(j.value("collnet", json::object()));
    for (const json &w : j.value("ways", json::array())) e.ways.push_back(read_way(w));
  } catch (const json::exception &problem) {
    return fail(Code::internal, "the explanation of the library cannot be read: {}", problem.what());
  }
  return e;
}

} // namespace tutti::tools
