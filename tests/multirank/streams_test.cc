#include "operations.h"
#include <atomic>
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
TEST_CASE("NULL stands for the own streams of all communicators that this thread has used") {
  CHECK(run_threads(2, [](Rank &r) {
          EXPECT_OK(r, tuttiStreamSynchronize(nullptr)); // nothing enqueued
          EXPECT_OK(r, tuttiStreamQuery(nullptr));
          std::vector<tuttiComm_t> comms(3);
          for (auto &c : comms) EXPECT_OK(r, tuttiCommSplit(r.comm, 0, r.rank, &c, nullptr));
          std::vector<std::vector<int>> x(3, std::vector<int>(50'000, 1));
          for (int round = 1; round <= 3; round++) {
            for (size_t i = 0; i < 3; i++)
              EXPECT_OK(r, tuttiAllReduce(x[i].data(), x[i].data(), x[i].size(), tuttiInt32, tuttiSum, comms[i], nullptr));
            EXPECT_OK(r, tuttiStreamSynchronize(nullptr));
            for (const auto &v : x) EXPECT(r, v.front() == 1 << round && v.back() == 1 << round);
          }
          EXPECT_OK(r, tuttiCommDestroy(comms[0])); // needs no waiting for any more
          EXPECT_OK(r, tuttiAllReduce(x[2].data(), x[2].data(), 1, tuttiInt32, tuttiSum, comms[2], nullptr));
          EXPECT_OK(r, tuttiStreamSynchronize(nullptr));
          EXPECT(r, x[2].front() == 16);
          EXPECT_OK(r, tuttiGroupStart());
          EXPECT(r, tuttiStreamSynchronize(nullptr) == tuttiInvalidUsage);
          EXPECT(r, std::string(tuttiGetLastError(nullptr)).find("group") != std::string::npos);
          EXPECT(r, tuttiGroupEnd() == tuttiInvalidUsage);
          for (size_t i = 1; i < 3; i++) EXPECT_OK(r, tuttiCommDestroy(comms[i]));
        }) == 0);
}
TEST_CASE("an event of one communicator orders the work of another") {
  CHECK(run_threads(2, [](Rank &r) {
          tuttiComm_t other = nullptr;
          tuttiStream_t stream = nullptr;
          tuttiEvent_t event = nullptr;
          EXPECT_OK(r, tuttiCommSplit(r.comm, 0, r.rank, &other, nullptr));
          EXPECT_OK(r, tuttiStreamCreate(&stream));
          EXPECT_OK(r, tuttiEventCreate(&event));
          std::vector<double> x(30'000, 1);
          for (int i = 0; i < 3; i++) {
            EXPECT_OK(r, tuttiAllReduce(x.data(), x.data(), x.size(), tuttiFloat64, tuttiSum, r.comm, nullptr));
            EXPECT_OK(r, tuttiEventRecord(event, r.comm, nullptr));
            EXPECT_OK(r, tuttiStreamWaitEvent(stream, event));
            EXPECT_OK(r, tuttiAllReduce(x.data(), x.data(), x.size(), tuttiFloat64, tuttiSum, other, stream));
            EXPECT_OK(r, tuttiStreamSynchronize(stream));
          }
          EXPECT(r, x.front() == 64 && x.back() == 64);
          EXPECT_OK(r, tuttiEventDestroy(event));
          EXPECT_OK(r, tuttiStreamDestroy(stream));
          EXPECT_OK(r, tuttiCommDestroy(other));
        }) == 0);
}
TEST_CASE("what failed on a stream fails what comes after it, on every rank, and stays on the stream") {
  std::atomic<bool> enqueued{false};
  CHECK(run_threads(2, [&](Rank &r) {
          tuttiComm_t other = nullptr;
          tuttiStream_t stream = nullptr;
          EXPECT_OK(r, tuttiCommSplit(r.comm, 0, r.rank, &other, nullptr));
          EXPECT_OK(r, tuttiStreamCreate(&stream));
          float x = 1, y = 1;
          if (r.rank == 0) {
            EXPECT_OK(r, tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, r.comm, stream)); // rank 1 never joins
            EXPECT_OK(r, tuttiAllReduce(&y, &y, 1, tuttiFloat32, tuttiSum, other, stream));
            enqueued = true;
            enqueued.notify_all();
          } else {
            enqueued.wait(false);
            EXPECT_OK(r, tuttiAllReduce(&y, &y, 1, tuttiFloat32, tuttiSum, other, stream));
            tuttiCommAbort(r.comm);
          }
          for (int i = 0; i < 2; i++) EXPECT(r, tuttiStreamSynchronize(stream) != tuttiSuccess);
          EXPECT(r, tuttiStreamQuery(stream) != tuttiSuccess && tuttiStreamQuery(stream) != tuttiInProgress);
          EXPECT(r, tuttiCommSynchronize(other) != tuttiSuccess);
          EXPECT(r, y == 1);
          const std::string why = tuttiGetLastError(other);
          if (!EXPECT(r, why.find("what was on its stream before has failed") != std::string::npos))
            std::fprintf(stderr, "%s\n", why.c_str());
          tuttiCommAbort(other);
          if (r.rank == 0) tuttiCommAbort(r.comm);
          r.comm = nullptr;
          EXPECT(r, tuttiStreamSynchronize(stream) != tuttiSuccess);
          EXPECT_OK(r, tuttiStreamDestroy(stream));
        }) == 0);
}
TEST_CASE("a stream that two threads share forgets nothing that either enqueued") {
  Watchdog dog("a shared stream", std::chrono::seconds(60));
  tuttiComm_t comms[2];
  tuttiStream_t stream = nullptr;
  for (auto &c : comms) REQUIRE(tuttiCommInitAll(&c, 1, nullptr) == tuttiSuccess);
  REQUIRE(tuttiStreamCreate(&stream) == tuttiSuccess);
  constexpr size_t count = 100'000;
  std::vector<int> in[2], out[2];
  for (int round = 1; round <= 40; round++) {
    std::vector<std::thread> threads;
    for (size_t i = 0; i < 2; i++)
      threads.emplace_back([&, i] {
        in[i].assign(count, round);
        out[i].assign(count, 0);
        for (int k = 0; k < 10; k++) tuttiAllReduce(in[i].data(), out[i].data(), count, tuttiInt32, tuttiSum, comms[i], stream);
      });
    for (auto &t : threads) t.join();
    REQUIRE(tuttiStreamSynchronize(stream) == tuttiSuccess);
    for (auto c : comms) { // complete without being waited for themselves
      tuttiEvent_t event = nullptr;
      REQUIRE(tuttiEventCreate(&event) == tuttiSuccess);
      REQUIRE(tuttiEventRecord(event, c, nullptr) == tuttiSuccess);
      CHECK(tuttiEventQuery(event) == tuttiSuccess);
      REQUIRE(tuttiEventDestroy(event) == tuttiSuccess);
    }
    CHECK((out[0].back() == round && out[1].back() == round));
  }
  CHECK(tuttiStreamDestroy(stream) == tuttiSuccess);
  for (auto c : comms) CHECK(tuttiCommDestroy(c) == tuttiSuccess);
}
TEST_CASE("polling a stream moves what its operation waits for, without a progress thread too") {
  CHECK(run_processes(2,
                      [](Rank &r) {
                        tuttiComm_t other = nullptr;
                        tuttiStream_t stream = nullptr;
                        EXPECT_OK(r, tuttiCommSplit(r.comm, 0, r.rank, &other, nullptr));
                        EXPECT_OK(r, tuttiStreamCreate(&stream));
                        std::vector<float> x(50'000, 1);
                        EXPECT_OK(r, tuttiAllReduce(x.data(), x.data(), x.size(), tuttiFloat32, tuttiSum, r.comm, stream));
                        EXPECT_OK(r, tuttiAllReduce(x.data(), x.data(), x.size(), tuttiFloat32, tuttiSum, other, stream));
                        tuttiResult_t q;
                        while ((q = tuttiStreamQuery(stream)) == tuttiInProgress) std::this_thread::yield();
                        EXPECT_OK(r, q);
                        EXPECT(r, x.front() == 4 && x.back() == 4);
                        EXPECT_OK(r, tuttiStreamDestroy(stream));
                        EXPECT_OK(r, tuttiCommDestroy(other));
                      },
                      {.env = {"TUTTI_PROGRESS_THREAD=0"}}) == 0);
}
