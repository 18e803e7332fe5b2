// tutti/core/bootstrap/at_root.h: what roots tell the first of them.
#pragma once
#include "bootstrap/wire.h"

namespace tutti::boot {

// Of a rank that has checked in at one of several roots; with the address, where ranks of another root are its neighbours.
struct AtRoot {
  int rank = -1;
  std::optional<Contact> contact;
};
Bytes encode(const AtRoot &a);
std::optional<AtRoot> decode_at_root(std::span<const std::byte> data);

} // namespace tutti::boot
