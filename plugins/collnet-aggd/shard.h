// tutti/plugins/collnet-aggd/shard.h: a member's connection to one daemon for one group. Chunk c of all the chunks of a group
// goes over shard c mod (number of shards). Chunks go out in their order; the k-th that comes back is the k-th that went out.
#pragma once
#include "farewell.h"
#include "tutti/plugin/collnet.h"
#include <memory>

namespace tutti::aggd {

// A post, cut into chunks.
struct Post {
  Header header{}; // of its chunks, but for where they lie
  const uint8_t *send = nullptr;
  uint8_t *recv = nullptr;
  uint32_t chunk = 0;  // bytes of each but the last
  uint32_t chunks = 0; // at least one
  uint32_t left = 0;   // chunks whose result is missing
  uint64_t first = 0;  // number of the first chunk among all of the group
  uint64_t cookie = 0;
  bool gives = false, gets = false; // whether this member has a body to send, and one to receive
  bool keeps = false;               // the root of a broadcast: its own data is the result
};

// Where the posts of a group are found: numbers count from 0, and only the last few are there.
class Posts {
public:
  virtual ~Posts() = default;
  virtual Post *post(uint64_t number) = 0; // null: not posted yet
  virtual uint64_t oldest() const = 0;     // all before it are complete
  virtual void chunk_done(uint64_t number) = 0;
  virtual void failed(Fault fault) = 0;
};

class Shard {
public:
  Shard(Posts &posts, const Place &place, const Secret &secret, const Join &join, uint32_t index, uint32_t count,
        const Tuning &tuning, milliseconds connect, milliseconds deadline);
  bool started() const { return started_; }
  const Start &start() const { return start_; }
  const Grant &grant() const { return grant_; }
  const std::string &name() const { return place_.name; }
  // Drives it as far as it goes without waiting, at most about `share` bytes each way. True: there was something to do.
  bool pump(size_t share);
  void tick(Clock::time_point now);
  Fd &fd() { return dialing_ ? dialer_->fd() : fd_; }
  Farewell leave(const Fault *fault);    // with a goodbye, or with why the group ends
  bool readable = true, writable = true; // by the events seen so far
  bool waits();                          // for results
  bool wants_to_write() const { return !front_.empty() || sends_.post != nullptr; }

private:
  // A chunk of this shard: which post, which of its chunks. It waits at the next post where there is none yet.
  struct Cursor {
    uint64_t number = 0;
    uint32_t chunk = 0;
    Post *post = nullptr;
    uint64_t moved = 0; // bytes of the frame
  };
  static bool behind(const Cursor &a, const Cursor &b) {
    return a.number < b.number || (a.number == b.number && a.chunk < b.chunk);
  }
  void find(Cursor &c);
  void next(Cursor &c);
  Header header_of(const Cursor &c, bool with_body) const;
  std::string rest_of_frame() const; // that has been begun
  void dial();
  void ended(int err); // the connection, with errno or 0
  bool gathers();      // is to send nothing now
  void send(size_t share);
  void receive(size_t share);
  bool parse();
  bool take_control(const Header &h);
  bool take_chunk(const Header &h);
  void body_done();
  void fail(Reason reason, const std::string &what);

  Posts &posts_;
  const Place &place_;
  const Join join_;
  const uint32_t index_, count_;
  const milliseconds silence_;
  std::unique_ptr<Dialer> dialer_; // kept until the daemon has taken this member in
  bool dialing_ = true;
  Fd fd_;
  int error_ = 0;     // errno of what could not be sent
  std::string front_; // control frames to be sent first
  bool started_ = false, granted_ = false;
  bool heard_ = false; // the daemon's last words
  Grant grant_;
  Start start_;
  SilenceWatch watch_;
  Cursor sends_, receives_;
  Clock::time_point gathering_{}; // since
  // What has come: headers, small bodies, and the part of a large one that came with them.
  std::vector<uint8_t> stash_;
  size_t from_ = 0, to_ = 0;
  bool in_body_ = false;
  uint8_t *body_ = nullptr;
  uint64_t body_left_ = 0, pad_left_ = 0;
};

} // namespace tutti::aggd
