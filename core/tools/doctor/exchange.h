// tutti/core/tools/doctor/exchange.h: how the processes of a test of pairs talk. Only in turn and all together, so that it
// works where most of them cannot reach each other.
#pragma once
#include "base/time.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/wire.h"
#include <string>
#include <vector>

namespace tutti::doctor {

class Exchange {
public:
  virtual ~Exchange() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string host() const { return {}; } // how others call this host; "" = by its own name
  // What each one says, by rank; "" of those that are gone. Collective.
  virtual Result<std::vector<std::string>> gather(const std::string &mine, Deadline deadline) = 0;
  virtual const boot::Secret &key() const = 0;       // of this job, for proofs between its processes
  virtual Bootstrap *bootstrap() { return nullptr; } // where there is one
};

// Over the control plane of a job. id: what its ranks met by.
std::unique_ptr<Exchange> job_exchange(std::unique_ptr<Bootstrap> bootstrap, const tuttiUniqueId &id);

// Over standard input and output, which the process that started this one (through ssh) reads: lines with a mark in front,
// since login scripts write there, too. The first line tells rank, size, key and settings.
constexpr std::string_view kPipeMark = "@tutti-doctor ";
struct PipeStart {
  int rank = 0, size = 0;
  int ranks_here = 0; // that will run on each host; 0 = not told
  double timeout_s = 0;
  std::string host; // how it is called
  std::string key;  // 64 hexadecimal digits
  std::vector<std::pair<std::string, std::string>> settings;
};
std::string pipe_start_line(const PipeStart &start);
Result<PipeStart> read_pipe_start(Deadline deadline);
Result<PipeStart> parse_pipe_start(const std::string &line);
Result<std::unique_ptr<Exchange>> pipe_exchange(const PipeStart &start);

std::string hex(std::span<const std::byte> bytes);
std::optional<boot::Secret> secret_from_hex(std::string_view text);

} // namespace tutti::doctor
