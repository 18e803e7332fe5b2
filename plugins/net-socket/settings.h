// tutti/plugins/net-socket/settings.h: the options, and their values.
#pragma once
#include "tutti/plugin/cxx/host.hpp"
#include <array>

namespace tutti::net_socket {

using plugin::Host;
using std::chrono::nanoseconds;

extern const std::array<tutti_option, 21> option_table; // ends with {}

struct Settings {
  std::string interface;
  int family = 0; // AF_*, 0 = any
  uint32_t sockets = 1, threads = 0;
  uint64_t min_task = 0, read_ahead = 0;
  int sndbuf = 0, rcvbuf = 0; // 0 = the system's
  std::string congestion;
  int busy_poll_us = 0;
  uint32_t retries = 0;
  nanoseconds retry_sleep{0}, connect_timeout{0}, handshake_timeout{0}, user_timeout{0}, keepalive{0}, reconnect{0}, silence{0};
  uint16_t port_first = 0, port_last = 0; // 0 = any port
  bool reconnect_local = false;
  int traffic_class = -1; // of the context; -1 = not set
  // Data sockets beside the control socket. One that the caller's thread serves itself would gain nothing.
  uint32_t data_sockets() const { return threads == 0 && sockets == 1 ? 0 : std::max(1u, threads) * sockets; }
};

// Reads the options; throws what is wrong with a value, and where it came from.
Settings read_settings(const Host &host);

} // namespace tutti::net_socket
