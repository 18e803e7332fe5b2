// tutti/plugins/net-socket/settings.cc
#include "settings.h"
#include <charconv>
#include <sys/socket.h>

namespace tutti::net_socket {

using plugin::fail;

constexpr uint32_t max_data_sockets = 64;

// key, default, help, further names, choices, min, max, type
const std::array<tutti_option, 21> option_table = {{
    {"interface", "",
     "interfaces to use: prefixes, =exact names or networks like 10.0.0.0/8, ^ first excludes; empty: automatic",
     "TUTTI_SOCKET_IFNAME,NCCL_SOCKET_IFNAME", nullptr, 0, 0, TUTTI_OPT_STRING, 0},
    {"family", "auto", "address family; auto: both", "TUTTI_SOCKET_FAMILY,NCCL_SOCKET_FAMILY", "auto|AF_INET|AF_INET6", 0, 0,
     TUTTI_OPT_STRING, 0},
    {"sockets", "1", "data sockets per helper thread and connection; threads * sockets is at most 64", "NCCL_NSOCKS_PERTHREAD",
     nullptr, 1, 64, TUTTI_OPT_INT, 0},
    {"threads", "0", "helper threads that serve data sockets; 0: the thread that drives the communicator serves them",
     "NCCL_SOCKET_NTHREADS", nullptr, 0, 16, TUTTI_OPT_INT, 0},
    {"min_task", "64KiB", "smallest piece that a message is striped into over the data sockets", "NCCL_SOCKET_MIN_TASKSIZE",
     nullptr, 4096, 1 << 30, TUTTI_OPT_BYTES, 0},
    {"inline_bytes", "16KiB", "messages up to this size are received together with their header in one system call",
     "NCCL_SOCKET_INLINE", nullptr, 0, 1 << 20, TUTTI_OPT_BYTES, 0},
    {"sndbuf", "-1", "bytes of the kernel's send buffer (SO_SNDBUF); -1: the kernel adapts it", "NCCL_SOCKET_SNDBUF", nullptr,
     -1, 1 << 30, TUTTI_OPT_INT, 0},
    {"rcvbuf", "-1", "bytes of the kernel's receive buffer (SO_RCVBUF); -1: the kernel adapts it", "NCCL_SOCKET_RCVBUF",
     nullptr, -1, 1 << 30, TUTTI_OPT_INT, 0},
    {"congestion", "auto",
     "TCP congestion control; auto: the system's, but cubic (reno where that is not allowed) instead of bbr to peers on this "
     "host or behind veth",
     "TUTTI_SOCKET_CONGESTION", nullptr, 0, 0, TUTTI_OPT_STRING, 0},
    {"busy_poll", "0us", "how long the kernel polls the device on a read (SO_BUSY_POLL)", nullptr, nullptr, 0, 1000000000,
     TUTTI_OPT_DURATION, 0},
    {"retry_count", "34", "connection attempts after a refused, unreachable or timed-out one",
     "TUTTI_SOCKET_RETRY_COUNT,NCCL_SOCKET_RETRY_CNT", nullptr, 0, 1000000, TUTTI_OPT_INT, 0},
    {"retry_sleep", "100ms", "pause before the n-th new attempt is n times this",
     "TUTTI_SOCKET_RETRY_SLEEP,NCCL_SOCKET_RETRY_SLEEP_MSEC", nullptr, 1000000, 60000000000, TUTTI_OPT_DURATION, 0},
    {"connect_timeout", "60s", "a connection that is not ready by then is an error", nullptr, nullptr, 1000000,
     0x7fffffffffffffff, TUTTI_OPT_DURATION, 0},
    {"handshake_timeout", "30s", "an incoming connection that has not proved by then that it belongs is closed", nullptr,
     nullptr, 1000000, 600000000000, TUTTI_OPT_DURATION, 0},
    // Off: the kernel counts a window that the peer keeps shut like a dead link, and a rank that computes while its peers
    // already send is no error. What keepalive and Context::look_for_dead_links() find is a host that answers nothing.
    {"user_timeout", "0s",
     "data unacknowledged for this long breaks the connection (TCP_USER_TIMEOUT), also while the peer does not "
     "receive; 0s: never",
     nullptr, nullptr, 0, 86400000000000, TUTTI_OPT_DURATION, 0},
    {"keepalive", "30s",
     "idle time before the kernel asks whether the peer's host is alive; one that answers nothing for twice this is gone; "
     "0s: never",
     nullptr, nullptr, 0, 32767000000000, TUTTI_OPT_DURATION, 0},
    {"reconnect_timeout", "60s",
     "how long a connection that got lost (reset, unreachable, silent) may take to come back before it is an error; 0s: it is "
     "one at once",
     nullptr, nullptr, 0, 86400000000000, TUTTI_OPT_DURATION, 0},
    // What must be kept for the case costs a few percent where segments are so large that one acknowledges nothing before the
    // next.
    {"reconnect_local", "false",
     "lost connections between processes of this host, which no network can interrupt, come back as well", nullptr, nullptr, 0,
     0, TUTTI_OPT_BOOL, 0},
    {"silence", "5s",
     "a connection whose data the peer's host has not acknowledged for this long is taken for lost and dialled anew; 0s: only "
     "when the kernel says so",
     nullptr, nullptr, 0, 86400000000000, TUTTI_OPT_DURATION, 0},
    {"port_range", "", "ports that listeners use: first-last; empty or 0: any", "TUTTI_SOCKET_PORT_RANGE", nullptr, 0, 0,
     TUTTI_OPT_STRING, 0},
    {},
}};

namespace {

// "4000-4100" or "4000".
void read_ports(const Host &host, Settings &s) {
  const std::string text = host.get_string("port_range");
  if (text.empty() || text == "0") return; // 0: any, as the core writes it
  const char *end = text.data() + text.size();
  auto [at, err] = std::from_chars(text.data(), end, s.port_first);
  s.port_last = s.port_first;
  if (err == std::errc() && at != end && *at == '-') {
    const auto last = std::from_chars(at + 1, end, s.port_last);
    at = last.ptr;
    err = last.ec;
  }
  if (err != std::errc() || at != end || s.port_first == 0 || s.port_last < s.port_first)
    fail(TUTTI_ERR_INVALID, "port_range \"", text, "\" (", host.origin("port_range"),
         ") is no range of ports like 40000-40100");
}

} // namespace

Settings read_settings(const Host &host) {
  Settings s;
  s.interface = host.get_string("interface");
  const std::string family = host.get_string("family");
  s.family = family == "AF_INET" ? AF_INET : family == "AF_INET6" ? AF_INET6 : 0;
  s.sockets = static_cast<uint32_t>(host.get_int("sockets"));
  s.threads = static_cast<uint32_t>(host.get_int("threads"));
  if (std::max(1u, s.threads) * s.sockets > max_data_sockets)
    fail(TUTTI_ERR_INVALID, "threads (", s.threads, ", ", host.origin("threads"), ") times sockets (", s.sockets, ", ",
         host.origin("sockets"), ") is more than ", max_data_sockets);
  s.min_task = host.get_bytes("min_task");
  s.read_ahead = std::max<uint64_t>(host.get_bytes("inline_bytes"), 64) + 64;
  s.sndbuf = static_cast<int>(std::max<int64_t>(host.get_int("sndbuf"), 0));
  s.rcvbuf = static_cast<int>(std::max<int64_t>(host.get_int("rcvbuf"), 0));
  s.congestion = host.get_string("congestion");
  s.busy_poll_us = static_cast<int>(host.get_int("busy_poll") / 1000);
  s.retries = static_cast<uint32_t>(host.get_int("retry_count"));
  s.retry_sleep = host.get_duration("retry_sleep");
  s.connect_timeout = host.get_duration("connect_timeout");
  s.handshake_timeout = host.get_duration("handshake_timeout");
  s.user_timeout = host.get_duration("user_timeout");
  s.keepalive = host.get_duration("keepalive");
  s.reconnect = host.get_duration("reconnect_timeout");
  s.reconnect_local = host.get_bool("reconnect_local");
  s.silence = host.get_duration("silence");
  read_ports(host, s);
  return s;
}

} // namespace tutti::net_socket
