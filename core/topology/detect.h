// tutti/core/topology/detect.h: what this machine shows of itself, put into a topology file.
#pragma once
#include "topology/machine_file.h"
#include <string>
#include <vector>

namespace tutti {

// Where to look; other values are for tests.
struct DetectFrom {
  std::string sysfs = "/sys";
  std::string hwloc_xml; // a file that hwloc reads instead of the machine; empty: the machine
  bool nvml = true;      // NVIDIA's library, opened when it is there
};

// Adds processors, PCI devices that matter (GPUs, NICs and the switches above them) and ports that the file lacks, and fills in
// attributes that it leaves out; what it says stays. Returns what could not be seen and what was assumed, one line each.
Result<std::vector<std::string>> complete_machine(MachineFile *file, const DetectFrom &from = {});

std::string cpu_model(); // "AMD EPYC 7763 64-Core Processor", as the kernel calls this machine's

// NVIDIA's part: <gpu> with dev and sm, <nvlink> with targets. False when the library is not there or does not work.
struct NvGpu {
  std::string busid;
  int dev = 0, sm = 0;
  struct Link {
    std::string target;
    int count = 0;
  };
  std::vector<Link> links;
};
bool nvidia_gpus(std::vector<NvGpu> *gpus, std::string *why_not);

} // namespace tutti
