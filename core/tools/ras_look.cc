#include "tools/ras_look.h"
#include "base/file.h"
#include "base/ticks.h"
#include "bootstrap/hub.h"
#include "bootstrap/launch.h"
#include "bootstrap/rendezvous.h"
#include <charconv>
#include <future>
#include <set>
#include <unistd.h>

namespace tutti::tools::ras_live {

using ras::Fellow;
using ras::Question;

std::vector<uint64_t> listeners(std::string_view text) {
  constexpr std::string_view kName = "@tutti-";
  constexpr uint64_t kAccepts = 0x10000; // of a socket that listens, as the kernel shows it
  std::set<uint64_t> out;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const size_t name = line.rfind(' ');
    if (name == std::string_view::npos || !line.substr(name + 1).starts_with(kName)) continue;
    const std::string_view digits = line.substr(name + 1 + kName.size());
    uint64_t process = 0, flags = 0;
    const auto end = std::from_chars(digits.data(), digits.data() + digits.size(), process, 16);
    if (digits.size() != 16 || end.ptr != digits.data() + digits.size()) continue;
    size_t at = 0; // the fourth field
    for (int i = 0; i < 3 && at != std::string_view::npos; i++) at = line.find_first_not_of(' ', line.find(' ', at));
    if (at == std::string_view::npos) continue;
    std::from_chars(line.data() + at, line.data() + line.size(), flags, 16);
    if (flags & kAccepts) out.insert(process);
  }
  return {out.begin(), out.end()};
}

Looker::Looker(LookOptions options, std::shared_ptr<const Config> config)
    : options_(std::move(options)), config_(std::move(config)), my_host_(boot::host_id(*config_)) {}

Result<Looker> Looker::create(LookOptions options) {
  TUTTI_ASSIGN(config, Config::process());
  Looker l(std::move(options), config);
  if (l.options_.host.empty()) return l;
  auto at = boot::parse_host_port(l.options_.host);
  if (!at.ok()) return fail(Code::invalid_argument, "--host \"{}\" is no HOST:PORT or [IPV6]:PORT", l.options_.host);
  const std::string path = l.options_.key_file.empty() ? config->text("core.job_key_file") : l.options_.key_file;
  if (path.empty())
    return fail(Code::invalid_argument, "--host needs the job's key: --key-file FILE, or TUTTI_JOB_KEY_FILE")
        .hint("a job without one answers only on its own hosts: run tutti ras there");
  TUTTI_ASSIGN(key, boot::read_job_key(path));
  TUTTI_ASSIGN(found, boot::resolve(at->host, "--host", *config, Deadline::in(l.options_.timeout)));
  Fellow f;
  f.contact.process[0] = 1; // not known yet
  f.contact.hostname = at->host;
  f.under = boot::ask_identity(key);
  for (boot::Endpoint &e : found) e.set_port(at->port);
  f.contact.endpoints = std::move(found);
  l.far_.push_back(std::move(f));
  return l;
}

// Those of this host that may be asked. Who is stopped is not asked but named.
Status Looker::find(Snapshot *out) {
  TUTTI_ASSIGN(text, read_file("/proc/net/unix", 64u << 20));
  std::vector<Fellow> whom;
  for (const uint64_t process : listeners(text)) {
    const ras::Look look = neighbours_->look(process);
    if (look.seen == ras::Look::Seen::gone || look.pid == ::getpid()) continue;
    if (::geteuid() != 0 && look.uid >= 0 && look.uid != static_cast<int64_t>(::geteuid())) {
      out->of_others++;
      continue;
    }
    Fellow f;
    f.contact.process[0] = process;
    f.contact.host = my_host_;
    f.contact.hostname = boot::host_name();
    f.contact.pid = static_cast<int32_t>(look.pid);
    f.under = boot::local_ask_identity();
    whom.push_back(std::move(f));
  }
  Question q;
  q.ask = options_.ask;
  q.alone = true;
  ask(std::move(whom), q, Deadline::in(options_.timeout / 2), out);
  return {};
}

void Looker::ask(std::vector<Fellow> whom, const Question &q, Deadline deadline, Snapshot *out) {
  if (whom.empty()) return;
  struct State {
    std::mutex mutex; // guards got
    Snapshot got;
    std::promise<void> done;
    std::shared_ptr<ras::Asking> asking; // service thread
  };
  const auto state = std::make_shared<State>();
  ras::Asking::Plan plan;
  plan.question = q;
  plan.budget = deadline.left();
  plan.whom = std::move(whom);
  plan.config = config_;
  plan.my_host = my_host_;
  plan.neighbours = neighbours_.get();
  plan.on_answer = [state](ras::Answer what, const Bytes &data, const ras::ProcessReport *report) {
    const std::string_view text(reinterpret_cast<const char *>(data.data()), data.size());
    std::lock_guard lock(state->mutex);
    if (report) state->got.processes[report->process] = *report;
    if (what == ras::Answer::file) state->got.files.emplace_back(text);
    if (what != ras::Answer::silent) return;
    if (auto s = ras::parse_silent(text, "answer"); s.ok()) state->got.silent[s->process] = std::move(*s);
  };
  plan.on_end = [state](std::vector<ras::Silent> silent) {
    {
      std::lock_guard lock(state->mutex);
      for (ras::Silent &s : silent) state->got.silent[s.process] = std::move(s);
    }
    state->done.set_value();
  };
  boot::Service &service = boot::Service::get();
  service.post([state, &service, p = std::move(plan)]() mutable { state->asking = ras::Asking::start(service, std::move(p)); });
  auto done = state->done.get_future();
  done.wait();
  std::promise<void> forgotten; // it holds what is this thread's
  service.post([state, &forgotten] {
    state->asking = nullptr;
    forgotten.set_value();
  });
  forgotten.get_future().wait();
  std::lock_guard lock(state->mutex);
  out->processes.merge(state->got.processes);
  for (auto &[process, s] : state->got.silent)
    if (!out->processes.contains(process)) out->silent.try_emplace(process, std::move(s));
  for (std::string &f : state->got.files) out->files.push_back(std::move(f));
}

// Of each communicator of which ranks are missing one process that has it: it can reach the others.
std::vector<Fellow> Looker::delegates(const Snapshot &s) const {
  std::map<uint64_t, std::pair<std::set<int>, int>> ranks; // of communicators: those seen, and how many there are
  for (const auto &[process, r] : s.processes)
    for (const auto &c : r.comms) {
      auto &[seen, n] = ranks[c.flight.who.comm];
      seen.insert(c.flight.who.rank);
      n = c.flight.who.nranks;
    }
  std::map<uint64_t, Fellow> out;
  std::set<uint64_t> covered;
  for (const auto &[process, r] : s.processes)
    for (const auto &c : r.comms) {
      const auto &[seen, n] = ranks[c.flight.who.comm];
      if (static_cast<int>(seen.size()) >= n || !covered.insert(c.flight.who.comm).second) continue;
      Fellow &f = out[process];
      f.contact.process[0] = process;
      f.contact.host = my_host_;
      f.contact.pid = static_cast<int32_t>(r.pid);
      f.contact.hostname = r.host;
      f.under = boot::local_ask_identity();
    }
  std::vector<Fellow> list;
  for (auto &[process, f] : out) list.push_back(std::move(f));
  return list;
}

// Those that somebody knows of and nobody has asked, and when this tool last heard of those that are silent.
void Looker::place(Snapshot *out) const {
  for (const auto &[process, r] : out->processes)
    for (const auto &k : r.more) {
      if (out->processes.contains(k.contact.process[0])) continue;
      ras::Silent &s = out->silent[k.contact.process[0]];
      if (s.process == 0) {
        s.process = k.contact.process[0];
        s.why = "has not been asked";
      }
      if (s.pid == 0) s.pid = k.contact.pid;
      if (s.host.empty()) s.host = k.contact.hostname;
      if (s.host_id == 0) s.host_id = k.contact.host;
      for (const ras::Place &p : k.places)
        if (std::find(s.places.begin(), s.places.end(), p) == s.places.end()) s.places.push_back(p);
    }
  for (auto &[process, s] : out->silent)
    if (const auto at = heard_.find(process); at != heard_.end()) s.heard_ns = std::max(s.heard_ns, at->second);
}

Result<Snapshot> Looker::look() {
  Snapshot out;
  out.at_ns = ticks::Reader().now_ns();
  const Deadline deadline = Deadline::in(options_.timeout);
  Question q;
  q.ask = options_.ask;
  if (options_.host.empty()) {
    TUTTI_TRY(find(&out));
    auto whom = delegates(out);
    if (!whom.empty() && !deadline.expired()) {
      q.relay = true;
      const auto asked = [&](uint64_t p) { // once more, and to ask others
        return std::any_of(whom.begin(), whom.end(), [&](const Fellow &f) { return f.contact.process[0] == p; });
      };
      for (const auto &[process, r] : out.processes)
        if (!asked(process)) q.known.push_back(process);
      Snapshot more;
      ask(std::move(whom), q, deadline, &more);
      for (auto &[process, r] : more.processes) out.processes.try_emplace(process, std::move(r));
      for (auto &[process, s] : more.silent) // they know its ranks
        if (!out.processes.contains(process)) out.silent[process] = std::move(s);
      if (q.ask == ras::Ask::collect)
        for (std::string &f : more.files) out.files.push_back(std::move(f));
    }
  } else {
    q.relay = true;
    ask(far_, q, deadline, &out);
    if (out.processes.empty()) {
      const auto &s = out.silent.begin()->second;
      return fail(Code::remote, "no answer: {}", s.why)
          .hint("is that the address that tutti ras --where tells, and the job's own key?");
    }
    out.silent.erase(1);
  }
  for (const auto &[process, r] : out.processes) heard_[process] = out.at_ns;
  place(&out);
  return out;
}

} // namespace tutti::tools::ras_live
