// What `tutti doctor --log` makes of lines, and of a whole log.
#include "doctor_tree.h"
#include "tools/doctor/log_explain.h"
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sstream>

using namespace tutti::doctor;

namespace {

struct Sample {
  std::string rule, kind, line;
};

std::vector<Sample> samples() {
  std::ifstream in(doctor_test::data("samples.txt"));
  REQUIRE(in);
  std::vector<Sample> out;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    const size_t first = line.find('|'), second = line.find('|', first + 1);
    REQUIRE(second != std::string::npos);
    out.push_back({line.substr(0, first), line.substr(first + 1, second - first - 1), line.substr(second + 1)});
  }
  return out;
}

Explanation explain(const std::string &text) {
  std::istringstream in(text);
  return explain_log(in);
}

Explanation explain_file(const std::string &name) {
  std::ifstream in(doctor_test::data(name));
  REQUIRE(in);
  return explain_log(in);
}

std::string ids(const Explanation &e) {
  std::string out;
  for (const Symptom &s : e.symptoms) out += fmt::format("{}{}", out.empty() ? "" : " ", s.rule->id);
  return out;
}

} // namespace

TEST_CASE("each sample line is recognised as what it is") {
  for (const Sample &s : samples()) {
    INFO(s.line);
    const Explanation e = explain(s.line);
    CHECK(ids(e) == s.rule);
    CHECK(e.nccl == (s.kind == "nccl"));
  }
}

TEST_CASE("each rule has a sample for each format that it knows, causes, and lower-case patterns") {
  const auto all = samples();
  for (const LogRule &rule : log_rules()) {
    INFO(rule.id);
    const auto has = [&](std::string_view kind) {
      return std::any_of(all.begin(), all.end(), [&](const Sample &s) { return s.rule == rule.id && s.kind == kind; });
    };
    if (!rule.ours.empty()) CHECK(has("ours"));
    if (!rule.nccl.empty()) CHECK(has("nccl"));
    if (!rule.any.empty()) CHECK(has("any"));
    CHECK_FALSE(rule.causes.empty());
    CHECK((!rule.commands.empty() || rule.depth == Depth::harmless));
    for (const auto &patterns : {rule.ours, rule.nccl, rule.any})
      for (std::string_view p : patterns) CHECK(std::none_of(p.begin(), p.end(), [](char c) { return c >= 'A' && c <= 'Z'; }));
  }
}

TEST_CASE("a log of a run that went well gives nothing") {
  const Explanation e = explain_file("clean.log");
  CHECK(ids(e) == "");
  CHECK(e.ours == 3);
  CHECK(e.nccl == 8);
  CHECK_FALSE(e.suspect);
}

TEST_CASE("of a killed rank and what the others say of it, the kill comes first and the rank is named") {
  const Explanation e = explain_file("killed.log");
  CHECK(ids(e) == "killed peer_gone stuck");
  CHECK(e.suspect == 2);
  CHECK(e.symptoms[1].reporters == std::set<std::string>{"rank 0", "rank 1"});
  const std::string text = explanation_text(e, "killed.log");
  CHECK(text.find("look at this first\n  a rank was killed") != std::string::npos);
  CHECK(text.find("most lines name rank 2") != std::string::npos);
  CHECK(text.find("probably consequences") < text.find("a peer was gone"));
}

TEST_CASE("where all ranks fail alike, the one that the launcher names is no suspect") {
  const Explanation e = explain("error: rank 0: TUTTI_ALGO: unknown algorithm \"x\"\ntutti perf: rank 1 (pid 7) exited with "
                                "code 2; ending the other ranks (0)\n");
  CHECK(ids(e) == "bad_setting exited");
  CHECK_FALSE(e.suspect);
  CHECK(explain("tutti run: rank 1 (pid 7) exited with code 3; ending the other ranks (0)\n").suspect == 1);
}

TEST_CASE("of two symptoms of one depth the earlier comes first, by time before by place in the file") {
  const Explanation e = explain("2026-11-30 17:25:02 n1:1 rank 0: error: cannot connect to rank 1: Connection refused\n"
                                "2026-11-30 17:24:01 n2:1 rank 1: error: cannot connect to rank 0: Connection timed out\n");
  CHECK(ids(e) == "timed_out refused");
  CHECK(e.symptoms[0].first_line == 2);
}

TEST_CASE("lines are read with their tags, times, hosts and ranks") {
  LogLine l = read_log_line("[3] 2026-11-30 17:23:22.5 n1:77 rank 3: warn: text");
  CHECK(l.kind == LineKind::ours);
  CHECK(l.time == "2026-11-30 17:23:22.5");
  CHECK(l.reporter == "rank 3");
  CHECK(l.level == "warn");
  CHECK(l.text == "text");
  l = read_log_line("[1,5]<stderr>:[2026-11-30T17:23:22] n1:77:80 [0] init.cc:9 NCCL WARN text");
  CHECK(l.kind == LineKind::nccl);
  CHECK(l.level == "WARN");
  CHECK(l.time == "2026-11-30 17:23:22");
  CHECK(l.reporter == "rank 5");
  CHECK(l.text == "text");
  l = read_log_line("n1:77:80 [0] NCCL INFO text\r");
  CHECK(l.reporter == "n1:77");
  CHECK(l.text == "text");
  CHECK(read_log_line("error: rank 4: text").reporter == "rank 4");
  CHECK(read_log_line("step 100: loss 2.3").kind == LineKind::other);
  CHECK(read_log_line("").text.empty());
}

TEST_CASE("a pattern's fragments come in their order, and numbers are whole") {
  CHECK(log_pattern_matches("a*c", "xaxcx"));
  CHECK_FALSE(log_pattern_matches("a*c", "ca"));
  CHECK(log_pattern_matches("error 12", "with error 12, opcode"));
  CHECK_FALSE(log_pattern_matches("error 12", "with error 128"));
  CHECK(log_pattern_matches("error 12", "error 128 and error 12"));
}

TEST_CASE("bytes that are no text, and lines without end, do no harm") {
  std::string junk;
  for (int i = 0; i < 100'000; i++) junk += static_cast<char>(i * 7919 % 251);
  const Explanation e = explain(junk + "\nerror: rank 0: " + std::string(200'000, 'x') + "\nrank 99999999999999999999\n");
  CHECK(e.lines >= 3);
  CHECK_NOTHROW((void)explanation_json(explain("error: rank 1: Connection refused \xff\xfe"))
                    .dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

TEST_CASE("a flight recorder's file is told from a log, with the command that reads it") {
  const Explanation e = explain("{\"format\": \"tutti.flight/1\", \"rank\": 0,\n\"operations\": []}\n");
  CHECK(e.flight);
  CHECK(explanation_text(e, "f.json").find("tutti ras diff f.json") != std::string::npos);
  CHECK_FALSE(explain("error: rank 0: out of memory: 4 MiB\n{\"format\": \"tutti.flight/1\"}\n").flight);
}
