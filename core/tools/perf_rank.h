// tutti/core/tools/perf_rank.h: one rank of the performance test: buffers, data, timing.
#pragma once
#include "tools/job.h"
#include "tools/map_data.h"
#include "tools/perf.h"
#include <atomic>
#include <functional>
#include <memory>

namespace tutti::tools::perf {

// Memory for one direction, with a guard behind the part in use.
class Buffer {
public:
  Buffer(size_t bytes, bool from_library);
  ~Buffer();
  Buffer(const Buffer &) = delete;
  Buffer &operator=(const Buffer &) = delete;
  char *at(size_t offset) const { return start_ + offset; }

private:
  char *start_ = nullptr;
  bool from_library_;
};

class Rank {
public:
  Rank(const Args &args, int process, int processes, int rank, int nranks, tuttiComm_t world)
      : args_(args), op_(*find_operation(args.op)), process_(process), processes_(processes), rank_(rank), nranks_(nranks),
        world_(world) {}
  ~Rank();
  Rank(const Rank &) = delete;
  Rank &operator=(const Rank &) = delete;
  // The whole test. `row_started` is set to the time (steady clock, ns) at which the current row began. Returns the exit code.
  int run(std::atomic<int64_t> &row_started);

private:
  void split_groups();
  void allocate();
  std::vector<Device> gather_devices();
  void scan(tuttiDataType_t type, int op, int root, std::atomic<int64_t> &row_started);
  Row measure_row(uint64_t bytes, tuttiDataType_t type, int op, int root);
  Timing measure(const Shape &shape, tuttiDataType_t type, int op, int root, bool in_place);
  void time_loop(const Call &call, Timing *timing);
  int64_t check(const Call &call, int op, uint64_t seed);
  void time_iterations(const Call &call, Timing *timing);
  Overlap measure_overlap(const Call &call); // perf_overlap.cc
  double median_iteration(const std::function<void()> &body);
  void start(const Call &call);
  void iteration(const Call &call);
  void wait();
  void barrier();
  Call make_call(const Shape &shape, tuttiDataType_t type, int op, int root, bool in_place);
  void make_premul(tuttiDataType_t type);
  Explained explain(const Row &row, const Shape &shape);
  void report_memory();
  void count_traffic(const Call &call); // perf_map.cc
  bool write_heatmap();
  std::vector<char> gather(const void *mine, size_t bytes); // of all ranks of the world
  template <class T> std::vector<T> gather_values(const T &mine);

  const Args &args_;
  const Operation &op_;
  int process_, processes_, rank_, nranks_;
  tuttiComm_t world_ = nullptr, comm_ = nullptr; // comm_ == world_ without NCCL_TESTS_SPLIT
  int group_ = 0, group_rank_ = 0, group_size_ = 0, largest_group_ = 0;
  tuttiStream_t stream_ = nullptr;
  tuttiRedOp_t premul_ = tuttiSum;
  size_t capacity_ = 0; // bytes of each buffer
  uint64_t rows_ = 0;
  std::unique_ptr<Buffer> send_, recv_;
  std::unique_ptr<Report> report_; // rank 0
  commmap::Map moved_;             // for --heatmap: this rank's part of comm_
};

} // namespace tutti::tools::perf
