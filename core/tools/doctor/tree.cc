#include "tools/doctor/tree.h"
#include "base/fd.h"
#include <algorithm>
#include <charconv>
#include <climits>
#include <dirent.h>
#include <fcntl.h>
#include <sstream>
#include <sys/stat.h>

namespace tutti::doctor {

std::string trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const size_t first = text.find_first_not_of(kBlank);
  if (first == text.npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(kBlank) + 1 - first));
}

std::vector<std::string> words(std::string_view text) {
  std::istringstream in{std::string(text)};
  std::vector<std::string> out;
  for (std::string word; in >> word;) out.push_back(word);
  return out;
}

std::optional<int64_t> to_number(std::string_view text, int base) {
  if (base == 16 && text.starts_with("0x")) text.remove_prefix(2);
  int64_t value = 0;
  const auto [end, err] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (err != std::errc() || text.empty() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<int64_t> cpus_in(std::string_view list) {
  int64_t count = 0;
  while (!list.empty()) {
    const std::string_view item = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), item.size() + 1));
    const size_t dash = item.find('-');
    const auto low = to_number(item.substr(0, dash));
    const auto high = dash == item.npos ? low : to_number(item.substr(dash + 1));
    if (!low || !high || *high < *low) return std::nullopt;
    count += *high - *low + 1;
  }
  return count;
}

bool Tree::exists(const std::string &path) const {
  struct stat st {};
  return ::stat((root_ + path).c_str(), &st) == 0;
}

// Never waits: some files of these trees are pipes, such as /proc/kmsg.
std::string Tree::all(const std::string &path, size_t most) const {
  const UniqueFd fd(::open((root_ + path).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  std::string out;
  char buffer[4096];
  while (fd && out.size() < most) {
    const ssize_t n = ::read(fd.get(), buffer, std::min(sizeof buffer, most - out.size()));
    if (n <= 0) break;
    out.append(buffer, static_cast<size_t>(n));
  }
  return out;
}

std::string Tree::line(const std::string &path) const {
  const std::string text = all(path, 4096);
  return trimmed(std::string_view(text).substr(0, text.find('\n')));
}

std::vector<std::string> Tree::lines(const std::string &path) const {
  std::istringstream in(all(path));
  std::vector<std::string> out;
  for (std::string text; std::getline(in, text);)
    if (!trimmed(text).empty()) out.push_back(text);
  return out;
}

std::optional<int64_t> Tree::number(const std::string &path) const {
  const std::string text = line(path);
  return to_number(std::string_view(text).substr(0, text.find_first_of(" \t")));
}

std::vector<std::string> Tree::list(const std::string &folder) const {
  std::vector<std::string> out;
  if (DIR *d = ::opendir((root_ + folder).c_str())) {
    while (const dirent *e = ::readdir(d))
      if (e->d_name[0] != '.') out.emplace_back(e->d_name);
    ::closedir(d);
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::string Tree::target(const std::string &path) const {
  char buffer[PATH_MAX];
  const ssize_t n = ::readlink((root_ + path).c_str(), buffer, sizeof buffer);
  if (n <= 0) return {};
  const std::string_view text(buffer, static_cast<size_t>(n));
  return std::string(text.substr(text.rfind('/') + 1));
}

std::string Tree::value(const std::string &path, std::string_view key) const {
  for (const std::string &text : lines(path)) {
    std::string_view rest = text;
    if (!rest.starts_with(key)) continue;
    rest.remove_prefix(key.size());
    if (!rest.empty() && rest[0] != ':' && rest[0] != ' ' && rest[0] != '\t') continue;
    return trimmed(rest.starts_with(':') ? rest.substr(1) : rest);
  }
  return {};
}

} // namespace tutti::doctor
