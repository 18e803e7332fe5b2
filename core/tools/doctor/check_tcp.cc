// What the kernel allows connections: queues, buffers, ports.
#include "tools/doctor/host.h"
#include <algorithm>
#include <fmt/format.h>

namespace tutti::doctor {
namespace {

const std::string kNet = "/proc/sys/net/";

void check_queues(const Host &host, const Job &job, Findings &out) {
  // All ranks may check in at one root at the same time, and retry when the queue is full.
  for (const auto &[id, file, name] :
       {std::tuple{"tcp.somaxconn", "core/somaxconn", "net.core.somaxconn"},
        std::tuple{"tcp.syn_backlog", "ipv4/tcp_max_syn_backlog", "net.ipv4.tcp_max_syn_backlog"}}) {
    const auto value = host.files.number(kNet + file);
    if (!value) continue;
    const std::string seen = fmt::format("{}: {}", name, *value);
    if (*value >= std::min(job.ranks, 4096) || *value >= 4096)
      out.ok(id, seen);
    else
      out.add(
          Level::warning, id, seen,
          fmt::format("{} ranks may connect to one process at once; those beyond the queue wait a second and more for each new "
                      "attempt, and start-up takes long or runs into its deadline",
                      job.ranks),
          fmt::format("sysctl -w {}=4096", name));
  }
}

// Bytes under way on a connection of 10 Gbit/s over 1 ms; more bandwidth or distance needs more.
constexpr int64_t kGoodBuffer = 4 << 20, kLeastBuffer = 1 << 20;

void check_buffers(const Host &host, const Job &job, Findings &out) {
  if (job.hosts == 1) return out.ok("tcp.buffers", "socket buffers: not needed on one host, whose ranks share memory");
  int64_t fastest = 0;
  for (const auto &i : host.interfaces)
    if (i.up && !i.loopback) fastest = std::max(fastest, i.speed_mbps);
  for (const auto &[id, file, name] : {std::tuple{"tcp.rmem", "ipv4/tcp_rmem", "net.ipv4.tcp_rmem"},
                                       std::tuple{"tcp.wmem", "ipv4/tcp_wmem", "net.ipv4.tcp_wmem"}}) {
    const auto parts = words(host.files.line(kNet + file));
    if (parts.size() != 3) continue;
    const int64_t most = to_number(parts[2]).value_or(0);
    const int64_t want = fastest >= 40'000 ? 4 * kGoodBuffer : kGoodBuffer;
    const std::string seen = fmt::format("{}: \"{} {} {}\", at most {} per connection", name, parts[0], parts[1], parts[2],
                                         amount(static_cast<double>(most)));
    if (most >= want)
      out.ok(id, seen);
    else
      out.add(
          most < kLeastBuffer ? Level::warning : Level::note, id, seen,
          fmt::format("a connection can have no more under way{}; large messages between hosts stay below what the network can",
                      fastest > 0 ? fmt::format(", and the fastest interface does {} Mbit/s", fastest) : ""),
          fmt::format("sysctl -w {}=\"{} {} {}\"", name, parts[0], parts[1], 4 * want));
  }
  // Only who sets SO_SNDBUF or SO_RCVBUF is held to these.
  for (const auto &[id, file, name] : {std::tuple{"tcp.rmem_max", "core/rmem_max", "net.core.rmem_max"},
                                       std::tuple{"tcp.wmem_max", "core/wmem_max", "net.core.wmem_max"}}) {
    const auto value = host.files.number(kNet + file);
    if (!value) continue;
    if (*value >= kLeastBuffer)
      out.ok(id, fmt::format("{}: {}", name, *value));
    else
      out.add(Level::note, id, fmt::format("{}: {}", name, *value),
              "a buffer size asked for by plugin.net-socket.sndbuf and rcvbuf is cut to this; unless they are set, the kernel "
              "adapts sizes by itself and this does not count",
              fmt::format("sysctl -w {}=16777216", name));
  }
}

void check_ports(const Host &host, const Job &job, Findings &out) {
  int low = 0, high = 0;
  const std::string rule = host.config ? host.config->text("socket.port_range") : "0";
  if (std::sscanf(rule.c_str(), "%d-%d", &low, &high) == 1) high = low;
  if (low > 0) {
    const int count = high - low + 1, need = 2 * job.here; // control plane and net-socket
    const std::string seen =
        fmt::format("socket.port_range {} ({}): {} ports", rule, host.config->setting("socket.port_range").origin, count);
    const std::string confines = "listeners take ports of it alone: a firewall has to let through just these";
    if (count >= need)
      out.add(Level::note, "tcp.port_range", seen, confines);
    else
      out.add(Level::error, "tcp.port_range", seen,
              fmt::format("{} ranks of this host listen at about {} ports; those that find none free fail", job.here, need),
              fmt::format("TUTTI_SOCKET_PORT_RANGE={}-{}", low, low + 2 * need));
  }
  const auto parts = words(host.files.line(kNet + "ipv4/ip_local_port_range"));
  if (parts.size() != 2) return;
  const int64_t first = to_number(parts[0]).value_or(0), last = to_number(parts[1]).value_or(0), count = last - first + 1;
  const std::string seen = fmt::format("net.ipv4.ip_local_port_range: {} to {}, {} ports", first, last, count);
  // Each peer may take two outgoing connections of every rank here.
  const int64_t need = 2 * int64_t{job.here} * (job.ranks - job.here) + 2 * job.here;
  if (count >= need)
    out.ok("tcp.local_ports", seen);
  else
    out.add(Level::error, "tcp.local_ports", seen,
            fmt::format("{} ranks here connect to up to {} others, which takes up to {} ports", job.here, job.ranks - job.here,
                        need),
            "sysctl -w net.ipv4.ip_local_port_range=\"1024 65535\"");
}

void check_conntrack(const Host &host, const Job &job, Findings &out) {
  const auto most = host.files.number(kNet + "netfilter/nf_conntrack_max"),
             used = host.files.number(kNet + "netfilter/nf_conntrack_count");
  if (!most || *most == 0) return;
  const int64_t need = 2 * int64_t{job.here} * std::max(0, job.ranks - job.here), now = used.value_or(0);
  const std::string seen = fmt::format("connection tracking (nf_conntrack): {} of {} entries used", now, *most);
  if (now + need < *most * 9 / 10)
    out.ok("tcp.conntrack", seen);
  else
    out.add(Level::error, "tcp.conntrack", seen,
            fmt::format("this job adds about {}; a full table drops packets of new connections, which then time out", need),
            fmt::format("sysctl -w net.netfilter.nf_conntrack_max={}", 4 * (now + need)));
}

} // namespace

void check_tcp(const Host &host, const Job &job, Findings &out) {
  check_queues(host, job, out);
  check_buffers(host, job, out);
  check_ports(host, job, out);
  check_conntrack(host, job, out);
}

} // namespace tutti::doctor
