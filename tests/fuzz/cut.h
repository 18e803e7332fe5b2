// What every target needs: a failed expectation is a find, and input cut into pieces.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace fuzz {

inline void expect(bool holds) {
  if (!holds) std::abort();
}
// An error of the library is one line that somebody can read.
template <class R> bool good(const R &result, size_t most = 1 << 16) {
  if (result.ok()) return true;
  if constexpr (requires { result.status(); }) {
    const std::string line = result.status().error().line();
    expect(line.find('\n') == line.npos && line.size() < most);
  } else {
    const std::string line = result.error().line();
    expect(line.find('\n') == line.npos && line.size() < most);
  }
  return false;
}

class Input {
public:
  Input(const uint8_t *data, size_t size) : at_(data), left_(size) {}
  bool empty() const { return left_ == 0; }
  uint8_t byte() { return left_ == 0 ? 0 : (left_--, *at_++); }
  uint32_t below(uint32_t n) { return byte() % n; }
  std::string_view take(size_t n) {
    n = n < left_ ? n : left_;
    const std::string_view out(reinterpret_cast<const char *>(at_), n);
    at_ += n;
    left_ -= n;
    return out;
  }
  std::string_view rest() { return take(left_); }
  // What follows up to the next byte 0xff, which text does not hold.
  std::string_view piece() {
    const std::string_view all(reinterpret_cast<const char *>(at_), left_);
    const std::string_view out = take(all.find('\xff') == all.npos ? left_ : all.find('\xff'));
    byte();
    return out;
  }

private:
  const uint8_t *at_;
  size_t left_;
};

} // namespace fuzz
