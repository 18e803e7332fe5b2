// The handle that users of this folder hold, and the making of unique ids.
#include "bootstrap/bootstrap.h"
#include "bootstrap/launch.h"
#include "bootstrap/member.h"
#include "bootstrap/tls.h"
#include "log/log.h"
#include "tutti/plugin/host.h"
#include <future>

namespace tutti {
namespace boot {
namespace {

class Handle final : public Bootstrap {
public:
  explicit Handle(std::shared_ptr<Member> member) : member_(std::move(member)), pid_(getpid()) {}
  ~Handle() override {
    if (pid_ == getpid())
      member_->close();
    else
      new std::shared_ptr<Member>(std::move(member_)); // a forked child: everything in it belongs to the parent's thread
  }
  int rank() const override { return member_->rank(); }
  int nranks() const override { return member_->nranks(); }
  uint64_t comm_id() const override { return member_->comm(); }
  const PeerInfo &peer(int rank) const override { return member_->peer(rank); }
  Result<std::vector<Bytes>> allgather(std::span<const std::byte> mine, Deadline deadline, std::string_view what) override {
    return member_->allgather(mine, deadline, what);
  }
  Status barrier(Deadline deadline, std::string_view what) override {
    auto all = member_->allgather({}, deadline, what);
    return all.ok() ? Status() : std::move(all.status());
  }
  Status send(int to, uint64_t tag, std::span<const std::byte> data, int fd) override {
    return member_->send(to, tag, data, fd);
  }
  Result<Message> recv(int from, uint64_t tag, Deadline deadline, std::string_view what) override {
    return member_->recv(from, tag, deadline, what);
  }
  bool try_recv(int from, uint64_t tag, Message *out) override { return member_->try_recv(from, tag, out); }
  void set_handler(MsgKind kind, std::function<void(Message)> fn) override { member_->set_handler(kind, std::move(fn)); }
  Result<std::unique_ptr<Bootstrap>> split(int color, int key, std::shared_ptr<const Config> config, Deadline deadline,
                                           bool *all_came) override {
    TUTTI_ASSIGN(child, member_->split(color, key, std::move(config), deadline, all_came));
    return child ? std::unique_ptr<Bootstrap>(std::make_unique<Handle>(std::move(child))) : nullptr;
  }
  Result<std::unique_ptr<Bootstrap>> shrink(Shrink *request, std::shared_ptr<const Config> config, JoinStop *stop) override {
    TUTTI_ASSIGN(child, member_->shrink(request, config, stop));
    return std::unique_ptr<Bootstrap>(std::make_unique<Handle>(std::move(child)));
  }
  void report_failure(const Error &error) override { member_->report_failure(error); }
  bool failed() const override { return member_->failed(); }
  Status failure() const override { return member_->failure(); }
  void on_failure(std::function<void(const Error &)> fn) override { member_->on_failure(std::move(fn)); }
  void expect_close() override { member_->expect_close(); }
  uint64_t fds() const override { return member_->fds(); }
  std::string lost_connections() const override { return member_->outage_note(); }

private:
  std::shared_ptr<Member> member_;
  pid_t pid_;
};

} // namespace

constexpr int kIdleRoot = 10; // times the time to join: an id may be made well ahead of its use

Result<UniqueId> new_id(const Config &config) {
  TUTTI_TRY(use_security(config));
  TUTTI_ASSIGN(self, Service::get().hub().contact(config));
  UniqueId id;
  random_bytes(id.secret);
  id.base = random_u64();
  id.process = self.process[0];
  id.host = static_cast<uint32_t>(self.host);
  id.endpoints = self.endpoints;
  return id;
}

Result<UniqueId> start_root(const Config &config, UniqueId id, bool stays, std::function<void()> on_done) {
  Service &service = Service::get();
  TUTTI_TRY(use_security(config));
  TUTTI_ASSIGN(self, service.hub().contact(config));
  auto root = std::make_shared<Root>(service, id, self, config, stays);
  root->on_done = std::move(on_done);
  const Nanos limit = kIdleRoot * config.duration("core.init_timeout");
  service.post([&service, root, limit] { // before any check-in of this process: tasks keep their order
    service.hub().add_root(root);
    if (!root->stays()) root->expect(limit);
  });
  return id;
}

} // namespace boot

Result<tuttiUniqueId> Bootstrap::create_id(const Config &config) {
  TUTTI_ASSIGN(id, boot::new_id(config));
  TUTTI_TRY(([&]() -> Status {
    auto r = boot::start_root(config, id, false);
    return r.ok() ? Status() : r.status();
  }()));
  return boot::encode(id);
}

Result<tuttiUniqueId> create_job_id(const Config &config) {
  TUTTI_ASSIGN(id, boot::new_id(config));
  auto r = boot::start_root(config, id, true);
  if (!r.ok()) return std::move(r.status());
  return boot::encode(id);
}

void release_id(const tuttiUniqueId &id) {
  auto parsed = boot::decode(id);
  if (!parsed.ok()) return;
  auto &service = boot::Service::get();
  service.post([&service, base = parsed.value().base] { service.hub().remove_root(base); });
}

void JoinStop::stop(const Error &why) {
  std::function<void(const Error &)> fn;
  {
    std::lock_guard lock(mutex_);
    why_ = why;
    fn = fn_;
  }
  if (fn) fn(why);
}

void JoinStop::arm(const std::function<void(const Error &)> &fn) {
  std::optional<Error> why;
  {
    std::lock_guard lock(mutex_);
    fn_ = fn;
    why = why_;
  }
  if (fn && why) fn(*why);
}

namespace {

Result<std::vector<boot::UniqueId>> decode_all(std::span<const tuttiUniqueId> ids, int nranks) {
  if (ids.empty() || ids.size() > static_cast<size_t>(nranks))
    return fail(Code::invalid_argument, "{} unique ids for {} ranks: there is at least one, and a rank for each", ids.size(),
                nranks)
        .phase("bootstrap");
  std::vector<boot::UniqueId> out;
  for (const tuttiUniqueId &raw : ids) {
    auto id = boot::decode(raw);
    if (!id.ok()) return std::move(id.status());
    for (size_t i = 0; i < out.size(); i++)
      if (out[i].base == id->base)
        return fail(Code::invalid_argument, "unique ids {} and {} are of the same root", i, out.size())
            .phase("bootstrap")
            .hint("each comes from a call of tuttiGetUniqueId of its own");
    out.push_back(std::move(*id));
  }
  return out;
}

} // namespace

Result<std::unique_ptr<Bootstrap>> Bootstrap::join(std::span<const tuttiUniqueId> ids, int nranks, int rank,
                                                   std::shared_ptr<const Config> config, Deadline deadline, JoinStop *stop) {
  if (nranks < 1 || rank < 0 || rank >= nranks)
    return fail(Code::invalid_argument, "rank {} of {}: ranks are 0 to nranks - 1", rank, nranks).phase("bootstrap");
  TUTTI_ASSIGN(parsed, decode_all(ids, nranks));
  TUTTI_TRY(boot::use_security(*config));
  auto member = std::make_shared<boot::Member>(boot::Service::get(), boot::comm_identity(parsed), std::move(config));
  member->ask_under(boot::ask_identity(parsed.front().secret));
  if (stop)
    stop->arm([weak = std::weak_ptr(member)](const Error &why) {
      if (const auto m = weak.lock()) m->fail(why);
    });
  const Status s = member->join(parsed, nranks, rank, deadline);
  if (stop) stop->arm({});
  if (!s.ok()) {
    member->close();
    return s;
  }
  return std::unique_ptr<Bootstrap>(std::make_unique<boot::Handle>(std::move(member)));
}

namespace {

tutti_status watch_add(const tutti_host *host, int32_t fd, uint32_t events, void (*fn)(void *, uint32_t),
                       void *arg) TUTTI_NOEXCEPT {
  const Status s = service_watch(fd, events, fn, arg);
  if (s.ok()) return TUTTI_OK;
  const tutti_status status = s.code() == Code::system ? TUTTI_ERR_SYSTEM : TUTTI_ERR_INVALID;
  if (const void *diag = host->get_iface(host, TUTTI_HOST_DIAG))
    static_cast<const tutti_host_diag_v1 *>(diag)->set_error(host, status, s.error().line().c_str());
  return status;
}

void watch_remove(const tutti_host *, int32_t fd) TUTTI_NOEXCEPT {
  service_unwatch(fd);
}

} // namespace

const tutti_host_watch_v1 *host_watch_service() {
  static const tutti_host_watch_v1 table = {sizeof(tutti_host_watch_v1), 0, &watch_add, &watch_remove};
  return &table;
}

} // namespace tutti
