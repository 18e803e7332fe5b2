// tutti/plugins/net-ib/verbs.h: the calls of libibverbs that this plugin makes, one for one, so that tests put a device of
// their own in their place. Results are those of libibverbs: null with errno, or 0 and an errno value.
#pragma once
#include <cstdint>
#include <infiniband/verbs.h>
#include <string>
#include <vector>

namespace tutti::net_ib {

class Verbs {
public:
  virtual ~Verbs() = default;

  // Names of all devices of the host; errno set when there is no way to ask.
  virtual std::vector<std::string> devices() = 0;
  virtual ibv_context *open(const std::string &device) = 0;
  virtual int close(ibv_context *context) = 0;
  // InfiniBand and RoCE are IBV_TRANSPORT_IB, iWARP is not.
  virtual ibv_transport_type transport(const std::string &device) = 0;
  virtual uint64_t guid(const std::string &device) = 0; // of the node, host byte order; 0 = unknown
  virtual int query_device(ibv_context *context, ibv_device_attr *out) = 0;
  virtual int query_port(ibv_context *context, uint8_t port, ibv_port_attr *out) = 0;
  virtual int query_gid(ibv_context *context, uint8_t port, uint32_t index, ibv_gid_entry *out) = 0; // ENODATA: empty entry
  virtual int query_pkey(ibv_context *context, uint8_t port, int index, uint16_t *out) = 0;          // host byte order

  virtual ibv_pd *alloc_pd(ibv_context *context) = 0;
  virtual int dealloc_pd(ibv_pd *pd) = 0;
  virtual ibv_mr *reg_mr(ibv_pd *pd, void *addr, size_t bytes, unsigned access) = 0;
  virtual ibv_mr *reg_dmabuf_mr(ibv_pd *pd, uint64_t offset, size_t bytes, uint64_t addr, int fd, unsigned access) = 0;
  virtual int dereg_mr(ibv_mr *mr) = 0;

  virtual ibv_comp_channel *create_comp_channel(ibv_context *context) = 0;
  virtual int destroy_comp_channel(ibv_comp_channel *channel) = 0;
  virtual int get_cq_event(ibv_comp_channel *channel, ibv_cq **cq) = 0; // -1 and EAGAIN: none (its descriptor does not block)
  virtual void ack_cq_events(ibv_cq *cq, unsigned n) = 0;
  virtual ibv_cq *create_cq(ibv_context *context, int entries, ibv_comp_channel *channel) = 0;
  virtual int resize_cq(ibv_cq *cq, int entries) = 0;
  virtual int destroy_cq(ibv_cq *cq) = 0;
  virtual int req_notify_cq(ibv_cq *cq) = 0;
  virtual int poll_cq(ibv_cq *cq, int n, ibv_wc *out) = 0;

  virtual ibv_qp *create_qp(ibv_pd *pd, ibv_qp_init_attr *init) = 0;
  virtual int modify_qp(ibv_qp *qp, ibv_qp_attr *attr, int mask) = 0;
  virtual int destroy_qp(ibv_qp *qp) = 0;
  virtual int post_send(ibv_qp *qp, ibv_send_wr *wr, ibv_send_wr **bad) = 0;
  virtual int post_recv(ibv_qp *qp, ibv_recv_wr *wr, ibv_recv_wr **bad) = 0;

  virtual int get_async_event(ibv_context *context, ibv_async_event *out) = 0; // -1 and EAGAIN: none (async_fd does not block)
  virtual void ack_async_event(ibv_async_event *event) = 0;
};

// The real ones.
Verbs &real_verbs();

} // namespace tutti::net_ib
