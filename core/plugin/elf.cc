#include "plugin/elf.h"
#include "base/fd.h"
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <elf.h>
#include <fcntl.h>
#include <optional>
#include <sys/stat.h>

namespace tutti {
namespace {

constexpr uint64_t kMaxFileBytes = 1ull << 30;

#if defined(__x86_64__)
constexpr uint16_t kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr uint16_t kMachine = EM_AARCH64;
#elif defined(__riscv)
constexpr uint16_t kMachine = EM_RISCV;
#elif defined(__powerpc64__)
constexpr uint16_t kMachine = EM_PPC64;
#else
constexpr uint16_t kMachine = EM_NONE;
#endif

std::string machine_name(uint16_t machine) {
  switch (machine) {
  case EM_X86_64:
    return "x86-64";
  case EM_AARCH64:
    return "aarch64";
  case EM_386:
    return "x86 (32 bit)";
  case EM_ARM:
    return "arm (32 bit)";
  case EM_RISCV:
    return "risc-v";
  case EM_PPC64:
    return "ppc64";
  case EM_S390:
    return "s390";
  default:
    return fmt::format("machine {}", machine);
  }
}

// The struct at `offset`, or nothing when it does not lie inside. Copies: the file is not aligned.
template <class T> std::optional<T> at(std::span<const std::byte> file, uint64_t offset) {
  if (offset > file.size() || file.size() - offset < sizeof(T)) return std::nullopt;
  T out;
  std::memcpy(&out, file.data() + offset, sizeof(T));
  return out;
}

bool inside(std::span<const std::byte> file, uint64_t offset, uint64_t bytes) {
  return offset <= file.size() && bytes <= file.size() - offset;
}

ElfVerdict damaged(std::string what) {
  return {ElfProblem::damaged, "is damaged or cut off: " + std::move(what)};
}

ElfVerdict inspect_sections(std::span<const std::byte> file, const Elf64_Ehdr &head) {
  if (head.e_shnum == 0) return {};
  if (head.e_shentsize != sizeof(Elf64_Shdr)) return damaged(fmt::format("section headers of {} bytes", head.e_shentsize));
  if (head.e_shstrndx >= head.e_shnum) return damaged("no table of section names");
  for (uint32_t i = 0; i < head.e_shnum; i++) {
    const auto section = at<Elf64_Shdr>(file, head.e_shoff + uint64_t(i) * sizeof(Elf64_Shdr));
    if (!section) return damaged(fmt::format("section header {} lies outside", i));
    if (section->sh_type == SHT_NOBITS || section->sh_type == SHT_NULL) continue;
    if (!inside(file, section->sh_offset, section->sh_size)) return damaged(fmt::format("section {} lies outside", i));
  }
  return {};
}

ElfVerdict inspect_segments(std::span<const std::byte> file, const Elf64_Ehdr &head) {
  if (head.e_phnum == 0 || head.e_phentsize != sizeof(Elf64_Phdr)) return damaged("no segments to load");
  bool dynamic = false;
  for (uint32_t i = 0; i < head.e_phnum; i++) {
    const auto segment = at<Elf64_Phdr>(file, head.e_phoff + uint64_t(i) * sizeof(Elf64_Phdr));
    if (!segment) return damaged(fmt::format("segment header {} lies outside", i));
    dynamic |= segment->p_type == PT_DYNAMIC;
    if (segment->p_type != PT_LOAD) continue;
    if (!inside(file, segment->p_offset, segment->p_filesz)) return damaged(fmt::format("segment {} lies outside", i));
  }
  return dynamic ? ElfVerdict{} : damaged("no dynamic section");
}

} // namespace

Result<std::vector<std::byte>> read_file(const std::string &path) {
  // O_NONBLOCK: a named pipe must not hold us up before fstat tells what it is.
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return fail_errno(errno, "cannot be opened");
  struct stat st {};
  if (::fstat(fd.get(), &st) != 0) return fail_errno(errno, "cannot be inspected");
  if (!S_ISREG(st.st_mode)) return fail(Code::invalid_argument, "is not a regular file");
  if (static_cast<uint64_t>(st.st_size) > kMaxFileBytes)
    return fail(Code::invalid_argument, "has {} bytes, more than {}", st.st_size, kMaxFileBytes);
  std::vector<std::byte> out(static_cast<size_t>(st.st_size));
  for (size_t done = 0; done < out.size();) {
    const ssize_t n = ::read(fd.get(), out.data() + done, out.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno(errno, "cannot be read");
    if (n == 0) {
      out.resize(done); // became shorter meanwhile
      break;
    }
    done += static_cast<size_t>(n);
  }
  return out;
}

ElfVerdict inspect_elf(std::span<const std::byte> file) {
  if (file.size() < EI_NIDENT || std::memcmp(file.data(), ELFMAG, SELFMAG) != 0)
    return {ElfProblem::not_elf, "is not a shared object (no ELF header)"};
  const auto ident = [&](int i) { return std::to_integer<int>(file[static_cast<size_t>(i)]); };
  if (ident(EI_CLASS) != ELFCLASS64) return {ElfProblem::other_machine, "is a 32-bit object, this process has 64 bits"};
  const int order = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ELFDATA2LSB : ELFDATA2MSB;
  if (ident(EI_DATA) != order) return {ElfProblem::other_machine, "has the other byte order"};
  const auto head = at<Elf64_Ehdr>(file, 0);
  if (!head) return damaged("header is incomplete");
  if (head->e_machine != kMachine)
    return {ElfProblem::other_machine,
            fmt::format("is built for {}, this process is {}", machine_name(head->e_machine), machine_name(kMachine))};
  if (head->e_type != ET_DYN) return {ElfProblem::not_elf, "is not a shared object (another kind of ELF file)"};
  if (ElfVerdict v = inspect_segments(file, *head); v.problem != ElfProblem::none) return v;
  return inspect_sections(file, *head);
}

std::vector<std::string> exported_symbols(std::span<const std::byte> file) {
  std::vector<std::string> out;
  const auto head = at<Elf64_Ehdr>(file, 0);
  if (!head) return out;
  const auto section = [&](uint64_t i) { return at<Elf64_Shdr>(file, head->e_shoff + i * sizeof(Elf64_Shdr)); };
  for (uint32_t i = 0; i < head->e_shnum; i++) {
    const auto symbols = section(i);
    if (!symbols || symbols->sh_type != SHT_DYNSYM) continue;
    const auto strings = symbols->sh_link < head->e_shnum ? section(symbols->sh_link) : std::nullopt;
    if (!strings || !inside(file, strings->sh_offset, strings->sh_size)) continue;
    const char *text = reinterpret_cast<const char *>(file.data() + strings->sh_offset);
    for (uint64_t at_byte = 0; at_byte + sizeof(Elf64_Sym) <= symbols->sh_size; at_byte += sizeof(Elf64_Sym)) {
      const auto symbol = at<Elf64_Sym>(file, symbols->sh_offset + at_byte);
      if (!symbol) break;
      const int visibility = ELF64_ST_VISIBILITY(symbol->st_other), bind = ELF64_ST_BIND(symbol->st_info);
      if (symbol->st_shndx == SHN_UNDEF || symbol->st_shndx == SHN_ABS || bind == STB_LOCAL) continue;
      if (visibility != STV_DEFAULT && visibility != STV_PROTECTED) continue;
      if (symbol->st_name >= strings->sh_size) continue;
      out.emplace_back(text + symbol->st_name, ::strnlen(text + symbol->st_name, strings->sh_size - symbol->st_name));
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

uint64_t hash_bytes(std::span<const std::byte> bytes) {
  constexpr uint64_t kMul = 0x9e3779b97f4a7c15ull;
  uint64_t h = bytes.size() * kMul;
  for (size_t i = 0; i < bytes.size(); i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, std::min<size_t>(8, bytes.size() - i));
    h = (h ^ word) * kMul;
    h ^= h >> 29;
  }
  return h;
}

} // namespace tutti
