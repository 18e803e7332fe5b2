#include "comm/stream.h"
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
  std::erase_if(points_, [](const Point &p) { return p.done(); });
}

void PointSet::drop(const Core *core) {
  std::erase_if(points_, [&](const Point &p) { return p.core.get() == core; });
}

Status PointSet::wait() const {
  Status first;
  for (const Point &p : points_)
    if (Status s = p.wait(); !s.ok() && first.ok()) first = s;
  return first;
}

Result<bool> PointSet::query() const {
  bool all = true;
  for (const Point &p : points_) {
    if (p.done()) continue;
    if (p.core->engine->failed()) return p.core->engine->error();
    p.core->engine->progress();
    all = all && p.done();
  }
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
    if (!core || core->engine->completed() >= e.seq) return;
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
  return set.query();
}

namespace {

// Live handles of one kind, so that a communicator that goes can be taken out of them.
template <class T> struct Live {
  std::mutex mutex; // guards all
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
  T *t = new T;
  enlist(t);
  return t;
}
template <class T> void unmake(T *t) {
  delist(t);
  t->magic = 0;
  delete t;
}

// A copy of the points, so that no lock is held while waiting.
template <class T> Result<PointSet> snapshot(T &t) {
  std::lock_guard lock(t.mutex);
  if (t.error.code != Code::ok) return Status(t.error);
  points_of(t).drop_done();
  return points_of(t);
}

} // namespace

void forget_core(const std::shared_ptr<Core> &core) {
  if (!core->engine) return;
  forget_in<tuttiStream>(core);
  forget_in<tuttiEvent>(core);
  forget_in<tuttiWork>(core);
}

template <class T> Status wait_for(T &t) {
  TUTTI_ASSIGN(points, snapshot(t));
  return points.wait();
}
template <class T> Status query(T &t) {
  TUTTI_ASSIGN(points, snapshot(t));
  TUTTI_ASSIGN(done, points.query());
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
  auto *w = make<tuttiWork>();
  std::lock_guard lock(w->mutex);
  w->points.add(point);
  return w;
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
  TUTTI_ASSIGN(points, snapshot(stream));
  std::lock_guard lock(event.mutex);
  event.error = no_error();
  event.points = std::move(points);
  return {};
}

void record(tuttiEvent &event, const Point &point) {
  std::lock_guard lock(event.mutex);
  event.error = no_error();
  event.points.clear();
  event.points.add(point);
}

Status wait_event(tuttiStream &stream, tuttiEvent &event) {
  TUTTI_ASSIGN(points, snapshot(event));
  std::lock_guard lock(stream.mutex);
  stream.tail.add(points);
  return {};
}

} // namespace tutti
