// tutti/plugins/collnet-aggd/daemon/server.h: the loop, who is connected, and what all groups share: budget, counters, limits.
// One thread; epoll is edge-triggered, what could not be done at once is remembered and done by turns.
#pragma once
#include "admin.h"
#include "log/log.h"
#include "settings.h"
#include <array>
#include <list>
#include <map>
#include <memory>
#include <unordered_map>

namespace tutti::aggd {

class Group;
class Server;

// What epoll tells about. Destroyed at the end of a round, so that the events of that round still find it.
class Source {
public:
  virtual ~Source() = default;
  virtual void on_events(uint32_t events) = 0;
  virtual void tick(Clock::time_point) {}
  bool closed = false;
};

// Lines about what others do, however often: some in a row, then one a second, which tells of how many more there were.
class Seldom {
public:
  void say(log::Level level, const std::string &text);

private:
  static constexpr int kRow = 20;
  int row_ = kRow;
  Clock::time_point refilled_ = Clock::now();
  uint64_t untold_ = 0;
};

// Connections that anybody can make: when there are too many, the oldest goes.
class Waiting {
public:
  class Entry { // a base of who waits; leaves by itself
  public:
    virtual ~Entry() { leave(); }
    virtual void crowded_out() = 0;
    void leave() {
      if (in_) in_->all_.erase(at_);
      in_ = nullptr;
    }

  private:
    friend class Waiting;
    Waiting *in_ = nullptr;
    std::list<Entry *>::iterator at_;
  };
  explicit Waiting(size_t most) : most_(most) {}
  void enter(Entry &entry) {
    if (all_.size() >= most_) all_.front()->crowded_out();
    entry.in_ = this;
    entry.at_ = all_.insert(all_.end(), &entry);
  }

private:
  const size_t most_;
  std::list<Entry *> all_; // oldest first
};

// Bytes of rings. What is reserved here is all that the daemon allocates for data.
struct Budget {
  uint64_t limit = 0, reserved = 0, most = 0; // most: that ever were
  bool take(uint64_t bytes) {
    if (bytes > limit - reserved) return false;
    reserved += bytes;
    most = std::max(most, reserved);
    return true;
  }
  void give(uint64_t bytes) { reserved -= bytes; }
};

struct Counters {
  uint64_t accepted = 0, strangers = 0, wrong_key = 0, wrong_version = 0, groups = 0, refused = 0;
  uint64_t chunks = 0, bytes_in = 0, bytes_out = 0;
  std::array<uint64_t, 10> faults{}; // groups that ended so, by reason
};

// A connection of a member or of a daemon below.
class Peer final : public Source, public Waiting::Entry {
public:
  Peer(Server &server, Fd fd, std::string from);
  ~Peer() override;
  void on_events(uint32_t events) override;
  void tick(Clock::time_point now) override;
  bool proved() const { return stage_ != Stage::hello && stage_ != Stage::proof; }
  void crowded_out() override;
  void say(std::string_view frame) { front_ += frame; }
  bool flush(); // what say() has left; false: not all went
  void refuse(const Fault &fault);
  void close();

  Fd fd;
  const std::string from; // "10.0.0.3:41234"
  bool readable = false, writable = true, hung_up = false;
  int error = 0; // errno of what could not be sent
  Group *group = nullptr;
  size_t child = 0; // its place there
  SilenceWatch silence;

private:
  enum class Stage { hello, proof, join, in_group, closing };
  void greet();
  void close_down();
  void read_join();
  void stranger(const char *what);

  Server &server_;
  Stage stage_ = Stage::hello;
  const Clock::time_point since_ = Clock::now();
  Clock::time_point close_at_{};
  Hello hello_{};
  Challenge challenge_{};
  Proof proof_{};
  Role role_ = Role::member;
  Header header_{};
  bool has_header_ = false;
  std::string body_;
  Transfer in_;
  std::string front_;
};

class Server {
public:
  explicit Server(Settings settings);
  ~Server();
  Status start();       // listens
  Status run(int stop); // until `stop`, a signalfd, told so and all groups have ended

  const Settings &settings() const { return settings_; }
  const Budget &budget() const { return budget_; }
  Counters &counters() { return counters_; }
  const Counters &counters() const { return counters_; }
  uint64_t epoch() const { return epoch_; }
  bool draining() const { return draining_; }
  const std::map<Token, std::unique_ptr<Group>> &groups() const { return groups_; }
  Clock::time_point started() const { return started_; }
  Waiting &strangers() { return strangers_; }
  Waiting &questions(bool http) { return http ? questions_ : admins_; }
  void watch(Fd &fd, Source *source);
  void add(std::unique_ptr<Source> source);
  void runnable(Group *group);
  // The group that the join belongs to, joined; or the reason why not.
  void join(Peer &peer, Role role, const Join &join);
  void stranger(const std::string &from, const char *what);
  size_t peers = 0;              // whose connection is open
  Seldom of_refusals, of_groups; // each kind has lines of its own
  std::string holders() const;   // "job 0x1: 3 groups, 6 MiB; ..."
  // Takes memory for windows of a job's group; `fault` says why not.
  bool reserve(uint64_t job, uint64_t windows, uint32_t window, Fault &fault);

private:
  Fault admit(const Join &join);
  uint64_t held_by(uint64_t job) const;
  Status listen(const Place &place, void (*accepted)(Server &, Fd, const Address &));
  Status listen_admin();
  void round(int timeout_ms);
  void tick(Clock::time_point now);
  void begin_drain();
  void bury();

  Settings settings_;
  const Clock::time_point started_ = Clock::now();
  Fd epoll_;
  AdminSocket admin_;
  uint64_t epoch_ = 0;
  Budget budget_;
  Counters counters_;
  Waiting strangers_, questions_, admins_; // each kind of its own, so that none can keep another one out
  std::unordered_map<Source *, std::unique_ptr<Source>> sources_;
  std::map<Token, std::unique_ptr<Group>> groups_;
  std::vector<Group *> runnable_, running_; // each group once
  size_t listeners_ = 0;
  Clock::time_point ticked_{}, drain_until_{};
  bool draining_ = false, hurried_ = false;
  Seldom of_strangers_;
};

} // namespace tutti::aggd
