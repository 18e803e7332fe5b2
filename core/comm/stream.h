// tutti/core/comm/stream.h: streams, events and work handles: sets of points in communicators' sequences. An engine runs its
// own operations in order, so a stream only has to order operations of different communicators.
#pragma once
#include "comm/communicator.h"
#include <array>
#include <condition_variable>

struct tuttiStream;
struct tuttiEvent;
struct tuttiWork;

namespace tutti {

// Points that must have completed; at most one per communicator.
class PointSet {
public:
  void add(const Point &point);
  void drop_done();
  // In place of this core's points and of those in `done_before`, which come before it.
  void follow(const Point &point, std::span<const Engine::Dependency> done_before);
  void drop(const Core *core);
  void clear() { points_.clear(); }
  std::span<const Point> points() const { return points_; }

private:
  std::vector<Point> points_;
};

Status wait_points(std::span<const Point> points);        // all; the first error
Result<bool> query_points(std::span<const Point> points); // drives a little progress

// What follows an operation that failed on a stream is told.
Status stream_failed(const Point &point);

// The turns of one thread on streams that others may use, too: from the look at what is on them until something is added.
// Sorted, so that threads with several cannot block each other.
class StreamTurns {
public:
  explicit StreamTurns(std::span<const tuttiStream_t> sorted) : streams_(sorted) {}
  ~StreamTurns();
  StreamTurns(const StreamTurns &) = delete;
  StreamTurns &operator=(const StreamTurns &) = delete;
  std::unique_lock<std::mutex> take(size_t index); // in order; for the look
  // Ends the turns: `point` comes after `done_before`.
  void pass_on(const Point &point, std::span<const Engine::Dependency> done_before);

private:
  void end(tuttiStream &stream);
  std::span<const tuttiStream_t> streams_;
  size_t taken_ = 0;
};

// Where one thread has enqueued on communicators' own streams: what NULL names where no communicator is given.
class OwnStreams {
public:
  // After a call on c's own stream.
  void note(const Communicator &c) {
    if (c.uid() != latest_.uid) [[unlikely]]
      switch_to(c);
    latest_.seq = c.last_seq();
  }
  Status wait();              // communicators that are gone need no waiting for; the first error
  Result<bool> query() const; // drives a little progress

private:
  struct Entry {
    uint64_t uid = 0, seq = 0;
    std::weak_ptr<Core> core; // a thread's memory keeps no communicator alive
  };
  void switch_to(const Communicator &c);
  Entry latest_; // the communicator used last, apart so that repeated calls cost one compare
  std::vector<Entry> others_;
};

// Handles are created here so that forget_core() knows them.
tuttiStream *make_stream();
tuttiEvent *make_event();
tuttiWork *make_work(const Point &point);
void free_handle(tuttiStream *stream);
void free_handle(tuttiEvent *event);
void free_handle(tuttiWork *work);
// Until everything that the handle names has completed; the first error.
Status wait_handle(tuttiStream &stream);
Status wait_handle(tuttiEvent &event);
Status wait_handle(tuttiWork &work);
// ok, or Code::in_progress.
Status query_handle(tuttiStream &stream);
Status query_handle(tuttiEvent &event);
Status query_handle(tuttiWork &work);
Status record(tuttiEvent &event, tuttiStream &stream);
void record(tuttiEvent &event, const Point &point);
Status wait_event(tuttiStream &stream, tuttiEvent &event);

// Before a communicator's engine goes: no stream, event or work handle names it any more; failed ones remember the error.
void forget_core(const std::shared_ptr<Core> &core);

} // namespace tutti

struct tuttiStream {
  static constexpr uint64_t kMagic = 0x7475'7474'6953'7472ull;
  uint64_t magic = kMagic;
  std::mutex mutex;                       // guards the rest
  bool taken = false;                     // some thread has its turn
  uint32_t waiting = 0;                   // threads that want one
  std::condition_variable turn;           // taken is false again
  tutti::PointSet tail;                   // the next operation comes after these
  tutti::Error error = tutti::no_error(); // of a communicator that is gone; ok = none
};

struct tuttiEvent {
  static constexpr uint64_t kMagic = 0x7475'7474'6945'7674ull;
  uint64_t magic = kMagic;
  std::mutex mutex; // guards the rest
  tutti::PointSet points;
  tutti::Error error = tutti::no_error();
};

struct tuttiWork {
  static constexpr uint64_t kMagic = 0x7475'7474'6957'726bull;
  uint64_t magic = kMagic;
  std::mutex mutex; // guards the rest
  tutti::PointSet points;
  tutti::Error error = tutti::no_error();
};
