// Questions and answers of core/ras, and what HTTP clients send: whatever it is, it is refused, or can be written and read
// again.
#include "ras/desk.h"
#include "ras/http.h"
#include "ras/metrics.h"
#include "ras/neighbours.h"
#include "ras/question.h"
#include "ras/report.h"
#include <cstdlib>

using namespace tutti;
using namespace tutti::ras;

namespace {

template <class T> void again(const Result<T> &first, Result<T> (*parse)(std::string_view, const std::string &)) {
  if (!first.ok()) {
    if (first.status().error().message.find('\n') != std::string::npos) std::abort();
    return;
  }
  const std::string text = encode(*first);
  const auto second = parse(text, "again");
  if (!second.ok() || encode(*second) != text) std::abort();
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char *>(data + 1), size - 1);
  switch (data[0] % 7) {
  case 0:
    if (const auto q = decode_question(std::as_bytes(std::span(text))); q && encode(*q).size() != text.size()) std::abort();
    break;
  case 1: {
    const auto r = parse_report(text, "fuzz");
    again<ProcessReport>(r, parse_report);
    if (r.ok()) (void)metrics_text(*r);
    break;
  }
  case 2:
    again<Silent>(parse_silent(text, "fuzz"), parse_silent);
    break;
  case 3: {
    const HttpRequest r = parse_http(text);
    const std::string answer = http_answer(r, [] { return std::string("page\n"); });
    if (!answer.starts_with("HTTP/1.1 ") || answer.find("\r\n\r\n") == std::string::npos) std::abort();
    break;
  }
  case 4:
    if (const auto e = endpoint(text); e && !endpoint(e->text())) std::abort();
    break;
  case 5:
    (void)parse_metrics_at(text);
    break;
  default:
    (void)parse_stat(text);
    break;
  }
  return 0;
}
