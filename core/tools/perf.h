// tutti/core/tools/perf.h: `tutti perf OP`: what the parts of the performance test share.
#pragma once
#include "base/status.h"
#include "tools/perf_expect.h"
#include "tutti/tutti.h"
#include <cstdint>
#include <string>
#include <vector>

namespace tutti::tools::perf {

constexpr int kPremul = tuttiNumOps; // "mulsum"

struct Args {
  std::string op;
  int ranks = 0, threads = 1, gpus = 1, roots = 1;
  uint64_t min_bytes = 32u << 20, max_bytes = 32u << 20, step_bytes = 1u << 20;
  uint64_t factor = 0; // 0 = additive steps
  int iters = 20, warmup = 1, agg = 1, cycles = 1;
  std::vector<int> ops{tuttiSum}; // tuttiSum .. tuttiAvg, kPremul
  std::vector<tuttiDataType_t> types{tuttiFloat32};
  int root = 0; // -1 = all, one after the other
  int parallel_init = 0, check = 1, blocking = 0, null_stream = 0, timeout = 0;
  bool cpu_time = false, timestamps = false, memory = false, explain = false, overlap = false;
  std::string json, expect;
  std::vector<std::string> heatmap; // files
  int average = 1, local_register = 0, unalign = 0;
  bool per_iter = false;
  int skip = 0;
  std::vector<PassLine> pass_lines; // --expect
  double min_bandwidth = -1;        // NCCL_TESTS_MIN_BW, GB/s; < 0 = none
  int progress_fd = -1;             // a terminal besides stdout and stderr, from the built-in launch
  std::vector<std::string> words;   // the command line, for the JSON file
};
// 0: go on with *args; otherwise an exit code, +1 for "help was printed": see perf_args.cc.
struct Parsed {
  bool run = false;
  int exit_code = 0;
};
Parsed parse_args(int argc, char **argv, Args *args);

// One stretch of a buffer: n elements from `at`, made of rank `from`'s data starting at element `first`; from < 0: the
// reduction of all ranks' data.
struct Piece {
  uint64_t at = 0, n = 0;
  int from = 0;
  uint64_t first = 0;
};

// How an operation of one size uses this rank's buffers. Counts are elements.
struct Shape {
  uint64_t param = 0;                // the count of the call
  uint64_t send = 0, recv = 0;       // elements in the buffers of this rank
  uint64_t reported = 0;             // elements that the size column stands for
  uint64_t send_at = 0, recv_at = 0; // in place: where both start in the one buffer
  std::vector<Piece> input, result;
  std::vector<uint64_t> send_counts, send_at_peer, recv_counts, recv_at_peer; // alltoallv
  std::vector<uint64_t> block_counts, block_at;                               // all_gather_v, reduce_scatter_v
};

struct Call {
  const void *send;
  void *recv;
  const Shape *shape;
  tuttiDataType_t type;
  tuttiRedOp_t op;
  int root;
  int rank, nranks;
  tuttiComm_t comm;
  tuttiStream_t stream;
  bool in_place;
};

// Bus bandwidth over algorithm bandwidth.
struct BusFactor {
  const char *formula; // of n ranks
  double (*of)(int nranks);
};

// One of the tested operations.
struct Operation {
  const char *name;
  bool reduces, has_root, has_in_place, has_data;
  // elements: the size asked for. v: see alltoallv_counts.
  Shape (*shape)(uint64_t elements, size_t element_bytes, int rank, int nranks, int root);
  tuttiResult_t (*run)(const Call &call);
  BusFactor factor;
  bool power_of_two; // needs such a number of ranks
};
const Operation *find_operation(std::string_view name);
std::vector<const Operation *> all_operations();
// A variable's value, or the fallback when it is not set or empty.
Result<double> number_setting(const char *name, double fallback, double low, double high);
// The settings of NCCL_TESTS_ALLTOALLV_*; read before the first shape is made.
Status load_alltoallv_settings(int nranks);
std::string alltoallv_summary(uint64_t elements, size_t element_bytes, int nranks);
bool alltoallv_summary_wanted();

const char *type_name(tuttiDataType_t type);
size_t type_bytes(tuttiDataType_t type);
const char *op_name(int op);

// One placement of one row.
struct Timing {
  bool valid = false;                           // false: this placement does not exist
  double seconds = 0;                           // per operation, averaged over ranks as -a says
  double alg_bw = 0, bus_bw = 0;                // GB/s
  int64_t wrong = -1;                           // -1 = not checked
  std::vector<double> per_iter;                 // seconds, the slowest rank of each iteration
  std::vector<std::vector<double>> per_process; // the same within each process
};
// One row of --overlap: seconds per operation, alone, beside a computation, and that alone.
struct Overlap {
  bool valid = false;
  double comm = 0, compute = 0, both = 0;
  double hidden_percent() const; // of the shorter of the two, from 0 to 100
};
struct Explained {
  std::string algo = "-", proto = "-", transport = "-";
  std::string link; // slowest kind
  int64_t channels = 0, slot = 0, depth = 0;
  std::string decided;                      // by whom: "tuner table tuned.toml:12"
  double predicted_us = 0, measured_us = 0; // by the model, and where the table has it; 0 = not known
  std::string determinism;                  // what coll.deterministic excludes and why; "" = it is off
};
struct Row {
  uint64_t asked = 0, bytes = 0, count = 0; // asked: before it was cut to whole parts
  tuttiDataType_t type = tuttiFloat32;
  int op = -1, root = -1;
  Timing out, in;
  Explained explained;
  Overlap overlap; // out of place
  std::string timestamp;
};
struct Stats {
  double min = 0, max = 0, avg = 0, p50 = 0, p95 = 0, p99 = 0, stdev = 0, cv = 0;
};
Stats stats_of(std::vector<double> values);

struct Device { // one rank, as the table above the results shows it
  int32_t rank, group, pid, process;
  char host[64], cpu[64];
};

// Writes the table and the JSON file. Used by rank 0 only.
class Report {
public:
  Report(const Args &args, int nranks, int processes, std::vector<Device> devices);
  void header() const;
  void row(const Row &row);
  void progress(const Row &next, std::string_view doing); // on a terminal, once the test takes more than a few seconds
  void memory(uint64_t bytes, uint64_t fds) const;
  int footer(); // the exit code

private:
  void clear_progress();
  bool write_json(const std::string &end_time, bool right, bool fast, double average) const;
  const Args &args_;
  int nranks_, processes_;
  std::vector<Device> devices_;
  std::vector<Row> rows_;
  PassCheck pass_;
  std::string start_time_;
  uint64_t wrong_ = 0;
  double started_ = 0, bandwidth_ = 0;
  uint64_t bandwidths_ = 0;
  int progress_fd_ = -1; // a terminal, or -1
  bool progress_shown_ = false;
};

// This process's ranks, until the test is over. Returns the exit code.
int run_ranks(const Args &args);

} // namespace tutti::tools::perf
