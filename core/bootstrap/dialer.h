// tutti/core/bootstrap/dialer.h: connects to whichever of several candidate places answers and proves itself. A dead one costs
// a quarter of a second, not a time-out. Lives on the service thread.
#pragma once
#include "bootstrap/conn.h"

namespace tutti::boot {

class Dialer : public std::enable_shared_from_this<Dialer> {
public:
  struct Job {
    std::vector<Target> targets;
    Hello hello;
    Secret key{};
    Clock::time_point deadline;
    bool patient = false; // the other end may start later: keep trying when all refuse
    int64_t retry_count = 0;
    Nanos retry_sleep{};
    bool once = false; // what all places have refused, for whatever reason, is not tried again
    bool prove = true; // false: close after the other end has proved itself (a probe)
  };
  using Done = std::function<void(Result<Conn::Ptr>)>;
  static std::shared_ptr<Dialer> start(Service &service, Job job, Done done);
  void cancel();
  std::string last_error() const;                                                  // per place, for messages
  std::string last_error(const std::function<bool(const Target &)> &counts) const; // of the first such place
  // Whether, in the latest round, every place that counts has answered that nobody listens there, or nobody who knows whom this
  // looks for; and there is one.
  bool has(const std::function<bool(const Target &)> &counts) const; // such a place
  bool nobody_at(const std::function<bool(const Target &)> &counts) const;
  ~Dialer();

private:
  Dialer(Service &service, Job job, Done done) : service_(service), job_(std::move(job)), done_(std::move(done)) {}
  void round();
  void next_target();
  void failed(size_t index, const Status &why);
  void won(const Conn::Ptr &conn);
  void round_over();
  void finish(Result<Conn::Ptr> result);
  void set_timer(Nanos in, void (Dialer::*fn)());

  Service &service_;
  Job job_;
  Done done_;
  std::vector<Conn::Ptr> attempts_; // of this round, by target
  std::vector<std::string> errors_; // last one, by target
  std::vector<bool> nobody_;        // of this round, by target
  size_t failed_count_ = 0;
  bool all_refused_ = true;
  int rounds_ = 0;
  uint64_t timer_ = 0;
};

// The places where a process can be reached, best first.
std::vector<Target> targets_of(const Contact &to, uint64_t my_host, const Config &config);
// Link-local addresses get the scope of each own interface in turn. With a rule in socket.ifname connections leave from an
// address that it names.
void add_targets(std::vector<Target> *out, std::span<const Endpoint> endpoints, const Config &config);
// To the root that made this id, for a check-in of rank `from`.
Dialer::Job root_job(const UniqueId &id, int from, const Config &config, Clock::time_point deadline);
// What the configuration says of retries.
void set_retries(Dialer::Job *job, const Config &config);

} // namespace tutti::boot
