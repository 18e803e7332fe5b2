#include "tools/perf_rank.h"
#include "tools/cli.h"
#include "tools/data.h"
#include "tools/explained.h"
#include "topology/detect.h"
#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sys/mman.h>
#include <unistd.h>

namespace tutti::tools::perf {
namespace {

using SteadyClock = std::chrono::steady_clock;
constexpr size_t kGuard = 64; // bytes behind a result that must stay as they were
constexpr char kPoison = '\x5a';
constexpr uint64_t kCheckElements = 64 * 1024; // verified at a time

double seconds_since(SteadyClock::time_point t) {
  return std::chrono::duration<double>(SteadyClock::now() - t).count();
}

// The color of a rank from NCCL_TESTS_SPLIT or NCCL_TESTS_SPLIT_MASK; 0 for all when neither is set.
Result<int> split_color(int rank) {
  std::string text;
  if (const char *mask = std::getenv("NCCL_TESTS_SPLIT_MASK"); mask && *mask) text = fmt::format("AND {}", mask);
  if (const char *split = std::getenv("NCCL_TESTS_SPLIT"); split && *split) text = split;
  if (text.empty()) return 0;
  const auto bad = [&] {
    return fail(Code::invalid_argument, "NCCL_TESTS_SPLIT=\"{}\": AND, OR, MOD or DIV (or & | % /) and a number", text);
  };
  static constexpr struct {
    std::string_view word;
    char symbol;
  } kOps[] = {{"AND", '&'}, {"OR", '|'}, {"MOD", '%'}, {"DIV", '/'}};
  std::string_view rest(text);
  char op = 0;
  for (const auto &o : kOps) {
    if (rest.starts_with(o.word))
      op = o.symbol, rest.remove_prefix(o.word.size());
    else if (rest.starts_with(o.symbol))
      op = o.symbol, rest.remove_prefix(1);
    if (op) break;
  }
  while (rest.starts_with(' ')) rest.remove_prefix(1);
  const bool binary = rest.starts_with("0b");
  if (binary) rest.remove_prefix(2);
  char *end = nullptr;
  const std::string digits(rest);
  const long value = std::strtol(digits.c_str(), &end, binary ? 2 : 0);
  if (!op || digits.empty() || *end || value < 0 || value > INT32_MAX || ((op == '%' || op == '/') && value == 0)) return bad();
  const int v = static_cast<int>(value);
  return op == '&' ? rank & v : op == '|' ? rank | v : op == '%' ? rank % v : rank / v;
}

uint64_t checksum(const char *p, size_t bytes) { // sees that something changed; not where
  uint64_t sum = 0, word = 0;
  for (; bytes >= 8; p += 8, bytes -= 8) std::memcpy(&word, p, 8), sum = std::rotl(sum, 7) + word;
  std::memcpy(&(word = 0), p, bytes);
  return sum + word;
}

std::vector<uint64_t> sizes_of(const Args &a, const Operation &op) {
  if (!op.has_data) return {0};
  std::vector<uint64_t> out;
  for (uint64_t s = a.min_bytes; s <= a.max_bytes;) {
    out.push_back(s);
    const uint64_t next = a.factor ? s * a.factor : s + a.step_bytes;
    if (next <= s) break;
    s = next;
  }
  return out;
}

std::string text_of(const nlohmann::json &j, std::initializer_list<const char *> keys) {
  for (const char *k : keys) {
    if (!j.contains(k)) continue;
    const auto &v = j[k];
    if (v.is_string()) return v.get<std::string>();
    if (v.is_array()) {
      std::string out;
      for (const auto &e : v) out += (out.empty() ? "" : "+") + (e.is_string() ? e.get<std::string>() : e.dump());
      return out;
    }
    if (v.is_object()) {
      std::string out;
      for (const auto &[name, value] : v.items()) out += (out.empty() ? "" : "+") + name;
      return out;
    }
    return v.dump();
  }
  return "-";
}
int64_t number_of(const nlohmann::json &j, std::initializer_list<const char *> keys) {
  for (const char *k : keys)
    if (j.contains(k) && j[k].is_number()) return j[k].get<int64_t>();
  return 0;
}

// What the setting leaves, and each excluded algorithm with the reason.
std::string determinism_of(const nlohmann::json &explanation) {
  if (text_of(explanation, {"deterministic"}) == "off" || !explanation.contains("ways")) return "";
  std::string out;
  for (const auto &way : explanation["ways"]) {
    const std::string reason = way.value("refused", "");
    if (!reason.starts_with("deterministic")) continue;
    const std::string text = fmt::format("{}: {}", way.value("algo", ""), reason.substr(reason.find("): ") + 3));
    if (out.find(text) == std::string::npos) out += (out.empty() ? "" : "; ") + text;
  }
  return fmt::format("{}: excluded are {}", text_of(explanation, {"deterministic"}), out.empty() ? "none" : out);
}

} // namespace

Buffer::Buffer(size_t bytes, bool from_library) : from_library_(from_library) {
  void *p = nullptr;
  if (from_library)
    require(tuttiMemAlloc(&p, bytes), nullptr, "allocating buffers");
  else if (!(p = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096)))
    throw Failure{fmt::format("cannot allocate a buffer of {} bytes; ask for smaller sizes with -e", bytes)};
  start_ = static_cast<char *>(p);
  std::memset(start_, 0, bytes); // every page exists before anything is timed
}
Buffer::~Buffer() {
  if (from_library_)
    (void)tuttiMemFree(start_);
  else
    std::free(start_);
}

Rank::~Rank() {
  if (stream_) (void)tuttiStreamDestroy(stream_);
}

std::vector<char> Rank::gather(const void *mine, size_t bytes) {
  std::vector<char> all(bytes * static_cast<size_t>(nranks_));
  require(tuttiAllGather(mine, all.data(), bytes, tuttiUint8, world_, stream_), world_, "collecting results");
  require(stream_ ? tuttiStreamSynchronize(stream_) : tuttiCommSynchronize(world_), world_, "collecting results");
  return all;
}
template <class T> std::vector<T> Rank::gather_values(const T &mine) {
  const auto raw = gather(&mine, sizeof mine);
  std::vector<T> out(static_cast<size_t>(nranks_));
  std::memcpy(out.data(), raw.data(), raw.size());
  return out;
}

void Rank::wait() {
  const tuttiResult_t r = stream_ ? tuttiStreamSynchronize(stream_) : tuttiCommSynchronize(comm_);
  if (r != tuttiSuccess) require(r, comm_, fmt::format("waiting for {}", args_.op));
}
void Rank::barrier() {
  require(tuttiBarrier(world_, stream_), world_, "in a barrier");
  require(stream_ ? tuttiStreamSynchronize(stream_) : tuttiCommSynchronize(world_), world_, "in a barrier");
}

void Rank::split_groups() {
  comm_ = world_;
  group_rank_ = rank_, group_size_ = largest_group_ = nranks_;
  const auto color = split_color(rank_);
  if (!color.ok()) throw Failure{color.status().error().line(), true};
  group_ = color.value();
  const auto colors = gather_values(group_);
  if (std::all_of(colors.begin(), colors.end(), [&](int c) { return c == group_; })) return;
  require(tuttiCommSplit(world_, group_, rank_, &comm_, nullptr), world_, "splitting into groups");
  require(tuttiCommUserRank(comm_, &group_rank_), comm_, "asking for the rank");
  require(tuttiCommCount(comm_, &group_size_), comm_, "asking for the size");
  const auto group_sizes = gather_values(group_size_);
  largest_group_ = *std::max_element(group_sizes.begin(), group_sizes.end());
}

void Rank::allocate() {
  size_t most = 0;
  for (auto type : args_.types)
    for (uint64_t bytes : sizes_of(args_, op_))
      for (int root : {0, group_rank_}) {
        const Shape s = op_.shape(bytes / type_bytes(type), type_bytes(type), group_rank_, group_size_, root);
        most = std::max<size_t>(most, std::max({s.send, s.recv, s.send_at + s.send, s.recv_at + s.recv}) * type_bytes(type));
      }
  capacity_ = most + static_cast<size_t>(args_.unalign) * 8 + kGuard;
  send_ = std::make_unique<Buffer>(capacity_, args_.local_register == 1);
  recv_ = std::make_unique<Buffer>(capacity_, args_.local_register == 1);
}

std::vector<Device> Rank::gather_devices() {
  Device mine{};
  mine.rank = rank_, mine.group = group_, mine.pid = getpid(), mine.process = process_;
  gethostname(mine.host, sizeof mine.host - 1);
  cpu_model().copy(mine.cpu, sizeof mine.cpu - 1);
  return gather_values(mine);
}

void Rank::make_premul(tuttiDataType_t type) {
  const int factor = static_cast<int>(data::premul_scalar(group_rank_));
  union {
    int8_t i8;
    int32_t i32;
    int64_t i64;
    uint16_t bits;
    float f;
    double d;
  } scalar{};
  switch (type) {
  case tuttiFloat32:
    scalar.f = static_cast<float>(factor);
    break;
  case tuttiFloat64:
    scalar.d = factor;
    break;
  case tuttiFloat16:
    scalar.bits = factor == 1 ? 0x3c00 : 0x4000;
    break;
  case tuttiBfloat16:
    scalar.bits = factor == 1 ? 0x3f80 : 0x4000;
    break;
  case tuttiFloat8e4m3:
    scalar.bits = factor == 1 ? 0x38 : 0x40;
    break;
  case tuttiFloat8e5m2:
    scalar.bits = factor == 1 ? 0x3c : 0x40;
    break;
  default:
    scalar.i64 = factor; // little-endian: the low bytes serve every integer type
  }
  require(tuttiRedOpCreatePreMulSum(&premul_, &scalar, type, comm_), comm_, "creating the pre-multiplied sum");
}

Call Rank::make_call(const Shape &shape, tuttiDataType_t type, int op, int root, bool in_place) {
  const size_t bytes = type_bytes(type), shift = static_cast<size_t>(args_.unalign) * bytes;
  Call c{};
  c.send = in_place ? recv_->at(shift + shape.send_at * bytes) : send_->at(shift);
  c.recv = in_place ? recv_->at(shift + shape.recv_at * bytes) : recv_->at(shift);
  c.shape = &shape, c.type = type, c.root = root;
  c.op = op == kPremul ? premul_ : static_cast<tuttiRedOp_t>(std::max(op, 0));
  c.rank = group_rank_, c.nranks = group_size_, c.comm = comm_, c.stream = stream_, c.in_place = in_place;
  return c;
}

void Rank::start(const Call &call) { // timed: the text is made for a failure only
  const tuttiResult_t r = op_.run(call);
  if (r != tuttiSuccess) require(r, comm_, fmt::format("starting {}", args_.op));
}

void Rank::iteration(const Call &call) {
  if (args_.agg > 1) require(tuttiGroupStart(), comm_, "opening a group");
  for (int i = 0; i < args_.agg; i++) start(call);
  if (args_.agg > 1) require(tuttiGroupEnd(), comm_, "closing a group");
}

// The time per operation, over all ranks as -a says. No clock is read inside the loop unless -z asks for a wait there.
void Rank::time_loop(const Call &call, Timing *timing) {
  const bool each = args_.blocking == 1 || args_.blocking == 2;
  double total = 0;
  const auto begin = SteadyClock::now();
  for (int i = 0; i < args_.iters; i++) {
    if (!each) {
      iteration(call);
      continue;
    }
    const auto start = SteadyClock::now();
    iteration(call);
    wait();
    total += seconds_since(start);
    if (args_.blocking == 1) barrier();
  }
  if (args_.cpu_time) total = seconds_since(begin);
  if (!each) wait();
  if (!each && !args_.cpu_time) total = seconds_since(begin);
  if (args_.blocking == 3) barrier();
  const auto times = gather_values(total / args_.iters / args_.agg);
  switch (args_.average) {
  case 0:
    timing->seconds = times[0];
    break;
  case 2:
    timing->seconds = *std::min_element(times.begin(), times.end());
    break;
  case 3:
    timing->seconds = *std::max_element(times.begin(), times.end());
    break;
  default:
    for (double t : times) timing->seconds += t / static_cast<double>(times.size());
  }
}

// A second loop that times each iteration: waiting after each must not slow what the main columns show.
void Rank::time_iterations(const Call &call, Timing *timing) {
  std::vector<double> mine;
  mine.reserve(static_cast<size_t>(args_.iters));
  barrier();
  for (int i = 0; i < args_.iters; i++) {
    const auto start = SteadyClock::now();
    iteration(call);
    wait();
    if (i >= args_.skip) mine.push_back(seconds_since(start) / args_.agg);
  }
  const auto raw = gather(mine.data(), mine.size() * sizeof(double));
  timing->per_iter.assign(mine.size(), 0);
  timing->per_process.assign(static_cast<size_t>(processes_), std::vector<double>(mine.size(), 0));
  for (int r = 0; r < nranks_; r++)
    for (size_t i = 0; i < mine.size(); i++) {
      double v = 0;
      std::memcpy(&v, raw.data() + (static_cast<size_t>(r) * mine.size() + i) * sizeof v, sizeof v);
      double &in_process = timing->per_process[static_cast<size_t>(r / args_.threads)][i];
      in_process = std::max(in_process, v);
      timing->per_iter[i] = std::max(timing->per_iter[i], v);
    }
}

// One verified run with fresh data: wrong elements of this rank.
int64_t Rank::check(const Call &call, int op, uint64_t seed) {
  const Shape &s = *call.shape;
  const size_t bytes = type_bytes(call.type);
  const int data_op = op_.reduces ? op : -1;
  char *const recv = static_cast<char *>(call.recv), *const send = static_cast<char *>(const_cast<void *>(call.send));
  std::memset(recv_->at(0), kPoison, capacity_);
  if (!call.in_place) std::memset(send_->at(0), kPoison, capacity_);
  for (const Piece &p : s.input) data::input(send + p.at * bytes, p.n, call.type, data_op, group_size_, p.from, seed, p.first);
  const uint64_t before = call.in_place ? 0 : checksum(send, s.send * bytes);
  barrier();
  start(call);
  wait();

  int64_t wrong = 0;
  std::vector<char> want(std::min<uint64_t>(kCheckElements, std::max<uint64_t>(s.recv, 1)) * bytes);
  for (const Piece &p : s.result)
    for (uint64_t done = 0; done < p.n; done += kCheckElements) {
      const uint64_t n = std::min(kCheckElements, p.n - done);
      if (p.from < 0)
        data::expected(want.data(), n, call.type, data_op, group_size_, seed, p.first + done);
      else
        data::input(want.data(), n, call.type, -1, group_size_, p.from, seed, p.first + done);
      wrong +=
          static_cast<int64_t>(data::mismatches(recv + (p.at + done) * bytes, want.data(), n, call.type, data_op, group_size_));
    }
  // Nothing but the result may have been written.
  const char *end = recv + s.recv * bytes, *last = recv_->at(capacity_);
  if (!call.in_place)
    for (size_t i = 0; end + i < last && i < kGuard; i++) wrong += end[i] != kPoison;
  if (!call.in_place && checksum(send, s.send * bytes) != before) wrong++;
  return wrong;
}

Timing Rank::measure(const Shape &shape, tuttiDataType_t type, int op, int root, bool in_place) {
  Timing t;
  if (in_place && !op_.has_in_place) return t;
  t.valid = true;
  const Call call = make_call(shape, type, op, root, in_place);
  // Zeros: repeated in-place products and sums of other data run into subnormals and infinities, which is not what is measured.
  std::memset(send_->at(0), 0, capacity_);
  std::memset(recv_->at(0), 0, capacity_);
  barrier();
  for (int i = 0; i < args_.warmup; i++) iteration(call);
  wait();
  barrier();
  time_loop(call, &t);
  if (args_.per_iter || args_.explain) time_iterations(call, &t);
  t.alg_bw = t.seconds > 0 ? static_cast<double>(shape.reported * type_bytes(type)) / t.seconds / 1e9 : 0;
  t.bus_bw = t.alg_bw * op_.factor.of(group_size_);
  if (args_.check == 0) return t;
  int64_t wrong = 0;
  for (int i = 0; i < args_.check && op_.has_data; i++)
    wrong += check(call, op, static_cast<uint64_t>(i) * 2 + (in_place ? 1 : 0) + 1);
  if (!op_.has_data) return t;
  t.wrong = 0;
  for (int64_t w : gather_values(wrong)) t.wrong += w;
  return t;
}

Explained Rank::explain(const Row &row, const Shape &shape) {
  Explained e;
  const auto text = ask_explanation(comm_, args_.op == "hypercube" ? "sendrecv" : args_.op, shape.param, row.type);
  if (!text.ok()) return e;
  const auto j = nlohmann::json::parse(*text, nullptr, false);
  const auto explanation = read_explanation(*text);
  if (!j.is_object() || !explanation.ok()) return e;
  e.decided = decided_text(*explanation);
  if (const ExplainedWay *way = explanation->chosen())
    e.predicted_us = way->predicted_us.value_or(0), e.measured_us = way->measured_us.value_or(0);
  e.algo = text_of(j, {"algo"});
  e.proto = text_of(j, {"proto"});
  e.transport = text_of(j, {"transports"});
  e.link = slowest_link(j);
  e.channels = number_of(j, {"channels"});
  e.slot = number_of(j, {"slot_bytes"});
  e.depth = number_of(j, {"depth"});
  e.determinism = determinism_of(j);
  return e;
}

Row Rank::measure_row(uint64_t bytes, tuttiDataType_t type, int op, int root) {
  const Shape shape = op_.shape(bytes / type_bytes(type), type_bytes(type), group_rank_, group_size_, root);
  Row row;
  row.asked = bytes;
  row.bytes = shape.reported * type_bytes(type);
  row.count = shape.param;
  row.type = type;
  row.op = op_.reduces ? op : -1;
  row.root = op_.has_root ? root : -1;
  if (report_) report_->progress(row, "out of place");
  row.out = measure(shape, type, op, root, false);
  if (report_ && op_.has_in_place) report_->progress(row, "in place");
  row.in = measure(shape, type, op, root, true);
  if (args_.overlap) {
    if (report_) report_->progress(row, "beside a computation");
    row.overlap = measure_overlap(make_call(shape, type, op, root, false));
  }
  if (!args_.heatmap.empty()) count_traffic(make_call(shape, type, op, root, false));
  if (report_ && (args_.explain || !args_.pass_lines.empty())) row.explained = explain(row, shape);
  return row;
}

void Rank::scan(tuttiDataType_t type, int op, int root, std::atomic<int64_t> &row_started) {
  if (op == kPremul && op_.reduces) make_premul(type);
  for (uint64_t bytes : sizes_of(args_, op_)) {
    // Less than one element per rank is no operation; groups of all sizes skip the row, since they meet in barriers.
    if (bytes > 0 && op_.shape(bytes / type_bytes(type), type_bytes(type), 0, largest_group_, 0).reported == 0) continue;
    rows_++;
    row_started = SteadyClock::now().time_since_epoch().count();
    if (report_ && args_.op == "alltoallv" && alltoallv_summary_wanted())
      fmt::print("{}\n", alltoallv_summary(bytes / type_bytes(type), type_bytes(type), group_size_));
    const Row row = measure_row(bytes, type, op, root);
    if (report_) report_->row(row);
  }
  if (op == kPremul && op_.reduces) (void)tuttiRedOpDestroy(premul_, comm_);
}

void Rank::report_memory() {
  struct {
    uint64_t bytes, fds;
  } mine{};
  require(tuttiCommMemory(comm_, &mine.bytes, &mine.fds), comm_, "asking for memory");
  uint64_t bytes = 0, fds = 0;
  for (const auto &v : gather_values(mine)) bytes += v.bytes, fds += v.fds;
  if (report_) report_->memory(bytes, fds);
}

int Rank::run(std::atomic<int64_t> &row_started) {
  if (!args_.null_stream) require(tuttiStreamCreate(&stream_), world_, "creating a stream");
  split_groups();
  if (op_.power_of_two && !std::has_single_bit(static_cast<unsigned>(group_size_)))
    throw Failure{fmt::format("{} needs a power of two ranks, not {}", args_.op, group_size_), true};
  if (op_.has_root && args_.root >= group_size_)
    throw Failure{fmt::format("-r {}: there are only {} ranks", args_.root, group_size_), true};
  if (const Status s = load_alltoallv_settings(group_size_); !s.ok()) throw Failure{s.error().line(), true};
  allocate();
  auto devices = gather_devices();
  if (rank_ == 0) {
    report_ = std::make_unique<Report>(args_, nranks_, processes_, std::move(devices));
    report_->header();
  }
  const std::vector<int> ops = op_.reduces ? args_.ops : std::vector<int>{tuttiSum};
  const auto types = op_.has_data ? args_.types : std::vector<tuttiDataType_t>{tuttiInt8};
  const bool all_roots = op_.has_root && args_.root < 0;
  for (int cycle = 0; args_.cycles == 0 || cycle < args_.cycles; cycle++)
    for (auto type : types)
      for (int op : ops)
        for (int root = all_roots ? 0 : std::max(args_.root, 0), last = all_roots ? group_size_ - 1 : root; root <= last;
             root++)
          scan(type, op, root, row_started);
  row_started = 0;
  if (rows_ == 0)
    throw Failure{fmt::format("-e {}: less than one element for each of {} ranks", size_text(args_.max_bytes), largest_group_),
                  true};
  if (args_.memory) report_memory();
  int code = report_ ? report_->footer() : 0;
  if (!args_.heatmap.empty() && !write_heatmap()) code = kFailed;
  if (comm_ != world_) require(tuttiCommDestroy(comm_), nullptr, "freeing the group's communicator");
  comm_ = world_;
  return code;
}

} // namespace tutti::tools::perf
