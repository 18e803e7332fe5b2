#include "bootstrap/pmi.h"
#include "bootstrap/wire.h"
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tutti::boot {
namespace {

constexpr size_t kPiece = 512; // of a long value: servers read lines of about 1 KiB
constexpr auto kFarewell = std::chrono::seconds(2);

// What a stranger sent, fit for a log line.
std::string shown(std::string_view text) {
  std::string out(text.substr(0, 120));
  for (char &c : out)
    if (static_cast<unsigned char>(c) < 32 || static_cast<unsigned char>(c) > 126) c = '?';
  return out + (text.size() > 120 ? "..." : "");
}

std::string word(const std::map<std::string, std::string> &words, const char *key) {
  const auto it = words.find(key);
  return it == words.end() ? std::string() : it->second;
}

} // namespace

Result<std::map<std::string, std::string>> parse_pmi(std::string_view line) {
  std::map<std::string, std::string> out;
  while (!line.empty()) {
    const size_t blank = line.find(' ');
    const std::string_view part = line.substr(0, blank);
    line.remove_prefix(blank == line.npos ? line.size() : blank + 1);
    if (part.empty()) continue;
    const size_t equals = part.find('=');
    if (equals == 0 || equals == part.npos) return fail(Code::remote, "\"{}\" is no KEY=VALUE", shown(part));
    for (const char c : part)
      if (static_cast<unsigned char>(c) < 32) return fail(Code::remote, "it holds an unprintable character");
    if (!out.emplace(part.substr(0, equals), part.substr(equals + 1)).second)
      return fail(Code::remote, "\"{}\" is there twice", shown(part.substr(0, equals)));
  }
  if (!out.count("cmd")) return fail(Code::remote, "it names no cmd");
  return out;
}

Status Pmi::broken(std::string message, Code code) {
  if (lost_.empty()) lost_ = message;
  return fail(code, "PMI (PMI_FD={}): {}", fd_, message).phase("bootstrap");
}

Status Pmi::send(std::string_view line, Deadline deadline) {
  while (!line.empty()) {
    const ssize_t n = ::send(fd_, line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) {
      line.remove_prefix(static_cast<size_t>(n));
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno != EAGAIN) return broken(fmt::format("cannot write to the process manager: {}", std::strerror(errno)));
    pollfd p{fd_, POLLOUT, 0};
    if (poll(&p, 1, deadline.left_ms()) == 0)
      return broken(fmt::format("the process manager has not read for {}", seconds(deadline.span())), Code::timeout);
  }
  return {};
}

Result<std::string> Pmi::receive(Deadline deadline) {
  for (;;) {
    if (const size_t end = rest_.find('\n'); end != rest_.npos) {
      std::string line = rest_.substr(0, end);
      rest_.erase(0, end + 1);
      return line;
    }
    if (rest_.size() >= kPmiLine) return broken(fmt::format("an answer of more than {} bytes: \"{}\"", kPmiLine, shown(rest_)));
    pollfd p{fd_, POLLIN, 0};
    const int ready = poll(&p, 1, deadline.left_ms());
    if (ready == 0) return broken(fmt::format("no answer within {}", seconds(deadline.span())), Code::timeout);
    char text[1024];
    const ssize_t n = ready < 0 ? -1 : recv(fd_, text, sizeof text, MSG_DONTWAIT);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) return broken(fmt::format("cannot read from the process manager: {}", std::strerror(errno)));
    if (n == 0) return broken("the process manager closed the connection: the job is being ended");
    rest_.append(text, static_cast<size_t>(n));
  }
}

Result<Pmi::Words> Pmi::ask(std::string_view request, std::string_view answer, Deadline deadline) {
  if (!lost_.empty()) return broken("the connection is of no more use: " + lost_);
  const std::string_view name = request.substr(0, request.find(' '));
  TUTTI_TRY(send(fmt::format("{}\n", request), deadline));
  auto line = receive(deadline);
  if (!line.ok()) {
    line.status().error().message += fmt::format(" (after \"{}\")", name);
    return std::move(line.status());
  }
  auto words = parse_pmi(*line);
  if (!words.ok())
    return broken(fmt::format("\"{}\" was answered with \"{}\": {}", name, shown(*line), words.status().error().message));
  if (word(*words, "cmd") == "abort") return broken("the process manager ends the job");
  if (word(*words, "cmd") != answer)
    return broken(fmt::format("\"{}\" was answered with \"{}\", not with cmd={}", name, shown(*line), answer));
  if (const std::string rc = word(*words, "rc"); !rc.empty() && rc != "0")
    return fail(Code::remote, "PMI: \"{}\" failed: rc={} {}", shown(request.substr(0, 80)), shown(rc),
                shown(word(*words, "msg")))
        .phase("bootstrap");
  return words;
}

Status Pmi::start(Deadline deadline) {
  struct stat st {};
  if (fstat(fd_, &st) != 0 || !S_ISSOCK(st.st_mode))
    return broken("that descriptor is no socket of a process manager; was it closed by a wrapper script?");
  TUTTI_ASSIGN(version, ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init", deadline));
  if (const std::string v = word(version, "pmi_version"); v != "1")
    return broken(fmt::format("it speaks version {} of the protocol, not 1", shown(v)));
  TUTTI_ASSIGN(maxes, ask("cmd=get_maxes", "maxes", deadline));
  const std::string limit = word(maxes, "vallen_max");
  const auto [end, problem] = std::from_chars(limit.data(), limit.data() + limit.size(), value_max_);
  if (problem != std::errc() || end != limit.data() + limit.size() || value_max_ < 16)
    return broken(fmt::format("vallen_max=\"{}\" is no length", shown(limit)));
  TUTTI_ASSIGN(space, ask("cmd=get_my_kvsname", "my_kvsname", deadline));
  space_ = word(space, "kvsname");
  return space_.empty() ? broken("the key space has no name") : Status();
}

// Pieces KEY.0, KEY.1, ...; the first one begins with how many there are.
Status Pmi::put(std::string_view key, std::string_view value, Deadline deadline) {
  const size_t piece = std::min(kPiece, value_max_ - 1);
  const size_t count = std::max<size_t>(1, (value.size() + piece - 1) / piece);
  TUTTI_ASSIGN(done, ask(fmt::format("cmd=put kvsname={} key={} value={}", space_, key, count), "put_result", deadline));
  for (size_t i = 0; i < count; i++) {
    TUTTI_ASSIGN(ok, ask(fmt::format("cmd=put kvsname={} key={}.{} value={}", space_, key, i, value.substr(i * piece, piece)),
                         "put_result", deadline));
  }
  return {};
}

Result<std::string> Pmi::get(std::string_view key, Deadline deadline) {
  const auto one = [&](const std::string &name) -> Result<std::string> {
    TUTTI_ASSIGN(words, ask(fmt::format("cmd=get kvsname={} key={}", space_, name), "get_result", deadline));
    return word(words, "value");
  };
  TUTTI_ASSIGN(number, one(std::string(key)));
  size_t count = 0;
  const auto [end, problem] = std::from_chars(number.data(), number.data() + number.size(), count);
  if (problem != std::errc() || end != number.data() + number.size() || count == 0 || count > 1024)
    return fail(Code::remote, "PMI: key {} holds \"{}\", which is no number of pieces", key, shown(number)).phase("bootstrap");
  std::string out;
  for (size_t i = 0; i < count; i++) {
    TUTTI_ASSIGN(piece, one(fmt::format("{}.{}", key, i)));
    out += piece;
  }
  return out;
}

Status Pmi::barrier(Deadline deadline) {
  auto words = ask("cmd=barrier_in", "barrier_out", deadline);
  if (words.ok()) return {};
  if (words.status().code() == Code::timeout)
    words.status().error().message =
        fmt::format("PMI: not all ranks came to the exchange of the unique id within {}", seconds(deadline.span()));
  return std::move(words.status());
}

Status Pmi::finalize(Deadline deadline) {
  auto words = ask("cmd=finalize", "finalize_ack", deadline);
  return words.ok() ? Status() : std::move(words.status());
}

// ---- this process's connection

namespace {

struct Mine {
  std::mutex m; // held through a request
  std::unique_ptr<Pmi> pmi;
  int fd = -1;
  struct stat socket {}; // another library of the process may end it, and its number may be something else's
  pid_t pid = -1;
};

Mine &mine_now() {
  static auto *mine = new Mine; // outlives exit handlers
  return *mine;
}

bool still_ours(const Mine &mine) {
  struct stat st {};
  return mine.pid == getpid() && fstat(mine.fd, &st) == 0 && st.st_ino == mine.socket.st_ino && st.st_dev == mine.socket.st_dev;
}

// A process manager takes the end of a process that did not say goodbye for a crash.
void say_goodbye() {
  Mine &mine = mine_now();
  const std::unique_lock lock(mine.m, std::try_to_lock);
  if (lock && mine.pmi && still_ours(mine)) (void)mine.pmi->finalize(Deadline::in(kFarewell));
}

Result<int> descriptor() {
  const char *text = ::secure_getenv("PMI_FD");
  int fd = -1;
  const char *end = text + std::strlen(text);
  const auto [p, problem] = std::from_chars(text, end, fd);
  if (problem != std::errc() || p != end || fd < 0)
    return fail(Code::invalid_usage, "PMI_FD=\"{}\" is no descriptor", text).phase("bootstrap");
  return fd;
}

Status connect(Mine &mine, Deadline deadline) {
  if (mine.pmi && mine.pid == getpid()) {
    if (still_ours(mine)) return {};
    return fail(Code::invalid_usage, "the connection to the process manager (PMI_FD={}) was closed; is MPI finalized already?",
                mine.fd)
        .phase("bootstrap");
  }
  TUTTI_ASSIGN(fd, descriptor());
  auto pmi = std::make_unique<Pmi>(fd);
  TUTTI_TRY(pmi->start(deadline));
  fstat(fd, &mine.socket);
  mine.fd = fd;
  mine.pid = getpid();
  mine.pmi = std::move(pmi);
  static const int once = std::atexit(&say_goodbye);
  (void)once;
  return {};
}

std::string to_hex(const tuttiUniqueId &id) {
  std::string out;
  for (const char c : id.internal) out += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return out;
}

bool from_hex(std::string_view text, tuttiUniqueId *id) {
  if (text.size() != 2 * sizeof id->internal) return false;
  for (size_t i = 0; i < sizeof id->internal; i++) {
    unsigned char byte = 0;
    const auto [end, problem] = std::from_chars(text.data() + 2 * i, text.data() + 2 * i + 2, byte, 16);
    if (problem != std::errc() || end != text.data() + 2 * i + 2) return false;
    id->internal[i] = static_cast<char>(byte);
  }
  return true;
}

} // namespace

bool pmi_available() {
  const char *text = ::secure_getenv("PMI_FD");
  return text && *text;
}

Status pmi_exchange(std::string_view key, const tuttiUniqueId *mine, tuttiUniqueId *out, Deadline deadline) {
  Mine &connection = mine_now();
  const std::lock_guard lock(connection.m);
  TUTTI_TRY(connect(connection, deadline));
  Pmi &pmi = *connection.pmi;
  if (mine) TUTTI_TRY(pmi.put(key, to_hex(*mine), deadline));
  TUTTI_TRY(pmi.barrier(deadline));
  TUTTI_ASSIGN(text, pmi.get(key, deadline));
  if (from_hex(text, out)) return {};
  return fail(Code::internal, "PMI: rank 0 published \"{}\", which is no unique id", shown(text)).phase("bootstrap");
}

} // namespace tutti::boot
