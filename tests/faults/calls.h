// tests/faults/calls.h: operations of crafted data, as all ranks understand them or as one does that has misunderstood.
#pragma once
#include "tutti/tutti.h"
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace faults {

class Calls {
public:
  static constexpr int64_t kUnwritten = -1; // no value of a result

  Calls(int rank, int nranks, size_t count);
  ~Calls(); // after an error the second communicator is still there
  Calls(const Calls &) = delete;
  // second: the ranks have another communicator, too.
  tuttiResult_t use(tuttiComm_t comm, bool second);
  tuttiResult_t done(); // with the second one
  // A sum of values that no other set of ranks and no other round adds up to. Looked at in every element.
  tuttiResult_t sum(int round);
  // The ranks do not call the same; `odd`: this rank is the one that has misunderstood `what`.
  tuttiResult_t misunderstand(const std::string &what, bool odd);
  bool right() const { return right_; }
  void spoil() { spoilt_ = true; } // the next sum is found wrong
  // Of the result: all of it is unwritten; the word at `of64` 64ths of it.
  void clear() { out_.assign(out_.size(), kUnwritten); }
  const int64_t *word(int of64) const;

private:
  int64_t value(int rank, size_t i, int round) const;
  tuttiResult_t finish(tuttiResult_t called, tuttiComm_t comm);

  const int rank_, n_;
  std::vector<int64_t> in_, out_;
  tuttiComm_t comm_ = nullptr, second_ = nullptr;
  bool right_ = true, spoilt_ = false;
};

} // namespace faults
