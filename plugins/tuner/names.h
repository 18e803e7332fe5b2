// plugins/tuner/names.h: names and numbers of table files, and what to say when they are wrong.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tuner {

using Names = std::span<const std::string_view>;
extern const Names kColls;  // in the order of tutti_coll
extern const Names kLinks;  // in the order of TUTTI_LINK_CLASS_*
extern const Names kAlgos;  // that come with the library; others may be loaded
extern const Names kProtos; // "

std::optional<uint32_t> position(Names names, std::string_view name);
std::string joined(Names names); // "a, b, c"
// The one that differs by the fewest letters, at most two and fewer than half; "" = none is near.
std::string_view nearest(Names names, std::string_view name);
std::string did_you_mean(Names names, std::string_view name); // `; did you mean "ring"?`, or ""

std::string_view trimmed(std::string_view s);
// "4096", "8K", "1MiB", "2G"; nothing when it is no such number or too large.
std::optional<uint64_t> parse_bytes(std::string_view s);
std::optional<int64_t> parse_integer(std::string_view s);

} // namespace tuner
