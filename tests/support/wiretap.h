// What goes over the loopback interface of this network namespace, as one who listens there sees it. Needs CAP_NET_RAW.
#pragma once
#include <algorithm>
#include <arpa/inet.h>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <string>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace support {

class Wiretap {
public:
  // Counts the packets that hold `text`.
  explicit Wiretap(std::string text) : text_(std::move(text)) {
    fd_ = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL));
    if (fd_ < 0) return;
    sockaddr_ll at{};
    at.sll_family = AF_PACKET;
    at.sll_protocol = htons(ETH_P_ALL);
    at.sll_ifindex = static_cast<int>(if_nametoindex("lo"));
    const int room = 64 << 20;
    setsockopt(fd_, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
    if (bind(fd_, reinterpret_cast<const sockaddr *>(&at), sizeof at) != 0) {
      close(fd_);
      fd_ = -1;
      return;
    }
    thread_ = std::thread([this] { listen(); });
  }
  ~Wiretap() {
    stop();
    if (fd_ >= 0) close(fd_);
  }
  bool works() const { return fd_ >= 0; }
  // All that was sent before has been looked at; 0 packets were missed, or the answer is worth nothing.
  void stop() {
    if (!thread_.joinable()) return;
    stop_ = true;
    thread_.join();
    tpacket_stats stats{};
    socklen_t n = sizeof stats;
    getsockopt(fd_, SOL_PACKET, PACKET_STATISTICS, &stats, &n);
    missed_ = stats.tp_drops;
  }
  uint64_t packets() const { return packets_; }
  uint64_t found() const { return found_; }
  uint64_t missed() const { return missed_; }

private:
  void listen() {
    std::vector<char> packet(1 << 18);
    for (bool last = false; !last;) {
      last = stop_;
      pollfd p{fd_, POLLIN, 0};
      if (poll(&p, 1, 10) <= 0) continue;
      last = false; // until nothing more is there
      const ssize_t n = recv(fd_, packet.data(), packet.size(), MSG_DONTWAIT);
      if (n <= 0) continue;
      packets_++;
      const auto end = packet.begin() + n;
      if (std::search(packet.begin(), end, text_.begin(), text_.end()) != end) found_++;
    }
  }
  const std::string text_;
  int fd_ = -1;
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> packets_{0}, found_{0};
  uint64_t missed_ = 0;
  std::thread thread_;
};

// Moves the calling thread, and what it starts, into a network namespace of its own that has a loopback interface.
inline bool enter_own_network() {
  if (unshare(CLONE_NEWNET) != 0) return false;
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq r{};
  std::strcpy(r.ifr_name, "lo");
  r.ifr_flags = IFF_UP;
  const bool good = fd >= 0 && ioctl(fd, SIOCSIFFLAGS, &r) == 0;
  if (fd >= 0) close(fd);
  return good;
}

} // namespace support
