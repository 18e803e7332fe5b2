// A host whose RDMA devices a test writes down. Queues and memory it has none.
#pragma once
#include "../../support/temp_folder.h"
#include "ports.h"
#include <deque>
#include <map>
#include <memory>

struct TestPort {
  ibv_port_attr attr{};
  std::map<uint32_t, ibv_gid_entry> gids;
  std::vector<uint16_t> pkeys{0xffff};
};

struct TestDevice {
  std::string name;
  ibv_transport_type transport = IBV_TRANSPORT_IB;
  uint64_t guid = 0;
  int open_error = 0, max_qp = 1000;
  std::vector<TestPort> ports;
};

class Machine : public tutti::net_ib::Verbs {
public:
  Machine();
  Machine(const Machine &) = delete;

  // A RoCE device of one port: link-local at GID index 0, `ip` at 1 (RoCE v1) and 2 (RoCE v2).
  TestDevice &roce(const std::string &name, const std::string &ip);
  TestDevice &infiniband(const std::string &name, uint16_t lid, int ports = 1);
  TestDevice &device(const std::string &name);
  static void set_gid(TestPort &port, uint32_t index, const std::string &text, ibv_gid_type type);
  // Below sysfs(): a file, or a link when `target` is a folder.
  void file(const std::string &path, const std::string &content);
  void link(const std::string &path, const std::string &target);
  // A function at this address that has the device, and its NUMA node.
  void place(const std::string &device, const std::string &pci, int numa);
  const std::string &sysfs() const { return sysfs_; }

  void happens(ibv_context *context, ibv_event_type type, int port = 1, ibv_qp *qp = nullptr);
  void breaks(int err) { event_error_ = err; } // reading events fails from now on
  int acknowledged = 0, opened = 0, list_error = 0;

  std::vector<std::string> devices() override;
  ibv_context *open(const std::string &device) override;
  int close(ibv_context *context) override;
  ibv_transport_type transport(const std::string &device) override { return this->device(device).transport; }
  uint64_t guid(const std::string &device) override { return this->device(device).guid; }
  int query_device(ibv_context *context, ibv_device_attr *out) override;
  int query_port(ibv_context *context, uint8_t port, ibv_port_attr *out) override;
  int query_gid(ibv_context *context, uint8_t port, uint32_t index, ibv_gid_entry *out) override;
  int query_pkey(ibv_context *context, uint8_t port, int index, uint16_t *out) override;
  int get_async_event(ibv_context *context, ibv_async_event *out) override;
  void ack_async_event(ibv_async_event *) override { acknowledged++; }

  ibv_pd *alloc_pd(ibv_context *) override { return nullptr; }
  int dealloc_pd(ibv_pd *) override { return ENOSYS; }
  ibv_mr *reg_mr(ibv_pd *, void *, size_t, unsigned) override { return nullptr; }
  ibv_mr *reg_dmabuf_mr(ibv_pd *, uint64_t, size_t, uint64_t, int, unsigned) override { return nullptr; }
  int dereg_mr(ibv_mr *) override { return ENOSYS; }
  ibv_comp_channel *create_comp_channel(ibv_context *) override { return nullptr; }
  int destroy_comp_channel(ibv_comp_channel *) override { return ENOSYS; }
  int get_cq_event(ibv_comp_channel *, ibv_cq **) override { return -1; }
  void ack_cq_events(ibv_cq *, unsigned) override {}
  ibv_cq *create_cq(ibv_context *, int, ibv_comp_channel *) override { return nullptr; }
  int resize_cq(ibv_cq *, int) override { return ENOSYS; }
  int destroy_cq(ibv_cq *) override { return ENOSYS; }
  int req_notify_cq(ibv_cq *) override { return ENOSYS; }
  int poll_cq(ibv_cq *, int, ibv_wc *) override { return -1; }
  ibv_qp *create_qp(ibv_pd *, ibv_qp_init_attr *) override { return nullptr; }
  int modify_qp(ibv_qp *, ibv_qp_attr *, int) override { return ENOSYS; }
  int destroy_qp(ibv_qp *) override { return ENOSYS; }
  int post_send(ibv_qp *, ibv_send_wr *, ibv_send_wr **) override { return ENOSYS; }
  int post_recv(ibv_qp *, ibv_recv_wr *, ibv_recv_wr **) override { return ENOSYS; }

private:
  struct Open {
    ibv_context context{};
    TestDevice *device = nullptr;
    std::deque<ibv_async_event> events;
  };
  Open &of(ibv_context *context);
  TestPort *port_of(ibv_context *context, uint8_t port);
  std::deque<TestDevice> devices_;
  std::vector<std::unique_ptr<Open>> open_;
  int event_error_ = 0;
  support::TempFolder folder_;
  std::string root_, sysfs_;
};

// The names of the devices found, separated by blanks.
std::string names(const tutti::net_ib::Found &found);
