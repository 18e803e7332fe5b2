#include "plugin/elf.h"
#include "plugin/loader.h"
#include "plugin/registry.h"
#include "plugin/rules.h"
#include <cstring>
#include <doctest/doctest.h>

using namespace tutti;

namespace {

int g_open = 0, g_closed = 0;

tutti_status open(const tutti_host *, void **) noexcept {
  g_open++;
  return TUTTI_OK;
}
void close(void *) noexcept {
  g_closed++;
}
tutti_status rate(void *, const tutti_tune_query *, tutti_candidate *, uint32_t, uint32_t) noexcept {
  return TUTTI_OK;
}
constexpr tutti_tuner_v1 kTable = {sizeof(kTable), 0, "built-in", rate};
const void *get_iface(void *, const char *id) noexcept {
  return std::strcmp(id, TUTTI_TUNER) == 0 ? &kTable : nullptr;
}
constexpr const char *kIfaces[] = {TUTTI_TUNER, nullptr};
constexpr tutti_plugin_desc kDesc = {sizeof(kDesc), TUTTI_ABI_MAJOR, TUTTI_ABI_MINOR, "static-one", "1.0",
                                     "tests",       "Apache-2.0",    "linked in",     kIfaces,      nullptr,
                                     open,          close,           get_iface};

std::shared_ptr<const Config> config_of(const std::string &toml, const std::map<std::string, std::string> &env = {}) {
  auto config = Config::from(toml, "test.toml", env);
  REQUIRE(config.ok());
  return *config;
}
bool breaks(const tutti_plugin_desc &d, const char *rule) {
  for (const StaticFinding &f : check_desc(&d))
    if (f.rule == rule) return true;
  return false;
}

} // namespace

TEST_CASE("plugins that are linked in are opened through the same table, and closed with the registry") {
  Registry::add_static(&kDesc);
  {
    auto registry = Registry::load(config_of(""), {});
    REQUIRE(registry.ok());
    REQUIRE((*registry)->plugins().size() == 1);
    CHECK((*registry)->plugins()[0]->path.empty());
    CHECK((*registry)->plugins()[0]->fingerprint != 0);
    CHECK((*registry)->named<tutti_tuner_v1>(TUTTI_TUNER, "Built-In").ok());
    const auto absent = (*registry)->named<tutti_tuner_v1>(TUTTI_TUNER, "other");
    REQUIRE(!absent.ok());
    CHECK(absent.status().error().message.find("there is: built-in") != std::string::npos);
    CHECK(g_open == 1);
    CHECK(g_closed == 0);
  }
  CHECK(g_closed == 1);
}

TEST_CASE("the search path takes absolute folders only, and ends with the installation's own") {
  const auto path = search_path(*config_of("[plugins]\npath = [\"/opt/x\", \"relative/y\"]\n"));
  REQUIRE(!path.empty());
  CHECK(path[0] == "/opt/x");
  for (const std::string &p : path) CHECK(p.front() == '/');
  CHECK(path.size() == 1 + Registry::default_directories().size());
  const auto from_env = search_path(*config_of("", {{"TUTTI_PLUGIN_PATH", "/a:/b"}}));
  CHECK(from_env[0] == "/a");
  CHECK(from_env[1] == "/b");
}

TEST_CASE("a file is known by plugin name, by what follows its kind, and by path") {
  CHECK(file_may_be("/x/libtutti-net-socket.so", "socket"));
  CHECK(file_may_be("/x/libtutti-net-socket.so", "NET-Socket"));
  CHECK(file_may_be("/x/libtutti-net-socket.so", "libtutti-net-socket.so"));
  CHECK(!file_may_be("/x/libtutti-net-socket.so", "ocket"));
}

TEST_CASE("descriptors without texts, with bad options or reserved fields set are refused") {
  tutti_plugin_desc d = kDesc;
  d.vendor = nullptr;
  CHECK(breaks(d, "P-ENTRY-07"));
  tutti_option options[] = {{"Key", "1", "help", nullptr, nullptr, 0, 0, TUTTI_OPT_INT, 0}, {}};
  d = kDesc;
  d.options = options;
  CHECK(breaks(d, "P-OPT-02"));
  options[0] = {"key", nullptr, "help", nullptr, nullptr, 5, 4, 77, 1};
  for (const char *rule : {"P-OPT-03", "P-OPT-04", "P-OPT-06", "P-OPT-08"}) CHECK(breaks(d, rule));
  CHECK(check_desc(&kDesc).empty());
}

TEST_CASE("a protocol's table must fit its signal") {
  const auto kernel = [](void *, tutti_form, tutti_dtype, tutti_redop, uint32_t) noexcept -> tutti_kernel { return nullptr; };
  const tutti_proto_v1 proto = {sizeof(proto), TUTTI_SIGNAL_IN_DATA, "p", 64, 60, 8, 56, kernel};
  const StaticFindings f = check_table(kDesc, TUTTI_PROTO, &proto, nullptr);
  REQUIRE(f.size() == 3); // line and payload do not fit; neither ENCODE nor DECODE
  CHECK(f[0].rule == "P-PROTO-02");
  CHECK(f[1].rule == "P-PROTO-03");
}

TEST_CASE("the fingerprint depends on every byte") {
  std::vector<std::byte> bytes(1001);
  const uint64_t before = hash_bytes(bytes);
  for (const size_t at : {size_t(0), size_t(500), size_t(1000)}) {
    bytes[at] = std::byte{1};
    CHECK(hash_bytes(bytes) != before);
    bytes[at] = std::byte{0};
  }
  CHECK(hash_bytes(bytes) == before);
  bytes.push_back(std::byte{0});
  CHECK(hash_bytes(bytes) != before);
}
