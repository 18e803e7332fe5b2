// Any text as a configuration file: an error or a configuration, in bounded time and memory.
#include "config/config.h"
#include <cstddef>
#include <cstdint>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const std::string_view text(reinterpret_cast<const char *>(data), size);
  const auto r = tutti::Config::from(text, "fuzz.toml", {});
  if (!r.ok() && r.status().error().line().find('\n') != std::string::npos) __builtin_trap(); // messages are one line
  if (r.ok()) (void)(*r)->agreement_hash();
  return 0;
}
