// tutti/core/bootstrap/root.h: where ranks meet. Tells each rank its successor's address as soon as both are known, over the
// connection that the rank checked in with, and watches that connection until the rank is in the ring: so it learns at once
// when a joining rank dies, and can tell all others. Lives on the service thread.
#pragma once
#include "bootstrap/conn.h"

namespace tutti::boot {

class Root : public std::enable_shared_from_this<Root> {
public:
  Root(Service &service, const UniqueId &id, Contact self, bool stays);
  uint64_t base() const { return identity_.comm; }
  bool stays() const { return stays_; }
  const Secret &key() const { return identity_.key; }
  std::function<void()> on_done; // everybody of a run is in the ring, or the root ends
  void expect(Nanos limit);      // ends the root if nobody has checked in by then

  using Sink = std::function<void(FrameType, const Bytes &)>;
  void adopt(const Conn::Ptr &conn); // an authenticated rank
  // A rank of this process.
  void check_in(const CheckIn &in, Sink sink);
  void in_ring(uint32_t generation, int rank);
  void failed(uint32_t generation, int rank, const Error &error);
  void close();
  int checked_in(uint32_t generation) const; // ranks of this run that are here

private:
  struct Entry {
    CheckIn in;
    Sink sink;
    bool in_ring = false;
    bool told_next = false;
  };
  struct Run { // one communicator's meeting
    int nranks = 0, first_rank = -1;
    std::map<int, Entry> entries;
    size_t in_ring = 0;
    bool over = false;
    Error error; // when over
    Clock::time_point began, deadline;
    Nanos span{};
    uint64_t timer = 0, report_timer = 0;
    int host_rank = -1; // lowest rank of this process
  };
  using Runs = std::map<uint32_t, Run>;
  std::string check(const Run &run, const CheckIn &in) const; // "" = fine
  void pair_up(Run &run, int rank);
  void send_next(Run &run, int rank);
  void welcome(Run &run, Entry &entry);
  void arm(uint32_t generation, Run &run);
  void expired(uint32_t generation);
  void report(uint32_t generation);
  void end(uint32_t generation, const Error &error, int except = -1);
  void finished(uint32_t generation);
  std::string missing(const Run &run) const;

  Service &service_;
  Identity identity_;
  Contact self_;
  bool stays_; // serves any number of generations
  Runs runs_;
  uint64_t idle_timer_ = 0; // until the first check-in
  bool closed_ = false;
  std::vector<std::weak_ptr<Conn>> conns_; // that were adopted and may be open
};

} // namespace tutti::boot
