// Flight-recorder files: any text is an error of one line, or a file that can be written and read again.
#include "ras/flight_file.h"
#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  using namespace tutti::ras;
  const auto file = parse_flight(std::string_view(reinterpret_cast<const char *>(data), size), "fuzz");
  if (!file.ok()) {
    if (file.status().error().message.find('\n') != std::string::npos) std::abort();
    return 0;
  }
  const std::string text = encode_flight(*file);
  const auto again = parse_flight(text, "again");
  if (!again.ok() || encode_flight(*again) != text) std::abort();
  return 0;
}
