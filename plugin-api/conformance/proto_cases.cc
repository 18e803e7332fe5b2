#include "base/types.h"
#include "proto_operands.h"
#include "suite.h"
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

namespace tutti::conformance {
namespace {

constexpr unsigned char kCanary = 0xa5;
const size_t kSizes[] = {0,   1,   7,   8,   9,   55,  56,   57,   63,   64,   65,   112,
                         119, 120, 121, 127, 128, 129, 1000, 4095, 4096, 4097, 65536};

const tutti_proto_v1 &proto_of(const void *table) {
  return *static_cast<const tutti_proto_v1 *>(table);
}
bool in_data(const void *table) {
  return proto_of(table).signal == TUTTI_SIGNAL_IN_DATA;
}

template <class Fn>
Fn kernel(const Plugin &plugin, const void *table, tutti_form form, tutti_dtype t = TUTTI_DT_UINT8,
          tutti_redop op = TUTTI_RED_SUM, uint32_t flags = 0) {
  return reinterpret_cast<Fn>(proto_of(table).kernel(plugin.state, form, t, op, flags));
}

// Memory with canaries around a part of it at any alignment.
class Guarded {
public:
  Guarded(size_t bytes, size_t misalign) : all_(bytes + misalign + 2 * kPad, kCanary), at_(kPad + misalign), bytes_(bytes) {}
  unsigned char *data() { return all_.data() + at_; }
  void check(const char *what) const {
    for (size_t i = 0; i < all_.size(); i++)
      if (i < at_ || i >= at_ + bytes_)
        require(all_[i] == kCanary, "{} of {} bytes wrote at {}", what, bytes_, static_cast<long>(i) - static_cast<long>(at_));
  }

private:
  static constexpr size_t kPad = 128;
  std::vector<unsigned char> all_;
  size_t at_, bytes_;
};

template <class Fn> void each_type(Fn &&fn) {
  for (tutti_dtype t = 0; t < TUTTI_DT_COUNT; t++)
    for (tutti_redop op = 0; op < TUTTI_RED_COUNT; op++) fn(t, op);
}
std::string named(tutti_dtype t, tutti_redop op, size_t bytes) {
  return fmt::format("{} {} of {} bytes", dtype_name(t), redop_name(op), bytes);
}

// ---- slots of lines

// A slot of a sender and what a receiver sees of it while stores arrive in any order, atomic_store_bytes at a time.
class Lines {
public:
  Lines(const tutti_proto_v1 &p, size_t bytes)
      : p_(p), size_(std::max<size_t>(1, (bytes + p.payload_bytes - 1) / p.payload_bytes) * p.line_bytes),
        memory_(2 * size_ + 6 * kAlign, kCanary) {
    sent_ = align(memory_.data() + kAlign);
    seen_ = align(sent_ + size_ + kAlign);
  }
  void *sent() { return sent_; }
  const void *seen() { return seen_; }
  // What was in the slot before: lines of an older message.
  void age(uint64_t old_word, Random *random) {
    random->fill(sent_, size_);
    for (size_t line = 0; line < size_; line += p_.line_bytes) std::memcpy(sent_ + line + p_.flag_offset, &old_word, 8);
    std::memcpy(seen_, sent_, size_);
  }
  void check_word(uint64_t word) const {
    uint64_t first;
    std::memcpy(&first, sent_ + p_.flag_offset, 8);
    require(first == word, "after encode the word at flag_offset {} is {:#x}, expected {:#x}", p_.flag_offset, first, word);
  }
  void check_bounds() const {
    for (const unsigned char *c = memory_.data(); c < memory_.data() + memory_.size(); c++)
      if (!(c >= sent_ && c < sent_ + size_) && !(c >= seen_ && c < seen_ + size_))
        require(*c == kCanary, "a kernel wrote outside its slot of {} bytes", size_);
  }
  // Delivers pieces in random order; step() after each and once before the first. Returns after which step it said done.
  template <class Fn> void deliver(Random *random, Fn &&step) {
    std::vector<size_t> pieces;
    for (size_t at = 0; at < size_; at += p_.atomic_store_bytes) pieces.push_back(at);
    for (size_t i = pieces.size(); i > 1; i--) std::swap(pieces[i - 1], pieces[random->below(i)]);
    const size_t stride = pieces.size() > 64 ? pieces.size() / 64 : 1; // large slots: look now and then
    require(!step(), "decode says all is there before anything was sent");
    for (size_t i = 0; i < pieces.size(); i++) {
      std::memcpy(seen_ + pieces[i], sent_ + pieces[i], p_.atomic_store_bytes);
      const bool last = i + 1 == pieces.size();
      if (!last && i % stride) continue;
      const bool done = step();
      require(done || !last, "all of the slot is there and decode does not say so");
      if (done) {
        // Only stores that carry no payload of the message may be missing.
        std::memcpy(seen_, sent_, size_);
        return;
      }
    }
  }

private:
  static constexpr size_t kAlign = 128;
  static unsigned char *align(unsigned char *p) { return p + (kAlign - reinterpret_cast<uintptr_t>(p) % kAlign) % kAlign; }
  const tutti_proto_v1 &p_;
  size_t size_;
  std::vector<unsigned char> memory_;
  unsigned char *sent_, *seen_;
};

// ---- cases

void copies(const Plugin &plugin, const void *table) {
  if (in_data(table)) skip("the protocol signals in its data");
  Random random(1);
  for (const tutti_form form : {TUTTI_FORM_ENCODE, TUTTI_FORM_DECODE})
    for (const uint32_t flags : {0u, uint32_t(TUTTI_KERNEL_NONTEMPORAL)}) {
      const auto copy = kernel<tutti_copy_fn>(plugin, table, form, TUTTI_DT_UINT8, TUTTI_RED_SUM, flags);
      require(copy || flags, "form {} is not offered", form);
      for (const size_t size : kSizes)
        for (size_t shift = 0; copy && shift < 16; shift += 3) {
          std::vector<unsigned char> src(size + 32);
          random.fill(src.data(), src.size());
          Guarded dst(size, shift);
          copy(dst.data(), src.data() + (shift * 5) % 16, size);
          require(std::memcmp(dst.data(), src.data() + (shift * 5) % 16, size) == 0, "form {} changed a message of {} bytes",
                  form, size);
          dst.check("a copy");
        }
    }
}

void reductions(const Plugin &plugin, const void *table) {
  if (in_data(table)) skip("the protocol signals in its data");
  Random random(2);
  each_type([&](tutti_dtype t, tutti_redop op) {
    const auto reduce = kernel<tutti_reduce_fn>(plugin, table, TUTTI_FORM_DECODE_REDUCE, t, op);
    const auto reduce2 = kernel<tutti_reduce2_fn>(plugin, table, TUTTI_FORM_DECODE_REDUCE_ENCODE, t, op);
    for (const size_t n : {size_t(0), size_t(1), size_t(3), size_t(17), size_t(64), size_t(1001)}) {
      const Operands o = operands(t, op, n, &random);
      const size_t bytes = n * dtype_bytes(t);
      for (size_t shift : {size_t(0), size_t(1), size_t(7)}) {
        Guarded dst(bytes, shift), forward(bytes, shift);
        if (reduce) reduce(dst.data(), o.a.data(), o.b.data(), bytes);
        require(!reduce || !std::memcmp(dst.data(), o.want.data(), bytes), "DECODE_REDUCE of {} is wrong", named(t, op, bytes));
        if (reduce2) reduce2(dst.data(), forward.data(), o.a.data(), o.b.data(), bytes);
        const bool right = !std::memcmp(dst.data(), o.want.data(), bytes) && !std::memcmp(forward.data(), o.want.data(), bytes);
        require(!reduce2 || right, "DECODE_REDUCE_ENCODE of {} is wrong", named(t, op, bytes));
        dst.check("a reduction");
        forward.check("a reduction");
      }
      for (const bool left : {true, false}) { // dst is this operand
        Guarded dst(bytes, 0), forward(bytes, 0);
        const unsigned char *const a = left ? dst.data() : o.a.data(), *const b = left ? o.b.data() : dst.data();
        const auto start = [&] { std::memcpy(dst.data(), (left ? o.a : o.b).data(), bytes); };
        start();
        if (reduce) reduce(dst.data(), a, b, bytes);
        require(!reduce || !std::memcmp(dst.data(), o.want.data(), bytes),
                "DECODE_REDUCE of {} is wrong when dst is the {} operand", named(t, op, bytes), left ? "left" : "right");
        start();
        if (reduce2) reduce2(dst.data(), forward.data(), a, b, bytes);
        const bool right = !std::memcmp(dst.data(), o.want.data(), bytes) && !std::memcmp(forward.data(), o.want.data(), bytes);
        require(!reduce2 || right, "DECODE_REDUCE_ENCODE of {} is wrong when dst is the {} operand", named(t, op, bytes),
                left ? "left" : "right");
      }
    }
  });
}

void many_operands(const Plugin &plugin, const void *table) {
  Random random(3);
  bool any = false;
  each_type([&](tutti_dtype t, tutti_redop op) {
    const auto reduce = kernel<tutti_reduce_n_fn>(plugin, table, TUTTI_FORM_REDUCE_N, t, op);
    if (!reduce) return;
    any = true;
    const size_t bytes = 333 * dtype_bytes(t);
    const Operands o = operands(t, op, 333, &random);
    Guarded two(bytes, 1);
    const void *list[] = {o.a.data(), o.b.data()};
    reduce(two.data(), list, 2, bytes);
    require(!std::memcmp(two.data(), o.want.data(), bytes), "REDUCE_N of two operands of {} is wrong", named(t, op, bytes));
    two.check("REDUCE_N");
  });
  if (!any) skip("REDUCE_N is left to the core");
}

void round_trip(const Plugin &plugin, const void *table) {
  if (!in_data(table)) skip("the protocol signals by the slot's word");
  const auto encode = kernel<tutti_line_encode_fn>(plugin, table, TUTTI_FORM_ENCODE);
  const auto decode = kernel<tutti_line_decode_fn>(plugin, table, TUTTI_FORM_DECODE);
  require(encode && decode, "ENCODE and DECODE must be offered");
  Random random(4);
  for (const size_t size : kSizes)
    for (size_t shift = 0; shift < 16; shift += 5) {
      const uint64_t word = random.next() | 1;
      std::vector<unsigned char> src(size + 32);
      random.fill(src.data(), src.size());
      Lines lines(proto_of(table), size);
      lines.age(word ^ 0xffff0000ull, &random);
      encode(lines.sent(), src.data() + shift, size, word);
      lines.check_word(word);
      Guarded dst(size, shift);
      uint64_t done = 0, before = 0;
      lines.deliver(&random, [&] {
        const bool all = decode(lines.seen(), dst.data(), size, word, &done) != 0;
        require(done >= before && done <= size, "*done went from {} to {} of {}", before, done, size);
        require(done == size || done % proto_of(table).payload_bytes == 0, "*done is {} of {}, which ends no line", done, size);
        before = done;
        return all;
      });
      require(!std::memcmp(dst.data(), src.data() + shift, size), "{} bytes arrived changed when stores arrived in any order",
              size);
      dst.check("decode");
      lines.check_bounds();
    }
}

// Both reductions of a slot that is complete, dst being src; with the slot on the left if flags say so.
void line_reductions_in_place(const Plugin &plugin, const void *table, tutti_dtype t, tutti_redop op, uint32_t flags,
                              Lines *lines, const Operands &o, size_t bytes, uint64_t word) {
  const auto reduce = kernel<tutti_line_reduce_fn>(plugin, table, TUTTI_FORM_DECODE_REDUCE, t, op, flags);
  const auto reduce2 = kernel<tutti_line_reduce2_fn>(plugin, table, TUTTI_FORM_DECODE_REDUCE_ENCODE, t, op, flags);
  const char *const order = flags ? " with the slot first" : "";
  Guarded dst(bytes, 0);
  const auto check = [&](const char *form, auto &&call) {
    std::memcpy(dst.data(), o.a.data(), bytes);
    uint64_t done = 0;
    require(call(&done) && done == bytes, "{} of {}{} does not end", form, named(t, op, bytes), order);
    require(!std::memcmp(dst.data(), o.want.data(), bytes), "{} of {}{} is wrong when dst is src", form, named(t, op, bytes),
            order);
    dst.check("a reduction in place");
  };
  if (reduce)
    check("DECODE_REDUCE", [&](uint64_t *done) { return reduce(lines->seen(), dst.data(), dst.data(), bytes, word, done); });
  if (!reduce2) return;
  Lines next(proto_of(table), bytes);
  check("DECODE_REDUCE_ENCODE", [&](uint64_t *done) {
    return reduce2(lines->seen(), dst.data(), dst.data(), next.sent(), bytes, word, word + 2, done);
  });
  next.check_bounds();
}

void line_reductions(const Plugin &plugin, const void *table) {
  if (!in_data(table)) skip("the protocol signals by the slot's word");
  const auto encode = kernel<tutti_line_encode_fn>(plugin, table, TUTTI_FORM_ENCODE);
  const auto decode = kernel<tutti_line_decode_fn>(plugin, table, TUTTI_FORM_DECODE);
  Random random(5);
  each_type([&](tutti_dtype t, tutti_redop op) {
    const auto reduce = kernel<tutti_line_reduce_fn>(plugin, table, TUTTI_FORM_DECODE_REDUCE, t, op);
    const auto reduce2 = kernel<tutti_line_reduce2_fn>(plugin, table, TUTTI_FORM_DECODE_REDUCE_ENCODE, t, op);
    if (!reduce && !reduce2) return; // left to the core
    for (const size_t n : {size_t(1), size_t(13), size_t(64), size_t(501)}) {
      const size_t bytes = n * dtype_bytes(t);
      const Operands o = operands(t, op, n, &random);
      const uint64_t word = random.next() | 1, next_word = random.next() | 1;
      Lines lines(proto_of(table), bytes), next(proto_of(table), bytes);
      lines.age(word + 2, &random);
      next.age(next_word + 2, &random);
      encode(lines.sent(), o.b.data(), bytes, word);
      Guarded dst(bytes, 3), dst2(bytes, 1), forwarded(bytes, 0);
      uint64_t done = 0, done2 = 0, done3 = 0;
      bool first = !reduce, second = !reduce2;
      lines.deliver(&random, [&] {
        if (!first) first = reduce(lines.seen(), o.a.data(), dst.data(), bytes, word, &done) != 0;
        if (!second) second = reduce2(lines.seen(), o.a.data(), dst2.data(), next.sent(), bytes, word, next_word, &done2) != 0;
        return first && second && (reduce || reduce2);
      });
      if (reduce) require(!std::memcmp(dst.data(), o.want.data(), bytes), "DECODE_REDUCE of {} is wrong", named(t, op, bytes));
      // The order of two operands shows only in which of two NaN comes out, and that is the CPU's choice: no bits to demand.
      for (const uint32_t flags : {0u, uint32_t(TUTTI_KERNEL_RECEIVED_FIRST)})
        line_reductions_in_place(plugin, table, t, op, flags, &lines, o, bytes, word);
      if (!reduce2) continue;
      require(!std::memcmp(dst2.data(), o.want.data(), bytes), "DECODE_REDUCE_ENCODE of {} is wrong", named(t, op, bytes));
      next.check_word(next_word);
      next.deliver(&random, [&] { return decode(next.seen(), forwarded.data(), bytes, next_word, &done3) != 0; });
      require(!std::memcmp(forwarded.data(), o.want.data(), bytes), "DECODE_REDUCE_ENCODE of {} forwards wrong bytes",
              named(t, op, bytes));
      dst2.check("a reduction");
      next.check_bounds();
      next.age(next_word + 2, &random);
      done2 = done3 = 0;
      require(reduce2(lines.seen(), o.a.data(), nullptr, next.sent(), bytes, word, next_word, &done2) &&
                  decode(next.sent(), forwarded.data(), bytes, next_word, &done3) &&
                  !std::memcmp(forwarded.data(), o.want.data(), bytes),
              "DECODE_REDUCE_ENCODE of {} without dst passes on wrong bytes", named(t, op, bytes));
      next.check_bounds();
    }
  });
}

void parts(const Plugin &plugin, const void *table) {
  if (!in_data(table)) skip("the protocol signals by the slot's word");
  const auto &p = proto_of(table);
  const auto encode = kernel<tutti_line_encode_fn>(plugin, table, TUTTI_FORM_ENCODE);
  const auto decode = kernel<tutti_line_decode_fn>(plugin, table, TUTTI_FORM_DECODE);
  Random random(6);
  constexpr size_t kLines = 5;
  const size_t size = kLines * p.payload_bytes - p.payload_bytes / 2;
  const uint64_t word = random.next() | 1;
  std::vector<unsigned char> src(size);
  random.fill(src.data(), size);
  for (size_t first = 1; first < kLines; first++) { // the message's end before its beginning
    Lines lines(p, size);
    lines.age(word ^ 0xffff0000ull, &random);
    const size_t at = first * p.payload_bytes;
    encode(static_cast<unsigned char *>(lines.sent()) + first * p.line_bytes, src.data() + at, size - at, word);
    encode(lines.sent(), src.data(), at, word);
    Guarded dst(size, 1);
    uint64_t done = 0;
    require(decode(lines.sent(), dst.data(), size, word, &done) && !std::memcmp(dst.data(), src.data(), size),
            "a message of {} bytes that was encoded from line {} on, then up to it, arrived changed", size, first);
    lines.check_bounds();
  }
}

void unknown_kernels(const Plugin &plugin, const void *table) {
  const auto &p = proto_of(table);
  require(!p.kernel(plugin.state, 1000, TUTTI_DT_FLOAT32, TUTTI_RED_SUM, 0), "kernel() offers form 1000");
  require(!p.kernel(plugin.state, TUTTI_FORM_DECODE_REDUCE, 1000, TUTTI_RED_SUM, 0),
          "kernel() offers a reduction of element type 1000");
  require(!p.kernel(plugin.state, TUTTI_FORM_DECODE_REDUCE, TUTTI_DT_FLOAT32, 1000, 0), "kernel() offers reduction 1000");
  require(!p.kernel(plugin.state, TUTTI_FORM_DECODE_REDUCE, TUTTI_DT_FLOAT32, TUTTI_RED_SUM, 1u << 31),
          "kernel() offers an unknown flag");
}

void stable_kernels(const Plugin &plugin, const void *table) {
  const auto &p = proto_of(table);
  for (tutti_form form = 0; form <= TUTTI_FORM_REDUCE_N; form++)
    each_type([&](tutti_dtype t, tutti_redop op) {
      require(p.kernel(plugin.state, form, t, op, 0) == p.kernel(plugin.state, form, t, op, 0),
              "form {} for {} gives two different kernels", form, dtype_name(t));
    });
}

// Each thread has data of its own; what they share is in the plugin.
void many_threads(const Plugin &plugin, const void *table) {
  constexpr size_t kWords = 4096, kBytes = kWords * 4;
  const auto &p = proto_of(table);
  const auto encode = p.kernel(plugin.state, TUTTI_FORM_ENCODE, TUTTI_DT_UINT32, TUTTI_RED_SUM, 0);
  const auto decode = p.kernel(plugin.state, TUTTI_FORM_DECODE, TUTTI_DT_UINT32, TUTTI_RED_SUM, 0);
  const auto there_and_back = [&](const void *src, void *slot, void *dst, uint64_t word) {
    if (!in_data(table)) {
      reinterpret_cast<tutti_copy_fn>(encode)(slot, src, kBytes);
      reinterpret_cast<tutti_copy_fn>(decode)(dst, slot, kBytes);
      return true;
    }
    uint64_t done = 0;
    reinterpret_cast<tutti_line_encode_fn>(encode)(slot, src, kBytes, word);
    return reinterpret_cast<tutti_line_decode_fn>(decode)(slot, dst, kBytes, word, &done) == 1;
  };
  std::atomic<bool> right{true};
  const auto work = [&](uint32_t seed) {
    std::vector<uint32_t> src(kWords), dst(kWords);
    struct alignas(128) Line {
      unsigned char bytes[128] = {};
    };
    std::vector<Line> slot(kBytes / 8); // a line carries 8 bytes at least
    for (uint32_t round = 1; round <= 200; round++) {
      std::fill(src.begin(), src.end(), seed + round);
      if (!there_and_back(src.data(), slot.data(), dst.data(), round) || dst != src) right.store(false);
    }
  };
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; t++) threads.emplace_back(work, 1000 * t);
  for (std::thread &t : threads) t.join();
  require(right.load(), "kernels that four threads ran at once gave wrong results");
}

} // namespace

std::span<const Case> proto_cases() {
  static const Case all[] = {
      {"C-01", "what is not known is not offered", unknown_kernels},
      {"C-02", "a kernel is the same whenever it is asked for", stable_kernels},
      {"C-03", "ENCODE and DECODE copy any size at any alignment and nothing else", copies},
      {"C-04", "fused reductions equal a scalar reference for every type and operation", reductions},
      {"C-05", "REDUCE_N equals a scalar reference", many_operands},
      {"C-06", "lines survive stores that arrive in any order", round_trip},
      {"C-07", "reductions from lines equal a scalar reference, stores in any order", line_reductions},
      {"C-08", "a message may be encoded from any line on", parts},
      {"C-09", "many threads may run the kernels at once", many_threads},
  };
  return all;
}

} // namespace tutti::conformance
