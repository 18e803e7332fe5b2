// What `tutti ras` prints for people: as wide as a terminal, ranks that do the same on one line.
#include "bootstrap/wire.h"
#include "ras/rank_file.h"
#include "tools/ras_view.h"
#include <algorithm>
#include <fmt/ranges.h>
#include <set>

namespace tutti::tools::ras_live {
namespace {

// Names come from other processes.
std::string clean(std::string_view text) {
  std::string out(text);
  for (char &c : out)
    if (static_cast<unsigned char>(c) < 32 || c == 127) c = '?';
  return out;
}

// One paragraph: further lines are indented by two more.
std::string wrapped(std::string_view text, int indent, int width) {
  std::string out;
  const auto most = static_cast<size_t>(std::max(width, 40));
  std::string line(static_cast<size_t>(indent), ' ');
  bool empty = true;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    if (!empty && line.size() + 1 + word.size() > most) {
      out += line + "\n";
      line.assign(static_cast<size_t>(indent) + 2, ' ');
      empty = true;
    }
    line += (empty ? "" : " ") + std::string(word);
    empty = false;
  }
  return out + line + "\n";
}

std::string ranks_of(const std::vector<int> &ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", boot::list_ranks(ranks, ranks.size()));
}

std::string span(std::pair<uint64_t, uint64_t> of) {
  return of.first == of.second ? fmt::format("{}", of.first) : fmt::format("{} to {}", of.first, of.second);
}

std::string size(double bytes) {
  constexpr std::string_view kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < std::size(kUnits)) bytes /= 1024, unit++;
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, kUnits[unit]);
}

class Printer {
public:
  Printer(const View &view, const TextOptions &options) : view_(view), options_(options) {}
  std::string print() {
    for (const JobView &job : view_.jobs) add_job(job);
    for (const ras::Silent *s : view_.strays)
      line(0, "pid {} on this host uses the library and {}; nobody says what job it is of", s->look.pid, s->why);
    return std::move(out_);
  }

private:
  template <class... A> void line(int indent, fmt::format_string<A...> text, A &&...args) {
    out_ += wrapped(clean(fmt::format(text, std::forward<A>(args)...)), indent, options_.width);
  }

  void add_job(const JobView &job) {
    if (!out_.empty()) out_ += "\n";
    std::set<std::string> hosts;
    for (const auto &[id, p] : job.processes) hosts.insert(p.host);
    line(0, "job {}: {} rank{}, {} process{} on {} host{}, tutti {}, up {}", ras::comm_id_text(job.id), job.nranks,
         job.nranks == 1 ? "" : "s", job.processes.size(), job.processes.size() == 1 ? "" : "es", hosts.size(),
         hosts.size() == 1 ? "" : "s", fmt::join(job.versions, " and "), rasdiff::time_text(job.up_ns));
    if (job.versions.size() > 1) line(2, "warning: its processes run different versions of the library");
    for (const std::string &host : hosts) add_host(job, host);
    for (const CommView &c : job.comms) add_comm(job, c);
  }

  void add_host(const JobView &job, const std::string &host) {
    std::map<std::string, std::vector<int>> by; // those of which the same can be said
    double least = 1e9, most = -1;
    for (const auto &[id, p] : job.processes) {
      if (p.host != host) continue;
      std::string what = "answering";
      if (!p.now) {
        what = p.silent->why;
        if (p.silent->heard_ns)
          what += fmt::format(", last heard of {} ago", rasdiff::time_text(view_.at_ns - p.silent->heard_ns));
      }
      by[what].push_back(static_cast<int>(p.pid));
      if (p.now && p.cpu >= 0) least = std::min(least, p.cpu), most = std::max(most, p.cpu);
    }
    for (auto &[what, pids] : by) {
      std::sort(pids.begin(), pids.end());
      std::string cpu;
      if (what == "answering" && most >= 0)
        cpu = fmt::format(", using {:.0f} % of a core{}", 100 * most,
                          most - least > 0.1 ? fmt::format(" at most, {:.0f} % at least", 100 * least) : "");
      line(2, "host {}: pid{} {}: {}{}", host.empty() ? "unknown" : host, pids.size() == 1 ? "" : "s",
           boot::list_ranks(pids, pids.size()), what, cpu);
    }
  }

  void add_comm(const JobView &job, const CommView &c) {
    out_ += "\n";
    line(0, "{:<8} communicator {}{}, {} rank{}{}", verdict_name(c.verdict), ras::comm_id_text(c.id),
         c.name.empty() ? "" : fmt::format(" \"{}\"", c.name), c.nranks, c.nranks == 1 ? "" : "s",
         c.missing.empty() ? "" : fmt::format(", {} of them without an answer", c.missing.size()));
    if (!c.text.empty()) line(2, "{}", c.text);
    std::string rates =
        view_.interval_ns ? fmt::format(", {}, {} sent", rate_text(c.operations, false), rate_text(c.bytes, true)) : "";
    line(2, "operations of a rank: {} started, {} completed{}", span(c.started), span(c.completed), rates);
    if (c.oldest) line(2, "oldest: {}, called {} ago", c.oldest->text, rasdiff::time_text(c.oldest_age_ns));
    add_ranks(job, c);
    add_restoring(c);
    add_links(c);
    if (options_.rank >= 0) add_rank(job, c);
  }

  static std::string does(const RankView &r) {
    const EngineState &s = r.now->flight.record.state;
    if (!r.now->joining.empty()) return r.now->joining;
    if (!s.error.ok()) return "failed";
    if (!s.oldest) return s.last ? "idle after " + s.last->text : "idle, has not called anything yet";
    if (s.started <= s.completed) return "has not started " + s.oldest->text;
    std::set<int> peers;
    for (const EngineState::Wait &w : s.waits) peers.insert(w.peer);
    if (peers.empty()) return "moves data in " + s.oldest->text;
    return fmt::format("in {}, waits for {}", s.oldest->text, ranks_of({peers.begin(), peers.end()}));
  }

  // Each is somewhere else while all goes well: then the table says nothing.
  void add_ranks(const JobView &job, const CommView &c) {
    std::map<std::string, std::vector<int>> by;
    for (const auto &[r, rank] : c.ranks) {
      const auto p = job.processes.find(rank.process);
      const std::string where = p == job.processes.end() ? "" : fmt::format(" (pid {} on {})", p->second.pid, p->second.host);
      if (rank.now)
        by[does(rank)].push_back(r);
      else
        by[rank.absence + (where.empty() ? "" : where)].push_back(r);
    }
    if (c.verdict == Verdict::running && c.missing.empty() && by.size() > kMostKinds) return;
    std::vector<std::pair<int, std::string>> lines;
    for (const auto &[what, ranks] : by) lines.push_back({ranks.front(), fmt::format("{}: {}", ranks_of(ranks), what)});
    std::sort(lines.begin(), lines.end());
    for (size_t i = 0; i < lines.size() && i < kMostLines; i++) line(2, "{}", lines[i].second);
    if (lines.size() > kMostLines) line(2, "and {} more; --json has all", lines.size() - kMostLines);
  }

  void add_restoring(const CommView &c) {
    size_t lines = 0, all = 0;
    for (const auto &[r, rank] : c.ranks) {
      if (!rank.now) continue;
      for (const auto &[peer, what] : rank.now->restoring)
        if (++all; lines < kMostLines) lines++, line(2, "rank {}: {}", r, what);
    }
    if (all > lines) line(2, "and {} more lost connections; --json has all", all - lines);
  }

  void add_links(const CommView &c) {
    struct Sum {
      size_t links = 0, lost = 0;
      double bytes = 0;
    };
    std::map<std::string, Sum> sums;
    std::string list;
    for (const auto &[r, rank] : c.ranks)
      for (const LinkView &l : rank.links) {
        if (!l.traffic.sending) continue;
        const std::string kind = l.way.starts_with("net ") ? l.way.substr(0, l.way.find(' ', 4)) : l.way;
        Sum &s = sums[kind];
        s.links++;
        s.lost += l.lost;
        s.bytes += static_cast<double>(l.traffic.bytes);
      }
    for (const auto &[kind, s] : sums)
      list += fmt::format("{}{} {} ({}{})", list.empty() ? "" : ", ", s.links, kind, size(s.bytes),
                          s.lost ? fmt::format(", {} lost", s.lost) : "");
    if (!list.empty()) line(2, "links: {}", list);
    if (!options_.links) return;
    for (const auto &[r, rank] : c.ranks)
      for (const LinkView &l : rank.links)
        if (l.traffic.sending) add_link(r, l);
  }
  void add_link(int rank, const LinkView &l) {
    const std::string to =
        l.traffic.readers ? fmt::format("{} readers", l.traffic.readers) : fmt::format("rank {}", l.traffic.peer);
    line(4, "rank {} to {}: {}, {}, {} in {} messages", rank, to, l.way, l.lost ? "lost" : "connected",
         size(static_cast<double>(l.traffic.bytes)), l.traffic.messages);
  }

  void add_rank(const JobView &job, const CommView &c) {
    const auto at = c.ranks.find(options_.rank);
    if (at == c.ranks.end()) return line(2, "it has no rank {}", options_.rank);
    const RankView &r = at->second;
    const auto p = job.processes.find(r.process);
    line(2, "rank {}: pid {} on {}", options_.rank, p == job.processes.end() ? 0 : p->second.pid,
         p == job.processes.end() ? "an unknown host" : p->second.host);
    if (!r.now) return line(4, "{}", r.absence);
    const EngineState &s = r.now->flight.record.state;
    line(4, "{}", does(r));
    line(4, "{} called, {} started, {} completed{}", s.enqueued, s.started, s.completed,
         view_.interval_ns ? fmt::format(", {}, {} sent", rate_text(r.operations, false), rate_text(r.bytes, true)) : "");
    line(4, "{} in the library's memory, {} open files, waited {} for others", size(static_cast<double>(r.now->memory)),
         r.now->fds, rasdiff::time_text(s.blocked_ns));
    for (const EngineState::Wait &w : s.waits)
      line(4, "waits for rank {} ({}) since {}", w.peer, w.receiving ? "recv" : "send",
           rasdiff::time_text(r.now->flight.written_ns - w.since_ns));
    if (!options_.links)
      for (const LinkView &l : r.links)
        if (l.traffic.sending) add_link(options_.rank, l);
  }

  static constexpr size_t kMostKinds = 4, kMostLines = 24;
  const View &view_;
  const TextOptions &options_;
  std::string out_;
};

} // namespace

std::string rate_text(double v, bool bytes) {
  constexpr std::string_view kUnits[] = {"", "k", "M", "G", "T"};
  size_t unit = 0;
  while (v >= 1000 && unit + 1 < std::size(kUnits)) v /= 1000, unit++;
  const int digits = v >= 100 || v == 0 ? 0 : v >= 10 ? 1 : 2;
  return fmt::format("{:.{}f}{}{}{}", v, digits, bytes || unit ? " " : "", kUnits[unit], bytes ? "B/s" : "/s");
}

std::string view_text(const View &view, const TextOptions &options) {
  return Printer(view, options).print();
}

} // namespace tutti::tools::ras_live
