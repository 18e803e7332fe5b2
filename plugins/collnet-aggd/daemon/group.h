// tutti/plugins/collnet-aggd/daemon/group.h: members that reduce together.
//
// Each child (a member, or a daemon below) has a ring that its stream goes into. The frames at the front of all rings are the
// same chunk: when every header is there and alike, the bodies are folded in the order of the members as far as they have come,
// into one ring of results (or, below another daemon, of what goes up; results then come from there). Every child has a place
// of its own in the ring of results; what all have been sent is free again. Nothing is allocated while a group runs.
#pragma once
#include "fold.h"
#include "last_words.h"
#include "ring.h"
#include "server.h"
#include <algorithm>

namespace tutti::aggd {

class Upstream;

struct Child {
  Peer *peer = nullptr; // gone: null
  std::string from;
  bool daemon = false;
  int member = -1; // the lowest below it
  CoverOf cover;
  Ring in;
  bool has_header = false, left = false;
  // Of a daemon: whom it waits for in its next chunk, as it says; since when it owes an answer to that, and when it gave one.
  Members waits;
  bool ask = false; // to be asked between two frames
  Clock::time_point asked{}, answered{};
  uint64_t chunks = 0;
  // Results: next byte, next start of a frame, and what is left of a header sent in place of a frame that is not for this
  // child.
  uint64_t sent = 0, boundary = 0;
  Header stub{};
  uint32_t stub_left = 0;
  Clock::time_point moved{}; // since when its next frame waits to be sent
  std::string name() const;  // "member 3 (10.0.0.3:41234)"
};

class Group {
public:
  enum class State { gathering, running, ended };
  Group(Server &server, const Join &join, uint32_t window, uint64_t reserved);
  ~Group();
  Group(const Group &) = delete;

  // Takes the peer in, or ends the group with what it returns.
  Fault join(Peer &peer, Role role, const Join &join);
  bool turn();                  // a bounded share of all there is to do; true: more is left
  void tick(Clock::time_point); // deadlines
  void fail(Fault fault);
  void lost(Peer &peer); // it was closed
  bool over() const;

  const Join &asked() const { return asked_; }
  State state() const { return state_; }
  const Fault &fault() const { return fault_; }
  uint32_t window() const { return window_; }
  uint64_t reserved() const { return reserved_; }
  const std::vector<Child> &children() const { return children_; }
  uint64_t chunks() const { return chunks_; }
  uint64_t bytes() const { return bytes_; }
  Server &server() { return server_; }
  bool queued = false; // the server's: it has its turn coming

private:
  friend class Upstream;
  // set-up
  void update_cover();
  void begin(const Cover &all);
  Grant grant() const;
  // data
  bool read(Child &child);
  bool take_frame(Child &child); // what is at the front of its ring, unless that is part of the open chunk
  bool take_chunk(Child &child, const Header &h);
  void came_twice(const Child &child, const Members &below, const Members &others);
  void ended_stream(Child &child, int err);
  LastWords words_of(const Child &child) const;
  void told(const Child &child, Fault fault);
  void fold();
  bool open_chunk();
  bool fold_some();
  void close_chunk();
  bool send(Child &child);
  bool send_plain(Child &child);
  void free_results();
  bool gives(const Child &child, const Header &h) const;
  bool gives_now(const Child &child) const { return !open_ || gives(child, first_); }
  bool stuck() const { return !open_ && headers_ == children_.size(); } // no room for what comes out
  static uint32_t width(const Child &child, const Header &h);           // bytes of an element in the child's stream
  bool gets(const Child &child, const Header &h) const;
  void published(); // results have grown
  void answered();  // by the daemon above, one chunk
  // deadlines
  milliseconds allowance(uint32_t levels) const; // for daemons that have the first word
  Members missing() const;
  bool waits() const { return headers_ > 0 || open_; } // for parts of the present chunk
  Clock::time_point wanted_since() const { return waits() ? since_ : wanted_; }
  milliseconds ask_again() const { return milliseconds(std::clamp(progress_ms_ / 8, 100u, 10'000u)); }
  milliseconds answer_limit() const { return milliseconds(250 + progress_ms_ / 16); }
  void ask_below(Clock::time_point now);
  void asked_from_above();
  const Child *unanswering() const;
  void report(Clock::time_point now);
  void look_for_silence(Clock::time_point now);
  void check_above(Clock::time_point now);
  void check_input(Clock::time_point now);
  void check_output(Clock::time_point now);
  Fault late(Clock::time_point now);
  void broke(const Child &child, const std::string &what);
  std::string post_text(const Header &h) const;

  Server &server_;
  const Join asked_;
  const uint32_t window_;
  uint64_t reserved_;
  uint32_t progress_ms_;
  State state_ = State::gathering;
  const Clock::time_point born_ = Clock::now();
  Clock::time_point end_by_{}, looked_{};
  Fault fault_;
  std::vector<Child> children_; // in the order of their lowest member once it runs
  CoverOf cover_;
  Cover all_;
  std::unique_ptr<Upstream> up_;

  Ring out_;  // what is folded: results, or what goes up
  Ring down_; // below another daemon: results
  Ring *results_ = &out_;
  uint64_t rooted_until_ = 0; // results before this hold frames that not all children get
  Header first_{}, last_{};   // the header that came first for this chunk; that of the chunk before
  size_t first_from_ = 0;
  bool any_ = false;     // a chunk was folded before
  uint32_t headers_ = 0; // children whose header of this chunk is there
  bool open_ = false;
  uint64_t elements_ = 0, folded_ = 0; // of the open chunk
  Clock::time_point since_{};          // when the first header of this chunk came
  std::vector<Operand> operands_;
  Folder folder_;
  uint64_t chunks_ = 0, bytes_ = 0;
  uint64_t answered_ = 0;           // chunks that the daemon above has given back
  Clock::time_point above_since_{}; // when it last did, or got the first that it has not
  Members told_;                    // the last report about the present chunk
  bool is_asked_ = false;           // by the daemon above, and has not answered yet
  Clock::time_point wanted_{};      // since when the daemon above waits for a chunk of which nothing is here
};

} // namespace tutti::aggd
