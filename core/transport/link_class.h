// tutti/core/transport/link_class.h: what carries the messages between two ranks.
#pragma once
#include "tutti/plugin/tuner.h"
#include <cstdint>
#include <string_view>

namespace tutti {

enum class LinkClass : uint8_t { local = TUTTI_LINK_CLASS_LOCAL, shm = TUTTI_LINK_CLASS_SHM, net = TUTTI_LINK_CLASS_NET };

inline std::string_view class_name(LinkClass c) {
  return c == LinkClass::local ? "local" : c == LinkClass::shm ? "shm" : "net";
}

} // namespace tutti
