// tutti/plugins/proto-simple: protocol "simple". The slot's word is the signal (TUTTI_SIGNAL_COUNTER), so each form is one
// of the host's kernels as it stands.
#include "tutti/plugin/cxx/host_kernels.hpp"

namespace {

using namespace tutti::plugin;

class Simple : public HostKernels {
public:
  static constexpr Info info{"proto-simple", "0.1.0", "tutti", "Apache-2.0",
                             "one word per slot tells that its payload has arrived"};
  static constexpr const char *proto_name = "simple";
  static constexpr ProtoShape proto_shape{TUTTI_SIGNAL_COUNTER, 1, 1, 8, 56};

  explicit Simple(const Host &host) : HostKernels(host, proto_name) {}
};

} // namespace

TUTTI_CXX_PLUGIN(Simple)
