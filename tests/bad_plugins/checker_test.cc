#include "bad_files.h"
#include "checker.h"
#include "exec/kernels.h"
#include "log/log.h"
#include "plan/check.h"
#include <cstdlib>
#include <doctest/doctest.h>
#include <iterator>
#include <sys/wait.h>
#include <tuple>

using namespace tutti;

namespace {

bool complains(const CheckReport &r, const std::string &rule) {
  for (const CheckFinding &f : r.findings)
    if (f.rule == rule) return true;
  return false;
}
std::string all(const CheckReport &r) {
  std::string out;
  for (const CheckFinding &f : r.findings) out += f.rule + ": " + f.text + "\n";
  return out;
}
// Plugins that talk are heard, and not shown.
struct QuietLog {
  QuietLog() { log::configure({log::Level::warn, ~0u, "/dev/null", ""}); }
  ~QuietLog() { log::configure({}); }
};
CheckReport check(const std::string &path, const std::string &only = "") {
  CheckSettings s;
  s.only = only;
  s.open_limit = std::chrono::seconds(2);
  return check_plugin(path, s);
}

} // namespace

TEST_CASE("check-plugin names the rule that a bad plugin breaks") {
  const QuietLog quiet;
  const std::pair<const char *, const char *> expected[] = {
      {"major", "P-ENTRY-03"},        {"minor", "P-ENTRY-04"},         {"short_desc", "P-ENTRY-05"},
      {"short_table", "P-TABLE-02"},  {"null_function", "P-TABLE-03"}, {"null_open", "P-ENTRY-11"},
      {"no_table", "P-TABLE-01"},     {"name", "P-ENTRY-06"},          {"id_twice", "P-ENTRY-09"},
      {"id_malformed", "P-ENTRY-09"}, {"older", "P-ENTRY-04"},         {"option_twice", "P-OPT-09"},
      {"refuse", "P-OPEN-01"},        {"crash", "P-OPEN-02"},          {"hang", "P-OPEN-03"},
      {"leak", "P-ENTRY-02"},         {"foreign", "P-ENTRY-01"},       {"proto_byte", "P-PROTO-02"},
      {"proto_cut", "P-PROTO-02"},    {"proto_store", "P-PROTO-02"},   {"proto_lent", "P-PROTO-02"},
      {"open_throws", "P-OPEN-02"},   {"keeps_thread", "P-OPEN-04"},   {"open_positive", "P-OPEN-05"},
      {"open_unknown", "P-OPEN-05"},  {"signal", "P-PROC-01"},         {"locale", "P-PROC-02"},
      {"folder", "P-PROC-03"},        {"umask", "P-PROC-03"},          {"environment", "P-PROC-04"},
      {"forks", "P-PROC-05"},         {"closes_some", "P-PROC-06"},    {"closes_all", "P-OPEN-02"},
      {"keeps_memory", "P-HOST-01"},  {"keeps_watch", "P-HOST-02"},    {"keeps_file", "P-HOST-03"},
      {"keeps_watch", "P-HOST-03"},   {"keeps_thread", "P-HOST-04"},   {"logs_on", "P-HOST-05"},
      {"chatty", "P-HOST-06"}};
  for (const auto &[name, rule] : expected) {
    const CheckReport r = check(bad::file(name));
    const std::string which = name; // clang 14: INFO cannot capture a binding
    INFO(which, ":\n", all(r));
    CHECK(complains(r, rule));
  }
}

TEST_CASE("check-plugin says what was thrown, closed, kept or answered") {
  const QuietLog quiet;
  const std::pair<const char *, const char *> expected[] = {
      {"open_throws", "open(): an exception left the plugin: the moon is not full"},
      {"open_positive", "open() returned 77"},
      {"closes_some", "(/dev/null), which is not its own"},
      {"closes_all", "closed descriptors that are not its own"},
      {"forks", "open() left a child process"},
      {"signal", "open() changed what happens on signal 11 (Segmentation fault)"},
      {"folder", "open() changed the working directory from "},
      {"keeps_file", "(/dev/zero) open after close()"},
      {"keeps_memory", "holds 8192 bytes of the host's memory after close()"},
      {"chatty", "wrote 1001 lines in a second"}};
  for (const auto &[name, text] : expected) {
    const CheckReport r = check(bad::file(name));
    const std::string which = name, said = all(r); // clang 14: INFO cannot capture a binding
    INFO(which, ":\n", said);
    CHECK(said.find(text) != std::string::npos);
  }
}

TEST_CASE("check-plugin leaves its own process as it was, whatever a plugin does to its") {
  const auto files = [] { return std::distance(bad::fs::directory_iterator("/proc/self/fd"), bad::fs::directory_iterator()); };
  const auto before = files();
  const std::string folder = bad::fs::current_path();
  for (const char *name : {"closes_all", "forks", "folder", "keeps_thread", "open_throws"}) (void)check(bad::file(name));
  CHECK(files() == before);
  CHECK(bad::fs::current_path() == folder);
  CHECK(::waitpid(-1, nullptr, WNOHANG) == -1); // no child is left
}

TEST_CASE("check-plugin finds nothing wrong with a tuner that leaves everything as it is") {
  const CheckReport r = check(bad::file("none"));
  INFO(all(r));
  CHECK(r.findings.empty());
  CHECK(r.passed > 3);
}

TEST_CASE("check-plugin offers the services that a job offers") {
  const CheckReport r = check(bad::file("watch"));
  INFO(all(r));
  CHECK(r.findings.empty());
}

TEST_CASE("check-plugin refuses files that are no shared objects") {
  bad::Scratch scratch;
  CHECK(complains(check(scratch.write("libtutti-a.so", "text")), "P-FILE-02"));
  CHECK(complains(check(scratch.write("libtutti-b.so", bad::other_machine())), "P-FILE-03"));
  CHECK(complains(check(scratch.write("libtutti-c.so", bad::read(bad::file("none")).substr(0, 3000))), "P-FILE-04"));
  CHECK(complains(check(scratch.path()), "P-FILE-01"));
  CHECK(complains(check(scratch.copy(bad::file("none"), "odd-name.so")), "P-FILE-06"));
}

TEST_CASE("the protocol suite finds a reduction that is wrong where the destination is the right operand") {
  const CheckReport r = check(bad::file("proto_right"), "C-04");
  INFO(all(r));
  CHECK(complains(r, "C-04"));
}

TEST_CASE("the net suite takes a net with answers, registrations, reads and counters, and runs all of their cases") {
  for (const char *part : {"N-0", "N-1", "N-3", "N-5", "N-6", "N-70"}) {
    const CheckReport r = check(STRICT_NET, part);
    const std::string which = part; // clang 14: INFO cannot capture a binding
    INFO(which, ":\n", all(r));
    CHECK(r.findings.empty());
    CHECK(r.passed > 0);
  }
}

TEST_CASE("the net suite finds completions that lie") {
  CHECK(check(bad::file("net_good"), "N-2").findings.empty());
  for (const char *name : {"net_twice", "net_cookie", "net_sizes"}) {
    const CheckReport r = check(bad::file(name), "N-24");
    const std::string which = name; // clang 14: INFO cannot capture a binding
    INFO(which, ":\n", all(r));
    CHECK(complains(r, "N-24"));
  }
  CHECK(complains(check(bad::file("net_twice"), "N-37"), "N-37"));
}

TEST_CASE("the net suite finds nets that never come to an end, write too far, answer nonsense, speak of the past or throw") {
  const std::tuple<const char *, const char *, const char *> expected[] = {
      {"net_never_ready", "N-12", "waited 5 s for"},
      {"net_never_done", "N-24", "waited 5 s for"},
      {"net_overrun", "N-27", "was written"},
      {"net_garbage", "N-24", "status 77"},
      {"net_late", "N-45", "reported completions"},
      {"net_throw_device", "N-01", "an exception left the plugin: no devices"},
      {"net_throw_connect", "N-12", "an exception left the plugin: no route today"},
      {"net_throw_progress", "N-24", "an exception left the plugin: no progress today"}};
  for (const auto &[name, rule, text] : expected) {
    const CheckReport r = check(bad::file(name), rule);
    const std::string which = name, said = all(r); // clang 14: INFO cannot capture a binding
    INFO(which, ":\n", said);
    CHECK(complains(r, rule));
    CHECK(said.find(text) != std::string::npos);
  }
}

TEST_CASE("the suites find plugins that refuse what the headers let the core hand over") {
  CHECK(complains(check(bad::file("net_kind"), "N-61"), "N-61"));
  CHECK(complains(check(bad::file("net_empty"), "N-62"), "N-62"));
  CHECK(complains(check(bad::file("algo_flags"), "A-05"), "A-05"));
  CHECK(check(bad::file("algo_good"), "A-05").findings.empty());
}

namespace {
CheckReport check_collnet(const char *form, const char *only) {
  ::setenv("FORM", form, 1);
  const CheckReport r = check(bad::file("collnet"), only);
  ::unsetenv("FORM");
  return r;
}
} // namespace

TEST_CASE("the suite of collnets takes one that offers everything, and runs all of its cases but those about sleeping") {
  const CheckReport r = check_collnet("", "G-");
  INFO(all(r));
  CHECK(r.findings.empty());
  REQUIRE(r.skipped.size() == 1);
  CHECK(r.skipped[0].starts_with("G-09"));
}

TEST_CASE("the suite of collnets takes one that offers as little as it may") {
  const CheckReport r = check_collnet("narrow", "G-");
  INFO(all(r));
  CHECK(r.findings.empty());
  for (const std::string &s : r.skipped) // what it has not; nothing else is left out
    CHECK(std::string("G-09 G-11 G-12 G-13 G-14 G-16 G-17 G-18").find(s.substr(0, 4)) != std::string::npos);
}

TEST_CASE("the suite of collnets finds each promise that is broken") {
  const std::pair<const char *, const char *> expected[] = {
      {"caps_differ", "G-02"}, {"large", "G-03"}, {"stingy", "G-04"},    {"takes_all", "G-05"},  {"touches", "G-06"},
      {"max_is_sum", "G-10"},  {"pads", "G-10"},  {"root", "G-11"},      {"root", "G-12"},       {"zeros", "G-12"},
      {"early", "G-13"},       {"sums", "G-14"},  {"order", "G-15"},     {"first_come", "G-16"}, {"rounds", "G-17"},
      {"field", "G-18"},       {"blind", "G-18"}, {"not_apart", "G-19"}, {"stingy", "G-20"},     {"ends_early", "G-21"},
      {"waits", "G-21"},       {"waits", "G-22"}, {"blames", "G-22"},    {"hurries", "G-22"}};
  for (const auto &[name, rule] : expected) {
    const CheckReport r = check_collnet(name, rule);
    const std::string which = name; // clang 14: INFO cannot capture a binding
    INFO(which, ":\n", all(r));
    CHECK(complains(r, rule));
  }
}

namespace {
CheckReport check_store(const char *form, const char *only) {
  ::setenv("FORM", form, 1);
  ::setenv("TUTTI_RENDEZVOUS", "memory://here", 1);
  const CheckReport r = check(bad::file("store"), only);
  ::unsetenv("FORM");
  ::unsetenv("TUTTI_RENDEZVOUS");
  return r;
}
} // namespace

TEST_CASE("the suite of stores takes one that keeps every promise, and skips what needs a server where none is named") {
  const CheckReport r = check_store("", "S-");
  INFO(all(r));
  CHECK(r.findings.empty());
  CHECK(r.skipped.empty());
  const CheckReport without = check(bad::file("store"), "S-0");
  CHECK(without.findings.empty());
  CHECK(without.skipped.size() == 7);
}

TEST_CASE("the suite of stores finds each promise that is broken") {
  const std::pair<const char *, const char *> expected[] = {
      {"takes_all", "S-01"},   {"tells", "S-02"},         {"forgets", "S-03"},       {"always_waits", "S-04"},
      {"never_waits", "S-05"}, {"hangs", "S-05"},         {"never_waits", "S-06"},   {"all_first", "S-07"},
      {"all_first", "S-08"},   {"expires_early", "S-09"}, {"expires_late", "S-09"},  {"keeps_time", "S-10"},
      {"cuts_at_nul", "S-11"}, {"prefix", "S-13"},        {"strict_remove", "S-15"}, {"deaf", "S-16"},
      {"leaks", "S-17"}};
  for (const auto &[name, rule] : expected) {
    const CheckReport r = check_store(name, rule);
    const std::string which = name; // clang 14: INFO cannot capture a binding
    INFO(which, ":\n", all(r));
    CHECK(complains(r, rule));
  }
}
