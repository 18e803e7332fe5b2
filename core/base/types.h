// tutti/core/base/types.h: names and sizes of element types, reductions and collectives, in one place.
#pragma once
#include "tutti/plugin/base.h"
#include <cstdint>
#include <optional>
#include <string_view>

namespace tutti {

uint32_t dtype_bytes(tutti_dtype type);        // 0 for an unknown type
std::string_view dtype_name(tutti_dtype type); // "int8" ... "float", "half", "bfloat16", "f8e4m3": the perf tests' names
std::optional<tutti_dtype> dtype_from(std::string_view name); // also "float32", "float16", ...
std::string_view redop_name(tutti_redop op);                  // "sum" "prod" "max" "min"
std::string_view coll_name(tutti_coll coll);                  // "all_reduce" "alltoall" ...: the perf tests' names
std::optional<tutti_coll> coll_from(std::string_view name);   // also "allreduce", "AllReduce"
uint32_t coll_in_blocks(tutti_coll coll, uint32_t nranks);    // table of plugin/base.h
uint32_t coll_out_blocks(tutti_coll coll, uint32_t nranks);
bool coll_reduces(tutti_coll coll);
bool coll_has_root(tutti_coll coll);

} // namespace tutti
