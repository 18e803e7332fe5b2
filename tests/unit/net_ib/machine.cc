#include "machine.h"
#include <arpa/inet.h>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <sys/eventfd.h>
#include <unistd.h>

namespace fs = std::filesystem;
using tutti::net_ib::Found;

Machine::Machine() {
  root_ = folder_.path();
  sysfs_ = root_ + "/sys";
  fs::create_directories(sysfs_);
}

void Machine::set_gid(TestPort &port, uint32_t index, const std::string &text, ibv_gid_type type) {
  ibv_gid_entry e{};
  const std::string six = text.find(':') == std::string::npos ? "::ffff:" + text : text;
  if (inet_pton(AF_INET6, six.c_str(), e.gid.raw) != 1) throw std::runtime_error(text);
  e.gid_index = index;
  e.gid_type = static_cast<uint32_t>(type);
  port.gids[index] = e;
  port.attr.gid_tbl_len = std::max(port.attr.gid_tbl_len, static_cast<int>(index) + 3); // with empty entries behind
}

TestDevice &Machine::roce(const std::string &name, const std::string &ip) {
  TestDevice &d = devices_.emplace_back();
  d.name = name;
  d.guid = 0x1000 * devices_.size();
  TestPort &p = d.ports.emplace_back();
  p.attr.state = IBV_PORT_ACTIVE;
  p.attr.link_layer = IBV_LINK_LAYER_ETHERNET;
  p.attr.active_mtu = IBV_MTU_4096;
  p.attr.active_width = 2;
  p.attr.active_speed = 64;
  p.attr.pkey_tbl_len = 1;
  set_gid(p, 0, "fe80::1", IBV_GID_TYPE_ROCE_V2);
  if (!ip.empty()) {
    set_gid(p, 1, ip, IBV_GID_TYPE_ROCE_V1);
    set_gid(p, 2, ip, IBV_GID_TYPE_ROCE_V2);
  }
  return d;
}

TestDevice &Machine::infiniband(const std::string &name, uint16_t lid, int ports) {
  TestDevice &d = devices_.emplace_back();
  d.name = name;
  d.guid = 0x1000 * devices_.size();
  for (int i = 0; i < ports; i++) {
    TestPort &p = d.ports.emplace_back();
    p.attr.state = IBV_PORT_ACTIVE;
    p.attr.link_layer = IBV_LINK_LAYER_INFINIBAND;
    p.attr.active_mtu = IBV_MTU_2048;
    p.attr.active_width = 2;
    p.attr.active_speed = 128;
    p.attr.pkey_tbl_len = 1;
    p.attr.lid = static_cast<uint16_t>(lid + i);
    set_gid(p, 0, "fe80::2:c903:ab:" + std::to_string(lid + i), IBV_GID_TYPE_IB);
  }
  return d;
}

TestDevice &Machine::device(const std::string &name) {
  for (TestDevice &d : devices_)
    if (d.name == name) return d;
  throw std::out_of_range(name);
}

void Machine::file(const std::string &path, const std::string &content) {
  fs::create_directories(fs::path(sysfs_ + path).parent_path());
  std::ofstream(sysfs_ + path) << content << "\n";
}

void Machine::link(const std::string &path, const std::string &target) {
  fs::create_directories(fs::path(sysfs_ + path).parent_path());
  fs::create_directories(sysfs_ + target);
  fs::create_directory_symlink(sysfs_ + target, sysfs_ + path);
}

void Machine::place(const std::string &device, const std::string &pci, int numa) {
  const std::string folder = "/devices/pci0000:00/" + pci;
  file(folder + "/numa_node", std::to_string(numa));
  link("/class/infiniband/" + device + "/device", folder);
}

void Machine::happens(ibv_context *context, ibv_event_type type, int port, ibv_qp *qp) {
  ibv_async_event e{};
  e.event_type = type;
  if (qp)
    e.element.qp = qp;
  else
    e.element.port_num = port;
  of(context).events.push_back(e);
  eventfd_write(context->async_fd, 1);
}

std::vector<std::string> Machine::devices() {
  errno = list_error;
  std::vector<std::string> out;
  if (list_error == 0)
    for (const TestDevice &d : devices_) out.push_back(d.name);
  return out;
}

ibv_context *Machine::open(const std::string &name) {
  TestDevice &d = device(name);
  if (d.open_error != 0) {
    errno = d.open_error;
    return nullptr;
  }
  auto made = std::make_unique<Open>();
  made->device = &d;
  made->context.async_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  opened++;
  return &open_.emplace_back(std::move(made))->context;
}

int Machine::close(ibv_context *context) {
  ::close(context->async_fd);
  std::erase_if(open_, [&](const auto &o) { return &o->context == context; });
  opened--;
  return 0;
}

Machine::Open &Machine::of(ibv_context *context) {
  for (const auto &o : open_)
    if (&o->context == context) return *o;
  throw std::out_of_range("no open device");
}

TestPort *Machine::port_of(ibv_context *context, uint8_t port) {
  auto &ports = of(context).device->ports;
  return port >= 1 && port <= ports.size() ? &ports[port - 1u] : nullptr;
}

int Machine::query_device(ibv_context *context, ibv_device_attr *out) {
  *out = {};
  out->phys_port_cnt = static_cast<uint8_t>(of(context).device->ports.size());
  out->max_qp = of(context).device->max_qp;
  out->max_cq = out->max_mr = 1000;
  return 0;
}

int Machine::query_port(ibv_context *context, uint8_t port, ibv_port_attr *out) {
  const TestPort *p = port_of(context, port);
  if (!p) return EINVAL;
  *out = p->attr;
  return 0;
}

int Machine::query_gid(ibv_context *context, uint8_t port, uint32_t index, ibv_gid_entry *out) {
  const TestPort *p = port_of(context, port);
  if (!p || static_cast<int>(index) >= p->attr.gid_tbl_len) return EINVAL;
  const auto it = p->gids.find(index);
  if (it == p->gids.end()) return ENODATA;
  *out = it->second;
  return 0;
}

int Machine::query_pkey(ibv_context *context, uint8_t port, int index, uint16_t *out) {
  const TestPort *p = port_of(context, port);
  if (!p || index < 0 || static_cast<size_t>(index) >= p->pkeys.size()) return EINVAL;
  *out = p->pkeys[static_cast<size_t>(index)];
  return 0;
}

int Machine::get_async_event(ibv_context *context, ibv_async_event *out) {
  Open &o = of(context);
  if (event_error_ != 0 || o.events.empty()) {
    eventfd_t ignored;
    if (event_error_ == 0) eventfd_read(context->async_fd, &ignored); // a lost device stays readable
    errno = event_error_ != 0 ? event_error_ : EAGAIN;
    return -1;
  }
  *out = o.events.front();
  o.events.pop_front();
  return 0;
}

std::string names(const Found &found) {
  std::string out;
  for (const auto &d : found.devices) out += (out.empty() ? "" : " ") + d.name;
  return out;
}
