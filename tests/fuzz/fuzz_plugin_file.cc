// Shared objects, looked at before anything of them is loaded.
#include "cut.h"
#include "plugin/elf.h"
#include <algorithm>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const tutti::ElfVerdict verdict = tutti::inspect_elf(bytes);
  fuzz::expect((verdict.problem == tutti::ElfProblem::none) == verdict.text.empty());
  if (verdict.problem != tutti::ElfProblem::none) return 0;
  const auto symbols = tutti::exported_symbols(bytes);
  fuzz::expect(std::is_sorted(symbols.begin(), symbols.end()));
  (void)tutti::hash_bytes(bytes);
  return 0;
}
