#include "plugin/services.h"
#include <atomic>
#include <cstring>
#include <doctest/doctest.h>
#include <thread>

using namespace tutti;

namespace {

const tutti_option kOptions[] = {{"count", "4", "a number", nullptr, nullptr, 0, 9, TUTTI_OPT_INT, 0},
                                 {"names", "a,b", "a list", nullptr, nullptr, 0, 0, TUTTI_OPT_STRING_LIST, 0},
                                 {}};
tutti_plugin_desc make_desc() {
  tutti_plugin_desc d{};
  d.name = "test-plugin";
  d.options = kOptions;
  return d;
}
const tutti_plugin_desc kDesc = make_desc();

// A plugin with its host and two settings.
struct Fixture {
  Plugin plugin;
  Fixture() {
    plugin.desc = &kDesc;
    plugin.memory_cap = 1 << 20;
    plugin.settings["count"] = {"7", 7, {}, "tutti.toml:3"};
    plugin.settings["names"] = {"a,b", 0, {"a", "b"}, "default"};
    give_host(&plugin);
  }
  template <class T> const T &service(const char *id) const {
    const void *table = plugin.host.get_iface(&plugin.host, id);
    REQUIRE(table != nullptr);
    return *static_cast<const T *>(table);
  }
};

} // namespace

TEST_CASE_FIXTURE(Fixture, "set_error becomes the text of the error, once and on its own thread only") {
  const auto &diag = service<tutti_host_diag_v1>(TUTTI_HOST_DIAG);
  diag.set_error(&plugin.host, TUTTI_ERR_REMOTE, "the peer\tleft");
  std::thread([&] {
    CHECK(plugin_error(plugin, TUTTI_ERR_REMOTE, "send").error().message.find("gave no reason") != std::string::npos);
  }).join();
  const Status first = plugin_error(plugin, TUTTI_ERR_REMOTE, "send");
  CHECK(first.code() == Code::remote);
  CHECK(first.error().message == "test-plugin: send: the peer left");
  CHECK(plugin_error(plugin, TUTTI_ERR_REMOTE, "send").error().message.find("gave no reason") != std::string::npos);
}

TEST_CASE_FIXTURE(Fixture, "a reason given for another status is not taken for this one") {
  service<tutti_host_diag_v1>(TUTTI_HOST_DIAG).set_error(&plugin.host, TUTTI_ERR_TIMEOUT, "too slow");
  CHECK(plugin_error(plugin, TUTTI_ERR_SYSTEM, "open").error().message.find("too slow") == std::string::npos);
}

TEST_CASE_FIXTURE(Fixture, "options are read by type, and a wrong type or key is refused with a reason") {
  const auto &config = service<tutti_host_config_v1>(TUTTI_HOST_CONFIG);
  int64_t number = 0;
  const char *text = nullptr;
  CHECK(config.get_int(&plugin.host, "count", &number) == TUTTI_OK);
  CHECK(number == 7);
  CHECK(config.get_string(&plugin.host, "names", &text) == TUTTI_OK);
  CHECK(std::strcmp(text, "a,b") == 0);
  CHECK(std::strcmp(config.origin(&plugin.host, "count"), "tutti.toml:3") == 0);
  CHECK(config.origin(&plugin.host, "nothing") != nullptr);
  number = 99;
  CHECK(config.get_int(&plugin.host, "names", &number) == TUTTI_ERR_INVALID);
  CHECK(config.get_string(&plugin.host, "count", &text) == TUTTI_ERR_INVALID);
  CHECK(config.get_int(&plugin.host, "missing", &number) == TUTTI_ERR_INVALID);
  CHECK(plugin_error(plugin, TUTTI_ERR_INVALID, "open").error().message.find("\"missing\"") != std::string::npos);
  CHECK(number == 99);
}

TEST_CASE_FIXTURE(Fixture, "memory is zeroed, aligned to pages, and counted against the cap") {
  const auto &memory = service<tutti_host_memory_v1>(TUTTI_HOST_MEMORY);
  tutti_region region{};
  region.struct_size = sizeof(region);
  REQUIRE(memory.alloc(&plugin.host, TUTTI_MEM_HOST, 5000, -1, &region) == TUTTI_OK);
  CHECK(reinterpret_cast<uintptr_t>(region.addr) % 4096 == 0);
  CHECK(region.bytes == 5000);
  CHECK(region.kind == TUTTI_MEM_HOST);
  CHECK(static_cast<const char *>(region.addr)[4999] == 0);
  CHECK(plugin_memory_in_use() == 8192);
  tutti_region more{};
  more.struct_size = sizeof(more);
  CHECK(memory.alloc(&plugin.host, TUTTI_MEM_HOST, 1 << 20, -1, &more) == TUTTI_ERR_NO_MEMORY);
  CHECK(more.addr == nullptr);
  const Status why = plugin_error(plugin, TUTTI_ERR_NO_MEMORY, "alloc");
  CHECK(why.error().message.find("1048576") != std::string::npos);
  CHECK(why.error().message.find("8192") != std::string::npos);
  CHECK(memory.alloc(&plugin.host, TUTTI_MEM_CUDA, 4096, -1, &more) == TUTTI_ERR_UNSUPPORTED);
  CHECK(memory.alloc(&plugin.host, TUTTI_MEM_HOST, 0, -1, &more) == TUTTI_ERR_INVALID);
  memory.release(&plugin.host, &region);
  CHECK(plugin_memory_in_use() == 0);
}

TEST_CASE_FIXTURE(Fixture, "memory may be had by several threads at once, and the cap holds for all together") {
  const auto &memory = service<tutti_host_memory_v1>(TUTTI_HOST_MEMORY);
  std::atomic<int> had{0};
  const auto ask = [&] {
    for (int i = 0; i < 200; i++) {
      tutti_region region{};
      region.struct_size = sizeof(region);
      if (memory.alloc(&plugin.host, TUTTI_MEM_HOST, 4096, -1, &region) != TUTTI_OK) continue;
      had++;
      CHECK(plugin_memory_in_use() <= plugin.memory_cap);
      memory.release(&plugin.host, &region);
    }
  };
  std::thread other(ask);
  ask();
  other.join();
  CHECK(had > 200);
  CHECK(plugin_memory_in_use() == 0);
}

TEST_CASE_FIXTURE(Fixture, "services of upper folders are found by id, unknown ones are NULL") {
  static const int table = 1;
  CHECK(plugin.host.get_iface(&plugin.host, "tutti.host.test/1") == nullptr);
  provide_host_service("tutti.host.test/1", &table);
  CHECK(plugin.host.get_iface(&plugin.host, "tutti.host.test/1") == &table);
  CHECK(plugin.host.get_iface(&plugin.host, "tutti.host.diag/2") == nullptr);
}
