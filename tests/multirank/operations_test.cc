#include "operations.h"
#include <cstdlib>
#include <cstring>
#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace support;

namespace {

// Around slots and their lines, odd, and long enough for many slices.
std::vector<size_t> counts() {
  std::vector<size_t> out{0, 1, 3, 14, 15, 257, 2048, 2049, 4097, 40'001};
  if (full()) out.insert(out.end(), {7, 16, 17, 1023, 16'384, 16'385, 262'145, 1'000'003});
  return out;
}

// A long buffer whose every piece is the same memory.
class Far {
public:
  static constexpr size_t kPiece = 32 << 20;
  explicit Far(size_t bytes) : bytes_((bytes + kPiece - 1) / kPiece * kPiece) {
    const int fd = memfd_create("far", 0);
    if (fd < 0 || ftruncate(fd, kPiece) != 0) return;
    void *at = mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return;
    data_ = static_cast<char *>(at);
    for (size_t i = 0; i < bytes_; i += kPiece)
      (void)mmap(data_ + i, kPiece, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
    close(fd);
  }
  ~Far() {
    if (data_) munmap(data_, bytes_);
  }
  Far(const Far &) = delete;
  Far &operator=(const Far &) = delete;
  char *data() const { return data_; }

private:
  size_t bytes_;
  char *data_ = nullptr;
};

void everything(Rank &r) {
  run_all(r, counts(), full());
}
void types(Rank &r) {
  run_all(r, {1, 5, 2500}, true);
}

} // namespace

TEST_CASE("every operation is right for every number of threads up to eight and for thirteen") {
  for (int n : {1, 2, 3, 4, 5, 7, 8, 13}) CHECK_MESSAGE(run_threads(n, everything) == 0, n);
}
TEST_CASE("every type and reduction is right on three threads") {
  CHECK(run_threads(3, types) == 0);
}
TEST_CASE("every operation is right over shared memory") {
  CHECK(run_processes(2, everything) == 0);
  CHECK(run_processes(4, everything) == 0);
}
TEST_CASE("every type and reduction is right over shared memory") {
  CHECK(run_processes(2, types) == 0);
}
TEST_CASE("every type and reduction is right over sockets") {
  CHECK(run_processes(2, [](Rank &r) { run_all(r, {5, 2500}, true); }, {.env = {"TUTTI_SHM_DISABLE=1"}}) == 0);
}
TEST_CASE("every operation is right over sockets") {
  CHECK(run_processes(2, everything, {.env = {"TUTTI_SHM_DISABLE=1"}}) == 0);
  CHECK(run_processes(3, everything, {.env = {"TUTTI_SHM_DISABLE=1"}}) == 0);
}
TEST_CASE("every operation is right with any algorithm that supports it") {
  for (const char *algo :
       {"TUTTI_ALGO=^ring", "TUTTI_ALGO=allreduce:ring;allgather:ring;reducescatter:ring;broadcast:ring;reduce:ring"})
    CHECK_MESSAGE(run_processes(4, everything, {.env = {algo}}) == 0, algo);
}
TEST_CASE("several channels give the same results") {
  CHECK(run_processes(3, everything, {.env = {"TUTTI_MIN_CHANNELS=3"}}) == 0);
}
TEST_CASE("several MiB are right on two processes") {
  CHECK(run_processes(2, [](Rank &r) {
          for (Coll c : kAllColls) run_case(r, {c, tuttiFloat32, tuttiSum, (3u << 20) + 7});
        }) == 0);
}
// Buffers whose pages are one small piece of memory, mapped again and again: 2^31 elements need no 2 GiB.
TEST_CASE("counts beyond 2^31 move every element") {
  if (!full()) return;
  constexpr size_t count = (1ull << 31) + 3;
  const auto far = [](Rank &r) {
    Far in(count), out(count);
    if (!EXPECT(r, in.data() && out.data())) return;
    std::memset(in.data(), r.rank + 1, Far::kPiece);
    EXPECT_OK(r, tuttiBroadcast(in.data(), out.data(), count, tuttiInt8, 1, r.comm, nullptr));
    EXPECT_OK(r, tuttiCommSynchronize(r.comm));
    EXPECT(r, out.data()[0] == 2 && out.data()[count - 1] == 2);
    EXPECT_OK(r, tuttiAllReduce(in.data(), out.data(), count, tuttiInt8, tuttiSum, r.comm, nullptr));
    EXPECT_OK(r, tuttiCommSynchronize(r.comm));
    EXPECT(r, out.data()[0] == 3 && out.data()[count - 1] == 3);
  };
  CHECK(run_threads(2, far, std::chrono::seconds(200)) == 0);
}
