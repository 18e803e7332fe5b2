// tutti/plugins/collnet-aggd/daemon/status.cc
#include "status.h"
#include "group.h"
#include <cerrno>
#include <nlohmann/json.hpp>
#include <sys/epoll.h>

namespace tutti::aggd {
namespace {

using nlohmann::json;

std::string_view state_name(Group::State state) {
  return state == Group::State::gathering ? "gathering" : state == Group::State::running ? "running" : "ended";
}

json group_json(const Group &g) {
  json members = json::array();
  for (const Child &c : g.children())
    members.push_back({{"members", c.cover.members.list(true)},
                       {"daemon", c.daemon},
                       {"from", c.from},
                       {"connected", c.peer != nullptr},
                       {"chunks", c.chunks},
                       {"waiting_bytes", c.in.used()}});
  json out = {{"job", fmt::format("{:#x}", g.asked().job)},
              {"state", state_name(g.state())},
              {"members", g.asked().members},
              {"window", g.window()},
              {"reserved", g.reserved()},
              {"chunks", g.chunks()},
              {"bytes", g.bytes()},
              {"here", std::move(members)}};
  if (g.state() == Group::State::ended) out["error"] = g.fault().text;
  return out;
}

class Query final : public Source, public Waiting::Entry {
public:
  Query(Server &server, Fd fd, bool http) : server_(server), fd_(std::move(fd)), http_(http) {
    server_.watch(fd_, this);
    server_.questions(http_).enter(*this);
    if (http_) return;
    ucred who{};
    socklen_t size = sizeof who;
    const bool known = ::getsockopt(fd_.get(), SOL_SOCKET, SO_PEERCRED, &who, &size) == 0;
    closed = closed || !known || (who.uid != 0 && who.uid != ::geteuid());
  }
  void on_events(uint32_t) override {
    if (!closed && go_on()) end();
  }
  void tick(Clock::time_point now) override {
    if (now - since_ > std::chrono::seconds(2)) end();
  }
  void crowded_out() override { end(); }

private:
  void end() {
    closed = true;
    fd_.reset();
    leave();
  }
  bool go_on() { // true: it is over
    std::array<char, 1024> buffer;
    while (answer_.empty()) {
      const ssize_t n = ::recv(fd_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
      if (n < 0 && errno == EAGAIN) return false;
      if (n <= 0 || asked_.size() > 4096) return true;
      asked_.append(buffer.data(), static_cast<size_t>(n));
      reply();
    }
    while (sent_ < answer_.size()) {
      const ssize_t n = ::send(fd_.get(), answer_.data() + sent_, answer_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0 && errno == EAGAIN) return false;
      if (n <= 0) return true;
      sent_ += static_cast<size_t>(n);
    }
    return true;
  }
  void reply() {
    if (!http_) {
      if (asked_.find('\n') != std::string::npos) answer_ = asked_ == "status\n" ? status_json(server_) : "unknown question";
      return;
    }
    if (asked_.find("\r\n\r\n") == std::string::npos && asked_.find("\n\n") == std::string::npos) return;
    const bool known = asked_.starts_with("GET /metrics ") || asked_.starts_with("GET / ");
    const std::string body = known ? metrics_text(server_) : "not here; try /metrics\n";
    answer_ = fmt::format(
        "HTTP/1.1 {}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}",
        known ? "200 OK" : "404 Not Found", body.size(), body);
  }
  Server &server_;
  Fd fd_;
  const bool http_;
  const Clock::time_point since_ = Clock::now();
  std::string asked_, answer_;
  size_t sent_ = 0;
};

} // namespace

std::unique_ptr<Source> make_query(Server &server, Fd fd, bool http) {
  return std::make_unique<Query>(server, std::move(fd), http);
}

std::string status_json(const Server &server) {
  const Settings &settings = server.settings();
  const Counters &c = server.counters();
  json groups = json::array();
  for (const auto &[token, group] : server.groups()) groups.push_back(group_json(*group));
  json faults = json::object();
  for (size_t i = 1; i < c.faults.size(); i++)
    if (c.faults[i]) faults[std::string(reason_name(static_cast<Reason>(i)))] = c.faults[i];
  json out = {
      {"versions", fmt::format("{}-{}", version_first, version_last)},
      {"epoch", fmt::format("{:016x}", server.epoch())},
      {"uptime_s", std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - server.started()).count()},
      {"draining", server.draining()},
      {"parent", settings.parent ? settings.parent->name : ""},
      {"memory", {{"limit", server.budget().limit}, {"reserved", server.budget().reserved}, {"most", server.budget().most}}},
      {"limits",
       {{"window", settings.window},
        {"outstanding", settings.outstanding},
        {"members", settings.members},
        {"groups", settings.groups},
        {"groups_per_job", settings.groups_per_job},
        {"memory_per_job", settings.memory_per_job}}},
      {"totals",
       {{"connections", c.accepted},
        {"strangers", c.strangers},
        {"wrong_key", c.wrong_key},
        {"wrong_version", c.wrong_version},
        {"groups", c.groups},
        {"refused", c.refused},
        {"chunks", c.chunks},
        {"bytes_in", c.bytes_in},
        {"bytes_out", c.bytes_out},
        {"ended_groups", std::move(faults)}}},
      {"groups", std::move(groups)}};
  return out.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

std::string metrics_text(const Server &server) {
  const Counters &c = server.counters();
  std::string out;
  const auto one = [&](std::string_view name, std::string_view kind, std::string_view help, uint64_t value) {
    out += fmt::format("# HELP tutti_aggd_{0} {2}\n# TYPE tutti_aggd_{0} {1}\ntutti_aggd_{0} {3}\n", name, kind, help, value);
  };
  size_t members = 0;
  for (const auto &[token, group] : server.groups()) members += group->children().size();
  one("groups", "gauge", "groups now", server.groups().size());
  one("children", "gauge", "members and daemons in groups now", members);
  one("memory_limit_bytes", "gauge", "limits.memory", server.budget().limit);
  one("memory_reserved_bytes", "gauge", "windows reserved now", server.budget().reserved);
  one("draining", "gauge", "1 while the daemon shuts down", server.draining());
  one("connections_total", "counter", "connections accepted", c.accepted);
  one("strangers_total", "counter", "connections closed before they proved that they belong", c.strangers);
  one("wrong_key_total", "counter", "of them, those that tried another key", c.wrong_key);
  one("wrong_version_total", "counter", "peers that speak no version of ours", c.wrong_version);
  one("groups_total", "counter", "groups begun", c.groups);
  one("refused_total", "counter", "joins refused", c.refused);
  one("chunks_total", "counter", "chunks reduced", c.chunks);
  one("received_bytes_total", "counter", "bytes of members and daemons below", c.bytes_in);
  one("sent_bytes_total", "counter", "bytes of results sent", c.bytes_out);
  out += "# HELP tutti_aggd_faults_total groups that ended by an error\n# TYPE tutti_aggd_faults_total counter\n";
  for (size_t i = 1; i < c.faults.size(); i++)
    out += fmt::format("tutti_aggd_faults_total{{reason=\"{}\"}} {}\n", reason_name(static_cast<Reason>(i)), c.faults[i]);
  return out;
}

} // namespace tutti::aggd
