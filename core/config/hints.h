// tutti/core/config/hints.h: what is said to names of NCCL's that no option stands for, though something here does their work.
#pragma once
#include <span>
#include <string>
#include <string_view>

namespace tutti::config {

struct Hint {
  std::string_view name;    // "NCCL_NTHREADS"
  std::string_view why;     // half a sentence: why it is not followed
  std::string_view instead; // keys of options, separated by ", "; "" = nothing is to be set
};
std::span<const Hint> hints();
// `NCCL_NTHREADS is not followed: whoever waits does the work; see exec.spin (TUTTI_SPIN)`. Names without a hint have no
// meaning here, and that is said.
std::string answer_to(std::string_view name);
std::string hints_markdown(); // the table of docs/coming-from-nccl.md

} // namespace tutti::config
