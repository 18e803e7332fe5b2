// Any text as the value of every variable: the first byte picks the option and which of its names.
#include "config/config.h"
#include <cstddef>
#include <cstdint>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0) return 0;
  const auto options = tutti::core_options();
  const tutti::Option &o = options[data[0] % options.size()];
  const bool alias = data[0] >= 128 && !o.aliases.empty();
  const std::string value(reinterpret_cast<const char *>(data) + 1, size - 1);
  const auto r = tutti::Config::from("", "", {{alias ? o.aliases[0] : o.env_name(), value}});
  if (!r.ok() && r.status().error().line().size() > 4096) __builtin_trap(); // messages are short
  return 0;
}
