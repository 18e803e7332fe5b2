// tutti/core/config/names.h: which names of the environment are whose.
#pragma once
#include <span>
#include <string>
#include <string_view>

namespace tutti::config {

// TUTTI_* names that launchers and loading read themselves; they are no options.
std::span<const std::string> launch_variables();
// NCCL_* names that `tutti perf` reads itself.
std::span<const std::string_view> perf_variables();
// A name of the field's that exists but that no option of ours stands for.
bool is_known_nccl_name(std::string_view name);

} // namespace tutti::config
