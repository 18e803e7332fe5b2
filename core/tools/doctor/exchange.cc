#include "tools/doctor/exchange.h"
#include "bootstrap/crypto.h"
#include <cerrno>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <unistd.h>

namespace tutti::doctor {
namespace {

class JobExchange final : public Exchange {
public:
  JobExchange(std::unique_ptr<Bootstrap> bootstrap, const tuttiUniqueId &id) : bootstrap_(std::move(bootstrap)) {
    if (const auto decoded = boot::decode(id); decoded.ok())
      key_ = boot::derive(boot::comm_identity(std::span(&*decoded, 1)).key, "tutti doctor", {});
  }
  int rank() const override { return bootstrap_->rank(); }
  int size() const override { return bootstrap_->nranks(); }
  Result<std::vector<std::string>> gather(const std::string &mine, Deadline deadline) override {
    TUTTI_ASSIGN(all, bootstrap_->allgather(std::as_bytes(std::span(mine)), deadline, "doctor"));
    std::vector<std::string> out;
    for (const Bytes &b : all) out.emplace_back(reinterpret_cast<const char *>(b.data()), b.size());
    return out;
  }
  const boot::Secret &key() const override { return key_; }
  Bootstrap *bootstrap() override { return bootstrap_.get(); }

private:
  std::unique_ptr<Bootstrap> bootstrap_;
  boot::Secret key_{};
};

// One line of standard input, at most 64 MiB: what all hosts of a large job say.
Result<std::string> read_line(Deadline deadline) {
  static std::string rest; // what came after the line before
  constexpr size_t kMost = 64u << 20;
  while (true) {
    if (const size_t end = rest.find('\n'); end != rest.npos) {
      std::string out = rest.substr(0, end);
      rest.erase(0, end + 1);
      return out;
    }
    if (rest.size() > kMost) return fail(Code::remote, "a line of more than {} bytes came on standard input", kMost);
    pollfd p{STDIN_FILENO, POLLIN, 0};
    if (poll(&p, 1, deadline.left_ms()) == 0) return fail(Code::timeout, "nothing came on standard input in time");
    char buffer[65536];
    const ssize_t n = read(STDIN_FILENO, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return fail(Code::remote, "standard input was closed: the process that started this one is gone");
    rest.append(buffer, static_cast<size_t>(n));
  }
}

class PipeExchange final : public Exchange {
public:
  PipeExchange(const PipeStart &start, const boot::Secret &key) : start_(start), key_(key) {}
  int rank() const override { return start_.rank; }
  int size() const override { return start_.size; }
  std::string host() const override { return start_.host; }
  Result<std::vector<std::string>> gather(const std::string &mine, Deadline deadline) override {
    fmt::print("{}{}\n", kPipeMark, nlohmann::json(mine).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    std::fflush(stdout);
    TUTTI_ASSIGN(line, read_line(deadline));
    const auto all = nlohmann::json::parse(line, nullptr, false);
    if (!all.is_array() || all.size() != static_cast<size_t>(start_.size))
      return fail(Code::remote, "what came on standard input is not the answer of {} hosts", start_.size);
    std::vector<std::string> out;
    for (const auto &one : all) out.push_back(one.is_string() ? one.get<std::string>() : "");
    return out;
  }
  const boot::Secret &key() const override { return key_; }

private:
  PipeStart start_;
  boot::Secret key_;
};

} // namespace

std::unique_ptr<Exchange> job_exchange(std::unique_ptr<Bootstrap> bootstrap, const tuttiUniqueId &id) {
  return std::make_unique<JobExchange>(std::move(bootstrap), id);
}

std::string hex(std::span<const std::byte> bytes) {
  std::string out;
  for (std::byte b : bytes) out += fmt::format("{:02x}", static_cast<unsigned>(b));
  return out;
}

std::optional<boot::Secret> secret_from_hex(std::string_view text) {
  boot::Secret out{};
  if (text.size() != 2 * out.size() || text.find_first_not_of("0123456789abcdef") != text.npos) return std::nullopt;
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  for (size_t i = 0; i < out.size(); i++) out[i] = static_cast<std::byte>(digit(text[2 * i]) * 16 + digit(text[2 * i + 1]));
  return out;
}

std::string pipe_start_line(const PipeStart &start) {
  nlohmann::json settings = nlohmann::json::object();
  for (const auto &[name, value] : start.settings) settings[name] = value;
  return nlohmann::json({{"rank", start.rank},
                         {"size", start.size},
                         {"ranks", start.ranks_here},
                         {"host", start.host},
                         {"timeout", start.timeout_s},
                         {"key", start.key},
                         {"settings", settings}})
             .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) +
         "\n";
}

Result<PipeStart> read_pipe_start(Deadline deadline) {
  TUTTI_ASSIGN(line, read_line(deadline));
  return parse_pipe_start(line);
}

Result<PipeStart> parse_pipe_start(const std::string &line) {
  const auto json = nlohmann::json::parse(line, nullptr, false);
  PipeStart out;
  if (!json.is_object() || !json.contains("key") || !json["key"].is_string() || !json.contains("settings") ||
      !json["settings"].is_object())
    return fail(Code::invalid_usage,
                "--join reads from standard input what tutti doctor --hosts writes there; it is not for use by hand");
  try {
    out.rank = json.value("rank", -1);
    out.size = json.value("size", 0);
    out.ranks_here = json.value("ranks", 0);
    out.host = json.value("host", "");
    out.timeout_s = json.value("timeout", 0.0);
    out.key = json["key"].get<std::string>();
    for (const auto &[name, value] : json["settings"].items())
      if (value.is_string()) out.settings.emplace_back(name, value.get<std::string>());
  } catch (const nlohmann::json::exception &e) {
    return fail(Code::invalid_usage, "what came on standard input cannot be read: {}", e.what());
  }
  if (out.rank < 0 || out.rank >= out.size || out.timeout_s <= 0)
    return fail(Code::invalid_usage, "rank {} of {} hosts, {} s: cannot be", out.rank, out.size, out.timeout_s);
  return out;
}

Result<std::unique_ptr<Exchange>> pipe_exchange(const PipeStart &start) {
  const auto key = secret_from_hex(start.key);
  if (!key) return fail(Code::invalid_usage, "the key that came on standard input has {} digits, not 64", start.key.size());
  return std::unique_ptr<Exchange>(std::make_unique<PipeExchange>(start, *key));
}

} // namespace tutti::doctor
