// tutti/core/bootstrap/pmi.h: the wire protocol PMI-1 that MPICH's process managers (hydra), Intel MPI's, MVAPICH's and srun
// --mpi=pmi2 speak over an inherited socket (PMI_FD): a line per request, a line per answer, words KEY=VALUE.
#pragma once
#include "base/status.h"
#include "base/time.h"
#include "tutti/tutti.h"
#include <map>
#include <string>
#include <string_view>

namespace tutti::boot {

constexpr size_t kPmiLine = 4096; // longest answer that is read

// The words of an answer by their keys; it must have one for "cmd". The value of "msg" and "value" may be anything but blank.
Result<std::map<std::string, std::string>> parse_pmi(std::string_view line);

// One client's end. Requests and answers alternate; after an answer that did not come in time the connection is of no more use.
class Pmi {
public:
  explicit Pmi(int fd) : fd_(fd) {} // borrowed
  Status start(Deadline deadline);
  Status put(std::string_view key, std::string_view value, Deadline deadline); // a value of any length, without blanks
  Result<std::string> get(std::string_view key, Deadline deadline);
  Status barrier(Deadline deadline);
  Status finalize(Deadline deadline);

private:
  using Words = std::map<std::string, std::string>;
  Result<Words> ask(std::string_view request, std::string_view answer, Deadline deadline);
  Status send(std::string_view line, Deadline deadline);
  Result<std::string> receive(Deadline deadline);
  Status broken(std::string message, Code code = Code::system);

  int fd_;
  std::string rest_, space_, lost_; // unread bytes; the name of the key space; why the connection is of no use
  size_t value_max_ = 0;
};

bool pmi_available();
// Exchange through the process manager that started this process: rank 0 publishes, everybody gets.
Status pmi_exchange(std::string_view key, const tuttiUniqueId *mine, tuttiUniqueId *out, Deadline deadline);

} // namespace tutti::boot
