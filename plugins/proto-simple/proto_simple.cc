// tutti/plugins/proto-simple: protocol "simple". The slot's word is the signal (TUTTI_SIGNAL_COUNTER), so each form is one
// of the host's kernels as it stands.
#include "tutti/plugin/plugin.h"
#include <cstring>

namespace {

struct Simple {
  const tutti_host_reduce_v1 *reduce = nullptr;
};

template <class Fn> tutti_kernel erased(Fn fn) {
  return reinterpret_cast<tutti_kernel>(fn);
}

tutti_kernel kernel(void *plugin, tutti_form form, tutti_dtype dtype, tutti_redop op, uint32_t flags) noexcept {
  const tutti_host_reduce_v1 &host = *static_cast<Simple *>(plugin)->reduce;
  switch (form) {
  case TUTTI_FORM_ENCODE:
    return erased(host.copy(flags & ~TUTTI_KERNEL_NONTEMPORAL)); // a slot stays in the caches
  case TUTTI_FORM_DECODE:
    return erased(host.copy(flags));
  case TUTTI_FORM_DECODE_REDUCE:
    return erased(host.reduce(dtype, op, flags));
  case TUTTI_FORM_DECODE_REDUCE_ENCODE:
    return erased(host.reduce2(dtype, op, flags));
  case TUTTI_FORM_REDUCE_N:
    return erased(host.reduce_n(dtype, op, flags));
  default:
    return nullptr;
  }
}

constexpr tutti_proto_v1 proto = {sizeof(tutti_proto_v1), TUTTI_SIGNAL_COUNTER, "simple", 1, 1, 8, 56, kernel};

bool complete(const tutti_host_reduce_v1 *table) {
  return table && TUTTI_HAS(tutti_host_reduce_v1, table, copy) && TUTTI_HAS(tutti_host_reduce_v1, table, reduce) &&
         TUTTI_HAS(tutti_host_reduce_v1, table, reduce2) && TUTTI_HAS(tutti_host_reduce_v1, table, reduce_n);
}

tutti_status open(const tutti_host *host, void **plugin) noexcept {
  static Simple state; // one per process, as open() is
  state.reduce = static_cast<const tutti_host_reduce_v1 *>(host->get_iface(host, TUTTI_HOST_REDUCE));
  if (!complete(state.reduce)) {
    const auto *diag = static_cast<const tutti_host_diag_v1 *>(host->get_iface(host, TUTTI_HOST_DIAG));
    if (diag && TUTTI_HAS(tutti_host_diag_v1, diag, set_error))
      diag->set_error(host, TUTTI_ERR_UNSUPPORTED,
                      "this core does not offer " TUTTI_HOST_REDUCE ", which protocol simple is made of");
    return TUTTI_ERR_UNSUPPORTED;
  }
  *plugin = &state;
  return TUTTI_OK;
}

void close(void *) noexcept {}

const void *get_iface(void *, const char *id) noexcept {
  return strcmp(id, TUTTI_PROTO) == 0 ? &proto : nullptr;
}

constexpr const char *ifaces[] = {TUTTI_PROTO, nullptr};

} // namespace

const tutti_plugin_desc tutti_plugin_v1 = {sizeof(tutti_plugin_desc),
                                           TUTTI_ABI_MAJOR,
                                           TUTTI_ABI_MINOR,
                                           "proto-simple",
                                           "0.1.0",
                                           "tutti",
                                           "Apache-2.0",
                                           "one word per slot tells that its payload has arrived",
                                           ifaces,
                                           nullptr,
                                           open,
                                           close,
                                           get_iface};
