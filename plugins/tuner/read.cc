#include "names.h"
#include "table.h"
#include "tutti/plugin/cxx/host.hpp"
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <memory>
#include <sys/stat.h>

namespace tuner {
namespace {

using tutti::plugin::fail;

constexpr size_t kMostBytes = 4 << 20;

bool is_csv(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = trimmed(text.substr(at, end - at));
    at = end + 1;
    if (line.empty() || line[0] == '#') continue;
    size_t word = 0;
    while (word < line.size() && (std::isalnum(static_cast<unsigned char>(line[word])) || line[word] == '_')) word++;
    while (word < line.size() && line[word] == ' ') word++;
    return word < line.size() && line[word] == ',';
  }
  return false;
}

} // namespace

Table parse_table(std::string_view text, const std::string &source) {
  Table t = is_csv(text) ? parse_field_csv(text, source) : parse_toml(text, source);
  if (t.rules.empty() && t.warnings.empty()) t.warnings.push_back(source + ": the table has no rule; the core's model decides");
  return t;
}

std::string read_file(const std::string &path, const std::string &origin) {
  const std::string who = origin + ": option file: \"" + path + "\"";
  struct Close {
    void operator()(std::FILE *f) const { std::fclose(f); }
  };
  errno = 0;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a pipe would wait for who writes it
  const std::unique_ptr<std::FILE, Close> file(fd < 0 ? nullptr : fdopen(fd, "rb"));
  // INVALID: a table that was asked for and cannot be had ends the job, rather than that others decide unnoticed.
  const auto reason = [] { return std::generic_category().message(errno); };
  if (!file) fail(TUTTI_ERR_INVALID, who, " cannot be read: ", reason(), "; name an existing table, built-in or none");
  struct stat facts {};
  if (fstat(fileno(file.get()), &facts) != 0 || !S_ISREG(facts.st_mode))
    fail(TUTTI_ERR_INVALID, who, " is no regular file; name an existing table, built-in or none");
  std::string out(kMostBytes + 1, '\0');
  out.resize(std::fread(out.data(), 1, out.size(), file.get()));
  if (std::ferror(file.get())) fail(TUTTI_ERR_INVALID, who, " cannot be read: ", reason());
  if (out.size() > kMostBytes)
    fail(TUTTI_ERR_INVALID, who, " is longer than 4 MiB: no table of this tuner's is; name another file");
  return out;
}

} // namespace tuner
