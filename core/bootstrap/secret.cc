#include "bootstrap/secret.h"
#include "base/fork.h"
#include <cstring>
#include <mutex>
#include <new>
#include <sodium.h>
#include <sys/mman.h>
#include <vector>

namespace tutti::boot {
namespace {

constexpr size_t kChunk = 64 << 10;

// Never given back to the system: there are a few secrets for each communicator and connection.
struct Pages {
  std::mutex mutex; // guards the rest
  std::vector<std::byte *> free;
};

Pages &pages() {
  static Pages *p = [] { // secrets may die while the process ends
    auto *made = new Pages;
    hold_over_fork(made->mutex);
    return made;
  }();
  return *p;
}

std::byte *take() {
  Pages &p = pages();
  std::lock_guard lock(p.mutex);
  if (p.free.empty()) {
    void *chunk = ::mmap(nullptr, kChunk, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (chunk == MAP_FAILED) throw std::bad_alloc();
    (void)::madvise(chunk, kChunk, MADV_DONTDUMP); // only a wish
    p.free.reserve(p.free.size() + kChunk / Secret::kBytes);
    for (size_t at = kChunk; at > 0; at -= Secret::kBytes)
      p.free.push_back(static_cast<std::byte *>(chunk) + at - Secret::kBytes);
  }
  std::byte *at = p.free.back();
  p.free.pop_back();
  return at;
}

} // namespace

void wipe(std::span<std::byte> bytes) {
  sodium_memzero(bytes.data(), bytes.size());
}

Secret::Secret() : at_(take()) {
  std::memset(at_, 0, kBytes);
}

Secret::Secret(const Plain &bytes) : at_(take()) {
  std::memcpy(at_, bytes.data(), kBytes);
}

Secret::Secret(const Secret &other) : at_(take()) {
  std::memcpy(at_, other.at_, kBytes);
}

Secret &Secret::operator=(const Secret &other) {
  if (this != &other) std::memcpy(at_, other.at_, kBytes);
  return *this;
}

Secret::~Secret() {
  wipe({at_, kBytes});
  Pages &p = pages();
  std::lock_guard lock(p.mutex);
  p.free.push_back(at_); // has room: it was taken from here
}

bool Secret::operator==(const Secret &other) const {
  return sodium_memcmp(at_, other.at_, kBytes) == 0;
}

} // namespace tutti::boot
