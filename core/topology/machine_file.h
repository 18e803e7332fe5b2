// tutti/core/topology/machine_file.h: the field's XML file of one host, read, completed and written. What is not understood
// stays.
#pragma once
#include "base/status.h"
#include "topology/machine.h"
#include <memory>
#include <string>
#include <string_view>

namespace pugi {
class xml_document;
class xml_node;
} // namespace pugi

namespace tutti {

class MachineFile {
public:
  MachineFile(); // an empty <system version="1">
  ~MachineFile();
  MachineFile(MachineFile &&) noexcept;
  MachineFile &operator=(MachineFile &&) noexcept;

  // Errors name file:line, the value and what is allowed. Of `name`, messages only.
  static Result<MachineFile> read(const std::string &path);
  static Result<MachineFile> parse(std::string_view text, std::string name);
  std::string text() const;
  Status write(const std::string &path) const;

  // The graph. Checked here: addresses, numbers, duplicates, nesting, targets.
  Result<Machine> machine() const;

  pugi::xml_node system() const; // for detection, which completes it
  const std::string &name() const { return name_; }

private:
  std::unique_ptr<pugi::xml_document> doc_;
  std::string name_;
  std::vector<size_t> line_starts_; // of the text that was parsed
  friend class MachineBuilder;
  int line(ptrdiff_t offset) const; // 0: not from a text
};

// "0000:0C:00.0", "c:00.0" -> "0000:0c:00.0"; empty when it is no PCI address.
std::string normal_busid(std::string_view text);
// "16.0 GT/s PCIe" -> 16; 0 when there is no number.
double parse_gigatransfers(std::string_view text);

} // namespace tutti
