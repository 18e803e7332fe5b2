// tutti/core/bootstrap/secret.h: 32 bytes that nobody else should see: in pages that no core dump holds, and wiped at the end.
#pragma once
#include <array>
#include <cstddef>
#include <span>

namespace tutti::boot {

class Secret {
public:
  static constexpr size_t kBytes = 32;
  using Plain = std::array<std::byte, kBytes>;

  Secret(); // zeros
  explicit Secret(const Plain &bytes);
  Secret(const Secret &other);
  Secret &operator=(const Secret &other);
  ~Secret();
  std::byte *data() { return at_; }
  const std::byte *data() const { return at_; }
  std::byte *begin() { return at_; }
  std::byte *end() { return at_ + kBytes; }
  const std::byte *begin() const { return at_; }
  const std::byte *end() const { return at_ + kBytes; }
  std::byte &operator[](size_t i) { return at_[i]; }
  const std::byte &operator[](size_t i) const { return at_[i]; }
  static constexpr size_t size() { return kBytes; }
  bool operator==(const Secret &other) const; // in constant time

private:
  std::byte *at_; // of the pages
};

void wipe(std::span<std::byte> bytes);

} // namespace tutti::boot
