#include "wire.h"
#include <doctest/doctest.h>

using namespace tutti::aggd;

namespace {
std::span<const uint8_t> body_of(const std::string &frame) {
  Header h;
  std::memcpy(&h, frame.data(), sizeof h);
  REQUIRE(frame.size() == frame_bytes(h));
  REQUIRE(check_header(h, 0, 0).empty());
  return {reinterpret_cast<const uint8_t *>(frame.data()) + sizeof h, h.bytes};
}
Header good() {
  Header h = chunk_header(0, 7, 0, 0);
  h.bytes = h.total = 64;
  return h;
}
} // namespace

TEST_CASE("every body is read as it was written") {
  Join j;
  j.job = 3, j.members = 9, j.member = 4, j.local = 2, j.window = 1 << 20, j.outstanding = 5, j.chunk = 640, j.chunk_min = 128,
  j.progress_ms = 7, j.deadline_ms = 8;
  j.token[15] = 1;
  const auto join = read_join(body_of(frame(j)));
  REQUIRE(join.has_value());
  CHECK((join->job == 3 && join->members == 9 && join->member == 4 && join->token == j.token && join->chunk_min == 128 &&
         join->deadline_ms == 8));
  CoverOf c{{1, 2, 3, 6, 65536, 640, 5, 128}, Members(9)};
  c.members.add(8);
  const auto cover = read_cover(body_of(frame(c)), 9);
  REQUIRE(cover.has_value());
  CHECK((cover->cover.shape == 1 && cover->cover.daemons == 6 && cover->cover.window == 65536 &&
         cover->cover.chunk_min == 128 && cover->members.has(8) && !cover->members.has(7)));
  CHECK_FALSE(read_cover(body_of(frame(c)), 17).has_value());
  const auto grant = read_grant(body_of(frame(Grant{1, 65536, 3, 8192, 5})));
  CHECK((grant && grant->epoch == 1 && grant->progress_ms == 5));
  const auto start = read_start(body_of(frame(Start{c.cover})));
  CHECK((start && start->all.depth == 3));
  const auto fault = read_fault(body_of(frame(Fault{Reason::timeout, Field::bytes, 3, 4, 5, "why\nnot", true})));
  REQUIRE(fault.has_value());
  CHECK((fault->reason == Reason::timeout && fault->field == Field::bytes && fault->member == 3 && fault->hearsay &&
         fault->text == "why not"));
  const auto text = [](const std::string &raw) {
    return read_fault(body_of(frame(Fault{Reason::timeout, Field::none, 0, 0, 0, raw}))).value_or(Fault{}).text;
  };
  CHECK(text("stra\xc3\x9f"
             "e \xe2\x82\xac \xf0\x9f\x8d\x8e") == "stra\xc3\x9f"
                                                   "e \xe2\x82\xac \xf0\x9f\x8d\x8e");
  CHECK(text("\xff \xc3( \xed\xa0\x80 \xc0\xaf \xe2\x82") == "? ?( ??? ?? ??"); // what is no UTF-8 goes on to nobody
}

TEST_CASE("a grant of what no daemon grants is none") {
  const auto reads = [](const Grant &g) { return read_grant(body_of(frame(g))).has_value(); };
  CHECK(reads({1, least_window, 1, 64, 1}));
  CHECK(reads({1, most_window, 4096, most_window / 8, most_progress_ms}));
  CHECK_FALSE(reads({1, least_window - 1, 1, 64, 1}));
  CHECK_FALSE(reads({1, most_window + 1, 1, 64, 1}));
  CHECK_FALSE(reads({1, least_window, 0, 64, 1}));
  CHECK_FALSE(reads({1, least_window, 1, 0, 1}));
  CHECK_FALSE(reads({1, least_window, 1, least_window + 1, 1}));
  CHECK_FALSE(reads({1, least_window, 1, 64, 0}));
  CHECK_FALSE(reads({1, least_window, 1, 64, UINT32_MAX})); // from which limits of time are reckoned
}

TEST_CASE("bodies that are cut short or too long are no bodies") {
  const std::string whole = frame(Join{1, {}, 2, 0, 2, 65536, 1, 64, 64, 1, 1});
  const auto body = body_of(whole);
  REQUIRE(read_join(body).has_value());
  for (size_t n = 0; n < body.size(); n++) CHECK_FALSE(read_join(body.first(n)).has_value());
  std::vector<uint8_t> longer(body.begin(), body.end());
  longer.push_back(0);
  CHECK_FALSE(read_join(longer).has_value());
}

TEST_CASE("joins and covers out of range are refused") {
  const auto reads = [](Join j) { return read_join(body_of(frame(j))).has_value(); };
  const Join j{1, {}, 4, 3, 4, 65536, 1, 64, 64, 1, 1};
  CHECK(reads(j));
  Join bad = j;
  bad.member = 4;
  CHECK_FALSE(reads(bad));
  bad = j, bad.members = most_members + 1;
  CHECK_FALSE(reads(bad));
  bad = j, bad.outstanding = 0;
  CHECK_FALSE(reads(bad));
  CHECK_FALSE(read_cover(body_of(frame(CoverOf{{1, 0, 1, 1, 65536, 63, 1}, Members(3)})), 3)
                  .has_value()); // a chunk that is no multiple of 64
  CHECK_FALSE(read_cover(body_of(frame(CoverOf{{1, 0, 1, 1, 65535, 64, 1}, Members(3)})), 3).has_value());
}

TEST_CASE("a header says what is wrong with it") {
  CHECK(check_header(good(), 64, 2) == "");
  const auto wrong = [](auto change) {
    Header h = good();
    change(h);
    return check_header(h, 64, 2);
  };
  CHECK(wrong([](Header &h) { h.magic++; }) != "");
  CHECK(wrong([](Header &h) { h.kind = static_cast<Kind>(99); }) != "");
  CHECK(wrong([](Header &h) { h.dtype = 12; }) == "element type 12");
  CHECK(wrong([](Header &h) { h.op = 4; }) == "reduction 4");
  CHECK(wrong([](Header &h) { h.coll = 5; }) == "collective 5");
  CHECK(wrong([](Header &h) { h.root = 0; }) == "root 0");
  CHECK(wrong([](Header &h) { h.coll = 1, h.root = 2; }) == "root 2");
  CHECK(wrong([](Header &h) { h.bytes = h.total = 128; }) != "");
  CHECK(wrong([](Header &h) { h.bytes = 62; }) != "");
  CHECK(wrong([](Header &h) { h.offset = 4; }) == "a chunk beyond its post");
  CHECK(wrong([](Header &h) { h.bytes = 0; }) == "a chunk beyond its post");
  CHECK(wrong([](Header &h) { h.flags = flag_wide; }) != ""); // float32 has no wide form
  CHECK(wrong([](Header &h) { h.flags = flag_average, h.op = 2; }) != "");
  CHECK(wrong([](Header &h) { h.flags = 128; }) == "flags 128");
  Header control = control_header(Kind::error, most_body + 1);
  CHECK(check_header(control, 0, 0) != "");
}

TEST_CASE("partial results of narrow types are wide, and padding fills eights") {
  Header h = chunk_header(0, 6, 0, 0);
  h.bytes = 6;
  CHECK(body_bytes(h) == 6);
  CHECK(frame_bytes(h) == 40);
  h.flags = flag_wide;
  CHECK(body_bytes(h) == 12);
  CHECK(frame_bytes(h) == 48);
  h.flags = flag_empty;
  CHECK(frame_bytes(h) == 32);
}

TEST_CASE("the field in which two chunks differ is named by what matters first") {
  const Header a = good();
  const auto differs = [&](auto change) {
    Header b = a;
    change(b);
    return difference(a, b);
  };
  CHECK(difference(a, a) == Field::none);
  CHECK(differs([](Header &h) { h.dtype = 2, h.total = 8; }) == Field::dtype);
  CHECK(differs([](Header &h) { h.total = 8; }) == Field::bytes);
  CHECK(differs([](Header &h) { h.tag = 8; }) == Field::tag);
  CHECK(differs([](Header &h) { h.seq = 8; }) == Field::order);
  Header b = a;
  b.bytes = 32;
  CHECK(difference(a, b) == Field::order);
  CHECK(field_value(Field::order, a) == "64 bytes from byte 0 of post 0");
  CHECK(field_value(Field::order, b) == "32 bytes from byte 0 of post 0");
  CHECK(differs([](Header &h) { h.flags = flag_empty; }) == Field::none); // each side's own
}

TEST_CASE("sets of members are listed as ranges") {
  Members m(20);
  for (const uint32_t i : {0u, 2u, 3u, 7u, 8u, 9u}) m.add(i);
  CHECK(m.list(true) == "0, 2, 3, 7-9");
  CHECK(m.list(false) == "1, 4-6, 10-19");
  CHECK(m.list(false, 2) == "1, 4-6, ...");
  CHECK(m.count() == 6);
  CHECK_FALSE(Members::from(20, std::vector<uint8_t>{0, 0}).has_value());
  CHECK_FALSE(Members::from(20, std::vector<uint8_t>{0, 0, 0x10}).has_value()); // a member 20 of 20
}

TEST_CASE("a proof holds for its key, hello and challenge only") {
  REQUIRE(crypto_ready());
  Key key{}, other{};
  other[0] = 1;
  const Hello hello = make_hello(Role::member), later = make_hello(Role::member);
  const Challenge c = make_challenge(key, hello);
  CHECK(proves(key, hello, c));
  CHECK_FALSE(proves(other, hello, c));
  CHECK_FALSE(proves(key, later, c));
  const Proof p = make_proof(key, hello, c);
  CHECK(proves(key, hello, c, p));
  CHECK_FALSE(proves(key, hello, make_challenge(key, hello), p));
  CHECK_FALSE(proves(key, hello, c, Proof{c.mac})); // a mirror
  CHECK(make_challenge(key, make_hello(Role::member, 2, 9)).version == 0);
  CHECK(make_challenge(key, make_hello(Role::member, 0, 9)).version == 1);
}
