// tutti/core/comm/select/call_config.h: tuttiCallConfig_t, checked and laid over the one around it.
#pragma once
#include "comm/select/grammar.h"
#include "plugin/registry.h"
#include "tutti/tutti.h"
#include <memory>
#include <optional>

namespace tutti {

struct CallConfig {
  NameFilter algos, protos; // say nothing of a collective: what holds for the communicator does
  std::string algo, proto;  // as written
  uint32_t min_channels = 0, max_channels = 0, slot_bytes = 0, depth = 0; // 0 = not said
  uint64_t buffer = 0;
  std::optional<bool> preferred;
  std::string tag;
  uint32_t timeout_ms = 0; // 0 = not said
  // Of all but tag and timeout: the same for equal contents in this process, never reused; 0 = only those.
  uint32_t id = 0;

  bool shapes_links() const { return min_channels || max_channels || slot_bytes || depth || buffer; }
  std::string asked(tutti_coll coll) const; // `tuttiCallConfig_t.algo "tree", tuttiCallConfig_t.proto "ll"`; "" = neither
};

// outer: what holds so far on this thread, or nullptr.
Result<std::shared_ptr<const CallConfig>> read_call_config(const tuttiCallConfig_t *given, const CallConfig *outer,
                                                           const Registry &registry);

} // namespace tutti
