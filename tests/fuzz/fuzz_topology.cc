// Topology and graph files, machines and channels from the wire: any bytes give a machine or an error, a machine gives
// channels, and two hosts like it do.
#include "topology/cluster.h"
#include "topology/machine_file.h"
#include <cstdlib>

namespace {

void check_cluster(const tutti::Machine &machine) {
  const tutti::ClusterInput input{{machine}, {{}, {}}, {{.host = 0}, {.host = 1}, {.host = 0}}};
  const auto cluster = tutti::make_cluster(input, {.max_channels = 2});
  if (!cluster.ok()) return;
  const auto bytes = tutti::encode_cluster(*cluster);
  const auto again = tutti::decode_cluster(bytes);
  if (!again.ok() || tutti::encode_cluster(*again) != bytes) std::abort();
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const std::string_view text(reinterpret_cast<const char *>(data), size);
  if (auto file = tutti::MachineFile::parse(text, "fuzz.xml"); file.ok()) {
    const auto machine = file->machine();
    if (!machine.ok() && machine.status().error().line().find('\n') != std::string::npos) std::abort(); // messages are one line
    if (machine.ok() && machine->nodes().size() < 24) {
      const auto channels = tutti::search_channels(*machine, {.max_channels = 2, .steps = 20'000});
      if (channels.rings.total() > channels.optimum * 1.000001) std::abort();
      const auto graphs = tutti::graphs_of(*machine, channels);
      if (!tutti::parse_graphs(tutti::graph_xml(graphs), "own.xml").ok()) std::abort();
    }
    if (machine.ok() && machine->nodes().size() < 8) check_cluster(*machine);
    const auto again = tutti::MachineFile::parse(file->text(), "again.xml");
    if (!again.ok()) std::abort();
  }
  (void)tutti::parse_graphs(text, "fuzz.xml");
  const std::span bytes(reinterpret_cast<const std::byte *>(data), size);
  if (const auto cluster = tutti::decode_cluster(bytes); cluster.ok()) (void)tutti::cluster_json(*cluster);
  if (const auto machine = tutti::decode_machine(bytes); machine.ok() && machine->nodes().size() < 8) check_cluster(*machine);
  return 0;
}
