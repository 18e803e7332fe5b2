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

// Who could change our own code anyway: there is no point in distrusting the owner of the file that holds this function. It
// matters in user namespaces, where root's files belong to an unmapped user.
uid_t own_file_owner() {
  Dl_info info{};
  struct stat st {};
  if (::dladdr(reinterpret_cast<void *>(&own_file_owner), &info) == 0 || info.dli_fname == nullptr) return 0;
  return ::stat(info.dli_fname, &st) == 0 ? st.st_uid : 0;
}

void check_ownership(const std::string &what, const struct stat &st, StaticFindings *out) {
  static const uid_t library_owner = own_file_owner();
  if (st.st_mode & S_IWOTH)
    out->push_back({"P-FILE-05", fmt::format("{} is writable by everybody (mode {:04o})", what, st.st_mode & 07777),
                    "chmod o-w it", true});
  // Some systems give every user a group of their own, of the same number, and let it write by default.
  if ((st.st_mode & S_IWGRP) != 0 && st.st_gid != 0 && st.st_gid != st.st_uid)
    out->push_back({"P-FILE-05", fmt::format("{} is writable by group {} (mode {:04o})", what, st.st_gid, st.st_mode & 07777),
                    "chmod g-w it", true});
  if (st.st_uid != 0 && st.st_uid != ::geteuid() && st.st_uid != library_owner)
    out->push_back({"P-FILE-05",
                    fmt::format("{} belongs to user {}, neither to root nor to user {}", what, st.st_uid, ::geteuid()),
                    "let it belong to root or to the user of the job", true});
}

// Boost.DLL's view of what the library defines; the second opinion of our own reader.
bool lists_entry(const std::string &path, std::string *error) {
  try {
    boost::dll::library_info info(path, true);
    const auto symbols = info.symbols();
    return std::find(symbols.begin(), symbols.end(), kEntry) != symbols.end();
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
  return out;
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
