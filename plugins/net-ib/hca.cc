// tutti/plugins/net-ib/hca.cc
#include "hca.h"
#include <cerrno>
#include <sys/resource.h>

namespace tutti::net_ib {

using plugin::fail;
using plugin::fail_errno;

constexpr uint32_t first_capacity = 256; // of a completion queue

Hca::Hca(Verbs &verbs, std::string name) : verbs_(verbs), name_(std::move(name)) {
  try {
    if (!(context_ = verbs_.open(name_))) fail_errno(errno, "cannot open ", name_);
    if (const int err = verbs_.query_device(context_, &attributes_)) fail_errno(err, name_, ": ibv_query_device");
    if (!(pd_ = verbs_.alloc_pd(context_))) fail_errno(errno, name_, ": ibv_alloc_pd");
    if (!(channel_ = verbs_.create_comp_channel(context_))) fail_errno(errno, name_, ": ibv_create_comp_channel");
  } catch (...) {
    close();
    throw;
  }
}

Hca::~Hca() {
  close();
}

void Hca::close() noexcept {
  for (const auto &c : completions_) {
    if (c->events) verbs_.ack_cq_events(c->cq, c->events);
    verbs_.destroy_cq(c->cq);
  }
  completions_.clear();
  if (channel_) verbs_.destroy_comp_channel(channel_);
  if (pd_) verbs_.dealloc_pd(pd_);
  if (context_) verbs_.close(context_);
}

Completions &Hca::reserve(uint32_t entries) {
  const auto largest = static_cast<uint32_t>(std::max(attributes_.max_cqe, 1));
  if (entries > largest)
    fail(TUTTI_ERR_UNSUPPORTED, name_, ": a queue pair needs ", entries, " completion queue entries, the device has ", largest,
         " at most; a smaller max_inflight needs fewer");
  for (const auto &c : completions_)
    if (c->capacity - c->used >= entries) return c->used += entries, *c;
  if (!completions_.empty()) {
    Completions &last = *completions_.back();
    const uint32_t wanted = std::min(largest, std::max(last.capacity * 2, last.used + entries));
    if (wanted - last.used >= entries && verbs_.resize_cq(last.cq, static_cast<int>(wanted)) == 0) {
      last.capacity = wanted;
      return last.used += entries, last;
    }
  }
  auto made = std::make_unique<Completions>();
  made->capacity = std::min(largest, std::max(first_capacity, entries));
  made->cq = verbs_.create_cq(context_, static_cast<int>(made->capacity), channel_);
  if (!made->cq) fail_errno(errno, name_, ": ibv_create_cq of ", made->capacity, " entries");
  made->used = entries;
  completions_.push_back(std::move(made));
  return *completions_.back();
}

void Hca::arm() {
  for (ibv_cq *cq = nullptr; verbs_.get_cq_event(channel_, &cq) == 0;)
    for (const auto &c : completions_)
      if (c->cq == cq && ++c->events == 1024) verbs_.ack_cq_events(cq, std::exchange(c->events, 0)); // taking a lock, each time
  for (const auto &c : completions_) verbs_.req_notify_cq(c->cq);
}

namespace {

[[noreturn]] void refuse(const std::string &device, const tutti_region &region, const char *call, int err) {
  rlimit limit{};
  const bool pinned = (err == ENOMEM || err == EPERM) && getrlimit(RLIMIT_MEMLOCK, &limit) == 0;
  std::string why = plugin::text("net-ib ", device, ": cannot register ", region.bytes, " bytes at ",
                                 reinterpret_cast<uintptr_t>(region.addr), ": ", call, ": ", std::generic_category().message(err));
  if (pinned && limit.rlim_cur != RLIM_INFINITY)
    why += plugin::text(" (ulimit -l is ", limit.rlim_cur / 1024, " KiB; net-ib needs the buffer pinned)");
  fail(err == ENOMEM ? TUTTI_ERR_NO_MEMORY : TUTTI_ERR_SYSTEM, why);
}

} // namespace

Registration::Registration(Verbs &verbs, Hca &hca, const tutti_region &region, bool relaxed_ordering, bool use_dmabuf)
    : verbs_(&verbs) {
  const bool dmabuf = region.kind == TUTTI_MEM_DMABUF || (region.kind == TUTTI_MEM_CUDA && region.dmabuf_fd >= 0);
  if (region.kind != TUTTI_MEM_HOST && !dmabuf) plugin::unsupported("device memory needs a dma-buf to be registered");
  if (dmabuf && (!use_dmabuf || region.dmabuf_fd < 0))
    plugin::unsupported("memory of a dma-buf ", region.dmabuf_fd < 0 ? "without a descriptor" : "while the option dmabuf is off");
  constexpr unsigned plain = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  const auto reg = [&](unsigned access) {
    return dmabuf ? verbs.reg_dmabuf_mr(hca.pd(), region.dmabuf_offset, region.bytes, reinterpret_cast<uint64_t>(region.addr),
                                        region.dmabuf_fd, access)
                  : verbs.reg_mr(hca.pd(), region.addr, region.bytes, access);
  };
  if (relaxed_ordering) mr_ = reg(plain | IBV_ACCESS_RELAXED_ORDERING);
  if (!mr_ && (!relaxed_ordering || errno == EINVAL || errno == EOPNOTSUPP || errno == ENOTSUP)) mr_ = reg(plain);
  if (!mr_) refuse(hca.name(), region, dmabuf ? "ibv_reg_dmabuf_mr" : "ibv_reg_mr", errno);
}

} // namespace tutti::net_ib
