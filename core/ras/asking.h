// tutti/core/ras/asking.h: asks many processes at once, with a bounded number of connections, until a deadline that holds for
// all of it. Who does not answer is named, and nobody waits for it longer. Lives on the service thread.
#pragma once
#include "bootstrap/dialer.h"
#include "ras/neighbours.h"
#include "ras/own_report.h"
#include "ras/question.h"
#include <deque>

namespace tutti::ras {

class Asking : public std::enable_shared_from_this<Asking> {
public:
  struct Plan {
    Question question;
    Nanos budget{};
    std::vector<Fellow> whom;
    std::shared_ptr<const Config> config;
    uint64_t my_host = 0;
    Neighbours *neighbours = nullptr; // outlives it; for those of this host: who is stopped is not waited for
    // How a process may be asked that another one knows of; nothing: it is not.
    std::function<std::optional<boot::Identity>(uint64_t under)> key_of;
    std::function<void(Answer what, Bytes data, const ProcessReport *report)> on_answer; // report: with that alone
    std::function<void(std::vector<Silent> silent)> on_end;
  };
  static std::shared_ptr<Asking> start(boot::Service &service, Plan plan);
  void cancel(); // no function of the plan is called any more
  ~Asking() { cancel(); }

private:
  struct Call {
    Fellow whom;
    bool begun = false, over = false, reported = false;
    Look look;
    std::string why;
    std::shared_ptr<boot::Dialer> dialer;
    boot::Conn::Ptr conn;
    uint64_t timer = 0;
  };
  Asking(boot::Service &service, Plan plan) : service_(service), plan_(std::move(plan)) {}
  void add(Fellow whom);
  void go_on();
  void begin(uint64_t process, Call &call);
  void connected(uint64_t process, Result<boot::Conn::Ptr> conn);
  void frame(uint64_t process, boot::Frame f);
  void learn(const ProcessReport &report);
  void settle(uint64_t process, std::string why); // "" = it has answered
  std::string late_text(uint64_t process, Nanos limit) const;
  void end();

  boot::Service &service_;
  Plan plan_;
  Clock::time_point until_;
  std::map<uint64_t, Call> calls_; // by process
  std::deque<uint64_t> waiting_;
  size_t under_way_ = 0, over_ = 0;
  bool busy_ = false, ended_ = false;
  uint64_t timer_ = 0;
};

std::string why_text(const Look &look); // of one that is not well

} // namespace tutti::ras
