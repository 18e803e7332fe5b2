// Pass lines: what the file may say, and what they say to measured rows.
#include "tools/perf.h"
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

using namespace tutti;
using namespace tutti::tools::perf;

namespace {

std::vector<PassLine> lines_of(const std::string &text) {
  auto lines = parse_pass_lines(text, "x.toml");
  REQUIRE_MESSAGE(lines.ok(), (lines.ok() ? "" : lines.status().error().message));
  return *lines;
}
std::string error_of(const std::string &text) {
  const auto lines = parse_pass_lines(text, "x.toml");
  return lines.ok() ? "" : lines.status().error().message;
}
constexpr const char *kGood = "[a]\noperation = \"all_reduce\"\nbusbw = \"18 GB/s\"\n";

Row row_of(uint64_t bytes, double out, double in, const char *link) {
  Row row;
  row.asked = row.bytes = bytes;
  row.out.valid = row.in.valid = true;
  row.out.bus_bw = out;
  row.in.bus_bw = in;
  row.explained.link = link;
  return row;
}
PassCheck check_of(const std::string &more) {
  return PassCheck(lines_of(kGood + more), "all_reduce");
}

} // namespace

TEST_CASE("a pass line has operation and bandwidth, and sizes and link if it wants") {
  const auto lines = lines_of("[b]\noperation = [\"alltoall\", \"all_gather\"]\nlink = \"shm\"\nsizes = \"1K..64K\"\nbusbw = "
                              "\"950 MB/s\"\n[a]\noperation = \"all_reduce\"\nbusbw = \"18.5 GB/s\"\n");
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].name == "b"); // in the order of the file
  CHECK(lines[0].origin == "x.toml:1");
  CHECK(lines[0].serves("all_gather"));
  CHECK_FALSE(lines[0].serves("all_reduce"));
  CHECK(lines[0].min_bytes == 1024);
  CHECK(lines[0].max_bytes == 65536);
  CHECK(lines[0].bus_bw == doctest::Approx(0.95));
  CHECK(lines[1].origin == "x.toml:6");
  CHECK(lines[1].bus_bw == 18.5);
  CHECK(lines[1].text() == "18.50 GB/s over any link, all sizes");
  for (const auto &[sizes, min, max] : {std::tuple("8", uint64_t{8}, uint64_t{8}),
                                        {"128M..", uint64_t{128} << 20, UINT64_MAX},
                                        {"..4K", uint64_t{0}, uint64_t{4096}}}) {
    const auto line = lines_of(kGood + fmt::format("sizes = \"{}\"\n", sizes))[0];
    CHECK(line.min_bytes == min);
    CHECK(line.max_bytes == max);
    CHECK(line.text() == fmt::format("18.00 GB/s over any link, {}", sizes));
  }
}

TEST_CASE("what a pass line must not say is told with file, line, value and what is allowed") {
  const auto with = [](const std::string &line) { return error_of(kGood + line + "\n"); };
  CHECK(with("bandwidth = \"1 GB/s\"") == "x.toml:4: [a] unknown key \"bandwidth\"; valid keys: operation, link, sizes, busbw");
  CHECK(with("size = \"1M\"").find("unknown key \"size\"; did you mean \"sizes\"?") != std::string::npos);
  CHECK(with("link = \"sokcet\"")
            .find("x.toml:4: link \"sokcet\" is no kind of link; did you mean \"socket\"? one of local, shm") == 0);
  CHECK(with("link = \"net:\"").find("is no kind of link") != std::string::npos);
  CHECK(with("link = [\"shm\"]").find("x.toml:4: link is a list") == 0);
  for (const char *bad : {"", "..", "4X", "1M..1K", "1K...2K", "-1"})
    CHECK_MESSAGE(with(fmt::format("sizes = \"{}\"", bad)).find("x.toml:4: sizes ") == 0, bad);
  for (const char *bad :
       {"18", "\"18\"", "\"GB/s\"", "\"18 Gb/s\"", "\"0 GB/s\"", "\"-1 GB/s\"", "\"inf GB/s\"", "\"nan GB/s\""})
    CHECK_MESSAGE(error_of(fmt::format("[a]\noperation = \"all_reduce\"\nbusbw = {}\n", bad)).find("x.toml:3: busbw ") == 0,
                  bad);
  CHECK(error_of("[a]\noperation = \"all_redcue\"\n")
            .find("x.toml:2: operation \"all_redcue\" is none; did you mean \"all_reduce\"?") == 0);
  CHECK(error_of("[a]\noperation = \"barrier\"\n").find("operation \"barrier\" is none") != std::string::npos);
  CHECK(error_of("[a]\noperation = []\n") == "x.toml:2: operation = [] names none");
  CHECK(error_of("[a]\nbusbw = \"1 GB/s\"\n") == "x.toml:1: [a] has no operation");
  CHECK(error_of("\n[a]\noperation = \"reduce\"\n") == "x.toml:2: [a] has no busbw");
  CHECK(error_of("# nothing\n").find("x.toml: no pass line") == 0);
  CHECK(error_of("[a\n").find("x.toml:1: not valid TOML") == 0);
  CHECK(error_of("[a]\nbusbw = 18.5\n").find("x.toml:2: ") == 0);
  CHECK_FALSE(read_pass_lines("/nonexistent/expect.toml").ok());
  CHECK_FALSE(read_pass_lines("/").ok());
  const auto empty = read_pass_lines("/dev/null");
  REQUIRE_FALSE(empty.ok());
  CHECK(empty.status().error().message.find("/dev/null: no pass line") == 0);
}

TEST_CASE("a result below the line misses it, in place or not, and the worst one gives the shortfall") {
  PassCheck check = check_of("sizes = \"1M..\"\n");
  CHECK_FALSE(check.measured());
  check.add(row_of(1 << 10, 1, 1, "shm")); // too small to count
  CHECK_FALSE(check.measured());
  CHECK(check.json()[0]["okay"].is_null());
  check.add(row_of(1 << 20, 18, 19, "shm")); // just enough
  CHECK(check.json()[0]["okay"] == true);
  CHECK(check.measured());
  CHECK_FALSE(check.missed());
  CHECK(check.report()[0] == "a (x.toml:1): 18.00 GB/s over any link, 1M..: 2 results, the least 18.00 GB/s at 1048576 OK");
  check.add(row_of(2 << 20, 20, 9, "shm"));
  check.add(row_of(4 << 20, 17, 20, "shm"));
  CHECK(check.missed());
  CHECK(check.report()[0] ==
        "a (x.toml:1): 18.00 GB/s over any link, 1M..: 2 of 6 results below, the least 9.00 GB/s at 2097152 "
        "in place: 9.00 GB/s (50.0 %) short FAILED");
  const auto j = check.json();
  CHECK(j[0]["shortfall"] == 9);
  CHECK(j[0]["below"] == 2);
  CHECK(j[0]["okay"] == false);
}

TEST_CASE("a placement that does not exist is no result") {
  PassCheck check = check_of("");
  Row row = row_of(64, 20, 0, "shm");
  row.in.valid = false;
  check.add(row);
  CHECK_FALSE(check.missed());
}

TEST_CASE("a line holds for its kind of link only") {
  const auto fits = [](const std::string &link, const char *kind) {
    PassCheck check = check_of(link.empty() ? "" : "link = \"" + link + "\"\n");
    check.add(row_of(64, 20, 20, kind));
    return check.measured();
  };
  for (const char *kind : {"local", "shm", "socket", "ib", "fabric"}) {
    const bool net = kind != std::string_view("local") && kind != std::string_view("shm");
    CAPTURE(kind);
    CHECK(fits("", kind));
    CHECK(fits("net", kind) == net);
    CHECK(fits("net:" + std::string(kind), kind));
    for (const char *link : {"local", "shm", "socket", "ib"}) CHECK(fits(link, kind) == (std::string_view(link) == kind));
  }
  PassCheck check = check_of("link = \"ib\"\n");
  check.add(row_of(64, 1, 1, "shm"));
  CHECK(check.report()[0].ends_with("not measured: the link is shm"));
  PassCheck alone = check_of("link = \"ib\"\n");
  alone.add(row_of(64, 1, 1, ""));
  CHECK(alone.report()[0].ends_with("not measured: there are no links"));
}

TEST_CASE("the slowest link among an explanation's is the job's") {
  const auto slowest = [](const std::vector<const char *> &links) {
    nlohmann::json j{{"links", nlohmann::json::array()}};
    for (const char *link : links) j["links"].push_back({{"peer", 0}, {"link", link}});
    return slowest_link(j);
  };
  CHECK(slowest({"local", "local"}) == "local");
  CHECK(slowest({"local", "shm", "local"}) == "shm");
  CHECK(slowest({"shm", "net socket eth0 10.0.0.1:1 -> 10.0.0.2:2", "local"}) == "socket");
  CHECK(slowest({}) == "");
  CHECK(slowest_link(nlohmann::json::object()) == "");
}

TEST_CASE("the sample holds the lines of HDR and NDR") {
  const auto lines = read_pass_lines(TUTTI_SOURCE_DIR "/docs/examples/expect.toml");
  REQUIRE_MESSAGE(lines.ok(), (lines.ok() ? "" : lines.status().error().message));
  REQUIRE(lines->size() == 3);
  CHECK((*lines)[0].text() == "18.00 GB/s over ib, 128M..");
  CHECK((*lines)[1].text() == "37.00 GB/s over ib, 128M..");
  CHECK((*lines)[2].fits_link("shm"));
}
