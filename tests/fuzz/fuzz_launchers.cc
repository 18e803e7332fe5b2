// Lines of process managers and of Slurm. What is accepted keeps its bounds.
#include "bootstrap/hostlist.h"
#include "bootstrap/pmi.h"

using namespace tutti::boot;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char *>(data + 1), size - 1);
  switch (data[0] % 3) {
  case 0:
    if (const auto words = parse_pmi(text); words.ok() && !words->count("cmd")) __builtin_trap();
    break;
  case 1:
    if (const auto hosts = expand_hostlist(text, 1000); hosts.ok()) {
      if (hosts->empty() || hosts->size() > 1000) __builtin_trap();
      for (const std::string &h : *hosts)
        if (h.empty() || h.find_first_of("[],") != h.npos) __builtin_trap();
    }
    break;
  default:
    if (const auto tasks = tasks_on_node(text, 3); tasks.ok() && *tasks < 0) __builtin_trap();
    break;
  }
  return 0;
}
