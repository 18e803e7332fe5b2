#include "comm/make.h"

namespace tutti {

Status create(tuttiComm_t *out, std::shared_ptr<Communicator> c, Init init, const void *serial) {
  tuttiComm *const handle = make_handle(c);
  *out = handle;
  const auto drop = [out, handle] {
    if (!retire(handle)) return; // aborted meanwhile
    *out = nullptr;
    wait_for_visitors(handle);
    free_handle(handle);
  };
  auto run = [c, init = std::move(init), drop, handle]() -> Status {
    const bool blocking = c->options().blocking;
    Status s = guarded([&]() -> Status {
      const Inside inside(*handle);
      if (!live(handle)) return fail(Code::invalid_usage, "the communicator was aborted before its set-up began");
      if (!blocking) return c->background(init);
      return init(*c);
    });
    if (s.ok()) return blocking ? Status() : fail(Code::in_progress, "set-up goes on in the background");
    c->close();
    drop();
    return s;
  };
  if (Group &group = Group::of_this_thread(); group.open()) {
    group.add(run, drop, serial);
    return {};
  }
  return run();
}

Status derive(tuttiComm_t *out, std::shared_ptr<Communicator> c, const std::shared_ptr<Communicator> &parent, Init init) {
  const auto take_part = [parent, init = std::move(init)](Communicator &self) -> Status {
    if (parent->splitting.exchange(true)) return parent->not_splitting();
    Status s = guarded([&] { return init(self); });
    parent->splitting.store(false, std::memory_order_release);
    parent->splitting.notify_all();
    if (!s.ok()) parent->tell(s);
    return s;
  };
  return create(out, std::move(c), take_part, parent.get());
}

} // namespace tutti
