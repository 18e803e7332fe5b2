// The option of net-fault: any text is a list of faults or an error.
#include "cut.h"
#include "faults.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  try {
    (void)tutti::net_fault::parse_faults(std::string(reinterpret_cast<const char *>(data), size), "fuzz");
  } catch (const tutti::plugin::Error &e) {
    fuzz::expect(e.code() != TUTTI_OK);
  }
  return 0;
}
