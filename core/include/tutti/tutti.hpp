// tutti/tutti.hpp: the C API as C++20 objects. Header only, over tutti.h; nothing here is part of the library's binary
// interface.
//
//   tutti::Comm comm = tutti::Comm::from_env();          // or Comm(nranks, id, rank), Comm::all(nranks), comm.split(...)
//   std::vector<float> x(1 << 20, 1.0f);
//   comm.all_reduce(x, x, tutti::Op::sum);                // returns when enqueued
//   comm.synchronize();                                   // x holds nranks everywhere
//
// Errors are exceptions of type tutti::Error, with the code and the line that says what happened. Destructors never throw: they
// end what they own, and a communicator that is destroyed while an exception passes is aborted, so that no other rank waits for
// it. Buffers are spans: their element type is the data type, their size is checked against the peer's where the operation
// fixes it.
#ifndef TUTTI_TUTTI_HPP
#define TUTTI_TUTTI_HPP
#include "tutti/tutti.h"
#include <concepts>
#include <cstdint>
#include <exception>
#include <ranges>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace tutti {

class Error : public std::runtime_error {
public:
  Error(tuttiResult_t code, const std::string &text) : std::runtime_error(text), code_(code) {}
  tuttiResult_t code() const noexcept { return code_; }

private:
  tuttiResult_t code_;
};

// Throws unless `result` is success; `comm` is asked for the reason.
inline void check(tuttiResult_t result, tuttiComm_t comm = nullptr) {
  if (result == tuttiSuccess) return;
  std::string text = tuttiGetLastError(nullptr); // the reason of this thread's last failed call
  if (text.empty() && comm) text = tuttiGetLastError(comm);
  throw Error(result, text.empty() ? tuttiGetErrorString(result) : text);
}

// Storage types of the narrow floats; arithmetic on them is the user's business.
struct Half {
  uint16_t bits;
};
struct Bfloat16 {
  uint16_t bits;
};
struct Float8E4m3 {
  uint8_t bits;
};
struct Float8E5m2 {
  uint8_t bits;
};

namespace detail {
template <class T> struct TypeOf;
template <> struct TypeOf<int8_t> { static constexpr tuttiDataType_t value = tuttiInt8; };
template <> struct TypeOf<char> { static constexpr tuttiDataType_t value = std::is_signed_v<char> ? tuttiInt8 : tuttiUint8; };
template <> struct TypeOf<uint8_t> { static constexpr tuttiDataType_t value = tuttiUint8; };
template <> struct TypeOf<std::byte> { static constexpr tuttiDataType_t value = tuttiUint8; };
template <> struct TypeOf<int32_t> { static constexpr tuttiDataType_t value = tuttiInt32; };
template <> struct TypeOf<uint32_t> { static constexpr tuttiDataType_t value = tuttiUint32; };
template <> struct TypeOf<long> { static constexpr tuttiDataType_t value = sizeof(long) == 8 ? tuttiInt64 : tuttiInt32; };
template <> struct TypeOf<unsigned long> {
  static constexpr tuttiDataType_t value = sizeof(long) == 8 ? tuttiUint64 : tuttiUint32;
};
template <> struct TypeOf<long long> { static constexpr tuttiDataType_t value = tuttiInt64; };
template <> struct TypeOf<unsigned long long> { static constexpr tuttiDataType_t value = tuttiUint64; };
template <> struct TypeOf<Half> { static constexpr tuttiDataType_t value = tuttiFloat16; };
template <> struct TypeOf<Bfloat16> { static constexpr tuttiDataType_t value = tuttiBfloat16; };
template <> struct TypeOf<Float8E4m3> { static constexpr tuttiDataType_t value = tuttiFloat8e4m3; };
template <> struct TypeOf<Float8E5m2> { static constexpr tuttiDataType_t value = tuttiFloat8e5m2; };
template <> struct TypeOf<float> { static constexpr tuttiDataType_t value = tuttiFloat32; };
template <> struct TypeOf<double> { static constexpr tuttiDataType_t value = tuttiFloat64; };
} // namespace detail

// The tuttiDataType_t of a C++ type.
template <class T> inline constexpr tuttiDataType_t type_of = detail::TypeOf<std::remove_cv_t<T>>::value;

template <class R>
concept InputBuffer = std::ranges::contiguous_range<R> && std::ranges::sized_range<R> && requires {
  type_of<std::ranges::range_value_t<R>>;
};
template <class R>
concept OutputBuffer = InputBuffer<R> && !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>;

// What combines elements; a value, also one made by Comm::premul_sum().
class Op {
public:
  constexpr Op(tuttiRedOp_t op) : op_(op) {}
  constexpr operator tuttiRedOp_t() const { return op_; }
  static const Op sum, prod, min, max, avg;

private:
  tuttiRedOp_t op_;
};
inline constexpr Op Op::sum{tuttiSum}, Op::prod{tuttiProd}, Op::min{tuttiMin}, Op::max{tuttiMax}, Op::avg{tuttiAvg};

namespace detail {
// Owner of a C handle: movable, not copyable.
template <class H, tuttiResult_t (*Free)(H)> class Owner {
public:
  Owner() = default;
  explicit Owner(H handle) : handle_(handle) {}
  Owner(Owner &&o) noexcept : handle_(std::exchange(o.handle_, nullptr)) {}
  Owner &operator=(Owner &&o) noexcept {
    if (this != &o) reset(std::exchange(o.handle_, nullptr));
    return *this;
  }
  ~Owner() { reset(); }
  H get() const noexcept { return handle_; }
  explicit operator bool() const noexcept { return handle_ != nullptr; }
  H release() noexcept { return std::exchange(handle_, nullptr); }
  void reset(H handle = nullptr) noexcept {
    if (H old = std::exchange(handle_, handle)) Free(old);
  }

private:
  H handle_ = nullptr;
};
} // namespace detail

class Event;

// Work of one stream runs in order, also across communicators.
class Stream {
public:
  Stream() {
    tuttiStream_t s;
    check(tuttiStreamCreate(&s));
    handle_.reset(s);
  }
  tuttiStream_t get() const noexcept { return handle_.get(); }
  void synchronize() { check(tuttiStreamSynchronize(get())); }
  bool done() {
    const tuttiResult_t r = tuttiStreamQuery(get());
    if (r != tuttiInProgress) check(r);
    return r == tuttiSuccess;
  }
  void wait(const Event &event); // later work waits for it

private:
  detail::Owner<tuttiStream_t, tuttiStreamDestroy> handle_;
};

class Event {
public:
  Event() {
    tuttiEvent_t e;
    check(tuttiEventCreate(&e));
    handle_.reset(e);
  }
  tuttiEvent_t get() const noexcept { return handle_.get(); }
  void record(Stream &stream) { check(tuttiEventRecord(get(), nullptr, stream.get())); }
  void synchronize() { check(tuttiEventSynchronize(get())); }
  bool done() {
    const tuttiResult_t r = tuttiEventQuery(get());
    if (r != tuttiInProgress) check(r);
    return r == tuttiSuccess;
  }

private:
  detail::Owner<tuttiEvent_t, tuttiEventDestroy> handle_;
};

inline void Stream::wait(const Event &event) {
  check(tuttiStreamWaitEvent(get(), event.get()));
}

// One operation.
class Work {
public:
  explicit Work(tuttiWork_t work) : handle_(work) {}
  bool test() {
    const tuttiResult_t r = tuttiWorkTest(handle_.get());
    if (r != tuttiInProgress) check(r);
    return r == tuttiSuccess;
  }
  void wait() { check(tuttiWorkWait(handle_.get())); }

private:
  detail::Owner<tuttiWork_t, tuttiWorkDestroy> handle_;
};

// Calls made on this thread while it lives begin together at end(), or in the destructor. Use end() to learn of errors.
class Group {
public:
  Group() { check(tuttiGroupStart()); }
  Group(const Group &) = delete;
  Group &operator=(const Group &) = delete;
  ~Group() {
    if (open_) tuttiGroupEnd();
  }
  void end() {
    open_ = false;
    check(tuttiGroupEnd());
  }

private:
  bool open_ = true;
};

// What holds for the operations that this thread calls while it lives. Lives last in, first out; not moved between threads.
class CallConfig {
public:
  static tuttiCallConfig_t default_config() {
    tuttiCallConfig_t c = TUTTI_CALL_CONFIG_INITIALIZER;
    return c;
  }
  explicit CallConfig(const tuttiCallConfig_t &config) { check(tuttiCallConfigBegin(&config)); }
  // Only a tag, for logs and error texts.
  explicit CallConfig(const std::string &tag) : CallConfig(tagged(tag)) {}
  CallConfig(const CallConfig &) = delete;
  CallConfig &operator=(const CallConfig &) = delete;
  ~CallConfig() { tuttiCallConfigEnd(); }

private:
  static tuttiCallConfig_t tagged(const std::string &tag) {
    tuttiCallConfig_t c = default_config();
    c.tag = tag.c_str();
    return c;
  }
};

// One rank's communicator.
class Comm {
public:
  static tuttiUniqueId make_id() {
    tuttiUniqueId id;
    check(tuttiGetUniqueId(&id));
    return id;
  }
  static tuttiConfig_t default_config() {
    tuttiConfig_t c = TUTTI_CONFIG_INITIALIZER;
    return c;
  }

  Comm() = default; // empty
  explicit Comm(tuttiComm_t owned) : comm_(owned) {}
  Comm(int nranks, const tuttiUniqueId &id, int rank) { check(tuttiCommInitRank(&comm_, nranks, id, rank)); }
  Comm(int nranks, const tuttiUniqueId &id, int rank, const tuttiConfig_t &config) {
    check(tuttiCommInitRankConfig(&comm_, nranks, id, rank, &config));
  }
  // Through several roots: see tuttiCommInitRankScalable.
  Comm(int nranks, const std::vector<tuttiUniqueId> &ids, int rank, const tuttiConfig_t *config = nullptr) {
    check(tuttiCommInitRankScalable(&comm_, nranks, rank, static_cast<int>(ids.size()), ids.data(), config));
  }
  static Comm from_env(const tuttiConfig_t *config = nullptr) {
    tuttiComm_t c = nullptr;
    check(tuttiCommInitFromEnv(&c, config));
    return Comm(c);
  }
  // All ranks in this process.
  static std::vector<Comm> all(int nranks) {
    std::vector<tuttiComm_t> handles(static_cast<size_t>(nranks < 0 ? 0 : nranks));
    check(tuttiCommInitAll(handles.data(), nranks, nullptr));
    return {handles.begin(), handles.end()};
  }

  Comm(Comm &&o) noexcept : comm_(std::exchange(o.comm_, nullptr)), exceptions_(o.exceptions_) {}
  Comm &operator=(Comm &&o) noexcept {
    if (this != &o) {
      close();
      comm_ = std::exchange(o.comm_, nullptr);
    }
    return *this;
  }
  ~Comm() { close(); }

  tuttiComm_t get() const noexcept { return comm_; }
  explicit operator bool() const noexcept { return comm_ != nullptr; }
  tuttiComm_t release() noexcept { return std::exchange(comm_, nullptr); }
  int rank() const {
    int r = 0;
    check(tuttiCommUserRank(comm_, &r), comm_);
    return r;
  }
  int size() const {
    int n = 0;
    check(tuttiCommCount(comm_, &n), comm_);
    return n;
  }
  // Empty where color is TUTTI_SPLIT_NOCOLOR.
  Comm split(int color, int key, const tuttiConfig_t *config = nullptr) {
    tuttiComm_t c = nullptr;
    check(tuttiCommSplit(comm_, color, key, &c, config), comm_);
    return Comm(c);
  }
  // Of the ranks that are left: without those of `exclude`, or, with an empty list, those who find out together.
  Comm shrink(std::span<const int> exclude = {}, int flags = TUTTI_SHRINK_DEFAULT, const tuttiConfig_t *config = nullptr) {
    tuttiComm_t c = nullptr;
    check(
        tuttiCommShrink(comm_, exclude.empty() ? nullptr : exclude.data(), static_cast<int>(exclude.size()), &c, config, flags),
        comm_);
    return Comm(c);
  }
  // An id for new ranks, and for grow() on the rank that made it.
  tuttiUniqueId grow_id() {
    tuttiUniqueId id;
    check(tuttiCommGetUniqueId(comm_, &id), comm_);
    return id;
  }
  // Old ranks; id: on the rank that made it, NULL on the others.
  Comm grow(int nranks, const tuttiUniqueId *id, const tuttiConfig_t *config = nullptr) {
    tuttiComm_t c = nullptr;
    check(tuttiCommGrow(comm_, nranks, id, -1, &c, config), comm_);
    return Comm(c);
  }
  // New ranks.
  static Comm join_grown(int nranks, const tuttiUniqueId &id, int rank, const tuttiConfig_t *config = nullptr) {
    tuttiComm_t c = nullptr;
    check(tuttiCommGrow(nullptr, nranks, &id, rank, &c, config));
    return Comm(c);
  }
  // Any thread: ends the operations in flight on all ranks.
  void revoke(int flags = TUTTI_REVOKE_DEFAULT) { check(tuttiCommRevoke(comm_, flags)); }
  void finalize() { check(tuttiCommFinalize(comm_), comm_); }
  void destroy() { check(tuttiCommDestroy(release())); }
  void abort() noexcept { tuttiCommAbort(release()); }
  void synchronize() { check(tuttiCommSynchronize(comm_), comm_); }
  tuttiResult_t async_error() const {
    tuttiResult_t r = tuttiSuccess;
    check(tuttiCommGetAsyncError(comm_, &r));
    return r;
  }
  Work last_work() {
    tuttiWork_t w = nullptr;
    check(tuttiCommGetLastWork(comm_, &w), comm_);
    return Work(w);
  }

  // ---- operations. Counts come from the spans: of the input, but where the input is not this rank's own.
  template <InputBuffer I, OutputBuffer O> void all_reduce(const I &in, O &&out, Op op, const Stream *s = nullptr) {
    check_sizes<I, O>(std::ranges::size(in), std::ranges::size(out), 1, 1);
    call(tuttiAllReduce(data(in), data(out), count(in), type<I>(), op, comm_, raw(s)));
  }
  template <InputBuffer I, OutputBuffer O> void reduce(const I &in, O &&out, Op op, int root, const Stream *s = nullptr) {
    call(tuttiReduce(data(in), data(out), count(in), type<I>(), op, root, comm_, raw(s)));
  }
  template <OutputBuffer B> void broadcast(B &&buffer, int root, const Stream *s = nullptr) {
    call(tuttiBcast(data(buffer), count(buffer), type<B>(), root, comm_, raw(s)));
  }
  template <InputBuffer I, OutputBuffer O> void all_gather(const I &in, O &&out, const Stream *s = nullptr) {
    check_sizes<I, O>(std::ranges::size(in), std::ranges::size(out), 1, size());
    call(tuttiAllGather(data(in), data(out), count(in), type<I>(), comm_, raw(s)));
  }
  template <InputBuffer I, OutputBuffer O> void reduce_scatter(const I &in, O &&out, Op op, const Stream *s = nullptr) {
    check_sizes<I, O>(std::ranges::size(in), std::ranges::size(out), size(), 1);
    call(tuttiReduceScatter(data(in), data(out), count(out), type<I>(), op, comm_, raw(s)));
  }
  // Blocks of different sizes, one behind the other; counts: one per rank, the same on all ranks.
  template <InputBuffer I, OutputBuffer O>
  void all_gather_v(const I &in, O &&out, std::span<const size_t> counts, const Stream *s = nullptr) {
    check_blocks<I, O>(std::ranges::size(out), std::ranges::size(in), counts);
    call(tuttiAllGatherV(data(in), data(out), counts.data(), nullptr, type<I>(), comm_, raw(s)));
  }
  template <InputBuffer I, OutputBuffer O>
  void reduce_scatter_v(const I &in, O &&out, std::span<const size_t> counts, Op op, const Stream *s = nullptr) {
    check_blocks<I, O>(std::ranges::size(in), std::ranges::size(out), counts);
    call(tuttiReduceScatterV(data(in), data(out), counts.data(), nullptr, type<I>(), op, comm_, raw(s)));
  }
  template <InputBuffer I, OutputBuffer O> void all_to_all(const I &in, O &&out, const Stream *s = nullptr) {
    check_sizes<I, O>(std::ranges::size(in), std::ranges::size(out), 1, 1);
    call(tuttiAlltoAll(data(in), data(out), count(in) / static_cast<size_t>(size()), type<I>(), comm_, raw(s)));
  }
  template <InputBuffer I, OutputBuffer O> void gather(const I &in, O &&out, int root, const Stream *s = nullptr) {
    call(tuttiGather(data(in), data(out), count(in), type<I>(), root, comm_, raw(s)));
  }
  template <InputBuffer I, OutputBuffer O> void scatter(const I &in, O &&out, int root, const Stream *s = nullptr) {
    call(tuttiScatter(data(in), data(out), count(out), type<O>(), root, comm_, raw(s)));
  }
  template <InputBuffer B> void send(const B &buffer, int peer, const Stream *s = nullptr) {
    call(tuttiSend(data(buffer), count(buffer), type<B>(), peer, comm_, raw(s)));
  }
  template <OutputBuffer B> void recv(B &&buffer, int peer, const Stream *s = nullptr) {
    call(tuttiRecv(data(buffer), count(buffer), type<B>(), peer, comm_, raw(s)));
  }
  void barrier(const Stream *s = nullptr) { call(tuttiBarrier(comm_, raw(s))); }
  void record(Event &event) { check(tuttiEventRecord(event.get(), comm_, nullptr), comm_); }

  // A sum in which this rank's data is multiplied by `scalar`; for this communicator until destroy_op().
  template <class T> Op premul_sum(const T &scalar) {
    tuttiRedOp_t op = tuttiSum;
    check(tuttiRedOpCreatePreMulSum(&op, &scalar, type_of<T>, comm_), comm_);
    return Op(op);
  }
  void destroy_op(Op op) { check(tuttiRedOpDestroy(op, comm_), comm_); }

private:
  template <class R> static constexpr tuttiDataType_t type() { return type_of<std::ranges::range_value_t<R>>; }
  template <class R> static auto *data(R &&r) { return std::ranges::data(r); }
  template <class R> static size_t count(const R &r) { return std::ranges::size(r); }
  static tuttiStream_t raw(const Stream *s) { return s ? s->get() : nullptr; }
  void call(tuttiResult_t r) { check(r, comm_); }

  template <class I, class O> static void check_sizes(size_t in, size_t out, int in_blocks, int out_blocks) {
    static_assert(type<I>() == type<O>(), "input and output have the same element type");
    if (in * static_cast<size_t>(out_blocks) != out * static_cast<size_t>(in_blocks))
      throw Error(tuttiInvalidArgument, "input of " + std::to_string(in) + " and output of " + std::to_string(out) +
                                            " elements do not fit each other (" + std::to_string(in_blocks) + " : " +
                                            std::to_string(out_blocks) + ")");
  }
  // whole: of the buffer with a block for each rank; own: of the other one.
  template <class I, class O> void check_blocks(size_t whole, size_t own, std::span<const size_t> counts) const {
    static_assert(type<I>() == type<O>(), "input and output have the same element type");
    if (counts.size() != static_cast<size_t>(size()))
      throw Error(tuttiInvalidArgument, std::to_string(counts.size()) + " counts for " + std::to_string(size()) + " ranks");
    size_t sum = 0;
    for (const size_t c : counts) sum += c;
    const size_t mine = counts[static_cast<size_t>(rank())];
    if (sum != whole || mine != own)
      throw Error(tuttiInvalidArgument, "counts of " + std::to_string(sum) + " elements, " + std::to_string(mine) +
                                            " of them this rank's, do not fit buffers of " + std::to_string(whole) + " and " +
                                            std::to_string(own));
  }
  void close() noexcept {
    if (!comm_) return;
    if (std::uncaught_exceptions() > exceptions_)
      tuttiCommAbort(release());
    else
      tuttiCommDestroy(release());
  }

  tuttiComm_t comm_ = nullptr;
  int exceptions_ = std::uncaught_exceptions(); // when it was made: more of them at the end means that one passes
};

} // namespace tutti

#endif
