#include "help.h"
#include "tutti/plugin/cxx/netif.hpp"

using namespace tutti::netif;

namespace {

Address address(const char *ip, uint32_t prefix) {
  Address a;
  a.prefix = prefix;
  if (inet_pton(AF_INET, ip, &reinterpret_cast<sockaddr_in *>(&a.storage)->sin_addr) == 1)
    a.storage.ss_family = AF_INET;
  else {
    a.storage.ss_family = AF_INET6;
    inet_pton(AF_INET6, ip, &reinterpret_cast<sockaddr_in6 *>(&a.storage)->sin6_addr);
  }
  return a;
}

Interface make(const char *name, bool running, std::vector<Address> addresses) {
  Interface i;
  i.name = name;
  i.up = true;
  i.running = running;
  i.loopback = i.name == "lo";
  i.made = detail::made_by_software(name);
  i.addresses = std::move(addresses);
  return i;
}

std::vector<Interface> host() {
  std::vector<Interface> all;
  all.push_back(make("lo", true, {address("127.0.0.1", 8), address("::1", 128)}));
  all.push_back(make("docker0", true, {address("172.17.0.1", 16)}));
  all.push_back(make("dead0", false, {address("10.9.0.1", 24)}));
  all.push_back(make("eth0", true, {address("10.0.0.5", 8), address("fd00::5", 64)}));
  all.push_back(make("eth1", true, {address("192.168.7.1", 24)}));
  all.push_back(make("off0", true, {address("10.8.0.1", 24)}));
  all.back().up = false;
  return all;
}

std::string chosen(std::string_view rule, int family = 0) {
  std::string out;
  for (const auto &c : select(rule, family, host()).choices) out += (out.empty() ? "" : " ") + to_text(c.address);
  return out;
}

} // namespace

TEST_CASE("without a rule real devices come first, software-made ones later, loopback last, those that are down never") {
  CHECK(chosen("", AF_INET) == "10.0.0.5 192.168.7.1 10.9.0.1 172.17.0.1 127.0.0.1");
  CHECK(chosen("", AF_INET6) == "fd00::5 ::1");
}

TEST_CASE("names are prefixes, = is exact, the order is the rule's") {
  CHECK(chosen("eth", AF_INET) == "10.0.0.5 192.168.7.1");
  CHECK(chosen("=eth1") == "192.168.7.1");
  CHECK(chosen("eth1,eth0", AF_INET) == "192.168.7.1 10.0.0.5");
  CHECK(chosen(" dead0 , =eth1 ") == "10.9.0.1 192.168.7.1");
}

TEST_CASE("^ excludes every entry, = within it is exact") {
  CHECK(chosen("^docker0,lo,dead", AF_INET) == "10.0.0.5 192.168.7.1");
  CHECK(chosen("^=eth,docker,lo,dead0", AF_INET) == "10.0.0.5 192.168.7.1 172.17.0.1");
  CHECK(chosen("^10.0.0.0/8,lo,docker0", AF_INET) == "192.168.7.1");
}

TEST_CASE("networks choose addresses, of both families") {
  CHECK(chosen("10.0.0.0/16") == "10.0.0.5");
  CHECK(chosen("fd00::/8") == "fd00::5");
  CHECK(chosen("192.168.7.1") == "192.168.7.1");
}

TEST_CASE("a rule that matches nothing says what exists") {
  const auto s = select("ib0", 0, host());
  CHECK(s.choices.empty());
  CHECK(s.error.find("\"ib0\"") != std::string::npos);
  CHECK(s.error.find("eth0 10.0.0.5/8 fd00::5/64") != std::string::npos);
  CHECK(s.error.find("off0 (down)") != std::string::npos);
  CHECK(select("10.0.0.0/33", 0, host()).error.find("10.0.0.0/33") != std::string::npos);
  CHECK(select("eth0,^lo", 0, host()).error.find("^lo") != std::string::npos);
}

TEST_CASE("the host's own interfaces are listed with their loopback") {
  bool loopback = false;
  for (const Interface &i : list()) loopback = loopback || i.loopback;
  CHECK(loopback);
}
