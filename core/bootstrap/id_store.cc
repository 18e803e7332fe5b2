// TUTTI_RENDEZVOUS=redis://..., etcd://...: rank 0 puts its unique id into a store, the others wait for it there. The value
// goes when all have joined, or when it expires. One that a crashed job has left is known by its root, which does not answer.
#include "base/fork.h"
#include "bootstrap/crypto.h"
#include "bootstrap/launch.h"
#include "bootstrap/rendezvous.h"
#include "bootstrap/store.h"
#include "config/secret.h"
#include "log/log.h"
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <signal.h>
#include <thread>
#include <unistd.h>

namespace tutti::boot {
namespace {

constexpr Nanos kPatience = std::chrono::seconds(1); // at first, with an id that may be a dead root's
constexpr Nanos kMostPatience = std::chrono::minutes(1);
constexpr Nanos kPoll = std::chrono::milliseconds(100);
constexpr Nanos kSlack = std::chrono::seconds(30); // that a value outlives the time to join
constexpr Nanos kSweep = std::chrono::seconds(2);  // to take it away
constexpr std::string_view kPlain = "tutti-id-1 ", kBoxed = "tutti-box-1 ";

// A value of one place: open, or boxed with a key that is the job's alone.
class Wrapper {
public:
  static Result<Wrapper> of(const StorePlace &place, const std::string &key, const Config &config, int rank) {
    Wrapper w;
    if (const std::string &path = config.text("core.job_key_file"); !path.empty()) {
      TUTTI_ASSIGN(secret, read_job_key(path));
      w.secret_ = derive(secret, "tutti store", std::as_bytes(std::span(key.data(), key.size())));
      return w;
    }
    const std::string hint = "put 32 random bytes into a file of mode 0600 on every host and name it in TUTTI_JOB_KEY_FILE";
    if (config.text("core.security") == "required")
      return fail(Code::invalid_usage, "core.security is \"required\" and there is no job key for what lies in {}",
                  without_password(place.url))
          .phase("bootstrap")
          .hint(hint);
    if (rank == 0)
      log::write_once(
          log::Level::warn, log::Subsys::bootstrap, "no-job-key",
          fmt::format("there is no job key: anybody who can read {} can join; {}", without_password(place.url), hint));
    return w;
  }

  Bytes wrap(const tuttiUniqueId &id) const {
    const auto raw = std::as_bytes(std::span(id.internal));
    const std::string_view head = secret_ ? kBoxed : kPlain;
    Bytes out(head.size());
    std::memcpy(out.data(), head.data(), head.size());
    const Bytes body = secret_ ? seal(*secret_, raw) : Bytes(raw.begin(), raw.end());
    out.insert(out.end(), body.begin(), body.end());
    return out;
  }

  // What it cannot read is another job's, or nobody's.
  Result<UniqueId> unwrap(const Bytes &value) const {
    const bool boxed = starts(value, kBoxed);
    if (!boxed && !starts(value, kPlain)) return bad("what is there is no unique id");
    if (boxed != secret_.has_value())
      return bad(boxed ? "what is there is boxed with a job key, and this rank has none (TUTTI_JOB_KEY_FILE)"
                       : "what is there is not boxed, and this rank has a job key (TUTTI_JOB_KEY_FILE)");
    const auto body = std::span(value).subspan((boxed ? kBoxed : kPlain).size());
    Bytes raw(body.begin(), body.end());
    if (boxed) {
      auto open = unseal(*secret_, body);
      if (!open) return bad("what is there is boxed with another job key than this rank's (TUTTI_JOB_KEY_FILE)");
      raw = std::move(*open);
    }
    tuttiUniqueId id;
    if (raw.size() != sizeof id.internal) return bad("what is there is no unique id");
    std::memcpy(id.internal, raw.data(), sizeof id.internal);
    return decode(id);
  }

private:
  static bool starts(const Bytes &value, std::string_view head) {
    return value.size() >= head.size() && std::memcmp(value.data(), head.data(), head.size()) == 0;
  }
  std::optional<Secret> secret_;
};

// Takes values away on threads of its own, for which the end of the process waits a little.
class Sweeper {
public:
  static Sweeper &get() {
    static Sweeper *s = [] {
      auto *made = new Sweeper;
      hold_over_fork(made->mutex_);
      std::atexit([] { get().wait(); });
      return made;
    }();
    return *s;
  }
  // Only this very value: a later job may have put another.
  void sweep(const std::string &url, const std::string &key, const Bytes &value) {
    std::lock_guard lock(mutex_);
    if (std::exchange(owner_, getpid()) != getpid()) running_ = 0; // a forked child has none of its parent's threads
    sigset_t all, old;                                             // signals belong to the application's threads
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    std::thread([this, url, key, value] {
      const Status s = take_away(url, key, value);
      if (!s.ok()) log::info(log::Subsys::bootstrap, "the unique id stays in the store until it expires: {}", s.error().line());
      std::lock_guard done(mutex_);
      running_--;
      quiet_.notify_all();
    }).detach();
    pthread_sigmask(SIG_SETMASK, &old, nullptr);
    running_++;
  }

private:
  static Status take_away(const std::string &url, const std::string &key, const Bytes &value) {
    const Deadline deadline = Deadline::in(kSweep);
    TUTTI_ASSIGN(registry, Registry::process());
    TUTTI_ASSIGN(store, Store::open(*registry, url, deadline));
    TUTTI_ASSIGN(there, store->get(key, false, deadline));
    return there && *there == value ? store->remove(key, deadline) : Status();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    if (owner_ != getpid()) return; // a forked child: the threads are its parent's
    quiet_.wait_for(lock, kSweep + std::chrono::seconds(1), [this] { return running_ == 0; });
  }
  std::mutex mutex_; // guards the rest
  std::condition_variable quiet_;
  int running_ = 0;
  pid_t owner_ = -1;
};

class Meeting {
public:
  Meeting(const StorePlace &place, const Config &config, uint32_t generation)
      : place_(place), config_(config), key_(store_key(place.name, generation)), shown_(without_password(place.url)) {}

  Result<tuttiUniqueId> find(int rank, Deadline deadline) {
    TUTTI_ASSIGN(registry, Registry::process());
    TUTTI_ASSIGN(wrapper, Wrapper::of(place_, key_, config_, rank));
    wrapper_ = std::move(wrapper);
    TUTTI_ASSIGN(store, Store::open(*registry, place_.url, deadline));
    store_ = std::move(store);
    return rank == 0 ? offer(deadline) : await(rank, deadline);
  }

private:
  // The root before its id: who comes early must find it.
  Result<tuttiUniqueId> offer(Deadline deadline) {
    TUTTI_ASSIGN(id, new_id(config_));
    const tuttiUniqueId raw = encode(id);
    const Bytes value = wrapper_.wrap(raw);
    auto r = start_root(config_, id, false, [url = place_.url, key = key_, value] { Sweeper::get().sweep(url, key, value); });
    if (!r.ok()) return std::move(r.status());
    if (Status s = put(value, deadline); !s.ok()) {
      release_id(raw);
      return s;
    }
    log::info(log::Subsys::bootstrap, "the unique id of this job is in {} under {}", shown_, key_);
    return raw;
  }

  Status put(const Bytes &value, Deadline deadline) {
    const Nanos ttl = config_.duration("core.init_timeout") + kSlack;
    while (!deadline.expired()) {
      TUTTI_ASSIGN(first, store_->add(key_, value, ttl, deadline));
      if (first) return {};
      TUTTI_ASSIGN(there, store_->get(key_, false, deadline));
      if (!there) continue; // it has just gone
      TUTTI_TRY(left_behind(*there, deadline));
      log::info(log::Subsys::bootstrap, "{} of {} was left by a job that is gone, and is replaced", key_, shown_);
      TUTTI_TRY(store_->remove(key_, deadline));
    }
    return fail(Code::timeout, "cannot put the unique id into {} under {} within {}: another process keeps putting its own",
                shown_, key_, seconds(deadline.span()))
        .phase("bootstrap")
        .hint(kOwnName);
  }

  // Not so when another job, or another rank 0, meets there now.
  Status left_behind(const Bytes &there, Deadline deadline) {
    auto id = wrapper_.unwrap(there);
    if (!id.ok())
      return bad(fmt::format("{} holds something under {}, which is left as it is: {}", shown_, key_,
                             id.status().error().message))
          .hint(kOwnName);
    if (!probe_root(*id, config_, 0, kPatience, deadline).ok()) return {};
    return bad(fmt::format("a job meets in {} under {} already: its root answers", shown_, key_)).hint(kOwnName);
  }

  Result<tuttiUniqueId> await(int rank, Deadline deadline) {
    std::string last = "nothing is there";
    for (Nanos patience = kPatience;; patience = std::min(patience * 2, kMostPatience)) { // a crowded machine may take long
      TUTTI_ASSIGN(value, store_->get(key_, true, deadline));
      if (value) {
        auto id = wrapper_.unwrap(*value);
        const Status alive = id.ok() ? probe_root(*id, config_, rank, patience, deadline) : id.status();
        if (alive.ok()) return encode(*id);
        last = id.ok() ? fmt::format("what is there leads nowhere (left by an earlier job?): {}", alive.error().message)
                       : alive.error().message;
      }
      if (deadline.expired()) break;
      std::this_thread::sleep_for(std::min<Nanos>(kPoll, deadline.left())); // until rank 0 replaces it
    }
    return fail(Code::timeout, "rank 0 has not put its unique id into {} under {} within {}: {}", shown_, key_,
                seconds(deadline.span()), last)
        .phase("bootstrap")
        .peer(0)
        .hint("is it started, with the same TUTTI_RENDEZVOUS, name of the job and job key?");
  }

  static constexpr const char *kOwnName = "TUTTI_JOB_NAME gives a job a name that no other one has";
  const StorePlace &place_;
  const Config &config_;
  const std::string key_, shown_;
  Wrapper wrapper_;
  std::unique_ptr<Store> store_;
};

} // namespace

// Names are cut, so that keys are never too long; what is cut still counts.
std::string store_key(std::string_view job, uint32_t generation) {
  constexpr size_t kLongest = 256;
  const std::string name = job.size() <= kLongest
                               ? std::string(job)
                               : fmt::format("{}~{:016x}", job.substr(0, kLongest), hash_u64("tutti store name", job));
  return fmt::format("tutti/{}/{}/id", name, generation);
}

Result<tuttiUniqueId> id_from_store(const StorePlace &place, const Config &config, int rank, Deadline deadline) {
  static std::atomic<uint32_t> calls{0}; // every rank makes the same ones in the same order
  return Meeting(place, config, calls.fetch_add(1)).find(rank, deadline);
}

} // namespace tutti::boot
