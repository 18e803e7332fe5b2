#include "operations.h"
#include <doctest/doctest.h>
#include <thread>
#include <tutti/tutti.hpp>

using namespace support;

TEST_CASE("a stream orders operations of two communicators") {
  CHECK(run_threads(2, [](Rank &r) {
          tuttiComm_t other = nullptr;
          tuttiStream_t stream = nullptr;
          EXPECT_OK(r, tuttiCommSplit(r.comm, 0, r.rank, &other, nullptr));
          EXPECT_OK(r, tuttiStreamCreate(&stream));
          std::vector<double> x(30'000, 1);
          for (int i = 0; i < 6; i++) // each needs the result of the one before
            EXPECT_OK(r, tuttiAllReduce(x.data(), x.data(), x.size(), tuttiFloat64, tuttiSum, i % 2 ? other : r.comm, stream));
          EXPECT_OK(r, tuttiStreamSynchronize(stream));
          EXPECT(r, tuttiStreamQuery(stream) == tuttiSuccess);
          for (double v : x)
            if (!EXPECT(r, v == 64)) break;
          EXPECT_OK(r, tuttiStreamDestroy(stream));
          EXPECT_OK(r, tuttiCommDestroy(other));
        }) == 0);
}
TEST_CASE("events and work handles complete when their operation has") {
  CHECK(run_threads(3, [](Rank &r) {
          tuttiEvent_t event = nullptr;
          tuttiWork_t work = nullptr;
          int x = 1;
          EXPECT_OK(r, tuttiEventCreate(&event));
          EXPECT_OK(r, tuttiEventSynchronize(event)); // nothing recorded
          EXPECT_OK(r, tuttiAllReduce(&x, &x, 1, tuttiInt32, tuttiSum, r.comm, nullptr));
          EXPECT_OK(r, tuttiCommGetLastWork(r.comm, &work));
          EXPECT_OK(r, tuttiEventRecord(event, r.comm, nullptr));
          EXPECT_OK(r, tuttiWorkWait(work));
          EXPECT(r, x == 3);
          EXPECT_OK(r, tuttiEventSynchronize(event));
          EXPECT(r, tuttiWorkTest(work) == tuttiSuccess && tuttiEventQuery(event) == tuttiSuccess);
          EXPECT_OK(r, tuttiWorkDestroy(work));
          EXPECT_OK(r, tuttiEventDestroy(event));
        }) == 0);
}
TEST_CASE("polling alone completes an operation") {
  CHECK(run_threads(2, [](Rank &r) {
          tuttiStream_t stream = nullptr;
          EXPECT_OK(r, tuttiStreamCreate(&stream));
          std::vector<float> x(100'000, 2);
          EXPECT_OK(r, tuttiAllReduce(x.data(), x.data(), x.size(), tuttiFloat32, tuttiProd, r.comm, stream));
          tuttiResult_t q;
          while ((q = tuttiStreamQuery(stream)) == tuttiInProgress) std::this_thread::yield();
          EXPECT_OK(r, q);
          EXPECT(r, x.front() == 4 && x.back() == 4);
          EXPECT_OK(r, tuttiStreamDestroy(stream));
        }) == 0);
}
TEST_CASE("the C++ header runs a program and turns errors into exceptions") {
  Watchdog dog("tutti.hpp", std::chrono::seconds(30));
  auto comms = tutti::Comm::all(2);
  std::vector<std::thread> threads;
  std::vector<float> sums(2);
  for (auto &c : comms)
    threads.emplace_back([&c, &sums] {
      std::vector<float> x(10, 1.5f);
      c.all_reduce(x, x, tutti::Op::sum);
      c.last_work().wait();
      sums[static_cast<size_t>(c.rank())] = x[9];
    });
  for (auto &t : threads) t.join();
  CHECK(sums == std::vector<float>{3, 3});
  std::vector<float> small(3), big(5);
  CHECK_THROWS_AS(comms[0].all_reduce(small, big, tutti::Op::sum), tutti::Error);
  try {
    comms[0].broadcast(small, 7);
    CHECK(false);
  } catch (const tutti::Error &e) {
    CHECK(e.code() == tuttiInvalidArgument);
    CHECK(std::string(e.what()).find("root 7") != std::string::npos);
  }
}
TEST_CASE("a non-blocking set-up is polled until it is done") {
  CHECK(run_processes(3, {.init = false}, [](Rank &r, const tuttiUniqueId &id) {
          tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
          config.blocking = 0;
          EXPECT(r, tuttiCommInitRankConfig(&r.comm, r.n, id, r.rank, &config) == tuttiInProgress);
          tuttiResult_t state = tuttiInProgress;
          while (state == tuttiInProgress) {
            EXPECT_OK(r, tuttiCommGetAsyncError(r.comm, &state));
            std::this_thread::yield();
          }
          EXPECT_OK(r, state);
          run_all(r, {100}, false);
        }) == 0);
}
