// The file that keeps what was measured of a machine.
#include "base/fd.h"
#include "base/file.h"
#include "base/toml.h"
#include "comm/select/calibrate.h"
#include <cmath>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>

namespace tutti {
namespace {

constexpr size_t kLargest = 64 << 10; // bytes; the file is about one KiB

Result<std::optional<std::string>> read_text(const std::string &path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd && (errno == ENOENT || errno == ENOTDIR)) return std::optional<std::string>();
  struct stat st {};
  if (!fd || ::fstat(fd.get(), &st) != 0) return fail_errno(errno, "it cannot be read");
  if (!S_ISREG(st.st_mode)) return fail(Code::invalid_argument, "it is no regular file");
  if (st.st_uid != ::geteuid() || (st.st_mode & (S_IWGRP | S_IWOTH)))
    return fail(Code::invalid_argument, "others than this user may write it");
  std::string text(kLargest + 1, '\0');
  const ssize_t n = ::read(fd.get(), text.data(), text.size());
  if (n < 0) return fail_errno(errno, "it cannot be read");
  if (static_cast<size_t>(n) > kLargest) return fail(Code::invalid_argument, "it is longer than {} bytes", kLargest);
  text.resize(static_cast<size_t>(n));
  return std::optional<std::string>(std::move(text));
}

} // namespace

Result<std::optional<CostConstants>> read_costs(const std::string &path, std::string_view machine) {
  TUTTI_ASSIGN(text, read_text(path));
  if (!text) return std::optional<CostConstants>();
  TUTTI_ASSIGN(costs, parse_costs(*text, machine));
  return std::optional(costs);
}

Result<CostConstants> parse_costs(std::string_view text, std::string_view machine) {
  try {
    const toml::table root = toml::parse(text);
    if (root["machine"].value_or(std::string_view()) != machine)
      return fail(Code::invalid_argument, "it is of another machine: \"{}\"", root["machine"].value_or(std::string("?")));
    CostConstants costs;
    std::string bad;
    CostConstants::each(costs, [&](const std::string &name, double &v) {
      const auto found = root["costs"][name].value<double>();
      if (found && *found >= 0 && *found < CostConstants::kMost)
        v = *found;
      else if (bad.empty())
        bad = name;
    });
    if (!bad.empty()) return fail(Code::invalid_argument, "costs.{} is no number from 0 to 1e15", bad);
    return costs;
  } catch (const std::exception &e) { // toml::parse_error, or out of memory
    return fail(Code::invalid_argument, "it is no TOML: {}", e.what());
  }
}

Status write_costs(const std::string &path, std::string_view machine, const CostConstants &costs) {
  std::string text = "# What tutti measured of this machine for its cost model. Made anew when it is deleted.\n";
  text += fmt::format("machine = \"{}\"\n\n[costs]\n", machine);
  CostConstants::each(costs, [&](const std::string &name, double v) {
    std::string number = fmt::format("{:.6g}", v);
    if (number.find_first_of(".e") == number.npos) number += ".0";
    text += fmt::format("{} = {}\n", name, number);
  });
  std::error_code ec;
  const auto directory = std::filesystem::path(path).parent_path();
  std::filesystem::create_directories(directory, ec);
  if (ec) return fail(Code::system, "{} cannot be made: {}", directory.string(), ec.message());
  return replace_file(path, text);
}

} // namespace tutti
