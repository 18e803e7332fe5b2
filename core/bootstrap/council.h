// tutti/core/bootstrap/council.h: how ranks of a communicator that may have failed agree on who goes on together. Lives on the
// service thread of its member; who asks waits outside.
//
// Every rank that wants to go on sends a proposal to the lowest rank that may be there, whose service thread collects them,
// whatever its own application does. It asks those that have not proposed, so that it learns whether their processes live, and
// decides once nobody is left to wait for, or the time is up. Whoever loses the collecting rank, or hears nothing of it for a
// while, turns to the next one.
//
// Two collectors may decide differently; that does no harm, for a group is named by a number of its collector, and comes about
// only when all of its members connect under that number. What a rank must know is whether others have gone on in a group that
// it has not seen come about: it asks them, and who has answered "no" never will. n messages each way for a decision.
#pragma once
#include "bootstrap/wire.h"
#include <functional>
#include <map>
#include <set>

namespace tutti::boot {

class Member;

struct Proposal {
  uint64_t ticket = 0;       // names it; 0 = none
  bool find_out = false;     // without a list
  std::vector<int> excluded; // sorted
  uint64_t left_ns = 0, span_ns = 0;
  std::vector<int> gone;    // whom this rank has lost
  std::string list() const; // for messages
};

struct Decision {
  uint64_t nonce = 0;
  std::vector<int> members; // sorted
  std::vector<int> absent;  // that were there and did not call
};

// What follows ticket and kind in a message, to its end; ranks are of a communicator of so many.
std::optional<Proposal> read_proposal(Reader &r, int nranks);
std::optional<Decision> read_decision(Reader &r, int nranks);

class Council {
public:
  explicit Council(Member &member) : m_(member) {}

  // ---- [any thread]
  // Until a decision that this rank is part of, an error, or stop().
  Result<Decision> decide(bool find_out, std::vector<int> excluded, Deadline deadline);
  void stop(const Error &why, bool for_good); // ends decide(), and those before restart(), or all
  void restart();
  bool complete(uint64_t nonce); // the group came about here; false: it has been given up meanwhile
  // It did not: true when it has on another rank, else it never will anywhere.
  bool came_about(const Decision &decision);

  // ---- [service thread]
  void hear(int from, std::span<const std::byte> data);
  Bytes greeting() const; // says nothing
  void gone(int rank);    // its process has ended, or it has left
  void close();

private:
  enum class Type : uint8_t { propose = 1, heard, ask, decision, refusal, ousted, settle, settled };
  enum class State : uint8_t { pending, complete, given_up };
  struct Asked {
    Clock::time_point heard; // or asked first
    bool open;               // asked, and not answered
  };
  bool has_proposal() const { return mine_.ticket != 0; }
  void begin(Proposal proposal, Clock::time_point until);
  void withdraw();
  int next_collector() const;
  void turn_to_collector();
  void write(Writer &w, const Proposal &p) const;
  void send(int to, Type type, const std::function<void(Writer &)> &fill);
  void propose();
  void look_again();
  void finish(Result<Decision> result);
  void hear_proposal(int from, Proposal p);
  void hear_decision(uint64_t ticket, Decision d);
  void be_ousted(int from, const std::vector<int> &members);

  // council_collect.cc
  static bool has(const std::vector<int> &sorted, int rank);
  static void put(Writer &w, const std::vector<int> &ranks);
  static Nanos silence_of(Nanos span);
  void take_proposal(int from, Proposal p);
  void turn_away();
  void weigh();
  void ask(const std::vector<int> &missing);
  bool unreachable(int rank) const;
  Error error(int about, Code code, std::string message) const;
  Error disagreement(int a, int b) const;
  void refuse(int rank, const Error &why);
  void refuse_all(const Error &why);
  void decide_now(const std::vector<int> &absent);
  void time_up(bool find_out, const std::vector<int> &missing);
  void clear();

  Member &m_;
  // service thread: as a proposer
  Proposal mine_;
  Clock::time_point until_{}, heard_{};
  Nanos silence_{}; // after which a process that does not answer counts as gone
  int collector_ = -1;
  std::set<int> silent_;
  uint64_t timer_ = 0;
  // service thread: as the collector
  std::map<int, Proposal> proposals_;
  std::map<int, Asked> asked_;
  Clock::time_point deadline_{};
  Nanos span_{};
  uint64_t ask_timer_ = 0;
  std::map<int, uint64_t> last_tickets_; // of the proposals that have had their verdict
  // A verdict that holds for ranks, too, that had not called by then: each rank's call meets the same calls of others.
  Error refusal_;
  std::set<int> untold_;
  Clock::time_point untold_until_{};
  std::vector<int> last_members_; // of the last decision
  bool closed_ = false;

  // guarded by the member's mutex
  std::optional<Result<Decision>> result_;
  std::optional<Error> stopped_, cancelled_, ousted_;
  bool waiting_ = false;
  std::map<uint64_t, State> groups_;                  // by nonce
  std::map<std::pair<uint64_t, int>, State> answers_; // by nonce and rank
};

} // namespace tutti::boot
