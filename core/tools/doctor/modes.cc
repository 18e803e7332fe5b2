// Between processes: inside a job, or started on other hosts.
#include "tools/doctor/modes.h"
#include "bootstrap/launch.h"
#include "comm/startup.h"
#include "tools/cli.h"
#include "tools/doctor/log_explain.h"
#include "tools/doctor/pairs.h"
#include "tools/doctor/remote.h"
#include "tools/job.h"
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <sstream>
#include <sys/socket.h>

namespace tutti::doctor {
namespace {

using nlohmann::json;
using tools::kFailed;
using tools::kUsage;
using tools::print_error;

std::string dump(const json &j, int indent) {
  return j.dump(indent, ' ', false, json::error_handler_t::replace);
}

json report_json(const PairsReport &report) {
  json out = pairs_json(report);
  out["findings"] = findings_json(judge(report));
  out["matrix"] = matrix_text(report);
  return out;
}

int print_report(const json &report, const Findings &findings, const Args &args) {
  if (args.json) {
    json out = report;
    out["findings"] = findings_json(findings);
    out.erase("matrix"); // the pairs say the same
    fmt::print("{}\n", dump(out, 2));
    return exit_code(findings);
  }
  const size_t hosts = report.value("hosts", json::array()).size(), pairs = report.value("pairs", json::array()).size();
  const size_t same_host = report.value("same_host", json::array()).size();
  fmt::print("{} host{}, {} pair{} of them, {} pair{} of ranks of one host\n\n", hosts, hosts == 1 ? "" : "s", pairs / 2,
             pairs / 2 == 1 ? "" : "s", same_host, same_host == 1 ? "" : "s");
  if (const auto matrix = report.find("matrix"); args.matrix && matrix != report.end() && matrix->is_string())
    fmt::print("{}\n", matrix->get<std::string>());
  print_findings(findings, args);
  return exit_code(findings);
}

// Without a report: what is known nevertheless. The error has been printed.
int print_without_report(const std::string &error, const Findings &findings, const Args &args) {
  if (args.json)
    fmt::print("{}\n", dump({{"error", error}, {"findings", findings_json(findings)}}, 2));
  else
    print_findings(findings, args);
  return kFailed;
}

// ---- a job that does not come together: what can be said without it

// Whether the place where ranks meet can be reached from here.
std::string try_endpoint(const boot::Endpoint &to, Nanos patience) {
  const UniqueFd fd(socket(to.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return std::strerror(errno);
  int err = connect(fd.get(), reinterpret_cast<const sockaddr *>(&to.storage), to.length()) == 0 ? 0 : errno;
  if (err == EINPROGRESS) {
    pollfd p{fd.get(), POLLOUT, 0};
    socklen_t n = sizeof err;
    if (poll(&p, 1, Deadline::in(patience).left_ms()) <= 0)
      err = ETIMEDOUT;
    else
      getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &err, &n);
  }
  return err ? std::strerror(err) : "";
}

void try_root(const tuttiUniqueId &id, Findings &out) {
  const auto decoded = boot::decode(id);
  if (!decoded.ok()) return;
  bool any = false;
  std::string failures;
  for (const boot::Endpoint &e : decoded->endpoints) {
    const std::string why = try_endpoint(e, std::chrono::seconds(2));
    any = any || why.empty();
    if (!why.empty()) failures += fmt::format("{}{}: {}", failures.empty() ? "" : ", ", e.text(), why);
  }
  if (any)
    out.ok("job.root", "the place where the ranks meet can be reached from here");
  else if (!failures.empty())
    out.add(Level::error, "job.root", fmt::format("the place where the ranks meet cannot be reached from here: {}", failures),
            "no rank of this host can join",
            "its process has ended, or a firewall is between: tutti doctor --hosts tests the hosts without a job");
}

int job_failed(const Status &why, const Bootstrap::Launch *launch, const Args &args) {
  print_error(why.error().line());
  const int rank = launch ? launch->rank : -1;
  Findings findings;
  if (launch) try_root(launch->id, findings);
  if (rank > 0) { // once is enough of all that is alike
    for (const Finding &f : findings.all())
      if (f.level == Level::error) print_error(fmt::format("rank {}: {}", rank, f.seen));
    return kFailed;
  }
  if (args.json) return print_without_report(why.error().line(), findings, args);
  std::istringstream line("error: " + why.error().line());
  const Explanation e = explain_log(line);
  fmt::print("the ranks have not come together, so pairs are not tested{}\n\n",
             e.symptoms.empty() ? "" : "; what the error means:");
  if (!e.symptoms.empty()) fmt::print("{}\n", explanation_text(e, "the error"));
  print_findings(findings, args);
  std::fflush(stdout);
  fmt::print("\nthis host alone:\n");
  (void)doctor_host(args);
  return kFailed;
}

} // namespace

int doctor_job(const Args &args) {
  const auto config = Config::process();
  if (!config.ok()) {
    print_error(config.status().error().line());
    return kFailed;
  }
  provide_services(); // before plugins are opened: ranks may meet through one
  const auto launcher = tools::outer_launcher();
  if (!launcher.ok() || !*launcher) {
    print_error(launcher.ok()
                    ? "--job: no launcher has started this process as a rank; tutti run -n N -- tutti doctor --job, mpirun "
                      "or srun do, and --hosts does without"
                    : launcher.status().error().line());
    return launcher.ok() ? kUsage : kFailed;
  }
  const Deadline deadline = args.deadline();
  const Deadline joining = Deadline::in(std::min<Nanos>(deadline.span() / 2, (*config)->duration("core.init_timeout")));
  auto launch = Bootstrap::launch_from_env(**config, joining);
  if (!launch.ok()) return job_failed(launch.status(), nullptr, args);
  auto joined = Bootstrap::join(launch->id, launch->nranks, launch->rank, *config, joining);
  if (!joined.ok()) return job_failed(joined.status(), &*launch, args);
  const auto exchange = job_exchange(std::move(*joined), launch->id);
  const auto report = run_pairs(*exchange, *config, {.ranks_here = args.ranks, .deadline = deadline});
  if (!report.ok()) {
    print_error(report.status().error().line());
    return kFailed;
  }
  exchange->bootstrap()->expect_close();
  if (exchange->rank() != 0) return tools::kOk;
  return print_report(report_json(*report), judge(*report), args);
}

int doctor_joined(const Args &) {
  const auto start = read_pipe_start(Deadline::in(std::chrono::seconds(30)));
  if (!start.ok()) {
    print_error(start.status().error().line());
    return kFailed;
  }
  // Whoever started this one may be gone without a word, as a connection of ssh that hangs.
  alarm(static_cast<unsigned>(start->timeout_s) + 15);
  for (const auto &[name, value] : start->settings) setenv(name.c_str(), value.c_str(), 1);
  const auto config = Config::process();
  auto exchange = pipe_exchange(*start);
  if (!config.ok() || !exchange.ok()) {
    print_error((config.ok() ? exchange.status() : config.status()).error().line());
    return kFailed;
  }
  const auto span = Nanos(static_cast<int64_t>(start->timeout_s * 0.9e9)); // before whoever waits for the report gives up
  const auto report = run_pairs(**exchange, *config, {.ranks_here = start->ranks_here, .deadline = Deadline::in(span)});
  if (!report.ok()) {
    print_error(report.status().error().line());
    return kFailed;
  }
  // The first that is still there speaks for all.
  for (size_t h = 0; h < report->hosts.size(); h++) {
    if (!report->hosts[h].present) continue;
    if (report->ranks[h].front() == start->rank) fmt::print("{}{}\n", kReportMark, dump(report_json(*report), -1));
    break;
  }
  fmt::print("{}\n", kEndMark);
  std::fflush(stdout);
  return tools::kOk;
}

int doctor_hosts(const Args &args) {
  const auto hosts = hosts_of(args.hosts, args.hostfile);
  if (!hosts.ok() || hosts->size() < 2) {
    print_error(hosts.ok() ? fmt::format("{} host{}: pairs need two at least", hosts->size(), hosts->size() == 1 ? "" : "s")
                           : hosts.status().error().line());
    return kUsage;
  }
  RemoteOptions options;
  options.hosts = *hosts;
  options.shell = args.shell;
  options.program = args.program;
  options.ranks_here = args.ranks;
  options.timeout_s = args.timeout_s;
  Findings findings;
  const auto report = ask_hosts(options, &findings);
  if (!report.ok()) {
    if (report.status().code() == Code::invalid_argument) {
      print_error(report.status().error().line());
      return kUsage;
    }
    const int code = print_without_report(report.status().error().line(), findings, args);
    print_error(report.status().error().line());
    return code;
  }
  findings.add(findings_from(report->value("findings", json::array())));
  return print_report(*report, findings, args);
}

} // namespace tutti::doctor
