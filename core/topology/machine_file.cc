#include "topology/machine_file.h"
#include "base/file.h"
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <pugixml.hpp>
#include <sstream>

namespace tutti {
namespace {

constexpr unsigned kParse =
    pugi::parse_default | pugi::parse_comments | pugi::parse_pi | pugi::parse_declaration | pugi::parse_doctype;
constexpr size_t kMostBytes = 16u << 20; // a large host has some 100 KiB
constexpr int kMostLevels = 128;         // whoever walks the tree may recurse

struct TooDeep : pugi::xml_tree_walker {
  ptrdiff_t offset = 0;
  bool for_each(pugi::xml_node &node) override {
    offset = node.offset_debug();
    return depth() < kMostLevels;
  }
};

} // namespace

MachineFile::MachineFile() : doc_(std::make_unique<pugi::xml_document>()), name_("this machine") {
  doc_->append_child("system").append_attribute("version") = 1;
}
MachineFile::~MachineFile() = default;
MachineFile::MachineFile(MachineFile &&) noexcept = default;
MachineFile &MachineFile::operator=(MachineFile &&) noexcept = default;

pugi::xml_node MachineFile::system() const {
  return doc_->document_element();
}

int MachineFile::line(ptrdiff_t offset) const {
  if (line_starts_.empty() || offset < 0) return 0;
  const auto after = std::upper_bound(line_starts_.begin(), line_starts_.end(), static_cast<size_t>(offset));
  return static_cast<int>(after - line_starts_.begin());
}

Result<MachineFile> MachineFile::read(const std::string &path) {
  TUTTI_ASSIGN(text, read_file(path, kMostBytes));
  if (text.empty()) return fail(Code::invalid_argument, "{}: the topology file is empty", path);
  return parse(text, path);
}

Result<MachineFile> MachineFile::parse(std::string_view text, std::string name) {
  if (text.size() > kMostBytes)
    return fail(Code::invalid_argument, "{}: a topology file of {} bytes; at most {} are read", name, text.size(), kMostBytes);
  MachineFile f;
  f.name_ = std::move(name);
  f.line_starts_.push_back(0);
  for (size_t i = 0; i < text.size(); i++)
    if (text[i] == '\n') f.line_starts_.push_back(i + 1);
  const pugi::xml_parse_result parsed = f.doc_->load_buffer(text.data(), text.size(), kParse, pugi::encoding_utf8);
  std::string what = parsed.description();
  what[0] = static_cast<char>(what[0] | 0x20);
  if (!parsed) return fail(Code::invalid_argument, "{}:{}: not well-formed XML: {}", f.name_, f.line(parsed.offset), what);
  TooDeep deep;
  if (!f.doc_->traverse(deep))
    return fail(Code::invalid_argument, "{}:{}: more than {} levels of elements", f.name_, f.line(deep.offset), kMostLevels);
  const pugi::xml_node root = f.doc_->document_element();
  int elements = 0;
  for (const pugi::xml_node &child : f.doc_->children()) elements += child.type() == pugi::node_element;
  const int at = f.line(root.offset_debug());
  if (std::string_view(root.name()) != "system")
    return fail(Code::invalid_argument, "{}:{}: a topology file has <system> as its root, not <{}>", f.name_, at, root.name());
  if (elements > 1) return fail(Code::invalid_argument, "{}:{}: more than one root element", f.name_, at);
  const std::string_view version = root.attribute("version").value();
  if (version != "1" && version != "2")
    return fail(Code::invalid_argument, "{}:{}: <system version=\"{}\">: versions 1 and 2 are known", f.name_, at,
                one_line(version));
  return f;
}

std::string MachineFile::text() const {
  std::ostringstream out;
  doc_->save(out, "  ",
             pugi::format_indent | (doc_->first_child().type() == pugi::node_declaration ? 0u : pugi::format_no_declaration),
             pugi::encoding_utf8);
  return out.str();
}

Status MachineFile::write(const std::string &path) const {
  return replace_file(path, text());
}

std::string normal_busid(std::string_view text) {
  unsigned domain = 0, bus = 0, device = 0, function = 0;
  int used = 0;
  const std::string copy(text);
  const bool full = std::sscanf(copy.c_str(), "%8x:%2x:%2x.%1x%n", &domain, &bus, &device, &function, &used) == 4 && used > 0;
  if (!full || static_cast<size_t>(used) != copy.size()) {
    domain = 0;
    used = 0;
    if (std::sscanf(copy.c_str(), "%2x:%2x.%1x%n", &bus, &device, &function, &used) != 3) return "";
    if (static_cast<size_t>(used) != copy.size()) return "";
  }
  // A switch's made-up addresses (ffff:ff:01.0) have devices above 31.
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", domain, bus, device, function);
}

double parse_gigatransfers(std::string_view text) {
  return std::strtod(std::string(text).c_str(), nullptr);
}

} // namespace tutti
