// What `tutti-aggd status` prints of a daemon's answer.
#include "status_text.h"
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace tutti::aggd {

using nlohmann::json;

namespace {

std::string in_words(const json &all) {
  const auto kib = [](const json &bytes) { return bytes.get<uint64_t>() >> 10; };
  const json &memory = all.at("memory"), &totals = all.at("totals");
  std::string out = fmt::format("up {} s, epoch {}{}{}\n", all.at("uptime_s").get<int64_t>(),
                                all.at("epoch").get<std::string>(), all.at("draining").get<bool>() ? ", shutting down" : "",
                                all.at("parent").get<std::string>().empty() ? std::string()
                                                                            : ", below " + all.at("parent").get<std::string>());
  out += fmt::format("memory: {} of {} KiB reserved, {} at most so far\n", kib(memory.at("reserved")), kib(memory.at("limit")),
                     kib(memory.at("most")));
  out +=
      fmt::format("so far: {} groups, {} joins refused, {} chunks, {} KiB in, {} KiB out, {} strangers ({} with another key)\n",
                  totals.at("groups").get<uint64_t>(), totals.at("refused").get<uint64_t>(),
                  totals.at("chunks").get<uint64_t>(), kib(totals.at("bytes_in")), kib(totals.at("bytes_out")),
                  totals.at("strangers").get<uint64_t>(), totals.at("wrong_key").get<uint64_t>());
  for (const auto &[reason, n] : totals.at("ended_groups").items())
    out += fmt::format("groups that ended by {}: {}\n", reason, n.get<uint64_t>());
  for (const json &g : all.at("groups")) {
    out += fmt::format("job {}: {}, {} members, window {} KiB, {} KiB reserved, {} chunks\n", g.at("job").get<std::string>(),
                       g.at("state").get<std::string>(), g.at("members").get<uint32_t>(), kib(g.at("window")),
                       kib(g.at("reserved")), g.at("chunks").get<uint64_t>());
    for (const json &c : g.at("here"))
      out += fmt::format("  {} {} from {}: {} chunks, {} bytes wait\n", c.at("daemon").get<bool>() ? "daemon of" : "member",
                         c.at("members").get<std::string>(), c.at("from").get<std::string>(), c.at("chunks").get<uint64_t>(),
                         c.at("waiting_bytes").get<uint64_t>());
    if (g.contains("error")) out += "  ended: " + g.at("error").get<std::string>() + "\n";
  }
  return out;
}

} // namespace

std::string status_text(const std::string &text) {
  const json all = json::parse(text, nullptr, false);
  if (!all.is_object()) return text;
  try {
    return in_words(all);
  } catch (const json::exception &) { // of another version
    return text;
  }
}

} // namespace tutti::aggd
