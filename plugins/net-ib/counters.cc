// tutti/plugins/net-ib/counters.cc
#include "counters.h"
#include "sysfs.h"
#include <charconv>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <set>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

namespace tutti::net_ib {
namespace {

struct Hint {
  std::string_view name; // a * stands for a number: "rx_prio*_pause"
  const char *text;
};

constexpr const char *lost =
    "packets were lost or overtook each other on the way; on Ethernet look at the drops of the switch and "
    "at flow control (PFC, ECN)";
constexpr const char *silent =
    "the peer's device did not acknowledge in time and packets were sent again: they are lost on the "
    "way, or the peer is gone";
constexpr const char *not_ready = "a receiver had nothing posted and told the sender to wait: that process is slow or stopped";
constexpr const char *refused =
    "a request was refused: memory was released, or a process was started again, while the other end "
    "still used it";
constexpr const char *failed = "a queue pair failed: the first error of its connection says why";
constexpr const char *congested = "the network is congested and tells senders to slow down (ECN): normal in bursts";
constexpr const char *paused_here =
    "the switch told this port to stop sending (PFC or pause): there is congestion further on, which "
    "ECN should have ended earlier";
constexpr const char *paused_peer = "this port told the switch to stop: the host does not take data as fast as it comes (PCIe, "
                                    "memory, a NUMA node away)";
constexpr const char *storm =
    "this port paused the switch for so long that its watchdog stepped in: the host had stopped taking data";
constexpr const char *no_room =
    "packets that had arrived were dropped for lack of room in the device: flow control (PFC) does not "
    "cover their priority, or its headroom is too small";
constexpr const char *damaged = "packets arrived damaged: cable, transceiver or connector";
constexpr const char *down = "the link was lost";
constexpr const char *waiting = "the port had data and no credits to send it with: congestion further on";
constexpr const char *thrown = "packets were dropped on their way out: the port was down, or congested for too long";

// Of mlx5, rxe, bnxt_re and irdma, and of the ports of InfiniBand; then of network interfaces.
constexpr Hint hints[] = {
    {"out_of_sequence", lost},
    {"packet_seq_err", lost},
    {"implied_nak_seq_err", lost},
    {"rcvd_seq_err", lost},
    {"out_of_seq_request", lost},
    {"seq_err_naks_rcvd", lost},
    {"duplicate_request", "the peer sent again what had arrived: acknowledgements are lost, or come later than its timeout"},
    {"dup_req", "the peer sent again what had arrived: acknowledgements are lost, or come later than its timeout"},
    {"local_ack_timeout_err", silent},
    {"roce_adp_retrans", silent},
    {"roce_adp_retrans_to", silent},
    {"completer_retry_err", silent},
    {"to_retransmits", silent},
    {"retry_exceeded_err", "the peer was given up after all tries (status 12): it is gone, or the way to it is"},
    {"max_retry_exceeded", "the peer was given up after all tries (status 12): it is gone, or the way to it is"},
    {"retry_rnr_exceeded_err", not_ready},
    {"rnr_nak_retry_err", not_ready},
    {"rcvd_rnr_err", not_ready},
    {"send_rnr_err", not_ready},
    {"rnr_naks_rcvd", not_ready},
    {"out_of_buffer", not_ready},
    {"req_remote_access_errors", refused},
    {"resp_remote_access_errors", refused},
    {"req_remote_invalid_request", refused},
    {"resp_local_length_error", refused},
    {"req_cqe_error", failed},
    {"resp_cqe_error", failed},
    {"send_err", "packets could not be sent: the network interface is down, or has no room"},
    {"np_cnp_sent", congested},
    {"np_ecn_marked_roce_packets", congested},
    {"rp_cnp_handled", congested},
    {"rx_ecn_marked_pkts", congested},
    {"rx_cnp_pkts", congested},
    {"tx_cnp_pkts", congested},
    {"cnpHandled", congested},
    {"cnpSent", congested},
    {"RxECNMrkd", congested},
    {"rp_cnp_ignored",
     "the network asked this port to slow down (ECN) and it did not: congestion control is off for this priority"},
    {"cnpIgnored",
     "the network asked this port to slow down (ECN) and it did not: congestion control is off for this priority"},
    {"roce_slow_restart", congested},
    {"rx_icrc_encapsulated", damaged},
    {"rx_roce_discard_pkts", no_room},
    {"rx_roce_discards", no_room},
    {"tx_roce_discard_pkts", thrown},
    {"tx_roce_discards", thrown},
    {"symbol_error", damaged},
    {"port_rcv_errors", damaged},
    {"port_rcv_remote_physical_errors", damaged},
    {"local_link_integrity_errors", damaged},
    {"link_error_recovery", down},
    {"link_downed", down},
    {"excessive_buffer_overrun_errors", no_room},
    {"port_xmit_discards", thrown},
    {"port_xmit_wait", waiting},
    {"port_rcv_switch_relay_errors", "the switch had no way for these packets: look at the subnet manager's routes"},
    {"port_xmit_constraint_errors", "packets of a partition that the port is no member of were dropped"},
    {"port_rcv_constraint_errors", "packets of a partition that the port is no member of were dropped"},
    {"rx_prio*_pause", paused_here},
    {"tx_prio*_pause", paused_peer},
    {"rx_pause_ctrl_phy", paused_here},
    {"tx_pause_ctrl_phy", paused_peer},
    {"rx_global_pause", paused_here},
    {"tx_global_pause", paused_peer},
    {"rx_pause_frames", paused_here},
    {"tx_pause_frames", paused_peer},
    {"rx_pfc_ena_frames_pri*", paused_here},
    {"tx_pfc_ena_frames_pri*", paused_peer},
    {"rx_priority_*_xoff.nic", paused_here},
    {"tx_priority_*_xoff.nic", paused_peer},
    {"link_xoff_rx.nic", paused_here},
    {"link_xoff_tx.nic", paused_peer},
    {"tx_pause_storm_warning_events", storm},
    {"tx_pause_storm_error_events", storm},
    {"rx_prio*_discards", no_room},
    {"rx_prio*_buf_discard", no_room},
    {"rx_prio*_cong_discard", no_room},
    {"rx_discards_phy", no_room},
    {"tx_discards_phy", thrown},
    {"rx_crc_errors_phy", damaged},
    {"rx_crc_errors.nic", damaged},
    {"link_down_events_phy", down},
};

bool matches(std::string_view pattern, std::string_view name) {
  const size_t star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == name;
  const std::string_view before = pattern.substr(0, star), after = pattern.substr(star + 1);
  if (name.size() <= before.size() + after.size() || name.substr(0, before.size()) != before) return false;
  if (name.substr(name.size() - after.size()) != after) return false;
  const std::string_view number = name.substr(before.size(), name.size() - before.size() - after.size());
  return number.find_first_not_of("0123456789") == std::string_view::npos;
}

// Not counters, though they lie among them.
bool is_setting(std::string_view name) {
  return name == "lifespan";
}

void add_folder(const Sysfs &sysfs, const std::string &folder, std::vector<Counter> &out, std::set<std::string> &known) {
  for (const std::string &name : sysfs.list(folder)) {
    const std::string text = sysfs.line(folder + "/" + name);
    Counter c{name, counter_hint(name), 0};
    const auto [end, err] = std::from_chars(text.data(), text.data() + text.size(), c.value);
    // "N/A (no PMA)" where the port has no such counter.
    if (err != std::errc() || end != text.data() + text.size() || is_setting(name) || !known.insert(name).second) continue;
    out.push_back(std::move(c));
  }
}

// One request of the ethtool interface. `data` begins with a command.
bool ask(int fd, const std::string &netdev, void *data) {
  ifreq req{};
  netdev.copy(req.ifr_name, IFNAMSIZ - 1);
  req.ifr_data = static_cast<char *>(data);
  return ioctl(fd, SIOCETHTOOL, &req) == 0;
}

// A request of ethtool whose answer follows its head.
template <class Head> class Request {
public:
  explicit Request(size_t answer_bytes) : bytes_(sizeof(Head) + answer_bytes) {}
  Head *head() { return reinterpret_cast<Head *>(bytes_.data()); }
  template <class T> const T *answer() const { return reinterpret_cast<const T *>(bytes_.data() + sizeof(Head)); }

private:
  std::vector<char> bytes_; // of operator new, so aligned for both
};

constexpr uint32_t most_statistics = 65536;
constexpr uint32_t more_statistics = 256; // that a driver may have got since it was asked how many there are: it asks no length

// 0: none, or not known.
uint32_t count_statistics(const Asker &ask) {
  Request<ethtool_sset_info> size(sizeof(uint32_t));
  size.head()->cmd = ETHTOOL_GSSET_INFO;
  size.head()->sset_mask = uint64_t{1} << ETH_SS_STATS;
  if (!ask(size.head()) || size.head()->sset_mask == 0) return 0;
  const uint32_t n = *size.answer<uint32_t>();
  return n <= most_statistics ? n : 0;
}

} // namespace

const char *counter_hint(std::string_view name) {
  for (const Hint &h : hints)
    if (matches(h.name, name)) return h.text;
  return nullptr;
}

// A driver writes as many as it has by then, however many were asked for. So there is room for more, and nothing is believed
// unless as many are there afterwards.
Statistics ethtool_statistics(const Asker &ask) {
  Statistics out;
  const uint32_t n = count_statistics(ask);
  if (n == 0) return out;
  const size_t room = size_t{n} + more_statistics;
  Request<ethtool_gstrings> names(room * ETH_GSTRING_LEN);
  names.head()->cmd = ETHTOOL_GSTRINGS;
  names.head()->string_set = ETH_SS_STATS;
  names.head()->len = n;
  if (!ask(names.head()) || names.head()->len != n || count_statistics(ask) != n) return out;
  Request<ethtool_stats> values(room * sizeof(uint64_t));
  values.head()->cmd = ETHTOOL_GSTATS;
  values.head()->n_stats = n;
  if (!ask(values.head()) || values.head()->n_stats != n || count_statistics(ask) != n) return out;
  for (uint32_t i = 0; i < n; i++) {
    const char *name = names.answer<char>() + size_t{i} * ETH_GSTRING_LEN;
    out.emplace_back(std::string(name, strnlen(name, ETH_GSTRING_LEN)), values.answer<uint64_t>()[i]);
  }
  return out;
}

Statistics interface_statistics(const std::string &netdev) {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return {};
  Statistics out = ethtool_statistics([&](void *data) { return ask(fd, netdev, data); });
  close(fd);
  return out;
}

std::vector<Counter> read_counters(const Port &port, const std::string &root, Statistics (*statistics)(const std::string &)) {
  const Sysfs sysfs(root);
  std::vector<Counter> out;
  std::set<std::string> known;
  const std::string folder = Sysfs::port(port.device, port.port);
  add_folder(sysfs, folder + "/hw_counters", out, known);
  add_folder(sysfs, folder + "/counters", out, known);
  if (port.netdev.empty()) return out;
  for (const auto &[name, value] : statistics(sysfs.lower_netdev(port.netdev)))
    if (const char *hint = counter_hint(name); hint && known.insert(name).second) out.push_back({name, hint, value});
  return out;
}

} // namespace tutti::net_ib
