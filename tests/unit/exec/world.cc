#include "world.h"
#include "base/types.h"
#include "plugin/registry.h"
#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <sys/wait.h>

namespace tutti::test {

std::shared_ptr<const Config> config_with(std::initializer_list<std::pair<const std::string, std::string>> environment) {
  auto c = Config::from("", "test", std::map<std::string, std::string>(environment));
  if (!c.ok()) {
    std::fprintf(stderr, "%s\n", c.status().error().line().c_str());
    std::abort();
  }
  return *c;
}

const Registry &registry() {
  static const auto *r = [] {
    provide_host_service(TUTTI_HOST_REDUCE, host_reduce_service());
    const std::string dir[] = {std::string(TUTTI_BINARY_DIR) + "/lib/tutti/plugins"};
    auto loaded = Registry::load(config_with({}), dir);
    if (!loaded.ok()) {
      std::fprintf(stderr, "%s\n", loaded.status().error().line().c_str());
      std::abort();
    }
    return std::move(loaded).value().release();
  }();
  return *r;
}

Iface<tutti_proto_v1> simple_proto() {
  return *registry().named<tutti_proto_v1>(TUTTI_PROTO, "simple");
}

std::shared_ptr<const Plan> plan_of(std::string_view algo, const PlanRequest &request) {
  auto plan = build_plan(*registry().named<tutti_algo_v1>(TUTTI_ALGO, algo), request);
  if (!plan.ok()) {
    std::fprintf(stderr, "%s\n", plan.status().error().line().c_str());
    std::abort();
  }
  return *plan;
}

Threads::Threads(int count, std::shared_ptr<const Config> config, int comms, Iface<tutti_net_v1> net, bool far, bool mixed)
    : n(count) {
  if (!config) config = config_with({});
  worlds.resize(static_cast<size_t>(comms));
  for (auto &world : worlds) {
    for (int r = 0; r < n; r++) world.push_back(std::make_unique<ThreadBootstrap>(world, r, n));
    auto &row = engines.emplace_back();
    std::vector<Bytes> infos;
    for (int r = 0; r < n; r++) {
      for (int q = 0; far && q < n; q++)
        world[static_cast<size_t>(r)]->peer_info(q).host = world[static_cast<size_t>(r)]->peer_info(q).process[1] =
            100 + static_cast<uint64_t>(q);
      for (int q = 0; mixed && q < n; q++)
        world[static_cast<size_t>(r)]->peer_info(q).process[1] = 1 + static_cast<uint64_t>(q) % 2;
      auto e = Engine::create(*world[static_cast<size_t>(r)], registry(), config, net);
      if (!e.ok()) std::abort();
      world[static_cast<size_t>(r)]->on_failure([engine = std::weak_ptr(*e)](const Error &error) { // a test may end one
        if (const auto p = engine.lock()) p->fail(error);
      });
      infos.push_back((*e)->local_info());
      row.push_back(*e);
    }
    for (auto &e : row)
      if (const Status s = e->set_peers(infos); !s.ok()) {
        std::fprintf(stderr, "%s\n", s.error().line().c_str());
        std::abort();
      }
  }
}

void Threads::run(const std::function<void(int)> &body) {
  std::vector<std::thread> threads;
  for (int r = 0; r < n; r++) threads.emplace_back([&, r] { body(r); });
  for (auto &t : threads) t.join();
}

namespace {

// What forked ranks tell each other before they start, in memory that all of them see.
class Board {
public:
  explicit Board(int n) : n_(static_cast<size_t>(n)) {
    void *p = ::mmap(nullptr, n_ * sizeof(Entry), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) std::abort();
    entries_ = static_cast<Entry *>(p);
  }
  Board(const Board &) = delete;
  Board &operator=(const Board &) = delete;
  ~Board() { ::munmap(entries_, n_ * sizeof(Entry)); }
  std::vector<Bytes> exchange(int rank, const Bytes &mine) { // alarm() bounds it
    Entry &e = entries_[rank];
    if (mine.size() > sizeof e.data) std::abort();
    std::memcpy(e.data, mine.data(), mine.size());
    e.bytes.store(mine.size(), std::memory_order_release);
    std::vector<Bytes> all;
    for (size_t r = 0; r < n_; r++) {
      while (entries_[r].bytes.load(std::memory_order_acquire) == 0) std::this_thread::yield();
      all.emplace_back(entries_[r].data, entries_[r].data + entries_[r].bytes);
    }
    return all;
  }

private:
  struct Entry {
    std::atomic<size_t> bytes;
    std::byte data[4096 - sizeof(std::atomic<size_t>)];
  };
  size_t n_;
  Entry *entries_;
};

} // namespace

bool forked(int n, const std::function<int(int, Engine &)> &body, std::shared_ptr<const Config> config,
            const std::set<int> &may_die, Iface<tutti_net_v1> net, const std::function<void()> &before) {
  if (!config) config = config_with({});
  Board board(n);
  (void)registry();
  auto mesh = ForkBootstrap::make_mesh(n);
  std::vector<pid_t> pids;
  std::fflush(nullptr);
  for (int r = 0; r < n; r++) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::alarm(60);
      int rc = 1;
      {
        ForkBootstrap boot(mesh, r);
        boot.watch_death = !may_die.empty();
        if (before) before();
        auto e = Engine::create(boot, registry(), config, net);
        if (!e.ok()) ::_exit(3);
        boot.on_failure([p = e->get()](const Error &error) { p->fail(error); });
        if (!(*e)->set_peers(board.exchange(r, (*e)->local_info())).ok()) ::_exit(4);
        rc = body(r, **e);
        boot.on_failure(nullptr);
        e->reset();
      }
      ::_exit(rc);
    }
    pids.push_back(pid);
  }
  for (auto &row : mesh)
    for (int fd : row)
      if (fd >= 0) ::close(fd);
  bool good = true;
  for (int r = 0; r < n; r++) {
    int status = 0;
    ::waitpid(pids[static_cast<size_t>(r)], &status, 0);
    if (may_die.count(r)) continue;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
      std::fprintf(stderr, "rank %d ended with %s %d\n", r, WIFEXITED(status) ? "exit" : "signal",
                   WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
      good = false;
    }
  }
  return good;
}

OpArgs args_of(const Plan &plan, const void *in, void *out, uint64_t count, tutti_dtype dtype, uint32_t op, uint64_t number) {
  const PlanRequest &q = plan.request;
  const auto n = static_cast<uint32_t>(q.nranks);
  OpArgs a;
  a.in = in;
  a.out = out;
  a.in_shape = {coll_in_blocks(q.coll, n), count * dtype_bytes(dtype), nullptr, nullptr};
  a.out_shape = {coll_out_blocks(q.coll, n), count * dtype_bytes(dtype), nullptr, nullptr};
  a.in_place = in == out;
  a.call.coll = q.coll;
  a.call.dtype = dtype;
  a.call.op = op;
  a.call.root = q.root;
  a.call.count = count;
  a.call.number = number;
  return a;
}

} // namespace tutti::test
