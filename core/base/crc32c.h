// tutti/core/base/crc32c.h: the CRC of Castagnoli's polynomial, as iSCSI and SCTP use it.
#pragma once
#include <cstddef>
#include <cstdint>

namespace tutti {

// Goes on from `crc`, that of what came before; 0 begins. With the processor's instruction where it has one.
uint32_t crc32c(uint32_t crc, const void *data, size_t bytes);
uint32_t crc32c_portable(uint32_t crc, const void *data, size_t bytes);

} // namespace tutti
