// RDMA devices and GPUs, from /sys and /proc alone: what libibverbs or a driver's library would say may be what is missing.
#include "tools/doctor/host.h"
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>

namespace tutti::doctor {
namespace {

const std::string kRdma = "/sys/class/infiniband";

// Counters that only rise when something goes wrong; docs/lossless.md says of each what.
constexpr std::string_view kTrouble[] = {
    "symbol_error",
    "link_error_recovery",
    "link_downed",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "port_xmit_discards",
    "local_link_integrity_errors",
    "out_of_sequence",
    "packet_seq_err",
    "local_ack_timeout_err",
    "rnr_nak_retry_err",
    "rx_icrc_encapsulated",
    "roce_adp_retrans_to",
    "retry_exceeded_err",
    "excessive_buffer_overrun_errors",
    "resp_remote_access_errors",
    "req_remote_access_errors",
    "out_of_buffer",
    "completer_retry_err",
    "rp_cnp_ignored",
};

// "4: ACTIVE" -> "ACTIVE"
std::string after_colon(const std::string &text) {
  const size_t colon = text.find(':');
  return colon == text.npos ? text : trimmed(std::string_view(text).substr(colon + 1));
}

void check_gids(const Host &host, const std::string &port, const std::string &name, bool ethernet, Findings &out) {
  int good = 0, all = 0;
  for (const std::string &index : host.files.list(port + "/gids")) {
    const std::string gid = host.files.line(port + "/gids/" + index);
    if (gid.empty() || gid == "0000:0000:0000:0000:0000:0000:0000:0000") continue;
    all++;
    const std::string type = host.files.line(port + "/gid_attrs/types/" + index);
    const bool link_local = gid.starts_with("fe80:");
    if (type.find("v2") != type.npos && !link_local) good++;
  }
  if (all == 0)
    out.add(Level::error, "rdma.gids", name + ": the GID table is empty",
            ethernet ? "RoCE addresses packets by GIDs, which come from the interface's addresses"
                     : "the subnet manager has not set the port up",
            ethernet ? "give its network interface an address, and set it up (ip addr add, ip link set up)"
                     : "start a subnet manager (opensm)");
  else if (ethernet && good == 0)
    out.add(Level::warning, "rdma.gids", fmt::format("{}: {} GIDs, none of RoCE v2 with an address that is routed", name, all),
            "only hosts on the same link can be reached, by link-local addresses or RoCE v1",
            "give its network interface an IP address; TUTTI_PLUGIN_NET_IB_GID_INDEX picks one");
  else
    out.ok("rdma.gids",
           fmt::format("{}: {} GIDs{}", name, all, ethernet ? fmt::format(", {} of RoCE v2 with an address", good) : ""));
}

void check_pkeys(const Host &host, const std::string &port, const std::string &name, Findings &out) {
  bool full = false, any = false;
  for (const std::string &index : host.files.list(port + "/pkeys")) {
    const auto key = to_number(host.files.line(port + "/pkeys/" + index), 16).value_or(0);
    any = any || key != 0;
    full = full || (key & 0x8000);
  }
  if (any && !full)
    out.add(Level::warning, "rdma.pkeys", name + ": the port is a limited member of all its partitions",
            "limited members do not reach each other", "make it a full member in the subnet manager's partitions.conf");
}

void check_port(const Host &host, const std::string &device, const std::string &number, Findings &out) {
  const std::string port = fmt::format("{}/{}/ports/{}", kRdma, device, number), name = device + ":" + number;
  const std::string state = after_colon(host.files.line(port + "/state")),
                    physical = after_colon(host.files.line(port + "/phys_state")), rate = host.files.line(port + "/rate"),
                    layer = host.files.line(port + "/link_layer");
  const bool ethernet = layer == "Ethernet";
  const std::string seen = fmt::format("{}: {}, {}, {}, {}", name, state, physical, rate, layer);
  if (state != "ACTIVE") {
    const bool waits = state == "INIT" || state == "ARMED";
    return out.add(waits ? Level::error : Level::warning, "rdma.state", seen,
                   waits ? "the link is up and no subnet manager has configured the port: nothing can be sent"
                         : "this port is not used; a job that counts on it runs at a lower speed, or over TCP",
                   waits      ? "start or repair the subnet manager (opensm; ibstat shows SM lid)"
                   : ethernet ? "ip link set up of its network interface, cable, switch port"
                              : "cable, switch port; ibstat, ibportstate");
  }
  out.ok("rdma.state", seen);
  check_gids(host, port, name, ethernet, out);
  if (!ethernet) check_pkeys(host, port, name, out);
  std::vector<std::string> risen;
  for (const char *folder : {"/counters/", "/hw_counters/"})
    for (const std::string &counter : host.files.list(port + folder))
      if (const auto n = host.files.number(port + folder + counter);
          n.value_or(0) > 0 && std::find(std::begin(kTrouble), std::end(kTrouble), counter) != std::end(kTrouble))
        risen.push_back(fmt::format("{} {}", counter, *n));
  if (!risen.empty())
    out.add(Level::note, "rdma.counters", fmt::format("{}: {}", name, fmt::join(risen, ", ")),
            "packets were lost, late or damaged, at some time since the driver was loaded; what each means: docs/lossless.md",
            "tutti info devices, before and after a job, shows which rise");
}

} // namespace

bool has_rdma(const Host &host) {
  return !host.files.list(kRdma).empty();
}

void check_rdma(const Host &host, const Job &, Findings &out) {
  const auto devices = host.files.list(kRdma);
  if (devices.empty()) return out.ok("rdma.devices", "RDMA devices: none (/sys/class/infiniband)");
  std::map<std::string, std::vector<std::string>> by_guid, by_speed;
  for (const std::string &device : devices) {
    const std::string folder = kRdma + "/" + device;
    for (const std::string &number : host.files.list(folder + "/ports")) {
      check_port(host, device, number, out);
      if (after_colon(host.files.line(folder + "/ports/" + number + "/state")) == "ACTIVE")
        by_speed[host.files.line(folder + "/ports/" + number + "/rate")].push_back(device + ":" + number);
    }
    const std::string guid = host.files.line(folder + "/node_guid");
    if (!guid.empty() && guid != "0000:0000:0000:0000") by_guid[guid].push_back(device);
    const std::string speed = host.files.line(folder + "/device/current_link_speed"),
                      most = host.files.line(folder + "/device/max_link_speed"),
                      width = host.files.line(folder + "/device/current_link_width"),
                      widest = host.files.line(folder + "/device/max_link_width");
    if (!speed.empty() && (speed != most || width != widest))
      out.add(Level::warning, "rdma.pcie", fmt::format("{}: PCIe {} x{}, could be {} x{}", device, speed, width, most, widest),
              "the slot or the bus holds the card below its speed", "another slot; reseat the card; BIOS settings of the link");
    if (host.files.line(folder + "/device/numa_node") == "-1" && host.files.exists(folder + "/device/numa_node") &&
        cpus_in(host.files.line("/sys/devices/system/node/online")).value_or(1) > 1)
      out.add(Level::note, "rdma.numa", device + ": its NUMA node is not known",
              "ranks near to it cannot be told from those far away", "BIOS settings; or a topology file (TUTTI_TOPO_FILE)");
  }
  for (const auto &[guid, names] : by_guid)
    if (names.size() > 1)
      out.add(Level::warning, "rdma.duplicate", fmt::format("{} have the same node GUID {}", fmt::join(names, " and "), guid),
              "connections meant for one may end at the other", "machines that were cloned: set sriov node_guid, or mlxreg");
  if (by_speed.size() > 1) {
    std::string all;
    for (const auto &[rate, names] : by_speed)
      all += fmt::format("{}{}: {}", all.empty() ? "" : "; ", fmt::join(names, ", "), rate);
    out.add(Level::note, "rdma.speeds", "ports differ in speed: " + all,
            "rings over several ports run at the pace of the slowest", "cables and switch ports; NCCL_IB_HCA leaves ports out");
  }
  if (!host.files.exists("/dev/infiniband/uverbs0"))
    out.add(Level::error, "rdma.verbs", "/dev/infiniband/uverbs0 is missing",
            "programs cannot open the devices, though the kernel has them",
            "containers: --device=/dev/infiniband; else modprobe ib_uverbs");
}

void check_gpus(const Host &host, const Job &job, Findings &out) {
  const auto gpus = host.files.list("/proc/driver/nvidia/gpus");
  if (gpus.empty() && !host.files.exists("/proc/driver/nvidia/version"))
    return out.ok("gpus.driver", "GPUs: no driver is loaded");
  const std::string version = host.files.line("/proc/driver/nvidia/version");
  out.ok("gpus.driver", fmt::format("GPUs: {} ({})", gpus.size(), version.substr(0, 60)));
  if (has_rdma(host)) {
    const bool peermem = host.files.exists("/sys/module/nvidia_peermem") || host.files.exists("/sys/module/nv_peer_mem");
    const bool open = version.find("Open Kernel Module") != version.npos; // offers dma-buf, with kernel 5.12
    if (peermem || open)
      out.ok("gpus.peer_memory",
             fmt::format("GPU memory for RDMA devices: {}", peermem ? "nvidia_peermem" : "dma-buf of the open kernel module"));
    else
      out.add(Level::error, "gpus.peer_memory",
              "GPU memory for RDMA devices: nvidia_peermem is not loaded, and the driver offers no dma-buf",
              "data of GPUs goes through host memory on its way to the network, at half the speed or less",
              "modprobe nvidia_peermem (after a driver update: reinstall it); dmesg | grep -i peermem");
  }
  std::map<std::string, int> seen;
  for (const std::string &gpu : host.visible_gpus) seen[gpu]++;
  for (const auto &[gpu, times] : seen)
    if (times > 1)
      out.add(Level::error, "gpus.duplicate", fmt::format("CUDA_VISIBLE_DEVICES names GPU {} {} times", gpu, times),
              "two ranks would use the same device", "name each once");
  if (!host.visible_gpus.empty() && static_cast<int>(host.visible_gpus.size()) < job.here)
    out.add(Level::warning, "gpus.shared",
            fmt::format("{} ranks here, and CUDA_VISIBLE_DEVICES names {} GPU{}", job.here, host.visible_gpus.size(),
                        host.visible_gpus.size() == 1 ? "" : "s"),
            "ranks that share a device are refused by NCCL (\"Duplicate GPU detected\"), and slow each other down",
            "CUDA_VISIBLE_DEVICES=$LOCAL_RANK for each rank, or as many GPUs as ranks");
  if (!gpus.empty() && static_cast<int>(gpus.size()) < job.here)
    out.add(Level::note, "gpus.count",
            fmt::format("{} ranks here, and {} GPU{}", job.here, gpus.size(), gpus.size() == 1 ? "" : "s"),
            "ranks share devices", "one rank per GPU");
}

} // namespace tutti::doctor
