// Ranks for tests of the engine: a bootstrap without sockets for ranks as threads, one over socket pairs for forked processes.
#pragma once
#include "bootstrap/bootstrap.h"
#include "exec/engine.h"
#include "exec/kernels.h"
#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <poll.h>
#include <set>
#include <sys/socket.h>
#include <thread>

namespace tutti::test {

// Delivery and failure, common to both kinds.
class TestBootstrap : public Bootstrap {
public:
  TestBootstrap(int rank, int nranks) : rank_(rank), nranks_(nranks), peers_(static_cast<size_t>(nranks)) {
    for (int r = 0; r < nranks; r++) {
      auto &p = peers_[static_cast<size_t>(r)];
      p.rank = r;
      p.process = {1, 1};
      p.host = 7;
      p.hostname = "testhost";
    }
  }
  int rank() const override { return rank_; }
  int nranks() const override { return nranks_; }
  uint64_t comm_id() const override { return 0x5e; }
  const PeerInfo &peer(int r) const override { return peers_[static_cast<size_t>(r)]; }
  PeerInfo &peer_info(int r) { return peers_[static_cast<size_t>(r)]; }
  Result<std::vector<Bytes>> allgather(std::span<const std::byte>, Deadline, std::string_view) override {
    return fail(Code::internal, "not here");
  }
  Status barrier(Deadline, std::string_view) override { return fail(Code::internal, "not here"); }
  Result<Message> recv(int, uint64_t, Deadline, std::string_view) override { return fail(Code::internal, "not here"); }
  bool try_recv(int, uint64_t, Message *) override { return false; }
  Result<std::unique_ptr<Bootstrap>> shrink(Shrink *, std::shared_ptr<const Config>, JoinStop *) override {
    return fail(Code::internal, "not here");
  }
  Result<std::unique_ptr<Bootstrap>> split(int, int, std::shared_ptr<const Config>, Deadline, bool *) override {
    return fail(Code::internal, "not here");
  }
  void set_handler(MsgKind kind, std::function<void(Message)> fn) override {
    std::unique_lock lock(mutex_);
    quiet_.wait(lock, [&] { return running_ == 0 || inside_ == std::this_thread::get_id(); });
    handlers_[kind] = std::move(fn);
    if (!handlers_[kind]) return;
    std::vector<Message> queued;
    queued.swap(queue_[kind]);
    lock.unlock();
    for (auto &m : queued) deliver(std::move(m));
  }
  void deliver(Message m) {
    const auto kind = static_cast<MsgKind>(m.tag >> 56);
    std::function<void(Message)> fn;
    {
      std::lock_guard lock(mutex_);
      fn = handlers_[kind];
      if (!fn) return queue_[kind].push_back(std::move(m));
      running_++;
    }
    fn(std::move(m));
    {
      std::lock_guard lock(mutex_);
      running_--;
    }
    quiet_.notify_all();
  }
  virtual void flood(const Error &error) = 0;
  void report_failure(const Error &error) override {
    if (!hear(error)) return;
    flood(error);
  }
  bool hear(const Error &error) { // true the first time
    std::function<void(const Error &)> fn;
    {
      std::lock_guard lock(mutex_);
      if (failed_) return false;
      failed_ = true;
      failure_ = Status(error);
      fn = on_failure_;
    }
    if (fn) fn(error);
    return true;
  }
  bool failed() const override { return failed_; }
  Status failure() const override {
    std::lock_guard lock(mutex_);
    return failure_;
  }
  void on_failure(std::function<void(const Error &)> fn) override {
    std::lock_guard lock(mutex_);
    on_failure_ = std::move(fn);
  }
  void expect_close() override {}
  uint64_t fds() const override { return 0; }

private:
  int rank_, nranks_;
  std::vector<PeerInfo> peers_;
  mutable std::mutex mutex_;
  std::condition_variable quiet_;
  std::map<MsgKind, std::function<void(Message)>> handlers_;
  std::map<MsgKind, std::vector<Message>> queue_;
  int running_ = 0;
  std::thread::id inside_;
  std::atomic<bool> failed_{false};
  Status failure_;
  std::function<void(const Error &)> on_failure_;
};

// Ranks as threads: messages are calls.
class ThreadBootstrap final : public TestBootstrap {
public:
  using World = std::vector<std::unique_ptr<ThreadBootstrap>>;
  ThreadBootstrap(World &world, int rank, int nranks) : TestBootstrap(rank, nranks), world_(world) {}
  static World make(int nranks) = delete;
  Status send(int to, uint64_t tag, std::span<const std::byte> data, int fd) override {
    Message m;
    m.from = rank();
    m.tag = tag;
    m.data.assign(data.begin(), data.end());
    if (fd >= 0) m.fd = UniqueFd(::dup(fd));
    world_[static_cast<size_t>(to)]->deliver(std::move(m));
    return {};
  }
  void flood(const Error &error) override {
    for (auto &b : world_)
      if (b.get() != this) b->hear(error);
  }

private:
  World &world_;
};

// Forked ranks: a socket pair between each two, one service thread per process.
class ForkBootstrap final : public TestBootstrap {
public:
  using Mesh = std::vector<std::vector<int>>; // mesh[a][b]: a's end of the pair with b
  static Mesh make_mesh(int n) {
    Mesh mesh(static_cast<size_t>(n), std::vector<int>(static_cast<size_t>(n), -1));
    for (size_t a = 0; a < mesh.size(); a++)
      for (size_t b = a + 1; b < mesh.size(); b++) {
        int sv[2];
        if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) != 0) std::abort();
        mesh[a][b] = sv[0];
        mesh[b][a] = sv[1];
      }
    return mesh;
  }
  ForkBootstrap(Mesh &mesh, int rank) : TestBootstrap(rank, static_cast<int>(mesh.size())) {
    for (size_t a = 0; a < mesh.size(); a++)
      for (size_t b = 0; b < mesh.size(); b++)
        if (a != static_cast<size_t>(rank) && mesh[a][b] >= 0) ::close(mesh[a][b]);
    ends_ = mesh[static_cast<size_t>(rank)];
    for (int r = 0; r < nranks(); r++) peer_info(r).process = {2, static_cast<uint64_t>(r)};
    if (::pipe(stop_) != 0) std::abort();
    thread_ = std::thread([this] { serve(); });
  }
  ~ForkBootstrap() override {
    (void)!::write(stop_[1], "x", 1);
    thread_.join();
    for (int e : ends_)
      if (e >= 0) ::close(e);
    ::close(stop_[0]);
    ::close(stop_[1]);
  }
  Status send(int to, uint64_t tag, std::span<const std::byte> data, int fd) override {
    if (to == rank()) return fail(Code::internal, "to itself");
    iovec iov[2] = {{&tag, sizeof tag}, {const_cast<std::byte *>(data.data()), data.size()}};
    msghdr msg{};
    msg.msg_iov = iov;
    msg.msg_iovlen = 2;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    if (fd >= 0) {
      msg.msg_control = control;
      msg.msg_controllen = sizeof control;
      cmsghdr *c = CMSG_FIRSTHDR(&msg);
      c->cmsg_level = SOL_SOCKET;
      c->cmsg_type = SCM_RIGHTS;
      c->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(c), &fd, sizeof fd);
    }
    if (::sendmsg(ends_[static_cast<size_t>(to)], &msg, MSG_NOSIGNAL) < 0) return fail_errno(errno, "sendmsg").peer(to);
    return {};
  }
  void flood(const Error &error) override {
    const uint64_t tag = make_tag(MsgKind::internal, 0);
    for (int r = 0; r < nranks(); r++)
      if (r != rank()) (void)send_raw(r, tag, error.message);
  }

private:
  Status send_raw(int to, uint64_t tag, const std::string &text) { return send(to, tag, std::as_bytes(std::span(text)), -1); }
  void serve() {
    for (;;) {
      std::vector<pollfd> fds{{stop_[0], POLLIN, 0}};
      std::vector<int> who{-1};
      for (int r = 0; r < nranks(); r++)
        if (ends_[static_cast<size_t>(r)] >= 0 && !gone_.count(r)) {
          fds.push_back({ends_[static_cast<size_t>(r)], POLLIN, 0});
          who.push_back(r);
        }
      if (::poll(fds.data(), fds.size(), -1) < 0) continue;
      if (fds[0].revents) return;
      for (size_t i = 1; i < fds.size(); i++)
        if (fds[i].revents) read_one(who[i]);
    }
  }
  void read_one(int from) {
    char data[4096];
    uint64_t tag = 0;
    iovec iov[2] = {{&tag, sizeof tag}, {data, sizeof data}};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    msghdr msg{};
    msg.msg_iov = iov;
    msg.msg_iovlen = 2;
    msg.msg_control = control;
    msg.msg_controllen = sizeof control;
    const ssize_t n = ::recvmsg(ends_[static_cast<size_t>(from)], &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n < static_cast<ssize_t>(sizeof tag)) {
      gone_.insert(from);
      if (watch_death) {
        Error e;
        e.code = Code::remote;
        e.peer = from;
        e.message = "rank " + std::to_string(from) + " is gone";
        hear(e);
      }
      return;
    }
    Message m;
    m.from = from;
    m.tag = tag;
    m.data.resize(static_cast<size_t>(n) - sizeof tag);
    std::memcpy(m.data.data(), data, m.data.size());
    if (const cmsghdr *c = CMSG_FIRSTHDR(&msg)) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(c), sizeof fd);
      m.fd = UniqueFd(fd);
    }
    if (tag >> 56 == 0) {
      Error e;
      e.code = Code::remote;
      e.peer = from;
      e.message.assign(data, m.data.size());
      hear(e);
      return;
    }
    deliver(std::move(m));
  }

public:
  std::atomic<bool> watch_death{false};

private:
  std::vector<int> ends_;
  std::set<int> gone_;
  int stop_[2];
  std::thread thread_;
};

std::shared_ptr<const Config> config_with(std::initializer_list<std::pair<const std::string, std::string>> environment);
const Registry &registry();
Iface<tutti_proto_v1> simple_proto();
std::shared_ptr<const Plan> plan_of(std::string_view algo, const PlanRequest &request);

// n ranks as threads of this process, `comms` engines each. body(rank, engines) runs on one thread per rank.
class Threads {
public:
  // far: each passes for a host of its own. mixed: even and odd ranks pass for two processes.
  explicit Threads(int n, std::shared_ptr<const Config> config = nullptr, int comms = 1, Iface<tutti_net_v1> net = {},
                   bool far = false, bool mixed = false);
  ~Threads() { engines.clear(); }
  void run(const std::function<void(int rank)> &body);
  Engine &engine(int rank, int comm = 0) { return *engines[static_cast<size_t>(comm)][static_cast<size_t>(rank)]; }
  std::vector<ThreadBootstrap::World> worlds;
  std::vector<std::vector<std::shared_ptr<Engine>>> engines;
  int n;
};

// n forked ranks; body returns 0 for success. The children end with _exit. True when all did; every wait is bounded. `before`
// runs in each before its engine is made.
bool forked(int n, const std::function<int(int rank, Engine &engine)> &body, std::shared_ptr<const Config> config = nullptr,
            const std::set<int> &may_die = {}, Iface<tutti_net_v1> net = {}, const std::function<void()> &before = {});

// What a communicator would pass for one uniform collective.
OpArgs args_of(const Plan &plan, const void *in, void *out, uint64_t count, tutti_dtype dtype, uint32_t op, uint64_t number);

} // namespace tutti::test
