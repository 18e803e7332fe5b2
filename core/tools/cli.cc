#include "tools/cli.h"
#include <cctype>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <unistd.h>

namespace tutti::tools {

Result<uint64_t> parse_size(std::string_view text) {
  std::string shown(text.substr(0, 80)); // in a message, which is one line
  for (char &c : shown)
    if (std::iscntrl(static_cast<unsigned char>(c))) c = '?';
  const auto bad = [&] {
    return fail(Code::invalid_argument, "\"{}\" is no size; a number, with K, M or G for units of 1024", shown);
  };
  uint64_t value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end == text.data()) return bad();
  std::string unit(end, text.data() + text.size());
  for (char &c : unit) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  if (unit.ends_with("IB"))
    unit.resize(unit.size() - 2);
  else if (unit.ends_with("B"))
    unit.resize(unit.size() - 1);
  constexpr std::string_view units = "KMGT";
  if (unit.size() > 1) return bad();
  int shift = 0;
  if (!unit.empty()) {
    const size_t at = units.find(unit[0]);
    if (at == std::string_view::npos) return bad();
    shift = static_cast<int>(at + 1) * 10;
  }
  if (value > (UINT64_MAX >> 1) >> shift) return fail(Code::invalid_argument, "size {} is too large", shown);
  return value << shift;
}

std::string size_text(uint64_t bytes) {
  constexpr std::string_view units = " KMGT";
  size_t unit = 0;
  while (bytes >= 1024 && bytes % 1024 == 0 && unit + 1 < units.size()) bytes /= 1024, unit++;
  return unit == 0 ? fmt::format("{}", bytes) : fmt::format("{}{}", bytes, units[unit]);
}

std::vector<std::string> rank_words(const std::string &command, const std::vector<std::string> &words, int terminal) {
  std::vector<std::string> out{own_path(), command};
  if (terminal >= 0) out.push_back(fmt::format("--progress-fd={}", terminal));
  for (size_t i = 1; i < words.size(); i++) {
    if (words[i] == "--ranks")
      i++;
    else if (!words[i].starts_with("--ranks="))
      out.push_back(words[i]);
  }
  return out;
}

void print_error(std::string_view text) {
  fmt::print(stderr, "error: {}\n", text);
}

std::string own_path() {
  char path[PATH_MAX];
  const ssize_t n = readlink("/proc/self/exe", path, sizeof path);
  return n > 0 ? std::string(path, static_cast<size_t>(n)) : std::string();
}

} // namespace tutti::tools
