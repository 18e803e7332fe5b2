// One rank of the collnet measurements: collnet_rank BYTES ROUNDS OUTSTANDING. Sums floats, ROUNDS times OUTSTANDING
// operations, so many of them outstanding at any time, and prints "rank algo us/operation out/message in/message why", the last
// three from the counters of interface veth0 and from explain. Exit 1: a call failed or a result is wrong.
#include "tutti/tutti.h"
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

namespace {

uint64_t counted(const char *what) {
  uint64_t n = 0;
  std::ifstream("/sys/class/net/veth0/statistics/" + std::string(what)) >> n;
  return n;
}

// The text of a JSON string member, or "" where it is none.
std::string member(const std::string &json, const std::string &name, size_t from = 0) {
  const std::string key = "\"" + name + "\":\"";
  const size_t at = json.find(key, from);
  if (at == std::string::npos) return "";
  std::string out;
  for (size_t i = at + key.size(); i < json.size() && json[i] != '"'; i++) {
    if (json[i] == '\\') i++;
    out += json[i];
  }
  return out;
}

#define MUST(call)                                                                                                             \
  do {                                                                                                                         \
    if ((call) != tuttiSuccess) {                                                                                              \
      std::fprintf(stderr, "%s: %s\n", #call, tuttiGetLastError(comm));                                                        \
      return 1;                                                                                                                \
    }                                                                                                                          \
  } while (0)

} // namespace

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  const size_t count = std::strtoull(argv[1], nullptr, 0) / sizeof(float);
  const int rounds = std::atoi(argv[2]), outstanding = std::atoi(argv[3]);
  tuttiComm_t comm = nullptr;
  int rank = 0, n = 0;
  MUST(tuttiCommInitFromEnv(&comm, nullptr));
  MUST(tuttiCommUserRank(comm, &rank));
  MUST(tuttiCommCount(comm, &n));
  std::vector<float> in(count * static_cast<size_t>(outstanding)), out(in.size());
  for (size_t i = 0; i < in.size(); i++) in[i] = static_cast<float>(rank + static_cast<int>(i % 16));
  std::vector<tuttiWork_t> works(static_cast<size_t>(outstanding));
  const auto run = [&](int times) -> int {
    for (int t = 0; t < times; t++)
      for (size_t o = 0; o < works.size(); o++) {
        if (t > 0) {
          MUST(tuttiWorkWait(works[o]));
          MUST(tuttiWorkDestroy(works[o]));
        }
        MUST(tuttiAllReduce(&in[o * count], &out[o * count], count, tuttiFloat32, tuttiSum, comm, nullptr));
        MUST(tuttiCommGetLastWork(comm, &works[o]));
      }
    MUST(tuttiCommSynchronize(comm));
    for (const tuttiWork_t w : works) MUST(tuttiWorkDestroy(w));
    return 0;
  };
  if (run(rounds / 10 + 1)) return 1;
  for (size_t i = 0; i < out.size(); i++)
    if (out[i] != static_cast<float>(n * (n - 1) / 2 + n * static_cast<int>(i % 16))) {
      std::fprintf(stderr, "rank %d: element %zu is %g\n", rank, i, static_cast<double>(out[i]));
      return 1;
    }
  MUST(tuttiBarrier(comm, nullptr));
  MUST(tuttiCommSynchronize(comm));
  const uint64_t tx = counted("tx_bytes"), rx = counted("rx_bytes");
  const auto start = std::chrono::steady_clock::now();
  if (run(rounds)) return 1;
  const double us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  MUST(tuttiBarrier(comm, nullptr)); // what is still to be sent has been
  MUST(tuttiCommSynchronize(comm));
  const double operations = static_cast<double>(rounds) * outstanding,
               bytes = operations * static_cast<double>(count * sizeof(float));
  std::vector<char> text(1 << 18);
  MUST(tuttiCommExplain(comm, "all_reduce", count, tuttiFloat32, text.data(), text.size()));
  const std::string json(text.data());
  const std::string refused = member(json, "refused", json.find("\"algo\":\"collnet_direct\"", json.find("\"ways\"")));
  const std::string why = member(json, "why", json.find("\"collnet\":{"));
  std::printf("%d %s %.2f %.4f %.4f %s\n", rank, member(json, "algo").c_str(), us / operations,
              static_cast<double>(counted("tx_bytes") - tx) / bytes, static_cast<double>(counted("rx_bytes") - rx) / bytes,
              refused.empty() ? why.c_str() : refused.c_str());
  MUST(tuttiCommDestroy(comm));
  return 0;
}
