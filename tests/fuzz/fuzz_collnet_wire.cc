// What members, daemons and strangers send to tutti-aggd. What parses must encode to something that parses to the same.
#include "wire.h"

using namespace tutti::aggd;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 3) return 0;
  const uint32_t members = 1u + data[1] + 256u * (data[2] % 16);
  const std::span<const uint8_t> body(data + 3, size - 3);
  const auto again = [](const std::string &frame) {
    Header h;
    std::memcpy(&h, frame.data(), sizeof h);
    if (!check_header(h, 0, 0).empty() || frame.size() != frame_bytes(h)) __builtin_trap();
    return std::vector<uint8_t>(frame.begin() + sizeof h, frame.begin() + sizeof h + h.bytes);
  };
  switch (data[0] % 7) {
  case 0:
    if (const auto j = read_join(body); j && !read_join(again(frame(*j)))) __builtin_trap();
    break;
  case 1:
    if (const auto c = read_cover(body, members); c && !read_cover(again(frame(*c)), members)) __builtin_trap();
    break;
  case 2:
    if (const auto g = read_grant(body); g && !read_grant(again(frame(*g)))) __builtin_trap();
    break;
  case 3:
    if (const auto s = read_start(body); s && !read_start(again(frame(*s)))) __builtin_trap();
    break;
  case 4:
    if (const auto f = read_fault(body); f && (!read_fault(again(frame(*f))) || f->text.find('\n') != std::string::npos))
      __builtin_trap();
    break;
  case 5: {
    Header h;
    if (body.size() < sizeof h) break;
    std::memcpy(&h, body.data(), sizeof h);
    if (check_header(h, most_chunk, members).empty() && (frame_bytes(h) % 8 != 0 || body_bytes(h) > 4 * uint64_t{most_chunk}))
      __builtin_trap();
    break;
  }
  default: {
    Hello h;
    if (body.size() < sizeof h) break;
    std::memcpy(&h, body.data(), sizeof h);
    const Challenge c = make_challenge(Key{}, h);
    if (is_hello(h) && c.version != 0 && !proves(Key{}, h, c)) __builtin_trap();
    break;
  }
  }
  return 0;
}
