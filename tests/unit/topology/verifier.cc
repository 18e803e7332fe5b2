#include "verifier.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <pugixml.hpp>
#include <utility>

namespace verify {

// PCI devices are named by their place in the tree: files of real machines use an address twice.
class HostReader {
public:
  explicit HostReader(Host *host) : h_(host) {}
  void read(pugi::xml_node system) {
    std::vector<std::string> cpus;
    for (pugi::xml_node cpu : system.children("cpu")) {
      cpus.push_back(std::string("cpu") + cpu.attribute("numaid").value());
      if (!std::strcmp(cpu.attribute("vendor").value(), "GenuineIntel")) h_->intel_cpus_.insert(cpus.back());
      children(cpu, cpus.back());
    }
    for (const auto &a : cpus)
      for (const auto &b : cpus)
        if (a != b) h_->link(a, b, between_cpus(system.child("cpu")));
    for (const auto &[name, element] : elements_) nvlinks(name, element);
  }

private:
  static double between_cpus(pugi::xml_node cpu) {
    const std::string vendor = cpu.attribute("vendor").value();
    if (vendor == "AuthenticAMD") return 16;
    const int model = cpu.attribute("modelid").as_int();
    return vendor != "GenuineIntel" ? 10 : model >= 207 ? 40 : model >= 143 ? 22 : model >= 85 ? 10 : 6;
  }
  static double pci(pugi::xml_node e) {
    const double speed = e.attribute("link_speed").as_double();
    const double lane = speed == 2.5 ? 15 : speed == 5 ? 30 : speed == 16 ? 120 : speed == 32 ? 240 : speed == 64 ? 480 : 60;
    return lane * e.attribute("link_width").as_int(16) / 80;
  }
  static bool gpu_class(pugi::xml_node e) {
    const std::string c = std::string(e.attribute("class").value()).substr(0, 6);
    return c == "0x0302" || c == "0x0300" || c == "0x0380" || c == "0x1200";
  }
  void children(pugi::xml_node e, const std::string &parent) {
    std::map<std::string, int> same;
    for (pugi::xml_node nic : e.children("nic"))
      for (pugi::xml_node net : nic.children("net")) port(net, parent);
    for (pugi::xml_node p : e.children("pci")) {
      const std::string bus = p.attribute("busid").value();
      std::string name = parent + "/" + bus + (same[bus] ? "#" + std::to_string(same[bus]) : "");
      same[bus]++;
      if (p.child("gpu") || gpu_class(p)) {
        const int dev = p.child("gpu").attribute("dev").as_int(static_cast<int>(h_->gpus_.size()));
        h_->gpus_.insert(dev);
        name = Host::gpu_name(dev);
        by_bus_[bus] = name;
        elements_.emplace_back(name, p.child("gpu"));
      }
      h_->parent_[name] = parent;
      h_->link(name, parent, pci(p));
      h_->link(parent, name, pci(p));
      children(p, name);
    }
  }
  void port(pugi::xml_node net, const std::string &nic) {
    const int dev = net.attribute("dev").as_int();
    const double mbps = net.attribute("speed").as_double();
    h_->ports_.insert(dev);
    h_->parent_[Host::port_name(dev)] = nic;
    h_->link(nic, Host::port_name(dev), (mbps > 0 ? mbps : 10000) / 8000);
    h_->link(Host::port_name(dev), nic, (mbps > 0 ? mbps : 10000) / 8000);
  }
  void nvlinks(const std::string &name, pugi::xml_node gpu) {
    const int sm = gpu.attribute("sm").as_int(), gcn = gpu.attribute("gcn").as_int();
    const double brick = sm >= 100 ? 40.1 : sm >= 90 ? 20.6 : sm == 86 ? 12 : sm >= 70 ? 20 : 18;
    const double xgmi = gcn >= 940 ? 48 : gcn >= 910 ? 36 : 24;
    for (pugi::xml_node l : gpu.children()) {
      const bool nv = !std::strcmp(l.name(), "nvlink"), x = !std::strcmp(l.name(), "xgmi");
      const auto peer = by_bus_.find(l.attribute("target").value());
      if ((nv || x) && peer != by_bus_.end())
        h_->link(name, peer->second, l.attribute("count").as_int(1) * (nv ? brick : xgmi));
    }
  }
  Host *h_;
  std::map<std::string, std::string> by_bus_;
  std::vector<std::pair<std::string, pugi::xml_node>> elements_;
};

std::optional<Host> Host::read(const std::string &path) {
  pugi::xml_document doc;
  if (!doc.load_file(path.c_str())) return {};
  Host h;
  HostReader(&h).read(doc.child("system"));
  return h;
}

std::vector<std::string> Host::up(std::string node) const {
  std::vector<std::string> chain{node};
  for (auto p = parent_.find(node); p != parent_.end(); p = parent_.find(node)) chain.push_back(node = p->second);
  return chain;
}

std::vector<std::string> Host::way(const std::string &a, const std::string &b, int wanted) const {
  if (links_.count({a, b})) return {a, b};
  std::string over;
  double most = 0;
  for (int g : gpus_) {
    if (wanted != g && wanted != kWidest) continue;
    const auto first = links_.find({a, gpu_name(g)}), second = links_.find({gpu_name(g), b});
    if (first == links_.end() || second == links_.end()) continue;
    if (const double least = std::min(first->second, second->second); least > most) most = least, over = gpu_name(g);
  }
  if (most > 0) return {a, over, b};
  std::vector<std::string> left = up(a), right = up(b);
  while (left.size() > 1 && right.size() > 1 && left[left.size() - 2] == right[right.size() - 2])
    left.pop_back(), right.pop_back();
  if (left.back() == right.back()) right.pop_back();
  left.insert(left.end(), right.rbegin(), right.rend());
  return left;
}

std::string Host::fault(const std::vector<Ring> &rings, const std::vector<Ways> &ways) const {
  for (size_t r = 0; r < rings.size(); r++) {
    const Ring &ring = rings[r];
    if (std::set<int>(ring.begin(), ring.end()) != gpus_ || ring.size() != gpus_.size())
      return "ring " + std::to_string(r) + " does not visit each GPU once";
    if (ways[r].size() != ring.size()) return "ring " + std::to_string(r) + " has another number of hops";
    for (size_t i = 0; i < ring.size(); i++) {
      const auto &w = ways[r][i];
      if (w.size() < 2 || w.front() != gpu_name(ring[i]) || w.back() != gpu_name(ring[(i + 1) % ring.size()]))
        return "a way of ring " + std::to_string(r) + " does not join its GPUs";
      for (size_t k = 0; k + 1 < w.size(); k++)
        if (!links_.count({w[k], w[k + 1]})) return "there is no link from " + w[k] + " to " + w[k + 1];
    }
  }
  return "";
}

double Host::each(const std::vector<Hop> &hops, double *strain) const {
  std::map<std::pair<std::string, std::string>, double> load;
  for (const Hop &h : hops) {
    const bool costly = std::any_of(h.way.begin(), h.way.end(), [this](const auto &n) { return intel_cpus_.count(n) > 0; });
    for (size_t k = 0; k + 1 < h.way.size(); k++) {
      const bool wire = h.way[k].starts_with("net") || h.way[k + 1].starts_with("net"); // what a processor adds is not on it
      load[{h.way[k], h.way[k + 1]}] += h.bytes * (costly && !wire ? 1.2 : 1.0);
    }
  }
  double least = std::numeric_limits<double>::infinity(), sum = 0;
  for (const auto &[link, bytes] : load) {
    least = std::min(least, links_.at(link) / bytes);
    sum += std::pow(bytes / links_.at(link), 12);
  }
  if (strain) *strain = sum;
  return least;
}

double Host::best_each(const std::vector<Walk> &walks, double enough) const {
  std::vector<Hop> hops;
  for (const Walk &w : walks)
    for (size_t i = 0; i + 1 < w.stops.size(); i++) hops.push_back({w.stops[i], w.stops[i + 1], {}, w.bytes});
  std::vector<int> detours{kPci};
  detours.insert(detours.end(), gpus_.begin(), gpus_.end());
  double best = 0;
  for (int all : {kWidest, kPci}) {
    for (Hop &h : hops) h.way = way(h.from, h.to, all);
    double now = 0, then = 0;
    best = std::max(best, each(hops, &now));
    for (int pass = 0; pass < 2 && best < enough; pass++) // and hop by hop
      for (Hop &h : hops) {
        if (links_.count({h.from, h.to})) continue;
        for (int one : detours) {
          auto old = std::exchange(h.way, way(h.from, h.to, one));
          if (h.way == old) continue;
          best = std::max(best, each(hops, &then));
          if (then < now)
            now = then;
          else
            h.way = std::move(old);
        }
      }
  }
  return best;
}

double Host::best_each(const std::vector<Ring> &rings) const {
  std::vector<Walk> walks;
  for (const Ring &ring : rings) {
    walks.emplace_back();
    for (int gpu : ring) walks.back().stops.push_back(gpu_name(gpu));
    walks.back().stops.push_back(gpu_name(ring.front()));
  }
  return best_each(walks);
}

double Host::each(const std::vector<Ways> &ways) const {
  std::vector<Hop> hops;
  for (const Ways &ring : ways)
    for (const auto &w : ring) hops.push_back({"", "", w, 1});
  return each(hops);
}

std::optional<Answer> read_answer(const std::string &path, const std::string &id) {
  pugi::xml_document doc;
  if (!doc.load_file(path.c_str())) return {};
  const pugi::xml_node graph = doc.child("graphs").find_child_by_attribute("graph", "id", id.c_str());
  if (!graph) return {};
  Answer a;
  a.each = graph.attribute("speedintra").as_double();
  for (pugi::xml_node c : graph.children("channel")) {
    a.rings.emplace_back();
    for (pugi::xml_node g : c.children("gpu")) a.rings.back().push_back(g.attribute("dev").as_int());
  }
  return a;
}

} // namespace verify
