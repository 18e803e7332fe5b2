// The field's graph files: XML that names the channels by the numbers of their GPUs.
#include "base/file.h"
#include "topology/channels.h"
#include <algorithm>
#include <pugixml.hpp>
#include <sstream>

namespace tutti {
namespace {

constexpr int kMostChannels = 256, kMostGpus = 1024;

class Reader {
public:
  Reader(std::string_view text, const std::string &name) : text_(text), name_(name) {}
  Result<std::vector<Graph>> read() {
    pugi::xml_document doc;
    const pugi::xml_parse_result parsed = doc.load_buffer(text_.data(), text_.size(), pugi::parse_default, pugi::encoding_utf8);
    if (!parsed)
      return fail(Code::invalid_argument, "{}:{}: not well-formed XML: {}", name_, line(parsed.offset), parsed.description());
    const pugi::xml_node root = doc.document_element();
    if (std::string_view(root.name()) != "graphs") return bad(root, "a graph file has <graphs> as its root");
    if (std::string_view(root.attribute("version").value()) != "1") return bad(root, "version 1 is known");
    std::vector<Graph> graphs;
    for (pugi::xml_node e : root.children("graph")) {
      Graph g;
      TUTTI_TRY(graph(e, &g));
      graphs.push_back(std::move(g));
    }
    return graphs;
  }

private:
  size_t line(ptrdiff_t offset) const {
    const auto end = text_.begin() + std::clamp<ptrdiff_t>(offset, 0, static_cast<ptrdiff_t>(text_.size()));
    return static_cast<size_t>(std::count(text_.begin(), end, '\n')) + 1;
  }
  Status bad(pugi::xml_node e, std::string_view what) const {
    return fail(Code::invalid_argument, "{}:{}: <{}>: {}", name_, line(e.offset_debug()), e.name(), one_line(what));
  }
  Status number(pugi::xml_node e, const char *attribute, int *out) const {
    const pugi::xml_attribute a = e.attribute(attribute);
    char *end = nullptr;
    const long value = std::strtol(a.value(), &end, 10);
    if (!*a.value() || *end || value < 0 || value > 1 << 16)
      return bad(e, fmt::format("{}=\"{}\": a number from 0 to 65536 is wanted", attribute, a.value()));
    *out = static_cast<int>(value);
    return {};
  }
  Status graph(pugi::xml_node e, Graph *g) const {
    TUTTI_TRY(number(e, "id", &g->id));
    TUTTI_TRY(number(e, "pattern", &g->pattern));
    g->gbps = e.attribute("speedintra").as_double();
    const std::string_view type = e.attribute("typeintra").value();
    for (g->worst = PathKind::loc; kind_name(g->worst) != type;) {
      if (g->worst == PathKind::dis) return bad(e, fmt::format("typeintra=\"{}\": one of LOC, NVL, ... DIS is wanted", type));
      g->worst = static_cast<PathKind>(static_cast<int>(g->worst) + 1);
    }
    for (pugi::xml_node c : e.children("channel")) {
      Graph::Channel channel;
      for (pugi::xml_node m : c.children()) {
        const bool gpu = std::string_view(m.name()) == "gpu";
        if (!gpu && std::string_view(m.name()) != "net") continue; // of a later version
        int dev = 0;
        TUTTI_TRY(number(m, "dev", &dev));
        (gpu ? channel.gpus : channel.nets).push_back(dev);
        if (channel.gpus.size() > kMostGpus) return bad(c, fmt::format("more than {} GPUs", kMostGpus));
      }
      g->channels.push_back(std::move(channel));
      if (g->channels.size() > kMostChannels) return bad(e, fmt::format("more than {} channels", kMostChannels));
    }
    int announced = 0;
    if (!e.attribute("nchannels")) return {};
    TUTTI_TRY(number(e, "nchannels", &announced));
    if (static_cast<size_t>(announced) == g->channels.size()) return {};
    return bad(e, fmt::format("nchannels=\"{}\", but there are {}", announced, g->channels.size()));
  }
  std::string_view text_;
  const std::string &name_;
};

} // namespace

std::string graph_xml(const std::vector<Graph> &graphs) {
  pugi::xml_document doc;
  pugi::xml_node root = doc.append_child("graphs");
  root.append_attribute("version") = 1;
  for (const Graph &g : graphs) {
    pugi::xml_node e = root.append_child("graph");
    const std::string speed = fmt::format("{:g}", g.gbps), worst(kind_name(g.worst));
    e.append_attribute("id") = g.id;
    e.append_attribute("pattern") = g.pattern;
    e.append_attribute("crossnic") = 0;
    e.append_attribute("nchannels") = static_cast<unsigned>(g.channels.size());
    e.append_attribute("speedintra") = speed.c_str();
    e.append_attribute("speedinter") = speed.c_str();
    e.append_attribute("latencyinter") = 0;
    e.append_attribute("typeintra") = worst.c_str();
    e.append_attribute("typeinter") = g.pattern == Graph::kCollnet ? worst.c_str() : "PIX";
    e.append_attribute("samechannels") = 0;
    for (const Graph::Channel &channel : g.channels) {
      pugi::xml_node c = e.append_child("channel");
      for (int net : channel.nets) c.append_child("net").append_attribute("dev") = net;
      for (int gpu : channel.gpus) c.append_child("gpu").append_attribute("dev") = gpu;
    }
  }
  std::ostringstream out;
  doc.save(out, "  ", pugi::format_indent | pugi::format_no_declaration);
  return out.str();
}

Result<std::vector<Graph>> parse_graphs(std::string_view text, const std::string &name) {
  return Reader(text, name).read();
}

Result<std::vector<Graph>> read_graphs(const std::string &path) {
  constexpr size_t kMostBytes = 16 << 20;
  TUTTI_ASSIGN(text, read_file(path, kMostBytes));
  return parse_graphs(text, path);
}

} // namespace tutti
