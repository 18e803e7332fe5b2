#include "base/status.h"
#include "plugin/elf.h"
#include "plugin/rules.h"
#include <algorithm>
#include <boost/dll/library_info.hpp>
#include <cerrno>
#include <cstring>
#include <dlfcn.h>
#include <exception>
#include <filesystem>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tutti {
namespace {

constexpr const char *kEntry = "tutti_plugin_v1";
const std::string kUnsafe = "P-FILE-05";
const std::string kAllow = ", or set plugins.allow_unsafe = true";

// The file that holds this function.
const std::string &own_file() {
  static const std::string *path = [] {
    Dl_info info{};
    std::error_code ec;
    if (::dladdr(reinterpret_cast<void *>(&own_file), &info) == 0 || info.dli_fname == nullptr) return new std::string;
    const auto real = std::filesystem::canonical(info.dli_fname, ec);
    return new std::string(ec ? "" : real.string());
  }();
  return *path;
}

// Who could change our own code anyway: there is no point in distrusting the owner of that file. It matters in user namespaces,
// where root's files belong to an unmapped user.
uid_t own_file_owner() {
  struct stat st {};
  return !own_file().empty() && ::stat(own_file().c_str(), &st) == 0 ? st.st_uid : 0;
}

void check_ownership(const std::string &what, const struct stat &st, StaticFindings *out) {
  static const uid_t library_owner = own_file_owner();
  const std::string who = fmt::format("owner {}, mode {:04o}", st.st_uid, st.st_mode & 07777);
  if (st.st_mode & S_IWOTH)
    out->push_back({kUnsafe, fmt::format("{} is writable by everybody ({})", what, who), "chmod o-w it" + kAllow, true});
  // Some systems give every user a group of their own, of the same number, and let it write by default.
  if ((st.st_mode & S_IWGRP) != 0 && st.st_gid != 0 && st.st_gid != st.st_uid)
    out->push_back(
        {kUnsafe, fmt::format("{} is writable by group {} ({})", what, st.st_gid, who), "chmod g-w it" + kAllow, true});
  if (st.st_uid != 0 && st.st_uid != ::geteuid() && st.st_uid != library_owner)
    out->push_back({kUnsafe,
                    fmt::format("{} belongs to user {}, neither to root nor to user {} (mode {:04o})", what, st.st_uid,
                                ::geteuid(), st.st_mode & 07777),
                    "let it belong to root or to the user of the job" + kAllow, true});
}

// Who may rename what lies in a folder can put another thing in its place. In a sticky one nobody can but the owners. Folders
// that hold our own file as well are passed over: there our own code could be replaced.
void check_parents(const std::filesystem::path &path, StaticFindings *out) {
  const std::string &own = own_file();
  for (std::filesystem::path at = path.parent_path();; at = at.parent_path()) {
    const std::string folder = at.string();
    const bool ours = own.starts_with(folder == "/" ? folder : folder + "/");
    struct stat st {};
    if (!ours && ::stat(folder.c_str(), &st) == 0 && !(st.st_mode & S_ISVTX))
      check_ownership("folder " + folder + " above it", st, out);
    if (at == at.parent_path() || folder.empty()) return;
  }
}

// Boost.DLL's view of what the library defines; the second opinion of our own reader. Before Boost 1.81 it knows only the table
// that `strip` removes: then it sees nothing at all, and has no opinion.
bool lists_entry(const std::string &path, std::string *error) {
  try {
    boost::dll::library_info info(path, true);
    const auto symbols = info.symbols();
    return symbols.empty() || std::find(symbols.begin(), symbols.end(), kEntry) != symbols.end();
  } catch (const std::exception &e) {
    *error = e.what();
    return false;
  }
}

void check_symbols(const std::string &path, std::span<const std::byte> bytes, StaticFindings *out) {
  std::vector<std::string> symbols = exported_symbols(bytes);
  std::string trouble;
  const bool ours = std::binary_search(symbols.begin(), symbols.end(), std::string(kEntry));
  if (!ours || !lists_entry(path, &trouble)) {
    out->push_back({"P-ENTRY-01", trouble.empty() ? fmt::format("does not export {}", kEntry) : "cannot be read: " + trouble,
                    "export `const tutti_plugin_desc tutti_plugin_v1` with default visibility", true});
    return;
  }
  std::erase(symbols, kEntry);
  if (symbols.empty()) return;
  const size_t count = symbols.size();
  if (count > 5) symbols.resize(5);
  out->push_back(
      {"P-ENTRY-02",
       fmt::format("exports {} more symbols than {}: {}{}", count, kEntry, fmt::join(symbols, ", "), count > 5 ? ", ..." : ""),
       "compile with -fvisibility=hidden and link with a version script, as the templates do", false});
}

} // namespace

const StaticFinding *first_fatal(const StaticFindings &findings) {
  for (const StaticFinding &f : findings)
    if (f.fatal) return &f;
  return nullptr;
}

bool is_foreign(const StaticFindings &findings) {
  const StaticFinding *f = first_fatal(findings);
  return f && (f->rule == "P-ENTRY-01" || f->rule == "P-FILE-02");
}

StaticFindings check_directory(const std::string &path) {
  StaticFindings out;
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0)
    out.push_back({"P-FILE-01", fail_errno(errno, "cannot be opened").error().line(), "", true});
  else if (!S_ISDIR(st.st_mode))
    out.push_back({"P-FILE-01", "is not a directory", "", true});
  else
    check_ownership("directory", st, &out);
  if (!out.empty() && out.front().rule == "P-FILE-01") return out;
  std::error_code ec;
  const auto given = std::filesystem::absolute(path, ec).lexically_normal();
  check_parents(given.has_filename() ? given : given.parent_path(), &out);
  if (const auto real = std::filesystem::canonical(path, ec); !ec && real != given) check_parents(real, &out);
  return out;
}

bool is_unsafe(const StaticFinding &f) {
  return f.rule == kUnsafe;
}

StaticFindings check_file(const std::string &path, std::vector<std::byte> *bytes) {
  StaticFindings out;
  auto file = read_file(path);
  if (!file.ok()) {
    out.push_back({"P-FILE-01", file.status().error().message, "make it a file that the user of the job may read", true});
    return out;
  }
  struct stat st {};
  if (::stat(path.c_str(), &st) == 0) check_ownership("file", st, &out);
  const ElfVerdict verdict = inspect_elf(*file);
  if (verdict.problem == ElfProblem::none) {
    check_symbols(path, *file, &out);
  } else {
    const char *rule = verdict.problem == ElfProblem::not_elf         ? "P-FILE-02"
                       : verdict.problem == ElfProblem::other_machine ? "P-FILE-03"
                                                                      : "P-FILE-04";
    out.push_back({rule, verdict.text, "build it as a shared object for this machine", true});
  }
  const std::string name = std::filesystem::path(path).filename().string();
  if (!name.starts_with("libtutti-") || !name.ends_with(".so"))
    out.push_back({"P-FILE-06", "is not named libtutti-*.so, so a directory search does not find it", "rename it", false});
  if (bytes) *bytes = std::move(*file);
  return out;
}

} // namespace tutti
