// tutti/core/transport/mr_cache.h: registrations of users' memory with one device, kept while they are worth it.
//
// Kept is only memory whose end this library hears of: regions of tuttiMemAlloc, and what was registered with
// tuttiCommRegister. Of other memory nobody could tell whether an address still means the same pages, as nothing here hooks
// malloc: it is staged. A piece is registered whole at its first use. One owner at a time uses a cache; its functions take no
// lock.
#pragma once
#include "transport/regions.h"
#include "tutti/plugin/net.h"
#include <functional>
#include <memory>
#include <set>
#include <vector>

namespace tutti {

inline tutti_region host_region(void *at, uint64_t bytes) {
  tutti_region region{};
  region.struct_size = sizeof region;
  region.kind = TUTTI_MEM_HOST;
  region.addr = at;
  region.bytes = bytes;
  region.device = -1;
  region.dmabuf_fd = -1;
  return region;
}

class MrCache {
public:
  struct Limits {
    uint64_t entries = 1024; // 0 = nothing is kept
    uint64_t bytes = 0;      // 0 = as much as can be registered
  };
  // One registration of the bytes [begin, end).
  struct Entry {
    uintptr_t begin = 0, end = 0;
    uint64_t piece = 0; // of what: a region, or what the user registered
    void *mr = nullptr; // the interface's own; so is what Register gives
    uint32_t uses = 0;  // posts under way
    uint64_t used = 0;  // when, in takes of the cache
    bool dropped = false;
    std::vector<std::byte> key; // for peers that read it
    bool asked = false;         // for its key; empty: peers cannot read it
    bool holds(uintptr_t at, uint64_t bytes) const { return at >= begin && at <= end && bytes <= end - at; }
  };
  using Register = std::function<void *(void *at, uint64_t bytes)>; // NULL: the device cannot
  using Release = std::function<void(void *mr)>;
  using Find = std::function<Region(const void *)>; // the region that an address lies in

  MrCache(Limits limits, Register make, Release release, Find find = regions::find)
      : limits_(limits), make_(std::move(make)), release_(std::move(release)), find_(std::move(find)) {}
  ~MrCache() { clear(); }
  MrCache(const MrCache &) = delete;
  MrCache &operator=(const MrCache &) = delete;

  // The registration that holds these bytes, made if need be and if there is room; it stays until give_back(). NULL: none.
  Entry *take(const void *at, uint64_t bytes);
  void give_back(Entry *entry);

  // What the user has registered, under a number of his own; and its end. Ending is refused, false, while posts use it: nobody
  // takes it any more, so try again after progress.
  void allow(uint64_t number, const void *at, uint64_t bytes);
  bool disallow(uint64_t number);
  // Memory that goes, whatever it was registered as. False as above.
  bool drop(const void *at, uint64_t bytes);
  void clear(); // all, once nothing is posted any more

  size_t entries() const { return entries_.size(); } // with those that are only waiting for their last post
  uint64_t bytes() const { return bytes_; }

private:
  struct Piece {
    uintptr_t begin, end;
    uint64_t id;
  };
  Entry *find_entry(uintptr_t at, uint64_t bytes);
  bool find_piece(uintptr_t at, uint64_t bytes, Piece *out) const;
  Entry *add(const Piece &piece);
  bool evict_one();
  void remove(Entry *entry);
  template <class Which> bool drop_entries(Which which);

  Limits limits_;
  Register make_;
  Release release_;
  Find find_;
  std::vector<std::unique_ptr<Entry>> entries_; // by begin
  std::vector<Piece> allowed_;                  // by begin
  std::set<uint64_t> refused_;                  // pieces that the device could not register; until room has been made
  uint64_t longest_ = 0;                        // of an entry so far: bounds the search
  uint64_t bytes_ = 0, takes_ = 0;
  Entry *last_ = nullptr; // taken
};

} // namespace tutti
