// What hosts under test say to each other: reports, places, requests, datagrams; and what is judged of them.
#include "cut.h"
#include "tools/doctor/pairs.h"
#include <nlohmann/json.hpp>

using namespace tutti;
using namespace tutti::doctor;

namespace {

std::string dump(const nlohmann::json &j) {
  return j.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void judged(fuzz::Input in) {
  PairsReport report;
  while (!in.empty() && report.hosts.size() < 4) {
    HostReport host = report_from(std::string(in.piece()));
    for (const Place &p : host.places) {
      if (const auto e = endpoint_of(p, p.port)) fuzz::expect(!e->text().empty());
      (void)same_subnet(p, host.places.front());
      fuzz::expect(place_from(to_json(p)).has_value());
    }
    report.hosts.push_back(std::move(host));
    report.ranks.push_back({static_cast<int>(report.ranks.size())});
  }
  for (size_t a = 0; a < report.hosts.size(); a++)
    for (size_t b = 0; b < report.hosts.size(); b++)
      if (a != b) {
        PairResult p;
        p.from = static_cast<int>(a);
        p.to = static_cast<int>(b);
        report.pairs.push_back(std::move(p));
      }
  (void)judge(report);
  (void)matrix_text(report);
  (void)dump(pairs_json(report));
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz::Input in(data, size);
  switch (in.below(5)) {
  case 0:
    judged(in);
    break;
  case 1: {
    const std::string_view text = in.rest();
    const auto json = nlohmann::json::parse(text, nullptr, false);
    if (json.is_discarded()) break;
    const Findings f = findings_from(json);
    (void)findings_text(f, true);
    (void)dump(findings_json(f));
    break;
  }
  case 2: {
    const std::string_view bytes = in.rest();
    const boot::Secret key{};
    const auto datagram = std::as_bytes(std::span(bytes));
    fuzz::expect(!datagram_proved(key, datagram)); // it would take the key
    if (bytes.size() < 20) break;
    const auto made = make_datagram(key, datagram.first<16>(), static_cast<uint8_t>(bytes[16]));
    fuzz::expect(datagram_proved(key, made));
    if (bytes.size() == 16) (void)decode_request(datagram.first<16>());
    break;
  }
  case 3:
    if (const auto secret = secret_from_hex(in.rest())) fuzz::expect(secret_from_hex(hex(*secret)) == secret);
    break;
  default:
    (void)fuzz::good(parse_pipe_start(std::string(in.rest())));
    break;
  }
  return 0;
}
