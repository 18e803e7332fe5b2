// socket.ifname and its like, for any interfaces: a rule selects some of them or says why none.
#include "cut.h"
#include "tutti/plugin/cxx/netif.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  using namespace tutti;
  fuzz::Input in(data, size);
  std::vector<netif::Interface> all;
  for (uint32_t n = in.below(5); n > 0; n--) {
    netif::Interface i;
    i.name = in.take(in.below(16));
    const uint8_t flags = in.byte();
    i.loopback = flags & 1;
    i.up = flags & 2;
    for (uint32_t a = flags >> 6; a > 0; a--) {
      netif::Address address;
      const bool six = in.byte() & 1;
      address.storage.ss_family = six ? AF_INET6 : AF_INET;
      const std::string_view raw = in.take(six ? 16 : 4);
      if (six)
        raw.copy(reinterpret_cast<char *>(&reinterpret_cast<sockaddr_in6 *>(&address.storage)->sin6_addr), 16);
      else
        raw.copy(reinterpret_cast<char *>(&reinterpret_cast<sockaddr_in *>(&address.storage)->sin_addr), 4);
      address.prefix = in.below(129);
      i.addresses.push_back(address);
    }
    all.push_back(i);
  }
  const uint8_t family = in.byte();
  const netif::Selection s = netif::select(in.rest(), family % 3 == 0 ? 0 : family % 3 == 1 ? AF_INET : AF_INET6, all);
  fuzz::expect(s.choices.empty() == !s.error.empty());
  fuzz::expect(s.error.find('\n') == std::string::npos || s.error.size() < 1 << 16);
  return 0;
}
