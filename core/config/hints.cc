#include "config/hints.h"
#include "config/impl.h"
#include <algorithm>
#include <array>

namespace tutti::config {
namespace {

// clang-format off
constexpr std::array kHints{
    Hint{"NCCL_NTHREADS", "whoever waits does the work, there are no threads per channel", "exec.spin, exec.progress_thread"},
    Hint{"NCCL_LL128_NTHREADS", "whoever waits does the work, there are no threads per channel", "exec.spin, exec.progress_thread"},
    Hint{"NCCL_THREAD_THRESHOLDS", "channels are chosen by size class", "coll.class, coll.max_channels"},
    Hint{"NCCL_LL_THRESHOLD", "protocols are chosen by size class", "coll.class, coll.proto"},
    Hint{"NCCL_TREE_THRESHOLD", "algorithms are chosen by size class", "coll.class, coll.algo"},
    Hint{"NCCL_SINGLE_RING_THRESHOLD", "channels are chosen by size class", "coll.class, coll.max_channels"},
    Hint{"NCCL_PAT_ENABLE", "pat is an algorithm among others, which a list allows or excludes", "coll.algo"},
    Hint{"NCCL_NVLS_ENABLE", "host memory has no NVLink switches", "coll.algo"},
    Hint{"NCCL_NVLS_NCHANNELS", "host memory has no NVLink switches", "coll.max_channels"},
    Hint{"NCCL_NVLS_CHUNKSIZE", "host memory has no NVLink switches", "coll.slot_bytes"},
    Hint{"NCCL_NVLSTREE_MAX_CHUNKSIZE", "host memory has no NVLink switches", "coll.slot_bytes"},
    Hint{"NCCL_CTA_POLICY", "channels are what costs here, and have limits", "coll.min_channels, coll.max_channels"},
    Hint{"NCCL_CGA_CLUSTER_SIZE", "there are no thread blocks to cluster", ""},
    Hint{"NCCL_UNPACK_DOUBLE_NCHANNELS", "there are no GPU channels to double", "coll.min_channels"},
    Hint{"NCCL_LL_BUFFSIZE", "buffers of a protocol are set for a class", "coll.class, coll.buffer"},
    Hint{"NCCL_LL128_BUFFSIZE", "buffers of a protocol are set for a class", "coll.class, coll.buffer"},
    Hint{"NCCL_CHUNK_SIZE", "what is sent at once is a slot", "coll.slot_bytes"},
    Hint{"NCCL_P2P_DISABLE", "ranks of one host share memory, and protocol pull reads a peer's", "coll.proto, shm.disable"},
    Hint{"NCCL_P2P_DIRECT_DISABLE", "protocol pull is what reads a peer's memory", "coll.proto, shm.pull"},
    Hint{"NCCL_P2P_READ_ENABLE", "protocol pull is what reads a peer's memory", "coll.proto, shm.pull"},
    Hint{"NCCL_P2P_USE_CUDA_MEMCPY", "memory is the host's", "coll.proto, shm.pull"},
    Hint{"NCCL_P2P_PCI_CHUNKSIZE", "sends and receives have slots of one size on every kind of link", "p2p.slot_bytes"},
    Hint{"NCCL_P2P_NVL_CHUNKSIZE", "sends and receives have slots of one size on every kind of link", "p2p.slot_bytes"},
    Hint{"NCCL_P2P_LL_THRESHOLD", "sends and receives have one protocol", "p2p.slot_bytes, p2p.depth"},
    Hint{"NCCL_ALLOC_P2P_NET_LL_BUFFERS", "sends and receives have one protocol", "p2p.slot_bytes, p2p.depth"},
    Hint{"NCCL_MIN_P2P_NCHANNELS", "sends and receives have one link to each peer", "p2p.slot_bytes, p2p.depth"},
    Hint{"NCCL_MAX_P2P_NCHANNELS", "sends and receives have one link to each peer", "p2p.slot_bytes, p2p.depth"},
    Hint{"NCCL_NCHANNELS_PER_NET_PEER", "sends and receives have one link to each peer", "p2p.slot_bytes, p2p.depth"},
    Hint{"NCCL_P2P_MAX_PEERS", "all messages of a group are under way at once", "p2p.slot_bytes, p2p.depth"},
    Hint{"NCCL_P2P_SCHEDULE_GROUP_SIZE", "all messages of a group are under way at once", "p2p.slot_bytes, p2p.depth"},
    Hint{"NCCL_P2P_EPOCH_ENABLE", "all messages of a group are under way at once", "p2p.slot_bytes, p2p.depth"},
    Hint{"NCCL_P2P_PER_CHANNEL_NET_BW", "sends and receives have one link to each peer", "tuner.net_bandwidth"},
    Hint{"NCCL_NETDEVS_POLICY", "all NICs are used but those that slow the others down", "topology.file"},
    Hint{"NCCL_NET_MERGE_POLICY", "all ports that are close enough are merged", "net.merge_level"},
    Hint{"NCCL_NET_OVERHEAD", "what a message costs is measured", "tuner.calibrate"},
    Hint{"NCCL_PROGRESS_APPENDOP_FREQ", "whoever waits does the work", "exec.spin, exec.progress_thread"},
    Hint{"NCCL_PROXY_APPEND_BATCH_SIZE", "whoever waits does the work", "exec.spin, exec.progress_thread"},
    Hint{"NCCL_RUNTIME_CONNECT", "links are always made at their first use", ""},
    Hint{"NCCL_ALLGATHERV_ENABLE", "tuttiAllGatherV is an operation of its own", ""},
    Hint{"NCCL_NET_PLUGIN", "it names plugins of another ABI", "plugins.net"},
    Hint{"NCCL_TUNER_PLUGIN", "it names plugins of another ABI", "plugins.tuner"},
};
// clang-format on

std::string with_names(std::string_view keys, std::string_view code) {
  std::string out;
  for (const auto &key : split(keys, ','))
    out += fmt::format("{}{}{}{} ({}{}{})", out.empty() ? "" : ", ", code, key, code, code,
                       core_options()[option_index(key)].env_name(), code);
  return out;
}

} // namespace

std::span<const Hint> hints() {
  return kHints;
}

std::string answer_to(std::string_view name) {
  const auto *const hint = std::find_if(kHints.begin(), kHints.end(), [&](const Hint &h) { return h.name == name; });
  if (hint == kHints.end()) return fmt::format("{} is set and has no meaning here", name);
  return fmt::format("{} is not followed: {}{}{}", name, hint->why, hint->instead.empty() ? "" : "; see ",
                     with_names(hint->instead, ""));
}

std::string hints_markdown() {
  std::string out = "| set | here | see |\n| --- | --- | --- |\n";
  for (size_t at = 0; at < kHints.size();) {
    std::string names;
    const Hint &first = kHints[at];
    for (; at < kHints.size() && kHints[at].why == first.why && kHints[at].instead == first.instead; at++)
      names += fmt::format("{}`{}`", names.empty() ? "" : ", ", kHints[at].name);
    out += fmt::format("| {} | {} | {} |\n", names, first.why, with_names(first.instead, "`"));
  }
  return out;
}

} // namespace tutti::config
