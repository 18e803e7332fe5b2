#include "tools/ras_status.h"
#include "base/file.h"
#include "ras/rank_file.h"
#include "tools/cli.h"
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <set>
#include <sys/ioctl.h>
#include <thread>
#include <unistd.h>

namespace tutti::tools::ras_live {
namespace {

volatile std::sig_atomic_t interrupted = 0;

void pause_for(double seconds) {
  const auto until = Clock::now() + std::chrono::duration_cast<Nanos>(std::chrono::duration<double>(seconds));
  while (!interrupted && Clock::now() < until)
    std::this_thread::sleep_for(std::min<Nanos>(std::chrono::milliseconds(50), until - Clock::now()));
}

int nothing(const View &v, const StatusOptions &o) {
  if (o.json) fmt::print("{}", view_json(v, o.watch > 0 ? -1 : 2));
  const bool chosen = o.view.pid || !o.view.job.empty() || !o.view.comm.empty();
  std::string text =
      chosen ? "no running job is what was asked for" : "no process of this user on this host has a communicator";
  if (v.of_others) text += fmt::format("; {} of other users have not been asked", v.of_others);
  for (const ras::Silent *s : v.strays) text += fmt::format("; pid {} uses the library and {}", s->look.pid, s->why);
  print_error("ras: " + text);
  return kFailed;
}

int code_of(const View &v) {
  for (const JobView &job : v.jobs)
    for (const CommView &c : job.comms)
      if (c.verdict == Verdict::stalled || c.verdict == Verdict::failed) return kVerdict;
  return kOk;
}

void show(const View &v, const StatusOptions &o, bool terminal) {
  if (o.json) {
    fmt::print("{}", view_json(v, o.watch > 0 ? -1 : 2));
  } else {
    if (o.watch > 0 && terminal) fmt::print("\x1b[H\x1b[2J");
    fmt::print("{}{}", view_text(v, o.text), o.watch > 0 && !terminal ? "\n" : "");
  }
  std::fflush(stdout);
}

int show_where(const View &v) {
  for (const JobView &job : v.jobs)
    for (const auto &[id, p] : job.processes) {
      if (!p.now) continue;
      std::string list;
      for (const std::string &a : p.now->addresses) list += (list.empty() ? "" : " ") + a;
      fmt::print("pid {} on {}: {}\n", p.pid, p.host, list.empty() ? "no address" : list);
    }
  fmt::print("from afar: tutti ras --host ADDRESS --key-file FILE, with the file that the job has in TUTTI_JOB_KEY_FILE\n");
  return kOk;
}

int finish_dump(const Snapshot &now, const StatusOptions &o) {
  int code = kOk;
  for (const auto &[process, s] : now.silent)
    if (!s.places.empty()) {
      print_error(fmt::format("ras: nothing from pid {} on {}: it {}", s.pid, s.host, s.why));
      code = kFailed;
    }
  if (o.output.empty()) {
    for (const auto &[process, r] : now.processes)
      for (const std::string &note : r.notes) fmt::print("pid {} on {}: {}\n", r.pid, r.host, note);
    return code;
  }
  std::error_code problem;
  std::filesystem::create_directories(o.output, problem);
  std::set<std::string> written;
  for (const std::string &text : now.files) {
    const auto file = ras::parse_flight(text, "a process's answer");
    if (!file.ok()) {
      print_error("ras: " + file.status().error().message);
      code = kFailed;
      continue;
    }
    const std::string path = fmt::format("{}/flight.{}.{}.json", o.output, ras::comm_id_text(file->who.comm), file->who.rank);
    if (const Status s = replace_file(path, text); !s.ok()) {
      print_error("ras: " + s.error().message);
      return kFailed;
    }
    written.insert(path);
  }
  fmt::print("{} flight-recorder files in {}; tutti ras diff {}/*.json says what they mean\n", written.size(), o.output,
             o.output);
  return code;
}

int once(Looker &looker, StatusOptions &o) {
  std::optional<Snapshot> before;
  if (o.interval > 0 && !o.where && !o.dump) {
    auto first = looker.look();
    if (first.ok()) before = std::move(*first);
    if (before && !before->processes.empty()) pause_for(o.interval);
  }
  auto now = looker.look();
  if (!now.ok()) {
    print_error("ras: " + now.status().error().line());
    return kFailed;
  }
  const View v = make_view(before ? &*before : nullptr, *now, o.view);
  if (v.jobs.empty()) return nothing(v, o);
  if (o.where) return show_where(v);
  if (o.dump) return finish_dump(*now, o);
  show(v, o, false);
  return code_of(v);
}

// Until it is interrupted, or there is nothing left to see.
int watch(Looker &looker, const StatusOptions &o) {
  struct sigaction stop {};
  stop.sa_handler = [](int) { interrupted = 1; };
  ::sigaction(SIGINT, &stop, nullptr);
  ::sigaction(SIGTERM, &stop, nullptr);
  const bool terminal = ::isatty(STDOUT_FILENO) != 0;
  std::optional<Snapshot> before;
  int code = kFailed;
  while (!interrupted) {
    auto now = looker.look();
    if (!now.ok()) {
      print_error("ras: " + now.status().error().line());
      return before ? code : kFailed;
    }
    const View v = make_view(before ? &*before : nullptr, *now, o.view);
    if (v.jobs.empty()) return before ? code : nothing(v, o);
    show(v, o, terminal);
    if (std::ferror(stdout)) return code; // nobody reads any more
    code = code_of(v);
    before = std::move(*now);
    pause_for(o.watch);
  }
  return code;
}

} // namespace

int status(StatusOptions o) {
  if (o.dump) o.look.ask = o.output.empty() ? ras::Ask::dump : ras::Ask::collect;
  winsize terminal{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &terminal) == 0 && terminal.ws_col >= 40) o.text.width = terminal.ws_col;
  auto looker = Looker::create(o.look);
  if (!looker.ok()) {
    print_error("ras: " + looker.status().error().line());
    return kFailed;
  }
  return o.watch > 0 ? watch(*looker, o) : once(*looker, o);
}

} // namespace tutti::tools::ras_live
