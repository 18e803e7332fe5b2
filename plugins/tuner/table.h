// plugins/tuner/table.h: the rules that the tuner "table" answers from, and how they rate candidates.
#pragma once
#include "tutti/plugin/tuner.h"
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tuner {

struct Range {
  int64_t min = 0, max = INT64_MAX;
  bool holds(int64_t value) const { return min <= value && value <= max; }
};

// Of a way, or of all ways of a rule that have none of their own. What is left open stays as the core proposed it.
struct Geometry {
  std::optional<uint32_t> channels, slot_bytes, depth;
  std::optional<bool> nontemporal, shared_only; // TUTTI_CAND_*
  void fill_from(const Geometry &other);        // what is open here
};

struct Way {
  std::string algo, proto; // proto "" = any
  Geometry geometry;
  std::vector<double> time_us; // one per size of the rule; empty = not measured
  bool is(const tutti_candidate &c) const { return algo == c.algo && (proto.empty() || proto == c.proto); }
};

struct Rule {
  uint32_t colls = ~0u; // bit per tutti_coll
  uint64_t min_bytes = 0, max_bytes = UINT64_MAX;
  Range ranks, hosts, ppn, cores;
  uint32_t links = ~0u;        // bit per TUTTI_LINK_CLASS_*
  std::vector<uint64_t> sizes; // that were measured, ascending
  std::vector<Way> ways;       // best first
  std::string note;            // "cluster.toml:12"
  bool fits(const tutti_tune_query &query) const;
};

struct Table {
  std::vector<Rule> rules;
  std::vector<std::string> warnings; // with file and line; about rows that are skipped and names that look mistyped
};

// The core's array of candidates, whose elements may be longer than this plugin knows.
class Candidates {
public:
  Candidates(tutti_candidate *first, uint32_t n, uint32_t stride)
      : first_(reinterpret_cast<char *>(first)), n_(n), stride_(stride) {}
  uint32_t size() const { return n_; }
  tutti_candidate &operator[](uint32_t i) const { return *reinterpret_cast<tutti_candidate *>(first_ + size_t(i) * stride_); }

private:
  char *first_;
  uint32_t n_, stride_;
};

// A time of `way` in the size class that ends at `bytes`: measured there, or between two measured sizes. Nothing outside them.
struct Time {
  double us = 0;
  bool measured = false;
};
std::optional<Time> time_of(const Rule &rule, const Way &way, uint64_t bytes);

// Rates in place by the first rule that fits and has a way among the candidates; without one they stay as they came. Ways that
// the rule does not list rank behind those that it does, in the core's order, with the core's slots.
void rate(const Table &table, const tutti_tune_query &query, const Candidates &candidates);

// Each throws tutti::plugin::Error naming source:line, the value and what is allowed. parse_table tells the formats apart: the
// first line of a CSV table has a ',' behind its first word.
Table parse_table(std::string_view text, const std::string &source);
Table parse_toml(std::string_view text, const std::string &source);
Table parse_field_csv(std::string_view text, const std::string &source);
// A whole file; origin: of the option that names it, for messages.
std::string read_file(const std::string &path, const std::string &origin);

std::string_view built_in_table(); // TOML
constexpr const char *kBuiltIn = "built-in table";
constexpr size_t kMostRules = 20'000; // of a table, rows of a CSV file

} // namespace tuner
