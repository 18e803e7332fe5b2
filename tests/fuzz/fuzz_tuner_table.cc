// Tables of the tuner in both formats: any text gives rules that rate, or an error of one line.
#include "table.h"
#include "tutti/plugin/cxx/host.hpp"
#include <cmath>
#include <cstdlib>

namespace {

void rate_all(const tuner::Table &table) {
  for (tutti_coll coll = 0; coll <= TUTTI_COLL_SEND_RECV; coll += 3)
    for (uint64_t bytes : {uint64_t(1), uint64_t(65536), uint64_t(1) << 47}) {
      tutti_tune_query q{};
      q.struct_size = sizeof q;
      q.coll = coll;
      q.bytes = bytes;
      q.nranks = q.max_ppn = 8;
      q.nnodes = 1;
      q.min_cores = 2;
      tutti_candidate list[] = {{"ring", "simple", 1, 1, 1, 64, 32768, 8, 0, nullptr},
                                {"tree", "ll", 0, 1, 1, 64, 32768, 8, 0, nullptr}};
      tuner::rate(table, q, tuner::Candidates(list, 2, sizeof list[0]));
      for (const auto &c : list)
        if (!std::isfinite(c.cost_us) || c.cost_us < 0 || c.channels < 1 || c.channels > 64 || c.depth < 2) std::abort();
    }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const std::string_view text(reinterpret_cast<const char *>(data), size);
  for (auto *parse : {tuner::parse_toml, tuner::parse_field_csv}) {
    try {
      rate_all(parse(text, "fuzz"));
    } catch (const tutti::plugin::Error &e) {
      if (std::string_view(e.what()).find('\n') != std::string_view::npos) std::abort();
    }
  }
  return 0;
}
