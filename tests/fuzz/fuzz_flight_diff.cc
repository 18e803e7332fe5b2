// Flight-recorder files of several ranks, compared. Input: files, each up to a byte 0xff.
#include "cut.h"
#include "tools/ras_diff.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  using namespace tutti;
  fuzz::Input in(data, size);
  std::vector<std::pair<std::string, ras::FlightFile>> files;
  while (!in.empty() && files.size() < 8)
    if (auto file = ras::parse_flight(in.piece(), "fuzz"); fuzz::good(file)) files.emplace_back("fuzz", std::move(*file));
  auto job = tools::rasdiff::merge(std::move(files));
  if (!fuzz::good(job)) return 0;
  size_t ranks = 0;
  for (const auto &c : job->comms) ranks += static_cast<size_t>(std::max(c.nranks, 0));
  tools::rasdiff::judge(*job);
  fuzz::expect(job->verdict.text.find('\n') == std::string::npos);
  if (ranks > 4096) return 0;
  (void)tools::rasdiff::as_text(*job);
  (void)tools::rasdiff::to_json(*job);
  return 0;
}
