// Without libFuzzer: every file of the folders named, once. So compilers and builds that cannot fuzz run the kept inputs.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int main(int argc, char **argv) {
  std::vector<std::filesystem::path> files;
  std::error_code ec;
  for (int i = 1; i < argc; i++)
    for (const auto &entry : std::filesystem::directory_iterator(argv[i], ec)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  if (files.empty()) return std::fprintf(stderr, "no inputs\n"), 1;
  for (const auto &path : files) {
    std::fprintf(stderr, "%s\n", path.filename().c_str()); // the last one is to blame for what follows
    std::ifstream in(path, std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(in), {}};
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size());
  }
  std::fprintf(stderr, "%zu inputs\n", files.size());
  return 0;
}
