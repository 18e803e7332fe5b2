#include "config/files.h"
#include "base/fd.h"
#include "base/file.h"
#include "log/log.h"
#include <cerrno>
#include <fcntl.h>
#include <optional>
#include <sys/stat.h>

namespace tutti::config {
namespace {

constexpr size_t kLargest = 1 << 20; // bytes; a configuration is a few hundred

Status cannot_read(const std::string &name, std::string_view why) {
  return fail(Code::invalid_argument, "configuration file {} cannot be read: {}", name, why).phase("config");
}

Status read_error(const std::string &name, int err) {
  Status s = fail_errno(err, fmt::format("configuration file {} cannot be read", name));
  s.error().phase = "config";
  return s;
}

// Why others could have written the file, or "".
std::string distrust(const struct stat &st) {
  if (st.st_uid != geteuid()) return fmt::format("it belongs to user {}, not to user {}", st.st_uid, geteuid());
  if (st.st_mode & (S_IWGRP | S_IWOTH)) return fmt::format("others may write it (mode {:04o})", st.st_mode & 07777);
  return "";
}

// The text, nothing when the file is absent or not trusted. Checks look at the opened file: a rename cannot slip in between.
Result<std::optional<std::string>> read_file(const std::string &name, bool must_exist, bool must_be_mine) {
  const UniqueFd fd(::open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  const bool absent = !fd && (errno == ENOENT || errno == ENOTDIR || (errno == EACCES && !must_be_mine));
  if (absent && !must_exist) return std::optional<std::string>();
  if (!fd) return read_error(name, errno);
  struct stat st {};
  if (fstat(fd.get(), &st) != 0) return read_error(name, errno);
  if (!S_ISREG(st.st_mode)) {
    if (!must_exist) return std::optional<std::string>();
    return cannot_read(name, "it is not a regular file");
  }
  if (const std::string why = must_be_mine ? distrust(st) : ""; !why.empty()) {
    log::write_once(log::Level::warn, log::Subsys::env, "config-distrust:" + name,
                    fmt::format("{} is ignored: {}; name it in TUTTI_CONFIG to use it all the same", name, why));
    return std::optional<std::string>();
  }
  std::string text;
  const int err = read_rest(fd.get(), kLargest, &text);
  if (err == EFBIG) return cannot_read(name, "it is larger than 1 MiB");
  if (err) return read_error(name, err);
  return std::optional<std::string>(std::move(text));
}

std::string variable(const std::map<std::string, std::string> &environment, const char *name) {
  const auto it = environment.find(name);
  return it == environment.end() ? "" : it->second;
}

} // namespace

Result<std::vector<TomlFile>> find_files(const std::map<std::string, std::string> &environment, const SearchPaths &paths) {
  std::vector<TomlFile> out;
  auto add = [&out](const std::string &name, bool must_exist, bool must_be_mine) -> Result<bool> {
    TUTTI_ASSIGN(text, read_file(name, must_exist, must_be_mine));
    if (text) out.push_back({name, std::move(*text)});
    return text.has_value();
  };
  TUTTI_ASSIGN(system, add(paths.system, false, false));
  (void)system;
  if (const std::string named = variable(environment, "TUTTI_CONFIG"); !named.empty()) {
    TUTTI_ASSIGN(found, add(named, true, false));
    (void)found;
    return out;
  }
  TUTTI_ASSIGN(local, add(paths.local, false, true));
  if (local) return out;
  const std::string xdg = variable(environment, "XDG_CONFIG_HOME"), home = variable(environment, "HOME");
  if (xdg.empty() && home.empty()) return out;
  TUTTI_ASSIGN(user, add((xdg.empty() ? home + "/.config" : xdg) + "/tutti/tutti.toml", false, false));
  (void)user;
  return out;
}

} // namespace tutti::config
