#include "tools/doctor/remote.h"
#include "base/file.h"
#include "bootstrap/crypto.h"
#include "bootstrap/hostlist.h"
#include "tools/doctor/exchange.h"
#include "tools/doctor/tree.h"
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <optional>
#include <poll.h>
#include <sstream>
#include <sys/prctl.h>
#include <sys/wait.h>

extern char **environ;

namespace tutti::doctor {
namespace {

constexpr size_t kMostText = 64u << 20; // of one host, not taken yet
constexpr size_t kErrorText = 2048;     // of its standard error, the end of it

struct Agent {
  std::string host;
  pid_t pid = -1;
  UniqueFd in, out, err; // its standard streams
  std::string to_send, text, errors;
  std::optional<std::string> said; // in this turn
  bool finished = false;           // it has said that it is through
  bool gone = false;
  std::string why; // "" = it may
};

// Not secret, and not this process's own place in a job.
std::vector<std::pair<std::string, std::string>> settings_to_pass() {
  constexpr std::string_view kOwn[] = {"TUTTI_COMM_ID",    "NCCL_COMM_ID",     "TUTTI_JOB_KEY_FILE",
                                       "TUTTI_RANK",       "TUTTI_NRANKS",     "TUTTI_LOCAL_RANK",
                                       "TUTTI_LOCAL_SIZE", "TUTTI_RENDEZVOUS", "TUTTI_JOB_NAME"};
  std::vector<std::pair<std::string, std::string>> out;
  for (char **e = environ; *e; e++) {
    const std::string_view word = *e;
    const std::string name(word.substr(0, word.find('=')));
    if (!name.starts_with("TUTTI_") && !name.starts_with("NCCL_")) continue;
    if (std::find(std::begin(kOwn), std::end(kOwn), name) == std::end(kOwn))
      out.emplace_back(name, word.substr(std::min(word.size(), name.size() + 1)));
  }
  return out;
}

class Driver {
public:
  Driver(const RemoteOptions &options, Findings *own)
      : options_(options), own_(own), deadline_(Deadline::in(Nanos(static_cast<int64_t>(options.timeout_s * 1e9)))) {}
  ~Driver();
  Result<nlohmann::json> run();

private:
  Status start(Agent &agent, const PipeStart &start);
  void give_up(Agent &agent, std::string why);
  void turn();
  void pump(Agent &agent, int fd_index);
  void take_lines(Agent &agent);
  bool all_said() const;

  const RemoteOptions &options_;
  Findings *own_;
  const Deadline deadline_;
  std::vector<Agent> agents_;
  std::optional<nlohmann::json> report_;
};

Status Driver::start(Agent &agent, const PipeStart &start) {
  int in[2], out[2], err[2];
  if (pipe2(in, O_CLOEXEC) != 0) return fail_errno(errno, "cannot make a pipe");
  const UniqueFd child_in(in[0]);
  agent.in.reset(in[1]);
  if (pipe2(out, O_CLOEXEC) != 0) return fail_errno(errno, "cannot make a pipe");
  agent.out.reset(out[0]);
  const UniqueFd child_out(out[1]);
  if (pipe2(err, O_CLOEXEC) != 0) return fail_errno(errno, "cannot make a pipe");
  agent.err.reset(err[0]);
  const UniqueFd child_err(err[1]);
  std::vector<std::string> command = words(options_.shell);
  if (command.size() == 1 && command[0] == "ssh")
    command.insert(command.end(), {"-o", "BatchMode=yes", "-o", "ConnectTimeout=10"});
  for (const std::string &word : {agent.host, options_.program, std::string("doctor"), std::string("--join")})
    command.push_back(word);
  std::vector<char *> argv;
  for (std::string &word : command) argv.push_back(word.data());
  argv.push_back(nullptr);
  agent.pid = fork();
  if (agent.pid < 0) return fail_errno(errno, fmt::format("cannot start \"{}\"", command[0]));
  if (agent.pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    setpgid(0, 0); // a key press ends this process alone, and its end theirs
    dup2(child_in.get(), STDIN_FILENO);
    dup2(child_out.get(), STDOUT_FILENO);
    dup2(child_err.get(), STDERR_FILENO);
    signal(SIGPIPE, SIG_DFL);
    execvp(argv[0], argv.data());
    const std::string text = fmt::format("cannot run \"{}\": {}\n", argv[0], strerror(errno));
    if (write(STDERR_FILENO, text.data(), text.size()) < 0) _exit(126);
    _exit(127);
  }
  for (const UniqueFd *fd : {&agent.in, &agent.out, &agent.err}) fcntl(fd->get(), F_SETFL, O_NONBLOCK);
  agent.to_send = pipe_start_line(start);
  return {};
}

void Driver::give_up(Agent &agent, std::string why) {
  if (agent.gone) return;
  agent.gone = true;
  agent.why = std::move(why);
  agent.in.reset();
}

bool Driver::all_said() const {
  return std::all_of(agents_.begin(), agents_.end(), [](const Agent &a) { return a.gone || a.finished || a.said; });
}

void Driver::take_lines(Agent &agent) {
  size_t begin = 0;
  for (size_t end; (end = agent.text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string_view line = std::string_view(agent.text).substr(begin, end - begin);
    if (line.starts_with(kPipeMark)) {
      const auto said = nlohmann::json::parse(line.substr(kPipeMark.size()), nullptr, false);
      agent.said = said.is_string() ? said.get<std::string>() : "";
    } else if (line == kEndMark) {
      agent.finished = true;
    } else if (line.starts_with(kReportMark) && !report_) {
      auto report = nlohmann::json::parse(line.substr(kReportMark.size()), nullptr, false);
      if (report.is_object()) report_ = std::move(report);
    }
  }
  agent.text.erase(0, begin);
  if (agent.text.size() > kMostText) give_up(agent, "it writes without end");
}

void Driver::pump(Agent &agent, int fd_index) {
  if (fd_index == 0) {
    const ssize_t n = write(agent.in.get(), agent.to_send.data(), agent.to_send.size());
    if (n > 0) agent.to_send.erase(0, static_cast<size_t>(n));
    if (n < 0 && errno != EAGAIN && errno != EINTR) agent.to_send.clear(); // its end is noticed at its output
    return;
  }
  UniqueFd &fd = fd_index == 1 ? agent.out : agent.err;
  std::string &text = fd_index == 1 ? agent.text : agent.errors;
  char buffer[65536];
  const ssize_t n = read(fd.get(), buffer, sizeof buffer);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n > 0) {
    text.append(buffer, static_cast<size_t>(n));
    if (fd_index == 1) take_lines(agent);
    if (fd_index == 2 && text.size() > kErrorText) text.erase(0, text.size() - kErrorText);
    return;
  }
  fd.reset();
  if (fd_index == 1) give_up(agent, agent.finished ? "" : "it ended");
}

// Until all have spoken, or the report is there.
void Driver::turn() {
  const Deadline patience = Deadline::in(std::min<Nanos>(
      deadline_.left(), std::clamp<Nanos>(deadline_.span() / 3, std::chrono::seconds(5), std::chrono::seconds(60))));
  while (!report_ && !all_said()) {
    std::vector<pollfd> fds;
    std::vector<std::pair<Agent *, int>> whose;
    for (Agent &a : agents_) {
      if (a.in && !a.to_send.empty()) fds.push_back({a.in.get(), POLLOUT, 0}), whose.emplace_back(&a, 0);
      if (a.out) fds.push_back({a.out.get(), POLLIN, 0}), whose.emplace_back(&a, 1);
      if (a.err) fds.push_back({a.err.get(), POLLIN, 0}), whose.emplace_back(&a, 2);
    }
    if (poll(fds.data(), fds.size(), patience.left_ms()) <= 0 && patience.expired()) break;
    for (size_t i = 0; i < fds.size(); i++)
      if (fds[i].revents) pump(*whose[i].first, whose[i].second);
  }
  for (Agent &a : agents_)
    if (!report_ && !a.gone && !a.finished && !a.said)
      give_up(a, fmt::format("it said nothing within {:.0f} s", std::chrono::duration<double>(patience.span()).count()));
}

Result<nlohmann::json> Driver::run() {
  signal(SIGPIPE, SIG_IGN);
  boot::Secret key{};
  boot::random_bytes(key);
  PipeStart start;
  start.size = static_cast<int>(options_.hosts.size());
  start.timeout_s = options_.timeout_s;
  start.key = hex(key);
  start.settings = settings_to_pass();
  start.ranks_here = options_.ranks_here;
  agents_.resize(options_.hosts.size());
  for (size_t i = 0; i < agents_.size(); i++) {
    agents_[i].host = options_.hosts[i];
    start.rank = static_cast<int>(i);
    start.host = agents_[i].host;
    TUTTI_TRY(this->start(agents_[i], start));
  }
  const auto playing = [this] {
    return std::any_of(agents_.begin(), agents_.end(), [](const Agent &a) { return !a.gone && !a.finished; });
  };
  while (!report_ && playing() && !deadline_.expired()) {
    turn();
    if (report_) break;
    nlohmann::json all = nlohmann::json::array();
    for (const Agent &a : agents_) all.push_back(a.gone ? "" : a.said.value_or(""));
    const std::string line = all.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    for (Agent &a : agents_) {
      a.said.reset();
      if (!a.gone && !a.finished) a.to_send += line;
    }
  }
  for (Agent &a : agents_) {
    if (a.why.empty()) continue;
    const std::string last = trimmed(a.errors);
    own_->add(Level::error, "pairs.start",
              fmt::format("{}: {}{}", a.host, a.why, last.empty() ? "" : ": " + last.substr(last.rfind('\n') + 1)),
              "tutti doctor could not be run there, or ended early: its pairs are not tested",
              fmt::format("try by hand: {} {} {} version; --ssh sets the remote shell, --remote-command the program",
                          options_.shell, a.host, options_.program));
  }
  if (report_) return std::move(*report_);
  return fail(Code::remote, "no host has delivered a report {}",
              deadline_.expired() ? fmt::format("within {:g} s", options_.timeout_s) : "before all of them ended");
}

// Agents end when their input does; those that do not are ended.
Driver::~Driver() {
  for (Agent &a : agents_) a.in.reset(), a.out.reset(), a.err.reset();
  const auto reap = [&](Nanos patience) {
    const Deadline deadline = Deadline::in(patience);
    while (true) {
      bool left = false;
      for (Agent &a : agents_) {
        if (a.pid > 0 && waitpid(a.pid, nullptr, WNOHANG) == a.pid) a.pid = -1;
        left = left || a.pid > 0;
      }
      if (!left || deadline.expired()) return;
      poll(nullptr, 0, 20);
    }
  };
  reap(std::chrono::seconds(2));
  for (const int number : {SIGTERM, SIGKILL}) {
    for (const Agent &a : agents_)
      if (a.pid > 0) kill(-a.pid, number); // its group: what the remote shell has started, too
    reap(std::chrono::seconds(1));
  }
}

} // namespace

Result<nlohmann::json> ask_hosts(const RemoteOptions &options, Findings *own) {
  for (const std::string &host : options.hosts)
    if (host.empty() || host[0] == '-' || host.find_first_of(" \t'\"\\;|&$`<>()") != host.npos)
      return fail(Code::invalid_argument, "\"{}\" is no host name", host);
  if (options.program.find_first_of(" \t'\"\\;|&$`<>()*?") != std::string::npos)
    return fail(Code::invalid_argument,
                "the program's path \"{}\" would not pass a remote shell; --remote-command names another", options.program);
  if (words(options.shell).empty()) return fail(Code::invalid_argument, "--ssh is empty");
  return Driver(options, own).run();
}

Result<std::vector<std::string>> hosts_of(const std::string &list, const std::string &file) {
  std::vector<std::string> out;
  if (!list.empty()) {
    TUTTI_ASSIGN(hosts, boot::expand_hostlist(list));
    out = std::move(hosts);
  }
  if (!file.empty()) {
    constexpr size_t kMost = 8 << 20;
    TUTTI_ASSIGN(text, read_file(file, kMost));
    std::istringstream in(text);
    int number = 0;
    for (std::string line; std::getline(in, line);) {
      number++;
      const auto parts = words(line.substr(0, line.find('#')));
      if (parts.empty()) continue;
      auto hosts = boot::expand_hostlist(parts[0]);
      if (!hosts.ok()) return fail(Code::invalid_argument, "{}:{}: {}", file, number, hosts.status().error().message);
      out.insert(out.end(), hosts->begin(), hosts->end());
    }
  }
  return out;
}

} // namespace tutti::doctor
