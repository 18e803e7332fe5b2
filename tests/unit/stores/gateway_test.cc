// What travels between store-etcd and the gateway: shapes that etcd 3.4 and 3.5 have, and what must not be taken for them.
#include "gateway.h"
#include "tutti/plugin/cxx/store_client.hpp"
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

using namespace tutti;
using namespace tutti::etcd;
using nlohmann::json;

namespace {
template <class Fn> std::string error_of(Fn &&fn) {
  try {
    (void)fn();
  } catch (const plugin::Error &e) {
    CHECK(e.code() == TUTTI_ERR_REMOTE);
    return e.what();
  }
  return "";
}
} // namespace

TEST_CASE("requests are what the gateway documents") {
  CHECK(json::parse(gateway::range("/a")) == json({{"key", "L2E="}}));
  CHECK(json::parse(gateway::put("/a", "", "")) == json({{"key", "L2E="}, {"value", ""}}));
  CHECK(json::parse(gateway::put("/a", std::string("\0\xff", 2), "12")) ==
        json({{"key", "L2E="}, {"value", "AP8="}, {"lease", "12"}}));
  const json txn = json::parse(gateway::create("/a", "v", "12"));
  CHECK(txn.at("compare").at(0) ==
        json({{"target", "CREATE"}, {"result", "EQUAL"}, {"key", "L2E="}, {"create_revision", "0"}}));
  CHECK(txn.at("success").at(0).at("request_put") == json({{"key", "L2E="}, {"value", "dg=="}, {"lease", "12"}}));
  CHECK(json::parse(gateway::grant(31)) == json({{"TTL", "31"}, {"ID", "0"}}));
  CHECK(json::parse(gateway::authenticate("u", "p\"\n\xff")).at("name") == "u"); // no UTF-8 is no exception
}

TEST_CASE("answers are read, and those that do not fit are errors") {
  CHECK(gateway::value(R"({"header":{"revision":"5"},"kvs":[{"key":"L2E=","value":"AP8="}],"count":"1"})") ==
        std::string("\0\xff", 2));
  CHECK(gateway::value(R"({"header":{},"kvs":[{"key":"L2E="}]})") == "");
  CHECK_FALSE(gateway::value(R"({"header":{"revision":"5"}})").has_value());
  CHECK(gateway::succeeded(R"({"header":{},"succeeded":true})"));
  CHECK_FALSE(gateway::succeeded(R"({"header":{}})"));
  CHECK(gateway::lease(R"({"header":{},"ID":"7587883263812345678","TTL":"31"})") == "7587883263812345678");
  CHECK(gateway::token(R"({"header":{},"token":"abc.5"})") == "abc.5");
  for (const char *odd :
       {"", "null", "[]", "1", "\"x\"", "{", "{}", R"({"header":1})", R"({"header":{},"kvs":{}} x)", "\xff\xfe"}) {
    const std::string which = odd; // clang 14: INFO cannot capture a binding
    INFO(which);
    CHECK(error_of([&] { return gateway::value(odd); }) != "");
    CHECK(error_of([&] { return gateway::succeeded(odd); }) != "");
    CHECK(error_of([&] { return gateway::lease(odd); }) != "");
    CHECK(error_of([&] { return gateway::token(odd); }) != "");
  }
  CHECK(error_of([] { return gateway::lease(R"({"ID":7587883263812345678})"); }) != "");
  CHECK(error_of([] { return gateway::token(R"({"token":"a\r\nX: y"})"); }) != ""); // would be a header
  CHECK(error_of([] { return gateway::value(R"({"header":{},"kvs":[{"value":"A"}]})"); }) != "");
  CHECK(gateway::value(R"({"header":{},"kvs":[7]})") == "");
}

TEST_CASE("refusals have a code and a text, whatever came") {
  const auto r = gateway::refusal(R"({"error":"etcdserver: x","code":14,"message":"etcdserver: x"})");
  CHECK(r.code == 14);
  CHECK(r.text == "etcdserver: x");
  CHECK(gateway::refusal("").text == "no text");
  CHECK(gateway::refusal("<b>\n\x1b[31m").text == "\"<b>  [31m\"");
  CHECK(gateway::refusal(R"({"code":"14","error":7})").code == -1);
}

TEST_CASE("URLs of stores are read into their parts") {
  const plugin::StoreUrl u = plugin::parse_store_url("etcd://us%3Aer:p%40%2fss@h1:1,[::1],10.0.0.1:3/a%20b/c?q=1", 9);
  CHECK(u.scheme == "etcd");
  CHECK(u.user == "us:er");
  CHECK(u.password == "p@/ss");
  REQUIRE(u.hosts.size() == 3);
  CHECK(u.hosts[0].text() == "h1:1");
  CHECK(u.hosts[1].text() == "[::1]:9");
  CHECK(u.hosts[2].text() == "10.0.0.1:3");
  CHECK(u.path == "a b/c");
  CHECK(u.query == "q=1");
  CHECK(u.shown == "etcd://us%3Aer:***@h1:1,[::1],10.0.0.1:3/a%20b/c?q=1");
  CHECK(plugin::parse_store_url("x://h", 9).shown == "x://h");
  CHECK(plugin::parse_store_url("x://u@h", 9).has_password == false);
}
