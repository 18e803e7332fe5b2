#include "comm/stream.h"
#include "base/fork.h"
#include "exec/driver.h"
#include <algorithm>
#include <unordered_set>

namespace tutti {

void PointSet::add(const Point &point) {
  for (Point &p : points_)
    if (p.core == point.core) {
      p.seq = std::max(p.seq, point.seq);
      return;
    }
  points_.push_back(point);
}

void PointSet::drop_done() {
  std::erase_if(points_, [](const Point &p) { return p.settled(); });
}

void PointSet::follow(const Point &point, std::span<const Engine::Dependency> done_before) {
  std::erase_if(points_, [&](const Point &p) {
    const auto before = [&](const Engine::Dependency &d) { return d.engine == p.core->engine.get() && p.seq <= d.seq; };
    return p.core == point.core || std::any_of(done_before.begin(), done_before.end(), before);
  });
  points_.push_back(point);
}

void PointSet::drop(const Core *core) {
  std::erase_if(points_, [&](const Point &p) { return p.core.get() == core; });
}

Status stream_failed(const Point &point) {
  (void)point.core->engine->quiesce();
  Error e = point.core->engine->error().error();
  e.peer = -1; // a rank of that communicator
  e.message = "what was on the stream before has failed: " + e.message;
  return e;
}

std::unique_lock<std::mutex> StreamTurns::take(size_t index) {
  tuttiStream &s = *streams_[index];
  std::unique_lock lock(s.mutex);
  if (s.taken) [[unlikely]] {
    s.waiting++;
    s.turn.wait(lock, [&] { return !s.taken; });
    s.waiting--;
  }
  s.taken = true;
  taken_ = index + 1;
  return lock;
}

void StreamTurns::end(tuttiStream &s) {
  taken_--;
  s.taken = false;
  if (s.waiting) s.turn.notify_one();
}

StreamTurns::~StreamTurns() {
  while (taken_) {
    tuttiStream &s = *streams_[taken_ - 1];
    std::lock_guard lock(s.mutex);
    end(s);
  }
}

void StreamTurns::pass_on(const Point &point, std::span<const Engine::Dependency> done_before) {
  while (taken_) {
    tuttiStream &s = *streams_[taken_ - 1];
    std::lock_guard lock(s.mutex);
    s.tail.follow(point, done_before);
    end(s);
  }
}

Status wait_points(std::span<const Point> points) {
  Status first;
  for (const Point &p : points)
    if (Status s = p.wait(); !s.ok() && first.ok()) first = s;
  return first;
}

Result<bool> query_points(std::span<const Point> points) {
  bool all = true, moved = false;
  for (const Point &p : points) {
    if (p.done()) {
      TUTTI_TRY(p.core->engine->take_error(p.seq));
      continue;
    }
    if (p.core->engine->failed()) {
      (void)p.core->engine->quiesce();
      return p.core->engine->error();
    }
    moved |= p.core->engine->progress();
    all = all && p.done();
  }
  if (!all && !moved) driver::drive_another(nullptr); // what they wait for may be another communicator's
  return all;
}

void OwnStreams::switch_to(const Communicator &c) {
  std::erase_if(others_, [](const Entry &e) { return e.core.expired(); });
  if (latest_.uid) others_.push_back(std::move(latest_));
  const auto known = std::find_if(others_.begin(), others_.end(), [&](const Entry &e) { return e.uid == c.uid(); });
  if (known == others_.end()) {
    latest_ = {c.uid(), 0, c.core()};
    return;
  }
  latest_ = std::move(*known);
  others_.erase(known);
}

Status OwnStreams::wait() {
  Status first;
  const auto wait_for = [&](const Entry &e) {
    const auto core = e.core.lock();
    if (!core || (core->engine->completed() >= e.seq && core->engine->clean(e.seq))) return;
    if (Status s = core->engine->wait(e.seq); !s.ok() && first.ok()) first = std::move(s);
  };
  for (const Entry &e : others_) wait_for(e);
  wait_for(latest_);
  if (first.ok()) others_.clear();
  return first;
}

Result<bool> OwnStreams::query() const {
  PointSet set;
  const auto add = [&](const Entry &e) {
    if (auto core = e.core.lock()) set.add({std::move(core), e.seq});
  };
  for (const Entry &e : others_) add(e);
  add(latest_);
  return query_points(set.points());
}

namespace {

// Live handles of one kind, so that a communicator that goes can be taken out of them.
template <class T> struct Live {
  ChildFreeMutex mutex; // guards all
  std::unordered_set<T *> all;
};
template <class T> Live<T> &live() {
  static auto *l = new Live<T>; // never destroyed: handles may be freed by static destructors
  return *l;
}

template <class T> PointSet &points_of(T &t) {
  if constexpr (std::is_same_v<T, tuttiStream>)
    return t.tail;
  else
    return t.points;
}

template <class T> void forget_in(const std::shared_ptr<Core> &core) {
  std::lock_guard guard(live<T>().mutex);
  for (T *t : live<T>().all) {
    std::lock_guard lock(t->mutex);
    for (const Point &p : points_of(*t).points())
      if (p.core == core && !p.done() && t->error.code == Code::ok) {
        if (const Status s = core->engine->error(); !s.ok())
          t->error = s.error();
        else
          t->error = fail(Code::invalid_usage, "the communicator was destroyed before the operation completed").error();
      }
    points_of(*t).drop(core.get());
  }
}

template <class T> void enlist(T *t) {
  std::lock_guard guard(live<T>().mutex);
  live<T>().all.insert(t);
}
template <class T> void delist(T *t) {
  std::lock_guard guard(live<T>().mutex);
  live<T>().all.erase(t);
}

template <class T> T *make() {
  auto t = std::make_unique<T>();
  enlist(t.get());
  return t.release();
}
template <class T> void unmake(T *t) {
  delist(t);
  t->magic = 0;
  delete t;
}

// A copy of the points, so that no lock is held while waiting. Streams seldom have more than a few.
struct Snapshot {
  std::array<Point, 4> few;
  std::vector<Point> many;
  size_t count = 0;
  std::span<const Point> points() const { return {count > few.size() ? many.data() : few.data(), count}; }
};
template <class T> Result<Snapshot> snapshot(T &t) {
  Snapshot out;
  std::lock_guard lock(t.mutex);
  if (t.error.code != Code::ok) return Status(t.error);
  points_of(t).drop_done();
  const auto points = points_of(t).points();
  out.count = points.size();
  if (out.count > out.few.size())
    out.many.assign(points.begin(), points.end());
  else
    std::copy(points.begin(), points.end(), out.few.begin());
  return out;
}

} // namespace

void forget_core(const std::shared_ptr<Core> &core) {
  if (!core->engine) return;
  forget_in<tuttiStream>(core);
  forget_in<tuttiEvent>(core);
  forget_in<tuttiWork>(core);
}

template <class T> Status wait_for(T &t) {
  TUTTI_ASSIGN(now, snapshot(t));
  return wait_points(now.points());
}
template <class T> Status query(T &t) {
  TUTTI_ASSIGN(now, snapshot(t));
  TUTTI_ASSIGN(done, query_points(now.points()));
  if (!done) return fail(Code::in_progress, "not finished yet");
  return {};
}

tuttiStream *make_stream() {
  return make<tuttiStream>();
}
tuttiEvent *make_event() {
  return make<tuttiEvent>();
}
tuttiWork *make_work(const Point &point) {
  auto w = std::make_unique<tuttiWork>();
  w->points.add(point);
  enlist(w.get());
  return w.release();
}
void free_handle(tuttiStream *s) {
  unmake(s);
}
void free_handle(tuttiEvent *e) {
  unmake(e);
}
void free_handle(tuttiWork *w) {
  unmake(w);
}
Status wait_handle(tuttiStream &s) {
  return wait_for(s);
}
Status wait_handle(tuttiEvent &e) {
  return wait_for(e);
}
Status wait_handle(tuttiWork &w) {
  return wait_for(w);
}
Status query_handle(tuttiStream &s) {
  return query(s);
}
Status query_handle(tuttiEvent &e) {
  return query(e);
}
Status query_handle(tuttiWork &w) {
  return query(w);
}

Status record(tuttiEvent &event, tuttiStream &stream) {
  TUTTI_ASSIGN(now, snapshot(stream));
  std::lock_guard lock(event.mutex);
  event.error = no_error();
  event.points.clear();
  for (const Point &p : now.points()) event.points.add(p);
  return {};
}

void record(tuttiEvent &event, const Point &point) {
  std::lock_guard lock(event.mutex);
  event.error = no_error();
  event.points.clear();
  event.points.add(point);
}

Status wait_event(tuttiStream &stream, tuttiEvent &event) {
  TUTTI_ASSIGN(now, snapshot(event));
  std::lock_guard lock(stream.mutex);
  for (const Point &p : now.points()) stream.tail.add(p);
  return {};
}

} // namespace tutti
