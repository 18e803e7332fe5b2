// Messages through the double: sizes, order, batches, bounds, shares.
#include "world.h"

using namespace tutti::net_ib;
using namespace tutti::net_ib::test;

namespace {

// Sends messages of these sizes in order, with as many posted as the endpoint takes, and checks every byte.
void transfer(World &w, const std::vector<size_t> &sizes) {
  std::vector<std::vector<uint8_t>> out, in;
  for (size_t i = 0; i < sizes.size(); ++i) {
    out.push_back(pattern(sizes[i], i + 1));
    in.emplace_back(sizes[i] + i % 3, uint8_t{0});
  }
  std::vector<uint64_t> got(sizes.size(), ~uint64_t{0});
  size_t sent = 0, posted = 0;
  const bool all = w.until([&] {
    while (sent < sizes.size() && w.send(out[sent].data(), sizes[sent], sent) == TUTTI_OK) ++sent;
    while (posted < sizes.size() && w.recv(in[posted].data(), in[posted].size(), posted, &got[posted]) == TUTTI_OK) ++posted;
    return w.a->done.size() == sizes.size() && w.b->done.size() == sizes.size();
  });
  REQUIRE_MESSAGE(all, w.core.error);
  for (size_t i = 0; i < sizes.size(); ++i) {
    CHECK(w.a->status(i) == TUTTI_OK);
    CHECK(w.b->status(i) == TUTTI_OK);
    CHECK(got[i] == sizes[i]);
    CHECK(w.b->done[i].size() == 1);
    CHECK(w.b->done[i][0].bytes == sizes[i]);
    CHECK(w.a->done[i][0].bytes == sizes[i]);
    CHECK(std::equal(out[i].begin(), out[i].end(), in[i].begin()));
  }
  w.a->done.clear();
  w.b->done.clear();
  CHECK(w.fabric.overflows == 0);
  CHECK(w.fabric.rnr == 0);
}

const std::vector<size_t> mixed = {0, 1, 7, 8, 127, 128, 129, 4095, 4096, 4097, 65536, 3, 1 << 20, 0, 0, 5, 300000, 100};

} // namespace

TEST_CASE("messages of all sizes arrive whole and in order") {
  World w;
  w.connect();
  transfer(w, mixed);
  transfer(w, std::vector<size_t>(300, 13));
}
