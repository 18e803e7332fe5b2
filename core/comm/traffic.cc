// What this rank has sent and received, as JSON: for tuttiCommTraffic and for the file of comm.map_file.
#include "base/file.h"
#include "comm/handle.h"
#include "log/log.h"
#include "ras/rank_file.h"
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace tutti {
namespace {

using nlohmann::ordered_json;

ordered_json link_json(const LinkTraffic &l) {
  ordered_json j{{"peer", l.peer},
                 {"conn", l.conn},
                 {"direction", l.sending ? "send" : "recv"},
                 {"transport", class_name(l.link_class)},
                 {"proto", l.proto},
                 {"messages", l.messages},
                 {"bytes", l.bytes},
                 {"wire_bytes", l.wire_bytes}};
  if (l.lent_bytes) j["lent_bytes"] = l.lent_bytes;
  if (l.readers) j["readers"] = l.readers;
  return j;
}

} // namespace

Result<std::string> Communicator::traffic() const {
  const auto core = shared_core();
  if (!core || !core->engine) return tutti::fail(Code::invalid_usage, "the communicator is not set up: nothing has moved");
  ordered_json links = ordered_json::array();
  for (const LinkTraffic &l : core->engine->traffic())
    if (l.messages) links.push_back(link_json(l));
  const State now = state();
  const bool failed = now == State::failed || core->engine->failed();
  ordered_json rank{{"rank", rank_},
                    {"host", core->bootstrap->peer(rank_).hostname},
                    {"pid", ::getpid()},
                    {"operations", core->engine->completed()},
                    {"state", failed                    ? "failed"
                              : now == State::finalized ? "finalized"
                                                        : "open"}};
  if (failed) rank["error"] = last_error().line();
  rank["links"] = std::move(links);
  ordered_json comm{{"id", ras::comm_id_text(core->bootstrap->comm_id())}, {"name", options_.name}, {"nranks", nranks_}};
  comm["ranks"].push_back(std::move(rank));
  ordered_json out{{"format", "tutti-map"}, {"version", 1}};
  out["communicators"].push_back(std::move(comm));
  return out.dump(-1, ' ', false, ordered_json::error_handler_t::replace); // host and name are anybody's bytes
}

void Communicator::write_map() {
  const std::string &pattern = options_.config->text("comm.map_file");
  if (pattern.empty()) return;
  const auto core = shared_core();
  if (!core || !core->engine || map_written_.exchange(true)) return;
  const Status written = guarded([&]() -> Status {
    TUTTI_ASSIGN(json, traffic());
    return replace_file(ras::rank_file(pattern, "map.json", core->bootstrap->comm_id(), rank_), json + "\n");
  });
  if (!written.ok())
    log::write_once(log::Level::warn, log::Subsys::coll, "comm.map_file",
                    fmt::format("no communication map: {}", written.error().message));
}

} // namespace tutti
