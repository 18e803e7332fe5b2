#include "log/log.h"
#include "base/fd.h"
#include "base/fork.h"
#include "log/output.h"
#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <fcntl.h>
#include <mutex>
#include <set>
#include <spdlog/details/null_mutex.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <system_error>
#include <unistd.h>

namespace tutti::log {
namespace {

constexpr size_t kMaxOnceKeys = 4096; // bounds the memory that strangers can make us spend
constexpr size_t kMaxLine = 8192;

struct SubsysRow {
  std::string_view name;
  Subsys bit;
};
// ALLOC_HOST, CALL, NVLS, REG, PROFILE and RAS are accepted because job scripts name them; nothing here logs under them yet.
constexpr std::array<SubsysRow, 19> kSubsys{{
    {"INIT", Subsys::init},       {"BOOTSTRAP", Subsys::bootstrap},
    {"ENV", Subsys::env},         {"COLL", Subsys::coll},
    {"P2P", Subsys::p2p},         {"SHM", Subsys::shm},
    {"NET", Subsys::net},         {"GRAPH", Subsys::graph},
    {"TUNING", Subsys::tuning},   {"PLUGIN", Subsys::plugin},
    {"ALLOC", Subsys::alloc},     {"PROXY", Subsys::proxy},
    {"DESTROY", Subsys::destroy}, {"ALLOC_HOST", Subsys::alloc},
    {"CALL", Subsys::coll},       {"NVLS", Subsys::coll},
    {"REG", Subsys::alloc},       {"PROFILE", Subsys::tuning},
    {"RAS", Subsys::bootstrap},
}};

std::string host_name() {
  char name[256] = "";
  if (gethostname(name, sizeof name - 1) != 0) return "unknown";
  const std::string_view all(name);
  return std::string(all.substr(0, all.find('.')));
}

struct State {
  std::atomic<Level> level{Level::warn};
  std::atomic<uint32_t> subsys{~0u};
  std::string host = host_name();
  std::mutex mutex; // guards what follows
  std::shared_ptr<spdlog::logger> logger;
  std::string timestamp = "%F %T";
  std::set<std::string, std::less<>> once;
};

// Never destroyed: threads may log while the process exits.
State &state() {
  static State *s = [] {
    auto *made = new State;
    hold_over_fork(made->mutex);
    return made;
  }();
  return *s;
}

thread_local int this_rank = -1;

std::shared_ptr<spdlog::logger> logger_for(spdlog::sink_ptr sink) {
  auto logger = std::make_shared<spdlog::logger>("tutti", std::move(sink));
  logger->set_pattern("%v");
  logger->set_level(spdlog::level::trace);
  logger->flush_on(spdlog::level::trace);
  logger->set_error_handler([](const std::string &) {}); // a full disk must not end or flood the job
  return logger;
}

// One caller at a time: emit() holds the state's mutex.
class OutputSink final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
public:
  OutputSink(int fd, std::chrono::milliseconds patience) : out_(fd, patience) {}
  OutputSink(UniqueFd fd, std::chrono::milliseconds patience) : owned_(std::move(fd)), out_(owned_.get(), patience) {}

private:
  void sink_it_(const spdlog::details::log_msg &msg) override { out_.write({msg.payload.data(), msg.payload.size()}); }
  void flush_() override {}

  UniqueFd owned_;
  Output out_;
};

spdlog::sink_ptr sink_for(const std::string &file, std::chrono::milliseconds patience) {
  if (file.empty() || file == "/dev/stderr") return std::make_shared<OutputSink>(STDERR_FILENO, patience);
  if (file == "/dev/stdout") return std::make_shared<OutputSink>(STDOUT_FILENO, patience);
  if (!may_block(file)) {
    spdlog::file_event_handlers events;
    events.after_open = [](const spdlog::filename_t &, std::FILE *f) { ::fcntl(::fileno(f), F_SETFD, FD_CLOEXEC); };
    return std::make_shared<spdlog::sinks::basic_file_sink_mt>(file, true, events);
  }
  UniqueFd fd(::open(file.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY)); // of a pipe that nobody reads: ENXIO
  if (!fd) throw std::system_error(errno, std::generic_category());
  return std::make_shared<OutputSink>(std::move(fd), patience);
}

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
  case Level::trace:
    return spdlog::level::trace;
  case Level::debug:
    return spdlog::level::debug;
  case Level::info:
    return spdlog::level::info;
  case Level::warn:
    return spdlog::level::warn;
  default:
    return spdlog::level::err;
  }
}

// One line stays one line: a peer's or a plugin's text cannot forge another.
std::string one_line(std::string_view text) {
  const bool cut = text.size() > kMaxLine;
  std::string out(text.substr(0, kMaxLine));
  for (char &c : out)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = c == '\n' || c == '\t' ? ' ' : '?';
  return cut ? out + " ..." : out;
}

void emit(Level level, std::string_view text) {
  State &s = state();
  const std::string rank = this_rank >= 0 ? fmt::format(" rank {}", this_rank) : "";
  const std::lock_guard lock(s.mutex);
  if (!s.logger) s.logger = logger_for(sink_for("", Settings().patience));
  const std::string time = format_time(s.timestamp, std::chrono::system_clock::now());
  s.logger->log(to_spdlog(level), "{}{}{}:{}{} {}: {}", time, time.empty() || time.back() == ' ' ? "" : " ", s.host, getpid(),
                rank, level_name(level), one_line(text));
}

} // namespace

std::string_view level_name(Level level) {
  constexpr std::array<std::string_view, 6> names{"trace", "debug", "info", "warn", "error", "off"};
  return names[static_cast<size_t>(level)];
}

std::optional<uint32_t> subsys_bit(std::string_view name) {
  std::string upper;
  for (char c : name) upper += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  if (upper == "ALL") return ~0u;
  for (const auto &row : kSubsys)
    if (row.name == upper) return static_cast<uint32_t>(row.bit);
  return std::nullopt;
}

std::string subsys_names() {
  std::string out = "ALL";
  for (const auto &row : kSubsys) out += " " + std::string(row.name);
  return out;
}

std::string expand_file(std::string_view pattern, std::span<const std::pair<char, std::string>> more) {
  std::string out;
  for (size_t i = 0; i < pattern.size(); i++) {
    const char next = pattern[i] == '%' && i + 1 < pattern.size() ? pattern[i + 1] : 0;
    const auto own = std::find_if(more.begin(), more.end(), [&](const auto &m) { return next && m.first == next; });
    if (own != more.end())
      out += own->second;
    else if (next == 'h')
      out += state().host;
    else if (next == 'p')
      out += std::to_string(getpid());
    else if (next == '%')
      out += '%';
    else {
      out += pattern[i];
      continue;
    }
    i++;
  }
  return out;
}

std::string format_time(std::string_view format, std::chrono::system_clock::time_point now) {
  const auto nanos = std::chrono::duration_cast<std::chrono::nanoseconds>(now.time_since_epoch()).count();
  const std::string fraction = fmt::format("{:09}", nanos % 1'000'000'000);
  std::string pattern; // with %3f replaced by the fraction's first three digits
  for (size_t i = 0; i < format.size(); i++) {
    if (format[i] == '%' && i + 2 < format.size() && format[i + 1] >= '1' && format[i + 1] <= '9' && format[i + 2] == 'f') {
      pattern += fraction.substr(0, static_cast<size_t>(format[i + 1] - '0'));
      i += 2;
    } else {
      pattern += format[i];
      if (format[i] == '%' && i + 1 < format.size()) pattern += format[++i]; // "%%3f" is no fraction
    }
  }
  const std::time_t seconds = nanos / 1'000'000'000;
  std::tm local{};
  localtime_r(&seconds, &local);
  char out[256];
  return std::string(out, strftime(out, sizeof out, pattern.c_str(), &local));
}

void configure(const Settings &settings) {
  State &s = state();
  std::string problem;
  try {
    const std::string file = expand_file(settings.file);
    std::shared_ptr<spdlog::logger> logger;
    try {
      logger = logger_for(sink_for(file, settings.patience));
    } catch (const std::exception &e) {
      problem = fmt::format("cannot write the log to {}: {}; it goes to stderr", file, e.what());
      logger = logger_for(sink_for("", settings.patience));
    }
    const std::lock_guard lock(s.mutex);
    s.logger = std::move(logger);
    s.timestamp = settings.timestamp;
  } catch (...) { // out of memory: the old logger stays
  }
  s.subsys.store(settings.subsys, std::memory_order_relaxed);
  s.level.store(settings.level, std::memory_order_relaxed);
  if (!problem.empty()) write(Level::warn, Subsys::init, problem);
}

// Warnings and errors pass whatever the subsystem: whoever narrows the log must still learn of them.
bool enabled(Level level, Subsys subsys) {
  const State &s = state();
  if (level < s.level.load(std::memory_order_relaxed) || level == Level::off) return false;
  return level >= Level::warn || (s.subsys.load(std::memory_order_relaxed) & static_cast<uint32_t>(subsys)) != 0;
}

void write(Level level, Subsys, std::string_view text) {
  try {
    emit(level, text);
  } catch (...) { // a log line is never worth a job
  }
}

void write_once(Level level, Subsys subsys, std::string_view key, std::string_view text) {
  if (!enabled(level, subsys)) return;
  try {
    bool full = false;
    {
      State &s = state();
      const std::lock_guard lock(s.mutex);
      if (s.once.size() > kMaxOnceKeys || s.once.contains(key)) return;
      s.once.emplace(key);
      full = s.once.size() > kMaxOnceKeys;
    }
    if (full)
      emit(level, fmt::format("{} different conditions were logged once each; further ones are not shown", kMaxOnceKeys));
    else
      emit(level, text);
  } catch (...) {
  }
}

ScopedRank::ScopedRank(int rank) : previous_(this_rank) {
  this_rank = rank;
}
ScopedRank::~ScopedRank() {
  this_rank = previous_;
}

} // namespace tutti::log
