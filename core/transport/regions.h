// tutti/core/transport/regions.h: memory of tuttiMemAlloc. It is shared, so that ranks of the host can map it and read it by
// pointer. One list per process; mappings of peers' regions are a communicator's own.
#pragma once
#include "base/fd.h"
#include "base/status.h"
#include "base/time.h"
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

namespace tutti {

struct Region {
  uint64_t id = 0; // of this process, never used again; 0 = none, or memory that could not be shared
  uint8_t *at = nullptr;
  uint64_t bytes = 0;
  bool holds(const void *p, uint64_t n) const {
    const auto a = reinterpret_cast<uintptr_t>(p), begin = reinterpret_cast<uintptr_t>(at);
    return id != 0 && a >= begin && n <= bytes && a - begin <= bytes - n;
  }
};

namespace regions {

class Listener {
public:
  virtual ~Listener() = default;
  // From the thread that frees it, while it still is mapped. An error: a device may still use it, so it has to stay. `patience`
  // is that of all listeners together.
  virtual Status region_freed(const Region &region, const Deadline &patience) = 0;
};

// Zeroed and page-aligned. Without a descriptor to be had it is private to the process, which is said once. [any thread]
Result<void *> allocate(uint64_t bytes);
// invalid_argument: not from allocate(). Other errors: it stays as it was, and may be freed again later.
Status release(void *at);
Region find(const void *p);          // the one that p lies in; id 0 = none
Result<UniqueFd> share(uint64_t id); // a descriptor of its memory; ENOENT when it is gone
bool alive(uint64_t id);
void listen(Listener *listener);
void leave(Listener *listener); // on return it is not being called and never will be

} // namespace regions

// Regions of peers as this process maps them.
class PeerRegions {
public:
  PeerRegions() = default;
  PeerRegions(const PeerRegions &) = delete;
  PeerRegions &operator=(const PeerRegions &) = delete;
  ~PeerRegions();

  enum class State { unknown, asked, mapped, refused };
  struct View {
    State state = State::unknown;
    const uint8_t *at = nullptr;
    uint64_t bytes = 0;
    int err = 0; // of a refusal
  };
  // The caller holds mutex(), and goes on holding it while it reads there.
  std::mutex &mutex() { return mutex_; }
  View look(int peer, uint64_t id);                     // an unknown one is `asked` from now on: ask the peer
  void map(int peer, uint64_t id, int fd, int err = 0); // fd < 0: the peer has none to give, and why; 0 = it got lost here
  void drop(int peer, uint64_t id);

private:
  std::mutex mutex_; // guards views_
  std::map<std::pair<int, uint64_t>, View> views_;
};

} // namespace tutti
