// Topology and graph files: any bytes give a machine or an error, and a machine gives paths.
#include "topology/channels.h"
#include "topology/machine_file.h"
#include <cstdlib>

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
    const auto again = tutti::MachineFile::parse(file->text(), "again.xml");
    if (!again.ok()) std::abort();
  }
  (void)tutti::parse_graphs(text, "fuzz.xml");
  return 0;
}
