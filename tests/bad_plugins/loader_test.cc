#include "bad_files.h"
#include "base/time.h"
#include "log/log.h"
#include "plugin/elf.h"
#include "plugin/registry.h"
#include "plugin/rules.h"
#include <algorithm>
#include <doctest/doctest.h>

using namespace tutti;

namespace {

std::unique_ptr<Registry> load(std::vector<std::string> folders, const std::string &toml = "") {
  auto config = Config::from(toml, "test.toml", {});
  REQUIRE_MESSAGE(config.ok(), (config.ok() ? "" : config.status().error().line()));
  auto registry = Registry::load(*config, folders);
  REQUIRE_MESSAGE(registry.ok(), (registry.ok() ? "" : registry.status().error().line()));
  return std::move(*registry);
}
// Loads one folder whose only file must be refused with this rule.
std::string reason(const std::string &name) {
  const auto registry = load({bad::folder(name)});
  REQUIRE(registry->plugins().empty());
  REQUIRE(registry->skipped().size() == 1);
  CHECK(registry->skipped()[0].path.find(name) != std::string::npos);
  return registry->skipped()[0].reason;
}
bool has(const std::string &text, const char *part) {
  return text.find(part) != std::string::npos;
}
std::string error_of(const std::string &toml, std::vector<std::string> folders) {
  auto config = Config::from(toml, "test.toml", {});
  REQUIRE(config.ok());
  auto registry = Registry::load(*config, folders);
  REQUIRE(!registry.ok());
  return registry.status().error().line();
}

} // namespace

TEST_CASE("a plugin that keeps the rules is loaded, and has a fingerprint") {
  const auto registry = load({bad::folder("none")});
  REQUIRE(registry->plugins().size() == 1);
  const Plugin &p = *registry->plugins()[0];
  CHECK(std::string(p.desc->name) == "bad-plugin");
  CHECK(p.fingerprint != 0);
  CHECK(registry->all<tutti_tuner_v1>(TUTTI_TUNER).size() == 1);
  CHECK(registry->named<tutti_tuner_v1>(TUTTI_TUNER, "BAD-Plugin").ok());
}

TEST_CASE("each broken rule is named in the reason") {
  const std::pair<const char *, const char *> expected[] = {
      {"major", "P-ENTRY-03"},        {"minor", "P-ENTRY-04"},         {"short_desc", "P-ENTRY-05"},
      {"short_table", "P-TABLE-02"},  {"null_function", "P-TABLE-03"}, {"null_open", "P-ENTRY-11"},
      {"no_table", "P-TABLE-01"},     {"name", "P-ENTRY-06"},          {"id_twice", "P-ENTRY-09"},
      {"id_malformed", "P-ENTRY-09"}, {"older", "P-ENTRY-04"},         {"option_twice", "P-OPT-09"},
      {"refuse", "P-OPEN-01"},        {"proto_byte", "P-PROTO-02"},    {"proto_cut", "P-PROTO-02"},
      {"proto_store", "P-PROTO-02"},  {"proto_lent", "P-PROTO-02"},    {"open_throws", "P-OPEN-01"},
      {"open_positive", "P-OPEN-01"}, {"open_unknown", "P-OPEN-01"}};
  for (const auto &[name, rule] : expected) {
    const std::string text = reason(name), which = name; // clang 14: INFO cannot capture a binding
    INFO(which, ": ", text);
    CHECK(has(text, rule));
    CHECK(!has(text, "\n"));
  }
  CHECK(has(reason("major"), "is built for plugin ABI 2.9, this core speaks 0.9; rebuild it"));
  CHECK(has(reason("refuse"), "the moon is not full"));
  CHECK(has(reason("open_throws"), "bad-plugin: open() failed: open() threw an exception: the moon is not full"));
  CHECK(has(reason("open_positive"), "open() answered 77, which is no answer of the plugin contract"));
}

TEST_CASE("a draft is refused by a core of another minor version, whatever versions that core speaks") {
  const char *const ifaces[] = {TUTTI_TUNER, "tutti.draft.profiler/0", nullptr};
  tutti_plugin_desc desc{};
  desc.struct_size = sizeof desc;
  desc.abi_major = TUTTI_ABI_MAJOR;
  desc.abi_minor = TUTTI_ABI_MINOR;
  desc.ifaces = ifaces;
  const auto refused = [&] {
    const StaticFindings findings = check_desc(&desc);
    return std::any_of(findings.begin(), findings.end(), [](const StaticFinding &f) { return f.rule == "P-ENTRY-10"; });
  };
  CHECK(!refused());
  desc.abi_minor--;
  CHECK(refused());
}

TEST_CASE("of two plugins with one name the second is refused and names the first") {
  const auto registry = load({bad::folder("none"), bad::folder("twin")});
  CHECK(registry->plugins().size() == 1);
  REQUIRE(registry->skipped().size() == 1);
  CHECK(has(registry->skipped()[0].reason, "P-ENTRY-13"));
  CHECK(has(registry->skipped()[0].reason, "libtutti-bad-none.so"));
}

TEST_CASE("a stranger's library is skipped quietly and its constructor never runs") {
  ::unsetenv("TUTTI_TEST_CONSTRUCTOR_RAN");
  const auto registry = load({bad::folder("foreign")});
  REQUIRE(registry->skipped().size() == 1);
  CHECK(registry->skipped()[0].foreign);
  CHECK(has(registry->skipped()[0].reason, "P-ENTRY-01"));
  CHECK(::getenv("TUTTI_TEST_CONSTRUCTOR_RAN") == nullptr);
}

TEST_CASE("files that are no plugins are refused before anything is loaded") {
  bad::Scratch scratch;
  const std::string good = bad::read(bad::file("none"));
  scratch.write("libtutti-a-text.so", "this is not an object file");
  scratch.write("libtutti-b-empty.so", "");
  scratch.write("libtutti-c-machine.so", bad::other_machine());
  scratch.write("libtutti-d-cut.so", good.substr(0, good.size() / 2));
  scratch.write("libtutti-e-head.so", good.substr(0, 40));
  bad::fs::create_directory(scratch.path() + "/libtutti-f-folder.so");
  ::mkfifo((scratch.path() + "/libtutti-g-pipe.so").c_str(), 0600);
  bad::fs::create_symlink("/nonexistent", scratch.path() + "/libtutti-h-link.so");
  scratch.write("other-name.so", "never looked at");
  const auto registry = load({scratch.path()});
  CHECK(registry->plugins().empty());
  const char *rules[] = {"P-FILE-02", "P-FILE-02", "P-FILE-03", "P-FILE-04",
                         "P-FILE-04", "P-FILE-01", "P-FILE-01", "P-FILE-01"};
  REQUIRE(registry->skipped().size() == 8);
  for (size_t i = 0; i < 8; i++) {
    INFO(registry->skipped()[i].path, ": ", registry->skipped()[i].reason);
    CHECK(has(registry->skipped()[i].reason, rules[i]));
  }
}

TEST_CASE("damaged headers never crash the reader") {
  bad::Scratch scratch;
  const std::string good = bad::read(bad::file("none"));
  uint64_t random = 12345;
  for (int i = 0; i < 300; i++) {
    std::string bytes = good;
    for (int k = 0; k < 8; k++) {
      random = random * 6364136223846793005ull + 1442695040888963407ull;
      // In the file's header and in the section headers at its end, so that no code or data that loads is changed.
      const size_t at = k % 2 ? random % 64 : bytes.size() - 1 - (random >> 33) % 1500;
      bytes[at] = static_cast<char>(random >> 55);
    }
    bytes[0] = 0; // never loadable: this is about reading
    scratch.write("libtutti-x.so", bytes);
    bytes[0] = 0x7f;
    const auto seen = inspect_elf(std::as_bytes(std::span(bytes)));
    if (seen.problem == ElfProblem::none) (void)exported_symbols(std::as_bytes(std::span(bytes)));
    (void)load({scratch.path()});
  }
}

TEST_CASE("an unreadable file is refused with the reason of the system") {
  if (::geteuid() == 0) return; // root reads everything
  bad::Scratch scratch;
  const std::string at = scratch.copy(bad::file("none"), "libtutti-x.so");
  ::chmod(at.c_str(), 0000);
  const auto registry = load({scratch.path()});
  REQUIRE(registry->skipped().size() == 1);
  CHECK(has(registry->skipped()[0].reason, "Permission denied"));
}

TEST_CASE("files that a group of several users may write are not trusted") {
  if (::geteuid() != 0) return; // only root may give files to other groups
  bad::Scratch scratch;
  const std::string at = scratch.copy(bad::file("none"), "libtutti-x.so");
  ::chmod(at.c_str(), 0664);
  CHECK(load({scratch.path()})->plugins().size() == 1); // root's group
  if (::chown(at.c_str(), 0, 12345) != 0) return;       // a user namespace that maps root alone
  CHECK(has(load({scratch.path()})->skipped()[0].reason, "writable by group 12345"));
}

TEST_CASE("a plugin cannot flood the log") {
  bad::Scratch scratch;
  const std::string at = scratch.path() + "/log";
  log::configure({log::Level::info, ~0u, at, ""});
  CHECK(load({bad::folder("chatty")})->plugins().size() == 1);
  log::configure({});
  const std::string text = bad::read(at);
  size_t lines = 0, notices = 0;
  for (size_t end, begin = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string line = text.substr(begin, end - begin);
    lines += has(line, "xxxx");
    notices += has(line, "bad-plugin: further lines of this second are dropped");
    CHECK(line.size() < 1200);
  }
  CHECK(lines >= 100);
  CHECK(lines <= 300); // three seconds on a slow machine
  CHECK(notices >= 1);
  CHECK(notices <= 3);
}

TEST_CASE("lines of a plugin that were dropped are counted, and the next second says how many") {
  bad::Scratch scratch;
  const std::string at = scratch.path() + "/log";
  log::configure({log::Level::info, ~0u, at, ""});
  const auto registry = load({bad::folder("none")});
  const Plugin &p = *registry->plugins().front();
  const auto *diag = static_cast<const tutti_host_diag_v1 *>(p.host.get_iface(&p.host, TUTTI_HOST_DIAG));
  const Deadline limit = Deadline::in(std::chrono::seconds(20));
  for (bool told = false; !told && !limit.expired(); told = has(bad::read(at), "lines suppressed, a plugin may write 100"))
    for (int i = 0; i < 1000; i++) diag->log(&p.host, TUTTI_LOG_WARN, "again");
  log::configure({});
  CHECK(has(bad::read(at), "bad-plugin: "));
  CHECK(has(bad::read(at), "lines suppressed, a plugin may write 100 in a second"));
}

TEST_CASE("files and folders that everybody may write are not trusted") {
  bad::Scratch scratch;
  const std::string at = scratch.copy(bad::file("none"), "libtutti-x.so");
  ::chmod(at.c_str(), 0666);
  CHECK(has(load({scratch.path()})->skipped()[0].reason, "P-FILE-05"));
  ::chmod(at.c_str(), 0644);
  ::chmod(scratch.path().c_str(), 0777);
  CHECK(has(load({scratch.path()})->skipped()[0].reason, "directory is writable by everybody"));
  ::chmod(scratch.path().c_str(), 0700);
  CHECK(load({scratch.path()})->plugins().size() == 1);
}

TEST_CASE("folders above a plugin count, unless only owners can rename what lies in them") {
  bad::Scratch scratch;
  const std::string middle = scratch.path() + "/a", folder = middle + "/b";
  bad::fs::create_directories(folder);
  bad::fs::copy_file(bad::file("none"), folder + "/libtutti-x.so");
  for (const std::string &d : {middle, folder}) ::chmod(d.c_str(), 0755);
  CHECK(load({folder})->plugins().size() == 1);
  ::chmod(middle.c_str(), 0777);
  const auto registry = load({folder});
  CHECK(registry->plugins().empty());
  REQUIRE(registry->skipped().size() == 1);
  const std::string why = registry->skipped()[0].reason;
  CHECK(has(why, ("folder " + middle + " above it is writable by everybody").c_str()));
  CHECK(has(why, "mode 0777"));
  CHECK(has(why, "plugins.allow_unsafe"));
  ::chmod(middle.c_str(), 01777); // as /tmp
  CHECK(load({folder})->plugins().size() == 1);
  ::chmod(middle.c_str(), 0755);
  ::chmod(folder.c_str(), 01777); // its own folder must not be so: whoever may add files offers plugins
  CHECK(load({folder})->plugins().empty());
}

TEST_CASE("what is unsafe is one warning where it was found, an error where it was asked for, and used where that is allowed") {
  bad::Scratch scratch;
  const std::string at = scratch.path() + "/log", file = scratch.copy(bad::file("net_good"), "libtutti-net-x.so");
  ::chmod(file.c_str(), 0666);
  log::configure({log::Level::warn, ~0u, at, ""});
  CHECK(load({scratch.path()})->plugins().empty());
  log::configure({});
  const std::string written = bad::read(at);
  CHECK(has(written, (file + " skipped: file is writable by everybody (owner ").c_str()));
  CHECK(written.find('\n') + 1 == written.size()); // one line

  const std::string by_path = error_of("[plugins]\nnet = [\"" + file + "\"]\n", {});
  for (const char *part : {file.c_str(), "mode 0666", "plugins.allow_unsafe"}) CHECK(has(by_path, part));
  CHECK(has(error_of("[plugins]\nnet = [\"x\"]\n", {scratch.path()}), "plugins.allow_unsafe"));
  ::chmod(file.c_str(), 0644);
  ::chmod(scratch.path().c_str(), 0777);
  CHECK(has(error_of("[plugins]\nnet = [\"x\"]\n", {scratch.path()}), "directory is writable by everybody"));

  ::chmod(file.c_str(), 0666);
  CHECK(load({scratch.path()}, "[plugins]\nallow_unsafe = true\n")->plugins().size() == 1);
}

TEST_CASE("files of another user are not trusted") {
  bad::Scratch scratch;
  const std::string at = scratch.copy(bad::file("none"), "libtutti-x.so");
  if (::geteuid() != 0 || ::chown(at.c_str(), 12345, 0) != 0) return; // needs root
  const auto registry = load({scratch.path()});
  REQUIRE(registry->skipped().size() == 1);
  CHECK(has(registry->skipped()[0].reason, "belongs to user 12345, neither to root nor to user 0 (mode 0"));
}

TEST_CASE("a plugin that configuration names and that cannot be used is an error with the reason") {
  const std::string by_name = error_of("[plugins]\nnet = [\"bad-major\"]\n", {bad::folder("major")});
  CHECK(has(by_name, "plugins.net"));
  CHECK(has(by_name, "bad-major"));
  CHECK(has(by_name, "is built for plugin ABI 2.9"));
  const std::string by_path = error_of("[plugins]\nnet = [\"" + bad::file("refuse") + "\"]\n", {});
  CHECK(has(by_path, "the moon is not full"));
  const std::string absent = error_of("[plugins]\nnet = [\"nobody\"]\n", {bad::folder("none")});
  CHECK(has(absent, "no plugin offers tutti.net \"nobody\""));
}

TEST_CASE(
    "a plugin whose library is not installed is one quiet line, and an error that names the library once it is asked for") {
  bad::Scratch scratch;
  const std::string at = scratch.path() + "/log";
  log::configure({log::Level::info, ~0u, at, ""});
  const std::string why = reason("absent");
  log::configure({});
  CHECK(has(why, "libtutti-test-absent.so.1: cannot open shared object file"));
  CHECK(has(why, "install what holds libtutti-test-absent.so.1"));
  CHECK(has(why, "P-ENTRY-12"));
  const std::string written = bad::read(at);
  CHECK(has(written, "libtutti-test-absent.so.1"));
  CHECK(!has(written, "warn"));
  CHECK(written.find('\n') + 1 == written.size()); // one line
  for (const char *name : {"absent", "bad-absent"}) {
    const std::string asked = error_of("[plugins]\nnet = [\"" + std::string(name) + "\"]\n", {bad::folder("absent")});
    INFO(asked);
    CHECK(has(asked, "libtutti-test-absent.so.1: cannot open shared object file"));
  }
}

TEST_CASE("a plugin named by path is loaded from outside the search path") {
  const auto registry = load({}, "[plugins]\nnet = [\"" + bad::file("net_good") + "\"]\n");
  REQUIRE(registry->plugins().size() == 1);
  CHECK(registry->named<tutti_net_v1>(TUTTI_NET, "unix").ok());
}

TEST_CASE("plugins.disable keeps a plugin out") {
  const auto registry = load({bad::folder("none")}, "[plugins]\ndisable = [\"bad-plugin\"]\n");
  CHECK(registry->plugins().empty());
  CHECK(has(registry->skipped()[0].reason, "plugins.disable"));
}

TEST_CASE("one file reached by two folders is looked at once") {
  bad::Scratch scratch;
  bad::fs::create_symlink(bad::file("none"), scratch.path() + "/libtutti-link.so");
  const auto registry = load({bad::folder("none"), bad::folder("none"), scratch.path()});
  CHECK(registry->plugins().size() == 1);
  CHECK(registry->skipped().empty());
}
