// tutti/plugins/proto-pull: protocol "pull". The core lends what lies at its home and reads it there (TUTTI_SIGNAL_DESCRIPTOR);
// kernels stage the rest and reduce, so each form is one of the host's as it stands.
#include "tutti/plugin/cxx/host_kernels.hpp"

namespace {

using namespace tutti::plugin;

class Pull : public HostKernels {
public:
  static constexpr Info info{"proto-pull", "0.1.0", "tutti", "Apache-2.0",
                             "the receiver reads the message in the sender's memory"};
  static constexpr const char *proto_name = "pull";
  static constexpr ProtoShape proto_shape{TUTTI_SIGNAL_DESCRIPTOR, 1, 1, 8, 56};

  explicit Pull(const Host &host) : HostKernels(host, proto_name) {}
};

} // namespace

TUTTI_CXX_PLUGIN(Pull)
