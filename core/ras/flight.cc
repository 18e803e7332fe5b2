#include "ras/flight.h"
#include "base/file.h"
#include "base/fork.h"
#include "base/ticks.h"
#include "bootstrap/service.h"
#include "log/log.h"
#include "ras/metrics.h"
#include "ras/rank_file.h"
#include "tutti/tutti.h"
#include <algorithm>
#include <set>
#include <sys/stat.h>
#include <unistd.h>

namespace tutti::ras {
namespace {

struct Process {
  std::mutex mutex; // guards the rest
  std::vector<std::weak_ptr<Flight>> flights;
  std::set<std::string> written; // unasked
  std::atomic<pid_t> pid{0};     // whose it is: a forked child has no communicators yet
};

Process &process() {
  static Process &p = []() -> Process & {
    auto *made = new Process; // never destroyed: the service thread may look at it while the process ends
    hold_over_fork(made->mutex);
    return *made;
  }();
  if (p.pid != ::getpid()) {
    std::lock_guard lock(p.mutex);
    if (p.pid != ::getpid()) {
      p.flights.clear();
      p.written.clear();
      p.pid = ::getpid();
    }
  }
  return p;
}

// Whether one more file may be made, or this one is there already.
bool may_write(const std::string &path, size_t most) {
  Process &p = process();
  std::lock_guard lock(p.mutex);
  if (p.written.contains(path)) return true;
  if (p.written.size() >= most) return false;
  p.written.insert(path);
  return true;
}

// What waits for its reader is none of the service thread's business.
bool plain_file(const std::string &path) {
  struct stat st {};
  return ::stat(path.c_str(), &st) != 0 || S_ISREG(st.st_mode);
}

} // namespace

std::vector<std::shared_ptr<Flight>> flights() {
  std::vector<std::shared_ptr<Flight>> out;
  Process &p = process();
  std::lock_guard lock(p.mutex);
  for (const auto &weak : p.flights)
    if (auto f = weak.lock()) out.push_back(std::move(f));
  return out;
}

Flight::Flight(FlightIdentity who, std::shared_ptr<const Config> config, Engine &engine)
    : who_(std::move(who)), config_(std::move(config)), engine_(&engine) {}

std::shared_ptr<Flight> Flight::begin(FlightIdentity who, std::shared_ptr<const Config> config, Engine &engine) {
  watch_signal(*config);
  who.version = fmt::format("{}.{}.{}", TUTTI_MAJOR, TUTTI_MINOR, TUTTI_PATCH);
  auto flight = std::make_shared<Flight>(std::move(who), std::move(config), engine);
  Process &p = process();
  std::lock_guard lock(p.mutex);
  std::erase_if(p.flights, [](const auto &weak) { return weak.expired(); });
  p.flights.push_back(flight);
  return flight;
}

Result<FlightFile> Flight::snapshot(std::string_view reason) const {
  FlightFile out;
  out.who = who_;
  out.reason = reason;
  std::lock_guard lock(mutex_);
  if (!engine_) return fail(Code::invalid_usage, "the communicator has ended: its flight recorder is gone");
  out.record = engine_->record();
  out.written_ns = out.record.state.now_ns;
  return out;
}

bool Flight::look(const std::function<void(Engine &)> &fn) const {
  std::lock_guard lock(mutex_);
  if (engine_) fn(*engine_);
  return engine_ != nullptr;
}

Result<FlightFile> Flight::brief() const {
  FlightFile out;
  out.who = who_;
  out.reason = "asked";
  const bool there = look([&](Engine &engine) { out.record.state = engine.state(); });
  if (!there) return fail(Code::invalid_usage, "the communicator has ended");
  out.written_ns = out.record.state.now_ns;
  for (const auto *one : {&out.record.state.last, &out.record.state.oldest})
    if (*one) out.record.operations.push_back(**one);
  return out;
}

void Flight::set_up() {
  set_up_ns_ = ticks::Reader().now_ns();
}

std::string Flight::own_path() const {
  const std::string &pattern = config_->text("record.file");
  return pattern.empty() ? "" : rank_file(pattern, "flight.json", who_.comm, who_.rank);
}

Status Flight::write_file(const std::string &path, std::string_view reason) {
  TUTTI_ASSIGN(file, snapshot(reason));
  TUTTI_TRY(replace_file(path, encode_flight(file)));
  log::info(log::Subsys::coll, "comm {:#x}: rank {}: flight recorder written to {} ({})", who_.comm, who_.rank, path, reason);
  return {};
}

Status Flight::write(std::string_view path, std::string_view reason) {
  const std::string to = path.empty() ? own_path() : named_file(path, who_.comm, who_.rank);
  if (to.empty())
    return fail(Code::invalid_argument, "dump: no path is given, and record.file says none")
        .hint("give a path, or set TUTTI_RECORD_FILE");
  if (path.empty() && !plain_file(to)) // nobody may make the service thread wait
    return fail(Code::invalid_argument, "dump: {} is no plain file", to)
        .hint("record.file names a file; tuttiCommDump takes a pipe");
  std::unique_lock<std::mutex> turn;
  if (!plain_file(to)) turn = std::unique_lock(dumping_); // two would run into each other; files are replaced whole
  return write_file(to, reason);
}

void Flight::write_unasked(std::string_view reason) {
  const std::string path = own_path();
  if (path.empty()) return;
  const auto most = static_cast<size_t>(config_->number("record.most_files"));
  Status s;
  if (!plain_file(path))
    s = fail(Code::invalid_argument, "{} is no plain file", path);
  else if (!may_write(path, most))
    s = fail(Code::invalid_usage, "{} is left out: this process has written {} others (record.most_files)", path, most);
  else
    s = write_file(path, reason);
  if (!s.ok())
    log::write_once(log::Level::warn, log::Subsys::coll, "record.file",
                    fmt::format("no flight recorder of comm {:#x}: {}", who_.comm, s.error().message));
}

void Flight::failed() {
  if (failed_.exchange(true)) return;
  count_failure();
  if (config_->text("record.file").empty()) return;
  boot::Service::get().post([self = shared_from_this()] {
    if (const std::unique_lock lock(self->settling_, std::try_to_lock); lock) self->settle_once(); // else another thread does
  });
}

void Flight::settle_once() {
  if (!std::exchange(settled_, true)) write_unasked("error");
}

void Flight::settle() {
  if (!failed_.load()) return;
  std::lock_guard lock(settling_);
  settle_once();
}

void Flight::on_signal() {
  write_unasked("signal");
}

void Flight::end() {
  settle();
  std::lock_guard lock(mutex_);
  engine_ = nullptr;
}

} // namespace tutti::ras
