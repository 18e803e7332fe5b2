#include "topology/net_devices.h"
#include <algorithm>
#include <fmt/format.h>
#include <pugixml.hpp>

namespace tutti {
namespace {

// A field of the plugin's struct, which it may have filled to the brim.
template <size_t n> std::string text_of(const char (&field)[n]) {
  return one_line(std::string_view(field, std::find(field, field + n, '\0')));
}

class Merger {
public:
  Merger(pugi::xml_node system, std::span<const tutti_net_dev> devices) : system_(system), devices_(devices) {
    for (const pugi::xpath_node &n : system.select_nodes("//net")) free_.push_back(n.node());
  }
  std::vector<std::string> run() {
    const bool others = std::any_of(devices_.begin(), devices_.end(), [](const tutti_net_dev &d) { return !is_loopback(d); });
    std::vector<Element> at(devices_.size());
    for (const bool by_name : {true, false}) // names are sure; what is left goes by PCI
      for (size_t i = 0; i < devices_.size(); i++)
        if (!at[i] && !(others && is_loopback(devices_[i]))) at[i] = by_name ? named(devices_[i]) : on_its_pci(devices_[i]);
    for (size_t i = 0; i < devices_.size(); i++) {
      if (others && is_loopback(devices_[i])) continue;
      describe(at[i] ? at[i] : added(devices_[i]), i);
    }
    remove_others();
    return std::move(notes_);
  }

private:
  using Element = pugi::xml_node;
  static bool is_loopback(const tutti_net_dev &d) { return (d.flags & TUTTI_NET_LOOPBACK) != 0; }
  // "/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0" -> "0000:01:00.0"
  static std::string busid_of(const tutti_net_dev &d) {
    const std::string path = text_of(d.pci);
    return normal_busid(path.substr(path.rfind('/') + 1));
  }
  Element pci_element(const std::string &busid) {
    if (busid.empty()) return {};
    return system_.find_node([&](const Element &e) {
      return std::string_view(e.name()) == "pci" && normal_busid(e.attribute("busid").value()) == busid;
    });
  }
  Element take(std::vector<Element>::iterator it) {
    if (it == free_.end()) return {};
    const Element e = *it;
    free_.erase(it);
    return e;
  }
  Element named(const tutti_net_dev &d) {
    const std::string name = text_of(d.name);
    return take(std::find_if(free_.begin(), free_.end(), [&](const Element &e) {
      const std::string theirs = e.attribute("name").value();
      return theirs == name || fmt::format("{}:{}", theirs, e.attribute("port").value()) == name;
    }));
  }
  Element on_its_pci(const tutti_net_dev &d) {
    const Element pci = pci_element(busid_of(d));
    if (!pci) return {};
    return take(std::find_if(free_.begin(), free_.end(), [&](const Element &e) { return e.parent().parent() == pci; }));
  }

  Element cpu_of(const tutti_net_dev &d) {
    const std::string numa = std::to_string(d.numa_node);
    const Element known = system_.find_child_by_attribute("cpu", "numaid", numa.c_str());
    if (known) return known;
    notes_.push_back(fmt::format("{}: its NUMA node is not known: the first one assumed", text_of(d.name)));
    if (const Element first = system_.child("cpu")) return first;
    Element cpu = system_.append_child("cpu");
    cpu.append_attribute("numaid") = 0;
    return cpu;
  }
  Element added(const tutti_net_dev &d) {
    const std::string busid = busid_of(d);
    if (busid.empty()) return cpu_of(d).append_child("nic").append_child("net"); // a card of its own
    Element pci = pci_element(busid);
    if (!pci) {
      pci = cpu_of(d).append_child("pci");
      pci.append_attribute("busid") = busid.c_str();
      pci.append_attribute("class") = "0x020000";
    }
    Element nic = pci.child("nic");
    return (nic ? nic : pci.append_child("nic")).append_child("net");
  }

  void describe(Element net, size_t index) {
    const tutti_net_dev &d = devices_[index];
    const auto set = [&](const char *name, const std::string &value) {
      (net.attribute(name) ? net.attribute(name) : net.append_attribute(name)).set_value(value.c_str());
    };
    const auto set_missing = [&](const char *name, bool known, const std::string &value) {
      if (known && net.attribute(name).as_double() <= 0) set(name, value);
    };
    set("name", text_of(d.name));
    set("dev", std::to_string(index));
    set_missing("speed", d.speed_mbps > 0, std::to_string(d.speed_mbps));
    set_missing("latency", d.latency_ns > 0, fmt::format("{:.3f}", d.latency_ns / 1000.0));
    if (d.rail >= 0 && !net.attribute("rail")) set("rail", std::to_string(d.rail));
    if (d.guid != 0 && !net.attribute("guid")) set("guid", fmt::format("{:#x}", d.guid));
  }

  void remove_others() {
    std::string names;
    for (Element e : free_) {
      names += fmt::format("{}{}", names.empty() ? "" : ", ", one_line(e.attribute("name").value()));
      e.parent().remove_child(e);
    }
    if (!names.empty()) notes_.push_back(fmt::format("ports that are no devices of the network in use: {}", names));
  }

  Element system_;
  std::span<const tutti_net_dev> devices_;
  std::vector<Element> free_; // ports that no device has taken
  std::vector<std::string> notes_;
};

} // namespace

std::vector<std::string> add_net_devices(MachineFile *file, std::span<const tutti_net_dev> devices) {
  return Merger(file->system(), devices).run();
}

} // namespace tutti
