// The template's algorithm, which takes a flag that it does not know for a reason to do something else.
#include <tutti/plugin/cxx/plugin.hpp>
#undef TUTTI_CXX_PLUGIN
#define TUTTI_CXX_PLUGIN(Class)
#include "../../plugin-api/template/algo/linear.cc" // NOLINT(bugprone-suspicious-include): the template itself

namespace {

using Good = tutti::plugin::detail::AlgoTable<Linear>;
using Desc = tutti::plugin::detail::Descriptor<Linear>;

tutti_status supports(void *plugin, const tutti_algo_request *req) noexcept {
  return req->flags >> 8 ? TUTTI_ERR_UNSUPPORTED : Good::value.supports(plugin, req);
}
constexpr tutti_algo_v1 spoiled() {
  tutti_algo_v1 t = Good::table();
  t.supports = supports;
  return t;
}
constexpr tutti_algo_v1 table = spoiled();
const void *get_iface(void *, const char *id) noexcept {
  return std::string_view(id) == TUTTI_ALGO ? &table : nullptr;
}
constexpr tutti_plugin_desc spoiled_desc() {
  tutti_plugin_desc d = Desc::value;
  d.get_iface = get_iface;
  return d;
}

} // namespace

extern "C" const tutti_plugin_desc tutti_plugin_v1 = spoiled_desc();
