// What processes of a job answer, put together by `tutti ras`: two looks at it. Input: reports, each up to a byte 0xff; the
// byte in front of one says of which look it is, and whether it is a process that has not answered.
#include "cut.h"
#include "tools/ras_view.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  using namespace tutti;
  using namespace tutti::tools::ras_live;
  fuzz::Input in(data, size);
  Snapshot looks[2];
  looks[0].at_ns = 1'000'000'000;
  looks[1].at_ns = 3'000'000'000;
  while (!in.empty()) {
    const uint8_t how = in.byte();
    const std::string_view text = in.piece();
    Snapshot &look = looks[how & 1];
    if (how & 2) {
      if (auto s = ras::parse_silent(text, "fuzz"); fuzz::good(s)) look.silent[s->process] = std::move(*s);
    } else if (auto r = ras::parse_report(text, "fuzz"); fuzz::good(r)) {
      look.processes[r->process] = std::move(*r);
    }
  }
  for (const Snapshot *before : {static_cast<const Snapshot *>(nullptr), static_cast<const Snapshot *>(&looks[0])}) {
    const View view = make_view(before, looks[1], {});
    size_t ranks = 0;
    for (const auto &j : view.jobs)
      for (const auto &c : j.comms) ranks += static_cast<size_t>(std::max(c.nranks, 0));
    if (ranks > 4096) continue;
    (void)view_text(view, {.width = 80, .links = true, .rank = 0});
    (void)view_json(view, 2);
  }
  return 0;
}
