#include "base/types.h"
#include <algorithm>
#include <array>
#include <cctype>
#include <string>

namespace tutti {
namespace {

struct TypeRow {
  std::string_view name, alias;
  uint32_t bytes;
};
constexpr std::array<TypeRow, TUTTI_DT_COUNT> kTypes{{
    {"int8", "char", 1},
    {"uint8", "uint8", 1},
    {"int32", "int", 4},
    {"uint32", "uint32", 4},
    {"int64", "int64", 8},
    {"uint64", "uint64", 8},
    {"half", "float16", 2},
    {"float", "float32", 4},
    {"double", "float64", 8},
    {"bfloat16", "bf16", 2},
    {"f8e4m3", "float8e4m3", 1},
    {"f8e5m2", "float8e5m2", 1},
}};
constexpr std::array<std::string_view, TUTTI_RED_COUNT> kOps{"sum", "prod", "max", "min"};
constexpr std::array<std::string_view, TUTTI_COLL_COUNT> kColls{"all_reduce",     "reduce",   "broadcast", "all_gather",
                                                                "reduce_scatter", "alltoall", "gather",    "scatter",
                                                                "barrier",        "sendrecv"};

std::string folded(std::string_view name) { // lower case without '_' and '-'
  std::string out;
  for (char c : name)
    if (c != '_' && c != '-') out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

} // namespace

uint32_t dtype_bytes(tutti_dtype type) {
  return type < kTypes.size() ? kTypes[type].bytes : 0;
}
std::string_view dtype_name(tutti_dtype type) {
  return type < kTypes.size() ? kTypes[type].name : "unknown";
}

std::optional<tutti_dtype> dtype_from(std::string_view name) {
  for (tutti_dtype t = 0; t < kTypes.size(); t++)
    if (name == kTypes[t].name || name == kTypes[t].alias) return t;
  return std::nullopt;
}

std::string_view redop_name(tutti_redop op) {
  return op < kOps.size() ? kOps[op] : "unknown";
}
std::string_view coll_name(tutti_coll coll) {
  return coll < kColls.size() ? kColls[coll] : "unknown";
}

std::optional<tutti_coll> coll_from(std::string_view name) {
  const std::string want = folded(name);
  for (tutti_coll c = 0; c < kColls.size(); c++)
    if (want == folded(kColls[c])) return c;
  return std::nullopt;
}

uint32_t coll_in_blocks(tutti_coll coll, uint32_t nranks) {
  switch (coll) {
  case TUTTI_COLL_REDUCE_SCATTER:
  case TUTTI_COLL_ALL_TO_ALL:
  case TUTTI_COLL_SCATTER:
    return nranks;
  default:
    return 1;
  }
}

uint32_t coll_out_blocks(tutti_coll coll, uint32_t nranks) {
  switch (coll) {
  case TUTTI_COLL_ALL_GATHER:
  case TUTTI_COLL_ALL_TO_ALL:
  case TUTTI_COLL_GATHER:
    return nranks;
  default:
    return 1;
  }
}

bool coll_reduces(tutti_coll coll) {
  return coll == TUTTI_COLL_ALL_REDUCE || coll == TUTTI_COLL_REDUCE || coll == TUTTI_COLL_REDUCE_SCATTER ||
         coll == TUTTI_COLL_BARRIER;
}

bool coll_has_root(tutti_coll coll) {
  return coll == TUTTI_COLL_REDUCE || coll == TUTTI_COLL_BROADCAST || coll == TUTTI_COLL_GATHER || coll == TUTTI_COLL_SCATTER;
}

} // namespace tutti
