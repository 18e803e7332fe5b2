// tutti/core/transport/traffic.h: what has crossed one link, as this rank's end has counted it.
#pragma once
#include "transport/link_class.h"
#include <string>

namespace tutti {

// Rings of one link that differ in slots or depth alone are counted together.
struct LinkTraffic {
  int peer = -1; // of a link with several readers: the rank that writes
  uint16_t conn = 0;
  bool sending = false;
  uint32_t readers = 0; // of a link with several
  LinkClass link_class = LinkClass::local;
  std::string proto; // several when they share slots: "a+b"
  uint64_t messages = 0;
  uint64_t bytes = 0;      // payloads
  uint64_t wire_bytes = 0; // of slots in memory, or of what the network was given: payload and what the core adds
  uint64_t lent_bytes = 0; // part of `bytes` that stayed in the sender's memory until the receiver read it there
};

} // namespace tutti
