// tutti/core/plugin/guard.h: calls of plugins that break the contract of their answer. An exception must not leave a plugin,
// and a status is one of base.h; what is neither becomes INTERNAL with a reason that plugin_error() tells, so that a rank gets
// an error that names the plugin instead of ending or waiting for ever. Costs a comparison.
#pragma once
#include "plugin/registry.h"
#include <utility>

namespace tutti {

// INTERNAL, with the exception that is being handled, or the number, as the reason. plugin may be null.
tutti_status blame_exception(const Plugin *plugin, const char *function) noexcept;
tutti_status blame_answer(const Plugin *plugin, const char *function, int32_t answer) noexcept;

// `most`: the largest answer that is none of a status but a number, like that of progress(). The parameter's type says nothing
// of noexcept: where it did, the compiler would leave the handler out.
template <class... P, class... A>
int32_t guarded_up_to(int32_t most, const Plugin *plugin, const char *function, int32_t (*fn)(P...), A &&...args) noexcept {
  int32_t answer;
  try {
    answer = fn(std::forward<A>(args)...);
  } catch (...) {
    return blame_exception(plugin, function);
  }
  return answer <= most && answer >= TUTTI_ERR_DENIED ? answer : blame_answer(plugin, function, answer);
}
template <class... P, class... A>
tutti_status guarded(const Plugin *plugin, const char *function, tutti_status (*fn)(P...), A &&...args) noexcept {
  return guarded_up_to(TUTTI_AGAIN, plugin, function, fn, std::forward<A>(args)...);
}

} // namespace tutti
