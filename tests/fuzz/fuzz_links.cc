// What ranks say to each other about their links, taken by a transport as it would be in a job: requests, grants, answers and
// regions in any order and of any content, of a rank that has proved that it belongs.
//
// Input: pieces of a length and so many bytes, each a message; the first byte says with what geometry rank 0 has a ring.
#include "cut.h"
#include "transport/link_message.h"
#include "transport/transport.h"
#include <cstring>
#include <thread>

using namespace tutti;

namespace {

Deadline soon() {
  return Deadline::in(std::chrono::seconds(20));
}

struct World {
  std::shared_ptr<const Config> config;
  std::unique_ptr<Bootstrap> ranks[2];
  std::vector<Bytes> infos;
  World() {
    config = *Config::from("", "", {{"TUTTI_SOCKET_IFNAME", "lo"}});
    const auto id = Bootstrap::create_id(*config);
    fuzz::expect(id.ok());
    std::thread other([&] { join(*id, 1); });
    join(*id, 0);
    other.join();
    fuzz::expect(ranks[0] && ranks[1]);
  }
  void join(const tuttiUniqueId &id, int r) {
    auto b = Bootstrap::join(id, 2, r, config, soon());
    if (b.ok()) ranks[r] = std::move(*b);
  }
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static World &world = *new World; // until the process ends
  fuzz::Input in(data, size);
  auto made = Transport::create(*world.ranks[0], world.config, {},
                                [](const Error &e) { fuzz::expect(e.line().find('\n') == std::string::npos); });
  fuzz::expect(made.ok());
  Transport &transport = **made;
  const std::vector<Bytes> infos(2, transport.local_info());
  fuzz::expect(transport.set_peers(infos).ok());
  Geometry geometry;
  geometry.slot_bytes = 64u << in.below(4);
  geometry.depth = 4;
  const auto receiving = transport.ring(1, 0, false, geometry, "fuzz"), sending = transport.ring(1, 0, true, geometry, "fuzz");
  fuzz::expect(receiving.ok() && sending.ok());
  for (int pieces = 0; pieces < 32 && !in.empty(); pieces++) {
    const std::string_view piece = in.take(in.byte());
    LinkMessage m{};
    std::memcpy(&m, piece.data(), std::min(piece.size(), sizeof m));
    if (m.type % 8 == 7) m.geometry = geometry; // one that there is, more often than by chance
    m.type %= 8;
    std::vector<std::byte> bytes(std::max(sizeof m, piece.size()));
    std::memcpy(bytes.data(), piece.data(), piece.size());
    std::memcpy(bytes.data(), &m, sizeof m);
    (void)world.ranks[1]->send(0, kLinkTag, std::span(bytes).first(piece.size() < sizeof m ? piece.size() : bytes.size()));
    (void)transport.connect(*(*sending)->cold);
    (void)transport.peer_went_elsewhere(**receiving);
  }
  (void)transport.traffic();
  transport.stop();
  return 0;
}
