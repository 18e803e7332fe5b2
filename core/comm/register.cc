// Buffers that the user says will be used again.
#include "comm/communicator.h"
#include <algorithm>

namespace tutti {

Result<void *> Communicator::register_buffer(const void *buffer, uint64_t bytes) {
  TUTTI_TRY(usable());
  if (!buffer) return tutti::fail(Code::invalid_argument, "register: buff is NULL");
  if (bytes == 0) return tutti::fail(Code::invalid_argument, "register: size is 0");
  if (bytes > UINTPTR_MAX - reinterpret_cast<uintptr_t>(buffer))
    return tutti::fail(Code::invalid_argument, "register: {} bytes at {} go beyond the end of memory", bytes, buffer);
  TUTTI_TRY(core_->engine->offer(buffer, bytes));
  registrations_.push_back(std::make_unique<Registration>(Registration{buffer, bytes, ++registered_}));
  core_->engine->keep(registered_, buffer, bytes);
  return static_cast<void *>(registrations_.back().get());
}

Status Communicator::deregister_buffer(const void *handle) {
  const auto it = std::find_if(registrations_.begin(), registrations_.end(), [&](const auto &r) { return r.get() == handle; });
  if (it == registrations_.end())
    return tutti::fail(Code::invalid_argument, "deregister: {} is no registration of this communicator", handle);
  const uint64_t number = (*it)->number;
  if (core_ && core_->engine) TUTTI_TRY(core_->engine->forget(number));
  registrations_.erase(it); // mappings stay until the memory is freed
  return {};
}

} // namespace tutti
