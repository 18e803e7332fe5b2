// The configuration of tutti-aggd, and the answer that `tutti-aggd status` shows.
#include "cut.h"
#include "settings.h"
#include "status_text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz::Input in(data, size);
  if (in.below(2) == 0)
    (void)fuzz::good(tutti::aggd::parse_settings(in.rest(), "fuzz.toml", false));
  else
    (void)tutti::aggd::status_text(std::string(in.rest()));
  return 0;
}
