#include "ras/metrics.h"
#include "base/types.h"
#include "base/utf8.h"
#include <atomic>
#include <charconv>

namespace tutti::ras {
namespace {

std::atomic<uint64_t> failed{0};

constexpr int64_t kStalled = 5'000'000'000; // a wait of so long counts as one

// Of a label, which is UTF-8, whatever the name of a communicator is.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : valid_utf8(text)) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n')
      out += "\\n";
    else if (static_cast<unsigned char>(c) >= 32 && c != 127)
      out += c;
  }
  return out;
}

class Page {
public:
  void begin(std::string_view name, std::string_view type, std::string_view help) {
    name_ = name;
    out_ += fmt::format("# HELP tutti_{0} {2}\n# TYPE tutti_{0} {1}\n", name, type, help);
  }
  void sample(std::string_view labels, double value) {
    out_ += fmt::format("tutti_{}{}{}{} {}\n", name_, labels.empty() ? "" : "{", labels, labels.empty() ? "" : "}", value);
  }
  void one(std::string_view name, std::string_view type, std::string_view help, double value) {
    begin(name, type, help);
    sample("", value);
  }
  std::string take() { return std::move(out_); }

private:
  std::string out_, name_;
};

struct Labelled {
  const CommReport *comm;
  std::string labels;
};

double seconds(int64_t ns) {
  return static_cast<double>(ns) * 1e-9;
}

int64_t longest_wait(const FlightFile &f) {
  int64_t out = 0;
  if (f.record.state.doing == EngineState::Doing::waiting)
    for (const EngineState::Wait &w : f.record.state.waits) out = std::max(out, f.written_ns - w.since_ns);
  return out;
}

void add_operations(Page &page, const std::vector<Labelled> &comms) {
  page.begin("operations_total", "counter", "operations that the application has called, by kind");
  for (const Labelled &l : comms) {
    const auto &calls = l.comm->flight.record.state.calls;
    for (size_t i = 0; i < calls.size(); i++)
      if (calls[i])
        page.sample(fmt::format("{},coll=\"{}\"", l.labels, coll_name(static_cast<tutti_coll>(i))),
                    static_cast<double>(calls[i]));
  }
  page.begin("operations_completed_total", "counter", "operations that have completed");
  for (const Labelled &l : comms) page.sample(l.labels, static_cast<double>(l.comm->flight.record.state.completed));
  page.begin("operations_queued", "gauge", "operations that have been called and have not completed");
  for (const Labelled &l : comms) {
    const EngineState &s = l.comm->flight.record.state;
    page.sample(l.labels, static_cast<double>(s.enqueued - std::min(s.completed, s.enqueued)));
  }
  page.begin("oldest_operation_seconds", "gauge", "age of the oldest operation that has not completed; 0: there is none");
  for (const Labelled &l : comms) {
    const auto &oldest = l.comm->flight.record.state.oldest;
    const int64_t since = oldest ? (oldest->enqueued_ns ? oldest->enqueued_ns : oldest->started_ns) : 0;
    page.sample(l.labels, since ? seconds(std::max<int64_t>(0, l.comm->flight.written_ns - since)) : 0);
  }
  page.begin("blocked_seconds_total", "counter", "time in which operations waited for other ranks");
  for (const Labelled &l : comms) page.sample(l.labels, seconds(l.comm->flight.record.state.blocked_ns));
  page.begin("stalled", "gauge", fmt::format("1 while the rank has waited for another one for {} s", kStalled / 1'000'000'000));
  for (const Labelled &l : comms) page.sample(l.labels, longest_wait(l.comm->flight) >= kStalled);
  page.begin("failed", "gauge", "1 once the communicator has failed");
  for (const Labelled &l : comms) page.sample(l.labels, !l.comm->flight.record.state.error.ok());
}

void add_links(Page &page, const std::vector<Labelled> &comms) {
  struct Sum {
    double bytes = 0, messages = 0;
  };
  std::vector<std::pair<std::string, Sum>> sums;
  for (const Labelled &l : comms) {
    std::map<std::pair<std::string_view, bool>, Sum> by;
    for (const LinkTraffic &t : l.comm->flight.record.state.links) {
      Sum &s = by[{class_name(t.link_class), t.sending}];
      s.bytes += static_cast<double>(t.bytes);
      s.messages += static_cast<double>(t.messages);
    }
    for (const auto &[key, s] : by)
      sums.emplace_back(fmt::format("{},class=\"{}\",direction=\"{}\"", l.labels, key.first, key.second ? "send" : "recv"), s);
  }
  page.begin("link_bytes_total", "counter", "payload that has crossed the rank's links, by their class");
  for (const auto &[labels, s] : sums) page.sample(labels, s.bytes);
  page.begin("link_messages_total", "counter", "messages that have crossed the rank's links, by their class");
  for (const auto &[labels, s] : sums) page.sample(labels, s.messages);
}

void add_resources(Page &page, const std::vector<Labelled> &comms) {
  page.begin("memory_bytes", "gauge", "library memory of the communicator in this process");
  for (const Labelled &l : comms) page.sample(l.labels, static_cast<double>(l.comm->memory));
  page.begin("descriptors", "gauge", "open files of the communicator's links");
  for (const Labelled &l : comms) page.sample(l.labels, static_cast<double>(l.comm->fds));
  page.begin("collnet_in_use", "gauge", "1 while the communicator reduces in the network");
  for (const Labelled &l : comms) page.sample(l.labels, l.comm->collnet && l.comm->collnet_lost.empty());
  page.begin("ranks", "gauge", "ranks of the communicator");
  for (const Labelled &l : comms) page.sample(l.labels, l.comm->flight.who.nranks);
  page.begin("ranks_left", "gauge", "of them, those that have left");
  for (const Labelled &l : comms) page.sample(l.labels, static_cast<double>(l.comm->left.size()));
}

void add_process(Page &page, const ProcessReport &r) {
  page.begin("build_info", "gauge", "1; the version of the library is a label");
  page.sample(fmt::format("version=\"{}\"", escaped(r.version)), 1);
  page.one("communicators", "gauge", "communicators of this process", static_cast<double>(r.comms.size()));
  page.one("failures_total", "counter", "communicators of this process that have failed", static_cast<double>(failures()));
  page.one("process_cpu_seconds_total", "counter", "processor time of all threads", seconds(r.cpu_ns));
  page.one("process_resident_memory_bytes", "gauge", "memory that the process has in use", static_cast<double>(r.rss));
  page.one("process_open_fds", "gauge", "open files of the process", static_cast<double>(r.fds));
  page.one("process_threads", "gauge", "threads of the process", static_cast<double>(r.threads));
}

} // namespace

void count_failure() {
  failed.fetch_add(1, std::memory_order_relaxed);
}

uint64_t failures() {
  return failed.load(std::memory_order_relaxed);
}

std::string metrics_text(const ProcessReport &report) {
  std::vector<Labelled> comms;
  for (const CommReport &c : report.comms) {
    const FlightIdentity &who = c.flight.who;
    comms.push_back({&c, fmt::format("comm=\"{:016x}\",name=\"{}\",rank=\"{}\"", who.comm, escaped(who.name), who.rank)});
  }
  Page page;
  add_process(page, report);
  if (comms.empty()) return page.take();
  add_operations(page, comms);
  add_links(page, comms);
  add_resources(page, comms);
  return page.take();
}

Result<MetricsAt> parse_metrics_at(std::string_view text) {
  const auto bad = [&](std::string_view why) {
    return fail(Code::invalid_argument, "\"{}\" is no address to serve metrics at: {}", text, why)
        .hint("IP:PORT, [IPV6]:PORT, localhost:PORT or :PORT for all addresses; PORT may be LOW-HIGH");
  };
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return bad("it has no port");
  MetricsAt at;
  const std::string_view ports = text.substr(colon + 1);
  const char *end = ports.data() + ports.size();
  auto [p, ec] = std::from_chars(ports.data(), end, at.low);
  if (ec != std::errc()) return bad("its port is none");
  at.high = at.low;
  if (p != end && *p == '-') {
    const auto second = std::from_chars(p + 1, end, at.high);
    p = second.ptr;
    if (second.ec != std::errc()) return bad("its port is none");
  }
  if (p != end || at.high < at.low || (at.low == 0 && at.high != 0)) return bad("its ports are none");
  const std::string host(text.substr(0, colon));
  if (host.empty() || host == "localhost") {
    at.addresses.push_back(*endpoint(host.empty() ? "0.0.0.0:1" : "127.0.0.1:1"));
    at.addresses.push_back(*endpoint(host.empty() ? "[::]:1" : "[::1]:1"));
    return at;
  }
  const auto e = endpoint(host + ":1");
  if (!e) return bad("names are not looked up");
  at.addresses.push_back(*e);
  return at;
}

} // namespace tutti::ras
