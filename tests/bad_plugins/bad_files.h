// Where the bad plugins are, and files made by hand.
#pragma once
#include "../support/temp_folder.h"
#include <elf.h>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/stat.h>

namespace bad {

namespace fs = std::filesystem;

inline std::string folder(const std::string &name) {
  return std::string(BAD_DIR) + "/" + name;
}
inline std::string file(const std::string &name) {
  return folder(name) + "/libtutti-bad-" + name + ".so";
}

struct Scratch : support::TempFolder {
  std::string path() const { return TempFolder::path(); }
  std::string write(const std::string &name, const std::string &bytes) const {
    std::string at = file(name);
    std::ofstream(at, std::ios::binary) << bytes;
    return at;
  }
  std::string copy(const std::string &from, const std::string &name) const {
    std::string at = file(name);
    fs::copy_file(from, at);
    return at;
  }
};

inline std::string read(const std::string &path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
// A real plugin whose header says that it was built for another machine.
inline std::string other_machine() {
  std::string bytes = read(file("none"));
  auto *head = reinterpret_cast<Elf64_Ehdr *>(bytes.data());
  head->e_machine = head->e_machine == EM_AARCH64 ? EM_X86_64 : EM_AARCH64;
  return bytes;
}

} // namespace bad
