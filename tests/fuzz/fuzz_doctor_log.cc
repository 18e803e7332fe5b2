// Logs of ours, of NCCL and of whoever writes into them: something is said of any text, in few words.
#include "cut.h"
#include "tools/doctor/log_explain.h"
#include <nlohmann/json.hpp>
#include <sstream>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  using namespace tutti::doctor;
  const std::string text(reinterpret_cast<const char *>(data), size);
  (void)read_log_line(std::string_view(text).substr(0, text.find('\n')));
  std::istringstream in(text);
  const Explanation e = explain_log(in);
  fuzz::expect(e.ours + e.nccl <= e.lines);
  for (const Symptom &s : e.symptoms) fuzz::expect(s.rule && s.count > 0 && s.first_line > 0 && s.first_line <= e.lines);
  (void)explanation_text(e, "fuzz");
  (void)explanation_json(e).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return 0;
}
