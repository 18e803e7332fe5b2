// NVIDIA's management library, found at run time: declared here as far as it is used, so that nothing of it is needed to build.
#include "topology/detect.h"
#include <algorithm>
#include <cstring>
#include <dlfcn.h>

namespace tutti {
namespace {

using Device = void *;
struct PciInfo { // nvmlPciInfo_t
  char legacy[16];
  unsigned domain, bus, device, id, subsystem;
  char busid[32];
};
constexpr unsigned kMostLinks = 36;

struct Nvml {
  void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*count)(unsigned *) = nullptr;
  int (*handle)(unsigned, Device *) = nullptr;
  int (*pci)(Device, PciInfo *) = nullptr;
  int (*capability)(Device, int *, int *) = nullptr;
  int (*link_state)(Device, unsigned, int *) = nullptr;
  int (*link_remote)(Device, unsigned, PciInfo *) = nullptr;
  bool started = false;

  Nvml() {
    if (!library) return;
    const bool all = get(&init, "nvmlInit_v2") && get(&shutdown, "nvmlShutdown") && get(&count, "nvmlDeviceGetCount_v2") &&
                     get(&handle, "nvmlDeviceGetHandleByIndex_v2") && get(&pci, "nvmlDeviceGetPciInfo_v3") &&
                     get(&capability, "nvmlDeviceGetCudaComputeCapability") && get(&link_state, "nvmlDeviceGetNvLinkState") &&
                     get(&link_remote, "nvmlDeviceGetNvLinkRemotePciInfo_v2");
    started = all && init() == 0;
  }
  ~Nvml() {
    if (started) shutdown();
    if (library) dlclose(library);
  }
  Nvml(const Nvml &) = delete;
  Nvml &operator=(const Nvml &) = delete;
  template <class F> bool get(F *function, const char *name) {
    *function = reinterpret_cast<F>(dlsym(library, name));
    return *function != nullptr;
  }
};

NvGpu describe(const Nvml &nvml, unsigned index, Device device) {
  NvGpu g;
  PciInfo info{};
  if (nvml.pci(device, &info) != 0) return g;
  g.busid = normal_busid(std::string_view(info.busid, strnlen(info.busid, sizeof info.busid)));
  g.dev = static_cast<int>(index);
  int major = 0, minor = 0;
  if (nvml.capability(device, &major, &minor) == 0) g.sm = major * 10 + minor;
  for (unsigned l = 0; l < kMostLinks; l++) {
    int active = 0;
    PciInfo remote{};
    if (nvml.link_state(device, l, &active) != 0 || !active || nvml.link_remote(device, l, &remote) != 0) continue;
    const std::string target = normal_busid(std::string_view(remote.busid, strnlen(remote.busid, sizeof remote.busid)));
    const auto known = std::find_if(g.links.begin(), g.links.end(), [&](const NvGpu::Link &x) { return x.target == target; });
    if (known == g.links.end())
      g.links.push_back({target, 1});
    else
      known->count++;
  }
  return g;
}

} // namespace

bool nvidia_gpus(std::vector<NvGpu> *gpus, std::string *why_not) {
  const Nvml nvml;
  unsigned count = 0;
  if (!nvml.started || nvml.count(&count) != 0) {
    *why_not = nvml.library ? "libnvidia-ml.so.1 does not work here" : "libnvidia-ml.so.1 is not there";
    return false;
  }
  for (unsigned i = 0; i < count; i++) {
    Device device = nullptr;
    if (nvml.handle(i, &device) != 0) continue;
    if (NvGpu g = describe(nvml, i, device); !g.busid.empty()) gpus->push_back(std::move(g));
  }
  return true;
}

} // namespace tutti
