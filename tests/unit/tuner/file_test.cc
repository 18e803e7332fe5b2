#include "tables.h"
#include <fstream>
#include <unistd.h>

using namespace tuner;
namespace fs = std::filesystem;

namespace {

struct Folder {
  fs::path path = fs::temp_directory_path() / ("tutti-tuner-" + std::to_string(getpid()));
  Folder() { fs::create_directory(path); }
  ~Folder() { fs::remove_all(path); }
};
std::string not_read(const fs::path &file) {
  try {
    (void)read_file(file.string(), "t.toml:3");
  } catch (const tutti::plugin::Error &e) {
    return e.what();
  }
  return "";
}

} // namespace

TEST_CASE("the format of a table is found out from its first line") {
  CHECK(parse_table("# text\n\n  allreduce , 0,8,ring,ll,-1,-1,-1\n", "t").rules.size() == 1);
  CHECK(parse_table("# allreduce,\n[[rule]]\nways = [\"ring\"]\n", "t").rules.size() == 1);
  CHECK(parse_table("rule = [{ ways = [\"ring\", \"tree\"] }]\n", "t").rules.size() == 1);
}
TEST_CASE("files that are missing, unreadable, endless or too long are named with the option and what to do") {
  const Folder dir;
  CHECK(holds(not_read(dir.path / "none.toml"),
              "t.toml:3: option file: \"" + (dir.path / "none.toml").string() + "\" cannot be read"));
  CHECK(holds(not_read(dir.path / "none.toml"), "No such file or directory"));
  CHECK(holds(not_read(dir.path), "is no regular file"));
  CHECK(holds(not_read("/dev/zero"), "is no regular file"));
  std::ofstream(dir.path / "long.toml") << std::string((4 << 20) + 1, '#');
  CHECK(holds(not_read(dir.path / "long.toml"), "is longer than 4 MiB"));
  std::ofstream(dir.path / "fits.toml") << std::string(4 << 20, '#');
  CHECK(not_read(dir.path / "fits.toml") == "");
  fs::permissions(dir.path / "fits.toml", fs::perms::none);
  if (geteuid() != 0) CHECK(holds(not_read(dir.path / "fits.toml"), "Permission denied"));
}
