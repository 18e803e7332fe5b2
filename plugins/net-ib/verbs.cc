// tutti/plugins/net-ib/verbs.cc: libibverbs behind Verbs.
#include "verbs.h"
#include <cerrno>
#include <endian.h>
#include <fcntl.h>

namespace tutti::net_ib {
namespace {

// The devices of the host for as long as it lives; an opened one outlives it.
class List {
public:
  List() : devices_(ibv_get_device_list(&n_)) {}
  ~List() {
    if (devices_) ibv_free_device_list(devices_);
  }
  List(const List &) = delete;
  List &operator=(const List &) = delete;
  explicit operator bool() const { return devices_ != nullptr; }
  ibv_device **begin() const { return devices_; }
  ibv_device **end() const { return devices_ + n_; }
  ibv_device *find(const std::string &name) const { // null with errno
    if (!devices_) return nullptr;
    for (ibv_device *d : *this)
      if (name == ibv_get_device_name(d)) return d;
    errno = ENODEV;
    return nullptr;
  }

private:
  int n_ = 0;
  ibv_device **devices_;
};

void never_block(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags >= 0) fcntl(fd, F_SETFL, flags | O_NONBLOCK);
}

// Pinned pages of a process that forks: kernels before 5.12 need to be told, and before the first registration.
void prepare_for_fork() {
  static const bool done = [] {
    if (ibv_is_fork_initialized() == IBV_FORK_DISABLED) ibv_fork_init(); // refused where memory is registered: as it was
    return true;
  }();
  static_cast<void>(done);
}

class RealVerbs : public Verbs {
public:
  std::vector<std::string> devices() override {
    errno = 0;
    const List list;
    std::vector<std::string> out;
    if (!list) return out;
    for (ibv_device *d : list) out.emplace_back(ibv_get_device_name(d));
    errno = 0; // what the library tried on its way is no error
    return out;
  }
  ibv_context *open(const std::string &device) override {
    prepare_for_fork();
    const List list;
    ibv_device *found = list.find(device);
    ibv_context *context = found ? ibv_open_device(found) : nullptr;
    if (context) never_block(context->async_fd);
    return context;
  }
  int close(ibv_context *context) override { return ibv_close_device(context); }
  ibv_transport_type transport(const std::string &device) override {
    const List list;
    ibv_device *found = list.find(device);
    return found ? found->transport_type : IBV_TRANSPORT_UNKNOWN;
  }
  uint64_t guid(const std::string &device) override {
    const List list;
    ibv_device *found = list.find(device);
    return found ? be64toh(ibv_get_device_guid(found)) : 0;
  }
  int query_device(ibv_context *context, ibv_device_attr *out) override { return ibv_query_device(context, out); }
  int query_port(ibv_context *context, uint8_t port, ibv_port_attr *out) override { return ibv_query_port(context, port, out); }
  int query_gid(ibv_context *context, uint8_t port, uint32_t index, ibv_gid_entry *out) override {
    return ibv_query_gid_ex(context, port, index, out, 0);
  }
  int query_pkey(ibv_context *context, uint8_t port, int index, uint16_t *out) override {
    __be16 key = 0;
    errno = 0;
    if (ibv_query_pkey(context, port, index, &key) != 0) return errno != 0 ? errno : EINVAL;
    *out = be16toh(key);
    return 0;
  }

  ibv_pd *alloc_pd(ibv_context *context) override { return ibv_alloc_pd(context); }
  int dealloc_pd(ibv_pd *pd) override { return ibv_dealloc_pd(pd); }
  ibv_mr *reg_mr(ibv_pd *pd, void *addr, size_t bytes, unsigned access) override {
    return ibv_reg_mr(pd, addr, bytes, static_cast<int>(access));
  }
  ibv_mr *reg_dmabuf_mr(ibv_pd *pd, uint64_t offset, size_t bytes, uint64_t addr, int fd, unsigned access) override {
    return ibv_reg_dmabuf_mr(pd, offset, bytes, addr, fd, static_cast<int>(access));
  }
  int dereg_mr(ibv_mr *mr) override { return ibv_dereg_mr(mr); }

  ibv_comp_channel *create_comp_channel(ibv_context *context) override {
    ibv_comp_channel *channel = ibv_create_comp_channel(context);
    if (channel) never_block(channel->fd);
    return channel;
  }
  int destroy_comp_channel(ibv_comp_channel *channel) override { return ibv_destroy_comp_channel(channel); }
  int get_cq_event(ibv_comp_channel *channel, ibv_cq **cq) override {
    void *context = nullptr;
    return ibv_get_cq_event(channel, cq, &context);
  }
  void ack_cq_events(ibv_cq *cq, unsigned n) override { ibv_ack_cq_events(cq, n); }
  ibv_cq *create_cq(ibv_context *context, int entries, ibv_comp_channel *channel) override {
    return ibv_create_cq(context, entries, nullptr, channel, 0);
  }
  int resize_cq(ibv_cq *cq, int entries) override { return ibv_resize_cq(cq, entries); }
  int destroy_cq(ibv_cq *cq) override { return ibv_destroy_cq(cq); }
  int req_notify_cq(ibv_cq *cq) override { return ibv_req_notify_cq(cq, 0); }
  int poll_cq(ibv_cq *cq, int n, ibv_wc *out) override { return ibv_poll_cq(cq, n, out); }

  ibv_qp *create_qp(ibv_pd *pd, ibv_qp_init_attr *init) override { return ibv_create_qp(pd, init); }
  int modify_qp(ibv_qp *qp, ibv_qp_attr *attr, int mask) override { return ibv_modify_qp(qp, attr, mask); }
  int destroy_qp(ibv_qp *qp) override { return ibv_destroy_qp(qp); }
  int post_send(ibv_qp *qp, ibv_send_wr *wr, ibv_send_wr **bad) override { return ibv_post_send(qp, wr, bad); }
  int post_recv(ibv_qp *qp, ibv_recv_wr *wr, ibv_recv_wr **bad) override { return ibv_post_recv(qp, wr, bad); }

  int get_async_event(ibv_context *context, ibv_async_event *out) override { return ibv_get_async_event(context, out); }
  void ack_async_event(ibv_async_event *event) override { ibv_ack_async_event(event); }
};

} // namespace

Verbs &real_verbs() {
  static RealVerbs verbs;
  return verbs;
}

} // namespace tutti::net_ib
