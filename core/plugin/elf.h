// tutti/core/plugin/elf.h: looks at a shared object as bytes, so that no stranger's code runs and no damaged file is mapped.
#pragma once
#include "base/status.h"
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace tutti {

// The whole file. Only regular files; bounded to 1 GiB.
Result<std::vector<std::byte>> read_file(const std::string &path);

// What can be wrong with the bytes of a shared object, in the order in which it is looked at.
enum class ElfProblem { none, not_elf, other_machine, damaged };
struct ElfVerdict {
  ElfProblem problem = ElfProblem::none;
  std::string text; // "is built for aarch64, this process is x86-64"
};
// Headers, sections and segments lie inside the file and name this machine: after it, readers and the dynamic linker stay
// within the file.
ElfVerdict inspect_elf(std::span<const std::byte> file);

// Names of the dynamic symbols that the file defines for others, from a file that inspect_elf() accepted. Sorted.
std::vector<std::string> exported_symbols(std::span<const std::byte> file);

// 64-bit hash of the bytes; no cryptographic promise.
uint64_t hash_bytes(std::span<const std::byte> bytes);

} // namespace tutti
