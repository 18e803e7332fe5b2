// tutti/core/bootstrap/root.h: where ranks meet. Tells each rank its successor's address as soon as both are known, over the
// connection that the rank checked in with, and watches that connection until the rank is in the ring: so it learns at once
// when a joining rank dies, and can tell all others. Lives on the service thread.
//
// Of several roots each serves a range of the ranks and tells the first one who has come and who is in the ring; the first one
// compares, hands on the addresses of ranks at the ends of ranges, and says who is missing, for all. n ranks at r roots: n / r
// + r connections at the first root, n / r + 1 at the others.
#pragma once
#include "bootstrap/dialer.h"
#include <set>

namespace tutti::boot {

class Root : public std::enable_shared_from_this<Root> {
public:
  Root(Service &service, const UniqueId &id, Contact self, Config config, bool stays);
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
  void end_all(const Error &error); // every run
  void close();
  int checked_in(uint32_t generation) const; // ranks of this run that are here

private:
  struct Entry {
    CheckIn in;
    Sink sink;
    bool in_ring = false;
  };
  struct Branch { // another root, as the first one sees it
    Contact contact;
    std::set<int> here, in_ring;
    Conn::Ptr conn; // null once it has left
  };
  struct Run {       // one communicator's meeting
    CheckIn first;   // of the first rank that came, here or elsewhere: what the others are compared with
    RankRange range; // of this root; empty before the first check-in
    std::map<int, Entry> entries;
    std::set<int> told; // ranks that were told the next one
    size_t in_ring = 0;
    bool over = false;
    Error error; // when over
    Clock::time_point began, deadline;
    Nanos span{};
    uint64_t timer = 0, report_timer = 0;
    int host_rank = -1; // lowest rank of this process
    // several roots
    std::map<int, Contact> edges;   // first and last ranks of other roots' ranges; of all, at the first root
    std::map<int, Branch> branches; // at the first root
    std::shared_ptr<Dialer> dialer; // at the others: to the first one
    Conn::Ptr first_root;
    std::string first_root_text; // who that is, or why it cannot be reached
    int nranks() const { return first.nranks; }
    bool is_branch() const { return first.root > 0; }
  };
  using Runs = std::map<uint32_t, Run>;
  struct Guest { // who is at the other end of an adopted connection
    bool in = false, gone = false;
    uint32_t generation = 0;
    int rank = -1, branch = -1;
  };
  void check_in_over(const Conn::Ptr &conn, const std::shared_ptr<Guest> &guest, const CheckIn &in);
  void guest_left(const Guest &guest, const Status &why);
  std::string check(const Run &run, const CheckIn &in, const std::string &who) const; // "" = fine
  void begin(Run &run, const CheckIn &in);
  void heed_deadline(Run &run, const CheckIn &in);
  const Contact *contact_of(const Run &run, int rank) const;
  void pair_up(Run &run, int rank);
  void send_next(Run &run, int rank);
  void welcome(Run &run, Entry &entry);
  Bytes whose(const Run &run) const;
  void arm(uint32_t generation, Run &run);
  void expired(uint32_t generation);
  void report(uint32_t generation);
  void end(uint32_t generation, const Error &error, int except = -1);
  void finished(uint32_t generation);
  std::vector<int> missing(const Run &run) const;
  std::string missing_text(const Run &run) const;
  size_t came(const Run &run) const;

  // root_branch.cc
  void branch_out(uint32_t generation, Run &run); // at another root: reach the first one
  void branch_connected(uint32_t generation, Result<Conn::Ptr> r);
  void first_lost(uint32_t generation, const Status &why);
  void tell_first(Run &run, int rank);
  void from_first(uint32_t generation, const Frame &f);
  void branch_in(const Conn::Ptr &conn, const std::shared_ptr<Guest> &guest, const BranchIn &in); // at the first one
  void from_branch(const Guest &guest, const Frame &f);
  void hand_on(Run &run, int rank);
  void tell_branch(Run &run, int root, int rank);
  void flood_roots(Run &run, const Error &error);
  bool all_in_ring(const Run &run) const;
  std::string by_root(const Run &run, std::span<const int> ranks) const;

  Service &service_;
  Identity identity_;
  Contact self_;
  const Config config_;
  bool stays_; // serves any number of generations
  Runs runs_;
  uint64_t idle_timer_ = 0; // until the first check-in
  bool closed_ = false;
  std::vector<std::weak_ptr<Conn>> conns_; // that were adopted and may be open
};

} // namespace tutti::boot
