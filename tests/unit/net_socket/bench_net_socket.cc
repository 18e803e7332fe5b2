// Ping-pong and full-duplex exchange of two processes over loopback, beside the same with one bare TCP socket in the same run.
// With "resume INTERFACE FILE": what it costs that lost connections come back, over an interface that leads to the network
// namespace of the file; pairs of blocks with and without it, alternating. Prints rows of tests/perf/bench.
#include "fake_host.h"
#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <fmt/core.h>
#include <functional>
#include <map>
#include <memory>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

namespace {

using Clock = std::chrono::steady_clock;
constexpr double limit_s = 100;
const auto started = Clock::now();
double seconds() {
  return std::chrono::duration<double>(Clock::now() - started).count();
}
void guard() {
  if (seconds() > limit_s) _exit(3);
}

void pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(cpu), &set);
  sched_setaffinity(0, sizeof set, &set);
}

// Both sides of one process: an endpoint out, an endpoint in. Addresses travel over a pipe pair.
struct Plugin {
  FakeHost host;
  const tutti_net_v1 &net = host.net();
  tutti_net_ctx *ctx = nullptr;
  tutti_net_ep *tx = nullptr, *rx = nullptr;
  uint64_t sent = 0, got = 0;

  explicit Plugin(int peer, FakeHost::Options options = {{"interface", "lo"}, {"family", "AF_INET"}})
      : host(std::move(options)) {
    const uint32_t flags = host.encrypts() ? uint32_t{TUTTI_NET_ENCRYPT} : 0u;
    const tutti_net_ctx_config config = {sizeof(config), -1, 1, 0, 2, flags, 0};
    uint8_t mine[TUTTI_NET_ADDR_BYTES] = {}, theirs[TUTTI_NET_ADDR_BYTES], answer[TUTTI_NET_ADDR_BYTES];
    uint32_t len = 0, answered = sizeof answer;
    tutti_net_listener *l = nullptr;
    if (net.ctx_create(host.plugin(), 0, &config, &ctx) || net.listen(ctx, mine, &len, &l)) _exit(1);
    if (write(peer, mine, sizeof mine) != sizeof mine || read(peer, theirs, sizeof theirs) != sizeof theirs) _exit(1);
    if (net.connect(ctx, theirs, len, answer, &answered, &tx)) _exit(1);
    while (!rx || net.ep_ready(tx) != TUTTI_OK) {
      guard();
      drive();
      if (!rx && net.accept(l, nullptr, 0, &rx) != TUTTI_OK) rx = nullptr;
    }
    net.listener_destroy(l);
  }
  void close() {
    net.ep_destroy(tx);
    net.ep_destroy(rx);
    net.ctx_destroy(ctx);
  }
  void drive() {
    tutti_net_completion c[16];
    for (int32_t i = 0, n = net.progress(ctx, c, 16); i < n; ++i) {
      if (c[i].status != TUTTI_OK) _exit(1);
      ++(c[i].cookie ? got : sent);
    }
  }
  void post_send(void *p, size_t n) {
    const tutti_net_buf b = {p, n, nullptr, 0};
    net.send(tx, &b, 1, 0);
  }
  void post_recv(void *p, size_t n) {
    const tutti_net_buf b = {p, n, nullptr, 0};
    net.recv(rx, &b, 1, nullptr, 1);
  }
  void until(uint64_t s, uint64_t g) {
    while (sent < s || got < g) drive();
  }
  void ping(char *a, char *b, size_t n, bool first) {
    const uint64_t s = sent, g = got;
    post_recv(b, n);
    if (!first) until(s, g + 1);
    post_send(a, n);
    until(s + 1, g + 1);
  }
  void exchange(char *a, char *b, size_t n) {
    const uint64_t s = sent, g = got;
    post_recv(b, n);
    post_send(a, n);
    until(s + 1, g + 1);
  }
};

struct Bare {
  int fd = -1;
  explicit Bare(int peer, bool first) {
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t len = sizeof a;
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (first) {
      if (bind(fd, reinterpret_cast<sockaddr *>(&a), sizeof a) || listen(fd, 1)) _exit(1);
      getsockname(fd, reinterpret_cast<sockaddr *>(&a), &len);
      if (write(peer, &a, sizeof a) != sizeof a) _exit(1);
      const int c = accept(fd, nullptr, nullptr);
      close(fd);
      fd = c;
    } else if (read(peer, &a, sizeof a) != sizeof a || connect(fd, reinterpret_cast<sockaddr *>(&a), sizeof a)) {
      _exit(1);
    }
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5);
  }
  void move(char *a, size_t tx, char *b, size_t rx) {
    constexpr size_t piece = 256 << 10;
    while (tx || rx) {
      if (tx)
        if (const ssize_t n = send(fd, a, std::min(tx, piece), MSG_DONTWAIT | MSG_NOSIGNAL); n > 0)
          a += n, tx -= static_cast<size_t>(n);
      if (rx) {
        const ssize_t n = recv(fd, b, std::min(rx, piece), MSG_DONTWAIT);
        if (n > 0) b += n, rx -= static_cast<size_t>(n);
        if (n == 0) _exit(1);
      }
    }
  }
  void ping(char *a, char *b, size_t n, bool first) {
    if (first) move(a, n, b, 0);
    move(a, 0, b, n);
    if (!first) move(a, n, b, 0);
  }
  void exchange(char *a, char *b, size_t n) { move(a, n, b, n); }
};

template <class Body> double median_us(int reps, int count, Body body) {
  std::vector<double> t;
  for (int r = 0; r < reps; ++r) {
    const double t0 = seconds();
    for (int i = 0; i < count; ++i) body();
    t.push_back((seconds() - t0) / count * 1e6);
    guard();
  }
  std::sort(t.begin(), t.end());
  return t[t.size() / 2];
}

void run(int peer, bool first) {
  Plugin plugin(peer);
  Bare bare(peer, first);
  std::vector<char> a(16 << 20, 1), b(16 << 20, 2);
  constexpr int reps = 7;
  const auto line = [&](const char *what, size_t n, double ours, double bound) {
    if (first)
      fmt::print("{:<10} {:>9} B  net-socket {:>9.2f} us  bare socket {:>9.2f} us  ratio {:.2f}\n", what, n, ours, bound,
                 ours / bound);
  };
  for (size_t n : {size_t{8}, size_t{1024}, size_t{16384}}) {
    const double bound = median_us(reps, 500, [&] { bare.ping(a.data(), b.data(), n, first); });
    line("ping-pong", n, median_us(reps, 500, [&] { plugin.ping(a.data(), b.data(), n, first); }), bound);
  }
  for (size_t n : {size_t{65536}, size_t{1} << 20, size_t{16} << 20}) {
    const int count = n > (4u << 20) ? 3 : n > 100000 ? 30 : 300;
    const double bound = median_us(reps, count, [&] { bare.exchange(a.data(), b.data(), n); });
    line("exchange", n, median_us(reps, count, [&] { plugin.exchange(a.data(), b.data(), n); }), bound);
  }
  plugin.close();
  ::close(bare.fd);
}

double quantile(std::vector<double> of, double part) {
  std::sort(of.begin(), of.end());
  return of[static_cast<size_t>(part * static_cast<double>(of.size() - 1))];
}

// What a connection happens to be worth (its buffers, its place in tables) differs by more than what is looked for, so pairs
// are taken on several connections of each kind.
void compare(int peer, bool first, const std::string &interface) {
  constexpr int connections = 16, pairs = 26;
  std::vector<char> a(1 << 20, 1), b(1 << 20, 2);
  std::map<size_t, std::vector<std::pair<double, double>>> found; // microseconds without and with it
  for (int c = 0; c < connections; ++c) {
    const auto plugin = [&](bool on) {
      FakeHost::Options options{{"interface", interface}, {"family", "AF_INET"}};
      if (!on) options["reconnect_timeout"] = "0s";
      return std::make_unique<Plugin>(peer, std::move(options));
    };
    std::unique_ptr<Plugin> of[2];
    for (bool on : {c % 2 == 0, c % 2 != 0}) of[on] = plugin(on);
    for (size_t n : {size_t{8}, size_t{4096}, size_t{16384}, size_t{65536}, size_t{1} << 20}) {
      const int count = n > 100000 ? 40 : 200;
      for (int i = 0; i < pairs; ++i) {
        double us[2];
        for (bool on : {i % 2 == 0, i % 2 != 0}) us[on] = median_us(1, count, [&] { of[on]->exchange(a.data(), b.data(), n); });
        found[n].emplace_back(us[0], us[1]);
      }
    }
    for (auto &p : of) p->close();
  }
  for (const auto &[n, of] : found) {
    std::vector<double> without, with, ns, percent;
    for (const auto &[before, now] : of) {
      without.push_back(before);
      with.push_back(now);
      ns.push_back((now - before) * 1000);
      percent.push_back((now / before - 1) * 100);
    }
    if (first)
      fmt::print("{{\"bytes\": {}, \"pairs\": {}, \"before_us\": {:.3f}, \"us\": {:.3f}, \"more_ns\": {:.1f}, "
                 "\"more_percent\": [{:.2f}, {:.2f}, {:.2f}]}}\n",
                 n, of.size(), quantile(without, 0.5), quantile(with, 0.5), quantile(ns, 0.5), quantile(percent, 0.25),
                 quantile(percent, 0.5), quantile(percent, 0.75));
  }
}

} // namespace

int main(int argc, char **argv) {
  const bool resume = argc == 4 && std::string(argv[1]) == "resume";
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)) return 1;
  const pid_t child = fork();
  pin(child ? 0 : 1);
  if (resume && !child && setns(open(argv[3], O_RDONLY | O_CLOEXEC), CLONE_NEWNET) != 0) _exit(1);
  if (resume)
    compare(ends[child ? 0 : 1], child != 0, argv[2]);
  else
    run(ends[child ? 0 : 1], child != 0);
  if (!child) _exit(0);
  int status = 0;
  waitpid(child, &status, 0);
  return status == 0 ? 0 : 1;
}
