#include "members.h"
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace collnet {

struct Shared {
  std::atomic<uint32_t> arrived[8192]; // by meeting
  std::atomic<uint32_t> meetings[kMost];
  std::atomic<uint32_t> addressed[16]; // by group
  unsigned char addrs[16][kMost][TUTTI_COLLNET_ADDR_BYTES];
  std::atomic<uint32_t> groups[kMost];
  std::atomic<uint32_t> posts[kMost];
  int n = 0;
  char said[kMost][1024];
};

namespace {

bool until(const std::function<bool()> &holds, milliseconds limit) {
  for (const auto end = Clock::now() + limit; !holds(); std::this_thread::sleep_for(std::chrono::microseconds(200)))
    if (Clock::now() >= end) return false;
  return true;
}

} // namespace

Member::~Member() {
  leave();
  if (listener_) api_->listener_destroy(listener_);
  if (ctx_) api_->ctx_destroy(ctx_);
}

tutti_status Member::failed(tutti_status status) {
  text = tutti::plugin_error(*plugin_, status, "collnet").error().message;
  if (group_) {
    why = {};
    why.struct_size = sizeof why;
    api_->group_why(group_, &why);
    if (*why.text) text = why.text;
  }
  return status;
}

bool Member::open(const Options &options) {
  std::string toml = "[plugin.collnet-aggd]\n";
  for (const auto &[key, value] : options) toml += key + " = " + value + "\n";
  auto config = tutti::Config::from(toml, "test.toml", {});
  if (!config.ok()) return text = config.status().error().line(), false;
  const std::vector<std::string> folders{AGGD_FOLDER};
  auto registry = tutti::Registry::load(*config, folders);
  if (!registry.ok()) return text = registry.status().error().line(), false;
  registry_ = std::move(*registry);
  const auto found = registry_->all<tutti_collnet_v1>(TUTTI_COLLNET);
  if (found.empty()) return text = registry_->skipped().empty() ? "no plugin" : registry_->skipped()[0].reason, false;
  plugin_ = found[0].plugin;
  api_ = found[0].table;
  tutti_collnet_ctx_config c{};
  c.struct_size = sizeof c;
  c.traffic_class = -1;
  c.rank = rank;
  c.nranks = n;
  return api_->ctx_create(plugin_->state, 0, &c, &ctx_) == TUTTI_OK || (failed(TUTTI_ERR_INVALID), false);
}

tutti_status Member::join(uint64_t job, uint32_t deadline_ms, uint32_t progress_ms) {
  tutti_collnet_config c{};
  c.struct_size = sizeof c;
  c.job_id = job;
  c.deadline_ms = deadline_ms;
  c.progress_ms = progress_ms;
  return join(c);
}

tutti_status Member::announce() {
  const uint32_t number = shared_.groups[rank]++ % 16;
  uint32_t size = TUTTI_COLLNET_ADDR_BYTES;
  unsigned char addr[TUTTI_COLLNET_ADDR_BYTES] = {};
  if (listener_) api_->listener_destroy(listener_);
  listener_ = nullptr;
  if (const tutti_status s = api_->listen(ctx_, addr, &size, &listener_); s != TUTTI_OK) return failed(s);
  std::memcpy(shared_.addrs[number][rank], addr, sizeof addr);
  shared_.addressed[number]++;
  if (!until([&] { return shared_.addressed[number] >= static_cast<uint32_t>(n); }, milliseconds(20'000)))
    return text = "not all members came to the same point", TUTTI_ERR_TIMEOUT;
  return TUTTI_OK;
}

tutti_status Member::join(const tutti_collnet_config &config) {
  if (const tutti_status s = announce(); s != TUTTI_OK) return s;
  const uint32_t number = (shared_.groups[rank] - 1) % 16;
  tutti_status s = api_->group_create(listener_, shared_.addrs[number], TUTTI_COLLNET_ADDR_BYTES, n, rank, &config, &group_);
  if (s != TUTTI_OK) return failed(s);
  const auto end = Clock::now() + milliseconds(config.deadline_ms + 5000);
  do {
    caps = {};
    caps.struct_size = sizeof caps;
    s = api_->group_ready(group_, &caps);
    poll();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  } while (s == TUTTI_AGAIN && Clock::now() < end);
  if (s == TUTTI_AGAIN) return text = "neither ready nor failed after its deadline", TUTTI_ERR_INTERNAL;
  return s == TUTTI_OK ? s : failed(s);
}

void Member::leave() {
  if (group_) api_->group_destroy(group_);
  group_ = nullptr;
}

void Member::poll() {
  tutti_collnet_completion out[16];
  const int32_t got = api_->progress(ctx_, out, 16);
  for (int32_t i = 0; i < got; i++) done_[out[i].cookie] = out[i].status;
}

tutti_collnet_op Member::all_reduce(tutti_dtype type, tutti_redop op, const void *send, void *recv, uint64_t bytes) {
  tutti_collnet_op o{};
  o.struct_size = sizeof o;
  o.coll = TUTTI_COLL_ALL_REDUCE;
  o.dtype = type;
  o.op = op;
  o.root = -1;
  o.bytes = bytes;
  o.send.addr = const_cast<void *>(send);
  o.recv.addr = recv;
  return o;
}

tutti_status Member::post(const tutti_collnet_op &op, uint64_t cookie) {
  for (const auto end = Clock::now() + std::chrono::seconds(30);;) {
    const tutti_status s = api_->post(group_, &op, cookie);
    if (s != TUTTI_AGAIN) return s == TUTTI_OK ? s : failed(s);
    if (Clock::now() >= end) return text = "AGAIN for 30 s", TUTTI_ERR_TIMEOUT;
    poll();
  }
}

tutti_status Member::wait(uint64_t cookie, milliseconds limit) {
  uint32_t turns = 0;
  for (const auto end = Clock::now() + limit; !done_.count(cookie);) {
    if (Clock::now() >= end) return text = "no completion", TUTTI_ERR_INTERNAL;
    poll();
    if (done_.count(cookie) || ++turns % 64) continue;
    int32_t fd = -1; // sleeps as the core does
    if (api_->event_fd(ctx_, &fd) != TUTTI_OK || api_->arm(ctx_) != TUTTI_OK) continue;
    pollfd p{fd, POLLIN, 0};
    ::poll(&p, 1, 20);
  }
  const tutti_status s = done_[cookie];
  done_.erase(cookie);
  return s == TUTTI_OK ? s : failed(s);
}

tutti_status Member::run(const tutti_collnet_op &op, milliseconds limit) {
  const uint64_t cookie = cookie_++ | uint64_t{1} << 40;
  if (const tutti_status s = post(op, cookie); s != TUTTI_OK) return s;
  return wait(cookie, limit);
}

bool Member::meet() {
  const uint32_t number = shared_.meetings[rank]++ % 8192;
  shared_.arrived[number]++;
  return until([&] { return shared_.arrived[number] >= static_cast<uint32_t>(n); }, milliseconds(20'000));
}

void Member::note(const std::string &what) {
  std::strncpy(shared_.said[rank], what.c_str(), sizeof shared_.said[rank] - 1);
}

Run::Run(int n, std::function<void(Member &)> body) {
  shared_ = static_cast<Shared *>(::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  shared_->n = n;
  ends_.resize(static_cast<size_t>(n));
  for (int rank = 0; rank < n; rank++) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      int status = 0;
      try {
        Member member(*shared_, rank, n);
        body(member);
      } catch (const std::exception &e) {
        std::strncpy(shared_->said[rank], e.what(), sizeof shared_->said[rank] - 1);
        status = 1;
      }
      ::_exit(status);
    }
    pids_.push_back(pid);
  }
}

Run::~Run() {
  for (const pid_t pid : pids_)
    if (pid > 0) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
  ::munmap(shared_, sizeof(Shared));
}

void Run::signal(int member, int number) const {
  ::kill(pids_[static_cast<size_t>(member)], number);
}

bool Run::arrived(uint32_t meetings, milliseconds limit) {
  if (until([&] { return shared_->arrived[meetings - 1] >= static_cast<uint32_t>(shared_->n); }, limit)) return true;
  for (const End &e : wait(milliseconds(0))) std::fprintf(stderr, "a member ended with %d: %s\n", e.status, e.said.c_str());
  return false;
}

const std::vector<End> &Run::wait(milliseconds limit) {
  const auto end = Clock::now() + limit;
  for (size_t i = 0; i < pids_.size(); i++) {
    int how = 0;
    while (pids_[i] > 0) {
      if (::waitpid(pids_[i], &how, WNOHANG) == pids_[i]) {
        pids_[i] = -1;
        ends_[i].status = WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
      } else if (Clock::now() >= end) {
        ::kill(pids_[i], SIGKILL);
        ::waitpid(pids_[i], nullptr, 0);
        pids_[i] = -1;
      } else {
        std::this_thread::sleep_for(milliseconds(1));
      }
    }
    ends_[i].said = shared_->said[i];
  }
  return ends_;
}

std::string joined(const std::vector<std::string> &list) {
  std::string out = "[";
  for (const std::string &item : list) out += (out.size() > 1 ? ", \"" : "\"") + item + "\"";
  return out + "]";
}

bool full() {
  const char *text = std::getenv("TEST_FULL");
  return text && std::strcmp(text, "1") == 0;
}
int repetitions() {
  return full() ? 20 : 1;
}

} // namespace collnet
