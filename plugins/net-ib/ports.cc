// tutti/plugins/net-ib/ports.cc: which ports there are, and which of them can be used.
#include "ports.h"
#include "explain.h"
#include "groups.h"
#include "selection.h"
#include "sysfs.h"
#include <cerrno>
#include <set>

namespace tutti::net_ib {

using plugin::text;

namespace {

constexpr int max_ports_of_device = 254;

const char *state_text(ibv_port_state state) {
  switch (state) {
  case IBV_PORT_DOWN:
    return "DOWN (no cable or no carrier, or its network interface is down)";
  case IBV_PORT_INIT:
    return "INIT (no subnet manager has configured it)";
  case IBV_PORT_ARMED:
    return "ARMED (the subnet manager has not activated it yet)";
  case IBV_PORT_ACTIVE_DEFER:
    return "ACTIVE_DEFER (its link is lost for the moment)";
  default:
    return "not known";
  }
}

// Gbit/s of one lane by the bits of active_speed; XDR is past what one byte holds.
uint32_t lane_mbps(uint32_t speed) {
  switch (speed) {
  case 1:
    return 2500;
  case 2:
    return 5000;
  case 4: // QDR
  case 8: // FDR10
    return 10000;
  case 16:
    return 14000;
  case 32:
    return 25000;
  case 64:
    return 50000;
  case 128:
    return 100000;
  case 256:
    return 200000;
  default:
    return 0;
  }
}

uint32_t lanes(uint8_t width) {
  return width == 1 ? 1 : width == 2 ? 4 : width == 4 ? 8 : width == 8 ? 12 : width == 16 ? 2 : 0;
}

// Libraries that know XDR have a wider member for it, and leave the byte 0.
template <class Attr> uint32_t speed_bits(const Attr &attr) {
  if constexpr (requires { attr.active_speed_ex; })
    return attr.active_speed_ex ? attr.active_speed_ex : attr.active_speed;
  else
    return attr.active_speed;
}

ibv_mtu smaller_mtu(ibv_mtu active, uint32_t wanted_bytes) {
  ibv_mtu out = active;
  while (wanted_bytes != 0 && out > IBV_MTU_256 && mtu_bytes(out) > wanted_bytes) out = static_cast<ibv_mtu>(out - 1);
  return out;
}

// Membership, the top bit, is not part of the key.
constexpr uint16_t key_bits = 0x7fff;

bool find_pkey(const Settings &s, Verbs &verbs, ibv_context *context, const ibv_port_attr &attr, Port &port, std::string &why) {
  if (s.pkey == 0) {
    uint16_t key = 0;
    const int err = verbs.query_pkey(context, port.port, s.pkey_index, &key);
    port.pkey_index = static_cast<uint16_t>(s.pkey_index);
    if (s.pkey_index == 0 || (err == 0 && (key & key_bits) != 0)) return true;
    why = text("there is no partition key at index ", s.pkey_index, ", which pkey_index asks for");
    return false;
  }
  int found = -1;
  for (int i = 0; i < attr.pkey_tbl_len; i++) {
    uint16_t key = 0;
    if (verbs.query_pkey(context, port.port, i, &key) != 0 || (key & key_bits) != (s.pkey & key_bits)) continue;
    if (found < 0 || (key & ~key_bits) != 0) found = i; // full membership reaches limited members, too
    if ((key & ~key_bits) != 0) break;
  }
  char hex[8];
  std::snprintf(hex, sizeof hex, "0x%04x", s.pkey);
  if (found < 0) why = text("it is no member of partition ", hex, ", which pkey asks for");
  port.pkey_index = static_cast<uint16_t>(std::max(found, 0));
  return found >= 0;
}

bool take_attributes(const Settings &settings, Verbs &verbs, ibv_context *context, const ibv_port_attr &attr, Port &port,
                     std::string &why) {
  port.ethernet = attr.link_layer == IBV_LINK_LAYER_ETHERNET;
  port.lid = attr.lid;
  port.max_message = attr.max_msg_sz;
  port.mtu = smaller_mtu(attr.active_mtu, settings.mtu);
  if (attr.state != IBV_PORT_ACTIVE) {
    why = text("its state is ", state_text(attr.state));
    return false;
  }
  if (!port.ethernet && attr.lid == 0 && settings.gid_index < 0) {
    why = "it has no LID: no subnet manager has configured it";
    return false;
  }
  return find_pkey(settings, verbs, context, attr, port, why) && choose_gid(settings, verbs, context, port, why);
}

// What files say. The rest works without.
void describe_place(const Sysfs &sysfs, Verbs &verbs, Port &port) {
  port.netdev = port.ethernet ? sysfs.netdev(port.device, port.port, port.gid_index) : "";
  port.pci = sysfs.pci(port.device, port.netdev);
  port.numa_node = sysfs.numa_node(port.pci);
  const std::string physical = sysfs.physical(port.pci);
  port.adapter = physical.empty() ? port.device : physical.substr(0, physical.rfind('.')); // without the function
  uint64_t node = physical != port.pci ? sysfs.node_guid_of(physical) : 0;
  if (node == 0) node = verbs.guid(port.device);
  if (node == 0) node = sysfs.node_guid(port.device);
  port.guid = node == 0 ? 0 : node + port.port - 1; // as adapters number their ports
}

class Survey {
public:
  Survey(const Settings &settings, Verbs &verbs, const std::string &sysfs)
      : settings_(settings), verbs_(verbs), sysfs_(sysfs), selection_(parse_selection(settings.hca)) {}

  Found run() {
    if (!settings_.disabled_by.empty()) {
      found_.why = text("switched off (", settings_.disabled_by, ")");
      return std::move(found_);
    }
    const std::vector<std::string> names = verbs_.devices();
    if (names.empty()) {
      found_.why = errno == 0 ? "this host has no RDMA device"
                              : text("RDMA devices cannot be listed: ", std::generic_category().message(errno),
                                     " (the kernel module ib_uverbs may be missing)");
      return std::move(found_);
    }
    for (const std::string &name : names) look_at(name);
    find_unmatched();
    found_.devices = make_devices(settings_, std::move(candidates_), found_);
    if (found_.devices.empty()) found_.why = why_none();
    return std::move(found_);
  }

private:
  void decline(const std::string &what, const std::string &why) { found_.declined.push_back(text(what, ": ", why)); }

  void decline_device(const std::string &name, const std::string &why) {
    for (const PortRule &r : selection_.rules) mark(name, static_cast<unsigned>(std::max(r.port, 1)));
    decline(name, why);
  }

  void look_at(const std::string &name) {
    if (!may_select(name)) {
      others_.push_back(name);
      return;
    }
    const ibv_transport_type transport = verbs_.transport(name);
    if (transport == IBV_TRANSPORT_IWARP)
      return decline_device(name, "it is an iWARP device; net-ib speaks InfiniBand and RoCE");
    if (transport != IBV_TRANSPORT_IB && transport != IBV_TRANSPORT_UNKNOWN)
      return decline_device(name, "it has no reliable connected queue pairs, which net-ib needs");
    ibv_context *context = verbs_.open(name);
    if (!context) return decline_device(name, explain_open(errno));
    ibv_device_attr attr{};
    if (const int err = verbs_.query_device(context, &attr); err != 0)
      decline_device(name, text("ibv_query_device: ", std::generic_category().message(err)));
    else if (attr.max_qp <= 0 || attr.max_cq <= 0 || attr.max_mr <= 0)
      decline_device(name, "it has no queue pairs to give");
    else
      for (int p = 1; p <= std::min<int>(attr.phys_port_cnt, max_ports_of_device); p++)
        look_at_port(context, name, static_cast<uint8_t>(p));
    verbs_.close(context);
  }

  void look_at_port(ibv_context *context, const std::string &device, uint8_t number) {
    Candidate c;
    c.port.device = device;
    c.port.port = number;
    mark(device, number);
    if (!selection_.selects(device, number)) {
      others_.push_back(c.port.name());
      return;
    }
    if (const int rule = selection_.rule_of(device, number); rule >= 0)
      c.port.rail = selection_.rules[static_cast<size_t>(rule)].rail;
    ibv_port_attr attr{};
    if (const int err = verbs_.query_port(context, number, &attr); err != 0)
      return decline(c.port.name(), text("ibv_query_port: ", std::generic_category().message(err)));
    std::string why;
    c.usable = take_attributes(settings_, verbs_, context, attr, c.port, why);
    if (!c.usable)
      decline(c.port.name(), why);
    else if (!why.empty())
      found_.notes.push_back(text(c.port.name(), ": ", why));
    if (c.usable && settings_.mtu > mtu_bytes(attr.active_mtu))
      found_.notes.push_back(text(c.port.name(), ": its MTU is ", mtu_bytes(attr.active_mtu), ", less than the ", settings_.mtu,
                                  " of option mtu"));
    describe_place(sysfs_, verbs_, c.port);
    c.port.speed_mbps = sysfs_.speed_mbps(device, number);
    if (c.port.speed_mbps == 0) c.port.speed_mbps = lanes(attr.active_width) * lane_mbps(speed_bits(attr));
    candidates_.push_back(std::move(c));
  }

  // Whether any port of the device can be selected: only then it is opened.
  bool may_select(const std::string &name) const {
    for (unsigned p = 1; p <= max_ports_of_device; p++)
      if (selection_.selects(name, p)) return true;
    return false;
  }

  // The rules that name the port, whether or not it can be used.
  void mark(const std::string &name, unsigned number) {
    for (size_t i = 0; i < selection_.rules.size(); i++)
      if (selection_.rules[i].matches(name, number)) hit_.insert(i);
  }

  void find_unmatched() {
    if (selection_.exclude) return; // what is not there need not be excluded
    for (size_t i = 0; i < selection_.rules.size(); i++)
      if (!hit_.count(i)) found_.unmatched.push_back(text("hca: ", selection_.rules[i].text));
  }

  std::string why_none() const {
    std::string out;
    if (!found_.declined.empty()) {
      for (const std::string &d : found_.declined) out += text(out.empty() ? "" : "; ", d);
      return out;
    }
    for (const std::string &o : others_) out += text(out.empty() ? "" : ", ", o);
    return text("hca \"", settings_.hca, "\" (", settings_.hca_origin, ") selects none of the ports of this host: ", out);
  }

  const Settings &settings_;
  Verbs &verbs_;
  Sysfs sysfs_;
  Selection selection_;
  Found found_;
  std::vector<Candidate> candidates_;
  std::vector<std::string> others_; // not selected
  std::set<size_t> hit_;            // rules that named something
};

} // namespace

uint32_t mtu_bytes(ibv_mtu mtu) {
  return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128u << mtu : 0;
}

Found find_devices(const Settings &settings, Verbs &verbs, const std::string &sysfs) {
  return Survey(settings, verbs, sysfs).run();
}

bool refresh_port(const Settings &settings, Verbs &verbs, ibv_context *context, Port &port, std::string &why) {
  ibv_port_attr attr{};
  if (const int err = verbs.query_port(context, port.port, &attr); err != 0) {
    why = text("ibv_query_port: ", std::generic_category().message(err));
    return false;
  }
  return take_attributes(settings, verbs, context, attr, port, why);
}

} // namespace tutti::net_ib
