// tutti/plugins/net-ib/hca.cc
#include "hca.h"
#include "explain.h"
#include <cerrno>

namespace tutti::net_ib {

using plugin::fail;
using plugin::fail_errno;

constexpr uint32_t first_capacity = 256; // of a completion queue

Hca::Hca(const Host &host, Verbs &verbs, std::string name, const Settings &settings) : verbs_(verbs), name_(std::move(name)) {
  try {
    if (!(context_ = verbs_.open(name_))) fail(TUTTI_ERR_SYSTEM, name_, " ", explain_open(errno));
    if (const int err = verbs_.query_device(context_, &attributes_)) fail_errno(err, name_, ": ibv_query_device");
    if (!(pd_ = verbs_.alloc_pd(context_))) fail_errno(errno, name_, ": ibv_alloc_pd");
    if (!(channel_ = verbs_.create_comp_channel(context_))) fail_errno(errno, name_, ": ibv_create_comp_channel");
    events_ = std::make_unique<DeviceEvents>(host, verbs_, context_, name_, attributes_.phys_port_cnt, settings);
  } catch (...) {
    close();
    throw;
  }
}

Hca::~Hca() {
  close();
}

void Hca::close() noexcept {
  events_.reset();
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

Registration::Registration(Verbs &verbs, Hca &hca, const tutti_region &region, bool relaxed_ordering, bool use_dmabuf)
    : verbs_(&verbs) {
  const bool dmabuf = region.kind == TUTTI_MEM_DMABUF || (region.kind == TUTTI_MEM_CUDA && region.dmabuf_fd >= 0);
  if (region.kind != TUTTI_MEM_HOST && !dmabuf) plugin::unsupported("device memory needs a dma-buf to be registered");
  if (dmabuf && (!use_dmabuf || region.dmabuf_fd < 0))
    plugin::unsupported("memory of a dma-buf ",
                        region.dmabuf_fd < 0 ? "without a descriptor" : "while the option dmabuf is off");
  constexpr unsigned plain = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  const auto reg = [&](unsigned access) {
    return dmabuf ? verbs.reg_dmabuf_mr(hca.pd(), region.dmabuf_offset, region.bytes, reinterpret_cast<uint64_t>(region.addr),
                                        region.dmabuf_fd, access)
                  : verbs.reg_mr(hca.pd(), region.addr, region.bytes, access);
  };
  if (relaxed_ordering) mr_ = reg(plain | IBV_ACCESS_RELAXED_ORDERING);
  if (!mr_ && (!relaxed_ordering || errno == EINVAL || errno == EOPNOTSUPP || errno == ENOTSUP)) mr_ = reg(plain);
  if (mr_) return;
  const int err = errno;
  fail(err == ENOMEM ? TUTTI_ERR_NO_MEMORY : TUTTI_ERR_SYSTEM,
       explain_reg_mr(err, hca.name(), dmabuf ? "ibv_reg_dmabuf_mr" : "ibv_reg_mr", region.addr, region.bytes));
}

} // namespace tutti::net_ib
