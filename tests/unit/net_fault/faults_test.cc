#include "faults.h"
#include <doctest/doctest.h>

using namespace tutti::net_fault;

namespace {

std::string error_of(const std::string &text) {
  try {
    parse_faults(text, "tutti.toml:7");
  } catch (const tutti::plugin::Error &e) {
    CHECK(e.code() == TUTTI_ERR_INVALID);
    return e.what();
  }
  return "";
}

} // namespace

TEST_CASE("faults are read with when and how they strike") {
  const auto all = parse_faults("delay=0.25:5ms, drop=after:7,corrupt=1:header,short=0,reset=after:100,half_open=0.5", "");
  REQUIRE(all.size() == 6);
  CHECK(all[0].kind == Kind::delay);
  CHECK(all[0].probability == 0.25);
  CHECK(all[0].time == std::chrono::milliseconds(5));
  CHECK(all[1].kind == Kind::drop);
  CHECK(all[1].after == 7);
  CHECK(all[2].header);
  CHECK(all[3].kind == Kind::cut);
  CHECK(all[4].after == 100);
  CHECK(all[5].kind == Kind::half_open);
  CHECK(parse_faults("", "").empty());
  CHECK_FALSE(parse_faults("corrupt=0.1:payload", "")[0].header);
}

TEST_CASE("what is wrong with a fault is said with its text, where it stands and what is allowed") {
  CHECK(error_of("wobble=1").find("faults (tutti.toml:7): \"wobble=1\" is no kind of fault: delay, drop") == 0);
  CHECK(error_of("drop").find("has no \"=\"") != std::string::npos);
  for (const char *bad : {"drop=", "drop=2", "drop=-0.1", "drop=nan", "drop=0.5x"})
    CHECK(error_of(bad).find("wants a probability from 0 to 1 or after:N") != std::string::npos);
  for (const char *bad : {"drop=after", "drop=after:", "drop=after:x", "drop=after:-1"})
    CHECK(error_of(bad).find("wants a number of messages") != std::string::npos);
  CHECK(error_of("delay=1:5").find("wants a duration like") != std::string::npos);
  CHECK(error_of("delay=1:5h").find("wants a duration like") != std::string::npos);
  CHECK(error_of("drop=1:5ms").find("takes nothing behind") != std::string::npos);
  CHECK(error_of("corrupt=1:tail").find("wants payload or header") != std::string::npos);
  CHECK(error_of("delay=1,delay=x").find("\"delay=x\"") != std::string::npos);
}

TEST_CASE("the same seed strikes the same messages, about as often as asked, and others strike others") {
  const Fault often = parse_faults("drop=0.3", "")[0], third = parse_faults("drop=after:3", "")[0];
  const Dice dice{5, 1, 2}, same{5, 1, 2};
  int struck = 0, differ = 0;
  for (uint64_t m = 0; m < 10000; m++) {
    const bool now = dice.strikes(often, m, 1);
    CHECK(now == same.strikes(often, m, 1));
    struck += now;
    for (const Dice &other : {Dice{6, 1, 2}, Dice{5, 2, 2}, Dice{5, 1, 3}}) differ += now != other.strikes(often, m, 1);
    CHECK(dice.strikes(third, m, 1) == (m == 3));
  }
  CHECK(struck > 2700);
  CHECK(struck < 3300);
  CHECK(differ > 9000);
}
