// tutti.h: choices for some calls.
#include "comm/handle.h"
#include "comm/startup.h"

using namespace tutti;

namespace {

constexpr size_t kDeepest = 64; // configurations inside each other

} // namespace

extern "C" {

tuttiResult_t tuttiCallConfigBegin(const tuttiCallConfig_t *config) {
  return without_comm([&]() -> Status {
    Group &group = Group::of_this_thread();
    if (group.asked_depth() >= kDeepest)
      return fail(Code::invalid_usage, "call config: {} of this thread are inside each other; is a tuttiCallConfigEnd missing?",
                  kDeepest);
    TUTTI_ASSIGN(p, process());
    TUTTI_ASSIGN(made, read_call_config(config, group.asked(), *p.registry));
    group.begin_asked(std::move(made));
    return {};
  });
}

tuttiResult_t tuttiCallConfigEnd(void) {
  return without_comm([]() -> Status {
    if (Group::of_this_thread().end_asked()) return {};
    return fail(Code::invalid_usage, "tuttiCallConfigEnd without tuttiCallConfigBegin on this thread");
  });
}

} // extern "C"
