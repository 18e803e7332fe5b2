// tutti/core/tools/tune_ways.h: which ways are measured, and in which forms.
#pragma once
#include "tools/explained.h"
#include "tools/tune_table.h"

namespace tutti::tools::tune {

Way way_of(const ExplainedWay &w);
Way choice_of(const Explanation &e);
// All that can run, as the core proposes them; what is predicted to be fast comes first.
std::vector<Way> usable_ways(const Explanation &e);
// Other forms of a way that may be faster for messages of this size: slots of a quarter and of four times with as many bytes
// under way, twice as deep ones, stores past the caches, two channels.
std::vector<Way> variants(const Way &way, uint64_t bytes, uint32_t max_channels);
constexpr uint64_t kLongStores = 1 << 20; // bytes from which stores past the caches may gain

// What is told to all ranks.
std::string encode_ways(const std::vector<Way> &ways);
Result<std::vector<Way>> decode_ways(const std::string &text);

// Tuners that come with the tool, for communicators whose ways it measures: the core's proposals as they are, with cached
// stores or with stores past the caches. Private memory of other processes is never read: not all memory can be.
constexpr const char *kCachedTuner = "as-proposed", *kPastCachesTuner = "as-proposed-nt";
void add_measuring_tuners(); // before the library is first used

} // namespace tutti::tools::tune
