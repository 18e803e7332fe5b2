#include "base/file.h"
#include "ras/flight_file.h"
#include <doctest/doctest.h>

using namespace tutti;
using namespace tutti::ras;

namespace {

OperationState operation(uint64_t seq) {
  OperationState o;
  o.seq = o.call.number = seq;
  o.call.coll = TUTTI_COLL_BROADCAST;
  o.call.dtype = TUTTI_DT_INT32;
  o.call.root = 1;
  o.call.count = seq * 1000;
  o.text = describe(o.call);
  o.bytes = seq * 4000;
  o.algo = "ring";
  o.proto = "simple";
  o.channels = 2;
  o.slot_bytes = 65536;
  o.depth = 8;
  o.enqueued_ns = static_cast<int64_t>(seq) * 10;
  o.started_ns = o.enqueued_ns + 1;
  return o;
}

FlightFile sample() {
  FlightFile f;
  f.who = {0xab, 0xcd, "tensor \"x\"", 2, 4, "node7", 4711, "1.2.3"};
  f.reason = "signal";
  f.written_ns = 1'790'000'000'000'000'000;
  f.record.capacity = 256;
  EngineState &s = f.record.state;
  s.doing = EngineState::Doing::waiting;
  s.text = "waits";
  s.enqueued = 3;
  s.started = 2;
  s.completed = 1;
  s.slices = 9;
  s.noted_ns = 77;
  s.waits = {{3, true, 4, -1, 55}, {0, false, 5, 2, 56}};
  s.progress = {{3, false, 4}, {0, true, 5}};
  s.links = {{3, 1, false, 0, LinkClass::net, "simple", 10, 1000, 0, 0}};
  s.error = tutti::fail(Code::timeout, "too late").peer(3).phase("operation");
  for (uint64_t seq = 1; seq <= 3; seq++) f.record.operations.push_back(operation(seq));
  f.record.operations[0].completed_ns = 19;
  f.record.operations[1].tag = "step \xff";
  f.record.operations[2].transfers = {{1, true, 64}, {3, false, 128}};
  f.record.operations[2].transfers_in_all = 2;
  f.record.skipped.push_back(operation(9));
  f.record.skipped[0].seq = 0;
  f.record.events = {{5, 1, "set up", "4 ranks"}, {80, 3, "failed", "too late"}};
  return f;
}

std::string why_not(std::string text) {
  const auto got = parse_flight(text, "x.json");
  REQUIRE_FALSE(got.ok());
  const std::string line = got.status().error().message;
  CHECK(line.starts_with("x.json: "));
  CHECK(line.find('\n') == std::string::npos);
  return line;
}

std::string with(std::string text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

} // namespace

TEST_CASE("what is written to a flight-recorder file is read back") {
  const FlightFile f = sample();
  const std::string text = encode_flight(f);
  const auto got = parse_flight(text, "x.json");
  REQUIRE_MESSAGE(got.ok(), got.status().error().message);
  CHECK(got->who.comm == 0xab);
  CHECK(got->who.job == 0xcd);
  CHECK(got->who.name == "tensor \"x\"");
  CHECK(got->who.rank == 2);
  CHECK(got->who.nranks == 4);
  CHECK(got->who.pid == 4711);
  CHECK(got->who.version == "1.2.3");
  CHECK(got->written_ns == f.written_ns);
  const EngineState &s = got->record.state;
  CHECK(s.doing == EngineState::Doing::waiting);
  REQUIRE(s.waits.size() == 2);
  CHECK(s.waits[0].peer == 3);
  CHECK(s.waits[0].receiving);
  CHECK(s.waits[0].since_ns == 55);
  CHECK(s.waits[1].group == 2);
  CHECK_FALSE(s.waits[1].receiving);
  CHECK(s.progress.size() == 2);
  REQUIRE(s.links.size() == 1);
  CHECK(s.links[0].link_class == LinkClass::net);
  CHECK(s.links[0].bytes == 1000);
  REQUIRE(s.oldest);
  CHECK(s.oldest->seq == 2);
  REQUIRE(s.last);
  CHECK(s.last->completed_ns == 19);
  REQUIRE_FALSE(s.error.ok());
  CHECK(s.error.error().peer == 3);
  REQUIRE(got->record.operations.size() == 3);
  CHECK(call_signature(got->record.operations[1].call) == call_signature(f.record.operations[1].call));
  CHECK(got->record.operations[1].slot_bytes == 65536);
  CHECK(got->record.operations[2].transfers[1].bytes == 128);
  CHECK(got->record.skipped.size() == 1);
  CHECK(got->record.events[1].text == "too late");
  CHECK(encode_flight(*got) == encode_flight(*parse_flight(encode_flight(*got), "again"))); // and is stable from then on
}

TEST_CASE("each thing that is wrong in a flight-recorder file is an error that says where") {
  const std::string text = encode_flight(sample());
  CHECK(why_not("").find("JSON") != std::string::npos);
  CHECK(why_not(text.substr(0, text.size() / 2)).find("only a part") != std::string::npos);
  CHECK(why_not("[]").find("no flight-recorder file") != std::string::npos);
  CHECK(why_not(with(text, "flight/1", "flight/2")).find("this tool reads tutti.flight/1") != std::string::npos);
  CHECK(why_not(with(text, "\"rank\":2", "\"rank\":4")).find("\"rank\" of 4; a number from 0 to 3") != std::string::npos);
  CHECK(why_not(with(text, "\"peer\":3", "\"peer\":9")).find("wait has a \"peer\" of 9") != std::string::npos);
  CHECK(why_not(with(text, "broadcast\"", "braodcast\"")).find("braodcast") != std::string::npos);
  CHECK(why_not(with(text, "\"completed\":1", "\"completed\":3")).find("3 operations completed, 2 started") !=
        std::string::npos);
  CHECK(why_not(with(text, "\"seq\":3", "\"seq\":1")).find("seq 1 after 2") != std::string::npos);
  CHECK(why_not(with(text, "\"nranks\":4", "\"nranks\":-4")).find("nranks") != std::string::npos);
  CHECK(why_not(with(text, "00ab\"", "00xx\"")).find("hexadecimal") != std::string::npos);
  constexpr size_t kDeep = 200'000;
  why_not(with(text, "\"rank\":2", "\"rank\":" + std::string(kDeep, '[') + std::string(kDeep, ']')));
}

TEST_CASE("counts of a flight-recorder file that do not fit are refused by name, and not cut") {
  const std::string text = encode_flight(sample());
  for (const char *key : {"channels", "slot_bytes", "depth"}) {
    const size_t at = text.find(fmt::format("\"{}\":", key));
    REQUIRE(at != std::string::npos);
    const size_t from = text.find_first_of("0123456789", at), to = text.find_first_not_of("0123456789", from);
    const std::string line = why_not(std::string(text).replace(from, to - from, "4294967298"));
    CHECK_MESSAGE(line.find(fmt::format("has a \"{}\" of 4294967298; a number from 0 to 4294967295", key)) != std::string::npos,
                  line);
  }
}

TEST_CASE("any part of a flight-recorder file is read, or refused with one line") {
  const std::string text = encode_flight(sample());
  for (size_t n = 0; n + 1 < text.size(); n += 7) {
    const auto got = parse_flight(std::string_view(text).substr(0, n), "part");
    CHECK_FALSE(got.ok());
  }
  CHECK(parse_flight(std::string_view(text).substr(0, text.size() - 1), "all but the end of the line").ok());
}
