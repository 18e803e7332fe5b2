#include "transport/mr_cache.h"
#include <algorithm>

namespace tutti {
namespace {

// Regions and users' registrations are numbered apart from each other.
uint64_t region_piece(uint64_t id) {
  return 2 * id;
}
uint64_t user_piece(uint64_t number) {
  return 2 * number + 1;
}
uintptr_t address(const void *at) {
  return reinterpret_cast<uintptr_t>(at);
}

} // namespace

// The entry that begins last at or before `at` need not be the one that holds it: entries may overlap. Back from there none
// holds it that begins more than the longest one earlier.
MrCache::Entry *MrCache::find_entry(uintptr_t at, uint64_t bytes) {
  if (last_ && last_->holds(at, bytes)) return last_;
  auto it = std::upper_bound(entries_.begin(), entries_.end(), at, [](uintptr_t a, const auto &e) { return a < e->begin; });
  while (it != entries_.begin()) {
    Entry &e = **--it;
    if (!e.dropped && e.holds(at, bytes)) return &e;
    if (at - e.begin > longest_) break;
  }
  return nullptr;
}

bool MrCache::find_piece(uintptr_t at, uint64_t bytes, Piece *out) const {
  const Region r = find_(reinterpret_cast<const void *>(at));
  if (r.id != 0) {
    const uintptr_t begin = address(r.at);
    *out = {begin, begin + r.bytes, region_piece(r.id)};
    if (at >= begin && bytes <= out->end - at) return true;
  }
  for (const Piece &p : allowed_) { // a few dozen at most, and only where no entry was found
    if (p.begin > at) break;
    *out = p;
    if (at <= p.end && bytes <= p.end - at) return true;
  }
  return false;
}

MrCache::Entry *MrCache::take(const void *p, uint64_t bytes) {
  const uintptr_t at = address(p);
  Entry *e = find_entry(at, bytes);
  if (Piece piece{}; !e && limits_.entries && find_piece(at, bytes, &piece) && !refused_.contains(piece.id)) e = add(piece);
  if (!e) return nullptr;
  e->uses++;
  e->used = ++takes_;
  return last_ = e;
}

MrCache::Entry *MrCache::add(const Piece &piece) {
  const uint64_t bytes = piece.end - piece.begin;
  if (limits_.bytes && bytes > limits_.bytes) return nullptr;
  while (entries_.size() >= limits_.entries || (limits_.bytes && bytes_ > limits_.bytes - bytes))
    if (!evict_one()) return nullptr;
  void *mr = make_(reinterpret_cast<void *>(piece.begin), bytes);
  while (!mr && evict_one()) mr = make_(reinterpret_cast<void *>(piece.begin), bytes);
  if (!mr) {
    refused_.insert(piece.id);
    return nullptr;
  }
  auto entry = std::make_unique<Entry>();
  entry->begin = piece.begin;
  entry->end = piece.end;
  entry->piece = piece.id;
  entry->mr = mr;
  Entry *made = entry.get();
  const auto at = std::upper_bound(entries_.begin(), entries_.end(), piece.begin,
                                   [](uintptr_t begin, const auto &e) { return begin < e->begin; });
  entries_.insert(at, std::move(entry));
  longest_ = std::max(longest_, bytes);
  bytes_ += bytes;
  return made;
}

// The one that was unused for longest.
bool MrCache::evict_one() {
  Entry *oldest = nullptr;
  for (const auto &e : entries_)
    if (e->uses == 0 && (!oldest || e->used < oldest->used)) oldest = e.get();
  if (oldest) remove(oldest);
  return oldest != nullptr;
}

void MrCache::remove(Entry *entry) {
  if (last_ == entry) last_ = nullptr;
  bytes_ -= entry->end - entry->begin;
  release_(entry->mr);
  refused_.clear(); // there may be room now
  std::erase_if(entries_, [entry](const auto &e) { return e.get() == entry; });
}

void MrCache::give_back(Entry *entry) {
  if (--entry->uses == 0 && entry->dropped) remove(entry);
}

template <class Which> bool MrCache::drop_entries(Which which) {
  std::vector<Entry *> idle;
  bool busy = false;
  for (const auto &e : entries_) {
    if (!which(*e)) continue;
    e->dropped = true;
    if (last_ == e.get()) last_ = nullptr;
    if (e->uses)
      busy = true;
    else
      idle.push_back(e.get());
  }
  for (Entry *e : idle) remove(e);
  return !busy;
}

void MrCache::allow(uint64_t number, const void *at, uint64_t bytes) {
  const Piece piece{address(at), address(at) + bytes, user_piece(number)};
  const auto before = [](uintptr_t begin, const Piece &p) { return begin < p.begin; };
  allowed_.insert(std::upper_bound(allowed_.begin(), allowed_.end(), piece.begin, before), piece);
}

bool MrCache::disallow(uint64_t number) {
  const uint64_t id = user_piece(number);
  std::erase_if(allowed_, [id](const Piece &p) { return p.id == id; });
  refused_.clear();
  return drop_entries([id](const Entry &e) { return e.piece == id; });
}

bool MrCache::drop(const void *at, uint64_t bytes) {
  const uintptr_t begin = address(at), end = begin + bytes;
  std::erase_if(allowed_, [&](const Piece &p) { return p.begin < end && begin < p.end; });
  refused_.clear();
  return drop_entries([&](const Entry &e) { return e.begin < end && begin < e.end; });
}

void MrCache::clear() {
  last_ = nullptr;
  for (const auto &e : entries_) release_(e->mr);
  entries_.clear();
  bytes_ = 0;
}

} // namespace tutti
